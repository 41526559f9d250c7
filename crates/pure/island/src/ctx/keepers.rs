//! Which mounts may keep what they are told, what each of them was told since, and what clients change. Says which answers may be kept, and
//! whom a change must wait for. Never waits, and sends nothing.
//!
//! Invariant: what a mount keeps of a file or directory, by an answer of this island, is noted, or the mount counts as keeping everything.

use std::collections::VecDeque;

use atoll_core::map::{IdMap, IdSet};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, SessionId, TxnId};
use atoll_posix::{Answer, Errno, Op};
use atoll_proto::{Lease, Outcome};

use super::write_set::WriteSet;

/// Most files and directories that are noted of all mounts together: in about 20 bytes each, 20 MiB. A mount that would be told of one more
/// counts as keeping everything.
const NOTED_MAX: usize = 1 << 20;
/// Most files and directories of which is known that they were changed although others had kept something of them, in about 50 bytes each.
/// If there are more, some are as any others: a change of them may have to wait once more.
const CONTENDED_MAX: usize = 1 << 16;
/// Milliseconds behind a change for which nobody else may keep anything of what has changed, if somebody had. Who changes a thing often changes
/// it again soon, and should not have to wait for the others each time.
const CONTENDED_MS: u64 = 2_000;
/// A mount to which a recall was sent for so long is allowed to keep nothing for this many times as long behind it: one that is slow, or that
/// answers late on purpose, holds others up for a small part of the time only.
pub(crate) const BACKOFF: u64 = 8;
/// Recalls of one file or directory within [`AGAIN_MS`] behind which the mount must drop everything: it is told of it each time before the change
/// that waits begins.
const AGAIN_MAX: usize = 3;
/// Milliseconds.
const AGAIN_MS: u64 = 1_000;
/// How many of the last recalls of a mount are looked at for that.
const RECENT_MAX: usize = 16;
/// Milliseconds for which a recall may be unanswered until what its mount says extends its lease no more.
const HELD_UP_MS: u64 = 2_000;

/// What a mount may have kept.
#[derive(Debug, Clone)]
enum Kept {
    Everything,
    Of(Noted),
}

/// What a mount was told of.
#[derive(Debug, Clone, Default)]
struct Noted {
    /// By answers that may be kept.
    told: IdSet<Ino>,
    /// Its kernel has bytes or names of it by answers that may not be kept.
    untold: IdSet<Ino>,
    /// What it has not said yet that it has dropped, the oldest first.
    recalls: VecDeque<Recall>,
    /// What it was told to drop last, and when.
    recent: VecDeque<(Ino, u64)>,
    /// Before that it may keep nothing.
    keeps_from_ms: u64,
}

/// How it ended that a mount could keep something.
#[derive(Debug, Default)]
pub(crate) struct EndOfKeeping {
    /// Since when it had not answered a recall of single files and directories.
    pub(crate) unanswered_ms: Option<u64>,
    /// Before that it may keep nothing.
    pub(crate) keeps_from_ms: u64,
}

/// A recall of single files and directories that is not answered.
#[derive(Debug, Clone)]
struct Recall {
    number: u64,
    since_ms: u64,
    /// By answers that may be kept, and what else its kernel has.
    told: Vec<Ino>,
    untold: Vec<Ino>,
}

impl Recall {
    fn inos(&self) -> impl Iterator<Item = Ino> {
        self.told.iter().chain(&self.untold).copied()
    }
}

/// What a mount has dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WasDropped {
    /// These.
    Of(Vec<Ino>),
    /// What it was recalled for is not known any more: it counts as keeping everything.
    Unknown,
}

/// What a mount must be told, so that it keeps nothing of what a change changes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToRecall {
    /// To drop everything.
    Everything,
    /// To drop what it has of these.
    Of { recall: u64, inos: Vec<Ino> },
    /// Nothing more: it is dropping it.
    Nothing,
}

impl Noted {
    fn len(&self) -> usize {
        let recalled: usize = self.recalls.iter().map(|recall| recall.told.len() + recall.untold.len()).sum();
        self.told.len() + self.untold.len() + recalled
    }

    /// By an answer that may be kept.
    fn was_told(&self, ino: Ino) -> bool {
        self.told.contains(&ino) || self.recalls.iter().any(|recall| recall.told.contains(&ino))
    }

    /// It is to drop it, and has not said that it has.
    fn is_dropping(&self, ino: Ino) -> bool {
        self.recalls.iter().any(|recall| recall.inos().any(|of| of == ino))
    }
}

/// Changes of a file or directory that are under way, or were a moment ago.
#[derive(Debug, Clone, Copy)]
struct Changing {
    /// Who has begun the last one.
    by: SessionId,
    under_way: u32,
    /// Several clients have some under way.
    several: bool,
    /// Until then another client than `by` counts as one that changes it.
    others_ms: u64,
    /// Until then `by` counts as one that changes it. 0: only as long as a change is under way.
    over_ms: u64,
    /// Somebody has read its bytes meanwhile.
    is_read: bool,
}

impl Changing {
    const fn is_live(&self, now_ms: u64) -> bool {
        self.under_way > 0 || now_ms < self.over_ms
    }

    /// Whether another client than this one changes it.
    fn by_others(&self, mount: SessionId, now_ms: u64) -> bool {
        self.is_live(now_ms) && (self.by != mount || self.several || now_ms < self.others_ms)
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keepers {
    mounts: IdMap<SessionId, Kept>,
    /// How many files and directories are noted.
    noted: usize,
    changing: IdMap<Ino, Changing>,
    /// What is prepared for changes of other islands.
    works: IdMap<TxnId, WriteSet>,
    /// Number of the last recall of single files and directories.
    last_recall: u64,
}

impl Keepers {
    /// Whether a mount may keep what it is told.
    pub(crate) fn is_one(&self, mount: SessionId) -> bool {
        self.mounts.contains_key(&mount)
    }

    /// A mount may keep what it is told from here on, or may have been told so in an earlier life. `whole`: nothing is noted of it.
    pub(crate) fn begin(&mut self, mount: SessionId, whole: bool) -> Lease {
        let kept = self.mounts.entry(mount).or_insert_with(|| Kept::Of(Noted::default()));
        match kept {
            Kept::Of(of) if whole => {
                self.noted -= of.len();
                *kept = Kept::Everything;
                Lease::Whole
            }
            Kept::Of(_) => Lease::Noted,
            Kept::Everything => Lease::Whole,
        }
    }

    /// A mount has dropped everything, and may keep nothing. None if it could not have kept anything.
    pub(crate) fn end(&mut self, mount: SessionId) -> Option<EndOfKeeping> {
        match self.mounts.remove(&mount)? {
            Kept::Everything => Some(EndOfKeeping::default()),
            Kept::Of(of) => {
                self.noted -= of.len();
                let unanswered_ms = of.recalls.front().map(|recall| recall.since_ms);
                Some(EndOfKeeping { unanswered_ms, keeps_from_ms: of.keeps_from_ms })
            }
        }
    }

    /// Mounts other than `by` that must drop what they have kept before a change begins. One that has read bytes while others changed them,
    /// and was told nothing else, is told behind the change ([`Self::end_change`]): its kernel asks before it gives these to read(2).
    /// If the change waited for it, it could read them again and again.
    pub(crate) fn who_must_drop(&self, by: SessionId, writes: &WriteSet, now_ms: u64) -> Vec<SessionId> {
        let is_told_later = |ino| {
            self.changing.get(&ino).is_some_and(|changing| changing.is_read && changing.is_live(now_ms))
        };
        self.who(by, writes, |noted, ino| {
            noted.told.contains(&ino)
                || noted.is_dropping(ino)
                || noted.untold.contains(&ino) && !is_told_later(ino)
        })
    }

    /// Mounts other than `by` that may have kept something that a change changes.
    pub(crate) fn who_keep(&self, by: SessionId, writes: &WriteSet) -> Vec<SessionId> {
        self.who(by, writes, |noted, ino| {
            noted.told.contains(&ino) || noted.untold.contains(&ino) || noted.is_dropping(ino)
        })
    }

    /// Those of them that may have kept an answer that tells of it.
    pub(crate) fn who_keep_answers(&self, by: SessionId, writes: &WriteSet) -> Vec<SessionId> {
        self.who(by, writes, Noted::was_told)
    }

    /// A mount must drop what it has of what a change changes. It counts as having it until it says so.
    pub(crate) fn recall(&mut self, mount: SessionId, writes: &WriteSet, now_ms: u64) -> ToRecall {
        let Some(Kept::Of(noted)) = self.mounts.get_mut(&mount) else { return ToRecall::Everything };
        let is_again = |ino: Ino| {
            let of =
                noted.recent.iter().filter(|(recent, at_ms)| *recent == ino && now_ms < at_ms + AGAIN_MS);
            of.count() >= AGAIN_MAX && !noted.is_dropping(ino)
        };
        if *writes == WriteSet::Everything || writes.inos().any(is_again) {
            return ToRecall::Everything;
        }
        self.noted -= noted.len();
        // What it is told from here on is noted anew.
        let told: Vec<Ino> = writes.inos().filter(|ino| noted.told.remove(ino)).collect();
        let take = |ino: &Ino| noted.untold.remove(ino) && !told.contains(ino);
        let untold = writes.inos().filter(take).collect();
        let recall = Recall { number: self.last_recall + 1, since_ms: now_ms, told, untold };
        let inos: Vec<Ino> = recall.inos().collect();
        let is_needed = !inos.is_empty();
        if is_needed {
            self.last_recall += 1;
            noted.recalls.push_back(recall);
            noted.recent.extend(inos.iter().map(|ino| (*ino, now_ms)));
            noted.recent.drain(..noted.recent.len().saturating_sub(RECENT_MAX));
        }
        self.noted += noted.len();
        if is_needed { ToRecall::Of { recall: self.last_recall, inos } } else { ToRecall::Nothing }
    }

    /// A mount has dropped what the recalls up to this one have named. That; everything if it has come to count as keeping everything since.
    pub(crate) fn dropped(&mut self, mount: SessionId, recall: u64, now_ms: u64) -> WasDropped {
        let noted = match self.mounts.get_mut(&mount) {
            None => return WasDropped::Of(Vec::new()),
            Some(Kept::Everything) => return WasDropped::Unknown,
            Some(Kept::Of(noted)) => noted,
        };
        self.noted -= noted.len();
        let mut dropped = Vec::new();
        if planted(Bug::ForgottenWithRecall) {
            noted.told.clear();
        }
        while noted.recalls.front().is_some_and(|first| first.number <= recall) {
            let Some(first) = noted.recalls.pop_front() else { break };
            let took_ms = now_ms.saturating_sub(first.since_ms);
            noted.keeps_from_ms = noted.keeps_from_ms.max(now_ms + BACKOFF * took_ms);
            dropped.extend(first.inos());
        }
        self.noted += noted.len();
        WasDropped::Of(dropped)
    }

    /// Whether a mount has not answered a recall of single files and directories for long.
    pub(crate) fn is_held_up(&self, mount: SessionId, now_ms: u64) -> bool {
        matches!(self.mounts.get(&mount), Some(Kept::Of(noted))
            if noted.recalls.front().is_some_and(|recall| now_ms >= recall.since_ms + HELD_UP_MS))
    }

    fn who(&self, by: SessionId, writes: &WriteSet, has: impl Fn(&Noted, Ino) -> bool) -> Vec<SessionId> {
        let keeps = |kept: &Kept| match (kept, writes) {
            (_, WriteSet::Everything) => true,
            (Kept::Everything, _) => *writes != WriteSet::NOTHING,
            (Kept::Of(noted), WriteSet::Of(_)) => writes.inos().any(|ino| has(noted, ino)),
        };
        self.mounts
            .iter()
            .filter(|(mount, kept)| **mount != by && keeps(kept))
            .map(|(mount, _)| *mount)
            .collect()
    }

    /// A change begins, or begins to wait. `contended`: others had kept something of it.
    pub(crate) fn begin_change(&mut self, by: SessionId, writes: &WriteSet, contended: bool, now_ms: u64) {
        for ino in writes.inos() {
            let new = Changing { by, under_way: 0, several: false, others_ms: 0, over_ms: 0, is_read: false };
            let changing = self.changing.entry(ino).or_insert(new);
            if !changing.is_live(now_ms) {
                *changing = new;
            }
            if changing.by != by {
                changing.by = by;
                changing.several = changing.under_way > 0;
                changing.others_ms = now_ms + CONTENDED_MS;
            }
            changing.under_way += 1;
            if contended {
                changing.over_ms = now_ms + CONTENDED_MS;
            }
        }
        if self.changing.len() > CONTENDED_MAX {
            self.changing.retain(|_, changing| changing.is_live(now_ms));
        }
        if self.changing.len() > CONTENDED_MAX {
            self.changing.retain(|_, changing| changing.under_way > 0);
        }
    }

    /// A change is over. What of it others have read meanwhile.
    pub(crate) fn end_change(&mut self, writes: &WriteSet, now_ms: u64) -> Vec<Ino> {
        let take = |ino: &Ino| self.changing.get_mut(ino).is_some_and(|it| std::mem::take(&mut it.is_read));
        let read = writes.inos().filter(take).collect();
        self.end_wait(writes, now_ms);
        read
    }

    /// A change waits no longer. It has not begun.
    pub(crate) fn end_wait(&mut self, writes: &WriteSet, now_ms: u64) {
        for ino in writes.inos() {
            let Some(changing) = self.changing.get_mut(&ino) else { continue };
            changing.under_way -= 1;
            if changing.under_way > 0 {
                continue;
            }
            if std::mem::take(&mut changing.several) {
                changing.others_ms = now_ms + CONTENDED_MS;
            }
            if changing.over_ms == 0 {
                self.changing.remove(&ino);
            } else {
                changing.over_ms = now_ms + CONTENDED_MS;
            }
        }
    }

    /// This is prepared for a change by a client, whose kernel has names of it by the answer. `is_told`: the answer tells of it and may be
    /// kept.
    pub(crate) fn begin_work(
        &mut self,
        txn: TxnId,
        by: SessionId,
        writes: WriteSet,
        is_told: bool,
        now_ms: u64,
    ) {
        self.begin_change(by, &writes, false, now_ms);
        writes.inos().for_each(|ino| self.note(by, ino, is_told));
        self.works.insert(txn, writes);
    }

    /// That change is over, or does not happen. What of it others have read meanwhile.
    pub(crate) fn end_work(&mut self, txn: TxnId, now_ms: u64) -> Vec<Ino> {
        self.works.remove(&txn).map_or_else(Vec::new, |writes| self.end_change(&writes, now_ms))
    }

    /// Whether it is known what is prepared for another island's change. It is not in a life that did not prepare it.
    pub(crate) fn knows_work(&self, txn: TxnId) -> bool {
        self.works.contains_key(&txn)
    }

    /// Whether a mount may keep an answer. If so, what it tells is noted.
    pub(crate) fn may_keep(&mut self, mount: SessionId, op: &Op, outcome: &Outcome, now_ms: u64) -> bool {
        if !self.is_one(mount) || !told(op, outcome, &mut |_| true) {
            return false;
        }
        let mut may_keep =
            !matches!(self.mounts.get(&mount), Some(Kept::Of(noted)) if now_ms < noted.keeps_from_ms);
        if may_keep && !self.changing.is_empty() && !planted(Bug::KeptDuringChange) {
            let is_quiet =
                |ino: Ino| self.changing.get(&ino).is_none_or(|changing| !changing.by_others(mount, now_ms));
            may_keep = told(op, outcome, &mut |ino| is_quiet(ino));
        }
        // The kernel has bytes that were read, whatever it is told.
        let is_read = matches!(op, Op::Read { .. });
        if !may_keep && is_read {
            told(op, outcome, &mut |ino| {
                self.changing.get_mut(&ino).is_none_or(|changing| {
                    changing.is_read = true;
                    true
                })
            });
        }
        if (may_keep || is_read) && !planted(Bug::ToldUnnoted) {
            told(op, outcome, &mut |ino| {
                self.note(mount, ino, may_keep);
                true
            });
        }
        may_keep
    }

    /// A mount may have kept something of this: an answer, or what its kernel has besides.
    fn note(&mut self, mount: SessionId, ino: Ino, is_told: bool) {
        let Some(kept) = self.mounts.get_mut(&mount) else { return };
        let Kept::Of(noted) = kept else { return };
        let set = if is_told { &mut noted.told } else { &mut noted.untold };
        self.noted += usize::from(set.insert(ino));
        if self.noted > NOTED_MAX {
            self.noted -= noted.len();
            *kept = Kept::Everything;
        }
    }

    /// A file has come from another island: whoever keeps anything may have kept something of it by what that one has told.
    pub(crate) fn has_come(&mut self, ino: Ino) {
        let mounts: Vec<_> = self.mounts.keys().copied().collect();
        mounts.into_iter().for_each(|mount| self.note(mount, ino, true));
    }

    /// Panics unless these are all changes that are under way or wait.
    pub(crate) fn check<'a>(&self, changes: impl Iterator<Item = &'a WriteSet>) {
        let mut under_way: IdMap<Ino, u32> = IdMap::default();
        let works = self.works.values().flat_map(WriteSet::inos);
        for ino in changes.flat_map(WriteSet::inos).chain(works) {
            *under_way.entry(ino).or_default() += 1;
        }
        for (ino, changing) in &self.changing {
            let found = under_way.remove(ino).unwrap_or_default();
            assert_eq!(changing.under_way, found, "changes of {ino:?} that are under way");
        }
        assert!(under_way.is_empty(), "changes of {under_way:?} are under way, and nobody knows");
        let noted = |kept: &Kept| if let Kept::Of(of) = kept { of.len() } else { 0 };
        assert_eq!(self.noted, self.mounts.values().map(noted).sum::<usize>(), "noted of all mounts");
    }
}

/// Calls `each` with what an answer tells of, as long as that says true. Whether it always did, and the answer tells anything that a mount
/// can keep.
fn told(op: &Op, outcome: &Outcome, each: &mut impl FnMut(Ino) -> bool) -> bool {
    let answer = match outcome {
        Outcome::Ok { answer, .. } => Some(answer),
        Outcome::Observed { answer, .. } => Some(&**answer),
        // What somebody asks for who may not see it, or that is no more.
        Outcome::Failed { errno: Errno::ESTALE | Errno::EPERM } => return false,
        Outcome::Data { .. } | Outcome::Failed { .. } | Outcome::Elsewhere { .. } => None,
        _ => return false,
    };
    let mut of_op = op.subjects().into_iter().chain([op.file()]).flatten();
    let mut all = of_op.all(&mut *each);
    match answer {
        Some(Answer::Found { found }) => all = all && (!found.attr_current || each(found.attr.ino)),
        Some(Answer::Attr { attr }) => all = all && each(attr.ino),
        Some(Answer::Entries { entries, .. }) => {
            let mut current =
                entries.iter().filter_map(|entry| entry.found.as_ref()).filter(|found| found.attr_current);
            all = all && current.all(|found| each(found.attr.ino));
        }
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_posix::{Attr, Kind};

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn of(ino: u64) -> WriteSet {
        WriteSet::of(Ino(ino))
    }

    /// Whether a mount may keep the attributes of a file.
    fn looks(keepers: &mut Keepers, mount: SessionId, ino: u64, now_ms: u64) -> bool {
        let attr = Attr::blank(Ino(ino), Kind::Regular);
        let outcome = Outcome::Ok { answer: Answer::Attr { attr }, keys: Vec::new() };
        keepers.may_keep(mount, &Op::GetAttr { ino: Ino(ino) }, &outcome, now_ms)
    }

    #[test]
    fn more_than_the_bound_is_not_noted_and_the_mount_counts_as_keeping_everything() {
        let mut keepers = Keepers::default();
        assert_eq!([A, B].map(|mount| keepers.begin(mount, false)), [Lease::Noted; 2]);
        assert!(looks(&mut keepers, B, 1, 0));
        for ino in 0..NOTED_MAX as u64 {
            assert!(looks(&mut keepers, A, 10 + ino, 0));
        }
        assert_eq!(keepers.noted, 1, "of B");
        assert_eq!((keepers.begin(A, false), keepers.begin(B, false)), (Lease::Whole, Lease::Noted));
        assert_eq!(keepers.who_keep(SessionId(3), &of(2)), [A]);
        keepers.end(A);
        keepers.check([].into_iter());
        assert_eq!(keepers.begin(A, false), Lease::Noted, "it begins anew");
    }

    #[test]
    fn what_is_recalled_counts_until_it_is_dropped_and_what_is_told_meanwhile_is_noted_anew() {
        let mut keepers = Keepers::default();
        keepers.begin(B, false);
        assert!((1..4).all(|ino| looks(&mut keepers, B, ino, 0)));
        let recall = |keepers: &mut Keepers, ino| keepers.recall(B, &of(ino), 0);
        assert_eq!(recall(&mut keepers, 1), ToRecall::Of { recall: 1, inos: vec![Ino(1)] });
        assert_eq!(recall(&mut keepers, 1), ToRecall::Nothing, "it is dropping it");
        assert_eq!(recall(&mut keepers, 2), ToRecall::Of { recall: 2, inos: vec![Ino(2)] });
        assert_eq!(keepers.recall(B, &WriteSet::Everything, 0), ToRecall::Everything);
        keepers.check([].into_iter());
        assert_eq!((keepers.noted, keepers.who_keep(A, &of(1))), (3, vec![B]));
        assert!(looks(&mut keepers, B, 1, 0));
        assert_eq!(keepers.dropped(B, 1, 0), WasDropped::Of(vec![Ino(1)]));
        assert_eq!(keepers.who_keep(A, &of(1)), [B], "it was told once more");
        assert_eq!(recall(&mut keepers, 1), ToRecall::Of { recall: 3, inos: vec![Ino(1)] });
        assert_eq!(keepers.dropped(B, 9, 0), WasDropped::Of(vec![Ino(2), Ino(1)]));
        assert_eq!(
            (keepers.noted, keepers.who_keep(A, &of(3)), keepers.who_keep(A, &of(1))),
            (1, vec![B], vec![])
        );
        assert!(recall(&mut keepers, 3) != ToRecall::Nothing);
        assert_eq!(keepers.end(B).and_then(|end| end.unanswered_ms), Some(0));
        assert_eq!((keepers.noted, keepers.dropped(B, 9, 0)), (0, WasDropped::Of(vec![])));
        keepers.check([].into_iter());
    }

    #[test]
    fn who_is_told_again_what_he_was_told_to_drop_must_drop_everything_in_the_end() {
        let mut keepers = Keepers::default();
        keepers.begin(B, false);
        let mut recalled = |ino, now_ms| {
            assert!(looks(&mut keepers, B, ino, now_ms));
            let is_everything = keepers.recall(B, &of(ino), now_ms) == ToRecall::Everything;
            keepers.dropped(B, u64::MAX, now_ms);
            is_everything
        };
        assert!((0..4).all(|n| !recalled(1, n * AGAIN_MS)), "now and then");
        assert!((0..20).all(|ino| !recalled(10 + ino, 5_000)), "another one each time");
        assert!((0..3).all(|n| !recalled(1, 5_100 + n) && !recalled(2, 5_100 + n)));
        assert!(recalled(1, 5_110) && recalled(2, 5_110));
    }

    #[test]
    fn what_was_changed_against_others_is_forgotten_behind_the_bound_and_what_is_under_way_is_not() {
        let mut keepers = Keepers::default();
        keepers.begin(B, false);
        keepers.begin_change(A, &of(1), true, 0);
        for ino in 0..2 * CONTENDED_MAX as u64 {
            keepers.begin_change(A, &of(10 + ino), true, 0);
            keepers.end_change(&of(10 + ino), 0);
        }
        assert!(keepers.changing.len() <= CONTENDED_MAX + 1);
        assert!(!looks(&mut keepers, B, 1, 0) && looks(&mut keepers, B, 10, 0));
        keepers.check([of(1)].iter());
    }

    #[test]
    fn changes_of_several_clients_count_until_the_last_of_them_is_over() {
        let mut keepers = Keepers::default();
        let _ = [A, B].map(|mount| keepers.begin(mount, false));
        keepers.begin_change(A, &of(1), false, 0);
        assert!(looks(&mut keepers, A, 1, 0) && !looks(&mut keepers, B, 1, 0));
        keepers.begin_change(B, &of(1), true, 10);
        assert!(!looks(&mut keepers, A, 1, 20) && !looks(&mut keepers, B, 1, 20));
        keepers.end_change(&of(1), 5_000);
        assert!(!looks(&mut keepers, A, 1, 5_010) && !looks(&mut keepers, B, 1, 5_010));
        keepers.end_change(&of(1), 6_000);
        assert!(!looks(&mut keepers, A, 1, 6_010) && !looks(&mut keepers, B, 1, 6_010));
        assert!(looks(&mut keepers, A, 1, 6_000 + CONTENDED_MS));
        keepers.check([].into_iter());
    }
}
