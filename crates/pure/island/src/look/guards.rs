//! Reasons for a request to wait: a transaction is prepared and not decided, or rows may have been lost.

use std::borrow::Cow;
use std::ops::Range;

use atoll_core::cookie_of;
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name, TxnId};
use atoll_posix::Attr;
use atoll_proto::{Dir, Entry, Inode, ParticipantWork};

use super::Look;
use crate::ctx::Ctx;
use crate::ctx::FileClaim;
use crate::ctx::decision::names_changed_at;
use crate::ctx::request::Blocked;
use crate::ctx::shown::dir_attr;
use crate::rows::moves::arrived;

impl<'a> Look<'a> {
    /// A name as it is shown.
    pub(crate) fn shown(self, dir: Ino, name: &Name) -> Result<Option<Cow<'a, Entry>>, Blocked> {
        if let Some(txn) = self.locks.shown_name(dir, name)
            && let Some(ParticipantWork::BorrowName { renaming, .. }) = self.ctx.shown_work(txn)
        {
            return Ok(Some(Cow::Owned(arrived(&renaming.file, renaming))));
        }
        Ok(self.named(dir, name)?.map(Cow::Borrowed))
    }

    /// Names of a directory by changes that have happened and are not safe, by their cookies.
    pub(crate) fn shown_names(self, dir: Ino, cookies: Range<u64>) -> Vec<(u64, &'a Name, Entry)> {
        let mut shown = Vec::new();
        for txn in self.locks.shown_in_dir(dir) {
            let Some(ParticipantWork::BorrowName { renaming, .. }) = self.ctx.shown_work(txn) else {
                continue;
            };
            let cookie = cookie_of(self.ctx.config.seed, renaming.to.name.as_bytes());
            if cookies.contains(&cookie) {
                shown.push((cookie, &renaming.to.name, arrived(&renaming.file, renaming)));
            }
        }
        shown.sort_unstable_by_key(|(cookie, name, _)| (*cookie, *name));
        shown
    }

    /// The entry of a name in a directory that is owned here. None only if the name surely leads to nothing.
    pub(crate) fn named(self, dir: Ino, name: &Name) -> Result<Option<&'a Entry>, Blocked> {
        let entry = self.ctx.state.entry(dir, name)?;
        if entry.is_none() {
            self.require_complete_dir(dir)?;
        }
        Ok(entry)
    }

    /// No name is missing in a directory that others know of, and have not told after an unclean end.
    pub(crate) fn require_complete_dir(self, dir: Ino) -> Result<(), Blocked> {
        if self.missing.is_incomplete() && !planted(Bug::AbsentIsEmpty) {
            let row = self.ctx.state.dir(dir)?;
            if row.and_then(|row| row.owned.as_ref()).is_some_and(|owned| owned.others.ever_borrowed) {
                return Err(self.ctx.retry_or_fail(self.ctx.config.others()));
            }
        }
        Ok(())
    }

    /// The attributes of a directory include every change of its names. Changes that nobody can tell now are
    /// left out.
    pub(crate) fn require_decided_dir(self, dir: Ino) -> Result<(), Blocked> {
        self.require_decided_names(dir)?;
        match self.require_complete_dir(dir) {
            Err(Blocked::Fail(_)) => Ok(()),
            settled => settled,
        }
    }

    /// Attributes of a directory that is owned here, as they are shown.
    pub(crate) fn shown_dir(self, ino: Ino, dir: &Dir) -> Attr {
        let mut attr = dir_attr(ino, dir);
        for txn in self.locks.shown_in_dir(ino) {
            let Some(ParticipantWork::BorrowName { renaming, .. }) = self.ctx.shown_work(txn) else {
                continue;
            };
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
        if self.locks.shows_nothing() {
            return attr;
        }
        for txn in self.locks.on_file(attr.ino).filter(|txn| self.locks.is_shown(*txn)) {
            let Some(work) = self.ctx.shown_work(txn) else { continue };
            let claim = self.ctx.claims(work).into_iter().find(|(ino, _)| *ino == attr.ino);
            attr.nlink = match claim {
                Some((_, FileClaim::More)) => attr.nlink + 1,
                Some((_, FileClaim::Less)) => attr.nlink.saturating_sub(1),
                _ => attr.nlink,
            };
            let time = match work {
                ParticipantWork::BorrowName { renaming, .. } => renaming.time,
                ParticipantWork::AddName { time, .. }
                | ParticipantWork::RemoveName { time, .. }
                | ParticipantWork::MoveName { time, .. } => *time,
                _ => attr.ctime,
            };
            attr.ctime = attr.ctime.max(time);
        }
        attr
    }

    /// No change of a name is prepared that another island may have decided already, or none was when the
    /// request came.
    pub(crate) fn require_decided_name(self, dir: Ino, name: &Name) -> Result<(), Blocked> {
        if planted(Bug::UndecidedLookup) {
            return Ok(());
        }
        self.is_done_again_at(dir, Some(name))?;
        self.ctx.is_not_going(dir)?;
        self.locks
            .prepared(dir, Some(name), self.ctx.upto, false)
            .map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// The same as [`Look::require_decided_name`], for all names of a directory.
    pub(crate) fn require_decided_names(self, dir: Ino) -> Result<(), Blocked> {
        if planted(Bug::UndecidedListing) {
            return Ok(());
        }
        self.is_done_again_at(dir, None)?;
        self.ctx.is_not_going(dir)?;
        self.locks.prepared(dir, None, self.ctx.upto, false).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// The same as [`Look::require_decided_names`], and nothing of it can be lost.
    pub(crate) fn require_durable_names(self, dir: Ino) -> Result<(), Blocked> {
        self.is_done_again_at(dir, None)?;
        self.locks.prepared(dir, None, self.ctx.upto, true).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// Nothing is prepared for a file that would change its names or count.
    pub(crate) fn require_unlocked_file(self, ino: Ino) -> Result<(), Blocked> {
        self.locks.on_file(ino).next().map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// The same as [`Look::require_unlocked_file`], for a request that only reads: work that was prepared since it
    /// came may happen after it.
    pub(crate) fn require_decided_file(self, ino: Ino) -> Result<(), Blocked> {
        self.locks.prepared_on_file(ino, self.ctx.upto, false).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// The same as [`Look::require_decided_file`], and nothing of it can be lost.
    pub(crate) fn require_durable_file(self, ino: Ino) -> Result<(), Blocked> {
        self.locks.prepared_on_file(ino, self.ctx.upto, true).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// Nothing that moves this directory is under way: its static attributes may change.
    pub(crate) fn require_unfrozen_dir(self, ino: Ino) -> Result<(), Blocked> {
        self.locks.holds_dir(ino).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    /// No transaction has locked the name, and no lost one may have brought another file there. Otherwise a
    /// change of the name would change a file that is not the name's.
    pub(crate) fn require_unlocked_name(self, dir: Ino, name: &Name) -> Result<(), Blocked> {
        self.is_done_again_at(dir, Some(name))?;
        self.require_complete_dir(dir)?;
        match self.locks.holder(dir, name) {
            Some(txn) if !planted(Bug::LentNameNotHeld) || txn.coordinator == self.ctx.config.id => {
                Err(Blocked::Txn(txn))
            }
            _ => Ok(()),
        }
    }

    /// Blocked until the lost changes that other islands made to a name of a directory, or to any name in it,
    /// are redone. Until then the row is not the name's present one.
    pub(crate) fn is_done_again_at(self, dir: Ino, name: Option<&Name>) -> Result<(), Blocked> {
        let Some(to) = self.missing.comes_to(dir, name) else { return Ok(()) };
        // It may wait for one that is away, and so for ever.
        Err(match self.locks.holder(to.dir, &to.name) {
            Some(txn) => Blocked::Txn(txn),
            None => self.ctx.retry_or_fail(self.missing.witnesses()),
        })
    }
}

impl Ctx {
    /// The work of transactions that have happened and are not safe.
    fn shown_work(&self, txn: TxnId) -> Option<&ParticipantWork> {
        self.state.txn(txn).map(|row| &row.part.work)
    }

    /// Nobody may have decided already that the directory is removed.
    pub(crate) fn is_not_going(&self, dir: Ino) -> Result<(), Blocked> {
        let sealed = self.state.dir(dir)?.and_then(|dir| dir.owned.as_ref()?.sealed);
        sealed.map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::IslandId;
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
