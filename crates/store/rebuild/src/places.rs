//! Brings native objects to their places among the bodies: files that somebody put into a tree, and files
//! that get another id. Only adds.

use atoll_disk::Disk;

use crate::plan::{FilePlan, Plan};
use crate::{BODIES, Disks, RebuildError, Summary, at};

/// Sees to it that every file has its native object under its id.
pub(crate) fn place_bodies<D: Disk>(
    disks: &Disks<D>,
    plan: &Plan,
    summary: &mut Summary,
) -> Result<(), RebuildError> {
    for file in &plan.files {
        let node = &plan.tree.files[file.file];
        summary.adopted += u64::from(node.body.is_none());
        if node.body == Some(file.ino) {
            continue;
        }
        let to = atoll_body::path_of(BODIES, file.ino);
        let from = source(plan, file);
        disks[&file.home].link(&from, &to).map_err(at(file.home, &from))?;
    }
    for (island, disk) in disks {
        // What was put into the trees by hand too: the checksums will say that it is there.
        disk.sync_everything().map_err(at(*island, BODIES))?;
    }
    Ok(())
}

/// The present place of the object.
fn source(plan: &Plan, file: &FilePlan) -> Vec<u8> {
    match plan.tree.files[file.file].body {
        Some(body) => atoll_body::path_of(BODIES, body),
        None => plan.tree.native(file.name.0, file.name.1.as_bytes()),
    }
}
