//! Directories that get another parent (`DESIGN` 6; Archipelago 8): the islands that must agree, and the
//! root's owner, which refuses a move that would put a directory below itself.
//!
//! Keys stay, so nothing below a directory moves with it. The journal tells all islands the new place, when
//! the record that decides it is synced.

use std::borrow::Cow;
use std::collections::BTreeSet;

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Key, Stamp, Time};
use atoll_posix::{Caller, Errno};
use atoll_proto::{
    Chain, Dir, DirPlace, Entry, EntryRef, JournalEntry, OwnedDir, ParticipantWork, PlaceVersion, RenameSpec,
    RowChange, Stub,
};

use crate::ctx::Ctx;
use crate::ctx::decision::{Decision, Entails};
use crate::ctx::posts::Audience;
use crate::ctx::request::Blocked;

/// A directory that a rename moves.
#[derive(Debug, Clone)]
pub(crate) struct DirMove<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) stub: &'a Stub,
    pub(crate) from: &'a EntryRef,
    pub(crate) to: &'a EntryRef,
}

impl DirMove<'_> {
    /// Where it is when it has moved to another parent.
    pub(crate) fn place(&self) -> DirPlace {
        let version =
            PlaceVersion { moves: self.stub.place.moves.saturating_add(1), stamp: Stamp::default() };
        DirPlace { version, parent: self.to.dir, name: Some(self.to.name.clone()) }
    }
}

/// The question to the root's owner about a rename, as in `ParticipantWork::PermitMove`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ticket {
    pub(crate) moved: Vec<Ino>,
    pub(crate) above: Vec<Ino>,
    pub(crate) owners: Vec<IslandId>,
    pub(crate) seen: Vec<Chain>,
}

/// The directories that a rename moves: the renamed one, and one that changes places with it.
pub(crate) fn moving(renaming: &RenameSpec) -> Vec<DirMove<'_>> {
    let RenameSpec { from, to, file, there, .. } = renaming;
    let there = there.as_ref().filter(|_| renaming.swaps());
    let both = [(Some(file), from, to), (there, to, from)];
    both.into_iter()
        .filter_map(|(entry, from, to)| {
            let entry = entry?;
            Some(DirMove { entry, stub: entry.stub.as_deref()?, from, to })
        })
        .collect()
}

/// The empty directory that a rename replaces.
pub(crate) fn replaced_dir(renaming: &RenameSpec) -> Option<(&Entry, &Stub)> {
    let there = renaming.there.as_ref().filter(|_| !renaming.swaps())?;
    Some((there, there.stub.as_deref()?))
}

/// Whether only the owners of a directory, which is owned here, and of the one above it have anything of it, unless one of its
/// names is held: it has no directories, and no files that other islands are home of.
pub(crate) fn is_leaf(dir: &Dir) -> bool {
    let is_alone = |owned: &OwnedDir| owned.subdirs == 0 && !owned.others.has_pointers;
    dir.owned.as_ref().is_some_and(is_alone) || planted(Bug::NotLeaf)
}

/// An entry as it is in the directory that it goes to.
pub(crate) fn arrived(entry: &Entry, renaming: &RenameSpec) -> Entry {
    let mut entry = entry.clone();
    if let Some(stub) = &mut entry.stub
        && renaming.from.dir != renaming.to.dir
    {
        stub.place = PlaceVersion { moves: stub.place.moves.saturating_add(1), stamp: Stamp::default() };
        stub.time = renaming.time;
    }
    entry
}

/// Whether a rename gives a directory another parent.
pub(crate) fn moves_parents(renaming: &RenameSpec) -> bool {
    renaming.from.dir != renaming.to.dir && !moving(renaming).is_empty()
}

impl Ctx {
    /// Makes sure that the machine beside the island can take note of the directories that get another parent.
    pub(crate) fn moves_must_be_allowed(&self, renaming: &RenameSpec) -> Result<(), Blocked> {
        let Some(beside) = self.beside.as_ref().filter(|_| moves_parents(renaming)) else { return Ok(()) };
        let moves: Vec<_> = moving(renaming).into_iter().map(|dir| (dir.entry.ino, dir.to.clone())).collect();
        let is_allowed = beside.allows_moves(&self.state, self.now, &moves)?;
        if is_allowed { Ok(()) } else { Err(Errno::EBUSY.into()) }
    }

    /// The coordinator's part: the empty directory that is replaced goes, if it is owned here; places change, here
    /// and through the journal to `audience`, if `gated` when the record is synced. `early`: the stamps of all of them but the
    /// last. The last stamp of it.
    pub(crate) fn move_dirs(
        &mut self,
        decision: &mut Decision,
        renaming: &RenameSpec,
        seen: &Chain,
        early: &[Stamp],
        audience: Audience,
        gated: bool,
    ) -> Option<Stamp> {
        let mut early = early.iter().copied();
        let replaced = replaced_dir(renaming).map(|(there, _)| there.ino);
        let mut last = None;
        let both = moving(renaming).len() > 1;
        for moving in moving(renaming) {
            let stamp = early.next().unwrap_or_else(|| self.stamp());
            decision.stamp(stamp);
            let mut entry = arrived(moving.entry, renaming);
            let stub = entry.stub.as_mut().expect("a directory");
            if renaming.from.dir == renaming.to.dir {
                stub.place.stamp = stamp;
                stub.time = renaming.time;
                decision.entry(moving.to.dir, &moving.to.name, Some(entry.clone()));
            }
            let version = entry.stub.as_ref().expect("a directory").place;
            let place = DirPlace { version, parent: moving.to.dir, name: Some(moving.to.name.clone()) };
            self.move_in_skeleton(decision, moving.entry.ino, &place, renaming.time);
            let chain = if renaming.from.dir == renaming.to.dir {
                self.chain_seen()
            } else if moving.to == &renaming.to && !seen.dirs.is_empty() {
                seen.clone()
            } else {
                self.chain_to(moving.to.dir).unwrap_or_default()
            };
            let (ino, from, time) = (moving.entry.ino, moving.from.clone(), renaming.time);
            let replaced = replaced.filter(|_| moving.to == &renaming.to);
            let entry = JournalEntry::Place { ino, place, from, replaced, chain, time };
            if renaming.swaps() && moving.to == &renaming.to && both && !gated {
                self.post_first_of_pair(decision, stamp, &entry);
            } else {
                self.post(decision, stamp, &entry, audience, gated);
            }
            last = Some(stamp);
        }
        // Last: what comes in its place needs the skeleton above it.
        if let Some((there, stub)) = replaced_dir(renaming)
            && self.owner_of_stub(stub) == self.config.id
        {
            self.remove_named_dir(decision, there.ino, renaming.time);
        }
        last
    }

    /// A directory of the skeleton is at another place. The directories above must be there.
    pub(crate) fn move_in_skeleton(
        &mut self,
        decision: &mut Decision,
        ino: Ino,
        place: &DirPlace,
        time: Time,
    ) {
        let Some(mut row) = self.dir_now(decision, ino) else { return };
        decision.entails(Entails::DirPlaced(ino));
        let old = std::mem::replace(&mut row.place, place.clone());
        if let Some(owned) = &mut row.owned {
            owned.ctime = owned.ctime.max(time);
            decision.push(RowChange::Renamed { ino });
        }
        decision.dir(ino, row);
        self.skeleton_name(decision, &old, ino, false);
        self.skeleton_name(decision, place, ino, true);
        if old.parent != place.parent {
            for (parent, by) in [(place.parent, 1), (old.parent, -1)] {
                self.count_below(decision, parent, by);
            }
            self.prune(decision, old.parent);
        }
    }

    pub(crate) fn owns_root(&self) -> bool {
        self.config.owner(Key(0)) == self.config.id
    }

    pub(crate) fn owner_of_stub(&self, stub: &Stub) -> IslandId {
        self.config.owner(stub.key)
    }

    /// The work of other islands for the directories of a rename: their owners, the owner of the empty
    /// directory that is replaced, and the root's. `chain`: of the directory of the new name.
    pub(crate) fn dir_works(
        &self,
        caller: &Caller,
        renaming: &RenameSpec,
        chain: &Chain,
    ) -> Result<Vec<(IslandId, ParticipantWork)>, Blocked> {
        let me = self.config.id;
        let mut works = Vec::new();
        if let Some((there, stub)) = replaced_dir(renaming)
            && self.owner_of_stub(stub) != me
        {
            let EntryRef { dir: parent, name } = renaming.to.clone();
            works.push((self.owner_of_stub(stub), ParticipantWork::Seal { ino: there.ino, parent, name }));
        }
        if renaming.from.dir == renaming.to.dir {
            return Ok(works);
        }
        for moving in moving(renaming) {
            let (ino, caller) = (moving.entry.ino, caller.clone());
            let owner = self.owner_of_stub(moving.stub);
            if owner != me {
                let key = match chain.dirs.last().filter(|last| last.ino == moving.to.dir) {
                    Some(last) => last.key,
                    None => self.state.dir(moving.to.dir)?.ok_or(Blocked::NotNow)?.key,
                };
                works.push((owner, ParticipantWork::FreezeDir { ino, caller, to: moving.place(), key }));
            }
        }
        let Ticket { moved, above, owners, seen } = self.ticket_for(renaming, chain)?;
        let root = self.config.owner(Key(0));
        if !moved.is_empty() && root != me && !planted(Bug::NoTicket) {
            let exchange = renaming.swaps();
            works.push((root, ParticipantWork::PermitMove { moved, above, owners, seen, exchange }));
        }
        Ok(works)
    }

    /// Directories that move to another parent, the directories above their new places with their owners, and the journals
    /// that were seen when these were looked up.
    pub(crate) fn ticket_for(&self, renaming: &RenameSpec, chain: &Chain) -> Result<Ticket, Blocked> {
        let (mut ticket, mut owners) = (Ticket::default(), BTreeSet::new());
        for moving in moving(renaming) {
            ticket.moved.push(moving.entry.ino);
            let is_told = moving.to == &renaming.to && !chain.dirs.is_empty();
            // They go to all islands with the new place: too many are refused here.
            let own = if is_told { Vec::new() } else { self.chain(moving.to.dir)? };
            let above = if is_told { &chain.dirs } else { &own };
            ticket.above.extend(above.iter().map(|dir| dir.ino));
            owners.extend(above.iter().map(|dir| self.config.owner(dir.key)));
            let seen = Chain { vector: chain.vector.clone(), dirs: Vec::new() };
            ticket.seen.push(if is_told { seen } else { self.chain_seen() });
        }
        ticket.owners.extend(owners);
        Ok(ticket)
    }

    /// Whether a directory that moves is in this island's skeleton, which needs the new parent then.
    pub(crate) fn moves_here(&self, renaming: &RenameSpec) -> bool {
        moving(renaming).iter().any(|m| m.to == &renaming.to && self.in_memory(m.entry.ino).is_some())
    }

    /// No ancestors, only the journals that were seen.
    pub(crate) fn chain_seen(&self) -> Chain {
        Chain { vector: self.state.public_clocks().iter().collect(), dirs: Vec::new() }
    }

    /// The stub of a directory that is owned here is as the directory is now.
    pub(crate) fn freshen_stub(&self, entry: &mut Entry) -> Result<(), Blocked> {
        if let Some(stub) = &mut entry.stub
            && let Some(row) = self.state.dir(entry.ino)?.filter(|row| row.owned.is_some())
            && stub.fixed.version < row.fixed.version
        {
            stub.fixed = row.fixed;
        }
        Ok(())
    }

    /// A rename whose names are locked here, with their present stubs: changes by their owners since it was
    /// begun came to the entries, which it is about to write.
    pub(crate) fn with_stubs_of_now<'a>(
        &self,
        renaming: &'a RenameSpec,
    ) -> Result<Cow<'a, RenameSpec>, Blocked> {
        if moving(renaming).is_empty() {
            return Ok(Cow::Borrowed(renaming));
        }
        let mut now = renaming.clone();
        let RenameSpec { from, to, file, there, .. } = &mut now;
        for (entry, at) in [(Some(file), from), (there.as_mut(), to)] {
            let Some(entry) = entry.filter(|entry| entry.stub.is_some()) else { continue };
            if self.state.dir(at.dir)?.is_some_and(|dir| dir.owned.is_some())
                && let Some(held) = self.state.entry(at.dir, &at.name)?.filter(|held| held.ino == entry.ino)
            {
                entry.clone_from(held);
            }
        }
        Ok(Cow::Owned(now))
    }

    /// The attributes that a directory's owner told are those that its stub has.
    pub(crate) fn stub_is_current(renaming: &RenameSpec, ino: Option<Ino>, version: Stamp) -> bool {
        planted(Bug::StubOfThen)
            || moving(renaming).iter().all(|m| Some(m.entry.ino) != ino || m.stub.fixed.version >= version)
    }
}
