//! Members that come and go while the union is shown.

use atoll_posix::Errno;

use crate::dirs::{Home, Part};
use crate::native::Tag;
use crate::union::{Moment, Union};
use crate::view::Member;

impl Union {
    /// A member comes, as the last one in the order. Its tag is free.
    pub fn member_comes(&mut self, now: Moment, member: Member) {
        self.now = now;
        let root = Home::new(member.tag, member.root.id, Part::Unsure);
        self.members.add(member);
        self.known.member_came(root);
    }

    /// A member leaves. Files and directories that only it has are not there any more: `ESTALE` for whoever has them. `EBUSY` if an
    /// operation may be about to change something in it, unless it must leave all the same; `EINVAL` if it is the last one.
    pub fn member_leaves(&mut self, now: Moment, tag: Tag, must: bool) -> Result<(), Errno> {
        self.now = now;
        if self.members.iter().all(|member| member.tag == tag) {
            return Err(Errno::EINVAL);
        }
        if !must && self.is_used(tag) {
            return Err(Errno::EBUSY);
        }
        self.members.remove(tag);
        self.known.member_left(tag);
        self.graves.retain(|grave| grave.tag != tag);
        Ok(())
    }
}
