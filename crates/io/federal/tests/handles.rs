//! Handles, while directories move.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::Errno;
use atoll_union::{FrontendId, NativeCall, NativeReply, Settings, Who};
use common::{Around, Called, Direct, ino, lookup, moment, name, opened, run, tree};

/// A member in which a program renames directories right after it was asked where a handle's directory is.
struct Moving {
    moves: Mutex<Vec<[&'static str; 2]>>,
    /// How often it was asked what a handle names.
    asked: AtomicUsize,
}

impl Called for Moving {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let told = tree.call(who, call, bytes);
        if let NativeCall::ByHandle { .. } = call {
            self.asked.fetch_add(1, Ordering::Relaxed);
            for [from, to] in self.moves.lock().unwrap().drain(..) {
                Direct(tree).rename(from, to);
            }
        }
        told
    }
}

fn member() -> Arc<Around<Moving>> {
    let called = Moving { moves: Mutex::default(), asked: AtomicUsize::new(0) };
    Arc::new(Around { tree: tree(1), called })
}

fn union(tree: &Arc<Around<Moving>>) -> Arc<Federation> {
    Federation::stepped(Settings::default(), opened(&[Arc::clone(tree)]), moment(0))
}

fn look_up(union: &Federation, text: &str) -> Ino {
    ino(run(union, lookup(Ino::ROOT, text), b"")).unwrap()
}

#[test]
fn a_handle_means_its_directory_though_another_one_takes_its_name_meanwhile() {
    let tree = member();
    for text in ["d", "other"] {
        Direct(&tree.tree).mkdir(text);
    }
    let first = union(&tree);
    let (tag, handle) = first.handle_of(look_up(&first, "d")).unwrap();
    // A process that starts later knows nothing but the handle.
    for (moves, is_at) in [(vec![["d", "e"]], "e"), (vec![["e", "f"], ["other", "e"]], "f")] {
        *tree.called.moves.lock().unwrap() = moves;
        let later = union(&tree);
        let ino = later.by_handle(FrontendId::default(), tag, handle.clone()).unwrap();
        assert_eq!(ino, look_up(&later, is_at));
        *tree.called.moves.lock().unwrap() = Vec::new();
        assert_eq!(later.by_handle(FrontendId::default(), tag, handle.clone()), Ok(ino));
    }
}

#[test]
fn what_a_handle_of_a_directory_names_is_asked_once_until_the_directory_is_gone() {
    let tree = member();
    let program = Direct(&tree.tree);
    program.mkdir("d");
    let first = union(&tree);
    let (tag, handle) = first.handle_of(look_up(&first, "d")).unwrap();
    let later = union(&tree);
    let by_handle = || later.by_handle(FrontendId::default(), tag, handle.clone());
    let ino = by_handle().unwrap();
    *tree.called.moves.lock().unwrap() = vec![["d", "e"]];
    assert_eq!([by_handle(), by_handle()], [Ok(ino), Ok(ino)]);
    assert_eq!(tree.called.asked.load(Ordering::Relaxed), 1);
    // Others use it by its handle after the frontend has forgotten it.
    later.forget(&[ino]);
    assert_eq!(by_handle(), Ok(ino));
    // Removed directly, and made again.
    program.rmdir("e");
    program.mkdir("e");
    assert_eq!(by_handle(), Err(Errno::ESTALE));
}

#[test]
fn what_a_handle_of_a_file_names_is_not_asked_of_its_member_while_it_is_known() {
    let tree = member();
    let program = Direct(&tree.tree);
    program.put("f", b"old");
    let union = union(&tree);
    let ino = look_up(&union, "f");
    let (tag, handle) = union.handle_of(ino).unwrap();
    let by_handle = || union.by_handle(FrontendId::default(), tag, handle.clone());
    assert_eq!([by_handle(), by_handle()], [Ok(ino), Ok(ino)]);
    assert_eq!(tree.called.asked.load(Ordering::Relaxed), 0);
    assert_eq!(union.handle_of(ino), Some((tag, handle.clone())));
    // It has another name by now.
    program.rename("f", "g");
    assert_eq!(by_handle(), Ok(ino));
    // A client that comes back has nothing but the handle.
    union.forget(&[ino]);
    assert_eq!(by_handle(), Ok(ino));
    // Another file has taken its name.
    let (dir, name, id) = (tree.root().id, name("g"), program.look("g").unwrap().id);
    program.call(&NativeCall::Unlink { dir, name, id }, &[]).unwrap();
    program.put("g", b"new");
    assert_eq!(by_handle(), Err(Errno::ESTALE));
}
