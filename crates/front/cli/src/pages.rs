//! The parts of the long help and the manual pages beyond the arguments: options of mounts, examples, exit
//! codes, files. They are written once, and shown as plain text and as roff.

use std::fmt::Write;

use crate::mount_options::TABLE;

/// Columns that a line of the long help has at most.
const COLUMNS: usize = 96;
/// Parts that are worth their lines in the long help too.
const HELPFUL: [&str; 3] = ["MOUNT OPTIONS", "FSTAB", "EXAMPLES"];
/// Columns by which the explanation of a term is indented.
const INDENT: usize = 10;

/// A part of a page.
pub(crate) struct Section {
    title: &'static str,
    text: &'static str,
    /// Terms, each with its meaning.
    terms: Vec<(String, &'static str)>,
}

const fn text(title: &'static str, text: &'static str) -> Section {
    Section { title, text, terms: Vec::new() }
}

fn terms(title: &'static str, terms: &[(&str, &'static str)]) -> Section {
    let terms = terms.iter().map(|(term, meaning)| ((*term).to_owned(), *meaning)).collect();
    Section { title, text: "", terms }
}

/// The texts of a command, by its name with hyphens, such as `atoll-volume-create`.
pub(crate) fn sections(name: &str) -> Vec<Section> {
    let mut all = match name {
        "atoll" => vec![files(), see_also("atoll-mount(1), atoll-up(1), atoll-serve(1), mount.atoll(8)")],
        "atoll-mount" => mount(),
        "atoll-umount" => vec![
            terms(
                "EXAMPLES",
                &[("atoll umount /srv/home", "Returns when the process of the mount has ended.")],
            ),
            see_also("umount(8)"),
        ],
        "atoll-up" => vec![
            terms(
                "EXAMPLES",
                &[
                    (
                        "atoll up --data ~/.atoll --mount ~/atoll",
                        "A volume \"main\" of four islands on this machine.",
                    ),
                    (
                        "atoll up --data /var/lib/atoll/home --mount /srv/home --volume home --listen node1:7100",
                        "The same. Other machines can mount it: atoll mount node1:7100:/home DIR",
                    ),
                ],
            ),
            log(),
            files(),
        ],
        "atoll-serve" => vec![
            terms(
                "EXAMPLES",
                &[(
                    "atoll serve --data /var/lib/atoll --listen node1:7100",
                    "Runs a node, as atoll.service does. Mounts and other nodes use this address.",
                )],
            ),
            text(
                "PROCESSES",
                "A parent process holds the address, and its child serves. If the child is killed or crashes, the \
                 parent starts it again at once, and says so in the log; callers wait meanwhile. If the child dies \
                 five times, each time within 10 s of its start, the parent ends too. A child that refuses to start \
                 says why, and its exit code is that of the parent. SIGTERM, SIGINT and SIGHUP to the parent stop \
                 both in order. If the parent is killed, the kernel kills the child. With --no-restart there is one \
                 process.",
            ),
            log(),
            files(),
            see_also("atoll-volume-create(1), atoll-mount(1)"),
        ],
        "atoll-nfs" => vec![
            terms(
                "EXAMPLES",
                &[
                    (
                        "atoll nfs --data /var/lib/atoll --volume home",
                        "Serves the volume to this machine, and prints the line that mounts it.",
                    ),
                    (
                        "atoll nfs node1:7100:/home --listen 10.0.0.1:2049 --export '/projects 10.0.0.0/8(ro)'",
                        "Other machines may read one directory.",
                    ),
                ],
            ),
            text(
                "EXPORT RULES",
                "CLIENT is an IP address, a network such as 10.0.0.0/8, or *. Options: ro, rw, root_squash (the \
                 default), no_root_squash, all_squash, anonuid=N, anongid=N, secure, insecure, auth_none. The \
                 first rule of a directory that is for a client counts.",
            ),
            log(),
            see_also("atoll-mount(1), nfs(5)"),
        ],
        "atoll-union-start" => vec![
            terms(
                "EXAMPLES",
                &[
                    (
                        "atoll union start media /disk1 /disk2 /mnt/all -o place=room",
                        "Defines the union media and shows it.",
                    ),
                    (
                        "atoll union start media",
                        "Shows it again. Each directory must be the one that it was.",
                    ),
                ],
            ),
            text(
                "FSTAB",
                "A line of /etc/fstab shows a union without a name: /disk1:/disk2 /mnt/all atoll nofail 0 0",
            ),
            log(),
            see_also("atoll-union(1), atoll-union-stop(1), mount.atoll(8)"),
        ],
        "atoll-union-conflicts" => vec![terms(
            "EXAMPLES",
            &[
                ("atoll union conflicts media", "Reads all directories of the union."),
                ("atoll union conflicts /mnt/all --json | jq -r '.[].path'", "The paths alone."),
            ],
        )],
        "atoll-union-resolve" => vec![terms(
            "EXAMPLES",
            &[(
                "atoll union resolve /mnt/all/notes.txt --keep /disk1",
                "The file of /disk1 stays, and those of the other members are removed. First look at them: atoll explain PATH",
            )],
        )],
        "atoll-union-undelete" => vec![terms(
            "EXAMPLES",
            &[(
                "atoll union undelete /mnt/all/film",
                "Copies it back if it was deleted a few seconds ago, and the union is shown with -o grace=SECONDS.",
            )],
        )],
        "atoll-union-join" => vec![terms(
            "EXAMPLES",
            &[
                ("atoll union join media /disk3", "Shows it from now on. A named union remembers it."),
                (
                    "atoll union join /mnt/all /disk3:ro",
                    "The same for a union without a name; nothing is changed in it.",
                ),
            ],
        )],
        "atoll-union-leave" => vec![terms(
            "EXAMPLES",
            &[
                ("atoll union leave media /disk3 && umount /disk3", "Its files stay in it."),
                (
                    "atoll union leave media /disk3 --force",
                    "Also if its disk is gone for good, and files are open.",
                ),
            ],
        )],
        "atoll-union-status" => vec![terms(
            "EXAMPLES",
            &[
                ("atoll union status", "All unions of this machine and their members."),
                (
                    "atoll union status /mnt/all --json | jq '.[0].members[] | select(.state != \"serving\")'",
                    "Members that do not answer.",
                ),
            ],
        )],
        "atoll-volume-create" => vec![terms(
            "EXAMPLES",
            &[(
                "atoll volume create home --nodes node1:7100,node2:7100,node3:7100",
                "Run this once, on any machine. The nodes must run. They cannot be changed later.",
            )],
        )],
        "atoll-status" => vec![terms(
            "EXAMPLES",
            &[
                ("atoll status", "All mounts of this machine and the nodes that they know."),
                ("atoll status node1:7100 --json | jq '.down'", "Nodes of its volumes that do not answer."),
            ],
        )],
        "atoll-doctor" => vec![
            terms(
                "EXAMPLES",
                &[
                    ("atoll doctor", "Examines this machine, its node and the nodes that it knows."),
                    ("atoll doctor --json | jq '.[] | select(.level == \"wrong\")'", "What must be mended."),
                ],
            ),
            text(
                "NOTES",
                "It looks at the clock, the certificate, the disk of the data directory (4 KiB are written and synced \
                 up to 200 times, for 5 s at most, in a file that is gone afterwards), free space, /dev/fuse, the \
                 addresses of the nodes, their versions, and how many keep the CA's key. Each finding says what to \
                 do. A finding is good, advice, or wrong. Whether other nodes reach this one is known only from \
                 nodes that have a volume in common with it. Run it as the user of the daemon.",
            ),
            terms(
                "EXIT STATUS",
                &[
                    ("0", "Nothing must be mended."),
                    ("1", "Something must be mended, or the command failed; the message says why."),
                    ("2", "Wrong arguments."),
                ],
            ),
            see_also("atoll-status(1), atoll-check(1)"),
        ],
        "atoll-ls" => vec![
            terms(
                "EXAMPLES",
                &[
                    ("atoll ls --atomic /srv/home", "Every name of the volume as of one moment."),
                    (
                        "atoll ls --atomic node1:7100:/home/projects --json",
                        "The same for a part of the volume, as JSON, and without a mount.",
                    ),
                ],
            ),
            text(
                "NOTES",
                "The listing shows what the superuser sees. It has every change that ended before the \
                 command began, and no change that began after it ended. If it has a change, it has all \
                 changes before that one. Changes wait at the moment that it shows: mostly some \
                 milliseconds, never more than 300 for one listing. All islands of the volume take part; \
                 while one is away there is no listing. The listing is printed when it is complete, so a \
                 command that fails prints nothing. Times are in UTC; owners and groups are numbers. \
                 Control characters, backslashes and bytes that are not UTF-8 are shown as \\ and three \
                 octal digits.",
            ),
            see_also("atoll-explain(1), atoll-status(1), ls(1)"),
        ],
        "atoll-island-move" => vec![terms(
            "EXAMPLES",
            &[(
                "atoll island move /mnt/home 3 2",
                "Node 2 leads island 3 from now on. It must be in sync: \"atoll status\" shows who is.",
            )],
        )],
        "atoll-island-force" => vec![
            terms(
                "EXAMPLES",
                &[
                    (
                        "atoll island force /mnt/home 3 2",
                        "Shows what each copy of island 3 says, and what would be lost if the one on node 2 led. Changes nothing.",
                    ),
                    ("atoll island force /mnt/home 3 2 --yes", "Does it, and waits until node 2 leads."),
                ],
            ),
            text(
                "WHEN",
                "An island waits if each copy that is there may have lost something, or has missed something, and the \
                 node with a better one is away. That is right as long as that node can come back: start it, and \
                 nothing is lost. This command is for the day on which it cannot: its machine has burned. Changes \
                 that only the missing copies have are lost, also those that an fsync has covered. Programs hear of \
                 it: the next fsync of a file that may have lost something fails with an I/O error, once. A copy \
                 that comes back later is cut back to what the chosen one has, or must be filled anew: copy its plain \
                 tree before you start its node. The node with the control store has to run. \
                 The order holds for ten seconds. It is refused if a copy leads, or can lead without it.",
            ),
            see_also("atoll-status(1), atoll-check(1)"),
        ],
        "atoll-check" => vec![
            terms(
                "EXAMPLES",
                &[
                    (
                        "atoll check --data /var/lib/atoll --read",
                        "Compares all bytes with their checksums, as a scrub does.",
                    ),
                    (
                        "atoll check --read --data /srv/1 /srv/2 /srv/3",
                        "Looks at the data directories of several nodes together, and compares copies of islands.",
                    ),
                    (
                        "atoll check --data /var/lib/atoll --repair --dry-run",
                        "Shows what a repair would do. Without the last option, the repair is done.",
                    ),
                ],
            ),
            text(
                "COPIES",
                "If the islands of a volume have copies, name the data directories of all nodes. Copies are \
                 compared at one record: one that is behind is brought there in memory. The next step of a \
                 finding puts a whole copy in the place of a damaged one. Nothing is changed in such a \
                 volume, with --repair neither.",
            ),
            text(
                "REPAIR",
                "A repair asks no questions and reports each change. It never deletes bytes, and never \
                 removes a name of a file. A file without a name gets one in /lost+found. Changes that \
                 people made in the plain trees stay. Some repairs need all islands of the volume in the \
                 data directory: stop the other nodes, put their folders DATA/islands/VOLUME/ISLAND beside \
                 the ones here, and bring them back afterwards. If damage is left, the output names the \
                 next step.",
            ),
            terms(
                "EXIT STATUS",
                &[
                    ("0", "Nothing is wrong, or nothing any more after --repair."),
                    ("1", "The check or the repair could not be carried out."),
                    ("2", "Wrong arguments."),
                    (
                        "4",
                        "Something is wrong, or is still wrong after --repair. fsck(8) uses the same code.",
                    ),
                ],
            ),
        ],
        "atoll-man" => vec![terms(
            "EXAMPLES",
            &[(
                "atoll man --out pages",
                "All pages of section 1, and mount.atoll(8) as a reference to atoll-mount(1).",
            )],
        )],
        "atoll-completions" => vec![terms(
            "EXAMPLES",
            &[("atoll completions bash > /usr/share/bash-completion/completions/atoll", "For all users.")],
        )],
        _ => Vec::new(),
    };
    if !all.iter().any(|section| section.title == "EXIT STATUS") {
        let at = all.iter().take_while(|section| section.title == "EXAMPLES").count();
        all.insert(at, exit_status(name));
    }
    all
}

fn exit_status(name: &str) -> Section {
    match name {
        "atoll-mount" => terms(
            "EXIT STATUS",
            &[
                ("0", "It is mounted and answers."),
                ("1", "It is not mounted. For mount.atoll: wrong arguments."),
                ("2", "Wrong arguments."),
                ("32", "For mount.atoll: it is not mounted. mount(8) uses the same code."),
            ],
        ),
        "atoll-umount" => terms(
            "EXIT STATUS",
            &[
                ("0", "It is unmounted and its process has ended; or, with --if-mounted, nothing was there."),
                ("2", "Wrong arguments."),
                ("32", "It could not be unmounted, or nothing was there. umount(8) uses the same code."),
            ],
        ),
        _ => terms(
            "EXIT STATUS",
            &[("0", "Done."), ("1", "Failed; the message says why."), ("2", "Wrong arguments.")],
        ),
    }
}

fn log() -> Section {
    text(
        "LOG",
        "Messages go to standard error, or to the journal of systemd with --log journald. A mount in the \
         background uses the journal if there is one; otherwise its messages are lost. Without \
         --log-level, the environment variable ATOLL_LOG sets the level. Each place in the program writes \
         at most 20 lines a minute, and says how many more it has left out.",
    )
}

fn mount() -> Vec<Section> {
    let options = TABLE.iter().map(|entry| (entry.words.join(", "), entry.meaning)).collect();
    vec![
        Section {
            title: "MOUNT OPTIONS",
            text: "Options follow -o, with commas between them. If two contradict each other, the later \
                   one counts. An unknown option is refused.",
            terms: options,
        },
        terms(
            "FSTAB",
            &[
                (
                    "node1:7100,node2:7100:/home  /srv/home  atoll  _netdev,nofail,soft=10  0  0",
                    "Name several nodes: the mount begins with any one that is up. With _netdev the system \
                     waits for the network first. With nofail the machine starts even if the mount fails.",
                ),
                (
                    "mount -t atoll node1:7100:/home /srv/home",
                    "mount(8) runs mount.atoll, which takes the same options. If root mounts in this way, \
                     set-id bits and devices work, as for any file system. Use nosuid,nodev if the \
                     volume's users are not trusted with that.",
                ),
                (
                    "node1:7100,node2:7100:/home  /srv/home  atoll  _netdev,credentials=/etc/atoll/home.pem  0  0",
                    "With credentials other than the default. \"atoll client add\" makes such a file.",
                ),
                (
                    "mount -o remount,ro /srv/home",
                    "Stops changes through the mount, and rw allows them again. The other options that a \
                     remount can change are relatime, noatime, strictatime, nodiratime, nosuid, nodev, \
                     noexec and sync. For any other option, unmount and mount again.",
                ),
            ],
        ),
        terms(
            "EXAMPLES",
            &[
                ("atoll mount node1:7100,node2:7100:/home /srv/home -o hard", "A volume of other machines."),
                (
                    "atoll mount --data ~/.atoll /tmp/second",
                    "A second mount of a volume that a daemon of this machine serves.",
                ),
                ("atoll mount unix:/var/lib/atoll/atoll.sock:/home /srv/home", "The same by its socket."),
            ],
        ),
        exit_status("atoll-mount"),
        log(),
        files(),
        see_also("atoll-umount(1), atoll-status(1), mount(8), fstab(5)"),
    ]
}

fn files() -> Section {
    terms(
        "FILES",
        &[
            (
                "/etc/atoll/credentials.pem",
                "The credentials of this machine, in a cluster with certificates. \"atoll client add\" makes them.",
            ),
            ("/etc/atoll/node.conf", "The data directory and the address of the node of atoll.service."),
            ("DATA/atoll.sock", "The socket of the daemon on a data directory, for commands and mounts."),
            (
                "DATA/islands/VOLUME/ISLAND/tree",
                "The plain files, for reading. They are about a second behind.",
            ),
            (
                "/run/atoll, $XDG_RUNTIME_DIR/atoll",
                "Sockets of the mounts of root and of a user, for commands.",
            ),
            ("/etc/fuse.conf", "With user_allow_other, users other than root may let others in."),
        ],
    )
}

const fn see_also(pages: &'static str) -> Section {
    text("SEE ALSO", pages)
}

/// The command, with these texts at the end of each long help.
pub(crate) fn with_help(command: clap::Command) -> clap::Command {
    fn add(command: clap::Command, name: &str) -> clap::Command {
        let mut help = String::new();
        for section in sections(name).iter().filter(|section| HELPFUL.contains(&section.title)) {
            help.push_str(&section.plain());
        }
        let help = help.trim_end().to_owned();
        let command = if help.is_empty() { command } else { command.after_long_help(help) };
        command.mut_subcommands(|below| {
            let name = format!("{name}-{}", below.get_name());
            add(below, &name)
        })
    }
    add(command, "atoll")
}

impl Section {
    /// As part of a manual page.
    pub(crate) fn roff(&self) -> String {
        let mut out = format!(".SH \"{}\"\n", self.title);
        if !self.text.is_empty() {
            let _ = writeln!(out, "{}", escaped(self.text));
        }
        for (term, meaning) in &self.terms {
            let _ = writeln!(out, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(meaning));
        }
        out
    }

    /// As part of a long help.
    fn plain(&self) -> String {
        let mut out = format!("{}:\n", self.title);
        if !self.text.is_empty() {
            wrap(self.text, 2, &mut out);
        }
        for (term, meaning) in &self.terms {
            // What is to be typed stays on one line; a list of words need not.
            if term.contains(", ") {
                wrap(term, 2, &mut out)
            } else {
                out.push_str(&format!("  {term}\n"))
            }
            wrap(meaning, INDENT, &mut out);
        }
        out.push('\n');
        out
    }
}

/// Adds words as lines that begin with so many blanks.
fn wrap(words: &str, indent: usize, out: &mut String) {
    let mut line = " ".repeat(indent);
    for word in words.split_whitespace() {
        if line.len() > indent && line.len() + 1 + word.len() > COLUMNS {
            out.push_str(&line);
            out.push('\n');
            line.truncate(indent);
        }
        if line.len() > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// Text that roff takes for nothing else.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('~', "\\(ti");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_page_that_is_named_here_is_of_a_command() {
        let mut command = crate::Cli::command().disable_help_subcommand(true);
        command.build();
        let mut names = Vec::new();
        let mut left = vec![&command];
        while let Some(command) = left.pop() {
            names.push(command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned());
            left.extend(command.get_subcommands());
        }
        let source = include_str!("pages.rs");
        let arms = source.lines().filter_map(|l| l.trim().strip_prefix("\"atoll")?.split_once("\" =>"));
        for (rest, _) in arms {
            assert!(names.contains(&format!("atoll{rest}")), "there is no command atoll{rest}");
        }
    }

    #[test]
    fn lines_are_broken_between_words_and_indented() {
        let mut out = String::new();
        wrap(&"word ".repeat(40), 4, &mut out);
        assert!(out.lines().all(|l| l.len() <= COLUMNS && l.starts_with("    word")), "{out}");
        assert_eq!(out.split_whitespace().count(), 40);
        assert_eq!(escaped(".so -x \\"), "\\&.so \\-x \\e");
    }
}
