//! `atoll init` and `atoll join`: a node on this machine, whose daemon runs when the command ends.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use atoll_ca::JoinLine;
use atoll_proto::{Control, ControlPlace, ControlReply};
use atoll_rpc::Address;
use atoll_volume::ask::{QUESTION, try_ask};
use atoll_volume::control::is_installed;
use atoll_volume::machines::{DATA, LINE_HOURS, LISTEN, Made, Place};
use atoll_volume::members::Members;
use atoll_volume::{machines, places};

use crate::say;

/// How long a daemon may take until it answers.
const START_MAX: Duration = Duration::from_secs(60);

/// How often it is asked meanwhile.
const PAUSE: Duration = Duration::from_millis(50);

/// The unit of a node that has its data and listens where nodes do if nothing else is said.
const UNIT: &str = "atoll.service";

/// What the unit reads about nodes that have other values.
const UNIT_FILE: &str = "/etc/atoll/node.conf";

/// How often systemd is asked whether its unit has failed.
const UNIT_PAUSE: Duration = Duration::from_secs(1);

/// The log of a daemon that a command has started, in its data directory.
const LOG_FILE: &str = "daemon.log";

/// The data directory and the addresses of a node.
#[derive(Debug, clap::Args)]
struct Node {
    /// The node's data directory; it is made if it is missing
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// Where the node listens
    #[arg(long, value_name = "HOST:PORT", default_value = LISTEN)]
    listen: Address,
    /// Where other machines reach the node; by default where it listens, or the address of this machine
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<Address>,
    /// The node's name; by default node1, node2 and so on
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only make the data directory: start the daemon by hand, or by systemd
    #[arg(long)]
    no_start: bool,
}

/// Arguments of `atoll init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    #[command(flatten)]
    node: Node,
    /// Where the records shall be of which copy leads: "own" runs an etcd of the cluster's own, on three nodes once there are as many;
    /// etcd://HOST:PORT,... is one that is there already; "embedded" keeps them in one node, whose loss stops every change of them.
    /// By default "own" if etcd is installed here
    #[arg(long, value_name = "PLACE", value_parser = place)]
    control: Option<ControlPlace>,
}

/// Arguments of `atoll join`.
#[derive(Debug, clap::Args)]
pub(crate) struct Join {
    /// The line that "atoll init" or "atoll node invite" has printed; - reads it from standard input
    line: String,
    #[command(flatten)]
    node: Node,
}

/// Where records of groups are, as a user writes it.
pub(crate) fn place(text: &str) -> Result<ControlPlace> {
    match text {
        "embedded" => Ok(ControlPlace::Nodes),
        "own" => Ok(ControlPlace::OwnEtcd),
        text if text.starts_with("etcd://") => Ok(ControlPlace::Etcd { text: text.to_owned() }),
        // Without the text, which may have a password.
        _ => bail!("write own, embedded or etcd://HOST:PORT,..."),
    }
}

impl Node {
    fn place(&self) -> Place {
        let Self { data, listen, address, name, .. } = self;
        Place { data: data.clone(), listen: listen.clone(), address: address.clone(), name: name.clone() }
    }

    fn tell(&self, made: &Made) {
        say::line(format_args!("cluster  {:016x} ({} nodes)", made.cluster.id, made.cluster.nodes.len()));
        say::line(format_args!("node     {} at {}", made.node.name, made.node.address));
        say::line(format_args!("data     {}", self.data.display()));
        if let Some(control) = &made.control {
            say::line(format_args!("groups   in {control}"));
        }
        if let Some(why) = &made.warning {
            eprintln!("atoll: {why}");
        }
    }

    /// Whether systemd runs this machine and has a unit for this node: a daemon beside it would be in its way.
    fn has_unit(&self) -> bool {
        let is_usual = self.data == Path::new(DATA) && self.listen.to_string() == LISTEN;
        // Written for nodes with other values.
        let is_plain = !Path::new(UNIT_FILE).exists();
        // As sd_booted(3) does.
        let runs = Path::new("/run/systemd/system").is_dir();
        is_usual && is_plain && runs && systemctl(&["cat", UNIT]).is_ok_and(|(good, _)| good)
    }

    /// Starts the daemon, and waits until it answers. False if it is to be started by hand.
    fn start(&self) -> Result<bool> {
        let serve = format!("atoll serve --data {} --listen {}", self.data.display(), self.listen);
        if self.no_start {
            say::line(format_args!("start    {serve}"));
            return Ok(false);
        }
        if self.has_unit() {
            start_unit(&self.data)?;
            say::line(format_args!("log      journalctl -u {UNIT}"));
        } else {
            let log = start_daemon(&self.data, &self.listen)?;
            say::line(format_args!("log      {}", log.display()));
        }
        Ok(true)
    }
}

impl Init {
    pub(crate) fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let control = self.control.unwrap_or_else(|| {
            if is_installed() {
                return ControlPlace::OwnEtcd;
            }
            eprintln!(
                "atoll: etcd is not installed here (Debian's package etcd-server), so this node alone says which copies lead."
            );
            ControlPlace::Nodes
        });
        let made = machines::init(&self.node.place(), &control)?;
        self.node.tell(&made);
        if self.node.start()? {
            let members = Members::of_data(&self.node.data)?;
            let line = members.invite(&self.node.data, Duration::from_secs(LINE_HOURS * 60 * 60))?;
            say::line(format_args!("join     atoll join {line}"));
            say::line(format_args!(
                "         One machine may join by this line, within {LINE_HOURS} h. For the next one: atoll node invite"
            ));
        }
        Ok(())
    }
}

impl Join {
    pub(crate) fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let line = match self.line.as_str() {
            "-" => std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?,
            line => line.to_owned(),
        };
        let line: JoinLine = line.parse()?;
        let made = machines::join(&line, &self.node.place())?;
        self.node.tell(&made);
        self.node.start()?;
        Ok(())
    }
}

/// Whether systemctl(1) did as told, and what it printed.
fn systemctl(arguments: &[&str]) -> std::io::Result<(bool, String)> {
    let output = Command::new("systemctl").args(arguments).stdin(Stdio::null()).output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}

/// Has systemd run the daemon, now and after each start of the machine, and waits until it answers.
fn start_unit(data: &Path) -> Result<()> {
    let (good, _) = systemctl(&["enable", "--now", "--quiet", UNIT]).context("systemctl cannot be run")?;
    if !good {
        bail!("The node is made, and systemd does not start it.\nSee why: systemctl status {UNIT}");
    }
    let mut asked = Instant::now();
    await_answer(data, &format!("journalctl -u {UNIT}"), || {
        if asked.elapsed() < UNIT_PAUSE {
            return Ok(());
        }
        asked = Instant::now();
        match systemctl(&["show", "--property=Result", "--value", UNIT]) {
            Ok((true, result)) if result != "success" => bail!(
                "The daemon ended at once ({result}). The node is made.\nSee why, and start it when that is mended: journalctl -u {UNIT}"
            ),
            _ => Ok(()),
        }
    })
}

/// Waits until the daemon of a data directory answers, or `has_ended` fails.
fn await_answer(data: &Path, log: &str, mut has_ended: impl FnMut() -> Result<()>) -> Result<()> {
    let socket = places::data_socket(data)?;
    let until = Instant::now() + START_MAX;
    loop {
        has_ended()?;
        if let Ok(ControlReply::Described { .. }) = try_ask(&socket.address, Control::Describe, QUESTION) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("The daemon does not answer after {} s.\nIts log: {log}", START_MAX.as_secs());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Starts a daemon that outlives this process and its terminal; its log. An error has what the daemon said.
fn start_daemon(data: &Path, listen: &Address) -> Result<PathBuf> {
    let data = std::fs::canonicalize(data).with_context(|| format!("{} cannot be used", data.display()))?;
    let log = data.join(LOG_FILE);
    // For its owner alone, whoever may look into the directory.
    let output = File::options().write(true).create(true).truncate(true).mode(0o600).open(&log);
    let output = output.with_context(|| format!("{} cannot be written", log.display()))?;
    let program = std::env::current_exe().context("this program's file is not known")?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--data").arg(&data).arg("--listen").arg(listen.to_string());
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    // SAFETY: a system call alone, which takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            // Fails only for the leader of a group, which a new child never is.
            let _ = rustix::process::setsid();
            Ok(())
        });
    }
    let mut daemon = command.spawn().context("the daemon cannot be started")?;
    await_answer(&data, &log.display().to_string(), || {
        let Some(status) = daemon.try_wait().context("the daemon cannot be waited for")? else {
            return Ok(());
        };
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = said.trim().lines().rev().take(2).collect();
        bail!(
            "The daemon ended at once ({status}): {}\nThe node is made. Start it when that is mended: atoll serve --data {}",
            last.into_iter().rev().collect::<Vec<_>>().join(" "),
            data.display()
        )
    })?;
    Ok(log)
}
