//! What people and programs of this node ask a site. Owns the order of questions and answers, and what is done on account of those that are
//! not about the trash.

use std::collections::VecDeque;

use atoll_core::{Decode, Encode, Ino};
use atoll_island::{BesideSays, BesideStep, BesideView};
use atoll_posix::Errno;

use super::resting::Emptying;
use super::{NotYet, Site};
use crate::asks::{SiteAnswers, SiteAsks};
use crate::members::NumberedSite;
use crate::peers::message::{Most, SITES_MAX};
use crate::rows::SiteId;

/// Questions that wait, and answers. More are not taken, and not given.
const ASKS_MAX: usize = 64;

/// What was asked and is not answered.
#[derive(Debug, Clone, Default)]
pub(super) struct SiteQuestions {
    /// About the trash.
    pub(super) trash: VecDeque<(u64, SiteAsks)>,
    pub(super) emptying: Option<Emptying>,
    /// Sites are such: the record that says so, once it is decided.
    knowing: VecDeque<(u64, Option<u64>)>,
    answers: VecDeque<(u64, SiteAnswers)>,
}

impl SiteQuestions {
    pub(super) fn answer(&mut self, id: u64, answer: SiteAnswers) {
        if self.answers.len() < ASKS_MAX {
            self.answers.push_back((id, answer));
        }
    }

    fn fails(&mut self, id: u64, errno: Errno) {
        self.answer(id, SiteAnswers::Failed { errno });
    }

    /// The first question about the trash is answered.
    pub(super) fn done(&mut self, answer: SiteAnswers) {
        if let Some((id, _)) = self.trash.pop_front() {
            self.answer(id, answer);
        }
    }

    /// The next answer, of those that are known.
    pub(super) fn says(&mut self) -> Option<BesideStep> {
        let (id, answer) = self.answers.pop_front()?;
        let bytes = answer.to_vec().into();
        Some(BesideStep::Say(BesideSays::Answers { id, bytes }))
    }
}

impl Site {
    /// Somebody asks.
    pub(super) fn hear_question(&mut self, id: u64, bytes: &[u8]) {
        let is_full = self.asked.trash.len() + self.asked.knowing.len() >= ASKS_MAX;
        match SiteAsks::from_slice(bytes) {
            Err(_) => self.asked.fails(id, Errno::EINVAL),
            Ok(_) if is_full => self.asked.fails(id, Errno::EAGAIN),
            Ok(SiteAsks::Know { sites }) => match self.are_such(sites) {
                Ok(()) => self.asked.knowing.push_back((id, None)),
                Err(errno) => self.asked.fails(id, errno),
            },
            // It says nothing of that to others any more.
            Ok(SiteAsks::Confirm { .. }) if !self.members.takes_part() => self.asked.fails(id, Errno::EPERM),
            Ok(SiteAsks::Confirm { inos }) => self.is_where(id, inos.into_vec()),
            Ok(asks) => self.asked.trash.push_back((id, asks)),
        }
    }

    /// These sites are such, or may not be.
    fn are_such(&mut self, sites: Most<NumberedSite, SITES_MAX>) -> Result<(), Errno> {
        let wanted = sites.clone();
        let is_news = self.members.heard(sites).map_err(|_| Errno::EINVAL)?;
        self.know(is_news);
        let list = &self.members;
        let has = |told: &NumberedSite| list.get(SiteId(told.site)).is_some_and(|is| *is >= told.member);
        match wanted.iter().find(|told| !has(told)) {
            None => Ok(()),
            Some(told) if list.get(SiteId(told.site)).is_none() && list.all().count() >= SITES_MAX => {
                Err(Errno::ENOSPC)
            }
            // Another one has its number, its name or its writer.
            Some(_) => Err(Errno::EEXIST),
        }
    }

    fn is_where(&mut self, id: u64, inos: Vec<Ino>) {
        if !self.confirms.ask(id, inos) {
            self.asked.fails(id, Errno::EAGAIN);
        }
    }

    /// The next thing that is to be done on account of questions; none if nothing is.
    pub(super) fn act_on_questions(
        &mut self,
        view: BesideView<'_>,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> Result<Option<BesideStep>, NotYet> {
        if self.members.are_written() {
            let now = view.state.seq();
            for (_, at) in &mut self.asked.knowing {
                at.get_or_insert(now);
            }
        }
        while let Some((id, Some(at))) = self.asked.knowing.front().copied()
            && at <= view.synced
        {
            self.asked.knowing.pop_front();
            self.asked.answer(id, SiteAnswers::Known);
        }
        match self.answers() {
            Some(step) => Ok(Some(step)),
            None => self.act_on_trash(view, mint),
        }
    }

    /// The next answer.
    pub(super) fn answers(&mut self) -> Option<BesideStep> {
        if let Some((id, not_ready)) = self.confirms.looked_at() {
            self.asked.answer(id, SiteAnswers::Asking { not_ready });
        }
        self.asked.says()
    }
}
