//! What is never given twice: ids, minted from ranges that are synced before use (`DESIGN` 2), and stamps, of an
//! incarnation that each life has for itself.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Stamp};
use atoll_posix::Errno;

use crate::decision::Decision;
use crate::machine::{Island, Stop};

impl Island {
    /// A new id.
    pub(crate) fn mint(&mut self) -> Result<Ino, Stop> {
        if self.mint_next >= self.mint_limit {
            // Ranges are asked for long before they are needed: the log cannot be synced.
            return Err(Errno::EAGAIN.into());
        }
        self.mint_next += 1;
        self.reserve_ids();
        Ok(Ino::mint(self.config.id, self.mint_next - 1))
    }

    /// Reserves the next range of ids while half of the last one is left.
    pub(crate) fn reserve_ids(&mut self) {
        const RANGE: u64 = 1 << 20;
        let reserved = self.state.meta().mint_limit;
        if reserved.saturating_sub(self.mint_next) < RANGE / 2 {
            let mut decision = Decision::new();
            let limit = reserved.max(self.mint_next) + RANGE;
            decision.push(atoll_proto::Change::MintLimit { limit });
            self.decide(decision);
            self.want_sync();
        }
    }

    /// Whatever stamp it gives from here on is later than this one.
    pub fn stamps_after(&self) -> Stamp {
        self.last_stamp.max(Stamp::new(self.state.meta().incarnation, 0))
    }

    /// The next stamp of this island's clock; goes into the record that uses it.
    pub(crate) fn stamp(&mut self) -> Stamp {
        let incarnation = self.state.meta().incarnation;
        self.last_stamp = if self.last_stamp.incarnation() == incarnation {
            Stamp::new(incarnation, self.last_stamp.n() + u64::from(!planted(Bug::StampTwice)))
        } else {
            Stamp::new(incarnation, 1)
        };
        self.last_stamp
    }
}
