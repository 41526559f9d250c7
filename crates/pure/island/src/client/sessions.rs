//! Sessions of clients, their signs of life, and orphans that mounts keep alive.
//!
//! Invariant: a client that attaches keeps nothing, because it drops everything first.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::planted::{Bug, planted};
use atoll_core::{ClockVector, Ino, IslandId, SessionId, Stamp};
use atoll_posix::Errno;
use atoll_proto::{ClientOp, Lease, Outcome, Session};

use crate::client::leases::{AppliedByAll, Leases};
use crate::client::retell::NoticeRepeats;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Next, PendingRequest};
use crate::ctx::write_set::WriteSet;
use crate::ctx::{Ctx, RECOVERY_SESSION};
use crate::event::LinkId;
use crate::migration::Migration;

/// Milliseconds that a mount's lease lasts beyond its last sign of life. What a mount keeps, it
/// keeps for less (see the client).
pub(crate) const LEASE_MS: u64 = 15_000;
/// Milliseconds without a sign of life after which a session ends, with its locks and orphans. Longer than
/// the lease, because a network that fails for a minute must not cost a living mount its locks.
pub(crate) const SESSION_MS: u64 = 120_000;
/// Milliseconds after which a session ends if its mount has ended its link, or its island has been started
/// again, and the mount does not come back: then it is dead.
pub(crate) const GONE_MS: u64 = LEASE_MS;

/// Facts about clients besides their rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sessions {
    pub(super) alive: BTreeMap<SessionId, Alive>,
    pub(super) leases: Leases,
    /// Requests to end a session, which are answered when its end is over.
    pub(super) end_asked: BTreeMap<SessionId, Vec<PendingRequest>>,
    /// Sessions that end, and for which rows of the next piece are being read.
    pub(super) end_reads: BTreeSet<SessionId>,
}

/// What a client is that attaches.
#[derive(Debug, Clone, Copy)]
struct NewSession {
    mount: bool,
    /// As in its row.
    scope: Option<Ino>,
}

#[derive(Debug, Clone)]
pub(super) struct Alive {
    /// The last link that it had. Messages that still come over an earlier one are late.
    last_link: LinkId,
    /// Until then it may use what it kept.
    pub(super) lease_until_ms: u64,
    /// Then it ends.
    until_ms: u64,
    /// When it was last recalled.
    pub(super) recalled_ms: u64,
    /// Before that it is allowed to keep nothing.
    pub(super) keeps_from_ms: u64,
    /// Position of the record by which its row says that it may keep something.
    pub(super) keeps_seq: u64,
    /// When it was last told so, and by the answer to which request; of an earlier life from its beginning.
    pub(super) told_ms: u64,
    pub(super) told_by: (LinkId, u64),
    /// Stamps of the journals that it has told that it has seen.
    seen: ClockVector,
    /// The same as it has told them last: they are lower when it has found out that an island had lied to it.
    said: ClockVector,
    /// The last question about the ends of journals before each stamp was told.
    raised: BTreeMap<IslandId, u64>,
    /// It is being told once more what a link that broke may have lost.
    again: Option<NoticeRepeats>,
}

impl Alive {
    /// A session that has been told nothing, but perhaps that it may keep something, by a record up to `keeps_seq`.
    fn new(last_link: LinkId, lease_until_ms: u64, until_ms: u64, keeps_seq: u64) -> Self {
        let (seen, said, raised) = (ClockVector::default(), ClockVector::default(), BTreeMap::new());
        let (recalled_ms, keeps_from_ms, told_ms, told_by, again) = (0, 0, 0, (LinkId(0), 0), None);
        Self {
            last_link,
            lease_until_ms,
            until_ms,
            recalled_ms,
            keeps_from_ms,
            keeps_seq,
            told_ms,
            told_by,
            seen,
            said,
            raised,
            again,
        }
    }
}

impl Sessions {
    /// A life begins. Ends that an earlier one has begun go on: some of these clients may have been told.
    pub(crate) fn resume(&mut self, ctx: &mut Ctx) {
        ctx.resume_keepers();
        let is_ending = |session: &SessionId| ctx.state.session(*session).is_some_and(|row| row.ending);
        for session in ctx.state.session_ids().filter(is_ending).collect::<Vec<_>>() {
            ctx.replies.begin_end(session);
        }
        if ctx.state.session_ids().any(|session| ctx.scope_of(session).is_some()) {
            ctx.latest.begin();
        }
    }

    /// Panics unless each client that waits for its end is ending, and each change that waits waits for a mount.
    pub(crate) fn check(&self, ctx: &Ctx) {
        let is_ending = |session: SessionId| ctx.replies.is_ending(session);
        for session in self.end_asked.keys().chain(&self.end_reads) {
            assert!(is_ending(*session), "{session:?} is said to end, and does not");
        }
        self.leases.check(ctx);
        for session in &self.leases.recalling {
            assert!(self.alive.contains_key(session), "{session:?} is recalled and not known to live");
        }
    }

    /// What the changes that wait for mounts change.
    pub(crate) fn write_sets(&self) -> impl Iterator<Item = &WriteSet> {
        self.leases.write_sets()
    }

    /// Stamps of the journals that a client has told that it has seen: a request tells only new ones. Those that it says no
    /// more, and that are lies, are forgotten: `is_lie` says so of a stamp that was told before a question.
    pub(crate) fn seen_by(
        &mut self,
        session: SessionId,
        is_lie: impl Fn(IslandId, u64, Stamp) -> bool,
    ) -> Option<&ClockVector> {
        let alive = self.alive.get_mut(&session)?;
        if alive.seen != alive.said {
            let since = |island| alive.raised.get(&island).copied().unwrap_or_default();
            let lies = alive.seen.iter().filter(|(island, stamp)| {
                *stamp > alive.said.get(*island) && is_lie(*island, since(*island), *stamp)
            });
            for (island, _) in lies.collect::<Vec<_>>() {
                alive.seen.set(island, alive.said.get(island));
            }
        }
        Some(&alive.seen)
    }

    /// Nothing is known of a client any more.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.alive.remove(&session);
    }

    /// How far a mount is with being told once more.
    pub(crate) fn again_of(&self, session: SessionId) -> Option<NoticeRepeats> {
        self.alive.get(&session)?.again
    }

    pub(crate) fn set_again(&mut self, session: SessionId, again: Option<NoticeRepeats>) {
        if let Some(alive) = self.alive.get_mut(&session) {
            alive.again = again;
        }
    }

    /// Mounts that are being told once more.
    pub(crate) fn told_again(&self) -> Vec<SessionId> {
        self.alive.iter().filter(|(_, alive)| alive.again.is_some()).map(|(s, _)| *s).collect()
    }

    /// A link is gone, over which these were reached. `ended`: by its other side or by something between, and not because
    /// nothing came any more.
    pub(crate) fn link_closed(&mut self, ctx: &mut Ctx, link: LinkId, reached: &[SessionId], ended: bool) {
        let now_ms = ctx.now.ms;
        for session in reached.iter().filter(|_| ended) {
            let Some(alive) = self.alive.get_mut(session) else { continue };
            // Its lease goes on. Something between the two may have ended the link, and the mount, which does not
            // know that yet, goes on using what it keeps.
            if planted(Bug::LeaseCutShort) {
                alive.lease_until_ms = alive.lease_until_ms.min(now_ms + 1_000);
            }
            alive.until_ms = alive.until_ms.min(now_ms + GONE_MS);
        }
        self.leases.link_closed(ctx, link);
    }

    /// What is known of a session besides its row. If nothing is, it is of an earlier life.
    pub(super) fn known(&mut self, ctx: &Ctx, session: SessionId) -> &mut Alive {
        self.alive.entry(session).or_insert_with(|| ctx.recovered(session))
    }

    fn attach(&mut self, ctx: &mut Ctx, call: &PendingRequest, new: NewSession) {
        let session = call.session();
        self.recalled(ctx, session);
        if ctx.state.session(session).is_none() {
            let mut decision = Decision::new();
            let NewSession { mount, scope } = new;
            let local = call.link.is_local().then_some(ctx.config.life);
            let (ending, results, held, keeps) = (false, Vec::new(), Vec::new(), false);
            let row = Session { mount, local, ending, results, acked: 0, held, scope, keeps };
            if scope.is_some() {
                ctx.latest.begin();
            }
            decision.session(session, Some(row));
            ctx.decide(decision);
        }
        self.alive(ctx, call, ctx.state.seq());
    }

    /// Answers what shows that a session lives, and nothing of what it may keep.
    fn alive(&self, ctx: &mut Ctx, call: &PendingRequest, need: u64) {
        ctx.answer(call, need, Outcome::Attached { lease: Lease::No, power: ctx.state.meta().power });
    }

    /// Handles requests about the session itself; returns the others, to be run. `last_ask`: the last question about the
    /// ends of journals.
    pub(crate) fn session_request(
        &mut self,
        ctx: &mut Ctx,
        migration: &Migration,
        applied: AppliedByAll<'_>,
        last_ask: u64,
        call: PendingRequest,
    ) -> Option<PendingRequest> {
        let session = call.session();
        let now = ctx.now.ms;
        if session == RECOVERY_SESSION {
            ctx.answer(&call, 0, Outcome::Failed { errno: Errno::EINVAL });
            return None;
        }
        if ctx.replies.is_ending(session) {
            match call.request.op {
                // The end is on its way already.
                ClientOp::Detach => self.end_session(ctx, migration, session, Some(call)),
                ClientOp::Attach { .. } | ClientOp::AttachWithin { .. } => {
                    ctx.answer(&call, 0, Outcome::NotNow)
                }
                // It is told when that survives the death of this island: here, and below.
                _ => ctx.answer(&call, ctx.state.seq(), Outcome::NoSession),
            }
            return None;
        }
        if let Some(alive) = self.alive.get_mut(&session) {
            if call.link < alive.last_link {
                // Its client has taken the session up on another link since, and waits for nothing here: what it
                // still wants it has asked there once more, and what it said here of what it keeps is not so now.
                return None;
            }
            // A recall that is not answered ends with what the mount may keep by itself, however often it asks.
            if !self.leases.recalling.contains(&session) && !ctx.keepers.is_held_up(session, now) {
                alive.lease_until_ms = now + LEASE_MS;
            }
            alive.until_ms = now + SESSION_MS;
            alive.last_link = call.link;
            if ctx.replies.reached(session, call.link) {
                // What was on its way on the old link may be lost: it is told all once more.
                alive.again = Some(NoticeRepeats::START);
                self.tell_more_again(ctx, migration, session);
            }
        } else if ctx.state.session(session).is_some()
            || matches!(call.request.op, ClientOp::Attach { .. } | ClientOp::AttachWithin { .. })
        {
            let alive = Alive::new(call.link, now + LEASE_MS, now + SESSION_MS, ctx.state.seq());
            self.alive.insert(session, alive);
            ctx.replies.reached(session, call.link);
        } else {
            ctx.answer(&call, ctx.state.seq(), Outcome::NoSession);
            return None;
        }
        if let Some(alive) = self.alive.get_mut(&session) {
            let mut said = ClockVector::default();
            for (island, stamp) in &call.request.vector {
                said.raise(*island, *stamp);
                if alive.seen.raise(*island, *stamp) {
                    alive.raised.insert(*island, last_ask);
                }
            }
            if !call.request.vector.is_empty() {
                alive.said = said;
            }
        }
        match call.request.op {
            ClientOp::Attach { mount } => self.attach(ctx, &call, NewSession { mount, scope: None }),
            ClientOp::AttachWithin { mount, scope } => {
                self.attach(ctx, &call, NewSession { mount, scope: Some(scope) });
            }
            ClientOp::Renew | ClientOp::Lease | ClientOp::Dropped | ClientOp::DroppedOf { .. }
                if ctx.state.session(session).is_none() =>
            {
                ctx.answer(&call, ctx.state.seq(), Outcome::NoSession);
            }
            // A mere sign of life may have been sent before a recall came: it answers none.
            ClientOp::Renew => self.alive(ctx, &call, 0),
            ClientOp::Lease => self.lease(ctx, applied, &call),
            ClientOp::DroppedOf { recall } => {
                self.dropped_of(ctx, session, recall);
                self.lease(ctx, applied, &call);
            }
            ClientOp::Dropped => {
                self.dropped(ctx, &call);
                self.alive(ctx, &call, 0);
            }
            ClientOp::Detach => self.end_session(ctx, migration, session, Some(call)),
            ClientOp::Cancel { request } if self.cancel(ctx, call.link, request) => {}
            ClientOp::Cancel { request } => ctx.next(Next::CancelLock(call.link, request)),
            _ if ctx.state.session(session).is_none() => {
                ctx.answer(&call, ctx.state.seq(), Outcome::NoSession)
            }
            _ => return Some(call),
        }
        None
    }

    pub(crate) fn tick(&mut self, ctx: &mut Ctx, migration: &Migration) {
        let now = ctx.now.ms;
        for session in ctx.state.session_ids().collect::<Vec<_>>() {
            if session != RECOVERY_SESSION
                && !ctx.replies.is_ending(session)
                && !self.alive.contains_key(&session)
            {
                let recovered = ctx.recovered(session);
                self.alive.insert(session, recovered);
            }
        }
        let alive = &self.alive;
        let lapsed: Vec<SessionId> =
            alive.iter().filter(|(_, a)| a.lease_until_ms <= now).map(|(s, _)| *s).collect();
        let ended: Vec<SessionId> =
            alive.iter().filter(|(_, a)| a.until_ms <= now).map(|(s, _)| *s).collect();
        for session in lapsed {
            self.recalled(ctx, session);
            self.note_keeps(ctx, session, false);
        }
        for session in ended {
            self.end_session(ctx, migration, session, None);
        }
        self.tick_ending(ctx, migration);
        self.tick_again(ctx, migration);
    }
}

impl Ctx {
    /// A session of an earlier life: it has some time to show up, unless its process is known to be dead. A process of another
    /// daemon may live, whose island this was: then its mount comes back from there.
    fn recovered(&self, session: SessionId) -> Alive {
        let now = self.now.ms;
        let local = self.state.session(session).and_then(|row| row.local);
        let is_dead =
            local.is_some_and(|life| life.is_over_in(self.config.life) || planted(Bug::LocalEndsAtOnce));
        let (lease, until) = if is_dead { (0, 0) } else { (now + LEASE_MS, now + GONE_MS) };
        Alive::new(LinkId(0), lease, until, self.state.seq())
    }
}
