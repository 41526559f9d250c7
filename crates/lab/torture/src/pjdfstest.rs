//! pjdfstest over a mount: what fails must be expected to, and what is expected to fail must.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::place::{tail, user};

/// Failures that are expected, a reason each.
pub const EXPECTED: &str = include_str!("../pjdfstest-expected.txt");

const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
[settings]
naptime = 0.001
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["tests", "tests"]]
"#;

/// A run in which fewer pass has not tested what it should.
const PASSED_MIN: usize = 300;

/// What a run found.
#[derive(Debug, Default)]
pub struct Report {
    /// How many passed.
    pub passed: usize,
    /// Those that failed without being expected to, with what they said.
    pub unexpected: BTreeMap<String, String>,
    /// Those that were expected to fail, and passed: the list is out of date.
    pub passed_after_all: BTreeSet<String>,
    /// Those that failed as expected.
    pub expected: BTreeSet<String>,
}

impl Report {
    /// Whether there is nothing to say.
    pub fn is_expected(&self) -> bool {
        self.unexpected.is_empty() && self.passed_after_all.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} passed, {} failed as expected", self.passed, self.expected.len())?;
        for (name, said) in &self.unexpected {
            writeln!(f, "failed: {name}: {said}")?;
        }
        for name in &self.passed_after_all {
            writeln!(f, "passes, but pjdfstest-expected.txt says it fails: {name}")?;
        }
        Ok(())
    }
}

/// The names in a list that has a name and a reason on each line.
fn names_in(list: &str) -> Result<BTreeMap<String, String>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(": ").context(format!("no reason is given: {line}"))?;
            Ok((name.to_owned(), reason.trim().to_owned()))
        })
        .collect()
}

/// Runs it on the mount; `beside` is a folder outside.
pub fn run(mount: &Path, beside: &Path, pattern: Option<&str>) -> Result<Report> {
    user("nobody")?;
    user("tests")?;
    let settings = beside.join("pjdfstest.toml");
    std::fs::write(&settings, SETTINGS)?;
    let mut command = Command::new("pjdfstest");
    command.arg("-c").arg(&settings).arg("-p").arg(mount).args(pattern);
    let output = command.output().context("pjdfstest cannot be run: cargo install pjdfstest")?;
    let text = String::from_utf8_lossy(&output.stdout);
    judge(&text, pattern.is_none(), EXPECTED)
}

/// Reads what it prints: a line for each test with its result, and after a failure what was asserted.
fn judge(text: &str, whole: bool, expected: &str) -> Result<Report> {
    let expected = names_in(expected)?;
    let mut report = Report::default();
    let mut failed: Option<&str> = None;
    let mut ended = false;
    for line in text.lines() {
        ended |= line.starts_with("Summary:");
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(name), Some(result), None) if name.contains("::") && !line.starts_with([' ', '\t']) => {
                failed = None;
                let known = expected.contains_key(name);
                match (result, known) {
                    ("skipped", _) => {}
                    ("ok", false) => report.passed += 1,
                    ("ok", true) => {
                        report.passed_after_all.insert(name.to_owned());
                    }
                    (_, true) => {
                        report.expected.insert(name.to_owned());
                    }
                    (_, false) => {
                        report.unexpected.insert(name.to_owned(), String::new());
                        failed = Some(name);
                    }
                }
            }
            _ => {
                if let Some(said) = failed.take().and_then(|name| report.unexpected.get_mut(name)) {
                    line.trim().clone_into(said);
                }
            }
        }
    }
    ensure!(ended && report.passed > 0, "pjdfstest did not come to its end:\n{}", tail(text));
    ensure!(!whole || report.passed > PASSED_MIN, "only {} tests passed", report.passed);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_found_with_what_was_said() {
        let text = "a::b   ok\nrename::updates_link_parent  FAILED\n\tassertion failed: x\n\
                    c::d::e FAILED\n\tassertion failed: y == z\nBacktrace:\n   0: pjdfstest::main\n\
                    rename::write_access_required_subdir ok\nf::g skipped\nSummary: 2 failed\n";
        let list = "# Known.\nrename::updates_link_parent: why\nrename::write_access_required_subdir: why\n";
        let report = judge(text, false, list).unwrap();
        assert_eq!(report.passed, 1);
        assert_eq!(report.unexpected["c::d::e"], "assertion failed: y == z");
        assert_eq!(report.unexpected.len(), 1);
        assert!(report.expected.contains("rename::updates_link_parent"));
        assert!(report.passed_after_all.contains("rename::write_access_required_subdir"));
        assert!(!report.is_expected());
        assert!(judge("a::b ok\n", false, list).is_err());
    }
}
