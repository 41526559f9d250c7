//! Which dots a change names: its own, those that go by it, and those that a removal had seen. Judges none of them.

use atoll_causal::{
    AttrPart, AttrState, Context, DirHead, DirPart, Dot, FilePart, FileState, LinkPlace, Writer,
};

use super::made::BundleChange;

/// The highest number of a writer's dot that a change names; 0 if it names none. Moves of directories name stamps and no dots.
pub(super) fn highest(change: &BundleChange, writer: Writer) -> u64 {
    let mut named = Named { writer, highest: 0 };
    match change {
        BundleChange::FileBorn { state, .. } => named.file(state),
        BundleChange::DirBorn { head, .. } => named.dir(head),
        BundleChange::FileChanged { change, .. } => {
            named.dots([Dot { n: change.dot.n.max(change.prev), ..change.dot }]);
            change.parts.iter().for_each(|part| named.file_part(part));
        }
        BundleChange::DirChanged { change, .. } => {
            named.dots([Dot { n: change.dot.n.max(change.prev), ..change.dot }]);
            change.parts.iter().for_each(|part| named.dir_part(part));
        }
        BundleChange::DirsMoved { .. } => {}
    }
    named.highest
}

/// The dots of one writer.
struct Named {
    writer: Writer,
    highest: u64,
}

impl Named {
    fn dots(&mut self, dots: impl IntoIterator<Item = Dot>) {
        let own = dots.into_iter().filter(|dot| dot.writer == self.writer);
        self.highest = own.map(|dot| dot.n).fold(self.highest, u64::max);
    }

    fn context(&mut self, context: &Context) {
        self.highest = self.highest.max(context.get(self.writer));
    }

    fn place(&mut self, place: &LinkPlace) {
        self.dots([place.entry]);
    }

    fn file(&mut self, state: &FileState) {
        let FileState { birth: _, context, attrs, links, versions, grave } = state;
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
        grave.iter().for_each(|grave| self.context(&grave.seen));
    }

    fn dir(&mut self, head: &DirHead) {
        let DirHead { birth: _, context, attrs, alive, buried, name: _ } = head;
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
            FilePart::Buried { grave } => self.context(&grave.seen),
            FilePart::Attr { part } => self.attr(part),
        }
    }

    fn dir_part(&mut self, part: &DirPart) {
        match part {
            DirPart::Alive { removed, is_kept: _ } => self.dots(removed.iter().copied()),
            DirPart::Buried { seen } => self.context(seen),
            DirPart::Renamed { to: _ } => {}
            DirPart::Entry { key: _, removed, word: _, based } => {
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
