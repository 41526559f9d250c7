//! A client of the same process: the machine is entered on the caller's own thread.

use std::sync::Arc;

use atoll_client::{Sink, Wire};
use atoll_core::IslandId;
use atoll_disk::Disk;
use atoll_island::LinkId;
use atoll_proto::Request;
use bytes::Bytes;

use crate::served::LocalWay;
use crate::switch::End;
use crate::volume::Volume;

/// The way from a client of this process to the islands of this node.
pub struct Local<D: Disk> {
    volume: Arc<Volume<D>>,
    link: LinkId,
}

impl<D: Disk> std::fmt::Debug for Local<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").field("link", &self.link).finish_non_exhaustive()
    }
}

impl<D: Disk> Local<D> {
    pub(crate) const fn new(volume: Arc<Volume<D>>, link: LinkId) -> Self {
        Self { volume, link }
    }
}

impl<D: Disk> LocalWay for Local<D> {
    fn connect(&self, sink: Arc<dyn Sink>) {
        self.volume.switch().connect(self.link, End::Local(Arc::clone(&sink)));
        let has_copies = self.volume.has_copies();
        for island in self.volume.islands() {
            match self.volume.serves(island) {
                true => sink.leads(island, self.volume.epoch_of(island)),
                // Another node may lead it.
                false if has_copies => {}
                false => sink.reachable(island, false),
            }
        }
    }

    fn disconnect(&self) {
        self.volume.link_closed(self.link, true);
    }
}

impl<D: Disk> Wire for Local<D> {
    fn send(&self, island: IslandId, id: u64, request: Request, data: Bytes) {
        self.volume.request(island, self.link, id, request, data);
    }
}
