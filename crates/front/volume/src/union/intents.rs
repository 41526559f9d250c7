//! Renames of directories in several members that a process left unfinished, in the state folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use atoll_federal::{SettledRename, settle_left};
use atoll_intents::{IntentMember, KeptIntents};
use atoll_member::{NativeTree, Tree};
use atoll_union::{Direction, Tag};
use bytes::Bytes;

use super::members::OpenMember;

/// The folder of intents in a state folder.
fn folder(state: &Path) -> PathBuf {
    state.join("intents")
}

/// How a member is found again.
pub(super) fn named(tag: Tag, path: &Path, tree: &NativeTree) -> IntentMember {
    use std::os::unix::ffi::OsStrExt;
    let identity = tree.identity();
    IntentMember {
        tag,
        path: Bytes::copy_from_slice(path.as_os_str().as_bytes()),
        file_system: identity.file_system.clone().into(),
        root: identity.root.clone().into(),
        host: identity.host.clone().into(),
    }
}

fn is_same(one: &IntentMember, other: &IntentMember) -> bool {
    (&one.file_system, &one.root, &one.host) == (&other.file_system, &other.root, &other.host)
}

/// Opens a member where it was. None if it is not there, or is another one.
fn reopen(member: &IntentMember) -> Option<Arc<dyn Tree>> {
    let path = as_path(&member.path);
    let tree = NativeTree::open(&path).ok()?;
    is_same(member, &named(member.tag, &path, &tree)).then(|| Arc::new(tree) as Arc<dyn Tree>)
}

fn as_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Settles what was left in these members before they are shown, and gives a place for what this union will write down.
pub(super) fn settle(state: &Path, opened: &[OpenMember]) -> Result<KeptIntents> {
    let dir = folder(state);
    let members: Vec<IntentMember> = opened.iter().map(OpenMember::for_intents).collect();
    let mine = |member: &IntentMember| members.iter().find(|own| is_same(own, member));
    let tree = |own: &IntentMember| {
        let open = opened.iter().find(|open| open.tag == own.tag);
        open.map(|open| Arc::clone(&open.tree) as Arc<dyn Tree>)
    };
    let mut open = |member: &IntentMember| mine(member).map_or_else(|| reopen(member), tree);
    let settled = settle_left(&dir, &|member| mine(member).is_some(), &mut open)
        .with_context(|| format!("What was left in {} cannot be read", dir.display()))?;
    for rename in &settled {
        tracing::warn!("{}", told(rename));
    }
    Ok(KeptIntents::new(dir, members))
}

/// Settles everything that unions have left in a state folder, as far as their members are there.
pub fn finish(state: &Path) -> Result<Vec<SettledRename>> {
    let dir = folder(state);
    settle_left(&dir, &|_| true, &mut reopen)
        .with_context(|| format!("What was left in {} cannot be read", dir.display()))
}

/// A sentence that says what became of a rename.
pub fn told(rename: &SettledRename) -> String {
    let (old, new) = (&rename.intent.old, &rename.intent.new);
    let became = match rename.intent.direction {
        Some(Direction::Forward) => format!("the rename of {old} to {new} is made"),
        _ => format!("the rename of {old} to {new} is undone"),
    };
    let missing = rename.missing.iter().map(|path| as_path(path).display().to_string());
    let missing = missing.collect::<Vec<_>>().join(", ");
    if missing.is_empty() { became } else { format!("{became}, but not in {missing}: it is not there") }
}
