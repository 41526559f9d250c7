//! Islands that come to a node and go while clients and other nodes use it.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use atoll_core::{H3, Ino, IslandId};
use atoll_disk::real::RealDisk;
use atoll_dispatch::Engine;
use atoll_posix::{Answer, AnswerExtras, Caller, Errno, Kind, Op};
use atoll_proto::ClientOp;
use atoll_rpc::{
    Acceptor, Closed, ClusterId, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link,
    Listener, Options,
};
use atoll_server::Volume;
use bytes::Bytes;
use common::node::{LONG, Other};
use common::{ISLANDS, Tree, n};

type Engines = BTreeMap<IslandId, Arc<Engine<RealDisk>>>;

fn engines(tree: &Tree) -> Engines {
    tree.volume.engines().map(|engine| (engine.id(), engine)).collect()
}

/// A directory of each island.
fn dirs(tree: &Tree) -> Vec<Ino> {
    let config = tree.volume.config();
    let h3 = H3::new(config.seed);
    let of = |island: IslandId| {
        let names = (0..).map(|i| format!("d{i}"));
        let mut of_it =
            names.filter(|name| h3.path([&n(name)]).is_some_and(|hash| config.owner(hash.key()) == island));
        of_it.next().unwrap()
    };
    (0..ISLANDS).map(|island| tree.mkdir(Ino::ROOT, &of(IslandId(island)))).collect()
}

fn create(dir: Ino, name: &str) -> Op {
    let (kind, target) = (Kind::Regular, Bytes::new());
    Op::Create { dir, name: n(name), kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target }
}

fn begin(tree: &Tree, op: Op) -> Receiver<Result<Answer, Errno>> {
    let (send, receive) = sync_channel(1);
    let done = Box::new(move |result: Result<Answer, Errno>, _: AnswerExtras<'_>| send.send(result).unwrap());
    tree.client.submit(&Caller::ROOT, op, Bytes::new(), done);
    receive
}

#[test]
fn an_island_that_goes_is_waited_for_and_asked_when_it_is_back_and_the_others_go_on() {
    let tree = Tree::new("coming");
    let dirs = dirs(&tree);
    let all = engines(&tree);
    for round in 0..3 {
        let mut rest = all.clone();
        rest.remove(&IslandId(2));
        tree.volume.set_islands(rest);
        let waits = begin(&tree, create(dirs[2], &format!("waits{round}")));
        for at in [0, 1, 3] {
            tree.call(create(dirs[at], &format!("goes-on{round}")), b"").unwrap();
        }
        assert_eq!(waits.recv_timeout(Duration::from_millis(100)).unwrap_err(), RecvTimeoutError::Timeout);
        tree.volume.set_islands(all.clone());
        waits.recv_timeout(LONG).expect("it is asked when it is back").unwrap();
        // The islands speak to each other again.
        for (i, dir) in dirs.iter().enumerate() {
            for (j, new_dir) in dirs.iter().enumerate().filter(|(j, _)| *j != i) {
                let name = format!("r{round}-{i}-{j}");
                tree.call(create(*dir, &name), b"").unwrap();
                let (mode, new_name) = (atoll_posix::RenameMode::Replace, n(&name));
                let (meant, new_meant) = (None, None);
                let (dir, new_dir) = (*dir, *new_dir);
                let op = Op::Rename { dir, name: n(&name), new_dir, new_name, mode, meant, new_meant };
                tree.call(op, b"").unwrap_or_else(|e| panic!("from {i} to {j}: {e}"));
            }
        }
    }
}

/// Lets everybody in to a volume.
struct Door(Arc<Volume<RealDisk>>);

impl Acceptor for Door {
    fn welcome(&self, _: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(ClusterId(1), DaemonId(1), 1))
    }
}

impl Handler for Door {
    fn opened(&self, link: &Arc<Link>) {
        self.0.opened(link);
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        self.0.frame(link, frame);
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        self.0.closed(link, why);
    }
}

#[test]
fn clients_on_other_machines_hear_of_islands_that_come_and_go() {
    let tree = Tree::new("coming-far");
    let any = "127.0.0.1:0".parse().unwrap();
    let door = Arc::new(Door(Arc::clone(&tree.volume)));
    let mut listener = Listener::start(&any, door, Options::default()).unwrap();
    let all = engines(&tree);
    let mut rest = all.clone();
    rest.remove(&IslandId(1));
    let early = Other::client(listener.address());
    early.ask(1, 5, ClientOp::Attach { mount: false });
    assert_eq!(early.next(), (FrameKind::Reply, 1, 5));
    tree.volume.set_islands(rest);
    assert_eq!(early.next(), (FrameKind::Gone, 1, 0));
    let late = Other::client(listener.address());
    assert_eq!(late.next(), (FrameKind::Gone, 1, 0), "a client that comes while it is gone is told at once");
    late.ask(1, 6, ClientOp::Attach { mount: false });
    assert_eq!(late.next(), (FrameKind::Gone, 1, 0));
    tree.volume.set_islands(all);
    for client in [&early, &late] {
        assert_eq!(client.next(), (FrameKind::Primary, 1, 0));
        client.ask(1, 7, ClientOp::Attach { mount: false });
        // If the island came while the answer to a request was on its way, that may be told twice.
        let word =
            Some(client.next()).filter(|word| word.0 != FrameKind::Primary).unwrap_or_else(|| client.next());
        assert_eq!(word, (FrameKind::Reply, 1, 7));
    }
    listener.stop();
}
