//! The same random calls in a native tree and in its simulated twin: the answers are the same, whoever calls.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod common;

use std::collections::HashMap;

use atoll_core::{Name, Time};
use atoll_member::{NativeTree, SimTree, Tree};
use atoll_needs::needs;
use atoll_posix::{Caller, Errno, Kind, RenameMode, SetAttr, SetTime, XattrMode};
use atoll_union::{At, NativeCall, NativeId, NativeReply, NativeStat, Who};
use bytes::Bytes;
use common::{Disk, FileSystem};

const STEPS: usize = 4_000;

/// A small generator: the same numbers for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

/// Both trees, and which identity of the one is which of the other.
struct Twins {
    real: NativeTree,
    sim: SimTree,
    real_of: HashMap<NativeId, NativeId>,
}

/// What can be compared of an answer.
#[derive(Debug, PartialEq)]
enum Seen {
    Stat(Kind, u32, u32, u32, u32, u64),
    Names(Vec<(Name, Kind)>),
    Other(NativeReply),
}

fn seen_stat(stat: &NativeStat) -> Seen {
    let directory = stat.kind == Kind::Directory;
    // How a directory counts its names and bytes is the file system's.
    let (nlink, size) = if directory { (0, 0) } else { (stat.nlink, stat.size) };
    Seen::Stat(stat.kind, stat.mode, nlink, stat.uid, stat.gid, size)
}

fn seen(reply: &NativeReply) -> Seen {
    match reply {
        NativeReply::Stat(stat) => seen_stat(stat),
        NativeReply::Names { names, .. } => {
            let mut names: Vec<_> = names.iter().map(|entry| (entry.name.clone(), entry.kind)).collect();
            names.sort_by(|a, b| a.0.cmp(&b.0));
            Seen::Names(names)
        }
        other => Seen::Other(other.clone()),
    }
}

impl Twins {
    fn id(&self, id: NativeId) -> NativeId {
        self.real_of.get(&id).copied().unwrap_or(NativeId { ino: 1 << 40, btime: Time::default() })
    }

    fn at(&self, at: &At) -> At {
        At { id: self.id(at.id), seen: at.seen.as_ref().map(|(dir, name)| (self.id(*dir), name.clone())) }
    }

    /// The call with the native tree's identities.
    fn real_call(&self, call: &NativeCall) -> NativeCall {
        let mut call = call.clone();
        match &mut call {
            NativeCall::Look { dir, .. }
            | NativeCall::Make { dir, .. }
            | NativeCall::Mkdir { dir, .. }
            | NativeCall::List { dir, .. } => *dir = self.id(*dir),
            NativeCall::Unlink { dir, id, .. } | NativeCall::Rmdir { dir, id, .. } => {
                (*dir, *id) = (self.id(*dir), self.id(*id));
            }
            NativeCall::Rename { dir, id, new_dir, new_id, .. } => {
                (*dir, *id, *new_dir) = (self.id(*dir), self.id(*id), self.id(*new_dir));
                *new_id = new_id.map(|id| self.id(id));
            }
            NativeCall::Link { of, dir, .. } => (*of, *dir) = (self.at(of), self.id(*dir)),
            NativeCall::Stat { of }
            | NativeCall::SetAttr { of, .. }
            | NativeCall::Read { of, .. }
            | NativeCall::Write { of, .. }
            | NativeCall::SetXattr { of, .. }
            | NativeCall::GetXattr { of, .. }
            | NativeCall::RemoveXattr { of, .. }
            | NativeCall::ListXattr { of }
            | NativeCall::Readlink { of }
            | NativeCall::Access { of, .. } => *of = self.at(of),
            other => panic!("not among the random calls: {other:?}"),
        }
        call
    }

    fn step(&mut self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let sim = self.sim.call(who, call, bytes);
        let real = self.real.call(who, &self.real_call(call), bytes);
        if let (Ok(NativeReply::Stat(sim)), Ok(NativeReply::Stat(real))) = (&sim, &real) {
            self.real_of.insert(sim.id, real.id);
        }
        let same = match (&sim, &real) {
            (Ok(sim), Ok(real)) => seen(sim) == seen(real),
            (sim, real) => sim.as_ref().err() == real.as_ref().err(),
        };
        assert!(same, "{who:?} {call:?}\nsimulated: {sim:?}\nnative:    {real:?}");
        sim
    }
}

fn random_call(rng: &mut Rng, dirs: &[NativeId], files: &[At]) -> (NativeCall, Vec<u8>) {
    let names: Vec<Name> = (0..4).map(|n| Name::new(format!("n{n}").as_bytes()).unwrap()).collect();
    let modes = [0o644, 0o600, 0o666, 0o755, 0o777, 0o1777, 0o2775, 0o4755, 0o6711, 0o2644, 0o070, 0];
    let uids = [0, 5_001, 5_002];
    let (dir, name, of) = (rng.of(dirs), rng.of(&names), rng.of(files));
    let id = of.id;
    let mut bytes = Vec::new();
    let call = match rng.below(17) {
        0 => NativeCall::Look { dir, name },
        1 | 2 => {
            let kind = rng.of(&[Kind::Regular, Kind::Regular, Kind::Regular, Kind::Symlink, Kind::Fifo]);
            let (mode, umask) = (rng.of(&modes), rng.of(&[0, 0o022, 0o077]));
            NativeCall::Make { dir, name, kind, mode, umask, rdev: 0, target: Bytes::from_static(b"target") }
        }
        3 => NativeCall::Mkdir { dir, name, mode: rng.of(&modes), umask: rng.of(&[0, 0o022]) },
        4 => NativeCall::Stat { of },
        5 => match of.seen {
            Some((dir, name)) => NativeCall::Unlink { dir, name, id },
            None => NativeCall::Rmdir { dir, name, id },
        },
        6 => NativeCall::Rmdir { dir, name, id: rng.of(dirs) },
        7 => {
            let (new_dir, new_name) = (rng.of(dirs), rng.of(&names));
            let new_id = if rng.below(2) == 0 { None } else { Some(rng.of(files).id) };
            let mode = rng.of(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
            let (dir, name) = of.seen.unwrap_or((dir, name));
            NativeCall::Rename { dir, name, id, new_dir, new_name, new_id, mode }
        }
        8 => NativeCall::Link { of, dir, name },
        9 => {
            let (mut set, to) = (SetAttr::default(), Time { secs: 9, nanos: 9 });
            match rng.below(5) {
                0 => set.mode = Some(rng.of(&modes)),
                1 => set.uid = Some(rng.of(&uids)),
                2 => set.gid = Some(rng.of(&uids)),
                3 => set.size = Some(rng.below(20)),
                _ => {
                    set.atime = Some(rng.of(&[SetTime::Now, SetTime::To { time: to }]));
                    set.mtime = Some(rng.of(&[SetTime::Now, SetTime::To { time: to }]));
                }
            }
            NativeCall::SetAttr { of, set }
        }
        10 => NativeCall::Read { of, offset: rng.below(10), len: 20 },
        11 => {
            bytes = vec![rng.below(256) as u8; 1 + rng.below(9) as usize];
            NativeCall::Write { of, offset: rng.below(10), append: rng.below(2) == 0, kill_set_id: true }
        }
        12 => NativeCall::List { dir, from: 0, bytes: 1 << 16 },
        13 => {
            let name = rng.of(&[&b"user.a"[..], b"user.b", b"trusted.t", b"nonsense"]);
            let (name, value) = (Bytes::from_static(name), Bytes::from_static(b"value"));
            let mode = rng.of(&[XattrMode::Any, XattrMode::Create, XattrMode::Replace]);
            NativeCall::SetXattr { of, name, value, mode, kill_sgid: false }
        }
        14 => NativeCall::GetXattr { of, name: Bytes::from_static(rng.of(&[&b"user.a"[..], b"trusted.t"])) },
        15 => NativeCall::RemoveXattr { of, name: Bytes::from_static(rng.of(&[&b"user.a"[..], b"user.b"])) },
        _ => NativeCall::Access { of, want: 7 },
    };
    (call, bytes)
}

fn the_twins_agree(seed: u64, disk: &Disk) {
    let folder = disk.path().join(format!("seed{seed}"));
    std::fs::create_dir(&folder).unwrap();
    let (real, sim) = (NativeTree::open(&folder).unwrap(), SimTree::new(1, Time { secs: 1, nanos: 0 }));
    let real_of = HashMap::from([(sim.root().id, real.root().id)]);
    let mut twins = Twins { real, sim, real_of };
    let root = twins.sim.root().id;
    let mut dirs = vec![root];
    let mut files = vec![At { id: root, seen: None }];
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    let call = NativeCall::SetAttr { of: files[0].clone(), set: open };
    twins.step(&Who::Daemon, &call, &[]).unwrap();
    let mut rng = Rng(seed);
    for step in 0..STEPS {
        let (call, bytes) = random_call(&mut rng, &dirs, &files);
        let user = |uid, groups: &[u32]| Who::Caller(Caller { uid, gid: uid, groups: Some(groups.to_vec()) });
        let who = match rng.below(5) {
            0 | 1 => Who::Daemon,
            // Whom else links are forbidden to, a setting of the machine says (`fs.protected_hardlinks`).
            _ if matches!(call, NativeCall::Link { .. }) => Who::Daemon,
            2 => user(5_001, &[]),
            3 => user(5_002, &[5_001]),
            _ => user(0, &[]),
        };
        eprintln!("{seed}.{step}");
        let told = twins.step(&who, &call, &bytes);
        // The native tree finds a file for a while by a descriptor that it still has. Here each is known by its name.
        if let (Ok(_), NativeCall::Rename { dir, name, id, new_dir, new_name, new_id, mode }) = (&told, &call)
        {
            let (old, new) = ((*dir, name.clone()), (*new_dir, new_name.clone()));
            let moves = *mode == RenameMode::NoReplace || Some(*id) != *new_id;
            for file in &mut files {
                if file.id == *id && file.seen.as_ref() == Some(&old) && moves {
                    file.seen = Some(new.clone());
                } else if *mode == RenameMode::Exchange
                    && Some(file.id) == *new_id
                    && file.seen.as_ref() == Some(&new)
                {
                    file.seen = Some(old.clone());
                }
            }
        }
        let (
            Ok(NativeReply::Stat(stat)),
            NativeCall::Make { dir, name, .. } | NativeCall::Mkdir { dir, name, .. },
        ) = (&told, &call)
        else {
            continue;
        };
        files.push(At { id: stat.id, seen: Some((*dir, name.clone())) });
        if stat.kind == Kind::Directory {
            dirs.push(stat.id);
        }
        if files.len() > 30 {
            files.remove(1);
        }
    }
}

fn the_twins_agree_over(file_system: FileSystem, seeds: std::ops::Range<u64>) {
    let disk = Disk::new(file_system);
    for seed in seeds {
        the_twins_agree(seed, &disk);
    }
    disk.unmount();
}

#[test]
fn a_tree_over_tmpfs_and_a_simulated_one_agree_on_random_calls() {
    needs!(Root);
    the_twins_agree_over(FileSystem::Tmpfs, 0..12);
}

#[test]
fn a_tree_over_ext4_and_a_simulated_one_agree_on_random_calls() {
    needs!(Root, LoopDevices, Programs(&["mkfs.ext4", "mount"]));
    the_twins_agree_over(FileSystem::Ext4, 100..106);
}

#[test]
fn a_tree_over_xfs_and_a_simulated_one_agree_on_random_calls() {
    needs!(Root, LoopDevices, Programs(&["mkfs.xfs", "mount"]));
    the_twins_agree_over(FileSystem::Xfs, 200..206);
}
