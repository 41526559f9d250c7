//! Says in a few lines why a history has no order: the operation, the fact against it, which operation made
//! that fact, and the operations at the same time.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::Explanation;
use crate::cell::{BEGIN, Base, Cell, NameId, Obj, StepId};
use crate::compile::{Absurd, Program};
use crate::history::{Answer, Found, History, How, Id, Op, Record};
use crate::search::{STATES_MAX, Stuck};
use crate::step::{Misfit, Need, entry};

/// Operations beside it that are shown.
const BESIDE_MAX: usize = 8;

pub(crate) fn absurd(history: &History, absurd: &Absurd) -> Explanation {
    let words = Words { history, paths: HashMap::new() };
    let text = format!("  {}\n{}", words.line(absurd.record), absurd.why);
    Explanation { record: absurd.record, text }
}

pub(crate) fn stuck(history: &History, program: &Program, base: &Base, stuck: &Stuck) -> Explanation {
    let record_of = |step: StepId| program.steps[step as usize].record;
    let record = record_of(stuck.step);
    let words = Words { history, paths: paths(program, base) };
    let mut text = format!("  {}\n", words.line(record));
    if stuck.gave_up {
        let _ = writeln!(text, "More than {STATES_MAX} states were tried for it.");
    }
    for (at, (misfit, by)) in stuck.reasons.iter().enumerate() {
        let lead = if at == 0 { "It does not fit: " } else { "or, if others came in another order: " };
        let why = words.misfit(program, misfit);
        match *by {
            BEGIN => {
                let _ = writeln!(text, "{lead}{why}, from the beginning on.");
            }
            by => {
                let _ = writeln!(text, "{lead}{why}, by\n  {}", words.line(record_of(by)));
            }
        }
    }
    let mut beside: Vec<usize> = stuck.beside.iter().map(|step| record_of(*step)).collect();
    beside.sort_unstable();
    beside.dedup();
    beside.retain(|other| *other != record);
    if beside.is_empty() {
        let _ = write!(text, "Nothing that ran beside it touches that.");
    } else {
        let _ = write!(text, "No order of these, which ran beside it, helps ({} were tried):", stuck.tried);
        for other in beside.iter().take(BESIDE_MAX) {
            let _ = write!(text, "\n  {}", words.line(*other));
        }
        if beside.len() > BESIDE_MAX {
            let _ = write!(text, "\n  and {} more", beside.len() - BESIDE_MAX);
        }
    }
    Explanation { record, text }
}

/// A path for every number: where it was for certain at the end, else the last that was told of it.
fn paths(program: &Program, base: &Base) -> HashMap<Id, String> {
    let mut at: HashMap<Obj, (Obj, NameId)> = HashMap::new();
    for (cell, value) in base.iter() {
        if let Cell::Entry(dir, name) = cell
            && value != 0
        {
            at.insert(Obj::try_from(value - 1).expect("an entry holds an object"), (dir, name));
        }
    }
    let mut found = HashMap::new();
    for (obj, id) in program.ids.iter().enumerate() {
        let obj = Obj::try_from(obj).expect("objects are counted by it");
        let stands = base.get(Cell::Stands(obj)).0;
        let mut here = if stands == 0 { obj } else { Obj::try_from(stands - 1).expect("an object") };
        let mut names = Vec::new();
        while here != 0 && names.len() < 64 {
            let Some((dir, name)) = at.get(&here) else { break };
            names.push(program.names[*name as usize].as_str());
            here = *dir;
        }
        if here == 0 {
            names.reverse();
            found.insert(*id, format!("/{}", names.join("/")));
        }
    }
    found
}

struct Words<'a> {
    history: &'a History,
    paths: HashMap<Id, String>,
}

impl Words<'_> {
    fn dir(&self, id: Id) -> String {
        self.paths.get(&id).cloned().unwrap_or_else(|| format!("#{id}"))
    }

    fn at(&self, dir: Id, name: &str) -> String {
        let dir = self.dir(dir);
        if dir == "/" { format!("/{name}") } else { format!("{dir}/{name}") }
    }

    fn line(&self, at: usize) -> String {
        let record = &self.history.records[at];
        let begin = self.history.records.iter().map(|r| r.start).min().unwrap_or(0);
        let time = |ns: u64| {
            let us = (ns - begin) / 1000;
            format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
        };
        let end = record.end.map_or_else(|| "never heard of".to_owned(), |end| format!("{} s", time(end)));
        let Record { client, start, op, answer, .. } = record;
        format!("client {client}: {} = {}   [{} to {end}]", self.op(op), self.answer(answer), time(*start))
    }

    fn op(&self, op: &Op) -> String {
        match op {
            Op::Lookup { dir, name } => format!("lookup {}", self.at(*dir, name)),
            Op::Make { dir, name, kind, exclusive, .. } => {
                let how = if *exclusive { "" } else { " unless it is there" };
                let kind = format!("{kind:?}").to_lowercase();
                format!("make {kind} {}{how}", self.at(*dir, name))
            }
            Op::Unlink { dir, name } => format!("unlink {}", self.at(*dir, name)),
            Op::Rmdir { dir, name } => format!("rmdir {}", self.at(*dir, name)),
            Op::Rename { dir, name, new_dir, new_name, how } => {
                let (from, to) = (self.at(*dir, name), self.at(*new_dir, new_name));
                match how {
                    How::Replace => format!("rename {from} to {to}"),
                    How::NoReplace => format!("rename {from} to {to}, unless that is there,"),
                    How::Exchange => format!("exchange {from} and {to}"),
                }
            }
            Op::Link { file, dir, name } => format!("link #{file} to {}", self.at(*dir, name)),
            Op::List { dir, .. } => format!("list {}", self.dir(*dir)),
            Op::Stat { file } => format!("stat #{file}"),
            Op::SetMode { file, mode } => format!("chmod #{file} {mode:o}"),
            Op::Write { file, at, data } => {
                format!("write #{file} blocks {at} to {}: {}", at + data.len() as u64, blocks(data))
            }
            Op::Append { file, data } => format!("append #{file}: {}", blocks(data)),
            Op::Read { file, at, len } => format!("read #{file} blocks {at} to {}", at + len),
            Op::Truncate { file, size } => format!("truncate #{file} to {size} blocks"),
        }
    }

    fn answer(&self, answer: &Answer) -> String {
        match answer {
            Answer::Ok => "ok".to_owned(),
            Answer::Unknown => "not known".to_owned(),
            Answer::Error(error) => error.clone(),
            Answer::Data(data) => blocks(data),
            Answer::Names(listed) => {
                let names: Vec<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
                format!("[{}]", names.join(" "))
            }
            Answer::Found(Found { id, kind, nlink, size, mode }) => {
                let mut text = format!("#{id}");
                if let Some(kind) = kind {
                    let _ = write!(text, " {}", format!("{kind:?}").to_lowercase());
                }
                if let Some(nlink) = nlink {
                    let _ = write!(text, " nlink {nlink}");
                }
                if let Some(size) = size {
                    let _ = write!(text, " blocks {size}");
                }
                if let Some(mode) = mode {
                    let _ = write!(text, " mode {mode:o}");
                }
                text
            }
        }
    }

    fn misfit(&self, program: &Program, misfit: &Misfit) -> String {
        let id = |obj: Obj| program.ids.get(obj as usize).copied();
        let object = |obj: Obj| match id(obj) {
            Some(id) => format!("#{id}"),
            None => "an object made without an answer".to_owned(),
        };
        let value = |value: u64| match value.checked_sub(1) {
            Some(obj) => object(Obj::try_from(obj).expect("an entry holds an object")),
            None => "nothing".to_owned(),
        };
        let dir = |obj: Obj| id(obj).map_or_else(|| object(obj), |id| self.dir(id));
        let Misfit { cell, found, need } = *misfit;
        match (cell, need) {
            (Cell::Entry(at, name), need) => {
                let name = &program.names[name as usize];
                let path = id(at).map_or_else(|| name.clone(), |id| self.at(id, name));
                match need {
                    Need::Zero => format!("{path} was {}", value(found)),
                    Need::Value(wanted) if found != 0 => {
                        format!("{path} was {}, not {}", value(found), value(wanted))
                    }
                    Need::Other => format!("{path} was the same object as the old name"),
                    _ => format!("nothing was at {path}"),
                }
            }
            (Cell::Count(obj), Need::Zero) => format!("{} had {found} names in it", dir(obj)),
            (Cell::Count(obj), _) => format!("{} was empty", dir(obj)),
            (Cell::Nlink(obj), Need::Free) => format!("{} was still there", object(obj)),
            (Cell::Nlink(obj), Need::NotZero) => format!("{} was removed", object(obj)),
            (Cell::Nlink(obj), Need::Zero) => format!("{} was not removed", object(obj)),
            (Cell::Nlink(obj), _) => format!("{} had {found} names", object(obj)),
            (Cell::Kind(obj), Need::Directory(yes)) => {
                format!("{} was {}a directory", object(obj), if yes { "not " } else { "" })
            }
            (Cell::Kind(obj), _) => format!("{} was of another kind", object(obj)),
            (Cell::Parent(obj), Need::NotBelow) => format!("{} was below what moves", dir(obj)),
            (Cell::Parent(obj), _) => format!("{} was not below what moves", dir(obj)),
            (Cell::Mode(obj), _) => format!("{} had mode {:o}", object(obj), found.saturating_sub(1)),
            (Cell::Size(obj), _) => format!("{} had {found} blocks", object(obj)),
            (Cell::Block(obj, block), _) => {
                let wanted = match need {
                    Need::Value(wanted) => wanted,
                    _ => 0,
                };
                format!("block {block} of {} was {found}, not {wanted}", object(obj))
            }
            (Cell::Bound(_) | Cell::Stands(_), _) => format!("{} was another object", value(entry(0))),
        }
    }
}

/// A few blocks; runs of one value as one.
fn blocks(data: &[u64]) -> String {
    let mut text = String::from("[");
    let mut at = 0;
    while at < data.len() {
        let run = data[at..].iter().take_while(|value| **value == data[at]).count();
        let lead = if at == 0 { "" } else { " " };
        let _ = if run == 1 {
            write!(text, "{lead}{}", data[at])
        } else {
            write!(text, "{lead}{}x{run}", data[at])
        };
        at += run;
        if text.len() > 60 && at < data.len() {
            text.push_str(" ...");
            break;
        }
    }
    text.push(']');
    text
}
