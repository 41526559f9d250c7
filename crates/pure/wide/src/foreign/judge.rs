//! What of the changes of another site is new here: each is judged by the state of its object. Owns which changes are refused. Reads rows
//! and changes none.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{
    Context, DirChange, DirHead, DirState, FileChange, FileId, FileState, HybridStamp, Taken,
};
use atoll_spine::{LostMove, NotTaken, Spine, SpineMove, SpinePlace};

use crate::author::BundleChange;
use crate::held::{HeldChanges, SiteRows};
use crate::rows::FeedRow;

/// What becomes of the changes of another site.
pub(super) struct Judged<'a> {
    rows: &'a SiteRows<'a>,
    spine: &'a Spine,
    /// States that differ from the rows, and places of directories.
    pub(super) changes: HeldChanges,
    /// Objects whose state differs, in the order of their changes.
    pub(super) changed: Vec<FeedRow>,
    /// Directories that the spine is told of, in this order, each with its birth if the spine does not know it.
    pub(super) born: Vec<(FileId, Option<SpinePlace>)>,
    /// Moves that are new.
    pub(super) moves: Vec<SpineMove>,
    /// Moves that have no effect any more, and had some or are new.
    pub(super) lost: Vec<LostMove>,
    /// Directories that get another place by them.
    pub(super) moved: Vec<FileId>,
    /// Objects whose whole state is to be asked for, with what is known of them.
    pub(super) wants: BTreeMap<FeedRow, Context>,
    /// How many changes no site makes that keeps the rules, or do not fit what is here.
    pub(super) refused: usize,
    /// Moves of a writer that has too many in the log: until the next cut.
    pub(super) is_busy: bool,
}

impl<'a> Judged<'a> {
    pub(super) fn new(rows: &'a SiteRows<'a>, spine: &'a Spine) -> Self {
        Self {
            rows,
            spine,
            changes: HeldChanges::default(),
            changed: Vec::new(),
            born: Vec::new(),
            moves: Vec::new(),
            lost: Vec::new(),
            moved: Vec::new(),
            wants: BTreeMap::new(),
            refused: 0,
            is_busy: false,
        }
    }

    /// All changes of a bundle. Moves count behind births, whose directories they may name.
    pub(super) fn judge(&mut self, changes: &[BundleChange]) {
        let mut records = Vec::new();
        for change in changes {
            match change {
                BundleChange::FileBorn { id, state } => self.file_state(*id, state),
                BundleChange::FileChanged { id, change } => self.file_changed(*id, change),
                BundleChange::DirBorn { id, head } => self.dir_state(*id, head),
                BundleChange::DirChanged { id, change } => self.dir_changed(*id, change),
                BundleChange::DirsMoved { record } => records.push(record),
            }
        }
        records.retain(|record| self.spine.record(record.stamp()) != Some(record));
        if !records.is_empty() {
            self.dirs_moved(records);
        }
    }

    fn file(&self, id: FileId) -> Option<FileState> {
        let changed = self.changes.files.get(&id).cloned();
        changed.or_else(|| self.rows.file(id).map(|file| file.state.clone()))
    }

    fn dir(&self, id: FileId) -> Option<DirHead> {
        let changed = self.changes.dirs.get(&id).cloned();
        changed.or_else(|| self.rows.dir(id).map(|dir| dir.head.clone()))
    }

    /// A whole state of a file, as at its birth or when it was asked for.
    fn file_state(&mut self, id: FileId, state: &FileState) {
        if id == FileId::ROOT || self.dir(id).is_some() {
            self.refused += 1;
            return;
        }
        let (taken, state) = match self.file(id) {
            Some(mut own) => (own.join(state), own),
            None => (Taken::Applied, state.clone()),
        };
        self.file_taken(id, taken, state);
    }

    fn file_changed(&mut self, id: FileId, change: &FileChange) {
        let Some(mut state) = self.file(id) else {
            if id == FileId::ROOT || self.dir(id).is_some() {
                self.refused += 1;
            } else {
                self.wants.insert(FeedRow::File { id }, Context::default());
            }
            return;
        };
        let taken = state.apply(change);
        self.file_taken(id, taken, state);
    }

    fn file_taken(&mut self, id: FileId, taken: Taken, state: FileState) {
        let object = FeedRow::File { id };
        match taken {
            Taken::Applied
                if fits(state.latest()) && state.places().count() <= FileState::LINKS_TAKEN_MAX =>
            {
                self.changes.files.insert(id, state);
                self.note(object);
            }
            Taken::Known => {}
            Taken::Gap => drop(self.wants.insert(object, state.context)),
            Taken::Applied | Taken::Full => self.refused += 1,
        }
    }

    /// A whole state of a directory, as at its birth or when it was asked for.
    fn dir_state(&mut self, id: FileId, head: &DirHead) {
        let object = FeedRow::Dir { id };
        if let Some(own) = self.dir(id) {
            let whole =
                |head: DirHead| DirState { head, entries: Default::default(), based: BTreeMap::new() };
            let mut own = whole(own);
            let taken = own.join(&whole(head.clone()));
            return self.dir_taken(id, taken, own.head);
        }
        let (birth, parent) = (head.birth, head.birth.parent);
        if parent == id || birth.stamp.time_us > SpineMove::TIME_US_MAX || self.file(id).is_some() {
            self.refused += 1;
            return;
        }
        // It may be known to the spine by the evidence of a move, with a base in another directory.
        let known = self.spine.base(id).or_else(|| self.changes.places.get(&id));
        let above = known.map_or(parent, |base| base.parent);
        let is_placed = above == FileId::ROOT
            || self.changes.places.contains_key(&above)
            || self.spine.place(above).is_some();
        if !is_placed || self.dir(above).is_none() {
            self.wants.insert(FeedRow::Dir { id: above }, Context::default());
            self.wants.insert(object, Context::default());
            return;
        }
        let place = SpinePlace { parent, name: head.name.value.clone(), since: birth.stamp };
        let place = known.is_none().then_some(place);
        self.changes.places.extend(place.clone().map(|place| (id, place)));
        self.born.push((id, place));
        self.dir_taken(id, Taken::Applied, head.clone());
    }

    fn dir_changed(&mut self, id: FileId, change: &DirChange) {
        let Some(mut head) = self.dir(id) else {
            if self.file(id).is_some() {
                self.refused += 1;
            } else {
                self.wants.insert(FeedRow::Dir { id }, Context::default());
            }
            return;
        };
        let taken = head.apply(change);
        self.dir_taken(id, taken, head);
    }

    fn dir_taken(&mut self, id: FileId, taken: Taken, head: DirHead) {
        let object = FeedRow::Dir { id };
        match taken {
            Taken::Applied if fits(head.latest()) => {
                self.changes.dirs.insert(id, head);
                self.note(object);
            }
            Taken::Known => {}
            Taken::Gap => drop(self.wants.insert(object, head.context)),
            Taken::Applied | Taken::Full => self.refused += 1,
        }
    }

    fn note(&mut self, object: FeedRow) {
        if !self.changed.contains(&object) {
            self.changed.push(object);
        }
    }

    /// Moves are tried on a copy: this attempt may end for rows that are not in memory.
    fn dirs_moved(&mut self, records: Vec<&SpineMove>) {
        let mut spine = self.spine.clone();
        tell_born(&mut spine, &self.born);
        for record in records {
            match spine.receive(record.clone()) {
                Ok(moved) => {
                    self.moves.push(record.clone());
                    self.moved.extend(moved);
                }
                Err(NotTaken::BelowCut) => {}
                Err(NotTaken::TooMany) => self.is_busy = true,
                Err(NotTaken::Differs | NotTaken::Malformed(_)) => self.refused += 1,
            }
        }
        let known: BTreeSet<HybridStamp> = self.spine.lost().map(|lost| lost.stamp).collect();
        self.lost = spine.lost().filter(|lost| !known.contains(&lost.stamp)).collect();
        for dir in &self.moved {
            let place = spine.place(*dir).expect("it has moved");
            self.changes.places.insert(*dir, place.clone());
        }
    }

    /// The latest stamp of each object that changes, and those of moves.
    pub(super) fn heard(&self) -> Vec<HybridStamp> {
        let files = self.changes.files.values().map(FileState::latest);
        let dirs = self.changes.dirs.values().map(DirHead::latest);
        files.chain(dirs).chain(self.moves.iter().map(SpineMove::stamp)).collect()
    }

    /// The base of a directory that the spine does not know yet: where it is may differ, by a move that came with it.
    pub(super) fn base(&self, id: FileId) -> Option<&SpinePlace> {
        self.born.iter().find(|(born, _)| *born == id)?.1.as_ref()
    }

    /// Whether the state of an object differs.
    pub(super) fn is_changed(&self, object: FeedRow) -> bool {
        self.changed.contains(&object)
    }
}

/// Tells a spine of directories that a site has got.
pub(super) fn tell_born(spine: &mut Spine, born: &[(FileId, Option<SpinePlace>)]) {
    for (dir, place) in born {
        match place {
            Some(place) => spine.born(*dir, place.clone()),
            None => spine.hold(*dir),
        }
    }
}

/// Whether a stamp is one that can be given. There must be later ones.
const fn fits(stamp: HybridStamp) -> bool {
    stamp.time_us <= SpineMove::TIME_US_MAX
}
