//! Which sites have an object durably: with all that is known of it here, its bytes too, synced (`atoll confirm`, Pangaea 5.3). Owns the
//! questions that are open. Changes nothing.
//!
//! A question goes to all linked sites, and each passes it on to those that it is linked with, once. An answer takes the way back. A site
//! answers at once what it has at that moment, so whoever wants to wait asks again. Without an answer a site is not reached.

use std::collections::{BTreeMap, VecDeque};

use atoll_core::{Ino, wire_struct};
use atoll_state::RowLoad;

use crate::held::SiteRows;
use crate::peers::Refused;
use crate::peers::message::{KnownObject, Most, WideMessage};
use crate::rows::{FeedRow, FileBeside, SiteDir, SiteId};

/// Objects in one question.
pub const CONFIRM_MAX: usize = 256;
/// Questions of this site that are remembered with their answers, and those of others that were passed on.
const OPEN_MAX: usize = 64;
/// Questions and answers of one site that wait.
const WAIT_MAX: usize = 64;

wire_struct! {
    /// Names a question: by the site that asks, and by its number there.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct QuestionId {
        /// Who asks.
        pub site: u64,
        /// A number that it has not used since it began.
        pub number: u64,
    }
}

/// What is known of a question of this site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confirmed {
    /// Objects that no site can have yet: users have changed bytes, of which no version was cut, or the change is not synced here.
    pub not_ready: u32,
    /// By sites that have answered, how many of the objects they lack.
    pub lacks: BTreeMap<SiteId, u32>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Confirms {
    /// Questions of this site that are to be asked.
    asked: VecDeque<(u64, Vec<Ino>)>,
    answers: BTreeMap<u64, Confirmed>,
    /// The one that was looked at last, and how many objects no site can have yet; none if that was told.
    looked_at: Option<(u64, u32)>,
    /// What has come and is not looked at yet.
    heard: VecDeque<(SiteId, QuestionId, Most<KnownObject, CONFIRM_MAX>)>,
    /// From whom questions of other sites came.
    passed: VecDeque<(QuestionId, SiteId)>,
    says: VecDeque<(SiteId, WideMessage)>,
}

impl Confirms {
    /// This site is asked about these files and directories, by a number that it has not had. Whether the question is taken.
    pub(crate) fn ask(&mut self, number: u64, inos: Vec<Ino>) -> bool {
        let is_taken = self.asked.len() < OPEN_MAX;
        if is_taken {
            self.asked.push_back((number, inos));
        }
        is_taken
    }

    /// A question that was looked at, and how many objects no site can have yet.
    pub(crate) fn looked_at(&mut self) -> Option<(u64, u32)> {
        self.looked_at.take()
    }

    /// Whether nothing waits to be looked at or said.
    pub(crate) fn is_quiet(&self) -> bool {
        self.asked.is_empty() && self.heard.is_empty() && self.says.is_empty()
    }

    /// What is known of a question; none before it was looked at.
    pub(crate) fn answer(&self, number: u64) -> Option<&Confirmed> {
        self.answers.get(&number)
    }

    /// There is no link to a site any more.
    pub(crate) fn link_down(&mut self, site: SiteId) {
        self.says.retain(|(to, _)| *to != site);
        self.heard.retain(|(from, ..)| *from != site);
    }

    /// A site asks.
    pub(crate) fn heard(
        &mut self,
        from: SiteId,
        question: QuestionId,
        objects: Most<KnownObject, CONFIRM_MAX>,
    ) -> Result<(), Refused> {
        if self.heard.iter().filter(|(of, ..)| *of == from).count() >= WAIT_MAX {
            return Err(Refused::Bound("questions of who has what"));
        }
        if self.passed.iter().all(|(known, _)| *known != question) {
            self.heard.push_back((from, question, objects));
        }
        Ok(())
    }

    /// A site answers.
    pub(crate) fn answered(&mut self, own: SiteId, question: QuestionId, site: SiteId, lacks: u32) {
        if question.site == own.0 {
            if let Some(answer) = self.answers.get_mut(&question.number) {
                answer.lacks.insert(site, lacks);
            }
            return;
        }
        if let Some((_, from)) = self.passed.iter().find(|(known, _)| *known == question) {
            let from = *from;
            self.say(from, WideMessage::Confirmed { question, site: site.0, lacks });
        }
    }

    fn say(&mut self, to: SiteId, message: WideMessage) {
        if self.says.iter().filter(|(of, _)| *of == to).count() < WAIT_MAX {
            self.says.push_back((to, message));
        }
    }

    /// What is said next; none if nothing. `synced`: records up to this position survive a power cut.
    pub(crate) fn next(
        &mut self,
        own: SiteId,
        rows: &SiteRows<'_>,
        synced: u64,
        linked: &[SiteId],
    ) -> Result<Option<(SiteId, WideMessage)>, Vec<RowLoad>> {
        if let Some((from, question, objects)) = self.heard.front() {
            let lacks = objects.iter().filter(|known| !has(rows, synced, known)).count() as u32;
            rows.loaded()?;
            let (from, question, objects) = (*from, *question, objects.clone());
            self.heard.pop_front();
            self.passed.push_back((question, from));
            if self.passed.len() > OPEN_MAX {
                self.passed.pop_front();
            }
            self.say(from, WideMessage::Confirmed { question, site: own.0, lacks });
            for other in linked.iter().filter(|other| **other != from && other.0 != question.site) {
                self.say(*other, WideMessage::Confirm { question, objects: objects.clone() });
            }
        }
        if let Some((number, inos)) = self.asked.front() {
            let found: Vec<Option<KnownObject>> =
                inos.iter().take(CONFIRM_MAX).map(|ino| known(rows, synced, *ino)).collect();
            rows.loaded()?;
            let question = QuestionId { site: own.0, number: *number };
            let not_ready = found.iter().filter(|known| known.is_none()).count() as u32;
            let objects = Most::new(found.into_iter().flatten().collect());
            self.asked.pop_front();
            self.looked_at = Some((question.number, not_ready));
            self.answers.insert(question.number, Confirmed { not_ready, lacks: BTreeMap::new() });
            if self.answers.len() > OPEN_MAX {
                self.answers.pop_first();
            }
            for other in linked {
                self.say(*other, WideMessage::Confirm { question, objects: objects.clone() });
            }
        }
        Ok(self.says.pop_front())
    }
}

/// Whether this site has an object, with all of it that another one knows, synced.
fn has(rows: &SiteRows<'_>, synced: u64, KnownObject { object, known }: &KnownObject) -> bool {
    match object {
        FeedRow::File { id } => {
            let is_behind = rows.behind(*id).is_some();
            rows.file(*id).is_some_and(|file| {
                file.state.context.includes(known) && file.at.position <= synced && !is_behind
            })
        }
        FeedRow::Dir { id } => rows.dir(*id).is_some_and(|dir| {
            dir.head.context.includes(known) && dir.at.is_none_or(|at| at.position <= synced)
        }),
        FeedRow::Move { .. } => false,
    }
}

/// What is known here of a file or directory that users see; none if not all of it can be elsewhere yet.
fn known(rows: &SiteRows<'_>, synced: u64, ino: Ino) -> Option<KnownObject> {
    if let Some(row) = rows.inode(ino) {
        // A body that has lost its name meanwhile is no object.
        let file = FileBeside::read(row.beside.as_ref()?).ok().filter(|_| row.attr.nlink > 0)?;
        let is_whole = !file.bytes.is_uncut && file.at.position <= synced && rows.behind(file.id).is_none();
        let object = FeedRow::File { id: file.id };
        return is_whole.then_some(KnownObject { object, known: file.state.context });
    }
    // A directory that has lost its place is none either.
    let row = rows.dir_row(ino).filter(|row| row.beside.is_some() || ino == Ino::ROOT)?;
    let dir = SiteDir::of(ino, row);
    let is_synced = dir.at.is_none_or(|at| at.position <= synced);
    is_synced.then_some(KnownObject { object: FeedRow::Dir { id: dir.id }, known: dir.head.context })
}
