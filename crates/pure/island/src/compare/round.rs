//! Catching up with journals that were not kept for this island. Every directory of its skeleton, and every
//! stub, is compared with the rows of two islands: the owner of its parent, which decides about its name, and
//! its own owner. Then the journals go on from where they were when this island was told to compare (design
//! 005).
//!
//! The answers are newer than the last missed entry, so no missed entry is newer than they. Nothing changes
//! before everything is known. Then places are taken from the root down, so that no directory is ever below
//! itself on the way.
//!
//! A row that has come here late may have missed changes that no journal tells any more. The record that
//! brings the row notes that as a doubt. The doubt ends with a comparison that finds no difference.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, IslandId, Key, Stamp};
use atoll_posix::Kind;
use atoll_proto::{Ancestor, Dir, DirPlace, ParticipantWork, PeerOp, StaticAttrs};
use atoll_state::RowLoad;

use crate::compare::AntiEntropy;
use crate::compare::answer::as_parent;
use crate::ctx::Ctx;
use crate::ctx::request::{Blocked, Next};
use crate::locks::names::NameLocks;
use crate::recovery::Recovery;
use crate::rows::skeleton::{is_needless, is_one_name};
/// Milliseconds after which an unanswered question is asked again.
pub(super) const AGAIN_MS: u64 = 200;
/// Directories that are asked for at a time.
const OPEN_MAX: usize = 256;
/// Questions in one message.
pub(super) const ASKS_PER_MESSAGE: usize = 64;
/// Directories that change in one record: each with its ACLs, its row, its name and that of another, some 20 KiB
/// at most.
pub(super) const CHANGES_PER_RECORD: usize = 64;

/// A comparison under way: walking -> waiting for answers -> taking the results -> over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    /// The coordinators whose journals were missed, and up to where.
    pub(super) upto: BTreeMap<IslandId, Stamp>,
    pub(super) round: u64,
    /// How far the rows of the skeleton were looked through.
    pub(super) rows: Rows,
    /// Directories that are owned here, whose names are still to be looked through for stubs, behind these cookies.
    pub(super) walk: Vec<(Ino, u64)>,
    /// Directories of the skeleton that are to be compared, or once more.
    pub(super) also: BTreeSet<Ino>,
    /// Directories that are being asked for.
    pub(super) open: BTreeMap<Ino, Inquiry>,
    /// Those that were met above others, or are left by them: what nothing is below in the end goes again.
    pub(super) met: BTreeSet<Ino>,
    /// Directories that differ from the rows here.
    pub(super) found: BTreeMap<Ino, Difference>,
    /// Changes are being made.
    pub(super) takes: bool,
    /// Some were made: it is compared once more, until nothing is found.
    pub(super) has_found: bool,
}

/// The rows of directories that were looked through, in the order of their ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Rows {
    /// Rows before this id.
    Before(Ino),
    /// Rows before this id; the next ones are being read.
    Reading(Ino),
    #[default]
    All,
}

/// Where the name of a directory of the skeleton leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameLeads {
    /// To it.
    There,
    /// To nothing, or to a directory that is on its way from there.
    Nowhere,
    /// To another directory that has the same place: they were told at different moments.
    Elsewhere,
}

/// A directory that is asked for.
#[derive(Debug, Clone)]
pub(super) struct Inquiry {
    pub(super) dir: Ancestor,
    pub(super) question: NextQuestion,
    /// After its place, its owner is asked for its static attributes.
    pub(super) wants_fixed: bool,
    /// Where it is, and what it is like, is other than here.
    pub(super) differs: bool,
    /// It is no directory of the skeleton here, but a stub.
    pub(super) is_stub: bool,
    pub(super) asked_ms: Option<u64>,
}

/// The next question about a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextQuestion {
    /// The owner of its parent: is it there? Looked for behind the cookie.
    There { owner: IslandId, after: u64 },
    /// Its own owner: where is it?
    Where,
    /// Its own owner: its static attributes.
    Fixed,
}

#[derive(Debug, Clone)]
pub(super) struct Difference {
    pub(super) dir: Ancestor,
    pub(super) is_stub: bool,
}

impl AntiEntropy {
    /// A coordinator has not kept a part of its journal for this island.
    pub(crate) fn on_skipped(&mut self, ctx: &mut Ctx, recovery: &Recovery, from: IslandId, upto: Stamp) {
        let seen = ctx.state.clocks().get(from);
        if seen >= upto {
            ctx.next(Next::ConfirmLater(from, ctx.state.seq(), seen));
            ctx.send(0, from, PeerOp::Applied { upto: seen, synced: false });
            return;
        }
        if recovery.is_waiting() || !recovery.told_of_lost(from) {
            // It says that it has told all behind this.
            self.skipped.insert(from, upto);
            return;
        }
        let mut missed = self.round.as_ref().map(|old| old.upto.clone()).unwrap_or_default();
        // It may be told again: what goes on goes on.
        if missed.insert(from, upto) != Some(upto) {
            self.begin_comparing(ctx, missed);
        }
    }

    /// Begins to compare for islands that have told everything that was lost here, if that is redone. If a
    /// starting island need not compare, it serves.
    pub(crate) fn compare_skipped(&mut self, ctx: &mut Ctx, recovery: &Recovery) {
        if recovery.is_waiting() || recovery.has_ready() {
            return;
        }
        let skipped = std::mem::take(&mut self.skipped);
        for (island, upto) in skipped {
            self.on_skipped(ctx, recovery, island, upto);
        }
        if !self.has_missed(ctx) && self.skipped.is_empty() {
            ctx.next(Next::Serve);
        }
        ctx.next(Next::CompareDoubts);
    }

    /// Compares because of doubted directories, unless it compares anyhow. Nobody waits for that.
    pub(crate) fn compare_doubts(&mut self, ctx: &mut Ctx, recovery: &Recovery) {
        let waits = recovery.is_waiting() || recovery.has_ready();
        if self.round.is_none() && !waits && ctx.has_journal_gap(ctx.config.id) {
            self.begin_comparing(ctx, BTreeMap::new());
        }
    }

    /// Goes on as far as possible.
    pub(crate) fn compare(&mut self, ctx: &mut Ctx, locks: &NameLocks, recovery: &Recovery) {
        let Some(mut comparing) = self.round.take() else { return };
        ctx.state.begin_reads();
        let done = self.compare_on(ctx, locks, recovery, &mut comparing);
        self.round = Some(comparing);
        match done {
            Err(Blocked::Load(loads)) => ctx.load(loads, Next::Compare),
            Ok(true) => self.compared(ctx),
            Ok(false) | Err(_) => {}
        }
    }

    /// True when everything that was found is taken.
    fn compare_on(
        &mut self,
        ctx: &mut Ctx,
        locks: &NameLocks,
        recovery: &Recovery,
        comparing: &mut Round,
    ) -> Result<bool, Blocked> {
        if comparing.takes {
            return ctx.take_found(comparing);
        }
        while comparing.open.len() < OPEN_MAX
            && let Some((dir, after)) = comparing.walk.last().copied()
        {
            let next = ctx.walk_names(comparing, dir, after)?;
            comparing.walk.retain(|at| *at != (dir, after));
            comparing.walk.extend(next);
        }
        while comparing.open.len() < OPEN_MAX
            && let Some(ino) = comparing.also.first().copied()
        {
            ctx.open_row(comparing, ino)?;
            comparing.also.remove(&ino);
        }
        if comparing.also.is_empty()
            && let Rows::Before(from) = comparing.rows
        {
            comparing.rows = Rows::Reading(from);
            ctx.load(vec![RowLoad::Dirs { from }], Next::Compare);
        }
        Self::ask_open(ctx, locks, recovery, comparing)?;
        let Round { rows, walk, also, open, .. } = &*comparing;
        if *rows != Rows::All || !walk.is_empty() || !also.is_empty() || !open.is_empty() {
            return Ok(false);
        }
        if !ctx.is_tree(comparing)? {
            // What was told of two directories was so at different moments.
            *comparing = self.afresh(ctx, std::mem::take(&mut comparing.upto));
            return Ok(false);
        }
        comparing.takes = true;
        ctx.take_found(comparing)
    }

    fn begin_comparing(&mut self, ctx: &mut Ctx, mut upto: BTreeMap<IslandId, Stamp>) {
        let me = ctx.config.id;
        if ctx.has_journal_gap(me) {
            upto.insert(me, ctx.state.skipped(me));
        }
        self.round = Some(Box::new(self.afresh(ctx, upto)));
        ctx.next(Next::Compare);
    }

    /// A round that begins with the first row. Those that no checkpoint has are in memory.
    fn afresh(&mut self, ctx: &Ctx, upto: BTreeMap<IslandId, Stamp>) -> Round {
        self.rounds += 1;
        let (round, rows) = (self.rounds, Rows::Before(Ino(0)));
        let also = ctx.state.dirs_in_memory().map(|(ino, _)| ino).collect();
        let mut comparing = Round { upto, round, rows, also, ..Round::default() };
        for dir in ctx.lent_dirs() {
            if comparing.missed(&ctx.config, dir.key) {
                let item = Inquiry { is_stub: true, ..Inquiry::new(dir, NextQuestion::Fixed, true) };
                comparing.open.insert(item.dir.ino, item);
            }
        }
        comparing
    }

    /// A part of some journal was missed and is not made up for.
    pub(crate) fn has_missed(&self, ctx: &Ctx) -> bool {
        let comparing = self.round.as_ref();
        comparing.is_some_and(|comparing| comparing.upto.keys().any(|island| *island != ctx.config.id))
    }

    /// Whether something of this journal was missed and is not made up for.
    pub(crate) fn compares_for(&self, island: IslandId) -> bool {
        self.round.as_ref().is_some_and(|comparing| comparing.upto.contains_key(&island))
    }

    /// An island is away: it tells when it returns which entries it did not keep.
    pub(crate) fn compare_without(&mut self, ctx: &mut Ctx, island: IslandId) {
        let Some(comparing) = &mut self.round else { return };
        if comparing.upto.remove(&island).is_none() || comparing.takes {
            return;
        }
        let rest = std::mem::take(&mut comparing.upto);
        if !rest.is_empty() {
            self.begin_comparing(ctx, rest);
        } else {
            self.round = None;
        }
        if !self.has_missed(ctx) {
            ctx.next(Next::CaughtUp);
            ctx.next(Next::Serve);
        }
    }

    /// A directory has come to the skeleton, or has another place there: it is compared, again perhaps.
    pub(crate) fn compare_also(&mut self, ino: Ino) {
        if let Some(comparing) = self.round.as_mut().filter(|comparing| !comparing.takes) {
            comparing.also.insert(ino);
        }
    }

    /// Rows of directories, as the last checkpoint has left them.
    pub(crate) fn compare_rows(&mut self, from: Ino, dirs: &[(Ino, Vec<u8>)], more: bool) {
        let Some(comparing) = self.round.as_mut().filter(|c| c.rows == Rows::Reading(from)) else {
            return;
        };
        comparing.also.extend(dirs.iter().map(|(ino, _)| *ino));
        comparing.rows = match dirs.last() {
            Some((last, _)) if more => Rows::Before(Ino(last.0 + 1)),
            _ => Rows::All,
        };
    }
}

impl Ctx {
    /// A directory of the skeleton is to be asked for, if it is there still.
    fn open_row(&self, comparing: &mut Round, ino: Ino) -> Result<(), Blocked> {
        let Some(row) = self.state.dir(ino)? else { return Ok(()) };
        if is_needless(ino, row) {
            // Left by a comparison that came to no end.
            comparing.met.insert(ino);
        }
        let wants_fixed = comparing.missed(&self.config, row.key);
        let above = self.state.dir(row.place.parent)?;
        let stub = match (&row.place.name, above) {
            (Some(name), Some(above)) if above.owned.is_some() => self.state.entry(row.place.parent, name)?,
            _ => None,
        };
        let stub = stub.filter(|entry| entry.ino == ino).and_then(|entry| entry.stub.as_deref());
        let dir = self.ancestor(ino, row)?;
        let there = NextQuestion::there(self.config.owner(above.map_or(Key(0), |above| above.key)));
        let question = if ino == Ino::ROOT { NextQuestion::Fixed } else { there };
        let leads = self.name_leads(ino, row)?;
        // One of the two goes, and leaves the other without a name perhaps.
        comparing.has_found |= leads == NameLeads::Elsewhere;
        let differs = leads == NameLeads::Nowhere
            || stub.is_some_and(|stub| is_behind(&stub.fixed, row))
            || self.lent_dirs().any(|lent| lent.ino == ino && is_behind(&lent.fixed, row));
        if row.owned.is_some() {
            comparing.walk.push((ino, 0));
        }
        comparing.found.remove(&ino);
        if question != NextQuestion::Fixed || wants_fixed {
            comparing.open.insert(ino, Inquiry { differs, ..Inquiry::new(dir, question, wants_fixed) });
        }
        Ok(())
    }

    /// Directories that are on their way to names that are lent for them: their stubs come with them.
    fn lent_dirs(&self) -> impl Iterator<Item = Ancestor> {
        self.lent_txns().into_iter().filter_map(|txn| match &self.state.txn(txn)?.part.work {
            ParticipantWork::BorrowName { renaming, .. } => {
                let (file, to) = (&renaming.file, &renaming.to);
                let stub = file.stub.as_deref()?;
                let place = DirPlace { version: stub.place, parent: to.dir, name: Some(to.name.clone()) };
                Some(as_parent(file.ino, stub, place))
            }
            _ => None,
        })
    }

    /// Where the name of a directory of the skeleton leads.
    pub(super) fn name_leads(&self, ino: Ino, row: &Dir) -> Result<NameLeads, Blocked> {
        let DirPlace { parent, name: Some(name), .. } = &row.place else { return Ok(NameLeads::There) };
        if self.state.dir(*parent)?.is_none_or(|above| above.owned.is_some()) {
            return Ok(NameLeads::There);
        }
        let Some(there) = self.state.entry(*parent, name)? else { return Ok(NameLeads::Nowhere) };
        if there.ino == ino || there.kind != Kind::Directory {
            return Ok(NameLeads::There);
        }
        let other = self.state.dir(there.ino)?.map(|other| &other.place);
        let is_its = other.is_some_and(|its| is_one_name(its, &row.place));
        Ok(if is_its { NameLeads::Elsewhere } else { NameLeads::Nowhere })
    }

    /// Looks through names of a directory behind a cookie, for stubs. Returns where to go on.
    fn walk_names(&self, comparing: &mut Round, dir: Ino, after: u64) -> Result<Option<(Ino, u64)>, Blocked> {
        if self.state.dir(dir)?.is_none_or(|row| row.owned.is_none()) {
            return Ok(None);
        }
        let mut items = Vec::new();
        let (rows, whole) = self.state.entries_after(dir, after)?;
        let mut last = after;
        for (cookie, name, entry) in rows {
            last = cookie;
            let Some(stub) = &entry.stub else { continue };
            let place = DirPlace { version: stub.place, parent: dir, name: Some(name.clone()) };
            let stub = as_parent(entry.ino, stub, place);
            // Who comes to the skeleton now brings what its stub has to be like.
            if self.state.dir(entry.ino)?.is_none()
                && !comparing.met.contains(&entry.ino)
                && comparing.missed(&self.config, stub.key)
            {
                items.push(stub);
            }
        }
        for stub in items {
            comparing.found.remove(&stub.ino);
            let item = Inquiry { is_stub: true, ..Inquiry::new(stub, NextQuestion::Fixed, true) };
            comparing.open.insert(item.dir.ino, item);
        }
        let next = last.max(self.state.known_to(dir).saturating_sub(1));
        Ok((!whole).then_some((dir, next)))
    }
}

/// Whether the stub of a directory has missed attributes that a chain of ancestors has brought its row.
pub(super) fn is_behind(stub: &StaticAttrs, row: &Dir) -> bool {
    stub.version < row.fixed.version
}

impl NextQuestion {
    pub(super) const fn there(owner: IslandId) -> Self {
        Self::There { owner, after: 0 }
    }
}

impl Inquiry {
    /// A directory of the skeleton as it is here.
    pub(super) const fn new(dir: Ancestor, question: NextQuestion, wants_fixed: bool) -> Self {
        Self { dir, question, wants_fixed, differs: false, is_stub: false, asked_ms: None }
    }

    /// It is there, if that is newer.
    pub(super) fn goes(&mut self, place: DirPlace) {
        if place.version > self.dir.place.version {
            self.dir.place = place;
            self.differs = true;
        }
    }

    /// Its place is known; false if nothing more is asked.
    pub(super) const fn next(&mut self) -> bool {
        (self.question, self.asked_ms) = (NextQuestion::Fixed, None);
        self.wants_fixed
    }
}

#[cfg(test)]
mod tests {
    use atoll_core::Time;
    use atoll_proto::{Entry, OwnedDir, Stub};

    use super::*;
    use crate::ctx::decision::Decision;
    use crate::rows::heard_late::tests::{ONE, OTHER, above, at, island, loaded, name};
    use crate::rows::skeleton::new_row;

    #[test]
    fn a_stub_is_compared_with_the_row_of_its_directory_when_that_comes_behind_the_names() {
        let (mut island, _) = island();
        let ctx = &mut island.ctx;
        let place = at(ONE, "b", 1);
        let mut decision = Decision::new();
        let owned = OwnedDir { entries: 1, subdirs: 1, ..OwnedDir::empty(Time::default()) };
        decision.dir(ONE, new_row(&above(ONE, at(Ino::ROOT, "a", 1), false), Some(owned)));
        ctx.decide(decision);
        loaded(ctx, |ctx| ctx.entry_must_be_loaded(&place)).expect("rows are read");
        let row = above(OTHER, place.clone(), false);
        let stub = Stub { key: row.key, place: place.version, fixed: row.fixed, time: Time::default() };
        let (kind, home) = (Kind::Directory, ctx.config.id);
        let entry = Entry { ino: OTHER, kind, home, stub: Some(Box::new(stub)) };
        let mut decision = Decision::new();
        decision.entry(ONE, &name("b"), Some(entry));
        ctx.decide(decision);
        // A comparison has looked through the names. Then a chain of ancestors brings the row, with newer attributes.
        let mut comparing = Round::default();
        for newer in [false, true] {
            let mut row = new_row(&row, None);
            row.fixed.version = Stamp(if newer { 9 } else { 0 });
            let mut decision = Decision::new();
            decision.dir(OTHER, row);
            ctx.decide(decision);
            loaded(ctx, |ctx| ctx.open_row(&mut comparing.clone(), OTHER)).expect("rows are read");
            ctx.open_row(&mut comparing, OTHER).expect("in memory");
            assert_eq!(comparing.open[&OTHER].differs, newer);
        }
    }
}
