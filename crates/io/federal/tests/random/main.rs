//! Seeded random runs of a union over simulated members, judged by what the members have. Runs by a clock of its own; one thread.
//!
//! `ATOLL_UNION_SEEDS=FROM..TO` runs those seeds instead of those of CI.

mod world;

use atoll_core::Ino;
use atoll_posix::{Errno, Kind, RenameMode};
use world::{Dump, Shows, World, show};

/// Seeds of CI.
const SEEDS: std::ops::Range<u64> = 1..501;
/// Steps of a run.
const STEPS: u32 = 60;

/// Random numbers (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % most
    }

    fn path(&mut self) -> String {
        let name = |rng: &mut Self| ["a", "b", "c", "d"][rng.below(4) as usize];
        let mut path = name(self).to_string();
        for _ in 0..self.below(3) {
            path = format!("{path}/{}", name(self));
        }
        path
    }
}

/// A run: the world, and what its members had since everything that others did was sure to be seen.
struct Run {
    rng: Rng,
    world: World,
    /// What the members had at each moment that may still be shown. The last one is now.
    recent: Vec<Vec<Dump>>,
    /// A directory was moved or removed directly, and names may lead to where it was.
    moved: bool,
    log: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let world = World::new(2 + rng.below(3) as usize);
        let mut world = world;
        for _ in 0..rng.below(24) {
            let member = rng.below(world.away.len() as u64) as usize;
            let path = rng.path();
            if rng.below(2) == 0 {
                world.direct_mkdir(member, &path)
            } else {
                world.direct_put(member, &path)
            };
        }
        let recent = vec![world.dumps()];
        Self { rng, world, recent, moved: false, log: Vec::new() }
    }

    fn settled(&self) -> bool {
        self.recent.len() == 1
    }

    fn now(&self) -> &Vec<Dump> {
        self.recent.last().expect("there is a present")
    }

    /// Waits until whatever others did must be seen.
    fn settle(&mut self) {
        for _ in 0..11 {
            self.world.step(100);
        }
        (self.recent, self.moved) = (vec![self.world.dumps()], false);
    }

    /// What members that answer show at a path.
    fn shown(&self, dumps: &[Dump], path: &str) -> Shows {
        show(dumps, path, |member| !self.world.away[member])
    }

    fn whole(&self) -> bool {
        self.world.away.iter().all(|away| !away)
    }

    /// The directory of a path, each step judged; and its last name.
    fn parent<'p>(&mut self, path: &'p str) -> Option<(Ino, &'p str)> {
        let (dir, last) = path.rsplit_once('/').unwrap_or(("", path));
        let ino = if dir.is_empty() { Ino::ROOT } else { self.lookup(dir)? };
        // The kernel goes on only below directories.
        (!self.world.is_file(ino)).then_some((ino, last))
    }

    /// Looks a path up from the root.
    fn lookup(&mut self, path: &str) -> Option<Ino> {
        let (dir, last) = self.parent(path)?;
        let found = self.world.lookup(dir, last);
        self.log.push(format!("lookup {path}: {:?}", found.map(|attr| (attr.kind, attr.ino))));
        if self.moved {
            return found.ok().map(|attr| attr.ino);
        }
        // Each member may be seen as it was at any moment since all was seen.
        let members = 0..self.world.away.len();
        let lacked = members.clone().all(|member| self.recent.iter().any(|dumps| !dumps[member].has(path)));
        let fits = match &found {
            Err(Errno::ENOENT) => lacked,
            Err(Errno::EIO) => !self.whole(),
            Err(Errno::ESTALE | Errno::ENOTDIR) => !self.settled(),
            Err(_) => false,
            Ok(attr) if self.settled() => {
                self.shown(self.now(), path).is(attr.kind == Kind::Directory, attr.ino)
            }
            Ok(attr) => self.recent.iter().any(|dumps| {
                let shows = |member| show(dumps, path, |of| of == member && !self.world.away[of]);
                members.clone().any(|member| shows(member).is(attr.kind == Kind::Directory, attr.ino))
            }),
        };
        assert!(fits, "{path} shows {found:?}, not what the members have");
        found.ok().map(|attr| attr.ino)
    }

    fn list(&mut self, path: &str) {
        let ino = if path.is_empty() { Some(Ino::ROOT) } else { self.lookup(path) };
        let Some(ino) = ino.filter(|ino| !self.world.is_file(*ino)) else { return };
        let (names, end) = self.world.list(ino);
        self.log.push(format!("list {path}: {names:?} {end:?}"));
        if self.moved || self.now().iter().all(|dump| !dump.is_dir(path)) {
            return;
        }
        let plain: Vec<&String> = names.iter().filter(|name| !name.contains(".atoll-")).collect();
        let has = |dumps: &Vec<Dump>, member: usize, name: &str| dumps[member].names(path).contains(name);
        for name in &plain {
            let had = |dumps| (0..self.world.away.len()).any(|member| has(dumps, member, name));
            assert!(self.recent.iter().any(had), "{name} is invented");
        }
        for name in ["a", "b", "c", "d"] {
            let kept = |member| self.recent.iter().all(|dumps| has(dumps, member, name));
            let must = (0..self.world.away.len())
                .any(|member| (end.is_ok() || !self.world.away[member]) && kept(member));
            assert!(!must || plain.iter().any(|there| *there == name), "{name} is hidden");
        }
        let mut once = plain.clone();
        once.dedup();
        assert_eq!(once, plain, "a name is listed twice");
        assert!(end.is_ok() || !self.whole() || !self.settled(), "no end: {end:?}");
        if self.settled() && self.whole() {
            let beside: usize = self.beside(path);
            assert_eq!(names.len() - plain.len(), beside, "files beside directories of their names");
        }
    }

    /// How many files have the name of a directory.
    fn beside(&self, path: &str) -> usize {
        let at = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
        let count = |name: &&str| {
            let dumps = self.now().iter();
            let is_dir = dumps.clone().any(|dump| dump.is_dir(&at(name)));
            dumps.filter(|dump| is_dir && dump.file(&at(name)).is_some()).count()
        };
        ["a", "b", "c", "d"].iter().map(count).sum()
    }

    /// Makes a change through the union. Its outcome must be what the members have then.
    fn change(
        &mut self,
        what: &str,
        from: &str,
        to: &str,
        make: impl FnOnce(&mut World) -> Result<(), Errno>,
    ) {
        let (before, settled) = (self.now().clone(), self.settled());
        let outcome = make(&mut self.world);
        let after = self.world.dumps();
        self.log.push(format!("{what} {from} {to}: {outcome:?}"));
        let ok = outcome.is_ok();
        for (member, (old, new)) in before.iter().zip(&after).enumerate() {
            for (path, file) in old.files() {
                if new.has_inode(file.ino) {
                    let same = new.data(file.ino) == old.data(file.ino) || (ok && what == "write");
                    assert!(same, "{what} changed the bytes of {path} in member {member}");
                    continue;
                }
                let target = if what == "unlink" { from } else { to };
                let last = |path: &str| path.rsplit('/').next().map(str::to_string);
                let meant = path == target || (self.moved && last(path) == last(target));
                let may = ok && meant && ["unlink", "replace"].contains(&what);
                assert!(may, "{what} lost {path} of member {member}");
            }
            assert!(!self.world.away[member] || old == new, "a member that is away was changed");
            if ok {
                continue;
            }
            for path in new.paths().filter(|path| !old.has(path)) {
                let shown = before.iter().any(|dump| dump.is_dir(path));
                assert!(new.is_dir(path) && (shown || self.moved), "refused {what} made {path}");
            }
            for path in old.paths().filter(|path| !new.has(path)) {
                assert!(what == "rmdir" && !settled, "refused {what} removed {path}");
            }
        }
        if ok && settled {
            self.judge_done(what, from, to, &before, &after);
        }
        if !ok && settled && self.whole() {
            self.judge_refused(what, from, to, outcome.expect_err("it is refused"), &before);
        }
        if settled {
            self.recent.clear();
        }
        self.recent.push(after);
    }

    /// What a change that succeeded has brought about.
    fn judge_done(&self, what: &str, from: &str, to: &str, before: &[Dump], after: &[Dump]) {
        let free = |path| matches!(show(before, path, |_| true), Shows::Nothing);
        let shown = |dumps: &[Dump], path: &str| self.shown(dumps, path);
        match what {
            "create" | "mkdir" | "noreplace" | "link" => {
                assert!(free(to), "{what} made {to}, which was not free");
                let places = after.iter().filter(|dump| dump.has(to)).count();
                assert!(places == 1 || what == "noreplace", "{what} made {to} in {places} members");
                assert!(places > 0, "{what} has made nothing");
            }
            "unlink" => {
                let removed = before.iter().zip(after).filter(|(old, new)| old.has(from) && !new.has(from));
                assert_eq!(removed.count(), 1, "unlink removes what was shown");
                let Shows::File(member, _) = shown(before, from) else { panic!("it showed no file") };
                assert!(!after[member].has(from), "unlink left what was shown");
            }
            "rmdir" => {
                assert!(before.iter().all(|dump| dump.names(from).is_empty()), "rmdir of a full directory");
                assert!(after.iter().all(|dump| !dump.is_dir(from)), "rmdir left a directory");
            }
            _ => {}
        }
        let same = shown(before, from) == shown(before, to);
        if what == "exchange" {
            assert!(same || shown(after, to).eq(&shown(before, from)), "exchange: {to} shows something else");
            assert!(
                same || shown(after, from).eq(&shown(before, to)),
                "exchange: {from} shows something else"
            );
        }
        if ["noreplace", "replace"].contains(&what) && !same {
            assert!(shown(after, to).eq(&shown(before, from)), "{to} does not show what was renamed");
            // What stood behind it stays if a file is in the way of its new directory there.
            let is_blocked = |dump: &Dump| {
                let above = to.match_indices('/').map(|(at, _)| &to[..at]);
                above.into_iter().any(|dir| dump.file(dir).is_some())
            };
            match (shown(before, from), shown(after, from)) {
                (Shows::File(..), Shows::File(member, _)) if is_blocked(&after[member]) => {}
                (Shows::File(..), left) => assert_eq!(left, Shows::Nothing, "{from} is left by its rename"),
                (Shows::Dir, left) => assert_ne!(left, Shows::Dir, "part of {from} is left by its rename"),
                _ => {}
            }
        }
    }

    /// Whether a refusal has a reason, if every member answers.
    fn judge_refused(&self, what: &str, from: &str, to: &str, errno: Errno, before: &[Dump]) {
        let shown = |path| show(before, path, |_| true);
        let fits = match errno {
            Errno::ENOENT => shown(from) == Shows::Nothing || shown(to) == Shows::Nothing,
            Errno::EEXIST => shown(to) != Shows::Nothing,
            Errno::ENOTEMPTY => {
                let dir = if what == "rmdir" { from } else { to };
                before.iter().any(|dump| !dump.names(dir).is_empty())
            }
            Errno::EISDIR | Errno::ENOTDIR | Errno::EINVAL | Errno::EXDEV | Errno::EOPNOTSUPP => true,
            _ => false,
        };
        assert!(fits, "{what} {from} {to} is refused for no reason: {errno:?}");
    }

    fn step(&mut self) {
        let (from, to) = (self.rng.path(), self.rng.path());
        match self.rng.below(30) {
            0..4 => _ = self.lookup(&from),
            4..8 => {
                let path = if self.rng.below(3) == 0 { "" } else { &from };
                self.list(path);
            }
            8..11 => {
                let Some((dir, last)) = self.parent(&from) else { return };
                self.change("create", &from, &from, |world| world.create(dir, last));
            }
            11..14 => {
                let Some((dir, last)) = self.parent(&from) else { return };
                self.change("mkdir", &from, &from, |world| world.mkdir(dir, last));
            }
            14..16 => {
                let Some(ino) = self.lookup(&from) else { return };
                if self.world.is_file(ino) {
                    self.change("write", &from, &from, |world| world.write(ino));
                } else {
                    self.change("setattr", &from, &from, |world| world.chmod(ino));
                }
            }
            16..18 => {
                let Some((dir, last)) = self.parent(&from) else { return };
                self.change("unlink", &from, &from, |world| world.unlink(dir, last));
            }
            18 => {
                let Some((dir, last)) = self.parent(&from) else { return };
                self.change("rmdir", &from, &from, |world| world.rmdir(dir, last));
            }
            19..22 => {
                let modes = [
                    ("replace", RenameMode::Replace),
                    ("noreplace", RenameMode::NoReplace),
                    ("exchange", RenameMode::Exchange),
                ];
                let (what, mode) = modes[self.rng.below(3) as usize];
                let Some(source) = self.parent(&from) else { return };
                let Some(target) = self.parent(&to) else { return };
                self.change(what, &from, &to, |world| world.rename(source, target, mode));
            }
            22 => {
                let Some(ino) = self.lookup(&from) else { return };
                let Some((dir, last)) = self.parent(&to) else { return };
                if self.world.is_file(ino) {
                    self.change("link", &from, &to, |world| world.link(ino, dir, last));
                }
            }
            23..26 => self.directly(&from, &to),
            26 => self.come_or_go(&from, &to),
            27 => {
                let ms = 50 + self.rng.below(500);
                self.log.push(format!("{ms} ms pass"));
                self.world.step(ms);
            }
            _ => {
                self.log.push("all is seen".into());
                self.settle();
            }
        }
    }

    /// A program changes a member without the union.
    fn directly(&mut self, from: &str, to: &str) {
        let member = self.rng.below(self.world.away.len() as u64) as usize;
        if !self.world.away[member] {
            self.directly_in(member, from, to);
        }
    }

    fn directly_in(&mut self, member: usize, from: &str, to: &str) {
        let dir = self.now()[member].is_dir(from);
        let (what, done) = match self.rng.below(6) {
            0 | 1 => ("put", self.world.direct_put(member, from)),
            2 | 3 => ("mkdir", self.world.direct_mkdir(member, from)),
            4 => ("remove", self.world.direct_remove(member, from, dir)),
            _ => ("rename", self.world.direct_rename(member, from, to)),
        };
        self.log.push(format!("directly in {member}: {what} {from} {to}: {done:?}"));
        if done.is_some() {
            self.moved |= dir;
            self.recent.push(self.world.dumps());
        }
    }

    /// A member goes away, or comes back with what was done to it elsewhere.
    fn come_or_go(&mut self, from: &str, to: &str) {
        let member = self.rng.below(self.world.away.len() as u64) as usize;
        if self.world.away[member] {
            if self.rng.below(2) == 0 {
                self.directly_in(member, from, to);
            }
            self.world.set_away(member, false);
            self.log.push(format!("{member} is back"));
            self.recent.push(self.world.dumps());
        } else {
            self.settle();
            self.world.set_away(member, true);
            self.log.push(format!("{member} is away"));
        }
    }
}

#[test]
fn random_changes_through_the_union_and_beside_it_lose_and_invent_nothing() {
    let seeds = std::env::var("ATOLL_UNION_SEEDS").ok().map_or(SEEDS, |text| {
        let (from, to) = text.split_once("..").expect("FROM..TO");
        from.parse().expect("a number")..to.parse().expect("a number")
    });
    for seed in seeds {
        let mut run = Run::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                run.world.pass();
                run.step();
            }
            for member in 0..run.world.away.len() {
                run.world.set_away(member, false);
            }
            run.settle();
            ["", "a", "b", "c", "d", "a/b", "b/a"].iter().for_each(|path| run.list(path));
        }));
        if let Err(why) = outcome {
            println!("{}", run.log.join("\n"));
            println!("ATOLL_UNION_SEEDS={seed}..{} repeats it", seed + 1);
            std::panic::resume_unwind(why);
        }
    }
}
