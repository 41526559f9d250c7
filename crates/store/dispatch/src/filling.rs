//! What a copy asks its primary for beside records, and what it answers to others: rows, when it has to be filled, and bytes that
//! differ. One question of each kind is open at a time, and is asked again when no answer comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, NodeId, Position, VolumeId};
use atoll_disk::Disk;
use atoll_group::{Group, GroupEvent, Role};
use atoll_handover::slow;
use atoll_proto::control::FillStage;
use atoll_proto::control::FillStatus;
use atoll_proto::{BodyBlocks, FetchedPiece, GroupMessage};
use bytes::Bytes;

use crate::copy::{GroupCopy, Task};
use crate::engine::Engine;
use crate::fetch::{Answer, Put};
use crate::fill::{self, Taken};
use crate::membership::Source;
use crate::pace::Pace;
use crate::progress::FillProgress;
use crate::walk::{FillSize, Walked};

/// What was asked for and did not come is asked for again after this.
const ASK_AGAIN_MS: u64 = 1_000;
/// The same of how much there is.
const WEIGH_AGAIN_MS: u64 = 5_000;
/// How much there was so long ago is what there is.
const WEIGHED_MS: u64 = 600_000;
/// How long the node is left to clients before each answer, while they use it.
const REST: Duration = Duration::from_millis(10);
/// Answers that wait for a sync; what is more is asked for again.
const ANSWERS_MAX: usize = 16;

/// How much a copy has that is filled, and when that was counted, or asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weighed {
    at_ms: Option<u64>,
    size: Option<FillSize>,
}

impl<D: Disk> GroupCopy<D> {
    /// This copy, among those that are filled.
    fn of_fills(&self, node: NodeId) -> (VolumeId, IslandId, NodeId) {
        (self.setup.volume, self.island(), node)
    }

    fn pace(&self) -> Pace<'_> {
        Pace::begin(&self.fills.0, &*self.clock)
    }

    /// How far this copy is; none if it is not filled.
    pub fn fill_status(&self) -> Option<FillStatus> {
        self.fills.0.of(self.of_fills(self.fills.1))
    }

    /// Tells the node how far this copy is.
    pub(crate) fn tell_progress(&self) {
        let Some(engine) = self.engine() else { return };
        let copy = self.of_fills(self.fills.1);
        let status = |stage, all: FillSize, left: FillSize| FillStatus {
            stage,
            files: all.files,
            bytes: all.bytes,
            files_left: left.files,
            bytes_left: left.bytes,
        };
        let (must_be_filled, lacks) = self
            .with_group(|group| (group.must_be_filled() && group.fills_from().is_some(), group.seat().lacks));
        let stage = |busy| if self.fills.0.takes(copy) { busy } else { FillStage::Waits };
        let mut rows = 0;
        let status = if engine.is_halted() {
            None
        } else if must_be_filled {
            let all = self.weighed.lock().expect("no panic while it is held").size.unwrap_or_default();
            // It is held while a page is written.
            let Ok(taking) = self.taking.try_lock() else { return };
            rows = taking.as_ref().map_or(0, |taking| taking.files);
            Some(status(stage(FillStage::Rows), all, all))
        } else if engine.is_filling() {
            let Some((all, left)) = engine.fill_left() else { return };
            Some(status(stage(FillStage::Bytes), all, left))
        } else if lacks && let Some(before) = self.fill_status() {
            Some(FillStatus { stage: FillStage::Ends, files_left: 0, bytes_left: 0, ..before })
        } else {
            None
        };
        let progress = status.map(|status| FillProgress { status, rows });
        self.fills.0.note(self.clock.boot_ms(), copy, progress);
    }

    /// Asks the primary how much there is, unless that is known.
    fn ask_for_weight(&self, primary: NodeId) {
        let now = self.clock.boot_ms();
        let mut weighed = self.weighed.lock().expect("no panic while it is held");
        let pause = if weighed.size.is_some() { WEIGHED_MS } else { WEIGH_AGAIN_MS };
        if weighed.at_ms.is_some_and(|at| now < at + pause) {
            return;
        }
        weighed.at_ms = Some(now);
        drop(weighed);
        self.group_net.tell(self.island(), primary, GroupMessage::Weigh, Bytes::new());
    }

    /// The primary says how much there is.
    pub(crate) fn take_weight(&self, from: NodeId, epoch: u32, size: FillSize) {
        if self.with_group(Group::fills_from) == Some((from, epoch)) {
            self.weighed.lock().expect("no panic while it is held").size = Some(size);
        }
    }

    /// Tells another copy how much there is.
    pub(crate) fn weigh(&self, to: NodeId, engine: &Engine<D>) {
        slow();
        let Role::Leading { epoch, begun: true } = self.role() else { return };
        let now = self.clock.boot_ms();
        let known = *self.weighed.lock().expect("no panic while it is held");
        let is_new = known.at_ms.is_some_and(|at| now < at + WEIGHED_MS);
        let size = match known.size.filter(|_| is_new) {
            Some(size) => Ok(Some(size)),
            None => engine.fill_size(|| self.leave_node()),
        };
        match size {
            Ok(Some(size)) => {
                *self.weighed.lock().expect("no panic while it is held") =
                    Weighed { at_ms: Some(now), size: Some(size) };
                let FillSize { files, bytes } = size;
                let message = GroupMessage::Weight { epoch, files, bytes };
                self.group_net.tell(self.island(), to, message, Bytes::new());
            }
            // The snapshot was given up, for want of space: it is asked again.
            Ok(None) => {}
            Err(why) => self.group_net.trouble(self.island(), format!("what node {to} lacks: {why}")),
        }
    }

    /// Whether the primary may be asked now.
    fn may_ask(&self, at_once: bool) -> bool {
        let now = self.clock.boot_ms();
        let mut asked = self.asked_ms.lock().expect("no panic while it is held");
        let may = at_once || asked.is_none_or(|at| now >= at + ASK_AGAIN_MS);
        if may {
            *asked = Some(now);
        }
        may
    }

    /// Whether this copy may be filled now: a node fills a few at once.
    fn may_take(&self) -> bool {
        let (fills, me) = &self.fills;
        let is_last = |group: &Group| group.record().is_some_and(|(_, record)| record.in_sync.len() == 1);
        let copy = self.of_fills(*me);
        fills.may_take(self.clock.boot_ms(), copy, self.with_group(is_last))
    }

    /// Asks the primary for rows, if this copy has to be filled.
    pub(crate) fn ask_for_rows(&self, at_once: bool) {
        let Some((primary, _)) = self.with_group(Group::fills_from) else {
            if !self.with_group(Group::must_be_filled) {
                // A primary was found whose log is enough.
                drop(self.taking.lock().expect("no panic while it is held").take());
            }
            return;
        };
        self.ask_for_weight(primary);
        if !self.may_ask(at_once) || !self.may_take() {
            return;
        }
        let taking = self.taking.lock().expect("no panic while it is held");
        let (at, after) =
            taking.as_ref().map_or_else(Default::default, |taking| (taking.at, taking.after.clone()));
        drop(taking);
        self.group_net.tell(self.island(), primary, GroupMessage::FillFrom { at, after }, Bytes::new());
    }

    /// Rows have come.
    pub(crate) fn take_rows(&self, page: (Position, &[u8], bool), rows: &Bytes) {
        slow();
        // What has changed since it came ends it.
        if self.with_group(Group::fills_from).is_none() {
            return;
        }
        let mut pace = self.pace();
        let mut taking = self.taking.lock().expect("no panic while it is held");
        let taken = fill::take(&*self.disk, &mut taking, page, rows);
        drop(taking);
        pace.rest();
        match taken {
            Ok(Taken::More) => self.ask_for_rows(true),
            Ok(Taken::All) => self.place.handle(Source::Copy, GroupEvent::Filled, Vec::new()),
            Ok(Taken::Not) => {}
            Err(why) => {
                if let Some(engine) = self.engine() {
                    engine.halt(&format!("rows of another copy: {why}"));
                }
            }
        }
    }

    /// Bytes have come.
    pub(crate) fn take_fetched(
        &self,
        engine: &Arc<Engine<D>>,
        number: u64,
        pieces: &[FetchedPiece],
        bytes: &Bytes,
    ) {
        slow();
        let mut pace = self.pace();
        match engine.fetched(number, pieces, bytes, || pace.rest()) {
            // It is asked for again.
            Err(error) if error.is_no_space() => {}
            Err(error) => engine.halt(&error.to_string()),
            Ok(Put { damaged, files }) => {
                for ino in damaged {
                    self.net.damaged(self.island(), &format!("{ino} is damaged at the primary, too"));
                }
                // A simulated disk takes no time, and what is synced by the way would hide what is not.
                if !self.in_steps && self.fills.0.is_used(self.clock.boot_ms()) {
                    // A sync that has failed fails those of the walk, too.
                    _ = engine.bodies().sync_many(&files);
                    pace.rest();
                }
                engine.tell_disk();
                self.ask_for_missing(true);
            }
        }
    }

    /// Asks the primary for bytes that this copy needs, or looks for more that are missing.
    pub(crate) fn ask_for_missing(&self, at_once: bool) {
        let Some(engine) = self.engine() else { return };
        if engine.is_filling() && !self.may_take() {
            return;
        }
        if engine.takes_walk() {
            return self.push_task(Task::Walk(engine));
        }
        if engine.differs() == 0 {
            return;
        }
        let Some((primary, _)) = self.with_group(Group::follows) else { return };
        if !self.may_ask(at_once) {
            return;
        }
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        if let Some(question) = engine.next_question(number) {
            self.group_net.tell(self.island(), primary, question, Bytes::new());
        }
    }

    /// Bodies are compared with rows that are another copy's.
    pub(crate) fn walk(&self, engine: &Arc<Engine<D>>) {
        slow();
        let mut pace = self.pace();
        match engine.walk(|| pace.rest()) {
            Ok(Walked::Missing | Walked::More) => self.ask_for_missing(true),
            Ok(Walked::Done) => engine.tell_disk(),
            // Not at once: this thread would do nothing else.
            Ok(Walked::NoRoom) => {}
            // It has stopped.
            Err(_) => {}
        }
    }

    /// Another copy has asked for something. One question of each is answered at a time.
    pub(crate) fn answer(&self, to: NodeId, task: Task<D>) {
        let mut tasks = self.lock_tasks();
        let is_open = |task: &Task<D>| matches!(task, Task::Fetch(of, ..) | Task::Rows(of, ..) | Task::Weigh(of, ..) if *of == to);
        if !tasks.iter().any(is_open) {
            tasks.push_back(task);
        }
        drop(tasks);
        self.follow_up();
    }

    /// Sends rows.
    pub(crate) fn send_rows(&self, to: NodeId, engine: &Engine<D>, at: Position, after: Vec<u8>) {
        slow();
        let Role::Leading { epoch, begun: true } = self.role() else { return };
        if !self.fills.0.may_give(self.clock.boot_ms(), self.of_fills(to)) {
            return;
        }
        self.leave_node();
        match engine.page(to, at, after) {
            Ok(Some(page)) => {
                let fill::Page { at, after, rows, last } = page;
                let message = GroupMessage::Rows { epoch, at, after, last };
                self.group_net.tell(self.island(), to, message, rows);
            }
            Ok(None) => {}
            Err(why) => self.group_net.trouble(self.island(), format!("rows for node {to}: {why}")),
        }
    }

    /// Reads bytes for a copy, and sends them when no later primary can take back the records that they tell of.
    pub(crate) fn fetch(&self, to: NodeId, engine: &Engine<D>, number: u64, blocks: &[BodyBlocks]) {
        slow();
        let Role::Leading { epoch, begun: true } = self.role() else { return };
        let mut answers = self.answers.lock().expect("no panic while it is held");
        answers.retain(|answer| answer.to != to || answer.number == number);
        if answers.len() >= ANSWERS_MAX || answers.iter().any(|answer| answer.to == to) {
            return;
        }
        drop(answers);
        if !self.fills.0.may_give(self.clock.boot_ms(), self.of_fills(to)) {
            return;
        }
        self.leave_node();
        let mut pace = self.pace();
        match engine.fetch(blocks, || pace.rest()) {
            Ok((upto, pieces, payload)) => {
                let message = GroupMessage::Fetched { epoch, number, pieces };
                let answer = Answer { to, upto, number, message, payload };
                self.answers.lock().expect("no panic while it is held").push(answer);
                if self.place.synced() < upto {
                    engine.stays(upto);
                }
                self.tell_synced();
            }
            Err(why) => self.group_net.trouble(self.island(), format!("bytes for node {to}: {why}")),
        }
    }

    /// Leaves the node to clients for a moment, if some are at work.
    fn leave_node(&self) {
        if self.fills.0.is_used(self.clock.boot_ms()) {
            self.clock.pass(REST);
        }
    }

    /// Tells the node whether clients use this copy.
    pub(crate) fn tell_uses(&self) {
        let Some(engine) = self.engine() else { return };
        let uses = engine.uses();
        if self.uses_seen.swap(uses, Ordering::Relaxed) != uses {
            self.fills.0.used(self.clock.boot_ms());
        }
    }

    /// Sends the bytes that all members have synced by now.
    pub(crate) fn tell_synced(&self) {
        let synced = if planted(Bug::BytesOfUnsynced) { u64::MAX } else { self.place.synced() };
        let mut answers = self.answers.lock().expect("no panic while it is held");
        if answers.is_empty() {
            return;
        }
        let leads = matches!(self.role(), Role::Leading { begun: true, .. });
        for answer in answers.extract_if(.., |answer| !leads || answer.upto <= synced) {
            if leads {
                self.group_net.tell(self.island(), answer.to, answer.message, answer.payload);
            }
        }
    }
}
