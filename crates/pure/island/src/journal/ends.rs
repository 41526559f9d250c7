//! How far the journals of others go. A client says which entries it has seen. It has that from islands, and one of them
//! may lie about the journal of another. So whoever waits for an entry asks its coordinator how far the journal goes: what
//! lies behind that was not there when the request came, and nobody can have seen it.
//!
//! Invariant: a request is let through by an answer only if the question was asked when the request was here.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{IslandId, Stamp};
use atoll_proto::PeerOp;

use crate::ctx::Ctx;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends {
    /// The number of the last question. The numbers of a life are above those of earlier ones, of which answers may come
    /// late.
    last_ask: u64,
    /// The islands that were asked since something waits. They are asked again and again: an answer may be lost, and its
    /// island may lose what it has answered.
    wanted: BTreeSet<IslandId>,
    /// The latest answers: the question, and how far the journal goes.
    told: BTreeMap<IslandId, (u64, Stamp)>,
}

impl Ends {
    pub(super) fn resume(&mut self, incarnation: u32) {
        self.last_ask = u64::from(incarnation) << 40;
    }

    /// The number of a new question.
    pub(super) const fn next_ask(&mut self) -> u64 {
        self.last_ask += 1;
        self.last_ask
    }

    /// Something waits to hear how far a journal goes. That is asked now, if there is a new question, or soon.
    pub(super) fn want(&mut self, ctx: &mut Ctx, island: IslandId, ask: Option<u64>) {
        self.wanted.insert(island);
        if let Some(ask) = ask {
            ctx.send(0, island, PeerOp::WantJournalEnd { ask });
        }
    }

    /// Asks once more. `nobody_waits`: nobody needs the answers any more.
    pub(super) fn ask_again(&mut self, ctx: &mut Ctx, nobody_waits: bool) {
        if nobody_waits {
            self.wanted.clear();
        }
        if !self.wanted.is_empty() {
            let ask = self.next_ask();
            for island in &self.wanted {
                ctx.send(0, *island, PeerOp::WantJournalEnd { ask });
            }
        }
    }

    /// An island has answered. False if that is no answer to what was asked, or nothing new.
    pub(super) fn told(&mut self, from: IslandId, ask: u64, upto: Stamp) -> bool {
        let is_new = self.told.get(&from).is_none_or(|(of, _)| *of < ask);
        if ask > self.last_ask || !is_new {
            return false;
        }
        self.told.insert(from, (ask, upto));
        true
    }

    /// The number of the last question.
    pub(super) const fn last_ask(&self) -> u64 {
        self.last_ask
    }

    /// Whether an island has answered a question behind `since` that its journal does not go up to `stamp`.
    pub(super) fn is_beyond(&self, island: IslandId, since: u64, stamp: Stamp) -> bool {
        self.told.get(&island).is_some_and(|(of, upto)| *of > since && *upto < stamp)
    }

    /// Whether this island has all of a journal that anybody had seen when a question was asked. `seen`: how much it has.
    pub(super) fn has_all(&self, island: IslandId, ask: u64, seen: Stamp) -> bool {
        self.told.get(&island).is_some_and(|(of, upto)| *of >= ask && *upto <= seen)
    }
}
