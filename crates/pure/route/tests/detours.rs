//! What a client does that asks other islands for one that is away.

mod common;

use atoll_core::{Ino, IslandId, Key, Table};
use atoll_posix::{Caller, Errno, Op};
use atoll_proto::Outcome;
use bytes::Bytes;

use common::Client;

/// A node that keeps several islands takes all of them along. One of them is back before the one that was asked.
#[test]
fn a_call_that_nobody_could_answer_asks_an_island_that_is_back_before_its_own() {
    let islands: Vec<IslandId> = (0..3).map(IslandId).collect();
    let owner = Table::new(3).owner(Key(0));
    let mut client = Client::new(3, None);
    islands.iter().for_each(|island| client.route.reachable(*island, false, &mut client.out));
    if std::mem::take(&mut client.out.recall) {
        client.route.recalled(&mut client.out);
    }
    client.route.call(0, &Caller::ROOT, Op::GetAttr { ino: Ino::ROOT }, Bytes::new(), 1, &mut client.out);
    assert!(client.attached().is_empty(), "nobody is there");
    for back in islands.into_iter().filter(|island| *island != owner) {
        client.route.reachable(back, true, &mut client.out);
        assert!(client.attached().is_empty(), "its session is taken up first");
        let mut asked = Vec::new();
        while let Some(sent) = client.attached().first() {
            asked.push(sent.island);
            // It does not know.
            client.reply(sent, Outcome::Failed { errno: Errno::ENOENT });
        }
        assert!(asked.contains(&back) && !asked.contains(&owner), "{asked:?}");
        assert!(client.out.finished.is_empty(), "that proves nothing");
    }
    // Its own island answers it once, although it has waited there again and again.
    client.route.reachable(owner, true, &mut client.out);
    client.attached();
    let sent = client.attached();
    assert_eq!(sent.iter().map(|sent| sent.island).collect::<Vec<_>>(), [owner]);
}
