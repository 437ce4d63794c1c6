//! A file is named after the noun inside it, so that a reader can guess where a thing is.

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "file-name";

/// Names that say nothing about their content.
const EMPTY_NAMES: [&str; 7] = [
    "utils", "util", "common", "misc", "imp", "helpers", "helper",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.paths()
        .filter_map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let stem = name
                .strip_suffix(".rs")
                .or_else(|| name.strip_suffix(".py"))?;
            let folder = path.rsplit('/').nth(1).unwrap_or("");
            let empty = EMPTY_NAMES.contains(&stem)
                || (EMPTY_NAMES.contains(&folder) && matches!(stem, "mod" | "__init__"));
            empty.then(|| Finding::error(RULE, path, 0, "name the file after the noun inside it"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::seeded::{places, tree};
    use super::check;

    #[test]
    fn names_without_a_noun_are_found() {
        let findings = check(&tree(&[
            ("crates/a/src/utils.rs", ""),
            ("crates/a/src/common/mod.rs", ""),
            ("crates/a/src/credit.rs", ""),
            ("docs/misc.md", ""),
            ("python/oracle/helpers.py", ""),
        ]));
        let expected = [
            "crates/a/src/common/mod.rs:0",
            "crates/a/src/utils.rs:0",
            "python/oracle/helpers.py:0",
        ];
        assert_eq!(places(&findings), expected);
    }
}
