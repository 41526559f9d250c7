//! Requests of callers for whom nobody has walked a path: the checks of an object that a walk or `open` would
//! have made, the rights of a caller, and the directory above. Reads only.

use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_posix::perm::{self, ObjectPerms};
use atoll_posix::{Answer, Caller, Errno, NamedObject, Op, acl};

use crate::ctx::request::{Blocked, Step};
use crate::ctx::shown::dir_attr;
use crate::look::Look;
use crate::rows::path::{ok, owned_by};

impl Look<'_> {
    /// The owner and the access ACL of a file or directory; none if it is not here.
    fn rights(self, ino: Ino) -> Result<Option<(ObjectPerms, Option<acl::Acl>)>, Blocked> {
        let (owned, has_acl) = match (self.ctx.state.inode(ino)?, self.ctx.state.dir(ino)?) {
            (Some(row), _) => (ObjectPerms::from(&row.attr), row.has_acl),
            (None, Some(dir)) => (owned_by(&dir.fixed), dir.has_acl),
            (None, None) => return Ok(None),
        };
        let has_acl = has_acl && !planted(Bug::AclNotAsked);
        Ok(Some((owned, self.ctx.acl(ino, has_acl, acl::ACCESS_XATTR)?)))
    }

    /// Whether `caller` may do `op` although nobody has walked to its objects for it. The operation itself
    /// checks rows that are not here.
    pub(crate) fn may_use(self, caller: &Caller, op: &Op) -> Result<(), Blocked> {
        for (ino, need) in perm::needs(op).into_iter().flatten() {
            if let Some((owned, acl)) = self.rights(ino)? {
                need.check(caller, owned, acl.as_ref())?;
            }
        }
        Ok(())
    }

    /// Which of read, write and execute `caller` has.
    pub(crate) fn access(self, caller: &Caller, ino: Ino) -> Result<Step, Blocked> {
        if self.ctx.state.inode(ino)?.is_some() {
            self.require_decided_file(ino)?;
        } else {
            self.owned(ino)?;
            self.require_decided_dir(ino)?;
        }
        let (owned, acl) = self.rights(ino)?.ok_or(Blocked::Fail(Errno::ESTALE))?;
        let granted = perm::granted(caller, owned, acl.as_ref())?;
        Ok(Step::Looked(ok(Answer::Access { granted }, None)))
    }

    /// The directory above one that is owned here, which is in its skeleton.
    pub(crate) fn parent(self, ino: Ino) -> Result<Step, Blocked> {
        let dir = self.owned(ino)?;
        self.require_decided_dir(ino)?;
        let above = if ino == Ino::ROOT { ino } else { dir.place.parent };
        let row = self.ctx.state.dir(above)?.ok_or(Blocked::Fail(Errno::ESTALE))?;
        let found = if row.owned.is_some() {
            self.require_decided_dir(above)?;
            NamedObject { attr: self.shown_dir(above, row), attr_current: true }
        } else {
            NamedObject { attr: dir_attr(above, row), attr_current: false }
        };
        Ok(Step::Looked(ok(Answer::Found { found }, Some(row.key))))
    }
}
