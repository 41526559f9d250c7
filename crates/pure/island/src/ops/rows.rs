//! The entry of rows of the snapshot, and the fate of requests that need a damaged row.

use atoll_posix::Errno;
use atoll_proto::{Outcome, PeerMessage, PeerOp, Vote};
use atoll_state::{LoadedRows, RowLoad};

use crate::ctx::request::Next;
use crate::event::{BodyFault, Damage, Effect};
use crate::island::Island;

impl Island {
    pub(crate) fn loaded(&mut self, load: RowLoad, generation: u64, loaded: LoadedRows) {
        if generation != self.ctx.loads.generation() {
            // A checkpoint came between: this may be older than what memory has let go of.
            return self.ctx.read(load);
        }
        let waiting = self.ctx.loads.take(&load);
        if let (RowLoad::Dirs { from }, LoadedRows::Dirs { dirs, more }) = (&load, &loaded) {
            self.migration.found_dirs(*from, dirs, *more);
            self.anti_entropy.compare_rows(*from, dirs, *more);
        }
        let damaged = self.ctx.state.load(load.clone(), loaded).is_err();
        if damaged {
            self.ctx.loads.note_damaged(load.clone());
            self.ctx.durability.emit(Effect::Damaged(Damage::Row(load)));
        }
        for next in waiting {
            self.ctx.next(if damaged { Next::Unreadable(Box::new(next)) } else { next });
        }
    }

    /// A row that something needs is damaged. It fails; the row is not read again before the next checkpoint.
    pub(crate) fn unreadable(&mut self, next: Next) {
        let failed = Outcome::Failed { errno: Errno::EIO };
        match next {
            Next::Start(call) => self.ctx.answer(&call, 0, failed),
            Next::Commit(txn) => self.txns.abort(&mut self.ctx, txn, Some(failed)),
            Next::Peer(message) => self.unreadable_for(&message),
            Next::BodyDone(ticket, _) => self.ctx.next(Next::BodyDone(ticket, Err(BodyFault(Errno::EIO)))),
            // What it needs it asks for again at the next event. A damaged row is not read again before the next checkpoint.
            Next::Beside => self.ctx.beside_waits = false,
            // Each of these looks again at a tick.
            Next::EndSession(session) => self.sessions.reads_no_more(session),
            Next::Nothing | Next::Compare => {}
            // It leaves out what needs the row.
            Next::Redo => self.ctx.next(Next::Redo),
            other => unreachable!("{other:?} reads no row"),
        }
    }

    /// The same as [`Island::unreadable`], for a message. Its sender is told, or sends it again by itself.
    fn unreadable_for(&mut self, message: &PeerMessage) {
        let (from, errno) = (message.from, Errno::EIO);
        match &message.op {
            PeerOp::Prepare { txn, .. } => {
                self.ctx.send(0, from, PeerOp::Voted { txn: *txn, vote: Vote::No { errno } });
            }
            PeerOp::Voted { txn, .. } => {
                self.txns.abort(&mut self.ctx, *txn, Some(Outcome::Failed { errno }));
            }
            PeerOp::Journal { .. } => self.journal.unreadable(from),
            _ => {}
        }
    }
}
