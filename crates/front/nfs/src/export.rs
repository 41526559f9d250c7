//! Export rules: which addresses may use which directory, and as whom.
//!
//! A rule is written `[/PATH] CLIENT[(OPTION,...)]`, as in exports(5). CLIENT is an address, a network such as
//! `10.0.0.0/8`, or `*`. Options: `ro`, `rw`, `root_squash`, `no_root_squash`, `all_squash`, `anonuid=N`,
//! `anongid=N`, `secure`, `insecure`, `auth_none`, `manage_gids`.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use atoll_core::VolumePath;
use atoll_posix::Caller;

use crate::rpc::{AUTH_BADCRED, AUTH_TOOWEAK, Cred};

/// The user and group of nobody.
const NOBODY: u32 = 65_534;
/// Most rules of a server.
pub(crate) const RULES_MAX: usize = 256;
/// Ports below it are for privileged programs only.
const SECURE_PORT_END: u16 = 1024;

/// Whose identity is replaced by the anonymous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Squash {
    /// Root's.
    Root,
    /// Everybody's.
    All,
    /// Nobody's.
    Nobody,
}

/// What a rule allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Nothing may be changed.
    pub read_only: bool,
    /// Who becomes anonymous.
    pub squash: Squash,
    /// User id of the anonymous user.
    pub anon_uid: u32,
    /// Group id of the anonymous user.
    pub anon_gid: u32,
    /// Whether only ports below 1024 may call; none: except from this machine.
    pub secure: Option<bool>,
    /// Calls without credentials are the anonymous user's.
    pub auth_none: bool,
    /// The groups that this machine knows of a user count, and not those that the client names.
    pub manage_gids: bool,
}

impl Default for Access {
    fn default() -> Self {
        let (read_only, squash, anon_uid, anon_gid) = (false, Squash::Root, NOBODY, NOBODY);
        Self { read_only, squash, anon_uid, anon_gid, secure: None, auth_none: false, manage_gids: false }
    }
}

/// An export rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The directory, from the volume's root.
    pub path: VolumePath,
    /// First address of the network, and how many of its bits count. An IPv4 address is mapped into IPv6.
    net: (u128, u32),
    /// The client as it was written.
    pub client: String,
    /// What is allowed.
    pub access: Access,
}

/// A rule that does not parse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRule {
    text: String,
    why: String,
}

impl std::fmt::Display for BadRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { text, why } = self;
        write!(
            f,
            "The export rule \"{text}\" cannot be used: {why}.\nWrite [/PATH] CLIENT[(OPTION,...)], such as \"/projects 10.0.0.0/8(ro)\"."
        )
    }
}

impl std::error::Error for BadRule {}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn network(client: &str) -> Result<(u128, u32), String> {
    if client == "*" {
        return Ok((0, 0));
    }
    let (address, len) = match client.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (client, None),
    };
    let address: IpAddr =
        address.parse().map_err(|_| format!("\"{address}\" is neither an IP address nor \"*\""))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let len = match len {
        None => most,
        Some(text) => text
            .parse()
            .ok()
            .filter(|len| *len <= most)
            .ok_or_else(|| format!("\"{text}\" is not a number of bits up to {most}"))?,
    };
    Ok((bits(address), len + 128 - most))
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let bad = |why: String| BadRule { text: text.to_owned(), why };
        let text = text.trim();
        let (path, rest) = match text.split_once(char::is_whitespace) {
            Some((path, rest)) if path.starts_with('/') => (path, rest.trim()),
            _ if text.starts_with('/') => return Err(bad("it names no client".to_owned())),
            _ => ("/", text),
        };
        let path =
            VolumePath::parse(path.as_bytes()).map_err(|why| bad(format!("the path {path}: {why}")))?;
        let (client, options) = match rest.split_once('(') {
            Some((client, options)) => match options.strip_suffix(')') {
                Some(options) => (client, options),
                None => return Err(bad("the \")\" at its end is missing".to_owned())),
            },
            None => (rest, ""),
        };
        let net = network(client).map_err(bad)?;
        let mut access = Access::default();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let number = |text: &str| {
                text.parse().map_err(|_| bad(format!("\"{option}\" needs a number behind \"=\"")))
            };
            match option.split_once('=').unwrap_or((option, "")) {
                ("ro", "") => access.read_only = true,
                ("rw", "") => access.read_only = false,
                ("root_squash", "") => access.squash = Squash::Root,
                ("no_root_squash", "") => access.squash = Squash::Nobody,
                ("all_squash", "") => access.squash = Squash::All,
                ("secure", "") => access.secure = Some(true),
                ("insecure", "") => access.secure = Some(false),
                ("auth_none", "") => access.auth_none = true,
                ("manage_gids", "") => access.manage_gids = true,
                ("anonuid", value) => access.anon_uid = number(value)?,
                ("anongid", value) => access.anon_gid = number(value)?,
                _ => return Err(bad(format!("there is no option \"{option}\""))),
            }
        }
        Ok(Self { path, net, client: client.to_owned(), access })
    }
}

impl Rule {
    /// Whether it is about a client.
    pub(crate) fn is_for(&self, address: IpAddr) -> bool {
        let (net, len) = self.net;
        len == 0 || (bits(address) ^ net) >> (128 - len) == 0
    }
}

impl Access {
    /// Whether a client may call from this port.
    pub(crate) fn takes_port(&self, address: IpAddr, port: u16) -> bool {
        port < SECURE_PORT_END || !self.secure.unwrap_or(!address.to_canonical().is_loopback())
    }

    /// As whom a call is carried out; otherwise why its credential does not do. `known` tells a user's groups here.
    pub(crate) fn caller(&self, cred: &Cred, known: impl FnOnce(u32) -> Arc<[u32]>) -> Result<Caller, u32> {
        let anonymous = Caller { uid: self.anon_uid, gid: self.anon_gid, groups: Some(Vec::new()) };
        match cred {
            Cred::None if self.auth_none => Ok(anonymous),
            Cred::None | Cred::Other => Err(AUTH_TOOWEAK),
            Cred::Bad => Err(AUTH_BADCRED),
            Cred::Sys { .. } if self.squash == Squash::All => Ok(anonymous),
            Cred::Sys { uid, gid, groups } => {
                let all = self.squash == Squash::Nobody;
                let user = |id: u32| if id == 0 && !all { self.anon_uid } else { id };
                let group = |id: u32| if id == 0 && !all { self.anon_gid } else { id };
                let groups = if self.manage_gids { known(*uid) } else { groups.as_slice().into() };
                let groups = groups.iter().map(|id| group(*id)).collect();
                Ok(Caller { uid: user(*uid), gid: group(*gid), groups: Some(groups) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_for_its_network_and_no_other() {
        let rule: Rule = "/projects 10.1.0.0/16(ro,anonuid=7)".parse().unwrap();
        assert!(rule.access.read_only && rule.access.anon_uid == 7);
        assert!(rule.is_for("10.1.2.3".parse().unwrap()) && rule.is_for("::ffff:10.1.0.9".parse().unwrap()));
        assert!(!rule.is_for("10.2.2.3".parse().unwrap()) && !rule.is_for("::1".parse().unwrap()));
        assert!("*".parse::<Rule>().unwrap().is_for("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn a_rule_that_does_not_parse_says_why_and_how() {
        for bad in ["", "/x", "host", "10.0.0.0/33", "*(ro", "*(zz)", "*(anonuid=x)", "/a/../b *"] {
            let why = bad.parse::<Rule>().unwrap_err().to_string();
            assert!(why.contains("Write ") && why.lines().count() == 2, "{why}");
        }
    }

    #[test]
    fn root_and_its_groups_become_nobody_unless_told_otherwise() {
        let cred = Cred::Sys { uid: 0, gid: 0, groups: vec![0, 5] };
        let never = |_| panic!("the client's list counts");
        let caller = Access::default().caller(&cred, never).unwrap();
        assert_eq!((caller.uid, caller.gid, caller.groups), (NOBODY, NOBODY, Some(vec![NOBODY, 5])));
        let rule: Rule = "*(no_root_squash)".parse().unwrap();
        assert_eq!(rule.access.caller(&cred, never).unwrap().uid, 0);
        assert_eq!(Access::default().caller(&Cred::None, never), Err(AUTH_TOOWEAK));
        let rule: Rule = "*(manage_gids)".parse().unwrap();
        let cred = Cred::Sys { uid: 7, gid: 8, groups: vec![9] };
        let known = |uid| {
            assert_eq!(uid, 7);
            [0, 20].into()
        };
        let caller = rule.access.caller(&cred, known).unwrap();
        assert_eq!((caller.uid, caller.gid, caller.groups), (7, 8, Some(vec![NOBODY, 20])), "squashed too");
    }
}
