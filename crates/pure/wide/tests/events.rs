//! Each thing that can happen at a site, as it is told.

mod site;

use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Ino, SessionId, Time};
use atoll_posix::{
    Allocation, AtimeRule, Caller, Errno, Kind, LockKind, LockRange, Op, Readings, RenameMode, SetAttr,
    SetTime, XattrMode, acl, mode, xattr,
};
use atoll_proto::{BodyChange, EntryRef, Record, RowChange};
use atoll_state::{NotInMemory, RowKey, RowLoad, State};
use atoll_wide::watch::{AttrValue, Birth, ByteRanges, Happened, LocalObject, happened};
use bytes::Bytes;
use site::{Memory, Site, named};

const ROOT: Ino = Ino::ROOT;

/// A site with one client that mounts it.
fn site() -> Site {
    Site::new(Memory::Whole, &[SessionId(1)], true, None)
}

/// What happens by an operation of the superuser.
fn told(site: &mut Site, op: Op, data: &'static [u8]) -> Vec<Happened> {
    site.take_happened();
    site.does(op, data);
    site.take_happened()
}

fn at(dir: Ino, name: &str) -> EntryRef {
    EntryRef { dir, name: named(name) }
}

fn rename(from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Op {
    let (dir, name, new_dir, new_name) = (from.0, named(from.1), to.0, named(to.1));
    Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
}

fn attr(object: LocalObject, to: AttrValue) -> Happened {
    Happened::AttrChanged { object, to }
}

fn xattr_is(object: LocalObject, name: &'static [u8], value: Option<&'static [u8]>) -> Happened {
    let (name, value) = (Bytes::from_static(name), value.map(Bytes::from_static));
    attr(object, AttrValue::Xattr { name, value })
}

fn set_xattr(ino: Ino, name: &'static [u8], value: &'static [u8]) -> Op {
    let (name, value) = (Bytes::from_static(name), Bytes::from_static(value));
    Op::SetXattr { ino, name, value, mode: XattrMode::Any, kill_sgid: false }
}

fn write(ino: Ino, offset: u64) -> Op {
    Op::Write { ino, offset, append: false, kill_set_id: false }
}

fn size(ino: Ino, size: u64) -> Op {
    Op::SetAttr { ino, set: SetAttr { size: Some(size), ..SetAttr::default() } }
}

/// A file of so many bytes.
fn file(site: &mut Site, bytes: &'static [u8]) -> Ino {
    let ino = site.create(ROOT, "file", Kind::Regular, b"");
    site.does(write(ino, 0), bytes);
    site.take_happened();
    ino
}

/// The one thing that happens is that bytes change: the length, and the ranges.
fn written(site: &mut Site, op: Op, data: &'static [u8]) -> (u64, Vec<(u64, u64)>) {
    let now = told(site, op, data);
    let [Happened::Written { size, ranges, mtime, .. }] = now.as_slice() else { panic!("{now:?}") };
    // One operation may take several times.
    assert!(mtime.nanos_from(site.now()) < 100, "{now:?}");
    (*size, pairs(ranges))
}

fn pairs(ranges: &ByteRanges) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.start, range.end)).collect()
}

/// A value of an access ACL that names a user.
const ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 7, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16,
    0, 7, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
];

// ------------------------------------------------------------------------ names

#[test]
fn a_site_that_begins_tells_nothing_of_its_root() {
    assert_eq!(site().take_happened(), []);
}

#[test]
fn what_is_made_is_born_with_its_attributes_and_its_first_name() {
    let mut site = site();
    let dir = site.mkdir(ROOT, "d");
    let birth = Birth {
        kind: Kind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime: site.now(),
        rdev: 0,
        target: Bytes::new(),
    };
    let born = |object, at, birth: &Birth| [Happened::Born { object, at, birth: birth.clone() }];
    assert_eq!(site.take_happened(), born(LocalObject::Dir(dir), at(ROOT, "d"), &birth));
    for (kind, target, rdev) in [
        (Kind::Regular, &b""[..], 0),
        (Kind::Symlink, b"to", 0),
        (Kind::Fifo, b"", 0),
        (Kind::BlockDevice, b"", 7),
    ] {
        let name = format!("{kind:?}");
        let ino = site.create(dir, &name, kind, target);
        let (mtime, target) = (site.now(), Bytes::from_static(target));
        let mode = if kind == Kind::Symlink { 0o777 } else { 0o644 };
        let birth = Birth { kind, mode, mtime, rdev, target, ..birth.clone() };
        assert_eq!(site.take_happened(), born(LocalObject::File(ino), at(dir, &name), &birth));
    }
}

#[test]
fn what_inherits_an_acl_has_it_from_its_birth_on() {
    let mut site = site();
    let dir = site.mkdir(ROOT, "d");
    site.does(set_xattr(dir, acl::DEFAULT_XATTR, ACL), b"");
    site.take_happened();
    let below = site.mkdir(dir, "below");
    let all = site.take_happened();
    assert!(
        matches!(all[0], Happened::Born { object: LocalObject::Dir(ino), .. } if ino == below),
        "{all:?}"
    );
    let name = |happened: &Happened| match happened {
        Happened::AttrChanged { object, to: AttrValue::Xattr { name, value: Some(_) } }
            if object.ino() == below =>
        {
            name.clone()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(all[1..].iter().map(name).collect::<Vec<_>>(), [acl::ACCESS_XATTR, acl::DEFAULT_XATTR]);
    let file = site.create(dir, "file", Kind::Regular, b"");
    let all = site.take_happened();
    let [Happened::Born { object, .. }, Happened::AttrChanged { object: of, .. }] = all.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!((object, of), (&LocalObject::File(file), &LocalObject::File(file)));
}

#[test]
fn a_file_gets_another_name_and_loses_one_and_then_the_last() {
    let mut site = site();
    let ino = site.create(ROOT, "a", Kind::Regular, b"");
    let (dir, name) = (ROOT, named("b"));
    let linked = told(&mut site, Op::Link { ino, dir, name }, b"");
    assert_eq!(linked, [Happened::Linked { ino, at: at(ROOT, "b") }]);
    let object = LocalObject::File(ino);
    for (name, is_last) in [("a", false), ("b", true)] {
        let gone = told(&mut site, Op::Unlink { dir, name: named(name) }, b"");
        assert_eq!(gone, [Happened::Removed { object, at: at(ROOT, name), is_last }]);
    }
}

#[test]
fn a_directory_is_removed() {
    let mut site = site();
    let ino = site.mkdir(ROOT, "d");
    site.does(set_xattr(ino, b"user.a", b"1"), b"");
    let gone = told(&mut site, Op::Rmdir { dir: ROOT, name: named("d"), meant: None }, b"");
    let object = LocalObject::Dir(ino);
    assert_eq!(gone, [Happened::Removed { object, at: at(ROOT, "d"), is_last: true }]);
}

#[test]
fn a_name_becomes_another_one_in_its_directory_or_in_another() {
    let mut site = site();
    let (one, other) = (site.mkdir(ROOT, "one"), site.mkdir(ROOT, "other"));
    let (file, dir) = (site.create(one, "f", Kind::Fifo, b""), site.mkdir(one, "d"));
    for (object, name) in [(LocalObject::File(file), "f"), (LocalObject::Dir(dir), "d")] {
        for (from, to) in
            [((one, name), (one, "new")), ((one, "new"), (other, "new")), ((other, "new"), (one, name))]
        {
            let moved = told(&mut site, rename(from, to, RenameMode::NoReplace), b"");
            assert_eq!(moved, [Happened::Moved { object, from: at(from.0, from.1), to: at(to.0, to.1) }]);
        }
    }
}

#[test]
fn what_a_rename_replaces_is_removed_before() {
    let mut site = site();
    let dir = site.mkdir(ROOT, "dir");
    let (a, b) = (site.create(ROOT, "a", Kind::Regular, b""), site.create(dir, "b", Kind::Regular, b""));
    site.does(Op::Link { ino: b, dir: ROOT, name: named("b too") }, b"");
    let (c, d) = (site.mkdir(ROOT, "c"), site.mkdir(dir, "d"));
    for (object, replaced, from, to, is_last) in [
        (LocalObject::File(a), LocalObject::File(b), "a", "b", false),
        (LocalObject::Dir(c), LocalObject::Dir(d), "c", "d", true),
    ] {
        let moved = told(&mut site, rename((ROOT, from), (dir, to), RenameMode::Replace), b"");
        let (from, to) = (at(ROOT, from), at(dir, to));
        let removed = Happened::Removed { object: replaced, at: to.clone(), is_last };
        assert_eq!(moved, [removed, Happened::Moved { object, from, to }]);
    }
}

#[test]
fn two_names_are_exchanged() {
    let mut site = site();
    let dir = site.mkdir(ROOT, "dir");
    let (a, b) = (site.create(ROOT, "a", Kind::Regular, b""), site.mkdir(dir, "b"));
    let now = told(&mut site, rename((ROOT, "a"), (dir, "b"), RenameMode::Exchange), b"");
    let [Happened::Exchanged { one, one_from, other, other_from }] = now.as_slice() else {
        panic!("{now:?}")
    };
    let mut both = [(*one, one_from.clone()), (*other, other_from.clone())];
    both.sort();
    assert_eq!(both, [(LocalObject::File(a), at(ROOT, "a")), (LocalObject::Dir(b), at(dir, "b"))]);
}

#[test]
fn a_rename_onto_itself_or_onto_another_link_of_the_file_is_nothing() {
    let mut site = site();
    let ino = site.create(ROOT, "a", Kind::Regular, b"");
    site.does(Op::Link { ino, dir: ROOT, name: named("b") }, b"");
    for (to, mode) in [("a", RenameMode::Replace), ("b", RenameMode::Replace), ("b", RenameMode::Exchange)] {
        assert_eq!(told(&mut site, rename((ROOT, "a"), (ROOT, to), mode), b""), []);
    }
}

// ------------------------------------------------------------------- attributes

#[test]
fn attributes_that_differ_are_told_one_by_one_of_files_and_directories() {
    let mut site = site();
    let (file, dir) = (site.create(ROOT, "f", Kind::Regular, b""), site.mkdir(ROOT, "d"));
    for object in [LocalObject::File(file), LocalObject::Dir(dir), LocalObject::Dir(ROOT)] {
        let ino = object.ino();
        let mut set = |set: SetAttr| told(&mut site, Op::SetAttr { ino, set }, b"");
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        assert_eq!(set(mode), [attr(object, AttrValue::Mode(0o600))]);
        assert_eq!(set(mode), [], "it is so already");
        let owner = SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() };
        assert_eq!(set(owner), [attr(object, AttrValue::Uid(5)), attr(object, AttrValue::Gid(6))]);
        let time = Time::from_nanos(77);
        let times = SetAttr { mtime: Some(SetTime::To { time }), ..SetAttr::default() };
        assert_eq!(set(times), [attr(object, AttrValue::Mtime(time))]);
        let access = SetAttr { atime: Some(SetTime::To { time }), ..SetAttr::default() };
        assert_eq!(set(access), []);
    }
}

#[test]
fn a_read_that_marks_the_time_of_access_is_nothing() {
    let mut site = site();
    let file = file(&mut site, b"bytes");
    for ino in [file, ROOT] {
        let access = Readings { first: site.now(), last: site.now(), rule: AtimeRule::Strict };
        let records = site.records;
        site.does(Op::SetAttr { ino, set: SetAttr::default() }, b"");
        assert_eq!(told(&mut site, Op::Accessed { ino, access }, b""), []);
        assert!(site.records > records + 1, "it is a record");
    }
}

#[test]
fn a_directorys_mtime_is_told_if_it_is_set_and_not_if_names_change() {
    let mut site = site();
    let dir = site.mkdir(ROOT, "d");
    let far = Time { secs: 1 << 33, nanos: 5 };
    let set = SetAttr { mtime: Some(SetTime::To { time: far }), ..SetAttr::default() };
    let (object, ino) = (LocalObject::Dir(dir), dir);
    assert_eq!(told(&mut site, Op::SetAttr { ino, set }, b""), [attr(object, AttrValue::Mtime(far))]);
    site.create(dir, "f", Kind::Fifo, b"");
    assert_eq!(site.state().dir(dir).unwrap().unwrap().owned.as_ref().unwrap().mtime, site.now());
    let all = site.take_happened();
    assert!(matches!(all.as_slice(), [Happened::Born { .. }]), "{all:?}");
}

#[test]
fn extended_attributes_are_told_by_name() {
    let mut site = site();
    let (file, dir) = (site.create(ROOT, "f", Kind::Regular, b""), site.mkdir(ROOT, "d"));
    for object in [LocalObject::File(file), LocalObject::Dir(dir)] {
        let ino = object.ino();
        let set = |site: &mut Site, name, value| told(site, set_xattr(ino, name, value), b"");
        assert_eq!(set(&mut site, b"user.b", b"1"), [xattr_is(object, b"user.b", Some(b"1"))]);
        assert_eq!(set(&mut site, b"user.a", b"2"), [xattr_is(object, b"user.a", Some(b"2"))]);
        assert_eq!(set(&mut site, b"user.b", b"3"), [xattr_is(object, b"user.b", Some(b"3"))]);
        assert_eq!(set(&mut site, b"user.b", b"3"), []);
        for name in [&b"user.b"[..], b"user.a"] {
            let op = Op::RemoveXattr { ino, name: Bytes::from_static(name) };
            assert_eq!(told(&mut site, op, b""), [xattr_is(object, name, None)]);
        }
    }
}

#[test]
fn an_acl_comes_with_the_mode_that_it_makes_and_follows_a_chmod() {
    let mut site = site();
    let (file, dir) = (site.create(ROOT, "f", Kind::Regular, b""), site.mkdir(ROOT, "d"));
    for object in [LocalObject::File(file), LocalObject::Dir(dir)] {
        let ino = object.ino();
        let now = told(&mut site, set_xattr(ino, acl::ACCESS_XATTR, ACL), b"");
        assert_eq!(
            now,
            [attr(object, AttrValue::Mode(0o674)), xattr_is(object, acl::ACCESS_XATTR, Some(ACL))]
        );
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let now = told(&mut site, Op::SetAttr { ino, set }, b"");
        let [mode, Happened::AttrChanged { object: of, to: AttrValue::Xattr { name, value: Some(_) } }] =
            now.as_slice()
        else {
            panic!("{now:?}")
        };
        assert_eq!(mode, &attr(object, AttrValue::Mode(0o600)));
        assert_eq!((of, &name[..]), (&object, acl::ACCESS_XATTR));
    }
}

// ------------------------------------------------------------------------ bytes

#[test]
fn bytes_that_are_written_are_told_with_the_hole_before_them() {
    let mut site = site();
    let ino = file(&mut site, b"0123456789");
    assert_eq!(written(&mut site, write(ino, 3), b"abc"), (10, vec![(3, 6)]));
    assert_eq!(written(&mut site, write(ino, 8), b"abcd"), (12, vec![(8, 12)]));
    assert_eq!(written(&mut site, write(ino, 100), b"ab"), (102, vec![(12, 102)]));
    // More than a record carries.
    static LARGE: [u8; 40_000] = [7; 40_000];
    assert_eq!(written(&mut site, write(ino, 50), &LARGE), (40_050, vec![(50, 40_050)]));
    let to = site.create(ROOT, "copy", Kind::Regular, b"");
    let copy = Op::CopyRange { from: ino, from_offset: 10, to, to_offset: 5, len: 1000 };
    assert_eq!(written(&mut site, copy, b""), (1005, vec![(0, 1005)]));
}

#[test]
fn a_cut_tells_the_length_and_bytes_that_come_back_are_told_as_changed() {
    let mut site = site();
    let ino = file(&mut site, b"0123456789");
    assert_eq!(written(&mut site, size(ino, 4), b""), (4, vec![]));
    assert_eq!(written(&mut site, size(ino, 5000), b""), (5000, vec![(4, 5000)]));
    assert_eq!(written(&mut site, size(ino, 0), b""), (0, vec![]));
}

#[test]
fn a_cut_to_the_same_length_is_a_new_mtime_and_no_change_of_bytes() {
    let mut site = site();
    let ino = file(&mut site, b"0123456789");
    let now = told(&mut site, size(ino, 10), b"");
    let mtime = site.state().inode(ino).unwrap().unwrap().attr.mtime;
    assert_eq!(now, [attr(LocalObject::File(ino), AttrValue::Mtime(mtime))]);
}

#[test]
fn zeros_are_told_within_the_file_and_reserved_space_is_not() {
    let mut site = site();
    static LARGE: [u8; 10_000] = [7; 10_000];
    let ino = file(&mut site, &LARGE);
    let op = |offset, len, what| Op::Fallocate { ino, offset, len, what };
    let (keeps, grows) = (true, false);
    assert_eq!(written(&mut site, op(100, 5000, Allocation::PunchHole), b""), (10_000, vec![(100, 5100)]));
    assert_eq!(
        written(&mut site, op(9000, 5000, Allocation::PunchHole), b""),
        (10_000, vec![(9000, 10_000)])
    );
    let zero = |keep_size| Allocation::ZeroRange { keep_size };
    assert_eq!(written(&mut site, op(9500, 1000, zero(keeps)), b""), (10_000, vec![(9500, 10_000)]));
    assert_eq!(written(&mut site, op(9500, 1000, zero(grows)), b""), (10_500, vec![(9500, 10_500)]));
    let allocate = |keep_size| Allocation::Allocate { keep_size };
    assert_eq!(written(&mut site, op(0, 10_600, allocate(grows)), b""), (10_600, vec![(10_500, 10_600)]));
    for op in
        [op(0, 20_000, allocate(keeps)), op(0, 5_000, allocate(grows)), op(20_000, 5, Allocation::PunchHole)]
    {
        let now = told(&mut site, op, b"");
        assert_eq!(now, [attr(LocalObject::File(ino), AttrValue::Mtime(site.now()))]);
    }
}

#[test]
fn a_write_tells_the_rights_that_it_takes_away() {
    let mut site = site();
    let ino = file(&mut site, b"0123456789");
    site.does(set_xattr(ino, xattr::CAPABILITY, b"all"), b"");
    let set = SetAttr { mode: Some(0o666 | mode::SETUID), ..SetAttr::default() };
    site.does(Op::SetAttr { ino, set }, b"");
    site.take_happened();
    let op = Op::Write { ino, offset: 2, append: false, kill_set_id: true };
    let user = Caller { uid: 9, gid: 9, groups: Some(Vec::new()) };
    site.run(SessionId(1), &user, op, Bytes::from_static(b"x")).unwrap();
    let now = site.take_happened();
    let object = LocalObject::File(ino);
    let rights = [attr(object, AttrValue::Mode(0o666)), xattr_is(object, xattr::CAPABILITY, None)];
    assert_eq!(now[..2], rights);
    assert!(matches!(&now[2..], [Happened::Written { size: 10, .. }]), "{now:?}");
}

#[test]
fn a_length_that_is_set_with_a_time_has_that_time_with_its_bytes() {
    let mut site = site();
    let ino = file(&mut site, b"0123456789");
    let time = Time::from_nanos(99);
    let set = SetAttr { size: Some(3), mtime: Some(SetTime::To { time }), ..SetAttr::default() };
    let now = told(&mut site, Op::SetAttr { ino, set }, b"");
    assert!(
        matches!(now.as_slice(), [Happened::Written { size: 3, mtime, .. }] if *mtime == time),
        "{now:?}"
    );
}

#[test]
fn bytes_that_a_recovery_finds_changed_are_told_although_no_operation_wrote_them() {
    let mut site = site();
    static LARGE: [u8; 10_000] = [7; 10_000];
    let ino = file(&mut site, &LARGE);
    let ranges = |now: &[Happened]| match now {
        [Happened::Written { size, ranges, .. }] => (*size, pairs(ranges)),
        other => panic!("{other:?}"),
    };
    site.correct(vec![RowChange::Sums { ino, first: 1, sums: vec![4] }]);
    assert_eq!(ranges(&site.take_happened()), (10_000, vec![(BLOCK_BYTES, 2 * BLOCK_BYTES)]));
    site.correct(vec![RowChange::Sums { ino, first: 2, sums: vec![4] }]);
    assert_eq!(ranges(&site.take_happened()), (10_000, vec![(2 * BLOCK_BYTES, 10_000)]));
    let mut row = site.state().inode(ino).unwrap().unwrap().clone();
    row.attr.size = 5000;
    site.correct(vec![
        RowChange::SumsCut { ino, first: 2, end: 3 },
        RowChange::Sums { ino, first: 1, sums: vec![9] },
        RowChange::Inode { ino, row: Some(Box::new(row)) },
    ]);
    assert_eq!(ranges(&site.take_happened()), (5000, vec![(BLOCK_BYTES, 5000)]));
}

// ---------------------------------------------------------------------- nothing

#[test]
fn nothing_is_told_of_what_has_no_name_and_is_open() {
    let mut site = site();
    let (file, dir) = (file(&mut site, b"0123456789"), site.mkdir(ROOT, "d"));
    site.does(Op::Unlink { dir: ROOT, name: named("file") }, b"");
    site.does(Op::Rmdir { dir: ROOT, name: named("d"), meant: None }, b"");
    site.take_happened();
    let records = site.records;
    for ino in [file, dir] {
        let set = SetAttr { mode: Some(0o600), uid: Some(7), ..SetAttr::default() };
        assert_eq!(told(&mut site, Op::SetAttr { ino, set }, b""), []);
        assert_eq!(told(&mut site, set_xattr(ino, b"user.a", b"1"), b""), []);
    }
    assert_eq!(told(&mut site, write(file, 5), b"abcdefgh"), []);
    assert_eq!(told(&mut site, size(file, 3), b""), []);
    assert!(site.records >= records + 6, "these are records");
    site.release(&[file, dir]);
    assert_eq!(site.take_happened(), []);
    assert_eq!(site.state().inode(file), Ok(None), "it is gone");
}

#[test]
fn the_end_of_a_client_is_nothing_although_files_go_that_it_had_open() {
    let mut site = site();
    let (kept, gone) = (site.create(ROOT, "kept", Kind::Regular, b""), file(&mut site, b"0123456789"));
    for ino in [kept, gone] {
        let (start, end, kind, owner, pid, flock) = (0, 5, LockKind::Write, 1, 1, false);
        let lock = LockRange { start, end, kind, owner, pid, flock };
        assert_eq!(told(&mut site, Op::SetLock { ino, lock, wait: false }, b""), []);
    }
    site.does(Op::Unlink { dir: ROOT, name: named("file") }, b"");
    site.take_happened();
    site.detach();
    assert_eq!(site.take_happened(), []);
    assert_eq!(site.state().inode(gone), Ok(None), "it is gone");
    assert!(matches!(site.state().inode(kept), Ok(Some(_))));
}

#[test]
fn an_announcement_of_a_write_is_nothing() {
    let mut site = site();
    let ino = file(&mut site, b"0123456789");
    let row = site.state().inode(ino).unwrap().unwrap().clone();
    let (changes, bodies) =
        (vec![RowChange::Inode { ino, row: Some(Box::new(row)) }], vec![BodyChange::Cut { ino, len: 10 }]);
    assert_eq!(site.would_do(&Record { changes, bodies }), Ok(Vec::new()));
    let changes = vec![RowChange::Dirty { ino }];
    assert_eq!(site.would_do(&Record { changes, bodies: Vec::new() }), Ok(Vec::new()));
}

#[test]
fn a_refused_operation_is_nothing() {
    let mut site = site();
    site.mkdir(ROOT, "d");
    site.take_happened();
    let op = Op::Unlink { dir: ROOT, name: named("d") };
    assert_eq!(site.run(SessionId(1), &Caller::ROOT, op, Bytes::new()), Err(Errno::EISDIR));
    assert_eq!(site.take_happened(), []);
}

#[test]
fn a_row_that_is_not_in_memory_is_asked_for() {
    let mut site = site();
    let ino = file(&mut site, b"0123456789");
    let row = site.state().inode(ino).unwrap().unwrap().clone();
    // A state that has no row in memory, behind some record.
    let mut state = State::new(1);
    state.apply(1, &RowChange::Dirty { ino });
    let changes = vec![RowChange::Inode { ino, row: Some(Box::new(row)) }];
    let record = Record { changes, bodies: Vec::new() };
    assert_eq!(happened(&state, &record), Err(NotInMemory(RowLoad::Row(RowKey::Inode(ino)))));
}
