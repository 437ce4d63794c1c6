//! `docs/timing-conformance.md` has a row for each feature and names only tests that exist.

use std::path::{Path, PathBuf};

const FOLDERS: [(&str, &str); 7] = [
    ("t/", "crates/livetime-timing/tests/"),
    ("ts/", "crates/livetime-timing/src/"),
    ("w/", "crates/livetime-wire/tests/formats/"),
    ("d/", "crates/livetime-capi/tests/"),
    ("n/", "crates/livetime-timing-daemon/src/"),
    ("r/", "crates/livetime-shm/src/record_ring/"),
    ("p/", "crates/livetime/tests/program/"),
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn source(file: &str) -> String {
    let folder = FOLDERS.iter().find_map(|(short, long)| {
        let rest = file.strip_prefix(short)?;
        Some(format!("{long}{rest}"))
    });
    let path = project().join(folder.unwrap_or_else(|| file.to_owned()));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_row_is_there_and_every_test_exists() {
    let page = std::fs::read_to_string(project().join("docs/timing-conformance.md")).unwrap();
    let rows: Vec<usize> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(rows, (1..=28).collect::<Vec<_>>());
    let mut named = 0;
    for line in page.lines().skip_while(|line| !line.starts_with("| row")) {
        let mut text = None;
        for code in line.split('`').skip(1).step_by(2) {
            let test = match code.split_once(".rs: ") {
                Some((file, test)) => {
                    text = Some((format!("{file}.rs"), source(&format!("{file}.rs"))));
                    test
                }
                None if code.contains(' ') => continue,
                None => code,
            };
            let (file, text) = text.as_ref().expect("a file comes before its tests");
            assert!(
                text.contains(&format!("fn {test}(")),
                "{file}: no test {test}"
            );
            named += 1;
        }
    }
    assert!(named > 60, "{named}");
}
