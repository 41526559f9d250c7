//! A real disk in a folder of its own, removed when dropped.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use atoll_disk::real::RealDisk;

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Folder {
    path: PathBuf,
    pub(crate) disk: RealDisk,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("atoll-disk-{}-{n}", std::process::id()));
        let disk = RealDisk::create(&path).unwrap();
        Self { path, disk }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
