//! How moves are forgotten that every site knows.
//!
//! Whether a move has an effect depends on earlier moves only. So when all sites have all moves up to a stamp, the
//! places that these have made are final, and the moves themselves need not be kept.

use atoll_causal::{FileId, HybridStamp};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, wire_struct};

use crate::spine::Spine;

wire_struct! {
    /// A point in the order of moves that all sites have passed. Found by rounds of reports, in which each site says
    /// the latest stamp that it has given and the moves that it has made; it says so when that is synced, and when it
    /// has all moves that the reports of the last round name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SpineCut {
        /// Every move up to this stamp is synced at all sites, and none will be made any more: the least clock of a
        /// round.
        pub upto: HybridStamp,
        /// Everything that was made by somebody who did not know all moves up to the cut has at most this stamp: the
        /// latest stamp that any site had given when it reported in the next round. Stamps that a site's clock did
        /// not follow count too.
        pub horizon: HybridStamp,
    }
}

impl Default for SpineCut {
    /// Nothing is folded.
    fn default() -> Self {
        Self { upto: HybridStamp::ZERO, horizon: HybridStamp::ZERO }
    }
}

impl Spine {
    /// Folds the moves up to a cut: the places that they have made become bases, and the moves go. Directories that
    /// nothing needs are forgotten. A cut that is not later than the last one changes nothing.
    pub fn fold(&mut self, cut: SpineCut) {
        if cut.upto <= self.cut.upto {
            return;
        }
        self.cut = cut;
        if planted(Bug::FoldsByAge) {
            self.cut.upto = self.log.last_key_value().map_or(cut.upto, |(last, _)| (*last).max(cut.upto));
        }
        while let Some(first) = self.log.first_entry().filter(|first| *first.key() <= self.cut.upto) {
            let record = first.remove().record;
            let share = self.shares.get_mut(&record.stamp().writer).expect("each record is counted");
            share.bytes -= record.encoded_len();
            if share.bytes == 0 {
                self.shares.remove(&record.stamp().writer);
            }
            for moved in record.dirs() {
                self.fold_place(moved.dir, record.stamp());
                self.tree.unname(moved.parent);
                self.kept.insert(moved.dir, cut.horizon);
            }
        }
        let upto = self.cut.upto;
        let tree = &mut self.tree;
        self.kept.retain(|dir, horizon| {
            let is_kept = *horizon > upto && !planted(Bug::BaseNotKept);
            if !is_kept {
                tree.loosen(*dir);
            }
            is_kept
        });
        tree.drop_loose(|dir| self.kept.contains_key(&dir));
    }

    /// The earliest move of a directory, which is this one, goes. If it had an effect, its place is the base from
    /// here on.
    fn fold_place(&mut self, dir: FileId, stamp: HybridStamp) {
        let known = self.tree.get_mut(dir);
        known.moves.remove(0);
        if known.places.get(1).is_some_and(|place| place.since == stamp) {
            let old = known.places.remove(0).parent;
            let new = known.places[0].parent;
            self.tree.name(new);
            self.tree.unname(old);
        }
    }
}
