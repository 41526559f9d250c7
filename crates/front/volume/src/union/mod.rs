//! Unions: native trees of this machine shown as one. Opens the members of a union, and refuses what cannot be one.

pub mod ask;
pub(crate) mod explain;
mod files;
mod intents;
mod members;
mod named;
mod roster;
mod state;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use anyhow::{Result, bail};
use atoll_core::{Table, VolumeId, VolumePath};
use atoll_federal::Federation;
use atoll_intents::{IntentMember, Intents, KeptIntents};
use atoll_member::MemberIdentity;
use atoll_proto::control::Metric;
use atoll_proto::union::{BytesGo, MemberCondition, MemberStatus, UnionStatus};
use atoll_proto::{UnionOrder, UnionReply, VolumeConfig, VolumeKind};
use atoll_union::{MemberState, Settings, Tag};
use atoll_vfs::Files;

use crate::explain::Explanation;
use crate::kind::{Attached, AttachedStatus};
pub use explain::to_json as name_json;
use files::UnionFiles;
pub use intents::{finish, told};
use members::OpenMember;
pub use members::{MemberPath, check_members};
pub use named::{Definition, UnionHome, check_union_name};
pub use state::state_dir;

/// A union that this process shows.
pub struct UnionVolume {
    federation: Arc<Federation>,
    files: Arc<UnionFiles>,
    config: Arc<VolumeConfig>,
    settings: Settings,
    members: Mutex<Vec<Listed>>,
    kept: Option<Kept>,
    intents: Arc<KeptIntents>,
    began: Instant,
}

/// A member, as this process knows it.
struct Listed {
    tag: Tag,
    named: MemberPath,
    identity: MemberIdentity,
    /// How it is found again by whoever settles what this process leaves unfinished.
    for_intents: IntentMember,
}

/// What makes a union a named one.
#[derive(Debug)]
pub struct Kept {
    /// Its folder.
    pub home: UnionHome,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The options of the union and its mount, as they were given.
    pub options: Vec<String>,
    /// What was remembered, if it is shown again by that.
    pub before: Option<Definition>,
}

impl UnionVolume {
    /// Opens the members in their order, under this name. What must outlive the process lies in `state` ([`state_dir`]); renames that
    /// a process left there unfinished in one of the members are settled first. An error says which cannot be a member,
    /// and what to do.
    pub fn open(name: String, members: &[MemberPath], settings: Settings, state: &Path) -> Result<Self> {
        Self::over(name, OpenMember::open_all(members)?, settings, state, None)
    }

    /// The same for a named union. A member that is another one than was remembered is refused.
    pub fn open_named(kept: Kept, members: &[MemberPath], settings: Settings, state: &Path) -> Result<Self> {
        let open = OpenMember::open_all(members)?;
        if let Some(before) = &kept.before {
            open.iter().try_for_each(|m| before.check(kept.home.name(), &m.named, &m.identity))?;
        }
        Self::over(kept.home.name().to_owned(), open, settings, state, Some(kept))
    }

    fn over(
        name: String,
        open: Vec<OpenMember>,
        settings: Settings,
        state: &Path,
        kept: Option<Kept>,
    ) -> Result<Self> {
        let intents = Arc::new(intents::settle(state, &open)?);
        // The same members make the same volume, so handles of it stay good.
        let tags = open.iter().flat_map(|member| member.tag.0.to_le_bytes());
        let id = VolumeId(atoll_core::siphash24(0, 0, &tags.collect::<Vec<u8>>()));
        let federation = Federation::start(settings, open.iter().map(OpenMember::opened).collect());
        federation.keep_intents_in(Arc::clone(&intents) as Arc<dyn Intents>);
        let files = UnionFiles::new(Arc::clone(&federation)).expect("it is the first session");
        let files = Arc::new(files);
        let table = Table::new(1);
        let config = Arc::new(VolumeConfig {
            id,
            name,
            seed: 0,
            table,
            nodes: Vec::new(),
            kind: VolumeKind::Union,
            copies: None,
            site: None,
        });
        let members = Mutex::new(open.into_iter().map(Listed::from).collect());
        let began = Instant::now();
        Ok(Self { federation, files, config, settings, members, kept, intents, began })
    }

    /// The same tree for one more frontend of this process.
    pub fn session(&self) -> Result<Arc<dyn Files>> {
        match self.files.another() {
            Some(files) => Ok(Arc::new(files)),
            None => bail!("The union has too many frontends.\nStop one of them."),
        }
    }

    /// Remembers a named union as it is now. Nothing else is remembered.
    pub fn remember(&self) -> Result<()> {
        self.remember_these(&self.members())
    }

    fn remember_these(&self, members: &[Listed]) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let listed = members.iter().map(|member| (&member.named, &member.identity));
        kept.home.remember(&Definition::new(kept.mount.clone(), kept.options.clone(), listed))
    }

    fn members(&self) -> MutexGuard<'_, Vec<Listed>> {
        self.members.lock().expect("no holder panics")
    }

    fn describe(&self) -> UnionStatus {
        let listed = self.members();
        let machine = self.federation.machine();
        let now = self.federation.now();
        let members = listed.iter().filter_map(|Listed { tag, named, identity, .. }| {
            let member = machine.members().get(*tag)?;
            let [watched, checked] = machine.known().noticed(*tag);
            Some(MemberStatus {
                path: named.path.display().to_string(),
                tag: tag.0,
                file_system: identity.file_system_text(),
                read_only: member.read_only,
                state: match member.state {
                    MemberState::Serving => MemberCondition::Serving,
                    MemberState::Stuck => MemberCondition::Stuck,
                    MemberState::Away => MemberCondition::Away,
                },
                state_ms: now.ms.saturating_sub(member.since),
                space: member.space.map(|space| (space.bytes, space.bytes_available)),
                watched,
                checked,
            })
        });
        let owned = |(setting, word): (&str, String)| (setting.to_owned(), word);
        UnionStatus {
            name: self.kept.as_ref().map(|kept| kept.home.name().to_owned()),
            up_ms: self.began.elapsed().as_millis() as u64,
            settings: self.settings.words().map(owned).to_vec(),
            bytes_go: BytesGo::Through, // The mount knows better.
            members: members.collect(),
        }
    }
}

impl Attached for UnionVolume {
    fn config(&self) -> Arc<VolumeConfig> {
        Arc::clone(&self.config)
    }

    fn take_config(&self, _: &VolumeConfig) -> Result<()> {
        bail!("A union has no nodes that could change.")
    }

    fn files(&self) -> Arc<dyn Files> {
        Arc::clone(&self.files) as Arc<dyn Files>
    }

    fn status(&self) -> AttachedStatus {
        let machine = self.federation.machine();
        let count = |state| machine.members().iter().filter(|m| m.state == state).count() as u64;
        let metrics = vec![
            Metric::now("members_serving", count(MemberState::Serving)),
            Metric::now("members_stuck", count(MemberState::Stuck)),
            Metric::now("members_away", count(MemberState::Away)),
            Metric::now("known", machine.known().len() as u64),
        ];
        AttachedStatus { metrics, nodes: Vec::new() }
    }

    fn explain(&self, _: &VolumePath, root: &Path) -> Result<Explanation> {
        // Another process would see what is there, but not what this one shows.
        bail!("Only the process that shows the union {} can explain it.", root.display())
    }

    fn union_order(&self, order: UnionOrder, point: &Path) -> Result<UnionReply> {
        match order {
            UnionOrder::Status => Ok(UnionReply::Status { status: self.describe() }),
            UnionOrder::Join { member } => self.join(member.into(), point).map(|()| UnionReply::Done),
            UnionOrder::Explain { path } => {
                self.explain_name(&path).map(|told| UnionReply::Explained { told })
            }
            UnionOrder::Conflicts { dirs, after } => Ok(self.conflicts(&dirs, after)),
            UnionOrder::Resolve { path, keep } => {
                self.resolve(&path, &keep).map(|removed| UnionReply::Resolved { removed })
            }
            UnionOrder::Undelete { path } => self.undelete(&path).map(|()| UnionReply::Done),
            UnionOrder::Leave { path, force } => {
                self.leave(Path::new(OsStr::from_bytes(&path)), force).map(|()| UnionReply::Done)
            }
        }
    }

    fn stop(&self) {
        self.federation.stop();
    }
}
