//! Orders to the nodes of a volume.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use atoll_core::{IslandId, NodeId};
use atoll_proto::{Control, ControlReply, VolumeConfig};
use atoll_rpc::Address;

use crate::ask::{QUESTION, ask_all};

/// How long another copy may take to lead, and how often it is asked whether it does.
const MOVE_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// Has the copy of an island on node `to` lead it: returns when it does. `addresses`: of the nodes that keep the island.
pub fn move_island(addresses: &[Address], config: &VolumeConfig, island: IslandId, to: NodeId) -> Result<()> {
    let order = Control::MoveIsland { volume: config.id, island, to };
    let until = Instant::now() + MOVE_MAX;
    loop {
        // Only the copy that leads knows what to do; the one that is meant says when it leads.
        let mut refused = Vec::new();
        for answer in ask_all(addresses, &order, QUESTION) {
            match answer {
                Ok(ControlReply::Done) => return Ok(()),
                Ok(ControlReply::Refused { text }) => refused.push(text),
                Ok(_) | Err(_) => {}
            }
        }
        if let Some(why) = refused.into_iter().find(|why| !why.is_empty()) {
            bail!("{why}");
        }
        if Instant::now() > until {
            bail!(
                "Node {to} does not lead island {island} after {} s.\n\"atoll status\" shows who does.",
                MOVE_MAX.as_secs()
            );
        }
        std::thread::sleep(LOOK);
    }
}
