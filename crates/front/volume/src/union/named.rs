//! Named unions: the definition that outlives the process, and the identities of the members when they were seen last.
//!
//! Each has a folder of its name in `named` in the state folder. The process that shows the union holds it.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use atoll_control::{check_volume_name, replace_file};
use atoll_member::MemberIdentity;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::MemberPath;
use super::state::state_path;

/// Where these folders are in the state folder.
const FOLDER: &str = "named";
const DEFINITION: &str = "union.json";
const DEFINITION_NEW: &str = "union.json.new";
/// Locked by the process that shows the union.
const LOCK: &str = "lock";
/// Version of the definition's form.
const VERSION: u32 = 1;

/// What is remembered of a named union.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    version: u32,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The options of the union and of its mount, as they were given.
    pub options: Vec<String>,
    /// Its members, in their order.
    members: Vec<Remembered>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    path: PathBuf,
    read_only: bool,
    empty_ok: bool,
    pin: Option<String>,
    file_system: String,
    root: String,
    host: String,
}

/// Bytes as digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Remembered {
    fn new(named: &MemberPath, identity: &MemberIdentity) -> Self {
        let MemberPath { path, read_only, empty_ok, pin } = named.clone();
        let (file_system, root) = (hex(&identity.file_system), hex(&identity.root));
        Self { path, read_only, empty_ok, pin, file_system, root, host: hex(&identity.host) }
    }
}

impl Definition {
    /// One of these members, as they are now.
    pub(super) fn new<'a>(
        mount: PathBuf,
        options: Vec<String>,
        members: impl Iterator<Item = (&'a MemberPath, &'a MemberIdentity)>,
    ) -> Self {
        let members = members.map(|(named, identity)| Remembered::new(named, identity)).collect();
        Self { version: VERSION, mount, options, members }
    }

    /// What is remembered of a union of this name, in the state folder that the user chose or in the usual one. None: nothing.
    pub fn recall(state: Option<&Path>, name: &str) -> Result<Option<Self>> {
        recall(&state_path(state)?, name)
    }

    /// Its members, as a user named them.
    pub fn members(&self) -> Vec<MemberPath> {
        let named = |member: &Remembered| MemberPath {
            path: member.path.clone(),
            read_only: member.read_only,
            empty_ok: member.empty_ok,
            pin: member.pin.clone(),
        };
        self.members.iter().map(named).collect()
    }

    /// Refuses a member that is another one than when the union was shown last.
    pub(super) fn check(&self, name: &str, named: &MemberPath, identity: &MemberIdentity) -> Result<()> {
        let now = Remembered::new(named, identity);
        let same = |was: &&Remembered| {
            (&was.file_system, &was.root, &was.host) == (&now.file_system, &now.root, &now.host)
        };
        let was = self.members.iter().filter(|was| was.path == now.path).collect::<Vec<_>>();
        if was.is_empty() || was.iter().any(same) {
            return Ok(());
        }
        bail!(
            "The member {0} is not what it was when union {name} was shown last: another disk is mounted there, or none, or the \
             directory was made anew.\nMount the disk that was there. If this one is meant, define the union anew: \
             atoll union start {name} DIR... {1}",
            named.path.display(),
            self.mount.display()
        )
    }
}

/// What is remembered of a union of this name. None: nothing.
fn recall(state: &Path, name: &str) -> Result<Option<Definition>> {
    let path = state.join(FOLDER).join(name).join(DEFINITION);
    let text = match std::fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("The definition {} cannot be read", path.display()))?,
    };
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let read = |why: serde_json::Error| {
        anyhow::anyhow!(
            "The definition {} cannot be read: {why}.\nDefine the union anew: atoll union start {name} DIR... MOUNT",
            path.display()
        )
    };
    let Version { version } = serde_json::from_slice(&text).map_err(read)?;
    if version != VERSION {
        bail!(
            "The definition {} has the form {version}, which a newer version of atoll made.\nUse that version.",
            path.display()
        );
    }
    serde_json::from_slice(&text).map(Some).map_err(read)
}

/// The folder of a named union, held by this process: nobody else shows the union meanwhile.
#[derive(Debug)]
pub struct UnionHome {
    name: String,
    dir: PathBuf,
    _lock: File,
}

impl UnionHome {
    /// Takes the folder of a name in a state folder that is there. It is made if it is not there.
    pub fn take(state: &Path, name: &str) -> Result<Self> {
        check_union_name(name)?;
        let dir = state.join(FOLDER).join(name);
        let cannot = || format!("The folder {} cannot be used", dir.display());
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&dir).with_context(cannot)?;
        let lock = File::options().create(true).truncate(false).write(true).open(dir.join(LOCK));
        let lock = lock.with_context(cannot)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { name: name.to_owned(), dir, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("Union {name} is shown already.\nStop it first: atoll union stop {name}")
            }
            Err(why) => Err(why).with_context(cannot),
        }
    }

    /// The union's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Remembers this instead. It survives a power cut.
    pub(super) fn remember(&self, definition: &Definition) -> Result<()> {
        let cannot =
            || format!("The definition of union {} cannot be written to {}", self.name, self.dir.display());
        let text = serde_json::to_vec_pretty(definition).with_context(cannot)?;
        replace_file(&self.dir, DEFINITION_NEW, DEFINITION, &text).with_context(cannot)?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).with_context(cannot)
    }
}

/// Refuses what cannot be the name of a union. It is one under the rules for volumes.
pub fn check_union_name(name: &str) -> Result<()> {
    Ok(check_volume_name(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_written_as_it_is_documented_and_read_again() {
        let text = r#"{
  "version": 1,
  "mount": "/mnt/all",
  "options": ["place=room", "noatime"],
  "members": [
    {
      "path": "/disk1",
      "read_only": true,
      "empty_ok": false,
      "pin": "1a2b-3c4d",
      "file_system": "1a2b3c4d",
      "root": "0102",
      "host": "686f7374"
    }
  ]
}"#;
        let named = MemberPath {
            path: "/disk1".into(),
            read_only: true,
            empty_ok: false,
            pin: Some("1a2b-3c4d".into()),
        };
        let identity = MemberIdentity {
            file_system: vec![0x1a, 0x2b, 0x3c, 0x4d],
            root: vec![1, 2],
            host: b"host".to_vec(),
        };
        let options = vec!["place=room".to_owned(), "noatime".to_owned()];
        let made = Definition::new("/mnt/all".into(), options, [(&named, &identity)].into_iter());
        assert_eq!(serde_json::from_str::<Definition>(text).unwrap(), made);
        assert_eq!(made.members(), std::slice::from_ref(&named));
        assert!(made.check("all", &named, &identity).is_ok());
        let other = MemberIdentity { root: vec![1, 3], ..identity };
        let why = made.check("all", &named, &other).unwrap_err().to_string();
        assert!(why.contains("/disk1") && why.contains("atoll union start all"), "{why}");

        let scratch = tempfile::tempdir().unwrap();
        let home = UnionHome::take(scratch.path(), "all").unwrap();
        assert_eq!(recall(scratch.path(), "all").unwrap(), None);
        home.remember(&made).unwrap();
        assert_eq!(recall(scratch.path(), "all").unwrap(), Some(made));
        let why = UnionHome::take(scratch.path(), "all").unwrap_err().to_string();
        assert!(why.contains("shown already"), "{why}");
        let newer = text.replace("\"version\": 1", "\"version\": 2, \"what\": 0");
        std::fs::write(home.dir().join(DEFINITION), newer).unwrap();
        assert!(recall(scratch.path(), "all").unwrap_err().to_string().contains("newer version"));
    }

    #[test]
    fn a_union_has_a_plain_name() {
        for bad in ["", "a/b", "..", ".", "-x", "a b"] {
            assert!(check_union_name(bad).is_err(), "{bad}");
        }
        assert!(check_union_name("media-2").is_ok());
    }
}
