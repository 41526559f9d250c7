//! A benchmark like Andrew's, at a site whose link is bad, and on a cluster volume of one island: directories are made, a tree of
//! sources is copied, each file is looked at, each is read, and some are compiled. Rounds of the two alternate. What the link still
//! carries is waited for between them, so that a round at the site has its own changes to send, and one on the cluster volume none. The
//! other site stands for another machine: it has what the first one leaves of the processors.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use atoll_torture::place::{Place, run as run_program};
use serde_json::json;

use crate::pair::Pair;
use crate::sites::{Share, Sites, Station};
use crate::table::{Figures, median, ratio, seconds};
use crate::trees::{all_below, source_tree};
use crate::wire::{LinkTerms, Wire};

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Andrew {
    /// The site's link.
    pub terms: LinkTerms,
    /// Rounds on each volume.
    pub rounds: usize,
    /// Directories of sources, and files in each.
    pub dirs: usize,
    /// Files of each directory.
    pub files: usize,
    /// So many files are compiled.
    pub compiled: usize,
}

/// What it is done with.
pub const PROGRAMS: [&str; 1] = ["cc"];

const PHASES: [&str; 5] = ["directories", "copy", "stat", "read", "compile"];
const CLUSTER: &str = "127.0.0.1:7110";
/// How long a slow link may need for a round.
const SENT_MAX: Duration = Duration::from_secs(1800);

/// Measures it; the ratio is that of the site's median to the cluster volume's.
pub fn run(what: &Andrew, place: &Place, said: &mut dyn FnMut(String)) -> Result<Figures> {
    let sources = place.join("sources");
    source_tree(&sources, what.dirs, what.files)?;
    let wire = Wire::new(LinkTerms::FREE)?;
    let mut cluster = Station::start(&wire, (0, Share::Equal), place.path(), "cluster", CLUSTER)?;
    cluster.atoll(&wire, &["volume", "create", "plain", "--nodes", CLUSTER])?;
    cluster.mount(&wire)?;
    let sites = Sites::both_with(wire, place.path(), Share::Rest)?;
    sites.wire().set(what.terms);
    let tops = [sites.folder(0), cluster.point()];
    // The first round is for what is done once: it is not counted.
    let mut times: [Vec<[Duration; 5]>; 2] = [Vec::new(), Vec::new()];
    for round in 0..=what.rounds {
        for volume in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            sites.wait_even(SENT_MAX)?;
            let took = once(what, &sources, &tops[volume].join(format!("round{round}")))?;
            if round > 0 {
                times[volume].push(took);
            }
        }
        let total = |volume: usize| times[volume].last().map(|phases| phases.iter().sum::<Duration>());
        said(format!("round {round}: site {:?}, cluster volume {:?}", total(0), total(1)));
    }
    sites.wait_even(SENT_MAX)?;
    let (_, here) = all_below(&tops[0].join("round1"))?;
    let (_, there) = all_below(&sites.folder(1).join("round1"))?;
    ensure!(here.len() == there.len(), "the other site has {} of {} files", there.len(), here.len());
    let about = format!(
        "seconds at a site of two ({}), and on a cluster volume of one island: {} directories, {} files, {} of them compiled; \
         medians of {} rounds each; the other site has what this one leaves of the processors",
        what.terms,
        what.dirs,
        what.dirs * what.files,
        what.compiled,
        what.rounds
    );
    let mut figures = Figures::new(about, &["phase", "site_s", "cluster_s", "ratio", "bar"]);
    let mut row = |name: &str, of: &dyn Fn(&[Duration; 5]) -> Duration, bar: serde_json::Value| {
        let [site, cluster] = [0, 1].map(|volume: usize| {
            let all: Vec<Duration> = times[volume].iter().map(of).collect();
            median(&all)
        });
        let ratio = ratio(site.as_secs_f64(), cluster.as_secs_f64());
        figures.push(vec![json!(name), seconds(site), seconds(cluster), ratio, bar]);
    };
    for (at, name) in PHASES.iter().enumerate() {
        row(name, &|phases| phases[at], json!(null));
    }
    row("total", &|phases| phases.iter().sum(), json!(1.05));
    Ok(figures)
}

/// All phases, in a new folder.
fn once(what: &Andrew, sources: &Path, top: &Path) -> Result<[Duration; 5]> {
    let (dirs, files) = all_below(sources)?;
    let to = |path: &Path| top.join(path.strip_prefix(sources).expect("it is below"));
    let mut took = [Duration::ZERO; 5];
    let mut since = Instant::now();
    let mut phase = |at: usize| {
        took[at] = since.elapsed();
        since = Instant::now();
    };
    fs::create_dir(top)?;
    for dir in &dirs {
        fs::create_dir(to(dir))?;
    }
    phase(0);
    for file in &files {
        fs::write(to(file), fs::read(file)?)?;
    }
    phase(1);
    let (_, copied) = all_below(top)?;
    for file in &copied {
        fs::symlink_metadata(file)?;
    }
    phase(2);
    let mut bytes = 0;
    for file in &copied {
        bytes += fs::read(file)?.len();
    }
    ensure!(bytes > 0, "nothing was read");
    phase(3);
    let mut objects = Vec::new();
    for file in copied.iter().step_by((copied.len() / what.compiled.max(1)).max(1)).take(what.compiled) {
        let object = file.with_extension("o");
        run_program(Command::new("cc").args(["-O1", "-c", "-o"]).arg(&object).arg(file))?;
        objects.push(object);
    }
    run_program(Command::new("cc").args(["-r", "-nostdlib", "-o"]).arg(top.join("all.o")).args(&objects))?;
    phase(4);
    Ok(took)
}
