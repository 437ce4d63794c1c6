//! The C example of the timing client, compiled and run against a daemon of this process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use livetime_timing_daemon::{Daemon, DaemonConfig};

#[test]
fn a_c_program_hears_what_it_injects() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.path().join("listen_timing");
    let library = std::env::current_exe().unwrap();
    let library = library.parent().unwrap().join("liblivetime_capi.a");
    let compiled = Command::new(std::env::var("CC").unwrap_or("cc".to_owned()))
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-O1",
        ])
        .arg("-I")
        .arg(source.join("include"))
        .arg(source.join("examples/listen_timing.c"))
        .arg("-o")
        .arg(&program)
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"])
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );

    let socket = folder.path().join("t.sock");
    let mut config = DaemonConfig::for_user(folder.path().metadata().unwrap().uid());
    config.socket = Some(socket.clone());
    let daemon = Daemon::start(&config).unwrap();
    let output = Command::new(&program).arg(&socket).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "message 0x1123000000000000 param 100 number 0\n\
         message 0x1123000000000001 param 101 number 1\n\
         message 0x1123000000000002 param 102 number 2\n"
    );
    drop(daemon);
    let refused = Command::new(&program).arg(&socket).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("livetime timing serve"), "{said}");
}
