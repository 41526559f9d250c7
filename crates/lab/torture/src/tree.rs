//! A tree as programs see it: every name with kind, mode, owner, times, extended attributes, bytes, and which
//! names are the same file. Lists and compares; changes nothing.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, OFlags};

/// Differences that are shown.
const DIFFERENCES_MAX: usize = 20;
/// Bytes of the longest value of an extended attribute.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The bytes of a file, or where a symbolic link points.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing to read.
    None,
    /// Where a symbolic link points.
    Target(Vec<u8>),
    /// All of a file.
    Bytes(Vec<u8>),
    /// Length and checksum of a file.
    Sum(u64, u32),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Target(target) => write!(f, "-> {}", target.escape_ascii()),
            Self::Bytes(bytes) => write!(f, "{} bytes, sum {:08x}", bytes.len(), crc32c::crc32c(bytes)),
            Self::Sum(len, sum) => write!(f, "{len} bytes, sum {sum:08x}"),
        }
    }
}

/// Something that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Kind and permission bits, as `st_mode` has them.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Number of a device.
    pub rdev: u64,
    /// Links of what is not a directory.
    pub nlink: u64,
    /// The first of its names.
    pub same_as: Vec<u8>,
    /// Last change of content in seconds and nanoseconds; none of a directory.
    pub mtime: Option<(i64, u32)>,
    /// Last access, likewise.
    pub atime: Option<(i64, u32)>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What is in it.
    pub content: Content,
}

/// What is listed of a tree beside names, kinds and owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail {
    /// All bytes, not only sums.
    pub bytes: bool,
    /// Last access.
    pub atime: bool,
}

/// A tree by path, relative to its top, which is not in it.
pub type Tree = BTreeMap<Vec<u8>, Item>;

/// Lists the tree below `top`.
pub fn list(top: &Path, detail: Detail) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut first = HashMap::new();
    let mut left = vec![Vec::new()];
    while let Some(dir) = left.pop() {
        let path = top.join(std::ffi::OsStr::from_bytes(&dir));
        for entry in std::fs::read_dir(&path)? {
            let name = entry?.file_name();
            let mut below = dir.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(name.as_bytes());
            let (item, id) = item(&path.join(&name), detail)?;
            if FileType::from_raw_mode(item.mode) == FileType::Directory {
                left.push(below.clone());
            } else {
                first.entry(id).or_insert_with(Vec::new).push(below.clone());
            }
            if tree.insert(below.clone(), item).is_some() {
                let twice = format!("{} is listed twice", below.escape_ascii());
                return Err(io::Error::other(twice));
            }
        }
    }
    for names in first.into_values() {
        let same_as = names.iter().min().cloned().unwrap_or_default();
        for name in names {
            if let Some(item) = tree.get_mut(&name) {
                item.same_as.clone_from(&same_as);
            }
        }
    }
    Ok(tree)
}

fn item(path: &Path, detail: Detail) -> io::Result<(Item, (u64, u64))> {
    let stat = rustix::fs::lstat(path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let content = match kind {
        FileType::Symlink => Content::Target(rustix::fs::readlink(path, Vec::new())?.into_bytes()),
        FileType::RegularFile => {
            let bytes = read(path)?;
            if bytes.len() as u64 != stat.st_size as u64 {
                let sizes = format!("{}: size {}, {} bytes read", path.display(), stat.st_size, bytes.len());
                return Err(io::Error::other(sizes));
            }
            match detail.bytes {
                true => Content::Bytes(bytes),
                false => Content::Sum(bytes.len() as u64, crc32c::crc32c(&bytes)),
            }
        }
        _ => Content::None,
    };
    let directory = kind == FileType::Directory;
    // A native reading of a link, as after a crash, marks it: there is no `O_NOATIME` for it.
    let atime = detail.atime && kind != FileType::Symlink;
    let time = |secs: i64, nanos: u64| (!directory).then_some((secs, nanos as u32));
    let item = Item {
        mode: stat.st_mode,
        owner: (stat.st_uid, stat.st_gid),
        rdev: stat.st_rdev,
        nlink: if directory { 0 } else { stat.st_nlink as u64 },
        same_as: Vec::new(),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as u64),
        atime: if atime { time(stat.st_atime, stat.st_atime_nsec as u64) } else { None },
        xattrs: xattrs(path)?,
        content,
    };
    Ok((item, (stat.st_dev, stat.st_ino)))
}

/// Reads a file without marking the access, where that is allowed.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = |more| rustix::fs::open(path, flags | more, rustix::fs::Mode::empty());
    let fd = open(OFlags::NOATIME).or_else(|_| open(OFlags::empty()))?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut std::fs::File::from(fd), &mut bytes)?;
    Ok(bytes)
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let len = match rustix::fs::llistxattr(path, &mut names) {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let mut found = BTreeMap::new();
    for name in names[..len].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let len = rustix::fs::lgetxattr(path, name, &mut value)?;
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// What differs, a line each; of many the first.
pub fn differences(left: &Tree, right: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (path, ours) in left {
        let name = short(path);
        match right.get(path) {
            None => found.push(format!("{name}: only left: {ours:?}")),
            Some(theirs) if ours != theirs => found.push(format!("{name}: {}", difference(ours, theirs))),
            Some(_) => {}
        }
    }
    for (path, theirs) in right.iter().filter(|(path, _)| !left.contains_key(*path)) {
        found.push(format!("{}: only right: {theirs:?}", short(path)));
    }
    let more = found.len().saturating_sub(DIFFERENCES_MAX);
    found.truncate(DIFFERENCES_MAX);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    found
}

/// A path to print: the end of a long one.
fn short(path: &[u8]) -> String {
    const SHOWN: usize = 120;
    match path.len() {
        0..=SHOWN => path.escape_ascii().to_string(),
        len => format!("...{}", path[len - SHOWN..].escape_ascii()),
    }
}

fn difference(left: &Item, right: &Item) -> String {
    let mut parts = Vec::new();
    let mut part = |what: &str, left: String, right: String| {
        if left != right {
            parts.push(format!("{what} {left} / {right}"));
        }
    };
    part("mode", format!("{:o}", left.mode), format!("{:o}", right.mode));
    part("owner", format!("{:?}", left.owner), format!("{:?}", right.owner));
    part("rdev", left.rdev.to_string(), right.rdev.to_string());
    part("nlink", left.nlink.to_string(), right.nlink.to_string());
    part("same as", left.same_as.escape_ascii().to_string(), right.same_as.escape_ascii().to_string());
    part("mtime", format!("{:?}", left.mtime), format!("{:?}", right.mtime));
    part("atime", format!("{:?}", left.atime), format!("{:?}", right.atime));
    part("xattrs", format!("{:?}", shown(&left.xattrs)), format!("{:?}", shown(&right.xattrs)));
    part("content", format!("{:?}", left.content), format!("{:?}", right.content));
    if let (Content::Bytes(left), Content::Bytes(right)) = (&left.content, &right.content)
        && let Some(at) = (0..left.len().max(right.len())).find(|&at| left.get(at) != right.get(at))
    {
        parts.push(format!("from byte {at} on"));
    }
    parts.join(", ")
}

fn shown(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    xattrs.iter().map(|(name, value)| (text(name), text(value))).collect()
}
