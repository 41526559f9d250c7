//! The trash of a site: what other sites of a wide volume have removed or replaced at this one. Asks the node of a mount, page by page. Never
//! touches what rests by itself.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use atoll_core::{Ino, Name};
use atoll_proto::{SiteOrder, SiteReply, TrashTold, VolumeKind};

use super::SiteAsk;
use crate::reach::InMount;

/// A site that is asked about its trash.
#[derive(Debug)]
pub struct WideTrash {
    node: SiteAsk,
    volume: String,
}

/// What is gone for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Emptied {
    /// Files and symbolic links.
    pub bodies: u64,
    /// Bytes that they took on the disk.
    pub bytes: u64,
}

impl WideTrash {
    /// That of the site whose mount a path is in.
    pub fn of(path: &Path) -> Result<Self> {
        let (node, config) = SiteAsk::of_mount(&InMount::of(path)?)?;
        if config.kind != VolumeKind::Wide {
            bail!(
                "{} is in volume {}, which is of the kind {}: it has no trash.\nName a path in a wide volume.",
                path.display(),
                config.name,
                config.kind
            );
        }
        Ok(Self { node, volume: config.name })
    }

    fn page(&self, from: u128) -> Result<(Vec<TrashTold>, Option<u128>)> {
        match self.node.order(SiteOrder::TrashList { volume: self.volume.clone(), from })? {
            SiteReply::Trash { entries, next } => Ok((entries, next)),
            _ => Err(self.node.strange()),
        }
    }

    /// All that rests, the oldest first. `found` hears of each.
    pub fn list(&self, found: &mut dyn FnMut(TrashTold)) -> Result<()> {
        let mut next = Some(0);
        while let Some(from) = next {
            let (entries, then) = self.page(from)?;
            entries.into_iter().for_each(&mut *found);
            next = then;
        }
        Ok(())
    }

    /// All that rests now goes for good.
    pub fn empty(&self) -> Result<Emptied> {
        let (mut all, mut next) = (Emptied::default(), Some(0));
        while let Some(from) = next {
            let (entries, then) = self.page(from)?;
            let Some(last) = entries.last() else { break };
            let order = SiteOrder::TrashEmpty { volume: self.volume.clone(), upto: last.key };
            let SiteReply::Emptied { bodies, bytes } = self.node.order(order)? else {
                return Err(self.node.strange());
            };
            all.bodies += bodies;
            all.bytes += bytes;
            next = then;
        }
        Ok(all)
    }

    /// Gives what rests a name again: this path, or in this directory the name that it had. Where it is then.
    pub fn restore(key: u128, to: &Path) -> Result<PathBuf> {
        let (dir, name) = match fs::metadata(to) {
            Ok(meta) if meta.is_dir() => (to.to_owned(), None),
            _ => {
                let name = to.file_name();
                let name =
                    name.ok_or_else(|| anyhow!("{} ends with no name.\nName a new file.", to.display()))?;
                let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
                (dir.to_owned(), Some(name.as_bytes().to_vec()))
            }
        };
        let about = || format!("{} cannot be looked at", dir.display());
        let real = fs::canonicalize(&dir).with_context(about)?;
        let trash = Self::of(&real)?;
        let name = match name {
            Some(name) => name,
            None => trash.name_of(key)?,
        };
        let to = real.join(OsStr::from_bytes(&name));
        let name = Name::new(&name).map_err(|why| anyhow!("{} cannot be a name: {why}.", to.display()))?;
        let inside = Ino(fs::metadata(&real).with_context(about)?.ino());
        let order = SiteOrder::TrashRestore { volume: trash.volume.clone(), key, dir: inside, name };
        let done = trash.node.order(order).with_context(|| format!("{} is not there", to.display()))?;
        if done == SiteReply::Done { Ok(to) } else { Err(trash.node.strange()) }
    }

    /// The name that something had.
    fn name_of(&self, key: u128) -> Result<Vec<u8>> {
        let (entries, _) = self.page(key)?;
        let told = entries.into_iter().next().filter(|told| told.key == key);
        let told = told.ok_or_else(|| {
            anyhow!("It does not rest at this site.\n\"atoll trash list\" shows what does.")
        })?;
        Ok(told.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec())
    }
}
