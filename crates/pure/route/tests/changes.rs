//! What has changed although no client has done it: the answers that may be older.

mod common;

use atoll_core::{Ino, IslandId, Name};
use atoll_posix::{Answer, Attr, Caller, Kind, Op};
use atoll_proto::{EntryRef, Lease, MayKeep, Notice, Outcome};
use atoll_route::{OutgoingRequest, RouteOut};
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
