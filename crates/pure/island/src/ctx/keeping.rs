//! What each answer and each record means for those who keep what they are told. Recalls nobody.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, SessionId};
use atoll_posix::Op;
use atoll_proto::{MayKeep, Notice, Outcome, RowChange};

use super::Ctx;
use super::keepers::ChangeScope;
use super::request::PendingRequest;

impl Ctx {
    /// A client changes something, or has.
    pub(crate) fn note_change(&mut self, by: SessionId, scope: &ChangeScope) {
        let (now_ms, stamp) = (self.now.ms, self.posts.last());
        self.last_of_all.note(by, now_ms, stamp);
        if *scope == ChangeScope::Everything {
            self.last_changes.note(by, now_ms, stamp);
        }
    }

    /// A request of a client is over that has changed this, if it has.
    pub(crate) fn end_change(&mut self, by: SessionId, scope: Option<ChangeScope>) {
        let Some(scope) = scope else { return };
        self.note_change(by, &scope);
        for ino in self.keepers.end_change(&scope, self.now.ms) {
            // What was read meanwhile may be from before.
            for mount in self.keepers.who_keep(by, &ChangeScope::Of([Some(ino), None, None, None])) {
                let notice = Notice::Changed { inos: vec![ino], names: Vec::new() };
                self.notify(mount, self.state.seq(), notice);
            }
        }
    }

    /// Whether there are other mounts than this one, which may keep something one day.
    pub(crate) fn has_other_mounts(&self, than: SessionId) -> bool {
        let is_mount = |session: SessionId| self.state.session(session).is_some_and(|row| row.mount);
        self.state.session_ids().any(|session| session != than && is_mount(session))
    }

    /// Whether a mount may keep an answer. What it tells is noted then.
    pub(crate) fn may_keep(&mut self, call: &PendingRequest, outcome: &Outcome) -> MayKeep {
        let Some(op) = call.request.op.operation() else { return MayKeep::IfWhole };
        if !self.keepers.may_keep(call.session(), op, outcome, self.now.ms) {
            return MayKeep::No;
        }
        let is_elsewhere = match (op, outcome) {
            (Op::Mkdir { .. }, Outcome::Ok { keys, .. } | Outcome::Observed { keys, .. }) => {
                keys.iter().any(|key| self.config.owner(*key) != self.config.id)
            }
            _ => false,
        };
        let is_decided_elsewhere = call.changes() && !matches!(call.scope, Some(ChangeScope::Of(_)));
        if is_elsewhere || is_decided_elsewhere { MayKeep::IfWhole } else { MayKeep::Yes }
    }

    /// Panics if a request of a client changes what another mount may keep. What the machine beside the island adds is told afterwards.
    pub(crate) fn check_nobody_keeps(&self, changes: &[RowChange]) {
        let by = changes.iter().find_map(|change| match change {
            RowChange::Result { session, .. } => Some(*session),
            _ => None,
        });
        let Some(by) = by.filter(|_| self.beside.is_none() && !planted(Bug::NotRecalled)) else { return };
        let owned = |ino: &Ino| matches!(self.state.dir(*ino), Ok(Some(dir)) if dir.owned.is_some());
        for change in changes {
            let ino = match change {
                RowChange::Inode { ino, .. } | RowChange::Xattrs { ino, .. } => *ino,
                RowChange::Dir { ino, .. } if owned(ino) => *ino,
                // With new attributes of a directory its name stays what it is.
                RowChange::Entry { dir, name, row }
                    if owned(dir) && self.leads_elsewhere(*dir, name, row.as_ref()) =>
                {
                    *dir
                }
                _ => continue,
            };
            let keep = self.keepers.who_keep(by, &ChangeScope::Of([Some(ino), None, None, None]));
            assert!(
                keep.is_empty(),
                "{by:?} changes {ino:?}, of which {keep:?} may keep something: {change:?}"
            );
        }
    }

    /// Files come from other islands with these changes of rows.
    pub(crate) fn note_arrivals(&mut self, changes: &[RowChange]) {
        for change in changes {
            if let RowChange::Inode { ino, row: Some(_) } = change
                && (ino.minted_by() != self.config.id || self.state.forward(*ino).is_some())
                && matches!(self.state.inode(*ino), Ok(None))
            {
                self.keepers.has_come(*ino);
            }
        }
    }
}
