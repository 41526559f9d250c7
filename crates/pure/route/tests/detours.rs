//! What a client does that asks other islands for one that is away.

mod common;

use atoll_core::{Ino, IslandId, Key, Name, Table};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, NamedObject, Op};
use atoll_proto::{ClientOp, Outcome};
use atoll_route::FinishedCall;
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

/// Found as `groups_fill --seed 31246`: the name was looked up again and again, until the last answer was taken for a lie.
#[test]
fn a_directory_whose_name_is_a_link_by_now_is_asked_for_by_that_name_once() {
    let table = Table::new(4);
    let of = |island| (0..4096).map(|n| Key(n << 20)).find(|key| table.owner(*key) == island).unwrap();
    // Island 0 is asked before the one that owns the directory above.
    let [home, owner, above] = [1, 2, 3].map(IslandId);
    let (upper, dir, link) = (Ino::mint(above, 76), Ino::mint(owner, 77), Ino::mint(home, 78));
    let name = |name: &[u8]| Name::new(name).unwrap();
    let lookup = Op::Lookup { dir: upper, name: name(b"b") };
    let mut client = Client::new(4, None);
    for (op, ino, key) in [
        (Op::Lookup { dir: Ino::ROOT, name: name(b"a") }, upper, of(above)),
        (lookup.clone(), dir, of(owner)),
    ] {
        client.route.call(0, &Caller::ROOT, op, Bytes::new(), 1, &mut client.out);
        let found = NamedObject { attr: Attr::blank(ino, Kind::Directory), attr_current: true };
        let sent = client.attached();
        client.reply(&sent[0], Outcome::Ok { answer: Answer::Found { found }, keys: vec![key] });
    }
    for away in [owner, home] {
        client.route.reachable(away, false, &mut client.out);
        if std::mem::take(&mut client.out.recall) {
            client.route.recalled(&mut client.out);
        }
    }
    client.out.finished.clear();
    client.route.call(0, &Caller::ROOT, Op::GetAttr { ino: dir }, Bytes::new(), 2, &mut client.out);
    let mut lookups = 0;
    while let Some(sent) = client.attached().pop() {
        let outcome = match &sent.request.op {
            ClientOp::Fs { op } if *op == lookup => {
                lookups += 1;
                assert_eq!((sent.island, lookups), (above, 1), "once");
                Outcome::Elsewhere { ino: link, kind: Kind::Symlink, home }
            }
            ClientOp::SkeletonAttr { ino } if *ino == link => {
                let attr = Attr::blank(link, Kind::Symlink);
                Outcome::Ok { answer: Answer::Attr { attr }, keys: Vec::new() }
            }
            _ => Outcome::Failed { errno: Errno::ESTALE },
        };
        client.reply(&sent, outcome);
    }
    assert!(lookups == 1 && client.out.finished.is_empty(), "nobody else can say what it is");
    // Its own island answers.
    client.route.reachable(owner, true, &mut client.out);
    assert!(client.attached().is_empty(), "its session is taken up first");
    let sent = client.attached();
    assert_eq!((sent.len(), sent[0].island), (1, owner));
    let attr = Attr::blank(dir, Kind::Directory);
    client.reply(&sent[0], Outcome::Ok { answer: Answer::Attr { attr }, keys: Vec::new() });
    assert!(matches!(client.out.finished[..], [FinishedCall { token: 2, result: Ok(_), .. }]));
}
