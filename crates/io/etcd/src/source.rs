//! Where an etcd is, and how it is spoken to: `etcd://[USER[:PASSWORD]@]HOST:PORT[,HOST:PORT...][?OPTION=VALUE[&...]]`.
//!
//! Only text: reads no file and asks nobody. A password is never shown.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use atoll_rpc::Address;

/// Most members that are named.
pub const ETCD_HOSTS_MAX: usize = 16;
/// Below this the keys of all clusters are, unless another place is named.
pub const ETCD_PREFIX: &str = "/atoll";
const PREFIX_BYTES_MAX: usize = 255;

const SCHEME: &str = "etcd://";

/// A password, which no message shows.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// The password.
    Text(String),
    /// A file with it, which is read whenever it is needed. A line end behind it does not count.
    File(PathBuf),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(...)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Certificates, by the paths of their files (PEM).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Who signs etcd's certificates.
    pub ca: PathBuf,
    /// A certificate of one's own and its key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name that etcd's certificates have, in place of the host that is connected to.
    pub name: Option<String>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSource {
    /// At least one, each of them TCP.
    pub hosts: Vec<Address>,
    /// Keys begin with it.
    pub prefix: String,
    /// Name and password of a user.
    pub user: Option<(String, Password)>,
    /// None: not encrypted.
    pub tls: Option<Tls>,
}

/// Text that names no etcd. Does not repeat it, since there may be a password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "This names no etcd: {why}.\n\
    Write etcd://HOST:PORT,HOST:PORT or etcd://USER:PASSWORD@HOST:PORT, and behind it what is needed of\n\
    ?ca=FILE&cert=FILE&key=FILE&name=NAME&prefix=/PATH&password-file=FILE."
)]
pub struct EtcdSourceError {
    /// The reason.
    pub why: String,
}

impl EtcdSource {
    /// Members at these addresses, not encrypted, and without a user.
    pub fn plain(hosts: Vec<Address>) -> Self {
        Self { hosts, prefix: ETCD_PREFIX.to_owned(), user: None, tls: None }
    }
}

fn bad(why: impl Into<String>) -> EtcdSourceError {
    EtcdSourceError { why: why.into() }
}

/// What `%` and two digits stand for.
fn decoded(text: &str) -> Result<String, EtcdSourceError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| bad("two hexadecimal digits must follow \"%\""))?);
        rest = &more[2..];
    }
    String::from_utf8(bytes).map_err(|_| bad("what \"%\" stands for is no text"))
}

impl FromStr for EtcdSource {
    type Err = EtcdSourceError;

    fn from_str(text: &str) -> Result<Self, EtcdSourceError> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| bad("\"etcd://\" is missing at its beginning"))?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, hosts) = match place.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, place),
        };
        let mut found = Self::plain(Vec::new());
        for host in hosts.split(',') {
            let address: Address = host.parse().map_err(|e: atoll_rpc::AddressError| bad(e.why))?;
            if matches!(address, Address::Unix { .. }) {
                return Err(bad("etcd has HOST:PORT, and not a Unix socket"));
            }
            if found.hosts.contains(&address) {
                return Err(bad(format!("{address} is named twice")));
            }
            if found.hosts.len() == ETCD_HOSTS_MAX {
                return Err(bad(format!("more than {ETCD_HOSTS_MAX} hosts are named")));
            }
            found.hosts.push(address);
        }
        let password_file = found.read_options(options)?;
        found.user = user.map(|user| read_user(user, password_file.clone())).transpose()?;
        if found.user.is_none() && password_file.is_some() {
            return Err(bad("a password is there, and no user"));
        }
        Ok(found)
    }
}

/// `NAME:PASSWORD`, or `NAME` if the password is in a file.
fn read_user(user: &str, file: Option<PathBuf>) -> Result<(String, Password), EtcdSourceError> {
    let (name, password) = match (user.split_once(':'), file) {
        (Some((name, password)), None) => {
            if password.is_empty() {
                return Err(bad("the password of the user is missing"));
            }
            (name, Password::Text(decoded(password)?))
        }
        (None, Some(file)) => (user, Password::File(file)),
        (None, None) => return Err(bad("the password of the user is missing")),
        (Some(_), Some(_)) => return Err(bad("there are two passwords, one of them in a file")),
    };
    if name.is_empty() {
        return Err(bad("the name of the user is missing"));
    }
    Ok((decoded(name)?, password))
}

impl EtcdSource {
    /// Takes what stands behind the question mark. Returns the file of the password.
    fn read_options(&mut self, options: &str) -> Result<Option<PathBuf>, EtcdSourceError> {
        let (mut ca, mut cert, mut key, mut name, mut prefix) = (None, None, None, None, None);
        let mut password_file = None;
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (what, value) = option.split_once('=').ok_or_else(|| bad("an option has no \"=\""))?;
            let place = match what {
                "ca" => &mut ca,
                "cert" => &mut cert,
                "key" => &mut key,
                "name" => &mut name,
                "prefix" => &mut prefix,
                "password-file" => &mut password_file,
                other => return Err(bad(format!("there is no option \"{}\"", other.escape_debug()))),
            };
            let value = decoded(value)?;
            if value.is_empty() || value.contains('\0') {
                return Err(bad(format!("the option \"{what}\" has no value")));
            }
            if place.replace(value).is_some() {
                return Err(bad(format!("the option \"{what}\" is there twice")));
            }
        }
        if let Some(prefix) = prefix {
            if !prefix.starts_with('/') || prefix.len() > PREFIX_BYTES_MAX {
                return Err(bad("a prefix begins with a slash and has 255 bytes at most"));
            }
            self.prefix = prefix;
        }
        let own = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            _ => return Err(bad("\"cert\" and \"key\" belong together")),
        };
        self.tls = match ca {
            Some(ca) => Some(Tls { ca: ca.into(), own, name }),
            None if own.is_some() || name.is_some() => {
                return Err(bad(
                    "\"cert\", \"key\" and \"name\" need \"ca\", the certificate of who signs etcd's",
                ));
            }
            None => None,
        };
        Ok(password_file.map(PathBuf::from))
    }
}

/// For people: without the password.
impl fmt::Display for EtcdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if let Some((name, _)) = &self.user {
            write!(f, "{}@", name.escape_debug())?;
        }
        for (i, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_user_and_certificates_are_told_apart() {
        let plain: EtcdSource = "etcd://n1:2379,[fd00::2]:2379".parse().unwrap();
        assert_eq!(
            plain.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["n1:2379", "[fd00::2]:2379"]
        );
        assert_eq!((plain.prefix.as_str(), &plain.user, &plain.tls), ("/atoll", &None, &None));
        let text = "etcd://ann:p%40ss:w@n1:2379?ca=/etc/ca.pem&cert=/c.pem&key=/k%26.pem&name=etcd.x&prefix=/site/atoll";
        let full: EtcdSource = text.parse().unwrap();
        assert_eq!(full.user, Some(("ann".to_owned(), Password::Text("p@ss:w".to_owned()))));
        let own = Some(("/c.pem".into(), "/k&.pem".into()));
        assert_eq!(full.tls, Some(Tls { ca: "/etc/ca.pem".into(), own, name: Some("etcd.x".to_owned()) }));
        assert_eq!(full.prefix, "/site/atoll");
        let in_file: EtcdSource = "etcd://ann@n1:2379?password-file=/run/p".parse().unwrap();
        assert_eq!(in_file.user, Some(("ann".to_owned(), Password::File("/run/p".into()))));
        let shown = format!("{full} {full:?}");
        assert!(shown.contains("etcd://ann@n1:2379") && !shown.contains("p@ss"), "{shown}");
    }

    #[test]
    fn a_bad_source_says_what_is_wrong_with_it_and_no_password() {
        for (text, why) in [
            ("n1:2379", "\"etcd://\" is missing"),
            ("etcd://", "the port is missing"),
            ("etcd://n1", "the port is missing"),
            ("etcd://unix:/x", "not a Unix socket"),
            ("etcd://n1:1,n1:1", "n1:1 is named twice"),
            ("etcd://ann@n1:1", "the password of the user is missing"),
            ("etcd://ann:@n1:1", "the password of the user is missing"),
            ("etcd://:secret@n1:1", "the name of the user is missing"),
            ("etcd://ann:secret@n1:1?password-file=/p", "there are two passwords"),
            ("etcd://n1:1?password-file=/p", "a password is there, and no user"),
            ("etcd://ann:sec%ret@n1:1", "two hexadecimal digits"),
            ("etcd://ann:%ff@n1:1", "is no text"),
            ("etcd://ann:secret@n1:1?ca", "an option has no \"=\""),
            ("etcd://n1:1?ca=", "the option \"ca\" has no value"),
            ("etcd://n1:1?ca=/a&ca=/b", "the option \"ca\" is there twice"),
            ("etcd://n1:1?tls=on", "there is no option \"tls\""),
            ("etcd://n1:1?ca=/a&cert=/b", "\"cert\" and \"key\" belong together"),
            ("etcd://n1:1?name=x", "need \"ca\""),
            ("etcd://n1:1?prefix=x", "a prefix begins with a slash"),
        ] {
            let error = text.parse::<EtcdSource>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.lines().count() <= 3 && !error.contains("secret"), "{error}");
        }
        let many: Vec<String> = (1..=17).map(|p| format!("n:{p}")).collect();
        let error = format!("etcd://{}", many.join(",")).parse::<EtcdSource>().unwrap_err();
        assert!(error.to_string().contains("more than 16 hosts"), "{error}");
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_panics(text in "(etcd://)?[a-z0-9:/,.@?=&%\\[\\]é-]{0,40}") {
            let _ = text.parse::<EtcdSource>();
        }
    }
}
