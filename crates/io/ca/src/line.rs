//! The lines that a node and a site join by: where to ask, a secret for one use, and by what to know the CA or the site.

use std::str::FromStr;

use atoll_core::{Decode, Encode, Reader};
use atoll_rpc::Address;
use data_encoding::BASE64URL_NOPAD;

/// How a line begins. The digit is the version of its form.
const FRONT: &str = "atoll-join-1.";

/// How lines of every version begin.
const FRONT_OF_ALL: &str = "atoll-join-";

/// The same of lines by which sites join a wide volume.
const SITE_FRONT: &str = "atoll-site-1.";
const SITE_FRONT_OF_ALL: &str = "atoll-site-";

/// Longest line, in characters.
const LINE_CHARS_MAX: usize = 4096;

/// Most addresses in a line.
const ADDRESSES_MAX: usize = 8;

/// A line to join by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinLine {
    /// Nodes to ask, one after the other.
    pub addresses: Vec<Address>,
    /// Whoever knows it may join, once.
    pub secret: [u8; 16],
    /// SHA-256 of the CA's certificate.
    pub ca: [u8; 32],
    /// Until when it holds, in seconds since 1970, by the clock of the node that made it.
    pub until: u64,
}

/// A line by which a site joins a wide volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteLine {
    /// Where the site is that made it.
    pub addresses: Vec<Address>,
    /// Whoever knows it may join, once.
    pub secret: [u8; 16],
    /// SHA-256 of that site's public key.
    pub key: [u8; 32],
    /// Until when it holds, in seconds since 1970, by that site's clock.
    pub until: u64,
}

/// Why a text is no line to join by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Something else.
    #[error(
        "This is no line to join by: such a line begins with \"{FRONT}\".\nMake one with \"atoll node invite\"."
    )]
    Other,
    /// Something else than a line for sites.
    #[error(
        "This is no line by which a site joins: such a line begins with \"{SITE_FRONT}\".\nMake one with \"atoll site invite\"."
    )]
    NoSiteLine,
    /// A character was changed, or is missing.
    #[error(
        "The line to join by was altered: a part of it is missing or changed.\nCopy the whole line again."
    )]
    Altered,
    /// Of a newer version.
    #[error(
        "The line to join by is of a newer version of Atoll.\nInstall the version of the other nodes here."
    )]
    Newer,
}

impl JoinLine {
    fn write(&self, front: &str, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.secret);
        bytes.extend_from_slice(&self.ca);
        self.until.encode(&mut bytes);
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().encode(&mut bytes);
        crc32c::crc32c(&bytes).encode(&mut bytes);
        write!(f, "{front}{}", BASE64URL_NOPAD.encode(&bytes))
    }

    /// Reads a line that begins so. `of_all` is how lines of every version begin.
    fn read(text: &str, front: &str, of_all: &str, other: BadLine) -> Result<Self, BadLine> {
        let text = text.trim();
        let Some(body) = text.strip_prefix(front) else {
            let version = text.strip_prefix(of_all).and_then(|rest| rest.split_once('.'));
            let is_newer = version.is_some_and(|(digits, _)| digits.parse::<u32>().is_ok_and(|n| n > 1));
            return Err(if is_newer { BadLine::Newer } else { other });
        };
        if body.len() > LINE_CHARS_MAX {
            return Err(BadLine::Altered);
        }
        let bytes = BASE64URL_NOPAD.decode(body.as_bytes()).map_err(|_| BadLine::Altered)?;
        let (bytes, sum) = bytes.split_last_chunk::<4>().ok_or(BadLine::Altered)?;
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*sum) {
            return Err(BadLine::Altered);
        }
        decode(bytes).ok_or(BadLine::Altered)
    }
}

impl std::fmt::Display for JoinLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.write(FRONT, f)
    }
}

impl FromStr for JoinLine {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Self, BadLine> {
        Self::read(text, FRONT, FRONT_OF_ALL, BadLine::Other)
    }
}

impl std::fmt::Display for SiteLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { addresses, secret, key, until } = self.clone();
        JoinLine { addresses, secret, ca: key, until }.write(SITE_FRONT, f)
    }
}

impl FromStr for SiteLine {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Self, BadLine> {
        let read = JoinLine::read(text, SITE_FRONT, SITE_FRONT_OF_ALL, BadLine::NoSiteLine)?;
        let JoinLine { addresses, secret, ca: key, until } = read;
        Ok(Self { addresses, secret, key, until })
    }
}

fn decode(bytes: &[u8]) -> Option<JoinLine> {
    let mut r = Reader::new(bytes);
    let secret = r.take(16, "secret").ok()?.try_into().ok()?;
    let ca = r.take(32, "digest").ok()?.try_into().ok()?;
    let until = u64::decode(&mut r).ok()?;
    let addresses = Vec::<String>::decode(&mut r).ok()?;
    r.finish().ok()?;
    let addresses: Option<Vec<Address>> = addresses.iter().map(|text| text.parse().ok()).collect();
    let addresses = addresses.filter(|all| (1..=ADDRESSES_MAX).contains(&all.len()))?;
    addresses.iter().all(|a| matches!(a, Address::Tcp { .. })).then_some(JoinLine {
        addresses,
        secret,
        ca,
        until,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line() -> JoinLine {
        let addresses = vec!["10.0.0.1:7100".parse().unwrap(), "[fd00::1]:7100".parse().unwrap()];
        JoinLine { addresses, secret: [7; 16], ca: [9; 32], until: 1_800_000_000 }
    }

    #[test]
    fn a_line_comes_back_and_every_altered_character_is_noticed() {
        let text = line().to_string();
        assert_eq!(format!(" {text}\n").parse(), Ok(line()));
        for at in FRONT.len()..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(bytes).unwrap();
            assert_eq!(altered.parse::<JoinLine>(), Err(BadLine::Altered), "{at}");
            assert_eq!(text[..at].parse::<JoinLine>(), Err(BadLine::Altered), "{at}");
        }
        assert_eq!("hello".parse::<JoinLine>(), Err(BadLine::Other));
        assert_eq!(text.replace("-1.", "-2.").parse::<JoinLine>(), Err(BadLine::Newer));
    }

    #[test]
    fn a_line_for_sites_is_none_for_nodes() {
        let JoinLine { addresses, secret, ca: key, until } = line();
        let site = SiteLine { addresses, secret, key, until };
        let text = site.to_string();
        assert_eq!(text.parse(), Ok(site));
        assert_eq!(text.parse::<JoinLine>(), Err(BadLine::Other));
        assert_eq!(line().to_string().parse::<SiteLine>(), Err(BadLine::NoSiteLine));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
            let _ = text.parse::<JoinLine>();
            let _ = format!("{FRONT}{text}").parse::<JoinLine>();
        }
    }
}
