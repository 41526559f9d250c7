//! Ids and names that have changed and that the view has not laid yet. They are in memory while they are few,
//! and in the snapshot only beyond that. So memory is bounded however far the view is behind.
//!
//! Never reads the snapshot: it says which rows to read next, and takes them in.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;

use atoll_core::map::{IdMap, IdSet};
use atoll_core::{Ino, Name};

use crate::key::RowKey;

/// Ids and names that wait in memory when a checkpoint ends; if there are more, they wait in the
/// snapshot.
pub const WAITING_MAX: usize = 1 << 14;

/// Ids, and names with their directories.
pub type ToLay = (Vec<Ino>, Vec<(Ino, Name)>);

const NAME_TAG: u8 = b'w';
const INO_TAG: u8 = b'v';

/// Waiting -> Laid -> Settled -> gone. A change brings an item back to Waiting from anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has changed.
    Waiting,
    /// The view has taken it, and a power cut may take back what the view makes of it.
    Laid,
    /// It can be forgotten, but for its row.
    Settled,
}

/// An item's row in the snapshot. There must be one from the first checkpoint in one of the first two
/// stages to the first one in the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// None.
    Missing,
    /// Perhaps one, of an earlier change.
    Stale,
    /// The checkpoint that is being written has it.
    Frozen,
    /// It is there.
    Stored,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    stage: Stage,
    row: Row,
}

impl Item {
    fn go(&mut self, stage: Stage, counts: &mut Counts) {
        *counts.of(self.stage) -= 1;
        *counts.of(stage) += 1;
        self.stage = stage;
    }

    fn change(&mut self, counts: &mut Counts) {
        self.go(Stage::Waiting, counts);
        if self.row != Row::Missing {
            self.row = Row::Stale;
        }
    }

    /// What the checkpoint that begins now does: writes a row (true), or removes it.
    fn freeze(&mut self) -> Option<bool> {
        match (self.stage, self.row) {
            (Stage::Waiting | Stage::Laid, Row::Missing | Row::Stale) => {
                self.row = Row::Frozen;
                Some(true)
            }
            (Stage::Settled, _) => Some(false),
            _ => None,
        }
    }
}

/// How many items are in each stage.
#[derive(Debug, Clone, Default)]
struct Counts([usize; 3]);

impl Counts {
    fn of(&mut self, stage: Stage) -> &mut usize {
        &mut self.0[stage as usize]
    }

    fn get(&self, stage: Stage) -> usize {
        self.0[stage as usize]
    }
}

/// How far the rows of the snapshot have been read, while items wait there only.
#[derive(Debug, Clone)]
struct Pass {
    /// Rows of later checkpoints may have come behind the place that was read.
    upto: u64,
    /// The first key that was not read. First names, then ids: an id that is gone can be forgotten
    /// when all names that it had are natively gone.
    from: Vec<u8>,
}

impl Pass {
    fn new(upto: u64) -> Self {
        Self { upto, from: vec![NAME_TAG] }
    }
}

/// What the view has yet to lay out. See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    inos: IdMap<Ino, Item>,
    names: BTreeMap<(Ino, Name), Item>,
    counts: Counts,
    /// Counts checkpoints; a row says which one wrote it.
    freeze: u64,
    /// The last one that left items in the snapshot only.
    spilled: u64,
    /// There while items wait in the snapshot only.
    pass: Option<Pass>,
    /// What was taken last is being laid.
    laying: bool,
    /// Their bodies changed without a record that says so, and the view has not looked at them since.
    disturbed: IdSet<Ino>,
}

impl Pending {
    /// The row of an item that memory does not have.
    const fn unknown(&self) -> Row {
        if self.pass.is_some() { Row::Stale } else { Row::Missing }
    }

    pub(crate) fn ino_changed(&mut self, ino: Ino) {
        if let Some(item) = self.inos.get_mut(&ino) {
            return item.change(&mut self.counts);
        }
        *self.counts.of(Stage::Waiting) += 1;
        self.inos.insert(ino, Item { stage: Stage::Waiting, row: self.unknown() });
    }

    /// Its body has changed, or may have, and there will be no record that says so.
    pub(crate) fn disturbed(&mut self, ino: Ino) {
        self.ino_changed(ino);
        self.disturbed.insert(ino);
    }

    pub(crate) fn is_disturbed(&self, ino: Ino) -> bool {
        self.disturbed.contains(&ino)
    }

    /// The view looks at what it has made of this id, and will know it as that.
    pub(crate) fn looked_at(&mut self, ino: Ino) {
        self.disturbed.remove(&ino);
    }

    pub(crate) fn name_changed(&mut self, dir: Ino, name: &Name) {
        let row = self.unknown();
        match self.names.entry((dir, name.clone())) {
            Place::Occupied(mut item) => item.get_mut().change(&mut self.counts),
            Place::Vacant(place) => {
                *self.counts.of(Stage::Waiting) += 1;
                place.insert(Item { stage: Stage::Waiting, row });
            }
        }
    }

    fn items(&mut self) -> impl Iterator<Item = &mut Item> {
        self.inos.values_mut().chain(self.names.values_mut())
    }

    fn retain(&mut self, mut keep: impl FnMut(&Item) -> bool) {
        let counts = &mut self.counts;
        let mut stays = |item: &Item| {
            let stays = keep(item);
            *counts.of(item.stage) -= usize::from(!stays);
            stays
        };
        self.inos.retain(|_, item| stays(item));
        self.names.retain(|_, item| stays(item));
        self.inos.shrink_to(WAITING_MAX);
    }

    // --------------------------------------------------------------- checkpoint

    /// Hands every row to `write` that the checkpoint which begins now has to write or to remove.
    pub(crate) fn freeze(&mut self, mut write: impl FnMut(RowKey, Option<u64>)) {
        self.freeze += 1;
        let mut put = |key: &dyn Fn() -> RowKey, item: &mut Item| {
            if let Some(is_there) = item.freeze() {
                write(key(), is_there.then_some(self.freeze));
            }
        };
        for (ino, item) in &mut self.inos {
            put(&|| RowKey::View(*ino), item);
        }
        for ((dir, name), item) in &mut self.names {
            put(&|| RowKey::ViewName(*dir, name.clone()), item);
        }
        self.retain(|item| item.stage != Stage::Settled);
    }

    /// The checkpoint is in the snapshot: memory need not hold what waits there.
    pub(crate) fn thaw(&mut self) {
        for item in self.items() {
            if item.row == Row::Frozen {
                item.row = Row::Stored;
            }
        }
        self.spill();
    }

    fn spill(&mut self) {
        let waiting = self.counts.get(Stage::Waiting);
        if self.pass.is_some() || waiting > WAITING_MAX {
            self.retain(|item| (item.stage, item.row) != (Stage::Waiting, Row::Stored));
            if self.counts.get(Stage::Waiting) < waiting {
                self.spilled = self.freeze;
                self.pass.get_or_insert(Pass::new(self.freeze));
            }
        }
    }

    /// Rows that the next checkpoint would remove.
    pub(crate) fn settled_len(&self) -> usize {
        self.counts.get(Stage::Settled)
    }

    /// Takes in a row when the snapshot is opened, with the checkpoint that wrote it.
    pub(crate) fn open(&mut self, key: &RowKey, freeze: u64) {
        let item = Item { stage: Stage::Waiting, row: Row::Stored };
        let news = match key {
            RowKey::View(ino) => self.inos.insert(*ino, item).is_none(),
            RowKey::ViewName(dir, name) => self.names.insert((*dir, name.clone()), item).is_none(),
            _ => false,
        };
        *self.counts.of(Stage::Waiting) += usize::from(news);
        self.freeze = self.freeze.max(freeze);
        self.spill();
        if let Some(pass) = &mut self.pass {
            (self.spilled, pass.upto) = (self.freeze, self.freeze);
        }
    }

    // ------------------------------------------------------------------- laying

    /// The keys from which to which the snapshot has to be read next, if items wait there only.
    pub(crate) fn wanted(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.pass.as_ref().map(|pass| (pass.from.clone(), vec![pass.from[0] + 1]))
    }

    /// Items wait in the snapshot only.
    pub(crate) const fn is_far_behind(&self) -> bool {
        self.pass.is_some()
    }

    /// Takes everything that waits. None may wait in the snapshot only.
    pub(crate) fn take(&mut self) -> ToLay {
        assert!(self.pass.is_none(), "the snapshot must be read first");
        self.laying = true;
        let counts = &mut self.counts;
        let mut take = |item: &mut Item| {
            let waits = item.stage == Stage::Waiting;
            if waits {
                item.go(Stage::Laid, counts);
            }
            waits
        };
        let inos = self.inos.iter_mut().filter_map(|(ino, item)| take(item).then_some(*ino)).collect();
        let names = self.names.iter_mut().filter_map(|(key, item)| take(item).then(|| key.clone())).collect();
        (inos, names)
    }

    /// Takes rows that were read from where [`Pending::wanted`] says, with the checkpoints that wrote
    /// them. `more`: not all to the end of the keys.
    pub(crate) fn take_page(&mut self, rows: Vec<(RowKey, u64)>, more: bool) -> ToLay {
        self.laying = true;
        let Some(pass) = &mut self.pass else { return ToLay::default() };
        let upto = pass.upto;
        if let Some((last, _)) = rows.last().filter(|_| more) {
            pass.from = last.to_bytes();
            pass.from.push(0);
        } else if pass.from[0] == NAME_TAG {
            pass.from = vec![INO_TAG];
        } else {
            self.pass = (self.spilled > upto).then(|| Pass::new(self.spilled));
        }
        let (mut inos, mut names) = ToLay::default();
        for (key, freeze) in rows {
            match key {
                RowKey::ViewName(dir, name) => {
                    let key = (dir, name);
                    match self.names.get(&key).map(|item| item.stage) {
                        None => {
                            *self.counts.of(Stage::Laid) += 1;
                            self.names.insert(key.clone(), Item { stage: Stage::Laid, row: Row::Stored });
                            names.push(key);
                        }
                        // It has changed again, and comes again. Now too, so that after this pass no
                        // name is a link to what was gone when it began.
                        Some(Stage::Waiting) => names.push(key),
                        Some(Stage::Laid | Stage::Settled) => {}
                    }
                }
                // One that has changed since the pass began comes with the next one, after its names.
                RowKey::View(ino) if freeze <= upto && self.take_ino(ino) => inos.push(ino),
                _ => {}
            }
        }
        (inos, names)
    }

    /// Takes an id that is laid together with a name of it, unless its turn comes anyway.
    pub(crate) fn take_ino(&mut self, ino: Ino) -> bool {
        let news = !self.inos.contains_key(&ino);
        if news {
            *self.counts.of(Stage::Laid) += 1;
            self.inos.insert(ino, Item { stage: Stage::Laid, row: Row::Stored });
        }
        news
    }

    /// What was laid, and was not taken back by a change since, survives a power cut.
    pub(crate) fn settle(&mut self) {
        let Self { inos, names, counts, .. } = self;
        let items = inos.values_mut().chain(names.values_mut());
        items.filter(|item| item.stage == Stage::Laid).for_each(|item| item.go(Stage::Settled, counts));
        // Nothing is to be done for those that no checkpoint has seen.
        self.retain(|item| (item.stage, item.row) != (Stage::Settled, Row::Missing));
        if self.pass.is_none() {
            // The others are gone.
            self.disturbed.retain(|ino| self.inos.contains_key(ino));
        }
    }

    /// What was laid and is not settled waits again.
    pub(crate) fn lay_again(&mut self) {
        let Self { inos, names, counts, .. } = self;
        let items = inos.values_mut().chain(names.values_mut());
        items.filter(|item| item.stage == Stage::Laid).for_each(|item| item.go(Stage::Waiting, counts));
    }

    /// Items that were laid and are not settled.
    pub(crate) fn laid_len(&self) -> usize {
        self.counts.get(Stage::Laid)
    }

    /// The id has changed since it was taken.
    pub(crate) fn waits(&self, ino: Ino) -> bool {
        self.inos.get(&ino).is_some_and(|item| item.stage == Stage::Waiting)
    }

    /// What was taken is laid, or was given up.
    pub(crate) const fn laid(&mut self) {
        self.laying = false;
    }

    /// Nothing of an id waits to be laid, or is being laid.
    pub(crate) fn is_done_with(&self, ino: Ino) -> bool {
        let busy = |item: &Item| item.stage == Stage::Waiting || (self.laying && item.stage == Stage::Laid);
        self.pass.is_none() && !self.inos.get(&ino).is_some_and(busy)
    }

    /// Nothing waits to be laid.
    pub(crate) fn is_drained(&self) -> bool {
        self.pass.is_none() && self.counts.get(Stage::Waiting) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The pending with a snapshot of its rows, as the engine and the view's thread use them.
    #[derive(Clone, Default)]
    struct World {
        pending: Pending,
        snapshot: BTreeMap<Vec<u8>, u64>,
        written: Vec<(Vec<u8>, Option<u64>)>,
    }

    const PAGE: usize = 1000;

    impl World {
        fn freeze(&mut self) {
            let written = &mut self.written;
            self.pending.freeze(|key, freeze| written.push((key.to_bytes(), freeze)));
        }

        fn thaw(&mut self) {
            for (key, freeze) in self.written.drain(..) {
                match freeze {
                    Some(freeze) => drop(self.snapshot.insert(key, freeze)),
                    None => drop(self.snapshot.remove(&key)),
                }
            }
            self.pending.thaw();
        }

        fn checkpoint(&mut self) {
            self.freeze();
            self.thaw();
        }

        fn lay(&mut self) -> ToLay {
            let Some((from, to)) = self.pending.wanted() else { return self.pending.take() };
            let rows: Vec<_> = self.snapshot.range(from..to).take(PAGE).collect();
            let more = rows.len() == PAGE;
            let rows = rows.into_iter().map(|(key, freeze)| (RowKey::from_bytes(key).unwrap(), *freeze));
            self.pending.take_page(rows.collect(), more)
        }

        fn lay_all(&mut self) -> BTreeSet<RowKey> {
            let mut laid = BTreeSet::new();
            while !self.pending.is_drained() {
                let (inos, names) = self.lay();
                laid.extend(inos.into_iter().map(RowKey::View));
                laid.extend(names.into_iter().map(|(dir, name)| RowKey::ViewName(dir, name)));
            }
            laid
        }

        fn reopen(&mut self) {
            self.written.clear();
            self.pending = Pending::default();
            for (key, freeze) in &self.snapshot {
                self.pending.open(&RowKey::from_bytes(key).unwrap(), *freeze);
            }
        }
    }

    fn name(n: u64) -> Name {
        Name::new(format!("n{n}").as_bytes()).unwrap()
    }

    fn all(ids: std::ops::Range<u64>) -> BTreeSet<RowKey> {
        let of = |n| [RowKey::View(Ino(n)), RowKey::ViewName(Ino(1), name(n))];
        ids.flat_map(of).collect()
    }

    fn change(world: &mut World, ids: std::ops::Range<u64>) {
        for n in ids {
            world.pending.ino_changed(Ino(n));
            world.pending.name_changed(Ino(1), &name(n));
        }
    }

    const MANY: u64 = 3 * WAITING_MAX as u64;

    #[test]
    fn what_is_laid_and_settled_between_two_checkpoints_leaves_no_row() {
        let mut world = World::default();
        change(&mut world, 10..20);
        assert_eq!(world.lay_all(), all(10..20));
        world.pending.settle();
        world.freeze();
        assert!(world.written.is_empty(), "nothing to write and nothing to remove");
    }

    #[test]
    fn what_is_not_settled_is_laid_again_after_a_crash() {
        let mut world = World::default();
        change(&mut world, 10..20);
        world.lay_all();
        world.checkpoint();
        world.reopen();
        assert_eq!(world.lay_all(), all(10..20));
        world.pending.settle();
        world.checkpoint();
        assert!(world.snapshot.is_empty());
    }

    #[test]
    fn what_is_not_settled_is_laid_again_when_the_view_has_lost_it() {
        for (many, checkpoints) in [(10, false), (10, true), (MANY, true)] {
            let mut world = World::default();
            change(&mut world, 0..many);
            if checkpoints {
                world.checkpoint();
            }
            let (_, names) = world.lay();
            world.pending.settle();
            change(&mut world, 0..1);
            world.lay();
            world.pending.lay_again();
            if checkpoints {
                world.checkpoint();
            }
            let settled: BTreeSet<_> =
                names.into_iter().map(|(dir, name)| RowKey::ViewName(dir, name)).collect();
            let again = world.lay_all();
            assert!(again.is_superset(&all(0..1)));
            let not_settled = |key: &&RowKey| matches!(key, RowKey::ViewName(..)) && !settled.contains(key);
            assert!(all(0..many).iter().filter(not_settled).all(|key| again.contains(key)));
            world.pending.settle();
            world.checkpoint();
            assert!(world.snapshot.is_empty());
        }
    }

    #[test]
    fn memory_is_bounded_however_far_the_view_is_behind() {
        let mut world = World::default();
        for from in (0..MANY).step_by(1000) {
            change(&mut world, from..from + 1000);
            world.checkpoint();
            assert!(world.pending.inos.len() + world.pending.names.len() <= WAITING_MAX + 2000);
        }
        let many = all(0..MANY.next_multiple_of(1000));
        assert_eq!(world.lay_all(), many);
        world.pending.settle();
        world.checkpoint();
        assert!(world.snapshot.is_empty() && world.pending.inos.is_empty() && world.pending.names.is_empty());
    }

    #[test]
    fn a_backlog_that_was_opened_is_laid_from_the_snapshot() {
        let mut world = World::default();
        change(&mut world, 0..MANY);
        world.checkpoint();
        world.reopen();
        assert!(world.pending.inos.len() + world.pending.names.len() <= WAITING_MAX + 1);
        change(&mut world, 5..7);
        assert_eq!(world.lay_all(), all(0..MANY));
        world.pending.settle();
        world.checkpoint();
        assert!(world.snapshot.is_empty());
    }

    #[test]
    fn a_change_during_a_pass_is_laid_again_and_its_row_stays_until_then() {
        let mut world = World::default();
        change(&mut world, 0..MANY);
        world.checkpoint();
        let (_, names) = world.lay();
        let (dir, first) = names[0].clone();
        world.pending.name_changed(dir, &first);
        world.pending.settle();
        world.checkpoint();
        let key = RowKey::ViewName(dir, first);
        assert!(world.snapshot.contains_key(&key.to_bytes()), "a crash now would lose the change");
        assert!(world.lay_all().contains(&key));
        world.pending.settle();
        world.checkpoint();
        assert!(world.snapshot.is_empty());
    }

    #[test]
    fn an_id_that_went_during_a_pass_comes_after_its_names() {
        let mut world = World::default();
        change(&mut world, 0..MANY);
        world.checkpoint();
        world.lay();
        // Its name sorts before what the pass has read; its id comes behind.
        let (early, gone) = (Name::new(b"a").unwrap(), Ino(MANY + 1));
        world.pending.name_changed(Ino(0), &early);
        world.pending.ino_changed(gone);
        world.checkpoint();
        let mut name_was_laid = false;
        while !world.pending.is_drained() {
            let (inos, names) = world.lay();
            name_was_laid |= names.contains(&(Ino(0), early.clone()));
            assert!(name_was_laid || !inos.contains(&gone));
        }
        assert!(name_was_laid);
    }

    #[test]
    fn counts_are_exact_whatever_happens() {
        let mut world = World::default();
        let mut random = 7_u64;
        for step in 0..3000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let n = (random >> 33) % 500;
            match (random >> 20) % 8 {
                0..4 => change(&mut world, n..n + 90),
                4 => world.checkpoint(),
                5 => drop(world.lay()),
                6 => world.pending.settle(),
                _ if step % 97 == 0 => world.reopen(),
                _ => {}
            }
            for stage in [Stage::Waiting, Stage::Laid, Stage::Settled] {
                let n = world.pending.items().filter(|item| item.stage == stage).count();
                assert_eq!(world.pending.counts.get(stage), n, "{stage:?}");
            }
        }
    }
}
