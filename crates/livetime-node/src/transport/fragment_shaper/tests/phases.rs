//! Turns of a linear shift over real links.

use livetime_builder::PhaseBarrier;
use proptest::test_runner::FileFailurePersistence;

use super::*;

const RETRY: u64 = 1000;
/// Inputs that failed once, seen from the folder of the crate.
const SEEDS: &str = "tests/seeds/linear_shift.txt";

fn phases(turn_max: u64) -> ShapingPace {
    ShapingPace::Barrier {
        turn_max: DurationNs(turn_max),
        retry: DurationNs(RETRY),
    }
}

impl Bench {
    /// One duty cycle; returns what the barrier is to be told.
    fn through_at(&mut self, ns: u64) -> Option<(u64, PhaseDemand)> {
        self.poll_at(ns);
        self.shaper.poll_through(self.now, &self.link)
    }
}

/// Given two builder units, then a phase takes whole fragments for its own, up to its bytes; the barrier
/// is told once they are out, and nothing goes to the other before its phase.
#[test]
fn a_phase_sends_whole_fragments_to_its_builder_unit_and_says_when_it_is_through() {
    for kind in [Kind::Tcp, Kind::Udp] {
        let mut bench = Bench::new(kind, 2, 1024, phases(1_000_000));
        assert_eq!(bench.through_at(0), Some((0, PhaseDemand::Idle)));
        assert_eq!(bench.through_at(10 * RETRY), None, "nothing waits");
        for trigger in 1..=3 {
            bench.push(1, trigger, 160);
        }
        bench.push(0, 9, 160);
        // It has said that it is through with bu0's phase.
        let waiting = Some((0, PhaseDemand::Waiting));
        assert_eq!(bench.through_at(20 * RETRY), waiting);
        assert_eq!(bench.through_at(20 * RETRY + 1), None);
        assert_eq!(bench.through_at(21 * RETRY), waiting, "nothing followed");
        bench.shaper.handle_phase(1);
        // 640 bytes each: the second one exceeds the phase, and is sent whole.
        assert_eq!(
            bench.through_at(22 * RETRY),
            Some((1, PhaseDemand::Waiting))
        );
        bench.expect(1, &[1, 2]);
        bench.expect(0, &[]);
        bench.shaper.handle_phase(1);
        assert_eq!(
            bench.through_at(22 * RETRY),
            Some((1, PhaseDemand::Waiting))
        );
        bench.shaper.handle_phase(2);
        assert_eq!(
            bench.through_at(22 * RETRY),
            Some((2, PhaseDemand::Waiting))
        );
        bench.expect(0, &[9]);
        // It did not hear of one phase.
        bench.shaper.handle_phase(5);
        assert_eq!(bench.through_at(23 * RETRY), Some((5, PhaseDemand::Idle)));
        bench.expect(1, &[3]);
        assert!(bench.shaper.is_empty() && bench.link.is_flushed());
        assert_eq!(bench.detail("shaping_turns_missed"), 2);
        assert_eq!(bench.detail("shaping_blocks"), 3);
        assert_eq!(bench.detail("shaping_fragments"), 4);
        assert_eq!(bench.detail("shaping_throughs_repeated"), 2);
        assert_eq!(bench.payload_sent(), 4 * 640, "{kind:?}");
    }
}

/// Given a builder unit that reads nothing, then its turn ends after `turn_max` once, its phases are over
/// at once from then on, and the other gets everything; what it did not take goes out once it reads.
#[test]
fn a_builder_unit_that_takes_nothing_ends_its_phases() {
    let mut bench = Bench::new(Kind::Short, 2, 64 << 10, phases(1_000_000));
    let (mut trigger, mut phase, mut now) = (0, 0, 0);
    while bench.detail("shaping_turns_refused") == 0 {
        now += 200_000;
        while bench.shaper.lanes.lanes[0].queue.len() < 8 {
            trigger += 1;
            bench.next_page = 0;
            bench.push(0, 4 * trigger, 16 * PAGE_WORDS);
        }
        if let Some((through, _)) = bench.through_at(now) {
            assert_eq!(through, phase);
            phase += 1;
            bench.shaper.handle_phase(phase);
        }
        assert!(now < 1_000_000_000, "the link takes everything");
    }
    assert_eq!(bench.detail("shaping_turns_overrun"), 1);
    bench.next_page = PAGES / 2;
    let other = 4 * trigger + 1;
    bench.push(1, other, 10);
    // Without any time: bu1's phase, and bu0's, in which nothing is sent.
    for _ in 0..10 {
        let (through, demand) = bench.through_at(now).expect("it does not wait for bu0");
        assert_eq!((through, demand), (phase, PhaseDemand::Waiting));
        phase += 1;
        bench.shaper.handle_phase(phase);
    }
    bench.expect(1, &[other]);
    assert_eq!(bench.detail("shaping_turns_overrun"), 1);
    // It reads again.
    let mut came = Vec::new();
    for _ in 0..1_000_000 {
        now += RETRY;
        if let Some((through, _)) = bench.through_at(now) {
            phase = through + 1;
            bench.shaper.handle_phase(phase);
        }
        came.extend(bench.received(0));
        if came.last() == Some(&(4 * trigger)) {
            break;
        }
    }
    assert_eq!(came, (1..=trigger).map(|n| 4 * n).collect::<Vec<u64>>());
    assert!(bench.shaper.is_empty() && bench.link.is_flushed());
}

/// Given a run that is ended by force, then what waits goes out without a barrier; and given a builder
/// unit that is lost, what waits for it does not.
#[test]
fn nothing_waits_for_a_barrier_that_may_be_gone() {
    let mut bench = Bench::new(Kind::Tcp, 3, 1024, phases(1_000_000));
    assert!(bench.through_at(0).is_some());
    for (to, trigger) in [(0, 1), (1, 2), (2, 3)] {
        bench.push(to, trigger, 100);
    }
    bench.shaper.lose(1);
    bench.link.lose(UnitId::builder(1));
    bench.shaper.end_waiting();
    for _ in 0..10 {
        assert_eq!(bench.through_at(1), None);
    }
    bench.expect(0, &[1]);
    bench.expect(2, &[3]);
    assert!(bench.shaper.is_empty());
    assert_eq!(bench.detail("shaping_fragments_withdrawn"), 1);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(SEEDS))),
        ..ProptestConfig::default()
    })]

    /// Two readout units, and a barrier of which any message is lost or comes twice: they never send to
    /// one builder unit in the same phase, and each of these gets each fragment whole, once and in order.
    #[test]
    fn every_fragment_comes_once_whatever_the_barrier_hears(
        fragments in prop::collection::vec((0..2_usize, 0..3_u16, 0..16 * PAGE_WORDS), 1..60),
        phase_bytes in 256..9000_u32,
        is_udp: bool,
        luck in prop::collection::vec(0..4_u8, 7..40),
    ) {
        let kind = if is_udp { Kind::Udp } else { Kind::Tcp };
        let mut benches = [0, 1].map(|index| {
            Bench::of_units(kind, (index, 2), 3, phase_bytes, phases(1_000_000))
        });
        let mut barrier = PhaseBarrier::new(2, DurationNs(u64::MAX));
        let mut expected = vec![Vec::new(); 6];
        let mut came = vec![Vec::new(); 6];
        for (trigger, (from, to, words)) in (1..).zip(&fragments) {
            benches[*from].push(*to, trigger, *words);
            expected[from * 3 + usize::from(*to)].push(trigger);
        }
        // Each thirteenth message comes, whatever the luck: no round of messages is as long, so that
        // none of them meets the same bad luck for ever.
        let mut luck = luck.iter().cycle().zip((0..13).cycle());
        let mut copies = || {
            let (luck, turn) = luck.next().expect("it goes round");
            (*luck).max(u8::from(turn == 0))
        };
        let mut now = 0;
        for _ in 0..20_000 {
            now += RETRY / 2;
            for (index, bench) in benches.iter_mut().enumerate() {
                if let Some((phase, demand)) = bench.through_at(now) {
                    for _ in 0..copies() {
                        barrier.handle_through(RunNs(now), index, phase, demand);
                    }
                }
                for builder in 0..3 {
                    came[index * 3 + builder].extend(bench.received(builder));
                }
            }
            while let Some((to, phase)) = barrier.poll_output() {
                for _ in 0..copies() {
                    benches[to].shaper.handle_phase(phase);
                }
            }
            if came == expected && benches.iter().all(|bench| bench.shaper.is_empty()) {
                break;
            }
        }
        prop_assert_eq!(came, expected, "{:?}", kind);
        for bench in &benches {
            prop_assert!(bench.shaper.is_empty() && bench.link.is_flushed());
            prop_assert_eq!(bench.payload_sent(), bench.detail("shaping_block_bytes"));
        }
    }
}
