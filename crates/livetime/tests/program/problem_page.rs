//! `explain` and the other texts of the program: every code that is declared has its page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::workbench::{Workbench, project};

/// The codes declared in the sources of a crate.
fn declared(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("sources are readable") {
        let path = entry.expect("sources are readable").path();
        if path.is_dir() {
            declared(&path, codes);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            for after in text.split("ProblemCode::new(").skip(1) {
                let Some(text) = after.trim_start().strip_prefix('"') else {
                    continue;
                };
                codes.extend(text.split('"').next().map(str::to_owned));
            }
        }
    }
}

#[test]
fn every_code_that_is_declared_is_listed_and_explained() {
    let bench = Workbench::new();
    let mut codes = BTreeSet::new();
    for entry in fs::read_dir(project().join("crates")).expect("crates are readable") {
        declared(
            &entry.expect("crates are readable").path().join("src"),
            &mut codes,
        );
    }
    assert!(codes.len() > 50, "{codes:?}");
    let list = bench.run(&["explain"]).ended_with(0).out;
    let listed: BTreeSet<String> = (list.lines())
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    assert_eq!(listed, codes);
    for code in &codes {
        let page = bench.run(&["explain", code]).ended_with(0).out;
        assert!(page.starts_with(&format!("# {code}: ")), "{page}");
    }
    let lower = bench.run(&["explain", "b0107"]).ended_with(0).out;
    assert!(
        lower.contains("pages of a link = pages_per_fragment x"),
        "{lower}"
    );
}

#[test]
fn an_unknown_code_is_a_problem_with_a_way_out() {
    let bench = Workbench::new();
    let run = bench.run(&["explain", "Z9999"]).ended_with(1);
    assert!(
        run.err.contains("no problem has the code \"Z9999\""),
        "{}",
        run.err
    );
    assert!(
        run.err.contains("help: `livetime explain` lists"),
        "{}",
        run.err
    );
    assert_eq!(run.out, "");
}

#[test]
fn the_version_is_that_of_the_package() {
    let run = Workbench::new().run(&["--version"]).ended_with(0);
    assert_eq!(run.out, format!("livetime {}\n", env!("CARGO_PKG_VERSION")));
}
