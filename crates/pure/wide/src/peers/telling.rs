//! What one peer is told of this site's feed: bundles of what users here have made, and news of all else, in order. Owns how far the peer
//! has been told, and what is under way to it. Never says anything that is not synced here.
//!
//! **Bundles only where they are whole.** A bundle tells one change of an object. It may be sent only if the peer was told all changes of
//! the object before. When the feed's table is read that is not so: an object that changes meanwhile has its row behind what was read, and
//! its changes before are told by no row. So what has happened up to that moment is told as news, with contexts, which cover everything.
//! Nothing leaves before that moment is synced: if a power cut took the later change, the row of the one before would be back, at a place
//! up to which the peer had everything.

use std::collections::{BTreeSet, VecDeque};

use atoll_core::{Decode, Encode};
use atoll_state::{NotInMemory, RowLoad};

use super::known::known;
use super::message::{Most, WideMessage};
use super::{Own, Window, pop_upto};
use crate::author::MadeRecord;
use crate::rows::{FEED, FeedRow, SiteId};

/// Records of which a peer need not hear, since they came from it, until it is told that there were some.
pub(super) const SKIPPED_MAX: usize = 1_024;

/// Positions of this site up to which something holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upto {
    /// Others may be told of its feed ([`OwnLives::upto`](crate::lives::OwnLives::upto)).
    pub(super) tellable: u64,
    /// It is synced.
    pub(super) synced: u64,
    /// Its changes may be in memory no more. Behind, what [`Own::made`] has is all.
    pub(super) in_memory: u64,
}

/// A message that is made.
#[derive(Debug, Clone)]
struct Ready {
    message: WideMessage,
    /// With it the peer has the feed up to here.
    upto: u64,
    /// It leaves when this position is synced.
    due: u64,
    bytes: usize,
}

/// See the module. It lives as long as a link.
#[derive(Debug, Clone)]
pub(super) struct Telling {
    peer: SiteId,
    /// The peer was told everything up to here, or is by what is ready.
    told: u64,
    /// Records since the last message of which the peer need not hear.
    skipped: usize,
    ready: Option<Ready>,
    /// Nothing leaves before this position is synced.
    due: u64,
    /// Messages that were sent and not acknowledged: the position that each brings, and its bytes.
    under_way: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Telling {
    /// To a peer that has everything up to a position.
    pub(super) const fn from(peer: SiteId, has: u64) -> Self {
        Self { peer, told: has, skipped: 0, ready: None, due: 0, under_way: VecDeque::new(), bytes: 0 }
    }

    /// The next message, if there is something to tell, it is synced, and the window has room. `by_news`: everything up to there is told as
    /// news; it outlives the link.
    pub(super) fn next(
        &mut self,
        own: Own<'_>,
        upto: Upto,
        by_news: &mut u64,
        window: Window,
    ) -> Result<Option<WideMessage>, Vec<RowLoad>> {
        if self.ready.is_none() {
            self.ready = self.make(own, upto, by_news, window.news)?;
        }
        let leaves = self
            .ready
            .as_ref()
            .is_some_and(|ready| ready.due <= upto.synced && self.fits(ready.bytes, window));
        let leaving = if leaves { self.ready.take() } else { None };
        Ok(leaving.map(|Ready { message, upto, bytes, .. }| {
            self.under_way.push_back((upto, bytes));
            self.bytes += bytes;
            message
        }))
    }

    /// One message is under way, however long it is.
    fn fits(&self, bytes: usize, window: Window) -> bool {
        let has_room = self.under_way.len() < window.messages && self.bytes + bytes <= window.bytes;
        self.under_way.is_empty() || has_room
    }

    fn make(
        &mut self,
        own: Own<'_>,
        Upto { tellable, in_memory, .. }: Upto,
        by_news: &mut u64,
        news_max: usize,
    ) -> Result<Option<Ready>, Vec<RowLoad>> {
        while self.told < tellable {
            let records = own.made.between(self.told, tellable).filter(|_| self.told >= in_memory);
            let Some(records) = records else {
                // What changes meanwhile is not among these rows.
                *by_news = own.state.seq();
                self.due = *by_news;
                let (upto, objects) = page(own, self.told, tellable, news_max)?;
                if objects.is_empty() {
                    self.told = upto;
                    continue;
                }
                return self.news(own, objects, upto).map(Some);
            };
            let (mut news, mut upto, mut skipped) = (BTreeSet::new(), self.told, self.skipped);
            for record in records {
                let (position, is_whole) = (record.position(), record.position() > *by_news);
                match record {
                    MadeRecord::Own(bundle) if is_whole => {
                        if news.is_empty() {
                            self.told = position;
                            return Ok(Some(self.ready(
                                WideMessage::Bundle { bundle: bundle.clone() },
                                position,
                                0,
                            )));
                        }
                        break;
                    }
                    MadeRecord::Foreign { from, .. } if is_whole && *from == self.peer => skipped += 1,
                    _ => {
                        let changed = record.changed();
                        if news.len() + changed.len() > news_max && !news.is_empty() {
                            break;
                        }
                        news.extend(changed);
                    }
                }
                upto = position;
            }
            if !news.is_empty() || skipped >= SKIPPED_MAX {
                return self.news(own, news.into_iter().collect(), upto).map(Some);
            }
            self.skipped = skipped;
            if upto == self.told {
                // The other records have changed no objects.
                upto = tellable;
            }
            self.told = upto;
        }
        Ok(None)
    }

    fn news(&mut self, own: Own<'_>, objects: Vec<FeedRow>, upto: u64) -> Result<Ready, Vec<RowLoad>> {
        let (news, due) = known(own, objects)?;
        self.told = upto;
        Ok(self.ready(WideMessage::Feed { upto, news: Most::new(news) }, upto, due))
    }

    fn ready(&mut self, message: WideMessage, upto: u64, due: u64) -> Ready {
        self.skipped = 0;
        let bytes = message.encoded_len();
        Ready { message, upto, due: due.max(self.due), bytes }
    }

    /// The peer has everything up to a position. It may have been told on a link before: then it need not hear it again.
    pub(super) fn acked(&mut self, upto: u64) {
        while let Some((_, bytes)) = pop_upto(&mut self.under_way, upto) {
            self.bytes -= bytes;
        }
        if upto >= self.told {
            (self.told, self.ready) = (upto, None);
        }
    }

    /// Whether nothing is under way or waits to leave.
    pub(super) fn is_quiet(&self) -> bool {
        self.ready.is_none() && self.under_way.is_empty()
    }

    /// Whether the peer was told everything up to a position, and nothing is under way.
    pub(super) fn has_told(&self, position: u64) -> bool {
        position <= self.told && self.is_quiet()
    }

    pub(super) fn check(&self) {
        assert!(self.under_way.iter().is_sorted_by(|(a, _), (b, _)| a < b));
        assert!(self.under_way.back().is_none_or(|(last, _)| *last <= self.told));
        assert_eq!(self.bytes, self.under_way.iter().map(|(_, bytes)| bytes).sum::<usize>());
    }
}

/// Rows of the feed behind `after` up to `upto`: those of whole records, at most `most` if there are several records, and up to where
/// they are all.
fn page(own: Own<'_>, after: u64, upto: u64, most: usize) -> Result<(u64, Vec<FeedRow>), Vec<RowLoad>> {
    let key = |position: u64| u128::from(position) << 64;
    let position = |key: u128| (key >> 64) as u64;
    let end = key(upto) | u128::from(u64::MAX);
    let mut from = key(after + 1);
    let mut rows: Vec<(u64, FeedRow)> = Vec::new();
    loop {
        let (page, to) = own.state.sides_from(FEED, from).map_err(|NotInMemory(load)| vec![load])?;
        for (key, row) in page.take_while(|(key, _)| *key <= end) {
            let last = position(key);
            rows.push((last, FeedRow::from_slice(row).expect("this site has written it")));
            if rows.len() > most && rows[0].0 < last {
                // The last record may have more.
                rows.retain(|(at, _)| *at < last);
                return Ok((last - 1, objects(rows)));
            }
        }
        if to >= end {
            return Ok((upto, objects(rows)));
        }
        from = to + 1;
        let whole = position(from) - 1;
        if whole > after && rows.iter().any(|(at, _)| *at <= whole) {
            rows.retain(|(at, _)| *at <= whole);
            return Ok((whole, objects(rows)));
        }
    }
}

fn objects(rows: Vec<(u64, FeedRow)>) -> Vec<FeedRow> {
    rows.into_iter().map(|(_, object)| object).collect()
}
