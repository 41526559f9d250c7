//! The greedy rebalance (Archipelago 5.2): which buckets go to which island. Decides; never moves data.
//!
//! Balances work first and the number of buckets second. In one rebalance an island is a source or a
//! destination, never both. So a directory is moved at most once, and no island becomes full on the way. The
//! same input gives the same moves on every machine.

use crate::codec::{Decode, Encode, Malformed, Reader};
use crate::id::IslandId;
use crate::table::{Bucket, Table};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

crate::wire_struct! {
    /// The load of the directories of one bucket since the counters were last started.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct BucketLoad {
        /// Bytes read and written.
        pub bytes: u64,
        /// Operations of every kind.
        pub operations: u64,
    }
}

impl BucketLoad {
    /// The number of bytes that cost an island as much as one operation does: about a page.
    pub const OPERATION_BYTES: u64 = 4096;

    /// The load as one number, in bytes. The paper counts bytes alone. With small files an island runs out of
    /// operations before it runs out of bytes.
    pub const fn work(self) -> u64 {
        self.bytes.saturating_add(self.operations.saturating_mul(Self::OPERATION_BYTES))
    }

    /// Both counters added; they stop at their largest value.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            operations: self.operations.saturating_add(other.operations),
        }
    }

    /// Two halves that add up to the whole; the first has the odd one.
    const fn halves(self) -> (Self, Self) {
        let small = Self { bytes: self.bytes / 2, operations: self.operations / 2 };
        let large = Self { bytes: self.bytes - small.bytes, operations: self.operations - small.operations };
        (large, small)
    }
}

/// One [`BucketLoad`] for each bucket of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketLoads(Vec<BucketLoad>);

impl BucketLoads {
    /// Counters at zero for a table of so many buckets.
    ///
    /// # Panics
    /// If `buckets` is no size that a [`Table`] can have.
    pub fn new(buckets: usize) -> Self {
        assert!(buckets.is_power_of_two() && buckets <= Table::BUCKETS_MAX, "{buckets} buckets");
        Self(vec![BucketLoad::default(); buckets])
    }

    /// How many buckets are counted.
    pub const fn buckets(&self) -> usize {
        self.0.len()
    }

    /// The load of a bucket.
    pub fn of(&self, bucket: Bucket) -> BucketLoad {
        self.0[bucket.0 as usize]
    }

    /// Counts `load` for a bucket.
    pub fn record(&mut self, bucket: Bucket, load: BucketLoad) {
        let counter = &mut self.0[bucket.0 as usize];
        *counter = counter.saturating_add(load);
    }

    /// Adds the counters of another island. If one of the two counted for a table that has been doubled
    /// since, it is brought to the larger size first.
    pub fn merge(&mut self, other: &Self) {
        while self.buckets() < other.buckets() {
            *self = self.doubled();
        }
        let mut other = other.clone();
        while other.buckets() < self.buckets() {
            other = other.doubled();
        }
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// The counters of [`Table::doubled`]. Each bucket's load is halved between its two heirs, because nobody
    /// counted them apart.
    #[must_use]
    pub fn doubled(&self) -> Self {
        assert!(self.buckets() < Table::BUCKETS_MAX, "a table cannot grow past {}", Table::BUCKETS_MAX);
        let halved = self.0.iter().flat_map(|load| {
            let (first, second) = load.halves();
            [first, second]
        });
        Self(halved.collect())
    }

    /// All counters, by bucket.
    pub fn loads(&self) -> &[BucketLoad] {
        &self.0
    }
}

impl Encode for BucketLoads {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for BucketLoads {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let loads = Vec::<BucketLoad>::decode(r)?;
        if !loads.len().is_power_of_two() || loads.len() > Table::BUCKETS_MAX {
            return Err(Malformed::new("bucket loads"));
        }
        Ok(Self(loads))
    }
}

/// One table entry that changes hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BucketMove {
    /// The entry.
    pub bucket: Bucket,
    /// The island that owns it now.
    pub from: IslandId,
    /// The island that shall own it.
    pub to: IslandId,
}

/// Why there is no rebalance to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RebalanceError {
    /// Every island is to be drained: keep or add one.
    #[error("every island is to be drained; keep or add one")]
    NoIslandLeft,
    /// The loads were counted for a table of another size: merge or double them first.
    #[error("loads of {loads} buckets do not fit a table of {table}")]
    Buckets {
        /// Buckets that were counted.
        loads: usize,
        /// Buckets of the table.
        table: usize,
    },
}

/// An island is left alone while its work is above its share by no more than this part of the share:
/// evening out the rest would move more data than the balance is worth.
const SURPLUS_PARTS: u128 = 1024;

/// The moves that balance `table` under `loads`, for [`Table::reassigned`].
///
/// `weights[i]` is the work that island `i` shall carry in relation to the others. An island of weight 0, or
/// one beyond the end of the list, is emptied. A new island is one that owns nothing.
///
/// An island's share is the total divided by weight. Islands above their share of *work* shed buckets that
/// have work, down to the share and not below; they prefer those that also bring the number of buckets to its
/// share. Shed buckets are placed in descending order of work, each on the island with the least resulting
/// work per weight. A bucket that would only carry the overload to another island stays. Then buckets
/// *without* work are evened out by number in the same way. Ties: of buckets the lower one; of islands the
/// one with fewer buckets per weight, then the lower id.
///
/// # Errors If no island has weight, or `loads` has another size than `table`.
pub fn rebalance(
    table: &Table,
    loads: &BucketLoads,
    weights: &[u16],
) -> Result<Vec<BucketMove>, RebalanceError> {
    if loads.buckets() != table.buckets() {
        return Err(RebalanceError::Buckets { loads: loads.buckets(), table: table.buckets() });
    }
    if weights.iter().all(|&w| w == 0) {
        return Err(RebalanceError::NoIslandLeft);
    }
    let mut plan = Plan::new(table, loads, weights);
    plan.even_out_work();
    plan.even_out_count();
    Ok(plan.moves)
}

/// One island while the moves are being chosen.
#[derive(Debug, Clone, Default)]
struct Island {
    weight: u128,
    /// Work and entries that it ought to have, rounded up: below this it is underloaded.
    work_share: u128,
    count_share: u128,
    work: u128,
    count: u128,
    /// Entries that have work, least first; of equals the highest bucket first.
    busy: BTreeSet<(u64, Reverse<u32>)>,
    /// Entries that have none.
    idle: BTreeSet<u32>,
    role: Role,
}

/// No role yet -> source or destination, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Role {
    #[default]
    Neither,
    Source,
    Destination,
}

impl Island {
    fn overloaded(&self) -> bool {
        self.work > self.work_share + self.work_share / SURPLUS_PARTS
    }

    /// The next busy entry to shed, so that it stays at or above its share of work. Among the
    /// entries that fit, the one that leads to the right number of entries.
    fn shed_busy(&mut self) -> Option<(u64, u32)> {
        if !self.overloaded() {
            return None;
        }
        let surplus = self.work - self.work_share;
        let entries = self.count.saturating_sub(self.count_share).max(1);
        // Half of the entries that are too many must carry half of the surplus, and so on: the
        // largest entry that is not above the mean of what is left to shed, else the least above it.
        let mean = u64::try_from(surplus.div_ceil(entries)).unwrap_or(u64::MAX);
        let up_to_mean = self.busy.range(..=(mean, Reverse(0))).next_back();
        let &(work, Reverse(bucket)) = up_to_mean.or_else(|| self.busy.first())?;
        if u128::from(work) > surplus {
            return None;
        }
        self.busy.remove(&(work, Reverse(bucket)));
        self.work -= u128::from(work);
        self.count -= 1;
        Some((work, bucket))
    }
}

struct Plan {
    islands: Vec<Island>,
    moves: Vec<BucketMove>,
}

impl Plan {
    fn new(table: &Table, loads: &BucketLoads, weights: &[u16]) -> Self {
        let owners = table.owners().iter().map(|o| usize::from(o.0) + 1).max().unwrap_or(0);
        let mut islands = vec![Island::default(); owners.max(weights.len())];
        for (bucket, (owner, load)) in (0u32..).zip(table.owners().iter().zip(loads.loads())) {
            let island = &mut islands[usize::from(owner.0)];
            island.work += u128::from(load.work());
            island.count += 1;
            match load.work() {
                0 => drop(island.idle.insert(bucket)),
                work => drop(island.busy.insert((work, Reverse(bucket)))),
            }
        }
        let work: u128 = islands.iter().map(|i| i.work).sum();
        let count = table.buckets() as u128;
        let weight: u128 = weights.iter().map(|&w| u128::from(w)).sum();
        for (island, &w) in islands.iter_mut().zip(weights) {
            // No overflow: 2^22 entries of 2^64, times a weight of 2^16.
            island.weight = u128::from(w);
            island.work_share = (work * island.weight).div_ceil(weight);
            island.count_share = (count * island.weight).div_ceil(weight);
        }
        Self { islands, moves: Vec::new() }
    }

    /// Moves entries that have work.
    fn even_out_work(&mut self) {
        let mut shed = Vec::new();
        for (from, island) in self.islands.iter_mut().enumerate() {
            while let Some((work, bucket)) = island.shed_busy() {
                shed.push((Reverse(work), bucket, from));
            }
        }
        shed.sort_unstable();
        for (Reverse(work), bucket, from) in shed {
            let work = u128::from(work);
            // Sources are at their shares or above, and what is in hand is missing elsewhere.
            let to = self.emptiest(|i| i.work < i.work_share, |i| i.work + work, |i| i.count + 1);
            let to = to.expect("an entry in hand leaves an island below its share");
            let stays = {
                let (source, target) = (&self.islands[from], &self.islands[to]);
                source.weight > 0
                    && per_weight((target.work + work, target), (source.work + work, source)).is_ge()
            };
            if stays {
                self.islands[from].work += work;
                self.islands[from].count += 1;
            } else {
                self.islands[to].work += work;
                self.islands[to].count += 1;
                self.record(bucket, from, to);
            }
        }
    }

    /// Moves entries that have no work. An island that is overloaded and could shed nothing gets
    /// none: an idle entry is work to come.
    fn even_out_count(&mut self) {
        for from in 0..self.islands.len() {
            if self.islands[from].role == Role::Destination {
                continue;
            }
            while self.islands[from].count > self.islands[from].count_share {
                let Some(&bucket) = self.islands[from].idle.first() else { break };
                let fits = |i: &Island| match i.role {
                    Role::Source => false,
                    Role::Destination => true,
                    Role::Neither => !i.overloaded(),
                };
                let below = |i: &Island| fits(i) && i.count < i.count_share;
                let mut to = self.emptiest(below, |i| i.count + 1, |i| i.work);
                if to.is_none() && self.islands[from].weight == 0 {
                    // It must go somewhere, even if nobody lacks it.
                    let anyone = |i: &Island| i.role != Role::Source;
                    to = self.emptiest(fits, |i| i.count + 1, |i| i.work);
                    to = to.or_else(|| self.emptiest(anyone, |i| i.count + 1, |i| i.work));
                }
                let Some(to) = to else { break };
                self.islands[from].idle.remove(&bucket);
                self.islands[from].count -= 1;
                self.islands[to].count += 1;
                self.record(bucket, from, to);
            }
        }
    }

    /// The island with weight, among those that `may`, for which `first` and then `second` per
    /// weight are least, then the lowest id.
    fn emptiest(
        &self,
        may: impl Fn(&Island) -> bool,
        first: impl Fn(&Island) -> u128,
        second: impl Fn(&Island) -> u128,
    ) -> Option<usize> {
        let candidates = self.islands.iter().enumerate().filter(|(_, i)| i.weight > 0 && may(i));
        let best = candidates.min_by(|(_, a), (_, b)| {
            per_weight((first(a), a), (first(b), b)).then_with(|| per_weight((second(a), a), (second(b), b)))
        });
        best.map(|(id, _)| id)
    }

    fn record(&mut self, bucket: u32, from: usize, to: usize) {
        for (island, role) in [(from, Role::Source), (to, Role::Destination)] {
            let island = &mut self.islands[island];
            assert!(island.role == Role::Neither || island.role == role, "island is source and destination");
            island.role = role;
        }
        let id = |i: usize| IslandId(u16::try_from(i).expect("islands are counted by a u16"));
        self.moves.push(BucketMove { bucket: Bucket(bucket), from: id(from), to: id(to) });
    }
}

/// Compares two amounts, each divided by its island's weight.
fn per_weight((a, of_a): (u128, &Island), (b, of_b): (u128, &Island)) -> Ordering {
    (a * of_b.weight).cmp(&(b * of_a.weight))
}
