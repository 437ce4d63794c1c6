//! `[builder]` and `[host]` of a scenario file: an event builder on the simulated network.
//!
//! What the keys mean is in `docs/operator/scenarios.md`; whether the builder fits the network is
//! checked by the simulator. The event builder of a real run has a section of its own, in
//! [`super::builder_section`].

use livetime_builder::BuildMode;
use livetime_builder::builder_config::CREDITS_MAX;
use livetime_fabric::builder_network::{
    BuilderNetwork, Control, Deaths, HostModel, Placement, ShaperPlace, Shaping, SickUnits, TwoStep,
};
use livetime_fabric::scenario::ShiftOrder;
use livetime_fabric::time::DurationPs;
use livetime_wire::message::TRIGGERS_MAX;
use livetime_wire::{BitRate, ByteSize, Problem};

use super::document::Section;
use super::problem_code::OUT_OF_RANGE;
use super::scenario::{duration, duration_or, parse_bit_rate};

/// The most of any count.
const COUNT_MAX: u64 = 1 << 20;
/// The most units of a kind.
const UNITS_MAX: u64 = 4096;
/// Rates of the bus of a host, bits per second.
pub(crate) const BUS_RATES: std::ops::RangeInclusive<u64> = 1_000..=100_000_000_000_000;
/// The same in words.
pub(crate) const BUS_ALLOWED: &str = "1 kb/s to 100 Tb/s";
/// How long an event manager is dead where nothing says it.
const MANAGER_DEAD_FOR: DurationPs = DurationPs::from_ms(100);
/// How a rate of a link is written.
pub(super) const RATE: &str = "a rate with unit in quotes, such as \"1 Gb/s\" or \"132 MB/s\"";

/// The builder, if the scenario has one.
pub(super) fn read_builder(root: &mut Section<'_, '_>) -> Option<BuilderNetwork> {
    let hosts = read_hosts(root);
    if !root.has("builder") {
        let help = "add `[builder]`, or remove `[host]`: packets of a pattern pass no host";
        root.refuse_idle(&["host"], "`[host]` beside `[builder]`", help);
    }
    let mut section = root.section("builder")?;
    let mut builder = BuilderNetwork {
        hosts,
        ..BuilderNetwork::default()
    };
    for (key, most, field) in [
        ("readout_units", UNITS_MAX, &mut builder.readout_units),
        ("builder_units", UNITS_MAX, &mut builder.builder_units),
        ("credits", CREDITS_MAX.into(), &mut builder.credits),
        (
            "requests_per_message",
            TRIGGERS_MAX as u64,
            &mut builder.requests_per_message,
        ),
        ("queue", COUNT_MAX, &mut builder.queue),
    ] {
        if let Some(value) = section.integer(key, 1..=most) {
            *field = value as u32;
        }
    }
    for (key, field) in [
        ("credit_bytes", &mut builder.credit_bytes),
        ("event_bytes", &mut builder.event_bytes),
    ] {
        let mut bytes = ByteSize(*field);
        section.quantity(key, &mut bytes);
        *field = bytes.0;
    }
    if builder.credit_bytes == 0 {
        let help = "set `credit_bytes`, or remove `event_bytes`";
        section.refuse_idle(&["event_bytes"], "`event_bytes` with `credit_bytes`", help);
    }
    section.quantity("timeout", &mut builder.timeout);
    section.quantity("retry", &mut builder.retry);
    let modes = [("pull", BuildMode::Pull), ("push", BuildMode::Push)];
    builder.mode = section.choice("mode", &modes).unwrap_or_default();
    builder.two_step = read_two_step(&mut section);
    read_shaper(&mut section, &mut builder);
    builder.control = read_control(&mut section, builder.control);
    builder.placement = read_placement(&mut section);
    builder.mtu = read_mtu(&mut section);
    if let Some(share) = section.number("packet_damage", 0.0..=1.0) {
        builder.packet_damage = share;
    }
    builder.sick = read_sick(&mut section);
    section.finish();
    Some(builder)
}

/// Bytes of the largest packet; 0 for any size, where the key is not there.
fn read_mtu(section: &mut Section<'_, '_>) -> u32 {
    // Some size, which stays where what is there is none: that is reported.
    let mut mtu = ByteSize(1);
    section.quantity("mtu", &mut mtu);
    if !section.has("mtu") {
        return 0;
    }
    if mtu == ByteSize(0) {
        let help = "1500 B is that of Ethernet; leave the key out for packets of any size";
        let (path, allowed) = (section.key_path("mtu"), "512 B to 1 MiB");
        section.report(Problem::new(OUT_OF_RANGE, path, mtu, allowed, help));
    }
    u32::try_from(mtu.0).unwrap_or(u32::MAX)
}

/// Which slots of the switch the units are on.
fn read_placement(section: &mut Section<'_, '_>) -> Placement {
    let slot_ports = section.integer("slot_ports", 0..=COUNT_MAX).unwrap_or(1) as u32;
    let placements = [
        ("in-order", Placement::InOrder),
        ("interleaved", Placement::Interleaved { slot_ports }),
        ("random", Placement::Random),
    ];
    let placement = section.choice("placement", &placements).unwrap_or_default();
    if !matches!(placement, Placement::Interleaved { .. }) {
        let help = "set `placement = \"interleaved\"`, or remove `slot_ports`";
        section.refuse_idle(&["slot_ports"], "`slot_ports` with interleaved units", help);
    }
    placement
}

fn read_two_step(section: &mut Section<'_, '_>) -> Option<TwoStep> {
    let first_units = section.integer("first_step", 0..=COUNT_MAX).unwrap_or(0) as u32;
    let accept = section.number("accept", 0.0..=1.0);
    if first_units == 0 {
        let help = "set `first_step`, or remove `accept`";
        section.refuse_idle(&["accept"], "`accept` with `first_step`", help);
        return None;
    }
    if accept.is_none() {
        section.require(
            "accept",
            "the share of the events whose rest is fetched, 0 to 1",
        );
    }
    Some(TwoStep {
        first_units,
        accept: accept.unwrap_or(0.0),
    })
}

/// How readout units shape their traffic, and who does it.
fn read_shaper(section: &mut Section<'_, '_>, builder: &mut BuilderNetwork) {
    builder.shaping = read_shaping(section);
    section.quantity("barrier_retry", &mut builder.barrier_retry);
    if !matches!(builder.shaping, Shaping::LinearShift { .. }) {
        let help = "set `shaping = \"linear-shift\"`, or remove the key";
        let needed = "`barrier_retry` with the linear shift";
        section.refuse_idle(&["barrier_retry"], needed, help);
    }
    if builder.shaping == Shaping::None {
        let help = "set `shaping`, or remove the key";
        section.refuse_idle(
            &["block", "order", "shaper"],
            "these keys with `shaping`",
            help,
        );
    }
    let places = [
        ("adapter", ShaperPlace::Adapter),
        ("host", ShaperPlace::Host),
    ];
    builder.shaper = section.choice("shaper", &places).unwrap_or_default();
}

fn read_shaping(section: &mut Section<'_, '_>) -> Shaping {
    let mut block = ByteSize(4096);
    section.quantity("block", &mut block);
    let bytes = u32::try_from(block.0).unwrap_or(u32::MAX);
    let orders = [
        ("conflict-free", ShiftOrder::ConflictFree),
        ("plain", ShiftOrder::Plain),
    ];
    let order = section.choice("order", &orders).unwrap_or_default();
    let shapings = [
        ("none", Shaping::None),
        (
            "barrel-shifter",
            Shaping::BarrelShifter {
                block_bytes: bytes,
                order,
            },
        ),
        (
            "linear-shift",
            Shaping::LinearShift {
                phase_bytes: bytes,
                order,
            },
        ),
    ];
    section.choice("shaping", &shapings).unwrap_or_default()
}

fn read_control(section: &mut Section<'_, '_>, default: Control) -> Control {
    let (Control::Separate {
        mut bits_per_s,
        mut latency,
    }
    | Control::Shared {
        mut bits_per_s,
        mut latency,
    }) = default;
    if let Some(rate) = section.parsed("control_rate", RATE, parse_bit_rate) {
        bits_per_s = rate;
    }
    latency = duration_or(section, "control_latency", latency);
    let networks = [
        (
            "separate",
            Control::Separate {
                bits_per_s,
                latency,
            },
        ),
        (
            "shared",
            Control::Shared {
                bits_per_s,
                latency,
            },
        ),
    ];
    let control = section.choice("control", &networks);
    control.unwrap_or(networks[0].1)
}

fn read_sick(section: &mut Section<'_, '_>) -> SickUnits {
    let slow = section.integer("slow", 0..=COUNT_MAX).unwrap_or(0) as u32;
    if slow == 0 {
        let help = "set `slow`, or remove `slow_factor`";
        section.refuse_idle(&["slow_factor"], "`slow_factor` with `slow`", help);
    }
    SickUnits {
        slow,
        slow_factor: section.number("slow_factor", 0.0..=1e9).unwrap_or(2.0),
        builders: read_deaths(section, ["dead", "dead_at", "dead_for"]),
        readouts: read_deaths(
            section,
            ["dead_readouts", "dead_readouts_at", "dead_readouts_for"],
        ),
        manager: read_manager_death(section),
    }
}

/// How many die, when and for how long, by these keys.
fn read_deaths(section: &mut Section<'_, '_>, [units, at, dead_for]: [&'static str; 3]) -> Deaths {
    let count = section.integer(units, 0..=COUNT_MAX).unwrap_or(0) as u32;
    if count == 0 {
        for key in [at, dead_for] {
            let help = format!("set `{units}`, or remove `{key}`");
            section.refuse_idle(&[key], &format!("`{key}` with `{units}`"), &help);
        }
    }
    Deaths {
        units: count,
        at: duration_or(section, at, DurationPs::ZERO),
        dead_for: duration(section, dead_for),
    }
}

/// There is one event manager, and without it nothing is built.
fn read_manager_death(section: &mut Section<'_, '_>) -> Deaths {
    let (at, dead_for) = ("dead_manager_at", "dead_manager_for");
    let Some(dies_at) = duration(section, at) else {
        let help = format!("set `{at}`, or remove `{dead_for}`");
        section.refuse_idle(&[dead_for], &format!("`{dead_for}` with `{at}`"), &help);
        return Deaths::default();
    };
    Deaths {
        units: 1,
        at: dies_at,
        dead_for: Some(duration_or(section, dead_for, MANAGER_DEAD_FOR)),
    }
}

fn read_hosts(root: &mut Section<'_, '_>) -> HostModel {
    let mut hosts = HostModel::default();
    let Some(mut section) = root.section("host") else {
        return hosts;
    };
    if let Some(rate) = section.parsed("bus", RATE, parse_bit_rate) {
        hosts.bus_bytes_per_s = rate / 8;
        if !BUS_RATES.contains(&rate) {
            let help = "write a rate such as \"132 MB/s\", or leave the key out for a bus that is never busy";
            let (path, found) = (section.key_path("bus"), BitRate(rate));
            section.report(Problem::new(OUT_OF_RANGE, path, found, BUS_ALLOWED, help));
        }
    }
    for (key, field) in [
        ("message", &mut hosts.message),
        ("fragment", &mut hosts.fragment),
        ("packet", &mut hosts.packet),
        ("event", &mut hosts.event),
        ("interval", &mut hosts.interval),
    ] {
        *field = duration_or(&mut section, key, *field);
    }
    section.finish();
    hosts
}
