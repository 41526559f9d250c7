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

/// The names of the methods of the context, and of what an operation reads, in a file.
fn shared_methods(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_shared = false;
    for line in text.lines() {
        if line.starts_with("impl") {
            is_shared = line.ends_with(" Ctx {") || line.contains(" Look<");
        }
        let signature = line.strip_prefix("    ").filter(|_| is_shared && !line.starts_with("     "));
        let name = signature.and_then(|rest| rest.split_once("fn ")).map(|(_, rest)| rest);
        names.extend(name.and_then(|rest| rest.split(['(', '<']).next()));
    }
    names
}

/// A method of the context is there for all who see its name, whatever they import: so one that is called by who does not
/// stand on its folder stands in the wrong one.
pub(super) fn methods(repo: &Repo) -> Vec<Violation> {
    let files: Vec<_> = repo
        .ending(&[".rs"])
        .filter_map(|(path, text)| {
            let (below, text) = machine(path, text)?;
            Some((path, below.split('/').next().unwrap_or(below), text))
        })
        .collect();
    let composer = repo.ending(&[".rs"]).filter(|(path, text)| machine(path, text).is_none());
    let composer = composer.filter(|(path, _)| path.starts_with(SOURCES));
    let defined =
        files.iter().map(|(_, folder, text)| (*folder, *text)).chain(composer.map(|of| ("ops", of.1)));
    let mut broken = Vec::new();
    for (home, text) in defined {
        for name in shared_methods(text) {
            let calls = [format!("ctx.{name}("), format!("self.{name}(")];
            let own = format!("fn {name}");
            for (path, folder, text) in files.iter().filter(|(_, folder, _)| *folder != home) {
                let may = STANDS_ON.iter().find(|(of, _)| of == folder).map_or(&[][..], |(_, may)| *may);
                // A machine that it sees may have a method of that name.
                let sees = |of: &str| of == *folder || may.contains(&of);
                if may.contains(&home) || files.iter().any(|(_, of, text)| sees(of) && text.contains(&own)) {
                    continue;
                }
                let found =
                    (1..).zip(text.lines()).filter(|(_, line)| calls.iter().any(|call| line.contains(call)));
                let what = format!("{folder} does not stand on {home}, whose {name} this calls");
                broken.extend(found.map(|(line, _)| Violation::new(path, line, what.clone())));
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
    fn a_method_of_the_context_that_lies_above_who_calls_it_is_found() {
        let lies = "impl Ctx {\n    /// Does.\n    pub(crate) fn has_gone(&self) {}\n}\n";
        let calls = "fn a(ctx: &Ctx) {\n    ctx.has_gone();\n}\n";
        let of = |at: &str, by: &str| {
            let (at, by) = (format!("{SOURCES}{at}"), format!("{SOURCES}{by}"));
            methods(&Repo::of(&[(&at, lies), (&by, calls)])).iter().map(|v| v.line).collect::<Vec<_>>()
        };
        assert_eq!(of("client/a.rs", "rows/a.rs"), [2_usize]);
        assert_eq!(of("ops/a.rs", "txn/a.rs"), [2_usize]);
        assert_eq!(of("rows/a.rs", "txn/a.rs"), NONE);
        assert_eq!(of("client/a.rs", "client/b.rs"), NONE);
        assert_eq!(of("client/a.rs", "ops/b.rs"), NONE);
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
