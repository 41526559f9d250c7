//! The short forms of `atoll-wan`: each measures something, with little data. Times are not judged: the machine may be busy.

use std::time::Duration;

use atoll_needs::needs;
use atoll_torture::network::PROGRAMS;
use atoll_torture::place::Place;
use atoll_wan::bytes::Bytes;
use atoll_wan::hour::Hour;
use atoll_wan::moves::Moves;
use atoll_wan::sites::Sites;
use atoll_wan::visible::Visible;
use atoll_wan::wire::{LinkTerms, Wire};
use atoll_wan::{bytes, hour, moves, visible};

const TERMS: LinkTerms = LinkTerms { round_trip: Duration::from_millis(20), rate: None, loss_ppm: 0 };

/// Two sites behind a link that takes no time yet, and the folder of all that is theirs.
fn two_sites(name: &str) -> (Place, Sites) {
    let place = Place::new(name).unwrap();
    let sites = Sites::both(Wire::new(LinkTerms::FREE).unwrap(), place.path()).unwrap();
    (place, sites)
}

fn said(line: String) {
    eprintln!("{line}");
}

#[test]
fn what_is_sent_for_a_change_is_about_what_has_changed() {
    needs!(Mounts, Networks, Tun, Programs(&PROGRAMS));
    let (_place, sites) = two_sites("wan-bytes");
    let watched = Duration::from_secs(1);
    let what = Bytes { terms: TERMS, large: 10_000_000, files: 50, rounds: 1, watched };
    let figures = bytes::run(&what, &sites, &mut said).unwrap().json();
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for row in rows {
        // Messages of an idle link are in it, more of them if the machine is slow.
        let payload = row["payload"].as_u64().unwrap();
        assert!(payload > 0 && payload < row["bar"].as_u64().unwrap() + 2000, "{row}");
    }
}

#[test]
fn a_file_is_seen_at_the_other_site_behind_the_delay_of_the_link() {
    needs!(Mounts, Networks, Tun, Programs(&PROGRAMS));
    let (_place, sites) = two_sites("wan-visible");
    let terms = LinkTerms { round_trip: Duration::from_millis(300), ..TERMS };
    let figures = visible::run(&Visible { terms, files: 2 }, &sites, &mut said).unwrap().json();
    for row in figures["rows"].as_array().unwrap() {
        assert!(row["median_s"].as_f64().unwrap() >= 0.15, "{row}");
    }
}

#[test]
fn what_two_sites_did_while_they_were_cut_off_is_at_both_when_they_have_met() {
    needs!(Mounts, Networks, Tun, Programs(&PROGRAMS));
    let (_place, sites) = two_sites("wan-hour");
    let cut = Duration::from_secs(2);
    let what = Hour { terms: TERMS, cut, operations: 200, files: 60, seed: 4 };
    let figures = hour::run(&what, &sites, &mut said).unwrap().json();
    assert!(figures["rows"][0]["files"].as_u64().unwrap() > 0);
}

#[test]
fn of_names_that_both_sites_change_at_once_nothing_is_lost_back_or_doubled() {
    needs!(Mounts, Networks, Tun, Programs(&PROGRAMS));
    let (_place, sites) = two_sites("wan-moves");
    let what = Moves { terms: TERMS, noticed: Duration::from_secs(3) };
    let figures = moves::run(&what, &sites, &mut said).unwrap().json();
    let rows = figures["rows"].as_array().unwrap();
    assert!(rows.len() >= 18);
    for row in rows {
        let is_empty = |column: &str| row[column] == "";
        assert!(is_empty("lost") && is_empty("doubled") && is_empty("back") && row["same"] == true, "{row}");
    }
}
