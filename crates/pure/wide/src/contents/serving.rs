//! Bytes that other sites ask for. Owns when they may be sent: only bytes of the version that was asked for, also if the file changes while
//! they are read. Never asks for anything.

use std::collections::{BTreeMap, VecDeque};

use atoll_causal::{Dot, FileId};
use atoll_core::Ino;
use atoll_posix::Op;
use atoll_state::RowLoad;
use bytes::Bytes;

use super::cutting::of_version;
use super::fetching::{Fetching, has_earlier};
use super::pieces;
use super::work::{Work, WorkFor, WorkOp};
use crate::held::SiteRows;
use crate::peers::Refused;
use crate::peers::message::{ContentsPlan, Most, PLAN_MAX, SiteWithout, WideMessage};
use crate::rows::{BodyVersion, FileBytes, SiteId};

/// Questions of one site that are not answered.
const QUESTIONS_MAX: usize = 256;

/// Which question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServeId(u64);

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) file: FileId,
    pub(crate) dot: Dot,
    pub(crate) what: QuestionKind,
}

/// What is asked for of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionKind {
    /// Which bytes the asker lacks that has the version with this hash, and the hashes of pieces from this one on.
    Plan { base: Option<u128>, from: u32 },
    /// These bytes.
    Bytes { offset: u64, len: u32 },
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Serving {
    queue: VecDeque<(SiteId, Question)>,
    reading: BTreeMap<ServeId, (SiteId, Question)>,
    /// Bytes that were read; none if they cannot be.
    read: VecDeque<(SiteId, Question, Option<Bytes>)>,
    last: u64,
}

impl Serving {
    /// A site asks.
    pub(crate) fn ask(&mut self, from: SiteId, question: Question) -> Result<(), Refused> {
        if let QuestionKind::Bytes { len, .. } = question.what
            && (len == 0 || u64::from(len) > pieces::PIECE_BYTES)
        {
            return Err(Refused::Bound("bytes of a question"));
        }
        let of_it = self.queue.iter().filter(|(site, _)| *site == from).count()
            + self.reading.values().filter(|(site, _)| *site == from).count()
            + self.read.iter().filter(|(site, ..)| *site == from).count();
        if of_it >= QUESTIONS_MAX {
            return Err(Refused::Bound("questions for bytes"));
        }
        self.queue.push_back((from, question));
        Ok(())
    }

    /// A site does not wait any more.
    pub(crate) fn link_down(&mut self, site: SiteId) {
        self.queue.retain(|(of, _)| *of != site);
        self.reading.retain(|_, (of, _)| *of != site);
        self.read.retain(|(of, ..)| *of != site);
    }

    /// Whether nobody waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.reading.is_empty() && self.read.is_empty()
    }

    /// Bytes were read.
    pub(crate) fn did(&mut self, id: ServeId, bytes: Option<Bytes>) {
        if let Some((site, question)) = self.reading.remove(&id) {
            self.read.push_back((site, question, bytes));
        }
    }

    /// The next answer. The bytes in it are still those of the version.
    pub(crate) fn answer(
        &mut self,
        rows: &SiteRows<'_>,
        fetching: &Fetching,
    ) -> Result<Option<(SiteId, WideMessage)>, Vec<RowLoad>> {
        if let Some((site, question, bytes)) = self.read.front() {
            let is_there = body(rows, question.file, question.dot).is_some();
            rows.loaded()?;
            let (QuestionKind::Bytes { offset, .. }, Question { file, dot, .. }) = (question.what, *question)
            else {
                unreachable!("only bytes are read")
            };
            let bytes = bytes.clone().filter(|_| is_there).map(|bytes| bytes.to_vec());
            let answer = (*site, WideMessage::Bytes { file, dot, offset, bytes });
            self.read.pop_front();
            return Ok(Some(answer));
        }
        let Some((site, Question { file, dot, what })) = self.queue.front().copied() else { return Ok(None) };
        let found = body(rows, file, dot);
        let answer = match what {
            QuestionKind::Plan { base, from } => {
                let plan = found.map(|(ino, has, bytes)| plan(rows, ino, has, &bytes, base, from));
                let gone = || ContentsPlan::Gone { without: Most::new(without(rows, fetching, file, dot)) };
                Some(WideMessage::Plan { file, dot, plan: plan.unwrap_or_else(gone) })
            }
            QuestionKind::Bytes { offset, .. } if found.is_none() => {
                Some(WideMessage::Bytes { file, dot, offset, bytes: None })
            }
            QuestionKind::Bytes { .. } => None,
        };
        rows.loaded()?;
        Ok(answer.map(|answer| {
            self.queue.pop_front();
            (site, answer)
        }))
    }

    /// Reads what is asked for next.
    pub(crate) fn read(
        &mut self,
        rows: &SiteRows<'_>,
        work: &mut Work,
    ) -> Result<Option<WorkOp>, Vec<RowLoad>> {
        let Some((site, question)) = self.queue.front().copied() else { return Ok(None) };
        let QuestionKind::Bytes { offset, len } = question.what else { return Ok(None) };
        let found = body(rows, question.file, question.dot);
        rows.loaded()?;
        let Some((ino, ..)) = found else { return Ok(None) };
        self.queue.pop_front();
        self.last += 1;
        let id = ServeId(self.last);
        self.reading.insert(id, (site, question));
        Ok(Some(work.begin(WorkFor::Serve(id), Op::Read { ino, offset, len }, Bytes::new())))
    }
}

/// The body that has the bytes of a version, and nothing else.
fn body(rows: &SiteRows<'_>, file: FileId, dot: Dot) -> Option<(Ino, BodyVersion, FileBytes)> {
    let held = rows.file(file)?;
    let has = held.bytes.has.filter(|_| !held.bytes.is_uncut)?;
    let is_equal = || held.state.versions.get(dot).is_some_and(|version| has.is_equal(version));
    (has.dot == dot || is_equal()).then_some((held.body?, has, held.bytes.clone()))
}

/// The sites that have not got the bytes of a version, as far as this one knows; none if it may have them later.
fn without(rows: &SiteRows<'_>, fetching: &Fetching, file: FileId, dot: Dot) -> Vec<SiteWithout> {
    let held = rows.file(file).filter(|held| held.state.context.covers(dot) && !held.bytes.is_uncut);
    held.map_or_else(Vec::new, |held| fetching.without(file, dot, has_earlier(&held)))
}

/// How somebody gets a version.
fn plan(
    rows: &SiteRows<'_>,
    ino: Ino,
    has: BodyVersion,
    bytes: &FileBytes,
    base: Option<u128>,
    from: u32,
) -> ContentsPlan {
    let hashes = of_version(rows, ino, has);
    if let Some(since) = bytes.since.as_ref().filter(|since| Some(since.base) == base) {
        let touched: Vec<u64> = pieces::touched(&since.ranges).take(PLAN_MAX + 1).collect();
        let known =
            touched.iter().filter_map(|nth| hashes.get(*nth as usize).copied()).collect::<Vec<u128>>();
        if touched.len() <= PLAN_MAX && known.len() == touched.len() {
            return ContentsPlan::Since { ranges: since.ranges.clone(), hashes: Most::new(known) };
        }
    }
    let some = hashes.into_iter().skip(from as usize).take(PLAN_MAX).collect();
    ContentsPlan::Pieces { hashes: Most::new(some) }
}
