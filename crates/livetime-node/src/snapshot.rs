//! What a run looks like at one moment, and how its rates changed over time.
//!
//! Read from the roles' counter blocks by whoever watches (live summary, drain logic, report); the
//! data path does not notice.

use std::sync::Arc;

use livetime_wire::{ChainCounts, LossCounts, RunNs, UnitKind};

use crate::counter_block::{CounterBlock, RoleCounts};
use crate::role_ends::unit_of;

/// Whether a unit is of the event builder.
pub(crate) fn is_of_builder(kind: UnitKind) -> bool {
    use UnitKind::{Builder, EventManager, Readout};
    matches!(kind, EventManager | Builder | Readout)
}

/// The counters of all roles at about one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When it was read.
    pub at: RunNs,
    /// Role ids with their counters.
    pub roles: Vec<(String, RoleCounts)>,
    /// Roles whose processes have died so far, each once: what was lost with them is settled when the
    /// run ends.
    pub died: Vec<String>,
}

impl Snapshot {
    /// Reads all blocks.
    pub fn read(at: RunNs, blocks: &[(String, Arc<CounterBlock>)]) -> Self {
        Self {
            at,
            roles: blocks
                .iter()
                .map(|(id, block)| (id.clone(), block.read()))
                .collect(),
            died: Vec::new(),
        }
    }

    /// The chain's counters, summed over roles.
    pub fn counts(&self) -> ChainCounts {
        let mut sum = ChainCounts::default();
        for (_, role) in &self.roles {
            sum.merge(&role.chain);
        }
        sum
    }

    /// The losses, summed over roles.
    pub fn losses(&self) -> LossCounts {
        let mut sum = LossCounts::new();
        for (_, role) in &self.roles {
            sum.merge(&role.losses);
        }
        sum
    }

    /// Whether every role says that it holds nothing.
    pub fn is_idle(&self) -> bool {
        self.busy_roles().next().is_none()
    }

    /// The roles that hold something, or have not said that they hold nothing.
    pub fn busy_roles(&self) -> impl Iterator<Item = &str> {
        let roles = self.roles.iter();
        roles.filter_map(|(id, role)| (role.gauges.idle != 1).then_some(id.as_str()))
    }

    /// Whether the units of the event builder say so: event manager, builder and readout units.
    pub(crate) fn are_units_idle(&self) -> bool {
        let is_unit = |id: &str| unit_of(id).is_some_and(|unit| is_of_builder(unit.kind));
        let mut units = self.roles.iter().filter(|(id, _)| is_unit(id));
        units.all(|(_, role)| role.gauges.idle == 1)
    }

    /// A role's counters, zeros when there is no such role.
    pub fn role(&self, id: &str) -> RoleCounts {
        let found = self.roles.iter().find(|(name, _)| name == id);
        found.map(|(_, counts)| *counts).unwrap_or_default()
    }

    /// Offers that came outside the trigger gate or in a pause, which is no dead time.
    pub fn refused_outside(&self) -> u64 {
        let roles = self.roles.iter();
        roles.map(|(_, role)| role.gauges.refused_outside).sum()
    }

    /// The writers that wait for room on their disks.
    pub fn full_writers(&self) -> impl Iterator<Item = &str> {
        let is_writer = |id: &str| unit_of(id).is_some_and(|unit| unit.kind == UnitKind::Writer);
        let roles = self.roles.iter();
        roles.filter_map(move |(id, role)| {
            (role.gauges.disk_full == 1 && is_writer(id)).then_some(id.as_str())
        })
    }

    /// The roles whose id starts with a kind's prefix (`ru`, `bu`, ..).
    pub fn kind<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a RoleCounts> {
        let is_kind = move |id: &str| {
            id.strip_prefix(prefix)
                .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
        };
        self.roles
            .iter()
            .filter(move |(id, _)| is_kind(id))
            .map(|(_, counts)| counts)
    }
}

/// The counters that rates are made of, at one moment; between two looks they have fractions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RateTotals {
    triggers: f64,
    l2_accepted: f64,
    filter_accepted: f64,
    built_bytes: f64,
    /// Offers and refusals without those outside the trigger gate or in a pause.
    offered: f64,
    refused: f64,
}

impl RateTotals {
    /// Those of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let counts = snapshot.counts();
        let outside = snapshot.refused_outside();
        let bytes = snapshot.kind("bu").map(|role| role.gauges.bytes);
        Self {
            triggers: counts.triggers as f64,
            l2_accepted: counts.l2_accepted as f64,
            filter_accepted: counts.filter_accepted as f64,
            built_bytes: bytes.sum::<u64>() as f64,
            offered: counts.offered as f64 - outside as f64,
            refused: counts.refused as f64 - outside as f64,
        }
    }

    /// Those at a share (0..1) of the time to a later look, as if all had come evenly between the two.
    #[must_use]
    pub fn towards(&self, later: &Self, share: f64) -> Self {
        let at = |a: f64, b: f64| a + (b - a) * share;
        Self {
            triggers: at(self.triggers, later.triggers),
            l2_accepted: at(self.l2_accepted, later.l2_accepted),
            filter_accepted: at(self.filter_accepted, later.filter_accepted),
            built_bytes: at(self.built_bytes, later.built_bytes),
            offered: at(self.offered, later.offered),
            refused: at(self.refused, later.refused),
        }
    }
}

/// Rates over one interval of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSample {
    /// End of the interval \[s since the start of the run\].
    pub at_s: f64,
    /// Triggers accepted by the supervisor \[Hz\].
    pub trigger_hz: f64,
    /// Triggers accepted by Level 2 \[Hz\].
    pub l2_accept_hz: f64,
    /// Events accepted by the filters \[Hz\].
    pub filter_accept_hz: f64,
    /// Payload bytes into the event builder \[bytes/s\].
    pub built_bytes_per_s: f64,
    /// Fraction of the offers refused, 0..1; those outside the trigger gate or in a pause are none.
    /// `None` where no other came.
    pub refused_fraction: Option<f64>,
}

impl RateSample {
    /// The rates between two snapshots; `None` when no time passed.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Self> {
        let seconds = after.at.since(before.at).as_seconds();
        if seconds <= 0.0 {
            return None;
        }
        let (a, b) = (RateTotals::of(before), RateTotals::of(after));
        Some(Self::of_totals(&a, &b, seconds, after.at.0 as f64 * 1e-9))
    }

    /// The rates between two totals `seconds` apart (above 0), the later at `at_s`.
    pub fn of_totals(a: &RateTotals, b: &RateTotals, seconds: f64, at_s: f64) -> Self {
        let rate = |a: f64, b: f64| (b - a).max(0.0) / seconds;
        let offered = (b.offered - a.offered).max(0.0);
        let refused = (b.refused - a.refused).max(0.0);
        Self {
            at_s,
            trigger_hz: rate(a.triggers, b.triggers),
            l2_accept_hz: rate(a.l2_accepted, b.l2_accepted),
            filter_accept_hz: rate(a.filter_accepted, b.filter_accepted),
            built_bytes_per_s: rate(a.built_bytes, b.built_bytes),
            refused_fraction: (offered > 0.0).then(|| (refused / offered).min(1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let block = CounterBlock::new();
        let blocks = [
            ("src0".to_owned(), block.clone()),
            ("bu1".to_owned(), CounterBlock::new()),
        ];
        let before = Snapshot::read(RunNs(0), &blocks);
        let mut counts = RoleCounts::default();
        // Of 150 offers 50 came outside the trigger gate.
        counts.chain.offered = 150;
        counts.chain.refused = 75;
        counts.gauges.refused_outside = 50;
        counts.chain.triggers = 75;
        counts.gauges.idle = 1;
        block.publish(&counts);
        let after = Snapshot::read(RunNs(500_000_000), &blocks);
        let rates = RateSample::between(&before, &after).expect("time passed");
        assert_eq!(
            (rates.trigger_hz, rates.refused_fraction),
            (150.0, Some(0.25))
        );
        // A pause, in which offers come that count for nothing.
        counts.chain.offered += 40;
        counts.chain.refused += 40;
        counts.gauges.refused_outside += 40;
        block.publish(&counts);
        let paused = Snapshot::read(RunNs(700_000_000), &blocks);
        let rates = RateSample::between(&after, &paused).expect("time passed");
        assert_eq!((rates.trigger_hz, rates.refused_fraction), (0.0, None));
        assert_eq!(RateSample::between(&after, &after), None);
        assert!(!after.is_idle(), "bu1 never said that it is idle");
        assert_eq!(after.busy_roles().collect::<Vec<_>>(), ["bu1"]);
        assert_eq!(after.kind("bu").count(), 1);
        assert_eq!(after.role("src0").chain.triggers, 75);
    }
}
