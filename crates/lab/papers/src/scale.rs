//! How a volume would go with more islands than this machine can show. Archipelago measures its second operation mix on 1 to 16 machines
//! (13.2, Figure 15) and estimates its efficiency with hundreds (6). Here all islands are in one process: what an operation costs them together
//! is measured, and what that would be on machines of their own is computed.

mod model;

use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use atoll_needs::{Need, free_port};
use atoll_torture::daemon::{Mount, PATIENCE, atoll, binary};
use atoll_torture::process::{LIFE_MAX, Process};
use atoll_wan::table::{Figures, median};
use serde_json::{Value, json};

use crate::borrow::island_of;
use crate::folder::Folder;
use crate::mix::{Mix, make_dirs};
use crate::trips::{self, Bench, counts};
use model::{
    CHMOD_OF_DIR, Growth, ISLANDS_ON_PAPER, MKDIR, Part, RENAME_OF_DIR, RMDIR, by_calls, stamp_bytes,
};

/// Messages that are sent to see what one takes, and their bytes: a small one.
const MESSAGES: u32 = 20_000;
const MESSAGE_BYTES: usize = 256;

/// Operations whose messages grow with the islands, or might.
const OPERATIONS: [&str; 9] = [
    "mkdir",
    "chmod of a directory",
    "chmod of a directory with directories",
    "create, close",
    "chmod of a file",
    "rename in a directory",
    "unlink",
    "rmdir",
    "rename of an empty directory to another parent",
];

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Numbers of islands for the mix.
    pub mix: &'static [u16],
    /// Operations of the mix in a round.
    pub operations: usize,
    /// Rounds. The median counts, but the least time of processors, since what disturbs only adds to it, and the mean time of Atoll's own
    /// code, since a clock tells it in ticks.
    pub rounds: usize,
    /// Numbers of islands for single operations.
    pub single: &'static [u16],
    /// How often each of these is done, and how long the daemon then rests.
    pub trips: trips::Plan,
    /// Numbers of islands for memory. Each pair of islands takes some, so it shows with many of them.
    pub memory: &'static [u16],
}

impl Plan {
    /// For the table. The mix is on as many islands as in the paper.
    pub const FULL: Self = Self {
        mix: &[1, 2, 4, 8, 16],
        operations: 20_000,
        rounds: 5,
        single: &[4, 16, 64],
        trips: trips::Plan { islands: 4, times: 200, rest: Duration::from_secs(3) },
        memory: &[16, 64, 256],
    };
    /// To see that it works.
    pub const SHORT: Self = Self {
        mix: &[4],
        operations: 200,
        rounds: 1,
        single: &[4],
        trips: trips::Plan::SHORT,
        memory: &[1, 8],
    };
}

/// What an operation of the mix costs all islands together, and how even they are.
#[derive(Debug, Clone, Copy)]
struct MixCost {
    islands: f64,
    /// Operations a second of one thread here.
    rate: f64,
    processor_us: f64,
    /// Of these, of Atoll's own code.
    own_us: f64,
    disk_bytes: f64,
    messages: f64,
    /// Requests of the island that has most, against the mean.
    imbalance: f64,
}

/// Bytes of memory of a process with one node and all islands, and of one mount.
#[derive(Debug, Clone, Copy)]
struct Memory {
    islands: f64,
    node: f64,
    mount: f64,
}

/// What was measured.
#[derive(Debug)]
pub struct Report {
    mix: Vec<MixCost>,
    /// Microseconds of processors for a message over TCP, at both ends.
    message_us: f64,
    /// Operations, and their messages with each number of islands.
    single: Vec<(&'static str, Vec<(f64, f64)>)>,
    memory: Vec<Memory>,
}

/// Measures in a new folder in `base`, which is removed at the end. Root only, as [`trips::trips`].
///
/// # Errors
///
/// If root or FUSE is missing, a daemon does not start, or an operation fails.
pub fn scale(base: &Path, plan: Plan) -> Result<Report> {
    if let Some(missing) = Need::Mounts.missing() {
        bail!("this needs {missing}");
    }
    let folder = Folder::new(base, "scale")?;
    let message_us = message_us().context("messages over TCP")?;
    let mix = plan.mix.iter().map(|islands| mix(folder.path(), plan, *islands));
    let mix = mix.collect::<Result<_>>()?;
    let mut single: Vec<(&'static str, Vec<(f64, f64)>)> =
        OPERATIONS.iter().map(|name| (*name, Vec::new())).collect();
    for &islands in plan.single {
        let plan = trips::Plan { islands, ..plan.trips };
        let report = trips::of_these(folder.path(), plan, &OPERATIONS)?;
        for (name, points) in &mut single {
            points.push((f64::from(islands), report.of(name)?.messages));
        }
    }
    let memory = plan.memory.iter().map(|islands| memory(folder.path(), *islands));
    let memory = memory.collect::<Result<_>>()?;
    Ok(Report { mix, message_us, single, memory })
}

/// The mix on a new volume with so many islands.
fn mix(base: &Path, plan: Plan, islands: u16) -> Result<MixCost> {
    let folder = Folder::new(base, &format!("mix-{islands}"))?;
    let bench = Bench::start(folder.path(), trips::Plan { islands, ..plan.trips })?;
    let dirs = make_dirs(bench.mount())?;
    let owners = dirs.iter().map(|dir| island_of(dir)).collect::<std::io::Result<_>>()?;
    let mut mix = Mix::new(dirs, owners)?;
    let idle = bench.idle()?;
    let operations = plan.operations;
    let mut all = Vec::new();
    for _ in 0..plan.rounds {
        mix.settle()?;
        bench.wait_rested(plan.trips.rest)?;
        let before = counts::requests_by_island(bench.address())?;
        let mut took = Duration::ZERO;
        let (added, seconds) = bench.during(|| {
            let began = Instant::now();
            (0..operations).try_for_each(|_| mix.step())?;
            took = began.elapsed();
            Ok(())
        })?;
        let each = added.with(&idle, |added, idle| (added - idle * seconds).max(0.0) / operations as f64);
        let after = counts::requests_by_island(bench.address())?;
        let requests: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        let mean = requests.iter().sum::<f64>() / f64::from(islands);
        all.push(MixCost {
            islands: f64::from(islands),
            rate: operations as f64 / took.as_secs_f64(),
            processor_us: each.processor,
            own_us: each.own,
            disk_bytes: each.disk,
            messages: each.messages,
            imbalance: requests.into_iter().fold(0.0, f64::max) / mean,
        });
    }
    drop(mix);
    bench.stop()?;
    let middle = |of: fn(&MixCost) -> f64| median(&all.iter().map(of).collect::<Vec<_>>());
    Ok(MixCost {
        islands: f64::from(islands),
        rate: middle(|cost| cost.rate),
        processor_us: all.iter().map(|cost| cost.processor_us).fold(f64::INFINITY, f64::min),
        own_us: all.iter().map(|cost| cost.own_us).sum::<f64>() / all.len() as f64,
        disk_bytes: middle(|cost| cost.disk_bytes),
        messages: middle(|cost| cost.messages),
        imbalance: middle(|cost| cost.imbalance),
    })
}

/// What a message over TCP takes of processors at both ends, in microseconds.
fn message_us() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    for end in [&here, &there] {
        end.set_nodelay(true)?;
    }
    let pid = std::process::id();
    let before = counts::processor(pid)?;
    let echo = std::thread::spawn(move || -> Result<f64> {
        let mut bytes = [0; MESSAGE_BYTES];
        for _ in 0..MESSAGES / 2 {
            there.read_exact(&mut bytes)?;
            there.write_all(&bytes)?;
        }
        // While this thread is still there to be counted.
        counts::processor(pid)
    });
    let mut bytes = [7; MESSAGE_BYTES];
    for _ in 0..MESSAGES / 2 {
        here.write_all(&bytes)?;
        here.read_exact(&mut bytes)?;
    }
    match echo.join() {
        Ok(after) => Ok((after? - before) / f64::from(MESSAGES)),
        Err(_) => bail!("the thread that answers has panicked"),
    }
}

/// The memory of a node with so many islands, and of a mount that has looked at a directory of each.
fn memory(base: &Path, islands: u16) -> Result<Memory> {
    let folder = Folder::new(base, &format!("memory-{islands}"))?;
    let (top, address) = (folder.path(), format!("127.0.0.1:{}", free_port()));
    let mut serve = Command::new(binary());
    serve.arg("serve").arg("--data").arg(top.join("node")).args(["--listen", &address]);
    let mut node = Process::spawn(&mut serve, top.join("node.log"), LIFE_MAX)?;
    node.wait_until("that it listens", PATIENCE, |_| TcpStream::connect(&address).is_ok())?;
    let count = islands.to_string();
    atoll(&["volume", "create", "main", "--nodes", &address, "--islands-per-node", &count])?;
    let point = top.join("mnt");
    std::fs::create_dir(&point)?;
    let mut command = Command::new(binary());
    command.arg("mount").arg(format!("{address}:/main")).arg(&point).arg("--foreground");
    let process = Process::spawn(&mut command, top.join("mount.log"), LIFE_MAX)?;
    let mut mount = Mount { process, point: point.clone() };
    mount.wait_mounted(PATIENCE)?;
    let dirs = usize::from(islands) * 8;
    for n in 0..dirs {
        let dir = point.join(format!("d{n}"));
        std::fs::create_dir(&dir)?;
        std::fs::write(dir.join("f"), b"x")?;
    }
    let found = Memory {
        islands: f64::from(islands),
        node: node.memory_bytes()? as f64,
        mount: mount.process.memory_bytes()? as f64,
    };
    mount.stop()?;
    node.stop()?;
    Ok(found)
}

fn rounded(value: f64, digits: i32) -> Value {
    let unit = 10f64.powi(digits);
    json!((value * unit).round() / unit)
}

impl Report {
    /// Processors' microseconds of Atoll's own code for an operation of the mix, with its messages over TCP.
    fn work_us(&self, cost: &MixCost) -> f64 {
        cost.own_us + cost.messages * self.message_us
    }

    /// Archipelago, Figure 15.
    fn mix_figures(&self) -> Figures {
        let about = format!(
            "operation mix 2 on 1 to 16 islands in one process (Archipelago, Figure 15)\n\
            processor, own, disk, messages: of one operation, of all islands together. own: processors' time of Atoll's own code, without the kernel's. A message over TCP takes {:.1} us of processors at both ends.\n\
            imbalance: requests of the island that has most, against the mean.\n\
            by messages: the speed-up as the paper estimates it. by work: as the time of its own code tells it, with messages over TCP. with imbalance: if the others wait for that island",
            self.message_us
        );
        let columns = [
            "islands",
            "operations/s here",
            "processor us",
            "own us",
            "disk bytes",
            "messages",
            "imbalance",
            "by messages",
            "by work",
            "with imbalance",
        ];
        let mut figures = Figures::new(about, &columns);
        let alone = self.mix.first().map_or(1.0, |cost| self.work_us(cost));
        for cost in &self.mix {
            let by_work = cost.islands * alone / self.work_us(cost);
            figures.push(vec![
                json!(cost.islands as u64),
                rounded(cost.rate, 0),
                rounded(cost.processor_us, 1),
                rounded(cost.own_us, 2),
                rounded(cost.disk_bytes, 0),
                rounded(cost.messages, 4),
                rounded(cost.imbalance, 2),
                rounded(by_calls(cost.islands, cost.messages), 2),
                rounded(by_work, 2),
                rounded(by_work / cost.imbalance, 2),
            ]);
        }
        figures
    }

    /// Archipelago, Figure 13, and what it says for the volume on paper.
    fn single_figures(&self) -> Figures {
        let about =
            "messages between islands for one operation (Archipelago, Figure 13), measured, and on paper"
                .to_owned();
        let columns = ["operation", "measured", "for each island", "with 256", "with 1,000", "with 10,000"];
        let mut figures = Figures::new(about, &columns);
        for (name, points) in &self.single {
            let growth = Growth::through(points);
            let measured = points.iter().map(|(islands, messages)| format!("{islands}: {messages:.2}"));
            let mut row = vec![
                json!(name),
                json!(measured.collect::<Vec<_>>().join(", ")),
                rounded(growth.of_each(), 3),
            ];
            row.extend(
                [256.0, 1_000.0, f64::from(ISLANDS_ON_PAPER)].map(|islands| rounded(growth.at(islands), 1)),
            );
            figures.push(row);
        }
        figures
    }

    fn growth(&self, name: &str) -> Growth {
        let found = self.single.iter().find(|(operation, _)| *operation == name);
        Growth::through(found.map_or(&[], |(_, points)| points.as_slice()))
    }

    /// Messages of a mean operation, if so many of the directories whose attributes change have directories in them.
    fn messages_of_mean(&self, islands: f64, with_dirs: f64) -> f64 {
        let at = |name: &str| self.growth(name).at(islands);
        let chmod = at("chmod of a directory") * (1.0 - with_dirs)
            + at("chmod of a directory with directories") * with_dirs;
        MKDIR * at("mkdir")
            + RMDIR * at("rmdir")
            + CHMOD_OF_DIR * chmod
            + RENAME_OF_DIR * at("rename of an empty directory to another parent")
    }

    /// The volume on paper.
    fn paper_figures(&self) -> Figures {
        let about = "a volume on paper, with the paper's parts of operations (Archipelago 6)\n\
            messages, efficiency: of a mean operation, if no directory whose attributes change has directories in it, and if each has. The paper's own is 50 % with 702 islands.\n\
            stamps: bytes of stamps with a chain of ancestors (mkdir, rename of a directory). memory: of a node for each of its islands, and of a mount"
            .to_owned();
        let columns = [
            "islands",
            "messages",
            "efficiency",
            "stamps",
            "memory of an island KiB",
            "memory of a mount MiB",
        ];
        let mut figures = Figures::new(about, &columns);
        let mount: Vec<(f64, f64)> = self.memory.iter().map(|m| (m.islands, m.mount)).collect();
        let nodes: Vec<(f64, f64)> = self.memory.iter().map(|m| (m.islands, m.node)).collect();
        let island = Part::of_whole(&nodes);
        for islands in [16, 256, 702, 1_000, ISLANDS_ON_PAPER] {
            let n = f64::from(islands);
            let messages = [0.0, 1.0].map(|with_dirs| self.messages_of_mean(n, with_dirs));
            let shown = |of: &dyn Fn(f64) -> String| messages.map(of).join(" to ");
            figures.push(vec![
                json!(islands),
                json!(shown(&|messages| format!("{messages:.4}"))),
                json!(shown(&|messages| format!("{:.2} %", by_calls(100.0, messages)))),
                json!(stamp_bytes(islands)),
                island.map_or(Value::Null, |island| rounded(island.of(n) / 1024.0, 0)),
                rounded(Growth::through(&mount).at(n) / 1_048_576.0, 0),
            ]);
        }
        figures
    }

    fn memory_figures(&self) -> Figures {
        let about =
            "memory of a node with all islands, and of a mount, with 8 directories and files for each island"
                .to_owned();
        let mut figures = Figures::new(about, &["islands", "node MiB", "mount MiB"]);
        for memory in &self.memory {
            figures.push(vec![
                json!(memory.islands as u64),
                rounded(memory.node / 1_048_576.0, 1),
                rounded(memory.mount / 1_048_576.0, 1),
            ]);
        }
        figures
    }

    fn figures(&self) -> [Figures; 4] {
        [self.mix_figures(), self.single_figures(), self.memory_figures(), self.paper_figures()]
    }

    /// The speed-up of the mix with most islands, by messages and by work.
    #[must_use]
    pub fn speed_up(&self) -> Option<(f64, f64)> {
        let (alone, most) = (self.mix.first()?, self.mix.last()?);
        let by_work = most.islands * self.work_us(alone) / self.work_us(most);
        Some((by_calls(most.islands, most.messages), by_work))
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Array(self.figures().iter().map(Figures::json).collect()).to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.figures().iter().try_for_each(|figures| writeln!(f, "{figures}"))
    }
}
