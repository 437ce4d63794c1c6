//! The `[builder]` table: the event manager, the builder units and their queues.

use livetime_builder::{BuildMode, BuilderConfig};
use livetime_node::BuilderTransport;
use livetime_node::process::{LossPolicy, OnLoss};
use livetime_wire::{ByteSize, DurationNs, Problem};

use super::document::{Findings, Section};
use super::link_section::readout_index;
use super::problem_code::{BAD_CHOICE, IDLE_KEY, OUT_OF_RANGE};
use super::shaping_keys::read_shaping;

/// Largest receive buffer of a socket that may be asked for.
const RECEIVE_BUFFER_BYTES_MAX: u64 = 1 << 30;

/// What is done when a unit is lost, by its name.
pub(super) const ON_LOSS: [(&str, OnLoss); 3] = [
    ("restart", OnLoss::Restart),
    ("continue", OnLoss::Continue),
    ("stop", OnLoss::Stop),
];

/// Who makes the readout units send, by its name.
const MODE: [(&str, BuildMode); 2] = [("pull", BuildMode::Pull), ("push", BuildMode::Push)];

/// What carries messages and payload between the units of the event builder, by its name.
const TRANSPORT: [(&str, Carrier); 3] = [
    ("shm", Carrier::Shm),
    ("tcp", Carrier::Tcp),
    ("udp", Carrier::Udp),
];

/// What carries whole events, by its name: they are sent once.
pub(super) const EVENT_TRANSPORT: [(&str, Carrier); 2] =
    [("shm", Carrier::Shm), ("tcp", Carrier::Tcp)];

/// What carries messages and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    Shm,
    Tcp,
    Udp,
}

/// Reads the table; its readout units follow from the links, its filter units from `[filter]`.
pub(crate) fn read_builder(
    root: &mut Section<'_, '_>,
    policy: &mut LossPolicy,
    findings: &Findings,
) -> (BuilderConfig, BuilderTransport) {
    let mut config = BuilderConfig::default();
    let Some(mut section) = root.section("builder") else {
        return (config, BuilderTransport::default());
    };
    let mut transport = read_transport(&mut section, &TRANSPORT, findings);
    read_receive_buffer(&mut section, &mut transport, findings);
    if let Some(units) = section.integer("builder_units", 1..=4096) {
        config.builder_units = u16::try_from(units).unwrap_or(u16::MAX);
    }
    for (key, field) in [
        ("credits", &mut config.credits),
        ("requests_per_message", &mut config.requests_per_message),
        ("evm_queue", &mut config.evm_queue),
        ("history", &mut config.history),
        ("trigger_window", &mut config.trigger_window),
    ] {
        if let Some(value) = section.integer(key, 0..=1 << 24) {
            *field = u32::try_from(value).unwrap_or(u32::MAX);
        }
    }
    config.shaping = read_shaping(&mut section, findings);
    config.first_step = read_first_step(&mut section, findings);
    if let Some(on_loss) = section.choice("on_loss", &ON_LOSS) {
        policy.builder = on_loss;
        // There is no other event manager that could go on.
        if on_loss == OnLoss::Stop {
            policy.manager = on_loss;
        }
    }
    if let Some(on_loss) = section.choice("on_readout_loss", &ON_LOSS) {
        policy.readout = on_loss;
    }
    if let Some(mode) = section.choice("mode", &MODE) {
        config.mode = mode;
    }
    for (key, field) in [
        ("credit_bytes", &mut config.credit_bytes),
        ("event_bytes", &mut config.event_bytes),
    ] {
        let mut size = ByteSize(*field);
        section.quantity(key, &mut size);
        *field = size.0;
    }
    if config.credit_bytes == 0 && config.event_bytes > 0 {
        let help = "set `credit_bytes`, or remove the key: without it credits count events alone";
        let reason = "`event_bytes` with `credit_bytes`";
        section.refuse_idle_by(&["credit_bytes"], &["event_bytes"], reason, help);
    }
    section.quantity("timeout", &mut config.timeout);
    section.quantity("retry", &mut config.retry);
    section.quantity("probe", &mut config.probe);
    section.quantity("heartbeat", &mut config.heartbeat);
    section.quantity("suspect", &mut config.suspect);
    section.quantity("dead", &mut config.dead);
    if config.heartbeat == DurationNs(0) {
        let help = "set `heartbeat`, or remove the key: death is then known by the hang-up alone";
        let (keys, reason) = (["suspect", "dead"], "these keys with `heartbeat`");
        section.refuse_idle_by(&["heartbeat"], &keys, reason, help);
    }
    section.finish();
    (config, transport)
}

/// The readout units of the first step by their names; whether there are such units is known once the
/// links are.
fn read_first_step(section: &mut Section<'_, '_>, findings: &Findings) -> Vec<u16> {
    let mut units = Vec::new();
    for name in section.texts("first_step").unwrap_or_default() {
        match readout_index(&name) {
            Some(index) => units.push(index),
            None => findings.report(Problem::new(
                BAD_CHOICE,
                section.key_path("first_step"),
                format!("\"{name}\""),
                "names of readout units: \"ru0\", \"ru1\", ..",
                "name readout units to which links go",
            )),
        }
    }
    units
}

/// What carries messages and payload: `transport`, one of these, and `congestion` of a table.
pub(super) fn read_transport(
    section: &mut Section<'_, '_>,
    allowed: &[(&'static str, Carrier)],
    findings: &Findings,
) -> BuilderTransport {
    let carrier = section.choice("transport", allowed);
    let congestion = section.plain_text("congestion");
    if carrier == Some(Carrier::Tcp) {
        return BuilderTransport::Tcp { congestion };
    }
    if let Some(name) = congestion.filter(|_| !section.is_unread("transport")) {
        findings.report(Problem::new(
            IDLE_KEY,
            section.key_path("congestion"),
            name,
            "only with `transport = \"tcp\"`",
            "leave the key out, or set `transport = \"tcp\"`",
        ));
    }
    match carrier {
        Some(Carrier::Udp) => BuilderTransport::Udp {
            receive_buffer_bytes: 0,
        },
        _ => BuilderTransport::Shm,
    }
}

/// The size of the receive buffers, where datagrams carry the payload.
fn read_receive_buffer(
    section: &mut Section<'_, '_>,
    transport: &mut BuilderTransport,
    findings: &Findings,
) {
    let mut bytes = ByteSize(0);
    section.quantity("receive_buffer", &mut bytes);
    match transport {
        BuilderTransport::Udp {
            receive_buffer_bytes,
        } if bytes.0 <= RECEIVE_BUFFER_BYTES_MAX => *receive_buffer_bytes = bytes.0,
        BuilderTransport::Udp { .. } => findings.report(Problem::new(
            OUT_OF_RANGE,
            section.key_path("receive_buffer"),
            bytes,
            format!("at most {}", ByteSize(RECEIVE_BUFFER_BYTES_MAX)),
            "leave the key out: the buffers are then as large as the credits need",
        )),
        _ if bytes.0 > 0 && !section.is_unread("transport") => findings.report(Problem::new(
            IDLE_KEY,
            section.key_path("receive_buffer"),
            bytes,
            "only with `transport = \"udp\"`",
            "leave the key out, or set `transport = \"udp\"`",
        )),
        _ => {}
    }
}
