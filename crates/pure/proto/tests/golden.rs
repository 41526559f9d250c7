//! The bytes of everything that is written down or sent, held against files: a change of these bytes
//! is a change of the format, and needs a new version (`docs/FORMATS.md`).
//!
//! `ATOLL_BLESS=1 cargo test -p atoll-proto --test golden` writes the files anew.

#![allow(clippy::disallowed_methods, reason = "a test may read and write files")]

mod samples;

use std::fmt::Write as _;
use std::path::PathBuf;

use atoll_proto::VolumeConfig;
use samples::{Sample, Samples};

/// Bytes in a line.
const LINE_BYTES: usize = 32;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// A file has for each value its name behind a `#`, then its bytes.
fn to_text(samples: &[Sample]) -> String {
    let mut text = String::new();
    for (name, bytes) in samples {
        writeln!(text, "# {name}").unwrap();
        for line in bytes.chunks(LINE_BYTES) {
            let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
            writeln!(text, "{}", hex.join(" ")).unwrap();
        }
    }
    text
}

fn from_text(text: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(name) => samples.push((name.to_owned(), Vec::new())),
            None => {
                let bytes = line.split(' ').map(|hex| u8::from_str_radix(hex, 16).unwrap());
                samples.last_mut().unwrap().1.extend(bytes);
            }
        }
    }
    samples
}

#[test]
fn bytes_are_what_they_were() {
    for Samples { file, samples, .. } in samples::all() {
        let path = folder().join(format!("{file}.hex"));
        if std::env::var_os("ATOLL_BLESS").is_some_and(|v| v == "1") {
            std::fs::write(&path, to_text(&samples)).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let golden = from_text(&golden);
        for ((name, bytes), (golden_name, was)) in samples.iter().zip(&golden) {
            assert_eq!((golden_name, was), (name, bytes), "{file}: {name}");
        }
        assert_eq!(golden.len(), samples.len(), "{file}: the file and the test have other values");
    }
}

#[test]
fn golden_bytes_are_read_and_written_again_the_same() {
    for Samples { file, again, .. } in samples::all() {
        let text = std::fs::read_to_string(folder().join(format!("{file}.hex"))).unwrap();
        for (name, bytes) in from_text(&text) {
            assert_eq!(again(&bytes).as_ref(), Some(&bytes), "{file}: {name}");
            if !bytes.is_empty() {
                assert_eq!(again(&bytes[..bytes.len() - 1]), None, "{file}: {name}, a byte short");
            }
            assert_eq!(again(&[&bytes[..], &[0]].concat()), None, "{file}: {name}, a byte too many");
        }
    }
}

#[test]
fn every_tag_has_golden_bytes_and_no_tag_is_unknown() {
    for Samples { file, samples, tags, again } in samples::all() {
        let there: Vec<u8> = samples.iter().filter_map(|(_, bytes)| bytes.first().copied()).collect();
        for tag in &tags {
            assert!(there.contains(tag), "{file}: tag {tag} has no golden bytes");
        }
        // A tag that is none of these means nothing: a new one must come here first.
        if let Some(highest) = tags.iter().max() {
            for tag in (highest + 1..=u8::MAX).chain([0]) {
                let follows = samples.iter().map(|(_, bytes)| [&[tag], &bytes[1..]].concat());
                assert!(follows.chain([vec![tag]]).all(|bytes| again(&bytes).is_none()), "{file}: tag {tag}");
            }
        }
    }
}

#[test]
fn a_configuration_of_before_there_were_kinds_is_still_read() {
    let text = std::fs::read_to_string(folder().join("volume_before_kinds.hex")).unwrap();
    for (name, bytes) in from_text(&text) {
        assert_eq!(VolumeConfig::from_stored(&bytes), Ok(samples::config()), "{name}");
    }
}
