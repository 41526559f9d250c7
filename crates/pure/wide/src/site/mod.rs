//! A site, beside its island: the author of what its users do, and what other sites have made. Owns what happens before an operation of a
//! user that touches what is derived, and with it. Knows no socket.

mod asked;
mod bodies;
mod copying;
mod left;
mod prepare;
mod resting;
mod steps;
mod traced;

use std::collections::{BTreeSet, VecDeque};

use atoll_causal::Writer;
use atoll_core::planted::{Bug, planted};
use atoll_core::{Decode, Encode, Ino, IslandId, Malformed};
use atoll_island::{Beside, BesideEvent, BesideRecord, BesideSays, BesideStep, BesideView, Now};
use atoll_posix::{Answer, Errno, Op};
use atoll_proto::{EntryRef, Record, RowChange};
use atoll_state::{NotInMemory, RowLoad, State};
use bytes::Bytes;

use crate::author::{Author, Bundle, BundleChange, MadeRecord, Pen};
use crate::confirm::{Confirmed, Confirms};
use crate::contents::{Contents, FetchedBytes, pieces};
use crate::copies::CopiesOfFiles;
use crate::foreign::bodies::NewBodies;
use crate::foreign::{self, ForeignDecision, Here, HereBodies, OBJECTS_MAX, Waits};
use crate::held::{HeldChanges, HeldObjects, SiteRows};
use crate::members::{SiteList, SiteMember};
use crate::peers::message::WideMessage;
use crate::peers::{Own, Refused, WidePeers, Window};
use crate::rows::{
    BEHIND, COPIES, DIRS, FeedRow, LIVES, MEMBERS, MOVES, PEERS, SETTLED, SiteId, TRASH, UNCUT, WRITERS,
};
use crate::settled::SettledLog;
use crate::trash::Trash;
use crate::watch::happened;
use asked::SiteQuestions;
use prepare::{Needed, SiteStep, TOGETHER_MAX};
use steps::Steps;

/// Which site it is.
#[derive(Debug, Clone)]
pub struct SiteConfig {
    /// The volume, as other sites must name it.
    pub volume: u64,
    /// Its number.
    pub site: SiteId,
    /// Its island.
    pub island: IslandId,
    /// The life of this machine ([`lives`](crate::lives)): a random number, drawn anew for each start.
    pub life: u64,
    /// This site, as it is now, and the others of which it is to know from its beginning on.
    pub members: Vec<(SiteId, SiteMember)>,
    /// How much may be under way to another site.
    pub window: Window,
    /// Copies of one file that stay, of those that conflicts make: [`atoll_shown::COPIES_MAX`]. It must be the same at all sites.
    pub copies_max: usize,
    /// Bytes that the trash may take on the disk: a tenth of it.
    pub trash_bytes: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Site {
    island: IslandId,
    members: SiteList,
    confirms: Confirms,
    author: Author,
    peers: WidePeers,
    contents: Contents,
    copies: CopiesOfFiles,
    trash: Trash,
    settled: SettledLog,
    asked: SiteQuestions,
    /// What has come and is not heard yet, with its bytes: of each other site at most what it may have under way.
    inbox: VecDeque<(SiteId, Heard)>,
    /// What the island has done, and is not looked at yet.
    did: Vec<Did>,
    /// Links that are to be ended, and why.
    ends: VecDeque<(SiteId, String)>,
    /// The last record when it began, and the number of its last dot. Before that record is synced, it may be lost with what it says of
    /// other sites.
    began: (u64, u64),
    /// Something may go with the operation that is decided next.
    may_go: bool,
}

/// What has come for a site.
#[derive(Debug, Clone)]
enum Heard {
    Link { up: bool },
    Message(WideMessage),
}

/// What the island has done for a site.
type Did = (u64, Result<(Answer, Bytes), Errno>);

/// A step that is not made yet.
#[derive(Debug)]
enum NotYet {
    Rows(Vec<RowLoad>),
    Numbers,
    /// This file goes, and no version has all its bytes.
    Version(Ino),
    /// There is more at a name than one record takes, or an object has more links or writers than fit.
    Refused,
}

impl From<Vec<RowLoad>> for NotYet {
    fn from(loads: Vec<RowLoad>) -> Self {
        Self::Rows(loads)
    }
}

impl From<Waits> for NotYet {
    fn from(waits: Waits) -> Self {
        match waits {
            Waits::Rows(loads) => Self::Rows(loads),
            Waits::Numbers => Self::Numbers,
            Waits::Version(ino, _) => Self::Version(ino),
            Waits::TooMany => Self::Refused,
        }
    }
}

impl Site {
    /// Side tables that [`Site::open`] needs whole.
    pub const TABLES: &'static [u8] =
        &[BEHIND, COPIES, DIRS, LIVES, MEMBERS, UNCUT, MOVES, PEERS, SETTLED, TRASH, WRITERS];

    /// A site that goes on where its rows end, those of [`Site::TABLES`]: others are not used. `position` is that of the last record before
    /// this machine. Nobody hears of the site before that one is synced.
    pub fn open(
        config: SiteConfig,
        position: u64,
        rows: impl IntoIterator<Item = (u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        let rows: Vec<_> = rows.into_iter().collect();
        let SiteConfig { volume, site, island, life, members, window, copies_max, trash_bytes } = config;
        let members = SiteList::open(site, members, &rows)?;
        let writer = members.get(site).ok_or(Malformed::new("a site that knows itself"))?.writer;
        let peers = WidePeers::open(volume, writer, window, position, rows.iter().cloned())?;
        let contents = Contents::open((writer, members.writers()), &rows);
        let copies = CopiesOfFiles::open(copies_max, &rows)?;
        let trash = Trash::open(trash_bytes, &rows)?;
        let settled = SettledLog::open(&rows);
        let author = Author::open(writer, life, position, rows)?;
        let began = (position, author.given().1);
        let (inbox, did, ends, may_go) = (VecDeque::new(), Vec::new(), VecDeque::new(), false);
        let (confirms, asked) = Default::default();
        Ok(Self {
            island,
            members,
            confirms,
            author,
            peers,
            contents,
            copies,
            trash,
            settled,
            asked,
            inbox,
            did,
            ends,
            began,
            may_go,
        })
    }

    /// What its users have made.
    pub const fn author(&self) -> &Author {
        &self.author
    }

    /// The last record before it began, and the number of its last dot then.
    pub const fn began(&self) -> (u64, u64) {
        self.began
    }

    /// What other sites are told, and what they have told.
    pub const fn peers(&self) -> &WidePeers {
        &self.peers
    }

    /// What is known of a question who has something ([`SiteAsks::Confirm`](crate::asks::SiteAsks::Confirm)); none before it was looked at.
    pub fn confirmed(&self, number: u64) -> Option<&Confirmed> {
        self.confirms.answer(number)
    }

    /// The sites of the volume.
    pub const fn members(&self) -> &SiteList {
        &self.members
    }

    /// What rests here that other sites have taken away.
    pub const fn trash(&self) -> &Trash {
        &self.trash
    }

    /// Whether all versions of files are cut, and the bytes of all others' versions are here.
    pub fn has_all_bytes(&self) -> bool {
        self.contents.is_quiet()
    }

    /// How far it is with the bytes of other sites' versions that are not here.
    pub fn fetched(&self) -> FetchedBytes {
        self.contents.fetched()
    }

    /// `rests`: what goes is taken away by another site, and rests in the trash.
    fn decide(
        &self,
        view: BesideView<'_>,
        changes: &[BundleChange],
        (bodies, rests): (&NewBodies, bool),
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<ForeignDecision, Waits> {
        let site = |writer| self.name_of(writer);
        let here = Here {
            state: view.state,
            spine: self.author.spine(),
            site: &site,
            island: self.island,
            position: view.position(),
            now: view.now.wall,
        };
        let rest = rests.then(|| self.trash.bytes_max());
        let bodies = HereBodies { new: bodies, busy: view.busy, rest };
        foreign::decide_all(here, changes, bodies, mint)
    }

    /// A record of this machine is decided.
    fn noted(&mut self, record: &mut Record, now_ms: u64) {
        self.contents.noted(record, now_ms);
        self.copies.noted(record);
        self.trash.noted(record);
        self.settled.noted(record);
    }

    fn name_of(&self, writer: Writer) -> String {
        self.members.name_of(writer).map_or_else(|| format!("{:x}", writer.0), str::to_owned)
    }

    /// The next thing that is to be done on account of other sites.
    fn act(
        &mut self,
        view: BesideView<'_>,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<BesideStep, NotYet> {
        if view.synced < self.began.0 {
            return Ok(BesideStep::Rest);
        }
        self.peers.synced(if planted(Bug::ToldUnsynced) { view.state.seq() } else { view.synced });
        self.hear_all(view.state);
        self.peers.goes_on(view.now.ms);
        if let Some((SiteId(peer), why)) = self.ends.pop_front() {
            return Ok(BesideStep::Say(BesideSays::End { peer, why }));
        }
        if view.may_decide && !self.members.are_written() {
            let record = Record { changes: self.members.rows(), ..Record::default() };
            return Ok(BesideStep::Decide(BesideRecord { record, made: Vec::new() }));
        }
        if let Some(step) = self.act_on_questions(view, mint)? {
            return Ok(step);
        }
        if self.members.takes_part() {
            match self.take(view, mint) {
                Ok(None) => {}
                Ok(Some(record)) => return Ok(BesideStep::Decide(record)),
                // What a site is told does not wait for what it cannot take yet.
                Err(NotYet::Version(ino)) => self.contents.is_due(ino),
                Err(not_yet) => return Err(not_yet),
            }
        }
        for site in self.peers.sites() {
            if self.peers.is_linked(site)
                && let Some(message) = self.members.tell(site)
            {
                let bytes = message.to_vec().into();
                return Ok(BesideStep::Say(BesideSays::Send { peer: site.0, bytes }));
            }
            if self.peers.is_linked(site) && !self.members.takes_part() {
                continue;
            }
            if let Some(message) = self.peers.tell(own(&self.author, view.state), site)? {
                let bytes = message.to_vec().into();
                return Ok(BesideStep::Say(BesideSays::Send { peer: site.0, bytes }));
            }
        }
        if !self.members.takes_part() {
            return Ok(BesideStep::Rest);
        }
        if !self.confirms.is_quiet() {
            let linked: Vec<SiteId> =
                self.peers.sites().into_iter().filter(|site| self.peers.is_linked(*site)).collect();
            let rows = SiteRows::new(view.state);
            if let Some((SiteId(peer), message)) =
                self.confirms.next(self.members.own(), &rows, view.synced, &linked)?
            {
                return Ok(BesideStep::Say(BesideSays::Send { peer, bytes: message.to_vec().into() }));
            }
        }
        if let Some(step) = self.answers() {
            return Ok(step);
        }
        if let Some(step) = self.bound_copies(view, mint)? {
            return Ok(step);
        }
        self.act_on_bytes(view, mint)
    }

    /// Takes note of what has come.
    fn hear_all(&mut self, state: &State) {
        std::mem::take(&mut self.did).into_iter().for_each(|(id, done)| self.contents.did(id, done));
        while let Some((site, heard)) = self.inbox.pop_front() {
            let was_linked = self.peers.is_linked(site);
            let heard = match heard {
                Heard::Link { up: true } => {
                    self.peers.link_up(site);
                    Ok(())
                }
                Heard::Link { up: false } => {
                    self.peers.link_down(site);
                    Ok(())
                }
                Heard::Message(message) if message.is_about_bytes() && was_linked => {
                    self.contents.heard(site, message)
                }
                Heard::Message(WideMessage::Confirm { question, objects }) if was_linked => {
                    self.confirms.heard(site, question, objects)
                }
                Heard::Message(WideMessage::Confirmed { question, site: of, lacks }) if was_linked => {
                    self.confirms.answered(self.members.own(), question, SiteId(of), lacks);
                    Ok(())
                }
                Heard::Message(WideMessage::Sites { sites }) if was_linked => {
                    self.members.heard(sites).map(|is_news| self.know(is_news))
                }
                Heard::Message(message) => self.peers.heard(own(&self.author, state), site, message),
            };
            if let Err(why) = heard {
                self.peers.link_down(site);
                self.end(site, why);
            }
            self.link_changed(site, was_linked);
        }
    }

    /// The link to a site ends, or has ended.
    fn end(&mut self, site: SiteId, why: Refused) {
        let why = match why {
            Refused::ThirdWentBack(writer) => format!(
                "site {} has gone back to an earlier state: this site and the other one have taken different changes of it",
                self.name_of(writer)
            ),
            why => why.to_string(),
        };
        self.ends.push_back((site, why));
    }

    /// Takes note of news of sites.
    fn know(&mut self, is_news: bool) {
        if is_news {
            self.contents.know(self.members.writers());
        }
    }

    /// If a link has come up or gone down, what is under way of bytes on it is of no use.
    fn link_changed(&mut self, site: SiteId, was_linked: bool) {
        let is_linked = self.peers.is_linked(site);
        if was_linked != is_linked {
            self.contents.link(site, is_linked);
            self.members.link_down(site);
            self.confirms.link_down(site);
        }
    }

    /// The next record of what other sites have made.
    fn take(
        &mut self,
        view: BesideView<'_>,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<Option<BesideRecord>, NotYet> {
        if !view.may_decide {
            return Ok(None);
        }
        while let Some(step) = self.peers.next(own(&self.author, view.state))? {
            // Nobody else gives dots of this writer: this site has gone back, or the other one lies. Each writer is that of a site, of which
            // this one has heard before: so no object has more writers than there are sites.
            let given =
                |change: &&BundleChange| self.author.has_given(change) && self.members.have_made(change);
            let honest: Vec<BundleChange> = step.changes.iter().filter(given).cloned().collect();
            let mut decision = self.decide_most(view, &honest, mint)?;
            decision.refused += step.changes.len() - honest.len();
            let was_linked = self.peers.is_linked(step.from);
            let given = self.author.own_dots();
            if let Err(why) = self.peers.decided(given, &step, view.position(), &mut decision) {
                self.end(step.from, why);
                self.link_changed(step.from, was_linked);
            }
            while let Some((site, why)) = self.peers.refusal() {
                self.end(site, why);
                self.link_changed(site, true);
            }
            self.author.begins_with(view.position(), &mut decision.record.changes);
            self.noted(&mut decision.record, view.now.ms);
            let ForeignDecision { record, changed, files, spine, heard, .. } = decision;
            self.author.hear(view.now, spine, &heard);
            if !changed.is_empty() {
                let (position, from) = (view.position(), step.from);
                self.author.took(MadeRecord::Foreign { position, from, changed });
            }
            if !record.changes.is_empty() {
                return Ok(Some(BesideRecord { record, made: files }));
            }
        }
        Ok(None)
    }

    /// What becomes of changes of another site. Those on whose account a file would go that may not go yet come later.
    fn decide_most(
        &mut self,
        view: BesideView<'_>,
        changes: &[BundleChange],
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<ForeignDecision, NotYet> {
        let mut changes = changes.to_vec();
        let mut later = BTreeSet::new();
        loop {
            let (ino, files) = match self.decide(view, &changes, (&NewBodies::new(), true), mint) {
                Err(Waits::Version(ino, files)) => (ino, files),
                Err(Waits::TooMany) => unreachable!("a step has as many changes as fit"),
                Err(waits) => return Err(waits.into()),
                Ok(decision) => return Ok(ForeignDecision { later, ..decision }),
            };
            self.contents.is_due(ino);
            let waits = |change: &BundleChange| {
                let object = change.object();
                matches!(object, FeedRow::File { id } if files.contains(&id)).then_some(object)
            };
            let before = later.len();
            later.extend(changes.iter().filter_map(waits));
            changes.retain(|change| waits(change).is_none());
            if later.len() == before {
                let object = self.first_that_waits(view, &changes, mint)?;
                later.insert(object);
                changes.retain(|change| change.object() != object);
            }
        }
    }

    /// Of changes that cannot be decided together since a file may not go yet: the first one with which that is so. It is one of a directory,
    /// by which names come together or go.
    fn first_that_waits(
        &self,
        view: BesideView<'_>,
        changes: &[BundleChange],
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<FeedRow, NotYet> {
        let (mut goes, mut waits) = (0, changes.len());
        while waits - goes > 1 {
            let half = usize::midpoint(goes, waits);
            match self.decide(view, &changes[..half], (&NewBodies::new(), true), mint) {
                Ok(_) => goes = half,
                Err(Waits::Version(..)) => waits = half,
                Err(waits) => return Err(waits.into()),
            }
        }
        Ok(changes[waits - 1].object())
    }

    /// What is to be decided before this operation; none if nothing.
    fn before(
        &mut self,
        view: BesideView<'_>,
        op: &Op,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<Option<BesideRecord>, NotYet> {
        // Until all that comes before this operation is decided.
        self.may_go = false;
        if let Some(record) = self.before_changing(view, op, mint)? {
            return Ok(Some(record));
        }
        let rows = SiteRows::new(view.state);
        let (as_is, name_of) = (HeldChanges::default(), |writer| self.name_of(writer));
        let held = HeldObjects::new(&rows, self.author.spine(), &as_is, &name_of);
        let needed = Needed::of(&rows, &held, op);
        rows.loaded()?;
        if needed.is_too_much {
            return Err(NotYet::Refused);
        }
        let (before, together) = needed.into_steps();
        if before.is_empty() {
            if !together.is_empty() {
                // The rows that it needs then are in memory from here on.
                self.steps(view, &rows, &together, mint)?;
                self.may_go = true;
            }
            return Ok(None);
        }
        if before.len() > OBJECTS_MAX {
            return Err(NotYet::Refused);
        }
        let (changes, pen, decision) = self.steps(view, &rows, &before, mint)?;
        let ForeignDecision { mut record, files, spine, .. } = decision;
        self.noted(&mut record, view.now.ms);
        self.author.hear(view.now, spine, &[]);
        let bundle = Bundle { position: view.position(), changes };
        record.changes.extend(self.author.wrote(pen, bundle));
        Ok(Some(BesideRecord { record, made: files }))
    }

    /// The changes by which steps are made, and the rows of these.
    fn steps(
        &self,
        view: BesideView<'_>,
        rows: &SiteRows<'_>,
        steps: &[SiteStep],
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<(Vec<BundleChange>, Pen, ForeignDecision), NotYet> {
        if steps.len() > TOGETHER_MAX {
            return Err(NotYet::Refused);
        }
        let mut made = Steps::new(rows, self.author.spine(), self.author.pen(view.now));
        steps.iter().for_each(|step| made.make(step));
        rows.loaded()?;
        let (changes, pen) = made.finish();
        let decision = self.decide(view, &changes, (&NewBodies::new(), false), mint)?;
        if !decision.wants.is_empty() || decision.refused > 0 {
            return Err(NotYet::Refused);
        }
        Ok((changes, pen, decision))
    }

    /// What goes with a record; nothing if rows are missing.
    fn goes_with(&mut self, view: BesideView<'_>, record: &Record) -> Result<Vec<RowChange>, NotYet> {
        let happened = happened(view.state, record).map_err(|NotInMemory(load)| NotYet::Rows(vec![load]))?;
        let rows = SiteRows::new(view.state);
        let (as_is, name_of) = (HeldChanges::default(), |writer| self.name_of(writer));
        let held = HeldObjects::new(&rows, self.author.spine(), &as_is, &name_of);
        let together = Needed::with(&rows, &held, &happened);
        if together.is_empty() {
            return Ok(Vec::new());
        }
        let (changes, pen, decision) = self.steps(view, &rows, &together, &mut || None)?;
        let ForeignDecision { mut record, spine, .. } = decision;
        // By other rows users would see something else: what was to come before the record could not be decided.
        let is_beside = |change: &RowChange| {
            matches!(change, RowChange::Side { .. } | RowChange::Inode { row: Some(_), .. })
        };
        if !record.changes.iter().all(is_beside) {
            return Ok(Vec::new());
        }
        self.noted(&mut record, view.now.ms);
        self.author.hear(view.now, spine, &[]);
        self.author.wrote_first(pen, changes);
        Ok(record.changes)
    }
}

impl Beside for Site {
    fn witness(&mut self, state: &State, now: Now, seq: u64, record: &mut Record) {
        let happened = self.author.witness(state, now, seq, record);
        self.contents.witness(&happened, record, now.ms);
    }

    fn allows_moves(&self, state: &State, now: Now, moves: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        self.author.allows_moves(state, now, moves)
    }

    fn file_bytes_max(&self) -> u64 {
        pieces::FILE_BYTES_MAX
    }

    fn prepare(
        &mut self,
        view: BesideView<'_>,
        op: &Op,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> BesideStep {
        match self.before(view, op, mint) {
            Ok(None) => BesideStep::Rest,
            Ok(Some(record)) => BesideStep::Decide(record),
            Err(NotYet::Rows(loads)) => BesideStep::Load(loads),
            Err(NotYet::Numbers) => BesideStep::Ids,
            Err(NotYet::Version(_) | NotYet::Refused) => BesideStep::Refuse,
        }
    }

    fn first(&mut self, view: BesideView<'_>, record: &Record) -> Vec<RowChange> {
        if !self.may_go {
            return Vec::new();
        }
        // Who has prepared the operation has all rows. What nobody asked for, as a recovery's record, takes nothing along.
        self.goes_with(view, record).unwrap_or_default()
    }

    fn hear(&mut self, event: BesideEvent) {
        match event {
            BesideEvent::Asked { id, bytes } => self.hear_question(id, &bytes),
            BesideEvent::Did { id, done } => self.did.push((id, done)),
            BesideEvent::Link { peer, up } => self.inbox.push_back((SiteId(peer), Heard::Link { up })),
            BesideEvent::Message { peer, bytes } => match WideMessage::from_slice(&bytes) {
                Ok(message) => self.inbox.push_back((SiteId(peer), Heard::Message(message))),
                Err(why) => {
                    self.inbox.push_back((SiteId(peer), Heard::Link { up: false }));
                    self.ends.push_back((SiteId(peer), why.to_string()));
                }
            },
        }
    }

    fn step(&mut self, view: BesideView<'_>, mint: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        match self.act(view, mint) {
            Ok(step) => step,
            Err(NotYet::Rows(loads)) => BesideStep::Load(loads),
            Err(NotYet::Numbers) => BesideStep::Ids,
            Err(NotYet::Version(ino)) => {
                self.contents.is_due(ino);
                BesideStep::Rest
            }
            Err(NotYet::Refused) => BesideStep::Rest,
        }
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

/// What other sites are told of.
const fn own<'a>(author: &'a Author, state: &'a State) -> Own<'a> {
    Own { state, spine: author.spine(), made: author.made(), given: author.own_dots() }
}
