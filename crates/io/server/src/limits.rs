//! The limits of a client, at the door of a node: before a request comes to an island.
//!
//! A client's kernel checks permissions for its users, and the client says who they are. So whoever is limited is not believed:
//! what changes something is refused here, and a squashed client's requests get the user of the grant, and are checked whole by
//! the island. Who sees a directory only is refused nothing here, where no rows are: its session is told to the island so when it
//! attaches, and the island looks at each request (`docs/design/022-subtrees.md`).

use atoll_posix::{Caller, Errno, Op, RequestOptions};
use atoll_proto::{ClientOp, Extras, Grant, Request};

/// The request as the island may have it, or why it may not.
pub(crate) fn limited(grant: &Grant, mut request: Request) -> Result<Request, Errno> {
    let does = does(&request.op);
    if grant.read_only && does != Does::Look {
        return Err(Errno::EROFS);
    }
    if let (Some(subtree), ClientOp::Attach { mount } | ClientOp::AttachWithin { mount, .. }) =
        (&grant.subtree, &request.op)
    {
        // Whatever the client has asked for.
        request.op = ClientOp::AttachWithin { mount: *mount, scope: subtree.dir };
    }
    if let Some((uid, gid)) = grant.squash {
        if does == Does::ListAll {
            return Err(Errno::EPERM);
        }
        request.caller = Caller { uid, gid, groups: Some(Vec::new()) };
        let (op, extras) = request.op.without_extras();
        let options = RequestOptions { unchecked: true, ..extras.options };
        request.op = op.with_extras(Extras { options, ..extras });
    }
    Ok(request)
}

/// What a request does, as far as limits concern it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// It changes nothing that others see.
    Look,
    /// It changes something.
    Change,
    /// It is a step of a listing of the whole tree as of one moment: that looks at no permissions, and holds back the changes of
    /// others.
    ListAll,
}

/// Everything is named: a new operation may not be asked until somebody has thought about it.
fn does(op: &ClientOp) -> Does {
    match op {
        ClientOp::Fs { op }
        | ClientOp::Rename { op, .. }
        | ClientOp::Link { op, .. }
        | ClientOp::WithOptions { op, .. }
        | ClientOp::Found { op, .. } => of_operation(op),
        ClientOp::Attach { .. }
        | ClientOp::AttachWithin { .. }
        | ClientOp::Detach
        | ClientOp::Resolve { .. }
        | ClientOp::Skeleton { .. }
        | ClientOp::SkeletonAttr { .. }
        | ClientOp::SkeletonTarget { .. }
        | ClientOp::Release { .. }
        | ClientOp::Renew
        | ClientOp::Lease
        | ClientOp::Cancel { .. }
        | ClientOp::Dropped
        | ClientOp::DroppedOf { .. }
        | ClientOp::Hints { .. } => Does::Look,
        ClientOp::Hold { .. }
        | ClientOp::Cut { .. }
        | ClientOp::ListAt { .. }
        | ClientOp::EntryAt { .. }
        | ClientOp::FilesAt { .. }
        | ClientOp::EndCut { .. } => Does::ListAll,
    }
}

fn of_operation(op: &Op) -> Does {
    match op {
        Op::Lookup { .. }
        | Op::GetAttr { .. }
        | Op::Readlink { .. }
        | Op::Read { .. }
        | Op::Seek { .. }
        | Op::ReadDir { .. }
        | Op::GetXattr { .. }
        | Op::ListXattr { .. }
        | Op::Statfs
        | Op::GetLock { .. }
        | Op::Access { .. }
        | Op::Parent { .. }
        // They ask for what others have changed to be safe, and change nothing.
        | Op::Fsync { .. }
        | Op::FsyncDir { .. } => Does::Look,
        // Times of access are changes, too.
        Op::Accessed { .. }
        | Op::SetAttr { .. }
        | Op::Create { .. }
        | Op::Mkdir { .. }
        | Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Write { .. }
        | Op::Fallocate { .. }
        | Op::CopyRange { .. }
        | Op::SetXattr { .. }
        | Op::RemoveXattr { .. }
        | Op::SetLock { .. }
        | Op::Tmpfile { .. } => Does::Change,
    }
}

#[cfg(test)]
mod tests {
    use atoll_core::{Ino, Key, Name, SessionId, VolumeId, VolumePath};
    use atoll_proto::cluster::Subtree;
    use atoll_proto::{EntryRef, FoundBy};

    use super::*;

    const INO: Ino = Ino(7);

    fn request(op: ClientOp) -> Request {
        let (session, caller) = (SessionId(1), Caller::ROOT);
        Request { session, seq: 3, acked: 0, table: 1, vector: Vec::new(), caller, op }
    }

    #[test]
    fn whoever_reads_only_changes_nothing_under_any_shape_of_a_request() {
        let grant = Grant { read_only: true, ..Grant::default() };
        let write = Op::Write { ino: INO, offset: 0, append: false, kill_set_id: false };
        let asked = |op| limited(&grant, request(op)).map(|request| request.op);
        let read = ClientOp::Fs { op: Op::Read { ino: INO, offset: 0, len: 9 } };
        assert_eq!(asked(read.clone()), Ok(read.clone()));
        let write = ClientOp::Fs { op: write };
        assert_eq!(asked(write.clone()), Err(Errno::EROFS));
        assert_eq!(asked(write.with_options(RequestOptions::default())), Err(Errno::EROFS));
        assert_eq!(asked(ClientOp::Hold { cut: 1, again: false }), Err(Errno::EROFS));
        assert_eq!(asked(ClientOp::Renew), Ok(ClientOp::Renew));
    }

    #[test]
    fn a_squashed_client_is_one_user_whom_the_island_checks() {
        let grant = Grant { squash: Some((1000, 100)), ..Grant::default() };
        let read = Op::Read { ino: INO, offset: 0, len: 9 };
        let squashed = limited(&grant, request(ClientOp::Fs { op: read.clone() })).unwrap();
        assert_eq!(squashed.caller, Caller { uid: 1000, gid: 100, groups: Some(Vec::new()) });
        let (op, Extras { options, .. }) = squashed.op.without_extras();
        assert_eq!((op, options.unchecked), (ClientOp::Fs { op: read }, true));
        let listing = ClientOp::ListAt { cut: 1, dir: INO, after: 0 };
        assert_eq!(limited(&grant, request(listing)).map(|request| request.op), Err(Errno::EPERM));
    }

    #[test]
    fn whoever_sees_a_directory_attaches_to_that_whatever_it_asks_for() {
        let path = VolumePath::parse(b"/a").unwrap();
        let subtree = Some(Subtree { dir: INO, key: Key(3), path });
        // With the other limits as well.
        for (read_only, squash) in [(false, None), (true, Some((1000, 100)))] {
            let grant = Grant { volume: Some(VolumeId(1)), read_only, squash, subtree: subtree.clone() };
            let asked = |op| limited(&grant, request(op)).map(|request| request.op);
            let within = ClientOp::AttachWithin { mount: true, scope: INO };
            assert_eq!(asked(ClientOp::Attach { mount: true }), Ok(within.clone()));
            assert_eq!(asked(ClientOp::AttachWithin { mount: true, scope: Ino::ROOT }), Ok(within));
            // How a file was found comes to the island with it.
            let by = FoundBy { file: EntryRef { dir: INO, name: Name::new(b"n").unwrap() }, from: None };
            let extras = Extras { by: Some(Box::new(by.clone())), ..Extras::default() };
            let op = ClientOp::Fs { op: Op::Read { ino: INO, offset: 0, len: 9 } }.with_extras(extras);
            let (_, extras) = asked(op).unwrap().without_extras();
            assert_eq!((extras.by.as_deref(), extras.options.unchecked), (Some(&by), squash.is_some()));
        }
    }
}
