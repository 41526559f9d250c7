//! One direction of a link: when a packet that is sent arrives at the other end, if it does. Knows no packets' contents, no
//! clock and no devices.
//!
//! A packet waits until those before it are on the link, takes as long as its bytes need at the link's rate, and then the
//! delay. What finds the queue full is dropped, as by a router. What is lost was on the link before.

use std::collections::VecDeque;
use std::time::Duration;

use atoll_model::Rng;

/// Packets that are under way at once, at most: others are dropped.
const PACKETS_MAX: usize = 1 << 16;

/// What a direction is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoadTerms {
    /// How long a packet takes.
    pub delay: Duration,
    /// Bits a second; none: any number.
    pub rate: Option<u64>,
    /// Bytes that wait for the link, at most.
    pub queue_bytes: u64,
    /// So many of a million packets are lost.
    pub loss_ppm: u32,
}

impl RoadTerms {
    /// Nothing holds it up.
    pub const FREE: Self = Self { delay: Duration::ZERO, rate: None, queue_bytes: 0, loss_ppm: 0 };
    /// Nothing arrives.
    pub const CUT: Self = Self { loss_ppm: 1_000_000, ..Self::FREE };
}

/// What was sent in a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were sent: those that were lost, too, not those that were dropped.
    pub packets: u64,
    /// Their bytes, with all headers of IP and above.
    pub bytes: u64,
    /// What TCP carried in them, without headers, also if it was sent before.
    pub payload: u64,
    /// Packets that were lost on the link,
    pub lost: u64,
    /// and those that found the queue full.
    pub dropped: u64,
}

impl std::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            payload: self.payload - before.payload,
            lost: self.lost - before.lost,
            dropped: self.dropped - before.dropped,
        }
    }
}

/// A direction, with what is under way. Times are since a moment that the caller chooses.
#[derive(Debug)]
pub struct Road {
    terms: RoadTerms,
    rng: Rng,
    /// From then on the link is free for the next packet.
    free_at: Duration,
    /// Each with the time of its arrival, in the order in which they were sent.
    under_way: VecDeque<(Duration, Vec<u8>)>,
    counts: Counts,
}

impl Road {
    /// A new one; the seed says which packets are lost.
    pub fn new(terms: RoadTerms, seed: u64) -> Self {
        let (under_way, counts) = (VecDeque::new(), Counts::default());
        Self { terms, rng: Rng::new(seed), free_at: Duration::ZERO, under_way, counts }
    }

    /// From now on it is like this. What is under way arrives as it would have.
    pub fn set(&mut self, terms: RoadTerms) {
        self.terms = terms;
        self.free_at = Duration::ZERO;
    }

    /// What was sent so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Somebody sends a packet.
    pub fn send(&mut self, now: Duration, packet: &[u8]) {
        let len = packet.len() as u64;
        let begins = self.free_at.max(now);
        let takes = |bytes: u64, rate: u64| Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
        let is_full = self.terms.rate.is_some_and(|rate| {
            let waits = begins - now;
            // An empty queue takes a packet of any length.
            !waits.is_zero() && waits + takes(len, rate) > takes(self.terms.queue_bytes, rate)
        });
        if is_full || self.under_way.len() >= PACKETS_MAX {
            self.counts.dropped += 1;
            return;
        }
        self.free_at = self.terms.rate.map_or(begins, |rate| begins + takes(len, rate));
        self.counts.packets += 1;
        self.counts.bytes += len;
        self.counts.payload += tcp_payload(packet);
        if self.rng.below(1_000_000) < u64::from(self.terms.loss_ppm) {
            self.counts.lost += 1;
            return;
        }
        // They do not overtake each other, also if the delay was longer before.
        let last = self.under_way.back().map_or(Duration::ZERO, |(due, _)| *due);
        self.under_way.push_back(((self.free_at + self.terms.delay).max(last), packet.to_vec()));
    }

    /// The next packet that has arrived by now.
    pub fn arrived(&mut self, now: Duration) -> Option<Vec<u8>> {
        let (due, _) = self.under_way.front()?;
        if *due > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, packet)| packet)
    }

    /// When the next one arrives, of those that are under way.
    pub fn next_at(&self) -> Option<Duration> {
        self.under_way.front().map(|(due, _)| *due)
    }
}

/// How many bytes TCP carries in an IPv4 packet; 0 if it is none of TCP.
fn tcp_payload(packet: &[u8]) -> u64 {
    const TCP: u8 = 6;
    let (Some(first), Some(&protocol)) = (packet.first(), packet.get(9)) else { return 0 };
    let head = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || protocol != TCP {
        return 0;
    }
    let Some(offset) = packet.get(head + 12) else { return 0 };
    packet.len().saturating_sub(head + usize::from(offset >> 4) * 4) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn road(terms: RoadTerms) -> Road {
        Road::new(terms, 1)
    }

    fn all(road: &mut Road, now: Duration) -> usize {
        std::iter::from_fn(|| road.arrived(now)).count()
    }

    #[test]
    fn a_packet_arrives_behind_the_delay_and_not_before() {
        let mut road = road(RoadTerms { delay: 150 * MS, ..RoadTerms::FREE });
        road.send(10 * MS, &[0; 100]);
        assert_eq!(road.next_at(), Some(160 * MS));
        assert_eq!(all(&mut road, 159 * MS), 0);
        assert_eq!(all(&mut road, 160 * MS), 1);
    }

    #[test]
    fn packets_take_the_time_that_their_bytes_need_one_behind_the_other() {
        // 1,000 bytes take 8 ms.
        let terms = RoadTerms { rate: Some(1_000_000), queue_bytes: 100_000, ..RoadTerms::FREE };
        let mut road = road(terms);
        (0..10).for_each(|_| road.send(Duration::ZERO, &[0; 1000]));
        assert_eq!(all(&mut road, 8 * MS - MS / 1000), 0);
        assert_eq!(all(&mut road, 40 * MS), 5);
        assert_eq!(all(&mut road, 80 * MS), 5);
        // The link was idle meanwhile.
        road.send(200 * MS, &[0; 1000]);
        assert_eq!(road.next_at(), Some(208 * MS));
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped() {
        let terms = RoadTerms { rate: Some(1_000_000), queue_bytes: 10_000, ..RoadTerms::FREE };
        let mut road = road(terms);
        (0..100).for_each(|_| road.send(Duration::ZERO, &[0; 1000]));
        let Counts { packets, bytes, dropped, .. } = road.counts();
        assert_eq!((packets, bytes, dropped), (10, 10_000, 90));
        // As soon as there is room, another one is taken.
        road.send(8 * MS, &[0; 1000]);
        assert_eq!(road.counts().packets, 11);
    }

    #[test]
    fn the_share_that_is_asked_for_is_lost_and_of_a_cut_link_everything() {
        let mut road = road(RoadTerms { loss_ppm: 10_000, ..RoadTerms::FREE });
        for _ in 0..100_000 {
            road.send(Duration::ZERO, &[0; 10]);
            road.arrived(Duration::ZERO);
        }
        assert!((800..1200).contains(&road.counts().lost), "{}", road.counts().lost);
        road.set(RoadTerms::CUT);
        let before = road.counts();
        (0..100).for_each(|_| road.send(Duration::ZERO, &[0; 10]));
        assert_eq!((road.counts() - before).lost, 100);
        assert_eq!(all(&mut road, Duration::MAX), 0);
    }

    #[test]
    fn more_packets_than_are_kept_are_dropped() {
        let mut road = road(RoadTerms { delay: MS, ..RoadTerms::FREE });
        (0..PACKETS_MAX + 3).for_each(|_| road.send(Duration::ZERO, &[0; 1]));
        assert_eq!(road.counts().dropped, 3);
    }

    #[test]
    fn what_tcp_carries_is_counted_without_headers() {
        let mut packet = vec![0; 100];
        (packet[0], packet[9], packet[32]) = (0x45, 6, 0x80);
        assert_eq!(tcp_payload(&packet), 100 - 20 - 32);
        packet[9] = 17;
        assert_eq!(tcp_payload(&packet), 0);
        assert_eq!(tcp_payload(&packet[..9]), 0);
        assert_eq!(tcp_payload(&[]), 0);
    }
}
