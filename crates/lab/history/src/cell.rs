//! The tree as cells with numbers in them, and the cells that an operation reads and writes.
//!
//! The search knows only this of a file system: two operations that have no cell in common, or only read or
//! count in common cells, give the same result in either order.

use std::collections::HashMap;

/// An object, by its place in the tables of the checker.
pub(crate) type Obj = u32;
/// A name, by its place in the tables of the checker.
pub(crate) type NameId = u32;
/// An operation, by its place in the list of steps.
pub(crate) type StepId = u32;

/// Nobody wrote it: so the history begins.
pub(crate) const BEGIN: StepId = StepId::MAX;

/// A part of the tree that has one value. All are 0 before somebody writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cell {
    /// What has the name: 0, or the object plus 1.
    Entry(Obj, NameId),
    /// How many names are in a directory.
    Count(Obj),
    /// A `Kind` plus 1.
    Kind(Obj),
    /// How many names a file has; whether a directory is there.
    Nlink(Obj),
    /// The directory of a directory's name, plus 1.
    Parent(Obj),
    /// The mode plus 1; 0 if it was not told.
    Mode(Obj),
    /// In blocks.
    Size(Obj),
    /// What was written there.
    Block(Obj, u64),
    /// Of an object whose number nobody was told when it was made: whether that is known now.
    Bound(Obj),
    /// Of a number: which object of unknown number it turned out to be, plus 1.
    Stands(Obj),
}

/// What an operation does with a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Adds to it or takes from it, without looking.
    Add,
    Write,
}

/// Cells, each with the strongest access to it. In the order of cells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    list: Vec<(Cell, Access)>,
}

impl Footprint {
    pub(crate) fn note(&mut self, cell: Cell, access: Access) {
        match self.list.binary_search_by(|(c, _)| c.cmp(&cell)) {
            Ok(at) if self.list[at].1 == access => {}
            // To read and to add is not to add without looking.
            Ok(at) => self.list[at].1 = Access::Write,
            Err(at) => self.list.insert(at, (cell, access)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Cell, Access)> {
        self.list.iter().copied()
    }

    /// Whether the order of the two matters.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.list.iter().peekable(), other.list.iter().peekable());
        while let (Some((x, with)), Some((y, against))) = (a.peek(), b.peek()) {
            match x.cmp(y) {
                std::cmp::Ordering::Less => a.next(),
                std::cmp::Ordering::Greater => b.next(),
                std::cmp::Ordering::Equal => {
                    if with != against || *with == Access::Write {
                        return true;
                    }
                    a.next();
                    b.next()
                }
            };
        }
        false
    }
}

/// The values that are certain, each with who wrote it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Base {
    cells: HashMap<Cell, (u64, StepId)>,
}

impl Base {
    pub(crate) fn get(&self, cell: Cell) -> (u64, StepId) {
        self.cells.get(&cell).copied().unwrap_or((0, BEGIN))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Cell, u64)> {
        self.cells.iter().map(|(cell, (value, _))| (*cell, *value))
    }

    pub(crate) fn set(&mut self, cell: Cell, value: u64, by: StepId) {
        self.cells.insert(cell, (value, by));
    }
}

/// Values that differ from the base's, in the order of cells, each with who wrote it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Over {
    pub(crate) cells: Vec<(Cell, u64, StepId)>,
}

impl Over {
    pub(crate) fn get(&self, cell: Cell) -> Option<(u64, StepId)> {
        let at = self.cells.binary_search_by(|(c, ..)| c.cmp(&cell)).ok()?;
        Some((self.cells[at].1, self.cells[at].2))
    }

    pub(crate) fn set(&mut self, base: &Base, cell: Cell, value: u64, by: StepId) {
        let same = base.get(cell).0 == value;
        match self.cells.binary_search_by(|(c, ..)| c.cmp(&cell)) {
            Ok(at) if same => drop(self.cells.remove(at)),
            Ok(at) => self.cells[at] = (cell, value, by),
            Err(_) if same => {}
            Err(at) => self.cells.insert(at, (cell, value, by)),
        }
    }

    /// The values, without who wrote them.
    pub(crate) fn values(&self) -> impl Iterator<Item = (Cell, u64)> {
        self.cells.iter().map(|(cell, value, _)| (*cell, *value))
    }
}

/// The tree as one operation sees and changes it.
pub(crate) struct Tree<'a> {
    pub(crate) base: &'a Base,
    pub(crate) over: &'a mut Over,
    /// Who is looking.
    pub(crate) by: StepId,
    /// What was touched.
    pub(crate) touched: &'a mut Footprint,
}

impl Tree<'_> {
    fn look(&self, cell: Cell) -> u64 {
        self.over.get(cell).map_or_else(|| self.base.get(cell).0, |(value, _)| value)
    }

    pub(crate) fn get(&mut self, cell: Cell) -> u64 {
        self.touched.note(cell, Access::Read);
        self.look(cell)
    }

    pub(crate) fn set(&mut self, cell: Cell, value: u64) {
        self.touched.note(cell, Access::Write);
        self.over.set(self.base, cell, value, self.by);
    }

    pub(crate) fn add(&mut self, cell: Cell, delta: i64) {
        self.touched.note(cell, Access::Add);
        let value = self.look(cell).wrapping_add_signed(delta);
        self.over.set(self.base, cell, value, self.by);
    }
}
