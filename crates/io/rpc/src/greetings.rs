//! The places for connections that are being greeted: how many there are, and who may take them.
//!
//! Whoever has shown nothing yet is known by the address alone. Strangers never take all places: some are kept for addresses from which
//! somebody was let in before, and for those that the node itself knows.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Most connections that are greeted at once. Each costs a thread for the time of the handshake. They do not count towards
/// the limit of connections, so that strangers take no place from those who are known.
const GREETINGS_MAX: usize = 256;

/// Most of them that are from addresses of which nothing is known.
const STRANGERS_MAX: usize = 192;

/// Most of them from one address.
const GREETINGS_PER_ADDRESS_MAX: usize = 64;

/// So many addresses are remembered from which somebody was let in: about 48 KiB.
const KNOWN_MAX: usize = 1024;

/// A place that was taken.
#[derive(Debug)]
pub(crate) struct GreetingPlace {
    from: Option<IpAddr>,
    is_stranger: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Greetings {
    /// Connections that are being greeted, by where they come from; none is this machine.
    by_address: HashMap<Option<IpAddr>, usize>,
    /// Those of them that are from addresses of which nothing is known.
    strangers: usize,
    /// Addresses from which somebody was let in, and when that was, as a number that grows.
    known: HashMap<IpAddr, u64>,
    let_in: u64,
}

/// What counts as one address: whoever has one of IPv6 usually has all those with the same first 64 bits.
fn as_one(from: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match from.to_canonical() {
        IpAddr::V6(from) => IpAddr::V6(Ipv6Addr::from(u128::from(from) & NETWORK)),
        from @ IpAddr::V4(_) => from,
    }
}

impl Greetings {
    /// Takes a place, unless there is none. `is_known`: whether the node knows the address; asked only where that counts.
    pub(crate) fn begin(
        &mut self,
        from: Option<IpAddr>,
        is_known: impl FnOnce(IpAddr) -> bool,
    ) -> Option<GreetingPlace> {
        let one = from.map(as_one);
        let of_address = self.by_address.get(&one).copied().unwrap_or(0);
        if self.len() >= GREETINGS_MAX || (one.is_some() && of_address >= GREETINGS_PER_ADDRESS_MAX) {
            return None;
        }
        let is_stranger = one.is_some_and(|one| !self.known.contains_key(&one));
        if is_stranger && self.strangers >= STRANGERS_MAX && !from.is_some_and(is_known) {
            return None;
        }
        self.by_address.insert(one, of_address + 1);
        self.strangers += usize::from(is_stranger);
        Some(GreetingPlace { from: one, is_stranger })
    }

    /// Gives a place back. `was_let_in`: its owner was.
    pub(crate) fn end(&mut self, place: GreetingPlace, was_let_in: bool) {
        let GreetingPlace { from, is_stranger } = place;
        self.strangers -= usize::from(is_stranger);
        if let Some(count) = self.by_address.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&from);
            }
        }
        if let Some(from) = from.filter(|_| was_let_in) {
            self.note(from);
        }
    }

    fn note(&mut self, from: IpAddr) {
        self.let_in += 1;
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&from) {
            let oldest = self.known.iter().min_by_key(|(_, let_in)| **let_in).map(|(address, _)| *address);
            oldest.map(|oldest| self.known.remove(&oldest));
        }
        self.known.insert(from, self.let_in);
    }

    /// How many are being greeted.
    pub(crate) fn len(&self) -> usize {
        self.by_address.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + n).into())
    }

    fn nobody(_: IpAddr) -> bool {
        false
    }

    #[test]
    fn strangers_leave_places_to_those_who_were_let_in_to_this_machine_and_to_those_whom_the_node_knows() {
        let mut greetings = Greetings::default();
        let place = greetings.begin(Some(v4(1)), nobody).unwrap();
        greetings.end(place, true);
        let place = greetings.begin(Some(v4(2)), nobody).unwrap();
        greetings.end(place, false);
        let taken: Vec<_> = (10..).map_while(|n| greetings.begin(Some(v4(n)), nobody)).collect();
        assert_eq!(taken.len(), STRANGERS_MAX);
        assert!(greetings.begin(Some(v4(2)), nobody).is_none(), "it was not let in");
        let mut more = vec![greetings.begin(Some(v4(1)), nobody).unwrap()];
        more.push(greetings.begin(None, nobody).unwrap());
        more.push(greetings.begin(Some(v4(3)), |from| from == v4(3)).unwrap());
        // All places have a bound, and one address has.
        more.extend((0..200).filter_map(|_| greetings.begin(Some(v4(1)), nobody)));
        assert_eq!(greetings.len(), GREETINGS_MAX);
        assert!(greetings.begin(None, nobody).is_none());
        taken.into_iter().chain(more).for_each(|place| greetings.end(place, false));
        assert_eq!((greetings.len(), greetings.strangers, greetings.by_address.len()), (0, 0, 0));
        let of_one = (0..GREETINGS_MAX).filter_map(|_| greetings.begin(Some(v4(1)), nobody)).count();
        assert_eq!(of_one, GREETINGS_PER_ADDRESS_MAX);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_a_mapped_address_as_what_it_is() {
        let mut greetings = Greetings::default();
        let v6 = |n: u128| Some(IpAddr::V6(((0x2001_0db8 << 96) + n).into()));
        let of_one = (0..1_000).filter_map(|n| greetings.begin(v6(n << 40), nobody)).count();
        assert_eq!(of_one, GREETINGS_PER_ADDRESS_MAX);
        assert!(greetings.begin(v6(1 << 64), nobody).is_some(), "another network");
        assert_eq!(as_one("::ffff:10.0.0.1".parse().unwrap()), v4(1));
    }

    #[test]
    fn no_more_addresses_are_remembered_than_the_bound_and_the_newest_are() {
        let mut greetings = Greetings::default();
        let mut comes = |n| {
            let place = greetings.begin(Some(v4(n)), nobody).unwrap();
            greetings.end(place, true);
            greetings.known.len()
        };
        (0..KNOWN_MAX as u32).for_each(|n| _ = comes(n));
        comes(0);
        assert_eq!(comes(KNOWN_MAX as u32), KNOWN_MAX);
        let is_known = |n| greetings.known.contains_key(&v4(n));
        assert!(is_known(0) && !is_known(1) && is_known(2) && is_known(KNOWN_MAX as u32));
    }
}
