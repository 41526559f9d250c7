//! Rules about symbolic links to directories, of which every island keeps a row. A change in an island's last
//! moment before an unclean end, or while another island was away, is told when both are up, so it is no
//! violation.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId};
use atoll_proto::CarriedLink;
use atoll_state::links::digest_of;

use crate::{Finding, Rows, Rule, Volume};

/// Everything that is wrong with an island's own links, as it has told of them.
pub(crate) fn within(rows: &Rows, findings: &mut Vec<Finding>) {
    if !rows.meta.clean {
        return;
    }
    for (ino, link) in rows.links.iter().filter(|(_, link)| link.home == rows.island) {
        let mut found = |what: String| {
            findings.push(Finding { rule: Rule::LinkThere, island: rows.island, ino: Some(*ino), what });
        };
        match rows.inodes.get(ino).map(|row| row.target.as_ref()) {
            None => found("others are told that it leads to a directory, but it is not there".to_owned()),
            Some(target) if target != Some(&link.target) => {
                found("others are told of another target than it has".to_owned());
            }
            Some(_) => {}
        }
        for entry_ref in &link.names {
            let names = rows.names_of(entry_ref.dir);
            if !names.iter().any(|(_, name, entry)| *name == entry_ref.name && entry.ino == *ino) {
                let shown = entry_ref.name.as_bytes().escape_ascii();
                found(format!(
                    "others are told of its name \"{shown}\" in {}, which is not there",
                    entry_ref.dir
                ));
            }
        }
    }
}

/// Everything that is wrong with the rows that islands keep of each other's links.
pub(crate) fn across(volume: &Volume, by_id: &BTreeMap<IslandId, &Rows>, findings: &mut Vec<Finding>) {
    let of = |rows: &Rows, home| -> BTreeMap<Ino, CarriedLink> {
        let links = rows.links.iter().filter(|(_, link)| link.home == home);
        links.map(|(ino, link)| (*ino, link.clone())).collect()
    };
    for home in by_id.values().filter(|rows| rows.meta.clean) {
        let told = of(home, home.island);
        let digest = digest_of(volume.seed, told.iter().map(|(ino, link)| (*ino, link)));
        for other in by_id.values().filter(|rows| rows.meta.clean && rows.island != home.island) {
            if home.links_told.get(&other.island) != Some(&digest) {
                continue; // It is on its way.
            }
            let kept = of(other, home.island);
            let mut found = |ino: Ino, what: String| {
                findings.push(Finding { rule: Rule::LinksAgree, island: other.island, ino: Some(ino), what });
            };
            for (ino, link) in &told {
                match kept.get(ino) {
                    None => found(*ino, format!("it does not know this link of island {}", home.island)),
                    Some(here) if here != link => {
                        found(*ino, format!("it knows this link otherwise than its home {}", home.island));
                    }
                    Some(_) => {}
                }
            }
            for ino in kept.keys().filter(|ino| !told.contains_key(ino)) {
                found(*ino, format!("it knows a link of island {} that is gone", home.island));
            }
        }
    }
}
