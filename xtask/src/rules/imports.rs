//! Who may import whom, read from the manifests (`docs/ARCHITECTURE.md`, layout).

use crate::repo::{Repo, Violation};
use toml::{Table, Value};

/// The folders that group crates by what they may touch, and which groups each may import.
const GROUPS: &[(&str, &[&str])] = &[
    ("pure", &["pure"]),
    ("store", &["pure", "store"]),
    ("io", &["pure", "store", "io"]),
    // A frontend reaches volumes through the trait of `vfs` only; see FRONT_MAY.
    ("front", &["pure"]),
    ("lab", &["pure", "store", "io", "front", "lab"]),
];

/// What a frontend may import besides pure crates: the trait, and the hook that lets its threads
/// pass the reading on.
const FRONT_MAY: &[&str] = &["atoll-vfs", "atoll-handover"];

/// The crates that put everything together, so that they may import everything but the lab.
const ASSEMBLY: &[&str] = &["atoll-cli", "atoll-volume"];

/// Pure crates that all others may import: words, rows, and what sites know of each other's changes. Every other pure crate is a machine or
/// puts some together, and machines do not import each other.
const VOCABULARY: &[&str] = &["atoll-causal", "atoll-core", "atoll-posix", "atoll-proto", "atoll-state"];

/// Pure crates that put machines together, so that they may import them. No other pure crate may import one of these.
const COMPOSERS: &[&str] = &["atoll-wide"];

/// Foreign crates that a pure crate may not link, because they reach the world or make chance.
const IMPURE: &[&str] = &[
    "async-std",
    "chrono",
    "crossbeam",
    "etcd-client",
    "fastrand",
    "foca",
    "fuser",
    "getrandom",
    "libc",
    "mio",
    "nix",
    "parking_lot",
    "rand",
    "rand_core",
    "redb",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "tempfile",
    "time",
    "tokio",
    "tracing",
    "uuid",
];

/// The one registry that `Cargo.lock` may name.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A crate of the workspace, as its manifest has it.
struct Package<'a> {
    manifest: &'a str,
    /// Its folder, as in `pure/core`.
    folder: &'a str,
    group: &'a str,
    table: Table,
}

impl<'a> Package<'a> {
    fn name(&self) -> &str {
        self.table.get("package").and_then(|p| p.get("name")).and_then(Value::as_str).unwrap_or("")
    }

    /// Names of the packages that it links (not those of its tests), as the registry knows them.
    fn links(&self, workspace: &Table) -> Vec<String> {
        let mut tables: Vec<&Table> = vec![&self.table];
        if let Some(targets) = self.table.get("target").and_then(Value::as_table) {
            tables.extend(targets.values().filter_map(Value::as_table));
        }
        let lists = tables.iter().flat_map(|t| [t.get("dependencies"), t.get("build-dependencies")]);
        let dependencies = lists.flatten().filter_map(Value::as_table).flat_map(|list| list.iter());
        dependencies.map(|(key, value)| package_of(key, value, workspace)).collect()
    }

    fn violation(&self, what: String) -> Violation {
        Violation::new(self.manifest, 0, what)
    }
}

/// A dependency may be renamed, here or in the workspace's table.
fn package_of(key: &str, value: &Value, workspace: &Table) -> String {
    let shared = workspace.get("workspace").and_then(|w| w.get("dependencies")).and_then(|d| d.get(key));
    let renamed = value.get("package").or_else(|| shared.and_then(|s| s.get("package")));
    renamed.and_then(Value::as_str).unwrap_or(key).to_owned()
}

/// The crates below `crates/`, and what could not be read.
fn packages(repo: &Repo) -> (Vec<Package<'_>>, Table, Vec<Violation>) {
    let mut broken = Vec::new();
    let mut parse = |path: &str, text: &str| {
        text.parse::<Table>().unwrap_or_else(|e| {
            broken.push(Violation::new(path, 0, format!("cannot be read: {}", e.message())));
            Table::new()
        })
    };
    let workspace = parse("Cargo.toml", repo.get("Cargo.toml").unwrap_or_default());
    let mut packages = Vec::new();
    for (manifest, text) in repo.ending(&["/Cargo.toml"]) {
        let Some(folder) = manifest.strip_prefix("crates/").and_then(|m| m.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        // A fuzz folder inside a crate is a workspace of its own.
        let Some((group, name)) = folder.split_once('/') else { continue };
        if !name.contains('/') {
            packages.push(Package { manifest, folder, group, table: parse(manifest, text) });
        }
    }
    (packages, workspace, broken)
}

/// Names and folders of the crates below `crates/`.
pub(super) fn crate_folders(repo: &Repo) -> Vec<(String, String)> {
    packages(repo).0.iter().map(|p| (p.name().to_owned(), p.folder.to_owned())).collect()
}

/// Imports between our own crates.
pub(super) fn direction(repo: &Repo) -> Vec<Violation> {
    let (packages, workspace, mut broken) = packages(repo);
    let group_of = |name: &str| packages.iter().find(|p| p.name() == name).map(|p| p.group);
    for package in &packages {
        let name = package.name();
        let Some((_, may)) = GROUPS.iter().find(|(group, _)| *group == package.group) else {
            broken.push(package.violation(format!("no group is called {}", package.group)));
            continue;
        };
        for other in package.links(&workspace) {
            let Some(group) = group_of(&other) else { continue };
            let allowed = if ASSEMBLY.contains(&name) {
                group != "lab"
            } else if package.group == "front" {
                may.contains(&group) || FRONT_MAY.contains(&other.as_str())
            } else {
                may.contains(&group)
            };
            let composes = COMPOSERS.contains(&name) && !COMPOSERS.contains(&other.as_str());
            let machines = package.group == "pure" && !composes && !VOCABULARY.contains(&other.as_str());
            if !allowed {
                broken
                    .push(package.violation(format!("{} may not import {other} of {group}", package.group)));
            } else if machines {
                broken.push(package.violation(format!("imports {other}: machines do not import each other")));
            }
        }
    }
    broken
}

/// Foreign crates of pure crates.
pub(super) fn pure_links(repo: &Repo) -> Vec<Violation> {
    let (packages, workspace, _) = packages(repo);
    let pure = packages.iter().filter(|p| p.group == "pure");
    pure.flat_map(|package| {
        let links = package.links(&workspace).into_iter().filter(|l| IMPURE.contains(&l.as_str()));
        links.map(|link| package.violation(format!("a pure crate may not link {link}"))).collect::<Vec<_>>()
    })
    .collect()
}

/// Every crate says what it is and takes the workspace's lints, `missing_docs` among them.
pub(super) fn described(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    for package in packages(repo).0 {
        let described =
            package.table.get("package").and_then(|p| p.get("description")).and_then(Value::as_str);
        if described.is_none_or(|d| d.trim().is_empty()) {
            broken.push(package.violation("has no description".into()));
        }
        let lints = package.table.get("lints").and_then(|l| l.get("workspace"));
        if lints != Some(&Value::Boolean(true)) {
            broken.push(
                package.violation("does not take the workspace's lints (and so no missing_docs)".into()),
            );
        }
    }
    broken
}

/// A foreign dependency is listed in the workspace's table, once, and with a version.
pub(super) fn versions(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    let (packages, workspace, _) = packages(repo);
    let shared = workspace.get("workspace").and_then(|w| w.get("dependencies")).and_then(Value::as_table);
    for (name, value) in shared.into_iter().flatten() {
        let version = value.as_str().or_else(|| value.get("version").and_then(Value::as_str));
        if value.get("path").is_none() && version.is_none_or(|v| v.contains('*')) {
            broken.push(Violation::new("Cargo.toml", 0, format!("{name} has no version")));
        }
    }
    for package in &packages {
        for list in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, value) in package.table.get(list).and_then(Value::as_table).into_iter().flatten() {
                if value.get("workspace") != Some(&Value::Boolean(true)) {
                    broken.push(package.violation(format!("{name} is not taken from the workspace's table")));
                }
            }
        }
    }
    broken
}

/// The lock file names one registry, and the build is told of no other.
pub(super) fn sources(repo: &Repo) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (path, text) in repo.ending(&["Cargo.lock"]) {
        for (line, text) in (1..).zip(text.lines()) {
            let source = text.strip_prefix("source = ").map(|s| s.trim_matches('"'));
            if source.is_some_and(|s| s != REGISTRY) {
                broken.push(Violation::new(path, line, "a dependency from elsewhere than crates.io"));
            }
        }
    }
    let config = ".cargo/config.toml";
    let table = repo.get(config).and_then(|text| text.parse::<Table>().ok()).unwrap_or_default();
    for key in ["source", "registries", "registry"] {
        if table.contains_key(key) {
            broken.push(Violation::new(
                config,
                0,
                format!("[{key}] belongs into a user's own configuration"),
            ));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest with these lines behind its package table.
    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\ndescription = \"d\"\n[lints]\nworkspace = true\n{rest}")
    }

    /// What `rule` says of crates given as (folder, name, rest of the manifest).
    fn broken(rule: fn(&Repo) -> Vec<Violation>, crates: &[(&str, &str, &str)]) -> Vec<String> {
        let mut files: Vec<(String, String)> = crates
            .iter()
            .map(|(folder, name, rest)| (format!("crates/{folder}/Cargo.toml"), manifest(name, rest)))
            .collect();
        let workspace = "[workspace.dependencies]\nalias = { package = \"rand\", version = \"1\" }\n";
        files.push(("Cargo.toml".into(), workspace.into()));
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        rule(&Repo::of(&files)).into_iter().map(|v| v.what).collect()
    }

    #[test]
    fn imports_against_the_direction_are_found() {
        let lower = [
            ("pure/core", "atoll-core", ""),
            ("store/log", "atoll-log", ""),
            ("io/server", "atoll-server", ""),
            ("front/vfs", "atoll-vfs", ""),
            ("lab/sim", "atoll-sim", ""),
        ];
        let verdict = |folder: &str, name: &str, import: &str| {
            let rest = format!("[dependencies]\n{import}.workspace = true\n");
            let mut crates = lower.to_vec();
            crates.push((folder, name, &rest));
            broken(direction, &crates).len()
        };
        for (folder, name, import) in [
            ("pure/x", "atoll-x", "atoll-log"),
            ("pure/x", "atoll-x", "atoll-vfs"),
            ("pure/x", "atoll-x", "atoll-sim"),
            ("store/x", "atoll-x", "atoll-server"),
            ("io/x", "atoll-x", "atoll-vfs"),
            ("front/x", "atoll-x", "atoll-log"),
            ("front/x", "atoll-x", "atoll-server"),
            ("front/cli", "atoll-cli", "atoll-sim"),
            ("elsewhere/x", "atoll-x", "atoll-core"),
        ] {
            assert_eq!(verdict(folder, name, import), 1, "{folder} imports {import}");
        }
        for (folder, name, import) in [
            ("pure/x", "atoll-x", "atoll-core"),
            ("store/x", "atoll-x", "atoll-log"),
            ("io/x", "atoll-x", "atoll-log"),
            ("front/x", "atoll-x", "atoll-vfs"),
            ("front/cli", "atoll-cli", "atoll-server"),
            ("front/volume", "atoll-volume", "atoll-server"),
            ("lab/x", "atoll-x", "atoll-sim"),
        ] {
            assert_eq!(verdict(folder, name, import), 0, "{folder} imports {import}");
        }
    }

    #[test]
    fn a_machine_that_imports_a_machine_is_found_and_tests_may_import_anything() {
        let crates = |list: &'static str| {
            [
                ("pure/txn", "atoll-txn", list),
                ("pure/borrow", "atoll-borrow", ""),
                ("lab/sim", "atoll-sim", ""),
            ]
        };
        assert_eq!(
            broken(direction, &crates("[dependencies]\natoll-borrow = { workspace = true }")).len(),
            1
        );
        assert_eq!(
            broken(direction, &crates("[target.'cfg(unix)'.dependencies]\natoll-borrow.workspace = true"))
                .len(),
            1
        );
        assert_eq!(broken(direction, &crates("[build-dependencies]\natoll-sim.workspace = true")).len(), 1);
        assert!(broken(direction, &crates("[dev-dependencies]\natoll-sim.workspace = true")).is_empty());
    }

    #[test]
    fn a_composer_may_import_machines_and_nobody_of_them_imports_it() {
        let crates = |composes: &'static str, machine: &'static str| {
            [
                ("pure/wide", "atoll-wide", composes),
                ("pure/island", "atoll-island", machine),
                ("store/log", "atoll-log", ""),
            ]
        };
        let (island, wide) =
            ("[dependencies]\natoll-island.workspace = true", "[dependencies]\natoll-wide.workspace = true");
        assert!(broken(direction, &crates(island, "")).is_empty());
        assert_eq!(broken(direction, &crates("", wide)).len(), 1);
        assert_eq!(broken(direction, &crates("[dependencies]\natoll-log.workspace = true", "")).len(), 1);
    }

    #[test]
    fn a_pure_crate_that_links_chance_is_found_even_under_another_name() {
        assert_eq!(broken(pure_links, &[("pure/x", "atoll-x", "[dependencies]\ntokio = \"1\"")]).len(), 1);
        assert_eq!(
            broken(pure_links, &[("pure/x", "atoll-x", "[dependencies]\nalias.workspace = true")]).len(),
            1
        );
        assert!(broken(pure_links, &[("io/x", "atoll-x", "[dependencies]\ntokio = \"1\"")]).is_empty());
    }

    #[test]
    fn a_crate_without_description_or_lints_is_found() {
        let bare =
            Repo::of(&[("crates/pure/x/Cargo.toml", "[package]\nname = \"x\"\ndescription = \" \"\n")]);
        assert_eq!(described(&bare).len(), 2);
        assert!(broken(described, &[("pure/x", "atoll-x", "")]).is_empty());
    }

    #[test]
    fn open_and_private_versions_are_found() {
        assert_eq!(broken(versions, &[("io/x", "atoll-x", "[dependencies]\ntokio = \"1\"")]).len(), 1);
        let repo = Repo::of(&[(
            "Cargo.toml",
            "[workspace.dependencies]\na = \"*\"\nb = { git = \"x\" }\nc = \"1\"",
        )]);
        assert_eq!(versions(&repo).len(), 2);
    }

    #[test]
    fn another_registry_is_found() {
        let lock = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nsource = \"sparse+https://x/\"";
        let found = sources(&Repo::of(&[("Cargo.lock", lock), (".cargo/config.toml", "[source.x]\na = 1")]));
        assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [2, 0]);
    }

    #[test]
    fn a_manifest_that_cannot_be_read_is_found() {
        assert_eq!(direction(&Repo::of(&[("Cargo.toml", "[workspace\n")])).len(), 1);
    }
}
