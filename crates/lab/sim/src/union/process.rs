//! A process that shows a union: the product's machine, and its calls to members, which are made and told of in any order. Does
//! what `io/federal` does with threads. Never judges.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, Time};
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Answer, Caller, Errno, Op, RequestOptions};
use atoll_union::{
    Direction, Finished, FrontendId, Intent, Member, MemberState, Moment, NativeCall, NativeId, NativeReply,
    Planned, Reach, Settings, Tag, Union, UnionEffect, UnionRequest, Who,
};
use bytes::Bytes;

use super::members::Members;

/// How often it looks what has changed in members.
const PERIOD_NS: u64 = 100_000_000;

/// A call to a member that was not answered yet, or of whose answer the machine was not told.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) task: u64,
    index: u32,
    pub(super) member: usize,
    who: Who,
    pub(super) call: NativeCall,
    bytes: Bytes,
    issued_ns: u64,
    pub(super) answer: Option<Result<NativeReply, Errno>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Process {
    /// Which union of the run this is.
    pub(super) number: usize,
    pub(super) machine: Union,
    pub(super) settings: Settings,
    /// Its members in the user's order.
    pub(super) of: Vec<usize>,
    trees: BTreeMap<usize, SimTree>,
    pub(super) calls: Vec<Call>,
    /// Operations under way, those among them that were given up, and the moment at which each began.
    pub(super) under_way: BTreeMap<u64, u64>,
    /// What the frontend was told of and has not forgotten.
    pub(super) told: BTreeSet<Ino>,
    /// Operations that have ended, in order.
    pub(super) ended: Vec<(u64, Result<Finished, Errno>)>,
    /// When the members that had trouble last answered again, as moments.
    healed: BTreeMap<usize, u64>,
    /// When the members went that are away and were not opened again, as moments.
    pub(super) gone: BTreeMap<usize, u64>,
    pub(super) began: Time,
    pub(super) next_house_ns: u64,
    unclosed: Vec<Planned>,
    /// Renames in several members that are over, and whose directories are not synced yet.
    unsynced: Vec<(u64, Vec<(Tag, NativeId)>)>,
    /// What is written down for renames in several members. None: there is nowhere to write.
    pub(super) intents: Option<BTreeMap<u64, Intent>>,
    /// Those of them that are in doubt in members that do not answer.
    in_doubt: BTreeSet<u64>,
    next: u64,
}

/// A way to the members of an intent.
struct Reached<'a> {
    members: RefCell<&'a mut Members>,
    trees: &'a BTreeMap<usize, SimTree>,
    number: usize,
}

impl Reach for Reached<'_> {
    fn root(&self, tag: Tag) -> Option<NativeId> {
        self.trees.get(&member_of(tag)).map(|tree| tree.root().id)
    }

    fn call(&self, tag: Tag, call: &NativeCall) -> Result<NativeReply, Errno> {
        let member = member_of(tag);
        let tree = self.trees.get(&member).ok_or(Errno::EIO)?;
        self.members.borrow_mut().call(member, Some((self.number, tree)), &Who::Daemon, call, &[])
    }

    fn decided(&mut self, _: Direction) -> Result<(), Errno> {
        Ok(())
    }
}

/// Settles a rename that was cut off. Whether nothing of it is left to settle.
pub(super) fn settle(
    intent: &mut Intent,
    number: usize,
    members: &mut Members,
    trees: &BTreeMap<usize, SimTree>,
) -> bool {
    let mut reached = Reached { members: RefCell::new(members), trees, number };
    intent.settle(&mut reached).is_ok_and(|missing| missing.is_empty())
}

/// The only frontend of each union.
fn frontend() -> FrontendId {
    FrontendId::new(0).expect("there may be several")
}

/// The tag of a member.
pub(super) const fn tag(member: usize) -> Tag {
    Tag(member as u16 + 1)
}

/// The member of a tag.
pub(super) const fn member_of(tag: Tag) -> usize {
    tag.0 as usize - 1
}

fn moment(members: &Members) -> Moment {
    Moment { ms: members.now_ns / 1_000_000, wall: Time::from_nanos(members.now_ns) }
}

impl Process {
    pub(super) fn new(
        number: usize,
        members: &Members,
        of: Vec<(usize, bool)>,
        settings: Settings,
        watches: bool,
    ) -> Self {
        let now = moment(members);
        let trees: BTreeMap<usize, SimTree> =
            of.iter().map(|(at, _)| (*at, members.all[*at].tree.another())).collect();
        let shown = of.iter().map(|(at, read_only)| Member {
            tag: tag(*at),
            root: trees[at].root(),
            read_only: *read_only,
            state: MemberState::Serving,
            since: now.ms,
            losses: 0,
            space: None,
        });
        Self {
            number,
            machine: Union::new(settings, shown.collect(), watches, now),
            settings,
            of: of.iter().map(|(at, _)| *at).collect(),
            trees,
            calls: Vec::new(),
            under_way: BTreeMap::new(),
            told: BTreeSet::new(),
            ended: Vec::new(),
            healed: BTreeMap::new(),
            gone: BTreeMap::new(),
            began: now.wall,
            next_house_ns: members.now_ns,
            unclosed: Vec::new(),
            unsynced: Vec::new(),
            intents: None,
            in_doubt: BTreeSet::new(),
            next: 1,
        }
    }

    /// Whether a member has not always answered since a moment, or this union does not know yet that it does.
    pub(super) fn is_troubled(&self, members: &Members, member: usize, from: u64) -> bool {
        let there = &members.all[member];
        let believed = self.machine.members().get(tag(member)).map(|member| member.state);
        there.away
            || self.is_away(member)
            || there.hangs_since_ns.is_some()
            || believed != Some(MemberState::Serving)
            || self.healed.get(&member).is_some_and(|healed| *healed >= from)
    }

    /// Whether the disk has gone that it has open, also if it is back by now.
    fn is_away(&self, member: usize) -> bool {
        self.trees[&member].state() == TreeState::Away
    }

    /// Whether any of its members was away or hung before.
    pub(super) fn had_trouble(&self) -> bool {
        !self.healed.is_empty()
    }

    /// How many directories it has open in a member.
    pub(super) fn opened_dirs(&self, member: usize) -> usize {
        self.trees[&member].opened_dirs()
    }

    /// Starts an operation.
    pub(super) fn start(&mut self, members: &Members, op: Op, bytes: Bytes) -> u64 {
        let id = self.next;
        self.next += 1;
        let request = UnionRequest { caller: Caller::ROOT, options: RequestOptions::default(), op, bytes };
        self.under_way.insert(id, members.moment);
        let mut effects = Vec::new();
        self.machine.start(moment(members), (id, frontend()), request, &mut effects);
        self.take(members, effects);
        id
    }

    fn take(&mut self, members: &Members, effects: Vec<UnionEffect>) {
        for effect in effects {
            match effect {
                UnionEffect::Call { task, index, tag, who, call, bytes } => {
                    let (member, issued_ns, answer) = (member_of(tag), members.now_ns, None);
                    self.calls.push(Call { task, index, member, who, call, bytes, issued_ns, answer });
                }
                UnionEffect::Intend { task, intent } => {
                    let kept = self.intents.as_mut().map(|intents| _ = intents.insert(task, intent));
                    let mut more = Vec::new();
                    let outcome = kept.ok_or(Errno::EXDEV);
                    self.machine.intended(moment(members), task, outcome, &mut more);
                    self.take(members, more);
                }
                UnionEffect::IntentOver { task, over } => {
                    let intents = self.intents.get_or_insert_default();
                    if over.in_doubt.is_empty() {
                        self.unsynced.push((task, over.dirs));
                    } else {
                        intents.insert(task, over.intent);
                        self.in_doubt.insert(task);
                    }
                }
                UnionEffect::Ended { task, outcome } => {
                    self.under_way.remove(&task);
                    match &outcome {
                        Ok(Finished { answer: Answer::Found { found }, .. }) => {
                            self.told.insert(found.attr.ino);
                        }
                        Ok(Finished { answer: Answer::Entries { entries, .. }, .. }) => {
                            let objects = entries.iter().filter_map(|entry| entry.found.as_ref());
                            self.told.extend(objects.map(|found| found.attr.ino));
                        }
                        _ => {}
                    }
                    self.ended.push((task, outcome));
                }
            }
        }
    }

    /// Whether a call can go on now: it is answered, or its member answers.
    pub(super) fn can_go_on(&self, members: &Members, at: usize) -> bool {
        let call = &self.calls[at];
        // An operation makes its calls to a member one after another.
        let is_first = |before: &Call| {
            (before.task, before.member) != (call.task, call.member) || before.answer.is_some()
        };
        if !self.calls[..at].iter().all(is_first) {
            return false;
        }
        let hangs = members.all[call.member].hangs_since_ns.is_some();
        // One that was made before the member was known to hang does not return.
        let fails = members.is_stuck(call.member)
            && members.stuck_at_ns(call.member).is_some_and(|stuck| call.issued_ns >= stuck);
        call.answer.is_some() || !hangs || fails
    }

    /// Makes a call.
    pub(super) fn make(&mut self, members: &mut Members, at: usize) {
        let Call { member, who, call, bytes, .. } = &self.calls[at];
        let (member, process) = (*member, Some((self.number, &self.trees[member])));
        let answer = members.call(member, process, who, call, bytes);
        let serves = !self.is_away(member) && !members.is_stuck(member);
        if matches!(answer, Err(Errno::EIO | Errno::ETIMEDOUT)) && !serves {
            self.note_state(members, member);
        }
        self.calls[at].answer = Some(answer);
    }

    /// Tells the machine of the answer to a call.
    pub(super) fn tell(&mut self, members: &Members, at: usize) {
        let Call { task, index, answer, .. } = self.calls.remove(at);
        let mut effects = Vec::new();
        let answer = answer.expect("it was made");
        self.machine.answered(moment(members), task, index, answer, &mut effects);
        self.take(members, effects);
    }

    fn note_state(&mut self, members: &mut Members, member: usize) {
        let state = match () {
            () if self.is_away(member) => MemberState::Away,
            () if members.is_stuck(member) => MemberState::Stuck,
            () => MemberState::Serving,
        };
        let before = self.machine.members().get(tag(member)).map(|member| member.state);
        if before != Some(state) {
            if state == MemberState::Serving && !self.settle_doubts(members, member) {
                return; // It does not serve before that.
            }
            self.machine.member_is(moment(members), tag(member), state);
            members.happened();
            self.healed.insert(member, members.moment);
            members.happened();
        }
    }

    /// Settles what is in doubt in a member that answers again.
    fn settle_doubts(&mut self, members: &mut Members, member: usize) -> bool {
        let mut all = true;
        let Some(intents) = &mut self.intents else { return true };
        self.in_doubt.retain(|task| {
            let Some(intent) = intents.get_mut(task) else { return false };
            if !intent.steps.iter().any(|step| member_of(step.tag) == member) {
                return true;
            }
            let over = settle(intent, self.number, members, &self.trees);
            all &= over;
            if over {
                intents.remove(task);
            }
            !over
        });
        all
    }

    /// What this process does every 100 ms.
    pub(super) fn keep_house(&mut self, members: &mut Members) {
        self.next_house_ns = members.now_ns + PERIOD_NS;
        let mut late = Vec::new();
        let before = self.under_way.clone();
        self.machine.give_up_late(moment(members), &mut late);
        self.take(members, late);
        // A call of an operation that was given up may still be made.
        let is_called = |task: &u64| self.calls.iter().any(|call| call.task == *task);
        let given_up = before.into_iter().filter(|(task, _)| is_called(task));
        self.under_way.extend(given_up);
        let calls = self.machine.sweep();
        self.let_go(members, calls);
        self.sync_renames(members);
        for member in self.of.clone() {
            let believed = self.machine.members().get(tag(member)).map(|member| member.state);
            if believed == Some(MemberState::Away) && self.trees[&member].reopen() == Ok(true) {
                self.gone.remove(&member);
            }
            self.note_state(members, member);
            if self.is_away(member) || members.all[member].hangs_since_ns.is_some() {
                continue;
            }
            self.trees[&member].set_clock(Time::from_nanos(members.now_ns), 0);
            let changes = self.trees[&member].changes();
            self.machine.changed(moment(members), tag(member), &changes);
            let unclosed = self.unclosed.extract_if(.., |planned| member_of(planned.tag) == member);
            let unclosed: Vec<Planned> = unclosed.collect();
            self.let_go(members, unclosed);
            if let Ok(NativeReply::Space(space)) =
                self.trees[&member].call(&Who::Daemon, &NativeCall::Space, &[])
            {
                self.machine.space(tag(member), space);
            }
        }
    }

    /// An intent stays until its members have synced what was renamed in them.
    fn sync_renames(&mut self, members: &mut Members) {
        for (task, dirs) in std::mem::take(&mut self.unsynced) {
            let mut synced = |(tag, dir): &(Tag, NativeId)| {
                let (member, sync) = (member_of(*tag), NativeCall::FsyncDir { dir: *dir });
                let process = Some((self.number, &self.trees[&member]));
                let told = members.call(member, process, &Who::Daemon, &sync, &[]);
                !matches!(told, Err(Errno::EIO | Errno::ETIMEDOUT))
            };
            let left: Vec<_> = dirs.into_iter().filter(|dir| !synced(dir)).collect();
            match (left.is_empty(), &mut self.intents) {
                (true, Some(intents)) => _ = intents.remove(&task),
                _ => self.unsynced.push((task, left)),
            }
        }
    }

    /// The process dies. What it has written down of renames in several members.
    pub(super) fn die(&mut self) -> BTreeMap<u64, Intent> {
        self.trees.values().for_each(SimTree::kill_process);
        self.intents.take().unwrap_or_default()
    }

    /// Its ways to members.
    pub(super) fn trees(&self) -> &BTreeMap<usize, SimTree> {
        &self.trees
    }

    /// The frontend does not know these any more.
    pub(super) fn forget(&mut self, members: &mut Members, inos: &[Ino]) {
        inos.iter().for_each(|ino| _ = self.told.remove(ino));
        let calls = self.machine.forget(frontend(), inos);
        self.let_go(members, calls);
    }

    fn let_go(&mut self, members: &mut Members, calls: Vec<Planned>) {
        for planned in calls {
            let member = member_of(planned.tag);
            let asks_nothing = matches!(planned.call, NativeCall::ForgetDirs { .. });
            let hangs = members.all[member].hangs_since_ns.is_some();
            if hangs && !asks_nothing {
                self.unclosed.push(planned);
                continue;
            }
            let process = Some((self.number, &self.trees[&member]));
            // A member that is away has let go already.
            let _ = members.call(member, process, &planned.who, &planned.call, &[]);
        }
    }
}
