//! A site that joins and has nothing yet: how fast it gets all files, against its link and against its disk; and what is sent again
//! if its node is killed half-way.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_model::Rng;
use atoll_torture::place::Place;
use atoll_torture::tree::{Detail, differences, list};
use serde_json::json;

use crate::pair::{Pair, wait};
use crate::sites::Sites;
use crate::table::{Figures, ratio, seconds};
use crate::trees::noise_tree;
use crate::wire::{LinkTerms, Wire};

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Fill {
    /// The link.
    pub terms: LinkTerms,
    /// Files.
    pub files: u64,
    /// Their bytes, about.
    pub bytes: u64,
}

/// How long a filling may take.
const FILLED_MAX: Duration = Duration::from_secs(3 * 3600);
/// How often it is told how far it is.
const TOLD: Duration = Duration::from_secs(10);

/// Measures it.
pub fn run(what: &Fill, place: &Place, said: &mut dyn FnMut(String)) -> Result<Figures> {
    let native = place.join("native");
    fs::create_dir(&native)?;
    let disk = native_time(what, &native)?;
    let mut sites = Sites::first(Wire::new(LinkTerms::FREE)?, place.path())?;
    let bytes = noise_tree(&mut Rng::new(13), sites.folder(0), what.files, what.bytes)?;
    wait("the first site has versions of all", FILLED_MAX, Duration::from_secs(1), || {
        Ok(sites.told(0)?.first().is_some_and(|here| here["even"] == true))
    })?;
    said(format!("{} files, {bytes} bytes; the disk alone takes {disk:?}", what.files));
    sites.wire().set(what.terms);

    let (whole, sent_whole) = filled(&mut sites, "s1", None, said)?;
    same(&mut sites, said)?;
    sites.stations[0].atoll(sites.wire(), &["site", "forget", "s1"])?;
    let (halves, sent_halves) = filled(&mut sites, "s2", Some(bytes / 2), said)?;
    same(&mut sites, said)?;

    let link = what.terms.rate.map(|rate| rate as f64 / 8.0);
    let slower = |took: Duration| {
        let rate = bytes as f64 / took.as_secs_f64();
        let disk = bytes as f64 / disk.as_secs_f64();
        (rate, link.map_or(disk, |link| link.min(disk)))
    };
    let about = format!(
        "a site that joins: {} files, {bytes} bytes ({}); the same files written and synced on the disk alone: {:.1} s",
        what.files,
        what.terms,
        disk.as_secs_f64()
    );
    let columns = [
        "filling",
        "s",
        "mb_per_s",
        "of_link",
        "of_disk",
        "of_the_slower",
        "bar",
        "payload",
        "payload_to_bytes",
    ];
    let mut figures = Figures::new(about, &columns);
    for (name, took, sent) in
        [("in one go", whole, sent_whole), ("killed half-way, started again", halves, sent_halves)]
    {
        let (rate, bound) = slower(took);
        figures.push(vec![
            json!(name),
            seconds(took),
            ratio(rate, 1e6),
            link.map_or(json!(null), |link| ratio(rate, link)),
            ratio(disk.as_secs_f64(), took.as_secs_f64()),
            ratio(rate, bound),
            json!(0.8),
            json!(sent),
            ratio(sent as f64, bytes as f64),
        ]);
    }
    Ok(figures)
}

/// How long the same files take on the disk alone, with a sync of all. They stay: an ext4 without a journal is slow to make files for half a
/// minute after many were removed.
fn native_time(what: &Fill, top: &Path) -> Result<Duration> {
    let since = Instant::now();
    noise_tree(&mut Rng::new(13), top, what.files, what.bytes)?;
    rustix::fs::syncfs(File::open(top)?).context("syncfs")?;
    Ok(since.elapsed())
}

/// A new site joins and gets everything: how long that took, and the bytes that TCP carried to it. Its node is killed when so many
/// have come, and started again.
fn filled(
    sites: &mut Sites,
    name: &str,
    kill_at: Option<u64>,
    said: &mut dyn FnMut(String),
) -> Result<(Duration, u64)> {
    let before = sites.wire().counts()[0];
    let sent = |sites: &Sites| (sites.wire().counts()[0] - before).payload;
    let mut since = Instant::now();
    sites.join(name)?;
    let mut took = Duration::ZERO;
    if let Some(bytes) = kill_at {
        wait("half has come", FILLED_MAX, Duration::from_millis(20), || Ok(sent(sites) >= bytes))?;
        sites.stations[1].kill9_node()?;
        took = since.elapsed();
        said(format!("{name}: killed when {} bytes were sent", sent(sites)));
        since = Instant::now();
        sites.start_second()?;
    }
    let mut told = Instant::now();
    wait("the new site has everything", FILLED_MAX, Duration::from_millis(500), || {
        if told.elapsed() > TOLD {
            told = Instant::now();
            let behind = sites.told(1)?.first().map(|here| here["files_behind"].to_string());
            let behind = behind.unwrap_or_default();
            said(format!("{name}: {} bytes sent, files behind {behind}", sent(sites)));
        }
        sites.is_even()
    })?;
    Ok((took + since.elapsed(), sent(sites)))
}

/// Both sites show the same.
fn same(sites: &mut Sites, said: &mut dyn FnMut(String)) -> Result<()> {
    sites.mount_second()?;
    let detail = Detail { bytes: false, atime: false };
    let (here, there) = (list(sites.folder(0), detail)?, list(sites.folder(1), detail)?);
    let wrong = differences(&here, &there);
    ensure!(wrong.is_empty(), "the sites differ: {}", wrong.join("\n"));
    said(format!("both sites have the same {} names", here.len()));
    Ok(())
}
