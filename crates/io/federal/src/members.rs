//! Members that come and go while the union is shown.

use std::sync::Arc;
use std::time::Duration;

use atoll_member::TreeState;
use atoll_posix::Errno;
use atoll_union::{Member, MemberState, Moment, NativeCall, NativeReply, Tag, Who};

use crate::{Clock, Federation, Opened};

/// How long a member that is to leave is waited for: operations under way end, and others let go of it.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// A member that serves.
pub(crate) fn serving((tag, read_only, tree): &Opened, now: Moment) -> Member {
    let space = match tree.call(&Who::Daemon, &NativeCall::Space, &[]) {
        Ok(NativeReply::Space(space)) => Some(space),
        _ => None,
    };
    Member {
        tag: *tag,
        root: tree.root(),
        read_only: *read_only,
        state: MemberState::Serving,
        since: now.ms,
        losses: now.ms,
        space,
    }
}

impl Federation {
    /// A member comes. Its tag is free.
    pub fn join(self: &Arc<Self>, opened: Opened) {
        let now = self.now();
        let member = serving(&opened, now);
        let (tag, _, tree) = opened;
        // Before the machine asks it.
        self.trees.write().expect("no holder panics").insert(tag, Arc::clone(&tree));
        self.machine().member_comes(now, member);
        if let Clock::Real(_) = self.clock {
            self.look_after(tag, &tree);
        }
    }

    /// A member leaves. When this returns nothing of it is open here, unless a call to it hangs. `EBUSY` if operations under way use
    /// it, or it must still settle a rename, unless it must leave all the same; `EINVAL` if it is the last one; `ENOENT` if there is
    /// none of this tag.
    pub fn leave(&self, tag: Tag, must: bool) -> Result<(), Errno> {
        let tree = self.tree(tag).ok_or(Errno::ENOENT)?;
        if !must && tree.state() == TreeState::Serving {
            self.written.sync(tag, &tree);
        }
        if !must && self.is_intended(tag) {
            return Err(Errno::EBUSY);
        }
        let mut left = LEAVE_MAX;
        let mut wait = || {
            std::thread::sleep(LOOK);
            left = left.saturating_sub(LOOK);
            !left.is_zero()
        };
        loop {
            let outcome = self.machine().member_leaves(self.now(), tag, must);
            match outcome {
                Err(Errno::EBUSY) if wait() => {}
                outcome => break outcome?,
            }
        }
        self.trees.write().expect("no holder panics").remove(&tag);
        self.unclosed.lock().expect("no holder panics").retain(|planned| planned.tag != tag);
        // Whoever asked for it wants to unmount its disk now.
        while matches!(self.clock, Clock::Real(_)) && Arc::strong_count(&tree) > 1 && wait() {}
        Ok(())
    }

    /// Whether what was written down of a rename still speaks of a member.
    pub fn is_intended(&self, tag: Tag) -> bool {
        self.written.concerns(tag)
    }
}
