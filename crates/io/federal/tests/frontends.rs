//! Two frontends of one union: what one forgets the other still knows, and each hears what the other changes.

use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Arc, Mutex};

use atoll_core::{Ino, Name, Time};
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RequestOptions};
use atoll_union::{FRONTENDS_MAX, Finished, FrontendId, Moment, Settings, Tag, UnionRequest};
use bytes::Bytes;

type Told = (Vec<Ino>, Vec<(Ino, Name)>);

struct World {
    union: Arc<Federation>,
    frontends: [FrontendId; 2],
    heard: [Receiver<Told>; 2],
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl World {
    fn new() -> Self {
        let clock = Time { secs: 1_000, nanos: 0 };
        let tree: Arc<dyn Tree> = Arc::new(SimTree::new(1, clock));
        let now = Moment { ms: 1, wall: clock };
        let union = Federation::stepped(Settings::default(), vec![(Tag(1), false, tree)], now);
        let frontends = [union.open_frontend().unwrap(), union.open_frontend().unwrap()];
        let heard = frontends.map(|frontend| {
            let (send, heard) = channel();
            let send = Mutex::new(send);
            let hear = move |inos: &[Ino], names: &[(Ino, Name)]| {
                send.lock().unwrap().send((inos.to_vec(), names.to_vec())).unwrap();
            };
            union.hear(frontend, Arc::new(hear));
            heard
        });
        Self { union, frontends, heard }
    }

    fn op(&self, frontend: usize, op: Op) -> Result<Finished, Errno> {
        let (send, receive) = sync_channel(1);
        let (options, bytes) = (RequestOptions::default(), Bytes::from_static(b"bytes"));
        let request = UnionRequest { caller: Caller::ROOT, options, op, bytes };
        let done = Box::new(move |outcome| send.send(outcome).unwrap());
        self.union.submit_for(self.frontends[frontend], request, done);
        receive.try_recv().expect("an operation over simulated members ends at once")
    }

    fn found(&self, frontend: usize, op: Op) -> Ino {
        match self.op(frontend, op).unwrap().answer {
            Answer::Found { found } => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    fn create(&self, frontend: usize, text: &str) -> Ino {
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let (name, target) = (name(text), Bytes::new());
        let op = Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target };
        self.found(frontend, op)
    }
}

#[test]
fn what_one_frontend_forgets_the_other_still_knows() {
    let world = World::new();
    let [first, second] = world.frontends;
    let file = world.create(0, "f");
    assert_eq!(world.found(1, Op::Lookup { dir: Ino::ROOT, name: name("f") }), file);
    let dir = world.found(0, Op::Mkdir { dir: Ino::ROOT, name: name("d"), mode: 0o755, umask: 0 });
    assert_eq!(world.found(1, Op::Lookup { dir: Ino::ROOT, name: name("d") }), dir);
    // It may be open in the other one: the bytes stay.
    world.op(1, Op::Unlink { dir: Ino::ROOT, name: name("f") }).unwrap();
    world.union.forget_for(second, &[file, dir]);
    world.union.forget_for(second, &[file, dir]);
    for ino in [file, dir] {
        world.op(0, Op::GetAttr { ino }).unwrap();
    }
    world.op(0, Op::Write { ino: file, offset: 0, append: false, kill_set_id: false }).unwrap();
    world.union.forget_for(first, &[file, dir]);
    for ino in [file, dir] {
        assert_eq!(world.op(0, Op::GetAttr { ino }), Err(Errno::ESTALE));
    }
}

#[test]
fn each_hears_what_the_other_changes_and_not_what_it_changes_itself() {
    let world = World::new();
    let file = world.create(1, "f");
    let told = |frontend: usize| world.heard[frontend].try_recv();
    assert_eq!(told(0), Ok((vec![Ino::ROOT], vec![(Ino::ROOT, name("f"))])));
    world.op(0, Op::Write { ino: file, offset: 0, append: false, kill_set_id: false }).unwrap();
    assert_eq!(told(1), Ok((vec![file], Vec::new())));
    world.op(0, Op::Link { ino: file, dir: Ino::ROOT, name: name("g") }).unwrap();
    assert_eq!(told(1), Ok((vec![file, Ino::ROOT], vec![(Ino::ROOT, name("g"))])));
    // What only looks, and what has failed, changes nothing.
    world.op(0, Op::GetAttr { ino: file }).unwrap();
    world.op(0, Op::Unlink { dir: Ino::ROOT, name: name("none") }).unwrap_err();
    assert!(told(0).is_err() && told(1).is_err());
}

#[test]
fn there_are_so_many_sessions_and_no_more() {
    let world = World::new();
    (2..FRONTENDS_MAX).for_each(|_| _ = world.union.open_frontend().unwrap());
    assert!((0..300).all(|_| world.union.open_frontend().is_none()));
}
