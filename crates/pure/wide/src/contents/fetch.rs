//! One file whose bytes are fetched from one site. Owns its pieces on their way. Believes no byte before its hash is right, wherever it comes
//! from: this site's body of before, the body in which some are already, or the other site.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use atoll_causal::FileId;
use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_posix::{Errno, Op, SetAttr};
use bytes::Bytes;

use super::ContentsStep;
use super::pieces::{self, PIECE_BYTES};
use super::serving::QUESTIONS_MAX;
use super::work::{Work, WorkFor};
use crate::peers::message::WideMessage;
use crate::rows::{BodyVersion, SiteId};
use crate::watch::ByteRanges;

/// Pieces of a file that are on their way at once.
const PIECES_AT_ONCE: usize = 4;
/// Bytes that are asked of one site and have not come.
const ASKED_BYTES_MAX: u64 = 4 << 20;

/// What is asked of a site and has not come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OpenQuestions {
    pub(super) questions: usize,
    pub(super) bytes: u64,
}

impl OpenQuestions {
    /// Whether that site takes no more questions.
    const fn is_full(self) -> bool {
        self.questions >= QUESTIONS_MAX
    }
}

/// Pieces that a site has not got of a version. If there are more, it is asked for no others.
const LACKS_MAX: usize = 64;

/// The hash of a piece of zeros.
static ZEROS: LazyLock<u128> = LazyLock::new(|| pieces::hash(&vec![0; PIECE_BYTES as usize]));

/// What is done for a file next, or is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchPhase {
    /// The body gets the length of the version.
    Size,
    /// The other site is asked what is lacking.
    Plan,
    /// Pieces are put in place.
    Pieces,
    /// The body is synced.
    Sync,
    /// All is here.
    Here,
}

/// A piece that is on its way.
#[derive(Debug, Clone)]
pub(super) enum PieceWay {
    /// It may be in the body already.
    Own,
    /// It, or most of it, may be in the body of before.
    Base,
    /// Bytes of it are lacking: those that are not asked for yet, and those that are.
    Parts { bytes: Vec<u8>, lacks: Vec<Range<u64>>, asked: Vec<Range<u64>>, is_whole: bool },
    /// It is put in place.
    Place(Bytes),
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Fetch {
    pub(super) number: u64,
    pub(super) version: BodyVersion,
    pub(super) from: SiteId,
    /// Where the bytes go.
    pub(super) into: Ino,
    pub(super) is_staged: bool,
    pub(super) has_some: bool,
    /// No site has the version: the file is to be empty.
    pub(super) is_lost: bool,
    pub(super) base: Option<(Ino, BodyVersion)>,
    /// What was in the body of the file when it began.
    pub(super) over: Option<BodyVersion>,
    /// The hashes of the base's pieces.
    pub(super) known: Vec<u128>,
    pub(super) phase: FetchPhase,
    /// What the phase has asked for is under way.
    pub(super) is_asked: bool,
    pub(super) hashes: Vec<u128>,
    /// How the version differs from the base, if that is known.
    pub(super) changed: Option<ByteRanges>,
    pub(super) next: u64,
    /// Pieces that the other site has not got any more. All others are put in place: the next version may have most of them.
    pub(super) lacks: usize,
    /// Pieces on their way, and whether what they wait for is under way.
    pub(super) ways: BTreeMap<u64, (PieceWay, bool)>,
    /// Which pieces the operations under way are about.
    pub(super) done_in: BTreeMap<u64, u64>,
}

impl Fetch {
    /// A version that is fetched from a site into a body. It is taken to be empty, and nothing to be here.
    pub(super) const fn of(
        number: u64,
        version: BodyVersion,
        from: SiteId,
        (into, is_staged): (Ino, bool),
    ) -> Self {
        Self {
            number,
            version,
            from,
            into,
            is_staged,
            has_some: false,
            is_lost: false,
            base: None,
            over: None,
            known: Vec::new(),
            phase: FetchPhase::Size,
            is_asked: false,
            hashes: Vec::new(),
            changed: None,
            next: 0,
            lacks: 0,
            ways: BTreeMap::new(),
            done_in: BTreeMap::new(),
        }
    }

    /// Bytes that are in place, or nearly.
    pub(super) fn placed_bytes(&self) -> u64 {
        let under_way = self.next.saturating_sub(self.ways.len() as u64);
        (under_way * PIECE_BYTES).min(self.version.size)
    }

    /// Bytes of the disk that it is going to use.
    pub(super) fn needs_bytes(&self) -> u64 {
        self.version.size - self.placed_bytes()
    }

    /// Bytes that its pieces may take in memory.
    pub(super) fn pieces_bytes_max(&self) -> u64 {
        self.version.size.min(PIECES_AT_ONCE as u64 * PIECE_BYTES)
    }

    /// What is asked of the other site and has not come.
    pub(super) fn asked(&self) -> OpenQuestions {
        let parts = self.ways.values().filter_map(|(way, _)| match way {
            PieceWay::Parts { asked, .. } => Some(asked),
            _ => None,
        });
        let mut all = OpenQuestions::default();
        all.questions += usize::from(self.is_asked && self.phase == FetchPhase::Plan);
        for part in parts.flatten() {
            all.questions += 1;
            all.bytes += part.end - part.start;
        }
        all
    }

    /// Whether there is a question for the other site.
    pub(super) fn may_ask(&self) -> bool {
        let has_more =
            |(way, _): &(PieceWay, bool)| matches!(way, PieceWay::Parts { lacks, .. } if !lacks.is_empty());
        match self.phase {
            FetchPhase::Plan => !self.is_asked,
            FetchPhase::Pieces => self.ways.values().any(has_more),
            _ => false,
        }
    }

    /// Whether something is to be done in a body, or pieces are to be begun.
    pub(super) fn may_do(&self) -> bool {
        let waits = |(way, is_asked): &(PieceWay, bool)| !is_asked && !matches!(way, PieceWay::Parts { .. });
        match self.phase {
            FetchPhase::Size | FetchPhase::Sync => !self.is_asked,
            FetchPhase::Pieces => {
                let has_more = self.ways.len() < PIECES_AT_ONCE && self.next < self.hashes.len() as u64;
                has_more || self.ways.values().any(waits) || self.are_pieces_done() && self.lacks == 0
            }
            FetchPhase::Plan | FetchPhase::Here => false,
        }
    }

    /// The next thing that is to be done. `asked`: of all that is fetched from this site.
    pub(super) fn act(
        &mut self,
        file: FileId,
        work: &mut Work,
        asked: OpenQuestions,
    ) -> Option<ContentsStep> {
        if self.phase == FetchPhase::Pieces {
            return self.act_pieces(file, work, asked);
        }
        if self.is_asked {
            return None;
        }
        let (ino, dot) = (self.into, self.version.dot);
        let op = match self.phase {
            FetchPhase::Size => {
                Op::SetAttr { ino, set: SetAttr { size: Some(self.version.size), ..SetAttr::default() } }
            }
            FetchPhase::Plan if asked.is_full() => return None,
            FetchPhase::Plan => {
                self.is_asked = true;
                let base = self.base.map(|(_, has)| has.root).filter(|_| self.hashes.is_empty());
                let from = self.hashes.len() as u32;
                let message = WideMessage::WantPlan { file, dot, base, from };
                return Some(ContentsStep::Say(self.from, message));
            }
            FetchPhase::Sync => Op::Fsync { ino },
            FetchPhase::Pieces | FetchPhase::Here => return None,
        };
        if !work.has_room() {
            return None;
        }
        self.is_asked = true;
        Some(ContentsStep::Do(work.begin(WorkFor::Fetch(file, self.number), op, Bytes::new())))
    }

    /// The phase behind this one.
    fn goes_on(&mut self) {
        let is_known = self.hashes.len() as u64 == pieces::count(self.version.size);
        self.phase = match self.phase {
            FetchPhase::Size if !is_known => FetchPhase::Plan,
            FetchPhase::Size | FetchPhase::Plan => FetchPhase::Pieces,
            FetchPhase::Pieces => FetchPhase::Sync,
            FetchPhase::Sync | FetchPhase::Here => FetchPhase::Here,
        };
        self.is_asked = false;
        self.end_pieces();
    }

    fn end_pieces(&mut self) {
        if self.are_pieces_done() && self.lacks == 0 {
            self.goes_on();
        }
    }

    fn are_pieces_done(&self) -> bool {
        let is_all = self.next >= self.hashes.len() as u64 && self.ways.is_empty();
        self.phase == FetchPhase::Pieces && is_all
    }

    /// All is in place but what the other site has not got any more.
    pub(super) fn is_lacking(&self) -> bool {
        self.lacks > 0 && self.are_pieces_done()
    }

    /// More hashes of pieces. False if they are not those of the version.
    pub(super) fn by_pieces(&mut self, hashes: Vec<u128>) -> bool {
        let is_some = !hashes.is_empty();
        self.hashes.extend(hashes);
        let (have, all) = (self.hashes.len() as u64, pieces::count(self.version.size));
        if have < all {
            return is_some;
        }
        let is_right = have == all && pieces::root(&self.hashes) == self.version.root;
        if is_right {
            self.goes_on();
        }
        is_right
    }

    /// The version differs from the base by these bytes; `hashes` are those of the pieces in which they are. If that is not so, all pieces
    /// are asked for.
    pub(super) fn by_change(&mut self, mut ranges: ByteRanges, hashes: &[u128]) -> bool {
        let Some((_, has)) = self.base else { return false };
        ranges.cut(self.version.size);
        let count = pieces::count(self.version.size);
        let touched: Vec<u64> = pieces::touched(&ranges).collect();
        let mut all = self.known.clone();
        all.resize(count as usize, 0);
        let is_known = |nth: u64| {
            touched.binary_search(&nth).is_ok()
                || pieces::range(nth, has.size) == pieces::range(nth, self.version.size)
        };
        let is_whole = (0..count).all(is_known) && hashes.len() == touched.len();
        for (nth, hash) in touched.iter().zip(hashes) {
            if let Some(at) = all.get_mut(*nth as usize) {
                *at = *hash;
            }
        }
        if is_whole && pieces::root(&all) == self.version.root {
            (self.hashes, self.changed) = (all, Some(ranges));
            self.goes_on();
        } else {
            // With a base that nobody has it is told by pieces.
            self.base = self.base.map(|(ino, has)| (ino, BodyVersion { root: 0, ..has }));
            self.known.clear();
        }
        true
    }

    // ---------------------------------------------------------------------- pieces

    fn range(&self, nth: u64) -> Range<u64> {
        pieces::range(nth, self.version.size)
    }

    fn act_pieces(&mut self, file: FileId, work: &mut Work, of_site: OpenQuestions) -> Option<ContentsStep> {
        while self.ways.len() < PIECES_AT_ONCE && self.next < self.hashes.len() as u64 {
            let nth = self.next;
            self.next += 1;
            if self.has_some {
                self.ways.insert(nth, (PieceWay::Own, false));
            } else if !self.is_hole(nth) {
                self.look_further(nth);
            }
        }
        self.end_pieces();
        let (number, from, dot) = (self.number, self.from, self.version.dot);
        let (into, base) = (self.into, self.base);
        let size = self.version.size;
        for (nth, (way, is_asked)) in &mut self.ways {
            let range = pieces::range(*nth, size);
            let len = (range.end - range.start) as u32;
            let (op, data) = match way {
                PieceWay::Parts { lacks, asked, .. } => {
                    let Some(part) = lacks.last().cloned() else { continue };
                    let bytes = part.end - part.start;
                    let is_much = of_site.bytes > 0 && of_site.bytes + bytes > ASKED_BYTES_MAX;
                    if is_much || of_site.is_full() {
                        continue;
                    }
                    lacks.pop();
                    asked.push(part.clone());
                    let message = WideMessage::WantBytes { file, dot, offset: part.start, len: bytes as u32 };
                    return Some(ContentsStep::Say(from, message));
                }
                _ if *is_asked || !work.has_room() => continue,
                PieceWay::Own => (Op::Read { ino: into, offset: range.start, len }, Bytes::new()),
                PieceWay::Base => {
                    let (ino, _) = base.expect("there is one");
                    (Op::Read { ino, offset: range.start, len }, Bytes::new())
                }
                PieceWay::Place(bytes) => {
                    let (append, kill_set_id) = (false, false);
                    (Op::Write { ino: into, offset: range.start, append, kill_set_id }, bytes.clone())
                }
            };
            *is_asked = true;
            let done = work.begin(WorkFor::Fetch(file, number), op, data);
            self.done_in.insert(done.id, *nth);
            return Some(ContentsStep::Do(done));
        }
        None
    }

    /// Whether nothing is to be done for a piece of a body in which nothing is yet.
    fn is_hole(&self, nth: u64) -> bool {
        let range = self.range(nth);
        range.end - range.start == PIECE_BYTES && self.hashes[nth as usize] == *ZEROS
    }

    /// A piece is not in the body yet.
    fn look_further(&mut self, nth: u64) {
        let range = self.range(nth);
        let way = if self.is_hole(nth) {
            PieceWay::Place(vec![0; PIECE_BYTES as usize].into())
        } else if self.base.is_some_and(|(_, has)| range.start < has.size) {
            PieceWay::Base
        } else {
            self.whole(nth)
        };
        self.ways.insert(nth, (way, false));
    }

    fn whole(&self, nth: u64) -> PieceWay {
        let range = self.range(nth);
        let bytes = vec![0; (range.end - range.start) as usize];
        PieceWay::Parts { bytes, lacks: vec![range], asked: Vec::new(), is_whole: true }
    }

    /// What of a piece of the base is other.
    fn parts(&self, nth: u64, base: &[u8]) -> Option<PieceWay> {
        let range = self.range(nth);
        let mut bytes = base.to_vec();
        bytes.resize((range.end - range.start) as usize, 0);
        let cut = |other: &Range<u64>| other.start.max(range.start)..other.end.min(range.end);
        let lacks: Vec<Range<u64>> =
            self.changed.as_ref()?.iter().map(cut).filter(|part| !part.is_empty()).collect();
        (!lacks.is_empty()).then_some(PieceWay::Parts { bytes, lacks, asked: Vec::new(), is_whole: false })
    }

    pub(super) fn did(&mut self, id: u64, done: Result<Bytes, Errno>) -> Result<(), Errno> {
        let nth = self.done_in.remove(&id);
        let bytes = match done {
            Err(_) if nth.is_some() && planted(Bug::PlacedWithoutRoom) => Bytes::new(),
            done => done?,
        };
        let Some(nth) = nth else {
            self.goes_on();
            return Ok(());
        };
        let Some((way, _)) = self.ways.remove(&nth) else { return Ok(()) };
        let is_it = pieces::hash(&bytes) == self.hashes[nth as usize];
        match way {
            // It is in place.
            PieceWay::Own if is_it => {}
            PieceWay::Place(_) => {}
            PieceWay::Own => self.look_further(nth),
            PieceWay::Base if is_it => drop(self.ways.insert(nth, (PieceWay::Place(bytes), false))),
            PieceWay::Base | PieceWay::Parts { .. } => {
                let way = self.parts(nth, &bytes).unwrap_or_else(|| self.whole(nth));
                self.ways.insert(nth, (way, false));
            }
        }
        self.end_pieces();
        Ok(())
    }

    /// The other site has not got the bytes of some piece any more.
    pub(super) fn has_not(&mut self, offset: u64) {
        if let Some((PieceWay::Parts { .. }, _)) = self.ways.get(&(offset / PIECE_BYTES)) {
            self.ways.remove(&(offset / PIECE_BYTES));
            self.lacks += 1;
            if self.lacks > LACKS_MAX {
                self.next = self.hashes.len() as u64;
            }
        }
    }

    /// Bytes of some piece have come. False if they are not those that were asked for.
    pub(super) fn came(&mut self, offset: u64, part: &[u8]) -> bool {
        let nth = offset / PIECE_BYTES;
        let Some((PieceWay::Parts { bytes, lacks, asked, is_whole }, _)) = self.ways.get_mut(&nth) else {
            return true;
        };
        let is_it =
            |range: &Range<u64>| range.start == offset && range.end - range.start == part.len() as u64;
        let Some(at) = asked.iter().position(is_it) else { return false };
        asked.swap_remove(at);
        let from = (offset - nth * PIECE_BYTES) as usize;
        bytes[from..from + part.len()].copy_from_slice(part);
        if !asked.is_empty() || !lacks.is_empty() {
            return true;
        }
        let (bytes, is_whole) = (std::mem::take(bytes), *is_whole);
        let way = if pieces::hash(&bytes) == self.hashes[nth as usize] {
            PieceWay::Place(bytes.into())
        } else if is_whole {
            return false;
        } else {
            self.whole(nth)
        };
        self.ways.insert(nth, (way, false));
        true
    }
}
