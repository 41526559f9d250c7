//! What becomes of names that both hosts change while they are cut off from each other: each pair of changes in a directory of its own. All
//! are prepared, both hosts do their part, and they meet again. Judged by words, one in each file, which is written once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::pair::Pair;
use crate::table::Figures;
use crate::wire::LinkTerms;

/// How it is done.
#[derive(Debug, Clone, Copy)]
pub struct Moves {
    /// The link, before and afterwards.
    pub terms: LinkTerms,
    /// For so long both have time to notice what their own users did, while they are cut off.
    pub noticed: Duration,
}

/// How long it may take until both have the same.
const EVEN_MAX: Duration = Duration::from_secs(600);

/// A directory in which a pair of changes is played.
struct MoveDir(PathBuf);

/// What is done there.
type Act = fn(&MoveDir) -> io::Result<()>;

impl MoveDir {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file gets this word. Files of different words have different sizes, by which a scan knows them apart.
    fn put(&self, name: &str, word: &str) -> io::Result<()> {
        let size: usize = word.bytes().map(usize::from).sum();
        fs::write(self.path(name), format!("{word}\n{}", ".".repeat(size)))
    }

    fn mkdir(&self, name: &str) -> io::Result<()> {
        fs::create_dir(self.path(name))
    }

    fn mv(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn rm(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn rm_all(&self, name: &str) -> io::Result<()> {
        fs::remove_dir_all(self.path(name))
    }
}

/// A pair of changes: what it is called, what both have, what either does, and which words must be there then, once each. A word that was
/// there and is not among these must be gone, if it is not in the last list: it may stay.
struct MovePair(&'static str, Act, Act, Act, &'static [&'static str], &'static [&'static str]);

/// `d/x` has the word `x`.
const D: Act = |at| {
    at.mkdir("d")?;
    at.put("d/x", "x")
};
/// The same, and `e/y` has the word `y`.
const D_E: Act = |at| {
    D(at)?;
    at.mkdir("e")?;
    at.put("e/y", "y")
};
/// `a` has the word `a`, `b` has `b`.
const A_B: Act = |at| {
    at.put("a", "a")?;
    at.put("b", "b")
};
const A: Act = |at| at.put("a", "a");

const PAIRS: &[MovePair] = &[
    MovePair(
        "a directory is renamed; a file in it is changed",
        D,
        |a| a.mv("d", "e"),
        |b| b.put("d/x", "new"),
        &["new"],
        &[],
    ),
    MovePair(
        "a directory is renamed; a file is made in it",
        D,
        |a| a.mv("d", "e"),
        |b| b.put("d/n", "new"),
        &["new", "x"],
        &[],
    ),
    MovePair(
        "a directory is renamed; it is renamed to another name",
        D,
        |a| a.mv("d", "e"),
        |b| b.mv("d", "f"),
        &["x"],
        &[],
    ),
    MovePair(
        "d is moved into e; e is moved into d",
        D_E,
        |a| a.mv("d", "e/d"),
        |b| b.mv("e", "d/e"),
        &["x", "y"],
        &[],
    ),
    MovePair(
        "a directory is renamed, and another one gets its name; a file in it is changed",
        D,
        |a| {
            a.mv("d", "e")?;
            a.mkdir("d")?;
            a.put("d/x", "other")
        },
        |b| b.put("d/x", "new"),
        &["new", "other"],
        &[],
    ),
    MovePair(
        "a directory is moved; the one in which it was is removed",
        |at| {
            at.mkdir("p")?;
            at.mkdir("p/d")?;
            at.put("p/d/x", "x")?;
            at.put("p/y", "y")
        },
        |a| {
            a.mv("p/d", "d")?;
            a.put("d/n", "new")
        },
        |b| b.rm_all("p"),
        &["new"],
        &["x"],
    ),
    MovePair("a file is removed; it is changed", A, |a| a.rm("a"), |b| b.put("a", "new"), &["new"], &[]),
    MovePair(
        "a directory is removed; a file is made in it",
        D,
        |a| a.rm_all("d"),
        |b| b.put("d/n", "new"),
        &["new"],
        &[],
    ),
    MovePair("a directory is removed; it is renamed", D, |a| a.rm_all("d"), |b| b.mv("d", "e"), &[], &["x"]),
    MovePair("a file is renamed; it is changed", A, |a| a.mv("a", "b"), |b| b.put("a", "new"), &["new"], &[]),
    MovePair(
        "a file is renamed; it is renamed to another name",
        A,
        |a| a.mv("a", "b"),
        |b| b.mv("a", "c"),
        &["a"],
        &[],
    ),
    MovePair(
        "a file is moved to another directory; it is moved to a third one",
        |at| {
            D_E(at)?;
            at.mkdir("f")
        },
        |a| a.mv("d/x", "e/x"),
        |b| b.mv("d/x", "f/x"),
        &["x", "y"],
        &[],
    ),
    MovePair(
        "b is renamed to c, then a to b; a is changed",
        A_B,
        |a| {
            a.mv("b", "c")?;
            a.mv("a", "b")
        },
        |b| b.put("a", "new"),
        &["b", "new"],
        &[],
    ),
    MovePair(
        "a and b change names; a is changed",
        A_B,
        |a| {
            a.mv("a", "t")?;
            a.mv("b", "a")?;
            a.mv("t", "b")
        },
        |b| b.put("a", "new"),
        &["b", "new"],
        &[],
    ),
    MovePair(
        "a is renamed over b; b is changed",
        A_B,
        |a| a.mv("a", "b"),
        |b| b.put("b", "new"),
        &["a", "new"],
        &[],
    ),
    MovePair(
        "both make a file of one name",
        |_| Ok(()),
        |a| a.put("n", "one"),
        |b| b.put("n", "other"),
        &["one", "other"],
        &[],
    ),
    MovePair(
        "both make a directory of one name",
        |_| Ok(()),
        |a| {
            a.mkdir("n")?;
            a.put("n/x", "one")
        },
        |b| {
            b.mkdir("n")?;
            b.put("n/y", "other")
        },
        &["one", "other"],
        &[],
    ),
    MovePair(
        "one makes a file, the other one a directory of that name",
        |_| Ok(()),
        |a| a.put("n", "one"),
        |b| {
            b.mkdir("n")?;
            b.put("n/y", "other")
        },
        &["one", "other"],
        &[],
    ),
];

/// All that is shown in a directory: paths, with the words of files.
fn shown(top: &Path) -> Result<BTreeMap<String, Option<String>>> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let name = path.strip_prefix(top)?.to_str().context("a name")?.to_owned();
            if path.is_dir() {
                found.insert(name, None);
                dirs.push(path);
            } else {
                let bytes = fs::read_to_string(&path)?;
                found.insert(name, Some(bytes.lines().next().unwrap_or_default().to_owned()));
            }
        }
    }
    Ok(found)
}

/// What has become of the words of a pair.
struct Verdict {
    lost: Vec<String>,
    doubled: Vec<String>,
    back: Vec<String>,
    copies: usize,
}

impl MovePair {
    fn judge(&self, before: &BTreeSet<String>, shown: &BTreeMap<String, Option<String>>) -> Verdict {
        let Self(.., must, may) = self;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for word in shown.values().flatten() {
            *counts.entry(word).or_default() += 1;
        }
        let count = |word: &str| counts.get(word).copied().unwrap_or(0);
        let told = |words: &mut dyn Iterator<Item = &str>| words.map(str::to_owned).collect();
        let is_marked = |name: &&String| name.contains(".~") || name.contains(".sync-conflict-");
        Verdict {
            lost: told(&mut must.iter().copied().filter(|word| count(word) == 0)),
            doubled: told(&mut counts.iter().filter(|(_, count)| **count > 1).map(|(word, _)| *word)),
            back: told(
                &mut before
                    .iter()
                    .map(String::as_str)
                    .filter(|word| !must.contains(word) && !may.contains(word) && count(word) > 0),
            ),
            copies: shown.keys().filter(is_marked).count(),
        }
    }
}

/// The part of a name that a product makes of time and host is left out.
fn timeless(name: &str) -> String {
    let Some(mark) = [".~", ".sync-conflict-"].iter().find_map(|mark| Some((name.find(mark)?, mark.len())))
    else {
        return name.to_owned();
    };
    let end = name[mark.0 + mark.1..].find(['/', '.']).map_or(name.len(), |at| mark.0 + mark.1 + at);
    format!("{}{}*{}", &name[..mark.0], &name[mark.0..mark.0 + mark.1], &name[end..])
}

/// For people: `d e/x=1`.
fn told(shown: &BTreeMap<String, Option<String>>) -> String {
    let with_entries: BTreeSet<&str> =
        shown.keys().filter_map(|path| path.rsplit_once('/')).map(|(dir, _)| dir).collect();
    let words = shown.iter().filter(|(path, word)| word.is_some() || !with_entries.contains(path.as_str()));
    let words = words.map(|(path, word)| match word {
        Some(word) => format!("{}={word}", timeless(path)),
        None => format!("{}/", timeless(path)),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Plays all pairs.
pub fn run(what: &Moves, pair: &dyn Pair, said: &mut dyn FnMut(String)) -> Result<Figures> {
    let about = format!(
        "{}: what both hosts do while they are cut off from each other, and what there is then",
        pair.name()
    );
    let columns = ["what", "shown", "lost", "doubled", "back", "copies", "same"];
    let mut figures = Figures::new(about, &columns);
    let dir = |host: usize, at: usize| MoveDir(pair.folder(host).join(format!("pair{at:02}")));
    pair.wire().set(what.terms);
    let mut before = Vec::new();
    for (at, MovePair(_, prepare, ..)) in PAIRS.iter().enumerate() {
        let dir = dir(0, at);
        fs::create_dir(&dir.0)?;
        prepare(&dir)?;
        before.push(shown(&dir.0)?.into_values().flatten().collect::<BTreeSet<String>>());
    }
    std::thread::sleep(what.noticed);
    pair.wait_even(EVEN_MAX)?;
    said(format!("{}: both have the same; the link is cut", pair.name()));
    pair.wire().cut();
    for host in 0..2 {
        for (at, MovePair(name, _, first, second, ..)) in PAIRS.iter().enumerate() {
            let act = if host == 0 { first } else { second };
            act(&dir(host, at)).with_context(|| format!("{name}, host {host}"))?;
        }
        // What the second one does is later.
        std::thread::sleep(what.noticed);
    }
    pair.wire().set(what.terms);
    pair.wait_even(EVEN_MAX)?;
    // What is made of conflicts may be told behind that.
    std::thread::sleep(what.noticed);
    pair.wait_even(EVEN_MAX)?;
    for (at, (case, before)) in PAIRS.iter().zip(&before).enumerate() {
        let both = [shown(&dir(0, at).0)?, shown(&dir(1, at).0)?];
        let mut verdict = case.judge(before, &both[0]);
        if both[0] != both[1] {
            let other = case.judge(before, &both[1]);
            verdict.lost.retain(|word| other.lost.contains(word));
        }
        let list = |words: &[String]| json!(words.join(" "));
        figures.push(vec![
            json!(case.0),
            json!(if both[0] == both[1] {
                told(&both[0])
            } else {
                format!("{}; at the other host {}", told(&both[0]), told(&both[1]))
            }),
            list(&verdict.lost),
            list(&verdict.doubled),
            list(&verdict.back),
            json!(verdict.copies),
            json!(both[0] == both[1]),
        ]);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_lost_doubled_or_back_are_told() {
        let case = MovePair("x", A, A, A, &["new", "kept"], &["may"]);
        let before = ["a", "may", "kept"].map(str::to_owned).into();
        let file = |name: &str, word: &str| (name.to_owned(), Some(word.to_owned()));
        let shown = [
            file("f", "kept"),
            file("f.~s1-20260101-010101.c", "kept"),
            file("g", "a"),
            file("h", "may"),
            ("d".to_owned(), None),
        ];
        let shown = BTreeMap::from(shown);
        let verdict = case.judge(&before, &shown);
        assert_eq!((verdict.lost, verdict.doubled), (vec!["new".to_owned()], vec!["kept".to_owned()]));
        assert_eq!((verdict.back, verdict.copies), (vec!["a".to_owned()], 1));
        assert_eq!(told(&shown), "d/ f=kept f.~*.c=kept g=a h=may");
    }
}
