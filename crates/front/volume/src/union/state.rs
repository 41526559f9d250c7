//! The folder of this machine in which unions keep what must outlive their processes. It never lies in a member: nothing of
//! Atoll's is stored there.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::MemberPath;
use crate::places;

/// Where root's unions keep it.
const OF_ROOT: &str = "/var/lib/atoll/union";

/// The state folder of a union of these members: the one that the user chose, or else the usual one of this user. It is made if
/// it is not there, for its owner alone. An error says why it cannot be used: it lies beneath a member, or cannot be made.
pub fn state_dir(chosen: Option<&Path>, members: &[MemberPath]) -> Result<PathBuf> {
    let dir = state_path(chosen)?;
    let cannot =
        || format!("The state folder {} cannot be made.\nName another one: --state DIR", dir.display());
    // Before it is made: nothing is made in a member.
    refuse_inside(&beyond_links(&dir)?, members)?;
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&dir).with_context(cannot)?;
    let dir = std::fs::canonicalize(&dir).with_context(cannot)?;
    refuse_inside(&dir, members)?;
    Ok(dir)
}

/// Where it is, whether or not it is there.
pub(super) fn state_path(chosen: Option<&Path>) -> Result<PathBuf> {
    chosen.map_or_else(usual, |dir| Ok(dir.to_owned()))
}

fn usual() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(OF_ROOT.into());
    }
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    match base {
        Some(base) => Ok(base.join("atoll/union")),
        None => bail!(
            "There is no place for the state of unions: HOME is not set.\nName a folder outside of all members: --state DIR"
        ),
    }
}

/// Where a path leads, of which only the beginning may exist.
fn beyond_links(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
    let there = path.ancestors().find(|above| std::fs::symlink_metadata(above).is_ok());
    let there = there.unwrap_or(Path::new("/"));
    let rest = path.strip_prefix(there).expect("it is above the path");
    Ok(places::absolute(there)?.join(rest))
}

fn refuse_inside(dir: &Path, members: &[MemberPath]) -> Result<()> {
    match members.iter().find(|member| dir.starts_with(&member.path)) {
        Some(member) => bail!(
            "The state folder {} lies inside the member {}.\nName a folder outside of all members: --state DIR",
            dir.display(),
            member.path.display()
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_folder_is_made_for_its_owner_and_never_in_a_member() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().unwrap();
        let inside = scratch.path().join("member");
        std::fs::create_dir(&inside).unwrap();
        let members = [MemberPath {
            path: std::fs::canonicalize(&inside).unwrap(),
            read_only: false,
            empty_ok: false,
            pin: None,
        }];
        let dir = state_dir(Some(&scratch.path().join("state/of/unions")), &members).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&inside, scratch.path().join("link")).unwrap();
        for bad in ["member", "member/new/folder", "link/new"] {
            let why = state_dir(Some(&scratch.path().join(bad)), &members).unwrap_err().to_string();
            assert!(why.contains("lies inside the member") && why.contains("--state"), "{why}");
        }
        assert!(std::fs::read_dir(&inside).unwrap().next().is_none(), "nothing was made in the member");
    }
}
