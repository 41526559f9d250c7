//! When a link to one node is tried, and how: directly, or through a relay.
//!
//! A `Dialer` only decides. Its owner connects, and tells it how that ended. A link through a relay is proven
//! end to end: its handshake is one with the node itself, so nobody has to trust the relay's knowledge.
//!
//! Invariant: at most one direct attempt and one through a relay are under way, and a relay is used only
//! while there is no direct link.

use atoll_core::NodeId;
use atoll_core::planted::{Bug, planted};

/// Milliseconds without a link after which relays are tried. A node that was only restarted is back sooner.
pub const RELAY_AFTER_MS: u64 = 1_000;
/// Pause after the first failure of a direct attempt; each further one waits twice as long,
const DIRECT_PAUSE_MS_MIN: u64 = 10;
/// up to this: a daemon that is started again is soon found.
const DIRECT_PAUSE_MS_MAX: u64 = 250;
/// Pause after an attempt through one relay failed, before the next one is tried; each further one waits twice as long,
const RELAY_PAUSE_MS_MIN: u64 = 200;
/// up to this: all nodes ask each other again and again while one is away.
const RELAY_PAUSE_MS_MAX: u64 = 4_000;
/// A link that lived so long was a good one: attempts begin anew without a pause.
const GOOD_MS: u64 = 1_000;
/// While a relay is used the direct way is tried after this time; each time twice as long,
const BACK_AFTER_MS_MIN: u64 = 1_000;
/// up to this. So a way that comes and goes makes a pause of some seconds at most so often.
pub const BACK_AFTER_MS_MAX: u64 = 32_000;
/// A direct link that lived so long is steady: the pauses above begin anew.
const STEADY_MS: u64 = 60_000;

/// How a link is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// Directly to the node.
    Direct,
    /// Through this relay.
    Relay(NodeId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Down { since_ms: u64 },
    Up { via: Via, since_ms: u64 },
}

/// Direct attempts, or attempts through one relay after the other.
#[derive(Debug, Clone)]
struct Attempts {
    next_ms: u64,
    pause_ms: u64,
    under_way: bool,
}

impl Attempts {
    /// An attempt has failed: the next one waits, and the one after that twice as long.
    const fn failed(&mut self, now_ms: u64, pause_ms_max: u64) {
        self.under_way = false;
        self.next_ms = now_ms + self.pause_ms;
        let twice = self.pause_ms * 2;
        self.pause_ms = if twice < pause_ms_max { twice } else { pause_ms_max };
    }

    const fn begin_anew(&mut self, now_ms: u64, pause_ms: u64) {
        self.next_ms = now_ms;
        self.pause_ms = pause_ms;
    }
}

/// See the module. Times are milliseconds by any clock that never goes back.
#[derive(Debug, Clone)]
pub struct Dialer {
    relays: Vec<NodeId>,
    /// The relay that is tried next.
    next_relay: usize,
    state: State,
    direct: Attempts,
    relayed: Attempts,
    /// While a relay is used: the time until a direct attempt is made again.
    back_after_ms: u64,
}

impl Dialer {
    /// A dialer without a link. `relays` are tried in this order.
    pub fn new(now_ms: u64, relays: Vec<NodeId>) -> Self {
        let attempts = |pause_ms| Attempts { next_ms: now_ms, pause_ms, under_way: false };
        Self {
            relays,
            next_relay: 0,
            state: State::Down { since_ms: now_ms },
            direct: attempts(DIRECT_PAUSE_MS_MIN),
            relayed: attempts(RELAY_PAUSE_MS_MIN),
            back_after_ms: BACK_AFTER_MS_MIN,
        }
    }

    /// Sets the relays. Attempts under way, and a link that is up, go on.
    pub fn set_relays(&mut self, relays: Vec<NodeId>) {
        self.relays = relays;
        self.next_relay = 0;
    }

    /// How the link that is up was made.
    pub const fn via(&self) -> Option<Via> {
        match self.state {
            State::Up { via, .. } => Some(via),
            State::Down { .. } => None,
        }
    }

    /// When the next attempt is due; none while there is a direct link or everything is under way.
    pub fn next_ms(&self) -> Option<u64> {
        let direct = (!self.direct.under_way).then_some(self.direct.next_ms);
        match self.state {
            State::Up { via: Via::Direct, .. } => None,
            State::Up { via: Via::Relay(_), .. } => direct,
            State::Down { since_ms } => {
                let may = !self.relayed.under_way && !self.relays.is_empty() && !planted(Bug::NoRelay);
                let relayed = may.then(|| self.relayed.next_ms.max(since_ms + RELAY_AFTER_MS));
                direct.into_iter().chain(relayed).min()
            }
        }
    }

    /// The attempt to make now, if any. The caller tells how it ended by [`Self::connected`] or
    /// [`Self::failed`].
    pub fn due(&mut self, now_ms: u64) -> Option<Via> {
        self.next_ms().filter(|next_ms| *next_ms <= now_ms)?;
        if !self.direct.under_way && self.direct.next_ms <= now_ms {
            self.direct.under_way = true;
            return Some(Via::Direct);
        }
        self.relayed.under_way = true;
        let relay = self.relays[self.next_relay];
        self.next_relay = (self.next_relay + 1) % self.relays.len();
        Some(Via::Relay(relay))
    }

    /// An attempt has succeeded. True if its link is to be used; then the one before it is ended.
    pub fn connected(&mut self, now_ms: u64, via: Via) -> bool {
        let takes = match (self.state, via) {
            (State::Down { .. }, _) | (State::Up { via: Via::Relay(_), .. }, Via::Direct) => true,
            (State::Up { .. }, _) => false,
        };
        match via {
            Via::Direct => self.direct.under_way = false,
            Via::Relay(_) => self.relayed.under_way = false,
        }
        if takes {
            self.state = State::Up { via, since_ms: now_ms };
            if via != Via::Direct {
                self.probe_later(now_ms);
            }
        }
        takes
    }

    /// An attempt has failed.
    pub fn failed(&mut self, now_ms: u64, via: Via) {
        match (via, self.state) {
            (Via::Relay(_), _) => self.relayed.failed(now_ms, RELAY_PAUSE_MS_MAX),
            (Via::Direct, State::Up { via: Via::Relay(_), .. }) => {
                self.direct.under_way = false;
                self.probe_later(now_ms);
            }
            (Via::Direct, _) => self.direct.failed(now_ms, DIRECT_PAUSE_MS_MAX),
        }
    }

    /// The link that was used has ended.
    pub fn closed(&mut self, now_ms: u64) {
        let State::Up { via, since_ms } = self.state else { return };
        self.state = State::Down { since_ms: now_ms };
        let lived_ms = now_ms.saturating_sub(since_ms);
        self.relayed.begin_anew(now_ms, RELAY_PAUSE_MS_MIN);
        match via {
            Via::Direct if lived_ms < GOOD_MS => {
                // A link that goes down as soon as it is up is as good as none.
                self.direct.next_ms = now_ms + self.direct.pause_ms;
                self.direct.pause_ms = (self.direct.pause_ms * 2).min(DIRECT_PAUSE_MS_MAX);
            }
            _ => self.direct.begin_anew(now_ms, DIRECT_PAUSE_MS_MIN),
        }
        if via == Via::Direct && lived_ms >= STEADY_MS {
            self.back_after_ms = BACK_AFTER_MS_MIN;
        }
    }

    /// There is reason to think that a direct attempt would succeed now.
    pub fn knocked(&mut self, now_ms: u64) {
        if matches!(self.state, State::Down { .. }) {
            self.direct.begin_anew(now_ms, DIRECT_PAUSE_MS_MIN);
        }
    }

    /// A relay is used: the direct way is tried again later, and each time that was in vain later still.
    fn probe_later(&mut self, now_ms: u64) {
        self.direct.next_ms = now_ms + self.back_after_ms;
        self.back_after_ms = (self.back_after_ms * 2).min(BACK_AFTER_MS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: NodeId = NodeId(7);
    const S: NodeId = NodeId(8);
    const T: NodeId = NodeId(9);

    fn up(now_ms: u64, via: Via) -> Dialer {
        let mut dialer = Dialer::new(0, vec![R, S]);
        dialer.state = State::Up { via, since_ms: now_ms };
        dialer
    }

    /// What is tried up to a time, when everything fails at once.
    fn tried(dialer: &mut Dialer, upto_ms: u64) -> Vec<(u64, Via)> {
        let mut tried = Vec::new();
        while let Some(now_ms) = dialer.next_ms().filter(|next_ms| *next_ms <= upto_ms) {
            let via = dialer.due(now_ms).expect("it is due");
            tried.push((now_ms, via));
            dialer.failed(now_ms, via);
        }
        tried
    }

    #[test]
    fn a_lost_link_is_tried_directly_at_once_and_through_each_relay_soon_after() {
        let mut dialer = up(0, Via::Direct);
        dialer.closed(10_000);
        let tried = tried(&mut dialer, 11_500);
        assert_eq!(tried[0], (10_000, Via::Direct));
        let relays: Vec<(u64, Via)> = tried.into_iter().filter(|(_, via)| *via != Via::Direct).collect();
        assert_eq!(relays, [(11_000, Via::Relay(R)), (11_200, Via::Relay(S))]);
    }

    #[test]
    fn attempts_on_a_node_that_stays_away_become_rare_and_never_end() {
        let mut dialer = Dialer::new(0, vec![R, S]);
        let tried = tried(&mut dialer, 600_000);
        let (direct, relayed): (Vec<_>, Vec<_>) = tried.into_iter().partition(|(_, via)| *via == Via::Direct);
        assert!((2_300..2_500).contains(&direct.len()), "{}", direct.len());
        assert!((140..170).contains(&relayed.len()), "{}", relayed.len());
    }

    #[test]
    fn of_each_way_one_attempt_is_under_way() {
        let mut dialer = Dialer::new(0, vec![R, S]);
        assert_eq!(dialer.due(0), Some(Via::Direct));
        assert_eq!(dialer.next_ms(), Some(RELAY_AFTER_MS));
        assert_eq!(dialer.due(RELAY_AFTER_MS), Some(Via::Relay(R)));
        assert_eq!((dialer.next_ms(), dialer.due(1 << 40)), (None, None));
        dialer.failed(9_000, Via::Relay(R));
        assert_eq!(dialer.due(9_200), Some(Via::Relay(S)));
    }

    #[test]
    fn a_direct_link_takes_the_place_of_a_relayed_one_and_never_the_other_way_round() {
        let mut dialer = Dialer::new(0, vec![R]);
        assert!(dialer.connected(1, Via::Relay(R)));
        assert!(!dialer.connected(2, Via::Relay(R)), "one relay is enough");
        assert!(dialer.connected(3, Via::Direct));
        assert_eq!(dialer.via(), Some(Via::Direct));
        assert!(!dialer.connected(4, Via::Relay(R)));
        assert_eq!(dialer.next_ms(), None);
    }

    #[test]
    fn a_way_that_comes_and_goes_is_taken_ever_more_rarely_until_it_is_steady() {
        let mut dialer = up(0, Via::Direct);
        let (mut now_ms, mut pauses) = (100_000, Vec::new());
        for _ in 0..8 {
            // It lives for 5 s, then the relay is used until the direct way is tried again.
            now_ms += 5_000;
            dialer.closed(now_ms);
            assert!(dialer.connected(now_ms, Via::Relay(R)));
            let next_ms = dialer.next_ms().expect("the direct way is tried again");
            pauses.push(next_ms - now_ms);
            now_ms = next_ms;
            assert_eq!(dialer.due(now_ms), Some(Via::Direct));
            assert!(dialer.connected(now_ms, Via::Direct));
        }
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000, 32_000]);
        dialer.closed(now_ms + STEADY_MS);
        dialer.connected(now_ms + STEADY_MS, Via::Relay(R));
        assert_eq!(dialer.next_ms(), Some(now_ms + STEADY_MS + BACK_AFTER_MS_MIN));
    }

    #[test]
    fn a_relay_that_ends_is_replaced_at_the_next_step() {
        let mut dialer = up(0, Via::Relay(R));
        dialer.closed(50_000);
        let tried = tried(&mut dialer, 51_000);
        assert!(tried.iter().any(|(_, via)| matches!(via, Via::Relay(_))), "{tried:?}");
    }

    #[test]
    fn a_knock_has_the_direct_way_tried_at_once() {
        let mut dialer = Dialer::new(0, Vec::new());
        tried(&mut dialer, 10_000);
        assert!(dialer.next_ms() > Some(10_000));
        dialer.knocked(10_001);
        assert_eq!(dialer.due(10_001), Some(Via::Direct));
    }

    #[test]
    fn other_relays_are_tried_from_the_next_attempt_on_and_one_under_way_goes_on() {
        let mut dialer = Dialer::new(0, vec![R, S]);
        dialer.due(0);
        assert_eq!(dialer.due(RELAY_AFTER_MS), Some(Via::Relay(R)));
        dialer.set_relays(vec![T]);
        dialer.failed(2_000, Via::Relay(R));
        assert_eq!(dialer.due(3_000), Some(Via::Relay(T)));
        dialer.set_relays(Vec::new());
        assert!(dialer.connected(4_000, Via::Relay(T)), "it was good when it began");
        dialer.closed(5_000);
        dialer.failed(5_000, Via::Direct);
        assert!(tried(&mut dialer, 60_000).iter().all(|(_, via)| *via == Via::Direct));
    }

    #[test]
    fn without_relays_there_is_the_direct_way_only() {
        let mut dialer = Dialer::new(0, Vec::new());
        assert!(tried(&mut dialer, 60_000).iter().all(|(_, via)| *via == Via::Direct));
    }
}
