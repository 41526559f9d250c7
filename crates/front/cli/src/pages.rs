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
                        "The same, which other machines can mount by: atoll mount node1:7100:/home DIR",
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
                    "A node, as atoll.service starts it. The address is the one that mounts and other nodes use.",
                )],
            ),
            log(),
            files(),
            see_also("atoll-volume-create(1), atoll-mount(1)"),
        ],
        "atoll-volume-create" => vec![terms(
            "EXAMPLES",
            &[(
                "atoll volume create home --nodes node1:7100,node2:7100,node3:7100",
                "Once, on any machine; the nodes must run. They cannot be changed later.",
            )],
        )],
        "atoll-status" => vec![terms(
            "EXAMPLES",
            &[
                ("atoll status", "All mounts of this machine and the nodes that they know."),
                ("atoll status node1:7100 --json | jq '.down'", "Nodes of its volumes that do not answer."),
            ],
        )],
        "atoll-ls" => vec![
            terms(
                "EXAMPLES",
                &[
                    (
                        "atoll ls --atomic /srv/home",
                        "Every name of the volume, as all of it was at one moment.",
                    ),
                    (
                        "atoll ls --atomic node1:7100:/home/projects --json",
                        "The same of a part, for programs, and without a mount.",
                    ),
                ],
            ),
            text(
                "NOTES",
                "Lists as the superuser sees it. Every change that ended before the command began is shown, \
                 none that began after it ended, and none without all that came before it. For the moment itself \
                 changes wait: mostly some milliseconds, never more than 300 for one listing. All islands of the \
                 volume take part; while one is away there is no listing. It is printed when it is whole, so a \
                 failed one prints nothing. Times are in UTC, owners and groups are numbers; control characters, \
                 backslashes and what is not UTF-8 are shown as \\ and three octal digits.",
            ),
            see_also("atoll-explain(1), atoll-status(1), ls(1)"),
        ],
        "atoll-check" => vec![
            terms(
                "EXAMPLES",
                &[
                    ("atoll check --data /var/lib/atoll --read", "With all bytes, as a scrub does."),
                    (
                        "atoll check --data /var/lib/atoll --repair --dry-run",
                        "What a repair would do; without the last option it is done.",
                    ),
                ],
            ),
            text(
                "REPAIR",
                "Asks nothing, and says everything that it does. It never deletes bytes and never takes a name from \
                 a file; what has no name any more gets one in /lost+found. What people have changed in the plain \
                 trees is left as it is. What needs all islands of the volume is done only if all are in the data \
                 directory: stop the other nodes, put their folders DATA/islands/VOLUME/ISLAND beside, and take them \
                 back afterwards. What is left is named with the next step.",
            ),
            terms(
                "EXIT STATUS",
                &[
                    ("0", "Nothing is wrong, or nothing any more after --repair."),
                    ("1", "It could not be found out, or the repair could not be carried out."),
                    ("2", "Wrong arguments."),
                    ("4", "Something is wrong, or still wrong after --repair, as fsck(8) says it."),
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
                ("0", "It is mounted, and was seen to answer."),
                ("1", "It is not. Of mount.atoll: wrong arguments."),
                ("2", "Wrong arguments."),
                ("32", "Of mount.atoll: it is not mounted, as mount(8) says it."),
            ],
        ),
        "atoll-umount" => terms(
            "EXIT STATUS",
            &[
                ("0", "It is unmounted and its process has ended; or, with --if-mounted, nothing was there."),
                ("2", "Wrong arguments."),
                ("32", "It could not be unmounted, or nothing was there, as umount(8) says it."),
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
        "What happens while it runs is written to standard error, or to the journal of systemd with --log journald; \
         a mount in the background uses the journal if there is one, and otherwise writes nothing. The environment \
         variable ATOLL_LOG has the level unless --log-level says it. One place in the program writes 20 lines a \
         minute at most; how many more were left out is told.",
    )
}

fn mount() -> Vec<Section> {
    let options = TABLE.iter().map(|entry| (entry.words.join(", "), entry.meaning)).collect();
    vec![
        Section {
            title: "MOUNT OPTIONS",
            text: "After -o, with commas between them; the later one wins. One that is not known is refused.",
            terms: options,
        },
        terms(
            "FSTAB",
            &[
                (
                    "node1:7100,node2:7100:/home  /srv/home  atoll  _netdev,nofail,soft=10  0  0",
                    "Name several nodes: any one of them that is up is enough to begin with. _netdev has the network \
                     waited for, nofail lets the machine start without it.",
                ),
                (
                    "mount -t atoll node1:7100:/home /srv/home",
                    "mount(8) runs mount.atoll, which takes the same options. By this way as root, programs' set-id \
                     bits and devices count, as for any file system: say nosuid,nodev where the volume's users are \
                     not to be trusted with that.",
                ),
                (
                    "mount -o remount,bind,ro /srv/home",
                    "Stops changes through the mount, and rw allows them. Nothing else can be changed while it is \
                     mounted: unmount it and mount it anew.",
                ),
            ],
        ),
        terms(
            "EXAMPLES",
            &[
                ("atoll mount node1:7100,node2:7100:/home /srv/home -o hard", "A volume of other machines."),
                ("atoll mount --data ~/.atoll /tmp/second", "A second mount of what a daemon here serves."),
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
            ("/etc/atoll/node.conf", "Where the node of atoll.service keeps its data and listens."),
            ("DATA/atoll.sock", "Where the daemon on a data directory is asked and mounted from."),
            ("DATA/islands/VOLUME/ISLAND/tree", "The plain files, to read; about a second behind."),
            ("/run/atoll, $XDG_RUNTIME_DIR/atoll", "Sockets by which root's or a user's mounts are asked."),
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
