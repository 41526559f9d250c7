//! The simulated control store keeps the promises of all of them, where nothing fails.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_proto::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};
use atoll_sim::store::{ControlStore, Faults, Outcome, Request, Told};

use crate::{ControlError, GroupStore, WATCH_MAX, conformance};

type Key = (VolumeId, IslandId);

/// Asks, and lets the store's time pass until there is an answer.
struct Waiting {
    store: Mutex<ControlStore<Key, GroupRecord>>,
    changed: Condvar,
}

impl Waiting {
    fn ask(&self, key: Key, request: Request<GroupRecord>) -> Outcome<GroupRecord> {
        let mut store = self.store.lock().unwrap();
        let now_us = store.next_us().unwrap_or(0);
        let asked = store.ask(now_us, NodeId(0), key, request);
        loop {
            let at_us = store.next_us().expect("it is answered");
            for told in store.advance(at_us) {
                if let Told::Answer { ticket, outcome, .. } = told
                    && ticket == asked
                {
                    self.changed.notify_all();
                    return outcome;
                }
            }
        }
    }
}

impl GroupStore for Waiting {
    fn group(&self, volume: VolumeId, island: IslandId) -> Result<Option<StoredGroup>, ControlError> {
        let Outcome::Read(found) = self.ask((volume, island), Request::Read) else { panic!("nothing fails") };
        Ok(found.map(|(revision, record)| StoredGroup { island, revision, record }))
    }

    fn swap_group(
        &self,
        volume: VolumeId,
        island: IslandId,
        expected: Revision,
        next: &GroupRecord,
    ) -> Swapped {
        let record = next.clone();
        match self.ask((volume, island), Request::Swap { expect: expected, record }) {
            Outcome::Done(revision) => Swapped::Done { revision },
            Outcome::Conflict => Swapped::Conflict,
            Outcome::Unknown | Outcome::Read(_) => panic!("nothing fails"),
        }
    }

    fn groups(
        &self,
        volume: VolumeId,
        since: Revision,
        wait: Duration,
    ) -> Result<ChangedGroups, ControlError> {
        let until = Instant::now() + wait.min(WATCH_MAX);
        let mut store = self.store.lock().unwrap();
        loop {
            let upto = store.records().map(|(_, (revision, _))| *revision).max().unwrap_or(since);
            let is_later = |((of, _), (revision, _)): &(Key, &(Revision, GroupRecord))| {
                *of == volume && *revision > since
            };
            let groups: Vec<StoredGroup> = store
                .records()
                .filter(is_later)
                .map(|((_, island), (revision, record))| StoredGroup {
                    island,
                    revision: *revision,
                    record: record.clone(),
                })
                .collect();
            let left = until.saturating_duration_since(Instant::now());
            if !groups.is_empty() || left.is_zero() {
                return Ok(ChangedGroups { upto, groups });
            }
            store = self.changed.wait_timeout(store, left).unwrap().0;
        }
    }
}

#[test]
fn it_behaves_as_every_store_does() {
    let mut seed = 0;
    conformance::behaves(&mut || {
        seed += 1;
        let store = Mutex::new(ControlStore::new(seed, Faults::NONE));
        Arc::new(Waiting { store, changed: Condvar::new() })
    });
}
