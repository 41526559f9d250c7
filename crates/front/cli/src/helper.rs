//! `mount.atoll`: the program that mount(8) runs for `mount -t atoll`, with its conventions for arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};

use crate::log::Log;
use crate::mount::mount;
use crate::mount_options::Options;
use crate::union::{Showing, settings};
use atoll_union::Settings;
use atoll_volume::source::Source;

/// The names by which mount(8) finds it: for the type that users write, and for the one that the
/// system's table shows, by which it looks for what is to be remounted.
pub(crate) const NAMES: [&str; 2] = [NAME, "mount.fuse.atoll"];
const NAME: &str = "mount.atoll";

/// mount(8): "mount failure".
const MOUNT_FAILED: u8 = 32;
/// mount(8): "incorrect invocation or permissions".
const USAGE: u8 = 1;

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    source: String,
    point: PathBuf,
    options: Vec<String>,
    /// Do everything but the mount itself.
    fake: bool,
    /// Options that are not known are let through.
    sloppy: bool,
}

/// Runs it.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(why) => {
            crate::complain(&why);
            return ExitCode::from(USAGE);
        }
    };
    match run(&parsed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            crate::complain(&why);
            ExitCode::from(MOUNT_FAILED)
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    // No cluster volume's source begins with a slash: these are directories to show as one.
    let is_union = arguments.source.starts_with('/');
    let (union_settings, words) = match is_union {
        true => settings(&arguments.options)?,
        false => (Settings::default(), arguments.options.iter().map(String::as_str).collect()),
    };
    let words = words.into_iter();
    let remount = words.clone().any(|word| word == "remount");
    // mount(8) hands on all that the system's table shows of a mount, also what only the kernel wrote there.
    let words = words.filter(|word| !(remount && is_of_the_table(word)));
    let options = if arguments.sloppy {
        let known = |word: &&str| Options::of_mount_8().with([*word]).is_ok();
        Options::of_mount_8().with(words.clone().filter(known))?
    } else {
        Options::of_mount_8().with(words.clone())?
    };
    if remount {
        let mut fixed = Options::fixed(words.clone());
        fixed
            .extend(arguments.options.iter().map(String::as_str).filter(|word| is_union && is_setting(word)));
        if !fixed.is_empty() {
            eprintln!("atoll: \"{}\" stays as it was when it was mounted.", fixed.join(","));
        }
        if !arguments.fake {
            atoll_fuse::remount(&arguments.point, &options.mount_options(&arguments.source))?;
        }
        return Ok(());
    }
    if is_union {
        let showing = Showing::of_source(&arguments.source, &arguments.point, union_settings, options)?;
        return if arguments.fake { Ok(()) } else { showing.show(None, None, false, &Log::default()) };
    }
    let source: Source = arguments.source.parse()?;
    if arguments.fake {
        return Ok(());
    }
    // Before any link is made.
    let named = options.credentials.clone().or_else(crate::credentials_of_environment);
    atoll_volume::credentials::use_for_process(named.as_deref(), None)?;
    mount(&source, &arguments.point, &options, false, &Log::default())
}

/// Whether a word is a setting of a union, which lasts as long as the mount.
fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(key, value)| Settings::default().set(key, value).is_some())
}

/// Whether a word stands in the system's table without anybody having asked for it, or is mount(8)'s for a remount.
fn is_of_the_table(word: &str) -> bool {
    let stem = word.split('=').next().unwrap_or(word);
    [
        "remount",
        "user_id",
        "group_id",
        "rootmode",
        "fd",
        "default_permissions",
        "allow_other",
        "max_read",
        "blksize",
    ]
    .contains(&stem)
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Arguments> {
    let usage = || anyhow!("Wrong arguments.\nUsage: {NAME} SOURCE DIR [-sfnv] [-o OPTIONS]");
    let (mut fake, mut sloppy) = (false, false);
    let (mut places, mut options) = (Vec::new(), Vec::new());
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or("");
        let Some(letters) = text.strip_prefix('-').filter(|l| !l.is_empty()) else {
            places.push(argument);
            continue;
        };
        for (at, letter) in letters.char_indices() {
            match letter {
                'f' => fake = true,
                's' => sloppy = true,
                // There is no table of mounts to leave out, and little to be said.
                'n' | 'v' => {}
                'o' | 't' | 'N' => {
                    let rest = &letters[at + 1..];
                    let value = if rest.is_empty() {
                        arguments.next().and_then(|v| v.into_string().ok()).ok_or_else(usage)?
                    } else {
                        rest.to_owned()
                    };
                    match letter {
                        'o' => options.extend(value.split(',').map(str::to_owned)),
                        't' => {}
                        _ => bail!(
                            "Another mount namespace is not supported.\nUse: nsenter --mount={value} {NAME} ..."
                        ),
                    }
                    break;
                }
                _ => return Err(usage()),
            }
        }
    }
    let [source, point] = <[OsString; 2]>::try_from(places).map_err(|_| usage())?;
    let source = source.into_string().map_err(|_| usage())?;
    Ok(Arguments { source, point: point.into(), options, fake, sloppy })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Arguments> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn arguments_of_mount_8_are_read() {
        let parsed = parse_line("a:1:/v /mnt -sn -o rw,_netdev -f").unwrap();
        assert_eq!(parsed.source, "a:1:/v");
        assert_eq!(parsed.point, PathBuf::from("/mnt"));
        assert_eq!(parsed.options, ["rw", "_netdev"]);
        assert!(parsed.fake && parsed.sloppy);
        assert_eq!(parse_line("a:1:/v /mnt -oro").unwrap().options, ["ro"]);
        for bad in ["a:1:/v", "a:1:/v /mnt -o", "a:1:/v /mnt -x", "a b c"] {
            assert!(parse_line(bad).is_err(), "{bad}");
        }
    }
}
