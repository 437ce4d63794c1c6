//! When packets arrive at their sources: always, at random, in bursts, or with the beam.
//!
//! Times are integer picoseconds. Each source has arrivals of its own, or all share those of a
//! trigger (event building); shared times are kept for the window of events in flight and no
//! longer. A source takes its packets in order; how many wait is not bounded here, and sources that
//! cannot follow are behind at the end.

use crate::address::NodeId;
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::time::{DurationPs, SimPs};

/// Bunch crossings of an orbit.
const ORBIT: u64 = 3564;
/// The most triggers in so many crossings, the shortest window first: what front-ends allow.
const TRIGGER_RULES: [(usize, u64); 4] = [(1, 3), (2, 25), (3, 100), (4, 240)];

/// Law of arrivals.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrival {
    /// There is always a packet.
    Saturated,
    /// At fixed distances, all sources in step.
    Fixed {
        /// Distance.
        interval: DurationPs,
    },
    /// In each slot with a probability.
    Bernoulli {
        /// Length of a slot.
        slot: DurationPs,
        /// Probability, above 0 and up to 1.
        probability: f64,
    },
    /// Exponential distances.
    Poisson {
        /// Mean distance.
        interval: DurationPs,
    },
    /// Geometric bursts of packets at `spacing`, with exponential pauses between.
    Bursty {
        /// Distance in a burst.
        spacing: DurationPs,
        /// Mean number of packets of a burst, at least 1.
        burst: f64,
        /// Mean pause from the last packet of a burst to the first of the next.
        pause: DurationPs,
    },
    /// Every so-many-th arrival of another law: the share of one of several networks side by side, over
    /// which each source spreads its packets in turn.
    InTurn {
        /// The law of all of them.
        law: Box<Self>,
        /// One in so many, at least 1.
        every: u32,
    },
    /// Collisions at each filled bunch of an orbit, accepted with a probability and thinned by the
    /// trigger rules (1 in 3, 2 in 25, 3 in 100 and 4 in 240 crossings).
    Bunches {
        /// Distance of crossings.
        crossing: DurationPs,
        /// Probability that a filled crossing is accepted.
        probability: f64,
        /// Filled crossings at the start of every train.
        filled: u32,
        /// Crossings of a train, filled and empty; the last one of an orbit may be shorter.
        train: u32,
    },
}

/// Which crossings of orbits are filled.
#[derive(Debug, Clone, Copy)]
struct Filling {
    filled: u64,
    train: u64,
}

impl Filling {
    /// Filled crossings of an orbit.
    const fn of_orbit(self) -> u64 {
        let (trains, rest) = (ORBIT / self.train, ORBIT % self.train);
        let in_last = if rest < self.filled {
            rest
        } else {
            self.filled
        };
        trains * self.filled + in_last
    }

    /// The crossing of a filled one by its number, both counted from 0.
    const fn crossing(self, number: u64) -> u64 {
        let (orbit, place) = (number / self.of_orbit(), number % self.of_orbit());
        let crossing = place / self.filled * self.train + place % self.filled;
        orbit.saturating_mul(ORBIT).saturating_add(crossing)
    }
}

impl Arrival {
    /// What is wrong with it; `None` if nothing is.
    pub fn problem(&self) -> Option<String> {
        let probability = |p: f64| p > 0.0 && p <= 1.0;
        let is_good = match self {
            Self::Saturated => true,
            Self::Fixed { interval } | Self::Poisson { interval } => interval.0 > 0,
            Self::Bernoulli {
                slot,
                probability: p,
            } => slot.0 > 0 && probability(*p),
            Self::Bursty {
                spacing,
                burst,
                pause,
            } => spacing.0 > 0 && *burst >= 1.0 && pause.0 > 0,
            Self::Bunches {
                crossing,
                probability: p,
                filled,
                train,
            } => {
                let is_filled = *filled > 0 && filled <= train;
                crossing.0 > 0 && probability(*p) && is_filled
            }
            Self::InTurn { law, every } => *every > 0 && law.problem().is_none(),
        };
        (!is_good).then(|| match self {
            Self::Saturated => String::new(),
            Self::Fixed { interval } | Self::Poisson { interval } => {
                format!("packets {interval} apart")
            }
            Self::Bernoulli { slot, probability } => {
                format!("slots of {slot} with a probability of {probability}")
            }
            Self::Bursty {
                spacing,
                burst,
                pause,
            } => format!("bursts of {burst} packets {spacing} apart, pauses of {pause}"),
            Self::Bunches {
                crossing,
                probability,
                filled,
                train,
            } => format!(
                "crossings {crossing} apart with a probability of {probability}, {filled} of \
                 {train} filled"
            ),
            Self::InTurn { law, every } => {
                let all = law.problem().unwrap_or_default();
                format!("one of {every} in turn: {all}")
            }
        })
    }
}

/// One sequence of arrival times.
#[derive(Debug, Clone)]
struct Clock {
    next: SimPs,
    random: RandomStream,
    /// Crossing numbers of the last triggers, newest first.
    recent: [u64; 4],
    /// The filled crossing that was looked at last, by its number.
    filled: u64,
}

/// Arrival times of all sources.
#[derive(Debug, Clone)]
pub(crate) struct ArrivalTimes {
    law: Arrival,
    is_shared: bool,
    clocks: Vec<Clock>,
    /// Shared times by number modulo the length, for the numbers below `known`.
    shared: Vec<SimPs>,
    known: u64,
}

impl ArrivalTimes {
    /// Arrivals of each source.
    pub(crate) fn new(law: &Arrival, sources: u32, streams: RandomStreams) -> Self {
        Self::with_clocks(law, sources, streams)
    }

    /// Arrivals that all sources share, with at most `window` numbers in flight.
    pub(crate) fn shared(law: &Arrival, window: u32, streams: RandomStreams) -> Self {
        Self {
            is_shared: true,
            shared: vec![SimPs::ZERO; window as usize],
            ..Self::with_clocks(law, 1, streams)
        }
    }

    fn with_clocks(law: &Arrival, clocks: u32, streams: RandomStreams) -> Self {
        let clock = |node| Clock {
            next: SimPs::ZERO,
            random: streams.stream(NodeId(node), Purpose(3)),
            recent: [u64::MAX; 4],
            filled: 0,
        };
        let clocks = match law {
            Arrival::Saturated => 0,
            _ => clocks,
        };
        Self {
            law: law.clone(),
            is_shared: false,
            clocks: (0..clocks).map(clock).collect(),
            shared: Vec::new(),
            known: 0,
        }
    }

    /// Whether there is always a packet.
    pub(crate) const fn is_saturated(&self) -> bool {
        matches!(self.law, Arrival::Saturated)
    }

    /// When packet `number` of a source arrives; `None` when there is always one. Called once for
    /// each number of a source, in order.
    #[inline]
    pub(crate) fn time(&mut self, source: u32, number: u64, oldest: u64) -> Option<SimPs> {
        if self.is_saturated() {
            return None;
        }
        if !self.is_shared {
            return Some(self.clocks[source as usize].advance(&self.law));
        }
        let length = self.shared.len() as u64;
        debug_assert!(number < oldest + length);
        while self.known <= number {
            let time = self.clocks[0].advance(&self.law);
            self.shared[(self.known % length) as usize] = time;
            self.known += 1;
        }
        Some(self.shared[(number % length) as usize])
    }

    /// How long before `end` the newest packets had arrived that sources took, in the mean: those after
    /// them are due as long. Zero where there is always a packet.
    pub(crate) fn behind(&self, end: SimPs) -> DurationPs {
        let times = self.clocks.iter().map(|clock| (end - clock.next).0);
        let sum: u128 = times.map(u128::from).sum();
        DurationPs((sum / (self.clocks.len() as u128).max(1)) as u64)
    }
}

impl Clock {
    fn advance(&mut self, law: &Arrival) -> SimPs {
        let wait = match law {
            Arrival::Saturated => DurationPs::ZERO,
            Arrival::Fixed { interval } => *interval,
            Arrival::Bernoulli { slot, probability } => *slot * self.geometric(*probability),
            Arrival::Poisson { interval } => self.exponential(*interval),
            Arrival::Bursty {
                spacing,
                burst,
                pause,
            } => {
                if self.random.unit() < 1.0 / burst {
                    self.exponential(*pause)
                } else {
                    *spacing
                }
            }
            Arrival::Bunches {
                crossing,
                probability,
                filled,
                train,
            } => {
                let filling = Filling {
                    filled: u64::from(*filled),
                    train: u64::from(*train),
                };
                self.next = self.trigger(*crossing, *probability, filling);
                return self.next;
            }
            Arrival::InTurn { law, every } => {
                for _ in 1..*every {
                    self.advance(law);
                }
                return self.advance(law);
            }
        };
        self.next = self.next + wait;
        self.next
    }

    fn exponential(&mut self, mean: DurationPs) -> DurationPs {
        let unit = 1.0 - self.random.unit();
        DurationPs((-(mean.0 as f64) * unit.ln()).round() as u64)
    }

    /// Slots until the next success, at least 1.
    fn geometric(&mut self, probability: f64) -> u64 {
        let unit = 1.0 - self.random.unit();
        if probability >= 1.0 {
            return 1;
        }
        // Of a small probability 1 - p is 1.
        let failures = unit.ln() / (-probability).ln_1p();
        (failures as u64).saturating_add(1)
    }

    /// When the next crossing is that is accepted and that the rules let pass; the end of time if no
    /// run comes to it.
    fn trigger(&mut self, distance: DurationPs, p: f64, filling: Filling) -> SimPs {
        loop {
            self.filled = self.filled.saturating_add(self.geometric(p));
            let crossing = filling.crossing(self.filled);
            let at = SimPs::ZERO + distance * crossing;
            if at == SimPs::MAX {
                return at;
            }
            if self.rules_allow(crossing) {
                self.recent.rotate_right(1);
                self.recent[0] = crossing;
                return at;
            }
        }
    }

    fn rules_allow(&self, crossing: u64) -> bool {
        TRIGGER_RULES.iter().all(|(count, crossings)| {
            let last = self.recent[count - 1];
            last == u64::MAX || crossing - last >= *crossings
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_interval(law: &Arrival, arrivals: u64) -> f64 {
        let mut times = ArrivalTimes::new(law, 1, RandomStreams::new(1));
        let last = (0..arrivals).map(|n| times.time(0, n, 0)).last();
        last.flatten().map_or(0.0, |t| t.0 as f64) / arrivals as f64
    }

    #[test]
    fn laws_keep_their_rates() {
        let us = DurationPs::from_us(10);
        let fixed = mean_interval(&Arrival::Fixed { interval: us }, 10);
        assert_eq!(fixed, us.0 as f64);
        let bernoulli = Arrival::Bernoulli {
            slot: DurationPs::from_us(1),
            probability: 0.1,
        };
        let bursty = Arrival::Bursty {
            spacing: DurationPs::from_us(5),
            burst: 2.0,
            pause: DurationPs::from_us(15),
        };
        for law in [Arrival::Poisson { interval: us }, bernoulli, bursty] {
            let ratio = mean_interval(&law, 100_000) / us.0 as f64;
            assert!((ratio - 1.0).abs() < 0.02, "{law:?}: {ratio}");
        }
        assert_eq!(
            ArrivalTimes::new(&Arrival::Saturated, 1, RandomStreams::new(1)).time(0, 0, 0),
            None
        );
    }

    #[test]
    fn triggers_keep_the_rules_and_the_gaps() {
        let crossing = DurationPs::from_ns(25);
        let law = Arrival::Bunches {
            crossing,
            probability: 0.5,
            filled: 48,
            train: 60,
        };
        let mut times = ArrivalTimes::new(&law, 1, RandomStreams::new(1));
        let crossings: Vec<u64> = (0..20_000)
            .map(|n| times.time(0, n, 0).expect("not saturated").0 / crossing.0)
            .collect();
        for (count, window) in TRIGGER_RULES {
            let closest = crossings.windows(count + 1).map(|w| w[count] - w[0]).min();
            assert!(closest >= Some(window), "{closest:?} of {window}");
        }
        assert!(crossings.iter().all(|c| c % ORBIT % 60 < 48));
    }

    fn times(law: &Arrival, arrivals: u64) -> Vec<SimPs> {
        let mut times = ArrivalTimes::new(law, 1, RandomStreams::new(1));
        let times = (0..arrivals).map(|n| times.time(0, n, 0).expect("not saturated"));
        times.collect()
    }

    /// Every bunch is filled and accepted, and four in 240 pass the rules; of three rails each has a
    /// third of those, and not as many again. So it is with any other law.
    #[test]
    fn of_three_rails_each_has_every_third_arrival() {
        let crossing = DurationPs::from_us(1);
        let bunches = Arrival::Bunches {
            crossing,
            probability: 1.0,
            filled: 3564,
            train: 3564,
        };
        assert_eq!(
            times(&bunches, 401)[400],
            SimPs((1 + 100 * 240) * crossing.0)
        );
        let bursty = Arrival::Bursty {
            spacing: crossing,
            burst: 4.0,
            pause: DurationPs::from_us(20),
        };
        let poisson = Arrival::Poisson { interval: crossing };
        for law in [bunches, bursty, poisson] {
            let third = Arrival::InTurn {
                law: Box::new(law.clone()),
                every: 3,
            };
            assert_eq!(third.problem(), None);
            let in_turn = times(&law, 1200).into_iter().skip(2).step_by(3);
            assert_eq!(
                times(&third, 400),
                in_turn.collect::<Vec<SimPs>>(),
                "{law:?}"
            );
        }
    }

    #[test]
    fn rare_arrivals_are_rare_and_take_no_time_to_find() {
        let ns = DurationPs::from_ns(1);
        let bunches = |probability| Arrival::Bunches {
            crossing: ns,
            probability,
            filled: 7,
            train: 10,
        };
        let bernoulli = |probability| Arrival::Bernoulli {
            slot: ns,
            probability,
        };
        // Of an orbit 356 trains have 7 of 10, and the last one has 4 of 4.
        let filled = (356.0 * 7.0 + 4.0) / 3564.0;
        for p in [1e-3, 1e-9] {
            for (law, slots) in [(bunches(p), 1.0 / filled), (bernoulli(p), 1.0)] {
                let mean = mean_interval(&law, 20_000) / ns.0 as f64 / slots * p;
                // The rules refuse one in some hundred of those that are not so rare.
                assert!((0.98..1.05).contains(&mean), "{law:?}: {mean}");
            }
        }
        for law in [bunches(1e-300), bernoulli(1e-300)] {
            let mut times = ArrivalTimes::new(&law, 1, RandomStreams::new(1));
            for number in 0..9 {
                assert_eq!(times.time(0, number, 0), Some(SimPs::MAX), "{law:?}");
            }
        }
    }

    /// Of each law, by the packets that a source took and the time since the last one arrived.
    #[test]
    fn sources_are_behind_by_what_has_passed_since_their_last_packet_arrived() {
        let us = DurationPs::from_us;
        let laws = [
            Arrival::Fixed { interval: us(10) },
            Arrival::Poisson { interval: us(10) },
            Arrival::Bernoulli {
                slot: us(1),
                probability: 0.1,
            },
            Arrival::Bursty {
                spacing: us(1),
                burst: 10.0,
                pause: us(100),
            },
            Arrival::Bunches {
                crossing: us(1),
                probability: 0.1,
                filled: 48,
                train: 54,
            },
        ];
        let in_turn = Arrival::InTurn {
            law: Box::new(laws[1].clone()),
            every: 2,
        };
        for law in laws.into_iter().chain([in_turn]) {
            let mut times = ArrivalTimes::new(&law, 1, RandomStreams::new(1));
            let last = (0..100).filter_map(|n| times.time(0, n, 0)).last();
            let end = last.expect("not saturated") + us(7);
            assert_eq!(times.behind(end), us(7), "{law:?}");
        }
    }

    #[test]
    fn shared_times_are_the_same_for_all_sources() {
        let law = Arrival::Poisson {
            interval: DurationPs::from_us(1),
        };
        let mut times = ArrivalTimes::shared(&law, 4, RandomStreams::new(1));
        let ahead: Vec<_> = (0..4).map(|n| times.time(0, n, 0)).collect();
        let behind: Vec<_> = (0..4).map(|n| times.time(1, n, 0)).collect();
        assert_eq!(ahead, behind);
    }
}
