//! Invariants of the islands after every event, and at the end of every order.

use super::*;

impl Scene {
    /// What must be true at any time: on every island everything hangs on the root.
    pub(super) fn hangs_together(&self, world: &World) -> Result<(), Failure> {
        for (at, island) in world.islands.iter().enumerate() {
            for made in &self.dirs {
                let (mut dir, mut steps) = (made.ino, 0);
                while dir != Ino::ROOT {
                    let Ok(Some(row)) = island.state().dir(dir) else {
                        if dir == made.ino {
                            break;
                        }
                        return Err(Failure::new(format!(
                            "island {at}: {dir}, above {}, is missing",
                            made.ino
                        )));
                    };
                    dir = row.place.parent;
                    steps += 1;
                    if steps > self.dirs.len() {
                        return Err(Failure::new(format!("island {at}: {} is below itself", made.ino)));
                    }
                }
            }
            island.state().begin_reads();
        }
        Ok(())
    }

    /// What must be true at rest.
    pub(super) fn judge(&self, world: &World) -> Result<(), Failure> {
        let mut tree = Tree::new();
        let owner = |made: &Made| &world.islands[index(self.table.owner(made.key))];
        for made in &self.dirs {
            let state = owner(made).state();
            let Ok(Some(row)) = state.dir(made.ino) else { continue };
            let owned =
                row.owned.as_ref().ok_or_else(|| Failure::new(format!("{} has no owner", made.ino)))?;
            let Ok((entries, true)) = state.entries_after(made.ino, 0) else {
                return Err(Failure::new(format!("names of {} are not known", made.ino)));
            };
            let mut count = 0;
            for (_, name, entry) in entries {
                count += 1;
                let child = self.dirs.iter().find(|dir| dir.ino == entry.ino).expect("all are known");
                let place = owner(child).state().dir(entry.ino).ok().flatten().map(|row| row.place.clone());
                let stub = entry.stub.as_ref().ok_or_else(|| Failure::new("a name has no stub"))?;
                if place.as_ref().is_none_or(|p| {
                    p.parent != made.ino || p.name.as_ref() != Some(name) || p.version != stub.place
                }) {
                    return Err(Failure::new(format!(
                        "{name} in {} names {} ({:?}), whose owner has {place:?}",
                        made.ino, entry.ino, stub.place
                    )));
                }
                if let Some(other) = tree.insert(entry.ino, (made.ino, name.clone())) {
                    return Err(Failure::new(format!("{} has two names, one of them {other:?}", entry.ino)));
                }
            }
            if owned.entries != count || u64::from(owned.subdirs) != count {
                return Err(Failure::new(format!("{} counts {owned:?}, it has {count} names", made.ino)));
            }
            if owned.sealed.is_some() || owned.adopted.is_some() {
                return Err(Failure::new(format!("{} is {owned:?}", made.ino)));
            }
        }
        for made in self.dirs.iter().skip(1) {
            let there = owner(made).state().dir(made.ino).ok().flatten().is_some();
            if there != tree.contains_key(&made.ino) {
                let what = if there { "has no name" } else { "is gone, and has a name" };
                return Err(Failure::new(format!("{} {what}", made.ino)));
            }
            for (at, island) in world.islands.iter().enumerate() {
                let Ok(Some(row)) = island.state().dir(made.ino) else { continue };
                let theirs = owner(made).state().dir(made.ino).ok().flatten();
                if theirs.is_none_or(|theirs| theirs.place != row.place || theirs.fixed != row.fixed) {
                    return Err(Failure::new(format!(
                        "island {at}: {} is at {:?}, its owner has {:?}",
                        made.ino,
                        row.place,
                        theirs.map(|row| &row.place)
                    )));
                }
                if row.owned.is_none() && row.children + row.foreign_names == 0 {
                    return Err(Failure::new(format!(
                        "island {at}: {} is in the skeleton for nothing",
                        made.ino
                    )));
                }
                let below = self.dirs.iter().skip(1).filter(|child| {
                    let row = island.state().dir(child.ino).ok().flatten();
                    row.is_some_and(|row| row.place.parent == made.ino)
                });
                if below.count() != row.children as usize {
                    return Err(Failure::new(format!(
                        "island {at}: {} counts {} below",
                        made.ino, row.children
                    )));
                }
            }
        }
        for island in &world.islands {
            let clocks: Vec<(IslandId, Stamp)> = island.state().clocks().iter().collect();
            if clocks != world.islands[0].state().clocks().iter().collect::<Vec<_>>() {
                return Err(Failure::new(format!("island {}: has not seen all: {clocks:?}", island.id())));
            }
        }
        self.explain(&tree, &world.replies)
    }

    /// Some order of the requests gives these answers and this tree.
    fn explain(&self, tree: &Tree, replies: &[Option<Outcome>]) -> Result<(), Failure> {
        let mut got = Vec::new();
        for (n, reply) in replies.iter().enumerate() {
            got.push(match reply {
                Some(Outcome::Ok { .. }) => None,
                Some(Outcome::Failed { errno }) if *errno != Errno::EIO => Some(*errno),
                reply => return Err(Failure::new(format!("request {n} ends with {reply:?}"))),
            });
        }
        let made = |at: usize| (self.dirs[self.dirs[at].parent].ino, self.dirs[at].name.clone());
        let before: Tree = (1..self.dirs.len()).map(|at| (self.dirs[at].ino, made(at))).collect();
        if self.orders(before, &got, tree, 0) {
            return Ok(());
        }
        Err(Failure::new(format!("no order of the renames explains {got:?} and {tree:?}")))
    }

    /// Whether those that are not in `done` can follow on `tree`.
    fn orders(&self, tree: Tree, got: &[Option<Errno>], last: &Tree, done: u32) -> bool {
        if done.count_ones() as usize == got.len() {
            return tree == *last;
        }
        (0..got.len()).filter(|n| done & (1 << n) == 0).any(|n| {
            let mut next = tree.clone();
            let may = rename(&mut next, &self.requests[n]);
            let fits = match got[n] {
                None => may.is_empty(),
                Some(errno) => may.contains(&errno),
            };
            fits && self.orders(next, got, last, done | 1 << n)
        })
    }
}

/// Renames, in a tree that is in one place; or why not: any of these may be told.
fn rename(tree: &mut Tree, asked: &Asked) -> Vec<Errno> {
    let Asked { from, to, mode, .. } = asked;
    let known = |dir: Ino| dir == Ino::ROOT || tree.contains_key(&dir);
    let at = |entry_ref: &Spot| tree.iter().find(|(_, at)| *at == entry_ref).map(|(ino, _)| *ino);
    let is_above = |ino: Ino, mut dir: Ino| {
        while dir != ino && dir != Ino::ROOT {
            dir = tree.get(&dir).map_or(Ino::ROOT, |(parent, _)| *parent);
        }
        dir == ino
    };
    let mut why = Vec::new();
    if !known(from.0) || !known(to.0) {
        why.push(Errno::ESTALE);
    }
    let (what, there) = (at(from), at(to));
    if what.is_none() || (there.is_none() && *mode == RenameMode::Exchange) {
        why.push(Errno::ENOENT);
    }
    let Some(what) = what else { return why };
    if there == Some(what) {
        return why;
    }
    if is_above(what, to.0) {
        why.push(Errno::EINVAL);
    }
    if let Some(there) = there {
        if *mode == RenameMode::Exchange {
            if is_above(there, from.0) {
                why.push(Errno::EINVAL);
            }
        } else if tree.values().any(|(parent, _)| *parent == there) {
            why.push(Errno::ENOTEMPTY);
        }
    }
    if why.is_empty() {
        if let Some(there) = there {
            if *mode == RenameMode::Exchange {
                tree.insert(there, from.clone());
            } else {
                tree.remove(&there);
            }
        }
        tree.insert(what, to.clone());
    }
    why
}
