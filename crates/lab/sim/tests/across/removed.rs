//! Directories that are removed while mounts have them open.

use atoll_core::Ino;
use atoll_posix::{Answer, Attr, Errno, Op, RenameMode, SetAttr, XattrMode};
use atoll_sim::Config;
use bytes::Bytes;

use crate::bench::{Bench, S, T, id, name, owned_by};

const ISLANDS: u16 = 3;

/// Two mounts, and a directory below that of S which both know, owned by this island. It has an attribute.
fn known_to_both(seed: u64, owner: usize) -> (Bench, Ino, Op) {
    let mut config = Config::new(seed, ISLANDS);
    (config.clients, config.delay_us_max, config.mounts) = (2, 300, true);
    let mut bench = Bench::with(config);
    let (above, n) = (bench.dirs[S], owned_by(ISLANDS, seed, &[bench.names[S].clone()], "below", owner));
    let done = bench.run(0, Op::Mkdir { dir: above, name: n.clone(), mode: 0o755, umask: 0 });
    let Ok((Answer::Found { found }, _)) = done else { panic!("{done:?}") };
    let ino = found.attr.ino;
    bench.run(1, Op::Lookup { dir: above, name: n.clone() }).unwrap();
    bench.ok(set_xattr(ino, "first"));
    let remove = match seed % 2 {
        0 => Op::Rmdir { dir: above, name: n, meant: None },
        _ => {
            let other = name("other");
            bench.ok(Op::Mkdir { dir: above, name: other.clone(), mode: 0o755, umask: 0 });
            let (mode, meant) = (RenameMode::Replace, None);
            let (dir, new_dir) = (above, above);
            Op::Rename { dir, name: other, new_dir, new_name: n, mode, meant, new_meant: meant }
        }
    };
    (bench, ino, remove)
}

fn set_xattr(ino: Ino, value: &'static str) -> Op {
    let (name, value) = (Bytes::from_static(b"user.a"), Bytes::from_static(value.as_bytes()));
    Op::SetXattr { ino, name, value, mode: XattrMode::Any, kill_sgid: false }
}

impl Bench {
    fn attr(&mut self, client: usize, ino: Ino) -> Attr {
        match self.run(client, Op::GetAttr { ino }) {
            Ok((Answer::Attr { attr }, _)) => attr,
            other => panic!("client {client}: {other:?}"),
        }
    }

    fn value(&mut self, client: usize, ino: Ino) -> Vec<u8> {
        self.run(client, Op::GetXattr { ino, name: Bytes::from_static(b"user.a") }).unwrap().1
    }

    fn chmod(&mut self, client: usize, ino: Ino, mode: u32) {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.run(client, Op::SetAttr { ino, set }).unwrap();
    }

    /// Releases are told within seconds. A row that nobody holds would be found.
    fn released(&mut self, owner: usize, ino: Ino, left: usize) {
        self.wait(10_000_000);
        self.settle();
        assert_eq!(self.world.holders(id(owner), ino), left);
    }
}

#[test]
fn a_removed_directory_keeps_its_attributes_until_every_mount_has_let_it_go() {
    for (seed, owner) in (0..16).flat_map(|seed| [(seed, S), (seed, T)]) {
        let (mut bench, ino, remove) = known_to_both(seed, owner);
        bench.chmod(1, ino, 0o705);
        bench.ok(remove);
        let attr = bench.attr(1, ino);
        assert_eq!((attr.nlink, attr.mode), (0, 0o705), "seed {seed}: when it is answered it is removed");
        assert_eq!(bench.value(1, ino), b"first");
        bench.chmod(1, ino, 0o711);
        bench.run(0, set_xattr(ino, "second")).unwrap();
        assert_eq!((bench.attr(0, ino).mode, bench.value(1, ino)), (0o711, b"second".to_vec()));
        let create = Op::Mkdir { dir: ino, name: name("n"), mode: 0o755, umask: 0 };
        assert_eq!(bench.run(0, create).map(|_| ()), Err(Errno::ESTALE), "it takes no names");
        bench.world.forget(0, &[ino]);
        bench.released(owner, ino, 1);
        assert_eq!((bench.attr(1, ino).mode, bench.value(1, ino)), (0o711, b"second".to_vec()));
        bench.world.forget(1, &[ino]);
        bench.released(owner, ino, 0);
    }
}

/// The owner is told again that the directory is removed, and keeps it for a mount that has let it go before.
#[test]
fn a_directory_whose_removal_is_lost_is_kept_again_and_let_go_again() {
    for seed in 0..24 {
        let (mut bench, ino, remove) = known_to_both(seed, T);
        bench.rest();
        bench.ok(remove);
        bench.world.forget(1, &[ino]);
        bench.wait(if seed % 4 < 2 { 0 } else { 3_000_000 });
        bench.lose(T, seed);
        bench.back(T);
        let attr = bench.attr(0, ino);
        assert_eq!((attr.nlink, bench.value(0, ino)), (0, b"first".to_vec()), "seed {seed}");
        bench.released(T, ino, 1);
        bench.chmod(0, ino, 0o711);
        bench.world.forget(0, &[ino]);
        bench.released(T, ino, 0);
    }
}

/// What was synced of it survives a power cut.
#[test]
fn a_change_of_a_removed_directory_that_is_synced_is_not_lost() {
    for (seed, owner) in (0..8).flat_map(|seed| [(seed, S), (seed, T)]) {
        let (mut bench, ino, remove) = known_to_both(seed, owner);
        bench.ok(remove);
        bench.chmod(1, ino, 0o711);
        bench.run(1, set_xattr(ino, "second")).unwrap();
        bench.run(1, Op::FsyncDir { dir: ino }).unwrap();
        bench.lose(owner, seed);
        bench.back(owner);
        assert_eq!(
            (bench.attr(1, ino).mode, bench.value(0, ino)),
            (0o711, b"second".to_vec()),
            "seed {seed}"
        );
        for client in 0..2 {
            bench.world.forget(client, &[ino]);
        }
        bench.released(owner, ino, 0);
    }
}
