//! Which epochs a log has, and up to where two logs are the same. Knows no records.
//!
//! Invariant: the last records of the epochs rise in epoch and in number, and there are 256 of them at most.

use atoll_core::Position;
use atoll_proto::EpochTable;

/// Epochs of a table.
const EPOCHS_MAX: usize = 256;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Epochs(EpochTable);

impl Epochs {
    /// The table of a log; none if it is not one. Of a longer one the last epochs are kept.
    pub fn new(table: EpochTable) -> Option<Self> {
        let mut last = table.base;
        for (nth, end) in table.ends.iter().enumerate() {
            // Records behind the base may be of its epoch.
            let rises =
                end.seq > last.seq && (end.epoch > last.epoch || (nth == 0 && end.epoch == last.epoch));
            if !rises {
                return None;
            }
            last = *end;
        }
        let mut epochs = Self(table);
        epochs.bound();
        Some(epochs)
    }

    /// Forgets the oldest epochs, if there are too many: the table begins behind them then.
    fn bound(&mut self) {
        let over = self.0.ends.len().saturating_sub(EPOCHS_MAX);
        if let Some(base) = self.0.ends.drain(..over).next_back() {
            self.0.base = base;
        }
    }

    /// As it is sent.
    pub const fn table(&self) -> &EpochTable {
        &self.0
    }

    /// The last record.
    pub fn last(&self) -> Position {
        self.0.ends.last().copied().unwrap_or(self.0.base)
    }

    /// The position of a record that the log has, or of the last one before it.
    pub fn at(&self, seq: u64) -> Option<Position> {
        if seq == self.0.base.seq {
            return Some(self.0.base);
        }
        let end = self.0.ends.iter().find(|end| end.seq >= seq && seq > self.0.base.seq)?;
        Some(Position { epoch: end.epoch, seq })
    }

    /// Whether the log has this very record.
    pub fn has(&self, position: Position) -> bool {
        self.at(position.seq) == Some(position)
    }

    /// Whether it has a record of this epoch.
    pub fn knows(&self, epoch: u32) -> bool {
        self.0.ends.iter().any(|end| end.epoch == epoch) || self.0.base.epoch == epoch
    }

    /// The last record of each epoch among those behind `after`, up to `upto`.
    pub fn runs(&self, after: u64, upto: u64) -> Vec<Position> {
        let ends = self.0.ends.iter().filter(|end| end.seq > after);
        let mut runs = Vec::new();
        for end in ends {
            runs.push(Position { seq: end.seq.min(upto), ..*end });
            if end.seq >= upto {
                break;
            }
        }
        runs
    }

    /// The last record that both logs have.
    pub fn common(&self, other: &Self) -> Option<Position> {
        let ends = |table: &Self| table.0.ends.iter().copied().chain([table.0.base]).collect::<Vec<_>>();
        let (own, others) = (ends(self), ends(other));
        let both =
            own.iter().flat_map(|a| others.iter().map(move |b| (a, b))).filter(|(a, b)| a.epoch == b.epoch);
        both.map(|(a, b)| *a.min(b)).filter(|p| self.has(*p) && other.has(*p)).max()
    }

    /// Takes off the records behind this one.
    pub(crate) fn cut(&mut self, seq: u64) {
        let Some(last) = self.at(seq) else { return };
        self.0.ends.retain(|end| end.seq < seq);
        if last > self.last() {
            self.0.ends.push(last);
        }
    }

    /// Appends the records up to this one, which are of one epoch.
    pub(crate) fn append(&mut self, upto: Position) {
        let last = self.last();
        assert!(upto > last && upto.seq > last.seq, "{upto:?} does not follow on {last:?}");
        match self.0.ends.last_mut() {
            Some(end) if end.epoch == upto.epoch => *end = upto,
            _ => self.0.ends.push(upto),
        }
        self.bound();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(epoch: u32, seq: u64) -> Position {
        Position { epoch, seq }
    }

    fn log(base: Position, ends: &[Position]) -> Epochs {
        Epochs::new(EpochTable { base, ends: ends.to_vec() }).unwrap()
    }

    #[test]
    fn two_logs_are_the_same_up_to_the_end_of_their_last_common_epoch() {
        let zero = at(0, 0);
        let a = log(zero, &[at(1, 10), at(3, 15)]);
        let b = log(zero, &[at(1, 8), at(2, 20)]);
        assert_eq!((a.common(&b), b.common(&a)), (Some(at(1, 8)), Some(at(1, 8))));
        let c = log(zero, &[at(1, 10), at(3, 12), at(4, 30)]);
        assert_eq!(a.common(&c), Some(at(3, 12)));
        assert_eq!(a.common(&log(zero, &[])), Some(zero), "all begin empty");
    }

    #[test]
    fn a_log_that_begins_later_is_compared_from_there() {
        let a = log(at(0, 0), &[at(1, 10), at(3, 15)]);
        let b = log(at(3, 13), &[at(3, 20)]);
        assert_eq!(a.common(&b), Some(at(3, 15)));
        assert_eq!(a.common(&log(at(3, 18), &[at(4, 20)])), None);
        assert_eq!(a.common(&log(at(2, 12), &[at(4, 20)])), None, "record 12 is another one");
        assert_eq!(a.common(&log(at(1, 9), &[at(4, 20)])), Some(at(1, 9)));
    }

    #[test]
    fn records_are_told_by_the_ends_of_their_epochs() {
        let a = log(at(1, 5), &[at(1, 10), at(3, 15)]);
        assert_eq!(a.runs(8, 12), [at(1, 10), at(3, 12)]);
        assert_eq!(a.runs(12, 15), [at(3, 15)]);
        assert_eq!(a.runs(15, 15), []);
        assert_eq!((a.at(5), a.at(4), a.at(11), a.at(16)), (Some(at(1, 5)), None, Some(at(3, 11)), None));
    }

    #[test]
    fn a_table_is_cut() {
        let whole = log(at(1, 5), &[at(1, 10), at(3, 15)]);
        let cut = |seq| {
            let mut table = whole.clone();
            table.cut(seq);
            table
        };
        assert_eq!(cut(12), log(at(1, 5), &[at(1, 10), at(3, 12)]));
        assert_eq!(cut(10), log(at(1, 5), &[at(1, 10)]));
        assert_eq!(cut(5), log(at(1, 5), &[]));
        assert_eq!((cut(15), cut(16)), (whole.clone(), whole.clone()));
    }

    #[test]
    fn a_table_has_a_bound() {
        let ends: Vec<Position> = (1..=1_000).map(|epoch| at(epoch, u64::from(epoch) * 10)).collect();
        let mut a = log(at(0, 0), &ends);
        assert_eq!(
            (a.table().base, a.table().ends.len(), a.last()),
            (at(744, 7_440), 256, at(1_000, 10_000))
        );
        a.append(at(1_001, 10_001));
        assert_eq!((a.table().base, a.table().ends.len()), (at(745, 7_450), 256));
        assert_eq!((a.at(7_450), a.at(7_449)), (Some(at(745, 7_450)), None));
    }

    #[test]
    fn a_table_that_does_not_rise_is_none() {
        for ends in
            [&[at(2, 10), at(2, 12)][..], &[at(2, 10), at(3, 10)], &[at(2, 10), at(1, 12)], &[at(0, 3)]]
        {
            assert_eq!(Epochs::new(EpochTable { base: at(1, 2), ends: ends.to_vec() }), None, "{ends:?}");
        }
    }
}
