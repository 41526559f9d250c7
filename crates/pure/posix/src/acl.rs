//! POSIX.1e draft ACLs in the form in which Linux keeps them (`system.posix_acl_access` and
//! `system.posix_acl_default`, version 2). Parses, checks, masks, inherits; never stores.
//!
//! An `Acl` is valid by construction: the order and number of its entries is what
//! `posix_acl_valid` asks for.

use crate::attr::{Caller, mode};
use crate::errno::Errno;
use crate::perm::{AccessMode, Denied, ObjectPerms};
use atoll_core::{Decode, Encode, Malformed, Reader};

/// Name of the extended attribute that holds the access ACL.
pub const ACCESS_XATTR: &[u8] = b"system.posix_acl_access";
/// Name of the extended attribute that holds a directory's default ACL.
pub const DEFAULT_XATTR: &[u8] = b"system.posix_acl_default";

/// Longest value of either in bytes: 512 entries, as many as ext4 has room for. A longer one cannot be set
/// (`ENOSPC`): every island keeps the ACLs of all directories above its own.
pub const ACL_BYTES_MAX: usize = 4 + 512 * ENTRY_BYTES;

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// A named user or group, and what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedEntry {
    /// User or group id.
    pub id: u32,
    /// Read 4, write 2, execute 1.
    pub perm: u8,
}

/// An access control list. Every permission is a sum of read 4, write 2, execute 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    user_obj: u8,
    users: Vec<NamedEntry>,
    group_obj: u8,
    groups: Vec<NamedEntry>,
    mask: Option<u8>,
    other: u8,
}

/// What `posix_acl_valid` expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    UserObj,
    Users,
    Groups,
    Other,
    End,
}

impl Acl {
    /// The ACL that is equivalent to a mode.
    pub const fn from_mode(bits: u32) -> Self {
        Self {
            user_obj: (bits >> 6 & 7) as u8,
            users: Vec::new(),
            group_obj: (bits >> 3 & 7) as u8,
            groups: Vec::new(),
            mask: None,
            other: (bits & 7) as u8,
        }
    }

    /// Reads the value of the extended attribute. A value without entries is no ACL. `EOPNOTSUPP` for another
    /// version, `EINVAL` for any other mistake.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Errno> {
        let (version, entries) = bytes.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if entries.len() % ENTRY_BYTES != 0 {
            return Err(Errno::EINVAL);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let mut acl = Self::from_mode(0);
        let mut expect = Expect::UserObj;
        for raw in entries.chunks_exact(ENTRY_BYTES) {
            let tag = u16::from_le_bytes([raw[0], raw[1]]);
            let perm = u16::from_le_bytes([raw[2], raw[3]]);
            let id = u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]);
            let perm = u8::try_from(perm).ok().filter(|p| *p <= 7).ok_or(Errno::EINVAL)?;
            expect = acl.take(expect, tag, perm, id)?;
        }
        if expect == Expect::End { Ok(Some(acl)) } else { Err(Errno::EINVAL) }
    }

    fn take(&mut self, expect: Expect, tag: u16, perm: u8, id: u32) -> Result<Expect, Errno> {
        Ok(match (expect, tag) {
            (Expect::UserObj, USER_OBJ) => {
                self.user_obj = perm;
                Expect::Users
            }
            (Expect::Users, USER) if id != NO_ID => {
                self.users.push(NamedEntry { id, perm });
                Expect::Users
            }
            (Expect::Users, GROUP_OBJ) => {
                self.group_obj = perm;
                Expect::Groups
            }
            (Expect::Groups, GROUP) if id != NO_ID => {
                self.groups.push(NamedEntry { id, perm });
                Expect::Groups
            }
            (Expect::Groups, MASK) => {
                self.mask = Some(perm);
                Expect::Other
            }
            (Expect::Groups, OTHER) if self.users.is_empty() && self.groups.is_empty() => {
                self.other = perm;
                Expect::End
            }
            (Expect::Other, OTHER) => {
                self.other = perm;
                Expect::End
            }
            _ => return Err(Errno::EINVAL),
        })
    }

    /// The value of the extended attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.xattr_len());
        VERSION.encode(&mut out);
        let mut put = |tag: u16, perm: u8, id: u32| {
            tag.encode(&mut out);
            u16::from(perm).encode(&mut out);
            id.encode(&mut out);
        };
        put(USER_OBJ, self.user_obj, NO_ID);
        self.users.iter().for_each(|named| put(USER, named.perm, named.id));
        put(GROUP_OBJ, self.group_obj, NO_ID);
        self.groups.iter().for_each(|named| put(GROUP, named.perm, named.id));
        if let Some(mask) = self.mask {
            put(MASK, mask, NO_ID);
        }
        put(OTHER, self.other, NO_ID);
        out
    }

    /// Length of [`Acl::to_xattr`] in bytes.
    pub const fn xattr_len(&self) -> usize {
        let named = self.users.len() + self.groups.len();
        size_of::<u32>() + ENTRY_BYTES * (named + 3 + self.mask.is_some() as usize)
    }

    /// Whether the mode is equivalent to this ACL, so that nothing need be stored.
    pub const fn is_minimal(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    /// The mode that shows this ACL: the group class is the mask, if there is one. Set-id and
    /// sticky bits of `bits` stay.
    pub const fn to_mode(&self, bits: u32) -> u32 {
        (bits & !0o777) | (self.user_obj as u32) << 6 | (self.group_class() as u32) << 3 | self.other as u32
    }

    const fn group_class(&self) -> u8 {
        match self.mask {
            Some(mask) => mask,
            None => self.group_obj,
        }
    }

    const fn set_group_class(&mut self, perm: u8) {
        match &mut self.mask {
            Some(mask) => *mask = perm,
            None => self.group_obj = perm,
        }
    }

    /// Makes this access ACL show the mode `bits`, as `chmod(2)` does.
    pub const fn chmod(&mut self, bits: u32) {
        self.user_obj = (bits >> 6 & 7) as u8;
        self.set_group_class((bits >> 3 & 7) as u8);
        self.other = (bits & 7) as u8;
    }

    /// The mode of a file that is created with `bits` where this is the default ACL, and its access ACL
    /// unless the mode is equivalent to it. The umask plays no part.
    pub fn inherit(&self, bits: u32) -> (u32, Option<Self>) {
        let mut access = self.clone();
        access.chmod(self.to_mode(0) & bits);
        let bits = access.to_mode(bits);
        (bits, if access.is_minimal() { None } else { Some(access) })
    }

    /// Judges a caller who is not the file's owner and not root.
    pub(crate) fn check_not_owner(&self, caller: &Caller, gid: u32, want: AccessMode) -> Result<(), Denied> {
        let verdict = |ok| if ok { Ok(()) } else { Err(Denied::Errno(Errno::EACCES)) };
        let masked = want.within(u32::from(self.mask.unwrap_or(7)));
        if let Some(named) = self.users.iter().find(|named| named.id == caller.uid) {
            return verdict(masked && want.within(u32::from(named.perm)));
        }
        // One matching group that grants is enough; matching ones that do not shut out "other".
        let (mut matched, mut may_match, mut may_grant) = (false, false, false);
        let owning = NamedEntry { id: gid, perm: self.group_obj };
        for group in std::iter::once(&owning).chain(&self.groups) {
            let grants = want.within(u32::from(group.perm));
            match caller.is_member(group.id) {
                Some(true) if grants => return verdict(masked),
                Some(true) => matched = true,
                Some(false) => {}
                None if grants => may_grant = true,
                None => may_match = true,
            }
        }
        // Every verdict that the unknown memberships leave open.
        let granted = may_grant.then_some(masked);
        let shut_out = (matched || may_match).then_some(false);
        let other = (!matched).then_some(want.within(u32::from(self.other)));
        let mut open = [granted, shut_out, other].into_iter().flatten();
        let first = open.next().expect("either a group matched, or other is possible");
        if open.all(|verdict| verdict == first) { verdict(first) } else { Err(Denied::NeedGroups) }
    }
}

/// The result of setting the access ACL of `what` to `acl`: the ACL to store (none if the mode is equivalent
/// to it) and the mode. `None` removes the ACL and leaves the mode. `xattr::may_write` decides whether the
/// caller may do this; `kill_sgid` is the frontend's word that set-group-id must go.
pub fn set_access(
    caller: &Caller,
    what: ObjectPerms,
    acl: Option<Acl>,
    kill_sgid: bool,
) -> Result<(Option<Acl>, u32), Denied> {
    let Some(acl) = acl else { return Ok((None, what.mode)) };
    let mut bits = acl.to_mode(what.mode);
    if bits & mode::SETGID != 0 && !caller.is_root() {
        let member = if kill_sgid { Some(false) } else { caller.is_member(what.gid) };
        if !member.ok_or(Denied::NeedGroups)? {
            bits &= !mode::SETGID;
        }
    }
    Ok((if acl.is_minimal() { None } else { Some(acl) }, bits))
}

impl Encode for Acl {
    fn encode(&self, out: &mut Vec<u8>) {
        self.to_xattr().as_slice().encode(out);
    }

    fn encoded_len(&self) -> usize {
        size_of::<u32>() + self.xattr_len()
    }
}

impl Decode for Acl {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::parse(r.take_bytes("acl")?).ok().flatten().ok_or(Malformed::new("acl"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Kind;
    use crate::perm::check;
    use proptest::prelude::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
            out.extend(id.to_le_bytes());
        }
        out
    }

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl::parse(&value(entries)).unwrap().unwrap()
    }

    /// user::rw-, user:5:rw-, user:6:r--, group::r--, group:7:rw-, group:8:---, mask::rw-, other::---
    const RICH: &[(u16, u16, u32)] = &[
        (USER_OBJ, 6, NO_ID),
        (USER, 6, 5),
        (USER, 4, 6),
        (GROUP_OBJ, 4, NO_ID),
        (GROUP, 6, 7),
        (GROUP, 0, 8),
        (MASK, 6, NO_ID),
        (OTHER, 4, NO_ID),
    ];

    #[test]
    fn setfacl_s_own_bytes_come_back() {
        // What `setfacl -m u:1001:rw,g:2000:r` stores on ext4 for a file of mode 0644.
        let stored =
            b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x06\0\xe9\x03\0\0\x04\0\x04\0\xff\xff\xff\xff\
            \x08\0\x04\0\xd0\x07\0\0\x10\0\x06\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
        let parsed = Acl::parse(stored).unwrap().unwrap();
        assert_eq!(parsed.to_xattr(), stored);
        assert_eq!(parsed.to_mode(0o4000), 0o4664);
        assert_eq!(Acl::from_slice(&parsed.to_vec()), Ok(parsed));
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let (u, g, o) = ((USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 5, NO_ID));
        assert_eq!(Acl::parse(&value(&[])), Ok(None));
        assert!(Acl::parse(&value(&[u, g, o])).unwrap().unwrap().is_minimal());
        let refused: &[&[(u16, u16, u32)]] = &[
            &[u],
            &[u, g],
            &[g, u, o],
            &[u, g, o, o],
            &[u, u, g, o],
            &[u, (USER, 7, 5), g, o],
            &[u, g, (GROUP, 7, 5), o],
            &[u, (USER, 7, NO_ID), g, (MASK, 7, NO_ID), o],
            &[u, g, (MASK, 7, NO_ID), (MASK, 7, NO_ID), o],
            &[u, g, (MASK, 8, NO_ID), o],
            &[u, g, (0x40, 7, NO_ID), o],
        ];
        for entries in refused {
            assert_eq!(Acl::parse(&value(entries)), Err(Errno::EINVAL), "{entries:?}");
        }
        let whole = value(RICH);
        assert_eq!(Acl::parse(&whole[..whole.len() - 1]), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&whole[..3]), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&[&[1, 0, 0, 0], &whole[4..]].concat()), Err(Errno::EOPNOTSUPP));
    }

    fn judge(acl: &Acl, uid: u32, groups: Option<&[u32]>, want: AccessMode) -> Result<(), Denied> {
        let caller = Caller { uid, gid: 900, groups: groups.map(<[u32]>::to_vec) };
        let file = ObjectPerms { uid: 1, gid: 2, mode: acl.to_mode(0), kind: Kind::Regular };
        check(&caller, file, want, Some(acl))
    }

    #[test]
    fn the_first_class_that_matches_decides_under_the_mask() {
        let denied = Err(Denied::Errno(Errno::EACCES));
        let mut rich = acl(RICH);
        let (read, write) = (AccessMode::READ, AccessMode::WRITE);
        assert_eq!(judge(&rich, 5, Some(&[8]), write), Ok(()));
        assert_eq!(judge(&rich, 6, Some(&[7]), write), denied, "a named user is not asked for groups");
        assert_eq!(judge(&rich, 9, Some(&[8, 7]), write), Ok(()), "one group that grants is enough");
        assert_eq!(judge(&rich, 9, Some(&[8, 2]), write), denied);
        assert_eq!(judge(&rich, 9, Some(&[8]), read), denied, "a matching group shuts out other");
        assert_eq!(judge(&rich, 9, Some(&[]), read), Ok(()));
        rich.chmod(0o644);
        assert_eq!(judge(&rich, 5, Some(&[]), write), denied);
        assert_eq!(judge(&rich, 9, Some(&[7]), write), denied);
        assert_eq!(judge(&rich, 9, Some(&[7]), read), Ok(()));
    }

    #[test]
    fn chmod_changes_the_mask_if_there_is_one_and_the_group_if_not() {
        let mut rich = acl(RICH);
        rich.chmod(0o751);
        assert_eq!(rich.to_mode(0), 0o751);
        assert_eq!((rich.group_obj, rich.mask), (4, Some(5)));
        let mut plain = Acl::from_mode(0o640);
        plain.chmod(0o751);
        assert_eq!(plain, Acl::from_mode(0o751));
    }

    #[test]
    fn a_default_acl_is_inherited_under_the_mode_asked_for() {
        let (mode, inherited) = acl(RICH).inherit(0o2640);
        assert_eq!(mode, 0o2640);
        let inherited = inherited.unwrap();
        assert_eq!((inherited.mask, inherited.other, inherited.group_obj), (Some(4), 0, 4));
        assert_eq!(Acl::from_mode(0o750).inherit(0o666), (0o640, None), "a minimal one collapses");
    }

    #[test]
    fn setting_an_acl_shows_in_the_mode_and_may_take_set_gid() {
        let file = ObjectPerms { uid: 5, gid: 7, mode: 0o6755, kind: Kind::Regular };
        let by = |groups: Option<&[u32]>, kill| {
            let caller = Caller { uid: 5, gid: 5, groups: groups.map(<[u32]>::to_vec) };
            set_access(&caller, file, Some(acl(RICH)), kill).map(|(stored, mode)| (stored.is_some(), mode))
        };
        assert_eq!(by(Some(&[7]), false), Ok((true, 0o6664)));
        assert_eq!(by(Some(&[]), false), Ok((true, 0o4664)));
        assert_eq!(by(None, false), Err(Denied::NeedGroups));
        assert_eq!(by(None, true), Ok((true, 0o4664)));
        let minimal = set_access(&Caller::ROOT, file, Some(Acl::from_mode(0o600)), false);
        assert_eq!(minimal, Ok((None, 0o6600)));
        assert_eq!(set_access(&Caller::ROOT, file, None, false), Ok((None, 0o6755)));
    }

    proptest! {
        #[test]
        fn groups_are_asked_for_exactly_when_they_decide(
            perms in proptest::collection::vec(0u16..8, 6), want in 1u8..8, uid in 4u32..7,
        ) {
            let rich = acl(&[
                (USER_OBJ, 7, NO_ID), (USER, perms[0], 5), (GROUP_OBJ, perms[1], NO_ID), (GROUP, perms[2], 7),
                (GROUP, perms[3], 8), (MASK, perms[4], NO_ID), (OTHER, perms[5], NO_ID),
            ]);
            let want = AccessMode::from_bits(want);
            // Every set of groups that the caller could be in.
            let all = (0..8u32).map(|set| {
                let groups: Vec<u32> =
                    [2, 7, 8].into_iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, g)| g).collect();
                judge(&rich, uid, Some(&groups), want)
            });
            let mut all: Vec<_> = all.collect();
            let first = all[0];
            all.retain(|verdict| *verdict != first);
            let expected = if all.is_empty() { first } else { Err(Denied::NeedGroups) };
            prop_assert_eq!(judge(&rich, uid, None, want), expected);
        }

        #[test]
        fn no_bytes_make_the_parser_panic_and_what_parses_comes_back(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut bytes = bytes;
            if let Some(head) = bytes.first_chunk_mut::<4>() {
                *head = VERSION.to_le_bytes();
            }
            if let Ok(Some(acl)) = Acl::parse(&bytes) {
                prop_assert_eq!(Acl::parse(&acl.to_xattr()), Ok(Some(acl)));
            }
        }
    }
}
