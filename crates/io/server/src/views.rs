//! The plain trees of a node's islands of a volume: whose trees follow here, and what is told of them. Lays nothing: [`Laying`] does.
//!
//! To lay a whole tree may take hours. So each tree has a lock of its own, and only these take one: the thread that lays, an orderly end,
//! and whoever removes the files of a copy that is closed. Whoever serves an island, or begins to, needs no tree.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use atoll_core::IslandId;
use atoll_disk::Disk;
use atoll_dispatch::{Engine, Laying};
use atoll_view::{Report, Subject};

use crate::refusals::{Refusals, SPILLED_TOLD_MAX, Spilled};

/// The islands whose trees are kept, and what each is laid from; none if that is not to be had at the moment.
pub(crate) type Kept<D> = BTreeMap<IslandId, Option<Arc<Engine<D>>>>;

/// The tree of an island.
struct Tree<D: Disk> {
    /// None if it is not open.
    laying: Option<Laying<D>>,
    /// The trouble with it that was logged.
    trouble: Option<String>,
}

impl<D: Disk> Default for Tree<D> {
    fn default() -> Self {
        Self { laying: None, trouble: None }
    }
}

impl<D: Disk> Tree<D> {
    /// Opens it for this engine, unless it is open or the engine has ended.
    fn open(&mut self, engine: &Arc<Engine<D>>, (root, devices): (bool, bool)) -> io::Result<()> {
        if self.laying.as_ref().is_some_and(|laying| laying.is_of(engine)) {
            return Ok(());
        }
        // Two views of one folder are never open.
        self.laying = None;
        // Asked under the lock: the files of an engine that was closed may be on their way out.
        if !engine.is_halted() {
            self.laying = Some(Laying::open(Arc::clone(engine), root, devices)?);
        }
        Ok(())
    }
}

/// See the module.
pub(crate) struct Views<D: Disk> {
    /// Name of the volume, for people.
    volume: String,
    /// The daemon is root, and device files are laid.
    lays_as: (bool, bool),
    /// Not held while something is laid. Each tree is.
    trees: Mutex<BTreeMap<IslandId, Arc<Mutex<Tree<D>>>>>,
    /// Refusals that were logged.
    refusals: Mutex<Refusals>,
    spilled: Mutex<BTreeMap<IslandId, Spilled>>,
}

impl<D: Disk> Views<D> {
    pub(crate) fn new(volume: String, lays_as: (bool, bool)) -> Self {
        let (trees, refusals, spilled) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { volume, lays_as, trees, refusals, spilled }
    }

    /// These are open already.
    pub(crate) fn begin(&self, opened: Vec<Laying<D>>) {
        let trees = opened.into_iter().map(|laying| {
            let island = laying.island();
            (island, Arc::new(Mutex::new(Tree { laying: Some(laying), trouble: None })))
        });
        self.trees().extend(trees);
    }

    /// Lays what has changed. True if a tree is far behind.
    pub(crate) fn round(&self, kept: &Kept<D>) -> bool {
        let is_gone = |island: &IslandId| !kept.contains_key(island);
        let gone: Vec<IslandId> = self.trees().keys().copied().filter(is_gone).collect();
        gone.into_iter().for_each(|island| self.forget(island));
        let mut far_behind = false;
        for engine in kept.values().flatten() {
            far_behind |= self.follow(engine, Laying::round);
        }
        far_behind
    }

    /// Lays all that waits, and makes it survive a power cut: before the islands stop.
    pub(crate) fn drain(&self, kept: &Kept<D>) {
        for engine in kept.values().flatten() {
            self.follow(engine, Laying::drain);
        }
    }

    /// Lets go of the tree of an island that is not kept any more. If its engine is closed, nothing is laid of it from then on.
    pub(crate) fn forget(&self, island: IslandId) {
        let tree = self.trees().remove(&island);
        if let Some(tree) = tree {
            tree.lock().expect("no panic while it is held").laying = None;
        }
        self.all_spilled().remove(&island);
    }

    /// Files of an island whose attributes the native file system refused.
    pub(crate) fn spilled(&self, island: IslandId) -> Spilled {
        self.all_spilled().get(&island).cloned().unwrap_or_default()
    }

    /// Has the tree of an engine follow it. True if it is far behind. What goes wrong is tried again: the state has everything.
    fn follow(
        &self,
        engine: &Arc<Engine<D>>,
        lay: impl FnOnce(&mut Laying<D>) -> io::Result<Report>,
    ) -> bool {
        let (volume, island) = (&self.volume, engine.id());
        let tree = self.tree(island);
        let mut tree = tree.lock().expect("no panic while it is held");
        let opened = tree.open(engine, self.lays_as);
        let mut far_behind = false;
        let followed = match &mut tree.laying {
            None => opened.map_err(|why| format!("cannot be opened: {why}")),
            Some(laying) => {
                let laid = lay(laying);
                self.note_spilled(laying);
                laid.map_err(|why| format!("cannot follow: {why}")).map(|report| {
                    self.tell_conflicts(laying, &report);
                    far_behind = laying.is_far_behind();
                })
            }
        };
        // An engine that ends meanwhile says itself why, if that is a trouble.
        let trouble = followed.err().filter(|_| !engine.is_halted());
        if let Some(why) = trouble.as_ref().filter(|why| tree.trouble.as_ref() != Some(why)) {
            tracing::error!(%volume, %island, "the plain tree {why}");
        }
        tree.trouble = trouble;
        far_behind
    }

    fn note_spilled(&self, laying: &Laying<D>) {
        let (count, some) = laying.spilled(SPILLED_TOLD_MAX);
        let some = some.into_iter().map(|ino| laying.shown(&Subject::Id(ino))).collect();
        self.all_spilled().insert(laying.island(), Spilled { count, some });
    }

    fn tell_conflicts(&self, laying: &Laying<D>, report: &Report) {
        let mut refusals = self.refusals.lock().expect("no panic while it is held");
        let (volume, island) = (&self.volume, laying.island());
        for conflict in report.conflicts.iter().filter(|conflict| refusals.is_new(island, conflict)) {
            let shown = laying.shown(&conflict.subject);
            tracing::warn!(%volume, %island, "plain tree: {shown}: {}", conflict.why);
        }
    }

    fn tree(&self, island: IslandId) -> Arc<Mutex<Tree<D>>> {
        Arc::clone(self.trees().entry(island).or_default())
    }

    fn trees(&self) -> MutexGuard<'_, BTreeMap<IslandId, Arc<Mutex<Tree<D>>>>> {
        self.trees.lock().expect("no panic while it is held")
    }

    fn all_spilled(&self) -> MutexGuard<'_, BTreeMap<IslandId, Spilled>> {
        self.spilled.lock().expect("no panic while it is held")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use atoll_client::Sink;
    use atoll_control::{ControlStore, EmbeddedStore};
    use atoll_core::{NodeId, Table, VolumeId};
    use atoll_disk::real::RealDisk;
    use atoll_proto::group::Seat;
    use atoll_proto::{Copies, IslandGroup, NodeConfig, Notice, Reply, VolumeConfig, VolumeKind};
    use atoll_rpc::DaemonId;
    use tempfile::TempDir;

    use super::*;
    use crate::copies::CopiesSetup;
    use crate::served::LocalWay;
    use crate::volume::{Volume, VolumeError, VolumeOptions};

    const HERE: IslandId = IslandId(0);
    const COMES: IslandId = IslandId(1);
    const ME: NodeId = NodeId(0);
    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(20);

    /// A client, which hears who leads.
    struct Client(Sender<IslandId>);

    impl Sink for Client {
        fn reply(&self, _: IslandId, _: u64, _: Reply, _: &[u8]) {}
        fn notice(&self, _: IslandId, _: Notice) {}
        fn reachable(&self, _: IslandId, _: bool) {}
        fn replaced(&self, _: IslandId) {}
        fn leads(&self, island: IslandId, _: u32) {
            let _ = self.0.send(island);
        }
    }

    /// The only node of a volume, which leads one island with a group. Another one, of which it has the only seat, comes later.
    struct Alone {
        volume: Arc<Volume<RealDisk>>,
        options: VolumeOptions,
        /// Islands that can be asked from here on, as a client hears.
        led: Receiver<IslandId>,
        data: TempDir,
    }

    impl Alone {
        fn new() -> Self {
            let data = tempfile::tempdir().unwrap();
            let options = VolumeOptions {
                rows_max: 10_000,
                snapshot_cache_bytes: 1 << 20,
                log: atoll_log::Config { segment_bytes: 8 << 20, ..atoll_log::Config::default() },
                root: false,
                devices: false,
                owner: (0, 0),
                daemon: DaemonId(1),
                incarnation: 1,
                directory: 1,
                is_new: true,
                reached: BTreeMap::new(),
            };
            let group = |island, node| IslandGroup { island, nodes: vec![node] };
            let copies = Copies {
                wanted: 1,
                groups: vec![group(HERE, ME), group(COMES, NodeId(1))],
                ..Copies::default()
            };
            let mut first: Vec<_> =
                copies.groups.iter().map(|group| (group.island, copies.first_record(group))).collect();
            first[1].1.in_sync = vec![Seat { node: ME, tenure: 1 }];
            let node = NodeConfig { daemon: 0, node: ME, address: String::new(), islands: vec![HERE, COMES] };
            let config = VolumeConfig {
                id: VolumeId(7),
                name: "home".into(),
                seed: 42,
                table: Table::new(2),
                nodes: vec![node],
                kind: VolumeKind::Cluster,
                copies: Some(copies),
            };
            let store = EmbeddedStore::open(&data.path().join("control.redb")).unwrap();
            store.create_groups(config.id, &first).unwrap();
            let setup = CopiesSetup {
                beside: Arc::new(RealDisk::open(data.path()).unwrap()),
                store: Arc::new(store),
                on_cut: Box::new(|_, _| {}),
                fills: Arc::default(),
            };
            let volume = Volume::greet(config, ME, &options).unwrap();
            let opened = volume.open_islands(&options, disk_of(&data), Some(setup)).unwrap();
            volume.begin(opened);
            let (send, led) = channel();
            volume.local().connect(Arc::new(Client(send)));
            let alone = Self { volume, options, led, data };
            alone.leads(HERE);
            alone
        }

        fn leads(&self, island: IslandId) {
            let is_it = |led| led == island;
            assert!(
                std::iter::from_fn(|| self.led.recv_timeout(LONG).ok()).any(is_it),
                "nobody hears that {island} is led"
            );
        }
    }

    fn disk_of(data: &TempDir) -> impl FnMut(IslandId) -> Result<Arc<RealDisk>, VolumeError> {
        |island| {
            let folder = data.path().join(island.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            Ok(Arc::new(RealDisk::open(&folder).unwrap()))
        }
    }

    #[test]
    fn an_island_is_led_while_trees_are_laid() {
        let alone = Alone::new();
        let trees = [HERE, COMES].map(|island| alone.volume.views.tree(island));
        let laid: Vec<_> = trees.iter().map(|tree| tree.lock().unwrap()).collect();
        alone.volume.open_copy(&alone.options, COMES, &mut disk_of(&alone.data)).unwrap();
        alone.leads(COMES);
        drop(laid);
        alone.volume.stop().unwrap();
    }

    #[test]
    fn a_copy_goes_while_another_tree_is_laid_and_nothing_is_laid_of_it_then() {
        let alone = Alone::new();
        let other = alone.volume.views.tree(COMES);
        let laid = other.lock().unwrap();
        let (volume, engine) = (Arc::clone(&alone.volume), alone.volume.engine(HERE).unwrap());
        let (ends, ended) = channel();
        std::thread::spawn(move || {
            let copy = volume.take_copy(HERE).unwrap();
            copy.end();
            copy.stop().unwrap();
            volume.views.forget(HERE);
            ends.send(()).unwrap();
        });
        ended.recv_timeout(LONG).expect("only its own tree is waited for");
        drop(laid);
        // A round that had begun comes to it now.
        alone.volume.views.follow(&engine, Laying::round);
        assert!(
            alone.volume.views.tree(HERE).lock().unwrap().laying.is_none(),
            "the tree of a closed copy is opened"
        );
        alone.volume.stop().unwrap();
    }
}
