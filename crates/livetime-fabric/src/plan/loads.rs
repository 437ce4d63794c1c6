//! What a rate loads, as shares of what it can do: it follows from the request alone.
//!
//! Links carry packets with their overhead, and adapters take time for each: whole fragments in as
//! many packets as they need, or blocks of a barrel shifter, which are full where it matters.
//! Control messages depend on how they are grouped, and are not here.

use super::{Bottleneck, PlanRequest, Protocol, Sending};
use crate::builder_network::Shaping;
use crate::network::SizeLaw;
use crate::network::size_law::SIZE_MAX;
use crate::time::DurationPs;

/// A share of fragments that are so large is nothing.
const NEGLIGIBLE: f64 = 1e-9;

impl PlanRequest {
    /// Packets that a fragment takes on average; where blocks are full, blocks.
    pub(super) fn packets(&self, shaping: Shaping) -> f64 {
        match shaping {
            Shaping::BarrelShifter { block_bytes, .. } => {
                self.sizes.mean() / f64::from(block_bytes)
            }
            Shaping::None | Shaping::LinearShift { .. } => packets_mean(&self.sizes, self.mtu),
        }
    }

    /// Bytes that an average fragment takes on a link.
    pub(super) fn wire_bytes(&self, shaping: Shaping) -> f64 {
        self.sizes.mean() + self.packets(shaping) * f64::from(self.overhead_bytes)
    }

    /// Load of the links of the sources and of the builders at the rate asked for, as shares of
    /// their rate, where fragments are sent so.
    pub fn link_loads(&self, shaping: Shaping) -> (f64, f64) {
        let [(_, source), (_, builder), ..] = self.loads(shaping);
        (source, builder)
    }

    /// Load of everything that follows from the rate asked for alone, as shares of what it can do,
    /// where fragments are sent so.
    pub fn loads(&self, shaping: Shaping) -> [(Bottleneck, f64); 6] {
        self.loads_in_turns(shaping, 1.0)
    }

    /// The same where a source sends so many times as many blocks as there are for builder units:
    /// those for ports without one are empty, and take as long.
    pub(super) fn loads_in_turns(&self, shaping: Shaping, turns: f64) -> [(Bottleneck, f64); 6] {
        let rate = self.rate_hz;
        let per_builder = f64::from(self.sources) / f64::from(self.builders);
        let seconds = |time: DurationPs| time.0 as f64 * 1e-12;
        let link = rate * self.wire_bytes(shaping) * 8.0 / self.link_bits_per_s as f64;
        let bus = match self.hosts.bus_bytes_per_s {
            0 => 0.0,
            // A source brings whole blocks to its adapter, a builder unit keeps what is in them.
            bytes => rate * self.sizes.mean() * per_builder.max(turns) / bytes as f64,
        };
        let packets = self.packets(shaping);
        // Where builder units are fewer than sources, it is their links that turns wait for.
        let builder = match per_builder > 1.0 {
            true => per_builder.max(turns),
            false => per_builder,
        };
        [
            (
                Bottleneck::SourceLinks,
                link * (turns / per_builder.max(1.0)).max(1.0),
            ),
            (Bottleneck::BuilderLinks, link * builder),
            (
                Bottleneck::Filter,
                rate * seconds(self.hosts.event) / f64::from(self.builders),
            ),
            (Bottleneck::Bus, bus),
            (
                Bottleneck::BuilderProcessor,
                rate * seconds(self.hosts.fragment) * per_builder,
            ),
            // While an adapter prepares a packet, its link waits.
            match rate * packets * seconds(self.hosts.packet) {
                adapter if adapter > link => (Bottleneck::Adapter, turns * (link + adapter)),
                adapter => (Bottleneck::SourceLinks, turns * (link + adapter)),
            },
        ]
    }

    /// The ways of sending that are asked for, as far as they load differently: fragments in packets
    /// of their own, and blocks of a barrel shifter.
    pub fn load_ways(&self) -> Vec<Shaping> {
        let is_asked = |protocol| self.protocols.is_empty() || self.protocols.contains(&protocol);
        let in_packets = [Protocol::Pull, Protocol::Push, Protocol::LinearShift];
        let packets = in_packets.into_iter().any(is_asked);
        let blocks = is_asked(Protocol::BarrelShifter);
        let ways = [
            packets.then_some(Shaping::None),
            blocks.then(|| Sending::BarrelShifter.shaping(self.block_bytes)),
        ];
        ways.into_iter().flatten().collect()
    }
}

/// What is loaded most, of several that are alike the first, with its load.
pub(super) fn busiest(
    loads: impl DoubleEndedIterator<Item = (Bottleneck, f64)>,
) -> Option<(Bottleneck, f64)> {
    loads.rev().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Packets of up to `mtu` bytes that a fragment takes on average; 0 for any size.
fn packets_mean(sizes: &SizeLaw, mtu: u32) -> f64 {
    if mtu == 0 {
        return 1.0;
    }
    match sizes {
        SizeLaw::Fixed(bytes) => f64::from(bytes.div_ceil(mtu)),
        SizeLaw::Trace(list) => {
            let packets = list.iter().map(|bytes| f64::from(bytes.div_ceil(mtu)));
            packets.sum::<f64>() / list.len().max(1) as f64
        }
        SizeLaw::LogNormal { mean, rms } if *rms <= 0.0 => (mean / f64::from(mtu)).ceil(),
        // One more for each share of the fragments that goes beyond what fits into those before.
        SizeLaw::Exponential { .. } | SizeLaw::LogNormal { .. } => {
            let full = (1..=u64::from(SIZE_MAX / mtu)).map(|packets| packets * u64::from(mtu));
            let shares = full.map(|bytes| sizes.share_above(bytes));
            1.0 + shares.take_while(|share| *share > NEGLIGIBLE).sum::<f64>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;
    use crate::address::NodeId;
    use crate::random::{Purpose, RandomStreams};
    use crate::scenario::ShiftOrder;

    /// A fragment of 1600 B takes a packet of 1500 B and one of 100 B.
    #[test]
    fn each_packet_has_its_overhead_however_little_is_in_it() {
        let cut = PlanRequest {
            sizes: SizeLaw::Fixed(1600),
            mtu: 1500,
            overhead_bytes: 78,
            rate_hz: 72e3,
            ..request()
        };
        let (source, builder) = cut.link_loads(Shaping::None);
        assert!(
            (source - 72e3 * 1756.0 * 8.0 / 1e9).abs() < 1e-9,
            "{source}"
        );
        assert_eq!(source, builder);
        let mean = |sizes: SizeLaw| packets_mean(&sizes, 1500);
        assert_eq!(mean(SizeLaw::Trace(vec![1, 1500, 1501, 4500])), 7.0 / 4.0);
        assert_eq!(packets_mean(&SizeLaw::Fixed(1600), 0), 1.0);
        let alike = SizeLaw::LogNormal {
            mean: 3001.0,
            rms: 0.0,
        };
        assert_eq!(mean(alike), 3.0);
    }

    #[test]
    fn packets_of_a_law_are_those_of_what_it_draws() {
        let laws = [
            SizeLaw::Exponential { mean: 2048.0 },
            SizeLaw::LogNormal {
                mean: 2048.0,
                rms: 4096.0,
            },
        ];
        for law in laws {
            let mut stream = RandomStreams::new(3).stream(NodeId(0), Purpose(0));
            let drawn: u64 = (0..100_000)
                .map(|number| u64::from(law.draw(0, number, &mut stream).div_ceil(1024)))
                .sum();
            let (drawn, mean) = (drawn as f64 / 1e5, packets_mean(&law, 1024));
            assert!((drawn / mean - 1.0).abs() < 0.02, "{drawn} and {mean}");
        }
    }

    /// Fragments share blocks, and a block has its overhead and its adapter's time once.
    #[test]
    fn blocks_are_packed() {
        let mut packed = PlanRequest {
            sizes: SizeLaw::Fixed(512),
            overhead_bytes: 512,
            rate_hz: 100e3,
            ..request()
        };
        packed.hosts.packet = DurationPs::from_us(8);
        let shaping = Shaping::BarrelShifter {
            block_bytes: 4096,
            order: ShiftOrder::ConflictFree,
        };
        let (link, _) = packed.link_loads(shaping);
        assert!((link - 100e3 * 576.0 * 8.0 / 1e9).abs() < 1e-9, "{link}");
        let [.., (_, both)] = packed.loads(shaping);
        assert!((both - link - 0.1).abs() < 1e-9, "{both}");
        // Half the ports have no builder unit.
        let [(_, twice), (_, builder), .., (_, all)] = packed.loads_in_turns(shaping, 2.0);
        assert!((twice - 2.0 * link).abs() < 1e-9 && (builder - link).abs() < 1e-9);
        assert!((all - 2.0 * both).abs() < 1e-9, "{all}");
        // Builder units that are fewer have the links that are full.
        packed.builders = 2;
        packed.hosts.packet = DurationPs::ZERO;
        let loads = packed.loads_in_turns(shaping, 4.5);
        let (what, load) = busiest(loads.into_iter()).unwrap();
        assert_eq!(what, Bottleneck::BuilderLinks);
        assert!((load - 4.5 * link).abs() < 1e-9, "{load}");
    }
}
