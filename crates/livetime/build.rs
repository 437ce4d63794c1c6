//! Embeds the pages of `docs/explain/`, so that `livetime explain CODE` works without the sources.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut pages = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let code = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .map(str::to_owned);
        if let (Some(code), Some("md")) = (code, path.extension().and_then(|ext| ext.to_str())) {
            pages.push((code, path.canonicalize()?));
        }
    }
    pages.sort();
    let mut source = String::from("&[\n");
    for (code, path) in pages {
        source.push_str(&format!("    ({code:?}, include_str!({path:?})),\n"));
    }
    source.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&out).join("explain_pages.rs"), source)
}
