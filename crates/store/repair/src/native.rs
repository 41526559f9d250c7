//! The files on the disk beside the rows: native files, plain directories, bodies without a file. Reads only.

use std::io;
use std::sync::Arc;

use atoll_check::Rows;
use atoll_core::sum::{BLOCK_BYTES, sum};
use atoll_core::{Ino, IslandId, Name, Time};
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow, Stat};
use atoll_dispatch::Engine;
use atoll_posix::{Attr, Kind};
use atoll_state::key::SUMS_PER_CHUNK;
use atoll_view::{Finding, TREE};
use bytes::Bytes;

/// Rows that are read at once.
const PAGE: usize = 4096;
/// Bytes that are read at once: those whose checksums share a row.
const READ_BYTES: u64 = SUMS_PER_CHUNK * BLOCK_BYTES;

/// A native file among the bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lying {
    /// Its type.
    pub kind: Kind,
    /// Its length in bytes.
    pub size: u64,
}

/// Access to the native files.
pub trait Native {
    /// The body of a file.
    fn body(&self, island: IslandId, ino: Ino) -> Option<Lying>;
    /// Whether an island's plain tree has a directory at this path, and nothing in it.
    fn is_empty_dir(&self, island: IslandId, path: &[Name]) -> bool;
}

/// A body that belongs to no file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The island in whose folder it lies.
    pub island: IslandId,
    /// Its id, with the attributes of its native file.
    pub attr: Attr,
    /// Target of a symbolic link.
    pub target: Option<Bytes>,
    /// Checksums of its blocks, from these on.
    pub sums: Vec<(u64, Vec<u32>)>,
}

/// The disks of some islands.
impl<D: Disk> Native for Vec<Arc<Engine<D>>> {
    fn body(&self, island: IslandId, ino: Ino) -> Option<Lying> {
        let engine = self.iter().find(|engine| engine.id() == island)?;
        let stat = engine.disk().stat(&engine.bodies().path(ino)).ok()?;
        Some(Lying { kind: kind_of(stat.kind), size: stat.size })
    }

    fn is_empty_dir(&self, island: IslandId, path: &[Name]) -> bool {
        let Some(engine) = self.iter().find(|engine| engine.id() == island) else { return false };
        let at = path.iter().fold(TREE.to_vec(), |at, name| [&at, &b"/"[..], name.as_bytes()].concat());
        engine.disk().list(&at).is_ok_and(|names| names.is_empty())
    }
}

const fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Regular => Kind::Regular,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
    }
}

/// All rows of an island that has come to rest, so that its snapshot has them.
pub fn read_rows<D: Disk>(engine: &Engine<D>) -> io::Result<Rows> {
    let mut rows = Rows::new(engine.id());
    let mut from = Vec::new();
    loop {
        let page = engine.snapshot().range(&from, &[0xff], PAGE).map_err(io::Error::other)?;
        for (key, row) in &page {
            rows.take(key, row);
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => {
                from.clone_from(last);
                from.push(0);
            }
            _ => return Ok(rows),
        }
    }
}

/// The bodies that an audit has found to belong to no file, with their checksums.
pub fn strays<D: Disk>(engine: &Engine<D>, findings: &[Finding]) -> io::Result<Vec<Stray>> {
    let mut all = Vec::new();
    for finding in findings {
        let Finding::OrphanBody { path } = finding else { continue };
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let Some(ino) = atoll_body::ino_of(last).filter(|ino| engine.bodies().path(*ino) == *path) else {
            continue;
        };
        let stat = engine.disk().stat(path)?;
        let kind = kind_of(stat.kind);
        if kind == Kind::Directory {
            continue;
        }
        let target = match kind {
            Kind::Symlink => Some(Bytes::from(engine.disk().readlink(path)?)),
            _ => None,
        };
        let sums = match kind {
            Kind::Regular => sums_of(&engine.disk().open(path, OpenHow::Read)?, stat.size)?,
            _ => Vec::new(),
        };
        all.push(Stray { island: engine.id(), attr: attr_of(ino, kind, &stat), target, sums });
    }
    Ok(all)
}

fn attr_of(ino: Ino, kind: Kind, stat: &Stat) -> Attr {
    let time = |(secs, nanos): (i64, u32)| Time { secs, nanos };
    let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
    Attr {
        ino,
        kind,
        mode: stat.mode,
        nlink: 0,
        uid: stat.uid,
        gid: stat.gid,
        rdev: if is_device { stat.rdev } else { 0 },
        size: if matches!(kind, Kind::Regular | Kind::Symlink) { stat.size } else { 0 },
        blocks: stat.blocks,
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        btime: time(stat.mtime.min(stat.ctime)),
    }
}

/// Checksums of a file, by the first block of each part; parts that are all zeros need none.
fn sums_of<F: DiskFile>(file: &F, size: u64) -> io::Result<Vec<(u64, Vec<u32>)>> {
    let (mut all, mut offset, mut buf) = (Vec::new(), 0, Vec::new());
    while offset < size {
        match file.seek(offset, false)? {
            None => break,
            Some(data) => offset = data / READ_BYTES * READ_BYTES,
        }
        if offset >= size {
            break;
        }
        buf.resize((size - offset).min(READ_BYTES) as usize, 0);
        if file.read_full(&mut buf, offset)? < buf.len() {
            return Err(io::Error::other("it changes while it is read"));
        }
        let sums: Vec<u32> = buf.chunks(BLOCK_BYTES as usize).map(sum).collect();
        if sums.iter().any(|sum| *sum != 0) {
            all.push((offset / BLOCK_BYTES, sums));
        }
        offset += READ_BYTES;
    }
    Ok(all)
}

/// Has missing or differing parts of a plain tree laid again, unless that would take away files that people
/// have put or changed there. Returns what will be laid, for people. With `only_tell`, nothing is done.
pub fn plain_again<D: Disk>(
    engine: &Engine<D>,
    rows: &Rows,
    findings: &[Finding],
    only_tell: bool,
) -> Vec<(Ino, String)> {
    let by_hand =
        |ino: Ino| findings.iter().any(|f| matches!(f, Finding::ChangedByHand { ino: i } if *i == ino));
    let differs =
        |ino: Ino| findings.iter().any(|f| matches!(f, Finding::Attribute { ino: i, .. } if *i == ino));
    let shown = |path: &[u8]| path.escape_ascii().to_string();
    let mut told = Vec::new();
    let mut inos = Vec::new();
    for finding in findings {
        match finding {
            Finding::MissingName { path, ino } if !(by_hand(*ino) && differs(*ino)) => {
                told.push((*ino, format!("{} is laid in the plain tree again", shown(path))));
                inos.push(*ino);
            }
            // A directory keeps no mark of how it was laid: only its times tell of nobody's wish.
            // Bytes and targets are not the view's to lay.
            Finding::Attribute { what: "size" | "target", .. } => {}
            Finding::Attribute { ino, what }
                if !by_hand(*ino) && (rows.inodes.contains_key(ino) || *what == "mtime") =>
            {
                told.push((*ino, format!("the {what} of its plain file is laid again")));
                inos.push(*ino);
            }
            Finding::BodyMissing { ino } => {
                let row = rows.inodes.get(ino);
                if row.is_some_and(|row| row.attr.kind != Kind::Regular || row.attr.size == 0) {
                    told.push((*ino, "its native file is made again: it has no bytes".to_owned()));
                    inos.push(*ino);
                }
            }
            _ => {}
        }
    }
    let other_attributes = |ino: &Ino| {
        rows.dirs.contains_key(ino)
            && findings
                .iter()
                .any(|f| matches!(f, Finding::Attribute { ino: i, what } if i == ino && *what != "mtime"))
    };
    // A directory whose mode or owner differs would get these too.
    inos.retain(|ino| !other_attributes(ino));
    told.retain(|(ino, _)| inos.contains(ino));
    if !only_tell && !inos.is_empty() {
        let mut names = Vec::new();
        for (dir, all) in &rows.names {
            let wanted = all.iter().filter(|(_, _, e)| inos.contains(dir) || inos.contains(&e.ino));
            names.extend(wanted.map(|(_, name, _)| (*dir, name.clone())));
        }
        engine.with_island(|island| island.state_mut().view_again(&inos, &names));
    }
    told
}
