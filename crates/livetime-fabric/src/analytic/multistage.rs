//! Networks of several crossbar stages: what survives when losers are dropped.
//!
//! The recursion is Patel's (IEEE Trans. Comput. 30, 1981). Buffered and wormhole networks have no
//! closed form; they are simulated in [`crate::cell`] and [`crate::network`].

/// Throughput per port of an unbuffered delta network of `stages` stages of k x k crossbars at
/// `load` per source, losers dropped: p(i+1) = 1 - (1 - p(i)/k)^k.
pub fn unbuffered_delta(radix: u32, stages: u32, load: f64) -> f64 {
    (0..stages).fold(load, |p, _| super::crossbar::losers_dropped(radix, p))
}

/// Links cut when the sources are divided from the destinations, times their rate: what a fabric
/// can carry in one direction, in bits per second.
pub const fn bisection_bits_per_s(links: u64, link_bits_per_s: u64) -> u64 {
    links * link_bits_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patel_table() {
        let table = [
            (2, 1, 0.7500),
            (2, 4, 0.4498),
            (2, 9, 0.2778),
            (4, 1, 0.6836),
            (4, 2, 0.5275),
            (8, 1, 0.6564),
            (8, 2, 0.4959),
            (8, 3, 0.4006),
        ];
        for (radix, stages, expected) in table {
            let found = unbuffered_delta(radix, stages, 1.0);
            assert!((found - expected).abs() < 6e-5, "{radix}^{stages}: {found}");
        }
        assert_eq!(unbuffered_delta(8, 3, 0.0), 0.0);
        assert_eq!(bisection_bits_per_s(512, 2_000_000_000), 1_024_000_000_000);
    }
}
