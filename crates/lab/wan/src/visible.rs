//! How long it takes until one host sees what a program at the other one has written: from `close` to a read of all bytes.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use atoll_model::Rng;
use serde_json::json;

use crate::pair::{Pair, wait};
use crate::table::{Figures, median, percentile, seconds};
use crate::trees::noise;
use crate::wire::LinkTerms;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Visible {
    /// The link.
    pub terms: LinkTerms,
    /// Files, one after the other.
    pub files: usize,
}

/// How long one is waited for, and how often it is looked for.
const SEEN_MAX: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(2);

/// Measures it: new files, then the same files written anew.
pub fn run(what: &Visible, pair: &dyn Pair, said: &mut dyn FnMut(String)) -> Result<Figures> {
    let about = format!(
        "{}: seconds from close until the other host reads it ({}; {} files of 1 to 8 KiB)",
        pair.name(),
        what.terms,
        what.files
    );
    let mut figures = Figures::new(about, &["what", "median_s", "p95_s", "max_s"]);
    let mut rng = Rng::new(12);
    pair.wire().set(what.terms);
    for name in ["a new file", "a file that is written anew"] {
        let mut times = Vec::new();
        for file in 0..what.files {
            let len = 1024 + rng.index(7 * 1024);
            let bytes = noise(&mut rng, len);
            let path = pair.folder(1).join(format!("file{file}"));
            fs::write(pair.folder(0).join(format!("file{file}")), &bytes)?;
            let since = Instant::now();
            wait(name, SEEN_MAX, LOOK, || Ok(fs::read(&path).is_ok_and(|read| read == bytes)))?;
            times.push(since.elapsed());
            // At another moment of what either side does by the clock.
            std::thread::sleep(Duration::from_millis(500 + rng.below(1000)));
        }
        said(format!("{}: {name}: {:?}", pair.name(), median(&times)));
        let of = |percent| seconds(percentile(&times, percent));
        figures.push(vec![json!(name), of(50), of(95), of(100)]);
    }
    Ok(figures)
}
