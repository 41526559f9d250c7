//! Options of a mount, as after `-o`. An option that is not known is refused: one that were ignored
//! might have been meant as a protection.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use atoll_fuse::{Config, Keep, Locks, MountOptions};
use rustix::mount::MountFlags;

/// Seconds that an operation waits for a node that is away, unless told otherwise.
const SOFT_S: u64 = 10;

/// Longest such time, in seconds.
const SOFT_S_MAX: u64 = 86_400;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Milliseconds that an operation waits for a node that is away; none: for ever.
    pub(crate) patience_ms: Option<u64>,
    read_only: bool,
    allow_other: Option<bool>,
    set_id: bool,
    devices: bool,
    no_exec: bool,
    /// Flags of the mount that only the kernel looks at.
    flags: MountFlags,
    local_locks: bool,
    keep: Keep,
    birth_times: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience_ms: Some(SOFT_S * 1000),
            read_only: false,
            allow_other: None,
            set_id: false,
            devices: false,
            no_exec: false,
            flags: MountFlags::empty(),
            local_locks: false,
            keep: Keep::Recallable,
            birth_times: false,
        }
    }
}

impl Options {
    /// Reads options; later ones win.
    pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut it = Self::default();
        for word in words.into_iter().filter(|w| !w.is_empty()) {
            it.take(word)?;
        }
        Ok(it)
    }

    fn take(&mut self, word: &str) -> Result<()> {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (word, None),
        };
        match (key, value) {
            ("hard", None) => self.patience_ms = None,
            ("soft", None) => self.patience_ms = Some(SOFT_S * 1000),
            ("soft", Some(seconds)) => {
                let s = seconds.parse::<u64>().ok().filter(|s| (1..=SOFT_S_MAX).contains(s));
                let s = s.ok_or_else(|| {
                    anyhow!("\"{word}\" is no time to wait.\nWrite soft=SECONDS, from 1 to {SOFT_S_MAX}.")
                })?;
                self.patience_ms = Some(s * 1000);
            }
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("allow_other", None) => self.allow_other = Some(true),
            ("noallow_other", None) => self.allow_other = Some(false),
            ("suid", None) => self.set_id = true,
            ("nosuid", None) => self.set_id = false,
            ("dev", None) => self.devices = true,
            ("nodev", None) => self.devices = false,
            ("exec", None) => self.no_exec = false,
            ("noexec", None) => self.no_exec = true,
            ("noatime", None) => self.flags |= MountFlags::NOATIME,
            ("nodiratime", None) => self.flags |= MountFlags::NODIRATIME,
            ("atime" | "relatime" | "strictatime", None) => self.flags &= !MountFlags::NOATIME,
            ("diratime", None) => self.flags &= !MountFlags::NODIRATIME,
            ("locks", Some("shared")) => self.local_locks = false,
            ("locks", Some("local")) => self.local_locks = true,
            ("cache", Some("none")) => self.keep = Keep::Nothing,
            ("cache", Some("recallable")) => self.keep = Keep::Recallable,
            ("birth_times", None) => self.birth_times = true,
            // For other programs that read the same table, or what is so anyway.
            (
                "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "owner" | "group" | "nofail"
                | "_netdev" | "_rnetdev" | "async" | "silent" | "loud" | "nomand" | "norelatime"
                | "nostrictatime" | "lazytime" | "nolazytime",
                None,
            ) => {}
            ("comment", Some(_)) => {}
            (key, _) if key.starts_with("x-") || key.starts_with("X-") => {}
            _ => bail!(
                "The mount option \"{word}\" is not known.\nSee \"atoll mount --help\" or atoll-mount(1) for those that are."
            ),
        }
        Ok(())
    }

    /// What the kernel is told.
    pub(crate) fn mount_options(&self, volume: &str) -> MountOptions {
        let mut options = MountOptions::new(volume);
        options.read_only = self.read_only;
        options.set_id = self.set_id;
        options.devices = self.devices;
        if let Some(allow) = self.allow_other {
            options.allow_other = allow;
        }
        options
    }

    /// How the mount is served.
    pub(crate) fn fuse_config(&self) -> Config {
        let locks = if self.local_locks { Locks::Local } else { Locks::Shared };
        Config { keep: self.keep, locks, birth_times: self.birth_times, ..Config::default() }
    }

    /// Sets the flags that the mount was made without.
    pub(crate) fn apply_flags(&self, point: &Path) -> Result<()> {
        let mut flags = self.flags;
        flags.set(MountFlags::NOEXEC, self.no_exec);
        if flags.is_empty() {
            return Ok(());
        }
        if !rustix::process::geteuid().is_root() {
            // Times of access are a matter of taste; what may be run is not.
            if self.no_exec {
                bail!("The mount option \"noexec\" needs root.\nMount without it, or as root.");
            }
            return Ok(());
        }
        // A change of flags sets all of them, so those that it has already are named again.
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.set_id);
        flags.set(MountFlags::NODEV, !self.devices);
        rustix::mount::mount_remount(point, flags | MountFlags::BIND, c"")
            .with_context(|| format!("The options of {} cannot be set", point.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        Options::parse(text.split(','))
    }

    #[test]
    fn options_of_a_table_are_read_and_the_later_wins() {
        let options = parse("rw,soft=3,noatime,_netdev,nofail,x-systemd.automount,ro,,hard").unwrap();
        assert_eq!(options.patience_ms, None);
        assert!(options.read_only && options.flags.contains(MountFlags::NOATIME));
        assert_eq!(parse("").unwrap().patience_ms, Some(10_000));
        assert_eq!(parse("soft=3").unwrap().patience_ms, Some(3_000));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for bad in ["frobnicate", "soft=0", "soft=never", "ro=1", "locks=some"] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(bad) && error.lines().count() <= 3, "{error}");
        }
    }
}
