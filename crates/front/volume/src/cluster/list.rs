//! Every name of a tree in a cluster volume as of one moment, over all islands: the whole list, or an error.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use atoll_core::{IslandId, VolumePath};
use atoll_proto::{CutLost, VolumeConfig};
use atoll_route::{Enumerate, ListConfig, ListError, ListedFile};

use super::attach::ClusterVolume;
use crate::kind::Attached as _;
use crate::node::random;

/// Milliseconds until the islands must have been quiet at once.
const PATIENCE_MS: u64 = 10_000;
/// Milliseconds for which an island may be away: one that is started again is back by then.
const AWAY_MS: u64 = 3_000;
/// How often time is told to the listing.
const TICK: Duration = Duration::from_millis(10);

/// Lists everything below a path.
pub(super) fn list(attached: &ClusterVolume, path: VolumePath, shown: &Path) -> Result<Vec<ListedFile>> {
    take(attached, path).map_err(|why| explain(&why, &attached.config(), shown))
}

/// Takes the listing.
fn take(attached: &ClusterVolume, path: VolumePath) -> Result<Vec<ListedFile>, ListError> {
    let start = Instant::now();
    let now_ms = || start.elapsed().as_millis() as u64;
    let volume = attached.config();
    let config = ListConfig {
        table: volume.table.clone(),
        islands: volume.islands(),
        path,
        cut: 0,
        patience_ms: PATIENCE_MS,
        away_ms: AWAY_MS,
        spread: random().unwrap_or_default(),
    };
    let mut listing = Enumerate::new(now_ms(), config);
    let (send, receive) = channel();
    loop {
        for question in listing.questions() {
            let send = send.clone();
            let told = Box::new(move |outcome| {
                let _ = send.send((question.token, outcome));
            });
            attached.client.ask(question.island, question.op, told);
        }
        if let Some(result) = listing.ended() {
            return result;
        }
        match receive.recv_timeout(TICK) {
            Ok((token, outcome)) => listing.answered(now_ms(), token, outcome),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => listing.tick(now_ms()),
        }
    }
}

/// What, why, what to do.
fn explain(why: &ListError, config: &VolumeConfig, path: &Path) -> anyhow::Error {
    let of = |island: IslandId| match config.node_of(island) {
        Some(node) if !node.address.is_empty() => format!("Island {island} ({})", node.address),
        _ => format!("Island {island}"),
    };
    let path = path.display();
    match why {
        ListError::Away(island) => anyhow!(
            "{} is away, so there is no listing: it would lack what is there.\n\
            \"atoll status\" shows which nodes are down.",
            of(*island)
        ),
        ListError::Busy { island, attempts } => anyhow!(
            "{} had something half-way each time in {attempts} attempts, so there is no listing.\n\
            Try again; \"atoll status\" shows whether it waits for another island.",
            of(*island)
        ),
        ListError::Lost { island, why: CutLost::TooMuchChanged } => anyhow!(
            "More has changed at {} than it keeps for a listing, before all was read.\n\
            List less at a time, or when less is going on.",
            of(*island).to_lowercase()
        ),
        ListError::Lost { island, .. } => anyhow!(
            "{} cannot tell any more how it was: it was started again, or the listing stood still.\nTry again.",
            of(*island)
        ),
        ListError::NoSuchName => anyhow!("There is no {path}."),
        ListError::NotADirectory => anyhow!("There is no {path}: a part of it is no directory."),
        ListError::TooLarge => {
            anyhow!("There are more names in {path} than one listing holds.\nList less at a time.")
        }
        ListError::Contradiction { island, ino } => anyhow!(
            "{} lacks the file or directory with the id {ino}, which has a name.\n\
            \"atoll check\" tells more, with the node stopped.",
            of(*island)
        ),
    }
}
