//! Checkpoints, and rows that are loaded: the way between memory and snapshot.
//!
//! Invariant: a checkpoint's rows go to the snapshot only when the log is synced up to them and the bodies
//! agree with them.

use atoll_core::Ino;
use atoll_proto::RowChange;

use crate::bodies::Bodies;
use crate::bodies::op::BodyOpState;
use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::event::{BodyOpId, Effect};

/// A checkpoint that has begun.
#[derive(Debug, Clone)]
pub(crate) enum Checkpointing {
    /// Body operations up to this ticket must end first.
    Waiting { ticket: BodyOpId, frozen: atoll_state::CheckpointRows, bodies: Vec<Ino> },
    /// It is being written.
    Writing,
}

impl Bodies {
    pub(crate) fn begin_checkpoint(&mut self, ctx: &mut Ctx) {
        if self.checkpoint.is_some() {
            return;
        }
        self.checkpoint_ms = ctx.now.ms;
        // The marker is part of what is frozen, so that nothing is left to be done behind it.
        let mut marker = Decision::new();
        marker.push(RowChange::Checkpoint { clean: ctx.state.meta().clean });
        ctx.decide(marker);
        let frozen = ctx.state.freeze();
        let mut bodies: Vec<_> = self.touched.drain().map(|(ino, _)| ino).collect();
        bodies.sort_unstable();
        self.fresh.clear();
        // What is being put in place now was announced before this checkpoint, whose log may go before it is
        // decided. What is overwritten next in these bodies waits until this is synced.
        let mut decision = Decision::new();
        for ino in self.in_body.values().filter_map(BodyOpState::is_ahead) {
            decision.push(RowChange::Dirty { ino });
        }
        self.announced = ctx.decide(decision);
        // Everything put in place before is synced with this checkpoint.
        self.syncing_bodies = std::mem::take(&mut self.unsynced_bodies);
        self.syncing_carried = std::mem::take(&mut self.carried);
        let ticket = BodyOpId(self.next_ticket - 1);
        self.checkpoint = Some(Checkpointing::Waiting { ticket, frozen, bodies });
        ctx.want_sync();
        self.continue_checkpoint(ctx);
    }

    /// A checkpoint is being written that was begun before the island led.
    pub(crate) fn resume_checkpoint(&mut self) {
        self.checkpoint = Some(Checkpointing::Writing);
    }

    /// Begins to write the checkpoint when the bodies agree with its rows and its announcement is synced. The
    /// log that said before which writes are under way goes with the checkpoint.
    pub(crate) fn continue_checkpoint(&mut self, ctx: &mut Ctx) {
        let first = self.in_body.first_key_value().map(|(t, _)| *t);
        match self.checkpoint.take() {
            Some(Checkpointing::Waiting { ticket, frozen, bodies })
                if first.is_none_or(|t| t > ticket)
                    && ctx.durability.is_synced(self.announced.max(frozen.seq)) =>
            {
                self.checkpoint = Some(Checkpointing::Writing);
                ctx.durability.emit(Effect::Checkpoint { frozen, bodies });
            }
            other => self.checkpoint = other,
        }
    }

    pub(crate) fn checkpoint_done(&mut self, ctx: &mut Ctx) {
        assert!(matches!(self.checkpoint, Some(Checkpointing::Writing)), "no checkpoint was being written");
        self.checkpoint = None;
        self.syncing_bodies.clear();
        self.syncing_carried.clear();
        ctx.loads.begin_generation();
        ctx.counters.checkpoints += 1;
        ctx.state.thaw();
        ctx.state.sweep(ctx.config.rows_max);
    }
}
