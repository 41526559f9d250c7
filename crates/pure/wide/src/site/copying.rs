//! Copies of a file that are too many: the oldest go, as if somebody had removed them. Owns the record of that. Never settles a conflict.

use atoll_causal::FileId;
use atoll_core::Ino;
use atoll_island::{BesideStep, BesideView};

use super::prepare::SiteStep;
use super::steps::Steps;
use super::{NotYet, Site};
use crate::copies::UnusedCopy;
use crate::foreign::bodies::NewBodies;
use crate::held::SiteRows;
use crate::rows::{COPIES, CopiesRow, set};

/// Copies that go with one record.
const GO_AT_ONCE: usize = 16;
/// Milliseconds until it is looked at again, if a copy cannot go.
const AGAIN_MS: u64 = 1_000;

impl Site {
    /// The record by which copies of a file go that are too many, as this site knows; none if nothing is to be done now.
    pub(super) fn bound_copies(
        &mut self,
        view: BesideView<'_>,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<Option<BesideStep>, NotYet> {
        let Some(of) = self.copies.due(view.now.ms).filter(|_| view.may_decide) else { return Ok(None) };
        let rows = SiteRows::new(view.state);
        let ids = rows.copies(of);
        let (mut unused, mut left) = (Vec::new(), Vec::new());
        for id in &ids {
            let Some(held) = rows.file(*id) else { continue };
            match UnusedCopy::of(*id, &held.state) {
                // Its directory has not come. So nobody sees it.
                Some(copy) if rows.dir(copy.dir).is_none() => left.push(copy.id),
                Some(copy) if !held.bytes.is_uncut => unused.push(copy),
                // It is used, or gone.
                _ => {}
            }
        }
        unused.sort();
        let going = unused.len().saturating_sub(self.copies.most()).min(GO_AT_ONCE);
        left.extend(unused.split_off(going).into_iter().map(|copy| copy.id));
        left.sort();
        rows.loaded()?;
        if left == ids {
            self.copies.later(of, view.now.ms + AGAIN_MS);
            return Ok(None);
        }
        let mut steps = Steps::new(&rows, self.author.spine(), self.author.pen(view.now));
        for UnusedCopy { id: file, link, dir, name, .. } in unused {
            steps.make(&SiteStep::Unlink { file, link, dir, name });
        }
        let made = steps.finish();
        let sides = vec![set(COPIES, of.0, &CopiesRow::Copies { ids: left })];
        match self.record_of(view, &rows, made, (&NewBodies::new(), sides), mint) {
            Ok(step) => Ok(Some(step)),
            // Somebody is in one of them, or in a file that is shown as one with it.
            Err(NotYet::Version(ino)) => {
                self.contents.is_due(ino);
                self.copies_wait(of, view)
            }
            Err(NotYet::Refused) => self.copies_wait(of, view),
            Err(not_yet) => Err(not_yet),
        }
    }

    fn copies_wait(&mut self, of: FileId, view: BesideView<'_>) -> Result<Option<BesideStep>, NotYet> {
        self.copies.later(of, view.now.ms + AGAIN_MS);
        Ok(None)
    }
}
