//! Operations that are carried out in pieces, one after the other, and that are one operation to their
//! caller.
//!
//! Zeroing sets the checksum of every block, all in one record, so a long range is zeroed in pieces. This
//! file knows which piece is under way; it never asks an island itself. If pieces are answered at once, they
//! follow each other in a loop, not on the stack, because there may be thousands of them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use atoll_posix::perm::{FILE_BYTES_MAX, ZERO_BYTES_MAX};
use atoll_posix::{Allocation, Answer, Caller, Errno, Op, RequestOptions};

use crate::client::Done;

/// Tickets of operations in pieces have this bit; numbers of calls of the routing machine never get as far.
const IN_PIECES: u64 = 1 << 63;

/// The way in which a caller wants an operation to end early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    Cancel,
    Abandon,
}

/// The part of a range that is not zeroed yet.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    left: Option<Op>,
}

/// The state of the piece that was begun last.
enum Piece {
    /// It is being sent.
    Begun,
    /// It was answered before its sending returned.
    Answered(Result<Answer, Errno>),
    /// It is under way, with this number of the routing machine.
    UnderWay(u64),
}

struct Long {
    caller: Caller,
    options: RequestOptions,
    range: Range,
    done: Done,
    piece: Piece,
    early: Option<Early>,
}

/// The next step.
pub(crate) enum Next {
    /// Ask for this piece, then call [`Pieces::asked`].
    Ask(Caller, RequestOptions, Op),
    /// End the call with this number early.
    Early(u64, Early),
    /// Tell the end.
    End(Done, Result<Answer, Errno>),
    /// Wait for the answer.
    Wait,
}

/// The operations in pieces that are under way.
#[derive(Default)]
pub(crate) struct Pieces {
    all: Mutex<(u64, HashMap<u64, Long>)>,
}

impl Range {
    /// An operation that is too long for one piece.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        let Op::Fallocate { offset, len, what, .. } = op else { return None };
        let end = offset.checked_add(*len)?;
        // The island refuses what no file can have, before anything is zeroed.
        let is_long = (end_of_piece(*offset) + 1..=FILE_BYTES_MAX).contains(&end);
        let is_long = is_long && !matches!(what, Allocation::Allocate { .. });
        is_long.then(|| Self { left: Some(op.clone()) })
    }

    /// Takes the next piece off.
    fn take(&mut self) -> Option<Op> {
        let Op::Fallocate { ino, offset, len, what } = self.left.take()? else { return None };
        let piece = len.min(end_of_piece(offset) - offset);
        if piece < len {
            self.left = Some(Op::Fallocate { ino, offset: offset + piece, len: len - piece, what });
        }
        Some(Op::Fallocate { ino, offset, len: piece, what })
    }
}

/// Pieces end where multiples of the longest one do.
const fn end_of_piece(offset: u64) -> u64 {
    (offset / ZERO_BYTES_MAX + 1) * ZERO_BYTES_MAX
}

impl Pieces {
    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<u64, Long>)> {
        self.all.lock().expect("no panic while it is held")
    }

    /// Begins an operation. Returns its ticket. The first piece is [`Pieces::next`].
    pub(crate) fn begin(&self, caller: &Caller, options: RequestOptions, range: Range, done: Done) -> u64 {
        let mut all = self.lock();
        all.0 += 1;
        let ticket = IN_PIECES | all.0;
        let long = Long { caller: caller.clone(), options, range, done, piece: Piece::Begun, early: None };
        all.1.insert(ticket, long);
        ticket
    }

    pub(crate) fn is_under_way(&self, ticket: u64) -> bool {
        self.lock().1.contains_key(&ticket)
    }

    /// The next piece, or the end.
    pub(crate) fn next(&self, ticket: u64) -> Next {
        self.go_on(ticket, Ok(Answer::Done))
    }

    fn go_on(&self, ticket: u64, last: Result<Answer, Errno>) -> Next {
        let mut all = self.lock();
        let Some(long) = all.1.get_mut(&ticket) else { return Next::Wait };
        let is_over = last.is_err() || long.range.left.is_none();
        if !is_over && long.early.is_none() {
            long.piece = Piece::Begun;
            if let Some(op) = long.range.take() {
                return Next::Ask(long.caller.clone(), long.options, op);
            }
        }
        let Some(long) = all.1.remove(&ticket) else { return Next::Wait };
        // What was done stays done: it is zeros, and the caller can ask for them again.
        Next::End(long.done, if is_over { last } else { Err(Errno::EINTR) })
    }

    /// The piece was sent, and has this number.
    pub(crate) fn asked(&self, ticket: u64, call: u64) -> Next {
        let answered = {
            let mut all = self.lock();
            let Some(long) = all.1.get_mut(&ticket) else { return Next::Wait };
            match std::mem::replace(&mut long.piece, Piece::UnderWay(call)) {
                Piece::Answered(result) => result,
                Piece::Begun | Piece::UnderWay(_) => {
                    return long.early.map_or(Next::Wait, |early| Next::Early(call, early));
                }
            }
        };
        self.go_on(ticket, answered)
    }

    /// The piece was answered.
    pub(crate) fn answered(&self, ticket: u64, result: Result<Answer, Errno>) -> Next {
        {
            let mut all = self.lock();
            let Some(long) = all.1.get_mut(&ticket) else { return Next::Wait };
            if let Piece::Begun = long.piece {
                long.piece = Piece::Answered(result);
                return Next::Wait;
            }
        }
        self.go_on(ticket, result)
    }

    /// A caller wants an operation to end early. None if it is not one in pieces: then its ticket is the
    /// routing machine's.
    pub(crate) fn end_early(&self, ticket: u64, how: Early) -> Option<Next> {
        if ticket & IN_PIECES == 0 {
            return None;
        }
        let mut all = self.lock();
        let Some(long) = all.1.get_mut(&ticket) else { return Some(Next::Wait) };
        // Who dies does not wait any longer because it was interrupted before.
        long.early = Some(if long.early == Some(Early::Abandon) { Early::Abandon } else { how });
        match long.piece {
            Piece::UnderWay(call) => Some(Next::Early(call, how)),
            Piece::Begun | Piece::Answered(_) => Some(Next::Wait),
        }
    }
}
