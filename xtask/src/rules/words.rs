//! Words that may not stand in the repository. Put together from halves, so that this file keeps the rule too.

use crate::repo::{Repo, Violation};
use crate::text::find_word;

/// Marks of things put off: do it, or write it into an issue.
const PUT_OFF: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Beginnings of absolute paths that exist on one machine only.
const PLACES: &[&str] = &[concat!("/wo", "rk/"), concat!("/tmp/", "bash_jobs")];

/// Whether a path starts at `at`: what stands before belongs to no longer path.
fn starts_a_path(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    before.is_none_or(|c| !(c.is_alphanumeric() || "_-.~/}".contains(c)))
}

/// The lines with such a word, in any file.
pub(super) fn banned(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (path, text) in repo.all() {
        for (line, text) in (1..).zip(text.lines()) {
            for word in PUT_OFF.iter().filter(|word| find_word(text, word).is_some()) {
                broken.push(Violation::new(path, line, format!("{word}: do it, or put it into an issue")));
            }
            for place in PLACES {
                if text.match_indices(place).any(|(at, _)| starts_a_path(text, at)) {
                    broken.push(Violation::new(path, line, format!("{place} exists on one machine only")));
                }
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_such_word_is_found_in_every_kind_of_file() {
        for word in PUT_OFF.iter().chain(PLACES) {
            for path in ["a.rs", "docs/a.md", "Makefile", "a.toml"] {
                let text = format!("fine\n# {word}: later\n");
                let found = banned(&Repo::of(&[(path, &text)]));
                assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [2], "{word} in {path}");
            }
        }
    }

    #[test]
    fn parts_of_longer_words_and_paths_are_fine() {
        let text = format!("MAX{} mktemp {}{} /home/ann{}x", PUT_OFF[0], PUT_OFF[2], PUT_OFF[2], PLACES[0]);
        assert!(banned(&Repo::of(&[("a.rs", &text)])).is_empty());
    }
}
