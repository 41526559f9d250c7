//! Whatever a user makes large, no message is longer than a frame and no record longer than the log takes
//! (`docs/design/010-bounds.md`): three islands that tell each other everything at once.

mod common;

use std::collections::VecDeque;

use atoll_core::limits::{MESSAGE_BYTES_MAX, RECORD_BYTES_MAX};
use atoll_core::{Encode, H3, Ino, IslandId, Name, Stamp, Table, Time};
use atoll_island::{Effect, Event, Island, Now};
use atoll_posix::{Errno, Kind, Op, RenameMode, SetAttr, XattrMode};
use atoll_proto::{ClientOp, Outcome, PeerMessage};
use bytes::Bytes;

use atoll_proto::Dir;

use common::{Client, ISLANDS, Three};

/// Islands that write and sync at once, and a client of all of them.
struct World {
    islands: Vec<Island>,
    up: Vec<bool>,
    /// What this one sends does not arrive, and its links stay.
    mute: Option<u16>,
    mail: VecDeque<(IslandId, PeerMessage)>,
    client: Client,
    /// Lengths of the longest message and record in bytes.
    longest: (usize, usize),
}

impl World {
    fn new() -> Self {
        Self::with_outbox(atoll_island::OUTBOX_BYTES_MAX)
    }

    /// Of islands that keep so many bytes of their journals for others.
    fn with_outbox(outbox_bytes_max: u64) -> Self {
        let (islands, up) = (common::islands(outbox_bytes_max), vec![true; usize::from(ISLANDS)]);
        let (mail, client) = (VecDeque::new(), Client::default());
        let mut world = Self { islands, up, mute: None, mail, client, longest: (0, 0) };
        world.connect();
        world.attach();
        world
    }

    /// An island can be reached by the others, and reaches them, or not.
    fn meet(&mut self, at: u16, up: bool) {
        self.up[usize::from(at)] = up;
        for other in (0..ISLANDS).filter(|other| *other != at) {
            let up = up && self.up[usize::from(other)];
            self.event(at, Event::PeerReachable { island: IslandId(other), up });
            self.event(other, Event::PeerReachable { island: IslandId(at), up });
        }
        self.deliver();
    }

    /// Directories below each other with names as long as may be; the deepest last.
    fn line(&mut self, from: Ino, levels: usize) -> Vec<Ino> {
        let mut dirs = vec![from];
        for level in 0..levels {
            let next =
                self.mkdir(dirs[level], &long(level)).unwrap_or_else(|e| panic!("level {level}: {e:?}"));
            dirs.push(next);
        }
        dirs
    }

    /// All islands that have a directory say the same of where it is.
    fn agrees(&self, dir: Ino) {
        let (owner, _) = self.owner(dir);
        let place = &self.state(owner).dir(dir).unwrap().unwrap().place;
        for at in 0..ISLANDS {
            // What is not in memory is not there.
            if let Ok(Some(row)) = self.state(at).dir(dir) {
                assert_eq!(&row.place, place, "at {at}");
            }
        }
    }
}

impl Three for World {
    /// Whoever waits for one that says nothing is answered after ten seconds.
    const PASSES: usize = 50;

    fn islands(&self) -> &[Island] {
        &self.islands
    }

    fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    fn event(&mut self, at: u16, event: Event) {
        let mut out = Vec::new();
        // Less than the time between two checkpoints.
        let now = Now { wall: Time::default(), ms: self.client.ms };
        self.islands[usize::from(at)].handle(now, event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, record, _) => {
                    let bytes = record.encoded_len();
                    assert!(bytes <= RECORD_BYTES_MAX, "a record of {bytes} bytes");
                    self.longest.1 = bytes.max(self.longest.1);
                    self.event(at, Event::Committed(seq));
                }
                Effect::Sync => {
                    let seq = self.islands[usize::from(at)].state().seq();
                    self.event(at, Event::Synced(seq));
                }
                Effect::Reply { id, reply, .. } => {
                    let bytes = reply.encoded_len();
                    assert!(bytes <= MESSAGE_BYTES_MAX, "an answer of {bytes} bytes");
                    self.longest.0 = bytes.max(self.longest.0);
                    self.client.replies.push((id, reply.outcome));
                }
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    self.event(at, Event::Loaded { load, generation, loaded });
                }
                Effect::Send(to, message) => {
                    let bytes = message.encoded_len();
                    assert!(bytes <= MESSAGE_BYTES_MAX, "a message of {bytes} bytes");
                    self.longest.0 = bytes.max(self.longest.0);
                    if self.up[usize::from(at)] && self.up[usize::from(to.0)] && self.mute != Some(at) {
                        self.mail.push_back((to, message));
                    }
                }
                Effect::Checkpoint { .. } => self.event(at, Event::CheckpointDone),
                Effect::Notice(..) | Effect::Beside(..) => {}
                Effect::Body(..) => panic!("no file has bytes"),
                Effect::Damaged(damage) => panic!("{damage}"),
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((to, message)) = self.mail.pop_front() {
            self.event(to.0, Event::Peer(message));
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn long(n: usize) -> Name {
    name(&format!("{n:0255}"))
}

#[test]
fn a_thousand_levels_of_the_longest_names_fit_and_what_others_cannot_be_told_is_refused() {
    let mut world = World::new();
    let line = world.line(Ino::ROOT, 1000);
    let deepest = *line.last().unwrap();
    // Files and directories between the deepest directory and the root.
    for n in 0..6 {
        let (file, dir) = (long(2000 + n), long(3000 + n));
        let made = world.mkdir(Ino::ROOT, &dir).unwrap();
        world.fifo(made, &file).unwrap();
        world.rename((made, &file), (deepest, &file), RenameMode::Replace).unwrap();
        world.rename((Ino::ROOT, &dir), (deepest, &dir), RenameMode::Replace).unwrap();
        world.agrees(made);
        let back = world.mkdir(Ino::ROOT, &dir).unwrap();
        // Two directories change places.
        world.rename((deepest, &dir), (Ino::ROOT, &dir), RenameMode::Exchange).unwrap();
        world.agrees(back);
        world.agrees(made);
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        world.ask(back, Op::SetAttr { ino: back, set }).unwrap();
        world.ask(made, Op::SetAttr { ino: made, set }).unwrap();
    }
    assert!(world.longest.0 > 300_000, "the ancestors were told: {:?}", world.longest);
    assert!(world.longest.1 > 300_000, "and written: {:?}", world.longest);
    // More than can be told: refused before anything is decided, but at the directory's own owner.
    let mut refused = 0;
    let (mut at, mut level) = (deepest, 1000);
    while refused < 3 && level < 1500 {
        level += 1;
        match world.mkdir(at, &long(level)) {
            Ok(dir) => at = dir,
            Err(errno) => {
                assert_eq!(errno, Errno::ENAMETOOLONG);
                refused += 1;
            }
        }
    }
    assert!(level > 1100 && refused == 3, "{level} levels");
    let place = long(level + 1);
    // Nor can a directory be moved there that others have; what is there can be moved away.
    let dir = world.mkdir(Ino::ROOT, &place).unwrap();
    assert_eq!(
        world.rename((Ino::ROOT, &place), (at, &place), RenameMode::Replace),
        Err(Errno::ENAMETOOLONG)
    );
    world.agrees(dir);
    let file = name("file");
    world.fifo(at, &file).unwrap();
    world.rename((at, &file), (dir, &file), RenameMode::Replace).unwrap();
}

#[test]
fn two_deep_lines_that_become_one_are_pruned_in_several_records() {
    let mut world = World::new();
    let (upper, lower) = (world.line(Ino::ROOT, 540), {
        let top = world.mkdir(Ino::ROOT, &name("lower")).unwrap();
        world.line(top, 540)
    });
    let (above, top) = (*upper.last().unwrap(), lower[0]);
    world.rename((Ino::ROOT, &name("lower")), (above, &name("lower")), RenameMode::Replace).unwrap();
    // From the deepest up: some island has all those above for the sake of one directory.
    for at in (1..lower.len()).rev() {
        let (dir, name) = (lower[at - 1], long(at - 1));
        world.ask(dir, Op::Rmdir { dir, name, meant: None }).unwrap();
    }
    let (dir, name) = (above, name("lower"));
    world.ask(dir, Op::Rmdir { dir, name, meant: Some(top) }).unwrap();
    for at in (1..upper.len()).rev() {
        let (dir, name) = (upper[at - 1], long(at - 1));
        world.ask(dir, Op::Rmdir { dir, name, meant: None }).unwrap();
    }
    world.pass();
    for at in 0..ISLANDS {
        assert_eq!(world.state(at).dirs_in_memory().count(), 1, "only the root is left at {at}");
    }
}

#[test]
fn user_attributes_of_directories_stay_with_their_owner_and_acls_go_to_all() {
    let mut world = World::new();
    let line = world.line(Ino::ROOT, 4);
    let acl: Vec<u8> =
        [&2u32.to_le_bytes()[..], &entry(1, 7), &entry(2, 5), &entry(4, 5), &entry(16, 5), &entry(32, 5)]
            .concat();
    for (n, dir) in line.iter().enumerate().skip(1) {
        for (name, value) in [("user.large", vec![b'x'; 60_000]), ("system.posix_acl_default", acl.clone())] {
            let (name, value) = (Bytes::from(name), Bytes::from(value));
            let op = Op::SetXattr { ino: *dir, name, value, mode: XattrMode::Any, kill_sgid: false };
            world.ask(*dir, op).unwrap_or_else(|e| panic!("{n}: {e:?}"));
        }
    }
    world.line(*line.last().unwrap(), 8);
    let mut copies = 0;
    for dir in &line[1..] {
        let (owner, _) = world.owner(*dir);
        let all = world.state(owner).xattrs(*dir).unwrap().unwrap().clone();
        assert_eq!(all.0.len(), 2);
        for at in (0..ISLANDS).filter(|at| *at != owner) {
            if let Some(row) = world.state(at).dir(*dir).unwrap() {
                assert!(row.has_acl);
                assert_eq!(world.state(at).xattrs(*dir).unwrap(), Some(&all.acls()));
                copies += 1;
            }
        }
    }
    assert!(copies > 0 && world.longest.0 < 10_000, "{copies} copies, {:?}", world.longest);
}

fn entry(tag: u16, perm: u16) -> Vec<u8> {
    let id = if tag == 2 { 1000u32 } else { u32::MAX };
    [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
}

#[test]
fn attributes_that_have_no_room_are_refused_and_can_be_removed_again() {
    let mut world = World::new();
    let dir = world.mkdir(Ino::ROOT, &name("d")).unwrap();
    let file = world.fifo(dir, &name("f")).unwrap();
    let set = |ino: Ino, name: String, value: Vec<u8>| Op::SetXattr {
        ino,
        name: name.into(),
        value: value.into(),
        mode: XattrMode::Any,
        kill_sgid: false,
    };
    for ino in [dir, file] {
        let large = |n: usize| set(ino, format!("trusted.large{n}"), vec![b'x'; 60_000]);
        (0..4).for_each(|n| assert_eq!(world.ask(dir, large(n)), Ok(None)));
        assert_eq!(world.ask(dir, large(4)), Err(Errno::ENOSPC));
        // Many small ones count by their names, too.
        let small = |n: usize| set(ino, format!("trusted.{n}"), Vec::new());
        assert!((0..2_000).any(|n| world.ask(dir, small(n)) == Err(Errno::ENOSPC)));
        world.ask(dir, Op::RemoveXattr { ino, name: "trusted.large0".into() }).unwrap();
        world.ask(dir, small(0)).unwrap();
    }
    let acl = |users: usize| {
        let users = (0..users as u32).flat_map(|id| [&entry(2, 7)[..4], &id.to_le_bytes()].concat());
        let rest = [entry(4, 5), entry(16, 5), entry(32, 5)].concat();
        let all = 2u32.to_le_bytes().into_iter().chain(entry(1, 7)).chain(users).chain(rest);
        set(dir, "system.posix_acl_default".to_owned(), all.collect())
    };
    assert_eq!(world.ask(dir, acl(509)), Err(Errno::ENOSPC));
    // Room is wanted for it.
    for n in 1..3 {
        world.ask(dir, Op::RemoveXattr { ino: dir, name: format!("trusted.large{n}").into() }).unwrap();
    }
    world.ask(dir, acl(508)).unwrap();
    // Those below inherit it, and all islands know it.
    world.line(dir, 40);
    assert!(world.longest.0 > 300_000, "{:?}", world.longest);
}

#[test]
fn long_targets_are_listed_in_several_answers() {
    let mut world = World::new();
    let dir = world.mkdir(Ino::ROOT, &name("d")).unwrap();
    let (owner, _) = world.owner(dir);
    let mut inos = Vec::new();
    for n in 0..400 {
        let target = Bytes::from(vec![b't'; 4095]);
        let (kind, mode, umask, rdev, exclusive) = (Kind::Symlink, 0o777, 0, 0, true);
        let op = Op::Create { dir, name: long(n), kind, mode, umask, rdev, exclusive, target };
        inos.push(world.ask(dir, op).unwrap().unwrap());
    }
    let cut = 7;
    for op in
        [ClientOp::Hold { cut, again: false }, ClientOp::Hold { cut, again: true }, ClientOp::Cut { cut }]
    {
        (0..ISLANDS).for_each(|at| drop(world.send(at, 0, op.clone())));
    }
    let (mut after, mut names, mut answers) = (0, 0, 0);
    loop {
        let listed = world.send(owner, 0, ClientOp::ListAt { cut, dir, after });
        let Outcome::ListedAt { names: page, next, .. } = listed else { panic!("{listed:?}") };
        (names, answers) = (names + page.len(), answers + 1);
        let Some(next) = next else { break };
        after = next;
    }
    assert!(names == inos.len() && answers > 4, "{names} names in {answers} answers");
    let mut rest = &inos[..];
    while !rest.is_empty() {
        let told = world.send(owner, 0, ClientOp::FilesAt { cut, inos: rest.to_vec() });
        let Outcome::FilesAt { files } = told else { panic!("{told:?}") };
        assert!(!files.is_empty() && files.len() < 100 && files.iter().all(Option::is_some));
        rest = &rest[files.len()..];
    }
}

#[test]
fn an_outbox_is_bounded_in_bytes() {
    let mut world = World::new();
    let line = world.line(Ino::ROOT, 400);
    let stays = |world: &World, dir: Ino| world.owner(dir).0 != 2;
    let deepest = *line.iter().rev().find(|dir| stays(&world, **dir)).unwrap();
    let mut made = (0..20).map(|n| (name(&format!("dir{n}")), n));
    let (dir, names) = made
        .find_map(|(name, n)| {
            let dir = world.mkdir(Ino::ROOT, &name).unwrap();
            stays(&world, dir).then(|| (dir, [name, long(5000 + n)]))
        })
        .unwrap();
    world.meet(2, false);
    let (root, _) = world.owner(Ino::ROOT);
    let away = IslandId(2);
    let bytes_max = world.islands[0].config().outbox_bytes_max;
    let mut largest = 0;
    let is_kept = |world: &World, at: u16| world.state(at).skipped(away) == Stamp::default();
    for _ in 0..200 {
        // Each of these tells of 400 ancestors.
        world.rename((Ino::ROOT, &names[0]), (deepest, &names[1]), RenameMode::Replace).unwrap();
        world.rename((deepest, &names[1]), (Ino::ROOT, &names[0]), RenameMode::Replace).unwrap();
        if !is_kept(&world, root) {
            break;
        }
        largest = world.state(root).outbox_bytes(away).max(largest);
        world.pass();
    }
    assert!(!is_kept(&world, root), "{largest} bytes are kept");
    assert!(largest <= bytes_max + (1 << 20), "{largest} bytes were kept");
    world.meet(2, true);
    for _ in 0..8 {
        world.pass();
    }
    world.agrees(dir);
}

#[test]
fn an_outbox_for_an_island_that_is_reached_and_confirms_nothing_is_bounded() {
    let bytes_max = 1 << 20;
    let mut world = World::with_outbox(bytes_max);
    let line = world.line(Ino::ROOT, 400);
    let (mute, stays) = (IslandId(2), |world: &World, dir: Ino| world.owner(dir).0 != 2);
    let deepest = *line.iter().rev().find(|dir| stays(&world, **dir)).unwrap();
    let made = (0..20).find_map(|n| {
        let name = name(&format!("dir{n}"));
        let dir = world.mkdir(Ino::ROOT, &name).unwrap();
        stays(&world, dir).then(|| (dir, [name, long(5000 + n)]))
    });
    let (dir, names) = made.unwrap();
    world.pass();
    world.mute = Some(mute.0);
    let (root, _) = world.owner(Ino::ROOT);
    let mut largest = 0;
    for _ in 0..40 {
        // Each of these tells of 400 ancestors.
        world.rename((Ino::ROOT, &names[0]), (deepest, &names[1]), RenameMode::Replace).unwrap();
        world.rename((deepest, &names[1]), (Ino::ROOT, &names[0]), RenameMode::Replace).unwrap();
        for at in (0..ISLANDS).filter(|at| *at != mute.0) {
            largest = world.state(at).outbox_bytes(mute).max(largest);
        }
        world.pass();
    }
    assert!(largest > bytes_max / 2, "its journal is kept at first: {largest} bytes");
    assert!(largest <= bytes_max + (1 << 20), "{largest} bytes were kept");
    assert!(world.state(root).skipped(mute) > Stamp::default(), "it has to compare");
    world.mute = None;
    for _ in 0..20 {
        world.pass();
    }
    let state = world.state(root);
    assert!(state.delivered(mute) >= state.skipped(mute), "it has compared");
    world.agrees(dir);
}

#[test]
fn the_seed_of_these_tests_gives_every_island_some_directories() {
    let h3 = H3::new(1);
    let names: Vec<Name> = (0..12).map(long).collect();
    let table = Table::new(ISLANDS);
    let owners: std::collections::BTreeSet<IslandId> =
        (1..12).filter_map(|n| h3.path(&names[..n]).map(|hash| table.owner(hash.key()))).collect();
    assert_eq!(owners.len(), usize::from(ISLANDS));
}

/// An island with too few copies decides no change of a client, and votes for none that another island begins.
#[test]
fn an_island_that_may_decide_nothing_votes_for_nothing() {
    let mut world = World::new();
    let (root, _) = world.owner(Ino::ROOT);
    let others: Vec<u16> = (0..ISLANDS).filter(|at| *at != root).collect();
    others.iter().for_each(|at| world.event(*at, Event::Decides(false)));
    for n in 0..12 {
        let (name, mode, umask) = (name(&format!("d{n}")), 0o755, 0);
        let op = ClientOp::Fs { op: Op::Mkdir { dir: Ino::ROOT, name, mode, umask } };
        world.send(root, u64::from(ISLANDS) + 1 + n, op);
    }
    let owned = |world: &World, at: u16| {
        let mine = |(ino, dir): &(Ino, &Dir)| *ino != Ino::ROOT && dir.owned.is_some();
        world.state(at).dirs_in_memory().filter(mine).count()
    };
    assert!(owned(&world, root) > 0, "its own directories need no vote");
    assert!(others.iter().all(|at| owned(&world, *at) == 0));
    others.iter().for_each(|at| world.event(*at, Event::Decides(true)));
    for n in 12..24 {
        world.mkdir(Ino::ROOT, &name(&format!("d{n}"))).unwrap();
    }
    assert!(others.iter().all(|at| owned(&world, *at) > 0));
}
