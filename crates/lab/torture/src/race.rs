//! Two mounts race `mv a b/d/e` against `mv b a/c/e`. One must win, whoever it is, and the tree must be what
//! that move makes of it: the same names with the same inodes, nothing lost, nothing twice, no circle.
//!
//! Nobody looks at the names first: the kernel of each mount has directories where the other took them from
//! until it moves them.
//!
//! With kills, nodes die by `kill -9` in turn meanwhile. Then a move may end with EIO, done or not done; the tree
//! is still that of the start, or of one of the moves.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_model::Rng;
use rustix::io::Errno;

use crate::cluster::{Cluster, is_away};
use crate::process::PATIENCE;

/// What each of the two moves, and to where.
const MOVES: [(&str, &str); 2] = [("a", "b/d/e"), ("b", "a/c/e")];
/// Directories that are there at the start.
const DIRS: [&str; 8] = ["a", "a/c", "a/c/deep", "a/x", "b", "b/d", "b/d/deep", "b/y"];
/// Files in each of them.
const FILES: usize = 3;
/// One of the two begins up to so much later, so that all stages of the other are met.
const LATER_US_MAX: u64 = 3000;

/// What to do.
#[derive(Debug)]
pub struct Race {
    /// How often.
    pub rounds: u32,
    /// Repeats who begins when.
    pub seed: u64,
    /// Kill nodes in turn, at least so many times: it goes on until then. 0: none is killed.
    pub kills: u64,
    /// Every so many rounds the bytes of the files are read, too.
    pub read_every: u32,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Report {
    /// How the two ended, and how often.
    pub ends: BTreeMap<[End; 2], u32>,
    /// Trees that were compared, whole.
    pub compared: u64,
    /// Nodes killed and started again.
    pub kills: u64,
    /// The longest time of a round's two moves, in milliseconds.
    pub slowest_ms: u64,
    /// What the rounds took.
    pub took: Duration,
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It was moved.
    Done,
    /// It was refused with this number.
    Refused(i32),
}

impl End {
    fn is_away(self) -> bool {
        matches!(self, Self::Refused(errno) if is_away(&std::io::Error::from_raw_os_error(errno)))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("moved"),
            Self::Refused(errno) => write!(f, "refused: {}", std::io::Error::from_raw_os_error(*errno)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ([one, two], count) in &self.ends {
            writeln!(f, "{count} times: {} {one}, {} {two}", MOVES[0].0, MOVES[1].0)?;
        }
        let s = self.took.as_secs_f64();
        let (compared, kills) = (self.compared, self.kills);
        writeln!(
            f,
            "{compared} trees compared, {kills} kills, slowest round {} ms, {s:.0} s",
            self.slowest_ms
        )
    }
}

/// Names by path, each with its inode number and whether it is a directory.
type Names = BTreeMap<String, (u64, bool)>;

fn names(top: &Path) -> Result<Names> {
    let mut found = Names::new();
    let mut left = vec![String::new()];
    while let Some(dir) = left.pop() {
        let listing = std::fs::read_dir(top.join(&dir)).with_context(|| format!("/{dir}"))?;
        for entry in listing {
            let entry = entry.with_context(|| format!("/{dir}"))?;
            let name = entry.file_name().into_string().ok().context("a name that nobody gave")?;
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let is_dir = entry.file_type()?.is_dir();
            if is_dir {
                left.push(path.clone());
            }
            ensure!(found.insert(path.clone(), (entry.ino(), is_dir)).is_none(), "/{path} is listed twice");
            ensure!(found.len() < 1000, "there is no end of names: a circle at /{path}");
        }
    }
    Ok(found)
}

/// The names after a move.
fn moved(names: &Names, (from, to): (&str, &str)) -> Names {
    let path = |path: &String| match path.strip_prefix(from) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
        _ => path.clone(),
    };
    names.iter().map(|(name, what)| (path(name), *what)).collect()
}

fn differences(expected: &Names, found: &Names) -> String {
    let mut text = String::new();
    for (path, what) in expected.iter().filter(|(path, what)| found.get(*path) != Some(what)) {
        text += &format!("/{path} should be {what:?}, is {:?}\n", found.get(path));
    }
    for (path, what) in found.iter().filter(|(path, _)| !expected.contains_key(*path)) {
        text += &format!("/{path} is {what:?} and should not be there\n");
    }
    text
}

/// A volume that is raced over.
struct Track<'a> {
    what: &'a Race,
    mounts: [PathBuf; 2],
    /// The names at the start.
    first: Names,
}

impl Track<'_> {
    /// What a mount shows; honest errors are waited for while nodes are killed.
    fn shown(&self, mount: usize) -> Result<Names> {
        let until = Instant::now() + PATIENCE;
        loop {
            match names(&self.mounts[mount]) {
                Err(why) if self.what.kills > 0 && has_away(&why) && Instant::now() < until => {}
                other => return other.with_context(|| format!("mount {mount} cannot be listed")),
            }
        }
    }

    /// Both mounts show these names, and files their bytes.
    fn compare(&self, expected: &Names, bytes: bool, report: &mut Report) -> Result<()> {
        // What a file was called at first is written in it.
        let origin: BTreeMap<u64, &String> = self.first.iter().map(|(path, (ino, _))| (*ino, path)).collect();
        for (at, mount) in self.mounts.iter().enumerate() {
            let found = self.shown(at)?;
            ensure!(found == *expected, "mount {at} shows another tree:\n{}", differences(expected, &found));
            report.compared += 1;
            // An error of these is no matter of the race.
            for (path, (ino, is_dir)) in found.iter().filter(|_| bytes && self.what.kills == 0) {
                let path = mount.join(path);
                let meta = std::fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
                ensure!((meta.ino(), meta.is_dir()) == (*ino, *is_dir), "{} is another", path.display());
                if !is_dir {
                    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                    ensure!(
                        origin.get(ino).is_some_and(|o| **o == text),
                        "{} holds {text:?}",
                        path.display()
                    );
                }
            }
        }
        Ok(())
    }

    fn rename(&self, mount: usize, from: &str, to: &str) -> std::io::Result<()> {
        let (from, to) = (self.mounts[mount].join(from), self.mounts[mount].join(to));
        std::fs::rename(from, to)
    }

    /// Both move at once, each a little later than the other or not.
    fn both(&self, later: [u64; 2]) -> Result<[End; 2]> {
        let barrier = Barrier::new(2);
        let race = |at: usize| {
            barrier.wait();
            let until = Instant::now() + Duration::from_micros(later[at]);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            self.rename(at, MOVES[at].0, MOVES[at].1)
        };
        let [one, two] = std::thread::scope(|scope| {
            let threads = [0, 1].map(|at| scope.spawn(move || race(at)));
            threads.map(|thread| thread.join().expect("no mover panics"))
        });
        Ok([end(one)?, end(two)?])
    }

    fn round(&self, later: [u64; 2], back: usize, bytes: bool, report: &mut Report) -> Result<()> {
        let begun = Instant::now();
        let ends = self.both(later)?;
        report.slowest_ms = report.slowest_ms.max(begun.elapsed().as_millis() as u64);
        *report.ends.entry(ends).or_default() += 1;
        let winner = match ends {
            [End::Done, End::Refused(errno)] if is_honest(errno) => Some(0),
            [End::Refused(errno), End::Done] if is_honest(errno) => Some(1),
            [one, two] if self.what.kills > 0 && [one, two].iter().any(|end| end.is_away()) => {
                // Nobody knows, so the tree tells: no other is right.
                let shown = self.shown(0)?;
                let found = MOVES.iter().position(|the_move| shown == moved(&self.first, *the_move));
                let right = match found {
                    None => shown == self.first && ![one, two].contains(&End::Done),
                    Some(other) => ends[1 - other] != End::Done,
                };
                ensure!(right, "{one}; {two}. Against the start:\n{}", differences(&self.first, &shown));
                found
            }
            [one, two] => {
                let shown = [self.shown(0)?, self.shown(1)?].map(|found| differences(&self.first, &found));
                bail!("one must win: {one}; {two}. Against the start, the mounts show:\n{}", shown.join("\n"))
            }
        };
        let Some(winner) = winner else { return self.compare(&self.first, bytes, report) };
        self.compare(&moved(&self.first, MOVES[winner]), bytes, report)?;
        let (from, to) = MOVES[winner];
        loop {
            match self.rename(back, to, from) {
                Ok(()) => break,
                Err(why) if self.what.kills > 0 && is_away(&why) => {
                    if self.shown(back)? == self.first {
                        break;
                    }
                }
                Err(why) => return Err(why).context("the way back"),
            }
        }
        if bytes { self.compare(&self.first, bytes, report) } else { Ok(()) }
    }
}

fn make(top: &Path) -> Result<()> {
    for dir in DIRS {
        std::fs::create_dir(top.join(dir))?;
        for at in 0..FILES {
            let name = format!("{dir}/file-{at}");
            std::fs::write(top.join(&name), &name)?;
        }
    }
    Ok(())
}

fn end(result: std::io::Result<()>) -> Result<End> {
    match result {
        Ok(()) => Ok(End::Done),
        Err(why) => Ok(End::Refused(why.raw_os_error().context("an error without a number")?)),
    }
}

/// Runs it over an empty volume with two mounts. The first thing that is wrong ends it.
pub fn run(what: &Race, cluster: &mut Cluster, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let mounts: [PathBuf; 2] = cluster.mounts().try_into().ok().context("it takes two mounts")?;
    make(&mounts[0])?;
    let track = Track { what, first: names(&mounts[0])?, mounts };
    if what.kills == 0 {
        return rounds(&track, &|| true, say);
    }
    let (report, kills) =
        cluster.while_killing(what.seed, |kills| rounds(&track, &|| kills() >= what.kills, say))?;
    Ok(Report { kills, ..report })
}

fn rounds(track: &Track<'_>, enough: &dyn Fn() -> bool, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut report = Report::default();
    let mut rng = Rng::new(track.what.seed);
    let begun = Instant::now();
    for round in 1.. {
        if round > track.what.rounds && enough() {
            break;
        }
        let later: [u64; 2] = [rng.below(LATER_US_MAX), rng.below(LATER_US_MAX)];
        let back = rng.index(2);
        let bytes = round % track.what.read_every == 0;
        let context = || format!("round {round} of seed {}", track.what.seed);
        track.round(later, back, bytes, &mut report).with_context(context)?;
        if round % 1000 == 0 {
            say(&format!("{round} rounds, {:.0} s", begun.elapsed().as_secs_f64()));
        }
    }
    report.took = begun.elapsed();
    Ok(report)
}

/// The loser's source is gone, its target's directory is below its source, or is gone.
fn is_honest(errno: i32) -> bool {
    [Errno::NOENT, Errno::INVAL].iter().any(|honest| honest.raw_os_error() == errno)
}

/// It comes of a node that does not answer.
fn has_away(why: &anyhow::Error) -> bool {
    why.chain().filter_map(|why| why.downcast_ref()).any(is_away)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_takes_what_is_below_and_nothing_that_only_begins_alike() {
        let names = |paths: &[&str]| -> Names {
            paths.iter().enumerate().map(|(at, path)| (path.to_string(), (at as u64, false))).collect()
        };
        let before = names(&["a", "a/c", "ab", "b/d"]);
        let after = moved(&before, MOVES[0]);
        assert_eq!(after.keys().collect::<Vec<_>>(), ["ab", "b/d", "b/d/e", "b/d/e/c"]);
        assert_eq!((after["b/d/e/c"], after["ab"]), ((1, false), (2, false)));
        assert!(differences(&before, &after).contains("/a/c should be (1, false), is None"));
    }
}
