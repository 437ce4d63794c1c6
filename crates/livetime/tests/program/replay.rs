//! A run through its filter once more: the answers are the recorded ones, or are listed.

use std::fs;

use serde_json::Value;

use crate::workbench::{SMALL, Workbench, changed, count, example, recorded, value};

/// Takes a run of the example with recorded or drawn muon pairs, and returns its bench.
fn taken(source: &str) -> Workbench {
    let bench = Workbench::new();
    bench.write(
        "example.toml",
        changed(&example(), "kind = \"physics\" #", &format!("{source} #")),
    );
    let options = ["--triggers", "20000", "--lossless", "--out", "out"];
    bench
        .run(&[&["run", "example.toml"][..], &options].concat())
        .ended_with(0);
    bench
}

#[test]
fn a_filter_gives_the_recorded_answers_again() {
    let bench = taken("kind = \"physics\"");
    let replayed = bench.run(&["replay", "out", "--json"]).ended_with(0);
    let replayed = replayed.document();
    assert_eq!(value(&replayed, "schema"), "livetime.replay/1");
    let stored = count(&bench.inspect("out/events.mcap"), "events");
    assert!(stored > 0);
    assert_eq!(count(&replayed, "events"), stored);
    assert_eq!(count(&replayed, "accepted"), stored);
    assert_eq!(count(&replayed, "differing"), 0);
    assert_eq!(count(&replayed, "passed_over"), 0);
    assert_eq!(count(&replayed, "filter_ns.count"), stored);
}

#[test]
fn recorded_muon_pairs_are_filtered_alike() {
    let Some(events) = recorded("Zmumu_Run2011A.csv") else {
        return;
    };
    let events = fs::canonicalize(events).expect("the file is there");
    let bench = taken(&format!(
        "kind = \"recorded\"\nevents = \"{}\"",
        events.display()
    ));
    let replayed = bench.run(&["replay", "out/events.mcap", "--json"]);
    let replayed = replayed.ended_with(0).document();
    assert!(count(&replayed, "events") > 5000, "{replayed}");
    assert_eq!(count(&replayed, "differing"), 0);
}

#[test]
fn another_filter_differs_and_its_differences_are_listed() {
    let bench = taken("kind = \"physics\"");
    let narrow = changed(&example(), "mass_min = \"60 GeV\"", "mass_min = \"90 GeV\"");
    bench.write("narrow.toml", narrow);
    let options = ["replay", "out", "--filter-of", "narrow.toml"];
    let replayed = bench.run(&[&options[..], &["--json"]].concat());
    let replayed = replayed.ended_with(0).document();
    let differing = count(&replayed, "differing");
    assert!(differing > 0 && differing < count(&replayed, "events"));
    assert_eq!(value(&replayed, "own_filter"), false);
    let first = &replayed["differences"][0];
    assert_eq!(first["recorded"]["streams"], 1, "it was in the window");
    assert_eq!(first["now"]["reason"], 1, "now it is below");
    let said = bench.run(&options).ended_with(0).out;
    assert!(
        said.contains("recorded in_window in streams 0x0001"),
        "{said}"
    );
}

/// With no configuration to know the filter from, or no file, nothing is guessed.
#[test]
fn what_is_no_run_is_refused() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let missing = bench.run(&["replay", "nowhere"]).ended_with(1);
    assert!(missing.err.contains("error: nowhere: "), "{}", missing.err);
    let other = bench.run(&["replay", "small.toml"]).ended_with(1);
    assert!(other.err.contains("error: small.toml: "), "{}", other.err);
}

/// Takes a run of the example that records its trigger packets.
fn taken_with_packets(more: &[&str]) -> Workbench {
    taken_with_packets_by(1, more)
}

fn taken_with_packets_by(nodes: u16, more: &[&str]) -> Workbench {
    let bench = Workbench::new();
    let keys = "chunk = \"1 MiB\"\ntrigger_packets = true";
    let config = changed(&example(), "chunk = \"1 MiB\"", keys);
    let of_nodes = format!("[trigger]\nnodes = {nodes}\n");
    bench.write("example.toml", changed(&config, "[trigger]\n", &of_nodes));
    let options = [
        "--triggers",
        "20000",
        "--lossless",
        "--out",
        "out",
        "--json",
    ];
    let run = bench.run(&[&["run", "example.toml"][..], &options, more].concat());
    let run = run.ended_with(0).document();
    let of_nodes = |key: &str| -> u64 {
        let counts = (0..nodes).map(|node| run["roles"][format!("trg{node}")][key].as_u64());
        counts.map(|count| count.expect("it is counted")).sum()
    };
    let triggers = count(&run, "counts.triggers");
    assert_eq!(of_nodes("packets_recorded"), triggers, "{run}");
    assert_eq!(of_nodes("packets_unrecorded"), 0);
    bench
}

#[test]
fn a_run_without_an_event_is_replayed_without_one() {
    let bench = Workbench::new();
    bench.write("example.toml", example());
    let options = ["--triggers", "1", "--lossless", "--out", "out"];
    bench
        .run(&[&["run", "example.toml"][..], &options].concat())
        .ended_with(0);
    assert_eq!(count(&bench.inspect("out"), "events"), 0);
    for stage in ["filter", "links", "builder"] {
        let replayed = bench.run(&["replay", "out", "--into", stage, "--json"]);
        assert_eq!(count(&replayed.ended_with(0).document(), "events"), 0);
    }
}

#[test]
fn packets_that_the_run_recorded_and_that_are_gone_are_counted() {
    let bench = taken_with_packets_by(2, &[]);
    let replayed = || bench.run(&["replay", "out", "--into", "trigger", "--json"]);
    let whole = replayed().ended_with(0).document();
    assert_eq!(count(&whole, "missing") + count(&whole, "unrecorded"), 0);
    // Cut off between chunks the file does not say itself what it lacks.
    let first = bench.path("out/packets.mcap");
    let bytes = fs::read(&first).expect("it is there");
    fs::write(&first, &bytes[..bytes.len() / 2]).expect("it is ours");
    let cut = replayed().ended_with(1).document();
    assert!(count(&cut, "missing") > 0, "{cut}");
    assert_eq!(count(&cut, "missing") + count(&cut, "events"), 20000);
    fs::write(&first, &bytes).expect("it is ours");
    fs::remove_file(bench.path("out/packets-1.mcap")).expect("it is there");
    let gone = replayed().ended_with(1).document();
    assert_eq!(count(&gone, "missing"), 10000, "{gone}");
    let stream = ["replay", "out", "--into", "trigger", "--stream", "error"];
    let refused = bench.run(&stream).ended_with(1);
    assert!(
        refused.err.contains("into the filter alone"),
        "{}",
        refused.err
    );
    let text = bench.run(&["replay", "out", "--into", "trigger"]);
    let text = text.ended_with(1).out;
    let said = "out/packets-1.mcap is not there, with 10000 packets that the run recorded";
    assert!(text.contains(said), "{text}");
}

/// A configuration that records the packets of so many trigger nodes.
fn recording(nodes: u16) -> String {
    let config = changed(SMALL, "[store]\n", "[store]\ntrigger_packets = true\n");
    let of_nodes = format!("[trigger]\nnodes = {nodes}\n");
    changed(&config, "[trigger]\n", &of_nodes)
}

/// A node that dies has not counted its packets, and takes the last of them along: how many there must be
/// follows from the decisions.
#[test]
fn packets_that_a_node_took_with_it_are_counted() {
    for (nodes, node) in [(3_u64, 1), (1, 0)] {
        let bench = Workbench::new();
        bench.write("run.toml", recording(nodes as u16));
        let fault = format!("kill:trg{node}@1000triggers");
        let options = ["--triggers", "40000", "--lossless", "--processes"];
        let place = ["--fault", &fault, "--out", "out"];
        let run = bench.run(&[&["run", "run.toml"][..], &options, &place].concat());
        let run = run.ended_with(1);
        let said = format!("trg{node}~1 died with the count of trigger packets that it recorded");
        assert!(run.out.contains(&said), "{}", run.out);
        let summary: Value =
            serde_json::from_str(&bench.read("out/summary.json")).expect("a document");
        let decisions =
            count(&summary, "counts.l2_accepted") + count(&summary, "counts.l2_rejected");
        let others = (0..nodes).filter(|other| *other != node);
        let others =
            others.map(|other| count(&summary, &format!("roles.trg{other}.packets_recorded")));
        let uncounted = decisions.saturating_sub(others.sum());
        assert_eq!(count(&summary, "packets_uncounted"), uncounted, "{summary}");
        assert!(decisions > 0, "{summary}");

        let replay = || bench.run(&["replay", "out", "--into", "trigger", "--json"]);
        let name = match node {
            0 => "packets.mcap".to_owned(),
            _ => format!("packets-{node}.mcap"),
        };
        let replayed = replay().ended_with(1);
        let warned = format!("warning: out/{name}: ");
        assert!(replayed.err.contains(&warned), "{}", replayed.err);
        let replayed = replayed.document();
        assert_eq!(
            replayed["files_open"],
            serde_json::json!([name]),
            "{replayed}"
        );
        assert_eq!(count(&replayed, "differing"), 0, "{replayed}");
        let accounted = count(&replayed, "events") + count(&replayed, "missing");
        assert!(accounted >= decisions, "{decisions}: {replayed}");
        fs::remove_file(bench.path("out").join(&name)).expect("it is there");
        let gone = replay().ended_with(1).document();
        assert_eq!(gone["files_missing"], serde_json::json!([name]), "{gone}");
        assert_eq!(count(&gone, "missing"), uncounted, "{gone}");
        let text = bench.run(&["replay", "out", "--into", "trigger"]);
        let said =
            format!("out/{name} is not there, with {uncounted} packets that the run decided on");
        assert!(text.out.contains(&said), "{}", text.out);
    }
}

#[test]
fn packets_of_a_run_that_was_killed_are_doubted() {
    let bench = Workbench::new();
    bench.write("run.toml", recording(2));
    let mut running = bench.start(&["run", "run.toml", "--lossless", "--out", "out"]);
    let names = ["packets.mcap", "packets-1.mcap"];
    for name in names {
        running.wait_for_bytes(&bench.path("out").join(name), 20_000);
        // So many bytes may be a part of the first chunk, which is being written.
        while count(&bench.inspect(&format!("out/{name}")), "events") == 0 {}
    }
    running.kill();
    let replay = || bench.run(&["replay", "out", "--into", "trigger", "--json"]);
    let replayed = replay().ended_with(1);
    for name in names {
        let warned = format!("warning: out/{name}: ");
        assert!(replayed.err.contains(&warned), "{}", replayed.err);
    }
    let replayed = replayed.document();
    assert_eq!(
        replayed["files_open"],
        serde_json::json!(names),
        "{replayed}"
    );
    assert!(count(&replayed, "events") > 0, "{replayed}");
    // Its configuration tells that there were two.
    fs::remove_file(bench.path("out/packets.mcap")).expect("it is there");
    let gone = replay().ended_with(1).document();
    assert_eq!(
        gone["files_missing"],
        serde_json::json!(["packets.mcap"]),
        "{gone}"
    );
    assert!(count(&gone, "events") > 0, "{gone}");
}

#[test]
fn packets_are_decided_on_by_the_nodes_that_recorded_them() {
    let bench = taken_with_packets_by(2, &[]);
    bench.write("one.toml", example());
    let replay = |config| {
        let options = ["replay", "out", "--into", "trigger", "--filter-of", config];
        bench
            .run(&[&options[..], &["--json"]].concat())
            .ended_with(0)
    };
    let of_one = replay("one.toml");
    let said = "note: one.toml has `nodes = 1` under [trigger], which is not used";
    assert!(of_one.err.contains(said), "{}", of_one.err);
    assert_eq!(count(&of_one.document(), "differing"), 0);
    let of_two = replay("example.toml");
    assert!(!of_two.err.contains("nodes"), "{}", of_two.err);
}

/// No answer to an event of the error stream was recorded that another could differ from.
#[test]
fn events_of_the_error_stream_are_compared_with_nothing() {
    let bench = Workbench::new();
    let menu = "name = \"menu\"\nevent_limit = \"1 ns\"\nstreams = [\"sample\"]\n\n\
                [[filter.path]]\nname = \"SAMPLE\"\ncut = \"all\"\nprescale = 5\n\
                streams = [\"sample\"]\n";
    bench.write("run.toml", changed(SMALL, "name = \"accept_all\"\n", menu));
    let options = ["--triggers", "1000", "--lossless", "--out", "out"];
    bench
        .run(&[&["run", "run.toml"][..], &options].concat())
        .ended_with(0);
    let unlimited = changed(menu, "event_limit = \"1 ns\"\n", "");
    bench.write(
        "free.toml",
        changed(SMALL, "name = \"accept_all\"\n", &unlimited),
    );
    // Over its time again, there is no verdict; without a limit there is one.
    for (more, over_time) in [(&[][..], 100), (&["--filter-of", "free.toml"], 0)] {
        let code = i32::from(over_time > 0);
        let options = ["replay", "out", "--stream", "error"];
        let options = [&options[..], more].concat();
        let replayed = bench.run(&[&options[..], &["--json"]].concat());
        let replayed = replayed.ended_with(code).document();
        assert_eq!(count(&replayed, "events"), 100, "{replayed}");
        assert_eq!(replayed["differing"], Value::Null, "{replayed}");
        assert_eq!(count(&replayed, "over_time"), over_time, "{replayed}");
        let is_any_accepted = count(&replayed, "accepted") > 0;
        assert_eq!(is_any_accepted, over_time == 0, "{replayed}");
        let replayed = bench.run(&options).ended_with(code);
        let said = replayed.out;
        assert!(said.contains("no answer to them was recorded"), "{said}");
        assert!(!said.contains("another answer"), "{said}");
        assert_eq!(said.contains("have no verdict"), over_time > 0, "{said}");
        let named = replayed
            .err
            .matches("longer than its `event_limit` on trigger ");
        assert_eq!(named.count() as u64, over_time, "{}", replayed.err);
    }
}

#[test]
fn decisions_are_taken_again_as_they_were_recorded() {
    for more in [&[][..], &["--processes"]] {
        let bench = taken_with_packets(more);
        let replayed = bench.run(&["replay", "out", "--into", "trigger", "--json"]);
        let replayed = replayed.ended_with(0).document();
        assert_eq!(value(&replayed, "stage"), "trigger");
        assert_eq!(count(&replayed, "events"), 20000);
        assert!(count(&replayed, "accepted") > 0);
        assert_eq!(count(&replayed, "differing"), 0, "{replayed}");
    }
    let bench = taken_with_packets(&[]);
    // Another menu decides otherwise, and the differences are listed.
    let other = changed(&example(), "prescale = 1000", "prescale = 999");
    bench.write("other.toml", other);
    let options = [
        "replay",
        "out",
        "--into",
        "trigger",
        "--filter-of",
        "other.toml",
        "--json",
    ];
    let replayed = bench.run(&options).ended_with(0).document();
    assert!(count(&replayed, "differing") > 0, "{replayed}");
    assert_eq!(replayed["own_menu"], false);
    assert!(replayed["differences"][0]["recorded"]["mask"].is_string());
}

#[test]
fn events_go_through_links_and_builder_again_and_come_out_as_they_were() {
    let bench = taken("kind = \"physics\"");
    let stored = count(&bench.inspect("out"), "events");
    for stage in ["links", "builder"] {
        let replayed = bench.run(&["replay", "out", "--into", stage, "--json"]);
        let replayed = replayed.ended_with(0).document();
        assert_eq!(value(&replayed, "stage"), stage);
        assert_eq!(count(&replayed, "events"), stored);
        assert_eq!(count(&replayed, "differing"), 0, "{replayed}");
        assert_eq!(count(&replayed, "passed_over"), 0);
        assert!(count(&replayed, "fragments") >= stored);
    }
    let paced = bench.run(&["replay", "out", "--pace", "1000 kHz", "--json"]);
    assert_eq!(count(&paced.ended_with(0).document(), "events"), stored);
    let wrong = bench
        .run(&["replay", "out", "--pace", "fast"])
        .ended_with(2);
    assert!(
        wrong.err.contains("expected max, own, or a rate"),
        "{}",
        wrong.err
    );
    // A run that recorded no packets says how to record them.
    let none = bench
        .run(&["replay", "out", "--into", "trigger"])
        .ended_with(1);
    assert!(none.err.contains("trigger_packets = true"), "{}", none.err);
}

/// A place that readers check. Where chunks end, and the indexes between them, which they pass over, is
/// a matter of time.
fn middle_of_longest_chunk(bytes: &[u8]) -> usize {
    const MAGIC_BYTES: usize = 8;
    const CHUNK: u8 = 6;
    let (mut at, mut longest) = (MAGIC_BYTES, 0..0);
    while let Some([code, length @ ..]) = bytes.get(at..at + 9) {
        let length = length.try_into().expect("eight bytes");
        let length = u64::from_le_bytes(length) as usize;
        let content = at + 9..at + 9 + length;
        at = content.end;
        if *code == CHUNK && content.len() > longest.len() {
            longest = content;
        }
    }
    assert!(longest.len() > 1000, "{longest:?}");
    longest.start + longest.len() / 2
}

/// As after a path with a large prescale, or where triggers yielded for long.
#[test]
fn events_far_apart_go_through_links_and_builder_again() {
    let bench = Workbench::new();
    let rare = changed(&example(), "prescale = 1000", "prescale = 5000");
    let start = rare
        .find("[[trigger.path]]")
        .expect("the menu of the example");
    let end = rare.find("[builder]").expect("behind it");
    let mut rare = rare;
    let menu = "[[trigger.path]]\nname = \"RARE\"\nbit = 0\nl1 = [0]\ncut = \"min_bias\"\nprescale = 5000\n\n";
    rare.replace_range(start..end, menu);
    let start = rare.find("[filter]").expect("the filter of the example");
    let end = rare.find("[store]").expect("behind it");
    rare.replace_range(start..end, "[filter]\nname = \"accept_all\"\n\n");
    bench.write("rare.toml", rare);
    let options = ["--triggers", "20000", "--lossless", "--out", "out"];
    bench
        .run(&[&["run", "rare.toml"][..], &options].concat())
        .ended_with(0);
    for stage in ["links", "builder"] {
        let replayed = bench.run(&["replay", "out", "--into", stage, "--json"]);
        let replayed = replayed.ended_with(0).document();
        assert_eq!(count(&replayed, "events"), 4, "{replayed}");
        assert_eq!(count(&replayed, "differing"), 0, "{replayed}");
    }
}

#[test]
fn packets_are_no_events() {
    let bench = taken_with_packets(&[]);
    for stage in ["filter", "links", "builder"] {
        let refused = bench.run(&["replay", "out/packets.mcap", "--into", stage]);
        let said = refused.ended_with(1).err;
        assert!(said.contains("the trigger packets of a run"), "{said}");
        assert!(said.contains("`--into trigger`"), "{said}");
    }
    bench
        .run(&["replay", "out/packets.mcap", "--into", "trigger"])
        .ended_with(0);
}

#[test]
fn a_corrupt_file_is_named_and_the_rest_is_replayed() {
    let bench = taken_with_packets(&[]);
    for file in ["events.mcap", "packets.mcap"] {
        let path = bench.path("out").join(file);
        let mut bytes = fs::read(&path).expect("it is there");
        let middle = middle_of_longest_chunk(&bytes);
        bytes[middle..middle + 100].fill(0xA5);
        fs::write(&path, bytes).expect("it is ours");
    }
    for stage in ["filter", "links", "trigger"] {
        let replayed = bench.run(&["replay", "out", "--into", stage, "--json"]);
        let file = if stage == "trigger" {
            "packets.mcap"
        } else {
            "events.mcap"
        };
        let said = format!("warning: passed over out/{file}: ");
        assert!(replayed.err.contains(&said), "{stage}: {}", replayed.err);
        let document = replayed.document();
        assert!(count(&document, "events") > 0);
        // The chunk, and the events in it that were hit and can be told.
        let ranges = count(&document, "damaged_ranges");
        assert!((1..=4).contains(&ranges), "{document}");
    }
}
