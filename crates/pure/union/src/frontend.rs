//! The frontends of a union, and which of them know an object. Owns no object.

/// A frontend of a union: it is told of ids, and forgets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrontendId(u8);

/// Most frontends of a union.
pub const FRONTENDS_MAX: u8 = 8;

impl FrontendId {
    /// The daemon itself: it looks, and forgets at once what it is told.
    pub const NOBODY: Self = Self(FRONTENDS_MAX);

    /// The frontend of this number, which is below [`FRONTENDS_MAX`].
    pub const fn new(number: u8) -> Option<Self> {
        if number < FRONTENDS_MAX { Some(Self(number)) } else { None }
    }
}

/// The frontends that were told of an object, and have not forgotten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told(u8);

impl Told {
    /// This frontend alone.
    pub(crate) const fn by(frontend: FrontendId) -> Self {
        if frontend.0 < FRONTENDS_MAX { Self(1 << frontend.0) } else { Self(0) }
    }

    /// Adds the frontends of another set.
    pub(crate) const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// A frontend has forgotten it. True if none knows it any more.
    pub(crate) const fn forget(&mut self, frontend: FrontendId) -> bool {
        self.0 &= !Self::by(frontend).0;
        self.0 == 0
    }

    /// Whether no frontend knows it.
    pub(crate) const fn is_nobody(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_forgotten_when_the_last_session_has_forgotten_it() {
        let [first, last] = [0, FRONTENDS_MAX - 1].map(|number| FrontendId::new(number).unwrap());
        let mut told = Told::by(first);
        told.add(Told::by(last));
        told.add(Told::by(last));
        assert!(!told.forget(first) && !told.forget(first) && told.forget(last) && told.is_nobody());
        assert_eq!(FrontendId::new(FRONTENDS_MAX), None);
        assert!(Told::by(FrontendId::NOBODY).is_nobody());
    }
}
