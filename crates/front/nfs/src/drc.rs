//! The duplicate-request cache: a call that changes something and comes again gets the answer of the first time.
//!
//! It is in memory. A retry that crosses a restart of the server can be told what it did itself.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::conn::Conn;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(120);
/// Most calls of a client.
const CLIENT_MAX: usize = 1024;
/// Longest answer that is kept, in bytes.
const REPLY_BYTES_MAX: usize = 512;
/// Most calls in all: 64 MiB, with the cost of an entry beside its answer.
const ALL_MAX: usize = (64 << 20) / (REPLY_BYTES_MAX + 256);

/// A call as it is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) client: IpAddr,
    pub(crate) xid: u32,
    pub(crate) procedure: u32,
    /// CRC-32C of the whole call.
    pub(crate) sum: u32,
}

enum State {
    /// Whoever asked last gets the answer.
    UnderWay(Arc<Conn>),
    Answered(Bytes),
}

struct Entry {
    number: u64,
    since: Instant,
    state: State,
}

#[derive(Default)]
struct Books {
    entries: HashMap<Key, Entry>,
    order: BTreeMap<u64, Key>,
    clients: HashMap<IpAddr, VecDeque<u64>>,
    number: u64,
}

/// What to do with a call.
pub(crate) enum Seen {
    /// Carry it out.
    New,
    /// It is being carried out: the answer will go to this connection.
    UnderWay,
    /// This was the answer.
    Answered(Bytes),
}

/// See the top of the file.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Books>);

impl Books {
    fn drop_number(&mut self, number: u64) {
        let Some(key) = self.order.remove(&number) else { return };
        self.entries.remove(&key);
        if let Some(list) = self.clients.get_mut(&key.client) {
            list.retain(|other| *other != number);
            if list.is_empty() {
                self.clients.remove(&key.client);
            }
        }
    }

    fn make_room(&mut self, client: IpAddr, now: Instant) {
        while let Some((&number, key)) = self.order.first_key_value() {
            let is_old = self.entries.get(key).is_none_or(|e| now.duration_since(e.since) > KEPT);
            if !is_old && self.order.len() < ALL_MAX {
                break;
            }
            self.drop_number(number);
        }
        if let Some(list) = self.clients.get(&client)
            && list.len() >= CLIENT_MAX
            && let Some(number) = list.front().copied()
        {
            self.drop_number(number);
        }
    }
}

impl Cache {
    fn lock(&self) -> std::sync::MutexGuard<'_, Books> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// A call has come.
    pub(crate) fn begin(&self, key: Key, conn: &Arc<Conn>) -> Seen {
        let now = Instant::now();
        let mut books = self.lock();
        books.make_room(key.client, now);
        if let Some(entry) = books.entries.get_mut(&key) {
            return match &mut entry.state {
                State::Answered(reply) => Seen::Answered(reply.clone()),
                State::UnderWay(newest) => {
                    *newest = Arc::clone(conn);
                    Seen::UnderWay
                }
            };
        }
        let number = books.number;
        books.number += 1;
        let state = State::UnderWay(Arc::clone(conn));
        books.entries.insert(key, Entry { number, since: now, state });
        books.order.insert(number, key);
        books.clients.entry(key.client).or_default().push_back(number);
        Seen::New
    }

    /// A call has this answer. The connection that gets it.
    pub(crate) fn end(&self, key: &Key, reply: &[u8]) -> Option<Arc<Conn>> {
        let mut books = self.lock();
        let entry = books.entries.get_mut(key)?;
        let number = entry.number;
        let newest = match std::mem::replace(&mut entry.state, State::Answered(Bytes::copy_from_slice(reply)))
        {
            State::UnderWay(conn) => Some(conn),
            State::Answered(_) => None,
        };
        if reply.len() > REPLY_BYTES_MAX {
            books.drop_number(number);
        }
        newest
    }
}
