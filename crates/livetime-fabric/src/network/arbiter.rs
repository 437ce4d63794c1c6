//! Arbiters: who of those that wait gets a link.
//!
//! They see the waiting inputs of one output and nothing of the packets behind. All engines of
//! this crate that queue at an output use them.

/// How a link that becomes free is given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arbiter {
    /// Any of those that wait with equal probability.
    #[default]
    Random,
    /// The one that waits longest.
    Oldest,
    /// The next input port after the one served last.
    RoundRobin,
    /// The input port that was served longest ago (matrix arbiter).
    LeastRecent,
    /// The lowest input port.
    Fixed,
}

impl Arbiter {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Random,
        Self::Oldest,
        Self::RoundRobin,
        Self::LeastRecent,
        Self::Fixed,
    ];

    /// The name, as it is written in scenario files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Oldest => "oldest",
            Self::RoundRobin => "round-robin",
            Self::LeastRecent => "least-recent",
            Self::Fixed => "fixed",
        }
    }
}

/// When each input port of each link was served last, for [`Arbiter::LeastRecent`]; for all others it
/// remembers nothing.
#[derive(Debug)]
pub(super) struct ServedPorts {
    /// By link and port: the number of the grant; 0 for none.
    served: Vec<u64>,
    ports: usize,
    grants: u64,
}

impl ServedPorts {
    /// For so many links with at most so many input ports.
    pub(super) fn new(arbiter: Arbiter, links: usize, ports: usize) -> Self {
        let served = match arbiter {
            Arbiter::LeastRecent => vec![0; links * ports],
            _ => Vec::new(),
        };
        Self {
            served,
            ports,
            grants: 0,
        }
    }

    /// A link was given to a port.
    pub(super) fn note(&mut self, link: usize, port: u16) {
        if let Some(served) = self.served.get_mut(link * self.ports + usize::from(port)) {
            self.grants += 1;
            *served = self.grants;
        }
    }

    /// The order of ports: the lowest was served longest ago, or never.
    pub(super) fn rank(&self, link: usize, port: u16) -> u64 {
        let served = self.served.get(link * self.ports + usize::from(port));
        served.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_that_was_served_longest_ago_comes_first() {
        let mut ports = ServedPorts::new(Arbiter::LeastRecent, 2, 3);
        [2, 0, 2].iter().for_each(|port| ports.note(1, *port));
        let order = |ports: &ServedPorts, link| {
            let mut order = [0, 1, 2];
            order.sort_by_key(|port| ports.rank(link, *port));
            order
        };
        assert_eq!(order(&ports, 1), [1, 0, 2], "1 never, 2 just now");
        assert_eq!(order(&ports, 0), [0, 1, 2], "another link");
        let mut others = ServedPorts::new(Arbiter::Fixed, 2, 3);
        others.note(1, 0);
        assert_eq!(order(&others, 1), [0, 1, 2]);
    }
}
