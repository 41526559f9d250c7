//! `etcd.toml`: the member of etcd that a node runs, as text that people can read. The daemon writes it, and its parent process
//! starts the member that it says.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use atoll_control::replace_file;
use serde::{Deserialize, Serialize};

use crate::plan::{Beginning, MemberPlan, MemberTls};

/// Newest format that is read, and the one that is written.
const FORMAT: u32 = 1;
const NEW: &str = "etcd.toml.new";
/// The member's own directory, beside the file.
const DATA: &str = "etcd";
/// Longest file.
const BYTES_MAX: u64 = 64 * 1024;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// It cannot be read or written.
    #[error("{} cannot be used: {source}.", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Its text is no plan.
    #[error("{} is damaged: {why}.\nRestore it from a backup. The data of etcd beside it is not affected.", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A newer program made it.
    #[error(
        "{} has format {theirs}; this program knows formats up to {FORMAT}.\n\
        Use the version of atoll that wrote it, or a newer one.", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format that was found.
        theirs: u32,
    },
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: u32,
    program: PathBuf,
    name: String,
    cluster: String,
    host: String,
    listen: String,
    client_port: u16,
    peer_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<PathBuf>,
    /// Absent: the first member.
    #[serde(skip_serializing_if = "Option::is_none")]
    joins: Option<Vec<Other>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Other {
    name: String,
    url: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsText {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl MemberPlan {
    /// Name of the file in a node's data directory.
    pub const FILE: &str = "etcd.toml";

    /// The data of the member of a node with this data directory.
    pub fn data_in(folder: &Path) -> PathBuf {
        folder.join(DATA)
    }

    /// The member that the node with this data directory runs, if it runs one.
    pub fn read(folder: &Path) -> Result<Option<Self>, PlanFileError> {
        let path = folder.join(Self::FILE);
        let text =
            match File::open(&path).and_then(|file| io::read_to_string(io::Read::take(file, BYTES_MAX))) {
                Ok(text) => text,
                Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(source) => return Err(PlanFileError::Io { path, source }),
            };
        let damaged = |why: toml::de::Error| PlanFileError::Damaged {
            path: path.clone(),
            why: why.message().trim_end().to_owned(),
        };
        match toml::from_str::<Format>(&text).map_err(damaged)?.format {
            FORMAT => {}
            theirs => return Err(PlanFileError::Newer { path, theirs }),
        }
        let Text {
            program,
            name,
            cluster,
            host,
            listen,
            client_port,
            peer_port,
            quota_bytes,
            log,
            joins,
            tls,
            ..
        } = toml::from_str(&text).map_err(damaged)?;
        let beginning = joins.map_or(Beginning::First, |others| {
            Beginning::Joins(others.into_iter().map(|Other { name, url }| (name, url)).collect())
        });
        let tls = tls.map(|TlsText { ca, certificate, key, name }| MemberTls { ca, certificate, key, name });
        let data = Self::data_in(folder);
        Ok(Some(Self {
            program,
            name,
            cluster,
            data,
            host,
            listen,
            client_port,
            peer_port,
            tls,
            beginning,
            quota_bytes,
            log,
        }))
    }

    /// Has the node with this data directory run this member. Its data is that of [`MemberPlan::data_in`].
    pub fn write(&self, folder: &Path) -> Result<(), PlanFileError> {
        let joins = match &self.beginning {
            Beginning::First => None,
            Beginning::Joins(others) => {
                Some(others.iter().cloned().map(|(name, url)| Other { name, url }).collect())
            }
        };
        let tls = self.tls.clone().map(|MemberTls { ca, certificate, key, name }| TlsText {
            ca,
            certificate,
            key,
            name,
        });
        let text = Text {
            format: FORMAT,
            program: self.program.clone(),
            name: self.name.clone(),
            cluster: self.cluster.clone(),
            host: self.host.clone(),
            listen: self.listen.clone(),
            client_port: self.client_port,
            peer_port: self.peer_port,
            quota_bytes: self.quota_bytes,
            log: self.log.clone(),
            joins,
            tls,
        };
        let text = toml::to_string(&text).expect("names and numbers are text");
        let written = replace_file(folder, NEW, Self::FILE, text.as_bytes());
        let written = written.and_then(|()| File::open(folder)?.sync_all());
        written.map_err(|source| PlanFileError::Io { path: folder.join(Self::FILE), source })
    }

    /// Has the node run no member any more. Its data stays.
    pub fn remove_file(folder: &Path) -> Result<(), PlanFileError> {
        let path = folder.join(Self::FILE);
        match fs::remove_file(&path).and_then(|()| File::open(folder)?.sync_all()) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(PlanFileError::Io { path, source: why }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(folder: &Path) -> MemberPlan {
        MemberPlan {
            program: "/usr/bin/etcd".into(),
            name: "node-1".to_owned(),
            cluster: "c1".to_owned(),
            data: MemberPlan::data_in(folder),
            host: "10.0.0.1".to_owned(),
            listen: "0.0.0.0".to_owned(),
            client_port: 7102,
            peer_port: 7103,
            tls: None,
            beginning: Beginning::First,
            quota_bytes: None,
            log: None,
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_a_removed_one_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(MemberPlan::read(folder.path()).unwrap(), None);
        let first = plan(folder.path());
        let tls = MemberTls {
            ca: "/a \"b\"/ca.pem".into(),
            certificate: "c".into(),
            key: "k".into(),
            name: Some("n".to_owned()),
        };
        let others =
            vec![("m0".to_owned(), "https://h:1".to_owned()), ("m1".to_owned(), "https://i:1".to_owned())];
        let joins = MemberPlan {
            tls: Some(tls),
            beginning: Beginning::Joins(others),
            quota_bytes: Some(1 << 33),
            log: Some("/var/log/etcd".into()),
            ..first.clone()
        };
        for plan in [first, joins] {
            plan.write(folder.path()).unwrap();
            assert_eq!(MemberPlan::read(folder.path()).unwrap(), Some(plan));
        }
        MemberPlan::remove_file(folder.path()).unwrap();
        MemberPlan::remove_file(folder.path()).unwrap();
        assert_eq!(MemberPlan::read(folder.path()).unwrap(), None);
        assert!(plan(folder.path()).write(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn the_text_is_as_documented() {
        let folder = tempfile::tempdir().unwrap();
        plan(folder.path()).write(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join(MemberPlan::FILE)).unwrap();
        assert_eq!(
            text,
            "format = 1\nprogram = \"/usr/bin/etcd\"\nname = \"node-1\"\ncluster = \"c1\"\nhost = \"10.0.0.1\"\n\
            listen = \"0.0.0.0\"\nclient_port = 7102\npeer_port = 7103\n"
        );
    }

    #[test]
    fn a_newer_file_is_told_from_a_damaged_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MemberPlan::FILE);
        plan(folder.path()).write(folder.path()).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            MemberPlan::read(folder.path()).unwrap_err()
        };
        let newer = read("format = 2\nwhat = \"else\"\n");
        assert!(matches!(newer, PlanFileError::Newer { theirs: 2, .. }), "{newer}");
        for text in [
            "",
            "format = 1",
            "format = \"1\"",
            "\u{0}",
            &good.replace("7102", "710200"),
            &format!("{good}x = 1\n"),
        ] {
            let why = read(text);
            assert!(matches!(why, PlanFileError::Damaged { .. }), "{text}: {why}");
            assert!(why.to_string().lines().count() <= 3, "{why}");
        }
    }
}
