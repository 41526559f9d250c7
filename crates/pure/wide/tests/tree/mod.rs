//! A simple tree of objects, made of what was watched alone, and its comparison with the model.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, Name, SessionId, Time};
use atoll_model::{Model, Outcome};
use atoll_posix::{Answer, Attr, Caller, Kind, Op};
use atoll_proto::EntryRef;
use atoll_wide::watch::{AttrValue, Birth, ByteRanges, Happened, LocalObject};
use bytes::Bytes;

/// One operation may give several times, a nanosecond apart each.
const APART_NS: u64 = 100;

/// How often each kind of thing has happened.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// A file or a directory.
struct Object {
    object: LocalObject,
    birth: Birth,
    xattrs: BTreeMap<Bytes, Bytes>,
    names: BTreeSet<EntryRef>,
    /// What is told of its bytes since the last version.
    changed: ByteRanges,
    size: u64,
    /// Its bytes, and its bytes as the last version has them.
    bytes: Vec<u8>,
    version: Vec<u8>,
}

impl Object {
    fn new(object: LocalObject, birth: Birth, names: BTreeSet<EntryRef>) -> Self {
        let (bytes, version) = (Vec::new(), Vec::new());
        Self {
            object,
            birth,
            xattrs: BTreeMap::new(),
            names,
            changed: ByteRanges::default(),
            size: 0,
            bytes,
            version,
        }
    }
}

/// See the module.
pub(crate) struct Tree {
    objects: BTreeMap<Ino, Object>,
    names: BTreeMap<Ino, BTreeMap<Name, Ino>>,
    pub(crate) counts: Counts,
}

impl Tree {
    /// The tree of a site where nothing has happened.
    pub(crate) fn new(root: &Attr) -> Self {
        let Attr { kind, mode, uid, gid, mtime, .. } = *root;
        let birth = Birth { kind, mode, uid, gid, mtime, rdev: 0, target: Bytes::new() };
        let object = Object::new(LocalObject::Dir(Ino::ROOT), birth, BTreeSet::new());
        let objects = BTreeMap::from([(Ino::ROOT, object)]);
        Self { objects, names: BTreeMap::from([(Ino::ROOT, BTreeMap::new())]), counts: Counts::new() }
    }

    fn known(&mut self, object: LocalObject) -> &mut Object {
        let known = self.objects.get_mut(&object.ino());
        let known = known.unwrap_or_else(|| panic!("{object:?} is not there, and something happens to it"));
        assert_eq!(known.object, object);
        known
    }

    fn name(&mut self, object: LocalObject, at: &EntryRef, now: Time) {
        let names = self.names.get_mut(&at.dir).unwrap_or_else(|| panic!("{at:?} is in no directory"));
        assert_eq!(names.insert(at.name.clone(), object.ino()), None, "{at:?} is taken");
        assert!(self.known(object).names.insert(at.clone()));
        self.known(LocalObject::Dir(at.dir)).birth.mtime = now;
    }

    fn unname(&mut self, object: LocalObject, at: &EntryRef, now: Time) {
        let names = self.names.get_mut(&at.dir).unwrap_or_else(|| panic!("{at:?} is in no directory"));
        assert_eq!(names.remove(&at.name), Some(object.ino()), "{at:?}");
        assert!(self.known(object).names.remove(at));
        self.known(LocalObject::Dir(at.dir)).birth.mtime = now;
    }

    /// Something happens by an operation at this time.
    pub(crate) fn apply(&mut self, happened: &Happened, now: Time) {
        *self.counts.entry(kind_of(happened)).or_default() += 1;
        match happened {
            Happened::Removed { object, at, is_last } => {
                self.unname(*object, at, now);
                assert_eq!(self.known(*object).names.is_empty(), *is_last, "{happened:?}");
                if *is_last {
                    self.objects.remove(&object.ino());
                    let names = self.names.remove(&object.ino());
                    assert!(names.is_none_or(|names| names.is_empty()), "{happened:?} has names");
                }
            }
            Happened::Moved { object, from, to } => {
                self.unname(*object, from, now);
                self.name(*object, to, now);
            }
            Happened::Exchanged { one, one_from, other, other_from } => {
                self.unname(*one, one_from, now);
                self.unname(*other, other_from, now);
                self.name(*one, other_from, now);
                self.name(*other, one_from, now);
            }
            Happened::Born { object, at, birth } => {
                let new = Object::new(*object, birth.clone(), BTreeSet::new());
                assert!(self.objects.insert(object.ino(), new).is_none(), "{object:?} is made twice");
                if let LocalObject::Dir(ino) = object {
                    self.names.insert(*ino, BTreeMap::new());
                }
                self.name(*object, at, now);
            }
            Happened::Linked { ino, at } => self.name(LocalObject::File(*ino), at, now),
            Happened::AttrChanged { object, to } => self.change(*object, to),
            Happened::Written { ino, size, ranges, mtime } => {
                let known = self.known(LocalObject::File(*ino));
                assert!(*size != known.size || !ranges.is_empty(), "{happened:?} changes nothing");
                assert!(ranges.iter().all(|range| range.end <= *size), "{happened:?}");
                known.birth.mtime = *mtime;
                known.size = *size;
                known.changed.cut(*size);
                ranges.iter().for_each(|range| known.changed.add(range.clone()));
            }
        }
    }

    fn change(&mut self, object: LocalObject, to: &AttrValue) {
        let Object { birth, xattrs, .. } = self.known(object);
        let before = match to {
            AttrValue::Mode(mode) => AttrValue::Mode(std::mem::replace(&mut birth.mode, *mode)),
            AttrValue::Uid(uid) => AttrValue::Uid(std::mem::replace(&mut birth.uid, *uid)),
            AttrValue::Gid(gid) => AttrValue::Gid(std::mem::replace(&mut birth.gid, *gid)),
            AttrValue::Mtime(mtime) => AttrValue::Mtime(std::mem::replace(&mut birth.mtime, *mtime)),
            AttrValue::Xattr { name, value: Some(value) } => {
                AttrValue::Xattr { name: name.clone(), value: xattrs.insert(name.clone(), value.clone()) }
            }
            AttrValue::Xattr { name, value: None } => {
                AttrValue::Xattr { name: name.clone(), value: xattrs.remove(name) }
            }
        };
        assert_ne!(&before, to, "of {object:?} that was so before");
    }

    /// What one operation wrote is put in place. The bytes of a file are told by what happened, and by the ranges of the body that it
    /// names. `cuts`: a version of these files is cut now, from all that happened since the last one.
    pub(crate) fn put_in_place<'a>(
        &mut self,
        happened: &[Happened],
        body: impl Fn(Ino) -> &'a [u8],
        cuts: bool,
    ) {
        for happened in happened {
            let Happened::Written { ino, size, ranges, .. } = happened else { continue };
            let Some(known) = self.objects.get_mut(ino) else { continue };
            patch(&mut known.bytes, *size, ranges, body(*ino));
            if cuts {
                patch(&mut known.version, *size, &std::mem::take(&mut known.changed), body(*ino));
                assert!(known.version == known.bytes, "the version of {ino} that is cut has other bytes");
            }
        }
    }

    /// Compares all but bytes with the model.
    pub(crate) fn compare(&self, model: &mut Model) {
        let there: Vec<Attr> = model.inos().filter_map(|ino| model.attr(ino)).copied().collect();
        let there: Vec<Attr> = there.into_iter().filter(|attr| attr.nlink > 0).collect();
        assert_eq!(there.len(), self.objects.len(), "objects");
        for attr in there {
            let ino = attr.ino;
            let known = self.objects.get(&ino).unwrap_or_else(|| panic!("{ino} is not known"));
            let Birth { kind, mode, uid, gid, mtime, rdev, ref target } = known.birth;
            let (told, is) = ((kind, mode, uid, gid), (attr.kind, attr.mode, attr.uid, attr.gid));
            assert_eq!(told, is, "type, mode, owner and group of {ino}");
            assert!(
                mtime.nanos_from(attr.mtime) <= APART_NS,
                "mtime of {ino}: {mtime:?} for {:?}",
                attr.mtime
            );
            if kind == Kind::Directory {
                let is: BTreeMap<Name, Ino> =
                    model.children(ino).map(|(name, ino)| (name.clone(), ino)).collect();
                assert_eq!(self.names.get(&ino), Some(&is), "names in {ino}");
            } else {
                assert_eq!(rdev, attr.rdev, "device number of {ino}");
                assert_eq!(known.names.len(), attr.nlink as usize, "links of {ino}");
            }
            match kind {
                Kind::Regular => assert_eq!(known.size, attr.size, "length of {ino}"),
                Kind::Symlink => assert_eq!(target, &ask(model, Op::Readlink { ino }), "target of {ino}"),
                _ => {}
            }
            assert_eq!(known.xattrs, xattrs(model, ino), "extended attributes of {ino}");
        }
    }

    /// Compares the bytes of a file with the model, if it is there and has a name.
    pub(crate) fn compare_bytes(&self, model: &mut Model, ino: Ino) {
        let attr = model.attr(ino).filter(|attr| attr.kind == Kind::Regular && attr.nlink > 0);
        let Some(len) = attr.map(|attr| attr.size as u32) else { return };
        let is = ask(model, Op::Read { ino, offset: 0, len });
        assert!(self.objects[&ino].bytes == is, "bytes of {ino}");
    }

    /// Compares all bytes with the model.
    pub(crate) fn compare_all_bytes(&self, model: &mut Model) {
        self.objects.keys().for_each(|ino| self.compare_bytes(model, *ino));
    }
}

/// What the superuser is answered, who changes nothing by asking.
fn ask(model: &mut Model, op: Op) -> Vec<u8> {
    match model.apply(Time::default(), SessionId(0), &Caller::ROOT, &op, &[]) {
        Ok(Outcome::Answered(Answer::Data, data)) => data,
        other => panic!("{op:?}: {other:?}"),
    }
}

fn xattrs(model: &mut Model, ino: Ino) -> BTreeMap<Bytes, Bytes> {
    let names = ask(model, Op::ListXattr { ino });
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let name = Bytes::copy_from_slice(name);
        (name.clone(), ask(model, Op::GetXattr { ino, name }).into())
    };
    names.map(value).collect()
}

/// Bytes become those of `now` in these ranges.
fn patch(bytes: &mut Vec<u8>, size: u64, ranges: &ByteRanges, now: &[u8]) {
    bytes.resize(size as usize, 0);
    for range in ranges.iter().map(|range| range.start as usize..range.end as usize) {
        bytes[range.clone()].copy_from_slice(&now[range]);
    }
}

const fn kind_of(happened: &Happened) -> &'static str {
    match happened {
        Happened::Removed { object: LocalObject::Dir(_), .. } => "directory removed",
        Happened::Removed { is_last: true, .. } => "last name removed",
        Happened::Removed { is_last: false, .. } => "name removed",
        Happened::Moved { object: LocalObject::Dir(_), .. } => "directory moved",
        Happened::Moved { .. } => "file moved",
        Happened::Exchanged { one: LocalObject::Dir(_), other: LocalObject::Dir(_), .. } => {
            "directories exchanged"
        }
        Happened::Exchanged { one: LocalObject::File(_), other: LocalObject::File(_), .. } => {
            "files exchanged"
        }
        Happened::Exchanged { .. } => "file and directory exchanged",
        Happened::Born { object: LocalObject::Dir(_), .. } => "directory born",
        Happened::Born { birth: Birth { kind: Kind::Regular, .. }, .. } => "file born",
        Happened::Born { birth: Birth { kind: Kind::Symlink, .. }, .. } => "symbolic link born",
        Happened::Born { .. } => "special file born",
        Happened::Linked { .. } => "linked",
        Happened::AttrChanged { object, to } => match (object, to) {
            (LocalObject::File(_), AttrValue::Mode(_)) => "mode of a file",
            (LocalObject::File(_), AttrValue::Uid(_)) => "owner of a file",
            (LocalObject::File(_), AttrValue::Gid(_)) => "group of a file",
            (LocalObject::File(_), AttrValue::Mtime(_)) => "mtime of a file",
            (LocalObject::File(_), AttrValue::Xattr { value: Some(_), .. }) => "attribute of a file set",
            (LocalObject::File(_), AttrValue::Xattr { value: None, .. }) => "attribute of a file removed",
            (LocalObject::Dir(_), AttrValue::Mode(_)) => "mode of a directory",
            (LocalObject::Dir(_), AttrValue::Uid(_)) => "owner of a directory",
            (LocalObject::Dir(_), AttrValue::Gid(_)) => "group of a directory",
            (LocalObject::Dir(_), AttrValue::Mtime(_)) => "mtime of a directory",
            (LocalObject::Dir(_), AttrValue::Xattr { value: Some(_), .. }) => "attribute of a directory set",
            (LocalObject::Dir(_), AttrValue::Xattr { value: None, .. }) => "attribute of a directory removed",
        },
        Happened::Written { ranges, .. } if ranges.is_empty() => "cut",
        Happened::Written { .. } => "written",
    }
}
