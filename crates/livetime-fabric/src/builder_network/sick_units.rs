//! Units that are not well: slow ones, and those that die and may begin again.

use livetime_wire::{DurationNs, Problem};

use super::placement::{is_chosen, spread};
use crate::problem_code::BUILDER_NETWORK;
use crate::time::DurationPs;

/// Shortest time after which a unit that died begins again: the others know by then that it is gone,
/// and what was on its way to it has come or is lost.
pub(super) const DEAD_FOR_MIN: DurationPs = DurationPs::from_ms(5);

/// Units of a kind that die all at once, and when they begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deaths {
    /// So many, spread over all of their kind.
    pub units: u32,
    /// When, from the start of the run.
    pub at: DurationPs,
    /// How much later they begin again, with nothing of what they had; `None` for never.
    pub dead_for: Option<DurationPs>,
}

/// Units that are not well. Slow and dead builder units are different ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SickUnits {
    /// So many builder units take longer for an event, spread over all.
    pub slow: u32,
    /// By this factor.
    pub slow_factor: f64,
    /// Builder units that die. The event manager finds them by their silence, and others build their
    /// events.
    pub builders: Deaths,
    /// Readout units that die. Events are closed without their fragments meanwhile.
    pub readouts: Deaths,
    /// The event manager, if it dies: one unit, which must begin again.
    pub manager: Deaths,
}

impl Default for SickUnits {
    fn default() -> Self {
        Self {
            slow: 0,
            slow_factor: 1.0,
            builders: Deaths::default(),
            readouts: Deaths::default(),
            manager: Deaths::default(),
        }
    }
}

impl SickUnits {
    /// Whether a builder unit, of so many, is slow.
    pub(super) fn is_slow(&self, builder: u16, all: u32) -> bool {
        is_chosen(builder, self.slow, all, 0)
    }

    /// Which builder units, of so many, are to die: spread over all, and each that would be a slow one
    /// is the next one that is well.
    pub(super) fn dying_builders(&self, all: u32) -> Vec<bool> {
        let mut is_slow = vec![false; all as usize];
        for place in spread(self.slow, all, 0) {
            is_slow[place as usize] = true;
        }
        let mut dies = vec![false; all as usize];
        for place in spread(self.builders.units, all, 1) {
            let mut places = (place..all).chain(0..place).map(|place| place as usize);
            if let Some(place) = places.find(|place| !is_slow[*place] && !dies[*place]) {
                dies[place] = true;
            }
        }
        dies
    }

    /// Whether a readout unit, of so many, is to die.
    pub(super) fn readout_dies(&self, readout: u16, all: u32) -> bool {
        is_chosen(readout, self.readouts.units, all, 1)
    }

    /// How often builder units tell that they live: where somebody asks for it.
    pub(super) fn heartbeat(&self) -> DurationNs {
        match self.builders.units + self.manager.units {
            0 => DurationNs(0),
            _ => DurationNs(100 * DurationNs::MILLISECOND.0),
        }
    }

    /// Everything that is wrong with so many readout and builder units, in a run that ends then.
    pub(super) fn check(
        &self,
        (readouts, builders): (u32, u32),
        end: DurationPs,
        problems: &mut Vec<Problem>,
    ) {
        let mut report = |path: &str, found: String, allowed: String, help: &str| {
            problems.push(Problem::new(BUILDER_NETWORK, path, found, allowed, help));
        };
        let sick = self.slow.saturating_add(self.builders.units);
        if sick > 0 && sick >= builders {
            let help = "leave at least one builder unit well";
            let allowed = format!("below {builders} slow and dead ones");
            let path = match self.builders.units >= self.slow {
                true => "builder.dead",
                false => "builder.slow",
            };
            let found = format!("{} slow and {} dead", self.slow, self.builders.units);
            report(path, found, allowed, help);
        }
        if self.slow > 0 && !(1.0..=1e6).contains(&self.slow_factor) {
            let found = self.slow_factor.to_string();
            let help = "2 for builder units of half the speed";
            report("builder.slow_factor", found, "1 to 1000000".into(), help);
        }
        if self.readouts.units > 0 && self.readouts.units >= readouts {
            let found = self.readouts.units.to_string();
            let help = "leave at least one readout unit well";
            let allowed = format!("below {readouts}, the number of readout units");
            report("builder.dead_readouts", found, allowed, help);
        }
        for (at, dead_for, deaths) in [
            ("builder.dead_at", "builder.dead_for", &self.builders),
            (
                "builder.dead_readouts_at",
                "builder.dead_readouts_for",
                &self.readouts,
            ),
            (
                "builder.dead_manager_at",
                "builder.dead_manager_for",
                &self.manager,
            ),
        ] {
            if let Some(time) = deaths.dead_for.filter(|time| *time < DEAD_FOR_MIN) {
                let allowed = format!("{DEAD_FOR_MIN} or more");
                let help = "leave the others the time to hear that it is gone";
                report(dead_for, time.to_string(), allowed, help);
            }
            if deaths.units > 0 && deaths.at >= end {
                let allowed = format!("before {end}, the end of the run");
                let help = "raise `duration`, or let it die sooner";
                report(at, deaths.at.to_string(), allowed, help);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sick(slow: u32, dead: u32) -> SickUnits {
        SickUnits {
            slow,
            builders: Deaths {
                units: dead,
                ..Deaths::default()
            },
            ..SickUnits::default()
        }
    }

    /// Where in a list of units those are that are meant.
    fn places(units: impl Iterator<Item = bool>) -> Vec<usize> {
        let units = units.enumerate().filter(|(_, is_meant)| *is_meant);
        units.map(|(unit, _)| unit).collect()
    }

    #[test]
    fn slow_and_dead_builder_units_are_different_ones() {
        for all in 1..=24 {
            for (slow, dead) in (0..all).flat_map(|slow| (0..all - slow).map(move |n| (slow, n))) {
                let sick = sick(slow, dead);
                let dies = places(sick.dying_builders(all).into_iter());
                let is_slow = places((0..all as u16).map(|unit| sick.is_slow(unit, all)));
                let counts = (is_slow.len() as u32, dies.len() as u32);
                assert_eq!(counts, (slow, dead), "of {all}");
                assert!(dies.iter().all(|unit| !is_slow.contains(unit)), "{sick:?}");
            }
        }
    }

    #[test]
    fn those_that_die_are_spread_over_all() {
        let dying = |slow, dead, all| places(sick(slow, dead).dying_builders(all).into_iter());
        assert_eq!(dying(0, 3, 8), [1, 3, 6]);
        assert_eq!(dying(4, 4, 16), [1, 5, 9, 13]);
        // Unit 6 is slow.
        assert_eq!(dying(4, 3, 8), [1, 3, 7]);
    }
}
