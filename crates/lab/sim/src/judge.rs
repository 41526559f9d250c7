//! Judges one operation after another by the model, and the whole tree now and then.

use atoll_core::{Ino, Name, SessionId, Time, VolumePath};
use atoll_model::answer::{attr_differences, differences};
use atoll_model::{AtimeRule, Dump, Model, Outcome, Rng, Step, Strictness};
use atoll_posix::beside::AttrsBefore;
use atoll_posix::{Answer, Attr, AttrsAround, Caller, Errno, Kind, Op, SetAttr, XattrMode};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::frontend::is_at_or_above;
use crate::lost_links::{self, LostLinks};
use crate::world::World;

/// The model, and how it is kept in step with the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judge {
    /// What the tree must be.
    pub model: Model,
    /// Files without a name, and removed directories, that somebody may have open.
    pub orphans: Vec<Ino>,
    /// Directories that are removed, of which the mounts were not told yet.
    removed: Vec<Ino>,
    /// Files that have lost their last name in this round, where nobody says that he has one open.
    nameless: Vec<Ino>,
    lost_links: LostLinks,
}

/// What the world did with an operation, as far as the model needs to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As the model does.
    Same,
    /// Refused for what was away, or for what is not built; no effect.
    Refused,
}

impl Judge {
    /// The judge of a new volume.
    pub fn new(world: &mut World) -> Result<Self, Failure> {
        let root = match world.run(0, &Caller::ROOT, Op::GetAttr { ino: Ino::ROOT }, Bytes::new())? {
            Ok((Answer::Attr { attr }, _)) => attr,
            other => return Err(Failure::new(format!("the root's attributes: {other:?}"))),
        };
        let model = Model::new(root.btime, AtimeRule::Never).walked();
        let (orphans, removed, nameless) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { model, orphans, removed, nameless, lost_links: LostLinks::default() })
    }

    /// Runs an operation in the world, then in the model, and compares.
    pub fn run(&mut self, world: &mut World, client: usize, step: &Step) -> Result<Verdict, Failure> {
        if !world.knows_files(client, &self.model, &step.op) {
            return Ok(Verdict::Refused);
        }
        world.walk_to(client, &self.model, &step.op)?;
        self.lost_links.forget_told(world);
        let (faults, calm) = (world.faults, world.is_calm());
        let began = world.walls().0;
        let got = world.run_as(client, &step.caller, &step.op, &step.data)?;
        let disturbed = !calm || faults != world.faults || !world.is_calm() || world.is_ailing();
        self.compare(world, client, step, got, disturbed, began)
    }

    fn compare(
        &mut self,
        world: &mut World,
        client: usize,
        step: &Step,
        got: Done,
        disturbed: bool,
        began: Time,
    ) -> Result<Verdict, Failure> {
        if is_refused(&step.op, &got, disturbed, &self.model) {
            return Ok(Verdict::Refused);
        }
        let around = std::mem::take(&mut world.clients[client].around);
        let before: Vec<Attr> = step
            .op
            .subjects()
            .into_iter()
            .flatten()
            .filter_map(|ino| self.model.attr(ino).copied())
            .collect();
        let decided = self.time_of(world, client, step, &got)?;
        if let Some(at) = decided
            // Whichever island decided it, by its own clock or the latest time that it has seen.
            && (at < began || at > world.walls().1)
        {
            let why = format!("{:?}: decided at {at:?}, but it ran from {began:?}", step.op);
            return Err(Failure::new(why));
        }
        let links = lost_links::linked_by(&self.model, &step.op);
        let expected = self.apply(world, step, &got, decided.unwrap_or(began));
        self.lost_links.note(links, &self.model, world.now_us());
        self.forget_removed(world);
        let got = as_if_here(world, client, &self.model, &step.op, &expected, got);
        let strict = world.strict(Strictness::FULL);
        let mut what = verdict(&expected, &got, disturbed, strict);
        what.extend(around.iter().flat_map(|around| self.around_differences(&before, around, strict)));
        if what.is_empty() || disturbed && self.lost_links.explain(&step.op, &got) {
            return Ok(Verdict::Same);
        }
        Err(Failure::new(format!("{:?} of uid {}:\n  {}", step.op, step.caller.uid, what.join("\n  "))))
    }

    /// In what the attributes around an operation differ from the model's before it and after it.
    fn around_differences(&self, before: &[Attr], around: &AttrsAround, strict: Strictness) -> Vec<String> {
        let ino = around.after.ino;
        let (Some(was), Some(is)) = (before.iter().find(|attr| attr.ino == ino), self.model.attr(ino)) else {
            return vec![format!("attributes around it: {ino} is not what it is about")];
        };
        if self.is_removed_dir(ino) {
            // See `as_if_here`.
            return attr_differences(is, &Attr { ctime: is.ctime, ..around.after }, strict, true);
        }
        let mut what = attr_differences(is, &around.after, strict, true);
        if let Some(AttrsBefore { size, mtime, ctime }) = around.before {
            let size = if is.kind == Kind::Directory { was.size } else { size };
            what.extend(attr_differences(was, &Attr { size, mtime, ctime, ..*was }, strict, true));
        }
        what.into_iter().map(|what| format!("around it, of {ino}: {what}")).collect()
    }

    /// Applies an operation to the model, with the ids that the world gave. It may be one that has not happened,
    /// so the world is told of nothing.
    pub(crate) fn apply(&mut self, world: &World, step: &Step, got: &Done, now: Time) -> Done {
        let done = self.apply_with(world, step, got, now, true);
        self.forget_nameless();
        done
    }

    /// The same, while others go on with what they know: a file that has lost its last name keeps its bytes. Whoever looks at
    /// rights itself does so when it calls, and others may take them away before the operation is done.
    pub(crate) fn apply_in_round(&mut self, world: &World, step: &Step, got: &Done, now: Time) -> Done {
        self.apply_with(world, step, got, now, got.is_err())
    }

    fn apply_with(
        &mut self,
        world: &World,
        step: &Step,
        got: &Done,
        now: Time,
        looks_at_rights: bool,
    ) -> Done {
        if let (Op::Create { .. } | Op::Mkdir { .. }, Ok((Answer::Found { found }, _))) = (&step.op, got)
            && self.model.attr(found.attr.ino).is_none()
        {
            self.model.set_next_ino(found.attr.ino);
        }
        let removed = match &step.op {
            Op::Rmdir { dir, name, .. } => self.child(*dir, name),
            Op::Rename { new_dir, new_name, .. } => self.child(*new_dir, new_name),
            _ => None,
        };
        let known =
            Caller { groups: Some(step.caller.groups.clone().unwrap_or_default()), ..step.caller.clone() };
        let looks_at_rights = looks_at_rights && world.is_unchecked(&known);
        let may = if looks_at_rights { self.model.may_use(&known, &step.op) } else { Ok(()) };
        let outcome = may.and_then(|()| self.model.apply(now, step.session, &known, &step.op, &step.data));
        let done = match outcome {
            Ok(Outcome::Answered(answer, bytes)) => Ok((answer, bytes)),
            Ok(Outcome::Blocked) => Err(Errno::EAGAIN),
            Err(errno) => Err(errno),
        };
        if let Some(gone) = removed.filter(|gone| self.is_removed_dir(*gone)) {
            if world.config.mounts {
                self.orphans.push(gone);
            } else {
                self.model.forget(gone);
                self.removed.push(gone);
            }
        }
        match &done {
            Ok((Answer::Removed { orphan: Some(ino) }, _)) if world.config.mounts => self.orphans.push(*ino),
            Ok((Answer::Removed { orphan: Some(ino) }, _)) => self.nameless.push(*ino),
            _ => {}
        }
        match done {
            // Without mounts nothing keeps an orphan.
            Ok((Answer::Removed { .. }, bytes)) if !world.config.mounts => {
                Ok((Answer::Removed { orphan: None }, bytes))
            }
            other => other,
        }
    }

    fn child(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.model.children(dir).find(|(n, _)| *n == name).map(|(_, ino)| ino)
    }

    /// A path to list: mostly the whole tree, sometimes a directory or file in it.
    pub(crate) fn some_directory(&self, rng: &mut Rng) -> VolumePath {
        if rng.percent(70) {
            return VolumePath::default();
        }
        let tree = Dump::of(&self.model);
        let at = rng.index(tree.items.len());
        let path = tree.items.keys().nth(at).map_or(&b"/"[..], |path| path);
        VolumePath::parse(if path.is_empty() { b"/" } else { path }).unwrap_or_default()
    }

    /// Whether there is nothing of this number, or nothing but bytes.
    pub(crate) fn is_gone(&self, ino: Ino) -> bool {
        self.nameless.contains(&ino) || self.model.attr(ino).is_none()
    }

    /// Whether this is a directory that was removed, and that somebody may have open.
    pub(crate) fn is_removed_dir(&self, ino: Ino) -> bool {
        self.model.attr(ino).is_some_and(|attr| attr.kind == Kind::Directory && attr.nlink == 0)
    }

    pub(crate) fn forget_nameless(&mut self) {
        std::mem::take(&mut self.nameless).into_iter().for_each(|ino| self.model.forget(ino));
    }

    /// Every mount forgets the directories that are removed by what was applied, which has happened.
    pub(crate) fn forget_removed(&mut self, world: &mut World) {
        world.forget_all(&std::mem::take(&mut self.removed));
    }

    /// Every mount closes a file that has no name.
    pub(crate) fn close_orphan(&mut self, world: &mut World, at: usize) {
        let ino = self.orphans.swap_remove(at);
        self.model.forget(ino);
        world.forget_all(&[ino]);
    }

    /// The mount is gone that alone had files without names open, or locks.
    pub(crate) fn mount_died(&mut self, session: SessionId) {
        std::mem::take(&mut self.orphans).into_iter().for_each(|ino| self.model.forget(ino));
        self.model.end_session(session);
    }

    /// Every mount closes every file that has no name.
    pub fn close_orphans(&mut self, world: &mut World) {
        while !self.orphans.is_empty() {
            self.close_orphan(world, 0);
        }
    }

    /// Every mount closes every file that has no name, and some removed directories: all those of which the tree does
    /// not tell what became of them.
    pub(crate) fn close_most_orphans(&mut self, world: &mut World, untold: &[Ino]) {
        for at in (0..self.orphans.len()).rev() {
            let ino = self.orphans[at];
            if !self.is_removed_dir(ino) || untold.contains(&ino) || world.rng.percent(40) {
                self.close_orphan(world, at);
            }
        }
    }

    /// Often asks about a removed directory that somebody may have open instead.
    pub(crate) fn ask_about_removed(&self, rng: &mut Rng, step: &mut Step) {
        let removed: Vec<Ino> =
            self.orphans.iter().copied().filter(|ino| self.is_removed_dir(*ino)).collect();
        if removed.is_empty() || !rng.percent(30) {
            return;
        }
        let (ino, name) = (*rng.pick(&removed), Bytes::from_static(b"user.removed"));
        let set = SetAttr { mode: Some(0o700 + rng.below(64) as u32), ..SetAttr::default() };
        step.data = Bytes::new();
        step.op = match rng.below(8) {
            0..3 => Op::GetAttr { ino },
            3..5 => Op::SetAttr { ino, set },
            5 => {
                let (value, mode) = (Bytes::from(vec![b'x'; rng.index(40)]), XattrMode::Any);
                Op::SetXattr { ino, name, value, mode, kill_sgid: false }
            }
            6 => Op::GetXattr { ino, name },
            _ => Op::ListXattr { ino },
        };
    }

    /// When the world decided an operation, as its effect tells.
    fn time_of(
        &self,
        world: &mut World,
        client: usize,
        step: &Step,
        got: &Done,
    ) -> Result<Option<Time>, Failure> {
        let Ok((answer, _)) = got else { return Ok(None) };
        let attr = match (&step.op, answer) {
            (Op::Create { .. }, Answer::Found { found }) => {
                return Ok(self.model.attr(found.attr.ino).is_none().then_some(found.attr.ctime));
            }
            (Op::Mkdir { .. } | Op::Link { .. }, Answer::Found { found }) => found.attr,
            (Op::SetAttr { .. }, Answer::Attr { attr }) => *attr,
            (Op::Unlink { dir, .. } | Op::Rmdir { dir, .. }, _) => self.ask(world, client, *dir)?,
            (Op::Rename { dir, name, new_dir, new_name, .. }, _) => {
                if self.child(*dir, name) == self.child(*new_dir, new_name) {
                    return Ok(None);
                }
                self.ask(world, client, *dir)?
            }
            (Op::Write { .. } | Op::CopyRange { .. }, Answer::Wrote { len: 0, .. }) => return Ok(None),
            (
                Op::Write { ino, .. }
                | Op::Fallocate { ino, .. }
                | Op::SetXattr { ino, .. }
                | Op::CopyRange { to: ino, .. },
                _,
            ) => self.ask(world, client, *ino)?,
            (Op::RemoveXattr { ino, .. }, _) => {
                // Removing an ACL that is not there changes nothing. The model knows whether it is there; a time of change does
                // not tell, because that of a removed directory is by the clock of the island that has it.
                let mut after = self.clone();
                // Whether it is right is judged below.
                let _expected = after.apply(world, step, got, Time { secs: i64::MAX, nanos: 0 });
                let changed = |judge: &Self| judge.model.attr(*ino).map(|attr| attr.ctime);
                if changed(&after) == changed(self) {
                    return Ok(None);
                }
                self.ask(world, client, *ino)?
            }
            _ => return Ok(None),
        };
        Ok(Some(attr.ctime))
    }

    fn ask(&self, world: &mut World, client: usize, ino: Ino) -> Result<Attr, Failure> {
        let op = Op::GetAttr { ino };
        world.walk_to(client, &self.model, &op)?;
        for _ in 0..1000 {
            // While its owner is away, a directory's last known times are answered.
            let (calm, faults) = (world.is_calm(), world.faults);
            match world.run(client, &Caller::ROOT, op.clone(), Bytes::new())? {
                Ok((Answer::Attr { attr }, _)) if calm && world.is_calm() && faults == world.faults => {
                    return Ok(attr);
                }
                Err(errno) if errno != Errno::EIO => {
                    return Err(Failure::new(format!("attributes of {ino}: {errno:?}")));
                }
                _ => world.run_for(50_000)?,
            }
            if !world.is_calm() && world.rng.percent(10) {
                world.heal();
            }
        }
        Err(Failure::new(format!("attributes of {ino} cannot be had")))
    }

    /// Compares the whole tree.
    pub fn compare_trees(&self, world: &mut World, strict: Strictness) -> Result<(), Failure> {
        let got = world.dump(0)?;
        let mut expected = Dump::of(&self.model);
        // A directory that was told of by its stub has only static attributes; dumps ask the owner.
        let differ = expected.differences(&got, world.strict(strict));
        expected.items.clear();
        if differ.is_empty() {
            Ok(())
        } else {
            Err(Failure::new(format!("trees:\n  {}", differ.join("\n  "))))
        }
    }
}

/// What is refused although the model would do it: what spans islands and is not built yet, and what
/// needs an island that is away.
pub(crate) fn is_refused(op: &Op, got: &Done, disturbed: bool, model: &Model) -> bool {
    match (op, got) {
        (Op::CopyRange { from, to, .. }, Err(Errno::EXDEV)) => from != to,
        // A kernel has looked the name up before, and knows a directory when it sees one.
        (Op::Create { dir, name, exclusive: false, .. }, Err(Errno::EISDIR)) => {
            let there = model.children(*dir).find(|(n, _)| *n == name);
            there.and_then(|(_, ino)| model.attr(ino)).is_some_and(|a| a.kind == Kind::Directory)
        }
        (_, Err(Errno::EIO)) => disturbed,
        _ => false,
    }
}

/// The answer, as it would be if files were homed where their names are. Of a file that is homed elsewhere
/// a mount is told beside the answer that it is an orphan, and its owner is known only there: what else
/// is in the way of the operation may be told before that.
pub(crate) fn as_if_here(
    world: &World,
    client: usize,
    model: &Model,
    op: &Op,
    expected: &Done,
    got: Done,
) -> Done {
    let owner =
        |dir: &Ino| world.clients[client].route.dirs().get(*dir).map(|known| world.table.owner(known.key));
    let child = |dir: &Ino, name: &Name| {
        let mut children = model.children(*dir);
        children.find(|(n, _)| *n == name).map(|(_, ino)| ino)
    };
    let elsewhere = |dir: &Ino, name: &Name| {
        let there = child(dir, name);
        there.zip(owner(dir)).is_some_and(|(ino, owner)| world.may_be_pointer(ino, owner))
    };
    // A directory of this name is owned by the island that owns `of`.
    let is_with = |of: &Ino, dir: &Ino, name: &Name| {
        let there = child(dir, name);
        there.is_some_and(|there| owner(of).is_some() && owner(&there) == owner(of))
    };
    match (op, expected, &got) {
        // When it lost its name its owner's clock told, which is not that of its parent's owner.
        (Op::GetAttr { .. }, Ok((Answer::Attr { attr: a }, _)), Ok((Answer::Attr { attr: b }, bytes)))
            if a.kind == Kind::Directory && a.nlink == 0 =>
        {
            Ok((Answer::Attr { attr: Attr { ctime: a.ctime, ..*b } }, bytes.clone()))
        }
        (
            Op::Unlink { dir, .. } | Op::Rename { dir, .. },
            Ok((Answer::Removed { orphan: Some(ino) }, _)),
            Ok((Answer::Removed { orphan: None }, _)),
        ) if owner(dir).is_some_and(|island| world.may_be_pointer(*ino, island)) => expected.clone(),
        (Op::Seek { ino, offset, whence }, Ok((Answer::Offset { .. }, _)) | Err(Errno::ENXIO), _) => {
            let told = match &got {
                Ok((Answer::Offset { offset }, _)) => Some(*offset),
                Err(Errno::ENXIO) => None,
                _ => return got,
            };
            if model.may_tell(*ino, *offset, *whence, told) { expected.clone() } else { got }
        }
        // What cannot be seen without what all islands know comes last.
        (Op::Rename { .. }, Err(Errno::EINVAL), Err(_)) => expected.clone(),
        // A kernel sees itself that something would go over a directory above it, unless that has just moved there. An
        // island then sees first that the caller may not, or that a file would replace a directory.
        (
            Op::Rename { dir, new_dir, new_name, .. },
            Err(Errno::ENOTEMPTY),
            Err(Errno::EACCES | Errno::EPERM | Errno::EISDIR),
        ) if child(new_dir, new_name).is_some_and(|there| is_at_or_above(model, there, *dir)) => {
            expected.clone()
        }
        // The one is known to the owner of the directory that moves, the other to that of what it replaces.
        (Op::Rename { dir, name, new_dir, new_name, .. }, Err(Errno::EACCES), Err(Errno::ENOTEMPTY))
            if [(dir, name), (new_dir, new_name)].iter().any(|(d, n)| !is_with(dir, d, n)) =>
        {
            expected.clone()
        }
        (
            Op::Rmdir { dir, name, .. } | Op::Rename { dir, name, .. },
            Err(Errno::EPERM),
            Err(Errno::EACCES | Errno::EISDIR | Errno::ENOTDIR),
        ) if elsewhere(dir, name) => expected.clone(),
        (
            Op::Rename { new_dir, new_name, .. },
            Err(Errno::EPERM),
            Err(Errno::EACCES | Errno::EISDIR | Errno::ENOTDIR),
        ) if elsewhere(new_dir, new_name) => expected.clone(),
        _ => got,
    }
}

/// In what two outcomes of one operation differ.
pub(crate) fn verdict(expected: &Done, got: &Done, disturbed: bool, strict: Strictness) -> Vec<String> {
    match (expected, got) {
        (Ok((Answer::Data, a)), Ok((Answer::Data, b))) if a == b || same_names(a, b) => Vec::new(),
        (Ok((Answer::Data, a)), Ok((Answer::Data, b))) => {
            let at = a.iter().zip(b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()));
            vec![format!("bytes: expected {} of them, got {}, first difference at {at}", a.len(), b.len())]
        }
        // What a skeleton tells while an owner is away may be old, and so may what is known of a link.
        (Ok((Answer::Attr { attr: a }, _)), Ok((Answer::Attr { attr: b }, _)))
            if disturbed && matches!(a.kind, Kind::Directory | Kind::Symlink) =>
        {
            let same = (a.ino, a.kind) == (b.ino, b.kind);
            if same { Vec::new() } else { vec![format!("expected {a:?}, got {b:?}")] }
        }
        (Ok((Answer::Found { found: a }, _)), Ok((Answer::Found { found: b }, _)))
            if disturbed && matches!(a.attr.kind, Kind::Directory | Kind::Symlink) && !b.attr_current =>
        {
            let same = (a.attr.ino, a.attr.kind) == (b.attr.ino, b.attr.kind);
            if same { Vec::new() } else { vec![format!("expected {a:?}, got {b:?}")] }
        }
        (Ok((a @ Answer::Entries { .. }, _)), Ok((b, _))) if disturbed => {
            differences(&without_stubs(a), &without_stubs(b), strict)
        }
        (Ok((a, _)), Ok((b, _))) => differences(a, b, strict),
        (Err(a), Err(b)) if a == b => Vec::new(),
        (a, b) => vec![format!("expected {}, got {}", shown(a), shown(b))],
    }
}

/// A listing without the attributes of directories: an owner that is away may have changed them.
fn without_stubs(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    if let Answer::Entries { entries, .. } = &mut answer {
        entries.iter_mut().filter(|e| e.kind == Kind::Directory).for_each(|e| e.found = None);
    }
    answer
}

fn shown(done: &Done) -> String {
    match done {
        Ok((answer, _)) => format!("{answer:?}"),
        Err(errno) => errno.name().to_owned(),
    }
}

/// Lists of names, each with a NUL behind it, are sets.
fn same_names(a: &[u8], b: &[u8]) -> bool {
    let names = |list: &[u8]| {
        let mut names: Vec<Vec<u8>> = list.split_inclusive(|&b| b == 0).map(<[u8]>::to_vec).collect();
        names.sort();
        names
    };
    a.len() == b.len() && a.last() == Some(&0) && names(a) == names(b)
}
