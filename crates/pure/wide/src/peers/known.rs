//! What a site knows of objects and moves, read from its rows. Changes nothing.

use atoll_causal::Context;
use atoll_state::RowLoad;

use super::Own;
use super::message::KnownObject;
use crate::author::BundleChange;
use crate::held::SiteRows;
use crate::rows::FeedRow;

/// Objects whose states are read at once: what is read of them is in memory at the same time.
pub(super) const AT_ONCE: usize = 64;

/// The whole of an object or a move, as another site is told.
pub(super) struct Whole {
    pub(super) change: BundleChange,
    pub(super) known: Context,
    /// The position up to which this site must be synced before it leaves.
    pub(super) due: u64,
}

/// The whole of an object; none if it is not here.
pub(super) fn whole(own: Own<'_>, rows: &SiteRows<'_>, object: FeedRow) -> Option<Whole> {
    Some(match object {
        FeedRow::File { id } => {
            let file = rows.file(id)?;
            let (state, known) = (Box::new(file.state.clone()), file.state.context.clone());
            Whole { change: BundleChange::FileBorn { id, state }, known, due: file.at.position }
        }
        FeedRow::Dir { id } => {
            let dir = rows.dir(id)?;
            let (head, known) = (Box::new(dir.head.clone()), dir.head.context.clone());
            let due = dir.at.map_or(0, |at| at.position);
            Whole { change: BundleChange::DirBorn { id, head }, known, due }
        }
        FeedRow::Move { stamp } => {
            let record = own.spine.record(stamp)?.clone();
            // Where it is in the feed is not known by its stamp.
            let due = own.state.seq();
            Whole { change: BundleChange::DirsMoved { record }, known: Context::default(), due }
        }
    })
}

/// What this site knows of objects and moves that it has, and the position up to which it must be synced before that leaves. Moves of
/// the spine are to be synced already. `objects` are here.
pub(super) fn known(own: Own<'_>, objects: Vec<FeedRow>) -> Result<(Vec<KnownObject>, u64), Vec<RowLoad>> {
    let (mut all, mut due, mut missing) = (Vec::with_capacity(objects.len()), 0, Vec::new());
    for some in objects.chunks(AT_ONCE) {
        let rows = SiteRows::new(own.state);
        for &object in some {
            let found = match object {
                FeedRow::File { id } => {
                    rows.file(id).map(|file| (file.state.context.clone(), file.at.position))
                }
                FeedRow::Dir { id } => {
                    rows.dir(id).map(|dir| (dir.head.context.clone(), dir.at.map_or(0, |at| at.position)))
                }
                FeedRow::Move { .. } => Some((Context::default(), 0)),
            };
            if let Some((known, at)) = found {
                due = due.max(at);
                all.push(KnownObject { object, known });
            }
        }
        missing.extend(rows.missing());
    }
    if missing.is_empty() { Ok((all, due)) } else { Err(missing) }
}

/// Those of some objects and moves of which another site knows what this one does not.
pub(super) fn lacking(own: Own<'_>, news: &[KnownObject]) -> Result<Vec<FeedRow>, Vec<RowLoad>> {
    let (mut lacking, mut missing) = (Vec::new(), Vec::new());
    for some in news.chunks(AT_ONCE) {
        let rows = SiteRows::new(own.state);
        let is_here = |KnownObject { object, known }: &KnownObject| match object {
            FeedRow::File { id } => rows.file(*id).is_some_and(|file| file.state.context.includes(known)),
            FeedRow::Dir { id } => rows.dir(*id).is_some_and(|dir| dir.head.context.includes(known)),
            FeedRow::Move { stamp } => own.spine.record(*stamp).is_some() || *stamp <= own.spine.cut().upto,
        };
        lacking.extend(some.iter().filter(|news| !is_here(news)).map(|news| news.object));
        missing.extend(rows.missing());
    }
    if missing.is_empty() { Ok(lacking) } else { Err(missing) }
}

/// What this site knows of what it asks for: nothing of what it has not.
pub(super) fn asked(own: Own<'_>, object: FeedRow) -> Result<KnownObject, Vec<RowLoad>> {
    let (mut known, _) = known(own, vec![object])?;
    Ok(known.pop().unwrap_or(KnownObject { object, known: Context::default() }))
}
