//! Questions about a directory's names that members have not answered yet. Another thread may change a name, and tell of it, after
//! the member has answered and before the machine hears that answer. So what such an answer says of that name is old.

use atoll_core::Name;
use atoll_core::planted::{Bug, planted};

use crate::native::Tag;

/// Most changes that are kept for questions under way. If there are more, no answer counts.
const CHANGED_MAX: usize = 256;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Questions {
    under_way: u32,
    /// Names that have changed while a question was under way, with the directory's count of changes then.
    changed: Vec<(u64, Tag, Name)>,
    /// Up to this count any name may have changed.
    lost: u64,
}

impl Questions {
    pub(crate) fn begin(&mut self) {
        self.under_way += 1;
    }

    pub(crate) fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            self.changed = Vec::new();
        }
    }

    /// A name has changed, which is the change of this number.
    pub(crate) fn changed(&mut self, number: u64, tag: Tag, name: &Name) {
        if self.under_way == 0 {
            return;
        }
        if self.changed.len() >= CHANGED_MAX {
            self.all_changed(number);
        } else {
            self.changed.push((number, tag, name.clone()));
        }
    }

    /// Any name may have changed.
    pub(crate) fn all_changed(&mut self, number: u64) {
        self.lost = number;
        self.changed.clear();
    }

    /// Whether any name may have changed since this count.
    pub(crate) const fn is_lost(&self, since: u64) -> bool {
        self.lost > since
    }

    /// Whether an answer to a question that was asked at this count may be old for a name.
    pub(crate) fn is_old(&self, asked: u64, tag: Tag, name: &Name) -> bool {
        if planted(Bug::OldAnswerCounts) {
            return false;
        }
        self.lost > asked || self.changed.iter().any(|(at, of, n)| *at > asked && *of == tag && n == name)
    }

    /// Names for which such an answer is old. None: perhaps all.
    pub(crate) fn old_names(&self, asked: u64, tag: Tag) -> Option<Vec<Name>> {
        let counts = planted(Bug::OldAnswerCounts);
        let is_old = |(at, of, _): &&(u64, Tag, Name)| *at > asked && *of == tag && !counts;
        (self.lost <= asked)
            .then(|| self.changed.iter().filter(is_old).map(|(.., name)| name.clone()).collect())
    }
}
