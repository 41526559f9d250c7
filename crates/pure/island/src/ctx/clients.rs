//! Which clients are attached, what they may see, and which of them may keep anything.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, SessionId};
use atoll_proto::Notice;
use atoll_state::NotInMemory;

use super::Ctx;

/// Directories above one another at most; more go in a circle.
pub(crate) const DEPTH_MAX: usize = 1 << 16;

impl Ctx {
    /// All mounts that are attached.
    pub(crate) fn mounts(&self) -> Vec<SessionId> {
        self.state.session_ids().filter(|s| self.state.session(*s).is_some_and(|row| row.mount)).collect()
    }

    /// The sessions that may keep a file or directory alive when it loses its last name, in this directory: all mounts that are
    /// not ending, and that may see the name. Who sees a part of the tree only hears of nothing else, and keeps nothing else.
    pub(crate) fn possible_openers(&self, dir: Ino) -> Vec<SessionId> {
        let sees = |mount| planted(Bug::OrphanOfAll) || self.sees(mount, dir);
        let mounts = self.mounts().into_iter();
        mounts.filter(|mount| !self.replies.is_ending(*mount) && sees(*mount)).collect()
    }

    /// Whether a session sees a directory, and so the names in it. What this reads is in memory ([`Ctx::openers_must_be_loaded`]);
    /// otherwise the session is taken to see it, because a file that is kept for too long is not lost.
    pub(crate) fn sees(&self, session: SessionId, dir: Ino) -> bool {
        self.scope_of(session).is_none_or(|scope| self.is_inside(dir, scope).unwrap_or(true))
    }

    /// Makes sure that the rows which [`Ctx::possible_openers`] reads are in memory.
    pub(crate) fn openers_must_be_loaded(&self, dir: Ino) -> Result<(), NotInMemory> {
        let mut scopes = self.state.session_ids().filter_map(|session| self.scope_of(session));
        scopes.try_for_each(|scope| self.is_inside(dir, scope).map(drop))
    }

    /// The directory that is all that a session sees, with what is below it; none if it sees the whole tree.
    pub(crate) fn scope_of(&self, session: SessionId) -> Option<Ino> {
        self.state.session(session).and_then(|row| row.scope)
    }

    /// Whether a directory is this one or below it, as far as this island has applied the journals.
    pub(crate) fn is_inside(&self, dir: Ino, scope: Ino) -> Result<bool, NotInMemory> {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == scope {
                return Ok(true);
            }
            match self.state.dir(at)? {
                Some(row) if at != Ino::ROOT => at = row.place.parent,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Whether a client has a session that has not begun to end.
    pub(crate) fn is_attached(&self, session: SessionId) -> bool {
        self.state.session(session).is_some() && !self.replies.is_ending(session)
    }

    /// Tells the other mounts that a file has lost its last name.
    pub(crate) fn notify_unlinked(&mut self, holders: &[SessionId], by: Option<SessionId>, ino: Ino) {
        let need = self.state.seq() + 1;
        for holder in holders.iter().filter(|h| Some(**h) != by) {
            self.notify(*holder, need, Notice::Orphan { ino });
        }
    }
}
