//! GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.

use atoll_core::{Ino, Name};
use atoll_posix::perm::FILE_BYTES_MAX;
use atoll_posix::{Answer, Kind, Op, SetAttr};
use bytes::Bytes;

use super::TRANSFER_BYTES_MAX;
use crate::attrs;
use crate::call::{Call, Fail};
use crate::status::Status;
use crate::xdr::Reader;

pub(super) fn getattr(call: Call, ino: Ino) {
    call.with_attr(ino, None, |call, attr| match attr {
        Ok(attr) => call.reply(Status::OK, |call, w| attrs::write(w, call.fsid(), &attr)),
        Err(why) => call.failed(why, true),
    });
}

pub(super) fn setattr(call: Call, ino: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| -> Result<(SetAttr, Option<(u32, u32)>), Fail> {
        let set = attrs::read_set(args)?;
        Ok((set, if args.flag()? { Some((args.u32()?, args.u32()?)) } else { None }))
    };
    let (set, guard) = match read(args) {
        Ok(read) => read,
        Err(why) => return call.refuse(why),
    };
    let Some(guard) = guard else { return set_attr(call, ino, set) };
    call.with_attr(ino, None, move |call, attr| match attr {
        Ok(attr) if (attr.ctime.secs as u32, attr.ctime.nanos) == guard => set_attr(call, ino, set),
        Ok(_) => call.fail(Status::NOT_SYNC),
        Err(why) => call.failed(why, true),
    });
}

fn set_attr(call: Call, ino: Ino, mut set: SetAttr) {
    set.kill_set_id = set.size.is_some() && !call.caller.is_root();
    call.op(Op::SetAttr { ino, set }, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(_) => call.reply(Status::OK, |call, w| attrs::write_wcc(w, call.fsid(), beside.around, ino)),
        Err(why) => call.failed(why, false),
    });
}

pub(super) fn access(call: Call, ino: Ino, args: &mut Reader) {
    let Ok(wanted) = args.u32() else { return call.refuse(Fail::Garbage) };
    call.op(Op::Access { ino }, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(Answer::Access { granted }) => {
            let known = attrs::after(beside.around, ino);
            call.with_attr(ino, known, move |call, attr| match attr {
                Ok(attr) => {
                    let is_dir = attr.kind == Kind::Directory;
                    let mut bits = 0;
                    for (right, file, dir) in [(4, 0x01, 0x01), (2, 0x0c, 0), (1, 0x20, 0x02)] {
                        if granted & right != 0 {
                            bits |= if is_dir { dir } else { file };
                        }
                    }
                    if is_dir && granted & 3 == 3 {
                        bits |= 0x1c;
                    }
                    if call.read_only {
                        bits &= !0x1c;
                    }
                    call.reply(Status::OK, |call, w| {
                        attrs::write_post(w, call.fsid(), Some(&attr));
                        w.u32(bits & wanted);
                    });
                }
                Err(why) => call.failed(why, true),
            });
        }
        Ok(_) => call.strange(),
        Err(why) => call.failed(why, true),
    });
}

pub(super) fn fsstat(call: Call, ino: Ino) {
    call.with_attr(ino, None, |call, attr| {
        let attr = match attr {
            Ok(attr) => attr,
            Err(why) => return call.failed(why, true),
        };
        call.op(Op::Statfs, Bytes::new(), move |call, outcome, _| match outcome {
            Ok(Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, .. }) => {
                call.reply(Status::OK, |call, w| {
                    attrs::write_post(w, call.fsid(), Some(&attr));
                    for number in [bytes, bytes_free, bytes_available, inodes, inodes_free, inodes_free] {
                        w.u64(number);
                    }
                    w.u32(0);
                });
            }
            Ok(_) => call.strange(),
            Err(why) => call.failed(why, true),
        });
    });
}

pub(super) fn fsinfo(call: Call, ino: Ino) {
    call.with_attr(ino, None, |call, attr| match attr {
        Ok(attr) => call.reply(Status::OK, |call, w| {
            let most = TRANSFER_BYTES_MAX;
            attrs::write_post(w, call.fsid(), Some(&attr));
            w.u32(most).u32(most).u32(4096).u32(most).u32(most).u32(4096).u32(64 << 10);
            // LINK, SYMLINK, HOMOGENEOUS, CANSETTIME; times to the nanosecond.
            w.u64(FILE_BYTES_MAX).u32(0).u32(1).u32(0x1b);
        }),
        Err(why) => call.failed(why, true),
    });
}

pub(super) fn pathconf(call: Call, ino: Ino) {
    call.with_attr(ino, None, |call, attr| match attr {
        Ok(attr) => call.reply(Status::OK, |call, w| {
            attrs::write_post(w, call.fsid(), Some(&attr));
            w.u32(32_000).u32(Name::BYTES_MAX as u32).flag(true).flag(true).flag(false).flag(true);
        }),
        Err(why) => call.failed(why, true),
    });
}
