//! What tells a member from all others, and recognises it after a restart: its file system, its root, its host. Reads; never
//! stores anything in the member.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use atoll_posix::Errno;
use atoll_union::{NativeId, Tag};

use crate::real::native_handle;

/// `FS_IOC_GETFSUUID`.
const GET_FS_UUID: u32 = 0x8011_1500;

/// The identity of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberIdentity {
    /// The file system: its UUID, or what stands for one.
    pub file_system: Vec<u8>,
    /// The root directory: its native handle, or its number and birth.
    pub root: Vec<u8>,
    /// The machine.
    pub host: Vec<u8>,
}

impl MemberIdentity {
    /// The identity of the member with this root. `dir` is an ordinary descriptor of it.
    pub(crate) fn read(dir: &OwnedFd, dev: (u32, u32), id: NativeId) -> Result<Self, Errno> {
        let file_system = match file_system_uuid(dir).or_else(|| uuid_of_device(dev)) {
            Some(uuid) => uuid,
            None => {
                // SAFETY: `statfs` is plain numbers, and the kernel fills it.
                let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
                // SAFETY: as above.
                if unsafe { libc::fstatfs(dir.as_raw_fd(), &raw mut stat) } != 0 {
                    return Err(crate::who::last());
                }
                // SAFETY: two plain numbers.
                let id: [u8; 8] = unsafe { std::mem::transmute(stat.f_fsid) };
                id.to_vec()
            }
        };
        let root = native_handle(dir.as_fd()).map(|handle| handle.to_bytes()).unwrap_or_else(|_| {
            let mut root = id.ino.to_le_bytes().to_vec();
            root.extend(id.btime.secs.to_le_bytes());
            root.extend(id.btime.nanos.to_le_bytes());
            root
        });
        let host = fs::read("/etc/machine-id").ok().filter(|host| !host.is_empty());
        let host = host.unwrap_or_else(|| rustix::system::uname().nodename().to_bytes().to_vec());
        Ok(Self { file_system, root, host: host.trim_ascii().to_vec() })
    }

    /// The file system as people write it: a UUID with its hyphens, the name below `/dev/disk/by-uuid`, or digits.
    pub fn file_system_text(&self) -> String {
        let bytes = &self.file_system;
        // The name of a device's link is text already.
        if !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-') {
            return String::from_utf8_lossy(bytes).into_owned();
        }
        let hyphens: &[usize] = if bytes.len() == 16 { &[4, 6, 8, 10] } else { &[] };
        let digits = bytes.iter().enumerate().map(|(at, byte)| {
            let hyphen = if hyphens.contains(&at) { "-" } else { "" };
            format!("{hyphen}{byte:02x}")
        });
        digits.collect()
    }

    /// 16 bits of the hash of this, never 0.
    pub fn tag(&self) -> Tag {
        let mut sum = 0;
        for part in [&self.file_system, &self.root, &self.host] {
            sum = atoll_core::sum::extend(sum, &(part.len() as u64).to_le_bytes());
            sum = atoll_core::sum::extend(sum, part);
        }
        Tag(((sum >> 16) as u16 ^ sum as u16).max(1))
    }
}

/// The UUID by which the file system itself goes.
pub(crate) fn file_system_uuid(dir: &OwnedFd) -> Option<Vec<u8>> {
    let mut uuid = [0u8; 17];
    // SAFETY: the kernel writes a length and 16 bytes.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), GET_FS_UUID as _, uuid.as_mut_ptr()) };
    let len = usize::from(uuid[0]).min(16);
    (done == 0 && uuid[1..=len].iter().any(|&b| b != 0)).then(|| uuid[1..=len].to_vec())
}

fn uuid_of_device((major, minor): (u32, u32)) -> Option<Vec<u8>> {
    let dev = rustix::fs::makedev(major, minor);
    let mut links = fs::read_dir("/dev/disk/by-uuid").ok()?.flatten();
    let found = links.find(|link| fs::metadata(link.path()).is_ok_and(|device| device.rdev() == dev))?;
    Some(found.file_name().into_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_written_as_blkid_writes_it() {
        let text = |file_system: &[u8]| {
            let (file_system, root, host) = (file_system.to_vec(), Vec::new(), Vec::new());
            MemberIdentity { file_system, root, host }.file_system_text()
        };
        let bytes: Vec<u8> = (0x10..0x20).collect();
        assert_eq!(text(&bytes), "10111213-1415-1617-1819-1a1b1c1d1e1f");
        assert_eq!(text(b"1A2B-3C4D"), "1A2B-3C4D", "of a device's link");
        assert_eq!(text(&[0, 1, 0xff]), "0001ff");
    }

    #[test]
    fn a_tag_follows_from_the_identity_and_is_never_zero() {
        let identity = |root: u32| MemberIdentity {
            file_system: b"fs".to_vec(),
            root: root.to_le_bytes().to_vec(),
            host: b"host".to_vec(),
        };
        assert_eq!(identity(1).tag(), identity(1).tag());
        assert!((0..200_000).all(|root| identity(root).tag().0 != 0), "also where the hash is 0");
        let moved = MemberIdentity { file_system: b"f".to_vec(), root: b"sx".to_vec(), host: Vec::new() };
        let other = MemberIdentity { file_system: b"fs".to_vec(), root: b"x".to_vec(), host: Vec::new() };
        assert_ne!(moved.tag(), other.tag(), "where one part ends counts");
    }
}
