//! A tree, as plain as can be, that shares nothing with the checker: told which object is made, it says which answers
//! it could give.

use std::collections::{BTreeMap, BTreeSet};

use atoll_history::{Answer, Found, How, Id, Kind, Listed, Op};

#[derive(Debug, Clone)]
struct Node {
    id: Id,
    /// Somebody was told its number, or the number is only the one that will be told.
    is_told: bool,
    kind: Kind,
    names: BTreeMap<String, usize>,
    parent: usize,
    nlink: u64,
    mode: Option<u32>,
    data: Vec<u64>,
}

/// The nodes; the first is the root.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    pub(crate) fn new(root: Id) -> Self {
        Self { nodes: vec![Node::new(root, Kind::Directory, 0, None)] }
    }

    /// The one of this number that was made last.
    fn of(&self, id: Id) -> Option<usize> {
        self.nodes.iter().rposition(|node| node.id == id && node.is_told)
    }

    /// What was made last: nobody was told its number.
    pub(crate) fn hide_last(&mut self) {
        self.nodes.last_mut().expect("the root is there").is_told = false;
    }

    /// Tells the number of what has a name; whether that may be.
    pub(crate) fn tell(&mut self, dir: Id, name: &str) -> bool {
        let Some(there) = self.child(dir, name) else { return true };
        if !self.nodes[there].is_told {
            if self.is_there(self.nodes[there].id) {
                return false;
            }
            // Now it is the one that was made last with this number.
            let id = self.nodes[there].id;
            self.nodes.iter_mut().filter(|node| node.id == id).for_each(|node| node.is_told = false);
            self.nodes[there].is_told = true;
        }
        true
    }

    pub(crate) fn is_there(&self, id: Id) -> bool {
        self.of(id).is_some_and(|node| self.nodes[node].nlink > 0)
    }

    pub(crate) fn was_made(&self, id: Id) -> bool {
        self.of(id).is_some()
    }

    pub(crate) fn ids(&self) -> Vec<(Id, Kind)> {
        self.nodes.iter().map(|node| (node.id, node.kind)).collect()
    }

    fn child(&self, dir: Id, name: &str) -> Option<usize> {
        self.nodes[self.of(dir)?].names.get(name).copied()
    }

    fn is_dir(&self, node: usize) -> bool {
        self.nodes[node].kind == Kind::Directory
    }

    fn is_full(&self, node: usize) -> bool {
        self.is_dir(node) && !self.nodes[node].names.is_empty()
    }

    fn is_in(&self, mut node: usize, above: usize) -> bool {
        loop {
            if node == above {
                return true;
            }
            if node == 0 {
                return false;
            }
            node = self.nodes[node].parent;
        }
    }

    /// The caller takes for a directory what is none, as its number is used again. Nobody does so knowingly.
    pub(crate) fn is_confused(&self, op: &Op) -> bool {
        let dir = match op {
            Op::Make { dir, .. } | Op::Link { dir, .. } | Op::Rename { new_dir: dir, .. } => *dir,
            _ => return false,
        };
        self.of(dir).is_some_and(|dir| !self.is_dir(dir))
    }

    /// All errors that are true.
    pub(crate) fn errors(&self, op: &Op) -> BTreeSet<&'static str> {
        let mut all = BTreeSet::new();
        let mut err = |when: bool, error| {
            if when {
                all.insert(error);
            }
        };
        let gone = |id: Id| !self.is_there(id);
        match op {
            Op::Lookup { dir, name } => err(self.child(*dir, name).is_none(), "ENOENT"),
            Op::Make { dir, name, exclusive, kind, .. } => {
                let there = self.child(*dir, name);
                err(gone(*dir), "ENOENT");
                if *exclusive {
                    err(there.is_some(), "EEXIST");
                } else {
                    err(*kind == Kind::File && there.is_some_and(|n| self.is_dir(n)), "EISDIR");
                }
            }
            Op::Unlink { dir, name } => {
                let there = self.child(*dir, name);
                err(there.is_none(), "ENOENT");
                err(there.is_some_and(|n| self.is_dir(n)), "EISDIR");
            }
            Op::Rmdir { dir, name } => {
                let there = self.child(*dir, name);
                err(there.is_none(), "ENOENT");
                err(there.is_some_and(|n| !self.is_dir(n)), "ENOTDIR");
                err(there.is_some_and(|n| self.is_full(n)), "ENOTEMPTY");
            }
            Op::Rename { dir, name, new_dir, new_name, how } => {
                let (from, to) = (self.child(*dir, name), self.child(*new_dir, new_name));
                let into = self.of(*new_dir);
                err(from.is_none() || gone(*new_dir), "ENOENT");
                let above = |node: Option<usize>, dir: Option<usize>| {
                    node.zip(dir).is_some_and(|(node, dir)| self.is_dir(node) && self.is_in(dir, node))
                };
                err(above(from, into), "EINVAL");
                match how {
                    How::Replace => {
                        err(to.is_some_and(|to| self.is_full(to)) && from != to, "ENOTEMPTY");
                        let kinds = from.zip(to).map(|(from, to)| (self.is_dir(from), self.is_dir(to)));
                        err(kinds == Some((false, true)), "EISDIR");
                        err(kinds == Some((true, false)), "ENOTDIR");
                    }
                    How::NoReplace => err(to.is_some(), "EEXIST"),
                    How::Exchange => {
                        err(to.is_none(), "ENOENT");
                        err(above(to, self.of(*dir)), "EINVAL");
                    }
                }
            }
            Op::Link { file, dir, name } => {
                err(gone(*dir) || gone(*file), "ENOENT");
                err(self.child(*dir, name).is_some(), "EEXIST");
                err(self.of(*file).is_some_and(|n| self.is_dir(n)), "EPERM");
            }
            _ => {}
        }
        all
    }

    /// Does what is without error. `made`: the number of what is made, if something is.
    pub(crate) fn apply(&mut self, op: &Op, made: Id) -> Answer {
        let found = |tree: &Self, node: usize| {
            let n = &tree.nodes[node];
            Answer::Found(Found {
                id: n.id,
                kind: Some(n.kind),
                nlink: (n.kind != Kind::Directory).then_some(n.nlink),
                size: (n.kind != Kind::Directory).then_some(n.data.len() as u64),
                mode: n.mode,
            })
        };
        let of = |tree: &Self, id: Id| tree.of(id).expect("only what was made is spoken of");
        match op {
            Op::Lookup { dir, name } => found(self, self.child(*dir, name).expect("no error")),
            Op::Make { dir, name, kind, mode, .. } => {
                if let Some(there) = self.child(*dir, name) {
                    return found(self, there);
                }
                let dir = of(self, *dir);
                let new = self.nodes.len();
                self.nodes.push(Node::new(made, *kind, dir, *mode));
                self.nodes[dir].names.insert(name.clone(), new);
                found(self, new)
            }
            Op::Unlink { dir, name } => {
                let dir = of(self, *dir);
                let gone = self.nodes[dir].names.remove(name).expect("no error");
                self.nodes[gone].nlink -= 1;
                Answer::Ok
            }
            Op::Rmdir { dir, name } => {
                let dir = of(self, *dir);
                let gone = self.nodes[dir].names.remove(name).expect("no error");
                self.nodes[gone].nlink = 0;
                Answer::Ok
            }
            Op::Rename { dir, name, new_dir, new_name, how } => {
                let (dir, new_dir) = (of(self, *dir), of(self, *new_dir));
                let from = self.nodes[dir].names[name];
                let to = self.nodes[new_dir].names.get(new_name).copied();
                if to == Some(from) {
                    return Answer::Ok;
                }
                self.nodes[dir].names.remove(name);
                if let (How::Exchange, Some(to)) = (how, to) {
                    self.nodes[dir].names.insert(name.clone(), to);
                    self.nodes[to].parent = dir;
                } else if let Some(to) = to {
                    self.nodes[to].nlink -= 1;
                }
                self.nodes[new_dir].names.insert(new_name.clone(), from);
                self.nodes[from].parent = new_dir;
                Answer::Ok
            }
            Op::Link { file, dir, name } => {
                let (file, dir) = (of(self, *file), of(self, *dir));
                self.nodes[dir].names.insert(name.clone(), file);
                self.nodes[file].nlink += 1;
                Answer::Ok
            }
            Op::List { dir, .. } => {
                let names = self.of(*dir).map(|dir| self.nodes[dir].names.clone()).unwrap_or_default();
                let listed =
                    names.iter().map(|(name, n)| Listed { name: name.clone(), id: Some(self.nodes[*n].id) });
                Answer::Names(listed.collect())
            }
            Op::Stat { file } => found(self, of(self, *file)),
            Op::SetMode { file, mode } => {
                let file = of(self, *file);
                self.nodes[file].mode = Some(*mode);
                Answer::Ok
            }
            Op::Write { file, at, data } => {
                let file = of(self, *file);
                self.write(file, usize::try_from(*at).unwrap(), data);
                Answer::Ok
            }
            Op::Append { file, data } => {
                let file = of(self, *file);
                let at = self.nodes[file].data.len();
                self.write(file, at, data);
                Answer::Ok
            }
            Op::Read { file, at, len } => {
                let data = &self.nodes[of(self, *file)].data;
                let at = usize::try_from(*at).unwrap().min(data.len());
                let end = (at + usize::try_from(*len).unwrap()).min(data.len());
                Answer::Data(data[at..end].to_vec())
            }
            Op::Truncate { file, size } => {
                let file = of(self, *file);
                self.nodes[file].data.resize(usize::try_from(*size).unwrap(), 0);
                Answer::Ok
            }
        }
    }

    fn write(&mut self, file: usize, at: usize, new: &[u64]) {
        let data = &mut self.nodes[file].data;
        if !new.is_empty() && data.len() < at + new.len() {
            data.resize(at + new.len(), 0);
        }
        data[at..at + new.len()].copy_from_slice(new);
    }
}

impl Node {
    fn new(id: Id, kind: Kind, parent: usize, mode: Option<u32>) -> Self {
        Self { id, is_told: true, kind, names: BTreeMap::new(), parent, nlink: 1, mode, data: Vec::new() }
    }
}
