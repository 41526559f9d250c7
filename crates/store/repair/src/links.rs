//! Repairs the rows of symbolic links to directories: copies of what their homes have told, and the homes'
//! own notes of that. A wrong note is removed, and is made again when the link is used.

use std::collections::BTreeMap;

use atoll_check::Rule;
use atoll_core::{Ino, IslandId};
use atoll_proto::{CarriedLink, RowChange};
use atoll_state::links::digest_of;

use crate::work::Work;

impl Work<'_> {
    pub(crate) fn links(&mut self) {
        for home in self.islands() {
            if !self.rows[&home].meta.clean {
                continue;
            }
            let mut untrue = self.links_of(home, home);
            untrue.retain(|ino, link| !self.is_true(home, *ino, link));
            for ino in untrue.into_keys() {
                let changes = vec![(home, RowChange::Link { ino, row: None })];
                let what = "others are told no longer what it is not".to_owned();
                self.fix(Rule::LinkThere, home, Some(ino), what, changes);
            }
            self.copies(home);
        }
    }

    fn links_of(&self, island: IslandId, home: IslandId) -> BTreeMap<Ino, CarriedLink> {
        let links = self.rows[&island].links.iter().filter(|(_, link)| link.home == home);
        links.map(|(ino, link)| (*ino, link.clone())).collect()
    }

    /// Whether a home's note of one of its links agrees with the link.
    fn is_true(&self, home: IslandId, ino: Ino, link: &CarriedLink) -> bool {
        let rows = &self.rows[&home];
        let target = rows.inodes.get(&ino).and_then(|row| row.target.as_ref());
        let named = |entry_ref: &atoll_proto::EntryRef| {
            rows.name(entry_ref.dir, &entry_ref.name).is_some_and(|entry| entry.ino == ino)
        };
        target == Some(&link.target) && link.names.iter().all(named)
    }

    /// An island that has said that it knows all of a home's links must have them all.
    fn copies(&mut self, home: IslandId) {
        let told = self.links_of(home, home);
        let digest = digest_of(self.volume.seed, told.iter().map(|(ino, link)| (*ino, link)));
        let knows = |other: &IslandId| self.rows[&home].links_told.get(other) == Some(&digest);
        let others = self.islands().into_iter().filter(|other| *other != home && self.rows[other].meta.clean);
        for other in others.filter(knows).collect::<Vec<_>>() {
            let kept = self.links_of(other, home);
            let gone = kept.keys().filter(|ino| !told.contains_key(ino)).map(|ino| (*ino, None));
            let other_than = told.iter().filter(|(ino, link)| kept.get(ino) != Some(link));
            let differ: Vec<_> =
                gone.chain(other_than.map(|(ino, link)| (*ino, Some(link.clone())))).collect();
            for (ino, row) in differ {
                let what = format!("it knows this link as its home {home} does");
                let changes = vec![(other, RowChange::Link { ino, row: row.map(Box::new) })];
                self.fix(Rule::LinksAgree, other, Some(ino), what, changes);
            }
        }
    }
}
