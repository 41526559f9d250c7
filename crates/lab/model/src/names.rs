//! Operations on names: who is refused and in which order, which counts and times change.
//!
//! The order of errors is that of Linux's VFS over ext4: walk, then "is it there", then permission,
//! then kind, then emptiness.

use crate::content::Content;
use crate::tree::{Body, DIRECTORY_SIZE, Directory, FIRST_COOKIE, LINKS_MAX, Model, Node, Outcome};
use atoll_core::{Ino, Name, Time};
use atoll_posix::locks::Locks;
use atoll_posix::perm::{AccessMode, Denied, born, may_create, may_delete, may_make};
use atoll_posix::{Answer, Attr, Caller, DirEntry, Errno, Kind, NamedObject, RenameMode};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Longest target of a symbolic link in bytes: `PATH_MAX` without its NUL.
const TARGET_BYTES_MAX: usize = 4095;

/// What to make.
pub(crate) struct New<'a> {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) rdev: u32,
    pub(crate) target: &'a Bytes,
}

/// A name in a directory.
type Place<'a> = (Ino, &'a Name);

impl Model {
    pub(crate) fn lookup(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<Outcome, Denied> {
        let ino = self.walk(caller, dir, name)?.ok_or(Errno::ENOENT)?;
        Ok(self.found(ino))
    }

    /// Whether a caller may walk through a directory.
    pub fn may_walk(&self, caller: &Caller, dir: Ino) -> Result<(), Denied> {
        let node = self.node(dir)?;
        node.directory()?;
        node.allows(caller, AccessMode::EXEC)
    }

    /// What `name` names, for a caller who may walk through `dir`.
    fn walk(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<Option<Ino>, Denied> {
        if !self.is_walked {
            self.may_walk(caller, dir)?;
        }
        let directory = self.node(dir)?.directory()?;
        Ok(directory.entries.get(name).map(|(ino, _)| *ino))
    }

    fn found(&self, ino: Ino) -> Outcome {
        Answer::Found { found: NamedObject { attr: self.nodes[&ino].attr, attr_current: true } }.into()
    }

    pub(crate) fn create(
        &mut self,
        now: Time,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        new: &New<'_>,
        exclusive: bool,
    ) -> Result<Outcome, Denied> {
        check_target(new)?;
        if let Some(ino) = self.walk(caller, dir, name)? {
            return if exclusive { Err(Errno::EEXIST.into()) } else { Ok(self.found(ino)) };
        }
        self.may_add(caller, dir)?;
        may_make(caller, new.kind, new.rdev)?;
        let body = match new.kind {
            Kind::Regular => Body::File(Content::default()),
            Kind::Symlink => Body::Symlink(new.target.clone()),
            _ => Body::Special,
        };
        let ino = self.make(now, caller, dir, new, body)?;
        self.add_name(now, dir, name, ino);
        Ok(self.found(ino))
    }

    pub(crate) fn mkdir(
        &mut self,
        now: Time,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        mode: u32,
        umask: u32,
    ) -> Result<Outcome, Denied> {
        if self.walk(caller, dir, name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.may_add(caller, dir)?;
        self.has_room_for_directory(dir)?;
        let new = New { kind: Kind::Directory, mode, umask, rdev: 0, target: &Bytes::new() };
        let body = Body::Directory(Directory { parent: dir, ..Directory::default() });
        let ino = self.make(now, caller, dir, &new, body)?;
        self.add_name(now, dir, name, ino);
        self.known(dir).attr.nlink += 1;
        Ok(self.found(ino))
    }

    fn make(
        &mut self,
        now: Time,
        caller: &Caller,
        dir: Ino,
        new: &New<'_>,
        body: Body,
    ) -> Result<Ino, Denied> {
        let above = self.node(dir)?;
        let born = born(caller, above.owned(), above.default_acl.as_ref(), new.kind, new.mode, new.umask)?;
        let ino = self.mint();
        let device = matches!(new.kind, Kind::CharDevice | Kind::BlockDevice);
        let (size, blocks) = match &body {
            Body::Directory(_) => (DIRECTORY_SIZE, 8),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::File(_) | Body::Special => (0, 0),
        };
        let attr = Attr {
            ino,
            kind: new.kind,
            mode: born.mode,
            nlink: if new.kind == Kind::Directory { 2 } else { 1 },
            uid: born.uid,
            gid: born.gid,
            rdev: if device { new.rdev } else { 0 },
            size,
            blocks,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let (acl, default_acl) = (born.acl, born.default_acl);
        let node = Node { attr, acl, default_acl, xattrs: BTreeMap::new(), body, locks: Locks::default() };
        self.nodes.insert(ino, node);
        Ok(ino)
    }

    /// A removed directory takes no names.
    fn is_alive(&self, dir: Ino) -> Result<(), Errno> {
        if self.node(dir)?.attr.nlink == 0 { Err(Errno::ENOENT) } else { Ok(()) }
    }

    /// Whether the caller may add a name to `dir`.
    fn may_add(&self, caller: &Caller, dir: Ino) -> Result<(), Denied> {
        self.is_alive(dir)?;
        let node = self.node(dir)?;
        may_create(caller, node.owned(), node.acl.as_ref())
    }

    fn may_remove(&self, caller: &Caller, dir: Ino, victim: Ino) -> Result<(), Denied> {
        let node = self.node(dir)?;
        may_delete(caller, node.owned(), node.acl.as_ref(), self.node(victim)?.owned())
    }

    fn has_room_for_directory(&self, dir: Ino) -> Result<(), Errno> {
        if self.node(dir)?.attr.nlink >= LINKS_MAX { Err(Errno::EMLINK) } else { Ok(()) }
    }

    /// Makes `name` a name of `ino`. A name that is there goes on with its cookie.
    fn add_name(&mut self, now: Time, dir: Ino, name: &Name, ino: Ino) {
        let node = self.known(dir);
        node.modified(now);
        let directory = node.directory_mut().expect("names are added to directories");
        if let Some((old, _)) = directory.entries.get_mut(name) {
            *old = ino;
            return;
        }
        let cookie = (directory.last_cookie + 1).max(FIRST_COOKIE);
        directory.last_cookie = cookie;
        directory.entries.insert(name.clone(), (ino, cookie));
    }

    fn remove_name(&mut self, now: Time, dir: Ino, name: &Name) {
        let node = self.known(dir);
        node.modified(now);
        let gone = node.directory_mut().expect("names are removed from directories").entries.remove(name);
        assert!(gone.is_some(), "{name} was not in {dir}");
    }

    /// One name of `ino` is gone. Answers with the file, if that was its last.
    fn drop_link(&mut self, now: Time, ino: Ino) -> Option<Ino> {
        let node = self.known(ino);
        node.attr.ctime = now;
        if node.is_directory() {
            node.attr.nlink = 0;
            return None;
        }
        node.attr.nlink -= 1;
        (node.attr.nlink == 0).then_some(ino)
    }

    pub(crate) fn unlink(
        &mut self,
        now: Time,
        caller: &Caller,
        dir: Ino,
        name: &Name,
    ) -> Result<Outcome, Denied> {
        let ino = self.walk(caller, dir, name)?.ok_or(Errno::ENOENT)?;
        self.may_remove(caller, dir, ino)?;
        if self.node(ino)?.is_directory() {
            return Err(Errno::EISDIR.into());
        }
        self.remove_name(now, dir, name);
        Ok(Answer::Removed { orphan: self.drop_link(now, ino) }.into())
    }

    pub(crate) fn rmdir(
        &mut self,
        now: Time,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        meant: Option<Ino>,
    ) -> Result<Outcome, Denied> {
        let ino = self.walk(caller, dir, name)?.ok_or(Errno::ENOENT)?;
        is_meant(meant, Some(ino))?;
        self.may_remove(caller, dir, ino)?;
        if !self.node(ino)?.directory()?.entries.is_empty() {
            return Err(Errno::ENOTEMPTY.into());
        }
        self.remove_name(now, dir, name);
        self.known(dir).attr.nlink -= 1;
        self.drop_link(now, ino);
        Ok(Answer::Done.into())
    }

    pub(crate) fn link(
        &mut self,
        now: Time,
        caller: &Caller,
        ino: Ino,
        dir: Ino,
        name: &Name,
    ) -> Result<Outcome, Denied> {
        let attr = self.node(ino)?.attr;
        if self.walk(caller, dir, name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.may_add(caller, dir)?;
        if attr.kind == Kind::Directory {
            return Err(Errno::EPERM.into());
        }
        if attr.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        if attr.nlink >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        self.add_name(now, dir, name, ino);
        let node = self.known(ino);
        node.attr.nlink += 1;
        node.attr.ctime = now;
        Ok(self.found(ino))
    }

    pub(crate) fn rename(
        &mut self,
        now: Time,
        caller: &Caller,
        old: Place<'_>,
        new: Place<'_>,
        mode: RenameMode,
        (meant, new_meant): (Option<Ino>, Option<Ino>),
    ) -> Result<Outcome, Denied> {
        // Both walks come before either name is looked for.
        let source = self.walk(caller, old.0, old.1)?;
        let target = self.walk(caller, new.0, new.1)?;
        let source = source.ok_or(Errno::ENOENT)?;
        self.is_alive(new.0)?;
        is_meant(meant, Some(source))?;
        is_meant(new_meant, target)?;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EEXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::ENOENT.into()),
            _ => {}
        }
        self.stays_a_tree(old.0, source, new.0, target, mode)?;
        if target == Some(source) {
            return Ok(Answer::Removed { orphan: None }.into());
        }
        self.may_rename(caller, old.0, source, new.0, target, mode)?;
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => Ok(self.exchange(now, old, source, new, target)),
            _ => self.replace(now, old, source, new, target),
        }
    }

    /// Nothing may go below itself, and what is above the source is not empty.
    fn stays_a_tree(
        &self,
        old_dir: Ino,
        source: Ino,
        new_dir: Ino,
        target: Option<Ino>,
        mode: RenameMode,
    ) -> Result<(), Errno> {
        if self.is_at_or_above(source, new_dir) {
            return Err(Errno::EINVAL);
        }
        if target.is_some_and(|target| self.is_at_or_above(target, old_dir)) {
            let exchange = mode == RenameMode::Exchange;
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        Ok(())
    }

    fn is_at_or_above(&self, upper: Ino, dir: Ino) -> bool {
        let mut at = dir;
        loop {
            if at == upper {
                return true;
            }
            match self.parent(at) {
                Some(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
    }

    fn may_rename(
        &self,
        caller: &Caller,
        old_dir: Ino,
        source: Ino,
        new_dir: Ino,
        target: Option<Ino>,
        mode: RenameMode,
    ) -> Result<(), Denied> {
        self.may_remove(caller, old_dir, source)?;
        let source_node = self.node(source)?;
        let is_directory = source_node.is_directory();
        let exchange = mode == RenameMode::Exchange;
        match target {
            None => self.may_add(caller, new_dir)?,
            Some(target) => {
                self.may_remove(caller, new_dir, target)?;
                match (is_directory, self.node(target)?.is_directory()) {
                    _ if exchange => {}
                    (true, false) => return Err(Errno::ENOTDIR.into()),
                    (false, true) => return Err(Errno::EISDIR.into()),
                    _ => {}
                }
            }
        }
        if old_dir == new_dir {
            return Ok(());
        }
        // The ".." of a directory that moves is one of its names.
        if is_directory {
            source_node.allows(caller, AccessMode::WRITE)?;
        }
        let target = target.map(|target| self.node(target)).transpose()?;
        if let Some(target) = target.filter(|target| exchange && target.is_directory()) {
            target.allows(caller, AccessMode::WRITE)?;
        }
        Ok(())
    }

    fn replace(
        &mut self,
        now: Time,
        old: Place<'_>,
        source: Ino,
        new: Place<'_>,
        target: Option<Ino>,
    ) -> Result<Outcome, Denied> {
        let is_directory = self.node(source)?.is_directory();
        if let Some(target) = target {
            let full = self.node(target)?.directory().is_ok_and(|directory| !directory.entries.is_empty());
            if full {
                return Err(Errno::ENOTEMPTY.into());
            }
        } else if is_directory && old.0 != new.0 {
            self.has_room_for_directory(new.0)?;
        }
        let orphan = target.and_then(|target| self.drop_link(now, target));
        self.remove_name(now, old.0, old.1);
        self.add_name(now, new.0, new.1, source);
        if is_directory {
            self.known(old.0).attr.nlink -= 1;
            // A directory that was replaced gives its place in the count.
            self.known(new.0).attr.nlink += u32::from(target.is_none());
        }
        self.moved(now, source, new.0);
        Ok(Answer::Removed { orphan }.into())
    }

    fn exchange(&mut self, now: Time, old: Place<'_>, source: Ino, new: Place<'_>, target: Ino) -> Outcome {
        let directories = |ino: Ino| u32::from(self.nodes[&ino].is_directory());
        let (come, go) = (directories(target), directories(source));
        self.add_name(now, old.0, old.1, target);
        self.add_name(now, new.0, new.1, source);
        let links = &mut self.known(old.0).attr.nlink;
        *links = *links + come - go;
        let links = &mut self.known(new.0).attr.nlink;
        *links = *links + go - come;
        self.moved(now, source, new.0);
        self.moved(now, target, old.0);
        Answer::Removed { orphan: None }.into()
    }

    fn moved(&mut self, now: Time, ino: Ino, dir: Ino) {
        let node = self.known(ino);
        node.attr.ctime = now;
        if let Ok(directory) = node.directory_mut() {
            directory.parent = dir;
        }
    }

    pub(crate) fn readlink(&mut self, now: Time, ino: Ino) -> Result<Outcome, Denied> {
        let Body::Symlink(target) = &self.node(ino)?.body else { return Err(Errno::EINVAL.into()) };
        let target = target.to_vec();
        self.accessed(ino, now);
        Ok(Outcome::Answered(Answer::Data, target))
    }

    pub(crate) fn read_dir(
        &mut self,
        now: Time,
        dir: Ino,
        after: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Outcome, Denied> {
        let mut listed: Vec<_> = self.node(dir)?.directory()?.entries.iter().collect();
        listed.retain(|(_, (_, cookie))| *cookie > after);
        listed.sort_by_key(|(_, (_, cookie))| *cookie);
        let mut entries = Vec::new();
        let mut left = bytes as usize;
        for (name, (ino, cookie)) in &listed {
            let cost = entry_bytes(name, plus);
            // The first one always goes along, or a small request would never get on.
            if cost > left && !entries.is_empty() {
                break;
            }
            left = left.saturating_sub(cost);
            let attr = self.node(*ino)?.attr;
            let found = plus.then_some(NamedObject { attr, attr_current: true });
            entries.push(DirEntry {
                name: (*name).clone(),
                ino: *ino,
                kind: attr.kind,
                cookie: *cookie,
                found,
            });
        }
        let eof = entries.len() == listed.len();
        self.accessed(dir, now);
        Ok(Answer::Entries { entries, eof }.into())
    }
}

/// About what an entry takes in a FUSE answer.
fn entry_bytes(name: &Name, plus: bool) -> usize {
    let fixed = if plus { 152 } else { 24 };
    fixed + name.as_bytes().len().next_multiple_of(8)
}

/// Not POSIX's: a caller may say which object it means by a name.
fn is_meant(meant: Option<Ino>, there: Option<Ino>) -> Result<(), Errno> {
    if meant.is_none() || meant == there { Ok(()) } else { Err(Errno::ESTALE) }
}

fn check_target(new: &New<'_>) -> Result<(), Errno> {
    match (new.kind, new.target.as_ref()) {
        (Kind::Directory, _) => Err(Errno::EINVAL),
        (Kind::Symlink, []) => Err(Errno::ENOENT),
        (Kind::Symlink, target) if target.len() > TARGET_BYTES_MAX => Err(Errno::ENAMETOOLONG),
        (Kind::Symlink, target) if target.contains(&0) => Err(Errno::EINVAL),
        (Kind::Symlink, _) | (_, []) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}
