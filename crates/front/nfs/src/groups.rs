//! The groups that this machine knows of a user, for exports that do not believe the client's list. Owns a bounded cache; asks
//! the system's user database when it is out of date.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long an answer of the database is used.
const KEPT: Duration = Duration::from_secs(60);
/// Most users whose groups are kept.
const USERS_MAX: usize = 4096;
/// Most groups of a user (Linux's own bound).
const GROUPS_MAX: usize = 65_536;
/// Most bytes of a user's entry in the database.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Users with their groups, and when these were asked for.
type Users = HashMap<u32, (Instant, Arc<[u32]>)>;

/// See the top of the file.
#[derive(Default)]
pub(crate) struct Groups(Mutex<Users>);

impl Groups {
    fn lock(&self) -> MutexGuard<'_, Users> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// The groups of a user. None for a user that is not known here.
    pub(crate) fn of(&self, uid: u32) -> Arc<[u32]> {
        self.of_at(uid, Instant::now(), look_up)
    }

    fn of_at(&self, uid: u32, now: Instant, look_up: impl FnOnce(u32) -> Vec<u32>) -> Arc<[u32]> {
        if let Some((since, groups)) = self.lock().get(&uid)
            && now.duration_since(*since) < KEPT
        {
            return Arc::clone(groups);
        }
        // The database may be on another machine.
        atoll_vfs::handover::slow();
        let groups: Arc<[u32]> = look_up(uid).into();
        let mut cache = self.lock();
        if cache.len() >= USERS_MAX && !cache.contains_key(&uid) {
            cache.retain(|_, (since, _)| now.duration_since(*since) < KEPT);
            if cache.len() >= USERS_MAX {
                cache.clear();
            }
        }
        cache.insert(uid, (now, Arc::clone(&groups)));
        groups
    }
}

/// Asks the system's user database.
fn look_up(uid: u32) -> Vec<u32> {
    let mut buffer = vec![0; 4096];
    loop {
        // SAFETY: plain numbers and pointers, which the call fills in.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the entry's texts lie in the buffer, whose length is told.
        let done = unsafe {
            libc::getpwuid_r(uid, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
        };
        if done == libc::ERANGE && buffer.len() < ENTRY_BYTES_MAX {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        if done != 0 || found.is_null() {
            return Vec::new();
        }
        // SAFETY: the call has put a text that ends there.
        return of_name(unsafe { CStr::from_ptr(entry.pw_name) }, entry.pw_gid);
    }
}

fn of_name(name: &CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as i32;
        // SAFETY: at most `count` groups are written, which is the length of the list.
        let done = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let told = usize::try_from(count).unwrap_or(0);
        if done >= 0 {
            groups.truncate(told);
            return groups;
        }
        if groups.len() >= GROUPS_MAX {
            return groups;
        }
        let more = told.max(groups.len() * 2).min(GROUPS_MAX);
        groups.resize(more, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_asked_for_once_in_a_minute_and_users_are_bounded() {
        let (groups, start) = (Groups::default(), Instant::now());
        let never = |_| panic!("it is known");
        assert_eq!(groups.of_at(5, start, |_| vec![1, 2])[..], [1, 2]);
        assert_eq!(groups.of_at(5, start + KEPT / 2, never)[..], [1, 2]);
        assert_eq!(groups.of_at(5, start + KEPT, |_| vec![3])[..], [3]);
        assert!(groups.of_at(6, start, |_| Vec::new()).is_empty(), "not known here");
        (0..2 * USERS_MAX as u32).for_each(|uid| _ = groups.of_at(uid, start, |_| vec![uid]));
        assert!(groups.lock().len() <= USERS_MAX);
    }

    #[test]
    fn the_database_of_this_machine_is_asked() {
        // As id(1) does: the groups of root, and of nobody in particular.
        assert!(look_up(0).contains(&0));
        assert!(look_up(u32::MAX - 7).is_empty());
    }
}
