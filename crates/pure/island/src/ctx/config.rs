//! The facts that an island needs to know of itself and of its volume.

use atoll_core::{IslandId, Key, Table};
use atoll_proto::DaemonLife;

/// Entries of its journal that an island keeps for one that is away.
pub const OUTBOX_MAX: usize = 4096;
/// Encoded bytes of these at most.
pub const OUTBOX_BYTES_MAX: u64 = 16 << 20;

/// An island's facts about itself and its volume.
#[derive(Debug, Clone)]
pub struct Config {
    /// This island.
    pub id: IslandId,
    /// The process that serves it.
    pub life: DaemonLife,
    /// The volume's seed.
    pub seed: u64,
    /// The table of owners at first; later tables come by `Event::Table`.
    pub table: Table,
    /// All islands of the volume, this one too.
    pub islands: Vec<IslandId>,
    /// Permission bits, owner and group of the root directory when the volume is made.
    pub root_mode: u32,
    /// See `root_mode`.
    pub root_uid: u32,
    /// See `root_mode`.
    pub root_gid: u32,
    /// Rows of each kind that may stay in memory although the snapshot has them.
    pub rows_max: usize,
    /// Bytes that must stay free on the disk, so that deletes and checkpoints still work.
    pub reserve_bytes: u64,
    /// Entries of its journal that an island keeps for one that is away.
    pub outbox_max: usize,
    /// Encoded bytes of these at most.
    pub outbox_bytes_max: u64,
    /// When files follow their names to other islands; none if they stay where they are.
    pub moving: Option<MigrationConfig>,
    /// The epoch of its group, which is the incarnation that it begins; none if it has no other copies, and counts by itself.
    pub epoch: Option<u32>,
    /// Milliseconds that it waits for the others' answers when it starts.
    pub hello_ms: u64,
}

/// Milliseconds that a starting island waits for the others' answers: whoever has not answered by then is away.
pub const HELLO_MS: u64 = 2_000;
/// The same of a copy that leads so soon after the one before it that no other island has taken that for away.
pub const HELLO_SOON_MS: u64 = 250;

impl Config {
    /// An island of a daemon that is no one's, which keeps a thousand rows, leaves a full disk to others and moves no files; the root is
    /// user 0's.
    pub const fn new(id: IslandId, seed: u64, table: Table, islands: Vec<IslandId>) -> Self {
        Self {
            id,
            life: DaemonLife { daemon: 0, incarnation: 0 },
            seed,
            table,
            islands,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
            rows_max: 1000,
            reserve_bytes: 0,
            outbox_max: OUTBOX_MAX,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            moving: None,
            epoch: None,
            hello_ms: HELLO_MS,
        }
    }

    /// The other islands.
    pub(crate) fn others(&self) -> impl Iterator<Item = IslandId> + use<> {
        let me = self.id;
        self.islands.clone().into_iter().filter(move |island| *island != me)
    }

    /// The island that owns a directory with this placement key (Ring FS 3).
    pub(crate) fn owner(&self, key: Key) -> IslandId {
        self.table.owner(key)
    }

    /// The volume has this table, perhaps a newer one. See `Event::Table`.
    pub(crate) fn take_table(&mut self, table: Table) {
        if table.version() <= self.table.version() {
            return;
        }
        let (old, new) = (self.table.version(), table.version());
        assert!(table.has_owners_of(&self.table), "table {new} gives directories to others than table {old}");
        self.table = table;
    }
}

/// When files move, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationConfig {
    /// Milliseconds since the last change of a small file after which it moves; a large one rests longer.
    pub rests_ms: u64,
    /// Bytes that one island sends a second.
    pub bytes_per_s: u64,
}

impl MigrationConfig {
    /// Milliseconds for which a file of that many bytes must be unchanged first. A file that nobody has
    /// changed for twice the time that its move takes will hardly be changed during the move.
    pub(crate) const fn rest_ms(self, bytes: u64) -> u64 {
        let way_ms = bytes.saturating_mul(1_000) / if self.bytes_per_s == 0 { 1 } else { self.bytes_per_s };
        self.rests_ms.saturating_add(way_ms.saturating_mul(2))
    }
}
