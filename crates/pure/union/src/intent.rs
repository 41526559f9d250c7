//! What is written down before a rename in several members, and how one that was cut off is settled (FedFS has none of it:
//! its state is soft, so a crash between two native renames leaves half of a directory under each name).

use atoll_core::{Name, VolumePath, wire_enum, wire_struct};
use atoll_posix::{Errno, RenameMode};

use crate::native::{NativeCall, NativeId, NativeReply, Tag};

wire_enum! {
    /// Where a rename that was cut off goes. It is written down as soon as it is decided.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Direction {
        /// Every member gets the new name.
        1 => Forward,
        /// Every member gets the old name back.
        2 => Back,
    }
}

wire_struct! {
    /// What one member has under the two names. Its native rename swaps that.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct IntentStep {
        /// Which member.
        pub tag: Tag,
        /// What has the old name before.
        pub from: Option<NativeId>,
        /// What has the new name before.
        pub to: Option<NativeId>,
    }
}

wire_struct! {
    /// A rename in several members.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Intent {
        /// The old name, from the root.
        pub old: VolumePath,
        /// The new name, from the root.
        pub new: VolumePath,
        /// What had the new name is an empty directory, and goes. Else it gets the old name.
        pub replaces: bool,
        /// The members, in the order in which they are changed.
        pub steps: Vec<IntentStep>,
        /// Where it goes if it was cut off. None: where most of it is.
        pub direction: Option<Direction>,
    }
}

/// A name in a directory of a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub dir: NativeId,
    pub name: &'a Name,
}

impl IntentStep {
    /// The native rename in this direction. `old` and `new` are the two names in this member.
    pub(crate) fn call(&self, old: Place<'_>, new: Place<'_>, direction: Direction) -> NativeCall {
        let [mut at, mut to] = [(old, self.from), (new, self.to)];
        if direction == Direction::Back {
            (at, to) = ((old, self.to), (new, self.from));
        }
        // What is to be moved stands first.
        let ((from, moved), (into, other)) = if at.1.is_some() { (at, to) } else { (to, at) };
        let id = moved.expect("a step has something to move");
        let mode = if other.is_some() { RenameMode::Exchange } else { RenameMode::NoReplace };
        let (name, new_name) = (from.name.clone(), into.name.clone());
        NativeCall::Rename { dir: from.dir, name, id, new_dir: into.dir, new_name, new_id: other, mode }
    }

    /// Removes the empty directory that was replaced, which has the old name by now.
    pub(crate) fn clear(&self, old: Place<'_>) -> Option<NativeCall> {
        self.from?;
        Some(NativeCall::Rmdir { dir: old.dir, name: old.name.clone(), id: self.to? })
    }
}

/// Members, as far as they can be reached, for settling.
pub trait Reach {
    /// The root of a member. None: it cannot be reached.
    fn root(&self, tag: Tag) -> Option<NativeId>;

    /// Makes a call in the name of the daemon. `EIO` and `ETIMEDOUT` mean that the member cannot be reached any more.
    fn call(&self, tag: Tag, call: &NativeCall) -> Result<NativeReply, Errno>;

    /// Writes down where it goes, before anything is changed.
    fn decided(&mut self, direction: Direction) -> Result<(), Errno>;
}

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Before its rename. True if both directories are there.
    Before(bool),
    /// Behind it.
    Behind,
    /// Somebody has moved or removed it.
    Elsewhere,
    /// The member cannot be reached.
    Unknown,
}

impl Intent {
    /// Whether something is renamed in a member.
    pub fn concerns(&self, tag: Tag) -> bool {
        self.steps.iter().any(|step| step.tag == tag)
    }

    /// Ends a rename that was cut off: forward if a member has made it and all others can, else back. The members that could
    /// not be reached: the intent stands for them, and the direction is written down. What somebody else has moved
    /// since stays where it is. An error is one of writing that down; then nothing was changed.
    pub fn settle(&mut self, reach: &mut dyn Reach) -> Result<Vec<Tag>, Errno> {
        let stands: Vec<Stands> = self.steps.iter().map(|step| self.stands(step, reach)).collect();
        let direction = self.direction.unwrap_or_else(|| {
            let all_can = !stands.contains(&Stands::Before(false));
            let is_forward = stands.contains(&Stands::Behind) && all_can;
            if is_forward { Direction::Forward } else { Direction::Back }
        });
        if self.direction.is_none() && stands.contains(&Stands::Unknown) {
            reach.decided(direction)?;
        }
        self.direction = Some(direction);
        let mut missing = Vec::new();
        for (step, stands) in self.steps.iter().zip(stands) {
            let done = match stands {
                Stands::Unknown => Err(Errno::EIO),
                Stands::Elsewhere => Ok(()),
                stands => self.settle_step(step, stands, direction, reach),
            };
            if is_unreachable(done) {
                missing.push(step.tag);
            }
        }
        Ok(missing)
    }

    /// The directories of both names in a member, as far as they are there.
    fn dirs(&self, tag: Tag, reach: &dyn Reach) -> Result<[Option<NativeId>; 2], Errno> {
        let above =
            |path: &VolumePath| walk(tag, path.split_last().map_or(&[][..], |(above, _)| above), reach);
        Ok([above(&self.old)?, above(&self.new)?])
    }

    /// The two names in a member.
    fn places<'a>(&'a self, [dir, new_dir]: [Option<NativeId>; 2]) -> [Option<Place<'a>>; 2] {
        let place = |path: &'a VolumePath, dir: Option<NativeId>| {
            path.split_last().and_then(|(_, name)| Some(Place { dir: dir?, name }))
        };
        [place(&self.old, dir), place(&self.new, new_dir)]
    }

    fn stands(&self, step: &IntentStep, reach: &dyn Reach) -> Stands {
        let look_there = || -> Result<Stands, Errno> {
            let places = self.places(self.dirs(step.tag, reach)?);
            let what =
                |place: Option<Place<'_>>| place.map_or(Ok(None), |place| look(step.tag, place, reach));
            let [old, new] = [what(places[0])?, what(places[1])?];
            let (before, behind) = match step.from {
                Some(_) => (old == step.from, new == step.from),
                None => (new == step.to, old == step.to),
            };
            Ok(match (before, behind) {
                (_, true) => Stands::Behind,
                (true, false) => Stands::Before(places.iter().all(Option::is_some)),
                (false, false) => Stands::Elsewhere,
            })
        };
        match look_there() {
            Ok(stands) => stands,
            Err(Errno::EIO | Errno::ETIMEDOUT) => Stands::Unknown,
            Err(_) => Stands::Elsewhere,
        }
    }

    /// Makes one member's rename, or makes it undone. Somebody may have taken the name, or filled the directory that was
    /// replaced: then it stays as it is, with nothing lost.
    fn settle_step(
        &self,
        step: &IntentStep,
        stands: Stands,
        direction: Direction,
        reach: &dyn Reach,
    ) -> Result<(), Errno> {
        let [Some(old), Some(new)] = self.places(self.dirs(step.tag, reach)?) else { return Ok(()) };
        match (stands, direction) {
            (Stands::Before(_), Direction::Forward) => {
                reach.call(step.tag, &step.call(old, new, direction))?;
            }
            (Stands::Behind, Direction::Back) => {
                // The empty directory that was replaced may be gone already.
                let is_there = step.from.is_none() || look(step.tag, old, reach)? == step.to;
                let step = IntentStep { to: step.to.filter(|_| is_there), ..step.clone() };
                reach.call(step.tag, &step.call(old, new, direction))?;
            }
            _ => {}
        }
        if let (Direction::Forward, true, Some(clear)) = (direction, self.replaces, step.clear(old)) {
            reach.call(step.tag, &clear)?;
        }
        Ok(())
    }
}

fn is_unreachable(outcome: Result<(), Errno>) -> bool {
    matches!(outcome, Err(Errno::EIO | Errno::ETIMEDOUT))
}

/// What has a name.
fn look(tag: Tag, place: Place<'_>, reach: &dyn Reach) -> Result<Option<NativeId>, Errno> {
    match reach.call(tag, &NativeCall::Look { dir: place.dir, name: place.name.clone() }) {
        Ok(NativeReply::Stat(stat)) => Ok(Some(stat.id)),
        Ok(_) => Err(Errno::EPROTO),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The directory of a path. None if there is none.
fn walk(tag: Tag, path: &[Name], reach: &dyn Reach) -> Result<Option<NativeId>, Errno> {
    let mut at = reach.root(tag).ok_or(Errno::EIO)?;
    for name in path {
        match reach.call(tag, &NativeCall::OpenDir { dir: at, name: name.clone() }) {
            Ok(NativeReply::Stat(stat)) => at = stat.id,
            Ok(_) => return Err(Errno::EPROTO),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EXDEV) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
    Ok(Some(at))
}
