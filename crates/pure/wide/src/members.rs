//! The sites of a volume, as one of them knows them. Owns their rows, and who was told of them. Knows no socket.
//!
//! Each site has a row, which says where it is and by which key it is known. Of two the later one counts. Sites tell each other of all
//! sites before anything else on a link, and a row is in the log before anything that its site has made. So the name of a writer's site
//! is known wherever a change of that writer is, and is the same everywhere: names of conflicts have it.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::Writer;
use atoll_core::{Decode, Malformed, wire_enum, wire_struct};
use atoll_proto::RowChange;
use bytes::Bytes;

use crate::author::BundleChange;
use crate::lives::dots_of;
use crate::peers::Refused;
use crate::peers::message::{Most, SITES_MAX, WideMessage};
use crate::rows::{MEMBERS, ROOT_WRITER, SiteId, set};

/// Bytes of the name of a site, at most.
pub const SITE_NAME_MAX: usize = 32;
/// Addresses of a site, at most,
pub const ADDRESSES_MAX: usize = 8;
/// and bytes of one.
pub const ADDRESS_BYTES_MAX: usize = 255;

wire_enum! {
    /// Whether a site takes part.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum SiteStanding {
        /// It does.
        1 => Active,
        /// It has left the volume in order. It comes back as another site.
        2 => Left,
        /// The others go on without it. It comes back as another site.
        3 => Forgotten,
    }
}

wire_struct! {
    /// A site of a volume.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    pub struct SiteMember {
        /// Counts up with each change: of two rows of a site the higher one counts.
        pub version: u64,
        /// Whether it takes part.
        pub state: SiteStanding,
        /// Under which it gives out dots.
        pub writer: Writer,
        /// Its name, which never changes.
        pub name: String,
        /// Where others reach it, each as `HOST:PORT`; none if they cannot.
        pub addresses: Vec<String>,
        /// SHA-256 of its public key (SubjectPublicKeyInfo, DER), by which others know it.
        pub key: Bytes,
    }
}

/// Bytes of [`SiteMember::key`].
const KEY_BYTES: usize = 32;

wire_enum! {
    /// A site of the volume.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum MemberRow {
        /// It.
        1 => Member { /// It.
            member: SiteMember },
    }
}

wire_struct! {
    /// A site, with its number.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NumberedSite {
        /// Its number.
        pub site: u64,
        /// It.
        pub member: SiteMember,
    }
}

/// Whether a site may have this name: letters, digits, `-`, `_` and `.`, at most [`SITE_NAME_MAX`], and a letter or digit in front.
pub fn is_site_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=SITE_NAME_MAX).contains(&name.len())
        && name.bytes().all(is_good)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

impl SiteMember {
    /// Whether it is within the bounds of what a site may say of itself.
    fn is_sound(&self) -> bool {
        let is_address = |address: &String| (1..=ADDRESS_BYTES_MAX).contains(&address.len());
        is_site_name(&self.name)
            && self.key.len() == KEY_BYTES
            && self.addresses.len() <= ADDRESSES_MAX
            && self.addresses.iter().all(is_address)
    }

    /// Whether it takes part.
    pub fn is_active(&self) -> bool {
        self.state == SiteStanding::Active
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct SiteList {
    own: SiteId,
    all: BTreeMap<SiteId, SiteMember>,
    /// Those whose rows are to be written.
    unwritten: BTreeSet<SiteId>,
    /// Counts the changes of the list, and up to which one each linked site was told.
    changes: u64,
    told: BTreeMap<SiteId, u64>,
}

impl SiteList {
    /// The sites of the rows, and those that the configuration names, where that knows more: this site by its own word.
    pub(crate) fn open<'a>(
        own: SiteId,
        named: Vec<(SiteId, SiteMember)>,
        rows: impl IntoIterator<Item = &'a (u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        let (all, unwritten, told) = Default::default();
        let mut members = Self { own, all, unwritten, changes: 1, told };
        for (_, id, row) in rows.into_iter().filter(|(table, ..)| *table == MEMBERS) {
            let MemberRow::Member { member } = MemberRow::from_slice(row)?;
            members.all.insert(SiteId(*id as u64), member);
        }
        for (site, member) in named {
            match members.all.get(&site) {
                Some(known) if site == own && known.is_active() => {
                    let version = known.version;
                    if (SiteMember { version, ..member.clone() }) != *known {
                        members.put(site, SiteMember { version: version + 1, ..member });
                    }
                }
                Some(_) => {}
                None => members.put(site, member),
            }
        }
        Ok(members)
    }

    fn put(&mut self, site: SiteId, member: SiteMember) {
        self.all.insert(site, member);
        self.unwritten.insert(site);
        self.changes += 1;
    }

    /// All sites that this one knows, also those that do not take part any more.
    pub fn all(&self) -> impl Iterator<Item = (SiteId, &SiteMember)> {
        self.all.iter().map(|(site, member)| (*site, member))
    }

    /// A site.
    pub fn get(&self, site: SiteId) -> Option<&SiteMember> {
        self.all.get(&site)
    }

    /// This site.
    pub(crate) const fn own(&self) -> SiteId {
        self.own
    }

    /// Whether this site takes part. If not, it tells others so, and nothing else.
    pub fn takes_part(&self) -> bool {
        self.get(self.own).is_some_and(SiteMember::is_active)
    }

    /// Whether all that is known is in rows that were decided.
    pub fn are_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// The name of the site of a writer.
    pub(crate) fn name_of(&self, writer: Writer) -> Option<&str> {
        self.all.values().find(|member| member.writer == writer).map(|member| &*member.name)
    }

    /// Whether all that a change says to have been made was made by sites, or is the root.
    pub(crate) fn have_made(&self, change: &BundleChange) -> bool {
        let is_site = |writer| writer == ROOT_WRITER || self.name_of(writer).is_some();
        match change {
            BundleChange::DirsMoved { record } => is_site(record.stamp().writer),
            change => dots_of(change).into_iter().all(|(writer, _)| is_site(writer)),
        }
    }

    /// The writers of those that take part.
    pub(crate) fn writers(&self) -> BTreeSet<Writer> {
        self.all.values().filter(|member| member.is_active()).map(|member| member.writer).collect()
    }

    /// A site, or who administers this one, says who the sites are. What is later than what is known is taken. Whether something was.
    pub(crate) fn heard(&mut self, told: Most<NumberedSite, SITES_MAX>) -> Result<bool, Refused> {
        if !told.iter().all(|told| told.member.is_sound()) {
            return Err(Refused::Bound("what it says of a site"));
        }
        let before = self.changes;
        for NumberedSite { site, member } in told.into_vec() {
            let site = SiteId(site);
            let is_later = match self.all.get(&site) {
                // Its name and its writer stay: what was made under them is named by them.
                Some(known) => {
                    member > *known && (&member.name, member.writer) == (&known.name, known.writer)
                }
                None => self.all.len() < SITES_MAX && self.name_of(member.writer).is_none(),
            };
            if is_later {
                self.put(site, member);
            }
        }
        Ok(self.changes != before)
    }

    /// The rows that are to be written; they are in the record that is decided next.
    pub(crate) fn rows(&mut self) -> Vec<RowChange> {
        let unwritten = std::mem::take(&mut self.unwritten);
        let row = |site: &SiteId| MemberRow::Member { member: self.all[site].clone() };
        unwritten.iter().map(|site| set(MEMBERS, site.0.into(), &row(site))).collect()
    }

    /// What a site to which there is a link is to hear of the sites; none if it has heard all.
    pub(crate) fn tell(&mut self, to: SiteId) -> Option<WideMessage> {
        if self.told.insert(to, self.changes) == Some(self.changes) {
            return None;
        }
        let numbered =
            |(site, member): (&SiteId, &SiteMember)| NumberedSite { site: site.0, member: member.clone() };
        Some(WideMessage::Sites { sites: Most::new(self.all.iter().take(SITES_MAX).map(numbered).collect()) })
    }

    /// There is no link to a site any more.
    pub(crate) fn link_down(&mut self, site: SiteId) {
        self.told.remove(&site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(writer: u64, version: u64) -> SiteMember {
        SiteMember {
            version,
            state: SiteStanding::Active,
            writer: Writer(writer),
            name: format!("s{writer}"),
            addresses: vec!["host:1".into()],
            key: vec![7; KEY_BYTES].into(),
        }
    }

    fn told(site: u64, member: SiteMember) -> Most<NumberedSite, SITES_MAX> {
        Most::new(vec![NumberedSite { site, member }])
    }

    fn opened(rows: &[(u8, u128, Bytes)], version: u64) -> SiteList {
        SiteList::open(SiteId(1), vec![(SiteId(1), member(1, version))], rows).unwrap()
    }

    /// The side rows that a record sets.
    fn sides(changes: Vec<RowChange>) -> Vec<(u8, u128, Bytes)> {
        let side = |change| match change {
            RowChange::Side { table, id, row: Some(row) } => (table, id, row),
            other => panic!("{other:?}"),
        };
        changes.into_iter().map(side).collect()
    }

    #[test]
    fn a_site_that_begins_writes_its_own_row_once_and_again_when_it_has_moved() {
        let mut members = opened(&[], 1);
        let rows = sides(members.rows());
        assert_eq!(rows.len(), 1);
        let mut again = opened(&rows, 1);
        assert!(again.are_written() && again.rows().is_empty());
        let moved = SiteMember { addresses: vec!["other:2".into()], ..member(1, 1) };
        let mut again = SiteList::open(SiteId(1), vec![(SiteId(1), moved)], &rows).unwrap();
        assert_eq!(again.rows().len(), 1);
        assert_eq!(again.get(SiteId(1)).unwrap().version, 2);
    }

    #[test]
    fn of_two_rows_of_a_site_the_later_one_counts() {
        let mut members = opened(&[], 1);
        assert!(members.heard(told(2, member(2, 5))).unwrap());
        assert!(!members.heard(told(2, member(2, 4))).unwrap());
        assert!(!members.heard(told(2, member(2, 5))).unwrap());
        let left = SiteMember { state: SiteStanding::Left, ..member(2, 6) };
        assert!(members.heard(told(2, left)).unwrap());
        assert_eq!(members.writers(), [Writer(1)].into());
        assert_eq!(members.name_of(Writer(2)), Some("s2"), "what it has made keeps its name");
        assert!(members.takes_part());
        let left = SiteMember { state: SiteStanding::Forgotten, ..member(1, 6) };
        assert!(members.heard(told(1, left)).unwrap());
        assert!(!members.takes_part());
    }

    #[test]
    fn a_name_and_a_writer_stay_those_of_their_site() {
        let mut members = opened(&[], 1);
        assert!(members.heard(told(2, member(2, 5))).unwrap());
        assert!(!members.heard(told(2, SiteMember { name: "other".into(), ..member(2, 6) })).unwrap());
        assert!(!members.heard(told(2, SiteMember { writer: Writer(9), ..member(2, 6) })).unwrap());
        assert!(!members.heard(told(3, member(2, 5))).unwrap(), "a writer is of one site");
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_and_more_sites_than_fit_are_not_taken() {
        let mut members = opened(&[], 1);
        for bad in [
            SiteMember { name: String::new(), ..member(2, 1) },
            SiteMember { name: "a/b".into(), ..member(2, 1) },
            SiteMember { name: ".a".into(), ..member(2, 1) },
            SiteMember { name: "n".repeat(SITE_NAME_MAX + 1), ..member(2, 1) },
            SiteMember { addresses: vec!["h:1".into(); ADDRESSES_MAX + 1], ..member(2, 1) },
            SiteMember { addresses: vec!["h".repeat(ADDRESS_BYTES_MAX + 1)], ..member(2, 1) },
            SiteMember { key: vec![0; 31].into(), ..member(2, 1) },
        ] {
            assert!(members.heard(told(2, bad)).is_err());
        }
        for n in 2..200 {
            members.heard(told(n, member(n, 1))).unwrap();
        }
        assert_eq!(members.all().count(), SITES_MAX);
    }

    #[test]
    fn a_linked_site_hears_of_all_sites_once_and_again_when_there_is_news() {
        let mut members = opened(&[], 1);
        assert!(members.tell(SiteId(2)).is_some());
        assert!(members.tell(SiteId(2)).is_none());
        members.heard(told(3, member(3, 1))).unwrap();
        assert!(members.tell(SiteId(2)).is_some());
        members.link_down(SiteId(2));
        assert!(members.tell(SiteId(2)).is_some());
    }
}
