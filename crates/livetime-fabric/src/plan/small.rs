//! A large plan in small: how the protocol is set is searched for with fewer nodes.
//!
//! A run of hundreds of nodes takes long, and a search takes several of them. Where sources and
//! builder units become fewer by one factor and the rate of triggers stays, every link and every
//! unit's processor keeps its load: a builder unit gets as many times more events as each has fewer
//! fragments. An event is then in building for a shorter time by that factor, and as many credits
//! cover it. What holds for a whole event (filter, what a buffer holds of it) is scaled with it. What
//! a network loses by contention, and what the event manager has to do, may differ: the run that is
//! judged is one of the whole.

use super::PlanRequest;
use crate::time::DurationPs;

/// Nodes of a plan in small, nearly.
const NODES: u32 = 64;

impl PlanRequest {
    /// Nodes on either side of the network.
    pub(super) fn nodes(&self) -> u32 {
        self.sources.max(self.builders)
    }

    /// The same in small; `None` if it is not large.
    pub(super) fn in_small(&self) -> Option<Self> {
        let times = self.nodes() / NODES;
        if times < 2 {
            return None;
        }
        let fewer = |units: u32| (units + times / 2) / times;
        let mut small = self.clone();
        small.sources = fewer(self.sources).max(2);
        small.builders = fewer(self.builders).max(1);
        small.hosts.event = DurationPs(self.hosts.event.0 / u64::from(times));
        small.buffer_bytes = (self.buffer_bytes / u64::from(times)).max(self.largest());
        Some(small)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::super::{Bottleneck, PlanRequest};
    use super::DurationPs;
    use crate::builder_network::Shaping;

    #[test]
    fn loads_are_those_of_the_whole() {
        assert_eq!(request().in_small(), None);
        let mut large = PlanRequest {
            sources: 512,
            builders: 256,
            buffer_bytes: 1 << 20,
            ..request()
        };
        large.hosts.event = DurationPs::from_us(800);
        let small = large.in_small().unwrap();
        assert_eq!((small.sources, small.builders), (64, 32));
        assert_eq!(small.problem(), None);
        let loads = |request: &PlanRequest| request.loads(Shaping::None);
        for ((what, whole), (_, part)) in loads(&large).into_iter().zip(loads(&small)) {
            assert!((whole - part).abs() < 1e-9, "{what:?}: {whole} and {part}");
        }
        assert!(
            loads(&large)
                .iter()
                .any(|(what, load)| *what == Bottleneck::Filter && *load > 0.0)
        );
        // Buffers keep room for one of the largest packets.
        large.buffer_bytes = 30_000;
        let small = large.in_small().unwrap();
        assert_eq!((small.buffer_bytes, small.problem()), (22_528, None));
        // One side may be small already.
        large.builders = 1;
        assert_eq!(large.in_small().unwrap().builders, 1);
    }
}
