//! What two sites say to each other first, and why a site ends a link. Owns the rule by which it is noticed that one of them has gone back
//! to an earlier state (`docs/design/023-wide.md`, W3). Changes nothing.

use atoll_core::planted::{Bug, planted};

use super::Own;
use super::message::Hello;

/// Why a site ends a link. Nothing of what comes on that link is taken any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The other one is a site of another volume.
    #[error("the other site belongs to another volume")]
    Volume,
    /// The other site has seen more of this site than there is.
    #[error("this site has gone back to an earlier state: the other site has seen later changes of it")]
    ThisWentBack,
    /// This site has seen more of the other site than there is.
    #[error("the other site has gone back to an earlier state: this site has seen later changes of it")]
    OtherWentBack,
    /// A message comes that has no place here.
    #[error("the other site breaks the order of messages: {0}")]
    Order(&'static str),
    /// More comes than a site may send.
    #[error("the other site sends too much: {0}")]
    Bound(&'static str),
    /// A move of directories cannot be taken before the next cut.
    #[error("too many moves of directories wait for the next cut")]
    Busy,
}

/// What a site remembers of another one, and has itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remembered {
    pub(super) volume: u64,
    /// This site's last synced position.
    pub(super) synced: u64,
    /// Up to where this site has the other one's feed.
    pub(super) taken: u64,
    /// Up to where the other one has said that it has this site's feed, synced.
    pub(super) acked: u64,
}

/// Judges what the other site says first.
pub(super) fn judge(own: Own<'_>, here: Remembered, hello: &Hello) -> Result<(), Refused> {
    if hello.volume != here.volume {
        return Err(Refused::Volume);
    }
    if planted(Bug::GoneBackUnseen) {
        return Ok(());
    }
    let has_seen_more = |(writer, n): &(_, u64)| *writer == own.writer && *n > own.n;
    if hello.has > here.synced || hello.writers.iter().any(has_seen_more) {
        return Err(Refused::ThisWentBack);
    }
    if hello.synced < here.taken || hello.has < here.acked {
        return Err(Refused::OtherWentBack);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use atoll_causal::Writer;
    use atoll_spine::Spine;
    use atoll_state::State;

    use super::*;
    use crate::author::Made;
    use crate::peers::message::Most;

    const HERE: Remembered = Remembered { volume: 1, synced: 10, taken: 20, acked: 5 };

    fn judged(volume: u64, n: u64, has: u64, synced: u64) -> Result<(), Refused> {
        let (state, spine, made) = (State::new(1), Spine::default(), Made::behind(0));
        let own = Own { state: &state, spine: &spine, made: &made, writer: Writer(7), n: 30 };
        let writers = Most::new(vec![(Writer(6), 1_000), (Writer(7), n)]);
        judge(own, HERE, &Hello { volume, writers, has, synced })
    }

    #[test]
    fn a_site_that_has_seen_no_more_than_there_is_and_has_not_gone_back_is_greeted() {
        assert_eq!(judged(1, 30, 10, 20), Ok(()));
        assert_eq!(judged(1, 0, 5, 1_000), Ok(()));
    }

    #[test]
    fn who_has_gone_back_is_noticed_by_positions_and_by_dots() {
        assert_eq!(judged(1, 30, 11, 20), Err(Refused::ThisWentBack));
        assert_eq!(judged(1, 31, 10, 20), Err(Refused::ThisWentBack));
        assert_eq!(judged(1, 30, 10, 19), Err(Refused::OtherWentBack));
        assert_eq!(judged(1, 30, 4, 20), Err(Refused::OtherWentBack));
        assert_eq!(judged(2, 30, 10, 20), Err(Refused::Volume));
    }
}
