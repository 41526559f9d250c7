//! By which names the frontend has found its files, for a client that sees one directory only: a file has no list of its names, so
//! an island looks whether it has this one (`docs/design/022-subtrees.md`).
//!
//! Others may have renamed the file since. The frontend bounds the number of files: it says which ones it forgets.

use std::collections::BTreeMap;

use atoll_core::{IdMap, Ino, Name};
use atoll_posix::{Answer, DirEntry, Kind, Op, RenameMode, RequestOptions, perm};
use atoll_proto::{ClientOp, EntryRef, Extras, FoundBy};

use crate::call::{Call, CallKind};

/// Names of one file that are remembered: when one is removed, another may be left.
const NAMES_MAX: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FoundNames {
    is_on: bool,
    /// The names of each file, the newest last.
    names: IdMap<Ino, Vec<EntryRef>>,
    files: BTreeMap<EntryRef, Ino>,
}

impl FoundNames {
    /// Remembers names, or never any.
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    fn learn(&mut self, ino: Ino, at: EntryRef) {
        self.unlinked(&at);
        let names = self.names.entry(ino).or_default();
        if names.len() == NAMES_MAX {
            self.files.remove(&names.remove(0));
        }
        names.push(at.clone());
        self.files.insert(at, ino);
    }

    /// A name leads to no file that is known.
    fn unlinked(&mut self, at: &EntryRef) -> Option<Ino> {
        let ino = self.files.remove(at)?;
        let names = self.names.get_mut(&ino)?;
        names.retain(|name| name != at);
        if names.is_empty() {
            self.names.remove(&ino);
        }
        Some(ino)
    }

    /// The frontend no longer knows a file.
    pub(crate) fn forget(&mut self, ino: Ino) {
        for at in self.names.remove(&ino).into_iter().flatten() {
            self.files.remove(&at);
        }
    }

    /// An operation has succeeded with this answer.
    pub(crate) fn answered(&mut self, op: &Op, answer: &Answer) {
        if !self.is_on {
            return;
        }
        let at = |dir: &Ino, name: &Name| EntryRef { dir: *dir, name: name.clone() };
        match (op, answer) {
            (
                Op::Lookup { dir, name } | Op::Create { dir, name, .. } | Op::Link { dir, name, .. },
                Answer::Found { found },
            ) if found.attr.kind != Kind::Directory => self.learn(found.attr.ino, at(dir, name)),
            (Op::ReadDir { dir, .. }, Answer::Entries { entries, .. }) => {
                let is_told = |e: &&DirEntry| e.found.is_some() && e.kind != Kind::Directory;
                entries.iter().filter(is_told).for_each(|e| self.learn(e.ino, at(dir, &e.name)));
            }
            (Op::Unlink { dir, name }, _) => drop(self.unlinked(&at(dir, name))),
            (Op::Rename { dir, name, new_dir, new_name, mode, .. }, _) => {
                let (from, to) = (at(dir, name), at(new_dir, new_name));
                let [moved, there] = [&from, &to].map(|at| self.unlinked(at));
                if let Some(ino) = moved {
                    self.learn(ino, to);
                }
                if let Some(ino) = there.filter(|_| *mode == RenameMode::Exchange) {
                    self.learn(ino, from);
                }
            }
            _ => {}
        }
    }

    /// What comes with a call's next request.
    pub(crate) fn extras<T>(&self, call: &Call<T>) -> Extras {
        let mut extras = Extras { by: self.by(call), ..Extras::default() };
        if call.options != RequestOptions::default()
            && let CallKind::Op(of) = &call.what
            && call.followed().is_none()
            && !call.falls_back()
            && (call.options.attributes || perm::needs(of)[0].is_some())
            && of.subjects()[0].is_some()
        {
            extras.options = call.options;
        }
        extras
    }

    /// How the files were found that a call's next request names by their ids.
    fn by<T>(&self, call: &Call<T>) -> Option<Box<FoundBy>> {
        if !self.is_on || call.falls_back() {
            return None;
        }
        let newest = |ino: Ino| self.names.get(&ino).and_then(|names| names.last()).cloned();
        let op = match &call.what {
            CallKind::Op(op) | CallKind::Own(ClientOp::Fs { op }) => op,
            _ => return None,
        };
        let (file, from) = match (call.followed(), op) {
            // That name has led to it.
            (
                Some(_),
                Op::Lookup { dir, name } | Op::Create { dir, name, .. } | Op::Link { dir, name, .. },
            ) => (Some(EntryRef { dir: *dir, name: name.clone() }), None),
            (Some(followed), _) => (newest(followed.file), None),
            (None, Op::Link { ino, .. }) => (newest(*ino), None),
            (None, Op::CopyRange { from, to, .. }) => (newest(*to), newest(*from)),
            (None, op) => (newest(op.file()?), None),
        };
        file.map(|file| Box::new(FoundBy { file, from }))
    }
}

#[cfg(test)]
mod tests {
    use atoll_core::IslandId;
    use atoll_posix::{Attr, Caller, NamedObject};
    use bytes::Bytes;

    use super::*;
    use crate::call::{Followed, Stage, Waiter};

    const DIR: Ino = Ino(9);

    fn at(text: &str) -> EntryRef {
        EntryRef { dir: DIR, name: name(text) }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn found(names: &mut FoundNames, ino: u64, text: &str) {
        let attr = Attr::blank(Ino(ino), Kind::Regular);
        let answer = Answer::Found { found: NamedObject { attr, attr_current: true } };
        names.answered(&Op::Lookup { dir: DIR, name: name(text) }, &answer);
    }

    fn newest(names: &FoundNames, ino: u64) -> Option<EntryRef> {
        names.names.get(&Ino(ino)).and_then(|of| of.last()).cloned()
    }

    fn rename(names: &mut FoundNames, from: &str, to: &str, mode: RenameMode) {
        let (name, new_name) = (name(from), name(to));
        let op = Op::Rename { dir: DIR, name, new_dir: DIR, new_name, mode, meant: None, new_meant: None };
        names.answered(&op, &Answer::Removed { orphan: None });
    }

    #[test]
    fn a_file_is_found_by_the_newest_of_its_names_that_is_left() {
        let mut names = FoundNames::new(true);
        found(&mut names, 1, "a");
        found(&mut names, 1, "b");
        assert_eq!(newest(&names, 1), Some(at("b")));
        names.answered(&Op::Unlink { dir: DIR, name: name("b") }, &Answer::Removed { orphan: None });
        assert_eq!(newest(&names, 1), Some(at("a")));
        found(&mut names, 2, "a");
        assert_eq!((newest(&names, 1), newest(&names, 2)), (None, Some(at("a"))), "another has its name");
        (0..20).for_each(|n| found(&mut names, 3, &format!("{n}")));
        assert_eq!(names.names[&Ino(3)].len(), NAMES_MAX);
        names.forget(Ino(2));
        names.forget(Ino(3));
        assert!(names.names.is_empty() && names.files.is_empty());
    }

    #[test]
    fn own_renames_are_followed() {
        let mut names = FoundNames::new(true);
        found(&mut names, 1, "a");
        found(&mut names, 2, "b");
        rename(&mut names, "a", "b", RenameMode::Exchange);
        assert_eq!((newest(&names, 1), newest(&names, 2)), (Some(at("b")), Some(at("a"))));
        rename(&mut names, "a", "b", RenameMode::Replace);
        assert_eq!((newest(&names, 1), newest(&names, 2)), (None, Some(at("b"))));
    }

    #[test]
    fn a_file_to_which_a_name_leads_is_asked_for_by_that_name() {
        let (mut names, home, target) = (FoundNames::new(true), IslandId(2), Bytes::new());
        found(&mut names, 1, "old");
        for op in [
            Op::Lookup { dir: DIR, name: name("new") },
            Op::Create {
                dir: DIR,
                name: name("new"),
                kind: Kind::Regular,
                mode: 0o644,
                umask: 0,
                rdev: 0,
                exclusive: false,
                target,
            },
            Op::Link { ino: Ino(1), dir: DIR, name: name("new") },
        ] {
            let mut call = Call::new(None::<Waiter<()>>, Caller::ROOT, CallKind::Op(op), Bytes::new(), home);
            call.stage = Stage::Following(Followed { file: Ino(1), done: None });
            assert_eq!(names.by(&call).map(|by| by.file), Some(at("new")));
        }
    }

    #[test]
    fn a_client_of_the_whole_tree_remembers_none() {
        let mut names = FoundNames::new(false);
        found(&mut names, 1, "a");
        assert!(names.names.is_empty());
    }
}
