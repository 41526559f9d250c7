//! What a copy of an island is: it follows, or it leads. Following -> Leading, once; what is deposed or cut back is opened
//! anew. Never decides which.

use atoll_core::Ino;
use atoll_island::{Config, Island, Now, PreviousEnd};
use atoll_proto::{BodyChange, RowChange};
use atoll_state::State;

use crate::beside::BesideSetup;

/// See the module.
pub(crate) enum Role {
    /// It has rows, and no machine that decides.
    Following(Box<Follower>),
    /// It decides.
    Leading(Box<Island>),
}

/// Rows that were corrected, and what that says about the bodies of other copies.
#[derive(Debug, Default)]
pub(crate) struct Corrected {
    pub(crate) changes: Vec<RowChange>,
    pub(crate) bodies: Vec<BodyChange>,
}

/// A copy that follows, as its disk had it or as its primary has it.
pub(crate) struct Follower {
    /// The machine's part, for the time when it leads.
    pub(crate) config: Config,
    pub(crate) state: State,
    /// How its last life ended.
    pub(crate) ended: PreviousEnd,
    /// Bodies that no sync has covered yet.
    pub(crate) touched: Vec<Ino>,
    /// Changes of rows whose bodies could not be brought in line with them, when the copy was opened.
    pub(crate) corrections: Vec<RowChange>,
    /// The same, as records for other copies.
    pub(crate) given_way: Vec<Corrected>,
    /// A checkpoint is under way.
    pub(crate) makes_checkpoint: bool,
}

impl Follower {
    /// The machine over these rows.
    fn lead(&mut self, now: Now, beside: Option<BesideSetup>) -> Result<Island, String> {
        let state = std::mem::take(&mut self.state);
        let mut island = Island::new(self.config.clone(), state, self.ended, now);
        if let Some(beside) = beside {
            island.set_beside(beside.begin()?);
        }
        island.recovered_bodies(&self.touched);
        if self.makes_checkpoint {
            island.resume_checkpoint();
        }
        for Corrected { changes, bodies } in std::mem::take(&mut self.given_way) {
            island.correct(changes, bodies);
        }
        island.correct(std::mem::take(&mut self.corrections), Vec::new());
        Ok(island)
    }
}

impl Role {
    pub(crate) const fn state(&self) -> &State {
        match self {
            Self::Following(follower) => &follower.state,
            Self::Leading(island) => island.state(),
        }
    }

    pub(crate) const fn state_mut(&mut self) -> &mut State {
        match self {
            Self::Following(follower) => &mut follower.state,
            Self::Leading(island) => island.state_mut(),
        }
    }

    /// The machine, if it leads.
    pub(crate) fn island(&mut self) -> Option<&mut Island> {
        match self {
            Self::Following(_) => None,
            Self::Leading(island) => Some(island),
        }
    }

    /// A follower leads from here on, with the machine beside it that begins with this. If that cannot begin, the copy is of no use any
    /// more before it is opened anew.
    pub(crate) fn lead(&mut self, now: Now, beside: Option<BesideSetup>) -> Result<(), String> {
        if let Self::Following(follower) = self {
            *self = Self::Leading(Box::new(follower.lead(now, beside)?));
        }
        Ok(())
    }
}
