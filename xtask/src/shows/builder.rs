//! Builder: event building over real transports and many hosts.
//!
//! As for [`super::first_light`], each function shows one line from outside; the simulator's side is
//! in [`super::fabric`].

use std::time::Duration;

use super::evidence::{host_tests, named_tests};
use super::judged_command::targets_met;
use super::{Capability, Line, Shown, Stage};
use crate::Failure;

/// Least tests of runs over several hosts, in namespaces and not.
const HOST_TESTS: usize = 50;

pub(super) const CAPABILITY: Capability = Capability {
    name: "builder",
    title: "event building in full",
    lines: &[
        Line {
            promise: "events are built once and everything is accounted for under any \
                      interleaving, loss, duplication and death",
            show: networks_and_deaths,
        },
        Line {
            promise: "`livetime bench builder --json`: each target met",
            show: |stage| {
                let arguments = ["bench", "builder", "--json"];
                targets_met(stage, &arguments, Duration::from_secs(180))
            },
        },
        Line {
            promise: "`livetime bench builder --grid --json`: 1x1, 2x2 and 4x4 units, 256 B to \
                      64 KiB, over shared memory, TCP and UDP: each target met",
            show: |stage| {
                let arguments = ["bench", "builder", "--grid", "--json"];
                targets_met(stage, &arguments, Duration::from_secs(300))
            },
        },
        Line {
            promise: "over TCP the same events are built as over shared memory, by threads and by \
                      processes, asked for and unasked, also when a builder unit is killed or \
                      stands still",
            show: transports_and_deaths,
        },
        Line {
            promise: "over several hosts the run of one: the same decisions and events; roles \
                      killed in turn, a link cut and restored, a builder unit slowed, datagrams \
                      lost, with the counts before and after and the gap",
            show: many_hosts,
        },
    ],
};

fn transports_and_deaths(stage: &Stage) -> Result<Shown, Failure> {
    let transports = named_tests(stage, "livetime", "over_tcp_the_same_events")?;
    let silence = named_tests(stage, "livetime", "a_silent_builder_unit")?;
    Ok(Shown::new(
        transports > 0 && silence > 0,
        format!("{transports} tests of transports and {silence} of a silent builder unit passed"),
    ))
}

fn many_hosts(stage: &Stage) -> Result<Shown, Failure> {
    let (passed, lines) = host_tests(stage)?;
    Ok(Shown::new(
        passed >= HOST_TESTS && lines.iter().all(|line| !line.starts_with("SKIPPED")),
        format!("{passed} tests of hosts passed; {}", lines.join("; ")),
    ))
}

fn networks_and_deaths(stage: &Stage) -> Result<Shown, Failure> {
    let cores = named_tests(stage, "livetime-builder", "")?;
    let chains = named_tests(stage, "livetime-fabric", "chain")?;
    Ok(Shown::new(
        cores > 0 && chains > 0,
        format!("{cores} tests of the builder and {chains} of chains in the simulator passed"),
    ))
}
