//! Files whose names are no UTF-8: they are as good as any, and records show what of them is text.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::workbench::{SMALL, Workbench};

/// A name with a byte that is in no UTF-8.
fn odd(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

#[test]
fn names_that_are_no_text_are_taken_and_shown_as_far_as_they_are() {
    let bench = Workbench::new();
    let config = odd(b"small\xff.toml");
    let path = |name: &OsStr| -> PathBuf { bench.path("").join(name) };
    fs::write(path(config), SMALL).expect("the folder is ours");
    for (verb, out, more) in [
        ("run", odd(b"threads\xff"), &["--lossless"][..]),
        ("run", odd(b"processes\xff"), &["--lossless", "--processes"]),
        ("sim", odd(b"simulated\xff"), &[]),
    ] {
        let mut arguments = vec![OsStr::new(verb), config, OsStr::new("--out"), out];
        arguments.extend(["--triggers", "100"].map(OsStr::new));
        arguments.extend(more.iter().map(OsStr::new));
        let finished = bench.run(&arguments).ended_with(0);
        assert!(!finished.err.contains("bug"), "{}", finished.err);
        let summary = fs::read_to_string(path(out).join("summary.json"));
        let summary: Value = serde_json::from_str(&summary.expect("it is there")).expect("JSON");
        let command: Vec<&str> = (summary["command"].as_array().expect("a list").iter())
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(command[1..3], [verb, "small\u{fffd}.toml"]);
        assert!(!command.contains(&"--out"), "there is a run: {command:?}");
        assert!(path(out).join("report.html").is_file() || verb == "sim");
    }
    let page = odd(b"page\xff.html");
    let again = [
        OsStr::new("report"),
        odd(b"threads\xff"),
        OsStr::new("-o"),
        page,
    ];
    bench.run(&again).ended_with(0);
    assert!(path(page).is_file());
}

/// A name may hold orders to a terminal: they are shown and not given.
#[test]
fn control_characters_of_a_name_reach_no_terminal() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let out = "a\u{1b}[31mb";
    let run = bench.run(&[
        "run",
        "small.toml",
        "--triggers",
        "100",
        "--lossless",
        "--out",
        out,
    ]);
    let run = run.ended_with(0);
    for said in [&run.err, &run.out] {
        assert!(said.contains(r"a\u001b[31mb"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    assert!(bench.path(out).join("report.html").is_file());
}
