//! A folder to measure in.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Removed with everything in it when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new one in `base`, with `name` in its own.
    pub(crate) fn new(base: &Path, name: &str) -> Result<Self> {
        let path = base.join(format!("atoll-{name}-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path.canonicalize()?))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(why) = fs::remove_dir_all(&self.0) {
            eprintln!("atoll-papers: {} could not be removed: {why}", self.0.display());
        }
    }
}
