//! Ids: minted from ranges that are synced before use, never used again (`DESIGN` 2).

use atoll_core::Ino;
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
}
