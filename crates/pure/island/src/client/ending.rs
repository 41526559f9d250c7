//! The end of a client: its locks are freed, and the files without a name that it kept are removed, piece by
//! piece. A client may hold a hundred thousand of them; a record, and the rows read for it, stay small.
//!
//! Invariant: the record of a piece also takes the piece's ids out of the session's row, and the row says that the end has
//! begun before anybody is told so. So an island that starts again in between ends the rest, nothing is ended twice, and
//! a client that comes back meanwhile does not believe in what it has lost.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, Ino, SessionId};
use atoll_proto::RowChange;
use atoll_state::RowLoad;

use crate::client::sessions::Sessions;
use crate::ctx::Ctx;
use crate::ctx::RECOVERY_SESSION;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next, PendingRequest, Step};
use crate::migration::Migration;
use crate::rows::path::done;

/// Files that one record lets go of at most. Their rows are read before: a file may have 8,192 locks, which are 400 KiB.
pub(crate) const FILES_MAX: usize = 128;
/// Bytes of changes behind which such a record takes in no other file.
pub(crate) const PIECE_BYTES: usize = 128 << 10;
/// Pieces of one session between two ticks, while all rows are in memory: others want to be served, too.
const PIECES_MAX: usize = 16;

/// How far a piece has come.
enum Piece {
    /// There is more.
    More,
    /// Rows have to be read first.
    Reads,
    /// Nothing is left.
    Over,
}

impl Sessions {
    /// Rows for the end of a session have been read.
    pub(crate) fn reads_no_more(&mut self, session: SessionId) {
        self.end_reads.remove(&session);
    }

    /// A client is gone: its locks and orphans with it. `asked`: by this request, which is answered then.
    pub(crate) fn end_session(
        &mut self,
        ctx: &mut Ctx,
        migration: &Migration,
        session: SessionId,
        asked: Option<PendingRequest>,
    ) {
        ctx.next(Next::SessionEnded(session));
        self.forget(session);
        ctx.replies.begin_end(session);
        if let Some(call) = asked {
            self.end_asked.entry(session).or_default().push(call);
        }
        self.go_on_ending(ctx, migration, session);
        if ctx.replies.is_ending(session) {
            // It keeps nothing any more that others must not change.
            self.recalled(ctx, session);
        }
    }

    /// All sessions that end go on.
    pub(crate) fn tick_ending(&mut self, ctx: &mut Ctx, migration: &Migration) {
        let ready = ctx.replies.ending().filter(|session| !self.end_reads.contains(session));
        for session in ready.collect::<Vec<_>>() {
            self.go_on_ending(ctx, migration, session);
        }
    }

    /// Rows that the end of a session waits for are in memory.
    pub(crate) fn ending_loaded(&mut self, ctx: &mut Ctx, migration: &Migration, session: SessionId) {
        self.reads_no_more(session);
        if ctx.replies.is_ending(session) {
            self.go_on_ending(ctx, migration, session);
        }
    }

    fn go_on_ending(&mut self, ctx: &mut Ctx, migration: &Migration, session: SessionId) {
        for _ in 0..PIECES_MAX {
            match self.end_piece(ctx, migration, session) {
                Piece::More => {}
                Piece::Reads => return,
                Piece::Over => return self.ended(ctx, session),
            }
        }
    }

    fn end_piece(&mut self, ctx: &mut Ctx, migration: &Migration, session: SessionId) -> Piece {
        let Some(row) = ctx.state.session(session) else { return Piece::Over };
        let held = row.held.len();
        // What its row waits for begins anew when an island starts.
        let is_marked = row.ending || session == RECOVERY_SESSION;
        // From the end, where a list is cut cheaply.
        let files: Vec<Ino> = row.held.iter().rev().take(FILES_MAX).copied().collect();
        let missing = ctx.missing_of(&files);
        if !missing.is_empty() {
            if !is_marked {
                let mut decision = Decision::new();
                decision.push(RowChange::Ending { session });
                ctx.decide(decision);
            }
            self.end_reads.insert(session);
            ctx.load(missing, Next::EndSession(session));
            return Piece::Reads;
        }
        let mut decision = Decision::new();
        let count = ctx.let_files_go(&mut decision, session, &files, true);
        let mut is_over = false;
        if count == held || planted(Bug::EndForgetsRest) {
            let moves = migration.unheard_moves(ctx, session, Ino(0), FILES_MAX);
            is_over = moves.len() < FILES_MAX;
            for (ino, _) in moves {
                ctx.knows_of_move(&mut decision, session, ino);
            }
            if is_over {
                decision.session(session, None);
            }
        }
        if !is_over && !is_marked {
            decision.push(RowChange::Ending { session });
        }
        ctx.decide(decision);
        for ino in &files[..count] {
            ctx.next(Next::LockFreed(*ino));
        }
        if is_over { Piece::Over } else { Piece::More }
    }

    /// The end is over: the client that asked for it is told.
    fn ended(&mut self, ctx: &mut Ctx, session: SessionId) {
        ctx.replies.end_session(session);
        self.end_reads.remove(&session);
        if session == RECOVERY_SESSION {
            ctx.next(Next::WitnessEnded);
        }
        self.recalled(ctx, session);
        for call in self.end_asked.remove(&session).unwrap_or_default() {
            ctx.answer(&call, ctx.state.seq(), done());
        }
    }
}

impl Ctx {
    /// A mount has closed files without a name, or confirms that some have moved. Ids that it does not hold
    /// are not even read.
    pub(crate) fn release_orphans(&mut self, call: &PendingRequest, inos: &[Ino]) -> Result<Step, Blocked> {
        let session = call.session();
        let is_held =
            |ino: &Ino| self.state.session(session).is_some_and(|row| row.held.binary_search(ino).is_ok());
        let mut held: Vec<Ino> = inos.iter().filter(|ino| is_held(ino)).copied().collect();
        held.sort_unstable();
        held.dedup();
        let mut rest = held.as_slice();
        while !rest.is_empty() {
            let files = &rest[..rest.len().min(FILES_MAX)];
            let missing = self.missing_of(files);
            if !missing.is_empty() {
                // What was let go of by then is not held when this is run again.
                return Err(Blocked::Load(missing));
            }
            let mut decision = Decision::new();
            let count = self.let_files_go(&mut decision, session, files, false);
            self.decide(decision);
            rest = &rest[count..];
        }
        for inos in inos.chunks(FILES_MAX) {
            let mut decision = Decision::new();
            for ino in inos {
                self.knows_of_move(&mut decision, session, *ino);
            }
            self.decide(decision);
        }
        Ok(Step::Decided(done()))
    }

    /// A session lets go of as many of these files as one record takes; how many. `locks`: also of its locks on those that
    /// have a name. The files' rows are in memory.
    fn let_files_go(
        &mut self,
        decision: &mut Decision,
        session: SessionId,
        files: &[Ino],
        locks: bool,
    ) -> usize {
        let (mut bytes, mut count) = (0, 0);
        for ino in files {
            if bytes > PIECE_BYTES {
                break;
            }
            let before = decision.record.changes.len();
            self.let_orphan_go(decision, session, *ino);
            if locks {
                self.drop_session_locks(decision, session, *ino);
                decision.push(RowChange::Held { session, ino: *ino, on: false });
            }
            bytes += decision.record.changes[before..].iter().map(Encode::encoded_len).sum::<usize>();
            count += 1;
        }
        count
    }

    /// One mount no longer keeps an orphan alive. Its row must be in memory.
    fn let_orphan_go(&mut self, decision: &mut Decision, session: SessionId, ino: Ino) {
        let Some(row) = self.state.inode(ino).ok().flatten() else { return };
        if row.attr.nlink > 0 || !row.orphan_of.contains(&session) {
            return;
        }
        let mut row = row.clone();
        row.orphan_of.retain(|s| *s != session);
        decision.push(RowChange::Held { session, ino, on: false });
        if row.orphan_of.is_empty() {
            self.drop_file(decision, &row);
        } else {
            self.drop_session_locks(decision, session, ino);
            decision.inode(row);
        }
    }

    /// Rows that are to be read before a session lets go of these files.
    fn missing_of(&self, files: &[Ino]) -> Vec<RowLoad> {
        let mut missing = Vec::new();
        for ino in files {
            missing.extend(self.state.inode(*ino).err().map(|m| m.0));
            missing.extend(self.state.locks(*ino).err().map(|m| m.0));
        }
        missing
    }
}
