//! Native files that were made and may not survive a power cut yet. Syncs nothing itself.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_core::Ino;

use crate::folder_of;

/// Ids that are remembered in one folder; with more, all of the folder counts as fresh.
const FRESH_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Fresh {
    /// Any file may be fresh. This holds after a start, when nobody knows which files the process before it
    /// made.
    all: bool,
    inos: HashSet<Ino>,
}

pub(crate) struct FreshNames {
    folders: Mutex<Vec<Fresh>>,
}

impl FreshNames {
    pub(crate) fn new() -> Self {
        let folders = (0..=u8::MAX).map(|_| Fresh { all: true, ..Fresh::default() }).collect();
        Self { folders: Mutex::new(folders) }
    }

    pub(crate) fn made(&self, ino: Ino) {
        let folder = &mut self.lock()[usize::from(folder_of(ino))];
        if folder.all {
            return;
        }
        folder.inos.insert(ino);
        if folder.inos.len() > FRESH_MAX {
            *folder = Fresh { all: true, ..Fresh::default() };
        }
    }

    pub(crate) fn dropped(&self, ino: Ino) {
        self.lock()[usize::from(folder_of(ino))].inos.remove(&ino);
    }

    pub(crate) fn must_sync(&self, ino: Ino) -> bool {
        let folder = &self.lock()[usize::from(folder_of(ino))];
        folder.all || folder.inos.contains(&ino)
    }

    /// Forgets the fresh files of a folder, before the folder is synced. Files that are made meanwhile count
    /// again.
    pub(crate) fn take(&self, folder: u8) -> Fresh {
        std::mem::take(&mut self.lock()[usize::from(folder)])
    }

    pub(crate) fn put_back(&self, folder: u8, fresh: Fresh) {
        let now = &mut self.lock()[usize::from(folder)];
        now.all |= fresh.all;
        now.inos.extend(fresh.inos);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Fresh>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
