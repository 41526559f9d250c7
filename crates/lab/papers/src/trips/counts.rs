//! What a daemon has been asked for so far: its page of metrics, and what the kernel counts for its process. Measures
//! nothing, and knows no operation.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// How long the daemon may take for its page of metrics.
const PATIENCE: Duration = Duration::from_secs(10);
/// A page of metrics is shorter: 256 islands have 25 lines of 100 bytes each.
const PAGE_BYTES_MAX: u64 = 4 << 20;
/// The mount lists with the kernel's requests how often it has told an access time, ten seconds after a read.
const TOLD_LATER: &str = "ACCESSED";

/// Counts, or what was added to them, or that for each operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Requests of the kernel by operation, such as `LOOKUP`.
    pub fuse: BTreeMap<String, f64>,
    /// Requests that islands had of clients.
    pub requests: f64,
    /// Messages that islands had of other islands.
    pub messages: f64,
    /// Records that islands have decided.
    pub records: f64,
    /// How often a thread of the daemon has waited.
    pub woken: f64,
    /// Bytes that the daemon has read and written.
    pub bytes: f64,
    /// Of these, bytes for disks.
    pub disk: f64,
    /// Microseconds that processors have worked for the daemon.
    pub processor: f64,
    /// Of these, microseconds of its own code. The kernel's part has what it takes to wake sleeping processors.
    pub own: f64,
}

impl Counts {
    /// Requests of the kernel.
    pub fn fuse_total(&self) -> f64 {
        self.fuse.values().sum()
    }

    /// Every number by what `make` makes of it and the same one of `other`.
    pub fn with(&self, other: &Self, make: impl Fn(f64, f64) -> f64) -> Self {
        let names = self.fuse.keys().chain(other.fuse.keys());
        let of = |counts: &Self, name: &String| counts.fuse.get(name).copied().unwrap_or(0.0);
        Self {
            fuse: names.map(|name| (name.clone(), make(of(self, name), of(other, name)))).collect(),
            requests: make(self.requests, other.requests),
            messages: make(self.messages, other.messages),
            records: make(self.records, other.records),
            woken: make(self.woken, other.woken),
            bytes: make(self.bytes, other.bytes),
            disk: make(self.disk, other.disk),
            processor: make(self.processor, other.processor),
            own: make(self.own, other.own),
        }
    }

    /// What was added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, |now, then| now - then)
    }

    /// From a page of metrics. It must have all of them but those of the kernel's requests, which come with the first
    /// request of each kind.
    fn of_page(page: &str) -> Result<Self> {
        let sum = |name: &str| -> Result<f64> {
            let all: Vec<f64> = values(page, name).map(|found| Ok(found?.1)).collect::<Result<_>>()?;
            ensure!(!all.is_empty(), "the page of metrics has no {name}");
            Ok(all.iter().sum())
        };
        let mut fuse = BTreeMap::new();
        for found in values(page, "atoll_mount_kernel_requests_total") {
            let (labels, value) = found?;
            let operation = labels.split("operation=\"").nth(1).and_then(|rest| rest.split('"').next());
            let operation = operation.context("a request of the kernel has no operation")?;
            if operation != TOLD_LATER {
                *fuse.entry(operation.to_owned()).or_default() += value;
            }
        }
        Ok(Self {
            fuse,
            requests: sum("atoll_island_requests_total")?,
            messages: sum("atoll_island_peer_messages_total")?,
            records: sum("atoll_island_records_total")?,
            ..Self::default()
        })
    }

    /// All of them, of the daemon with this process number and this address of its metrics.
    pub fn now(pid: u32, address: &str) -> Result<Self> {
        let (woken, bytes, disk) = (woken(pid)?, bytes(pid)?, disk(pid)?);
        let (processor, own) = (processor(pid)?, own(pid)?);
        Ok(Self { woken, bytes, disk, processor, own, ..Self::of_page(&page(address)?)? })
    }
}

/// Labels and value of each line of a metric.
fn values<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = Result<(&'a str, f64)>> {
    let rests = page.lines().filter_map(move |line| line.strip_prefix(name));
    // Other names may begin in the same way.
    rests.filter(|rest| rest.starts_with(['{', ' '])).map(move |rest| {
        let (labels, value) = rest.rsplit_once(' ').with_context(|| format!("{name} has no value"))?;
        Ok((labels, value.parse().with_context(|| format!("{name} is {value:?}"))?))
    })
}

fn page(address: &str) -> Result<String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.take(PAGE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = ask().with_context(|| format!("the metrics at {address}"))?;
    let status = text.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "the metrics at {address} are answered with {status:?}");
    Ok(text)
}

/// A line `name value` of one of the kernel's tables.
fn field(table: &str, name: &str) -> Result<f64> {
    let value =
        table.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    value.trim().parse().with_context(|| format!("{name} is {value:?}"))
}

/// Requests of clients that each island had.
pub(crate) fn requests_by_island(address: &str) -> Result<Vec<f64>> {
    values(&page(address)?, "atoll_island_requests_total").map(|found| Ok(found?.1)).collect()
}

/// How often the threads of a process have waited: each time, something has woken them since, or will.
fn woken(pid: u32) -> Result<f64> {
    of_threads(pid, "status", |table| field(table, "voluntary_ctxt_switches:"))
}

/// Microseconds that the threads of a process have run.
pub(crate) fn processor(pid: u32) -> Result<f64> {
    of_threads(pid, "schedstat", |table| {
        let ran = table.split_whitespace().next().context("no time in schedstat")?;
        Ok(ran.parse::<f64>().with_context(|| format!("the time in schedstat is {ran:?}"))? / 1e3)
    })
}

/// Microseconds that a process has run code of its own, in the ticks of the kernel's clock.
fn own(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let table = fs::read_to_string(&path).context(path)?;
    // Behind the name, which may have spaces and parentheses; the 14th of all.
    let behind = table.rsplit_once(')').map(|(_, behind)| behind);
    let ticks = behind.and_then(|behind| behind.split_whitespace().nth(11)).context("no ticks in stat")?;
    let ticks: f64 = ticks.parse().with_context(|| format!("the ticks in stat are {ticks:?}"))?;
    Ok(ticks * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// The sum of what `of` finds in a table of each thread of a process.
fn of_threads(pid: u32, table: &str, of: impl Fn(&str) -> Result<f64>) -> Result<f64> {
    let threads = format!("/proc/{pid}/task");
    let mut sum = 0.0;
    for thread in fs::read_dir(&threads).with_context(|| threads.clone())? {
        match fs::read_to_string(thread?.path().join(table)) {
            Ok(table) => sum += of(&table)?,
            // A thread that has ended since it was listed.
            Err(why) if why.kind() == std::io::ErrorKind::NotFound || why.raw_os_error() == Some(3) => {}
            Err(why) => return Err(why).context(threads),
        }
    }
    Ok(sum)
}

/// Bytes of a process's reads and writes, of files and of the FUSE device.
pub(super) fn bytes(pid: u32) -> Result<f64> {
    of_io(pid, ["rchar:", "wchar:"])
}

/// Bytes that a process has had read from disks, and written for them.
fn disk(pid: u32) -> Result<f64> {
    of_io(pid, ["read_bytes:", "write_bytes:"])
}

fn of_io(pid: u32, names: [&str; 2]) -> Result<f64> {
    let path = format!("/proc/{pid}/io");
    let table = fs::read_to_string(&path).context(path)?;
    names.iter().map(|name| field(&table, name)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
        # TYPE atoll_island_requests_total counter\n\
        atoll_island_requests_total{volume=\"main\",island=\"0\"} 5\n\
        atoll_island_requests_total{volume=\"main\",island=\"1\"} 7\n\
        atoll_island_requests_total_of_others 100\n\
        atoll_island_peer_messages_total{volume=\"main\",island=\"0\"} 3\n\
        atoll_island_records_total{volume=\"main\",island=\"0\"} 2\n\
        atoll_mount_kernel_requests_total{volume=\"main\",point=\"/a b\",operation=\"LOOKUP\"} 9\n\
        atoll_mount_kernel_requests_total{volume=\"main\",point=\"/c\",operation=\"LOOKUP\"} 1\n\
        atoll_mount_kernel_requests_total{volume=\"main\",point=\"/c\",operation=\"CREATE\"} 4\n\
        atoll_mount_kernel_requests_total{volume=\"main\",point=\"/c\",operation=\"ACCESSED\"} 8\n";

    #[test]
    fn counts_are_summed_over_islands_and_mounts_of_a_page() {
        let counts = Counts::of_page(PAGE).unwrap();
        assert_eq!((counts.requests, counts.messages, counts.records), (12.0, 3.0, 2.0));
        assert_eq!(counts.fuse, BTreeMap::from([("CREATE".into(), 4.0), ("LOOKUP".into(), 10.0)]));
        assert_eq!(counts.fuse_total(), 14.0);
    }

    #[test]
    fn a_page_without_a_metric_or_with_another_value_is_no_zero() {
        let without = PAGE.replace("atoll_island_records_total", "atoll_island_lines_total");
        let why = Counts::of_page(&without).unwrap_err();
        assert!(why.to_string().contains("no atoll_island_records_total"), "{why}");
        assert!(Counts::of_page(&PAGE.replace("} 7\n", "} seven\n")).is_err());
        assert!(Counts::of_page(&PAGE.replace("operation=", "kind=")).is_err());
    }

    #[test]
    fn a_difference_has_what_was_asked_for_the_first_time() {
        let before = Counts { requests: 2.0, ..Counts::default() };
        let after =
            Counts { fuse: BTreeMap::from([("MKDIR".into(), 3.0)]), requests: 7.0, ..Counts::default() };
        let since = after.since(&before);
        assert_eq!((since.requests, since.fuse["MKDIR"], since.messages), (5.0, 3.0, 0.0));
    }

    #[test]
    fn the_kernel_counts_bytes_and_waits_of_this_process() {
        let pid = std::process::id();
        let before = bytes(pid).unwrap();
        let path = std::env::temp_dir().join(format!("atoll-trips-{pid}"));
        fs::write(&path, [7; 100_000]).unwrap();
        fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        assert!(bytes(pid).unwrap() >= before + 100_000.0);
        // Threads of other tests end, and their waits are not counted any more.
        assert!(woken(pid).unwrap() >= 1.0);
        let before = processor(pid).unwrap();
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(20) {}
        assert!(processor(pid).unwrap() > before);
        let before = own(pid).unwrap();
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_secs(5) && own(pid).unwrap() == before {
            (0..100_000_u64).for_each(|n| _ = std::hint::black_box(n));
        }
        assert!(own(pid).unwrap() > before);
        assert!(field("rchar: 12\n", "wchar:").is_err());
    }
}
