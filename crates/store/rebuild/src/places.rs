//! Native objects to their places among the bodies: adopted, linked or copied. Only adds.

use std::io;

use atoll_core::IslandId;
use atoll_disk::{Disk, FileKind, OpenHow};
use atoll_view::LIMBO;
use rustix::io::Errno;

use crate::plan::{FilePlan, Plan};
use crate::read::copy;
use crate::{BODIES, Disks, Options, RebuildError, Summary, at};

/// Permission bits of what is made; its own are laid later.
const NEW_MODE: u32 = 0o600;

/// Sees to it that every file has its native object at its home.
pub(crate) fn place_bodies<D: Disk>(
    disks: &Disks<D>,
    options: &Options<D>,
    plan: &Plan,
    summary: &mut Summary,
) -> Result<(), RebuildError> {
    for file in &plan.files {
        let node = &plan.tree.files[file.file];
        summary.adopted += u64::from(node.body.is_none());
        if node.island != file.home {
            summary.moved += 1;
        } else if node.body == Some(file.ino) {
            continue;
        }
        let to = atoll_body::path_of(BODIES, file.ino);
        let from = source(plan, file);
        if node.island == file.home {
            disks[&file.home].link(&from, &to).map_err(at(file.home, &from))?;
        } else if !link_across(options, plan, file, &from, &to)? {
            copy_across(disks, plan, file, &from, &to)?;
        }
    }
    for (island, disk) in disks {
        // What was put into the trees by hand too: the checksums will say that it is there.
        disk.sync_everything().map_err(at(*island, BODIES))?;
    }
    Ok(())
}

/// Where the object is now.
fn source(plan: &Plan, file: &FilePlan) -> Vec<u8> {
    match plan.tree.files[file.file].body {
        Some(body) => atoll_body::path_of(BODIES, body),
        None => plan.tree.native(file.name.0, file.name.1.as_bytes()),
    }
}

/// Links an object that goes along; false if it must be copied.
fn link_across<D: Disk>(
    options: &Options<D>,
    plan: &Plan,
    file: &FilePlan,
    from: &[u8],
    to: &[u8],
) -> Result<bool, RebuildError> {
    // An object that stays too must not be shared: a write to one file would change the other.
    let Some(common) = options.common.as_ref().filter(|_| file.takes_object) else { return Ok(false) };
    let island = plan.tree.files[file.file].island;
    let in_island = |island: IslandId, path: &[u8]| [island.to_string().as_bytes(), b"/", path].concat();
    match common.link(&in_island(island, from), &in_island(file.home, to)) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) => Ok(false),
        Err(error) => Err(at(island, from)(error)),
    }
}

fn copy_across<D: Disk>(
    disks: &Disks<D>,
    plan: &Plan,
    file: &FilePlan,
    from: &[u8],
    to: &[u8],
) -> Result<(), RebuildError> {
    let node = &plan.tree.files[file.file];
    let (source, target) = (&*disks[&node.island], &*disks[&file.home]);
    let stat = &node.stat;
    match stat.kind {
        FileKind::Regular => {
            // Half a copy must not be taken for a body by the next run: the view clears these away.
            let temporary = [LIMBO, format!("/t{:016x}", file.ino.0).as_bytes()].concat();
            match target.unlink(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(at(file.home, &temporary)(error));
                }
                _ => {}
            }
            let open = source.open(from, OpenHow::Read).map_err(at(node.island, from))?;
            let new = target.open(&temporary, OpenHow::CreateNew { mode: NEW_MODE });
            let new = new.map_err(at(file.home, &temporary))?;
            copy(&open, &new, stat.size).map_err(at(node.island, from))?;
            target.rename(&temporary, to, false).map_err(at(file.home, to))
        }
        FileKind::Symlink => {
            let link = node.target.as_deref().unwrap_or_default();
            target.symlink(link, to).map_err(at(file.home, to))
        }
        kind => target.mknod(to, kind, NEW_MODE, stat.rdev).map_err(at(file.home, to)),
    }
}
