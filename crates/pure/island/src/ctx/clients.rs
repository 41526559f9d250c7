//! Which clients are attached, and which of them may keep anything.

use atoll_core::{Ino, SessionId};
use atoll_proto::Notice;

use super::Ctx;

impl Ctx {
    /// All mounts that are attached.
    pub(crate) fn mounts(&self) -> Vec<SessionId> {
        self.state.session_ids().filter(|s| self.state.session(*s).is_some_and(|row| row.mount)).collect()
    }

    /// The sessions that may keep a file alive when it loses its last name: all mounts that are not ending.
    pub(crate) fn possible_openers(&self) -> Vec<SessionId> {
        self.mounts().into_iter().filter(|mount| !self.replies.is_ending(*mount)).collect()
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
