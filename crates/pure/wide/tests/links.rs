//! What sites say to each other, message by message: the sequences of `docs/design/023-wide.md`, "Between sites", and what is refused.

mod drive;
mod receiver;
mod replica;
mod site;
mod world;

use std::collections::{BTreeSet, VecDeque};

use atoll_causal::{Context, Dot, DotSet, FileId, HybridStamp, NoValue, Writer};
use atoll_core::{Decode, Encode, Ino, SessionId};
use atoll_island::{BesideEvent, BesideSays};
use atoll_model::Rng;
use atoll_posix::{Answer, Caller, Kind, Op, RenameMode, SetAttr, XattrMode};
use atoll_wide::author::{Bundle, BundleChange, Made};
use atoll_wide::peers::message::{Hello, KnownObject, Most, STATE_BYTES_MAX, WANT_BYTES_MAX, WideMessage};
use atoll_wide::peers::{Refused, Window};
use atoll_wide::rows::{FeedRow, SiteId, root_head};
use atoll_wide::site::Site as Machine;
use bytes::Bytes;
use site::{Memory, Site, greeting, named, opened};
use world::{Node, VOLUME, World, bundles};

const ROOT: Ino = Ino::ROOT;
/// A site that no test runs.
const STRANGER: SiteId = SiteId(9);

/// What users of a site do that knows of nobody.
fn users(writer: u64, does: impl FnOnce(&mut Site)) -> Vec<Bundle> {
    let author = opened(Writer(writer), []).unwrap();
    let mut site = Site::new(Memory::Whole, &[SessionId(1)], false, Some(Box::new(author)));
    does(&mut site);
    bundles(&site, 0)
}

/// The root has another mode.
fn chmod(site: &mut Site, mode: u32) {
    site.does(Op::SetAttr { ino: ROOT, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }, b"");
}

/// So many directories.
fn dirs(writer: u64, count: u64) -> Vec<Bundle> {
    users(writer, |site| {
        for at in 0..count {
            site.mkdir(ROOT, &format!("{writer}-{at}"));
        }
    })
}

fn taker(id: u64, bundles: Vec<Bundle>) -> Node {
    Node::taker(id, false, bundles, Made::COUNT_MAX, Window::MOST)
}

/// Its users do all.
fn work(node: &mut Node) {
    while node.work() {}
    node.sync();
}

fn hello(writers: Vec<(Writer, u64)>, has: u64, synced: u64) -> WideMessage {
    WideMessage::Hello { hello: Hello { writers: Most::new(writers), ..greeting(VOLUME, has, synced) } }
}

/// What it tells a stranger next, but for its lives.
fn tell(node: &mut Node) -> Option<WideMessage> {
    node.tell(STRANGER).map(|message| match message {
        WideMessage::Lives { .. } => node.tell(STRANGER),
        message => Some(message),
    })?
}

/// A site that has greeted a stranger, who has all up to the time when its process began.
fn greeted(bundles: Vec<Bundle>, window: Window) -> Node {
    let mut node = Node::taker(1, false, bundles, Made::COUNT_MAX, window);
    let has = node.records();
    work(&mut node);
    node.peers.link_up(STRANGER);
    assert!(matches!(tell(&mut node), Some(WideMessage::Hello { .. })));
    assert_eq!(tell(&mut node), None, "the other one has not said who it is");
    assert_eq!(node.hears(STRANGER, hello(Vec::new(), has, 1_000)), Ok(()));
    node
}

/// All that it tells, at once.
fn told(node: &mut Node) -> Vec<WideMessage> {
    std::iter::from_fn(|| tell(node)).collect()
}

/// All that it decides is synced.
fn steps(node: &mut Node) {
    while node.step() {}
    node.sync();
}

fn position(message: &WideMessage) -> u64 {
    let WideMessage::Bundle { bundle } = message else { panic!("{message:?}") };
    bundle.position
}

fn known(object: FeedRow, dots: &[(u64, u64)]) -> KnownObject {
    let known = dots.iter().map(|(writer, n)| Dot { writer: Writer(*writer), n: *n }).collect();
    KnownObject { object, known }
}

fn want(objects: &[FeedRow]) -> WideMessage {
    let objects = objects.iter().map(|object| known(*object, &[])).collect();
    WideMessage::Want { objects: Most::new(objects) }
}

fn state(changes: Vec<BundleChange>, unknown: Vec<FeedRow>) -> WideMessage {
    WideMessage::State { changes: Most::new(changes), known: Most::default(), unknown: Most::new(unknown) }
}

fn feed(upto: u64, news: Vec<KnownObject>) -> WideMessage {
    WideMessage::Feed { upto, news: Most::new(news) }
}

// ------------------------------------------------------------------ what is sent

#[test]
fn a_peer_that_acknowledges_nothing_is_told_a_window_and_no_more() {
    let window = Window { messages: 5, bytes: 1 << 20, news: 1_024 };
    let mut node = greeted(dirs(101, 40), window);
    let mut positions: VecDeque<u64> = told(&mut node).iter().map(position).collect();
    assert_eq!(positions.len(), 5);
    let mut short = greeted(dirs(101, 40), Window { messages: 5, bytes: 1, news: 1_024 });
    let first = told(&mut short);
    assert!(matches!(&first[..], [WideMessage::Bundle { .. }]), "one message is always allowed: {first:?}");
    for acks in 1..=7 {
        let upto = positions.pop_front().unwrap();
        assert_eq!(node.hears(STRANGER, WideMessage::Ack { upto }), Ok(()));
        let more = told(&mut node);
        assert_eq!(more.len(), 1, "one is acknowledged, one more leaves: {acks}");
        positions.extend(more.iter().map(position));
    }
    for _ in 0..3 {
        node.peers.link_down(STRANGER);
        assert_eq!(tell(&mut node), None);
        node.peers.link_up(STRANGER);
        tell(&mut node).unwrap();
        let upto = node.peers.upto(STRANGER).1;
        assert_eq!(node.hears(STRANGER, hello(Vec::new(), upto, 1_000)), Ok(()));
        assert_eq!(told(&mut node).len(), 5, "what was under way is told again");
    }
}

#[test]
fn what_is_not_synced_does_not_leave() {
    let mut node = greeted(dirs(101, 1), Window::MOST);
    assert_eq!(told(&mut node).len(), 1);
    let mut node = taker(1, dirs(101, 2));
    let has = node.records();
    assert!(node.work());
    node.peers.link_up(STRANGER);
    tell(&mut node).unwrap();
    assert_eq!(node.hears(STRANGER, hello(Vec::new(), has, 0)), Ok(()));
    assert_eq!(tell(&mut node), None);
    node.sync();
    assert!(matches!(tell(&mut node), Some(WideMessage::Bundle { .. })));
    // The root changes with the second directory, so its state is newer than what is synced.
    assert!(node.work());
    assert_eq!(node.hears(STRANGER, want(&[FeedRow::Dir { id: FileId::ROOT }])), Ok(()));
    assert_eq!(tell(&mut node), None);
    node.sync();
    assert!(matches!(tell(&mut node), Some(WideMessage::State { .. })));
}

/// Else the answer could lack a change that came before it, and the peer would take it for all that there is.
#[test]
fn an_answer_is_overtaken_by_nothing() {
    let mut node = taker(1, dirs(101, 2));
    let has = node.records();
    node.peers.link_up(STRANGER);
    tell(&mut node).unwrap();
    assert_eq!(node.hears(STRANGER, hello(Vec::new(), has, 0)), Ok(()));
    assert!(node.work());
    node.sync();
    assert!(node.work());
    assert_eq!(node.hears(STRANGER, want(&[object(0)])), Ok(()));
    assert_eq!(
        tell(&mut node),
        None,
        "the answer waits until it is synced, and the first bundle for the answer"
    );
    node.sync();
    let told = told(&mut node);
    assert!(matches!(&told[0], WideMessage::State { .. }), "{told:?}");
    assert_eq!(told[1..].iter().map(position).collect::<Vec<_>>(), [has + 1, has + 2]);
}

#[test]
fn news_of_what_has_changed_once_more_wait_until_that_is_synced() {
    let mut node = taker(1, dirs(101, 1));
    let (other, has) = (SiteId(8), node.records());
    for site in [STRANGER, other] {
        node.peers.link_up(site);
        node.tell(site).unwrap();
        assert_eq!(node.hears(site, hello(Vec::new(), has, 1_000)), Ok(()));
    }
    let root = users(102, |site| chmod(site, 0o700));
    assert_eq!(node.hears(other, WideMessage::Bundle { bundle: root[0].clone() }), Ok(()));
    steps(&mut node);
    assert!(node.work(), "a directory in the root");
    assert_eq!(tell(&mut node), None);
    node.sync();
    let Some(WideMessage::Feed { news, .. }) = tell(&mut node) else { panic!("the root has changed") };
    assert_eq!(&news[..], [known(object(0), &[(0, 1), (101, 1), (102, 1)])]);
    assert!(matches!(tell(&mut node), Some(WideMessage::Bundle { .. })));
    assert_eq!(tell(&mut node), None);
}

/// The root's change of another site has its row in the feed behind what is read, since the root has changed once more, and that is not
/// synced. So it was told by nothing when the link ends. Found by `wide_sites` 1762: nothing may be told up to there before the later change
/// is synced, since the row is back where it was if a power cut takes that.
#[test]
fn what_was_hidden_when_the_feed_was_read_is_told_on_the_next_link() {
    let mut node = taker(1, dirs(101, 1));
    let other = SiteId(8);
    node.peers.link_up(other);
    node.tell(other).unwrap();
    assert_eq!(node.hears(other, hello(Vec::new(), 0, 1_000)), Ok(()));
    assert_eq!(node.hears(other, WideMessage::Bundle { bundle: dirs(102, 1)[0].clone() }), Ok(()));
    steps(&mut node);
    let upto = node.records();
    assert!(node.work());
    node.peers.link_up(STRANGER);
    tell(&mut node).unwrap();
    assert_eq!(node.hears(STRANGER, hello(Vec::new(), 0, 1_000)), Ok(()));
    let born = FeedRow::Dir { id: FileId::born(Dot { writer: Writer(102), n: 2 }) };
    assert_eq!(tell(&mut node), None, "the root's later change is not synced");
    node.sync();
    assert_eq!(tell(&mut node), Some(feed(upto, vec![known(born, &[(102, 2)])])));
    assert_eq!(node.hears(STRANGER, WideMessage::Ack { upto }), Ok(()));
    node.peers.link_up(STRANGER);
    node.sync();
    tell(&mut node).unwrap();
    assert_eq!(node.hears(STRANGER, hello(Vec::new(), upto, 1_000)), Ok(()));
    let told = tell(&mut node);
    let Some(WideMessage::Feed { news, .. }) = told else {
        panic!("a bundle does not tell what is hidden: {told:?}")
    };
    assert_eq!(news[0], known(object(0), &[(0, 1), (101, 1), (102, 1)]));
}

#[test]
fn what_a_peer_has_made_is_not_told_to_it() {
    let mut world = World::new(vec![taker(1, dirs(101, 30)), taker(2, Vec::new())], &[(0, 1)]);
    world.settle(false);
    world.settle(true);
    world.compare();
    let counts = world.counted();
    assert_eq!(counts["bundles"], 30);
    assert!(!counts.contains_key("feeds"), "{counts:?}");
}

#[test]
fn a_site_passes_on_what_it_has_heard() {
    let nodes = vec![taker(1, dirs(101, 5)), taker(2, Vec::new()), taker(3, Vec::new())];
    let mut world = World::new(nodes, &[(0, 1), (1, 2)]);
    world.settle(true);
    world.compare();
    assert_eq!(world.nodes[2].states().len(), 6, "the root, and the five");
}

/// Two sites of which the second has the feed of the first only by its table; both are at rest.
fn by_table(first: Vec<Bundle>, second: Vec<Bundle>) -> World {
    let one = Node::taker(1, false, first, 0, Window::MOST);
    World::new(vec![one, taker(2, second), taker(3, Vec::new())], &[(0, 1), (0, 2)])
}

#[test]
fn what_left_memory_is_told_by_the_feed_as_states_and_moves_too() {
    let made = users(101, |site| {
        let (above, _) = (site.mkdir(ROOT, "above"), site.mkdir(ROOT, "d"));
        let (name, new_name, mode) = (named("d"), named("e"), RenameMode::Replace);
        let (meant, new_meant) = (None, None);
        site.does(Op::Rename { dir: ROOT, name, new_dir: above, new_name, mode, meant, new_meant }, b"");
    });
    let mut world = by_table(made, Vec::new());
    work(&mut world.nodes[0]);
    world.settle(true);
    world.compare();
    let counts = world.counted();
    assert!(!counts.contains_key("bundles"), "{counts:?}");
    assert_eq!(counts["moves by want"], 2, "one for each of the others");
    assert_eq!(counts["feeds"], 2, "and they do not tell it back: {counts:?}");
}

/// The change of another site that a site has not passed on yet, and then one of its own of the same directory: the row of the feed of the
/// first one is gone then.
#[test]
fn a_change_that_a_later_one_hides_in_the_feed_is_told_with_it() {
    let first = users(101, |site| chmod(site, 0o700));
    let second = users(102, |site| {
        site.does(Op::SetAttr { ino: ROOT, set: SetAttr { uid: Some(7), ..SetAttr::default() } }, b"")
            .map_or((), drop)
    });
    for (hides, memory) in [(true, 0), (true, 1), (false, 0), (false, 4_096)] {
        let one = Node::taker(1, false, first.clone(), memory, Window::MOST);
        let mut world =
            World::new(vec![one, taker(2, second.clone()), taker(3, Vec::new())], &[(0, 1), (0, 2)]);
        if hides {
            // The second one's change comes to the first one, and then its own. The third one hears later.
            work(&mut world.nodes[1]);
            world.connect((0, 1));
            world.passes(20);
        }
        work(&mut world.nodes[0]);
        world.passes(20);
        world.settle(true);
        world.compare();
    }
}

// ------------------------------------------------------------- what is refused

fn object(n: u128) -> FeedRow {
    FeedRow::Dir { id: FileId(n) }
}

/// A directory that a stranger has made in another one.
fn born(n: u64, parent: FileId) -> BundleChange {
    let dot = Dot { writer: Writer(55), n };
    let mut head = root_head(0o755, 0, 0);
    head.birth.parent = parent;
    head.birth.stamp = HybridStamp { time_us: n, writer: dot.writer };
    head.name.value = named(&format!("born-{n}"));
    head.context = Context::from_iter([dot]);
    head.alive = DotSet::of(dot, NoValue {});
    BundleChange::DirBorn { id: FileId::born(dot), head: Box::new(head) }
}

#[test]
fn what_has_no_place_or_no_end_is_refused_and_ends_the_link_only() {
    let bundle = |position| WideMessage::Bundle {
        bundle: Bundle { position, changes: vec![born(position, FileId::ROOT)] },
    };
    let news = |at: usize| known(object(0xffff_0000 + at as u128), &[(55, 1)]);
    let long = |position| {
        let many: Vec<(u64, u64)> = (1..=4_096).map(|writer| (writer, 1)).collect();
        feed(position, (0..10).map(|at| known(object(at), &many)).collect())
    };
    let order = |why| Refused::Order(why);
    let no_feed = order("its feed does not go on");
    let acks = order("it acknowledges what it was not told");
    let cases: Vec<(Vec<WideMessage>, Refused)> = vec![
        (vec![hello(Vec::new(), 0, 1_000)], order("it says twice who it is")),
        (vec![bundle(7), bundle(7)], no_feed),
        (vec![bundle(7), feed(6, Vec::new())], no_feed),
        (vec![WideMessage::Ack { upto: 0 }], acks),
        (vec![WideMessage::Ack { upto: u64::MAX }], acks),
        (vec![want(&[])], order("it asks for nothing")),
        (vec![want(&[object(0)]), want(&[object(0)])], order("it asks before it has the answer")),
        (vec![state(vec![born(1, FileId::ROOT)], Vec::new())], order("nothing was asked for")),
        ((1..=1_025).map(bundle).collect(), Refused::Bound("messages that are not acknowledged")),
        ((1..=2).map(long).collect(), Refused::Bound("messages that are not acknowledged")),
    ];
    for (messages, expected) in cases {
        let mut node = greeted(dirs(101, 2), Window::MOST);
        let (last, first) = messages.split_last().unwrap();
        first.iter().for_each(|message| assert_eq!(node.hears(STRANGER, message.clone()), Ok(())));
        assert_eq!(node.hears(STRANGER, last.clone()), Err(expected));
        assert!(!expected.to_string().is_empty());
        assert_eq!(tell(&mut node), None, "the link is down");
        assert_eq!(node.hears(STRANGER, bundle(9)), Err(order("it has not said who it is")));
        // Others are served, and a new link is judged anew.
        let mut world = World::new(vec![node, taker(2, Vec::new())], &[(0, 1)]);
        world.settle(true);
        world.compare();
        let node = &mut world.nodes[0];
        node.peers.link_up(STRANGER);
        assert!(tell(node).is_some());
        let has = node.peers.upto(STRANGER).1;
        assert_eq!(node.hears(STRANGER, hello(Vec::new(), has, 1_000)), Ok(()));
    }
    let mut node = taker(1, Vec::new());
    assert_eq!(node.hears(STRANGER, bundle(1)), Err(order("there is no link")));
    node.peers.link_up(STRANGER);
    assert_eq!(node.hears(STRANGER, bundle(1)), Err(order("it has not said who it is")));
    node.peers.link_up(STRANGER);
    let other = greeting(VOLUME + 1, 0, 0);
    assert_eq!(node.hears(STRANGER, WideMessage::Hello { hello: other }), Err(Refused::Volume));
    let mut node = greeted(Vec::new(), Window::MOST);
    assert_eq!(node.hears(STRANGER, feed(5, vec![news(0)])), Ok(()));
    steps(&mut node);
    assert!(matches!(&told(&mut node)[..], [WideMessage::Want { objects }] if objects.len() == 1));
    let nothing = state(Vec::new(), vec![object(3)]);
    assert_eq!(node.hears(STRANGER, nothing), Err(order("it answers nothing of what was asked for")));
}

#[test]
fn a_move_that_must_wait_for_a_cut_ends_the_link_and_is_not_acknowledged() {
    let mut node = greeted(Vec::new(), Window::MOST);
    let bundle = Bundle { position: 7, changes: vec![born(1, FileId::ROOT)] };
    assert_eq!(node.hears(STRANGER, WideMessage::Bundle { bundle }), Ok(()));
    node.is_busy = true;
    assert_eq!((node.tries(), node.tries()), (Some(Err(Refused::Busy)), None));
    node.sync();
    assert_eq!((node.peers.upto(STRANGER).0, tell(&mut node)), (0, None));
}

#[test]
fn what_is_not_here_is_answered_and_what_is_known_is_not_sent() {
    let mut node = greeted(dirs(101, 2), Window::MOST);
    told(&mut node);
    let file = FeedRow::File { id: FileId(5) };
    let moved = FeedRow::Move { stamp: HybridStamp { time_us: 5, writer: Writer(5) } };
    let all = Most::new(vec![
        known(object(0), &[(0, 1), (101, 9)]),
        known(object(0x55), &[]),
        known(file, &[]),
        known(moved, &[]),
        known(FeedRow::File { id: FileId::ROOT }, &[]),
    ]);
    assert_eq!(node.hears(STRANGER, WideMessage::Want { objects: all }), Ok(()));
    let expected = WideMessage::State {
        changes: Most::default(),
        known: Most::new(vec![object(0)]),
        unknown: Most::new(vec![object(0x55), file, moved, FeedRow::File { id: FileId::ROOT }]),
    };
    assert_eq!(node.tell_raw(STRANGER), Some(expected));
}

#[test]
fn a_directory_in_one_that_is_nowhere_is_not_taken_and_what_comes_with_it_is() {
    let mut node = greeted(Vec::new(), Window::MOST);
    let nowhere = FileId(0xabcd);
    let changes =
        [born(1, nowhere), born(2, FileId::ROOT), born(3, FileId::born(Dot { writer: Writer(55), n: 2 }))];
    let news = changes.iter().map(|change| known(change.object(), &[(55, 3)])).collect();
    assert_eq!(node.hears(STRANGER, feed(7, news)), Ok(()));
    let mut asked = Vec::new();
    for _ in 0..10 {
        steps(&mut node);
        let Some(message) = tell(&mut node) else { continue };
        let WideMessage::Want { objects } = message else {
            assert_eq!(message, WideMessage::Ack { upto: 7 });
            break;
        };
        asked.push(objects.iter().map(|asked| asked.object).collect::<Vec<_>>());
        let has = |object: &FeedRow| changes.iter().find(|change| change.object() == *object);
        let (here, away): (Vec<_>, Vec<_>) =
            asked.last().unwrap().iter().partition(|object| has(object).is_some());
        let here = here.iter().filter_map(|object| has(object).cloned()).collect();
        assert_eq!(node.hears(STRANGER, state(here, away)), Ok(()));
    }
    let lost = changes[0].object();
    assert_eq!(
        asked,
        [
            changes.iter().map(BundleChange::object).collect::<Vec<_>>(),
            vec![FeedRow::Dir { id: nowhere }, lost],
        ]
    );
    assert_eq!((node.peers.refused(), node.peers.upto(STRANGER).0), (1, 7));
    assert!(node.states().contains_key(&changes[2].object()) && !node.states().contains_key(&lost));
}

#[test]
fn a_record_of_rows_only_is_made_when_an_acknowledgement_waits_for_it() {
    let mut node = greeted(Vec::new(), Window::MOST);
    assert_eq!(node.hears(STRANGER, feed(7, Vec::new())), Ok(()));
    let before = node.records();
    assert!(node.step() && !node.step());
    assert_eq!((node.records(), tell(&mut node)), (before + 1, None), "it is not synced");
    node.sync();
    assert_eq!(tell(&mut node), Some(WideMessage::Ack { upto: 7 }));
    // A record that changes something has the rows too.
    let bundle = Bundle { position: 9, changes: vec![born(1, FileId::ROOT)] };
    assert_eq!(node.hears(STRANGER, WideMessage::Bundle { bundle }), Ok(()));
    assert!(node.step() && !node.step());
    node.sync();
    assert_eq!(tell(&mut node), Some(WideMessage::Ack { upto: 9 }));
    assert_eq!(node.records(), before + 2);
    node.restart(true);
    node.peers.link_up(STRANGER);
    let Some(WideMessage::Hello { hello }) = tell(&mut node) else { panic!("it greets") };
    assert_eq!((hello.has, &hello.writers[..]), (9, &[(Writer(55), 1)][..]));
}

// ---------------------------------------------------------------------- bounds

#[test]
fn who_makes_much_is_told_once_in_a_while_that_all_is_here() {
    let much = users(101, |site| (0..1_100).for_each(|at| chmod(site, 0o700 | at & 1)));
    let mut world = World::new(vec![taker(1, much), taker(2, Vec::new())], &[(0, 1)]);
    world.settle(false);
    world.settle(true);
    world.compare();
    assert!(world.nodes[1].records() > 1_024);
    let (acked, counts) = (world.nodes[1].peers.upto(SiteId(1)).1, world.counted());
    assert_eq!(counts["feeds"], 1, "{counts:?}");
    assert!(acked > 1_000, "so not all of it is told when a process begins anew");
}

#[test]
fn an_answer_has_as_many_states_as_fit_and_the_rest_is_asked_for_again() {
    let mut names = Vec::new();
    let large = users(101, |site| {
        for at in 0..20 {
            let ino = site.create(ROOT, &format!("f{at}"), Kind::Regular, b"");
            let (name, value) = (Bytes::from_static(b"user.x"), Bytes::from(vec![at; 60_000]));
            site.does(Op::SetXattr { ino, name, value, mode: XattrMode::Any, kill_sgid: false }, b"");
            names.push(ino);
        }
    });
    let files: BTreeSet<FeedRow> = large.iter().map(|bundle| bundle.changes[0].object()).collect();
    let mut left: Vec<FeedRow> =
        files.into_iter().filter(|object| matches!(object, FeedRow::File { .. })).collect();
    assert_eq!(left.len(), names.len());
    let mut node = greeted(large, Window { messages: 1, bytes: 1, news: 1 });
    told(&mut node);
    for round in 1.. {
        assert_eq!(node.hears(STRANGER, want(&left)), Ok(()));
        let Some(WideMessage::State { changes, .. }) = tell(&mut node) else { panic!("it answers") };
        assert!(!changes.is_empty() && changes.encoded_len() <= STATE_BYTES_MAX + 4);
        left.drain(..changes.len());
        if left.is_empty() {
            assert_eq!(round, 2);
            return;
        }
    }
}

#[test]
fn a_question_has_a_bound_in_bytes() {
    let mut node = greeted(Vec::new(), Window::MOST);
    let many: Context = (1..=4_096).map(|writer| Dot { writer: Writer(writer), n: 1 }).collect();
    let changes = (1..=8).map(|n| {
        let BundleChange::DirBorn { id, mut head } = born(n, FileId::ROOT) else { unreachable!() };
        head.context = many.clone();
        head.alive = DotSet::default();
        BundleChange::DirBorn { id, head }
    });
    let bundle = Bundle { position: 7, changes: changes.collect() };
    let newer = |change: &BundleChange| known(change.object(), &[(9, 2)]);
    let news = bundle.changes.iter().map(newer).collect();
    assert_eq!(node.hears(STRANGER, WideMessage::Bundle { bundle }), Ok(()));
    assert_eq!(node.hears(STRANGER, feed(8, news)), Ok(()));
    steps(&mut node);
    assert_eq!(tell(&mut node), Some(WideMessage::Ack { upto: 7 }));
    let Some(WideMessage::Want { objects }) = tell(&mut node) else { panic!("it asks") };
    assert_eq!(objects.len(), 3);
    assert!(objects.encoded_len() <= WANT_BYTES_MAX + 4);
}

/// What becomes of a link whose other end answers each question like this.
fn ends(mut node: Node, answer: impl Fn(u64, &[KnownObject]) -> WideMessage) -> Refused {
    node.is_checked = false;
    let mut is_told = false;
    for round in 1..400 {
        if !is_told {
            let news = (0..1_024).map(|at| known(object(u128::from(round) << 32 | at), &[(55, 1)])).collect();
            assert_eq!(node.hears(STRANGER, feed(1_000 + round, news)), Ok(()));
            is_told = true;
        }
        while let Some(step) = node.tries() {
            if let Err(why) = step {
                return why;
            }
        }
        node.sync();
        match tell(&mut node) {
            Some(WideMessage::Want { objects }) => {
                if let Err(why) = node.hears(STRANGER, answer(round, &objects)) {
                    return why;
                }
            }
            // All that it has told is done.
            Some(WideMessage::Ack { .. }) => is_told = false,
            _ => {}
        }
    }
    panic!("no end");
}

#[test]
fn what_a_peer_makes_a_site_want_and_remember_has_a_bound() {
    // Each directory is in another one that is not here.
    let chains = |round: u64, objects: &[KnownObject]| {
        let changes = objects.iter().zip(1..).map(|(asked, at)| {
            let FeedRow::Dir { id } = asked.object else { panic!("{asked:?}") };
            let BundleChange::DirBorn { head, .. } = born(1, FileId(u128::from(round) << 80 | at)) else {
                unreachable!()
            };
            BundleChange::DirBorn { id, head }
        });
        state(changes.collect(), Vec::new())
    };
    let wanted = Refused::Bound("objects that are wanted because of what it tells");
    assert_eq!(ends(greeted(Vec::new(), Window::MOST), chains), wanted);
    let nothing =
        |_, objects: &[KnownObject]| state(Vec::new(), objects.iter().map(|asked| asked.object).collect());
    let away = Refused::Bound("objects that it has not");
    assert_eq!(ends(greeted(Vec::new(), Window::MOST), nothing), away);
}

/// What a stranger says who knows the form of messages: all kinds, with what is there and what is not.
fn hostile(rng: &mut Rng, real: &[WideMessage]) -> WideMessage {
    loop {
        let mut bytes = rng.pick(real).to_vec();
        for _ in 0..rng.index(4) {
            let at = rng.index(bytes.len());
            match rng.index(3) {
                0 => bytes[at] = rng.bits() as u8,
                1 => bytes[at] = *rng.pick(&[0, 1, 2, 255]),
                _ => {
                    // A piece of another message.
                    let other = rng.pick(real).to_vec();
                    let len = rng.index(other.len().min(bytes.len() - at) + 1);
                    bytes[at..at + len].copy_from_slice(&other[..len]);
                }
            }
        }
        if let Ok(message) = WideMessage::from_slice(&bytes) {
            return message;
        }
    }
}

/// A directory, to which another one is moved in which there is a file.
fn moves_a_directory(site: &mut Site) {
    let (above, d) = (site.mkdir(ROOT, "above"), site.mkdir(ROOT, "d"));
    let (name, new_name, mode) = (named("d"), named("e"), RenameMode::Replace);
    let (meant, new_meant) = (None, None);
    site.does(Op::Rename { dir: ROOT, name, new_dir: above, new_name, mode, meant, new_meant }, b"");
    site.create(d, "f", Kind::Regular, b"");
}

#[test]
fn whatever_a_hostile_site_says_no_site_fails() {
    let mut taken = 0;
    for seed in 1..=40 {
        let mut rng = Rng::new(seed);
        let moves = users(55, moves_a_directory);
        let mut real: Vec<WideMessage> =
            moves.iter().map(|bundle| WideMessage::Bundle { bundle: bundle.clone() }).collect();
        let objects: Vec<FeedRow> =
            moves.iter().flat_map(|bundle| &bundle.changes).map(BundleChange::object).collect();
        real.push(want(&objects));
        real.push(feed(9, objects.iter().map(|object| known(*object, &[(55, 9)])).collect()));
        real.push(state(moves.iter().flat_map(|bundle| bundle.changes.clone()).collect(), Vec::new()));
        real.push(state(Vec::new(), objects));
        real.push(WideMessage::Ack { upto: 3 });
        real.push(hello(vec![(Writer(101), 1)], 1, 9));
        let mut node = taker(1, dirs(101, 5));
        for _ in 0..300 {
            if rng.percent(4) {
                node.peers.link_up(STRANGER);
            }
            if rng.percent(10) {
                node.work();
            }
            let mut message = hostile(&mut rng, &real);
            // Often enough it knows where it is.
            match &mut message {
                WideMessage::Bundle { bundle } if rng.percent(80) => bundle.position = rng.below(1_000),
                WideMessage::Feed { upto, .. } if rng.percent(80) => *upto = rng.below(1_000),
                _ => {}
            }
            match node.hears(STRANGER, message) {
                Ok(()) => taken += 1,
                Err(_) if rng.percent(80) => {
                    node.peers.link_up(STRANGER);
                    tell(&mut node).unwrap();
                    let (has, synced) = (node.peers.upto(STRANGER).1, u64::MAX);
                    assert_eq!(node.hears(STRANGER, hello(Vec::new(), has, synced)), Ok(()));
                }
                Err(_) => {}
            }
            let mut left = 20;
            while left > 0 && node.tries() == Some(Ok(())) {
                left -= 1;
            }
            node.sync();
            (0..rng.index(4)).for_each(|_| drop(node.tell_raw(STRANGER)));
        }
        node.restart(true);
    }
    assert!(taken > 1_000, "{taken} messages are taken");
}

/// It knows the writer of the site, and what its users are about to do.
#[test]
fn whatever_a_hostile_site_says_the_users_of_a_site_go_on() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 1..=60 {
        let mut rng = Rng::new(seed);
        // Both are alike, so that a piece of one has its place in the other.
        let bundles = [1, 55].into_iter().flat_map(|writer| users(writer, moves_a_directory));
        let real: Vec<WideMessage> = bundles.map(|bundle| WideMessage::Bundle { bundle }).collect();
        let machine = opened(Writer(1), []).unwrap();
        let mut site = Site::new(Memory::Whole, &[SessionId(1)], false, Some(Box::new(machine)));
        site.watch_no_more();
        let (mut is_linked, mut position, mut dirs) = (false, 0, vec![ROOT]);
        for at in 0..120 {
            let peer = STRANGER.0;
            if !is_linked {
                site.hear(BesideEvent::Link { peer, up: true });
                let (has, synced) = (site.beside::<Machine>().peers().upto(STRANGER).1, u64::MAX);
                let hello = greeting(1, has, synced);
                site.hear(BesideEvent::Message { peer, bytes: WideMessage::Hello { hello }.to_vec().into() });
            }
            let mut message = hostile(&mut rng, &real);
            if let WideMessage::Bundle { bundle } = &mut message {
                position += 1;
                bundle.position = position;
            }
            site.hear(BesideEvent::Message { peer, bytes: message.to_vec().into() });
            is_linked = !site.take_said().iter().any(|says| matches!(says, BesideSays::End { .. }));
            taken += u64::from(is_linked);
            if rng.percent(20) {
                let (dir, name, mode, umask) = (*rng.pick(&dirs), named(&format!("{at}")), 0o755, 0);
                let made =
                    site.run(SessionId(1), &Caller::ROOT, Op::Mkdir { dir, name, mode, umask }, Bytes::new());
                match made {
                    Ok((Answer::Found { found }, _)) => dirs.push(found.attr.ino),
                    // Another site may have removed it.
                    made => assert!(made.is_err() && dir != ROOT, "{made:?}"),
                }
            }
        }
        refused += site.beside::<Machine>().peers().refused();
    }
    assert!(taken > 1_000 && refused > 100, "{taken} messages are taken, {refused} changes refused");
}
