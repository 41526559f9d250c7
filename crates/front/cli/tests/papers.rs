//! Manual pages and long helps say what there is, and are made from one source.

mod common;

use common::{Scratch, good, text};

#[test]
fn every_mount_option_is_in_the_help_and_on_the_page() {
    let scratch = Scratch::new();
    let pages = scratch.path("pages");
    good(["man", "--out", text(&pages)]);
    let page = std::fs::read_to_string(pages.join("atoll-mount.1")).unwrap().replace("\\-", "-");
    let help = good(["mount", "--help"]);
    for word in [
        "soft=SECONDS",
        "soft=10",
        "hard",
        "cache=none",
        "locks=local",
        "birth_times",
        "noallow_other",
        "ro",
        "nosuid",
        "nodev",
        "noexec",
        "sync",
        "nodiratime",
        "_netdev",
        "user",
    ] {
        assert!(help.contains(word) && page.contains(word), "{word} is missing");
    }
    assert_eq!(std::fs::read_to_string(pages.join("mount.atoll.8")).unwrap(), ".so man1/atoll-mount.1\n");
}

#[test]
fn every_page_says_how_its_command_ends() {
    let scratch = Scratch::new();
    let pages = scratch.path("pages");
    good(["man", "--out", text(&pages)]);
    let mut seen = 0;
    for page in std::fs::read_dir(&pages).unwrap().map(|e| e.unwrap().path()) {
        if page.extension().is_some_and(|e| e == "1") {
            let text = std::fs::read_to_string(&page).unwrap();
            assert!(text.contains("EXIT STATUS"), "{}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 12, "{seen} pages");
    let umount = std::fs::read_to_string(pages.join("atoll-umount.1")).unwrap();
    assert!(umount.contains("\\fB32\\fR"));
    let mount = std::fs::read_to_string(pages.join("atoll-mount.1")).unwrap();
    for title in ["MOUNT OPTIONS", "FSTAB", "EXAMPLES", "FILES", "SEE ALSO"] {
        assert!(mount.contains(&format!(".SH \"{title}\"")), "{title} is missing");
    }
}

#[test]
fn packagers_see_how_pages_are_made() {
    assert!(good(["--help"]).contains("manual pages"));
}
