//! Several nodes over TCP on this machine and mounts of their volume, each a process of its own: killed,
//! started again, stopped; each in a network of its own, if ways are to be cut. Whatever becomes of a test, all of
//! it ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_model::Rng;
use atoll_needs::free_port;
use rustix::io::Errno;

use crate::daemon::{Daemon, Launch, Mount, atoll, binary, detach};
use crate::network::Network;
use crate::place::{self, DiskKind, SmallDisk};
use crate::process::{LIFE_MAX, PATIENCE, Process};
use crate::tree::{Detail, Tree, list};

/// The volume's name.
const VOLUME: &str = "torture";

/// The port of nodes that have a network.
const PORT: u16 = 7100;

/// Plain trees that have not changed for so long change no more.
const STILL: Duration = Duration::from_secs(4);
/// How long that is waited for at most.
const STILL_MAX: Duration = Duration::from_secs(60);
/// How often nodes are started and stopped anew, because a copy had a record that the one that leads next had not. It was told
/// to nobody, so it is cut off, but until then the two copies cannot be compared.
const RESTS_MAX: u32 = 3;
/// What `atoll check` says of such a copy ends so.
const CUT_OFF: &str = "which are cut off when it starts";
/// Pauses between kills, and between a kill and the start, in milliseconds.
const LIFE_MS: (u64, u64) = (800, 3500);
const DEATH_MS_MAX: u64 = 1200;

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Nodes, with one island each.
    pub nodes: usize,
    /// Mounts.
    pub mounts: usize,
    /// Nodes will be killed, and the mounts wait for them.
    pub kill: bool,
}

impl Shape {
    /// Options of the mounts, as after `-o`.
    fn options(&self) -> &'static str {
        if self.kill { "hard" } else { "rw" }
    }
}

/// Nodes that run, and mounts. Killed and unmounted when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    // First, so that they go before the nodes that they wait for.
    mounts: Vec<Mount>,
    nodes: Vec<Option<Process>>,
    addresses: Vec<String>,
    /// Hosts are the nodes, then the mounts.
    network: Option<Network>,
    /// How many copies of each island there are.
    replicas: usize,
    top: PathBuf,
    // Last, so that nobody uses them any more.
    disks: Vec<SmallDisk>,
}

/// What a node says of a copy of an island that it keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyStatus {
    /// The island.
    pub island: u64,
    /// The epoch of its group, as far as this node knows.
    pub epoch: u64,
    /// Whether this copy leads.
    pub leads: bool,
    /// Copies that are in sync, as far as this node knows.
    pub in_sync: u64,
    /// Copies that there should be.
    pub wanted: u64,
    /// Why the copy has halted, if it has.
    pub halted: Option<String>,
}

/// What a node says of the copies that are filled there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillStatus {
    /// The share that is done.
    pub done_permille: u64,
    /// How long it takes, as the node says; none if it cannot say it yet.
    pub left_ms: Option<u64>,
}

impl Cluster {
    /// Starts the nodes with a new volume, and mounts it, everything in the folder `top`.
    pub fn start(top: &Path, shape: &Shape) -> Result<Self> {
        let addresses = (0..shape.nodes).map(|_| format!("127.0.0.1:{}", free_port()));
        let mut cluster = Self::found(top, addresses.collect(), None)?;
        for _ in 0..shape.mounts {
            cluster.mount(shape.options())?;
        }
        Ok(cluster)
    }

    /// The same in a network, with these options for each mount.
    pub fn start_apart(top: &Path, nodes: usize, options: &[&str]) -> Result<Self> {
        let network = Network::new(nodes + options.len())?;
        let addresses = (0..nodes).map(|node| format!("{}:{PORT}", network.address(node))).collect();
        let mut cluster = Self::found(top, addresses, Some(network))?;
        options.iter().try_for_each(|options| cluster.mount(options))?;
        Ok(cluster)
    }

    /// Nodes with a new volume.
    fn found(top: &Path, addresses: Vec<String>, network: Option<Network>) -> Result<Self> {
        let mut cluster = Self::bare(top, addresses, network, Vec::new());
        cluster.create(1)?;
        Ok(cluster)
    }

    fn bare(top: &Path, addresses: Vec<String>, network: Option<Network>, disks: Vec<SmallDisk>) -> Self {
        let nodes = addresses.iter().map(|_| None).collect();
        Self { mounts: Vec::new(), nodes, addresses, network, replicas: 1, top: top.to_owned(), disks }
    }

    /// Starts all nodes, and makes the volume.
    fn create(&mut self, replicas: usize) -> Result<()> {
        (0..self.nodes()).try_for_each(|node| self.start_node(node))?;
        let mut create = self.command(None);
        create.args(["volume", "create", VOLUME, "--nodes", &self.addresses.join(",")]);
        if replicas > 1 {
            create.args(["--replicas", &replicas.to_string()]);
        }
        self.replicas = replicas;
        place::run(&mut create).map(drop)
    }

    /// A network of nodes with so many copies of each island, each node with a disk of its own of so many MiB, if that is
    /// not 0. The first node has the control store, and no copies.
    pub fn start_with_copies(
        top: &Path,
        nodes: usize,
        replicas: usize,
        disk_mib: u64,
        options: &[&str],
    ) -> Result<Self> {
        ensure!(replicas > 1 && nodes > replicas, "several copies, and more nodes than copies");
        let network = Network::new(nodes + options.len())?;
        let addresses = (0..nodes).map(|node| format!("{}:{PORT}", network.address(node))).collect();
        let disks = match disk_mib {
            0 => Vec::new(),
            mib => (0..nodes)
                .map(|node| SmallDisk::new(DiskKind::Ext4, mib, &top.join(format!("disk-{node}"))))
                .collect::<Result<_>>()?,
        };
        let mut cluster = Self::bare(top, addresses, Some(network), disks);
        cluster.create(replicas)?;
        options.iter().try_for_each(|options| cluster.mount(options))?;
        Ok(cluster)
    }

    /// The disk of a node.
    pub fn disk(&mut self, node: usize) -> Result<&mut SmallDisk> {
        self.disks.get_mut(node).context("the nodes have no disks of their own")
    }

    fn status(&self) -> Result<serde_json::Value> {
        let mut status = self.command(None);
        let told = place::run(status.args(["status", &self.addresses[0], "--json"]))?;
        Ok(serde_json::from_str(&told)?)
    }

    /// How far the node is that fills copies, if one does.
    pub fn filling(&self) -> Result<Option<FillStatus>> {
        let told = self.status()?;
        let mut processes = told["processes"].as_array().into_iter().flatten();
        let filling = processes.find_map(|process| process["filling"].as_object());
        Ok(filling.map(|filling| FillStatus {
            done_permille: filling["done_permille"].as_u64().unwrap_or(0),
            left_ms: filling["left_ms"].as_u64(),
        }))
    }

    /// What all nodes say of the copies that they keep, with their numbers. They must run.
    pub fn copies(&self) -> Result<Vec<(usize, CopyStatus)>> {
        let told = self.status()?;
        let list = |of: &serde_json::Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
        let mut all = Vec::new();
        for volume in list(&told, "processes").iter().flat_map(|process| list(process, "volumes")) {
            let Some(node) = volume["node"].as_u64() else { continue };
            for told in list(&volume, "islands") {
                let number = |name: &str| told[name].as_u64().unwrap_or(0);
                let copy = CopyStatus {
                    island: number("island"),
                    epoch: number("epoch"),
                    leads: number("leads") == 1,
                    in_sync: number("copies_in_sync"),
                    wanted: number("copies_wanted"),
                    halted: told["halted"].as_str().map(str::to_owned),
                };
                all.push((node as usize, copy));
            }
        }
        Ok(all)
    }

    /// What is not in sync of these copies: nothing, when each island has one that leads and all of them are in sync.
    pub fn not_in_sync(&self, all: &[(usize, CopyStatus)]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut islands: BTreeMap<u64, Vec<&(usize, CopyStatus)>> = BTreeMap::new();
        all.iter().for_each(|copy| islands.entry(copy.1.island).or_default().push(copy));
        // Each node leads one at first, but for that of the control store.
        if islands.len() + 1 < self.nodes() {
            wrong.push(format!("only {} islands are known", islands.len()));
        }
        for (island, copies) in islands {
            let leaders: Vec<_> = copies.iter().filter(|(_, copy)| copy.leads).collect();
            let (count, replicas) = (copies.len(), self.replicas);
            let is_right = leaders.len() == 1 && leaders[0].1.in_sync == replicas as u64;
            if !is_right || count != replicas || copies.iter().any(|(_, copy)| copy.halted.is_some()) {
                wrong.push(format!("island {island}: {copies:?}"));
            }
        }
        wrong
    }

    /// Waits until all copies are in sync, if there are any. Without copies it waits until all nodes answer.
    pub fn wait_in_sync(&self, time_max: Duration) -> Result<()> {
        let until = Instant::now() + time_max;
        loop {
            let wrong = match self.copies() {
                Ok(_) if self.replicas == 1 => return Ok(()),
                Ok(all) => self.not_in_sync(&all),
                Err(why) => vec![format!("{why:#}")],
            };
            if wrong.is_empty() {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "not in sync after {} s: {}",
                time_max.as_secs(),
                wrong.join("\n")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// An `atoll` at a host, or beside all of them.
    fn command(&self, host: Option<usize>) -> Command {
        self.network.as_ref().map_or_else(|| Command::new(binary()), |net| net.command(host, binary()))
    }

    /// Its ways.
    pub fn network(&self) -> Result<&Network> {
        self.network.as_ref().context("it has no network of its own")
    }

    /// One more mount, with these options.
    pub fn mount(&mut self, options: &str) -> Result<()> {
        let mount = self.mount_of(self.mounts.len(), options)?;
        self.mounts.push(mount);
        Ok(())
    }

    fn mount_of(&self, number: usize, options: &str) -> Result<Mount> {
        let point = self.top.join(format!("mnt-{number}"));
        std::fs::create_dir_all(&point)?;
        let mut command = self.command(Some(self.nodes() + number));
        command.arg("mount").arg(format!("{}:/{VOLUME}", self.addresses.join(","))).arg(&point);
        command.args(["--foreground", "-o", options]);
        let process = Process::spawn(&mut command, self.top.join(format!("mnt-{number}.log")), LIFE_MAX)?;
        let mut mount = Mount { point, process };
        mount.wait_mounted(PATIENCE).context("a mount")?;
        Ok(mount)
    }

    /// `kill -9` of a mount, which must not have ended by itself. What it had open gives errors from then on.
    pub fn kill9_mount(&mut self, number: usize) -> Result<()> {
        let mount = self.mounts.get_mut(number).context("there is no such mount")?;
        ensure!(mount.process.kill9()?, "a mount ended by itself. It said:\n{}", mount.process.said());
        detach(&mount.point);
        Ok(())
    }

    /// Mounts again at the place of one that was killed.
    pub fn mount_again(&mut self, number: usize, options: &str) -> Result<()> {
        // First, since it takes away what is mounted there.
        drop(self.mounts.remove(number));
        let mount = self.mount_of(number, options)?;
        self.mounts.insert(number, mount);
        Ok(())
    }

    /// Starts a node that does not run, and waits until it listens.
    pub fn start_node(&mut self, node: usize) -> Result<()> {
        self.spawn_node(node)?;
        self.wait_node(node)
    }

    /// Starts a node that does not run, and waits for nothing.
    pub fn spawn_node(&mut self, node: usize) -> Result<()> {
        let mut command = self.command(Some(node));
        command.arg("serve").arg("--data").arg(self.data(node)).args(["--listen", &self.addresses[node]]);
        // A restart must not write over what was said before a death that nobody wished for.
        let log =
            (0..).map(|life| self.top.join(format!("node-{node}.{life}.log"))).find(|log| !log.exists());
        self.nodes[node] = Some(Process::spawn(&mut command, log.context("no name for a log")?, LIFE_MAX)?);
        Ok(())
    }

    /// Whether a node runs and listens.
    pub fn is_ready(&self, node: usize) -> bool {
        self.nodes[node].as_ref().is_some_and(listens)
    }

    /// Waits until a node listens.
    pub fn wait_node(&mut self, node: usize) -> Result<()> {
        let process = self.nodes[node].as_mut().context("it does not run")?;
        process.wait_until("it listens", PATIENCE, listens).with_context(|| format!("node {node}"))
    }

    /// `kill -9` of a node, which must not have ended by itself.
    pub fn kill9_node(&mut self, node: usize) -> Result<()> {
        let mut process = self.nodes[node].take().context("it does not run")?;
        ensure!(process.kill9()?, "node {node} ended by itself. It said:\n{}", process.said());
        Ok(())
    }

    /// `kill -9` of a node's daemon, which its parent starts again at once.
    pub fn kill9_daemon(&mut self, node: usize) -> Result<()> {
        let process = self.nodes[node].as_ref().context("it does not run")?;
        ensure!(process.kill9_child(), "the daemon of node {node} has no parent");
        Ok(())
    }

    /// Stops a node's processes, or lets them go on, as a machine that is silent for a while.
    pub fn freeze_node(&mut self, node: usize, is_frozen: bool) -> Result<()> {
        self.nodes[node].as_ref().context("it does not run")?.freeze(is_frozen);
        Ok(())
    }

    /// After a while of life kills a node, and after a while of death starts it again.
    fn kill_and_start(&mut self, node: usize, rng: &mut Rng) -> Result<()> {
        std::thread::sleep(Duration::from_millis(LIFE_MS.0 + rng.below(LIFE_MS.1 - LIFE_MS.0)));
        self.alive()?;
        self.kill9_node(node)?;
        std::thread::sleep(Duration::from_millis(rng.below(DEATH_MS_MAX)));
        self.start_node(node).context("after a kill")
    }

    /// Does something while nodes are killed in turn and started again; it is told how many were, and `u64::MAX`
    /// if none can be any more. With it how many were killed in the end.
    pub fn while_killing<T>(
        &mut self,
        seed: u64,
        act: impl FnOnce(&dyn Fn() -> u64) -> Result<T>,
    ) -> Result<(T, u64)> {
        let (kills, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| -> Result<()> {
                let mut rng = Rng::new(seed);
                while !stop.load(Ordering::SeqCst) {
                    let node = kills.load(Ordering::SeqCst) as usize % self.nodes();
                    self.kill_and_start(node, &mut rng)?;
                    kills.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            });
            let told = || if killer.is_finished() { u64::MAX } else { kills.load(Ordering::SeqCst) };
            let result = act(&told);
            stop.store(true, Ordering::SeqCst);
            killer.join().expect("the killer does not panic")?;
            Ok((result?, kills.load(Ordering::SeqCst)))
        })
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many nodes and mounts: hosts of its network.
    pub fn hosts(&self) -> usize {
        self.nodes.len() + self.mounts.len()
    }

    /// A node's data directory.
    pub fn data(&self, node: usize) -> PathBuf {
        match self.disks.get(node) {
            Some(disk) => disk.point().join("data"),
            None => self.top.join(format!("data-{node}")),
        }
    }

    /// Folder of each island that a node keeps, by its name.
    pub fn islands(&self, node: usize) -> Result<BTreeMap<String, PathBuf>> {
        let folder = self.data(node).join("islands").join(VOLUME);
        let mut found = BTreeMap::new();
        let entries = match std::fs::read_dir(&folder) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            other => other.with_context(|| folder.display().to_string())?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.join("tree").is_dir() {
                let name = path.file_name().context("it has a name")?.to_string_lossy().into_owned();
                found.insert(name, path);
            }
        }
        Ok(found)
    }

    /// Removes all that a node that does not run keeps of its islands, as if their disk were a new one.
    pub fn wipe_node(&self, node: usize) -> Result<()> {
        self.wipe(node, |_| true)
    }

    /// The same of one island.
    pub fn wipe_copy(&self, node: usize, island: u16) -> Result<()> {
        self.wipe(node, |found| found == island)
    }

    /// Has the copy of an island on a node lead it.
    pub fn move_island(&self, island: u16, node: usize) -> Result<()> {
        let mut command = self.command(None);
        command.args(["island", "move"]).arg(&self.mounts.first().context("there is a mount")?.point);
        place::run(command.args([island.to_string(), node.to_string()])).map(drop)
    }

    /// Puts copies of a node aside. They are not deleted: ext4 is slow to make files where many were just deleted, and a new disk is not.
    fn wipe(&self, node: usize, which: impl Fn(u16) -> bool) -> Result<()> {
        let folder = self.data(node).join("islands").join(VOLUME);
        let mut aside = (0..).map(|n| self.data(node).with_extension(format!("wiped-{n}")));
        let aside = aside.find(|path| !path.exists()).expect("numbers do not end");
        std::fs::create_dir(&aside)?;
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_stem().context("it has a name")?.to_string_lossy().into_owned();
            if !name.parse().is_ok_and(&which) {
                continue;
            }
            // The folder of an island, and the file `seat` beside it.
            std::fs::rename(&path, aside.join(path.file_name().context("it has a name")?))?;
        }
        Ok(())
    }

    /// Where the volume is mounted.
    pub fn mounts(&self) -> Vec<PathBuf> {
        self.mounts.iter().map(|mount| mount.point.clone()).collect()
    }

    /// All processes that should run do.
    pub fn alive(&mut self) -> Result<()> {
        let nodes = self.nodes.iter_mut().flatten();
        for process in self.mounts.iter_mut().map(|mount| &mut mount.process).chain(nodes) {
            let status = process.ended()?;
            ensure!(status.is_none(), "a process ended by itself ({status:?}). It said:\n{}", process.said());
        }
        Ok(())
    }

    fn explain(&self, path: &Path) -> Result<serde_json::Value> {
        let mut explain = self.command(None);
        Ok(serde_json::from_str(&place::run(explain.arg("explain").arg(path).arg("--json"))?)?)
    }

    /// The island that owns a directory.
    pub fn owner(&self, dir: &Path) -> Result<u64> {
        self.explain(dir)?["owner"].as_u64().context("explain names no owner")
    }

    /// Directories in `below`, a folder of a mount, which are made until every node owns one; in the
    /// order of the nodes.
    pub fn spread(&self, below: &Path, name: &str) -> Result<Vec<PathBuf>> {
        const TRIES: usize = 256;
        let mut found = vec![None; self.nodes.len()];
        for at in 0..TRIES {
            let dir = below.join(format!("{name}{at}"));
            std::fs::create_dir(&dir)?;
            let owner = self.explain(&dir)?["node"].as_u64().context("explain names no node")? as usize;
            let place = found.get_mut(owner).with_context(|| format!("there is no node {owner}"))?;
            if place.is_none() {
                *place = Some(dir);
            } else {
                std::fs::remove_dir(&dir)?;
            }
            if let Some(all) = found.iter().cloned().collect() {
                return Ok(all);
            }
        }
        anyhow::bail!("{TRIES} directories do not reach all nodes")
    }

    /// Stops everything in order. The data must be clean then.
    pub fn stop(mut self) -> Result<()> {
        self.rest()
    }

    /// Stops everything in order; the data must be clean then; starts the nodes again, and mounts with these options.
    pub fn check_and_go_on(&mut self, options: &[&str]) -> Result<()> {
        self.rest()?;
        self.go_on(options)
    }

    /// Starts all nodes after a [`Cluster::rest`], and mounts with these options.
    pub fn go_on(&mut self, options: &[&str]) -> Result<()> {
        (0..self.nodes()).try_for_each(|node| self.start_node(node))?;
        options.iter().try_for_each(|options| self.mount(options))
    }

    /// Takes the mounts away, whatever they wait for: whoever called gets an error.
    pub fn abandon_mounts(&mut self) {
        self.mounts.clear();
    }

    /// Waits until no plain tree changes any more. When mounts end, files that they had open follow their names to other islands;
    /// copies that are stopped in between would be stopped at different records. The trees as they are then.
    fn wait_still(&self) -> Result<Vec<Tree>> {
        let trees = || -> Result<Vec<Tree>> {
            let nodes = (0..self.nodes.len()).map(|node| self.islands(node));
            let islands = nodes.collect::<Result<Vec<_>>>()?;
            let look = |at: &PathBuf| list(&at.join("tree"), Detail { bytes: false, atime: false });
            islands.iter().flat_map(|islands| islands.values()).map(|at| Ok(look(at)?)).collect()
        };
        let (begun, mut since) = (Instant::now(), Instant::now());
        let mut last = trees();
        while since.elapsed() < STILL && begun.elapsed() < STILL_MAX {
            std::thread::sleep(Duration::from_millis(500));
            let now = trees();
            // What goes while it is listed is a change too.
            if !matches!((&last, &now), (Ok(last), Ok(now)) if last == now) {
                since = Instant::now();
            }
            last = now;
        }
        last
    }

    /// Stops everything in order. The data must be clean then.
    pub fn rest(&mut self) -> Result<()> {
        for mount in &mut self.mounts {
            mount.stop().context("a mount")?;
        }
        self.mounts.clear();
        let mut trees: Option<Vec<Tree>> = None;
        for _ in 0..RESTS_MAX {
            if self.replicas > 1 {
                let now = self.wait_still().context("the plain trees")?;
                ensure!(
                    trees.is_none_or(|before| before == now),
                    "a tree changed while nodes were stopped and started"
                );
                trees = Some(now);
            }
            self.stop_nodes()?;
            if self.check_data()? {
                return Ok(());
            }
            (0..self.nodes()).try_for_each(|node| self.start_node(node))?;
            self.wait_in_sync(PATIENCE)?;
        }
        anyhow::bail!("{RESTS_MAX} times a copy had records that the other one had not")
    }

    fn stop_nodes(&mut self) -> Result<()> {
        // The one with the control store last, which the others ask when one of them stops.
        for (number, node) in self.nodes.iter_mut().enumerate().rev() {
            if let Some(node) = node {
                node.stop().with_context(|| format!("node {number}"))?;
            }
        }
        self.nodes.fill_with(|| None);
        Ok(())
    }

    /// Whether all copies could be compared. The data is clean.
    fn check_data(&self) -> Result<bool> {
        let all: Vec<_> =
            (0..self.nodes.len()).map(|node| self.data(node).to_string_lossy().into_owned()).collect();
        // The copies of an island are compared.
        for some in all.chunks(if self.replicas > 1 { all.len() } else { 1 }) {
            let mut asked = vec!["check", "--read", "--data"];
            asked.extend(some.iter().map(String::as_str));
            let said = atoll(&asked)?;
            if said.lines().any(|line| line.contains("not compared") && line.ends_with(CUT_OFF)) {
                return Ok(false);
            }
            ensure!(said.contains("nothing wrong") && !said.contains("not compared"), "{some:?}: {said}");
        }
        Ok(true)
    }
}

/// Whether a node has said that it serves.
pub fn listens(process: &Process) -> bool {
    process.said().lines().any(|line| line.starts_with("volumes"))
}

/// An error that says that a node does not answer.
pub(crate) fn is_away(why: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(why), Some(Errno::IO | Errno::TIMEDOUT))
}

/// What programs run over: one process with everything, or a cluster.
#[derive(Debug)]
pub enum Volume {
    /// `atoll up` with four islands and its one mount.
    One(Box<Daemon>),
    /// Nodes over TCP.
    Many(Cluster),
}

impl Volume {
    /// As it is asked for, in the folder `top`; one node is one process with its one mount.
    pub fn start(top: &Path, shape: &Shape) -> Result<Self> {
        if shape.nodes > 1 {
            return Ok(Self::Many(Cluster::start(top, shape)?));
        }
        ensure!(!shape.kill, "nodes are killed in turn: ask for several nodes");
        ensure!(shape.nodes == 1 && shape.mounts == 1, "one node has one mount: ask for several nodes");
        Ok(Self::One(Box::new(Launch::new(top).start()?)))
    }

    /// Where it is mounted.
    pub fn mounts(&self) -> Vec<PathBuf> {
        match self {
            Self::One(daemon) => vec![daemon.mount().to_owned()],
            Self::Many(cluster) => cluster.mounts(),
        }
    }

    /// Stops it in order.
    pub fn stop(self) -> Result<()> {
        match self {
            Self::One(daemon) => daemon.stop(),
            Self::Many(cluster) => cluster.stop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    #[test]
    fn one_node_that_is_to_be_killed_is_refused_before_anything_is_started() {
        let place = Place::new("refused").unwrap();
        let why = Volume::start(place.path(), &Shape { nodes: 1, mounts: 1, kill: true }).unwrap_err();
        assert!(why.to_string().contains("several nodes"), "{why}");
        let mut names: Vec<_> = place.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["data", "mnt"], "a log of a process is there");
    }
}
