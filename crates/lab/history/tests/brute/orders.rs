//! Tries all orders of a small history.

use std::collections::BTreeSet;

use atoll_history::{Answer, Found, History, Id, Listed, Op, Record};

use crate::tree::Tree;

/// A part of a record that takes its place alone: of a listing, one name.
#[derive(Debug, Clone)]
struct Piece {
    record: Record,
    name: Option<(String, Option<Listed>)>,
}

/// Whether some order fits.
pub(crate) fn fits(history: &History) -> bool {
    let mut pieces = Vec::new();
    for record in &history.records {
        // Who uses a number was told of it.
        let told = |id: &Id| {
            *id == history.root
                || history.records.iter().any(|other| {
                    let before = other.end.is_some_and(|end| end < record.start);
                    before
                        && match &other.answer {
                            Answer::Found(found) => found.id == *id,
                            Answer::Names(listed) => listed.iter().any(|entry| entry.id == Some(*id)),
                            _ => false,
                        }
                })
        };
        if !record.op.ids().iter().all(told) {
            return false;
        }
        match (&record.op, &record.answer) {
            (Op::List { dir, atomic: false }, Answer::Names(listed)) => {
                let mut names = names_of(history, *dir);
                names.extend(listed.iter().map(|entry| entry.name.clone()));
                for name in names {
                    let entry = listed.iter().find(|entry| entry.name == name).cloned();
                    pieces.push(Piece { record: record.clone(), name: Some((name, entry)) });
                }
            }
            _ => pieces.push(Piece { record: record.clone(), name: None }),
        }
    }
    let mut ids: BTreeSet<Id> = BTreeSet::new();
    for record in &history.records {
        if let Answer::Found(found) = &record.answer {
            ids.insert(found.id);
        }
        if let Answer::Names(listed) = &record.answer {
            ids.extend(listed.iter().filter_map(|entry| entry.id));
        }
    }
    let ids: Vec<Id> = ids.into_iter().collect();
    place(&Tree::new(history.root), &pieces, &ids)
}

fn names_of(history: &History, of: Id) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for record in &history.records {
        match &record.op {
            Op::Lookup { dir, name }
            | Op::Make { dir, name, .. }
            | Op::Unlink { dir, name }
            | Op::Rmdir { dir, name }
            | Op::Link { dir, name, .. }
                if *dir == of =>
            {
                names.insert(name.clone());
            }
            Op::Rename { dir, name, new_dir, new_name, .. } => {
                if *dir == of {
                    names.insert(name.clone());
                }
                if *new_dir == of {
                    names.insert(new_name.clone());
                }
            }
            _ => {}
        }
    }
    names
}

fn place(tree: &Tree, left: &[Piece], ids: &[Id]) -> bool {
    if left.iter().all(|piece| piece.record.answer == Answer::Unknown) {
        return true;
    }
    for at in 0..left.len() {
        let this = &left[at].record;
        // What has ended before it began comes before it, or never.
        let ended = |other: &Piece| other.record.end.is_some_and(|end| end < this.start);
        if left.iter().any(|other| ended(other) && other.record.answer != Answer::Unknown) {
            continue;
        }
        let mut rest: Vec<Piece> = left.to_vec();
        rest.remove(at);
        rest.retain(|other| !ended(other));
        for next in after(tree, &left[at], ids) {
            if place(&next, &rest, ids) {
                return true;
            }
        }
    }
    false
}

/// The trees that there may be after this one, if the tree could give its answer.
fn after(tree: &Tree, piece: &Piece, ids: &[Id]) -> Vec<Tree> {
    let Record { op, answer, .. } = &piece.record;
    if let (Some((name, entry)), Op::List { dir, .. }) = (&piece.name, op) {
        let mut tree = tree.clone();
        if entry.as_ref().is_some_and(|entry| entry.id.is_some()) && !tree.tell(*dir, name) {
            return vec![];
        }
        let Answer::Names(there) = tree.apply(&Op::List { dir: *dir, atomic: true }, 0) else {
            unreachable!()
        };
        let there = there.into_iter().find(|listed| listed.name == *name);
        let same = match (entry, &there) {
            (None, None) => true,
            (Some(told), Some(there)) => told.id.is_none() || told.id == there.id,
            _ => false,
        };
        return if same { vec![tree] } else { vec![] };
    }
    let errors = tree.errors(op);
    let opened = match op {
        Op::Stat { file }
        | Op::SetMode { file, .. }
        | Op::Write { file, .. }
        | Op::Append { file, .. }
        | Op::Read { file, .. }
        | Op::Truncate { file, .. } => Some(*file),
        _ => None,
    };
    // Nobody can say that it made something without saying what, if it may have been there.
    if matches!((op, answer), (Op::Make { exclusive: false, .. }, Answer::Ok)) {
        return vec![];
    }
    if opened.is_some_and(|file| !tree.was_made(file)) {
        return vec![];
    }
    match answer {
        // Not judged.
        Answer::Error(error) if error == "EPERM" => vec![tree.clone()],
        Answer::Error(error) => {
            if errors.contains(error.as_str()) {
                vec![tree.clone()]
            } else {
                vec![]
            }
        }
        _ if !errors.is_empty() || tree.is_confused(op) => vec![],
        Answer::Unknown | Answer::Ok if *answer == Answer::Unknown || matches!(op, Op::Make { .. }) => {
            let mut makes: Vec<Id> = vec![1_000_000 + piece.record.start];
            if matches!(op, Op::Make { .. }) {
                // Which number it has got counts when it is told, and must be free then.
                makes.extend(ids);
            }
            let with = |made: &Id| {
                let mut next = tree.clone();
                next.apply(op, *made);
                if next.ids().len() > tree.ids().len() {
                    next.hide_last();
                }
                next
            };
            makes.iter().map(with).collect()
        }
        Answer::Found(told) => {
            let mut next = tree.clone();
            if let Op::Lookup { dir, name } | Op::Make { dir, name, .. } = op
                && !next.tell(*dir, name)
            {
                return vec![];
            }
            let is_new = matches!(op, Op::Make { .. });
            let is_there = tree.is_there(told.id);
            let Answer::Found(got) = next.apply(op, told.id) else { return vec![] };
            // A number that is still used cannot be given to another.
            let before = tree.ids().len();
            if is_new && next.ids().len() > before && is_there {
                return vec![];
            }
            if same(told, &got) { vec![next] } else { vec![] }
        }
        Answer::Names(told) => {
            let mut next = tree.clone();
            let Op::List { dir, .. } = op else { return vec![] };
            if !told.iter().filter(|t| t.id.is_some()).all(|t| next.tell(*dir, &t.name)) {
                return vec![];
            }
            let Answer::Names(got) = next.apply(op, 0) else { return vec![] };
            let fits = |listed: &Listed| {
                got.iter().any(|g| g.name == listed.name && (listed.id.is_none() || listed.id == g.id))
            };
            if told.len() == got.len() && told.iter().all(fits) { vec![next] } else { vec![] }
        }
        _ => {
            let mut next = tree.clone();
            if next.apply(op, 0) == *answer { vec![next] } else { vec![] }
        }
    }
}

fn same(told: &Found, got: &Found) -> bool {
    let fits = |told: Option<u64>, got: Option<u64>| told.is_none() || got.is_none() || told == got;
    told.id == got.id
        && (told.kind.is_none() || told.kind == got.kind)
        && fits(told.nlink, got.nlink)
        && fits(told.size, got.size)
        && fits(told.mode.map(u64::from), got.mode.map(u64::from))
}
