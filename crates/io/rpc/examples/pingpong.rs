//! Round trips of 128-byte frames between two threads of this process, one after the other: what
//! a link costs. Prints a JSON line for each kind of socket and of client.
//!
//! `handler`: the client's handler sends the next request itself, as a mount's does, whose answers
//! go from the thread that read them straight into the kernel. `caller`: a thread sends a request
//! and sleeps until the handler wakes it, which costs one more wake-up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_core::{Encode, IslandId};
use atoll_rpc::header::HEADER_BYTES;
use atoll_rpc::{
    Acceptor, Address, Closed, ClusterId, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link,
    Listener, Options, Outgoing, Role,
};

#[path = "../tests/common/certificates.rs"]
#[allow(dead_code)] // Each user needs a part of it.
mod certificates;
use certificates::{Ca, secure};

const FRAME_BYTES: usize = 128;
const ROUNDS: usize = 50_000;
const WARM_UP: usize = 1_000;

struct Raw<'a>(&'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }
}

struct Echo;

impl Handler for Echo {
    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        let _ = link.send(FrameKind::Reply, frame.island, frame.id, &Raw(&frame.meta), &frame.payload);
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

impl Acceptor for Echo {
    fn welcome(&self, _hello: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(ClusterId(1), DaemonId(1), 1))
    }
}

struct Client {
    answered: SyncSender<()>,
    goes_on: AtomicBool,
    times: Mutex<(Instant, Vec<Duration>)>,
}

impl Client {
    fn ask(&self, link: &Link, id: u64) {
        self.times.lock().unwrap().0 = Instant::now();
        let meta = [id as u8; FRAME_BYTES - HEADER_BYTES];
        link.send(FrameKind::Request, IslandId(0), id, &Raw(&meta), &[]).expect("the link is up");
    }
}

impl Client {
    /// Notes how long a round took; how many there were.
    fn note(&self) -> usize {
        let mut times = self.times.lock().unwrap();
        let took = times.0.elapsed();
        times.1.push(took);
        times.1.len()
    }
}

impl Handler for Client {
    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        assert!(frame.meta.iter().all(|b| *b == frame.id as u8), "another answer than the question");
        if self.goes_on.load(Ordering::Relaxed) && self.note() < ROUNDS + WARM_UP {
            self.ask(link, frame.id + 1);
        } else {
            self.answered.send(()).expect("somebody waits");
        }
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

fn measure(name: &str, address: &Address, node: &Options, of_client: &Options) {
    let listener = Listener::start(address, Arc::new(Echo), node.clone()).expect("free address");
    for by_handler in [true, false] {
        let (answered, wait) = sync_channel(1);
        let goes_on = AtomicBool::new(by_handler);
        let client = Arc::new(Client { answered, goes_on, times: Mutex::new((Instant::now(), Vec::new())) });
        let greeting = Box::new(|| Hello::new(Role::Tool, None));
        let outgoing =
            Outgoing::new(listener.address().clone(), greeting, Arc::clone(&client) as _, of_client.clone());
        let link = outgoing.connect(Duration::from_secs(5)).expect("it listens");
        let calls = if by_handler { 1 } else { ROUNDS + WARM_UP };
        for id in 0..calls {
            client.ask(&link, id as u64);
            wait.recv().expect("the handler lives");
            if !by_handler {
                client.note();
            }
        }
        let mut times = client.times.lock().unwrap().1.split_off(WARM_UP);
        let secs = times.iter().sum::<Duration>().as_secs_f64();
        times.sort_unstable();
        let us = |i: usize| times[i].as_secs_f64() * 1e6;
        println!(
            "{{\"suite\":\"rpc\",\"phase\":\"{name}_{}\",\"threads\":1,\"ops\":{ROUNDS},\"secs\":{secs:.3},\
             \"ops_per_s\":{:.0},\"p50_us\":{:.1},\"p99_us\":{:.1},\"errors\":0}}",
            if by_handler { "handler" } else { "caller" },
            ROUNDS as f64 / secs,
            us(ROUNDS / 2),
            us(ROUNDS * 99 / 100),
        );
    }
}

/// One-way frames of a mebibyte, each answered by an empty one; a window of them is under way.
fn stream(name: &str, address: &Address, node: &Options, of_client: &Options) {
    const MIB: usize = 2_000;
    const WINDOW: usize = 8;
    let sink = Arc::new(Sink);
    let listener = Listener::start(address, sink, node.clone()).expect("free address");
    let (answered, wait) = sync_channel(WINDOW);
    let client = Arc::new(Counts(answered));
    let greeting = Box::new(|| Hello::new(Role::Tool, None));
    let outgoing = Outgoing::new(listener.address().clone(), greeting, client, of_client.clone());
    let link = outgoing.connect(Duration::from_secs(5)).expect("it listens");
    let payload = vec![7; 1024 * 1024];
    let start = Instant::now();
    for id in 0..MIB {
        if id >= WINDOW {
            wait.recv().expect("the handler lives");
        }
        link.send(FrameKind::Request, IslandId(0), id as u64, &Raw(&[]), &payload).expect("the link is up");
    }
    (0..WINDOW).for_each(|_| wait.recv().expect("the handler lives"));
    let secs = start.elapsed().as_secs_f64();
    println!(
        "{{\"suite\":\"rpc\",\"phase\":\"{name}_stream\",\"secs\":{secs:.3},\"mib_per_s\":{:.0}}}",
        MIB as f64 / secs
    );
}

/// Takes frames, and says that it has them.
struct Sink;

impl Handler for Sink {
    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        let _ = link.send(FrameKind::Reply, frame.island, frame.id, &Raw(&[]), &[]);
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

impl Acceptor for Sink {
    fn welcome(&self, hello: &Hello) -> Result<HelloOk, Goodbye> {
        Echo.welcome(hello)
    }
}

struct Counts(SyncSender<()>);

impl Handler for Counts {
    fn frame(&self, _link: &Arc<Link>, _frame: Frame) {
        self.0.send(()).expect("somebody waits");
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

fn main() {
    let tcp: Address = "127.0.0.1:0".parse().expect("an address");
    let path = std::env::temp_dir().join(format!("atoll-pingpong-{}.sock", std::process::id()));
    let unix = Address::Unix { path };
    let (plain, ca) = (Options::default(), Ca::new());
    let (node, client) = (secure(&ca.node(1)), secure(&ca.client(2)));
    for _ in 0..3 {
        for (name, address, node, client) in [
            ("tcp_loopback", &tcp, &plain, &plain),
            ("unix_socket", &unix, &plain, &plain),
            ("tls", &tcp, &node, &client),
        ] {
            measure(name, address, node, client);
            stream(name, address, node, client);
        }
    }
}
