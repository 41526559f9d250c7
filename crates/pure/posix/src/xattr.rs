//! Extended attributes: which names exist, and who may read, write and see them. Decides; never stores.

use crate::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR};
use crate::attr::{Caller, Kind, mode};
use crate::errno::Errno;
use crate::perm::{AccessMode, Denied, ObjectPerms, check};

/// Longest name in bytes (`XATTR_NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest value in bytes (`XATTR_SIZE_MAX`).
pub const VALUE_BYTES_MAX: usize = 65_536;
/// Most bytes that the names of one file take in a list, each with its NUL (`XATTR_LIST_MAX`);
/// what does not fit cannot be set (`ENOSPC`), so that a list is never cut.
pub const LIST_BYTES_MAX: usize = 65_536;
/// File capabilities, which go with the set-id bits when an unprivileged caller changes bytes.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The errno of a value that is too long.
const E2BIG: Errno = Errno(7);

/// The class of a name, which decides its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// `user.`: follows the permissions of files and directories; no other kind of file has any.
    User,
    /// `trusted.`: root's; nobody else sees them.
    Trusted,
    /// `security.`: root writes, everybody reads.
    Security,
    /// The access ACL.
    AccessAcl,
    /// The default ACL of a directory.
    DefaultAcl,
    /// A name that has no rules here: nothing can be stored under it (`EOPNOTSUPP`).
    Unknown,
}

/// How a write changes the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It gets a value.
    Set,
    /// It is removed.
    Remove,
}

impl Namespace {
    /// The rules for `name`. `ERANGE` if it is empty or too long, `EINVAL` if it has a prefix only
    /// or a NUL in it.
    pub fn of(name: &[u8]) -> Result<Self, Errno> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Errno::ERANGE);
        }
        if name.contains(&0) {
            return Err(Errno::EINVAL);
        }
        let prefixes = [
            (&b"user."[..], Self::User),
            (&b"trusted."[..], Self::Trusted),
            (&b"security."[..], Self::Security),
        ];
        for (prefix, namespace) in prefixes {
            match name.strip_prefix(prefix) {
                Some([]) => return Err(Errno::EINVAL),
                Some(_) => return Ok(namespace),
                None => {}
            }
        }
        Ok(match name {
            ACCESS_XATTR => Self::AccessAcl,
            DEFAULT_XATTR => Self::DefaultAcl,
            _ => Self::Unknown,
        })
    }
}

/// Whether `caller` may read `name` of `what`, whose access ACL is `acl`. `ENODATA` for what is
/// hidden from him, `EACCES`, `EOPNOTSUPP`.
pub fn may_read(
    caller: &Caller,
    what: ObjectPerms,
    acl: Option<&Acl>,
    name: &[u8],
) -> Result<Namespace, Denied> {
    let namespace = Namespace::of(name)?;
    match namespace {
        Namespace::Trusted if !caller.is_root() => return Err(Errno::ENODATA.into()),
        Namespace::User if !has_user_namespace(what.kind) => return Err(Errno::ENODATA.into()),
        Namespace::User => check(caller, what, AccessMode::READ, acl)?,
        Namespace::Unknown => return Err(unknown(caller, what, acl, name, AccessMode::READ)),
        Namespace::AccessAcl | Namespace::DefaultAcl if what.kind == Kind::Symlink => {
            return Err(Errno::EOPNOTSUPP.into());
        }
        _ => {}
    }
    Ok(namespace)
}

/// Whether `caller` may set or remove `name` of `what`, whose access ACL is `acl`. `EPERM`,
/// `EACCES`, `EOPNOTSUPP`. The value is not looked at: see `check_value` and `Acl::parse`.
pub fn may_write(
    caller: &Caller,
    what: ObjectPerms,
    acl: Option<&Acl>,
    name: &[u8],
    change: Change,
) -> Result<Namespace, Denied> {
    let namespace = Namespace::of(name)?;
    let owner = caller.acts_as_owner(&what);
    let allowed = match namespace {
        Namespace::Trusted | Namespace::Security => caller.is_root(),
        Namespace::User => {
            let sticky = what.kind == Kind::Directory && what.mode & mode::STICKY != 0;
            if !has_user_namespace(what.kind) || (sticky && !owner) {
                return Err(Errno::EPERM.into());
            }
            return check(caller, what, AccessMode::WRITE, acl).map(|()| namespace);
        }
        Namespace::AccessAcl | Namespace::DefaultAcl => {
            if what.kind == Kind::Symlink {
                return Err(Errno::EOPNOTSUPP.into());
            }
            if namespace == Namespace::DefaultAcl && what.kind != Kind::Directory {
                // Nothing is taken away, and Linux lets anybody do that.
                return if change == Change::Remove { Ok(namespace) } else { Err(Errno::EACCES.into()) };
            }
            owner
        }
        Namespace::Unknown => return Err(unknown(caller, what, acl, name, AccessMode::WRITE)),
    };
    if allowed { Ok(namespace) } else { Err(Errno::EPERM.into()) }
}

/// Linux asks for permission before it finds that nobody handles the name, except in `system.`.
fn unknown(caller: &Caller, what: ObjectPerms, acl: Option<&Acl>, name: &[u8], want: AccessMode) -> Denied {
    let asked = if name.starts_with(b"system.") { Ok(()) } else { check(caller, what, want, acl) };
    asked.err().unwrap_or(Errno::EOPNOTSUPP.into())
}

const fn has_user_namespace(kind: Kind) -> bool {
    matches!(kind, Kind::Regular | Kind::Directory)
}

/// `E2BIG` if a value of so many bytes cannot be stored.
pub const fn check_value(bytes: usize) -> Result<(), Errno> {
    if bytes > VALUE_BYTES_MAX { Err(E2BIG) } else { Ok(()) }
}

/// Whether a listing shows `name` to `caller`.
pub fn is_listed(caller: &Caller, name: &[u8]) -> bool {
    caller.is_root() || !name.starts_with(b"trusted.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Caller = Caller { uid: 5, gid: 5, groups: Some(Vec::new()) };
    const OTHER: Caller = Caller { uid: 6, gid: 6, groups: Some(Vec::new()) };

    fn what(kind: Kind, mode: u32) -> ObjectPerms {
        ObjectPerms { uid: 5, gid: 5, mode, kind }
    }

    #[test]
    fn names_have_a_namespace_a_rest_and_a_length() {
        assert_eq!(Namespace::of(b"user.a"), Ok(Namespace::User));
        assert_eq!(Namespace::of(b"system.posix_acl_default"), Ok(Namespace::DefaultAcl));
        assert_eq!(Namespace::of(b"system.posix_acl_access2"), Ok(Namespace::Unknown));
        assert_eq!(Namespace::of(b"user"), Ok(Namespace::Unknown));
        assert_eq!(Namespace::of(b"user."), Err(Errno::EINVAL));
        assert_eq!(Namespace::of(b"user.a\0"), Err(Errno::EINVAL));
        assert_eq!(Namespace::of(b""), Err(Errno::ERANGE));
        let long = [b"user.".as_slice(), &[b'x'; NAME_BYTES_MAX - 5]].concat();
        assert_eq!(Namespace::of(&long), Ok(Namespace::User));
        assert_eq!(Namespace::of(&[&long, &b"x"[..]].concat()), Err(Errno::ERANGE));
        assert_eq!((check_value(VALUE_BYTES_MAX), check_value(VALUE_BYTES_MAX + 1)), (Ok(()), Err(E2BIG)));
    }

    /// What Linux 6.18 answers on ext4: (name, kind, mode, by whom, reading, writing).
    type Row = (&'static [u8], Kind, u32, Caller, Result<(), Errno>, Result<(), Errno>);

    #[test]
    fn every_namespace_has_its_own_rules() {
        use Kind::{Directory, Fifo, Regular, Symlink};
        let (acces, perm, nodata, nosupp) =
            (Err(Errno::EACCES), Err(Errno::EPERM), Err(Errno::ENODATA), Err(Errno::EOPNOTSUPP));
        let root = || Caller::ROOT;
        let table: &[Row] = &[
            (b"user.a", Regular, 0o640, OWNER, Ok(()), Ok(())),
            (b"user.a", Regular, 0o640, OTHER, acces, acces),
            (b"user.a", Regular, 0o444, OTHER, Ok(()), acces),
            (b"user.a", Fifo, 0o777, OWNER, nodata, perm),
            (b"user.a", Symlink, 0o777, root(), nodata, perm),
            (b"user.a", Directory, 0o777, OTHER, Ok(()), Ok(())),
            (b"user.a", Directory, 0o1777, OTHER, Ok(()), perm),
            (b"user.a", Directory, 0o1777, OWNER, Ok(()), Ok(())),
            (b"trusted.a", Regular, 0o777, OWNER, nodata, perm),
            (b"trusted.a", Symlink, 0o777, root(), Ok(()), Ok(())),
            (b"security.a", Regular, 0o000, OTHER, Ok(()), perm),
            (b"security.a", Regular, 0o000, root(), Ok(()), Ok(())),
            (ACCESS_XATTR, Regular, 0o000, OTHER, Ok(()), perm),
            (ACCESS_XATTR, Fifo, 0o000, OWNER, Ok(()), Ok(())),
            (ACCESS_XATTR, Symlink, 0o777, root(), nosupp, nosupp),
            (DEFAULT_XATTR, Directory, 0o000, OWNER, Ok(()), Ok(())),
            (DEFAULT_XATTR, Directory, 0o777, OTHER, Ok(()), perm),
            (DEFAULT_XATTR, Regular, 0o777, OTHER, Ok(()), acces),
            (b"other.a", Regular, 0o600, OTHER, acces, acces),
            (b"other.a", Regular, 0o600, OWNER, nosupp, nosupp),
            (b"system.a", Regular, 0o600, OTHER, nosupp, nosupp),
        ];
        for (name, kind, mode, caller, read, write) in table {
            let told = |told: Result<Namespace, Denied>| match told {
                Ok(_) => Ok(()),
                Err(Denied::Errno(errno)) => Err(errno),
                Err(Denied::NeedGroups) => panic!("groups are known"),
            };
            let what = what(*kind, *mode);
            let context = format!("{} of {kind:?} {mode:04o} by {}", name.escape_ascii(), caller.uid);
            assert_eq!(told(may_read(caller, what, None, name)), *read, "reading {context}");
            assert_eq!(told(may_write(caller, what, None, name, Change::Set)), *write, "writing {context}");
        }
    }

    #[test]
    fn anybody_may_take_away_the_default_acl_that_no_file_has() {
        let told = may_write(&OTHER, what(Kind::Regular, 0), None, DEFAULT_XATTR, Change::Remove);
        assert_eq!(told, Ok(Namespace::DefaultAcl));
    }

    #[test]
    fn only_root_sees_trusted_names() {
        assert!(is_listed(&Caller::ROOT, b"trusted.a"));
        assert!(!is_listed(&OTHER, b"trusted.a"));
        assert!(is_listed(&OTHER, b"security.a"));
    }
}
