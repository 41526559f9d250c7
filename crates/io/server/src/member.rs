//! The folder of a node's part of a volume: `islands/VOLUME`, with `member.toml` and `volume` beside the
//! islands.
//!
//! Owns these files and the folder's name, and never touches an island's folder. While a volume is being
//! made, its folder has a hidden name.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use atoll_control::replace_file;
use atoll_core::{Encode, IslandId, NodeId, VolumeId};
use atoll_proto::{BadConfig, VolumeConfig};

/// The folder of all volumes, in a data directory.
pub const ISLANDS: &str = "islands";

const MEMBER_FILE: &str = "member.toml";
const MEMBER_FILE_NEW: &str = "member.toml.new";

/// A copy of the volume's configuration, for the case that the control store is lost.
const CONFIG_FILE: &str = "volume";
const CONFIG_FILE_NEW: &str = "volume.new";

/// Permission bits of the folders, which only the daemon enters.
const FOLDER_MODE: u32 = 0o700;

/// Format of `member.toml` that is written and read.
const FORMAT: i64 = 1;

/// A node's place in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The volume.
    pub volume: VolumeId,
    /// The node's number in it.
    pub node: NodeId,
    /// Its islands were made: a missing one is lost.
    pub made: bool,
}

/// The folder of a volume's islands.
pub(crate) fn folder(data: &Path, name: &str) -> PathBuf {
    data.join(ISLANDS).join(name)
}

/// Their folder until the volume is made. No volume's name starts with a dot.
pub(crate) fn hidden_folder(data: &Path, id: VolumeId) -> PathBuf {
    data.join(ISLANDS).join(format!(".new-{:016x}", id.0))
}

/// Makes the folder of a volume that is to be, so that it survives a power cut.
pub(crate) fn make(data: &Path, config: &VolumeConfig, node: NodeId) -> io::Result<()> {
    let all = data.join(ISLANDS);
    let make = |path: &Path| DirBuilder::new().mode(FOLDER_MODE).create(path);
    match make(&all) {
        Ok(()) => sync_dir(data)?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    let folder = hidden_folder(data, config.id);
    make(&folder)?;
    write(&folder, config, node, false)?;
    sync_dir(&all)
}

/// Notes that the volume's islands were made, before anything is kept in them.
pub(crate) fn note_made(folder: &Path, config: &VolumeConfig, node: NodeId) -> io::Result<()> {
    write(folder, config, node, true)
}

/// Keeps a copy of the configuration, unless the one that is there is the same.
pub(crate) fn keep_config(folder: &Path, config: &VolumeConfig) -> io::Result<()> {
    let bytes = config.to_vec();
    let bytes = [&crc32c::crc32c(&bytes).to_le_bytes()[..], &bytes].concat();
    if std::fs::read(folder.join(CONFIG_FILE)).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    replace(folder, CONFIG_FILE_NEW, CONFIG_FILE, &bytes)
}

/// The configuration that was kept in a volume's folder. `InvalidData` if the file is damaged, or newer than this program.
pub fn kept_config(folder: &Path) -> io::Result<VolumeConfig> {
    let bytes = std::fs::read(folder.join(CONFIG_FILE))?;
    let damaged = || io::Error::new(ErrorKind::InvalidData, format!("{CONFIG_FILE} is damaged"));
    let (sum, bytes) = bytes.split_at_checked(4).ok_or_else(damaged)?;
    if sum != crc32c::crc32c(bytes).to_le_bytes() {
        return Err(damaged());
    }
    VolumeConfig::from_stored(bytes).map_err(|why| match why {
        BadConfig::Newer { .. } => {
            let what =
                format!("{CONFIG_FILE} was written by a newer atoll: use that version, or a newer one");
            io::Error::new(ErrorKind::InvalidData, what)
        }
        BadConfig::Malformed(_) => damaged(),
    })
}

/// Names of the volumes whose folders lie in a data directory, whatever its control store says.
pub fn volumes_kept(data: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(data.join(ISLANDS)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        // Anything else is not ours, or not decided yet.
        if let Ok(name) = entry?.file_name().into_string()
            && folder(data, &name).join(MEMBER_FILE).exists()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The islands of which something lies in a volume's folder: a folder, or a seat.
pub(crate) fn islands_kept(folder: &Path) -> io::Result<BTreeSet<IslandId>> {
    let mut islands = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".seat").unwrap_or(name).parse().ok());
        islands.extend(number.map(IslandId));
    }
    Ok(islands)
}

/// The name of an island's folder while it is removed.
const GONE: &str = ".gone-";

/// Removes all that lies in a volume's folder of a copy of an island. It must be closed. Half of it is never taken for a copy, and
/// [`end_removals`] does the rest.
pub(crate) fn remove_copy(folder: &Path, island: IslandId) -> io::Result<()> {
    end_removals(folder)?;
    let absent = |e: io::Error| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) };
    std::fs::rename(folder.join(island.to_string()), folder.join(format!("{GONE}{island}")))
        .or_else(absent)?;
    sync_dir(folder)?;
    std::fs::remove_file(folder.join(format!("{island}.seat"))).or_else(absent)?;
    sync_dir(folder)?;
    end_removals(folder)
}

/// Ends what [`remove_copy`] has begun, in this process or an earlier one.
pub(crate) fn end_removals(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(GONE)) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Removes the folder of a volume of which this node keeps no island any more.
pub(crate) fn remove(data: &Path, name: &str) -> io::Result<()> {
    let (all, gone) = (data.join(ISLANDS), data.join(ISLANDS).join(format!("{GONE}{name}")));
    if gone.exists() {
        std::fs::remove_dir_all(&gone)?;
    }
    std::fs::rename(folder(data, name), &gone)?;
    sync_dir(&all)?;
    std::fs::remove_dir_all(&gone)
}

/// Writes the file in one step, so that it survives a power cut.
fn write(folder: &Path, config: &VolumeConfig, node: NodeId, made: bool) -> io::Result<()> {
    let text = format!(
        "# Which volume this folder belongs to. Written by atoll. Do not edit it.\n\
         format = {FORMAT}\n\
         volume = \"{:016x}\"\n\
         name = \"{}\"\n\
         node = {}\n\
         made = {made}\n",
        config.id.0, config.name, node.0
    );
    replace(folder, MEMBER_FILE_NEW, MEMBER_FILE, text.as_bytes())
}

pub(crate) fn replace(folder: &Path, new: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace_file(folder, new, name, bytes)?;
    sync_dir(folder)
}

/// Gives the folder its name, if it has not got it yet.
pub(crate) fn decide(data: &Path, config: &VolumeConfig) -> io::Result<()> {
    match std::fs::rename(hidden_folder(data, config.id), folder(data, &config.name)) {
        Ok(()) => sync_dir(&data.join(ISLANDS)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes the folder of a volume that was never decided; nothing was ever in it.
pub(crate) fn discard(data: &Path, id: VolumeId) -> io::Result<()> {
    let folder = hidden_folder(data, id);
    for result in [
        std::fs::remove_file(folder.join(MEMBER_FILE_NEW)),
        std::fs::remove_file(folder.join(MEMBER_FILE)),
        std::fs::remove_dir(&folder),
    ] {
        match result {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// The node's place in the volume of this folder. `InvalidData` if the file is damaged.
pub fn member(folder: &Path) -> io::Result<Member> {
    let text = std::fs::read_to_string(folder.join(MEMBER_FILE))?;
    parse(&text).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("{MEMBER_FILE} is damaged")))
}

fn parse(text: &str) -> Option<Member> {
    let table: toml::Table = text.parse().ok()?;
    if table.get("format")?.as_integer()? != FORMAT {
        return None;
    }
    let volume = u64::from_str_radix(table.get("volume")?.as_str()?, 16).ok()?;
    let node = u16::try_from(table.get("node")?.as_integer()?).ok()?;
    let made = table.get("made").map_or(Some(true), toml::Value::as_bool)?;
    Some(Member { volume: VolumeId(volume), node: NodeId(node), made })
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Table;

    #[test]
    fn a_folder_is_hidden_until_it_is_decided_and_knows_its_volume_afterwards() {
        let data = std::env::temp_dir().join(format!("atoll-member-{}", std::process::id()));
        std::fs::create_dir(&data).unwrap();
        let config = VolumeConfig {
            id: VolumeId(0xab),
            name: "home".to_owned(),
            seed: 1,
            table: Table::new(1),
            nodes: Vec::new(),
            kind: atoll_proto::VolumeKind::Cluster,
            copies: None,
            site: None,
        };
        make(&data, &config, NodeId(3)).unwrap();
        assert!(!folder(&data, "home").exists());
        decide(&data, &config).unwrap();
        decide(&data, &config).unwrap();
        let known = member(&folder(&data, "home")).unwrap();
        assert_eq!(known, Member { volume: VolumeId(0xab), node: NodeId(3), made: false });
        note_made(&folder(&data, "home"), &config, NodeId(3)).unwrap();
        assert!(member(&folder(&data, "home")).unwrap().made);
        keep_config(&folder(&data, "home"), &config).unwrap();
        assert_eq!(kept_config(&folder(&data, "home")).unwrap(), config);
        assert_eq!(volumes_kept(&data).unwrap(), ["home"]);
        std::fs::write(folder(&data, "home").join(CONFIG_FILE), b"12345678").unwrap();
        assert_eq!(kept_config(&folder(&data, "home")).unwrap_err().kind(), ErrorKind::InvalidData);
        make(&data, &config, NodeId(3)).unwrap();
        discard(&data, config.id).unwrap();
        discard(&data, config.id).unwrap();
        assert!(!hidden_folder(&data, config.id).exists());
        std::fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn a_copy_that_is_removed_has_no_name_before_its_files_go() {
        let folder = std::env::temp_dir().join(format!("atoll-removed-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("3/tree/dir")).unwrap();
        std::fs::create_dir_all(folder.join(".gone-2/log")).unwrap();
        for name in ["3.seat", "12.seat", "member.toml", "3/tree/dir/file"] {
            std::fs::write(folder.join(name), b"bytes").unwrap();
        }
        let kept = |islands: &[u16]| islands.iter().map(|island| IslandId(*island)).collect();
        assert_eq!(islands_kept(&folder).unwrap(), kept(&[3, 12]), "what is half removed is none");
        remove_copy(&folder, IslandId(3)).unwrap();
        assert_eq!(islands_kept(&folder).unwrap(), kept(&[12]));
        // One of which only a part is there.
        remove_copy(&folder, IslandId(12)).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["member.toml"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_damaged_file_is_no_member() {
        let good = "format = 1\nvolume = \"ab\"\nnode = 3\nmade = true\n";
        assert!(parse(good).is_some());
        assert_eq!(parse(""), None);
        for (from, to) in [("= 1", "= 2"), ("ab", "xy"), ("= 3", "= 70000"), ("true", "1")] {
            assert_eq!(parse(&good.replace(from, to)), None, "{to}");
        }
    }
}
