//! What an island is told when it opens, between [`Island::new`] and its first event: the machine beside it, and how its bodies were
//! found. Never decides anything by itself.

use std::any::Any;

use atoll_core::Ino;
use atoll_proto::{BodyChange, RowChange};

use crate::ctx::Beside;
use crate::ctx::decision::Decision;
use crate::island::Island;

impl Island {
    /// Has a machine beside the island see each record from here on. To be called before the first event: [`Island::new`] decides only
    /// records of the island's own, such as that of the root.
    pub fn set_beside(&mut self, beside: Box<dyn Beside>) {
        self.ctx.beside = Some(beside);
    }

    /// The machine beside the island, if it is one of this type.
    pub fn beside<B: Beside>(&self) -> Option<&B> {
        let beside: &dyn Any = self.ctx.beside.as_deref()?;
        beside.downcast_ref()
    }

    /// Changes rows whose bodies could not be brought in line with them, when the island opens.
    /// `bodies`: what other copies have to change in theirs. It is done here.
    pub fn correct(&mut self, changes: Vec<RowChange>, bodies: Vec<BodyChange>) {
        if !changes.is_empty() {
            let mut decision = Decision::new();
            changes.into_iter().for_each(|change| decision.push(change));
            bodies.into_iter().for_each(|change| decision.body(change));
            self.ctx.decide(decision);
            self.ctx.want_sync();
            self.settle();
        }
    }

    /// Bodies that a recovery has looked at. No sync has covered bytes that the last run put in place, or
    /// that the recovery did, so the next `fsync` of each body, and the next checkpoint, must sync it.
    pub fn recovered_bodies(&mut self, bodies: &[Ino]) {
        bodies.iter().for_each(|ino| self.ctx.state.view_disturbed(*ino));
        self.bodies.recovered(bodies);
    }

    /// A checkpoint was begun over these rows before the island led, and is being written.
    pub fn resume_checkpoint(&mut self) {
        self.bodies.resume_checkpoint();
    }
}
