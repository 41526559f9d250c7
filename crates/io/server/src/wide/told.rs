//! What a site remembers for people, as a command is told of it. Only shapes.

use atoll_causal::Writer;
use atoll_posix::Kind;
use atoll_proto::{SettledOutcome, SettledTold, TrashTold};
use atoll_wide::rows::{SettledHow, TrashCause, settled_us, trash_of};
use atoll_wide::settled::SettledEntry;
use atoll_wide::trash::TrashEntry;

/// Conflicts that were settled. `name`: of the site to which a writer belongs.
pub(super) fn settled(entries: Vec<SettledEntry>, name: impl Fn(Writer) -> String) -> Vec<SettledTold> {
    let told = |SettledEntry { key, settled }: SettledEntry| SettledTold {
        time_ms: settled_us(key) / 1_000,
        path: settled.path,
        outcome: match settled.how {
            SettledHow::Kept {} => SettledOutcome::Kept,
            SettledHow::Revived {} => SettledOutcome::Revived,
            SettledHow::Renamed {} => SettledOutcome::Renamed,
            SettledHow::NotMoved {} => SettledOutcome::NotMoved,
        },
        kept: settled.kept.map(&name),
        other: settled.other.map(&name),
    };
    entries.into_iter().map(told).collect()
}

/// What rests in the trash.
pub(super) fn trash(entries: Vec<TrashEntry>, name: impl Fn(Writer) -> String) -> Vec<TrashTold> {
    let told = |TrashEntry { key, kind, rested }: TrashEntry| TrashTold {
        key,
        since_ms: trash_of(key).0 / 1_000,
        path: rested.path,
        is_link: kind == Kind::Symlink,
        is_replaced: rested.why == TrashCause::Replaced {},
        by: name(rested.by),
        size: rested.size,
        takes: rested.takes,
    };
    entries.into_iter().map(told).collect()
}
