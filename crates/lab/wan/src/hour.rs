//! Both sites work while they are cut off from each other, and meet again without a command. Judged by words: each file has a
//! word of its own in it, which is made once.
//!
//! - A word that was written meanwhile, and was not overwritten or removed at its own site, is there afterwards.
//! - A word from before that one site removed or overwrote, and whose file the other one did not touch, is gone.
//! - A word that both sites still had is there. No word is there twice.
//! - Both sites show the same tree, with the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use atoll_model::Rng;
use atoll_torture::tree::{Detail, differences, list};
use serde_json::json;

use crate::pair::{Pair, wait};
use crate::sites::Sites;
use crate::table::{Figures, seconds};
use crate::trees::{all_below, noise};
use crate::wire::LinkTerms;

/// What is done.
#[derive(Debug, Clone, Copy)]
pub struct Hour {
    /// The link, before and afterwards.
    pub terms: LinkTerms,
    /// How long both are cut off.
    pub cut: Duration,
    /// Operations at each site meanwhile.
    pub operations: u64,
    /// Files before.
    pub files: u64,
    /// Repeats the operations.
    pub seed: u64,
}

/// How long it may take until both have the same again.
const EVEN_MAX: Duration = Duration::from_secs(3 * 3600);
/// Bytes behind a word, at most.
const BYTES_MAX: usize = 16 << 10;
/// Words that are told if they are wrong.
const TOLD_MAX: usize = 10;

/// A word: the number of the site (2: before), and a number of its own.
type Word = (u64, u64);

/// What users of one site did while it was cut off.
#[derive(Debug, Default)]
struct Worked {
    /// Words whose files were moved, overwritten or removed, or given another mode.
    touched: BTreeSet<Word>,
    /// What became of each word, for people.
    history: BTreeMap<Word, Vec<String>>,
    /// The time that the slowest operation took.
    slowest: Duration,
}

/// A program at one site.
struct Worker {
    site: u64,
    top: PathBuf,
    rng: Rng,
    /// Of the files that are there, as it knows.
    files: BTreeMap<PathBuf, Word>,
    dirs: BTreeSet<PathBuf>,
    next: u64,
    worked: Worked,
}

impl Worker {
    fn touch(&mut self, word: Word, what: String) {
        self.worked.touched.insert(word);
        self.note(word, what);
    }

    fn note(&mut self, word: Word, what: String) {
        self.worked.history.entry(word).or_default().push(what);
    }

    fn word(&mut self) -> (Word, Vec<u8>) {
        let word = (self.site, self.next);
        self.next += 1;
        let len = self.rng.index(BYTES_MAX);
        let mut bytes = format!("word {} {}\n", word.0, word.1).into_bytes();
        bytes.extend(noise(&mut self.rng, len));
        (word, bytes)
    }

    fn write(&mut self, path: PathBuf) -> io::Result<()> {
        let (word, bytes) = self.word();
        fs::write(self.top.join(&path), bytes)?;
        let old = self.files.insert(path.clone(), word);
        let over = old.map_or_else(String::new, |old| format!(" over {old:?}"));
        self.note(word, format!("written to {}{over}", path.display()));
        if let Some(old) = old {
            self.touch(old, format!("overwritten by {word:?}"));
        }
        Ok(())
    }

    fn new_path(&mut self, what: &str) -> PathBuf {
        let dirs: Vec<&PathBuf> = self.dirs.iter().collect();
        let dir = dirs[self.rng.index(dirs.len())];
        // Both sites take the same names now and then.
        let path = dir.join(format!("{what}{}", self.rng.below(20_000)));
        if self.files.contains_key(&path) || self.dirs.contains(&path) {
            return dir.join(format!("{what}-{}-{}", self.site, self.next));
        }
        path
    }

    fn any_file(&mut self) -> Option<PathBuf> {
        let len = self.files.len();
        (len > 0).then(|| self.files.keys().nth(self.rng.index(len)).expect("there are so many").clone())
    }

    fn act(&mut self) -> io::Result<()> {
        let drawn = self.rng.below(100);
        let file = if drawn < 70 { self.any_file() } else { None };
        match (drawn, file) {
            (0..30, Some(path)) => self.write(path),
            (30..45, Some(path)) => {
                let to = self.new_path("f");
                fs::rename(self.top.join(&path), self.top.join(&to))?;
                let word = self.files.remove(&path).expect("it is there");
                self.touch(word, format!("moved to {}", to.display()));
                self.files.insert(to, word);
                Ok(())
            }
            (45..62, Some(path)) => {
                fs::remove_file(self.top.join(&path))?;
                let word = self.files.remove(&path).expect("it is there");
                self.touch(word, "removed".to_owned());
                Ok(())
            }
            (62..70, Some(path)) => {
                use std::os::unix::fs::PermissionsExt;
                let mode = 0o600 | self.rng.below(0o100) as u32;
                fs::set_permissions(self.top.join(&path), fs::Permissions::from_mode(mode))?;
                self.touch(self.files[&path], "its mode set".to_owned());
                Ok(())
            }
            (70..75, _) => {
                let dir = self.new_path("d");
                fs::create_dir(self.top.join(&dir))?;
                self.dirs.insert(dir);
                Ok(())
            }
            (75..77, _) if self.dirs.len() > 20 => self.move_dir(),
            (77..78, _) if self.dirs.len() > 20 => self.remove_dir(),
            _ => {
                let path = self.new_path("f");
                self.write(path)
            }
        }
    }

    fn any_dir(&mut self) -> PathBuf {
        // Not the top.
        let at = 1 + self.rng.index(self.dirs.len() - 1);
        self.dirs.iter().nth(at).expect("there are so many").clone()
    }

    fn move_dir(&mut self) -> io::Result<()> {
        let (from, to) = (self.any_dir(), self.new_path("d"));
        if to.starts_with(&from) {
            return Ok(());
        }
        fs::rename(self.top.join(&from), self.top.join(&to))?;
        let moved = |path: &Path| to.join(path.strip_prefix(&from).expect("it is below"));
        let (dirs, files) = (std::mem::take(&mut self.dirs), std::mem::take(&mut self.files));
        let there = |path: PathBuf| if path.starts_with(&from) { moved(&path) } else { path };
        self.dirs = dirs.into_iter().map(|dir| if dir == from { to.clone() } else { there(dir) }).collect();
        for (path, word) in files {
            let new = there(path.clone());
            if new != path {
                self.note(word, format!("with its directory at {}", new.display()));
            }
            self.files.insert(new, word);
        }
        Ok(())
    }

    fn remove_dir(&mut self) -> io::Result<()> {
        let dir = self.any_dir();
        // A large part of the tree is moved now and then, and not removed.
        if self.files.keys().filter(|path| path.starts_with(&dir)).count() > 50 {
            return Ok(());
        }
        fs::remove_dir_all(self.top.join(&dir))?;
        self.dirs.retain(|path| !path.starts_with(&dir));
        let gone: Vec<PathBuf> = self.files.keys().filter(|path| path.starts_with(&dir)).cloned().collect();
        for path in gone {
            let word = self.files.remove(&path).expect("it is there");
            self.touch(word, format!("removed with {}", dir.display()));
        }
        Ok(())
    }

    /// So many operations, spread over a time.
    fn work(&mut self, operations: u64, time: Duration) -> io::Result<()> {
        let since = Instant::now();
        for number in 0..operations {
            let begun = since.elapsed();
            self.act()?;
            self.worked.slowest = self.worked.slowest.max(since.elapsed() - begun);
            let due = time.mul_f64((number + 1) as f64 / operations as f64);
            std::thread::sleep(due.saturating_sub(since.elapsed()));
        }
        Ok(())
    }
}

/// Where each word is.
type Found = BTreeMap<Word, Vec<PathBuf>>;

/// The words that are in the tree, and the files that have none.
fn words(top: &Path) -> Result<(Found, Vec<PathBuf>)> {
    let mut found = Found::new();
    let mut without = Vec::new();
    for path in all_below(top)?.1 {
        let bytes = fs::read(&path)?;
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let mut numbers = line.split(' ').skip(1).filter_map(|number| number.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(site), Some(number)) => found.entry((site, number)).or_default().push(path),
            _ => without.push(path),
        }
    }
    Ok((found, without))
}

/// Does it, and judges it.
pub fn run(what: &Hour, sites: &Sites, said: &mut dyn FnMut(String)) -> Result<Figures> {
    let worker = |site: u64, top: &Path| Worker {
        site,
        top: top.to_owned(),
        rng: Rng::new(what.seed.wrapping_mul(3).wrapping_add(site)),
        files: BTreeMap::new(),
        dirs: BTreeSet::from([PathBuf::new()]),
        next: 0,
        worked: Worked::default(),
    };
    let mut before = worker(2, sites.folder(0));
    for number in 0..what.files {
        if number % 20 == 0 {
            let dir = before.new_path("d");
            fs::create_dir(before.top.join(&dir))?;
            before.dirs.insert(dir);
        }
        let path = before.new_path("f");
        before.write(path)?;
    }
    sites.wait_even(EVEN_MAX)?;
    wait("both have all words", EVEN_MAX, Duration::from_secs(1), || {
        let (here, there) = (words(sites.folder(0))?.0, words(sites.folder(1))?.0);
        Ok(here.len() == before.files.len() && here.keys().eq(there.keys()))
    })?;
    sites.wire().set(what.terms);
    let first: BTreeSet<Word> = before.files.values().copied().collect();
    let mut workers = [0, 1].map(|site| Worker {
        files: before.files.clone(),
        dirs: before.dirs.clone(),
        ..worker(site, sites.folder(site as usize))
    });
    sites.wire().cut();
    wait("each site takes the other for away", Duration::from_secs(120), Duration::from_secs(1), || {
        Ok(!sites.is_connected(0)? && !sites.is_connected(1)?)
    })?;
    said(format!("{} files; both are cut off", first.len()));
    let since = Instant::now();
    std::thread::scope(|scope| {
        let threads = workers.each_mut().map(|worker| scope.spawn(|| worker.work(what.operations, what.cut)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("a worker does not panic"))
    })?;
    let worked_for = since.elapsed();
    let sent = sites.wire().counts();
    sites.wire().set(what.terms);
    let since = Instant::now();
    sites.wait_even(EVEN_MAX)?;
    let even_after = since.elapsed();
    let sent = [0, 1].map(|host| (sites.wire().counts()[host] - sent[host]).payload);
    said(format!("{:?} of work; the same again after {even_after:?}", worked_for));

    let detail = Detail { bytes: false, atime: false };
    let wrong = differences(&list(sites.folder(0), detail)?, &list(sites.folder(1), detail)?);
    ensure!(wrong.is_empty(), "the sites differ: {}", wrong.join("\n"));
    let (found, without) = words(sites.folder(0))?;
    let alive = workers.each_ref().map(|worker| worker.files.values().copied().collect::<BTreeSet<Word>>());
    let mut wrong: Vec<(Word, &str)> = Vec::new();
    for site in 0..2 {
        let own = alive[site].iter().filter(|word| word.0 == site as u64);
        wrong.extend(own.filter(|word| !found.contains_key(word)).map(|word| (*word, "lost")));
        let other = &workers[1 - site].worked.touched;
        let gone = first.iter().filter(|word| !alive[site].contains(word) && !other.contains(word));
        wrong.extend(gone.filter(|word| found.contains_key(word)).map(|word| (*word, "back")));
    }
    let kept = first.iter().filter(|word| alive.iter().all(|alive| alive.contains(word)));
    wrong.extend(kept.filter(|word| !found.contains_key(word)).map(|word| (*word, "lost")));
    wrong.extend(found.iter().filter(|(_, at)| at.len() > 1).map(|(word, _)| (*word, "there twice")));
    let history = |word: &Word| {
        let site = |site: usize| (site, workers[site].worked.history.get(word));
        let was = before.worked.history.get(word);
        format!("before {was:?}, sites {:?}, now {:?}", [0, 1].map(site), found.get(word))
    };
    let lines = wrong.iter().map(|(word, what)| format!("{word:?} is {what}: {}", history(word)));
    let mut told: Vec<String> = lines.take(TOLD_MAX).collect();
    for path in without.iter().take(TOLD_MAX) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let named = workers.iter().flat_map(|worker| &worker.worked.history);
        let named = named.filter(|(_, all)| all.iter().any(|line| line.ends_with(&*name)));
        told.push(format!(
            "{} has no word: {}",
            path.display(),
            named.map(|(word, _)| format!("{word:?} {}", history(word))).collect::<Vec<_>>().join("; ")
        ));
    }
    let count = wrong.len() + without.len();
    ensure!(count == 0, "{count} words or files are wrong:\n{}", told.join("\n"));
    let beside = found.values().flatten().filter(|path| path.to_string_lossy().contains(".~")).count();
    let about = format!(
        "both sites cut off for {} s, {} operations at each, {} files before; then {}; judged: nothing lost, back or doubled",
        worked_for.as_secs(),
        what.operations,
        first.len(),
        what.terms
    );
    let slowest = workers.iter().map(|worker| worker.worked.slowest).max().unwrap_or_default();
    let columns = [
        "files",
        "beside_others",
        "slowest_operation_s",
        "even_after_s",
        "payload_of_first",
        "payload_of_second",
    ];
    let mut figures = Figures::new(about, &columns);
    figures.push(vec![
        json!(found.len()),
        json!(beside),
        seconds(slowest),
        seconds(even_after),
        json!(sent[0]),
        json!(sent[1]),
    ]);
    Ok(figures)
}
