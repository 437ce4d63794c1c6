//! Which unit is on which port, and which builder units are not well.

use super::{Placement, SickUnits};
use crate::address::NodeId;
use crate::network::traffic;
use crate::random::{Purpose, RandomStreams};

/// No unit on a port.
pub(super) const NONE: u16 = u16::MAX;

/// The port of each of `units` units, of `ports` ports.
pub(super) fn ports(placement: Placement, ports: u32, units: u32, seed: u64) -> Vec<u16> {
    let order: Vec<u32> = match placement {
        Placement::InOrder => (0..ports).collect(),
        Placement::Interleaved { slot_ports } => {
            let slots = ports / slot_ports;
            (0..ports)
                .map(|unit| unit % slots * slot_ports + unit / slots)
                .collect()
        }
        Placement::Random => {
            let mut random = RandomStreams::new(seed).stream(NodeId(0), Purpose(43));
            traffic::random_permutation(ports, &mut random)
        }
    };
    let units = order.into_iter().take(units as usize);
    units.map(|port| port as u16).collect()
}

/// The unit on each of `ports` ports.
pub(super) fn units_at(port_of: &[u16], ports: u32) -> Vec<u16> {
    let mut units = vec![NONE; ports as usize];
    for (unit, port) in (0..).zip(port_of) {
        units[usize::from(*port)] = unit;
    }
    units
}

/// The units that are chosen when `chosen` are spread evenly over `all`, from unit number `shift` on.
pub(super) fn spread(chosen: u32, all: u32, shift: u32) -> impl Iterator<Item = u32> {
    (0..chosen).map(move |n| (n * all / chosen + shift) % all)
}

/// Whether a unit is one of those that are chosen so.
pub(super) fn is_chosen(unit: u16, chosen: u32, all: u32, shift: u32) -> bool {
    spread(chosen, all, shift).any(|place| place == u32::from(unit))
}

/// Events of a slow unit as a share of those of one that is well; 1 without slow ones.
pub(super) fn slow_share(counted: &[u64], sick: &SickUnits) -> f64 {
    let all = counted.len() as u32;
    let dying = sick.dying_builders(all);
    let (mut of_slow, mut of_well, mut well) = (0, 0, 0_u32);
    for (unit, count) in (0..).zip(counted) {
        if sick.is_slow(unit, all) {
            of_slow += count;
        } else if !dying[usize::from(unit)] {
            of_well += count;
            well += 1;
        }
    }
    match sick.slow {
        0 => 1.0,
        slow => {
            let mean = |sum: u64, units: u32| sum as f64 / f64::from(units.max(1));
            mean(of_slow, slow) / mean(of_well, well).max(1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placement_puts_each_unit_on_a_port_of_its_own() {
        for placement in [
            Placement::InOrder,
            Placement::Interleaved { slot_ports: 4 },
            Placement::Random,
        ] {
            let mut of = ports(placement, 16, 16, 1);
            let at = units_at(&of, 16);
            for (unit, port) in (0..).zip(&of) {
                assert_eq!(at[usize::from(*port)], unit);
            }
            if placement == (Placement::Interleaved { slot_ports: 4 }) {
                assert_eq!(of[..5], [0, 4, 8, 12, 1]);
            }
            of.sort_unstable();
            assert_eq!(of, (0..16).collect::<Vec<u16>>());
        }
        assert_eq!(units_at(&ports(Placement::InOrder, 4, 2, 1), 4)[2], NONE);
    }

    #[test]
    fn slow_units_have_a_share_of_those_that_are_well() {
        let sick = SickUnits {
            slow: 1,
            ..SickUnits::default()
        };
        assert!((slow_share(&[5, 10, 0, 10], &sick) - 0.75).abs() < 1e-9);
    }
}
