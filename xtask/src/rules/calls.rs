//! Calls that may not stand in some crates, or in any.

use crate::code::{find_word, only_code, uses, without_tests};
use crate::repo::{Repo, Violation};

/// Paths of the standard library that reach the world: a machine that names one cannot be replayed.
const IMPURE_PATHS: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net",
    "std::os",
    "std::process",
    "std::sync::Barrier",
    "std::sync::Condvar",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::mpsc",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Words that reach the world wherever they come from.
const IMPURE_WORDS: &[&str] = &[
    "Condvar",
    "Instant::now",
    "Mutex",
    "RandomState",
    "RwLock",
    "SystemTime",
    "eprint!",
    "eprintln!",
    "print!",
    "println!",
    "rand::",
    "thread_local!",
    "tokio::",
];

/// What is left when something is not finished.
const UNFINISHED_CALLS: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// Groups whose crates read what peers, disks and users give them.
const OUTSIDE: &[&str] = &["crates/io/", "crates/store/"];

/// Product code: sources of a crate that are no tests of it.
fn is_product(path: &str) -> bool {
    path.starts_with("crates/")
        && path.contains("/src/")
        && !path.ends_with("/tests.rs")
        && !path.contains("/tests/")
}

/// Rust files of the product below one of `folders`, without comments, strings and tests.
fn product<'a>(repo: &'a Repo, folders: &'a [&'a str]) -> impl Iterator<Item = (&'a str, String)> {
    repo.ending(&[".rs"])
        .filter(|(path, _)| is_product(path) && folders.iter().any(|f| path.starts_with(f)))
        .map(|(path, text)| (path, without_tests(&only_code(text))))
}

/// Lines of `code` with one of `words`.
fn lines_with<'a>(code: &'a str, words: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    (1..).zip(code.lines()).flat_map(move |(line, text)| {
        words.iter().filter(move |word| find_word(text, word).is_some()).map(move |word| (line, *word))
    })
}

/// No file, socket, clock, thread, lock, environment or chance in a pure crate.
pub(super) fn pure(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (path, code) in product(repo, &["crates/pure/"]) {
        let mut found = |line, what: &str| {
            broken.push(Violation::new(
                path,
                line,
                format!("{what} in a pure crate: make it an event or an effect"),
            ));
        };
        for (line, used) in uses(&code) {
            for banned in IMPURE_PATHS {
                if used.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")) {
                    found(line, banned);
                }
            }
        }
        for (line, word) in lines_with(&code, IMPURE_PATHS).chain(lines_with(&code, IMPURE_WORDS)) {
            found(line, word);
        }
    }
    broken.sort();
    broken.dedup();
    broken
}

/// No `unwrap` where bytes come from outside.
pub(super) fn unwraps(repo: &Repo) -> Vec<Violation> {
    let files = product(repo, OUTSIDE);
    files
        .flat_map(|(path, code)| {
            let lines = lines_with(&code, &[".unwrap()", ".unwrap_err()"]).map(|(line, _)| line);
            let what = "unwrap: return a typed error, or expect(\"why it cannot be\")";
            lines.map(|line| Violation::new(path, line, what)).collect::<Vec<_>>()
        })
        .collect()
}

/// Nothing that panics because it is still to be written, and nothing left from looking for a fault.
pub(super) fn unfinished(repo: &Repo) -> Vec<Violation> {
    repo.ending(&[".rs"])
        .flat_map(|(path, text)| {
            let code = only_code(text);
            lines_with(&code, UNFINISHED_CALLS)
                .map(|(line, word)| Violation::new(path, line, format!("{word} is left")))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rule: fn(&Repo) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
        let mut lines: Vec<usize> = rule(&Repo::of(&[(path, text)])).iter().map(|v| v.line).collect();
        lines.dedup();
        lines
    }

    #[test]
    fn every_banned_path_and_word_is_found_in_a_pure_crate() {
        for banned in IMPURE_PATHS {
            let (module, item) = banned.rsplit_once("::").unwrap();
            for text in [
                format!("use {banned};"),
                format!("use {module}::{{cmp, {item}}};"),
                format!("use {module}::{{cmp, {item}::x}};"),
                format!("fn f() {{ {banned}::g(); }}"),
            ] {
                assert_eq!(lines(pure, "crates/pure/x/src/lib.rs", &text), [1], "{text}");
            }
        }
        for banned in IMPURE_WORDS {
            assert_eq!(lines(pure, "crates/pure/x/src/a/b.rs", &format!("\nx({banned} y)")), [2], "{banned}");
        }
    }

    #[test]
    fn what_only_looks_like_a_banned_call_is_not_one() {
        let text = "//! No std::fs, no tokio::spawn.\nuse std::time::Duration;\nuse std::{fmt, ops::Range};\n\
                    const A: &str = \"rand::random\";\nstruct MutexLike;\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        assert!(lines(pure, "crates/pure/x/src/lib.rs", text).is_empty());
        let banned = "use std::fs;";
        for elsewhere in
            ["crates/store/x/src/lib.rs", "crates/pure/x/tests/a.rs", "crates/pure/x/src/tests.rs"]
        {
            assert!(lines(pure, elsewhere, banned).is_empty(), "{elsewhere}");
        }
    }

    #[test]
    fn an_unwrap_is_found_outside_tests_of_store_and_io() {
        let text = "fn f() {\n    a.unwrap();\n    b.expect(\"why\");\n    c.unwrap_or(1);\n}\n#[cfg(test)]\nmod t { fn x() { a.unwrap(); } }";
        for path in ["crates/io/x/src/lib.rs", "crates/store/x/src/a.rs"] {
            assert_eq!(lines(unwraps, path, text), [2]);
        }
        for path in ["crates/pure/x/src/lib.rs", "crates/io/x/tests/a.rs", "crates/lab/x/src/lib.rs"] {
            assert!(lines(unwraps, path, text).is_empty());
        }
    }

    #[test]
    fn what_is_left_unfinished_is_found_even_in_tests() {
        for call in UNFINISHED_CALLS {
            assert_eq!(
                lines(unfinished, "crates/lab/x/tests/a.rs", &format!("\nfn f() {{ {call}(); }}")),
                [2]
            );
        }
        assert!(lines(unfinished, "xtask/src/a.rs", "// dbg! is a word here").is_empty());
    }
}
