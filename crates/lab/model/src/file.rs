//! Operations on the bytes of a file. Its opening has decided who may read and write.

use crate::content::Content;
use crate::tree::{Body, Model, Node, Outcome};
use atoll_core::{Ino, Time};
use atoll_posix::perm::{Denied, FILE_BYTES_MAX, mode_after_bytes};
use atoll_posix::xattr::CAPABILITY;
use atoll_posix::{Allocation, Answer, Caller, Errno, Kind, Whence};

impl Node {
    fn content(&self) -> Result<&Content, Errno> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn content_mut(&mut self) -> Result<&mut Content, Errno> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// An unprivileged caller changed bytes.
    pub(crate) fn kill_privileges(&mut self, mode: u32) {
        self.attr.mode = mode;
        self.xattrs.remove(CAPABILITY);
    }

    /// Bytes changed: the attributes follow.
    fn content_changed(&mut self, now: Time) {
        if let Body::File(content) = &self.body {
            (self.attr.size, self.attr.blocks) = (content.size(), content.blocks());
        }
        self.modified(now);
    }
}

fn end_of(offset: u64, len: u64) -> Result<u64, Errno> {
    offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::EFBIG)
}

impl Model {
    /// Bytes of a file, up to its end; none of anything else.
    pub fn bytes(&self, ino: Ino, offset: u64, len: u64) -> Vec<u8> {
        let content = self.node(ino).and_then(|node| node.content());
        content.map_or_else(|_| Vec::new(), |content| content.read(offset, len))
    }

    pub(crate) fn read(&mut self, now: Time, ino: Ino, offset: u64, len: u32) -> Result<Outcome, Denied> {
        let bytes = self.node(ino)?.content()?.read(offset, u64::from(len));
        // Even where nothing was left to read, as Linux does.
        if len > 0 {
            self.accessed(ino, now);
        }
        Ok(Outcome::Answered(Answer::Data, bytes))
    }

    /// Without an offset, at the end.
    pub(crate) fn write(
        &mut self,
        now: Time,
        caller: &Caller,
        ino: Ino,
        offset: Option<u64>,
        kill: bool,
        data: &[u8],
    ) -> Result<Outcome, Denied> {
        let node = self.node_mut(ino)?;
        let content = node.content_mut()?;
        let offset = offset.unwrap_or(content.size());
        let len = data.len() as u64;
        end_of(offset, len)?;
        // A write of nothing changes nothing, times included.
        if len > 0 {
            let mode = if kill { Some(mode_after_bytes(caller, &node.attr)?) } else { None };
            node.content_mut()?.write(offset, data);
            node.content_changed(now);
            if let Some(mode) = mode {
                node.kill_privileges(mode);
            }
        }
        Ok(Answer::Wrote { len, offset }.into())
    }

    pub(crate) fn fallocate(
        &mut self,
        now: Time,
        caller: &Caller,
        ino: Ino,
        offset: u64,
        len: u64,
        what: Allocation,
    ) -> Result<Outcome, Denied> {
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        let end = end_of(offset, len)?;
        let node = self.node_mut(ino)?;
        node.content()?;
        let mode = mode_after_bytes(caller, &node.attr)?;
        let content = node.content_mut()?;
        let old_size = content.size();
        let keep_size = match what {
            Allocation::Allocate { keep_size } => keep_size,
            Allocation::PunchHole => {
                content.punch(offset, end);
                true
            }
            Allocation::ZeroRange { keep_size } => {
                content.punch(offset, end);
                keep_size
            }
        };
        if !keep_size && end > old_size {
            content.truncate(end);
        }
        node.content_changed(now);
        if !caller.is_root() {
            node.kill_privileges(mode);
        }
        Ok(Answer::Done.into())
    }

    pub(crate) fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<Outcome, Denied> {
        let content = self.node(ino)?.content()?;
        if offset >= content.size() {
            return Err(Errno::ENXIO.into());
        }
        let offset = match whence {
            Whence::Data => content.next_data(offset).ok_or(Errno::ENXIO)?,
            Whence::Hole => content.next_hole(offset),
        };
        Ok(Answer::Offset { offset }.into())
    }

    /// As [`Content::may_tell`], of a file.
    pub fn may_tell(&self, ino: Ino, offset: u64, whence: Whence, told: Option<u64>) -> bool {
        let content = self.node(ino).ok().and_then(|node| node.content().ok());
        content.is_some_and(|content| content.may_tell(offset, whence, told))
    }

    pub(crate) fn copy_range(
        &mut self,
        now: Time,
        caller: &Caller,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<Outcome, Denied> {
        let source = self.node(from.0)?.content()?;
        self.node(to.0)?.content()?;
        // A copy ends where its source does.
        let len = len.min(source.size().saturating_sub(from.1));
        let end = end_of(to.1, len)?;
        if from.0 == to.0 && from.1 < end && to.1 < from.1 + len {
            return Err(Errno::EINVAL.into());
        }
        if len == 0 {
            return Ok(Answer::Wrote { len, offset: to.1 }.into());
        }
        let pieces = pieces(source, from.1, len);
        self.accessed(from.0, now);
        let node = self.known(to.0);
        let mode = mode_after_bytes(caller, &node.attr)?;
        let content = node.content_mut()?;
        content.punch(to.1, end);
        content.truncate(content.size().max(end));
        for (at, bytes) in pieces {
            content.write(to.1 + (at - from.1), &bytes);
        }
        node.content_changed(now);
        if !caller.is_root() {
            node.kill_privileges(mode);
        }
        Ok(Answer::Wrote { len, offset: to.1 }.into())
    }

    pub(crate) fn truncated(&mut self, ino: Ino, size: u64) {
        let node = self.known(ino);
        let content = node.content_mut().expect("only a regular file gets a length");
        content.truncate(size);
        node.attr.blocks = content.blocks();
        assert_eq!(node.attr.kind, Kind::Regular);
    }
}

/// The data of a range, without its holes.
fn pieces(source: &Content, offset: u64, len: u64) -> Vec<(u64, Vec<u8>)> {
    let end = offset + len;
    let mut pieces = Vec::new();
    let mut at = offset;
    while let Some(start) = source.next_data(at).filter(|start| *start < end) {
        let stop = source.next_hole(start).min(end);
        pieces.push((start, source.read(start, stop - start)));
        at = stop;
        if at >= end {
            break;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use crate::tree::{AtimeRule, Model, Outcome};
    use atoll_core::{Ino, Name, SessionId, Time};
    use atoll_posix::{Allocation, Answer, Caller, Errno, Kind, Op, SetAttr};
    use bytes::Bytes;

    struct Bench {
        model: Model,
        clock: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self { model: Model::new(Time::from_nanos(1), AtimeRule::Never), clock: 1 }
        }

        fn run(&mut self, caller: &Caller, op: Op, data: &[u8]) -> Result<(Answer, Vec<u8>), Errno> {
            self.clock += 1;
            let outcome = self.model.apply(Time::from_nanos(self.clock), SessionId(1), caller, &op, data);
            self.model.check();
            match outcome? {
                Outcome::Answered(answer, bytes) => Ok((answer, bytes)),
                Outcome::Blocked => panic!("no locks here"),
            }
        }

        fn file(&mut self, name: &[u8], mode: u32) -> Ino {
            let op = Op::Create {
                dir: Ino::ROOT,
                name: Name::new(name).unwrap(),
                kind: Kind::Regular,
                mode,
                umask: 0,
                rdev: 0,
                exclusive: true,
                target: Bytes::new(),
            };
            match self.run(&Caller::ROOT, op, &[]) {
                Ok((Answer::Found { found }, _)) => found.attr.ino,
                other => panic!("{other:?}"),
            }
        }
    }

    const USER: Caller = Caller { uid: 1000, gid: 1000, groups: Some(Vec::new()) };

    #[test]
    fn a_write_past_the_end_leaves_a_hole_and_moves_times() {
        let mut bench = Bench::new();
        let ino = bench.file(b"f", 0o644);
        let write = |offset, append| Op::Write { ino, offset, append, kill_set_id: false };
        bench.run(&Caller::ROOT, write(10, false), b"xy").unwrap();
        let appended = bench.run(&Caller::ROOT, write(0, true), b"z").unwrap();
        assert_eq!(appended.0, Answer::Wrote { len: 1, offset: 12 });
        let read = bench.run(&Caller::ROOT, Op::Read { ino, offset: 8, len: 100 }, &[]).unwrap();
        assert_eq!(read.1, b"\0\0xyz");
        let attr = *bench.model.attr(ino).unwrap();
        assert_eq!((attr.size, attr.mtime, attr.ctime), (13, Time::from_nanos(4), Time::from_nanos(4)));
        bench.run(&Caller::ROOT, write(50, false), b"").unwrap();
        assert_eq!(*bench.model.attr(ino).unwrap(), attr, "a write of nothing changes nothing");
    }

    #[test]
    fn unprivileged_changes_of_bytes_take_set_id_bits() {
        for op in [
            |ino| Op::Write { ino, offset: 0, append: false, kill_set_id: true },
            |ino| Op::Fallocate { ino, offset: 0, len: 5, what: Allocation::Allocate { keep_size: true } },
            |ino| Op::SetAttr {
                ino,
                set: SetAttr { size: Some(1), kill_set_id: true, ..SetAttr::default() },
            },
        ] {
            let mut bench = Bench::new();
            let ino = bench.file(b"f", 0o6777);
            bench.run(&USER, op(ino), b"x").unwrap();
            assert_eq!(bench.model.attr(ino).unwrap().mode, 0o777, "{:?}", op(ino));
            let ino = bench.file(b"g", 0o6767);
            bench.run(&USER, op(ino), b"x").unwrap();
            assert_eq!(bench.model.attr(ino).unwrap().mode, 0o767, "{:?}", op(ino));
        }
    }

    #[test]
    fn a_copy_keeps_holes_and_refuses_to_overlap_itself() {
        let mut bench = Bench::new();
        let (a, b) = (bench.file(b"a", 0o644), bench.file(b"b", 0o644));
        let write = |ino, offset| Op::Write { ino, offset, append: false, kill_set_id: false };
        bench.run(&Caller::ROOT, write(a, 8192), b"data").unwrap();
        bench.run(&Caller::ROOT, write(b, 0), &[7; 9000]).unwrap();
        let copy = |from, to, to_offset| Op::CopyRange { from, from_offset: 0, to, to_offset, len: 1 << 40 };
        let copied = bench.run(&Caller::ROOT, copy(a, b, 1), &[]).unwrap();
        assert_eq!(copied.0, Answer::Wrote { len: 8196, offset: 1 });
        let read = bench.run(&Caller::ROOT, Op::Read { ino: b, offset: 0, len: 10_000 }, &[]).unwrap().1;
        assert_eq!(read, [&[7][..], &[0; 8192], b"data", &[7; 803]].concat());
        assert_eq!(bench.run(&Caller::ROOT, copy(a, a, 5), &[]), Err(Errno::EINVAL));
    }
}
