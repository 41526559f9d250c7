//! The members of a union and the rules by which it shows them. Owns no file.

use crate::dirs::Tick;
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

/// Against whom locks of files hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockRule {
    /// Against the processes of this mount: its kernel keeps them.
    #[default]
    Local,
    /// Against everybody who uses the members: their file systems keep them.
    Native,
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
    /// Against whom locks of files hold. For the frontend: the machine takes a lock for whoever asks.
    pub locks: LockRule,
    /// For how many seconds a file that has lost its last name is held, so that it can be copied back. 0: it is not.
    pub grace_s: u16,
}

/// The rules of each kind, as users write them.
const PLACES: [(&str, PlaceRule); 5] = [
    ("dir", PlaceRule::Dir),
    ("manager", PlaceRule::Manager),
    ("room", PlaceRule::Room),
    ("existing", PlaceRule::Existing),
    ("first", PlaceRule::First),
];
const SAMES: [(&str, SameRule); 3] =
    [("newest", SameRule::Newest), ("first", SameRule::First), ("both", SameRule::Both)];
const UNLINKS: [(&str, UnlinkRule); 2] = [("shown", UnlinkRule::Shown), ("all", UnlinkRule::All)];
const AWAYS: [(&str, AwayRule); 2] = [("fail", AwayRule::Fail), ("hide", AwayRule::Hide)];
const LOCKS: [(&str, LockRule); 2] = [("local", LockRule::Local), ("native", LockRule::Native)];

fn word_of<T: PartialEq>(all: &[(&'static str, T)], rule: &T) -> &'static str {
    all.iter().find(|(_, known)| known == rule).map_or("", |(word, _)| word)
}

/// Whether the word is one of these rules, which is then taken.
fn take<T: Copy>(all: &[(&str, T)], word: &str, rule: &mut T) -> bool {
    let found = all.iter().find(|(known, _)| *known == word);
    found.map(|(_, taken)| *rule = *taken).is_some()
}

impl Settings {
    /// What each setting is, as users write it.
    pub fn words(&self) -> [(&'static str, String); 6] {
        [
            ("place", word_of(&PLACES, &self.place).to_owned()),
            ("same", word_of(&SAMES, &self.same).to_owned()),
            ("unlink", word_of(&UNLINKS, &self.unlink).to_owned()),
            ("away", word_of(&AWAYS, &self.away).to_owned()),
            ("locks", word_of(&LOCKS, &self.locks).to_owned()),
            ("grace", self.grace_s.to_string()),
        ]
    }

    /// Takes a setting as users write it. False if it does not know the value, and none if there is no such setting.
    pub fn set(&mut self, setting: &str, word: &str) -> Option<bool> {
        Some(match setting {
            "place" => take(&PLACES, word, &mut self.place),
            "same" => take(&SAMES, word, &mut self.same),
            "unlink" => take(&UNLINKS, word, &mut self.unlink),
            "away" => take(&AWAYS, word, &mut self.away),
            "locks" => take(&LOCKS, word, &mut self.locks),
            "grace" => word.parse().map(|seconds| self.grace_s = seconds).is_ok(),
            _ => return None,
        })
    }
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
    /// Since when that is so.
    pub since: Tick,
    /// A number that is another one after each time that it was away: what was not synced before may be lost.
    pub losses: u64,
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

    /// Removes one.
    pub(crate) fn remove(&mut self, tag: Tag) {
        self.0.retain(|member| member.tag != tag);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_word_that_gives_it_back() {
        let mut settings = Settings::default();
        for (setting, words) in [
            ("place", PLACES.map(|(word, _)| word).to_vec()),
            ("same", SAMES.map(|(word, _)| word).to_vec()),
            ("unlink", UNLINKS.map(|(word, _)| word).to_vec()),
            ("away", AWAYS.map(|(word, _)| word).to_vec()),
            ("locks", LOCKS.map(|(word, _)| word).to_vec()),
        ] {
            for word in words {
                assert_eq!(settings.set(setting, word), Some(true));
                assert!(settings.words().contains(&(setting, word.to_owned())));
            }
            assert_eq!(settings.set(setting, "nowhere"), Some(false));
        }
        assert_eq!((settings.set("grace", "30"), settings.grace_s), (Some(true), 30));
        assert_eq!((settings.set("grace", "-1"), settings.grace_s), (Some(false), 30));
        assert!(settings.words().contains(&("grace", "30".to_owned())));
        assert_eq!(settings.set("soft", "3"), None);
    }
}
