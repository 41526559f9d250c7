//! Leases: which mounts may keep what they are told, and changes that wait until the others have dropped it
//! (`docs/design/024-leases.md`).
//!
//! Invariants: a change begins only when no other mount may use what it has kept of the files and directories that are changed. While a change
//! of one client waits or is under way, no other mount is allowed to keep anything of them. If it is not known what a change changes, that
//! holds for everything, and until all islands know of it. That a mount may keep something is in its row, synced, before the mount is told so.
//! A mount keeps only what all islands allow. Of a change of several islands each clears its own part.

use atoll_core::map::IdSet;
use atoll_core::planted::{Bug, planted};
use atoll_core::{SessionId, Stamp};
use atoll_posix::Errno;
use atoll_proto::{Lease, Notice, Outcome, ParticipantWork, RowChange};

use crate::client::sessions::{LEASE_MS, Sessions};
use crate::ctx::decision::Decision;
use crate::ctx::keepers::{BACKOFF, ToRecall, WasDropped};
use crate::ctx::request::{Blocked, Next, PendingRequest};
use crate::ctx::write_set::WriteSet;
use crate::ctx::{Bounded, Ctx, RECOVERY_SESSION};
use crate::event::{Effect, LinkId};

/// Whether all other islands have applied this one's journal up to a stamp.
pub(crate) type AppliedByAll<'a> = &'a dyn Fn(&Ctx, Stamp) -> bool;

/// Milliseconds since a mount was last told that it may keep something, after which its row says that it does not. Sooner, each change of
/// somebody who changes something now and then would write it twice.
const NOTED_MS: u64 = 60_000;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases {
    /// Mounts that must drop everything.
    pub(super) recalling: IdSet<SessionId>,
    /// Changes that wait for that.
    waiting: Bounded<PendingRequest>,
}

impl Leases {
    /// Panics unless each change that waits waits for a mount.
    pub(super) fn check(&self, ctx: &Ctx) {
        for call in self.waiting.iter() {
            let keep = call.writes.map(|writes| ctx.keepers.who_keep(call.session(), &writes));
            assert!(keep.is_some_and(|keep| !keep.is_empty()), "a change waits for nobody: {call:?}");
        }
    }

    /// A link is gone. Whoever waits will ask again on a new one.
    pub(super) fn link_closed(&mut self, ctx: &mut Ctx, link: LinkId) {
        for call in self.waiting.take_if(|call| call.link == link) {
            ctx.end_wait(call.session(), call.writes);
        }
    }

    /// What the changes that wait change.
    pub(super) fn write_sets(&self) -> impl Iterator<Item = &WriteSet> {
        self.waiting.iter().filter_map(|call| call.writes.as_ref())
    }
}

impl Sessions {
    /// A request that changes this waits until no other mount may use what it has kept of that. None if it waits.
    pub(crate) fn clear(
        &mut self,
        ctx: &mut Ctx,
        call: PendingRequest,
        writes: WriteSet,
    ) -> Option<PendingRequest> {
        let by = call.session();
        let others = ctx.keepers.who_must_drop(by, &writes, ctx.now.ms);
        ctx.keepers.begin_change(by, &writes, !others.is_empty(), ctx.now.ms);
        let call = PendingRequest { writes: Some(writes), ..call };
        if others.is_empty() {
            return Some(call);
        }
        ctx.note_change(by, &writes);
        others.into_iter().for_each(|mount| self.recall_of(ctx, mount, &writes));
        if let Err(call) = self.leases.waiting.push(call) {
            ctx.answer(&call, 0, Outcome::NotNow);
        }
        None
    }

    /// Whether nobody else may use what he has kept of what a change of another island changes here. Else those are recalled.
    pub(crate) fn clear_work(
        &mut self,
        ctx: &mut Ctx,
        by: SessionId,
        work: &ParticipantWork,
    ) -> Result<bool, Blocked> {
        // Nobody has seen a directory that is being made.
        if matches!(work, ParticipantWork::Adopt { .. }) || planted(Bug::PartNotCleared) {
            return Ok(true);
        }
        let writes = ctx.write_set_of_work(work)?;
        if writes == WriteSet::NOTHING {
            return Ok(true);
        }
        let others = ctx.keepers.who_must_drop(by, &writes, ctx.now.ms);
        if others.is_empty() {
            return Ok(true);
        }
        // Until the other island asks again nobody keeps any of it.
        ctx.keepers.begin_change(by, &writes, true, ctx.now.ms);
        ctx.end_wait(by, Some(writes));
        others.into_iter().for_each(|mount| self.recall_of(ctx, mount, &writes));
        Ok(false)
    }

    /// Has a mount drop what it keeps of what a change changes, if it does not already.
    fn recall_of(&mut self, ctx: &mut Ctx, mount: SessionId, writes: &WriteSet) {
        if self.leases.recalling.contains(&mount) {
            return;
        }
        if ctx.scope_of(mount).is_some() {
            // It is told no id of what it may not see, such as a file that has come from another island.
            return self.recall(ctx, mount);
        }
        match ctx.keepers.recall(mount, writes, ctx.now.ms) {
            ToRecall::Everything => self.recall(ctx, mount),
            ToRecall::Of { recall, inos } => {
                ctx.counters.recalls += 1;
                if let Some(link) = ctx.replies.link_of(mount) {
                    ctx.durability.emit(Effect::Notice(link, Notice::RecallOf { recall, inos }));
                }
            }
            ToRecall::Nothing => {}
        }
    }

    fn recall(&mut self, ctx: &mut Ctx, mount: SessionId) {
        if !self.leases.recalling.insert(mount) {
            return;
        }
        ctx.counters.recalls += 1;
        self.known(ctx, mount).recalled_ms = ctx.now.ms;
        if let Some(link) = ctx.replies.link_of(mount) {
            ctx.durability.emit(Effect::Notice(link, Notice::Recall));
        }
    }

    /// A mount has dropped everything that it kept, or can no longer use it.
    pub(super) fn recalled(&mut self, ctx: &mut Ctx, mount: SessionId) {
        let end = ctx.keepers.end(mount);
        let is_recalled = self.leases.recalling.remove(&mount);
        if let Some(alive) = self.alive.get_mut(&mount) {
            let since_ms = end.as_ref().and_then(|end| end.unanswered_ms);
            let since_ms = since_ms.into_iter().chain(is_recalled.then_some(alive.recalled_ms)).min();
            let took_ms = since_ms.map_or(0, |since_ms| ctx.now.ms.saturating_sub(since_ms));
            let before_ms = end.as_ref().map_or(0, |end| end.keeps_from_ms).max(alive.keeps_from_ms);
            alive.keeps_from_ms = before_ms.max(ctx.now.ms + BACKOFF * took_ms);
        }
        if end.is_some() {
            self.go_on(ctx, |_| true);
        }
    }

    /// A mount has dropped what a recall has named.
    pub(super) fn dropped_of(&mut self, ctx: &mut Ctx, mount: SessionId, recall: u64) {
        match ctx.keepers.dropped(mount, recall, ctx.now.ms) {
            WasDropped::Of(inos) if inos.is_empty() => {}
            WasDropped::Of(inos) => {
                self.go_on(ctx, |writes| inos.iter().any(|ino| WriteSet::of(*ino).is_within(writes)));
            }
            WasDropped::Unknown => self.go_on(ctx, |_| true),
        }
    }

    /// Changes go on that have waited for a mount. Each waits again if it waits for another mount too.
    fn go_on(&mut self, ctx: &mut Ctx, waited: impl Fn(&WriteSet) -> bool) {
        for call in self.leases.waiting.take_if(|call| call.writes.as_ref().is_none_or(&waited)) {
            // Nobody is allowed to keep anything of what it changes before it has begun.
            ctx.end_wait(call.session(), call.writes);
            // Its patience with other islands begins now.
            ctx.next(Next::Arrive(PendingRequest { since_ms: ctx.now.ms, writes: None, ..call }));
        }
    }

    /// Answers whether a mount may keep what it is told from here on. It is told so when its row says so, and the row is synced.
    pub(super) fn lease(&mut self, ctx: &mut Ctx, applied: AppliedByAll<'_>, call: &PendingRequest) {
        let mount = call.session();
        let may_keep = self.may_keep(ctx, applied, mount);
        let lease = if may_keep {
            let is_long_ago = ctx.last_of_all.by_others(mount, ctx.now.ms).is_some();
            ctx.keepers.begin(mount, is_long_ago && self.others_change(ctx, mount).next().is_none())
        } else {
            Lease::No
        };
        let outcome = Outcome::Attached { lease, power: ctx.state.meta().power };
        if may_keep {
            let alive = self.known(ctx, mount);
            (alive.told_by, alive.told_ms) = ((call.link, call.id), ctx.now.ms);
            self.note_keeps(ctx, mount, true);
            if !self.is_noted(ctx, mount) {
                return ctx.answer_synced(call, outcome);
            }
        } else if !ctx.keepers.is_one(mount) && ctx.now.ms >= self.known(ctx, mount).told_ms + NOTED_MS {
            self.note_keeps(ctx, mount, false);
        }
        ctx.answer(call, 0, outcome);
    }

    /// A mount says that it has dropped everything.
    pub(super) fn dropped(&mut self, ctx: &mut Ctx, call: &PendingRequest) {
        let mount = call.session();
        let alive = self.known(ctx, mount);
        let (link, id) = alive.told_by;
        if link == call.link && call.id < id {
            // Said before it was told that it may keep something.
            return;
        }
        alive.lease_until_ms = ctx.now.ms + LEASE_MS;
        self.recalled(ctx, mount);
    }

    /// A change that waits is not begun: its caller was interrupted. Whether it waited.
    pub(super) fn cancel(&mut self, ctx: &mut Ctx, link: LinkId, id: u64) -> bool {
        let calls = self.leases.waiting.take_if(|call| (call.link, call.id) == (link, id));
        for call in &calls {
            ctx.answer(call, 0, Outcome::Failed { errno: Errno::EINTR });
        }
        !calls.is_empty()
    }

    /// Whether the row of a mount says that it may keep something, and is synced.
    fn is_noted(&self, ctx: &Ctx, session: SessionId) -> bool {
        let is_in_row = ctx.state.session(session).is_some_and(|row| row.keeps);
        let is_synced = |seq| ctx.durability.is_synced(seq) || planted(Bug::KeepsNotSynced);
        (is_in_row || planted(Bug::KeepsNotLogged))
            && self.alive.get(&session).is_some_and(|alive| is_synced(alive.keeps_seq))
    }

    /// Has the row of a mount say whether it may keep something.
    pub(super) fn note_keeps(&mut self, ctx: &mut Ctx, session: SessionId, keeps: bool) {
        if planted(Bug::KeepsNotLogged) || ctx.state.session(session).is_none_or(|row| row.keeps == keeps) {
            return;
        }
        let mut decision = Decision::new();
        decision.push(RowChange::Keeps { session, on: keeps });
        let seq = ctx.decide(decision);
        if keeps {
            self.known(ctx, session).keeps_seq = seq;
            ctx.want_sync();
        }
    }

    /// What other clients than this one change, or wait to change.
    fn others_change(&self, ctx: &Ctx, client: SessionId) -> impl Iterator<Item = WriteSet> {
        let waiting = self.leases.waiting.iter().filter(move |call| call.session() != client);
        waiting.filter_map(|call| call.writes).chain(ctx.replies.others_change(client))
    }

    /// Whether it is known what others change, or nobody does or has for a while, and the mount may be told to keep what it is told.
    fn may_keep(&self, ctx: &Ctx, applied: AppliedByAll<'_>, session: SessionId) -> bool {
        // What a machine beside the island changes a mount is told afterwards ([`Notice::Changed`]), unless it sees a part of the tree
        // only: that would name what it does not see.
        let is_told_of_beside = ctx.beside.is_none() || ctx.scope_of(session).is_none();
        let is_slow = self.alive.get(&session).is_some_and(|alive| ctx.now.ms < alive.keeps_from_ms);
        ctx.state.session(session).is_some_and(|row| row.mount)
            // What a power cut has taken comes back without a word.
            && ctx.state.session(RECOVERY_SESSION).is_none()
            && is_told_of_beside
            && ctx.knows_works()
            && !is_slow
            && !self.leases.recalling.contains(&session)
            && !ctx.keepers.is_held_up(session, ctx.now.ms)
            && (planted(Bug::KeptDuringChange)
                || self.others_change(ctx, session).all(|writes| writes != WriteSet::Everything))
            && ctx.changes_are_known(applied, session)
    }
}

impl Ctx {
    /// A life begins. What mounts were told that they may keep in earlier ones they may have still.
    pub(super) fn resume_keepers(&mut self) {
        let keeps = |session: &SessionId| self.state.session(*session).is_some_and(|row| row.keeps);
        for mount in self.state.session_ids().filter(keeps).collect::<Vec<_>>() {
            self.keepers.begin(mount, true);
        }
    }

    /// Whether what other clients have changed here is long ago, and every island knows of it.
    fn changes_are_known(&self, applied: AppliedByAll<'_>, session: SessionId) -> bool {
        if planted(Bug::KeptDuringChange) {
            return true;
        }
        let changed = self.last_changes.by_others(session, self.now.ms);
        changed.is_some_and(|stamp| applied(self, stamp))
    }
}
