//! Walking a path from the root, for clients that have no ids. The owner of the last directory is asked at
//! once. An island that knows less answers how far it knows the path.

use atoll_core::{IslandId, Key, VolumePath};
use atoll_posix::{Answer, Errno};
use atoll_proto::Resolved;

use crate::call::CallKind;
use crate::out::RouteOut;
use crate::route::Route;

impl<T> Route<T> {
    /// Asks the owner of the path's last directory: only its answer is final.
    pub(crate) fn walk_owner(&self, path: &VolumePath) -> IslandId {
        let above = path.split_last().map_or(&[][..], |(above, _)| above);
        let key = self.hints.key(&self.h3, above).unwrap_or(Key(0));
        self.config.owner(key)
    }

    pub(crate) fn walked(&mut self, id: u64, resolved: Resolved, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        let CallKind::Walk(path) = &call.what else { return };
        let depth = resolved.depth as usize;
        if let (Some(key), Some(name)) =
            (resolved.key, depth.checked_sub(1).and_then(|i| path.names().get(i)))
        {
            // Its parent is not told; the name serves for the path of what is below.
            self.dirs.learn(resolved.found.attr.ino, key, self.config.root(), name);
        }
        let whole = depth == path.names().len();
        // What ends a path is no directory if it has no key.
        let dirs = if resolved.key.is_some() { depth } else { depth.saturating_sub(1) };
        let ends = resolved.is_final && resolved.key.is_some() && !whole;
        self.hints.walked(path, dirs, &resolved.key_overrides, ends);
        if whole && (resolved.is_final || resolved.key.is_none() || resolved.found.attr_current) {
            let call = self.take(id);
            let answer = Answer::Found { found: resolved.found.clone() };
            return Self::end(call, Ok(answer), None, Some(resolved), out);
        }
        if resolved.is_final && !whole {
            let errno = if resolved.key.is_some() { Errno::ENOENT } else { Errno::ENOTDIR };
            let call = self.take(id);
            return Self::end(call, Err(errno), None, Some(resolved), out);
        }
        // The walk went as far as this skeleton: the owner of where it ended knows more.
        let next = resolved.key.map(|key| self.config.owner(key));
        match next {
            Some(next) if next != call.island && call.requests < 64 => {
                call.island = next;
                self.ask(id, out);
            }
            _ => {
                let call = self.take(id);
                Self::end(call, Err(Errno::EIO), None, Some(resolved), out);
            }
        }
    }
}
