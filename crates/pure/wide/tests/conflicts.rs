//! What two sites do to the same names without knowing of each other, and what idle sites that hear of both show then: row by row, in
//! every order. Also the sequences of `docs/design/023-wide.md`, "From states to rows".

mod receiver;
mod replica;
mod site;

use std::collections::BTreeSet;

use atoll_causal::{AttrPart, Dot, FileId, FilePart, HybridStamp, Lww, Writer, XattrName, XattrValue};
use atoll_core::{Ino, SessionId};
use atoll_posix::{Kind, Op, RenameMode, SetAttr};
use atoll_wide::author::{Bundle, BundleChange};
use atoll_wide::foreign::{OBJECTS_MAX, Waits};
use atoll_wide::rows::{FILES, FeedRow, NEAR, root_head};
use atoll_wide::site::Site as Machine;
use bytes::Bytes;
use receiver::{Receiver, waits};
use replica::{Rows, WRITER};
use site::{Memory, Site, named, opened, rows_for_another};

const ROOT: Ino = Ino::ROOT;

fn base() -> Site {
    let author = opened(WRITER, []).unwrap();
    Site::new(Memory::Whole, &[SessionId(1)], false, Some(Box::new(author)))
}

/// A site that goes on alone from what another one has.
fn branch(base: &Site, writer: u64) -> Site {
    let mut site = base.clone();
    let author = opened(Writer(writer), rows_for_another(&site)).unwrap();
    site.set_beside(author);
    site
}

fn bundles(site: &Site, after: u64) -> Vec<Bundle> {
    site.beside::<Machine>().author().bundles(after, u64::MAX).unwrap().cloned().collect()
}

fn rename(from: (Ino, &str), to: (Ino, &str)) -> Op {
    let (dir, name, new_dir, new_name) = (from.0, named(from.1), to.0, named(to.1));
    Op::Rename { dir, name, new_dir, new_name, mode: RenameMode::Replace, meant: None, new_meant: None }
}

fn unlink(dir: Ino, name: &str) -> Op {
    Op::Unlink { dir, name: named(name) }
}

fn rmdir(dir: Ino, name: &str) -> Op {
    Op::Rmdir { dir, name: named(name), meant: None }
}

fn chmod(ino: Ino, mode: u32) -> Op {
    Op::SetAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }
}

fn file(site: &mut Site, dir: Ino, name: &str, mode: u32) -> Ino {
    let ino = site.create(dir, name, Kind::Regular, b"");
    site.does(chmod(ino, mode), b"");
    ino
}

/// Paths without the time in marks: `a.~s5-TIME` is `a.~s5`.
fn paths(receiver: &mut Receiver) -> Vec<String> {
    let plain = |path: String| match path.find(".~s") {
        Some(at) => {
            let end = at + path[at..].find('-').unwrap();
            format!("{}{}", &path[..end], &path[end + "-20260101-000000".len()..])
        }
        None => path,
    };
    receiver.tree().into_keys().map(plain).collect()
}

/// One site does one thing, another one does the other thing. What idle sites show: the same, in whatever order the bundles come.
fn both<T, U, V>(
    prepare: impl Fn(&mut Site) -> T,
    one: impl Fn(&mut Site) -> U,
    other: impl Fn(&mut Site) -> V,
) -> (Receiver, Vec<String>) {
    let mut first = base();
    prepare(&mut first);
    let upto = first.state().seq();
    let (mut a, mut b) = (branch(&first, 5), branch(&first, 6));
    one(&mut a);
    // Later, so that it is the later one of two.
    for _ in 0..3 {
        b.does(chmod(ROOT, 0o755), b"");
    }
    other(&mut b);
    let made = [bundles(&a, upto), bundles(&b, upto)];
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    while orders.iter().any(|order| order.len() < made[0].len() + made[1].len()) {
        let longer = |order: Vec<usize>| {
            let count = |at: usize| order.iter().filter(|other| **other == at).count();
            let next: Vec<usize> = (0..2).filter(|at| count(*at) < made[*at].len()).collect();
            next.into_iter()
                .map(move |at| order.iter().copied().chain([at]).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        orders = orders.into_iter().flat_map(longer).collect();
        assert!(orders.len() < 2_000, "too many orders");
    }
    let mut shown = BTreeSet::new();
    let mut last = None;
    for order in orders {
        let mut receiver = Receiver::new(false);
        for bundle in bundles(&first, 0) {
            assert!(receiver.take(&bundle.changes).is_empty());
        }
        let mut next = [0, 0];
        for at in order {
            assert!(receiver.take(&made[at][next[at]].changes).is_empty());
            next[at] += 1;
            receiver.check();
            assert_eq!(receiver.tree(), receiver.plain().tree());
        }
        shown.insert(paths(&mut receiver));
        last = Some(receiver);
    }
    assert_eq!(shown.len(), 1, "{shown:?}");
    (last.unwrap(), shown.pop_first().unwrap())
}

fn rows_of(receiver: &Receiver, table: u8) -> usize {
    receiver.sides.keys().filter(|(other, _)| *other == table).count()
}

// ------------------------------------------------------------------ two sites

#[test]
fn of_two_files_of_one_name_the_later_keeps_it() {
    let (receiver, shown) =
        both(|_| {}, |site| file(site, ROOT, "a", 0o600), |site| file(site, ROOT, "a", 0o640));
    assert_eq!(shown, ["/a", "/a.~s5"]);
    assert_eq!(rows_of(&receiver, NEAR), 1, "the one beside the name");
}

#[test]
fn two_equal_files_of_one_name_are_shown_as_one() {
    let (receiver, shown) =
        both(|_| {}, |site| file(site, ROOT, "a", 0o600), |site| file(site, ROOT, "a", 0o600));
    assert_eq!(shown, ["/a"]);
    assert_eq!((rows_of(&receiver, NEAR), rows_of(&receiver, FILES)), (1, 2));
}

#[test]
fn two_directories_of_one_name_are_one_with_the_files_of_both() {
    let make = |inside: &'static str| {
        move |site: &mut Site| {
            let dir = site.mkdir(ROOT, "d");
            site.create(dir, inside, Kind::Regular, b"");
            site.create(dir, "x", Kind::Symlink, inside.as_bytes());
            let below = site.mkdir(dir, "below");
            site.create(below, inside, Kind::Regular, b"");
        }
    };
    let (receiver, shown) = both(|_| {}, make("1"), make("2"));
    assert_eq!(shown, ["/d", "/d/1", "/d/2", "/d/below", "/d/below/1", "/d/below/2", "/d/x", "/d/x.~s5"]);
    assert_eq!(rows_of(&receiver, NEAR), 3, "the second ones of d and below, and x beside x");
}

#[test]
fn a_directory_keeps_its_name_against_a_file() {
    let (_, shown) = both(|_| {}, |site| site.mkdir(ROOT, "a"), |site| file(site, ROOT, "a", 0o600));
    assert_eq!(shown, ["/a", "/a.~s6"]);
}

#[test]
fn of_two_renames_of_one_file_the_later_counts() {
    let prepare = |site: &mut Site| file(site, ROOT, "a", 0o600);
    let (_, shown) = both(
        prepare,
        |site| site.does(rename((ROOT, "a"), (ROOT, "b")), b""),
        |site| site.does(rename((ROOT, "a"), (ROOT, "c")), b""),
    );
    assert_eq!(shown, ["/c"]);
}

#[test]
fn a_rename_counts_against_a_removal() {
    let prepare = |site: &mut Site| file(site, ROOT, "a", 0o600);
    let (receiver, shown) = both(
        prepare,
        |site| site.does(rename((ROOT, "a"), (ROOT, "b")), b""),
        |site| site.does(unlink(ROOT, "a"), b""),
    );
    assert_eq!(shown, ["/b"]);
    assert_eq!(rows_of(&receiver, NEAR), 0);
}

#[test]
fn a_directory_in_which_something_was_made_is_not_removed() {
    let prepare = |site: &mut Site| site.mkdir(ROOT, "d");
    let dir = |site: &Site| site.state().entry(ROOT, &named("d")).unwrap().unwrap().ino;
    let (receiver, shown) = both(
        prepare,
        |site| site.does(rmdir(ROOT, "d"), b""),
        |site| {
            let dir = dir(site);
            file(site, dir, "f", 0o600);
        },
    );
    assert_eq!(shown, ["/d", "/d/f"]);
    assert_eq!(rows_of(&receiver, NEAR), 0);
}

/// Found by `wide_sites` 940.
#[test]
fn a_directory_into_which_another_one_was_moved_is_not_removed() {
    let prepare = |site: &mut Site| {
        let dir = site.mkdir(ROOT, "a");
        file(site, dir, "f", 0o600);
        site.mkdir(ROOT, "d")
    };
    let dir = |site: &Site| site.state().entry(ROOT, &named("d")).unwrap().unwrap().ino;
    let (receiver, shown) = both(
        prepare,
        |site| site.does(rmdir(ROOT, "d"), b""),
        |site| site.does(rename((ROOT, "a"), (dir(site), "a")), b""),
    );
    assert_eq!(shown, ["/d", "/d/a", "/d/a/f"]);
    assert_eq!(rows_of(&receiver, NEAR), 0);
}

#[test]
fn a_directory_in_which_another_one_was_made_is_not_removed() {
    let prepare = |site: &mut Site| site.mkdir(ROOT, "d");
    let (_, shown) = both(
        prepare,
        |site| site.does(rmdir(ROOT, "d"), b""),
        |site| {
            let dir = site.state().entry(ROOT, &named("d")).unwrap().unwrap().ino;
            site.mkdir(dir, "e");
        },
    );
    assert_eq!(shown, ["/d", "/d/e"]);
}

#[test]
fn a_removed_directory_deep_below_removed_ones_is_shown_again_with_all_above_it() {
    let prepare = |site: &mut Site| {
        let above = site.mkdir(ROOT, "d");
        site.mkdir(above, "e");
    };
    let dir = |site: &Site| site.state().entry(ROOT, &named("d")).unwrap().unwrap().ino;
    let (_, shown) = both(
        prepare,
        |site| {
            let above = dir(site);
            site.does(rmdir(above, "e"), b"");
            site.does(rmdir(ROOT, "d"), b"");
        },
        |site| {
            let above = dir(site);
            let below = site.state().entry(above, &named("e")).unwrap().unwrap().ino;
            file(site, below, "f", 0o600);
        },
    );
    assert_eq!(shown, ["/d", "/d/e", "/d/e/f"]);
}

#[test]
fn of_two_moves_of_directories_into_each_other_the_later_has_no_effect() {
    let prepare = |site: &mut Site| {
        for name in ["a", "b"] {
            let dir = site.mkdir(ROOT, name);
            file(site, dir, "f", 0o600);
        }
    };
    let into = |site: &mut Site, from: &str, to: &str| {
        let to = site.state().entry(ROOT, &named(to)).unwrap().unwrap().ino;
        site.does(rename((ROOT, from), (to, from)), b"");
    };
    let (receiver, shown) = both(prepare, |site| into(site, "a", "b"), |site| into(site, "b", "a"));
    assert_eq!(shown, ["/b", "/b/a", "/b/a/f", "/b/f"]);
    assert_eq!(receiver.spine.lost().count(), 1);
}

#[test]
fn of_two_moves_of_one_directory_the_later_counts() {
    let prepare = |site: &mut Site| {
        let dir = site.mkdir(ROOT, "d");
        file(site, dir, "f", 0o600);
        ["x", "y"].map(|name| site.mkdir(ROOT, name))
    };
    let into = |site: &mut Site, to: &str| {
        let to = site.state().entry(ROOT, &named(to)).unwrap().unwrap().ino;
        site.does(rename((ROOT, "d"), (to, "d")), b"");
    };
    let (_, shown) = both(prepare, |site| into(site, "x"), |site| into(site, "y"));
    assert_eq!(shown, ["/x", "/y", "/y/d", "/y/d/f"]);
}

#[test]
fn two_directories_that_get_one_name_are_one_and_part_again() {
    let prepare = |site: &mut Site| {
        for name in ["a", "b"] {
            let dir = site.mkdir(ROOT, name);
            file(site, dir, name, 0o600);
        }
    };
    let (_, shown) = both(
        prepare,
        |site| site.does(rename((ROOT, "a"), (ROOT, "c")), b""),
        |site| site.does(rename((ROOT, "b"), (ROOT, "c")), b""),
    );
    assert_eq!(shown, ["/c", "/c/a", "/c/b"]);
    let (receiver, shown) = both(
        prepare,
        |site| {
            site.does(rename((ROOT, "a"), (ROOT, "c")), b"");
            site.does(rename((ROOT, "c"), (ROOT, "e")), b"");
        },
        |site| site.does(rename((ROOT, "b"), (ROOT, "c")), b""),
    );
    assert_eq!(shown, ["/c", "/c/b", "/e", "/e/a"]);
    assert_eq!(rows_of(&receiver, NEAR), 0);
}

#[test]
fn a_file_that_is_made_in_a_directory_that_another_site_moves_is_there() {
    let prepare = |site: &mut Site| ["d", "x"].map(|name| site.mkdir(ROOT, name));
    let dir = |site: &Site, name: &str| site.state().entry(ROOT, &named(name)).unwrap().unwrap().ino;
    let (_, shown) = both(
        prepare,
        |site| {
            let to = dir(site, "x");
            site.does(rename((ROOT, "d"), (to, "e")), b"");
        },
        |site| {
            let at = dir(site, "d");
            file(site, at, "f", 0o600);
        },
    );
    assert_eq!(shown, ["/x", "/x/e", "/x/e/f"]);
}

#[test]
fn a_file_with_a_second_name_keeps_it_when_another_site_removes_the_first() {
    let prepare = |site: &mut Site| file(site, ROOT, "a", 0o600);
    let (_, shown) = both(
        prepare,
        |site| site.does(unlink(ROOT, "a"), b""),
        |site| {
            let ino = site.state().entry(ROOT, &named("a")).unwrap().unwrap().ino;
            site.does(Op::Link { ino, dir: ROOT, name: named("b") }, b"");
        },
    );
    assert_eq!(shown, ["/b"]);
}

// ------------------------------------------------------------------ sequences

/// A site with what these bundles have made.
fn receiver(made: &[Bundle]) -> Receiver {
    let mut receiver = Receiver::new(false);
    made.iter().for_each(|bundle| assert!(receiver.take(&bundle.changes).is_empty()));
    receiver
}

fn number(receiver: &Receiver, dir: Ino, name: &str) -> Ino {
    receiver.state.entry(dir, &named(name)).unwrap().expect("it is there").ino
}

#[test]
fn who_has_a_directory_open_stays_in_it_when_another_one_becomes_one_with_it() {
    let first = base();
    let (mut a, mut b) = (branch(&first, 5), branch(&first, 6));
    let dir = a.mkdir(ROOT, "d");
    file(&mut a, dir, "1", 0o600);
    // Born later, so that it is not the first of the two.
    file(&mut b, ROOT, "x", 0o600);
    let dir = b.mkdir(ROOT, "d");
    file(&mut b, dir, "2", 0o600);
    for (one, other) in [(&a, &b), (&b, &a)] {
        let mut receiver = receiver(&bundles(one, 0));
        let there = number(&receiver, ROOT, "d");
        bundles(other, 0).iter().for_each(|bundle| assert!(receiver.take(&bundle.changes).is_empty()));
        assert_eq!(number(&receiver, ROOT, "d"), there, "whichever is the first of them");
        receiver.check();
        assert_eq!(receiver.tree().into_keys().collect::<Vec<_>>(), ["/d", "/d/1", "/d/2", "/x"]);
    }
}

#[test]
fn the_directory_that_keeps_the_name_keeps_the_number_when_another_one_leaves() {
    let mut first = base();
    for name in ["a", "b"] {
        let dir = first.mkdir(ROOT, name);
        file(&mut first, dir, name, 0o600);
    }
    let upto = first.state().seq();
    let (mut a, mut b) = (branch(&first, 5), branch(&first, 6));
    a.does(rename((ROOT, "a"), (ROOT, "c")), b"");
    b.does(rename((ROOT, "b"), (ROOT, "c")), b"");
    let mut receiver = receiver(&bundles(&first, 0));
    let (own, other) = (number(&receiver, ROOT, "a"), number(&receiver, ROOT, "b"));
    for bundle in bundles(&b, upto).iter().chain(&bundles(&a, upto)) {
        assert!(receiver.take(&bundle.changes).is_empty());
    }
    assert_eq!(number(&receiver, ROOT, "c"), other, "it had the name first");
    assert_eq!(receiver.state.dir(own), Ok(None), "the other number is gone");
    let upto = a.state().seq();
    a.does(rename((ROOT, "c"), (ROOT, "e")), b"");
    for bundle in bundles(&a, upto) {
        assert!(receiver.take(&bundle.changes).is_empty());
    }
    receiver.check();
    assert_eq!(number(&receiver, ROOT, "c"), other);
    assert!(![own, other].contains(&number(&receiver, ROOT, "e")), "numbers are not given again");
    assert_eq!(receiver.tree().into_keys().collect::<Vec<_>>(), ["/c", "/c/b", "/e", "/e/a"]);
}

#[test]
fn a_file_whose_name_another_one_takes_keeps_its_number() {
    let first = base();
    let (mut a, mut b) = (branch(&first, 5), branch(&first, 6));
    file(&mut a, ROOT, "a", 0o600);
    file(&mut b, ROOT, "x", 0o600);
    file(&mut b, ROOT, "a", 0o640);
    let mut receiver = receiver(&bundles(&a, 0));
    let had = number(&receiver, ROOT, "a");
    bundles(&b, 0).iter().for_each(|bundle| assert!(receiver.take(&bundle.changes).is_empty()));
    assert_ne!(number(&receiver, ROOT, "a"), had);
    let beside = receiver.tree().into_keys().find(|path| path.starts_with("/a.~s5")).unwrap();
    assert_eq!(number(&receiver, ROOT, &beside[1..]), had);
}

#[test]
fn a_directory_that_comes_with_its_move_has_its_birth_as_base() {
    let mut first = base();
    let (above, dir) = (first.mkdir(ROOT, "above"), first.mkdir(ROOT, "d"));
    first.does(rename((ROOT, "d"), (above, "e")), b"");
    first.mkdir(dir, "below");
    let all: Vec<BundleChange> = bundles(&first, 0).into_iter().flat_map(|bundle| bundle.changes).collect();
    let mut receiver = Receiver::new(false);
    assert!(receiver.take(&all).is_empty());
    receiver.check();
    assert_eq!(receiver.tree().into_keys().collect::<Vec<_>>(), ["/above", "/above/e", "/above/e/below"]);
}

#[test]
fn a_file_that_comes_before_its_directory_is_shown_when_that_comes() {
    let mut first = base();
    let dir = first.mkdir(ROOT, "d");
    let upto = first.state().seq();
    file(&mut first, dir, "f", 0o600);
    let made = bundles(&first, upto);
    let mut receiver = Receiver::new(false);
    let rows = Rows::of(&first);
    let (id, state) = rows.files.iter().next().map(|(id, file)| (*id, file.state.clone())).unwrap();
    let born = BundleChange::FileBorn { id, state: Box::new(state) };
    assert!(receiver.take(&[born]).is_empty());
    receiver.check();
    assert_eq!((receiver.tree().len(), rows_of(&receiver, NEAR)), (0, 1));
    let wants = receiver.take(&made[0].changes);
    assert_eq!(wants.len(), 1, "of the directory nothing is known: {wants:?}");
    bundles(&first, 0).iter().for_each(|bundle| assert!(receiver.take(&bundle.changes).is_empty()));
    receiver.check();
    assert_eq!(receiver.tree().into_keys().collect::<Vec<_>>(), ["/d", "/d/f"]);
    assert_eq!(rows_of(&receiver, NEAR), 0);
}

// ---------------------------------------------------------------------- bounds

#[test]
fn a_change_that_does_not_fit_its_object_is_refused() {
    let mut first = base();
    first.mkdir(ROOT, "d");
    file(&mut first, ROOT, "f", 0o600);
    let mut receiver = receiver(&bundles(&first, 0));
    let (tree, seq) = (receiver.tree(), receiver.state.seq());
    let rows = Rows::of(&first);
    let (file, state) = rows.files.iter().next().map(|(id, file)| (*id, file.state.clone())).unwrap();
    let (dir, head) = rows.dirs.iter().next_back().map(|(id, dir)| (*id, dir.head.clone())).unwrap();
    assert_ne!(dir, FileId::ROOT);
    let dot = Dot { writer: Writer(9), n: 1 };
    let orphan = FileId(77);
    let mut own_parent = head.clone();
    own_parent.birth.parent = orphan;
    let bad = [
        BundleChange::FileBorn { id: dir, state: Box::new(state.clone()) },
        BundleChange::FileBorn { id: FileId::ROOT, state: Box::new(state.clone()) },
        BundleChange::FileChanged { id: dir, change: state.change(dot, Vec::new()) },
        BundleChange::DirBorn { id: file, head: Box::new(head.clone()) },
        BundleChange::DirChanged { id: file, change: head.change(dot, Vec::new()) },
        BundleChange::DirBorn { id: orphan, head: Box::new(own_parent) },
    ];
    for (nth, change) in bad.iter().enumerate() {
        assert_eq!(receiver.take(std::slice::from_ref(change)), [], "{change:?}");
        assert_eq!(receiver.refused, nth + 1, "{change:?}");
    }
    assert_eq!((receiver.tree(), receiver.state.seq()), (tree, seq));
}

#[test]
fn attributes_that_no_island_stores_are_left_out() {
    let mut first = base();
    file(&mut first, ROOT, "f", 0o600);
    let rows = Rows::of(&first);
    let (id, mut state) = rows.files.iter().next().map(|(id, file)| (*id, file.state.clone())).unwrap();
    let stamp = HybridStamp { time_us: 1 << 60, writer: Writer(9) };
    let dot = Dot { writer: Writer(9), n: 1 };
    let mut parts = Vec::new();
    for name in [&b"system.posix_acl_access"[..], b"system.posix_acl_default", b"other.x", b"user.x"] {
        let name = XattrName::new(Bytes::from_static(name)).unwrap();
        let value = XattrValue::new(Bytes::from_static(b"no ACL")).unwrap();
        let part = state.attrs.set_xattr(name, Some(Lww::new(stamp, value)));
        parts.push(FilePart::Attr { part });
    }
    let part = AttrPart::Mode { to: Lww::new(stamp, u32::MAX) };
    parts.push(FilePart::Attr { part });
    let change = state.change(dot, parts);
    state.apply(&change);
    let mut receiver = receiver(&bundles(&first, 0));
    assert!(receiver.take(&[BundleChange::FileChanged { id, change }]).is_empty());
    receiver.check();
    let tree = receiver.tree();
    assert_eq!(tree["/f"].attrs.0, 0o7777);
    assert_eq!(tree["/f"].xattrs, [(b"user.x".to_vec(), b"no ACL".to_vec())]);
}

#[test]
fn more_changes_than_fit_into_a_record_are_not_taken() {
    let born = BundleChange::DirBorn { id: FileId(1), head: Box::new(root_head(0, 0, 0)) };
    let receiver = Receiver::new(false);
    let changes = vec![born; OBJECTS_MAX + 1];
    assert_eq!(waits(&receiver.state, &receiver.spine, &changes), Waits::TooMany);
}

#[test]
fn a_file_with_bytes_that_no_version_has_does_not_go() {
    let mut first = base();
    let ino = file(&mut first, ROOT, "f", 0o600);
    let mut other = branch(&first, 5);
    let upto = other.state().seq();
    first.does(Op::Write { ino, offset: 0, append: false, kill_set_id: false }, b"bytes");
    other.does(unlink(ROOT, "f"), b"");
    let made = bundles(&other, upto);
    let spine = first.beside::<Machine>().author().spine();
    let file = made[0].changes.iter().find_map(|change| match change.object() {
        FeedRow::File { id } => Some(id),
        _ => None,
    });
    let files = file.into_iter().collect();
    assert_eq!(waits(first.state(), spine, &made[0].changes), Waits::Version(ino, files));
}

/// How often names are looked up when the first of so many changes that follow each other, which are in turns in so many directories that
/// are shown as one.
fn looked_up(names: usize, dirs: usize) -> u64 {
    let mut sites: Vec<(Site, Ino)> = (0..dirs)
        .map(|at| {
            let author = opened(Writer(11 + at as u64), []).unwrap();
            let mut site = Site::new(Memory::Whole, &[SessionId(1)], false, Some(Box::new(author)));
            let dir = site.mkdir(ROOT, "d");
            (site, dir)
        })
        .collect();
    let mut first = None;
    for nth in 1..=names {
        let number = if nth == 1 { String::new() } else { format!("-{nth}") };
        let (site, dir) = &mut sites[(nth - 1) % dirs];
        let made = site.create(*dir, &format!("x.~s-20240101-000000{number}"), Kind::Regular, b"");
        first = first.or(Some(made));
    }
    let mut receiver = Receiver::new(false);
    for bundle in sites.iter().flat_map(|(site, _)| bundles(site, 0)) {
        receiver.take(&bundle.changes);
    }
    let site = &mut sites[0].0;
    let before = site.state().seq();
    site.does(chmod(first.unwrap(), 0o600), b"");
    let mut looked_up = 0;
    let changed = bundles(site, before).remove(0);
    receiver.take_with(&changed.changes, |_, decision| looked_up = decision.looked_up);
    receiver.check();
    assert_eq!(receiver.tree().len(), 1 + names);
    looked_up
}

/// Users may give such names, and something may be shown beside each of them.
#[test]
fn names_that_follow_each_other_are_gone_through_once() {
    for dirs in [1, 3] {
        let [few, many] = [60, 240].map(|names| looked_up(names, dirs));
        assert!(many > 240 && many <= 4 * few, "{few} for 60 names, {many} for 240, in {dirs} directories");
    }
}
