//! What every member does, whichever tree it is: one suite over native file systems and the simulated twin.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod common;

use atoll_core::{Name, Time};
use atoll_member::{NativeTree, SimTree, Tree};
use atoll_needs::needs;
use atoll_posix::{
    Allocation, Caller, Errno, Kind, LockKind, LockRange, RenameMode, SetAttr, SetTime, Whence, XattrMode,
};
use atoll_union::{At, Copied, NativeCall, NativeEntry, NativeId, NativeReply, NativeStat, Who};
use bytes::Bytes;
use common::{Disk, FileSystem};

/// A member under test, with short ways to call it.
struct Member<'a>(&'a dyn Tree);

type Told<T> = Result<T, Errno>;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn user(uid: u32, groups: Option<&[u32]>) -> Who {
    Who::Caller(Caller { uid, gid: uid, groups: groups.map(<[u32]>::to_vec) })
}

const ESTALE: Errno = Errno::ESTALE;

impl Member<'_> {
    fn root(&self) -> NativeId {
        self.0.root().id
    }

    fn by(&self, who: &Who, call: &NativeCall) -> Told<NativeReply> {
        self.0.call(who, call, &[])
    }

    fn call(&self, call: &NativeCall) -> Told<NativeReply> {
        self.by(&Who::Daemon, call)
    }

    fn stat_of(told: Told<NativeReply>) -> Told<NativeStat> {
        told.map(|reply| match reply {
            NativeReply::Stat(stat) => stat,
            other => panic!("no attributes: {other:?}"),
        })
    }

    fn look(&self, dir: NativeId, text: &str) -> Told<NativeStat> {
        Self::stat_of(self.call(&NativeCall::Look { dir, name: name(text) }))
    }

    fn make_as(&self, who: &Who, dir: NativeId, text: &str, mode: u32) -> Told<NativeStat> {
        Self::stat_of(self.by(who, &make(dir, text, Kind::Regular, mode)))
    }

    fn file(&self, dir: NativeId, text: &str) -> (NativeStat, At) {
        let stat = self.make_as(&Who::Daemon, dir, text, 0o666).unwrap();
        (stat, seen(stat.id, dir, text))
    }

    fn mkdir(&self, dir: NativeId, text: &str) -> NativeId {
        let call = NativeCall::Mkdir { dir, name: name(text), mode: 0o777, umask: 0o022 };
        Self::stat_of(self.call(&call)).unwrap().id
    }

    fn stat(&self, of: &At) -> Told<NativeStat> {
        Self::stat_of(self.call(&NativeCall::Stat { of: of.clone() }))
    }

    fn data(&self, call: &NativeCall) -> Told<Bytes> {
        self.call(call).map(|reply| match reply {
            NativeReply::Data(data) => data,
            other => panic!("no bytes: {other:?}"),
        })
    }

    fn read(&self, of: &At) -> Told<Bytes> {
        self.data(&NativeCall::Read { of: of.clone(), offset: 0, len: 1 << 20 })
    }

    fn write_as(&self, who: &Who, of: &At, offset: u64, append: bool, bytes: &[u8]) -> Told<(u64, u64)> {
        let kill_set_id = matches!(who, Who::Caller(_));
        let call = NativeCall::Write { of: of.clone(), offset, append, kill_set_id };
        self.0.call(who, &call, bytes).map(|reply| match reply {
            NativeReply::Wrote { len, offset } => (len, offset),
            other => panic!("nothing written: {other:?}"),
        })
    }

    fn open(&self, of: &At, write: bool) -> Told<u64> {
        self.call(&NativeCall::Open { of: of.clone(), write }).map(|reply| match reply {
            NativeReply::Opened { open, .. } => open,
            other => panic!("not opened: {other:?}"),
        })
    }

    fn set(&self, who: &Who, of: &At, set: SetAttr) -> Told<NativeStat> {
        Self::stat_of(self.by(who, &NativeCall::SetAttr { of: of.clone(), set }))
    }

    fn unlink(&self, dir: NativeId, text: &str, id: NativeId) -> Told<NativeReply> {
        self.call(&NativeCall::Unlink { dir, name: name(text), id })
    }

    fn names(&self, dir: NativeId, bytes: u32) -> Vec<NativeEntry> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let told = self.call(&NativeCall::List { dir, from, bytes }).unwrap();
            let NativeReply::Names { names, next, dir: stat } = told else { panic!("{told:?}") };
            assert_eq!(stat.id, dir);
            all.extend(names);
            let Some(next) = next else { break };
            from = next;
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn rename(
        &self,
        (dir, from): (NativeId, &str),
        id: NativeId,
        (new_dir, to): (NativeId, &str),
        new_id: Option<NativeId>,
        mode: RenameMode,
    ) -> Told<NativeReply> {
        let (name, new_name) = (name(from), name(to));
        self.call(&NativeCall::Rename { dir, name, id, new_dir, new_name, new_id, mode })
    }
}

fn make(dir: NativeId, text: &str, kind: Kind, mode: u32) -> NativeCall {
    let target = if kind == Kind::Symlink { Bytes::from_static(b"../to/nowhere") } else { Bytes::new() };
    NativeCall::Make { dir, name: name(text), kind, mode, umask: 0o022, rdev: 0, target }
}

fn seen(id: NativeId, dir: NativeId, text: &str) -> At {
    At { id, seen: Some((dir, name(text))) }
}

fn lonely(id: NativeId) -> At {
    At { id, seen: None }
}

// ---- the suite: each function works in a directory of its own ----

fn names_are_made_found_listed_and_removed(m: &Member<'_>, dir: NativeId) {
    assert_eq!(m.look(dir, "f"), Err(Errno::ENOENT));
    let (made, at) = m.file(dir, "f");
    assert_eq!((made.kind, made.mode, made.nlink, made.size), (Kind::Regular, 0o644, 1, 0));
    assert_eq!(m.look(dir, "f"), Ok(made));
    assert_eq!(m.make_as(&Who::Daemon, dir, "f", 0o666), Err(Errno::EEXIST));
    let link = Member::stat_of(m.call(&make(dir, "l", Kind::Symlink, 0))).unwrap();
    assert_eq!(m.data(&NativeCall::Readlink { of: seen(link.id, dir, "l") }).unwrap(), "../to/nowhere");
    assert_eq!(m.data(&NativeCall::Readlink { of: at.clone() }), Err(Errno::EINVAL));
    let fifo = Member::stat_of(m.call(&make(dir, "p", Kind::Fifo, 0o600))).unwrap();
    assert_eq!((fifo.kind, fifo.mode), (Kind::Fifo, 0o600));
    let below = m.mkdir(dir, "d");
    let listed: Vec<_> = m.names(dir, 1 << 16).into_iter().map(|e| (e.name, e.ino, e.kind)).collect();
    let all = [
        (name("d"), below.ino, Kind::Directory),
        (name("f"), made.id.ino, Kind::Regular),
        (name("l"), link.id.ino, Kind::Symlink),
        (name("p"), fifo.id.ino, Kind::Fifo),
    ];
    assert_eq!(listed, all);
    assert_eq!(m.names(dir, 1).len(), 4, "one name at a time");
    let rmdir = |text: &str, id| m.call(&NativeCall::Rmdir { dir, name: name(text), id });
    assert_eq!(m.unlink(dir, "d", below), Err(Errno::EISDIR));
    assert_eq!(rmdir("f", made.id), Err(Errno::ENOTDIR));
    let (inner, _) = m.file(below, "x");
    assert_eq!(rmdir("d", below), Err(Errno::ENOTEMPTY));
    m.unlink(below, "x", inner.id).unwrap();
    assert_eq!(rmdir("d", below), Ok(NativeReply::Done));
    assert_eq!(m.unlink(dir, "f", made.id), Ok(NativeReply::Done));
    assert_eq!(m.stat(&at), Err(ESTALE));
    assert_eq!(m.unlink(dir, "f", made.id), Err(Errno::ENOENT));
    let long = NativeCall::OpenDir { dir, name: name("none") };
    assert_eq!(m.call(&long), Err(Errno::ENOENT));
    let file = NativeCall::OpenDir { dir, name: name("l") };
    assert_eq!(m.call(&file), Err(Errno::ENOTDIR), "links are not followed");
}

fn what_is_not_what_was_named_is_stale_and_stays(m: &Member<'_>, dir: NativeId) {
    let (old, at) = m.file(dir, "f");
    let (other, _) = m.file(dir, "g");
    assert_eq!(m.unlink(dir, "f", other.id), Err(ESTALE));
    let none = (dir, "h");
    assert_eq!(m.rename((dir, "f"), other.id, none, None, RenameMode::Replace), Err(ESTALE));
    assert_eq!(m.rename((dir, "f"), old.id, (dir, "g"), None, RenameMode::Replace), Err(ESTALE));
    let wrong = Some(old.id);
    assert_eq!(m.rename((dir, "f"), old.id, (dir, "g"), wrong, RenameMode::Replace), Err(ESTALE));
    assert_eq!(m.rename((dir, "f"), old.id, none, wrong, RenameMode::Replace), Err(ESTALE));
    assert_eq!(m.rename((dir, "f"), old.id, (dir, "g"), None, RenameMode::Exchange), Err(ESTALE));
    assert_eq!(m.rename((dir, "f"), old.id, none, None, RenameMode::Exchange), Err(Errno::ENOENT));
    assert_eq!((m.look(dir, "f").unwrap().id, m.look(dir, "g").unwrap().id), (old.id, other.id));
    let (below, d) = (m.mkdir(dir, "d"), name("d"));
    assert_eq!(m.call(&NativeCall::Rmdir { dir, name: d.clone(), id: old.id }), Err(ESTALE));
    m.unlink(dir, "f", old.id).unwrap();
    let (young, _) = m.file(dir, "f");
    assert_ne!(young.id, old.id, "also where the inode number is used again");
    assert_eq!(m.stat(&at), Err(ESTALE));
    assert_eq!(m.read(&at), Err(ESTALE));
    m.call(&NativeCall::Rmdir { dir, name: d, id: below }).unwrap();
    m.call(&NativeCall::ForgetDirs { dirs: vec![below] }).unwrap();
    assert_eq!(m.look(below, "x"), Err(ESTALE));
}

fn renames_move_replace_and_exchange(m: &Member<'_>, dir: NativeId) {
    let (a, _) = m.file(dir, "a");
    let (b, _) = m.file(dir, "b");
    let (to, from) = ((dir, "b"), (dir, "a"));
    assert_eq!(m.rename(from, a.id, to, None, RenameMode::NoReplace), Err(Errno::EEXIST));
    m.rename(from, a.id, to, Some(b.id), RenameMode::Exchange).unwrap();
    assert_eq!(m.look(dir, "a").unwrap().id, b.id);
    m.rename((dir, "a"), b.id, to, Some(a.id), RenameMode::Replace).unwrap();
    assert_eq!((m.look(dir, "a"), m.look(dir, "b").unwrap().id), (Err(Errno::ENOENT), b.id));
    let (d, e) = (m.mkdir(dir, "d"), m.mkdir(dir, "e"));
    let inner = m.mkdir(d, "inner");
    let full = m.rename((dir, "e"), e, (dir, "d"), Some(d), RenameMode::Replace);
    assert_eq!(full, Err(Errno::ENOTEMPTY));
    m.rename((dir, "d"), d, (e, "moved"), None, RenameMode::Replace).unwrap();
    assert_eq!(m.rename((dir, "e"), e, (inner, "x"), None, RenameMode::Replace), Err(Errno::EINVAL));
    let place = m.call(&NativeCall::PlaceOf { dir: inner }).unwrap();
    let NativeReply::Placed { path: Some(path), .. } = place else { panic!("{place:?}") };
    assert_eq!(path[path.len() - 3..], [name("e"), name("moved"), name("inner")]);
}

fn hard_links_share_their_file(m: &Member<'_>, dir: NativeId) {
    let (file, at) = m.file(dir, "f");
    let link = NativeCall::Link { of: at.clone(), dir, name: name("g") };
    assert_eq!(Member::stat_of(m.call(&link)).unwrap().nlink, 2);
    assert_eq!(m.call(&link), Err(Errno::EEXIST));
    assert_eq!(m.look(dir, "g").unwrap().id, file.id);
    m.unlink(dir, "f", file.id).unwrap();
    let left = seen(file.id, dir, "g");
    assert_eq!(m.stat(&left).unwrap().nlink, 1);
    let symlink = Member::stat_of(m.call(&make(dir, "l", Kind::Symlink, 0))).unwrap();
    let link = NativeCall::Link { of: seen(symlink.id, dir, "l"), dir, name: name("l2") };
    assert_eq!(Member::stat_of(m.call(&link)).unwrap().kind, Kind::Symlink, "the link itself");
}

fn bytes_are_written_read_appended_cut_and_sought(m: &Member<'_>, dir: NativeId) {
    let (_, at) = m.file(dir, "f");
    assert_eq!(m.write_as(&Who::Daemon, &at, 3, false, b"hello"), Ok((5, 3)));
    assert_eq!(m.write_as(&Who::Daemon, &at, 0, true, b"!!"), Ok((2, 8)));
    assert_eq!(m.read(&at).unwrap(), &b"\0\0\0hello!!"[..]);
    let part = NativeCall::Read { of: at.clone(), offset: 8, len: 100 };
    assert_eq!(m.data(&part).unwrap(), "!!");
    let cut = SetAttr { size: Some(4), opened: true, ..SetAttr::default() };
    assert_eq!(m.set(&Who::Daemon, &at, cut).unwrap().size, 4);
    assert_eq!(m.read(&at).unwrap(), &b"\0\0\0h"[..]);
    let allocate = |what, offset, len| m.call(&NativeCall::Fallocate { of: at.clone(), offset, len, what });
    allocate(Allocation::Allocate { keep_size: false }, 0, 65_536).unwrap();
    assert_eq!(m.stat(&at).unwrap().size, 65_536);
    m.write_as(&Who::Daemon, &at, 0, false, &[7; 65_536]).unwrap();
    allocate(Allocation::PunchHole, 0, 32_768).unwrap();
    let seek = |offset, whence| match m.call(&NativeCall::Seek { of: at.clone(), offset, whence })? {
        NativeReply::Offset(found) => Ok(found),
        other => panic!("{other:?}"),
    };
    assert_eq!(seek(0, Whence::Data), Ok(32_768));
    assert_eq!(seek(32_768, Whence::Hole), Ok(65_536));
    assert_eq!(seek(70_000, Whence::Data), Err(Errno::ENXIO));
    let (_, copy) = m.file(dir, "copy");
    let (from, to) = (at.clone(), copy.clone());
    let call = NativeCall::CopyRange { from, from_offset: 40_000, to, to_offset: 10, len: 100 };
    assert_eq!(m.call(&call), Ok(NativeReply::Wrote { len: 100, offset: 10 }));
    assert_eq!(m.read(&copy).unwrap()[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7]);
    assert_eq!(m.call(&NativeCall::Fsync { of: at }), Ok(NativeReply::Done));
    assert_eq!(m.call(&NativeCall::FsyncDir { dir }), Ok(NativeReply::Done));
    let sub = m.mkdir(dir, "d");
    assert_eq!(m.read(&seen(sub, dir, "d")), Err(Errno::EISDIR));
}

fn appenders_at_once_each_learn_where_their_bytes_are(m: &Member<'_>, dir: NativeId) {
    let (_, at) = m.file(dir, "f");
    let appended: Vec<(u64, u8)> = std::thread::scope(|scope| {
        let append = |byte: u8| {
            let at = &at;
            move || {
                (0..50)
                    .map(|_| (m.write_as(&Who::Daemon, at, 0, true, &[byte; 7]).unwrap().1, byte))
                    .collect()
            }
        };
        let threads: Vec<_> = (1..4).map(|byte| scope.spawn(append(byte))).collect();
        threads.into_iter().flat_map(|thread| -> Vec<(u64, u8)> { thread.join().unwrap() }).collect()
    });
    let bytes = m.read(&at).unwrap();
    assert_eq!(bytes.len(), 3 * 50 * 7);
    for (offset, byte) in appended {
        assert_eq!(bytes[offset as usize..][..7], [byte; 7]);
    }
}

fn an_open_file_outlives_its_name(m: &Member<'_>, dir: NativeId) {
    let (file, at) = m.file(dir, "f");
    m.write_as(&Who::Daemon, &at, 0, false, b"kept").unwrap();
    let (first, second) = (m.open(&at, true).unwrap(), m.open(&at, false).unwrap());
    assert_ne!(first, second);
    m.unlink(dir, "f", file.id).unwrap();
    let at = lonely(file.id);
    assert_eq!(m.stat(&at).unwrap().nlink, 0);
    assert_eq!(m.read(&at).unwrap(), "kept");
    m.call(&NativeCall::Close { open: first }).unwrap();
    assert_eq!(m.read(&at).unwrap(), "kept");
    m.call(&NativeCall::Close { open: second }).unwrap();
    assert_eq!(m.read(&at), Err(ESTALE));
    assert_eq!(m.call(&NativeCall::Close { open: second }), Err(Errno::EBADF));
}

fn what_is_held_outlives_its_name_and_keeps_its_number(m: &Member<'_>, dir: NativeId) {
    for kind in [Kind::Symlink, Kind::Fifo, Kind::Regular] {
        let made = Member::stat_of(m.call(&make(dir, "old", kind, 0o600))).unwrap();
        let NativeReply::Opened { open, stat } =
            m.call(&NativeCall::Hold { of: seen(made.id, dir, "old") }).unwrap()
        else {
            panic!("not held")
        };
        assert_eq!(stat.id, made.id);
        m.unlink(dir, "old", made.id).unwrap();
        let others: Vec<NativeId> = (0..8).map(|n| m.file(dir, &format!("n{n}")).0.id).collect();
        assert!(others.iter().all(|other| other.ino != made.id.ino));
        assert_eq!(m.stat(&lonely(made.id)).unwrap().nlink, 0);
        if kind == Kind::Symlink {
            let target = m.data(&NativeCall::Readlink { of: lonely(made.id) }).unwrap();
            assert_eq!(target, "../to/nowhere");
        }
        m.call(&NativeCall::Close { open }).unwrap();
        assert_eq!(m.stat(&lonely(made.id)), Err(ESTALE));
        others.iter().enumerate().for_each(|(n, id)| _ = m.unlink(dir, &format!("n{n}"), *id).unwrap());
    }
    let below = m.mkdir(dir, "d");
    assert_eq!(m.call(&NativeCall::Hold { of: seen(below, dir, "d") }), Err(Errno::EISDIR));
}

fn a_file_without_a_name_gets_one(m: &Member<'_>, dir: NativeId) {
    let told = m.call(&NativeCall::Tmpfile { dir, mode: 0o600, umask: 0 }).unwrap();
    let NativeReply::Opened { open, stat } = told else { panic!("{told:?}") };
    let at = lonely(stat.id);
    m.write_as(&Who::Daemon, &at, 0, false, b"staged").unwrap();
    assert!(m.names(dir, 1 << 16).is_empty());
    m.call(&NativeCall::Link { of: at.clone(), dir, name: name("f") }).unwrap();
    m.call(&NativeCall::Close { open }).unwrap();
    assert_eq!(m.read(&seen(stat.id, dir, "f")).unwrap(), "staged");
}

fn a_leased_file_is_opened_by_nobody_for_writing(m: &Member<'_>, dir: NativeId) {
    let (file, at) = m.file(dir, "f");
    m.write_as(&Who::Daemon, &at, 0, false, b"kept").unwrap();
    let before = m.open(&at, true).unwrap();
    let told = m.call(&NativeCall::Lease { of: at.clone() }).unwrap();
    let NativeReply::Opened { open, stat } = told else { panic!("{told:?}") };
    assert_eq!((stat.id, stat.size), (file.id, 4));
    assert_eq!(m.call(&NativeCall::Close { open: before }), Err(Errno::EBADF), "it was closed for the lease");
    assert_eq!(m.read(&at).unwrap(), "kept");
    assert_eq!(m.call(&NativeCall::LeaseHolds { open }), Ok(NativeReply::Done));
    assert_eq!(m.write_as(&Who::Daemon, &at, 0, false, b"lost"), Err(Errno::EAGAIN));
    assert_eq!(m.call(&NativeCall::LeaseHolds { open }), Err(Errno::EBUSY), "somebody waits for it");
    m.call(&NativeCall::Close { open }).unwrap();
    m.write_as(&Who::Daemon, &at, 0, false, b"more").unwrap();
    assert_eq!(m.read(&at).unwrap(), "more");
}

fn times_have_nanoseconds(m: &Member<'_>, dir: NativeId) {
    let (_, at) = m.file(dir, "f");
    let time = |secs, nanos| Some(SetTime::To { time: Time { secs, nanos } });
    let set = SetAttr { atime: time(5, 6), mtime: time(1_700_000_000, 123_456_789), ..SetAttr::default() };
    let stat = m.set(&Who::Daemon, &at, set).unwrap();
    assert_eq!(stat.mtime, Time { secs: 1_700_000_000, nanos: 123_456_789 });
    assert_eq!(stat.atime, Time { secs: 5, nanos: 6 });
    let bad = SetAttr { atime: time(0, 1_000_000_000), ..SetAttr::default() };
    assert_eq!(m.set(&Who::Daemon, &at, bad), Err(Errno::EINVAL));
    let link = Member::stat_of(m.call(&make(dir, "l", Kind::Symlink, 0))).unwrap();
    let link = seen(link.id, dir, "l");
    assert_eq!(m.set(&Who::Daemon, &link, set).unwrap().mtime.secs, 1_700_000_000, "the link's own");
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(m.set(&Who::Daemon, &link, mode), Err(Errno::EOPNOTSUPP));
    let below = m.mkdir(dir, "d");
    let size = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(m.set(&Who::Daemon, &lonely(below), size), Err(Errno::EISDIR));
}

fn extended_attributes_are_kept(m: &Member<'_>, dir: NativeId) {
    let (_, at) = m.file(dir, "f");
    let key = Bytes::from_static(b"user.k");
    let set = |value: &[u8], mode| {
        let value = Bytes::copy_from_slice(value);
        m.call(&NativeCall::SetXattr { of: at.clone(), name: key.clone(), value, mode, kill_sgid: false })
    };
    let get = || m.data(&NativeCall::GetXattr { of: at.clone(), name: key.clone() });
    assert_eq!(get(), Err(Errno::ENODATA));
    assert_eq!(set(b"1", XattrMode::Replace), Err(Errno::ENODATA));
    set(b"1", XattrMode::Create).unwrap();
    assert_eq!(set(b"2", XattrMode::Create), Err(Errno::EEXIST));
    let long = [b'x'; 700];
    set(&long, XattrMode::Replace).unwrap();
    assert_eq!(get().unwrap(), long[..]);
    assert_eq!(m.data(&NativeCall::ListXattr { of: at.clone() }).unwrap(), "user.k\0");
    let remove = NativeCall::RemoveXattr { of: at.clone(), name: key.clone() };
    assert_eq!((m.call(&remove), m.call(&remove)), (Ok(NativeReply::Done), Err(Errno::ENODATA)));
    let bad = NativeCall::GetXattr { of: at.clone(), name: Bytes::from_static(b"user.\0") };
    assert_eq!(m.data(&bad), Err(Errno::EINVAL));
}

fn a_copy_is_like_its_original(m: &Member<'_>, dir: NativeId) {
    let stat = m.0.root();
    let like = Copied {
        mode: 0o1751,
        uid: stat.uid,
        gid: stat.gid,
        atime: Time { secs: 10, nanos: 1 },
        mtime: Time { secs: 20, nanos: 2 },
        xattrs: vec![(Bytes::from_static(b"user.a"), Bytes::from_static(b"b"))],
    };
    let call = NativeCall::MkdirLike { dir, name: name("d"), like: like.clone() };
    let made = Member::stat_of(m.call(&call)).unwrap();
    assert_eq!((made.mode, made.mtime), (like.mode, like.mtime));
    let copy = |of| match m.call(&NativeCall::CopyOf { of }).unwrap() {
        NativeReply::Copied(copied) => copied,
        other => panic!("{other:?}"),
    };
    assert_eq!(copy(lonely(made.id)), like);
    assert_eq!(m.call(&call), Err(Errno::EEXIST));
    // A directory that was removed must not come back elsewhere.
    let gone = m.mkdir(dir, "gone");
    m.call(&NativeCall::Rmdir { dir, name: name("gone"), id: gone }).unwrap();
    assert_eq!(m.call(&NativeCall::CopyOf { of: lonely(gone) }), Err(Errno::ENOENT));
    let (_, file) = m.file(dir, "f");
    let key = Bytes::from_static(b"user.other");
    let call = NativeCall::SetXattr {
        of: file.clone(),
        name: key,
        value: Bytes::new(),
        mode: XattrMode::Any,
        kill_sgid: false,
    };
    m.call(&call).unwrap();
    m.call(&NativeCall::Become { of: file.clone(), like: like.clone() }).unwrap();
    assert_eq!(copy(file), like);
    let bad = Copied { xattrs: vec![(Bytes::from_static(b"nonsense"), Bytes::new())], ..like };
    let call = NativeCall::MkdirLike { dir, name: name("e"), like: bad };
    assert!(m.call(&call).is_err());
    assert_eq!(m.look(dir, "e"), Err(Errno::ENOENT), "nothing is left of one that could not be made");
}

fn locks_hold_against_other_owners(m: &Member<'_>, dir: NativeId) {
    let (_, at) = m.file(dir, "f");
    for flock in [false, true] {
        let range = |owner, kind| LockRange { start: 0, end: u64::MAX, kind, owner, pid: 0, flock };
        let lock = |owner, kind| m.call(&NativeCall::Lock { of: at.clone(), lock: range(owner, kind) });
        let test = |owner| {
            let lock = range(owner, LockKind::Write);
            match m.call(&NativeCall::TestLock { of: at.clone(), lock }).unwrap() {
                NativeReply::Lock(lock) => lock.kind,
                other => panic!("{other:?}"),
            }
        };
        lock(1, LockKind::Write).unwrap();
        lock(1, LockKind::Write).unwrap();
        assert_eq!(lock(2, LockKind::Read), Err(Errno::EAGAIN));
        assert_eq!((test(2), test(1)), (LockKind::Write, LockKind::Unlock));
        lock(1, LockKind::Unlock).unwrap();
        lock(2, LockKind::Read).unwrap();
        assert_eq!(test(3), LockKind::Read);
        lock(1, LockKind::Read).unwrap();
        lock(1, LockKind::Unlock).unwrap();
        lock(2, LockKind::Unlock).unwrap();
        assert_eq!(test(3), LockKind::Unlock);
    }
    let part = |start, end, kind| LockRange { start, end, kind, owner: 1, pid: 0, flock: false };
    let lock = |lock| m.call(&NativeCall::Lock { of: at.clone(), lock });
    lock(part(0, 99, LockKind::Write)).unwrap();
    lock(part(10, 19, LockKind::Unlock)).unwrap();
    let other = LockRange { owner: 2, ..part(10, 19, LockKind::Write) };
    lock(other).unwrap();
    assert_eq!(lock(LockRange { end: 20, ..other }), Err(Errno::EAGAIN));
    lock(LockRange { kind: LockKind::Unlock, ..other }).unwrap();
    lock(part(0, u64::MAX, LockKind::Unlock)).unwrap();
    assert_eq!(lock(part(5, 4, LockKind::Write)), Err(Errno::EINVAL));
}

fn changes_in_watched_directories_are_told(m: &Member<'_>, dir: NativeId) {
    let (_, _) = m.file(dir, "before");
    let watched = m.call(&NativeCall::Watch { dir }).unwrap();
    if watched == NativeReply::Watched(false) {
        return;
    }
    let _before = m.0.changes();
    let (file, _) = m.file(dir, "f");
    let below = m.mkdir(dir, "d");
    m.call(&NativeCall::Rmdir { dir, name: name("d"), id: below }).unwrap();
    assert_eq!(m.0.changes(), atoll_union::Changes::default(), "it has made these itself");
    m.rename((dir, "f"), file.id, (dir, "g"), None, RenameMode::Replace).unwrap();
    let told = m.0.changes();
    assert!(!told.lost);
    assert!(told.dirs.iter().any(|c| c.dir == dir && c.names == [name("g")]), "{told:?}");
    assert_eq!(m.0.changes(), atoll_union::Changes::default());
    m.call(&NativeCall::ForgetDirs { dirs: vec![dir] }).unwrap();
}

fn space_is_told(m: &Member<'_>, _: NativeId) {
    let told = m.call(&NativeCall::Space).unwrap();
    let NativeReply::Space(space) = told else { panic!("{told:?}") };
    assert!(space.bytes >= space.bytes_free && space.bytes_free >= space.bytes_available && space.bytes > 0);
    assert_eq!(m.call(&NativeCall::Space).map(|_| ()), Ok(()));
}

fn handles_name_objects_and_places(m: &Member<'_>, dir: NativeId) {
    let (file, at) = m.file(dir, "f");
    let handle_of = |of| m.data(&NativeCall::HandleOf { of });
    let Ok(handle) = handle_of(at) else { return };
    let below = m.mkdir(dir, "d");
    let of_dir = handle_of(lonely(below)).unwrap();
    m.rename((dir, "f"), file.id, (below, "moved"), None, RenameMode::Replace).unwrap();
    let told = m.call(&NativeCall::ByHandle { handle: handle.clone() });
    if told == Err(Errno::EPERM) {
        return;
    }
    let Ok(NativeReply::Placed { stat, path: None }) = told else { panic!("{told:?}") };
    assert_eq!(stat.id, file.id);
    assert_eq!(m.stat(&lonely(file.id)).unwrap().id, file.id, "it was seen by its handle");
    m.call(&NativeCall::ForgetDirs { dirs: vec![below] }).unwrap();
    let told = m.call(&NativeCall::ByHandle { handle: of_dir }).unwrap();
    let NativeReply::Placed { stat, path: Some(path) } = told else { panic!("{told:?}") };
    assert_eq!((stat.id, path.last()), (below, Some(&name("d"))));
    assert_eq!(m.look(below, "moved").unwrap().id, file.id);
    m.unlink(below, "moved", file.id).unwrap();
    assert_eq!(m.call(&NativeCall::ByHandle { handle }), Err(ESTALE));
    assert_eq!(m.call(&NativeCall::ByHandle { handle: Bytes::new() }), Err(ESTALE));
}

// ---- what needs a daemon that is root ----

fn callers_own_what_they_make_and_get_what_is_theirs(m: &Member<'_>, dir: NativeId) {
    let ann = user(5_001, Some(&[]));
    assert_eq!(m.make_as(&ann, dir, "f", 0o666), Err(Errno::EACCES));
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    m.set(&Who::Daemon, &lonely(dir), open).unwrap();
    let made = m.make_as(&ann, dir, "f", 0o666).unwrap();
    assert_eq!((made.uid, made.gid, made.mode), (5_001, 5_001, 0o644));
    let at = seen(made.id, dir, "f");
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(m.set(&user(5_002, Some(&[])), &at, chmod), Err(Errno::EPERM));
    assert_eq!(m.set(&ann, &at, chmod).unwrap().mode, 0o600);
    let chown = SetAttr { uid: Some(5_002), ..SetAttr::default() };
    assert_eq!(m.set(&ann, &at, chown), Err(Errno::EPERM), "nobody gives files away");
    let chgrp = SetAttr { gid: Some(7_000), ..SetAttr::default() };
    assert_eq!(m.set(&user(5_001, None), &at, chgrp), Err(Errno::EPERM));
    assert_eq!(m.set(&user(5_001, Some(&[7_000])), &at, chgrp).unwrap().gid, 7_000);
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(m.set(&user(5_002, Some(&[])), &at, cut), Err(Errno::EACCES));
    let access = |who: &Who| m.by(who, &NativeCall::Access { of: at.clone(), want: 7 });
    assert_eq!(access(&ann), Ok(NativeReply::Access(6)));
    assert_eq!(access(&user(5_002, Some(&[]))), Ok(NativeReply::Access(0)));
    let search = |who: &Who, mode: u32| {
        m.set(
            &Who::Daemon,
            &lonely(dir),
            SetAttr { mode: Some(mode), uid: Some(5_001), ..SetAttr::default() },
        )?;
        match m.by(who, &NativeCall::Access { of: lonely(dir), want: 1 })? {
            NativeReply::Access(granted) => Ok(granted & 1),
            _ => Err(Errno::EPROTO),
        }
    };
    let other = user(5_002, Some(&[]));
    for (who, mode, granted) in [(&ann, 0o700, 1), (&ann, 0o677, 0), (&other, 0o701, 1), (&other, 0o770, 0)] {
        assert_eq!(search(who, mode), Ok(granted), "{mode:o}");
    }
    search(&ann, 0o777).unwrap();
    let trusted = |who: &Who| {
        let (name, value) = (Bytes::from_static(b"trusted.t"), Bytes::from_static(b"v"));
        let (of, mode) = (at.clone(), XattrMode::Any);
        m.by(who, &NativeCall::SetXattr { of, name, value, mode, kill_sgid: false })
    };
    assert_eq!(trusted(&ann), Err(Errno::EPERM), "trusted attributes are root's");
    assert_eq!(trusted(&Who::Daemon), Ok(NativeReply::Done));
    let list = |who: &Who| m.by(who, &NativeCall::ListXattr { of: at.clone() });
    assert_eq!(list(&ann), Ok(NativeReply::Data(Bytes::new())));
    assert_eq!(list(&Who::Daemon), Ok(NativeReply::Data(Bytes::from_static(b"trusted.t\0"))));
}

fn groups_that_are_not_told_deny(m: &Member<'_>, dir: NativeId) {
    let set = SetAttr { mode: Some(0o770), gid: Some(7_000), ..SetAttr::default() };
    m.set(&Who::Daemon, &lonely(dir), set).unwrap();
    assert_eq!(m.make_as(&user(5_001, None), dir, "f", 0o666), Err(Errno::EACCES));
    assert!(m.make_as(&user(5_001, Some(&[7_000])), dir, "f", 0o666).is_ok());
    assert_eq!(m.make_as(&user(5_002, Some(&[])), dir, "g", 0o666), Err(Errno::EACCES), "no group is left");
    assert!(m.make_as(&Who::Daemon, dir, "g", 0o666).is_ok(), "the daemon is itself again");
}

fn a_directory_is_listed_by_whom_may_read_and_not_search_it(m: &Member<'_>, dir: NativeId) {
    m.file(dir, "f");
    let list = |mode| {
        m.set(&Who::Daemon, &lonely(dir), SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
        m.by(&user(5_001, None), &NativeCall::List { dir, from: 0, bytes: 100 }).map(|_| ())
    };
    assert_eq!((list(0o744), list(0o711)), (Ok(()), Err(Errno::EACCES)));
    let look = NativeCall::Look { dir, name: name("f") };
    assert!(m.by(&user(5_001, None), &look).is_ok());
    assert_eq!((list(0o744), m.by(&user(5_001, None), &look)), (Ok(()), Err(Errno::EACCES)));
}

fn a_fresh_file_is_opened_by_its_maker_whatever_its_mode(m: &Member<'_>, dir: NativeId) {
    let made = m.make_as(&Who::Daemon, dir, "f", 0o444).unwrap();
    let at = seen(made.id, dir, "f");
    let open = m.open(&at, true).unwrap();
    m.write_as(&Who::Daemon, &at, 0, false, b"x").unwrap();
    m.call(&NativeCall::Close { open }).unwrap();
}

fn set_id_bits_go_with_a_users_bytes(m: &Member<'_>, dir: NativeId) {
    let (_, at) = m.file(dir, "f");
    let mode = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
    assert_eq!(m.set(&Who::Daemon, &at, mode).unwrap().mode, 0o6777);
    m.write_as(&user(5_001, Some(&[])), &at, 0, false, b"x").unwrap();
    assert_eq!(m.stat(&at).unwrap().mode, 0o777);
    m.set(&Who::Daemon, &at, mode).unwrap();
    let cut = SetAttr { size: Some(0), kill_set_id: true, opened: true, ..SetAttr::default() };
    assert_eq!(m.set(&user(5_001, Some(&[])), &at, cut).unwrap().mode, 0o777);
    m.set(&Who::Daemon, &at, mode).unwrap();
    m.write_as(&Who::Daemon, &at, 0, false, b"y").unwrap();
    assert_eq!(m.stat(&at).unwrap().mode, 0o6777, "the daemon was not asked to");
}

fn default_acls_replace_the_umask(m: &Member<'_>, dir: NativeId) {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, perm) in [(1u16, 7u16), (4, 5), (0x20, 5)] {
        acl.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        acl.extend(u32::MAX.to_le_bytes());
    }
    let (key, value) = (Bytes::from_static(b"system.posix_acl_default"), Bytes::from(acl));
    let (of, mode) = (lonely(dir), XattrMode::Any);
    m.call(&NativeCall::SetXattr { of, name: key, value, mode, kill_sgid: false }).unwrap();
    let call = NativeCall::Make {
        dir,
        name: name("f"),
        kind: Kind::Regular,
        mode: 0o666,
        umask: 0o077,
        rdev: 0,
        target: Bytes::new(),
    };
    assert_eq!(Member::stat_of(m.call(&call)).unwrap().mode, 0o644);
    let copy = m.call(&NativeCall::CopyOf { of: lonely(dir) }).unwrap();
    let NativeReply::Copied(copy) = copy else { panic!("{copy:?}") };
    let above = m.mkdir(dir, "above");
    let call = NativeCall::MkdirLike { dir: above, name: name("like"), like: copy.clone() };
    let made = Member::stat_of(m.call(&call)).unwrap();
    let again = m.call(&NativeCall::CopyOf { of: lonely(made.id) }).unwrap();
    assert_eq!(again, NativeReply::Copied(copy), "its ACLs too");
}

/// `EXDEV` where something is mounted; nothing of it is touched.
fn mounts_below_are_not_entered(tree: &NativeTree, disk: &Disk) {
    let m = Member(tree);
    let dir = m.mkdir(m.root(), "mounts");
    m.mkdir(dir, "point");
    let point = disk.path().join("mounts/point");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("below", &point, "tmpfs", flags, None).unwrap();
    assert_eq!(m.look(dir, "point"), Err(Errno::EXDEV));
    assert_eq!(m.call(&NativeCall::OpenDir { dir, name: name("point") }), Err(Errno::EXDEV));
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
    assert!(m.call(&NativeCall::OpenDir { dir, name: name("point") }).is_ok());
}

type Case = (&'static str, fn(&Member<'_>, NativeId));

macro_rules! cases {
    ($($case:ident),+ $(,)?) => { &[$((stringify!($case), $case as fn(&Member<'_>, NativeId))),+] };
}

const CASES: &[Case] = cases![
    names_are_made_found_listed_and_removed,
    what_is_not_what_was_named_is_stale_and_stays,
    renames_move_replace_and_exchange,
    hard_links_share_their_file,
    bytes_are_written_read_appended_cut_and_sought,
    appenders_at_once_each_learn_where_their_bytes_are,
    an_open_file_outlives_its_name,
    what_is_held_outlives_its_name_and_keeps_its_number,
    a_file_without_a_name_gets_one,
    a_leased_file_is_opened_by_nobody_for_writing,
    times_have_nanoseconds,
    extended_attributes_are_kept,
    a_copy_is_like_its_original,
    locks_hold_against_other_owners,
    changes_in_watched_directories_are_told,
    space_is_told,
    handles_name_objects_and_places,
    a_fresh_file_is_opened_by_its_maker_whatever_its_mode,
];

const ROOT_CASES: &[Case] = cases![
    callers_own_what_they_make_and_get_what_is_theirs,
    groups_that_are_not_told_deny,
    a_directory_is_listed_by_whom_may_read_and_not_search_it,
    set_id_bits_go_with_a_users_bytes,
    default_acls_replace_the_umask,
];

fn run(tree: &dyn Tree, cases: &[Case]) {
    let member = Member(tree);
    for (case, run) in cases {
        eprintln!("{case}");
        let dir = member.mkdir(member.root(), case);
        run(&member, dir);
    }
}

/// Nothing is in a member that a caller did not make.
fn only_what_was_asked_for(tree: &dyn Tree, cases: &[Case]) {
    let member = Member(tree);
    let names: Vec<_> = member.names(member.root(), 1 << 16).into_iter().map(|entry| entry.name).collect();
    let made: Vec<_> = cases.iter().map(|(case, _)| name(case)).collect();
    let others: Vec<_> = names.iter().filter(|name| !made.contains(name)).collect();
    assert!(others.iter().all(|name| name.as_bytes() == b"lost+found"), "{others:?}");
}

fn over(file_system: FileSystem) {
    let disk = Disk::new(file_system);
    let tree = NativeTree::open(disk.path()).unwrap();
    run(&tree, CASES);
    run(&tree, ROOT_CASES);
    only_what_was_asked_for(&tree, &[CASES, ROOT_CASES].concat());
    mounts_below_are_not_entered(&tree, &disk);
    drop(tree);
    disk.unmount();
}

#[test]
fn a_simulated_tree_conforms() {
    let tree = SimTree::new(1, Time { secs: 1_000, nanos: 0 });
    run(&tree, CASES);
    run(&tree, ROOT_CASES);
}

#[test]
fn a_native_tree_over_tmpfs_conforms() {
    needs!(Root);
    over(FileSystem::Tmpfs);
}

#[test]
fn a_native_tree_over_ext4_conforms() {
    needs!(Root, LoopDevices, Programs(&["mkfs.ext4", "mount"]));
    over(FileSystem::Ext4);
}

#[test]
fn a_native_tree_over_xfs_conforms() {
    needs!(Root, LoopDevices, Programs(&["mkfs.xfs", "mount"]));
    over(FileSystem::Xfs);
}

const USERS_FOLDER: &str = "ATOLL_MEMBER_FOLDER";

/// Serves somebody who is not root: himself, and nobody else.
#[test]
#[ignore = "a process that another test starts"]
fn as_a_user() {
    let tree = NativeTree::open(std::env::var_os(USERS_FOLDER).unwrap().as_ref()).unwrap();
    run(&tree, CASES);
    let member = Member(&tree);
    let own = rustix::process::geteuid().as_raw();
    assert!(member.make_as(&user(own, None), member.root(), "own", 0o666).is_ok());
    assert_eq!(member.make_as(&user(own + 1, None), member.root(), "other", 0o666), Err(Errno::EACCES));
    assert_eq!(member.make_as(&user(0, None), member.root(), "roots", 0o666), Err(Errno::EACCES));
}

#[test]
fn a_native_tree_of_a_user_conforms() {
    use std::os::unix::process::CommandExt;
    needs!(Root);
    let disk = Disk::new(FileSystem::Tmpfs);
    let folder = disk.path().join("users");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(5_000), Some(5_000)).unwrap();
    // The user may not be able to walk to this program by its path.
    let mut command = std::process::Command::new("/proc/self/exe");
    command.args(["--exact", "as_a_user", "--ignored"]).env(USERS_FOLDER, &folder).uid(5_000).gid(5_000);
    let output = command.current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    disk.unmount();
}
