//! What a client does when a direct link takes the place of one that another node has passed on.

mod common;

use std::collections::BTreeSet;

use atoll_core::{Ino, IslandId, Key, Name, Table};
use atoll_posix::{Answer, Caller, Errno, LockKind, LockRange, Op};
use atoll_proto::{ClientOp, Outcome};
use atoll_route::OutgoingRequest;
use bytes::Bytes;

use common::Client;

#[test]
fn what_is_under_way_on_a_link_that_is_replaced_is_asked_again_there_and_nobody_else_is() {
    let owner = Table::new(2).owner(Key(0));
    let mut client = Client::new(2, None);
    // A stat: while the owner is away, it is answered from another island's skeleton.
    let stat = Op::GetAttr { ino: Ino::ROOT };
    let make = Op::Mkdir { dir: Ino::ROOT, name: Name::new(b"d").unwrap(), mode: 0o755, umask: 0 };
    for op in [stat, make] {
        client.route.call(0, &Caller::ROOT, op, Bytes::new(), 1, &mut client.out);
    }
    let first: Vec<(u64, u64)> =
        std::mem::take(&mut client.out.send).iter().map(|sent| (sent.id, sent.request.seq)).collect();
    assert_eq!(first.len(), 2);
    client.route.replaced(owner, &mut client.out);
    let asked: BTreeSet<IslandId> = client.out.send.iter().map(|sent| sent.island).collect();
    assert_eq!(asked, BTreeSet::from([owner]), "its session is taken up again first");
    assert!(client.attached().is_empty());
    let again = client.attached();
    assert!(again.iter().all(|sent| sent.island == owner), "{again:?}");
    let numbers: Vec<(u64, u64)> = again.iter().map(|sent| (sent.id, sent.request.seq)).collect();
    let expected: Vec<(u64, u64)> = first.iter().map(|(id, seq)| (id | 1 << 48, *seq)).collect();
    assert_eq!(
        numbers, expected,
        "with the same numbers to the island, so that nothing is done twice, and others on the link"
    );
    assert!(client.out.finished.is_empty());
}

/// Found as `groups_partition --seed 501057`: the call was to be asked again twice.
#[test]
fn an_answer_on_the_old_link_that_says_later_has_the_call_asked_again_once() {
    let owner = Table::new(2).owner(Key(0));
    let mut client = Client::new(2, None);
    let make = Op::Mkdir { dir: Ino::ROOT, name: Name::new(b"d").unwrap(), mode: 0o755, umask: 0 };
    client.route.call(0, &Caller::ROOT, make, Bytes::new(), 1, &mut client.out);
    let sent = std::mem::take(&mut client.out.send).remove(0);
    client.route.replaced(owner, &mut client.out);
    client.reply(&sent, Outcome::NotNow);
    client.route.check();
    let mut again = client.attached();
    again.extend(client.attached());
    client.route.tick(1_000, &mut client.out);
    again.extend(std::mem::take(&mut client.out.send));
    let of_call = again.iter().filter(|asked| asked.request.seq == sent.request.seq).count();
    assert_eq!(of_call, 1, "{again:?}");
}

/// A call is made, its link is replaced, and it is asked again: both requests.
fn asked_twice(client: &mut Client, op: Op) -> (u64, [OutgoingRequest; 2]) {
    let owner = Table::new(2).owner(Key(0));
    let id = client.route.call(0, &Caller::ROOT, op, Bytes::new(), 1, &mut client.out);
    let first = std::mem::take(&mut client.out.send).remove(0);
    client.route.replaced(owner, &mut client.out);
    assert!(client.attached().is_empty());
    let second = client.attached().remove(0);
    assert_eq!((second.island, second.request.seq), (first.island, first.request.seq));
    (id, [first, second])
}

fn removed() -> Outcome {
    Outcome::Ok { answer: Answer::Removed { orphan: None }, keys: Vec::new() }
}

/// Found as `groups_all --seed 408500`: the old primary had refused a link, and the next one made it.
#[test]
fn a_late_answer_on_the_old_link_is_not_taken_for_that_to_what_was_asked_again() {
    let mut client = Client::new(2, None);
    let unlink = Op::Unlink { dir: Ino::ROOT, name: Name::new(b"d").unwrap() };
    let (_, [first, second]) = asked_twice(&mut client, unlink);
    client.reply(&first, Outcome::Failed { errno: Errno::ENOENT });
    assert!(client.out.finished.is_empty(), "what was asked again is yet to be answered");
    client.route.check();
    client.reply(&second, removed());
    let ended: Vec<_> = client.out.finished.drain(..).map(|finished| finished.result).collect();
    assert_eq!(ended, [Ok(Answer::Removed { orphan: None })]);
}

#[test]
fn of_two_links_that_are_lost_the_first_ones_answer_says_nothing_and_the_second_ones_does() {
    let owner = Table::new(2).owner(Key(0));
    let unlink = Op::Unlink { dir: Ino::ROOT, name: Name::new(b"d").unwrap() };
    for (of, ends) in [(0, 0), (1, 1)] {
        let mut client = Client::new(2, None);
        let (_, sent) = asked_twice(&mut client, unlink.clone());
        client.route.replaced(owner, &mut client.out);
        // It waits for the session now.
        client.reply(&sent[of], Outcome::Failed { errno: Errno::ENOENT });
        client.route.check();
        assert_eq!(client.out.finished.len(), ends, "the answer to request {of}");
        let mut again = client.attached();
        again.extend(client.attached());
        assert_eq!(again.len(), 1 - ends, "{again:?}");
    }
}

#[test]
fn a_late_answer_on_the_old_link_does_not_tell_that_a_lock_which_nobody_wants_was_refused() {
    let lock = LockRange { start: 0, end: 1, kind: LockKind::Write, owner: 5, pid: 1, flock: false };
    let mut client = Client::new(2, None);
    let (id, [first, second]) = asked_twice(&mut client, Op::SetLock { ino: Ino::ROOT, lock, wait: true });
    client.route.reachable(second.island, true, &mut client.out);
    client.out.send.clear();
    client.route.abandon(id, &mut client.out);
    let cancelled: Vec<ClientOp> = client.out.send.drain(..).map(|sent| sent.request.op).collect();
    assert_eq!(cancelled, [ClientOp::Cancel { request: second.id }], "the request that is there");
    client.route.tick(9_000, &mut client.out);
    client.route.abandon(id, &mut client.out);
    assert_eq!(client.out.finished.len(), 1, "the island does not answer");
    client.out.send.clear();
    client.reply(&first, Outcome::Failed { errno: Errno::EAGAIN });
    client.reply(&second, Outcome::Ok { answer: Answer::Done, keys: Vec::new() });
    let unlocks = |sent: &OutgoingRequest| matches!(&sent.request.op, ClientOp::Fs { op: Op::SetLock { lock, .. } } if lock.kind == LockKind::Unlock);
    assert_eq!(client.out.send.iter().filter(|sent| unlocks(sent)).count(), 1, "{:?}", client.out.send);
}
