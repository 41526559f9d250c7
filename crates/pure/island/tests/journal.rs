//! Others' journals at one island: who waits for them, and what is applied when.

use atoll_core::{Ino, IslandId, Key, Name, SessionId, Stamp, Table, Time};
use atoll_island::{Config, Effect, Event, Island, LinkId, Now, Phase, PreviousEnd};
use atoll_posix::{Answer, Caller, Kind, Op};
use atoll_proto::{
    Chain, ClientOp, Dir, DirPlace, EntryRef, JournalEntry, Outcome, PeerMessage, PeerOp, PlaceVersion,
    Request, RowChange, StaticAttrs, Xattrs,
};
use atoll_state::State;
use bytes::Bytes;

const ME: IslandId = IslandId(0);
const OTHER: IslandId = IslandId(1);
const THIRD: IslandId = IslandId(2);
const DIR: Ino = Ino(77);

/// One of three islands, that writes and syncs at once.
struct World {
    island: Island,
    replies: Vec<(u64, Outcome)>,
    sent: Vec<(IslandId, PeerOp)>,
    /// What the last reply told of the clocks.
    stamps: Vec<(IslandId, Stamp)>,
    next: u64,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn fixed(stamp: u64, mode: u32) -> StaticAttrs {
    StaticAttrs { version: Stamp(stamp), mode, uid: 0, gid: 0 }
}

impl World {
    fn new() -> Self {
        let config = Config::new(ME, 1, Table::new(3), vec![ME, OTHER, THIRD]);
        let island = Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default());
        let (replies, sent, stamps) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = Self { island, replies, sent, stamps, next: 0 };
        for island in [OTHER, THIRD] {
            world.event(Event::PeerReachable { island, up: true });
            world.tell_all(island);
        }
        world.event(Event::Tick { bytes_available: 1 << 40 });
        world.ask(1, ClientOp::Attach { mount: false }, Vec::new());
        let row = Dir {
            key: Key(1),
            birth_bytes: 0,
            place: DirPlace { version: PlaceVersion::default(), parent: Ino::ROOT, name: Some(name("d")) },
            fixed: fixed(0, 0o755),
            has_xattrs: false,
            has_acl: false,
            children: 0,
            foreign_names: 1,
            owned: None,
            beside: None,
        };
        world.island.correct(vec![RowChange::Dir { ino: DIR, row: Some(Box::new(row)) }], Vec::new());
        world.event(Event::Tick { bytes_available: 1 << 40 });
        world
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.island.handle(Now::default(), event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, ..) => self.event(Event::Committed(seq)),
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { id, reply, .. } => {
                    self.replies.push((id, reply.outcome));
                    self.stamps = reply.vector;
                }
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    self.event(Event::Loaded { load, generation, loaded });
                }
                Effect::Send(to, message) => self.sent.push((to, message.op)),
                Effect::Checkpoint { .. } => self.event(Event::CheckpointDone),
                other => panic!("{other:?}"),
            }
        }
    }

    /// That island has told this life everything.
    fn tell_all(&mut self, from: IslandId) {
        let to = self.island.state().meta().incarnation;
        self.tell(from, PeerOp::HelloDone { to });
    }

    fn tell(&mut self, from: IslandId, peer: PeerOp) {
        self.event(Event::Peer(PeerMessage { from, incarnation: 1, vector: Vec::new(), op: peer }));
    }

    /// Sends a request over a link. Its number.
    fn ask(&mut self, link: u64, op: ClientOp, vector: Vec<(IslandId, Stamp)>) -> u64 {
        self.next += 1;
        let (id, table) = (self.next, self.island.config().table.version());
        let (session, caller) = (SessionId(1), Caller::ROOT);
        let request = Request { session, seq: 0, acked: 0, table, vector, caller, op };
        self.event(Event::Request { link: LinkId(link), id, request, data: Bytes::new() });
        id
    }

    fn is_answered(&self, id: u64) -> bool {
        self.replies.iter().any(|(of, _)| *of == id)
    }
}

fn look() -> ClientOp {
    ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } }
}

fn chmod(stamp: u64, mode: u32) -> (Stamp, JournalEntry) {
    let place = DirPlace { version: PlaceVersion::default(), parent: Ino::ROOT, name: Some(name("d")) };
    (
        Stamp(stamp),
        JournalEntry::StaticAttrs { ino: DIR, place, fixed: fixed(stamp, mode), xattrs: Xattrs::default() },
    )
}

/// A rename that its coordinator decided when it had seen this much.
fn rename(stamp: u64, seen: Vec<(IslandId, Stamp)>) -> (Stamp, JournalEntry) {
    let version = PlaceVersion { moves: 0, stamp: Stamp(stamp) };
    let place = DirPlace { version, parent: Ino::ROOT, name: Some(name("e")) };
    let from = EntryRef { dir: Ino::ROOT, name: name("d") };
    let chain = Chain { vector: seen, dirs: Vec::new() };
    (
        Stamp(stamp),
        JournalEntry::Place { ino: DIR, place, from, replaced: None, chain, time: Time::default() },
    )
}

#[test]
fn who_waits_for_what_was_applied_goes_on_although_what_follows_waits() {
    let mut world = World::new();
    let early = world.ask(1, look(), vec![(OTHER, Stamp(1))]);
    assert!(!world.is_answered(early), "it has seen what this island has not");
    // What follows was decided on something of a third island's.
    let entries = vec![chmod(1, 0o700), rename(2, vec![(THIRD, Stamp(9))])];
    world.tell(OTHER, PeerOp::Journal { after: Stamp(0), entries, private: false });
    assert_eq!(world.island.state().clocks().get(OTHER), Stamp(1));
    assert!(world.is_answered(early), "the first entry was applied");
}

impl World {
    /// The last question to an island about the end of its journal.
    fn last_ask(&self, of: IslandId) -> u64 {
        let ask = |(to, op): &(IslandId, PeerOp)| match op {
            PeerOp::WantJournalEnd { ask } if *to == of => Some(*ask),
            _ => None,
        };
        self.sent.iter().rev().find_map(ask).expect("it was asked")
    }
}

#[test]
fn a_stamp_that_was_never_given_holds_up_who_has_seen_it_until_its_island_says_so() {
    let mut world = World::new();
    let far = Stamp::new(1, 1 << 39);
    let early = world.ask(1, look(), vec![(OTHER, far)]);
    let ask = world.last_ask(OTHER);
    assert!(!world.is_answered(early), "it may have been given");
    // What others say of that journal counts for nothing, nor does what was not asked.
    world.tell(THIRD, PeerOp::JournalEnd { ask, upto: Stamp(0) });
    world.tell(OTHER, PeerOp::JournalEnd { ask: u64::MAX, upto: Stamp(0) });
    assert!(!world.is_answered(early));
    // There is more of the journal than is here.
    world.tell(OTHER, PeerOp::JournalEnd { ask, upto: Stamp(1) });
    assert!(!world.is_answered(early), "this island has not all that may have been seen");
    let late = world.ask(1, look(), Vec::new());
    world.tell(OTHER, PeerOp::Journal { after: Stamp(0), entries: vec![chmod(1, 0o700)], private: false });
    assert!(world.is_answered(early), "it has all that was there when this came");
    assert!(!world.is_answered(late), "there may have been more when this came");
    // An answer to an earlier question comes late.
    world.tell(OTHER, PeerOp::JournalEnd { ask, upto: Stamp(1) });
    assert!(!world.is_answered(late));
    let ask = world.last_ask(OTHER);
    world.tell(OTHER, PeerOp::JournalEnd { ask, upto: Stamp(1) });
    assert!(world.is_answered(late));
}

#[test]
fn a_stamp_that_was_never_given_is_forgotten_when_who_told_it_says_it_no_more() {
    let mut world = World::new();
    world.tell(OTHER, PeerOp::Journal { after: Stamp(0), entries: vec![chmod(1, 0o700)], private: false });
    let far = Stamp::new(1, 1 << 39);
    let lied = world.ask(1, look(), vec![(OTHER, far)]);
    let ask = world.last_ask(OTHER);
    world.tell(OTHER, PeerOp::JournalEnd { ask, upto: Stamp(1) });
    assert!(world.is_answered(lied));
    let again = world.ask(1, look(), Vec::new());
    assert!(!world.is_answered(again), "it may have been given since");
    world.ask(1, ClientOp::Renew, vec![(OTHER, Stamp(1))]);
    let found_out = world.ask(1, look(), Vec::new());
    assert!(world.is_answered(found_out));
    // What was told behind the last answer may be so.
    let late = world.ask(1, look(), vec![(OTHER, Stamp(2))]);
    let later = world.ask(1, ClientOp::Renew, vec![(OTHER, Stamp(1))]);
    assert!(world.is_answered(later) && !world.is_answered(late));
    let behind = world.ask(1, look(), Vec::new());
    assert!(!world.is_answered(behind), "a message that comes late takes nothing back");
}

#[test]
fn a_sign_of_life_is_answered_with_the_islands_own_clock() {
    let mut world = World::new();
    for _ in 0..2 {
        world.ask(1, ClientOp::Renew, Vec::new());
        assert_eq!(world.stamps, [(ME, world.island.state().clocks().get(ME))]);
    }
    world.ask(1, look(), Vec::new());
    assert!(world.stamps.is_empty(), "that is no news");
}

#[test]
fn an_island_says_how_far_its_journal_goes() {
    let mut world = World::new();
    world.tell(OTHER, PeerOp::WantJournalEnd { ask: 5 });
    let upto = world.island.state().clocks().get(ME);
    assert_eq!(world.sent.pop(), Some((OTHER, PeerOp::JournalEnd { ask: 5, upto })));
}

#[test]
fn what_a_client_has_seen_counts_for_all_its_requests_on_that_link() {
    let mut world = World::new();
    let first = world.ask(1, look(), vec![(OTHER, Stamp(1))]);
    // It tells what is news only.
    let second = world.ask(1, look(), Vec::new());
    assert!(!world.is_answered(first) && !world.is_answered(second));
    world.tell(OTHER, PeerOp::Journal { after: Stamp(0), entries: vec![chmod(1, 0o700)], private: false });
    assert!(world.is_answered(first) && world.is_answered(second));
}

#[test]
fn the_first_entry_of_a_life_follows_the_last_one_of_the_life_before() {
    let mut world = World::new();
    let before = Stamp::new(1, 5);
    world.island.correct(vec![RowChange::Clock { island: ME, stamp: before }], Vec::new());
    world.event(Event::Tick { bytes_available: 1 << 40 });
    let (config, state) = (world.island.config().clone(), world.island.state().clone());
    world.island = Island::new(config, state, PreviousEnd::PowerCut, Now::default());
    world.sent.clear();
    for island in [OTHER, THIRD] {
        world.event(Event::PeerReachable { island, up: true });
        world.tell_all(island);
    }
    let posted = world.sent.iter().find_map(|(_, peer)| match peer {
        PeerOp::Journal { after, entries, .. } if !entries.is_empty() => Some((*after, entries.clone())),
        _ => None,
    });
    let (after, entries) = posted.expect("an unclean start moves the clock on");
    assert_eq!((after, entries[0].1.clone()), (before, JournalEntry::ClockBump));
}

#[test]
fn an_outbox_is_bounded_and_whoever_was_away_is_told_to_compare() {
    let mut world = World::new();
    let max = world.island.config().outbox_max;
    world.event(Event::PeerReachable { island: OTHER, up: false });
    let many = max as u64 + 10;
    let posted = (1..=many).map(|n| {
        let stamp = Stamp::new(1, n + 100);
        RowChange::Posted { stamp, entry: JournalEntry::ClockBump }
    });
    world.island.correct(
        posted.chain([RowChange::Clock { island: ME, stamp: Stamp::new(1, many + 100) }]).collect(),
        Vec::new(),
    );
    // What is not synced is kept.
    world.event(Event::Tick { bytes_available: 1 << 40 });
    let (config, state) = (world.island.config().clone(), world.island.state().clone());
    world.island = Island::new(config, state, PreviousEnd::Orderly, Now::default());
    for island in [OTHER, THIRD] {
        world.event(Event::PeerReachable { island, up: island == THIRD });
        world.tell_all(island);
    }
    world.event(Event::Tick { bytes_available: 1 << 40 });
    world.tell(THIRD, PeerOp::Applied { upto: Stamp::new(1, many + 100), synced: true });
    world.event(Event::Tick { bytes_available: 1 << 40 });
    let state = world.island.state();
    assert_eq!(state.first_posted(), None, "nobody needs an entry any more");
    assert_eq!(state.skipped(OTHER), Stamp::new(1, many + 100));
    world.sent.clear();
    world.event(Event::PeerReachable { island: OTHER, up: true });
    let told =
        world.sent.iter().any(|(to, peer)| *to == OTHER && matches!(peer, PeerOp::JournalSkipped { .. }));
    assert!(told, "{:?}", world.sent);
}

#[test]
fn whoever_has_not_told_what_was_lost_is_not_told_that_what_came_later_is_kept() {
    let mut world = World::new();
    world.island.correct(vec![RowChange::Clock { island: ME, stamp: Stamp::new(1, 5) }], Vec::new());
    world.event(Event::Tick { bytes_available: 1 << 40 });
    let (config, state) = (world.island.config().clone(), world.island.state().clone());
    // The one that was told of a record that the power cut took is away while this island starts.
    world.island = Island::new(config, state, PreviousEnd::PowerCut, Now::default());
    world.event(Event::PeerReachable { island: OTHER, up: false });
    world.event(Event::PeerReachable { island: THIRD, up: true });
    world.tell_all(THIRD);
    world.event(Event::Tick { bytes_available: 1 << 40 });
    let kept = |world: &World, by: IslandId| {
        let upto = world.sent.iter().filter_map(|(to, peer)| match peer {
            PeerOp::JournalDurable { upto } if *to == by => Some(*upto),
            _ => None,
        });
        upto.max()
    };
    let later = world.island.state().clocks().get(ME);
    assert_eq!((later.incarnation(), kept(&world, THIRD)), (2, Some(later)));
    world.sent.clear();
    world.event(Event::PeerReachable { island: OTHER, up: true });
    world.tell(OTHER, PeerOp::Hello);
    world.event(Event::Tick { bytes_available: 1 << 40 });
    assert_eq!(kept(&world, OTHER), None, "it would forget what it alone has, which is not done again yet");
    world.tell_all(OTHER);
    world.event(Event::Tick { bytes_available: 1 << 40 });
    assert!(kept(&world, OTHER) >= Some(later));
}

#[test]
pub(crate) fn what_was_said_to_an_earlier_life_is_not_all_that_others_know() {
    let mut world = World::new();
    world.event(Event::Tick { bytes_available: 1 << 40 });
    let (config, state) = (world.island.config().clone(), world.island.state().clone());
    world.island = Island::new(config, state, PreviousEnd::PowerCut, Now::default());
    for island in [OTHER, THIRD] {
        world.event(Event::PeerReachable { island, up: true });
    }
    world.tell_all(THIRD);
    world.tell(OTHER, PeerOp::HelloDone { to: 1 });
    assert_ne!(world.island.phase(), Phase::Normal, "it may still decide by votes of that life");
    world.tell_all(OTHER);
    assert_eq!(world.island.phase(), Phase::Normal);
}

#[test]
fn who_has_another_life_is_told_all_although_its_question_was_dropped() {
    let mut world = World::new();
    world.sent.clear();
    let (vector, op) = (Vec::new(), PeerOp::LinksHeld { digest: 0 });
    for (incarnation, is_news) in [(2, true), (2, false), (1, false)] {
        let message = PeerMessage { from: OTHER, incarnation, vector: vector.clone(), op: op.clone() };
        world.event(Event::Peer(message));
        let told = std::mem::take(&mut world.sent);
        assert_eq!(told.contains(&(OTHER, PeerOp::HelloDone { to: 2 })), is_news, "{told:?}");
    }
}

#[test]
fn two_directories_that_change_places_do_so_in_one_record() {
    let (above, other) = (Ino(78), Ino(79));
    let at = |parent: Ino, n: &str, moves: u32| {
        let version = PlaceVersion { moves, stamp: Stamp::default() };
        DirPlace { version, parent, name: Some(name(n)) }
    };
    let mut world = World::new();
    let dir = |place: DirPlace, below: u32, homes: u32| Dir {
        key: Key(1),
        birth_bytes: 0,
        place,
        fixed: fixed(0, 0o755),
        has_xattrs: false,
        has_acl: false,
        children: below,
        foreign_names: homes,
        owned: None,
        beside: None,
    };
    // Nothing but the one that leaves it keeps the directory that the other goes to.
    for (ino, row) in [(above, dir(at(Ino::ROOT, "above", 0), 1, 0)), (other, dir(at(above, "o", 0), 0, 1))] {
        world.island.correct(vec![RowChange::Dir { ino, row: Some(Box::new(row)) }], Vec::new());
        world.event(Event::Tick { bytes_available: 1 << 40 });
    }
    let mut root = world.island.state().dir(Ino::ROOT).unwrap().unwrap().clone();
    root.children += 2;
    world.island.correct(vec![RowChange::Dir { ino: Ino::ROOT, row: Some(Box::new(root)) }], Vec::new());
    world.event(Event::Tick { bytes_available: 1 << 40 });
    let goes = |ino: Ino, place: DirPlace, dir: Ino, n: &str| {
        let (chain, time) = (Chain { vector: Vec::new(), dirs: Vec::new() }, Time::default());
        JournalEntry::Place { ino, place, from: EntryRef { dir, name: name(n) }, replaced: None, chain, time }
    };
    let entries = vec![
        (Stamp(1), goes(other, at(Ino::ROOT, "d", 1), above, "o")),
        (Stamp(2), goes(DIR, at(above, "o", 1), Ino::ROOT, "d")),
    ];
    let before = world.island.state().seq();
    world.tell(OTHER, PeerOp::Journal { after: Stamp(0), entries, private: false });
    let state = world.island.state();
    let parent = |ino: Ino| state.dir(ino).unwrap().map(|row| row.place.parent);
    assert_eq!((state.seq() - before, state.clocks().get(OTHER)), (1, Stamp(2)));
    assert_eq!((parent(other), parent(DIR), parent(above)), (Some(Ino::ROOT), Some(above), Some(Ino::ROOT)));
}

impl World {
    /// Sends a change with its number in the session over a link. The number of the request there.
    fn change(&mut self, link: u64, seq: u64, op: Op) -> u64 {
        self.next += 1;
        let (id, table) = (self.next, self.island.config().table.version());
        let (session, caller) = (SessionId(1), Caller::ROOT);
        let op = ClientOp::Fs { op };
        let request = Request { session, seq, acked: 1, table, vector: Vec::new(), caller, op };
        self.event(Event::Request { link: LinkId(link), id, request, data: Bytes::new() });
        id
    }

    /// The island starts again, and hears from the others; its client takes its session up on this link.
    fn restart(&mut self, ended: PreviousEnd, link: u64) {
        let (config, state) = (self.island.config().clone(), self.island.state().clone());
        self.island = Island::new(config, state, ended, Now::default());
        for island in [OTHER, THIRD] {
            self.event(Event::PeerReachable { island, up: true });
            self.tell_all(island);
        }
        self.event(Event::Tick { bytes_available: 1 << 40 });
        self.ask(link, ClientOp::Dropped, Vec::new());
    }

    /// These islands have applied all of this one's journal.
    fn apply(&mut self, by: &[IslandId]) {
        let upto = self.island.state().clocks().get(ME);
        by.iter().for_each(|by| self.tell(*by, PeerOp::Applied { upto, synced: true }));
    }
}

fn set_mode(ino: Ino, mode: u32) -> Op {
    Op::SetAttr { ino, set: atoll_posix::SetAttr { mode: Some(mode), ..Default::default() } }
}

#[test]
fn a_repeated_chmod_is_answered_when_applied() {
    let mut world = World::new();
    let first = world.change(1, 1, set_mode(Ino::ROOT, 0o700));
    world.apply(&[OTHER]);
    assert!(!world.is_answered(first), "an island that can be reached would serve the old mode");
    // Its island dies before it is answered, and has the result in its rows.
    world.restart(PreviousEnd::Death, 2);
    let again = world.change(2, 1, set_mode(Ino::ROOT, 0o700));
    assert!(!world.is_answered(again), "an island that can be reached would serve the old mode");
    world.apply(&[OTHER]);
    assert!(!world.is_answered(again));
    // Asked once more, it waits no less, and only the last one is answered.
    let last = world.change(3, 1, set_mode(Ino::ROOT, 0o700));
    world.apply(&[THIRD]);
    assert!(world.is_answered(last) && !world.is_answered(again));
    // What others have applied and synced is known over a start, whatever they say in this life.
    world.restart(PreviousEnd::Orderly, 4);
    let known = world.change(4, 1, set_mode(Ino::ROOT, 0o700));
    assert!(world.is_answered(known), "nobody is to apply anything");
}

#[test]
fn a_repeated_change_waits_for_no_island_that_is_away_and_that_of_a_file_for_none() {
    let mut world = World::new();
    let (name, kind, target) = (name("f"), Kind::Fifo, Bytes::new());
    let dir = Ino::ROOT;
    let create = Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
    let made = world.change(1, 1, create);
    let answer = world.replies.iter().find(|(of, _)| *of == made).map(|(_, outcome)| outcome);
    let Some(Outcome::Ok { answer: Answer::Found { found }, .. }) = answer else { panic!("{answer:?}") };
    let file = found.attr.ino;
    let of_file = world.change(1, 2, set_mode(file, 0o600));
    assert!(world.is_answered(of_file));
    let of_dir = world.change(1, 3, set_mode(Ino::ROOT, 0o700));
    assert!(!world.is_answered(of_dir));
    world.restart(PreviousEnd::Death, 2);
    let of_file = world.change(2, 2, set_mode(file, 0o600));
    assert!(world.is_answered(of_file), "no other island keeps the attributes of a file");
    let of_dir = world.change(2, 3, set_mode(Ino::ROOT, 0o700));
    world.apply(&[OTHER]);
    assert!(!world.is_answered(of_dir));
    world.event(Event::PeerReachable { island: THIRD, up: false });
    assert!(world.is_answered(of_dir), "it gets the journal before it serves");
}
