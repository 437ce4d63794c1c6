//! Links between the files of the repository lead somewhere.
//!
//! Checked: relative links, images and reference definitions of Markdown pages with their
//! anchors, and every path under `docs/` that a text or a comment mentions. Links to the web are
//! not followed; links between Rust items are rustdoc's.

use std::collections::BTreeSet;

use super::Finding;
use crate::source_text::{SourceText, line_of};
use crate::tree::{Tree, resolve};

const RULE: &str = "doc-link";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        if path.ends_with(".md") {
            let prose = without_code(text);
            for (position, target) in targets(&prose) {
                if let Some(message) = problem(tree, path, target) {
                    findings.push(Finding::error(RULE, path, line_of(text, position), message));
                }
            }
        }
        for (position, mentioned) in mentions(path, text) {
            if !tree.contains(&mentioned) {
                let message = format!("`{mentioned}` is mentioned and does not exist");
                findings.push(Finding::error(RULE, path, line_of(text, position), message));
            }
        }
    }
    findings
}

/// What is wrong with a link to `target` from the page at `path`.
fn problem(tree: &Tree, path: &str, target: &str) -> Option<String> {
    let outside = target.contains("://") || target.starts_with("mailto:");
    if outside || target.is_empty() {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() {
        path.to_owned()
    } else {
        match resolve(path, file) {
            Some(file) if tree.contains(&file) => file,
            Some(file) => return Some(format!("link to `{file}`, which does not exist")),
            None => return Some(format!("link to `{target}` leaves the repository")),
        }
    };
    let page = tree
        .text(&file)
        .filter(|_| file.ends_with(".md") && !anchor.is_empty())?;
    let known = anchors(page).contains(anchor);
    (!known).then(|| format!("no heading of `{file}` has the anchor `#{anchor}`"))
}

/// A Markdown text with fenced blocks and code spans blanked, position by position.
fn without_code(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut fence: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => {
                blank_code_spans(line, &mut prose);
                continue;
            }
            _ => {}
        }
        push_blank(line, &mut prose);
    }
    prose
}

fn blank_code_spans(line: &str, prose: &mut String) {
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..]
            .bytes()
            .take_while(|byte| *byte == b'`')
            .count();
        let after = start + ticks;
        let Some(length) = rest[after..].find(&"`".repeat(ticks)) else {
            break;
        };
        let end = after + length + ticks;
        prose.push_str(&rest[..start]);
        push_blank(&rest[start..end], prose);
        rest = &rest[end..];
    }
    prose.push_str(rest);
}

fn push_blank(text: &str, prose: &mut String) {
    prose.extend(
        text.bytes()
            .map(|byte| if byte == b'\n' { '\n' } else { ' ' }),
    );
}

/// Positions and targets of inline links, images, reference definitions and HTML attributes.
fn targets(prose: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    for (opening, closing) in [
        ("](", [')', ' ']),
        ("src=\"", ['"', '"']),
        ("href=\"", ['"', '"']),
    ] {
        for (position, _) in prose.match_indices(opening) {
            let target = &prose[position + opening.len()..];
            let end = target.find(|c: char| closing.contains(&c) || c == '\n');
            targets.push((position, &target[..end.unwrap_or(target.len())]));
        }
    }
    for (position, _) in prose.match_indices("]: ") {
        let line_start = prose[..position]
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        if prose[line_start..].starts_with('[') {
            let target = prose[position + 3..]
                .split_whitespace()
                .next()
                .unwrap_or("");
            targets.push((position, target));
        }
    }
    for (_, target) in &mut targets {
        *target = target.trim_matches(['<', '>']);
    }
    targets
}

/// Anchors of the headings of a page, by the rule of the common hosting sites: lower case, spaces
/// to hyphens, punctuation dropped, a number for repetitions.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut in_fence = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        let title = line.trim_start_matches('#');
        if in_fence || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .flat_map(char::to_lowercase)
            .collect();
        let free = (1..)
            .map(|n| format!("{slug}-{n}"))
            .find(|name| !anchors.contains(name));
        let name = if anchors.contains(&slug) {
            free.unwrap_or(slug)
        } else {
            slug
        };
        anchors.insert(name);
    }
    anchors
}

/// Parts of a path that stand for many.
const PLACEHOLDERS: [&str; 4] = ["NAME", "NNNN", "CODE", "-vN"];

/// Positions and paths under `docs/` that a text names; of Rust sources only the comments.
///
/// The changelog may name what is gone.
fn mentions(path: &str, text: &str) -> Vec<(usize, String)> {
    let readable = [".md", ".rs", ".toml", ".py", ".html"]
        .iter()
        .any(|end| path.ends_with(end));
    if !(readable || path == "Makefile") || path == "CHANGELOG.md" {
        return Vec::new();
    }
    let comments = path.ends_with(".rs").then(|| comments_of(path, text));
    let text = comments.as_deref().unwrap_or(text);
    let mut mentions = Vec::new();
    for (position, _) in text.match_indices("docs/") {
        let before = text[..position].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '/' | '_' | '-' | '.')) {
            continue;
        }
        let in_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
        let length = text[position..]
            .find(|c| !in_path(c))
            .unwrap_or(text.len() - position);
        let next = text[position + length..].chars().next();
        let mentioned = text[position..position + length].trim_end_matches(['.', '-']);
        let pattern = next.is_some_and(|c| matches!(c, '*' | '<' | '{' | '$' | '['));
        if !pattern
            && !PLACEHOLDERS
                .iter()
                .any(|placeholder| mentioned.contains(placeholder))
        {
            mentions.push((position, mentioned.to_owned()));
        }
    }
    mentions
}

/// Only the comments of a Rust source, position by position.
fn comments_of(path: &str, text: &str) -> String {
    let source = SourceText::new(path, text);
    let kept = source.code_and_literals.bytes().zip(text.bytes());
    let comments = kept.map(|(without, with)| if without == with { b' ' } else { with });
    let comments = comments.zip(text.bytes()).map(|(byte, with)| match with {
        b'\n' => b'\n',
        _ => byte,
    });
    String::from_utf8_lossy(&comments.collect::<Vec<u8>>()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::seeded::{places, tree};
    use super::check;

    #[test]
    fn dead_links_images_references_and_anchors_are_found() {
        let text = "\
# The title, here
[good](docs/developer.md) [top](#the-title-here) [web](https://example.org/x.md)
[dead](docs/gone.md \"title\") ![image](gone.svg)
`[code](gone.md)` and [folder](docs/)

```
[fenced](gone.md)
```
[anchor](docs/developer.md#no-such) [good](docs/developer.md#tests-1)
[out](../outside.md)
[ref]: gone/too.md
<a href=\"gone.html\">x</a>
";
        let developer = "# Developer\n## Tests\n## Tests\n```\n# no such\n```\n";
        let findings = check(&tree(&[
            ("README.md", text),
            ("docs/developer.md", developer),
        ]));
        let places: BTreeSet<String> = places(&findings).into_iter().collect();
        let expected = [
            "README.md:10",
            "README.md:11",
            "README.md:12",
            "README.md:3",
            "README.md:9",
        ];
        assert_eq!(places, expected.map(str::to_owned).into());
        let images = findings
            .iter()
            .filter(|finding| finding.message.contains("gone.svg"));
        assert_eq!(images.count(), 1, "{findings:?}");
    }

    #[test]
    fn mentions_of_missing_pages_are_found_in_comments_and_texts() {
        let findings = check(&tree(&[
            (
                "crates/a/src/lib.rs",
                "//! See docs/gone.md.\nconst A: &str = \"docs/b.md\";\n",
            ),
            (
                "docs/developer.md",
                "`docs/decisions/NNNN-name.md`, docs/x/*.md, `docs/developer.md`",
            ),
            ("python/oracle/a.py", "# docs/gone.md\n# mydocs/gone.md\n"),
            ("CHANGELOG.md", "- docs/gone.md is gone\n"),
        ]));
        assert_eq!(
            places(&findings),
            ["crates/a/src/lib.rs:1", "python/oracle/a.py:1"]
        );
    }
}
