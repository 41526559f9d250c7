//! Handles: bytes that name a file or directory also after a restart of a frontend
//! (`docs/design/015-files.md`).

use std::collections::VecDeque;

use atoll_core::{Ino, IslandId};
use atoll_posix::{Caller, Errno, Kind, Op};
use atoll_proto::FileHandle;
use bytes::Bytes;

use crate::call::{Call, CallKind, Stage, Waiter};
use crate::out::RouteOut;
use crate::route::Route;

impl<T> Route<T> {
    /// The handle of a file or directory. None for a directory that was neither found nor listed, because its
    /// key is not known.
    pub fn handle_of(&self, ino: Ino, kind: Kind) -> Option<FileHandle> {
        match kind {
            Kind::Directory => self.dirs.get(ino).map(|known| FileHandle::Dir { ino, key: known.key }),
            _ => Some(FileHandle::File { ino, home: self.homes.of(ino) }),
        }
    }

    /// Notes which island to ask for the file or directory of a handle. Returns the id, with which every
    /// operation can be called from here on. `ESTALE` if this volume cannot have made the handle.
    pub fn know(&mut self, handle: &FileHandle) -> Result<Ino, Errno> {
        match *handle {
            FileHandle::File { ino, .. } | FileHandle::Dir { ino, .. }
                if ino.0 == 0 || !self.peers.contains_key(&ino.minted_by()) =>
            {
                Err(Errno::ESTALE)
            }
            FileHandle::File { home, .. } if !self.peers.contains_key(&home) => Err(Errno::ESTALE),
            FileHandle::File { ino, home } => {
                self.homes.pointed(ino, home);
                Ok(ino)
            }
            FileHandle::Dir { ino, key } => {
                if ino != Ino::ROOT {
                    self.dirs.learn_key(ino, key);
                }
                Ok(ino)
            }
        }
    }

    /// Asks for the attributes of a handle's file or directory, at all islands if necessary, and notes where
    /// it is. The call fails with `ESTALE` only if no island has it. Returns the number for
    /// [`Route::cancel`].
    pub fn find(
        &mut self,
        now_ms: u64,
        handle: &FileHandle,
        token: T,
        out: &mut RouteOut<T>,
    ) -> Result<u64, (Errno, T)> {
        let ino = match self.know(handle) {
            Ok(ino) => ino,
            Err(errno) => return Err((errno, token)),
        };
        self.counters.calls += 1;
        self.now_ms = self.now_ms.max(now_ms);
        let waiter = Some(Waiter { token, since_ms: now_ms });
        let what = CallKind::Op(Op::GetAttr { ino });
        let mut call = Call::new(waiter, Caller::ROOT, what, Bytes::new(), IslandId(0));
        if let FileHandle::File { home, .. } = *handle {
            // What is known may be newer than the handle; where its id was minted it was first.
            let likely = [self.homes.of(ino), home, ino.minted_by()];
            let mut rest: VecDeque<IslandId> = VecDeque::new();
            for island in likely.into_iter().chain(self.peers.keys().copied()) {
                if !rest.contains(&island) {
                    rest.push_back(island);
                }
            }
            call.island = rest.pop_front().expect("its home is one");
            call.stage = Stage::Searching { rest };
        }
        Ok(self.begin_call(call, out))
    }
}
