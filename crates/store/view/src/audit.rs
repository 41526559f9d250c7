//! Comparing the plain tree and the bodies with the whole state. Changes nothing.

use std::collections::BTreeSet;
use std::io;

use atoll_core::map::{IdMap, IdSet};
use atoll_core::{Ino, Name};
use atoll_disk::{Disk, FileKind, Stat};
use atoll_posix::Kind;
use atoll_proto::{Dir, Inode, Xattrs};

use crate::attributes::is_managed;
use crate::files::{native_kind, time_of};
use crate::lay::name_path;
use crate::{Spilled, TREE, View, Whole};

/// One difference between the state and what lies on the disk. Paths are native, beneath the
/// island's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A name of the state is not there.
    MissingName {
        /// Where it should be.
        path: Vec<u8>,
        /// What it should name.
        ino: Ino,
    },
    /// A name is there that the state does not have.
    ForeignName {
        /// Where.
        path: Vec<u8>,
    },
    /// A name leads to something else than in the state.
    WrongObject {
        /// Where.
        path: Vec<u8>,
        /// What it should name.
        ino: Ino,
    },
    /// An attribute differs.
    Attribute {
        /// The file or directory.
        ino: Ino,
        /// Which one: "mode", "owner", "size", "mtime" or "xattrs".
        what: &'static str,
    },
    /// A file has no native object.
    BodyMissing {
        /// The file.
        ino: Ino,
    },
    /// Something among the bodies that belongs to no file of the state.
    OrphanBody {
        /// Where.
        path: Vec<u8>,
    },
    /// Something among the extended attributes that were refused natively that belongs to no file or directory.
    OrphanXattrs {
        /// Where.
        path: Vec<u8>,
    },
    /// A file was changed from outside since it was laid.
    ChangedByHand {
        /// The file.
        ino: Ino,
    },
    /// A directory of the state lies in none that the state has, up to the root.
    NoPath {
        /// The directory.
        ino: Ino,
    },
}

impl<D: Disk> View<D> {
    /// Names every difference between the whole state and what lies on the disk. Everything must have
    /// been laid, and nothing may change meanwhile. Device files count only where they are made.
    pub fn audit(&self, whole: &dyn Whole) -> io::Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let dirs = Skeleton::read(whole, &mut findings)?;
        let (mut known, mut absent, mut of_files) = (IdSet::default(), IdSet::default(), Vec::new());
        for ino in whole.inodes() {
            let ino = ino?;
            known.insert(ino);
            match whole.inode(ino)? {
                // It has no names here, and its body has what has come so far.
                Some(row) if row.is_absent => drop(absent.insert(ino)),
                Some(row) => self.audit_file(ino, &row, whole, &mut of_files)?,
                None => {}
            }
        }
        for (ino, row) in &dirs.rows {
            self.audit_dir(*ino, row, (&dirs, &absent), whole, &mut findings)?;
        }
        findings.append(&mut of_files);
        self.audit_bodies(&known, &mut findings)?;
        for name in crate::spill::list(&*self.disk)? {
            let belongs =
                |(ino, is_dir)| if is_dir { dirs.rows.contains_key(&ino) } else { known.contains(&ino) };
            if !crate::spill_of(&name).is_some_and(belongs) {
                findings.push(Finding::OrphanXattrs { path: crate::join(crate::XATTRS, &name) });
            }
        }
        Ok(findings)
    }

    fn audit_dir(
        &self,
        ino: Ino,
        row: &Dir,
        (dirs, absent): (&Skeleton, &IdSet<Ino>),
        whole: &dyn Whole,
        findings: &mut Vec<Finding>,
    ) -> io::Result<()> {
        let Some(path) = dirs.path(ino) else {
            findings.push(Finding::NoPath { ino });
            return Ok(());
        };
        let Some(stat) = self.look(&path)? else {
            findings.push(Finding::MissingName { path, ino });
            return Ok(());
        };
        let mark = self.index.dir(ino)?;
        let is_ours = ino == Ino::ROOT || mark.is_some_and(|mark| mark.native == stat.ino);
        if stat.kind != FileKind::Directory || !is_ours {
            findings.push(Finding::WrongObject { path: path.clone(), ino });
        }
        if stat.kind != FileKind::Directory {
            return Ok(());
        }
        let xattrs = if row.has_xattrs { whole.xattrs(ino)? } else { None };
        let fixed = &row.fixed;
        let mtime = row.owned.as_ref().map(|owned| owned.mtime);
        let want = Common { kind: Kind::Directory, mode: fixed.mode, owner: (fixed.uid, fixed.gid), mtime };
        self.audit_common(ino, &path, &stat, want, xattrs.as_ref(), findings)?;
        let mut expected: BTreeSet<Vec<u8>> = BTreeSet::new();
        for name in dirs.below.get(&ino).into_iter().flatten() {
            expected.insert(name.as_bytes().to_vec());
        }
        for item in whole.names(ino) {
            let (name, entry) = item?;
            let is_here = entry.home == self.options.island && !absent.contains(&entry.ino);
            if entry.kind == Kind::Directory || !is_here || !self.makes(entry.kind) {
                continue;
            }
            let at = name_path(&path, &name);
            match (self.look(&at)?, self.look(&self.bodies.path(entry.ino))?) {
                (None, _) => findings.push(Finding::MissingName { path: at, ino: entry.ino }),
                (Some(here), Some(body)) if here.ino == body.ino => {}
                _ => findings.push(Finding::WrongObject { path: at, ino: entry.ino }),
            }
            expected.insert(name.as_bytes().to_vec());
        }
        for (name, _) in self.disk.list(&path)? {
            if !expected.contains(&name) {
                findings.push(Finding::ForeignName { path: crate::join(&path, &name) });
            }
        }
        Ok(())
    }

    fn audit_file(
        &self,
        ino: Ino,
        row: &Inode,
        whole: &dyn Whole,
        findings: &mut Vec<Finding>,
    ) -> io::Result<()> {
        let attr = &row.attr;
        if !self.makes(attr.kind) {
            return Ok(());
        }
        let path = self.bodies.path(ino);
        let Some(stat) = self.look(&path)? else {
            // Without a name, an empty one never got a native object.
            if attr.nlink > 0 || (attr.kind == Kind::Regular && attr.size > 0) {
                findings.push(Finding::BodyMissing { ino });
            }
            return Ok(());
        };
        if stat.kind != native_kind(attr.kind) {
            findings.push(Finding::WrongObject { path, ino });
            return Ok(());
        }
        let Some(mark) = self.index.file(ino)? else { return Ok(()) }; // Never laid.
        if mark.differs(&stat) {
            findings.push(Finding::ChangedByHand { ino });
        }
        if attr.kind == Kind::Regular && stat.size != attr.size {
            findings.push(Finding::Attribute { ino, what: "size" });
        }
        if attr.kind == Kind::Symlink && Some(&self.disk.readlink(&path)?[..]) != row.target.as_deref() {
            findings.push(Finding::Attribute { ino, what: "target" });
        }
        let xattrs = if row.has_xattrs { whole.xattrs(ino)? } else { None };
        let owner = (attr.uid, attr.gid);
        let want = Common { kind: attr.kind, mode: attr.mode, owner, mtime: Some(attr.mtime) };
        self.audit_common(ino, &path, &stat, want, xattrs.as_ref(), findings)
    }

    fn audit_common(
        &self,
        ino: Ino,
        path: &[u8],
        stat: &Stat,
        want: Common,
        xattrs: Option<&Xattrs>,
        findings: &mut Vec<Finding>,
    ) -> io::Result<()> {
        let mut differs = |what, differs: bool| {
            if differs {
                findings.push(Finding::Attribute { ino, what });
            }
        };
        let mode = self.native_mode(want.kind, want.mode);
        differs("mode", want.kind != Kind::Symlink && stat.mode != mode);
        differs("owner", self.options.root && (stat.uid, stat.gid) != want.owner);
        differs("mtime", want.mtime.is_some_and(|mtime| mtime != time_of(stat.mtime)));
        // What a daemon that is not root needs on a file changes its ACL.
        let compared = |name: &[u8]| {
            is_managed(name)
                && self.carries(want.kind, name)
                && (self.options.root || !name.starts_with(b"system."))
        };
        let rows = xattrs.map(|x| &x.0[..]).unwrap_or_default();
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> =
            rows.iter().filter(|(n, _)| compared(n)).map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
        rows.sort();
        let mut native = self.native_xattrs(path, want.kind)?;
        let is_dir = want.kind == Kind::Directory;
        if let Some(spilled) = self.spilled_of(ino, is_dir)? {
            // What cannot be found by its path is as good as lost.
            let found = !is_dir || spilled.path == path;
            native = merged(native, if found { Some(&spilled) } else { None });
        }
        native.retain(|(name, _)| compared(name));
        differs("xattrs", rows != native);
        Ok(())
    }

    fn audit_bodies(&self, known: &IdSet<Ino>, findings: &mut Vec<Finding>) -> io::Result<()> {
        let prefix = self.bodies.prefix();
        for (folder, kind) in self.disk.list(prefix)? {
            let folder = crate::join(prefix, &folder);
            if kind != FileKind::Directory {
                findings.push(Finding::OrphanBody { path: folder });
                continue;
            }
            for (name, _) in self.disk.list(&folder)? {
                let path = crate::join(&folder, &name);
                let ino = atoll_body::ino_of(&name).filter(|ino| known.contains(ino));
                if ino.is_none_or(|ino| self.bodies.path(ino) != path) {
                    findings.push(Finding::OrphanBody { path });
                }
            }
        }
        Ok(())
    }
}

/// Native extended attributes, and what was refused of them, sorted. Natively they are newer, where both have one.
pub(crate) fn merged(
    mut native: Vec<(Vec<u8>, Vec<u8>)>,
    spilled: Option<&Spilled>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    for (name, value) in spilled.map(|spilled| &spilled.xattrs.0[..]).unwrap_or_default() {
        if !native.iter().any(|(n, _)| n == name) {
            native.push((name.to_vec(), value.to_vec()));
        }
    }
    native.sort();
    native
}

struct Common {
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    mtime: Option<atoll_core::Time>,
}

/// All directories of the state, and where it says that they are.
struct Skeleton {
    rows: IdMap<Ino, Dir>,
    below: IdMap<Ino, Vec<Name>>,
}

impl Skeleton {
    fn read(whole: &dyn Whole, findings: &mut Vec<Finding>) -> io::Result<Self> {
        let mut rows = IdMap::default();
        let mut below: IdMap<Ino, Vec<Name>> = IdMap::default();
        for ino in whole.dirs() {
            let ino = ino?;
            let Some(row) = whole.dir(ino)? else { continue };
            if let Some(name) = &row.place.name {
                below.entry(row.place.parent).or_default().push(name.clone());
            } else if ino != Ino::ROOT {
                findings.push(Finding::NoPath { ino });
            }
            rows.insert(ino, row);
        }
        Ok(Self { rows, below })
    }

    fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            let place = &self.rows.get(&at)?.place;
            names.push(place.name.as_ref()?);
            if names.len() > self.rows.len() {
                return None; // In a circle.
            }
            at = place.parent;
        }
        let mut path = TREE.to_vec();
        for name in names.iter().rev() {
            path = name_path(&path, name);
        }
        Some(path)
    }
}
