//! `atoll site`: the sites of wide volumes.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use atoll_proto::{SiteCondition, SiteOrder, SiteReply, SiteTold};
use atoll_volume::machines::DATA;
use atoll_volume::wide::{Adopting, SiteAsk, SiteWish, join, join_and_adopt};
use serde_json::json;

use crate::say;

/// Arguments of `atoll site`.
#[derive(Debug, clap::Args)]
pub(crate) struct SiteCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a line by which another site may join, once
    Invite(Invite),
    /// Join the volume of a line with a new site on this machine
    Join(Join),
    /// List the sites of a volume, and how they are
    List(List),
    /// Leave the volume: the others do not wait for this site any more
    Leave(Leave),
    /// Go on without a site that does not come back
    Forget(Forget),
}

/// The node that is asked, and the volume that is meant.
#[derive(Debug, clap::Args)]
struct Meant {
    /// The data directory of the node of this machine
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// The volume; not needed if the node has a site of one only
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
}

/// What a new site is to be.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NewSite {
    /// Where other sites reach this one. Without an address it connects to the others
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    at: Vec<String>,
    /// Where it takes their connections; by default on all addresses of this machine, at the port of --at
    #[arg(long, value_name = "HOST:PORT")]
    site_listen: Option<String>,
    /// Bytes that leave for other sites in a second, at most. K, M and G may follow
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    rate: Option<u64>,
}

impl NewSite {
    pub(crate) fn wish(self, name: Option<String>) -> SiteWish {
        let Self { at, site_listen, rate } = self;
        SiteWish { name, listen: site_listen, addresses: at, bytes_per_s: rate.unwrap_or(0) }
    }

    /// Whether nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        self.at.is_empty() && self.site_listen.is_none() && self.rate.is_none()
    }
}

/// A number of bytes, as a user writes it.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.chars().last() {
        Some('K' | 'k') => (&text[..text.len() - 1], 1_000),
        Some('M' | 'm') => (&text[..text.len() - 1], 1_000_000),
        Some('G' | 'g') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| "write it as 500K, 10M or a number of bytes".to_owned())?;
    match number.checked_mul(times).filter(|n| *n >= 1_000) {
        Some(n) => Ok(n),
        None => Err("at least 1K is needed".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
struct Invite {
    #[command(flatten)]
    meant: Meant,
    /// For so many hours the line holds
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=8_760))]
    hours: u64,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Join {
    /// The line that "atoll site invite" has printed at another site
    line: String,
    /// The data directory of the node of this machine
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// The name of the new site; by default that of this machine
    #[arg(long)]
    name: Option<String>,
    /// Copy this folder into the volume before the site has links: files that others have too are not sent
    #[arg(long, value_name = "DIR")]
    adopt: Option<PathBuf>,
    #[command(flatten)]
    site: NewSite,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    meant: Meant,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Leave {
    #[command(flatten)]
    meant: Meant,
}

#[derive(Debug, clap::Args)]
struct Forget {
    /// The name of the site
    site: String,
    #[command(flatten)]
    meant: Meant,
}

impl Meant {
    fn find(&self) -> Result<(SiteAsk, String)> {
        let ask = SiteAsk::of_data(&self.data)?;
        let volume = ask.volume(self.volume.clone())?;
        Ok((ask, volume))
    }
}

impl SiteCommand {
    /// The data directory of the node that is asked.
    pub(crate) fn data(&self) -> &Path {
        match &self.command {
            Command::Invite(Invite { meant, .. })
            | Command::List(List { meant, .. })
            | Command::Leave(Leave { meant })
            | Command::Forget(Forget { meant, .. }) => &meant.data,
            Command::Join(join) => &join.data,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Invite(command) => command.run(),
            Command::Join(command) => command.run(),
            Command::List(command) => command.run(),
            Command::Leave(command) => command.run(),
            Command::Forget(command) => command.run(),
        }
    }
}

impl Invite {
    fn run(self) -> Result<()> {
        let (ask, volume) = self.meant.find()?;
        let reply = ask.order(SiteOrder::Invite { volume: volume.clone(), for_s: self.hours * 3_600 })?;
        let SiteReply::Invited { line } = reply else { bail!("The node gives another answer than that.") };
        if self.json {
            say::json(&json!({ "volume": volume, "line": line, "hours": self.hours }));
        } else {
            say::line(format_args!("atoll site join {line}"));
        }
        Ok(())
    }
}

/// Shows on a terminal how far adopting is, in one line.
#[derive(Default)]
struct Progress {
    last: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    fn tell(&mut self, how: Adopting) {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= Duration::from_millis(250));
        if !std::io::stderr().is_terminal() || (!is_due && matches!(how, Adopting::Copies(_))) {
            return;
        }
        (self.last, self.is_shown) = (Some(Instant::now()), true);
        match how {
            Adopting::Copies(adopted) => {
                eprint!(
                    "\r{} files and directories, {} copied\x1b[K",
                    adopted.objects,
                    say::bytes(adopted.bytes)
                );
            }
            Adopting::Compares => {
                eprint!("\rtheir bytes are read, to be compared with those of other sites\x1b[K")
            }
        }
    }

    fn end(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

impl Join {
    fn run(self) -> Result<()> {
        let Self { line, data, name, adopt, site } = self;
        let wish = site.wish(name);
        let (volume, place) = match &adopt {
            None => join(&data, &line, &wish, false)?,
            Some(from) => {
                let mut shown = Progress::default();
                let (volume, place, adopted) =
                    join_and_adopt(&data, &line, &wish, from, &mut |how| shown.tell(how))?;
                shown.end();
                say::line(format_args!(
                    "adopted  {} files and directories, {}",
                    adopted.objects,
                    say::bytes(adopted.bytes)
                ));
                if adopted.left_out > 0 {
                    say::line(format_args!(
                        "         {} device files or attributes were left out: no volume keeps them here",
                        adopted.left_out
                    ));
                }
                (volume, place)
            }
        };
        say::line(format_args!("site     {} of volume {volume}", place.name));
        if !place.listen.is_empty() {
            say::line(format_args!("listens  {} for other sites", place.listen));
        }
        say::line(format_args!("mount    atoll mount --data {} --volume {volume} DIR", data.display()));
        Ok(())
    }
}

impl List {
    fn run(self) -> Result<()> {
        let (ask, volume) = self.meant.find()?;
        let reply = ask.order(SiteOrder::List { volume: volume.clone() })?;
        let SiteReply::Sites { sites } = reply else { bail!("The node gives another answer than that.") };
        if self.json {
            let all: Vec<_> = sites.iter().map(for_programs).collect();
            say::json(&json!({ "volume": volume, "sites": all }));
            return Ok(());
        }
        for site in &sites {
            say::line(line(site));
        }
        Ok(())
    }
}

impl Leave {
    fn run(self) -> Result<()> {
        let (ask, volume) = self.meant.find()?;
        ask.order(SiteOrder::Leave { volume: volume.clone() })?;
        say::line(format_args!(
            "This site has left volume {volume}: it keeps its files, and hears of nothing more."
        ));
        Ok(())
    }
}

impl Forget {
    fn run(self) -> Result<()> {
        let (ask, volume) = self.meant.find()?;
        ask.order(SiteOrder::Forget { volume: volume.clone(), site: self.site.clone() })?;
        say::line(format_args!("The sites of volume {volume} go on without {}.", self.site));
        Ok(())
    }
}

/// A site, in one line.
pub(crate) fn line(site: &SiteTold) -> String {
    let line = format!("{:<16} {:<10} {}", site.name, word(site.condition), how(site));
    line.trim_end().to_owned()
}

const fn word(condition: SiteCondition) -> &'static str {
    match condition {
        SiteCondition::Here => "here",
        SiteCondition::Connected => "connected",
        SiteCondition::Away => "away",
        SiteCondition::Left => "left",
        SiteCondition::Forgotten => "forgotten",
        SiteCondition::Waits => "waits",
    }
}

/// A clock that is off by less says nothing: the message took its time.
const CLOCK_OFF_MS: u64 = 10_000;

fn how(site: &SiteTold) -> String {
    let mut parts = Vec::new();
    match site.condition {
        SiteCondition::Here if site.files_behind > 0 => {
            let bytes = say::bytes(site.bytes_behind);
            parts.push(format!("waits for the bytes of {} files, {bytes}", site.files_behind));
            if site.files_without_room > 0 {
                parts.push(format!("NO ROOM for {} of them", site.files_without_room));
            }
        }
        SiteCondition::Here if !site.is_even => parts.push("has changes that are not told yet".to_owned()),
        SiteCondition::Connected if site.is_even => parts.push("has the same".to_owned()),
        SiteCondition::Connected => parts.push("exchanges changes".to_owned()),
        SiteCondition::Waits => parts.push("has no links before it is started".to_owned()),
        SiteCondition::Away => {
            if let Some(since) = site.since_ms {
                parts.push(format!("for {}", say::ago(since)));
            }
            parts.extend(site.why.clone());
        }
        _ => {}
    }
    if site.condition == SiteCondition::Connected {
        let off = site.clock_ahead_ms.max(site.clock_behind_ms);
        if off >= CLOCK_OFF_MS {
            let way = if site.clock_ahead_ms > 0 { "ahead" } else { "behind" };
            parts.push(format!("its clock is {} s {way}", off / 1_000));
        }
    }
    parts.join(", ")
}

pub(crate) fn for_programs(site: &SiteTold) -> serde_json::Value {
    json!({
        "name": site.name,
        "id": format!("{:016x}", site.site),
        "addresses": site.addresses,
        "condition": word(site.condition),
        "since_ms": site.since_ms,
        "why": site.why,
        "even": site.is_even,
        "files_behind": site.files_behind,
        "bytes_behind": site.bytes_behind,
        "files_without_room": site.files_without_room,
        "sent_bytes": site.sent,
        "received_bytes": site.received,
        "clock_ahead_ms": site.clock_ahead_ms,
        "clock_behind_ms": site.clock_behind_ms,
    })
}
