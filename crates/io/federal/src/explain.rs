//! Who has a name, which is shown, and what is removed of it by hand. Looks in every member at the moment when it is asked.

use atoll_core::{Ino, Name, VolumePath};
use atoll_posix::{Answer, Errno, Kind, Op};
use atoll_union::{FrontendId, HomeRole, NativeCall, NativeReply, NativeStat, SeenHome, Tag, Union, Who};

use crate::Federation;

/// Bytes of names that are read at once.
const PORTION_BYTES: u32 = 1 << 20;

/// A name as all members have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameSeen {
    /// The name that the members have. None: the root.
    pub name: Option<Name>,
    /// What each member has that has something, in the union's order, and what of the name that is.
    pub homes: Vec<(Tag, NativeStat, HomeRole)>,
    /// Members that cannot be asked, and why.
    pub unasked: Vec<(Tag, Errno)>,
    /// The members that have the directory in which it is; its anchor first.
    pub dir_homes: Vec<Tag>,
    /// The members that the name would go to if it were new, best first.
    pub place: Vec<Tag>,
}

/// Why a name is not resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotResolved {
    /// The member that is to keep it has no file of this name.
    NotThere,
    /// A member has a directory of this name.
    Directory(Tag),
    /// A member cannot be asked, or its file cannot be removed.
    Failed(Tag, Errno),
    /// Nothing of this path is there.
    NoPath(Errno),
}

/// What a directory's homes have of a name.
pub(crate) struct Looked {
    pub(crate) seen: Vec<SeenHome>,
    pub(crate) unasked: Vec<(Tag, Errno)>,
    dir_homes: Vec<Tag>,
}

impl Federation {
    /// Looks at what every member has of a path. The error of walking to its directory.
    pub fn explain(&self, path: &VolumePath) -> Result<NameSeen, Errno> {
        let Some((last, above)) = path.names().split_last() else { return Ok(self.explain_root()) };
        let dir = self.walk(above)?;
        let (mut name, mut looked) = (last.clone(), self.look_everywhere(dir, last)?);
        if looked.seen.is_empty()
            && let Some(base) = Union::name_beneath(last)
        {
            let beneath = self.look_everywhere(dir, &base)?;
            if !beneath.seen.is_empty() {
                (name, looked) = (base, beneath);
            }
        }
        Ok(self.told(dir, name, looked))
    }

    fn told(&self, dir: Ino, name: Name, Looked { seen, unasked, dir_homes }: Looked) -> NameSeen {
        let machine = self.machine();
        let roles = machine.roles(&name, &seen);
        let stat = |tag| seen.iter().find(|(of, ..)| *of == tag).map(|(.., stat)| *stat);
        let homes = roles.into_iter().filter_map(|(tag, role)| Some((tag, stat(tag)?, role))).collect();
        let is_dir = seen.iter().any(|(.., stat)| stat.kind == Kind::Directory);
        let place = machine.place_order(dir, &name, is_dir);
        NameSeen { name: Some(name), homes, unasked, dir_homes, place }
    }

    fn explain_root(&self) -> NameSeen {
        let (homes, _) = self.machine().dir_homes(Ino::ROOT);
        let (mut seen, mut unasked) = (Vec::new(), Vec::new());
        for (tag, id) in &homes {
            let call = NativeCall::Stat { of: atoll_union::At { id: *id, seen: None } };
            match self.call(*tag, &Who::Daemon, &call, &[]) {
                Ok(NativeReply::Stat(stat)) => seen.push((*tag, stat, HomeRole::Part)),
                Ok(_) => unasked.push((*tag, Errno::EPROTO)),
                Err(errno) => unasked.push((*tag, errno)),
            }
        }
        let dir_homes = homes.into_iter().map(|(tag, _)| tag).collect();
        NameSeen { name: None, homes: seen, unasked, dir_homes, place: Vec::new() }
    }

    /// The directory of these names.
    pub(crate) fn walk(&self, names: &[Name]) -> Result<Ino, Errno> {
        names.iter().try_fold(Ino::ROOT, |dir, name| {
            match self.inquire(FrontendId::NOBODY, Op::Lookup { dir, name: name.clone() })? {
                Answer::Found { found } if found.attr.kind == Kind::Directory => Ok(found.attr.ino),
                _ => Err(Errno::ENOTDIR),
            }
        })
    }

    pub(crate) fn look_everywhere(&self, dir: Ino, name: &Name) -> Result<Looked, Errno> {
        // Finds which members have the directory now.
        let told = self.inquire(FrontendId::NOBODY, Op::Lookup { dir, name: name.clone() });
        let (homes, may_have) = self.machine().dir_homes(dir);
        if let (Err(errno), true) = (told, homes.is_empty()) {
            return Err(errno);
        }
        let (mut seen, mut unasked) = (Vec::new(), Vec::new());
        for (tag, id) in &homes {
            let call = NativeCall::Look { dir: *id, name: name.clone() };
            match self.call(*tag, &Who::Daemon, &call, &[]) {
                Ok(NativeReply::Stat(stat)) => seen.push((*tag, *id, stat)),
                Ok(_) => unasked.push((*tag, Errno::EPROTO)),
                Err(Errno::ENOENT) => {}
                Err(errno) => unasked.push((*tag, errno)),
            }
        }
        unasked.extend(may_have.into_iter().map(|tag| (tag, Errno::EIO)));
        Ok(Looked { seen, unasked, dir_homes: homes.into_iter().map(|(tag, _)| tag).collect() })
    }

    /// Names of a directory that several members have with different contents: about `max` of those behind a cookie; and where
    /// the next portion begins. The error of reading the directory: then some may be missing.
    pub fn conflicts(
        &self,
        path: &VolumePath,
        after: u64,
        max: usize,
    ) -> Result<(Vec<NameSeen>, Option<u64>), Errno> {
        let dir = self.walk(path.names())?;
        let mut cookie = 0;
        loop {
            let read = self.inquire(
                FrontendId::NOBODY,
                Op::ReadDir { dir, after: cookie, bytes: PORTION_BYTES, plus: false },
            )?;
            let Answer::Entries { entries, eof } = read else { return Err(Errno::EPROTO) };
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            if eof {
                break;
            }
        }
        let (names, next) = self.machine().names_in_several(dir, after, max);
        let mut conflicts = Vec::new();
        for name in names {
            let looked = self.look_everywhere(dir, &name)?;
            let told = self.told(dir, name, looked);
            let is_copy = |role: &HomeRole| matches!(role, HomeRole::Shown | HomeRole::Twin);
            if told.homes.len() > 1 && !told.homes.iter().all(|(.., role)| is_copy(role)) {
                conflicts.push(told);
            }
        }
        Ok((conflicts, next))
    }

    /// Removes the files of a name in all members but one. Each is removed only if it is still the one that was looked at just
    /// now; the shown one goes last. The members from which one was removed.
    pub fn resolve(&self, path: &VolumePath, keep: Tag) -> Result<Vec<Tag>, NotResolved> {
        let (last, above) = path.names().split_last().ok_or(NotResolved::NotThere)?;
        let dir = self.walk(above).map_err(NotResolved::NoPath)?;
        let looked = self.look_everywhere(dir, last).map_err(NotResolved::NoPath)?;
        if let Some((tag, errno)) = looked.unasked.first() {
            return Err(NotResolved::Failed(*tag, *errno));
        }
        if let Some((tag, ..)) = looked.seen.iter().find(|(.., stat)| stat.kind == Kind::Directory) {
            return Err(NotResolved::Directory(*tag));
        }
        if looked.seen.iter().all(|(tag, ..)| *tag != keep) {
            return Err(NotResolved::NotThere);
        }
        let (roles, mut going) = {
            let machine = self.machine();
            let going: Vec<SeenHome> = looked.seen.iter().filter(|(tag, ..)| *tag != keep).copied().collect();
            let is_read_only = |tag: Tag| machine.members().get(tag).is_none_or(|member| member.read_only);
            if let Some((tag, ..)) = going.iter().find(|(tag, ..)| is_read_only(*tag)) {
                return Err(NotResolved::Failed(*tag, Errno::EROFS));
            }
            (machine.roles(last, &looked.seen), going)
        };
        going.sort_by_key(|(tag, ..)| roles.contains(&(*tag, HomeRole::Shown)));
        let mut removed = Vec::new();
        for home in going {
            let tag = home.0;
            self.remove_by_hand(dir, last, &home).map_err(|errno| NotResolved::Failed(tag, errno))?;
            removed.push(tag);
        }
        Ok(removed)
    }

    fn remove_by_hand(&self, dir: Ino, name: &Name, home: &SeenHome) -> Result<(), Errno> {
        let open = self.machine().to_hold_open(home);
        if let Some(planned) = open {
            let answer = self.call(planned.tag, &planned.who, &planned.call, &[]);
            self.machine().holds_open(&planned, &answer);
        }
        let planned = Union::to_remove(home, name);
        self.call(planned.tag, &planned.who, &planned.call, &[])?;
        self.changed_by_hand(dir, planned.tag, name);
        Ok(())
    }

    /// A member has something else of this name now, and no operation of a frontend has done that.
    pub(crate) fn changed_by_hand(&self, dir: Ino, tag: Tag, name: &Name) {
        self.machine().name_changed(dir, tag, name);
        self.frontends.tell(None, &[], &[(dir, name.clone())]);
    }
}
