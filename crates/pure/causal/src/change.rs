//! One change of one object, as sites send it to each other. Owns when a site may apply it. Knows nothing of what the change
//! does.

use atoll_core::{Decode, Encode, Malformed, Reader};

use crate::context::Context;
use crate::id::Dot;

/// A change of one object: parts `P` that happen together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectChange<P> {
    /// Which change it is.
    pub dot: Dot,
    /// The number of the change that the same writer made to the object before; 0 if there is none.
    pub prev: u64,
    /// What it does.
    pub parts: Vec<P>,
}

/// What became of a change or a state that came to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is in now.
    Applied,
    /// It was in.
    Known,
    /// Changes before it are missing. The object's whole state must be asked for.
    Gap,
    /// The object has had too many writers ([`Context::WRITERS_MAX`]).
    Full,
}

impl<P> ObjectChange<P> {
    /// Parts in one change. Whoever has more makes several changes.
    pub const PARTS_MAX: usize = 64;

    /// A change of the object with this context.
    pub fn new(context: &Context, dot: Dot, parts: Vec<P>) -> Self {
        let prev = context.get(dot.writer);
        assert!(prev < dot.n, "{dot:?} is not above {prev}, the writer's last change of the object");
        assert!(parts.len() <= Self::PARTS_MAX, "{} parts in a change", parts.len());
        Self { dot, prev, parts }
    }

    /// Whether a state with this context may apply the change, which needs the dots `needed`: those that it removes, first of all.
    ///
    /// Those must have been seen here. Otherwise one of them could arrive later, and nothing would be left that says that
    /// it was removed.
    pub(crate) fn judge(&self, context: &Context, needed: impl IntoIterator<Item = Dot>) -> Taken {
        let have = context.get(self.dot.writer);
        if have >= self.dot.n {
            Taken::Known
        } else if have != self.prev || needed.into_iter().any(|dot| !context.covers(dot)) {
            Taken::Gap
        } else if have == 0 && context.iter().len() >= Context::WRITERS_MAX {
            Taken::Full
        } else {
            Taken::Applied
        }
    }
}

impl<P: Encode> Encode for ObjectChange<P> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.dot.encode(out);
        self.prev.encode(out);
        self.parts.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.dot.encoded_len() + self.prev.encoded_len() + self.parts.encoded_len()
    }
}

impl<P: Decode> Decode for ObjectChange<P> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let change = Self { dot: Dot::decode(r)?, prev: u64::decode(r)?, parts: Vec::decode(r)? };
        let is_sound = change.prev < change.dot.n && change.parts.len() <= Self::PARTS_MAX;
        if is_sound { Ok(change) } else { Err(Malformed::new("change")) }
    }
}
