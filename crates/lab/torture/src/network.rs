//! A network of its own for each host of a cluster: namespaces joined by a bridge in one more namespace,
//! whose links can be cut. Nothing of it can be seen from outside. It ends with this process, however that
//! ends, and so do the programs in it.
//!
//! A link is cut in one direction by a wrong address of the other's card: packets are lost, and no side is
//! told.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::place::run;
use atoll_needs::is_program;

/// Programs that make it.
pub const PROGRAMS: [&str; 4] = ["ip", "nsenter", "setpriv", "unshare"];
/// No card has it.
const NOBODY: &str = "02:00:00:00:ff:ff";
/// How long the kernel may take to give a namespace.
const PATIENCE: Duration = Duration::from_secs(10);

/// A network namespace, which lives as long as this.
#[derive(Debug)]
pub struct Space(Child);

impl Space {
    /// A new one, without a network.
    pub fn new() -> Result<Self> {
        for program in PROGRAMS {
            ensure!(
                is_program(program),
                "program {program} is not installed (packages iproute2, util-linux)"
            );
        }
        let mut command = Command::new("setpriv");
        // The signal comes when the thread ends that made it, so also when the process is killed.
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("setpriv")?;
        let mut space = Self(child);
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        let until = Instant::now() + PATIENCE;
        while std::fs::read_link(space.path()).map_or(true, |its| its == ours) {
            let ended = space.0.try_wait()?;
            ensure!(ended.is_none(), "a network namespace cannot be made: are you root, with CAP_SYS_ADMIN?");
            ensure!(Instant::now() < until, "a network namespace is not made in time");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(space)
    }

    /// The file by which threads enter it.
    pub fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// A program that runs in it.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    /// A program that will run in it. It is told to stop when the thread ends that starts it.
    pub fn program(&self, program: &Path) -> Command {
        let mut command = self.command(Path::new("setpriv"));
        command.args(["--pdeathsig", "TERM"]).arg(program);
        command
    }

    /// Runs `ip` there.
    pub fn ip(&self, args: &str) -> Result<()> {
        run(self.command(Path::new("ip")).args(args.split(' '))).map(drop)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Hosts by number, and the bridge between them.
#[derive(Debug)]
pub struct Network {
    hub: Space,
    hosts: Vec<Space>,
}

/// A host's card.
fn card(host: usize) -> String {
    format!("02:00:00:00:00:{:02x}", host + 1)
}

impl Network {
    /// Makes it, with so many hosts.
    pub fn new(hosts: usize) -> Result<Self> {
        ensure!((1..=64).contains(&hosts), "1 to 64 hosts");
        let mut network = Self { hub: Space::new()?, hosts: Vec::new() };
        let hub = &network.hub;
        hub.ip("link add bridge type bridge").context("a bridge cannot be made")?;
        hub.ip("addr add 10.0.0.254/24 dev bridge")?;
        hub.ip("link set bridge up")?;
        for host in 0..hosts {
            let space = Space::new()?;
            let (pid, card) = (space.0.id(), card(host));
            hub.ip(&format!("link add host{host} type veth peer name eth0 address {card} netns {pid}"))
                .context("a veth cannot be made")?;
            hub.ip(&format!("link set host{host} master bridge up"))?;
            space.ip(&format!("addr add {}/24 dev eth0", network.address(host)))?;
            space.ip("link set lo up")?;
            space.ip("link set eth0 up")?;
            network.hosts.push(space);
        }
        for from in 0..hosts {
            for to in (0..hosts).filter(|to| *to != from) {
                network.cut(from, to, false)?;
            }
        }
        Ok(network)
    }

    /// A host's address.
    pub fn address(&self, host: usize) -> String {
        format!("10.0.0.{}", host + 1)
    }

    /// A program that will run at a host; without one beside all of them, where no cut reaches. It is told to stop
    /// when the thread ends that starts it.
    pub fn command(&self, host: Option<usize>, program: &Path) -> Command {
        host.map_or(&self.hub, |host| &self.hosts[host]).program(program)
    }

    /// From now on what one host sends to the other is lost, or arrives again.
    pub fn cut(&self, from: usize, to: usize, cut: bool) -> Result<()> {
        let card = if cut { NOBODY.to_owned() } else { card(to) };
        let to = self.address(to);
        self.hosts[from].ip(&format!("neigh replace {to} lladdr {card} nud permanent dev eth0"))
    }

    /// Pulls a host's plug, or puts it back.
    pub fn unplug(&self, host: usize, pulled: bool) -> Result<()> {
        self.hub.ip(&format!("link set host{host} {}", if pulled { "down" } else { "up" }))
    }
}

#[cfg(test)]
mod tests {
    use atoll_needs::needs;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    use super::*;

    /// A socket at a host: it belongs to the namespace of the thread that makes it.
    fn socket(network: &Network, host: usize) -> UdpSocket {
        let space = std::fs::File::open(network.hosts[host].path()).unwrap();
        let address = format!("{}:7", network.address(host));
        let bind = move || {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            UdpSocket::bind(address).unwrap()
        };
        let socket = std::thread::spawn(bind).join().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket
    }

    #[test]
    fn each_direction_of_a_way_is_cut_by_itself_and_a_plug_takes_both() {
        needs!(Networks, Programs(&PROGRAMS));
        let network = Network::new(2).unwrap();
        let sockets = [socket(&network, 0), socket(&network, 1)];
        let mut sent = 0_u8;
        let mut arrives = |from: usize, to: usize| {
            sent = sent.wrapping_add(1);
            // With the plug out the sender may be told.
            let _ = sockets[from].send_to(&[sent], (network.address(to), 7));
            // One of before may have been on its way for long.
            let received = std::iter::from_fn(|| {
                let mut got = [0; 1];
                sockets[to].recv(&mut got).ok().map(|_| got[0])
            });
            received.into_iter().any(|got| got == sent)
        };
        let mut both = || [arrives(0, 1), arrives(1, 0)];
        // Linux notices a plug after a while.
        assert!((0..100).any(|_| both() == [true, true]), "nothing arrives at first");
        network.cut(0, 1, true).unwrap();
        assert_eq!(both(), [false, true]);
        network.cut(0, 1, false).unwrap();
        network.unplug(1, true).unwrap();
        assert_eq!(both(), [false, false]);
        network.unplug(1, false).unwrap();
        assert!((0..100).any(|_| both() == [true, true]), "nothing arrives with the plug in again");
    }
}
