//! The outward form of files.

use crate::repo::{Repo, Violation};

/// Past this many lines a file has a second idea in it.
const LINES_MAX: usize = 800;

/// The same for files below a folder whose readers have to keep more in mind.
const LINES_MAX_BELOW: &[(&str, usize)] = &[("crates/pure/island/src/", 600)];

/// Files in which tabs and blanks at the end of a line are seen by nobody and only make differences.
const PLAIN: &[&str] = &[".rs", ".md", ".toml", ".sh", ".ci/run"];

/// Each Rust file starts by saying what it owns and what it never does.
pub(super) fn first_line(repo: &Repo) -> Vec<Violation> {
    let says = |text: &str| {
        let doc = text.lines().next().and_then(|line| line.strip_prefix("//!"));
        doc.is_some_and(|doc| doc.trim().len() > 10)
    };
    repo.ending(&[".rs"])
        .filter(|(_, text)| !says(text))
        .map(|(path, _)| Violation::new(path, 1, "does not start with a //! line that says what it owns"))
        .collect()
}

/// The line by which a crate has clippy look for `unwrap`. A lint of the workspace's table would find it in what tests
/// share, too.
const NO_UNWRAP: &str = "#![cfg_attr(not(test), warn(clippy::unwrap_used))]";

/// Whether a file is the root of a library or a program.
fn is_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/")
}

/// Each crate has clippy look for `unwrap` in all that is no test.
pub(super) fn unwraps(repo: &Repo) -> Vec<Violation> {
    repo.ending(&[".rs"])
        .filter(|(path, text)| is_root(path) && !text.lines().any(|line| line == NO_UNWRAP))
        .map(|(path, _)| Violation::new(path, 1, format!("does not say {NO_UNWRAP}")))
        .collect()
}

/// No file is longer than a reader can keep in mind.
pub(super) fn length(repo: &Repo) -> Vec<Violation> {
    let most = |path: &str| {
        let below = LINES_MAX_BELOW.iter().find(|(folder, _)| path.starts_with(folder));
        below.map_or(LINES_MAX, |(_, max)| *max)
    };
    repo.ending(&[".rs"])
        .map(|(path, text)| (path, text.lines().count(), most(path)))
        .filter(|(_, lines, max)| lines > max)
        .map(|(path, n, max)| {
            Violation::new(path, 0, format!("has {n} lines, more than {max}: find the second idea"))
        })
        .collect()
}

/// No tabs, no blanks at the end of a line, no carriage returns, a newline at the end.
pub(super) fn blanks(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (path, text) in repo.ending(PLAIN) {
        for (line, text) in (1..).zip(text.split('\n')) {
            if text.contains('\t') {
                broken.push(Violation::new(path, line, "a tab"));
            }
            if text.ends_with([' ', '\t', '\r']) {
                broken.push(Violation::new(path, line, "blanks at the end"));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            broken.push(Violation::new(path, 0, "no newline at the end"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_does_not_look_for_unwrap_is_found() {
        for root in
            ["crates/io/x/src/lib.rs", "crates/front/x/src/main.rs", "xtask/src/main.rs", "a/src/bin/b.rs"]
        {
            assert_eq!(unwraps(&Repo::of(&[(root, "//! Says what it owns.\n")])).len(), 1, "{root}");
            let text = format!("//! Says what it owns.\n\n{NO_UNWRAP}\n");
            assert!(unwraps(&Repo::of(&[(root, &text)])).is_empty(), "{root}");
        }
        assert!(
            unwraps(&Repo::of(&[("crates/io/x/src/a.rs", ""), ("crates/io/x/tests/lib.rs", "")])).is_empty()
        );
    }

    #[test]
    fn a_file_that_does_not_say_what_it_owns_is_found() {
        for silent in ["", "use std::fmt;\n", "// a comment\n", "//!\n", "\n//! Says it too late.\n"] {
            assert_eq!(first_line(&Repo::of(&[("crates/pure/x/tests/a.rs", silent)])).len(), 1, "{silent:?}");
        }
        assert!(first_line(&Repo::of(&[("a.rs", "//! Owns the ends of things.\n")])).is_empty());
    }

    #[test]
    fn a_file_of_801_lines_is_found() {
        assert!(length(&Repo::of(&[("a.rs", &"x\n".repeat(800))])).is_empty());
        assert_eq!(length(&Repo::of(&[("a.rs", &"x\n".repeat(801))])).len(), 1);
    }

    #[test]
    fn an_island_file_of_601_lines_is_found() {
        let file = "crates/pure/island/src/txn/a.rs";
        assert!(length(&Repo::of(&[(file, &"x\n".repeat(600))])).is_empty());
        assert_eq!(length(&Repo::of(&[(file, &"x\n".repeat(601))])).len(), 1);
    }

    #[test]
    fn tabs_and_trailing_blanks_are_found_where_they_stand() {
        let found =
            blanks(&Repo::of(&[("a.rs", "a\n\tb\nc \nd\r\n"), ("Makefile", "x:\n\ty\n"), ("b.md", "end")]));
        let places: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.line)).collect();
        assert_eq!(places, [("a.rs", 2), ("a.rs", 3), ("a.rs", 4), ("b.md", 0)]);
    }
}
