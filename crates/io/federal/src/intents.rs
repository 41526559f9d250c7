//! Renames in several members: what was written down for them, and how those are settled that were cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use atoll_intents::{IntentMember, Intents, LeftIntents};
use atoll_member::Tree;
use atoll_posix::Errno;
use atoll_union::{Direction, Intent, IntentOver, NativeCall, NativeId, NativeReply, Reach, Tag, Who};

/// A way to the members of an intent.
pub type Trees = BTreeMap<Tag, Arc<dyn Tree>>;

/// What this process has written down.
#[derive(Default)]
pub(crate) struct Written {
    store: OnceLock<Arc<dyn Intents>>,
    lists: Mutex<Lists>,
    /// Held while something is settled.
    settles: Mutex<()>,
}

#[derive(Default)]
struct Lists {
    /// Made everywhere; over as soon as the members' disks have it.
    unsynced: Vec<(u64, Vec<(Tag, NativeId)>)>,
    /// In doubt in members that do not answer.
    in_doubt: Vec<(u64, Intent)>,
}

impl Written {
    pub(crate) fn keep_in(&self, store: Arc<dyn Intents>) {
        // The first one stays: intents are in it.
        let _ = self.store.set(store);
    }

    /// `EXDEV` if there is nowhere to write: programs then copy.
    pub(crate) fn keep(&self, id: u64, intent: &Intent) -> Result<(), Errno> {
        self.store.get().ok_or(Errno::EXDEV)?.keep(id, intent)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().expect("no holder panics")
    }

    pub(crate) fn over(&self, id: u64, over: IntentOver) {
        let mut lists = self.lists();
        if over.in_doubt.is_empty() {
            lists.unsynced.push((id, over.dirs));
        } else {
            lists.in_doubt.push((id, over.intent));
        }
    }

    /// Whether something is not over in a member.
    pub(crate) fn concerns(&self, tag: Tag) -> bool {
        let is_unsynced = |(_, dirs): &(u64, Vec<(Tag, NativeId)>)| dirs.iter().any(|(of, _)| *of == tag);
        self.lists().unsynced.iter().any(is_unsynced) || self.doubts(tag)
    }

    /// Has a member's disk take what was renamed there. When all have, it need not be settled after a power cut.
    pub(crate) fn sync(&self, tag: Tag, tree: &Arc<dyn Tree>) {
        // What is renamed from now on is not in this sync.
        let before: Vec<(u64, Vec<(Tag, NativeId)>)> = self.lists().unsynced.clone();
        let here = before.iter().flat_map(|(_, dirs)| dirs.iter().filter(|(of, _)| *of == tag));
        let mut dirs: Vec<NativeId> = here.map(|(_, dir)| *dir).collect();
        dirs.sort_unstable();
        dirs.dedup();
        dirs.retain(|dir| is_synced(tree, *dir));
        let over: Vec<u64> = {
            let unsynced = &mut self.lists().unsynced;
            let ids: BTreeSet<u64> = before.iter().map(|(id, _)| *id).collect();
            for (_, left) in unsynced.iter_mut().filter(|(id, _)| ids.contains(id)) {
                left.retain(|(of, dir)| *of != tag || !dirs.contains(dir));
            }
            unsynced.extract_if(.., |(_, left)| left.is_empty()).map(|(id, _)| id).collect()
        };
        if let Some(store) = self.store.get() {
            over.into_iter().for_each(|id| store.over(id));
        }
    }

    /// Whether something is in doubt in a member.
    pub(crate) fn doubts(&self, tag: Tag) -> bool {
        self.lists().in_doubt.iter().any(|(_, intent)| intent.concerns(tag))
    }

    /// Settles what is in doubt in a member that answers again, before anything else is asked of it. False if that could not be
    /// done. If somebody settles it already, this waits for the end of that.
    pub(crate) fn settle(&self, tag: Tag, trees: &Trees) -> bool {
        let _settles = self.settles.lock().expect("no holder panics");
        let in_doubt = self.lists().in_doubt.clone();
        let mut all = true;
        for (id, mut intent) in in_doubt.into_iter().filter(|(_, intent)| intent.concerns(tag)) {
            let outcome = settle(&mut intent, trees, &mut |intent| self.keep(id, intent));
            let is_over = outcome.as_ref().is_ok_and(Vec::is_empty);
            {
                let in_doubt = &mut self.lists().in_doubt;
                in_doubt.retain(|(other, _)| *other != id);
                if !is_over {
                    in_doubt.push((id, intent));
                }
            }
            if let (true, Some(store)) = (is_over, self.store.get()) {
                store.over(id);
            }
            all &= outcome.is_ok_and(|missing| !missing.contains(&tag));
        }
        all
    }
}

/// A directory that is gone has nothing to sync.
fn is_synced(tree: &Arc<dyn Tree>, dir: NativeId) -> bool {
    let synced = tree.call(&Who::Daemon, &NativeCall::FsyncDir { dir }, &[]);
    !matches!(synced, Err(Errno::EIO | Errno::ETIMEDOUT))
}

/// Ends a rename that was cut off. The members that could not be reached, for which `intent` stands; `keep` has written
/// down where it goes. An error is one of `keep`.
pub fn settle(
    intent: &mut Intent,
    trees: &Trees,
    keep: &mut dyn FnMut(&Intent) -> Result<(), Errno>,
) -> Result<Vec<Tag>, Errno> {
    let before = intent.clone();
    intent.settle(&mut Reached { trees, intent: before, keep })
}

struct Reached<'a> {
    trees: &'a Trees,
    intent: Intent,
    keep: &'a mut dyn FnMut(&Intent) -> Result<(), Errno>,
}

impl Reach for Reached<'_> {
    fn root(&self, tag: Tag) -> Option<NativeId> {
        self.trees.get(&tag).map(|tree| tree.root().id)
    }

    fn call(&self, tag: Tag, call: &NativeCall) -> Result<NativeReply, Errno> {
        self.trees.get(&tag).ok_or(Errno::EIO)?.call(&Who::Daemon, call, &[])
    }

    fn decided(&mut self, direction: Direction) -> Result<(), Errno> {
        self.intent.direction = Some(direction);
        (self.keep)(&self.intent)
    }
}

/// A rename that was cut off, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledRename {
    /// What it was.
    pub intent: Intent,
    /// Where the members are that cannot be reached. If there are none, it is settled.
    pub missing: Vec<Vec<u8>>,
}

/// Settles what processes that died have left in this folder, as far as `open` opens its members. It gets how a member is
/// found again, and gives none if it is not there. With `concerns` only what was left by unions that have one of those.
pub fn settle_left(
    dir: &Path,
    concerns: &dyn Fn(&IntentMember) -> bool,
    open: &mut dyn FnMut(&IntentMember) -> Option<Arc<dyn Tree>>,
) -> io::Result<Vec<SettledRename>> {
    let mut told = Vec::new();
    for mut left in atoll_intents::left_in(dir)? {
        if left.members().iter().any(concerns) {
            settle_file(&mut left, open, &mut told)?;
        }
        left.end();
    }
    Ok(told)
}

fn settle_file(
    left: &mut LeftIntents,
    open: &mut dyn FnMut(&IntentMember) -> Option<Arc<dyn Tree>>,
    told: &mut Vec<SettledRename>,
) -> io::Result<()> {
    let opened = left.members().iter().filter_map(|member| Some((member.tag, open(member)?)));
    let trees: Trees = opened.collect();
    for (id, mut intent) in left.intents() {
        let mut failed = None;
        let keep = &mut |intent: &Intent| {
            left.keep(id, intent).map_err(|why| {
                failed = Some(why);
                Errno::EIO
            })
        };
        let missing = settle(&mut intent, &trees, keep);
        if let Some(why) = failed {
            return Err(why);
        }
        let missing = missing.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        if missing.is_empty() {
            left.over(id)?;
        }
        let is_missing = |member: &&IntentMember| missing.contains(&member.tag);
        let missing = left.members().iter().filter(is_missing).map(|member| member.path.to_vec()).collect();
        told.push(SettledRename { intent, missing });
    }
    Ok(())
}
