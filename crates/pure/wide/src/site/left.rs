//! Bodies that have lost their names to what other sites have made, while somebody had them open. If a user is about to change the bytes of
//! one, it becomes a file beside the one that it was, and he goes on in it. So does what rests in the trash. Owns when that is so. Changes no
//! bytes.
//!
//! What a user of this site has removed has nothing beside its row, so it is none of them.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Decode, Ino};
use atoll_island::{BesideRecord, BesideStep, BesideView};
use atoll_posix::Op;

use super::steps::Steps;
use super::{NotYet, Site};
use crate::contents::pieces::no_rows;
use crate::foreign::bodies::{NewBodies, NewBody};
use crate::held::{HeldChanges, HeldObjects, SiteRows};
use crate::rows::{BesideRow, FILES, FileBytes, FileRow, TRASH, UNCUT, UncutRow, remove, set};
use crate::watch::ByteRanges;

/// The file whose bytes an operation of a user changes.
const fn changes_bytes(op: &Op) -> Option<Ino> {
    match op {
        Op::Write { ino, .. } | Op::Fallocate { ino, .. } | Op::CopyRange { to: ino, .. } => Some(*ino),
        Op::SetAttr { ino, set } if set.size.is_some() => Some(*ino),
        _ => None,
    }
}

impl Site {
    /// What comes before this operation so that what it changes is not lost; none if nothing.
    pub(super) fn before_changing(
        &mut self,
        view: BesideView<'_>,
        op: &Op,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<Option<BesideRecord>, NotYet> {
        let rows = SiteRows::new(view.state);
        let row = changes_bytes(op).and_then(|ino| rows.inode(ino)).filter(|row| row.attr.nlink == 0);
        rows.loaded()?;
        let row = row.filter(|_| !planted(Bug::LeftIsLost));
        let Some((row, beside)) = row.and_then(|row| Some((row, row.beside.as_ref()?))) else {
            return Ok(None);
        };
        let ino = row.attr.ino;
        let of = match BesideRow::from_slice(beside).expect("this site has written it") {
            BesideRow::File { file } => file.id,
            BesideRow::Nameless { of } => of,
            BesideRow::Dir { .. } => return Ok(None),
        };
        let file = rows.file(of);
        rows.lock_row(ino);
        rows.loaded()?;
        let file = file.ok_or(NotYet::Refused)?;
        let is_kept = file.body == Some(ino);
        if row.is_absent {
            // Its bytes do not come any more, or it is none that a user can have seen.
            return Err(NotYet::Refused);
        }
        let (as_is, name_of) = (HeldChanges::default(), |writer| self.name_of(writer));
        let held = HeldObjects::new(&rows, self.author.spine(), &as_is, &name_of);
        let mut steps = Steps::new(&rows, self.author.spine(), self.author.pen(view.now));
        let left = steps.left(of, &held, row.attr.mtime);
        rows.loaded()?;
        let (id, version) = left.ok_or(NotYet::Refused)?;
        let mut written = ByteRanges::default();
        written.add(0..row.attr.size);
        let bytes = FileBytes { has: Some(version), is_uncut: true, written, since: None };
        let bodies = NewBodies::from([(id, NewBody { ino: Some(ino), bytes })]);
        let mut sides = vec![set(UNCUT, ino.0.into(), &UncutRow::Uncut {})];
        // If it rests, it does so no more: the user goes on in what was there.
        let rests = self.trash.key_of(ino).filter(|_| !planted(Bug::WrittenRestsOn));
        sides.extend(rests.map(|key| remove(TRASH, key)));
        if is_kept {
            // Those with which it is shown as one have its bytes.
            sides.extend(no_rows(ino, file.bytes.has));
            let state = Box::new(file.state.clone());
            sides.push(set(FILES, of.0, &FileRow::Hidden { state, at: file.at, kept: None }));
        }
        match self.record_of(view, &rows, steps.finish(), (&bodies, sides), mint)? {
            BesideStep::Decide(record) => Ok(Some(record)),
            other => unreachable!("{other:?} is no record"),
        }
    }
}
