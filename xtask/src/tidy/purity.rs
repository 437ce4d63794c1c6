//! The protocol cores see no clock, thread, socket, file or random map.
//!
//! That is what lets the simulator drive the very structs that run. Test code is exempt. The
//! store works on `Read`, `Write` and `Seek` values, so it may name `std::io` and maps.

use super::{Finding, Sources};
use crate::source_text::{SourceText, is_word, matching};

const RULE: &str = "purity";

const PURE: [&str; 5] = ["source", "readout", "trigger", "builder", "timing"];

const MODULES: [&str; 4] = ["time", "thread", "net", "fs"];

const RANDOM_MAPS: [&str; 2] = ["HashMap", "HashSet"];

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in sources {
        let Some(rest) = path.strip_prefix("crates/livetime-") else {
            continue;
        };
        let Some((name, inner)) = rest.split_once('/') else {
            continue;
        };
        let pure = PURE.contains(&name);
        if !inner.starts_with("src/") || !(pure || name == "store") {
            continue;
        }
        for module in MODULES {
            for position in std_module_uses(source, module) {
                let message = format!("`std::{module}` in a core; pass the value in instead");
                push(&mut findings, path, source, position, message);
            }
        }
        for map in RANDOM_MAPS.iter().filter(|_| pure) {
            for position in source.words(map) {
                let message = format!("`{map}` in a core has a random order; use `BTreeMap`");
                push(&mut findings, path, source, position, message);
            }
        }
    }
    findings
}

fn push(
    findings: &mut Vec<Finding>,
    path: &str,
    source: &SourceText,
    position: usize,
    message: String,
) {
    if !source.in_test(position) {
        findings.push(Finding::error(
            RULE,
            path,
            source.line_of(position),
            message,
        ));
    }
}

/// Positions where `std::module` is named, alone or in a group such as `std::{io, module::X}`.
fn std_module_uses(source: &SourceText, module: &str) -> Vec<usize> {
    let mut positions: Vec<usize> = source.words(&format!("std::{module}")).collect();
    for (start, open) in source.code.match_indices("std::{") {
        let start_of_group = start + open.len() - 1;
        let Some(end) = matching(&source.code, start_of_group) else {
            continue;
        };
        let group = &source.code[start_of_group + 1..end - 1];
        let mut depth = 0_usize;
        let mut item = 0;
        for (offset, byte) in group.bytes().chain([b',']).enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b',' if depth == 0 => {
                    if first_word(&group[item..offset.min(group.len())]) == module {
                        positions.push(start_of_group + 1 + item);
                    }
                    item = offset + 1;
                }
                _ => {}
            }
        }
    }
    positions
}

fn first_word(item: &str) -> &str {
    let item = item.trim_start();
    let length = item.bytes().take_while(|byte| is_word(*byte)).count();
    &item[..length]
}

#[cfg(test)]
mod tests {
    use super::super::seeded::{places, sources_of};
    use super::check;

    #[test]
    fn clocks_threads_sockets_files_and_random_maps_are_found_in_cores() {
        let text = "\
use std::time::Instant;
use std::collections::HashMap;
use std::{
    io::{self, Read},
    net::TcpStream,
};
fn f() { std::thread::spawn(g); }
// std::fs in a comment
#[cfg(test)]
mod tests {
    use std::fs;
}
";
        let findings = check(&sources_of(&[(
            "crates/livetime-builder/src/credit.rs",
            text,
        )]));
        let mut lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [1, 2, 4, 7]);
    }

    #[test]
    fn the_store_may_use_maps_and_io_but_no_files() {
        let text = "use std::io::Write;\nuse std::collections::HashMap;\nuse std::fs::File;\n";
        let findings = check(&sources_of(&[
            ("crates/livetime-store/src/writer.rs", text),
            ("crates/livetime-store/tests/writer.rs", text),
            ("crates/livetime-node/src/disk.rs", text),
        ]));
        assert_eq!(places(&findings), ["crates/livetime-store/src/writer.rs:3"]);
    }
}
