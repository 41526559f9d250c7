//! What is written down before a user's operation touches what is derived: revived directories, rescued files, files that
//! another one keeps from their name. Owns which steps these are. Makes no change itself.

use atoll_causal::{Dot, FileId, HybridStamp};
use atoll_core::Name;
use atoll_core::planted::{Bug, planted};

use crate::group::DirGroup;
use crate::life::{FilePlace, Life};
use crate::listing::{ShownObject, named};
use crate::names::unmarked;
use crate::objects::Objects;
use crate::versions::is_in_conflict;

/// One change that writes down what is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplicitStep {
    /// A removed directory is kept.
    Keep(FileId),
    /// A link gets the name under which it is shown, in the directory where it is.
    Rename(FilePlace, Name),
    /// The versions of a file are settled ([`settle`](crate::settle)), so that the operation is about one of them.
    Settle(FileId),
    /// A rescued file gets a link, in the directory where it is, under the name under which it is shown. The versions that a removal had
    /// seen would be shown again, so they are settled in favour of the latest one that none had seen.
    ///
    /// A version must go only for a later one, or a file would have none: a site that knows of a link of the file may have settled the
    /// version that is left in favour of one of these. So if a removal had seen a later one, the version that is left is written once
    /// more, with a stamp later than all of the file.
    Link(FilePlace, Name),
}

/// What is to be written down before names in `dir` change: each removed directory from it upwards that is shown is kept. None comes before
/// the one in which it is.
pub fn keep(objects: &impl Objects, dir: FileId) -> Vec<ExplicitStep> {
    let mut steps = Vec::new();
    let mut at = dir;
    while at != FileId::ROOT {
        if objects.life(at) == Life::Revived {
            steps.push(ExplicitStep::Keep(at));
        }
        let Some((parent, _)) = objects.place(at) else { break };
        at = parent;
    }
    steps.reverse();
    steps
}

/// What is to be written down before something is used that has the name `own`, or is shown beside it: each file gets the name under
/// which it is shown. So a name that is removed does not show another file, and what is used does not vanish. Each step gets a later
/// stamp than the one before.
///
/// Before a file's bytes or mode change, this is asked for each of its places: it will be like other files than before.
///
/// Files that are shown as one stay together. A removal is done to each of them. For any other operation the first is used, and
/// the others are unlinked in the same record: they may have other names, at which nothing is to change.
pub fn explicit(objects: &impl Objects, group: &DirGroup, own: &Name) -> Vec<ExplicitStep> {
    let mut steps: Vec<ExplicitStep> = Vec::new();
    // If the name is one beside another, what is shown beside that one may avoid it.
    let names = [Some(own.clone()), unmarked(own)].into_iter().flatten();
    for shown in names.flat_map(|own| named(objects, group, &own)) {
        let ShownObject::File(files) = shown.object else { continue };
        let is_explicit = shown.name == shown.own && files.iter().all(|place| place.link.is_some());
        // The first one last, so that its stamp is the highest and it stays the first.
        for place in files.into_iter().rev() {
            let is_split = objects.file(place.file).is_some_and(|state| is_in_conflict(&state));
            if is_split && !steps.contains(&ExplicitStep::Settle(place.file)) {
                steps.push(ExplicitStep::Settle(place.file));
            }
            let place_dir = place.dir;
            let step = match place.link {
                Some(_) if is_explicit => continue,
                Some(_) => ExplicitStep::Rename(place, shown.name.clone()),
                None => ExplicitStep::Link(place, shown.name.clone()),
            };
            for kept in keep(objects, place_dir) {
                if !steps.contains(&kept) {
                    steps.push(kept);
                }
            }
            steps.push(step);
        }
    }
    steps
}

/// The links of files that are shown as one with another file of one name and can be unlinked: all sites know of all of them.
/// `cut` is a stamp up to which every site has everything.
///
/// Before that somebody could rename and remove the one that stays without knowing of the others, and a file would be gone that
/// nobody removed.
pub fn twins_to_unlink(
    objects: &impl Objects,
    group: &DirGroup,
    own: &Name,
    cut: HybridStamp,
) -> Vec<(FileId, Dot)> {
    let mut twins = Vec::new();
    for shown in named(objects, group, own) {
        let ShownObject::File(files) = shown.object else { continue };
        let is_known = |place: &FilePlace| {
            let state = objects.file(place.file);
            place.link.is_some() && state.is_some_and(|state| state.latest() <= cut)
        };
        if files.iter().all(is_known) || planted(Bug::TwinGoesEarly) {
            twins.extend(files[1..].iter().filter_map(|place| Some((place.file, place.link?))));
        }
    }
    twins
}
