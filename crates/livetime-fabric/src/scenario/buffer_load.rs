//! How much the credits of an event builder can bring into one buffer of its network at once.
//!
//! A builder unit asks each readout unit for no more fragments than it has credits. What can be in a
//! buffer is so many fragments for each pair of units whose packets go through it, whatever else
//! happens in the network, as long as nothing is asked for twice. Who says it to people is `notes`.

use crate::network::topology::{LinkEnd, RouteNumbers, RoutePolicy};
use crate::network::{BufferPlace, Topology};

/// The most routes that are walked: with more of them all pairs are taken to meet.
const ROUTES_MAX: u64 = 1 << 22;

/// Who sends to whom, and by which routes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pairs<'p> {
    /// Ports of the readout units.
    pub(super) sources: &'p [u16],
    /// Ports of the builder units.
    pub(super) destinations: &'p [u16],
    /// Which routes they take.
    pub(super) policy: RoutePolicy,
    /// The seed that routes of pairs are drawn by.
    pub(super) seed: u64,
}

impl Pairs<'_> {
    /// The most pairs whose packets go through one buffer; of networks with very many routes all
    /// pairs, which is never too few.
    pub(super) fn most_in_a_buffer(&self, topology: &Topology, place: BufferPlace) -> u64 {
        let (sources, destinations) = (self.sources.len() as u64, self.destinations.len() as u64);
        if topology.elements().len() == 1 {
            return match place {
                BufferPlace::Input => destinations,
                BufferPlace::Output => sources,
                BufferPlace::Shared => sources * destinations,
            };
        }
        let walked = self.walk(topology, place);
        walked.unwrap_or(sources * destinations)
    }

    /// Counts the pairs of each buffer along all routes; `None` if these are too many.
    fn walk(&self, topology: &Topology, place: BufferPlace) -> Option<u64> {
        let buffers = topology.links().len().max(topology.elements().len());
        let mut pairs_of = vec![0_u64; buffers];
        let mut last_pair = vec![0_u64; buffers];
        let (mut pair, mut left) = (0, ROUTES_MAX);
        for source in self.sources {
            for destination in self.destinations {
                pair += 1;
                let ends = [u32::from(*source), u32::from(*destination)];
                let choices = self.choices(topology, ends);
                left = left.checked_sub(choices)?;
                for choice in 0..choices {
                    let numbers = RouteNumbers {
                        packet: choice,
                        random: choice,
                        seed: self.seed,
                    };
                    let route = topology.chosen_route(ends[0], ends[1], self.policy, numbers);
                    for links in route.links().windows(2) {
                        let buffer = buffer_between(topology, place, links) as usize;
                        if last_pair[buffer] != pair {
                            last_pair[buffer] = pair;
                            pairs_of[buffer] += 1;
                        }
                    }
                }
            }
        }
        pairs_of.into_iter().max()
    }

    /// Routes that packets of a pair may take.
    fn choices(&self, topology: &Topology, [from, to]: [u32; 2]) -> u64 {
        match self.policy {
            RoutePolicy::Random | RoutePolicy::InTurn => topology.route_count(from, to),
            RoutePolicy::BySourcePort | RoutePolicy::ByDestination | RoutePolicy::RandomPerPair => {
                1
            }
        }
    }
}

/// The buffer between two links that follow each other on a route, numbered as its place says: by
/// the link into it, by the link out of it or by its element.
fn buffer_between(topology: &Topology, place: BufferPlace, links: &[u32]) -> u32 {
    match place {
        BufferPlace::Input => links[0],
        BufferPlace::Output => links[1],
        BufferPlace::Shared => match topology.links()[links[0] as usize].to {
            LinkEnd::Port { element, .. } => element,
            // No route goes on behind a node.
            LinkEnd::Source(node) | LinkEnd::Destination(node) => node,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::packet_source::PacketSources;
    use crate::network::topology::Wiring;
    use crate::network::{Load, Pattern, SizeLaw, Traffic};

    #[test]
    fn pairs_meet_where_their_routes_do() {
        let all: Vec<u16> = (0..16).collect();
        let most = |topology: &Topology, policy, units: &[u16]| {
            let pairs = Pairs {
                sources: units,
                destinations: units,
                policy,
                seed: 1,
            };
            [BufferPlace::Input, BufferPlace::Output, BufferPlace::Shared]
                .map(|place| pairs.most_in_a_buffer(topology, place))
        };
        let random = RoutePolicy::Random;
        let crossbar = Topology::crossbar(16).unwrap();
        assert_eq!(most(&crossbar, random, &all), [16, 16, 256]);
        assert_eq!(most(&crossbar, random, &all[..3]), [3, 3, 9]);
        // Through each link of a delta go as many pairs, and through each of its elements 4 times that.
        let delta = Topology::delta(4, 2, &Wiring::Omega).unwrap();
        assert_eq!(most(&delta, random, &all), [16, 16, 64]);
        // Any pair of two edges may go over any core, unless its source says over which.
        let clos = Topology::clos(4, 4, 4).unwrap();
        assert_eq!(most(&clos, random, &all), [64, 64, 256]);
        assert_eq!(most(&clos, RoutePolicy::BySourcePort, &all), [16, 16, 64]);
    }

    /// Between 4 x 4 pairs of edges 16 pairs of units each, over four crossbars in the middle: so many as the
    /// routes of the run lead over one link.
    #[test]
    fn pairs_with_one_route_each_meet_as_the_seed_has_it() {
        let all: Vec<u16> = (0..16).collect();
        let clos = Topology::clos(4, 4, 4).unwrap();
        let policy = RoutePolicy::RandomPerPair;
        for seed in [1, 2, 7] {
            let mut pairs_of = vec![0; clos.links().len()];
            let load = Load {
                seed,
                ..Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(1), 1)
            };
            let mut sources = PacketSources::new(&clos, &load);
            for pair in (0..256).map(|pair| [pair / 16, pair % 16]) {
                let route = sources.route(&clos, policy, pair, 0);
                // No buffer is behind the last one.
                let (_, links) = route.links().split_last().unwrap();
                links.iter().for_each(|link| pairs_of[*link as usize] += 1);
            }
            let pairs = Pairs {
                sources: &all,
                destinations: &all,
                policy,
                seed,
            };
            let most = pairs.most_in_a_buffer(&clos, BufferPlace::Input);
            assert_eq!(Some(most), pairs_of.into_iter().max(), "seed {seed}");
        }
    }

    #[test]
    fn of_too_many_routes_all_pairs_are_taken_to_meet() {
        let six = Topology::six_layer(6).unwrap();
        let all: Vec<u16> = (0..216).collect();
        let pairs = Pairs {
            sources: &all,
            destinations: &all,
            policy: RoutePolicy::Random,
            seed: 1,
        };
        let most = pairs.most_in_a_buffer(&six, BufferPlace::Input);
        assert_eq!(most, 216 * 216);
    }
}
