//! Data links that are trusted (`crc = false`): the events of links that are checked, whatever carries
//! them.

use crate::contents::contents;
use crate::workbench::{SMALL, Workbench, assert_conserved, changed, count, lost_in_all, value};

const RUN: [&str; 5] = ["--triggers", "3000", "--lossless", "--json", "--out"];

/// `SMALL` with timeouts that no busy machine reaches.
fn patient() -> String {
    let timeouts = "timeout = \"20 s\"\nretry = \"10 ms\"\nprobe = \"50 ms\"";
    changed(SMALL, "timeout = \"1 s\"", timeouts)
}

/// These lines in the tables of all data links.
fn of_links(config: &str, lines: &str) -> String {
    config.replace("pages = 512\n", &format!("pages = 512\n{lines}"))
}

/// Given fragments of which no readout unit has computed a CRC, then none is taken for damaged behind
/// any transport, and what is stored is what is stored of checked links, with CRCs.
#[test]
fn fragments_of_trusted_links_travel_and_are_stored_as_those_of_checked_ones() {
    let checked = patient();
    let trusted = of_links(&checked, "crc = false\n");
    let builder = |transport: &str| {
        let line = format!("[builder]\ntransport = \"{transport}\"\n");
        changed(&trusted, "[builder]\n", &line)
    };
    let filter = |config: &str| changed(config, "[filter]\n", "[filter]\ntransport = \"tcp\"\n");
    let cases = [
        ("checked", checked.clone()),
        ("shm", trusted.clone()),
        ("builder-tcp", builder("tcp")),
        ("builder-udp", builder("udp")),
        ("filter-tcp", filter(&trusted)),
        ("both-tcp", filter(&builder("tcp"))),
        ("links-udp", of_links(&trusted, "kind = \"udp\"\n")),
        ("links-tcp", of_links(&trusted, "kind = \"tcp\"\n")),
    ];
    let runs = cases.map(|(name, config)| {
        // In a folder of its own each run has the same number.
        let bench = Workbench::new();
        bench.write("run.toml", config);
        let arguments = [&["run", "run.toml"][..], &RUN, &[name]].concat();
        let run = bench.run(&arguments).ended_with(0).document();
        assert_conserved(&run);
        assert_eq!(lost_in_all(&run), 0, "{name}: {run}");
        assert_eq!(count(&run, "counts.events_incomplete"), 0, "{name}");
        assert_eq!(count(&run, "counts.events_stored"), 300, "{name}");
        // Reading it compares the CRC of each fragment that is stored with its words.
        (name, run, contents(&bench.path(name)))
    });
    let [(_, checked, stored), others @ ..] = &runs;
    for (name, run, same) in others {
        let digest = |run| value(run, "decision_digest");
        assert_eq!(digest(run), digest(checked), "{name}");
        assert!(same == stored, "{name}: other events or words are stored");
    }
}
