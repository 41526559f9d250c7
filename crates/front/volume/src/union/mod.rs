//! Unions: native trees of this machine shown as one. Opens the members of a union, and refuses what cannot be one.

pub mod ask;
mod files;
mod intents;
mod members;
mod state;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use atoll_core::{Table, VolumeId, VolumePath};
use atoll_federal::Federation;
use atoll_proto::control::Metric;
use atoll_proto::union::{MemberCondition, MemberStatus, UnionStatus};
use atoll_proto::{UnionOrder, UnionReply, VolumeConfig, VolumeKind};
use atoll_union::{MemberState, Settings, Tag};
use atoll_vfs::Files;

use crate::explain::Explanation;
use crate::kind::{Attached, AttachedStatus};
use files::UnionFiles;
pub use intents::{finish, told};
pub use members::{MemberPath, check_members};
pub use state::state_dir;

/// A union that this process shows.
pub struct UnionVolume {
    federation: Arc<Federation>,
    files: Arc<UnionFiles>,
    config: Arc<VolumeConfig>,
    settings: Settings,
    members: Vec<(Tag, MemberPath)>,
    began: Instant,
}

impl UnionVolume {
    /// Opens the members in their order, under this name. What must outlive the process lies in `state` ([`state_dir`]); renames that
    /// a process left there unfinished in one of the members are settled first. An error says which cannot be a member,
    /// and what to do.
    pub fn open(name: String, members: &[MemberPath], settings: Settings, state: &Path) -> Result<Self> {
        let (open, names) = members::open(members)?;
        let kept = intents::settle(state, &names, &open)?;
        // The same members make the same volume, so handles of it stay good.
        let tags = open.iter().flat_map(|(tag, ..)| tag.0.to_le_bytes());
        let id = VolumeId(atoll_core::siphash24(0, 0, &tags.collect::<Vec<u8>>()));
        let shown = open.iter().map(|(tag, ..)| *tag).zip(members.iter().cloned()).collect();
        let federation = Federation::start(settings, open);
        federation.keep_intents_in(Arc::new(kept));
        let files = Arc::new(UnionFiles::new(Arc::clone(&federation)));
        let table = Table::new(1);
        let config =
            Arc::new(VolumeConfig { id, name, seed: 0, table, nodes: Vec::new(), kind: VolumeKind::Union });
        let began = Instant::now();
        Ok(Self { federation, files, config, settings, members: shown, began })
    }

    fn describe(&self) -> UnionStatus {
        let machine = self.federation.machine();
        let now = self.federation.now();
        let members = self.members.iter().filter_map(|(tag, named)| {
            let member = machine.members().get(*tag)?;
            let [watched, checked] = machine.known().noticed(*tag);
            Some(MemberStatus {
                path: named.path.display().to_string(),
                tag: tag.0,
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
        let owned = |(setting, word): (&str, &str)| (setting.to_owned(), word.to_owned());
        UnionStatus {
            name: None,
            up_ms: self.began.elapsed().as_millis() as u64,
            settings: self.settings.words().map(owned).to_vec(),
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

    fn explain(&self, _: &VolumePath, _: &Path) -> Result<Explanation> {
        bail!("DirNames of a union are not explained yet.\nLook into its members with ls(1).")
    }

    fn union_order(&self, order: UnionOrder) -> Result<UnionReply> {
        match order {
            UnionOrder::Status => Ok(UnionReply::Status { status: self.describe() }),
        }
    }

    fn stop(&self) {
        self.federation.stop();
    }
}
