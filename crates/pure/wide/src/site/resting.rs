//! What rests in the trash of a site is listed, gets a name again, and goes, as people ask for that. Owns the records of these, and of what
//! goes by itself. Puts nothing into the trash.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name};
use atoll_island::{BesideRecord, BesideStep, BesideView};
use atoll_posix::{Errno, Kind, Op};
use atoll_proto::{Record, RowChange};

use super::steps::Steps;
use super::{NotYet, Site};
use crate::asks::{SiteAnswers, SiteAsks};
use crate::author::micros;
use crate::foreign::bodies::{NewBodies, NewBody};
use crate::held::SiteRows;
use crate::rows::{FileBytes, SiteDir, TRASH, UNCUT, UncutRow, remove, set, trash_of};
use crate::settled::SettledEntry;
use crate::trash::TrashEntry;

/// The trash is emptied.
#[derive(Debug, Clone)]
pub(super) struct Emptying {
    id: u64,
    upto: u128,
    bodies: u64,
    bytes: u64,
}

/// A file gets a name, or something comes before.
enum Restoring {
    /// The record by which it has one.
    Named(BesideStep),
    Before(BesideRecord),
    Refused(Errno),
}

impl Site {
    /// The next thing that is to be done on account of the trash; none if nothing is.
    pub(super) fn act_on_trash(
        &mut self,
        view: BesideView<'_>,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<Option<BesideStep>, NotYet> {
        if view.may_free
            && let Some(record) = self.let_go(view)?
        {
            return Ok(Some(BesideStep::Decide(record)));
        }
        let Some((id, asks)) = self.asked.trash.front().cloned() else { return Ok(None) };
        match asks {
            SiteAsks::TrashList { from } => {
                let answer = self.list(view, from)?;
                self.asked.done(answer);
            }
            SiteAsks::Settled { from } => {
                let answer = self.list_settled(view, from)?;
                self.asked.done(answer);
            }
            SiteAsks::TrashEmpty { upto } if self.asked.emptying.is_none() => {
                self.asked.emptying = Some(Emptying { id, upto, bodies: 0, bytes: 0 });
                self.asked.trash.pop_front();
            }
            SiteAsks::TrashRestore { key, dir, name } if view.may_decide => {
                match self.restore(view, key, (dir, name), mint)? {
                    Restoring::Named(step) => {
                        self.asked.done(SiteAnswers::Restored { ino: trash_of(key).1 });
                        return Ok(Some(step));
                    }
                    Restoring::Before(record) => return Ok(Some(BesideStep::Decide(record))),
                    Restoring::Refused(errno) => self.asked.done(SiteAnswers::Failed { errno }),
                }
            }
            SiteAsks::TrashEmpty { .. } | SiteAsks::TrashRestore { .. } => return Ok(None),
            SiteAsks::Know { .. } | SiteAsks::Confirm { .. } => unreachable!("it is not about the trash"),
        }
        match self.asked.says() {
            Some(step) => Ok(Some(step)),
            None => self.act_on_trash(view, mint),
        }
    }

    fn list_settled(&self, view: BesideView<'_>, from: u128) -> Result<SiteAnswers, NotYet> {
        let rows = SiteRows::new(view.state);
        let (keys, next) = self.settled.page(from);
        let entry = |key| Some(SettledEntry { key, settled: rows.settled(key)? });
        let entries = keys.into_iter().filter_map(entry).collect();
        rows.loaded()?;
        Ok(SiteAnswers::Settled { entries, next })
    }

    fn list(&self, view: BesideView<'_>, from: u128) -> Result<SiteAnswers, NotYet> {
        let rows = SiteRows::new(view.state);
        let (keys, next) = self.trash.page(from);
        let entry = |key| {
            let (rested, row) = (rows.rested(key), rows.inode(trash_of(key).1));
            Some(TrashEntry { key, kind: row?.attr.kind, rested: rested? })
        };
        let entries = keys.into_iter().filter_map(entry).collect();
        rows.loaded()?;
        Ok(SiteAnswers::TrashList { entries, next })
    }

    /// The record by which bodies go whose time has come, or which somebody wants gone.
    fn let_go(&mut self, view: BesideView<'_>) -> Result<Option<BesideRecord>, NotYet> {
        let upto = self.asked.emptying.as_ref().map(|emptying| emptying.upto);
        let (now_us, ms) = (micros(view.now.wall), view.now.ms);
        let keys = self.trash.going(upto, now_us, (view.room, ms));
        let is_last = |key: &u128| upto.is_some_and(|upto| *key > upto);
        if keys.first().is_none_or(is_last)
            && let Some(Emptying { id, bodies, bytes, .. }) = self.asked.emptying.take()
        {
            self.asked.answer(id, SiteAnswers::Emptied { bodies, bytes });
        }
        if keys.is_empty() {
            return Ok(None);
        }
        let rows = SiteRows::new(view.state);
        let mut changes = Vec::new();
        for key in &keys {
            let ino = trash_of(*key).1;
            changes.extend(rows.inode(ino).map(|_| RowChange::Inode { ino, row: None }));
            changes.push(remove(TRASH, *key));
        }
        rows.loaded()?;
        let bytes = self.trash.gone(&keys, ms);
        if let Some(emptying) = &mut self.asked.emptying {
            emptying.bodies += keys.len() as u64;
            emptying.bytes += bytes;
        }
        let mut record = Record { changes, bodies: Vec::new() };
        self.noted(&mut record, ms);
        Ok(Some(BesideRecord { record, made: Vec::new() }))
    }

    /// A body that rests gets a name, as a new file whose bytes somebody has written and no version has.
    fn restore(
        &mut self,
        view: BesideView<'_>,
        key: u128,
        (dir, name): (Ino, Name),
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<Restoring, NotYet> {
        if !self.trash.has(key) {
            return Ok(Restoring::Refused(Errno::ENOENT));
        }
        let rows = SiteRows::new(view.state);
        let ino = trash_of(key).1;
        let (above, there, row) = (rows.dir_row(dir), rows.entry(dir, &name), rows.inode(ino));
        let xattrs = row.filter(|row| row.has_xattrs).and_then(|_| rows.xattrs(ino));
        rows.lock_row(ino);
        rows.loaded()?;
        let (Some(above), Some(row)) = (above, row) else { return Ok(Restoring::Refused(Errno::ENOENT)) };
        if there.is_some() {
            return Ok(Restoring::Refused(Errno::EEXIST));
        }
        if view.busy.contains(&ino) {
            // Somebody has it open, and is about to have written there.
            return Ok(Restoring::Refused(Errno::EBUSY));
        }
        let (kind, mode, umask, rdev, exclusive) = (row.attr.kind, row.attr.mode, 0, 0, true);
        let target = row.target.clone().unwrap_or_default();
        let op = Op::Create { dir, name: name.clone(), kind, mode, umask, rdev, exclusive, target };
        match self.before(view, &op, mint) {
            Ok(None) => {}
            Ok(Some(record)) => return Ok(Restoring::Before(record)),
            Err(NotYet::Refused | NotYet::Version(_)) => return Ok(Restoring::Refused(Errno::EBUSY)),
            Err(not_yet) => return Err(not_yet),
        }
        self.may_go = false;
        let mut steps = Steps::new(&rows, self.author.spine(), self.author.pen(view.now));
        let parent = SiteDir::of(dir, above).id;
        let born = steps.born(parent, name, row, xattrs);
        rows.loaded()?;
        let (id, has) = born.expect("its directory is there");
        let mut bytes = FileBytes { has: Some(has), ..FileBytes::default() };
        let mut sides = vec![remove(TRASH, key)];
        if kind == Kind::Regular && !planted(Bug::RestoredUncut) {
            bytes.is_uncut = true;
            bytes.written.add(0..row.attr.size);
            sides.push(set(UNCUT, ino.0.into(), &UncutRow::Uncut {}));
        }
        let bodies = NewBodies::from([(id, NewBody { ino: Some(ino), bytes })]);
        let made = steps.finish();
        match self.record_of(view, &rows, made, (&bodies, sides), mint) {
            Ok(step) => {
                self.contents.is_due(ino);
                Ok(Restoring::Named(step))
            }
            Err(NotYet::Refused | NotYet::Version(_)) => Ok(Restoring::Refused(Errno::EBUSY)),
            Err(not_yet) => Err(not_yet),
        }
    }
}
