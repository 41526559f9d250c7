//! Whether the simulator finds bugs that are planted on purpose, one at a time.
//!
//! A run that fails with a bug and without it has not found it. Some bugs need more steps in one order than chance brings
//! about in any time that a test may take: of these a sequence is written down (`tests/across/planted.rs`).

use atoll_core::planted::{Bug, plant};

use crate::cause::Failure;
use crate::scenario::{SCENARIOS, Scenario, run};

/// How a bug was found.
#[derive(Debug)]
pub struct Found {
    /// By which scenario.
    pub scenario: &'static str,
    /// With which seed.
    pub seed: u64,
    /// Runs that it took, of all scenarios in turn.
    pub runs: u64,
    /// What went wrong.
    pub failure: Failure,
}

/// What shows a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Runs of a scenario, as far as we know of this one soonest.
    Scenario(&'static str),
    /// A sequence that is written down.
    Sequence,
    /// The small world of `pure/group`.
    SmallWorld,
    /// A test of `pure/island` alone.
    OfIsland,
    /// A test of `pure/route` alone.
    OfRoute,
    /// A test of copies by hand, in `store/dispatch`.
    OfCopies,
    /// The small world of `pure/spine`.
    OfSpine,
    /// A test of `pure/shown`.
    OfShown,
}

/// Runs all scenarios in turn, with seeds from `first` on, until one fails that does not without the bug.
pub fn find(bug: Bug, first: u64, runs_max: u64) -> Option<Found> {
    search(bug, SCENARIOS, first, runs_max)
}

/// As [`find`], with the one scenario that finds it soonest; none for a bug that a sequence shows.
pub fn find_quickly(bug: Bug, first: Option<u64>, runs_max: u64) -> Option<Found> {
    let Shown::Scenario(name) = shown_by(bug) else { return None };
    let scenario = Scenario::named(name).expect("a scenario of that name");
    search(bug, std::slice::from_ref(scenario), first.unwrap_or_else(|| first_seed(bug)), runs_max)
}

fn search(bug: Bug, scenarios: &'static [Scenario], first: u64, runs_max: u64) -> Option<Found> {
    let order = (first..).flat_map(|seed| scenarios.iter().map(move |scenario| (scenario, seed)));
    for (runs, (scenario, seed)) in (1..=runs_max).zip(order) {
        if let Some(failure) = fails_by(bug, scenario, seed) {
            return Some(Found { scenario: scenario.name, seed, runs, failure });
        }
    }
    None
}

/// How a run fails with a bug, if it does not without it.
pub fn fails_by(bug: Bug, scenario: &Scenario, seed: u64) -> Option<Failure> {
    plant(Some(bug));
    let failure = run(scenario, seed, None).failure;
    plant(None);
    failure.filter(|_| run(scenario, seed, None).failure.is_none())
}

/// What shows a bug.
pub const fn shown_by(bug: Bug) -> Shown {
    Shown::Scenario(match bug {
        Bug::LostRemovalIgnored
        | Bug::LostIsGone
        | Bug::DoneIsGone
        | Bug::FreshTooLong
        | Bug::PermittedUntold
        | Bug::LateSignOfLife => {
            return Shown::Sequence;
        }
        Bug::HasBeforeWrite
        | Bug::CommitByMost
        | Bug::OldEpochCommits
        | Bug::DropUnasked
        | Bug::UnknownIsDone
        | Bug::UnknownIsNotDone
        | Bug::RecordNamesMe
        | Bug::LeaseFromAnswer
        | Bug::PromiseForgotten
        | Bug::PromiseBesideClaim
        | Bug::ProofByAnyLife
        | Bug::OldPromiseFree
        | Bug::LedEpochForgotten
        | Bug::SeatAfterPower
        | Bug::CutKeepsSeat
        | Bug::CutMayLead
        | Bug::ColdForgotten
        | Bug::NotedBeforeTenure
        | Bug::OldRecordBelieved
        | Bug::LessIsCounted
        | Bug::SilenceIsVoid
        | Bug::AdmittedUnsynced
        | Bug::OwesForEver
        | Bug::WipedKeepsSeat
        | Bug::LackingLeads
        | Bug::FilledOverPromised
        | Bug::SyncedToldOnce
        | Bug::FsyncOfOne => {
            return Shown::SmallWorld;
        }
        Bug::DrainedGoesFirst | Bug::WantedAtOnce => return Shown::SmallWorld,
        Bug::LocalEndsAtOnce
        | Bug::OrphanOfAll
        | Bug::KeptDuringChange
        | Bug::ToldUnnoted
        | Bug::ForgottenWithRecall
        | Bug::PartNotCleared
        | Bug::NotLeaf
        | Bug::ToldEarlierLife
        | Bug::KeepsNotLogged
        | Bug::KeepsNotSynced => return Shown::OfIsland,
        Bug::KeptOvertaken => return Shown::OfRoute,
        Bug::LinkedWithoutScope | Bug::LentToScope | Bug::FoundAnywhere => "limited",
        Bug::AnswerOverNewer | Bug::BytesOfUnsynced | Bug::OwnCheckpoints => return Shown::OfCopies,
        Bug::NoCycleCheck | Bug::FoldsByAge | Bug::ChainOnly | Bug::BaseNotKept => return Shown::OfSpine,
        Bug::AbsentIsRemoved
        | Bug::RemovalSeesAll
        | Bug::RevivedByAnyChild
        | Bug::CopyIsNew
        | Bug::OldStaysDead
        | Bug::TwinGoesEarly => return Shown::OfShown,
        Bug::HasBeforePlaced
        | Bug::UnknownIsSkipped
        | Bug::IncarnationOfLast
        | Bug::AwayInFailOver
        | Bug::TimeGoesBack => "groups_deaths",
        Bug::DropsUnsyncedAtOthers | Bug::CutForgetsExtents => "groups_power",
        Bug::MissingForgotten | Bug::RowsOfTwoCommits | Bug::FilledUnsynced => "groups_fill",
        Bug::RemovedAtOnce => "groups_rings",
        Bug::ReadBesideLease => "groups",
        Bug::SnapshotAhead => "groups_partition",
        Bug::AnswerBeforeLog | Bug::IdsGivenAgain => "faults",
        Bug::SendBeforeLog => "crash_points",
        Bug::FsyncBeforeSync
        | Bug::LossForgotten
        | Bug::FsyncWithoutBody
        | Bug::GrowsUnrecorded
        | Bug::NoDirty
        | Bug::NoDirtyCarried
        | Bug::BodyGoesUnsynced => "power",
        Bug::ResultForgotten | Bug::AskedAsNew | Bug::AnsweredUnapplied => "partition",
        Bug::RepeatedWhileUnderWay | Bug::NotSealed | Bug::HeldNameIgnored | Bug::OpenBeforeCommit => {
            "history_partition"
        }
        Bug::StampTwice
        | Bug::UncheckedIsTrusted
        | Bug::AclNotAsked
        | Bug::ListingSkips
        | Bug::FullDirectoryGoes
        | Bug::StubStays
        | Bug::OrphanDropped
        | Bug::BeforeIsAfter => "sequential",
        Bug::NameNotHeld | Bug::NoTicket | Bug::OrderlyEndKeepsIncarnation => "deaths",
        Bug::LentNameNotHeld | Bug::CountNotClaimed | Bug::ShippedAsItWas => "storm",
        Bug::UndecidedLookup | Bug::VoteOfNobody | Bug::AttributesWhileNamed => "concurrent",
        Bug::UndecidedListing => "histories",
        Bug::OutcomeBeforeSync
        | Bug::StableBeforeSync
        | Bug::LostCommitStaysLost
        | Bug::LostPartStaysLost
        | Bug::IncarnationKept
        | Bug::PlaceBeforeSync
        | Bug::CheckpointWithoutBodies => "power_points",
        Bug::AbsentIsEmpty | Bug::ServesAtOnce => "saves",
        Bug::StubOfThen | Bug::ReturnsWithoutComparing => "absences",
        Bug::KeptBeforeSync => "absences_power",
        Bug::JournalGap => "storm_deaths",
        Bug::DroppedUnsynced | Bug::NothingSynced => "errors",
        Bug::EndForgetsRest | Bug::LinksCutShort => "large",
        Bug::HalfAWrite | Bug::CarriedForgotten | Bug::ViewStaysBroken => "full",
        Bug::AwayIsEmpty => "union_away",
        Bug::UnlinkAll | Bug::OldAnswerCounts => "union",
        Bug::TickTrusted | Bug::OverflowIgnored | Bug::InoReused | Bug::ChainBlind => "union_direct",
        Bug::ShownFirst | Bug::IntentLate => "union_points",
        Bug::ReplacedUnsynced | Bug::ChainUnsynced => "union_power",
        Bug::ToldUnsynced
        | Bug::MovedIntoRemoved
        | Bug::CutUnsynced
        | Bug::VersionSeesAll
        | Bug::LeftIsLost
        | Bug::GoneBackUnseen
        | Bug::LifeIsNotCompared
        | Bug::PlacedWithoutRoom
        | Bug::ReplacedGoes
        | Bug::WrittenRestsOn
        | Bug::RestoredUncut => "wide_sites",
        Bug::NoRelay => "link",
        Bug::OneWayCounts => "unanswered",
        Bug::NotRecalled | Bug::DroppedTooSoon => "recalls",
        Bug::LeaseCutShort | Bug::LapseUnseen => "leases",
        Bug::VoteBeforeLog => "votes",
        Bug::TwoWriters | Bug::CopyWaitsBehind => "slow",
        Bug::BodyGoesEarly => "history_slow",
        Bug::RecoveredUnsynced | Bug::NotWrittenAgain => "errors_power",
        Bug::LockNotWoken | Bug::LockForgotten | Bug::LockedFileMoves => "locks",
    })
}

/// Where a quick search begins: of bugs that few runs meet, not far before one that did.
const fn first_seed(bug: Bug) -> u64 {
    match bug {
        Bug::AttributesWhileNamed => 60,
        Bug::ReturnsWithoutComparing => 12,
        Bug::NotWrittenAgain => 75,
        Bug::HasBeforePlaced => 40,
        Bug::ReadBesideLease => 40,
        Bug::RowsOfTwoCommits => 190,
        Bug::CutForgetsExtents => 68,
        Bug::CarriedForgotten => 80,
        Bug::RecoveredUnsynced => 100,
        Bug::CopyWaitsBehind => 915,
        Bug::StubOfThen => 285,
        Bug::NoDirty => 185,
        Bug::AnsweredUnapplied => 1_900,
        Bug::HalfAWrite => 330,
        Bug::MovedIntoRemoved => 1_430,
        Bug::CutUnsynced => 2_005,
        Bug::LifeIsNotCompared => 100,
        Bug::PlacedWithoutRoom => 3_040,
        Bug::GrowsUnrecorded => 440,
        Bug::AbsentIsEmpty => 3_850,
        Bug::LostCommitStaysLost => 30,
        Bug::PlaceBeforeSync => 35,
        Bug::SendBeforeLog => 12,
        Bug::SnapshotAhead => 20,
        Bug::UndecidedLookup => 80,
        Bug::LeftIsLost => 120,
        Bug::ViewStaysBroken => 500_780,
        _ => 1,
    }
}
