//! What is in the body of a file when its state changes: whether its latest version is here, what users see of it meanwhile, and which file
//! gets a body that another one leaves. Never reads or changes bytes.

use std::collections::BTreeMap;

use atoll_causal::{Dot, FileId, FileState, FileVersion};
use atoll_core::{Ino, Time};
use atoll_posix::Kind;
use atoll_shown::live_versions;

use crate::rows::{BodyVersion, FileBytes};

/// What is in the bodies of files from a record on, besides what follows from their states.
pub(crate) type NewBodies = BTreeMap<FileId, NewBody>;

/// What is in the body of a file from a record on.
#[derive(Debug, Clone)]
pub(crate) struct NewBody {
    /// Another body than before, without a name or that of a file that gets another one too; none if it stays.
    pub(crate) ino: Option<Ino>,
    /// What is in it.
    pub(crate) bytes: FileBytes,
}

/// The latest version of a file.
pub(crate) fn latest(state: &FileState) -> Option<(Dot, FileVersion)> {
    live_versions(state).first().copied()
}

/// Bytes of a file's latest version.
pub(crate) fn latest_bytes(state: &FileState) -> u64 {
    latest(state).map_or(0, |(_, version)| version.size)
}

/// Whether a file's latest version has bytes that are not here.
pub(crate) fn is_behind(state: &FileState, bytes: &FileBytes) -> bool {
    let latest = latest(state).filter(|_| state.birth.kind == Kind::Regular);
    latest.is_some_and(|(dot, _)| bytes.has.is_none_or(|has| has.dot != dot))
}

/// What is in the body of a file when its state is this one.
///
/// A version with the same bytes is here as soon as it is known. If no bytes are here, and there are to be some, the file is absent, as
/// one of which nobody has seen bytes. Else the bytes that are here are served until the later ones have come.
pub(crate) fn of_state(bytes: &FileBytes, state: &FileState) -> FileBytes {
    let Some((dot, version)) = latest(state) else { return bytes.clone() };
    let is_regular = state.birth.kind == Kind::Regular;
    if bytes.is_uncut || bytes.has.is_some_and(|has| has.dot == dot) {
        return bytes.clone();
    }
    let has = match bytes.has {
        Some(has) if has.is_equal(&version) || !is_regular => Some(BodyVersion::of(dot, &version)),
        Some(has) if has.size > 0 => Some(has),
        _ => None,
    };
    FileBytes { has, ..bytes.clone() }
}

/// The latest version of a state, for a body that has its bytes.
pub(crate) fn of_equal(bytes: &FileBytes, state: &FileState) -> Option<BodyVersion> {
    latest(state).map(|(dot, version)| BodyVersion::of(dot, &version)).or(bytes.has)
}

/// That of a file that was not here.
pub(crate) fn of_new(state: &FileState) -> FileBytes {
    let is_here = |version: &FileVersion| state.birth.kind != Kind::Regular || version.size == 0;
    let latest = latest(state).filter(|(_, version)| is_here(version));
    FileBytes { has: latest.map(|(dot, version)| BodyVersion::of(dot, &version)), ..FileBytes::default() }
}

/// The time of the last change of content by a state: that of the latest version, or a later one that somebody has set.
pub(crate) fn mtime(state: &FileState) -> Time {
    let set = &state.attrs.mtime;
    match latest(state) {
        Some((_, version)) if version.stamp > set.stamp => version.mtime,
        _ => set.value,
    }
}
