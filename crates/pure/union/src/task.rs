//! One operation on its way: what it has learned, where it stands, and what it waits for.
//!
//! An operation is decided as a function of what is known. If something must be asked first, the decision stops with the
//! calls that ask. When they are answered it is decided again from the same point, and now knows more.

use atoll_core::{IdMap, Ino, Name};
use atoll_posix::{Answer, Caller, Errno, Op, RequestOptions};
use bytes::Bytes;

use crate::dirs::{Gathered, Tick};
use crate::frontend::FrontendId;
use crate::intent::Intent;
use crate::native::{Copied, NativeCall, NativeId, NativeReply, NativeStat, Tag, Who};
use crate::ops::{Growing, Several};

/// An operation of a frontend.
#[derive(Debug, Clone)]
pub struct UnionRequest {
    /// Who asks.
    pub caller: Caller,
    /// What is asked beside it.
    pub options: RequestOptions,
    /// The operation.
    pub op: Op,
    /// The bytes of a write.
    pub bytes: Bytes,
}

/// The outcome of an operation that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What it tells.
    pub answer: Answer,
    /// The bytes of `Answer::Data`.
    pub bytes: Bytes,
}

impl From<Answer> for Finished {
    fn from(answer: Answer) -> Self {
        Self { answer, bytes: Bytes::new() }
    }
}

/// A call that is to be made in a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// In which member.
    pub tag: Tag,
    /// In whose name.
    pub who: Who,
    /// What.
    pub call: NativeCall,
}

impl Planned {
    /// A call that only looks. The frontend, or an earlier step, has checked that the caller may.
    pub(crate) fn look(tag: Tag, call: NativeCall) -> Self {
        Self { tag, who: Who::Daemon, call }
    }
}

/// Why a decision stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// These calls come first.
    Calls(Vec<Planned>),
    /// Another operation changes one of its names.
    Wait,
    /// This must be written down first.
    Intend(Intent),
    /// It fails.
    Fail(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno)
    }
}

/// A decision, or why there is none yet.
pub(crate) type Decided<T> = Result<T, Stop>;

/// How far an operation has come. Decide -> Changing, or Decide -> Then with one call less each time; back to Decide if a member
/// had something else than was known.
#[derive(Debug, Clone, Default)]
pub(crate) enum Progress {
    /// Nothing was changed yet.
    #[default]
    Decide,
    /// The calls are under way that the operation is about. Their answers are in `calls` when the decision goes on.
    Changing,
    /// One of several calls is under way; these are left, the next one last.
    Then(Vec<Planned>),
    /// A rename in several members is under way.
    Several(Box<Several>),
    /// A file is moved to a member that has room for it.
    Growing(Box<Growing>),
}

impl Progress {
    /// It may have changed something in part.
    pub(crate) fn is_changing(&self) -> bool {
        matches!(self, Self::Then(_) | Self::Several(_) | Self::Growing(_))
    }
}

/// The end of a rename in several members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntentOver {
    /// What was written down.
    pub intent: Intent,
    /// Members in which it is in doubt. If there are none, the intent is not needed any more once `dirs` are synced.
    pub in_doubt: Vec<Tag>,
    /// The directories whose names were changed.
    pub dirs: Vec<(Tag, NativeId)>,
}

/// A listing in a member that is being read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// In which member.
    pub tag: Tag,
    /// The directory there.
    pub dir: NativeId,
    /// What was read so far.
    pub names: Gathered,
    /// The directory's attributes before the first name was read.
    pub before: NativeStat,
    /// The directory, and its count of changes when that was asked for.
    pub ino: Ino,
    /// See `ino`.
    pub changes: u64,
    /// Where the next portion begins.
    pub next: u64,
}

/// A directory that was made in one more member. It counts when another member is seen to have the directory still, under its name:
/// else somebody has removed it or given it another name in the meantime, and it must not come back.
#[derive(Debug, Clone)]
pub(crate) struct Unproven {
    /// Its name.
    pub name: Name,
    /// The member in which it was made, the directory above there, and what was made.
    pub made: (Tag, NativeId, NativeId),
    /// The same for the one that it is like.
    pub like: (Tag, NativeId, NativeId),
}

/// What a call about a name or an object answered.
pub(crate) type Seen = Result<NativeStat, Errno>;

/// Of what, what was asked, and what of it the caller has.
pub(crate) type AccessTold = ((Tag, NativeId), u8, Result<u8, Errno>);

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Task {
    /// Its number.
    pub id: u64,
    /// For which frontend.
    pub frontend: FrontendId,
    /// What was asked.
    pub request: UnionRequest,
    /// When it began.
    pub began: Tick,
    /// How many homes of directories were known then. It does not know of later ones that they are gone.
    pub homes: u64,
    /// How far it has come.
    pub phase: Progress,
    /// What this operation has seen of names in members. It counts more than what is kept.
    pub names: IdMap<(Tag, NativeId, Name), Seen>,
    /// What this operation has seen of objects.
    pub objects: IdMap<(Tag, NativeId), Seen>,
    /// Directories whose names it has read in members, each with its count of changes then.
    pub read: Vec<(Tag, NativeId, u64)>,
    /// Directories whose names it could not read in members, and why.
    pub unread: Vec<(Tag, NativeId, Errno)>,
    /// Directories that it has opened in members.
    pub opened: Vec<(Tag, NativeId)>,
    /// The directory that is being made in one more member, and that member.
    pub making: Option<(Ino, Tag)>,
    /// The one that was made last, until it counts.
    pub unproven: Option<Unproven>,
    /// What directories are like that are made elsewhere.
    pub copied: Vec<(Tag, NativeId, Copied)>,
    /// What of read (4), write (2) and execute or search (1) was asked for the caller, and what of it he was found to have.
    pub access: Vec<AccessTold>,
    /// The native change that decides it has been made: it does not fail any more.
    pub committed: bool,
    /// What is renamed is shown beside another one: the name in its member, and that member.
    pub beside: Option<(Name, Tag)>,
    /// Why its file cannot grow in its member.
    pub full: Option<Errno>,
    /// The bytes of the write that is under way, if they are not those of the request.
    pub carried: Bytes,
    /// Whether what it wanted to be written down was.
    pub intended: Option<Result<(), Errno>>,
    /// What was written down and is not needed any more, or is still needed for a member that does not answer.
    pub intent_over: Option<IntentOver>,
    /// Listings that are being read.
    pub reading: Vec<Reading>,
    /// Members that could not take the new name, and why.
    pub refused: Vec<(Tag, Errno)>,
    /// Directories about whose names calls under way ask, each with its count of changes then. In the order of the calls.
    pub asked: Vec<Option<(Ino, u64)>>,
    /// Calls under way, or just answered, with their answers.
    pub calls: Vec<(Planned, Option<Result<NativeReply, Errno>>)>,
    /// How many of them are not answered yet.
    pub unanswered: usize,
    /// How often it was decided anew because a member had something else than was known.
    pub anew: u32,
    /// Since when it waits for an answer, or for a name.
    pub waits: Tick,
    /// Whoever asked was told `ETIMEDOUT`. It ends what it has changed in part, and begins no other change.
    pub given_up: bool,
}

/// An operation that waits for one call, or for a name, is given up after so many milliseconds.
pub const SOFT_MS: Tick = 10_000;

/// The same for a call that takes long if there is much to do.
pub const LONG_MS: Tick = 120_000;

impl Task {
    /// One that begins.
    pub(crate) fn new(id: u64, frontend: FrontendId, request: UnionRequest, began: Tick) -> Self {
        Self {
            id,
            frontend,
            request,
            began,
            homes: 0,
            phase: Progress::Decide,
            names: IdMap::default(),
            objects: IdMap::default(),
            read: Vec::new(),
            unread: Vec::new(),
            opened: Vec::new(),
            making: None,
            unproven: None,
            copied: Vec::new(),
            access: Vec::new(),
            committed: false,
            beside: None,
            full: None,
            carried: Bytes::new(),
            intended: None,
            intent_over: None,
            reading: Vec::new(),
            refused: Vec::new(),
            asked: Vec::new(),
            calls: Vec::new(),
            unanswered: 0,
            anew: 0,
            waits: began,
            given_up: false,
        }
    }

    /// Whether whoever asked has waited long enough.
    pub(crate) fn is_late(&self, now: Tick) -> bool {
        let long = self.calls.iter().any(|(planned, answer)| answer.is_none() && planned.call.takes_long());
        !self.given_up && now.saturating_sub(self.waits) >= if long { LONG_MS } else { SOFT_MS }
    }

    /// Its caller, for native calls.
    pub(crate) fn who(&self) -> Who {
        Who::Caller(self.request.caller.clone())
    }

    /// What it has seen of a name in a member.
    pub(crate) fn name(&self, tag: Tag, dir: NativeId, name: &Name) -> Option<Seen> {
        self.names.get(&(tag, dir, name.clone())).copied()
    }

    /// What it has seen of an object in a member.
    pub(crate) fn object(&self, tag: Tag, id: NativeId) -> Option<Seen> {
        self.objects.get(&(tag, id)).copied()
    }

    /// What of `want` the caller has, if all of it was asked.
    pub(crate) fn access(&self, tag: Tag, id: NativeId, want: u8) -> Option<Result<u8, Errno>> {
        let is_asked = |(of, asked, _): &&AccessTold| *of == (tag, id) && asked & want == want;
        self.access.iter().find(is_asked).map(|(.., granted)| *granted)
    }

    /// The only call that was made, and its answer.
    pub(crate) fn answered(&mut self) -> (Planned, Result<NativeReply, Errno>) {
        let (planned, answer) = self.calls.pop().expect("a call was made");
        (planned, answer.expect("and answered"))
    }

    /// The error if the only member that can take the new name has refused it. If a file stands in the way of the
    /// directory there, it is `EXDEV`: programs then copy to where the directory is.
    pub(crate) fn not_refused(&self, tag: Tag) -> Decided<()> {
        match self.refused.iter().find(|(refused, _)| *refused == tag) {
            Some((_, Errno::EEXIST)) => Err(Stop::Fail(Errno::EXDEV)),
            Some((_, errno)) => Err(Stop::Fail(*errno)),
            None => Ok(()),
        }
    }

    /// Nothing that it has seen counts any more.
    pub(crate) fn forget_seen(&mut self) {
        self.names.clear();
        self.objects.clear();
        self.read.clear();
        self.unread.clear();
    }

    /// Nothing that it has seen counts any more: it is decided anew. `ESTALE` after too many times; `ETIMEDOUT` if nobody
    /// waits for it any more.
    pub(crate) fn decide_anew(&mut self) -> Decided<()> {
        if self.given_up {
            return Err(Stop::Fail(Errno::ETIMEDOUT));
        }
        self.anew += 1;
        if self.anew > ANEW_MAX {
            return Err(Stop::Fail(Errno::ESTALE));
        }
        self.phase = Progress::Decide;
        self.forget_seen();
        Ok(())
    }
}

/// How often an operation is decided anew because a member had something else than was known.
pub(crate) const ANEW_MAX: u32 = 8;
