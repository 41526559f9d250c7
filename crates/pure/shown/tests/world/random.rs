//! One random history.

use atoll_model::Rng;
use atoll_shown::{Life, Objects, listing};

use super::World;

/// What happened in histories.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub files: usize,
    pub dirs: usize,
    pub copies: usize,
    pub twins: usize,
    pub beside: usize,
    pub merged: usize,
    pub revived: usize,
    pub rescued: usize,
    pub linked: usize,
    pub power_cuts: usize,
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.dirs += other.dirs;
        self.copies += other.copies;
        self.twins += other.twins;
        self.beside += other.beside;
        self.merged += other.merged;
        self.revived += other.revived;
        self.rescued += other.rescued;
        self.linked += other.linked;
        self.power_cuts += other.power_cuts;
    }

    /// Whether everything happens that is to be judged.
    pub const fn is_rich(&self) -> bool {
        self.copies > 0
            && self.twins > 0
            && self.beside > 0
            && self.merged > 0
            && self.revived > 0
            && self.rescued > 0
            && self.linked > 0
            && self.power_cuts > 0
    }

    fn count(&mut self, world: &World, at: usize) {
        let site = &world.sites[at];
        self.files += site.held.files.len();
        self.dirs += site.held.dirs.len();
        self.copies += site.held.files.values().filter(|file| file.birth.copy_of.is_some()).count();
        self.linked += site.held.files.values().filter(|file| file.links.len() > 1).count();
        self.revived += site.held.dirs.keys().filter(|dir| site.life(**dir) == Life::Revived).count();
        for id in site.held.files.keys() {
            self.rescued += world.places(at, *id).iter().filter(|place| place.link.is_none()).count();
        }
        for (group, _) in world.groups(at) {
            self.merged += group.members().len() - 1;
            for entry in listing(site, &group) {
                self.beside += usize::from(entry.own != entry.name);
                if let atoll_shown::ShownObject::File(files) = entry.object {
                    self.twins += files.len() - 1;
                }
            }
        }
    }
}

/// A history by its seed; panics if something is not as it must be.
pub fn run(seed: u64) -> Counts {
    let mut rng = Rng::new(seed);
    let count = 2 + rng.index(3);
    let skew_us = *rng.pick(&[0, 1_000_000, 172_800_000_000]);
    let has_power_cuts = rng.percent(30);
    let has_cuts = rng.percent(30);
    let mut world = World::new(count, skew_us, &mut rng);
    let mut counts = Counts::default();
    let mut fed = vec![vec![0usize; count]; count];
    for _ in 0..10 + rng.below(60) {
        let at = rng.index(count);
        let from = (at + 1 + rng.index(count - 1)) % count;
        match rng.weighted(&[60, 12, 12, 4, 5, 3, 2, 1]) {
            0 => world.act(at, &mut rng),
            1 => {
                let ids = world.sites[from].ids();
                world.send_state(from, at, *rng.pick(&ids));
            }
            2 => {
                // Mostly in order.
                let next = fed[from][at];
                let len = world.sites[from].held.log.len();
                let nth = if rng.percent(80) || len == 0 { next } else { rng.index(len) };
                let many = if nth == next { 1 + rng.index(6) } else { 1 };
                (nth..nth + many).for_each(|nth| world.send_change(from, at, nth));
                if nth == next {
                    fed[from][at] = (next + many).min(len);
                }
            }
            3 => drop(world.patch_all(at)),
            4 => drop(world.settle_all(at)),
            5 => world.sites[at].sync(),
            6 if has_power_cuts => {
                world.sites[at].lose_power();
                counts.power_cuts += 1;
            }
            6 | 7 => {
                if has_cuts && rng.percent(50) {
                    world.exchange_and_cut();
                }
                let groups = world.groups(at);
                let (group, _) = rng.pick(&groups).clone();
                let names: Vec<_> =
                    listing(&world.sites[at], &group).into_iter().map(|entry| entry.own).collect();
                for own in names {
                    world.clean(at, &group, &own);
                }
            }
            _ => unreachable!("eight weights"),
        }
    }
    world.rest();
    counts.count(&world, 0);
    world.judge(&mut rng);
    // Behind a cut the twins go, and nobody sees a difference.
    world.exchange_and_cut();
    let before = world.tree(0);
    for (group, _) in world.groups(0) {
        let names: Vec<_> = listing(&world.sites[0], &group).into_iter().map(|entry| entry.own).collect();
        for own in names {
            world.clean(0, &group, &own);
        }
    }
    assert_eq!(world.tree(0), before, "twins that go are not seen to go");
    world.rest();
    world.judge(&mut rng);
    counts
}
