//! What the measured costs of operations say about volumes with more islands than one machine has. Measures nothing.

use atoll_core::{ClockVector, Encode, IslandId, Stamp};

/// Islands of the volume on paper.
pub(super) const ISLANDS_ON_PAPER: u16 = 10_000;

/// Parts of all operations, in a hundredth of a percent (Archipelago, Table 4 and section 6). Renames of directories do not show in that
/// table; the section counts 0.001 % of operations that all islands take part in beside changes of attributes.
pub(super) const MKDIR: f64 = 0.000_4;
/// As [`MKDIR`].
pub(super) const RMDIR: f64 = 0.000_3;
/// As [`MKDIR`].
pub(super) const CHMOD_OF_DIR: f64 = 0.000_7;
/// As [`MKDIR`].
pub(super) const RENAME_OF_DIR: f64 = 0.000_01;

/// How a cost grows with the number of islands: so much, and so much for each island, or for each time that there are e times as many. The
/// latter is the way of messages that partners have in common, such as `Stable`: the more islands, the fewer of these have several to tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Growth {
    by: By,
    at_none: f64,
    of_each: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Number,
    Logarithm,
}

impl By {
    fn of(self, islands: f64) -> f64 {
        match self {
            Self::Number => islands,
            Self::Logarithm => islands.ln(),
        }
    }
}

impl Growth {
    /// What goes best through these points: numbers of islands, and costs. That is what has the least squares of distances.
    pub(super) fn through(points: &[(f64, f64)]) -> Self {
        let [one, other] = [By::Number, By::Logarithm].map(|by| Self::by(by, points));
        let off = |growth: Self| points.iter().map(|(x, y)| (growth.at(*x) - y).powi(2)).sum::<f64>();
        if off(other) < off(one) { other } else { one }
    }

    fn by(by: By, points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let points: Vec<(f64, f64)> = points.iter().map(|(islands, cost)| (by.of(*islands), *cost)).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let of_each = if spread > 0.0 { together / spread } else { 0.0 };
        Self { by, at_none: y - of_each * x, of_each }
    }

    /// The cost with so many islands.
    pub(super) fn at(self, islands: f64) -> f64 {
        (self.at_none + self.of_each * self.by.of(islands)).max(0.0)
    }

    /// What each island adds; nothing if that becomes less and less.
    pub(super) const fn of_each(self) -> f64 {
        match self.by {
            By::Number => self.of_each,
            By::Logarithm => 0.0,
        }
    }
}

/// What a part of a whole takes if each part has something for itself, and for each other part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Part {
    own: f64,
    of_pair: f64,
}

impl Part {
    /// From the last three of these points: numbers of parts, and what the whole takes, which has something for itself too. None if there are
    /// fewer than two.
    pub(super) fn of_whole(points: &[(f64, f64)]) -> Option<Self> {
        let slope = |a: (f64, f64), b: (f64, f64)| (b.1 - a.1) / (b.0 - a.0);
        match *points {
            [.., a, b, c] => {
                let of_pair = ((slope(b, c) - slope(a, b)) / (c.0 - a.0)).max(0.0);
                Some(Self { own: slope(a, b) - of_pair * (a.0 + b.0), of_pair })
            }
            [a, b] => Some(Self { own: slope(a, b), of_pair: 0.0 }),
            _ => None,
        }
    }

    /// One of so many.
    pub(super) fn of(self, parts: f64) -> f64 {
        self.own + self.of_pair * parts
    }
}

/// The speed-up by messages alone, as the paper estimates it: each call between islands, which is two messages, takes as long as an
/// operation (Archipelago 13.2).
pub(super) fn by_calls(islands: f64, messages: f64) -> f64 {
    islands / (1.0 + messages / 2.0)
}

/// Bytes of the stamps of all islands, as a message has them with a chain of ancestors.
pub(super) fn stamp_bytes(islands: u16) -> usize {
    let mut clocks = ClockVector::default();
    for island in 0..islands {
        clocks.raise(IslandId(island), Stamp::new(1, 1));
    }
    let vector: Vec<(IslandId, Stamp)> = clocks.iter().collect();
    vector.encoded_len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_grows_as_its_points_do_and_is_never_below_nothing() {
        let line = Growth::through(&[(4.0, 6.0), (16.0, 30.0), (64.0, 126.0)]);
        assert!((line.at(10_000.0) - 19_998.0).abs() < 1e-6 && (line.of_each() - 2.0).abs() < 1e-9);
        let same = Growth::through(&[(4.0, 2.0), (16.0, 2.0)]);
        assert_eq!((same.at(1.0), same.of_each()), (2.0, 0.0));
        assert_eq!(Growth::through(&[(4.0, 9.0), (16.0, 5.0), (64.0, 1.0)]).at(1e9), 0.0);
        assert_eq!(Growth::through(&[(4.0, 3.0)]).at(64.0), 3.0);
        let slower = Growth::through(&[(4.0, 2.0), (16.0, 3.0), (64.0, 4.0)]);
        assert!((slower.at(1_024.0) - 6.0).abs() < 1e-9 && slower.of_each() == 0.0);
    }

    #[test]
    fn a_part_has_something_for_itself_and_for_each_other_one() {
        let whole = |parts: f64| (parts, 20.0 + 3.0 * parts + 0.5 * parts * parts);
        let part = Part::of_whole(&[whole(16.0), whole(64.0), whole(256.0)]).unwrap();
        assert!((part.of(1_000.0) - 503.0).abs() < 1e-6);
        assert_eq!(Part::of_whole(&[(1.0, 5.0), (3.0, 9.0)]).unwrap().of(9.0), 2.0);
        assert_eq!(Part::of_whole(&[(1.0, 5.0)]), None);
    }

    #[test]
    fn the_estimate_is_the_papers() {
        assert_eq!(by_calls(16.0, 0.0), 16.0);
        // "With 16 servers, the average overhead-per-operation is 0.8" (13.2).
        assert!((by_calls(16.0, 1.6) - 8.9).abs() < 0.02);
    }

    #[test]
    fn a_stamp_is_ten_bytes() {
        let (few, many) = (stamp_bytes(1_000), stamp_bytes(ISLANDS_ON_PAPER));
        assert_eq!(many - few, 9_000 * 10);
    }
}
