//! Random numbers of a simulation: one counter-based stream per (seed, node, purpose).
//!
//! Each stream is ChaCha8 (Bernstein 2008) keyed by the seed, with node and purpose as its stream
//! number: no stream knows of the others, so adding a node, or one more draw somewhere, changes no
//! number elsewhere. Every helper here takes exactly one draw and integer arithmetic decides, so
//! streams keep step whatever the outcome and results are the same on all machines. Distributions
//! of physics come from `rand_distr`, which takes a [`RandomStream`] as its generator.

use core::convert::Infallible;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng, TryRng};

use crate::address::NodeId;
use crate::time::DurationPs;

/// What a node draws numbers for; the world numbers its purposes. The top bit is kept for the
/// kernel's own ([`Purpose::FAULTS`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Purpose(pub u32);

impl Purpose {
    /// Faults of a link; there the link number stands for the node.
    pub const FAULTS: Self = Self(1 << 31);
}

/// The seed of a simulation, from which every stream is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomStreams {
    seed: u64,
}

/// A stream of random numbers that belongs to one node and one purpose.
#[derive(Debug, Clone)]
pub struct RandomStream {
    generator: ChaCha8Rng,
}

/// A probability in steps of 2^-63, so that a draw decides without floating point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Probability {
    /// Of 2^63 equally likely draws, how many say yes.
    threshold: u64,
}

impl RandomStreams {
    /// All streams of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The seed, for the report and for replaying the run.
    pub const fn seed(self) -> u64 {
        self.seed
    }

    /// The stream of a node and purpose, from its beginning.
    pub fn stream(self, node: NodeId, purpose: Purpose) -> RandomStream {
        // 256 bits of key: the seed and a name, so that no other use of ChaCha8 with this seed
        // (the physics generator has its own) runs through the same numbers.
        let mut key = *b"........livetime-fabric stream 1";
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(u64::from(node.0) << 32 | u64::from(purpose.0));
        RandomStream { generator }
    }

    /// A seed for a core that makes its own streams: the first number of this stream.
    pub fn derived_seed(self, node: NodeId, purpose: Purpose) -> u64 {
        self.stream(node, purpose).next_u64()
    }
}

impl RandomStream {
    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A number from 0 to `bound - 1`, and 0 for a bound of 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A length of time from `min` to `max`, both included; `min` if they are in the wrong order.
    pub fn between(&mut self, min: DurationPs, max: DurationPs) -> DurationPs {
        let width = u128::from(max.0.saturating_sub(min.0)) + 1;
        min + DurationPs(((u128::from(self.next_u64()) * width) >> 64) as u64)
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, probability: Probability) -> bool {
        self.next_u64() >> 1 < probability.threshold
    }

    /// A number from 0 to just below 1, in steps of 2^-53. Not for time: see [`Self::between`].
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

impl TryRng for RandomStream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.generator.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.generator.try_next_u64()
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.generator.try_fill_bytes(bytes)
    }
}

impl Probability {
    /// It does not happen.
    pub const NEVER: Self = Self { threshold: 0 };
    /// It happens each time.
    pub const CERTAIN: Self = Self { threshold: 1 << 63 };

    /// So many times in a million; more than a million is [`Probability::CERTAIN`].
    pub const fn from_ppm(ppm: u32) -> Self {
        let threshold = ((ppm as u128) << 63) / 1_000_000;
        if ppm >= 1_000_000 {
            Self::CERTAIN
        } else {
            Self {
                threshold: threshold as u64,
            }
        }
    }

    /// A probability from 0 to 1; `None` outside and for NaN.
    pub fn new_checked(probability: f64) -> Option<Self> {
        let threshold = probability * (1_u64 << 63) as f64;
        (0.0..=1.0).contains(&probability).then_some(Self {
            threshold: threshold as u64,
        })
    }

    /// Whether it can happen at all.
    pub const fn is_possible(self) -> bool {
        self.threshold > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u64, node: u32, purpose: u32) -> Vec<u64> {
        let mut stream = RandomStreams::new(seed).stream(NodeId(node), Purpose(purpose));
        (0..32).map(|_| stream.next_u64()).collect()
    }

    #[test]
    fn streams_are_the_same_for_ever() {
        // These numbers are part of every stored seed: if they change, old seeds tell new stories.
        let first = numbers(1, 2, 3);
        // The values are ChaCha8 computed from its definition, apart from the crate in use.
        assert_eq!(first[..2], [0xC095_8FE7_D036_4F72, 0xB8D6_03E6_E921_7F00]);
        assert_eq!(
            RandomStreams::new(1).derived_seed(NodeId(2), Purpose(3)),
            first[0]
        );
    }

    #[test]
    fn no_two_streams_share_numbers() {
        let mut all = Vec::new();
        for (seed, node, purpose) in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1 << 32, 0, 0)] {
            all.extend(numbers(seed, node, purpose));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn every_helper_takes_one_draw() {
        let mut used = RandomStreams::new(5).stream(NodeId(0), Purpose(0));
        used.below(0);
        used.below(u64::MAX);
        used.between(DurationPs(5), DurationPs(3));
        used.chance(Probability::NEVER);
        used.chance(Probability::CERTAIN);
        used.unit();
        assert_eq!(used.next_u64(), numbers(5, 0, 0)[6]);
    }

    #[test]
    fn helpers_stay_in_their_ranges_and_reach_the_ends() {
        let mut stream = RandomStreams::new(7).stream(NodeId(1), Purpose(1));
        let mut seen = [0_u32; 10];
        for _ in 0..1_000 {
            seen[stream.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&stream.unit()));
            let wait = stream.between(DurationPs(7), DurationPs(8));
            assert!(wait == DurationPs(7) || wait == DurationPs(8));
            stream.between(DurationPs::ZERO, DurationPs::MAX);
        }
        assert!(
            seen.iter().all(|count| (60..140).contains(count)),
            "{seen:?}"
        );
        assert_eq!(stream.below(0), 0);
        assert_eq!(stream.between(DurationPs(9), DurationPs(2)), DurationPs(9));
    }

    #[test]
    fn probabilities_are_exact_at_the_ends_and_right_between() {
        let mut stream = RandomStreams::new(9).stream(NodeId(0), Purpose(0));
        let mut hits = |probability| (0..100_000).filter(|_| stream.chance(probability)).count();
        assert_eq!(hits(Probability::NEVER), 0);
        assert_eq!(hits(Probability::CERTAIN), 100_000);
        assert_eq!(hits(Probability::from_ppm(2_000_000)), 100_000);
        // 3 % of 100 000: standard deviation 54.
        assert!((2_700..3_300).contains(&hits(Probability::from_ppm(30_000))));
        assert_eq!(
            Probability::new_checked(0.5),
            Some(Probability::from_ppm(500_000))
        );
        assert_eq!(Probability::new_checked(1.0), Some(Probability::CERTAIN));
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert_eq!(Probability::new_checked(wrong), None);
        }
        assert!(!Probability::NEVER.is_possible() && Probability::from_ppm(1).is_possible());
    }
}
