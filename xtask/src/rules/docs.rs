//! Rules for documents that have a form of their own.

use super::imports::crate_folders;
use crate::repo::{Repo, Violation};
use crate::text::find_word;
use std::collections::{BTreeMap, BTreeSet};

const GLOSSARY: &str = "docs/GLOSSARY.md";
const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
/// Pages that name a test for each dangerous sequence.
const WITH_SEQUENCES: &[&str] =
    &["docs/design/018-copies.md", "docs/design/020-filling.md", "docs/design/021-etcd.md"];
/// Where they do.
const SEQUENCES: &str = "## Dangerous sequences";

/// The head of each table in the glossary.
const HEAD: &[&str] = &["term", "meaning", "source"];

/// One word for one thing: tables of three cells, each term once, each meaning a sentence.
pub(super) fn glossary(repo: &Repo) -> Vec<Violation> {
    let Some(text) = repo.get(GLOSSARY) else {
        return vec![Violation::new(GLOSSARY, 0, "is missing")];
    };
    let mut broken = Vec::new();
    let mut found = |line, what: String| broken.push(Violation::new(GLOSSARY, line, what));
    let mut terms = BTreeMap::new();
    // Lines of the table that a line belongs to: head, rule, rows.
    let mut row = 0;
    for (line, text) in (1..).zip(text.lines()) {
        let Some(cells) = cells(text) else {
            row = 0;
            continue;
        };
        row += 1;
        match (row, &cells[..]) {
            (1, head) if head != HEAD => found(line, format!("a table's head is {}", HEAD.join(", "))),
            (1, _) => {}
            (2, rule) if rule.iter().any(|c| !c.trim_matches('-').is_empty()) => {
                found(line, "no rule below the head".into())
            }
            (2, _) => {}
            (_, [term, meaning, source]) => {
                if term.is_empty() || source.is_empty() || !meaning.ends_with(['.', ')']) {
                    found(line, "a row is a term, a sentence and a source".into());
                }
                if let Some(first) = terms.insert(term.to_lowercase(), line) {
                    found(line, format!("{term} stands in line {first} already"));
                }
            }
            (_, cells) => found(line, format!("a row has three cells, not {}", cells.len())),
        }
    }
    if terms.is_empty() {
        found(0, "has no terms".into());
    }
    broken
}

/// The cells of a table's line; none if it is no such line.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// Once there is a document of the architecture, each crate stands in it by folder or name.
pub(super) fn architecture(repo: &Repo) -> Vec<Violation> {
    let Some(text) = repo.get(ARCHITECTURE) else { return Vec::new() };
    crate_folders(repo)
        .into_iter()
        .filter(|(name, folder)| find_word(text, name).is_none() && find_word(text, folder).is_none())
        .map(|(_, folder)| Violation::new(ARCHITECTURE, 0, format!("does not name {folder}")))
        .collect()
}

/// Each test that the tables of dangerous sequences name, in the last cell of a row, is there.
pub(super) fn sequences(repo: &Repo) -> Vec<Violation> {
    let tests: BTreeSet<&str> = repo.ending(&[".rs"]).flat_map(|(_, text)| tests_of(text)).collect();
    let pages = WITH_SEQUENCES.iter().filter_map(|page| Some((*page, repo.get(page)?)));
    pages.flat_map(|(page, text)| missing_tests(page, text, &tests)).collect()
}

fn missing_tests(page: &str, text: &str, tests: &BTreeSet<&str>) -> Vec<Violation> {
    let lines = (1..).zip(text.lines()).skip_while(|(_, line)| *line != SEQUENCES).skip(1);
    lines
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter_map(|(at, line)| Some((at, *cells(line)?.last()?)))
        .flat_map(|(at, cell)| cell.split('`').skip(1).step_by(2).map(move |name| (at, name)))
        // The others are commands.
        .filter(|(_, name)| name.contains('_') && !name.contains([' ', '*']) && !tests.contains(name))
        .map(|(at, name)| Violation::new(page, at, format!("there is no test {name}")))
        .collect()
}

/// The names of a file's tests.
fn tests_of(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        is_test |= line.trim() == "#[test]";
        let (_, function) = line.split_once("fn ").filter(|_| is_test)?;
        is_test = false;
        function.split('(').next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        glossary(&Repo::of(&[(GLOSSARY, text)])).iter().map(|v| v.line).collect()
    }

    #[test]
    fn a_glossary_of_whole_rows_is_fine() {
        let good = "# G\n\n| term | meaning | source |\n|---|---|---|\n| node | A daemon. | Atoll |\n\nText.\n\n\
                    | term | meaning | source |\n| --- | --- | --- |\n| id | A number. | Atoll |\n";
        assert_eq!(lines(good), [0; 0]);
    }

    #[test]
    fn broken_rows_and_double_terms_are_found() {
        let head = "| term | meaning | source |\n|---|---|---|\n| node | A daemon. | Atoll |\n";
        for row in [
            "| id | A number. |",
            "| id | no sentence | Atoll |",
            "| | A number. | Atoll |",
            "| id | A number. | |",
            "| Node | A daemon again. | Atoll |",
            "| a | b | c | d |",
        ] {
            assert_eq!(lines(&format!("{head}{row}\n")), [4], "{row}");
        }
        assert_eq!(lines("| word | meaning | source |\n|---|---|---|\n| a | B. | c |\n"), [1]);
        assert_eq!(lines("nothing\n"), [0]);
        assert_eq!(glossary(&Repo::of(&[])).len(), 1);
    }

    #[test]
    fn a_crate_that_the_architecture_does_not_name_is_found() {
        let manifest = "[package]\nname = \"atoll-core\"\n";
        let with = |text: &str| {
            architecture(&Repo::of(&[(ARCHITECTURE, text), ("crates/pure/core/Cargo.toml", manifest)])).len()
        };
        assert_eq!(with("about atoll-corex and pure/corex"), 1);
        assert_eq!(with("`pure/core` has ids"), 0);
        assert_eq!(with("`atoll-core` has ids"), 0);
        assert!(architecture(&Repo::of(&[("crates/pure/core/Cargo.toml", manifest)])).is_empty());
    }

    #[test]
    fn a_sequence_without_its_test_is_found() {
        let page = "| 1 | a | `not_a_row` |\n## Dangerous sequences\n| 2 | b | d `is_there`, `cli --test my_check` |\n\
                    | 3 | `any_thing` | d `is_not`, g `helps_it` |\n## Bounds\n| `other_table` |\n";
        let tests = "#[test]\npub(crate) fn is_there() {}\nfn helps_it() {}\n";
        for name in WITH_SEQUENCES {
            let found = sequences(&Repo::of(&[(name, page), ("crates/a/tests/t.rs", tests)]));
            let found: Vec<_> = found.iter().map(|v| (v.line, v.what.as_str())).collect();
            assert_eq!(found, [(4, "there is no test is_not"), (4, "there is no test helps_it")], "{name}");
        }
    }
}
