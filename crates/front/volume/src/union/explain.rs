//! Who has a name, which is shown and why; names that several members have, and the removal of what stands behind.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use atoll_core::VolumePath;
use atoll_federal::{NameSeen, NotBack, NotResolved};
use atoll_posix::Errno;
use atoll_proto::union::{HomeTold, NameTold, RoleTold};
use atoll_proto::{UnionReply, VolumeKind};
use atoll_union::{HomeRole, SameRule, Tag};
use serde_json::json;

use super::UnionVolume;
use super::ask::ShownUnion;
use crate::explain::Explanation;
use crate::places::MountPoint;
use crate::source::of_mount;

/// Most conflicts that one answer tells. One directory's portion may be over it.
const TOLD_MAX: usize = 32;

impl UnionVolume {
    /// The directory of a member.
    fn path_of(&self, tag: Tag) -> String {
        let members = self.members();
        let member = members.iter().find(|member| member.tag == tag);
        member.map_or_else(|| "a member that has left".to_owned(), |m| m.named.path.display().to_string())
    }

    fn told(&self, seen: NameSeen) -> NameTold {
        let why = self.why(&seen);
        let home = |(tag, stat, role): (Tag, atoll_union::NativeStat, HomeRole)| HomeTold {
            member: self.path_of(tag),
            kind: stat.kind,
            size: stat.size,
            mtime: stat.mtime,
            ctime: stat.ctime,
            role: match role {
                HomeRole::Shown => RoleTold::Shown,
                HomeRole::Part => RoleTold::Part,
                HomeRole::Beside(name) => RoleTold::Beside { name },
                HomeRole::Behind => RoleTold::Behind,
                HomeRole::Twin => RoleTold::Twin,
            },
        };
        let paths = |tags: Vec<Tag>| tags.into_iter().map(|tag| self.path_of(tag)).collect();
        NameTold {
            name: seen.name,
            homes: seen.homes.into_iter().map(home).collect(),
            why,
            unasked: seen
                .unasked
                .into_iter()
                .map(|(tag, errno)| (self.path_of(tag), errno.to_string()))
                .collect(),
            dir_homes: paths(seen.dir_homes),
            place: paths(seen.place),
        }
    }

    /// Why one of several is shown.
    fn why(&self, seen: &NameSeen) -> String {
        let is_dir = |(.., role): &(Tag, atoll_union::NativeStat, HomeRole)| *role == HomeRole::Part;
        match (seen.homes.as_slice(), self.settings.same) {
            ([], _) => "no member that answers has it".to_owned(),
            (homes, _) if homes.iter().all(is_dir) => "directories of one path are shown as one".to_owned(),
            ([_], _) => "only this member has it".to_owned(),
            (homes, _) if homes.iter().any(is_dir) => {
                "a directory has the name, and files of that name are shown beside it".to_owned()
            }
            (_, SameRule::Newest) => "it was changed last (same=newest)".to_owned(),
            (_, SameRule::First) => "its member comes first (same=first)".to_owned(),
            (_, SameRule::Both) => {
                "its member comes first, and others are shown beside it (same=both)".to_owned()
            }
        }
    }

    pub(super) fn explain_name(&self, path: &VolumePath) -> Result<NameTold> {
        let seen = self.federation.explain(path).map_err(|errno| cannot(path, errno))?;
        Ok(self.told(seen))
    }

    /// Conflicts in these directories, as many as one answer holds.
    pub(super) fn conflicts(&self, dirs: &[VolumePath], after: u64) -> UnionReply {
        let (mut told, mut unread) = (Vec::new(), Vec::new());
        let mut at = (0, after);
        while let Some(dir) = dirs.get(at.0 as usize) {
            if told.len() >= TOLD_MAX {
                return UnionReply::Conflicts { told, unread, next: Some(at) };
            }
            match self.federation.conflicts(dir, at.1, TOLD_MAX / 2) {
                Ok((seen, next)) => {
                    told.extend(seen.into_iter().map(|seen| (at.0, self.told(seen))));
                    at = next.map_or((at.0 + 1, 0), |next| (at.0, next));
                }
                // It was removed meanwhile.
                Err(Errno::ENOENT | Errno::ENOTDIR) => at = (at.0 + 1, 0),
                Err(errno) => {
                    unread.push((at.0, errno.to_string()));
                    at = (at.0 + 1, 0);
                }
            }
        }
        UnionReply::Conflicts { told, unread, next: None }
    }

    /// Copies the file back that has lost this path last.
    pub(super) fn undelete(&self, path: &VolumePath) -> Result<()> {
        let shown = atoll_core::ShownPath(path.names());
        match self.federation.undelete(path) {
            Ok(_) => {
                // Whoever ordered it looks at it now.
                self.files.void();
                Ok(())
            }
            Err(NotBack::NotHeld) if self.settings.grace_s == 0 => bail!(
                "{shown} cannot be copied back: this union holds no deleted files.\nFor the next time show it with -o grace=SECONDS."
            ),
            Err(NotBack::NotHeld) => bail!(
                "{shown} cannot be copied back: no file of this path was deleted through the union in the last {} s.\nA file that \
                 was in several members, or had other names, is not held.",
                self.settings.grace_s
            ),
            Err(NotBack::Taken) => bail!(
                "{shown} is there, or may be in a member that does not answer, so nothing was copied.\nRename what is there first."
            ),
            Err(NotBack::NoDir(errno)) => bail!(
                "The directory of {shown} is not there any more: {errno}.\nA file can only be copied back to where it was."
            ),
            Err(NotBack::Failed(tag, errno)) => bail!(
                "{shown} cannot be copied back to {}: {errno}.\nIt is still held for a while: make room, and try again.",
                self.path_of(tag)
            ),
        }
    }

    /// Removes the files of a name in all members but one. The members from which one was removed.
    pub(super) fn resolve(&self, path: &VolumePath, keep: &[u8]) -> Result<Vec<String>> {
        let keep = Path::new(OsStr::from_bytes(keep));
        let tag = self.members().iter().find(|member| member.named.path == keep).map(|member| member.tag);
        let Some(tag) = tag else {
            bail!("The union has no member {}.\n\"atoll union status\" lists its members.", keep.display())
        };
        match self.federation.resolve(path, tag) {
            Ok(removed) => {
                self.files.void();
                Ok(removed.into_iter().map(|tag| self.path_of(tag)).collect())
            }
            Err(NotResolved::NotThere) => bail!(
                "The member {} has no file of this name, so nothing was removed.\n\"atoll explain\" shows who has it.",
                keep.display()
            ),
            Err(NotResolved::Directory(tag)) => bail!(
                "The member {} has a directory of this name, so nothing was removed.\nRename the directory or the file there.",
                self.path_of(tag)
            ),
            Err(NotResolved::Failed(tag, Errno::ESTALE | Errno::ENOENT)) => bail!(
                "The file in the member {} was changed at the same time and stays.\nLook again: atoll explain PATH",
                self.path_of(tag)
            ),
            Err(NotResolved::Failed(tag, errno)) => bail!(
                "The file in the member {} cannot be removed: {errno}.\nOther members may be done. Look again: atoll explain PATH",
                self.path_of(tag)
            ),
            Err(NotResolved::NoPath(errno)) => Err(cannot(path, errno)),
        }
    }
}

fn cannot(path: &VolumePath, errno: Errno) -> anyhow::Error {
    anyhow!("{} in the union cannot be looked at: {errno}.", atoll_core::ShownPath(path.names()))
}

/// Explains a path of a mounted union. None if the mount is of another kind.
pub(crate) fn explain_in(mount: &MountPoint, path: &VolumePath) -> Result<Option<Explanation>> {
    if of_mount(mount)?.config.kind != VolumeKind::Union {
        return Ok(None);
    }
    let told = ShownUnion { mount: mount.clone() }.explain(path)?;
    let mut rows: Vec<(&'static str, String)> = Vec::new();
    for home in &told.homes {
        let member = &home.member;
        match &home.role {
            RoleTold::Shown => rows.push(("shown", format!("{member}  {}", told.why))),
            RoleTold::Part => rows.push(("part", member.clone())),
            RoleTold::Beside { name } => rows.push(("beside", format!("{member}  as {name}"))),
            RoleTold::Behind => rows.push(("behind", member.clone())),
            RoleTold::Twin => rows.push(("copy", member.clone())),
        }
    }
    if told.homes.iter().all(|home| home.role != RoleTold::Shown) {
        rows.push(("why", told.why.clone()));
    }
    rows.extend(told.unasked.iter().map(|(member, why)| ("unknown", format!("{member}  {why}"))));
    if let Some((anchor, others)) = told.dir_homes.split_first() {
        let others =
            if others.is_empty() { String::new() } else { format!(", also in {}", others.join(", ")) };
        rows.push(("anchor", format!("{anchor} has its directory{others}")));
    }
    if !told.place.is_empty() {
        rows.push(("new", format!("would go to {}", told.place.join(", then "))));
    }
    let json = match to_json(&told) {
        serde_json::Value::Object(json) => json,
        _ => serde_json::Map::new(),
    };
    Ok(Some(Explanation { rows, json }))
}

/// The same for programs.
pub fn to_json(told: &NameTold) -> serde_json::Value {
    let homes = told.homes.iter().map(|home| {
        let (role, beside) = match &home.role {
            RoleTold::Shown => ("shown", None),
            RoleTold::Part => ("part", None),
            RoleTold::Beside { name } => ("beside", Some(name.to_string())),
            RoleTold::Behind => ("behind", None),
            RoleTold::Twin => ("copy", None),
        };
        json!({
            "member": home.member, "kind": format!("{:?}", home.kind).to_lowercase(), "size": home.size,
            "mtime": home.mtime.secs, "ctime": home.ctime.secs, "role": role, "beside": beside,
        })
    });
    let unasked = told.unasked.iter().map(|(member, why)| json!({ "member": member, "why": why }));
    json!({
        "homes": homes.collect::<Vec<_>>(), "why": told.why, "unasked": unasked.collect::<Vec<_>>(),
        "anchor": told.dir_homes.first(), "dir_homes": told.dir_homes, "place": told.place,
    })
}
