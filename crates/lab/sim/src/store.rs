//! The control store of a simulated world: one record for each key, as a rule an island, changed by compare-and-swap on
//! its revision. It does what a `GroupStore` of `io/control` does, but whoever asks does not wait in a call.
//! Requests to it, and what it answers, take time and get lost, as over a network from a store on one machine.
//!
//! Invariant: a revision has one content, until the store is restored from an old copy. An outcome that is told is
//! true: `Done` and `Conflict` say what the store has decided, and a read shows what the store had at one moment
//! between question and answer. `Unknown` says nothing at all: the request was never carried out, or it was, or it
//! will be, also after a read has shown that it was not.
//!
//! It passes time only when told to. It knows no world, and what a key or a record means is not known here.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::NodeId;
use atoll_model::Rng;
use atoll_proto::group::Revision;

/// Microseconds after which whoever has asked waits no longer.
pub const DEADLINE_US: u64 = 1_000_000;
/// Old copies of the store that are kept, from which it may be restored.
const COPIES_MAX: usize = 8;

/// A question to the store; counts up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What the store is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<R> {
    /// The record of a key.
    Read,
    /// Another content for it, if it still has this revision.
    Swap {
        /// The revision on which the new content is based; [`Revision::NONE`] if there must be no record.
        expect: Revision,
        /// The new content.
        record: R,
    },
}

/// How a question ended for whoever has asked it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<R> {
    /// The record; none if there is none.
    Read(Option<(Revision, R)>),
    /// The record was changed, and has this revision since.
    Done(Revision),
    /// The record has another revision than the one that was expected. Nothing was changed.
    Conflict,
    /// No answer came. What was asked may have been done, and may be done later.
    Unknown,
}

/// What somebody is told by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told<K, R> {
    /// A question has ended.
    Answer {
        /// Who has asked.
        to: NodeId,
        /// The question.
        ticket: Ticket,
        /// How it ended.
        outcome: Outcome<R>,
    },
    /// The record of a key may have changed: only a read shows whether it has.
    Hint {
        /// Who watches.
        to: NodeId,
        /// The key.
        key: K,
    },
}

/// How badly the way to the store works, and the store itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Microseconds that a message takes at most.
    pub lag_us_max: u64,
    /// How many of a hundred requests never come to the store.
    pub lost_requests: u64,
    /// How many of a hundred answers never come back: what was asked is done.
    pub lost_answers: u64,
    /// How many of a hundred requests are carried out late: mostly when nobody waits for them any more.
    pub late_requests: u64,
    /// Microseconds by which these are late at most.
    pub late_us_max: u64,
    /// How many of a hundred hints are lost.
    pub lost_hints: u64,
}

impl Faults {
    /// Messages take a moment, and nothing is lost.
    pub const NONE: Self = Self {
        lag_us_max: 2_000,
        lost_requests: 0,
        lost_answers: 0,
        late_requests: 0,
        late_us_max: 0,
        lost_hints: 0,
    };
    /// Everything that may happen does, now and then.
    pub const ALL: Self = Self {
        lag_us_max: 50_000,
        lost_requests: 10,
        lost_answers: 10,
        late_requests: 10,
        late_us_max: 30_000_000,
        lost_hints: 30,
    };
}

/// What the store has.
#[derive(Debug, Clone)]
struct Content<K, R> {
    records: BTreeMap<K, (Revision, R)>,
    last: Revision,
}

/// Something that will happen at the store, or on the way from it.
#[derive(Debug)]
enum Happening<K, R> {
    Arrives {
        from: NodeId,
        ticket: Ticket,
        key: K,
        request: Request<R>,
    },
    Answers {
        ticket: Ticket,
        outcome: Outcome<R>,
    },
    /// Nobody waits for an answer any longer.
    Deadline {
        ticket: Ticket,
    },
    Hints {
        to: NodeId,
        key: K,
    },
}

/// See the module.
#[derive(Debug)]
pub struct ControlStore<K, R> {
    rng: Rng,
    /// May be changed at any time.
    pub faults: Faults,
    content: Content<K, R>,
    /// Old copies, the oldest first.
    copies: Vec<Content<K, R>>,
    /// Questions for whose answers somebody waits.
    waiting: BTreeMap<Ticket, NodeId>,
    last_ticket: u64,
    watchers: BTreeSet<(K, NodeId)>,
    /// Machines of which nothing arrives at the store, and those at which nothing arrives from it.
    cut_to: BTreeSet<NodeId>,
    cut_from: BTreeSet<NodeId>,
    /// It carries out nothing; what has come to it meanwhile, and was not lost, is carried out after that.
    is_down: bool,
    held: Vec<Happening<K, R>>,
    agenda: BTreeMap<(u64, u64), Happening<K, R>>,
    next_event: u64,
}

impl<K: Copy + Ord, R: Clone> ControlStore<K, R> {
    /// An empty one. The seed decides what gets lost, and how long everything takes.
    pub const fn new(seed: u64, faults: Faults) -> Self {
        Self {
            rng: Rng::new(seed),
            faults,
            content: Content { records: BTreeMap::new(), last: Revision::NONE },
            copies: Vec::new(),
            waiting: BTreeMap::new(),
            last_ticket: 0,
            watchers: BTreeSet::new(),
            cut_to: BTreeSet::new(),
            cut_from: BTreeSet::new(),
            is_down: false,
            held: Vec::new(),
            agenda: BTreeMap::new(),
            next_event: 0,
        }
    }

    // -------------------------------------------------------------------- asking

    /// A machine asks something about a key. It is told the outcome within [`DEADLINE_US`], unless its process ends.
    pub fn ask(&mut self, now_us: u64, from: NodeId, key: K, request: Request<R>) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.waiting.insert(ticket, from);
        self.schedule(now_us + DEADLINE_US, Happening::Deadline { ticket });
        let (lost, late) = (self.faults.lost_requests, self.faults.late_requests);
        let mut at = now_us + self.lag();
        if self.rng.percent(late) {
            at += self.rng.below(self.faults.late_us_max + 1);
        }
        if !self.rng.percent(lost) && !self.cut_to.contains(&from) {
            self.schedule(at, Happening::Arrives { from, ticket, key, request });
        }
        ticket
    }

    /// From now on a machine gets hints when the record of a key changes; some are lost, and some come late.
    pub fn watch(&mut self, node: NodeId, key: K) {
        self.watchers.insert((key, node));
    }

    /// The process of a machine has ended: it is told nothing more of what it has asked or watched. What it has asked may
    /// be done all the same.
    pub fn forget(&mut self, node: NodeId) {
        self.waiting.retain(|_, from| *from != node);
        self.watchers.retain(|(_, watcher)| *watcher != node);
    }

    // -------------------------------------------------------------------- faults

    /// What a machine sends to the store gets lost from now on, or what the store sends to it, or neither.
    pub fn cut(&mut self, node: NodeId, to_store: bool, from_store: bool) {
        for (cut, ways) in [(to_store, &mut self.cut_to), (from_store, &mut self.cut_from)] {
            if cut {
                ways.insert(node);
            } else {
                ways.remove(&node);
            }
        }
    }

    /// An outage begins. What comes meanwhile is lost, or waits for its end.
    pub const fn stop(&mut self) {
        self.is_down = true;
    }

    /// The outage is over.
    pub fn start(&mut self, now_us: u64) {
        self.is_down = false;
        for held in std::mem::take(&mut self.held) {
            let at = now_us + self.lag();
            self.schedule(at, held);
        }
    }

    /// Keeps a copy of the store as it is.
    pub fn keep_copy(&mut self) {
        if self.copies.len() == COPIES_MAX {
            self.copies.remove(0);
        }
        self.copies.push(self.content.clone());
    }

    /// The store is restored from one of the copies that were kept. False if there is none.
    pub fn restore(&mut self) -> bool {
        if self.copies.is_empty() {
            return false;
        }
        let copy = self.rng.index(self.copies.len());
        self.content = self.copies[copy].clone();
        true
    }

    // ---------------------------------------------------------------------- time

    /// When something happens next.
    pub fn next_us(&self) -> Option<u64> {
        self.agenda.first_key_value().map(|((at, _), _)| *at)
    }

    /// Has everything happen up to now, and says who is told what.
    pub fn advance(&mut self, now_us: u64) -> Vec<Told<K, R>> {
        let mut told = Vec::new();
        while let Some(at) = self.next_us().filter(|at| *at <= now_us) {
            let (_, what) = self.agenda.pop_first().expect("it was looked at");
            told.extend(self.happen(at, what));
        }
        told
    }

    /// What the store has now. For judges: nobody in the world sees it.
    pub fn records(&self) -> impl Iterator<Item = (K, &(Revision, R))> {
        self.content.records.iter().map(|(key, record)| (*key, record))
    }

    /// The same of one key.
    pub fn record(&self, key: K) -> Option<&(Revision, R)> {
        self.content.records.get(&key)
    }

    /// Whether a change of this record is on its way to the store, and would be made if it came now. For judges.
    pub fn is_changing(&self, key: K) -> bool {
        let now = self.record(key).map_or(Revision::NONE, |(revision, _)| *revision);
        self.agenda.values().chain(&self.held).any(|what| match what {
            Happening::Arrives { key: of, request: Request::Swap { expect, .. }, .. } => {
                *of == key && *expect == now
            }
            _ => false,
        })
    }

    fn happen(&mut self, now_us: u64, what: Happening<K, R>) -> Option<Told<K, R>> {
        match what {
            Happening::Arrives { .. } if self.is_down => {
                if self.rng.percent(50) {
                    self.held.push(what);
                }
                None
            }
            Happening::Arrives { from, ticket, key, request } => {
                let outcome = self.carry_out(now_us, key, request);
                let (lost, at) = (self.faults.lost_answers, now_us + self.lag());
                if !self.rng.percent(lost) && !self.cut_from.contains(&from) {
                    self.schedule(at, Happening::Answers { ticket, outcome });
                }
                None
            }
            Happening::Answers { ticket, outcome } => self.ended(ticket, outcome),
            Happening::Deadline { ticket } => self.ended(ticket, Outcome::Unknown),
            Happening::Hints { to, key } => {
                self.watchers.contains(&(key, to)).then_some(Told::Hint { to, key })
            }
        }
    }

    /// The one moment of a request.
    fn carry_out(&mut self, now_us: u64, key: K, request: Request<R>) -> Outcome<R> {
        let found = self.content.records.get(&key);
        match request {
            Request::Read => Outcome::Read(found.cloned()),
            Request::Swap { expect, record } => {
                if found.map_or(Revision::NONE, |(revision, _)| *revision) != expect {
                    return Outcome::Conflict;
                }
                let next = Revision(self.content.last.0 + 1);
                self.content.last = next;
                self.content.records.insert(key, (next, record));
                self.hint(now_us, key);
                Outcome::Done(next)
            }
        }
    }

    fn hint(&mut self, now_us: u64, key: K) {
        let watchers: Vec<NodeId> =
            self.watchers.iter().filter(|(of, _)| *of == key).map(|(_, node)| *node).collect();
        for to in watchers {
            let (lost, at) = (self.faults.lost_hints, now_us + self.lag());
            if !self.rng.percent(lost) && !self.cut_from.contains(&to) {
                self.schedule(at, Happening::Hints { to, key });
            }
        }
    }

    fn ended(&mut self, ticket: Ticket, outcome: Outcome<R>) -> Option<Told<K, R>> {
        let to = self.waiting.remove(&ticket)?;
        Some(Told::Answer { to, ticket, outcome })
    }

    fn lag(&mut self) -> u64 {
        1 + self.rng.below(self.faults.lag_us_max.max(1))
    }

    fn schedule(&mut self, at_us: u64, what: Happening<K, R>) {
        self.next_event += 1;
        self.agenda.insert((at_us, self.next_event), what);
    }
}

#[cfg(test)]
mod tests {
    use atoll_core::IslandId;

    use super::*;

    const ISLAND: IslandId = IslandId(0);
    const P: NodeId = NodeId(0);
    const M: NodeId = NodeId(1);

    type Store = ControlStore<IslandId, u64>;
    type Found = Option<(Revision, u64)>;

    fn swap(expect: u64, record: u64) -> Request<u64> {
        Request::Swap { expect: Revision(expect), record }
    }

    /// Waits for the answer to a question, and says when it came.
    fn answer(store: &mut Store, ticket: Ticket) -> (u64, Outcome<u64>) {
        while let Some(at) = store.next_us() {
            for told in store.advance(at) {
                match told {
                    Told::Answer { ticket: of, outcome, .. } if of == ticket => return (at, outcome),
                    _ => {}
                }
            }
        }
        panic!("{ticket:?} has no outcome");
    }

    fn asked(store: &mut Store, now_us: u64, from: NodeId, request: Request<u64>) -> (u64, Outcome<u64>) {
        let ticket = store.ask(now_us, from, ISLAND, request);
        answer(store, ticket)
    }

    #[test]
    fn of_all_swaps_that_expect_one_revision_one_is_done() {
        for seed in 0..50 {
            let mut store = Store::new(seed, Faults::NONE);
            let tickets: Vec<Ticket> =
                (0..5).map(|n| store.ask(0, NodeId(n), ISLAND, swap(0, u64::from(n)))).collect();
            let told = store.advance(DEADLINE_US);
            assert_eq!(told.len(), tickets.len());
            let is = |told: &&Told<IslandId, u64>, wanted: &Outcome<u64>| matches!(told, Told::Answer { outcome, .. } if outcome == wanted);
            assert_eq!(told.iter().filter(|told| is(told, &Outcome::Done(Revision(1)))).count(), 1);
            assert_eq!(told.iter().filter(|told| is(told, &Outcome::Conflict)).count(), 4);
        }
    }

    #[test]
    fn a_swap_whose_answer_is_lost_is_done_and_unknown() {
        let mut store = Store::new(1, Faults { lost_answers: 100, ..Faults::NONE });
        assert_eq!(asked(&mut store, 0, P, swap(0, 7)), (DEADLINE_US, Outcome::Unknown));
        assert_eq!(store.record(ISLAND), Some(&(Revision(1), 7)));
        // Sent again, the same: it is not done a second time.
        store.faults.lost_answers = 0;
        assert_eq!(asked(&mut store, DEADLINE_US, P, swap(0, 7)).1, Outcome::Conflict);
    }

    #[test]
    fn a_swap_whose_request_is_lost_is_unknown_and_not_done() {
        let mut store = Store::new(1, Faults { lost_requests: 100, ..Faults::NONE });
        assert_eq!(asked(&mut store, 0, P, swap(0, 7)), (DEADLINE_US, Outcome::Unknown));
        assert_eq!(store.record(ISLAND), None);
    }

    #[test]
    fn revisions_are_those_of_the_whole_store() {
        let mut store = Store::new(1, Faults::NONE);
        assert_eq!(asked(&mut store, 0, P, swap(0, 1)).1, Outcome::Done(Revision(1)));
        let other = store.ask(0, P, IslandId(1), swap(0, 1));
        assert_eq!(answer(&mut store, other).1, Outcome::Done(Revision(2)));
        assert_eq!(asked(&mut store, 0, P, swap(1, 2)).1, Outcome::Done(Revision(3)));
    }

    /// The first hole that was found in the design of groups.
    #[test]
    fn a_swap_is_done_after_a_read_has_shown_that_it_was_not() {
        let late = Faults { late_requests: 100, late_us_max: 30_000_000, ..Faults::NONE };
        let mut seen = 0;
        for seed in 0..50 {
            let mut store = Store::new(seed, late);
            let (given_up_us, outcome) = asked(&mut store, 0, P, swap(0, 7));
            store.faults = Faults::NONE;
            let (_, read) = asked(&mut store, given_up_us, P, Request::Read);
            assert_eq!(store.is_changing(ISLAND), store.record(ISLAND).is_none(), "it came, or will");
            store.advance(u64::MAX);
            assert_eq!(store.record(ISLAND), Some(&(Revision(1), 7)), "it comes in the end");
            seen += u32::from((outcome, read) == (Outcome::Unknown, Outcome::Read(None)));
        }
        assert!(seen > 25, "{seen}");
    }

    #[test]
    fn a_late_swap_that_expects_a_revision_that_has_passed_changes_nothing() {
        for seed in 0..50 {
            let mut store =
                Store::new(seed, Faults { late_requests: 100, late_us_max: 30_000_000, ..Faults::NONE });
            store.ask(0, P, ISLAND, swap(0, 7));
            store.faults = Faults::NONE;
            let done = asked(&mut store, 0, M, swap(0, 8)).1;
            assert!(!store.is_changing(ISLAND), "whatever comes now expects an earlier revision");
            store.advance(u64::MAX);
            let has = if done == Outcome::Conflict { 7 } else { 8 };
            assert_eq!(store.record(ISLAND), Some(&(Revision(1), has)));
        }
    }

    #[test]
    fn a_way_that_is_cut_in_one_direction_loses_the_request_or_the_answer() {
        let mut store = Store::new(1, Faults::NONE);
        store.cut(P, true, false);
        assert_eq!(asked(&mut store, 0, P, swap(0, 1)).1, Outcome::Unknown);
        assert_eq!(store.record(ISLAND), None, "it never came");
        store.cut(P, false, true);
        assert_eq!(asked(&mut store, DEADLINE_US, P, swap(0, 2)).1, Outcome::Unknown);
        assert_eq!(store.record(ISLAND), Some(&(Revision(1), 2)), "it came");
        assert_eq!(asked(&mut store, 0, M, Request::Read).1, Outcome::Read(Some((Revision(1), 2))));
        store.cut(P, false, false);
        assert_eq!(asked(&mut store, 0, P, swap(1, 3)).1, Outcome::Done(Revision(2)));
    }

    #[test]
    fn an_outage_answers_nothing_and_what_waited_is_done_after_it() {
        let (mut done, mut lost) = (0, 0);
        for seed in 0..50 {
            let mut store = Store::new(seed, Faults::NONE);
            store.stop();
            assert_eq!(asked(&mut store, 0, P, swap(0, 7)), (DEADLINE_US, Outcome::Unknown));
            assert_eq!(store.record(ISLAND), None);
            store.start(5_000_000);
            assert!(store.advance(u64::MAX).is_empty(), "nobody waits any more");
            match store.record(ISLAND) {
                Some(_) => done += 1,
                None => lost += 1,
            }
        }
        assert!(done > 5 && lost > 5, "{done} {lost}");
    }

    #[test]
    fn a_store_that_is_restored_has_the_old_content_and_gives_revisions_again() {
        let mut store = Store::new(1, Faults::NONE);
        assert!(!store.restore(), "there is no copy");
        assert_eq!(asked(&mut store, 0, P, swap(0, 1)).1, Outcome::Done(Revision(1)));
        store.keep_copy();
        assert_eq!(asked(&mut store, 0, P, swap(1, 2)).1, Outcome::Done(Revision(2)));
        assert!(store.restore());
        assert_eq!(asked(&mut store, 0, M, Request::Read).1, Outcome::Read(Some((Revision(1), 1))));
        assert_eq!(asked(&mut store, 0, M, swap(1, 3)).1, Outcome::Done(Revision(2)));
    }

    #[test]
    fn the_oldest_copy_is_forgotten_where_too_many_are_kept() {
        let mut store = Store::new(1, Faults::NONE);
        for n in 0..=COPIES_MAX as u64 {
            store.keep_copy();
            assert_eq!(asked(&mut store, 0, P, swap(n, n)).1, Outcome::Done(Revision(n + 1)));
        }
        // The first one was empty.
        assert!((0..200).all(|_| store.restore() && store.record(ISLAND).is_some()));
    }

    #[test]
    fn a_process_that_has_ended_is_told_nothing_and_what_it_asked_is_done() {
        let mut store = Store::new(1, Faults::NONE);
        store.watch(P, ISLAND);
        store.ask(0, P, ISLAND, swap(0, 7));
        store.forget(P);
        assert!(store.advance(u64::MAX).is_empty());
        assert_eq!(store.record(ISLAND), Some(&(Revision(1), 7)));
    }

    #[test]
    fn a_watcher_gets_a_hint_of_each_change_unless_it_is_lost() {
        let hints = |lost_hints, record_of| {
            let mut store = Store::new(1, Faults { lost_hints, ..Faults::NONE });
            store.watch(M, ISLAND);
            store.ask(0, P, record_of, swap(0, 7));
            let told = store.advance(u64::MAX);
            told.iter().filter(|told| **told == Told::Hint { to: M, key: ISLAND }).count()
        };
        assert_eq!(hints(0, ISLAND), 1);
        assert_eq!(hints(100, ISLAND), 0);
        assert_eq!(hints(0, IslandId(1)), 0, "of another island");
    }

    #[test]
    fn one_seed_has_one_course() {
        let course = |seed| {
            let mut store = Store::new(seed, Faults::ALL);
            store.watch(M, ISLAND);
            for n in 0..40 {
                store.ask(n * 1000, P, ISLAND, swap(n, n));
            }
            format!("{:?}", store.advance(u64::MAX))
        };
        assert_eq!(course(3), course(3));
        assert_ne!(course(3), course(4));
    }

    /// Several machines read and swap, with all faults at once: what they are told fits one order of changes, in which
    /// each has its moment between question and answer.
    #[test]
    fn what_is_told_fits_one_order() {
        let (mut unknown_and_done, mut unknown_and_not, mut conflicts, mut reads) = (0, 0, 0, 0);
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut store = Store::new(seed, Faults::ALL);
            // When each revision came to be, and its content. A content is written by one question only.
            let mut course: Vec<(u64, Found)> = vec![(0, None)];
            let mut open: BTreeMap<Ticket, (u64, Request<u64>)> = BTreeMap::new();
            let mut known = [Revision::NONE; 3];
            let mut ended = Vec::new();
            let (mut now, mut n) = (0, 0);
            while n < 60 || store.next_us().is_some() {
                if n < 60 && rng.percent(40) {
                    n += 1;
                    let node = rng.index(known.len());
                    let request = match rng.percent(50) {
                        true => Request::Read,
                        false => Request::Swap { expect: known[node], record: n },
                    };
                    let ticket = store.ask(now, NodeId(node as u16), ISLAND, request.clone());
                    open.insert(ticket, (now, request));
                }
                match rng.below(100) {
                    0 => store.stop(),
                    1..10 => store.start(now),
                    _ => {}
                }
                if n == 60 {
                    store.start(now);
                }
                let Some(((at, _), what)) = store.agenda.pop_first() else {
                    now += 1;
                    continue;
                };
                now = at;
                if let Some(told) = store.happen(at, what) {
                    let Told::Answer { to, ticket, outcome } = told else { panic!("nobody watches") };
                    let (asked_us, request) = open.remove(&ticket).expect("it is told once");
                    match &outcome {
                        Outcome::Read(found) => {
                            known[usize::from(to.0)] = found.map_or(Revision::NONE, |(revision, _)| revision)
                        }
                        Outcome::Done(revision) => known[usize::from(to.0)] = *revision,
                        Outcome::Conflict | Outcome::Unknown => {}
                    }
                    ended.push((asked_us, now, request, outcome));
                }
                if course.last().map(|(_, last)| last.as_ref()) != Some(store.record(ISLAND)) {
                    course.push((now, store.record(ISLAND).copied()));
                }
            }
            assert!(open.is_empty(), "every question ends");
            let until = |at: usize| course.get(at + 1).map_or(u64::MAX, |(us, _)| *us);
            for (asked_us, told_us, request, outcome) in ended {
                // The moments at which the store was as `is` says, and this was under way.
                let any = |is: &dyn Fn(&Found) -> bool| {
                    (0..course.len())
                        .any(|at| is(&course[at].1) && course[at].0 <= told_us && until(at) >= asked_us)
                };
                let revision = |found: &Found| found.map_or(Revision::NONE, |(revision, _)| revision);
                let content =
                    |record: u64| course.iter().find(|(_, found)| found.is_some_and(|f| f.1 == record));
                match (request, outcome) {
                    (Request::Read, Outcome::Read(read)) => {
                        reads += 1;
                        assert!(any(&|found| *found == read), "seed {seed}: {read:?} was never so");
                    }
                    (Request::Swap { record, .. }, Outcome::Done(done)) => {
                        let (us, found) = content(record).expect("it is done");
                        assert_eq!(revision(found), done);
                        assert!((asked_us..=told_us).contains(us), "seed {seed}: done when nobody asked");
                    }
                    (Request::Swap { expect, record }, Outcome::Conflict) => {
                        conflicts += 1;
                        assert_eq!(content(record), None, "seed {seed}: refused and done");
                        assert!(
                            any(&|found| revision(found) != expect),
                            "seed {seed}: nothing was in its way"
                        );
                    }
                    (Request::Swap { record, .. }, Outcome::Unknown) => match content(record) {
                        Some(_) => unknown_and_done += 1,
                        None => unknown_and_not += 1,
                    },
                    (Request::Read, Outcome::Unknown) => {}
                    (request, outcome) => panic!("{request:?} is told {outcome:?}"),
                }
            }
            let revisions = course.iter().map(|(_, found)| found.map_or(0, |(revision, _)| revision.0));
            assert!(revisions.eq(0..course.len() as u64), "seed {seed}: each revision once, in order");
        }
        let all = [unknown_and_done, unknown_and_not, conflicts, reads];
        assert!(all.iter().all(|count| *count > 50), "{all:?}");
    }
}
