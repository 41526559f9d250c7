//! Makes the kernel drop what it keeps, when the volume says so. Runs on the volume's thread; holds
//! no lock while it talks to the kernel, which may first need other requests answered.

use crate::abi::{MINOR_INC_EPOCH, Out, notify};
use crate::adapter::Agreed;
use crate::device::Device;
use crate::gate::Gate;
use crate::nodes::Nodes;
use atoll_core::Ino;
use atoll_vfs::Watcher;
use std::sync::{Arc, Mutex, OnceLock};

/// What a volume calls back into. Knows nothing of the volume, so that the two do not keep each
/// other alive.
#[derive(Debug)]
pub(crate) struct Recall {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) device: Arc<Device>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) agreed: Arc<OnceLock<Agreed>>,
    /// One recall at a time. No answer waits for it.
    pub(crate) one: Mutex<()>,
}

impl Watcher for Recall {
    fn recall(&self) {
        let Some(agreed) = self.agreed.get() else { return };
        let _one = self.one.lock().expect("no holder of this lock panics");
        // Answers begun from here on ask the volume, which no longer lets the kernel keep them.
        self.gate.pass();
        if agreed.minor >= MINOR_INC_EPOCH {
            // Every name, absent ones too. Lookups under way get the old epoch.
            self.device.notify(notify::INC_EPOCH, &[]);
        }
        let drop_inode = |ino: Ino| {
            let mut body = Out::with_capacity(24);
            // From 0 to the end: attributes, ACLs and pages.
            body.u64(ino.0).u64(0).u64(0);
            self.device.notify(notify::INVAL_INODE, &body.0);
        };
        drop_inode(Ino::ROOT);
        self.nodes.each(drop_inode);
    }

    fn knows(&self, ino: Ino) -> bool {
        self.nodes.knows(ino)
    }
}
