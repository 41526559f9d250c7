//! Small file systems for tests of members, gone afterwards. Owns mounts and images; never leaves one behind.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Tmpfs,
    Ext4,
    Xfs,
}

/// A small file system, mounted.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: TempDir,
    point: PathBuf,
}

impl Disk {
    pub(crate) fn new(file_system: FileSystem) -> Self {
        let folder = tempfile::Builder::new().prefix("atoll-member").tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let disk = Self { point: folder.path().join("mnt"), folder };
        std::fs::create_dir(&disk.point).unwrap();
        let image = disk.folder.path().join("image");
        match file_system {
            FileSystem::Tmpfs => {
                let options = Some(c"size=300m,mode=755");
                rustix::mount::mount("member", &disk.point, "tmpfs", MountFlags::empty(), options).unwrap();
            }
            FileSystem::Ext4 => {
                std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
                run(Command::new("mkfs.ext4").args(["-q", "-F", "-I", "256"]).arg(&image));
                disk.mount();
            }
            FileSystem::Xfs => {
                std::fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
                run(Command::new("mkfs.xfs").args(["-q", "-f"]).arg(&image));
                disk.mount();
            }
        }
        disk
    }

    /// Mounts the image; again after [`Disk::detach`].
    pub(crate) fn mount(&self) {
        let image = self.folder.path().join("image");
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&self.point));
    }

    /// Takes the mount away, whoever uses it.
    pub(crate) fn detach(&self) {
        rustix::mount::unmount(&self.point, UnmountFlags::DETACH).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.point
    }

    /// Ends it, and fails if anything is still open in it.
    pub(crate) fn unmount(self) {
        // A process that another test is just starting holds, until it runs its program, what this one had open.
        for _ in 0..1_000 {
            match rustix::mount::unmount(&self.point, UnmountFlags::empty()) {
                Ok(()) => return,
                Err(rustix::io::Errno::BUSY) => std::thread::sleep(std::time::Duration::from_millis(10)),
                Err(e) => panic!("{e}"),
            }
        }
        panic!("something is still open");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It is unmounted already where the test went well.
        let _ended = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
