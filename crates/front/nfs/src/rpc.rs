//! ONC RPC version 2 (RFC 5531): the head of a call, credentials, and the heads of replies.

use bytes::Bytes;

use crate::xdr::{Garbage, Reader, Writer};

/// Longest body of a credential or verifier, in bytes (RFC 5531, 8.2).
const AUTH_BYTES_MAX: usize = 400;
/// Most supplementary groups of AUTH_SYS.
pub(crate) const GROUPS_MAX: usize = 16;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// A credential that does not parse.
pub(crate) const AUTH_BADCRED: u32 = 1;
/// A credential that is not enough.
pub(crate) const AUTH_TOOWEAK: u32 = 5;

/// Who calls, as the call says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cred {
    /// Nobody in particular.
    None,
    /// AUTH_SYS.
    Sys { uid: u32, gid: u32, groups: Vec<u32> },
    /// A flavour that is not known.
    Other,
    /// AUTH_SYS that does not parse.
    Bad,
}

/// A call, up to its arguments.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) xid: u32,
    pub(crate) rpc_version: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) cred: Cred,
    pub(crate) args: Reader,
}

/// Reads a call's head. Garbage is no call at all, and gets no reply.
pub(crate) fn read_head(record: Bytes) -> Result<Head, Garbage> {
    let mut r = Reader::new(record);
    let xid = r.u32()?;
    if r.u32()? != 0 {
        return Err(Garbage);
    }
    let rpc_version = r.u32()?;
    let (program, version, procedure) = (r.u32()?, r.u32()?, r.u32()?);
    let flavour = r.u32()?;
    let body = r.opaque(AUTH_BYTES_MAX)?;
    let cred = match flavour {
        AUTH_NONE => Cred::None,
        AUTH_SYS => read_sys(body).unwrap_or(Cred::Bad),
        _ => Cred::Other,
    };
    let _verifier_flavour = r.u32()?;
    let _verifier = r.opaque(AUTH_BYTES_MAX)?;
    Ok(Head { xid, rpc_version, program, version, procedure, cred, args: r })
}

fn read_sys(body: Bytes) -> Result<Cred, Garbage> {
    let mut r = Reader::new(body);
    let _stamp = r.u32()?;
    let _machine = r.opaque(255)?;
    let (uid, gid) = (r.u32()?, r.u32()?);
    let count = r.u32()? as usize;
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| r.u32()).collect::<Result<_, _>>()?;
    Ok(Cred::Sys { uid, gid, groups })
}

/// Why a call is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    RpcMismatch,
    Auth(u32),
    ProgUnavail,
    /// The lowest and the highest version that are there.
    ProgMismatch(u32, u32),
    ProcUnavail,
    GarbageArgs,
}

/// The beginning of a reply: room for the record mark, and the head of an accepted call.
pub(crate) fn reply(xid: u32) -> Writer {
    let mut w = Writer(Vec::with_capacity(256));
    // Mark, xid, reply, accepted, verifier none, success.
    w.u32(0).u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0);
    w
}

/// The reply to a call that is not carried out.
pub(crate) fn refuse(xid: u32, why: Refusal) -> Writer {
    let mut w = Writer(Vec::with_capacity(48));
    w.u32(0).u32(xid).u32(1);
    match why {
        Refusal::RpcMismatch => w.u32(1).u32(0).u32(2).u32(2),
        Refusal::Auth(stat) => w.u32(1).u32(1).u32(stat),
        Refusal::ProgUnavail => w.u32(0).u32(0).u32(0).u32(1),
        Refusal::ProgMismatch(low, high) => w.u32(0).u32(0).u32(0).u32(2).u32(low).u32(high),
        Refusal::ProcUnavail => w.u32(0).u32(0).u32(0).u32(3),
        Refusal::GarbageArgs => w.u32(0).u32(0).u32(0).u32(4),
    };
    w
}
