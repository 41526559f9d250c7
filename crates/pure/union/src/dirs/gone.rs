//! Directories that this union has removed while a frontend knows them. They stay until it forgets them: so nothing gets a name in
//! one, and nothing else gets its number.

use atoll_core::Ino;

use super::Known;
use crate::native::{NativeId, Tag};

impl Known {
    /// A directory has lost its name in a member: this union has removed it there, or put another one in its place.
    pub(crate) fn removed_home(&mut self, tag: Tag, id: NativeId) {
        let Some(ino) = self.dir_of(tag, id).filter(|ino| *ino != Ino::ROOT) else { return };
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        if dir.homes.len() > 1 {
            return self.drop_home(ino, tag);
        }
        if dir.told.is_nobody() {
            self.forget_dir(ino);
            return self.lose_ids(tag, id);
        }
        (dir.gone, dir.unasked) = (true, Vec::new());
        self.gone.push(ino);
        self.by_home.remove(&(tag, id.ino));
        self.restart_names(ino, 0, None);
        self.lose_ids(tag, id);
    }

    /// Whether a directory without a name was this one. Whoever is in it may go on.
    pub(super) fn is_gone_home(&self, tag: Tag, id: NativeId) -> bool {
        let home = |ino: &Ino| self.dirs.get(ino)?.home(tag);
        self.gone.iter().filter_map(home).any(|home| home.id == id)
    }

    /// Directories without a name that no frontend knows any more.
    pub(crate) fn gone_and_untold(&mut self) -> Vec<Ino> {
        let dirs = &self.dirs;
        self.gone.retain(|ino| dirs.get(ino).is_some_and(|dir| dir.gone));
        self.gone
            .iter()
            .copied()
            .filter(|ino| dirs.get(ino).is_some_and(|dir| dir.told.is_nobody()))
            .collect()
    }
}
