//! Goes into the background when the child has succeeded: the parent waits for the child's word.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use rustix::pipe::{PipeFlags, pipe_with};

/// The bytes that the child writes on success. Any other bytes say why it failed.
const READY: &[u8] = b"\0ready";

/// The child, as its parent knows it.
struct Child(OwnedFd);

/// The parent, as its child knows it.
pub(crate) struct Waiting(Cell<Option<OwnedFd>>);

/// Serves in a child that outlives this process and its terminal, once the child has said that it is ready; or in this process, if
/// it is to stay in the foreground. `serve` gets whom to say it to. Only before any thread is started.
pub(crate) fn in_background(
    foreground: bool,
    serve: impl FnOnce(Option<&Waiting>) -> Result<()>,
) -> Result<()> {
    if foreground {
        return serve(None);
    }
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("no pipe to be had")?;
    // SAFETY: the process has one thread, so the child finds no lock held and no state half-changed.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("no process can be started"),
        0 => {
            drop(read);
            // Fails only for the leader of a group, which a new child never is.
            let _ = rustix::process::setsid();
            let parent = Waiting(Cell::new(Some(write)));
            let result = serve(Some(&parent));
            if parent.failed_if(&result) {
                std::process::exit(1);
            }
            result
        }
        _ => {
            drop(write);
            Child(read).wait()
        }
    }
}

impl Child {
    /// Waits until the child is ready or has failed.
    fn wait(self) -> Result<()> {
        let mut said = Vec::new();
        File::from(self.0).read_to_end(&mut said).context("the child cannot be heard")?;
        if said == READY {
            return Ok(());
        }
        if said.is_empty() {
            bail!(
                "The process in the background died without a word.\nTry again with --foreground to see more."
            );
        }
        bail!("{}", String::from_utf8_lossy(&said))
    }
}

impl Waiting {
    /// All is well: lets the parent end, and lets go of the terminal and of the directory.
    pub(crate) fn ready(&self) -> Result<()> {
        let null =
            File::options().read(true).write(true).open("/dev/null").context("/dev/null cannot be opened")?;
        std::env::set_current_dir("/").context("/ cannot be entered")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        self.say(READY)
    }

    /// Lets the parent say why the child ends, if it has failed and the parent still waits. True if
    /// so: there is no more to be said here.
    fn failed_if(&self, result: &Result<()>) -> bool {
        match result {
            Err(why) => self.say(format!("{why:#}").as_bytes()).is_ok(),
            Ok(()) => false,
        }
    }

    /// Says it, and hangs up: the parent waits for that.
    fn say(&self, what: &[u8]) -> Result<()> {
        if let Some(pipe) = self.0.take() {
            File::from(pipe).write_all(what)?;
        }
        Ok(())
    }
}
