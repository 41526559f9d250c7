//! What each answer and each record means for those who keep what they are told. Recalls nobody.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, SessionId, TxnId};
use atoll_posix::Op;
use atoll_proto::{MayKeep, Notice, Outcome, ParticipantWork, RowChange, Txn, TxnState};
use atoll_state::NotInMemory;

use super::changed::UntoldChanges;
use super::request::PendingRequest;
use super::write_set::WriteSet;
use super::{Ctx, RECOVERY_SESSION};

impl Ctx {
    /// A client changes something, or has.
    pub(crate) fn note_change(&mut self, by: SessionId, writes: &WriteSet) {
        let (now_ms, stamp) = (self.now.ms, self.posts.last());
        self.last_of_all.note(by, now_ms, stamp);
        if *writes == WriteSet::Everything {
            self.last_changes.note(by, now_ms, stamp);
        }
    }

    /// A change of a client waits no longer. It has not begun.
    pub(crate) fn end_wait(&mut self, by: SessionId, writes: Option<WriteSet>) {
        let Some(writes) = writes else { return };
        self.note_change(by, &writes);
        self.keepers.end_wait(&writes, self.now.ms);
    }

    /// A request of a client is over that has changed this, if it has.
    pub(crate) fn end_change(&mut self, by: SessionId, writes: Option<WriteSet>) {
        let Some(writes) = writes else { return };
        self.note_change(by, &writes);
        let read = self.keepers.end_change(&writes, self.now.ms);
        self.tell_readers(by, read);
    }

    /// These have changed while others read them. What those have may be from before.
    fn tell_readers(&mut self, by: SessionId, read: Vec<Ino>) {
        for ino in read {
            for mount in self.keepers.who_keep(by, &WriteSet::of(ino)) {
                let notice = Notice::Changed { inos: vec![ino], names: Vec::new() };
                self.notify(mount, self.state.seq(), notice);
            }
        }
    }

    /// What a change of another island changes here, as far as mounts keep it. Directories that move are not looked into: nobody keeps anything
    /// then, as their coordinator has taken care of.
    pub(crate) fn write_set_of_work(&self, work: &ParticipantWork) -> Result<WriteSet, NotInMemory> {
        let mut writes = WriteSet::NOTHING;
        match work {
            ParticipantWork::Adopt { dir, .. } => writes.add(dir.ino),
            ParticipantWork::Seal { ino, .. }
            | ParticipantWork::AddName { ino, .. }
            | ParticipantWork::RemoveName { ino, .. }
            | ParticipantWork::MoveName { ino, .. } => writes.add(*ino),
            ParticipantWork::BorrowName { renaming, .. } if renaming.file.stub.is_none() => {
                writes.add(renaming.to.dir);
                let there = self.state.entry(renaming.to.dir, &renaming.to.name)?;
                let files = [Some(&renaming.file), there].into_iter().flatten();
                for file in files.filter(|file| file.stub.is_none() && file.home == self.config.id) {
                    writes.add(file.ino);
                }
            }
            _ => {}
        }
        Ok(writes)
    }

    /// Something is prepared for a change of another island with this row, or is over.
    fn note_work(&mut self, txn: TxnId, row: Option<&Txn>) {
        match row.filter(|row| row.state == TxnState::Prepared) {
            Some(_) if self.keepers.knows_work(txn) => {}
            Some(row) => {
                let writes = self.write_set_of_work(&row.part.work).unwrap_or(WriteSet::NOTHING);
                let is_new = matches!(row.part.work, ParticipantWork::Adopt { .. });
                let by = row.part.request.session;
                self.note_change(by, &writes);
                self.keepers.begin_work(txn, by, writes, is_new, self.now.ms);
            }
            None => {
                let by = self.state.txn(txn).map(|row| row.part.request.session);
                let read = self.keepers.end_work(txn, self.now.ms);
                self.tell_readers(by.unwrap_or(RECOVERY_SESSION), read);
            }
        }
    }

    /// Whether it is known here of all that is prepared for others what it changes.
    pub(crate) fn knows_works(&self) -> bool {
        self.state.txn_ids().all(|txn| {
            let is_prepared = self.state.txn(txn).is_some_and(|row| row.state == TxnState::Prepared);
            !is_prepared || self.keepers.knows_work(txn)
        })
    }

    /// What the rows mean for those who keep what they are told. Before they change.
    pub(super) fn note_rows(&mut self, changes: &[RowChange]) {
        if cfg!(debug_assertions) {
            self.check_nobody_keeps(changes);
        }
        for change in changes {
            match change {
                RowChange::Inode { ino, row: Some(_) } if self.comes_from_another(*ino) => {
                    self.keepers.has_come(*ino);
                }
                RowChange::Txn { txn, row } => self.note_work(*txn, row.as_deref()),
                _ => {}
            }
        }
    }

    /// Whether a file that gets a row was homed elsewhere until now.
    fn comes_from_another(&self, ino: Ino) -> bool {
        (ino.minted_by() != self.config.id || self.state.forward(ino).is_some())
            && matches!(self.state.inode(ino), Ok(None))
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
        let is_known = !call.changes() || matches!(call.writes, Some(WriteSet::Of(_)));
        // Its home has told of it, where somebody may be changing it.
        let is_of_another =
            matches!(op, Op::Link { ino, .. } if !matches!(self.state.inode(*ino), Ok(Some(_))));
        if is_known && !is_of_another { MayKeep::Yes } else { MayKeep::IfWhole }
    }

    /// Panics if a request of a client changes what another mount may keep. What the machine beside the island adds is told afterwards, and what
    /// a power cut has taken comes back as mounts had seen it.
    fn check_nobody_keeps(&self, changes: &[RowChange]) {
        let by = changes.iter().find_map(|change| match change {
            RowChange::Result { session, .. } => Some(*session),
            _ => None,
        });
        let is_exempt = self.beside.is_some() || self.state.session(RECOVERY_SESSION).is_some();
        let Some(by) = by.filter(|_| !is_exempt && !planted(Bug::NotRecalled)) else { return };
        let mut changed = UntoldChanges::default();
        self.note_changed(changes, &mut changed);
        let owned = |ino: Ino| matches!(self.state.dir(ino), Ok(Some(dir)) if dir.owned.is_some());
        let homed = |ino: Ino| matches!(self.state.inode(ino), Ok(Some(_)));
        for ino in changed.inos().filter(|ino| owned(*ino) || homed(*ino)) {
            let keep = self.keepers.who_keep_answers(by, &WriteSet::of(ino));
            assert!(
                keep.is_empty(),
                "{by:?} changes {ino:?}, of which {keep:?} may keep something: {changes:?}"
            );
        }
    }
}
