//! Hints that a group has changed: a watch on a connection of its own.
//!
//! It is never believed: whoever waits reads, when it is woken and at the end of its wait. So a watch begins with what comes next,
//! and needs no revision to go on from: what came while there was none is read.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_stream::StreamExt;

use crate::api::{WATCH, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::client::Members;
use crate::endpoint::Failure;

/// Pause before a watch that has ended is made anew, at the next member.
const PAUSE: Duration = Duration::from_millis(100);

/// Counts hints, and wakes those that wait for one.
#[derive(Default)]
pub(crate) struct Hints {
    number: Mutex<u64>,
    changed: Condvar,
}

impl Hints {
    pub(crate) fn number(&self) -> u64 {
        *self.number.lock().expect("no panic while it is held")
    }

    fn give(&self) {
        *self.number.lock().expect("no panic while it is held") += 1;
        self.changed.notify_all();
    }

    /// Waits until there is another one than this, or the time has come.
    pub(crate) fn wait(&self, seen: u64, until: Instant) {
        let number = self.number.lock().expect("no panic while it is held");
        let left = until.saturating_duration_since(Instant::now());
        drop(self.changed.wait_timeout_while(number, left, |number| *number == seen));
    }
}

/// Watches these keys, at one member after the other, for as long as the runtime lives.
pub(crate) async fn watch(members: Arc<Members>, (key, range_end): (Vec<u8>, Vec<u8>), hints: Arc<Hints>) {
    let create = WatchCreateRequest { key, range_end };
    let request = WatchRequest { create: Some(create) };
    let mut at = members.preferred();
    loop {
        let endpoint = &members.endpoints[at % members.endpoints.len()];
        let why = match endpoint.stream::<_, WatchResponse>(WATCH, request.clone()).await {
            Ok(mut stream) => loop {
                match stream.next().await {
                    Some(Ok(told)) if told.canceled => break told.cancel_reason,
                    // The first one says that the watch is there: changes before it were not told.
                    Some(Ok(_)) => hints.give(),
                    Some(Err(why)) => break why.message().to_owned(),
                    None => break "it has ended".to_owned(),
                }
            },
            Err(why @ (Failure::Unreached(_) | Failure::Away(_))) => why.why().to_owned(),
            Err(why) => {
                tracing::warn!(etcd = %endpoint.address, "groups cannot be watched: {}", why.why());
                why.why().to_owned()
            }
        };
        tracing::debug!(etcd = %endpoint.address, why, "a watch has ended");
        endpoint.forget();
        at += 1;
        sleep(PAUSE).await;
    }
}
