//! What the model does where no local file system can be asked: orphans, cookies, creating what is
//! there, locks, groups that were not sent.

use atoll_core::{Ino, Name, SessionId, Time};
use atoll_model::{AtimeRule, Model, Outcome};
use atoll_posix::{
    Answer, Attr, Caller, DirEntry, Errno, Kind, LockKind, LockRange, Op, RenameMode, SetAttr, Whence,
};
use bytes::Bytes;

struct Bench {
    model: Model,
    clock: u64,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Bench {
    fn new() -> Self {
        Self { model: Model::new(Time::from_nanos(1), AtimeRule::Never), clock: 1 }
    }

    fn run_as(&mut self, caller: &Caller, op: Op) -> Result<Answer, Errno> {
        self.clock += 1;
        let now = Time::from_nanos(self.clock);
        let outcome = self.model.apply(now, SessionId(1), caller, &op, b"0123456789");
        self.model.check();
        match outcome? {
            Outcome::Answered(answer, _) => Ok(answer),
            Outcome::Blocked => panic!("{op:?} is blocked"),
        }
    }

    fn run(&mut self, op: Op) -> Result<Answer, Errno> {
        self.run_as(&Caller::ROOT, op)
    }

    fn create(&mut self, dir: Ino, text: &str, exclusive: bool) -> Result<Attr, Errno> {
        let (kind, mode, umask, rdev, target) = (Kind::Regular, 0o644, 0, 0, Bytes::new());
        let name = name(text);
        match self.run(Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target })? {
            Answer::Found { found } => Ok(found.attr),
            other => panic!("{other:?}"),
        }
    }

    fn mkdir(&mut self, dir: Ino, text: &str) -> Ino {
        match self.run(Op::Mkdir { dir, name: name(text), mode: 0o755, umask: 0 }) {
            Ok(Answer::Found { found }) => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    fn rename(&mut self, from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Result<Answer, Errno> {
        let (dir, new_dir) = (from.0, to.0);
        self.run(Op::Rename {
            dir,
            name: name(from.1),
            new_dir,
            new_name: name(to.1),
            mode,
            meant: None,
            new_meant: None,
        })
    }

    fn list(&mut self, dir: Ino, after: u64, bytes: u32) -> (Vec<DirEntry>, bool) {
        match self.run(Op::ReadDir { dir, after, bytes, plus: false }) {
            Ok(Answer::Entries { entries, eof }) => (entries, eof),
            other => panic!("{other:?}"),
        }
    }

    fn attr(&self, ino: Ino) -> Attr {
        *self.model.attr(ino).expect("it exists")
    }
}

const ROOT: Ino = Ino::ROOT;

#[test]
fn creating_what_is_there_gives_it_unless_asked_to_be_alone() {
    let mut bench = Bench::new();
    let made = bench.create(ROOT, "f", false).unwrap();
    assert_eq!(bench.create(ROOT, "f", false), Ok(made), "nothing changed, times included");
    assert_eq!(bench.create(ROOT, "f", true), Err(Errno::EEXIST));
}

#[test]
fn a_file_without_names_lives_until_it_is_forgotten() {
    let mut bench = Bench::new();
    let ino = bench.create(ROOT, "f", true).unwrap().ino;
    bench.run(Op::Link { ino, dir: ROOT, name: name("g") }).unwrap();
    let unlink = |text| Op::Unlink { dir: ROOT, name: name(text) };
    assert_eq!(bench.run(unlink("f")), Ok(Answer::Removed { orphan: None }));
    assert_eq!(bench.run(unlink("g")), Ok(Answer::Removed { orphan: Some(ino) }));
    bench.run(Op::Write { ino, offset: 0, append: false, kill_set_id: false }).unwrap();
    assert_eq!((bench.attr(ino).nlink, bench.attr(ino).size), (0, 10));
    assert_eq!(bench.run(Op::Link { ino, dir: ROOT, name: name("h") }), Err(Errno::ENOENT));
    bench.model.forget(ino);
    assert_eq!(bench.run(Op::GetAttr { ino }), Err(Errno::ESTALE));
}

#[test]
fn forgetting_what_has_a_name_does_nothing() {
    let mut bench = Bench::new();
    let ino = bench.create(ROOT, "f", true).unwrap().ino;
    bench.model.forget(ino);
    bench.model.forget(ROOT);
    assert!(bench.run(Op::GetAttr { ino }).is_ok());
}

#[test]
fn a_replaced_file_is_an_orphan_and_the_name_keeps_its_cookie() {
    let mut bench = Bench::new();
    let old = bench.create(ROOT, "a", true).unwrap().ino;
    let new = bench.create(ROOT, "b", true).unwrap().ino;
    let cookie = bench.list(ROOT, 0, 4096).0[0].cookie;
    let told = bench.rename((ROOT, "b"), (ROOT, "a"), RenameMode::Replace);
    assert_eq!(told, Ok(Answer::Removed { orphan: Some(old) }));
    let (left, _) = bench.list(ROOT, 0, 4096);
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].ino, left[0].cookie), (new, cookie));
}

#[test]
fn a_listing_in_pieces_misses_nothing_that_stays_and_repeats_nothing() {
    let mut bench = Bench::new();
    for at in 0..20 {
        bench.create(ROOT, &format!("f{at}"), true).unwrap();
    }
    let mut seen = Vec::new();
    let mut after = 0;
    loop {
        let (piece, eof) = bench.list(ROOT, after, 70);
        assert!(!piece.is_empty() && piece.len() < 5);
        after = piece.last().unwrap().cookie;
        assert!(piece[0].cookie >= 3 && after < 1 << 63);
        // What was seen goes, and something new comes: neither moves the rest.
        bench.run(Op::Unlink { dir: ROOT, name: piece[0].name.clone() }).unwrap();
        seen.extend(piece.into_iter().map(|entry| entry.name.to_string()));
        if eof {
            break;
        }
    }
    let expected: Vec<String> = (0..20).map(|at| format!("f{at}")).collect();
    assert_eq!(seen, expected);
    assert!(bench.list(ROOT, after, 70).1);
    assert_eq!(bench.list(ROOT, 0, 0).0.len(), 1, "one goes along however little is asked for");
}

#[test]
fn a_moved_directory_takes_its_link_from_one_parent_to_the_other() {
    let mut bench = Bench::new();
    let (a, b) = (bench.mkdir(ROOT, "a"), bench.mkdir(ROOT, "b"));
    let d = bench.mkdir(a, "d");
    bench.rename((a, "d"), (b, "d"), RenameMode::NoReplace).unwrap();
    assert_eq!((bench.attr(a).nlink, bench.attr(b).nlink), (2, 3));
    assert_eq!(bench.model.parent(d), Some(b));
    assert_eq!(bench.rename((ROOT, "b"), (d, "x"), RenameMode::Replace), Err(Errno::EINVAL));
    assert_eq!(bench.rename((b, "d"), (ROOT, "b"), RenameMode::Replace), Err(Errno::ENOTEMPTY));
    assert_eq!(bench.rename((b, "d"), (ROOT, "b"), RenameMode::Exchange), Err(Errno::EINVAL));
    bench.create(a, "f", true).unwrap();
    bench.rename((a, "f"), (b, "d"), RenameMode::Exchange).unwrap();
    assert_eq!((bench.attr(a).nlink, bench.attr(b).nlink), (3, 2));
    assert_eq!(bench.model.parent(d), Some(a));
}

#[test]
fn what_replaces_must_be_of_the_same_sort() {
    let mut bench = Bench::new();
    let d = bench.mkdir(ROOT, "d");
    bench.mkdir(ROOT, "e");
    bench.create(ROOT, "f", true).unwrap();
    let replace = |bench: &mut Bench, from, to| bench.rename((ROOT, from), (ROOT, to), RenameMode::Replace);
    assert_eq!(replace(&mut bench, "d", "f"), Err(Errno::ENOTDIR));
    assert_eq!(replace(&mut bench, "f", "d"), Err(Errno::EISDIR));
    bench.create(d, "x", true).unwrap();
    assert_eq!(replace(&mut bench, "e", "d"), Err(Errno::ENOTEMPTY));
    assert_eq!(replace(&mut bench, "d", "e"), Ok(Answer::Removed { orphan: None }));
    assert_eq!(bench.attr(ROOT).nlink, 3);
    assert_eq!(bench.run(Op::Unlink { dir: ROOT, name: name("e") }), Err(Errno::EISDIR));
    assert_eq!(bench.run(Op::Rmdir { dir: ROOT, name: name("f"), meant: None }), Err(Errno::ENOTDIR));
}

#[test]
fn a_removed_directory_is_empty_for_ever() {
    let mut bench = Bench::new();
    let d = bench.mkdir(ROOT, "d");
    bench.run(Op::Rmdir { dir: ROOT, name: name("d"), meant: None }).unwrap();
    assert_eq!(bench.create(d, "f", false), Err(Errno::ENOENT));
    assert_eq!(bench.list(d, 0, 4096), (Vec::new(), true));
    assert_eq!(bench.attr(d).nlink, 0);
}

#[test]
fn groups_that_decide_and_were_not_sent_are_asked_for_by_eacces() {
    let mut bench = Bench::new();
    let d = bench.mkdir(ROOT, "d");
    let set = SetAttr { mode: Some(0o705), gid: Some(77), ..SetAttr::default() };
    bench.run(Op::SetAttr { ino: d, set }).unwrap();
    let lookup = Op::Lookup { dir: d, name: name("x") };
    let caller = |groups| Caller { uid: 5, gid: 5, groups };
    assert_eq!(bench.run_as(&caller(None), lookup.clone()), Err(Errno::EACCES));
    assert_eq!(bench.run_as(&caller(Some(vec![77])), lookup.clone()), Err(Errno::EACCES));
    assert_eq!(bench.run_as(&caller(Some(vec![])), lookup), Err(Errno::ENOENT));
}

#[test]
fn who_has_walked_already_is_asked_only_whether_he_may_change_names() {
    let mut bench = Bench::new();
    bench.model = bench.model.walked();
    let d = bench.mkdir(ROOT, "d");
    bench.create(d, "f", true).unwrap();
    bench.run(Op::SetAttr { ino: d, set: SetAttr { mode: Some(0o702), ..SetAttr::default() } }).unwrap();
    let other = Caller { uid: 5, gid: 5, groups: Some(vec![]) };
    let rename = |from, to| Op::Rename {
        dir: d,
        name: name(from),
        new_dir: d,
        new_name: name(to),
        mode: RenameMode::Replace,
        meant: None,
        new_meant: None,
    };
    assert_eq!(bench.run_as(&other, Op::Lookup { dir: d, name: name("x") }), Err(Errno::ENOENT));
    assert_eq!(bench.run_as(&other, rename("x", "y")), Err(Errno::ENOENT));
    assert_eq!(bench.run_as(&other, rename("f", "f")), Ok(Answer::Removed { orphan: None }));
    assert_eq!(bench.run_as(&other, rename("f", "x")), Err(Errno::EACCES));
}

#[test]
fn seeking_past_the_end_finds_nothing() {
    let mut bench = Bench::new();
    let ino = bench.create(ROOT, "f", true).unwrap().ino;
    bench.run(Op::Write { ino, offset: 0, append: true, kill_set_id: false }).unwrap();
    let seek = |offset, whence| Op::Seek { ino, offset, whence };
    assert_eq!(bench.run(seek(3, Whence::Data)), Ok(Answer::Offset { offset: 3 }));
    assert_eq!(bench.run(seek(3, Whence::Hole)), Ok(Answer::Offset { offset: 10 }));
    for whence in [Whence::Data, Whence::Hole] {
        assert_eq!(bench.run(seek(10, whence)), Err(Errno::ENXIO));
    }
}

#[test]
fn who_would_wait_for_a_lock_is_told_apart_from_who_would_not() {
    let mut bench = Bench::new();
    let ino = bench.create(ROOT, "f", true).unwrap().ino;
    let lock = LockRange { start: 0, end: 9, kind: LockKind::Write, owner: 1, pid: 4, flock: false };
    bench.run(Op::SetLock { ino, lock, wait: false }).unwrap();
    let other = SessionId(2);
    let mut apply = |op: Op| bench.model.apply(Time::from_nanos(99), other, &Caller::ROOT, &op, &[]);
    assert_eq!(apply(Op::SetLock { ino, lock, wait: false }), Err(Errno::EAGAIN));
    assert_eq!(apply(Op::SetLock { ino, lock, wait: true }), Ok(Outcome::Blocked));
    assert_eq!(apply(Op::GetLock { ino, lock }), Ok(Answer::Lock { lock }.into()));
    assert!(bench.model.end_session(SessionId(1)));
    let free = LockRange { kind: LockKind::Unlock, ..lock };
    let told = bench.model.apply(Time::from_nanos(99), other, &Caller::ROOT, &Op::GetLock { ino, lock }, &[]);
    assert_eq!(told, Ok(Answer::Lock { lock: free }.into()));
}
