//! Linux's permission rules for the last step of an operation, the attributes that a new file inherits, and
//! the changes by `chmod`, `chown`, `truncate` and `utimensat`. Decides from values; never looks anything up.
//!
//! Linux's capabilities are not known here: uid 0 has all of them, everybody else has none. The supplementary
//! groups may be unknown (`Caller::groups` is `None`). If they could change the verdict, the verdict is
//! `Denied::NeedGroups`; otherwise they are not asked for.

use crate::acl::Acl;
use crate::attr::{Attr, Caller, Kind, SetAttr, SetTime, mode};
use crate::errno::Errno;
use crate::op::Op;
use atoll_core::{Ino, Time};

/// Largest length of a file in bytes: 16 TiB less a block, what ext4 takes and every other native file
/// system that bodies lie on. A length is decided before the body gets it; one that the body cannot
/// get would stop the island, and stop it again whenever it recovers.
pub const FILE_BYTES_MAX: u64 = (1 << 44) - 4096;

/// Longest range of a file that one request zeroes. A longer range is zeroed in pieces.
pub const ZERO_BYTES_MAX: u64 = 1 << 30;

/// Nanoseconds that a `Time` may hold, exclusive.
const NANOS_PER_SEC: u32 = 1_000_000_000;

/// Why an operation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// Refused with this error, whatever groups the caller is in.
    Errno(Errno),
    /// The caller's supplementary groups decide, and they were not sent: ask again with them.
    NeedGroups,
}

impl From<Errno> for Denied {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// A set of read, write and execute, with the values of the permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessMode(u8);

impl AccessMode {
    /// List a directory, read a file.
    pub const READ: Self = Self(4);
    /// Change a directory's names, write a file.
    pub const WRITE: Self = Self(2);
    /// Walk through a directory, run a file.
    pub const EXEC: Self = Self(1);
    /// The rights that adding or removing a name needs in a directory.
    pub const CHANGE_NAMES: Self = Self(3);

    /// The set of the low three bits of `bits`.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// Whether `granted` (the low three bits) holds all of this set.
    pub const fn within(self, granted: u32) -> bool {
        self.0 as u32 & !granted == 0
    }

    const fn verdict(self, granted: u32) -> Result<(), Denied> {
        if self.within(granted) { Ok(()) } else { Err(Denied::Errno(Errno::EACCES)) }
    }
}

/// The facts of a file that permission rules need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectPerms {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The twelve permission bits.
    pub mode: u32,
    /// Type.
    pub kind: Kind,
}

impl From<&Attr> for ObjectPerms {
    fn from(attr: &Attr) -> Self {
        Self { uid: attr.uid, gid: attr.gid, mode: attr.mode, kind: attr.kind }
    }
}

impl Caller {
    /// Whether the caller is the superuser.
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in `gid`; `None` if that depends on groups that were not sent.
    pub fn is_member(&self, gid: u32) -> Option<bool> {
        if self.gid == gid {
            return Some(true);
        }
        Some(self.groups.as_ref()?.contains(&gid))
    }

    /// Whether the caller is the owner of `what`, or acts as one.
    pub const fn acts_as_owner(&self, what: &ObjectPerms) -> bool {
        self.uid == what.uid || self.is_root()
    }

    /// Linux's `in_group_or_capable`.
    fn keeps_setgid(&self, gid: u32) -> Result<bool, Denied> {
        if self.is_root() {
            return Ok(true);
        }
        self.is_member(gid).ok_or(Denied::NeedGroups)
    }
}

/// Whether `caller` has all of `want` on `what`, whose access ACL is `acl`. `EACCES` if not.
pub fn check(caller: &Caller, what: ObjectPerms, want: AccessMode, acl: Option<&Acl>) -> Result<(), Denied> {
    if caller.is_root() {
        // Somebody must be allowed to run it for root to be.
        let runs = want.0 & AccessMode::EXEC.0 != 0 && what.kind != Kind::Directory;
        return if runs && what.mode & 0o111 == 0 { Err(Errno::EACCES.into()) } else { Ok(()) };
    }
    if caller.uid == what.uid {
        return want.verdict(what.mode >> 6);
    }
    // An empty group class switches the ACL off: Linux then judges by the mode alone, so that even
    // a named user gets what others get.
    if let Some(acl) = acl
        && what.mode & 0o070 != 0
    {
        return acl.check_not_owner(caller, what.gid, want);
    }
    let (group, other) = (what.mode >> 3, what.mode);
    if want.within(group) == want.within(other) {
        return want.verdict(other);
    }
    match caller.is_member(what.gid) {
        Some(true) => want.verdict(group),
        Some(false) => want.verdict(other),
        None => Err(Denied::NeedGroups),
    }
}

/// Which of read, write and execute `caller` has on `what`, whose access ACL is `acl`.
pub fn granted(caller: &Caller, what: ObjectPerms, acl: Option<&Acl>) -> Result<u8, Denied> {
    let mut granted = 0;
    for want in [AccessMode::READ, AccessMode::WRITE, AccessMode::EXEC] {
        match check(caller, what, want, acl) {
            Ok(()) => granted |= want.0,
            Err(Denied::Errno(_)) => {}
            Err(Denied::NeedGroups) => return Err(Denied::NeedGroups),
        }
    }
    Ok(granted)
}

/// A check that a walk to an object, or opening it, would have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkippedCheck {
    /// Search permission.
    Search,
    /// Read permission of a directory.
    List,
    /// The same, and search permission, for attributes.
    ListAttributes,
    /// Read permission of a file; or it is the caller's; or the caller may execute it, and pages it in.
    Read,
    /// Write permission of a file; or it is the caller's.
    Write,
}

impl SkippedCheck {
    /// Whether `caller` may do so with `what`, whose access ACL is `acl`. `EACCES` if not.
    pub fn check(self, caller: &Caller, what: ObjectPerms, acl: Option<&Acl>) -> Result<(), Denied> {
        let has = |want| check(caller, what, want, acl);
        match self {
            Self::Search => has(AccessMode::EXEC),
            Self::List => has(AccessMode::READ),
            Self::ListAttributes => has(AccessMode(AccessMode::READ.0 | AccessMode::EXEC.0)),
            // It may have taken its permission away after it was opened.
            Self::Read | Self::Write if caller.acts_as_owner(&what) => Ok(()),
            Self::Read => match has(AccessMode::READ) {
                Err(Denied::Errno(_)) if what.kind == Kind::Regular => has(AccessMode::EXEC),
                verdict => verdict,
            },
            Self::Write => has(AccessMode::WRITE),
        }
    }
}

/// The checks that an operation needs, by object, if nobody has walked to the objects or opened them for its
/// caller. Checks that the operation makes anyway are not among them.
pub const fn needs(op: &Op) -> [Option<(Ino, SkippedCheck)>; 2] {
    match op {
        Op::Lookup { dir, .. } | Op::Parent { dir } => [Some((*dir, SkippedCheck::Search)), None],
        Op::ReadDir { dir, plus: false, .. } => [Some((*dir, SkippedCheck::List)), None],
        Op::ReadDir { dir, plus: true, .. } => [Some((*dir, SkippedCheck::ListAttributes)), None],
        Op::Read { ino, .. } | Op::Seek { ino, .. } => [Some((*ino, SkippedCheck::Read)), None],
        Op::Write { ino, .. } | Op::Fallocate { ino, .. } => [Some((*ino, SkippedCheck::Write)), None],
        Op::SetAttr { ino, set } if set.size.is_some() => [Some((*ino, SkippedCheck::Write)), None],
        Op::CopyRange { from, to, .. } => {
            [Some((*from, SkippedCheck::Read)), Some((*to, SkippedCheck::Write))]
        }
        _ => [None, None],
    }
}

/// Whether `caller` may put a new name into `dir`. `EACCES` if not.
pub fn may_create(caller: &Caller, dir: ObjectPerms, acl: Option<&Acl>) -> Result<(), Denied> {
    check(caller, dir, AccessMode::CHANGE_NAMES, acl)
}

/// Whether `caller` may remove the name of `victim` from `dir`, whose ACL is `acl`. `EACCES` without write
/// and execute permission; `EPERM` if `dir` is sticky and `caller` owns neither.
pub fn may_delete(
    caller: &Caller,
    dir: ObjectPerms,
    acl: Option<&Acl>,
    victim: ObjectPerms,
) -> Result<(), Denied> {
    check(caller, dir, AccessMode::CHANGE_NAMES, acl)?;
    let sticky = dir.mode & mode::STICKY != 0;
    if sticky && !caller.acts_as_owner(&victim) && caller.uid != dir.uid {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}

/// Whether `caller` may make a file of this kind at all: devices are root's (`EPERM`), but a
/// character device 0:0, a whiteout, opens nothing and is anybody's.
pub fn may_make(caller: &Caller, kind: Kind, rdev: u32) -> Result<(), Denied> {
    let whiteout = kind == Kind::CharDevice && rdev == 0;
    let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
    if device && !whiteout && !caller.is_root() { Err(Errno::EPERM.into()) } else { Ok(()) }
}

/// The owner and the permissions of a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewObjectPerms {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The twelve permission bits.
    pub mode: u32,
    /// Access ACL, if it says more than the mode.
    pub acl: Option<Acl>,
    /// Default ACL of a new directory.
    pub default_acl: Option<Acl>,
}

/// What a new file of `kind` gets from its creator and from its directory `dir`, whose default
/// ACL is `default_acl`. `mode` is what was asked for, before `umask`.
pub fn born(
    caller: &Caller,
    dir: ObjectPerms,
    default_acl: Option<&Acl>,
    kind: Kind,
    asked: u32,
    umask: u32,
) -> Result<NewObjectPerms, Denied> {
    let inherits = dir.mode & mode::SETGID != 0;
    let gid = if inherits { dir.gid } else { caller.gid };
    // A symbolic link has no permissions of its own, and mkdir(2) takes no set-id bits.
    let mut bits = match kind {
        Kind::Symlink => {
            return Ok(NewObjectPerms { uid: caller.uid, gid, mode: 0o777, acl: None, default_acl: None });
        }
        Kind::Directory => asked & 0o1777,
        _ => asked & mode::ALL,
    };
    // Else anybody could make a program of a group that he is not in. Linux judges before the umask.
    let group_runs = mode::SETGID | mode::GROUP_EXEC;
    if inherits && bits & group_runs == group_runs && !caller.keeps_setgid(dir.gid)? {
        bits &= !mode::SETGID;
    }
    let (bits, acl) = match default_acl {
        Some(default) => default.inherit(bits),
        None => (bits & !(umask & 0o777), None),
    };
    let directory = kind == Kind::Directory;
    Ok(NewObjectPerms {
        uid: caller.uid,
        gid,
        mode: if directory && inherits { bits | mode::SETGID } else { bits },
        acl,
        default_acl: if directory { default_acl.cloned() } else { None },
    })
}

/// The mode that is left when an unprivileged caller changes bytes: set-user-id always goes,
/// set-group-id where it means that the group runs it.
pub const fn kill_set_id(bits: u32) -> u32 {
    let left = bits & !mode::SETUID;
    if left & mode::GROUP_EXEC != 0 { left & !mode::SETGID } else { left }
}

/// The mode of a file with these attributes whose bytes `caller` changes without being privileged: as
/// [`kill_set_id`], and set-group-id without group execute also goes unless the caller is in the group.
pub fn mode_after_bytes(caller: &Caller, attr: &Attr) -> Result<u32, Denied> {
    let left = kill_set_id(attr.mode);
    if left & mode::SETGID == 0 || caller.keeps_setgid(attr.gid)? {
        Ok(left)
    } else {
        Ok(left & !mode::SETGID)
    }
}

/// Checks `set` and says what the attributes are afterwards. `acl` is the access ACL; when the mode
/// changes, its caller also stores `Acl::chmod`.
///
/// `EPERM` for what needs the owner, `EACCES` for what needs write permission, `EISDIR` or `EINVAL`
/// for the length of what has none, `EFBIG`, `EOPNOTSUPP` for the mode of a symbolic link. `blocks`
/// stays as it was.
pub fn apply_setattr(
    attr: &Attr,
    acl: Option<&Acl>,
    set: &SetAttr,
    caller: &Caller,
    now: Time,
) -> Result<Attr, Denied> {
    check_values(attr, set)?;
    let what = ObjectPerms::from(attr);
    let owner = caller.acts_as_owner(&what);
    let touch = set.atime == Some(SetTime::Now) && set.mtime == Some(SetTime::Now);
    if touch && !owner {
        check(caller, what, AccessMode::WRITE, acl)?;
    }
    let mut after = *attr;
    chown(caller, what, set, &mut after)?;
    if let Some(asked) = set.mode {
        if !owner {
            return Err(Errno::EPERM.into());
        }
        let asked = asked & mode::ALL;
        let strip = asked & mode::SETGID != 0 && !caller.keeps_setgid(after.gid)?;
        after.mode = if strip { asked & !mode::SETGID } else { asked };
    }
    if (set.uid.is_some() || set.gid.is_some()) && attr.kind != Kind::Directory {
        // For root too: the new owner did not write this program. Without group execute the bit
        // once meant mandatory locking, and whoever is in the group keeps it.
        after.mode = kill_set_id(after.mode);
        if after.mode & mode::SETGID != 0 && !caller.keeps_setgid(attr.gid)? {
            after.mode &= !mode::SETGID;
        }
    }
    if set.kill_set_id && attr.kind != Kind::Directory {
        after.mode = mode_after_bytes(caller, &after)?;
    }
    // Only "both now" is a touch, which needs no more than write permission. A "now" that comes
    // with a length is the truncate's own.
    let implied = |time: Option<SetTime>| time == Some(SetTime::Now) && set.size.is_some();
    let asks = |time: Option<SetTime>| time.is_some() && !implied(time);
    if !touch && !owner && (asks(set.atime) || asks(set.mtime)) {
        return Err(Errno::EPERM.into());
    }
    if let Some(size) = set.size {
        if !set.opened {
            check(caller, what, AccessMode::WRITE, acl)?;
        }
        // Also when the length stays: ftruncate(2) and O_TRUNC do, and a frontend cannot always
        // tell them from truncate(2), which on Linux does not.
        after.size = size;
        after.mtime = now;
    }
    after.atime = resolve(set.atime, after.atime, now);
    after.mtime = resolve(set.mtime, after.mtime, now);
    after.ctime = now;
    Ok(after)
}

fn check_values(attr: &Attr, set: &SetAttr) -> Result<(), Errno> {
    if let Some(size) = set.size {
        match attr.kind {
            Kind::Regular if size > FILE_BYTES_MAX => return Err(Errno::EFBIG),
            Kind::Regular => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
    }
    if set.mode.is_some() && attr.kind == Kind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    // -1 is "unchanged" to chown(2), so it can be nobody's id.
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
        return Err(Errno::EINVAL);
    }
    let bad = |t: Option<SetTime>| matches!(t, Some(SetTime::To { time }) if time.nanos >= NANOS_PER_SEC);
    if bad(set.atime) || bad(set.mtime) { Err(Errno::EINVAL) } else { Ok(()) }
}

fn chown(caller: &Caller, what: ObjectPerms, set: &SetAttr, after: &mut Attr) -> Result<(), Denied> {
    let owner = caller.uid == what.uid;
    if let Some(uid) = set.uid {
        let unchanged = owner && uid == what.uid;
        if !caller.is_root() && !unchanged {
            return Err(Errno::EPERM.into());
        }
        after.uid = uid;
    }
    if let Some(gid) = set.gid {
        if !caller.is_root() {
            if !owner {
                return Err(Errno::EPERM.into());
            }
            if gid != what.gid && !caller.is_member(gid).ok_or(Denied::NeedGroups)? {
                return Err(Errno::EPERM.into());
            }
        }
        after.gid = gid;
    }
    Ok(())
}

fn resolve(set: Option<SetTime>, old: Time, now: Time) -> Time {
    match set {
        None => old,
        Some(SetTime::Now) => now,
        Some(SetTime::To { time }) => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Acl;
    use atoll_core::Ino;

    const FILE: ObjectPerms = ObjectPerms { uid: 1000, gid: 2000, mode: 0o640, kind: Kind::Regular };
    const NOW: Time = Time { secs: 77, nanos: 7 };
    const OLD: Time = Time { secs: 1, nanos: 1 };

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: Some(groups.to_vec()) }
    }

    fn unsure(uid: u32) -> Caller {
        Caller { uid, gid: uid, groups: None }
    }

    fn denied<T>(errno: Errno) -> Result<T, Denied> {
        Err(Denied::Errno(errno))
    }

    fn attr(what: ObjectPerms) -> Attr {
        let ObjectPerms { uid, gid, mode, kind } = what;
        let (ino, nlink, rdev, size, blocks) = (Ino(9), 1, 0, 10, 8);
        Attr {
            ino,
            kind,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            atime: OLD,
            mtime: OLD,
            ctime: OLD,
            btime: OLD,
        }
    }

    #[test]
    fn only_the_class_that_the_caller_is_in_counts() {
        let file = |mode| ObjectPerms { mode, ..FILE };
        let (owner, member, other) = (user(1000, 1, &[]), user(5, 5, &[7, 2000]), user(5, 5, &[7]));
        let table = [
            (0o400, &owner, AccessMode::READ, true),
            (0o077, &owner, AccessMode::READ, false),
            (0o040, &member, AccessMode::READ, true),
            (0o707, &member, AccessMode::READ, false),
            (0o070, &other, AccessMode::READ, false),
            (0o006, &other, AccessMode::WRITE, true),
            (0o001, &other, AccessMode::CHANGE_NAMES, false),
            (0o003, &other, AccessMode::CHANGE_NAMES, true),
            (0o070, &user(5, 2000, &[]), AccessMode::EXEC, true),
        ];
        for (mode, caller, want, allowed) in table {
            let told = check(caller, file(mode), want, None);
            assert_eq!(told.is_ok(), allowed, "{mode:04o} {caller:?} {want:?}");
        }
    }

    #[test]
    fn groups_are_asked_for_only_when_they_could_turn_the_verdict() {
        let file = |mode| ObjectPerms { mode, ..FILE };
        assert_eq!(check(&unsure(5), file(0o644), AccessMode::READ, None), Ok(()));
        assert_eq!(check(&unsure(5), file(0o644), AccessMode::WRITE, None), denied(Errno::EACCES));
        assert_eq!(check(&unsure(5), file(0o640), AccessMode::READ, None), Err(Denied::NeedGroups));
        // Being in the group takes away here: silence would allow too much.
        assert_eq!(check(&unsure(5), file(0o604), AccessMode::READ, None), Err(Denied::NeedGroups));
        assert_eq!(check(&unsure(1000), file(0o040), AccessMode::READ, None), denied(Errno::EACCES));
        assert_eq!(check(&unsure(2000), file(0o640), AccessMode::READ, None), Ok(()));
    }

    #[test]
    fn root_runs_only_what_somebody_may_run() {
        let file = |mode| ObjectPerms { mode, ..FILE };
        assert_eq!(check(&Caller::ROOT, file(0), AccessMode::READ, None), Ok(()));
        assert_eq!(check(&Caller::ROOT, file(0o666), AccessMode::EXEC, None), denied(Errno::EACCES));
        assert_eq!(check(&Caller::ROOT, file(0o001), AccessMode::EXEC, None), Ok(()));
        let dir = ObjectPerms { kind: Kind::Directory, ..file(0) };
        assert_eq!(check(&Caller::ROOT, dir, AccessMode::EXEC, None), Ok(()));
    }

    #[test]
    fn an_empty_group_class_switches_the_acl_off() {
        // Measured on ext4: user 5 reads by "other", though he is named and the mask is empty.
        let mut acl = Acl::parse(&value(&[(1, 7, NO), (2, 0, 5), (4, 7, NO), (16, 7, NO), (32, 4, NO)]))
            .unwrap()
            .unwrap();
        let file = ObjectPerms { mode: 0o774, ..FILE };
        assert_eq!(check(&unsure(5), file, AccessMode::READ, Some(&acl)), denied(Errno::EACCES));
        acl.chmod(0o704);
        let file = ObjectPerms { mode: 0o704, ..FILE };
        assert_eq!(check(&user(5, 5, &[]), file, AccessMode::READ, Some(&acl)), Ok(()));
    }

    const NO: u32 = u32::MAX;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
            out.extend(id.to_le_bytes());
        }
        out
    }

    #[test]
    fn in_a_sticky_directory_only_owners_remove() {
        let dir = ObjectPerms { uid: 1, gid: 1, mode: 0o1777, kind: Kind::Directory };
        let may = |uid, dir| may_delete(&user(uid, uid, &[]), dir, None, FILE);
        assert_eq!(may(1000, dir), Ok(()));
        assert_eq!(may(1, dir), Ok(()));
        assert_eq!(may(0, dir), Ok(()));
        assert_eq!(may(5, dir), denied(Errno::EPERM));
        assert_eq!(may(5, ObjectPerms { mode: 0o777, ..dir }), Ok(()));
        // Without write permission that is what is told.
        assert_eq!(may(1000, ObjectPerms { mode: 0o1755, ..dir }), denied(Errno::EACCES));
    }

    #[test]
    fn devices_are_made_by_root_and_whiteouts_by_anybody() {
        assert_eq!(may_make(&unsure(5), Kind::BlockDevice, 0), denied(Errno::EPERM));
        assert_eq!(may_make(&unsure(5), Kind::CharDevice, 5), denied(Errno::EPERM));
        assert_eq!(may_make(&unsure(5), Kind::CharDevice, 0), Ok(()));
        assert_eq!(may_make(&unsure(5), Kind::Fifo, 5), Ok(()));
        assert_eq!(may_make(&Caller::ROOT, Kind::CharDevice, 5), Ok(()));
    }

    #[test]
    fn a_set_gid_directory_gives_its_group_and_to_directories_its_bit() {
        let dir = ObjectPerms { uid: 1, gid: 2000, mode: 0o2777, kind: Kind::Directory };
        let born = |caller: &Caller, kind, mode| {
            let born = born(caller, dir, None, kind, mode, 0o022).unwrap();
            (born.gid, born.mode)
        };
        let stranger = user(5, 5, &[]);
        assert_eq!(born(&stranger, Kind::Directory, 0o777), (2000, 0o2755));
        assert_eq!(born(&stranger, Kind::Regular, 0o666), (2000, 0o644));
        assert_eq!(born(&stranger, Kind::Regular, 0o2775), (2000, 0o755));
        assert_eq!(born(&stranger, Kind::Regular, 0o2765), (2000, 0o2745), "no group execute, no danger");
        assert_eq!(born(&user(5, 5, &[2000]), Kind::Regular, 0o2775), (2000, 0o2755));
        assert_eq!(born(&Caller::ROOT, Kind::Regular, 0o2775), (2000, 0o2755));
        assert_eq!(born(&unsure(5), Kind::Symlink, 0), (2000, 0o777));
        let asks = super::born(&unsure(5), dir, None, Kind::Regular, 0o2775, 0);
        assert_eq!(asks, Err(Denied::NeedGroups));
    }

    #[test]
    fn mkdir_takes_no_set_id_bits_and_the_own_group() {
        let dir = ObjectPerms { uid: 1, gid: 2000, mode: 0o777, kind: Kind::Directory };
        let born = born(&unsure(5), dir, None, Kind::Directory, 0o7777, 0).unwrap();
        assert_eq!((born.uid, born.gid, born.mode), (5, 5, 0o1777));
    }

    #[test]
    fn set_gid_goes_with_bytes_only_where_the_group_runs_it() {
        assert_eq!(kill_set_id(0o6777), 0o777);
        assert_eq!(kill_set_id(0o6767), 0o2767);
        assert_eq!(kill_set_id(0o1644), 0o1644);
    }

    #[test]
    fn set_gid_that_the_group_does_not_run_goes_with_bytes_of_who_is_not_in_it() {
        let of = |mode| attr(ObjectPerms { mode, ..FILE });
        let member = user(5, 2000, &[]);
        assert_eq!(mode_after_bytes(&member, &of(0o6767)), Ok(0o2767));
        assert_eq!(mode_after_bytes(&user(5, 5, &[2000]), &of(0o2644)), Ok(0o2644));
        assert_eq!(mode_after_bytes(&Caller::ROOT, &of(0o2644)), Ok(0o2644));
        assert_eq!(mode_after_bytes(&user(5, 5, &[]), &of(0o6767)), Ok(0o767));
        assert_eq!(mode_after_bytes(&unsure(5), &of(0o6767)), Err(Denied::NeedGroups));
        assert_eq!(mode_after_bytes(&unsure(5), &of(0o6777)), Ok(0o777), "no group could keep it");
        let cut = SetAttr { size: Some(1), opened: true, kill_set_id: true, ..SetAttr::default() };
        let after = apply_setattr(&of(0o6767), None, &cut, &user(5, 5, &[]), NOW).unwrap();
        assert_eq!(after.mode, 0o767);
    }

    type Row = (SetAttr, Caller, u32, Result<u32, Denied>);

    #[test]
    fn chmod_and_chown_are_the_owners_and_take_bits_away() {
        let owner = || user(1000, 1000, &[3000]);
        let chmod = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        let chgrp = |gid| SetAttr { gid: Some(gid), ..SetAttr::default() };
        let chown = |uid| SetAttr { uid: Some(uid), ..SetAttr::default() };
        // Change, by whom, old mode, new mode.
        let table: &[Row] = &[
            (chmod(0o600), owner(), 0o644, Ok(0o600)),
            (chmod(0o600), user(5, 2000, &[]), 0o666, denied(Errno::EPERM)),
            (chmod(0o600), Caller::ROOT, 0o644, Ok(0o600)),
            (chmod(0o2755), owner(), 0o644, Ok(0o755)),
            (chmod(0o2755), user(1000, 2000, &[]), 0o644, Ok(0o2755)),
            (chmod(0o2755), unsure(1000), 0o644, Err(Denied::NeedGroups)),
            (chmod(0o4755), unsure(1000), 0o644, Ok(0o4755)),
            (chown(1000), owner(), 0o644, Ok(0o644)),
            (chown(5), owner(), 0o644, denied(Errno::EPERM)),
            (chown(5), Caller::ROOT, 0o6755, Ok(0o755)),
            (chown(5), Caller::ROOT, 0o6745, Ok(0o2745)),
            (chgrp(3000), owner(), 0o6775, Ok(0o775)),
            (chgrp(3000), owner(), 0o2645, Ok(0o645)),
            (chgrp(3000), unsure(1000), 0o644, Err(Denied::NeedGroups)),
            (chgrp(4000), owner(), 0o644, denied(Errno::EPERM)),
            (chgrp(2000), owner(), 0o644, Ok(0o644)),
            (chgrp(3000), user(5, 3000, &[]), 0o666, denied(Errno::EPERM)),
            (chown(u32::MAX), Caller::ROOT, 0o644, denied(Errno::EINVAL)),
        ];
        for (set, caller, old, new) in table {
            let told = apply_setattr(&attr(ObjectPerms { mode: *old, ..FILE }), None, set, caller, NOW);
            assert_eq!(told.map(|after| after.mode), *new, "{set:?} of {old:04o} by {caller:?}");
            assert!(told.is_err() || told.is_ok_and(|after| (after.ctime, after.mtime) == (NOW, OLD)));
        }
        let dir = attr(ObjectPerms { mode: 0o6755, kind: Kind::Directory, ..FILE });
        let after = apply_setattr(&dir, None, &chown(5), &Caller::ROOT, NOW).unwrap();
        assert_eq!((after.mode, after.uid), (0o6755, 5));
    }

    #[test]
    fn a_time_of_ones_own_needs_the_owner_and_now_needs_write() {
        let to = Some(SetTime::To { time: Time { secs: -5, nanos: 3 } });
        let set = |atime, mtime| SetAttr { atime, mtime, ..SetAttr::default() };
        let apply = |mode, set: SetAttr, caller: &Caller| {
            let after = apply_setattr(&attr(ObjectPerms { mode, ..FILE }), None, &set, caller, NOW)?;
            Ok((after.atime, after.mtime))
        };
        let now = Some(SetTime::Now);
        let other = user(5, 5, &[]);
        assert_eq!(apply(0o666, set(now, now), &other), Ok((NOW, NOW)));
        assert_eq!(apply(0o644, set(now, now), &other), denied(Errno::EACCES));
        assert_eq!(apply(0o666, set(to, to), &other), denied(Errno::EPERM));
        assert_eq!(apply(0o666, set(now, None), &other), denied(Errno::EPERM));
        assert_eq!(apply(0, set(to, None), &unsure(1000)), Ok((Time { secs: -5, nanos: 3 }, OLD)));
        let bad = Some(SetTime::To { time: Time { secs: 0, nanos: 1_000_000_000 } });
        assert_eq!(apply(0, set(bad, None), &Caller::ROOT), denied(Errno::EINVAL));
    }

    #[test]
    fn a_length_is_for_regular_files_and_asks_write_unless_open() {
        let set = |opened| SetAttr { size: Some(10), opened, ..SetAttr::default() };
        let other = user(5, 5, &[]);
        let file = attr(FILE);
        assert_eq!(apply_setattr(&file, None, &set(false), &other, NOW), denied(Errno::EACCES));
        let after = apply_setattr(&file, None, &set(true), &other, NOW).unwrap();
        assert_eq!((after.size, after.mtime, after.ctime), (10, NOW, NOW), "also when the length stays");
        let dir = attr(ObjectPerms { kind: Kind::Directory, ..FILE });
        assert_eq!(apply_setattr(&dir, None, &set(false), &Caller::ROOT, NOW), denied(Errno::EISDIR));
        let fifo = attr(ObjectPerms { kind: Kind::Fifo, ..FILE });
        assert_eq!(apply_setattr(&fifo, None, &set(false), &Caller::ROOT, NOW), denied(Errno::EINVAL));
        let huge = SetAttr { size: Some(FILE_BYTES_MAX + 1), ..SetAttr::default() };
        assert_eq!(apply_setattr(&file, None, &huge, &Caller::ROOT, NOW), denied(Errno::EFBIG));
    }
}
