//! The attributes of a request's object, just before and just after the decision. If nobody asks for them,
//! this costs a look at one number.

use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_posix::{Answer, Attr, AttrsAround, Op};
use atoll_proto::{Outcome, ParticipantWork, Record};

use super::Ctx;
use super::replies::Asked;
use super::request::PendingRequest;
use crate::ctx::shown::dir_attr;

/// Transactions that are looked at for the attributes of one object.
const TXNS_MAX: usize = 8;

/// The attributes before a decision, and the request that it is about.
pub(crate) type SeenBefore = Option<(Asked, Vec<Attr>)>;

impl Ctx {
    /// To be called before a record is applied.
    pub(super) fn observe_before(&self, record: &Record) -> SeenBefore {
        let (key, of) = self.replies.observes(record)?;
        Some((key, of.into_iter().flatten().filter_map(|ino| self.shown(ino)).collect()))
    }

    /// To be called when it is applied.
    pub(super) fn observe_after(&mut self, before: SeenBefore) {
        let Some((key, before)) = before else { return };
        let around = |before: &Attr| {
            let after = self.row_attr(before.ino)?;
            Some(AttrsAround::new(Some(if planted(Bug::BeforeIsAfter) { &after } else { before }), after))
        };
        let seen = before.iter().filter_map(around).collect();
        self.replies.saw(key, seen);
    }

    /// An outcome with the attributes that its request has asked for.
    pub(crate) fn with_attributes(&mut self, call: &PendingRequest, outcome: Outcome) -> Outcome {
        if !call.options.attributes {
            return outcome;
        }
        let around = match (call.request.seq, call.request.op.operation()) {
            (0, Some(op)) => {
                let of = op.subjects().into_iter().flatten();
                of.filter_map(|ino| self.shown(ino)).map(|attr| AttrsAround::new(None, attr)).collect()
            }
            _ => self.replies.seen(call),
        };
        match (outcome, call.request.op.operation()) {
            (Outcome::Ok { answer, keys }, _) => Outcome::Observed { around, answer: Box::new(answer), keys },
            // The end of a file is told by its size.
            (Outcome::Data { data }, Some(Op::Read { .. })) if data.is_empty() => {
                Outcome::Observed { around, answer: Box::new(Answer::Data), keys: Vec::new() }
            }
            (other, _) => other,
        }
    }

    /// The attributes of a file or directory that is decided on here, unless a transaction with another island may have
    /// changed them already: what is shown then is not all in its row. While there are many transactions that is not looked at.
    fn shown(&self, ino: Ino) -> Option<Attr> {
        if self.state.txn_ids().nth(TXNS_MAX).is_some() {
            return None;
        }
        let mut open = self.state.txn_ids().filter_map(|txn| self.state.txn(txn));
        let changes = |work: &ParticipantWork| match work {
            ParticipantWork::BorrowName { renaming, .. }
                if [renaming.from.dir, renaming.to.dir].contains(&ino) =>
            {
                true
            }
            work => self.claims(work).iter().any(|(of, _)| *of == ino),
        };
        if open.any(|row| changes(&row.part.work)) { None } else { self.row_attr(ino) }
    }

    fn row_attr(&self, ino: Ino) -> Option<Attr> {
        if let Ok(Some(row)) = self.state.inode(ino) {
            return Some(row.attr);
        }
        let dir = self.state.dir(ino).ok().flatten().filter(|dir| dir.owned.is_some())?;
        Some(dir_attr(ino, dir))
    }
}
