//! The state of the daemon as one document: `livetime.timing_status/1`.

use livetime_timing::registry::Sink;
use livetime_timing::{ActionFlag, Registry, TableLimits};
use serde_json::{Value, json};

use crate::bus::input_name;
use crate::control::{Control, ControlError, SubscriptionEntry, owner_text};
use crate::core_worker::CoreSnapshot;
use crate::subscription::LATENCY_BINS;

/// Name of the format.
pub const STATUS_SCHEMA: &str = "livetime.timing_status/1";

/// Everything that can be said about the daemon.
///
/// # Errors
/// [`ControlError::Core`].
pub fn status_document(control: &Control) -> Result<Value, ControlError> {
    let figures = control.fresh_figures()?;
    let fill = control.read(|registry| registry.fill());
    let subscriptions = control.subscriptions();
    let sinks: Vec<Value> = control.read(|registry| {
        registry
            .sinks()
            .map(|sink| sink_json(sink, registry, &figures, &subscriptions))
            .collect()
    });
    let clock = control.injector().clock();
    let unit = control.unit_config();
    Ok(json!({
        "schema": STATUS_SCHEMA,
        "receiver": "tr0",
        "epoch": control.epoch(),
        "time_tai_ns": figures.now.0.to_string(),
        "clock": {
            "source": clock.source().name(),
            "locked": figures.lock.is_locked(),
            "state": figures.lock.key(),
            "offset_ns": figures.now.0.wrapping_sub(figures.machine.0).cast_signed(),
            "drift_ppb": figures.drift_ppb,
        },
        "inputs": inputs_json(control, &figures),
        "messages": figures.messages,
        "actions": figures.actions,
        "slow_deliveries": figures.slow_deliveries,
        "unqueued": figures.unqueued,
        "withdrawn": figures.withdrawn,
        "start_tags_lost": figures.tags_lost,
        "playing": figures.playing,
        "worker": {
            "turns": figures.turns,
            "sleeps": figures.sleeps,
            "refused_by_the_machine": control.refusals(),
        },
        "conditions": {
            "free": fill.free(),
            "search": fill.search,
            "walker": fill.walker,
            "hardware": { "search": TableLimits::HARDWARE.search, "walker": TableLimits::HARDWARE.walker },
        },
        "channel": {
            "names": ["output", "software", "embedded_cpu", "bus_tag"],
            "fill": figures.fill,
            "most_full": figures.most_full,
            "capacity": unit.queue,
            "latency_ns": unit.latency_ns,
            "early_threshold_ns": unit.early_ns,
        },
        "state_file_error": control.kept_error(),
        "sinks": sinks,
        "clients": clients_json(control),
        "leases_waiting": control.orphans(),
    }))
}

/// A sink with its conditions and those who listen to it.
fn sink_json(
    sink: &Sink,
    registry: &Registry,
    figures: &CoreSnapshot,
    subscriptions: &[SubscriptionEntry],
) -> Value {
    let counters = figures.sinks.iter().find(|(id, _)| *id == sink.id);
    let counters = counters.map(|(_, counters)| *counters).unwrap_or_default();
    let conditions: Vec<Value> = registry
        .conditions()
        .filter(|condition| condition.spec.sink == sink.id)
        .map(condition_json)
        .collect();
    let listeners: Vec<Value> = subscriptions
        .iter()
        .filter(|entry| entry.sink == sink.id)
        .map(subscription_json)
        .collect();
    let output = figures.outputs.get(sink.id.index());
    json!({
        "name": sink.spec.name,
        "kind": sink.spec.kind.key(),
        "owner": owner_text(&sink.ownership),
        "level": output.map(|(on, _)| *on),
        "changes": output.map(|(_, changes)| *changes),
        "matched": counters.matched,
        "delivered": counters.delivered,
        "refused": counters.refused,
        "overflow": counters.overflow,
        "late": counters.flagged[ActionFlag::Late as usize],
        "early": counters.flagged[ActionFlag::Early as usize],
        "conflict": counters.flagged[ActionFlag::Conflict as usize],
        "delayed": counters.flagged[ActionFlag::Delayed as usize],
        "conditions": conditions,
        "subscriptions": listeners,
    })
}

fn inputs_json(control: &Control, figures: &CoreSnapshot) -> Vec<Value> {
    let inputs = (0u16..).zip(&figures.inputs);
    inputs
        .map(|(index, (level, edges, glitches))| {
            let config = control.input(index).unwrap_or_default();
            json!({
                "name": input_name(index),
                "level": level,
                "enabled": config.enabled,
                "prefix": config.prefix.to_string(),
                "stable_ns": config.stable_ns,
                "edges": edges,
                "glitches": glitches,
            })
        })
        .collect()
}

fn clients_json(control: &Control) -> Vec<Value> {
    let clients = control.clients();
    clients
        .iter()
        .map(|client| {
            json!({
                "id": client.id.0.to_string(),
                "uid": client.uid,
                "pid": client.pid,
                "role": client.role.key(),
                "connection": client.label,
            })
        })
        .collect()
}

fn condition_json(condition: &livetime_timing::Condition) -> Value {
    let spec = &condition.spec;
    let (id, mask) = spec.filter.id_and_mask();
    let accept: Vec<&str> = ActionFlag::ALL
        .into_iter()
        .filter(|flag| spec.accept.contains(*flag))
        .map(ActionFlag::key)
        .collect();
    json!({
        "condition": condition.id.to_string(),
        "id": id.to_string(),
        "mask": format!("{mask:#018x}"),
        "offset_ns": spec.offset_ns,
        "tag": spec.tag,
        "accept": accept,
        "active": spec.active,
        "hardware": spec.filter.is_hardware(),
        "owner": owner_text(&condition.ownership),
        "destructible": condition.ownership.is_destructible(),
    })
}

fn subscription_json(entry: &SubscriptionEntry) -> Value {
    let counters = &entry.counters;
    let monitor = entry.monitor.as_ref();
    let histogram = counters.latency();
    let last = histogram.iter().rposition(|count| *count > 0);
    let bins = last.map_or(0, |last| (last + 1).min(LATENCY_BINS));
    json!({
        "subscription": entry.place,
        "client": entry.client.0.to_string(),
        "mode": if monitor.is_some() { "ring" } else { "pipe" },
        "slots": monitor.map(|monitor| monitor.slots()),
        "overflow_rule": entry.config.rule.name(),
        "class": entry.config.class.name(),
        "offered": counters.offered(),
        "passed_by_reader": monitor.map(|monitor| monitor.passed()),
        "lost_by_reader": monitor.map(|monitor| monitor.lost()),
        "unqueued": counters.unqueued(),
        "overran": counters.dropped(),
        "delivered_late": counters.delivered_late(),
        "deferred": counters.deferred(),
        "wake_ups": counters.wake_ups(),
        "latency_ns_from_powers_of_two": histogram[..bins].to_vec(),
    })
}
