//! Operations on data of a file or directory besides its bytes and names: attributes, extended attributes,
//! ACLs, locks.

use crate::tree::{Model, Outcome};
use atoll_core::{Ino, SessionId, Time};
use atoll_posix::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR, set_access};
use atoll_posix::locks::LockRefused;
use atoll_posix::perm::{Denied, apply_setattr};
use atoll_posix::xattr::{
    CAPABILITY, Change, LIST_BYTES_MAX, Namespace, check_value, is_listed, may_read, may_write,
};
use atoll_posix::{Answer, Caller, Errno, Kind, LockRange, SetAttr, XattrMode, mode};
use bytes::Bytes;

/// Version of an ACL's value, in front of its entries.
const ACL_HEADER_BYTES: usize = 4;
/// Space of the volume: as good as any number for a tree in memory.
const BYTES: u64 = 1 << 40;
/// Inodes of the volume.
const INODES: u64 = 1 << 32;

impl Model {
    pub(crate) fn get_attr(&self, ino: Ino) -> Result<Outcome, Denied> {
        Ok(Answer::Attr { attr: self.node(ino)?.attr }.into())
    }

    pub(crate) fn set_attr(
        &mut self,
        now: Time,
        caller: &Caller,
        ino: Ino,
        set: &SetAttr,
    ) -> Result<Outcome, Denied> {
        let node = self.node(ino)?;
        let after = apply_setattr(&node.attr, node.acl.as_ref(), set, caller, now)?;
        let node = self.known(ino);
        node.attr = after;
        if let (Some(acl), Some(_)) = (&mut node.acl, set.mode) {
            acl.chmod(after.mode);
        }
        let chowned = (set.uid.is_some() || set.gid.is_some()) && node.attr.kind != Kind::Directory;
        if chowned || set.kill_set_id {
            node.xattrs.remove(CAPABILITY);
        }
        if let Some(size) = set.size {
            self.truncated(ino, size);
        }
        self.get_attr(ino)
    }

    pub(crate) fn get_xattr(&self, caller: &Caller, ino: Ino, name: &Bytes) -> Result<Outcome, Denied> {
        let node = self.node(ino)?;
        let value = match may_read(caller, node.owned(), node.acl.as_ref(), name)? {
            Namespace::AccessAcl => node.acl.as_ref().map(Acl::to_xattr),
            Namespace::DefaultAcl => node.default_acl.as_ref().map(Acl::to_xattr),
            _ => node.xattrs.get(name).map(|value| value.to_vec()),
        };
        Ok(Outcome::Answered(Answer::Data, value.ok_or(Errno::ENODATA)?))
    }

    pub(crate) fn set_xattr(
        &mut self,
        now: Time,
        caller: &Caller,
        ino: Ino,
        (name, value): (&Bytes, &Bytes),
        xattr_mode: XattrMode,
        kill_sgid: bool,
    ) -> Result<Outcome, Denied> {
        Namespace::of(name)?;
        check_value(value.len())?;
        let node = self.node(ino)?;
        let (what, there) = (node.owned(), node.xattrs.contains_key(name));
        let namespace = Namespace::of(name)?;
        // An ACL of no entries takes away the one that is there.
        let empty = is_acl(namespace) && value.len() <= ACL_HEADER_BYTES;
        let change = if empty { Change::Remove } else { Change::Set };
        may_write(caller, what, node.acl.as_ref(), name, change)?;
        let acl = if is_acl(namespace) && !value.is_empty() { Acl::parse(value)? } else { None };
        match namespace {
            Namespace::AccessAcl => {
                let (acl, bits) = set_access(caller, what, acl, kill_sgid)?;
                let node = self.known(ino);
                node.acl = acl;
                node.attr.mode = bits;
            }
            Namespace::DefaultAcl => self.known(ino).default_acl = acl,
            _ => {
                match xattr_mode {
                    XattrMode::Create if there => return Err(Errno::EEXIST.into()),
                    XattrMode::Replace if !there => return Err(Errno::ENODATA.into()),
                    _ => {}
                }
                if !there && self.listed(ino).len() + name.len() + 1 > LIST_BYTES_MAX {
                    return Err(Errno::ENOSPC.into());
                }
                let node = self.known(ino);
                node.xattrs.insert(name.clone(), value.clone());
                if kill_sgid {
                    node.attr.mode &= !mode::SETGID;
                }
            }
        }
        self.known(ino).attr.ctime = now;
        Ok(Answer::Done.into())
    }

    pub(crate) fn remove_xattr(
        &mut self,
        now: Time,
        caller: &Caller,
        ino: Ino,
        name: &Bytes,
    ) -> Result<Outcome, Denied> {
        let node = self.node(ino)?;
        let namespace = may_write(caller, node.owned(), node.acl.as_ref(), name, Change::Remove)?;
        let node = self.known(ino);
        let gone = match namespace {
            // Taking away an ACL that is not there succeeds.
            Namespace::AccessAcl => node.acl.take().is_some(),
            Namespace::DefaultAcl => node.default_acl.take().is_some(),
            _ => {
                node.xattrs.remove(name).ok_or(Errno::ENODATA)?;
                true
            }
        };
        if gone {
            node.attr.ctime = now;
        }
        Ok(Answer::Done.into())
    }

    /// Every name, each with a NUL behind it.
    fn listed(&self, ino: Ino) -> Vec<u8> {
        let node = &self.nodes[&ino];
        let acls = [(&node.acl, ACCESS_XATTR), (&node.default_acl, DEFAULT_XATTR)];
        let acls = acls.into_iter().filter(|(acl, _)| acl.is_some()).map(|(_, name)| name);
        let mut list = Vec::new();
        for name in acls.chain(node.xattrs.keys().map(Bytes::as_ref)) {
            list.extend_from_slice(name);
            list.push(0);
        }
        list
    }

    pub(crate) fn list_xattr(&self, caller: &Caller, ino: Ino) -> Result<Outcome, Denied> {
        self.node(ino)?;
        let list = self.listed(ino);
        let visible = list.split_inclusive(|&b| b == 0).filter(|name| is_listed(caller, name));
        Ok(Outcome::Answered(Answer::Data, visible.collect::<Vec<_>>().concat()))
    }

    pub(crate) fn statfs(&self) -> Outcome {
        let used = self.nodes.values().map(|node| node.attr.blocks * 512).sum::<u64>().min(BYTES);
        let inodes_free = INODES.saturating_sub(self.nodes.len() as u64);
        let (bytes_free, bytes_available) = (BYTES - used, BYTES - used);
        let (bytes, inodes, fs_id) = (BYTES, INODES, 0);
        Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, fs_id }.into()
    }

    pub(crate) fn get_lock(&self, session: SessionId, ino: Ino, lock: &LockRange) -> Result<Outcome, Denied> {
        let lock = self.node(ino)?.locks.test(session, lock);
        Ok(Answer::Lock { lock }.into())
    }

    pub(crate) fn set_lock(
        &mut self,
        session: SessionId,
        ino: Ino,
        lock: &LockRange,
        wait: bool,
    ) -> Result<Outcome, Denied> {
        match self.node_mut(ino)?.locks.set(session, lock) {
            Ok(_) => Ok(Answer::Done.into()),
            Err(LockRefused::Blocked { .. }) if wait => Ok(Outcome::Blocked),
            Err(LockRefused::Blocked { .. }) => Err(Errno::EAGAIN.into()),
            Err(LockRefused::TooMany) => Err(Errno::ENOLCK.into()),
            Err(LockRefused::BadRange) => Err(Errno::EINVAL.into()),
        }
    }
}

const fn is_acl(namespace: Namespace) -> bool {
    matches!(namespace, Namespace::AccessAcl | Namespace::DefaultAcl)
}
