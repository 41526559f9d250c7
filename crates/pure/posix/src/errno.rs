//! POSIX error numbers, with Linux's values.

use atoll_core::name::NameError;
use atoll_core::{Decode, Encode, Malformed, Reader};

/// Why an operation failed: an `errno(3)` value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($(#[$meta:meta])* $name:ident = $value:literal),* $(,)?) => {
        impl Errno {
            $($(#[$meta])* pub const $name: Self = Self($value);)*

            /// The symbolic name, such as `ENOENT`.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => stringify!($name),)*
                    _ => "EUNKNOWN",
                }
            }
        }
    };
}

errnos! {
    /// Not permitted.
    EPERM = 1,
    /// No such name.
    ENOENT = 2,
    /// Interrupted by a signal.
    EINTR = 4,
    /// Cannot be answered now: an island that holds part of it is away, or bytes are damaged.
    EIO = 5,
    /// No such device.
    ENXIO = 6,
    /// Bad file descriptor.
    EBADF = 9,
    /// Would have to wait.
    EAGAIN = 11,
    /// No memory.
    ENOMEM = 12,
    /// Permission denied.
    EACCES = 13,
    /// In use.
    EBUSY = 16,
    /// The name exists.
    EEXIST = 17,
    /// Spans two file systems; until renames between directories are built, two directories.
    EXDEV = 18,
    /// Not a directory.
    ENOTDIR = 20,
    /// Is a directory.
    EISDIR = 21,
    /// Invalid argument.
    EINVAL = 22,
    /// File too large.
    EFBIG = 27,
    /// No space left.
    ENOSPC = 28,
    /// Read-only file system.
    EROFS = 30,
    /// Too many links.
    EMLINK = 31,
    /// Argument out of range.
    ERANGE = 34,
    /// A lock would deadlock.
    EDEADLK = 35,
    /// Name too long.
    ENAMETOOLONG = 36,
    /// No locks left.
    ENOLCK = 37,
    /// Not implemented.
    ENOSYS = 38,
    /// Directory not empty.
    ENOTEMPTY = 39,
    /// Too many symbolic links.
    ELOOP = 40,
    /// No such attribute.
    ENODATA = 61,
    /// Protocol error.
    EPROTO = 71,
    /// Value too large.
    EOVERFLOW = 75,
    /// Not supported.
    EOPNOTSUPP = 95,
    /// No answer in time.
    ETIMEDOUT = 110,
    /// The id names nothing (any more).
    ESTALE = 116,
    /// Over quota.
    EDQUOT = 122,
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            "EUNKNOWN" => write!(f, "errno {}", self.0),
            name => f.write_str(name),
        }
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Errno {}

impl From<NameError> for Errno {
    fn from(e: NameError) -> Self {
        match e {
            NameError::TooLong => Self::ENAMETOOLONG,
            NameError::Empty => Self::ENOENT,
            NameError::Forbidden | NameError::Relative => Self::EINVAL,
        }
    }
}

impl Encode for Errno {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for Errno {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        match i32::decode(r)? {
            value @ 1..=4095 => Ok(Self(value)),
            _ => Err(Malformed::new("errno")),
        }
    }
}
