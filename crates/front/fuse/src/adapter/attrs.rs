//! Requests about attributes, extended ones among them.

use super::{Core, Job, Shape};
use crate::abi::{self, Out};
use crate::fields;
use crate::request::{Header, SetAttrIn};
use atoll_core::Ino;
use atoll_posix::{Answer, Attr, Errno, Op, XattrMode};
use bytes::Bytes;
use std::time::Duration;

pub(super) fn set_attr(core: &Core, ino: Ino, fields: &SetAttrIn) -> Result<Job, Errno> {
    let set = fields::set_attr(fields)?;
    if set.atime.is_some() {
        core.accesses.was_set(ino);
    }
    Ok((Op::SetAttr { ino, set }, Bytes::new(), Shape::Changed(set)))
}

pub(super) fn set_xattr(
    ino: Ino,
    (name, value): (&[u8], &[u8]),
    flags: u32,
    more_flags: u32,
) -> Result<Job, Errno> {
    let mode = match flags {
        0 => XattrMode::Any,
        1 => XattrMode::Create,
        2 => XattrMode::Replace,
        _ => return Err(Errno::EINVAL),
    };
    let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
    let kill_sgid = more_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
    Ok((Op::SetXattr { ino, name, value, mode, kill_sgid }, Bytes::new(), Shape::Unit))
}

/// Answers with the attributes of a directory, if they are known.
pub(super) fn is_known_dir(core: &Core, header: &Header) -> bool {
    let dir = Ino(header.node);
    core.answers_alone(dir, || core.known.dir_attrs.get(dir), |known, kept| attr(core, header, &known, kept))
}

/// Answers that a file has no capabilities, if that is known.
pub(super) fn has_no_capability(core: &Core, header: &Header) -> bool {
    let ino = Ino(header.node);
    core.answers_alone(ino, || core.known.uncapable.get(ino), |(), _| core.fail(header, Errno::ENODATA))
}

/// Attributes, as GETATTR and SETATTR are answered.
pub(super) fn attr(core: &Core, header: &Header, attr: &Attr, kept: Duration) {
    let kept = core.attr_kept(attr.ino, kept);
    core.ok(header, &Out::with_capacity(abi::SMALL_OUT).attr_out(&core.accesses.shown(attr), kept).0);
}

/// Attributes, as STATX is answered.
pub(super) fn statx(core: &Core, header: &Header, attr: &Attr, kept: Duration) {
    let kept = core.attr_kept(attr.ino, kept);
    core.ok(header, &Out::with_capacity(abi::SMALL_OUT).statx_out(&core.accesses.shown(attr), kept).0);
}

/// The value of an extended attribute, or the names of all: the caller has room for `size` bytes, and asks for the
/// length alone if that is 0.
pub(super) fn value(core: &Core, header: &Header, bytes: &[u8], size: usize) {
    match (size, u32::try_from(bytes.len())) {
        (0, Ok(len)) => _ = core.ok(header, &Out::with_capacity(abi::SMALL_OUT).u32(len).u32(0).0),
        (0, Err(_)) => core.misfit(header),
        (size, _) if bytes.len() > size => core.fail(header, Errno::ERANGE),
        _ => _ = core.ok(header, bytes),
    }
}

/// How full the volume is, from `Answer::Statfs`; `false` for another answer.
pub(super) fn statfs(core: &Core, header: &Header, answer: &Answer) -> bool {
    let Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, .. } = *answer else {
        return false;
    };
    let mut out = Out::with_capacity(abi::SMALL_OUT);
    out.statfs(bytes, bytes_free, bytes_available, inodes, inodes_free);
    core.ok(header, &out.0);
    true
}
