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

use crate::abreast::abreast;
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
        abreast(kept.values().flatten(), |engine| self.follow(engine, Laying::drain));
    }

    /// Lets go of all trees.
    pub(crate) fn close(&self) {
        let trees = std::mem::take(&mut *self.trees());
        abreast(trees.into_values(), drop);
    }

    /// Lets go of the tree of an island that is not kept any more. If its engine is closed, nothing is laid of it from then on.
    pub(crate) fn forget(&self, island: IslandId) {
        let tree = self.trees().remove(&island);
        if let Some(tree) = tree {
            tree.lock().expect("no panic while it is held").laying = None;
        }
        self.all_spilled().remove(&island);
    }

    /// Files of an island whose attributes the native file system refused, and names.
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
        let names_refused = laying.refused();
        self.all_spilled().insert(laying.island(), Spilled { count, some, names_refused });
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
    use std::sync::mpsc::channel;

    use super::*;
    use crate::fixture::{Alone, COMES, HERE, LONG};

    #[test]
    fn an_island_is_led_while_trees_are_laid() {
        let alone = Alone::new();
        let trees = [HERE, COMES].map(|island| alone.volume.views.tree(island));
        let laid: Vec<_> = trees.iter().map(|tree| tree.lock().unwrap()).collect();
        alone.opens(COMES);
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
