//! Repairs counts, by counting again. Decides nothing else.

use std::collections::BTreeMap;

use atoll_check::Rule;
use atoll_core::Ino;
use atoll_posix::Kind;
use atoll_proto::TxnState;

use crate::work::Work;

impl Work<'_> {
    /// Directories count their names, the skeleton directories below them, and the names of files from here.
    pub(crate) fn counts(&mut self) {
        for island in self.islands() {
            let rows = &self.rows[&island];
            let mut below: BTreeMap<Ino, u32> = BTreeMap::new();
            for (_, dir) in rows.dirs.iter().filter(|(ino, _)| **ino != Ino::ROOT) {
                *below.entry(dir.place.parent).or_default() += 1;
            }
            // Something that is promised counts before it is there.
            let promised = rows.txns.values().any(|txn| txn.state == TxnState::Prepared);
            let mut wrong = Vec::new();
            for (ino, dir) in &rows.dirs {
                let names = rows.names_of(*ino);
                let dirs = names.iter().filter(|(_, _, e)| e.kind == Kind::Directory).count() as u32;
                let files = names.iter().filter(|(_, _, e)| e.kind != Kind::Directory);
                let from_here = files.filter(|(_, _, e)| e.home == island).count() as u32;
                let mut row = dir.clone();
                row.children = below.get(ino).copied().unwrap_or(0);
                let mut rule = Rule::BelowCounted;
                if let Some(owned) = &mut row.owned {
                    let counts = (names.len() as u64, dirs);
                    if counts != (owned.entries, owned.subdirs) {
                        (owned.entries, owned.subdirs) = counts;
                        rule = Rule::NamesCounted;
                    }
                }
                let homes = if row.owned.is_some() { 0 } else { from_here };
                if homes > row.foreign_names
                    || (homes < row.foreign_names && !(promised && rows.in_doubt(*ino)))
                {
                    row.foreign_names = homes;
                    rule = Rule::HomesCounted;
                }
                if row != *dir {
                    wrong.push((*ino, rule, row));
                }
            }
            for (ino, rule, row) in wrong {
                let what = match rule {
                    Rule::NamesCounted => "its names are counted anew",
                    Rule::HomesCounted => "its names of files that are homed here are counted anew",
                    _ => "what of the skeleton lies below it is counted anew",
                };
                let change = self.dir_with(island, ino, |dir| *dir = row);
                self.fix(rule, island, Some(ino), what.to_owned(), vec![change]);
            }
        }
    }
}
