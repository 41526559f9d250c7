//! The machine beside an island, when a copy of it begins to lead: it is made from side rows, in memory or in the snapshot. Knows nothing
//! of what such a machine does.

use std::fmt::Debug;
use std::sync::Arc;

use atoll_core::Malformed;
use atoll_island::Beside;
use atoll_snapshot::Snapshot;
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

use crate::open::load;

/// Side rows: table, id, bytes.
pub type SideRow = (u8, u128, Bytes);

/// Makes the machine beside an island, as a site of a wide volume has one (`docs/design/023-wide.md`). Each process of each copy that begins
/// to lead makes another one.
pub trait BesideMaker: Debug + Send + Sync {
    /// Side tables that the machine reads whole when it begins.
    fn tables(&self) -> &[u8];

    /// A machine that goes on where these rows end. They are all of [`BesideMaker::tables`], as of the record at `position`: the last one
    /// before this process, which may not be synced yet. The island may have decided more since then, and changed none of these rows.
    fn begin(&self, position: u64, rows: Vec<SideRow>) -> Result<Box<dyn Beside>, Malformed>;
}

/// What the machine beside an island begins with.
#[derive(Debug)]
pub(crate) struct BesideSetup {
    maker: Arc<dyn BesideMaker>,
    /// That of the record with which they end.
    position: u64,
    rows: Vec<SideRow>,
}

impl BesideSetup {
    /// All rows that it reads. What the snapshot has of them is taken into memory.
    pub(crate) fn read(
        maker: Arc<dyn BesideMaker>,
        state: &mut State,
        snapshot: &Snapshot,
    ) -> Result<Self, String> {
        let mut rows = Vec::new();
        for &table in maker.tables() {
            let mut from = Some(0);
            while let Some(first) = from {
                let page = state.sides_from(table, first).map(|(page, to)| {
                    rows.extend(page.map(|(id, row)| (table, id, row.clone())));
                    to.checked_add(1)
                });
                match page {
                    Ok(next) => from = next,
                    Err(NotInMemory(missing)) => load(state, snapshot, missing)?,
                }
            }
        }
        Ok(Self { maker, position: state.seq(), rows })
    }

    /// The machine.
    pub(crate) fn begin(self) -> Result<Box<dyn Beside>, String> {
        let made = self.maker.begin(self.position, self.rows);
        made.map_err(|why| format!("rows of the machine beside the island: {why}"))
    }
}
