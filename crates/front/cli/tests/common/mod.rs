//! Runs the built `atoll` for tests: daemons and mounts that go away with the test, however it ends.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod packages;
pub mod relay;
pub mod sites;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub use atoll_needs::free_port;

/// How long anything may take that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A command of the built program.
pub fn atoll<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.args(arguments);
    note_members(&command);
    command.stdin(Stdio::null()).env_remove("JOURNAL_STREAM");
    command
}

thread_local! {
    /// The members of the unions that the test of this thread has made.
    static UNIONS: RefCell<Vec<Vec<PathBuf>>> = const { RefCell::new(Vec::new()) };
}

/// If a command makes a union of directories, their places, for the end of the test.
fn note_members(command: &Command) {
    let mut words = command.get_args().map(OsStr::to_string_lossy);
    if words.next().is_some_and(|word| word == "union") {
        let paths = words.take_while(|word| word.starts_with('/'));
        let path =
            |word: std::borrow::Cow<'_, str>| PathBuf::from(word.split(':').next().unwrap_or_default());
        let mut members: Vec<PathBuf> = paths.map(path).collect();
        members.pop(); // The mount point.
        UNIONS.with_borrow_mut(|unions| unions.push(members));
    }
}

/// Runs a command of the program to its end.
pub fn run<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Output {
    atoll(arguments).output().expect("the program can be run")
}

/// The same; it must succeed. What it printed.
pub fn good<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).expect("it prints text")
}

/// The same; it must fail with a message of three lines at most. The message.
pub fn bad<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> String {
    let started = Instant::now();
    let output = run(arguments);
    let said = String::from_utf8(output.stderr).expect("it says it in text");
    assert!(!output.status.success(), "it should have failed: {}", String::from_utf8_lossy(&output.stdout));
    assert!(said.starts_with("atoll: ") && said.lines().count() <= 3, "not three lines: {said}");
    assert!(started.elapsed() < Duration::from_secs(30), "it took {:?}: {said}", started.elapsed());
    said
}

/// A directory for one test, with everything that is mounted in it taken away at the end.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("atoll-cli-").tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new directory.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A member that is a FUSE mount itself may hang.
        let can_hang = |member: &&PathBuf| {
            let is_near = |point: &PathBuf| point.starts_with(member) || member.starts_with(point);
            fuse_mounts_below(self.0.path()).iter().any(is_near) || !member.is_dir()
        };
        let left = UNIONS.with_borrow_mut(|unions| {
            let mine = unions.extract_if(.., |members| members.iter().all(|m| m.starts_with(self.0.path())));
            let left = mine.map(|members| {
                let members: Vec<&PathBuf> = members.iter().filter(|member| !can_hang(member)).collect();
                atoll_needs::left_in(&members)
            });
            left.collect::<Vec<_>>()
        });
        for point in mounts_below(self.0.path()) {
            let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::FORCE;
            let _ = rustix::mount::unmount(&point, flags);
        }
        if !std::thread::panicking() {
            left.into_iter().for_each(|left| assert_eq!(left.unwrap(), Vec::<String>::new(), "autonomy"));
        }
    }
}

/// Runs a script in a mount namespace of its own, in which mount(8) finds the built program.
pub fn script(scratch: &Scratch, lines: &str) -> String {
    let helpers = scratch.dir("helpers");
    for name in ["mount.atoll", "mount.fuse.atoll"] {
        let helper = helpers.join(name);
        if !helper.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_atoll"), &helper).unwrap();
        }
    }
    let lines = format!("set -eu\nmount --bind {} /usr/sbin\n{lines}", text(&helpers));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-c", &lines]);
    let output = command.output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}", output.status);
    said
}

/// What is mounted below a path, the innermost first.
pub fn mounts_below(path: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut found: Vec<PathBuf> = points.filter(|p| p.starts_with(path)).collect();
    found.reverse();
    found
}

/// Those of them that are FUSE mounts.
fn fuse_mounts_below(path: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let fuse = table.lines().filter(|line| line.contains(" - fuse"));
    let points = fuse.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(path)).collect()
}

/// Takes away a mount whose process is gone.
pub fn detach(point: &Path) {
    let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
}

pub fn is_mounted(path: &Path) -> bool {
    mounts_below(path).iter().any(|p| p == path)
}

/// A daemon in the foreground.
pub struct Daemon {
    child: Child,
    lines: Receiver<String>,
    /// What it has printed until it was ready.
    pub said: Vec<String>,
}

impl Daemon {
    /// Starts one, and waits until it prints a line that begins with `last`.
    pub fn start<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>, last: &str) -> Self {
        Self::start_with(arguments, last, Stdio::inherit())
    }

    /// The same, with somewhere for its standard error.
    pub fn start_with<I: AsRef<OsStr>>(
        arguments: impl IntoIterator<Item = I>,
        last: &str,
        errors: Stdio,
    ) -> Self {
        Self::run(atoll(arguments), last, errors)
    }

    /// The same of a command.
    pub fn run(mut command: Command, last: &str, errors: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let mut daemon = Self { child, lines, said: Vec::new() };
        loop {
            let line = daemon.lines.recv_timeout(PATIENCE).expect("it ends, or takes too long to start");
            let is_last = line.starts_with(last);
            daemon.said.push(line);
            if is_last {
                return daemon;
            }
        }
    }

    /// `atoll up`, with a volume of so many islands.
    pub fn up(data: &Path, mount: &Path, islands: u16) -> Self {
        let islands = islands.to_string();
        let arguments = ["up", "--data", text(data), "--mount", text(mount), "--islands", islands.as_str()];
        Self::start(arguments, "stop")
    }

    /// The rest of a line that it printed.
    pub fn told(&self, word: &str) -> &str {
        let line = self.said.iter().find_map(|line| line.strip_prefix(word));
        line.unwrap_or_else(|| panic!("it did not say {word}: {:?}", self.said)).trim()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processes that it has begun, and that it has not seen the end of: for a node, the one that serves.
    pub fn children(&self) -> Vec<u32> {
        let pid = self.pid();
        let all = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Waits for a line that begins with `word`, behind those that were read.
    pub fn says(&self, word: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("it ends, or takes too long");
            if line.starts_with(word) {
                return line;
            }
        }
    }

    /// As Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(rustix::process::Signal::INT);
    }

    /// It is there and does nothing, as on a machine that hangs.
    pub fn freeze(&self) {
        // Its parent first, which would notice otherwise.
        for pid in std::iter::once(self.pid()).chain(self.children()) {
            signal(pid, rustix::process::Signal::STOP);
            // A thread that is just running goes on for a moment, and answers.
            eventually("all its threads stand still", || {
                let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
                tasks.flatten().all(|task| {
                    let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
                })
            });
        }
    }

    /// It goes on.
    pub fn thaw(&self) {
        for pid in self.children().into_iter().chain([self.pid()]) {
            signal(pid, rustix::process::Signal::CONT);
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        self::signal(self.pid(), signal);
    }

    /// Waits for its end; whether it ended well.
    pub fn wait(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(Instant::now() < until, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// As a crash of the process, and of those that it has begun.
    pub fn kill(&mut self) {
        let children = self.children();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // The kernel has killed these. What a test does next to their files must not meet their last writes.
        eventually("its children are gone", || !children.iter().any(|child| is_alive(*child)));
    }

    /// Stops it in order.
    pub fn stop(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert!(self.wait(), "the daemon did not end well");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Whether a process is there that has not ended.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A mount in the background: its process ends with the mount.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// `atoll mount SOURCE POINT -o OPTIONS`.
    pub fn new(source: &str, point: PathBuf, options: &str) -> Self {
        good(["mount", source, text(&point), "-o", options]);
        Self(point)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::FORCE;
        let _ = rustix::mount::unmount(&self.0, flags);
    }
}

/// Nodes of one volume, each a process.
pub struct Cluster {
    // Before the directory: a daemon whose files go away complains.
    pub nodes: Vec<Option<Daemon>>,
    pub addresses: Vec<String>,
    /// Nodes that are started with a library before all others (`LD_PRELOAD`).
    pub preloads: BTreeMap<usize, PathBuf>,
    pub scratch: Scratch,
}

impl Cluster {
    /// So many nodes, and a volume `home` with one island on each.
    pub fn new(nodes: usize) -> Self {
        let cluster = Self::bare(nodes);
        good(["volume", "create", "home", "--nodes", cluster.addresses.join(",").as_str()]);
        cluster
    }

    /// So many nodes without a volume.
    pub fn bare(nodes: usize) -> Self {
        let scratch = Scratch::new();
        let (nodes_of, addresses, preloads) = Default::default();
        let mut cluster = Self { nodes: nodes_of, addresses, preloads, scratch };
        for at in 0..nodes {
            cluster.nodes.push(None);
            cluster.addresses.push(format!("127.0.0.1:{}", free_port()));
            cluster.start(at);
        }
        cluster
    }

    /// So many nodes, and a volume `home` with so many copies of each island. If there are more nodes than copies, the first one has
    /// the control store, and no copies.
    pub fn with_copies(nodes: usize, copies: usize) -> Self {
        let cluster = Self::bare(nodes);
        let (addresses, replicas) = (cluster.addresses.join(","), copies.to_string());
        let made = good(["volume", "create", "home", "--nodes", &addresses, "--replicas", &replicas]);
        assert!(made.contains(&format!("{copies} copies of each")), "{made}");
        cluster
    }

    pub fn data(&self, node: usize) -> PathBuf {
        self.scratch.path(&format!("data{node}"))
    }

    pub fn start(&mut self, node: usize) {
        let data = self.data(node);
        let mut command = atoll(["serve", "--data", text(&data), "--listen", &self.addresses[node]]);
        command.envs(self.preloads.get(&node).map(|library| ("LD_PRELOAD", library)));
        self.nodes[node] = Some(Daemon::run(command, "volumes", Stdio::inherit()));
    }

    pub fn kill(&mut self, node: usize) {
        self.nodes[node].take().expect("it runs").kill();
    }

    pub fn freeze(&self, node: usize) {
        self.nodes[node].as_ref().expect("it runs").freeze();
    }

    pub fn thaw(&self, node: usize) {
        self.nodes[node].as_ref().expect("it runs").thaw();
    }

    /// Which node owns a directory of a mount.
    pub fn owner(&self, dir: &Path) -> usize {
        let told: serde_json::Value = serde_json::from_str(&good(["explain", text(dir), "--json"])).unwrap();
        told["node"].as_u64().expect("every directory has an owner") as usize
    }

    /// Makes directories in a mount, each with a file, until every node owns one; by node.
    pub fn dirs(&self, mount: &Mounted) -> Vec<PathBuf> {
        let mut found = vec![None; self.nodes.len()];
        for n in 0.. {
            let dir = mount.path(&format!("dir{n}"));
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("file"), b"content").unwrap();
            found[self.owner(&dir)].get_or_insert(dir);
            if let Some(all) = found.iter().cloned().collect() {
                return all;
            }
        }
        unreachable!("the last node owns something some time")
    }

    /// What `atoll status` says of the copies that lead, each with its node.
    pub fn leading(&self) -> Vec<(u64, serde_json::Value)> {
        let told = good(["status", &self.addresses[0], "--json"]);
        let status: serde_json::Value = serde_json::from_str(&told).unwrap();
        let all = |value: &serde_json::Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let volumes = all(&status, "processes").into_iter().flat_map(|process| all(&process, "volumes"));
        let islands = volumes.flat_map(|volume| {
            let node = volume["node"].as_u64().unwrap();
            all(&volume, "islands").into_iter().map(move |island| (node, island))
        });
        islands.filter(|(_, island)| island["leads"] == 1).collect()
    }

    /// Whether so many islands are led, and all copies of each are in sync, as those say that lead.
    pub fn in_sync(&self, islands: usize) -> bool {
        let leading = self.leading();
        let is_whole = |island: &serde_json::Value| island["copies_in_sync"] == island["copies_wanted"];
        leading.len() == islands && leading.iter().all(|(_, island)| is_whole(island))
    }

    /// What a mount is made from, with all nodes named.
    pub fn source(&self) -> String {
        format!("{}:/home", self.addresses.join(","))
    }

    pub fn mount(&self, name: &str, options: &str) -> Mounted {
        Mounted::new(&self.source(), self.scratch.dir(name), options)
    }
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("tests have plain paths")
}

/// Tries until it holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "it never came true: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
