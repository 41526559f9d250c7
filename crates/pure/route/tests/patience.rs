//! How long calls wait and for whom, with islands played by the test: what is told when nothing is
//! answered, whatever links say.

use atoll_core::{Ino, IslandId, Name, SessionId, Table};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, LockKind, LockRange, Op};
use atoll_proto::{ClientOp, Lease, MayKeep, Notice, Outcome, Reply};
use atoll_route::{Config, OutgoingRequest, Route, RouteOut};
use bytes::Bytes;

const ISLAND: IslandId = IslandId(0);
const SOFT_MS: u64 = 10_000;

struct Client {
    route: Route<u32>,
    out: RouteOut<u32>,
    now_ms: u64,
}

impl Client {
    /// Attached to the one island that there is.
    fn new(patience_ms: Option<u64>) -> Self {
        let config = Config {
            seed: 1,
            table: Table::new(1),
            islands: vec![ISLAND],
            session: SessionId(7),
            mount: true,
            keeps: true,
            patience_ms,
            scope: None,
        };
        let mut client = Self { route: Route::new(config), out: RouteOut::default(), now_ms: 0 };
        client.up(true);
        client.attached(false);
        client
    }

    fn up(&mut self, up: bool) {
        self.route.reachable(ISLAND, up, &mut self.out);
    }

    fn sent(&mut self) -> Vec<OutgoingRequest> {
        std::mem::take(&mut self.out.send)
    }

    fn ended(&mut self) -> Vec<(u32, Option<Errno>)> {
        self.out.finished.drain(..).map(|f| (f.token, f.result.err())).collect()
    }

    fn reply(&mut self, id: u64, outcome: Outcome) {
        let reply = Reply { vector: Vec::new(), may_keep: MayKeep::Yes, outcome };
        self.route.on_reply(self.now_ms, ISLAND, id, reply, &mut self.out);
    }

    /// The island knows the session.
    fn attached(&mut self, sole: bool) {
        for sent in self.sent() {
            if matches!(sent.request.op, ClientOp::Attach { .. } | ClientOp::Dropped) {
                self.reply(
                    sent.id,
                    Outcome::Attached { lease: if sole { Lease::Whole } else { Lease::No }, power: 1 },
                );
            }
        }
    }

    fn call(&mut self, token: u32, op: Op) -> u64 {
        self.route.call(self.now_ms, &Caller::ROOT, op, Bytes::new(), token, &mut self.out)
    }

    /// Time passes; signs of life are answered if the island lives.
    fn pass(&mut self, ms: u64, lives: bool) {
        for _ in 0..ms / 20 {
            self.now_ms += 20;
            self.route.tick(self.now_ms, &mut self.out);
            if lives {
                let renewed: Vec<u64> =
                    self.out.send.iter().filter(|s| s.request.op == ClientOp::Lease).map(|s| s.id).collect();
                self.out.send.retain(|s| s.request.op != ClientOp::Lease);
                for id in renewed {
                    self.reply(id, Outcome::Attached { lease: Lease::No, power: 1 });
                }
            }
        }
    }
}

fn unlink() -> Op {
    Op::Unlink { dir: Ino::ROOT, name: Name::new(b"x").unwrap() }
}

fn done() -> Outcome {
    Outcome::Ok { answer: Answer::Done, keys: Vec::new() }
}

fn lock(kind: LockKind) -> Op {
    let lock = LockRange { start: 0, end: u64::MAX, kind, owner: 5, pid: 1, flock: false };
    Op::SetLock { ino: Ino::ROOT, lock, wait: true }
}

#[test]
fn an_operation_fails_when_patience_ends_although_the_link_says_nothing() {
    let mut client = Client::new(Some(SOFT_MS));
    client.call(1, unlink());
    client.call(2, Op::Fsync { ino: Ino::ROOT });
    client.pass(SOFT_MS - 20, false);
    assert_eq!(client.ended(), []);
    client.pass(40, false);
    assert_eq!(client.ended(), [(1, Some(Errno::EIO)), (2, Some(Errno::EIO))]);
    // It was waited for: from when its link is known to be down until it is back nobody waits again.
    client.up(false);
    client.call(3, unlink());
    assert_eq!(client.ended(), [(3, Some(Errno::EIO))]);
    client.up(true);
    client.call(4, unlink());
    assert_eq!(client.ended(), []);
}

#[test]
fn a_sync_goes_on_as_long_as_its_island_lives_and_a_change_until_other_mounts_have_lost_their_leases() {
    let mut client = Client::new(Some(SOFT_MS));
    let sync = client.call(1, Op::Fsync { ino: Ino::ROOT });
    client.call(2, unlink());
    client.call(3, Op::GetAttr { ino: Ino(77) });
    client.pass(SOFT_MS + 15_000, true);
    assert_eq!(client.ended(), [(3, Some(Errno::EIO))]);
    client.pass(2_000, true);
    assert_eq!(client.ended(), [(2, Some(Errno::EIO))]);
    client.reply(sync, done());
    assert_eq!(client.ended(), [(1, None)]);
}

#[test]
fn what_is_not_possible_now_is_asked_again_until_patience_ends() {
    let mut client = Client::new(Some(SOFT_MS));
    let id = client.call(1, unlink());
    let mut asked = 0;
    for _ in 0..SOFT_MS / 20 + 1 {
        for sent in client.sent().iter().filter(|s| s.id == id) {
            assert_eq!(sent.request.seq, 1, "it keeps its number");
            asked += 1;
            client.reply(id, Outcome::NotNow);
        }
        client.pass(20, true);
    }
    assert_eq!(client.ended(), [(1, Some(Errno::EIO))]);
    assert!((20..60).contains(&asked), "asked {asked} times");
    let mut hard = Client::new(None);
    let id = hard.call(1, unlink());
    hard.reply(id, Outcome::NotNow);
    hard.pass(100 * SOFT_MS, true);
    assert_eq!(hard.ended(), []);
}

#[test]
fn a_change_of_names_that_is_refused_is_not_waited_for_although_it_was_sent_before() {
    let mut hard = Client::new(None);
    let id = hard.call(1, unlink());
    hard.sent();
    hard.up(false);
    hard.up(true);
    hard.attached(false);
    for _ in 0..SOFT_MS / 20 {
        for _ in hard.sent().iter().filter(|s| s.id == again(id, 1)) {
            hard.reply(again(id, 1), Outcome::NotNow);
        }
        hard.pass(20, true);
    }
    // Kernels hold locks for it, and the island says that it is not done.
    assert_eq!(hard.ended(), [(1, Some(Errno::EIO))]);
}

#[test]
fn a_stat_of_the_root_tells_what_was_known_when_nobody_is_there_although_the_mount_waits_for_ever() {
    let root = Op::GetAttr { ino: Ino::ROOT };
    for is_known in [false, true] {
        let told = if is_known { None } else { Some(Errno::EIO) };
        let mut hard = Client::new(None);
        let id = hard.call(1, root.clone());
        if is_known {
            let attr = Attr::blank(Ino::ROOT, Kind::Directory);
            hard.reply(id, Outcome::Ok { answer: Answer::Attr { attr }, keys: Vec::new() });
            assert_eq!(hard.ended(), [(1, None)]);
            hard.call(1, root.clone());
        }
        hard.pass(100_000, false);
        assert_eq!(hard.ended(), [], "its island lives, and may be slow");
        hard.up(false);
        hard.call(2, Op::GetAttr { ino: Ino(77) });
        hard.pass(20, false);
        assert_eq!(hard.ended(), [(1, told)], "it has waited long enough");
        // Another one waits as long as nobody knows whether the island comes back; then nobody waits any more.
        hard.call(3, root.clone());
        hard.pass(7_000, false);
        assert_eq!(hard.ended(), []);
        hard.pass(2_000, false);
        assert_eq!(hard.ended(), [(3, told)]);
        hard.call(4, root.clone());
        hard.pass(20, false);
        assert_eq!(hard.ended(), [(4, told)]);
        // Only of the root, and only as long as nobody is there.
        hard.sent();
        hard.up(true);
        hard.attached(false);
        assert_eq!(hard.ended(), []);
        assert_eq!(hard.sent().len(), 1, "the other one is asked now");
    }
}

/// Whom a stat of the root was told what is known, when nobody had been there for long.
fn nobody_there_for_long() -> Client {
    let root = Op::GetAttr { ino: Ino::ROOT };
    let mut client = Client::new(Some(10_000));
    let id = client.call(1, root.clone());
    let attr = Attr::blank(Ino::ROOT, Kind::Directory);
    client.reply(id, Outcome::Ok { answer: Answer::Attr { attr }, keys: Vec::new() });
    client.up(false);
    client.pass(20_000, false);
    client.call(2, root);
    client.pass(20, false);
    assert_eq!(client.ended(), [(1, None), (2, None)]);
    client
}

#[test]
fn what_a_stat_of_the_root_is_told_without_an_answer_ends_nobody_elses_patience() {
    let mut client = nobody_there_for_long();
    client.call(3, unlink());
    client.pass(9_900, false);
    assert_eq!(client.ended(), []);
    client.up(true);
    client.attached(false);
    assert_eq!(client.sent().len(), 1);
}

#[test]
fn a_stat_of_a_root_that_is_not_known_fails_no_sooner_than_the_mount_says() {
    let mut client = Client::new(Some(10_000));
    client.up(false);
    client.pass(20_000, false);
    client.call(1, Op::GetAttr { ino: Ino::ROOT });
    client.pass(9_900, false);
    assert_eq!(client.ended(), []);
    client.pass(200, false);
    assert_eq!(client.ended(), [(1, Some(Errno::EIO))]);
}

#[test]
fn a_call_waits_for_an_island_that_was_waited_for_in_vain_when_a_node_is_back_that_may_lead_it() {
    let mut client = nobody_there_for_long();
    client.call(3, unlink());
    client.pass(9_500, false);
    // When this one ends, the node is back.
    client.call(4, unlink());
    client.pass(600, false);
    client.call(5, unlink());
    assert_eq!(client.ended(), [(3, Some(Errno::EIO)), (5, Some(Errno::EIO))]);
    client.route.may_return(ISLAND);
    client.call(6, unlink());
    assert_eq!(client.ended(), []);
    client.pass(9_500, false);
    assert_eq!(client.ended(), [(4, Some(Errno::EIO))]);
    client.call(7, unlink());
    // So do questions about the whole volume.
    client.call(8, Op::GetAttr { ino: Ino::ROOT });
    client.call(9, Op::Statfs);
    client.pass(400, false);
    assert_eq!(client.ended(), []);
    client.pass(200, false);
    assert_eq!(client.ended(), [(6, Some(Errno::EIO))], "it has waited since the node is back");
    client.up(true);
    client.attached(false);
    let asked = client.sent().into_iter().filter(|sent| matches!(sent.request.op, ClientOp::Fs { .. }));
    assert_eq!(asked.count(), 3);
}

#[test]
fn the_free_space_is_waited_for_as_long_as_nobody_has_told_it() {
    let statfs = |n| Answer::Statfs {
        bytes: n,
        bytes_free: n,
        bytes_available: n,
        inodes: n,
        inodes_free: n,
        fs_id: 1,
    };
    for patience_ms in [None, Some(20_000)] {
        let mut client = Client::new(patience_ms);
        client.up(false);
        client.call(1, Op::Statfs);
        client.pass(7_000, false);
        assert_eq!(client.ended(), []);
        client.up(true);
        client.attached(false);
        let asked = client.sent();
        client.reply(asked[0].id, Outcome::Ok { answer: statfs(1 << 40), keys: Vec::new() });
        assert_eq!(client.ended(), [(1, None)]);
        // Without any island it ends, as df(1) has to.
        client.up(false);
        client.pass(4_000, false);
        client.call(2, Op::Statfs);
        client.pass(3_900, false);
        assert_eq!(client.ended(), []);
        client.pass(200, false);
        assert_eq!(client.ended(), [(2, Some(Errno::EIO))]);
        client.call(3, unlink());
        client.pass(1_000, false);
        assert_eq!(client.ended(), [], "that was no patience");
    }
}

#[test]
fn a_change_in_doubt_stays_so_when_only_the_table_has_changed() {
    let mut client = Client::new(None);
    let id = client.call(1, unlink());
    client.sent();
    client.up(false);
    client.up(true);
    client.attached(false);
    client.reply(id, Outcome::StaleTable { table: Table::new(1) });
    client.sent();
    let asks = client.call(2, Op::GetAttr { ino: Ino::ROOT });
    client.reply(asks, Outcome::NoSession);
    assert_eq!(client.ended(), [(1, Some(Errno::EIO))]);
}

#[test]
fn a_change_in_doubt_is_not_repeated_where_the_session_was_forgotten() {
    let mut client = Client::new(None);
    client.call(1, unlink());
    client.sent();
    client.up(false);
    client.up(true);
    let asks = client.sent();
    assert_eq!(asks.iter().map(|s| s.request.op.clone()).collect::<Vec<_>>(), [ClientOp::Dropped]);
    client.reply(asks[0].id, Outcome::NoSession);
    assert_eq!(client.ended(), [(1, Some(Errno::EIO))]);
    client.attached(false);
    // And what was never sent is sent now.
    client.up(false);
    client.call(2, unlink());
    client.up(true);
    let asks = client.sent();
    client.reply(asks[0].id, Outcome::NoSession);
    client.attached(false);
    assert!(matches!(client.sent()[..], [OutgoingRequest { ref request, .. }] if request.seq > 0));
    assert_eq!(client.ended(), []);
}

#[test]
fn a_session_is_taken_up_again_only_when_nothing_is_kept_any_more() {
    let mut client = Client::new(None);
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    client.route.recalled(&mut client.out);
    client.attached(true);
    assert!(client.route.may_keep(client.now_ms));
    client.out.recall = false;
    client.up(false);
    assert!(client.out.recall, "its lease runs out unseen");
    client.up(true);
    assert!(client.sent().is_empty());
    client.route.recalled(&mut client.out);
    assert!(
        matches!(client.sent()[..], [OutgoingRequest { ref request, .. }] if request.op == ClientOp::Dropped)
    );
}

/// The numbers of requests of this kind.
fn asked(sent: &[OutgoingRequest], op: &ClientOp) -> Vec<u64> {
    sent.iter().filter(|s| s.request.op == *op).map(|s| s.id).collect()
}

#[test]
fn a_recall_is_answered_when_all_of_several_are_over_and_never_by_a_sign_of_life() {
    let mut client = Client::new(None);
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    client.out.recall = false;
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    client.pass(10_000, false);
    client.route.recalled(&mut client.out);
    client.pass(10_000, false);
    let sent = client.sent();
    assert_eq!(asked(&sent, &ClientOp::Dropped), []);
    assert!(asked(&sent, &ClientOp::Lease).len() > 2, "the lease of its locks goes on");
    client.route.recalled(&mut client.out);
    assert_eq!(asked(&client.sent(), &ClientOp::Dropped).len(), 1);
}

#[test]
fn what_an_island_said_before_a_recall_allows_nothing_after_it() {
    let mut client = Client::new(None);
    client.pass(4_000, false);
    let renewed = asked(&client.sent(), &ClientOp::Lease);
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    let alone = || Outcome::Attached { lease: Lease::Whole, power: 1 };
    client.reply(renewed[0], alone());
    assert!(!client.route.may_keep(client.now_ms));
    client.route.recalled(&mut client.out);
    let dropped = asked(&client.sent(), &ClientOp::Dropped);
    client.reply(dropped[0], alone());
    assert!(client.route.may_keep(client.now_ms));
}

#[test]
fn a_lease_counts_from_when_the_sign_of_life_was_given() {
    let mut client = Client::new(None);
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    client.route.recalled(&mut client.out);
    client.attached(true);
    client.sent();
    client.pass(3_500, false);
    let asked_ms = client.now_ms;
    client.pass(3_000, false);
    let renewed = asked(&client.sent(), &ClientOp::Lease);
    // The answer has waited to be read for almost as long as there are signs of life.
    client.pass(400, false);
    client.reply(renewed[0], Outcome::Attached { lease: Lease::Whole, power: 1 });
    assert!(client.route.keep_until_ms() <= asked_ms + 5_000, "the island counts from then at the latest");
}

#[test]
fn a_lease_that_has_run_out_unseen_is_told_of_before_anything_is_believed() {
    let mut client = Client::new(None);
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    client.route.recalled(&mut client.out);
    client.attached(true);
    client.pass(3_500, false);
    let renewed = asked(&client.sent(), &ClientOp::Lease);
    (client.out.recall, client.now_ms) = (false, client.now_ms + 60_000);
    // The machine was suspended: the answer was given before, and says nothing of the time since.
    client.reply(renewed[0], Outcome::Attached { lease: Lease::Whole, power: 1 });
    assert!(client.out.recall && !client.route.may_keep(client.now_ms));
    client.reply(renewed[0], Outcome::Attached { lease: Lease::Whole, power: 1 });
    assert!(!client.route.may_keep(client.now_ms));
    client.sent();
    client.route.recalled(&mut client.out);
    let dropped = asked(&client.sent(), &ClientOp::Dropped);
    client.reply(dropped[0], Outcome::Attached { lease: Lease::Whole, power: 1 });
    assert!(client.route.may_keep(client.now_ms), "it says that it keeps nothing, and begins anew");
}

#[test]
fn a_recall_that_overtakes_the_answer_to_attach_is_answered_after_it() {
    let mut client = Client::new(None);
    client.up(false);
    client.up(true);
    let taken_up = asked(&client.sent(), &ClientOp::Dropped);
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    client.route.recalled(&mut client.out);
    client.reply(taken_up[0], Outcome::Attached { lease: Lease::Whole, power: 1 });
    assert!(!client.route.may_keep(client.now_ms));
    assert_eq!(asked(&client.sent(), &ClientOp::Dropped).len(), 1);
}

#[test]
fn a_session_that_was_forgotten_is_begun_when_nothing_is_kept_any_more() {
    let mut client = Client::new(None);
    let id = client.call(1, unlink());
    client.sent();
    client.route.on_notice(ISLAND, Notice::Recall, &mut client.out);
    client.reply(id, Outcome::NoSession);
    assert!(client.sent().is_empty());
    client.route.recalled(&mut client.out);
    client.attached(false);
    assert!(
        matches!(client.sent()[..], [OutgoingRequest { ref request, .. }] if request.seq > 0),
        "it is asked again"
    );
}

#[test]
fn who_dies_waits_only_for_an_island_that_lives() {
    let mut client = Client::new(None);
    let id = client.call(1, unlink());
    client.route.abandon(id, &mut client.out);
    assert_eq!(client.ended(), [], "it is answered soon");
    client.up(false);
    client.route.abandon(id, &mut client.out);
    assert_eq!(client.ended(), [(1, Some(Errno::EINTR))]);
    client.up(true);
    client.attached(false);
    assert!(client.sent().iter().all(|s| s.request.seq == 0), "it is never sent again");
}

#[test]
fn a_lock_that_nobody_waits_for_any_more_is_given_back() {
    let mut client = Client::new(None);
    let id = client.call(1, lock(LockKind::Write));
    client.up(false);
    client.route.cancel(id, &mut client.out);
    assert_eq!(client.ended(), [(1, Some(Errno::EINTR))]);
    // An unlock outlives whoever asked for it.
    let id = client.call(2, lock(LockKind::Unlock));
    client.route.abandon(id, &mut client.out);
    assert_eq!(client.ended(), [(2, Some(Errno::EINTR))]);
    client.sent();
    client.up(true);
    client.attached(false);
    let unlocks = |s: &OutgoingRequest| matches!(&s.request.op, ClientOp::Fs { op: Op::SetLock { lock, .. } } if lock.kind == LockKind::Unlock);
    assert_eq!(client.sent().iter().filter(|s| unlocks(s)).count(), 2);
}

/// The requests of callers, and which of them are to be interrupted, in their order.
fn asked_and_cancelled(client: &mut Client) -> Vec<(bool, u64)> {
    let what = |sent: &OutgoingRequest| match &sent.request.op {
        ClientOp::Fs { .. } => Some((false, sent.id)),
        ClientOp::Cancel { request } => Some((true, *request)),
        _ => None,
    };
    client.sent().iter().filter_map(what).collect()
}

/// The number of the request for a call when so many links were lost on which it had been asked: an answer that is late there has
/// another one.
const fn again(call: u64, links: u64) -> u64 {
    call | links << 48
}

#[test]
fn an_interrupted_lock_stays_interrupted() {
    let mut client = Client::new(None);
    let id = client.call(1, lock(LockKind::Write));
    client.route.cancel(id, &mut client.out);
    assert_eq!(asked_and_cancelled(&mut client), [(false, id), (true, id)]);
    // Whoever answers on the next link may know nothing of what was said on this one.
    for links in 1..=2 {
        client.route.replaced(ISLAND, &mut client.out);
        client.attached(false);
        let id = again(id, links);
        assert_eq!(asked_and_cancelled(&mut client), [(false, id), (true, id)]);
    }
    assert_eq!(client.ended(), []);
    client.reply(again(id, 2), Outcome::Failed { errno: Errno::EINTR });
    assert_eq!(client.ended(), [(1, Some(Errno::EINTR))]);
}

#[test]
fn a_call_that_is_interrupted_in_a_pause_is_so_when_it_is_asked_again() {
    let mut client = Client::new(None);
    let (paused, other) = (client.call(1, lock(LockKind::Write)), client.call(2, unlink()));
    client.sent();
    client.reply(paused, Outcome::NotNow);
    client.route.cancel(paused, &mut client.out);
    assert_eq!(asked_and_cancelled(&mut client), [], "there is nothing to interrupt");
    client.pass(40, true);
    assert_eq!(asked_and_cancelled(&mut client), [(false, paused), (true, paused)]);
    client.route.replaced(ISLAND, &mut client.out);
    client.attached(false);
    let asked = asked_and_cancelled(&mut client);
    assert_eq!(
        asked,
        [(false, again(paused, 1)), (true, again(paused, 1)), (false, again(other, 1))],
        "nobody has interrupted the other one"
    );
}

#[test]
fn a_lock_of_a_dying_caller_is_not_waited_for_on_a_new_link() {
    let mut client = Client::new(None);
    let id = client.call(1, lock(LockKind::Write));
    client.route.abandon(id, &mut client.out);
    client.sent();
    client.route.replaced(ISLAND, &mut client.out);
    client.attached(false);
    assert_eq!(asked_and_cancelled(&mut client), [(false, again(id, 1)), (true, again(id, 1))]);
}
