//! The journal (`DESIGN` 5; Archipelago 8): changes to places and static attributes of directories,
//! in their coordinator's order to every island; skeletons and stubs that follow them; vectors.
//!
//! Invariant: a journal is applied without gaps, and the clock moves in the same record.

use std::collections::BTreeMap;

use atoll_core::map::IdMap;
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Stamp};
use atoll_proto::{Chain, Dir, JournalEntry, Outcome, PeerOp, RowChange};
use atoll_state::State;

use crate::ctx::Ctx;
use crate::ctx::PATIENCE_MS;
use crate::ctx::decision::Decision;
use crate::ctx::posts::{is_pair, whole_part};
use crate::ctx::request::{Blocked, Next, PendingRequest};
use crate::journal::Journal;
use crate::rows::chains::VectorOrder;

/// Milliseconds after which a journal is asked for again whose next entry waits for something.
const STALLED_MS: u64 = 200;

/// Whether an entry of a journal can be applied.
#[derive(Debug, PartialEq, Eq)]
enum Ready {
    /// It can; first these ancestors have to be laid.
    Yes { chain: Option<Chain> },
    /// Something was asked for that it waits for.
    No,
}

/// Whose entries come, and whether clients need not hear of their stamps.
#[derive(Debug, Clone, Copy)]
struct AsTold {
    from: IslandId,
    private: bool,
}

/// A request whose answer waits until the reachable islands have applied what they need of the journal up to its entry.
#[derive(Debug, Clone)]
pub(crate) struct AwaitsApplied {
    pub(crate) stamp: Stamp,
    /// The islands that are waited for, and the last entry that each needs.
    pub(crate) missing: IdMap<IslandId, Stamp>,
    seq: u64,
    call: PendingRequest,
    outcome: Outcome,
}

impl Journal {
    /// The requests that wait for others to apply an entry, and those that wait for this island to catch up.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &PendingRequest> {
        let behind = self.behind.iter().filter_map(|parked| match parked {
            Next::Start(call) => Some(call),
            _ => None,
        });
        self.waiting.iter().map(|waiting| &waiting.call).chain(behind)
    }

    /// Panics unless each request that waits for an entry waits for islands that can be reached.
    pub(crate) fn check(&self, is_reachable: impl Fn(IslandId) -> bool) {
        for waiting in &self.waiting {
            assert!(!waiting.missing.is_empty(), "{:?} waits for nobody", waiting.stamp);
            let reachable = waiting.missing.keys().all(|island| is_reachable(*island));
            assert!(reachable, "{:?} waits for islands that are away: {:?}", waiting.stamp, waiting.missing);
        }
    }

    /// Nobody waits for a journal, and nothing of one waits.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.waiting.is_empty()
            && self.behind.is_empty()
            && self.to_confirm.is_empty()
            && self.stalled.is_empty()
            && self.unreadable.is_empty()
    }

    pub(crate) fn set_reachable(&mut self, ctx: &mut Ctx, island: IslandId, up: bool) {
        ctx.peers.set_reachable(island, up);
        if !up {
            self.nobody_waits_for(ctx, island);
        }
    }

    /// Holds an answer back until every reachable island has applied what it needs of the journal up to `stamp`.
    pub(crate) fn await_applied(
        &mut self,
        ctx: &mut Ctx,
        call: PendingRequest,
        stamp: Stamp,
        outcome: Outcome,
    ) {
        let seq = ctx.state.seq();
        // Who compares is away still: it serves nothing that depends on this before it has.
        let is_here = |island: &IslandId| ctx.peers.is_reachable(*island) && !ctx.has_journal_gap(*island);
        let needed = |island| (island, ctx.posts.needed_by(island).min(stamp));
        let lacks =
            |(island, needed): &(IslandId, Stamp)| applied_by(&self.applied, &ctx.state, *island) < *needed;
        let missing: IdMap<_, _> = ctx.config.others().filter(is_here).map(needed).filter(lacks).collect();
        if missing.is_empty() || planted(Bug::AnsweredUnapplied) {
            return ctx.answer(&call, seq, outcome);
        }
        self.waiting.push(AwaitsApplied { stamp, missing, seq, call, outcome });
    }

    /// Whether all others have applied what they need of this island's journal up to `stamp`.
    pub(crate) fn is_applied_by_all(&self, ctx: &Ctx, stamp: Stamp) -> bool {
        let has_applied =
            |island| applied_by(&self.applied, &ctx.state, island) >= ctx.posts.needed_by(island).min(stamp);
        ctx.config.others().all(has_applied)
    }

    fn nobody_waits_for(&mut self, ctx: &mut Ctx, island: IslandId) {
        ctx.posts.forget_batch(island);
        for waiting in &mut self.waiting {
            waiting.missing.remove(&island);
        }
        self.answer_applied(ctx);
    }

    pub(crate) fn answer_applied(&mut self, ctx: &mut Ctx) {
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at) {
            if waiting.missing.is_empty() {
                // In the order in which they came.
                let ready = self.waiting.remove(at);
                ctx.answer(&ready.call, ready.seq, ready.outcome);
            } else {
                at += 1;
            }
        }
    }

    pub(crate) fn on_kept(&mut self, ctx: &mut Ctx, from: IslandId, upto: Stamp) {
        let known = self.kept_by.entry(from).or_default();
        // An older one may arrive late.
        let upto = upto.max(*known);
        *known = upto;
        if ctx.state.inbox(from).next().is_some_and(|(first, _)| first <= upto) {
            let mut decision = Decision::new();
            decision.push(RowChange::Unreceived { island: from, upto });
            ctx.decide(decision);
        }
    }

    /// Applies entries of a journal that are ready. The rows that they read are in memory.
    fn apply_entries(
        &mut self,
        ctx: &mut Ctx,
        AsTold { from, private }: AsTold,
        entries: &[&(Stamp, JournalEntry)],
        chains: &[Chain],
    ) {
        let Some((last, _)) = entries.last() else { return };
        let mut decision = Decision::new();
        for chain in chains {
            if !matches!(ctx.is_new_enough(chain), Ok(true)) {
                // Nobody could tell a newer one, and what this has missed does not come by a journal any more.
                ctx.suspect_stale(&mut decision);
            }
            ctx.merge_ancestors_over(&mut decision, chain);
        }
        let pair = matches!(entries, [(_, one), (_, other)] if is_pair(one, other));
        let left = |(_, entry): &&(Stamp, JournalEntry)| match entry {
            JournalEntry::Place { ino, .. } => ctx.dir_now(&decision, *ino).map(|dir| dir.place.parent),
            _ => None,
        };
        let left: Vec<Ino> = if pair { entries.iter().filter_map(left).collect() } else { Vec::new() };
        // What one of them leaves is what the other goes to.
        decision.prunes_nothing = pair;
        for (stamp, entry) in entries {
            ctx.apply_entry(&mut decision, entry);
            if self.kept_by.get(&from).is_none_or(|kept| kept < stamp) {
                decision.push(RowChange::Received { island: from, stamp: *stamp, entry: entry.clone() });
            }
        }
        decision.prunes_nothing = false;
        // A chain may know a newer place of what was to come below it.
        let laid = chains.iter().filter_map(|chain| chain.dirs.last()).map(|dir| dir.ino);
        left.into_iter().chain(laid).for_each(|dir| ctx.prune(&mut decision, dir));
        let (island, stamp) = (from, *last);
        let private = private && self.public.get(&from).is_none_or(|public| *public < stamp);
        decision.push(if private {
            RowChange::PrivateClock { island, stamp }
        } else {
            RowChange::Clock { island, stamp }
        });
        let seq = ctx.decide(decision);
        self.to_confirm.insert(from, (seq, *last));
        // Before it is written: if this island dies now, it gets the entries again before it serves. If it cannot, clients have told it what
        // they have seen, but for private entries.
        let need = if private { seq } else { 0 };
        ctx.send(need, from, PeerOp::Applied { upto: *last, synced: false });
    }

    /// Whether an entry can be applied now. A directory's place comes after all that its coordinator had
    /// seen, or two directories might come to be below each other here on the way.
    fn readiness(&mut self, ctx: &mut Ctx, from: IslandId, entry: &JournalEntry) -> Result<Ready, Blocked> {
        let JournalEntry::Place { ino, place, chain, .. } = entry else {
            return Ok(Ready::Yes { chain: None });
        };
        let newer = |dir: &Dir| dir.place.version < place.version;
        if !ctx.state.dir(*ino)?.is_some_and(newer) {
            return Ok(Ready::Yes { chain: None });
        }
        if let VectorOrder::Newer { missing } = ctx.order_of(&chain.vector) {
            let missing: Vec<IslandId> = missing.into_iter().filter(|island| *island != from).collect();
            if !missing.is_empty() {
                for island in missing {
                    if self.stalled.contains(&island) {
                        // It waits itself, and is asked again with all that do.
                        continue;
                    }
                    let after = ctx.state.clocks().get(island);
                    ctx.send(0, island, PeerOp::Resend { after });
                }
                return Ok(Ready::No);
            }
        }
        if ctx.state.dir(place.parent)?.is_some() {
            return Ok(Ready::Yes { chain: None });
        }
        let owner = chain.dirs.last().map_or(from, |last| ctx.config.owner(last.key));
        let carried = Some(chain).filter(|chain| !chain.dirs.is_empty()).cloned();
        let told = ctx.skeleton.take_chain(place.parent);
        let chain = match told {
            // Its owner has it no more: what came with the entry must do.
            Some(None) => return Ok(Ready::Yes { chain: carried }),
            Some(told) => told,
            None => carried.clone(),
        };
        if let Some(chain) = chain
            && ctx.is_new_enough(&chain)?
        {
            ctx.own_over_must_be_loaded(&chain)?;
            return Ok(Ready::Yes { chain: Some(chain) });
        }
        if owner == ctx.config.id || !ctx.peers.is_reachable(owner) {
            // Nobody can tell a newer one.
            return Ok(carried.map_or(Ready::No, |chain| Ready::Yes { chain: Some(chain) }));
        }
        ctx.send(ctx.state.seq(), owner, PeerOp::WantChain { dir: place.parent });
        Ok(Ready::No)
    }

    /// Asks for journals again whose next entries waited for something.
    pub(crate) fn ask_stalled(&mut self, ctx: &mut Ctx) {
        for island in std::mem::take(&mut self.stalled) {
            let after = ctx.state.clocks().get(island);
            ctx.send(0, island, PeerOp::Resend { after });
        }
    }

    pub(crate) fn confirm_applied(&mut self, ctx: &mut Ctx) {
        let durability = &ctx.durability;
        let ready: Vec<(IslandId, Stamp)> = self
            .to_confirm
            .iter()
            .filter(|(_, (seq, _))| durability.is_synced(*seq))
            .map(|(island, (_, stamp))| (*island, *stamp))
            .collect();
        for (island, upto) in ready {
            self.to_confirm.remove(&island);
            ctx.send(0, island, PeerOp::Applied { upto, synced: true });
        }
    }

    // ----------------------------------------------------------------- applying

    pub(crate) fn on_journal(
        &mut self,
        ctx: &mut Ctx,
        from: IslandId,
        after: Stamp,
        entries: &[(Stamp, JournalEntry)],
        private: bool,
    ) -> Result<(), Blocked> {
        let as_told = AsTold { from, private };
        let seen = ctx.state.clocks().get(from);
        let end = entries.last().map_or(after, |(stamp, _)| *stamp);
        if !private {
            // An entry may be waiting here that was told for private.
            let public = self.public.entry(from).or_default();
            *public = end.max(*public);
        }
        let known = seen.min(end);
        if !private && ctx.state.public_clocks().get(from) < known {
            // It was for this island and its sender only.
            let mut decision = Decision::new();
            decision.push(RowChange::Clock { island: from, stamp: known });
            ctx.decide(decision);
        }
        if entries.is_empty() {
            return Ok(());
        }
        if seen < after && !planted(Bug::JournalGap) {
            ctx.send(0, from, PeerOp::Resend { after: seen });
            return Ok(());
        }
        let fresh: Vec<_> = entries.iter().filter(|(stamp, _)| *stamp > seen).collect();
        if fresh.is_empty() {
            // A repetition, or nothing to do: the sender may have missed the answer, and this island
            // forgets what it has not confirmed when it dies.
            self.to_confirm.insert(from, (ctx.state.seq(), seen));
            ctx.send(0, from, PeerOp::Applied { upto: seen, synced: false });
            return Ok(());
        }
        // What needs a new chain of ancestors comes by itself: what follows may be about those. Two directories that
        // change places come together: whoever has one half only has two directories by one name.
        let mut rest = &fresh[..];
        while !rest.is_empty() {
            let alone = rest.iter().position(|(_, entry)| ctx.lays_chain(entry)).unwrap_or(rest.len());
            let starts_pair = alone > 0 && alone < rest.len() && is_pair(&rest[alone - 1].1, &rest[alone].1);
            let (now, _) = match rest {
                [(_, one), (_, other), ..] if alone <= 1 && is_pair(one, other) => rest.split_at(2),
                _ => rest.split_at((alone - usize::from(starts_pair)).max(1)),
            };
            // What one record holds of them.
            let (now, _) = now.split_at(whole_part(now));
            let later = &rest[now.len()..];
            for (_, entry) in now {
                ctx.need_entry(entry)?;
            }
            let first = if alone <= 1 { now } else { &now[..1] };
            let mut chains = Vec::new();
            for (_, entry) in first {
                let Ready::Yes { chain } = self.readiness(ctx, from, entry)? else {
                    self.stalled.insert(from);
                    if rest.len() < fresh.len() {
                        ctx.next(Next::CaughtUp);
                    }
                    return Ok(());
                };
                if let Some(chain) = &chain {
                    ctx.chain_must_be_loaded(chain)?;
                }
                chains.extend(chain);
            }
            for (at, (_, entry)) in now.iter().enumerate().skip(first.len()) {
                if self.readiness(ctx, from, entry)? == Ready::No {
                    self.stalled.insert(from);
                    self.apply_entries(ctx, as_told, &now[..at], &chains);
                    // Others wait for no more than these.
                    ctx.next(Next::CaughtUp);
                    return Ok(());
                }
            }
            self.apply_entries(ctx, as_told, now, &chains);
            rest = later;
        }
        self.stalled.remove(&from);
        ctx.next(Next::CaughtUp);
        Ok(())
    }

    // --------------------------------------------------------------------- time

    pub(crate) fn tick(&mut self, ctx: &mut Ctx) {
        ctx.bound_outbox();
        if ctx.now.ms >= self.stalled_ms + STALLED_MS {
            self.stalled_ms = ctx.now.ms;
            self.ask_stalled(ctx);
            self.ends.ask_again(ctx, self.behind.is_empty());
            ctx.next(Next::AskAgain);
        }
        let late = ctx.now.ms.saturating_sub(PATIENCE_MS);
        // An island that does not answer is alerted: it gets the journal before it serves again.
        for waiting in &mut self.waiting {
            if waiting.call.since_ms < late {
                waiting.missing.clear();
            }
        }
        self.answer_applied(ctx);
        let is_late = |parked: &Next| matches!(parked, Next::Start(call) if call.since_ms < late);
        for parked in self.behind.take_if(is_late) {
            if let Next::Start(call) = parked {
                ctx.answer(&call, 0, Outcome::Failed { errno: atoll_posix::Errno::EIO });
            }
        }
    }
}

/// How far an island has applied this one's journal. What it had applied in an earlier life of this one is known as far as it was
/// synced there.
pub(super) fn applied_by(applied: &BTreeMap<IslandId, Stamp>, state: &State, island: IslandId) -> Stamp {
    applied.get(&island).copied().unwrap_or_default().max(state.delivered(island))
}

impl Ctx {
    /// Whether an entry puts a directory that is known here where nothing is known.
    fn lays_chain(&self, entry: &JournalEntry) -> bool {
        let JournalEntry::Place { ino, place, .. } = entry else { return false };
        let other_parent = |dir: &Dir| dir.place.parent != place.parent && dir.place.version < place.version;
        self.state.dir(*ino).ok().flatten().is_some_and(other_parent)
    }

    /// Makes sure that the rows which an entry reads are in memory.
    fn need_entry(&self, entry: &JournalEntry) -> Result<(), Blocked> {
        match entry {
            JournalEntry::Place { ino, place, .. } => {
                if let Some(dir) = self.state.dir(*ino)? {
                    for p in [&dir.place, place] {
                        self.entry_must_be_loaded(p)?;
                    }
                    if dir.place.parent != place.parent {
                        self.skeleton_must_be_loaded(*ino)?;
                    }
                }
            }
            JournalEntry::StaticAttrs { ino, place, .. } => {
                self.acls_must_be_loaded(*ino)?;
                self.entry_must_be_loaded(place)?;
                self.child_must_be_loaded(place, *ino)?;
            }
            JournalEntry::ClockBump => {}
        }
        Ok(())
    }
}
