//! A decision that is being made: the rows that it changes, from which its record is made.

use atoll_core::planted::{Bug, planted};
use atoll_core::sum::BlockSums;
use atoll_core::{Ino, Name, SessionId, Stamp, Time, TxnId};
use atoll_posix::locks::Locks;
use atoll_proto::{
    BodyChange, Dir, Entry, EntryRef, Inode, Record, RequestResult, RowChange, Session, Txn, Xattrs,
};

use bytes::Bytes;

use super::request::PendingRequest;

/// The changes that a record entails in the memory of machines. They are dropped if the decision is dropped.
#[derive(Debug, Clone)]
pub(crate) enum Entails {
    /// The skeleton has got a directory, or it is at another place.
    DirPlaced(Ino),
    /// A file is removed for good, and its body is removed when the record is synced.
    BodyGoes(Ino),
    /// A file that is homed here has got a name in a directory that another island owns.
    NameElsewhere { ino: Ino, at: EntryRef },
}

/// The content of a record that is being decided.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decision {
    pub(crate) record: Record,
    /// Bytes that the record names and does not carry.
    pub(crate) placed: Bytes,
    /// Directories that it takes out of the skeleton because nothing needs them.
    pub(crate) pruned: usize,
    /// Directories of the skeleton whose names others get.
    pub(crate) displaced: Vec<Ino>,
    /// Several places are taken in one decision: the place that one directory leaves may be the one that
    /// another gets.
    pub(crate) prunes_nothing: bool,
    /// The changes that it entails.
    pub(crate) entails: Vec<Entails>,
    /// The machine beside the island has made it.
    pub(crate) is_of_beside: bool,
    /// Directories whose rows do not fit what another island has said.
    pub(crate) misfits: Vec<(Ino, &'static str)>,
}

impl Decision {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn push(&mut self, change: RowChange) {
        self.record.changes.push(change);
    }

    /// What another island has said does not fit the row of a directory. It is reported when this is decided.
    pub(crate) fn misfit(&mut self, dir: Ino, why: &'static str) {
        self.misfits.push((dir, why));
    }

    /// A count of a directory's row that changes. What another island has said may be false: the count stays in its bounds.
    pub(crate) fn counted(&mut self, dir: Ino, count: u32, by: i32) -> u32 {
        count.checked_add_signed(by).unwrap_or_else(|| {
            self.misfit(dir, "a count would leave its bounds");
            count
        })
    }

    pub(crate) fn entails(&mut self, what: Entails) {
        self.entails.push(what);
    }

    pub(crate) fn body(&mut self, change: BodyChange) {
        self.record.bodies.push(change);
    }

    pub(crate) fn inode(&mut self, row: Inode) {
        self.push(RowChange::Inode { ino: row.attr.ino, row: Some(Box::new(row)) });
    }

    /// A file's row, with its extended attributes if they change too.
    pub(crate) fn file(&mut self, mut row: Inode, xattrs: Option<Xattrs>) {
        if let Some(xattrs) = xattrs {
            row.has_xattrs = !xattrs.0.is_empty();
            self.xattrs(row.attr.ino, row.has_xattrs.then_some(xattrs));
        }
        self.inode(row);
    }

    pub(crate) fn no_inode(&mut self, ino: Ino) {
        self.push(RowChange::Inode { ino, row: None });
    }

    pub(crate) fn dir(&mut self, ino: Ino, row: Dir) {
        self.push(RowChange::Dir { ino, row: Some(Box::new(row)) });
    }

    pub(crate) fn no_dir(&mut self, ino: Ino) {
        self.push(RowChange::Dir { ino, row: None });
    }

    pub(crate) fn entry(&mut self, dir: Ino, name: &Name, row: Option<Entry>) {
        self.push(RowChange::Entry { dir, name: name.clone(), row });
    }

    pub(crate) fn xattrs(&mut self, ino: Ino, row: Option<Xattrs>) {
        self.push(RowChange::Xattrs { ino, row });
    }

    /// Checksums of blocks that were written.
    pub(crate) fn sums(&mut self, ino: Ino, new: BlockSums) {
        if let Some((block, sum)) = new.tail {
            self.push(RowChange::Sums { ino, first: block, sums: vec![sum] });
        }
        self.push(RowChange::Sums { ino, first: new.first, sums: new.sums });
    }

    pub(crate) fn locks(&mut self, ino: Ino, locks: Locks) {
        let row = if locks.is_empty() { None } else { Some(locks) };
        self.push(RowChange::Locks { ino, row });
    }

    pub(crate) fn txn(&mut self, txn: TxnId, row: Option<Txn>) {
        self.push(RowChange::Txn { txn, row: row.map(Box::new) });
    }

    pub(crate) fn session(&mut self, session: SessionId, row: Option<Session>) {
        self.push(RowChange::Session { session, row });
    }

    pub(crate) fn stamp(&mut self, stamp: Stamp) {
        self.push(RowChange::Stamp { stamp });
    }

    /// Remembers the first result of a request in the record that decides it.
    pub(crate) fn remember_for(&mut self, call: &PendingRequest, result: RequestResult) {
        if !planted(Bug::ResultForgotten) {
            self.remember(call.session(), call.request.seq, call.request.acked, result);
        }
    }

    /// The same as [`Decision::remember_for`], for a request that is known by its session and number alone.
    pub(crate) fn remember(&mut self, session: SessionId, seq: u64, acked: u64, result: RequestResult) {
        if seq != 0 {
            self.push(RowChange::Result { session, seq, acked, result });
        }
    }

    /// The directory after its names have changed: counts, and the times that POSIX asks for (mtime, ctime).
    pub(crate) fn names_changed(
        &mut self,
        ino: Ino,
        dir: &Dir,
        entries: i64,
        subdirs: i32,
        (mtime, ctime): (Time, Time),
    ) {
        let mut row = dir.clone();
        let Some(owned) = row.owned.as_mut() else {
            return self.misfit(ino, "its names change, and another island owns it");
        };
        owned.subdirs = self.counted(ino, owned.subdirs, subdirs);
        owned.entries = owned.entries.checked_add_signed(entries).unwrap_or_else(|| {
            self.misfit(ino, "a count would leave its bounds");
            owned.entries
        });
        owned.mtime = mtime;
        owned.ctime = ctime;
        self.dir(ino, row);
    }
}

/// The time of the last change of a directory's names, if some have changed at `time`; a later change may
/// have come first. An mtime that is older than the ctime was set by somebody, and is replaced by any change.
pub(crate) fn names_changed_at(mtime: Time, ctime: Time, time: Time) -> Time {
    if mtime > ctime { time } else { mtime.max(time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctx::Config;
    use crate::event::{Effect, Event, Now};
    use crate::island::Island;
    use crate::recovery::start::PreviousEnd;
    use atoll_core::{IslandId, Table, Time};
    use atoll_state::State;

    #[test]
    fn a_decision_that_changes_nothing_is_no_record() {
        let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
        let now = Now { wall: Time::default(), ms: 0 };
        let mut island = Island::new(config, State::new(1), PreviousEnd::PowerCut, now);
        let mut out = Vec::new();
        island.handle(now, Event::Tick { bytes_available: 1 << 40 }, &mut out);
        let seq = island.state().seq();
        assert_eq!(island.ctx.decide(Decision::new()), seq);
        island.handle(now, Event::Tick { bytes_available: 1 << 40 }, &mut out);
        let mut decision = Decision::new();
        decision.push(RowChange::Dirty { ino: atoll_core::Ino(77) });
        assert_eq!(island.ctx.decide(decision), seq + 1);
        island.handle(now, Event::Tick { bytes_available: 1 << 40 }, &mut out);
        let appended = out.iter().filter_map(|e| if let Effect::Append(n, ..) = e { Some(*n) } else { None });
        assert!(appended.eq(1..=seq + 1), "every record has its own number");
    }
}
