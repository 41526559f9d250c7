//! Facts about the skeleton beside its rows: names of files that directories hide, ancestors that owners have
//! told, and directories that are still to be pruned.

use atoll_core::map::IdMap;
use atoll_core::{Ino, Name};
use atoll_proto::{Chain, Entry};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Skeleton {
    /// Names of files that are homed here that a directory has got: by what is older than the file's name, perhaps, and
    /// then the directory leaves it again.
    shadowed_files: IdMap<(Ino, Name), Entry>,
    /// Ancestors of directories, as their owners have told them now, for journal entries that wait for them. None if the
    /// owner has the directory no more.
    told_chains: IdMap<Ino, Option<Chain>>,
    /// Directories that nothing needs, of which the last record has taken out as many as it may.
    unpruned: Vec<Ino>,
}

impl Skeleton {
    /// A directory has got the name of a file.
    pub(crate) fn shadow(&mut self, dir: Ino, name: &Name, file: Entry) {
        self.shadowed_files.insert((dir, name.clone()), file);
    }

    /// A directory has left a name: the file that had it before has it again.
    pub(crate) fn unshadow(&mut self, dir: Ino, name: &Name) -> Option<Entry> {
        self.shadowed_files.remove(&(dir, name.clone()))
    }

    /// A file has lost a name, which a directory may have got.
    pub(crate) fn forget_shadowed(&mut self, dir: Ino, name: &Name, ino: Ino) {
        let entry_ref = (dir, name.clone());
        if self.shadowed_files.get(&entry_ref).is_some_and(|entry| entry.ino == ino) {
            self.shadowed_files.remove(&entry_ref);
        }
    }

    /// The owner of a directory has told its ancestors.
    pub(crate) fn tell_chain(&mut self, dir: Ino, chain: Option<Chain>) {
        self.told_chains.insert(dir, chain);
    }

    /// The ancestors of a directory that its owner has told, once.
    pub(crate) fn take_chain(&mut self, dir: Ino) -> Option<Option<Chain>> {
        self.told_chains.remove(&dir)
    }

    /// A directory that nothing needs is still to go.
    pub(crate) fn prune_later(&mut self, dir: Ino) {
        self.unpruned.push(dir);
    }

    /// A directory that is to go.
    pub(crate) fn next_to_prune(&mut self) -> Option<Ino> {
        self.unpruned.pop()
    }

    /// Nothing is left to be pruned.
    pub(crate) const fn is_pruned(&self) -> bool {
        self.unpruned.is_empty()
    }
}
