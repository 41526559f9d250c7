//! What is measured: two folders, one at each host of a link, that something keeps equal. Knows nothing of what does that.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::wire::Wire;

/// How often in a row both say that they have the same.
const EVEN_IN_A_ROW: u32 = 5;

/// Two folders that are kept equal.
pub trait Pair {
    /// Who keeps them.
    fn name(&self) -> &'static str;

    /// The link between them.
    fn wire(&self) -> &Wire;

    /// The folder at a host, as users see it.
    fn folder(&self, host: usize) -> &Path;

    /// Whether both say that they have the same, and nothing is under way.
    fn is_even(&self) -> Result<bool>;

    /// Waits until it is so several times in a row. What is not on the disk yet is told to nobody, so it may be so for a moment before that.
    fn wait_even(&self, patience: Duration) -> Result<()> {
        let mut in_a_row = 0;
        wait("both have the same", patience, Duration::from_millis(300), || {
            in_a_row = if self.is_even()? { in_a_row + 1 } else { 0 };
            Ok(in_a_row >= EVEN_IN_A_ROW)
        })
        .map(drop)
    }
}

/// Waits until something holds that is asked again and again, and says how long that took. A busy machine may not answer at once.
pub fn wait(
    what: &str,
    patience: Duration,
    pause: Duration,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let since = Instant::now();
    loop {
        let told = holds();
        if matches!(told, Ok(true)) {
            return Ok(since.elapsed());
        }
        if since.elapsed() > patience {
            told?;
            bail!("not after {} s: {what}", patience.as_secs());
        }
        std::thread::sleep(pause);
    }
}
