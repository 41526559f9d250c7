//! Serves a volume to the kernel over /dev/fuse: our own transport (protocol 7.31 to 7.45) and the adapter
//! from requests to `Files`.
//!
//! Decides nothing about files: the volume does. This crate decides what the kernel may keep, and when locks
//! and ids end. `KERNEL.md` beside this crate has the facts about the kernel on which the design rests.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod abi;
mod accesses;
mod adapter;
mod again;
mod counters;
mod device;
mod dir_attrs;
mod dying;
mod fields;
mod fits;
mod fresh;
mod gone;
mod held;
mod init;
mod kept_names;
mod known;
mod learnt;
mod listers;
mod listing;
mod look;
mod mount;
mod nodes;
mod opens;
mod passed;
mod pending;
mod places;
mod recall;
mod request;
mod session;
mod settle;
mod spins;
mod sweep;
mod told;
mod watch;

pub use counters::Count;
pub use mount::{AccessTimes, MountError, MountOptions, is_dead, remount};
pub use passed::Passthrough;
pub use session::{Config, Flush, Keep, Locks};

use atoll_vfs::Files;
use session::{NotStarted, Session};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long an unmount waits for requests under way before it leaves their threads behind.
const GRACE: Duration = Duration::from_secs(5);

/// A mounted volume. It is unmounted when this is dropped.
pub struct Mounted {
    mount: mount::Mount,
    session: Session,
}

impl Mounted {
    /// Mounts `files` on the directory `point` and serves it. When this returns, the volume can be
    /// used there.
    pub fn new(
        files: Arc<dyn Files>,
        point: &Path,
        options: &MountOptions,
        config: Config,
    ) -> Result<Self, MountError> {
        let (fd, mount) = mount::mount(point, options)?;
        Self::serve(fd, mount, files, config)
    }

    /// The same through `fusermount3`, as for users who are not root.
    pub fn by_helper(
        files: Arc<dyn Files>,
        point: &Path,
        options: &MountOptions,
        config: Config,
    ) -> Result<Self, MountError> {
        let (fd, mount) = mount::mount_with(point, options, true)?;
        Self::serve(fd, mount, files, config)
    }

    fn serve(
        fd: std::os::fd::OwnedFd,
        mount: mount::Mount,
        files: Arc<dyn Files>,
        config: Config,
    ) -> Result<Self, MountError> {
        let session = Session::start(fd, files, config, &mount).map_err(|why| {
            mount.unmount();
            MountError::Os { what: "start threads", why }
        })?;
        let mounted = Self { mount, session };
        match mounted.session.wait_started() {
            Ok(()) => {}
            Err(NotStarted::TooOld(major, minor)) => return Err(MountError::TooOld { major, minor }),
            Err(NotStarted::Ended) => return Err(MountError::Removed),
        }
        // INIT caps it, so not before.
        mounted.mount.raise_read_ahead();
        Ok(mounted)
    }

    /// The directory on which the volume is mounted.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Takes the mount away. As root, requests under way fail; otherwise files that are open can
    /// be used until they are closed. Does nothing if it is gone already.
    pub fn unmount(&self) {
        // Device numbers are used again: after the end, what is mounted there is another's, even if
        // it has our number.
        if !self.session.has_ended() {
            self.mount.unmount();
            // The mount ends when nobody uses it: nobody is to wait for what does not answer.
            self.session.abandon_all();
        }
    }

    /// Returns when the mount has ended, whoever unmounted it.
    pub fn wait(&self) {
        self.session.wait_ended(None);
    }

    /// The operations that were asked for so far.
    pub fn counters(&self) -> Vec<Count> {
        self.session.counters()
    }

    /// Whether the kernel reads and writes native files itself.
    pub fn passthrough(&self) -> Passthrough {
        self.session.passthrough()
    }

    /// How many ids the kernel knows, the root not counted.
    pub fn nodes_known(&self) -> usize {
        self.session.nodes_known()
    }

    /// The minor version of the protocol that is spoken with the kernel.
    pub fn protocol_minor(&self) -> u32 {
        self.session.minor()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
        self.session.wait_ended(Some(GRACE));
    }
}
