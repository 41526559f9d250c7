//! The files, directories and names that transactions under way are about: for these, the rows of islands may
//! show half of a change. Decides nothing.

use std::collections::BTreeSet;

use atoll_core::{Ino, Name};
use atoll_proto::{Ancestor, Chain, Spot, Txn, TxnState, Work};

use crate::Rows;

/// The files, directories and names that a transaction's work is about.
#[derive(Default)]
struct About {
    inos: BTreeSet<Ino>,
    spots: BTreeSet<Spot>,
}

impl About {
    fn of(txn: &Txn) -> Self {
        let mut about = Self::default();
        about.work(&txn.part.work);
        about
    }

    fn work(&mut self, work: &Work) {
        match work {
            Work::Adopt { dir, time: _, chain } => {
                self.inos.extend([dir.ino, dir.place.parent]);
                self.ancestors(chain);
            }
            Work::Seal { ino, parent, name } => {
                self.inos.insert(*ino);
                self.spot(&Spot { dir: *parent, name: name.clone() });
            }
            Work::Lend { renaming, caller: _, new_meant: _, denied: _, chain, wants_chain: _ } => {
                self.inos.insert(renaming.file.ino);
                self.inos.extend(renaming.there.as_ref().map(|there| there.ino));
                self.spot(&renaming.from);
                self.spot(&renaming.to);
                chain.iter().for_each(|chain| self.chain(chain));
            }
            Work::Count { ino, at, time: _, chain } => {
                self.inos.insert(*ino);
                self.spot(at);
                self.chain(chain);
            }
            Work::Drop { ino, at, by: _, had: _, time: _ } => {
                self.inos.insert(*ino);
                self.spot(at);
            }
            Work::Hold { ino, .. } => {
                self.inos.insert(*ino);
            }
            Work::Arrive { at, file, xattrs: _, mounts: _ } => {
                self.inos.insert(file.attr.ino);
                self.spot(at);
            }
            Work::Ticket { moved, above: _, seen: _ } => self.inos.extend(moved),
            Work::Renamed { ino, from, to, by: _, had: _, time: _, chain } => {
                self.inos.insert(*ino);
                self.spot(from);
                self.spot(to);
                self.chain(chain);
            }
        }
    }

    fn spot(&mut self, spot: &Spot) {
        self.inos.insert(spot.dir);
        self.spots.insert(spot.clone());
    }

    /// Skeleton directories come and go with the rows that need them.
    fn chain(&mut self, chain: &Chain) {
        self.ancestors(&chain.dirs);
    }

    fn ancestors(&mut self, dirs: &[Ancestor]) {
        self.inos.extend(dirs.iter().map(|above| above.ino));
    }
}

impl Rows {
    /// Whether a transaction under way concerns this file or directory: it may be half of something.
    pub fn in_doubt(&self, ino: Ino) -> bool {
        self.txns.values().any(|txn| About::of(txn).inos.contains(&ino))
    }

    /// Whether a transaction under way concerns this name.
    pub fn name_in_doubt(&self, dir: Ino, name: &Name) -> bool {
        let spot = Spot { dir, name: name.clone() };
        self.txns.values().any(|txn| About::of(txn).spots.contains(&spot))
    }

    /// Whether something about this file or directory is prepared here and waits for its outcome.
    pub(crate) fn is_promised(&self, ino: Ino) -> bool {
        let prepared = self.txns.values().filter(|txn| txn.state == TxnState::Prepared);
        prepared.map(About::of).any(|about| about.inos.contains(&ino))
    }
}
