//! LOOKUP, REMOVE, RMDIR, RENAME, LINK.

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, AttrsAround, NamedObject, Op, RenameMode};
use bytes::Bytes;

use crate::attrs;
use crate::call::{Call, Fail, name, target};
use crate::status::Status;
use crate::xdr::Reader;

/// Longest name that is read; one that is too long for the volume gets its own status.
pub(super) const NAME_BYTES_MAX: usize = 4096;

pub(super) fn read_name(args: &mut Reader) -> Result<Name, Fail> {
    Ok(name(&args.opaque(NAME_BYTES_MAX)?)?)
}

pub(super) fn lookup(call: Call, dir: Ino, args: &mut Reader) {
    let Ok(bytes) = args.opaque(NAME_BYTES_MAX) else { return call.refuse(Fail::Garbage) };
    let is_top = call.shared().exports[call.export].root == dir || dir == Ino::ROOT;
    let op = match &bytes[..] {
        b"." => return itself(call, dir),
        b".." if is_top => return itself(call, dir),
        b".." => Op::Parent { dir },
        other => match name(other) {
            Ok(name) => Op::Lookup { dir, name },
            Err(status) => return call.fail(status),
        },
    };
    call.op(op, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(Answer::Found { found }) => looked(call, dir, found, beside.around),
        Ok(_) => call.strange(),
        Err(why) => call.failed(why, true),
    });
}

fn itself(call: Call, dir: Ino) {
    call.with_attr(dir, None, move |call, attr| match attr {
        Ok(attr) => looked(call, dir, NamedObject { attr, attr_current: true }, &[]),
        Err(why) => call.failed(why, true),
    });
}

fn looked(call: Call, dir: Ino, found: NamedObject, around: &[AttrsAround]) {
    let (ino, kind) = (found.attr.ino, found.attr.kind);
    let dir_attr = attrs::after(around, dir);
    let current = found.attr_current.then_some(found.attr);
    call.with_attr(ino, current, move |call, attr| match attr {
        Ok(attr) => match call.handle_of(ino, kind) {
            Some(handle) => call.reply(Status::OK, |call, w| {
                w.opaque(&handle);
                attrs::write_post(w, call.fsid(), Some(&attr));
                attrs::write_post(w, call.fsid(), dir_attr.as_ref());
            }),
            None => call.fail(Status::STALE),
        },
        Err(why) => call.failed(why, true),
    });
}

/// The last name of a file may have gone.
fn gone(call: &Call, answer: &Answer) {
    if let Answer::Removed { orphan: Some(ino) } = answer {
        let shared = call.shared();
        shared.known.removed(&*shared.files, *ino);
    }
}

fn change(call: Call, op: Op, dirs: [Option<Ino>; 2]) {
    call.op(op, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(answer) => {
            gone(&call, &answer);
            call.reply(Status::OK, |call, w| {
                for dir in dirs.into_iter().flatten() {
                    attrs::write_wcc(w, call.fsid(), beside.around, dir);
                }
            });
        }
        Err(why) => call.failed(why, false),
    });
}

pub(super) fn remove(call: Call, dir: Ino, args: &mut Reader) {
    match read_name(args) {
        Ok(name) => change(call, Op::Unlink { dir, name }, [Some(dir), None]),
        Err(why) => call.refuse(why),
    }
}

pub(super) fn rmdir(call: Call, dir: Ino, args: &mut Reader) {
    match read_name(args) {
        Ok(name) => change(call, Op::Rmdir { dir, name, meant: None }, [Some(dir), None]),
        Err(why) => call.refuse(why),
    }
}

pub(super) fn rename(call: Call, dir: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| {
        Ok((args.opaque(NAME_BYTES_MAX)?, target(&call.conn, args)?, args.opaque(NAME_BYTES_MAX)?))
    };
    let (old, to, new) = match read(args) {
        Ok(read) => read,
        Err(why) => return call.refuse(why),
    };
    let names = name(&old).and_then(|old| Ok((old, name(&new)?)));
    let (name, new_name) = match names {
        Ok(names) => names,
        Err(status) => return call.fail(status),
    };
    if to.export != call.export {
        return call.fail(Status::XDEV);
    }
    let (new_dir, mode) = (to.ino, RenameMode::Replace);
    let op = Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None };
    change(call, op, [Some(dir), Some(new_dir)]);
}

pub(super) fn link(call: Call, ino: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| Ok((target(&call.conn, args)?, args.opaque(NAME_BYTES_MAX)?));
    let (to, bytes) = match read(args) {
        Ok(read) => read,
        Err(why) => return call.refuse(why),
    };
    let name = match name(&bytes) {
        Ok(name) => name,
        Err(status) => return call.fail(status),
    };
    if to.export != call.export {
        return call.fail(Status::XDEV);
    }
    let dir = to.ino;
    call.op(Op::Link { ino, dir, name }, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(answer) => call.reply(Status::OK, |call, w| {
            let attr = match &answer {
                Answer::Found { found } if found.attr_current => Some(&found.attr),
                _ => None,
            };
            attrs::write_post(w, call.fsid(), attr);
            attrs::write_wcc(w, call.fsid(), beside.around, dir);
        }),
        Err(why) => call.failed(why, false),
    });
}
