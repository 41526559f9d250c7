//! Operations among few names, so that sites that do not know of each other quarrel about them.

use atoll_core::Ino;
use atoll_model::Rng;
use atoll_posix::{Caller, Kind, Op, RenameMode, SetAttr, XattrMode};
use bytes::Bytes;

use crate::site::{Site, named};

/// The names.
const NAMES: [&str; 4] = ["a", "b", "c", "d.txt"];

/// One operation of the superuser of a site among few names: whatever is there. Whether something was done.
pub(crate) fn quarrel(site: &mut Site, rng: &mut Rng) -> bool {
    let mut dirs = vec![Ino::ROOT];
    let mut files = Vec::new();
    let mut next = 0;
    while let Some(dir) = dirs.get(next).copied() {
        let (names, _) = site.state().entries_after(dir, 0).expect("it is in memory");
        for (_, _, entry) in names {
            if entry.stub.is_some() { dirs.push(entry.ino) } else { files.push(entry.ino) }
        }
        next += 1;
    }
    let (dir, new_dir) = (*rng.pick(&dirs), *rng.pick(&dirs));
    let (name, new_name) = (named(rng.pick::<&str>(&NAMES)), named(rng.pick::<&str>(&NAMES)));
    let mode = *rng.pick(&[0o644, 0o600]);
    let (umask, rdev, exclusive, target) = (0, 0, true, Bytes::new());
    let op = match rng.weighted(&[14, 14, 4, 30, 5, 12, 12, 8, 6, 4]) {
        0 => Op::Create { dir, name, kind: Kind::Regular, mode, umask, rdev, exclusive, target },
        1 => Op::Mkdir { dir, name, mode: mode | 0o100, umask },
        2 => {
            let (kind, target) = (Kind::Symlink, Bytes::from(rng.pick(&NAMES).to_string()));
            Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target }
        }
        at @ (3 | 4) => {
            let mode = if at == 3 { RenameMode::Replace } else { RenameMode::Exchange };
            Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
        }
        5 => Op::Unlink { dir, name },
        6 => Op::Rmdir { dir, name, meant: None },
        at @ (7 | 8) if !files.is_empty() => {
            let ino = *rng.pick(&files);
            if at == 7 {
                Op::Link { ino, dir, name }
            } else {
                let (name, value) = (Bytes::from_static(b"user.x"), Bytes::from(vec![rng.index(9) as u8]));
                Op::SetXattr { ino, name, value, mode: XattrMode::Any, kill_sgid: false }
            }
        }
        _ => Op::SetAttr { ino: dir, set: SetAttr { mode: Some(mode | 0o100), ..SetAttr::default() } },
    };
    let session = site.session();
    site.run(session, &Caller::ROOT, op, Bytes::new()).is_ok()
}
