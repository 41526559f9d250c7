//! Addresses where daemons listen: `HOST:PORT`, or the path of a Unix socket.
//!
//! Only text: resolves no names and opens nothing.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a Unix socket, in bytes, as the system has it.
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// Longest host name, in bytes (RFC 1035).
pub const HOST_BYTES_MAX: usize = 253;

/// The address of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// TCP.
    Tcp {
        /// Name or address, without the brackets of an IPv6 address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// Its absolute path.
        path: PathBuf,
    },
}

/// Text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not an address: {why}.\n\
    Write HOST:PORT, such as node1:7100 or [fd00::1]:7100, or unix:/PATH."
)]
pub struct AddressError {
    /// The text.
    pub text: String,
    /// The reason.
    pub why: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).map_err(|why| AddressError { text: text.escape_debug().to_string(), why })
    }
}

fn parse(text: &str) -> Result<Address, &'static str> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match path.len() {
            0 => Err("the path is missing"),
            _ if !path.starts_with('/') => Err("the path must start with a slash"),
            _ if path.contains('\0') => Err("the path has a NUL character in it"),
            n if n > UNIX_PATH_BYTES_MAX => Err("the system allows a Unix socket 107 bytes of path"),
            _ => Ok(Address::Unix { path: path.into() }),
        };
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("the closing bracket is missing")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("there is no IPv6 address in the brackets");
            }
            (host, rest.strip_prefix(':').ok_or("the port is missing")?)
        }
        None => {
            let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
            if host.contains(':') {
                return Err("an IPv6 address needs brackets around it");
            }
            let is_host_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
            if !host.bytes().all(is_host_byte) {
                return Err("a host name has letters, digits, dots and hyphens only");
            }
            (host, port)
        }
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    if host.len() > HOST_BYTES_MAX {
        return Err("the host name is too long");
    }
    // `parse` would take a sign, too.
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err("the port is no number");
    }
    let port = port.parse().map_err(|_| "the port is above 65535")?;
    Ok(Address::Tcp { host: host.to_owned(), port })
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path } => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for text in ["node1:7100", "10.0.0.1:1", "[fd00::1]:65535", "unix:/run/atoll.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bad_address_says_what_is_wrong_with_it() {
        for (text, why) in [
            ("node1", "the port is missing"),
            ("node1:", "the port is no number"),
            ("node1:+1", "the port is no number"),
            ("node1:70000", "the port is above 65535"),
            (":7100", "the host is missing"),
            ("a b:7100", "a host name has letters, digits, dots and hyphens only"),
            ("fd00::1:7100", "an IPv6 address needs brackets around it"),
            ("[fd00::1]", "the port is missing"),
            ("[fd00::1:7100", "the closing bracket is missing"),
            ("[node]:7100", "there is no IPv6 address in the brackets"),
            ("unix:", "the path is missing"),
            ("unix:a", "the path must start with a slash"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap_err().why, why, "{text}");
        }
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_BYTES_MAX));
        assert!(long.parse::<Address>().unwrap_err().to_string().contains("107 bytes"));
    }
}
