//! Files that have lost their last name a short time ago. Their members hold them open, so that they can be copied back. Owns
//! no file; nothing here outlives the process.

use atoll_core::{Ino, Name};
use atoll_posix::Kind;

use crate::dirs::Tick;
use crate::native::{At, NativeCall, NativeId, NativeStat, Tag};
use crate::place::is_short;
use crate::task::Planned;
use crate::union::{Moment, Union};

/// Most files that are held: those that lose their names while there are so many are not.
pub const GRAVES_MAX: usize = 1_024;

/// A file that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grave {
    /// In which member.
    pub tag: Tag,
    /// The open by which it is held.
    pub open: u64,
    /// What it was like when it was opened.
    pub stat: NativeStat,
    /// The name that it has lost. None: it has not lost it yet, or keeps it.
    name: Option<(Ino, Name)>,
    /// When it was opened.
    since: Tick,
}

impl Union {
    /// The call that has a file held which is about to lose its last name. None if the user does not want that, or it cannot be.
    pub(crate) fn grave_for(
        &self,
        tag: Tag,
        dir: NativeId,
        name: &Name,
        stat: &NativeStat,
    ) -> Option<Planned> {
        let member = self.members.get(tag)?;
        let is_last = stat.kind == Kind::Regular && stat.nlink == 1;
        let has_room = !member.space.is_some_and(|space| is_short(&space));
        let wanted = self.settings.grace_s > 0 && is_last && has_room && self.graves.len() < GRAVES_MAX;
        let of = At { id: stat.id, seen: Some((dir, name.clone())) };
        // Files that stay usable after an unlink are opened for writing, too. So the two are told apart.
        wanted.then(|| Planned::look(tag, NativeCall::Open { of, write: false }))
    }

    /// A file is held.
    pub(crate) fn grave_opened(&mut self, tag: Tag, open: u64, stat: NativeStat) {
        let since = self.now.ms;
        self.graves.push(Grave { tag, open, stat, name: None, since });
    }

    /// A name was removed: if its file is held, it is known by that name.
    pub(crate) fn bury(&mut self, tag: Tag, id: NativeId, dir: Ino, name: &Name) {
        let mut held = self.graves.iter_mut().rev();
        if let Some(grave) = held.find(|grave| grave.tag == tag && grave.stat.id == id) {
            grave.name = Some((dir, name.clone()));
        }
    }

    /// The file that has lost this name last, if it is held.
    pub fn grave_of(&self, dir: Ino, name: &Name) -> Option<Grave> {
        let is = |grave: &&Grave| grave.name.as_ref().is_some_and(|(of, lost)| *of == dir && lost == name);
        self.graves.iter().rev().find(is).cloned()
    }

    /// A file need not be held any more. The call that lets go of it.
    pub fn dig_up(&mut self, grave: &Grave) -> Option<Planned> {
        let at = self.graves.iter().position(|held| (held.tag, held.open) == (grave.tag, grave.open))?;
        Some(close(&self.graves.remove(at)))
    }

    /// Files of a member that were held long enough: to be called now and then. The calls that let go of them.
    pub fn graves_due(&mut self, now: Moment, tag: Tag) -> Vec<Planned> {
        self.now = now;
        let grace_ms = u64::from(self.settings.grace_s) * 1_000;
        let is_due = |grave: &mut Grave| grave.tag == tag && now.ms.saturating_sub(grave.since) >= grace_ms;
        self.graves.extract_if(.., is_due).map(|grave| close(&grave)).collect()
    }
}

fn close(grave: &Grave) -> Planned {
    Planned::look(grave.tag, NativeCall::Close { open: grave.open })
}
