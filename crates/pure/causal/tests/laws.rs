//! The laws of joins, over states that sites can reach: three sites change one object, and take in each other's states and
//! changes in any order. And hostile bytes.

use atoll_causal::{
    AttrPart, AttrState, Context, DirBirth, DirChange, DirPart, DirState, Dot, EntryKey, EntryWord,
    FileBirth, FileChange, FileId, FilePart, FileState, FileVersion, HybridStamp, LinkPlace, Lww, Taken,
    Writer, XattrName, XattrValue,
};
use atoll_core::{Decode, Encode, Name, Time};
use atoll_posix::Kind;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

fn name(nth: u8) -> Name {
    Name::new(&[b'a' + nth % 3]).unwrap()
}

fn attrs() -> AttrState {
    AttrState::new(stamp(1), 0o644, 0, 0, Time::default())
}

fn stamp(n: u64) -> HybridStamp {
    // Stamps of several sites are equal in time now and then.
    HybridStamp { time_us: n / 2, writer: Writer(n % 2) }
}

fn place(n: u64, nth: u8) -> LinkPlace {
    let dir = FileId(u128::from(nth % 2) + 1);
    LinkPlace { stamp: stamp(n), dir, name: name(nth), entry: Dot { writer: Writer(7), n } }
}

fn xattr(dots: &AttrState, n: u64, nth: u8) -> AttrPart {
    let value = (!nth.is_multiple_of(3)).then(|| XattrValue::new(Bytes::from(vec![nth])).unwrap());
    let name = XattrName::new(Bytes::from(vec![b'u', nth % 2])).unwrap();
    dots.set_xattr(name, value.map(|value| Lww::new(stamp(n), value)))
}

/// A file or directory, as these tests use it.
trait Object: Clone + PartialEq + std::fmt::Debug + Encode + Decode {
    type Change: Clone + PartialEq + std::fmt::Debug + Encode + Decode;

    fn born() -> Self;
    /// A change by a user, drawn by two bytes.
    fn act(&self, dot: Dot, what: u8, nth: u8) -> Self::Change;
    fn take(&mut self, change: &Self::Change) -> Taken;
    fn join(&mut self, other: &Self) -> Taken;
    fn context(&self) -> &Context;
    fn dots(&self) -> Vec<Dot>;
}

impl Object for FileState {
    type Change = FileChange;

    fn born() -> Self {
        let dot = Dot { writer: Writer(9), n: 1 };
        let birth = FileBirth { kind: Kind::Regular, rdev: 0, target: Bytes::new(), copy_of: None };
        let version = FileVersion { stamp: stamp(1), size: 0, mtime: Time::default(), root: 0 };
        Self::new(birth, dot, attrs(), place(1, 0), version)
    }

    fn act(&self, dot: Dot, what: u8, nth: u8) -> FileChange {
        let link = self.places().map(|(link, _)| link).nth(usize::from(nth % 3));
        let version =
            FileVersion { stamp: stamp(dot.n), size: 1, mtime: Time::default(), root: dot.n.into() };
        let parts = match (what % 6, link) {
            (0, _) | (1 | 2, None) => vec![Self::link(dot, place(dot.n, nth))],
            (1, Some(link)) => vec![self.relink(link, place(dot.n, nth))],
            (2, Some(link)) => {
                vec![self.unlink(link), self.bury(dot, stamp(dot.n), FileId(1), name(nth))]
            }
            (3, _) => vec![FilePart::Attr { part: xattr(&self.attrs, dot.n, nth) }],
            (4, _) => {
                vec![FilePart::Attr { part: AttrPart::Mode { to: Lww::new(stamp(dot.n), nth.into()) } }]
            }
            _ if self.versions.len() > 1 && nth & 1 == 0 => {
                let kept = self.versions.highest().expect("there are two").0;
                let others = self.versions.dots().into_iter().filter(|dot| *dot != kept).collect();
                vec![Self::settle(others, kept)]
            }
            _ => vec![self.write(version)],
        };
        self.change(dot, parts)
    }

    fn take(&mut self, change: &FileChange) -> Taken {
        self.apply(change)
    }

    fn join(&mut self, other: &Self) -> Taken {
        Self::join(self, other)
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn dots(&self) -> Vec<Dot> {
        let links = self.links.iter().flat_map(|(_, places)| places.dots());
        links
            .chain(self.versions.dots())
            .chain(self.attrs.xattrs.iter().flat_map(|(_, x)| x.dots()))
            .collect()
    }
}

impl Object for DirState {
    type Change = DirChange;

    fn born() -> Self {
        let dot = Dot { writer: Writer(9), n: 1 };
        Self::new(DirBirth { stamp: stamp(1), parent: FileId::ROOT }, dot, attrs(), name(0))
    }

    fn act(&self, dot: Dot, what: u8, nth: u8) -> DirChange {
        let key = EntryKey { name: name(nth), child: FileId(u128::from(nth % 2) + 1) };
        let based: Context = [Dot { writer: Writer(3), n: dot.n }].into_iter().collect();
        let parts = match what % 6 {
            0 => vec![self.head.keep()],
            1 => self.head.remove(dot),
            2 => self.head.rename(stamp(dot.n), name(nth)),
            3 => vec![DirPart::Attr { part: xattr(&self.head.attrs, dot.n, nth) }],
            4 => vec![self.remove_entry(key, based)],
            _ => {
                vec![self.add_entry(
                    key,
                    EntryWord { stamp: stamp(dot.n), is_dir: nth & 1 == 1 },
                    Context::default(),
                )]
            }
        };
        self.head.change(dot, parts)
    }

    fn take(&mut self, change: &DirChange) -> Taken {
        self.apply(change)
    }

    fn join(&mut self, other: &Self) -> Taken {
        Self::join(self, other)
    }

    fn context(&self) -> &Context {
        &self.head.context
    }

    fn dots(&self) -> Vec<Dot> {
        let entries = self.entries.iter().flat_map(|(_, dots)| dots.dots());
        entries
            .chain(self.head.alive.dots())
            .chain(self.head.attrs.xattrs.iter().flat_map(|(_, x)| x.dots()))
            .collect()
    }
}

/// Three sites after some steps, and all changes that were made.
fn reached<O: Object>(steps: &[(u8, u8, u8)]) -> ([O; 3], Vec<O::Change>) {
    let mut sites = [O::born(), O::born(), O::born()];
    let mut changes: Vec<O::Change> = Vec::new();
    let mut n = 1;
    for (who, what, nth) in steps {
        let at = usize::from(who % 3);
        let from = usize::from(nth % 3);
        match what % 10 {
            0..=5 => {
                n += 1;
                let change = sites[at].act(Dot { writer: Writer(at as u64), n }, *what, *nth);
                assert_eq!(sites[at].take(&change), Taken::Applied);
                assert_eq!(sites[at].take(&change), Taken::Known);
                changes.push(change);
            }
            6 => {
                let other = sites[from].clone();
                sites[at].join(&other);
            }
            _ => {
                if !changes.is_empty() {
                    sites[at].take(&changes[usize::from(*nth) % changes.len()]);
                }
            }
        }
    }
    (sites, changes)
}

fn joined<O: Object>(a: &O, b: &O) -> O {
    let mut both = a.clone();
    both.join(b);
    both
}

fn laws_hold<O: Object>(steps: &[(u8, u8, u8)], order: &[u16]) -> Result<(), TestCaseError> {
    let ([a, b, c], changes) = reached::<O>(steps);
    let ab = joined(&a, &b);
    prop_assert_eq!(&ab, &joined(&b, &a));
    prop_assert_eq!(joined(&ab, &c), joined(&a, &joined(&b, &c)));
    prop_assert_eq!(&joined(&a, &a), &a);
    prop_assert_eq!(&joined(&ab, &b), &ab);
    prop_assert_eq!(ab.to_vec(), joined(&b, &a).to_vec());
    prop_assert_eq!(ab.clone().join(&a), Taken::Known);
    for (state, other) in [(&a, &b), (&b, &a)] {
        prop_assert!(ab.context().includes(state.context()));
        let uncovered = |dot: &Dot| !other.context().covers(*dot);
        prop_assert!(state.dots().iter().filter(|dot| uncovered(dot)).all(|dot| ab.dots().contains(dot)));
    }
    // Changes one by one, late, twice, in any order, make the same state.
    let all = joined(&ab, &c);
    let mut state = O::born();
    let mut left = changes.clone();
    let mut turn = order.iter().cycle();
    while !left.is_empty() {
        let at = usize::from(*turn.next().unwrap_or(&0)) % left.len();
        state.take(&changes[at]);
        match state.take(&left[at]) {
            Taken::Applied | Taken::Known => drop(left.remove(at)),
            Taken::Gap => {
                // The first of those that are left has no cause that is missing.
                prop_assert!(matches!(state.take(&left[0]), Taken::Applied | Taken::Known));
                left.remove(0);
            }
            Taken::Full => prop_assert!(false, "four writers are not too many"),
        }
    }
    prop_assert_eq!(&state, &all);
    // Bytes.
    for state in [&a, &all] {
        let bytes = state.to_vec();
        prop_assert_eq!(bytes.len(), state.encoded_len());
        prop_assert_eq!(&O::from_slice(&bytes).unwrap(), state);
    }
    for change in &changes {
        let bytes = change.to_vec();
        prop_assert_eq!(bytes.len(), change.encoded_len());
        prop_assert_eq!(&O::Change::from_slice(&bytes).unwrap(), change);
    }
    Ok(())
}

/// Bytes that can be read are the only bytes of what they say.
fn canonical<T: Encode + Decode>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(value) = T::from_slice(bytes) {
        prop_assert_eq!(value.to_vec(), bytes);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn states_of_files_join(steps in vec(any::<(u8, u8, u8)>(), 0..60), order in vec(any::<u16>(), 1..40)) {
        laws_hold::<FileState>(&steps, &order)?;
    }

    #[test]
    fn states_of_directories_join(steps in vec(any::<(u8, u8, u8)>(), 0..60), order in vec(any::<u16>(), 1..40)) {
        laws_hold::<DirState>(&steps, &order)?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        canonical::<FileState>(&bytes)?;
        canonical::<DirState>(&bytes)?;
        canonical::<FileChange>(&bytes)?;
        canonical::<DirChange>(&bytes)?;
        canonical::<Context>(&bytes)?;
    }

    #[test]
    fn damaged_bytes_are_read_or_refused(
        steps in vec(any::<(u8, u8, u8)>(), 0..30), at in any::<u16>(), byte in any::<u8>(), cut in any::<bool>()
    ) {
        let ([file, ..], files) = reached::<FileState>(&steps);
        let ([dir, ..], dirs) = reached::<DirState>(&steps);
        let change = |bytes: Option<Vec<u8>>| bytes.unwrap_or_default();
        let all = [
            file.to_vec(), dir.to_vec(), change(files.last().map(Encode::to_vec)), change(dirs.last().map(Encode::to_vec)),
        ];
        for mut bytes in all {
            if bytes.is_empty() {
                continue;
            }
            let at = usize::from(at) % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            canonical::<FileState>(&bytes)?;
            canonical::<DirState>(&bytes)?;
            canonical::<FileChange>(&bytes)?;
            canonical::<DirChange>(&bytes)?;
        }
    }
}

#[test]
fn a_removal_of_what_was_not_seen_here_waits() {
    let mut here = FileState::born();
    let mut there = here.clone();
    let first = there.change(
        Dot { writer: Writer(1), n: 2 },
        vec![FileState::link(Dot { writer: Writer(1), n: 2 }, place(2, 1))],
    );
    there.apply(&first);
    let second =
        there.change(Dot { writer: Writer(2), n: 1 }, vec![there.unlink(Dot { writer: Writer(1), n: 2 })]);
    there.apply(&second);
    // Its writer is new here, so that nothing before it is missing. But what it removes has not come.
    assert_eq!(here.apply(&second), Taken::Gap);
    assert_eq!(here.apply(&first), Taken::Applied);
    assert_eq!(here.apply(&second), Taken::Applied);
    assert_eq!(here, there);
}

#[test]
fn a_change_before_which_one_is_missing_waits() {
    let mut here = FileState::born();
    let mut there = here.clone();
    let first = there.act(Dot { writer: Writer(1), n: 5 }, 5, 0);
    there.apply(&first);
    let second = there.act(Dot { writer: Writer(1), n: 9 }, 4, 1);
    there.apply(&second);
    let before = here.clone();
    assert_eq!(here.apply(&second), Taken::Gap);
    assert_eq!(here, before);
    assert_eq!(here.join(&there), Taken::Applied);
    assert_eq!((here.apply(&first), here.apply(&second)), (Taken::Known, Taken::Known));
}

#[test]
fn an_object_takes_no_more_writers_than_fit() {
    let mut here = FileState::born();
    let mut there = here.clone();
    for writer in 100..100 + Context::WRITERS_MAX as u64 - 1 {
        let change = here.act(Dot { writer: Writer(writer), n: 1 }, 4, 0);
        assert_eq!(here.apply(&change), Taken::Applied);
    }
    let change = here.act(Dot { writer: Writer(1), n: 1 }, 4, 0);
    assert_eq!(here.apply(&change), Taken::Full);
    assert_eq!(FileState::from_slice(&here.to_vec()).unwrap(), here);
    let change = there.act(Dot { writer: Writer(1), n: 1 }, 4, 0);
    assert_eq!(there.apply(&change), Taken::Applied);
    let before = here.clone();
    assert_eq!(here.join(&there), Taken::Full);
    assert_eq!(here, before);
    // Who was there goes on.
    let change = here.act(Dot { writer: Writer(100), n: 2 }, 4, 0);
    assert_eq!(here.apply(&change), Taken::Applied);
}
