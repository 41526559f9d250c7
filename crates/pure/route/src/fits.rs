//! Whether an answer is one that an honest island could give to its request. Islands are other machines, and
//! may be newer than this program, damaged or hostile. An answer that does not fit ends the call with `EIO`,
//! and no part of it is believed.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Time};
use atoll_posix::attr::mode;
use atoll_posix::{Answer, Attr, AttrsAround, Kind, Op};
use atoll_proto::{ClientOp, Outcome, Resolved};

use crate::call::{Call, CallKind};
use crate::peer::Peer;

/// The greatest offset and size that the kernel has.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// Cookies up to this belong to "." and "..", which frontends add.
const DOTS_COOKIE: u64 = 2;
const NANOS: u32 = 1_000_000_000;

/// An answer that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MisfitAnswer {
    /// Who gave it.
    pub island: IslandId,
    /// What is wrong with it.
    pub what: &'static str,
}

/// The reason why an answer does not fit its call; none if it fits.
pub(crate) fn misfit<T>(
    call: &Call<T>,
    outcome: &Outcome,
    islands: &BTreeMap<IslandId, Peer>,
) -> Option<&'static str> {
    let known = |island: &IslandId| islands.contains_key(island);
    let renews = matches!(
        &call.what,
        CallKind::Own(
            ClientOp::Attach { .. }
                | ClientOp::AttachWithin { .. }
                | ClientOp::Renew
                | ClientOp::Lease
                | ClientOp::Dropped
                | ClientOp::DroppedOf { .. }
        )
    );
    match outcome {
        Outcome::NoSession
            if matches!(
                &call.what,
                CallKind::Own(ClientOp::Attach { .. } | ClientOp::AttachWithin { .. })
            ) =>
        {
            Some("no session, when it was asked for one")
        }
        Outcome::Failed { .. } | Outcome::NeedGroups if renews => Some("a refusal of a session"),
        Outcome::Failed { .. } | Outcome::NeedGroups | Outcome::NotNow | Outcome::NoSession => None,
        Outcome::StaleTable { table } => (!table.owners().iter().all(known))
            .then_some("a table with islands that the volume does not have"),
        Outcome::Attached { .. } => {
            (!renews && !call.is_confirming()).then_some("a session that it was not asked for")
        }
        Outcome::Hints { .. } => (!matches!(&call.what, CallKind::Own(ClientOp::Hints { .. })))
            .then_some("renamed directories that it was not asked for"),
        Outcome::Resolved { resolved } => match &call.what {
            CallKind::Walk(path) if call.followed().is_none() => of_walk(resolved, path.names().len()),
            _ => Some("the end of a walk that it was not asked for"),
        },
        Outcome::Elsewhere { ino, home, .. } | Outcome::DoneTo { ino, home, .. } => match &call.what {
            CallKind::Op(_) | CallKind::Walk(_) if known(home) && ino.0 != 0 => None,
            _ => Some("a file at an island that the volume does not have"),
        },
        Outcome::Moved { to, .. } => match &call.what {
            CallKind::Op(_) | CallKind::Walk(_) if known(to) => None,
            _ => Some("a file that has moved to an island that the volume does not have"),
        },
        Outcome::Data { .. } => (!matches!(&call.what, CallKind::Op(_)) || call.followed().is_some())
            .then_some("bytes that it was not asked for"),
        Outcome::Observed { around, answer, .. } => match &call.what {
            CallKind::Op(op) if call.options.attributes && !call.is_confirming() => {
                let known = |around: &AttrsAround| op.subjects().contains(&Some(around.after.ino));
                let strange =
                    || (!around.iter().all(known)).then_some("attributes that it was not asked for");
                let wrong = || around.iter().find_map(|around| of_attr(&around.after));
                of_op(call, op, answer).or_else(strange).or_else(wrong)
            }
            _ => Some("attributes that it was not asked for"),
        },
        Outcome::Ok { answer, .. } => match &call.what {
            CallKind::Own(_) => of_own(renews, answer),
            _ if call.is_confirming() => Some("an answer instead of a sign of life"),
            CallKind::Op(op) => of_op(call, op, answer),
            CallKind::Walk(_) => of_attrs(answer),
            CallKind::Island(_) => None,
        },
        // Only who asks one island for a listing gets these, and looks at them.
        Outcome::Held { .. }
        | Outcome::CutMade { .. }
        | Outcome::ListedAt { .. }
        | Outcome::FilesAt { .. }
        | Outcome::CutLost { .. } => Some("a part of a listing that it was not asked for"),
    }
}

fn of_own(renews: bool, answer: &Answer) -> Option<&'static str> {
    (renews || *answer != Answer::Done).then_some("an answer that it was not asked for")
}

fn of_walk(resolved: &Resolved, names: usize) -> Option<&'static str> {
    let depth = resolved.depth as usize;
    if depth > names || resolved.key_overrides.iter().any(|born| born.depth as usize > depth) {
        return Some("a walk beyond the end of the path");
    }
    of_attr(&resolved.found.attr)
}

fn of_op<T>(call: &Call<T>, op: &Op, answer: &Answer) -> Option<&'static str> {
    match (op, answer) {
        (_, Answer::Attr { attr }) => {
            // What was asked for the attributes alone names whose they are.
            let of = match (call.followed(), op) {
                (Some(followed), _) => Some(followed.file),
                (None, Op::GetAttr { ino } | Op::SetAttr { ino, .. }) => Some(*ino),
                _ => None,
            };
            match of {
                Some(ino) if ino != attr.ino => Some("attributes of another file"),
                _ => of_attr(attr),
            }
        }
        (Op::Parent { .. }, Answer::Found { found }) if found.attr.kind != Kind::Directory => {
            Some("a file above a directory")
        }
        (_, Answer::Access { granted }) if *granted > 7 => Some("rights that there are not"),
        (Op::Write { .. }, Answer::Wrote { len, .. }) if *len > call.data.len() as u64 => {
            Some("more bytes written than it was given")
        }
        (Op::CopyRange { len: asked, .. }, Answer::Wrote { len, .. }) if len > asked => {
            Some("more bytes copied than it was asked for")
        }
        (_, Answer::Wrote { offset, .. } | Answer::Offset { offset }) if *offset > OFFSET_MAX => {
            Some("an offset that no file has")
        }
        (Op::ReadDir { after, .. }, Answer::Entries { entries, .. }) => entries.iter().find_map(|entry| {
            if entry.cookie <= DOTS_COOKIE.max(*after) {
                return Some("a listing that goes back");
            }
            match &entry.found {
                Some(found) if found.attr.ino != entry.ino || found.attr.kind != entry.kind => {
                    Some("attributes of another file in a listing")
                }
                Some(found) => of_attr(&found.attr),
                None => of_ino(entry.ino),
            }
        }),
        _ => of_attrs(answer),
    }
}

fn of_attrs(answer: &Answer) -> Option<&'static str> {
    match answer {
        Answer::Found { found } => of_attr(&found.attr),
        Answer::Attr { attr } => of_attr(attr),
        _ => None,
    }
}

fn of_attr(attr: &Attr) -> Option<&'static str> {
    let is_time = |time: &Time| time.nanos < NANOS;
    if attr.mode & !mode::ALL != 0 {
        return Some("permission bits that there are not");
    }
    if attr.size > OFFSET_MAX {
        return Some("a size that no file has");
    }
    if ![attr.atime, attr.mtime, attr.ctime, attr.btime].iter().all(is_time) {
        return Some("a time that there is not");
    }
    if attr.ino == Ino::ROOT && attr.kind != Kind::Directory {
        return Some("a root that is no directory");
    }
    of_ino(attr.ino)
}

fn of_ino(ino: Ino) -> Option<&'static str> {
    (ino.0 == 0).then_some("a file without an id")
}

/// Whether an answer says that another island has to be asked, or the same one with a newer table.
pub(crate) const fn sends_on(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Moved { .. }
            | Outcome::StaleTable { .. }
            | Outcome::Elsewhere { .. }
            | Outcome::DoneTo { .. }
    )
}
