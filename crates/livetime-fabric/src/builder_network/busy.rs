//! How busy the hosts of a run were: what limits it is busy all the time.
//!
//! Shares of the whole run, warm-up included, each a mean over the units of a kind. Links and buses
//! follow from the rate and are not here; who draws conclusions is [`crate::plan`].

use super::control::Server;
use super::world::NetworkWorld;
use crate::time::SimPs;

/// Shares of the time, 0 to 1, in which the parts of hosts were busy.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HostShares {
    /// Processors of the readout units.
    pub readout_processor: f64,
    /// Processors of the builder units.
    pub builder_processor: f64,
    /// Processor of the event manager.
    pub manager_processor: f64,
    /// Filters behind the builder units.
    pub filter: f64,
    /// The busier of the event manager's link to the control network and those of builder units.
    pub control_link: f64,
}

impl HostShares {
    pub(super) fn of(world: &NetworkWorld<'_>, now: SimPs) -> Self {
        let mean = |servers: &mut dyn Iterator<Item = Server>| {
            let shares: Vec<f64> = servers.map(|server| server.busy_share(now)).collect();
            shares.iter().sum::<f64>() / shares.len().max(1) as f64
        };
        let (readouts, builders) = (&world.readouts, &world.builders);
        let links = mean(&mut builders.iter().map(|host| host.link));
        Self {
            readout_processor: mean(&mut readouts.iter().map(|host| host.processor)),
            builder_processor: mean(&mut builders.iter().map(|host| host.processor)),
            manager_processor: world.manager.processor.busy_share(now),
            filter: mean(&mut builders.iter().map(|host| host.filter)),
            control_link: links.max(world.manager.link.busy_share(now)),
        }
    }
}
