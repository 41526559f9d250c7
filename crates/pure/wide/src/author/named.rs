//! Which dots a change names: its own, those that go by it, those that a removal had seen, and those with which the objects were born of which
//! it tells. Judges none of them.

use std::collections::BTreeMap;

use atoll_causal::{
    AttrPart, AttrState, Context, DirHead, DirPart, Dot, FileGrave, FileId, FilePart, FileState, LinkPlace,
    Writer,
};
use atoll_spine::SpineMove;

use super::made::BundleChange;

/// Of each writer the highest number of a dot that a change names. Moves of directories name stamps, and directories. The id of a copy that a
/// conflict makes is a hash. So there may be writers here that no site has.
pub(crate) fn highest(change: &BundleChange) -> BTreeMap<Writer, u64> {
    let mut named = Named::default();
    match change {
        BundleChange::FileBorn { id, state } => {
            named.object(*id);
            named.file(state);
        }
        BundleChange::DirBorn { id, head } => {
            named.object(*id);
            named.dir(head);
        }
        BundleChange::FileChanged { id, change } => {
            named.object(*id);
            named.dots([Dot { n: change.dot.n.max(change.prev), ..change.dot }]);
            change.parts.iter().for_each(|part| named.file_part(part));
        }
        BundleChange::DirChanged { id, change } => {
            named.object(*id);
            named.dots([Dot { n: change.dot.n.max(change.prev), ..change.dot }]);
            change.parts.iter().for_each(|part| named.dir_part(part));
        }
        BundleChange::DirsMoved { record } => named.moved(record),
    }
    named.highest
}

/// Of each writer the highest number.
#[derive(Default)]
struct Named {
    highest: BTreeMap<Writer, u64>,
}

impl Named {
    fn dots(&mut self, dots: impl IntoIterator<Item = Dot>) {
        for Dot { writer, n } in dots {
            let highest = self.highest.entry(writer).or_default();
            *highest = n.max(*highest);
        }
    }

    /// The dot with which an object was born.
    fn object(&mut self, id: FileId) {
        self.dots([id.birth()]);
    }

    /// The evidence has all that moves, with its new parents.
    fn moved(&mut self, record: &SpineMove) {
        for (dir, places) in record.evidence().dirs() {
            self.object(*dir);
            places.iter().for_each(|place| self.object(place.parent));
        }
    }

    fn context(&mut self, context: &Context) {
        self.dots(context.iter().map(|(writer, n)| Dot { writer, n }));
    }

    fn place(&mut self, place: &LinkPlace) {
        self.dots([place.entry]);
        self.object(place.dir);
    }

    fn file(&mut self, state: &FileState) {
        let FileState { birth, context, attrs, links, versions, grave } = state;
        birth.copy_of.into_iter().for_each(|of| self.object(of));
        self.context(context);
        self.attrs(attrs);
        for (link, places) in links.iter() {
            self.dots([*link]);
            for (dot, place) in places.iter() {
                self.dots([dot]);
                self.place(place);
            }
        }
        self.dots(versions.dots());
        grave.iter().for_each(|grave| self.grave(grave));
    }

    fn grave(&mut self, grave: &FileGrave) {
        self.context(&grave.seen);
        self.object(grave.dir);
    }

    fn dir(&mut self, head: &DirHead) {
        let DirHead { birth, context, attrs, alive, buried, name: _ } = head;
        self.object(birth.parent);
        self.context(context);
        self.attrs(attrs);
        self.dots(alive.dots());
        self.context(buried);
    }

    fn attrs(&mut self, attrs: &AttrState) {
        attrs.xattrs.iter().for_each(|(_, values)| self.dots(values.dots()));
    }

    fn file_part(&mut self, part: &FilePart) {
        match part {
            FilePart::Link { link, removed, place } => {
                self.dots(removed.iter().copied().chain([*link]));
                place.iter().for_each(|place| self.place(place));
            }
            FilePart::Version { removed, version: _ } => self.dots(removed.iter().copied()),
            FilePart::Settled { removed, kept } => self.dots(removed.iter().copied().chain([*kept])),
            FilePart::Buried { grave } => self.grave(grave),
            FilePart::Attr { part } => self.attr(part),
        }
    }

    fn dir_part(&mut self, part: &DirPart) {
        match part {
            DirPart::Alive { removed, is_kept: _ } => self.dots(removed.iter().copied()),
            DirPart::Buried { seen } => self.context(seen),
            DirPart::Renamed { to: _ } => {}
            DirPart::Entry { key, removed, word: _, based } => {
                self.object(key.child);
                self.dots(removed.iter().copied());
                self.context(based);
            }
            DirPart::Attr { part } => self.attr(part),
        }
    }

    fn attr(&mut self, part: &AttrPart) {
        if let AttrPart::Xattr { removed, .. } = part {
            self.dots(removed.iter().copied());
        }
    }
}
