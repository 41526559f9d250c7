//! Looks for an order: goes through the starts and ends of a history in time, and keeps every tree that is
//! possible.
//!
//! An operation takes its place in the order at the latest when it ends (Lowe, "Testing for linearizability",
//! 2017: just-in-time linearization). These rules keep the search small:
//!
//! - An operation under way can wait if it has no cell in common with the one that ends, also not through
//!   others.
//! - An operation that only reads, and fits, takes its place at once: nothing can be lost by that.
//! - If the order is not certain, only the cells that differ are kept several times (a `Group`), apart from
//!   other such places that have nothing to do with them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::cell::{BEGIN, Base, Cell, Footprint, Obj, Over, StepId, Tree};
use crate::compile::{Event, Program};
use crate::history::Kind;
use crate::reach::Possible;
use crate::step::{Misfit, Numbers, Ran, Step};

/// States that are tried for one operation, before it is given up to decide.
pub(crate) const STATES_MAX: usize = 200_000;
/// Differing places that are looked through for parts that do not depend on each other.
const SPLIT_MAX: usize = 64;
/// Starting points whose misfits are kept for the explanation.
const REASONS_MAX: usize = 4;

/// Cells that are not certain, with the steps that have taken their place in some of the alternatives.
#[derive(Debug, Clone, Default)]
struct Group {
    alts: Vec<Alt>,
}

/// One of the trees that there may be, as it differs from the base.
#[derive(Debug, Clone, Default)]
struct Alt {
    over: Over,
    /// Steps under way that have taken their place, in order of number.
    done: Vec<StepId>,
}

impl Alt {
    fn key(&self) -> (Vec<(Cell, u64)>, Vec<StepId>) {
        (self.over.values().collect(), self.done.clone())
    }

    fn part(&self, of: impl Fn(Place) -> bool) -> Self {
        let cells = self.over.cells.iter().filter(|(cell, ..)| of(Place::Cell(home(*cell)))).copied();
        let done = self.done.iter().filter(|step| of(Place::Step(**step))).copied();
        Self { over: Over { cells: cells.collect() }, done: done.collect() }
    }

    fn has_done(&self, step: StepId) -> bool {
        self.done.binary_search(&step).is_ok()
    }

    fn note_done(&mut self, step: StepId) {
        if let Err(at) = self.done.binary_search(&step) {
            self.done.insert(at, step);
        }
    }
}

/// No order was found.
#[derive(Debug)]
pub(crate) struct Stuck {
    /// What has no place.
    pub(crate) step: StepId,
    /// What was under way and could matter to it.
    pub(crate) beside: Vec<StepId>,
    /// Why it does not fit, with who wrote what is in the way, and the names of what was there then.
    pub(crate) reasons: Vec<(Misfit, StepId)>,
    /// How many states were tried.
    pub(crate) tried: usize,
    /// Not all could be tried.
    pub(crate) gave_up: bool,
}

/// The search, between two events.
pub(crate) struct Search<'a> {
    program: &'a Program,
    numbers: Numbers<'a>,
    base: Base,
    groups: HashMap<usize, Group>,
    next_group: usize,
    /// By `home`.
    cell_group: HashMap<Cell, usize>,
    step_group: BTreeMap<StepId, usize>,
    /// Under way, will end, and without a certain place.
    live: Vec<StepId>,
    /// May happen at any later time: where each was found to touch the tree.
    forever: HashMap<Cell, Vec<StepId>>,
    /// Of those, which have taken their place for certain.
    settled: HashSet<StepId>,
    /// Where an object ever had a name, as far as steps that may happen for ever need to know.
    ever_at: HashMap<Obj, BTreeSet<Cell>>,
    /// The most alternatives that were kept of one place.
    pub(crate) widest: usize,
}

/// All data of a file is one place: who changes the size may change any block.
fn home(cell: Cell) -> Cell {
    match cell {
        Cell::Block(file, _) => Cell::Size(file),
        cell => cell,
    }
}

/// What cells may hold, with what steps under way may write.
struct Now<'a> {
    base: &'a Base,
    groups: &'a HashMap<usize, Group>,
    cell_group: &'a HashMap<Cell, usize>,
    extra: HashMap<Cell, Vec<u64>>,
}

impl Possible for Now<'_> {
    fn values(&self, cell: Cell, each: &mut dyn FnMut(u64)) {
        let base = self.base.get(cell).0;
        match self.cell_group.get(&home(cell)) {
            Some(group) => {
                for alt in &self.groups[group].alts {
                    each(alt.over.get(cell).map_or(base, |(value, _)| value));
                }
            }
            None => each(base),
        }
        for value in self.extra.get(&cell).into_iter().flatten() {
            each(*value);
        }
    }
}

/// What has to be looked at together.
struct Cluster {
    /// Steps under way without a certain place; the one that ends is the first.
    steps: Vec<StepId>,
    groups: Vec<usize>,
}

impl<'a> Search<'a> {
    /// With `guesses`, objects made without a number get the one that they seem to have. An order that is found so is
    /// one; if none is found, there may still be one.
    pub(crate) fn new(program: &'a Program, guesses: bool) -> Self {
        let mut base = Base::default();
        let root = 0;
        base.set(Cell::Kind(root), Kind::Directory as u64 + 1, BEGIN);
        base.set(Cell::Nlink(root), 1, BEGIN);
        Self {
            program,
            numbers: Numbers { unbound: program.unbound, guesses: guesses.then_some(&program.guesses) },
            base,
            groups: HashMap::new(),
            next_group: 0,
            cell_group: HashMap::new(),
            step_group: BTreeMap::new(),
            live: Vec::new(),
            forever: HashMap::new(),
            settled: HashSet::new(),
            ever_at: HashMap::new(),
            widest: 1,
        }
    }

    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    /// Goes on to the next event.
    pub(crate) fn advance(&mut self, event: Event) -> Result<(), Stuck> {
        match event {
            Event::Start(step) => {
                self.start(step);
                Ok(())
            }
            Event::End(step) => self.end(step),
        }
    }

    fn step(&self, id: StepId) -> &'a Step {
        &self.program.steps[id as usize].step
    }

    fn is_known(&self, id: StepId) -> bool {
        self.program.steps[id as usize].known
    }

    fn now(&self) -> Now<'_> {
        Now { base: &self.base, groups: &self.groups, cell_group: &self.cell_group, extra: HashMap::new() }
    }

    fn start(&mut self, id: StepId) {
        let planned = &self.program.steps[id as usize];
        let touches = planned.step.may_touch(&self.now(), self.program.unbound);
        if !planned.ends {
            for (cell, _) in touches.iter() {
                self.forever.entry(home(cell)).or_default().push(id);
            }
            return;
        }
        let certain = touches.iter().all(|(cell, _)| !self.cell_group.contains_key(&home(cell)));
        if certain && self.is_look(id) {
            let mut alt = Alt::default();
            if let Ok(Ran::Looked | Ran::Guessed) = self.run(id, &mut alt, &mut Footprint::default()) {
                return self.settle(vec![alt], &[]);
            }
        }
        self.live.push(id);
    }

    fn run(&self, id: StepId, alt: &mut Alt, touched: &mut Footprint) -> Result<Ran, Misfit> {
        let mut tree = Tree { base: &self.base, over: &mut alt.over, by: id, touched };
        self.step(id).run(&mut tree, self.numbers)
    }

    /// It changes nothing, and its answer is known: where it fits, it can take its place.
    fn is_look(&self, id: StepId) -> bool {
        self.is_known(id) && self.step(id).only_looks()
    }

    fn end(&mut self, id: StepId) -> Result<(), Stuck> {
        if !self.live.contains(&id) {
            return Ok(());
        }
        let cluster = self.cluster(id);
        let found = self.explore(id, &cluster)?;
        for group in cluster.groups {
            self.dissolve(group);
        }
        self.live.retain(|step| *step != id);
        self.settle(found, &cluster.steps);
        Ok(())
    }

    /// All that may matter to a step, also through others.
    fn cluster(&self, id: StepId) -> Cluster {
        let mut steps = vec![id];
        let mut groups: Vec<usize> = Vec::new();
        let mut forever: Vec<StepId> = Vec::new();
        loop {
            let (before, groups_before) = (steps.len(), groups.len());
            let mut now = self.now();
            let writers = self.live.iter().chain(&forever);
            if self.live.len() + forever.len() > 1 {
                extend(&mut now, writers.map(|step| self.step(*step)));
            }
            let touch = |step: &StepId| self.step(*step).may_touch(&now, self.program.unbound);
            let mut todo: Vec<(StepId, Footprint)> =
                self.live.iter().chain(&forever).map(|step| (*step, touch(step))).collect();
            let mut all: Vec<Footprint> = Vec::new();
            todo.retain(|(step, touches)| {
                let is_in = steps.contains(step);
                if is_in {
                    all.push(touches.clone());
                }
                !is_in
            });
            // Those that touch what the others of the cluster touch.
            let mut at = 0;
            while at < all.len() {
                for (cell, _) in all[at].iter() {
                    if let Some(group) = self.cell_group.get(&home(cell))
                        && !groups.contains(group)
                    {
                        groups.push(*group);
                    }
                }
                let touched = all[at].clone();
                todo.retain(|(step, touches)| {
                    let joins = touches.conflicts(&touched);
                    if joins {
                        steps.push(*step);
                        all.push(touches.clone());
                    }
                    !joins
                });
                self.note_forever(&all[at], &mut forever);
                at += 1;
            }
            // A step and the group in which its place is open belong together.
            for (step, group) in &self.step_group {
                if steps.contains(step) && !groups.contains(group) {
                    groups.push(*group);
                }
                if groups.contains(group) && !steps.contains(step) {
                    steps.push(*step);
                    if !self.live.contains(step) && !forever.contains(step) {
                        forever.push(*step);
                    }
                }
            }
            for step in &forever {
                if !steps.contains(step) {
                    steps.push(*step);
                }
            }
            if steps.len() == before && groups.len() == groups_before {
                return Cluster { steps, groups };
            }
        }
    }

    /// Steps without an end that may touch this.
    fn note_forever(&self, touches: &Footprint, found: &mut Vec<StepId>) {
        if self.forever.is_empty() {
            return;
        }
        let mut look = |cell: Cell| {
            for step in self.forever.get(&home(cell)).into_iter().flatten() {
                if !self.settled.contains(step) && !found.contains(step) {
                    found.push(*step);
                }
            }
        };
        for (cell, _) in touches.iter() {
            look(cell);
            let (Cell::Count(obj) | Cell::Kind(obj) | Cell::Nlink(obj) | Cell::Parent(obj)) = cell else {
                continue;
            };
            self.ever_at.get(&obj).into_iter().flatten().for_each(|cell| look(*cell));
        }
    }

    /// Every combination of what these groups leave open, if these are not too many.
    fn product(&self, groups: &[usize]) -> Option<Vec<Alt>> {
        let mut all = vec![Alt::default()];
        for group in groups {
            let alts = &self.groups[group].alts;
            if all.len() * alts.len() > STATES_MAX {
                return None;
            }
            let mut next = Vec::with_capacity(all.len() * alts.len());
            for a in &all {
                for b in alts {
                    let mut both = a.clone();
                    both.over.cells.extend_from_slice(&b.over.cells);
                    both.over.cells.sort_unstable_by_key(|(cell, ..)| *cell);
                    b.done.iter().for_each(|step| both.note_done(*step));
                    next.push(both);
                }
            }
            all = next;
        }
        Some(all)
    }

    /// Every tree that there may be when this step has taken its place.
    fn explore(&self, id: StepId, cluster: &Cluster) -> Result<Vec<Alt>, Stuck> {
        let mut stuck = Stuck {
            step: id,
            beside: cluster.steps[1..].to_vec(),
            reasons: Vec::new(),
            tried: 0,
            gave_up: false,
        };
        let Some(starts) = self.product(&cluster.groups) else {
            stuck.gave_up = true;
            return Err(stuck);
        };
        let mut found: Vec<Alt> = Vec::new();
        let mut todo: Vec<(Alt, Vec<Placed>)> = Vec::new();
        for mut alt in starts {
            if alt.has_done(id) {
                alt.done.retain(|step| *step != id);
                found.push(alt);
                continue;
            }
            if !self.is_known(id) {
                // It never happens.
                found.push(alt.clone());
            }
            todo.push((alt, Vec::new()));
        }
        let others = &cluster.steps[1..];
        let mut seen = HashSet::new();
        while let Some((mut alt, mut path)) = todo.pop() {
            self.look(others, &mut alt, &mut path);
            if !seen.insert(alt.key()) {
                continue;
            }
            if seen.len() > STATES_MAX {
                stuck.gave_up = true;
                break;
            }
            let mut with = alt.clone();
            let mut touched = Footprint::default();
            match self.run(id, &mut with, &mut touched) {
                Ok(ran) => {
                    if (ran == Ran::Changed || self.is_known(id)) && matters(&path, &touched) {
                        self.look(others, &mut with, &mut Vec::new());
                        found.push(with);
                    }
                    if self.is_look(id) && ran != Ran::Changed {
                        // Whatever else is under way can as well come later.
                        continue;
                    }
                }
                Err(misfit) if path.is_empty() && stuck.reasons.len() < REASONS_MAX => {
                    let by = alt.over.get(misfit.cell).unwrap_or_else(|| self.base.get(misfit.cell)).1;
                    if !stuck.reasons.contains(&(misfit, by)) {
                        stuck.reasons.push((misfit, by));
                    }
                }
                Err(_) => {}
            }
            for step in others {
                if alt.has_done(*step) {
                    continue;
                }
                let mut next = alt.clone();
                let mut touched = Footprint::default();
                // A rename between two names of one file changes nothing, but could have, later.
                let ran = self.run(*step, &mut next, &mut touched);
                let counts = match ran {
                    Ok(Ran::Changed) => true,
                    Ok(Ran::Looked | Ran::Guessed) => self.is_known(*step) && !self.step(*step).only_looks(),
                    Err(_) => false,
                };
                if counts {
                    next.note_done(*step);
                    let mut path = path.clone();
                    path.push(Placed { touched, changes: true });
                    todo.push((next, path));
                }
            }
        }
        stuck.tried = seen.len();
        if found.is_empty() || stuck.gave_up {
            return Err(stuck);
        }
        Ok(self.distinct(found))
    }

    /// All that can only look, and fits, takes its place.
    fn look(&self, steps: &[StepId], alt: &mut Alt, path: &mut Vec<Placed>) {
        for step in steps {
            if alt.has_done(*step) || !self.is_look(*step) {
                continue;
            }
            let over = alt.over.clone();
            let mut touched = Footprint::default();
            match self.run(*step, alt, &mut touched) {
                Ok(Ran::Looked | Ran::Guessed) => {
                    alt.note_done(*step);
                    path.push(Placed { touched, changes: false });
                }
                Ok(Ran::Changed) => alt.over = over,
                Err(_) => {}
            }
        }
    }

    /// Drops what another one is at least as good as: with the same tree, and less that must still happen.
    fn distinct(&self, mut alts: Vec<Alt>) -> Vec<Alt> {
        let mut seen = HashSet::new();
        alts.retain(|alt| seen.insert(alt.key()));
        let mut by_tree: HashMap<Vec<(Cell, u64)>, Vec<Alt>> = HashMap::new();
        for alt in alts {
            by_tree.entry(alt.over.values().collect()).or_default().push(alt);
        }
        let mut kept: Vec<Alt> = Vec::new();
        for (_, mut same) in by_tree {
            same.sort_by(|a, b| a.done.cmp(&b.done));
            let mut at = 0;
            while at < same.len() {
                let worse =
                    (0..same.len()).any(|other| other != at && self.is_as_good(&same[other], &same[at]));
                if worse {
                    same.remove(at);
                } else {
                    at += 1;
                }
            }
            kept.extend(same);
        }
        kept.sort_by_cached_key(Alt::key);
        kept
    }

    fn is_as_good(&self, a: &Alt, b: &Alt) -> bool {
        let only_in =
            |x: &Alt, y: &Alt| x.done.iter().filter(|s| !y.has_done(**s)).copied().collect::<Vec<_>>();
        only_in(a, b).iter().all(|step| self.is_known(*step) && self.step(*step).only_looks())
            && only_in(b, a).iter().all(|step| !self.is_known(*step))
    }

    fn dissolve(&mut self, group: usize) {
        let gone = self.groups.remove(&group).expect("a group that is looked at is there");
        for alt in gone.alts {
            for (cell, ..) in alt.over.cells {
                self.cell_group.remove(&home(cell));
            }
            for step in alt.done {
                self.step_group.remove(&step);
            }
        }
    }

    /// What is the same in all becomes certain; the rest stays open, in as small parts as can be.
    fn settle(&mut self, mut alts: Vec<Alt>, steps: &[StepId]) {
        if !self.forever.is_empty() || steps.iter().any(|step| !self.program.steps[*step as usize].ends) {
            for (cell, value, _) in alts.iter().flat_map(|alt| &alt.over.cells) {
                if let (Cell::Entry(..), Some(obj)) = (*cell, value.checked_sub(1)) {
                    let obj = Obj::try_from(obj).expect("an entry holds an object");
                    self.ever_at.entry(obj).or_default().insert(*cell);
                }
            }
        }
        let (first, rest) = alts.split_first().expect("some order fits");
        let same: Vec<(Cell, u64, StepId)> = first
            .over
            .cells
            .iter()
            .filter(|(cell, value, _)| {
                rest.iter().all(|alt| alt.over.get(*cell).is_some_and(|(v, _)| v == *value))
            })
            .copied()
            .collect();
        let done: Vec<StepId> =
            first.done.iter().filter(|step| rest.iter().all(|alt| alt.has_done(**step))).copied().collect();
        for (cell, value, by) in same {
            self.base.set(cell, value, by);
            alts.iter_mut().for_each(|alt| alt.over.cells.retain(|(c, ..)| *c != cell));
        }
        self.live.retain(|step| !done.contains(step));
        self.settled.extend(done.iter().filter(|step| !self.program.steps[**step as usize].ends));
        alts.iter_mut().for_each(|alt| alt.done.retain(|step| !done.contains(step)));
        if alts.len() == 1 {
            return;
        }
        for part in split(alts) {
            self.widest = self.widest.max(part.len());
            let group = self.next_group;
            self.next_group += 1;
            for alt in &part {
                for (cell, ..) in &alt.over.cells {
                    self.cell_group.insert(home(*cell), group);
                }
                for step in &alt.done {
                    self.step_group.insert(*step, group);
                }
            }
            self.groups.insert(group, Group { alts: part });
        }
    }
}

/// Adds what steps may write, and what that lets others write.
fn extend<'s>(now: &mut Now<'_>, steps: impl Iterator<Item = &'s Step> + Clone) {
    loop {
        let mut more: Vec<(Cell, u64)> = Vec::new();
        for step in steps.clone() {
            step.may_write(now, &mut |cell, value| {
                if !now.extra.get(&cell).is_some_and(|known| known.contains(&value)) {
                    more.push((cell, value));
                }
            });
        }
        if more.is_empty() {
            return;
        }
        for (cell, value) in more {
            let known = now.extra.entry(cell).or_default();
            if !known.contains(&value) {
                known.push(value);
            }
        }
    }
}

/// A step that has taken its place.
#[derive(Debug, Clone)]
struct Placed {
    touched: Footprint,
    changes: bool,
}

/// To each change of the path it matters that it came before the last step, perhaps through others. One to which it
/// does not can as well come later.
fn matters(path: &[Placed], last: &Footprint) -> bool {
    let mut after = vec![last];
    for placed in path.iter().rev() {
        if after.iter().any(|later| placed.touched.conflicts(later)) {
            after.push(&placed.touched);
        } else if placed.changes {
            return false;
        }
    }
    true
}

/// A place in which alternatives differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Cell(Cell),
    Step(StepId),
}

/// Alternatives that are all combinations of smaller ones fall apart into these.
fn split(alts: Vec<Alt>) -> Vec<Vec<Alt>> {
    let places: BTreeSet<Place> = alts.iter().flat_map(places_of).collect();
    let places: Vec<Place> = places.into_iter().collect();
    if alts.len() < 4 || places.len() < 2 || places.len() > SPLIT_MAX {
        return vec![alts];
    }
    // Of each place, which of its values every alternative has.
    let values: Vec<Vec<usize>> = places.iter().map(|place| values_at(&alts, *place)).collect();
    let kinds: Vec<usize> = values.iter().map(|of| of.iter().max().map_or(0, |most| most + 1)).collect();
    // Two places depend on each other if not every value of the one goes with every value of the other.
    let mut part: Vec<usize> = (0..places.len()).collect();
    for a in 0..places.len() {
        for b in a + 1..places.len() {
            if part[a] != part[b] && !all_pairs(&values[a], kinds[a], &values[b], kinds[b]) {
                let (from, to) = (part[b], part[a]);
                part.iter_mut().filter(|part| **part == from).for_each(|part| *part = to);
            }
        }
    }
    let names: BTreeSet<usize> = part.iter().copied().collect();
    if names.len() == 1 {
        return vec![alts];
    }
    let is_in = |place: Place, name: usize| {
        part[places.binary_search(&place).expect("every place is in the list")] == name
    };
    let split: Vec<Vec<Alt>> = names
        .iter()
        .map(|name| {
            let mut seen = HashSet::new();
            let mut list: Vec<Alt> = alts.iter().map(|alt| alt.part(|place| is_in(place, *name))).collect();
            list.retain(|alt| seen.insert(alt.key()));
            list
        })
        .collect();
    // That pairs are free of each other does not say that all together are.
    if split.iter().map(Vec::len).product::<usize>() == alts.len() { split } else { vec![alts] }
}

fn places_of(alt: &Alt) -> impl Iterator<Item = Place> {
    let cells = alt.over.cells.iter().map(|(cell, ..)| Place::Cell(home(*cell)));
    cells.chain(alt.done.iter().map(|step| Place::Step(*step)))
}

/// Numbers for the values that alternatives have at a place.
fn values_at(alts: &[Alt], place: Place) -> Vec<usize> {
    let mut known: HashMap<(Vec<(Cell, u64)>, bool), usize> = HashMap::new();
    let mut number = |alt: &Alt| {
        let cells = alt.over.values().filter(|(cell, _)| Place::Cell(home(*cell)) == place).collect();
        let done = matches!(place, Place::Step(step) if alt.has_done(step));
        let next = known.len();
        *known.entry((cells, done)).or_insert(next)
    };
    alts.iter().map(&mut number).collect()
}

/// Every value of the one goes with every value of the other.
fn all_pairs(a: &[usize], kinds_a: usize, b: &[usize], kinds_b: usize) -> bool {
    let wanted = kinds_a * kinds_b;
    if wanted > a.len() {
        return false;
    }
    let mut met = vec![false; wanted];
    let mut count = 0;
    for (a, b) in a.iter().zip(b) {
        let met = &mut met[a * kinds_b + b];
        count += usize::from(!*met);
        *met = true;
    }
    count == wanted
}
