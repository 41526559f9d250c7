//! Two frontends of one union: what one forgets the other still knows, and each hears what the other changes.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use atoll_core::{Ino, Name};
use atoll_federal::Federation;
use atoll_posix::{Errno, Op};
use atoll_union::{FRONTENDS_MAX, FrontendId, Settings};
use common::{Outcome, create, ino, moment, name, opened, request, tree};

type Told = (Vec<Ino>, Vec<(Ino, Name)>);

struct World {
    union: Arc<Federation>,
    frontends: [FrontendId; 2],
    heard: [Receiver<Told>; 2],
}

impl World {
    fn new() -> Self {
        let union = Federation::stepped(Settings::default(), opened(&[Arc::new(tree(1))]), moment(0));
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

    fn op(&self, frontend: usize, op: Op) -> Outcome {
        let (send, receive) = channel();
        let done = Box::new(move |outcome| send.send(outcome).unwrap());
        self.union.submit_for(self.frontends[frontend], request(op, b"bytes"), done);
        receive.try_recv().expect("an operation over simulated members ends at once")
    }

    fn found(&self, frontend: usize, op: Op) -> Ino {
        ino(self.op(frontend, op)).unwrap()
    }

    fn create(&self, frontend: usize, text: &str) -> Ino {
        self.found(frontend, create(Ino::ROOT, text))
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
