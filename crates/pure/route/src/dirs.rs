//! The directories that the frontend knows: the placement key, parent and name of each.

use atoll_core::{H3, IdMap, Ino, Key, Name, PathHash};

/// A directory, as far as routing needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDir {
    /// Its placement key: who owns it.
    pub key: Key,
    /// The directory above.
    pub parent: Ino,
    /// Its name there, when it was last looked up; none for the root.
    pub name: Option<Name>,
}

/// All known directories. The frontend bounds their number: it says which ones it forgets.
#[derive(Debug)]
pub struct Dirs {
    /// The uppermost directory, which is always known.
    root: Ino,
    known: IdMap<Ino, KnownDir>,
}

impl Dirs {
    /// The uppermost directory alone: that of the volume, unless the client sees another one only.
    pub(crate) fn new(scope: Option<(Ino, Key)>) -> Self {
        let (root, key) = scope.unwrap_or((Ino::ROOT, Key(0)));
        let dir = KnownDir { key, parent: root, name: None };
        Self { root, known: std::iter::once((root, dir)).collect() }
    }

    /// A directory's routing data.
    pub fn get(&self, ino: Ino) -> Option<&KnownDir> {
        self.known.get(&ino)
    }

    /// A directory was looked up or made.
    pub fn learn(&mut self, ino: Ino, key: Key, parent: Ino, name: &Name) {
        match self.known.get_mut(&ino) {
            Some(known) if ino == self.root => known.key = key,
            Some(known) => {
                known.key = key;
                known.parent = parent;
                if known.name.as_ref() != Some(name) {
                    known.name = Some(name.clone());
                }
            }
            None => {
                self.known.insert(ino, KnownDir { key, parent, name: Some(name.clone()) });
            }
        }
    }

    /// A directory is known by its key alone: nobody has told its parent and name.
    pub fn learn_key(&mut self, ino: Ino, key: Key) {
        match self.known.get_mut(&ino) {
            Some(known) => known.key = key,
            None => drop(self.known.insert(ino, KnownDir { key, parent: self.root, name: None })),
        }
    }

    /// The frontend no longer knows it.
    pub fn forget(&mut self, ino: Ino) {
        if ino != self.root {
            self.known.remove(&ino);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Always false: the root is always known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The key of a directory of this name if it was made at this place: a guess which island to ask when the
    /// parent owner is away.
    pub fn key_by_path(&self, h3: &H3, parent: Ino, name: &Name) -> Option<Key> {
        let mut names = vec![name];
        let mut at = parent;
        while at != Ino::ROOT {
            let known = self.known.get(&at)?;
            names.push(known.name.as_ref()?);
            at = known.parent;
            if names.len() > 4096 {
                return None;
            }
        }
        h3.path(names.into_iter().rev()).map(PathHash::key)
    }
}
