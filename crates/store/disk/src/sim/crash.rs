//! The content of a simulated disk after a fault, and after a sync.
//!
//! A process death keeps everything that was done; it stays unsynced. A power cut keeps everything that was
//! synced, and any part of the rest: each sector and each length of a file, each name operation
//! ([`super::names`] says which need each other) and each attribute by itself.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;

use super::rng::Rng;
use super::world::{Attr, INODE_BYTES, Inode, ROOT, World};
use crate::FileKind;

/// A fault that ends every program that uses the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process ends; the kernel keeps all that was done.
    ProcessDeath,
    /// The power fails.
    PowerCut {
        /// Decides which unsynced changes survive.
        seed: u64,
    },
}

impl Inode {
    fn store_content(&mut self) {
        for change in self.changes.drain(..) {
            self.stored.content.apply(&change);
        }
        self.changes_bytes = 0;
    }

    fn store_attr(&mut self) {
        self.attr_changes.clear();
        self.stored.attr.clone_from(&self.attr);
    }

    /// Makes a part of the unsynced changes certain, and removes the rest from the disk below.
    fn tear(&mut self, rng: &mut Rng) {
        let content = std::mem::take(&mut self.stored.content);
        self.stored.content = content.after_power_cut(&self.changes, rng);
        self.changes.clear();
        self.changes_bytes = 0;
        let stored = &mut self.stored.attr;
        let mood = rng.below(4);
        for change in self.attr_changes.drain(..) {
            if mood == 1 || mood > 1 && rng.coin() {
                stored.apply(&change);
            }
        }
        let Attr { atime, mtime, ctime, .. } = self.attr;
        if rng.coin() {
            (stored.atime, stored.mtime, stored.ctime) = (atime, mtime, ctime);
        }
    }
}

impl World {
    /// Syncs a file's content and, if asked, its attributes.
    pub(super) fn sync_file(&mut self, ino: u64, attr: bool) -> io::Result<()> {
        if std::mem::take(&mut self.failing_sync) {
            // As Linux does: the error is told once, the pages count as clean, and whether they
            // reached the disk nobody knows. A later sync does not write them again.
            let mut rng = Rng::new(self.rng.next());
            self.inode(ino).tear(&mut rng);
            return Err(Errno::IO.into());
        }
        let node = self.inode(ino);
        node.store_content();
        if attr {
            node.store_attr();
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, ino: u64) -> io::Result<()> {
        if std::mem::take(&mut self.failing_sync) {
            return Err(Errno::IO.into());
        }
        let changes = self.names.take_dir(ino);
        self.store_names(changes);
        if let Some(node) = self.inodes.get_mut(&ino) {
            node.store_attr();
        }
        Ok(())
    }

    pub(super) fn sync_everything(&mut self) -> io::Result<()> {
        for ino in self.inodes.keys().copied().collect::<Vec<_>>() {
            let Some(node) = self.inodes.get(&ino) else { continue };
            if node.kind == FileKind::Directory { self.sync_dir(ino)? } else { self.sync_file(ino, true)? }
        }
        Ok(())
    }

    pub(super) fn revive(&mut self, fault: Fault) {
        self.generation += 1;
        self.dead = false;
        self.die_in = None;
        (self.failing_sync, self.fail_in) = (false, None);
        if let Fault::PowerCut { seed } = fault {
            self.power_cut(&mut Rng::new(seed));
        }
        let inos: Vec<u64> = self.inodes.keys().copied().collect();
        for ino in inos {
            if let Some(node) = self.inodes.get_mut(&ino) {
                node.opens = 0;
                self.collect(ino);
            }
        }
    }

    fn power_cut(&mut self, rng: &mut Rng) {
        let mood = rng.below(4);
        let kept = self.names.take_some(|| mood == 1 || mood > 1 && rng.coin());
        self.store_names(kept);
        for change in self.names.take_rest() {
            self.unpin(change.dir);
            if let Some(ino) = change.ino {
                self.unpin(ino);
            }
        }
        for node in self.inodes.values_mut() {
            node.tear(rng);
        }
        self.reload();
    }

    /// Makes the living tree from the stored one.
    fn reload(&mut self) {
        for node in self.inodes.values_mut() {
            node.attr = node.stored.attr.clone();
            node.entries = BTreeMap::new();
            (node.names, node.subdirs) = (0, 0);
        }
        let mut reached = vec![ROOT];
        self.inode(ROOT).names = 1;
        while let Some(dir) = reached.pop() {
            let entries = self.node(dir).stored.entries.clone();
            for ino in entries.values().copied() {
                let child = self.inode(ino);
                child.names += 1;
                if child.kind == FileKind::Directory {
                    assert_eq!(child.names, 1, "directory {ino} came back with two names");
                    child.parent = dir;
                    self.inode(dir).subdirs += 1;
                    reached.push(ino);
                }
            }
            self.inode(dir).entries = entries;
        }
        for ino in self.inodes.keys().copied().collect::<Vec<_>>() {
            let Some(node) = self.inodes.get_mut(&ino) else { continue };
            let before = node.content.space();
            node.content = node.stored.content.clone();
            let after = node.content.space();
            self.used = self.used - before + after;
            if !std::mem::replace(&mut node.counted, true) {
                self.used += INODE_BYTES;
            }
        }
        // What nothing reaches is counted here too: `revive` collects it next.
    }
}
