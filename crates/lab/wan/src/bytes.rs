//! What is sent over the link for one change: of large files, and of names. Each change is made by itself, after everything of
//! before has come. What an idle link sends in the same time is taken off for the bar.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use atoll_model::Rng;
use serde_json::json;

use crate::pair::{Pair, wait};
use crate::road::Counts;
use crate::table::{Figures, median, seconds};
use crate::trees::{noise, noise_file};
use crate::wire::LinkTerms;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Bytes {
    /// The link, once everything is at both hosts.
    pub terms: LinkTerms,
    /// Bytes of the large file, and of all files of the directory together.
    pub large: u64,
    /// Files of the directory.
    pub files: u64,
    /// How often each change is made: the figures are medians.
    pub rounds: usize,
    /// How long the link is watched after a change was seen.
    pub watched: Duration,
}

/// What waits for the first filling and for a change to be seen.
const FILLED_MAX: Duration = Duration::from_secs(3600);
const SEEN_MAX: Duration = Duration::from_secs(900);
/// How often it is looked whether a change can be seen.
const LOOK: Duration = Duration::from_millis(20);

/// A change, and how many bytes may be sent for it at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Append,
    Inside,
    Rename,
    Touch,
    Create,
}

const CHANGES: [(Change, &str, u64); 5] = [
    (Change::Append, "1 MB appended to the large file", 1_050_000),
    (Change::Inside, "4 KB changed inside of it", 8_000),
    (Change::Rename, "the directory renamed", 3_000),
    (Change::Touch, "touch of a file", 400),
    (Change::Create, "an empty file created", 500),
];

/// What both hosts have sent.
fn sent(pair: &dyn Pair) -> [Counts; 2] {
    pair.wire().counts()
}

/// Bytes that TCP carried, and all bytes of IP, both ways.
fn between(before: [Counts; 2], after: [Counts; 2]) -> (u64, u64) {
    let both = [0, 1].map(|host| after[host] - before[host]);
    (both[0].payload + both[1].payload, both[0].bytes + both[1].bytes)
}

/// Prepares both folders, makes the changes, and says what was sent.
pub fn run(what: &Bytes, pair: &dyn Pair, said: &mut dyn FnMut(String)) -> Result<Figures> {
    let (here, there) = (pair.folder(0).to_owned(), pair.folder(1).to_owned());
    let mut rng = Rng::new(11);
    pair.wire().set(LinkTerms::FREE);
    noise_file(&mut rng, &here.join("large"), what.large)?;
    fs::create_dir(here.join("dir0"))?;
    for file in 0..what.files {
        noise_file(&mut rng, &here.join(format!("dir0/f{file:05}")), what.large / what.files)?;
    }
    fs::write(here.join("small"), "small")?;
    let took = wait("both have the large file and the directory", FILLED_MAX, LOOK * 10, || {
        let last = there.join(format!("dir0/f{:05}", what.files - 1));
        Ok(len_of(&there.join("large")) == what.large && len_of(&last) == what.large / what.files)
    })?;
    pair.wait_even(FILLED_MAX)?;
    said(format!("{}: filled in {} s", pair.name(), took.as_secs()));
    pair.wire().set(what.terms);
    std::thread::sleep(what.watched);
    let (before, idle_for) = (sent(pair), what.watched * 6);
    std::thread::sleep(idle_for);
    let idle = between(before, sent(pair));
    let about = format!(
        "{}: bytes sent both ways until {} s after a change is seen ({}; the large file and the directory of {} files have {} \
         bytes each; medians of {}). payload: of TCP; idle: what an idle link sends in that time; own: without that, compared with the \
         bar",
        pair.name(),
        what.watched.as_secs(),
        what.terms,
        what.files,
        what.large,
        what.rounds
    );
    let mut figures = Figures::new(
        about,
        &["change", "payload", "idle", "own", "ip_bytes", "seen_after_s", "bar", "holds"],
    );
    for (change, name, bar) in CHANGES {
        let (mut payloads, mut all, mut idles, mut times) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..what.rounds {
            pair.wait_even(SEEN_MAX)?;
            let before = sent(pair);
            let since = Instant::now();
            let is_seen = make(change, round, &here, &there, &mut rng)?;
            let seen = wait(name, SEEN_MAX, LOOK, || Ok(is_seen()))?;
            // What comes behind it is counted, too.
            std::thread::sleep(what.watched);
            let (payload, bytes) = between(before, sent(pair));
            payloads.push(payload);
            all.push(bytes);
            idles.push((idle.0 as f64 * since.elapsed().as_secs_f64() / idle_for.as_secs_f64()) as u64);
            times.push(seen);
        }
        said(format!("{}: {name}: {payloads:?}", pair.name()));
        let (payload, idle) = (median(&payloads), median(&idles));
        let own = payload.saturating_sub(idle);
        let holds = if own <= bar { "yes" } else { "no" };
        let row = [
            json!(payload),
            json!(idle),
            json!(own),
            json!(median(&all)),
            seconds(median(&times)),
            json!(bar),
            json!(holds),
        ];
        figures.push(std::iter::once(json!(name)).chain(row).collect());
    }
    Ok(figures)
}

fn len_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

type Seen = Box<dyn Fn() -> bool>;

/// Makes a change in `here`; what tells whether it can be seen in `there`.
fn make(change: Change, round: usize, here: &Path, there: &Path, rng: &mut Rng) -> Result<Seen> {
    Ok(match change {
        Change::Append => {
            let (bytes, path) = (noise(rng, 1_000_000), there.join("large"));
            let file = OpenOptions::new().append(true).open(here.join("large"))?;
            let at = file.metadata()?.len();
            io::Write::write_all(&mut &file, &bytes)?;
            has(path, at, bytes)
        }
        Change::Inside => {
            let (bytes, path) = (noise(rng, 4096), there.join("large"));
            let file = OpenOptions::new().write(true).open(here.join("large"))?;
            // Somewhere inside, at a multiple of nothing.
            let at = rng.below(file.metadata()?.len() - 4096);
            file.write_all_at(&bytes, at)?;
            has(path, at, bytes)
        }
        Change::Rename => {
            fs::rename(here.join(format!("dir{round}")), here.join(format!("dir{}", round + 1)))?;
            let (old, new) = (there.join(format!("dir{round}")), there.join(format!("dir{}", round + 1)));
            let count = fs::read_dir(here.join(format!("dir{}", round + 1)))?.count();
            Box::new(move || !old.exists() && fs::read_dir(&new).is_ok_and(|names| names.count() == count))
        }
        Change::Touch => {
            let path = there.join("small");
            let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() as i64 - 1000;
            let to = SystemTime::UNIX_EPOCH + Duration::from_secs(time as u64);
            File::options().write(true).open(here.join("small"))?.set_modified(to).context("touch")?;
            Box::new(move || fs::metadata(&path).is_ok_and(|meta| meta.mtime() == time))
        }
        Change::Create => {
            File::create(here.join(format!("new{round}")))?;
            let path = there.join(format!("new{round}"));
            Box::new(move || path.exists())
        }
    })
}

/// Whether a file has these bytes there.
fn has(path: std::path::PathBuf, at: u64, bytes: Vec<u8>) -> Seen {
    Box::new(move || {
        let mut read = vec![0; bytes.len()];
        let file = File::open(&path);
        file.is_ok_and(|file| file.read_exact_at(&mut read, at).is_ok()) && read == bytes
    })
}
