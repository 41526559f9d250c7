//! `atoll union join` and `leave`: members that come and go while a union is shown.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use atoll_core::Ino;
use atoll_union::{Tag, tag_of};
use atoll_volume::places::absolute;
use atoll_volume::union::MemberPath;
use atoll_volume::union::ask::ShownUnion;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// Most open files that are named.
const NAMED_MAX: usize = 3;

/// Arguments of `atoll union join`.
#[derive(Debug, clap::Args)]
pub(super) struct Join {
    /// The union's name, or its mount point
    #[arg(value_name = "NAME|MOUNT")]
    which: PathBuf,
    /// The directory, with :ro, :empty-ok or @UUID behind it if wanted
    #[arg(value_name = "DIR")]
    member: PathBuf,
}

impl Join {
    pub(super) fn run(self, state: Option<&Path>) -> Result<()> {
        ShownUnion::named(state, &self.which)?.join(MemberPath::parse(&self.member)?)
    }
}

/// Arguments of `atoll union leave`.
#[derive(Debug, clap::Args)]
pub(super) struct Leave {
    /// The union's name, or its mount point
    #[arg(value_name = "NAME|MOUNT")]
    which: PathBuf,
    /// The member's directory
    #[arg(value_name = "DIR")]
    member: PathBuf,
    /// Also if files in it are open or operations in it hang: these fail from then on
    #[arg(long)]
    force: bool,
}

impl Leave {
    pub(super) fn run(self, state: Option<&Path>) -> Result<()> {
        let union = ShownUnion::named(state, &self.which)?;
        // Its disk may be gone.
        let member = absolute(&self.member)?;
        let shown = member.display();
        let Some(tag) = union.status()?.members.iter().find(|m| m.path == shown.to_string()).map(|m| m.tag)
        else {
            bail!("The union has no member {shown}.\n\"atoll union status\" lists its members.")
        };
        if !self.force {
            let open = open_files(&union.mount.path, Tag(tag));
            if !open.is_empty() {
                bail!(
                    "Files of the member {shown} are open:\n  {}\nEnd these processes first, or take it away all the same \
                     with --force.",
                    open.join(", ")
                );
            }
        }
        union.leave(&member, self.force)
    }
}

/// Files of a member that processes have open or mapped, below the union's mount: each with who has it.
fn open_files(point: &Path, tag: Tag) -> Vec<String> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|n| n.bytes().all(|b| b.is_ascii_digit())) else { continue };
        let command = || std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        for file in files_of(&process.path(), point, tag) {
            found.push(format!("{} by {} ({pid})", file.display(), command().trim()));
            if found.len() == NAMED_MAX {
                return found;
            }
        }
    }
    found
}

fn files_of(process: &Path, point: &Path, tag: Tag) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for open in std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        let Ok(at) = std::fs::read_link(open.path()) else { continue };
        // What the kernel knows: a member that hangs is not asked.
        let told = at
            .starts_with(point)
            .then(|| statx(CWD, open.path(), AtFlags::STATX_DONT_SYNC, StatxFlags::INO | StatxFlags::TYPE));
        if let Some(Ok(told)) = told
            && tag_of(Ino(told.stx_ino)) == tag
            && u32::from(told.stx_mode) & libc::S_IFMT != libc::S_IFDIR
        {
            files.push(at);
        }
    }
    for line in std::fs::read(process.join("maps")).unwrap_or_default().split(|byte| *byte == b'\n') {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let ino = fields.by_ref().nth(4).and_then(|ino| std::str::from_utf8(ino).ok()?.parse::<u64>().ok());
        let path =
            PathBuf::from(OsString::from_vec(fields.next().unwrap_or_default().trim_ascii_start().to_vec()));
        if ino.is_some_and(|ino| tag_of(Ino(ino)) == tag) && path.starts_with(point) && !files.contains(&path)
        {
            files.push(path);
        }
    }
    files
}
