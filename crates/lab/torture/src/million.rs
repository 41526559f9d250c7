//! Very many names: in one directory, which is listed while it changes; and in many directories, for
//! the daemon's memory.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::daemon::{Daemon, Launch};

/// Bytes of memory that the daemon may have in use with a million files.
pub const MEMORY_BYTES_MAX: u64 = 150 << 20;
/// Files in each of the many directories.
const PER_DIR: u32 = 1000;
/// Threads that make and remove.
const THREADS: u32 = 4;
/// Listings while the directory changes.
const LISTINGS: u32 = 3;
/// How long the kernel may take to forget.
const FORGET: Duration = Duration::from_secs(60);

/// What to do.
#[derive(Debug)]
pub struct Million {
    /// Names.
    pub files: u32,
    /// With this daemon.
    pub launch: Launch,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Report {
    /// Names a second, made in one directory.
    pub made_per_s: f64,
    /// Names a second of a listing with nothing else going on.
    pub listed_per_s: f64,
    /// Names a second of listings while names come and go.
    pub listed_changing_per_s: f64,
    /// Names a second, removed.
    pub removed_per_s: f64,
    /// Bytes of memory with all files in one directory, and with all in many.
    pub memory_one: u64,
    /// See `memory_one`.
    pub memory_many: u64,
    /// The same after the kernel was told to forget what it does not use.
    pub memory_forgotten: u64,
    /// The same after a restart, when everything has been looked at once.
    pub memory_restarted: u64,
}

/// Runs it.
pub fn run(what: &Million, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut report = Report::default();
    let daemon = what.launch.start()?;
    one_directory(&daemon, what.files, &mut report, say)?;
    say("many directories: making");
    let top = daemon.mount().join("many");
    fs::create_dir(&top)?;
    let dirs = what.files.div_ceil(PER_DIR);
    let each = |at: u32| -> Result<()> {
        let dir = top.join(format!("d{at}"));
        fs::create_dir(&dir)?;
        (0..PER_DIR).try_for_each(|n| Ok(fs::write(dir.join(format!("f{n}")), b"x")?))
    };
    in_parallel(dirs, each)?;
    report.memory_many = daemon.memory_bytes()?;
    drop_caches()?;
    report.memory_forgotten = settled(&daemon)?;
    say(&format!(
        "many directories: {} MiB, {} forgotten",
        report.memory_many >> 20,
        report.memory_forgotten >> 20
    ));
    count_many(&top, dirs)?;
    daemon.stop()?;
    let daemon = what.launch.start()?;
    count_many(&daemon.mount().join("many"), dirs)?;
    report.memory_restarted = settled(&daemon)?;
    daemon.stop()?;
    Ok(report)
}

fn one_directory(daemon: &Daemon, files: u32, report: &mut Report, say: &mut dyn FnMut(&str)) -> Result<()> {
    let dir = daemon.mount().join("one");
    fs::create_dir(&dir)?;
    let path = |n: u32| dir.join(format!("name-{n}"));
    let begun = Instant::now();
    in_parallel(files, |n| {
        fs::File::create_new(path(n))?;
        Ok(())
    })?;
    report.made_per_s = f64::from(files) / begun.elapsed().as_secs_f64();
    say(&format!("one directory: {:.0} made a second", report.made_per_s));
    drop_caches()?;
    let begun = Instant::now();
    let names = listed(&dir)?;
    report.listed_per_s = f64::from(files) / begun.elapsed().as_secs_f64();
    ensure!(names.len() == files as usize, "{} of {files} names are listed", names.len());
    report.memory_one = daemon.memory_bytes()?;
    say(&format!(
        "one directory: {:.0} listed a second, {} MiB",
        report.listed_per_s,
        report.memory_one >> 20
    ));
    list_while_changing(&dir, files, report)?;
    say(&format!("one directory: {:.0} listed a second while changing", report.listed_changing_per_s));
    let begun = Instant::now();
    in_parallel(files, |n| Ok(fs::remove_file(path(n))?))?;
    report.removed_per_s = f64::from(files) / begun.elapsed().as_secs_f64();
    fs::remove_dir(&dir).context("the directory should be empty")?;
    say(&format!("one directory: {:.0} removed a second", report.removed_per_s));
    Ok(())
}

/// Names that nobody touches are in each listing exactly once, whatever happens to their neighbours.
fn list_while_changing(dir: &Path, files: u32, report: &mut Report) -> Result<()> {
    let done = AtomicBool::new(false);
    let changes = AtomicU64::new(0);
    let churn = |thread: u32| -> Result<()> {
        let mut n = 0_u32;
        while !done.load(Ordering::Relaxed) {
            let (one, two) = (dir.join(format!("new-{thread}-{n}")), dir.join(format!("moved-{thread}-{n}")));
            fs::File::create_new(&one)?;
            fs::rename(&one, &two)?;
            if n >= 20 {
                fs::remove_file(dir.join(format!("moved-{thread}-{}", n - 20)))?;
            }
            n += 1;
            changes.fetch_add(3, Ordering::Relaxed);
        }
        (n.saturating_sub(20)..n)
            .try_for_each(|n| Ok(fs::remove_file(dir.join(format!("moved-{thread}-{n}")))?))
    };
    let outcome: Result<()> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|t| scope.spawn(move || churn(t))).collect();
        let listings = (0..LISTINGS).try_for_each(|_| {
            let begun = Instant::now();
            let names = listed(dir)?;
            report.listed_changing_per_s = f64::from(files) / begun.elapsed().as_secs_f64();
            for n in 0..files {
                ensure!(names.contains(&format!("name-{n}")), "name-{n} was not listed");
            }
            Ok(())
        });
        done.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("no thread panics")?;
        }
        listings
    });
    outcome?;
    ensure!(changes.load(Ordering::Relaxed) > 0, "nothing was changed meanwhile");
    let names = listed(dir)?;
    ensure!(names.len() == files as usize, "{} of {files} names are left", names.len());
    Ok(())
}

fn listed(dir: &Path) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().into_string().map_err(|name| anyhow::anyhow!("a name {name:?}"))?;
        ensure!(!names.contains(&name), "{name} was listed twice");
        names.insert(name);
    }
    Ok(names)
}

fn count_many(top: &Path, dirs: u32) -> Result<()> {
    in_parallel(dirs, |at| {
        let names = listed(&top.join(format!("d{at}")))?;
        ensure!(names.len() == PER_DIR as usize, "d{at} has {} names", names.len());
        for name in names {
            let len = fs::symlink_metadata(top.join(format!("d{at}")).join(name))?.len();
            ensure!(len == 1, "a file in d{at} has {len} bytes");
        }
        Ok(())
    })
}

/// Does `each` for all numbers below `count`, on several threads.
fn in_parallel(count: u32, each: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
    let each = &each;
    std::thread::scope(|scope| {
        let part = |thread: u32| (thread..count).step_by(THREADS as usize).try_for_each(each);
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || part(t))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

/// The kernel drops all names and attributes that nobody uses, and says so to the daemon.
fn drop_caches() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", b"2").context("the kernel's caches cannot be dropped")
}

/// Bytes of memory, when they no longer become less.
fn settled(daemon: &Daemon) -> Result<u64> {
    let until = Instant::now() + FORGET;
    let mut last = daemon.memory_bytes()?;
    loop {
        std::thread::sleep(Duration::from_secs(3));
        let now = daemon.memory_bytes()?;
        if now >= last || Instant::now() > until {
            return Ok(now);
        }
        last = now;
    }
}
