//! The members that a user names, and why some cannot be members.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use atoll_federal::Opened;
use atoll_intents::IntentMember;
use atoll_member::{MemberIdentity, NativeTree, Tree};
use atoll_union::Tag;

use super::intents;
use crate::places;

/// A directory that the user names as a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPath {
    /// Its absolute path, without symbolic links.
    pub path: PathBuf,
    /// Nothing is changed in it.
    pub read_only: bool,
    /// It may be empty although others are mounted file systems.
    pub empty_ok: bool,
    /// The file system that it must lie on.
    pub pin: Option<String>,
}

/// Fewest characters of a file system's number behind an `@`. Fewer belong to the path.
const PIN_CHARS_MIN: usize = 8;

impl MemberPath {
    /// Reads `DIR`, `DIR:ro`, `DIR:empty-ok` or `DIR@UUID`, or several of these behind each other.
    pub fn parse(text: &Path) -> Result<Self> {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let mut bytes = text.as_os_str().as_bytes().to_vec();
        let (mut read_only, mut empty_ok, mut pin) = (false, false, None);
        loop {
            if bytes.ends_with(b":ro") {
                bytes.truncate(bytes.len() - 3);
                read_only = true;
            } else if bytes.ends_with(b":empty-ok") {
                bytes.truncate(bytes.len() - 9);
                empty_ok = true;
            } else if let (None, Some((path, number))) = (&pin, split_pin(&bytes)) {
                (bytes, pin) = (path, Some(number));
            } else {
                break;
            }
        }
        let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
        let shown = path.display();
        let path = std::fs::canonicalize(&path)
            .with_context(|| format!("The member {shown} cannot be used.\nName a directory that exists"))?;
        Ok(Self { path, read_only, empty_ok, pin })
    }
}

/// A path and the number of a file system behind it. None if the whole names something: an `@` may be part of a path.
fn split_pin(text: &[u8]) -> Option<(Vec<u8>, String)> {
    use std::os::unix::ffi::OsStrExt;
    let at = text.iter().rposition(|byte| *byte == b'@')?;
    let number = std::str::from_utf8(&text[at + 1..]).ok()?;
    let is_number =
        number.len() >= PIN_CHARS_MIN && number.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let is_path = Path::new(std::ffi::OsStr::from_bytes(text)).exists();
    (is_number && !is_path).then(|| (text[..at].to_vec(), number.to_owned()))
}

/// Refuses members that cannot be shown together, or on this mount point. Nothing is left behind.
pub fn check_members(members: &[MemberPath], point: Option<&Path>) -> Result<()> {
    for (at, member) in members.iter().enumerate() {
        check_member(member, &members[..at], members, point)?;
    }
    let beside_disks = is_any_disk(members)?;
    members.iter().try_for_each(|member| check_not_forgotten(member, beside_disks))
}

/// The same for a member that comes to others that are shown.
pub(super) fn check_joining(member: &MemberPath, others: &[MemberPath], point: &Path) -> Result<()> {
    check_member(member, others, others, Some(point))?;
    check_not_forgotten(member, is_any_disk(others)?)
}

/// Refuses a member by itself, beside those before it, and in a mount that shows any of these.
fn check_member(
    member: &MemberPath,
    before: &[MemberPath],
    all: &[MemberPath],
    point: Option<&Path>,
) -> Result<()> {
    let shown = member.path.display();
    let meta =
        std::fs::metadata(&member.path).with_context(|| format!("The member {shown} cannot be read"))?;
    if !meta.is_dir() {
        bail!("The member {shown} is not a directory.\nName a directory.");
    }
    std::fs::read_dir(&member.path)
        .with_context(|| format!("The member {shown} cannot be read.\nRun as a user who may read it"))?;
    for other in before {
        if member.path == other.path {
            bail!("The member {shown} is named twice.\nName it once.");
        }
        for (inner, outer) in [(member, other), (other, member)] {
            if inner.path.starts_with(&outer.path) {
                let (inner, outer) = (inner.path.display(), outer.path.display());
                bail!("The member {inner} lies inside the member {outer}.\nName one of them.");
            }
        }
    }
    // A union that shows itself would ask itself for ever.
    if let Some(mount) = places::mount_of(&member.path)? {
        let below = |other: &&MemberPath| {
            let path = other.path.display().to_string();
            mount.source.split(':').any(|shown| shown == path)
        };
        if let Some(other) = all.iter().find(below) {
            let other = other.path.display();
            bail!(
                "The member {shown} is a union's own mount, which shows {other} already.\nName the directories that it shows."
            );
        }
    }
    if let Some(point) = point {
        if point.starts_with(&member.path) {
            let point = point.display();
            bail!(
                "The mount point {point} lies inside the member {shown}.\nChoose a directory outside of all members."
            );
        }
        if member.path.starts_with(point) {
            let point = point.display();
            bail!(
                "The member {shown} lies below the mount point {point}, which would hide it.\nChoose another mount point."
            );
        }
    }
    let fstab = std::fs::read_to_string("/etc/fstab").unwrap_or_default();
    if let Some(line) = not_mounted(&fstab, &member.path)? {
        bail!(
            "The member {shown} is not there: its disk is not mounted. /etc/fstab says:\n  {line}\nMount it first: mount {}",
            line.split_whitespace().nth(1).unwrap_or("DIR")
        );
    }
    Ok(())
}

/// Refuses an empty directory on the system's disk beside mounted disks: somebody forgot to mount its disk.
fn check_not_forgotten(member: &MemberPath, beside_disks: bool) -> Result<()> {
    if !beside_disks || member.empty_ok || is_mount_root(&member.path)? {
        return Ok(());
    }
    if std::fs::read_dir(&member.path)?.next().is_none() && on_system_disk(&member.path)? {
        let shown = member.path.display();
        bail!(
            "The member {shown} is empty and lies on the system's own disk, while others are mounted disks: its disk is \
             probably not mounted.\nMount it, or name it as {shown}:empty-ok if it is meant."
        );
    }
    Ok(())
}

/// Whether one of them is a mounted disk. Asked once for all: each look reads the whole table of mounts.
fn is_any_disk(members: &[MemberPath]) -> Result<bool> {
    let roots: Vec<bool> = members.iter().map(|member| is_mount_root(&member.path)).collect::<Result<_>>()?;
    Ok(roots.contains(&true))
}

/// The line of fstab for the longest path at or above `path`, if nothing is mounted there.
fn not_mounted(fstab: &str, path: &Path) -> Result<Option<String>> {
    let lines = fstab.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let Some(point) = line.split_whitespace().nth(1) else { continue };
        let point = point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
        let point = Path::new(&point);
        if point.is_absolute() && point != Path::new("/") && path.starts_with(point) {
            let mounted = places::mounted_at(point)?.is_some();
            if !mounted {
                return Ok(Some(line.to_owned()));
            }
        }
    }
    Ok(None)
}

fn is_mount_root(path: &Path) -> Result<bool> {
    Ok(places::mounted_at(path)?.is_some())
}

fn on_system_disk(path: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.dev() == std::fs::metadata("/")?.dev())
}

/// A member that is open.
pub(super) struct OpenMember {
    pub tag: Tag,
    pub named: MemberPath,
    pub identity: MemberIdentity,
    pub tree: Arc<NativeTree>,
}

impl OpenMember {
    /// Opens a member that was checked. `others` are those that are open: each has its tag, path and identity.
    pub(super) fn open<'a>(
        named: &MemberPath,
        others: impl Iterator<Item = (Tag, &'a Path, &'a MemberIdentity)> + Clone,
    ) -> Result<Self> {
        let shown = named.path.display();
        let tree =
            NativeTree::open(&named.path).with_context(|| format!("The member {shown} cannot be opened"))?;
        let identity = tree.identity().clone();
        if let Some((_, other, _)) = others.clone().find(|(.., other)| **other == identity) {
            bail!(
                "The member {shown} is the same directory as {}, under another path.\nName it once.",
                other.display()
            );
        }
        if let Some(pin) = &named.pin {
            let there = identity.file_system_text();
            let plain = |text: &str| text.replace('-', "").to_ascii_lowercase();
            if plain(pin) != plain(&there) {
                bail!(
                    "The member {shown} is on another file system than {pin}: on {there}.\nMount the right disk there, or \
                     name the member as {shown}@{there}."
                );
            }
        }
        let mut tag = identity.tag();
        // Two identities may have one hash: the later member takes the next number that is free.
        while tag.0 == 0 || others.clone().any(|(taken, ..)| taken == tag) {
            tag = Tag(tag.0.wrapping_add(1));
        }
        Ok(Self { tag, named: named.clone(), identity, tree: Arc::new(tree) })
    }

    /// Opens several.
    pub(super) fn open_all(members: &[MemberPath]) -> Result<Vec<Self>> {
        let mut open: Vec<Self> = Vec::new();
        for member in members {
            let others = open.iter().map(|open| (open.tag, open.named.path.as_path(), &open.identity));
            let next = Self::open(member, others)?;
            open.push(next);
        }
        Ok(open)
    }

    /// How it is found again by whoever settles what this process leaves unfinished.
    pub(super) fn for_intents(&self) -> IntentMember {
        intents::named(self.tag, &self.named.path, &self.tree)
    }

    /// As the union's machine takes it.
    pub(super) fn opened(&self) -> Opened {
        (self.tag, self.named.read_only, Arc::clone(&self.tree) as Arc<dyn Tree>)
    }
}
