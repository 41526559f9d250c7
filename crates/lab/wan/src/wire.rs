//! Two hosts, each in a network of its own, and a [`Road`] each way between them. Nothing of it can be seen from outside; it
//! ends with this process. Knows nothing of what runs at the hosts.
//!
//! Each host has a TUN device, by which the kernel gives us the packets that the host sends. A thread for each direction takes
//! them there and gives them to the other host's device when they arrive.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_torture::network::Space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Updater, ioctl};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::road::{Counts, Road, RoadTerms};

/// The device of each host, and the bytes of the longest packet.
const DEVICE: &str = "wan";
const MTU: usize = 1500;
/// `TUNSETIFF`, and the flags of a device of IP packets without anything before them.
const TUNSETIFF: u32 = 0x4004_54ca;
const TUN_NO_PI: u16 = 0x1001;
/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// What a link is like, both ways.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkTerms {
    /// How long a packet takes there and its answer back.
    pub round_trip: Duration,
    /// Bits a second, each way; none: any number.
    pub rate: Option<u64>,
    /// So many of a million packets are lost, each way.
    pub loss_ppm: u32,
}

impl LinkTerms {
    /// Nothing holds it up.
    pub const FREE: Self = Self { round_trip: Duration::ZERO, rate: None, loss_ppm: 0 };

    /// One direction. Its queue is what the link carries in a round trip, and 64 KiB at least.
    fn road(self) -> RoadTerms {
        const QUEUE_BYTES_MIN: u64 = 64 << 10;
        let carried = self.rate.unwrap_or(0) as f64 / 8.0 * self.round_trip.as_secs_f64();
        RoadTerms {
            delay: self.round_trip / 2,
            rate: self.rate,
            queue_bytes: (carried as u64).max(QUEUE_BYTES_MIN),
            loss_ppm: self.loss_ppm,
        }
    }
}

impl std::fmt::Display for LinkTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{} Mb/s", rate as f64 / 1e6)?,
            None => write!(f, "any rate")?,
        }
        write!(f, ", {} ms there and back", self.round_trip.as_millis())?;
        write!(f, ", {} % lost", f64::from(self.loss_ppm) / 1e4)
    }
}

/// One direction, as its thread and others see it.
#[derive(Debug)]
struct Direction {
    road: Mutex<Road>,
    since: Instant,
    is_over: AtomicBool,
}

impl Direction {
    fn road(&self) -> MutexGuard<'_, Road> {
        self.road.lock().expect("no panic while it is held")
    }
}

/// The hosts 0 and 1, and the link between them.
#[derive(Debug)]
pub struct Wire {
    spaces: [Space; 2],
    /// From each host.
    directions: [Arc<Direction>; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Wire {
    /// Makes it. Needs root and `/dev/net/tun`.
    pub fn new(terms: LinkTerms) -> Result<Self> {
        let spaces = [Space::new()?, Space::new()?];
        let mut devices = Vec::new();
        for (host, space) in spaces.iter().enumerate() {
            devices.push(device(space)?);
            space.ip(&format!("addr add {}/24 dev {DEVICE}", Self::address(host)))?;
            space.ip(&format!("link set {DEVICE} mtu {MTU} txqueuelen 1000 up"))?;
            space.ip("link set lo up")?;
        }
        let since = Instant::now();
        let directions = [1, 2].map(|seed| {
            let road = Mutex::new(Road::new(terms.road(), seed));
            Arc::new(Direction { road, since, is_over: AtomicBool::new(false) })
        });
        let mut threads = Vec::new();
        for (host, direction) in directions.iter().enumerate() {
            let (from, to) = (devices[host].try_clone()?, devices[1 - host].try_clone()?);
            let direction = Arc::clone(direction);
            threads.push(std::thread::spawn(move || carry(&direction, &from, &to)));
        }
        Ok(Self { spaces, directions, threads })
    }

    /// A host's address.
    pub fn address(host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// A program that will run at a host.
    pub fn command(&self, host: usize, program: &Path) -> Command {
        self.spaces[host].program(program)
    }

    /// From now on the link is like this.
    pub fn set(&self, terms: LinkTerms) {
        self.directions.iter().for_each(|direction| direction.road().set(terms.road()));
    }

    /// From now on nothing arrives.
    pub fn cut(&self) {
        self.directions.iter().for_each(|direction| direction.road().set(RoadTerms::CUT));
    }

    /// What each host has sent so far.
    pub fn counts(&self) -> [Counts; 2] {
        [0, 1].map(|host| self.directions[host].road().counts())
    }

    /// Does something in the network of a host: sockets that it makes are there.
    pub fn at<T: Send>(&self, host: usize, act: impl FnOnce() -> T + Send) -> Result<T> {
        within(&self.spaces[host], act)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.directions.iter().for_each(|direction| direction.is_over.store(true, Ordering::SeqCst));
        for thread in self.threads.drain(..) {
            // A panic of it was printed.
            let _ = thread.join();
        }
    }
}

/// Runs something in a network: in a thread of its own, since it cannot be left again.
fn within<T: Send>(space: &Space, act: impl FnOnce() -> T + Send) -> Result<T> {
    let entry = File::open(space.path())?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || -> Result<T> {
            move_into_link_name_space(entry.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(act())
        });
        thread.join().expect("it does not panic")
    })
}

/// What the ioctl takes, which the kernel calls `ifreq`.
#[repr(C)]
struct DeviceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// A TUN device in a network.
fn device(space: &Space) -> Result<File> {
    within(space, || -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        let file = options.open("/dev/net/tun").context("/dev/net/tun")?;
        let mut request = DeviceRequest { name: [0; 16], flags: TUN_NO_PI, rest: [0; 22] };
        request.name[..DEVICE.len()].copy_from_slice(DEVICE.as_bytes());
        // SAFETY: the kernel reads and writes an `ifreq` there, which has these 40 bytes.
        unsafe { ioctl(&file, Updater::<TUNSETIFF, DeviceRequest>::new(&mut request)) }
            .context("a TUN device cannot be made")?;
        Ok(file)
    })?
}

/// Takes packets from one device, and gives them to the other one when they arrive.
fn carry(direction: &Direction, mut from: &File, mut to: &File) {
    let mut packet = [0; 1 << 16];
    while !direction.is_over.load(Ordering::SeqCst) {
        let now = direction.since.elapsed();
        let next = direction.road().next_at().map_or(LOOK, |at| at.saturating_sub(now).min(LOOK));
        let timeout = Timespec { tv_sec: next.as_secs() as i64, tv_nsec: i64::from(next.subsec_nanos()) };
        // An interrupted wait is as good as one that has ended.
        let _ = poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&timeout));
        let mut road = direction.road();
        loop {
            match from.read(&mut packet) {
                Ok(len) => road.send(direction.since.elapsed(), &packet[..len]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) => panic!("a TUN device cannot be read: {why}"),
            }
        }
        while let Some(packet) = road.arrived(direction.since.elapsed()) {
            // A device whose host is gone, or that has no memory, loses it: TCP sends it again.
            let _ = to.write(&packet);
        }
    }
}
