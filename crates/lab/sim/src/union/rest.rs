//! What holds when everything is at rest: unions show exactly what their members have, and members have nothing of ours.

use atoll_core::Ino;
use atoll_posix::{Answer, Attr, Errno, Op};
use atoll_union::Finished;
use bytes::Bytes;

use super::job::NAMES;
use super::members::{Members, below, name};
use super::process::Process;
use super::spec::{self, Shows};
use crate::cause::Failure;

/// Makes one operation, with all of its calls in order.
pub(super) fn ask(members: &mut Members, process: &mut Process, op: Op) -> Result<Finished, Errno> {
    let task = process.start(members, op, Bytes::new());
    while let Some(at) = process.calls.iter().position(|call| call.task == task) {
        process.make(members, at);
        process.tell(members, at);
    }
    let at = process.ended.iter().position(|(ended, _)| *ended == task);
    process.ended.remove(at.expect("an operation without calls under way has ended")).1
}

fn list(members: &mut Members, process: &mut Process, dir: Ino) -> Result<Vec<String>, Errno> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        let op = Op::ReadDir { dir, after, bytes: 400, plus: after % 2 == 0 };
        let Answer::Entries { entries, eof } = ask(members, process, op)?.answer else {
            return Err(Errno::EPROTO);
        };
        after = entries.last().map_or(after, |entry| entry.cookie);
        names.extend(entries.into_iter().map(|entry| entry.name.to_string()));
        if eof {
            return Ok(names);
        }
    }
}

/// Every path and file as a union shows it is as its members have it. `fresh`: the union has just begun, so that it knows
/// nothing from before.
pub(super) fn shows_members(
    members: &mut Members,
    process: &mut Process,
    fresh: bool,
) -> Result<(), Failure> {
    let mut left = vec![(String::new(), Ino::ROOT)];
    while let Some((dir, ino)) = left.pop() {
        let listed = list(members, process, ino);
        let mut listed = listed
            .map_err(|errno| Failure::new(format!("at rest the listing of /{dir} ends with {errno:?}")))?;
        let all = listed.len();
        listed.retain(|name| !name.contains(".atoll-"));
        listed.sort();
        let view = spec::present(members, process);
        let (names, more) = spec::names(&view, process.settings.same, &dir);
        if !listed.iter().map(String::as_str).eq(names.iter().copied()) || all - listed.len() != more {
            let here: Vec<_> =
                view.iter().map(|(member, state)| (member, state.names(&dir).collect::<Vec<_>>())).collect();
            return Err(Failure::new(format!(
                "at rest /{dir} lists {listed:?} and {} more, not {names:?} and {more}; fresh: {fresh}; members have {here:?}",
                all - listed.len()
            )));
        }
        for text in NAMES {
            let path = below(&dir, text);
            let op = Op::Lookup { dir: ino, name: name(text) };
            let found = ask(members, process, op);
            let attr = match &found {
                Ok(Finished { answer: Answer::Found { found }, .. }) => Some(found.attr),
                _ => None,
            };
            let view = spec::present(members, process);
            let fits = match spec::shown(&view, process.settings.same, &path) {
                Shows::Nothing => found == Err(Errno::ENOENT),
                Shows::Dir => {
                    let (member, node) = spec::anchor(&view, &path).expect("a directory has a home");
                    left.extend(attr.map(|attr| (path.clone(), attr.ino)));
                    let anchored = |attr: Attr| {
                        attr.mode == node.stat.mode
                            && spec::is_id(process, attr.ino, member, node.stat.id.ino)
                    };
                    attr.is_some_and(|attr| !fresh || anchored(attr))
                }
                Shows::File(member, id) => {
                    let node = view.iter().find(|(at, _)| *at == member).and_then(|(_, s)| s.file(&path));
                    let stat = node.expect("it shows it").stat;
                    attr.is_some_and(|attr| {
                        let same = (attr.mode, attr.size, attr.mtime, attr.ctime, attr.nlink)
                            == (stat.mode, stat.size, stat.mtime, stat.ctime, stat.nlink);
                        spec::is_id(process, attr.ino, member, id.ino) && same
                    })
                }
            };
            if !fits {
                let shows = spec::shown(&view, process.settings.same, &path);
                return Err(Failure::new(format!("at rest /{path} is {found:?}, and must be {shows:?}")));
            }
        }
    }
    Ok(())
}

/// Members have names that users made, and nothing else.
pub(super) fn is_ours_nowhere(members: &Members) -> Result<(), Failure> {
    for member in 0..members.len() {
        for (path, _) in members.now(member).all() {
            let of_users = path.is_empty() || path.split('/').all(|name| NAMES.contains(&name));
            if !of_users {
                return Err(Failure::new(format!("member {member} has {path}, which no user made")));
            }
        }
    }
    Ok(())
}

/// A union that knows of nothing any more has nothing open in its members.
pub(super) fn holds_nothing(members: &mut Members, process: &mut Process) -> Result<(), Failure> {
    let told: Vec<Ino> = process.told.iter().copied().collect();
    process.forget(members, &told);
    let untold = process.machine.known().untold();
    process.forget(members, &untold);
    process.keep_house(members);
    for member in process.of.clone() {
        let open = process.opened_dirs(member);
        // The root.
        if open > 1 {
            return Err(Failure::new(format!(
                "the union knows of {} things and holds {open} directories of member {member} open",
                process.machine.known().len()
            )));
        }
    }
    Ok(())
}
