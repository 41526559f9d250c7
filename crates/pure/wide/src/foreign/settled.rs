//! Conflicts that a record settles without a file beside a name: what is remembered of them, for people. Owns how they are found. Decides none.

use atoll_causal::{Dot, FileId, FileState, HybridStamp, Writer};
use atoll_shown::{Life, Objects, live_versions};

use super::objects::Writing;
use super::rests::path;
use crate::author::micros;
use crate::rows::{SETTLED, Settled, SettledHow, SettledRow, set, settled_key};

/// Conflicts that are remembered of one record.
const OF_RECORD_MAX: usize = 64;

/// How a conflict was settled, by whose change, and whose change does not count.
type Outcome = (FileId, SettledHow, Option<Writer>, Option<Writer>);

impl Writing<'_> {
    /// The rows of those.
    pub(super) fn settled(&mut self) {
        let files = self.judged.changes.files.keys().flat_map(|id| self.of_file(*id));
        let dirs = self.affected.dirs.iter().filter(|id| self.is_revived(**id));
        let dirs = dirs.map(|id| (*id, SettledHow::Revived {}, None, None));
        let moves = self.judged.lost.iter().map(|lost| {
            let (kept, other) = (Some(lost.because.writer), Some(lost.stamp.writer));
            (lost.dir, SettledHow::NotMoved {}, kept, other)
        });
        let all: Vec<Outcome> = files.chain(dirs).chain(moves).take(OF_RECORD_MAX).collect();
        let (time_us, position) = (micros(self.here.now), self.here.position);
        for (nth, (object, how, kept, other)) in all.into_iter().enumerate() {
            let path = path(self.after, object).into();
            let settled = Box::new(Settled { object, path, how, kept, other });
            let key = settled_key(time_us, position, nth as u8);
            self.draft.sides.push(set(SETTLED, key, &SettledRow::Settled { settled }));
        }
    }

    /// Whether a directory is there again by this, and not the one in which it is.
    fn is_revived(&self, id: FileId) -> bool {
        let is_new = |id| self.after.life(id) == Life::Revived && self.before.life(id) != Life::Revived;
        is_new(id) && !self.after.place(id).is_some_and(|(parent, _)| is_new(parent))
    }

    fn of_file(&self, id: FileId) -> Vec<Outcome> {
        let (before, Some(after)) = (self.before.file(id), self.after.file(id)) else { return Vec::new() };
        let mut all = Vec::new();
        let kept_by = |state: &FileState| {
            let grave = state.grave.as_ref().filter(|_| state.links.is_empty())?;
            let (_, version) = *live_versions(state).first()?;
            Some((version.stamp.writer, grave.stamp.writer))
        };
        if let Some((kept, other)) = kept_by(&after)
            && before.as_deref().and_then(kept_by).is_none()
        {
            all.push((id, SettledHow::Kept {}, Some(kept), Some(other)));
        }
        let known = |link: &Dot| before.as_deref().and_then(|before| before.links.get(link));
        for (link, places) in after.links.iter() {
            let mut stamps: Vec<HybridStamp> = places.iter().map(|(_, place)| place.stamp).collect();
            stamps.sort();
            let was_split = known(link).is_some_and(|places| places.iter().count() > 1);
            if let [.., other, kept] = stamps[..]
                && !was_split
            {
                all.push((id, SettledHow::Renamed {}, Some(kept.writer), Some(other.writer)));
            }
        }
        all
    }
}
