//! Small random histories: made by a tree, then sometimes spoiled.

use atoll_history::{Answer, Found, History, How, Id, Kind, Op, Record};

use crate::tree::Tree;

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()].clone()
    }
}

const ROOT: Id = 1;

pub(crate) fn history(seed: u64) -> History {
    let mut rng = Rng(seed);
    let mut tree = Tree::new(ROOT);
    let clients = 2 + rng.below(3);
    let count = 3 + rng.below(5);
    let names = if rng.percent(50) { vec!["a", "b"] } else { vec!["a", "b", "c"] };
    let data_only = rng.percent(15);
    let mut free = vec![0u64; usize::try_from(clients).unwrap()];
    let mut records: Vec<Record> = Vec::new();
    let mut point = 10;
    // When somebody was first told of an object.
    let mut told: Vec<(Id, u64)> = vec![(ROOT, 0)];
    for n in 0..count {
        // Each takes its place at a point of its own, after the one before.
        point += 10;
        let client = rng.below(clients);
        let at = usize::try_from(client).unwrap();
        let back = if rng.percent(50) { rng.below(8) } else { rng.below(30) };
        let start = (point - back.min(point)).max(free[at]).min(point);
        let end = point + if rng.percent(50) { rng.below(8) } else { rng.below(30) };
        free[at] = end + 1;
        // A client whose last operation has not ended by now would overlap itself; that is allowed too.
        let known: Vec<Id> = told.iter().filter(|(_, end)| *end < start).map(|(id, _)| *id).collect();
        let mut op = some_op(&mut rng, &tree, &known, &names, data_only && n > 0);
        while tree.is_confused(&op) {
            op = some_op(&mut rng, &tree, &known, &names, false);
        }
        let errors: Vec<&str> = tree.errors(&op).into_iter().collect();
        let answer = if errors.is_empty() {
            let mut made = 10 + n;
            if rng.percent(20) {
                // A number is used again.
                let old: Vec<Id> =
                    tree.ids().iter().map(|(id, _)| *id).filter(|id| !tree.is_there(*id)).collect();
                if !old.is_empty() {
                    made = rng.of(&old);
                }
            }
            tree.apply(&op, made)
        } else {
            Answer::Error(rng.of(&errors).to_owned())
        };
        let answer = less(&mut rng, &op, answer);
        match &answer {
            Answer::Found(found) => told.push((found.id, end)),
            Answer::Names(listed) => {
                told.extend(listed.iter().filter_map(|entry| entry.id).map(|id| (id, end)))
            }
            _ => {}
        }
        records.push(Record { client: u32::try_from(client).unwrap(), start, end: Some(end), op, answer });
    }
    for record in &mut records {
        if rng.percent(12) {
            record.answer = Answer::Unknown;
            if rng.percent(70) {
                record.end = None;
            }
        }
    }
    if rng.percent(60) {
        for _ in 0..=rng.below(2) {
            spoil(&mut rng, &mut records);
        }
    }
    History { root: ROOT, records }
}

/// Not all is told.
fn less(rng: &mut Rng, op: &Op, answer: Answer) -> Answer {
    match answer {
        Answer::Found(_) if matches!(op, Op::Make { exclusive: true, .. }) && rng.percent(20) => Answer::Ok,
        Answer::Found(found) => {
            let mut keep = |percent| rng.percent(percent);
            Answer::Found(Found {
                id: found.id,
                kind: found.kind.filter(|_| keep(80)),
                nlink: found.nlink.filter(|_| keep(50)),
                size: found.size.filter(|_| keep(50)),
                mode: found.mode.filter(|_| keep(50)),
            })
        }
        Answer::Names(mut listed) => {
            listed.iter_mut().for_each(|entry| entry.id = entry.id.filter(|_| rng.percent(70)));
            Answer::Names(listed)
        }
        other => other,
    }
}

fn some_op(rng: &mut Rng, tree: &Tree, known: &[Id], names: &[&str], data: bool) -> Op {
    let mut ids = tree.ids();
    ids.retain(|(id, _)| known.contains(id) || *id == ROOT);
    let dirs: Vec<Id> = ids.iter().filter(|(_, kind)| *kind == Kind::Directory).map(|(id, _)| *id).collect();
    let files: Vec<Id> = ids.iter().filter(|(_, kind)| *kind == Kind::File).map(|(id, _)| *id).collect();
    let name = rng.of(names).to_owned();
    let new_name = rng.of(names).to_owned();
    let dir = if rng.percent(60) { ROOT } else { rng.of(&dirs) };
    let new_dir = rng.of(&dirs);
    if !files.is_empty() && (data || rng.percent(15)) {
        let file = rng.of(&files);
        let at = rng.below(3);
        let blocks = |rng: &mut Rng| (0..=rng.below(2)).map(|_| 1 + rng.below(3)).collect();
        return match rng.below(7) {
            0 | 1 => Op::Write { file, at, data: blocks(rng) },
            2 => Op::Append { file, data: blocks(rng) },
            3 => Op::Truncate { file, size: rng.below(3) },
            4 => Op::Stat { file },
            _ => Op::Read { file, at, len: 1 + rng.below(3) },
        };
    }
    match rng.below(20) {
        0..=3 => {
            let kind = rng.of(&[Kind::File, Kind::Directory, Kind::Directory, Kind::Symlink]);
            let exclusive = kind != Kind::File || rng.percent(60);
            let mode = rng.percent(30).then_some(0o600);
            Op::Make { dir, name, kind, exclusive, mode }
        }
        4 => Op::Make { dir, name, kind: Kind::File, exclusive: true, mode: None },
        5..=6 => Op::Unlink { dir, name },
        7..=8 => Op::Rmdir { dir, name },
        9..=13 => {
            let how = rng.of(&[How::Replace, How::Replace, How::NoReplace, How::Exchange]);
            Op::Rename { dir, name, new_dir, new_name, how }
        }
        14 if !files.is_empty() => Op::Link { file: rng.of(&files), dir, name },
        15 => Op::List { dir, atomic: rng.percent(50) },
        16 if ids.len() > 1 => Op::SetMode { file: rng.of(&ids).0, mode: rng.of(&[0o600, 0o700]) },
        17 if !files.is_empty() => Op::Stat { file: rng.of(&files) },
        _ => Op::Lookup { dir, name },
    }
}

/// Makes one answer or time another one.
fn spoil(rng: &mut Rng, records: &mut [Record]) {
    let at = usize::try_from(rng.below(records.len() as u64)).unwrap();
    let other = usize::try_from(rng.below(records.len() as u64)).unwrap();
    match rng.below(5) {
        0 => {
            let span = records[at].end.map(|end| end - records[at].start);
            records[at].start = records[at].start.saturating_sub(25) + rng.below(60);
            records[at].end = span.map(|span| records[at].start + span);
        }
        1 => {
            let (a, b) = (records[at].answer.clone(), records[other].answer.clone());
            let same_op =
                std::mem::discriminant(&records[at].op) == std::mem::discriminant(&records[other].op);
            let is_stat = matches!(records[at].op, Op::Stat { .. } | Op::Read { .. });
            if same_op && !is_stat && a != Answer::Unknown && b != Answer::Unknown {
                records[at].answer = b;
                records[other].answer = a;
            }
        }
        2 => match &mut records[at].answer {
            Answer::Found(found) => {
                found.nlink = found.nlink.map(|n| (n + 2 * rng.below(2)).saturating_sub(1));
            }
            Answer::Names(listed) => {
                listed.pop();
            }
            Answer::Data(data) => {
                if let Some(last) = data.last_mut() {
                    *last = 1 + (*last + 1) % 3;
                }
            }
            _ => {}
        },
        3 => match &records[at].op {
            Op::Lookup { .. } => records[at].answer = Answer::Error("ENOENT".to_owned()),
            Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } | Op::Link { .. } => {
                let ok = records[at].answer == Answer::Ok;
                records[at].answer = if ok { Answer::Error("ENOENT".to_owned()) } else { Answer::Ok };
                records[at].end = records[at].end.or(Some(records[at].start + 20));
            }
            Op::Make { exclusive: true, .. } => records[at].answer = Answer::Error("EEXIST".to_owned()),
            _ => {}
        },
        _ => {
            let (a, b) = ((records[at].start, records[at].end), (records[other].start, records[other].end));
            (records[at].start, records[at].end) = b;
            (records[other].start, records[other].end) = a;
        }
    }
    for record in records {
        if record.end.is_none() && record.answer != Answer::Unknown {
            record.end = Some(record.start + 20);
        }
    }
}
