//! Makes and removes mounts: with mount(2) as root, otherwise through `fusermount3`. Never reads a
//! request.

use atoll_posix::AtimeRule;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno as Os;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::CString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::device::IO_BYTES_MAX;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const HELPER_CONFIG: &str = "/etc/fuse.conf";
const TYPE: &str = "fuse.atoll";
/// Most bytes of a source: with its end it must fit into what mount(2) takes.
pub(crate) const SOURCE_BYTES_MAX: usize = 4095;
/// How far ahead of a sequential reader the kernel asks. The kernel's own 128 KiB are too little.
const READ_AHEAD_KIB: u32 = 1024;

/// What a mount looks like from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// What is mounted, as it was given. The system's table shows it unchanged, because mount(8),
    /// umount(8) and systemd recognise a mount by it. At most 4,095 bytes.
    pub source: String,
    /// Let other users than the one that mounts in. Others than root may only if `/etc/fuse.conf`
    /// says `user_allow_other`.
    pub allow_other: bool,
    /// No changes through this mount.
    pub read_only: bool,
    /// Honour set-user-id and set-group-id bits of programs. Root only.
    pub set_id: bool,
    /// Honour device files. Root only.
    pub devices: bool,
    /// Nothing is run from this mount.
    pub no_exec: bool,
    /// Every write is synced before it returns: the kernel asks for that after each.
    pub sync: bool,
    /// What reading does to times of access.
    pub access_times: AccessTimes,
}

/// What reading through a mount does to times of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessTimes {
    /// Which readings count; none: no reading does (`noatime`).
    pub rule: Option<AtimeRule>,
    /// Whether those of directories do, too (not with `nodiratime`).
    pub directories: bool,
}

impl AccessTimes {
    /// Nothing that is read counts.
    pub const NEVER: Self = Self { rule: None, directories: false };
}

impl Default for AccessTimes {
    /// Linux's own: `relatime`.
    fn default() -> Self {
        Self { rule: Some(AtimeRule::Relative), directories: true }
    }
}

impl MountOptions {
    /// A writable mount for everyone if root mounts it, otherwise for the user alone.
    pub fn new(source: &str) -> Self {
        let allow_other = rustix::process::geteuid().is_root();
        Self {
            source: source.to_owned(),
            allow_other,
            read_only: false,
            set_id: false,
            devices: false,
            no_exec: false,
            sync: false,
            access_times: AccessTimes::default(),
        }
    }

    /// What the kernel knows by a flag, with the word by which `fusermount3` knows it. That one sets
    /// `nosuid` and `nodev` unasked, and does not know `nodiratime` everywhere.
    fn flags(&self) -> [(bool, MountFlags, Option<&'static str>); 9] {
        let times = &self.access_times;
        [
            (self.read_only, MountFlags::RDONLY, Some("ro")),
            (!self.set_id, MountFlags::NOSUID, None),
            (!self.devices, MountFlags::NODEV, None),
            (self.no_exec, MountFlags::NOEXEC, Some("noexec")),
            (self.sync, MountFlags::SYNCHRONOUS, Some("sync")),
            (times.rule.is_none(), MountFlags::NOATIME, Some("noatime")),
            (times.rule == Some(AtimeRule::Relative), MountFlags::RELATIME, None),
            (times.rule == Some(AtimeRule::Strict), MountFlags::STRICTATIME, None),
            (!times.directories, MountFlags::NODIRATIME, None),
        ]
    }
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says what the variant means")]
pub enum MountError {
    #[error("mount point {} does not exist: make it with mkdir", .0.display())]
    Missing(PathBuf),
    #[error("mount point {} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    #[error("mount point {} is not empty: what is in it would be hidden", .0.display())]
    NotEmpty(PathBuf),
    #[error("mount point {} is a dead mount: remove it with `umount -l {}`", .0.display(), .0.display())]
    Dead(PathBuf),
    #[error("the source of a mount must have between 1 and {SOURCE_BYTES_MAX} bytes and no NUL; it has {}", .0.len())]
    BadSource(String),
    #[error(
        "{DEVICE} is missing: load the module with `modprobe fuse`, or run the container with `--device {DEVICE}`"
    )]
    NoDevice,
    #[error(
        "{HELPER} is missing: install package fuse3 (`apt install fuse3`, `dnf install fuse3`), or mount as root"
    )]
    NoHelper,
    #[error("other users can be let in only by root, or when {HELPER_CONFIG} has a line `user_allow_other`")]
    AllowOther,
    #[error("{HELPER} refused to mount: {0}")]
    Helper(String),
    #[error("the kernel speaks FUSE {major}.{minor}; Atoll needs 7.31 or later (Linux 5.4)")]
    TooOld { major: u32, minor: u32 },
    #[error("not permitted to {what}: a container needs CAP_SYS_ADMIN")]
    NotPermitted { what: &'static str },
    #[error("cannot {what}: {why}")]
    Os { what: &'static str, why: std::io::Error },
    #[error("files of {} are open for writing: close them, and try again", .0.display())]
    Busy(PathBuf),
    #[error("the mount was removed before it was ready")]
    Removed,
}

fn os(what: &'static str) -> impl FnOnce(Os) -> MountError {
    move |why| match why {
        Os::PERM | Os::ACCESS => MountError::NotPermitted { what },
        why => MountError::Os { what, why: why.into() },
    }
}

/// A place where a volume is mounted.
#[derive(Debug)]
pub(crate) struct Mount {
    path: PathBuf,
    helper: bool,
    /// Device number of what is mounted, to tell it from what someone else mounts there later.
    device: Option<(u32, u32)>,
}

/// Mounts on `point`. The kernel then waits for its first request to be answered.
pub(crate) fn mount(point: &Path, options: &MountOptions) -> Result<(OwnedFd, Mount), MountError> {
    let root = rustix::process::geteuid().is_root();
    mount_with(point, options, !root)
}

pub(crate) fn mount_with(
    point: &Path,
    options: &MountOptions,
    helper: bool,
) -> Result<(OwnedFd, Mount), MountError> {
    let source = &options.source;
    if source.is_empty() || source.len() > SOURCE_BYTES_MAX || source.contains('\0') {
        return Err(MountError::BadSource(source.clone()));
    }
    let path = check(point)?;
    let fd = if helper { mount_by_helper(&path, options)? } else { mount_by_root(&path, options)? };
    let device = mounted_device(&path);
    Ok((fd, Mount { path, helper, device }))
}

/// Whether `path` is a mount whose daemon has gone. Asks what the kernel cannot know by itself: the
/// attributes of a dead mount's root it still has for as long as it was told that they are good.
pub fn is_dead(path: &Path) -> bool {
    matches!(rustix::fs::statfs(path), Err(Os::NOTCONN))
}

/// The mount point's absolute path, if something can be mounted there.
fn check(point: &Path) -> Result<PathBuf, MountError> {
    let strange = |why| MountError::Os { what: "look at the mount point", why };
    let absolute = std::path::absolute(point).map_err(strange)?;
    if is_dead(&absolute) {
        // Left by a daemon that was killed. Only ours is removed.
        let path = std::fs::canonicalize(&absolute).unwrap_or_else(|_| absolute.clone());
        if mounted_type(&path).as_deref() != Some(TYPE) {
            return Err(MountError::Dead(path));
        }
        detach(&path, !rustix::process::geteuid().is_root());
    }
    let metadata = std::fs::metadata(&absolute).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound => MountError::Missing(absolute.clone()),
        std::io::ErrorKind::NotADirectory => MountError::NotDirectory(absolute.clone()),
        _ if is_dead(&absolute) => MountError::Dead(absolute.clone()),
        _ => strange(why),
    })?;
    let path = std::fs::canonicalize(&absolute).map_err(strange)?;
    if !metadata.is_dir() {
        return Err(MountError::NotDirectory(path));
    }
    let mut entries = std::fs::read_dir(&path).map_err(strange)?;
    if entries.next().is_some() { Err(MountError::NotEmpty(path)) } else { Ok(path) }
}

fn mount_by_root(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    use std::os::fd::AsRawFd;
    let fd =
        rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|why| match why {
            Os::NOENT | Os::NODEV | Os::NXIO => MountError::NoDevice,
            why => os("open /dev/fuse")(why),
        })?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,max_read={IO_BYTES_MAX}",
        fd.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).expect("numbers and words have no NUL");
    let mut flags = MountFlags::empty();
    for (on, flag, _) in options.flags() {
        flags.set(flag, on);
    }
    rustix::mount::mount(options.source.as_str(), path, TYPE, flags, Some(data.as_c_str())).map_err(
        |why| match why {
            Os::NODEV => MountError::NoDevice,
            why => os("mount")(why),
        },
    )?;
    Ok(fd)
}

/// `fusermount3` mounts for a user and sends the open device over a socket.
fn mount_by_helper(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let root = rustix::process::getuid().is_root();
    if options.allow_other && !root && !others_allowed() {
        return Err(MountError::AllowOther);
    }
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(os("make a socket"))?;
    // `fusermount3` takes a backslash before a comma, or before a backslash, away again.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={source},subtype=atoll,default_permissions,max_read={IO_BYTES_MAX}");
    let words = options.flags().into_iter().filter_map(|(on, _, word)| word.filter(|_| on));
    for word in words.chain(options.allow_other.then_some("allow_other")) {
        list.push(',');
        list.push_str(word);
    }
    let child = Command::new(HELPER)
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(path)
        // It takes the socket as its standard input, which needs no inheritance games.
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| match why.kind() {
            std::io::ErrorKind::NotFound => MountError::NoHelper,
            _ => MountError::Os { what: "run fusermount3", why },
        })?;
    // Its end of the socket closes when it exits, so this ends whatever it does.
    let received = receive_fd(&ours);
    let output =
        child.wait_with_output().map_err(|why| MountError::Os { what: "wait for fusermount3", why })?;
    received.map_err(os("receive from fusermount3"))?.ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        MountError::Helper(if said.is_empty() { output.status.to_string() } else { said })
    })
}

fn receive_fd(socket: &OwnedFd) -> Result<Option<OwnedFd>, Os> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    loop {
        let mut parts = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Os::INTR) => {}
            Err(why) => return Err(why),
            Ok(_) => break,
        }
    }
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Whether `/etc/fuse.conf` lets users let others in.
fn others_allowed() -> bool {
    let config = std::fs::read_to_string(HELPER_CONFIG).unwrap_or_default();
    config.lines().any(|line| line.trim() == "user_allow_other")
}

/// Device number of the file system at `path`, without asking whoever serves it.
fn mounted_device(path: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

/// Type of the topmost file system mounted at `path`.
fn mounted_type(path: &Path) -> Option<String> {
    mounted_entry(path).map(|(_, kind)| kind)
}

/// Device number and type of the topmost file system mounted at `path`, as the system's table has them: also if
/// its root cannot be looked at.
fn mounted_entry(path: &Path) -> Option<((u32, u32), String)> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = path.to_str()?.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011");
    table.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?.split_once(':')?;
        let device = (device.0.parse().ok()?, device.1.parse().ok()?);
        let at = fields.nth(1)?;
        let (_, kind) = line.split_once(" - ")?;
        (at == path).then(|| Some((device, kind.split(' ').next()?.to_owned())))?
    })
}

fn detach(path: &Path, helper: bool) -> bool {
    if helper {
        let mut command = Command::new(HELPER);
        command.args(["-u", "-z", "-q", "--"]).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        return command.status().is_ok_and(|status| status.success());
    }
    // By force: requests under way fail, so that nobody waits for a daemon that is leaving.
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    rustix::mount::unmount(path, flags | UnmountFlags::FORCE).is_ok()
}

/// The way into a mount from outside, as any process takes it.
#[derive(Debug, Clone)]
pub(crate) struct Entrance {
    path: PathBuf,
    device: Option<(u32, u32)>,
}

impl Entrance {
    /// Looks a path up, and opens nothing. The kernel puts each directory to where it is found. Asks the
    /// daemon, so not to be called by a thread that answers requests. Nothing stays in use by it.
    pub(crate) fn look_up(&self, below: &Path) -> Result<(), Os> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = rustix::fs::open(&self.path, flags | OFlags::DIRECTORY, Mode::empty())?;
        let asked = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        let found = rustix::fs::statx(&root, "", asked, StatxFlags::empty())?;
        if self.device != Some((found.stx_dev_major, found.stx_dev_minor)) {
            return Err(Os::XDEV); // Another one is mounted over it.
        }
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        rustix::fs::openat2(&root, below, flags, Mode::empty(), inside).map(|_| ())
    }
}

impl Mount {
    /// How others come in.
    pub(crate) fn entrance(&self) -> Entrance {
        Entrance { path: self.path.clone(), device: self.device }
    }

    /// What the system says of it.
    pub(crate) fn table(&self) -> Option<Table> {
        Table::new(&self.path, self.device?)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still there, and not something else.
    pub(crate) fn is_there(&self) -> bool {
        let device =
            mounted_device(&self.path).or_else(|| mounted_entry(&self.path).map(|(device, _)| device));
        self.device.is_some() && device == self.device
    }

    /// Has the kernel read further ahead. Only root may; others read as the kernel likes.
    pub(crate) fn raise_read_ahead(&self) {
        if let Some((major, minor)) = self.device {
            let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
            let _ = std::fs::write(knob, READ_AHEAD_KIB.to_string());
        }
    }

    /// Takes it away from the tree; harmless when it is gone.
    pub(crate) fn unmount(&self) {
        if self.is_there() && !detach(&self.path, self.helper) && self.helper {
            // A user's mount may have been made by root's helper in a container without it now.
            let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
        }
    }
}

/// The system's table of mounts, as far as it is about one of them: it can be read without asking whoever serves that.
#[derive(Debug)]
pub(crate) struct Table {
    file: std::fs::File,
    path: PathBuf,
    device: (u32, u32),
}

impl Table {
    fn new(path: &Path, device: (u32, u32)) -> Option<Self> {
        let file = std::fs::File::open("/proc/self/mountinfo").ok()?;
        Some(Self { file, path: path.to_owned(), device })
    }

    /// Whether any mount has come, gone or changed since this was asked last.
    pub(crate) fn has_changed(&self) -> bool {
        let mut polled = [PollFd::new(&self.file, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok_and(|n| n > 0)
    }

    /// What the mount's options say about times of access. None if it cannot be told.
    pub(crate) fn access_times(&self) -> Option<AccessTimes> {
        let table = std::fs::read("/proc/self/mountinfo").ok()?;
        access_times_in(&table, &self.path, self.device)
    }
}

/// The same for a table's text. The mount at this path counts, otherwise any of the same file system.
fn access_times_in(table: &[u8], path: &Path, (major, minor): (u32, u32)) -> Option<AccessTimes> {
    let (device, path) = (format!("{major}:{minor}"), escaped(path));
    let ours = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let is_ours = fields.nth(2)? == device.as_bytes();
        let (at, options) = (fields.nth(1)?, fields.next()?);
        let of_all = fields.skip_while(|field| *field != b"-").nth(3).unwrap_or_default();
        is_ours.then_some((at, options, of_all))
    });
    let (_, options, of_all) = ours.max_by_key(|(at, ..)| *at == path)?;
    let words =
        |text: &'static [u8]| move |options: &[u8]| options.split(|byte| *byte == b',').any(|w| w == text);
    let has = |word: &'static [u8]| words(word)(options);
    if has(b"ro") || words(b"ro")(of_all) || has(b"noatime") {
        return Some(AccessTimes::NEVER);
    }
    let rule = if has(b"relatime") { AtimeRule::Relative } else { AtimeRule::Strict };
    Some(AccessTimes { rule: Some(rule), directories: !has(b"nodiratime") })
}

/// As the table writes a path.
fn escaped(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let octal = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        other => vec![*other],
    };
    path.as_os_str().as_bytes().iter().flat_map(octal).collect()
}

/// Changes the options of a mount to these, as `mount -o remount` does: those that the kernel knows by a flag. Root only.
/// A mount with files that are open for writing does not become a read-only one.
pub fn remount(point: &Path, options: &MountOptions) -> Result<(), MountError> {
    let mut flags = MountFlags::empty();
    for (on, flag, _) in options.flags() {
        flags.set(flag, on);
    }
    rustix::mount::mount_remount(point, flags, "").map_err(|why| match why {
        Os::BUSY => MountError::Busy(point.to_owned()),
        why => os("remount")(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_not_to_mount_has_its_own_error() {
        let dir = std::env::temp_dir().join(format!("atoll-mount-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("full/thing")).unwrap();
        std::fs::write(dir.join("file"), b"").unwrap();
        assert!(matches!(check(&dir.join("absent")), Err(MountError::Missing(_))));
        assert!(matches!(check(&dir.join("file")), Err(MountError::NotDirectory(_))));
        assert!(matches!(check(&dir.join("file/below")), Err(MountError::NotDirectory(_))));
        assert!(matches!(check(&dir.join("full")), Err(MountError::NotEmpty(_))));
        assert!(check(&dir.join("full/thing")).is_ok());
        for bad in ["", "a\0b", &"x".repeat(SOURCE_BYTES_MAX + 1)] {
            assert!(matches!(mount(&dir, &MountOptions::new(bad)), Err(MountError::BadSource(_))));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_type_of_a_mount_is_found_by_its_path() {
        assert_eq!(mounted_type(Path::new("/proc")).as_deref(), Some("proc"));
        assert_eq!(mounted_type(Path::new("/proc/self")), None);
    }

    #[test]
    fn what_reading_does_is_told_by_the_mounts_options() {
        let point = Path::new("/m n");
        let told = |options: &str, of_all: &str| {
            let text = format!(
                "21 1 0:5 / /proc rw,noatime - proc proc rw\n30 1 0:44 / /other rw,noatime - fuse.atoll x rw\n\
                 31 1 0:44 / /m\\040n {options} shared:7 - fuse.atoll x {of_all}\n"
            );
            access_times_in(text.as_bytes(), point, (0, 44)).unwrap()
        };
        let with = |rule, directories| AccessTimes { rule: Some(rule), directories };
        assert_eq!(told("rw,nosuid,relatime", "rw,user_id=0"), AccessTimes::default());
        assert_eq!(told("rw,nosuid", "rw"), with(AtimeRule::Strict, true));
        assert_eq!(told("rw,nodiratime,relatime", "rw"), with(AtimeRule::Relative, false));
        for (options, of_all) in
            [("rw,noatime", "rw"), ("ro,relatime", "rw"), ("rw,relatime", "ro,user_id=0")]
        {
            assert_eq!(told(options, of_all), AccessTimes::NEVER, "{options} {of_all}");
        }
        assert_eq!(access_times_in(b"31 1 0:45 / /x rw - tmpfs t rw\n", point, (0, 44)), None);
    }
}
