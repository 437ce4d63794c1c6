//! Links that are not alike: rates in flits per cycle, and cables on which flits are under way.
//!
//! A cycle is the time of a flit on a source's link. A link of another rate has a time per flit of its
//! own, in parts of a cycle: it starts as many flits in a cycle as begin in it, several or none, and
//! what it has missed while nothing was there is gone. A flit is at its end when it is whole there, a
//! cycle later at least. An input passes on what its own link can bring,
//! and a flit in each cycle at least. What is sent over a cable comes whole cycles later, and so does
//! the credit that goes back; buffers have room for what is under way meanwhile, so that a long cable
//! costs time and no throughput, as the slack of a link that was made for its length.

use crate::address::LinkId;
use crate::network::{Load, Topology};
use crate::time::DurationPs;

use super::{FlitConfig, NONE, Network};

/// The most flits under way on a link and back, for each of its channels.
pub(crate) const FLITS_UNDER_WAY_MAX: u64 = 60_000;
/// The most cycles on a link.
pub(crate) const DELAY_CYCLES_MAX: u64 = 1 << 20;
/// The most packets that may be in all buffers together, some 600 MB.
pub(crate) const BUFFER_PLACES_MAX: u64 = 1 << 26;
/// Parts of a cycle: a millionth of a flit's time on links that are 16 times faster.
const CYCLE: u64 = 1 << 24;

/// What comes to an end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arrival {
    /// A flit of the `hop`-th link of its packet.
    Flit {
        channel: u32,
        packet: u32,
        hop: u8,
        is_tail: bool,
    },
    /// Room for a flit in a buffer.
    Credit { buffer: u32 },
}

/// Links and what is on them.
pub(super) struct Cables {
    /// Time of a flit, and when the next one may start, by link.
    flit_time: Vec<u64>,
    free_at: Vec<u64>,
    /// Flits that the input behind each link passes on in a cycle.
    input_flits: Vec<u32>,
    /// Cycles on the way beside the one of every hop.
    delay: Vec<u32>,
    /// What comes in each of the next cycles, round about; a place for each delay that there is.
    under_way: Vec<Vec<Arrival>>,
    under_way_all: u64,
}

impl Cables {
    /// Those of a network; `None` where all links are alike and a cycle long.
    pub(super) fn new(topology: &Topology, load: &Load, config: &FlitConfig) -> Option<Self> {
        let flit_time: Vec<u64> = flit_times(topology, load.link_bits_per_s).collect();
        let delay: Vec<u32> = delays(topology, load, config)
            .map(|cycles| {
                assert!(cycles <= DELAY_CYCLES_MAX, "links of a bounded length");
                cycles as u32
            })
            .collect();
        if delay.iter().all(|d| *d == 0) && flit_time.iter().all(|time| *time == CYCLE) {
            return None;
        }
        let longest = latencies(topology, load, config).max().unwrap_or(0) as usize;
        let brought = |time: &u64| CYCLE.div_ceil((*time).max(1)).min(u32::MAX.into()) as u32;
        Some(Self {
            free_at: vec![0; flit_time.len()],
            input_flits: flit_time.iter().map(brought).collect(),
            flit_time,
            delay,
            under_way: vec![Vec::new(); longest + 1],
            under_way_all: 0,
        })
    }

    /// Cycles on the way beside the one of every hop.
    #[inline]
    pub(super) fn delay(&self, link: usize) -> u32 {
        self.delay[link]
    }

    /// How many cycles behind the next one, `cycle`, the flit that a link started last is whole at its
    /// end. A link that starts one in each cycle, or several, needs none for a flit itself.
    #[inline]
    pub(super) fn way(&self, cycle: u64, link: usize) -> u64 {
        let whole = match self.flit_time[link] {
            ..=CYCLE => cycle,
            _ => self.free_at[link].div_ceil(CYCLE),
        };
        whole - cycle + u64::from(self.delay[link])
    }

    /// Puts something on its way that comes in a cycle behind the next one.
    pub(super) fn send(&mut self, cycle: u64, arrival: Arrival) {
        let at = self.place(cycle);
        self.under_way[at].push(arrival);
        self.under_way_all += 1;
    }

    fn place(&self, cycle: u64) -> usize {
        (cycle % self.under_way.len() as u64) as usize
    }

    /// What comes in this cycle; [`Cables::keep_arrivals`] takes the memory back.
    pub(super) fn take_arrivals(&mut self, cycle: u64) -> Vec<Arrival> {
        let at = self.place(cycle);
        let arrivals = core::mem::take(&mut self.under_way[at]);
        self.under_way_all -= arrivals.len() as u64;
        arrivals
    }

    pub(super) fn keep_arrivals(&mut self, cycle: u64, emptied: Vec<Arrival>) {
        let at = self.place(cycle);
        self.under_way[at] = emptied;
    }

    /// Whether something is under way, or a link in use has yet to end its last flit.
    fn is_waiting(&self, cycle: u64, active: &[u32]) -> bool {
        let is_busy = |link: &u32| self.free_at[*link as usize] >= (cycle + 1) * CYCLE;
        self.under_way_all > 0 || active.iter().any(is_busy)
    }

    /// Whether a link starts another flit in this cycle.
    fn is_free(&self, cycle: u64, link: usize) -> bool {
        self.free_at[link] < (cycle + 1) * CYCLE
    }

    /// A link starts a flit.
    fn start(&mut self, cycle: u64, link: usize) {
        let begins = self.free_at[link].max(cycle * CYCLE);
        self.free_at[link] = begins.saturating_add(self.flit_time[link]);
    }
}

impl Network<'_> {
    /// As [`Network::choose_moves`], of as many flits as each link starts in this cycle; whether
    /// anything is under way that will come without another move.
    pub(super) fn choose_paced_moves(&mut self, mut cables: Box<Cables>) -> bool {
        for at in 0..self.active.len() {
            let link = self.active[at];
            let l = link as usize;
            if self
                .rests_until
                .get(l)
                .is_some_and(|until| *until > self.cycle)
            {
                continue;
            }
            let first = usize::from(self.turn[l]);
            for i in 0..self.channels {
                let lane = (first + i) % self.channels;
                let flits = self.move_paced(&mut cables, link, (l * self.channels + lane) as u32);
                if flits > 0 {
                    self.turn[l] = ((lane + 1) % self.channels) as u8;
                }
            }
        }
        let is_waiting = cables.is_waiting(self.cycle, &self.active);
        self.cables = Some(cables);
        is_waiting
    }

    /// Moves as many flits onto a channel as there are, have room and may go; returns how many.
    fn move_paced(&mut self, cables: &mut Cables, link: u32, to: u32) -> u32 {
        let (l, channel) = (link as usize, to as usize);
        let from = self.owner[channel];
        if from == NONE {
            return 0;
        }
        let is_source = link < self.topology.sources();
        let mut most = match self.is_delivery[l] {
            true => u32::MAX,
            false => {
                let ahead = &self.buffers.all[channel];
                ahead.room - ahead.used
            }
        };
        let input = from as usize / self.channels;
        if is_source {
            most = most.min(self.source_left[channel]);
        } else {
            if self.used[input] != self.cycle {
                (self.used[input], self.used_flits[input]) = (self.cycle, 0);
            }
            let passed_on = cables.input_flits[input] - self.used_flits[input];
            most = most
                .min(passed_on)
                .min(self.buffers.first(from as usize).here);
        }
        let mut flits = 0;
        while flits < most && cables.is_free(self.cycle, l) {
            cables.start(self.cycle, l);
            self.moves.push((from, to));
            flits += 1;
        }
        if !is_source {
            self.used_flits[input] += flits;
        }
        flits
    }
}

/// Time of a flit on each link, in parts of a cycle.
fn flit_times(topology: &Topology, node_bits_per_s: u64) -> impl Iterator<Item = u64> {
    let times = u128::from(node_bits_per_s) * u128::from(CYCLE);
    let time = move |rate: u64| u64::try_from(times / u128::from(rate)).unwrap_or(u64::MAX);
    topology.rates(node_bits_per_s).map(time)
}

/// Cycles on each link beside the one of every hop: its own delay and, but for links of sources, that
/// of a hop.
fn delays(topology: &Topology, load: &Load, config: &FlitConfig) -> impl Iterator<Item = u64> {
    let cycle = DurationPs::for_bits(u64::from(config.flit_bytes) * 8, load.link_bits_per_s);
    let (sources, hop_delay) = (topology.sources(), load.hop_delay);
    let links = 0..topology.links().len() as u32;
    links.map(move |link| {
        let own = topology.cable(LinkId(link)).delay;
        let cycles = |time: DurationPs| (time.0 + cycle.0 / 2) / cycle.0;
        match link < sources {
            true => cycles(own),
            false => cycles(own + hop_delay).saturating_sub(1),
        }
    })
}

/// Cycles that a flit may need on each link beside the one of every hop.
fn latencies(topology: &Topology, load: &Load, config: &FlitConfig) -> impl Iterator<Item = u64> {
    let times = flit_times(topology, load.link_bits_per_s);
    let links = times.zip(delays(topology, load, config));
    links.map(|(time, delay)| match time {
        ..=CYCLE => delay,
        _ => delay.saturating_add(time.div_ceil(CYCLE)),
    })
}

/// Links that are too long to be simulated, by their numbers, with how long they are.
pub(crate) fn too_long(
    topology: &Topology,
    load: &Load,
    config: &FlitConfig,
) -> impl Iterator<Item = (u32, String)> {
    let under_way = flits_under_way(topology, load, config);
    let links = (0..).zip(under_way.zip(latencies(topology, load, config)));
    links.filter_map(|(link, (flits, cycles))| match (flits, cycles) {
        (_, DELAY_CYCLES_MAX..) => Some((link, format!("{cycles} cycles"))),
        (FLITS_UNDER_WAY_MAX.., _) => Some((link, format!("{flits} flits under way and back"))),
        _ => None,
    })
}

/// Flits of a channel that can be under way on each link before the credit of the first is back,
/// beside those of the cycles in which one is sent and taken.
fn flits_under_way(
    topology: &Topology,
    load: &Load,
    config: &FlitConfig,
) -> impl Iterator<Item = u64> {
    let times = flit_times(topology, load.link_bits_per_s);
    let delays = delays(topology, load, config);
    times.zip(delays).map(|(time, delay)| {
        let round_trip = u128::from(2 * delay) * u128::from(CYCLE);
        u64::try_from(round_trip.div_ceil(u128::from(time.max(1)))).unwrap_or(u64::MAX)
    })
}

/// Flits and packets that each channel's buffer has room for, by link.
pub(super) fn rooms(
    topology: &Topology,
    load: &Load,
    config: &FlitConfig,
) -> impl Iterator<Item = (u64, u64)> {
    let smallest = u64::from(load.sizes.least()) + u64::from(load.overhead_bytes);
    let least = smallest.div_ceil(config.flit_bytes.into()).max(1);
    let buffer = u64::from(config.buffer_flits);
    flits_under_way(topology, load, config).map(move |under_way| {
        let flits = buffer + under_way;
        // Whole packets, and one that comes and one that goes.
        (flits, (flits / least + 2).min(flits + 1))
    })
}

/// Packets that all buffers together have room for.
pub(crate) fn buffer_places(topology: &Topology, load: &Load, config: &FlitConfig) -> u64 {
    let packets = rooms(topology, load, config).map(|(_, packets)| packets);
    packets
        .fold(0, u64::saturating_add)
        .saturating_mul(config.channels.into())
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;
    use crate::network::topology::Graph;
    use crate::network::{NetworkOutcome, Pattern, SizeLaw, Traffic};

    fn graph(text: &str) -> Topology {
        Topology::graph(&Graph::parse(text).unwrap()).unwrap()
    }

    /// Packets of 256 flits of 64 ns.
    fn load(pattern: Pattern) -> Load {
        Load::saturated(Traffic::new(pattern), SizeLaw::Fixed(2048), 1_000)
    }

    fn outcome(topology: &Topology, load: &Load, channels: u32) -> NetworkOutcome {
        let config = FlitConfig {
            channels,
            ..FlitConfig::default()
        };
        let outcome = run(topology, load, &config);
        let accounted = outcome.packets_in_all + outcome.packets_in_flight;
        assert_eq!(outcome.packets_offered, accounted);
        outcome
    }

    fn efficiency(topology: &Topology, load: &Load, channels: u32) -> f64 {
        outcome(topology, load, channels).efficiency_link.mean
    }

    /// Four nodes on each of two switches.
    fn halls(link: &str) -> Topology {
        let mut text = "switch a\nswitch b\n".to_owned();
        for node in 0..4 {
            text += &format!("source s{node} a\n");
        }
        for node in 0..4 {
            text += &format!("destination d{node} b\n");
        }
        graph(&(text + "link a b " + link + "\n"))
    }

    #[test]
    fn a_fast_link_carries_as_many_packets_as_it_has_channels_and_no_more_than_its_rate() {
        let to_own = load(Pattern::Permutation(vec![0, 1, 2, 3]));
        for (link, channels, least, most) in [
            ("1", 1, 0.245, 0.25),
            ("4", 1, 0.245, 0.25),
            // Packets of one source take turns on its link.
            ("4", 2, 0.4, 0.5),
            ("4", 8, 0.8, 1.0),
            ("rate=2500Mb/s", 1, 0.245, 0.25),
            ("rate=2500Mb/s", 8, 0.6, 0.625),
            ("rate=400Mb/s", 1, 0.095, 0.1),
            ("rate=400Mb/s", 8, 0.095, 0.1),
        ] {
            let found = efficiency(&halls(link), &to_own, channels);
            assert!(
                (least..most + 0.001).contains(&found),
                "{link} {channels}: {found}"
            );
        }
    }

    #[test]
    fn a_long_cable_costs_time_and_no_throughput() {
        let one = load(Pattern::Permutation(vec![0]));
        let latency = |text: &str, hop_delay: u64| {
            let load = Load {
                hop_delay: DurationPs::from_ns(hop_delay),
                ..one.clone()
            };
            let outcome = outcome(&graph(text), &load, 1);
            assert!(outcome.efficiency_link.mean > 0.999);
            outcome.latency_ns.min() / 64
        };
        let plain = "switch a\nswitch b\nsource s a\ndestination d b\nlink a b\n";
        // In cycles: 256 flits and two more links, a cycle each.
        assert_eq!(latency(plain, 0), 258);
        // A hop of ten cycles takes nine more on each of two links; a cable comes on top.
        assert_eq!(latency(plain, 640), 276);
        let long = plain.replace("link a b", "link a b delay=64us");
        assert_eq!(latency(&long, 640), 1276);
        let both = long.replace("source s a", "source s a delay=6400ns");
        assert_eq!(latency(&both, 64), 1358);
    }

    #[test]
    fn no_packet_is_faster_than_the_slowest_link_of_its_route() {
        let alone = |rate: &str, bytes: u32| {
            let text = format!("switch a\nsource s a\ndestination d a rate={rate}\n");
            let mut load = load(Pattern::Permutation(vec![0]));
            load.sizes = SizeLaw::Fixed(bytes);
            load.traffic = load.traffic.with_window(1);
            load.duration = DurationPs::from_ms(20);
            outcome(&graph(&text), &load, 1).latency_ns.min()
        };
        // A flit of 64 ns on the source's link, and its 64 us behind it, from the cycle on.
        assert_eq!(alone("1Mb/s", 8), 64_064);
        // Two flits of 160 ns behind the first one's 64 ns, to the end of a cycle.
        assert_eq!(alone("400Mb/s", 16), 384);
        assert_eq!(alone("1Gb/s", 16), 192);
        assert_eq!(alone("10Gb/s", 16), 192);
    }

    #[test]
    fn a_source_pauses_behind_each_packet_however_many_channels_it_has() {
        let mut to_own = load(Pattern::Permutation(vec![1, 2, 3, 0]));
        to_own.source_gap = DurationPs::from_ns(2048 * 8);
        let crossbar = Topology::crossbar(4).unwrap();
        for channels in [1, 2, 4] {
            let found = efficiency(&crossbar, &to_own, channels);
            assert!((0.49..=0.501).contains(&found), "{channels}: {found}");
        }
        // More packets than the link between switches has channels for.
        let found = efficiency(&halls("8"), &to_own, 4);
        assert!((0.35..=0.501).contains(&found), "{found}");
        // Where all others wait for an event to be complete, the pauses do not end the run.
        let mut events = load(Pattern::Uniform);
        events.traffic = events.traffic.with_window(1);
        events.source_gap = DurationPs::from_us(100);
        let events = outcome(&crossbar, &events, 2);
        assert!(!events.is_deadlocked() && events.packets_in_all > 50);
        // Nor does the last cycle of a pause, in which all have their next packet ready.
        let mut staggered = load(Pattern::Staggered);
        staggered.traffic = staggered.traffic.with_window(1);
        for gap in [1_000, 3_040, 8, 9] {
            staggered.source_gap = DurationPs::from_ns(gap);
            let staggered = outcome(&crossbar, &staggered, 1);
            let packets = staggered.packets_in_all;
            assert!(
                !staggered.is_deadlocked() && packets > 50,
                "{gap} ns: {packets}"
            );
        }
    }

    #[test]
    fn what_is_under_way_keeps_a_run_going() {
        // A packet of one flit that is alone in the network for most of the time.
        let slow = graph(
            "switch a\nsource s a\nsource t a\ndestination d a rate=1Mb/s delay=100us\n\
             destination e a\n",
        );
        let mut load = load(Pattern::Permutation(vec![0, 1]));
        load.sizes = SizeLaw::Fixed(8);
        load.traffic = load.traffic.with_window(1);
        load.duration = DurationPs::from_ms(5);
        let outcome = outcome(&slow, &load, 1);
        assert!(!outcome.is_deadlocked() && outcome.packets_in_all > 50);
    }
}
