//! pjdfstest over a mount. The tests that fail or are skipped must be exactly the expected ones.
//!
//! It runs twice: once whole, and once for the read-only tests alone, because the other tests keep files
//! open, and a file system with open files cannot be made read-only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::place::{tail, user};

/// Failures and tests left out that are expected, a reason each.
pub const EXPECTED: &str = include_str!("../pjdfstest-expected.txt");

/// How it is run: with everything that Linux has.
pub const SETTINGS: &str = include_str!("../pjdfstest.toml");

/// The version of which results are known. `make suites` installs it.
pub const VERSION: &str = "0.2.2";

/// Those that make the file system read-only have this in their names.
const READ_ONLY: &str = "erofs";

/// `mount -o remount,ro` by the kernel alone: else mount(8) calls the type's helper.
const MOUNT: &str = "#!/bin/sh\n[ \"$1\" = -o ] && set -- -i \"$@\"\nPATH=${PATH#*:} exec mount \"$@\"\n";

/// A run in which fewer pass has not tested what it should.
pub const PASSED_MIN: usize = 396;

/// Names of one file that a volume promises (`docs/OPERATIONS.md`).
const LINKS_MAX: usize = 60_000;

/// What a run found.
#[derive(Debug, Default)]
pub struct Report {
    /// How many passed.
    pub passed: usize,
    /// Those that failed without being expected to, with what they said.
    pub unexpected: BTreeMap<String, String>,
    /// Those that were expected to fail, and passed: the list is out of date.
    pub passed_after_all: BTreeSet<String>,
    /// Those that failed or were left out as expected.
    pub expected: BTreeSet<String>,
    /// Those that were left out without being expected to.
    pub skipped: BTreeSet<String>,
}

impl Report {
    /// Whether there is nothing to say.
    pub fn is_expected(&self) -> bool {
        self.unexpected.is_empty() && self.passed_after_all.is_empty() && self.skipped.is_empty()
    }

    /// Adds what another run of some of the tests found.
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.unexpected.extend(other.unexpected);
        self.passed_after_all.extend(other.passed_after_all);
        self.expected.extend(other.expected);
        self.skipped.extend(other.skipped);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} passed, {} as expected did not", self.passed, self.expected.len())?;
        for (name, said) in &self.unexpected {
            writeln!(f, "failed: {name}: {said}")?;
        }
        for name in &self.passed_after_all {
            writeln!(f, "passes, but the list of what is expected says it does not: {name}")?;
        }
        for name in &self.skipped {
            writeln!(f, "left out: {name}")?;
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

/// Runs it on the mount of a volume; `beside` is a folder outside, on another file system.
pub fn run(mount: &Path, beside: &Path, pattern: Option<&str>) -> Result<Report> {
    run_expecting(mount, beside, pattern, &Expecting::default())
}

/// What is expected of a mount.
#[derive(Debug, Clone, Copy)]
pub struct Expecting<'a> {
    /// What fails or is left out, in the form of [`EXPECTED`].
    pub list: &'a str,
    /// More tests than these must pass.
    pub passed_min: usize,
    /// Milliseconds after which a time is later.
    pub tick_ms: u32,
}

impl Default for Expecting<'_> {
    fn default() -> Self {
        Self { list: EXPECTED, passed_min: PASSED_MIN, tick_ms: 1 }
    }
}

/// The same on any mount.
pub fn run_expecting(
    mount: &Path,
    beside: &Path,
    pattern: Option<&str>,
    expecting: &Expecting<'_>,
) -> Result<Report> {
    user("nobody")?;
    user("tests")?;
    let version = crate::place::run(Command::new("pjdfstest").arg("--version"))?;
    ensure!(
        version.trim() == format!("pjdfstest {VERSION}"),
        "{} is installed, and {VERSION} is expected: make suites",
        version.trim()
    );
    let mut report = one(mount, beside, pattern, expecting, false)?;
    // Those are told to be left out by the first run.
    let (read_only, others) = report.skipped.iter().cloned().partition(|name| name.contains(READ_ONLY));
    let read_only: BTreeSet<String> = read_only;
    report.skipped = others;
    if !read_only.is_empty() {
        report.add(one(mount, beside, Some(READ_ONLY), expecting, true)?);
    }
    ensure!(
        pattern.is_some() || report.passed > expecting.passed_min,
        "only {} tests passed: {report}",
        report.passed
    );
    Ok(report)
}

fn one(
    mount: &Path,
    beside: &Path,
    pattern: Option<&str>,
    expecting: &Expecting<'_>,
    remount: bool,
) -> Result<Report> {
    let (settings, second, programs) =
        (beside.join("pjdfstest.toml"), beside.join("second"), beside.join("programs"));
    let allowed = "allow_remount = true";
    std::fs::write(
        &settings,
        SETTINGS
            .replace(allowed, if remount { allowed } else { "allow_remount = false" })
            .replace("naptime = 0.001", &format!("naptime = {}", f64::from(expecting.tick_ms) / 1000.0)),
    )?;
    std::fs::create_dir_all(&second)?;
    std::fs::create_dir_all(&programs)?;
    let program = programs.join("mount");
    std::fs::write(&program, MOUNT)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path)))?;
    let mut command = Command::new("pjdfstest");
    command
        .env("PATH", path)
        .arg("-c")
        .arg(&settings)
        .arg("-p")
        .arg(mount)
        .arg("-s")
        .arg(&second)
        .args(pattern);
    let output = command.output().context("pjdfstest cannot be run: make suites")?;
    let text = String::from_utf8_lossy(&output.stdout);
    judge(&text, expecting.list)
}

/// What `link_count_max` of the suite would do if the C library knew a limit of FUSE: as many names as
/// are promised, and not one more.
pub fn link_count_max(mount: &Path) -> Result<()> {
    let top = mount.join("links");
    std::fs::create_dir(&top)?;
    let file = top.join("0");
    std::fs::write(&file, b"x")?;
    for at in 1..LINKS_MAX {
        std::fs::hard_link(&file, top.join(at.to_string())).with_context(|| format!("name {at}"))?;
    }
    let one_more = std::fs::hard_link(&file, top.join("more")).map_err(|why| why.raw_os_error());
    let full = Err(Some(rustix::io::Errno::MLINK.raw_os_error()));
    ensure!(one_more == full, "one name too many: {one_more:?}");
    let names = std::fs::metadata(&file)?;
    let names = std::os::unix::fs::MetadataExt::nlink(&names);
    ensure!(names == LINKS_MAX as u64, "{names} names instead of {LINKS_MAX}");
    std::fs::remove_dir_all(&top)?;
    Ok(())
}

/// Reads what it prints: a line for each test with its result, and after a failure what was asserted.
fn judge(text: &str, expected: &str) -> Result<Report> {
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
                    ("skipped", false) => {
                        report.skipped.insert(name.to_owned());
                    }
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
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_that_are_installed_are_those_that_are_expected() {
        let makefile = include_str!("../../../../Makefile");
        for (suite, version) in [("pjdfstest", VERSION), ("fsx", crate::programs::FSX_VERSION)] {
            assert!(makefile.contains(&format!("{suite}@{version}")), "make suites installs another {suite}");
        }
    }

    #[test]
    fn each_result_is_found_with_what_was_said() {
        let text = "a::b   ok\nrename::updates_link_parent  FAILED\n\tassertion failed: x\n\
                    c::d::e FAILED\n\tassertion failed: y == z\nBacktrace:\n   0: pjdfstest::main\n\
                    rename::write_access_required_subdir ok\nf::g skipped\nSummary: 2 failed\n";
        let list = "# Known.\nrename::updates_link_parent: why\nrename::write_access_required_subdir: why\n";
        let report = judge(text, list).unwrap();
        assert_eq!(report.passed, 1);
        assert_eq!(report.unexpected["c::d::e"], "assertion failed: y == z");
        assert_eq!(report.unexpected.len(), 1);
        assert!(report.expected.contains("rename::updates_link_parent"));
        assert!(report.passed_after_all.contains("rename::write_access_required_subdir"));
        assert_eq!(report.skipped.iter().collect::<Vec<_>>(), ["f::g"]);
        assert!(!report.is_expected());
        assert!(judge("a::b ok\n", list).is_err());
    }
}
