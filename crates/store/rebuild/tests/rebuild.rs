//! States lost, trees left: what is served after a rebuild is what the trees had.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use atoll_core::{Ino, IslandId};
use atoll_posix::{Kind, Op, SetAttr};
use atoll_rebuild::{RebuildError, Why};
use common::{Place, Served, assert_same, bytes, is_root};

/// A little of everything, through requests.
fn fill(served: &Served) {
    for d in ["/a", "/a/b", "/a/b/c", "/d", "/d/e", "/empty", "/empty/leaf", "/m"] {
        served.mkdir(d);
    }
    for i in 0..12 {
        served.mkdir(&format!("/m/{i}"));
        served.write(&format!("/m/{i}/small"), &bytes(i, 100 + i as usize));
        served.mkdir(&format!("/m/{i}/below"));
        served.write(&format!("/m/{i}/below/x"), b"x");
    }
    served.write("/in the root", b"root");
    served.write("/a/b/c/big", &bytes(1, 700_000));
    served.make("/a/none", Kind::Regular, b"", 0);
    let sparse = served.write("/a/sparse", b"at the front");
    served.write_at(sparse, 9 << 20, b"far behind");
    served.set("/a/sparse", SetAttr { size: Some((10 << 20) + 5), ..SetAttr::default() });
    served.make("/d/link", Kind::Symlink, b"../a/b/c/big", 0);
    served.make("/d/fifo", Kind::Fifo, b"", 0);
    served.make("/d/socket", Kind::Socket, b"", 0);
    served.write("/d/linked", b"two names");
    served.link("/d/linked", "/d/other name");
    served.make("/d/e/l", Kind::Symlink, b"x", 0);
    served.link("/d/e/l", "/d/e/l2");
    served.set_xattr("/a/b", b"user.of", b"directory");
    served.set_xattr("/a/b/c/big", b"user.mime", b"text/plain");
    served.set("/a/b", SetAttr { mode: Some(0o2755), ..SetAttr::default() });
    if is_root() {
        served.set("/a/b/c", SetAttr { uid: Some(1234), gid: Some(77), ..SetAttr::default() });
        served.set("/d/linked", SetAttr { uid: Some(99), mode: Some(0o4711), ..SetAttr::default() });
        served.make("/d/null", Kind::CharDevice, b"", 0x103);
        // user::rwx, user:5:r--, group::r-x, mask::r-x, other::---
        let mut acl = vec![2, 0, 0, 0];
        for (tag, perm, id) in
            [(1u16, 7u16, u32::MAX), (2, 4, 5), (4, 5, u32::MAX), (16, 5, u32::MAX), (32, 0, u32::MAX)]
        {
            acl.extend(tag.to_le_bytes());
            acl.extend(perm.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        served.set_xattr("/m/3", b"system.posix_acl_default", &acl);
        served.set_xattr("/m/3/small", b"system.posix_acl_access", &acl);
    }
    served.set_times("/a/b/c/big", 1_600_000_000, 123_456_789);
    served.set_times("/d/link", 1_500_000_000, 5);
    // Renamed: keys stay what they were, and the trees have them under their new names.
    served.rename("/m/1", "/m/one");
    served.rename("/m/2", "/m/two");
    served.rename("/d", "/dee");
    served.write("/m/gone", b"gone");
    served.unlink("/m/gone");
}

fn filled(islands: u16) -> Place {
    let place = Place::new(islands);
    let served = place.start();
    fill(&served);
    served.stop();
    place
}

/// Loses the states, rebuilds, and compares clients' view before and after; then the volume is used,
/// stopped and compared with its trees.
fn survives(islands: u16) {
    let place = filled(islands);
    let served = place.start();
    let before = served.dump();
    served.stop();
    let trees = place.united();
    assert_same(&before, &trees);
    place.lose_states();
    let summary = place.rebuild();
    assert_eq!((summary.adopted, summary.moved, summary.left_out_count, summary.rescued), (0, 0, 0, 0));
    assert_eq!(summary.not_laid, Vec::<String>::new());
    assert_eq!(summary.dirs as usize, before.values().filter(|t| t.kind == 'd').count());
    assert_eq!(summary.names as usize, before.values().filter(|t| t.kind != 'd').count());
    assert_same(&place.united(), &trees);
    place.check();
    let served = place.start();
    assert_same(&served.dump(), &before);
    go_on(&served);
    let after = served.dump();
    served.stop();
    place.check();
    assert_same(&place.united(), &after);
}

/// What a rebuilt volume must be able to do.
fn go_on(served: &Served) {
    served.mkdir("/m/one/new");
    served.write("/m/one/new/file", &bytes(5, 50_000));
    served.rename("/dee/other name", "/dee/third name");
    served.unlink("/dee/linked");
    let big = served.find("/a/b/c/big");
    served.write_at(big, 4_000, &bytes(6, 9_000));
    served.op(Op::Fsync { ino: big }, &[]).unwrap();
    let small = served.find("/m/5/small");
    served.write_at(small, 50, b"in the middle");
    for i in 0..40 {
        served.mkdir(&format!("/empty/leaf/{i}"));
    }
    served.rename("/m", "/em");
    served.unlink("/em/two/small");
}

#[test]
fn one_island_serves_the_same_tree_after_its_state_was_lost() {
    survives(1);
}

#[test]
fn four_islands_serve_the_same_tree_after_all_states_were_lost() {
    survives(4);
}

#[test]
fn ids_of_files_stay_and_no_id_is_given_twice() {
    let place = filled(4);
    let served = place.start();
    let paths: Vec<String> =
        served.dump().into_iter().filter(|(_, thing)| thing.kind != 'd').map(|(path, _)| path).collect();
    let before: Vec<Ino> = paths.iter().map(|path| served.find(path)).collect();
    let gone = served.write("/dee/e/later", b"");
    served.unlink("/dee/e/later");
    served.stop();
    place.lose_states();
    place.rebuild();
    let served = place.start();
    assert_eq!(paths.iter().map(|path| served.find(path)).collect::<Vec<_>>(), before);
    for i in 0..30 {
        let new = served.write(&format!("/dee/e/new{i}"), b"");
        assert!(!before.contains(&new) && new != gone, "{new} was given twice");
        assert!(new.0 & ((1 << Ino::COUNTER_BITS) - 1) > gone.0 & ((1 << Ino::COUNTER_BITS) - 1));
    }
    served.stop();
}

#[test]
fn files_put_into_trees_by_hand_are_taken_in_wherever_they_were_put() {
    let place = filled(4);
    let trees = place.united();
    // Into the directory's own tree, into other islands' trees, and a whole new folder.
    let holder = |path: &str| {
        place.islands().into_iter().find(|i| place.island(*i).join("tree").join(path).exists()).unwrap()
    };
    let right = holder("m/5/small");
    fs::write(place.island(right).join("tree/m/5/by hand"), b"right").unwrap();
    for island in place.islands() {
        let tree = place.island(island).join("tree");
        fs::write(tree.join(format!("root {island}")), bytes(u64::from(island), 5000)).unwrap();
        std::os::unix::fs::symlink("there", tree.join(format!("sym {island}"))).unwrap();
        fs::create_dir_all(tree.join(format!("new {island}/below"))).unwrap();
        fs::write(tree.join(format!("new {island}/below/f")), b"f").unwrap();
        fs::hard_link(tree.join(format!("new {island}/below/f")), tree.join(format!("new {island}/below/g")))
            .unwrap();
    }
    let wrong = place.islands().into_iter().find(|i| *i != right).unwrap();
    fs::create_dir_all(place.island(wrong).join("tree/m/5")).unwrap();
    fs::write(place.island(wrong).join("tree/m/5/wrong"), b"wrong").unwrap();
    // An editor that writes a new file over the old one.
    let edited = place.island(right).join("tree/m/5/small");
    fs::write(edited.with_extension("new"), b"edited").unwrap();
    fs::rename(edited.with_extension("new"), &edited).unwrap();
    place.lose_states();
    let summary = place.rebuild();
    assert_eq!((summary.left_out_count, summary.nameless), (0, 1), "{summary:?}");
    assert!(summary.adopted >= 15 && summary.moved >= 4, "{summary:?}");
    place.check();
    let united = place.united();
    assert_eq!(united.len(), trees.len() + 1 + 6 * 4 - 4 + 4 + 1, "{:?}", united.keys().collect::<Vec<_>>());
    let served = place.start();
    assert_same(&served.dump(), &united);
    let read = |path: &str| served.read(served.find(path), 1 << 20).unwrap();
    assert_eq!(read("/m/5/by hand"), b"right");
    assert_eq!(read("/m/5/wrong"), b"wrong");
    assert_eq!(read("/m/5/small"), b"edited");
    for island in place.islands() {
        assert_eq!(read(&format!("/root {island}")), bytes(u64::from(island), 5000));
        assert_eq!(
            served.find(&format!("/new {island}/below/f")),
            served.find(&format!("/new {island}/below/g"))
        );
    }
    served.unlink("/m/5/wrong");
    served.unlink("/root 2");
    served.stop();
    // What was moved has left its old place, and does not come back.
    let united = place.united();
    assert!(!united.contains_key("/m/5/wrong") && !united.contains_key("/root 2"));
    place.lose_states();
    let again = place.rebuild();
    assert_eq!((again.adopted, again.moved), (0, 0), "everything is in its place now");
    assert_same(&place.united(), &united);
}

#[test]
fn without_a_common_folder_what_is_misplaced_is_copied() {
    let place = filled(2);
    let owner = place.config.table.owner(atoll_core::Key(0));
    let other = u16::from(owner == IslandId(0));
    let wrong = place.island(other).join("tree/misplaced");
    fs::write(&wrong, bytes(3, 5_000_000)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&wrong).unwrap();
    file.set_len(30_000_000).unwrap();
    place.lose_states();
    let mut options = place.options();
    options.common = None;
    let summary = place.rebuild_with(&options).unwrap();
    assert_eq!((summary.moved, summary.left_out_count), (1, 0));
    let there = fs::metadata(place.island(owner.0).join("tree/misplaced")).unwrap();
    assert!(there.blocks() * 512 < 20_000_000, "its hole was filled");
    assert!(!wrong.exists());
    place.check();
    let served = place.start();
    let mut want = bytes(3, 5_000_000);
    want.resize(30_000_000, 0);
    assert_eq!(served.read(served.find("/misplaced"), 30_000_000).unwrap(), want);
    served.stop();
}

#[test]
fn of_two_different_files_of_one_name_the_owners_is_taken_and_the_other_stays() {
    let place = filled(4);
    let owner = place.config.table.owner(atoll_core::Key(0)).0;
    let other = (owner + 1) % 4;
    let stray = place.island(other).join("tree/in the root");
    fs::write(&stray, b"another").unwrap();
    let file_over_dir = place.island(owner).join("tree/m/5");
    let is_dir_there = file_over_dir.exists();
    place.lose_states();
    let summary = place.rebuild();
    assert_eq!(summary.left_out_count, 1);
    assert_eq!((summary.left_out[0].island.0, summary.left_out[0].why), (other, Why::Other));
    assert_eq!(summary.left_out[0].path, b"/in the root");
    assert_eq!(fs::read(&stray).unwrap(), b"another");
    assert_eq!(file_over_dir.exists(), is_dir_there);
    let served = place.start();
    assert_eq!(served.read(served.find("/in the root"), 100).unwrap(), b"root");
    served.stop();
    assert_eq!(fs::read(&stray).unwrap(), b"another", "what was not taken in is nobody's to remove");
}

#[test]
fn a_directory_on_its_way_is_found_in_lost_and_found() {
    let place = filled(1);
    let folder = place.island(0);
    fs::rename(folder.join("tree/a/b"), folder.join("limbo/d0000000000001234")).unwrap();
    place.lose_states();
    assert_eq!(place.rebuild().rescued, 1);
    let served = place.start();
    let big = served.find("/lost+found/d0000000000001234/c/big");
    assert_eq!(served.read(big, 700_000).unwrap(), bytes(1, 700_000));
    served.stop();
    place.check();
}

#[test]
fn what_was_there_is_set_aside_and_a_rebuild_of_a_good_volume_changes_nothing() {
    let place = filled(2);
    let served = place.start();
    let before = served.dump();
    served.stop();
    let old = fs::read(place.island(1).join("state.redb")).unwrap();
    assert_eq!(place.rebuild().set_aside, 1);
    assert_eq!(place.rebuild().set_aside, 2);
    for island in place.islands() {
        for name in ["state.redb", "view.redb", "log"] {
            for n in 1..=2 {
                assert!(place.island(island).join(format!("{name}.old-{n}")).exists(), "{name}.old-{n}");
            }
        }
    }
    assert_eq!(fs::read(place.island(1).join("state.redb.old-1")).unwrap(), old);
    let served = place.start();
    assert_same(&served.dump(), &before);
    served.stop();
}

#[test]
fn damaged_states_and_logs_are_no_obstacle() {
    let place = filled(2);
    let trees = place.united();
    for island in place.islands() {
        fs::write(place.island(island).join("state.redb"), b"nonsense").unwrap();
        fs::write(place.island(island).join("view.redb"), b"nonsense").unwrap();
        for entry in fs::read_dir(place.island(island).join("log")).unwrap() {
            fs::write(entry.unwrap().path(), [7; 1000]).unwrap();
        }
    }
    place.rebuild();
    let served = place.start();
    assert_same(&served.dump(), &trees);
    served.stop();
}

#[test]
fn a_volume_is_not_rebuilt_from_a_part_of_its_islands() {
    let place = filled(4);
    let folder = place.island(2);
    let disk = std::sync::Arc::new(atoll_disk::real::RealDisk::open(&folder).unwrap());
    let some = [(IslandId(2), disk)].into();
    let refused = atoll_rebuild::rebuild(&place.config, &some, &place.options(), &mut |_| {});
    match refused {
        Err(RebuildError::Incomplete { missing }) => {
            assert_eq!(missing, [IslandId(0), IslandId(1), IslandId(3)]);
        }
        other => panic!("{other:?}"),
    }
    assert!(folder.join("state.redb").exists() && !folder.join("state.redb.old-1").exists());
    fs::remove_dir_all(place.island(1).join("tree")).unwrap();
    let refused = place.rebuild_with(&place.options());
    assert!(matches!(refused, Err(RebuildError::NoTree { island: IslandId(1) })), "{refused:?}");
}
