//! Conflicts of wide volumes: files that are shown beside the name that another one has. Finds them by their names, and resolves them by
//! ordinary operations in the mount, so that these are done at all sites. Asks the site for those that it has settled without such a file.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use atoll_core::Name;
use atoll_proto::{SettledTold, SiteOrder, SiteReply, VolumeKind};
use atoll_shown::names::{NameMark, mark_of, unmarked};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::SiteAsk;
use crate::places::walk;
use crate::reach::InMount;
use crate::source::of_mount;

/// A file that is shown beside the name that another one has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WideConflict {
    /// Where it is.
    pub path: PathBuf,
    /// The name beside which it is.
    pub of: PathBuf,
    /// Which site changed it, and when.
    pub mark: NameMark,
}

/// Which of the files stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The one that is named.
    This,
    /// The other one.
    Other,
    /// Both: the one beside gets a name of its own.
    Both,
}

impl WideConflict {
    fn at(path: &Path) -> Option<Self> {
        let name = Name::new(path.file_name()?.as_bytes()).ok()?;
        let (mark, plain) = (mark_of(&name)?, unmarked(&name)?);
        let of = path.with_file_name(OsStr::from_bytes(plain.as_bytes()));
        Some(Self { path: path.to_owned(), of, mark })
    }
}

/// Where a path is, if it is in a mounted wide volume.
fn in_wide(path: &Path) -> Result<InMount> {
    let place = InMount::of(path)?;
    let config = of_mount(&place.mount)?.config;
    if config.kind != VolumeKind::Wide {
        bail!(
            "{} is in volume {}, which is of the kind {}: only wide volumes have such conflicts.\n\
            Those of a union: atoll union conflicts",
            path.display(),
            config.name,
            config.kind
        );
    }
    Ok(place)
}

/// All conflicts at a path of a mounted wide volume and below. `found` hears of each.
pub fn conflicts(path: &Path, found: &mut dyn FnMut(WideConflict)) -> Result<()> {
    walk(&in_wide(path)?.path, &mut |path, _| {
        if let Some(conflict) = WideConflict::at(path) {
            found(conflict);
        }
    })
}

/// The conflicts of one name, by that or by a name beside it.
pub fn conflicts_of(path: &Path) -> Result<Vec<WideConflict>> {
    let path = in_wide(path)?.path;
    let of = WideConflict::at(&path).map_or_else(|| path.clone(), |conflict| conflict.of);
    let dir = path.parent().unwrap_or(Path::new("/"));
    let about = || format!("{} cannot be read", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(about)? {
        found.extend(WideConflict::at(&entry.with_context(about)?.path()).filter(|other| other.of == of));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Resolves a conflict. What was done, for people.
pub fn resolve(path: &Path, keep: Keep) -> Result<Vec<String>> {
    let path = in_wide(path)?.path;
    let all = conflicts_of(&path)?;
    let named = WideConflict::at(&path);
    if all.is_empty() || named.as_ref().is_some_and(|named| !all.contains(named)) {
        bail!("{} has no conflict.\n\"atoll conflicts list\" shows which names have some.", path.display());
    }
    match (named, keep) {
        (Some(one), Keep::This) => replace(&one).map(|done| vec![done]),
        (Some(one), Keep::Other) => remove(&one).map(|done| vec![done]),
        (Some(one), Keep::Both) => set_apart(&one).map(|done| vec![done]),
        (None, Keep::This) => all.iter().map(remove).collect(),
        (None, Keep::Both) => all.iter().map(set_apart).collect(),
        (None, Keep::Other) => match &all[..] {
            [one] => replace(one).map(|done| vec![done]),
            _ => bail!(
                "{} files are beside {}.\nName the one that is to stay, with --keep this.",
                all.len(),
                path.display()
            ),
        },
    }
}

/// Conflicts at a path of a mounted wide volume, and below, that its site has settled without a file beside a name: the oldest first. `found`
/// hears of each, with its path in the volume.
pub fn settled(path: &Path, found: &mut dyn FnMut(SettledTold)) -> Result<()> {
    let place = in_wide(path)?;
    let (node, config) = SiteAsk::of_mount(&place)?;
    let below = Path::new("/").join(place.path.strip_prefix(&place.mount.path).unwrap_or(Path::new("")));
    let mut next = Some(0);
    while let Some(from) = next {
        let order = SiteOrder::Settled { volume: config.name.clone(), from };
        let SiteReply::Settled { entries, next: then } = node.order(order)? else {
            return Err(node.strange());
        };
        entries.into_iter().filter(|told| is_below(told, &below)).for_each(&mut *found);
        next = then;
    }
    Ok(())
}

/// Whether a conflict was there or below. Of a long path the beginning is not known.
fn is_below(told: &SettledTold, place: &Path) -> bool {
    let path = Path::new(OsStr::from_bytes(&told.path));
    path.starts_with(place) || !path.is_absolute()
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn replace(one: &WideConflict) -> Result<String> {
    fs::rename(&one.path, &one.of)
        .with_context(|| format!("{} cannot take the name {}", one.path.display(), one.of.display()))?;
    Ok(format!("{} has the name {}", name_of(&one.path), name_of(&one.of)))
}

fn remove(one: &WideConflict) -> Result<String> {
    fs::remove_file(&one.path).with_context(|| format!("{} cannot be removed", one.path.display()))?;
    Ok(format!("{} was removed", name_of(&one.path)))
}

/// Gives it a name without a mark that nothing has.
fn set_apart(one: &WideConflict) -> Result<String> {
    let (stem, extension) = (one.of.file_stem().unwrap_or_default(), one.of.extension());
    for nth in 1..1_000 {
        let mut name = stem.to_owned().into_vec();
        let number = if nth == 1 { String::new() } else { format!(" {nth}") };
        // No colons: not every system has names with them.
        let time = one.mark.time.replace(':', ".");
        name.extend(format!(" ({} {time}{number})", one.mark.site).into_bytes());
        if let Some(extension) = extension {
            name.push(b'.');
            name.extend(extension.as_bytes());
        }
        let to = one.path.with_file_name(std::ffi::OsString::from_vec(name));
        match renameat_with(CWD, &one.path, CWD, &to, RenameFlags::NOREPLACE).map_err(std::io::Error::from) {
            Ok(()) => return Ok(format!("{} is {} now", name_of(&one.path), name_of(&to))),
            Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
            Err(why) => {
                return Err(
                    anyhow!(why).context(format!("{} cannot get a name of its own", one.path.display()))
                );
            }
        }
    }
    bail!("All names for {} are taken.\nGive it one: mv", one.path.display())
}
