//! Calls to whichever member answers, from threads that wait: one thread with a runtime of its own does all that is asynchronous.
//!
//! Invariant: a call ends in time. What it has come to is told; what is done about it is another's.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::endpoint::{Access, Endpoint, Failure};
use crate::source::EtcdSource;

/// Without an answer for so long the next member is asked too.
const NEXT: Duration = Duration::from_millis(100);
/// A member that has not answered within this is asked again, on another connection.
const SILENT: Duration = Duration::from_millis(300);
/// Pause when all members have failed.
const PAUSE: Duration = Duration::from_millis(20);
/// By so much a caller waits longer than its call may take: then the runtime's thread gets no processor.
const LATENESS_MAX: Duration = Duration::from_millis(500);

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All members, as one thread reaches them.
pub(crate) struct Members {
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    /// The one that has answered last.
    preferred: AtomicUsize,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer<R> {
    pub(crate) message: R,
    /// The same was asked before, without an answer: it may have been done then.
    pub(crate) was_asked_before: bool,
}

impl Members {
    pub(crate) fn new(source: &EtcdSource) -> Self {
        let access = Arc::new(Access::new(source.clone()));
        let endpoint = |address| Arc::new(Endpoint::new(Arc::clone(&access), address));
        Self {
            endpoints: source.hosts.iter().cloned().map(endpoint).collect(),
            preferred: AtomicUsize::new(0),
        }
    }

    /// The member at which a call begins.
    pub(crate) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.endpoints.len()
    }

    /// Asks one member after the other, until one has answered or the time is over. A member that takes long is not given up when
    /// the next one is asked: its disk may be slow. But while a leader is elected, what was asked before may never be answered.
    pub(crate) async fn ask<Q, R>(
        &self,
        path: &'static str,
        message: Q,
        patience: Duration,
    ) -> Result<Answer<R>, Failure>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let until = Instant::now() + patience;
        let mut asked = JoinSet::new();
        let mut waits = Waits::new(&self.endpoints, self.preferred());
        // Something was asked, is not answered and is not waited for any more.
        let mut was_asked_before = false;
        let mut ask_at = Instant::now();
        loop {
            let now = Instant::now();
            if now >= until {
                break;
            }
            if now >= ask_at {
                ask_at = now + PAUSE;
                if let Some(at) = waits.next(now) {
                    let (endpoint, message) = (Arc::clone(&self.endpoints[at]), message.clone());
                    asked.spawn(async move { (at, now, endpoint.call(path, message).await) });
                    ask_at = now + NEXT;
                }
            }
            let wake = ask_at.min(until);
            let Ok(answered) = timeout_at(wake, asked.join_next()).await else { continue };
            let Some(answered) = answered else {
                sleep_until(wake).await;
                continue;
            };
            let (at, since, answer) = answered.expect("a call does not panic");
            waits.answered(at, since);
            match answer {
                Ok(message) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    waits.forget_silent(Instant::now());
                    return Ok(Answer { message, was_asked_before: was_asked_before || !asked.is_empty() });
                }
                Err(Failure::Unreached(why)) => waits.failed(at, why),
                Err(Failure::Away(why)) => {
                    was_asked_before = true;
                    waits.failed(at, why);
                }
                Err(why) => return Err(why),
            }
            ask_at = Instant::now();
        }
        waits.forget_silent(Instant::now());
        Err(Failure::Away(waits.told()))
    }
}

/// What a call knows of the members.
struct Waits<'a> {
    endpoints: &'a [Arc<Endpoint>],
    next: usize,
    of: Vec<Wait>,
}

/// What a call knows of a member.
#[derive(Clone, Default)]
struct Wait {
    /// Since when an answer is waited for.
    since: Option<Instant>,
    /// When it has failed last, and why.
    failed: Option<(Instant, String)>,
}

impl Wait {
    fn may_be_asked(&self, now: Instant) -> bool {
        (self.since.is_none() || self.is_silent(now))
            && self.failed.as_ref().is_none_or(|(failed, _)| now >= *failed + PAUSE)
    }

    fn is_silent(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now >= since + SILENT)
    }
}

impl<'a> Waits<'a> {
    fn new(endpoints: &'a [Arc<Endpoint>], next: usize) -> Self {
        Self { endpoints, next, of: vec![Wait::default(); endpoints.len()] }
    }

    /// The member that is asked now, if there is one of which no answer is waited for, or one that is silent.
    fn next(&mut self, now: Instant) -> Option<usize> {
        let number = self.of.len();
        let mut all = (self.next..self.next + number).map(|at| at % number);
        let at = all.find(|at| self.of[*at].may_be_asked(now))?;
        if self.of[at].since.replace(now).is_some() {
            self.endpoints[at].forget();
        }
        self.next = (at + 1) % number;
        Some(at)
    }

    /// A member has answered what it was asked then.
    fn answered(&mut self, at: usize, since: Instant) {
        self.of[at].since = self.of[at].since.filter(|last| *last != since);
    }

    fn failed(&mut self, at: usize, why: String) {
        self.of[at].failed = Some((Instant::now(), why));
    }

    /// Connections on which nothing comes may be dead.
    fn forget_silent(&self, now: Instant) {
        let silent = self.endpoints.iter().zip(&self.of).filter(|(_, wait)| wait.is_silent(now));
        silent.for_each(|(endpoint, _)| endpoint.forget());
    }

    /// What each member that was asked has said.
    fn told(&self) -> String {
        let mut told = Vec::new();
        for (endpoint, wait) in self.endpoints.iter().zip(&self.of) {
            let why = wait.failed.as_ref().map(|(_, why)| why.as_str()).or(wait.since.map(|_| "no answer"));
            told.extend(why.map(|why| format!("{}: {why}", endpoint.address)));
        }
        told.join("; ")
    }
}

/// The thread, and the way to it.
pub(crate) struct Client {
    pub(crate) members: Arc<Members>,
    jobs: Option<UnboundedSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Starts the thread. Nothing is connected yet.
    pub(crate) fn start(source: &EtcdSource) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (jobs, mut asked) = unbounded_channel::<Job>();
        let run = move || {
            runtime.block_on(async {
                while let Some(job) = asked.recv().await {
                    tokio::spawn(job);
                }
            });
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("atoll-etcd".to_owned()).spawn(run)?;
        Ok(Self { members: Arc::new(Members::new(source)), jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has the thread do this, and does not wait for it.
    pub(crate) fn begin(&self, job: impl Future<Output = ()> + Send + 'static) {
        let jobs = self.jobs.as_ref().expect("it is there until the end");
        assert!(jobs.send(Box::pin(job)).is_ok(), "the thread has ended");
    }

    /// Has the thread do this, and waits for it: `patience`, and a little longer.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        patience: Duration,
        job: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let (done, answer) = sync_channel(1);
        self.begin(async move {
            // Whoever asked may have given up.
            let _ = done.send(job.await);
        });
        let late = |_| Failure::Away("no processor for the thread that asks".to_owned());
        answer.recv_timeout(patience + LATENESS_MAX).map_err(late)?
    }

    /// One call, to whichever member answers.
    pub(crate) fn ask<Q, R>(
        &self,
        path: &'static str,
        message: Q,
        patience: Duration,
    ) -> Result<Answer<R>, Failure>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let members = Arc::clone(&self.members);
        self.wait(patience, async move { members.ask(path, message, patience).await })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the process already, or is one of a test.
            let _ = thread.join();
        }
    }
}
