//! Tests of the cards, pin by pin.

use super::*;
use crate::line_fault::FaultRates;
use crate::reset_handshake::{ResetHandshake, SystemReset};
use crate::self_test::LinkWidth;

const BEGIN: LineWord = LineWord::Control(ControlWord::BEGIN_FRAGMENT);
const END: LineWord = LineWord::Control(ControlWord::END_FRAGMENT);

fn write(link: &mut CardLink, word: LineWord) -> (SourceSignals, DestinationSignals) {
    let word = Some(word);
    let near = SourcePins {
        word,
        ..SourcePins::IDLE
    };
    link.clock(near, DestinationPins::IDLE)
}

fn idle(link: &mut CardLink, clocks: u32) -> Vec<DestinationSignals> {
    (0..clocks)
        .map(|_| link.clock(SourcePins::IDLE, DestinationPins::IDLE).1)
        .filter(|far| far.word.is_some())
        .collect()
}

/// Sends the words as LFF# allows and returns what came.
fn transfer(link: &mut CardLink, words: &[LineWord]) -> Vec<DestinationSignals> {
    let (mut next, mut full, mut came) = (0, FlowControl::Xon, Vec::new());
    while next < words.len() {
        let word = (full == FlowControl::Xon).then(|| words[next]);
        next += usize::from(word.is_some());
        let near = SourcePins {
            word,
            ..SourcePins::IDLE
        };
        let (source, far) = link.clock(near, DestinationPins::IDLE);
        full = source.full;
        came.extend(far.word.map(|_| far));
    }
    came.extend(idle(link, 2000));
    came
}

fn block(data: u32) -> Vec<LineWord> {
    let data = (0..data).map(|n| LineWord::Data(n * 3));
    [BEGIN].into_iter().chain(data).chain([END]).collect()
}

#[test]
fn cards_carry_words_in_order_at_the_rate_of_their_line() {
    for (config, words_per_s) in [
        (CardLinkConfig::HOLA, 40.0e6),
        (CardLinkConfig::ODIN_SINGLE, 32.0e6),
        (CardLinkConfig::ODIN_DOUBLE, 40.0e6),
    ] {
        let mut link = CardLink::new(config, LineFaultPlan::none());
        let words: Vec<LineWord> = (0..10_000).map(LineWord::Data).collect();
        let (mut next, mut clocks, mut came, mut full) = (0, 0u32, Vec::new(), FlowControl::Xon);
        while came.len() < words.len() {
            let word = words.get(next).copied();
            let word = word.filter(|_| full == FlowControl::Xon);
            next += usize::from(word.is_some());
            let near = SourcePins {
                word,
                ..SourcePins::IDLE
            };
            let (source, far) = link.clock(near, DestinationPins::IDLE);
            full = source.full;
            came.extend(far.word);
            clocks += 1;
        }
        assert_eq!(came, words);
        let rate = 10_000.0 / f64::from(clocks) * 40.0e6;
        assert!((rate / words_per_s - 1.0).abs() < 0.01, "{rate}");
        assert_eq!(link.counters().overruns, 0);
    }
}

#[test]
fn link_full_leaves_room_for_the_words_of_grace_and_no_more_is_promised() {
    let config = CardLinkConfig {
        full_below: 3,
        ..CardLinkConfig::ODIN_SINGLE
    };
    for grace in [2, 3, 40] {
        let mut link = CardLink::new(config, LineFaultPlan::none());
        // Nothing leaves: the far end asks for XOFF from the start.
        let xoff = ReturnWord {
            flow: FlowControl::Xoff,
            lines: 0,
        };
        let far = DestinationPins {
            back: xoff,
            ..DestinationPins::IDLE
        };
        for _ in 0..200 {
            link.clock(SourcePins::IDLE, far);
        }
        for _ in 0..61 + grace {
            let near = SourcePins {
                word: Some(END),
                ..SourcePins::IDLE
            };
            let full = link.clock(near, far).0.full;
            assert_eq!(full, FlowControl::Xoff);
        }
        let overruns = 61 + grace - 64u64.min(61 + grace);
        let counters = link.counters();
        assert_eq!(counters.overruns, overruns);
        assert_eq!(counters.end_words_lost, overruns);
    }
    let mut link = CardLink::new(CardLinkConfig::ODIN_SINGLE, LineFaultPlan::none());
    let mut written = 0;
    while write(&mut link, LineWord::Data(0)).0.full == FlowControl::Xon {
        written += 1;
    }
    assert!(written > 200, "a fifth of the words stays in the buffer");
    assert_eq!(link.buffer.len(), 49, "fewer than 16 words fit");
}

#[test]
fn words_after_xoff_are_bounded_and_a_lost_return_word_costs_a_period() {
    let rates = FaultRates {
        return_loss_ppm: 200_000,
        ..FaultRates::default()
    };
    for (plan, periods_lost_max) in [
        (LineFaultPlan::none(), 0),
        (LineFaultPlan::seeded(5, rates), 12),
    ] {
        let mut worst = 0;
        for start in 500..560 {
            let config = CardLinkConfig::ODIN_DOUBLE;
            let mut link = CardLink::new(config, plan.clone());
            let (mut after, mut full) = (0, FlowControl::Xon);
            for clock in 0..2000 {
                let flow = if clock < start {
                    FlowControl::Xon
                } else {
                    FlowControl::Xoff
                };
                let back = ReturnWord { flow, lines: 0 };
                let far = DestinationPins {
                    back,
                    ..DestinationPins::IDLE
                };
                let near = SourcePins {
                    word: (full == FlowControl::Xon).then_some(LineWord::Data(1)),
                    ..SourcePins::IDLE
                };
                let (source, far) = link.clock(near, far);
                full = source.full;
                after += u32::from(clock > start && far.word.is_some());
            }
            assert_eq!(full, FlowControl::Xoff);
            assert!(after <= config.words_in_flight() + 8 * periods_lost_max);
            worst = worst.max(after);
        }
        let without_loss = CardLinkConfig::ODIN_DOUBLE.words_in_flight();
        assert_eq!(worst > without_loss, periods_lost_max > 0, "{worst}");
    }
}

#[test]
fn damaged_words_are_reported_by_block_or_by_word() {
    use LineFault::{DropWord, FlipBit, RepeatWord};
    for (fault, came) in [(FlipBit(4), 12), (DropWord, 11), (RepeatWord, 13)] {
        for reporting in [ErrorReporting::Block, ErrorReporting::Word] {
            let config = CardLinkConfig {
                reporting,
                ..CardLinkConfig::default()
            };
            // Word 3 is in the first of two blocks.
            let mut link = CardLink::new(config, LineFaultPlan::scripted(vec![(3, fault)]));
            let words = [block(4), block(4)].concat();
            let seen = transfer(&mut link, &words);
            assert_eq!(seen.len(), came);
            let controls: Vec<u32> = (seen.iter())
                .filter_map(|far| match far.word {
                    Some(LineWord::Control(word)) => Some(word.0),
                    _ => None,
                })
                .collect();
            assert_eq!(
                controls,
                [0xB0F0_0000, 0xE0F0_0001, 0xB0F0_0000, 0xE0F0_0000]
            );
            let errors = seen.iter().filter(|far| far.has_error).count();
            let of_words = match (reporting, fault) {
                (ErrorReporting::Block, _) | (_, DropWord) => 0,
                (ErrorReporting::Word, RepeatWord) => 2,
                (ErrorReporting::Word, _) => 1,
            };
            assert_eq!(errors, 1 + of_words, "{fault:?} {reporting:?}");
        }
    }
    let script = LineFaultPlan::scripted(vec![(5, FlipBit(0))]);
    let mut link = CardLink::new(CardLinkConfig::default(), script);
    let seen = transfer(&mut link, &block(4));
    let last = seen.last().unwrap();
    assert_eq!(last.word, Some(LineWord::Control(ControlWord(0xE0F0_0012))));
    assert!(last.has_error);
}

#[test]
fn reset_of_both_ends_takes_the_link_down_and_brings_it_up_empty() {
    let config = CardLinkConfig::default();
    let mut link = CardLink::new(config, LineFaultPlan::none());
    for word in block(30) {
        write(&mut link, word);
    }
    let mut reset = SystemReset::new(32);
    reset.start();
    let (mut source, mut destination) = (LinkState::Up, LinkState::Up);
    let (mut source_down, mut destination_down, mut words, mut clocks) = (0, 0, 0, 0);
    while reset.is_resetting() {
        let (near, far) = reset.clock(source, destination);
        let near = SourcePins {
            reset: near,
            ..SourcePins::IDLE
        };
        let far = DestinationPins {
            reset: far,
            ..DestinationPins::IDLE
        };
        let (source_signals, far) = link.clock(near, far);
        (source, destination) = (source_signals.link, far.link);
        source_down += u32::from(source == LinkState::Down);
        destination_down += u32::from(destination == LinkState::Down);
        words += u64::from(far.word.is_some());
        clocks += 1;
        assert!(clocks < 10_000);
    }
    assert!(source_down >= 2 * 1000 - 30 && destination_down >= 2 * 1000 - 30);
    let counters = link.counters();
    assert_eq!(counters.link_downs, 2, "one for each end");
    assert_eq!(
        counters.words_written,
        counters.words_delivered + counters.words_lost
    );
    assert_eq!(counters.end_words_lost, 1);
    assert!(words < 32);
    assert_eq!(transfer(&mut link, &block(5)).len(), 7);
}

#[test]
fn reset_of_one_end_is_seen_at_the_other() {
    let mut link = CardLink::new(CardLinkConfig::default(), LineFaultPlan::none());
    let mut reset = ResetHandshake::new(1);
    reset.start();
    let (mut link_far, mut down_near) = (LinkState::Up, 0);
    while reset.is_resetting() {
        let far = DestinationPins {
            reset: reset.clock(link_far),
            ..DestinationPins::IDLE
        };
        let (near, far) = link.clock(SourcePins::IDLE, far);
        link_far = far.link;
        down_near += u32::from(near.link == LinkState::Down);
    }
    assert!((970..1010).contains(&down_near), "{down_near}");
}

#[test]
fn unplugged_fibre_loses_what_is_on_it_and_each_lost_end_word_is_counted() {
    let mut link = CardLink::new(CardLinkConfig::default(), LineFaultPlan::none());
    let (mut written, mut ends, mut full) = (0, 0, FlowControl::Xon);
    let words = [block(3), block(3)].concat();
    let mut came = 0;
    let mut link_seen = Vec::new();
    for clock in 0..3000 {
        match clock {
            500 => link.unplug(),
            1000 => link.plug(),
            _ => {}
        }
        let near = SourcePins {
            word: (full == FlowControl::Xon).then(|| words[written % 10]),
            ..SourcePins::IDLE
        };
        written += usize::from(near.word.is_some());
        ends += u64::from(near.word == Some(END));
        let (source, far) = link.clock(near, DestinationPins::IDLE);
        full = source.full;
        came += u64::from(far.word == Some(END));
        if link_seen.last() != Some(&source.link) {
            link_seen.push(source.link);
        }
    }
    assert_eq!(link_seen, [LinkState::Up, LinkState::Down, LinkState::Up]);
    let counters = link.counters();
    assert!(counters.words_while_down > 900 && counters.words_lost > 10);
    let inside = link.buffer.iter().filter(|word| **word == END).count();
    let on_line = |symbol: &&Symbol| matches!(symbol.carried, Carried::User(word) if word == END);
    let inside = (inside + link.line.iter().filter(on_line).count()) as u64;
    assert_eq!(ends, came + counters.end_words_lost + inside);
}

#[test]
fn self_test_runs_through_the_line_and_finds_each_fault() {
    let (wide, half, narrow) = (LinkWidth::Bits32, LinkWidth::Bits16, LinkWidth::Bits8);
    for (test, fault, errors, width) in [
        (SelfTest::Off, None, 0, wide),
        (SelfTest::CheckAndDeliver, None, 0, wide),
        (SelfTest::CheckAndDeliver, None, 0, narrow),
        (SelfTest::Check, Some(LineFault::FlipBit(3)), 1, wide),
        (SelfTest::Check, Some(LineFault::FlipBit(3)), 1, half),
        (SelfTest::Check, Some(LineFault::DropWord), 1, wide),
        (SelfTest::Check, Some(LineFault::DropWord), 1, narrow),
    ] {
        let plan = LineFaultPlan::scripted(fault.map(|fault| (50, fault)).into_iter().collect());
        let config = CardLinkConfig {
            width,
            ..CardLinkConfig::default()
        };
        let mut link = CardLink::new(config, plan);
        let near = SourcePins {
            test: SourceTest::WalkingOne,
            ..SourcePins::IDLE
        };
        let back = ReturnWord {
            flow: FlowControl::Xon,
            lines: 0b1010,
        };
        let far = DestinationPins {
            test,
            back,
            ..DestinationPins::IDLE
        };
        let (mut delivered, mut downs) = (0, 0);
        for _ in 0..3400 {
            let (source, far) = link.clock(near, far);
            assert_eq!(source.link, LinkState::Down);
            delivered += u32::from(far.word.is_some());
            downs += u32::from(far.link == LinkState::Down);
        }
        assert_eq!(delivered > 0, test == SelfTest::CheckAndDeliver);
        assert!(
            downs >= 3380,
            "the far end is down from the first test word on"
        );
        assert_eq!(link.checker().errors, errors);
        // A control word takes longer than a data word.
        let clocks_x100 = width.cycle_words() as u64 * 100 + 28;
        assert!(link.checker().cycles_good >= 3400 * 100 / clocks_x100 - 5);
        let (source, _) = link.clock(SourcePins::IDLE, far);
        assert_eq!(
            source.return_lines, 0b1010,
            "return lines work in self-test"
        );
        idle(&mut link, 100);
        assert_eq!(transfer(&mut link, &block(3)).len(), 5);
    }
}
