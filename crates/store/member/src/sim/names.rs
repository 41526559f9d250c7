//! Calls on names of a simulated member, with the rules of POSIX. Checks everything before it changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_core::Name;
use atoll_posix::perm::{AccessMode, born, may_create, may_delete, may_make};
use atoll_posix::{Caller, Errno, Kind, RenameMode};
use atoll_union::{At, Copied, NativeEntry, NativeId, NativeReply, NativeStat};
use bytes::Bytes;

use super::world::{Entry, Node, ROOT, World, native};

impl World {
    /// What a name means. `ENOENT`, `EXDEV`.
    fn entry(&self, dir: u64, name: &Name) -> Result<u64, Errno> {
        if self.node(dir).kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let entry = self.node(dir).entries.get(name).ok_or(Errno::ENOENT)?;
        if self.mounts.contains(&(dir, name.clone())) { Err(Errno::EXDEV) } else { Ok(entry.ino) }
    }

    fn expect(&self, dir: u64, name: &Name, id: NativeId) -> Result<u64, Errno> {
        let ino = self.entry(dir, name)?;
        if self.id(ino) == id { Ok(ino) } else { Err(Errno::ESTALE) }
    }

    pub(super) fn look(&self, by: &Caller, dir: NativeId, name: &Name) -> Result<NativeStat, Errno> {
        let dir = self.dir(dir)?;
        self.may(by, dir, AccessMode::EXEC)?;
        self.entry(dir, name).map(|ino| self.stat(ino))
    }

    pub(super) fn open_dir(&mut self, dir: NativeId, name: &Name) -> Result<NativeStat, Errno> {
        let dir = self.dir(dir)?;
        let ino = self.entry(dir, name)?;
        let stat = self.stat(ino);
        if stat.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.hold(stat.id);
        Ok(stat)
    }

    /// The member's process has a directory open. A direct program does not keep it.
    fn hold(&mut self, id: NativeId) {
        if !self.direct {
            self.held_mut().dirs.insert(id);
        }
    }

    pub(super) fn list(
        &self,
        by: &Caller,
        dir: NativeId,
        from: u64,
        bytes: u32,
    ) -> Result<NativeReply, Errno> {
        let ino = self.dir(dir)?;
        self.may(by, ino, AccessMode::READ)?;
        if self.node(ino).nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let mut entries: Vec<_> = self.node(ino).entries.iter().filter(|(_, e)| e.place > from).collect();
        entries.sort_by_key(|(_, entry)| entry.place);
        let (mut names, mut total, mut next) = (Vec::new(), 0, None);
        for (name, entry) in entries {
            total += name.as_bytes().len() + size_of::<u64>();
            let kind = self.node(entry.ino).kind;
            names.push(NativeEntry { name: name.clone(), ino: entry.ino, kind });
            if total >= bytes as usize {
                next = Some(entry.place);
                break;
            }
        }
        Ok(NativeReply::Names { names, next, dir: self.stat(ino) })
    }

    /// A new node, not yet named, with the owner and permissions that a caller's new node in `dir` gets.
    fn new_node(
        &mut self,
        by: &Caller,
        dir: u64,
        kind: Kind,
        (mode, umask): (u32, u32),
    ) -> Result<u64, Errno> {
        let above = self.node(dir);
        let perms = born(by, above.perms(), above.default_acl.as_ref(), kind, mode, umask).map_err(native)?;
        let ino = self.free_ino()?;
        let now = self.clock;
        let node = Node {
            btime: now,
            kind,
            mode: perms.mode,
            uid: perms.uid,
            gid: perms.gid,
            nlink: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            data: Arc::default(),
            entries: BTreeMap::new(),
            above: dir,
            xattrs: BTreeMap::new(),
            acl: perms.acl,
            default_acl: perms.default_acl,
        };
        self.tree.nodes.insert(ino, node);
        Ok(ino)
    }

    /// `EEXIST`, `EACCES`; `ENOENT` in a directory that was removed.
    fn may_name(&self, by: &Caller, dir: u64, name: &Name) -> Result<(), Errno> {
        let node = self.node(dir);
        if node.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.may(by, dir, AccessMode::EXEC)?;
        if node.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        if node.entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        may_create(by, node.perms(), node.acl.as_ref()).map_err(native)
    }

    fn put(&mut self, dir: u64, name: &Name, ino: u64) {
        let (place, now) = (self.tree.next_place, self.clock);
        self.tree.next_place += 1;
        let is_dir = self.node(ino).kind == Kind::Directory;
        let node = self.node_mut(dir);
        node.entries.insert(name.clone(), Entry { ino, place });
        (node.mtime, node.ctime) = (now, now);
        node.nlink += u32::from(is_dir);
        let node = self.node_mut(ino);
        node.nlink = if is_dir { node.nlink.max(2) } else { node.nlink + 1 };
        node.ctime = now;
        if is_dir {
            node.above = dir;
        }
        self.tell_of_others(dir, name);
    }

    /// Takes a name away, and with the last one the node unless somebody holds it.
    fn take(&mut self, dir: u64, name: &Name, moves: bool) {
        let now = self.clock;
        let Some(entry) = self.node_mut(dir).entries.remove(name) else { return };
        let is_dir = self.node(entry.ino).kind == Kind::Directory;
        let node = self.node_mut(dir);
        (node.mtime, node.ctime) = (now, now);
        node.nlink -= u32::from(is_dir);
        let node = self.node_mut(entry.ino);
        node.ctime = now;
        match (is_dir, moves) {
            (true, true) => {}
            (true, false) => node.nlink = 0,
            (false, _) => node.nlink -= 1,
        }
        self.tell_of_others(dir, name);
        if !moves {
            self.free(entry.ino);
        }
    }

    pub(super) fn make(
        &mut self,
        by: &Caller,
        dir: NativeId,
        name: &Name,
        kind: Kind,
        mode: (u32, u32),
        rdev: u32,
        target: &Bytes,
    ) -> Result<NativeStat, Errno> {
        let dir = self.dir(dir)?;
        if kind == Kind::Directory {
            return Err(Errno::EINVAL);
        }
        self.may_name(by, dir, name)?;
        may_make(by, kind, rdev).map_err(native)?;
        let ino = self.new_node(by, dir, kind, mode)?;
        if kind == Kind::Symlink {
            self.node_mut(ino).data = Arc::new(target.to_vec());
        }
        if matches!(kind, Kind::CharDevice | Kind::BlockDevice) {
            self.node_mut(ino).rdev = rdev;
        }
        self.put(dir, name, ino);
        Ok(self.stat(ino))
    }

    pub(super) fn mkdir(
        &mut self,
        by: &Caller,
        dir: NativeId,
        name: &Name,
        mode: u32,
        umask: u32,
    ) -> Result<NativeStat, Errno> {
        let dir = self.dir(dir)?;
        self.may_name(by, dir, name)?;
        let ino = self.new_node(by, dir, Kind::Directory, (mode, umask))?;
        self.put(dir, name, ino);
        self.hold(self.id(ino));
        Ok(self.stat(ino))
    }

    pub(super) fn mkdir_like(
        &mut self,
        dir: NativeId,
        name: &Name,
        like: &Copied,
    ) -> Result<NativeStat, Errno> {
        let before = self.stat(dir.ino);
        let stat = self.mkdir(&Caller::ROOT, dir, name, 0o700, 0)?;
        let made = self.make_like(stat.id.ino, like);
        if let Some(above) = self.tree.nodes.get_mut(&dir.ino) {
            (above.atime, above.mtime) = (before.atime, before.mtime);
        }
        match made {
            Ok(()) => Ok(self.stat(stat.id.ino)),
            Err(errno) => {
                self.held_mut().dirs.remove(&stat.id);
                self.take(dir.ino, name, false);
                Err(errno)
            }
        }
    }

    pub(super) fn tmpfile(
        &mut self,
        by: &Caller,
        dir: NativeId,
        mode: u32,
        umask: u32,
    ) -> Result<NativeReply, Errno> {
        let dir = self.dir(dir)?;
        self.may(by, dir, AccessMode::CHANGE_NAMES)?;
        let ino = self.new_node(by, dir, Kind::Regular, (mode, umask))?;
        let open = self.opened(ino);
        Ok(NativeReply::Opened { open, stat: self.stat(ino) })
    }

    fn may_remove(&self, by: &Caller, dir: u64, ino: u64) -> Result<(), Errno> {
        let node = self.node(dir);
        may_delete(by, node.perms(), node.acl.as_ref(), self.node(ino).perms()).map_err(native)
    }

    pub(super) fn unlink(
        &mut self,
        by: &Caller,
        dir: NativeId,
        name: &Name,
        id: NativeId,
    ) -> Result<(), Errno> {
        let dir = self.dir(dir)?;
        self.may(by, dir, AccessMode::EXEC)?;
        let ino = self.expect(dir, name, id)?;
        if self.node(ino).kind == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        self.may_remove(by, dir, ino)?;
        self.take(dir, name, false);
        Ok(())
    }

    pub(super) fn rmdir(
        &mut self,
        by: &Caller,
        dir: NativeId,
        name: &Name,
        id: NativeId,
    ) -> Result<(), Errno> {
        let dir = self.dir(dir)?;
        self.may(by, dir, AccessMode::EXEC)?;
        let ino = self.expect(dir, name, id)?;
        self.may_remove(by, dir, ino)?;
        if self.node(ino).kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if !self.node(ino).entries.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.take(dir, name, false);
        Ok(())
    }

    fn is_above(&self, above: u64, mut below: u64) -> bool {
        while below != ROOT && below != above {
            below = self.node(below).above;
        }
        below == above
    }

    pub(super) fn rename(
        &mut self,
        by: &Caller,
        (dir, name): (NativeId, &Name),
        id: NativeId,
        (new_dir, new_name): (NativeId, &Name),
        new_id: Option<NativeId>,
        mode: RenameMode,
    ) -> Result<(), Errno> {
        let (from, to) = (self.dir(dir)?, self.dir(new_dir)?);
        self.may(by, from, AccessMode::EXEC)?;
        let ino = self.expect(from, name, id)?;
        self.may(by, to, AccessMode::EXEC)?;
        if self.node(to).nlink == 0 {
            let believed = new_id.is_some() && mode != RenameMode::NoReplace;
            return Err(if believed { Errno::ESTALE } else { Errno::ENOENT });
        }
        let there = match self.entry(to, new_name) {
            Err(Errno::ENOENT) => None,
            there => Some(there?),
        };
        if mode == RenameMode::NoReplace {
            if there.is_some() {
                return Err(Errno::EEXIST);
            }
        } else if there.map(|ino| self.id(ino)) != new_id {
            return Err(Errno::ESTALE);
        }
        if mode == RenameMode::Exchange && there.is_none() {
            return Err(Errno::ENOENT);
        }
        let is_dir = |ino| self.node(ino).kind == Kind::Directory;
        if (is_dir(ino) && self.is_above(ino, to))
            || (mode == RenameMode::Exchange && there.is_some_and(|there| self.is_above(there, from)))
        {
            return Err(Errno::EINVAL);
        }
        self.may_remove(by, from, ino)?;
        match there {
            None => self.may_name(by, to, new_name)?,
            Some(there) if there == ino => return Ok(()),
            Some(there) => {
                self.may_remove(by, to, there)?;
                match (mode, is_dir(ino), is_dir(there)) {
                    (RenameMode::Exchange, ..) => {}
                    (_, false, true) => return Err(Errno::EISDIR),
                    (_, true, false) => return Err(Errno::ENOTDIR),
                    _ => {}
                }
            }
        }
        // Whoever moves a directory changes its "..".
        if from != to {
            let moved = [Some(ino), there.filter(|_| mode == RenameMode::Exchange)];
            for moved in moved.into_iter().flatten().filter(|ino| is_dir(*ino)) {
                self.may(by, moved, AccessMode::WRITE)?;
            }
        }
        let full = there.is_some_and(|there| is_dir(there) && !self.node(there).entries.is_empty());
        if mode != RenameMode::Exchange && full {
            return Err(Errno::ENOTEMPTY);
        }
        self.take(from, name, true);
        if let Some(there) = there {
            let exchange = mode == RenameMode::Exchange;
            self.take(to, new_name, exchange);
            if exchange {
                self.put(from, name, there);
                self.tell(from, name);
            }
        }
        self.put(to, new_name, ino);
        self.tell(to, new_name);
        Ok(())
    }

    pub(super) fn link(
        &mut self,
        by: &Caller,
        of: &At,
        dir: NativeId,
        name: &Name,
    ) -> Result<NativeStat, Errno> {
        let ino = self.find(of)?;
        let dir = self.dir(dir)?;
        self.may_name(by, dir, name)?;
        if self.node(ino).kind == Kind::Directory {
            return Err(Errno::EPERM);
        }
        self.put(dir, name, ino);
        Ok(self.stat(ino))
    }

    /// The names from the root down to a directory. `ESTALE` if it was removed.
    fn path(&self, mut ino: u64) -> Result<Vec<Name>, Errno> {
        if self.node(ino).nlink == 0 {
            return Err(Errno::ESTALE);
        }
        let mut path = Vec::new();
        while ino != ROOT {
            let above = self.node(ino).above;
            let mut entries = self.node(above).entries.iter();
            let (name, _) = entries.find(|(_, entry)| entry.ino == ino).ok_or(Errno::ESTALE)?;
            path.push(name.clone());
            ino = above;
        }
        path.reverse();
        Ok(path)
    }

    pub(super) fn place_of(&self, dir: NativeId) -> Result<NativeReply, Errno> {
        let ino = self.dir(dir)?;
        Ok(NativeReply::Placed { stat: self.stat(ino), path: Some(self.path(ino)?) })
    }

    pub(super) fn handle_of(&mut self, of: &At) -> Result<Bytes, Errno> {
        let ino = self.find(of)?;
        let id = self.id(ino);
        self.held_mut().handles.insert(id);
        let parts = [&id.ino.to_le_bytes()[..], &id.btime.secs.to_le_bytes(), &id.btime.nanos.to_le_bytes()];
        Ok(parts.concat().into())
    }

    pub(super) fn by_handle(&mut self, handle: &[u8]) -> Result<NativeReply, Errno> {
        let number = |from: usize| handle.get(from..from + 8)?.try_into().ok().map(u64::from_le_bytes);
        let ino = number(0).ok_or(Errno::ESTALE)?;
        let alive = self.tree.nodes.get(&ino).ok_or(Errno::ESTALE)?;
        let told = [&alive.btime.secs.to_le_bytes()[..], &alive.btime.nanos.to_le_bytes()].concat();
        if handle[8..] != told || alive.nlink == 0 {
            return Err(Errno::ESTALE);
        }
        let stat = self.stat(ino);
        if stat.kind != Kind::Directory {
            self.held_mut().handles.insert(stat.id);
            return Ok(NativeReply::Placed { stat, path: None });
        }
        let path = self.path(ino)?;
        self.hold(stat.id);
        Ok(NativeReply::Placed { stat, path: Some(path) })
    }

    pub(super) fn forget_dirs(&mut self, dirs: &[NativeId]) {
        for dir in dirs.iter().filter(|dir| dir.ino != ROOT) {
            self.held_mut().dirs.remove(dir);
            self.held_mut().watched.remove(dir);
            self.free(dir.ino);
        }
    }
}
