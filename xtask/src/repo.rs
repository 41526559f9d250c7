//! The repository's text files in memory, so that every rule is a function of them alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs, io};

/// Folders that hold nothing of ours, wherever they stand.
const FOREIGN_FOLDERS: &[&str] = &[".git", "target", ".atoll", "mnt", "node_modules"];

/// Files that are read: by the end of their name, or by their whole name.
const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".sh", ".lock", ".yml", ".yaml", ".py"];
const NAMES: &[&str] = &["Makefile", "README", "CHANGELOG", ".ci/run"];

/// Every text file: path from the root of the repository -> content.
#[derive(Debug, Default)]
pub(crate) struct Repo {
    files: BTreeMap<String, String>,
}

impl Repo {
    /// Reads the files below `root`, whether git knows them or not: a new file is judged before it
    /// is committed.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut repo = Self::default();
        repo.read_folder(root, "")?;
        Ok(repo)
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> io::Result<()> {
        for entry in fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            // Of the entry itself: a symbolic link is neither read nor followed.
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !FOREIGN_FOLDERS.contains(&name.as_str()) {
                    self.read_folder(root, &path)?;
                }
            } else if kind.is_file() && is_text(&path) {
                let text = fs::read_to_string(entry.path())
                    .map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
                self.files.insert(path, text);
            }
        }
        Ok(())
    }

    /// A repository of these files.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect() }
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// A file's content.
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Files whose path ends so, in the order of their paths.
    pub(crate) fn ending<'a>(&'a self, endings: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let matches = move |path: &str| endings.iter().any(|ending| path.ends_with(ending));
        self.files.iter().filter(move |(p, _)| matches(p)).map(|(p, t)| (p.as_str(), t.as_str()))
    }

    /// All files.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(p, t)| (p.as_str(), t.as_str()))
    }
}

/// Whether a file is one that the rules are about.
fn is_text(path: &str) -> bool {
    ENDINGS.iter().any(|ending| path.ends_with(ending)) || NAMES.contains(&path)
}

/// A place where a rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// File, from the root of the repository.
    pub(crate) path: String,
    /// Line, from 1; 0 if it is about the file as a whole.
    pub(crate) line: usize,
    /// What is wrong, and what to do.
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_itself_is_read_without_what_is_built() {
        let repo = Repo::read(&crate::root()).unwrap();
        assert!(repo.get("Cargo.toml").is_some() && repo.get("xtask/src/repo.rs").is_some());
        assert!(repo.all().all(|(path, _)| !path.starts_with("target/") && !path.starts_with(".git/")));
    }
}
