//! What a union must not leave in its members. Looks only; a test calls it at its end.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What these members of one union have that no user made, one line for each thing: names of ours, extended attributes of ours, and
/// empty directories that are closed still (mode 0700) while another member has them with another mode.
pub fn left_in<P: AsRef<Path>>(members: &[P]) -> io::Result<Vec<String>> {
    let (mut left, mut closed, mut modes) = (Vec::new(), Vec::new(), BTreeMap::new());
    for member in members.iter().map(AsRef::as_ref) {
        let mut todo = vec![member.to_owned()];
        while let Some(path) = todo.pop() {
            let Some(meta) = gone(fs::symlink_metadata(&path))? else { continue };
            if path != member && path.file_name().is_some_and(|name| has(name.as_bytes(), b".atoll-")) {
                left.push(format!("{} has a name of ours", path.display()));
            }
            if has(&xattrs(&path)?, b"atoll") {
                left.push(format!("{} has an extended attribute of ours", path.display()));
            }
            if !meta.is_dir() {
                continue;
            }
            let Some(entries) = gone(fs::read_dir(&path))? else { continue };
            let inside: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
            let below = path.strip_prefix(member).expect("it is below its member").to_owned();
            let mode = meta.mode() & 0o7777;
            if inside.is_empty() && mode == 0o700 {
                closed.push((below.clone(), path));
            }
            modes.entry(below).or_insert_with(Vec::new).push(mode);
            todo.extend(inside);
        }
    }
    closed.retain(|(below, _)| modes[below].iter().any(|mode| *mode != 0o700));
    left.extend(closed.into_iter().map(|(_, path)| format!("{} is closed", path.display())));
    Ok(left)
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Programs of the test may still remove things.
fn gone<T>(told: io::Result<T>) -> io::Result<Option<T>> {
    match told {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        told => told.map(Some),
    }
}

fn xattrs(path: &Path) -> io::Result<Vec<u8>> {
    let mut names = vec![0; 1 << 16];
    match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(len) => names.truncate(len),
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOENT) => names.clear(),
        Err(e) => return Err(e.into()),
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_a_union_must_not_leave_is_named_and_what_users_make_is_not() {
        let place = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| place.path().join(name));
        for dir in ["one/d/e", "two/d/e", "two/private"] {
            fs::create_dir_all(place.path().join(dir)).unwrap();
        }
        let close = |path: &str| {
            fs::set_permissions(place.path().join(path), PermissionsExt::from_mode(0o700)).unwrap();
        };
        close("two/private");
        assert_eq!(left_in(&[&one, &two]).unwrap(), Vec::<String>::new());
        close("two/d/e");
        fs::write(one.join("d/.atoll-moving-1"), "x").unwrap();
        let name = c"user.atoll.x";
        let is_kept =
            rustix::fs::setxattr(one.join("d"), name, b"x", rustix::fs::XattrFlags::empty()).is_ok();
        let left = left_in(&[&one, &two]).unwrap();
        let said = |words: &str| left.iter().any(|line| line.contains(words));
        assert!(said(".atoll-moving-1 has a name") && said("two/d/e is closed"), "{left:?}");
        assert_eq!(said("extended attribute"), is_kept, "{left:?}");
    }
}
