//! One word for one thing, over the names of types, functions and fields in the pure crates.

use crate::repo::{Repo, Violation};
use std::collections::BTreeMap;

const GLOSSARY: &str = "docs/GLOSSARY.md";
/// How the meaning of a word begins that has given way to another one.
const NOT_USED: &str = "Not used: say ";
/// Names that each crate may have for something of its own: its crate's name stands before them where two are used.
const OF_EACH_CRATE: &[&str] = &["Config", "Counters"];
/// What stands before the name of a type or function.
const ITEMS: &[&str] = &["struct ", "enum ", "trait ", "type ", "union ", "fn ", "const ", "static "];
/// Nothing stands before the name of a field.
const FIELD: &str = "";

/// The kind of the item or field that a line declares for others than its own file, and its name.
fn declared(line: &str) -> Option<(&'static str, &str)> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.trim_start();
    // A constant function is a function.
    let rest = rest.strip_prefix("const ").filter(|rest| rest.starts_with("fn ")).unwrap_or(rest);
    let item = ITEMS.iter().copied().find(|item| rest.starts_with(*item)).unwrap_or(FIELD);
    let name = &rest[item.len()..];
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
    let is_named = end > 0 && (item != FIELD || name[end..].starts_with(": "));
    is_named.then(|| (item, &name[..end]))
}

/// The words of a name in `CamelCase` or `snake_case`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        let word = words.last_mut().expect("one at least");
        if c == '_' || (c.is_uppercase() && word.chars().next_back().is_some_and(char::is_lowercase)) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("one at least").extend(c.to_lowercase());
        }
    }
    words
}

/// No type's name stands for two types, and no name has a word that the glossary has given up.
pub(super) fn one_word(repo: &Repo) -> Vec<Violation> {
    let given_up: BTreeMap<&str, &str> = repo
        .get(GLOSSARY)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            Some((cells.next()?, cells.next()?.strip_prefix(NOT_USED)?.trim_end_matches('.')))
        })
        .collect();
    let mut broken = Vec::new();
    let mut types: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    let pure =
        |path: &str| path.starts_with("crates/pure/") && path.contains("/src/") && path.ends_with(".rs");
    for (path, text) in repo.all().filter(|(path, _)| pure(path)) {
        for (line, text) in (1..).zip(text.lines()) {
            let Some((item, name)) = declared(text) else { continue };
            for word in words(name) {
                if let Some(instead) = given_up.get(word.as_str()) {
                    broken.push(Violation::new(path, line, format!("{name}: the glossary says {instead}")));
                }
            }
            let is_type =
                !matches!(item, "fn " | "const " | "static " | FIELD) && !OF_EACH_CRATE.contains(&name);
            if let Some((other, at)) = is_type.then(|| types.insert(name, (path, line))).flatten() {
                broken.push(Violation::new(path, line, format!("{name} is another type in {other}:{at}")));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let glossary =
            "| term | meaning | source |\n|---|---|---|\n| spot | Not used: say entry. | Atoll |\n";
        let other = "pub(crate) struct Config;\npub struct Other<T>(T);\n";
        let files =
            [(GLOSSARY, glossary), ("crates/pure/a/src/a.rs", text), ("crates/pure/b/src/b.rs", other)];
        one_word(&Repo::of(&files)).into_iter().map(|v| v.what).collect()
    }

    #[test]
    fn a_word_that_was_given_up_is_found_in_types_and_functions() {
        assert_eq!(found("pub struct Spot {}"), ["Spot: the glossary says entry"]);
        assert_eq!(
            found("    pub(crate) const fn need_spot<T>() {}"),
            ["need_spot: the glossary says entry"]
        );
        assert_eq!(found("pub const BlindSpot: u8 = 1;"), ["BlindSpot: the glossary says entry"]);
        assert_eq!(found("    pub(crate) spot: u8,"), ["spot: the glossary says entry"]);
        assert_eq!(
            found("pub(super) type EntrySpots = u8;\nfn spot() {}\npub spot\npub use spot::A;"),
            [""; 0]
        );
    }

    #[test]
    fn a_name_of_two_types_is_found() {
        assert_eq!(found("pub(crate) enum Other {}"), ["Other is another type in crates/pure/a/src/a.rs:1"]);
        assert_eq!(found("pub struct Config {}\npub fn other() {}\npub mod Other {}"), [""; 0]);
    }
}
