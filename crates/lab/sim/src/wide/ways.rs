//! Links between sites, as TCP makes them: in order, and what is on its way is lost when one breaks. Never judges.

use std::collections::{BTreeMap, VecDeque};

use atoll_island::{BesideEvent, BesideSays};
use atoll_model::rng::Rng;
use atoll_wide::rows::SiteId;
use atoll_wide::site::Site;
use bytes::Bytes;

use super::place::Place;
use crate::cause::Failure;

/// Two sites, the one with the lower number first.
type Pair = (usize, usize);

/// See the module.
#[derive(Debug)]
pub(super) struct Ways {
    /// What is on its way from the first to the second, and back; none while the link is down.
    links: BTreeMap<Pair, Option<[VecDeque<Bytes>; 2]>>,
    /// Links that were refused since some site has gone back.
    refused: Vec<WentBack>,
}

/// A link was refused.
#[derive(Debug)]
pub(super) struct WentBack {
    /// By a site, to another one. It is down.
    pub(super) by: usize,
    pub(super) to: usize,
    /// The site that has gone back: one of these, or a third one.
    pub(super) who: usize,
}

/// The site that has gone back, if a site has ended its link with another one for that.
fn who_went_back((by, to): Pair, why: &str) -> Option<usize> {
    let who = why.split_once(" has gone back to an earlier state")?.0;
    match who {
        "this site" => Some(by),
        "the other site" => Some(to),
        third => third.strip_prefix("site s")?.parse().ok(),
    }
}

/// The number by which others know a site.
pub(super) const fn number(site: usize) -> u64 {
    1 + site as u64
}

const fn pair(one: usize, other: usize) -> (Pair, usize) {
    if one < other { ((one, other), 0) } else { ((other, one), 1) }
}

impl Ways {
    /// All sites can be linked with each other, or only with those before and behind them.
    pub(super) fn new(sites: usize, in_a_row: bool) -> Self {
        let pairs = (0..sites).flat_map(|to| (0..to).map(move |from| (from, to)));
        let links = pairs.filter(|(from, to)| !in_a_row || to - from == 1).map(|pair| (pair, None)).collect();
        Self { links, refused: Vec::new() }
    }

    /// The links that were refused since the last call.
    pub(super) fn take_refused(&mut self) -> Vec<WentBack> {
        std::mem::take(&mut self.refused)
    }

    /// A site has no links any more. Those between which it stood are linked with each other.
    pub(super) fn forget(&mut self, places: &mut [Place], site: usize) -> Result<(), Failure> {
        self.cut(places, site)?;
        let of_it = |(one, other): &Pair| *one == site || *other == site;
        let beside: Vec<usize> =
            self.links.keys().filter(|pair| of_it(pair)).map(|(one, other)| one + other - site).collect();
        self.links.retain(|pair, _| !of_it(pair));
        for pairs in beside.windows(2) {
            self.links.entry((pairs[0].min(pairs[1]), pairs[0].max(pairs[1]))).or_default();
        }
        Ok(())
    }

    pub(super) fn pairs(&self) -> Vec<Pair> {
        self.links.keys().copied().collect()
    }

    pub(super) fn is_up(&self, pair: Pair) -> bool {
        self.links.get(&pair).is_some_and(Option::is_some)
    }

    /// The link of two sites comes up, if both run, or goes down.
    pub(super) fn set(&mut self, places: &mut [Place], (one, other): Pair, up: bool) -> Result<(), Failure> {
        let up = up && places[one].is_up() && places[other].is_up();
        if up == self.is_up((one, other)) {
            return Ok(());
        }
        self.links.insert((one, other), up.then(Default::default));
        for (at, peer) in [(one, other), (other, one)] {
            places[at].hear(BesideEvent::Link { peer: number(peer), up })?;
        }
        self.take(places)
    }

    /// All links of a site are up, all that it has is synced, all is told and acknowledged on them, and it has all bytes.
    pub(super) fn are_quiet(&self, place: &Place) -> bool {
        let peers = self.links.keys().filter_map(|(one, other)| match place.number {
            number if number == *one => Some(*other),
            number if number == *other => Some(*one),
            _ => None,
        });
        let quiet = |site: &Site| {
            site.has_all_bytes() && peers.clone().all(|peer| site.peers().is_quiet(SiteId(number(peer))))
        };
        place.is_synced() && place.with_site(quiet) == Some(true)
    }

    /// What of a site is not quiet, for people.
    pub(super) fn unrest(&self, place: &Place) -> String {
        let of_site = |site: &Site| {
            let peers =
                self.links.keys().filter(|(one, other)| place.number == *one || place.number == *other);
            let peers = peers.map(|(one, other)| one + other - place.number);
            let unquiet = |peer: &usize| !site.peers().is_quiet(SiteId(number(*peer)));
            (site.fetched(), site.has_all_bytes(), peers.filter(unquiet).collect::<Vec<_>>())
        };
        format!("site {}: synced {}, {:?}", place.number, place.is_synced(), place.with_site(of_site))
    }

    /// Links of sites that do not run go down.
    pub(super) fn look(&mut self, places: &mut [Place]) -> Result<(), Failure> {
        for (one, other) in self.pairs() {
            if !(places[one].is_up() && places[other].is_up()) {
                self.set(places, (one, other), false)?;
            }
        }
        Ok(())
    }

    /// The links of a site go down: its process has begun anew.
    pub(super) fn cut(&mut self, places: &mut [Place], site: usize) -> Result<(), Failure> {
        for pair in self.pairs() {
            if pair.0 == site || pair.1 == site {
                self.set(places, pair, false)?;
            }
        }
        Ok(())
    }

    /// Takes what sites have said.
    pub(super) fn take(&mut self, places: &mut [Place]) -> Result<(), Failure> {
        let mut refused = Vec::new();
        for (at, place) in places.iter_mut().enumerate() {
            for says in place.take_said() {
                match says {
                    BesideSays::Send { peer, bytes } => {
                        let (pair, way) = pair(at, peer as usize - 1);
                        if let Some(Some(link)) = self.links.get_mut(&pair) {
                            link[way].push_back(bytes);
                        }
                    }
                    // Whether what rested has a name again is seen in the tree.
                    BesideSays::Answers { .. } => {}
                    BesideSays::End { peer, why } => {
                        let to = peer as usize - 1;
                        let Some(who) = who_went_back((at, to), &why) else {
                            let why = format!("site {at} ends its link with site {to}: {why}");
                            return Err(Failure::new(why));
                        };
                        refused.push(WentBack { by: at, to, who });
                    }
                }
            }
        }
        for WentBack { by, to, .. } in &refused {
            self.set(places, pair(*by, *to).0, false)?;
        }
        self.refused.append(&mut refused);
        Ok(())
    }

    /// Takes some message off its way: from which site, to which, and what. None if none is on its way.
    pub(super) fn arrives(&mut self, rng: &mut Rng) -> Option<(usize, usize, Bytes)> {
        let mut ways = Vec::new();
        for (pair, link) in &self.links {
            let Some(link) = link else { continue };
            ways.extend((0..2).filter(|way| !link[*way].is_empty()).map(|way| (*pair, way)));
        }
        if ways.is_empty() {
            return None;
        }
        let (pair, way) = *rng.pick(&ways);
        let link = self.links.get_mut(&pair).and_then(Option::as_mut)?;
        let bytes = link[way].pop_front()?;
        let (from, to) = if way == 0 { pair } else { (pair.1, pair.0) };
        Some((from, to, bytes))
    }

    /// A message arrives.
    pub(super) fn deliver(
        &mut self,
        places: &mut [Place],
        (from, to): Pair,
        bytes: Bytes,
    ) -> Result<(), Failure> {
        places[to].hear(BesideEvent::Message { peer: number(from), bytes })?;
        self.take(places)?;
        self.look(places)
    }
}
