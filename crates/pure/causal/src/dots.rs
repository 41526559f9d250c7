//! Stores of dots: what changes added and no other change removed, and registers in which the last writer wins. Owns how
//! two of them are joined. Never gives out a dot, and has no context of its own: that is the object's.

use std::collections::BTreeMap;

use atoll_core::planted::{Bug, planted};
use atoll_core::{Decode, Encode, Malformed, Reader, wire_struct};

use crate::context::Context;
use crate::id::Dot;
use crate::stamp::HybridStamp;

/// Values by the dots of the changes that added them. More than one: the changes did not know of each other.
///
/// Sorted by dot, with at most one dot of a writer: what a writer adds replaces what it added before. So equal stores
/// have equal bytes. All its dots are covered by the context of its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DotFun<V>(Vec<(Dot, V)>);

wire_struct! {
    /// The value of a dot that has none.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct NoValue {}
}

/// Dots that no change removed.
pub type DotSet = DotFun<NoValue>;

impl<V> Default for DotFun<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V: Ord + Clone> DotFun<V> {
    /// A store of one value.
    pub fn of(dot: Dot, value: V) -> Self {
        Self(vec![(dot, value)])
    }

    /// Whether nothing is there.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many values are there.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Dots with their values, sorted by dot.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Dot, &V)> {
        self.0.iter().map(|(dot, value)| (*dot, value))
    }

    /// The dots, sorted.
    pub fn dots(&self) -> Vec<Dot> {
        self.iter().map(|(dot, _)| dot).collect()
    }

    /// The value that `dot` added.
    pub fn get(&self, dot: Dot) -> Option<&V> {
        self.iter().find_map(|(at, value)| (at == dot).then_some(value))
    }

    /// The highest value, which of values with stamps in front is the latest; of equal ones that of the higher dot.
    pub fn highest(&self) -> Option<(Dot, &V)> {
        self.iter().max_by(|(a, x), (b, y)| x.cmp(y).then(a.cmp(b)))
    }

    /// Carries out a change: `removed` go, and `value` is added with the change's own dot.
    pub fn apply(&mut self, removed: &[Dot], dot: Dot, value: Option<V>) {
        let replaced = |at: Dot| removed.contains(&at) || value.is_some() && at.writer == dot.writer;
        self.0.retain(|(at, _)| !replaced(*at));
        if let Some(value) = value {
            let at = self.0.partition_point(|(at, _)| *at < dot);
            self.0.insert(at, (dot, value));
        }
    }

    /// Takes in the store of another state of the object. A dot stays if both have it, or if one has it and the context of the
    /// other does not cover it: there it was removed. `own` and `others` are the contexts of the two states.
    ///
    /// One dot has one value. Only the copy that a conflict makes is born at several sites with one dot, and its place may
    /// differ there; the higher value stays then.
    pub fn join(&mut self, own: &Context, other: &Self, others: &Context) {
        if other.is_empty() && self.is_empty() {
            return;
        }
        let mut both: BTreeMap<Dot, V> = BTreeMap::new();
        for (dot, value) in self.iter() {
            let is_unseen = !others.covers(dot) && !planted(Bug::AbsentIsRemoved);
            if other.get(dot).is_some() || is_unseen {
                both.insert(dot, value.clone());
            }
        }
        for (dot, value) in other.iter() {
            if self.get(dot).is_some() || !own.covers(dot) {
                let there = both.entry(dot).or_insert_with(|| value.clone());
                if value > there {
                    *there = value.clone();
                }
            }
        }
        self.0 = both.into_iter().collect();
    }

    /// Whether `context` covers each dot.
    pub(crate) fn is_covered(&self, context: &Context) -> bool {
        self.iter().all(|(dot, _)| context.covers(dot))
    }
}

impl<V: Encode> Encode for DotFun<V> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        for (dot, value) in &self.0 {
            dot.encode(out);
            value.encode(out);
        }
    }

    fn encoded_len(&self) -> usize {
        let values = self.0.iter().map(|(dot, value)| dot.encoded_len() + value.encoded_len());
        size_of::<u32>() + values.sum::<usize>()
    }
}

impl<V: Decode> Decode for DotFun<V> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = u32::decode(r)? as usize;
        if count > Context::WRITERS_MAX {
            return Err(Malformed::new("dots"));
        }
        let mut dots: Vec<(Dot, V)> = Vec::new();
        for _ in 0..count {
            let dot = Dot::decode(r)?;
            if dots.last().is_some_and(|(last, _)| last.writer >= dot.writer) {
                return Err(Malformed::new("dots"));
            }
            dots.push((dot, V::decode(r)?));
        }
        Ok(Self(dots))
    }
}

/// A store of dots for each key. A key without dots is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DotMap<K, V>(BTreeMap<K, DotFun<V>>);

impl<K, V> Default for DotMap<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V: Ord + Clone> DotMap<K, V> {
    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What is there under `key`.
    pub fn get(&self, key: &K) -> Option<&DotFun<V>> {
        self.0.get(key)
    }

    /// Keys with their stores, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &DotFun<V>)> {
        self.0.iter()
    }

    /// As [`Self::iter`], from the key `from` on.
    pub fn range_from(&self, from: &K) -> impl Iterator<Item = (&K, &DotFun<V>)> {
        self.0.range(from..)
    }

    /// The dots under `key`.
    pub fn dots(&self, key: &K) -> Vec<Dot> {
        self.get(key).map(DotFun::dots).unwrap_or_default()
    }

    /// [`DotFun::apply`] under `key`.
    pub fn apply(&mut self, key: &K, removed: &[Dot], dot: Dot, value: Option<V>) {
        let mut store = self.0.remove(key).unwrap_or_default();
        store.apply(removed, dot, value);
        if !store.is_empty() {
            self.0.insert(key.clone(), store);
        }
    }

    /// [`DotFun::join`] under each key.
    pub fn join(&mut self, own: &Context, other: &Self, others: &Context) {
        let none = DotFun::default();
        for (key, theirs) in &other.0 {
            self.0.entry(key.clone()).or_default().join(own, theirs, others);
        }
        self.0.retain(|key, mine| {
            if !other.0.contains_key(key) {
                mine.join(own, &none, others);
            }
            !mine.is_empty()
        });
    }

    /// Whether `context` covers each dot.
    pub(crate) fn is_covered(&self, context: &Context) -> bool {
        self.0.values().all(|store| store.is_covered(context))
    }

    /// The encoded form, if there are at most `keys_max` keys.
    pub(crate) fn decode_most(r: &mut Reader<'_>, keys_max: usize) -> Result<Self, Malformed>
    where
        K: Decode,
        V: Decode,
    {
        let count = u32::decode(r)? as usize;
        if count > keys_max {
            return Err(Malformed::new("keys of dots"));
        }
        let mut map = BTreeMap::new();
        for _ in 0..count {
            let key = K::decode(r)?;
            let store = DotFun::decode(r)?;
            if store.0.is_empty() || map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(Malformed::new("keys of dots"));
            }
            map.insert(key, store);
        }
        Ok(Self(map))
    }
}

impl<K: Encode, V: Encode> Encode for DotMap<K, V> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        for (key, store) in &self.0 {
            key.encode(out);
            store.encode(out);
        }
    }

    fn encoded_len(&self) -> usize {
        let keys = self.0.iter().map(|(key, store)| key.encoded_len() + store.encoded_len());
        size_of::<u32>() + keys.sum::<usize>()
    }
}

/// A register: of two values the one with the higher stamp stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lww<V> {
    /// When it was set.
    pub stamp: HybridStamp,
    /// To what.
    pub value: V,
}

impl<V: Ord + Clone> Lww<V> {
    /// A register that was set to `value`.
    pub const fn new(stamp: HybridStamp, value: V) -> Self {
        Self { stamp, value }
    }

    /// Takes in another one.
    pub fn join(&mut self, other: &Self) {
        if *other > *self {
            *self = other.clone();
        }
    }
}

impl<V: Encode> Encode for Lww<V> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        self.value.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.stamp.encoded_len() + self.value.encoded_len()
    }
}

impl<V: Decode> Decode for Lww<V> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { stamp: HybridStamp::decode(r)?, value: V::decode(r)? })
    }
}
