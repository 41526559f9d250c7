//! Who has gone back to an earlier state (`docs/design/023-wide.md`, "Between sites", W3): how two sites notice it that meet.

mod drive;
mod receiver;
mod replica;
mod site;
mod world;

use atoll_causal::{
    AttrState, Dot, FileBirth, FileId, FileState, FileVersion, HybridStamp, LinkPlace, Writer,
};
use atoll_core::{Ino, Name, SessionId, Time};
use atoll_posix::Kind;
use atoll_wide::author::{Bundle, BundleChange, Made};
use atoll_wide::peers::message::{Hello, KnownObject, Most, WideMessage};
use atoll_wide::peers::{Refused, Window};
use atoll_wide::rows::{FeedRow, SiteId};
use site::{Memory, Site, opened};
use world::{Node, World, bundles};

const ROOT: Ino = Ino::ROOT;
/// A site that no test runs.
const STRANGER: SiteId = SiteId(9);

/// Directories of these names, made by users of a site that knows of nobody.
fn made(writer: u64, names: impl Iterator<Item = String>) -> Vec<Bundle> {
    let author = opened(Writer(writer), []).unwrap();
    let mut site = Site::new(Memory::Whole, &[SessionId(1)], false, Some(Box::new(author)));
    for name in names {
        site.mkdir(ROOT, &name);
    }
    bundles(&site, 0)
}

/// So many directories.
fn dirs(writer: u64, count: u64) -> Vec<Bundle> {
    made(writer, (0..count).map(|at| format!("{writer}-{at}")))
}

fn taker(id: u64, bundles: Vec<Bundle>) -> Node {
    Node::taker(id, false, bundles, Made::COUNT_MAX, Window::MOST)
}

/// Its users do all.
fn work(node: &mut Node) {
    while node.work() {}
    node.sync();
}

/// All that it decides is synced.
fn steps(node: &mut Node) {
    while node.step() {}
    node.sync();
}

/// The root has changed, up to a dot of this writer.
fn news(writer: u64, n: u64) -> WideMessage {
    let known = [Dot { writer: Writer(writer), n }].into_iter().collect();
    let news = KnownObject { object: FeedRow::Dir { id: FileId::ROOT }, known };
    WideMessage::Feed { upto: 1, news: Most::new(vec![news]) }
}

/// Two sites meet: what each says of the other one's greeting.
fn meet(one: &mut Node, other: &mut Node) -> [Result<(), Refused>; 2] {
    one.peers.link_up(other.id);
    other.peers.link_up(one.id);
    let (there, back) = (one.tell(other.id).unwrap(), other.tell(one.id).unwrap());
    [one.hears(other.id, back), other.hears(one.id, there)]
}

#[test]
fn a_site_that_comes_back_from_an_old_copy_is_refused_by_both_ends_of_a_link() {
    let mut world = World::new(vec![taker(1, dirs(101, 8)), taker(2, dirs(102, 8))], &[(0, 1)]);
    world.nodes.iter_mut().for_each(|node| (0..4).for_each(|_| assert!(node.work())));
    world.settle(false);
    world.compare();
    let old = world.nodes.clone();
    world.settle(true);
    world.compare();
    for at in [0, 1] {
        let (mut copy, mut other) = (Node::from_copy(&old[at]), world.nodes[1 - at].clone());
        let said = meet(&mut copy, &mut other);
        assert_eq!(said, [Err(Refused::ThisWentBack), Err(Refused::OtherWentBack)]);
        assert_eq!((copy.tell(other.id), other.tell(copy.id)), (None, None), "the link is down");
        // It is also noticed behind restarts of all.
        copy.restart(false);
        other.restart(false);
        assert_eq!(meet(&mut copy, &mut other), said);
    }
    let [mut one, mut other] = world.nodes.try_into().unwrap_or_else(|_| panic!("there are two"));
    one.restart(true);
    other.restart(true);
    assert_eq!(meet(&mut one, &mut other), [Ok(()), Ok(())], "a power cut takes nothing that was told");
}

#[test]
fn a_site_that_has_gone_back_is_noticed_by_one_that_it_has_never_met() {
    let nodes = vec![taker(1, dirs(101, 8)), taker(2, Vec::new()), taker(3, Vec::new())];
    let mut world = World::new(nodes, &[(0, 1), (1, 2)]);
    (0..4).for_each(|_| assert!(world.nodes[0].work()));
    world.settle(false);
    let mut old = Node::from_copy(&world.nodes[0]);
    world.settle(true);
    world.compare();
    let third = &mut world.nodes[2];
    third.restart(true);
    assert_eq!(meet(&mut old, third)[0], Err(Refused::ThisWentBack));
}

/// So many directories, the first four as those of [`dirs`].
fn others(writer: u64, count: u64) -> Vec<Bundle> {
    made(writer, (0..count).map(|at| format!("{writer}-{}{at}", if at < 4 { "" } else { "again-" })))
}

/// Three sites in a row. The first one has made four changes when its disk is copied, and then four more, which all three have heard. It goes
/// on from the copy, and makes so many others. A fourth one has only heard of the first four.
fn goes_on_from_a_copy(again: u64) -> [Node; 4] {
    let mut nodes = vec![taker(1, dirs(101, 8))];
    nodes.extend((2..=4).map(|id| taker(id, Vec::new())));
    let mut world = World::new(nodes, &[(0, 1), (1, 2), (0, 3)]);
    (0..4).for_each(|_| assert!(world.nodes[0].work()));
    world.settle(false);
    world.compare();
    let mut nodes = world.nodes;
    let (mut copy, fourth) = (Node::from_copy(&nodes[0]), nodes.pop().unwrap());
    copy.users_do(others(101, 4 + again));
    work(&mut copy);
    let mut world = World::new(nodes, &[(0, 1), (1, 2)]);
    world.settle(true);
    world.compare();
    let [_, second, third] = world.nodes.try_into().unwrap_or_else(|_| panic!("there are three"));
    [copy, second, third, fourth]
}

/// As many as were lost, and more: by numbers alone nobody has gone back.
const AGAIN: [u64; 3] = [4, 5, 40];

/// The copy and one of the others refuse each other, also if both have begun anew.
fn refuse_each_other(at: usize, is_power_cut: bool) {
    for again in AGAIN {
        let mut all = goes_on_from_a_copy(again);
        let (copy, others) = all.split_first_mut().expect("there are four");
        let other = &mut others[at - 1];
        for _ in 0..2 {
            let said = meet(copy, other);
            assert_eq!(said, [Err(Refused::ThisWentBack), Err(Refused::OtherWentBack)], "{again}");
            copy.restart(is_power_cut);
            other.restart(is_power_cut);
        }
    }
}

#[test]
fn a_site_that_has_made_as_much_again_as_it_had_lost_is_refused_by_one_that_had_it() {
    refuse_each_other(1, false);
}

#[test]
fn a_site_that_has_made_as_much_again_as_it_had_lost_is_refused_by_one_that_has_heard_of_it() {
    refuse_each_other(2, true);
}

#[test]
fn two_sites_that_have_taken_different_changes_of_a_third_one_refuse_each_other() {
    // Also if it has made fewer than it had lost.
    for again in [1, 4, 5, 40] {
        let [copy, mut second, _, fourth] = goes_on_from_a_copy(again);
        let mut world = World::new(vec![copy, fourth], &[(0, 1)]);
        world.settle(true);
        world.compare();
        let mut fourth = world.nodes.pop().unwrap();
        for _ in 0..2 {
            let said = meet(&mut fourth, &mut second);
            assert_eq!(said, [Err(Refused::ThirdWentBack(Writer(101))); 2], "{again}");
            fourth.restart(true);
            second.restart(true);
        }
    }
}

/// What a stranger says first that knows the same lives as a site, and less of what these have given.
fn greets_as(node: &mut Node, writers: Vec<(Writer, u64)>) -> Hello {
    node.peers.link_up(STRANGER);
    let Some(WideMessage::Hello { hello }) = node.tell(STRANGER) else { panic!("it greets") };
    let (writers, own) = (Most::new(writers), Most::default());
    Hello { writer: Writer(99), n: 0, writers, own, has: 0, life: None, ..hello }
}

fn greeted_by_stranger(node: &mut Node, hello: Hello) {
    node.peers.link_up(STRANGER);
    assert!(matches!(node.tell(STRANGER), Some(WideMessage::Hello { .. })));
    assert_eq!(node.hears(STRANGER, WideMessage::Hello { hello }), Ok(()));
}

/// One link brings what was lost, and the other one what was made since. Before either has come, both are greeted.
#[test]
fn of_two_links_that_bring_different_changes_of_a_third_site_one_is_refused() {
    let [mut copy, mut second, _, mut fourth] = goes_on_from_a_copy(4);
    assert_eq!(meet(&mut fourth, &mut second), [Ok(()), Ok(())]);
    assert_eq!(meet(&mut fourth, &mut copy), [Ok(()), Ok(())]);
    let n = fourth.peers.last_dot(Writer(101));
    let knows_as_much = greets_as(&mut second.clone(), vec![(Writer(101), n)]);
    greeted_by_stranger(&mut fourth, knows_as_much);
    while let Some(message) = copy.tell(fourth.id) {
        assert_eq!(fourth.hears(copy.id, message), Ok(()));
    }
    steps(&mut fourth);
    assert!(fourth.peers.last_dot(Writer(101)) > n);
    let third = Refused::ThirdWentBack(Writer(101));
    assert_eq!(fourth.peers.refusal(), Some((second.id, third)));
    assert_eq!((fourth.peers.refusal(), fourth.tell(second.id)), (None, None), "the link is down");
    assert!(fourth.peers.is_linked(STRANGER) && fourth.peers.is_linked(copy.id));
    assert_eq!(fourth.hears(STRANGER, news(101, n + 1)), Err(third));
    // The one that has gone back, and has made nothing since, hears of what it has lost.
    let [mut copy, ..] = goes_on_from_a_copy(0);
    greeted_by_stranger(&mut copy, greets_as(&mut second, Vec::new()));
    assert_eq!(copy.hears(STRANGER, news(101, n + 1)), Err(Refused::ThisWentBack));
}

/// A file that is in a directory of the first site, by another one.
fn file_in(dir: FileId, by: Writer) -> BundleChange {
    let (dot, stamp) = (Dot { writer: by, n: 1 }, HybridStamp { time_us: 1, writer: by });
    let birth = FileBirth { kind: Kind::Symlink, rdev: 0, target: "to".into(), copy_of: None };
    let place = LinkPlace { stamp, dir, name: Name::new(b"f").unwrap(), entry: dot };
    let attrs = AttrState::new(stamp, 0o644, 0, 0, Time::default());
    let version = FileVersion { stamp, size: 0, mtime: Time::default(), root: 0 };
    let state = FileState::new(birth, dot, attrs, place, version);
    BundleChange::FileBorn { id: FileId::born(dot), state: Box::new(state) }
}

/// Found by `wide_sites` 4031633. Who told of the file never told of the directory. So the first site, which had lost it, gave its dot again.
#[test]
fn a_site_that_has_gone_back_is_noticed_by_one_that_has_a_file_in_a_directory_which_is_lost() {
    let mut first = taker(1, dirs(101, 8));
    (0..4).for_each(|_| assert!(first.work()));
    first.sync();
    let mut copy = Node::from_copy(&first);
    let mut world = World::new(vec![first, taker(3, Vec::new())], &[(0, 1)]);
    world.settle(true);
    let is_dir = |change: &BundleChange| match change {
        BundleChange::DirBorn { id, .. } => Some(*id),
        _ => None,
    };
    let dir = dirs(101, 8).last().unwrap().changes.iter().find_map(is_dir).unwrap();
    let mut second = taker(2, Vec::new());
    greeted_by_stranger(&mut second, greets_as(&mut world.nodes[1], vec![(Writer(101), dir.birth().n)]));
    let bundle = Bundle { position: 1, changes: vec![file_in(dir, Writer(99))] };
    assert_eq!(second.hears(STRANGER, WideMessage::Bundle { bundle }), Ok(()));
    steps(&mut second);
    second.restart(true);
    assert_eq!(meet(&mut copy, &mut second)[0], Err(Refused::ThisWentBack));
}

/// Three sites. The first one has passed so many changes of the third one on to the second one since its disk was copied: the copy, and the
/// others.
fn loses_what_it_passed_on(changes: u64) -> [Node; 3] {
    let nodes = vec![taker(1, dirs(101, 4)), taker(2, Vec::new()), taker(3, dirs(103, changes))];
    let mut world = World::new(nodes, &[(0, 1), (0, 2)]);
    work(&mut world.nodes[0]);
    world.settle(false);
    let copy = Node::from_copy(&world.nodes[0]);
    world.settle(true);
    world.compare();
    let [_, second, third] = world.nodes.try_into().unwrap_or_else(|_| panic!("there are three"));
    [copy, second, third]
}

/// What the first site had told before it went back came from others. So no change of its own tells that it has gone back, but the second
/// one has its feed up to where it has something else now.
#[test]
fn a_site_that_has_gone_back_and_only_passed_on_what_it_lost_is_refused_by_one_that_heard_it() {
    let [mut copy, mut second, _] = loses_what_it_passed_on(4);
    // As the third one did, another one tells it something first.
    let mut world = World::new(vec![copy, taker(4, dirs(104, 10))], &[(0, 1)]);
    while world.nodes[1].work() {
        world.settle(false);
    }
    copy = world.nodes.swap_remove(0);
    assert!(copy.records() > second.peers.upto(copy.id).0);
    let said = meet(&mut copy, &mut second);
    assert_eq!(said, [Err(Refused::ThisWentBack), Err(Refused::OtherWentBack)]);
}

/// A record of the former feed, which the second site has, and records of the copy that change no objects have the same positions.
#[test]
fn a_site_that_has_gone_back_and_has_begun_with_as_many_records_as_it_had_lost_is_refused() {
    let [mut copy, mut second, mut third] = loses_what_it_passed_on(2);
    while copy.records() < second.peers.upto(copy.id).0 {
        copy.sets_other_record();
    }
    let refused = [Err(Refused::ThisWentBack), Err(Refused::OtherWentBack)];
    assert_eq!(meet(&mut copy, &mut second), refused);
    // What it does then begins a life, and the records before are of that life.
    let mut fresh = taker(4, dirs(104, 1));
    assert!(fresh.work());
    let mut world = World::new(vec![copy, fresh], &[(0, 1)]);
    world.settle(false);
    let [mut copy, _] = world.nodes.try_into().unwrap_or_else(|_| panic!("there are two"));
    assert_eq!(meet(&mut copy, &mut second), refused);
    // One that has not gone back is greeted behind such records, before and behind its next change.
    third.restart(false);
    third.sets_other_record();
    let mut other = taker(5, Vec::new());
    assert_eq!(meet(&mut third, &mut other), [Ok(()), Ok(())]);
    let mut world = World::new(vec![third, other], &[(0, 1)]);
    world.settle(false);
    world.nodes[0].sets_other_record();
    world.nodes[0].users_do(dirs(103, 4));
    work(&mut world.nodes[0]);
    world.settle(false);
    world.compare();
    let [mut third, mut other] = world.nodes.try_into().unwrap_or_else(|_| panic!("there are two"));
    other.restart(true);
    assert_eq!(meet(&mut third, &mut other), [Ok(()), Ok(())]);
}
