//! Attributes: which of the state's a native object can carry; comparing and laying them.

use std::io;

use atoll_core::Time;
use atoll_disk::{Disk, Stat};
use atoll_posix::Kind;
use atoll_proto::Xattrs;

use crate::files::native_kind;
use crate::{View, is_absent, is_fatal};

/// Attributes as the state has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want<'a> {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Last access and last change of content; none of a directory that is owned elsewhere.
    pub(crate) times: Option<(Time, Time)>,
    pub(crate) xattrs: Option<&'a Xattrs>,
    /// There may be some natively.
    pub(crate) had_xattrs: bool,
}

/// What could not be laid.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// The first refusal of anything but an extended attribute.
    pub(crate) other: Option<io::Error>,
    /// Extended attributes, and the errno of the first: natively there is none of their names.
    pub(crate) xattrs: Xattrs,
    pub(crate) errno: i32,
}

impl Refused {
    /// Passes errors on after which going on makes no sense, and notes others.
    fn keep(&mut self, done: io::Result<()>) -> io::Result<()> {
        match done {
            Err(error) if is_fatal(&error) => Err(error),
            Err(error) => {
                self.other.get_or_insert(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Set-user-id and set-group-id. A change of owner takes them away, but not from directories, nor
/// set-group-id where the group may not execute.
const SET_ID: u32 = 0o6000;

fn native(time: Time) -> (i64, u32) {
    (time.secs, time.nanos)
}

/// Extended attributes that the state manages; others, such as a security label that the host gives,
/// are not Atoll's.
pub(crate) fn is_managed(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"system.posix_acl_"];
    name == atoll_posix::xattr::CAPABILITY || prefixes.iter().any(|p| name.starts_with(p))
}

impl<D: Disk> View<D> {
    /// The permission bits that a native object gets.
    pub(crate) const fn native_mode(&self, kind: Kind, mode: u32) -> u32 {
        match kind {
            _ if self.options.root => mode,
            Kind::Directory => mode | 0o700,
            _ => mode | 0o600,
        }
    }

    /// True if a native object of this kind can carry the attribute, laid by this daemon.
    pub(crate) fn carries(&self, kind: Kind, name: &[u8]) -> bool {
        if name.starts_with(b"security.") || name.starts_with(b"trusted.") {
            return self.options.root;
        }
        let plain = matches!(kind, Kind::Regular | Kind::Directory);
        if name.starts_with(b"user.") { plain } else { kind != Kind::Symlink }
    }

    /// Native extended attributes that the state would manage, sorted.
    pub(crate) fn native_xattrs(&self, path: &[u8], kind: Kind) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut list = self.disk.xattrs(path)?;
        list.retain(|(name, _)| is_managed(name) && self.carries(kind, name));
        list.sort();
        Ok(list)
    }

    /// Lays attributes onto what has `stat` at `path`. What was refused is given back when all else
    /// is done.
    pub(crate) fn lay_attributes(&self, path: &[u8], stat: &Stat, want: Want<'_>) -> io::Result<Refused> {
        assert_eq!(stat.kind, native_kind(want.kind), "attributes of another kind of object");
        let mut changed = false;
        let mut refused = Refused::default();
        let mut mode = stat.mode;
        if self.options.root && (stat.uid, stat.gid) != (want.uid, want.gid) {
            refused.keep(self.disk.set_owner(path, want.uid, want.gid))?;
            changed = true;
            if mode & SET_ID != 0 {
                mode = self.disk.stat(path)?.mode;
            }
        }
        if want.xattrs.is_some() || want.had_xattrs {
            let acls_changed = self.lay_xattrs(path, want, &mut changed, &mut refused)?;
            if acls_changed {
                mode = self.disk.stat(path)?.mode;
            }
        }
        let wanted_mode = self.native_mode(want.kind, want.mode);
        if want.kind != Kind::Symlink && mode != wanted_mode {
            refused.keep(self.disk.set_mode(path, wanted_mode))?;
            changed = true;
        }
        if let Some((atime, mtime)) = want.times
            && (changed || (stat.atime, stat.mtime) != (native(atime), native(mtime)))
        {
            refused.keep(self.disk.set_times(path, native(atime), native(mtime)))?;
        }
        Ok(refused)
    }

    fn lay_xattrs(
        &self,
        path: &[u8],
        want: Want<'_>,
        changed: &mut bool,
        refused: &mut Refused,
    ) -> io::Result<bool> {
        let there = self.native_xattrs(path, want.kind)?;
        let rows = want.xattrs.map(|x| &x.0[..]).unwrap_or_default();
        let mut acls = false;
        for (name, _) in &there {
            if !rows.iter().any(|(n, _)| n == name) {
                refused.keep(self.disk.set_xattr(path, name, None))?;
                acls |= name.starts_with(b"system.");
                *changed = true;
            }
        }
        for (name, value) in rows.iter().filter(|(name, _)| self.carries(want.kind, name)) {
            let before = there.iter().find(|(n, _)| n == name);
            if before.is_some_and(|(_, v)| v == value) {
                continue;
            }
            match self.set_xattr(path, name, value) {
                Err(error) if !is_fatal(&error) && !is_absent(&error) => {
                    if refused.xattrs.0.is_empty() {
                        refused.errno = error.raw_os_error().unwrap_or_default();
                    }
                    refused.xattrs.set(name.clone(), value.clone());
                    if before.is_none() {
                        // Nothing has changed: the times are not laid again, which would look like a change by hand.
                        continue;
                    }
                    // An older value would be taken for the one that the state has.
                    refused.keep(self.disk.set_xattr(path, name, None))?;
                }
                done => refused.keep(done)?,
            }
            acls |= name.starts_with(b"system.");
            *changed = true;
        }
        Ok(acls)
    }

    /// Sets an extended attribute. Some native file systems call what is too large for one object a full
    /// disk, at which everybody else would have to stop.
    fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8]) -> io::Result<()> {
        use rustix::io::Errno;
        /// With so much left the disk is not full.
        const ROOM_BYTES: u64 = 16 << 20;
        let done = self.disk.set_xattr(path, name, Some(value));
        match &done {
            Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
                let room = self.disk.space().is_ok_and(|space| space.bytes_available > ROOM_BYTES);
                if room { Err(Errno::TOOBIG.into()) } else { done }
            }
            _ => done,
        }
    }
}
