//! The header in `include/` is the one that the sources give.
//!
//! To write it anew after a change: `LIVETIME_WRITE_HEADER=1 cargo test -p livetime-capi --test header`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::path::Path;

const SOURCES: [&str; 9] = [
    "src/status.rs",
    "src/record.rs",
    "src/run.rs",
    "src/call.rs",
    "src/link_record.rs",
    "src/link.rs",
    "src/link_call.rs",
    "src/timing.rs",
    "src/timing_call.rs",
];

fn generated(folder: &Path) -> String {
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = SOURCES
        .iter()
        .fold(builder, |builder, path| builder.with_src(folder.join(path)));
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

#[test]
fn header_is_the_one_of_the_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("include/livetime.h");
    let generated = generated(folder);
    if std::env::var_os("LIVETIME_WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == generated,
        "{} is not what the sources give; write it anew with LIVETIME_WRITE_HEADER=1",
        path.display()
    );
}
