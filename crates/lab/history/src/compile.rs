//! From records to steps: numbers and names become places in tables, answers become demands, listings fall apart.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::Lenience;
use crate::cell::{NameId, Obj, StepId};
use crate::history::{Answer, Found, History, How, Id, Kind, Op, Record};
use crate::step::{Cause, Guesses, Has, Step, Told};

/// What the search runs.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// With the record of each, and whether its answer is known.
    pub(crate) steps: Vec<Planned>,
    /// Starts and ends in the order of time; what starts when another ends may have come before that.
    pub(crate) events: Vec<(u64, Event)>,
    /// The numbers of objects; those that nobody was told have none.
    pub(crate) ids: Vec<Id>,
    /// Names by their place.
    pub(crate) names: Vec<String>,
    /// Objects from this one on are those whose number nobody was told when they were made.
    pub(crate) unbound: Obj,
    pub(crate) guesses: Guesses,
}

impl Program {
    /// The same, if the operation of this record had nothing to do.
    pub(crate) fn without(&self, record: usize) -> Self {
        let mut without = self.clone();
        for planned in without.steps.iter_mut().filter(|planned| planned.record == record) {
            planned.step = Step::Refused(Vec::new());
        }
        without
    }

    /// Something was made whose number was not told.
    pub(crate) fn has_unnumbered(&self) -> bool {
        let unbound = self.unbound;
        self.steps
            .iter()
            .any(|planned| matches!(&planned.step, Step::Make { told, .. } if told.obj >= unbound))
    }
}

/// A step, and whose it is.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) step: Step,
    pub(crate) record: usize,
    /// Otherwise it may have happened or not.
    pub(crate) known: bool,
    pub(crate) ends: bool,
}

/// Starts come before ends of the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Start(StepId),
    End(StepId),
}

/// A record that no tree can explain, whatever happens beside it, or that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absurd {
    pub(crate) record: usize,
    pub(crate) why: String,
}

/// What a file system may always say.
const NO_CLAIM: [&str; 15] = [
    "EACCES",
    "EPERM",
    "ENOSPC",
    "EDQUOT",
    "ENAMETOOLONG",
    "EMFILE",
    "ENFILE",
    "ENOMEM",
    "EROFS",
    "EFBIG",
    "EMLINK",
    "EBUSY",
    "EAGAIN",
    "EXDEV",
    "EOPNOTSUPP",
];

struct Compiler {
    ids: Vec<Id>,
    objects: HashMap<Id, Obj>,
    names: Vec<String>,
    name_ids: HashMap<String, NameId>,
    /// The names that a directory may ever have.
    of_dir: HashMap<Obj, BTreeSet<NameId>>,
}

impl Compiler {
    fn obj(&mut self, id: Id) -> Obj {
        *self.objects.entry(id).or_insert_with(|| {
            self.ids.push(id);
            place(self.ids.len() - 1)
        })
    }

    fn name(&mut self, name: &str) -> NameId {
        if let Some(id) = self.name_ids.get(name) {
            return *id;
        }
        self.names.push(name.to_owned());
        let id = place(self.names.len() - 1);
        self.name_ids.insert(name.to_owned(), id);
        id
    }

    fn at(&mut self, dir: Id, name: &str) -> (Obj, NameId) {
        let (dir, name) = (self.obj(dir), self.name(name));
        self.of_dir.entry(dir).or_default().insert(name);
        (dir, name)
    }

    fn told(&mut self, found: &Found) -> Told {
        let obj = self.obj(found.id);
        Told { obj, kind: found.kind, nlink: found.nlink, size: found.size, mode: found.mode }
    }

    /// Every number and name gets its place.
    fn note(&mut self, record: &Record) {
        match &record.op {
            Op::Lookup { dir, name }
            | Op::Make { dir, name, .. }
            | Op::Unlink { dir, name }
            | Op::Rmdir { dir, name } => drop(self.at(*dir, name)),
            Op::Rename { dir, name, new_dir, new_name, .. } => {
                self.at(*dir, name);
                self.at(*new_dir, new_name);
            }
            Op::Link { file, dir, name } => {
                self.obj(*file);
                self.at(*dir, name);
            }
            Op::List { dir, .. } => drop(self.obj(*dir)),
            Op::Stat { file }
            | Op::SetMode { file, .. }
            | Op::Write { file, .. }
            | Op::Append { file, .. }
            | Op::Read { file, .. }
            | Op::Truncate { file, .. } => drop(self.obj(*file)),
        }
        match &record.answer {
            Answer::Found(found) => drop(self.obj(found.id)),
            Answer::Names(listed) => {
                let Op::List { dir, .. } = record.op else { return };
                for entry in listed {
                    self.at(dir, &entry.name);
                    entry.id.map(|id| self.obj(id));
                }
            }
            _ => {}
        }
    }
}

fn place<T: TryFrom<usize>>(at: usize) -> T {
    T::try_from(at).ok().expect("a history has less than 2^32 of everything")
}

/// Makes the program of a history.
pub(crate) fn compile(history: &History, lenience: Lenience) -> Result<Program, Absurd> {
    let mut all = Compiler {
        ids: Vec::new(),
        objects: HashMap::new(),
        names: Vec::new(),
        name_ids: HashMap::new(),
        of_dir: HashMap::new(),
    };
    all.obj(history.root);
    history.records.iter().for_each(|record| all.note(record));
    let told = told_by(history);
    let unbound = place(all.ids.len());
    let mut next_unbound: Obj = unbound;
    let mut steps = Vec::new();
    let mut events = Vec::new();
    for (at, record) in history.records.iter().enumerate() {
        let absurd = |why: String| Absurd { record: at, why };
        if record.end.is_some_and(|end| end < record.start) {
            return Err(absurd("it ends before it starts".to_owned()));
        }
        let untold = |id: &Id| *id != history.root && told.get(id).is_none_or(|end| *end >= record.start);
        if let Some(id) = record.op.ids().into_iter().find(untold) {
            return Err(absurd(format!("nobody was told of object {id} before this began")));
        }
        let unknown = record.is_unknown();
        let list = if unknown {
            unanswered(&mut all, &record.op, &mut next_unbound).into_iter().collect()
        } else if record.end.is_none() {
            return Err(absurd("it has an answer, but no end".to_owned()));
        } else if lenience.lets_pass(record) {
            vec![Step::Refused(Vec::new())]
        } else {
            answered(&mut all, record, &mut next_unbound).map_err(absurd)?
        };
        // Where it is not known whether it has happened, an error tells nothing of when either.
        let end = match record.answer {
            Answer::Error(_) if unknown => None,
            _ => record.end,
        };
        for step in list {
            let id: StepId = place(steps.len());
            events.push((record.start, Event::Start(id)));
            if let Some(end) = end {
                events.push((end, Event::End(id)));
            }
            steps.push(Planned { step, record: at, known: !unknown, ends: end.is_some() });
        }
    }
    events.sort_unstable_by_key(|(time, event)| match event {
        Event::Start(id) => (*time, 0, *id),
        Event::End(id) => (*time, 1, *id),
    });
    let guesses = guesses(history, &steps, &all, unbound);
    Ok(Program { steps, events, ids: all.ids, names: all.names, unbound, guesses })
}

/// Renames that were done, while other clients did one, or several in turn, that bring the same file to the same name: what
/// Linux looks up before and after that is one file, and it says that nothing is left to do.
pub(crate) fn done_by_others(history: &History) -> Vec<usize> {
    type Place<'a> = (Id, &'a str);
    let mut leads: HashMap<Place<'_>, Vec<(Place<'_>, &Record)>> = HashMap::new();
    for record in &history.records {
        let Op::Rename { dir, name, new_dir, new_name, how } = &record.op else { continue };
        let (from, to) = ((*dir, name.as_str()), (*new_dir, new_name.as_str()));
        leads.entry(from).or_default().push((to, record));
        if *how == How::Exchange {
            leads.entry(to).or_default().push((from, record));
        }
    }
    let over = |one: &Record, start| one.end.is_some_and(|end| end < start);
    let is_so = |record: &Record| {
        let Op::Rename { dir, name, new_dir, new_name, .. } = &record.op else { return false };
        let beside = |other: &Record| {
            let refused = matches!(&other.answer, Answer::Error(_)) && !other.is_unknown();
            other.client != record.client
                && !refused
                && !over(other, record.start)
                && !over(record, other.start)
        };
        let (from, to) = ((*dir, name.as_str()), (*new_dir, new_name.as_str()));
        let (mut at, mut seen) = (vec![from], HashSet::from([from]));
        while let Some(place) = at.pop() {
            for (next, other) in leads.get(&place).into_iter().flatten() {
                if beside(other) && *next == to {
                    return true;
                }
                if beside(other) && seen.insert(*next) {
                    at.push(*next);
                }
            }
        }
        false
    };
    let is_done = |at: &usize| history.records[*at].answer == Answer::Ok && is_so(&history.records[*at]);
    (0..history.records.len()).filter(is_done).collect()
}

/// Who made something and looks next what has that name mostly finds what it made.
fn guesses(history: &History, steps: &[Planned], all: &Compiler, unbound: Obj) -> Guesses {
    let mut made: HashMap<usize, Obj> = HashMap::new();
    for planned in steps {
        if let Step::Make { told, .. } = &planned.step
            && told.obj >= unbound
        {
            made.insert(planned.record, told.obj);
        }
    }
    let mut found = Guesses::default();
    let mut order: Vec<usize> = (0..history.records.len()).collect();
    order.sort_by_key(|at| (history.records[*at].client, history.records[*at].start));
    for pair in order.windows(2) {
        let (make, look) = (&history.records[pair[0]], &history.records[pair[1]]);
        if make.client == look.client
            && let Some(obj) = made.get(&pair[0])
            && let Op::Make { dir, name, kind, .. } = &make.op
            && look.op == (Op::Lookup { dir: *dir, name: name.clone() })
            && let Answer::Found(told) = &look.answer
            && told.kind.is_none_or(|told| told == *kind)
        {
            found.add(*obj, all.objects[&told.id]);
        }
    }
    found
}

/// When somebody was first told of each object.
fn told_by(history: &History) -> HashMap<Id, u64> {
    let mut told: HashMap<Id, u64> = HashMap::new();
    for record in &history.records {
        let Some(end) = record.end else { continue };
        let mut note = |id: Id| {
            let first = told.entry(id).or_insert(end);
            *first = end.min(*first);
        };
        match &record.answer {
            Answer::Found(found) => note(found.id),
            Answer::Names(listed) => listed.iter().filter_map(|entry| entry.id).for_each(note),
            _ => {}
        }
    }
    told
}

/// What may have happened, if it changes something.
fn unanswered(all: &mut Compiler, op: &Op, next_unbound: &mut Obj) -> Option<Step> {
    match op {
        Op::Make { .. } => Some(unnumbered(all, op, next_unbound)),
        _ => changes(all, op),
    }
}

/// Something is made, and nobody is told which number it got.
fn unnumbered(all: &mut Compiler, op: &Op, next_unbound: &mut Obj) -> Step {
    let Op::Make { dir, name, kind, mode, .. } = op else { unreachable!("only this makes something") };
    let (dir, name) = all.at(*dir, name);
    let told = Told::only(*next_unbound);
    *next_unbound += 1;
    Step::Make { dir, name, told, kind: *kind, exclusive: true, mode: *mode }
}

/// What an operation without an answer of its own does.
fn changes(all: &mut Compiler, op: &Op) -> Option<Step> {
    Some(match op {
        Op::Unlink { dir, name } => {
            let (dir, name) = all.at(*dir, name);
            Step::Unlink { dir, name }
        }
        Op::Rmdir { dir, name } => {
            let (dir, name) = all.at(*dir, name);
            Step::Rmdir { dir, name }
        }
        Op::Rename { dir, name, new_dir, new_name, how } => {
            let (dir, name) = all.at(*dir, name);
            let (new_dir, new_name) = all.at(*new_dir, new_name);
            Step::Rename { dir, name, new_dir, new_name, how: *how }
        }
        Op::Link { file, dir, name } => {
            let (dir, name) = all.at(*dir, name);
            Step::Link { file: all.obj(*file), dir, name }
        }
        Op::SetMode { file, mode } => Step::SetMode { file: all.obj(*file), mode: *mode },
        Op::Write { file, at, data } => Step::Write { file: all.obj(*file), at: *at, data: data.clone() },
        Op::Append { file, data } => Step::Append { file: all.obj(*file), data: data.clone() },
        Op::Truncate { file, size } => Step::Truncate { file: all.obj(*file), size: *size },
        Op::Make { .. } | Op::Lookup { .. } | Op::List { .. } | Op::Stat { .. } | Op::Read { .. } => {
            return None;
        }
    })
}

fn answered(all: &mut Compiler, record: &Record, next_unbound: &mut Obj) -> Result<Vec<Step>, String> {
    let (op, answer) = (&record.op, &record.answer);
    let step = match (op, answer) {
        (_, Answer::Error(error)) => return refusal(all, op, error).map(|step| vec![step]),
        (Op::Lookup { dir, name }, Answer::Found(found)) => {
            let (dir, name) = all.at(*dir, name);
            Step::Has { dir, name, what: Has::Object(all.told(found)) }
        }
        (Op::Make { dir, name, kind, exclusive, mode }, Answer::Found(found)) => {
            let (dir, name) = all.at(*dir, name);
            let told = all.told(found);
            Step::Make { dir, name, told, kind: *kind, exclusive: *exclusive, mode: *mode }
        }
        (Op::List { dir, atomic }, Answer::Names(listed)) => return list(all, *dir, *atomic, listed),
        (Op::Stat { file }, Answer::Found(found)) => {
            if found.id != *file {
                return Err(format!("object {file} was asked for, and {} was told", found.id));
            }
            Step::Stat { told: all.told(found) }
        }
        (Op::Read { file, at, len }, Answer::Data(data)) => {
            if data.len() as u64 > *len {
                return Err(format!("{} blocks were read, but {len} asked for", data.len()));
            }
            Step::Read { file: all.obj(*file), at: *at, len: *len, data: data.clone() }
        }
        (Op::Make { exclusive: true, .. }, Answer::Ok) => unnumbered(all, op, next_unbound),
        (_, Answer::Ok) if !matches!(op, Op::Make { .. }) => {
            changes(all, op).ok_or_else(|| "it is answered without what was asked for".to_owned())?
        }
        _ => return Err("the answer is one to another operation".to_owned()),
    };
    Ok(vec![step])
}

fn list(
    all: &mut Compiler,
    dir: Id,
    atomic: bool,
    listed: &[crate::history::Listed],
) -> Result<Vec<Step>, String> {
    let dir = all.obj(dir);
    let mut names: BTreeMap<NameId, Has> =
        all.of_dir.get(&dir).into_iter().flatten().map(|name| (*name, Has::Nothing)).collect();
    for entry in listed {
        let name = all.name(&entry.name);
        let what = match entry.id {
            Some(id) => Has::Object(Told::only(all.obj(id))),
            None => Has::Something,
        };
        if names.insert(name, what) != Some(Has::Nothing) {
            return Err(format!("{:?} is listed twice", entry.name));
        }
    }
    if atomic {
        return Ok(vec![Step::Snapshot { dir, names: names.into_iter().collect() }]);
    }
    Ok(names.into_iter().map(|(name, what)| Step::Has { dir, name, what }).collect())
}

fn refusal(all: &mut Compiler, op: &Op, error: &str) -> Result<Step, String> {
    use Cause::{Absent, Below, Differ, DirectoryAt, FileAt, FullAt, Gone, Present};
    if NO_CLAIM.contains(&error) {
        return Ok(Step::Refused(Vec::new()));
    }
    let causes = match op {
        Op::Lookup { dir, name } => {
            let (dir, name) = all.at(*dir, name);
            match error {
                "ENOENT" => vec![vec![Absent(dir, name)]],
                "ESTALE" => vec![vec![Gone(dir)]],
                _ => vec![],
            }
        }
        Op::Make { dir, name, exclusive, kind, .. } => {
            let (dir, name) = all.at(*dir, name);
            match error {
                "EEXIST" if *exclusive => vec![vec![Present(dir, name)]],
                "EISDIR" if !exclusive && *kind == Kind::File => vec![vec![DirectoryAt(dir, name)]],
                "ENOENT" | "ESTALE" => vec![vec![Gone(dir)]],
                _ => vec![],
            }
        }
        Op::Unlink { dir, name } => {
            let (dir, name) = all.at(*dir, name);
            match error {
                "ENOENT" => vec![vec![Absent(dir, name)]],
                "EISDIR" => vec![vec![DirectoryAt(dir, name)]],
                "ESTALE" => vec![vec![Gone(dir)]],
                _ => vec![],
            }
        }
        Op::Rmdir { dir, name } => {
            let (dir, name) = all.at(*dir, name);
            match error {
                "ENOENT" => vec![vec![Absent(dir, name)]],
                "ENOTDIR" => vec![vec![FileAt(dir, name)]],
                "ENOTEMPTY" | "EEXIST" => vec![vec![FullAt(dir, name)]],
                "ESTALE" => vec![vec![Gone(dir)]],
                _ => vec![],
            }
        }
        Op::Rename { dir, name, new_dir, new_name, how } => {
            let (dir, name) = all.at(*dir, name);
            let (new_dir, new_name) = all.at(*new_dir, new_name);
            match (error, how) {
                ("ENOENT", How::Exchange) => {
                    vec![vec![Absent(dir, name)], vec![Absent(new_dir, new_name)]]
                }
                ("ENOENT", _) => vec![vec![Absent(dir, name)], vec![Gone(new_dir)]],
                ("ESTALE", _) => vec![vec![Gone(dir)], vec![Gone(new_dir)]],
                ("EEXIST", How::NoReplace) => vec![vec![Present(new_dir, new_name)]],
                ("ENOTEMPTY" | "EEXIST", How::Replace) => {
                    vec![vec![FullAt(new_dir, new_name), Differ([(dir, name), (new_dir, new_name)])]]
                }
                ("EISDIR", How::Replace) => vec![vec![DirectoryAt(new_dir, new_name), FileAt(dir, name)]],
                ("ENOTDIR", How::Replace) => vec![vec![FileAt(new_dir, new_name), DirectoryAt(dir, name)]],
                ("EINVAL", How::Exchange) => {
                    vec![vec![Below(dir, name, new_dir)], vec![Below(new_dir, new_name, dir)]]
                }
                ("EINVAL", _) => vec![vec![Below(dir, name, new_dir)]],
                _ => vec![],
            }
        }
        Op::Link { file, dir, name } => {
            let (dir, name) = all.at(*dir, name);
            let file = all.obj(*file);
            match error {
                "EEXIST" => vec![vec![Present(dir, name)]],
                "ENOENT" | "ESTALE" => vec![vec![Gone(dir)], vec![Gone(file)]],
                _ => vec![],
            }
        }
        Op::List { dir: file, .. }
        | Op::Stat { file }
        | Op::SetMode { file, .. }
        | Op::Write { file, .. }
        | Op::Append { file, .. }
        | Op::Read { file, .. }
        | Op::Truncate { file, .. } => match error {
            "ENOENT" | "ESTALE" => vec![vec![Gone(all.obj(*file))]],
            _ => vec![],
        },
    };
    if causes.is_empty() {
        return Err(format!("{error} has no cause here"));
    }
    Ok(Step::Refused(causes))
}
