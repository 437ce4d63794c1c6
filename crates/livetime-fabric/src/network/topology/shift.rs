//! Orders of destinations in which all sources can send at once: the schedules of barrel shifters.
//!
//! In step t source s sends to destination (index(s) + t) mod N. Whether a schedule is free of
//! conflicts is checked link by link, never assumed.

use super::{RouteNumbers, RoutePolicy, Routing, Topology};

/// A schedule: the logical index of each source, and how routes are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShiftSchedule {
    /// Logical index of each source.
    pub index: Vec<u32>,
    /// How routes are chosen.
    pub policy: RoutePolicy,
}

/// Two routes of one step that share a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("in step {step} sources {first} and {second} share link {link}")]
pub struct ShiftConflict {
    /// Step of the schedule.
    pub step: u32,
    /// The link.
    pub link: u32,
    /// A source that uses it.
    pub first: u32,
    /// Another source that uses it.
    pub second: u32,
}

impl ShiftSchedule {
    /// The plain order: source s starts at destination s.
    pub fn naive(topology: &Topology, policy: RoutePolicy) -> Self {
        Self {
            index: (0..topology.sources()).collect(),
            policy,
        }
    }

    /// The schedule of a topology that is free of conflicts; `None` where none is known.
    pub fn conflict_free(topology: &Topology) -> Option<Self> {
        let plain = || (0..topology.sources()).collect();
        let (index, policy) = match &topology.routing {
            Routing::Crossbar => (plain(), RoutePolicy::BySourcePort),
            Routing::Delta(delta) => (delta.positions().to_vec(), RoutePolicy::BySourcePort),
            Routing::FourLayer(four) => (four.shift_order(), RoutePolicy::BySourcePort),
            Routing::SixLayer(six) => (six.shift_order(), RoutePolicy::BySourcePort),
            Routing::Clos(clos) => (clos.shift_order()?, RoutePolicy::BySourcePort),
            Routing::TwoLevel(two) => (two.shift_order()?, RoutePolicy::BySourcePort),
            Routing::FatTree(_) => (plain(), RoutePolicy::ByDestination),
            Routing::Benes(_) | Routing::Graph(_) => return None,
        };
        Some(Self { index, policy })
    }

    /// Destination of a source in a step.
    #[inline]
    pub fn destination(&self, source: u32, step: u64, destinations: u32) -> u32 {
        let index = u64::from(self.index[source as usize]);
        ((index + step) % u64::from(destinations)) as u32
    }

    /// The first two routes that share a link in some step of `0..steps`. Trunks that are `k`
    /// times faster may carry `k` routes. Of routes that are drawn it sees some that may come.
    pub fn first_conflict(&self, topology: &Topology, steps: u32) -> Option<ShiftConflict> {
        let links = topology.links();
        let mut users: Vec<(u32, u32, u32)> = vec![(u32::MAX, 0, 0); links.len()];
        for step in 0..steps {
            for source in 0..topology.sources() {
                let to = self.destination(source, u64::from(step), topology.destinations());
                let numbers = RouteNumbers {
                    packet: u64::from(step),
                    random: u64::from(step),
                    seed: 0,
                };
                let route = topology.chosen_route(source, to, self.policy, numbers);
                for link in route.links() {
                    let user = &mut users[*link as usize];
                    if user.0 != step {
                        *user = (step, source, 0);
                    }
                    user.2 += 1;
                    if user.2 > links[*link as usize].speed {
                        return Some(ShiftConflict {
                            step,
                            link: *link,
                            first: user.1,
                            second: source,
                        });
                    }
                }
            }
        }
        None
    }
}
