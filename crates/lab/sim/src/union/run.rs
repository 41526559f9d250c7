//! A run: clients of unions, programs beside them, and what happens to members, in an order that the seed draws.

use std::collections::BTreeMap;

use atoll_core::Ino;
use atoll_model::rng::Rng;
use atoll_posix::{Answer, Errno};
use atoll_union::{
    AwayRule, Finished, NativeCall, NativeId, NativeReply, PlaceRule, SameRule, Settings, UnlinkRule,
};

use super::job::{Job, Next, What, path};
use super::judge::{Judge, names};
use super::members::{Members, Snapshot, is_change};
use super::process::Process;
use super::rest;
use crate::cause::Failure;
use crate::scenario::Run;

/// What happens beside the clients of one union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Members are full or read-only for a while.
    Alone,
    /// Programs use the members.
    Direct,
    /// Another union shows some of the members, too.
    Two,
    /// Members go away and come back.
    Away,
    /// Members hang.
    Hang,
}

/// More calls than the operations that are under way when all comes to rest can need.
const CALLS_MAX: usize = 10_000;

/// Clients of each union.
const CLIENTS: usize = 3;

/// See the module.
struct Sim<'r> {
    kind: Kind,
    rng: Rng,
    run: &'r mut Run,
    members: Members,
    processes: Vec<Process>,
    /// By process and task. Those of ended operations stay while calls of theirs may be made.
    jobs: BTreeMap<(usize, u64), Job>,
    /// What each client does: the task that it waits for.
    busy: Vec<Option<u64>>,
    /// The file that each client has open.
    open: Vec<Option<(Ino, usize, NativeId)>>,
}

/// Settings of a union.
pub(super) fn draw_settings(rng: &mut Rng) -> Settings {
    let places = [PlaceRule::Dir, PlaceRule::Manager, PlaceRule::Room, PlaceRule::Existing, PlaceRule::First];
    let mut settings = Settings { place: *rng.pick(&places), ..Settings::default() };
    if rng.percent(40) {
        settings.same = *rng.pick(&[SameRule::First, SameRule::Both]);
    }
    if rng.percent(20) {
        settings.unlink = UnlinkRule::All;
    }
    if rng.percent(20) {
        settings.away = AwayRule::Hide;
    }
    settings
}

/// Trees that were there before the union: files, directories, and copies of files in other members.
pub(super) fn plant_trees(rng: &mut Rng, members: &mut Members) {
    for _ in 0..rng.below(24) {
        let (member, path) = (rng.index(members.len()), path(rng));
        match rng.below(5) {
            0..2 => members.mkdir(member, &path, 0o750 + rng.below(4) as u32),
            2..4 => members.put(member, &path, None),
            _ => {
                let from = rng.index(members.len());
                let node = members.now(from).file(&path).cloned();
                node.and_then(|node| members.put(member, &path, Some(&node)))
            }
        };
    }
}

/// Runs one.
pub(crate) fn run(run: &mut Run, kind: Kind) -> Result<(), Failure> {
    let mut rng = Rng::new(run.seed);
    // Clocks of file systems tick every few milliseconds.
    let coarse = kind == Kind::Direct && rng.percent(40);
    let tick_ns = if coarse { *rng.pick(&[1_000_000, 4_000_000, 10_000_000]) } else { 1_000 };
    let mut members = Members::new(2 + rng.index(3), tick_ns);
    plant_trees(&mut rng, &mut members);
    // The twins of before the union began must be older than it, also by the coarsest clock.
    members.now_ns += 50_000_000;
    let feeds = kind == Kind::Alone || rng.percent(70);
    for member in &members.all {
        let (none, late, few) = (!feeds || rng.percent(15), rng.percent(30), rng.percent(30));
        member.tree.set_faults(|faults| {
            faults.feed_none = none;
            if kind != Kind::Alone {
                faults.feed_delay_ms = if late { 200 } else { 0 };
                faults.feed_max = if few { 2 } else { usize::MAX };
            }
        });
    }
    let unions = if kind == Kind::Two { 2 } else { 1 };
    let mut processes = Vec::new();
    for number in 0..unions {
        let mut of: Vec<usize> = (0..members.len()).collect();
        if number > 0 && of.len() > 2 {
            of.remove(rng.index(of.len()));
        }
        if number > 0 || rng.percent(30) {
            of.reverse();
        }
        let of = of.into_iter().map(|at| (at, kind == Kind::Alone && rng.percent(8))).collect();
        let (settings, watches) = (draw_settings(&mut rng), rng.percent(85));
        let mut process = Process::new(number, &members, of, settings, watches);
        process.intents = rng.percent(70).then(Default::default);
        processes.push(process);
    }
    let clients = CLIENTS * unions;
    let steps = run.steps;
    let mut sim = Sim {
        kind,
        rng,
        run,
        members,
        processes,
        jobs: BTreeMap::new(),
        busy: vec![None; clients],
        open: vec![None; clients],
    };
    for step in 0..steps {
        sim.step()?;
        if step % 16 == 0 {
            sim.tidy();
        }
    }
    sim.end()
}

impl Sim<'_> {
    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.run.notes.note(self.members.now_ns / 1_000, what);
    }

    fn step(&mut self) -> Result<(), Failure> {
        for at in 0..self.processes.len() {
            if self.processes[at].next_house_ns <= self.members.now_ns {
                self.keep_house(at)?;
            }
        }
        match self.rng.below(100) {
            0..70 => self.go_on(),
            70..90 => {
                let client = self.rng.index(self.busy.len());
                match self.busy[client] {
                    None => self.begin(client),
                    Some(_) => self.go_on(),
                }
            }
            90..93 => {
                self.pass();
                Ok(())
            }
            93..95 => {
                self.forget();
                Ok(())
            }
            _ => {
                self.happen();
                Ok(())
            }
        }
    }

    /// A call of some union is made, or its machine told of an answer.
    fn go_on(&mut self) -> Result<(), Failure> {
        let at = self.rng.index(self.processes.len());
        let ready: Vec<usize> = (0..self.processes[at].calls.len())
            .filter(|call| self.processes[at].can_go_on(&self.members, *call))
            .collect();
        if ready.is_empty() {
            return Ok(());
        }
        let call = *self.rng.pick(&ready);
        self.step_call(at, call)?;
        // Mostly a thread makes a call and tells of it at once.
        if self.processes[at].calls.get(call).is_some_and(|call| call.answer.is_some())
            && self.rng.percent(70)
        {
            self.step_call(at, call)?;
        }
        self.take_ended(at)
    }

    /// The next step of a call: it is made, or told of.
    fn step_call(&mut self, at: usize, call: usize) -> Result<(), Failure> {
        let process = &mut self.processes[at];
        let (task, member) = (process.calls[call].task, process.calls[call].member);
        let native = process.calls[call].call.clone();
        if process.calls[call].answer.is_some() {
            process.tell(&self.members, call);
            return Ok(());
        }
        let changes = is_change(&native);
        let before: Option<Snapshot> = changes.then(|| self.members.now(member).clone());
        let moment = self.members.moment;
        process.make(&mut self.members, call);
        let answer = process.calls[call].answer.clone().expect("it was made");
        self.note(format_args!("union {at} task {task} member {member}: {native:?}: {answer:?}"));
        let job = self.jobs.get_mut(&(at, task)).expect("a task has a job");
        job.left |= job.acted && changes && answer.is_err();
        if let (NativeCall::CopyOf { of }, Ok(_)) = (&native, &answer) {
            job.like.push((member, of.id));
        }
        if let NativeCall::Rmdir { id, .. } = &native {
            job.back.retain(|back| *back != (member, *id));
        }
        let (Some(before), Ok(reply)) = (before, &answer) else { return Ok(()) };
        let judge = Judge::new(&self.members, &self.processes[at], job);
        judge.changed(member, &native, &before)?;
        job.changes += self.members.moment - moment;
        job.changed(member, &native, reply);
        if let (NativeCall::MkdirLike { .. }, NativeReply::Stat(made)) = (&native, reply) {
            let is_there = |(at, id): &(usize, NativeId)| self.members.now(*at).path_of(*id).is_some();
            if !job.like.iter().any(is_there) {
                job.back.push((member, made.id));
            }
        }
        Ok(())
    }

    /// A client begins a job.
    fn begin(&mut self, client: usize) -> Result<(), Failure> {
        let (what, from, to) = (What::draw(&mut self.rng), path(&mut self.rng), path(&mut self.rng));
        let from = if what == What::List && self.rng.percent(30) { String::new() } else { from };
        let process = client / CLIENTS;
        let mut job = Job::new(client, process, what, &from, &to);
        match (what, self.open[client]) {
            (What::HeldWrite, None) => return Ok(()),
            (What::HeldWrite, held) => job.held = held,
            _ => {}
        }
        if matches!(what, What::Write | What::HeldWrite) {
            job.data = self.members.fresh_bytes();
        }
        let under_way = self.processes[process].under_way.values().copied();
        let others = self.jobs.values().filter(|job| job.process == process).map(|job| job.began);
        let seen = self.members.seen_from(process);
        job.since = under_way.chain(others).fold(seen, u64::min);
        job.gone = self.processes[process].gone.clone();
        self.note(format_args!("client {client}: {what:?} {from} {to}"));
        self.go(job)
    }

    /// A job begins its next operation, or has ended.
    fn go(&mut self, mut job: Job) -> Result<(), Failure> {
        let (process, client) = (job.process, job.client);
        match job.next() {
            Next::Nothing => {
                self.busy[client] = None;
                Ok(())
            }
            Next::Op(op, bytes) => {
                (job.began, job.began_ns) = (self.members.moment, self.members.now_ns);
                self.run.operations += 1;
                let task = self.processes[process].start(&self.members, op, bytes);
                self.busy[client] = Some(task);
                self.jobs.insert((process, task), job);
                self.take_ended(process)
            }
        }
    }

    /// Operations that have ended are judged, and their jobs go on.
    fn take_ended(&mut self, at: usize) -> Result<(), Failure> {
        while !self.processes[at].ended.is_empty() {
            let (task, outcome) = self.processes[at].ended.remove(0);
            self.ended(at, task, outcome)?;
        }
        Ok(())
    }

    fn ended(&mut self, at: usize, task: u64, outcome: Result<Finished, Errno>) -> Result<(), Failure> {
        let Some(mut job) = self.jobs.remove(&(at, task)) else {
            return Ok(());
        };
        if job.given_up {
            return Ok(()); // Its client was answered.
        }
        self.note(format_args!("union {at} task {task}: {outcome:?}"));
        let calls = self.processes[at].calls.iter().any(|call| call.task == task);
        let is_given_up = outcome == Err(Errno::ETIMEDOUT) && calls;
        job.given_up = is_given_up;
        let judge = Judge::new(&self.members, &self.processes[at], &job);
        if !job.is_acting() {
            let path = job.step().map(|(_, path)| path.to_owned()).expect("it walks");
            judge.looked(&path, &outcome)?;
            let Ok(Finished { answer: Answer::Found { found }, .. }) = outcome else {
                return self.done(job, at, task);
            };
            let is_dir = found.attr.kind == atoll_posix::Kind::Directory;
            job.stepped(found.attr.ino, is_dir);
            if !is_dir && self.rng.percent(30) {
                self.hold(job.client, at, found.attr.ino);
            }
            return self.go(job);
        }
        if job.what == What::List {
            let end = match outcome {
                Ok(Finished { answer: Answer::Entries { entries, eof }, .. }) => {
                    if !eof && entries.is_empty() {
                        return Err(Failure::new(format!(
                            "{}: an answer without a name is taken for the end",
                            job.from
                        )));
                    }
                    job.listed(names(&entries));
                    if !eof {
                        return self.go(job);
                    }
                    Ok(())
                }
                Ok(other) => return Err(Failure::new(format!("a listing: {other:?}"))),
                Err(errno) => Err(errno),
            };
            Judge::new(&self.members, &self.processes[at], &job).listed(&end)?;
            return self.done(job, at, task);
        }
        judge.ended(&outcome)?;
        self.done(job, at, task)
    }

    fn done(&mut self, job: Job, at: usize, task: u64) -> Result<(), Failure> {
        self.busy[job.client] = None;
        if job.given_up {
            self.jobs.insert((at, task), job);
        }
        Ok(())
    }

    /// The client has the file open from now on.
    fn hold(&mut self, client: usize, at: usize, ino: Ino) {
        let of = self.processes[at].of.clone();
        let found = of.into_iter().find_map(|member| {
            let mut nodes = self.members.now(member).all();
            let is = |(_, node): &(&String, &super::members::Node)| {
                super::spec::is_id(&self.processes[at], ino, member, node.stat.id.ino)
            };
            nodes.find(is).map(|(_, node)| (ino, member, node.stat.id))
        });
        // As the machine knows it: the file of this number may be another one by now.
        let known = self.processes[at].machine.place_of(ino).map(|(_, place)| place.id);
        self.open[client] = found.filter(|(.., id)| known == Some(*id));
    }

    fn keep_house(&mut self, at: usize) -> Result<(), Failure> {
        self.processes[at].keep_house(&mut self.members);
        self.take_ended(at)
    }

    /// Time passes. Little, if a thread has not told of an answer yet.
    fn pass(&mut self) {
        let untold = self.processes.iter().any(|p| p.calls.iter().any(|call| call.answer.is_some()));
        let ms = match self.rng.below(4) {
            _ if untold => self.rng.below(3),
            0 => 100 + self.rng.below(900),
            1 if self.kind == Kind::Hang => 2_000 + self.rng.below(4_000),
            _ => 1 + self.rng.below(60),
        };
        for _ in 0..ms.div_ceil(50) {
            self.members.now_ns += 1_000_000 * ms.min(50);
            for at in 0..self.processes.len() {
                if self.processes[at].next_house_ns <= self.members.now_ns {
                    self.processes[at].keep_house(&mut self.members);
                }
            }
        }
    }

    /// A frontend forgets something that nobody uses.
    fn forget(&mut self) {
        let at = self.rng.index(self.processes.len());
        let used = |ino: &Ino| {
            let of = |job: &&Job| job.process == at;
            let walks = |job: &Job| job.at.0 == *ino || job.walked.iter().any(|(walked, _)| walked == ino);
            self.jobs.values().filter(of).any(walks)
                || self.open.iter().flatten().any(|(held, ..)| held == ino)
        };
        let unused: Vec<Ino> = self.processes[at].told.iter().copied().filter(|ino| !used(ino)).collect();
        if !unused.is_empty() {
            let ino = *self.rng.pick(&unused);
            self.note(format_args!("union {at}: forget {ino:?}"));
            self.processes[at].forget(&mut self.members, &[ino]);
        }
    }

    /// Something that no client does.
    fn happen(&mut self) {
        let member = self.rng.index(self.members.len());
        match self.kind {
            Kind::Alone | Kind::Two => self.impoverish(member),
            Kind::Direct => self.directly(member),
            Kind::Away => self.come_or_go(member),
            Kind::Hang => self.hang(member),
        }
    }

    /// A member has no room left, or takes no change, or that ends.
    fn impoverish(&mut self, member: usize) {
        if self.rng.percent(50) {
            return;
        }
        let poor = !self.members.all[member].is_poor;
        let how = self.rng.below(3);
        self.note(format_args!("member {member} is poor: {poor} {how}"));
        self.members.all[member].is_poor |= poor;
        self.members.all[member].tree.set_faults(|faults| {
            faults.read_only = poor && how == 0;
            // A file that grows in a full member is moved, which is not judged here: only new files find no room.
            faults.inodes_max = if poor && how > 0 { 6 } else { u64::MAX };
        });
        match (poor, how) {
            (true, 0) => self.run.injected.read_only += 1,
            (true, _) => self.run.injected.full += 1,
            // Errors of before may still be told.
            _ => {}
        }
        if !poor && self.jobs.is_empty() {
            self.members.all[member].is_poor = false;
        }
    }

    /// A program changes a member.
    fn directly(&mut self, member: usize) {
        let (from, to) = (path(&mut self.rng), path(&mut self.rng));
        let (what, done) = match self.rng.below(12) {
            0..4 => ("put", self.members.put(member, &from, None)),
            4..8 => ("mkdir", self.members.mkdir(member, &from, 0o755)),
            8..11 => ("remove", self.members.remove(member, &from)),
            _ => ("rename", self.members.rename(member, &from, &to)),
        };
        if done.is_some() {
            self.note(format_args!("directly in {member}: {what} {from} {to}"));
        }
    }

    fn come_or_go(&mut self, member: usize) {
        if self.rng.percent(60) {
            return;
        }
        let away = !self.members.all[member].away;
        if !away && self.rng.percent(50) {
            self.directly(member); // Somebody has used the disk elsewhere.
        }
        self.note(format_args!("member {member} is away: {away}"));
        if away {
            let moment = self.members.moment;
            self.processes.iter_mut().for_each(|process| _ = process.gone.entry(member).or_insert(moment));
        }
        self.members.set_away(member, away);
        self.run.injected.pulled += u64::from(away);
    }

    fn hang(&mut self, member: usize) {
        if self.rng.percent(60) {
            return;
        }
        let hangs = self.members.all[member].hangs_since_ns.is_none();
        self.note(format_args!("member {member} hangs: {hangs}"));
        self.members.set_hangs(member, hangs);
        self.run.injected.slow += u64::from(hangs);
    }

    /// Drops what no judge asks for any more.
    fn tidy(&mut self) {
        let jobs = self.jobs.values().map(|job| job.since.min(job.began));
        let gone = self.jobs.values().flat_map(|job| job.gone.values());
        let gone = gone.chain(self.processes.iter().flat_map(|process| process.gone.values())).copied();
        let oldest = jobs.chain(gone).fold(self.members.oldest_unseen(), u64::min);
        self.members.forget_before(oldest);
    }

    /// Everything comes to rest, and is judged.
    fn end(mut self) -> Result<(), Failure> {
        for member in 0..self.members.len() {
            if self.members.all[member].away {
                self.members.set_away(member, false);
            }
            if self.members.all[member].hangs_since_ns.is_some() {
                self.members.set_hangs(member, false);
            }
            let tree = &self.members.all[member].tree;
            tree.set_faults(|f| (f.read_only, f.inodes_max, f.bytes_max) = (false, u64::MAX, u64::MAX));
        }
        self.note(format_args!("all comes to rest"));
        for at in 0..self.processes.len() {
            for _ in 0..CALLS_MAX {
                let Some(call) = self.processes[at].calls.iter().position(|_| true) else { break };
                self.step_call(at, call)?;
                self.take_ended(at)?;
            }
            if !self.processes[at].calls.is_empty() {
                return Err(Failure::new("an operation never ends"));
            }
            if self.processes[at].machine.under_way() > 0 {
                return Err(Failure::new("an operation waits for nothing"));
            }
        }
        for _ in 0..13 {
            self.members.now_ns += 100_000_000;
            for at in 0..self.processes.len() {
                self.keep_house(at)?;
            }
        }
        rest::is_ours_nowhere(&self.members)?;
        for at in 0..self.processes.len() {
            let process = &mut self.processes[at];
            rest::shows_members(&mut self.members, process, false)?;
            let of = process.of.iter().map(|member| (*member, false)).collect();
            let mut fresh = Process::new(9, &self.members, of, process.settings, true);
            rest::shows_members(&mut self.members, &mut fresh, true)?;
            rest::holds_nothing(&mut self.members, &mut self.processes[at])?;
        }
        self.run.virtual_us = self.members.now_ns / 1_000;
        Ok(())
    }
}
