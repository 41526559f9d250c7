//! Locks of transactions under way: on names, files, directories that move, and the root's tickets. They are
//! kept in memory. After a start they follow from the rows of prepared transactions.
//!
//! A request that would change a locked name waits, or is told that it is busy. A request that only reads
//! waits for transactions that another island may have decided already, and not for those that were prepared
//! since it came.

use std::collections::BTreeMap;

use atoll_core::map::{IdMap, IdSet};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name, TxnId};
use atoll_proto::{EntryRef, ParticipantWork, PeerMessage, RenameSpec, Txn, TxnState};

use crate::ctx::Bounded;
use crate::ctx::Ctx;
use crate::ctx::request::Next;
use crate::rows::moves::moving;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameLocks {
    /// Ordered by directory and name, so that waiters are found in the same order in every run.
    names: BTreeMap<(Ino, Name), Held>,
    /// Files that are homed here, with the work that is prepared for them.
    files: IdMap<Ino, Vec<Held>>,
    /// Directories that move, and whose attributes stay until that is done.
    dirs: IdMap<Ino, TxnId>,
    /// At the root's owner: the directories that each rename under way moves to another parent.
    tickets: BTreeMap<TxnId, Vec<Ino>>,
    /// Prepared work that has happened, although its coordinator may still lose it in a power cut. It is
    /// shown, and its locks stay.
    happened: IdSet<TxnId>,
    /// Moves that are known to have happened, and wait for the journal.
    decided_early: IdSet<TxnId>,
    /// Files that come from other islands.
    arriving: IdMap<Ino, TxnId>,
    /// Messages that wait for the end of such.
    waiting: Bounded<(TxnId, PeerMessage)>,
}

/// By whom a name or file is held.
#[derive(Debug, Clone, Copy)]
struct Held {
    txn: TxnId,
    /// The record that prepared it for another island; none if this one coordinates.
    prepared: Option<u64>,
}

impl NameLocks {
    /// Nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
            && self.files.is_empty()
            && self.dirs.is_empty()
            && self.tickets.is_empty()
            && self.happened.is_empty()
            && self.arriving.is_empty()
            && self.waiting.is_empty()
    }

    /// Panics unless each lock belongs to something that is begun here, or has a row that asks for it.
    pub(crate) fn check<'a>(&self, is_begun: impl Fn(TxnId) -> bool, row: impl Fn(TxnId) -> Option<&'a Txn>) {
        let is_prepared =
            |txn: TxnId| row(txn).filter(|row| row.state == TxnState::Prepared).map(|row| &row.part.work);
        for ((dir, name), held) in &self.names {
            let (txn, work) = (held.txn, is_prepared(held.txn));
            let holds = match (held.prepared, work) {
                (Some(_), Some(ParticipantWork::BorrowName { renaming, .. })) => {
                    (renaming.to.dir, &renaming.to.name) == (*dir, name)
                }
                (None, Some(ParticipantWork::ReceiveFile { at, .. })) => (at.dir, &at.name) == (*dir, name),
                (None, None) => is_begun(txn),
                _ => false,
            };
            assert!(holds, "{name:?} of {dir} is held by {held:?} without reason: {work:?}");
        }
        for held in self.files.values().flatten() {
            assert!(is_prepared(held.txn).is_some(), "a file is held by {held:?}, which is not prepared");
        }
        assert!(self.files.values().all(|held| !held.is_empty()), "nobody holds a file that is held");
        for (ino, txn) in &self.dirs {
            let holds = is_begun(*txn) || is_prepared(*txn).is_some();
            assert!(holds, "{ino} is held by {txn:?}, which is not under way");
        }
        for txn in
            self.happened.iter().chain(self.waiting.iter().map(|(txn, _)| txn)).chain(self.arriving.values())
        {
            assert!(is_prepared(*txn).is_some(), "{txn:?} is waited for, and is not prepared");
        }
    }

    /// Holds names for a transaction that this island coordinates.
    pub(crate) fn lock_names(&mut self, txn: TxnId, names: &[EntryRef]) {
        for at in names {
            self.names.insert((at.dir, at.name.clone()), Held { txn, prepared: None });
        }
    }

    /// They are free.
    pub(crate) fn unlock_names(&mut self, txn: TxnId, names: &[EntryRef]) {
        for at in names {
            let held = self.names.remove(&(at.dir, at.name.clone()));
            assert_eq!(held.map(|held| held.txn), Some(txn), "a name was held by another transaction");
        }
    }

    /// The transaction that holds a name.
    pub(crate) fn holder(&self, dir: Ino, name: &Name) -> Option<TxnId> {
        if self.names.is_empty() {
            return None;
        }
        let counts = |held: &&Held| held.prepared.is_some() || !planted(Bug::NameNotHeld);
        self.names.get(&(dir, name.clone())).filter(counts).map(|held| held.txn)
    }

    /// A transaction that holds a name in a directory.
    pub(crate) fn in_dir(&self, dir: Ino) -> Option<TxnId> {
        self.names.iter().find(|((d, _), _)| *d == dir).map(|(_, held)| held.txn)
    }

    /// A transaction for which a name was prepared up to the record `upto`: in `dir`, or this one name. With
    /// `safe` also one that has happened, as long as it can be lost.
    pub(crate) fn prepared(&self, dir: Ino, name: Option<&Name>, upto: u64, safe: bool) -> Option<TxnId> {
        if self.names.is_empty() {
            return None;
        }
        let before = |held: &&Held| self.stops(held, upto, safe);
        match name {
            Some(name) => self.names.get(&(dir, name.clone())).filter(before).map(|held| held.txn),
            None => {
                self.names.iter().filter(|((d, _), _)| *d == dir).map(|(_, h)| h).find(before).map(|h| h.txn)
            }
        }
    }

    /// Transactions that have prepared work for a file.
    pub(crate) fn on_file(&self, ino: Ino) -> impl Iterator<Item = TxnId> + '_ {
        self.files.get(&ino).into_iter().flatten().map(|held| held.txn)
    }

    /// The same as [`NameLocks::prepared`], for a file.
    pub(crate) fn prepared_on_file(&self, ino: Ino, upto: u64, safe: bool) -> Option<TxnId> {
        let held = self.files.get(&ino)?.iter().find(|held| self.stops(held, upto, safe))?;
        Some(held.txn)
    }

    /// See [`NameLocks::prepared`].
    fn stops(&self, held: &Held, upto: u64, safe: bool) -> bool {
        held.prepared.is_some_and(|seq| seq <= upto) && (safe || !self.happened.contains(&held.txn))
    }

    /// The transaction that has changed a name, if it has happened and is not safe.
    pub(crate) fn shown_name(&self, dir: Ino, name: &Name) -> Option<TxnId> {
        if self.happened.is_empty() {
            return None;
        }
        self.holder(dir, name).filter(|txn| self.happened.contains(txn))
    }

    /// The transactions that have changed names of a directory, if they have happened and are not safe.
    pub(crate) fn shown_in_dir(&self, dir: Ino) -> impl Iterator<Item = TxnId> + '_ {
        let names = if self.happened.is_empty() { None } else { Some(self.names.iter()) };
        let of_dir = names.into_iter().flatten().filter(move |((d, _), _)| *d == dir).map(|(_, h)| h.txn);
        of_dir.filter(|txn| self.happened.contains(txn))
    }

    /// What is prepared here has happened.
    pub(crate) fn happened(&mut self, txn: TxnId) {
        self.happened.insert(txn);
    }

    /// A move is known to have happened, and waits for the journal.
    pub(crate) fn is_decided_early(&self, txn: TxnId) -> bool {
        self.decided_early.contains(&txn)
    }

    /// A move has happened, and waits for the journal.
    pub(crate) fn decided_early(&mut self, txn: TxnId) {
        self.decided_early.insert(txn);
    }

    /// Nothing has happened that is not safe.
    pub(crate) fn shows_nothing(&self) -> bool {
        self.happened.is_empty()
    }

    /// Whether a transaction has happened, and is not safe; then a message can wait for its end.
    pub(crate) fn is_shown(&self, txn: TxnId) -> bool {
        self.happened.contains(&txn)
    }

    /// Has a message wait for the end of a transaction; false if too many do.
    pub(crate) fn wait(&mut self, txn: TxnId, message: PeerMessage) -> bool {
        self.waiting.push((txn, message)).is_ok()
    }

    /// The transaction that brings a file here.
    pub(crate) fn arriving(&self, ino: Ino) -> Option<TxnId> {
        if self.arriving.is_empty() { None } else { self.arriving.get(&ino).copied() }
    }

    /// No file comes here.
    pub(crate) fn brings_nothing(&self) -> bool {
        self.arriving.is_empty()
    }

    /// The transaction that moves a directory that is owned here.
    pub(crate) fn holds_dir(&self, ino: Ino) -> Option<TxnId> {
        if self.dirs.is_empty() { None } else { self.dirs.get(&ino).copied() }
    }

    pub(crate) fn lock_dir(&mut self, ino: Ino, txn: TxnId) {
        self.dirs.insert(ino, txn);
    }

    pub(crate) fn lock_tickets(&mut self, txn: TxnId, moved: Vec<Ino>) {
        self.tickets.insert(txn, moved);
    }

    /// A rename under way that moves one of these directories.
    pub(crate) fn ticket_against(&self, above: &[Ino]) -> Option<TxnId> {
        let mut tickets = self.tickets.iter();
        tickets.find(|(_, moved)| moved.iter().any(|ino| above.contains(ino))).map(|(txn, _)| *txn)
    }

    /// Directories and tickets that a transaction has held are free.
    pub(crate) fn unlock_dirs(&mut self, txn: TxnId) {
        if !self.dirs.is_empty() {
            self.dirs.retain(|_, held| *held != txn);
        }
        self.tickets.remove(&txn);
    }

    /// Notes work that was prepared for another island, by the record `seq`.
    pub(crate) fn hold(&mut self, ctx: &Ctx, txn: TxnId, work: &ParticipantWork, seq: u64) {
        let held = Held { txn, prepared: Some(seq) };
        match work {
            ParticipantWork::BorrowName { renaming, .. } => {
                self.names.insert((renaming.to.dir, renaming.to.name.clone()), held);
            }
            ParticipantWork::FreezeDir { ino, .. } => self.lock_dir(*ino, txn),
            ParticipantWork::PermitMove { moved, .. } => self.lock_tickets(txn, moved.clone()),
            ParticipantWork::ReceiveFile { at, file, .. } => {
                self.arriving.insert(file.attr.ino, txn);
                if seq == 0 {
                    // In an earlier life it may have voted.
                    self.lock_names(txn, std::slice::from_ref(at));
                }
            }
            _ => {}
        }
        for (ino, _) in ctx.claims(work) {
            self.files.entry(ino).or_default().push(held);
        }
    }

    /// Locks a directory that an operation moves or names, for the transaction `first`, which this island
    /// coordinates.
    pub(crate) fn lock_moves(&mut self, first: TxnId, renaming: &RenameSpec) {
        if renaming.from.dir == renaming.to.dir {
            return;
        }
        let moved: Vec<Ino> = moving(renaming).iter().map(|m| m.entry.ino).collect();
        if moved.is_empty() {
            return;
        }
        for ino in &moved {
            self.lock_dir(*ino, first);
        }
        self.lock_tickets(first, moved);
    }

    /// Frees the locks. `is_incomplete`: a lost change may have waited for that.
    pub(crate) fn release(&mut self, ctx: &mut Ctx, is_incomplete: bool, txn: TxnId, work: &ParticipantWork) {
        if let ParticipantWork::BorrowName { renaming, .. } = work {
            self.names.remove(&(renaming.to.dir, renaming.to.name.clone()));
        }
        if let ParticipantWork::ReceiveFile { at, file, .. } = work {
            self.arriving.remove(&file.attr.ino);
            if self.holder(at.dir, &at.name) == Some(txn) {
                self.unlock_names(txn, std::slice::from_ref(at));
            }
        }
        self.unlock_dirs(txn);
        for (ino, _) in ctx.claims(work) {
            if let Some(held) = self.files.get_mut(&ino) {
                held.retain(|held| held.txn != txn);
                if held.is_empty() {
                    self.files.remove(&ino);
                }
            }
        }
        self.happened.remove(&txn);
        self.decided_early.remove(&txn);
        if is_incomplete {
            // Before anybody else: it was there first.
            ctx.next(Next::RedoAgain);
        }
        ctx.next(Next::TxnEnded(txn));
        for (_, message) in self.waiting.take_if(|(of, _)| *of == txn) {
            ctx.next(Next::Peer(message));
        }
    }
}
