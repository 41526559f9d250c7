//! Who keeps an island, as the control store has it: the record of its group.

use atoll_core::{Decode, Encode, IslandId, Malformed, NodeId, Reader, wire_enum, wire_struct};

/// Most nodes of a group, and most copies that can be wanted.
pub const GROUP_MEMBERS_MAX: usize = 16;

/// When a record was written, in the order of all changes of its control store. Of two records of an island the one with
/// the higher revision is the later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// Before the first record.
    pub const NONE: Self = Self(0);
}

impl Encode for Revision {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for Revision {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(u64::decode(r)?))
    }
}

wire_struct! {
    /// A place among those in sync.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Seat {
        /// Whose.
        pub node: NodeId,
        /// Number of the copy's data. If the copy may have lost something, it has a higher one, and this seat is void.
        pub tenure: u32,
    }
}

wire_struct! {
    /// A boot of a machine, and a data directory there. Only one process of a host can have the directory's lock.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Host {
        /// The boot, drawn by the kernel.
        pub boot: u128,
        /// Number of the data directory in its file system.
        pub inode: u64,
    }
}

wire_struct! {
    /// Who leads in an epoch. A higher life of the same node on the same host proves that this one has ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Primary {
        /// The node.
        pub node: NodeId,
        /// How often its daemon had started.
        pub life: u32,
        /// Where it ran.
        pub host: Host,
        /// Which of its attempts to lead this was, so that it knows its own record again when the outcome of a swap is unknown.
        pub attempt: u32,
    }
}

/// Who keeps an island.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupRecord {
    /// Number of the primary's time; 0 if there was none yet.
    pub epoch: u32,
    /// Who leads in it; one of those in sync. None in epoch 0.
    pub primary: Option<Primary>,
    /// Those that have everything that is committed.
    pub in_sync: Vec<Seat>,
    /// How many copies there should be.
    pub wanted: u8,
    /// The epoch was begun when no copy was whole: something may be lost by it.
    pub power_cut: bool,
}

impl GroupRecord {
    /// The seat of a node.
    pub fn seat_of(&self, node: NodeId) -> Option<Seat> {
        self.in_sync.iter().copied().find(|seat| seat.node == node)
    }

    /// The same group without the seat of a node.
    pub fn without(&self, node: NodeId) -> Self {
        let in_sync = self.in_sync.iter().copied().filter(|seat| seat.node != node).collect();
        Self { in_sync, ..self.clone() }
    }

    /// The same group with this seat, in place of another one of its node.
    pub fn with(&self, seat: Seat) -> Self {
        let mut with = self.without(seat.node);
        with.in_sync.push(seat);
        with.in_sync.sort_unstable();
        with
    }

    /// An error for what no group can be.
    pub fn check(&self) -> Result<(), Malformed> {
        let mut nodes: Vec<NodeId> = self.in_sync.iter().map(|seat| seat.node).collect();
        nodes.sort_unstable();
        let sits = |primary: Primary| nodes.binary_search(&primary.node).is_ok();
        let wrong = if self.in_sync.is_empty() {
            "a group without a node"
        } else if (self.epoch == 0) != self.primary.is_none() {
            "a primary and its epoch"
        } else if !self.primary.is_none_or(sits) {
            "a primary that is not in sync"
        } else if nodes.windows(2).any(|pair| pair[0] == pair[1]) {
            "a node that is in a group twice"
        } else if nodes.len() > GROUP_MEMBERS_MAX {
            "number of a group's nodes"
        } else if !(1..=GROUP_MEMBERS_MAX).contains(&usize::from(self.wanted)) {
            "number of copies that are wanted"
        } else {
            return Ok(());
        };
        Err(Malformed::new(wrong))
    }
}

impl Encode for GroupRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.epoch.encode(out);
        self.primary.encode(out);
        self.in_sync.encode(out);
        self.wanted.encode(out);
        self.power_cut.encode(out);
    }

    fn encoded_len(&self) -> usize {
        let Self { epoch, primary, in_sync, wanted, power_cut } = self;
        let members = primary.encoded_len() + in_sync.encoded_len();
        epoch.encoded_len() + members + wanted.encoded_len() + power_cut.encoded_len()
    }
}

impl Decode for GroupRecord {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let record = Self {
            epoch: Decode::decode(r)?,
            primary: Decode::decode(r)?,
            in_sync: Decode::decode(r)?,
            wanted: Decode::decode(r)?,
            power_cut: Decode::decode(r)?,
        };
        record.check()?;
        Ok(record)
    }
}

wire_struct! {
    /// A record, and when it was written.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StoredGroup {
        /// Whose.
        pub island: IslandId,
        /// When.
        pub revision: Revision,
        /// The record.
        pub record: GroupRecord,
    }
}

wire_struct! {
    /// The groups of a volume that have changed since a revision.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ChangedGroups {
        /// Everything up to here was looked at.
        pub upto: Revision,
        /// The records, as they are now, in the order of their islands.
        pub groups: Vec<StoredGroup>,
    }
}

wire_enum! {
    /// What a compare-and-swap has come to.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Swapped {
        /// The record is stored for good.
        1 => Done { /// When it was written.
            revision: Revision },
        /// Nothing was changed: the record was not the expected one any more.
        2 => Conflict,
        /// It may be stored, or be stored later, or never: read before anything is done that depends on it.
        3 => Unknown { /// Why, for people.
            why: String },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(n: usize) -> Vec<Seat> {
        (0..n).map(|node| Seat { node: NodeId(node as u16), tenure: 1 }).collect()
    }

    fn record() -> GroupRecord {
        let host = Host { boot: 1 << 100, inode: 2 };
        let primary = Some(Primary { node: NodeId(1), life: 3, host, attempt: 4 });
        GroupRecord { epoch: 1, primary, in_sync: seats(3), wanted: 3, power_cut: false }
    }

    #[test]
    fn a_seat_takes_the_place_of_another_one_of_its_node() {
        let seat = |node, tenure| Seat { node: NodeId(node), tenure };
        let record = GroupRecord { in_sync: vec![seat(1, 1), seat(3, 1)], ..record() };
        assert_eq!(record.with(seat(2, 1)).in_sync, [seat(1, 1), seat(2, 1), seat(3, 1)]);
        assert_eq!(record.with(seat(3, 4)).in_sync, [seat(1, 1), seat(3, 4)]);
        assert_eq!(record.with(seat(3, 4)).seat_of(NodeId(3)), Some(seat(3, 4)));
        assert_eq!(record.without(NodeId(1)).in_sync, [seat(3, 1)]);
    }

    #[test]
    fn a_record_comes_back_as_it_went_and_nonsense_does_not() {
        let first = GroupRecord { epoch: 0, primary: None, ..record() };
        let full = GroupRecord { in_sync: seats(GROUP_MEMBERS_MAX), ..record() };
        for record in [record(), first, full] {
            assert_eq!(GroupRecord::from_slice(&record.to_vec()), Ok(record.clone()));
            assert_eq!(record.encoded_len(), record.to_vec().len());
        }
        for nonsense in [
            GroupRecord { epoch: 0, ..record() },
            GroupRecord { primary: None, ..record() },
            GroupRecord { epoch: 0, primary: None, in_sync: Vec::new(), ..record() },
            GroupRecord { in_sync: seats(1), ..record() },
            GroupRecord { in_sync: [seats(2), seats(1)].concat(), ..record() },
            GroupRecord { in_sync: seats(GROUP_MEMBERS_MAX + 1), ..record() },
            GroupRecord { wanted: 0, ..record() },
            GroupRecord { wanted: GROUP_MEMBERS_MAX as u8 + 1, ..record() },
        ] {
            assert!(GroupRecord::from_slice(&nonsense.to_vec()).is_err(), "{nonsense:?}");
        }
    }
}
