//! Makes the kernel drop what it keeps, when the volume says so. Holds no lock while it talks to the
//! kernel about an id, which may first need other requests answered; and does not wait for those for
//! ever, because the volume may answer them only when the recall is over.
//!
//! Names go at once, all with one message; then attributes, for which the kernel waits only where an
//! inode is just being thrown out; then pages. A page that is being read, or written back, goes when that
//! is over. Until then it serves no read(2) of a file that has changed: who reads asks for attributes
//! first, and the kernel itself drops the pages of a file whose time of change is a new one.

use crate::abi::{MINOR_INC_EPOCH, Out, notify};
use crate::adapter::{Agreed, KEEP_SECS};
use crate::device::Device;
use crate::gate::Gate;
use crate::nodes::Nodes;
use crate::sweep::Sweep;
use atoll_core::Ino;
use atoll_vfs::Watcher;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How long attributes are waited for: by then the kernel no longer uses what it was told before.
const ATTRIBUTES_MAX: Duration = Duration::from_secs(KEEP_SECS + 1);
/// How long pages are waited for.
const PAGES_MAX: Duration = Duration::from_secs(1);
/// What the kernel is to drop of an inode, from here to the end: no page, or every one.
const NO_PAGES: u64 = u64::MAX;
const ALL_PAGES: u64 = 0;

/// What a volume calls back into. Knows nothing of the volume, so that the two do not keep each
/// other alive.
#[derive(Debug)]
pub(crate) struct Recall {
    nodes: Arc<Nodes>,
    device: Arc<Device>,
    gate: Arc<Gate>,
    agreed: Arc<OnceLock<Agreed>>,
    /// The gate is passed by one at a time. No answer waits for it.
    one: Mutex<()>,
    attributes: Arc<Sweep>,
    pages: Arc<Sweep>,
}

impl Recall {
    pub(crate) fn new(
        nodes: &Arc<Nodes>,
        device: &Arc<Device>,
        gate: &Arc<Gate>,
        agreed: &Arc<OnceLock<Agreed>>,
    ) -> Self {
        let dropping = |offset: u64| {
            let device = Arc::clone(device);
            move |ino: Ino| {
                let mut body = Out::with_capacity(24);
                body.u64(ino.0).u64(offset).u64(0);
                device.notify(notify::INVAL_INODE, &body.0);
            }
        };
        Self {
            nodes: Arc::clone(nodes),
            device: Arc::clone(device),
            gate: Arc::clone(gate),
            agreed: Arc::clone(agreed),
            one: Mutex::new(()),
            attributes: Sweep::new("fuse-attributes", dropping(NO_PAGES)),
            pages: Sweep::new("fuse-pages", dropping(ALL_PAGES)),
        }
    }
}

impl Watcher for Recall {
    fn recall(&self) {
        let Some(agreed) = self.agreed.get() else { return };
        {
            let _one = self.one.lock().expect("no holder of this lock panics");
            // Answers begun from here on ask the volume, which no longer lets the kernel keep them.
            self.gate.pass();
            if agreed.minor >= MINOR_INC_EPOCH {
                // Every name, absent ones too. Lookups under way get the old epoch.
                self.device.notify(notify::INC_EPOCH, &[]);
            }
        }
        let mut known = vec![Ino::ROOT];
        self.nodes.each(|ino| known.push(ino));
        self.attributes.run(known.clone(), ATTRIBUTES_MAX);
        self.pages.run(known, PAGES_MAX);
    }

    fn knows(&self, ino: Ino) -> bool {
        self.nodes.knows(ino)
    }
}
