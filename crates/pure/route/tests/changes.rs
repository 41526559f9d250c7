//! What has changed although no client has done it: the answers that may be older.

mod common;

use atoll_core::{Ino, IslandId, Name};
use atoll_posix::{Answer, Attr, Caller, Kind, Op};
use atoll_proto::{ClientOp, EntryRef, Lease, MayKeep, Notice, Outcome};
use atoll_route::{OutgoingRequest, RecallOf, RouteOut};
use bytes::Bytes;
use common::Client;

const ISLAND: IslandId = IslandId(0);
const FILE: Ino = Ino(77);

fn ask(client: &mut Client, token: u32) -> OutgoingRequest {
    client.route.call(0, &Caller::ROOT, Op::GetAttr { ino: FILE }, Bytes::new(), token, &mut client.out);
    client.out.send.pop().expect("it is asked")
}

fn answer(client: &mut Client, sent: &OutgoingRequest) {
    let attr = Attr::blank(FILE, Kind::Regular);
    client.reply(sent, Outcome::Ok { answer: Answer::Attr { attr }, keys: Vec::new() });
}

fn changed(client: &mut Client) {
    let names = vec![EntryRef { dir: Ino::ROOT, name: Name::new(b"n").unwrap() }];
    client.route.on_notice(ISLAND, Notice::Changed { inos: vec![FILE], names }, &mut client.out);
}

#[test]
fn an_answer_that_news_have_overtaken_is_not_recent_and_what_is_asked_behind_them_is() {
    let mut client = Client::new(1, None);
    let early = ask(&mut client, 1);
    answer(&mut client, &early);
    let overtaken = ask(&mut client, 2);
    changed(&mut client);
    let later = ask(&mut client, 3);
    // In whichever order they come.
    answer(&mut client, &later);
    answer(&mut client, &overtaken);
    let ended: Vec<(u32, bool)> = client.out.finished.iter().map(|f| (f.token, f.may_keep)).collect();
    assert_eq!(ended, [(1, true), (3, true), (2, false)]);
    let names = vec![EntryRef { dir: Ino::ROOT, name: Name::new(b"n").unwrap() }];
    assert_eq!(client.out.changed, (vec![FILE], names));
    assert!(!client.out.recall);
}

#[test]
fn what_is_asked_once_more_behind_news_counts_as_older() {
    let mut client = Client::new(1, None);
    let sent = ask(&mut client, 1);
    changed(&mut client);
    client.reply(&sent, Outcome::NotNow);
    client.route.tick(500, &mut client.out);
    let again = client.out.send.pop().expect("it is asked again");
    answer(&mut client, &again);
    assert!(!client.out.finished[0].may_keep, "nobody knows which of the two was answered");
    let next = ask(&mut client, 2);
    answer(&mut client, &next);
    assert!(client.out.finished[1].may_keep);
}

/// Sequence b of `docs/design/024-leases.md`: something may have changed between the two.
pub(crate) fn an_answer_that_was_asked_for_before_answers_may_be_kept_is_not_recent() {
    let mut client = Client::new(1, None);
    let early = ask(&mut client, 1);
    client.route.tick(1_000, &mut client.out);
    let lease = client.out.send.pop().expect("it asks whether it may keep answers");
    client.reply(&lease, Outcome::Attached { lease: Lease::Whole, power: 1 });
    let later = ask(&mut client, 2);
    answer(&mut client, &early);
    answer(&mut client, &later);
    let ended: Vec<(u32, bool)> = client.out.finished.iter().map(|f| (f.token, f.may_keep)).collect();
    assert_eq!(ended, [(1, false), (2, true)]);
}

/// The requests that answer recalls.
fn answers(client: &mut Client) -> Vec<(IslandId, ClientOp)> {
    std::mem::take(&mut client.out.send).into_iter().map(|sent| (sent.island, sent.request.op)).collect()
}

/// Sequence s: what is asked behind the recall is decided behind it.
#[test]
fn while_something_is_recalled_nothing_is_kept_and_an_answer_that_was_asked_for_before_never_is() {
    let mut client = Client::new(1, None);
    client.route.tick(1_000, &mut client.out);
    let lease = client.out.send.pop().expect("it asks whether it may keep answers");
    client.reply(&lease, Outcome::Attached { lease: Lease::Noted, power: 1 });
    assert!(client.route.may_keep(1_000));
    let early = ask(&mut client, 1);
    let recall = Notice::RecallOf { recall: 7, inos: vec![Ino(78)] };
    client.route.on_notice(ISLAND, recall, &mut client.out);
    let recall = client.out.recall_of.take().expect("the frontend is told");
    assert_eq!((recall.inos.as_slice(), client.out.recall), (&[Ino(78)][..], false));
    assert!(!client.route.may_keep(1_000));
    let later = ask(&mut client, 2);
    client.route.dropped_of(recall.number, &mut client.out);
    assert!(client.route.may_keep(1_000), "the lease goes on");
    assert_eq!(answers(&mut client), [(ISLAND, ClientOp::DroppedOf { recall: 7 })]);
    answer(&mut client, &early);
    answer(&mut client, &later);
    let ended: Vec<(u32, bool)> = client.out.finished.iter().map(|f| (f.token, f.may_keep)).collect();
    assert_eq!(ended, [(1, false), (2, true)]);
}

#[test]
fn each_island_is_told_of_the_last_of_its_recalls_that_is_done_and_none_over_a_later_link() {
    let mut client = Client::new(2, None);
    let recalls = |client: &mut Client, island, recall| {
        let notice = Notice::RecallOf { recall, inos: vec![FILE] };
        client.route.on_notice(IslandId(island), notice, &mut client.out);
        client.out.recall_of.take().map(|RecallOf { number, .. }| number).expect("the frontend is told")
    };
    recalls(&mut client, 0, 4);
    recalls(&mut client, 0, 5);
    let number = recalls(&mut client, 1, 1);
    recalls(&mut client, 0, 6);
    client.route.dropped_of(number, &mut client.out);
    let of = |island, recall| (IslandId(island), ClientOp::DroppedOf { recall });
    assert_eq!(answers(&mut client), [of(0, 5), of(1, 1)]);
    assert!(!client.route.may_keep(0));
    // The island begins a new life, and counts its recalls anew.
    let before = recalls(&mut client, 0, 7);
    client.route.reachable(IslandId(0), false, &mut client.out);
    client.route.reachable(IslandId(0), true, &mut client.out);
    client.attached();
    recalls(&mut client, 0, 1);
    client.route.dropped_of(before, &mut client.out);
    assert_eq!(answers(&mut client), []);
}

#[test]
fn behind_a_recall_of_everything_a_mount_asks_soon_whether_it_may_keep_something_again() {
    let mut client = Client::new(1, None);
    client.route.tick(1_000, &mut client.out);
    let lease = client.out.send.pop().expect("it asks whether it may keep answers");
    client.reply(&lease, Outcome::Attached { lease: Lease::Whole, power: 1 });
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    client.route.recalled(&mut client.out);
    client.attached();
    let mut asks = |now_ms| {
        client.route.tick(now_ms, &mut client.out);
        std::mem::take(&mut client.out.send).iter().any(|sent| sent.request.op == ClientOp::Lease)
    };
    assert!(!asks(1_050) && asks(1_200));
    assert!(!asks(1_300) && asks(2_300));
}

/// Another island may be changing what it tells, unless its lease is whole.
#[test]
fn an_answer_is_kept_as_its_island_says_and_if_need_be_all_islands() {
    let mut client = Client::new(2, None);
    let (mut token, mut now_ms) = (0, 0);
    let mut kept = |client: &mut Client, may_keep| {
        token += 1;
        let sent = ask(client, token);
        let answer = Answer::Attr { attr: Attr::blank(FILE, Kind::Regular) };
        client.reply_to_keep(&sent, may_keep, Outcome::Ok { answer, keys: Vec::new() });
        client.out.finished.pop().expect("it is answered").may_keep
    };
    for (leases, if_whole) in [
        ([Lease::Whole, Lease::Noted], false),
        ([Lease::Whole, Lease::Whole], true),
        ([Lease::Noted, Lease::Whole], false),
    ] {
        client.out = RouteOut::default();
        now_ms += 4_000;
        client.route.tick(now_ms, &mut client.out);
        let asked = std::mem::take(&mut client.out.send);
        assert_eq!(asked.len(), 2, "each island is asked for its lease");
        for sent in asked {
            client.reply(&sent, Outcome::Attached { lease: leases[usize::from(sent.island.0)], power: 1 });
        }
        assert!(!kept(&mut client, MayKeep::No) && kept(&mut client, MayKeep::Yes));
        assert_eq!(kept(&mut client, MayKeep::IfWhole), if_whole, "{leases:?}");
    }
}

#[test]
fn the_sequence_holds() {
    an_answer_that_was_asked_for_before_answers_may_be_kept_is_not_recent();
}
