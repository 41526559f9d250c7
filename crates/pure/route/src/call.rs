//! A call under way: its caller, its stage, and where its request is.
//!
//! A stage holds only the data that is valid in it. Deciding -> Following (a name leads to a file homed
//! elsewhere) -> Deciding (the file is not there: the name is looked up again). Deciding or Following ->
//! Fallback (the island that knows is away) -> back (no other island knew). Gathering is for `statfs` alone,
//! from the beginning. Deciding -> Confirming is for `fsync` alone, Searching for handles alone. Each stage
//! may end the call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, VolumePath};
use atoll_posix::{AttrsAround, Caller, Kind, Op, RequestOptions};
use atoll_proto::ClientOp;
use bytes::Bytes;

/// The bits of a request's number that are its call's. The others tell the requests of one call apart.
const CALL_BITS: u32 = 48;

/// The call whose request has this number.
pub(crate) const fn call_of(number: u64) -> u64 {
    number & ((1 << CALL_BITS) - 1)
}

/// What a call is about.
#[derive(Debug)]
pub(crate) enum CallKind {
    Op(Op),
    /// A walk of a path from the root, for libraries and tools.
    Walk(VolumePath),
    /// The session itself, or orphans: no caller waits.
    Own(ClientOp),
    /// A question that only this island can answer, for tools.
    Island(ClientOp),
}

/// The caller of a call.
#[derive(Debug)]
pub(crate) struct Waiter<T> {
    /// The caller's token, handed back at the end.
    pub(crate) token: T,
    /// When the caller began to wait, in milliseconds.
    pub(crate) since_ms: u64,
}

/// How far a call is. See the module.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The island that decides the operation is asked.
    Deciding {
        /// Of a `link`: the home of the file as it was known when the request was sent.
        linked_home: Option<IslandId>,
    },
    /// The home of the file that the name led to is asked.
    Following(Followed),
    /// The skeletons of other islands are asked, because the island that knows the answer is away.
    Fallback {
        /// Islands that are still to be asked.
        rest: VecDeque<IslandId>,
        /// The file that the name led to before, if any.
        of: Option<Followed>,
    },
    /// Every island is asked for its part of a sum.
    Gathering(Gathering),
    /// Islands are asked for a file of which only a handle is known.
    Searching {
        /// Islands that are still to be asked.
        rest: VecDeque<IslandId>,
    },
    /// The file is synced. These islands are asked whether they have kept their power since its last change.
    Confirming {
        /// Islands that are still to be asked.
        left: Vec<IslandId>,
    },
}

/// A file that a name has led to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Followed {
    /// Its id.
    pub(crate) file: Ino,
    /// Set if the operation is done: the type of the file. If the file is gone by now, its attributes are
    /// too.
    pub(crate) done: Option<Kind>,
}

impl Followed {
    /// A file of this type to which something was done.
    pub(crate) fn done(file: Ino, kind: Kind) -> Self {
        Self { file, done: Some(kind).filter(|_| !planted(Bug::DoneIsGone)) }
    }
}

/// The parts of a call that asks every island.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// Islands that are still to be asked.
    pub(crate) left: BTreeSet<IslandId>,
    /// Answers by native file system: islands on the same one share its space.
    pub(crate) sums: BTreeMap<u64, [u64; 5]>,
}

/// Where the request of a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// It waits until its island can be asked.
    Waiting,
    /// It was sent and not answered, and the link has not broken since.
    InFlight,
    /// Its island was not ready: it is sent again after a pause.
    Paused,
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Call<T> {
    /// None for requests of the session itself, an undo, or an unlock that has outlived its caller. These are
    /// never given up.
    pub(crate) waiter: Option<Waiter<T>>,
    pub(crate) caller: Caller,
    pub(crate) what: CallKind,
    pub(crate) data: Bytes,
    /// The island that is asked.
    pub(crate) island: IslandId,
    /// Its number at that island; 0 if its result need not be remembered.
    pub(crate) seq: u64,
    pub(crate) options: RequestOptions,
    /// The attributes that the caller asked for, as far as islands have told them.
    pub(crate) around: Vec<AttrsAround>,
    pub(crate) stage: Stage,
    pub(crate) sending: Sending,
    /// When it was sent last, in milliseconds.
    pub(crate) asked_ms: u64,
    /// How many replies had come when it was sent last.
    pub(crate) asked_after: u64,
    /// Its caller was interrupted: wherever it is asked from then on, its island is told so behind the request.
    pub(crate) interrupted: bool,
    /// Its answer may be kept, if any may. It may not if it may be older than a change of which a notice has come, or than the time from which
    /// on the mount may keep answers, or if an island says so.
    pub(crate) may_keep: bool,
    /// The link broke while the request was in flight, so nobody knows whether the island has got it.
    pub(crate) doubtful: bool,
    /// How often it was sent while an earlier request might have been carried out, and its answer might still come.
    pub(crate) resent: u16,
    /// How often it was sent.
    pub(crate) requests: u32,
    /// How often its island was not ready for it.
    pub(crate) refusals: u32,
    /// How often its name led to nothing.
    pub(crate) dangled: u32,
    /// How often an island has sent it on: to another one, or to the same with a newer table.
    pub(crate) sent_on: u32,
}

impl<T> Call<T> {
    /// A call that was not sent yet.
    pub(crate) const fn new(
        waiter: Option<Waiter<T>>,
        caller: Caller,
        what: CallKind,
        data: Bytes,
        island: IslandId,
    ) -> Self {
        Self {
            waiter,
            caller,
            what,
            data,
            island,
            seq: 0,
            options: RequestOptions { unchecked: false, attributes: false },
            around: Vec::new(),
            stage: Stage::Deciding { linked_home: None },
            sending: Sending::Waiting,
            asked_ms: 0,
            asked_after: 0,
            interrupted: false,
            may_keep: true,
            doubtful: false,
            resent: 0,
            requests: 0,
            refusals: 0,
            dangled: 0,
            sent_on: 0,
        }
    }

    /// Its request is sent now, when so many replies have come.
    pub(crate) const fn note_sent(&mut self, now_ms: u64, replies: u64) {
        self.resent = self.resent.wrapping_add(self.doubtful as u16);
        self.requests += 1;
        self.sending = Sending::InFlight;
        self.asked_ms = now_ms;
        self.asked_after = replies;
    }

    /// The number on its link of the request that was sent last. What was asked on a link that is lost has another one: an island
    /// remembers no refusal, so what is asked again may be done although the earlier request was refused, and a late answer to that
    /// one says nothing of it.
    pub(crate) const fn number(&self, id: u64) -> u64 {
        id | (self.resent as u64) << CALL_BITS
    }

    /// Whether it was sent and is not answered.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.sending == Sending::InFlight
    }

    /// Whether skeletons of other islands are asked.
    pub(crate) const fn falls_back(&self) -> bool {
        matches!(self.stage, Stage::Fallback { .. })
    }

    /// Whether a sync is being confirmed.
    pub(crate) const fn is_confirming(&self) -> bool {
        matches!(self.stage, Stage::Confirming { .. })
    }

    /// The file that its name has led to.
    pub(crate) const fn followed(&self) -> Option<Followed> {
        match &self.stage {
            Stage::Following(followed) => Some(*followed),
            Stage::Fallback { of, .. } => *of,
            Stage::Deciding { .. }
            | Stage::Gathering(_)
            | Stage::Searching { .. }
            | Stage::Confirming { .. } => None,
        }
    }

    /// Takes the file that its name has led to, which is then no longer asked for.
    pub(crate) fn take_followed(&mut self) -> Option<Followed> {
        match &mut self.stage {
            Stage::Following(followed) => {
                let followed = *followed;
                self.stage = Stage::Deciding { linked_home: None };
                Some(followed)
            }
            Stage::Fallback { of, .. } => of.take(),
            Stage::Deciding { .. }
            | Stage::Gathering(_)
            | Stage::Searching { .. }
            | Stage::Confirming { .. } => None,
        }
    }

    /// Asks no further skeletons.
    pub(crate) fn end_fallback(&mut self) {
        if let Stage::Fallback { of, .. } = &mut self.stage {
            self.stage = match of.take() {
                Some(followed) => Stage::Following(followed),
                None => Stage::Deciding { linked_home: None },
            };
        }
    }

    /// The next island whose skeleton is to be asked.
    pub(crate) fn next_fallback(&mut self) -> Option<IslandId> {
        match &mut self.stage {
            Stage::Fallback { rest, .. } => rest.pop_front(),
            _ => None,
        }
    }
}
