//! Attributes: stat, chmod, chown, utimens, extended attributes and ACLs, of files at their home
//! and of directories at their owner, whose static ones go through the journal.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, Ino, Stamp};
use atoll_posix::perm::{self, ObjectPerms};
use atoll_posix::xattr::{self, Namespace};
use atoll_posix::{Answer, Caller, Errno, Readings, SetAttr, XattrMode, acl, mode};
use atoll_proto::{Dir, DirPlace, Inode, JournalEntry, Outcome, RequestResult, StaticAttrs, Xattrs};
use bytes::Bytes;

use crate::ctx::decision::Decision;
use crate::ctx::posts::Audience;
use crate::ctx::request::{Blocked, PendingRequest, Step, WaitFor};
use crate::ctx::shown::dir_attr;
use crate::island::Island;
use crate::look::Look;
use crate::rows::path::{done, ok};
use crate::rows::skeleton::set_xattrs;

/// Bytes of all extended attributes of one file or directory together, as they are encoded. More cannot be set
/// (`ENOSPC`): they are one row, and go to another island with the file.
const XATTRS_BYTES_MAX: usize = 256 * 1024;

/// A file or a directory that is decided on here.
enum Node {
    File(Inode),
    Dir(Dir),
}

impl Island {
    /// A file was read: its access time changes and nothing else, so caches stay good and no change time
    /// moves. The answer does not wait for the record, because the reader does not care whether a power cut
    /// takes it.
    pub(crate) fn accessed(&mut self, ino: Ino, access: &Readings) -> Result<Step, Blocked> {
        // A clock that is ahead, or lies, gives nothing a time that is not yet.
        let now = self.ctx.now.wall;
        let access = Readings { first: access.first.min(now), last: access.last.min(now), ..*access };
        let mut decision = Decision::new();
        match self.look().node(ino)? {
            Node::File(mut row) => {
                let atime = access.atime(&row.attr);
                if atime == row.attr.atime {
                    return Ok(Step::Looked(done()));
                }
                self.look().require_unlocked_file(ino)?;
                row.attr.atime = atime;
                decision.inode(row);
            }
            Node::Dir(mut dir) => {
                let atime = access.atime(&dir_attr(ino, &dir));
                let owned = dir.owned.as_mut().expect("owned");
                if atime == owned.atime {
                    return Ok(Step::Looked(done()));
                }
                owned.atime = atime;
                self.look().open_for_names(ino)?;
                decision.dir(ino, dir);
            }
        }
        self.ctx.decide(decision);
        Ok(Step::Looked(done()))
    }

    pub(crate) fn set_attr(
        &mut self,
        call: &PendingRequest,
        ino: Ino,
        set: &SetAttr,
        turn: bool,
    ) -> Result<Step, Blocked> {
        match self.look().node(ino)? {
            Node::Dir(dir) => self.set_dir_attr(call, ino, dir, set),
            Node::File(row) => {
                self.look().require_unlocked_file(ino)?;
                let (after, xattrs) = self.ctx.changed_attr(call, ino, set)?;
                if set.size.is_some_and(|size| size > 0) && row.is_absent && !call.is_of_beside() {
                    return Err(Blocked::NotNow);
                }
                if set.size.is_some() {
                    return self.bodies.set_size(&mut self.ctx, call, ino, set, &after.attr, turn);
                }
                let attr = after.attr;
                let mut decision = Decision::new();
                debug_assert_eq!(row.attr.ino, ino);
                decision.file(after, xattrs);
                decision.remember_for(call, RequestResult::Attr { ino });
                self.ctx.decide(decision);
                Ok(Step::Decided(ok(Answer::Attr { attr }, None)))
            }
        }
    }

    fn set_dir_attr(
        &mut self,
        call: &PendingRequest,
        ino: Ino,
        mut dir: Dir,
        set: &SetAttr,
    ) -> Result<Step, Blocked> {
        self.look().require_durable_names(ino)?;
        let before = dir_attr(ino, &dir);
        let access = self.ctx.acl(ino, dir.has_acl, acl::ACCESS_XATTR)?;
        let now = self.ctx.time();
        let after = perm::apply_setattr(&before, access.as_ref(), set, call.caller(), now)?;
        let xattrs = match access {
            Some(access) if set.mode.is_some() => Some(self.ctx.with_mode(ino, access, after.mode)?),
            _ => None,
        };
        self.look().open_for_names(ino)?;
        let is_static = (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid);
        if is_static && !planted(Bug::AttributesWhileNamed) {
            self.look().nothing_begun_in(ino)?;
            self.look().require_unfrozen_dir(ino)?;
        }
        let owned = dir.owned.as_mut().expect("owned");
        owned.atime = after.atime;
        owned.mtime = after.mtime;
        owned.ctime = after.ctime;
        if !is_static && xattrs.is_none() {
            let mut decision = Decision::new();
            decision.dir(ino, dir);
            decision.remember_for(call, RequestResult::Attr { ino });
            self.ctx.decide(decision);
            return Ok(Step::Decided(ok(Answer::Attr { attr: after }, None)));
        }
        let bits = (after.mode, after.uid, after.gid);
        let mut decision = Decision::new();
        let stamp = self.fix(&mut decision, ino, dir, bits, xattrs)?;
        decision.remember_for(call, RequestResult::Attr { ino });
        self.ctx.decide(decision);
        Ok(Step::Wait(WaitFor::Applied(stamp, ok(Answer::Attr { attr: after }, None))))
    }

    /// Changes a directory's static attributes, here and through the journal.
    fn fix(
        &mut self,
        decision: &mut Decision,
        ino: Ino,
        mut dir: Dir,
        (mode, uid, gid): (u32, u32, u32),
        xattrs: Option<Xattrs>,
    ) -> Result<Stamp, Blocked> {
        let place = self.recovery.place_to_be(&self.ctx, self.txns.locks(), ino, &dir.place);
        self.ctx.child_must_be_loaded(&place, ino)?;
        let audience = self.audience_of_attrs(ino, &dir, &place)?;
        // All ACLs go to the others, whatever changes: whoever missed the change before this has them with it.
        let xattrs = match xattrs {
            Some(xattrs) => xattrs,
            None if dir.has_xattrs => self.ctx.state.xattrs(ino)?.cloned().unwrap_or_default(),
            None => Xattrs::default(),
        };
        let stamp = self.ctx.stamp();
        decision.stamp(stamp);
        dir.fixed = StaticAttrs { version: stamp, mode, uid, gid };
        set_xattrs(decision, ino, &mut dir, xattrs.clone());
        let fixed = dir.fixed;
        decision.dir(ino, dir);
        self.ctx.apply_to_stub(decision, ino, &place, &fixed);
        let xattrs = xattrs.acls();
        let entry = JournalEntry::StaticAttrs { ino, place, fixed, xattrs };
        self.ctx.post(decision, stamp, &entry, audience, false);
        Ok(stamp)
    }

    /// Who must know the attributes of a directory that is owned here: of a leaf the owner of the directory above it, which has
    /// them beside the name.
    fn audience_of_attrs(&self, ino: Ino, dir: &Dir, place: &DirPlace) -> Result<Audience, Blocked> {
        if ino == Ino::ROOT || *place != dir.place || !self.look().is_leaf(ino, dir) {
            return Ok(Audience::All);
        }
        let Some(parent) = self.ctx.state.dir(place.parent)? else { return Ok(Audience::All) };
        let owner = self.ctx.config.owner(parent.key);
        Ok(Audience::Only(Some(owner).filter(|owner| *owner != self.ctx.config.id)))
    }

    // ------------------------------------------------------ extended attributes

    /// Sets (`Some`) or removes an extended attribute. An access ACL is kept in the mode as far as
    /// the mode can say it.
    pub(crate) fn set_xattr(
        &mut self,
        call: &PendingRequest,
        ino: Ino,
        name: &Bytes,
        value: Option<(&Bytes, XattrMode)>,
        kill_sgid: bool,
    ) -> Result<Step, Blocked> {
        let (owned, access, mut xattrs) = self.look().node_xattrs(ino)?;
        let change = if value.is_some() { xattr::Change::Set } else { xattr::Change::Remove };
        let namespace = xattr::may_write(call.caller(), owned, access.as_ref(), name, change)?;
        let mut bits = owned.mode;
        let there = xattrs.get(name).is_some();
        let is_acl = matches!(namespace, Namespace::AccessAcl | Namespace::DefaultAcl);
        match (value, namespace) {
            // Linux does not ask for ACLs whether there is one.
            (Some((_, XattrMode::Create)), _) if there && !is_acl => return Err(Errno::EEXIST.into()),
            (Some((_, XattrMode::Replace)), _) if !there && !is_acl => return Err(Errno::ENODATA.into()),
            (Some((value, _)), Namespace::AccessAcl) => {
                let parsed = parse_acl(value)?;
                let (acl, new_bits) = acl::set_access(call.caller(), owned, parsed, kill_sgid)?;
                bits = new_bits;
                match acl {
                    Some(acl) => xattrs.set(name.clone(), acl.to_xattr().into()),
                    None => {
                        xattrs.remove(name);
                    }
                }
            }
            (Some((value, _)), Namespace::DefaultAcl) => match parse_acl(value)? {
                Some(acl) => xattrs.set(name.clone(), acl.to_xattr().into()),
                None => {
                    xattrs.remove(name);
                }
            },
            (Some((value, _)), _) => {
                xattr::check_value(value.len())?;
                self.ctx.room.take(value.len() as u64)?;
                xattrs.set(name.clone(), value.clone());
            }
            // Taking away an ACL that is not there is fine, as Linux has it.
            (None, Namespace::AccessAcl | Namespace::DefaultAcl) => {
                if !xattrs.remove(name) {
                    return Ok(Step::Looked(done()));
                }
            }
            (None, _) => {
                if !xattrs.remove(name) {
                    return Err(Errno::ENODATA.into());
                }
            }
        }
        if value.is_some() && xattrs.encoded_len() > XATTRS_BYTES_MAX {
            return Err(Errno::ENOSPC.into());
        }
        match self.look().node(ino)? {
            Node::File(mut row) => {
                let now = self.ctx.time();
                row.attr.mode = bits & mode::ALL;
                row.attr.ctime = now;
                row.has_acl = xattrs.has_acls();
                let mut decision = Decision::new();
                decision.file(row, Some(xattrs));
                decision.remember_for(call, RequestResult::Done);
                self.ctx.decide(decision);
                Ok(Step::Decided(done()))
            }
            Node::Dir(mut dir) => {
                self.look().open_for_names(ino)?;
                self.look().nothing_begun_in(ino)?;
                self.look().require_unfrozen_dir(ino)?;
                let now = self.ctx.time();
                dir.owned.as_mut().expect("owned").ctime = now;
                let (uid, gid) = (dir.fixed.uid, dir.fixed.gid);
                let mut decision = Decision::new();
                let bits = (bits & mode::ALL, uid, gid);
                let stamp = self.fix(&mut decision, ino, dir, bits, Some(xattrs))?;
                decision.remember_for(call, RequestResult::Done);
                self.ctx.decide(decision);
                Ok(Step::Wait(WaitFor::Applied(stamp, done())))
            }
        }
    }
}

impl<'a> Look<'a> {
    /// A file homed here or a directory owned here.
    fn node(self, ino: Ino) -> Result<Node, Blocked> {
        if let Some(row) = self.ctx.state.inode(ino)? {
            return Ok(Node::File(row.clone()));
        }
        Ok(Node::Dir(self.owned(ino)?.clone()))
    }

    pub(crate) fn get_attr(self, ino: Ino) -> Result<Step, Blocked> {
        if let Some(row) = self.ctx.state.inode(ino)? {
            self.require_decided_file(ino)?;
            return Ok(Step::Looked(ok(Answer::Attr { attr: self.shown_file(row) }, None)));
        }
        // Whether it has a name must be decided: whoever removed it may have been told so.
        self.ctx.is_not_going(ino)?;
        let dir = self.owned(ino)?;
        self.require_decided_dir(ino)?;
        Ok(Step::Looked(ok(Answer::Attr { attr: self.shown_dir(ino, dir) }, Some(dir.key))))
    }

    /// An operation that is begun in a directory was allowed, and inherits, by the present attributes of the
    /// directory. They stay until it is decided.
    fn nothing_begun_in(self, dir: Ino) -> Result<(), Blocked> {
        self.locks.in_dir(dir).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }

    fn node_xattrs(self, ino: Ino) -> Result<(ObjectPerms, Option<acl::Acl>, Xattrs), Blocked> {
        let (owned, has_acl, has_xattrs) = match self.node(ino)? {
            Node::File(row) => (ObjectPerms::from(&row.attr), row.has_acl, row.has_xattrs),
            Node::Dir(dir) => (crate::rows::path::owned_by(&dir.fixed), dir.has_acl, dir.has_xattrs),
        };
        let acl = self.ctx.acl(ino, has_acl, acl::ACCESS_XATTR)?;
        let xattrs = if has_xattrs { self.ctx.state.xattrs(ino)?.cloned() } else { None };
        Ok((owned, acl, xattrs.unwrap_or_default()))
    }

    pub(crate) fn get_xattr(self, caller: &Caller, ino: Ino, name: &Bytes) -> Result<Step, Blocked> {
        let (owned, acl, xattrs) = self.node_xattrs(ino)?;
        xattr::may_read(caller, owned, acl.as_ref(), name)?;
        let value = xattrs.get(name).ok_or(Blocked::Fail(Errno::ENODATA))?;
        Ok(Step::Looked(Outcome::Data { data: value.clone() }))
    }

    pub(crate) fn list_xattr(self, caller: &Caller, ino: Ino) -> Result<Step, Blocked> {
        let (_, _, xattrs) = self.node_xattrs(ino)?;
        let mut data = Vec::new();
        for (name, _) in xattrs.0.iter().filter(|(name, _)| xattr::is_listed(caller, name)) {
            data.extend_from_slice(name);
            data.push(0);
        }
        if data.len() > xattr::LIST_BYTES_MAX {
            return Err(Errno(7).into());
        }
        Ok(Step::Looked(Outcome::Data { data: data.into() }))
    }
}

/// Reads an ACL that is to be set.
fn parse_acl(value: &Bytes) -> Result<Option<acl::Acl>, Errno> {
    if value.len() > acl::ACL_BYTES_MAX { Err(Errno::ENOSPC) } else { acl::Acl::parse(value) }
}
