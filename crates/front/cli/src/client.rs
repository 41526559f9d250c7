//! `atoll client`: machines that mount volumes and are no nodes.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use atoll_control::rfc3339;
use atoll_proto::cluster::Grant;
use atoll_volume::members::Members;
use serde_json::json;

use crate::node::OfData;
use crate::say;

/// Arguments of `atoll client`.
#[derive(Debug, clap::Args)]
pub(crate) struct Client {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make credentials for a machine that mounts volumes
    Add(Add),
    /// List the clients of the cluster
    List(List),
    /// Take a client out of the cluster: nobody lets it in any more
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The client's name
    name: String,
    /// The file to write the credentials to. By default they go to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The client changes nothing
    #[arg(long)]
    ro: bool,
    /// All users of the client are this one
    #[arg(long, value_name = "UID:GID", num_args = 0..=1, default_missing_value = "65534:65534", value_parser = user)]
    squash: Option<(u32, u32)>,
    /// The only volume that the client sees, or the only directory of it; by default it sees all volumes
    #[arg(long, value_name = "NAME[:/PATH]")]
    volume: Option<String>,
    #[command(flatten)]
    of: OfData,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    of: OfData,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// The client's name
    name: String,
    #[command(flatten)]
    of: OfData,
}

fn user(text: &str) -> Result<(u32, u32)> {
    let ids = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    ids.ok_or_else(|| anyhow!("write UID:GID, two numbers, such as 1000:1000"))
}

impl Client {
    /// The data directory of the node that is asked.
    pub(crate) fn data(&self) -> &Path {
        match &self.command {
            Command::Add(Add { of, .. })
            | Command::List(List { of, .. })
            | Command::Remove(Remove { of, .. }) => &of.data,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Add(add) => add.run(),
            Command::List(list) => list.run(),
            Command::Remove(Remove { name, of }) => Members::of_data(&of.data)?.remove_client(&name),
        }
    }
}

impl Add {
    fn run(self) -> Result<()> {
        let members = Members::of_data(&self.of.data)?;
        if let Some(out) = &self.out
            && out.exists()
        {
            bail!("{} is there already.\nNothing was changed. Name another file.", out.display());
        }
        let mut grant = Grant { read_only: self.ro, squash: self.squash, ..Grant::default() };
        if let Some(named) = &self.volume {
            let (volume, path) = named.split_once(':').unwrap_or((named, "/"));
            if !path.starts_with('/') {
                bail!("\"{}\" names no directory of a volume: write VOLUME:/PATH.", named.escape_debug());
            }
            grant.volume = Some(members.volume_id(volume)?);
            if path != "/" {
                grant.subtree = Some(members.subtree(volume, path)?);
            }
        }
        let text = members.add_client(&self.name, &grant)?;
        let Some(out) = &self.out else {
            say::line(text.trim_end());
            return Ok(());
        };
        if let Err(why) = write(out, text.as_bytes()) {
            members.remove_client(&self.name)?;
            return Err(why).with_context(|| format!("{} cannot be written", out.display()));
        }
        say::line(format_args!("wrote    {}", out.display()));
        say::line("         Copy it to the machine, as /etc/atoll/credentials.pem, readable by root alone.");
        Ok(())
    }
}

/// A file that only its owner reads.
fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    made.write_all(bytes)?;
    made.sync_all()
}

fn limits(grant: &Grant) -> String {
    let mut all = Vec::new();
    let below = grant.subtree.as_ref().map(|subtree| format!(":{}", subtree.path)).unwrap_or_default();
    all.extend(grant.volume.map(|volume| format!("volume {:016x}{below}", volume.0)));
    all.extend(grant.read_only.then(|| "ro".to_owned()));
    all.extend(grant.squash.map(|(uid, gid)| format!("squash {uid}:{gid}")));
    if all.is_empty() { "no limits".to_owned() } else { all.join(", ") }
}

impl List {
    fn run(self) -> Result<()> {
        let members = Members::of_data(&self.of.data)?;
        let list = members.list(Some(&self.of.data))?;
        let clients = &list.cluster.clients;
        // The list is worth more than what cannot be looked at now.
        let gone = members.without_subtree(clients).unwrap_or_default();
        if self.json {
            let clients = clients.iter().map(|client| {
                json!({
                    "name": client.name,
                    "id": format!("{:016x}", client.client),
                    "added": rfc3339(client.added),
                    "volume": client.grant.volume.map(|volume| format!("{:016x}", volume.0)),
                    "subtree": client.grant.subtree.as_ref().map(|subtree| subtree.path.to_string()),
                    "subtree_id": client.grant.subtree.as_ref().map(|subtree| subtree.dir.to_string()),
                    "subtree_gone": gone.contains(&client.client),
                    "ro": client.grant.read_only,
                    "squash": client.grant.squash.map(|(uid, gid)| format!("{uid}:{gid}")),
                })
            });
            say::json(&json!(clients.collect::<Vec<_>>()));
            return Ok(());
        }
        if clients.is_empty() {
            say::line("No clients.");
        }
        for client in clients {
            say::line(format_args!(
                "{:<20} {:016x}  added {}  {}{}",
                client.name,
                client.client,
                rfc3339(client.added),
                limits(&client.grant),
                if gone.contains(&client.client) {
                    ", which is gone: remove it, and add it again"
                } else {
                    ""
                }
            ));
        }
        Ok(())
    }
}
