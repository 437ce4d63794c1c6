//! The texts of the repository, read once, so that rules are functions of texts.
//!
//! It lists what git tracks or would track (ignored files are not part of the project) and does
//! not judge any of it. The rules are in [`crate::tidy`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The files of the repository by path relative to its root, with `/` between folders.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the repository at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()?;
        if !listed.status.success() {
            return Err(format!("git ls-files failed: {}", listed.status).into());
        }
        let mut tree = Self::default();
        for path in String::from_utf8(listed.stdout)?
            .split('\0')
            .filter(|path| !path.is_empty())
        {
            let file = root.join(path);
            // A tracked file may have been deleted and not yet committed.
            if file.symlink_metadata().is_err() {
                continue;
            }
            match String::from_utf8(std::fs::read(&file)?) {
                Ok(text) => tree.insert(path, &text),
                Err(_) => tree.insert_binary(path),
            }
        }
        Ok(tree)
    }

    /// Adds or replaces a text.
    pub(crate) fn insert(&mut self, path: &str, text: &str) {
        self.texts.insert(path.to_owned(), text.to_owned());
        self.paths.insert(path.to_owned());
    }

    /// Adds a file that is not a text.
    pub(crate) fn insert_binary(&mut self, path: &str) {
        self.paths.insert(path.to_owned());
    }

    /// Every text with its path, in the order of paths.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text at `path`.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Every path, of texts and of other files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Whether a file or a folder is at `path`; the empty path is the root.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        if path.is_empty() || self.paths.contains(path) {
            return true;
        }
        let folder = format!("{path}/");
        let next = self.paths.range(folder.clone()..).next();
        next.is_some_and(|next| next.starts_with(&folder))
    }
}

/// The root of the workspace that this program was built from.
pub(crate) fn workspace_root() -> PathBuf {
    let manifest_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_folder
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_path_buf()
}

/// Resolves `target`, as written in the file at `from`, to a path relative to the root.
///
/// Returns `None` where it leaves the repository.
pub(crate) fn resolve(from: &str, target: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => folder.split('/').filter(|part| !part.is_empty()).collect(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_contained_by_their_files_and_prefixes_are_not() {
        let mut tree = Tree::default();
        tree.insert("docs/formats/event-v1.md", "");
        tree.insert_binary("docs/formats/event-v1.bin");
        assert!(tree.contains("docs/formats"));
        assert!(tree.contains("docs/formats/"));
        assert!(tree.contains("docs/formats/event-v1.bin"));
        assert!(tree.contains(""));
        assert!(!tree.contains("docs/form"));
        assert!(!tree.contains("docs/formats/event-v1"));
    }

    #[test]
    fn relative_targets_resolve_from_the_folder_of_their_file() {
        assert_eq!(
            resolve("docs/a.md", "../README.md").as_deref(),
            Some("README.md")
        );
        assert_eq!(
            resolve("docs/a.md", "./b/c.md").as_deref(),
            Some("docs/b/c.md")
        );
        assert_eq!(resolve("README.md", "docs/").as_deref(), Some("docs"));
        assert_eq!(resolve("README.md", "../outside.md"), None);
    }

    #[test]
    fn this_repository_can_be_read() {
        let tree = Tree::read(&workspace_root()).unwrap();
        assert!(
            tree.text("xtask/src/tree.rs")
                .is_some_and(|text| text.contains("fn resolve"))
        );
    }
}
