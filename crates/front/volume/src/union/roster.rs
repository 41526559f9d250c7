//! Members that come and go while the union is shown.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use atoll_posix::Errno;
use atoll_proto::union::NamedMember;

use super::members::{OpenMember, check_joining};
use super::{Listed, MemberPath, UnionVolume};

impl From<NamedMember> for MemberPath {
    fn from(NamedMember { path, read_only, empty_ok, pin }: NamedMember) -> Self {
        Self { path: PathBuf::from(OsStr::from_bytes(&path)), read_only, empty_ok, pin }
    }
}

impl From<MemberPath> for NamedMember {
    fn from(MemberPath { path, read_only, empty_ok, pin }: MemberPath) -> Self {
        Self { path: path.as_os_str().as_bytes().to_vec().into(), read_only, empty_ok, pin }
    }
}

impl UnionVolume {
    /// Shows a member, too, and remembers it if the union is a named one.
    pub(super) fn join(&self, member: MemberPath, point: &Path) -> Result<()> {
        // One at a time.
        let mut listed = self.members();
        let others: Vec<MemberPath> = listed.iter().map(|member| member.named.clone()).collect();
        check_joining(&member, &others, point)?;
        let known = listed.iter().map(|other| (other.tag, other.named.path.as_path(), &other.identity));
        let open = OpenMember::open(&member, known)?;
        let names = listed.iter().map(|other| other.for_intents.clone()).chain([open.for_intents()]);
        self.intents
            .set_members(names.collect())
            .context("The member cannot be noted in the state folder, so it does not join")?;
        let opened = open.opened();
        listed.push(open.into());
        if let Err(why) = self.remember_these(&listed) {
            listed.pop();
            return Err(why);
        }
        self.federation.join(opened);
        self.files.void();
        tracing::info!("the member {} has joined", member.path.display());
        Ok(())
    }

    /// Shows a member no longer, and forgets it if the union is a named one.
    pub(super) fn leave(&self, path: &Path, force: bool) -> Result<()> {
        let mut listed = self.members();
        let shown = path.display();
        let Some(at) = listed.iter().position(|member| member.named.path == path) else {
            bail!("The union has no member {shown}.\n\"atoll union status\" lists its members.")
        };
        let tag = listed[at].tag;
        match self.federation.leave(tag, force) {
            Ok(()) => {}
            Err(Errno::EINVAL) => bail!(
                "The member {shown} is the only one, so it cannot leave.\nTake the union away: atoll union stop {}",
                self.config.name
            ),
            Err(Errno::EBUSY) => bail!(
                "The member {shown} is used: operations in it, or a rename in several members, have not ended.\nTry again, or \
                 take it away all the same with --force."
            ),
            Err(why) => bail!("The member {shown} cannot leave: {why}."),
        }
        listed.remove(at);
        self.files.void();
        tracing::info!("the member {shown} has left");
        // What was written down of a rename may still speak of it: then whoever shows it next settles that.
        if !self.federation.is_intended(tag) {
            let names = listed.iter().map(|other| other.for_intents.clone());
            self.intents.set_members(names.collect()).context("The state folder cannot be written")?;
        }
        self.remember_these(&listed)
    }
}

impl From<OpenMember> for Listed {
    fn from(open: OpenMember) -> Self {
        let for_intents = open.for_intents();
        let OpenMember { tag, named, identity, .. } = open;
        Self { tag, named, identity, for_intents }
    }
}
