//! States lost, trees left: what is served after a rebuild is what the trees had.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use atoll_core::{Encode, Ino, IslandId};
use atoll_posix::{Answer, Attr, Kind, Op, SetAttr};
use atoll_proto::{Inode, VolumeKind};
use atoll_rebuild::{RebuildError, Why};
use atoll_snapshot::Snapshot;
use atoll_state::RowKey;
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
    assert_eq!((summary.adopted, summary.pointers, summary.left_out_count, summary.rescued), (0, 0, 0, 0));
    assert_eq!(summary.not_laid, Vec::<String>::new());
    assert_eq!(summary.dirs as usize, before.values().filter(|t| t.kind == 'd').count());
    assert_eq!(summary.names as usize, before.values().filter(|t| t.kind != 'd').count());
    assert_same(&place.united(), &trees);
    place.check();
    place.audit();
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
    assert!(summary.adopted >= 15 && summary.pointers >= 4, "{summary:?}");
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
    assert_eq!((again.adopted, again.pointers > 0), (0, true), "nothing is new");
    assert_same(&place.united(), &united);
}

#[test]
fn what_lies_in_the_tree_of_another_island_is_taken_in_without_a_copy() {
    let place = filled(2);
    let owner = place.config.table.owner(atoll_core::Key(0));
    let other = u16::from(owner == IslandId(0));
    let misplaced = place.island(other).join("tree/misplaced");
    fs::write(&misplaced, bytes(3, 5_000_000)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&misplaced).unwrap();
    file.set_len(30_000_000).unwrap();
    // Until then the file system may count space that it only keeps ready.
    file.sync_all().unwrap();
    let before = fs::metadata(&misplaced).unwrap();
    place.lose_states();
    let summary = place.rebuild();
    assert_eq!((summary.adopted, summary.pointers, summary.left_out_count), (1, 1, 0));
    let after = fs::metadata(&misplaced).unwrap();
    assert_eq!((after.ino(), after.blocks()), (before.ino(), before.blocks()));
    assert!(!place.island(owner.0).join("tree/misplaced").exists());
    place.check();
    let served = place.start();
    let ino = served.find("/misplaced");
    assert_eq!(ino.minted_by(), IslandId(other));
    let mut want = bytes(3, 5_000_000);
    want.resize(30_000_000, 0);
    assert_eq!(served.read(ino, 30_000_000).unwrap(), want);
    served.stop();
}

/// Files whose names lie in directories of other islands, by requests. Gives back the first and its names.
fn spread(served: &Served) -> (Ino, Vec<String>) {
    let homes: Vec<IslandId> =
        (0..12).map(|i| served.write(&format!("/em/{i}"), &bytes(i, 3000)).minted_by()).collect();
    assert!(homes.iter().all(|home| *home == homes[0]), "one directory, one owner");
    let first = served.find("/em/0");
    let mut names = vec!["/em/0".to_owned()];
    for i in [0, 3, 4, 5, 6, 7] {
        names.push(format!("/m/{i}/from afar"));
        served.link("/em/0", names.last().unwrap());
        // A directory goes to the island that has most of its files: of some that stays who it was.
        for more in 0..i % 4 {
            served.write(&format!("/m/{i}/more {more}"), b"its own");
        }
    }
    let away: std::collections::BTreeSet<IslandId> =
        [0, 3, 4, 5, 6, 7].map(|i| served.find(&format!("/m/{i}/small")).minted_by()).into();
    assert!(away.len() > 1, "several islands own these: {away:?}");
    // Moved away with all its names, and over another's file.
    served.link("/em/1", "/em/second");
    served.rename("/em/1", "/m/3/one");
    served.rename("/em/second", "/m/4/second");
    served.rename("/em/2", "/m/5/small");
    served.rename("/m/6/small", "/em/small");
    (first, names)
}

#[test]
fn a_file_with_names_in_directories_of_several_islands_comes_back_as_one() {
    let place = filled(4);
    let served = place.start();
    served.mkdir("/em");
    let (first, mut names) = spread(&served);
    let before = served.dump();
    let inos = |served: &Served| -> Vec<Ino> {
        let files = before.iter().filter(|(_, thing)| thing.kind != 'd');
        files.map(|(path, _)| served.find(path)).collect()
    };
    let ids = inos(&served);
    served.stop();
    place.check();
    let trees = place.united();
    assert_same(&trees, &before);
    let mut pointers = 0;
    for round in 0..2 {
        place.lose_states();
        let summary = place.rebuild();
        assert_eq!((summary.adopted, summary.left_out_count, summary.nameless), (0, 0, 0), "{round}");
        assert_eq!(summary.not_laid, Vec::<String>::new());
        assert_eq!(summary.names as usize, before.values().filter(|t| t.kind != 'd').count());
        // How many lead elsewhere depends on the volume's seed.
        assert!(summary.pointers > 0, "{summary:?}");
        assert!(round == 0 || summary.pointers == pointers, "{summary:?}");
        pointers = summary.pointers;
        place.check();
        place.audit();
        assert_same(&place.united(), &trees);
    }
    let served = place.start();
    assert_same(&served.dump(), &before);
    assert_eq!(inos(&served), ids);
    for name in &names {
        assert_eq!(served.find(name), first, "{name}");
    }
    // All of them go by themselves, whoever has them, and the file with the last.
    let last = names.pop().unwrap();
    for (gone, name) in names.iter().enumerate() {
        served.unlink(name);
        let Answer::Attr { attr } = served.op(Op::GetAttr { ino: first }, &[]).unwrap().0 else { panic!() };
        assert_eq!(attr.nlink as usize, names.len() - gone);
    }
    assert_eq!(served.read(served.find(&last), 3000).unwrap(), bytes(0, 3000));
    served.unlink(&last);
    let after = served.dump();
    assert!(after.keys().all(|path| !path.ends_with("from afar")));
    served.stop();
    place.check();
    assert_same(&place.united(), &after);
}

#[test]
fn of_a_copy_of_the_trees_alone_names_elsewhere_come_back_too() {
    let place = filled(4);
    let served = place.start();
    served.mkdir("/em");
    let (_, names) = spread(&served);
    let before = served.dump();
    served.stop();
    place.lose_states();
    for island in place.islands() {
        fs::remove_dir_all(place.island(island).join("bodies")).unwrap();
    }
    let summary = place.rebuild();
    assert_eq!((summary.adopted, summary.left_out_count), (summary.files, 0));
    place.check();
    let served = place.start();
    assert_same(&served.dump(), &before);
    let first = served.find("/em/0");
    assert!(names.iter().all(|name| served.find(name) == first));
    served.stop();
    assert_same(&place.united(), &before);
}

#[test]
fn a_tree_is_as_its_state_says_also_where_something_was_taken_away() {
    let place = filled(2);
    let owner = place.config.table.owner(atoll_core::Key(0)).0;
    // Nothing but the other island's files is in it: it goes there, and leaves the first.
    fs::create_dir(place.island(owner).join("tree/leaves")).unwrap();
    let other = place.island(1 - owner).join("tree/leaves");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), b"of the other").unwrap();
    // A copy goes, and its other name stays.
    fs::write(place.island(1 - owner).join("tree/in the root"), b"root").unwrap();
    let copy = place.island(1 - owner).join("tree/in the root");
    fs::hard_link(&copy, other.join("other name")).unwrap();
    place.lose_states();
    assert_eq!(place.rebuild().left_out_count, 0);
    assert!(!place.island(owner).join("tree/leaves").exists() && !copy.exists());
    place.check();
    place.audit();
    let served = place.start();
    assert_eq!(served.read(served.find("/leaves/other name"), 10).unwrap(), b"root");
    served.stop();
}

#[test]
fn a_link_made_by_hand_in_a_directory_of_another_island_is_a_name_more() {
    let place = filled(4);
    let served = place.start();
    for i in (0..12).filter(|i| ![1, 2].contains(i)) {
        served.write(&format!("/m/{i}/more"), b"its own");
    }
    served.stop();
    let holder = |path: &str| {
        place.islands().into_iter().find(|i| place.island(*i).join("tree").join(path).exists()).unwrap()
    };
    let home = holder("m/5/small");
    let other = (0..12).filter(|i| ![1, 2].contains(i)).find(|i| holder(&format!("m/{i}/small")) != home);
    let other = other.expect("a directory of another island");
    let tree = place.island(home).join("tree");
    fs::create_dir_all(tree.join(format!("m/{other}"))).unwrap();
    fs::hard_link(tree.join("m/5/small"), tree.join(format!("m/{other}/by hand"))).unwrap();
    // And one whose name is another's: only that name is left out.
    fs::hard_link(tree.join("m/5/small"), tree.join(format!("m/{other}/small"))).unwrap();
    place.lose_states();
    let summary = place.rebuild();
    assert_eq!((summary.adopted, summary.pointers, summary.left_out_count), (0, 1, 1), "{summary:?}");
    assert_eq!(summary.left_out[0].path, format!("/m/{other}/small").into_bytes());
    place.check();
    place.united();
    let served = place.start();
    let its_own = served.find(&format!("/m/{other}/small"));
    assert_eq!(served.read(its_own, 1000).unwrap(), bytes(other, 100 + other as usize));
    assert_eq!(served.find(&format!("/m/{other}/by hand")), served.find("/m/5/small"));
    served.unlink("/m/5/small");
    let left = served.find(&format!("/m/{other}/by hand"));
    assert_eq!(served.read(left, 1000).unwrap(), bytes(5, 105));
    served.stop();
    place.check();
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

#[test]
fn a_site_of_a_wide_volume_is_not_rebuilt() {
    let change = |key: RowKey, row: Vec<u8>| {
        let place = filled(2);
        let disk = atoll_disk::real::RealDisk::open(&place.island(1)).unwrap();
        let state = Snapshot::open(&disk, b"state.redb", 1 << 20).unwrap();
        state.commit([(key.to_bytes(), Some(row))]).unwrap();
        place
    };
    let refused = |place: &common::Place| {
        let refused = place.rebuild_with(&place.options());
        let Err(RebuildError::Site { island }) = refused else { panic!("{refused:?}") };
        for island in place.islands() {
            assert!(place.island(island).join("state.redb").exists());
            assert!(!place.island(island).join("state.redb.old-1").exists());
        }
        island
    };
    let place = change(RowKey::Side(b'w', 7), b"row".to_vec());
    assert_eq!(refused(&place), IslandId(1));
    // The bytes are beside one row of very many.
    let ino = Ino::mint(IslandId(1), 1 << 30);
    let attr = Attr::blank(ino, Kind::Regular);
    let row = Inode {
        attr,
        target: None,
        has_xattrs: false,
        has_acl: false,
        moves: 0,
        orphan_of: Vec::new(),
        beside: Some("state".into()),
        is_absent: true,
    };
    let place = change(RowKey::Inode(ino), row.to_vec());
    assert_eq!(refused(&place), IslandId(1));
    // Its state is lost, and the volume is known as wide.
    let mut place = filled(2);
    place.lose_states();
    place.config.kind = VolumeKind::Wide;
    let refused = place.rebuild_with(&place.options());
    assert!(matches!(refused, Err(RebuildError::Site { island: IslandId(0) })), "{refused:?}");
}
