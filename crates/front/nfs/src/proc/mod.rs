//! The procedures of NFS version 3, each as one or two operations of the volume.

mod data;
mod list;
mod make;
mod names;
mod object;

use std::sync::Arc;

use bytes::Bytes;

use crate::call::{Call, Fail, target};
use crate::conn::{Conn, InFlight};
use crate::drc::{Key, Seen};
use crate::rpc::{self, Head, Refusal};
use crate::server::refuse;
use crate::status::Status;
use crate::xdr::Reader;

pub(crate) const PROGRAM: u32 = 100_003;
/// Most bytes of one READ or WRITE.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// A reply without names or bytes is shorter.
const REPLY_BYTES: usize = 1024;

/// For each procedure, how many zero words stand for the attributes of a failure.
const ABSENT: [usize; 22] = [0, 0, 2, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 4, 3, 1, 1, 1, 1, 1, 2];
/// Procedures whose answers are kept for retries: those that change something.
const CHANGES: [u32; 10] = [2, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// How long the reply to a record may be: the last word of READ, READDIR and READDIRPLUS tells.
pub(crate) fn reply_bytes_max(record: &[u8]) -> usize {
    let word = |at: usize| record.get(at..at + 4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
    let last = record.len().checked_sub(4).and_then(word).unwrap_or(0);
    match word(20) {
        Some(6 | 16 | 17) => REPLY_BYTES + last.min(TRANSFER_BYTES_MAX) as usize,
        _ => REPLY_BYTES,
    }
}

/// Carries out a call.
pub(crate) fn call(conn: &Arc<Conn>, record: &Bytes, head: Head, held: InFlight) {
    let (xid, procedure) = (head.xid, head.procedure);
    if procedure == 0 {
        let mut w = rpc::reply(xid);
        return conn.outbox.send(conn, &mut w.0, &[], Some(held));
    }
    let Some(absent) = ABSENT.get(procedure as usize).copied() else {
        return refuse(conn, xid, held, Refusal::ProcUnavail);
    };
    let mut key = None;
    if CHANGES.contains(&procedure) {
        let client = conn.peer.ip().to_canonical();
        let found = Key { client, xid, procedure, sum: crc32c::crc32c(record) };
        match conn.shared.drc.begin(found, conn) {
            Seen::New => key = Some(found),
            Seen::UnderWay => return,
            Seen::Answered(reply) => {
                return conn.outbox.send(conn, &mut reply.to_vec(), &[], Some(held));
            }
        }
    }
    let mut args = head.args.clone();
    let begun = target(conn, &mut args).and_then(|target| {
        let export = &conn.shared.exports[target.export];
        let rule = conn.shared.rule(export, conn.peer).ok_or(Status::ACCES)?;
        let caller = rule.access.caller(&head.cred, |uid| conn.shared.groups.of(uid)).map_err(Fail::Auth)?;
        Ok((target, caller, rule.access.read_only))
    });
    match begun {
        Ok((target, caller, read_only)) => {
            let subject = Some(target.clone());
            let export = target.export;
            let conn = Arc::clone(conn);
            let call = Call { conn, xid, caller, export, read_only, absent, key, held, subject };
            run(call, procedure, target, args);
        }
        Err(why) => end(conn, xid, absent, key, held, why),
    }
}

/// Answers a call that gets no further.
fn end(conn: &Arc<Conn>, xid: u32, absent: usize, key: Option<Key>, held: InFlight, why: Fail) {
    let mut w = match why {
        Fail::Garbage => rpc::refuse(xid, Refusal::GarbageArgs),
        Fail::Auth(stat) => rpc::refuse(xid, Refusal::Auth(stat)),
        Fail::Status(status) => {
            let mut w = rpc::reply(xid);
            w.u32(status.0);
            (0..absent).for_each(|_| _ = w.u32(0));
            w
        }
    };
    let to = key.and_then(|key| conn.shared.drc.end(&key, &w.0)).unwrap_or_else(|| Arc::clone(conn));
    to.outbox.send(&to, &mut w.0, &[], Some(held));
}

impl Call {
    /// Its arguments were wrong.
    fn refuse(self, why: Fail) {
        let Self { conn, xid, absent, key, held, .. } = self;
        end(&conn, xid, absent, key, held, why);
    }
}

/// Reads the rest of the arguments, all of them, and starts.
fn run(call: Call, procedure: u32, target: crate::call::Target, mut args: Reader) {
    if call.read_only && CHANGES.contains(&procedure) {
        return call.fail(Status::ROFS);
    }
    let ino = target.ino;
    let args = &mut args;
    match procedure {
        1 => object::getattr(call, ino),
        2 => object::setattr(call, ino, args),
        3 => names::lookup(call, ino, args),
        4 => object::access(call, ino, args),
        5 => data::readlink(call, ino),
        6 => data::read(call, ino, args),
        7 => data::write(call, ino, args),
        8 => make::create(call, ino, args),
        9 => make::mkdir(call, ino, args),
        10 => make::symlink(call, ino, args),
        11 => make::mknod(call, ino, args),
        12 => names::remove(call, ino, args),
        13 => names::rmdir(call, ino, args),
        14 => names::rename(call, ino, args),
        15 => names::link(call, ino, args),
        16 => list::readdir(call, ino, args),
        17 => list::readdirplus(call, ino, args),
        18 => object::fsstat(call, ino),
        19 => object::fsinfo(call, ino),
        20 => object::pathconf(call, ino),
        _ => data::commit(call, ino, args),
    }
}
