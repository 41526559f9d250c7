//! Where new files and directories go: candidates in order of preference. Decides; asks nobody.

use atoll_core::{Ino, Name};

use crate::native::{Space, Tag};
use crate::union::Union;
use crate::view::{MemberState, PlaceRule};

/// Room that a member keeps: below it new files go elsewhere as long as there is an elsewhere.
const RESERVE_BYTES: u64 = 4 << 30;
/// The same as a part of the whole: one twentieth.
const RESERVE_PART: u64 = 20;

/// Mixes bits well enough to spread files evenly; not a secret.
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The hash of a name below a directory whose path has this hash. It must be the same in all unions and after restarts.
fn below(path: u64, name: &Name) -> u64 {
    let mut hash = mix(path ^ 0x6174_6f6c_6c5f_7061);
    for chunk in name.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash.rotate_left(5) ^ u64::from_le_bytes(word));
    }
    mix(hash ^ name.as_bytes().len() as u64)
}

/// Whether a member has so little room that new files go elsewhere.
pub(crate) fn is_short(space: &Space) -> bool {
    space.bytes_available < RESERVE_BYTES.min(space.bytes / RESERVE_PART)
}

impl Union {
    /// Whether a member has so little room that its files may have to be moved to grow.
    pub fn is_short(&self, tag: Tag) -> bool {
        self.members.get(tag).and_then(|member| member.space).is_some_and(|space| is_short(&space))
    }

    /// The hash of a directory's path.
    fn path_hash(&self, dir: Ino) -> u64 {
        let (mut at, mut names) = (dir, Vec::new());
        while let Some(node) = self.known.dir(at)
            && let Some(name) = &node.name
        {
            names.push(name);
            at = node.parent;
        }
        names.iter().rev().fold(0, |path, name| below(path, name))
    }

    /// The members that a new name may go to, best first. Those with little room come last.
    pub(crate) fn candidates(&self, dir: Ino, name: &Name, is_dir: bool) -> Vec<Tag> {
        let mut order: Vec<Tag> = self
            .members
            .iter()
            .filter(|member| member.state == MemberState::Serving && !member.read_only)
            .map(|member| member.tag)
            .collect();
        let has = |tag: &Tag| self.known.dir(dir).is_some_and(|node| node.home(*tag).is_some());
        // Rendezvous hashing: every member draws a number, and the greatest wins.
        let draw = |path: u64| move |tag: &Tag| std::cmp::Reverse(mix(path ^ mix(u64::from(tag.0))));
        let space = |tag: &Tag| self.members.get(*tag).and_then(|member| member.space);
        match self.settings.place {
            PlaceRule::First => {}
            PlaceRule::Manager => order.sort_by_key(draw(below(self.path_hash(dir), name))),
            PlaceRule::Room => {
                order.sort_by_key(|tag| std::cmp::Reverse(space(tag).map_or(0, |s| s.bytes_available)));
            }
            PlaceRule::Existing => {
                order.retain(has);
                order.sort_by_key(draw(self.path_hash(dir)));
            }
            PlaceRule::Dir if is_dir => order.sort_by_key(draw(below(self.path_hash(dir), name))),
            PlaceRule::Dir => {
                order.sort_by_key(draw(self.path_hash(dir)));
                order.sort_by_key(|tag| !has(tag));
            }
        }
        order.sort_by_key(|tag| self.is_short(*tag));
        order
    }
}
