//! Rows of files: changes of their attributes, and of everything that a file has when it is removed.

use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Ino, SessionId};
use atoll_posix::{Attr, Errno, Kind, SetAttr, acl, perm, xattr};
use atoll_proto::{BodyChange, Inode, RowChange, Xattrs};
use bytes::Bytes;

use crate::ctx::Ctx;
use crate::ctx::decision::{Decision, Entails};
use crate::ctx::request::{Blocked, PendingRequest};

impl Ctx {
    /// A file may have bytes up to `end`; none: beyond what a number holds. Else `EFBIG`.
    pub(crate) fn may_reach(&self, end: Option<u64>) -> Result<(), Errno> {
        let most = self.beside.as_ref().map_or(perm::FILE_BYTES_MAX, |beside| beside.file_bytes_max());
        if end.is_some_and(|end| end <= most) { Ok(()) } else { Err(Errno::EFBIG) }
    }

    /// A file's row, and its extended attributes if they change too, after `set`.
    pub(crate) fn changed_attr(
        &mut self,
        call: &PendingRequest,
        ino: Ino,
        set: &SetAttr,
    ) -> Result<(Inode, Option<Xattrs>), Blocked> {
        let mut row = self.file(ino)?.clone();
        let acl = self.acl(ino, row.has_acl, acl::ACCESS_XATTR)?;
        let now = self.time();
        let before = row.attr;
        row.attr = perm::apply_setattr(&before, acl.as_ref(), set, call.caller(), now)?;
        if row.attr.size > before.size {
            self.may_reach(Some(row.attr.size))?;
        }
        if row.is_absent && call.is_of_beside() {
            // Its user has not changed it: these come with its row.
            row.attr = Attr { mode: before.mode, mtime: before.mtime, ctime: before.ctime, ..row.attr };
            return Ok((row, None));
        }
        // What is cut off need not come any more.
        row.is_absent &= set.size != Some(0);
        let mut xattrs = match acl {
            Some(acl) if set.mode.is_some() => Some(self.with_mode(ino, acl, row.attr.mode)?),
            _ => None,
        };
        if (set.size.is_some() || set.uid.is_some() || set.gid.is_some())
            && let Some(without) = self.without_capability(&row)?
        {
            match &mut xattrs {
                Some(xattrs) => drop(xattrs.remove(xattr::CAPABILITY)),
                None => xattrs = Some(without),
            }
        }
        Ok((row, xattrs))
    }

    /// The extended attributes of a file after its bytes or owner change, if that takes away rights of its
    /// program beyond those of its user (capabilities(7)).
    pub(crate) fn without_capability(&self, row: &Inode) -> Result<Option<Xattrs>, Blocked> {
        if !row.has_xattrs {
            return Ok(None);
        }
        let Some(xattrs) = self.state.xattrs(row.attr.ino)? else { return Ok(None) };
        if xattrs.get(xattr::CAPABILITY).is_none() {
            return Ok(None);
        }
        let mut without = xattrs.clone();
        without.remove(xattr::CAPABILITY);
        Ok(Some(without))
    }

    /// Extended attributes with the access ACL following a chmod.
    pub(crate) fn with_mode(&self, ino: Ino, mut access: acl::Acl, bits: u32) -> Result<Xattrs, Blocked> {
        access.chmod(bits);
        let mut xattrs = self.state.xattrs(ino)?.cloned().unwrap_or_default();
        xattrs.set(Bytes::from_static(acl::ACCESS_XATTR), access.to_xattr().into());
        Ok(xattrs)
    }

    /// A file goes for good.
    pub(crate) fn drop_file(&mut self, decision: &mut Decision, row: &Inode) {
        let ino = row.attr.ino;
        decision.no_inode(ino);
        if row.has_xattrs {
            decision.xattrs(ino, None);
        }
        if row.attr.kind == Kind::Regular && row.attr.size > 0 {
            decision.push(RowChange::SumsCut { ino, first: 0, end: blocks(row.attr.size) });
        }
        self.drop_locks(decision, ino);
        if row.attr.kind == Kind::Directory {
            return;
        }
        decision.body(BodyChange::Drop { ino });
        decision.entails(Entails::BodyGoes(ino));
    }

    /// Removes the locks of a file that is removed. Each holder knows of its lock, so the row itself need not
    /// be in memory.
    pub(crate) fn drop_locks(&self, decision: &mut Decision, ino: Ino) {
        let holds =
            |s: &SessionId| self.state.session(*s).is_some_and(|row| row.held.binary_search(&ino).is_ok());
        let holders: Vec<SessionId> = self.state.session_ids().filter(holds).collect();
        if holders.is_empty() {
            return;
        }
        decision.push(RowChange::Locks { ino, row: None });
        for session in holders {
            decision.push(RowChange::Held { session, ino, on: false });
        }
    }

    pub(crate) fn drop_session_locks(&mut self, decision: &mut Decision, session: SessionId, ino: Ino) {
        if let Ok(Some(locks)) = self.state.locks(ino) {
            let mut locks = locks.clone();
            if locks.drop_session(session) {
                decision.locks(ino, locks);
            }
        }
    }
}

/// Blocks of a file of so many bytes.
pub(crate) const fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES)
}
