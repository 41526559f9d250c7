//! READDIR and READDIRPLUS. Cookies are the volume's; 1 is "." and 2 is "..". The cookie verifier is 0 for ever,
//! because a cookie stays good however the directory changes.

use atoll_core::Ino;
use atoll_posix::{Answer, AttrsAround, DirEntry, Errno, Op};
use bytes::Bytes;

use super::TRANSFER_BYTES_MAX;
use crate::attrs;
use crate::call::{Call, Fail};
use crate::status::Status;
use crate::xdr::{Garbage, Reader, Writer, padding};

const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// The reply without its entries: status, attributes, verifier, end of list, eof.
const FRAME: usize = 4 + 88 + 8 + 8;
/// An entry without its name: follows, fileid, length, cookie.
const ENTRY: usize = 24;
/// What READDIRPLUS adds: attributes and a handle, at most.
const PLUS: usize = 88 + 8 + crate::handle::HANDLE_MAX;

#[derive(Clone, Copy)]
struct Page {
    dir: Ino,
    cookie: u64,
    /// Bytes of names and cookies.
    names: usize,
    /// Bytes in all.
    most: usize,
    /// Whether it is READDIRPLUS.
    plus: bool,
    /// Whether attributes are asked for.
    attributes: bool,
}

pub(super) fn readdir(call: Call, dir: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| Ok::<_, Garbage>((args.u64()?, args.u64()?, args.u32()?));
    match read(args) {
        Ok((cookie, _, count)) if args.is_empty() => {
            let most = count.min(TRANSFER_BYTES_MAX) as usize;
            list(call, Page { dir, cookie, names: most, most, plus: false, attributes: false });
        }
        _ => call.refuse(Fail::Garbage),
    }
}

pub(super) fn readdirplus(call: Call, dir: Ino, args: &mut Reader) {
    let read = |args: &mut Reader| Ok::<_, Garbage>((args.u64()?, args.u64()?, args.u32()?, args.u32()?));
    match read(args) {
        Ok((cookie, _, names, most)) if args.is_empty() => {
            let most = most.min(TRANSFER_BYTES_MAX) as usize;
            list(call, Page { dir, cookie, names: names as usize, most, plus: true, attributes: true });
        }
        _ => call.refuse(Fail::Garbage),
    }
}

fn list(call: Call, page: Page) {
    let Page { dir, cookie, .. } = page;
    let is_top = call.shared().exports[call.export].root == dir || dir == Ino::ROOT;
    if cookie >= DOT_DOT || is_top {
        return fetch(call, page, dir);
    }
    call.op(Op::Parent { dir }, Bytes::new(), move |call, outcome, _| match outcome {
        Ok(Answer::Found { found }) => fetch(call, page, found.attr.ino),
        // Who may list but not search does not learn it.
        _ => fetch(call, page, dir),
    });
}

fn fetch(call: Call, page: Page, parent: Ino) {
    let after = if page.cookie <= DOT_DOT { 0 } else { page.cookie };
    let bytes = page.most.max(512) as u32;
    let op = Op::ReadDir { dir: page.dir, after, bytes, plus: page.attributes };
    call.op(op, Bytes::new(), move |call, outcome, beside| match outcome {
        Ok(Answer::Entries { entries, eof }) => pack(call, page, parent, &entries, eof, beside.around),
        Ok(_) => call.strange(),
        // It may be listed without attributes by who may not search it.
        Err(Errno::EACCES) if page.attributes => fetch(call, Page { attributes: false, ..page }, parent),
        Err(why) => call.failed(why, true),
    });
}

fn pack(call: Call, page: Page, parent: Ino, entries: &[DirEntry], eof: bool, around: &[AttrsAround]) {
    // No entries and no end: the directory is not complete, which must not look like its end.
    if entries.is_empty() && !eof || entries.iter().any(|e| e.cookie <= DOT_DOT) {
        return call.fail(Status::IO);
    }
    let plus = page.plus;
    let mut w = Writer::default();
    let (mut names, mut all) = (0, FRAME);
    let mut room = |len: usize| {
        names += ENTRY + len + padding(len);
        all += ENTRY + len + padding(len) + if plus { PLUS } else { 0 };
        names <= page.names.max(ENTRY + 260) && all <= page.most
    };
    let mut is_full = false;
    for (cookie, ino, name) in [(DOT, page.dir, &b"."[..]), (DOT_DOT, parent, b"..")] {
        if page.cookie < cookie && !is_full {
            is_full = !room(name.len());
            if !is_full {
                w.flag(true).u64(ino.0).opaque(name).u64(cookie);
                if plus {
                    w.flag(false).flag(false);
                }
            }
        }
    }
    for entry in entries {
        is_full = is_full || !room(entry.name.as_bytes().len());
        if is_full {
            break;
        }
        w.flag(true).u64(entry.ino.0).opaque(entry.name.as_bytes()).u64(entry.cookie);
        if plus {
            let found = entry.found.as_ref();
            let attr = found.filter(|found| found.attr_current).map(|found| &found.attr);
            attrs::write_post(&mut w, call.fsid(), attr);
            match found {
                Some(found) => call.write_handle(&mut w, found.attr.ino, found.attr.kind),
                None => _ = w.flag(false),
            }
        }
    }
    if w.0.is_empty() && is_full {
        return call.fail(Status::TOOSMALL);
    }
    w.flag(false).flag(eof && !is_full);
    let attr = attrs::after(around, page.dir);
    call.reply(Status::OK, |call, out| {
        attrs::write_post(out, call.fsid(), attr.as_ref());
        out.u64(0);
        out.0.extend_from_slice(&w.0);
    });
}
