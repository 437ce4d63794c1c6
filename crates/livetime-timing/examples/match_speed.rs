//! Mean time of a look-up among 10 000 conditions, and of a message through the action unit.
//!
//! Prints two figures for this machine, without any comparison with its floor: for a first
//! impression. `cargo run --release -p livetime-timing --example match_speed`

use std::hint::black_box;
use std::time::Instant;

use livetime_timing::{
    ActionUnit, ActionUnitConfig, Caller, Change, ClientId, ConditionSpec, ConflictPolicy,
    IdFilter, Registry, RegistryConfig, Role, SinkKind, SinkSpec,
};
use livetime_wire::decision::mix64;
use livetime_wire::{EventId, TaiNs, TimingMessage};

const CONDITIONS: u64 = 10_000;
const MESSAGES: u64 = 2_000_000;

fn main() {
    let caller = Caller {
        client: ClientId(1),
        role: Role::Admin,
    };
    let mut registry = Registry::new(RegistryConfig::default()).expect("the defaults are valid");
    let mut spec = SinkSpec::new(SinkKind::Software, "all");
    spec.conflict_policy = ConflictPolicy::Ignore;
    let sink = registry.create_sink(&caller, spec).expect("there is room");
    // Group and number of format 1, as conditions usually compare.
    let id = |n: u64| EventId((1 << 60) | ((mix64(n % CONDITIONS) >> 4) & 0x0FFF_FFF0_0000_0000));
    let changes: Vec<Change> = (0..CONDITIONS)
        .map(|n| {
            let filter = IdFilter::leading(id(n), 28).expect("28 bits are a prefix");
            Change::Add(ConditionSpec::new(sink, filter, 0))
        })
        .collect();
    let begin = Instant::now();
    let applied = registry.apply(&caller, &changes).expect("all fit");
    let apply = begin.elapsed();
    let ids: Vec<EventId> = (0..MESSAGES).map(|n| id(mix64(n))).collect();
    let begin = Instant::now();
    let mut matched = 0u64;
    for id in &ids {
        matched += applied.table.matches(black_box(*id)).count() as u64;
    }
    let look_up = begin.elapsed();
    let mut unit = ActionUnit::new(ActionUnitConfig::default()).expect("the defaults are valid");
    unit.install(applied.table);
    let begin = Instant::now();
    let mut actions = 0u64;
    for (n, id) in (0..).zip(&ids) {
        let now = TaiNs(1_000_000 + 1000 * n);
        unit.handle_message(now, &TimingMessage::new(*id, n, TaiNs(now.0 + 1_000_000)));
        while let Some(action) = unit.poll_output(now) {
            black_box(action);
            actions += 1;
        }
    }
    let through = begin.elapsed();
    let mean = |time: std::time::Duration| time.as_nanos() as f64 / MESSAGES as f64;
    println!(
        "{CONDITIONS} conditions applied in {:.1} ms",
        apply.as_secs_f64() * 1e3
    );
    println!("look-up: {:.1} ns mean, {matched} matches", mean(look_up));
    println!(
        "through the unit, 1000 pending: {:.1} ns mean, {actions} actions",
        mean(through)
    );
}
