//! The members of a union and the rules by which it shows them. Owns no file.

use crate::native::{NativeStat, Space, Tag};

/// Where new files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlaceRule {
    /// To a member that has the directory; new directories to any member, by the hash of their path.
    #[default]
    Dir,
    /// To a member by the hash of the file's path, as the paper has it (FedFS 3.1).
    Manager,
    /// To the member with most room.
    Room,
    /// To a member that has the directory, directories too.
    Existing,
    /// To the first member.
    First,
}

/// Which of several files of one name is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SameRule {
    /// The one that was changed last (greatest ctime).
    #[default]
    Newest,
    /// That of the first member.
    First,
    /// That of the first member, and each other one beside it as `NAME.atoll-INO`.
    Both,
}

/// What an unlink removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnlinkRule {
    /// What was shown: another file of that name comes into view.
    #[default]
    Shown,
    /// Every file of that name.
    All,
}

/// What is said of names that a missing member may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AwayRule {
    /// `EIO`.
    #[default]
    Fail,
    /// That they do not exist. Programs take it for a deletion.
    Hide,
}

/// The rules of a union.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// Where new files go.
    pub place: PlaceRule,
    /// Which of several files of one name is shown.
    pub same: SameRule,
    /// What an unlink removes.
    pub unlink: UnlinkRule,
    /// What is said of names that a missing member may have.
    pub away: AwayRule,
}

/// Whether a member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemberState {
    /// It does.
    #[default]
    Serving,
    /// A native call has not returned for so long that nobody makes another one: `ETIMEDOUT`.
    Stuck,
    /// Its disk is gone: `EIO`.
    Away,
}

/// One member.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its number here and in ids.
    pub tag: Tag,
    /// Its root.
    pub root: NativeStat,
    /// Nothing is changed in it.
    pub read_only: bool,
    /// Whether it answers.
    pub state: MemberState,
    /// Its room, as far as it was told.
    pub space: Option<Space>,
}

/// The members, in the order in which the user named them.
#[derive(Debug, Clone, Default)]
pub struct Members(Vec<Member>);

impl Members {
    /// Adds one at the end. Its tag must be free.
    pub fn add(&mut self, member: Member) {
        assert!(self.get(member.tag).is_none(), "two members have the tag {:?}", member.tag);
        self.0.push(member);
    }

    /// The member of this tag.
    pub fn get(&self, tag: Tag) -> Option<&Member> {
        self.0.iter().find(|member| member.tag == tag)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, tag: Tag) -> Option<&mut Member> {
        self.0.iter_mut().find(|member| member.tag == tag)
    }

    /// Its place in the user's order; members that have left come last.
    pub fn rank(&self, tag: Tag) -> usize {
        self.0.iter().position(|member| member.tag == tag).unwrap_or(usize::MAX)
    }

    /// All.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.iter()
    }
}
