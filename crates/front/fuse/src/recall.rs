//! Makes the kernel drop what it keeps, when the volume says so. Holds no lock while it talks to the kernel
//! about an id, because that may first need other requests answered. It does not wait for those without end,
//! because the volume may answer them only when the recall is over. A recall of single directories drops their names one by one; if these
//! wait for requests under way, or are many, all names go as in a recall of everything. Nobody waits for the drop of changed ids
//! and names (`changed`), and it is done twice (`again`).
//!
//! Names go first, all with one message. Then attributes go; the kernel waits for them only if an inode is
//! just being thrown out. Then pages go. A page that is being read or written back goes when that is over.
//! The wait for that is here and not in the kernel, which would not let anybody unmount meanwhile.
//! Until then it serves no read(2) of a changed file: a reader asks for attributes first, and the kernel
//! itself drops the pages of a file whose change time is new.

use crate::abi::{MINOR_INC_EPOCH, init};
use crate::adapter::{Agreed, KEEP};
use crate::again::{Again, VoidAnswers};
use crate::device::Device;
use crate::kept_names::{KeptName, KeptNames};
use crate::known::Known;
use crate::nodes::Nodes;
use crate::pending::Pending;
use crate::sweep::Sweep;
use atoll_core::{Ino, Name};
use atoll_vfs::{CHANGED_MAX, Scope, Watcher};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a recall waits for attributes. After that the kernel no longer uses what it was told before.
const ATTRIBUTES_MAX: Duration = KEEP.saturating_add(Duration::from_secs(1));
/// How long a recall waits for pages.
const PAGES_MAX: Duration = Duration::from_secs(1);
/// How long it waits for names and pages that are in use by requests under way. The volume may answer those only when the recall is over.
const HELD_UP_MAX: Duration = Duration::from_millis(20);
/// Pause between two looks whether a request for a file's bytes is over.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The object that a volume calls back. It knows nothing of the volume, so that the two do not keep each
/// other alive.
#[derive(Debug)]
pub(crate) struct Recall {
    drops: Arc<Drops>,
    pages: Arc<Sweep<Ino>>,
    again: Arc<Again>,
}

/// What the kernel is told to drop.
#[derive(Debug)]
struct Drops {
    nodes: Arc<Nodes>,
    device: Arc<Device>,
    agreed: Arc<OnceLock<Agreed>>,
    /// Answered here, and not kept by the kernel.
    known: Arc<Known>,
    attributes: Arc<Sweep<Ino>>,
    /// Names that lead elsewhere, which are looked up again.
    names: Arc<Sweep<(Ino, Name)>>,
    kept_names: Arc<KeptNames>,
    recalled_names: Arc<Sweep<(Ino, Vec<KeptName>)>>,
    recalled_attributes: Arc<Sweep<Ino>>,
}

impl Recall {
    pub(crate) fn new(
        nodes: &Arc<Nodes>,
        device: &Arc<Device>,
        agreed: &Arc<OnceLock<Agreed>>,
        pending: &Arc<Pending>,
        (known, kept_names): (&Arc<Known>, &Arc<KeptNames>),
    ) -> Self {
        let (pending, of_pages) = (Arc::clone(pending), Arc::clone(device));
        let drop_pages = move |ino: &Ino| {
            for unique in pending.for_bytes(*ino) {
                while pending.waiting(unique).is_some() {
                    std::thread::sleep(LOOK_AGAIN);
                }
            }
            of_pages.drop_pages(*ino);
        };
        let of_changed = Arc::clone(device);
        let (of_names, offer) = (Arc::clone(device), Arc::clone(agreed));
        let expire_name = move |(dir, name): &(Ino, Name)| {
            let expires = offer.get().is_some_and(|agreed| agreed.flags & init::HAS_EXPIRE_ONLY != 0);
            if expires { of_names.expire_name(*dir, name) } else { of_names.drop_name(*dir, name) }
        };
        let (of_kept, expire_dir) = (Arc::clone(device), expire_name.clone());
        let drop_names = move |(dir, names): &(Ino, Vec<KeptName>)| {
            for KeptName { name, is_dir } in names {
                // A directory stays for those who are in it, and for what is mounted below it.
                if *is_dir { expire_dir(&(*dir, name.clone())) } else { of_kept.drop_name(*dir, name) }
            }
        };
        let (of_attributes, all_nodes) = (Arc::clone(device), Arc::clone(nodes));
        let drop_attributes = move |ino: &Ino| {
            // Who has asked for it may not have written down yet what it was told: then the kernel does not know it.
            let until = Instant::now() + HELD_UP_MAX;
            while !of_attributes.drop_attributes(*ino) && all_nodes.knows(*ino) && Instant::now() < until {
                std::thread::sleep(LOOK_AGAIN);
            }
        };
        let drops = Arc::new(Drops {
            nodes: Arc::clone(nodes),
            device: Arc::clone(device),
            agreed: Arc::clone(agreed),
            known: Arc::clone(known),
            attributes: Sweep::new("fuse-attributes", move |ino: &Ino| _ = of_changed.drop_attributes(*ino)),
            names: Sweep::new("fuse-names", expire_name),
            kept_names: Arc::clone(kept_names),
            recalled_names: Sweep::new("fuse-recalled", drop_names),
            recalled_attributes: Sweep::new("fuse-recalled-attrs", drop_attributes),
        });
        let once_more = Arc::clone(&drops);
        // Pages are locked from when they are asked for until they are there, so each was dropped behind that.
        let again = Again::new(move |changes| drop(once_more.changed(changes)));
        Self { drops, pages: Sweep::new("fuse-pages", drop_pages), again }
    }
}

impl Drops {
    /// Has the kernel drop these names, and attributes of these files and directories. Waits for nothing. The ids.
    fn changed(&self, changes: VoidAnswers) -> Vec<Ino> {
        let at_once = Duration::ZERO;
        let inos = match changes.listed() {
            Some((inos, names)) => {
                self.known.changed(&inos, &names);
                self.names.run(names, at_once);
                inos
            }
            None => {
                self.known.recalled();
                self.drop_all_names().unwrap_or_default()
            }
        };
        self.attributes.run(inos.clone(), at_once);
        inos
    }

    /// Has the kernel drop every name, also absent ones. Returns all ids that it knows; none before it knows
    /// anything.
    fn drop_all_names(&self) -> Option<Vec<Ino>> {
        let agreed = self.agreed.get()?;
        if agreed.minor >= MINOR_INC_EPOCH {
            self.device.drop_all_names();
        }
        let mut known = vec![Ino::ROOT];
        self.nodes.each(|ino| known.push(ino));
        Some(known)
    }
}

impl Recall {
    /// Has the kernel drop all names of these directories. Names of directories among them, which it looks up again when they are used.
    fn drop_names(&self, dirs: &BTreeSet<Ino>) -> Vec<(Ino, Name)> {
        let (mut all, mut are_known) = (Vec::new(), true);
        for dir in dirs {
            match self.drops.kept_names.take(*dir) {
                Some(names) if names.is_empty() => {}
                Some(names) => all.push((*dir, names)),
                None => {
                    // To drop any name the kernel waits until it has written down all names of a listing that was answered before.
                    let any = Name::new(b"-").expect("a name may be this");
                    all.push((*dir, vec![KeptName { name: any, is_dir: true }]));
                    are_known = false;
                }
            }
        }
        let expired = all.iter().flat_map(|(dir, names)| {
            names.iter().filter(|kept| kept.is_dir).map(|kept| (*dir, kept.name.clone()))
        });
        let expired = expired.collect();
        let are_dropped = all.is_empty() || self.drops.recalled_names.run(all, HELD_UP_MAX);
        if !are_dropped || !are_known {
            let _ = self.drops.drop_all_names();
        }
        expired
    }
}

impl Watcher for Recall {
    fn recall(&self, scope: Scope<'_>) {
        match scope {
            Scope::Of(inos) if inos.len() <= CHANGED_MAX => {
                self.drops.known.recalled_of(inos);
                if self.drops.agreed.get().is_none() {
                    return;
                }
                let inos: BTreeSet<Ino> = inos.iter().copied().collect();
                let expired = self.drop_names(&inos);
                let inos: Vec<Ino> = inos.into_iter().collect();
                self.drops.recalled_attributes.run(inos.clone(), ATTRIBUTES_MAX);
                // Somebody may just be looking at one without the lock of the directory that it is in.
                self.again.add(&inos, &expired);
                self.pages.run_until_held_up(inos, PAGES_MAX, HELD_UP_MAX);
            }
            Scope::Of(_) | Scope::Everything => {
                self.drops.known.recalled();
                if let Some(known) = self.drops.drop_all_names() {
                    self.drops.attributes.run(known.clone(), ATTRIBUTES_MAX);
                    self.pages.run_until_held_up(known, PAGES_MAX, HELD_UP_MAX);
                }
            }
        }
    }

    fn changed(&self, inos: &[Ino], names: &[(Ino, Name)]) {
        let dropped = self.drops.changed(VoidAnswers::of(inos, names));
        self.pages.run(dropped, Duration::ZERO);
        self.again.add(inos, names);
    }

    fn knows(&self, ino: Ino) -> bool {
        self.drops.nodes.knows(ino)
    }
}
