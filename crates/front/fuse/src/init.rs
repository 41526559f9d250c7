//! INIT: the capabilities that the kernel offers, and those that this mount takes.

use crate::abi::{self, Out, init};
use crate::adapter::{Agreed, Core};
use crate::device::IO_BYTES_MAX;
use crate::request::Header;
use crate::session::{Keep, Locks};
use atoll_posix::Errno;

impl Core {
    pub(crate) fn answer_init(
        &self,
        header: &Header,
        major: u32,
        minor: u32,
        max_readahead: u32,
        offered: u64,
    ) {
        let mut out = Out::with_capacity(64);
        if major > abi::MAJOR {
            // It asks again with our version.
            out.u32(abi::MAJOR).u32(abi::MINOR).zeros(56);
            self.ok(header, &out.0);
            return;
        }
        if major < abi::MAJOR || minor < abi::MINOR_MIN {
            self.readers.refuse(major, minor);
            return self.fail(header, Errno::EPROTO);
        }
        let wanted = init::ASYNC_READ
            | init::BIG_WRITES
            | init::DONT_MASK
            | init::DO_READDIRPLUS
            | init::READDIRPLUS_AUTO
            | init::PARALLEL_DIROPS
            | init::POSIX_ACL
            | init::MAX_PAGES
            // The target of a symbolic link never changes while its id lives.
            | init::CACHE_SYMLINKS
            | init::HANDLE_KILLPRIV_V2
            | init::SETXATTR_EXT
            | init::DIRECT_IO_ALLOW_MMAP
            | init::HAS_EXPIRE_ONLY
            // Ids that were forgotten cannot be opened by handle.
            | init::NO_EXPORT_SUPPORT;
        let by_locks = match self.config.locks {
            Locks::Shared => init::POSIX_LOCKS | init::FLOCK_LOCKS,
            Locks::Local if self.opens.is_some() => 0,
            Locks::Local => init::NO_OPEN_SUPPORT,
        };
        let by_keep = match self.config.keep {
            Keep::Alone => init::EXPLICIT_INVAL_DATA,
            Keep::Nothing | Keep::Recallable => init::AUTO_INVAL_DATA,
        };
        // When a direct write that is not waited for ends, the kernel does not drop pages that were read meanwhile.
        let by_pages = if self.config.keep == Keep::Nothing { init::ASYNC_DIO } else { 0 };
        // Only opens that are asked for can be passed.
        let by_opens = if self.opens.is_some() { init::PASSTHROUGH } else { 0 };
        let mut flags = offered & (wanted | by_locks | by_keep | by_pages | by_opens);
        if offered & init::INIT_EXT != 0 {
            flags |= init::INIT_EXT;
        } else {
            flags &= u64::from(u32::MAX);
        }
        let minor = minor.min(abi::MINOR);
        let halves =
            [flags & u64::from(u32::MAX), flags >> 32].map(|half| u32::try_from(half).expect("32 bits"));
        let pages = u16::try_from(IO_BYTES_MAX / 4096).expect("1 MiB has 256 pages");
        out.u32(abi::MAJOR).u32(minor).u32(max_readahead).u32(halves[0]);
        // Background requests (read-ahead, releases), and how many of them slow writers down.
        out.u16(64).u16(48);
        let max_write = u32::try_from(IO_BYTES_MAX).expect("1 MiB");
        out.u32(max_write).u32(1).u16(pages).u16(0).u32(halves[1]);
        // Native files lie in file systems that are not stacked themselves.
        out.u32(u32::from(flags & init::PASSTHROUGH != 0)).zeros(24);
        // A second INIT would be the same kernel, with the same offer.
        let _ = self.agreed.set(Agreed { minor, flags });
        self.ok(header, &out.0);
        self.readers.started();
    }
}
