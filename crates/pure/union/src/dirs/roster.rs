//! What becomes of all that is known when a member comes or goes.

use atoll_core::Ino;

use super::{Home, Known, Tick};
use crate::native::Tag;

/// Never: it is asked anew.
const NEVER: Tick = 0;

impl Known {
    /// A member has come: the root has one more home, and every other directory may be in it, too.
    pub fn member_came(&mut self, root: Home) {
        let tag = root.tag;
        self.add_home(Ino::ROOT, root);
        for (ino, dir) in &mut self.dirs {
            dir.changes += 1;
            if *ino != Ino::ROOT {
                dir.unasked.push(tag);
                dir.homes_at = NEVER;
            }
        }
    }

    /// A member has left: its homes go, and directories that nobody else has.
    pub fn member_left(&mut self, tag: Tag) {
        let mut gone = Vec::new();
        for (ino, dir) in &mut self.dirs {
            let Some(at) = dir.homes.iter().position(|home| home.tag == tag) else {
                dir.unasked.retain(|unasked| *unasked != tag);
                continue;
            };
            let home = dir.homes.remove(at);
            self.by_home.remove(&(tag, home.id.ino));
            let before = dir.names.bytes();
            dir.names.remove_member(tag);
            self.names_bytes = self.names_bytes - before + dir.names.bytes();
            dir.unsure.retain(|(of, _)| *of != tag);
            dir.unasked.retain(|unasked| *unasked != tag);
            dir.changes += 1;
            if dir.homes.is_empty() {
                gone.push(*ino);
            }
        }
        gone.into_iter().for_each(|ino| self.forget_dir(ino));
        // It closes everything with itself.
        self.files.values_mut().filter(|file| file.tag == tag).for_each(|file| file.open = None);
        self.left.retain(|(of, _)| *of != tag);
        self.ids.member_left(tag);
    }
}
