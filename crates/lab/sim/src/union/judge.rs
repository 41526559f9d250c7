//! Whether what a union answered and did in its members was right. Changes nothing.

use atoll_posix::{Answer, DirEntry, Errno, Kind, RenameMode};
use atoll_union::{Finished, NativeCall, NativeId, SOFT_MS, UnlinkRule};

use super::job::{Job, NAMES, What};
use super::members::{Members, Snapshot, below, split};
use super::process::Process;
use super::spec::{self, Shows, Since};
use crate::cause::Failure;

type Verdict = Result<(), Failure>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Failure::new(why())) }
}

/// Errors of members without room or that take no change.
fn is_poor(errno: Errno) -> bool {
    [Errno::ENOSPC, Errno::EROFS, Errno::EDQUOT].contains(&errno)
}

/// Judges one job by what the members had since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) since: Since<'a>,
    pub(super) job: &'a Job,
}

impl<'a> Judge<'a> {
    pub(super) fn new(members: &'a Members, process: &'a Process, job: &'a Job) -> Self {
        Self { since: Since { members, process, from: job.since, gone: &job.gone }, job }
    }

    /// An error says that a member does not answer.
    fn excuses(&self, errno: Errno) -> bool {
        let of = &self.since.process.of;
        let troubled = |at: &usize| self.since.process.is_troubled(self.since.members, *at, self.since.from);
        match errno {
            // A thread may be slow.
            Errno::ETIMEDOUT if self.since.members.now_ns >= self.job.began_ns + SOFT_MS * 1_000_000 => true,
            // What was written before a disk went may be lost, which is told once.
            Errno::EIO if self.job.what == What::Fsync && self.since.process.had_trouble() => true,
            Errno::EIO | Errno::ETIMEDOUT => of.iter().any(troubled),
            errno if is_poor(errno) => of.iter().any(|at| {
                self.since.members.all[*at].is_poor
                    || self
                        .since
                        .process
                        .machine
                        .members()
                        .get(super::process::tag(*at))
                        .is_some_and(|m| m.read_only)
            }),
            _ => false,
        }
    }

    /// A name of the walk was looked up.
    pub(super) fn looked(&self, path: &str, outcome: &Result<Finished, Errno>) -> Verdict {
        let since = &self.since;
        let moved = since.is_moved();
        match outcome {
            Err(Errno::ENOENT) => {
                ensure(moved || since.may_lack(path), || format!("{path} is hidden: ENOENT"))
            }
            Err(errno) if self.excuses(*errno) => Ok(()),
            Err(Errno::ESTALE | Errno::ENOTDIR) => {
                ensure(!since.is_quiet(), || format!("{path}: {outcome:?} and nothing has changed"))
            }
            Ok(Finished { answer: Answer::Found { found }, .. }) => {
                let (is_dir, ino) = (found.attr.kind == Kind::Directory, found.attr.ino);
                let could = match (is_dir, moved) {
                    (true, true) => true,
                    (true, false) => since.may_be_dir(path),
                    (false, true) => since.may_have_anywhere(split(path).1, ino),
                    (false, false) => since.may_have(path, ino),
                };
                ensure(could, || format!("{path} is invented: {found:?}"))?;
                let whole = since
                    .process
                    .of
                    .iter()
                    .all(|at| !since.process.is_troubled(since.members, *at, since.from));
                if !since.is_quiet() || !whole {
                    return Ok(());
                }
                let view = spec::present(since.members, since.process);
                let shows = spec::shown(&view, since.process.settings.same, path);
                let fits = match shows {
                    Shows::Nothing => false,
                    Shows::Dir => is_dir,
                    Shows::File(member, id) => !is_dir && spec::is_id(since.process, ino, member, id.ino),
                };
                ensure(fits, || format!("{path} is {found:?} and must be {shows:?}"))
            }
            other => Err(Failure::new(format!("a lookup of {path}: {other:?}"))),
        }
    }

    /// A listing has ended, with its end or an error.
    pub(super) fn listed(&self, end: &Result<(), Errno>) -> Verdict {
        let (since, dir) = (&self.since, self.job.from.as_str());
        let moved = since.is_moved();
        if let Err(errno) = end {
            let excused = self.excuses(*errno);
            let gone = [Errno::ESTALE, Errno::ENOENT, Errno::ENOTDIR].contains(errno) && !since.is_quiet();
            ensure(excused || gone, || format!("the listing of {dir} ends with {errno:?}"))?;
        }
        let mut plain: Vec<&str> = self.job.names.iter().map(String::as_str).collect();
        plain.retain(|name| !name.contains(".atoll-"));
        let beside = self.job.names.len() - plain.len();
        let listed = plain.len();
        plain.sort_unstable();
        plain.dedup();
        ensure(listed == plain.len(), || format!("{dir} lists a name twice: {:?}", self.job.names))?;
        if moved {
            return Ok(());
        }
        for name in &plain {
            ensure(since.may_list(dir, name), || format!("{dir} lists {name}, which is invented"))?;
        }
        for name in NAMES.iter().filter(|name| !plain.contains(name)) {
            let ended = end.is_ok();
            // An error may come before the first name.
            let cut = !ended && *end != Err(Errno::EIO);
            ensure(cut || since.may_hide(dir, name, ended), || format!("{dir} does not list {name}"))?;
        }
        if since.is_quiet() && end.is_ok() && self.is_whole() {
            let view = spec::present(since.members, since.process);
            let (names, more) = spec::names(&view, since.process.settings.same, dir);
            ensure(plain.len() == names.len() && beside == more, || {
                format!("{dir} lists {:?}, not {names:?} and {more} beside them", self.job.names)
            })?;
        }
        Ok(())
    }

    /// Whether all members have answered all the time.
    fn is_whole(&self) -> bool {
        let Since { members, process, from, .. } = self.since;
        process.of.iter().all(|at| !process.is_troubled(members, *at, from))
    }

    /// The operation that the job is about has ended.
    pub(super) fn ended(&self, outcome: &Result<Finished, Errno>) -> Verdict {
        let (job, since) = (self.job, &self.since);
        let only_own = since.members.moment - since.from == job.changes;
        let is_left = !job.back.is_empty() && !job.given_up && self.is_whole();
        ensure(!is_left, || format!("a directory that was removed is back: {:?}", job.back))?;
        match outcome {
            Ok(finished) => self.succeeded(finished, only_own),
            Err(errno) => {
                let harmless = match (job.what, *errno) {
                    // A directory that has lost an empty home is still there.
                    (What::Rmdir, _) => true,
                    // Somebody else has removed what was shown, and this one what stood behind it.
                    (What::Unlink, Errno::ENOENT) => !only_own,
                    // It was made in a directory that has got another name meanwhile.
                    (What::Create | What::Mkdir, Errno::ESTALE) => since.is_moved(),
                    (_, errno) => job.given_up || self.excuses(errno),
                };
                ensure(!job.acted || harmless, || {
                    format!("{:?} was made and is answered with {errno:?}", job.what)
                })?;
                self.refused(*errno, only_own)
            }
        }
    }

    fn succeeded(&self, finished: &Finished, only_own: bool) -> Verdict {
        let (job, since) = (self.job, &self.since);
        let moved = since.is_moved() && !only_own;
        let made = match job.what {
            What::Create | What::Mkdir => Some(job.from.as_str()),
            What::Link | What::Rename(RenameMode::NoReplace) => Some(job.to.as_str()),
            _ => None,
        };
        if let Some(path) = made {
            let same = job.from == job.to && job.what.has_target();
            ensure(moved || same || since.may_lack(path), || {
                format!("{:?} has made {path}, which was not free", job.what)
            })?;
        }
        match job.what {
            What::Read => {
                let Answer::Data = finished.answer else {
                    return Err(Failure::new(format!("a read: {finished:?}")));
                };
                let ino = job.walked[0].0;
                ensure(moved || since.may_read(ino, &finished.bytes), || {
                    format!("{} never had the bytes {:?}", job.from, finished.bytes)
                })
            }
            What::Create | What::Mkdir | What::Link | What::Unlink | What::Rmdir | What::Write => {
                ensure(job.acted, || format!("{:?} is answered and was never made", job.what))?;
                if job.what == What::Rmdir && !moved {
                    return ensure(since.may_lack_dir(&job.from), || {
                        format!("{} is left by its rmdir", job.from)
                    });
                }
                Ok(())
            }
            What::Rename(mode) if only_own && self.is_whole() => self.renamed(mode),
            _ => Ok(()),
        }
    }

    /// Nothing but the rename has changed anything.
    fn renamed(&self, mode: RenameMode) -> Verdict {
        let (job, Since { members, process, from, .. }) = (self.job, self.since);
        let state = |at: &usize| members.since(*at, from).next().expect("there is a state");
        let before: spec::View<'_> = process.of.iter().map(|at| (*at, state(at))).collect();
        let after = spec::present(members, process);
        let same = process.settings.same;
        let (old, new) = (job.from.as_str(), job.to.as_str());
        let [source, target] = [old, new].map(|path| spec::shown(&before, same, path));
        let [left, there] = [old, new].map(|path| spec::shown(&after, same, path));
        if source == target {
            return Ok(()); // Two names of one file, or the same name.
        }
        // What stands behind the files stays if a file is in the way of its new directory there.
        let blocked = |path: &str| {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            above.into_iter().any(|dir| after.iter().any(|(_, state)| state.file(dir).is_some()))
        };
        // Files that follow it may get its time, if the clocks tick slowly.
        let files = after.iter().filter_map(|(_, state)| state.file(new)).map(|node| node.stat.ctime);
        let mut times: Vec<_> = files.collect();
        times.sort_unstable();
        let tied = times.windows(2).any(|two| two[0] == two[1]);
        let blocked = blocked(new) || blocked(old) || job.left || tied;
        ensure(there == source || blocked, || {
            format!("{new} shows {there:?} after the rename and not {source:?}")
        })?;
        let should = if mode == RenameMode::Exchange { target } else { Shows::Nothing };
        let is_file = matches!(source, Shows::File(..));
        ensure(!is_file || left == should || blocked, || {
            format!("{old} shows {left:?} after the rename and not {should:?}")
        })
    }

    fn refused(&self, errno: Errno, only_own: bool) -> Verdict {
        let (job, since) = (self.job, &self.since);
        if self.excuses(errno) || (errno == Errno::ETIMEDOUT && job.given_up) {
            return Ok(());
        }
        let usual = [
            Errno::ENOENT,
            Errno::EEXIST,
            Errno::ENOTEMPTY,
            Errno::EISDIR,
            Errno::ENOTDIR,
            Errno::EINVAL,
            Errno::EXDEV,
            Errno::EOPNOTSUPP,
            Errno::ESTALE,
        ];
        let why = || format!("{:?} {} {} is refused with {errno:?}", job.what, job.from, job.to);
        ensure(usual.contains(&errno), why)?;
        if !only_own || !self.is_whole() {
            return Ok(());
        }
        let view = spec::present(since.members, since.process);
        let shows = |path: &str| spec::shown(&view, since.process.settings.same, path);
        let empty = |path: &str| view.iter().all(|(_, state)| state.names(path).next().is_none());
        let fits = match errno {
            Errno::ENOENT => shows(&job.from) == Shows::Nothing || shows(&job.to) == Shows::Nothing,
            Errno::EEXIST => [&job.from, &job.to].iter().any(|path| shows(path) != Shows::Nothing),
            Errno::ENOTEMPTY => !empty(&job.from) || !empty(&job.to),
            Errno::ESTALE => job.what == What::HeldWrite,
            _ => true,
        };
        ensure(fits, || format!("{} for no reason", why()))
    }

    /// A change was made in a member, which had this before.
    pub(super) fn changed(&self, member: usize, call: &NativeCall, before: &Snapshot) -> Verdict {
        let (job, since) = (self.job, &self.since);
        let moved = since.is_moved();
        let path = |dir: NativeId, name: &atoll_core::Name| {
            before.path_of(dir).map(|dir| below(dir, &name.to_string()))
        };
        let is = |path: &Option<String>, meant: &str| {
            let fits = |path: &String| path == meant || (moved && split(path).1 == split(meant).1);
            path.as_ref().is_none_or(fits)
        };
        let refuse = |why: &str| Err(Failure::new(format!("{why}: {:?} did {call:?}", job.what)));
        match call {
            NativeCall::Make { dir, name, .. } | NativeCall::Mkdir { dir, name, .. } => {
                let meant = is(&path(*dir, name), &job.from);
                ensure(meant && matches!(job.what, What::Create | What::Mkdir) && !job.acted, || {
                    format!("{:?} {} made {call:?}", job.what, job.from)
                })
            }
            NativeCall::Link { dir, name, .. } if job.what == What::Link => {
                ensure(is(&path(*dir, name), &job.to), || format!("a link is made elsewhere: {call:?}"))
            }
            NativeCall::MkdirLike { dir, name, .. } => {
                let Some(path) = path(*dir, name) else { return Ok(()) };
                let recent = Since { from: job.began, ..*since };
                ensure(recent.may_be_dir(&path), || format!("{path} is gone and was made again"))
            }
            // The one that it is like was removed meanwhile.
            NativeCall::Rmdir { id, .. } if job.chain.contains(&(member, *id)) => Ok(()),
            NativeCall::Rmdir { dir, name, .. } => match job.what {
                What::Rmdir if is(&path(*dir, name), &job.from) => Ok(()),
                // What is replaced may have got the old name first.
                What::Rename(_) if is(&path(*dir, name), &job.to) || is(&path(*dir, name), &job.from) => {
                    Ok(())
                }
                _ => refuse("a directory is removed that nobody meant"),
            },
            NativeCall::Unlink { dir, name, id } => {
                let there = path(*dir, name);
                let goes = |meant: &str| {
                    since.process.settings.unlink == UnlinkRule::All
                        || since.may_show(meant, member, *id)
                        || since.may_be_copy(meant, member, *id)
                };
                match job.what {
                    What::Unlink if is(&there, &job.from) => {
                        let right = moved || goes(&job.from);
                        ensure(right, || format!("{} was not shown and is unlinked: {call:?}", job.from))
                    }
                    What::Rename(_) if is(&there, &job.from) || is(&there, &job.to) => {
                        // Of two names of one file the old one goes.
                        let names = before.all().filter(|(_, node)| node.stat.id == *id).count();
                        let of_two = is(&there, &job.from) && names > 1;
                        let replaced = is(&there, &job.to) && (moved || job.acted && goes(&job.to));
                        ensure(of_two || replaced, || format!("what stays is removed by a rename: {call:?}"))
                    }
                    _ => refuse("a file is removed that nobody meant"),
                }
            }
            NativeCall::Rename { dir, name, id, new_dir, new_name, .. } => {
                let What::Rename(mode) = job.what else { return refuse("nobody meant a rename") };
                let (old, new) = (path(*dir, name), path(*new_dir, new_name));
                let forth = is(&old, &job.from) && is(&new, &job.to);
                let is_dir = old.as_ref().is_some_and(|old| before.is_dir(old));
                let may_back = is_dir || mode == RenameMode::Exchange;
                let back = may_back && is(&old, &job.to) && is(&new, &job.from);
                ensure(forth || back, || format!("another name is renamed: {call:?}"))?;
                let is_file = old.as_ref().and_then(|old| before.file(old)).is_some();
                let shown = moved || !is_file || since.may_show(&job.from, member, *id);
                ensure(shown || job.acted, || format!("what is hidden is renamed first: {call:?}"))
            }
            NativeCall::Write { of, .. } => {
                let ino = match job.held {
                    Some((_, at, id)) => {
                        return ensure((at, id) == (member, of.id), || {
                            format!("an open file is another one: {call:?} and not {id:?} of {at}")
                        });
                    }
                    None => job.walked[0].0,
                };
                let meant = job.what == What::Write && spec::is_id(since.process, ino, member, of.id.ino);
                ensure(meant, || format!("another file is written: {call:?}"))
            }
            NativeCall::SetAttr { of, set } => match job.what {
                What::Chmod => Ok(()),
                What::Rename(_) => {
                    let same = before.all().find(|(_, node)| node.stat.id == of.id);
                    let same = same.is_none_or(|(_, node)| set.mode == Some(node.stat.mode) || moved);
                    ensure(same || !since.is_quiet(), || format!("a rename changes attributes: {call:?}"))
                }
                _ => refuse("attributes are changed that nobody meant"),
            },
            _ => refuse("nobody meant this"),
        }
    }
}

/// The names of entries, with their cookies.
pub(super) fn names(entries: &[DirEntry]) -> impl Iterator<Item = (u64, String)> + '_ {
    entries.iter().map(|entry| (entry.cookie, entry.name.to_string()))
}
