//! How the machines of an island stand on each other: which folder imports which, and who may say what an `Island` does.

use crate::repo::{Repo, Violation};

/// The sources of the island.
const SOURCES: &str = "crates/pure/island/src/";

/// Its folders and the files beside them, from the ground up, and what each imports. A folder imports none that comes
/// behind it: so no two of them need each other, and each is read without those behind it.
const STANDS_ON: &[(&str, &[&str])] = &[
    ("counters", &[]),
    ("event", &[]),
    ("ctx", &["counters", "event"]),
    ("rows", &["ctx"]),
    ("bodies", &["event", "ctx", "rows"]),
    ("journal", &["ctx", "rows"]),
    ("links", &["ctx", "rows"]),
    ("quiesce", &["event", "ctx", "rows"]),
    ("locks", &["event", "ctx", "rows"]),
    ("look", &["ctx", "rows", "locks"]),
    ("recovery", &["ctx", "rows", "locks", "look"]),
    ("compare", &["ctx", "rows", "locks", "recovery"]),
    ("migration", &["event", "ctx", "rows", "bodies", "locks"]),
    ("client", &["event", "ctx", "rows", "migration"]),
    ("txn", &["ctx", "rows", "locks", "look", "recovery", "migration"]),
];

/// The files that put the machines together: they import what they like.
const COMPOSER: &[&str] = &["island.rs", "check.rs", "under_way.rs", "lib.rs", "ops/"];

/// The part of a file of the island that is no test, and its path below the sources; none for files of the composer.
fn machine<'a>(path: &'a str, text: &'a str) -> Option<(&'a str, &'a str)> {
    let path = path.strip_prefix(SOURCES)?;
    if COMPOSER.iter().any(|own| path.starts_with(own)) {
        return None;
    }
    Some((path, text.split("\n#[cfg(test)]").next().unwrap_or(text)))
}

/// A machine imports those that it stands on.
pub(super) fn stand_on(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (path, text) in repo.ending(&[".rs"]) {
        let Some((below, text)) = machine(path, text) else { continue };
        let own = below.split('/').next().unwrap_or(below).trim_end_matches(".rs");
        let Some((_, may)) = STANDS_ON.iter().find(|(folder, _)| *folder == own) else {
            broken.push(Violation::new(path, 0, format!("{own} is not in the list of what stands on what")));
            continue;
        };
        for (line, text) in (1..).zip(text.lines()) {
            let named = text.split("crate::").skip(1);
            let folders =
                named.filter_map(|rest| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next());
            for folder in folders.filter(|folder| *folder != own && !may.contains(folder)) {
                broken.push(Violation::new(path, line, format!("{own} does not stand on {folder}")));
            }
        }
    }
    broken
}

/// What concerns one machine is a method of that machine: only who puts them together speaks of all of them.
pub(super) fn composer(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (path, text) in repo.ending(&[".rs"]) {
        let Some((_, text)) = machine(path, text) else { continue };
        for (line, _) in (1..).zip(text.lines()).filter(|(_, text)| text.starts_with("impl Island ")) {
            broken.push(Violation::new(
                path,
                line,
                "extends Island: give it to the machine that it is about",
            ));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No place.
    const NONE: [usize; 0] = [];

    /// The places that `rule` finds in a file of the island.
    fn found(rule: fn(&Repo) -> Vec<Violation>, file: &str, text: &str) -> Vec<usize> {
        rule(&Repo::of(&[(&format!("{SOURCES}{file}"), text)])).iter().map(|v| v.line).collect()
    }

    #[test]
    fn no_folder_of_the_island_stands_on_one_that_comes_behind_it() {
        for (at, (folder, may)) in STANDS_ON.iter().enumerate() {
            for on in *may {
                assert!(STANDS_ON[..at].iter().any(|(below, _)| below == on), "{folder} stands on {on}");
            }
        }
    }

    #[test]
    fn a_machine_that_imports_what_it_does_not_stand_on_is_found() {
        let text = "use crate::event::Effect;\nuse crate::txn::Txns;\n";
        assert_eq!(found(stand_on, "ctx/a.rs", text), [2_usize]);
        assert_eq!(found(stand_on, "event.rs", text), [2_usize]);
        let below = "use crate::recovery::Recovery;\nuse crate::look::Look;";
        assert_eq!(found(stand_on, "recovery/a.rs", below), NONE);
        assert_eq!(found(stand_on, "look/a.rs", "use crate::{recovery::Recovery};"), [1_usize]);
        assert_eq!(found(stand_on, "ctx/a.rs", "\n#[cfg(test)]\nuse crate::txn::Txns;\n"), NONE);
        assert_eq!(found(stand_on, "island.rs", text), NONE);
        assert_eq!(found(stand_on, "ops/a.rs", text), NONE);
        assert_eq!(found(stand_on, "other/a.rs", ""), [0_usize]);
        assert!(stand_on(&Repo::of(&[("crates/pure/route/src/a.rs", text)])).is_empty());
    }

    #[test]
    fn a_machine_that_extends_the_island_is_found() {
        let text = "use a::B;\n\nimpl Island {\n}\n";
        assert_eq!(found(composer, "txn/a.rs", text), [3_usize]);
        assert_eq!(found(composer, "ops/a.rs", text), NONE);
        assert_eq!(found(composer, "check.rs", text), NONE);
        assert_eq!(found(composer, "txn/a.rs", "impl IslandSet {\n}\n"), NONE);
    }
}
