//! Repairs rows that an island has about itself: limits, marks of transactions, flags, locks. Looks at other
//! islands only to learn that none of them has an id.

use std::collections::BTreeSet;

use atoll_check::Rule;
use atoll_core::Ino;
use atoll_posix::Kind;
use atoll_posix::acl::{ACCESS_XATTR, DEFAULT_XATTR};
use atoll_proto::RowChange;

use crate::work::Work;

/// Counters of ids that are believed: more would be a damaged row, not an id that was minted.
pub(crate) const COUNTER_MAX: u64 = 1 << (Ino::COUNTER_BITS - 1);

/// The number of ids that the island has minted before this one.
pub(crate) const fn counter(ino: Ino) -> u64 {
    ino.0 & ((1 << Ino::COUNTER_BITS) - 1)
}

impl Work<'_> {
    /// No id is minted twice.
    pub(crate) fn ids(&mut self) {
        for island in self.islands() {
            let rows = &self.rows[&island];
            let all = rows.inodes.keys().chain(rows.dirs.keys());
            let mine = all.filter(|ino| ino.minted_by() == island).map(|ino| counter(*ino));
            let last = mine.filter(|counter| *counter < COUNTER_MAX).max().unwrap_or(0);
            if last >= rows.meta.mint_limit {
                let what = format!("ids from {} on are new ones", last + 1);
                self.fix(
                    Rule::IdMinted,
                    island,
                    None,
                    what,
                    vec![(island, RowChange::MintLimit { limit: last + 1 })],
                );
            }
        }
    }

    /// Removes marks of transactions that are not there. A participant asks the coordinator that the
    /// transaction's id names.
    pub(crate) fn marks(&mut self) {
        for island in self.islands() {
            let rows = &self.rows[&island];
            let is_gone = |txn: Option<_>| txn.is_some_and(|txn| !rows.txns.contains_key(&txn));
            let marked = rows.dirs.iter().filter_map(|(ino, dir)| Some((*ino, dir.owned.as_ref()?)));
            let marked: Vec<_> = marked
                .map(|(ino, owned)| (ino, is_gone(owned.sealed), is_gone(owned.adopted)))
                .filter(|(_, sealed, adopted)| *sealed || *adopted)
                .collect();
            for (ino, sealed, adopted) in marked {
                let change = self.dir_with(island, ino, |dir| {
                    let owned = dir.owned.as_mut().expect("it was found marked");
                    owned.sealed = owned.sealed.filter(|_| !sealed);
                    owned.adopted = owned.adopted.filter(|_| !adopted);
                });
                let what = "it waits for no transaction any more: there is none".to_owned();
                self.fix(Rule::TxnCaused, island, Some(ino), what, vec![change]);
            }
            let is_island = |island| self.volume.table.owners().contains(island);
            let astray: Vec<_> = self.rows[&island]
                .txns
                .iter()
                .filter(|(id, txn)| id.coordinator != island && txn.partner != id.coordinator)
                .filter(|(id, _)| is_island(&id.coordinator))
                .map(|(id, txn)| (*id, txn.clone()))
                .collect();
            for (id, mut txn) in astray {
                txn.partner = id.coordinator;
                let what =
                    format!("transaction {:x} asks island {} for its outcome", id.stamp.0, id.coordinator);
                let change = RowChange::Txn { txn: id, row: Some(Box::new(txn)) };
                self.fix(Rule::TxnCaused, island, None, what, vec![(island, change)]);
            }
        }
    }

    /// Files announce the attributes that they have; checksums end with their file; each lock has a client.
    pub(crate) fn flags(&mut self) {
        self.announce();
        self.left_attributes();
        self.cut_sums();
        self.locks();
    }

    fn announce(&mut self) {
        for island in self.islands() {
            let rows = &self.rows[&island];
            let has = |ino: &Ino, names: &[&[u8]]| {
                let xattrs = rows.xattrs.get(ino);
                let acl = xattrs.is_some_and(|x| names.iter().any(|name| x.get(name).is_some()));
                (xattrs.is_some_and(|x| !x.0.is_empty()), acl)
            };
            let mut changes = Vec::new();
            for (ino, row) in &rows.inodes {
                let is_dir = row.attr.kind == Kind::Directory;
                let now = has(ino, if is_dir { &[ACCESS_XATTR, DEFAULT_XATTR] } else { &[ACCESS_XATTR] });
                if now != (row.has_xattrs, row.has_acl) {
                    let mut row = row.clone();
                    (row.has_xattrs, row.has_acl) = now;
                    changes.push((*ino, RowChange::Inode { ino: *ino, row: Some(Box::new(row)) }));
                }
            }
            for (ino, row) in &rows.dirs {
                // Those of a removed directory that is kept are not the skeleton's.
                let is_kept = rows.inodes.contains_key(ino);
                let now = if is_kept { (false, false) } else { has(ino, &[ACCESS_XATTR, DEFAULT_XATTR]) };
                if now != (row.has_xattrs, row.has_acl) {
                    let mut row = row.clone();
                    (row.has_xattrs, row.has_acl) = now;
                    changes.push((*ino, RowChange::Dir { ino: *ino, row: Some(Box::new(row)) }));
                }
            }
            for (ino, change) in changes {
                let what = "it says whether it has extended attributes and an ACL, as it has".to_owned();
                self.fix(Rule::XattrsAnnounced, island, Some(ino), what, vec![(island, change)]);
            }
        }
    }

    /// Removes attributes and checksums of an id that has no file, no name and no bytes. No id is used again,
    /// so nothing can ever reach them.
    fn left_attributes(&mut self) {
        if !self.whole {
            return;
        }
        for island in self.islands() {
            let rows = &self.rows[&island];
            let is_nobodys = |ino: &Ino| !rows.inodes.contains_key(ino) && !rows.dirs.contains_key(ino);
            let all = rows.xattrs.keys().chain(rows.sums_end.keys());
            let left: BTreeSet<Ino> = all.copied().filter(is_nobodys).collect();
            if left.is_empty() {
                continue;
            }
            let named = self.named_ids();
            let is_left = |ino: &Ino| !named.contains(ino) && self.native.body(island, *ino).is_none();
            for ino in left.into_iter().filter(is_left).collect::<Vec<_>>() {
                let rows = &self.rows[&island];
                if let Some(xattrs) = rows.xattrs.get(&ino) {
                    let names: Vec<_> = xattrs.0.iter().map(|(n, _)| n.escape_ascii().to_string()).collect();
                    let names = names.join(", ");
                    let what = format!("extended attributes of a file that is nowhere are dropped: {names}");
                    let change = RowChange::Xattrs { ino, row: None };
                    self.fix(Rule::XattrsAnnounced, island, Some(ino), what, vec![(island, change)]);
                }
                if let Some(end) = self.rows[&island].sums_end.get(&ino).copied() {
                    let what = "checksums of a file that is nowhere are dropped".to_owned();
                    let change = RowChange::SumsCut { ino, first: 0, end };
                    self.fix(Rule::SumsFit, island, Some(ino), what, vec![(island, change)]);
                }
            }
        }
    }

    /// Removes checksums behind a file's end if the native file ends there too. Otherwise the length may be
    /// wrong.
    fn cut_sums(&mut self) {
        for island in self.islands() {
            let rows = &self.rows[&island];
            let beyond: Vec<_> = rows
                .inodes
                .iter()
                .filter_map(|(ino, row)| Some((*ino, row.attr.size, rows.sums_beyond(*ino)?)))
                .filter(|(ino, size, _)| self.native.body(island, *ino).is_none_or(|body| body.size <= *size))
                .collect();
            for (ino, _, (end, blocks)) in beyond {
                let what = format!("checksums behind its end are dropped: of {} blocks", end - blocks);
                let change = RowChange::SumsCut { ino, first: blocks, end };
                self.fix(Rule::SumsFit, island, Some(ino), what, vec![(island, change)]);
            }
        }
    }

    fn locks(&mut self) {
        for island in self.islands() {
            for (ino, mut locks) in self.rows[&island].locks.clone() {
                let rows = &self.rows[&island];
                let mut changes = Vec::new();
                let is_there = rows.inodes.contains_key(&ino) || rows.dirs.contains_key(&ino);
                let holders: Vec<_> = locks.held().map(|(who, _)| who.session).collect();
                for session in holders {
                    match rows.sessions.get(&session) {
                        Some(row) if is_there && row.held.contains(&ino) => {}
                        Some(_) if is_there => {
                            changes.push((island, RowChange::Held { session, ino, on: true }));
                        }
                        _ => drop(locks.drop_session(session)),
                    }
                }
                changes.dedup();
                let now = Some(locks).filter(|locks| is_there && !locks.is_empty());
                if now.as_ref() != rows.locks.get(&ino) {
                    changes.push((island, RowChange::Locks { ino, row: now }));
                }
                if !changes.is_empty() {
                    let what = "locks of clients that are gone are dropped, others are theirs".to_owned();
                    self.fix(Rule::LocksHeld, island, Some(ino), what, changes);
                }
            }
        }
    }
}
