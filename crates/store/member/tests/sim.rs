//! The faults and the feed of the simulated member: each does what it says, and nothing else.

use atoll_core::{Name, Time};
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Errno, Kind};
use atoll_union::{At, Changed, Changes, NativeCall, NativeId, NativeReply, NativeStat, Who};
use bytes::Bytes;

fn tree() -> SimTree {
    SimTree::new(7, Time { secs: 100, nanos: 0 })
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn call(tree: &SimTree, call: &NativeCall) -> Result<NativeReply, Errno> {
    tree.call(&Who::Daemon, call, &[])
}

fn stat(told: Result<NativeReply, Errno>) -> NativeStat {
    match told {
        Ok(NativeReply::Stat(stat)) => stat,
        other => panic!("{other:?}"),
    }
}

fn make(dir: NativeId, text: &str) -> NativeCall {
    let (kind, target) = (Kind::Regular, Bytes::new());
    NativeCall::Make { dir, name: name(text), kind, mode: 0o644, umask: 0, rdev: 0, target }
}

fn mkdir(dir: NativeId, text: &str) -> NativeCall {
    NativeCall::Mkdir { dir, name: name(text), mode: 0o755, umask: 0 }
}

fn look(dir: NativeId, text: &str) -> NativeCall {
    NativeCall::Look { dir, name: name(text) }
}

fn at(id: NativeId, dir: NativeId, text: &str) -> At {
    At { id, seen: Some((dir, name(text))) }
}

fn write(tree: &SimTree, of: &At, bytes: &[u8]) -> Result<NativeReply, Errno> {
    let write = NativeCall::Write { of: of.clone(), offset: 0, append: false, kill_set_id: false };
    tree.call(&Who::Daemon, &write, bytes)
}

fn read(tree: &SimTree, of: &At) -> Bytes {
    match call(tree, &NativeCall::Read { of: of.clone(), offset: 0, len: 1 << 20 }) {
        Ok(NativeReply::Data(data)) => data,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_that_is_away_or_hangs_answers_nothing_and_changes_nothing() {
    let tree = tree();
    let dir = tree.root().id;
    tree.set_faults(|faults| faults.away = true);
    assert_eq!((call(&tree, &make(dir, "f")), tree.state()), (Err(Errno::EIO), TreeState::Away));
    assert_eq!(tree.reopen(), Ok(false));
    tree.set_faults(|faults| faults.away = false);
    let back = (call(&tree, &make(dir, "f")), tree.state());
    assert_eq!(back, (Err(Errno::EIO), TreeState::Away), "what the process has open is the disk of before");
    assert_eq!(tree.reopen(), Ok(true));
    tree.set_faults(|faults| faults.hung = true);
    assert_eq!((call(&tree, &make(dir, "f")), tree.state()), (Err(Errno::ETIMEDOUT), TreeState::Stuck));
    tree.set_faults(|faults| faults.hung = false);
    assert!(tree.changes().lost, "what happened meanwhile was not told");
    assert_eq!(call(&tree, &look(dir, "f")), Err(Errno::ENOENT));
}

#[test]
fn a_full_or_read_only_member_refuses_changes() {
    let tree = tree();
    let dir = tree.root().id;
    let file = stat(call(&tree, &make(dir, "f")));
    let of = at(file.id, dir, "f");
    tree.set_faults(|faults| (faults.bytes_max, faults.inodes_max) = (3, 2));
    assert_eq!(write(&tree, &of, b"four"), Err(Errno::ENOSPC));
    assert_eq!(read(&tree, &of), "");
    assert!(write(&tree, &of, b"abc").is_ok());
    assert_eq!(call(&tree, &mkdir(dir, "d")), Err(Errno::ENOSPC));
    let NativeReply::Space(space) = call(&tree, &NativeCall::Space).unwrap() else { panic!() };
    assert_eq!((space.fs, space.bytes, space.bytes_free, space.inodes_free), (7, 3, 0, 0));
    tree.set_faults(|faults| faults.read_only = true);
    assert_eq!(write(&tree, &of, b"a"), Err(Errno::EROFS));
    assert_eq!(call(&tree, &NativeCall::Unlink { dir, name: name("f"), id: file.id }), Err(Errno::EROFS));
    assert_eq!(read(&tree, &of), "abc");
}

#[test]
fn a_mount_below_is_another_file_system() {
    let tree = tree();
    let dir = tree.root().id;
    let below = stat(call(&tree, &mkdir(dir, "d")));
    tree.set_mount(dir, &name("d"), true);
    assert_eq!(call(&tree, &look(dir, "d")), Err(Errno::EXDEV));
    assert_eq!(call(&tree, &NativeCall::OpenDir { dir, name: name("d") }), Err(Errno::EXDEV));
    tree.set_mount(dir, &name("d"), false);
    assert_eq!(stat(call(&tree, &look(dir, "d"))).id, below.id);
}

#[test]
fn a_number_is_used_again_and_the_birth_tells_the_two_apart_unless_both_are_of_one_tick() {
    let tree = tree();
    let dir = tree.root().id;
    let again = |text| {
        let first = stat(call(&tree, &make(dir, text)));
        call(&tree, &NativeCall::Unlink { dir, name: name(text), id: first.id }).unwrap();
        (first.id, stat(call(&tree, &make(dir, text))).id)
    };
    let (old, young) = again("a");
    assert_eq!(old.ino, young.ino);
    assert_ne!(old, young);
    tree.set_clock(Time { secs: 200, nanos: 0 }, 0);
    let (old, young) = again("b");
    assert_eq!(old, young, "as natively, where a tick is some milliseconds");
}

#[test]
fn the_feed_is_late_forgets_and_overflows_as_it_is_told_to() {
    let tree = tree();
    let dir = tree.root().id;
    call(&tree, &NativeCall::Watch { dir }).unwrap();
    tree.set_clock(Time { secs: 100, nanos: 0 }, 0);
    tree.set_faults(|faults| faults.feed_delay_ms = 10);
    tree.direct(&Who::Daemon, &make(dir, "direct"), &[]).unwrap();
    assert_eq!(tree.changes(), Changes::default());
    tree.set_clock(Time { secs: 100, nanos: 10_000_000 }, 0);
    let told = Changes { lost: false, dirs: vec![Changed { dir, names: vec![name("direct")] }] };
    assert_eq!(tree.changes(), told);
    assert_eq!(tree.changes(), Changes::default());
    tree.set_faults(|faults| (faults.feed_delay_ms, faults.feed_drops) = (0, true));
    tree.direct(&Who::Daemon, &make(dir, "unseen"), &[]).unwrap();
    assert_eq!(tree.changes(), Changes::default());
    tree.set_faults(|faults| (faults.feed_drops, faults.feed_max) = (false, 1));
    tree.direct(&Who::Daemon, &make(dir, "a"), &[]).unwrap();
    tree.direct(&Who::Daemon, &make(dir, "b"), &[]).unwrap();
    assert_eq!(tree.changes(), Changes { lost: true, dirs: Vec::new() });
}

#[test]
fn a_direct_program_needs_no_opened_directory_and_leaves_none() {
    let tree = tree();
    let dir = tree.root().id;
    let below = stat(tree.direct(&Who::Daemon, &mkdir(dir, "d"), &[])).id;
    tree.direct(&Who::Daemon, &make(below, "f"), &[]).unwrap();
    assert_eq!(call(&tree, &look(below, "f")), Err(Errno::ESTALE));
    call(&tree, &NativeCall::OpenDir { dir, name: name("d") }).unwrap();
    assert!(call(&tree, &look(below, "f")).is_ok());
}

#[test]
fn what_only_the_process_held_is_gone_with_it() {
    let tree = tree();
    let dir = tree.root().id;
    let below = stat(call(&tree, &mkdir(dir, "d"))).id;
    let told = call(&tree, &NativeCall::Tmpfile { dir, mode: 0o600, umask: 0 });
    let Ok(NativeReply::Opened { open, stat: file }) = told else { panic!("{told:?}") };
    let of = At { id: file.id, seen: None };
    write(&tree, &of, b"staged").unwrap();
    tree.kill_process();
    assert_eq!(call(&tree, &NativeCall::Close { open }), Err(Errno::EBADF));
    assert_eq!(call(&tree, &NativeCall::Stat { of }), Err(Errno::ESTALE));
    assert_eq!(call(&tree, &look(below, "x")), Err(Errno::ESTALE));
    assert_eq!(stat(call(&tree, &NativeCall::OpenDir { dir, name: name("d") })).id, below);
}

#[test]
fn a_power_cut_takes_what_was_not_synced_or_not() {
    for kept in [false, true] {
        let tree = tree();
        let dir = tree.root().id;
        let synced = stat(call(&tree, &make(dir, "synced")));
        let of = at(synced.id, dir, "synced");
        write(&tree, &of, b"old").unwrap();
        call(&tree, &NativeCall::Fsync { of: of.clone() }).unwrap();
        write(&tree, &of, b"new").unwrap();
        let other = stat(call(&tree, &make(dir, "other")));
        let of_other = at(other.id, dir, "other");
        write(&tree, &of_other, b"bytes").unwrap();
        tree.cut_power(&mut || kept);
        assert_eq!(read(&tree, &of), if kept { "new" } else { "old" });
        assert_eq!(call(&tree, &look(dir, "other")).is_ok(), kept);
    }
}

#[test]
fn names_can_reach_the_disk_before_bytes() {
    let tree = tree();
    let dir = tree.root().id;
    let file = stat(call(&tree, &make(dir, "f")));
    let of = at(file.id, dir, "f");
    write(&tree, &of, b"bytes").unwrap();
    call(&tree, &NativeCall::FsyncDir { dir }).unwrap();
    tree.cut_power(&mut || false);
    assert_eq!(read(&tree, &of), &[0; 5][..], "its length is an attribute");
}
