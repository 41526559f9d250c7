//! Options of a mount, as after `-o`. An unknown option is refused: if it were ignored, a protection that it
//! asks for would be missing. Parsing, help and manual page use one table.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use atoll_fuse::{Config, Keep, Locks, MountOptions};
use atoll_posix::AtimeRule;

/// Seconds that an operation waits for a node that is away, unless told otherwise.
const SOFT_S: u64 = 10;

/// Longest such time, in seconds.
const SOFT_S_MAX: u64 = 86_400;

/// The options that were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Milliseconds that an operation waits for a node that is away; none: for ever.
    pub(crate) patience_ms: Option<u64>,
    kernel: MountOptions,
    /// Unless said, it depends on who mounts.
    allow_other: Option<bool>,
    local_locks: bool,
    keep: Keep,
    birth_times: bool,
    /// The credentials of the mount's process, if a file is named.
    pub(crate) credentials: Option<PathBuf>,
}

/// Words that mean something together, as users are told of them.
pub(crate) struct Entry {
    /// As they are written; what is to be filled in is in capitals.
    pub(crate) words: &'static [&'static str],
    pub(crate) meaning: &'static str,
    take: fn(&mut Options, &str, Option<&str>) -> Result<()>,
}

/// Every option that is known.
pub(crate) const TABLE: &[Entry] = &[
    Entry {
        words: &["soft=SECONDS", "soft"],
        meaning: "If an operation needs a node that is away, it fails with EIO or ETIMEDOUT after this \
                  time, from 1 to 86400 seconds. The default is soft=10.",
        take: |o, word, value| {
            let seconds = value.map_or(Some(SOFT_S), |text| text.parse().ok());
            let s = seconds.filter(|s| (1..=SOFT_S_MAX).contains(s)).ok_or_else(|| {
                anyhow!("\"{word}\" is no time to wait.\nWrite soft=SECONDS, from 1 to {SOFT_S_MAX}.")
            })?;
            o.patience_ms = Some(s * 1000);
            Ok(())
        },
    },
    Entry {
        words: &["hard"],
        meaning: "Such an operation waits until the node is back, however long that takes. A signal ends it.",
        take: |o, _, _| {
            o.patience_ms = None;
            Ok(())
        },
    },
    Entry {
        words: &["cache=recallable", "cache=none"],
        meaning: "With recallable, the default, the kernel caches everything while no other mount of the \
                  volume is there. It drops the cache before another mount sees or makes a change. With \
                  none, the kernel caches nothing, so each operation asks an island.",
        take: |o, word, _| {
            o.keep = if word == "cache=none" { Keep::Nothing } else { Keep::Recallable };
            Ok(())
        },
    },
    Entry {
        words: &["locks=shared", "locks=local"],
        meaning: "With shared, the default, flock(2) and fcntl(2) locks hold between all mounts. With \
                  local they hold among the processes of this mount only, which is faster.",
        take: |o, word, _| {
            o.local_locks = word == "locks=local";
            Ok(())
        },
    },
    Entry {
        words: &["credentials=FILE"],
        meaning: "The credentials by which this machine is let in, in a cluster with certificates. The \
                  default is /etc/atoll/credentials.pem, or else those of this machine's node.",
        take: |o, _, value| {
            o.credentials = value.map(PathBuf::from);
            Ok(())
        },
    },
    Entry {
        words: &["birth_times"],
        meaning: "Show when files were made (\"Birth\" of stat(1)). This is not the default, because it \
                  costs programs that ask for it one more request for each file.",
        take: |o, _, _| {
            o.birth_times = true;
            Ok(())
        },
    },
    Entry {
        words: &["allow_other", "noallow_other"],
        meaning: "Whether users other than the mounting one may use the mount. File permissions count in \
                  any case. The default is allow_other for root and noallow_other for others. Others can \
                  change it only with the line user_allow_other in /etc/fuse.conf.",
        take: |o, word, _| {
            o.allow_other = Some(word == "allow_other");
            Ok(())
        },
    },
    Entry {
        words: &["rw", "ro"],
        meaning: "Whether files can be changed through this mount. The default is rw.",
        take: |o, word, _| {
            o.kernel.read_only = word == "ro";
            Ok(())
        },
    },
    Entry {
        words: &["suid", "nosuid"],
        meaning: "Whether set-user-id and set-group-id bits and file capabilities of programs are \
                  honoured. If root mounts by mount(8) or fstab(5), the default is suid, as for any file \
                  system. For atoll mount and for other users it is nosuid. Only root may use suid.",
        take: |o, word, _| {
            o.kernel.set_id = word == "suid";
            Ok(())
        },
    },
    Entry {
        words: &["dev", "nodev"],
        meaning: "Whether device files work. The default is as for suid. Only root may use dev.",
        take: |o, word, _| {
            o.kernel.devices = word == "dev";
            Ok(())
        },
    },
    Entry {
        words: &["exec", "noexec"],
        meaning: "Whether programs can be run from this mount. The default is exec.",
        take: |o, word, _| {
            o.kernel.no_exec = word == "noexec";
            Ok(())
        },
    },
    Entry {
        words: &["async", "sync"],
        meaning: "With sync, each write is on the disks before it returns, as if fsync(2) followed it. \
                  This is not about names: use fsync(2) on their directory. The default is async.",
        take: |o, word, _| {
            o.kernel.sync = word == "sync";
            Ok(())
        },
    },
    Entry {
        words: &["relatime", "noatime", "strictatime", "atime", "norelatime", "nostrictatime"],
        meaning: "Which reads change the access time. relatime, the default: the first read after a \
                  change, and one a day. noatime: none. strictatime: every read; only root may use it. The \
                  other three mean relatime, as on Linux. The island hears of a read up to ten seconds \
                  later.",
        take: |o, word, _| {
            o.kernel.access_times.rule = match word {
                "noatime" => None,
                "strictatime" => Some(AtimeRule::Strict),
                _ => Some(AtimeRule::Relative),
            };
            Ok(())
        },
    },
    Entry {
        words: &["diratime", "nodiratime"],
        meaning: "Whether listing a directory changes its access time, by the same rule. The default is \
                  diratime.",
        take: |o, word, _| {
            o.kernel.access_times.directories = word == "diratime";
            Ok(())
        },
    },
    Entry {
        words: &["user", "users", "user=NAME"],
        meaning: "Lets users mount a line of fstab(5). It implies noexec, nosuid and nodev, unless a later \
                  option says otherwise.",
        take: |o, _, _| {
            (o.kernel.no_exec, o.kernel.set_id, o.kernel.devices) = (true, false, false);
            Ok(())
        },
    },
    Entry {
        words: &["owner", "group"],
        meaning: "Like user, for the owner or group of the source. Atoll's sources have none, so these \
                  options only imply nosuid and nodev.",
        take: |o, _, _| {
            (o.kernel.set_id, o.kernel.devices) = (false, false);
            Ok(())
        },
    },
    Entry {
        words: &[
            "defaults",
            "auto",
            "noauto",
            "nouser",
            "nofail",
            "_netdev",
            "_rnetdev",
            "comment=TEXT",
            "silent",
            "loud",
            "nomand",
            "lazytime",
            "nolazytime",
            "noiversion",
            "symfollow",
            "x-NAME",
            "X-NAME",
        ],
        meaning: "Accepted and ignored: they are for mount(8), systemd and other programs that read the \
                  same line, or are always so.",
        take: |_, _, _| Ok(()),
    },
];

/// A placeholder in the table for text that users write.
const BLANKS: [&str; 4] = ["SECONDS", "NAME", "TEXT", "FILE"];

impl Entry {
    /// Whether `word` is one of its words.
    fn is(&self, word: &str) -> bool {
        self.words.iter().any(|known| match BLANKS.iter().find_map(|blank| known.strip_suffix(blank)) {
            Some(stem) => word.len() > stem.len() && word.starts_with(stem),
            None => word == *known,
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience_ms: Some(SOFT_S * 1000),
            kernel: MountOptions::new(""),
            allow_other: None,
            local_locks: false,
            keep: Keep::Recallable,
            birth_times: false,
            credentials: None,
        }
    }
}

impl Options {
    /// What mount(8) means when it hands on nothing: it takes set-id bits and devices for granted,
    /// and tells its helper only if they are not wanted.
    pub(crate) fn of_mount_8() -> Self {
        let mut it = Self::default();
        let is_root = rustix::process::geteuid().is_root();
        (it.kernel.set_id, it.kernel.devices) = (is_root, is_root);
        it
    }

    /// Reads options; later ones win.
    pub(crate) fn with<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        for word in words.into_iter().filter(|w| !w.is_empty()) {
            self.take(word)?;
        }
        if !rustix::process::geteuid().is_root() {
            let strict = self.kernel.access_times.rule == Some(AtimeRule::Strict);
            for (asked, word) in
                [(self.kernel.set_id, "suid"), (self.kernel.devices, "dev"), (strict, "strictatime")]
            {
                if asked {
                    bail!("The mount option \"{word}\" needs root.\nMount without it, or as root.");
                }
            }
        }
        Ok(self)
    }

    fn take(&mut self, word: &str) -> Result<()> {
        let known = TABLE.iter().find(|entry| entry.is(word));
        let Some(entry) = known else { return Err(unknown(word)) };
        (entry.take)(self, word, word.split_once('=').map(|(_, value)| value))
    }

    /// What stays as it was when the mount was made, although these words say something about it. For a remount, which
    /// changes only what the kernel knows.
    pub(crate) fn fixed<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let is_fixed = |word: &&str| {
            TABLE.iter().find(|entry| entry.is(word)).is_some_and(|entry| {
                let before = Self::default();
                let mut after = Self::default();
                // What fails says so itself.
                let taken =
                    (entry.take)(&mut after, word, word.split_once('=').map(|(_, value)| value)).is_ok();
                let patience = after.patience_ms != before.patience_ms;
                let named = after.allow_other.is_some() || after.credentials.is_some();
                taken && (patience || named || after.fuse_config() != before.fuse_config())
            })
        };
        words.into_iter().filter(is_fixed).collect()
    }

    /// The options for the kernel.
    pub(crate) fn mount_options(&self, source: &str) -> MountOptions {
        let allow_other = self.allow_other.unwrap_or(self.kernel.allow_other);
        MountOptions { source: source.to_owned(), allow_other, ..self.kernel.clone() }
    }

    /// Whether the kernel keeps answers, if it may.
    pub(crate) fn keeps(&self) -> bool {
        self.keep != Keep::Nothing
    }

    /// How the mount is served.
    pub(crate) fn fuse_config(&self) -> Config {
        let locks = if self.local_locks { Locks::Local } else { Locks::Shared };
        let (birth_times, sync) = (self.birth_times, self.kernel.sync);
        Config { keep: self.keep, locks, birth_times, sync, ..Config::default() }
    }
}

/// Why a word is not taken.
fn unknown(word: &str) -> anyhow::Error {
    match word {
        "remount" => anyhow!(
            "\"remount\" is an option of mount(8), for what is mounted already.\n\
             Write, as root: mount -o remount,OPTIONS DIR"
        ),
        "dirsync" => anyhow!(
            "The mount option \"dirsync\" is not possible: the kernel does not hand it on to FUSE.\n\
             Sync a directory with fsync(2), or leave the option out."
        ),
        _ => anyhow!(
            "The mount option \"{word}\" is not known.\nSee \"atoll mount --help\" or atoll-mount(1) for those that are."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        Options::default().with(text.split(','))
    }

    fn by_mount_8(text: &str) -> (bool, bool, bool) {
        let kernel = Options::of_mount_8().with(text.split(',')).unwrap().mount_options("v");
        (kernel.set_id, kernel.devices, !kernel.no_exec)
    }

    #[test]
    fn options_of_a_table_are_read_and_the_later_wins() {
        let options = parse("rw,soft=3,noatime,_netdev,nofail,x-systemd.automount,ro,,hard").unwrap();
        assert_eq!(options.patience_ms, None);
        let kernel = options.mount_options("v");
        assert!(kernel.read_only && kernel.access_times.rule.is_none() && kernel.source == "v");
        assert_eq!(parse("").unwrap().patience_ms, Some(10_000));
        assert_eq!(parse("soft=3").unwrap().patience_ms, Some(3_000));
        assert_eq!(parse("hard,soft").unwrap().patience_ms, Some(10_000));
        assert!(parse("async,sync").unwrap().mount_options("v").sync);
        assert!(parse("comment=what,X-mine,x-theirs=1").is_ok());
        assert!(parse("cache=none").unwrap().keep == Keep::Nothing);
        let options = parse("credentials=/a.pem,credentials=/b.pem").unwrap();
        assert_eq!(options.credentials, Some(PathBuf::from("/b.pem")));
        assert_eq!(Options::fixed(["credentials=/a.pem", "ro"]), ["credentials=/a.pem"]);
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for bad in [
            "frobnicate",
            "soft=0",
            "soft=never",
            "ro=1",
            "locks=some",
            "cache=",
            "credentials",
            "credentials=",
            "remount",
            "dirsync",
            "x",
            "softer",
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(bad) && error.lines().count() <= 3, "{error}");
        }
    }

    #[test]
    fn every_word_of_the_table_is_taken_as_it_is_written_there() {
        let mut seen = std::collections::BTreeSet::new();
        for entry in TABLE {
            assert!(entry.meaning.ends_with('.'), "{}", entry.meaning);
            for word in entry.words {
                assert!(seen.insert(*word), "{word} stands there twice");
                let filled = word.replace("SECONDS", "7").replace("NAME", "fred").replace("TEXT", "t");
                let filled = filled.replace("FILE", "/etc/mine.pem");
                let taken = TABLE.iter().find(|e| e.is(&filled)).expect("it is known");
                assert!(std::ptr::eq(taken, entry), "{word} is taken for {:?}", taken.words);
                let root = rustix::process::geteuid().is_root();
                assert!(
                    parse(&filled).is_ok() || (!root && ["suid", "dev", "strictatime"].contains(word)),
                    "{word}"
                );
            }
        }
    }

    #[test]
    fn mount_8_as_root_honours_set_id_bits_and_devices_unless_told_otherwise() {
        atoll_needs::needs!(Root);
        // The words on the right are what mount(8) makes of them on their way to the helper.
        for (handed_on, expected) in [
            ("rw", (true, true, true)),
            ("rw,nosuid", (false, true, true)),
            ("rw,nodev", (true, false, true)),
            ("rw,noexec,nosuid,nodev,user", (false, false, false)),
            ("rw,nosuid,nodev,users,exec", (false, false, true)),
            ("rw,user=fred,exec,suid,dev", (true, true, true)),
            ("rw,owner", (false, false, true)),
        ] {
            assert_eq!(by_mount_8(handed_on), expected, "{handed_on}");
        }
        let plain = parse("rw").unwrap().mount_options("v");
        assert!(!plain.set_id && !plain.devices, "atoll mount has to be asked for them");
    }
}
