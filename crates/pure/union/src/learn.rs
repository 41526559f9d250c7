//! Takes what members have answered into what is known, and into what the operation has seen. Decides nothing.

use atoll_core::Name;
use atoll_posix::Errno;

use crate::dirs::{DirTimes, Gathered, Part, Section};
use crate::find::TICK_NS;
use crate::native::{NativeCall, NativeId, NativeReply, Tag};
use crate::task::{Reading, Seen, Task};
use crate::union::Union;

impl Union {
    /// Takes the answers of a task's calls into what is known.
    pub(crate) fn learn(&mut self, task: &mut Task) {
        let mut calls = std::mem::take(&mut task.calls);
        for (planned, answer) in &mut calls {
            let answer = answer.as_mut().expect("all are answered");
            let tag = planned.tag;
            match &planned.call {
                NativeCall::OpenDir { dir, name } => {
                    if let Ok(NativeReply::Stat(stat)) = answer {
                        task.opened.push((tag, stat.id));
                    }
                    self.learn_name(task, tag, *dir, name, seen(answer));
                }
                NativeCall::Look { dir, name } => self.learn_name(task, tag, *dir, name, seen(answer)),
                NativeCall::Stat { of } => _ = task.objects.insert((tag, of.id), seen(answer)),
                NativeCall::Watch { dir } => {
                    let watched = *answer == Ok(NativeReply::Watched(true));
                    if let Some(ino) = self.known.dir_at(tag, dir.ino) {
                        self.known.set_watched(ino, tag, watched);
                    }
                }
                // Names are many: they are taken and not copied. An error stays, for whoever asks why.
                NativeCall::List { dir, .. } => {
                    let told = match answer {
                        Ok(reply) => Ok(std::mem::replace(reply, NativeReply::Done)),
                        Err(errno) => Err(*errno),
                    };
                    self.learn_list(task, tag, *dir, told);
                }
                NativeCall::Access { of } => {
                    let granted = match answer {
                        Ok(NativeReply::Access(granted)) => Ok(*granted),
                        Ok(_) => Err(Errno::EPROTO),
                        Err(errno) => Err(*errno),
                    };
                    task.access.push((tag, of.id, granted));
                }
                NativeCall::CopyOf { .. } | NativeCall::MkdirLike { .. } => {
                    self.learn_chain(task, planned, answer);
                }
                _ => {}
            }
        }
        task.calls = calls;
    }

    fn learn_name(&mut self, task: &mut Task, tag: Tag, dir: NativeId, name: &Name, seen: Seen) {
        match (&seen, self.known.dir_at(tag, dir.ino)) {
            (Ok(stat), ino) => {
                task.objects.insert((tag, stat.id), Ok(*stat));
                if let Some(ino) = ino {
                    self.known.note_name(ino, tag, name, Some((stat.kind, stat.id.ino)));
                }
            }
            (Err(Errno::ENOENT), Some(ino)) => self.known.note_name(ino, tag, name, None),
            _ => {}
        }
        task.names.insert((tag, dir, name.clone()), seen);
    }

    fn learn_list(&mut self, task: &mut Task, tag: Tag, dir: NativeId, answer: Result<NativeReply, Errno>) {
        let Some(ino) = self.known.dir_at(tag, dir.ino) else { return };
        let at = task.reading.iter().position(|r| r.tag == tag && r.dir == dir);
        let Ok(NativeReply::Names { names, next, dir: before }) = answer else {
            if let Some(at) = at {
                task.reading.remove(at);
            }
            return;
        };
        let changes = self.known.dir(ino).map_or(0, |dir| dir.changes);
        let mut reading = match at {
            Some(at) => task.reading.remove(at),
            None => {
                let section = self.known.dir(ino).map_or(Section::behind(0), |dir| dir.names.section());
                Reading { tag, dir, names: Gathered::new(section), before, changes, next: 0 }
            }
        };
        reading.names.add(names, self.known.home_bytes_max(ino));
        if let Some(next) = next {
            reading.next = next;
            task.reading.push(reading);
            return;
        }
        // Another section is wanted by now.
        let section = self.known.dir(ino).map(|dir| dir.names.section());
        if section.is_none_or(|section| section.after != reading.names.section().after) {
            return;
        }
        // A change while it was read, or just before, may or may not be in what was read.
        let recent = self.now.wall.nanos_from(reading.before.mtime) < TICK_NS;
        let racy = reading.changes != changes || (recent && !self.known.is_watched(ino, tag));
        let part = Part::Sure { times: DirTimes::from(&reading.before), at: self.now.ms, racy };
        self.known.read(ino, tag, reading.names, part, self.now.ms);
        task.read.push((tag, dir));
    }
}

/// The attributes in an answer.
fn seen(answer: &Result<NativeReply, Errno>) -> Seen {
    match answer {
        Ok(NativeReply::Stat(stat)) => Ok(*stat),
        Ok(_) => Err(Errno::EPROTO),
        Err(errno) => Err(*errno),
    }
}
