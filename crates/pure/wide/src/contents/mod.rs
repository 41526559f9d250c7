//! Bytes of files, between the bodies of a site's island and other sites (`docs/design/023-wide.md`, "Contents"). Owns what is read, asked for
//! and put in place, and when. Decides no record: it says what is to be decided.
//!
//! `cutting` makes versions of what users have changed. `serving` answers other sites. `fetching` gets what is not here.

mod cutting;
mod due;
mod fetch;
mod fetches;
mod fetching;
mod kept;
pub mod pieces;
mod serving;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{FileId, Writer};
use atoll_core::{Decode, Ino};
use atoll_posix::{Answer, Errno};
use atoll_proto::{Record, RowChange};
use atoll_state::RowLoad;
use bytes::Bytes;

pub(crate) use cutting::CutVersion;
use cutting::Cutting;
pub(crate) use fetching::Arrival;
pub use fetching::FetchedBytes;
use fetching::Fetching;
pub(crate) use kept::CutBefore;
use serving::{Question, QuestionKind, Serving};
pub(crate) use work::WorkOp;
use work::{Work, WorkFor};

use crate::foreign::OBJECTS_MAX;
use crate::held::SiteRows;
use crate::peers::message::WideMessage;
use crate::peers::{Refused, WidePeers};
use crate::rows::{BEHIND, BehindRow, SiteId, UNCUT};
use crate::watch::Happened;

/// Milliseconds for which a site that begins cuts nothing. If its disk is an older copy, it hears that
/// before it gives a number to a version that the others have given to another one ("Who has gone back").
const MEETS_MS: u64 = 3_000;

/// What is to be done next.
#[derive(Debug)]
pub(crate) enum ContentsStep {
    /// A site is told this.
    Say(SiteId, WideMessage),
    /// The island does this.
    Do(WorkOp),
    /// These versions become part of their files' states.
    Cut(Vec<CutVersion>),
    /// This file gets a body without a name, in which the bytes of its latest version are gathered.
    Stage(FileId),
    /// The bytes of the latest versions of these files are here.
    Arrived(Vec<Arrival>),
    /// No site has the latest version of this file, and this one has an earlier one: it is to be the latest.
    Lost(FileId),
    /// This file is not behind any more, or not shown: what was gathered for it goes.
    Forget(FileId),
}

/// When, and what may be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContentsNow<'a> {
    /// Milliseconds that never go back.
    pub(crate) ms: u64,
    /// A record may be decided.
    pub(crate) may_decide: bool,
    /// Files in whose bodies somebody is.
    pub(crate) busy: &'a BTreeSet<Ino>,
    /// Bytes that may be used up by what is fetched.
    pub(crate) room: u64,
    /// What other sites have heard of this one.
    pub(crate) peers: &'a WidePeers,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    cutting: Cutting,
    serving: Serving,
    fetching: Fetching,
    work: Work,
    ms: u64,
    /// When it began.
    began_ms: Option<u64>,
}

impl Contents {
    /// What a site goes on with where its rows end: of all side rows those of [`UNCUT`] and [`BEHIND`] are used.
    pub(crate) fn open<'a>(
        (own, sites): (Writer, impl IntoIterator<Item = Writer>),
        rows: impl IntoIterator<Item = &'a (u8, u128, Bytes)>,
    ) -> Self {
        let mut contents = Self { fetching: Fetching::new(own, sites), ..Self::default() };
        for (table, id, row) in rows {
            match *table {
                UNCUT => contents.cutting.was_uncut(Ino(*id as u64)),
                BEHIND => contents.fetching.was_behind(FileId(*id), behind_bytes(row)),
                _ => {}
            }
        }
        contents
    }

    /// These sites take part, with this one: a version that none of them has is lost.
    pub(crate) fn know(&mut self, sites: BTreeSet<Writer>) {
        self.fetching.know(sites);
    }

    /// Whether all versions are cut, and all bytes of other sites' versions are here.
    pub(crate) fn is_quiet(&self) -> bool {
        self.cutting.is_quiet() && self.serving.is_quiet() && self.fetching.is_quiet() && self.work.is_quiet()
    }

    /// How far it is with what is fetched of other sites.
    pub(crate) fn fetched(&self) -> FetchedBytes {
        self.fetching.fetched()
    }

    // ------------------------------------------------------------------ what comes

    /// Users have done this.
    pub(crate) fn witness(&mut self, happened: &[Happened], record: &Record, now_ms: u64) {
        self.serving.noted(record);
        for happened in happened {
            match happened {
                Happened::Written { ino, size, ranges, .. } => {
                    self.cutting.changed(*ino, *size, ranges, now_ms);
                }
                Happened::Removed { object, is_last: true, .. } => self.cutting.is_clean(object.ino()),
                _ => {}
            }
        }
    }

    /// A record was decided: the latest versions of more files may not be here, and more may be uncut.
    pub(crate) fn noted(&mut self, record: &Record, now_ms: u64) {
        self.serving.noted(record);
        for change in &record.changes {
            match change {
                RowChange::Side { table: BEHIND, id, row: Some(row) } => {
                    self.fetching.is_behind(FileId(*id), behind_bytes(row));
                }
                RowChange::Side { table: UNCUT, id, row: None } => self.cutting.is_clean(Ino(*id as u64)),
                RowChange::Side { table: UNCUT, id, row: Some(_) } => {
                    self.cutting.is_uncut(Ino(*id as u64), now_ms);
                }
                _ => {}
            }
        }
    }

    /// A version of a file is wanted at once.
    pub(crate) fn is_due(&mut self, ino: Ino) {
        self.cutting.is_due(ino);
    }

    /// A link on which both have said who they are is up, or is down.
    pub(crate) fn link(&mut self, site: SiteId, up: bool) {
        self.serving.link_down(site);
        self.fetching.link(site, up);
    }

    /// A site says something about bytes.
    pub(crate) fn heard(&mut self, from: SiteId, message: WideMessage) -> Result<(), Refused> {
        match message {
            WideMessage::WantPlan { file, dot, base, from: piece } => {
                let what = QuestionKind::Plan { base, from: piece };
                self.serving.ask(from, Question { file, dot, what })
            }
            WideMessage::WantBytes { file, dot, offset, len } => {
                let what = QuestionKind::Bytes { offset, len };
                self.serving.ask(from, Question { file, dot, what })
            }
            WideMessage::Plan { file, dot, plan } => {
                self.fetching.planned(from, file, dot, plan, self.ms);
                Ok(())
            }
            WideMessage::Bytes { file, dot, offset, bytes } => {
                self.fetching.came(from, file, dot, offset, bytes, self.ms);
                Ok(())
            }
            _ => unreachable!("no message about bytes"),
        }
    }

    /// The island has done something that was asked for.
    pub(crate) fn did(&mut self, id: u64, done: Result<(Answer, Bytes), Errno>) {
        match self.work.ended(id) {
            Some(WorkFor::Cut(ino)) => {
                self.cutting.did(ino, done.map(|(_, bytes)| bytes).map_err(|_| ()), self.ms);
            }
            Some(WorkFor::Fetch(file, number)) => {
                self.fetching.did((file, number), id, done.map(|(_, bytes)| bytes), self.ms);
            }
            Some(WorkFor::Serve(id)) => self.serving.did(id, done.ok().map(|(_, bytes)| bytes)),
            None => {}
        }
    }

    /// What was read of a file of which a version is cut.
    pub(crate) fn read(&self, ino: Ino) -> BTreeMap<u64, Bytes> {
        self.cutting.read(ino)
    }

    /// Versions of these were cut. They are kept for a while for those who ask for them, each with its file.
    pub(crate) fn cut(&mut self, inos: impl IntoIterator<Item = Ino>, kept: Vec<(FileId, CutBefore)>) {
        kept.into_iter().for_each(|(file, version)| self.serving.keep(file, version));
        inos.into_iter().for_each(|ino| self.cutting.cut(ino, self.ms));
    }

    /// These versions cannot be cut yet.
    pub(crate) fn cut_later(&mut self, inos: impl IntoIterator<Item = Ino>) {
        inos.into_iter().for_each(|ino| self.cutting.not_yet(ino, self.ms));
    }

    /// The bytes of a file are here, or are not wanted any more.
    pub(crate) fn is_done(&mut self, file: FileId) {
        self.fetching.is_done(file);
    }

    /// A version of a file is shown, and a later one is not here.
    pub(crate) fn goes_on(&mut self, file: FileId, bytes: u64) {
        self.fetching.is_done(file);
        self.fetching.is_behind(file, bytes);
    }

    /// What was fetched of a file is not what is wanted now, or cannot be shown yet.
    pub(crate) fn again(&mut self, file: FileId) {
        self.fetching.again(file, self.ms);
    }

    // ------------------------------------------------------------------- what is done

    /// The next step; none if something has to happen first.
    pub(crate) fn step(
        &mut self,
        rows: &SiteRows<'_>,
        moment: ContentsNow<'_>,
    ) -> Result<Option<ContentsStep>, Vec<RowLoad>> {
        self.ms = moment.ms;
        if let Some((site, message)) = self.serving.answer(rows, &self.fetching, moment.peers)? {
            return Ok(Some(ContentsStep::Say(site, message)));
        }
        let began_ms = *self.began_ms.get_or_insert(moment.ms);
        if moment.ms >= began_ms + MEETS_MS {
            self.cutting.begin(rows, moment.ms)?;
        }
        if self.work.has_room() {
            if let Some(op) = self.cutting.ask(&mut self.work) {
                return Ok(Some(ContentsStep::Do(op)));
            }
            if let Some(op) = self.serving.read(rows, &mut self.work)? {
                return Ok(Some(ContentsStep::Do(op)));
            }
        }
        if moment.may_decide {
            let versions = self.cutting.ready(OBJECTS_MAX, moment.busy);
            if !versions.is_empty() {
                return Ok(Some(ContentsStep::Cut(versions)));
            }
            let arrived = self.fetching.arrived(OBJECTS_MAX, moment.busy);
            if !arrived.is_empty() {
                return Ok(Some(ContentsStep::Arrived(arrived)));
            }
        }
        let begun = self.fetching.begin(rows, moment)?;
        Ok(begun.or_else(|| self.fetching.act(&mut self.work)))
    }
}

/// Bytes of the latest version of a file, by what is noted of it.
fn behind_bytes(row: &[u8]) -> u64 {
    let BehindRow::Behind { bytes, .. } = BehindRow::from_slice(row).expect("this site has written it");
    bytes
}
