//! CREATE, MKDIR, SYMLINK, MKNOD.

use atoll_core::{Ino, Name, Time};
use atoll_posix::{Answer, Attr, AttrsAround, Errno, Kind, Op, SetAttr, SetTime};
use bytes::Bytes;

use super::names::{NAME_BYTES_MAX, read_name};
use crate::attrs;
use crate::call::{Call, Fail, name};
use crate::status::Status;
use crate::xdr::Reader;

/// Longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;

fn op(dir: Ino, name: Name, kind: Kind, mode: u32, rdev: u32, target: Bytes) -> Op {
    Op::Create { dir, name, kind, mode, umask: 0, rdev, exclusive: true, target }
}

/// The reply: what was made or found, and the directory around it.
fn made(call: Call, dir: Ino, attr: &Attr, around: &[AttrsAround]) {
    call.reply(Status::OK, |call, w| {
        call.write_handle(w, attr.ino, attr.kind);
        attrs::write_post(w, call.fsid(), Some(attr));
        attrs::write_wcc(w, call.fsid(), around, dir);
    });
}

/// Makes something, then sets the attributes that its making does not set.
fn make(call: Call, dir: Ino, op: Op, set: SetAttr) {
    call.op(op, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(Answer::Found { found }) => finish(call, dir, found.attr, set, beside.around),
        Ok(_) => call.strange(),
        Err(why) => call.failed(why, false),
    });
}

fn finish(call: Call, dir: Ino, attr: Attr, mut set: SetAttr, around: &[AttrsAround]) {
    set.mode = None;
    set.uid = set.uid.filter(|uid| *uid != attr.uid);
    set.gid = set.gid.filter(|gid| *gid != attr.gid);
    set.size = set.size.filter(|size| *size != attr.size);
    if set == SetAttr::default() || attr.kind == Kind::Symlink {
        return made(call, dir, &attr, around);
    }
    let around = around.to_vec();
    let ino = attr.ino;
    call.op(Op::SetAttr { ino, set }, Bytes::new(), move |call, outcome, _| match outcome {
        Ok(Answer::Attr { attr }) => made(call, dir, &attr, &around),
        Ok(_) => call.strange(),
        // Somebody has removed it since. It was made all the same: a client that is told otherwise makes it once more.
        Err(Errno::ESTALE) => made(call, dir, &attr, &around),
        Err(why) => call.failed(why, false),
    });
}

/// How CREATE treats a name that is taken.
enum How {
    Unchecked(SetAttr),
    Guarded(SetAttr),
    Exclusive(u32, u32),
}

pub(super) fn create(call: Call, dir: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| -> Result<_, Fail> {
        let bytes = args.opaque(NAME_BYTES_MAX)?;
        let how = match args.u32()? {
            0 => How::Unchecked(attrs::read_set(args)?),
            1 => How::Guarded(attrs::read_set(args)?),
            2 => How::Exclusive(args.u32()?, args.u32()?),
            _ => return Err(Fail::Garbage),
        };
        Ok((name(&bytes)?, how))
    };
    let (name, how) = match read(args) {
        Ok(read) => read,
        Err(why) => return call.refuse(why),
    };
    let new = |set: &SetAttr| op(dir, name.clone(), Kind::Regular, set.mode.unwrap_or(0), 0, Bytes::new());
    match how {
        How::Guarded(set) => make(call, dir, new(&set), set),
        How::Unchecked(set) => {
            let op = new(&set);
            call.op(op, Bytes::new(), move |call, outcome, beside| match outcome {
                Ok(Answer::Found { found }) => finish(call, dir, found.attr, set, beside.around),
                // Of a file that is there, only the length is set.
                Err(Errno::EEXIST) => taken(call, dir, name, move |call, attr| {
                    let size = set.size.filter(|_| attr.kind == Kind::Regular);
                    if size.is_none() {
                        return made(call, dir, &attr, &[]);
                    }
                    let (ino, kill_set_id) = (attr.ino, !call.caller.is_root());
                    let set = SetAttr { size, kill_set_id, ..SetAttr::default() };
                    call.op(Op::SetAttr { ino, set }, Bytes::new(), move |call, outcome, _| match outcome {
                        Ok(Answer::Attr { attr }) => made(call, dir, &attr, &[]),
                        Ok(_) => call.strange(),
                        Err(why) => call.failed(why, false),
                    });
                }),
                Ok(_) => call.strange(),
                Err(why) => call.failed(why, false),
            });
        }
        How::Exclusive(a, m) => {
            // The verifier goes into the times, as Linux's server has it: 31 bits each.
            let [atime, mtime] = [a, m].map(|v| Time { secs: i64::from(v & 0x7fff_ffff), nanos: 0 });
            let to = |time| Some(SetTime::To { time });
            let set = SetAttr { atime: to(atime), mtime: to(mtime), ..SetAttr::default() };
            let op = new(&SetAttr::default());
            call.op(op, Bytes::new(), move |call, outcome, beside| match outcome {
                Ok(Answer::Found { found }) => finish(call, dir, found.attr, set, beside.around),
                Err(Errno::EEXIST) => taken(call, dir, name, move |call, attr| {
                    let same = attr.kind == Kind::Regular && attr.atime == atime && attr.mtime == mtime;
                    if same { made(call, dir, &attr, &[]) } else { call.fail(Status::EXIST) }
                }),
                Ok(_) => call.strange(),
                Err(why) => call.failed(why, false),
            });
        }
    }
}

/// The name is taken: goes on with what it names.
fn taken(call: Call, dir: Ino, name: Name, then: impl FnOnce(Call, Attr) + Send + 'static) {
    call.op(Op::Lookup { dir, name }, Bytes::new(), move |call, outcome, _| match outcome {
        Ok(Answer::Found { found }) => {
            let (ino, current) = (found.attr.ino, found.attr_current.then_some(found.attr));
            call.with_attr(ino, current, move |call, attr| match attr {
                Ok(attr) => then(call, attr),
                Err(why) => call.failed(why, true),
            });
        }
        Ok(_) => call.strange(),
        // Removed meanwhile: nothing was changed, so the client may ask again.
        Err(Errno::ENOENT) => call.fail(Status::JUKEBOX),
        Err(why) => call.failed(why, true),
    });
}

pub(super) fn mkdir(call: Call, dir: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| -> Result<_, Fail> {
        let bytes = args.opaque(NAME_BYTES_MAX)?;
        let set = attrs::read_set(args)?;
        Ok((name(&bytes)?, set))
    };
    match read(args) {
        Ok((name, set)) => {
            let op = Op::Mkdir { dir, name, mode: set.mode.unwrap_or(0), umask: 0 };
            make(call, dir, op, SetAttr { size: None, ..set });
        }
        Err(why) => call.refuse(why),
    }
}

pub(super) fn symlink(call: Call, dir: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| -> Result<_, Fail> {
        let bytes = args.opaque(NAME_BYTES_MAX)?;
        let _attributes = attrs::read_set(args)?;
        let target = args.opaque(2 * TARGET_BYTES_MAX)?;
        if target.len() > TARGET_BYTES_MAX {
            return Err(Status::NAMETOOLONG.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Status::INVAL.into());
        }
        Ok((name(&bytes)?, target))
    };
    match read(args) {
        Ok((name, target)) => {
            make(call, dir, op(dir, name, Kind::Symlink, 0o777, 0, target), SetAttr::default());
        }
        Err(why) => call.refuse(why),
    }
}

pub(super) fn mknod(call: Call, dir: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| -> Result<_, Fail> {
        let name = read_name(args)?;
        let kind = match args.u32()? {
            3 => Kind::BlockDevice,
            4 => Kind::CharDevice,
            6 => Kind::Socket,
            7 => Kind::Fifo,
            _ => return Err(Status::BADTYPE.into()),
        };
        let set = attrs::read_set(args)?;
        let is_device = matches!(kind, Kind::BlockDevice | Kind::CharDevice);
        let rdev = if is_device { attrs::device(args.u32()?, args.u32()?) } else { 0 };
        Ok((name, kind, set, rdev))
    };
    match read(args) {
        Ok((name, kind, set, rdev)) => {
            let op = op(dir, name, kind, set.mode.unwrap_or(0), rdev, Bytes::new());
            make(call, dir, op, SetAttr { size: None, ..set });
        }
        Err(why) => call.refuse(why),
    }
}
