//! Which handle each id has, which ids the frontend knows, and which files were removed while they were known.
//! Asks nobody.

use std::collections::{HashMap, HashSet, VecDeque};

use atoll_core::{Ino, Name};
use atoll_posix::{Attr, Caller};
use nfs3_types::nfs3::{cookieverf3, nfs_fh3};

/// Most handles that are kept of ids that the frontend has forgotten. It may be told of an id again at the same
/// moment at which it forgets it, so a handle does not go at once.
pub(crate) const FORGOTTEN_MAX: usize = 65_536;

/// Most names of which is kept what they lead to. Past that all are forgotten, and the server is asked.
pub(crate) const NAMES_MAX: usize = 65_536;

/// A file that has only a name that its client gave it when it lost its last one.
#[derive(Debug, Clone)]
pub(crate) struct Silly {
    pub(crate) dir: Ino,
    pub(crate) name: Name,
    /// The caller who removed the file, and who removes it again at the end.
    pub(crate) caller: Caller,
}

#[derive(Debug)]
struct Entry {
    handle: nfs_fh3,
    known: bool,
    verifier: cookieverf3,
    /// What the frontend was told of a directory last. It asks about a removed one as long as somebody has it.
    dir: Option<Attr>,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Table {
    /// The server's id of the root. The frontend calls the root [`Ino::ROOT`], so the two change places.
    root: u64,
    entries: HashMap<Ino, Entry>,
    forgotten: VecDeque<Ino>,
    silly: HashMap<Ino, Silly>,
    /// Files that were made and not asked about since, as they were told of then.
    made: HashMap<Ino, Attr>,
    silly_count: u64,
    /// What the frontend was told last that names lead to.
    names: HashMap<(Ino, Name), Ino>,
    /// How often each regular file is open.
    opens: HashMap<Ino, u64>,
    /// Files of which a name is being removed: nobody opens them meanwhile.
    removing: HashSet<Ino>,
    /// Files of which a name was removed since the frontend knows them: it may have been the last.
    removed: HashSet<Ino>,
    /// Known files of other kinds: nobody tells of their opens.
    specials: HashSet<Ino>,
}

impl Table {
    pub(crate) fn new(root: u64, handle: nfs_fh3) -> Self {
        let mut table = Self {
            root,
            entries: HashMap::new(),
            forgotten: VecDeque::new(),
            silly: HashMap::new(),
            made: HashMap::new(),
            silly_count: 0,
            names: HashMap::new(),
            opens: HashMap::new(),
            removing: HashSet::new(),
            removed: HashSet::new(),
            specials: HashSet::new(),
        };
        table.note(Ino::ROOT, handle);
        table
    }

    /// The frontend's id for the server's.
    pub(crate) const fn ino(&self, fileid: u64) -> Ino {
        if fileid == self.root {
            Ino::ROOT
        } else if fileid == Ino::ROOT.0 {
            Ino(self.root)
        } else {
            Ino(fileid)
        }
    }

    /// The frontend is about to be told of this id.
    pub(crate) fn note(&mut self, ino: Ino, handle: nfs_fh3) {
        let verifier = cookieverf3::default();
        let entry = self.entries.entry(ino).or_insert_with(|| Entry {
            handle: handle.clone(),
            known: true,
            verifier,
            dir: None,
        });
        entry.known = true;
        // The server gives the ids of removed files to others.
        if entry.handle != handle {
            *entry = Entry { handle, known: true, verifier, dir: None };
            self.removed.remove(&ino);
        }
    }

    /// The frontend is told this of a directory.
    pub(crate) fn note_dir(&mut self, attr: Attr) {
        if let Some(entry) = self.entries.get_mut(&attr.ino) {
            entry.dir = Some(attr);
        }
    }

    /// What it was told of a directory last.
    pub(crate) fn dir(&self, ino: Ino) -> Option<Attr> {
        self.entries.get(&ino)?.dir
    }

    pub(crate) fn handle(&self, ino: Ino) -> Option<nfs_fh3> {
        self.entries.get(&ino).map(|entry| entry.handle.clone())
    }

    pub(crate) fn knows(&self, ino: Ino) -> bool {
        self.entries.get(&ino).is_some_and(|entry| entry.known)
    }

    /// The frontend has forgotten this id. The silly name that must go now, if there is one.
    pub(crate) fn forget(&mut self, ino: Ino) -> Option<Silly> {
        self.made.remove(&ino);
        self.specials.remove(&ino);
        self.removed.remove(&ino);
        if let Some(entry) = self.entries.get_mut(&ino).filter(|_| ino != Ino::ROOT) {
            entry.known = false;
            self.forgotten.push_back(ino);
        }
        while self.forgotten.len() > FORGOTTEN_MAX {
            let oldest = self.forgotten.pop_front().expect("there are more than the bound");
            if !self.knows(oldest) {
                self.entries.remove(&oldest);
            }
        }
        self.silly.get(&ino).cloned()
    }

    /// The frontend is told of a file that is neither regular nor a directory.
    pub(crate) fn note_special(&mut self, ino: Ino) {
        self.specials.insert(ino);
    }

    /// The frontend is told that a name leads to this.
    pub(crate) fn note_name(&mut self, dir: Ino, name: &Name, ino: Ino) {
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert((dir, name.clone()), ino);
    }

    /// A name changes.
    pub(crate) fn forget_name(&mut self, dir: Ino, name: &Name) {
        self.names.remove(&(dir, name.clone()));
    }

    /// What the frontend believes that a name leads to.
    pub(crate) fn named(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.names.get(&(dir, name.clone())).copied()
    }

    /// A name of this file goes, if nobody uses it. Until [`Table::end_removal`] nobody opens it.
    pub(crate) fn begin_removal(&mut self, ino: Ino) -> bool {
        let begins = !self.uses(ino) && self.removing.insert(ino);
        if begins && self.knows(ino) {
            self.removed.insert(ino);
        }
        begins
    }

    /// It has gone, or stays.
    pub(crate) fn end_removal(&mut self, ino: Ino) {
        self.removing.remove(&ino);
    }

    /// Whether a name of this file is being removed.
    pub(crate) fn is_going(&self, ino: Ino) -> bool {
        self.removing.contains(&ino)
    }

    /// Whether it may have no name any more.
    pub(crate) fn may_be_gone(&self, ino: Ino) -> bool {
        self.removed.contains(&ino)
    }

    /// It has one.
    pub(crate) fn is_there(&mut self, ino: Ino) {
        self.removed.remove(&ino);
    }

    /// A file is opened.
    pub(crate) fn open(&mut self, ino: Ino) {
        *self.opens.entry(ino).or_default() += 1;
    }

    /// An open has ended.
    pub(crate) fn close(&mut self, ino: Ino) {
        if let Some(opens) = self.opens.get_mut(&ino) {
            *opens -= 1;
            if *opens == 0 {
                self.opens.remove(&ino);
            }
        }
    }

    /// Whether somebody may go on to use this file when it has no name any more.
    pub(crate) fn uses(&self, ino: Ino) -> bool {
        self.opens.contains_key(&ino) || self.specials.contains(&ino)
    }

    /// A file was made, and whoever made it is told of it so.
    pub(crate) fn set_made(&mut self, attr: Attr) {
        self.made.insert(attr.ino, attr);
    }

    /// What was told of a file when it was made, if that is asked about for the first time.
    pub(crate) fn take_made(&mut self, ino: Ino) -> Option<Attr> {
        self.made.remove(&ino)
    }

    /// The cookie verifier that belongs to the cookies of this directory.
    pub(crate) fn verifier(&self, dir: Ino) -> cookieverf3 {
        self.entries.get(&dir).map_or_else(cookieverf3::default, |entry| entry.verifier)
    }

    pub(crate) fn set_verifier(&mut self, dir: Ino, verifier: cookieverf3) {
        if let Some(entry) = self.entries.get_mut(&dir) {
            entry.verifier = verifier;
        }
    }

    /// A name that nobody else has given to this file.
    pub(crate) fn silly_name(&mut self, ino: Ino) -> Name {
        self.silly_count += 1;
        let name =
            format!("{SILLY}{:016x}{:04x}{:04x}", ino.0, std::process::id() as u16, self.silly_count as u16);
        Name::new(name.as_bytes()).expect("letters and digits are a name")
    }

    pub(crate) fn set_silly(&mut self, ino: Ino, silly: Silly) {
        self.silly.insert(ino, silly);
    }

    pub(crate) fn is_silly(&self, ino: Ino) -> bool {
        self.silly.contains_key(&ino)
    }

    pub(crate) fn has_silly_in(&self, dir: Ino) -> bool {
        self.silly.values().any(|silly| silly.dir == dir)
    }

    pub(crate) fn end_silly(&mut self, ino: Ino) {
        self.silly.remove(&ino);
    }
}

const SILLY: &str = ".nfs";

/// Whether a client made this name when it removed a file.
pub(crate) fn is_silly_name(name: &[u8]) -> bool {
    name.len() == 28 && name.starts_with(SILLY.as_bytes()) && name[4..].iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs3_types::xdr_codec::Opaque;

    fn handle(of: u8) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned(vec![of]) }
    }

    #[test]
    fn the_root_changes_places_with_the_file_that_has_its_id() {
        let table = Table::new(77, handle(0));
        assert_eq!([77, 1, 5].map(|id| table.ino(id)), [Ino::ROOT, Ino(77), Ino(5)]);
    }

    #[test]
    fn handles_of_forgotten_ids_are_bounded_and_those_of_known_ones_stay() {
        let mut table = Table::new(1, handle(0));
        for id in 2..FORGOTTEN_MAX as u64 + 102 {
            table.note(Ino(id), handle(1));
            table.forget(Ino(id));
            if id == 2 {
                table.note(Ino(2), handle(2));
            }
        }
        assert_eq!(table.entries.len(), FORGOTTEN_MAX + 2);
        assert_eq!(table.handle(Ino(2)), Some(handle(2)));
        assert_eq!(table.handle(Ino(3)), None);
        assert!(table.handle(Ino::ROOT).is_some());
    }

    #[test]
    fn a_file_is_used_until_its_last_open_has_ended() {
        let mut table = Table::new(1, handle(0));
        for ino in [2, 3].map(Ino) {
            table.note(ino, handle(1));
        }
        table.open(Ino(2));
        table.open(Ino(2));
        table.close(Ino(2));
        assert!(table.uses(Ino(2)) && !table.uses(Ino(3)));
        table.close(Ino(2));
        assert!(!table.uses(Ino(2)));
        table.note_special(Ino(3));
        assert!(table.uses(Ino(3)));
        table.forget(Ino(3));
        assert!(!table.uses(Ino(3)));
    }

    #[test]
    fn a_silly_name_is_known_as_one() {
        let mut table = Table::new(1, handle(0));
        let name = table.silly_name(Ino(u64::MAX));
        assert!(is_silly_name(name.as_bytes()));
        assert!(!is_silly_name(b".nfs") && !is_silly_name(b".nfsx"));
    }
}
