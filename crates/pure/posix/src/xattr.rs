//! Extended attributes: which names there are, who may read, write and see them. Decides; never
//! stores.

use crate::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR};
use crate::attr::{Caller, Kind, mode};
use crate::errno::Errno;
use crate::perm::{Access, Denied, Owned, check};

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

/// Whose rules a name follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// `user.`: goes by the permissions of files and directories; nothing else has any.
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
    /// It goes.
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
pub fn may_read(caller: &Caller, what: Owned, acl: Option<&Acl>, name: &[u8]) -> Result<Namespace, Denied> {
    let namespace = Namespace::of(name)?;
    match namespace {
        Namespace::Trusted if !caller.is_root() => return Err(Errno::ENODATA.into()),
        Namespace::User if !has_user_namespace(what.kind) => return Err(Errno::ENODATA.into()),
        Namespace::User => check(caller, what, Access::READ, acl)?,
        Namespace::Unknown => return Err(unknown(caller, what, acl, name, Access::READ)),
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
    what: Owned,
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
            return check(caller, what, Access::WRITE, acl).map(|()| namespace);
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
        Namespace::Unknown => return Err(unknown(caller, what, acl, name, Access::WRITE)),
    };
    if allowed { Ok(namespace) } else { Err(Errno::EPERM.into()) }
}

/// Linux asks for permission before it finds that nobody handles the name, except in `system.`.
fn unknown(caller: &Caller, what: Owned, acl: Option<&Acl>, name: &[u8], want: Access) -> Denied {
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
