//! How far a node is with the copies that are filled: what is left, how fast it goes, and how long it will take. Decides nothing.
//!
//! Files and bytes are one amount here, the work: else a time could not be told of a copy that has small files and large ones.

use std::collections::{BTreeMap, VecDeque};

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_proto::control::{FillStage, FillStatus, Filling};

/// A copy of an island.
pub(crate) type Copy = (VolumeId, IslandId, NodeId);

/// What a file costs beside its bytes, in bytes that are fetched in the same time.
const FILE_WORK: u64 = 32 << 10;
/// What the rows of a file cost.
const ROWS_WORK: u64 = 2 << 10;
/// The rate is that of so long at most,
const WINDOW_MS: u64 = 60_000;
/// and of so long at least: before that no time is told.
const WINDOW_MS_MIN: u64 = 1_000;
/// Between two points at which it is noted how much is done.
const SAMPLE_MS: u64 = 1_000;
/// A copy of which nothing was heard for so long is not filled any more.
const GONE_MS: u64 = 5_000;

/// What a copy that is filled says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FillProgress {
    pub(crate) status: FillStatus,
    /// Files whose rows have come.
    pub(crate) rows: u64,
}

impl FillProgress {
    /// The work that is left.
    fn left(&self) -> u64 {
        let FillStatus { stage, files, files_left, bytes_left, .. } = self.status;
        let rows = match stage {
            FillStage::Waits | FillStage::Rows => files.saturating_sub(self.rows),
            FillStage::Bytes | FillStage::Ends => 0,
        };
        bytes_left + files_left * FILE_WORK + rows * ROWS_WORK
    }

    /// All of it.
    const fn all(&self) -> u64 {
        self.status.bytes + self.status.files * (FILE_WORK + ROWS_WORK)
    }

    /// Whether it is known how much there is.
    const fn is_known(&self) -> bool {
        self.status.files > 0 || matches!(self.status.stage, FillStage::Bytes | FillStage::Ends)
    }
}

#[derive(Debug)]
struct Seen {
    at_ms: u64,
    progress: FillProgress,
    is_filled: bool,
}

/// Work and bytes that were done up to a time.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    at_ms: u64,
    work: u64,
    bytes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    copies: BTreeMap<Copy, Seen>,
    now: Done,
    /// Earlier points, the oldest first.
    samples: VecDeque<Done>,
}

impl Meter {
    /// A copy says how far it is. None: it is not filled, or not any more.
    pub(crate) fn note(&mut self, now_ms: u64, copy: Copy, progress: Option<FillProgress>) {
        let seen = self.copies.get_mut(&copy);
        match (seen, progress) {
            (None, None) => return,
            (Some(seen), None) => {
                // Its share of all stays until the others are filled, too.
                seen.progress.status = FillStatus {
                    stage: FillStage::Ends,
                    files_left: 0,
                    bytes_left: 0,
                    ..seen.progress.status
                };
                seen.is_filled = true;
            }
            (None, Some(progress)) => {
                self.copies.insert(copy, Seen { at_ms: now_ms, progress, is_filled: false });
            }
            (Some(seen), Some(progress)) => {
                let before = std::mem::replace(&mut seen.progress, progress);
                (seen.at_ms, seen.is_filled) = (now_ms, false);
                let is_same = before.all() == progress.all() && before.is_known();
                // What was estimated before is no work that was done.
                if is_same {
                    self.now.work += before.left().saturating_sub(progress.left());
                    let bytes = before.status.bytes_left.saturating_sub(progress.status.bytes_left);
                    self.now.bytes += bytes;
                }
            }
        }
        self.copies.retain(|_, seen| seen.is_filled || now_ms < seen.at_ms + GONE_MS);
        if self.copies.values().all(|seen| seen.is_filled) {
            *self = Self::default();
            return;
        }
        self.sample(now_ms);
    }

    fn sample(&mut self, now_ms: u64) {
        self.now.at_ms = now_ms;
        if self.now.work == 0 {
            // It has not begun: the time before tells nothing of how fast it is.
            self.samples.clear();
        }
        if self.samples.back().is_none_or(|last| now_ms >= last.at_ms + SAMPLE_MS) {
            self.samples.push_back(self.now);
        }
        while self.samples.get(1).is_some_and(|next| now_ms >= next.at_ms + WINDOW_MS) {
            self.samples.pop_front();
        }
    }

    /// How far this copy is.
    pub(crate) fn of(&self, copy: Copy) -> Option<FillStatus> {
        self.copies.get(&copy).filter(|seen| !seen.is_filled).map(|seen| seen.progress.status)
    }

    /// How far all are together.
    pub(crate) fn all(&self, now_ms: u64) -> Option<Filling> {
        if self.copies.is_empty() {
            return None;
        }
        let mut filling = Filling {
            copies: 0,
            copies_left: 0,
            files: 0,
            bytes: 0,
            files_left: 0,
            bytes_left: 0,
            done: 0,
            bytes_per_s: 0,
            left_ms: None,
        };
        let (mut left, mut all, mut is_known) = (0, 0, true);
        for Seen { progress, is_filled, .. } in self.copies.values() {
            filling.copies += 1;
            filling.copies_left += u32::from(!is_filled);
            filling.files += progress.status.files;
            filling.bytes += progress.status.bytes;
            filling.files_left += progress.status.files_left;
            filling.bytes_left += progress.status.bytes_left;
            left += progress.left();
            all += progress.all();
            is_known &= progress.is_known();
        }
        filling.done = (1_000 * u128::from(all.saturating_sub(left)) / u128::from(all.max(1))) as u32;
        let before = self.samples.front().copied().unwrap_or(self.now);
        let ms = now_ms.saturating_sub(before.at_ms).max(1);
        let per_s = |now: u64, before: u64| (now - before).saturating_mul(1_000) / ms;
        filling.bytes_per_s = per_s(self.now.bytes, before.bytes);
        let work_per_s = per_s(self.now.work, before.work);
        filling.left_ms = match left {
            0 if is_known => Some(0),
            _ if !is_known || work_per_s == 0 || ms < WINDOW_MS_MIN => None,
            _ => Some((u128::from(left) * 1_000 / u128::from(work_per_s)) as u64),
        };
        Some(filling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const fn copy(island: u16) -> Copy {
        (VolumeId(1), IslandId(island), NodeId(3))
    }

    /// Of 100 files of 1 MiB each so many are left.
    fn at(stage: FillStage, left: u64) -> Option<FillProgress> {
        let status =
            FillStatus { stage, files: 100, bytes: 100 * MIB, files_left: left, bytes_left: left * MIB };
        Some(FillProgress { status, rows: 0 })
    }

    #[test]
    fn the_time_that_is_left_counts_copies_that_wait() {
        let mut meter = Meter::default();
        assert_eq!(meter.all(0), None);
        meter.note(0, copy(1), at(FillStage::Waits, 100));
        meter.note(0, copy(2), at(FillStage::Bytes, 100));
        // Before anything was done a time cannot be told.
        meter.note(50_000, copy(2), at(FillStage::Bytes, 100));
        meter.note(50_000, copy(1), at(FillStage::Waits, 100));
        assert_eq!(meter.all(50_000).unwrap().left_ms, None);
        for s in 0..=40 {
            let now = 50_000 + s * 1_000;
            meter.note(now, copy(2), at(FillStage::Bytes, 100 - s));
            meter.note(now, copy(1), at(FillStage::Waits, 100));
        }
        let all = meter.all(90_000).unwrap();
        assert_eq!((all.copies, all.copies_left, all.files_left, all.bytes_left), (2, 2, 160, 160 * MIB));
        assert_eq!((all.files, all.bytes, all.bytes_per_s), (200, 200 * MIB, MIB));
        // 160 files of one a second, and the rows of the copy that waits.
        let left_ms = all.left_ms.unwrap();
        assert!((160_000..162_000).contains(&left_ms), "{left_ms}");
        assert!((195..=205).contains(&all.done), "{}", all.done);
    }

    #[test]
    fn the_time_goes_down_to_zero_and_a_copy_that_is_filled_still_counts_for_the_share() {
        let mut meter = Meter::default();
        for s in 0..=100 {
            meter.note(s * 1_000, copy(1), at(FillStage::Bytes, 100 - s));
            meter.note(s * 1_000, copy(2), at(FillStage::Bytes, (100 - 2 * s.min(50)).min(100)));
        }
        meter.note(100_000, copy(2), None);
        let all = meter.all(100_000).unwrap();
        assert_eq!((all.copies, all.copies_left, all.left_ms, all.done), (2, 1, Some(0), 1_000));
        assert_eq!((meter.of(copy(1)).map(|of| of.files_left), meter.of(copy(2))), (Some(0), None));
        meter.note(100_100, copy(1), None);
        assert_eq!(meter.all(100_100), None, "all are filled");
    }

    #[test]
    fn the_rate_is_that_of_the_last_minute_and_an_estimate_is_no_work() {
        let mut meter = Meter::default();
        let status =
            |bytes| FillStatus { stage: FillStage::Rows, files: 9, bytes, files_left: 9, bytes_left: bytes };
        meter.note(0, copy(1), Some(FillProgress { status: status(900 * MIB), rows: 0 }));
        meter.note(0, copy(1), at(FillStage::Bytes, 100));
        let mut left = 100;
        for s in 1..=130 {
            // Slow at first, and fast later.
            left -= u64::from(s > 70) + u64::from(s % 10 == 0 && s <= 70);
            meter.note(s * 1_000, copy(1), at(FillStage::Bytes, left));
        }
        let all = meter.all(130_000).unwrap();
        assert_eq!((all.bytes_per_s, all.bytes_left), (MIB, 33 * MIB));
        assert!((32_900..=33_100).contains(&all.left_ms.unwrap()), "{all:?}");
        // Nobody says anything of it any more: its process has lost it.
        meter.note(140_000, copy(2), at(FillStage::Waits, 100));
        assert_eq!(meter.all(140_000).unwrap().copies, 1);
    }
}
