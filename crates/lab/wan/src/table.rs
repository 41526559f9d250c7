//! Figures: rows of a table for people, and for programs. Knows no meaning of them.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// Rows with the same columns.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// What they are about: a line.
    pub about: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Figures {
    /// None yet.
    pub fn new(about: String, columns: &[&'static str]) -> Self {
        Self { about, columns: columns.to_vec(), rows: Vec::new() }
    }

    /// One more row.
    pub fn push(&mut self, row: Vec<Value>) {
        assert_eq!(row.len(), self.columns.len(), "a row has all columns");
        self.rows.push(row);
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let row = |row: &Vec<Value>| {
            let named = self.columns.iter().map(|name| (*name).to_owned()).zip(row.iter().cloned());
            Value::Object(named.collect::<Map<_, _>>())
        };
        json!({ "about": self.about, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            Value::Object(parts) => {
                parts.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
            }
            value => value.to_string(),
        };
        writeln!(f, "{}\n", self.about)?;
        writeln!(f, "| {} |", self.columns.join(" | "))?;
        writeln!(f, "|{}", "---|".repeat(self.columns.len()))?;
        for row in &self.rows {
            writeln!(f, "| {} |", row.iter().map(word).collect::<Vec<_>>().join(" | "))?;
        }
        Ok(())
    }
}

/// The value below which so many of a hundred are.
///
/// # Panics
/// If there are none.
pub fn percentile<T: Copy + PartialOrd>(values: &[T], percent: usize) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("they have an order"));
    sorted[(sorted.len() * percent).div_ceil(100).clamp(1, sorted.len()) - 1]
}

/// The value in the middle.
///
/// # Panics
/// If there are none.
pub fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    percentile(values, 50)
}

/// Seconds with milliseconds, for a table.
pub fn seconds(time: Duration) -> Value {
    json!((time.as_secs_f64() * 1e3).round() / 1e3)
}

/// A ratio with three digits, for a table.
pub fn ratio(of: f64, to: f64) -> Value {
    json!((of / to * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<u32> = (1..=100).rev().collect();
        assert_eq!((median(&values), percentile(&values, 95), percentile(&values, 100)), (50, 95, 100));
        assert_eq!((median(&[7]), percentile(&[7], 0), median(&[1, 2, 3])), (7, 7, 2));
    }

    #[test]
    fn figures_are_told_to_people_and_to_programs() {
        let mut figures = Figures::new("two".into(), &["what", "bytes"]);
        figures.push(vec![json!("touch"), json!(400)]);
        figures.push(vec![json!("rename"), Value::Null]);
        figures.push(vec![json!("both"), json!({ "in": 3, "out": 0.5 })]);
        assert_eq!(
            figures.to_string(),
            "two\n\n| what | bytes |\n|---|---|\n| touch | 400 |\n| rename | - |\n| both | in 3, out 0.5 |\n"
        );
        assert_eq!(figures.json()["rows"][0]["bytes"], 400);
    }
}
