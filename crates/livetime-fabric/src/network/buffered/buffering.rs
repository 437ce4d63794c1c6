//! Buffers of switching elements, as a scenario describes them: queues, places, flow control.
//!
//! Plain values; what they do to packets is in [`super`], and [`Buffering::problems`] says which of
//! them cannot work.

use crate::matcher::{MAXIMUM_WEIGHT_PORTS, Matching};

use super::super::topology::Topology;

/// The most crosspoints of a network with a buffer at each.
const CROSSPOINTS_MAX: u64 = 1 << 22;
/// The most queues behind all links: they take 13 to 17 B each. Lanes of FIFOs cannot be more.
const QUEUES_MAX: u64 = 1 << 26;

/// When a packet may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forwarding {
    /// When its header is there; onto a faster link when it is there whole.
    #[default]
    CutThrough,
    /// When it is there whole.
    StoreAndForward,
}

/// How packets queue in an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Queueing {
    /// One FIFO for each input and lane: the head blocks those behind it.
    #[default]
    InputFifo,
    /// A queue for each pair of input and output; an input sends one packet at a time, or as many
    /// as its link is faster than a node's.
    VirtualOutput,
    /// The same, and idle inputs and outputs are matched by a scheduler instead of an arbiter of
    /// each output; not for [`BufferPlace::Output`].
    Matched(Matching),
    /// A queue for each output; an input may send to all outputs at once.
    Output,
    /// Queues for each pair of input and output at the inputs, and one at each output; between them
    /// packets go faster than on the output's link. For [`BufferPlace::Input`].
    Combined {
        /// Speed inside of the element, thousandths of that of the output's link: 1000 to 16000.
        speedup_thousandths: u32,
        /// Bytes of the queue of each output.
        output_bytes: u64,
        /// The scheduler of the elements; `None` for an arbiter of each output.
        matching: Option<Matching>,
    },
    /// Queues for each pair of input and output at the inputs, and a small one at each crosspoint of
    /// them, from which the output takes. For [`BufferPlace::Input`].
    Crosspoint {
        /// Bytes of the queue of each crosspoint.
        bytes: u64,
    },
}

/// Whose the buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BufferPlace {
    /// Each input has its own.
    #[default]
    Input,
    /// Each output has its own.
    Output,
    /// All ports of an element share one.
    Shared,
}

/// What keeps buffers from overflowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowControl {
    /// Nothing: packets that find no room are lost.
    None,
    /// A packet is sent when the next buffer has room for all of it.
    #[default]
    Credits,
    /// A packet is sent unless the next buffer holds `stop` bytes or more and has not yet fallen
    /// to `go`; what arrives after the stop needs room above it, or is lost.
    StopGo {
        /// Bytes from which senders stop.
        stop: u64,
        /// Bytes down to which they stay stopped.
        go: u64,
    },
}

/// Buffers of all elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffering {
    /// When a packet may go on.
    pub forwarding: Forwarding,
    /// How packets queue.
    pub queueing: Queueing,
    /// Whose the buffers are.
    pub place: BufferPlace,
    /// Bytes of each buffer.
    pub bytes: u64,
    /// Virtual lanes, each with a FIFO of its own at each input; a packet keeps the lane drawn for
    /// it. Only for [`Queueing::InputFifo`]; the buffer is shared by the lanes.
    pub lanes: u32,
    /// Flow control of every link.
    pub flow: FlowControl,
}

impl Queueing {
    /// The scheduler of the elements, where they have one.
    pub const fn matching(self) -> Option<Matching> {
        match self {
            Self::Matched(matching) => Some(matching),
            Self::Combined { matching, .. } => matching,
            Self::InputFifo | Self::VirtualOutput | Self::Output | Self::Crosspoint { .. } => None,
        }
    }
}

/// What cannot work in a [`Buffering`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferingProblem {
    /// Key of the scenario file, in `[switch]`.
    pub key: &'static str,
    /// What was found.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
    /// What to do.
    pub help: &'static str,
}

impl BufferingProblem {
    fn new(
        key: &'static str,
        found: impl Into<String>,
        allowed: impl Into<String>,
        help: &'static str,
    ) -> Self {
        Self {
            key,
            found: found.into(),
            allowed: allowed.into(),
            help,
        }
    }
}

impl Buffering {
    /// Queues at the end of each link: a virtual lane each, or one for each output of an element.
    pub(super) fn lanes_of(&self, topology: &Topology) -> usize {
        let outputs_max = topology.elements().iter().map(|e| e.outputs).max();
        match self.queueing {
            Queueing::InputFifo => self.lanes as usize,
            _ => outputs_max.unwrap_or(1) as usize,
        }
    }

    /// What is wrong with it for packets of up to `packet_max` bytes on a network, one problem for each
    /// key; none if nothing is.
    pub fn problems(&self, packet_max: u64, topology: &Topology) -> Vec<BufferingProblem> {
        let lanes = self.lanes_problem();
        // As many queues as there are lanes are too many where these are.
        let queues = match lanes {
            None => self.queues_problem(topology),
            Some(_) => None,
        };
        let found = [
            too_small("buffer", self.bytes, packet_max),
            lanes,
            self.speedup_problem(),
            self.inner_size_problem(packet_max),
            self.inner_place_problem(),
            self.crosspoints_problem(topology),
            queues,
            self.matching_problem(topology),
            self.thresholds_problem(),
        ];
        let mut problems: Vec<BufferingProblem> = Vec::new();
        for problem in found.into_iter().flatten() {
            if problems.iter().all(|other| other.key != problem.key) {
                problems.push(problem);
            }
        }
        problems
    }

    fn lanes_problem(&self) -> Option<BufferingProblem> {
        let report = |allowed, help| {
            let found = self.lanes.to_string();
            Some(BufferingProblem::new("lanes", found, allowed, help))
        };
        match (self.lanes, self.queueing) {
            (2..=16, Queueing::InputFifo) | (1, _) => None,
            (2..=16, _) => report(
                "1 for these queues: each output has one of its own, so that lanes change nothing",
                "leave `lanes` out, or set `queues = \"input-fifo\"`",
            ),
            _ => report("1 to 16", "1 for a single FIFO at each input"),
        }
    }

    fn speedup_problem(&self) -> Option<BufferingProblem> {
        let Queueing::Combined {
            speedup_thousandths,
            ..
        } = self.queueing
        else {
            return None;
        };
        let found = (f64::from(speedup_thousandths) / 1e3).to_string();
        let help = "2 is close to queues at outputs alone";
        let new = || BufferingProblem::new("speedup", found, "1 to 16", help);
        (!(1_000..=16_000).contains(&speedup_thousandths)).then(new)
    }

    /// Bytes of each queue inside of elements, where there are any.
    pub(crate) const fn inner_bytes(&self) -> Option<u64> {
        match self.queueing {
            Queueing::Combined { output_bytes, .. } => Some(output_bytes),
            Queueing::Crosspoint { bytes } => Some(bytes),
            Queueing::InputFifo
            | Queueing::VirtualOutput
            | Queueing::Matched(_)
            | Queueing::Output => None,
        }
    }

    /// Of the size of queues inside of elements.
    fn inner_size_problem(&self, packet_max: u64) -> Option<BufferingProblem> {
        match self.queueing {
            Queueing::Combined { output_bytes, .. } => {
                too_small("output_buffer", output_bytes, packet_max)
            }
            Queueing::Crosspoint { bytes } => too_small("crosspoint_buffer", bytes, packet_max),
            _ => None,
        }
    }

    /// Of the place of those before queues inside of elements.
    fn inner_place_problem(&self) -> Option<BufferingProblem> {
        let is_inner = matches!(
            self.queueing,
            Queueing::Combined { .. } | Queueing::Crosspoint { .. }
        );
        let new = || {
            BufferingProblem::new(
                "buffer_place",
                "not the inputs",
                "\"input\" with these queues",
                "leave `buffer_place` out: buffers inside of elements have a key of their own",
            )
        };
        (is_inner && self.place != BufferPlace::Input).then(new)
    }

    fn crosspoints_problem(&self, topology: &Topology) -> Option<BufferingProblem> {
        let crosspoints = self.inner_links(topology);
        let is_crosspoint = matches!(self.queueing, Queueing::Crosspoint { .. });
        let new = || {
            BufferingProblem::new(
                "queues",
                format!("{crosspoints} crosspoints"),
                format!("up to {CROSSPOINTS_MAX}"),
                "use smaller elements, or \"combined\"",
            )
        };
        (is_crosspoint && crosspoints > CROSSPOINTS_MAX).then(new)
    }

    /// Links inside of elements, see [`super::inner_links`].
    pub(crate) fn inner_links(&self, topology: &Topology) -> u64 {
        match self.queueing {
            Queueing::Combined { .. } => {
                topology.links().len() as u64 - u64::from(topology.sources())
            }
            Queueing::Crosspoint { .. } => {
                let elements = topology.elements().iter();
                let crosspoints = elements.map(|e| u64::from(e.inputs) * u64::from(e.outputs));
                crosspoints.sum()
            }
            _ => 0,
        }
    }

    /// Of a queue for each pair of input and output, of which large elements have too many.
    fn queues_problem(&self, topology: &Topology) -> Option<BufferingProblem> {
        let (links, lanes) = (
            topology.links().len() as u64,
            self.lanes_of(topology) as u64,
        );
        let new = || {
            BufferingProblem::new(
                "queues",
                format!(
                    "{} of them: {lanes} behind each of {links} links",
                    links * lanes
                ),
                format!("up to {QUEUES_MAX}, some 1 GB"),
                "use smaller elements, or \"input-fifo\"",
            )
        };
        (links * lanes > QUEUES_MAX).then(new)
    }

    fn matching_problem(&self, topology: &Topology) -> Option<BufferingProblem> {
        let matching = self.queueing.matching()?;
        if self.place == BufferPlace::Output {
            return Some(BufferingProblem::new(
                "buffer_place",
                "output",
                "\"input\" or \"shared\" with a matching",
                "leave `buffer_place` out: what is matched waits at the inputs",
            ));
        }
        match matching {
            Matching::Parallel { iterations }
            | Matching::Slip { iterations }
            | Matching::RoundRobin { iterations, .. } => {
                let (found, help) = (iterations.to_string(), "4 are many for 16 ports");
                let new = || BufferingProblem::new("iterations", found, "1 to 16", help);
                (!(1..=16).contains(&iterations)).then(new)
            }
            Matching::MaximumWeight => {
                let ports = topology.elements().iter();
                let ports = ports.map(|element| element.inputs.max(element.outputs));
                let ports = ports.max().unwrap_or(0);
                let new = || {
                    BufferingProblem::new(
                        "matching",
                        format!("maximum-weight on elements of {ports} ports"),
                        format!("up to {MAXIMUM_WEIGHT_PORTS} ports"),
                        "use \"islip\" or \"pim\", or smaller elements",
                    )
                };
                (ports > MAXIMUM_WEIGHT_PORTS).then(new)
            }
        }
    }

    fn thresholds_problem(&self) -> Option<BufferingProblem> {
        let FlowControl::StopGo { stop, go } = self.flow else {
            return None;
        };
        let new = || {
            BufferingProblem::new(
                "stop",
                format!("go at {go} and stop at {stop} of {} bytes", self.bytes),
                "a stop above 0 and up to the buffer, and a go up to the stop",
                "half of the buffer and a quarter are usual",
            )
        };
        (go > stop || stop > self.bytes || stop == 0).then(new)
    }
}

fn too_small(key: &'static str, bytes: u64, packet_max: u64) -> Option<BufferingProblem> {
    let new = || {
        BufferingProblem::new(
            key,
            format!("{bytes} bytes for packets of up to {packet_max} bytes"),
            "a buffer that holds the largest packet (20 times the mean of an exponential law, mean + \
             20 rms of a log-normal one)",
            "raise it, or lower the sizes",
        )
    };
    (bytes < packet_max).then(new)
}
