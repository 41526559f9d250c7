//! Calls on attributes of a simulated member, with the rules of POSIX.

use atoll_posix::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR, set_access};
use atoll_posix::perm::{apply_setattr, granted};
use atoll_posix::xattr::{Change, LIST_BYTES_MAX, Namespace, check_value, is_listed, may_read, may_write};
use atoll_posix::{Caller, Errno, Kind, SetAttr, XattrMode, mode};
use atoll_union::{At, Copied, NativeStat};
use bytes::Bytes;

use super::world::{World, native};

impl World {
    pub(super) fn set_attr(&mut self, by: &Caller, of: &At, set: &SetAttr) -> Result<NativeStat, Errno> {
        let ino = self.find(of)?;
        // The kernel itself takes the bits away when an unprivileged caller cuts a file.
        let kills = set.kill_set_id || (set.size.is_some() && !by.is_root());
        let set = &SetAttr { kill_set_id: kills, ..*set };
        let (node, now) = (self.node(ino), self.clock);
        let after = apply_setattr(&node.attr(ino), node.acl.as_ref(), set, by, now).map_err(native)?;
        if let Some(size) = set.size {
            self.resize(ino, size)?;
        }
        let node = self.node_mut(ino);
        if set.mode.is_some()
            && let Some(acl) = &mut node.acl
        {
            acl.chmod(after.mode);
        }
        (node.mode, node.uid, node.gid) = (after.mode, after.uid, after.gid);
        (node.atime, node.mtime, node.ctime) = (after.atime, after.mtime, after.ctime);
        Ok(self.stat(ino))
    }

    pub(super) fn readlink(&self, of: &At) -> Result<Bytes, Errno> {
        let node = self.node(self.find(of)?);
        if node.kind == Kind::Symlink { Ok(node.data.to_vec().into()) } else { Err(Errno::EINVAL) }
    }

    fn xattr(&self, ino: u64, namespace: Namespace, name: &[u8]) -> Option<Bytes> {
        let node = self.node(ino);
        match namespace {
            Namespace::AccessAcl => node.acl.as_ref().map(|acl| acl.to_xattr().into()),
            Namespace::DefaultAcl => node.default_acl.as_ref().map(|acl| acl.to_xattr().into()),
            _ => node.xattrs.get(name).cloned(),
        }
    }

    pub(super) fn get_xattr(&self, by: &Caller, of: &At, name: &[u8]) -> Result<Bytes, Errno> {
        let ino = self.find(of)?;
        let node = self.node(ino);
        let namespace = may_read(by, node.perms(), node.acl.as_ref(), name).map_err(native)?;
        self.xattr(ino, namespace, name).ok_or(Errno::ENODATA)
    }

    pub(super) fn set_xattr(
        &mut self,
        by: &Caller,
        of: &At,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
        kill_sgid: bool,
    ) -> Result<(), Errno> {
        let ino = self.find(of)?;
        let node = self.node(ino);
        let namespace = may_write(by, node.perms(), node.acl.as_ref(), name, Change::Set).map_err(native)?;
        check_value(value.len())?;
        match (how, self.xattr(ino, namespace, name)) {
            (XattrMode::Create, Some(_)) => return Err(Errno::EEXIST),
            (XattrMode::Replace, None) => return Err(Errno::ENODATA),
            _ => {}
        }
        let now = self.clock;
        match namespace {
            Namespace::AccessAcl => {
                let acl = Acl::parse(value)?;
                let (acl, bits) = set_access(by, node.perms(), acl, kill_sgid).map_err(native)?;
                let node = self.node_mut(ino);
                node.acl = acl;
                node.mode = if kill_sgid { bits & !mode::SETGID } else { bits };
            }
            Namespace::DefaultAcl => self.node_mut(ino).default_acl = Acl::parse(value)?,
            _ => {
                let listed: usize = node.xattrs.keys().map(|name| name.len() + 1).sum();
                if !node.xattrs.contains_key(name) && listed + name.len() >= LIST_BYTES_MAX {
                    return Err(Errno::ENOSPC);
                }
                let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
                self.node_mut(ino).xattrs.insert(name, value);
            }
        }
        self.node_mut(ino).ctime = now;
        Ok(())
    }

    fn xattr_names(&self, ino: u64) -> Vec<Bytes> {
        let node = self.node(ino);
        let access = node.acl.is_some().then_some(Bytes::from_static(ACCESS_XATTR));
        let default = node.default_acl.is_some().then_some(Bytes::from_static(DEFAULT_XATTR));
        access.into_iter().chain(default).chain(node.xattrs.keys().cloned()).collect()
    }

    pub(super) fn list_xattr(&self, by: &Caller, of: &At) -> Result<Bytes, Errno> {
        let names = self.xattr_names(self.find(of)?);
        let shown = names.iter().filter(|name| is_listed(by, name));
        Ok(shown.flat_map(|name| [&name[..], b"\0"].concat()).collect())
    }

    pub(super) fn remove_xattr(&mut self, by: &Caller, of: &At, name: &[u8]) -> Result<(), Errno> {
        let ino = self.find(of)?;
        let node = self.node(ino);
        let namespace =
            may_write(by, node.perms(), node.acl.as_ref(), name, Change::Remove).map_err(native)?;
        let acl = matches!(namespace, Namespace::AccessAcl | Namespace::DefaultAcl);
        if self.xattr(ino, namespace, name).is_none() {
            // An ACL that is not there is removed without an error on Linux.
            return if acl { Ok(()) } else { Err(Errno::ENODATA) };
        }
        let now = self.clock;
        let node = self.node_mut(ino);
        match namespace {
            Namespace::AccessAcl => node.acl = None,
            Namespace::DefaultAcl => node.default_acl = None,
            _ => {
                node.xattrs.remove(name);
            }
        }
        node.ctime = now;
        Ok(())
    }

    pub(super) fn access(&self, by: &Caller, of: &At) -> Result<u8, Errno> {
        let node = self.node(self.find(of)?);
        let granted = granted(by, node.perms(), node.acl.as_ref()).map_err(native)?;
        let is_fixed = self.faults.read_only && node.kind != Kind::Directory;
        Ok(if is_fixed { granted & !2 } else { granted })
    }

    pub(super) fn copy_of(&self, of: &At) -> Result<Copied, Errno> {
        let ino = self.find(of)?;
        let node = self.node(ino);
        if node.kind == Kind::Directory && node.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let value = |name: &Bytes| {
            let namespace = Namespace::of(name).unwrap_or(Namespace::Unknown);
            self.xattr(ino, namespace, name).unwrap_or_default()
        };
        Ok(Copied {
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            atime: node.atime,
            mtime: node.mtime,
            xattrs: self.xattr_names(ino).into_iter().map(|name| (name.clone(), value(&name))).collect(),
        })
    }

    pub(super) fn make_like(&mut self, ino: u64, like: &Copied) -> Result<(), Errno> {
        let (mut acl, mut default_acl, mut xattrs) = (None, None, Vec::new());
        for (name, value) in &like.xattrs {
            let directory = self.node(ino).kind == Kind::Directory;
            match Namespace::of(name)? {
                Namespace::AccessAcl => acl = Acl::parse(value)?,
                Namespace::DefaultAcl if directory => default_acl = Acl::parse(value)?,
                Namespace::DefaultAcl => return Err(Errno::EACCES),
                Namespace::Unknown => return Err(Errno::EOPNOTSUPP),
                _ => xattrs.push((name.clone(), value.clone())),
            }
        }
        let now = self.clock;
        let node = self.node_mut(ino);
        (node.acl, node.default_acl) = (acl, default_acl);
        node.xattrs = xattrs.into_iter().collect();
        (node.mode, node.uid, node.gid) = (like.mode, like.uid, like.gid);
        (node.atime, node.mtime, node.ctime) = (like.atime, like.mtime, now);
        Ok(())
    }
}
