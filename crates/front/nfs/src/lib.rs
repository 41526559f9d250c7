//! The NFSv3 frontend: NFS and MOUNT on one TCP port, over any volume that is `Files`.
//!
//! Keeps no table that a client needs after a restart: handles are signed bytes of the volume. Never waits for
//! an operation in a thread that reads. Knows no kind of volume, no NFS by UDP and no lock protocol.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod attrs;
mod call;
mod conn;
mod drc;
mod export;
mod groups;
mod handle;
mod known;
mod mountd;
mod outbox;
mod portmap;
mod proc;
mod rpc;
mod server;
mod status;
mod xdr;

pub use export::{Access, BadRule, Rule, Squash};
pub use handle::{KEY_BYTES, SigningKey};
pub use portmap::PORT as PORTMAP_PORT;
pub use server::{Served, Server, serve};

/// Takes any bytes as one RPC call, as the first reader of a connection does. For fuzzing: panics if a reader
/// panics.
pub fn read_call(bytes: &[u8]) {
    let data = bytes::Bytes::copy_from_slice(bytes);
    let Ok(head) = rpc::read_head(data) else { return };
    let mut args = head.args;
    let key = SigningKey::new([0; KEY_BYTES]);
    while let Ok(handle) = args.opaque(handle::HANDLE_MAX) {
        // It may be forged, and the rest may be anything: neither may panic.
        let _ = key.open(1, &handle);
        let _ = attrs::read_set(&mut args.clone());
    }
}
