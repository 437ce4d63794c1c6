//! Seeded random numbers for tests (SplitMix64); `SEED` in the environment repeats a run.

/// A generator that knows its seed.
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// A generator with the seed of the environment, or the usual one; the seed is printed.
    pub(crate) fn new() -> Self {
        let seed = std::env::var("SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or(20_261_121);
        println!("seed {seed}");
        Self { seed, state: seed }
    }

    /// The seed, to be told with a failure.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Any 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
