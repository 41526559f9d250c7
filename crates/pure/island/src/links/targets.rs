//! Finds where a symbolic link leads: reads its target as names, walks them through the directories that this
//! island knows, then asks islands that know more. Decides only whether other islands should know the link,
//! never an answer.

use std::collections::BTreeSet;

use atoll_core::{Ino, IslandId, Key, Name, VolumePath};
use atoll_posix::{Errno, Kind};
use atoll_proto::{EntryRef, LinkTarget, PeerOp};

use crate::ctx::Ctx;
use crate::ctx::request::Blocked;
use crate::links::CarriedLinks;

/// Links on the way of a target that are followed.
const FOLLOWED_MAX: u32 = 8;
/// Islands that are asked for one target.
const HOPS_MAX: u32 = 32;

impl Ctx {
    /// Another island asks where a path leads.
    pub(crate) fn on_leads(&mut self, from: IslandId, link: Ino, path: &VolumePath) -> Result<(), Blocked> {
        let led = self.leads(path)?;
        self.send(self.state.seen(), from, PeerOp::LeadsTo { link, led });
        Ok(())
    }

    /// The names of a directory from the root down; none if it is not known here.
    fn names_down_to(&self, dir: Ino) -> Result<Option<Vec<Name>>, Blocked> {
        match self.ancestors(dir) {
            Ok(chain) => Ok(Some(chain.iter().filter_map(|(_, dir)| dir.place.name.clone()).collect())),
            Err(Blocked::Fail(_)) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    /// Walks as far as this island knows, also through links that are carried.
    fn leads(&self, path: &VolumePath) -> Result<LinkTarget, Blocked> {
        let (mut path, mut followed) = (path.clone(), 0);
        'again: loop {
            let (mut at, mut dir) = (Ino::ROOT, self.state.dir(Ino::ROOT)?.ok_or(Blocked::Fail(Errno::EIO))?);
            for (depth, name) in path.names().iter().enumerate() {
                let entry = self.state.entry(at, name)?;
                if let Some(entry) = entry.filter(|entry| entry.kind == Kind::Directory) {
                    match (self.state.dir(entry.ino)?, &entry.stub) {
                        (Some(below), _) => (at, dir) = (entry.ino, below),
                        (None, Some(_)) if depth + 1 == path.names().len() => {
                            return Ok(LinkTarget::Directory);
                        }
                        (None, Some(stub)) => return Ok(LinkTarget::Elsewhere { key: stub.key, path }),
                        (None, None) => return Ok(LinkTarget::Elsewhere { key: dir.key, path }),
                    }
                    continue;
                }
                if let Some(link) = self.state.link_at(at, name) {
                    followed += 1;
                    let (above, rest) = (path.names()[..depth].to_vec(), &path.names()[depth + 1..]);
                    match beside(above, &link.target).and_then(|to| joined(to, rest)) {
                        Some(next) if followed <= FOLLOWED_MAX => path = next,
                        _ => return Ok(LinkTarget::Nothing),
                    }
                    continue 'again;
                }
                return Ok(match entry {
                    None if dir.owned.is_none() => LinkTarget::Elsewhere { key: dir.key, path },
                    _ => LinkTarget::Nothing,
                });
            }
            return Ok(LinkTarget::Directory);
        }
    }
}

/// The place to which a target leads from the link's directory, by the names alone. None if it leads out of
/// the volume, as every absolute target does: only the machines that mount a volume know where it is mounted.
fn beside(mut at: Vec<Name>, target: &[u8]) -> Option<VolumePath> {
    if target.first() == Some(&b'/') {
        return None;
    }
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(at.pop()?),
            name => at.push(Name::new(name).ok()?),
        }
    }
    VolumePath::from_names(at).ok()
}

fn joined(path: VolumePath, rest: &[Name]) -> Option<VolumePath> {
    VolumePath::from_names([path.names(), rest].concat()).ok()
}

impl CarriedLinks {
    /// Finds out whether a link of this island's leads to a directory.
    pub(crate) fn look_where(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        names: &BTreeSet<EntryRef>,
    ) -> Result<(), Blocked> {
        let target = ctx.file(ino)?.target.clone().unwrap_or_default();
        // Any of its names will do: a relative target of two names in different directories leads to two.
        let Some(entry_ref) = names.first() else { return Ok(()) };
        match ctx.names_down_to(entry_ref.dir)?.and_then(|at| beside(at, &target)) {
            Some(path) => self.follow_target(ctx, ino, names, path, 0),
            None => {
                self.checked(ctx, ino);
                Ok(())
            }
        }
    }

    fn follow_target(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        names: &BTreeSet<EntryRef>,
        path: VolumePath,
        hops: u32,
    ) -> Result<(), Blocked> {
        match ctx.leads(&path)? {
            LinkTarget::Directory => ctx.leads_to_directory(ino, names)?,
            LinkTarget::Elsewhere { key, path } => self.ask_further(ctx, ino, names, key, path, hops),
            LinkTarget::Nothing => self.checked(ctx, ino),
        }
        Ok(())
    }

    fn ask_further(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        names: &BTreeSet<EntryRef>,
        key: Key,
        path: VolumePath,
        hops: u32,
    ) {
        let island = ctx.config.owner(key);
        if island == ctx.config.id || !ctx.peers.is_reachable(island) || hops >= HOPS_MAX {
            // It is not known now: looked at again when it is used.
            self.checked(ctx, ino);
        } else if self.ask_where(ctx, ino, island, names, hops) {
            ctx.send(0, island, PeerOp::Leads { link: ino, path });
        }
    }

    pub(crate) fn on_leads_to(
        &mut self,
        ctx: &mut Ctx,
        from: IslandId,
        link: Ino,
        led: &LinkTarget,
    ) -> Result<(), Blocked> {
        let Some(asking) = self.asking.get(&link).filter(|asking| asking.island == from) else {
            return Ok(());
        };
        let (names, hops) = (asking.names.clone(), asking.hops);
        match led {
            LinkTarget::Directory => ctx.leads_to_directory(link, &names)?,
            LinkTarget::Nothing => self.checked(ctx, link),
            LinkTarget::Elsewhere { key, path } if ctx.config.owner(*key) == ctx.config.id => {
                self.follow_target(ctx, link, &names, path.clone(), hops + 1)?;
            }
            LinkTarget::Elsewhere { key, path } => {
                self.asking.remove(&link);
                self.ask_further(ctx, link, &names, *key, path.clone(), hops + 1);
                return Ok(());
            }
        }
        if self.asking.get(&link).is_some_and(|asking| asking.hops == hops) {
            self.asking.remove(&link);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(at: &str, target: &str) -> Option<String> {
        let at = VolumePath::parse(at.as_bytes()).unwrap().names().to_vec();
        beside(at, target.as_bytes()).map(|path| path.to_string())
    }

    #[test]
    fn a_target_is_read_from_where_its_link_is_and_none_leads_out_of_the_volume() {
        for (target, to) in [
            ("c", Some("/a/b/c")),
            ("../x//y/./", Some("/a/x/y")),
            ("../..", Some("/")),
            (".", Some("/a/b")),
            ("../../../x", None),
            ("/a/b", None),
        ] {
            assert_eq!(led("/a/b", target).as_deref(), to, "{target}");
        }
        assert_eq!(led("/a", &"n".repeat(256)), None);
        assert_eq!(led("/a", &"n/".repeat(2048)), None);
    }
}
