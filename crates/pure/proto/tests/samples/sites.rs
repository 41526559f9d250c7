//! What people ask a site of a wide volume for, and what it answers.

use atoll_core::{Ino, Name};
use atoll_proto::{SettledOutcome, SettledTold, SiteCondition, SiteOrder, SiteReply, SiteTold, TrashTold};
use bytes::Bytes;

use super::FILE;

pub(super) fn site_orders() -> Vec<(&'static str, SiteOrder)> {
    let volume = "docs".to_owned();
    vec![
        ("invite", SiteOrder::Invite { volume: volume.clone(), for_s: 86_400 }),
        (
            "join",
            SiteOrder::Join {
                line: "atoll-site-1.AA".to_owned(),
                name: "home".to_owned(),
                listen: "0.0.0.0:7200".to_owned(),
                addresses: vec!["home.example:7200".to_owned()],
                bytes_per_s: 1_000,
                waits: true,
            },
        ),
        ("start", SiteOrder::Start { volume: volume.clone() }),
        ("list", SiteOrder::List { volume: volume.clone() }),
        ("leave", SiteOrder::Leave { volume: volume.clone() }),
        ("forget", SiteOrder::Forget { volume: volume.clone(), site: "home".to_owned() }),
        ("confirm", SiteOrder::Confirm { volume: volume.clone(), inos: vec![FILE] }),
        ("trash_list", SiteOrder::TrashList { volume: volume.clone(), from: 1 << 64 }),
        (
            "trash_restore",
            SiteOrder::TrashRestore {
                volume: volume.clone(),
                key: (2 << 64) + 3,
                dir: Ino::ROOT,
                name: Name::new(b"a").unwrap(),
            },
        ),
        ("trash_empty", SiteOrder::TrashEmpty { volume: volume.clone(), upto: u128::MAX }),
        ("settled", SiteOrder::Settled { volume, from: 1 }),
    ]
}

pub(super) fn site_replies() -> Vec<(&'static str, SiteReply)> {
    let told = SiteTold {
        site: 1,
        name: "home".to_owned(),
        addresses: vec!["home.example:7200".to_owned()],
        condition: SiteCondition::Away,
        since_ms: Some(2),
        why: Some("no route".to_owned()),
        is_even: true,
        files_behind: 3,
        bytes_behind: 4,
        files_without_room: 1,
        sent: 5,
        received: 6,
        clock_ahead_ms: 7,
        clock_behind_ms: 8,
    };
    let rests = TrashTold {
        key: (2 << 64) + 3,
        since_ms: 4,
        path: Bytes::from_static(b"/a/b"),
        is_link: false,
        is_replaced: true,
        by: "home".to_owned(),
        size: 5,
        takes: 4_096,
    };
    let settled = SettledTold {
        time_ms: 1,
        path: Bytes::from_static(b"/a/b"),
        outcome: SettledOutcome::NotMoved,
        kept: Some("home".to_owned()),
        other: None,
    };
    vec![
        ("done", SiteReply::Done),
        ("invited", SiteReply::Invited { line: "atoll-site-1.AA".to_owned() }),
        ("joined", SiteReply::Joined { volume: "docs".to_owned() }),
        ("sites", SiteReply::Sites { sites: vec![told] }),
        (
            "confirmed",
            SiteReply::Confirmed {
                not_ready: 1,
                sites: vec![("a".to_owned(), Some(2)), ("b".to_owned(), None)],
            },
        ),
        ("trash", SiteReply::Trash { entries: vec![rests], next: Some(3 << 64) }),
        ("emptied", SiteReply::Emptied { bodies: 1, bytes: 4_096 }),
        ("settled", SiteReply::Settled { entries: vec![settled], next: None }),
    ]
}
