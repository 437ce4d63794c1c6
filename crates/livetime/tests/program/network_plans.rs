//! `sim plan` from outside: what holds, what loads it, and what is asked for.

use serde_json::Value;

use crate::workbench::{Workbench, value};

/// Runs `sim plan` with these options on one switch and returns its document and its options.
fn plan(options: &[&str], status: i32) -> (Value, Vec<Value>) {
    let bench = Workbench::new();
    let mut line = vec!["sim", "plan", "--network", "crossbar", "--json"];
    line.extend(options);
    let document = bench.run(&line).ended_with(status).document();
    assert_eq!(document["schema"], "livetime.plan/2");
    let options = document["options"].as_array().expect("options").clone();
    (document, options)
}

#[test]
fn a_plan_knows_that_hosts_take_time() {
    // The links are loaded to 4 %; 16 filters of 100 us have time for 160 kHz of the 2 MHz.
    let fast_links = [
        "--sources",
        "16",
        "--fragment",
        "256 B",
        "--rate",
        "2MHz",
        "--link",
        "100 Gb/s",
        "--events",
        "500",
    ];
    let (document, options) = plan(&fast_links, 1);
    assert!(
        value(&document, "load_source_link")
            .as_f64()
            .expect("a share")
            < 0.05
    );
    assert_eq!(value(&document, "assumptions.host_event_ns"), 100_000.0);
    assert!(options.len() >= 6, "{document:#}");
    for option in &options {
        assert_eq!(option["verdict"], "fails", "{option:#}");
        if let Some(capacity) = option["capacity_hz"].as_f64() {
            assert!(capacity < 170e3, "{option:#}");
            let is_of_slowest = option["capacity_reason"].is_string();
            assert!(option["converged"] == true || is_of_slowest, "{option:#}");
        }
    }
}

#[test]
fn a_plan_counts_each_packet_of_a_fragment() {
    let ethernet = [
        "--sources",
        "4",
        "--fragment",
        "6000B",
        "--rate",
        "1kHz",
        "--link",
        "1Gb/s",
        "--overhead",
        "100B",
        "--mtu",
        "1500B",
        "--block",
        "1KiB",
        "--events",
        "300",
    ];
    let (document, options) = plan(&ethernet, 0);
    assert_eq!(value(&document, "assumptions.mtu_bytes"), 1500);
    let load = value(&document, "load_source_link").as_f64();
    assert!((load.expect("a share") - 1e3 * 6400.0 * 8.0 / 1e9).abs() < 1e-9);
    assert!(!options.is_empty());
    let start = [
        "sim",
        "plan",
        "--network",
        "crossbar",
        "--host-packet",
        "5us",
    ];
    let page = [&start[..], &ethernet[..]].concat();
    let text = Workbench::new().run(&page).ended_with(0).out;
    assert!(text.contains("packets of up to 1500 B,"), "{text}");
    // Four packets of 5 us each, beside the 5.1 % of the links.
    let both = "links of the sources with their adapters 7.1 %";
    assert!(text.contains(both), "{text}");
}

/// The line of `sim plan` with these options that begins so, without it.
fn plan_line(options: &str, start: &str) -> String {
    let line = format!("sim plan --sources 4 --network crossbar --events 100 {options}");
    let words: Vec<&str> = line.split(' ').collect();
    // Whether anything holds is not asked here.
    let out = Workbench::new().run(&words).out;
    let mut lines = out
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix(start));
    lines.next().unwrap_or_default().to_owned()
}

#[test]
fn loads_of_a_plan_are_those_of_whole_packets_and_of_full_blocks() {
    // 1600 B are a packet of 1500 B and one of 100 B, each with 78 B more.
    let cut = "--fragment 1600B --mtu 1500B --overhead 78B --rate 72kHz --link 1Gb/s";
    let packets = plan_line(&format!("{cut} --protocol pull"), "load at this rate:");
    assert!(
        packets.contains("links of the sources 101.1 %"),
        "{packets}"
    );
    // Two fragments share a block.
    let large = "--fragment 2KiB --overhead 512B --rate 50kHz --link 1Gb/s --protocol";
    let blocks = plan_line(&format!("{large} barrel-shifter"), "load at this rate:");
    assert!(blocks.contains("links of the sources 92.2 %"), "{blocks}");
    let both = format!("{large} barrel-shifter --protocol pull");
    let packets = plan_line(&both, "load at this rate:");
    assert!(
        packets.contains("links of the sources 102.4 %"),
        "{packets}"
    );
    assert_eq!(
        plan_line(&both, "load in blocks of the barrel shifter:"),
        blocks
    );
}

/// A block is as large as a packet where nobody asks for another and 4 KiB are too much.
#[test]
fn a_plan_has_blocks_that_fit_into_packets() {
    let bench = Workbench::new();
    let ethernet = |more: &[&str], status| {
        let common = [
            "sim",
            "plan",
            "--sources",
            "4",
            "--fragment",
            "1000 B",
            "--rate",
            "1kHz",
            "--link",
            "10 Gb/s",
            "--network",
            "crossbar",
            "--events",
            "300",
            "--mtu",
        ];
        bench.run(&[&common, more].concat()).ended_with(status)
    };
    for (mtu, blocks) in [
        ("1500 B", "blocks of 1500 B"),
        ("9000 B", "blocks of 4 KiB"),
    ] {
        let text = ethernet(&[mtu, "--protocol", "barrel-shifter"], 0).out;
        assert!(text.contains(blocks), "{text}");
    }
    ethernet(&["1500 B", "--protocol", "pull", "--block", "4 KiB"], 0);
    let refused = ethernet(&["1500 B", "--block", "4 KiB"], 2).err;
    for part in [
        "4096 bytes (`--block`)",
        "up to 1500 (`--mtu`)",
        "up to 1500 bytes",
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
}

#[test]
fn a_plan_says_what_holds_and_what_is_not_shown() {
    let modest = [
        "--sources",
        "8",
        "--fragment",
        "2KiB",
        "--law",
        "exponential",
        "--rate",
        "20kHz",
        "--link",
        "1Gb/s",
    ];
    let (_, options) = plan(&modest, 0);
    assert_eq!(options[0]["verdict"], "holds");
    assert!(options[0]["margin_at_least"].as_f64().expect("a margin") > 0.1);
    for option in &options {
        // No number of the steady state where there is none.
        let has_capacity = !option["capacity_hz"].is_null();
        let is_of_all = has_capacity && option["capacity_reason"].is_null();
        assert!(!is_of_all || option["converged"] == true, "{option:#}");
        assert!(
            has_capacity || option["capacity_reason"].is_string(),
            "{option:#}"
        );
        assert_eq!(has_capacity, !option["efficiency"].is_null(), "{option:#}");
        let is_open = option["verdict"] == "not shown";
        assert_eq!(is_open, option["reason"].is_string(), "{option:#}");
    }
}

#[test]
fn a_plan_looks_at_what_it_is_asked_for_and_says_the_same_on_any_number_of_threads() {
    let shifts = [
        "--sources",
        "8",
        "--fragment",
        "2KiB",
        "--rate",
        "20kHz",
        "--link",
        "1Gb/s",
        "--events",
        "300",
        "--protocol",
        "barrel-shifter",
        "--protocol",
        "linear-shift",
        // Asked for twice, it is looked at once.
        "--protocol",
        "linear-shift",
    ];
    let (one, options) = plan(&[&shifts[..], &["--threads", "1"]].concat(), 0);
    let protocols = options.iter().map(|option| &option["protocol"]);
    let mut protocols: Vec<_> = protocols
        .map(|name| name.as_str().expect("a name"))
        .collect();
    protocols.sort_unstable();
    assert_eq!(protocols, ["barrel shifter", "linear shift"]);
    let (two, _) = plan(&[&shifts[..], &["--threads", "2"]].concat(), 0);
    assert_eq!(one, two);
}
