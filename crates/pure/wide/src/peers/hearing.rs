//! What one peer tells, until it is decided here. Owns the order in which it is decided, and what is asked for because of it. Never
//! changes a row.
//!
//! Messages are begun in order. One is done when all of it is here: its changes are decided, and the objects that it lacks have come. Later
//! ones do not wait for these. But this site has the peer's feed up to a position only when all messages up to it are done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use atoll_causal::FileId;
use atoll_core::Encode;
use atoll_state::RowLoad;

use super::greet::Refused;
use super::known::{asked, lacking};
use super::message::{KnownObject, Most, NEWS_MAX, WANT_BYTES_MAX, WideMessage};
use super::{Own, Window, pop_upto};
use crate::author::{Bundle, BundleChange};
use crate::foreign::{ForeignDecision, OBJECTS_MAX};
use crate::rows::FeedRow;

/// Objects that are wanted of one peer. Before there are so many, no more of what it tells is begun; then only directories come to them
/// in which others are.
const WANTED_MAX: usize = 1 << 16;
/// Milliseconds until that is asked for again which could not be decided.
const LATER_MS: u64 = 1_000;

/// What a message says.
#[derive(Debug, Clone)]
enum Work {
    Changes(Vec<BundleChange>),
    News(Vec<KnownObject>),
    /// All of it was decided, or is wanted.
    Begun,
}

#[derive(Debug, Clone)]
struct Heard {
    /// With it, and all before it, this site has the peer's feed up to here.
    upto: u64,
    work: Work,
    /// What is wanted because of it.
    open: BTreeSet<FeedRow>,
}

/// What is to be decided next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToDecide {
    /// The changes of this many messages, from the first on that is not begun.
    Messages(usize),
    /// This many states that were asked for.
    States(usize),
}

/// See the module. It lives as long as a link.
#[derive(Debug, Clone)]
pub(super) struct Hearing {
    /// The position of the last message.
    heard: u64,
    /// Messages that are not done.
    queue: VecDeque<Heard>,
    /// How many of them are begun.
    begun: usize,
    /// Messages that are not acknowledged: the position that each brings, and its bytes.
    unacked: VecDeque<(u64, usize)>,
    bytes: usize,
    /// Up to where it was acknowledged.
    acked: u64,
    /// What is wanted: not asked for yet, asked for, and here but not decided.
    wanted: BTreeSet<FeedRow>,
    wants: VecDeque<FeedRow>,
    asked: BTreeSet<FeedRow>,
    /// What is asked for later, since a user is about to write to a file that it concerns; and when.
    later: BTreeSet<FeedRow>,
    later_ms: Option<u64>,
    states: VecDeque<BundleChange>,
    /// How many of the first of them are being decided: they stay where they are.
    given: usize,
    /// What the peer has not, although something that it told is in it.
    nowhere: BTreeSet<FeedRow>,
    /// How many of the next states are decided each by itself: one of them is in what the peer has not.
    alone: usize,
}

impl Hearing {
    /// From a peer whose feed is here, synced, up to a position.
    pub(super) const fn from(has: u64) -> Self {
        Self {
            heard: has,
            queue: VecDeque::new(),
            begun: 0,
            unacked: VecDeque::new(),
            bytes: 0,
            acked: has,
            wanted: BTreeSet::new(),
            wants: VecDeque::new(),
            asked: BTreeSet::new(),
            later: BTreeSet::new(),
            later_ms: None,
            states: VecDeque::new(),
            given: 0,
            nowhere: BTreeSet::new(),
            alone: 0,
        }
    }

    // ---------------------------------------------------------------- messages

    pub(super) fn bundle(&mut self, bundle: Bundle) -> Result<(), Refused> {
        let bytes = bundle.encoded_len();
        self.push(bundle.position, Work::Changes(bundle.changes), bytes)
    }

    pub(super) fn feed(&mut self, upto: u64, news: Most<KnownObject, NEWS_MAX>) -> Result<(), Refused> {
        let bytes = news.encoded_len();
        self.push(upto, Work::News(news.into_vec()), bytes)
    }

    fn push(&mut self, upto: u64, work: Work, bytes: usize) -> Result<(), Refused> {
        if upto <= self.heard {
            return Err(Refused::Order("its feed does not go on"));
        }
        self.heard = upto;
        if upto <= self.acked {
            // It was under way when the peer heard that it is here.
            return Ok(());
        }
        self.unacked.push_back((upto, bytes));
        self.bytes += bytes;
        let is_too_much = self.bytes > Window::MOST.bytes && self.unacked.len() > 1;
        if self.unacked.len() > Window::MOST.messages || is_too_much {
            return Err(Refused::Bound("messages that are not acknowledged"));
        }
        self.queue.push_back(Heard { upto, work, open: BTreeSet::new() });
        Ok(())
    }

    /// The answer to what was asked for. What nobody asked for is not taken.
    pub(super) fn answer(
        &mut self,
        changes: Vec<BundleChange>,
        known: &[FeedRow],
        unknown: &[FeedRow],
    ) -> Result<(), Refused> {
        if self.asked.is_empty() {
            return Err(Refused::Order("nothing was asked for"));
        }
        let left = self.asked.len();
        for change in changes {
            let is_whole =
                !matches!(change, BundleChange::FileChanged { .. } | BundleChange::DirChanged { .. });
            if is_whole && self.asked.remove(&change.object()) {
                self.nowhere.remove(&change.object());
                self.states.push_back(change);
            }
        }
        let mut rest = self.states.split_off(self.given);
        parents_first(&mut rest);
        self.states.append(&mut rest);
        for object in known.iter().chain(unknown) {
            if self.asked.remove(object) {
                self.nowhere.extend(unknown.contains(object).then_some(*object));
                self.close(*object);
            }
        }
        if self.nowhere.len() > WANTED_MAX {
            return Err(Refused::Bound("objects that it has not"));
        }
        if self.asked.len() == left {
            return Err(Refused::Order("it answers nothing of what was asked for"));
        }
        // The rest did not fit.
        std::mem::take(&mut self.asked).into_iter().rev().for_each(|object| self.wants.push_front(object));
        Ok(())
    }

    /// The question for what is wanted, if none is open and what has come is nearly decided.
    pub(super) fn want(&mut self, own: Own<'_>) -> Result<Option<WideMessage>, Vec<RowLoad>> {
        if !self.asked.is_empty() || self.wants.is_empty() || self.states.len() > OBJECTS_MAX {
            return Ok(None);
        }
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let mut missing = Vec::new();
        for object in self.wants.iter().take(NEWS_MAX) {
            match asked(own, *object) {
                Ok(known) => {
                    bytes += known.encoded_len();
                    if bytes > WANT_BYTES_MAX && !objects.is_empty() {
                        break;
                    }
                    objects.push(known);
                }
                Err(loads) => missing.extend(loads),
            }
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        self.asked = self.wants.drain(..objects.len()).collect();
        Ok(Some(WideMessage::Want { objects: Most::new(objects) }))
    }

    // --------------------------------------------------------------- decisions

    /// What is to be decided next, and the position up to which all is done now. News are compared with what is here, which needs no decision.
    pub(super) fn next(
        &mut self,
        own: Own<'_>,
    ) -> Result<Option<(ToDecide, Vec<BundleChange>)>, Vec<RowLoad>> {
        if !self.states.is_empty() {
            let most = if self.alone > 0 { 1 } else { OBJECTS_MAX };
            let changes: Vec<_> = self.states.iter().take(most).cloned().collect();
            self.given = changes.len();
            return Ok(Some((ToDecide::States(changes.len()), changes)));
        }
        while let Some(heard) = self.queue.get(self.begun)
            && self.wanted.len() < NEWS_MAX
        {
            match &heard.work {
                Work::News(news) => {
                    let lacking = lacking(own, news)?;
                    self.begin(lacking.into_iter().collect());
                }
                Work::Changes(_) => {
                    let mut changes: Vec<BundleChange> = Vec::new();
                    let mut count = 0;
                    for heard in self.queue.range(self.begun..) {
                        let Work::Changes(more) = &heard.work else { break };
                        if changes.len() + more.len() > OBJECTS_MAX {
                            break;
                        }
                        changes.extend(more.iter().cloned());
                        count += 1;
                    }
                    return Ok(Some((ToDecide::Messages(count), changes)));
                }
                Work::Begun => unreachable!("it is begun"),
            }
        }
        Ok(None)
    }

    /// The next message is begun, and waits for these.
    fn begin(&mut self, open: BTreeSet<FeedRow>) {
        open.iter().for_each(|object| self.wish(*object, false));
        let heard = &mut self.queue[self.begun];
        (heard.work, heard.open) = (Work::Begun, open);
        self.begun += 1;
    }

    /// It was decided.
    pub(super) fn decided(&mut self, next: ToDecide, decision: &mut ForeignDecision) -> Result<(), Refused> {
        if decision.is_busy {
            return Err(Refused::Busy);
        }
        match next {
            ToDecide::Messages(count) => {
                let mut open: BTreeSet<FeedRow> = decision.wants.keys().copied().collect();
                open.extend(&decision.later);
                for object in &decision.later {
                    if self.wanted.insert(*object) {
                        self.later.insert(*object);
                    }
                }
                // Which of the messages it is that lacks something is not told: the first one waits, and so do all.
                (0..count).for_each(|_| self.begin(std::mem::take(&mut open)));
            }
            ToDecide::States(count) => {
                self.given = 0;
                let is_lost = decision.wants.keys().any(|object| self.nowhere.contains(object));
                if is_lost && count > 1 {
                    self.alone = count;
                    return Ok(());
                }
                self.alone = self.alone.saturating_sub(1);
                let done: Vec<FeedRow> = self.states.drain(..count).map(|change| change.object()).collect();
                for object in done.iter().rev() {
                    if decision.later.contains(object) {
                        self.later.insert(*object);
                    } else if !decision.wants.contains_key(object) {
                        self.close(*object);
                    } else if is_lost {
                        // The directory in which it is exists nowhere: some site does not keep the rules.
                        decision.refused += 1;
                        self.close(*object);
                    } else {
                        self.wants.push_front(*object);
                    }
                }
                // Directories in which others are come before these.
                let above = decision.wants.keys().filter(|object| !done.contains(object));
                above.filter(|_| !is_lost).for_each(|object| self.wish(*object, true));
            }
        }
        if self.wanted.len() > WANTED_MAX {
            return Err(Refused::Bound("objects that are wanted because of what it tells"));
        }
        Ok(())
    }

    /// What was to be asked for later is asked for when a second has passed.
    pub(super) fn goes_on(&mut self, now_ms: u64) {
        if self.later.is_empty() {
            return;
        }
        let when = *self.later_ms.get_or_insert(now_ms + LATER_MS);
        if when <= now_ms {
            self.later_ms = None;
            self.wants.extend(std::mem::take(&mut self.later));
        }
    }

    fn wish(&mut self, object: FeedRow, is_first: bool) {
        if self.wanted.insert(object) {
            if is_first { self.wants.push_front(object) } else { self.wants.push_back(object) }
        }
    }

    /// Nobody waits for an object any more.
    fn close(&mut self, object: FeedRow) {
        self.wanted.remove(&object);
        for heard in &mut self.queue {
            heard.open.remove(&object);
        }
    }

    /// The position of the last message that is done now, if one is.
    pub(super) fn done(&mut self) -> Option<u64> {
        let mut done = None;
        while self.begun > 0 && self.queue.front().is_some_and(|heard| heard.open.is_empty()) {
            done = self.queue.pop_front().map(|heard| heard.upto);
            self.begun -= 1;
        }
        done
    }

    /// What is to be acknowledged, if all up to there is synced here.
    pub(super) fn ack(&mut self, synced: u64) -> Option<WideMessage> {
        if synced <= self.acked {
            return None;
        }
        self.acked = synced;
        while let Some((_, bytes)) = pop_upto(&mut self.unacked, synced) {
            self.bytes -= bytes;
        }
        Some(WideMessage::Ack { upto: synced })
    }

    /// Whether nothing waits to be decided or acknowledged, and nothing is asked for.
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.wanted.is_empty() && self.unacked.is_empty()
    }

    pub(super) fn check(&self) {
        assert!(self.begun <= self.queue.len());
        assert!(self.queue.iter().is_sorted_by(|a, b| a.upto < b.upto));
        let is_begun = |heard: &Heard| matches!(heard.work, Work::Begun);
        assert!(self.queue.iter().map(is_begun).eq((0..self.queue.len()).map(|at| at < self.begun)));
        let under_way = self.wants.iter().chain(&self.asked).chain(&self.later).copied();
        let all: Vec<FeedRow> = under_way.chain(self.states.iter().map(BundleChange::object)).collect();
        assert_eq!(all.len(), self.wanted.len(), "each of what is wanted is at one place");
        assert!(all.iter().all(|object| self.wanted.contains(object)));
        assert!(self.queue.iter().all(|heard| heard.open.is_subset(&self.wanted)));
        assert_eq!(self.bytes, self.unacked.iter().map(|(_, bytes)| bytes).sum::<usize>());
    }
}

/// Directories come in the order of what is above them, and before all else.
fn parents_first(states: &mut VecDeque<BundleChange>) {
    let mut dirs: BTreeMap<FileId, BundleChange> = BTreeMap::new();
    let mut rest = Vec::new();
    let mut order = Vec::new();
    for change in states.drain(..) {
        match change {
            BundleChange::DirBorn { id, .. } => {
                order.push(id);
                dirs.insert(id, change);
            }
            other => rest.push(other),
        }
    }
    for id in order {
        let (mut way, mut at) = (Vec::new(), id);
        while let Some(change) = dirs.remove(&at) {
            if let BundleChange::DirBorn { head, .. } = &change {
                at = head.birth.parent;
            }
            way.push(change);
        }
        states.extend(way.into_iter().rev());
    }
    states.extend(rest);
}

#[cfg(test)]
mod tests {
    use atoll_causal::{AttrState, Dot, FileBirth, FileState, FileVersion, HybridStamp, LinkPlace, Writer};
    use atoll_core::{Name, Time};
    use atoll_posix::Kind;
    use atoll_proto::Record;
    use atoll_spine::Spine;
    use atoll_state::State;

    use super::*;
    use crate::author::Made;
    use crate::foreign::SpineNews;
    use crate::lives::{OwnDots, OwnLives};
    use crate::rows::root_head;

    const DOT: Dot = Dot { writer: Writer(9), n: 1 };

    fn file() -> BundleChange {
        let (stamp, mtime) = (HybridStamp::ZERO, Time::default());
        let birth = FileBirth { kind: Kind::Regular, rdev: 0, target: Default::default(), copy_of: None };
        let name = Name::new(b"f").unwrap();
        let place = LinkPlace { stamp, dir: FileId::ROOT, name, entry: DOT };
        let attrs = AttrState::new(stamp, 0o644, 0, 0, mtime);
        let version = FileVersion { stamp, size: 0, mtime, root: 0 };
        let state = FileState::new(birth, DOT, attrs, place, version);
        BundleChange::FileBorn { id: FileId(7), state: Box::new(state) }
    }

    fn nothing_wanted() -> ForeignDecision {
        ForeignDecision {
            record: Record { changes: Vec::new(), bodies: Vec::new() },
            changed: Vec::new(),
            files: Vec::new(),
            spine: SpineNews::default(),
            heard: Vec::new(),
            wants: BTreeMap::new(),
            later: BTreeSet::new(),
            refused: 0,
            is_busy: false,
            looked_up: 0,
        }
    }

    /// Found by `wide_sites` 3454: the directory was taken for decided, and was not.
    #[test]
    fn what_comes_while_states_wait_to_be_decided_is_decided_behind_them() {
        let (state, spine, made) = (State::new(1), Spine::default(), Made::behind(0));
        let lives = OwnLives::open(Writer(1), 1, (0, 0), []).unwrap();
        let given = OwnDots { writer: Writer(1), n: 0, lives: &lives };
        let own = Own { state: &state, spine: &spine, made: &made, given };
        let dir = BundleChange::DirBorn { id: FileId(8), head: Box::new(root_head(0o755, 0, 0)) };
        let mut hearing = Hearing::from(0);
        let answered = |hearing: &mut Hearing, change: &BundleChange| {
            hearing.wish(change.object(), false);
            hearing.asked = hearing.wants.drain(..).collect();
            hearing.answer(vec![change.clone()], &[], &[]).unwrap();
        };
        answered(&mut hearing, &file());
        let (step, changes) = hearing.next(own).unwrap().unwrap();
        assert_eq!(changes, [file()]);
        answered(&mut hearing, &dir);
        hearing.decided(step, &mut nothing_wanted()).unwrap();
        hearing.check();
        let (step, changes) = hearing.next(own).unwrap().unwrap();
        assert_eq!(changes, [dir]);
        hearing.decided(step, &mut nothing_wanted()).unwrap();
        assert!(hearing.wanted.is_empty());
    }
}
