//! What a client does when a direct link takes the place of one that another node has passed on.

mod common;

use std::collections::BTreeSet;

use atoll_core::{Ino, IslandId, Key, Name, Table};
use atoll_posix::{Caller, Op};
use atoll_proto::Outcome;
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
    assert_eq!(numbers, first, "with the same numbers, so that nothing is done twice");
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
    let of_call = again.iter().filter(|asked| asked.id == sent.id).count();
    assert_eq!(of_call, 1, "{again:?}");
}
