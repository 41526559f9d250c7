//! The NFS servers that Table 3 compares, each over a tree of its own with the same files. Ours run in this process.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use atoll_lab_nfs::ganesha::Ganesha;
use atoll_lab_nfs::rpc::RpcError;
use atoll_lab_nfs::{Client, Export};
use atoll_nfs::{Served, Server, SigningKey, serve};
use atoll_posix::Caller;
use atoll_union::Settings;
use atoll_vfs::Files;
use atoll_volume::kind::Attached;
use atoll_volume::union::{MemberPath, UnionVolume, state_dir};
use nfs3_types::nfs3::{
    CREATE3args, LOOKUP3args, Nfs3Option, Nfs3Result, READ3args, REMOVE3args, WRITE3args, createhow3,
    diropargs3, nfs_fh3, sattr3, stable_how,
};
use nfs3_types::xdr_codec::Opaque;

use super::plain::PlainFiles;
use super::{BLOCK_BYTES, Size, TAIL_BYTES, content, dir_name, file_name};

/// The user who owns and uses everything.
const USER: u32 = 1_000;
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What serves.
enum Running {
    Ours(Server),
    Union(Server, UnionVolume),
    /// It ends when it is dropped.
    Ganesha {
        _process: Ganesha,
    },
}

/// A server with its trees and one client.
pub(super) struct Subject {
    /// What the report calls it.
    pub(super) name: String,
    /// The native trees behind it.
    pub(super) trees: Vec<PathBuf>,
    running: Running,
    client: Client,
    caller: Caller,
    dirs: Vec<nfs_fh3>,
    files: Vec<nfs_fh3>,
}

impl Drop for Subject {
    fn drop(&mut self) {
        match &self.running {
            Running::Ours(server) => server.stop(),
            Running::Union(server, volume) => {
                server.stop();
                volume.stop();
            }
            Running::Ganesha { .. } => {}
        }
    }
}

/// Makes the files, spread over so many trees. Every directory has files in every tree.
fn trees(place: &Path, name: &str, count: usize, size: Size) -> Result<Vec<PathBuf>> {
    let trees: Vec<PathBuf> = (0..count).map(|n| place.join(format!("{name}-{n}"))).collect();
    let own = |path: &Path| chown(path, Some(USER), Some(USER));
    for tree in &trees {
        fs::create_dir(tree)?;
        own(tree)?;
        for dir in 0..size.dirs {
            let path = tree.join(dir_name(dir));
            fs::create_dir(&path)?;
            own(&path)?;
        }
    }
    for file in 0..size.files {
        let tree = &trees[file / size.dirs % count];
        let path = tree.join(dir_name(file % size.dirs)).join(file_name(file));
        let mut bytes: Vec<u8> = (0..3).flat_map(|block| content(file, block, 0)).collect();
        bytes.resize(3 * BLOCK_BYTES + TAIL_BYTES, 0);
        fs::write(&path, bytes)?;
        own(&path)?;
    }
    Ok(trees)
}

fn ours(files: Arc<dyn Files>, kind: u8) -> Result<(Server, Export)> {
    let rules = vec!["127.0.0.1(no_root_squash)".parse().expect("it is a rule")];
    let served =
        Served { id: 7, kind, name: "tree".to_owned(), key: SigningKey::new([7; 16]), rules, start: 1 };
    let server = serve(files, served, TcpListener::bind("127.0.0.1:0")?).map_err(anyhow::Error::msg)?;
    let at: SocketAddr = server.address();
    Ok((server, Export { nfs: at, mount: at, path: "/tree".to_owned() }))
}

fn ok<T, E>(told: Result<Nfs3Result<T, E>, RpcError>) -> Result<T> {
    match told? {
        Nfs3Result::Ok(told) => Ok(told),
        Nfs3Result::Err((why, _)) => bail!("the server answers {why}"),
    }
}

impl Subject {
    /// Our server over one plain tree.
    pub(super) fn plain(place: &Path, size: Size) -> Result<Self> {
        let trees = trees(place, "plain", 1, size)?;
        let (server, export) = ours(Arc::new(PlainFiles::open(&trees[0])?), 9)?;
        Self::with("plain tree".to_owned(), trees, Running::Ours(server), &export, size)
    }

    /// Our server over a union of so many members.
    pub(super) fn union(place: &Path, members: usize, size: Size) -> Result<Self> {
        let trees = trees(place, &format!("union{members}"), members, size)?;
        let paths = trees.iter().map(|tree| MemberPath::parse(tree)).collect::<Result<Vec<_>>>()?;
        let state = state_dir(Some(&place.join(format!("state{members}"))), &paths)?;
        let volume = UnionVolume::open("tree".to_owned(), &paths, Settings::default(), &state)?;
        let (server, export) = ours(volume.files(), 2)?;
        Self::with(format!("union of {members}"), trees, Running::Union(server, volume), &export, size)
    }

    /// nfs-ganesha over one plain tree.
    pub(super) fn ganesha(place: &Path, size: Size) -> Result<Self> {
        let trees = trees(place, "ganesha", 1, size)?;
        let beside = place.join("ganesha");
        fs::create_dir(&beside)?;
        let process = Ganesha::start(&trees[0], &beside)?;
        let export = process.export().clone();
        Self::with("nfs-ganesha".to_owned(), trees, Running::Ganesha { _process: process }, &export, size)
    }

    /// Gets the handles of all directories and files.
    fn with(
        name: String,
        trees: Vec<PathBuf>,
        running: Running,
        export: &Export,
        size: Size,
    ) -> Result<Self> {
        let client = Client::new(export.nfs, export.mount, 1, PATIENCE);
        let root = client.mount(&Caller::ROOT, export.path.as_bytes())?;
        let caller = Caller { uid: USER, gid: USER, groups: Some([USER].into_iter().collect()) };
        let (dirs, files) = (Vec::new(), Vec::new());
        let mut new = Self { name, trees, running, client, caller, dirs, files };
        for dir in 0..size.dirs {
            let found = new.look(&root, &dir_name(dir))?;
            new.dirs.push(found);
        }
        for file in 0..size.files {
            let found = new.lookup(file).with_context(|| file_name(file))?;
            new.files.push(found);
        }
        Ok(new)
    }

    fn look(&self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3> {
        let what = diropargs3 { dir: dir.clone(), name: name.as_bytes().into() };
        Ok(ok(self.client.lookup(&self.caller, &LOOKUP3args { what }))?.object)
    }

    /// LOOKUP of a file.
    pub(super) fn lookup(&self, file: usize) -> Result<nfs_fh3> {
        self.look(&self.dirs[file % self.dirs.len()], &file_name(file))
    }

    /// READ of a block.
    pub(super) fn read(&self, file: usize, block: usize) -> Result<Vec<u8>> {
        let (offset, count) = ((block * BLOCK_BYTES) as u64, BLOCK_BYTES as u32);
        let args = READ3args { file: self.files[file].clone(), offset, count };
        Ok(ok(self.client.read(&self.caller, &args))?.data.into_owned())
    }

    /// WRITE of a block. Its bytes may be in memory only when it is answered.
    pub(super) fn write(&self, file: usize, block: usize, bytes: &[u8]) -> Result<()> {
        let args = WRITE3args {
            file: self.files[file].clone(),
            offset: (block * BLOCK_BYTES) as u64,
            count: bytes.len() as u32,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(bytes),
        };
        let told = ok(self.client.write(&self.caller, &args))?;
        if told.count as usize != bytes.len() {
            bail!("{} bytes of {} were written", told.count, bytes.len());
        }
        Ok(())
    }

    /// CREATE of a file in a directory.
    pub(super) fn create(&self, dir: usize, name: &str) -> Result<()> {
        let where_ = diropargs3 { dir: self.dirs[dir].clone(), name: name.as_bytes().into() };
        let how = createhow3::UNCHECKED(sattr3 { mode: Nfs3Option::Some(0o644), ..sattr3::default() });
        ok(self.client.create(&self.caller, &CREATE3args { where_, how })).map(drop)
    }

    /// REMOVE of a file from a directory.
    pub(super) fn remove(&self, dir: usize, name: &str) -> Result<()> {
        let object = diropargs3 { dir: self.dirs[dir].clone(), name: name.as_bytes().into() };
        ok(self.client.remove(&self.caller, &REMOVE3args { object })).map(drop)
    }
}
