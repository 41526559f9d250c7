//! The start of a node's islands of a volume. Never serves one.
//!
//! One that cannot be opened hides its own directories only: the others are served, and it is told which one is not, and why. If
//! none can be opened the volume is refused, since its disk may not be mounted. So is a volume that is being made.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_core::IslandId;
use atoll_disk::Disk;
use atoll_dispatch::{Clock, Engine, Laying, OpenError};

use crate::abreast::abreast;
use crate::copies::{CopiesSetup, Ends};
use crate::slots::Islands;
use crate::volume::{Volume, VolumeError, VolumeOptions, WallClock, setup, tell_recovery};

/// Islands of a node that cannot be opened, and why.
pub(crate) type Unopened = BTreeMap<IslandId, VolumeError>;

/// Islands that are open, and cannot be asked anything yet.
pub(crate) struct OpenedIslands<D: Disk> {
    pub(crate) engines: Islands<Engine<D>>,
    pub(crate) views: Vec<Laying<D>>,
    /// What the copies say; none if no island has others.
    pub(crate) ends: Option<Ends>,
}

impl<D: Disk> Volume<D> {
    /// Opens the islands of this node. They are not here before [`Self::begin`].
    pub(crate) fn open_islands(
        self: &Arc<Self>,
        options: &VolumeOptions,
        mut disk_of: impl FnMut(IslandId) -> Result<Arc<D>, VolumeError>,
        copies: Option<CopiesSetup<D>>,
    ) -> Result<OpenedIslands<D>, VolumeError> {
        let clock: Arc<dyn Clock> = Arc::new(WallClock::default());
        let mut opened = OpenedIslands { engines: BTreeMap::new(), views: Vec::new(), ends: None };
        let mut unopened = Unopened::new();
        if let Some(copies) = copies {
            opened.ends = Some(self.make_copies(copies, clock));
            let islands = self.config().islands_at(self.node());
            for (island, why) in self.open_copies(options, islands, disk_of) {
                self.goes_without(options, island, why, &mut unopened)?;
            }
            // A node that has the control store may have no copies.
            self.serve_without(unopened, self.copies().next().is_none())?;
            return Ok(opened);
        }
        let disks: Vec<_> = self.islands().into_iter().map(|island| (island, disk_of(island))).collect();
        let open = |(island, disk)| (island, self.open_one(options, island, disk, &clock));
        for (island, outcome) in abreast(disks, open) {
            match outcome {
                Ok((engine, laying)) => {
                    opened.engines.insert(island, engine);
                    opened.views.push(laying);
                }
                Err(why) => self.goes_without(options, island, why, &mut unopened)?,
            }
        }
        self.serve_without(unopened, opened.engines.is_empty())?;
        Ok(opened)
    }

    fn open_one(
        &self,
        options: &VolumeOptions,
        island: IslandId,
        disk: Result<Arc<D>, VolumeError>,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Arc<Engine<D>>, Laying<D>), VolumeError> {
        let disk = disk?;
        let setup = setup(&self.config(), self.node(), island, &*disk, options);
        let net: Arc<dyn atoll_dispatch::Net> = Arc::clone(&self.switch) as _;
        let (engine, report) = Engine::open(disk, setup, net, Arc::clone(clock))?;
        tell_recovery(self.name(), island, &report);
        let engine = Arc::new(engine);
        let laying = Laying::open(Arc::clone(&engine), options.root, options.devices);
        Ok((engine, laying.map_err(|e| OpenError::Io(island, e))?))
    }

    /// Notes that an island cannot be opened, if the others may be served without it.
    pub(crate) fn goes_without(
        &self,
        options: &VolumeOptions,
        island: IslandId,
        why: VolumeError,
        unopened: &mut Unopened,
    ) -> Result<(), VolumeError> {
        if options.is_new || !matches!(why, VolumeError::Open(_)) {
            return Err(why);
        }
        unopened.insert(island, why);
        Ok(())
    }

    /// The islands that are open are served without these. `is_none`: no island is open.
    pub(crate) fn serve_without(&self, mut unopened: Unopened, is_none: bool) -> Result<(), VolumeError> {
        // Copies without room are opened when there is some.
        let waits = self.copies.get().is_some() && unopened.values().all(VolumeError::lacks_room);
        if is_none
            && !waits
            && let Some((_, first)) = unopened.pop_first()
        {
            return Err(first);
        }
        for (island, why) in &unopened {
            let volume = self.name();
            tracing::error!(
                volume, %island,
                "this island cannot be opened, and its directories are hidden; the others are served: {why}"
            );
        }
        assert!(self.unopened.set(unopened).is_ok(), "islands are opened once");
        Ok(())
    }

    /// Why an island of this node cannot be opened; none if it can, or was not tried yet.
    pub(crate) fn why_unopened(&self, island: IslandId) -> Option<&VolumeError> {
        self.unopened.get()?.get(&island).filter(|_| self.copy(island).is_none())
    }
}
