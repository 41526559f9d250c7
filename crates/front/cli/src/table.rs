//! `atoll table show`: which island owns how much, and where it is.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::json;

use crate::say;
use atoll_volume::places::data_socket;
use atoll_volume::source::{Source, WHOM, mount_point, of_mount};
use atoll_volume::status::explain_down;

/// Arguments of `atoll table`.
#[derive(Debug, clap::Args)]
pub(crate) struct Table {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show a volume's table: buckets, islands, nodes
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// A mount point; or a volume and a node to ask, in either order. The volume may be left out if the node
    /// has only one
    #[arg(value_names = ["DIR|VOLUME", "HOST:PORT"], num_args = 0..=2)]
    what: Vec<String>,
    /// Ask the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Table {
    pub(crate) fn run(self) -> Result<()> {
        let Command::Show(show) = self.command;
        show.run()
    }
}

impl Show {
    fn run(self) -> Result<()> {
        let (mut volume, mut address) = (None, None);
        for word in &self.what {
            // No volume's name has a colon in it.
            let place = if word.contains(':') { &mut address } else { &mut volume };
            if place.replace(word.clone()).is_some() {
                bail!("\"{word}\" is one too many.\nName a volume, and a node as HOST:PORT.");
            }
        }
        let socket = self.data.as_deref().map(data_socket).transpose()?;
        let config = match (volume, address, &socket) {
            (Some(point), None, None) => of_mount(&mount_point(&point)?)?.config,
            (volume, Some(address), None) => Source::of_daemon(address.parse()?, volume).find()?.config,
            (volume, None, Some(socket)) => {
                let found = Source::of_socket(socket, volume).find();
                found.map_err(|why| explain_down(why, self.data.as_deref()))?.config
            }
            (None, None, None) => bail!("Whom to ask?\n{WHOM}"),
            (_, Some(_), Some(_)) => bail!("Ask a node by its address or by its data directory, not both."),
        };
        let table = &config.table;
        let share = |island| table.owners().iter().filter(|owner| **owner == island).count();
        if self.json {
            let nodes = config.nodes.iter().map(|n| {
                let islands = n.islands.iter().map(|i| json!({ "island": i.0, "buckets": share(*i) }));
                json!({ "node": n.node.0, "address": n.address, "islands": islands.collect::<Vec<_>>() })
            });
            let owners: Vec<u16> = table.owners().iter().map(|o| o.0).collect();
            say::json(&json!({
                "volume": config.name, "id": format!("{:016x}", config.id.0), "version": table.version(),
                "buckets": table.buckets(), "nodes": nodes.collect::<Vec<_>>(), "owners": owners,
            }));
            return Ok(());
        }
        say::line(format_args!(
            "volume {}  table version {}  {} buckets",
            config.name,
            table.version(),
            table.buckets()
        ));
        for node in &config.nodes {
            let address = if node.address.is_empty() { "this machine only" } else { &node.address };
            say::line(format_args!("node {}  {address}", node.node));
            for island in &node.islands {
                let n = share(*island);
                let part = say::share(n as u64, table.buckets() as u64);
                say::line(format_args!(
                    "  island {island:<4} {n:>6} buckets  {part:>7}",
                    island = island.to_string()
                ));
            }
        }
        Ok(())
    }
}
