//! The compiled tables against plain comparison, condition by condition.
//!
//! A million look-ups over random sets in which nested, equal, adjacent and full-range prefixes,
//! masks with holes and spans are common. Verifies which conditions match, their order and their
//! content, that tables are exactly as large as they need to be, and that a transaction swaps
//! whole sets. `SEED` in the environment repeats one run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use livetime_timing::{
    Caller, Change, ClientId, ConditionId, ConditionSpec, ConflictPolicy, FlagSet, IdFilter,
    Registry, RegistryConfig, Role, SinkId, SinkKind, SinkSpec, TableLimits, TransactionError,
};
use livetime_wire::EventId;

#[path = "support/random.rs"]
mod random;

use random::Random;

const CALLER: Caller = Caller {
    client: ClientId(1),
    role: Role::Admin,
};

fn registry(limits: TableLimits) -> (Registry, SinkId) {
    let config = RegistryConfig {
        sinks_max: 4,
        conditions_max: 4096,
        limits,
    };
    let mut registry = Registry::new(config).unwrap();
    let mut spec = SinkSpec::new(SinkKind::Software, "listener");
    spec.conflict_policy = ConflictPolicy::Ignore;
    let sink = registry.create_sink(&CALLER, spec).unwrap();
    (registry, sink)
}

/// A filter near some of `ids`, of a kind that makes trouble.
fn filter(random: &mut Random, ids: &[u64]) -> IdFilter {
    let id = ids[random.below(ids.len() as u64) as usize];
    let near = id.wrapping_add(random.below(3)).wrapping_sub(1);
    match random.below(20) {
        0..=2 => IdFilter::ALL,
        3 => IdFilter::leading(EventId(u64::MAX), random.below(65) as u32).unwrap(),
        4..=11 => IdFilter::leading(EventId(near), random.below(65) as u32).unwrap(),
        12..=15 => IdFilter::leading(EventId(id), 4 * random.below(17) as u32).unwrap(),
        16..=17 => {
            let mask = random.next() & random.next();
            IdFilter::masked(EventId(near & mask), mask).unwrap()
        }
        _ => {
            let other = ids[random.below(ids.len() as u64) as usize];
            IdFilter::span(EventId(near.min(other)), EventId(near.max(other))).unwrap()
        }
    }
}

/// The conditions that match, by comparing all: narrowest range first, of equal ones the oldest.
fn oracle(conditions: &[(ConditionId, IdFilter)], id: EventId) -> Vec<ConditionId> {
    let mut found: Vec<(u64, usize)> = conditions
        .iter()
        .enumerate()
        .filter(|(_, (_, filter))| filter.matches(id))
        .map(|(age, (_, filter))| {
            let (first, last) = filter.enclosing();
            (last - first, age)
        })
        .collect();
    found.sort_unstable();
    found.iter().map(|(_, age)| conditions[*age].0).collect()
}

#[test]
fn a_million_look_ups_agree_with_plain_comparison() {
    let mut random = Random::new();
    let mut cases = 0;
    let mut matches = 0;
    while cases < 1_000_000 {
        let (mut registry, sink) = registry(TableLimits::for_conditions(4096));
        let ids: Vec<u64> = (0..1 + random.below(12)).map(|_| random.next()).collect();
        let count = 1 + random.below(if cases % 7 == 0 { 300 } else { 24 });
        let filters: Vec<IdFilter> = (0..count).map(|_| filter(&mut random, &ids)).collect();
        let changes: Vec<Change> = filters
            .iter()
            .zip(0u32..)
            .map(|(filter, tag)| Change::Add(ConditionSpec::new(sink, *filter, tag)))
            .collect();
        let applied = registry.apply(&CALLER, &changes).unwrap();
        let conditions: Vec<_> = applied.added.iter().copied().zip(filters.clone()).collect();
        for _ in 0..2000 {
            let id = EventId(edge_or_any(&mut random, &filters));
            let expected = oracle(&conditions, id);
            let found: Vec<ConditionId> = applied
                .table
                .matches(id)
                .map(|entry| entry.condition)
                .collect();
            assert_eq!(found, expected, "{id}, seed {}", random.seed());
            matches += found.len();
            cases += 1;
        }
        check_size(&applied.table.fill(), &filters, random.seed());
    }
    assert!(matches > cases, "most look-ups find something: {matches}");
}

/// An ID at or next to the edge of a filter, or anywhere.
fn edge_or_any(random: &mut Random, filters: &[IdFilter]) -> u64 {
    let (first, last) = filters[random.below(filters.len() as u64) as usize].enclosing();
    match random.below(6) {
        0 => first,
        1 => last,
        2 => first.wrapping_sub(1),
        3 => last.wrapping_add(1),
        4 => first + random.below((last - first).max(1)),
        _ => random.next(),
    }
}

/// Search entries needed: the places where the innermost range changes, found by looking at every
/// edge; one walker entry per condition.
fn check_size(fill: &livetime_timing::TableFill, filters: &[IdFilter], seed: u64) {
    let ranges: Vec<(u64, u64)> = filters.iter().map(IdFilter::enclosing).collect();
    let mut edges: Vec<u64> = vec![0];
    for (first, last) in &ranges {
        edges.push(*first);
        edges.extend(last.checked_add(1));
    }
    edges.sort_unstable();
    edges.dedup();
    let innermost = |id: u64| {
        let around = ranges.iter().enumerate();
        let around = around.filter(|(_, (first, last))| (*first..=*last).contains(&id));
        around
            .min_by_key(|(age, (first, last))| (last - first, *age))
            .map(|(age, _)| age)
    };
    let mut needed = 0;
    let mut before = None;
    for edge in edges {
        let now = Some(innermost(edge));
        needed += usize::from(now != before);
        before = now;
    }
    assert_eq!(fill.search, needed, "seed {seed}");
    assert_eq!(fill.walker, filters.len(), "seed {seed}");
}

#[test]
fn tables_fill_to_the_last_entry_and_not_beyond() {
    // Full-range conditions need one walker entry each and a single search entry together.
    let (mut registry, sink) = registry(TableLimits::HARDWARE);
    let all = Change::Add(ConditionSpec::new(sink, IdFilter::ALL, 0));
    registry.apply(&CALLER, &vec![all; 256]).unwrap();
    assert_eq!((registry.fill().search, registry.fill().walker), (1, 256));
    assert_eq!(registry.fill().free(), 0);
    let error = registry.apply(&CALLER, &[all]).unwrap_err();
    assert!(
        matches!(&error, TransactionError::TableFull(full) if full.walker == 257),
        "{error}"
    );
    assert_eq!(
        registry.conditions().count(),
        256,
        "nothing of the refused one is left"
    );

    // Separate ranges need two search entries each: 255 of them and the one at 0.
    let (mut registry, sink) = self::registry(TableLimits::HARDWARE);
    let apart = |n: u64| {
        let filter = IdFilter::leading(EventId((2 * n + 1) << 40), 24).unwrap();
        Change::Add(ConditionSpec::new(sink, filter, 0))
    };
    let changes: Vec<Change> = (0..255).map(apart).collect();
    registry.apply(&CALLER, &changes).unwrap();
    assert_eq!((registry.fill().search, registry.fill().free()), (511, 0));
    let error = registry.apply(&CALLER, &[apart(255)]).unwrap_err();
    assert!(
        matches!(&error, TransactionError::TableFull(full) if full.search == 513),
        "{error}"
    );
    // A range that touches the one before shares its edge, so this one still fits.
    let touching = IdFilter::leading(EventId(2 << 40), 24).unwrap();
    let change = Change::Add(ConditionSpec::new(sink, touching, 0));
    registry.apply(&CALLER, &[change]).unwrap();
    assert_eq!((registry.fill().search, registry.fill().walker), (511, 256));
}

#[test]
fn free_is_a_promise_that_holds_for_any_filter() {
    let mut random = Random::new();
    for _ in 0..200 {
        let limits = TableLimits {
            search: 1 + random.below(40) as usize,
            walker: random.below(20) as usize,
        };
        let (mut registry, sink) = registry(limits);
        let ids: Vec<u64> = (0..3).map(|_| random.next()).collect();
        for _ in 0..60 {
            let before = registry.fill();
            let spec = ConditionSpec::new(sink, filter(&mut random, &ids), 0);
            let result = registry.apply(&CALLER, &[Change::Add(spec)]);
            let promised = before.free() > 0;
            assert!(
                result.is_ok() || !promised,
                "{before:?}, seed {}",
                random.seed()
            );
            assert!(registry.fill().search <= limits.search);
            assert!(registry.fill().walker <= limits.walker);
        }
    }
}

#[test]
fn what_hardware_could_hold_is_told_in_the_order_of_creation() {
    let (mut registry, sink) = registry(TableLimits::for_conditions(4096));
    let hole = IdFilter::masked(EventId(5), 0xF).unwrap();
    let mut changes = vec![Change::Add(ConditionSpec::new(sink, hole, 0))];
    let all = Change::Add(ConditionSpec::new(sink, IdFilter::ALL, 0));
    changes.extend(vec![all; 260]);
    let applied = registry.apply(&CALLER, &changes).unwrap();
    let fit = registry.hardware_fit(TableLimits::HARDWARE);
    assert_eq!(fit.software_only, applied.added[..1]);
    assert_eq!(fit.fits, applied.added[1..257]);
    assert_eq!(fit.beyond, applied.added[257..]);
    assert_eq!((fit.fill.search, fit.fill.walker), (1, 256));
}

#[test]
fn random_transactions_change_everything_or_nothing() {
    let mut random = Random::new();
    let (mut registry, sink) = registry(TableLimits {
        search: 60,
        walker: 25,
    });
    let ids: Vec<u64> = (0..4).map(|_| random.next()).collect();
    let mut refused = 0;
    for _ in 0..4000 {
        let before: Vec<_> = registry.conditions().copied().collect();
        let fill = registry.fill();
        let changes: Vec<Change> = (0..1 + random.below(5))
            .map(|_| {
                let known = before.get(random.below(40) as usize).map(|c| c.id);
                let id = known.unwrap_or(ConditionId::from_bits(random.below(40)));
                match random.below(6) {
                    0..=2 => {
                        let mut spec = ConditionSpec::new(sink, filter(&mut random, &ids), 7);
                        spec.active = random.below(4) != 0;
                        spec.accept = FlagSet::from_bits(random.below(16) as u8);
                        Change::Add(spec)
                    }
                    3 => Change::Remove(id),
                    4 => Change::SetActive(id, random.below(2) == 0),
                    _ => {
                        Change::Replace(id, ConditionSpec::new(sink, filter(&mut random, &ids), 8))
                    }
                }
            })
            .collect();
        match registry.apply(&CALLER, &changes) {
            Err(_) => {
                refused += 1;
                let after: Vec<_> = registry.conditions().copied().collect();
                assert_eq!(after, before, "seed {}", random.seed());
                assert_eq!(registry.fill(), fill);
            }
            Ok(applied) => {
                // The table is the one that a registry compiled from scratch would give.
                let active: Vec<_> = registry
                    .conditions()
                    .filter(|c| c.spec.active)
                    .copied()
                    .collect();
                let list: Vec<_> = active.iter().map(|c| (c.id, c.spec.filter)).collect();
                for _ in 0..20 {
                    let id = EventId(ids[random.below(4) as usize] ^ random.below(1 << 20));
                    let found: Vec<_> = applied.table.matches(id).map(|e| e.condition).collect();
                    let mut expected = oracle(&list, id);
                    let mut sorted = found.clone();
                    sorted.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(sorted, expected, "seed {}", random.seed());
                }
            }
        }
        let full = registry.conditions().count() > 80;
        if full {
            let all: Vec<Change> = registry
                .conditions()
                .map(|c| Change::Remove(c.id))
                .collect();
            registry.apply(&CALLER, &all).unwrap();
        }
    }
    assert!((100..3900).contains(&refused), "both happen: {refused}");
}
