//! The work of a kernel or a frontend before an operation reaches a client: it walks to the directories,
//! checks the walk, and refuses operations that make no sense. Also whole dumps of the tree.

use atoll_core::{Ino, Name};
use atoll_model::{Dump, Model};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RequestOptions};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::world::World;

/// How often a name is looked up while links may be cut.
const PATIENT_TRIES: u32 = 10;
/// Bytes of a listing that goes on behind a few names.
const LIST_BYTES: u32 = 300;

/// The file or directory that an operation is about, if it is not named by a name.
pub(crate) const fn target_of(op: &Op) -> Option<Ino> {
    match op {
        Op::Link { ino, .. } => Some(*ino),
        op => op.file(),
    }
}

pub(crate) fn is_at_or_above(model: &Model, upper: Ino, dir: Ino) -> bool {
    let mut at = Some(dir);
    while let Some(here) = at {
        if here == upper {
            return true;
        }
        at = model.parent(here).filter(|parent| *parent != here);
    }
    false
}

/// Whether a kernel would send this operation at all: it walks with the caller's permissions, to
/// directories that exist, and knows kinds.
pub(crate) fn sensible(model: &Model, caller: &Caller, op: &Op) -> bool {
    let kind = |ino: Ino| model.attr(ino).map(|a| a.kind);
    let walks = |dir: &Ino| {
        let groups = Some(caller.groups.clone().unwrap_or_default());
        model.attr(*dir).is_some_and(|a| a.nlink > 0)
            && model.may_walk(&Caller { groups, ..caller.clone() }, *dir).is_ok()
    };
    let ok = op.dirs().iter().flatten().all(walks);
    ok && match op {
        // A kernel sees itself that something would go over a directory above it.
        Op::Rename { dir, new_dir, new_name, .. } => {
            let there = model.children(*new_dir).find(|(name, _)| *name == new_name).map(|(_, ino)| ino);
            !there.is_some_and(|there| is_at_or_above(model, there, *dir))
        }
        Op::Link { ino, .. } => kind(*ino) != Some(Kind::Directory),
        // Locks are taken on what is open, and symbolic links never are.
        Op::SetLock { ino, .. } | Op::GetLock { ino, .. } => kind(*ino) != Some(Kind::Symlink),
        // A kernel sends this flag with ACLs only.
        Op::SetXattr { name, kill_sgid: true, .. } => name.starts_with(b"system.posix_acl"),
        Op::Readlink { ino } => kind(*ino) == Some(Kind::Symlink),
        Op::SetAttr { ino, set } => kind(*ino) != Some(Kind::Symlink) || set.mode.is_none(),
        Op::Fsync { ino } | Op::Seek { ino, .. } | Op::Fallocate { ino, .. } => {
            kind(*ino) == Some(Kind::Regular)
        }
        Op::Read { ino, .. } | Op::Write { ino, .. } => kind(*ino) == Some(Kind::Regular),
        Op::CopyRange { from, to, .. } => {
            kind(*from) == Some(Kind::Regular) && kind(*to) == Some(Kind::Regular)
        }
        _ => true,
    }
}

impl World {
    /// Whether the islands are asked what this caller may do, as by a frontend that has no kernel in front of it.
    pub(crate) const fn is_unchecked(&self, caller: &Caller) -> bool {
        self.config.unchecked && !caller.is_root()
    }

    /// What is asked for with a call: with one of three the attributes around it.
    pub(crate) fn options(&self, caller: &Caller, token: u64) -> RequestOptions {
        RequestOptions { unchecked: self.is_unchecked(caller), attributes: token.is_multiple_of(3) }
    }

    /// With whose permission a kernel walks: where the islands are asked, all can name every directory.
    pub(crate) const fn walker<'a>(&self, caller: &'a Caller) -> &'a Caller {
        if self.is_unchecked(caller) { &Caller::ROOT } else { caller }
    }
}

/// A name of a file, in a directory that a client sees: all, or this one and what is below it.
pub(crate) fn name_of(model: &Model, ino: Ino, scope: Option<Ino>) -> Option<(Ino, Name)> {
    let is_file = model.attr(ino).is_some_and(|attr| attr.kind != Kind::Directory && attr.nlink > 0);
    let sees = |dir: Ino| scope.is_none_or(|scope| is_at_or_above(model, scope, dir));
    let dirs = model.inos().filter(|dir| is_file && model.parent(*dir).is_some() && sees(*dir));
    dirs.flat_map(|dir| model.children(dir).map(move |(name, child)| (dir, name, child)))
        .find(|(_, _, child)| *child == ino)
        .map(|(dir, name, _)| (dir, name.clone()))
}

impl World {
    /// Has a client walk to the directories that `op` names, as the model has them.
    pub(crate) fn walk_to(&mut self, client: usize, model: &Model, op: &Op) -> Result<(), Failure> {
        let mut dirs: Vec<Ino> = op.dirs().into_iter().flatten().collect();
        let scope = self.scope_of(client);
        let named = |ino| Some((name_of(model, ino, scope)?, ino));
        let names: Vec<_> = self.files_of(client, op).filter_map(named).collect();
        dirs.extend(names.iter().map(|((dir, _), _)| *dir));
        if let Some(ino) = target_of(op)
            && model.attr(ino).is_some_and(|a| a.kind == Kind::Directory)
        {
            dirs.push(ino);
        }
        for dir in dirs {
            let mut path = Vec::new();
            let mut at = dir;
            while at != Ino::ROOT && self.clients[client].route.dirs().get(at).is_none() {
                let Some(parent) = model.parent(at) else { break };
                let name = model.children(parent).find(|(_, ino)| *ino == at).map(|(name, _)| name.clone());
                let Some(name) = name else { break };
                path.push((parent, name, at));
                at = parent;
            }
            for (parent, name, ino) in path.into_iter().rev() {
                self.walk_step(client, parent, name, ino)?;
            }
        }
        for ((dir, name), ino) in names {
            self.walk_step(client, dir, name, ino)?;
            self.clients[client].looked_up.insert(ino);
        }
        Ok(())
    }

    /// The directory that a client sees only, with what is below it.
    pub(crate) fn scope_of(&self, client: usize) -> Option<Ino> {
        self.clients[client].scope.map(|(dir, _)| dir)
    }

    /// The files that an operation names by their ids, if the ids do not tell where they are, or that they are seen.
    fn files_of(&self, client: usize, op: &Op) -> impl Iterator<Item = Ino> + use<> {
        let from = if let Op::CopyRange { from, .. } = op { Some(*from) } else { None };
        let files = target_of(op).into_iter().chain(from);
        let tells = self.config.moves || self.clients[client].scope.is_some();
        files.filter(|_| tells).collect::<Vec<_>>().into_iter()
    }

    /// Whether a client knows where the files are that an operation names by their ids, or can look them up. A
    /// kernel has no others.
    pub(crate) fn knows_files(&self, client: usize, model: &Model, op: &Op) -> bool {
        let known = |ino: &Ino| {
            let is_file = model.attr(*ino).is_some_and(|attr| attr.kind != Kind::Directory);
            let has_name = name_of(model, *ino, self.scope_of(client)).is_some();
            !is_file || has_name || self.clients[client].looked_up.contains(ino)
        };
        let is_removed =
            |ino: &Ino| model.attr(*ino).is_some_and(|attr| attr.kind == Kind::Directory && attr.nlink == 0);
        let lost = |ino: &Ino| is_removed(ino) && self.clients[client].route.dirs().get(*ino).is_none();
        self.files_of(client, op).all(|ino| known(&ino)) && !target_of(op).is_some_and(|ino| lost(&ino))
    }

    fn walk_step(&mut self, client: usize, dir: Ino, name: Name, ino: Ino) -> Result<(), Failure> {
        let faults = self.faults;
        let began_calm = self.is_calm();
        let op = Op::Lookup { dir, name: name.clone() };
        // What cannot be answered while something is away is asked again, and in the end nothing is.
        for tries in 0..1000 {
            if tries == PATIENT_TRIES {
                self.heal();
            }
            match self.run(client, &Caller::ROOT, op.clone(), Bytes::new())? {
                Ok((Answer::Found { found }, _)) if found.attr.ino == ino => return Ok(()),
                // Of a name whose owner is away a skeleton may tell what it was before.
                Ok((Answer::Found { .. }, _)) | Err(Errno::EIO)
                    if faults != self.faults || !began_calm || !self.is_calm() =>
                {
                    self.run_for(100_000)?;
                }
                other => {
                    return Err(Failure::new(format!(
                        "walking to {name} in {dir} found {other:?}, not {ino}"
                    )));
                }
            }
        }
        Err(Failure::new(format!("{name} in {dir} cannot be looked up")))
    }

    /// Runs an operation as a kernel does: without groups first, with them where they decide.
    pub(crate) fn run_as(
        &mut self,
        client: usize,
        caller: &Caller,
        op: &Op,
        data: &Bytes,
    ) -> Result<Done, Failure> {
        if self.rng.percent(30) && !caller.is_root() {
            let few = Caller { groups: None, ..caller.clone() };
            let done = self.run(client, &few, op.clone(), data.clone())?;
            if done != Err(Errno::EACCES) {
                return Ok(done);
            }
        }
        self.run(client, caller, op.clone(), data.clone())
    }

    /// The whole tree, through a client's operations alone.
    pub fn dump(&mut self, client: usize) -> Result<Dump, Failure> {
        let mut failure = None;
        let dump = Dump::walk(&mut |op| {
            let mut asked = op.clone();
            if let Op::ReadDir { bytes, .. } = &mut asked
                && self.config.seed % 4 == 3
            {
                *bytes = LIST_BYTES;
            }
            let done = self.run(client, &Caller::ROOT, asked, Bytes::new());
            let done = match done {
                Ok(done) => done,
                Err(f) => {
                    failure = Some(f);
                    return Err(Errno::EIO);
                }
            };
            if let (Op::ReadDir { dir, .. }, Ok((Answer::Entries { entries, .. }, _))) = (op, &done) {
                let all = self.config.moves;
                for entry in entries.iter().filter(|e| all || e.kind == Kind::Directory) {
                    if let Err(f) = self.walk_step(client, *dir, entry.name.clone(), entry.ino) {
                        failure = Some(f);
                        return Err(Errno::EIO);
                    }
                }
            }
            done
        });
        match (dump, failure) {
            (_, Some(failure)) => Err(failure),
            (Ok(dump), None) => Ok(dump),
            (Err(not), None) => Err(Failure::new(format!("the tree cannot be dumped: {not}"))),
        }
    }
}
