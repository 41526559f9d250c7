//! A session that sees one directory, and what is below it, gets nothing else by any request, id or name
//! (`docs/design/022-subtrees.md`): three islands that tell each other everything at once, and a client of the whole tree beside
//! one of a part of it.

mod common;

use std::collections::{BTreeSet, VecDeque};

use atoll_core::{Decode, Encode, Ino, IslandId, Malformed, Name, SessionId, Time, VolumePath};
use atoll_island::{BodyDone, Effect, Event, Island, LinkId, Now};
use atoll_posix::op::Whence;
use atoll_posix::{
    Allocation, Answer, AtimeRule, Attr, Caller, DirEntry, Errno, Kind, LockKind, LockRange, Op, Readings,
    RenameMode, RequestOptions, SetAttr, XattrMode,
};
use atoll_proto::{ClientOp, EntryRef, Extras, FoundBy, Notice, Outcome, PeerMessage, Request};
use bytes::Bytes;
use common::{Client, ISLANDS, Three};

const LIMITED: SessionId = SessionId(2);
const LINK: LinkId = LinkId(2);

struct World {
    islands: Vec<Island>,
    mail: VecDeque<(IslandId, PeerMessage)>,
    client: Client,
    notices: Vec<(LinkId, Notice)>,
    /// All that the limited session sees.
    scope: Ino,
    seq: u64,
}

/// A tree: `dir` for each island that owns one, with a file in it that is homed there.
struct Tree {
    dirs: Vec<Ino>,
    files: Vec<Ino>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn at(dir: Ino, text: &str) -> EntryRef {
    EntryRef { dir, name: name(text) }
}

impl World {
    fn new() -> Self {
        let islands = common::islands(atoll_island::OUTBOX_BYTES_MAX);
        let (mail, client, notices) = (VecDeque::new(), Client::default(), Vec::new());
        let mut world = Self { islands, mail, client, notices, scope: Ino::ROOT, seq: 0 };
        world.connect();
        world.deliver();
        world.attach();
        world
    }

    /// Directories of all islands below one, each with a file of its island.
    fn tree(&mut self, above: Ino) -> Tree {
        let (mut dirs, mut files) = (Vec::new(), Vec::new());
        for island in 0..ISLANDS {
            let dir = loop {
                let n = dirs.len() + self.client.ms as usize;
                self.client.ms += 1;
                let dir = self.mkdir(above, &name(&format!("d{n}"))).unwrap();
                if self.owner(dir).0 == island {
                    break dir;
                }
            };
            dirs.push(dir);
            files.push(self.fifo(dir, &name("f")).unwrap());
        }
        Tree { dirs, files }
    }

    /// Two trees, and a session that sees the first.
    fn limited() -> (Self, Tree, Tree) {
        let mut world = Self::new();
        world.scope = world.mkdir(Ino::ROOT, &name("in")).unwrap();
        let out = world.mkdir(Ino::ROOT, &name("out")).unwrap();
        let (inside, outside) = (world.tree(world.scope), world.tree(out));
        for at in 0..ISLANDS {
            let attach = ClientOp::AttachWithin { mount: true, scope: world.scope };
            assert!(matches!(world.request(at, 0, attach), Outcome::Attached { .. }));
        }
        (world, inside, outside)
    }

    /// A request of the limited session.
    fn request(&mut self, to: u16, seq: u64, op: ClientOp) -> Outcome {
        self.client.ms += 1;
        let id = 1 << 40 | self.client.ms;
        let (session, vector, caller) = (LIMITED, Vec::new(), Caller::ROOT);
        let request = Request { session, seq, acked: 0, table: 1, vector, caller, op };
        self.event(to, Event::Request { link: LINK, id, request, data: Bytes::new() });
        self.deliver();
        for _ in 0..Self::PASSES {
            if let Some(at) = self.client.replies.iter().position(|(of, _)| *of == id) {
                return self.client.replies.remove(at).1;
            }
            self.pass();
        }
        panic!("no answer");
    }

    /// An operation of the limited session, of a file that it says it has found so.
    fn limited_op(&mut self, to: u16, op: Op, by: Option<EntryRef>) -> Result<Option<Answer>, Errno> {
        self.seq += 1;
        let seq = if op.changes() { self.seq } else { 0 };
        let key = match &op {
            Op::Rename { dir, new_dir, .. } if dir != new_dir => Some(self.owner(*new_dir).1),
            _ => None,
        };
        let op = key.map_or(ClientOp::Fs { op: op.clone() }, |key| ClientOp::Rename { op, key });
        self.outcome(to, seq, op.with_extras(extras(by)))
    }

    fn outcome(&mut self, to: u16, seq: u64, op: ClientOp) -> Result<Option<Answer>, Errno> {
        match self.request(to, seq, op) {
            Outcome::Ok { answer, .. } => Ok(Some(answer)),
            Outcome::Data { .. } | Outcome::Elsewhere { .. } | Outcome::Moved { .. } => Ok(None),
            Outcome::Failed { errno } => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    fn stat(&mut self, to: u16, ino: Ino, by: Option<EntryRef>) -> Result<Attr, Errno> {
        match self.limited_op(to, Op::GetAttr { ino }, by)? {
            Some(Answer::Attr { attr }) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    fn unlink(&mut self, dir: Ino, text: &str) {
        self.ask(dir, Op::Unlink { dir, name: name(text) }).unwrap();
    }

    /// The whole tree's client gives a file one more name.
    fn link(&mut self, ino: Ino, to: EntryRef) {
        self.ask(to.dir, Op::Link { ino, dir: to.dir, name: to.name }).unwrap();
    }

    /// What the limited session was told of.
    fn told(&mut self) -> Vec<Notice> {
        self.pass();
        std::mem::take(&mut self.notices)
            .into_iter()
            .filter(|(link, _)| *link == LINK)
            .map(|(_, n)| n)
            .collect()
    }

    /// Files that are kept for the limited session.
    fn held(&self, at: u16) -> Vec<Ino> {
        self.state(at).session(LIMITED).unwrap().held.clone()
    }
}

fn extras(by: Option<EntryRef>) -> Extras {
    let by = by.map(|file| Box::new(FoundBy { from: Some(file.clone()), file }));
    Extras { options: RequestOptions::default(), by }
}

impl Three for World {
    const PASSES: usize = 60;

    fn islands(&self) -> &[Island] {
        &self.islands
    }

    fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    fn event(&mut self, at: u16, event: Event) {
        let mut out = Vec::new();
        let now = Now { wall: Time::default(), ms: self.client.ms };
        self.islands[usize::from(at)].handle(now, event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, ..) => self.event(at, Event::Committed(seq)),
                Effect::Sync => {
                    let seq = self.islands[usize::from(at)].state().seq();
                    self.event(at, Event::Synced(seq));
                }
                Effect::Reply { id, reply, .. } => self.client.replies.push((id, reply.outcome)),
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    self.event(at, Event::Loaded { load, generation, loaded });
                }
                Effect::Send(to, message) => self.mail.push_back((to, message)),
                Effect::Checkpoint { .. } => self.event(at, Event::CheckpointDone),
                Effect::Notice(link, notice) => self.notices.push((link, notice)),
                Effect::Beside(..) => unreachable!("no machine is beside it"),
                // No file has bytes: a body goes.
                Effect::Body(ticket, _) => self.event(at, Event::BodyDone(ticket, Ok(BodyDone::Done))),
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

/// Every operation that names something by its id, about this directory or this file.
fn all_ops(dir: Ino, ino: Ino) -> Vec<Op> {
    let (n, target, value) = (|| name("f"), Bytes::new(), Bytes::from_static(b"v"));
    let lock = LockRange { start: 0, end: 9, kind: LockKind::Write, owner: 1, pid: 7, flock: false };
    let xattr = || Bytes::from_static(b"user.a");
    let time = Time::default();
    let access = Readings { first: time, last: time, rule: AtimeRule::Relative };
    vec![
        Op::Lookup { dir, name: n() },
        Op::GetAttr { ino },
        Op::SetAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } },
        Op::Create {
            dir,
            name: name("new"),
            kind: Kind::Fifo,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            exclusive: true,
            target,
        },
        Op::Mkdir { dir, name: name("new"), mode: 0o755, umask: 0 },
        Op::Unlink { dir, name: n() },
        Op::Rmdir { dir, name: n(), meant: None },
        Op::Rename {
            dir,
            name: n(),
            new_dir: dir,
            new_name: name("new"),
            mode: RenameMode::Replace,
            meant: None,
            new_meant: None,
        },
        Op::Link { ino, dir, name: name("new") },
        Op::Readlink { ino },
        Op::Read { ino, offset: 0, len: 9 },
        Op::Write { ino, offset: 0, append: false, kill_set_id: false },
        Op::Fallocate { ino, offset: 0, len: 9, what: Allocation::PunchHole },
        Op::Seek { ino, offset: 0, whence: Whence::Data },
        Op::CopyRange { from: ino, from_offset: 0, to: ino, to_offset: 0, len: 9 },
        Op::Fsync { ino },
        Op::FsyncDir { dir },
        Op::ReadDir { dir, after: 0, bytes: 4096, plus: true },
        Op::GetXattr { ino, name: xattr() },
        Op::SetXattr { ino, name: xattr(), value, mode: XattrMode::Any, kill_sgid: false },
        Op::ListXattr { ino },
        Op::RemoveXattr { ino, name: xattr() },
        Op::GetLock { ino, lock },
        Op::SetLock { ino, lock, wait: false },
        Op::Accessed { ino, access },
        Op::Access { ino },
        Op::Parent { dir },
        Op::Tmpfile { dir, mode: 0o600, umask: 0 },
    ]
}

#[test]
pub(crate) fn the_operations_that_are_tried_here_are_all_that_there_are() {
    let mut tags: BTreeSet<u8> = all_ops(Ino(9), Ino(9)).iter().map(|op| op.to_vec()[0]).collect();
    tags.insert(Op::Statfs.to_vec()[0]);
    // Whoever adds one decides in `ops/scope.rs` who may ask it, and puts it into the list above.
    let is_known = |tag: &u8| Op::from_slice(&[*tag]) != Err(Malformed::new("Op"));
    let known: BTreeSet<u8> = (0..=u8::MAX).filter(is_known).collect();
    assert_eq!(tags, known);
}

#[test]
pub(crate) fn every_operation_about_something_outside_is_answered_as_about_an_id_that_never_was() {
    let (mut world, inside, outside) = World::limited();
    for island in 0..ISLANDS {
        let i = usize::from(island);
        let (dir, ino, mine) = (outside.dirs[i], outside.files[i], inside.dirs[i]);
        let before: Vec<_> = (0..ISLANDS).map(|at| world.state(at).seq()).collect();
        for op in all_ops(dir, ino) {
            // No name, its own, and the name of a file that is inside.
            for by in [None, Some(at(dir, "f")), Some(at(mine, "f")), Some(at(mine, "none"))] {
                let outcome = world.limited_op(island, op.clone(), by.clone());
                assert_eq!(outcome, Err(Errno::ESTALE), "{op:?} by {by:?}");
            }
        }
        // The same of directories by their ids: an operation does not say what it means.
        for ino in [dir, Ino::ROOT, outside.dirs[0]] {
            for op in all_ops(mine, ino).into_iter().filter(|op| op.file().is_some()) {
                let outcome = world.limited_op(island, op.clone(), Some(at(mine, "f")));
                assert_eq!(outcome, Err(Errno::ESTALE), "{op:?}");
            }
        }
        assert_eq!(
            (0..ISLANDS).map(|at| world.state(at).seq()).collect::<Vec<_>>(),
            before,
            "nothing was decided"
        );
    }
}

#[test]
pub(crate) fn every_operation_about_something_inside_is_let_through() {
    let (mut world, inside, _) = World::limited();
    for island in 0..ISLANDS {
        let (dir, ino) = (inside.dirs[usize::from(island)], inside.files[usize::from(island)]);
        let has_no_bytes = |op: &&Op| {
            !matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Fallocate { .. } | Op::Seek { .. })
                && !matches!(op, Op::CopyRange { .. } | Op::Unlink { .. } | Op::Rename { .. })
        };
        for op in all_ops(dir, ino).iter().filter(has_no_bytes) {
            let outcome = world.limited_op(island, op.clone(), Some(at(dir, "f")));
            assert_ne!(outcome, Err(Errno::ESTALE), "{op:?}");
        }
    }
    let scope = world.scope;
    let (owner, _) = world.owner(scope);
    assert_eq!(world.stat(owner, scope, None).map(|attr| attr.kind), Ok(Kind::Directory));
    let listed =
        world.limited_op(owner, Op::ReadDir { dir: scope, after: 0, bytes: 4096, plus: false }, None);
    let Ok(Some(Answer::Entries { entries, .. })) = listed else { panic!("{listed:?}") };
    assert!(entries.iter().map(|DirEntry { ino, .. }| ino).any(|ino| *ino == inside.dirs[0]));
    // What is above it is outside.
    assert_eq!(world.limited_op(owner, Op::Parent { dir: scope }, None), Err(Errno::ESTALE));
}

#[test]
pub(crate) fn a_copy_from_elsewhere_is_refused_as_one_between_islands_whatever_the_file_is() {
    let (mut world, inside, outside) = World::limited();
    let to = inside.files[0];
    let by = |from: Option<EntryRef>| Some(Box::new(FoundBy { file: at(inside.dirs[0], "f"), from }));
    for (from, name) in [
        // Inside, and homed at another island: the client's kernel reads and writes then.
        (inside.files[1], Some(at(inside.dirs[1], "f"))),
        (outside.files[0], Some(at(outside.dirs[0], "f"))),
        (outside.files[0], Some(at(inside.dirs[0], "f"))),
        (outside.files[1], Some(at(outside.dirs[1], "f"))),
        (Ino::mint(IslandId(0), 1 << 30), None),
    ] {
        let op = Op::CopyRange { from, from_offset: 0, to, to_offset: 0, len: 9 };
        let extras = Extras { by: by(name), ..Extras::default() };
        world.seq += 1;
        let told = world.outcome(0, world.seq, ClientOp::Fs { op }.with_extras(extras));
        assert_eq!(told, Err(Errno::EXDEV), "{from}");
    }
}

#[test]
pub(crate) fn requests_about_the_whole_tree_are_refused_and_those_of_skeletons_tell_nothing_outside() {
    let (mut world, inside, outside) = World::limited();
    let path = VolumePath::parse(b"/out").unwrap();
    let dir = outside.dirs[0];
    let refused = [
        ClientOp::Resolve { path },
        ClientOp::Hints { after: Ino(0) },
        ClientOp::Hold { cut: 1, again: false },
        ClientOp::Cut { cut: 1 },
        ClientOp::ListAt { cut: 1, dir, after: 0 },
        ClientOp::EntryAt { cut: 1, dir, name: name("f") },
        ClientOp::FilesAt { cut: 1, inos: vec![outside.files[0]] },
        ClientOp::EndCut { cut: 1 },
    ];
    for at in 0..ISLANDS {
        for op in &refused {
            assert_eq!(world.outcome(at, 0, op.clone()), Err(Errno::EPERM), "{op:?}");
        }
        for op in [
            ClientOp::Skeleton { parent: dir, name: name("f") },
            ClientOp::Skeleton { parent: Ino::ROOT, name: name("out") },
            ClientOp::SkeletonAttr { ino: dir },
            ClientOp::SkeletonAttr { ino: Ino::ROOT },
            ClientOp::SkeletonTarget { ino: outside.files[0] },
        ] {
            assert_eq!(world.outcome(at, 0, op.clone()), Err(Errno::ESTALE), "{op:?}");
        }
    }
    // So a lost island hides its own directories alone, also from this client.
    let (owner, _) = world.owner(inside.dirs[1]);
    let skeleton = ClientOp::SkeletonAttr { ino: inside.dirs[1] };
    assert!(world.outcome(owner, 0, skeleton).is_ok());
}

#[test]
pub(crate) fn no_file_comes_in_by_a_link_whoever_owns_the_name_and_whoever_is_its_home() {
    let (mut world, inside, outside) = World::limited();
    for owner in 0..ISLANDS {
        let dir = inside.dirs[usize::from(owner)];
        for home in 0..ISLANDS {
            let i = usize::from(home);
            for (ino, by) in [
                (outside.files[i], Some(at(outside.dirs[i], "f"))),
                (outside.files[i], Some(at(inside.dirs[i], "f"))),
                (outside.files[i], None),
                (Ino::mint(IslandId(home), 1 << 30), None),
            ] {
                let op = Op::Link { ino, dir, name: name("stolen") };
                world.seq += 1;
                let link = ClientOp::Link { op, home: IslandId(home) }.with_extras(extras(by.clone()));
                assert_eq!(world.outcome(owner, world.seq, link), Err(Errno::ESTALE), "{ino} by {by:?}");
            }
            // What it has found inside it may link inside.
            let (ino, by) = (inside.files[i], Some(at(inside.dirs[i], "f")));
            let op = Op::Link { ino, dir, name: name(&format!("own{home}")) };
            world.seq += 1;
            let link = ClientOp::Link { op, home: IslandId(home) }.with_extras(extras(by));
            assert!(world.outcome(owner, world.seq, link).is_ok());
        }
    }
}

#[test]
pub(crate) fn nothing_comes_in_or_goes_out_by_a_rename_whoever_owns_the_other_directory() {
    let (mut world, inside, outside) = World::limited();
    for a in 0..usize::from(ISLANDS) {
        for b in 0..usize::from(ISLANDS) {
            for mode in [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange] {
                for (dir, new_dir) in [(inside.dirs[a], outside.dirs[b]), (outside.dirs[a], inside.dirs[b])] {
                    let (name, new_name) = (name("f"), name("f"));
                    let op = Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None };
                    assert_eq!(world.limited_op(a as u16, op, None), Err(Errno::ESTALE), "{mode:?}");
                }
            }
            let (dir, new_dir) = (inside.dirs[a], inside.dirs[b]);
            let made = name(&format!("made{a}{b}"));
            world.fifo(dir, &made).unwrap();
            let (mode, meant, new_meant) = (RenameMode::Replace, None, None);
            let op = Op::Rename { dir, name: made.clone(), new_dir, new_name: made, mode, meant, new_meant };
            assert!(world.limited_op(a as u16, op, None).is_ok());
        }
    }
}

#[test]
pub(crate) fn a_limited_mount_hears_of_files_and_directories_that_lose_their_last_name_inside_and_of_no_others()
 {
    let (mut world, inside, outside) = World::limited();
    for i in 0..usize::from(ISLANDS) {
        world.unlink(outside.dirs[i], "f");
        assert_eq!(world.told(), vec![]);
        assert_eq!(world.held(i as u16), vec![], "nor is it kept for it");
        assert_eq!(world.stat(i as u16, outside.files[i], Some(at(inside.dirs[i], "f"))), Err(Errno::ESTALE));
        // It may be open there.
        world.unlink(inside.dirs[i], "f");
        assert_eq!(world.told(), vec![Notice::Orphan { ino: inside.files[i] }]);
        assert_eq!(world.stat(i as u16, inside.files[i], None).map(|attr| attr.nlink), Ok(0));
        let release = ClientOp::Release { inos: vec![inside.files[i]] };
        assert!(world.outcome(i as u16, 0, release).is_ok());
        assert_eq!(world.stat(i as u16, inside.files[i], None), Err(Errno::ESTALE));
    }
    // The last name counts.
    let both = world.fifo(inside.dirs[0], &name("both")).unwrap();
    world.link(both, at(outside.dirs[1], "both"));
    world.unlink(inside.dirs[0], "both");
    world.unlink(outside.dirs[1], "both");
    assert_eq!(world.told(), vec![]);
    // Directories too.
    let of = |tree: &Tree| tree.dirs[0];
    for (above, is_told) in [(of(&outside), false), (of(&inside), true)] {
        let gone = world.mkdir(above, &name("gone")).unwrap();
        world.ask(above, Op::Rmdir { dir: above, name: name("gone"), meant: None }).unwrap();
        let told = world.told();
        assert_eq!(told.contains(&Notice::Orphan { ino: gone }), is_told, "{told:?}");
    }
}

#[test]
pub(crate) fn a_file_that_others_rename_is_known_by_its_newest_name_as_long_as_that_is_inside() {
    let (mut world, inside, outside) = World::limited();
    let (home, ino) = (1, inside.files[1]);
    let found = Some(at(inside.dirs[1], "f"));
    for (n, dir) in [inside.dirs[0], inside.dirs[1], inside.dirs[2]].into_iter().enumerate() {
        let (from, to) = (if n == 0 { inside.dirs[1] } else { inside.dirs[n - 1] }, name(&format!("f{n}")));
        let old = if n == 0 { name("f") } else { name(&format!("f{}", n - 1)) };
        world.rename((from, &old), (dir, &to), RenameMode::Replace).unwrap();
        assert_eq!(world.stat(home, ino, found.clone()).map(|attr| attr.nlink), Ok(1), "{dir}");
    }
    world.rename((inside.dirs[2], &name("f2")), (outside.dirs[0], &name("f")), RenameMode::Replace).unwrap();
    assert_eq!(world.stat(home, ino, found.clone()), Err(Errno::ESTALE));
    // Another file has its name since.
    world.fifo(inside.dirs[1], &name("f")).unwrap();
    assert_eq!(world.stat(home, ino, found.clone()), Err(Errno::ESTALE));
    world
        .rename((outside.dirs[0], &name("f")), (inside.dirs[0], &name("back")), RenameMode::Replace)
        .unwrap();
    assert!(world.stat(home, ino, found).is_ok());
    // A second name outside does not take it away, and one inside shows a file.
    world.link(ino, at(outside.dirs[2], "more"));
    assert!(world.stat(home, ino, Some(at(inside.dirs[0], "back"))).is_ok());
    let other = outside.files[2];
    world.link(other, at(inside.dirs[0], "shown"));
    assert!(world.stat(2, other, Some(at(inside.dirs[0], "shown"))).is_ok());
}

#[test]
pub(crate) fn directories_go_with_their_place_and_the_scope_is_the_directory_and_not_its_path() {
    let (mut world, inside, outside) = World::limited();
    let (scope, out) = (world.scope, outside.dirs[0]);
    let (owner, _) = world.owner(scope);
    // It goes on being seen where it is renamed to.
    world.rename((Ino::ROOT, &name("in")), (out, &name("moved")), RenameMode::Replace).unwrap();
    assert!(world.stat(owner, scope, None).is_ok());
    assert!(world.stat(2, inside.files[2], Some(at(inside.dirs[2], "f"))).is_ok());
    assert_eq!(world.stat(0, out, None), Err(Errno::ESTALE), "not what is above it");
    // Another one at its old path is not it.
    let other = world.mkdir(Ino::ROOT, &name("in")).unwrap();
    let (its, _) = world.owner(other);
    assert_eq!(world.stat(its, other, None), Err(Errno::ESTALE));
    // One that leaves it is not seen any more, nor is what is below it.
    let moved = inside.dirs[1];
    let row = world.state(1).dir(moved).unwrap().unwrap().place.name.clone().unwrap();
    assert_eq!(world.stat(1, moved, None).map(|attr| attr.kind), Ok(Kind::Directory));
    world.rename((scope, &row), (Ino::ROOT, &name("left")), RenameMode::Replace).unwrap();
    assert_eq!(world.stat(1, moved, None), Err(Errno::ESTALE));
    assert_eq!(world.stat(1, inside.files[1], Some(at(moved, "f"))), Err(Errno::ESTALE));
}

#[test]
pub(crate) fn a_repeated_request_tells_nothing_of_what_has_left_meanwhile() {
    let (mut world, inside, outside) = World::limited();
    let dir = inside.dirs[0];
    let create = |text: &str| {
        let (name, kind, target) = (name(text), Kind::Fifo, Bytes::new());
        Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target }
    };
    let first = world.limited_op(0, create("new"), None).unwrap();
    let seq = world.seq;
    let Some(Answer::Found { found }) = first else { panic!("{first:?}") };
    let ino = found.attr.ino;
    let again = |world: &mut World| world.outcome(0, seq, ClientOp::Fs { op: create("new") });
    world.ask(dir, Op::SetAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } }).unwrap();
    let mode = |told: Result<Option<Answer>, Errno>| match told {
        Ok(Some(Answer::Found { found })) => found.attr.mode,
        other => panic!("{other:?}"),
    };
    assert_eq!(mode(again(&mut world)), 0o600, "as it is now");
    world.rename((dir, &name("new")), (outside.dirs[0], &name("taken")), RenameMode::Replace).unwrap();
    assert_eq!(mode(again(&mut world)), 0o644, "as it was made");
    let by = Some(at(dir, "f"));
    let set = Op::SetAttr { ino: inside.files[0], set: SetAttr { mode: Some(0o611), ..SetAttr::default() } };
    assert!(world.limited_op(0, set.clone(), by.clone()).is_ok());
    let seq = world.seq;
    world.rename((dir, &name("f")), (outside.dirs[0], &name("taken too")), RenameMode::Replace).unwrap();
    let told = world.outcome(0, seq, ClientOp::Fs { op: set }.with_extras(extras(by)));
    assert_eq!(told, Err(Errno::ESTALE));
}

#[test]
pub(crate) fn locks_tell_no_processes_of_others_and_can_be_let_go_of_wherever_the_file_is() {
    let (mut world, inside, outside) = World::limited();
    let (dir, ino) = (inside.dirs[0], inside.files[0]);
    let by = Some(at(dir, "f"));
    let lock = |kind| LockRange { start: 0, end: 9, kind, owner: 1, pid: 77, flock: false };
    world.ask(dir, Op::SetLock { ino, lock: lock(LockKind::Write), wait: false }).unwrap();
    let told = world.limited_op(0, Op::GetLock { ino, lock: lock(LockKind::Write) }, by.clone());
    let Ok(Some(Answer::Lock { lock: shown })) = told else { panic!("{told:?}") };
    assert_eq!((shown.kind, shown.pid, shown.owner), (LockKind::Write, 0, 0));
    world.ask(dir, Op::SetLock { ino, lock: lock(LockKind::Unlock), wait: false }).unwrap();
    let set = |kind| Op::SetLock { ino, lock: lock(kind), wait: false };
    assert!(world.limited_op(0, set(LockKind::Write), by.clone()).is_ok());
    world.rename((dir, &name("f")), (outside.dirs[0], &name("taken")), RenameMode::Replace).unwrap();
    assert_eq!(world.limited_op(0, set(LockKind::Read), by.clone()), Err(Errno::ESTALE));
    assert!(world.limited_op(0, set(LockKind::Unlock), by.clone()).is_ok());
    assert_eq!(world.limited_op(0, set(LockKind::Unlock), by), Err(Errno::ESTALE), "there is none any more");
}
