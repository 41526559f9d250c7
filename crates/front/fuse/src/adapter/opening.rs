//! Opens and closes of files for volumes that hear of them: OPEN, the open within CREATE, and RELEASE. Never
//! judges who may open.
//!
//! A volume may complete an open later, on another thread. A promise about the answer to CREATE ends before
//! that. So that answer may be kept only if the open is completed at once.

use super::handles::{number_of, open_answer, open_flags};
use super::names::{self, untold};
use super::{Core, supplementary_groups};
use crate::abi::{init, open};
use crate::opens::{Open, Opens};
use crate::request::Header;
use atoll_core::Ino;
use atoll_posix::{Errno, NamedObject};
use atoll_vfs::{Caching, OpenFor, Opened};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// More files are open than one mount may have.
const ENFILE: Errno = Errno(23);

/// Goes on with the handle of an open that the volume was told of, or with why there is none.
type Then = Box<dyn FnOnce(&Arc<Core>, Result<Handle, Errno>) + Send>;

/// The kernel's handle of an open and, if that is passed, the number of the native file.
type Handle = (u64, Option<u32>);

/// What the flags of open(2) ask for. Linux has a fourth access mode, by which nothing is read or written.
fn asked_for(flags: u32) -> OpenFor {
    let mode = flags & open::ACCESS_MODE;
    OpenFor { read: mode == 0 || mode == 2, write: mode == 1 || mode == 2 }
}

/// Asks the volume to open a file for the caller of a request.
fn ask(core: &Arc<Core>, header: Header, ino: Ino, flags: u32, groups: Option<Vec<u32>>, then: Then) {
    let caller = header.caller(groups);
    let by_groups = caller.groups.is_none() && caller.uid != 0;
    let mine = Arc::clone(core);
    let done = move |outcome: Result<Opened, Errno>| match outcome {
        Err(Errno::EACCES) if by_groups => {
            let groups = supplementary_groups(&header);
            ask(&mine, header, ino, flags, Some(groups), then);
        }
        // ENOSYS would make the kernel do without opens for ever.
        Err(Errno::ENOSYS) => then(&mine, Err(Errno::EOPNOTSUPP)),
        Err(why) => then(&mine, Err(why)),
        Ok(opened) => {
            let handle = mine.handles.fetch_add(1, Relaxed);
            let open = Open { ino, open: opened.open, write: asked_for(flags).write };
            let added = mine.opens.as_ref().is_some_and(|opens| opens.add(handle, open).is_ok());
            if !added {
                mine.files.close(ino, opened.open);
                return then(&mine, Err(ENFILE));
            }
            let passes = mine.agreed.get().is_some_and(|agreed| agreed.flags & init::PASSTHROUGH != 0);
            let file = opened.backing.filter(|_| passes);
            let tell = || mine.device.pass_to(&*file?, header.uid);
            then(&mine, Ok((handle, mine.passed.opened(ino, open.write, tell))));
        }
    };
    core.files.open(&caller, ino, asked_for(flags), Box::new(done));
}

/// Opens a file, if the volume does.
pub(super) fn open_file(core: &Arc<Core>, header: &Header, flags: u32) {
    let (header, ino) = (*header, Ino(header.node));
    let then = move |core: &Arc<Core>, outcome| match outcome {
        Ok(handle) => {
            if !open_answer(core, &header, flags, handle) {
                close(core, handle.0);
            }
        }
        Err(why) => core.fail(&header, why),
    };
    ask(core, header, ino, flags, None, Box::new(then));
}

/// The open within a CREATE, between the thread that asks and the one that completes it.
enum Turn {
    Asked,
    /// Completed before the volume's call has returned.
    AtOnce(Result<Handle, Errno>),
    /// The call has returned, so whoever completes it answers.
    Later,
}

/// A file was made, and is to be open. The promise about its name's answer, which may be kept for so long, ends
/// when this returns.
pub(super) fn created(
    core: &Arc<Core>,
    header: &Header,
    found: NamedObject,
    (kept, caching): (Duration, Caching),
    flags: u32,
) {
    let (header, ino) = (*header, found.attr.ino);
    // So that it is known while the volume opens it.
    core.nodes.raise_new(ino);
    if core.opens.is_none() {
        let handle = core.handles.fetch_add(1, Relaxed);
        return answer(core, &header, &found, (kept, caching), flags, Ok((handle, None)));
    }
    let turn = Arc::new(Mutex::new(Turn::Asked));
    let (theirs, late) = (Arc::clone(&turn), found.clone());
    let then = move |core: &Arc<Core>, outcome| {
        {
            let mut turn = theirs.lock().expect("no holder of this lock panics");
            if let Turn::Asked = *turn {
                *turn = Turn::AtOnce(outcome);
                return;
            }
        }
        core.keeping(ino, |caching| answer(core, &header, &late, (Duration::ZERO, caching), flags, outcome));
    };
    ask(core, header, ino, flags, None, Box::new(then));
    let turn = std::mem::replace(&mut *turn.lock().expect("no holder of this lock panics"), Turn::Later);
    if let Turn::AtOnce(outcome) = turn {
        answer(core, &header, &found, (kept, caching), flags, outcome);
    }
}

/// Answers a CREATE whose file is counted already.
fn answer(
    core: &Core,
    header: &Header,
    found: &NamedObject,
    (kept, caching): (Duration, Caching),
    flags: u32,
    outcome: Result<Handle, Errno>,
) {
    match outcome {
        Ok((handle, passed)) => {
            let open_flags = open_flags(core, flags, caching, passed);
            let how = (number_of(handle, open_flags), open_flags, passed.unwrap_or(0));
            if !names::created(core, header, found, kept, how) {
                close(core, handle);
                untold(core, &[found.attr.ino]);
            }
        }
        Err(why) => {
            core.fail(header, why);
            untold(core, &[found.attr.ino]);
        }
    }
}

/// A handle is closed, or the kernel never learnt of it.
pub(super) fn close(core: &Core, handle: u64) {
    if let Some(open) = core.opens.as_ref().and_then(|opens| opens.take(handle)) {
        ended(core, open);
    }
}

/// The mount has ended: all its files are closed.
pub(crate) fn close_all(core: &Core) {
    core.opens.iter().flat_map(Opens::end).for_each(|open| ended(core, open));
}

fn ended(core: &Core, Open { ino, open, write }: Open) {
    core.passed.closed(ino, write, |backing| core.device.pass_no_more(backing));
    core.files.close(ino, open);
}
