//! Looks after the cluster's own etcd while a daemon runs: a snapshot each hour, and its alarms.
//!
//! Changes nothing in etcd. Whatever fails is said in the log, and tried again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::admin::{EtcdAdmin, EtcdAlarm, EtcdError};

/// Time between two snapshots.
pub const SNAPSHOT_EVERY: Duration = Duration::from_secs(3_600);
/// Time between two looks at the alarms, and before a snapshot that failed is tried again.
const LOOK_EVERY: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    alarms: Mutex<Vec<(u64, EtcdAlarm)>>,
}

/// See the module. Ends when it is dropped.
pub struct EtcdCare {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl EtcdCare {
    /// Starts a thread, which writes `snapshot` after `every`, again and again: at once if there is none.
    pub fn start(admin: EtcdAdmin, snapshot: PathBuf, every: Duration) -> Result<Self, EtcdError> {
        let seen = Arc::<Seen>::default();
        let sees = Arc::clone(&seen);
        let run = move || {
            let age = || snapshot.metadata().and_then(|file| file.modified()).ok()?.elapsed().ok();
            let mut next = Instant::now() + age().map_or(Duration::ZERO, |age| every.saturating_sub(age));
            while !sees.is_over.load(Ordering::Acquire) {
                sees.look(&admin);
                let now = Instant::now();
                if now >= next {
                    let written = admin.snapshot(&snapshot);
                    next = now + if written.is_ok() { every } else { LOOK_EVERY.min(every) };
                    if let Err(why) = written {
                        tracing::warn!("no snapshot of etcd: {why}");
                    }
                }
                std::thread::park_timeout(LOOK_EVERY.min(next.saturating_duration_since(Instant::now())));
            }
        };
        let thread = std::thread::Builder::new().name("atoll-etcd-care".to_owned()).spawn(run);
        let thread =
            thread.map_err(|source| EtcdError::Io { what: "starting a thread".to_owned(), source })?;
        Ok(Self { seen, thread: Some(thread) })
    }

    /// The alarms that were on at the last look, with the member of each.
    pub fn alarms(&self) -> Vec<(u64, EtcdAlarm)> {
        self.seen.alarms.lock().expect("no panic while it is held").clone()
    }
}

impl Seen {
    fn look(&self, admin: &EtcdAdmin) {
        // While it is away, the alarms from before count: it is said elsewhere that it is away.
        let Ok(found) = admin.alarms() else { return };
        let mut alarms = self.alarms.lock().expect("no panic while it is held");
        for (member, alarm) in found.iter().filter(|alarm| !alarms.contains(alarm)) {
            match alarm {
                EtcdAlarm::NoSpace => tracing::error!(
                    member = format!("{member:x}"),
                    "etcd has reached its quota, and takes no change. Compact and defragment it, then: etcdctl alarm disarm"
                ),
                other => tracing::error!(member = format!("{member:x}"), "etcd has an alarm: {other:?}"),
            }
        }
        *alarms = found;
    }
}

impl Drop for EtcdCare {
    fn drop(&mut self) {
        self.seen.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It ends after what it is at.
            let _ = thread.join();
        }
    }
}
