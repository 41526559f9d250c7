//! The files that the frontend knows and whose home is not the island that minted their ids.

use atoll_core::{IdMap, Ino, IslandId};
use atoll_posix::{Answer, Attr, Caller, Kind, NamedObject, Op};
use bytes::Bytes;

use crate::call::CallKind;
use crate::out::RouteOut;
use crate::route::Route;

#[derive(Debug, Clone, Copy)]
struct Home {
    island: IslandId,
    /// The number of the move that told this home. Messages about several moves may arrive in any order.
    moves: u32,
    /// The first call that was made after this was told. Answers to earlier calls may be older.
    since: u64,
}

/// Homes of files that do not follow from their ids. The frontend bounds their number.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    known: IdMap<Ino, Home>,
}

impl Homes {
    /// The island to ask for a file.
    pub(crate) fn of(&self, ino: Ino) -> IslandId {
        match self.known.is_empty() {
            true => ino.minted_by(),
            false => self.known.get(&ino).map_or_else(|| ino.minted_by(), |home| home.island),
        }
    }

    /// A file has moved to `island`, for the `moves`-th time. The next call will have the number `next`.
    pub(crate) fn moved(&mut self, ino: Ino, island: IslandId, moves: u32, next: u64) {
        // Told again of the same move: by an island that was taken for its home, and is not.
        if self.known.get(&ino).is_none_or(|home| home.moves <= moves) {
            self.known.insert(ino, Home { island, moves, since: next });
        }
    }

    /// The home of a file has answered a call.
    pub(crate) fn answered(&mut self, ino: Ino, island: IslandId, call: u64) {
        match self.known.get_mut(&ino) {
            Some(home) if home.since <= call => home.island = island,
            Some(_) => {}
            None => self.pointed(ino, island),
        }
    }

    /// An entry has told where its file is. If another home is known, it may be newer, and stays.
    pub(crate) fn pointed(&mut self, ino: Ino, island: IslandId) {
        if island != ino.minted_by() {
            self.known.entry(ino).or_insert(Home { island, moves: 0, since: 0 });
        }
    }

    /// The frontend no longer knows it, or it is not where it was thought to be.
    pub(crate) fn forget(&mut self, ino: Ino) {
        if !self.known.is_empty() {
            self.known.remove(&ino);
        }
    }
}

impl<T> Route<T> {
    /// A call is to be repeated. If it links a file, that may have moved before this session began, so that its old
    /// home does not tell of it: it is asked.
    pub(crate) fn ask_where_linked_is(&mut self, id: u64, out: &mut RouteOut<T>) {
        let Some(call) = self.calls.get(&id).filter(|call| call.refusals.is_power_of_two()) else { return };
        let CallKind::Op(Op::Link { ino, .. }) = call.what else { return };
        // What waits for an island that is away would wait for ever, one more with each link.
        let home = self.homes.of(ino);
        if self.peers.get(&home).is_some_and(|peer| peer.up && peer.attached) {
            self.begin(None, Caller::ROOT, CallKind::Op(Op::GetAttr { ino }), Bytes::new(), out);
        }
    }

    /// A call has changed, made or linked a file, its answer was lost, and the file is gone by now with its
    /// attributes. If the call were repeated it would fail, or happen twice after others have seen its
    /// effect.
    pub(crate) fn done_to(&mut self, id: u64, ino: Ino, kind: Kind, out: &mut RouteOut<T>) {
        let kind = match self.dirs.get(ino) {
            Some(_) => Kind::Directory,
            None if self.links.contains(ino) => Kind::Symlink,
            None => kind,
        };
        let call = self.take(id);
        let attr = Attr::blank(ino, kind);
        let answer = match &call.what {
            CallKind::Op(Op::SetAttr { .. }) => Answer::Attr { attr },
            _ => Answer::Found { found: NamedObject { attr, attr_current: false } },
        };
        if let CallKind::Op(op) = &call.what {
            self.note(op, call.island, &answer);
        }
        Self::end(call, Ok(answer), None, None, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_an_older_move_later_changes_nothing() {
        let (ino, mut homes) = (Ino::mint(IslandId(3), 77), Homes::default());
        assert_eq!(homes.of(ino), IslandId(3));
        homes.moved(ino, IslandId(2), 2, 5);
        homes.moved(ino, IslandId(1), 1, 6);
        assert_eq!(homes.of(ino), IslandId(2));
        homes.pointed(ino, IslandId(3));
        assert_eq!(homes.of(ino), IslandId(2));
        homes.answered(ino, IslandId(3), 5);
        homes.moved(ino, IslandId(1), 1, 7);
        assert_eq!(homes.of(ino), IslandId(3));
        homes.moved(ino, IslandId(1), 3, 8);
        assert_eq!(homes.of(ino), IslandId(1));
        homes.forget(ino);
        assert_eq!(homes.of(ino), IslandId(3));
    }

    #[test]
    fn an_answer_from_before_a_move_that_comes_after_the_news_of_it_changes_nothing() {
        let (ino, mut homes) = (Ino::mint(IslandId(3), 77), Homes::default());
        homes.moved(ino, IslandId(1), 1, 5);
        homes.answered(ino, IslandId(3), 4);
        assert_eq!(homes.of(ino), IslandId(1));
        // Whoever is not its home says so.
        homes.answered(ino, IslandId(3), 5);
        homes.moved(ino, IslandId(1), 1, 6);
        assert_eq!(homes.of(ino), IslandId(1));
    }
}
