//! What has changed although no client has done it: the answers that may be older.

mod common;

use atoll_core::{Ino, IslandId, Name};
use atoll_posix::{Answer, Attr, Caller, Kind, Op};
use atoll_proto::{EntryRef, Notice, Outcome};
use atoll_route::OutgoingRequest;
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
    let ended: Vec<(u32, bool)> = client.out.finished.iter().map(|f| (f.token, f.is_recent)).collect();
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
    assert!(!client.out.finished[0].is_recent, "nobody knows which of the two was answered");
    let next = ask(&mut client, 2);
    answer(&mut client, &next);
    assert!(client.out.finished[1].is_recent);
}

/// Sequence b of `docs/design/024-leases.md`: something may have changed between the two.
pub(crate) fn an_answer_that_was_asked_for_before_answers_may_be_kept_is_not_recent() {
    let mut client = Client::new(1, None);
    let early = ask(&mut client, 1);
    client.route.tick(1_000, &mut client.out);
    let lease = client.out.send.pop().expect("it asks whether it may keep answers");
    client.reply(&lease, Outcome::Attached { may_keep: true, power: 1 });
    let later = ask(&mut client, 2);
    answer(&mut client, &early);
    answer(&mut client, &later);
    let ended: Vec<(u32, bool)> = client.out.finished.iter().map(|f| (f.token, f.is_recent)).collect();
    assert_eq!(ended, [(1, false), (2, true)]);
}

#[test]
fn the_sequence_holds() {
    an_answer_that_was_asked_for_before_answers_may_be_kept_is_not_recent();
}
