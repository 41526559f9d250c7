//! READ, WRITE, COMMIT, READLINK.

use atoll_core::Ino;
use atoll_posix::{Answer, Errno, Op};
use bytes::Bytes;

use super::TRANSFER_BYTES_MAX;
use crate::attrs;
use crate::call::{Call, Fail};
use crate::status::Status;
use crate::xdr::{Garbage, Reader};

/// What was synced, as WRITE tells it.
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

pub(super) fn readlink(call: Call, ino: Ino) {
    call.op(Op::Readlink { ino }, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(_) => call.reply(Status::OK, |call, w| {
            attrs::write_post(w, call.fsid(), attrs::after(beside.around, ino).as_ref());
            w.opaque(beside.bytes);
        }),
        Err(why) => call.failed(why, true),
    });
}

pub(super) fn read(call: Call, ino: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| Ok::<_, Garbage>((args.u64()?, args.u32()?));
    let (offset, len) = match read(args) {
        Ok((offset, count)) if args.is_empty() => (offset, count.min(TRANSFER_BYTES_MAX)),
        _ => return call.refuse(Fail::Garbage),
    };
    call.op(Op::Read { ino, offset, len }, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(_) => {
            let bytes = &beside.bytes[..beside.bytes.len().min(len as usize)];
            let attr = attrs::after(beside.around, ino);
            let end = offset.saturating_add(bytes.len() as u64);
            let eof = attr.map_or((bytes.len() as u32) < len, |attr| end >= attr.size);
            let head = |call: &Call, w: &mut crate::xdr::Writer| {
                attrs::write_post(w, call.fsid(), attr.as_ref());
                w.u32(bytes.len() as u32).flag(eof).u32(bytes.len() as u32);
            };
            call.reply_with(Status::OK, head, bytes);
        }
        Err(why) => call.failed(why, true),
    });
}

pub(super) fn write(call: Call, ino: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| {
        let (offset, count, stable) = (args.u64()?, args.u32()? as usize, args.u32()?);
        let mut data = args.opaque(TRANSFER_BYTES_MAX as usize)?;
        if data.len() < count || stable > FILE_SYNC {
            return Err(Garbage);
        }
        data.truncate(count);
        Ok((offset, stable, data))
    };
    let Ok((offset, stable, data)) = read(args) else { return call.refuse(Fail::Garbage) };
    // Before the bytes are written: if they are lost after that, the verifier is another one at COMMIT.
    let epoch = call.shared().epoch(ino);
    let kill_set_id = !call.caller.is_root();
    let op = Op::Write { ino, offset, append: false, kill_set_id };
    call.op(op, data, move |call, outcome, beside| {
        let len = match outcome {
            Ok(Answer::Wrote { len, .. }) => len as u32,
            Ok(_) => return call.strange(),
            Err(why) => return call.failed(why, false),
        };
        let around = beside.around;
        let reply = move |call: Call, committed: u32, around: &[atoll_vfs::AttrsAround]| {
            let verifier = call.shared().verifier(epoch);
            call.reply(Status::OK, |call, w| {
                attrs::write_wcc(w, call.fsid(), around, ino);
                w.u32(len).u32(committed).u64(verifier);
            });
        };
        if stable == UNSTABLE {
            call.shared().known.unsynced(ino);
            return reply(call, UNSTABLE, around);
        }
        let around = around.to_vec();
        call.op(Op::Fsync { ino }, Bytes::new(), move |call, outcome, _| match outcome {
            Ok(_) => reply(call, FILE_SYNC, &around),
            Err(why) => lost(call, why),
        });
    });
}

/// A sync has failed: what was acknowledged before may be lost too.
fn lost(call: Call, why: Errno) {
    call.shared().known.renew();
    call.failed(why, false);
}

pub(super) fn commit(call: Call, ino: Ino, args: &mut Reader) {
    if args.u64().and_then(|_| args.u32()).is_err() {
        return call.refuse(Fail::Garbage);
    }
    call.op(Op::Fsync { ino }, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(_) => {
            // After the sync: what it did not cover has an older verifier.
            let verifier = call.shared().verifier(call.shared().epoch(ino));
            call.reply(Status::OK, |call, w| {
                attrs::write_wcc(w, call.fsid(), beside.around, ino);
                w.u64(verifier);
            });
        }
        Err(why) => lost(call, why),
    });
}
