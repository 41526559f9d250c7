//! Bytes that other sites ask for. Owns when they may be sent: only bytes of the version that was asked for, also if the file changes while
//! they are read. What a user has changed since the version was cut is sent if it was kept then, and all else as long as it is in the body.
//! Never asks for anything.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use atoll_causal::{Dot, FileId};
use atoll_core::{Decode, Ino};
use atoll_posix::Op;
use atoll_proto::{Record, RowChange};
use atoll_state::RowLoad;
use bytes::Bytes;

use super::cutting::{of_piece, of_version};
use super::fetching::{Fetching, has_earlier};
use super::kept::{CutBefore, KeptVersions};
use super::pieces;
use super::work::{Work, WorkFor, WorkOp};
use crate::held::{HeldFile, SiteRows};
use crate::peers::message::{ContentsPlan, Most, PLAN_MAX, SiteWithout, WideMessage};
use crate::peers::{Refused, WidePeers};
use crate::rows::{BodyVersion, FILES, FileBytes, FileRow, SiteId, VersionDelta};

/// Questions of one site that are not answered.
pub(super) const QUESTIONS_MAX: usize = 256;

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
    kept: KeptVersions,
    last: u64,
}

/// Where bytes are that are asked for.
enum Source {
    /// In memory.
    Kept(Bytes),
    /// In a body.
    Body(Ino),
    /// Not here.
    Nowhere,
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

    /// A version was cut.
    pub(crate) fn keep(&mut self, file: FileId, version: CutBefore) {
        self.kept.keep(file, version);
    }

    /// A record was decided. Of a file that has neither names nor a body any more nothing is served that was kept, also if it gets a
    /// name elsewhere and is there again: others are told that this site has not got it, and make a version of what is left.
    pub(crate) fn noted(&mut self, record: &Record) {
        for change in &record.changes {
            if let RowChange::Side { table: FILES, id, row: Some(row) } = change
                && self.kept.has_some(FileId(*id))
                && is_without_body(row)
            {
                self.kept.is_gone(FileId(*id));
            }
        }
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
        peers: &WidePeers,
    ) -> Result<Option<(SiteId, WideMessage)>, Vec<RowLoad>> {
        if let Some((_, question, _)) = self.read.front() {
            let source = self.source(rows, *question);
            rows.loaded()?;
            let (site, question, read) = self.read.pop_front().expect("it is the first");
            let bytes = match source {
                Source::Kept(bytes) => Some(bytes),
                Source::Body(_) => read,
                Source::Nowhere => None,
            };
            return Ok(Some((site, answer(question, bytes))));
        }
        let Some((site, question)) = self.queue.front().copied() else { return Ok(None) };
        let Question { file, dot, what } = question;
        let found = match what {
            QuestionKind::Plan { base, from } => {
                let known = body(rows, file).and_then(|found| {
                    if found.has_version(dot) {
                        let hashes = of_version(rows, found.ino, found.has);
                        return Some((hashes, found.held.bytes.since.clone(), found.has.size));
                    }
                    let kept = self.kept.ask(file, dot)?;
                    Some((kept.hashes.clone(), kept.since.clone(), kept.has.size))
                });
                let plan = known.map(|(hashes, since, size)| {
                    let since = since.zip(base).map(|(since, base)| self.kept.since(file, &since, base));
                    plan(hashes, size, since, base, from)
                });
                let gone = || ContentsPlan::Gone {
                    without: Most::new(without(rows, fetching, (file, dot), |at| peers.has_heard(site, at))),
                };
                Some(WideMessage::Plan { file, dot, plan: plan.unwrap_or_else(gone) })
            }
            QuestionKind::Bytes { .. } => match self.source(rows, question) {
                Source::Kept(bytes) => Some(answer(question, Some(bytes))),
                Source::Body(_) => None,
                Source::Nowhere => Some(answer(question, None)),
            },
        };
        rows.loaded()?;
        Ok(found.map(|found| {
            self.queue.pop_front();
            (site, found)
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
        let source = self.source(rows, question);
        rows.loaded()?;
        let Source::Body(ino) = source else { return Ok(None) };
        self.queue.pop_front();
        self.last += 1;
        let id = ServeId(self.last);
        self.reading.insert(id, (site, question));
        Ok(Some(work.begin(WorkFor::Serve(id), Op::Read { ino, offset, len }, Bytes::new())))
    }

    /// Where bytes of a version are.
    fn source(&mut self, rows: &SiteRows<'_>, question: Question) -> Source {
        let QuestionKind::Bytes { offset, len } = question.what else { return Source::Nowhere };
        let Some(found) = body(rows, question.file) else { return Source::Nowhere };
        let kept = self.kept.ask(question.file, question.dot);
        if let Some(bytes) = kept.and_then(|kept| kept.bytes(offset, len)) {
            return Source::Kept(bytes);
        }
        let range = offset..offset.saturating_add(len.into());
        if !found.is_unchanged(&range) {
            return Source::Nowhere;
        }
        let nth = offset / pieces::PIECE_BYTES;
        let is_same_piece = |kept: &CutBefore| {
            pieces::range(nth, kept.has.size) == pieces::range(nth, found.has.size)
                && of_piece(rows, found.ino, found.has, nth) == kept.hashes.get(nth as usize).copied()
        };
        if found.has_version(question.dot) || kept.is_some_and(is_same_piece) {
            Source::Body(found.ino)
        } else {
            Source::Nowhere
        }
    }
}

/// Whether a file is not shown, and nothing is here of its bytes.
fn is_without_body(row: &[u8]) -> bool {
    let row = FileRow::from_slice(row).expect("this site has written it");
    matches!(row, FileRow::Hidden { kept: None, .. })
}

/// The answer to a question for bytes.
fn answer(question: Question, bytes: Option<Bytes>) -> WideMessage {
    let Question { file, dot, what: QuestionKind::Bytes { offset, .. } } = question else {
        unreachable!("a plan is asked for")
    };
    WideMessage::Bytes { file, dot, offset, bytes: bytes.map(|bytes| bytes.to_vec()) }
}

/// The body of a file, which has a version but for what users have changed since.
struct ServedBody {
    ino: Ino,
    has: BodyVersion,
    held: Rc<HeldFile>,
    /// Its length now.
    size: u64,
}

impl ServedBody {
    fn has_version(&self, dot: Dot) -> bool {
        let is_equal = |version| self.has.is_equal(version);
        self.has.dot == dot || self.held.state.versions.get(dot).is_some_and(is_equal)
    }

    /// Whether these are bytes of the version that nobody has changed.
    fn is_unchanged(&self, range: &Range<u64>) -> bool {
        let is_written = |written: &Range<u64>| written.start < range.end && range.start < written.end;
        let FileBytes { is_uncut, written, .. } = &self.held.bytes;
        let size = if *is_uncut { self.has.size.min(self.size) } else { self.has.size };
        range.end <= size && !(*is_uncut && written.iter().any(is_written))
    }
}

/// The body of a file.
fn body(rows: &SiteRows<'_>, file: FileId) -> Option<ServedBody> {
    let held = rows.file(file)?;
    let (ino, has) = (held.body?, held.bytes.has?);
    Some(ServedBody { ino, has, size: rows.inode(ino)?.attr.size, held })
}

/// The sites that have not got the bytes of a version, as far as this one knows; none if it may have them later, or if the asker has not
/// heard yet what has become of the file here. Else it would make a version of what is left of a file that is removed, which the removal
/// has not seen: the file would be there again.
fn without(
    rows: &SiteRows<'_>,
    fetching: &Fetching,
    (file, dot): (FileId, Dot),
    is_heard: impl Fn(u64) -> bool,
) -> Vec<SiteWithout> {
    let held = rows.file(file).filter(|held| held.state.context.covers(dot) && !held.bytes.is_uncut);
    let held = held.filter(|held| is_heard(held.at.position));
    held.map_or_else(Vec::new, |held| fetching.without(file, dot, has_earlier(&held)))
}

/// How somebody gets a version of so many bytes whose pieces have these hashes.
fn plan(
    hashes: Vec<u128>,
    size: u64,
    since: Option<VersionDelta>,
    base: Option<u128>,
    from: u32,
) -> ContentsPlan {
    if let Some(mut since) = since.filter(|since| Some(since.base) == base) {
        since.ranges.cut(size);
        let touched: Vec<u64> = pieces::touched(&since.ranges).take(PLAN_MAX + 1).collect();
        let known =
            touched.iter().filter_map(|nth| hashes.get(*nth as usize).copied()).collect::<Vec<u128>>();
        if touched.len() <= PLAN_MAX && known.len() == touched.len() {
            return ContentsPlan::Since { ranges: since.ranges, hashes: Most::new(known) };
        }
    }
    let some = hashes.into_iter().skip(from as usize).take(PLAN_MAX).collect();
    ContentsPlan::Pieces { hashes: Most::new(some) }
}
