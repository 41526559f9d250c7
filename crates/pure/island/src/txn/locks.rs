//! What transactions under way hold: names, files, directories that move, and the root's tickets. Known in
//! memory; after a start it comes back from the rows of what is prepared.
//!
//! Who changes something that is held waits, or is told that it is busy. Who only looks waits for what another
//! island may have decided already, and not for what was prepared since it came.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use atoll_core::map::{IdMap, IdSet};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Name, TxnId};
use atoll_posix::Attr;
use atoll_proto::{Dir, Entry, Inode, PeerMessage, Renaming, Spot, Txn, TxnState, Work};
use atoll_state::cookie_of;

use crate::ctx::Bounded;
use crate::ctx::Ctx;
use crate::ctx::decision::names_changed_at;
use crate::ctx::request::{Blocked, Next};
use crate::ctx::shown::dir_attr;
use crate::island::Island;
use crate::rows::homes::Claim;
use crate::rows::look::Look;
use crate::rows::moves::{arrived, moving};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameLocks {
    /// In the order of directories and names: the order in which waiters are found is the same in every run.
    names: BTreeMap<(Ino, Name), Held>,
    /// Files that are homed here, and what is prepared for them.
    files: IdMap<Ino, Vec<Held>>,
    /// Directories that move, and whose attributes stay until that is done.
    dirs: IdMap<Ino, TxnId>,
    /// At the root's owner: the directories that each rename under way moves to another parent.
    tickets: BTreeMap<TxnId, Vec<Ino>>,
    /// What is prepared here and has happened, though its coordinator may lose it yet in a power cut: it is
    /// shown, and still holds.
    happened: IdSet<TxnId>,
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
                (Some(_), Some(Work::Lend { renaming, .. })) => {
                    (renaming.to.dir, &renaming.to.name) == (*dir, name)
                }
                (None, Some(Work::Arrive { at, .. })) => (at.dir, &at.name) == (*dir, name),
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
    pub(crate) fn lock_names(&mut self, txn: TxnId, names: &[Spot]) {
        for at in names {
            self.names.insert((at.dir, at.name.clone()), Held { txn, prepared: None });
        }
    }

    /// They are free.
    pub(crate) fn unlock_names(&mut self, txn: TxnId, names: &[Spot]) {
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
    fn prepared(&self, dir: Ino, name: Option<&Name>, upto: u64, safe: bool) -> Option<TxnId> {
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

    /// What is prepared for a file.
    pub(crate) fn on_file(&self, ino: Ino) -> impl Iterator<Item = TxnId> + '_ {
        self.files.get(&ino).into_iter().flatten().map(|held| held.txn)
    }

    /// As [`NameLocks::prepared`], for a file.
    fn prepared_on_file(&self, ino: Ino, upto: u64, safe: bool) -> Option<TxnId> {
        let held = self.files.get(&ino)?.iter().find(|held| self.stops(held, upto, safe))?;
        Some(held.txn)
    }

    /// See [`NameLocks::prepared`].
    fn stops(&self, held: &Held, upto: u64, safe: bool) -> bool {
        held.prepared.is_some_and(|seq| seq <= upto) && (safe || !self.happened.contains(&held.txn))
    }

    /// What has happened to a name, and is not safe.
    fn shown_name(&self, dir: Ino, name: &Name) -> Option<TxnId> {
        if self.happened.is_empty() {
            return None;
        }
        self.holder(dir, name).filter(|txn| self.happened.contains(txn))
    }

    /// What has happened to names of a directory, and is not safe.
    fn shown_in_dir(&self, dir: Ino) -> impl Iterator<Item = TxnId> + '_ {
        let names = if self.happened.is_empty() { None } else { Some(self.names.iter()) };
        let of_dir = names.into_iter().flatten().filter(move |((d, _), _)| *d == dir).map(|(_, h)| h.txn);
        of_dir.filter(|txn| self.happened.contains(txn))
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

    /// What brings a file here.
    pub(crate) fn arriving(&self, ino: Ino) -> Option<TxnId> {
        if self.arriving.is_empty() { None } else { self.arriving.get(&ino).copied() }
    }

    /// No file comes here.
    pub(crate) fn brings_nothing(&self) -> bool {
        self.arriving.is_empty()
    }

    /// What moves a directory that is owned here.
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

    /// Notes what was prepared for another island, by the record `seq`.
    pub(crate) fn hold(&mut self, ctx: &Ctx, txn: TxnId, work: &Work, seq: u64) {
        let held = Held { txn, prepared: Some(seq) };
        match work {
            Work::Lend { renaming, .. } => {
                self.names.insert((renaming.to.dir, renaming.to.name.clone()), held);
            }
            Work::Hold { ino, .. } => self.lock_dir(*ino, txn),
            Work::Ticket { moved, .. } => self.lock_tickets(txn, moved.clone()),
            Work::Arrive { at, file, .. } => {
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

    /// A transaction that is prepared here has happened.
    pub(crate) fn on_happened(&mut self, ctx: &mut Ctx, from: IslandId, txn: TxnId) {
        if ctx.state.txn(txn).is_some_and(|row| row.partner == from && row.state == TxnState::Prepared) {
            self.happened.insert(txn);
            ctx.next(Next::TxnEnded(txn));
        }
    }

    /// Who moves a directory, or gives it a name, holds it: noted for `first`, which this island coordinates.
    pub(crate) fn lock_moves(&mut self, first: TxnId, renaming: &Renaming) {
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
}

/// The rows of a directory, in the order of listings, with those that are shown instead and in between.
pub(crate) fn as_shown<'a>(
    rows: impl Iterator<Item = (u64, &'a Name, &'a Entry)>,
    shown: &'a [(u64, &'a Name, Entry)],
) -> impl Iterator<Item = (u64, &'a Name, &'a Entry)> {
    let (mut rows, mut shown) = (rows.peekable(), shown.iter().peekable());
    std::iter::from_fn(move || {
        let next = rows.peek().map(|(cookie, name, _)| (*cookie, *name));
        let Some((cookie, name, entry)) = shown.next_if(|at| next.is_none_or(|next| (at.0, at.1) <= next))
        else {
            return rows.next();
        };
        rows.next_if(|row| (row.0, row.1) == (*cookie, *name));
        Some((*cookie, *name, entry))
    })
}

impl Island {
    /// What was held is free.
    pub(crate) fn release(&mut self, txn: TxnId, work: &Work) {
        if let Work::Lend { renaming, .. } = work {
            self.txns.locks.names.remove(&(renaming.to.dir, renaming.to.name.clone()));
        }
        if let Work::Arrive { at, file, .. } = work {
            self.txns.locks.arriving.remove(&file.attr.ino);
            if self.txns.locks.holder(at.dir, &at.name) == Some(txn) {
                self.txns.locks.unlock_names(txn, std::slice::from_ref(at));
            }
        }
        self.txns.locks.unlock_dirs(txn);
        for (ino, _) in self.ctx.claims(work) {
            if let Some(held) = self.txns.locks.files.get_mut(&ino) {
                held.retain(|held| held.txn != txn);
                if held.is_empty() {
                    self.txns.locks.files.remove(&ino);
                }
            }
        }
        self.txns.locks.happened.remove(&txn);
        if self.recovery.is_incomplete() {
            // Before anybody else: it was there first.
            self.ctx.next(Next::RedoAgain);
        }
        self.ctx.next(Next::TxnEnded(txn));
        for (_, message) in self.txns.locks.waiting.take_if(|(of, _)| *of == txn) {
            self.ctx.next(Next::Peer(message));
        }
    }

    /// No transaction holds a name locked, and none that was lost may have brought something else there: whoever changes
    /// what is there would change that.
    pub(crate) fn name_is_free(&self, dir: Ino, name: &Name) -> Result<(), Blocked> {
        self.look().is_done_again_at(dir, Some(name))?;
        self.look().is_whole(dir)?;
        match self.txns.locks.holder(dir, name) {
            Some(txn) if !planted(Bug::LentNameNotHeld) || self.txns.is_begun(txn) => Err(Blocked::Txn(txn)),
            _ => Ok(()),
        }
    }
}

impl<'a> Look<'a> {
    /// A name as it is shown.
    pub(crate) fn shown(self, dir: Ino, name: &Name) -> Result<Option<Cow<'a, Entry>>, Blocked> {
        if let Some(txn) = self.txns.locks.shown_name(dir, name)
            && let Some(Work::Lend { renaming, .. }) = self.ctx.shown_work(txn)
        {
            return Ok(Some(Cow::Owned(arrived(&renaming.file, renaming))));
        }
        Ok(self.named(dir, name)?.map(Cow::Borrowed))
    }

    /// Names of a directory as they are shown by what has happened to them, and is not safe, by their cookies.
    pub(crate) fn shown_names(self, dir: Ino, cookies: Range<u64>) -> Vec<(u64, &'a Name, Entry)> {
        let mut shown = Vec::new();
        for txn in self.txns.locks.shown_in_dir(dir) {
            let Some(Work::Lend { renaming, .. }) = self.ctx.shown_work(txn) else { continue };
            let cookie = cookie_of(self.ctx.config.seed, renaming.to.name.as_bytes());
            if cookies.contains(&cookie) {
                shown.push((cookie, &renaming.to.name, arrived(&renaming.file, renaming)));
            }
        }
        shown.sort_unstable_by_key(|(cookie, name, _)| (*cookie, *name));
        shown
    }

    /// What a name of a directory that is owned here names. None only if it surely names nothing.
    pub(crate) fn named(self, dir: Ino, name: &Name) -> Result<Option<&'a Entry>, Blocked> {
        let entry = self.ctx.state.entry(dir, name)?;
        if entry.is_none() {
            self.is_whole(dir)?;
        }
        Ok(entry)
    }

    /// No name is missing in a directory that others know of, and have not told after an unclean end.
    pub(crate) fn is_whole(self, dir: Ino) -> Result<(), Blocked> {
        if self.recovery.is_incomplete() && !planted(Bug::AbsentIsEmpty) {
            let row = self.ctx.state.dir(dir)?;
            if row.and_then(|row| row.owned.as_ref()).is_some_and(|owned| owned.lent) {
                return Err(self.ctx.untold(self.ctx.config.others()));
            }
        }
        Ok(())
    }

    /// The attributes of a directory show all that has come to its names. What nobody can tell now is left out.
    pub(crate) fn dir_is_settled(self, dir: Ino) -> Result<(), Blocked> {
        self.names_are_settled(dir)?;
        match self.is_whole(dir) {
            Err(Blocked::Fail(_)) => Ok(()),
            settled => settled,
        }
    }

    /// Attributes of a directory that is owned here, as they are shown.
    pub(crate) fn shown_dir(self, ino: Ino, dir: &Dir) -> Attr {
        let mut attr = dir_attr(ino, dir);
        for txn in self.txns.locks.shown_in_dir(ino) {
            let Some(Work::Lend { renaming, .. }) = self.ctx.shown_work(txn) else { continue };
            let is_dir = |entry: Option<&Entry>| i32::from(entry.is_some_and(|e| e.stub.is_some()));
            let more = is_dir(Some(&renaming.file)) - is_dir(renaming.there.as_ref());
            attr.nlink = attr.nlink.saturating_add_signed(more);
            attr.mtime = names_changed_at(attr.mtime, attr.ctime, renaming.time);
            attr.ctime = attr.ctime.max(renaming.time);
        }
        attr
    }

    /// Attributes of a file that is homed here, as they are shown.
    pub(crate) fn shown_file(self, row: &Inode) -> Attr {
        let mut attr = row.attr;
        if self.txns.locks.shows_nothing() {
            return attr;
        }
        for txn in self.txns.locks.on_file(attr.ino).filter(|txn| self.txns.locks.is_shown(*txn)) {
            let Some(work) = self.ctx.shown_work(txn) else { continue };
            let claim = self.ctx.claims(work).into_iter().find(|(ino, _)| *ino == attr.ino);
            attr.nlink = match claim {
                Some((_, Claim::More)) => attr.nlink + 1,
                Some((_, Claim::Less)) => attr.nlink.saturating_sub(1),
                _ => attr.nlink,
            };
            let time = match work {
                Work::Lend { renaming, .. } => renaming.time,
                Work::Count { time, .. } | Work::Drop { time, .. } | Work::Renamed { time, .. } => *time,
                _ => attr.ctime,
            };
            attr.ctime = attr.ctime.max(time);
        }
        attr
    }

    /// Nothing that another island may have decided already is prepared for a name, or was not when the
    /// request came.
    pub(crate) fn name_is_settled(self, dir: Ino, name: &Name) -> Result<(), Blocked> {
        if planted(Bug::UndecidedLookup) {
            return Ok(());
        }
        self.is_done_again_at(dir, Some(name))?;
        self.ctx.is_not_going(dir)?;
        self.txns
            .locks
            .prepared(dir, Some(name), self.ctx.upto, false)
            .map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// As [`Look::name_is_settled`], for all names of a directory.
    pub(crate) fn names_are_settled(self, dir: Ino) -> Result<(), Blocked> {
        if planted(Bug::UndecidedListing) {
            return Ok(());
        }
        self.is_done_again_at(dir, None)?;
        self.ctx.is_not_going(dir)?;
        self.txns.locks.prepared(dir, None, self.ctx.upto, false).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// As [`Look::names_are_settled`], and nothing of it can be lost.
    pub(crate) fn names_are_safe(self, dir: Ino) -> Result<(), Blocked> {
        self.is_done_again_at(dir, None)?;
        self.txns.locks.prepared(dir, None, self.ctx.upto, true).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// Nothing is prepared for a file that would change its names or count.
    pub(crate) fn file_is_free(self, ino: Ino) -> Result<(), Blocked> {
        self.txns.locks.on_file(ino).next().map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// As [`Look::file_is_free`], for who only looks: what was prepared since it came may happen after.
    pub(crate) fn file_is_settled(self, ino: Ino) -> Result<(), Blocked> {
        self.txns
            .locks
            .prepared_on_file(ino, self.ctx.upto, false)
            .map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// As [`Look::file_is_settled`], and nothing of it can be lost.
    pub(crate) fn file_is_safe(self, ino: Ino) -> Result<(), Blocked> {
        self.txns
            .locks
            .prepared_on_file(ino, self.ctx.upto, true)
            .map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// Nothing that moves this directory is under way: its static attributes may change.
    pub(crate) fn stays(self, ino: Ino) -> Result<(), Blocked> {
        self.txns.locks.holds_dir(ino).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }
}

impl Ctx {
    /// The work of what has happened, and is not safe.
    fn shown_work(&self, txn: TxnId) -> Option<&Work> {
        self.state.txn(txn).map(|row| &row.part.work)
    }

    /// Nobody may have decided already that the directory is removed.
    fn is_not_going(&self, dir: Ino) -> Result<(), Blocked> {
        let sealed = self.state.dir(dir)?.and_then(|dir| dir.owned.as_ref()?.sealed);
        sealed.map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_posix::Kind;

    #[test]
    fn what_is_shown_takes_the_place_of_rows_and_stands_between_them() {
        let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
        let entry = |ino| Entry { ino: Ino(ino), kind: Kind::Regular, home: IslandId(0), stub: None };
        let names = ["a", "b", "c", "d"].map(name);
        let [a, b, c, d] = &names;
        let (one, three, also) = (entry(1), entry(3), entry(4));
        // Two names may share a cookie.
        let rows = [(10, a, &one), (30, c, &three), (30, d, &also)];
        let shown = [(20, b, entry(12)), (30, c, entry(13)), (40, a, entry(14))];
        let all: Vec<_> =
            as_shown(rows.into_iter(), &shown).map(|(at, _, entry)| (at, entry.ino.0)).collect();
        assert_eq!(all, [(10, 1), (20, 12), (30, 13), (30, 4), (40, 14)]);
        assert!(as_shown(rows.into_iter(), &[]).eq(rows));
        assert_eq!(as_shown(std::iter::empty(), &shown).count(), 3);
    }
}
