//! Answers from the skeleton about directories, and about links to them, whose owner is away.

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Errno, Kind, NamedObject};
use atoll_proto::{ParticipantWork, TxnState};

use crate::ctx::Ctx;
use crate::ctx::request::{Blocked, Step};
use crate::ctx::shown::dir_attr;
use crate::rows::path::ok;

impl Ctx {
    /// Proves a directory by the skeleton, or tells of a link to one, when its parent owner is away.
    pub(crate) fn skeleton(&self, parent: Ino, name: &Name) -> Result<Step, Blocked> {
        let there = self.state.entry(parent, name)?.filter(|entry| entry.kind == Kind::Directory);
        let Some(entry) = there else { return self.skeleton_link(parent, name) };
        if self.comes_or_goes(entry.ino) {
            // It may never have been there, or be gone: only who coordinates that knows.
            return Err(Errno::ESTALE.into());
        }
        let dir = self.state.dir(entry.ino)?.ok_or(Blocked::Fail(Errno::ESTALE))?;
        let found = NamedObject { attr: dir_attr(entry.ino, dir), attr_current: dir.owned.is_some() };
        Ok(Step::Looked(ok(Answer::Found { found }, Some(dir.key))))
    }

    /// A mkdir or rmdir of this directory is prepared here, and may be done or not.
    fn comes_or_goes(&self, ino: Ino) -> bool {
        self.state.txn_ids().filter_map(|txn| self.state.txn(txn)).any(|row| {
            row.state == TxnState::Prepared
                && match &row.part.work {
                    ParticipantWork::Adopt { dir, .. } => dir.ino == ino,
                    ParticipantWork::Seal { ino: goes, .. } => *goes == ino,
                    _ => false,
                }
        })
    }

    /// Attributes of a directory as the skeleton knows them, or of a link to one, when its owner is away.
    pub(crate) fn skeleton_attr(&self, ino: Ino) -> Result<Step, Blocked> {
        let Some(dir) = self.state.dir(ino)? else { return self.skeleton_link_attr(ino) };
        Ok(Step::Looked(ok(Answer::Attr { attr: dir_attr(ino, dir) }, Some(dir.key))))
    }
}
