//! What a frontend builds on, over a real volume of four islands in one process: promises of caching and their recall,
//! handles, callers for whom nobody has walked, attributes before and after.

mod common;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use atoll_client::{Client, Sink, Watcher};
use atoll_core::{Ino, IslandId, Key, Name};
use atoll_posix::{
    Answer, AnswerExtras, Attr, AttrsAround, Caching, Caller, Errno, Kind, Op, RenameMode, RequestOptions,
    SetAttr,
};
use atoll_proto::{EntryRef, FileHandle, Notice};
use bytes::Bytes;
use common::{ISLANDS, Tree, client, n};

const LONG: Duration = Duration::from_secs(20);
const UNCHECKED: RequestOptions = RequestOptions { unchecked: true, attributes: false };

fn ask(
    client: &Client,
    caller: &Caller,
    options: RequestOptions,
    op: Op,
    data: &'static [u8],
) -> Result<Answer, Errno> {
    let (send, receive) = mpsc::sync_channel(1);
    let done = Box::new(move |result: Result<Answer, Errno>, _: AnswerExtras<'_>| send.send(result).unwrap());
    client.start(caller, options, op, Bytes::from_static(data), done);
    receive.recv_timeout(LONG).expect("an answer")
}

fn asked(client: &Client, op: Op) -> Result<Answer, Errno> {
    ask(client, &Caller::ROOT, UNCHECKED, op, b"")
}

fn attr(client: &Client, ino: Ino) -> Result<Attr, Errno> {
    match asked(client, Op::GetAttr { ino })? {
        Answer::Attr { attr } => Ok(attr),
        other => panic!("{other:?}"),
    }
}

fn find(client: &Client, handle: &FileHandle) -> Result<Answer, Errno> {
    let (send, receive) = mpsc::sync_channel(1);
    client.find(handle, Box::new(move |result, _| send.send(result).unwrap()));
    receive.recv_timeout(LONG).expect("an answer")
}

fn parent(client: &Client, dir: Ino) -> Ino {
    match asked(client, Op::Parent { dir }).unwrap() {
        Answer::Found { found } => found.attr.ino,
        other => panic!("{other:?}"),
    }
}

fn create(dir: Ino, name: &str, mode: u32) -> Op {
    let (kind, target) = (Kind::Regular, Bytes::new());
    Op::Create { dir, name: n(name), kind, mode, umask: 0, rdev: 0, exclusive: true, target }
}

fn rename(dir: Ino, name: &str, new_dir: Ino, new_name: &str) -> Op {
    let (name, new_name) = (n(name), n(new_name));
    let mode = RenameMode::Replace;
    Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
}

fn caller(uid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid: 9999, groups: Some(groups.to_vec()) }
}

/// Waits until a client may keep what it is told.
fn until_it_keeps(client: &Client) {
    let until = Instant::now() + LONG;
    let mut kept = None;
    while kept != Some(Caching::UntilRecalled) {
        assert!(Instant::now() < until, "it may keep nothing");
        std::thread::sleep(Duration::from_millis(10));
        client.keeping(&mut |caching| kept = Some(caching));
    }
}

/// Tells when it was recalled.
struct Recalled(mpsc::Sender<()>);

impl Watcher for Recalled {
    fn recall(&self) {
        let _ = self.0.send(());
    }

    fn recall_of(&self, _: &[Ino]) {
        self.recall();
    }

    fn changed(&self, _: &[Ino], _: &[(Ino, Name)]) {}

    fn knows(&self, _: Ino) -> bool {
        false
    }
}

#[test]
fn a_recall_waits_until_every_promise_is_passed_on_and_no_answer_after_it_brings_one() {
    let tree = Tree::new("promises");
    let (say_recalled, recalled) = mpsc::channel();
    tree.client.set_watcher(Arc::new(Recalled(say_recalled)));
    let (say_inside, inside) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let ask = |done| tree.client.submit(&Caller::ROOT, Op::GetAttr { ino: Ino::ROOT }, Bytes::new(), done);
    std::thread::scope(|scope| {
        let passing = move |_: Result<Answer, Errno>, beside: AnswerExtras<'_>| {
            say_inside.send(beside.caching).unwrap();
            may_go_on.recv().unwrap();
        };
        until_it_keeps(&tree.client);
        scope.spawn(move || ask(Box::new(passing)));
        assert_eq!(inside.recv().unwrap(), Caching::UntilRecalled);
        let second = client(&tree.volume, 100, true);
        let mkdir = Op::Mkdir { dir: Ino::ROOT, name: n("d"), mode: 0o755, umask: 0 };
        let second = scope.spawn(move || {
            asked(&second, mkdir).unwrap();
            second.stop();
        });
        let early = recalled.recv_timeout(Duration::from_millis(300));
        go_on.send(()).unwrap();
        assert!(early.is_err(), "it was recalled while a promise was being passed on");
        recalled.recv_timeout(Duration::from_secs(20)).unwrap();
        let (send, receive) = mpsc::channel();
        ask(Box::new(move |_, beside| send.send(beside.caching).unwrap()));
        assert_eq!(receive.recv().unwrap(), Caching::Never);
        let mut kept = None;
        tree.client.keeping(&mut |caching| kept = Some(caching));
        assert_eq!(kept, Some(Caching::Never));
        second.join().unwrap();
    });
}

type News = (Vec<Ino>, Vec<(Ino, Name)>);

/// Tells what has changed.
struct Hears(mpsc::Sender<News>);

impl Watcher for Hears {
    fn recall(&self) {}

    fn recall_of(&self, _: &[Ino]) {}

    fn changed(&self, inos: &[Ino], names: &[(Ino, Name)]) {
        let _ = self.0.send((inos.to_vec(), names.to_vec()));
    }

    fn knows(&self, _: Ino) -> bool {
        false
    }
}

#[test]
fn news_are_told_when_every_promise_is_passed_on_that_was_given_before() {
    let tree = Tree::new("news");
    let (say, told) = mpsc::channel();
    tree.client.set_watcher(Arc::new(Hears(say)));
    let (say_inside, inside) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let ask = |done| tree.client.submit(&Caller::ROOT, Op::GetAttr { ino: Ino::ROOT }, Bytes::new(), done);
    std::thread::scope(|scope| {
        let passing = move |_: Result<Answer, Errno>, beside: AnswerExtras<'_>| {
            say_inside.send(beside.caching).unwrap();
            may_go_on.recv().unwrap();
        };
        until_it_keeps(&tree.client);
        scope.spawn(move || ask(Box::new(passing)));
        assert_eq!(inside.recv().unwrap(), Caching::UntilRecalled);
        let name = EntryRef { dir: Ino::ROOT, name: n("a") };
        for ino in [5, 6] {
            let changed = Notice::Changed { inos: vec![Ino(ino)], names: vec![name.clone()] };
            tree.client.notice(IslandId(0), changed);
        }
        let early = told.recv_timeout(Duration::from_millis(300));
        go_on.send(()).unwrap();
        assert!(early.is_err(), "it was told while a promise was being passed on");
        let (mut inos, names) = told.recv_timeout(LONG).unwrap();
        assert_eq!(names, [(Ino::ROOT, n("a"))]);
        if inos.len() == 1 {
            inos.extend(told.recv_timeout(LONG).unwrap().0);
        }
        assert_eq!(inos, [Ino(5), Ino(6)]);
        // What is asked from then on is new, and may be kept.
        let (send, receive) = mpsc::channel();
        ask(Box::new(move |_, beside| send.send(beside.caching).unwrap()));
        assert_eq!(receive.recv().unwrap(), Caching::UntilRecalled);
    });
}

#[test]
fn a_handle_outlives_its_frontend_and_renames_and_ends_with_what_it_names() {
    let tree = Tree::new("handles");
    let deep = tree.mkdir(tree.mkdir(Ino::ROOT, "a"), "deep");
    let other = tree.mkdir(Ino::ROOT, "other");
    let dirs: Vec<Ino> = (0..8).map(|i| tree.mkdir(deep, &format!("d{i}"))).collect();
    let files: Vec<Ino> = dirs.iter().map(|dir| tree.found(create(*dir, "f", 0o644))).collect();
    let handles: Vec<[FileHandle; 2]> = dirs
        .iter()
        .zip(&files)
        .map(|(dir, file)| {
            let of = |ino, kind| tree.client.handle_of(ino, kind).unwrap();
            [of(*dir, Kind::Directory), of(*file, Kind::Regular)]
        })
        .collect();
    assert_eq!(tree.client.handle_of(Ino(0x7777), Kind::Directory), None, "nobody knows its key");
    // Another frontend that was told nothing.
    let cold = client(&tree.volume, 200, false);
    for (at, [dir, file]) in handles.iter().enumerate() {
        let (dir, file) = (cold.know(dir).unwrap(), cold.know(file).unwrap());
        assert_eq!((dir, file), (dirs[at], files[at]));
        assert_eq!((attr(&cold, dir).unwrap().ino, attr(&cold, file).unwrap().ino), (dir, file));
        assert_eq!(parent(&cold, dir), deep);
        let found = asked(&cold, Op::Lookup { dir, name: n("f") }).unwrap();
        assert!(matches!(found, Answer::Found { found } if found.attr.ino == file));
    }
    // It was told where the directory above is, and so on up to the root, which is above itself.
    let above = parent(&cold, deep);
    assert_eq!((parent(&cold, above), parent(&cold, Ino::ROOT)), (Ino::ROOT, Ino::ROOT));
    // Renamed: the directories into another one, with what is in them, and one file besides.
    for at in 0..8 {
        tree.call(rename(deep, &format!("d{at}"), other, &format!("moved{at}")), b"").unwrap();
    }
    tree.call(rename(dirs[0], "f", dirs[1], "g"), b"").unwrap();
    let cold = client(&tree.volume, 201, false);
    for (at, [dir, file]) in handles.iter().enumerate() {
        let (dir, file) = (cold.know(dir).unwrap(), cold.know(file).unwrap());
        assert_eq!(attr(&cold, dir).unwrap().ino, dirs[at]);
        assert_eq!(parent(&cold, dir), other);
        assert_eq!(attr(&cold, file).unwrap().ino, files[at]);
        assert!(
            ask(
                &cold,
                &Caller::ROOT,
                UNCHECKED,
                Op::Write { ino: file, offset: 0, append: false, kill_set_id: false },
                b"abc"
            )
            .is_ok()
        );
    }
    for (dir, name) in [(dirs[1], "g"), (dirs[1], "f")] {
        tree.call(Op::Unlink { dir, name: n(name) }, b"").unwrap();
    }
    tree.client.forget(&files[..2]);
    tree.call(Op::Rmdir { dir: other, name: n("moved1"), meant: None }, b"").unwrap();
    for gone in [&handles[0][1], &handles[1][1], &handles[1][0]] {
        let until = std::time::Instant::now() + LONG;
        while find(&cold, gone) != Err(Errno::ESTALE) {
            assert!(std::time::Instant::now() < until, "{gone:?} is still there");
            std::thread::sleep(Duration::from_millis(50));
        }
        let ino = cold.know(gone).unwrap();
        assert_eq!(attr(&cold, ino), Err(Errno::ESTALE));
    }
    assert!(find(&cold, &handles[2][0]).is_ok() && find(&cold, &handles[2][1]).is_ok());
}

#[test]
fn a_file_that_is_not_where_its_handle_says_is_found_and_a_forged_handle_is_stale() {
    let tree = Tree::new("homes");
    let files: Vec<Ino> =
        (0..6).map(|i| tree.found(create(tree.mkdir(Ino::ROOT, &format!("d{i}")), "f", 0o600))).collect();
    let cold = client(&tree.volume, 200, false);
    for (ino, home) in files.iter().flat_map(|ino| (0..ISLANDS).map(|i| (*ino, IslandId(i)))) {
        let handle = FileHandle::File { ino, home };
        cold.forget(&[ino]);
        assert_eq!(cold.know(&handle), Ok(ino));
        assert!(home == ino.minted_by() || attr(&cold, ino) == Err(Errno::ESTALE));
        assert!(matches!(find(&cold, &handle), Ok(Answer::Attr { attr }) if attr.ino == ino));
        assert_eq!(attr(&cold, ino).unwrap().ino, ino, "it is known where it is from here on");
    }
    let nowhere = IslandId(77);
    for forged in [
        FileHandle::File { ino: Ino(0), home: IslandId(0) },
        FileHandle::File { ino: files[0], home: nowhere },
        FileHandle::File { ino: Ino::mint(nowhere, 5), home: IslandId(0) },
        FileHandle::Dir { ino: Ino(0), key: Key(1) },
    ] {
        assert_eq!((cold.know(&forged), find(&cold, &forged)), (Err(Errno::ESTALE), Err(Errno::ESTALE)));
    }
    // Of a file that there never was, and of a directory with another's key.
    let none = FileHandle::File { ino: Ino::mint(IslandId(1), 1 << 30), home: IslandId(2) };
    assert_eq!(find(&cold, &none), Err(Errno::ESTALE));
    for key in (0..4).map(|i| Key(i << 30)) {
        let forged = FileHandle::Dir { ino: files[0], key };
        assert_eq!(cold.know(&forged), Ok(files[0]));
        let listed = asked(&cold, Op::ReadDir { dir: files[0], after: 0, bytes: 4096, plus: false });
        assert!(listed.is_err(), "{listed:?}");
    }
}

#[test]
fn for_a_caller_for_whom_nobody_has_walked_the_object_s_own_permissions_are_checked() {
    let tree = Tree::new("unchecked");
    let dir = tree.mkdir(Ino::ROOT, "closed");
    let file = tree.found(create(dir, "f", 0o640));
    let chown = |ino, mode| {
        let set = SetAttr { mode: Some(mode), uid: Some(1000), gid: Some(100), ..SetAttr::default() };
        tree.call(Op::SetAttr { ino, set }, b"").unwrap();
    };
    chown(dir, 0o750);
    chown(file, 0o640);
    let read = || Op::Read { ino: file, offset: 0, len: 10 };
    let write = || Op::Write { ino: file, offset: 0, append: false, kill_set_id: true };
    let cut =
        || Op::SetAttr { ino: file, set: SetAttr { size: Some(1), opened: true, ..SetAttr::default() } };
    let lookup = || Op::Lookup { dir, name: n("f") };
    let list = |plus| Op::ReadDir { dir, after: 0, bytes: 4096, plus };
    let may = |caller: &Caller, op: Op| {
        let walked = ask(&tree.client, caller, RequestOptions::default(), op.clone(), b"x");
        assert_ne!(walked, Err(Errno::EACCES), "{op:?}: whoever was let in is not asked again");
        ask(&tree.client, caller, UNCHECKED, op, b"x") != Err(Errno::EACCES)
    };
    let rights = |caller: &Caller| {
        [read(), write(), cut(), lookup(), list(false), list(true), Op::Parent { dir }]
            .map(|op| may(caller, op))
    };
    let (owner, member, stranger) = (caller(1000, &[]), caller(1001, &[5, 100]), caller(1002, &[5]));
    assert_eq!(rights(&owner), [true; 7]);
    assert_eq!(rights(&member), [true, false, false, true, true, true, true]);
    assert_eq!(rights(&stranger), [false; 7]);
    // The groups decide, and were not told: it is asked again with them.
    assert!(!may(&Caller { groups: None, ..member.clone() }, read()));
    let access = |caller: &Caller, ino| match asked_as(&tree.client, caller, Op::Access { ino }) {
        Ok(Answer::Access { granted }) => granted,
        other => panic!("{other:?}"),
    };
    assert_eq!([&owner, &member, &stranger].map(|who| access(who, file)), [6, 4, 0]);
    assert_eq!([&owner, &member, &stranger].map(|who| access(who, dir)), [7, 5, 0]);
    assert_eq!((access(&Caller::ROOT, file), access(&Caller::ROOT, dir)), (6, 7));
    // The owner goes on with what was open; others read what they may execute; a directory is not searched by being listed.
    chown(file, 0o001);
    chown(dir, 0o754);
    assert_eq!(rights(&owner), [true; 7]);
    assert_eq!(rights(&stranger), [true, false, false, false, true, false, false]);
    // Half of a copy is not enough.
    let to = tree.found(create(dir, "to", 0o666));
    let copy = |from, to| Op::CopyRange { from, from_offset: 0, to, to_offset: 0, len: 1 };
    assert!(may(&stranger, copy(file, to)) && !may(&stranger, copy(to, file)));
}

fn asked_as(client: &Client, caller: &Caller, op: Op) -> Result<Answer, Errno> {
    ask(client, caller, UNCHECKED, op, b"")
}

/// What is told around an operation that succeeds.
fn around(client: &Client, op: Op, data: &'static [u8]) -> Vec<AttrsAround> {
    let (send, receive) = mpsc::sync_channel(1);
    let done = Box::new(move |result: Result<Answer, Errno>, beside: AnswerExtras<'_>| {
        send.send(result.map(|_| beside.around.to_vec())).unwrap();
    });
    let options = RequestOptions { unchecked: false, attributes: true };
    client.start(&Caller::ROOT, options, op, Bytes::from_static(data), done);
    receive.recv_timeout(LONG).expect("an answer").unwrap()
}

#[test]
fn the_attributes_around_an_operation_are_those_just_before_and_just_after_it() {
    let tree = Tree::new("around");
    let client = &tree.client;
    let attr = |ino| attr(client, ino).unwrap();
    let change = |ino: Ino, op: Op, data| {
        let before = attr(ino);
        let told = around(client, op, data);
        assert_eq!(told, [AttrsAround::new(Some(&before), attr(ino))]);
    };
    let (dir, other) = (tree.mkdir(Ino::ROOT, "a"), tree.mkdir(Ino::ROOT, "b"));
    change(dir, create(dir, "f", 0o644), b"");
    let file = tree.found(Op::Lookup { dir, name: n("f") });
    let write = |offset, append| Op::Write { ino: file, offset, append, kill_set_id: false };
    change(file, write(0, false), b"abc");
    change(file, write(0, true), b"def");
    // Too long for a record to carry: its bytes are in place before it is decided.
    change(file, write(5, false), &[7; 100_000]);
    change(file, write(3, false), b"xyz");
    let set = |set| Op::SetAttr { ino: file, set };
    change(file, set(SetAttr { size: Some(70_001), ..SetAttr::default() }), b"");
    change(file, set(SetAttr { mode: Some(0o600), ..SetAttr::default() }), b"");
    change(dir, Op::SetAttr { ino: dir, set: SetAttr { mode: Some(0o700), ..SetAttr::default() } }, b"");
    change(dir, Op::Link { ino: file, dir, name: n("g") }, b"");
    change(dir, rename(dir, "g", dir, "h"), b"");
    change(dir, Op::Unlink { dir, name: n("h") }, b"");
    // Whatever islands the new directories are on.
    for at in 0..6 {
        change(dir, Op::Mkdir { dir, name: n(&format!("d{at}")), mode: 0o755, umask: 0 }, b"");
        change(dir, Op::Rmdir { dir, name: n(&format!("d{at}")), meant: None }, b"");
    }
    // Both directories, or one, or none where islands have to agree: but nothing that is not so.
    let before = [attr(dir), attr(other)];
    for told in around(client, rename(dir, "f", other, "f"), b"") {
        let was = before.iter().find(|attr| attr.ino == told.after.ino).unwrap();
        assert_eq!(told, AttrsAround::new(Some(was), attr(was.ino)));
    }
    // A transaction that is not forgotten may have changed more than the rows show.
    tree.wait_until_forgotten();
    // What only looks has nothing before it.
    let looks = [
        (Op::Read { ino: file, offset: 70_000, len: 10 }, file),
        (Op::Read { ino: file, offset: 70_001, len: 10 }, file),
        (Op::ReadDir { dir: other, after: 0, bytes: 4096, plus: false }, other),
    ];
    for (op, of) in looks {
        assert_eq!(around(client, op, b""), [AttrsAround::new(None, attr(of))]);
    }
    assert!(around(client, Op::Statfs, b"").is_empty());
}
