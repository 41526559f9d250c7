//! A user without rights makes everything as large as it may be, on a mount of several nodes: extended attributes,
//! names, paths, targets, links, locks, and open files without names. Then the mount is killed while it holds all of
//! that. Nothing may fail before, no node may stop, and `atoll check` is clean in the end.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, XattrFlags};

use crate::cluster::Cluster;

/// Nobody's.
const UID: u32 = 65_534;
/// How long a session lasts whose mount was killed, and somewhat more.
const GONE: Duration = Duration::from_secs(20);
/// Seconds after which the user's process is ended.
const LIFE_S: &str = "1200";
const NAME_BYTES: usize = 255;
const TARGET_BYTES: usize = 4095;
/// File descriptors that a process needs for itself.
const OWN_FILES: u64 = 64;

/// How large it gets.
#[derive(Debug, Clone, Copy, Args)]
pub struct Sizes {
    /// Directories below each other, each with four extended attributes of 60,000 bytes
    #[arg(long)]
    pub with_xattrs: usize,
    /// Directories below each other
    #[arg(long)]
    pub levels: usize,
    /// Longest names in one directory
    #[arg(long)]
    pub names: usize,
    /// Symbolic links with longest targets
    #[arg(long)]
    pub targets: usize,
    /// Names of one file
    #[arg(long)]
    pub links: usize,
    /// Files that are locked
    #[arg(long)]
    pub locks: usize,
    /// Files that are open and have no name
    #[arg(long)]
    pub open: usize,
}

impl Sizes {
    /// As much as there may be.
    pub const LONG: Self = Self {
        with_xattrs: 12,
        levels: 1_000,
        names: 5_000,
        targets: 2_000,
        links: 60_000,
        locks: 8_192,
        open: 45_000,
    };
    /// As in the tests.
    pub const SHORT: Self =
        Self { with_xattrs: 12, levels: 100, names: 300, targets: 300, links: 500, locks: 300, open: 4_000 };

    fn words(&self) -> Vec<String> {
        let Self { with_xattrs, levels, names, targets, links, locks, open } = self;
        let all = [
            ("--with-xattrs", with_xattrs),
            ("--levels", levels),
            ("--names", names),
            ("--targets", targets),
            ("--links", links),
            ("--locks", locks),
            ("--open", open),
        ];
        all.into_iter().flat_map(|(word, count)| [word.to_owned(), count.to_string()]).collect()
    }
}

/// What to do.
#[derive(Debug)]
pub struct Large {
    /// At least so long; one round at least.
    pub time: Duration,
    /// How large.
    pub sizes: Sizes,
    /// The program that has the command `large-user`. It and its folders can be read by everyone.
    pub program: PathBuf,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Report {
    /// Rounds, each of which ended with a mount that was killed.
    pub rounds: u32,
    /// What they took.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rounds, each with a killed mount, in {:.0} s", self.rounds, self.took.as_secs_f64())
    }
}

/// A copy of the program in a folder that everyone may enter, as this user may not be let in elsewhere.
pub fn for_everyone(program: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join("user");
    std::fs::copy(program, &copy)?;
    for path in [folder, copy.as_path()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755))?;
    }
    Ok(copy)
}

/// Runs it over a cluster with two mounts.
pub fn run(what: &Large, cluster: &mut Cluster, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let (mut report, began) = (Report::default(), Instant::now());
    while report.rounds == 0 || began.elapsed() < what.time {
        let mounts = cluster.mounts();
        let number = report.rounds as usize % mounts.len();
        let dir = mounts[number].join(format!("round-{}", report.rounds));
        std::fs::create_dir(&dir)?;
        std::os::unix::fs::chown(&dir, Some(UID), Some(UID))?;
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755))?;
        let mut user = User::start(what, &dir)?;
        user.wait_ready().with_context(|| format!("round {}", report.rounds))?;
        cluster.alive()?;
        say(&format!(
            "round {}: the mount is killed after {:.0} s",
            report.rounds,
            began.elapsed().as_secs_f64()
        ));
        cluster.kill9_mount(number)?;
        user.end()?;
        cluster.mount_again(number, "rw")?;
        std::thread::sleep(GONE);
        cluster.alive()?;
        // Over the other mount, which has to find it all.
        let other = &mounts[(number + 1) % mounts.len()];
        let dir = other.join(format!("round-{}", report.rounds));
        remove(&dir).with_context(|| format!("removing round {}", report.rounds))?;
        cluster.alive()?;
        report.rounds += 1;
    }
    report.took = began.elapsed();
    Ok(report)
}

/// Removes a tree of any depth.
fn remove(dir: &Path) -> Result<()> {
    let status = Command::new("rm").arg("-rf").arg(dir).status()?;
    ensure!(status.success() && !dir.exists(), "rm -rf {}: {status}", dir.display());
    Ok(())
}

/// The process of the user.
struct User {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl User {
    fn start(what: &Large, dir: &Path) -> Result<Self> {
        // Ended by force if it hangs, and by the end of its input otherwise.
        let mut command = Command::new("timeout");
        command
            .args(["-s", "KILL", LIFE_S])
            .arg(&what.program)
            .arg("large-user")
            .arg(dir)
            .args(what.sizes.words());
        command.uid(UID).gid(UID).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| what.program.display().to_string())?;
        let said = BufReader::new(child.stdout.take().context("it was piped")?);
        Ok(Self { child, said })
    }

    fn wait_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        if line.trim() != "ready" {
            let status = self.child.wait()?;
            bail!("the user could not do all of it: {status} {line}");
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        // Which closes its input.
        self.child.wait()?;
        Ok(())
    }
}

/// What the user does, in a directory of its own: says `ready` when all is done, and then holds what it has until it
/// is killed or its input ends.
pub fn user(dir: &Path, sizes: &Sizes) -> Result<()> {
    with_xattrs(dir, sizes.with_xattrs).context("directories with extended attributes")?;
    let deep = levels(dir, sizes.levels).context("directories below each other")?;
    names(dir, sizes.names).context("long names")?;
    targets(dir, sizes.targets).context("long targets")?;
    links(dir, sizes.links).context("names of one file")?;
    let locked = locks(dir, sizes.locks).context("locks")?;
    let open = open(dir, sizes.open).context("open files without names")?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop((deep, locked, open));
    Ok(())
}

fn long_name(n: usize) -> String {
    format!("{n:0>NAME_BYTES$}")
}

fn enter(at: &OwnedFd, name: &str) -> Result<OwnedFd> {
    rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755)).with_context(|| format!("mkdir {name:.20}"))?;
    Ok(rustix::fs::openat(at, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn with_xattrs(dir: &Path, count: usize) -> Result<()> {
    let mut at: OwnedFd = File::open(dir)?.into();
    let top = rustix::io::dup(&at)?;
    for n in 0..count {
        at = enter(&at, &format!("xattrs-{n}"))?;
        for value in 0..4u8 {
            let name = format!("user.large-{value}");
            rustix::fs::fsetxattr(&at, name.as_str(), &[value; 60_000], XattrFlags::empty())
                .with_context(|| format!("{name} at level {n}"))?;
        }
    }
    enter(&at, "last")?;
    rustix::fs::renameat(&top, "xattrs-0", &top, "xattrs-renamed")?;
    let mut value = vec![0; 65_536];
    let got = rustix::fs::fgetxattr(&at, "user.large-3", &mut value)?;
    ensure!(value[..got] == [3; 60_000], "another value came back");
    Ok(())
}

fn levels(dir: &Path, count: usize) -> Result<OwnedFd> {
    let mut at: OwnedFd = File::open(dir)?.into();
    for n in 0..count {
        at = enter(&at, &format!("level-{n}"))?;
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(&at, "file", flags, Mode::from_raw_mode(0o644))?;
    Ok(at)
}

fn names(dir: &Path, count: usize) -> Result<()> {
    let dir = dir.join("names");
    std::fs::create_dir(&dir)?;
    for n in 0..count {
        std::fs::write(dir.join(long_name(n)), b"x")?;
    }
    let found = dir.read_dir()?.collect::<std::io::Result<Vec<_>>>()?.len();
    ensure!(found == count, "{found} of {count} names are listed");
    Ok(())
}

fn targets(dir: &Path, count: usize) -> Result<()> {
    let dir = dir.join("targets");
    std::fs::create_dir(&dir)?;
    let here = OsString::from("./".repeat(TARGET_BYTES / 2));
    let nowhere = OsString::from("x".repeat(TARGET_BYTES));
    for n in 0..count {
        let target = if n.is_multiple_of(2) { &here } else { &nowhere };
        std::os::unix::fs::symlink(target, dir.join(format!("s{n}")))?;
    }
    for entry in dir.read_dir()? {
        let bytes = std::fs::read_link(entry?.path())?.as_os_str().len();
        ensure!(bytes + 1 >= TARGET_BYTES, "a target of {bytes} bytes");
    }
    Ok(())
}

fn links(dir: &Path, count: usize) -> Result<()> {
    let (dir, other) = (dir.join("links"), dir.join("links-too"));
    std::fs::create_dir(&dir)?;
    std::fs::create_dir(&other)?;
    let file = dir.join("l0");
    std::fs::write(&file, b"x")?;
    for n in 1..count {
        let dir = if n % 20 == 19 { &other } else { &dir };
        std::fs::hard_link(&file, dir.join(format!("l{n}"))).with_context(|| format!("link {n}"))?;
    }
    let links = std::fs::metadata(&file)?.nlink() as usize;
    ensure!(links == count.max(1), "{links} of {count} names are counted");
    Ok(())
}

fn locks(dir: &Path, count: usize) -> Result<Vec<File>> {
    let dir = dir.join("locks");
    std::fs::create_dir(&dir)?;
    let mut held = Vec::new();
    for n in 0..count.min(may_open()?) {
        let file = File::create(dir.join(format!("f{n}")))?;
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("lock {n}"))?;
        held.push(file);
    }
    Ok(held)
}

fn open(dir: &Path, count: usize) -> Result<Vec<File>> {
    let top = File::open(dir)?;
    let mut held = Vec::new();
    for n in 0..count.min(may_open()?) {
        let name = format!("open-{n}");
        held.push(File::create(dir.join(&name)).with_context(|| format!("file {n}"))?);
        rustix::fs::unlinkat(&top, &name, AtFlags::empty())?;
    }
    Ok(held)
}

/// How many more files this process may open.
fn may_open() -> Result<usize> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    let open = std::fs::read_dir("/proc/self/fd")?.count() as u64;
    let most = limit.maximum.unwrap_or(u64::from(u32::MAX));
    Ok(usize::try_from(most.saturating_sub(open + OWN_FILES))?)
}
