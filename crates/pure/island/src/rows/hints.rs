//! Hints for clients that know only paths: keys of directories that were made under other paths. They are for
//! routing alone, and never decide where a path leads.

use atoll_core::{Encode, H3, Ino, Name, PathHash, VolumePath};
use atoll_posix::Errno;
use atoll_proto::{Dir, Hint, KeyOverride, Outcome};

use crate::ctx::Ctx;
use crate::ctx::request::{Blocked, Step};

/// Renamed directories that are told of at once, and bytes of their paths: the last may lie beyond.
const HINTS_PER_PAGE: usize = 256;
const HINT_BYTES_PER_PAGE: usize = 256 << 10;

/// The directories on a path whose keys do not follow from the directories above.
#[derive(Debug)]
pub(crate) struct KeyOverrides {
    /// The hash of the path walked; none if it is longer than a path may be.
    path: Option<PathHash>,
    /// The hash from which the key of a directory below would follow.
    birth: Option<PathHash>,
    pub(crate) told: Vec<KeyOverride>,
}

impl Default for KeyOverrides {
    fn default() -> Self {
        Self { path: Some(PathHash::ROOT), birth: Some(PathHash::ROOT), told: Vec::new() }
    }
}

impl KeyOverrides {
    /// The walk goes on to `dir`, the `depth`th component.
    pub(crate) fn step(&mut self, h3: &H3, depth: u32, name: &Name, dir: &Dir) {
        let child = |of: Option<PathHash>| of.and_then(|of| h3.child(of, name));
        self.path = child(self.path);
        let expected = child(self.birth);
        let birth = PathHash::of_birth(dir.key, dir.birth_bytes);
        if birth.is_none() || birth != expected {
            self.told.push(KeyOverride { depth, key: dir.key, birth_bytes: dir.birth_bytes });
        }
        // Of a key that is no path's hash nothing follows: below it keys are those of paths.
        self.birth = birth.or(self.path);
    }
}

impl Ctx {
    /// Directories that are owned here and were renamed, by which paths lead to other keys than theirs.
    pub(crate) fn hints(&self, after: Ino) -> Result<Step, Blocked> {
        let mut hints = Vec::new();
        let mut inos = self.state.renamed_after(after);
        let (mut last, mut bytes) = (None, 0);
        for ino in inos.by_ref().take(HINTS_PER_PAGE) {
            last = Some(ino);
            match self.hint(ino) {
                Ok(hint) => {
                    bytes += hint.as_ref().map_or(0, Hint::encoded_len);
                    hints.extend(hint);
                    if bytes > HINT_BYTES_PER_PAGE {
                        break;
                    }
                }
                // It is about to go.
                Err(Blocked::Fail(_)) => {}
                Err(stop) => return Err(stop),
            }
        }
        let next = last.filter(|_| inos.next().is_some());
        Ok(Step::Looked(Outcome::Hints { hints, next }))
    }

    fn hint(&self, ino: Ino) -> Result<Option<Hint>, Blocked> {
        let chain = self.ancestors(ino)?;
        let Some((_, dir)) = chain.last().filter(|(_, dir)| dir.owned.is_some()) else { return Ok(None) };
        let (key, birth_bytes) = (dir.key, dir.birth_bytes);
        let mut key_overrides = KeyOverrides::default();
        for (depth, (_, dir)) in (0u32..).zip(&chain) {
            if let Some(name) = &dir.place.name {
                key_overrides.step(&self.h3, depth, name, dir);
            }
        }
        if key_overrides.told.last().is_none_or(|born| born.depth as usize != chain.len() - 1) {
            // Its old name is its name again.
            return Ok(None);
        }
        let names: Vec<Name> = chain.iter().filter_map(|(_, dir)| dir.place.name.clone()).collect();
        let path = VolumePath::from_names(names).map_err(|_| Blocked::Fail(Errno::ENAMETOOLONG))?;
        Ok(Some(Hint { path, key, birth_bytes }))
    }
}
