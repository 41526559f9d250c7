//! What comes before an operation on something that is shown otherwise than it says itself: sequences by name.

mod receiver;
mod site;

use std::collections::BTreeMap;

use atoll_causal::{
    AttrState, DirBirth, DirHead, DirPart, DirState, Dot, FileBirth, FileChange, FileGrave, FileId, FilePart,
    FileState, FileVersion, HybridStamp, LinkPlace, Writer,
};
use atoll_core::{Encode, Ino, Name, SessionId, Time};
use atoll_island::{BesideEvent, BesideSays};
use atoll_posix::{Caller, Errno, Kind, Op, RenameMode, SetAttr, XattrMode};
use atoll_proto::Outcome;
use atoll_spine::{MovedDir, Spine, SpinePlace};
use atoll_wide::author::{Bundle, BundleChange};
use atoll_wide::foreign::OBJECTS_MAX;
use atoll_wide::members::MemberRow;
use atoll_wide::peers::Window;
use atoll_wide::peers::message::WideMessage;
use atoll_wide::rows::{DirBeside, FeedRow, FileBeside, MEMBERS};
use atoll_wide::site::Site as Machine;
use bytes::Bytes;
use receiver::Receiver;
use site::{Memory, Site, greeting, member, named, opened_at};

const ROOT: Ino = Ino::ROOT;
/// The other site, as which the test speaks.
const PEER: u64 = 2;

/// A site, and a link to another one.
struct Place {
    site: Site,
    shadow: Receiver,
    position: u64,
}

impl Place {
    fn new() -> Self {
        Self::with([])
    }

    /// A place whose site has these rows more.
    fn with(rows: impl IntoIterator<Item = (u8, u128, Bytes)>) -> Self {
        let machine = opened_at(Writer(1), 0, Window::MOST, rows).unwrap();
        let mut site = Site::new(Memory::Whole, &[SessionId(1)], false, Some(Box::new(machine)));
        site.watch_no_more();
        site.hear(BesideEvent::Link { peer: PEER, up: true });
        let mut place = Self { site, shadow: Receiver::shadow(), position: 0 };
        let hello = greeting(1, 0, 1 << 40);
        place.hears(WideMessage::Hello { hello });
        place
    }

    fn hears(&mut self, message: WideMessage) {
        self.site.hear(BesideEvent::Message { peer: PEER, bytes: message.to_vec().into() });
        for says in self.site.take_said() {
            assert!(matches!(says, BesideSays::Send { .. }), "{says:?}");
        }
    }

    /// The other site has made this.
    fn tell(&mut self, changes: Vec<BundleChange>) {
        self.position += 1;
        self.hears(WideMessage::Bundle { bundle: Bundle { position: self.position, changes } });
    }

    /// The other site has all that this one has made.
    fn hears_all_of(&mut self, other: &Site) {
        let author = other.beside::<Machine>().author();
        let made: Vec<_> = author.bundles(0, u64::MAX).unwrap().cloned().collect();
        made.into_iter().for_each(|bundle| self.tell(bundle.changes));
        self.check();
    }

    /// The rows hold together, and users see what the states say.
    fn check(&mut self) {
        let spine = self.site.beside::<Machine>().author().spine().clone();
        for (_, record) in self.site.take_records() {
            self.shadow.follow(&record, &spine);
        }
        self.shadow.check();
        let plain = self.shadow.plain();
        assert_eq!(self.shadow.tree(), plain.tree());
    }

    fn names(&self) -> BTreeMap<String, Ino> {
        let (names, _) = self.site.state().entries_after(ROOT, 0).unwrap();
        names.map(|(_, name, entry)| (name.to_string(), entry.ino)).collect()
    }

    /// The first name with a mark.
    fn beside(&self) -> Name {
        let names = self.names();
        named(names.keys().find(|name| name.contains(".~")).expect("something is shown beside another thing"))
    }

    fn state(&self, ino: Ino) -> (FileId, FileState) {
        let row = self.site.state().inode(ino).unwrap().unwrap();
        let beside = FileBeside::read(row.beside.as_ref().unwrap()).unwrap();
        (beside.id, beside.state)
    }

    fn dir(&self, ino: Ino) -> DirBeside {
        let row = self.site.state().dir(ino).unwrap().unwrap();
        DirBeside::read(row.beside.as_ref().unwrap()).unwrap()
    }

    fn unlink(&mut self, name: &str) {
        self.site.does(Op::Unlink { dir: ROOT, name: named(name) }, b"");
    }

    fn chmod(&mut self, ino: Ino, mode: u32) {
        self.site.does(Op::SetAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }, b"");
    }
}

/// A writer has written other bytes, of which no other site has any yet.
fn writes((id, state): &(FileId, FileState), writer: u64, time_us: u64) -> BundleChange {
    let stamp = HybridStamp { time_us, writer: Writer(writer) };
    let version = FileVersion { stamp, size: 3, mtime: Time::default(), root: u128::from(writer) };
    let dot = Dot { writer: Writer(writer), n: 1 };
    BundleChange::FileChanged { id: *id, change: state.change(dot, vec![state.write(version)]) }
}

#[test]
fn a_file_with_two_versions_is_used_without_end_of_preparations() {
    let mut place = Place::new();
    let ino = place.site.create(ROOT, "f", Kind::Regular, b"");
    let before = place.state(ino);
    place.tell(vec![writes(&before, 7, 2_000_000_000)]);
    place.tell(vec![writes(&before, 8, 2_000_000_001)]);
    place.check();
    place.chmod(ino, 0o600);
    place.check();
}

#[test]
fn a_rescued_file_that_gets_another_link_keeps_the_name_at_which_it_was_shown() {
    let mut place = Place::new();
    let ino = place.site.create(ROOT, "a", Kind::Regular, b"");
    let before = place.state(ino);
    place.unlink("a");
    place.tell(vec![writes(&before, 7, 2_000_000_000)]);
    let ino = place.names()["a"];
    place.site.does(Op::Link { ino, dir: ROOT, name: named("b") }, b"");
    place.check();
    place.unlink("a");
    place.check();
    assert_eq!(place.names(), [("b".to_owned(), ino)].into());
}

#[test]
fn one_of_two_rescued_files_that_are_shown_as_one_is_renamed_over_the_name_that_keeps_them_from_it() {
    let mut place = Place::new();
    let gone: Vec<_> = (0..2)
        .map(|_| {
            let ino = place.site.create(ROOT, "a", Kind::Regular, b"");
            let before = place.state(ino);
            place.unlink("a");
            before
        })
        .collect();
    let other = place.site.create(ROOT, "a", Kind::Regular, b"");
    place.chmod(other, 0o600);
    for before in &gone {
        place.tell(vec![writes(before, 7, 2_000_000_000)]);
    }
    place.check();
    let (name, new_name) = (place.beside(), named("a"));
    let ino = place.names()[&name.to_string()];
    let (dir, new_dir, mode, meant, new_meant) = (ROOT, ROOT, RenameMode::Replace, None, None);
    place.site.does(Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant }, b"");
    place.check();
    assert_eq!(place.names(), [("a".to_owned(), ino)].into());
}

#[test]
fn a_name_keeps_what_it_leads_to_however_many_files_are_shown_as_one_there() {
    let mut place = Place::new();
    place.site.mkdir(ROOT, "a");
    for writer in 11..=40 {
        let mut other = other_site(writer);
        other.create(ROOT, "a", Kind::Regular, b"");
        place.hears_all_of(&other);
    }
    place.check();
    let before = place.names();
    assert_eq!(before.len(), 2);
    let name = place.beside();
    place.chmod(before[&name.to_string()], 0o644);
    place.check();
    assert_eq!(place.names(), before);
}

#[test]
fn a_stamp_behind_which_no_other_can_be_given_is_refused() {
    let mut place = Place::new();
    let ino = place.site.create(ROOT, "a", Kind::Regular, b"");
    let (id, state) = place.state(ino);
    let (link, at) = state.places().map(|(link, at)| (link, at.clone())).next().unwrap();
    let stamp = HybridStamp { time_us: u64::MAX, writer: Writer(9) };
    let to = LinkPlace { stamp, name: named("b"), ..at };
    let change: FileChange = state.change(Dot { writer: Writer(9), n: 1 }, vec![state.relink(link, to)]);
    place.tell(vec![BundleChange::FileChanged { id, change }]);
    assert_eq!(place.site.beside::<Machine>().peers().refused(), 1);
    assert_eq!(place.names(), [("a".to_owned(), ino)].into());
    place.check();
}

/// Found by `sites` 130. The directory is one of two of its name, and was removed; what revives it is moved away.
#[test]
fn a_directory_that_is_shown_for_what_is_moved_out_of_it_is_kept() {
    let mut place = Place::new();
    let removed = place.site.mkdir(ROOT, "d");
    let DirBeside { id, head, .. } = place.dir(removed);
    let inner = place.site.mkdir(ROOT, "a");
    let moves = |place: &mut Place, (dir, name): (Ino, &str), (new_dir, new_name): (Ino, &str)| {
        let (name, new_name, mode) = (named(name), named(new_name), RenameMode::Replace);
        let op = Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None };
        place.site.does(op, b"");
    };
    moves(&mut place, (ROOT, "a"), (removed, "a"));
    // The other directory is older, so the two are shown as that one.
    let (stamp, writer) = (HybridStamp { time_us: 1, writer: Writer(7) }, Writer(7));
    let attrs = AttrState::new(stamp, 0o755, 0, 0, Time::default());
    let born = Dot { writer, n: 1 };
    let other = DirState::new(DirBirth { stamp, parent: FileId::ROOT }, born, attrs, named("d")).head;
    place.tell(vec![BundleChange::DirBorn { id: FileId::born(born), head: Box::new(other) }]);
    let gone = Dot { writer, n: 2 };
    place.tell(vec![BundleChange::DirChanged { id, change: head.change(gone, head.remove(gone)) }]);
    place.check();
    let shown = place.names()["d"];
    moves(&mut place, (shown, "a"), (ROOT, "b"));
    place.check();
    assert_eq!(place.names(), [("b".to_owned(), inner), ("d".to_owned(), shown)].into());
}

/// A site of its own, with users who know nothing of others.
fn other_site(writer: u64) -> Site {
    let machine = opened_at(Writer(writer), 0, Window::MOST, []).unwrap();
    Site::new(Memory::Whole, &[SessionId(1)], false, Some(Box::new(machine)))
}

#[test]
fn what_is_shown_as_one_with_a_file_goes_only_if_the_operation_is_carried_out() {
    let mut place = Place::new();
    place.site.create(ROOT, "a", Kind::Regular, b"");
    let mut other = other_site(11);
    other.create(ROOT, "a", Kind::Regular, b"");
    place.hears_all_of(&other);
    let links = |place: &mut Place| -> Vec<usize> {
        place.shadow.plain().files.values().map(|state| state.places().count()).collect()
    };
    assert_eq!((place.names().len(), links(&mut place)), (1, vec![1, 1]));
    let somebody = Caller { uid: 1_000, gid: 1_000, groups: Some(Vec::new()) };
    let op = Op::Unlink { dir: ROOT, name: named("a") };
    let refused = place.site.run(SessionId(1), &somebody, op, Bytes::new());
    assert_eq!(refused.map(drop), Err(Errno::EACCES));
    place.check();
    assert_eq!((place.names().len(), links(&mut place)), (1, vec![1, 1]), "nobody has removed anything");
    let before = place.site.state().seq();
    place.unlink("a");
    place.check();
    assert_eq!((place.names().len(), links(&mut place)), (0, vec![0, 0]), "what goes is gone for all sites");
    let made: Vec<Bundle> =
        place.site.beside::<Machine>().author().bundles(before, u64::MAX).unwrap().cloned().collect();
    assert_eq!(made.len(), 1, "one record does it all: {made:?}");
}

#[test]
fn a_file_is_renamed_over_one_that_is_shown_as_one_with_it_too() {
    let mut place = Place::new();
    // Later than the other site, so that this file is the first of the two.
    (0..4).for_each(|_| place.chmod(ROOT, 0o755));
    let ino = place.site.create(ROOT, "a", Kind::Regular, b"");
    let mut other = other_site(11);
    let twin = other.create(ROOT, "b", Kind::Regular, b"");
    other.does(Op::Link { ino: twin, dir: ROOT, name: named("a") }, b"");
    place.hears_all_of(&other);
    let before = place.names();
    assert_eq!((before["a"], before.len()), (ino, 2));
    assert_ne!(before["b"], ino);
    let (name, new_name) = (named("a"), named("b"));
    let (dir, new_dir, mode, meant, new_meant) = (ROOT, ROOT, RenameMode::Replace, None, None);
    place.site.does(Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant }, b"");
    place.check();
    assert_eq!(place.names(), [("b".to_owned(), ino)].into());
    let links = place.shadow.plain().files.values().map(|state| state.places().count()).sum::<usize>();
    assert_eq!(links, 1, "the other file has lost both names");
}

#[test]
fn files_that_are_shown_as_one_at_many_names_part_by_one_write() {
    let names: Vec<String> = (0..100).map(|at| format!("n{at}")).collect();
    let linked = |site: &mut Site| {
        let ino = site.create(ROOT, &names[0], Kind::Regular, b"");
        for name in &names[1..] {
            site.does(Op::Link { ino, dir: ROOT, name: named(name) }, b"");
        }
        ino
    };
    let mut place = Place::new();
    linked(&mut place.site);
    let mut other = other_site(11);
    linked(&mut other);
    place.hears_all_of(&other);
    let before = place.names();
    assert_eq!(before.len(), names.len());
    for ino in before.values() {
        place.chmod(*ino, 0o600);
    }
    place.check();
    assert_eq!(place.names(), before);
    let plain = place.shadow.plain();
    let links: usize = plain.files.values().map(|state| state.places().count()).sum();
    assert_eq!(links, names.len(), "one of two is left at each name");
}

#[test]
fn a_removal_that_has_seen_what_this_site_has_not_done_yet_is_refused() {
    let mut place = Place::new();
    let (file, dir) = (place.site.create(ROOT, "a", Kind::Regular, b""), place.site.mkdir(ROOT, "d"));
    let (id, state) = place.state(file);
    let (link, at) = state.places().map(|(link, at)| (link, at.clone())).next().unwrap();
    let stamp = HybridStamp { time_us: 2_000_000_000, writer: Writer(9) };
    let (_, given) = place.site.beside::<Machine>().author().given();
    let later = Dot { writer: Writer(1), n: given + 100 };
    let mut seen = state.context.clone();
    seen.add(later);
    let grave = FileGrave { seen, stamp, dir: at.dir, name: at.name };
    let parts = vec![state.unlink(link), FilePart::Buried { grave: grave.clone() }];
    let unlinked = state.change(Dot { writer: Writer(9), n: 1 }, parts);
    let buried = FileState { grave: Some(grave), ..state };
    let beside = place.dir(dir);
    let mut seen = beside.head.context.clone();
    seen.add(later);
    let parts = vec![
        DirPart::Alive { removed: beside.head.alive.dots(), is_kept: false },
        DirPart::Buried { seen: seen.clone() },
    ];
    let removed = beside.head.change(Dot { writer: Writer(9), n: 2 }, parts);
    let head = DirHead { buried: seen, ..beside.head.clone() };
    place.tell(vec![BundleChange::FileChanged { id, change: unlinked }]);
    place.tell(vec![BundleChange::FileBorn { id, state: Box::new(buried) }]);
    place.tell(vec![BundleChange::DirChanged { id: beside.id, change: removed }]);
    place.tell(vec![BundleChange::DirBorn { id: beside.id, head: Box::new(head) }]);
    assert_eq!(place.site.beside::<Machine>().peers().refused(), 4);
    assert_eq!(place.names(), [("a".to_owned(), file), ("d".to_owned(), dir)].into());
    place.check();
}

#[test]
fn what_was_made_by_a_writer_that_is_no_sites_is_refused() {
    let mut place = Place::new();
    let file = place.site.create(ROOT, "a", Kind::Regular, b"");
    let (id, state) = place.state(file);
    let stranger = Dot { writer: Writer(121), n: 1 };
    let stamp = HybridStamp { time_us: 2_000_000_000, writer: Writer(9) };
    let (_, version) = state.versions.iter().next().unwrap();
    let written = state.change(stranger, vec![state.write(FileVersion { stamp, size: 1, ..*version })]);
    let mut context = state.context.clone();
    context.add(stranger);
    place.tell(vec![BundleChange::FileChanged { id, change: written }]);
    place.tell(vec![BundleChange::FileBorn { id, state: Box::new(FileState { context, ..state }) }]);
    assert_eq!(place.site.beside::<Machine>().peers().refused(), 2);
    assert_eq!(place.names(), [("a".to_owned(), file)].into());
    place.check();
}

/// A directory that a writer has made in another one. It says nothing of any other writer.
fn dir_of(writer: Writer, n: u64, id: FileId, parent: FileId) -> BundleChange {
    let (dot, stamp) = (Dot { writer, n }, HybridStamp { time_us: n, writer });
    let attrs = AttrState::new(stamp, 0o755, 0, 0, Time::default());
    let head = DirState::new(DirBirth { stamp, parent }, dot, attrs, named(&format!("{n}"))).head;
    BundleChange::DirBorn { id, head: Box::new(head) }
}

/// A move of a directory to another parent by the other site, which says that these directories are in the root.
fn moves(writer: Writer, dir: FileId, parent: FileId, known: &[FileId]) -> BundleChange {
    let mut spine = Spine::default();
    let since = HybridStamp { time_us: 1, writer };
    for dir in known {
        let name = named(&format!("{:x}", dir.0));
        spine.born(*dir, SpinePlace { parent: FileId::ROOT, name, since });
    }
    let moved = MovedDir { dir, parent, name: named("moved") };
    let give = |above: HybridStamp| HybridStamp { time_us: above.time_us + 1_000, writer };
    BundleChange::DirsMoved { record: spine.decide(writer, vec![moved], give).unwrap() }
}

/// The other site speaks of objects that this one is to make later. If the spine knew of such a directory, this site could not make it.
#[test]
fn what_this_site_has_not_made_yet_is_nowhere_in_what_another_one_says() {
    let mut place = Place::new();
    let (file, dir) = (place.site.create(ROOT, "a", Kind::Regular, b""), place.site.mkdir(ROOT, "d"));
    let (id, state) = place.state(file);
    let (link, at) = state.places().map(|(link, at)| (link, at.clone())).next().unwrap();
    let own = place.dir(dir);
    let writer = Writer(9);
    let theirs = |n| FileId::born(Dot { writer, n });
    let (_, given) = place.site.beside::<Machine>().author().given();
    // The first operation that follows gives two dots: of the root and of what is made in it.
    for later in (1..=4).map(|n| FileId::born(Dot { writer: Writer(1), n: given + n })) {
        let stamp = HybridStamp { time_us: 2_000_000_000, writer };
        let to = LinkPlace { stamp, dir: later, ..at.clone() };
        let dot = Dot { writer, n: 1 };
        let relinked = state.change(dot, vec![state.relink(link, to)]);
        let buried = FilePart::Buried {
            grave: FileGrave { seen: state.context.clone(), stamp, dir: later, name: at.name.clone() },
        };
        let buried = state.change(dot, vec![state.unlink(link), buried]);
        let copy =
            FileState { birth: FileBirth { copy_of: Some(later), ..state.birth.clone() }, ..state.clone() };
        let kept = own.head.change(dot, vec![own.head.keep()]);
        let lies = [
            dir_of(writer, 1, later, FileId::ROOT),
            dir_of(writer, 2, theirs(2), later),
            BundleChange::FileBorn { id: later, state: Box::new(state.clone()) },
            BundleChange::FileBorn { id: theirs(3), state: Box::new(copy) },
            BundleChange::FileChanged { id: later, change: state.change(dot, vec![state.unlink(link)]) },
            BundleChange::FileChanged { id, change: relinked },
            BundleChange::FileChanged { id, change: buried },
            BundleChange::DirChanged { id: later, change: kept },
            moves(writer, later, own.id, &[later, own.id]),
            moves(writer, own.id, later, &[later, own.id]),
        ];
        let refused = place.site.beside::<Machine>().peers().refused();
        let count = lies.len() as u64;
        lies.into_iter().for_each(|lie| place.tell(vec![lie]));
        let machine = place.site.beside::<Machine>();
        assert_eq!(machine.peers().refused() - refused, count);
        assert_eq!(machine.author().spine().place(later), None);
    }
    let before = place.names();
    assert_eq!(before, [("a".to_owned(), file), ("d".to_owned(), dir)].into());
    for at in 0..3 {
        place.site.mkdir(ROOT, &format!("{at}"));
    }
    place.check();
    assert_eq!(place.names().len(), 5);
}

/// Of these directories, each in the one before, another site removes all. It does not know what is in the last one.
fn removes(place: &mut Place, writer: Writer, dirs: &[Ino]) -> Vec<FileId> {
    let (mut ids, mut changes) = (Vec::new(), Vec::new());
    for (dir, n) in dirs.iter().zip(1..) {
        let DirBeside { id, head, .. } = place.dir(*dir);
        let gone = Dot { writer, n };
        changes.push(BundleChange::DirChanged { id, change: head.change(gone, head.remove(gone)) });
        ids.push(id);
    }
    changes.chunks(OBJECTS_MAX).for_each(|changes| place.tell(changes.to_vec()));
    ids
}

/// So many directories, each in the one before.
fn nested(place: &mut Place, mut above: Ino, name: &str, count: usize) -> Vec<Ino> {
    let mkdir = |_| {
        above = place.site.mkdir(above, name);
        above
    };
    (0..count).map(mkdir).collect()
}

#[test]
fn a_name_below_more_removed_directories_than_a_record_keeps_is_used() {
    let mut place = Place::new();
    let dirs = nested(&mut place, ROOT, "d", OBJECTS_MAX + 7);
    let last = *dirs.last().unwrap();
    let file = place.site.create(last, "f", Kind::Regular, b"");
    let ids = removes(&mut place, Writer(9), &dirs);
    place.check();
    let before = place.site.state().seq();
    place.site.create(last, "g", Kind::Regular, b"");
    place.chmod(file, 0o600);
    place.check();
    let paths: Vec<String> = place.shadow.tree().into_keys().collect();
    assert_eq!(paths.len(), dirs.len() + 2);
    assert!(place.shadow.plain().dirs.values().all(|head| !head.is_removed()), "all of them are kept");
    // Each bundle is one that another site takes. No directory is kept before the one in which it is.
    let author = place.site.beside::<Machine>().author();
    let made: Vec<_> = author.bundles(before, u64::MAX).unwrap().cloned().collect();
    let mut kept: Vec<Vec<FeedRow>> =
        made.iter().map(|bundle| bundle.changes.iter().map(BundleChange::object).collect()).collect();
    kept.truncate(2);
    let expected: Vec<Vec<FeedRow>> =
        ids.chunks(OBJECTS_MAX).map(|ids| ids.iter().map(|id| FeedRow::Dir { id: *id }).collect()).collect();
    assert_eq!((kept, made.len()), (expected, 4));
}

#[test]
fn a_file_is_moved_between_deep_removed_directories() {
    let mut place = Place::new();
    let above = nested(&mut place, ROOT, "d", 6);
    let [from, to] = ["a", "b"].map(|name| nested(&mut place, above[5], name, 30));
    place.site.create(from[29], "f", Kind::Regular, b"");
    let other = place.site.create(to[29], "f", Kind::Regular, b"");
    place.chmod(other, 0o600);
    let all: Vec<Ino> = above.iter().chain(&from).chain(&to).copied().collect();
    removes(&mut place, Writer(9), &all);
    place.check();
    let (name, new_name, mode) = (named("f"), named("g"), RenameMode::Replace);
    let op =
        Op::Rename { dir: from[29], name, new_dir: to[29], new_name, mode, meant: None, new_meant: None };
    place.site.does(op, b"");
    place.check();
    assert_eq!(place.shadow.tree().len(), all.len() + 2);
}

/// More than a record carries: it is put in place before it is decided.
const LARGE: usize = 100_000;

const fn write(ino: Ino) -> Op {
    Op::Write { ino, offset: 0, append: false, kill_set_id: false }
}

#[test]
fn a_file_in_which_somebody_writes_does_not_go_and_is_not_shown_as_one_with_another() {
    // Whichever of the two comes first.
    for is_later in [false, true] {
        let mut place = Place::new();
        let mut other = other_site(11);
        if is_later {
            (0..4).for_each(|_| place.chmod(ROOT, 0o755));
        }
        let ino = place.site.create(ROOT, "a", Kind::Regular, b"");
        other.create(ROOT, "a", Kind::Regular, b"");
        let id = place.site.begins(write(ino), vec![7; LARGE]);
        place.hears_all_of(&other);
        assert_eq!(place.names(), [("a".to_owned(), ino)].into());
        assert_eq!(place.shadow.plain().files.len(), 1, "the other one has not come yet");
        let outcome = place.site.ends(id);
        assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
        // It is asked for once more.
        place.hears_all_of(&other);
        // They are not equal any more.
        let names = place.names();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.contains_key("a") && names.values().any(|at| *at == ino), "{names:?}");
        assert_eq!(place.site.body(ino), [7; LARGE]);
    }
}

#[test]
fn a_file_in_which_somebody_writes_is_not_removed_by_another_site() {
    let mut place = Place::new();
    let ino = place.site.create(ROOT, "a", Kind::Regular, b"");
    let (file, state) = place.state(ino);
    let (link, at) = state.places().map(|(link, at)| (link, at.clone())).next().unwrap();
    let id = place.site.begins(write(ino), vec![7; LARGE]);
    let dot = Dot { writer: Writer(9), n: 1 };
    let stamp = HybridStamp { time_us: 2_000_000_000, writer: Writer(9) };
    let change = state.change(dot, vec![state.unlink(link), state.bury(dot, stamp, at.dir, at.name)]);
    place.tell(vec![BundleChange::FileChanged { id: file, change }]);
    let outcome = place.site.ends(id);
    assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
    place.check();
    assert_eq!(place.names(), [("a".to_owned(), ino)].into());
}

#[test]
fn a_write_that_ends_later_is_prepared_again() {
    let mut place = Place::new();
    let ino = place.site.create(ROOT, "a", Kind::Regular, b"");
    let mut other = other_site(11);
    // Later than this site, so that it takes the name.
    for _ in 0..4 {
        other.does(Op::SetAttr { ino: ROOT, set: SetAttr::default() }, b"");
    }
    other.create(ROOT, "a", Kind::Symlink, b"x");
    let id = place.site.begins(write(ino), vec![7; LARGE]);
    place.hears_all_of(&other);
    let beside = place.beside();
    assert_eq!(place.names()[&beside.to_string()], ino, "the other one has taken the name");
    assert_eq!(place.state(ino).1.places().next().unwrap().1.name, named("a"));
    let outcome = place.site.ends(id);
    assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
    place.check();
    assert_eq!(place.state(ino).1.places().next().unwrap().1.name, beside, "it says itself how it is shown");
    assert_eq!(place.names()[&beside.to_string()], ino);
}

/// Something may go with the write when it begins. When it ends, what comes before it cannot be decided: the directory that is to be kept has
/// as many writers as fit. If the file went that is shown as one with this one, that directory would go too.
#[test]
fn with_a_write_behind_which_nothing_can_be_kept_nothing_goes() {
    // An object has this many writers only if this site has known as many sites.
    let sites = (2..=4_096u64).map(|n| (MEMBERS, n.into(), MemberRow::Member { member: member(Writer(n)) }));
    let mut place = Place::with(sites.map(|(table, id, row)| (table, id, row.to_vec().into())));
    let dir = place.site.mkdir(ROOT, "d");
    let ino = place.site.create(dir, "f", Kind::Regular, b"");
    let state = place.state(ino).1;
    // Another site has an equal file in a directory of that name, which is older: the first of the two.
    let writer = Writer(5_000);
    let stamp = HybridStamp { time_us: 1, writer };
    let BundleChange::DirBorn { id, mut head } =
        dir_of(writer, 1, FileId::born(Dot { writer, n: 1 }), FileId::ROOT)
    else {
        unreachable!()
    };
    head.name.value = named("d");
    head.context.join(&(2..=4_096).map(|other| Dot { writer: Writer(other), n: 1 }).collect());
    let born = Dot { writer, n: 2 };
    let at = LinkPlace { stamp, dir: id, name: named("f"), entry: born };
    let (_, version) = state.versions.iter().next().unwrap();
    let theirs = FileState::new(state.birth.clone(), born, state.attrs.clone(), at, *version);
    let gone = Dot { writer, n: 3 };
    let removed = head.change(gone, head.remove(gone));
    place.tell(vec![
        BundleChange::DirBorn { id, head },
        BundleChange::FileBorn { id: FileId::born(born), state: Box::new(theirs) },
    ]);
    place.check();
    let before = place.shadow.tree();
    assert_eq!(before.len(), 2, "the directories are shown as one, and the files: {before:?}");
    let write = place.site.begins(write(ino), vec![7; LARGE]);
    place.tell(vec![BundleChange::DirChanged { id, change: removed }]);
    let outcome = place.site.ends(write);
    assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
    place.check();
    assert_eq!(place.site.beside::<Machine>().peers().refused(), 0);
    // With these bytes the file is not equal to the other one any more.
    let mut after = place.shadow.tree();
    let beside: Vec<String> = after.keys().filter(|path| path.contains('~')).cloned().collect();
    assert_eq!(beside.len(), 1, "{after:?}");
    after.remove(&beside[0]);
    assert_eq!((after, place.site.body(ino)), (before, &[7; LARGE][..]));
}

/// Found by `wide_sites` 248: the file had no name any more, and its row had a link.
#[test]
fn a_file_that_is_shown_beside_a_name_with_a_mark_avoids_a_name_that_is_taken_later() {
    let mut place = Place::new();
    let marked = "a.~s9-20260101-000000";
    let ino = place.site.create(ROOT, marked, Kind::Regular, b"");
    place.chmod(ino, 0o600);
    let mut other = other_site(11);
    for at in 0..3 {
        other.mkdir(ROOT, &format!("{at}"));
    }
    other.create(ROOT, marked, Kind::Regular, b"");
    place.hears_all_of(&other);
    place.check();
    let shown_at = |place: &Place| place.names().into_iter().find(|(_, at)| *at == ino).unwrap().0;
    let first = shown_at(&place);
    assert_ne!(first, marked);
    let mut third = other_site(12);
    let taker = third.create(ROOT, &first, Kind::Regular, b"");
    third.does(Op::SetAttr { ino: taker, set: SetAttr { mode: Some(0o640), ..SetAttr::default() } }, b"");
    place.hears_all_of(&third);
    place.check();
    assert_eq!(shown_at(&place), format!("{first}-2"));
    third.does(Op::Unlink { dir: ROOT, name: named(&first) }, b"");
    place.hears_all_of(&third);
    place.check();
    assert_eq!(shown_at(&place), first);
}

/// As above, but it is a user of this site who takes the name away: by a removal, or by another name.
#[test]
fn a_file_that_is_shown_beside_a_name_with_a_mark_stays_there_when_a_user_takes_that_name_away() {
    for is_removed in [true, false] {
        let mut place = Place::new();
        let marked = "a.~s9-20260101-000000";
        let ino = place.site.create(ROOT, marked, Kind::Regular, b"");
        place.chmod(ino, 0o600);
        let mut other = other_site(11);
        for at in 0..3 {
            other.mkdir(ROOT, &format!("{at}"));
        }
        other.create(ROOT, marked, Kind::Regular, b"");
        place.hears_all_of(&other);
        let shown_at = |place: &Place| place.names().into_iter().find(|(_, at)| *at == ino).unwrap().0;
        let first = shown_at(&place);
        let mut third = other_site(12);
        let taker = third.create(ROOT, &first, Kind::Regular, b"");
        third.does(Op::SetAttr { ino: taker, set: SetAttr { mode: Some(0o640), ..SetAttr::default() } }, b"");
        place.hears_all_of(&third);
        assert_eq!(shown_at(&place), format!("{first}-2"));
        if is_removed {
            place.unlink(&first);
        } else {
            let (dir, name, new_dir, new_name) = (ROOT, named(&first), ROOT, named("b"));
            let (mode, meant, new_meant) = (RenameMode::Replace, None, None);
            place.site.does(Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant }, b"");
        }
        place.check();
        assert_eq!(shown_at(&place), format!("{first}-2"));
    }
}

/// As above, but the name is taken in another directory that is shown as one with that of the file.
#[test]
fn a_file_that_is_shown_beside_a_name_avoids_what_is_in_another_directory_shown_as_one_with_its_own() {
    let mut place = Place::new();
    let marked = "a.~s9-20260101-000000";
    let dir = place.site.mkdir(ROOT, "d");
    let ino = place.site.create(dir, marked, Kind::Regular, b"");
    place.chmod(ino, 0o600);
    let mut other = other_site(11);
    // Later than this site.
    for at in 0..3 {
        other.mkdir(ROOT, &format!("{at}"));
    }
    let theirs = other.mkdir(ROOT, "d");
    other.create(theirs, marked, Kind::Regular, b"");
    place.hears_all_of(&other);
    let shown_at = |place: &Place| {
        let (names, _) = place.site.state().entries_after(dir, 0).unwrap();
        names.into_iter().find(|(_, _, entry)| entry.ino == ino).unwrap().1.to_string()
    };
    let first = shown_at(&place);
    assert_ne!(first, marked);
    let mut third = other_site(12);
    let theirs = third.mkdir(ROOT, "d");
    let taker = third.create(theirs, &first, Kind::Regular, b"");
    third.does(Op::SetAttr { ino: taker, set: SetAttr { mode: Some(0o640), ..SetAttr::default() } }, b"");
    place.hears_all_of(&third);
    assert_eq!(shown_at(&place), format!("{first}-2"));
    third.does(Op::Unlink { dir: theirs, name: named(&first) }, b"");
    place.hears_all_of(&third);
    assert_eq!(shown_at(&place), first);
}

#[test]
fn directories_that_are_shown_as_one_get_attributes_together() {
    let mut place = Place::new();
    let shown = place.site.mkdir(ROOT, "d");
    let mut other = other_site(11);
    let theirs = other.mkdir(ROOT, "d");
    place.hears_all_of(&other);
    place.check();
    assert_eq!(place.names(), [("d".to_owned(), shown)].into());
    place.chmod(shown, 0o700);
    let (name, value) = (Bytes::from_static(b"user.a"), Bytes::from_static(b"1"));
    place.site.does(Op::SetXattr { ino: shown, name, value, mode: XattrMode::Any, kill_sgid: false }, b"");
    place.check();
    // The other site gives its directory another name, so the two part.
    let (dir, new_dir, mode, meant, new_meant) = (ROOT, ROOT, RenameMode::Replace, None, None);
    other.does(
        Op::Rename { dir, name: named("d"), new_dir, new_name: named("e"), mode, meant, new_meant },
        b"",
    );
    place.hears_all_of(&other);
    place.check();
    let names = place.names();
    assert_eq!(names.len(), 2);
    for ino in names.values() {
        let row = place.site.state().dir(*ino).unwrap().unwrap();
        assert_eq!((row.fixed.mode & 0o777, row.has_xattrs), (0o700, true), "{names:?}, {theirs}");
    }
}

#[test]
fn a_write_to_a_file_with_many_names_looks_at_those_that_others_have() {
    let mut place = Place::new();
    let ino = place.site.create(ROOT, "a", Kind::Regular, b"");
    for at in 0..200 {
        place.site.does(Op::Link { ino, dir: ROOT, name: named(&format!("a{at}")) }, b"");
    }
    let mut other = other_site(11);
    for name in ["a7", "a199", "b"] {
        let theirs = other.create(ROOT, name, Kind::Regular, b"");
        other
            .does(Op::SetAttr { ino: theirs, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } }, b"");
    }
    place.hears_all_of(&other);
    place.check();
    let before = place.names();
    assert_eq!(before.len(), 204);
    place.chmod(ino, 0o600);
    place.check();
    assert_eq!(place.names(), before, "nothing is another file than before, though all are alike now");
}
