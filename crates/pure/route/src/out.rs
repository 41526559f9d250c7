//! The output of the routing machine: requests, ended calls, ids to drop, lines for the log.

use atoll_core::{Ino, IslandId};
use atoll_posix::{Answer, AttrsAround, Errno};
use atoll_proto::{EntryRef, Outcome, Request, Resolved};
use bytes::Bytes;

use crate::fits::MisfitAnswer;

/// A request to be sent.
#[derive(Debug)]
pub struct OutgoingRequest {
    /// The island.
    pub island: IslandId,
    /// Its number on the link.
    pub id: u64,
    /// What.
    pub request: Request,
    /// Bytes of a write.
    pub data: Bytes,
}

/// A call that has ended.
#[derive(Debug)]
pub struct FinishedCall<T> {
    /// The caller's token.
    pub token: T,
    /// How it ended.
    pub result: Result<Answer, Errno>,
    /// Bytes of `Answer::Data`, if the reply itself brought them; otherwise they came beside it.
    pub data: Option<Bytes>,
    /// The attributes that the caller asked for.
    pub around: Vec<AttrsAround>,
    /// Of a walked path.
    pub resolved: Option<Resolved>,
    /// The answer may be kept, if any may: its island says so, and it is not older than what a notice says.
    pub may_keep: bool,
}

/// A question to one island that has been answered.
#[derive(Debug)]
pub struct IslandAnswer<T> {
    /// The caller's token.
    pub token: T,
    /// The answer; an error if the island cannot be asked.
    pub outcome: Result<Outcome, Errno>,
}

/// A recall of single files and directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecallOf {
    /// The client's number for it. A later one has a higher one.
    pub number: u64,
    /// Files, and directories with their names.
    pub inos: Vec<Ino>,
}

/// What the owner of the machine must do.
#[derive(Debug)]
pub struct RouteOut<T> {
    /// Requests to send.
    pub send: Vec<OutgoingRequest>,
    /// Calls that have ended.
    pub finished: Vec<FinishedCall<T>>,
    /// Questions to single islands that have been answered.
    pub told: Vec<IslandAnswer<T>>,
    /// The frontend must drop everything that it keeps, and then call
    /// [`Route::recalled`](crate::Route::recalled).
    pub recall: bool,
    /// The frontend must drop what it keeps of these files and directories, with their names, and then call
    /// [`Route::dropped_of`](crate::Route::dropped_of). More than [`atoll_posix::CHANGED_MAX`] stand for everything.
    pub recall_of: Option<RecallOf>,
    /// Files and directories that have changed, and names that lead elsewhere. What is kept of them is void, as soon as the calls
    /// that have ended before have been told.
    pub changed: (Vec<Ino>, Vec<EntryRef>),
    /// Files that have lost their last name. If the frontend does not know one any more, it must call
    /// [`Route::forget`](crate::Route::forget).
    pub orphans: Vec<Ino>,
    /// Files that have another home. The same rule applies.
    pub moved: Vec<Ino>,
    /// Answers that no honest island gives. No part of them is believed, and their calls fail.
    pub misfits: Vec<MisfitAnswer>,
}

impl<T> Default for RouteOut<T> {
    fn default() -> Self {
        let (send, finished, told) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            send,
            finished,
            told,
            recall: false,
            recall_of: None,
            changed: (Vec::new(), Vec::new()),
            orphans: Vec::new(),
            moved: Vec::new(),
            misfits: Vec::new(),
        }
    }
}
