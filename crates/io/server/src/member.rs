//! The folder of a node's part of a volume: `islands/VOLUME`, with `member.toml` beside the islands.
//!
//! Owns that file and the folder's name; never touches what is in an island's folder. A volume that
//! is being made has its folder under a hidden name until it is decided.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use atoll_core::{NodeId, VolumeId};
use atoll_proto::VolumeConfig;

/// The folder of all volumes, in a data directory.
pub const ISLANDS: &str = "islands";

const MEMBER_FILE: &str = "member.toml";

/// Permission bits of the folders, which only the daemon enters.
const FOLDER_MODE: u32 = 0o700;

/// Format of `member.toml` that is written and read.
const FORMAT: i64 = 1;

/// What a node is in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) volume: VolumeId,
    pub(crate) node: NodeId,
}

/// Where a volume's islands lie.
pub(crate) fn folder(data: &Path, name: &str) -> PathBuf {
    data.join(ISLANDS).join(name)
}

/// Where they lie until the volume is decided. No volume's name starts with a dot.
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
    let text = format!(
        "# Which volume this folder belongs to. Written by atoll. Do not edit it.\n\
         format = {FORMAT}\n\
         volume = \"{:016x}\"\n\
         name = \"{}\"\n\
         node = {}\n",
        config.id.0, config.name, node.0
    );
    let mut file = File::create_new(folder.join(MEMBER_FILE))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    sync_dir(&folder)?;
    sync_dir(&all)
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
    for result in [std::fs::remove_file(folder.join(MEMBER_FILE)), std::fs::remove_dir(&folder)] {
        match result {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// What this node is in the volume whose folder this is. `InvalidData` if the file says nothing.
pub(crate) fn read(folder: &Path) -> io::Result<Member> {
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
    Some(Member { volume: VolumeId(volume), node: NodeId(node) })
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
        };
        make(&data, &config, NodeId(3)).unwrap();
        assert!(!folder(&data, "home").exists());
        decide(&data, &config).unwrap();
        decide(&data, &config).unwrap();
        let member = read(&folder(&data, "home")).unwrap();
        assert_eq!(member, Member { volume: VolumeId(0xab), node: NodeId(3) });
        make(&data, &config, NodeId(3)).unwrap();
        discard(&data, config.id).unwrap();
        discard(&data, config.id).unwrap();
        assert!(!hidden_folder(&data, config.id).exists());
        std::fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn a_damaged_file_is_no_member() {
        assert!(parse("format = 1\nvolume = \"ab\"\nnode = 3\n").is_some());
        for text in ["", "format = 2\nvolume = \"ab\"\nnode = 3\n", "format = 1\nvolume = \"xy\"\nnode = 3\n"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
