//! A client: the product's routing machine with a token for each call. Keeps no names or bytes of
//! its own; what it is told to drop is dropped at once.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId};
use atoll_posix::{Answer, Errno};
use atoll_route::{Route, RouteOut, Sent};

/// How an operation ended, with the bytes beside its answer.
pub type Done = Result<(Answer, Vec<u8>), Errno>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) route: Route<u64>,
    next_token: u64,
    done: BTreeMap<u64, Done>,
    /// Files without a name of which an island has told that this mount may have them open.
    pub(crate) orphans: Vec<Ino>,
}

impl Client {
    pub(crate) const fn new(route: Route<u64>) -> Self {
        Self { route, next_token: 0, done: BTreeMap::new(), orphans: Vec::new() }
    }

    pub(crate) const fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    pub(crate) fn take(&mut self, token: u64) -> Option<Done> {
        self.done.remove(&token)
    }

    /// Takes in what the machine put out; what is to be sent is handed back. `data` came beside the
    /// reply that caused it.
    pub(crate) fn perform(&mut self, mut out: RouteOut<u64>, data: &[u8]) -> Vec<(IslandId, Sent)> {
        let mut send = Vec::new();
        loop {
            send.extend(out.send.drain(..).map(|sent| (sent.island, sent)));
            self.orphans.append(&mut out.orphans);
            for finished in out.finished.drain(..) {
                let result = finished.result.map(|answer| {
                    let bytes = match (&answer, finished.data) {
                        (Answer::Data, Some(bytes)) => bytes.to_vec(),
                        (Answer::Data, None) => data.to_vec(),
                        _ => Vec::new(),
                    };
                    (answer, bytes)
                });
                self.done.insert(finished.token, result);
            }
            if !std::mem::take(&mut out.recall) {
                return send;
            }
            self.route.recalled(&mut out);
        }
    }
}
