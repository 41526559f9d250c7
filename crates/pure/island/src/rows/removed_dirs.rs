//! Directories that were removed while a mount may have them open. The owner keeps such a directory's attributes in an
//! `Inode` row of the kind directory, as it keeps a file that has no name: for all mounts that are attached, until each
//! has said that it does not have it open. Its listing is empty, and it takes no names: there is no `Dir` row.
//!
//! Invariant: the directory's `Xattrs` row belongs to the `Inode` row as long as that is there. A `Dir` row of the same
//! id, which is left in the skeleton for what is below it, says that it has none.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, SessionId, Time};
use atoll_posix::Attr;
use atoll_proto::{Dir, Inode, RowChange};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::shown::dir_attr;

impl Ctx {
    /// A directory that is owned here loses its name at `time`, and goes. If a mount may have it open, its attributes
    /// stay. Every mount is told of that, the one that removes it too: the answer comes from the parent's owner, which
    /// may be another island.
    pub(crate) fn remove_named_dir(&mut self, decision: &mut Decision, ino: Ino, time: Time) {
        let row = self.dir_now(decision, ino).filter(|row| row.owned.is_some());
        let holders = self.possible_openers(ino);
        let Some(row) = row.filter(|_| !holders.is_empty() && !planted(Bug::OrphanDropped)) else {
            return self.remove_dir(decision, ino);
        };
        self.remove_dir_but(decision, ino, true);
        self.keep_removed(decision, ino, &row, holders, time);
    }

    /// The attributes of a directory that goes at `time` stay for these. They are told of it.
    pub(crate) fn keep_removed(
        &mut self,
        decision: &mut Decision,
        ino: Ino,
        row: &Dir,
        holders: Vec<SessionId>,
        time: Time,
    ) {
        let before = dir_attr(ino, row);
        let attr = Attr { nlink: 0, size: 0, blocks: 0, ctime: before.ctime.max(time), ..before };
        for session in &holders {
            decision.push(RowChange::Held { session: *session, ino, on: true });
        }
        self.notify_unlinked(&holders, None, ino);
        let (has_xattrs, has_acl) = (row.has_xattrs, row.has_acl);
        decision.inode(Inode {
            attr,
            target: None,
            has_xattrs,
            has_acl,
            moves: 0,
            orphan_of: holders,
            beside: None,
            is_absent: false,
        });
    }

    /// Whether the attributes of a removed directory are kept here for a mount, as far as memory knows.
    pub(crate) fn is_kept_removed(&self, ino: Ino) -> bool {
        let holds = |session: SessionId| {
            self.state.session(session).is_some_and(|row| row.held.binary_search(&ino).is_ok())
        };
        self.state.session_ids().any(holds) && !matches!(self.state.inode(ino), Ok(None))
    }
}
