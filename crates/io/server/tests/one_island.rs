//! The one-island principle, counted: how many islands each operation asks, on a real volume of four
//! islands in one process.

mod common;

use std::sync::mpsc;
use std::time::Duration;

use atoll_core::{Ino, VolumePath};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr, SetTime, XattrMode};
use atoll_proto::Resolved;
use bytes::Bytes;
use common::{Tree, client, n};

#[test]
fn every_operation_on_a_file_or_one_directory_asks_one_island_once() {
    let tree = Tree::new("one-island");
    let dir = tree.mkdir(Ino::ROOT, "d");
    let create = |name: &str| Op::Create {
        dir,
        name: n(name),
        kind: Kind::Regular,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        target: Bytes::new(),
    };
    let (answer, asked) = tree.counted(create("f"), b"");
    assert_eq!(asked, 1, "create");
    let Answer::Found { found } = answer else { panic!("{answer:?}") };
    let ino = found.attr.ino;
    // The mkdir's transaction is told of as stable, and forgotten, in the background.
    tree.wait_until_forgotten();
    let times = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    let all: Vec<(&str, Op, &'static [u8])> = vec![
        ("lookup", Op::Lookup { dir, name: n("f") }, b""),
        ("write", Op::Write { ino, offset: 0, append: false, kill_set_id: false }, b"some bytes"),
        ("append", Op::Write { ino, offset: 0, append: true, kill_set_id: false }, b"more"),
        ("read", Op::Read { ino, offset: 0, len: 100 }, b""),
        ("getattr", Op::GetAttr { ino }, b""),
        ("chmod", Op::SetAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } }, b""),
        ("utimens", Op::SetAttr { ino, set: times }, b""),
        ("truncate", Op::SetAttr { ino, set: SetAttr { size: Some(5), ..SetAttr::default() } }, b""),
        (
            "setxattr",
            Op::SetXattr {
                ino,
                name: Bytes::from_static(b"user.a"),
                value: Bytes::from_static(b"b"),
                mode: XattrMode::Any,
                kill_sgid: false,
            },
            b"",
        ),
        ("getxattr", Op::GetXattr { ino, name: Bytes::from_static(b"user.a") }, b""),
        ("fsync", Op::Fsync { ino }, b""),
        ("link", Op::Link { ino, dir, name: n("g") }, b""),
        (
            "rename",
            Op::Rename {
                dir,
                name: n("g"),
                new_dir: dir,
                new_name: n("h"),
                mode: RenameMode::Replace,
                meant: None,
                new_meant: None,
            },
            b"",
        ),
        ("readdir", Op::ReadDir { dir, after: 0, bytes: 4096, plus: true }, b""),
        ("unlink", Op::Unlink { dir, name: n("h") }, b""),
    ];
    for (what, op, data) in all {
        let before = tree.records();
        let (_, asked) = tree.counted(op, data);
        assert_eq!(asked, 1, "{what}");
        assert!(tree.islands_at_work(&before) <= 1, "{what} was decided by several islands");
    }
}

#[test]
fn mkdir_and_rmdir_ask_once_and_involve_two_islands_at_most() {
    let tree = Tree::new("two-islands");
    let mut remote = 0;
    for i in 0..12 {
        let name = n(&format!("d{i}"));
        // What the last one leaves to be told in the background would be counted here.
        tree.wait_until_forgotten();
        let before = tree.records();
        let mkdir = Op::Mkdir { dir: Ino::ROOT, name: name.clone(), mode: 0o755, umask: 0 };
        let (_, asked) = tree.counted(mkdir, b"");
        assert_eq!(asked, 1);
        let at_work = tree.islands_at_work(&before);
        assert!(at_work <= 2, "mkdir took {at_work} islands");
        remote += usize::from(at_work == 2);
        tree.wait_until_forgotten();
        let before = tree.records();
        let (_, asked) = tree.counted(Op::Rmdir { dir: Ino::ROOT, name, meant: None }, b"");
        assert_eq!(asked, 1);
        assert!(tree.islands_at_work(&before) <= 2);
    }
    assert!(remote >= 4, "directories are spread over the islands: {remote} of 12 went elsewhere");
}

#[test]
fn a_path_of_depth_30_is_found_with_one_request_by_a_client_that_knows_nothing() {
    let tree = Tree::new("path");
    let mut dir = Ino::ROOT;
    let mut path = String::new();
    for i in 0..30 {
        dir = tree.mkdir(dir, &format!("level{i}"));
        path.push_str(&format!("/level{i}"));
    }
    let file = tree.found(Op::Create {
        dir,
        name: n("file"),
        kind: Kind::Regular,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        target: Bytes::new(),
    });
    path.push_str("/file");
    let cold = client(&tree.volume, 100, false);
    let (send, receive) = mpsc::sync_channel(1);
    let walked = Box::new(move |result: Result<Resolved, Errno>| send.send(result).unwrap());
    cold.walk(&Caller::ROOT, VolumePath::parse(path.as_bytes()).unwrap(), walked);
    let resolved = receive.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    assert_eq!(resolved.found.attr.ino, file);
    assert_eq!(cold.counters().requests, 1);
    cold.stop();
}

#[test]
fn a_missing_name_on_a_path_is_absent_only_by_its_owner_s_word() {
    let tree = Tree::new("absent");
    let dir = tree.mkdir(Ino::ROOT, "a");
    tree.mkdir(dir, "b");
    let cold = client(&tree.volume, 101, false);
    for (path, expected) in
        [("/a/b/c", Errno::ENOENT), ("/a/x/c", Errno::ENOENT), ("/nothing", Errno::ENOENT)]
    {
        let (send, receive) = mpsc::sync_channel(1);
        let walked = Box::new(move |result: Result<Resolved, Errno>| send.send(result).unwrap());
        cold.walk(&Caller::ROOT, VolumePath::parse(path.as_bytes()).unwrap(), walked);
        let result = receive.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(result.map(|r| r.depth), Err(expected), "{path}");
    }
    cold.stop();
}
