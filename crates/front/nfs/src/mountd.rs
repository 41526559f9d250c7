//! The MOUNT program (RFC 1813, appendix I), versions 1 and 3: a path becomes a handle. Keeps no list of mounts.

use std::sync::Arc;

use atoll_core::{ShownPath, VolumePath};
use atoll_posix::Kind;

use crate::conn::{Conn, InFlight};
use crate::rpc::{self, Head, Refusal};
use crate::server::refuse;
use crate::status::Status;
use crate::xdr::Writer;

pub(crate) const PROGRAM: u32 = 100_005;
const PATH_BYTES_MAX: usize = 1024;
/// AUTH_SYS.
const AUTH_SYS: u32 = 1;

/// Answers a call.
pub(crate) fn call(conn: &Arc<Conn>, mut head: Head, held: InFlight) {
    let mut w = rpc::reply(head.xid);
    match head.procedure {
        // NULL, UMNT, UMNTALL.
        0 | 3 | 4 => {}
        1 if head.version == 3 => {
            let Ok(path) = head.args.opaque(PATH_BYTES_MAX) else {
                return refuse(conn, head.xid, held, Refusal::GarbageArgs);
            };
            match mount(conn, &path) {
                Ok(handle) => _ = w.u32(0).opaque(&handle).u32(1).u32(AUTH_SYS),
                Err(status) => _ = w.u32(status.0),
            }
        }
        // DUMP: an empty list.
        2 => _ = w.flag(false),
        5 => exports(conn, &mut w),
        _ => return refuse(conn, head.xid, held, Refusal::ProcUnavail),
    }
    conn.outbox.send(conn, &mut w.0, &[], Some(held));
}

/// The handle of a directory: an export, or one below it.
fn mount(conn: &Conn, path: &[u8]) -> Result<Vec<u8>, Status> {
    let shared = &conn.shared;
    let path = VolumePath::parse(path).map_err(|_| Status::INVAL)?;
    let names = match path.names() {
        [] => &[][..],
        [volume, rest @ ..] if volume.as_bytes() == shared.served.name.as_bytes() => rest,
        _ => return Err(Status::NOENT),
    };
    let allowed = shared.exports.iter().filter(|export| names.starts_with(export.path.names()));
    let allowed = allowed.filter(|export| shared.rule(export, conn.peer).is_some());
    let export = allowed.max_by_key(|export| export.path.names().len()).ok_or(Status::ACCES)?;
    // The walk waits for the volume: another thread reads on.
    atoll_vfs::handover::slow();
    let ino = shared.walk(names).ok_or(Status::NOENT)?;
    let handle = shared.files.handle_of(ino, Kind::Directory).ok_or(Status::SERVERFAULT)?;
    shared.known.touch(&*shared.files, ino);
    Ok(shared.served.key.seal(shared.served.kind, export.number, &handle))
}

/// What the caller may mount, and who else may.
fn exports(conn: &Conn, w: &mut Writer) {
    let shared = &conn.shared;
    for export in &shared.exports {
        let below = ShownPath(export.path.names()).to_string();
        w.flag(true).opaque(format!("/{}{}", shared.served.name, below.trim_end_matches('/')).as_bytes());
        for rule in shared.served.rules.iter().filter(|rule| rule.path == export.path) {
            w.flag(true).opaque(rule.client.as_bytes());
        }
        w.flag(false);
    }
    w.flag(false);
}
