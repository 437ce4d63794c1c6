//! `unsafe` lives in one crate and at the boundary of the two foreign interfaces.
//!
//! The compiler's `forbid(unsafe_code)` can be left out of a crate; this rule cannot. It says
//! nothing about whether an unsafe block is sound: that is for reviewers, Miri and loom.

use super::{Finding, Sources};

const RULE: &str = "unsafe-code";

/// Folders that may hold `unsafe`.
const ALLOWED: [&str; 3] = ["crates/livetime-shm/", "crates/livetime-capi/", "python/"];

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in sources {
        if ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        for position in source.words("unsafe") {
            let message = "`unsafe` outside livetime-shm and the foreign interfaces";
            findings.push(Finding::error(
                RULE,
                path,
                source.line_of(position),
                message,
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::seeded::{places, sources_of};
    use super::check;

    #[test]
    fn unsafe_is_found_everywhere_but_in_its_crate() {
        let block = "//! About unsafe code.\nfn f() {\n    unsafe { g() }\n}\n";
        let findings = check(&sources_of(&[
            ("crates/livetime-shm/src/ring.rs", block),
            ("crates/livetime-wire/src/lib.rs", block),
            ("crates/livetime-wire/tests/a.rs", block),
            ("crates/livetime-wire/src/b.rs", "#![forbid(unsafe_code)]"),
        ]));
        let expected = [
            "crates/livetime-wire/src/lib.rs:3",
            "crates/livetime-wire/tests/a.rs:3",
        ];
        assert_eq!(places(&findings), expected);
    }
}
