//! Which builder units, filter units and writer build, filter and write together.
//!
//! A run has as many groups as it has writers: unit `n` of each kind is in group `n` modulo their
//! number. Nothing but messages of the event builder goes from one group to another, so that each
//! can be on a host of its own. A group has one or several subfarms.

use livetime_wire::{UnitId, UnitKind};

use crate::chain_config::ChainConfig;

/// One group of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildingGroup {
    /// Which, from 0: the index of its writer.
    pub index: u16,
    /// Groups of the run, at least 1.
    pub count: u16,
}

impl BuildingGroup {
    /// The group of builder unit, filter unit or writer `unit`.
    pub fn of(config: &ChainConfig, unit: u16) -> Self {
        let count = config.builder.writers.max(1);
        Self {
            index: unit % count,
            count,
        }
    }

    /// Whether a builder unit, filter unit or writer is in it.
    #[inline]
    pub fn has(&self, unit: u16) -> bool {
        unit % self.count == self.index
    }

    /// The place of a unit among those of its kind in the group; `None` for one of another group.
    #[inline]
    pub fn place_of(&self, unit: u16) -> Option<usize> {
        self.has(unit).then(|| usize::from(unit / self.count))
    }

    /// The units of a kind that are in it, of `total` in all groups.
    pub fn units(
        &self,
        kind: UnitKind,
        total: u16,
    ) -> impl Iterator<Item = UnitId> + Clone + use<> {
        let units = (self.index..total).step_by(self.count.into());
        units.map(move |index| UnitId { kind, index })
    }

    /// Its builder units.
    pub fn builders(&self, config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
        self.units(UnitKind::Builder, config.builder.builder_units)
    }

    /// Its filter units.
    pub fn filters(&self, config: &ChainConfig) -> impl Iterator<Item = UnitId> + Clone + use<> {
        self.units(UnitKind::Filter, config.builder.filter_units)
    }

    /// Its writer.
    pub fn writer(&self) -> UnitId {
        UnitId {
            kind: UnitKind::Writer,
            index: self.index,
        }
    }
}

/// Whether the loss of a unit is another's business: builder units, filter units and writers know
/// those of their own group alone, all others know everybody.
pub fn knows(writers: u16, unit: UnitId, other: UnitId) -> bool {
    let is_in_group = |unit: UnitId| {
        let kinds = [UnitKind::Builder, UnitKind::Filter, UnitKind::Writer];
        kinds.contains(&unit.kind)
    };
    let count = writers.max(1);
    !is_in_group(unit) || !is_in_group(other) || unit.index % count == other.index % count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_has_one_place_in_one_group() {
        for count in 1..5 {
            for unit in 0..20 {
                let groups = (0..count).map(|index| BuildingGroup { index, count });
                let places: Vec<(u16, usize)> = groups
                    .filter_map(|group| Some((group.index, group.place_of(unit)?)))
                    .collect();
                assert_eq!(places, [(unit % count, usize::from(unit / count))]);
            }
        }
        let group = BuildingGroup { index: 1, count: 3 };
        let builders = group.units(UnitKind::Builder, 8);
        assert!(builders.eq([1, 4, 7].map(UnitId::builder)));
    }

    #[test]
    fn only_units_of_one_group_know_each_other() {
        let (builder, filter) = (UnitId::builder(1), UnitId::filter(4));
        assert!(knows(1, builder, filter));
        assert!(!knows(2, builder, filter));
        assert!(knows(3, builder, filter));
        for other in [UnitId::EVENT_MANAGER, UnitId::readout(0)] {
            assert!(knows(4, builder, other) && knows(4, other, filter));
        }
    }
}
