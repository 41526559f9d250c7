//! The rules of the repository, each a function from its files to the places where it is broken.

mod docs;
mod form;
mod imports;
mod machines;
mod names;
mod owner;
mod words;

use crate::repo::{Repo, Violation};

/// A rule's name and its check.
type Rule = (&'static str, fn(&Repo) -> Vec<Violation>);

/// Every rule.
pub(crate) const RULES: &[Rule] = &[
    ("imports go one way", imports::direction),
    ("a machine of the island imports those that it stands on", machines::stand_on),
    ("a method of the context lies below those who call it", machines::methods),
    ("only who puts the machines together speaks of all of them", machines::composer),
    ("pure crates link nothing that touches the world", imports::pure_links),
    ("every crate is described and linted", imports::described),
    ("versions are named", imports::versions),
    ("dependencies come from the public registry", imports::sources),
    ("a directory's owner is found in one place of each part", owner::asked),
    ("nothing is unwrapped outside tests", form::unwraps),
    ("a file says what it owns", form::first_line),
    ("a file has one idea", form::length),
    ("no tabs, no trailing blanks", form::blanks),
    ("some words do not stand here", words::banned),
    ("the glossary is a table", docs::glossary),
    ("one word for one thing", names::one_word),
    ("the architecture names every crate", docs::architecture),
    ("a dangerous sequence has its test", docs::sequences),
];

/// All violations of all rules, by file and line.
pub(crate) fn check(repo: &Repo) -> Vec<Violation> {
    let mut found: Vec<Violation> = RULES
        .iter()
        .flat_map(|(name, rule)| {
            rule(repo).into_iter().map(move |v| Violation { what: format!("{} [{name}]", v.what), ..v })
        })
        .collect();
    found.sort();
    found.dedup();
    found
}
