//! A site, beside its island: the author of what its users do, and what other sites have made. Owns what happens before an operation of a
//! user that touches what is derived. Knows no link to another site.

mod prepare;
mod steps;

use std::collections::BTreeMap;

use atoll_causal::{Context, Writer};
use atoll_core::{Ino, IslandId, Malformed};
use atoll_island::{Beside, BesideRecord, BesideStep, BesideView, Now};
use atoll_posix::Op;
use atoll_proto::{EntryRef, Record};
use atoll_state::{NotInMemory, RowLoad, State};
use bytes::Bytes;

use crate::author::{Author, Bundle, BundleChange};
use crate::foreign::{self, ForeignDecision, Here, Waits};
use crate::held::{HeldChanges, HeldObjects, SiteRows};
use crate::rows::FeedRow;
use prepare::Needed;
use steps::Steps;

/// See the module.
#[derive(Debug, Clone)]
pub struct Site {
    author: Author,
    island: IslandId,
    names: BTreeMap<Writer, String>,
}

/// What has become of changes of another site.
#[derive(Debug)]
pub struct TakenChanges {
    /// What is to be decided; none if all of it was known.
    pub record: Option<BesideRecord>,
    /// Objects whose whole state is to be asked for, with what is known of them.
    pub wants: BTreeMap<FeedRow, Context>,
    /// How many of the changes were refused.
    pub refused: usize,
    /// A move of directories was not taken because its writer has too many in the log. It is taken after the next cut.
    pub is_busy: bool,
}

/// A step that is not made yet.
#[derive(Debug)]
enum NotYet {
    Rows(Vec<RowLoad>),
    Numbers,
}

impl Site {
    /// A site that goes on where its rows end ([`Author::open`]). `names` are those of the sites to which writers belong.
    pub fn open(
        writer: Writer,
        island: IslandId,
        names: BTreeMap<Writer, String>,
        rows: impl IntoIterator<Item = (u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        Ok(Self { author: Author::open(writer, rows)?, island, names })
    }

    /// What its users have made.
    pub const fn author(&self) -> &Author {
        &self.author
    }

    /// What is to be decided when these changes of another site come. It must be decided at the view's position. `mint` gives numbers
    /// that nothing has had, or none for now.
    pub fn take(
        &mut self,
        view: BesideView<'_>,
        changes: &[BundleChange],
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<TakenChanges, Waits> {
        // Nobody else gives dots of this writer: this site has gone back, or the other one lies.
        let is_forged = |change: &&BundleChange| !self.author.has_given(change);
        let forged = changes.iter().filter(is_forged).count();
        let honest: Vec<BundleChange>;
        let changes = if forged == 0 {
            changes
        } else {
            honest = changes.iter().filter(|change| !is_forged(change)).cloned().collect();
            &honest
        };
        let decision = self.decide(view, changes, mint)?;
        let ForeignDecision { record, files, spine, heard, wants, refused, is_busy, .. } = decision;
        self.author.hear(view.now, spine, &heard);
        let record = (!record.changes.is_empty()).then_some(BesideRecord { record, made: files });
        Ok(TakenChanges { record, wants, refused: refused + forged, is_busy })
    }

    fn decide(
        &self,
        view: BesideView<'_>,
        changes: &[BundleChange],
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
        foreign::decide(here, changes, mint)
    }

    fn name_of(&self, writer: Writer) -> String {
        self.names.get(&writer).cloned().unwrap_or_else(|| format!("{:x}", writer.0))
    }

    /// What is to be decided before this operation; none if nothing.
    fn before(
        &mut self,
        view: BesideView<'_>,
        op: &Op,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<Option<BesideRecord>, NotYet> {
        let rows = SiteRows::new(view.state);
        let (as_is, name_of) = (HeldChanges::default(), |writer| self.name_of(writer));
        let held = HeldObjects::new(&rows, self.author.spine(), &as_is, &name_of);
        let needed = Needed::of(&rows, &held, op);
        let loaded = || match rows.missing() {
            missing if missing.is_empty() => Ok(()),
            missing => Err(NotYet::Rows(missing)),
        };
        loaded()?;
        if needed.is_empty() {
            return Ok(None);
        }
        let mut steps = Steps::new(&rows, self.author.spine(), self.author.pen(view.now));
        needed.into_steps().iter().for_each(|step| steps.make(step));
        loaded()?;
        let (changes, pen) = steps.finish();
        let decision = match self.decide(view, &changes, mint) {
            Ok(decision) => decision,
            Err(Waits::Rows(missing)) => return Err(NotYet::Rows(missing)),
            Err(Waits::Numbers) => return Err(NotYet::Numbers),
            Err(waits @ (Waits::Version(_) | Waits::TooMany)) => {
                unreachable!("what is shown stays as it is: {waits:?}")
            }
        };
        let ForeignDecision { mut record, files, spine, wants, refused, .. } = decision;
        assert!(wants.is_empty() && refused == 0, "a change of this site's own does not fit: {changes:?}");
        self.author.hear(view.now, spine, &[]);
        let bundle = Bundle { position: view.position(), changes };
        record.changes.push(self.author.wrote(pen, bundle));
        Ok(Some(BesideRecord { record, made: files }))
    }
}

impl Beside for Site {
    fn witness(&mut self, state: &State, now: Now, seq: u64, record: &mut Record) {
        self.author.witness(state, now, seq, record);
    }

    fn allows_moves(&self, state: &State, now: Now, moves: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        self.author.allows_moves(state, now, moves)
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
        }
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}
