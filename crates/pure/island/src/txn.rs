//! Transactions between two islands, both sides (`DESIGN` 5): presumed abort, one commit record at
//! the coordinator, and each side keeps its record until the other's part survives a power cut.
//!
//! Coordinator: begun (memory only) -> committed (record) -> gone. Participant: prepared (record)
//! -> committed (record) or aborted (record) -> gone. The coordinator's commit record is the moment.

use atoll_core::map::IdMap;
use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, Stamp, TxnId};
use atoll_posix::Errno;
use atoll_proto::row::TxnState;
use atoll_proto::{Outcome, Peer, PeerMessage, Txn, Vote, Work};

use crate::decision::Decision;
use crate::machine::{Call, Island, Later, PATIENCE_MS, Parked, Step, Stop};

/// Milliseconds until an outcome that was not confirmed is told again.
const RETELL_MS: u64 = 1_000;
/// Transactions in one message.
const TXNS_PER_MESSAGE: usize = 1024;

/// Transactions under way, as far as memory is enough.
#[derive(Debug, Default)]
pub(crate) struct Txns {
    begun: BTreeMap<TxnId, Begun>,
    names: IdMap<(Ino, Name), TxnId>,
    /// Outcomes recorded here, with the record's position, of which the partner was not told that
    /// they are synced.
    unconfirmed: Vec<(u64, TxnId, IslandId)>,
    retell_ms: u64,
    /// Up to which stamp of each coordinator transactions were there when they were told last.
    told_before: BTreeMap<IslandId, Stamp>,
}

/// A transaction that this island coordinates and has not decided.
#[derive(Debug)]
struct Begun {
    partner: IslandId,
    dir: Ino,
    names: Vec<Name>,
    work: Work,
    call: Option<Call>,
}

impl Txns {
    /// The transaction that holds a name.
    pub(crate) fn holder(&self, dir: Ino, name: &Name) -> Option<TxnId> {
        if self.names.is_empty() {
            return None;
        }
        self.names.get(&(dir, name.clone())).copied()
    }

    /// A transaction that holds a name in a directory.
    pub(crate) fn in_dir(&self, dir: Ino) -> Option<TxnId> {
        self.names.iter().find(|((d, _), _)| *d == dir).map(|(_, txn)| *txn)
    }

    /// Whether this island coordinates it and has not decided.
    pub(crate) fn is_begun(&self, txn: TxnId) -> bool {
        self.begun.contains_key(&txn)
    }

    /// Keeps the request that waits for a transaction.
    pub(crate) fn keep(&mut self, txn: TxnId, call: Call) {
        self.begun.get_mut(&txn).expect("just begun").call = Some(call);
    }
}

impl Island {
    // -------------------------------------------------------------- coordinator

    pub(crate) fn begin_txn(
        &mut self,
        _call: &Call,
        txn: TxnId,
        partner: IslandId,
        dir: Ino,
        names: Vec<Name>,
        work: Work,
    ) -> Result<Step, Stop> {
        if !self.is_reachable(partner) {
            return Err(Errno::EIO.into());
        }
        for name in &names {
            self.txns.names.insert((dir, name.clone()), txn);
        }
        // What the chain of ancestors shows must be committed before another island builds on it.
        self.send(self.state.seen(), partner, Peer::Prepare { txn, work: work.clone() });
        self.txns.begun.insert(txn, Begun { partner, dir, names, work, call: None });
        Ok(Step::Later(Later::Txn(txn)))
    }

    pub(crate) fn on_voted(&mut self, txn: TxnId, vote: Vote) {
        match vote {
            Vote::Yes => self.commit(txn),
            Vote::No { errno } => self.abort(txn, Some(Outcome::Failed { errno })),
            Vote::Busy | Vote::Behind => self.abort(txn, None),
        }
    }

    fn commit(&mut self, txn: TxnId) {
        let Some(begun) = self.txns.begun.remove(&txn) else {
            // Decided to abort meanwhile, or in an earlier life: the participant asks, and is told.
            return;
        };
        let call = begun.call.as_ref().expect("kept when it was begun");
        let mut decision = Decision::new();
        decision.stamp(txn.stamp);
        let row = Txn { state: TxnState::Committed, partner: begun.partner, work: begun.work.clone() };
        decision.txn(txn, Some(row));
        self.forget_adoption(&mut decision, &begun.work);
        self.state.look_away();
        match self.commit_work(call, decision, &begun.work) {
            Ok(step) => {
                let seq = self.state.seq();
                self.txns.unconfirmed.push((seq, txn, begun.partner));
                self.release_names(txn, begun.dir, &begun.names);
                let call = begun.call.expect("kept when it was begun");
                match step {
                    Step::Looked(outcome) | Step::Decided(outcome) => self.answer(&call, seq, outcome),
                    Step::Later(Later::Applied(stamp, outcome)) => self.await_applied(call, stamp, outcome),
                    Step::Later(_) | Step::Answered => unreachable!("a commit waits for the journal only"),
                }
                // The client first: it need not wait for the participant's record.
                self.send(seq, begun.partner, Peer::Decided { txn, commit: true, work: None });
                self.let_waiters_in(txn);
            }
            Err(Stop::Load(loads)) => {
                // Come back with the vote when the rows are there.
                let message = PeerMessage {
                    from: begun.partner,
                    incarnation: 0,
                    vector: Vec::new(),
                    peer: Peer::Voted { txn, vote: Vote::Yes },
                };
                self.txns.begun.insert(txn, begun);
                self.load(loads, Parked::Peer(message));
            }
            Err(_) => {
                self.txns.begun.insert(txn, begun);
                self.abort(txn, Some(Outcome::Failed { errno: Errno::EIO }));
            }
        }
    }

    /// A directory that goes was adopted, so its mkdir need not be told again.
    fn forget_adoption(&self, decision: &mut Decision, work: &Work) {
        let Work::Seal { ino } = work else { return };
        let old = self.state.txn_ids().find(|id| {
            id.coordinator == self.config.id
                && self
                    .state
                    .txn(*id)
                    .is_some_and(|row| matches!(&row.work, Work::Adopt { dir, .. } if dir.ino == *ino))
        });
        if let Some(old) = old {
            decision.txn(old, None);
        }
    }

    /// Gives a transaction up. Without an outcome its request is begun again after a pause.
    pub(crate) fn abort(&mut self, txn: TxnId, outcome: Option<Outcome>) {
        let Some(begun) = self.txns.begun.remove(&txn) else { return };
        self.send(0, begun.partner, Peer::Decided { txn, commit: false, work: None });
        self.release_names(txn, begun.dir, &begun.names);
        if let Some(mut call) = begun.call {
            match outcome {
                Some(outcome) => self.answer(&call, self.state.seq(), outcome),
                None if call.since_ms + PATIENCE_MS < self.now.ms => {
                    self.answer(&call, 0, Outcome::Failed { errno: Errno::EIO });
                }
                None => {
                    // A pause that differs from call to call, so that two do not meet for ever.
                    call.attempts += 1;
                    let spread = txn.stamp.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
                    let pause = 1 + (spread % u64::from(2 + call.attempts.min(20)));
                    self.retry_at.push((self.now.ms + pause, call));
                }
            }
        }
        self.let_waiters_in(txn);
    }

    fn release_names(&mut self, txn: TxnId, dir: Ino, names: &[Name]) {
        for name in names {
            let held = self.txns.names.remove(&(dir, name.clone()));
            assert_eq!(held, Some(txn), "a name was held by another transaction");
        }
    }

    pub(crate) fn let_waiters_in(&mut self, txn: TxnId) {
        for call in self.txn_waiting.remove(&txn).unwrap_or_default() {
            self.start(call, false);
        }
    }

    /// A partner is gone: what was begun with it ends without effect.
    pub(crate) fn abort_with(&mut self, partner: IslandId) {
        let gone: Vec<TxnId> =
            self.txns.begun.iter().filter(|(_, b)| b.partner == partner).map(|(txn, _)| *txn).collect();
        for txn in gone {
            self.abort(txn, Some(Outcome::Failed { errno: Errno::EIO }));
        }
    }

    // -------------------------------------------------------------- participant

    pub(crate) fn on_prepare(&mut self, message: &PeerMessage, txn: TxnId, work: &Work) -> Result<(), Stop> {
        let from = message.from;
        if txn.coordinator != from {
            return Ok(());
        }
        if self.state.txn(txn).is_some() {
            // A repetition.
            self.send(0, from, Peer::Voted { txn, vote: Vote::Yes });
            return Ok(());
        }
        if matches!(work, Work::Adopt { .. }) {
            let clocks = self.state.clocks();
            let theirs = |island| message.vector.iter().find(|(i, _)| *i == island).map(|(_, s)| *s);
            let missing: Vec<IslandId> = message
                .vector
                .iter()
                .filter(|(i, s)| *i != self.config.id && clocks.get(*i) < *s)
                .map(|(i, _)| *i)
                .collect();
            if !missing.is_empty() {
                self.fall_behind(&missing, Parked::Peer(message.clone()));
                return Ok(());
            }
            // Changes that this island has seen and the chain has not were not kept here, where
            // the directory was not known: the chain would bring the old state back. So would one
            // that this island's own journal has not reached.
            let ahead = clocks.iter().any(|(i, s)| theirs(i).unwrap_or_default() < s);
            if ahead {
                self.send(0, from, Peer::Voted { txn, vote: Vote::Behind });
                return Ok(());
            }
        }
        let mut decision = Decision::new();
        match self.prepare_work(&mut decision, txn, work)? {
            Ok(()) => {
                let row = Txn { state: TxnState::Prepared, partner: from, work: work.clone() };
                decision.txn(txn, Some(row));
                self.decide(decision);
                // Before it is written: if this island dies now, the coordinator, which has logged what
                // the work is, tells it again before this island serves.
                self.send(0, from, Peer::Voted { txn, vote: Vote::Yes });
            }
            Err(vote) => self.send(0, from, Peer::Voted { txn, vote }),
        }
        Ok(())
    }

    pub(crate) fn on_decided(
        &mut self,
        from: IslandId,
        txn: TxnId,
        commit: bool,
        work: Option<&Work>,
    ) -> Result<(), Stop> {
        if txn.coordinator != from {
            return Ok(());
        }
        let row = self.state.txn(txn).cloned();
        match (row, commit) {
            (Some(Txn { state: TxnState::Committed, .. }), true) => {
                self.txns.unconfirmed.push((0, txn, from));
                self.stable();
            }
            (Some(row), _) => {
                assert!(row.state == TxnState::Prepared || !commit, "{txn:?} was committed and aborted");
                let mut decision = Decision::new();
                self.finish_work(&mut decision, &row.work, commit)?;
                let next = commit.then(|| Txn { state: TxnState::Committed, ..row });
                decision.txn(txn, next);
                let seq = self.decide(decision);
                if commit {
                    self.txns.unconfirmed.push((seq, txn, from));
                }
                self.let_waiters_in(txn);
            }
            (None, true) => {
                // Either long done, or the prepare was lost in a power cut: then the coordinator
                // sends what it was.
                if let Some(work) = work {
                    let mut decision = Decision::new();
                    self.redo_work(&mut decision, work)?;
                    let row = Txn { state: TxnState::Committed, partner: from, work: work.clone() };
                    decision.txn(txn, Some(row));
                    let seq = self.decide(decision);
                    self.txns.unconfirmed.push((seq, txn, from));
                } else {
                    self.send(0, from, Peer::Ask { txn });
                }
            }
            (None, false) => {}
        }
        Ok(())
    }

    /// Carries out work whose prepare was lost here, or was carried out already.
    fn redo_work(&mut self, decision: &mut Decision, work: &Work) -> Result<(), Stop> {
        match work {
            Work::Adopt { dir, time, chain } => {
                for above in chain {
                    self.state.dir(above.ino)?;
                }
                if self.state.dir(dir.ino)?.is_none_or(|row| row.owned.is_none()) {
                    self.adopt(decision, dir, chain, *time, None);
                }
            }
            Work::Seal { ino } => {
                if self.state.dir(*ino)?.is_some_and(|row| row.owned.is_some()) {
                    self.need_skeleton(*ino)?;
                    self.remove_dir(decision, *ino);
                }
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------------- either

    pub(crate) fn on_ask(&mut self, from: IslandId, txn: TxnId) {
        if txn.coordinator != self.config.id || self.txns.begun.contains_key(&txn) {
            return;
        }
        // No row and not under way: it was never committed (presumed abort), or is long done.
        let work = self.state.txn(txn).map(|row| Box::new(row.work.clone()));
        self.send(self.state.seq(), from, Peer::Decided { txn, commit: work.is_some(), work });
    }

    pub(crate) fn on_stable(&mut self, from: IslandId, txns: &[TxnId]) {
        let mut decision = Decision::new();
        let mut unknown = Vec::new();
        for txn in txns {
            match self.state.txn(*txn) {
                Some(row) if row.state == TxnState::Committed => decision.txn(*txn, None),
                Some(_) => {}
                None if txn.coordinator == self.config.id => unknown.push(*txn),
                None => {}
            }
        }
        if !decision.record.changes.is_empty() {
            self.decide(decision);
        }
        // Long forgotten here; the partner may forget too once that is synced.
        let seq = self.state.seq();
        self.txns.unconfirmed.extend(unknown.into_iter().map(|txn| (seq, txn, from)));
        if seq <= self.synced {
            self.stable();
        }
    }

    /// Tells partners of what is synced now.
    pub(crate) fn stable(&mut self) {
        let synced = self.synced;
        let (ready, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.txns.unconfirmed).into_iter().partition(|(seq, _, _)| *seq <= synced);
        self.txns.unconfirmed = wait;
        let mut by_partner: BTreeMap<IslandId, Vec<TxnId>> = BTreeMap::new();
        for (_, txn, partner) in ready {
            by_partner.entry(partner).or_default().push(txn);
        }
        for (partner, txns) in by_partner {
            for part in txns.chunks(TXNS_PER_MESSAGE) {
                self.send(0, partner, Peer::Stable { txns: part.to_vec() });
            }
        }
        self.confirm_applied();
    }

    /// Tells a partner what it may have missed, of the transactions of which `which` says so.
    pub(crate) fn retell(&mut self, to: IslandId, which: impl Fn(TxnId) -> bool) {
        let rows: Vec<(TxnId, Txn)> = self
            .state
            .txn_ids()
            .filter_map(|txn| self.state.txn(txn).map(|row| (txn, row.clone())))
            .filter(|(txn, row)| row.partner == to && which(*txn))
            .collect();
        let seq = self.state.seq();
        for (txn, row) in rows {
            let mine = txn.coordinator == self.config.id;
            match row.state {
                TxnState::Committed if mine => {
                    // With all that it is: the participant may have lost its part.
                    let work = Some(Box::new(row.work));
                    self.send(seq, to, Peer::Decided { txn, commit: true, work });
                }
                TxnState::Prepared => self.send(seq, to, Peer::Ask { txn }),
                TxnState::Committed => self.txns.unconfirmed.push((0, txn, to)),
            }
        }
    }

    pub(crate) fn tick_txns(&mut self) {
        let late: Vec<TxnId> = self
            .txns
            .begun
            .iter()
            .filter(|(_, b)| b.call.as_ref().is_some_and(|c| c.since_ms + PATIENCE_MS < self.now.ms))
            .map(|(txn, _)| *txn)
            .collect();
        for txn in late {
            self.abort(txn, Some(Outcome::Failed { errno: Errno::EIO }));
        }
        let late = self.now.ms.saturating_sub(PATIENCE_MS);
        for calls in self.txn_waiting.values_mut() {
            let (gone, stay) = std::mem::take(calls).into_iter().partition(|c| c.since_ms < late);
            *calls = stay;
            self.retry_at.extend(Vec::into_iter(gone).map(|call| (u64::MAX, call)));
        }
        let gone: Vec<(u64, Call)> = self.retry_at.extract_if(.., |(at, _)| *at == u64::MAX).collect();
        for (_, call) in gone {
            self.answer(&call, 0, Outcome::Failed { errno: Errno::EIO });
        }
        if self.now.ms >= self.txns.retell_ms + RETELL_MS {
            self.txns.retell_ms = self.now.ms;
            // What was there at the last time already.
            let old = std::mem::take(&mut self.txns.told_before);
            for txn in self.state.txn_ids() {
                let last = self.txns.told_before.entry(txn.coordinator).or_default();
                *last = txn.stamp.max(*last);
            }
            let is_old = |txn: TxnId| old.get(&txn.coordinator).is_some_and(|last| txn.stamp <= *last);
            for island in self.others().filter(|i| self.is_reachable(*i)).collect::<Vec<_>>() {
                self.retell(island, is_old);
            }
            self.stable();
        }
    }
}
