//! One listing of a tree over all islands as of one moment: has all islands hold, makes the cut, then walks
//! the tree as of the cut (`docs/design/003-enumerate.md`). It is a machine beside the routing machine, which
//! carries its questions to the islands.
//!
//! Invariant: all islands have held at one time, with nothing half done among them, and all rows of the
//! listing are from that time. If a part of the listing cannot be had, there is no listing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use atoll_core::{Ino, IslandId, Key, Table, VolumePath};
use atoll_posix::{Attr, Errno, Kind};
use atoll_proto::{ClientOp, CutLost, FileAt, ListedName, Outcome};
use bytes::Bytes;

/// Questions under way at a time, of the walk.
const WINDOW: usize = 32;
/// Files that are asked for with one question where they are homed.
const FILES_PER_QUESTION: usize = 1024;
/// Names in a listing at most: they all stay in memory until it is whole.
const ROWS_MAX: usize = 50_000_000;
/// Milliseconds between two attempts at least, and what a further attempt adds at most.
const PAUSE_MS: u64 = 60;
/// How often the pause grows.
const PAUSES_MAX: u64 = 6;

/// The root of a listing, and how long it may take to begin.
#[derive(Debug, Clone)]
pub struct ListConfig {
    /// Who owns what.
    pub table: Table,
    /// All islands.
    pub islands: Vec<IslandId>,
    /// The directory or file to list.
    pub path: VolumePath,
    /// The first listing's number in the session; each attempt takes one, so leave room.
    pub cut: u64,
    /// Milliseconds until all islands must have been quiet at once.
    pub patience_ms: u64,
    /// Milliseconds for which an island may be away.
    pub away_ms: u64,
    /// Any number: it spreads the pauses of several listings.
    pub spread: u64,
}

impl ListConfig {
    /// The island that owns a directory with this placement key.
    fn owner(&self, key: Key) -> IslandId {
        self.table.owner(key)
    }
}

/// A line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// The path below the root of the listing, without a slash at its beginning; empty for the root itself.
    pub path: Vec<u8>,
    /// Attributes.
    pub attr: Attr,
    /// Target of a symbolic link.
    pub target: Option<Bytes>,
    /// Who owns the directory, or homes the file.
    pub island: IslandId,
}

/// Why there is no listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListError {
    /// An island cannot be reached.
    Away(IslandId),
    /// In every attempt something was half done, the last time at this island.
    Busy {
        /// The island.
        island: IslandId,
        /// Number of attempts.
        attempts: u64,
    },
    /// An island has dropped the cut.
    Lost {
        /// The island.
        island: IslandId,
        /// Why.
        why: CutLost,
    },
    /// The path leads to nothing.
    NoSuchName,
    /// A part of the path is not a directory.
    NotADirectory,
    /// There are more names than one listing holds.
    TooLarge,
    /// An island contradicts another one: a mistake in Atoll, or damage.
    Contradiction {
        /// The island.
        island: IslandId,
        /// What is missing.
        ino: Ino,
    },
}

/// A question to an island.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuestion {
    /// Identifies the question in its answer.
    pub token: u64,
    /// To whom.
    pub island: IslandId,
    /// What.
    pub op: ClientOp,
}

/// How far the cut is.
#[derive(Debug)]
enum Phase {
    /// Waits for every island to hold; again, when all do.
    Holding { again: bool, waiting: BTreeSet<IslandId>, lives: BTreeMap<IslandId, u32>, keeps: Keeps },
    /// Waits for every island to make the cut.
    Cutting { waiting: BTreeSet<IslandId> },
    /// Reads names as of the cut.
    Walking,
    /// Waits until this time, before the next attempt.
    Pausing { until_ms: u64 },
    /// Over.
    Ended,
}

/// Incarnations of islands, as islands know each other's.
type Keeps = Vec<(IslandId, IslandId, u32)>;

/// The subject of a question of the walk.
#[derive(Debug)]
enum Asked {
    /// The name at this place of the path.
    Step { at: usize, dir: Ino },
    /// A page of names.
    Page { dir: Dir },
    /// The files of these rows.
    Files { rows: Vec<usize>, inos: Vec<Ino> },
}

/// A directory that is to be listed.
#[derive(Debug, Clone)]
struct Dir {
    path: Vec<u8>,
    ino: Ino,
    owner: IslandId,
    after: u64,
}

/// A row, perhaps without its attributes.
#[derive(Debug)]
struct Row {
    path: Vec<u8>,
    island: IslandId,
    file: Option<FileAt>,
}

/// The machine. See the module.
#[derive(Debug)]
pub struct Enumerate {
    config: ListConfig,
    phase: Phase,
    cut: u64,
    began_ms: u64,
    attempts: u64,
    /// Since when some island cannot be reached.
    away_since_ms: Option<u64>,
    next_token: u64,
    /// Questions that are under way, of the present attempt.
    asked: BTreeMap<u64, (IslandId, Option<Asked>)>,
    todo: VecDeque<(IslandId, Asked)>,
    /// Files whose homes are to be asked.
    files: BTreeMap<IslandId, (Vec<usize>, Vec<Ino>)>,
    rows: Vec<Row>,
    questions: Vec<ListQuestion>,
    ended: Option<Result<Vec<ListedFile>, ListError>>,
}

impl Enumerate {
    /// Begins a listing.
    pub fn new(now_ms: u64, config: ListConfig) -> Self {
        let mut listing = Self {
            phase: Phase::Ended,
            cut: config.cut,
            began_ms: now_ms,
            attempts: 0,
            away_since_ms: None,
            next_token: 0,
            asked: BTreeMap::new(),
            todo: VecDeque::new(),
            files: BTreeMap::new(),
            rows: Vec::new(),
            questions: Vec::new(),
            ended: None,
            config,
        };
        listing.attempt();
        listing
    }

    /// Questions that are to be asked now.
    pub fn questions(&mut self) -> Vec<ListQuestion> {
        std::mem::take(&mut self.questions)
    }

    /// The listing, sorted by path, once it is over.
    pub const fn ended(&mut self) -> Option<Result<Vec<ListedFile>, ListError>> {
        self.ended.take()
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) {
        if let Phase::Pausing { until_ms } = self.phase
            && now_ms >= until_ms
        {
            self.attempt();
        }
    }

    /// An island has answered, or cannot be asked (an error).
    pub fn answered(&mut self, now_ms: u64, token: u64, outcome: Result<Outcome, Errno>) {
        let Some((island, asked)) = self.asked.remove(&token) else { return };
        match (&mut self.phase, outcome) {
            (Phase::Holding { .. } | Phase::Cutting { .. }, Err(_)) => {
                let since = *self.away_since_ms.get_or_insert(now_ms);
                self.failed(now_ms, ListError::Away(island), now_ms >= since + self.config.away_ms);
            }
            (
                Phase::Holding { again, waiting, lives, keeps },
                Ok(Outcome::Held { quiet: true, incarnation, keeps: told }),
            ) => {
                waiting.remove(&island);
                lives.insert(island, incarnation);
                keeps.extend(told.into_iter().map(|(of, life)| (island, of, life)));
                if waiting.is_empty() {
                    self.away_since_ms = None;
                    // Whoever keeps something for a life of another that has ended may be about to give it
                    // back: that other one is not as it was.
                    let late = keeps.iter().find(|(_, of, life)| lives.get(of).is_some_and(|now| life < now));
                    match (late.map(|(_, of, _)| *of), *again) {
                        (Some(island), _) => self.not_quiet(now_ms, island),
                        (None, false) => self.hold(true),
                        (None, true) => {
                            self.ask_all(|cut| ClientOp::Cut { cut }, |waiting| Phase::Cutting { waiting })
                        }
                    }
                }
            }
            (Phase::Cutting { waiting }, Ok(Outcome::CutMade { made: true })) => {
                waiting.remove(&island);
                if waiting.is_empty() {
                    self.walk();
                }
            }
            (Phase::Holding { .. } | Phase::Cutting { .. }, Ok(_)) => self.not_quiet(now_ms, island),
            (Phase::Walking, Err(_)) => self.end(Err(ListError::Away(island))),
            (Phase::Walking, Ok(Outcome::CutLost { why })) => self.end(Err(ListError::Lost { island, why })),
            (Phase::Walking, Ok(outcome)) => {
                let Some(asked) = asked else { return };
                if let Err(why) = self.read(island, asked, outcome) {
                    return self.end(Err(why));
                }
                self.go_on();
            }
            (Phase::Pausing { .. } | Phase::Ended, _) => {}
        }
    }

    // ---------------------------------------------------------------------- cutting

    fn attempt(&mut self) {
        self.attempts += 1;
        self.cut = self.config.cut + self.attempts;
        self.hold(false);
    }

    fn hold(&mut self, again: bool) {
        self.ask_all(
            |cut| ClientOp::Hold { cut, again },
            |waiting| Phase::Holding { again, waiting, lives: BTreeMap::new(), keeps: Vec::new() },
        );
    }

    fn ask_all(&mut self, op: impl Fn(u64) -> ClientOp, phase: impl Fn(BTreeSet<IslandId>) -> Phase) {
        let islands = self.config.islands.clone();
        self.phase = phase(islands.iter().copied().collect());
        for island in islands {
            self.ask(island, op(self.cut), None);
        }
    }

    fn ask(&mut self, island: IslandId, op: ClientOp, asked: Option<Asked>) {
        let token = self.next_token;
        self.next_token += 1;
        self.asked.insert(token, (island, asked));
        self.questions.push(ListQuestion { token, island, op });
    }

    fn not_quiet(&mut self, now_ms: u64, island: IslandId) {
        let late = now_ms >= self.began_ms + self.config.patience_ms;
        self.failed(now_ms, ListError::Busy { island, attempts: self.attempts }, late);
    }

    /// This attempt has failed.
    fn failed(&mut self, now_ms: u64, why: ListError, for_good: bool) {
        if for_good {
            return self.end(Err(why));
        }
        self.end_cut();
        let spread = (self.config.spread ^ self.cut).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let pause = PAUSE_MS * (1 + self.attempts.min(PAUSES_MAX)) + spread % PAUSE_MS;
        self.phase = Phase::Pausing { until_ms: now_ms + pause };
    }

    /// Has all islands end their holds and cuts. Nobody waits for the answers.
    fn end_cut(&mut self) {
        self.asked.clear();
        let cut = self.cut;
        for island in self.config.islands.clone() {
            let token = self.next_token;
            self.next_token += 1;
            self.questions.push(ListQuestion { token, island, op: ClientOp::EndCut { cut } });
        }
    }

    fn end(&mut self, result: Result<Vec<ListedFile>, ListError>) {
        self.end_cut();
        self.phase = Phase::Ended;
        self.todo.clear();
        self.ended = Some(result);
    }

    // ---------------------------------------------------------------------- walking

    fn walk(&mut self) {
        self.phase = Phase::Walking;
        let owner = self.config.owner(Key(0));
        if self.config.path.names().is_empty() {
            self.add_dir(Vec::new(), Ino::ROOT, owner);
        } else {
            self.todo.push_back((owner, Asked::Step { at: 0, dir: Ino::ROOT }));
        }
        self.go_on();
    }

    /// Sends questions up to the limit, and ends the listing if nothing is left.
    fn go_on(&mut self) {
        while self.asked.len() < WINDOW {
            let names = |(_, asked): &(_, Option<Asked>)| !matches!(asked, Some(Asked::Files { .. }));
            if self.todo.is_empty() && !self.asked.values().any(names) {
                // No more names come that would fill the questions up.
                self.files
                    .keys()
                    .copied()
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|home| self.ask_files(home));
            }
            let Some((island, asked)) = self.todo.pop_front() else { break };
            let cut = self.cut;
            let op = match &asked {
                Asked::Step { at, dir } => {
                    ClientOp::EntryAt { cut, dir: *dir, name: self.config.path.names()[*at].clone() }
                }
                Asked::Page { dir } => ClientOp::ListAt { cut, dir: dir.ino, after: dir.after },
                Asked::Files { inos, .. } => ClientOp::FilesAt { cut, inos: inos.clone() },
            };
            self.ask(island, op, Some(asked));
        }
        if self.asked.is_empty() && self.todo.is_empty() && self.files.is_empty() {
            let rows = std::mem::take(&mut self.rows);
            let listed = rows.into_iter().map(|row| {
                let file = row.file.expect("every row was asked for");
                ListedFile { path: row.path, attr: file.attr, target: file.target, island: row.island }
            });
            let mut listed: Vec<ListedFile> = listed.collect();
            listed.sort_by(|a, b| a.path.split(|c| *c == b'/').cmp(b.path.split(|c| *c == b'/')));
            self.end(Ok(listed));
        }
    }

    fn ask_files(&mut self, home: IslandId) {
        if let Some((rows, inos)) = self.files.remove(&home) {
            self.todo.push_back((home, Asked::Files { rows, inos }));
        }
    }

    fn add_dir(&mut self, path: Vec<u8>, ino: Ino, owner: IslandId) {
        self.todo.push_back((owner, Asked::Page { dir: Dir { path, ino, owner, after: 0 } }));
    }

    /// A name at `path` leads to this.
    fn add(&mut self, island: IslandId, path: Vec<u8>, listed: &ListedName) -> Result<(), ListError> {
        let ino = listed.ino;
        if self.rows.len() >= ROWS_MAX {
            return Err(ListError::TooLarge);
        }
        if listed.kind == Kind::Directory {
            let key = listed.key.ok_or(ListError::Contradiction { island, ino })?;
            self.add_dir(path, ino, self.config.owner(key));
            return Ok(());
        }
        let home = listed.home;
        if listed.file.is_none() {
            if home == island || !self.config.islands.contains(&home) {
                return Err(ListError::Contradiction { island: home, ino });
            }
            let (rows, inos) = self.files.entry(home).or_default();
            rows.push(self.rows.len());
            inos.push(ino);
            if inos.len() >= FILES_PER_QUESTION {
                self.ask_files(home);
            }
        }
        self.rows.push(Row { path, island: home, file: listed.file.clone() });
        Ok(())
    }

    fn read(&mut self, island: IslandId, asked: Asked, outcome: Outcome) -> Result<(), ListError> {
        match (asked, outcome) {
            (Asked::Step { at, dir }, Outcome::ListedAt { attr, names, .. }) => {
                if attr.is_none() {
                    return Err(ListError::Contradiction { island, ino: dir });
                }
                let Some(listed) = names.first() else { return Err(ListError::NoSuchName) };
                if at + 1 == self.config.path.names().len() {
                    return self.add(island, Vec::new(), listed);
                }
                let ino = listed.ino;
                if listed.kind != Kind::Directory {
                    return Err(ListError::NotADirectory);
                }
                let key = listed.key.ok_or(ListError::Contradiction { island, ino })?;
                let owner = self.config.owner(key);
                self.todo.push_back((owner, Asked::Step { at: at + 1, dir: ino }));
                Ok(())
            }
            (Asked::Page { dir }, Outcome::ListedAt { attr, names, next }) => {
                let attr = attr.ok_or(ListError::Contradiction { island, ino: dir.ino })?;
                if next.is_some_and(|next| next <= dir.after) {
                    // It would be listed for ever.
                    return Err(ListError::Contradiction { island, ino: dir.ino });
                }
                if dir.after == 0 {
                    let file = Some(FileAt { attr, target: None });
                    self.rows.push(Row { path: dir.path.clone(), island: dir.owner, file });
                }
                for listed in &names {
                    let mut path = dir.path.clone();
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(listed.name.as_bytes());
                    self.add(island, path, listed)?;
                }
                if let Some(after) = next {
                    self.todo.push_front((island, Asked::Page { dir: Dir { after, ..dir } }));
                }
                Ok(())
            }
            (Asked::Files { mut rows, mut inos }, Outcome::FilesAt { files }) => {
                // At least one: who answers with none has none of them.
                let told = files.len().max(1).min(rows.len());
                let (rest, further) = (rows.split_off(told), inos.split_off(told));
                let mut files = files.into_iter();
                for (row, ino) in rows.into_iter().zip(inos) {
                    let file = files.next().flatten().ok_or(ListError::Contradiction { island, ino })?;
                    self.rows[row].file = Some(file);
                }
                if !rest.is_empty() {
                    self.todo.push_front((island, Asked::Files { rows: rest, inos: further }));
                }
                Ok(())
            }
            // An answer of another kind: it does not know the question.
            _ => Err(ListError::Lost { island, why: CutLost::Unknown }),
        }
    }
}
