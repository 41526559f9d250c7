//! Words for the dangerous sequences of islands with several copies, beside those of `script.rs`.

use atoll_core::{IslandId, NodeId, VolumePath};
use atoll_route::{ListError, ListedFile};

use crate::cause::Failure;
use crate::enumerate::Listing;
use crate::world::{PATIENCE_US, World};

impl World {
    /// A client lists the tree at one moment, while `meanwhile` is done before each step.
    pub fn list(
        &mut self,
        client: usize,
        mut meanwhile: impl FnMut(&mut Self),
    ) -> Result<Result<Vec<ListedFile>, ListError>, Failure> {
        let mut listing = Listing::new(self, client, VolumePath::default(), 0);
        let until = self.now_us() + PATIENCE_US;
        loop {
            listing.advance(self);
            if listing.is_over() {
                return Ok(listing.taken().expect("it is over").result);
            }
            if self.now_us() > until {
                return Err(Failure::new(format!("a listing never ends: {listing:?}")));
            }
            meanwhile(self);
            self.step()?;
        }
    }

    /// Whether a machine leads an island, by its own word.
    pub fn leads(&self, node: NodeId, island: IslandId) -> bool {
        self.copy_at(island, node).is_some_and(|copy| self.copies[copy].leads.is_some())
    }
}
