//! The answer to what one peer asks for. Never asks anything, and keeps one question at a time.

use std::collections::VecDeque;

use atoll_core::Encode;
use atoll_state::RowLoad;

use super::Own;
use super::greet::Refused;
use super::known::{AT_ONCE, whole};
use super::message::{KnownObject, Most, NEWS_MAX, STATE_BYTES_MAX, WideMessage};
use crate::author::BundleChange;
use crate::held::SiteRows;
use crate::rows::FeedRow;

/// See the module. It lives as long as a link.
#[derive(Debug, Clone, Default)]
pub(super) struct Answering {
    /// What is asked for and not answered.
    asked: VecDeque<KnownObject>,
    changes: Vec<BundleChange>,
    known: Vec<FeedRow>,
    unknown: Vec<FeedRow>,
    bytes: usize,
    /// The answer leaves when this position is synced.
    due: u64,
    /// Something is asked for.
    is_open: bool,
}

impl Answering {
    /// The peer asks.
    pub(super) fn ask(&mut self, objects: Most<KnownObject, NEWS_MAX>) -> Result<(), Refused> {
        if self.is_open {
            return Err(Refused::Order("it asks before it has the answer"));
        }
        if objects.is_empty() {
            return Err(Refused::Order("it asks for nothing"));
        }
        (self.asked, self.is_open) = (objects.into_vec().into(), true);
        Ok(())
    }

    /// The answer, when it is made and all in it is synced.
    pub(super) fn next(&mut self, own: Own<'_>, synced: u64) -> Result<Option<WideMessage>, Vec<RowLoad>> {
        while !self.asked.is_empty() {
            self.read_some(own)?;
        }
        if !self.is_open || self.due > synced {
            return Ok(None);
        }
        let Self { changes, known, unknown, .. } = std::mem::take(self);
        let (changes, known, unknown) = (Most::new(changes), Most::new(known), Most::new(unknown));
        Ok(Some(WideMessage::State { changes, known, unknown }))
    }

    fn read_some(&mut self, own: Own<'_>) -> Result<(), Vec<RowLoad>> {
        let rows = SiteRows::new(own.state);
        let some = self.asked.iter().take(AT_ONCE);
        let read: Vec<_> = some.map(|asked| whole(own, &rows, asked.object)).collect();
        rows.loaded()?;
        for whole in read {
            let KnownObject { object, known } = self.asked.pop_front().expect("it was read for this");
            match whole {
                None => self.unknown.push(object),
                // Nothing is known of a move but that it is there.
                Some(whole) if !known.is_empty() && known.includes(&whole.known) => self.known.push(object),
                Some(whole) => {
                    let bytes = self.bytes + whole.change.encoded_len();
                    if bytes > STATE_BYTES_MAX && !self.changes.is_empty() {
                        // The peer asks again for what is left.
                        self.asked.clear();
                        return Ok(());
                    }
                    self.bytes = bytes;
                    self.due = self.due.max(whole.due);
                    self.changes.push(whole.change);
                }
            }
        }
        Ok(())
    }

    /// Whether nothing is asked for.
    pub(super) const fn is_quiet(&self) -> bool {
        !self.is_open
    }
}
