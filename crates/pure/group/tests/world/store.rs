//! The control store of the small world: linearizable, and slow. A request may be done late, after it was given up, and an
//! answer may be lost.

use std::collections::BTreeMap;

use atoll_group::SwapOutcome;
use atoll_proto::GroupRecord;

use super::{MS, What, World};

/// A request is given up after this.
const DEADLINE: u64 = 300 * MS;

#[derive(Debug, Clone)]
enum Asked {
    Read,
    Swap(u64, GroupRecord),
}

#[derive(Debug, Clone)]
struct Request {
    group: usize,
    number: u64,
    asked: Asked,
    found: Option<(u64, GroupRecord)>,
    outcome: Option<SwapOutcome>,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Read(u64, Option<(u64, GroupRecord)>),
    Swap(u64, SwapOutcome),
}

/// See the module.
#[derive(Debug)]
pub struct Store {
    /// Of each group revision and record.
    pub records: Vec<(u64, GroupRecord)>,
    requests: BTreeMap<u64, Request>,
    numbers: u64,
    pub away_until: u64,
    /// Of each group the record before the last swap.
    pub before: Vec<GroupRecord>,
    /// It shows an old record, or has done so.
    pub is_put_back: bool,
    /// Of each group all records, and the one that is hidden by an older one.
    history: Vec<Vec<(u64, GroupRecord)>>,
    hidden: BTreeMap<usize, (u64, GroupRecord)>,
    /// The first request after the store was put back.
    put_back_at: u64,
}

impl Store {
    pub fn new(records: Vec<GroupRecord>) -> Self {
        let before = records.clone();
        let history = vec![Vec::new(); records.len()];
        let records = records.into_iter().map(|record| (1, record)).collect();
        Self {
            records,
            requests: BTreeMap::new(),
            numbers: 0,
            away_until: 0,
            before,
            is_put_back: false,
            history,
            hidden: BTreeMap::new(),
            put_back_at: 0,
        }
    }

    pub fn execute(&mut self, request: u64) {
        // What was asked of the store before it was put back, it has forgotten.
        let is_forgotten = request < self.put_back_at;
        let Some(request) = self.requests.get_mut(&request) else { return };
        let is_hidden = self.hidden.contains_key(&request.group);
        let (revision, record) = &mut self.records[request.group];
        match &request.asked {
            Asked::Read => request.found = Some((*revision, record.clone())),
            Asked::Swap(..) if is_forgotten => {}
            Asked::Swap(expect, next) => {
                assert!(
                    !is_hidden || expect != revision,
                    "{next:?} is swapped in behind a record that was put back"
                );
                request.outcome = Some(if *expect == *revision {
                    *revision += 1;
                    self.before[request.group] = record.clone();
                    self.history[request.group].push((*revision - 1, record.clone()));
                    *record = next.clone();
                    SwapOutcome::Done(*revision)
                } else {
                    SwapOutcome::Conflict
                });
            }
        }
    }

    /// Shows the record of an earlier epoch, if there was one; nobody may have seen less than the present one.
    pub fn put_back(&mut self, group: usize, which: u64) {
        let epoch = self.records[group].1.epoch;
        let older: Vec<_> =
            self.history[group].iter().filter(|(_, record)| record.epoch < epoch).cloned().collect();
        if older.is_empty() || self.hidden.contains_key(&group) {
            return;
        }
        self.is_put_back = true;
        self.put_back_at = self.numbers + 1;
        let old = older[which as usize % older.len()].clone();
        self.hidden.insert(group, std::mem::replace(&mut self.records[group], old));
    }

    /// Somebody mends it.
    pub fn mend(&mut self) {
        for (group, record) in std::mem::take(&mut self.hidden) {
            self.records[group] = record;
        }
    }

    /// What is answered; a request that is given up may still be done.
    pub fn take(&mut self, request: u64) -> Option<Answer> {
        let asked = self.requests.get(&request)?.clone();
        Some(match asked.asked {
            Asked::Read => Answer::Read(asked.number, asked.found),
            Asked::Swap(..) => Answer::Swap(asked.number, asked.outcome.unwrap_or(SwapOutcome::Unknown)),
        })
    }
}

impl World {
    pub fn ask_store(&mut self, copy: usize, number: u64, swap: Option<(u64, GroupRecord)>) {
        let machine = self.copies[copy].machine;
        let (group, life) = (self.copies[copy].group, self.machines[machine].life);
        let is_swap = swap.is_some();
        self.store.numbers += 1;
        let request = self.store.numbers;
        let asked = swap.map_or(Asked::Read, |(expect, record)| Asked::Swap(expect, record));
        self.store.requests.insert(request, Request { group, number, asked, found: None, outcome: None });
        let deadline = self.now + DEADLINE;
        let reaches = |world: &Self, a, b| world.cuts.get(&(a, b)).is_none_or(|until| *until <= world.now);
        let (mut there, mut back) = (self.rng.below(8 * MS), self.rng.below(8 * MS));
        let mut is_lost = !reaches(self, machine, super::MACHINES) || self.store.away_until > self.now;
        let mut is_silent = !reaches(self, super::MACHINES, machine);
        if is_swap && !self.is_calm && self.rng.percent(self.chances.swaps) {
            match self.rng.below(4) {
                0 => is_lost = true,
                1 => is_silent = true,
                2 => there += self.rng.below(300 * MS),
                _ => there += self.rng.below(6_000 * MS),
            }
        } else if !self.is_calm && self.rng.percent(self.chances.swaps / 4) {
            there += self.rng.below(200 * MS);
            back += self.rng.below(200 * MS);
        }
        let done = self.now + there;
        if !is_lost {
            self.at(done, What::Execute { request });
        }
        let answered = if is_lost || is_silent { deadline } else { (done + back).min(deadline) };
        self.at(answered, What::Answered { copy, life, request });
    }
}
