//! Each version of a byte format has a page and golden bytes, and a test that reads them.
//!
//! `docs/formats/NAME-vN.md` describes version N and `docs/formats/NAME-vN.*` holds its bytes.
//! Whether the bytes are right is for the test that names them.

use std::collections::BTreeSet;

use super::Finding;
use crate::tree::Tree;

const RULE: &str = "golden-file";
const FOLDER: &str = "docs/formats/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut pages = BTreeSet::new();
    let mut golden = BTreeSet::new();
    for path in tree.paths() {
        let Some((stem, extension)) = path
            .strip_prefix(FOLDER)
            .and_then(|name| name.rsplit_once('.'))
        else {
            continue;
        };
        if is_versioned(stem) {
            let set = if extension == "md" {
                &mut pages
            } else {
                &mut golden
            };
            set.insert((stem, path));
        }
    }
    let mut findings = Vec::new();
    for (stem, path) in &pages {
        if !golden.iter().any(|(golden_stem, _)| golden_stem == stem) {
            let message = format!("no golden file {FOLDER}{stem}.* beside the page");
            findings.push(Finding::error(RULE, path, 0, message));
        }
    }
    for (stem, path) in &golden {
        let described = tree.texts().any(|(page, text)| {
            page.starts_with(FOLDER) && page.ends_with(".md") && names(text, stem)
        });
        if !described && !pages.iter().any(|(page_stem, _)| page_stem == stem) {
            let message = format!("no page under {FOLDER} describes it");
            findings.push(Finding::error(RULE, path, 0, message));
        }
        if !tree
            .texts()
            .any(|(page, text)| page.ends_with(".rs") && names(text, stem))
        {
            findings.push(Finding::error(RULE, path, 0, "no test reads it"));
        }
    }
    findings
}

/// Whether a file stem ends in `-v` and a number.
fn is_versioned(stem: &str) -> bool {
    stem.rsplit_once("-v").is_some_and(|(name, version)| {
        !name.is_empty() && !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Whether `text` names `stem` itself and not a longer name.
fn names(text: &str, stem: &str) -> bool {
    text.match_indices(stem).any(|(position, _)| {
        let word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        !text[..position].chars().next_back().is_some_and(word)
            && !text[position + stem.len()..]
                .chars()
                .next()
                .is_some_and(word)
    })
}

#[cfg(test)]
mod tests {
    use super::super::seeded::{places, tree};
    use super::check;

    #[test]
    fn pages_need_golden_bytes_and_golden_bytes_need_a_page_and_a_test() {
        let findings = check(&tree(&[
            ("docs/formats/README.md", "lists `fragment-v1.hex`"),
            ("docs/formats/event-v1.md", ""),
            ("docs/formats/fragment-v1.hex", ""),
            ("docs/formats/lonely-v12.hex", ""),
            ("docs/formats/packet-v1.hex", ""),
            ("docs/formats/packet-v1.md", ""),
            (
                "crates/livetime-wire/src/fragment.rs",
                "include_str!(\"fragment-v1.hex\")",
            ),
            (
                "crates/livetime-wire/src/packet.rs",
                "\"packet-v1.hex\" \"lonely-v123\"",
            ),
        ]));
        let expected = [
            "docs/formats/event-v1.md:0",
            "docs/formats/lonely-v12.hex:0",
            "docs/formats/lonely-v12.hex:0",
        ];
        assert_eq!(places(&findings), expected);
    }
}
