//! Mail and editors: messages that go from tmp to new to cur with flags in their names while several deliver
//! and several sort, and the ways in which editors put a new file in the place of an old one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context, Result, bail, ensure};
use atoll_model::Rng;

use crate::place::run;
use crate::programs::Bench;
use crate::tools::{Files, expect_files};

/// Who delivers, and who sorts, at the same time.
const DELIVERERS: usize = 2;
const SORTERS: usize = 2;

fn message(who: usize, at: usize) -> String {
    format!("From: {who}\nSubject: message {at}\n\n{}", format!("line of {who}.{at}\n").repeat(1 + at % 70))
}

/// What has been done with messages, by the name that each has for life.
#[derive(Debug, Default)]
struct Mail {
    delivered: BTreeMap<String, String>,
    deleted: BTreeSet<String>,
}

/// Deliverers in one mount, sorters in the other: each message is there once in the end, or deleted.
pub fn maildir(bench: Bench<'_>) -> Result<()> {
    for folder in ["", ".Archive/", ".Archive.Old/"] {
        for dir in ["tmp", "new", "cur"] {
            fs::create_dir_all(bench.inside.join(format!("{folder}{dir}")))?;
        }
    }
    let count = bench.scale.of(60, 2500);
    let mail = Mutex::new(Mail::default());
    let left = AtomicUsize::new(DELIVERERS);
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for who in 0..DELIVERERS {
            let (mail, left) = (&mail, &left);
            threads.push(scope.spawn(move || {
                let result = (0..count).try_for_each(|at| deliver(bench.inside, who, at, mail));
                left.fetch_sub(1, Ordering::SeqCst);
                result.with_context(|| format!("deliverer {who}"))
            }));
        }
        for who in 0..SORTERS {
            let (mail, left) = (&mail, &left);
            let top = if who % 2 == 0 { bench.other } else { bench.inside };
            threads.push(
                scope.spawn(move || sort(top, who, mail, left).with_context(|| format!("sorter {who}"))),
            );
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("nobody panics"))
    })?;
    let mail = mail.into_inner().expect("nobody panics with it");
    for top in [bench.inside, bench.other] {
        let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
        for folder in ["", ".Archive/", ".Archive.Old/"] {
            for dir in ["tmp", "new", "cur"] {
                for entry in fs::read_dir(top.join(format!("{folder}{dir}")))? {
                    let path = entry?.path();
                    if let Some(other) = found.insert(base(&path)?, path.clone()) {
                        bail!("a message is there twice: {} and {}", other.display(), path.display());
                    }
                }
            }
        }
        for (name, text) in &mail.delivered {
            let Some(path) = found.remove(name) else {
                ensure!(mail.deleted.contains(name), "{name} was delivered and is lost");
                continue;
            };
            ensure!(!mail.deleted.contains(name), "{name} was deleted and is at {}", path.display());
            ensure!(fs::read_to_string(&path)? == *text, "{} has other bytes", path.display());
        }
        ensure!(found.is_empty(), "nobody delivered {found:?}");
    }
    ensure!(mail.deleted.len() > count / 20, "only {} messages were deleted", mail.deleted.len());
    Ok(())
}

/// A message's name without its flags.
fn base(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str()).context("no name")?;
    Ok(name.split(':').next().unwrap_or(name).to_owned())
}

fn deliver(top: &Path, who: usize, at: usize, mail: &Mutex<Mail>) -> Result<()> {
    let name = format!("{at}.{who}.host");
    let (tmp, new) = (top.join("tmp").join(&name), top.join("new").join(&name));
    let text = message(who, at);
    let mut file = fs::File::create_new(&tmp)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    mail.lock().expect("nobody panics with it").delivered.insert(name, text);
    if at.is_multiple_of(2) {
        // As qmail does; the other way is that of others.
        fs::hard_link(&tmp, &new).context("link to new")?;
        fs::remove_file(&tmp).context("unlink of tmp")
    } else {
        fs::rename(&tmp, &new).context("rename to new")
    }
}

/// A name that another sorter was faster with is no error; any other error is.
fn mine(result: std::io::Result<()>, what: &str) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why).context(what.to_owned()),
    }
}

fn sort(top: &Path, who: usize, mail: &Mutex<Mail>, left: &AtomicUsize) -> Result<()> {
    let mut rng = Rng::new(who as u64);
    let mut last = false;
    loop {
        // Once more when nothing is delivered any more, so that new is empty in the end.
        let done = left.load(Ordering::SeqCst) == 0;
        for entry in fs::read_dir(top.join("new"))? {
            let path = entry?.path();
            // In new and in tmp for a moment; tmp is its deliverer's.
            let to = top.join("cur").join(format!("{}:2,", base(&path)?));
            mine(fs::rename(&path, to), "new to cur")?;
        }
        for entry in fs::read_dir(top.join("cur"))? {
            let path = entry?.path();
            let name = base(&path)?;
            let flagged = |flags: &str| top.join("cur").join(format!("{name}:2,{flags}"));
            match rng.below(8) {
                0 | 1 => drop(mine(fs::rename(&path, flagged("S")), "flag S")?),
                2 => drop(mine(fs::rename(&path, flagged("RS")), "flag RS")?),
                3 => {
                    let folder = [".Archive", ".Archive.Old"][rng.index(2)];
                    let to = top.join(folder).join("cur").join(format!("{name}:2,S"));
                    mine(fs::rename(&path, to), "to another folder")?;
                }
                4 => {
                    if mine(fs::remove_file(&path), "delete")? {
                        mail.lock().expect("nobody panics with it").deleted.insert(name);
                    }
                }
                _ => match fs::read_to_string(&path) {
                    Ok(text) => {
                        let right = mail.lock().expect("nobody panics with it").delivered.get(&name).cloned();
                        ensure!(right.as_deref() == Some(&text), "{} has other bytes", path.display());
                    }
                    Err(why) => drop(mine(Err(why), "read")?),
                },
            }
        }
        if last {
            return Ok(());
        }
        last = done;
    }
}

/// A way to save: whether the name may be absent for a moment, and how it is done.
type Way = (&'static str, bool, fn(&Path, &Path, &[u8]) -> std::io::Result<()>);

const WAYS: &[Way] = &[
    // vim with backupcopy=no: the old one becomes the backup, which goes in the end.
    ("backup by rename", true, |_, name, bytes| {
        let backup = with(name, "~");
        fs::rename(name, &backup)?;
        write_synced(name, bytes)?;
        fs::remove_file(backup)
    }),
    // vim with a backupdir: the same into another directory.
    ("backup elsewhere", true, |dir, name, bytes| {
        fs::rename(name, dir.join("backup").join("last~"))?;
        write_synced(name, bytes)
    }),
    // emacs: a lock that points nowhere, a link as backup, a new file over the name.
    ("backup by link", false, |dir, name, bytes| {
        let lock = dir.join("place/.#lock");
        symlink("user@host.1", &lock)?;
        let (backup, new) = (with(name, "~"), dir.join("place/#new#"));
        match fs::remove_file(&backup) {
            Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
            _ => fs::hard_link(name, &backup)?,
        }
        write_synced(&new, bytes)?;
        fs::rename(&new, name)?;
        fs::remove_file(lock)
    }),
    // gedit, LibreOffice and many libraries: temporary file in another directory, renamed over the name.
    ("temporary elsewhere", false, |dir, name, bytes| {
        let new = dir.join("temporary").join("new");
        write_synced(&new, bytes)?;
        fs::rename(new, name)
    }),
    // The old one is exchanged for the new, and goes.
    ("exchange", false, |dir, name, bytes| {
        let new = dir.join("temporary").join("new");
        write_synced(&new, bytes)?;
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, &new, rustix::fs::CWD, name, flags)?;
        fs::remove_file(new)
    }),
];

fn with(name: &Path, more: &str) -> PathBuf {
    let mut text = name.as_os_str().to_owned();
    text.push(more);
    text.into()
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn text(round: usize) -> Vec<u8> {
    format!("round {round:06}\n").repeat(1 + round * 7 % 400).into_bytes()
}

/// Editors save, and somebody looks on through the other mount.
pub fn saves(bench: Bench<'_>) -> Result<()> {
    let rounds = bench.scale.of(20, 1000);
    for (at, (what, absent, save)) in WAYS.iter().enumerate() {
        let below = format!("way-{at}");
        for dir in ["place", "backup", "temporary"] {
            fs::create_dir_all(bench.inside.join(&below).join(dir))?;
        }
        let (dir, name) = (bench.inside.join(&below), Path::new("place/document"));
        fs::write(dir.join(name), text(0))?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            // The first save waits for the first look: where all is busy, the looker would come too late.
            let (looked, first) = channel();
            let other = bench.other.join(&below).join(name);
            let (stop, absent) = (&stop, *absent);
            let looker = scope.spawn(move || look_on(&other, absent, stop, looked));
            // Who looks on has failed if nothing comes: `join` says why.
            let _ = first.recv();
            let saved = (1..=rounds).try_for_each(|round| {
                save(&dir, &dir.join(name), &text(round)).with_context(|| format!("{what}, round {round}"))
            });
            stop.store(true, Ordering::SeqCst);
            looker.join().expect("nobody panics").with_context(|| what.to_string())?;
            saved
        })?;
        let mut expected = Files::from([("place/document".to_owned(), text(rounds))]);
        match *what {
            "backup elsewhere" => drop(expected.insert("backup/last~".to_owned(), text(rounds - 1))),
            "backup by link" => drop(expected.insert("place/document~".to_owned(), text(rounds - 1))),
            _ => {}
        }
        expect_files(bench, &below, &expected).with_context(|| what.to_string())?;
    }
    Ok(())
}

/// Looks until it is told to stop, says so to `looked` after each look, and finds the bytes of one round each time.
fn look_on(name: &Path, absent: bool, stop: &AtomicBool, looked: Sender<()>) -> Result<()> {
    let mut last = 0;
    while !stop.load(Ordering::SeqCst) {
        // A way in which the name may be absent says nothing more than that nothing else fails.
        let found = fs::read(name);
        let _ = looked.send(());
        let bytes = match found {
            Err(why) if absent && why.kind() == ErrorKind::NotFound => continue,
            // Where the name is written in place, it is short for a moment.
            Ok(_) if absent => continue,
            other => other.context("the name is looked for")?,
        };
        let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
        let round = std::str::from_utf8(first)?.trim_start_matches("round ").parse();
        let round: usize = round.with_context(|| format!("{} bytes that are of no round", bytes.len()))?;
        ensure!(bytes == text(round), "{} bytes that are of no round, first {round}", bytes.len());
        ensure!(round >= last, "round {round} after {last}");
        last = round;
    }
    Ok(())
}

/// The real one, in each way that it has of keeping a backup.
pub fn vim(bench: Bench<'_>) -> Result<()> {
    fs::create_dir(bench.inside.join("backups"))?;
    for (copy, dir) in [("no", "."), ("yes", "."), ("auto", "../backups"), ("no", "../backups")] {
        let place = bench.inside.join(format!("place-{copy}-{}", dir.len()));
        fs::create_dir(&place)?;
        fs::write(place.join("document"), "a line to be changed\n".repeat(500))?;
        for round in 0..bench.scale.of(1, 10) {
            let mut command = Command::new("vim");
            command.args(["-u", "NONE", "-i", "NONE", "-es"]).current_dir(&place);
            command.args([
                "-c",
                &format!("set fsync backup writebackup backupskip= backupcopy={copy} backupdir={dir}"),
            ]);
            command.args(["-c", &format!("%s/^/{round} /"), "-c", "wq", "document"]);
            run(&mut command).with_context(|| format!("backupcopy={copy}, round {round}"))?;
            let read = |path: PathBuf| fs::read_to_string(&path).with_context(|| path.display().to_string());
            let saved = read(bench.other.join(place.file_name().expect("it has one")).join("document"))?;
            ensure!(saved.lines().count() == 500, "{} lines", saved.lines().count());
            ensure!(saved.lines().all(|line| line.starts_with(&format!("{round} "))), "not all are changed");
            let backup = read(place.join(dir).join("document~"))?;
            ensure!(
                backup.lines().all(|line| saved.contains(line)) && backup.len() < saved.len(),
                "the backup"
            );
        }
        let _ = fs::remove_file(bench.inside.join("backups/document~"));
    }
    Ok(())
}
