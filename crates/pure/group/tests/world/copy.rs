//! One copy of an island in the small world: its disk, its process, and a toy engine that does what the machine says.

use std::collections::BTreeMap;

use atoll_core::{NodeId, Position};
use atoll_group::{Config, Epochs, Group, GroupEffect, GroupEvent, LeadBy, OpenedLog, Promise, SeatFile};
use atoll_proto::EpochTable;

use super::{MS, What, World};

/// A record of the toy log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rec {
    pub epoch: u32,
    pub id: u64,
    /// It changes a body.
    pub body: bool,
}

/// What outlives a process.
#[derive(Debug, Clone)]
pub struct Disk {
    pub log: Vec<Rec>,
    /// So many of them outlive a power cut.
    pub synced: usize,
    pub seat: SeatFile,
    /// The boot in which the log was noted as whole.
    pub boot: u128,
    /// Bodies have bytes of records that were cut off.
    pub torn: bool,
}

impl Disk {
    pub fn is_whole_in(&self, boot: u128) -> bool {
        self.boot == boot
    }
}

/// A process over a copy.
#[derive(Debug)]
pub struct Process {
    pub group: Group,
    pub promise: Promise,
    pub log: Vec<Rec>,
    /// The engine that leads or follows; an event of an earlier one is dropped.
    pub engine: u64,
    pub is_leading: bool,
    pub links: BTreeMap<NodeId, u64>,
    pub payload: Vec<Rec>,
    /// Requests of clients that wait for their record: its number, and whether they want it synced.
    pub waiting: Vec<(u64, Rec)>,
    /// Rounds of syncs, and what they promise.
    pub rounds: BTreeMap<u64, (u64, Rec)>,
    pub numbers: u64,
    pub is_fetching: bool,
    /// Up to where the judge has looked at what the copy calls committed, and synced.
    pub judged: (u64, u64),
}

/// See the module.
#[derive(Debug)]
pub struct Copy {
    pub group: usize,
    pub machine: usize,
    pub ring: Vec<NodeId>,
    pub disk: Disk,
    pub process: Option<Process>,
}

impl Copy {
    pub fn new(group: usize, machine: usize, ring: Vec<NodeId>) -> Self {
        let seat = SeatFile::of_a_new_member();
        let disk = Disk { log: Vec::new(), synced: 0, seat, boot: 1 + machine as u128, torn: false };
        Self { group, machine, ring, disk, process: None }
    }
}

/// A log as the machine wants to know it.
pub fn opened(disk: &Disk, whole: bool) -> OpenedLog {
    let mut ends: Vec<Position> = Vec::new();
    for (seq, rec) in (1..).zip(&disk.log) {
        match ends.last_mut() {
            Some(end) if end.epoch == rec.epoch => end.seq = seq,
            _ => ends.push(Position { epoch: rec.epoch, seq }),
        }
    }
    let epochs = Epochs::new(EpochTable { base: Position::default(), ends }).expect("epochs rise in a log");
    let last_body = disk.log.iter().rposition(|rec| rec.body).map_or(0, |at| at as u64 + 1);
    OpenedLog { whole, epochs, checkpoint: 0, first: 1, last_body, differs: u32::from(disk.torn) }
}

impl World {
    /// A machine's daemon starts, with all its copies.
    pub fn start(&mut self, machine: usize) {
        if self.machines[machine].is_up {
            return;
        }
        self.machines[machine].is_up = true;
        self.machines[machine].life += 1;
        let (life, boot) = (self.machines[machine].life, self.machines[machine].boot);
        self.say(|| format!("machine {machine} starts life {life}"));
        let now_ms = self.clock(machine);
        let me = self.who(machine);
        for copy in 0..self.copies.len() {
            if self.copies[copy].machine != machine {
                continue;
            }
            let c = &mut self.copies[copy];
            let whole = c.disk.is_whole_in(boot);
            // A log is synced when it is opened.
            c.disk.synced = c.disk.log.len();
            let wanted = c.ring.len() as u8;
            let config = Config { me, ring: c.ring.clone(), wanted, tenure_min: 1_000 };
            let (mut promise, mut out) = (Promise::default(), Vec::new());
            let log = opened(&c.disk, whole);
            let group = Group::new(config, c.disk.seat.clone(), log, &mut promise, now_ms, &mut out);
            self.counter += 1;
            self.copies[copy].process = Some(Process {
                group,
                promise,
                log: self.copies[copy].disk.log.clone(),
                engine: self.counter,
                is_leading: false,
                links: BTreeMap::new(),
                payload: Vec::new(),
                waiting: Vec::new(),
                rounds: BTreeMap::new(),
                numbers: 1,
                is_fetching: false,
                judged: (0, 0),
            });
            self.perform(copy, out);
            self.fetch(copy);
            self.after(1, What::Tick { copy, life });
            self.after(2, What::Beat { copy, life });
        }
        for other in 0..super::MACHINES {
            if other != machine {
                let pause = self.rng.below(30 * MS);
                self.after(pause, What::Reconnect { a: machine, b: other });
            }
        }
    }

    pub fn handle(&mut self, copy: usize, event: GroupEvent) {
        let machine = self.copies[copy].machine;
        let now_ms = self.clock(machine);
        let Some(process) = &mut self.copies[copy].process else { return };
        let mut out = Vec::new();
        process.group.handle(&mut process.promise, now_ms, event, &mut out);
        self.perform(copy, out);
    }

    fn perform(&mut self, copy: usize, effects: Vec<GroupEffect>) {
        let machine = self.copies[copy].machine;
        for effect in effects {
            if self.copies[copy].process.is_none() {
                return;
            }
            if let Some(left) = &mut self.machines[machine].crash_in {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.machines[machine].crash_in = None;
                    self.kill(machine);
                    return;
                }
            }
            self.perform_one(copy, effect);
        }
    }

    fn perform_one(&mut self, copy: usize, effect: GroupEffect) {
        let (group, machine) = (self.copies[copy].group, self.copies[copy].machine);
        if !matches!(effect, GroupEffect::Tell { .. } | GroupEffect::Take { .. } | GroupEffect::Sync { .. }) {
            self.say(|| format!("g{group} m{machine} {effect:?}"));
        }
        match effect {
            GroupEffect::SaveSeat(seat) => self.copies[copy].disk.seat = seat,
            GroupEffect::NoteWhole => self.copies[copy].disk.boot = self.machines[machine].boot,
            GroupEffect::Read { number } => self.ask_store(copy, number, None),
            GroupEffect::Swap { number, expect, record } => {
                self.ask_store(copy, number, Some((expect, record)))
            }
            GroupEffect::Tell { to, message } => self.send(copy, to, message),
            GroupEffect::Take { after, upto } => {
                let process = self.copies[copy].process.as_mut().expect("it lives");
                assert_eq!(process.log.len() as u64, after.seq);
                // The frame begins where the records that are there already do.
                let skip = process.payload.len() - (upto.seq - after.seq) as usize;
                let records = process.payload[skip..].to_vec();
                process.log.extend(records);
                self.write(copy);
            }
            GroupEffect::Committed { seq } => {
                self.judge_reached(copy, seq, false);
                self.answer_held(copy);
            }
            GroupEffect::SyncedAll { seq } => self.judge_reached(copy, seq, true),
            GroupEffect::Sync { epoch, number, seq, .. } => self.sync(copy, (epoch, number), seq),
            GroupEffect::RoundDone { number } => {
                let process = self.copies[copy].process.as_mut().expect("it lives");
                if let Some((seq, rec)) = process.rounds.remove(&number) {
                    let judged = &mut self.judge.groups[group];
                    assert_eq!(
                        judged.synced.get(&seq),
                        Some(&rec),
                        "an fsync is answered before its record is synced"
                    );
                }
            }
            GroupEffect::Lead { epoch, by, .. } => {
                let before = self.store.before[group].clone();
                // The claim of one that led cold and has not begun.
                let is_again = before.power_cut && before.in_sync.len() == 1;
                if by == LeadBy::PowerCut && !is_again {
                    self.judge_cold(copy, &before);
                }
                self.judge_lead(copy, epoch, by);
                self.counter += 1;
                let engine = self.counter;
                let process = self.copies[copy].process.as_mut().expect("it lives");
                process.is_leading = true;
                process.engine = engine;
                self.decide(copy, epoch, 1);
            }
            GroupEffect::Close => self.close(copy, None),
            GroupEffect::CutTo { to } => self.close(copy, Some(to.seq as usize)),
            GroupEffect::Refill => panic!("{machine} of group {group} takes rows that nobody has sent"),
            GroupEffect::FillAnew => panic!("{machine} of group {group} must be filled anew"),
            GroupEffect::StoreWentBack { .. } => assert!(self.store.is_put_back, "the store did not go back"),
            GroupEffect::TwoHosts { .. } => {}
        }
    }

    /// The leading island decides records.
    pub fn decide(&mut self, copy: usize, epoch: u32, count: u64) {
        for _ in 0..count {
            self.counter += 1;
            let rec = Rec { epoch, id: self.counter, body: self.rng.percent(50) };
            let process = self.copies[copy].process.as_mut().expect("it lives");
            process.log.push(rec);
            let seq = process.log.len() as u64;
            process.waiting.push((seq, rec));
        }
        let seq = self.copies[copy].process.as_ref().expect("it lives").log.len() as u64;
        self.write(copy);
        self.handle(copy, GroupEvent::Decided { seq });
    }

    fn disk_pause(&mut self, copy: usize, most: u64) -> u64 {
        let until = self.machines[self.copies[copy].machine].disk_until;
        1 + self.rng.below(most) + until.saturating_sub(self.now)
    }

    fn write(&mut self, copy: usize) {
        let pause = self.disk_pause(copy, 2 * MS);
        let life = self.machines[self.copies[copy].machine].life;
        let process = self.copies[copy].process.as_ref().expect("it lives");
        let (engine, upto) = (process.engine, process.log.len());
        self.after(pause, What::Written { copy, life, engine, upto });
    }

    pub fn written(&mut self, copy: usize, life: u32, engine: u64, upto: usize) {
        if !self.is_alive(copy, life) {
            return;
        }
        let c = &mut self.copies[copy];
        let process = c.process.as_mut().expect("it lives");
        // A batch that was appended before the engine led is written all the same.
        if engine != process.engine && !process.is_leading {
            return;
        }
        if upto > process.log.len() || upto <= c.disk.log.len() {
            return;
        }
        let more = process.log[c.disk.log.len()..upto].to_vec();
        c.disk.log.extend(more);
        let last_body = c.disk.log.iter().rposition(|rec| rec.body).map_or(0, |at| at as u64 + 1);
        self.handle(copy, GroupEvent::Written { seq: upto as u64, last_body });
    }

    fn sync(&mut self, copy: usize, round: (u32, u64), seq: u64) {
        let pause = self.disk_pause(copy, 20 * MS);
        let life = self.machines[self.copies[copy].machine].life;
        let c = &self.copies[copy];
        let (engine, upto) = (c.process.as_ref().expect("it lives").engine, c.disk.log.len());
        self.after(pause, What::Synced { copy, life, engine, round, seq, upto });
    }

    pub fn synced(&mut self, copy: usize, life: u32, engine: u64, round: (u32, u64), seq: u64, upto: usize) {
        if !self.is_alive(copy, life) || self.copies[copy].process.as_ref().is_none_or(|p| p.engine != engine)
        {
            return;
        }
        if (upto as u64) < seq {
            // The log was not written so far when the sync began.
            self.sync(copy, round, seq);
            return;
        }
        let disk = &mut self.copies[copy].disk;
        disk.synced = disk.synced.max(upto.min(disk.log.len()));
        let upto = disk.synced as u64;
        self.handle(copy, GroupEvent::Synced { seq: upto });
        if self.is_alive(copy, life) {
            let (epoch, number) = round;
            self.handle(copy, GroupEvent::SyncDone { epoch, number, seq });
        }
    }

    fn close(&mut self, copy: usize, cut: Option<usize>) {
        self.counter += 1;
        let engine = self.counter;
        let life = self.machines[self.copies[copy].machine].life;
        let process = self.copies[copy].process.as_mut().expect("it lives");
        process.is_leading = false;
        process.engine = engine;
        process.waiting.clear();
        process.rounds.clear();
        let pause = self.disk_pause(copy, 60 * MS);
        self.after(pause, What::Opened { copy, life, cut });
    }

    pub fn opened(&mut self, copy: usize, life: u32, cut: Option<usize>) {
        if !self.is_alive(copy, life) {
            return;
        }
        let disk = &mut self.copies[copy].disk;
        if let Some(to) = cut {
            disk.torn |= disk.log[to.min(disk.log.len())..].iter().any(|rec| rec.body);
            disk.log.truncate(to);
        }
        disk.synced = disk.log.len();
        let log = opened(disk, true);
        let records = disk.log.clone();
        let process = self.copies[copy].process.as_mut().expect("it lives");
        (process.log, process.judged) = (records, (0, 0));
        self.handle(copy, GroupEvent::Opened { log });
        self.fetch(copy);
    }

    /// Asks for blocks that differ, some time after the copy was opened.
    pub fn fetch(&mut self, copy: usize) {
        let life = self.machines[self.copies[copy].machine].life;
        let torn = self.copies[copy].disk.torn;
        let Some(process) = self.copies[copy].process.as_mut() else { return };
        if torn && !process.is_fetching {
            process.is_fetching = true;
            let pause = 20 * MS + self.rng.below(100 * MS);
            self.after(pause, What::Fetched { copy, life });
        }
    }

    pub fn fetched(&mut self, copy: usize, life: u32) {
        if !self.is_alive(copy, life) {
            return;
        }
        let machine = self.copies[copy].machine;
        let group = self.copies[copy].group;
        let leader = self.groups[group].iter().copied().find(|other| {
            *other != copy && self.copies[*other].process.as_ref().is_some_and(|process| process.is_leading)
        });
        let process = self.copies[copy].process.as_mut().expect("it lives");
        process.is_fetching = false;
        let matches = leader.is_some_and(|leader| {
            let ours = &self.copies[copy].process.as_ref().expect("it lives").log;
            let theirs = &self.copies[leader].process.as_ref().expect("it leads").log;
            self.reaches(self.copies[leader].machine, machine) && theirs.starts_with(ours)
        });
        if matches {
            self.copies[copy].disk.torn = false;
            self.handle(copy, GroupEvent::Disk { room: u64::MAX, stuck: false, differs: 0 });
        } else {
            self.fetch(copy);
        }
    }

    /// Answers leave, as far as their records are committed and there is a lease.
    pub fn answer_held(&mut self, copy: usize) {
        if !self.may_answer(copy) {
            return;
        }
        let group = self.copies[copy].group;
        let process = self.copies[copy].process.as_mut().expect("it lives");
        let (committed, _) = process.group.reached();
        let (ready, held): (Vec<_>, Vec<_>) =
            process.waiting.drain(..).partition(|(seq, _)| *seq <= committed);
        process.waiting = held;
        let judged = &mut self.judge.groups[group];
        for (seq, rec) in ready {
            assert!(
                judged.led.keys().all(|epoch| *epoch <= rec.epoch),
                "an answer of epoch {} comes too late",
                rec.epoch
            );
            judged.acknowledged.insert(seq, rec);
            judged.answered += 1;
        }
    }

    /// Clients of a group ask for changes, and for syncs.
    pub fn client(&mut self, group: usize) {
        let pause = 20 * MS + self.rng.below(80 * MS);
        self.after(pause, What::Client { group });
        if self.judge.is_over {
            return;
        }
        for copy in self.groups[group].clone() {
            let frozen = self.machines[self.copies[copy].machine].frozen_until > self.now;
            let Some(process) = &self.copies[copy].process else { continue };
            if frozen || !process.is_leading || !process.group.may_decide() {
                continue;
            }
            let epoch = process.promise.named(u64::MIN).expect("it leads");
            let count = if self.rng.percent(3) { 1 + self.rng.below(400) } else { 1 + self.rng.below(4) };
            self.decide(copy, epoch, count);
            let wants_sync = self.rng.percent(40);
            let Some(process) = self.copies[copy].process.as_mut() else { continue };
            if wants_sync && process.is_leading {
                process.numbers += 1;
                let (number, seq) = (process.numbers, process.log.len() as u64);
                let rec = *process.log.last().expect("it has decided");
                process.rounds.insert(number, (seq, rec));
                self.handle(copy, GroupEvent::SyncAll { number, seq, bodies: Vec::new() });
            }
        }
    }
}
