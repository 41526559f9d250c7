//! Cluster volumes, as a node serves them: opens the islands of the node, and notes how far they have come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_control::{ControlStore, GroupStore, ServedStore};
use atoll_core::{Ino, IslandId, NodeId};
use atoll_disk::Disk;
use atoll_disk::overlay::Overlay;
use atoll_dispatch::seat::SeatStore;
use atoll_dispatch::{Clock, Engine, Fills, GroupCopy, Halted, OpenError, Reached, SpaceState};
use atoll_group::{Group, GroupEvent, Role};
use atoll_island::Phase;
use atoll_proto::control::{
    CopyRole, GroupStatus, IslandPhase, IslandStatus, IslandWeight, Metric, ToldSeat, Trace,
};
use atoll_proto::group::{Revision, StoredGroup};
use atoll_proto::{Copies, VolumeConfig};
use atoll_rpc::{Address, Closed, DaemonId, Frame, Handler, Link};
use atoll_state::{LoadedRows, RowKey, RowLoad};

use crate::arrange::Care;
use crate::copies::CopiesSetup;
use crate::links::FIRST_VERSION;
use crate::node::{NodeError, unless_full};
use crate::opening::OpenedIslands;
use crate::reached::{note_cut, note_reached, reached};
use crate::served::{LocalWay, Place, Serve, Served, ServedStatus};
use crate::volume::{Volume, VolumeError, VolumeOptions, WallClock};

/// How long a question to the store of another node may take: copies ask again.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

/// Opens the folder of an island, making it if the last argument says that the volume is new.
pub type Shelf<D> = Arc<dyn Fn(&Path, IslandId, bool) -> Result<Arc<D>, VolumeError> + Send + Sync>;

/// Serves nodes' parts of cluster volumes.
pub struct Cluster<D: Disk> {
    /// Options of their islands.
    pub options: VolumeOptions,
    /// Opens an island's folder.
    pub shelf: Shelf<D>,
    /// Opens the folder of a volume, for what lies beside the folders of its islands.
    pub beside: Beside<D>,
    /// The copies of the node that are filled, or fill others, of all its volumes.
    pub fills: Arc<Fills>,
}

/// Opens the folder of a volume.
pub type Beside<D> = Arc<dyn Fn(&Path) -> std::io::Result<Arc<D>> + Send + Sync>;

/// A node's islands of a cluster volume, and the folder that they are in.
pub(crate) struct Islands<D: Disk> {
    pub(crate) volume: Arc<Volume<D>>,
    data: PathBuf,
    pub(crate) folder: PathBuf,
    is_new: bool,
    pub(crate) options: VolumeOptions,
    pub(crate) shelf: Shelf<D>,
    pub(crate) beside: Beside<D>,
    store: Arc<dyn ControlStore>,
    /// The store of the groups' records, if it is that of another node.
    elsewhere: Mutex<Option<Arc<ServedStore>>>,
    fills: Arc<Fills>,
    pub(crate) care: Mutex<Care>,
    /// What is open and not served yet.
    opened: Mutex<Option<OpenedIslands<D>>>,
}

impl<D: Disk> Islands<D> {
    /// What the copies need: the store of their groups' records is that of one node, or one that all reach.
    pub(crate) fn copies(
        &self,
        config: &VolumeConfig,
        copies: &Copies,
    ) -> Result<CopiesSetup<D>, VolumeError> {
        let node = self.volume.node();
        let store: Arc<dyn GroupStore> = if copies.store == node || self.store.for_all().is_some() {
            Arc::clone(&self.store) as _
        } else {
            let at = config.nodes.iter().find(|n| n.node == copies.store);
            let address = at.map_or("", |n| n.address.as_str()).parse();
            let address = address.map_err(|why| VolumeError::Address { node: copies.store, why })?;
            let of_node = config.daemon_of(copies.store).and_then(DaemonId::named);
            let store = Arc::new(ServedStore::of_node(address, STORE_PATIENCE, of_node));
            *self.elsewhere.lock().expect("no panic while it is held") = Some(Arc::clone(&store));
            store
        };
        let io = |e| VolumeError::Open(OpenError::Io(IslandId(0), e));
        let beside = (self.beside)(&self.folder).map_err(io)?;
        let folder = self.folder.clone();
        let on_cut = Box::new(move |island, to| note_cut(&folder, island, to));
        Ok(CopiesSetup { beside, store, on_cut, fills: Arc::clone(&self.fills) })
    }

    /// The node with the records of the groups may be at another address.
    fn follow_store(&self, config: &VolumeConfig) {
        let elsewhere = self.elsewhere.lock().expect("no panic while it is held");
        let node = config.nodes.iter().find(|node| node.node == config.store_node());
        if let (Some(store), Some(address)) = (&*elsewhere, node.and_then(|node| node.address.parse().ok())) {
            store.move_to(&address);
        }
    }

    /// The engine of an island that is led here, or else that of its copy.
    fn engine(&self, island: IslandId, copy: Option<&GroupCopy<D>>) -> Option<Arc<Engine<D>>> {
        self.volume.engine(island).or_else(|| copy?.engine())
    }

    /// How far the islands have come. What was known before of one that cannot be opened stays, so that an older copy in its place
    /// is still noticed.
    fn noted(&self) -> BTreeMap<IslandId, Reached> {
        let before = &self.options.reached;
        let unopened = before.iter().filter(|(island, _)| self.volume.why_unopened(**island).is_some());
        unopened.map(|(island, reached)| (*island, *reached)).chain(self.volume.reached()).collect()
    }

    fn opened(&self) -> Option<OpenedIslands<D>> {
        self.opened.lock().expect("no panic while it is held").take()
    }
}

impl<D: Disk> std::fmt::Debug for Cluster<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl<D: Disk> Serve for Cluster<D> {
    fn serve(&self, at: &Place<'_>) -> Result<Arc<dyn Served>, NodeError> {
        Ok(self.islands(at)?)
    }
}

impl<D: Disk> Cluster<D> {
    /// A node's islands.
    pub(crate) fn islands(&self, at: &Place<'_>) -> Result<Arc<Islands<D>>, NodeError> {
        let (data, folder) = (at.data.to_owned(), at.folder.to_owned());
        let reached = reached(&folder).map_err(|e| NodeError::Folder {
            volume: at.config.name.clone(),
            folder: folder.clone(),
            why: e.to_string(),
        })?;
        // A node that comes to a volume in use makes its copies empty, and they are filled.
        let is_first = at.config.copies.is_none() || at.config.table.version() == FIRST_VERSION;
        let options = VolumeOptions { is_new: at.is_new && is_first, reached, ..self.options.clone() };
        let volume = Volume::greet(at.config.clone(), at.node, &options)
            .map_err(|why| not_served(at.config, &data, &folder, &why))?;
        _ = volume.fills.set(Arc::clone(&self.fills));
        let (is_new, shelf, opened) = (at.is_new, Arc::clone(&self.shelf), Mutex::default());
        let (beside, store, fills) =
            (Arc::clone(&self.beside), Arc::clone(at.store), Arc::clone(&self.fills));
        let care = Mutex::default();
        Ok(Arc::new(Islands {
            volume,
            data,
            folder,
            is_new,
            options,
            shelf,
            beside,
            store,
            elsewhere: Mutex::default(),
            care,
            fills,
            opened,
        }))
    }
}

/// What a copy knows of its group, as numbers.
fn group_metrics(group: &GroupStatus) -> [Metric; 7] {
    let behind = group.joining.iter().map(|(_, records)| *records).max();
    [
        Metric::now("epoch", group.epoch.into()),
        Metric::now("epoch_ms", group.epoch_ms.unwrap_or(0)),
        Metric::now("leads", matches!(group.role, CopyRole::Leads | CopyRole::Waits).into()),
        Metric::now("copies_in_sync", group.in_sync.len() as u64),
        Metric::now("copies_wanted", group.wanted.into()),
        Metric::now("copies_joining", group.joining.len() as u64),
        Metric::now("copies_records_behind", behind.unwrap_or(0)),
    ]
}

fn not_served(config: &VolumeConfig, data: &Path, folder: &Path, why: &VolumeError) -> NodeError {
    let next = next_step(config, data, folder, why);
    NodeError::Volume { volume: config.name.clone(), why: why.to_string(), next }
}

/// The next step against `why`.
fn next_step(config: &VolumeConfig, data: &Path, folder: &Path, why: &VolumeError) -> String {
    let data = data.display();
    let others = if config.nodes.len() > 1 { "Its other nodes go on. " } else { "" };
    if let VolumeError::Open(error) = why
        && error.is_damage()
        && config.group_of(error.island()).len() > 1
    {
        let place = folder.join(error.island().to_string());
        let place = place.display();
        return format!(
            "Nothing was changed in {place}. Other nodes have copies of it. If one of them leads (atoll status), stop this node,\n\
            move the damaged copy away (mv {place} {place}.damaged), and start it again: it is filled from the others."
        );
    }
    match why {
        VolumeError::Open(OpenError::Missing(island, _)) => format!(
            "{others}It should be in {}/{island}: is its disk mounted? Nothing was made in its place.\n\
            If it is lost, restore it from a backup. How to go on without it, tells: atoll rebuild --data {data} --volume {}",
            folder.display(),
            config.name
        ),
        VolumeError::Open(OpenError::Older { island, .. }) => format!(
            "{others}Nothing was changed in {}/{island}. Put the newer folder back, or restore the whole data \
            directory from one backup.\n\
            If this copy is all that there is, make the state anew from it: atoll rebuild --data {data} --volume {}",
            folder.display(),
            config.name
        ),
        VolumeError::Open(error) if error.is_damage() => format!(
            "{others}Nothing was changed in {}/{}. Restore the data directory from a backup, or make the\n\
            state anew from the plain trees, which are about a second behind: \
            atoll rebuild --data {data} --volume {}",
            folder.display(),
            error.island(),
            config.name
        ),
        _ => format!("{others}Nothing was lost by this. When that is mended, start again."),
    }
}

impl<D: Disk> Handler for Islands<D> {
    fn opened(&self, link: &Arc<Link>) {
        self.volume.opened(link);
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        self.volume.frame(link, frame);
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        self.volume.closed(link, why);
    }
}

impl<D: Disk> Served for Islands<D> {
    fn config(&self) -> Arc<VolumeConfig> {
        self.volume.config()
    }

    fn may_take(&self, next: &VolumeConfig) -> Result<bool, VolumeError> {
        self.volume.may_take(next)
    }

    fn take_config(&self, next: &VolumeConfig) -> Result<bool, VolumeError> {
        let is_newer = self.volume.take_config(next)?;
        if is_newer {
            self.follow_store(next);
            self.arrange();
        }
        Ok(is_newer)
    }

    fn care(&self, is_for_all: bool) -> Option<VolumeConfig> {
        self.arrange();
        self.retire();
        self.next_config(is_for_all)
    }

    fn node(&self) -> NodeId {
        self.volume.node()
    }

    fn islands(&self) -> Vec<IslandId> {
        self.volume.islands()
    }

    fn open(&self) -> Result<(), NodeError> {
        let config = self.volume.config();
        let refused = |why| not_served(&config, &self.data, &self.folder, &why);
        self.seat_those_alone(&config).map_err(refused)?;
        let copies = config.copies.as_ref().map(|copies| self.copies(&config, copies)).transpose();
        // What is missing of a copy that has others is filled.
        let may_make = self.is_new || copies.as_ref().is_ok_and(Option::is_some);
        let shelf = |island| (self.shelf)(&self.folder, island, may_make);
        let opened = copies.and_then(|copies| self.volume.open_islands(&self.options, shelf, copies));
        let opened = opened.map_err(refused)?;
        *self.opened.lock().expect("no panic while it is held") = Some(opened);
        Ok(())
    }

    /// From now on an older copy of one of the islands is noticed. An island that has halted tells so itself.
    fn begin(&self) -> std::io::Result<()> {
        let Some(opened) = self.opened() else { return Ok(()) };
        let reached: Result<BTreeMap<_, _>, Halted> =
            opened.engines.values().map(|engine| Ok((engine.id(), engine.reach()?))).collect();
        let all = reached.map(|reached| self.noted().into_iter().chain(reached).collect());
        let noted = all.map_or(Ok(()), |all| note_reached(&self.folder, &all)).or_else(unless_full);
        match noted {
            Ok(()) => self.volume.begin(opened),
            Err(_) => *self.opened.lock().expect("no panic while it is held") = Some(opened),
        }
        noted
    }

    fn has_other(&self, node: NodeId) -> bool {
        self.volume.has_other(node)
    }

    fn direct_address(&self, to: NodeId) -> Option<Address> {
        self.volume.direct_address(to)
    }

    fn local(&self) -> Arc<dyn LocalWay> {
        self.volume.local()
    }

    fn status(&self) -> ServedStatus {
        let volume = &self.volume;
        let halted = volume.switch().halted_islands();
        let mut islands = Vec::new();
        for island in volume.islands() {
            let copy = volume.copy(island);
            let Some(engine) = self.engine(island, copy.as_deref()) else {
                let why = volume.why_unopened(island).map(|why| {
                    let next = next_step(&volume.config(), &self.data, &self.folder, why);
                    format!("It cannot be opened: {why}\n{next}")
                });
                islands.push(IslandStatus {
                    island,
                    phase: IslandPhase::Opening,
                    halted: why,
                    read_only: None,
                    spilled: Vec::new(),
                    metrics: Vec::new(),
                    group: None,
                    fill: None,
                });
                continue;
            };
            let (counters, phase) = (engine.counters(), engine.phase());
            let (sessions, mounts) = engine.sessions();
            let mut metrics: Vec<Metric> = counters.list().map(Metric::count).collect();
            metrics.push(Metric::count(("too_long", volume.switch().too_long(engine.id()))));
            metrics.push(Metric::now("sessions", sessions));
            metrics.push(Metric::now("mounts", mounts));
            let spilled = volume.spilled(engine.id());
            metrics.push(Metric::now("xattrs_spilled", spilled.count as u64));
            metrics.push(Metric::now("names_refused", spilled.names_refused as u64));
            let group = copy.as_ref().map(|copy| copy.status());
            metrics.extend(group.iter().flat_map(group_metrics));
            let fill = copy.as_ref().and_then(|copy| copy.fill_status());
            if group.is_some() {
                metrics.push(Metric::now("copy_files_left", fill.map_or(0, |fill| fill.files_left)));
                metrics.push(Metric::now("copy_bytes_left", fill.map_or(0, |fill| fill.bytes_left)));
            }
            islands.push(IslandStatus {
                island: engine.id(),
                phase: match &group {
                    _ if phase == Phase::Normal => IslandPhase::Normal,
                    Some(group) if group.role == CopyRole::Follows => IslandPhase::Follows,
                    _ => IslandPhase::Starting,
                },
                halted: halted.get(&engine.id()).cloned(),
                read_only: match engine.space_state() {
                    SpaceState::Normal => None,
                    SpaceState::ReadOnly { since_ms, lack } => {
                        Some((lack.to_string(), engine.now_ms().saturating_sub(since_ms)))
                    }
                },
                spilled: spilled.some,
                metrics,
                group,
                fill,
            });
        }
        // All islands of a node lie on one file system.
        let engines = volume.islands().into_iter();
        let mut engines = engines.filter_map(|island| self.engine(island, volume.copy(island).as_deref()));
        let space = engines.next().and_then(|engine| engine.disk().space().ok());
        ServedStatus {
            islands,
            others: volume.others(),
            filling: self.fills.all(WallClock::default().boot_ms()),
            bytes: space.as_ref().map_or(0, |s| s.bytes),
            bytes_available: space
                .as_ref()
                .map_or(0, |s| s.bytes_available.saturating_sub(atoll_proto::reserve_bytes(s.bytes))),
        }
    }

    fn move_island(&self, island: IslandId, to: NodeId) -> Result<(), String> {
        let me = self.volume.node();
        let Some(copy) = self.volume.copy(island) else { return Err(String::new()) };
        let in_sync = copy.status().in_sync;
        match copy.role() {
            Role::Leading { begun: true, .. } if me == to => Ok(()),
            Role::Leading { .. } if !in_sync.contains(&to) => {
                let in_sync: Vec<String> = in_sync.iter().map(ToString::to_string).collect();
                Err(format!(
                    "The copy of island {island} on node {to} is not in sync, so it cannot lead.\nIn sync are nodes {}.",
                    in_sync.join(", ")
                ))
            }
            Role::Leading { .. } => {
                copy.tell(GroupEvent::Leave { to: Some(to) });
                Err(String::new())
            }
            _ => Err(String::new()),
        }
    }

    fn force_island(&self, island: IslandId) -> Result<(), String> {
        let me = self.volume.node();
        let Some(copy) = self.volume.copy(island) else {
            return Err(format!("Node {me} has no copy of island {island}, or does not serve it yet."));
        };
        match copy.role() {
            Role::Leading { epoch, .. } => {
                return Err(format!(
                    "The copy of island {island} on node {me} leads already, in epoch {epoch}."
                ));
            }
            Role::Halted => {
                return Err(format!(
                    "The copy of island {island} on node {me} has stopped, so it cannot lead.\n\
                     \"atoll status\" says why. Start the node again, and then give the order again."
                ));
            }
            _ => copy.tell(GroupEvent::Force),
        }
        if copy.with_group(Group::is_forced) {
            return Ok(());
        }
        Err(format!(
            "The copy of island {island} on node {me} hears another one that leads: nothing need be lost.\n\
             To have it lead when it is in sync: atoll island move"
        ))
    }

    fn seats(&self) -> Vec<ToldSeat> {
        let (config, me) = (self.volume.config(), self.volume.node());
        let mine = config.islands().into_iter().filter(|island| config.group_of(*island).contains(&me));
        let read = |island: IslandId| {
            // The copy writes the file meanwhile, and nobody else may: reading it makes sure of a slot.
            let beside = Arc::new(Overlay::new((self.beside)(&self.folder).ok()?));
            let seat = SeatStore::new(beside, format!("{island}.seat").into_bytes()).load().ok()??;
            let stored = |(revision, record)| StoredGroup { island, revision: Revision(revision), record };
            Some(ToldSeat { island, seen: seat.seen, record: seat.record.map(stored) })
        };
        mine.filter_map(read).collect()
    }

    fn trace(&self, ino: Ino) -> Vec<Trace> {
        let mut traces = Vec::new();
        for island in self.volume.islands() {
            let copy = self.volume.copy(island);
            let Some(engine) = self.engine(island, copy.as_deref()) else { continue };
            // What changed since the last checkpoint is in memory only, the rest maybe only below.
            let (owns, home) = engine.with_state(|state| {
                let owns = state.dir(ino).map(|row| row.map(|dir| dir.owned.is_some()));
                (owns, state.inode(ino).map(|row| row.is_some()))
            });
            let below = |key: RowKey| match engine.load(&RowLoad::Row(key)) {
                Ok(LoadedRows::Row(row)) => row,
                _ => None,
            };
            let owns = owns.unwrap_or_else(|_| {
                use atoll_core::Decode;
                let row = below(RowKey::Dir(ino))?;
                Some(atoll_proto::Dir::from_slice(&row).ok()?.owned.is_some())
            });
            let home = home.unwrap_or_else(|_| below(RowKey::Inode(ino)).is_some());
            let place = self.folder.join(island.to_string());
            let body = || {
                use std::os::unix::ffi::OsStrExt;
                let path = engine.bodies().path(ino);
                place.join(std::ffi::OsStr::from_bytes(&path)).display().to_string()
            };
            traces.push(Trace {
                island,
                node: self.volume.node(),
                owns: owns == Some(true),
                skeleton: owns.is_some(),
                home,
                tree: place.join("tree").display().to_string(),
                body: home.then(body),
                group: copy.map(|copy| copy.status()),
                site: None,
            });
        }
        traces
    }

    fn weigh(&self) -> Vec<IslandWeight> {
        let of_island = |island: IslandId| {
            let copy = self.volume.copy(island);
            let weight = self.engine(island, copy.as_deref())?.weigh();
            weight.inspect_err(|why| tracing::warn!("island {island} cannot be counted: {why}")).ok()?
        };
        self.volume.islands().into_iter().filter_map(of_island).collect()
    }

    fn leave(&self) {
        self.volume.leave();
    }

    fn stop(&self) -> Vec<String> {
        self.end_care();
        let name = self.volume.name();
        let mut stopped = self.volume.stop();
        // Those that were not let in.
        let opened = self.opened();
        for engine in opened.iter().flat_map(|opened| opened.engines.values()) {
            stopped = stopped.and(engine.stop());
        }
        let stopped = stopped.err().map(|why| format!("Volume {name}: {why}"));
        if self.volume.reached().is_empty() {
            // What was noted of islands that were not opened stays.
            return stopped.into_iter().collect();
        }
        let noted = note_reached(&self.folder, &self.noted()).or_else(unless_full);
        let noted = noted.err().map(|why| format!("Volume {name}: {}: {why}", self.folder.display()));
        stopped.into_iter().chain(noted).collect()
    }
}
