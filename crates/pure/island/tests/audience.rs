//! Who must apply an entry of the journal before anybody is told that it is so, and when the others get it.

mod common;

use std::collections::VecDeque;

use atoll_core::{Ino, IslandId, Name, SessionId, Stamp};
use atoll_island::{Effect, Event, Island, LinkId, Now, OUTBOX_BYTES_MAX};
use atoll_posix::{Caller, Op, RenameMode, SetAttr};
use atoll_proto::{ClientOp, ParticipantWork, PeerMessage, PeerOp, Request};
use bytes::Bytes;
use common::{Client, ISLANDS, Three, done_at_once, rename_of};

/// Three islands that write and sync at once, and a client.
struct World {
    islands: Vec<Island>,
    mail: VecDeque<(u16, PeerMessage)>,
    /// Messages that have left, from whom and to whom.
    sent: Vec<(u16, u16, PeerOp)>,
    /// Nothing arrives at this island.
    deaf: Option<u16>,
    /// No journal arrives at this island.
    without_journals: Option<u16>,
    /// This island's disk syncs nothing yet.
    slow: Option<u16>,
    client: Client,
    /// What replies have told the client of the clocks, since it was last looked at.
    told: Vec<(IslandId, Stamp)>,
    /// What the client says that it has seen.
    seen: Vec<(IslandId, Stamp)>,
    names: u32,
    begun: u64,
}

impl World {
    fn new() -> Self {
        let (islands, client) = (common::islands(OUTBOX_BYTES_MAX), Client::default());
        let (mail, sent, told) = (VecDeque::new(), Vec::new(), Vec::new());
        let mut world = Self {
            islands,
            mail,
            sent,
            deaf: None,
            without_journals: None,
            slow: None,
            client,
            told,
            seen: Vec::new(),
            names: 0,
            begun: 1 << 32,
        };
        world.connect();
        world.attach();
        world
    }

    /// With a directory in the root that only its owner, the first of these islands, and the root's, the last, have anything of.
    fn with_leaf() -> (Self, Ino, (u16, u16, u16)) {
        let mut world = Self::new();
        let islands = world.islands_beside_root();
        let (dir, _) = world.dir_of(islands.0, Ino::ROOT);
        world.settle();
        (world, dir, islands)
    }

    fn name(&mut self) -> Name {
        self.names += 1;
        Name::new(self.names.to_string().as_bytes()).unwrap()
    }

    /// A new directory in `above` that is this island's.
    fn dir_of(&mut self, owner: u16, above: Ino) -> (Ino, Name) {
        loop {
            let name = self.name();
            let dir = self.mkdir(above, &name).unwrap();
            if self.owner(dir).0 == owner {
                return (dir, name);
            }
        }
    }

    /// All that was posted is everywhere, and is known to be safe.
    fn settle(&mut self) {
        (0..8).for_each(|_| self.pass());
        self.sent.clear();
        self.told.clear();
    }

    fn chmod(&mut self, dir: Ino, mode: u32) {
        self.ask(dir, Op::SetAttr { ino: dir, set: SetAttr { mode: Some(mode), ..SetAttr::default() } })
            .unwrap();
    }

    /// How far an island has a journal.
    fn clock(&self, at: u16, of: u16) -> Stamp {
        self.state(at).clocks().get(IslandId(of))
    }

    fn mode_at(&self, at: u16, dir: Ino) -> Option<u32> {
        self.state(at).dir(dir).unwrap().map(|row| row.fixed.mode)
    }

    /// Sends an operation, whose answer is not waited for.
    fn begin(&mut self, to: u16, op: Op) {
        self.begun += 1;
        let (id, vector, caller, session) = (self.begun, Vec::new(), Caller::ROOT, SessionId(1));
        let op = match op {
            Op::Rename { dir, new_dir, .. } if dir != new_dir => {
                ClientOp::Rename { op, key: self.owner(new_dir).1 }
            }
            op => ClientOp::Fs { op },
        };
        let request = Request { session, seq: id, acked: 0, table: 1, vector, caller, op };
        self.event(to, Event::Request { link: LinkId(1), id, request, data: Bytes::new() });
        self.deliver();
    }

    /// To whom journals have gone, in order.
    fn journals(&self) -> Vec<(u16, u16)> {
        let journal = |(from, to, op): &(u16, u16, PeerOp)| {
            matches!(op, PeerOp::Journal { .. }).then_some((*from, *to))
        };
        self.sent.iter().filter_map(journal).collect()
    }

    /// Two islands that own no root, in the order of their numbers, and the one that does.
    fn islands_beside_root(&self) -> (u16, u16, u16) {
        let (root, _) = self.owner(Ino::ROOT);
        let mut others = (0..ISLANDS).filter(|at| *at != root);
        (others.next().unwrap(), others.next().unwrap(), root)
    }
}

impl Three for World {
    const PASSES: usize = 60;

    fn islands(&self) -> &[Island] {
        &self.islands
    }

    fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    fn seen(&mut self) -> Vec<(IslandId, Stamp)> {
        self.seen.clone()
    }

    fn event(&mut self, at: u16, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let (mut out, island) = (Vec::new(), &mut self.islands[usize::from(at)]);
            island.handle(Now { ms: self.client.ms, ..Now::default() }, event, &mut out);
            island.check();
            let synced = island.state().seq();
            for effect in out {
                match effect {
                    Effect::Sync if self.slow == Some(at) => {}
                    Effect::Reply { id, reply, .. } => {
                        self.told.extend(reply.vector);
                        self.client.replies.push((id, reply.outcome));
                    }
                    Effect::Send(to, message) => {
                        self.sent.push((at, to.0, message.op.clone()));
                        self.mail.push_back((to.0, message));
                    }
                    effect => events.extend(done_at_once(effect, synced)),
                }
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((to, message)) = self.mail.pop_front() {
            let is_lost = self.without_journals == Some(to) && matches!(message.op, PeerOp::Journal { .. });
            if self.deaf != Some(to) && !is_lost {
                self.event(to, Event::Peer(message));
            }
        }
    }
}

#[test]
fn attributes_of_a_leaf_go_to_the_owner_of_the_directory_above_at_once_and_to_others_within_a_second() {
    let (mut world, dir, (one, other, root)) = World::with_leaf();
    world.chmod(dir, 0o700);
    assert_eq!(world.journals(), [(one, root)]);
    assert_eq!(world.told, [], "nobody who needs it has not applied it");
    assert_eq!(world.clock(root, one), world.clock(one, one));
    world.chmod(dir, 0o711);
    (0..5).for_each(|_| world.pass());
    assert_eq!(world.journals(), [(one, root), (one, root), (one, other)], "two entries in one message");
    assert_eq!(world.clock(other, one), world.clock(one, one));
    assert!((0..ISLANDS).all(|at| world.state(at).inbox(IslandId(one)).next().is_none()), "nothing is kept");
}

pub(crate) fn attributes_of_a_directory_that_others_know_go_to_all() {
    for links in [false, true] {
        let mut world = World::new();
        let (one, other, _) = world.islands_beside_root();
        let (dir, _) = world.dir_of(one, Ino::ROOT);
        let name = world.name();
        if links {
            // A file that another island is home of gets a name in it.
            let file = world.fifo(Ino::ROOT, &name).unwrap();
            world.ask(dir, Op::Link { ino: file, dir, name }).unwrap();
        } else {
            world.dir_of(other, dir);
        }
        world.settle();
        world.chmod(dir, 0o700);
        assert_eq!(world.journals().len(), 2, "links: {links}");
        if !links {
            assert_eq!(world.mode_at(other, dir), Some(0o700));
        }
    }
}

#[test]
fn attributes_of_a_directory_that_others_know() {
    attributes_of_a_directory_that_others_know_go_to_all();
}

#[test]
fn an_empty_directory_is_a_leaf_again() {
    let mut world = World::new();
    let (one, other, _) = world.islands_beside_root();
    let (dir, _) = world.dir_of(one, Ino::ROOT);
    let (_, below) = world.dir_of(other, dir);
    let all = world.names;
    for name in (0..=all).map(|n| Name::new(n.to_string().as_bytes()).unwrap()) {
        _ = world.ask(dir, Op::Rmdir { dir, name, meant: None });
    }
    assert_eq!(world.state(one).entry(dir, &below), Ok(None));
    world.settle();
    world.chmod(dir, 0o700);
    assert_eq!(world.journals().len(), 1);
}

#[test]
fn a_leaf_is_renamed_for_nobody_else_if_its_owner_owns_the_directory_above() {
    for leaf in [true, false] {
        let mut world = World::new();
        let (_, other, root) = world.islands_beside_root();
        let (dir, name) = world.dir_of(root, Ino::ROOT);
        if !leaf {
            world.dir_of(other, dir);
        }
        world.settle();
        let to = world.name();
        world.rename((Ino::ROOT, &name), (Ino::ROOT, &to), RenameMode::Replace).unwrap();
        assert_eq!(world.journals().len(), if leaf { 0 } else { 2 });
        (0..5).for_each(|_| world.pass());
        assert_eq!(world.journals().len(), 2);
    }
}

#[test]
fn a_client_is_told_of_an_entry_as_long_as_somebody_who_needs_it_lacks_it() {
    let (mut world, dir, (one, _, root)) = World::with_leaf();
    world.deaf = Some(root);
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    world.begin(one, Op::SetAttr { ino: dir, set });
    // Somebody else would see it, and then ask the other island.
    world.ask(dir, Op::GetAttr { ino: dir }).unwrap();
    let stamp = world.clock(one, one);
    assert_eq!(world.told, [(IslandId(one), stamp)]);
}

#[test]
fn who_takes_a_directory_in_one_that_has_changed_knows_it_as_it_is() {
    let (mut world, dir, (one, other, root)) = World::with_leaf();
    world.chmod(dir, 0o700);
    assert_eq!(world.journals(), [(one, root)]);
    let before = world.client.ms;
    let (below, _) = world.dir_of(other, dir);
    assert_eq!(world.client.ms, before, "it waits for nothing");
    assert_eq!((world.mode_at(other, dir), world.owner(below).0), (Some(0o700), other));
    (0..5).for_each(|_| world.pass());
    assert_eq!(world.mode_at(other, dir), Some(0o700));
}

#[test]
fn an_island_that_dies_behind_a_change_of_a_leaf_stops_nobody() {
    let mut world = World::new();
    let (one, other, root) = world.islands_beside_root();
    let (dir, _) = world.dir_of(one, Ino::ROOT);
    // A name whose directory is the other island's.
    let (_, name) = world.dir_of(other, Ino::ROOT);
    world.ask(Ino::ROOT, Op::Rmdir { dir: Ino::ROOT, name: name.clone(), meant: None }).unwrap();
    world.settle();
    world.chmod(dir, 0o700);
    for at in [other, root] {
        world.event(at, Event::PeerReachable { island: IslandId(one), up: false });
    }
    world.deaf = Some(one);
    // One of them has its last entry, and the other one has not.
    assert!(world.clock(other, one) < world.clock(root, one));
    let before = world.client.ms;
    let made = world.mkdir(Ino::ROOT, &name).unwrap();
    assert_eq!((world.owner(made).0, world.client.ms), (other, before));
}

#[test]
fn nobody_waits_for_an_island_that_is_away_and_its_directories_change() {
    let mut world = World::new();
    let (one, other, root) = world.islands_beside_root();
    let (dir, _) = world.dir_of(one, Ino::ROOT);
    let (leaf, _) = world.dir_of(other, dir);
    let (below, name) = world.dir_of(one, dir);
    world.settle();
    world.deaf = Some(root);
    world.event(one, Event::PeerReachable { island: IslandId(root), up: false });
    world.event(other, Event::PeerReachable { island: IslandId(root), up: false });
    let before = world.client.ms;
    world.chmod(below, 0o700);
    world.chmod(leaf, 0o700);
    world.chmod(dir, 0o700);
    // The client says what it has seen.
    world.seen = world.state(one).clocks().iter().collect();
    world.ask(leaf, Op::GetAttr { ino: leaf }).unwrap();
    world.ask(dir, Op::Rmdir { dir, name, meant: None }).unwrap();
    assert_eq!(world.client.ms, before);
}

#[test]
fn an_entry_that_waits_is_for_all_if_its_sender_says_so_meanwhile() {
    let (mut world, dir, (one, _, root)) = World::with_leaf();
    world.deaf = Some(root);
    world.begin(one, Op::SetAttr { ino: dir, set: SetAttr { mode: Some(0o700), ..SetAttr::default() } });
    let stamp = world.clock(one, one);
    let told = world.sent.iter().rev().find_map(|(from, to, op)| {
        (matches!(op, PeerOp::Journal { private: true, .. }) && (*from, *to) == (one, root))
            .then(|| op.clone())
    });
    let message = |op| PeerMessage { from: IslandId(one), incarnation: 1, vector: Vec::new(), op };
    let for_all = PeerOp::Journal { after: stamp, entries: Vec::new(), private: false };
    world.event(root, Event::Peer(message(for_all)));
    world.event(root, Event::Peer(message(told.expect("it was sent"))));
    assert_eq!(world.state(root).public_clocks().get(IslandId(one)), stamp);
}

#[test]
fn entries_that_are_not_applied_by_those_whom_they_are_for_are_bounded() {
    let (mut world, dir, (one, other, root)) = World::with_leaf();
    world.deaf = Some(root);
    for n in 0..300 {
        let set = SetAttr { mode: Some(0o700 + (n & 7)), ..SetAttr::default() };
        world.begin(one, Op::SetAttr { ino: dir, set });
    }
    assert!(world.journals().contains(&(one, other)), "the next is for all");
}

#[test]
fn ancestors_that_are_told_with_a_lent_name_survive_a_power_cut() {
    let mut world = World::new();
    let (one, _, root) = world.islands_beside_root();
    let [(from, _), (to, _)] = [(); 2].map(|()| world.dir_of(root, Ino::ROOT));
    let ((moves, name), (within, _)) = (world.dir_of(root, from), world.dir_of(one, Ino::ROOT));
    let [(first, first_name), (second, second_name)] = [(); 2].map(|()| world.dir_of(one, within));
    let file_name = world.name();
    let file = world.fifo(within, &file_name).unwrap();
    // The first name that a directory lends is synced by itself.
    world.rename((within, &first_name), (moves, &first_name), RenameMode::Replace).unwrap();
    world.settle();
    world.slow = Some(root);
    world.begin(root, rename_of((from, &name), (to, &name), RenameMode::Replace));
    let place = |world: &World| world.state(root).dir(moves).unwrap().unwrap().place.parent;
    assert_eq!(place(&world), to, "decided, and not synced");
    world.begin(one, rename_of((within, &second_name), (moves, &second_name), RenameMode::Replace));
    world.begin(root, Op::Link { ino: file, dir: moves, name: file_name });
    let tells = |op: &PeerOp| matches!(op, PeerOp::Voted { .. } | PeerOp::Prepare { .. });
    let told = |world: &World| world.sent.iter().filter(|(from, _, op)| *from == root && tells(op)).count();
    assert_eq!(told(&world), 0, "another island may build on a place that is lost");
    world.slow = None;
    let synced = world.state(root).seq();
    world.event(root, Event::Synced(synced));
    world.deliver();
    assert!(told(&world) > 0);
    let place = |world: &World, dir: Ino| world.state(one).dir(dir).unwrap().unwrap().place.parent;
    assert_eq!([first, second].map(|dir| place(&world, dir)), [moves; 2]);
}

#[test]
fn who_is_told_of_a_directory_can_bring_back_what_has_changed_it() {
    let (mut world, dir, (one, other, root)) = World::with_leaf();
    world.chmod(dir, 0o700);
    assert_eq!(world.journals(), [(one, root)]);
    // One that the other island owns: it is told the directories above.
    world.dir_of(other, dir);
    assert_eq!(world.mode_at(other, dir), Some(0o700));
    assert_eq!(world.clock(other, one), world.clock(one, one));
}

#[test]
fn who_is_told_of_a_directory_with_a_lent_name_can_bring_back_what_has_changed_it() {
    let mut world = World::new();
    let (one, other, _) = world.islands_beside_root();
    let [(to, _), (from, _)] = [one, other].map(|owner| world.dir_of(owner, Ino::ROOT));
    let (dir, dir_name) = world.dir_of(one, to);
    let (first, second) = (world.name(), world.name());
    // A file of the lender's in the other's directory, and one that the lender has lent a name for before.
    world.fifo(to, &first).unwrap();
    world.rename((to, &first), (from, &first), RenameMode::Replace).unwrap();
    world.fifo(from, &second).unwrap();
    world.rename((from, &second), (to, &second), RenameMode::Replace).unwrap();
    world.settle();
    world.chmod(dir, 0o700);
    assert_eq!(world.journals(), [], "it owns the directory above");
    world.rename((from, &first), (to, &dir_name), RenameMode::Exchange).unwrap();
    assert_eq!(
        world.clock(other, one),
        world.clock(one, one),
        "it has the directory's attributes, and not the change"
    );
}

#[test]
fn a_known_directory_changes_by_the_journal_alone() {
    let mut world = World::new();
    let (one, other, _) = world.islands_beside_root();
    let (dir, _) = world.dir_of(one, Ino::ROOT);
    let (there, _) = world.dir_of(other, Ino::ROOT);
    let [first, second, third] = [(); 3].map(|()| world.name());
    // A file of the other island gets a name in it.
    let file = world.fifo(there, &first).unwrap();
    world.ask(dir, Op::Link { ino: file, dir, name: second }).unwrap();
    world.settle();
    world.without_journals = Some(other);
    world.begin(one, Op::SetAttr { ino: dir, set: SetAttr { mode: Some(0o700), ..SetAttr::default() } });
    world.begin(one, Op::Link { ino: file, dir, name: third });
    let chain = |sent: &(u16, u16, PeerOp)| match &sent.2 {
        PeerOp::Prepare { work: ParticipantWork::AddName { chain, .. }, .. } => {
            chain.dirs.last().map(|last| last.fixed.mode)
        }
        _ => None,
    };
    assert_eq!(world.sent.iter().find_map(chain), Some(0o700), "it is told what it has not applied");
    assert!(world.clock(other, one) < world.clock(one, one));
    assert_ne!(world.mode_at(other, dir), Some(0o700), "it could not bring that back, and would keep it");
}

#[test]
fn changes_of_leaves_are_told_to_others_in_large_batches() {
    let (mut world, dir, (one, other, root)) = World::with_leaf();
    for n in 0..2_100 {
        world.chmod(dir, 0o700 + (n & 1));
    }
    let to_other = world.journals().into_iter().filter(|to| *to == (one, other)).count();
    assert_eq!(to_other, 0, "it is told at a tick");
    world.event(one, Event::Tick { bytes_available: 1 << 40 });
    world.deliver();
    let entries = world.sent.iter().filter_map(|sent| match sent {
        (_, to, PeerOp::Journal { entries, .. }) if *to == other => Some(entries.len()),
        _ => None,
    });
    assert_eq!(entries.sum::<usize>(), 2_100);
    assert_eq!(world.clock(other, one), world.clock(root, one));
    assert!(world.journals().contains(&(one, other)), "and long before its time");
}
