//! Which ids are symbolic links. All islands know the links that lead to directories, so a walk through such
//! a link goes on while the link's home is away (`DESIGN` 5). Knows no target.

use std::collections::BTreeMap;

use atoll_core::{IdSet, Ino, IslandId};
use atoll_posix::{Kind, NamedObject};

use crate::peer::Peer;

/// Number of links that are remembered. For any other link only its home is asked.
const LINKS_MAX: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DirLinks(IdSet<Ino>);

impl DirLinks {
    /// A file was looked up.
    pub(crate) fn note(&mut self, ino: Ino, kind: Kind) {
        if kind == Kind::Symlink {
            if self.0.len() >= LINKS_MAX {
                self.0.clear();
            }
            self.0.insert(ino);
        }
    }

    pub(crate) fn forget(&mut self, ino: Ino) {
        self.0.remove(&ino);
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.0.contains(&ino)
    }
}

/// Whether another island has told of a link, and its `home` can be asked for its current state.
pub(crate) fn leads_on(peers: &BTreeMap<IslandId, Peer>, home: IslandId, found: &NamedObject) -> bool {
    let is_told = !found.attr_current && found.attr.kind != Kind::Directory;
    is_told && peers.get(&home).is_some_and(|home| home.up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_links_are_known_than_may_be() {
        let mut links = DirLinks::default();
        (0..LINKS_MAX as u64 + 5).for_each(|n| links.note(Ino(n), Kind::Symlink));
        assert!(links.0.len() <= LINKS_MAX && links.contains(Ino(LINKS_MAX as u64 + 4)));
        links.note(Ino(1), Kind::Regular);
        assert!(!links.contains(Ino(1)));
        links.forget(Ino(LINKS_MAX as u64 + 4));
        assert!(!links.contains(Ino(LINKS_MAX as u64 + 4)));
    }
}
