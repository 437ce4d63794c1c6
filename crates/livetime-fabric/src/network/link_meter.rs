//! Counts what links and buffers do in a running engine, between two times.
//!
//! Engines say when a link carries, when packets join and leave the queues behind it, and when the
//! level of a buffer changes; what lies outside the counted time is cut off. An engine has none
//! unless [`super::Load::counts_links`] asks for it. The result is a [`LinkReport`].

use crate::address::LinkId;
use crate::time::{DurationPs, SimPs};

use super::link_report::{BufferOwner, BufferUse, LinkReport, LinkUse};
use super::topology::Topology;
use super::wormhole::Load;

/// The queues of the input behind a link.
#[derive(Debug, Clone, Copy, Default)]
struct InputQueues {
    /// Packets that wait.
    waiting: u32,
    /// Queues with packets that wait.
    queues: u32,
    /// Packets that are sent on.
    sending: u32,
    /// From when these numbers hold.
    since: SimPs,
}

/// A buffer's level.
#[derive(Debug, Clone, Copy, Default)]
struct BufferLevel {
    bytes: u64,
    since: SimPs,
    /// Bytes times picoseconds.
    area: u128,
    max: u64,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct LinkMeter {
    from: SimPs,
    until: SimPs,
    node_bits_per_s: u64,
    links: Vec<LinkUse>,
    inputs: Vec<InputQueues>,
    /// Whether a queue holds packets for several outputs.
    has_mixed_queues: bool,
    buffers: Vec<BufferLevel>,
}

impl LinkMeter {
    /// For an engine with so many buffers, if the load wants links counted. `inputs` is the number of
    /// links with queues behind them that the engine tells of.
    pub(crate) fn asked_for(
        topology: &Topology,
        load: &Load,
        inputs: usize,
        buffers: usize,
        has_mixed_queues: bool,
    ) -> Option<Box<Self>> {
        if !load.counts_links {
            return None;
        }
        let rates = topology.rates(load.link_bits_per_s);
        let links = (0..).map(LinkId).zip(topology.links().iter().zip(rates));
        let unused = links.map(|(number, (link, bits_per_s))| LinkUse {
            link: *link,
            bits_per_s,
            delay: topology.cable(number).delay,
            busy: DurationPs::ZERO,
            blocked: DurationPs::ZERO,
            head_of_line: DurationPs::ZERO,
        });
        let from = SimPs::ZERO + load.warm_up;
        Some(Box::new(Self {
            from,
            until: from + load.duration,
            node_bits_per_s: load.link_bits_per_s,
            links: unused.collect(),
            inputs: vec![InputQueues::default(); inputs],
            has_mixed_queues,
            buffers: vec![BufferLevel::default(); buffers],
        }))
    }

    /// The part of a time that is counted.
    fn counted(&self, since: SimPs, until: SimPs) -> DurationPs {
        let (since, until) = (since.max(self.from), until.min(self.until));
        DurationPs(until.0.saturating_sub(since.0))
    }

    /// A link carries bytes from `start` on for `time`. Links inside of elements are not counted.
    pub(crate) fn carries(&mut self, link: usize, start: SimPs, time: DurationPs) {
        let busy = self.counted(start, start + time);
        if let Some(link) = self.links.get_mut(link) {
            link.busy = link.busy + busy;
        }
    }

    /// A link was held by a packet that waited for another one.
    pub(crate) fn held(&mut self, link: usize, since: SimPs, until: SimPs) {
        let time = self.counted(since, until);
        let link = &mut self.links[link];
        link.blocked = link.blocked + time;
        link.head_of_line = link.head_of_line + time;
    }

    /// A packet joins a queue of the input behind a link, as the only one in it or not.
    pub(crate) fn joins(&mut self, link: usize, now: SimPs, is_alone: bool) {
        self.settle_input(link, now);
        let input = &mut self.inputs[link];
        input.waiting += 1;
        input.queues += u32::from(is_alone);
    }

    /// The head of a queue is sent on; it leaves the queue empty or not.
    pub(crate) fn goes_on(&mut self, link: usize, now: SimPs, was_alone: bool) {
        self.settle_input(link, now);
        let input = &mut self.inputs[link];
        input.waiting -= 1;
        input.sending += 1;
        input.queues -= u32::from(was_alone);
    }

    /// A packet of the input has left.
    pub(crate) fn has_left(&mut self, link: usize, now: SimPs) {
        self.settle_input(link, now);
        self.inputs[link].sending -= 1;
    }

    /// Adds the time since the last change to what the input's state says.
    fn settle_input(&mut self, link: usize, now: SimPs) {
        let state = self.inputs[link];
        self.inputs[link].since = now;
        if state.sending > 0 || state.waiting == 0 {
            return;
        }
        let time = self.counted(state.since, now);
        if let Some(counts) = self.links.get_mut(link) {
            counts.blocked = counts.blocked + time;
            if self.has_mixed_queues && state.waiting > state.queues {
                counts.head_of_line = counts.head_of_line + time;
            }
        }
    }

    /// A buffer holds so many bytes from now on.
    pub(crate) fn holds(&mut self, buffer: usize, now: SimPs, bytes: u64) {
        let time = self.counted(self.buffers[buffer].since, now);
        let level = &mut self.buffers[buffer];
        if time > DurationPs::ZERO {
            level.area += u128::from(level.bytes) * u128::from(time.0);
            level.max = level.max.max(level.bytes);
        }
        (level.since, level.bytes) = (now, bytes);
    }

    /// The counts at the end of the run; `owner` says whose a buffer is, and which are none.
    pub(crate) fn into_report(
        mut self,
        end: SimPs,
        owner: impl Fn(usize) -> Option<BufferOwner>,
    ) -> LinkReport {
        for link in 0..self.inputs.len() {
            self.settle_input(link, end);
        }
        for buffer in 0..self.buffers.len() {
            let bytes = self.buffers[buffer].bytes;
            self.holds(buffer, end, bytes);
        }
        let counted = self.counted(SimPs::ZERO, end);
        let picoseconds = counted.0.max(1) as f64;
        let buffers = self
            .buffers
            .iter()
            .enumerate()
            .filter_map(|(index, level)| {
                Some(BufferUse {
                    owner: owner(index)?,
                    mean_bytes: level.area as f64 / picoseconds,
                    max_bytes: level.max,
                })
            });
        LinkReport {
            counted,
            node_bits_per_s: self.node_bits_per_s,
            buffers: buffers.collect(),
            links: self.links,
            waited_for: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Pattern, SizeLaw, Traffic};

    /// Counts from 100 ps to 200 ps.
    fn meter(has_mixed_queues: bool) -> LinkMeter {
        let topology = Topology::crossbar(2).unwrap();
        let load = Load {
            counts_links: true,
            warm_up: DurationPs(100),
            duration: DurationPs(100),
            ..Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(1), 1)
        };
        *LinkMeter::asked_for(&topology, &load, 4, 1, has_mixed_queues).unwrap()
    }

    #[test]
    fn only_the_counted_time_counts() {
        let mut meter = meter(true);
        meter.carries(0, SimPs(90), DurationPs(30));
        meter.carries(0, SimPs(190), DurationPs(30));
        meter.held(1, SimPs(0), SimPs(130));
        meter.holds(0, SimPs(10), 1_000);
        meter.holds(0, SimPs(50), 40);
        meter.holds(0, SimPs(150), 0);
        let owner = |_| Some(BufferOwner::Element(0));
        let report = meter.into_report(SimPs(200), owner);
        assert_eq!(report.counted, DurationPs(100));
        assert_eq!(report.links[0].busy, DurationPs(30));
        assert_eq!(report.links[1].blocked, DurationPs(30));
        assert_eq!(report.links[1].head_of_line, DurationPs(30));
        let buffer = report.buffers[0];
        assert_eq!((buffer.mean_bytes, buffer.max_bytes), (20.0, 40));
    }

    #[test]
    fn an_input_is_blocked_while_it_has_packets_and_sends_none() {
        for (is_mixed, behind) in [(true, 20), (false, 0)] {
            let mut meter = meter(is_mixed);
            // One waits from 110 on, a second one behind it from 120 on; the first goes on at 140
            // and has left at 150, the second goes on at 155.
            meter.joins(0, SimPs(110), true);
            meter.joins(0, SimPs(120), false);
            meter.goes_on(0, SimPs(140), false);
            meter.has_left(0, SimPs(150));
            meter.goes_on(0, SimPs(155), true);
            let report = meter.into_report(SimPs(200), |_| None);
            assert_eq!(report.links[0].blocked, DurationPs(35));
            assert_eq!(report.links[0].head_of_line, DurationPs(behind));
            assert_eq!(report.buffers, []);
        }
    }
}
