//! A volume on folders of one simulated disk, so that its islands die at once.

use std::io;
use std::sync::Arc;

use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_disk::sim::{SimDisk, SimFile};
use atoll_disk::{Disk, FileKind, OpenHow, Space, Stat};
use atoll_proto::{NodeConfig, VolumeConfig, VolumeKind};

pub(crate) const ISLANDS: u16 = 2;

/// A volume whose islands are all on one node.
pub(crate) fn config() -> VolumeConfig {
    let islands = (0..ISLANDS).map(IslandId).collect();
    VolumeConfig {
        id: VolumeId(5),
        name: "v".to_owned(),
        seed: 9,
        table: Table::new(ISLANDS),
        nodes: vec![NodeConfig { daemon: 0, node: NodeId(0), address: String::new(), islands }],
        kind: VolumeKind::Cluster,
        copies: None,
        site: None,
    }
}

/// Where an island is.
pub(crate) fn folder(disk: &SimDisk, island: u16) -> Arc<Folder> {
    Arc::new(Folder { disk: disk.clone(), name: island.to_string().into_bytes() })
}

/// A folder of a simulated disk, as a disk.
pub(crate) struct Folder {
    pub(crate) disk: SimDisk,
    pub(crate) name: Vec<u8>,
}

impl Folder {
    fn at(&self, path: &[u8]) -> Vec<u8> {
        match path {
            b"" => self.name.clone(),
            path => [&self.name, &b"/"[..], path].concat(),
        }
    }
}

impl Disk for Folder {
    type File = SimFile;

    fn open(&self, path: &[u8], how: OpenHow) -> io::Result<SimFile> {
        self.disk.open(&self.at(path), how)
    }
    fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        self.disk.stat(&self.at(path))
    }
    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, FileKind)>> {
        self.disk.list(&self.at(path))
    }
    fn mkdir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.disk.mkdir(&self.at(path), mode)
    }
    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        self.disk.rmdir(&self.at(path))
    }
    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        self.disk.unlink(&self.at(path))
    }
    fn link(&self, old: &[u8], new: &[u8]) -> io::Result<()> {
        self.disk.link(&self.at(old), &self.at(new))
    }
    fn rename(&self, old: &[u8], new: &[u8], replace: bool) -> io::Result<()> {
        self.disk.rename(&self.at(old), &self.at(new), replace)
    }
    fn symlink(&self, target: &[u8], path: &[u8]) -> io::Result<()> {
        self.disk.symlink(target, &self.at(path))
    }
    fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        self.disk.readlink(&self.at(path))
    }
    fn mknod(&self, path: &[u8], kind: FileKind, mode: u32, rdev: u32) -> io::Result<()> {
        self.disk.mknod(&self.at(path), kind, mode, rdev)
    }
    fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.disk.set_mode(&self.at(path), mode)
    }
    fn set_owner(&self, path: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        self.disk.set_owner(&self.at(path), uid, gid)
    }
    fn set_times(&self, path: &[u8], atime: (i64, u32), mtime: (i64, u32)) -> io::Result<()> {
        self.disk.set_times(&self.at(path), atime, mtime)
    }
    fn xattrs(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.disk.xattrs(&self.at(path))
    }
    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        self.disk.set_xattr(&self.at(path), name, value)
    }
    fn sync_dir(&self, path: &[u8]) -> io::Result<()> {
        self.disk.sync_dir(&self.at(path))
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.disk.sync_everything()
    }
    fn space(&self) -> io::Result<Space> {
        self.disk.space()
    }
}
