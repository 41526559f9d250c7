//! The figure: a curve for each number of copies, and lines where nodes are killed and started.

use std::fmt::Write as _;

use super::{Curve, Report};

/// Width and height of the picture, and of the place of the curves in it.
const SIZE: (f64, f64) = (760.0, 420.0);
const LEFT: f64 = 60.0;
const TOP: f64 = 46.0;
const PLOT: (f64, f64) = (680.0, 310.0);
/// What is shown of a spike: so many times the rate.
const SPIKE: f64 = 2.5;
/// Into how many parts the axes of seconds and operations are divided.
const STEPS: (u32, u32) = (9, 5);
/// A colour and a pattern for each curve, which are told apart without colours too.
const STROKES: [(&str, &str); 3] = [("#c0392b", "6 4"), ("#1f6fb2", "none"), ("#2e8b57", "2 3")];

struct Chart {
    seconds: f64,
    top: f64,
}

impl Chart {
    fn x(&self, second: f64) -> f64 {
        LEFT + PLOT.0 * second / self.seconds
    }

    fn y(&self, count: f64) -> f64 {
        TOP + PLOT.1 * (1.0 - count.min(self.top) / self.top)
    }

    fn curve(&self, curve: &Curve, (color, dashes): (&str, &str)) -> String {
        let points = curve.succeeded.iter().enumerate();
        // The operations of a second, in its middle.
        let points =
            points.map(|(at, n)| format!("{:.1},{:.1}", self.x(at as f64 + 0.5), self.y(f64::from(*n))));
        format!(
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\" stroke-dasharray=\"{dashes}\" points=\"{}\"/>\n",
            points.collect::<Vec<_>>().join(" ")
        )
    }
}

/// The figure of a report.
pub(super) fn svg(report: &Report) -> String {
    let plan = &report.plan;
    let chart = Chart { seconds: plan.end as f64, top: SPIKE * f64::from(plan.rate) };
    let (width, height) = SIZE;
    let (bottom, right) = (TOP + PLOT.1, LEFT + PLOT.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
        <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
        <text x=\"{LEFT}\" y=\"18\">Metadata operations that succeed in each second, {} sent</text>\n",
        plan.rate
    );
    let mut add = |line: &str| writeln!(text, "{line}").expect("a string takes everything");
    for step in 0..=STEPS.1 {
        let count = chart.top * f64::from(step) / f64::from(STEPS.1);
        let y = chart.y(count);
        add(&format!("<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"));
        add(&format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{count:.0}</text>",
            LEFT - 6.0,
            y + 4.0
        ));
    }
    for step in 0..=STEPS.0 {
        let second = chart.seconds * f64::from(step) / f64::from(STEPS.0);
        let x = chart.x(second);
        add(&format!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{second:.0}</text>", bottom + 18.0));
    }
    add(&format!("<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">seconds</text>", bottom + 36.0));
    let [first, second] = plan.kills;
    for (at, what) in [(first, "kill"), (second, "kill"), (plan.restart, "start both")] {
        let x = chart.x(at as f64);
        add(&format!("<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#888\"/>"));
        add(&format!(
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{what}</text>",
            TOP - 6.0
        ));
    }
    for (nth, (curve, stroke)) in report.curves.iter().zip(STROKES.iter().cycle()).enumerate() {
        add(chart.curve(curve, *stroke).trim_end());
        let (x, y) = (LEFT + 150.0 * nth as f64, bottom + 36.0);
        let (color, dashes) = stroke;
        add(&format!(
            "<line x1=\"{x}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{color}\" stroke-width=\"1.8\" stroke-dasharray=\"{dashes}\"/>",
            x + 30.0,
            y - 4.0,
            y - 4.0
        ));
        add(&format!("<text x=\"{}\" y=\"{y}\">{}</text>", x + 36.0, curve.name()));
    }
    add("</svg>");
    text
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;

    #[test]
    fn each_curve_is_drawn_to_the_top_of_the_picture_at_most() {
        let plan = Plan { rate: 10, kills: [1, 2], restart: 3, end: 4, copies: &[1, 2] };
        let curve = |copies, succeeded| Curve { copies, succeeded, longest: Default::default() };
        let curves = vec![curve(1, vec![10, 0, 0, 900]), curve(2, vec![10; 4])];
        let text = svg(&Report { plan, curves });
        assert_eq!(text.matches("<polyline").count(), 2);
        assert!(
            text.contains("one copy") && text.contains("2 copies") && text.ends_with("</svg>\n"),
            "{text}"
        );
        // The last point is a spike, which ends where the plot does; 10 is two fifths of the height.
        assert!(text.contains(&format!(" {:.1},{TOP:.1}\"", LEFT + PLOT.0 * 3.5 / 4.0)), "{text}");
        assert!(text.contains(&format!("{:.1},{:.1} ", LEFT + PLOT.0 / 8.0, TOP + PLOT.1 * 0.6)), "{text}");
    }
}
