//! The procedures of MOUNT and NFS, version 3, by name. Interprets nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use atoll_posix::Caller;
use nfs3_types::mount::{self, dirpath, exports, mountres3};
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Void};

use crate::rpc::{Procedure, RpcError, Server};

/// An NFS server and its MOUNT service.
#[derive(Debug)]
pub struct Client {
    nfs: Server,
    mount: Server,
}

macro_rules! procedures {
    ($($(#[$doc:meta])* $name:ident = $number:literal ($args:ty) -> $result:ty;)*) => {
        impl Client {
            $($(#[$doc])*
            ///
            /// # Errors
            ///
            /// [`RpcError`], if there is no result.
            pub fn $name(&self, caller: &Caller, args: &$args) -> Result<$result, RpcError> {
                self.nfs.call(Self::nfs_procedure($number), caller, args)
            })*
        }
    };
}

procedures! {
    /// Does nothing.
    null = 0 (Void) -> Void;
    /// Attributes.
    getattr = 1 (GETATTR3args) -> GETATTR3res;
    /// Changes attributes.
    setattr = 2 (SETATTR3args) -> SETATTR3res;
    /// What a name leads to.
    lookup = 3 (LOOKUP3args<'_>) -> LOOKUP3res;
    /// Which rights the caller has.
    access = 4 (ACCESS3args) -> ACCESS3res;
    /// The target of a symbolic link.
    readlink = 5 (READLINK3args) -> READLINK3res<'static>;
    /// Bytes of a file.
    read = 6 (READ3args) -> READ3res<'static>;
    /// Changes bytes of a file.
    write = 7 (WRITE3args<'_>) -> WRITE3res;
    /// Makes a file.
    create = 8 (CREATE3args<'_>) -> CREATE3res;
    /// Makes a directory.
    mkdir = 9 (MKDIR3args<'_>) -> MKDIR3res;
    /// Makes a symbolic link.
    symlink = 10 (SYMLINK3args<'_>) -> SYMLINK3res;
    /// Makes a device, pipe or socket.
    mknod = 11 (MKNOD3args<'_>) -> MKNOD3res;
    /// Removes a name of a file.
    remove = 12 (REMOVE3args<'_>) -> REMOVE3res;
    /// Removes a directory.
    rmdir = 13 (RMDIR3args<'_>) -> RMDIR3res;
    /// Changes a name.
    rename = 14 (RENAME3args<'_, '_>) -> RENAME3res;
    /// Gives a file one more name.
    link = 15 (LINK3args<'_>) -> LINK3res;
    /// Names of a directory.
    readdir = 16 (READDIR3args) -> READDIR3res<'static>;
    /// Names of a directory, with attributes and handles.
    readdirplus = 17 (READDIRPLUS3args) -> READDIRPLUS3res<'static>;
    /// Space of the file system.
    fsstat = 18 (FSSTAT3args) -> FSSTAT3res;
    /// Limits of the server.
    fsinfo = 19 (FSINFO3args) -> FSINFO3res;
    /// Limits of the file system.
    pathconf = 20 (PATHCONF3args) -> PATHCONF3res;
    /// Makes written bytes survive a power cut.
    commit = 21 (COMMIT3args) -> COMMIT3res;
}

impl Client {
    /// A client of the two services, which may be one. `connections` and `patience` as in [`Server::new`].
    pub fn new(nfs: SocketAddr, mount: SocketAddr, connections: usize, patience: Duration) -> Self {
        Self { nfs: Server::new(nfs, connections, patience), mount: Server::new(mount, 1, patience) }
    }

    const fn nfs_procedure(number: u32) -> Procedure {
        Procedure { program: PROGRAM, version: VERSION, number }
    }

    const fn mount_procedure(number: u32) -> Procedure {
        Procedure { program: mount::PROGRAM, version: mount::VERSION, number }
    }

    /// The server of NFS, for calls that are not in the list.
    pub const fn nfs(&self) -> &Server {
        &self.nfs
    }

    /// Until when a call that is told to come again later comes again.
    pub fn until(&self) -> Instant {
        Instant::now() + self.nfs.patience()
    }

    /// The handle of an export's root.
    ///
    /// # Errors
    ///
    /// [`RpcError`], also if the server says no.
    pub fn mount(&self, caller: &Caller, path: &[u8]) -> Result<nfs_fh3, RpcError> {
        let path = dirpath(Opaque::borrowed(path));
        match self.mount.call(Self::mount_procedure(1), caller, &path)? {
            mountres3::Ok(ok) => Ok(nfs_fh3 { data: ok.fhandle.0 }),
            mountres3::Err(why) => Err(RpcError::Refused(why.to_string())),
        }
    }

    /// Tells the server that an export is no longer mounted here.
    ///
    /// # Errors
    ///
    /// [`RpcError`], if there is no result.
    pub fn unmount(&self, caller: &Caller, path: &[u8]) -> Result<(), RpcError> {
        let path = dirpath(Opaque::borrowed(path));
        self.mount.call(Self::mount_procedure(3), caller, &path).map(|Void| ())
    }

    /// The paths of all exports.
    ///
    /// # Errors
    ///
    /// [`RpcError`], if there is no result.
    pub fn exports(&self, caller: &Caller) -> Result<Vec<Vec<u8>>, RpcError> {
        let exports: exports<'static, 'static> = self.mount.call(Self::mount_procedure(5), caller, &Void)?;
        Ok(exports.into_inner().into_iter().map(|export| export.ex_dir.0.into_owned()).collect())
    }
}
