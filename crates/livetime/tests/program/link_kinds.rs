//! Runs whose fragments travel over sockets or come from files: the same run as over an emulated
//! link, and every loss of the network under its name.

use livetime_wire::link_frame::{FrameHeader, FrameNumbers, HEADER_WORDS, LinkTally};
use serde_json::Value;

use crate::workbench::{SMALL, Workbench, assert_conserved, changed, count, lost, triggers, value};

const TRIGGERS: [&str; 3] = ["--triggers", "3000", "--lossless"];

/// `SMALL` with these lines in the tables of its data links.
fn of_kind(lines: &str) -> String {
    SMALL.replace("pages = 512\n", &format!("pages = 512\n{lines}\n"))
}

fn quick_timeout(config: &str) -> String {
    let timeout = "timeout = \"20 ms\"\nretry = \"5 ms\"";
    changed(config, "timeout = \"1 s\"", timeout)
}

/// The document of a run, and the triggers that it stored.
fn run(bench: &Workbench, config: &str, name: &str, options: &[&str]) -> (Value, Vec<u64>) {
    let file = format!("{name}.toml");
    bench.write(&file, config);
    let arguments = [&["run", &file, "--out", name, "--json"][..], options].concat();
    let document = bench.run(&arguments).ended_with(0).document();
    assert_conserved(&document);
    let stored = triggers(&bench.inspect(&format!("{name}/events.mcap")));
    (document, stored)
}

/// The sum of a counter over the readout units, at which links over sockets end.
fn detail(run: &Value, name: &str) -> u64 {
    let of = |unit: &str| count(run, &format!("roles.{unit}.{name}"));
    of("ru0") + of("ru1")
}

#[test]
fn a_run_over_sockets_is_the_run_over_emulated_links() {
    let bench = Workbench::new();
    let (reference, stored) = run(&bench, SMALL, "emulated", &TRIGGERS);
    assert_eq!(stored.len(), 300);
    assert!(reference["roles"]["ru0"].get("link_frames").is_none());
    // Some fragments take many datagrams, and pages run out now and then.
    for (name, lines) in [("udp", "kind = \"udp\""), ("tcp", "kind = \"tcp\"")] {
        let (document, same) = run(&bench, &of_kind(lines), name, &TRIGGERS);
        assert_eq!(lost(&document, "link"), 0, "{name}: {document}");
        assert_eq!(
            value(&document, "decision_digest"),
            value(&reference, "decision_digest"),
            "{name}"
        );
        assert_eq!(same, stored, "{name}");
        assert_eq!(
            count(&document, "counts.fragments_received"),
            4 * 3000,
            "{name}"
        );
        assert!(detail(&document, "link_frames") >= 4 * 3000, "{name}");
        assert_eq!(detail(&document, "link_frames_missing"), 0, "{name}");
    }
}

#[test]
fn sockets_serve_processes_as_well() {
    let bench = Workbench::new();
    let processes = [&TRIGGERS[..], &["--processes"]].concat();
    let (reference, events) = run(&bench, SMALL, "emulated", &TRIGGERS);
    for kind in ["udp", "tcp"] {
        let config = of_kind(&format!("kind = \"{kind}\""));
        let (document, stored) = run(&bench, &config, kind, &processes);
        assert_eq!(stored, events, "{kind}");
        assert_eq!(lost(&document, "link"), 0, "{document}");
        assert_eq!(
            value(&document, "decision_digest"),
            value(&reference, "decision_digest")
        );
        assert!(detail(&document, "link_frames") >= 4 * 3000, "{kind}");
    }
}

#[test]
fn what_does_not_fit_into_the_socket_is_lost_by_name() {
    let bench = Workbench::new();
    let config = quick_timeout(&of_kind(
        "kind = \"udp\"\ndatagram = \"64 B\"\nsocket_buffer = \"4 KiB\"",
    ));
    let (document, _) = run(&bench, &config, "udp", &TRIGGERS);
    let of_datagrams = count(&document, "losses.link.datagram_lost");
    // How many depends on who is faster, and some never fit.
    assert!(of_datagrams > 0, "{document}");
    assert_eq!(lost(&document, "link"), of_datagrams);
    // Short fragments fit.
    let received = count(&document, "counts.fragments_received");
    assert_eq!(received + of_datagrams, 4 * 3000);
    assert!(received > 100, "{document}");
    let drops = detail(&document, "link_kernel_drops");
    let missing = detail(&document, "link_frames_missing");
    // The kernel counts tallies that it drops as well.
    let sent = count(&document, "roles.src0.link_tallies_sent");
    let tallies = sent - detail(&document, "link_tallies_received");
    assert!(
        drops > 0 && missing + tallies >= drops,
        "{drops} {missing} {tallies}"
    );
    assert!(count(&document, "counts.events_incomplete") > 0);
    assert_eq!(lost(&document, "builder") + lost(&document, "store"), 0);
}

#[test]
fn a_link_that_is_down_is_named_by_what_it_is() {
    let bench = Workbench::new();
    for (kind, cause) in [("udp", "datagram_lost"), ("tcp", "link_down")] {
        let config = quick_timeout(&of_kind(&format!("kind = \"{kind}\"")));
        let options = ["--triggers", "200", "--lossless"];
        let fault = ["--fault", "link-down:3@0s+1h"];
        let (document, _) = run(&bench, &config, kind, &[&options[..], &fault].concat());
        assert_eq!(lost(&document, "link"), 200, "{document}");
        let named = count(&document, &format!("losses.link.{cause}"));
        assert_eq!(named, 200, "{document}");
        let missing = &bench.inspect(&format!("{kind}/events.mcap"))["sources_missing"];
        let expected = serde_json::json!([{ "source": "0x520001", "events": 20 }]);
        assert_eq!(*missing, expected);
    }
}

#[test]
fn a_run_plays_recorded_fragments_to_the_end_of_the_files() {
    let bench = Workbench::new();
    let (reference, stored) = run(
        &bench,
        SMALL,
        "emulated",
        &["--triggers", "700", "--lossless"],
    );
    let config = of_kind("kind = \"file\"\nframes = \"recorded\"");
    bench.write("file.toml", &config);
    // Before there are files, their absence is the problem.
    for verb in ["run", "check"] {
        let refused = bench.run(&[verb, "file.toml"]).ended_with(1);
        assert!(refused.err.contains("510000.frames"), "{}", refused.err);
        assert!(refused.err.contains("--frames"), "{}", refused.err);
    }
    let frames = ["--triggers", "700", "--frames", "recorded"];
    let written = bench.run(&[&["source", "file.toml"][..], &frames].concat());
    let written = written.ended_with(0).document();
    assert_eq!(count(&written, "fragments"), 4 * 700);
    // The run asks for more than there is, and is refused some by its own rate.
    let (document, same) = run(&bench, &config, "file", &["--triggers", "5000"]);
    assert_eq!(count(&document, "counts.triggers"), 700);
    assert_eq!(lost(&document, "link"), 0, "{document}");
    assert_eq!(same, stored);
    assert_eq!(
        value(&document, "decision_digest"),
        value(&reference, "decision_digest")
    );
    let inspected = bench.inspect("file/events.mcap");
    assert_eq!(inspected["complete"], true);

    // A bit that is wrong in the data of one fragment costs no event, and is told.
    let path = bench.path("recorded/510000.frames");
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[84] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    let (document, same) = run(&bench, &config, "flipped", &["--triggers", "5000"]);
    assert_eq!(same, stored);
    assert_eq!(value(&document, "run.condition"), "DEGRADED");
    for name in [
        "fragments_flagged",
        "fragments_flagged_of_0x510000",
        "fragment_faults_bad_crc",
    ] {
        assert_eq!(count(&document, &format!("roles.ru0.{name}")), 1, "{name}");
    }
    let told = bench
        .run(&["run", "file.toml", "--out", "told"])
        .ended_with(0);
    let expected = "fragments with faults: 1 (bad_crc 1), by source: 0x510000 1";
    assert!(told.out.contains(expected), "{}", told.out);
    let inspected = bench.run(&["inspect", "told"]).ended_with(0).out;
    let expected = "0 incomplete events, 1 with a fragment that has a fault";
    assert!(inspected.contains(expected), "{inspected}");
    std::fs::write(&path, whole).unwrap();

    let down = ["run", "file.toml", "--fault", "link-down:0@0s+1s"];
    let refused = bench.run(&down).ended_with(1);
    assert!(refused.err.contains("is a file"), "{}", refused.err);
    // Cut in the middle of a frame: it ends the run, and its last fragment is lost.
    let path = bench.path("recorded/510001.frames");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let checked = bench.run(&["check", "file.toml"]).ended_with(0);
    let started = bench
        .run(&["run", "file.toml", "--out", "broken"])
        .ended_with(0);
    for said in [checked.out, started.err] {
        assert!(said.contains("510001.frames breaks off at byte "), "{said}");
    }
    let (document, _) = run(
        &bench,
        &quick_timeout(&config),
        "cut",
        &["--triggers", "5000"],
    );
    assert_eq!(lost(&document, "link"), 1, "{document}");
    assert_eq!(count(&document, "losses.link.link_down"), 1);
}

/// The blocks of a file whose frames are blocks.
fn blocks_of(file: &[u8]) -> Vec<Vec<u32>> {
    let (words, _) = file.as_chunks();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let mut rest = &words[..];
    let mut blocks = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<HEADER_WORDS>() {
        let header = FrameHeader::parse(head).expect("a recorded frame");
        assert!(header.begins_block && header.ends_block);
        let (block, behind) = behind.split_at(header.data_words);
        blocks.push(block.to_vec());
        rest = behind;
    }
    blocks
}

/// A file of these blocks in frames of at most so many words, with a tally behind some of them that is
/// so many frames and blocks ahead.
fn file_of(blocks: &[Vec<u32>], most: usize, tallies: &[(usize, u32)]) -> Vec<u8> {
    let mut numbers = FrameNumbers::default();
    let mut words = Vec::new();
    for (number, block) in (1..).zip(blocks) {
        for (header, range) in numbers.frames(block.len(), most) {
            words.extend(header.emit());
            words.extend(&block[range]);
        }
        for (_, ahead) in tallies.iter().filter(|(behind, _)| *behind == number) {
            let LinkTally { frames, blocks_low } = numbers.tally();
            let tally = LinkTally {
                frames: frames + u64::from(*ahead),
                blocks_low: blocks_low + ahead,
            };
            words.extend(tally.emit());
        }
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Whatever the frames of a file are like, `check` says what the run will do.
#[test]
fn a_file_in_other_frames_and_with_tallies_is_judged_as_it_is_played() {
    let bench = Workbench::new();
    let config = quick_timeout(&of_kind("kind = \"file\"\nframes = \"recorded\""));
    bench.write("file.toml", &config);
    let frames = ["--triggers", "300", "--frames", "recorded"];
    let written = bench.run(&[&["source", "file.toml"][..], &frames].concat());
    written.ended_with(0);
    let path = bench.path("recorded/510000.frames");
    let blocks = blocks_of(&std::fs::read(&path).unwrap());
    let played = |name: &str, file: Vec<u8>| {
        std::fs::write(&path, file).unwrap();
        let checked = bench.run(&["check", "file.toml"]).ended_with(0);
        let (document, stored) = run(&bench, &config, name, &["--triggers", "5000"]);
        assert_eq!(lost(&document, "builder") + lost(&document, "store"), 0);
        (checked.out, document, stored)
    };
    let (_, _, reference) = played("whole", file_of(&blocks, 10_000, &[]));
    for (name, most, tallies) in [
        ("short", 5, &[][..]),
        ("tallies", 10_000, &[(50, 0), (300, 0)]),
        ("both", 7, &[(1, 0), (299, 0), (300, 0)]),
    ] {
        let (checked, document, stored) = played(name, file_of(&blocks, most, tallies));
        assert!(!checked.contains("breaks off"), "{checked}");
        assert_eq!(count(&document, "counts.triggers"), 300, "{name}");
        assert_eq!(lost(&document, "link"), 0, "{name}: {document}");
        assert_eq!(stored, reference, "{name}");
        let tallies_received = count(&document, "roles.src0.link_tallies_received");
        assert_eq!(tallies_received, tallies.len() as u64, "{name}");
    }
    // A tally that is ahead of what came ends the link.
    let words_before: usize = blocks[..50].iter().map(|block| 6 + block.len()).sum();
    let (checked, document, _) = played("ahead", file_of(&blocks, 10_000, &[(50, 3)]));
    let place = format!("breaks off at byte {} of ", 4 * words_before);
    assert!(checked.contains(&place), "{checked}");
    assert_eq!(count(&document, "counts.triggers"), 51, "{document}");
    assert_eq!(count(&document, "losses.link.link_down"), 1, "{document}");
    // A block of too few words is named by its number.
    let mut strange = blocks.clone();
    strange[10].truncate(8);
    std::fs::write(&path, file_of(&strange, 5, &[])).unwrap();
    for verb in ["check", "run"] {
        let refused = bench.run(&[verb, "file.toml"]).ended_with(1);
        let named = "its block 10, counted from 0, is no fragment of source 0x510000";
        assert!(refused.err.contains(named), "{}", refused.err);
    }
}

/// What has a header can be filed under it, however little of its trailer there is.
#[test]
fn fragments_of_nine_words_and_more_are_filed_as_evidence() {
    let bench = Workbench::new();
    let config = of_kind("kind = \"file\"\nframes = \"recorded\"");
    bench.write("file.toml", &config);
    let frames = ["--triggers", "100", "--frames", "recorded"];
    let written = bench.run(&[&["source", "file.toml"][..], &frames].concat());
    written.ended_with(0);
    let path = bench.path("recorded/510000.frames");
    let mut blocks = blocks_of(&std::fs::read(&path).unwrap());
    for (words, block) in (9..14).zip(&mut blocks[10..]) {
        block.truncate(words);
    }
    std::fs::write(&path, file_of(&blocks, 10_000, &[])).unwrap();
    let (document, _) = run(&bench, &config, "file", &["--triggers", "100"]);
    assert_eq!(lost(&document, "link") + lost(&document, "readout"), 0);
    for name in ["fragments_flagged", "fragment_faults_bad_length"] {
        assert_eq!(count(&document, &format!("roles.ru0.{name}")), 5, "{name}");
    }
}

#[test]
fn a_source_is_played_over_each_link_and_compared() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    for link in ["slink", "cards", "udp", "tcp", "file"] {
        let options = ["--triggers", "60", "--link", link];
        let played = bench.run(&[&["source", "small.toml"][..], &options].concat());
        let document = played.ended_with(0).document();
        assert_eq!(document["link"], link);
        for key in ["fragments_sent", "fragments_received"] {
            assert_eq!(count(&document, key), 4 * 60, "{link} {key}");
        }
        assert_eq!(
            count(&document, "words_sent"),
            count(&document, "words_received")
        );
        for key in ["fragments_bad", "fragments_missing", "blocks_lost"] {
            assert_eq!(count(&document, key), 0, "{link} {key}");
        }
    }
}
