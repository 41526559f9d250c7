//! Where a directory's owner is found: in one place of each part of Atoll, so that each can be told of directories that move.

use crate::repo::{Repo, Violation};

/// The question: put together from halves, so that this file is not found.
const QUESTION: &str = concat!("table.", "owner(");

/// The files that may ask the table, each in its own function `owner`.
const ASK: &[&str] = &[
    "crates/pure/island/src/ctx/config.rs",
    "crates/pure/proto/src/volume.rs",
    "crates/pure/route/src/enumerate.rs",
    "crates/pure/route/src/route.rs",
    "crates/store/check/src/lib.rs",
];

/// Whoever asks the table for an owner elsewhere; and a second call in a file that may.
pub(super) fn asked(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (path, text) in repo.ending(&[".rs"]) {
        let is_product = ["pure", "store", "io", "front"].iter().any(|group| {
            let folder = path.strip_prefix("crates/").and_then(|rest| rest.strip_prefix(group));
            folder.is_some_and(|rest| rest.split('/').nth(2) == Some("src"))
        });
        if !is_product {
            continue;
        }
        let own = text.split("\n#[cfg(test)]").next().unwrap_or(text);
        let calls = (1..).zip(own.lines()).filter(|(_, line)| line.contains(QUESTION));
        let may = usize::from(ASK.contains(&path));
        for (line, _) in calls.skip(may) {
            let what =
                "asks the table for an owner: ask the `owner` of its configuration or volume".to_owned();
            broken.push(Violation::new(path, line, what));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_place_that_asks_the_table_is_found_and_tests_may() {
        let call = format!("fn f() {{\n    self.{QUESTION}key)\n}}\n");
        let test = format!("fn f() {{}}\n\n#[cfg(test)]\nmod tests {{\n{call}}}\n");
        let twice = format!("{call}{call}");
        let repo = Repo::of(&[
            (ASK[0], &call),
            (ASK[1], &twice),
            ("crates/store/repair/src/work.rs", &call),
            ("crates/store/repair/src/dirs.rs", &test),
            ("crates/store/repair/tests/crash.rs", &call),
            ("crates/lab/sim/src/world.rs", &call),
        ]);
        let found: Vec<_> = asked(&repo).into_iter().map(|v| (v.path, v.line)).collect();
        assert_eq!(found, [(ASK[1].to_owned(), 5), ("crates/store/repair/src/work.rs".to_owned(), 2)]);
    }
}
