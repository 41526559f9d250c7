//! Listings of native directories, in portions. Never keeps a descriptor from one portion to the next.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use atoll_core::Name;
use atoll_posix::{Errno, Kind};
use atoll_union::{NativeEntry, NativeId, NativeReply, Who};
use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom};

use super::{NativeTree, ProcPath, os, stat_fd, stat_name};

/// Bytes that one native call lists.
const BUFFER_BYTES: usize = 32 << 10;

/// Most bytes of names in a portion.
const PORTION_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<MaybeUninit<u8>>> = const { RefCell::new(Vec::new()) };
}

impl NativeTree {
    pub(super) fn list(&self, who: &Who, dir: NativeId, from: u64, bytes: u32) -> Result<NativeReply, Errno> {
        let dir = self.dir(dir)?;
        let taken = self.act(who)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&*dir, c".", flags, Mode::empty()) {
            // Even "." is searched for. To list, it is enough to may read.
            Err(rustix::io::Errno::ACCESS) => {
                rustix::fs::open(ProcPath::of(dir.as_fd()).as_c_str(), flags, Mode::empty()).map_err(os)?
            }
            opened => opened.map_err(os)?,
        };
        drop(taken);
        let stat = stat_fd(fd.as_fd())?;
        if from != 0 {
            rustix::fs::seek(&fd, SeekFrom::Start(from)).map_err(os)?;
        }
        let bytes = (bytes as usize).min(PORTION_BYTES_MAX);
        let (mut names, mut total, mut next) = (Vec::new(), 0, None);
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(BUFFER_BYTES, MaybeUninit::uninit());
            let mut listed = RawDir::new(&fd, &mut buffer[..]);
            while let Some(entry) = listed.next() {
                let entry = entry.map_err(os)?;
                let Ok(name) = Name::new(entry.file_name().to_bytes()) else { continue };
                let kind = match kind_of(entry.file_type()) {
                    Some(kind) => kind,
                    None => match stat_name(dir.as_fd(), &name) {
                        Ok(stat) => stat.kind,
                        // It is gone by now, or something is mounted there: a directory.
                        Err(Errno::ENOENT) => continue,
                        Err(_) => Kind::Directory,
                    },
                };
                total += name.as_bytes().len() + size_of::<u64>();
                names.push(NativeEntry { name, ino: entry.ino(), kind });
                if total >= bytes {
                    next = Some(entry.next_entry_cookie());
                    break;
                }
            }
            Ok::<(), Errno>(())
        })?;
        Ok(NativeReply::Names { names, next, dir: stat })
    }
}

fn kind_of(file_type: FileType) -> Option<Kind> {
    Some(match file_type {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Unknown => return None,
    })
}
