//! A long zeroing is asked for in pieces, one after the other. Whoever asked for it has one operation: it is cancelled
//! and abandoned as a whole, in whichever piece it is.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use atoll_client::{Client, Sink, Wire};
use atoll_core::{Ino, IslandId, SessionId, Table};
use atoll_posix::perm::{FILE_BYTES_MAX, ZERO_BYTES_MAX};
use atoll_posix::{Allocation, Answer, AnswerExtras, Caller, Errno, Op};
use atoll_proto::{ClientOp, Lease, Outcome, Reply, Request};
use atoll_route::Config;
use bytes::Bytes;

const ISLAND: IslandId = IslandId(0);
const FILE: Ino = Ino::mint(ISLAND, 7);
const ANSWER: Duration = Duration::from_secs(10);

/// An island that answers so many pieces at once, and then only when it is told to.
#[derive(Default)]
struct Island {
    client: OnceLock<Weak<Client>>,
    at_once: Mutex<u64>,
    /// Numbers of requests for pieces that are not answered yet, where they begin, and their bytes.
    pieces: Mutex<Vec<(u64, u64, u64)>>,
    cancelled: Mutex<Vec<u64>>,
}

impl Island {
    fn answer(&self, id: u64, outcome: Outcome) {
        let client = self.client.get().and_then(Weak::upgrade).unwrap();
        client.reply(ISLAND, id, Reply::bare(outcome), &[]);
    }

    fn done() -> Outcome {
        Outcome::Ok { answer: Answer::Done, keys: Vec::new() }
    }

    /// Answers the piece that waits.
    fn answer_piece(&self, outcome: Outcome) {
        let (id, ..) = self.pieces.lock().unwrap().remove(0);
        self.answer(id, outcome);
    }

    /// Where the pieces begin that wait.
    fn waiting(&self) -> Vec<u64> {
        self.pieces.lock().unwrap().iter().map(|(_, offset, _)| *offset).collect()
    }
}

impl Wire for Island {
    fn send(&self, _: IslandId, id: u64, request: Request, _: Bytes) {
        match request.op {
            ClientOp::Attach { .. } | ClientOp::Renew | ClientOp::Lease => {
                self.answer(id, Outcome::Attached { lease: Lease::Whole, power: 1 })
            }
            ClientOp::Cancel { request } => {
                self.cancelled.lock().unwrap().push(request);
                self.answer(id, Self::done());
            }
            ClientOp::Fs { op: Op::Fallocate { offset, len, .. } } => {
                let is_at_once = {
                    let mut left = self.at_once.lock().unwrap();
                    let is = *left > 0;
                    *left = left.saturating_sub(1);
                    is
                };
                match is_at_once {
                    true => self.answer(id, Self::done()),
                    false => self.pieces.lock().unwrap().push((id, offset, len)),
                }
            }
            _ => self.answer(id, Self::done()),
        }
    }
}

struct Zeroing {
    island: Arc<Island>,
    client: Arc<Client>,
    ended: Receiver<Result<Answer, Errno>>,
    ticket: u64,
}

/// Begins to zero so many bytes of a file, from its beginning, at an island that answers so many pieces at once.
fn zeroing(len: u64, at_once: u64) -> Zeroing {
    let island = Arc::new(Island { at_once: Mutex::new(at_once), ..Island::default() });
    let config = Config {
        seed: 1,
        table: Table::new(1),
        islands: vec![ISLAND],
        session: SessionId(7),
        mount: true,
        keeps: true,
        patience_ms: None,
        scope: None,
    };
    let client = Client::new(config, BTreeMap::from([(ISLAND, Arc::clone(&island) as Arc<dyn Wire>)]));
    island.client.set(Arc::downgrade(&client)).unwrap();
    client.reachable(ISLAND, true);
    assert!(client.wait_ready(ANSWER));
    let (send, ended) = channel();
    let what = Allocation::ZeroRange { keep_size: true };
    let op = Op::Fallocate { ino: FILE, offset: 0, len, what };
    let done = Box::new(move |result: Result<Answer, Errno>, _: AnswerExtras<'_>| send.send(result).unwrap());
    let ticket = client.submit(&Caller::ROOT, op, Bytes::new(), done);
    Zeroing { island, client, ended, ticket }
}

#[test]
fn a_zeroing_that_is_cancelled_in_its_second_piece_ends_there() {
    let all = zeroing(3 * ZERO_BYTES_MAX, 0);
    assert_ne!(all.ticket, 0);
    all.island.answer_piece(Island::done());
    let second = all.island.pieces.lock().unwrap()[0];
    assert_eq!(second.1, ZERO_BYTES_MAX);
    all.client.cancel(all.ticket);
    assert_eq!(*all.island.cancelled.lock().unwrap(), [second.0], "the piece under way is cancelled");
    assert_eq!(all.ended.try_recv(), Err(TryRecvError::Empty));
    // The island had done it already: what follows is not begun.
    all.island.answer_piece(Island::done());
    assert_eq!(all.ended.try_recv(), Ok(Err(Errno::EINTR)));
    assert_eq!(all.island.waiting(), Vec::<u64>::new());
}

#[test]
fn a_zeroing_whose_first_piece_was_done_at_once_is_under_way_and_can_be_cancelled() {
    let all = zeroing(2 * ZERO_BYTES_MAX, 1);
    assert_eq!(all.island.waiting(), [ZERO_BYTES_MAX]);
    assert_ne!(all.ticket, 0, "0 says that it has ended");
    all.client.cancel(all.ticket);
    all.island.answer_piece(Outcome::Failed { errno: Errno::EINTR });
    assert_eq!(all.ended.try_recv(), Ok(Err(Errno::EINTR)));
}

#[test]
fn a_zeroing_that_waits_for_a_lost_island_in_a_later_piece_lets_its_caller_die() {
    let all = zeroing(3 * ZERO_BYTES_MAX, 1);
    all.client.reachable(ISLAND, false);
    all.client.abandon(all.ticket);
    assert_eq!(all.ended.try_recv(), Ok(Err(Errno::EINTR)));
}

#[test]
fn a_zeroing_ends_with_its_last_piece_and_its_ticket_then_means_nothing() {
    let all = zeroing(3 * ZERO_BYTES_MAX, 2);
    assert_eq!(all.ended.try_recv(), Err(TryRecvError::Empty));
    all.island.answer_piece(Island::done());
    assert_eq!(all.ended.try_recv(), Ok(Ok(Answer::Done)));
    all.client.cancel(all.ticket);
    all.client.abandon(all.ticket);
    assert_eq!(*all.island.cancelled.lock().unwrap(), Vec::<u64>::new());
    let all = zeroing(2 * ZERO_BYTES_MAX, 2);
    assert_eq!((all.ended.try_recv(), all.ticket), (Ok(Ok(Answer::Done)), 0));
}

#[test]
fn a_piece_that_fails_ends_the_zeroing() {
    let all = zeroing(3 * ZERO_BYTES_MAX, 1);
    all.island.answer_piece(Outcome::Failed { errno: Errno::ENOSPC });
    assert_eq!(all.ended.try_recv(), Ok(Err(Errno::ENOSPC)));
    assert_eq!(all.island.waiting(), Vec::<u64>::new());
}

#[test]
fn pieces_that_are_done_at_once_take_no_room_on_the_stack() {
    const STACK_BYTES: usize = 1 << 20;
    let all = || {
        let all = zeroing(FILE_BYTES_MAX, u64::MAX);
        assert_eq!(all.ended.try_recv(), Ok(Ok(Answer::Done)));
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(all).unwrap().join().unwrap();
}

#[test]
fn a_range_that_no_file_can_have_is_left_to_the_island_whole() {
    let all = zeroing(FILE_BYTES_MAX + 1, 0);
    let asked = all.island.pieces.lock().unwrap().clone();
    assert_eq!((asked.len(), asked[0].1, asked[0].2), (1, 0, FILE_BYTES_MAX + 1));
    all.island.answer_piece(Outcome::Failed { errno: Errno::EFBIG });
    assert_eq!(all.ended.try_recv(), Ok(Err(Errno::EFBIG)), "nothing was zeroed before it was refused");
}
