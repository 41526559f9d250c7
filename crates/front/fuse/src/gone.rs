//! Finds an answer when the volume says `ESTALE`: the object of a request was removed, or its name leads to
//! another one by now. Asks the volume a bounded number of times what has become of it.
//!
//! The kernel asks about a removed directory as long as it is open or is a working directory. As on a local
//! file system, its attributes can be seen and changed, extended ones too: its owner keeps them for every mount that
//! may have it open, and answers such requests like others. It has no names, and none can be made in it: about names
//! the volume says `ESTALE`, and the answer is found here.
//!
//! If the volume does not keep the attributes any more, because it has taken this mount for dead, the answer is `ENOENT`.
//! A question for an ACL is then answered with "none", because the kernel asks it to judge who may do what, and then
//! judges by the mode.
//!
//! A caller that only races with another one over a name cannot use `ESTALE`: on a local file system the name
//! would have been found or not. The kernel tries once more by itself. That is not enough if a name comes and
//! goes all the time.

use crate::abi::opcode;
use crate::adapter::{Core, Shape, finish, start, submit, untold};
use crate::places::Place;
use crate::request::Header;
use atoll_core::Ino;
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, Op, RenameMode};
use atoll_vfs::AnswerExtras;
use bytes::Bytes;
use std::sync::Arc;

/// How often one request is tried anew. The kernel then tries it once more.
const TRIES_MAX: u8 = 8;

/// The fate of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Removed,
    Lives,
    /// Unknown, for this reason.
    Unknown(Errno),
}

/// The volume has answered `ESTALE` to a request that was tried `tries` times before.
pub(crate) fn stale(core: &Arc<Core>, header: Header, shape: Shape, tries: u8) {
    if tries >= TRIES_MAX {
        return core.fail(&header, Errno::ESTALE);
    }
    let (dir, other) = match &shape {
        Shape::Renamed { from, to, .. } => (from.dir, (to.dir != from.dir).then_some(to.dir)),
        _ => (Ino(header.node), None),
    };
    fate(core, header, dir, move |core, first| {
        let Some(other) = other.filter(|_| first == Fate::Lives) else {
            return knowing(core, header, shape, tries, first);
        };
        fate(core, header, other, move |core, second| knowing(core, header, shape, tries, second));
    });
}

/// Asks the volume something for a request.
fn ask(
    core: &Arc<Core>,
    header: Header,
    op: Op,
    then: impl FnOnce(&Arc<Core>, Result<Answer, Errno>) + Send + 'static,
) {
    start(core, header, &Caller::ROOT, (op, Bytes::new()), move |core, outcome, _| then(core, outcome));
}

/// Looks up what a name leads to.
fn look_up(
    core: &Arc<Core>,
    header: Header,
    place: &Place,
    then: impl FnOnce(&Arc<Core>, Result<Attr, Errno>) + Send + 'static,
) {
    let op = Op::Lookup { dir: place.dir, name: place.name.clone() };
    ask(core, header, op, |core, outcome| match outcome {
        Ok(Answer::Found { found }) => {
            // The volume's client remembers directories until they are forgotten.
            core.nodes.raise(found.attr.ino);
            then(core, Ok(found.attr));
            untold(core, &[found.attr.ino]);
        }
        Ok(_) => then(core, Err(Errno::EIO)),
        Err(why) => then(core, Err(why)),
    });
}

/// Finds the fate of a directory that the kernel knows.
fn fate(core: &Arc<Core>, header: Header, dir: Ino, then: impl FnOnce(&Arc<Core>, Fate) + Send + 'static) {
    if dir == Ino::ROOT {
        return then(core, Fate::Lives);
    }
    if core.places.is_removed(dir) {
        return then(core, Fate::Removed);
    }
    let Some(place) = core.places.of(dir) else {
        return then(core, Fate::Unknown(Errno::ESTALE));
    };
    // First by its name: if the volume's client had forgotten whom to ask about it, that tells.
    look_up(core, header, &place, move |core, found| match found {
        Ok(attr) if attr.ino == dir => then(core, Fate::Lives),
        Ok(_) | Err(Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR) => {
            ask(core, header, Op::GetAttr { ino: dir }, move |core, outcome| match outcome {
                // The volume keeps the attributes of a removed one.
                Ok(Answer::Attr { attr }) if attr.nlink > 0 => then(core, Fate::Lives),
                Ok(Answer::Attr { .. }) | Err(Errno::ESTALE) => {
                    core.places.removed(dir);
                    then(core, Fate::Removed);
                }
                Ok(_) => then(core, Fate::Unknown(Errno::EIO)),
                Err(why) => then(core, Fate::Unknown(why)),
            });
        }
        Err(why) => then(core, Fate::Unknown(why)),
    });
}

/// Goes on with the fate of the directory.
fn knowing(core: &Arc<Core>, header: Header, shape: Shape, tries: u8, fate: Fate) {
    match fate {
        Fate::Removed => about_removed(core, &header, shape),
        Fate::Lives => again(core, header, shape, tries + 1),
        Fate::Unknown(why) => core.fail(&header, why),
    }
}

/// Answers a request about, or in, a directory that was removed.
fn about_removed(core: &Arc<Core>, header: &Header, shape: Shape) {
    let outcome = match &shape {
        Shape::Listing(_) => Ok(Answer::Entries { entries: Vec::new(), eof: true }),
        Shape::Unit if header.opcode == opcode::FSYNCDIR => Ok(Answer::Done),
        // Otherwise the kernel would let nobody in whom the mode lets in.
        Shape::Value { acl: true, .. } => Err(Errno::ENODATA),
        _ => Err(Errno::ENOENT),
    };
    finish(core, header, (shape, None), outcome, AnswerExtras::default());
}

/// Tries a request again whose directory exists.
fn again(core: &Arc<Core>, header: Header, shape: Shape, tries: u8) {
    let ino = Ino(header.node);
    let op = match &shape {
        Shape::Looked(place) => Op::Lookup { dir: place.dir, name: place.name.clone() },
        Shape::Attr | Shape::Statx => Op::GetAttr { ino },
        Shape::Changed(set) => Op::SetAttr { ino, set: *set },
        Shape::Listing(listing) => {
            let bytes = u32::try_from(listing.size).unwrap_or(u32::MAX);
            Op::ReadDir { dir: listing.dir, after: listing.after(), bytes, plus: listing.plus }
        }
        Shape::RemovedDir { place, meant } => {
            let (place, meant) = (place.clone(), *meant);
            return meant_now(core, header, place.clone(), meant, false, move |core, meant| match meant {
                Ok(meant) => {
                    let op = Op::Rmdir { dir: place.dir, name: place.name.clone(), meant };
                    resubmit(core, header, op, Shape::RemovedDir { place, meant }, tries);
                }
                Err(why) => core.fail(&header, why),
            });
        }
        Shape::Renamed { from, to, mode, meant } => {
            return rename_again(core, header, [from.clone(), to.clone()], *mode, *meant, tries);
        }
        // The kernel makes nothing of the others twice.
        _ => return core.fail(&header, Errno::ESTALE),
    };
    resubmit(core, header, op, shape, tries);
}

fn rename_again(
    core: &Arc<Core>,
    header: Header,
    places: [Place; 2],
    mode: RenameMode,
    meant: [Option<Ino>; 2],
    tries: u8,
) {
    let [from, to] = places.clone();
    let may_be_absent = mode != RenameMode::Exchange;
    meant_now(core, header, from, meant[0], false, move |core, first| match first {
        Err(why) => core.fail(&header, why),
        Ok(first) => meant_now(core, header, to, meant[1], may_be_absent, move |core, second| match second {
            Err(why) => core.fail(&header, why),
            Ok(second) => {
                let [from, to] = places;
                let op = Op::Rename {
                    dir: from.dir,
                    name: from.name.clone(),
                    new_dir: to.dir,
                    new_name: to.name.clone(),
                    mode,
                    meant: first,
                    new_meant: second,
                };
                let shape = Shape::Renamed { from, to, mode, meant: [first, second] };
                resubmit(core, header, op, shape, tries);
            }
        }),
    });
}

fn resubmit(core: &Arc<Core>, header: Header, op: Op, shape: Shape, tries: u8) {
    let caller = header.caller(None);
    submit(core, header, caller, op, Bytes::new(), shape, tries);
}

/// The directory that a caller means by a name which led to `meant` when the kernel looked. If the operation
/// succeeds, the kernel marks `meant` as dead, so another directory may be meant only if `meant` is dead.
fn meant_now(
    core: &Arc<Core>,
    header: Header,
    place: Place,
    meant: Option<Ino>,
    may_be_absent: bool,
    then: impl FnOnce(&Arc<Core>, Result<Option<Ino>, Errno>) + Send + 'static,
) {
    let Some(meant) = meant else { return then(core, Ok(None)) };
    look_up(core, header, &place.clone(), move |core, found| {
        let now = match found {
            Ok(attr) if attr.ino == meant => return then(core, Ok(Some(meant))),
            Ok(attr) => (attr.kind == Kind::Directory).then_some(attr.ino),
            Err(Errno::ENOENT | Errno::ESTALE) if may_be_absent => None,
            Err(Errno::ESTALE) => return then(core, Err(Errno::ENOENT)),
            Err(why) => return then(core, Err(why)),
        };
        if core.places.of(meant).is_none() {
            // It came here for a moment, after the kernel looked: the kernel does not know it.
            return then(core, Ok(now));
        }
        fate(core, header, meant, move |core, fate| match fate {
            Fate::Removed => {
                core.places.vacate(meant, &place);
                then(core, Ok(now));
            }
            // It is elsewhere: the kernel has to look at both.
            Fate::Lives => then(core, Err(Errno::ESTALE)),
            Fate::Unknown(why) => then(core, Err(why)),
        });
    });
}
