//! What a client does when a direct link takes the place of one that another node has passed on.

mod common;

use std::collections::BTreeSet;

use atoll_core::{Ino, IslandId, Key, Name, Table};
use atoll_posix::{Caller, Op};
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
