//! Each thing that can happen at a site, as it is written down: which object changes, how, and what the rows say then.

mod replica;
mod site;

use atoll_causal::{
    AttrPart, Context, DirChange, DirHead, DirPart, Dot, FileChange, FileId, FilePart, FileState,
    HybridStamp, LinkPlace, Lww, Writer, XattrName,
};
use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Decode, Encode, Ino, Name, SessionId};
use atoll_posix::{Caller, Errno, Kind, Op, RenameMode, SetAttr, XattrMode, acl};
use atoll_proto::RowChange;
use atoll_spine::{SpineMove, SpinePlace};
use atoll_wide::author::{Bundle, BundleChange};
use atoll_wide::rows::{
    DIRS, DirBeside, DirRow, FILES, FeedPlace, FileBeside, FileRow, WRITERS, WriterRow, root_head,
};
use atoll_wide::site::Site as Machine;
use bytes::Bytes;
use replica::{Replica, Rows, WRITER, reopened};
use site::{Memory, Site, named, opened};

const ROOT: Ino = Ino::ROOT;

/// A site with one client that mounts it.
fn site() -> Site {
    let author = opened(WRITER, []).unwrap();
    Site::new(Memory::Whole, &[SessionId(1)], true, Some(Box::new(author)))
}

fn bundles(site: &Site, after: u64) -> Vec<Bundle> {
    let bundles = site.beside::<Machine>().author().bundles(after, site.state().seq());
    bundles.expect("all of it is in memory").cloned().collect()
}

/// What an operation of the superuser changes.
fn made(site: &mut Site, op: Op, data: &'static [u8]) -> Vec<BundleChange> {
    let after = site.state().seq();
    site.does(op, data);
    let mut bundles = bundles(site, after);
    assert!(bundles.len() <= 1, "one operation is one record: {bundles:?}");
    bundles.pop().map(|bundle| bundle.changes).unwrap_or_default()
}

/// What is beside a file.
fn file(site: &Site, ino: Ino) -> FileBeside {
    let row = site.state().inode(ino).unwrap().expect("it is there");
    FileBeside::read(row.beside.as_ref().expect("it has a name")).unwrap()
}

/// What is beside a directory.
fn dir(site: &Site, ino: Ino) -> DirBeside {
    let row = site.state().dir(ino).unwrap().expect("it is there");
    DirBeside::read(row.beside.as_ref().expect("it has changed")).unwrap()
}

/// A dead file by its id.
fn dead_file(site: &Site, id: FileId) -> FileState {
    match FileRow::from_slice(&site.sides()[&(FILES, id.0)]).unwrap() {
        FileRow::Hidden { state, .. } => *state,
        FileRow::Shown { ino } => panic!("it is {ino}"),
    }
}

/// A dead directory by its id.
fn dead_dir(site: &Site, id: FileId) -> DirHead {
    match DirRow::from_slice(&site.sides()[&(DIRS, id.0)]).unwrap() {
        DirRow::Hidden { head, .. } => *head,
        DirRow::Shown { ino, .. } => panic!("it is {ino}"),
    }
}

fn rename(from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Op {
    let (dir, name, new_dir, new_name) = (from.0, named(from.1), to.0, named(to.1));
    Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
}

fn set_xattr(ino: Ino, name: &'static [u8], value: &'static [u8]) -> Op {
    let (name, value) = (Bytes::from_static(name), Bytes::from_static(value));
    Op::SetXattr { ino, name, value, mode: XattrMode::Any, kill_sgid: false }
}

fn write(ino: Ino, offset: u64) -> Op {
    Op::Write { ino, offset, append: false, kill_set_id: false }
}

fn unlink(dir: Ino, name: &str) -> Op {
    Op::Unlink { dir, name: named(name) }
}

fn rmdir(dir: Ino, name: &str) -> Op {
    Op::Rmdir { dir, name: named(name), meant: None }
}

/// The names of a directory change: its change, which says nothing.
fn entered(change: &BundleChange, of: FileId) -> Dot {
    let BundleChange::DirChanged { id, change } = change else { panic!("{change:?}") };
    assert_eq!((*id, change.parts.len()), (of, 0), "{change:?}");
    change.dot
}

fn file_changed(change: &BundleChange, of: FileId) -> &FileChange {
    let BundleChange::FileChanged { id, change } = change else { panic!("{change:?}") };
    assert_eq!(*id, of);
    change
}

fn dir_changed(change: &BundleChange, of: FileId) -> &DirChange {
    let BundleChange::DirChanged { id, change } = change else { panic!("{change:?}") };
    assert_eq!(*id, of);
    change
}

fn moved(change: &BundleChange) -> &SpineMove {
    let BundleChange::DirsMoved { record } = change else { panic!("{change:?}") };
    record
}

/// The links of a file, each with its directory, its name, and the directory's change that entered it.
fn links(state: &FileState) -> Vec<(Dot, FileId, String, Dot)> {
    let link = |(dot, place): (Dot, &LinkPlace)| (dot, place.dir, place.name.to_string(), place.entry);
    state.places().map(link).collect()
}

/// The directory in which another one is, and its name there.
fn place(site: &Site, id: FileId) -> (FileId, Name) {
    let place = site.beside::<Machine>().author().spine().place(id).expect("it is a directory");
    let own = &dir_by_id(site, id).name;
    (place.parent, if place.since > own.stamp { place.name.clone() } else { own.value.clone() })
}

fn dir_by_id(site: &Site, id: FileId) -> DirHead {
    match DirRow::from_slice(&site.sides()[&(DIRS, id.0)]).unwrap() {
        DirRow::Shown { ino, .. } => dir(site, ino).head,
        DirRow::Hidden { head, .. } => *head,
    }
}

/// A value of an access ACL that names a user.
const ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 7, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16,
    0, 7, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
];

// ------------------------------------------------------------------------ births

#[test]
fn a_site_that_begins_has_the_root_that_all_sites_have() {
    let mut site = site();
    assert!(bundles(&site, 0).is_empty() && site.sides().is_empty());
    assert_eq!(site.state().dir(ROOT).unwrap().unwrap().beside, None);
    site.create(ROOT, "f", Kind::Fifo, b"");
    let root = dir(&site, ROOT);
    let mut expected = root_head(0o755, 0, 0);
    expected.context.add(Dot { writer: WRITER, n: 1 });
    assert_eq!((root.id, root.head), (FileId::ROOT, expected), "a name changes nothing but what is known");
}

#[test]
fn a_file_that_is_made_has_a_link_by_the_directorys_change_and_a_version_of_no_bytes() {
    let mut site = site();
    for (kind, target, rdev) in
        [(Kind::Regular, &b""[..], 0), (Kind::Symlink, b"to", 0), (Kind::BlockDevice, b"", 7)]
    {
        let (name, after) = (format!("{kind:?}"), site.state().seq());
        let ino = site.create(ROOT, &name, kind, target);
        let [Bundle { position, changes }] = &bundles(&site, after)[..] else { panic!("one record") };
        let entry = entered(&changes[0], FileId::ROOT);
        let [_, BundleChange::FileBorn { id, state }] = &changes[..] else { panic!("{changes:?}") };
        let dot = Dot { writer: WRITER, n: entry.n + 1 };
        assert_eq!(*id, FileId::born(dot));
        assert_eq!(state.context, Context::from_iter([dot]));
        assert_eq!((state.birth.kind, state.birth.rdev, &state.birth.target[..]), (kind, rdev, target));
        assert_eq!(links(state), [(dot, FileId::ROOT, name, entry)]);
        let versions: Vec<_> = state.versions.iter().map(|(dot, version)| (dot, version.size)).collect();
        assert_eq!(versions, [(dot, 0)]);
        assert_eq!((state.attrs.mtime.value, state.attrs.uid.value), (site.now(), 0));
        let beside = file(&site, ino);
        assert_eq!((beside.id, &beside.state), (*id, &**state));
        assert_eq!(beside.at, FeedPlace { position: *position, number: 1 });
        assert_eq!(site.sides()[&(FILES, id.0)], FileRow::Shown { ino }.to_vec());
    }
}

#[test]
fn a_directory_that_is_made_has_its_place_in_the_spine() {
    let mut site = site();
    let above = site.mkdir(ROOT, "above");
    let parent = dir(&site, above).id;
    let op = Op::Mkdir { dir: above, name: named("d"), mode: 0o750, umask: 0 };
    let changes = made(&mut site, op, b"");
    entered(&changes[0], parent);
    let [_, BundleChange::DirBorn { id, head }] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((head.birth.parent, &head.name.value, head.attrs.mode.value), (parent, &named("d"), 0o750));
    assert!(head.birth.stamp > dir(&site, above).head.birth.stamp);
    let base = SpinePlace { parent, name: named("d"), since: head.birth.stamp };
    assert_eq!(site.beside::<Machine>().author().spine().place(*id), Some(&base));
    let row = DirRow::from_slice(&site.sides()[&(DIRS, id.0)]).unwrap();
    let DirRow::Shown { ino, base: kept } = row else { panic!("{row:?}") };
    assert_eq!((dir(&site, ino).id, kept), (*id, base));
}

#[test]
fn what_inherits_an_acl_has_it_with_its_birth() {
    let mut site = site();
    let above = site.mkdir(ROOT, "above");
    site.does(set_xattr(above, acl::DEFAULT_XATTR, ACL), b"");
    let names = |attrs: &atoll_causal::AttrState, born: Dot| -> Vec<Vec<u8>> {
        let all = attrs.xattrs.iter();
        all.inspect(|(_, values)| assert_eq!(values.dots(), [born]))
            .map(|(n, _)| n.as_bytes().to_vec())
            .collect()
    };
    let (name, mode, umask) = (named("d"), 0o755, 0);
    let changes = made(&mut site, Op::Mkdir { dir: above, name, mode, umask }, b"");
    let [_, BundleChange::DirBorn { head, .. }] = &changes[..] else { panic!("{changes:?}") };
    let born = head.alive.dots()[0];
    assert_eq!(names(&head.attrs, born), [acl::ACCESS_XATTR, acl::DEFAULT_XATTR]);
    let after = site.state().seq();
    site.create(above, "f", Kind::Regular, b"");
    let changes = &bundles(&site, after)[0].changes;
    let [_, BundleChange::FileBorn { state, .. }] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(names(&state.attrs, state.versions.dots()[0]), [acl::ACCESS_XATTR]);
}

// ------------------------------------------------------------------------- names

#[test]
fn a_further_name_of_a_file_is_a_link_that_its_change_names() {
    let mut site = site();
    let (ino, d) = (site.create(ROOT, "a", Kind::Regular, b""), site.mkdir(ROOT, "d"));
    let (id, into) = (file(&site, ino).id, dir(&site, d).id);
    let changes = made(&mut site, Op::Link { ino, dir: d, name: named("b") }, b"");
    assert_eq!(changes.len(), 2);
    let entry = entered(&changes[0], into);
    let change = file_changed(&changes[1], id);
    let [FilePart::Link { link, removed, place: Some(place) }] = &change.parts[..] else {
        panic!("{change:?}")
    };
    assert_eq!((*link, removed.len(), place.dir, place.entry), (change.dot, 0, into, entry));
    assert_eq!(links(&file(&site, ino).state).len(), 2);
}

#[test]
fn a_file_that_is_moved_keeps_its_link_and_both_directories_change() {
    let mut site = site();
    let (ino, d) = (site.create(ROOT, "a", Kind::Regular, b""), site.mkdir(ROOT, "d"));
    site.does(Op::Link { ino, dir: ROOT, name: named("other") }, b"");
    let (FileBeside { id, state, .. }, into) = (file(&site, ino), dir(&site, d).id);
    let before = links(&state);
    let changes = made(&mut site, rename((ROOT, "a"), (d, "b"), RenameMode::NoReplace), b"");
    assert_eq!(changes.len(), 3);
    entered(&changes[0], FileId::ROOT);
    let entry = entered(&changes[1], into);
    assert_eq!(file_changed(&changes[2], id).parts.len(), 1);
    let after = links(&file(&site, ino).state);
    assert_eq!(after, [(before[0].0, into, "b".to_owned(), entry), before[1].clone()]);
    // In one directory: that one changes, once.
    let changes = made(&mut site, rename((d, "b"), (d, "c"), RenameMode::NoReplace), b"");
    let entry = entered(&changes[0], into);
    assert_eq!(changes.len(), 2);
    assert_eq!(links(&file(&site, ino).state)[0], (before[0].0, into, "c".to_owned(), entry));
}

#[test]
fn a_file_that_a_rename_replaces_is_dead_with_a_grave_there() {
    let mut site = site();
    let (a, b) = (site.create(ROOT, "a", Kind::Regular, b""), site.create(ROOT, "b", Kind::Regular, b""));
    let (a_id, b_id) = (file(&site, a).id, file(&site, b).id);
    let changes = made(&mut site, rename((ROOT, "a"), (ROOT, "b"), RenameMode::Replace), b"");
    let entry = entered(&changes[0], FileId::ROOT);
    let gone = file_changed(&changes[1], b_id);
    assert!(
        matches!(&gone.parts[..], [FilePart::Link { place: None, .. }, FilePart::Buried { .. }]),
        "{gone:?}"
    );
    file_changed(&changes[2], a_id);
    assert_eq!(changes.len(), 3);
    let dead = dead_file(&site, b_id);
    let grave = dead.grave.clone().expect("a removal makes one");
    assert_eq!((grave.dir, grave.name), (FileId::ROOT, named("b")));
    assert!(dead.links.is_empty() && dead.unburied().next().is_none(), "{dead:?}");
    assert_eq!(site.state().inode(b).unwrap().unwrap().beside, None, "somebody may still have it open");
    let left = links(&file(&site, a).state);
    assert_eq!((left.len(), &left[0].2[..], left[0].3), (1, "b", entry));
}

#[test]
fn a_file_that_loses_a_name_and_has_another_one_is_alive_with_a_grave() {
    let mut site = site();
    let ino = site.create(ROOT, "a", Kind::Regular, b"");
    site.does(Op::Link { ino, dir: ROOT, name: named("b") }, b"");
    let id = file(&site, ino).id;
    let changes = made(&mut site, unlink(ROOT, "a"), b"");
    assert_eq!((changes.len(), file_changed(&changes[1], id).parts.len()), (2, 2));
    let state = file(&site, ino).state;
    assert_eq!(links(&state)[0].2, "b");
    assert_eq!(state.grave.as_ref().map(|grave| grave.name.clone()), Some(named("a")));
    made(&mut site, unlink(ROOT, "b"), b"");
    let dead = dead_file(&site, id);
    assert_eq!(dead.grave.map(|grave| grave.name), Some(named("b")), "where the last name was");
}

#[test]
fn files_that_are_exchanged_change_places() {
    let mut site = site();
    let d = site.mkdir(ROOT, "d");
    let (a, b) = (site.create(ROOT, "a", Kind::Regular, b""), site.create(d, "b", Kind::Regular, b""));
    let (a_link, b_link) = (links(&file(&site, a).state)[0].clone(), links(&file(&site, b).state)[0].clone());
    let changes = made(&mut site, rename((ROOT, "a"), (d, "b"), RenameMode::Exchange), b"");
    assert_eq!(changes.len(), 4, "both directories, both files: {changes:?}");
    let (a_now, b_now) = (links(&file(&site, a).state)[0].clone(), links(&file(&site, b).state)[0].clone());
    assert_eq!((a_now.0, a_now.1, &a_now.2[..]), (a_link.0, b_link.1, "b"));
    assert_eq!((b_now.0, b_now.1, &b_now.2[..]), (b_link.0, a_link.1, "a"));
    let entries = [FileId::ROOT, b_link.1].map(|id| {
        changes.iter().find_map(|change| match change {
            BundleChange::DirChanged { id: of, change } if *of == id => Some(change.dot),
            _ => None,
        })
    });
    assert_eq!(entries, [Some(b_now.3), Some(a_now.3)]);
}

#[test]
fn a_directory_that_is_renamed_in_place_has_another_name_and_is_kept() {
    let mut site = site();
    let ino = site.mkdir(ROOT, "d");
    let id = dir(&site, ino).id;
    let changes = made(&mut site, rename((ROOT, "d"), (ROOT, "e"), RenameMode::NoReplace), b"");
    entered(&changes[0], FileId::ROOT);
    let change = dir_changed(&changes[1], id);
    assert!(
        matches!(&change.parts[..], [DirPart::Renamed { .. }, DirPart::Alive { is_kept: true, .. }]),
        "{change:?}"
    );
    assert_eq!(changes.len(), 2, "the spine is not told");
    assert_eq!(place(&site, id), (FileId::ROOT, named("e")));
}

#[test]
fn a_directory_that_gets_another_parent_is_kept_and_moved_by_the_spine() {
    let mut site = site();
    let (ino, p) = (site.mkdir(ROOT, "d"), site.mkdir(ROOT, "p"));
    let (id, into) = (dir(&site, ino).id, dir(&site, p).id);
    site.does(rename((ROOT, "d"), (ROOT, "e"), RenameMode::NoReplace), b"");
    let changes = made(&mut site, rename((ROOT, "e"), (p, "f"), RenameMode::NoReplace), b"");
    entered(&changes[0], FileId::ROOT);
    entered(&changes[1], into);
    let change = dir_changed(&changes[2], id);
    assert!(matches!(&change.parts[..], [DirPart::Alive { is_kept: true, .. }]), "{change:?}");
    let record = moved(&changes[3]);
    assert_eq!((changes.len(), record.dirs().len()), (4, 1));
    assert!(record.stamp() > dir(&site, ino).head.name.stamp, "a move is later than the rename before it");
    assert_eq!(place(&site, id), (into, named("f")));
    // The later of both names it.
    site.does(rename((p, "f"), (p, "g"), RenameMode::NoReplace), b"");
    assert_eq!(place(&site, id), (into, named("g")));
    site.does(rename((p, "g"), (ROOT, "h"), RenameMode::NoReplace), b"");
    assert_eq!(place(&site, id), (FileId::ROOT, named("h")));
    assert_eq!(
        reopened(&site).author().spine().place(id),
        site.beside::<Machine>().author().spine().place(id)
    );
}

#[test]
fn directories_that_are_exchanged_between_parents_move_by_one_record() {
    let mut site = site();
    let (p, q) = (site.mkdir(ROOT, "p"), site.mkdir(ROOT, "q"));
    let (a, b) = (site.mkdir(p, "a"), site.mkdir(q, "b"));
    let [p_id, q_id, a_id, b_id] = [p, q, a, b].map(|ino| dir(&site, ino).id);
    let changes = made(&mut site, rename((p, "a"), (q, "b"), RenameMode::Exchange), b"");
    let record = moved(changes.last().unwrap());
    assert_eq!((changes.len(), record.dirs().len()), (5, 2), "{changes:?}");
    assert_eq!((place(&site, a_id), place(&site, b_id)), ((q_id, named("b")), (p_id, named("a"))));
    assert_eq!(site.beside::<Machine>().author().spine().records().count(), 1);
    // In one directory both are renamed.
    let c = site.mkdir(p, "c");
    let c_id = dir(&site, c).id;
    let changes = made(&mut site, rename((p, "a"), (p, "c"), RenameMode::Exchange), b"");
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert_eq!((place(&site, b_id), place(&site, c_id)), ((p_id, named("c")), (p_id, named("a"))));
    assert_eq!(site.beside::<Machine>().author().spine().records().count(), 1);
}

#[test]
fn of_a_file_and_a_directory_that_are_exchanged_the_spine_moves_the_directory() {
    let mut site = site();
    let p = site.mkdir(ROOT, "p");
    let (a, b) = (site.create(ROOT, "a", Kind::Regular, b""), site.mkdir(p, "b"));
    let (p_id, b_id) = (dir(&site, p).id, dir(&site, b).id);
    let changes = made(&mut site, rename((ROOT, "a"), (p, "b"), RenameMode::Exchange), b"");
    assert_eq!((changes.len(), moved(&changes[4]).dirs()[0].dir), (5, b_id), "{changes:?}");
    assert_eq!(place(&site, b_id), (FileId::ROOT, named("a")));
    assert_eq!((links(&file(&site, a).state)[0].1, &links(&file(&site, a).state)[0].2[..]), (p_id, "b"));
}

#[test]
fn a_directory_that_is_removed_is_dead_and_has_seen_all_that_was_known() {
    let mut site = site();
    let (d, over, from) = (site.mkdir(ROOT, "d"), site.mkdir(ROOT, "over"), site.mkdir(ROOT, "from"));
    let [d_id, over_id, from_id] = [d, over, from].map(|ino| dir(&site, ino).id);
    site.does(set_xattr(d, b"user.a", b"1"), b"");
    let known = dir(&site, d).head.context;
    let changes = made(&mut site, rmdir(ROOT, "d"), b"");
    entered(&changes[0], FileId::ROOT);
    let change = dir_changed(&changes[1], d_id);
    let [DirPart::Alive { is_kept: false, .. }, DirPart::Buried { seen }] = &change.parts[..] else {
        panic!("{change:?}")
    };
    assert!(seen.includes(&known) && seen.covers(change.dot));
    assert!(dead_dir(&site, d_id).is_removed());
    // One that a rename replaces.
    let changes = made(&mut site, rename((ROOT, "from"), (ROOT, "over"), RenameMode::Replace), b"");
    assert_eq!((changes.len(), dir_changed(&changes[1], over_id).parts.len()), (3, 2));
    assert!(dead_dir(&site, over_id).is_removed());
    assert_eq!(place(&site, from_id), (FileId::ROOT, named("over")));
    // Its place is known as long as moves may name it.
    assert!(reopened(&site).author().spine().place(d_id).is_some());
}

#[test]
fn a_directory_whose_birthplace_was_removed_is_known_after_a_restart() {
    let mut site = site();
    let d = site.mkdir(ROOT, "d");
    let below = site.mkdir(d, "below");
    let id = dir(&site, below).id;
    site.does(rename((d, "below"), (ROOT, "out"), RenameMode::NoReplace), b"");
    site.does(rmdir(ROOT, "d"), b"");
    let again = reopened(&site);
    let author = again.author();
    author.spine().check();
    assert_eq!(author.spine().place(id).map(|place| place.parent), Some(FileId::ROOT));
    site.set_beside(again);
    let moved_again = made(&mut site, rename((ROOT, "out"), (ROOT, "in"), RenameMode::NoReplace), b"");
    assert_eq!(moved_again.len(), 2);
}

// -------------------------------------------------------------------- attributes

#[test]
fn each_attribute_that_changes_is_a_register_and_together_they_are_one_change() {
    let mut site = site();
    let (f, d) = (site.create(ROOT, "f", Kind::Regular, b""), site.mkdir(ROOT, "d"));
    for ino in [f, d, ROOT] {
        let set = SetAttr { mode: Some(0o600), uid: Some(5), gid: Some(6), ..SetAttr::default() };
        let changes = made(&mut site, Op::SetAttr { ino, set }, b"");
        let parts: Vec<AttrPart> = match &changes[..] {
            [BundleChange::FileChanged { change, .. }] => change
                .parts
                .iter()
                .map(|part| if let FilePart::Attr { part } = part { part.clone() } else { panic!() })
                .collect(),
            [BundleChange::DirChanged { change, .. }] => change
                .parts
                .iter()
                .map(|part| if let DirPart::Attr { part } = part { part.clone() } else { panic!() })
                .collect(),
            other => panic!("{other:?}"),
        };
        let [AttrPart::Mode { to: mode }, AttrPart::Uid { to: uid }, AttrPart::Gid { to: gid }] = &parts[..]
        else {
            panic!("{parts:?}")
        };
        assert_eq!((mode.value, uid.value, gid.value), (0o600, 5, 6));
        assert!(mode.stamp == uid.stamp && uid.stamp == gid.stamp && mode.stamp > HybridStamp::ZERO);
        assert_eq!(made(&mut site, Op::SetAttr { ino, set }, b""), [], "it is so already");
    }
    let root = dir(&site, ROOT).head;
    assert_eq!(root.attrs.mode.value, 0o600);
    assert!(root.context.covers(Dot { writer: Writer(0), n: 1 }), "what all sites know of it");
}

#[test]
fn an_extended_attribute_replaces_the_value_that_was_seen() {
    let mut site = site();
    let (f, d) = (site.create(ROOT, "f", Kind::Regular, b""), site.mkdir(ROOT, "d"));
    let name = XattrName::new(Bytes::from_static(b"user.a")).unwrap();
    for ino in [f, d] {
        let known = |site: &Site| {
            let attrs = if ino == f { file(site, ino).state.attrs } else { dir(site, ino).head.attrs };
            let values = attrs.xattrs.get(&name).map(|values| {
                values.iter().map(|(_, value)| value.value.as_bytes()[..].to_owned()).collect::<Vec<_>>()
            });
            values.unwrap_or_default()
        };
        made(&mut site, set_xattr(ino, b"user.a", b"1"), b"");
        assert_eq!(known(&site), [b"1"]);
        made(&mut site, set_xattr(ino, b"user.a", b"2"), b"");
        assert_eq!(known(&site), [b"2"]);
        let removed = made(&mut site, Op::RemoveXattr { ino, name: Bytes::from_static(b"user.a") }, b"");
        assert_eq!((removed.len(), known(&site).len()), (1, 0));
    }
}

// ------------------------------------------------------------------------- bytes

#[test]
fn bytes_that_are_written_are_noted_and_no_change_is_made() {
    let mut site = site();
    let ino = site.create(ROOT, "f", Kind::Regular, b"");
    let before = file(&site, ino);
    let ranges = |site: &Site| -> Vec<(u64, u64)> {
        file(site, ino).bytes.written.iter().map(|range| (range.start, range.end)).collect()
    };
    assert_eq!(made(&mut site, write(ino, 5), b"0123456789"), []);
    assert_eq!(ranges(&site), [(0, 15)]);
    let set = SetAttr { size: Some(7), ..SetAttr::default() };
    assert_eq!(made(&mut site, Op::SetAttr { ino, set }, b""), []);
    assert_eq!(ranges(&site), [(0, 7)]);
    let now = file(&site, ino);
    assert_eq!((now.id, now.state, now.at), (before.id, before.state, before.at));
    let wrote = site.sides()[&(WRITERS, u128::from(WRITER.0))].clone();
    assert_eq!(made(&mut site, write(ino, 0), b"x"), []);
    assert_eq!(site.sides()[&(WRITERS, u128::from(WRITER.0))], wrote, "no dot was given");
}

#[test]
fn a_file_without_a_name_that_is_written_to_says_nothing_any_more() {
    let mut site = site();
    let (f, d) = (site.create(ROOT, "f", Kind::Regular, b""), site.mkdir(ROOT, "d"));
    let ids = (file(&site, f).id, dir(&site, d).id);
    site.does(write(f, 0), b"0123456789");
    site.does(unlink(ROOT, "f"), b"");
    site.does(rmdir(ROOT, "d"), b"");
    let (dead, removed) = (dead_file(&site, ids.0), dead_dir(&site, ids.1));
    for ino in [f, d] {
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        assert_eq!(made(&mut site, Op::SetAttr { ino, set }, b""), []);
        assert_eq!(made(&mut site, set_xattr(ino, b"user.a", b"1"), b""), []);
        assert_eq!(site.state().inode(ino).unwrap().unwrap().beside, None);
    }
    assert_eq!(made(&mut site, write(f, 5), b"abcdefgh"), []);
    let after = site.state().seq();
    site.release(&[f, d]);
    assert_eq!(bundles(&site, after), []);
    assert_eq!((dead_file(&site, ids.0), dead_dir(&site, ids.1)), (dead, removed));
}

#[test]
fn bytes_that_a_recovery_finds_changed_are_noted_although_the_files_row_does_not_change() {
    let mut site = site();
    static LARGE: [u8; 10_000] = [7; 10_000];
    let ino = site.create(ROOT, "f", Kind::Regular, b"");
    site.does(write(ino, 0), &LARGE);
    // As if a version had been cut.
    let mut row = site.state().inode(ino).unwrap().unwrap().clone();
    let beside = FileBeside { bytes: Default::default(), ..file(&site, ino) };
    row.beside = Some(beside.into_bytes());
    site.correct(vec![RowChange::Inode { ino, row: Some(Box::new(row.clone())) }]);
    assert!(file(&site, ino).bytes.written.is_empty());
    site.correct(vec![RowChange::Sums { ino, first: 1, sums: vec![4] }]);
    let block = BLOCK_BYTES..2 * BLOCK_BYTES;
    assert!(file(&site, ino).bytes.written.iter().eq([&block]));
    let now = site.state().inode(ino).unwrap().unwrap().clone();
    assert_eq!(atoll_proto::Inode { beside: None, ..now }, atoll_proto::Inode { beside: None, ..row });
}

// ---------------------------------------------------------------- bounds, restart

#[test]
fn a_directory_that_the_spine_cannot_move_is_busy_and_stays() {
    let mut site = site();
    let p = site.mkdir(ROOT, "p");
    let d = site.mkdir(ROOT, "d");
    let long = |nth: usize| format!("{nth:0255}");
    site.does(rename((ROOT, "d"), (ROOT, &long(0)), RenameMode::NoReplace), b"");
    // Each move says where it was since it was made: at some time one does not fit any more.
    let at = |nth: usize| if nth.is_multiple_of(2) { ROOT } else { p };
    let move_on = |site: &mut Site, nth: usize| {
        let op = rename((at(nth), &long(nth)), (at(nth + 1), &long(nth + 1)), RenameMode::NoReplace);
        site.run(SessionId(1), &Caller::ROOT, op, Bytes::new())
    };
    let moves = (0..2_000).find(|nth| move_on(&mut site, *nth).is_err()).expect("it does not move for ever");
    assert!(moves > 100, "{moves}");
    let seq = site.state().seq();
    assert_eq!(move_on(&mut site, moves), Err(Errno::EBUSY));
    assert_eq!(site.state().seq(), seq, "nothing is decided");
    assert_eq!(place(&site, dir(&site, d).id).1, named(&long(moves)));
    site.does(rename((at(moves), &long(moves)), (at(moves), "in place"), RenameMode::NoReplace), b"");
    site.create(d, "f", Kind::Fifo, b"");
    assert_eq!(reopened(&site).author().spine().records().count(), moves);
}

#[test]
fn bundles_that_are_too_many_go_and_who_needs_them_hears_of_it() {
    let mut site = site();
    let first = site.state().seq();
    for nth in 0..4_100 {
        site.create(ROOT, &format!("{nth}"), Kind::Fifo, b"");
    }
    let author = site.beside::<Machine>().author();
    assert!(author.bundles(first, site.state().seq()).is_none());
    let [one, .., last] =
        &author.bundles(site.state().seq() - 100, u64::MAX).unwrap().collect::<Vec<_>>()[..]
    else {
        panic!("100 are there")
    };
    assert!(one.position < last.position);
    let upto = author.bundles(one.position, last.position - 1).unwrap();
    assert!(upto.last().is_some_and(|bundle| bundle.position < last.position), "what is not synced stays");
}

#[test]
fn an_author_goes_on_with_the_next_dot_and_later_stamps_after_a_restart() {
    let mut site = site();
    site.create(ROOT, "a", Kind::Fifo, b"");
    let key = (WRITERS, u128::from(WRITER.0));
    let row = WriterRow::from_slice(&site.sides()[&key]).unwrap();
    let WriterRow::Own { n, latest_us, position } = row else { panic!("{row:?}") };
    assert_eq!((n, position), (2, site.state().seq()));
    // The clock was ahead.
    let ahead = WriterRow::Own { n, latest_us: latest_us + 5_000_000, position };
    site.set_beside(opened(WRITER, [(key.0, key.1, ahead.to_vec().into())]).unwrap());
    let ino = site.create(ROOT, "b", Kind::Fifo, b"");
    let FileBeside { id, state, .. } = file(&site, ino);
    assert_eq!(id, FileId::born(Dot { writer: WRITER, n: 4 }));
    assert_eq!(state.attrs.mode.stamp, HybridStamp { time_us: latest_us + 5_000_001, writer: WRITER });
    let author = site.beside::<Machine>().author();
    assert!(author.bundles(position - 1, u64::MAX).is_none(), "what was before the restart is not in memory");
    assert_eq!(author.bundles(position, u64::MAX).map(Iterator::count), Some(1));
}

#[test]
fn what_names_a_directory_is_later_than_stamps_that_are_ahead_of_the_clock() {
    let mut site = site();
    let (d, p) = (site.mkdir(ROOT, "d"), site.mkdir(ROOT, "p"));
    let DirBeside { id, mut head, at } = dir(&site, d);
    // As if another site, whose clock is off, had renamed it.
    let far = HybridStamp { time_us: head.birth.stamp.time_us + (1 << 40), writer: Writer(9) };
    head.name = Lww::new(far, named("d"));
    let mut row = site.state().dir(d).unwrap().unwrap().clone();
    row.beside = Some(DirBeside { id, head, at }.into_bytes());
    site.correct(vec![RowChange::Dir { ino: d, row: Some(Box::new(row)) }]);
    let changes = made(&mut site, rename((ROOT, "d"), (p, "e"), RenameMode::NoReplace), b"");
    let stamp = moved(&changes[3]).stamp();
    assert!(stamp > far, "{stamp:?}");
    assert_eq!(place(&site, id).1, named("e"));
    site.does(rename((p, "e"), (p, "f"), RenameMode::NoReplace), b"");
    assert!(dir(&site, d).head.name.stamp > stamp);
    assert_eq!(place(&site, id).1, named("f"));
    // A name in it, too.
    let far = dir(&site, d).head.latest();
    let f = site.create(d, "f", Kind::Fifo, b"");
    assert!(file(&site, f).state.places().all(|(_, place)| place.stamp > far));
    let other = site.create(ROOT, "other", Kind::Fifo, b"");
    assert!(
        file(&site, other).state.latest() < far,
        "what has nothing to do with it has the time of the clock"
    );
}

#[test]
fn rows_that_contradict_each_other_are_refused() {
    let since = HybridStamp { time_us: 9, writer: WRITER };
    let row = |id: u128, parent: u128| {
        let base = SpinePlace { parent: FileId(parent), name: named("d"), since };
        (DIRS, id, Bytes::from(DirRow::Shown { ino: Ino(id as u64), base }.to_vec()))
    };
    assert!(opened(WRITER, [row(3, 2), row(2, 0), row(1, 3)]).is_ok());
    assert!(opened(WRITER, [row(1, 2)]).is_err(), "a parent is not there");
    assert!(opened(WRITER, [row(1, 2), row(2, 3), row(3, 1)]).is_err(), "a circle");
    assert!(opened(WRITER, [row(1, 1)]).is_err(), "below itself");
    assert!(opened(WRITER, [(DIRS, 1, Bytes::from_static(b"\x09"))]).is_err());
}

#[test]
fn a_replica_of_all_bundles_has_what_the_rows_have() {
    let mut site = site();
    let (d, p) = (site.mkdir(ROOT, "d"), site.mkdir(ROOT, "p"));
    let f = site.create(d, "f", Kind::Regular, b"");
    site.does(Op::Link { ino: f, dir: p, name: named("g") }, b"");
    site.does(rename((ROOT, "d"), (p, "d"), RenameMode::NoReplace), b"");
    site.does(unlink(d, "f"), b"");
    site.does(rmdir(p, "d"), b"");
    let mut replica = Replica::new(0o755);
    bundles(&site, 0).iter().for_each(|bundle| replica.take(bundle));
    Rows::of(&site).compare(&replica);
    assert_eq!((replica.files.len(), replica.dirs.len()), (1, 3));
}
