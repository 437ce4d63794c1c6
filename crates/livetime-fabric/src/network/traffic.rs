//! Who sends to whom: destinations of a source's packets, and how far sources may run ahead.
//!
//! A pattern gives the destination of packet number i of a source; in the patterns of event
//! building i is the event, and all sources send it to the same builder. A window holds back
//! sources that are too far ahead of the oldest packet number that is not complete. Sizes are in
//! [`super::size_law`], arrival times in [`super::arrival`].

use crate::random::RandomStream;

use super::topology::shift::ShiftSchedule;

/// Destination of each packet.
#[derive(Debug, Clone, PartialEq)]
pub enum Pattern {
    /// Any destination with equal probability, drawn for each packet.
    Uniform,
    /// Always the same destination: that of each source.
    Permutation(Vec<u32>),
    /// `share` of the packets to one destination, the others uniform.
    HotSpot {
        /// The destination.
        destination: u32,
        /// Share of the packets, 0 to 1.
        share: f64,
    },
    /// All to one.
    Incast(u32),
    /// Event e to builder e modulo the number of builders.
    EventsInOrder,
    /// Each event to a random builder.
    EventsRandom,
    /// Each N events to N builders in a random order.
    EventsPermuted,
    /// Event e to the builder whose digits, base `radix`, are those of e in reverse.
    EventsDigitReversed {
        /// Base of the digits.
        radix: u32,
    },
    /// Free-running round robin of each source, source s starting at builder s: no common event,
    /// just the order.
    Staggered,
    /// A schedule of shifts.
    Shift(ShiftSchedule),
}

/// A pattern and its window.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Destination of each packet.
    pub pattern: Pattern,
    /// The most packet numbers in flight in the whole network; 1 is a barrier after each. `None`
    /// lets sources run free.
    pub window: Option<u32>,
}

impl Pattern {
    /// Whether packet number i of each source belongs to the same event i.
    pub const fn is_event_building(&self) -> bool {
        matches!(
            self,
            Self::EventsInOrder
                | Self::EventsRandom
                | Self::EventsPermuted
                | Self::EventsDigitReversed { .. }
        )
    }
}

impl Traffic {
    /// A pattern without window.
    pub const fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            window: None,
        }
    }

    /// The same with a window of so many packet numbers.
    #[must_use]
    pub fn with_window(mut self, window: u32) -> Self {
        self.window = Some(window);
        self
    }

    /// What is wrong with it for `sources` x `destinations`; `None` if nothing is.
    pub fn problem(&self, sources: u32, destinations: u32) -> Option<String> {
        let outside = |d: u32| {
            (d >= destinations)
                .then(|| format!("destination {d} of a network with {destinations} destinations"))
        };
        match &self.pattern {
            Pattern::Permutation(to) if to.len() != sources as usize => {
                Some(format!("permutation of {} for {sources} sources", to.len()))
            }
            Pattern::Permutation(to) => to.iter().find_map(|d| outside(*d)),
            Pattern::HotSpot { destination, share } => outside(*destination).or_else(|| {
                (!(0.0..=1.0).contains(share)).then(|| format!("share {share} of the packets"))
            }),
            Pattern::Incast(destination) => outside(*destination),
            Pattern::EventsDigitReversed { radix } => {
                let digits = (1..=16).map(|n| radix.saturating_pow(n));
                (*radix < 2 || !digits.into_iter().any(|n| n == destinations)).then(|| {
                    format!(
                        "digit-reversed events of radix {radix} for {destinations} \
                             destinations, which is no power of it"
                    )
                })
            }
            Pattern::Shift(schedule) if schedule.index.len() != sources as usize => Some(format!(
                "schedule of {} for {sources} sources",
                schedule.index.len()
            )),
            _ if self.window == Some(0) => Some("window of 0".to_owned()),
            _ => None,
        }
    }

    /// Destination of packet `number` of a source.
    #[inline]
    pub fn destination(
        &self,
        source: u32,
        number: u64,
        destinations: u32,
        seed: u64,
        random: &mut RandomStream,
    ) -> u32 {
        let n = u64::from(destinations);
        let to = match &self.pattern {
            Pattern::Uniform => random.below(n),
            Pattern::Permutation(to) => u64::from(to[source as usize]),
            Pattern::HotSpot { destination, share } => {
                if random.unit() < *share {
                    u64::from(*destination)
                } else {
                    random.below(n)
                }
            }
            Pattern::Incast(destination) => u64::from(*destination),
            Pattern::EventsInOrder => number % n,
            Pattern::EventsRandom => {
                ((u128::from(mixed(seed ^ mixed(number))) * u128::from(n)) >> 64) as u64
            }
            Pattern::EventsPermuted => permuted(number % n, n, mixed(seed ^ mixed(number / n))),
            Pattern::EventsDigitReversed { radix } => reversed(number % n, n, u64::from(*radix)),
            Pattern::Staggered => (u64::from(source) + number) % n,
            Pattern::Shift(schedule) => {
                return schedule.destination(source, number, destinations);
            }
        };
        to as u32
    }
}

/// A permutation drawn once for all packets, for [`Pattern::Permutation`].
pub fn random_permutation(nodes: u32, random: &mut RandomStream) -> Vec<u32> {
    let mut to: Vec<u32> = (0..nodes).collect();
    for i in (1..to.len()).rev() {
        to.swap(i, random.below(i as u64 + 1) as usize);
    }
    to
}

/// Finaliser of SplitMix64: a number that looks random and belongs to its argument.
pub(crate) const fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Place of `number` in a permutation of `0..n` that the key chooses: a Feistel cipher of four
/// rounds, walked until it falls into the range, so that no table is kept.
fn permuted(number: u64, n: u64, key: u64) -> u64 {
    let half_bits = (64 - (n - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << half_bits) - 1;
    let mut value = number;
    loop {
        let (mut left, mut right) = (value >> half_bits, value & mask);
        for round in 0..4 {
            let sum = left ^ (mixed(key ^ (right << 3 | round)) & mask);
            left = right;
            right = sum;
        }
        value = left << half_bits | right;
        if value < n {
            return value;
        }
    }
}

/// The digits of `number` base `radix` in reverse, as many as `n` has.
const fn reversed(number: u64, n: u64, radix: u64) -> u64 {
    let (mut left, mut place, mut result) = (number, 1, 0);
    while place < n {
        result = result * radix + left % radix;
        left /= radix;
        place *= radix;
    }
    result
}

/// Which packet numbers are complete, within a window of them.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    size: u64,
    sources: u32,
    /// Oldest packet number that is not complete.
    oldest: u64,
    /// Packets still to come of each number in the window, at number modulo size.
    missing: Vec<u32>,
    /// Sources that wait for the window to move.
    blocked: Vec<u32>,
}

impl Window {
    pub(crate) fn new(size: u32, sources: u32) -> Self {
        Self {
            size: u64::from(size),
            sources,
            oldest: 0,
            missing: vec![sources; size as usize],
            blocked: Vec::with_capacity(sources as usize),
        }
    }

    /// Whether a source may send packet `number`; if not, it is remembered. Sources go on in order,
    /// so all blocked ones wait for the number just past the window.
    pub(crate) fn admits(&mut self, source: u32, number: u64) -> bool {
        let admitted = number < self.oldest + self.size;
        if !admitted {
            self.blocked.push(source);
        }
        admitted
    }

    /// Counts a packet that arrived; the sources that may go on are moved to `freed`.
    pub(crate) fn complete(&mut self, number: u64, freed: &mut Vec<u32>) {
        let size = self.size;
        self.missing[(number % size) as usize] -= 1;
        let before = self.oldest;
        while self.missing[(self.oldest % size) as usize] == 0 {
            self.missing[(self.oldest % size) as usize] = self.sources;
            self.oldest += 1;
        }
        if self.oldest > before {
            freed.append(&mut self.blocked);
        }
    }

    /// Oldest packet number that is not complete.
    pub(crate) const fn oldest(&self) -> u64 {
        self.oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_hit_each_destination_once() {
        for n in [1, 2, 3, 16, 500, 512] {
            for key in 0..5 {
                let mut seen = vec![false; n as usize];
                for number in 0..n {
                    let to = permuted(number, n, mixed(key)) as usize;
                    assert!(!seen[to], "n {n} key {key} number {number}");
                    seen[to] = true;
                }
            }
        }
    }

    #[test]
    fn digits_reverse() {
        assert_eq!(reversed(1, 512, 8), 64);
        assert_eq!(reversed(0o123, 512, 8), 0o321);
    }

    #[test]
    fn a_window_moves_with_the_oldest() {
        let mut window = Window::new(2, 2);
        let mut freed = Vec::new();
        assert!(window.admits(0, 0) && window.admits(0, 1));
        assert!(!window.admits(0, 2));
        window.complete(0, &mut freed);
        window.complete(1, &mut freed);
        window.complete(1, &mut freed);
        assert_eq!((window.oldest(), freed.len()), (0, 0));
        window.complete(0, &mut freed);
        assert_eq!((window.oldest(), freed.as_slice()), (2, &[0][..]));
    }
}
