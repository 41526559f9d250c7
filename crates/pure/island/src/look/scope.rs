//! Whether something is inside the directory that is all that a session sees (`docs/design/022-subtrees.md`).

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, SessionId};
use atoll_posix::Errno;
use atoll_proto::EntryRef;

use super::Look;
use crate::ctx::request::Blocked;

impl Look<'_> {
    /// `ESTALE` for a directory that is not inside, as for one that never was.
    pub(crate) fn is_dir_inside(self, dir: Ino, scope: Ino) -> Result<(), Blocked> {
        if self.ctx.is_inside(dir, scope)? { Ok(()) } else { Err(Errno::ESTALE.into()) }
    }

    /// Whether a file or directory is inside. A file is if the name is inside by which the session has found it, or the newest
    /// name that is remembered of it; and if it has that name.
    pub(crate) fn is_inside(
        self,
        ino: Ino,
        by: Option<&EntryRef>,
        scope: Ino,
        session: Option<SessionId>,
    ) -> Result<(), Blocked> {
        if ino == scope || planted(Bug::FoundAnywhere) {
            return Ok(());
        }
        if self.ctx.state.dir(ino)?.is_some() {
            return self.is_dir_inside(ino, scope);
        }
        let row = self.homed(ino)?;
        if let Some(row) = row.filter(|row| row.attr.nlink == 0) {
            // Those that may have had it open when it lost its last name, and nobody else, may use it.
            let is_kept = session.is_some_and(|session| row.orphan_of.contains(&session));
            return if is_kept { Ok(()) } else { Err(Errno::ESTALE.into()) };
        }
        let latest = self.ctx.latest.of(ino);
        if row.is_none() && self.ctx.state.forward(ino).is_some() {
            // It has gone from here with all its names. The answer says where to, and no more.
            return latest.map_or(Err(Errno::ESTALE.into()), |at| self.is_dir_inside(at.dir, scope));
        }
        for at in by.into_iter().chain(latest) {
            let is_its = self.ctx.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino == ino);
            if is_its && self.ctx.is_inside(at.dir, scope)? {
                return Ok(());
            }
        }
        if let Some(txn) = self.locks.on_file(ino).next() {
            // It is about to get the name, or another one, and whoever owns the directory may show that already.
            return Err(Blocked::Txn(txn));
        }
        // It may have got the name before a power cut, by what others are about to tell.
        Err(if self.missing.is_incomplete() { Blocked::Unheard } else { Errno::ESTALE.into() })
    }
}
