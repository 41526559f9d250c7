//! The source of a mount: `HOST:PORT[,HOST:PORT...]:/VOLUME`.
//!
//! Only text: resolves no names and asks nobody.

use std::fmt;
use std::str::FromStr;

use atoll_rpc::Address;

/// Longest name of a volume, in bytes.
pub const VOLUME_NAME_BYTES_MAX: usize = 64;

/// Most addresses of one source.
pub const ADDRESSES_MAX: usize = 64;

/// A volume, and daemons of its cluster to ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// At least one, each of them TCP, to be tried in this order.
    pub hosts: Vec<Address>,
    /// Name of the volume.
    pub volume: String,
}

/// Text that names no volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" names no volume: {why}.\n\
    Write HOST:PORT:/VOLUME, such as node1:7100:/home, or several: node1:7100,node2:7100:/home."
)]
pub struct SourceError {
    /// The text.
    pub text: String,
    /// The reason.
    pub why: &'static str,
}

/// Refuses a name that no volume may have: it must be usable in paths, commands and file names.
pub fn check_volume_name(name: &str) -> Result<(), SourceError> {
    let bad = |why| Err(SourceError { text: name.escape_debug().to_string(), why });
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match name.as_bytes() {
        [] => bad("the name of the volume is missing"),
        all if all.len() > VOLUME_NAME_BYTES_MAX => bad("the name of the volume is longer than 64 bytes"),
        [first, ..] if is_plain(*first) && !first.is_ascii_alphanumeric() => {
            bad("the name of a volume starts with a letter or digit")
        }
        all if !all.iter().copied().all(is_plain) => {
            bad("the name of a volume has letters, digits, hyphens, underscores and dots only")
        }
        _ => Ok(()),
    }
}

impl FromStr for Addresses {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let bad = |why| SourceError { text: text.escape_debug().to_string(), why };
        // No host has a slash in it, so the first one belongs to the volume.
        let (hosts, volume) = text.split_once(":/").ok_or_else(|| bad("\":/VOLUME\" is missing"))?;
        if volume.contains('/') {
            return Err(bad("a folder of a volume cannot be mounted by itself, only the whole volume"));
        }
        check_volume_name(volume).map_err(|e| bad(e.why))?;
        let mut found = Vec::new();
        for host in hosts.split(',') {
            let address: Address = host.parse().map_err(|e: atoll_rpc::AddressError| bad(e.why))?;
            if matches!(address, Address::Unix { .. }) {
                return Err(bad("a mount needs HOST:PORT, not a Unix socket"));
            }
            if found.contains(&address) {
                return Err(bad("a host is named twice"));
            }
            if found.len() == ADDRESSES_MAX {
                return Err(bad("more than 64 hosts are named"));
            }
            found.push(address);
        }
        Ok(Self { hosts: found, volume: volume.to_owned() })
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if i == 0 { "" } else { "," })?;
        }
        write!(f, ":/{}", self.volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hosts_and_volume_are_told_apart() {
        let source: Addresses = "node1:7100,[fd00::2]:7101,10.0.0.3:7102:/home".parse().unwrap();
        assert_eq!(source.volume, "home");
        let hosts: Vec<String> = source.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["node1:7100", "[fd00::2]:7101", "10.0.0.3:7102"]);
        assert_eq!(source.to_string(), "node1:7100,[fd00::2]:7101,10.0.0.3:7102:/home");
    }

    #[test]
    fn a_bad_source_says_what_is_wrong_with_it() {
        for (text, why) in [
            ("", "\":/VOLUME\" is missing"),
            ("node1:7100", "\":/VOLUME\" is missing"),
            ("node1:7100:home", "\":/VOLUME\" is missing"),
            ("node1:/home", "the port is missing"),
            ("node1:7100:/", "the name of the volume is missing"),
            ("node1:7100,:/home", "the port is missing"),
            ("node1:7100,node1:7100:/home", "a host is named twice"),
            ("node1:99999:/home", "the port is above 65535"),
            (
                "node1:7100:/home/ann",
                "a folder of a volume cannot be mounted by itself, only the whole volume",
            ),
            ("node1:7100:/.home", "the name of a volume starts with a letter or digit"),
            (
                "node1:7100:/ho me",
                "the name of a volume has letters, digits, hyphens, underscores and dots only",
            ),
        ] {
            let error = text.parse::<Addresses>().unwrap_err();
            assert_eq!(error.why, why, "{text}");
            assert!(error.to_string().lines().count() <= 3);
        }
        let many: Vec<String> = (1..=65).map(|p| format!("node:{p}")).collect();
        let error = format!("{}:/home", many.join(",")).parse::<Addresses>().unwrap_err();
        assert_eq!(error.why, "more than 64 hosts are named");
        let long = format!("node:1:/{}", "x".repeat(65)).parse::<Addresses>().unwrap_err();
        assert_eq!(long.why, "the name of the volume is longer than 64 bytes");
    }

    proptest! {
        #[test]
        fn what_is_read_is_shown_the_same_and_nothing_panics(text in "[a-z0-9:/,.\\[\\]é-]{0,40}") {
            if let Ok(source) = text.parse::<Addresses>() {
                prop_assert_eq!(source.to_string().parse::<Addresses>(), Ok(source));
            }
        }
    }
}
