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

/// What a run found.
#[derive(Debug, Default)]
pub struct Report {
    /// Tests that were run.
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

/// The names in [`EXPECTED`], which has a name and a reason on each line.
pub fn expected() -> Result<BTreeMap<String, String>> {
    let lines = EXPECTED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
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
    judge(&text, pattern.is_none())
}

fn judge(text: &str, whole: bool) -> Result<Report> {
    let expected = expected()?;
    let mut report = Report::default();
    let mut name = "";
    let mut said = String::new();
    let mut ended = false;
    for line in text.lines() {
        ended |= line.starts_with("Summary:");
        let result = line.split_whitespace().find(|word| ["success", "FAILED", "skipped"].contains(word));
        if let Some((test, _)) = line.split_once(' ')
            && test.contains("::")
        {
            (name, said) = (test, String::new());
        }
        match result {
            Some("success") => {
                report.passed += 1;
                if expected.contains_key(name) {
                    report.passed_after_all.insert(name.to_owned());
                }
            }
            Some("FAILED") if expected.contains_key(name) => drop(report.expected.insert(name.to_owned())),
            Some("FAILED") => drop(report.unexpected.insert(name.to_owned(), String::new())),
            _ => said.push_str(line),
        }
    }
    ensure!(ended && report.passed > 0, "pjdfstest did not come to its end:\n{}", tail(text));
    ensure!(!whole || report.passed > 100, "only {} tests were run", report.passed);
    Ok(report)
}
