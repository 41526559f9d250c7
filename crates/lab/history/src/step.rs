//! The demands of each operation, with its answer, on the tree, and its effect: the rules of POSIX that are
//! judged.
//!
//! An error is judged by its own cause alone: if several causes are there, POSIX does not say which is told.

use std::collections::{HashMap, HashSet};

use crate::cell::{Cell, NameId, Obj, Tree};
use crate::history::{How, Kind};

/// An operation with its answer, as the search runs it.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A refusal: of one of these lists, all was so. With none, it may always be.
    Refused(Vec<Vec<Cause>>),
    /// A name that was looked up or listed.
    Has {
        dir: Obj,
        name: NameId,
        what: Has,
    },
    /// All the names of a directory at one moment: of all names that it ever had, those that were there.
    Snapshot {
        dir: Obj,
        names: Vec<(NameId, Has)>,
    },
    Stat {
        told: Told,
    },
    Read {
        file: Obj,
        at: u64,
        len: u64,
        data: Vec<u64>,
    },
    Make {
        dir: Obj,
        name: NameId,
        told: Told,
        kind: Kind,
        exclusive: bool,
        mode: Option<u32>,
    },
    Unlink {
        dir: Obj,
        name: NameId,
    },
    Rmdir {
        dir: Obj,
        name: NameId,
    },
    Rename {
        dir: Obj,
        name: NameId,
        new_dir: Obj,
        new_name: NameId,
        how: How,
    },
    Link {
        file: Obj,
        dir: Obj,
        name: NameId,
    },
    SetMode {
        file: Obj,
        mode: u32,
    },
    Write {
        file: Obj,
        at: u64,
        data: Vec<u64>,
    },
    Append {
        file: Obj,
        data: Vec<u64>,
    },
    Truncate {
        file: Obj,
        size: u64,
    },
}

/// What a name had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Has {
    Nothing,
    Something,
    Object(Told),
}

/// What was told of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) obj: Obj,
    pub(crate) kind: Option<Kind>,
    pub(crate) nlink: Option<u64>,
    pub(crate) size: Option<u64>,
    pub(crate) mode: Option<u32>,
}

/// Why an operation may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nothing has the name.
    Absent(Obj, NameId),
    /// Something has the name.
    Present(Obj, NameId),
    /// A directory has the name.
    DirectoryAt(Obj, NameId),
    /// Something else than a directory has the name.
    FileAt(Obj, NameId),
    /// A directory that has names in it has the name.
    FullAt(Obj, NameId),
    /// The object has no name any more.
    Gone(Obj),
    /// A directory has the name, and this one is it or below it.
    Below(Obj, NameId, Obj),
    /// The two names do not have the same object.
    Differ([(Obj, NameId); 2]),
}

/// Why a step does not fit: this cell had another value than it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(crate) cell: Cell,
    pub(crate) found: u64,
    pub(crate) need: Need,
}

/// What a step needs of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Zero,
    NotZero,
    Value(u64),
    /// The object is not one that has had this number and is still there.
    Free,
    /// A directory, or not one.
    Directory(bool),
    /// Not the object that is to be above it.
    NotBelow,
    /// Another object than the other name has.
    Other,
}

pub(crate) const fn entry(obj: Obj) -> u64 {
    obj as u64 + 1
}

const fn kind_value(kind: Kind) -> u64 {
    kind as u64 + 1
}

pub(crate) const DIRECTORY: u64 = kind_value(Kind::Directory);

pub(crate) fn object(value: u64) -> Obj {
    Obj::try_from(value - 1).expect("an entry holds an object")
}

/// What a run has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    Looked,
    /// Only found out which number an object has, as was guessed.
    Guessed,
    Changed,
}

/// Which objects were made without telling their number, and which numbers they seem to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers<'a> {
    /// Those from this one on.
    pub(crate) unbound: Obj,
    pub(crate) guesses: Option<&'a Guesses>,
}

/// Numbers of objects that were made without telling one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guesses {
    /// Both ways.
    pairs: HashMap<Obj, Obj>,
    /// What is guessed twice is not certain enough.
    unclear: HashSet<Obj>,
}

impl Guesses {
    pub(crate) fn add(&mut self, made: Obj, told: Obj) {
        for (a, b) in [(made, told), (told, made)] {
            if self.pairs.insert(a, b).is_some() {
                self.unclear.insert(a);
                self.unclear.insert(b);
            }
        }
    }

    fn of(&self, obj: Obj) -> Option<Obj> {
        let other = *self.pairs.get(&obj)?;
        (!self.unclear.contains(&obj) && !self.unclear.contains(&other)).then_some(other)
    }
}

impl Numbers<'_> {
    /// Whether that object may have that number, and if so, whether it is guessed so.
    fn may_be(&self, made: Obj, told: Obj) -> Option<Ran> {
        let Some(guesses) = self.guesses else { return Some(Ran::Changed) };
        match (guesses.of(made), guesses.of(told)) {
            (None, None) => Some(Ran::Changed),
            (Some(number), _) if number == told => Some(Ran::Guessed),
            _ => None,
        }
    }
}

impl Step {
    /// Whether it can change nothing but what is known of the numbers of objects.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Refused(_)
                | Self::Has { .. }
                | Self::Snapshot { .. }
                | Self::Stat { .. }
                | Self::Read { .. }
        )
    }

    /// Runs it. A step that does not fit has changed nothing.
    pub(crate) fn run(&self, tree: &mut Tree<'_>, numbers: Numbers<'_>) -> Result<Ran, Misfit> {
        match self {
            Self::Refused(causes) => refused(tree, causes),
            Self::Has { dir, name, what } => has(tree, *dir, *name, what, numbers),
            Self::Snapshot { dir, names } => {
                let before = tree.over.clone();
                let mut ran = Ran::Looked;
                for (name, what) in names {
                    match has(tree, *dir, *name, what, numbers) {
                        Ok(Ran::Changed) => ran = Ran::Changed,
                        Ok(Ran::Guessed) if ran == Ran::Looked => ran = Ran::Guessed,
                        Ok(_) => {}
                        Err(misfit) => {
                            *tree.over = before;
                            return Err(misfit);
                        }
                    }
                }
                Ok(ran)
            }
            Self::Stat { told } => {
                let obj = stands_for(tree, told.obj);
                attributes(tree, obj, told).map(|()| Ran::Looked)
            }
            Self::Read { file, at, len, data } => read(tree, *file, *at, *len, data),
            Self::Make { dir, name, told, kind, exclusive, mode } => {
                let at = open_directory(tree, *dir)?;
                let there = tree.get(Cell::Entry(at, *name));
                if !exclusive && there != 0 && told.obj < numbers.unbound {
                    is_directory(tree, object(there), false)?;
                    return has(tree, *dir, *name, &Has::Object(told.clone()), numbers);
                }
                make(tree, at, *name, told, *kind, *mode)
            }
            Self::Unlink { dir, name } => {
                let dir = stands_for(tree, *dir);
                let there = present(tree, dir, *name)?;
                is_directory(tree, there, false)?;
                tree.set(Cell::Entry(dir, *name), 0);
                tree.add(Cell::Count(dir), -1);
                tree.add(Cell::Nlink(there), -1);
                Ok(Ran::Changed)
            }
            Self::Rmdir { dir, name } => {
                let dir = stands_for(tree, *dir);
                let there = present(tree, dir, *name)?;
                is_directory(tree, there, true)?;
                need(tree, Cell::Count(there), Need::Zero)?;
                tree.set(Cell::Entry(dir, *name), 0);
                tree.add(Cell::Count(dir), -1);
                tree.set(Cell::Nlink(there), 0);
                Ok(Ran::Changed)
            }
            Self::Rename { dir, name, new_dir, new_name, how } => {
                let (dir, new_dir) = (stands_for(tree, *dir), open_directory(tree, *new_dir)?);
                rename(tree, (dir, *name), (new_dir, *new_name), *how)
            }
            Self::Link { file, dir, name } => {
                let (file, dir) = (stands_for(tree, *file), open_directory(tree, *dir)?);
                need(tree, Cell::Nlink(file), Need::NotZero)?;
                is_directory(tree, file, false)?;
                need(tree, Cell::Entry(dir, *name), Need::Zero)?;
                tree.set(Cell::Entry(dir, *name), entry(file));
                tree.add(Cell::Count(dir), 1);
                tree.add(Cell::Nlink(file), 1);
                Ok(Ran::Changed)
            }
            Self::SetMode { file, mode } => {
                let file = opened(tree, *file)?;
                tree.set(Cell::Mode(file), u64::from(*mode) + 1);
                Ok(Ran::Changed)
            }
            Self::Write { file, at, data } => {
                let file = opened(tree, *file)?;
                write(tree, file, *at, data);
                Ok(Ran::Changed)
            }
            Self::Append { file, data } => {
                let file = opened(tree, *file)?;
                let at = tree.get(Cell::Size(file));
                write(tree, file, at, data);
                Ok(Ran::Changed)
            }
            Self::Truncate { file, size } => {
                let file = opened(tree, *file)?;
                resize(tree, file, *size);
                Ok(Ran::Changed)
            }
        }
    }
}

fn need(tree: &mut Tree<'_>, cell: Cell, need: Need) -> Result<u64, Misfit> {
    let found = tree.get(cell);
    let fits = match need {
        Need::Zero => found == 0,
        Need::NotZero => found != 0,
        Need::Value(value) => found == value,
        Need::Directory(yes) => (found == DIRECTORY) == yes,
        Need::Free | Need::NotBelow | Need::Other => false,
    };
    if fits { Ok(found) } else { Err(Misfit { cell, found, need }) }
}

fn present(tree: &mut Tree<'_>, dir: Obj, name: NameId) -> Result<Obj, Misfit> {
    need(tree, Cell::Entry(dir, name), Need::NotZero).map(object)
}

fn is_directory(tree: &mut Tree<'_>, obj: Obj, yes: bool) -> Result<(), Misfit> {
    need(tree, Cell::Kind(obj), Need::Directory(yes)).map(|_| ())
}

/// The object of a number.
fn stands_for(tree: &mut Tree<'_>, obj: Obj) -> Obj {
    match tree.get(Cell::Stands(obj)) {
        0 => obj,
        unbound => object(unbound),
    }
}

/// The object of a number, which was made at some time.
fn opened(tree: &mut Tree<'_>, obj: Obj) -> Result<Obj, Misfit> {
    let obj = stands_for(tree, obj);
    need(tree, Cell::Kind(obj), Need::NotZero)?;
    Ok(obj)
}

/// The directory of a number, in which something can be made.
fn open_directory(tree: &mut Tree<'_>, dir: Obj) -> Result<Obj, Misfit> {
    let dir = stands_for(tree, dir);
    need(tree, Cell::Nlink(dir), Need::NotZero)?;
    is_directory(tree, dir, true)?;
    Ok(dir)
}

/// The number is not that of an object that is there.
fn is_free(tree: &mut Tree<'_>, obj: Obj) -> Result<(), Misfit> {
    let there = stands_for(tree, obj);
    let cell = Cell::Nlink(there);
    match tree.get(cell) {
        0 => Ok(()),
        found => Err(Misfit { cell, found, need: Need::Free }),
    }
}

fn has(tree: &mut Tree<'_>, dir: Obj, name: NameId, what: &Has, numbers: Numbers<'_>) -> Result<Ran, Misfit> {
    let dir = stands_for(tree, dir);
    let cell = Cell::Entry(dir, name);
    match what {
        Has::Nothing => need(tree, cell, Need::Zero).map(|_| Ran::Looked),
        Has::Something => need(tree, cell, Need::NotZero).map(|_| Ran::Looked),
        Has::Object(told) => {
            let there = present(tree, dir, name)?;
            if there == stands_for(tree, told.obj) {
                return attributes(tree, there, told).map(|()| Ran::Looked);
            }
            let known = there < numbers.unbound || tree.get(Cell::Bound(there)) != 0;
            let ran = numbers.may_be(there, told.obj).filter(|_| !known);
            let (Some(ran), Ok(())) = (ran, is_free(tree, told.obj)) else {
                let found = tree.get(cell);
                return Err(Misfit { cell, found, need: Need::Value(entry(told.obj)) });
            };
            attributes(tree, there, told)?;
            // Now it is known which number this one has.
            tree.set(Cell::Bound(there), 1);
            tree.set(Cell::Stands(told.obj), entry(there));
            Ok(ran)
        }
    }
}

fn attributes(tree: &mut Tree<'_>, obj: Obj, told: &Told) -> Result<(), Misfit> {
    let is = need(tree, Cell::Kind(obj), Need::NotZero)?;
    if let Some(kind) = told.kind {
        need(tree, Cell::Kind(obj), Need::Value(kind_value(kind)))?;
    }
    if let Some(nlink) = told.nlink
        && is != DIRECTORY
    {
        need(tree, Cell::Nlink(obj), Need::Value(nlink))?;
    }
    if let Some(size) = told.size
        && is != DIRECTORY
    {
        need(tree, Cell::Size(obj), Need::Value(size))?;
    }
    if let Some(mode) = told.mode
        && tree.get(Cell::Mode(obj)) != 0
    {
        need(tree, Cell::Mode(obj), Need::Value(u64::from(mode) + 1))?;
    }
    Ok(())
}

fn refused(tree: &mut Tree<'_>, causes: &[Vec<Cause>]) -> Result<Ran, Misfit> {
    let mut why = Ok(Ran::Looked);
    for all in causes {
        match all.iter().try_for_each(|cause| holds(tree, *cause)) {
            Ok(()) => return Ok(Ran::Looked),
            Err(misfit) => why = why.and(Err(misfit)),
        }
    }
    why
}

fn holds(tree: &mut Tree<'_>, cause: Cause) -> Result<(), Misfit> {
    let at = |tree: &mut Tree<'_>, dir, name| {
        let dir = stands_for(tree, dir);
        present(tree, dir, name)
    };
    match cause {
        Cause::Absent(dir, name) => {
            let dir = stands_for(tree, dir);
            need(tree, Cell::Entry(dir, name), Need::Zero).map(|_| ())
        }
        Cause::Present(dir, name) => at(tree, dir, name).map(|_| ()),
        Cause::DirectoryAt(dir, name) => {
            let there = at(tree, dir, name)?;
            is_directory(tree, there, true)
        }
        Cause::FileAt(dir, name) => {
            let there = at(tree, dir, name)?;
            is_directory(tree, there, false)
        }
        Cause::FullAt(dir, name) => {
            let there = at(tree, dir, name)?;
            need(tree, Cell::Count(there), Need::NotZero).map(|_| ())
        }
        Cause::Gone(obj) => {
            let obj = stands_for(tree, obj);
            need(tree, Cell::Nlink(obj), Need::Zero).map(|_| ())
        }
        Cause::Differ([a, b]) => {
            let [a, b] = [a, b].map(|(dir, name)| Cell::Entry(stands_for(tree, dir), name));
            match (tree.get(a), tree.get(b)) {
                (one, other) if one != other => Ok(()),
                (found, _) => Err(Misfit { cell: b, found, need: Need::Other }),
            }
        }
        Cause::Below(dir, name, below) => {
            let there = at(tree, dir, name)?;
            let below = stands_for(tree, below);
            match is_below(tree, below, there) {
                Some(_) => Ok(()),
                None => {
                    let cell = Cell::Parent(below);
                    Err(Misfit { cell, found: tree.get(cell), need: Need::Value(entry(there)) })
                }
            }
        }
    }
}

/// The directory in which it was found that `dir` is `above` or below it.
fn is_below(tree: &mut Tree<'_>, dir: Obj, above: Obj) -> Option<Obj> {
    let mut at = dir;
    loop {
        if at == above {
            return Some(at);
        }
        match tree.get(Cell::Parent(at)) {
            0 => return None,
            parent => at = object(parent),
        }
    }
}

fn make(
    tree: &mut Tree<'_>,
    dir: Obj,
    name: NameId,
    told: &Told,
    kind: Kind,
    mode: Option<u32>,
) -> Result<Ran, Misfit> {
    let obj = told.obj;
    need(tree, Cell::Entry(dir, name), Need::Zero)?;
    is_free(tree, obj)?;
    let new = [
        (Cell::Kind(obj), kind_value(kind), told.kind.map(kind_value)),
        (Cell::Nlink(obj), 1, told.nlink.filter(|_| kind != Kind::Directory)),
        (Cell::Size(obj), 0, told.size.filter(|_| kind != Kind::Directory)),
    ];
    for (cell, found, told) in new {
        if let Some(told) = told
            && told != found
        {
            return Err(Misfit { cell, found, need: Need::Value(told) });
        }
    }
    tree.set(Cell::Entry(dir, name), entry(obj));
    tree.add(Cell::Count(dir), 1);
    tree.set(Cell::Stands(obj), 0);
    tree.set(Cell::Kind(obj), kind_value(kind));
    tree.set(Cell::Nlink(obj), 1);
    tree.set(Cell::Mode(obj), mode.or(told.mode).map_or(0, |mode| u64::from(mode) + 1));
    if kind == Kind::Directory {
        tree.set(Cell::Count(obj), 0);
        tree.set(Cell::Parent(obj), entry(dir));
    }
    resize(tree, obj, 0);
    Ok(Ran::Changed)
}

fn rename(
    tree: &mut Tree<'_>,
    (dir, name): (Obj, NameId),
    (new_dir, new_name): (Obj, NameId),
    how: How,
) -> Result<Ran, Misfit> {
    let (from, to) = (Cell::Entry(dir, name), Cell::Entry(new_dir, new_name));
    let moved = present(tree, dir, name)?;
    let moves_directory = tree.get(Cell::Kind(moved)) == DIRECTORY;
    if moves_directory && dir != new_dir {
        not_below(tree, new_dir, moved)?;
    }
    let replaced = match how {
        How::Exchange => {
            let other = present(tree, new_dir, new_name)?;
            let other_is_directory = tree.get(Cell::Kind(other)) == DIRECTORY;
            if other_is_directory && dir != new_dir {
                not_below(tree, dir, other)?;
            }
            if other == moved {
                return Ok(Ran::Looked);
            }
            tree.set(from, entry(other));
            tree.set(to, entry(moved));
            if dir != new_dir {
                if moves_directory {
                    tree.set(Cell::Parent(moved), entry(new_dir));
                }
                if other_is_directory {
                    tree.set(Cell::Parent(other), entry(dir));
                }
            }
            return Ok(Ran::Changed);
        }
        How::NoReplace => need(tree, to, Need::Zero)?,
        How::Replace => tree.get(to),
    };
    if replaced == entry(moved) {
        return Ok(Ran::Looked);
    }
    if replaced != 0 {
        let replaced = object(replaced);
        is_directory(tree, replaced, moves_directory)?;
        if moves_directory {
            need(tree, Cell::Count(replaced), Need::Zero)?;
            tree.set(Cell::Nlink(replaced), 0);
        } else {
            tree.add(Cell::Nlink(replaced), -1);
        }
        tree.add(Cell::Count(dir), -1);
    } else if dir != new_dir {
        tree.add(Cell::Count(dir), -1);
        tree.add(Cell::Count(new_dir), 1);
    }
    tree.set(from, 0);
    tree.set(to, entry(moved));
    if moves_directory && dir != new_dir {
        tree.set(Cell::Parent(moved), entry(new_dir));
    }
    Ok(Ran::Changed)
}

fn not_below(tree: &mut Tree<'_>, dir: Obj, above: Obj) -> Result<(), Misfit> {
    match is_below(tree, dir, above) {
        None => Ok(()),
        Some(at) => {
            let cell = Cell::Parent(at);
            Err(Misfit { cell, found: tree.get(cell), need: Need::NotBelow })
        }
    }
}

fn read(tree: &mut Tree<'_>, file: Obj, at: u64, len: u64, data: &[u64]) -> Result<Ran, Misfit> {
    let file = opened(tree, file)?;
    let cell = Cell::Size(file);
    let size = tree.get(cell);
    let told = data.len() as u64;
    if told != len.min(size.saturating_sub(at)) {
        return Err(Misfit { cell, found: size, need: Need::Value(at + told) });
    }
    for (block, value) in (at..).zip(data) {
        need(tree, Cell::Block(file, block), Need::Value(*value))?;
    }
    Ok(Ran::Looked)
}

fn write(tree: &mut Tree<'_>, file: Obj, at: u64, data: &[u64]) {
    for (block, value) in (at..).zip(data) {
        tree.set(Cell::Block(file, block), *value);
    }
    let end = at + data.len() as u64;
    if !data.is_empty() && tree.get(Cell::Size(file)) < end {
        tree.set(Cell::Size(file), end);
    }
}

fn resize(tree: &mut Tree<'_>, file: Obj, size: u64) {
    for block in size..tree.get(Cell::Size(file)) {
        tree.set(Cell::Block(file, block), 0);
    }
    tree.set(Cell::Size(file), size);
}

impl Told {
    pub(crate) fn only(obj: Obj) -> Self {
        Self { obj, kind: None, nlink: None, size: None, mode: None }
    }
}
