//! What a site can say of one file or directory, for people. Decides nothing.

use atoll_causal::{FileId, HybridStamp};
use atoll_core::Ino;
use atoll_posix::Kind;
use atoll_proto::SiteTrace;
use atoll_shown::{live_versions, places};
use atoll_state::State;
use bytes::Bytes;

use super::Site;
use crate::foreign::bodies::is_behind;
use crate::rows::{FileBeside, SiteDir};

impl Site {
    /// What is known of a file or directory; none of one of which others know nothing, or whose row is not in memory.
    pub fn trace(&self, state: &State, ino: Ino) -> Option<SiteTrace> {
        if let Ok(Some(row)) = state.dir(ino) {
            let SiteDir { id, head, .. } = SiteDir::of(ino, row);
            let is_rescued = head.is_removed() && id != FileId::ROOT;
            return Some(SiteTrace { is_rescued, ..self.trace_of(id, head.latest()) });
        }
        let row = state.inode(ino).ok().flatten().filter(|row| row.attr.nlink > 0)?;
        let FileBeside { id, state, bytes, .. } = FileBeside::read(row.beside.as_ref()?).ok()?;
        let live = live_versions(&state);
        let latest = live.first().filter(|_| row.attr.kind == Kind::Regular);
        let stamp = latest.map_or_else(|| state.latest(), |(_, version)| version.stamp);
        let names = places(id, &state).into_iter().map(|place| Bytes::copy_from_slice(place.name.as_bytes()));
        Some(SiteTrace {
            is_behind: is_behind(&state, &bytes),
            is_uncut: bytes.is_uncut,
            versions: live.len() as u32,
            names: names.collect(),
            is_rescued: state.links.is_empty(),
            copy_of: state.birth.copy_of.map(|of| of.0),
            ..self.trace_of(id, stamp)
        })
    }

    fn trace_of(&self, id: FileId, stamp: HybridStamp) -> SiteTrace {
        SiteTrace {
            object: id.0,
            by: self.name_of(stamp.writer),
            changed_ms: stamp.time_us / 1_000,
            is_behind: false,
            is_uncut: false,
            versions: 1,
            names: Vec::new(),
            is_rescued: false,
            copy_of: None,
        }
    }
}
