//! The event builder over UDP: the events of shared memory, whoever dies and whatever is lost.

use std::collections::BTreeSet;

use crate::process_run::{Run, patient, turn};

/// The example over UDP, with these lines more for the builder. Whoever waits asks again soon.
fn over_udp(lines: &'static str) -> impl Fn(String) -> String {
    move |config| {
        let keys = "transport = \"udp\"\nretry = \"10 ms\"\nprobe = \"50 ms\"\n";
        patient(config).replace("[builder]\n", &format!("[builder]\n{keys}{lines}"))
    }
}

/// What became of the datagrams of a run, by name.
fn datagrams(run: &Run, name: &str) -> u64 {
    let transport = &run.summary["builder_transport"];
    assert_eq!(transport["kind"], "udp", "{transport}");
    let count = transport["datagrams"][name].as_u64();
    count.unwrap_or_else(|| panic!("no {name} in {transport}"))
}

/// The counter of that name, over all roles.
fn of_roles(run: &Run, name: &str) -> u64 {
    let roles = run.summary["roles"].as_object().expect("roles");
    roles.values().filter_map(|role| role[name].as_u64()).sum()
}

fn same_events(run: &Run, rings: &Run, what: &str) {
    assert!(run.output.status.success(), "{what}: {}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new(), "{what}");
    assert_eq!(run.count("events_incomplete"), 0, "{what}");
    assert_eq!(run.digest(), rings.digest(), "{what}");
    assert_eq!(run.differing(rings), BTreeSet::new(), "{what}");
}

#[test]
fn over_udp_the_same_events_are_built_and_a_builder_unit_may_die() {
    let _turn = turn();
    let triggers = ["--triggers", "4000"];
    let rings = Run::of(patient, &triggers);
    for (lines, arguments) in [
        ("", &[][..]),
        ("", &["--processes"]),
        ("mode = \"push\"\n", &["--processes"]),
        ("", &["--processes", "--fault", "kill:bu1@1500triggers"]),
    ] {
        let arguments = [&triggers[..], arguments].concat();
        let run = Run::of(over_udp(lines), &arguments);
        let what = format!("{lines:?} {arguments:?}");
        same_events(&run, &rings, &what);
        assert!(datagrams(&run, "sent") > 1000, "{what}");
        assert!(datagrams(&run, "receive_buffer_bytes") > 100_000, "{what}");
        assert_eq!(datagrams(&run, "bad"), 0, "{what}");
        let of_readout = &run.summary["roles"]["ru0"];
        assert!(of_readout["network_payload_bytes_sent"].as_u64() > Some(100_000));
        if !arguments.contains(&"--fault") {
            let (sent, lost) = (datagrams(&run, "sent"), datagrams(&run, "lost"));
            let came = of_roles(&run, "network_datagrams_received");
            assert_eq!(sent, came + lost, "{what}");
        }
    }
}

/// Readout units push to builder units that stand still, with receive buffers for the largest event
/// alone: the kernel drops most of what comes meanwhile.
#[test]
fn datagrams_that_the_kernel_drops_cost_time_and_no_event() {
    let _turn = turn();
    let triggers = ["--triggers", "4000"];
    let large = |config: String| config.replace("bytes_mean = \"2 KiB\"", "bytes_mean = \"8 KiB\"");
    let rings = Run::of(|config| large(patient(config)), &triggers);
    let stops = ["stop:bu1@500triggers+500ms", "stop:bu0@1500triggers+500ms"];
    let faults = stops.iter().flat_map(|stop| ["--fault", stop]);
    let arguments: Vec<&str> = (triggers.into_iter())
        .chain(["--processes"])
        .chain(faults)
        .collect();
    let narrow = over_udp("mode = \"push\"\nreceive_buffer = \"103 KiB\"\n");
    let run = Run::of(|config| large(narrow(config)), &arguments);
    same_events(&run, &rings, "stopped");
    let (sent, lost) = (datagrams(&run, "sent"), datagrams(&run, "lost"));
    println!("{lost} of {sent} datagrams lost");
    assert!(lost > 0, "nothing was lost: the test shows nothing");
    // The network of this machine loses none; the kernel tells its drops with a later datagram.
    let drops = datagrams(&run, "kernel_drops");
    assert!((1..=lost).contains(&drops), "{drops} of {lost}");
    assert!(of_roles(&run, "fragments_sent_again") > 0);
}
