//! Directories of the skeleton: where they are, making, moving and removing them.

use std::io;

use atoll_core::map::{IdMap, IdSet};
use atoll_core::{Ino, Name};
use atoll_disk::{Disk, FileKind};
use atoll_posix::Kind;

use crate::index::{DirMark, Ours};
use crate::{LIMBO, NEW_DIR_MODE, Report, Source, Subject, TREE, View, Why, is_absent, is_fatal, join};

/// How often a directory that must go is tried again while it holds something of ours.
const RETRIES_MAX: u32 = 10;

/// The native place of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At {
    /// The folder of the tree itself.
    Root,
    Tree {
        parent: Ino,
        name: Name,
    },
    /// In limbo, under its id.
    Limbo,
}

/// A directory that has to get another place, or none.
#[derive(Debug, Clone)]
pub(crate) enum Move {
    To { ino: Ino, parent: Ino, name: Name },
    Away { ino: Ino },
}

impl Move {
    const fn ino(&self) -> Ino {
        match self {
            Self::To { ino, .. } | Self::Away { ino } => *ino,
        }
    }
}

/// The result of a tried move.
enum Tried {
    Done,
    /// Something of ours is in the way; it may go.
    Blocked,
    Conflict(Why),
}

pub(crate) fn limbo_path(ino: Ino) -> Vec<u8> {
    join(LIMBO, format!("d{:016x}", ino.0).as_bytes())
}

impl<D: Disk> View<D> {
    /// Where a directory is; none if it is not laid, or was moved or removed from outside.
    pub(crate) fn locate(&mut self, ino: Ino) -> io::Result<Option<At>> {
        // From the top down, so that each step needs the one above only, however deep it is.
        let mut chain = vec![ino];
        let mut seen = IdSet::from_iter([ino]);
        while let Some(&last) = chain.last()
            && last != Ino::ROOT
            && !self.at.contains_key(&last)
            && let Some(mark) = self.index.dir(last)?
            && let Some((parent, _)) = mark.places.last()
            && seen.insert(*parent)
        {
            chain.push(*parent);
        }
        let mut found = None;
        for ino in chain.into_iter().rev() {
            found = self.locate_below(ino, &mut Vec::new())?;
        }
        Ok(found)
    }

    fn locate_below(&mut self, ino: Ino, visiting: &mut Vec<Ino>) -> io::Result<Option<At>> {
        if ino == Ino::ROOT {
            return Ok(Some(At::Root));
        }
        if let Some(at) = self.at.get(&ino) {
            return Ok(Some(at.clone()));
        }
        let Some(mark) = self.index.dir(ino)? else { return Ok(None) };
        // The number may have been given to something else of ours since this directory went.
        if self.index.ours(mark.native)? != Some(Ours::Dir(ino)) {
            return Ok(None);
        }
        visiting.push(ino);
        let found = self.locate_marked(ino, &mark, visiting);
        visiting.pop();
        let found = found?;
        if let Some(at) = &found {
            self.at.insert(ino, at.clone());
        }
        Ok(found)
    }

    fn locate_marked(&mut self, ino: Ino, mark: &DirMark, visiting: &mut Vec<Ino>) -> io::Result<Option<At>> {
        for (parent, name) in mark.places.iter().rev() {
            // Older places may lie in a circle; the native tree does not.
            if visiting.contains(parent) || self.locate_below(*parent, visiting)?.is_none() {
                continue;
            }
            let Some(above) = self.path(*parent)? else { continue };
            if self.is_dir(&join(&above, name.as_bytes()), mark.native)? {
                return Ok(Some(At::Tree { parent: *parent, name: name.clone() }));
            }
        }
        Ok(self.is_dir(&limbo_path(ino), mark.native)?.then_some(At::Limbo))
    }

    fn is_dir(&self, path: &[u8], native: u64) -> io::Result<bool> {
        Ok(self.look(path)?.is_some_and(|stat| stat.kind == FileKind::Directory && stat.ino == native))
    }

    /// The native path of a directory, if it is laid.
    pub(crate) fn path(&mut self, ino: Ino) -> io::Result<Option<Vec<u8>>> {
        let mut names = Vec::new();
        let mut at = ino;
        let mut path = loop {
            if let Some(path) = self.paths.get(&at) {
                break path.clone();
            }
            let place = match self.at.get(&at) {
                Some(place) => Some(place.clone()),
                None => self.locate(at)?,
            };
            match place {
                None => return Ok(None),
                Some(At::Root) => break TREE.to_vec(),
                Some(At::Limbo) => break limbo_path(at),
                Some(At::Tree { parent, name }) => {
                    names.push(name);
                    at = parent;
                }
            }
        };
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
        }
        if self.paths.len() >= crate::PLACES_MAX {
            self.paths.clear();
        }
        self.paths.insert(ino, path.clone());
        Ok(Some(path))
    }

    fn put_at(&mut self, ino: Ino, at: At) {
        self.spills.a_directory_moved();
        if self.at.insert(ino, at).is_some() {
            self.paths.clear(); // All below it have other paths now.
        }
        self.paths.remove(&ino);
    }

    /// Forgets a directory that is natively not at its known place.
    fn lose(&mut self, ino: Ino) {
        if self.at.remove(&ino).is_some() {
            self.paths.clear();
        }
    }

    /// Finds out how a directory has to move, makes it in limbo if it is new, and notes in the index
    /// where it will be. The index must be saved before [`View::move_dirs`].
    pub(crate) fn plan_dir(&mut self, ino: Ino, source: &dyn Source) -> io::Result<Option<Move>> {
        if ino == Ino::ROOT {
            return Ok(None);
        }
        let at = self.locate(ino)?;
        let row = source.dir(ino)?;
        let has_xattrs = row.as_ref().is_some_and(|row| row.has_xattrs);
        let Some((parent, name)) = row.and_then(|row| Some((row.place.parent, row.place.name?))) else {
            let is_known = !self.leaving.contains(&ino) && self.index.dir(ino)?.is_some();
            return Ok(is_known.then_some(Move::Away { ino }));
        };
        self.leaving.remove(&ino);
        let is_there = at == Some(At::Tree { parent, name: name.clone() });
        let known = self.index.dir(ino)?;
        if is_there && known.as_ref().is_some_and(|mark| mark.xattrs || !has_xattrs) {
            return Ok(None);
        }
        let place = (parent, name.clone());
        let mark = match (known, &at) {
            (Some(mark), Some(_)) => {
                let mut mark = mark;
                mark.xattrs |= has_xattrs;
                if !mark.places.contains(&place) {
                    mark.places.push(place);
                }
                mark
            }
            // New, or gone natively.
            (_, None) | (None, _) => {
                let native = self.make_in_limbo(ino)?;
                DirMark { native, places: vec![place], xattrs: has_xattrs }
            }
        };
        self.index.set_dir(ino, &mark)?;
        if is_there {
            return Ok(None);
        }
        self.moved.insert(ino);
        Ok(Some(Move::To { ino, parent, name }))
    }

    fn make_in_limbo(&mut self, ino: Ino) -> io::Result<u64> {
        let path = limbo_path(ino);
        match self.disk.mkdir(&path, NEW_DIR_MODE) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.put_at(ino, At::Limbo);
        Ok(self.disk.stat(&path)?.ino)
    }

    /// Moves directories to their places and removes those that have none. What is in each other's
    /// way, circles of names too, goes through limbo; what cannot be placed stays there.
    pub(crate) fn move_dirs(
        &mut self,
        mut moves: Vec<Move>,
        source: &dyn Source,
        touched: &mut IdSet<Ino>,
        report: &mut Report,
    ) -> io::Result<()> {
        // Placed from the top down, removed from the bottom up: ids grow downwards as a rule.
        let mut depths = IdMap::default();
        for m in &moves {
            let depth = match m {
                Move::To { ino, .. } => depth(*ino, source, &mut depths)?,
                Move::Away { ino } => usize::MAX - ino.0 as usize / 2,
            };
            depths.insert(m.ino(), depth);
        }
        moves.sort_by_key(|m| depths[&m.ino()]);
        while !moves.is_empty() {
            let pending: IdSet<Ino> = moves.iter().map(Move::ino).collect();
            let mut left = Vec::new();
            let before = moves.len();
            for m in moves {
                let tried = match &m {
                    Move::To { ino, parent, name } => {
                        self.try_place(*ino, *parent, name, &pending, source, touched)
                    }
                    Move::Away { ino } => self.try_remove(*ino, source, touched),
                };
                match tried {
                    Ok(Tried::Done) => report.dirs += 1,
                    Ok(Tried::Blocked) => left.push(m),
                    Ok(Tried::Conflict(why)) => self.give_up(&m, why, source, touched, report)?,
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(error) => {
                        let why = Why::Refused(error.raw_os_error().unwrap_or_default());
                        self.give_up(&m, why, source, touched, report)?;
                    }
                }
            }
            moves = left;
            if moves.len() == before {
                self.unblock(&mut moves, source, touched, report)?;
            }
        }
        Ok(())
    }

    /// Nothing moves: takes one out of the way of the others, or gives up a removal.
    fn unblock(
        &mut self,
        moves: &mut Vec<Move>,
        source: &dyn Source,
        touched: &mut IdSet<Ino>,
        report: &mut Report,
    ) -> io::Result<()> {
        for m in &*moves {
            if let Move::To { ino, .. } = m
                && self.locate(*ino)? != Some(At::Limbo)
            {
                return self.detach(*ino, source, touched);
            }
        }
        let removal = moves.iter().position(|m| matches!(m, Move::Away { .. }));
        let m = moves.remove(removal.unwrap_or(0));
        let why = if removal.is_some() { Why::NotEmpty } else { Why::Taken };
        self.give_up(&m, why, source, touched, report)
    }

    fn give_up(
        &mut self,
        m: &Move,
        why: Why,
        source: &dyn Source,
        touched: &mut IdSet<Ino>,
        report: &mut Report,
    ) -> io::Result<()> {
        match m {
            // What it holds is not ours; so is it from now on.
            Move::Away { ino } => {
                if why == Why::NotEmpty && self.waits_for_ours(*ino)? {
                    return Ok(());
                }
                self.lose(*ino);
                self.unspill(*ino, true)?;
                self.index.forget_dir(*ino)?;
                report.conflict(Subject::Id(*ino), why);
            }
            Move::To { ino, parent, name } => {
                // Not under a name that it no longer has.
                if why != Why::NoParent && matches!(self.locate(*ino)?, Some(At::Tree { .. })) {
                    self.detach(*ino, source, touched)?;
                }
                // It went with the directory above.
                if why == Why::NoParent && source.dir(*ino)?.is_none() {
                    return Ok(());
                }
                // The one above, or what has its name, has changed since this laying began, and comes with the next.
                let comes = match why {
                    Why::NoParent => source.waits(*parent),
                    Why::Taken => source.waits(*ino) || self.is_held_for_now(*parent, name, source)?,
                    _ => false,
                };
                if comes {
                    let tried = self.tried_before.get(ino).copied().unwrap_or(0);
                    if tried < RETRIES_MAX {
                        self.again.insert(*ino, tried + 1);
                        return Ok(());
                    }
                }
                report.conflict(Subject::Name(*parent, name.clone()), why);
            }
        }
        Ok(())
    }

    /// The name that a directory needs belongs to a directory that will leave it with the next laying.
    fn is_held_for_now(&mut self, parent: Ino, name: &Name, source: &dyn Source) -> io::Result<bool> {
        let Some(above) = self.path(parent)? else { return Ok(false) };
        let Some(holder) = self.look(&join(&above, name.as_bytes()))? else { return Ok(true) };
        Ok(match self.index.ours(holder.ino)? {
            Some(Ours::Dir(other)) => self.again.contains_key(&other) || source.waits(other),
            _ => false,
        })
    }

    /// A directory that is to go holds something of ours, which the state must have taken away since
    /// these changes were listed: with the next ones that is looked at, and it is tried again. True unless that
    /// was often, and all that it holds was looked at just now.
    fn waits_for_ours(&mut self, ino: Ino) -> io::Result<bool> {
        let tried = self.tried_before.get(&ino).copied().unwrap_or(0);
        let Some(path) = self.path(ino)? else { return Ok(false) };
        let (mut holds_ours, mut holds_new) = (false, false);
        for (name, _) in self.disk.list(&path)? {
            let Some(stat) = self.look(&join(&path, &name))? else { continue };
            let ours = self.index.ours(stat.ino)?;
            holds_ours |= ours.is_some();
            if let (Some(Ours::File(_)), Ok(name)) = (ours, Name::new(&name)) {
                let name = (ino, name);
                holds_new |= !self.tried_names.contains(&name);
                self.again_names.insert(name);
            }
        }
        let waits = holds_new || (holds_ours && tried < RETRIES_MAX);
        if waits {
            // A directory in which much comes and goes may hold something else each time.
            self.again.insert(ino, if holds_new { 0 } else { tried + 1 });
        }
        Ok(waits)
    }

    fn detach(&mut self, ino: Ino, source: &dyn Source, touched: &mut IdSet<Ino>) -> io::Result<()> {
        let from = self.locate(ino)?;
        let Some(path) = self.path(ino)? else { return Ok(()) };
        self.disk.rename(&path, &limbo_path(ino), false)?;
        self.moved_to(ino, from, At::Limbo, source, touched)
    }

    fn moved_to(
        &mut self,
        ino: Ino,
        from: Option<At>,
        to: At,
        source: &dyn Source,
        touched: &mut IdSet<Ino>,
    ) -> io::Result<()> {
        if let Some(At::Tree { parent, name }) = &from
            && let Some(next) = source.entry(*parent, name)?
            && next.ino != ino
        {
            // It may have been kept out until now, and forgotten: a directory that was about to go had its name.
            if next.kind == Kind::Directory {
                self.again.entry(next.ino).or_insert(0);
            } else {
                self.again_names.insert((*parent, name.clone()));
            }
        }
        for at in [from.as_ref(), Some(&to)] {
            if let Some(At::Tree { parent, .. }) = at {
                touched.insert(*parent);
            }
        }
        touched.insert(ino);
        self.moved.insert(ino);
        self.put_at(ino, to);
        Ok(())
    }

    fn try_place(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: &Name,
        pending: &IdSet<Ino>,
        source: &dyn Source,
        touched: &mut IdSet<Ino>,
    ) -> io::Result<Tried> {
        let (Some(from), Some(from_path)) = (self.locate(ino)?, self.path(ino)?) else {
            return Ok(Tried::Conflict(Why::NoParent));
        };
        let Some(above) = self.path(parent)? else { return Ok(Tried::Conflict(Why::NoParent)) };
        let to_path = join(&above, name.as_bytes());
        match self.disk.rename(&from_path, &to_path, false) {
            Ok(()) => {
                self.moved_to(ino, Some(from), At::Tree { parent, name: name.clone() }, source, touched)?;
                Ok(Tried::Done)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.try_occupied(ino, parent, name, &to_path, pending, source, touched)
            }
            // Into what is below it at the moment. Else the native file system does not take the name.
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput
                    && above
                        .strip_prefix(&from_path[..])
                        .is_some_and(|rest| rest.first().is_none_or(|b| *b == b'/')) =>
            {
                Ok(Tried::Blocked)
            }
            Err(error) if is_absent(&error) => {
                self.lose(ino);
                self.lose(parent);
                Ok(Tried::Conflict(Why::NoParent))
            }
            Err(error) => Err(error),
        }
    }

    /// The present holder of the name that a directory needs.
    fn try_occupied(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: &Name,
        path: &[u8],
        pending: &IdSet<Ino>,
        source: &dyn Source,
        touched: &mut IdSet<Ino>,
    ) -> io::Result<Tried> {
        let Some(holder) = self.look(path)? else { return Ok(Tried::Blocked) };
        match self.index.ours(holder.ino)? {
            Some(Ours::Dir(other)) if pending.contains(&other) => Ok(Tried::Blocked),
            Some(Ours::File(_)) if holder.kind != FileKind::Directory => {
                // A link of ours to a name that is no file's any more.
                let wanted = source.entry(parent, name)?;
                if wanted.is_some_and(|e| e.kind != Kind::Directory) {
                    return Ok(Tried::Conflict(Why::Taken));
                }
                self.disk.unlink(path)?;
                Ok(Tried::Blocked)
            }
            None if holder.kind == FileKind::Directory && self.at.get(&ino) == Some(&At::Limbo) => {
                // A directory nobody knows, where a new one is to be: one that was laid and lost with
                // the index, or made by hand. Either way it can serve.
                match self.disk.rmdir(&limbo_path(ino)) {
                    Ok(()) => {}
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(_) => return Ok(Tried::Conflict(Why::Taken)),
                }
                let places = vec![(parent, name.clone())];
                self.index.set_dir(ino, &DirMark { native: holder.ino, places, xattrs: true })?;
                // Durable at once, before anything is laid into it.
                self.index.save()?;
                self.moved_to(
                    ino,
                    Some(At::Limbo),
                    At::Tree { parent, name: name.clone() },
                    source,
                    touched,
                )?;
                Ok(Tried::Done)
            }
            _ => Ok(Tried::Conflict(Why::Taken)),
        }
    }

    /// Takes a directory out of the tree. It stays in limbo until that is durable: if it comes back before, a power
    /// cut must not leave two native directories of one id, of which nothing tells what is in the older one.
    fn try_remove(&mut self, ino: Ino, source: &dyn Source, touched: &mut IdSet<Ino>) -> io::Result<Tried> {
        let Some(path) = self.path(ino)? else {
            self.lose(ino);
            self.unspill(ino, true)?;
            self.index.forget_dir(ino)?;
            return Ok(Tried::Done);
        };
        if !self.disk.list(&path)?.is_empty() {
            return Ok(Tried::Blocked);
        }
        if self.locate(ino)? != Some(At::Limbo) {
            self.detach(ino, source, touched)?;
        }
        // If it comes back, all of it is laid again.
        self.unspill(ino, true)?;
        self.leaving.insert(ino);
        Ok(Tried::Done)
    }

    /// Removes what has left the tree, which is durable.
    pub(crate) fn remove_left(&mut self) -> io::Result<()> {
        for ino in self.leaving.iter().copied().collect::<Vec<_>>() {
            match self.disk.rmdir(&limbo_path(ino)) {
                Err(error) if is_fatal(&error) => return Err(error),
                // Something was put into it meanwhile: the next laying tells.
                Err(error) if !is_absent(&error) => drop(self.again.insert(ino, RETRIES_MAX)),
                _ => {
                    self.lose(ino);
                    self.index.forget_dir(ino)?;
                }
            }
            self.leaving.remove(&ino);
        }
        Ok(())
    }
}

/// How deep the state has a directory. `known` keeps the answers.
fn depth(ino: Ino, source: &dyn Source, known: &mut IdMap<Ino, usize>) -> io::Result<usize> {
    let (mut chain, mut seen) = (Vec::new(), IdSet::default());
    let mut at = ino;
    let mut depth = loop {
        if let Some(depth) = known.get(&at) {
            break *depth;
        }
        match source.dir(at)? {
            Some(row) if at != Ino::ROOT && seen.insert(at) => {
                chain.push(at);
                at = row.place.parent;
            }
            _ => break 0,
        }
    };
    for ino in chain.into_iter().rev() {
        depth += 1;
        known.insert(ino, depth);
    }
    Ok(depth)
}
