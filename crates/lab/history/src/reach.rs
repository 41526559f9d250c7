//! The cells that a step may touch and write, whichever steps under way come before it. Too many cells cost
//! time. With too few, an order could be overlooked.

use crate::cell::{Access, Cell, Footprint, NameId, Obj};
use crate::history::How;
use crate::step::{Cause, DIRECTORY, Has, Step, Told, entry, object};

/// What a cell may hold when a step that is under way runs: what it holds now, and what others that are under
/// way may write.
pub(crate) trait Possible {
    /// Calls `each` with every value, of some more than once.
    fn values(&self, cell: Cell, each: &mut dyn FnMut(u64));
}

impl Step {
    /// All that it may touch, whatever else that is under way comes first.
    pub(crate) fn may_touch(&self, possible: &dyn Possible, unbound: Obj) -> Footprint {
        let mut all = Marks { possible, unbound, found: Footprint::default() };
        match self {
            Self::Refused(causes) => causes.iter().flatten().for_each(|cause| all.cause(*cause)),
            Self::Has { dir, name, what } => all.has(*dir, *name, what),
            Self::Snapshot { dir, names } => {
                names.iter().for_each(|(name, what)| all.has(*dir, *name, what));
            }
            Self::Stat { told } => {
                for obj in all.stands_for(told.obj) {
                    all.attributes(obj, told);
                }
            }
            Self::Read { file, at, len, .. } => {
                for file in all.opened(*file) {
                    all.read(Cell::Size(file));
                    (*at..at + len).for_each(|block| all.read(Cell::Block(file, block)));
                }
            }
            Self::Make { dir, name, told, exclusive, .. } => {
                let obj = &told.obj;
                for dir in all.opened(*dir) {
                    all.read(Cell::Nlink(dir));
                    all.add(Cell::Count(dir));
                    all.write(Cell::Entry(dir, *name));
                }
                if !exclusive {
                    all.has(*dir, *name, &Has::Object(told.clone()));
                    for dir in all.stands_for(*dir) {
                        all.objects(dir, *name).iter().for_each(|obj| all.read(Cell::Kind(*obj)));
                    }
                }
                for obj in all.stands_for(*obj) {
                    all.write(Cell::Nlink(obj));
                }
                all.write(Cell::Stands(*obj));
                all.write(Cell::Kind(*obj));
                all.write(Cell::Nlink(*obj));
                all.write(Cell::Mode(*obj));
                all.write(Cell::Size(*obj));
                all.write(Cell::Count(*obj));
                all.write(Cell::Parent(*obj));
            }
            Self::Unlink { dir, name } => {
                for dir in all.stands_for(*dir) {
                    all.removed(dir, *name);
                    for obj in all.objects(dir, *name) {
                        all.read(Cell::Kind(obj));
                        all.add(Cell::Nlink(obj));
                    }
                }
            }
            Self::Rmdir { dir, name } => {
                for dir in all.stands_for(*dir) {
                    all.removed(dir, *name);
                    for obj in all.objects(dir, *name) {
                        all.read(Cell::Kind(obj));
                        all.read(Cell::Count(obj));
                        all.write(Cell::Nlink(obj));
                    }
                }
            }
            Self::Rename { dir, name, new_dir, new_name, how } => {
                for dir in all.stands_for(*dir) {
                    for new_dir in all.opened(*new_dir) {
                        all.rename((dir, *name), (new_dir, *new_name), *how);
                    }
                }
            }
            Self::Link { file, dir, name } => {
                for dir in all.opened(*dir) {
                    all.read(Cell::Nlink(dir));
                    all.write(Cell::Entry(dir, *name));
                    all.add(Cell::Count(dir));
                }
                for file in all.stands_for(*file) {
                    all.read(Cell::Kind(file));
                    all.write(Cell::Nlink(file));
                }
            }
            Self::SetMode { file, .. } => {
                for file in all.opened(*file) {
                    all.write(Cell::Mode(file));
                }
            }
            Self::Write { file, at, data } => {
                let end = at + data.len() as u64;
                for file in all.opened(*file) {
                    (*at..end).for_each(|block| all.write(Cell::Block(file, block)));
                    let mut grows = false;
                    possible.values(Cell::Size(file), &mut |size| grows |= size < end);
                    if grows {
                        all.write(Cell::Size(file));
                    } else {
                        all.read(Cell::Size(file));
                    }
                }
            }
            // All that reads or writes data looks at the size.
            Self::Append { file, .. } | Self::Truncate { file, .. } => {
                for file in all.opened(*file) {
                    all.write(Cell::Size(file));
                }
            }
        }
        all.found
    }

    /// The values that it may write into cells which decide what others touch.
    pub(crate) fn may_write(&self, possible: &dyn Possible, each: &mut dyn FnMut(Cell, u64)) {
        let objects = |dir: Obj, name: NameId| {
            let mut found = Vec::new();
            possible.values(Cell::Entry(dir, name), &mut |value| found.push(value));
            found.retain(|value| *value != 0);
            found
        };
        match self {
            Self::Make { dir, name, told: Told { obj, .. }, .. } => {
                for dir in stand_for(possible, *dir) {
                    each(Cell::Entry(dir, *name), entry(*obj));
                    each(Cell::Parent(*obj), entry(dir));
                }
            }
            Self::Link { file, dir, name } => {
                for dir in stand_for(possible, *dir) {
                    for file in stand_for(possible, *file) {
                        each(Cell::Entry(dir, *name), entry(file));
                    }
                }
            }
            Self::Rename { dir, name, new_dir, new_name, how } => {
                for dir in stand_for(possible, *dir) {
                    for new_dir in stand_for(possible, *new_dir) {
                        let mut moves = |(dir, name), (new_dir, new_name)| {
                            for value in objects(dir, name) {
                                each(Cell::Entry(new_dir, new_name), value);
                                each(Cell::Parent(object(value)), entry(new_dir));
                            }
                        };
                        moves((dir, *name), (new_dir, *new_name));
                        if *how == How::Exchange {
                            moves((new_dir, *new_name), (dir, *name));
                        }
                    }
                }
            }
            Self::Truncate { file, size } => {
                for file in stand_for(possible, *file) {
                    each(Cell::Size(file), *size);
                }
            }
            Self::Has { dir, name, what: Has::Object(told) } => {
                for dir in stand_for(possible, *dir) {
                    for value in objects(dir, *name) {
                        each(Cell::Stands(told.obj), value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The objects that a number may stand for.
fn stand_for(possible: &dyn Possible, obj: Obj) -> Vec<Obj> {
    let mut found = vec![obj];
    possible.values(Cell::Stands(obj), &mut |value| {
        if value != 0 && !found.contains(&object(value)) {
            found.push(object(value));
        }
    });
    found
}

/// Collects what may be touched.
struct Marks<'a> {
    possible: &'a dyn Possible,
    unbound: Obj,
    found: Footprint,
}

impl Marks<'_> {
    fn read(&mut self, cell: Cell) {
        self.found.note(cell, Access::Read);
    }

    fn add(&mut self, cell: Cell) {
        self.found.note(cell, Access::Add);
    }

    fn write(&mut self, cell: Cell) {
        self.found.note(cell, Access::Write);
    }

    fn stands_for(&mut self, obj: Obj) -> Vec<Obj> {
        self.read(Cell::Stands(obj));
        stand_for(self.possible, obj)
    }

    fn opened(&mut self, obj: Obj) -> Vec<Obj> {
        let found = self.stands_for(obj);
        found.iter().for_each(|obj| self.read(Cell::Kind(*obj)));
        found
    }

    fn objects(&self, dir: Obj, name: NameId) -> Vec<Obj> {
        let mut found = Vec::new();
        self.possible.values(Cell::Entry(dir, name), &mut |value| {
            if value != 0 && !found.contains(&object(value)) {
                found.push(object(value));
            }
        });
        found
    }

    fn removed(&mut self, dir: Obj, name: NameId) {
        self.write(Cell::Entry(dir, name));
        self.add(Cell::Count(dir));
    }

    fn attributes(&mut self, obj: Obj, told: &Told) {
        self.read(Cell::Kind(obj));
        if told.nlink.is_some() {
            self.read(Cell::Nlink(obj));
        }
        if told.size.is_some() {
            self.read(Cell::Size(obj));
        }
        if told.mode.is_some() {
            self.read(Cell::Mode(obj));
        }
    }

    fn has(&mut self, dir: Obj, name: NameId, what: &Has) {
        for dir in self.stands_for(dir) {
            self.read(Cell::Entry(dir, name));
            let Has::Object(told) = what else { continue };
            for obj in self.objects(dir, name) {
                self.attributes(obj, told);
                if obj >= self.unbound {
                    self.write(Cell::Bound(obj));
                    self.write(Cell::Stands(told.obj));
                    for other in stand_for(self.possible, told.obj) {
                        self.read(Cell::Nlink(other));
                    }
                }
            }
            self.read(Cell::Stands(told.obj));
        }
    }

    fn rename(&mut self, from: (Obj, NameId), to: (Obj, NameId), how: How) {
        for (dir, name) in [from, to] {
            self.write(Cell::Entry(dir, name));
            if how != How::Exchange {
                self.add(Cell::Count(dir));
            }
        }
        self.read(Cell::Nlink(to.0));
        self.moves(from, to);
        if how == How::Exchange {
            self.moves(to, from);
            return;
        }
        for obj in self.objects(to.0, to.1) {
            self.read(Cell::Kind(obj));
            if self.may_be_directory(obj) {
                self.read(Cell::Count(obj));
                self.write(Cell::Nlink(obj));
            } else {
                self.add(Cell::Nlink(obj));
            }
        }
    }

    /// A directory that moves to another looks at all that are above that.
    fn moves(&mut self, from: (Obj, NameId), to: (Obj, NameId)) {
        for obj in self.objects(from.0, from.1) {
            self.read(Cell::Kind(obj));
            if from.0 != to.0 && self.may_be_directory(obj) {
                self.write(Cell::Parent(obj));
                self.above(to.0);
            }
        }
    }

    fn above(&mut self, dir: Obj) {
        let mut chain = vec![dir];
        let mut at = 0;
        while at < chain.len() {
            let cell = Cell::Parent(chain[at]);
            self.read(cell);
            self.possible.values(cell, &mut |value| {
                if value != 0 && !chain.contains(&object(value)) {
                    chain.push(object(value));
                }
            });
            at += 1;
        }
    }

    /// What is known of its kind, or that nothing is.
    fn may_be_directory(&self, obj: Obj) -> bool {
        let mut may_be = false;
        self.possible.values(Cell::Kind(obj), &mut |kind| may_be |= kind == 0 || kind == DIRECTORY);
        may_be
    }

    fn cause(&mut self, cause: Cause) {
        let at = |all: &mut Self, dir, name, each: &mut dyn FnMut(&mut Self, Obj)| {
            for dir in all.stands_for(dir) {
                all.read(Cell::Entry(dir, name));
                for obj in all.objects(dir, name) {
                    each(all, obj);
                }
            }
        };
        match cause {
            Cause::Absent(dir, name) | Cause::Present(dir, name) => at(self, dir, name, &mut |_, _| {}),
            Cause::DirectoryAt(dir, name) | Cause::FileAt(dir, name) => {
                at(self, dir, name, &mut |all, obj| all.read(Cell::Kind(obj)));
            }
            Cause::FullAt(dir, name) => at(self, dir, name, &mut |all, obj| all.read(Cell::Count(obj))),
            Cause::Gone(obj) => {
                for obj in self.stands_for(obj) {
                    self.read(Cell::Nlink(obj));
                }
            }
            Cause::Differ(both) => {
                both.iter().for_each(|(dir, name)| at(self, *dir, *name, &mut |_, _| {}));
            }
            Cause::Below(dir, name, below) => {
                at(self, dir, name, &mut |_, _| {});
                for below in self.stands_for(below) {
                    self.above(below);
                }
            }
        }
    }
}
