//! Links inside of elements: from inputs to the queues of outputs, or to crosspoints.
//!
//! An element with queues at both sides is modelled by one more link on the way through it. It begins
//! at an input, carries packets as other links do, and ends in a small queue of its own, from which
//! the output link takes them. There is one for each output, which all inputs share, or one for each
//! pair of input and output. Numbers of inner links follow those of the topology's.

use super::super::link_report::BufferOwner;
use super::super::topology::{LinkEnd, Topology};
use super::buffering::Queueing;

/// No link.
const NONE: u32 = u32::MAX;
/// Thousandths of the rate of an output.
const WHOLE: u32 = 1000;

/// An inner link.
#[derive(Debug, Clone, Copy)]
pub(super) struct InnerLink {
    /// Element that it is in.
    pub(super) element: u32,
    /// Input port that it begins at; 0 where all share it.
    pub(super) input: u16,
    /// Output port whose queue it ends in.
    pub(super) output: u16,
    /// The link of that output; [`NONE`] of an output that has none.
    pub(super) towards: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outputs,
    Crosspoints,
}

/// All inner links of a network.
#[derive(Debug)]
pub(super) struct InnerLinks {
    /// Where there are any.
    place: Option<Place>,
    /// Links of the topology.
    outer: u32,
    /// Number of the first crosspoint of each element.
    first: Vec<u32>,
    pub(super) links: Vec<InnerLink>,
    /// Rate in thousandths of the output's.
    pub(super) thousandths: u32,
    /// Bytes of the queue that each ends in.
    pub(super) bytes: u64,
}

impl InnerLinks {
    /// Those that the queues need.
    pub(super) fn new(topology: &Topology, queueing: Queueing) -> Self {
        let outer = topology.links().len() as u32;
        let mut inner = Self {
            place: None,
            outer,
            first: Vec::new(),
            links: Vec::new(),
            thousandths: WHOLE,
            bytes: 0,
        };
        // The links of sources come first; all others begin at outputs.
        let outputs = (0..).zip(topology.links());
        let outputs = outputs.skip(topology.sources() as usize);
        let outputs = outputs.filter_map(|(towards, link)| match link.from {
            LinkEnd::Port { element, port } => Some(InnerLink {
                element,
                input: 0,
                output: port as u16,
                towards,
            }),
            LinkEnd::Source(_) | LinkEnd::Destination(_) => None,
        });
        match queueing {
            Queueing::Combined {
                speedup_thousandths,
                output_bytes,
                ..
            } => {
                inner.place = Some(Place::Outputs);
                inner.thousandths = speedup_thousandths;
                inner.bytes = output_bytes;
                inner.links = outputs.collect();
            }
            Queueing::Crosspoint { bytes } => {
                inner.place = Some(Place::Crosspoints);
                inner.bytes = bytes;
                inner.make_crosspoints(topology, outputs);
            }
            Queueing::InputFifo
            | Queueing::VirtualOutput
            | Queueing::Matched(_)
            | Queueing::Output => {}
        }
        inner
    }

    /// Most links of a route.
    pub(super) fn stride(&self, topology: &Topology) -> usize {
        match self.links.is_empty() {
            true => topology.hops_max() + 1,
            // One more in each element.
            false => 2 * topology.hops_max() + 1,
        }
    }

    fn make_crosspoints(&mut self, topology: &Topology, outputs: impl Iterator<Item = InnerLink>) {
        for (element, ports) in (0..).zip(topology.elements()) {
            self.first.push(self.outer + self.links.len() as u32);
            // Numbers of ports are below `PORTS_MAX`; their count is no number of 16 bits.
            for input in 0..ports.inputs {
                self.links
                    .extend((0..ports.outputs).map(|output| InnerLink {
                        element,
                        input: input as u16,
                        output: output as u16,
                        towards: NONE,
                    }));
            }
        }
        for InnerLink {
            element,
            output,
            towards,
            ..
        } in outputs
        {
            let ports = topology.elements()[element as usize];
            let first = (self.first[element as usize] - self.outer) as usize;
            for input in 0..ports.inputs as usize {
                let crosspoint = first + input * ports.outputs as usize + usize::from(output);
                self.links[crosspoint].towards = towards;
            }
        }
    }

    /// The link that packets go to from the inputs on their way to an output link, where all inputs
    /// share one.
    pub(super) fn towards(&self, topology: &Topology, output: u32) -> u32 {
        match self.place {
            Some(Place::Outputs) => self.outer + output - topology.sources(),
            _ => output,
        }
    }

    /// The inner link to an output link from the link that a packet comes by, if there is one.
    fn number(&self, topology: &Topology, from: u32, to: u32) -> Option<u32> {
        match self.place? {
            Place::Outputs => Some(self.outer + to - topology.sources()),
            Place::Crosspoints => {
                let links = topology.links();
                let LinkEnd::Port { element, port } = links[from as usize].to else {
                    return None;
                };
                let LinkEnd::Port { port: output, .. } = links[to as usize].from else {
                    return None;
                };
                let outputs = topology.elements()[element as usize].outputs;
                Some(self.first[element as usize] + port * outputs + output)
            }
        }
    }

    /// Values by link: those of the topology's links, and then of the inner ones.
    pub(super) fn extend<T>(
        &self,
        outer: impl Iterator<Item = T>,
        value: impl Fn(&InnerLink) -> T,
    ) -> Vec<T> {
        outer.chain(self.links.iter().map(value)).collect()
    }

    /// The first queue behind each link, and at the end their number: `lanes` behind each of the
    /// topology, one behind each inner one.
    pub(super) fn first_queues(&self, lanes: usize) -> Vec<u32> {
        let of_inner = self.outer * lanes as u32;
        let outer = (0..=self.outer).map(|link| link * lanes as u32);
        let inner = (1..=self.links.len() as u32).map(|link| of_inner + link);
        outer.chain(inner).collect()
    }

    /// Rates of all links, bits per second, if that of a node is `bits_per_s`.
    pub(super) fn rates(&self, topology: &Topology, bits_per_s: u64) -> Vec<u64> {
        let outer: Vec<u64> = topology.rates(bits_per_s).collect();
        let thousandths = u128::from(self.thousandths);
        let faster = |rate: u64| (u128::from(rate) * thousandths / u128::from(WHOLE)) as u64;
        self.extend(outer.iter().copied(), |link| {
            let output = outer.get(link.towards as usize);
            faster(output.copied().unwrap_or(bits_per_s))
        })
    }

    /// Writes a route with the inner links on its way, two for each element.
    pub(super) fn write_route(&self, topology: &Topology, route: &[u32], places: &mut [u32]) {
        places[0] = route[0];
        for (hop, pair) in route.windows(2).enumerate() {
            let inner = self.number(topology, pair[0], pair[1]);
            places[2 * hop + 1] = inner.expect("routes lead through elements");
            places[2 * hop + 2] = pair[1];
        }
    }

    /// Whose the queue is that inner link number `index` ends in.
    pub(super) fn owner(&self, index: usize) -> Option<BufferOwner> {
        let link = self.links.get(index)?;
        let (element, port) = (link.element, u32::from(link.output));
        Some(match self.place? {
            Place::Outputs => BufferOwner::Output { element, port },
            Place::Crosspoints => BufferOwner::Crosspoint {
                element,
                input: link.input.into(),
                output: port,
            },
        })
    }
}
