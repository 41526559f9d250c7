//! Making a directory in a member that does not have it yet, with all directories above it.
//!
//! The daemon makes it, like the one that is shown. So it is a directory that the union shows, and nothing of ours.

use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_posix::Errno;

use crate::dirs::{DirTimes, Home, Part};
use crate::holds::Held;
use crate::native::{At, NativeCall, NativeId, NativeReply, Tag, Who};
use crate::task::{Decided, Planned, Progress, Stop, Task, Unproven};
use crate::union::Union;

impl Union {
    /// The directory in a member for a new name of the caller. It is made if it is not there and the caller may put names
    /// into it; where it is there, the member checks that with the call that makes the name. If it cannot be made, the task
    /// notes that the member has refused, and is decided anew.
    pub(crate) fn chain(&mut self, task: &mut Task, dir: Ino, tag: Tag) -> Decided<NativeId> {
        Self::prove(task)?;
        if self.dir(dir)?.gone {
            return Err(Stop::Fail(Errno::ENOENT));
        }
        let (anchor, is_there) = (*self.dir(dir)?.anchor(), self.dir(dir)?.home(tag).is_some());
        if !is_there {
            self.has(task, anchor.tag, &At { id: anchor.id, seen: None }, 3)?;
        }
        // A directory that gets another name meanwhile would be made under the old one.
        let missing = self.missing(dir, tag)?;
        self.holds.more(task.id, &missing)?;
        let mut at = dir;
        loop {
            let node = self.dir(at)?;
            if let Some(home) = node.home(tag) {
                assert!(at == dir, "the loop ends below the first directory that is there");
                return Ok(home.id);
            }
            let above = node.parent;
            if above == at {
                return Err(Stop::Fail(Errno::EIO)); // The member has left: every member has a root.
            }
            if let Some(home) = self.dir(above)?.home(tag) {
                let (into, anchor) = (home.id, *node.anchor());
                let name = node.name.clone().ok_or(Stop::Fail(Errno::ESTALE))?;
                task.making = Some((at, tag));
                let copied = task.copied.iter().find(|(t, id, _)| *t == anchor.tag && *id == anchor.id);
                return Err(Stop::Calls(vec![match copied {
                    Some((.., like)) => {
                        let call = NativeCall::MkdirLike { dir: into, name, like: like.clone() };
                        Planned { tag, who: Who::Daemon, call }
                    }
                    None => {
                        let of = At { id: anchor.id, seen: None };
                        Planned::look(anchor.tag, NativeCall::CopyOf { of })
                    }
                }]));
            }
            at = above;
        }
    }

    /// Sees whether the directory that was made last counts. If not, it is removed.
    fn prove(task: &mut Task) -> Decided<()> {
        let Some(Unproven { name, made, like }) = task.unproven.clone() else { return Ok(()) };
        if planted(Bug::ChainBlind) {
            task.unproven = None;
            return Ok(());
        }
        let call = match task.name(like.0, like.1, &name) {
            Some(Ok(stat)) if stat.id == like.2 => {
                task.unproven = None;
                return Ok(());
            }
            None => Planned::look(like.0, NativeCall::Look { dir: like.1, name }),
            Some(_) => Planned::look(made.0, NativeCall::Rmdir { dir: made.1, name, id: made.2 }),
        };
        Err(Stop::Calls(vec![call]))
    }

    /// The names of the directories that a member lacks of a directory's path.
    fn missing(&self, dir: Ino, tag: Tag) -> Decided<Vec<Held>> {
        let (mut names, mut at) = (Vec::new(), dir);
        loop {
            let node = self.dir(at)?;
            if node.home(tag).is_some() || node.parent == at {
                return Ok(names);
            }
            names.push(Held { dir: node.parent, name: node.name.clone() });
            at = node.parent;
        }
    }

    /// Takes in the answer to a call that makes part of a chain.
    pub(crate) fn learn_chain(
        &mut self,
        task: &mut Task,
        planned: &Planned,
        answer: &Result<NativeReply, Errno>,
    ) {
        let Some((child, into)) = task.making else { return };
        match (&planned.call, answer) {
            (NativeCall::CopyOf { of }, Ok(NativeReply::Copied(like))) => {
                task.copied.push((planned.tag, of.id, like.clone()));
            }
            (NativeCall::MkdirLike { dir, name, .. }, Ok(NativeReply::Stat(stat))) => {
                if let Some(node) = self.known.dir(child)
                    && let Some(above) =
                        self.known.dir(node.parent).and_then(|dir| dir.home(node.anchor().tag))
                {
                    let (made, like) = ((into, *dir, stat.id), (above.tag, above.id, node.anchor().id));
                    task.names.remove(&(like.0, like.1, name.clone()));
                    task.unproven = Some(Unproven { name: name.clone(), made, like });
                }
                if let Some(parent) = self.known.dir_at(into, dir.ino) {
                    self.known.set_name(parent, into, name, Some((stat.kind, stat.id.ino)));
                }
                // It is known to be empty; the next change may come in the same tick.
                let part = Part::Sure { times: DirTimes::from(stat), at: self.now.ms, racy: true };
                let home = Home { unsynced: true, ..Home::new(into, stat.id, part) };
                self.known.add_home(child, home);
            }
            // If somebody has put something into it by now, it stays.
            (NativeCall::Rmdir { dir, name, .. }, answer) => {
                if answer.is_ok() {
                    if let Some(parent) = self.known.dir_at(into, dir.ino) {
                        self.known.set_name(parent, into, name, None);
                    }
                    self.known.drop_home(child, into);
                }
                (task.unproven, task.copied) = (None, Vec::new());
                self.chain_failed(task, Errno::ENOENT, task.anew == 0);
            }
            // Somebody may have made it just now: then its homes are others. If a file has its name, no second look helps.
            (_, Err(errno)) => self.chain_failed(task, *errno, *errno == Errno::EEXIST && task.anew == 0),
            (_, Ok(_)) => task.refused.push((into, Errno::EPROTO)),
        }
    }

    /// A directory could not be made in one more member. The operation is decided anew, with that member or without it.
    fn chain_failed(&mut self, task: &mut Task, errno: Errno, again: bool) {
        let Some((child, into)) = task.making else { return };
        if !again {
            task.refused.push((into, errno));
        }
        task.anew += 1;
        task.phase = Progress::Decide;
        task.forget_seen();
        self.known.expire(child);
    }
}
