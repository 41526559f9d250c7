//! `atoll-papers`: prints the papers' analyses. Parses arguments; the measuring is the library's.

use atoll_papers::{Options, imbalance};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: atoll-papers imbalance DIR [--buckets 256] [--islands 4] [--seed 0] [--json]

Shows how evenly the directories and bytes below DIR would spread over the buckets and
islands of a volume (Archipelago, Tables 2 and 3). Reads names and lengths only.";

struct Arguments {
    root: PathBuf,
    options: Options,
    json: bool,
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Arguments, String> {
    match args.next().as_deref().and_then(|a| a.to_str()) {
        Some("imbalance") => {}
        Some(other) => return Err(format!("no command {other:?}")),
        None => return Err("a command is missing".into()),
    }
    let mut options = Options::default();
    let (mut root, mut json) = (None, false);
    while let Some(arg) = args.next() {
        let mut number = |name: &str| {
            let value = args.next().ok_or(format!("{name} needs a number"))?;
            value
                .to_str()
                .and_then(|v| v.parse::<u64>().ok())
                .ok_or(format!("{name} needs a number, not {value:?}"))
        };
        match arg.to_str() {
            Some("--json") => json = true,
            Some("--buckets") => {
                options.buckets =
                    usize::try_from(number("--buckets")?).map_err(|e| format!("--buckets: {e}"))?;
            }
            Some("--islands") => {
                options.islands =
                    u16::try_from(number("--islands")?).map_err(|e| format!("--islands: {e}"))?;
            }
            Some("--seed") => options.seed = number("--seed")?,
            Some(option) if option.starts_with('-') => return Err(format!("no option {option}")),
            _ if root.is_none() => root = Some(PathBuf::from(arg)),
            _ => return Err(format!("one directory at a time, not also {arg:?}")),
        }
    }
    Ok(Arguments { root: root.ok_or("a directory is missing")?, options, json })
}

fn main() -> ExitCode {
    let Arguments { root, options, json } = match parse(std::env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("atoll-papers: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match imbalance(&root, options) {
        Ok(report) if json => println!("{}", report.to_json()),
        Ok(report) => println!("{report}"),
        Err(why) => {
            eprintln!("atoll-papers: {}: {why}", root.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_are_taken_in_any_order() {
        let got = parsed("imbalance --json --islands 3 /x --buckets 64 --seed 9").unwrap();
        assert_eq!(got.options, Options { buckets: 64, islands: 3, seed: 9 });
        assert_eq!((got.root, got.json), (PathBuf::from("/x"), true));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_not_ignored() {
        for bad in [
            "",
            "spread /x",
            "imbalance",
            "imbalance /x /y",
            "imbalance /x --bucket 3",
            "imbalance /x --islands",
            "imbalance /x --islands many",
            "imbalance /x --islands 70000",
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
