//! Which changes of one object are known: a version vector.

use std::cmp::Ordering;

use atoll_core::{Decode, Encode, Malformed, Reader};

use crate::id::{Dot, Writer};

/// For each writer, its last change of one object that is known; none of those between is missing. A dot that is covered
/// and not there any more was removed. A dot that is not covered was never seen.
///
/// Sorted by writer, and no number is 0, so equal contexts have equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Context(Vec<(Writer, u64)>);

impl Context {
    /// Writers in one context. Past this an object takes no change of a writer that is new to it.
    pub const WRITERS_MAX: usize = 4096;

    /// The last change of `writer` that is known; 0 if there is none.
    pub fn get(&self, writer: Writer) -> u64 {
        self.find(writer).map_or(0, |at| self.0[at].1)
    }

    /// Whether `dot` is known, or was.
    pub fn covers(&self, dot: Dot) -> bool {
        self.get(dot.writer) >= dot.n
    }

    /// Takes in `dot`; false if it was covered.
    pub fn add(&mut self, dot: Dot) -> bool {
        match self.find(dot.writer) {
            Ok(at) if self.0[at].1 >= dot.n => return false,
            Ok(at) => self.0[at].1 = dot.n,
            Err(at) => self.0.insert(at, (dot.writer, dot.n)),
        }
        true
    }

    /// Takes in all that `other` knows.
    pub fn join(&mut self, other: &Self) {
        for (writer, n) in other.iter() {
            self.add(Dot { writer, n });
        }
    }

    /// Whether both together have at most [`Self::WRITERS_MAX`] writers.
    pub fn fits(&self, other: &Self) -> bool {
        let new = other.iter().filter(|(writer, _)| self.find(*writer).is_err()).count();
        self.0.len() + new <= Self::WRITERS_MAX
    }

    /// Whether everything that `other` knows is known.
    pub fn includes(&self, other: &Self) -> bool {
        other.iter().all(|(writer, n)| self.get(writer) >= n)
    }

    /// Which of the two knows more; none if each knows what the other does not.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self.includes(other), other.includes(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }

    /// All writers, with the last change of each.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Writer, u64)> {
        self.0.iter().copied()
    }

    /// Whether nothing is known.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, writer: Writer) -> Result<usize, usize> {
        self.0.binary_search_by_key(&writer, |(writer, _)| *writer)
    }
}

impl FromIterator<Dot> for Context {
    fn from_iter<I: IntoIterator<Item = Dot>>(dots: I) -> Self {
        let mut context = Self::default();
        dots.into_iter().for_each(|dot| {
            context.add(dot);
        });
        context
    }
}

impl Encode for Context {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        for (writer, n) in self.iter() {
            Dot { writer, n }.encode(out);
        }
    }

    fn encoded_len(&self) -> usize {
        size_of::<u32>() + self.0.len() * 2 * size_of::<u64>()
    }
}

impl Decode for Context {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = u32::decode(r)? as usize;
        if count > Self::WRITERS_MAX {
            return Err(Malformed::new("context"));
        }
        let mut context = Self::default();
        for _ in 0..count {
            let Dot { writer, n } = Dot::decode(r)?;
            if context.0.last().is_some_and(|(last, _)| *last >= writer) {
                return Err(Malformed::new("context"));
            }
            context.0.push((writer, n));
        }
        Ok(context)
    }
}
