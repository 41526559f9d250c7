//! Parses the kernel's requests. Short or malformed bytes become an error number, never a panic.

use crate::abi::{IN_HEADER, opcode};
use atoll_core::Name;
use atoll_posix::{Caller, Errno};

/// The header of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) opcode: u32,
    /// Names the request in its answer and in INTERRUPT.
    pub(crate) unique: u64,
    /// The file or directory that it is about.
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The thread that asks; 0 if it is in another pid namespace.
    pub(crate) pid: u32,
}

impl Header {
    /// Who asks; supplementary groups only as far as they are known.
    pub(crate) const fn caller(&self, groups: Option<Vec<u32>>) -> Caller {
        Caller { uid: self.uid, gid: self.gid, groups }
    }
}

/// A lock as GETLK, SETLK and SETLKW carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockIn {
    pub(crate) fh: u64,
    pub(crate) owner: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: u32,
    pub(crate) pid: u32,
    pub(crate) flags: u32,
}

/// The fields of SETATTR; `valid` says which count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetAttrIn {
    pub(crate) valid: u32,
    pub(crate) size: u64,
    pub(crate) atime: (i64, u32),
    pub(crate) mtime: (i64, u32),
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Lookup {
        name: Name,
    },
    Forget {
        count: u64,
    },
    /// Pairs of (node, count), 16 bytes each.
    BatchForget {
        list: &'a [u8],
    },
    GetAttr,
    SetAttr(SetAttrIn),
    Readlink,
    Symlink {
        name: Name,
        target: &'a [u8],
    },
    Mknod {
        mode: u32,
        rdev: u32,
        umask: u32,
        name: Name,
    },
    Mkdir {
        mode: u32,
        umask: u32,
        name: Name,
    },
    Unlink {
        name: Name,
    },
    Rmdir {
        name: Name,
    },
    Rename {
        new_dir: u64,
        flags: u32,
        name: Name,
        new_name: Name,
    },
    Link {
        old: u64,
        name: Name,
    },
    Open {
        flags: u32,
    },
    Read {
        offset: u64,
        size: u32,
        flags: u32,
    },
    /// The payload is the `size` bytes behind `abi::WRITE_HEADER`.
    Write {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        flags: u32,
    },
    Statfs,
    Release {
        fh: u64,
    },
    Fsync,
    SetXattr {
        flags: u32,
        setxattr_flags: u32,
        name: &'a [u8],
        value: &'a [u8],
    },
    GetXattr {
        size: u32,
        name: &'a [u8],
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Flush {
        lock_owner: u64,
    },
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u64,
    },
    OpenDir,
    ReadDir {
        fh: u64,
        offset: u64,
        size: u32,
        flags: u32,
        plus: bool,
    },
    ReleaseDir {
        fh: u64,
    },
    FsyncDir,
    GetLock(LockIn),
    SetLock {
        lock: LockIn,
        wait: bool,
    },
    Create {
        flags: u32,
        mode: u32,
        umask: u32,
        name: Name,
    },
    /// The name that stands behind it means nothing.
    Tmpfile {
        flags: u32,
        mode: u32,
        umask: u32,
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
    Ioctl,
    Fallocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    CopyRange {
        offset: u64,
        to: u64,
        to_offset: u64,
        len: u64,
        flags: u64,
        wide: bool,
    },
    Statx,
    /// One that is not served: ENOSYS, after which the kernel does without.
    Other,
}

/// A cursor over a request's body.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Errno> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32, Errno> {
        self.bytes(4).map(|b| u32::from_ne_bytes(b.try_into().expect("four bytes were taken")))
    }

    fn u64(&mut self) -> Result<u64, Errno> {
        self.bytes(8).map(|b| u64::from_ne_bytes(b.try_into().expect("eight bytes were taken")))
    }

    fn i64(&mut self) -> Result<i64, Errno> {
        self.u64().map(u64::cast_signed)
    }

    fn skip(&mut self, n: usize) -> Result<&mut Self, Errno> {
        self.bytes(n)?;
        Ok(self)
    }

    /// Bytes up to a NUL, which is taken too.
    fn text(&mut self) -> Result<&'a [u8], Errno> {
        let n = self.0.iter().position(|&b| b == 0).ok_or(Errno::EINVAL)?;
        let text = self.bytes(n)?;
        self.bytes(1)?;
        Ok(text)
    }

    fn name(&mut self) -> Result<Name, Errno> {
        Name::new(self.text()?).map_err(Errno::from)
    }

    fn lock(&mut self) -> Result<LockIn, Errno> {
        let (fh, owner, start, end) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        Ok(LockIn { fh, owner, start, end, kind: self.u32()?, pid: self.u32()?, flags: self.u32()? })
    }
}

/// Parses one message. `None` if not even its header is whole: then no request can be answered. `xattr_ext`:
/// SETXATTR_EXT was agreed on, so SETXATTR has its longer form.
pub(crate) fn parse(message: &[u8], xattr_ext: bool) -> Option<(Header, Result<Request<'_>, Errno>)> {
    let (head, body) = message.split_at_checked(IN_HEADER)?;
    let u32_at = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let header = Header {
        opcode: u32_at(4),
        unique: u64_at(8),
        node: u64_at(16),
        uid: u32_at(24),
        gid: u32_at(28),
        pid: u32_at(32),
    };
    // Extensions stand at the end, counted in words of 8 bytes. None is asked for in INIT.
    let extensions = usize::from(u16::from_ne_bytes([head[36], head[37]])) * 8;
    let whole = u32_at(0) as usize == message.len() && extensions <= body.len();
    if !whole {
        return Some((header, Err(Errno::EIO)));
    }
    let body = &body[..body.len() - extensions];
    Some((header, parse_body(header.opcode, body, xattr_ext)))
}

fn parse_body(code: u32, body: &[u8], xattr_ext: bool) -> Result<Request<'_>, Errno> {
    let mut f = Fields(body);
    Ok(match code {
        opcode::LOOKUP => Request::Lookup { name: f.name()? },
        opcode::FORGET => Request::Forget { count: f.u64()? },
        opcode::BATCH_FORGET => {
            let count = f.u32()? as usize;
            let bytes = count.checked_mul(16).ok_or(Errno::EINVAL)?;
            Request::BatchForget { list: f.skip(4)?.bytes(bytes)? }
        }
        opcode::GETATTR => Request::GetAttr,
        opcode::SETATTR => Request::SetAttr(set_attr(&mut f)?),
        opcode::READLINK => Request::Readlink,
        opcode::SYMLINK => Request::Symlink { name: f.name()?, target: f.text()? },
        opcode::MKNOD => {
            let (mode, rdev, umask) = (f.u32()?, f.u32()?, f.u32()?);
            Request::Mknod { mode, rdev, umask, name: f.skip(4)?.name()? }
        }
        opcode::MKDIR => Request::Mkdir { mode: f.u32()?, umask: f.u32()?, name: f.name()? },
        opcode::UNLINK => Request::Unlink { name: f.name()? },
        opcode::RMDIR => Request::Rmdir { name: f.name()? },
        opcode::RENAME => {
            Request::Rename { new_dir: f.u64()?, flags: 0, name: f.name()?, new_name: f.name()? }
        }
        opcode::RENAME2 => {
            let (new_dir, flags) = (f.u64()?, f.u32()?);
            Request::Rename { new_dir, flags, name: f.skip(4)?.name()?, new_name: f.name()? }
        }
        opcode::LINK => Request::Link { old: f.u64()?, name: f.name()? },
        opcode::OPEN => Request::Open { flags: f.u32()? },
        opcode::READ => {
            let (offset, size) = (f.skip(8)?.u64()?, f.u32()?);
            Request::Read { offset, size, flags: f.skip(4 + 8)?.u32()? }
        }
        opcode::WRITE => {
            let (fh, offset, size) = (f.u64()?, f.u64()?, f.u32()?);
            let (write_flags, flags) = (f.u32()?, f.skip(8)?.u32()?);
            f.skip(4)?.bytes(size as usize)?;
            Request::Write { fh, offset, size, write_flags, flags }
        }
        opcode::STATFS => Request::Statfs,
        opcode::RELEASE => Request::Release { fh: f.u64()? },
        opcode::FSYNC => Request::Fsync,
        opcode::SETXATTR => {
            let (size, flags) = (f.u32()? as usize, f.u32()?);
            let setxattr_flags = if xattr_ext { f.u32()? } else { 0 };
            let name = f.skip(if xattr_ext { 4 } else { 0 })?.text()?;
            Request::SetXattr { flags, setxattr_flags, name, value: f.bytes(size)? }
        }
        opcode::GETXATTR => {
            let size = f.u32()?;
            Request::GetXattr { size, name: f.skip(4)?.text()? }
        }
        opcode::LISTXATTR => Request::ListXattr { size: f.u32()? },
        opcode::REMOVEXATTR => Request::RemoveXattr { name: f.text()? },
        opcode::FLUSH => Request::Flush { lock_owner: f.skip(16)?.u64()? },
        opcode::INIT => {
            let (major, minor, max_readahead) = (f.u32()?, f.u32()?, f.u32()?);
            let flags = u64::from(f.u32()?);
            // Kernels before 5.17 end here.
            let more = if f.0.is_empty() { 0 } else { f.u32()? };
            Request::Init { major, minor, max_readahead, flags: flags | u64::from(more) << 32 }
        }
        opcode::OPENDIR => Request::OpenDir,
        opcode::READDIR | opcode::READDIRPLUS => {
            let (fh, offset, size) = (f.u64()?, f.u64()?, f.u32()?);
            let flags = f.skip(4 + 8)?.u32()?;
            Request::ReadDir { fh, offset, size, flags, plus: code == opcode::READDIRPLUS }
        }
        opcode::RELEASEDIR => Request::ReleaseDir { fh: f.u64()? },
        opcode::FSYNCDIR => Request::FsyncDir,
        opcode::GETLK => Request::GetLock(f.lock()?),
        opcode::SETLK => Request::SetLock { lock: f.lock()?, wait: false },
        opcode::SETLKW => Request::SetLock { lock: f.lock()?, wait: true },
        opcode::CREATE => {
            let (flags, mode, umask) = (f.u32()?, f.u32()?, f.u32()?);
            Request::Create { flags, mode, umask, name: f.skip(4)?.name()? }
        }
        opcode::TMPFILE => Request::Tmpfile { flags: f.u32()?, mode: f.u32()?, umask: f.u32()? },
        opcode::INTERRUPT => Request::Interrupt { unique: f.u64()? },
        opcode::DESTROY => Request::Destroy,
        opcode::IOCTL => Request::Ioctl,
        opcode::FALLOCATE => {
            let (offset, length) = (f.skip(8)?.u64()?, f.u64()?);
            Request::Fallocate { offset, length, mode: f.u32()? }
        }
        opcode::LSEEK => Request::Seek { offset: f.skip(8)?.u64()?, whence: f.u32()? },
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let (offset, to, to_offset) = (f.skip(8)?.u64()?, f.u64()?, f.skip(8)?.u64()?);
            let (len, flags) = (f.u64()?, f.u64()?);
            Request::CopyRange { offset, to, to_offset, len, flags, wide: code == opcode::COPY_FILE_RANGE_64 }
        }
        opcode::STATX => Request::Statx,
        _ => Request::Other,
    })
}

fn set_attr(f: &mut Fields<'_>) -> Result<SetAttrIn, Errno> {
    let valid = f.u32()?;
    let size = f.skip(4 + 8)?.u64()?;
    let (atime, mtime, _ctime) = (f.skip(8)?.i64()?, f.i64()?, f.i64()?);
    let (atime_nanos, mtime_nanos, _ctime_nanos) = (f.u32()?, f.u32()?, f.u32()?);
    let mode = f.u32()?;
    let (uid, gid) = (f.skip(4)?.u32()?, f.u32()?);
    f.skip(4)?;
    Ok(SetAttrIn { valid, size, atime: (atime, atime_nanos), mtime: (mtime, mtime_nanos), mode, uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message with this opcode about node 9, from user 1, group 2, thread 3.
    fn message(code: u32, body: &[u8]) -> Vec<u8> {
        let mut m = Vec::new();
        m.extend_from_slice(&u32::try_from(IN_HEADER + body.len()).unwrap().to_ne_bytes());
        m.extend_from_slice(&code.to_ne_bytes());
        m.extend_from_slice(&77u64.to_ne_bytes());
        m.extend_from_slice(&9u64.to_ne_bytes());
        for v in [1u32, 2, 3, 0] {
            m.extend_from_slice(&v.to_ne_bytes());
        }
        m.extend_from_slice(body);
        m
    }

    fn words(list: &[u32]) -> Vec<u8> {
        list.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    #[test]
    fn a_lookup_carries_who_asks_for_what() {
        let m = message(opcode::LOOKUP, b"name\0");
        let (header, request) = parse(&m, true).unwrap();
        let expected = Header { opcode: 1, unique: 77, node: 9, uid: 1, gid: 2, pid: 3 };
        assert_eq!(header, expected);
        assert_eq!(request, Ok(Request::Lookup { name: Name::new(b"name").unwrap() }));
    }

    #[test]
    fn names_that_posix_forbids_get_its_error() {
        let long = [vec![b'x'; 256], vec![0]].concat();
        let parse_name = |body: &[u8]| parse(&message(opcode::LOOKUP, body), true).unwrap().1.map(|_| ());
        assert_eq!(parse_name(&long), Err(Errno::ENAMETOOLONG));
        for bad in [&b"..\0"[..], b"a/b\0", b"unterminated"] {
            assert_eq!(parse_name(bad), Err(Errno::EINVAL), "{bad:?}");
        }
    }

    #[test]
    fn a_write_whose_payload_is_cut_is_refused() {
        let mut body = words(&[3, 0, 5, 0, 8, 4, 0, 0, 0o2000, 0]);
        body.extend_from_slice(b"12345678");
        let expected = Request::Write { fh: 3, offset: 5, size: 8, write_flags: 4, flags: 0o2000 };
        assert_eq!(parse(&message(opcode::WRITE, &body), true).unwrap().1, Ok(expected));
        body.pop();
        assert_eq!(parse(&message(opcode::WRITE, &body), true).unwrap().1, Err(Errno::EINVAL));
    }

    #[test]
    fn a_message_that_is_not_as_long_as_it_says_is_refused() {
        let mut m = message(opcode::GETATTR, &[0; 16]);
        m.pop();
        assert_eq!(parse(&m, true).unwrap().1, Err(Errno::EIO));
        assert!(parse(&m[..IN_HEADER - 1], true).is_none());
    }

    #[test]
    fn a_count_of_forgets_beyond_the_bytes_is_refused() {
        let lie = words(&[u32::MAX, 0, 1, 0, 1, 0]);
        assert_eq!(parse(&message(opcode::BATCH_FORGET, &lie), true).unwrap().1, Err(Errno::EINVAL));
        let truth = words(&[1, 0, 1, 0, 1, 0]);
        let m = message(opcode::BATCH_FORGET, &truth);
        assert!(matches!(parse(&m, true).unwrap().1, Ok(Request::BatchForget { list }) if list.len() == 16));
    }

    #[test]
    fn setattr_fields_stand_where_the_kernel_puts_them() {
        let mut body = words(&[0x3f, 0]);
        for v in [1u64, 2, 3, 4, 5, 6] {
            body.extend_from_slice(&v.to_ne_bytes());
        }
        body.extend(words(&[7, 8, 9, 10, 11, 12, 13, 14]));
        let expected =
            SetAttrIn { valid: 0x3f, size: 2, atime: (4, 7), mtime: (5, 8), mode: 10, uid: 12, gid: 13 };
        assert_eq!(parse(&message(opcode::SETATTR, &body), true).unwrap().1, Ok(Request::SetAttr(expected)));
    }

    #[test]
    fn setxattr_is_read_in_the_form_that_was_agreed_on() {
        let mut long = words(&[2, 1, 1, 0]);
        long.extend_from_slice(b"user.a\0xy");
        let expected = Request::SetXattr { flags: 1, setxattr_flags: 1, name: b"user.a", value: b"xy" };
        assert_eq!(parse(&message(opcode::SETXATTR, &long), true).unwrap().1, Ok(expected));
        let mut short = words(&[2, 1]);
        short.extend_from_slice(b"user.a\0xy");
        let expected = Request::SetXattr { flags: 1, setxattr_flags: 0, name: b"user.a", value: b"xy" };
        assert_eq!(parse(&message(opcode::SETXATTR, &short), false).unwrap().1, Ok(expected));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(code in 0u32..60, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let m = message(code, &body);
            for cut in 0..=m.len() {
                let _ = parse(&m[..cut], cut % 2 == 0);
            }
            // Whole requests that are cut short, with a true length in front.
            let _ = parse(&message(code, &body[..body.len() / 2]), true);
        }

        #[test]
        fn no_header_makes_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&bytes, true);
        }
    }
}
