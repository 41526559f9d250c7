//! The group records of a node's control store, as other machines read and change them.

mod common;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_control::{ControlError, EmbeddedStore, GroupStore, ServedStore, conformance};
use atoll_core::{IslandId, VolumeId};
use atoll_proto::group::{Revision, Swapped};
use atoll_proto::{Control, ControlReply};
use atoll_rpc::{
    Acceptor, Address, Closed, ClusterId, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link,
    Listener, Options, Reason,
};
use common::node::{LONG, listen, node, shelf};

const VOLUME: VolumeId = VolumeId(7);
const ISLAND: IslandId = IslandId(3);
const PATIENCE: Duration = Duration::from_millis(300);

#[test]
fn a_store_that_a_node_serves_keeps_groups_as_every_store_does() {
    let mut all = Vec::new();
    conformance::behaves(&mut || {
        let data = tempfile::tempdir().unwrap();
        let node = node(data.path(), 1, shelf());
        let listener = listen(&node);
        let store = Arc::new(ServedStore::new(listener.address().clone()));
        all.push((data, node, listener));
        store
    });
}

#[test]
fn a_node_that_is_started_again_has_its_records_and_whoever_asks_finds_it() {
    let data = tempfile::tempdir().unwrap();
    let first = node(data.path(), 1, shelf());
    let mut listener = listen(&first);
    let address = listener.address().clone();
    let store = ServedStore::with_patience(address.clone(), LONG);
    let swapped = store.swap_group(VOLUME, ISLAND, Revision::NONE, &conformance::record(1));
    assert_eq!(swapped, Swapped::Done { revision: Revision(1) });
    listener.stop();
    drop((first, listener));
    // A thread that answered a moment ago may be closing them yet.
    let is_closed = |name: &str| EmbeddedStore::open(&data.path().join(name)).is_ok();
    let since = Instant::now();
    while !(is_closed("control.redb") && is_closed("prepared.redb")) && since.elapsed() < LONG {
        std::thread::yield_now();
    }
    let second = node(data.path(), 2, shelf());
    let _listener = Listener::start(&address, second, Options::default()).unwrap();
    assert_eq!(store.group(VOLUME, ISLAND).unwrap().unwrap().record, conformance::record(1));
}

#[test]
fn of_a_store_that_is_away_nothing_is_read_and_a_swap_is_unknown() {
    let nobody: Address = "127.0.0.1:1".parse().unwrap();
    let store = ServedStore::with_patience(nobody, PATIENCE);
    let since = Instant::now();
    let swapped = store.swap_group(VOLUME, ISLAND, Revision::NONE, &conformance::record(1));
    assert!(matches!(swapped, Swapped::Unknown { .. }), "{swapped:?}");
    assert!(matches!(store.group(VOLUME, ISLAND), Err(ControlError::Unavailable { .. })));
    let watched = store.groups(VOLUME, Revision::NONE, Duration::ZERO);
    assert!(matches!(watched, Err(ControlError::Unavailable { .. })));
    assert!(since.elapsed() < LONG);
}

/// What a store does with a question.
#[derive(Clone, Copy)]
enum Answers {
    /// It makes the swap, and its answer is lost with the link.
    EndsTheLink,
    /// It makes the swap, and its answer comes when the next question comes.
    Late,
    /// It does not understand.
    Refuses,
    /// It answers something else.
    Strangely,
}

/// A store that counts what it is asked.
struct Store {
    answers: Answers,
    asked: AtomicU32,
    late: Mutex<Option<u64>>,
}

impl Acceptor for Store {
    fn welcome(&self, _: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(ClusterId(1), DaemonId(5), 1))
    }
}

impl Handler for Store {
    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        frame.decode::<Control>().unwrap();
        self.asked.fetch_add(1, SeqCst);
        let reply = |id, revision| {
            let swapped = Swapped::Done { revision: Revision(revision) };
            link.send(FrameKind::ControlReply, IslandId(0), id, &ControlReply::Swapped { swapped }, &[])
                .unwrap();
        };
        match self.answers {
            Answers::EndsTheLink => link.close(Goodbye::new(Reason::Stopping, "it dies")),
            Answers::Late => {
                let mut late = self.late.lock().unwrap();
                match late.take() {
                    None => *late = Some(frame.id),
                    Some(late) => {
                        reply(late, 100);
                        reply(frame.id, 200);
                    }
                }
            }
            Answers::Refuses => {
                let refused = ControlReply::Refused { text: "no such order".to_owned() };
                link.send(FrameKind::ControlReply, IslandId(0), frame.id, &refused, &[]).unwrap();
            }
            Answers::Strangely => {
                link.send(FrameKind::ControlReply, IslandId(0), frame.id, &ControlReply::Done, &[]).unwrap();
            }
        }
    }

    fn closed(&self, _: &Arc<Link>, _: &Closed) {}
}

fn store(answers: Answers) -> (Arc<Store>, Listener, ServedStore) {
    let store = Arc::new(Store { answers, asked: AtomicU32::new(0), late: Mutex::default() });
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::start(&any, Arc::clone(&store) as _, Options::default()).unwrap();
    let served = ServedStore::with_patience(listener.address().clone(), PATIENCE);
    (store, listener, served)
}

fn swap(store: &ServedStore) -> Swapped {
    store.swap_group(VOLUME, ISLAND, Revision::NONE, &conformance::record(1))
}

#[test]
fn a_swap_whose_answer_is_lost_is_unknown_at_once_and_is_not_asked_again() {
    for answers in [Answers::EndsTheLink, Answers::Refuses, Answers::Strangely] {
        let (store, mut listener, _) = store(answers);
        let served = ServedStore::with_patience(listener.address().clone(), LONG);
        let since = Instant::now();
        let swapped = swap(&served);
        assert!(matches!(swapped, Swapped::Unknown { .. }), "{swapped:?}");
        assert!(since.elapsed() < LONG / 2, "it waits although nothing can come");
        std::thread::sleep(PATIENCE);
        assert_eq!(store.asked.load(SeqCst), 1);
        listener.stop();
    }
}

#[test]
fn an_answer_that_comes_late_is_not_taken_for_another_one_s() {
    let (store, mut listener, served) = store(Answers::Late);
    let swapped = swap(&served);
    assert!(matches!(swapped, Swapped::Unknown { .. }), "{swapped:?}");
    assert_eq!(swap(&served), Swapped::Done { revision: Revision(200) });
    assert_eq!(store.asked.load(SeqCst), 2);
    listener.stop();
}
