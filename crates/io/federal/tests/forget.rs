//! What members keep open for a union: it ends when the frontend forgets it, and never while it is used again.

mod common;

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Errno, Op};
use atoll_union::{NativeCall, NativeId, NativeReply, Settings, Who};
use common::{Around, Called, begin, ino, lookup, mkdir, moment, name, opened, run, tree};

type Hook = Box<dyn FnOnce() + Send>;

/// A member that tells which directories it has let go of, and calls back before it does.
struct Told {
    forgotten: Mutex<Vec<NativeId>>,
    before: Mutex<Option<Hook>>,
}

impl Called for Told {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        if let NativeCall::ForgetDirs { dirs } = call {
            self.forgotten.lock().unwrap().extend(dirs);
            let before = self.before.lock().unwrap().take();
            before.into_iter().for_each(|hook| hook());
        }
        tree.call(who, call, bytes)
    }
}

fn union() -> (Arc<Around<Told>>, Arc<Federation>) {
    let called = Told { forgotten: Mutex::default(), before: Mutex::default() };
    let told = Arc::new(Around { tree: tree(0), called });
    let members = opened(&[Arc::clone(&told)]);
    (told, Federation::stepped(Settings::default(), members, moment(0)))
}

fn make(union: &Federation, dir: Ino, name: &str) -> Ino {
    ino(run(union, mkdir(dir, name), b"")).unwrap()
}

fn look_up(union: &Arc<Federation>, dir: Ino, name: &str) -> Result<Ino, Errno> {
    ino(begin(union, lookup(dir, name), b"").recv().unwrap())
}

#[test]
fn a_directory_that_is_looked_up_while_it_is_forgotten_stays_open() {
    let (member, union) = union();
    let dir = make(&union, Ino::ROOT, "dir");
    let inner = make(&union, dir, "inner");
    let (send, looked_up) = sync_channel(1);
    let theirs = Arc::clone(&union);
    *member.called.before.lock().unwrap() = Some(Box::new(move || {
        let (begun, wait) = sync_channel::<()>(0);
        std::thread::spawn(move || {
            send.send(look_up(&theirs, Ino::ROOT, "dir")).unwrap();
            drop(begun);
        });
        // It ends now if nothing keeps it back, and would be undone by what follows.
        let _ended = wait.recv_timeout(Duration::from_millis(200));
    }));
    union.forget(&[inner, dir]);
    let again = looked_up.recv().unwrap().unwrap();
    assert!(look_up(&union, again, "inner").is_ok(), "it is open again");
}

#[test]
fn a_removed_directory_is_let_go_of() {
    let (member, union) = union();
    let dir = make(&union, Ino::ROOT, "dir");
    run(&union, Op::Rmdir { dir: Ino::ROOT, name: name("dir"), meant: None }, b"").unwrap();
    union.forget(&[dir]);
    assert_eq!(member.called.forgotten.lock().unwrap().len(), 1);
}
