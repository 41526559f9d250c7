//! A node's part of one volume.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use atoll_control::GroupStore;
use atoll_core::{IslandId, NodeId, Time, VolumeId};
use atoll_disk::Disk;
use atoll_dispatch::{
    BesideMaker, Clock, Engine, Fills, Halted, LeavesFilling, OpenError, Reached, Report, Setup, Work,
};
use atoll_group::Role;
use atoll_island::{Config, Event, LinkId, MigrationConfig, Now};
use atoll_posix::{Answer, Errno, Op};
use atoll_proto::group::Host;
use atoll_proto::{ClientOp, DaemonLife, Fixed, NodeLife, Outcome, Reply, Request, VolumeConfig};
use atoll_rpc::{AddressError, DaemonId, Link};
use bytes::Bytes;

use crate::copies::Copies;
use crate::local::Local;
use crate::map::Map;
use crate::node_links::{NodeLinks, Used};
use crate::opening::{OpenedIslands, Unopened};
use crate::refusals::Spilled;
use crate::slots::{Islands, Slots};
use crate::switch::{Enter, Switch, together};
use crate::views::{Kept, Views};
use crate::wide::NodeSites;

/// Pause between two runs of an island's housekeeping.
const HOUSEKEEPING: Duration = Duration::from_millis(50);
/// Pause between two rounds of laying the plain trees.
const LAYING: Duration = Duration::from_millis(500);

/// If memory has so many times the rows that may stay, a change waits for a checkpoint,
const CROWDED_TIMES: usize = 3;
/// and at most so long. That is enough to keep memory from growing.
const CROWDED_WAIT: Duration = Duration::from_millis(100);
/// Pause between two looks meanwhile.
const CROWDED_LOOK: Duration = Duration::from_millis(1);

/// How files follow their names to another island: when they are not used, and without taking all of the
/// links.
const MOVING: MigrationConfig = MigrationConfig { rests_ms: 200, bytes_per_s: 64 << 20 };
/// The laying thread's niceness.
const LAYING_NICE: i32 = 10;
/// An island with copies that nobody has led for so long is away.
const AWAY: Duration = Duration::from_millis(2_500);
/// How long stopping waits for files that are on their way, and how often it looks.
const MOVES_WAIT: Duration = Duration::from_millis(500);
const MOVES_LOOK: Duration = Duration::from_millis(2);

/// Options of a node's part of a volume.
#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// Rows of each kind that an island may keep in memory although its snapshot has them.
    pub rows_max: usize,
    /// Bytes of each snapshot that stay in memory.
    pub snapshot_cache_bytes: usize,
    /// Sizes of the logs.
    pub log: atoll_log::Config,
    /// The daemon is root.
    pub root: bool,
    /// Device files are laid out in the plain trees.
    pub devices: bool,
    /// Owner and group of the root directory when the volume is new.
    pub owner: (u32, u32),
    /// The daemon's id, for other nodes.
    pub daemon: DaemonId,
    /// Counts up with every start of it.
    pub incarnation: u32,
    /// Number of the data directory in its file system; 0 if it is not known.
    pub directory: u64,
    /// The volume may not have been made yet: islands that are missing are made. Otherwise they are
    /// lost, and the volume is refused.
    pub is_new: bool,
    /// How far its islands are known to have come.
    pub reached: BTreeMap<IslandId, Reached>,
    /// Makes the machine beside each island; none if none has one.
    pub beside: Option<Arc<dyn BesideMaker>>,
    /// What the sites of this node share.
    pub sites: NodeSites,
}

/// Why a volume cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// An island cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another node's address is none.
    #[error("node {node}: {why}")]
    Address {
        /// The node.
        node: NodeId,
        /// The reason.
        why: AddressError,
    },
    /// A volume that is served cannot get such a configuration.
    #[error("{0}")]
    Fixed(Fixed),
    /// The configuration has other islands on this node than those that it serves.
    #[error("islands of node {node} of volume {volume} cannot come or go while it serves them")]
    OwnIslands {
        /// The volume's name.
        volume: String,
        /// This node.
        node: NodeId,
    },
    /// The configuration does not know this node.
    #[error("volume {volume} has no node {node}")]
    NotAMember {
        /// The volume's name.
        volume: String,
        /// This node.
        node: NodeId,
    },
}

impl VolumeError {
    /// Whether an island can be opened when its disk has room.
    pub(crate) fn lacks_room(&self) -> bool {
        matches!(self, Self::Open(error) if error.is_no_space())
    }
}

/// Wall clock for files' times, monotonic clock for waiting.
#[derive(Debug)]
pub struct WallClock(Instant);

impl Default for WallClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for WallClock {
    fn now(&self) -> Now {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = Time::from_nanos(since.as_nanos() as u64);
        Now { wall, ms: self.0.elapsed().as_millis() as u64 }
    }

    fn boot_ms(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        (time.tv_sec * 1_000 + time.tv_nsec / 1_000_000) as u64
    }

    fn pass(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl<D: Disk> Enter for Engine<D> {
    fn begin(&self, event: Event) -> Work {
        Self::begin(self, event)
    }

    fn go_on(&self, work: &mut Work) -> bool {
        Self::go_on(self, work)
    }
}

/// A node's part of a volume, being served.
pub struct Volume<D: Disk> {
    id: VolumeId,
    /// Its name, for people.
    name: String,
    node: NodeId,
    /// The islands that are here.
    pub(crate) engines: Slots<Engine<D>>,
    pub(crate) switch: Arc<Switch>,
    /// Which daemon this is, and how often it has started.
    pub(crate) daemon: (DaemonId, u32),
    /// Where it runs.
    pub(crate) host: Host,
    /// The copies of the node that are filled, if it has some, and how often clients had used islands here without copies.
    pub(crate) fills: OnceLock<Arc<Fills>>,
    uses_seen: AtomicU64,
    /// Islands of this node that cannot be opened.
    pub(crate) unopened: OnceLock<Unopened>,
    /// The copies here of islands that have others.
    pub(crate) copies: OnceLock<Copies<D>>,
    pub(crate) store: OnceLock<Arc<dyn GroupStore>>,
    /// The links that other nodes have opened.
    pub(crate) node_links: Mutex<NodeLinks>,
    /// Islands with copies that nobody leads, as far as is known here, and since when.
    away: Mutex<BTreeMap<IslandId, Instant>>,
    pub(crate) map: RwLock<Map>,
    /// One change of the map at a time.
    pub(crate) changing: Mutex<()>,
    pub(crate) stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) views: Views<D>,
    next_local: AtomicU64,
    rows_dirty_max: usize,
}

impl<D: Disk> std::fmt::Debug for Volume<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<D: Disk> Volume<D> {
    /// Opens this node's islands of a volume and begins to serve them. `disk_of` gives each
    /// island's folder.
    pub fn open(
        config: VolumeConfig,
        node: NodeId,
        options: &VolumeOptions,
        disk_of: impl FnMut(IslandId) -> Result<Arc<D>, VolumeError>,
    ) -> Result<Arc<Self>, VolumeError> {
        let volume = Self::greet(config, node, options)?;
        let opened = volume.open_islands(options, disk_of, None)?;
        volume.begin(opened);
        Ok(volume)
    }

    /// A node's part of a volume, which is connected to the other nodes, and of which no island is here yet.
    pub(crate) fn greet(
        config: VolumeConfig,
        node: NodeId,
        options: &VolumeOptions,
    ) -> Result<Arc<Self>, VolumeError> {
        let volume = Self::new(config, node, options)?;
        volume.connect_nodes()?;
        Ok(volume)
    }

    /// A node's part of a volume, without an island yet.
    fn new(config: VolumeConfig, node: NodeId, options: &VolumeOptions) -> Result<Arc<Self>, VolumeError> {
        let not_a_member = || VolumeError::NotAMember { volume: config.name.clone(), node };
        if config.nodes.iter().all(|n| n.node != node) {
            return Err(not_a_member());
        }
        let views = Views::new(config.name.clone(), (options.root, options.devices));
        Ok(Arc::new(Self {
            id: config.id,
            name: config.name.clone(),
            node,
            engines: Slots::default(),
            switch: Arc::new(Switch::new(config.name.clone())),
            daemon: (options.daemon, options.incarnation),
            host: Host { boot: options.log.boot, inode: options.directory },
            fills: OnceLock::new(),
            uses_seen: AtomicU64::new(0),
            unopened: OnceLock::new(),
            copies: OnceLock::new(),
            store: OnceLock::new(),
            node_links: Mutex::default(),
            away: Mutex::default(),
            rows_dirty_max: CROWDED_TIMES * rows_max(config.islands_at(node).len(), options),
            map: RwLock::new(Map::new(config)),
            changing: Mutex::default(),
            stopping: AtomicBool::new(false),
            threads: Mutex::default(),
            views,
            next_local: AtomicU64::new(1),
        }))
    }

    /// The islands that are here are these from now on, and begin with those that can be reached. Others hear of what comes
    /// and goes. Whoever takes one away stops it.
    pub fn set_islands(&self, next: Islands<Engine<D>>) {
        self.change_islands(|islands| *islands = next);
    }

    /// The islands that are here change, one change after the other.
    pub(crate) fn change_islands(&self, change: impl FnOnce(&mut Islands<Engine<D>>)) {
        let (_one, _leaves) = (self.changing(), LeavesFilling::begin());
        let before = self.engines.all();
        let mut next = (*before).clone();
        change(&mut next);
        let comes = |island: &IslandId| !before.contains_key(island);
        // Ticks first: an island learns of the room on its disk.
        next.iter().filter(|(island, _)| comes(island)).for_each(|(_, engine)| engine.tick());
        self.switch.set_islands(next.iter().map(|(i, e)| (*i, Arc::clone(e) as Arc<dyn Enter>)).collect());
        self.engines.set(next.clone());
        for island in before.keys().filter(|island| !next.contains_key(island)) {
            self.switch.forget(*island);
            self.peer_reachable(*island, false);
            // Its next primary may have been heard before. What went to the copy here is to be said again.
            if self.others_seen().iter().any(|other| other.reaches(*island)) {
                self.peer_reachable(*island, true);
            }
        }
        let table = &self.config().table;
        for (island, engine) in next.iter().filter(|(island, _)| comes(island)) {
            self.led_here(*island);
            // It was opened with the table of an earlier moment.
            engine.enter(Event::Table(table.clone()));
            for (other, there) in next.iter().filter(|(other, _)| *other != island) {
                engine.enter(Event::PeerReachable { island: *other, up: true });
                if !comes(other) {
                    there.enter(Event::PeerReachable { island: *island, up: true });
                }
            }
            self.others_seen().iter().for_each(|other| other.tell(engine));
            self.switch.tell_primary(*island, self.epoch_of(*island));
        }
    }

    /// These islands are here from now on, and their housekeeping begins.
    pub(crate) fn begin(self: &Arc<Self>, opened: OpenedIslands<D>) {
        self.views.begin(opened.views);
        self.set_islands(opened.engines);
        if let Some(ends) = opened.ends {
            self.begin_copies(ends);
        }
        let volume = Arc::downgrade(self);
        let housekeep = move || {
            while let Some(volume) = volume.upgrade().filter(|v| !v.stopping.load(Ordering::Acquire)) {
                volume.housekeep();
                drop(volume);
                std::thread::sleep(HOUSEKEEPING);
            }
        };
        let volume = Arc::downgrade(self);
        let lay = move || {
            // Nobody waits for it: who serves comes first. Without it, it is only less polite.
            let _ = rustix::process::setpriority_process(None, LAYING_NICE);
            while let Some(volume) = volume.upgrade().filter(|v| !v.stopping.load(Ordering::Acquire)) {
                let far_behind = volume.views.round(&volume.kept_trees());
                drop(volume);
                if !far_behind {
                    std::thread::sleep(LAYING);
                }
            }
        };
        let mut threads = vec![self.start("atoll-house", housekeep), self.start("atoll-view", lay)];
        self.threads.lock().expect("no panic while it is held").append(&mut threads);
    }

    /// Starts a thread. Without it nothing would ever be synced by itself, or nobody would lead: better not to go on at all.
    pub(crate) fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        std::thread::Builder::new().name(name.into()).spawn(run).expect("no thread to be had")
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The link of each other node that counts for copies, by number, and the process that has opened it.
    pub(crate) fn group_links(&self) -> Vec<(u64, NodeLife)> {
        self.node_links.lock().expect("no panic while it is held").all()
    }

    /// Another node has opened a link.
    pub(crate) fn link_opened(&self, link: u64, who: NodeLife) {
        let number = self.node_links.lock().expect("no panic while it is held").opened(link, who);
        if let Some(number) = number {
            self.tell_link(number, who);
        }
    }

    /// Something has come on a link that another node has opened. The link's number among those that count.
    pub(crate) fn link_used(&self, link: u64, who: NodeLife) -> u64 {
        let Used { number, is_new } =
            self.node_links.lock().expect("no panic while it is held").used(link, who);
        if is_new {
            self.tell_link(number, who);
        }
        number
    }

    /// Tells the time, and does the work that no request waits for.
    fn housekeep(&self) {
        let _leaves = LeavesFilling::begin();
        // What islands send each other by themselves shares syncs.
        let engines = self.engines.all();
        let alone = || engines.values().filter(|engine| self.copy(engine.id()).is_none());
        together(|| alone().for_each(|engine| engine.tick()));
        alone().for_each(|engine| engine.housekeep());
        let uses = alone().map(|engine| engine.uses()).sum();
        if self.uses_seen.swap(uses, Ordering::Relaxed) != uses
            && let Some(fills) = self.fills.get()
        {
            fills.used(WallClock::default().boot_ms());
        }
        self.copies().for_each(|copy| copy.housekeep());
        let mut away = self.away.lock().expect("no panic while it is held");
        let late = away.iter().filter(|(_, since)| since.elapsed() > AWAY).map(|(island, _)| *island);
        let late: Vec<IslandId> = late.collect();
        late.iter().for_each(|island| _ = away.remove(island));
        drop(away);
        late.into_iter().for_each(|island| self.tell_peer(island, false));
    }

    /// The islands whose plain trees are here: those that can be asked, and copies that follow. A copy that is opened again, or is
    /// filled, keeps what is laid.
    fn kept_trees(&self) -> Kept<D> {
        let engines = self.engines.all();
        let mut kept: Kept<D> = engines.iter().map(|(i, engine)| (*i, Some(Arc::clone(engine)))).collect();
        for copy in self.copies() {
            kept.insert(copy.island(), copy.engine().filter(|engine| !engine.is_filling()));
        }
        kept
    }

    /// Files of an island whose attributes the native file system refused.
    pub(crate) fn spilled(&self, island: IslandId) -> Spilled {
        self.views.spilled(island)
    }

    // --------------------------------------------------------------- inspection

    /// The volume's id.
    pub(crate) const fn id(&self) -> VolumeId {
        self.id
    }

    /// The volume's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// This node's number in the volume.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Islands of which this node keeps a copy, or shall, in order.
    pub fn islands(&self) -> Vec<IslandId> {
        let mut islands = self.config().islands_at(self.node);
        islands.extend(self.copies().map(|copy| copy.island()));
        islands.sort_unstable();
        islands.dedup();
        islands
    }

    /// Whether an island has several copies.
    pub(crate) fn has_copies(&self) -> bool {
        self.config().copies.is_some()
    }

    /// The epoch in which this node leads an island; 0 if it does not, or if the island has no other copies.
    pub(crate) fn epoch_of(&self, island: IslandId) -> u32 {
        match self.copy(island).map(|copy| copy.role()) {
            Some(Role::Leading { epoch, .. }) => epoch,
            _ => 0,
        }
    }

    /// The engine of an island, if it is here.
    pub(crate) fn engine(&self, island: IslandId) -> Option<Arc<Engine<D>>> {
        self.engines.now().get(&island).cloned()
    }

    /// The engines of the islands that are here.
    pub fn engines(&self) -> impl Iterator<Item = Arc<Engine<D>>> {
        let engines: Vec<_> = self.engines.now().values().cloned().collect();
        engines.into_iter()
    }

    /// The last synced record of each island.
    pub(crate) fn reached(&self) -> BTreeMap<IslandId, Reached> {
        let copies = self.copies().filter_map(|copy| copy.engine());
        let engines = self.engines.all();
        engines.values().cloned().chain(copies).map(|engine| (engine.id(), engine.reached())).collect()
    }

    /// Logs that another node is reached through a relay.
    pub(crate) fn tell_relayed(&self, node: NodeId) {
        let volume = &self.name;
        tracing::warn!(
            volume,
            %node,
            "node {node} cannot be reached directly: what is sent to it goes through another node"
        );
    }

    /// The switch.
    pub const fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    pub(crate) fn holds(&self, island: IslandId) -> bool {
        self.engines.now().contains_key(&island)
    }

    /// Whether an island can be asked here.
    pub(crate) fn serves(&self, island: IslandId) -> bool {
        self.engines.now().get(&island).is_some_and(|engine| !engine.is_halted())
    }

    /// The node at the other end of a link has its islands begin with those of this node as after a lost link.
    pub(crate) fn begin_anew(&self, link: &Link) {
        for island in self.islands().into_iter().filter(|island| self.serves(*island)) {
            // A link that is down has told so.
            let _ = link.gone(island);
            let _ = link.primary(island, self.epoch_of(island));
        }
    }

    // ------------------------------------------------------------------- events

    /// A wire for a client of this process.
    pub fn local(self: &Arc<Self>) -> Arc<Local<D>> {
        let link = LinkId::local(self.next_local.fetch_add(1, Ordering::Relaxed));
        Arc::new(Local::new(Arc::clone(self), link))
    }

    /// An island can be reached, or not. One that has copies is away only when no other copy leads for a while: until then
    /// others must not go on without it.
    pub(crate) fn peer_reachable(&self, island: IslandId, up: bool) {
        if self.has_copies() {
            let mut away = self.away.lock().expect("no panic while it is held");
            if !up {
                away.entry(island).or_insert_with(Instant::now);
                return;
            }
            away.remove(&island);
        }
        self.tell_peer(island, up);
    }

    /// An island with copies is led here from now on: what other nodes say of it does not count, and it is not away.
    fn led_here(&self, island: IslandId) {
        if self.has_copies() {
            self.hear_no_other(island);
            self.away.lock().expect("no panic while it is held").remove(&island);
        }
    }

    fn tell_peer(&self, island: IslandId, up: bool) {
        for engine in self.engines.now().values() {
            tell(engine, Event::PeerReachable { island, up });
        }
    }

    /// A client of this process asks an island.
    pub(crate) fn request(&self, island: IslandId, link: LinkId, id: u64, request: Request, data: Bytes) {
        match self.engines.now().get(&island) {
            Some(engine) => self.ask(engine, link, id, request, data),
            None => self.not_here(island, link),
        }
    }

    /// A client asks an island that is here.
    pub(crate) fn ask(&self, engine: &Engine<D>, link: LinkId, id: u64, request: Request, data: Bytes) {
        if engine.is_halted() {
            return self.switch.gone(engine.id(), link);
        }
        if matches!(request.op, ClientOp::Fs { op: Op::Statfs }) {
            return self.statfs(engine, link, id);
        }
        if request.seq != 0 && engine.rows_dirty() > self.rows_dirty_max {
            self.wait_for_room(engine);
        }
        engine.enter(Event::Request { link, id, request, data });
    }

    /// Tells the other end of a link that an island cannot be asked here.
    pub(crate) fn not_here(&self, island: IslandId, link: LinkId) {
        self.switch.gone(island, link);
        // It may have come, and that may have been told, before this was.
        if self.serves(island) {
            self.switch.primary(island, self.epoch_of(island), link);
        }
    }

    /// Changes come faster than checkpoints can be made of them: they are slowed down, before they fill
    /// memory.
    fn wait_for_room(&self, engine: &Engine<D>) {
        atoll_handover::slow();
        let since = Instant::now();
        while engine.rows_dirty() > self.rows_dirty_max && since.elapsed() < CROWDED_WAIT {
            std::thread::sleep(CROWDED_LOOK);
        }
    }

    fn statfs(&self, engine: &Engine<D>, link: LinkId, id: u64) {
        let outcome = match engine.disk().space() {
            Ok(space) => {
                let answer = Answer::Statfs {
                    bytes: space.bytes,
                    bytes_free: space.bytes_free,
                    bytes_available: space.bytes_available,
                    inodes: space.inodes,
                    inodes_free: space.inodes_free,
                    fs_id: space.fs_id,
                };
                Outcome::Ok { answer, keys: Vec::new() }
            }
            Err(_) => Outcome::Failed { errno: Errno::EIO },
        };
        let reply = Reply::bare(outcome);
        engine.answer(link, id, reply, &[]);
    }

    /// A link to this volume is gone; `ended` by its other side.
    pub fn link_closed(&self, link: LinkId, ended: bool) {
        self.switch.disconnect(link);
        for engine in self.engines.now().values() {
            tell(engine, Event::LinkClosed { link, ended });
        }
    }

    /// Stops in order. Links that others have to it end.
    pub fn stop(&self) -> Result<(), Halted> {
        self.leave();
        self.switch.end_links();
        self.end_moves();
        self.stopping.store(true, Ordering::Release);
        self.disconnect_nodes();
        let threads = std::mem::take(&mut *self.threads.lock().expect("no panic while it is held"));
        for thread in threads {
            let _ = thread.join();
        }
        // A copy that has just ceased to lead was opened again, which puts bytes in place and so changes native times.
        self.copies().for_each(|copy| copy.end());
        self.views.drain(&self.kept_trees());
        let mut result = Ok(());
        for engine in self.engines().filter(|engine| self.copy(engine.id()).is_none()) {
            result = result.and(engine.stop());
        }
        for copy in self.copies() {
            result = result.and(copy.stop());
        }
        self.views.close();
        result
    }

    /// Waits until files on their way have arrived, or stay, before the plain trees are drained. A file that
    /// waits for another node goes on when both are back.
    fn end_moves(&self) {
        for engine in self.engines() {
            tell(&engine, Event::Stopping);
        }
        let until = Instant::now() + MOVES_WAIT;
        let moves =
            |engine: &Arc<Engine<D>>| engine.is_leading() && !engine.with_island(|i| i.moves_nothing());
        while self.engines.all().values().any(moves) && Instant::now() < until {
            self.housekeep();
            std::thread::sleep(MOVES_LOOK);
        }
    }
}

/// Tells an island of the node something that it did not ask for. Whoever tells it may hold what other islands need, or read no
/// requests: the thread fills no copy meanwhile.
pub(crate) fn tell<D: Disk>(engine: &Engine<D>, event: Event) {
    let _leaves = LeavesFilling::begin();
    engine.enter(event);
}

/// Logs what a recovery removed or could not bring back. After an orderly end it logs nothing.
pub(crate) fn tell_recovery(volume: &str, island: IslandId, report: &Report) {
    if report.torn_bytes > 0 {
        tracing::warn!(
            volume, %island,
            "{} bytes at the end of its log were not whole and were cut; {} records are there behind the \
            checkpoint. A power cut leaves this, or a process that died while it wrote",
            report.torn_bytes, report.records
        );
    }
    for (ino, what) in &report.corrected {
        tracing::warn!(volume, %island, "id {ino}: {what}");
    }
}

/// Rows that an island of a node with so many islands may keep in memory.
fn rows_max(islands: usize, options: &VolumeOptions) -> usize {
    /// Rows that an island may keep in any case.
    const ROWS_MIN: usize = 1000;
    // All islands of a node share its memory.
    (options.rows_max / islands.max(1)).max(ROWS_MIN)
}

/// The part of the options of an island that this node keeps.
pub fn setup<D: Disk>(
    config: &VolumeConfig,
    node: NodeId,
    island: IslandId,
    disk: &D,
    options: &VolumeOptions,
) -> Setup {
    let space = disk.space().map_or(0, |s| s.bytes);
    Setup {
        volume: config.id,
        island: Config {
            life: DaemonLife { daemon: options.daemon.0, incarnation: options.incarnation },
            rows_max: rows_max(config.islands_at(node).len(), options),
            root_uid: options.owner.0,
            root_gid: options.owner.1,
            reserve_bytes: atoll_proto::reserve_bytes(space),
            moving: Some(MOVING),
            ..Config::new(island, config.seed, config.table.clone(), config.islands())
        },
        log: options.log,
        snapshot_cache_bytes: options.snapshot_cache_bytes,
        root: options.root,
        is_new: options.is_new,
        reached: options.reached.get(&island).copied(),
        beside: options.beside.clone(),
    }
}
