use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::block_assembler::BlockAssembler;

fn shifter(senders: u16, sender: u16, receivers: u16, pace: Pace) -> BarrelShifter {
    let schedule = ShiftSchedule::in_order(senders, receivers);
    BarrelShifter::new(schedule, sender, pace, 1000, 8)
}

fn push(shifter: &mut BarrelShifter, to: u16, trigger: u64, bytes: u32) {
    shifter
        .push(to, TriggerNumber(trigger), SourceId(1), bytes)
        .unwrap();
}

#[test]
fn fragments_span_blocks_and_blocks_hold_several() {
    let mut shifter = shifter(1, 0, 1, Pace::BackPressure);
    for (trigger, bytes) in [(1, 300), (2, 1900), (3, 0), (4, 100)] {
        push(&mut shifter, 0, trigger, bytes);
    }
    let mut blocks = Vec::new();
    for _ in 0..4 {
        let block = shifter.poll_block(RunNs(0)).unwrap();
        let pieces: Vec<_> = block
            .pieces
            .iter()
            .map(|piece| (piece.trigger.0, piece.offset, piece.bytes))
            .collect();
        blocks.push(pieces);
    }
    assert_eq!(blocks[0], [(1, 0, 300), (2, 0, 700)]);
    assert_eq!(blocks[1], [(2, 700, 1000)]);
    assert_eq!(blocks[2], [(2, 1700, 200), (3, 0, 0), (4, 0, 100)]);
    assert_eq!(blocks[3], [], "an empty one keeps the step");
    let counts = shifter.counts();
    assert_eq!((counts.blocks, counts.blocks_empty), (4, 1));
    assert_eq!((counts.payload_bytes, counts.fragments), (2300, 4));
}

#[test]
fn a_full_queue_says_whose_it_is() {
    let mut shifter = shifter(2, 0, 2, Pace::BackPressure);
    (1..=8).for_each(|trigger| push(&mut shifter, 1, trigger, 10));
    let full = shifter.push(1, TriggerNumber(9), SourceId(1), 10);
    assert_eq!(full, Err(QueueFull { to: 1, held: 8 }));
    assert_eq!(shifter.withdraw(1), 8);
    assert!(shifter.is_empty());
}

#[test]
fn what_lies_behind_the_lanes_is_used_again() {
    let mut shifter = shifter(1, 0, 2, Pace::BackPressure);
    let mut came = Vec::new();
    for round in 0..20 {
        let withdrawn = round % 2;
        for n in 0..8 {
            push(&mut shifter, 0, 100 * round + n + 1, 900);
            push(&mut shifter, 1, 100 * round + n + 1, 900);
        }
        let mut take_block = |shifter: &mut BarrelShifter| {
            let block = shifter.poll_block(RunNs(0)).unwrap();
            let pieces = block.pieces.iter();
            came.extend(pieces.map(|p| (block.to, p.trigger.0, p.bytes)));
        };
        // Two blocks each, so that one goes on where those behind are moving up.
        for _ in 0..4 {
            take_block(&mut shifter);
        }
        assert_eq!(shifter.withdraw(withdrawn as u16), 6, "of 8 two are sent");
        while !shifter.is_empty() {
            take_block(&mut shifter);
        }
        let bytes_of = |to: u16, n: u64| {
            let pieces = came.iter().filter(|p| (p.0, p.1) == (to, 100 * round + n));
            pieces.map(|(_, _, bytes)| bytes).sum::<u32>()
        };
        for n in 1..=8 {
            assert_eq!(bytes_of(1 - withdrawn as u16, n), 900);
        }
        assert_eq!(bytes_of(withdrawn as u16, 4), 0);
        // An even number of blocks, so that the next round begins with the first receiver.
        if shifter.next_receiver() == Some(1) {
            shifter.give_turn_away();
        }
    }
    assert_eq!(shifter.behind.len(), 2 * (8 - NEAR));
}

#[test]
fn a_late_shifter_passes_over_what_it_missed_and_is_in_step() {
    let pace = Pace::Clock {
        start: RunNs(100),
        step: DurationNs(10),
    };
    let [mut prompt, mut late] = [0, 1].map(|sender| shifter(2, sender, 2, pace));
    assert_eq!(prompt.poll_block(RunNs(99)), None, "not yet begun");
    for step in 0..20 {
        let now = RunNs(100 + 10 * step + 3);
        let first = prompt.poll_block(now).unwrap();
        assert_eq!(prompt.poll_block(now), None, "one per step");
        assert_eq!(prompt.poll_timeout(), RunNs(110 + 10 * step));
        if step % 5 == 4 {
            let second = late.poll_block(now).unwrap();
            assert_eq!(second.step, first.step);
            assert_ne!(second.to, first.to);
        }
    }
    assert_eq!(prompt.counts().steps_missed, 0);
    assert_eq!(late.counts().steps_missed, 16);
}

#[test]
fn what_a_late_shifter_missed_is_counted_where_something_waited() {
    let pace = Pace::Clock {
        start: RunNs(0),
        step: DurationNs(10),
    };
    let mut shifter = shifter(3, 1, 3, pace);
    // Nothing is missed while there is nothing to send.
    shifter.skip_to(RunNs(1000));
    assert_eq!(shifter.poll_turn(RunNs(1000)), Some(2), "step 100");
    push(&mut shifter, 0, 1, 1500);
    // At steps 100 to 106 it was the turn of 2 0 1 2 0 1 2.
    assert_eq!(shifter.poll_turn(RunNs(1079)), Some(0), "step 107");
    let counts = *shifter.counts();
    assert_eq!((counts.steps_missed, counts.blocks_missed), (7, 2));
    shifter.give_turn_away();
    assert_eq!(shifter.poll_turn(RunNs(1079)), None, "one per step");
    let block = shifter.poll_block(RunNs(1100)).unwrap();
    assert_eq!(
        (block.to, block.step, block.payload_bytes()),
        (0, 110, 1000)
    );
    let counts = *shifter.counts();
    assert_eq!((counts.steps_missed, counts.blocks_missed), (9, 2));
    assert_eq!((counts.steps_given_away, counts.blocks), (1, 1));
}

#[test]
fn a_turn_that_is_given_away_is_the_next_ones() {
    let mut shifter = shifter(4, 3, 2, Pace::BackPressure);
    push(&mut shifter, 0, 1, 10);
    push(&mut shifter, 1, 2, 10);
    // It rests at the step of a third receiver, and where there is a fourth.
    assert_eq!(shifter.poll_turn(RunNs(0)), Some(0));
    shifter.give_turn_away();
    assert_eq!(shifter.poll_turn(RunNs(0)), Some(1));
    assert_eq!(shifter.poll_block(RunNs(0)).unwrap().pieces.len(), 1);
    assert_eq!(shifter.poll_block(RunNs(0)).unwrap().to, 0);
    assert!(shifter.is_empty());
}

#[test]
fn a_lost_block_breaks_the_fragments_in_it_and_no_others() {
    let mut shifter = shifter(1, 0, 1, Pace::BackPressure);
    for trigger in 1..=6 {
        push(&mut shifter, 0, trigger, 700);
    }
    let blocks: Vec<Block> = (0..5)
        .filter_map(|_| shifter.poll_block(RunNs(0)))
        .collect();
    let mut assembler = BlockAssembler::new();
    let mut whole = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        if index != 2 {
            assembler.handle_block(block, |piece| whole.push(piece.trigger.0));
            assembler.handle_block(block, |_| panic!("a block that came again"));
        }
    }
    // The blocks hold 1 2 | 2 3 | 3 4 5 | 5 6 | 6 of which the third is lost.
    assert_eq!(whole, [1, 2, 6]);
    let counts = assembler.counts();
    assert_eq!((counts.blocks_missing, counts.blocks_repeated), (1, 4));
    assert_eq!((counts.fragments, counts.fragments_broken), (3, 2));
}

proptest! {
    /// Whatever is pushed and whenever blocks are taken: each receiver gets every fragment whole,
    /// once and in order, blocks are never overfull, and bytes are conserved.
    #[test]
    fn every_fragment_arrives_whole_and_in_order(
        operations in prop::collection::vec((0..3_u16, 0..3000_u32, 0..4_u8), 1..300),
        senders in 1..4_u16,
    ) {
        let mut shifter = shifter(senders, senders - 1, 3, Pace::BackPressure);
        let mut assemblers: Vec<_> = (0..3).map(|_| BlockAssembler::new()).collect();
        let mut pushed: BTreeMap<u16, Vec<(u64, u32)>> = BTreeMap::new();
        let mut came: BTreeMap<u16, Vec<(u64, u32)>> = BTreeMap::new();
        let mut bytes_in = 0;
        let mut trigger = 0;
        let mut take = |shifter: &mut BarrelShifter| {
            let block = shifter.poll_block(RunNs(0)).expect("there always is one");
            assert!(block.payload_bytes() <= 1000);
            assemblers[usize::from(block.to)].handle_block(&block, |piece| {
                let whole = (piece.trigger.0, piece.total);
                came.entry(block.to).or_default().push(whole);
            });
        };
        for (to, bytes, blocks) in operations {
            trigger += 1;
            if shifter.push(to, TriggerNumber(trigger), SourceId(1), bytes).is_ok() {
                pushed.entry(to).or_default().push((trigger, bytes));
                bytes_in += u64::from(bytes);
            }
            (0..blocks).for_each(|_| take(&mut shifter));
        }
        for _ in 0..3 * 30 {
            take(&mut shifter);
        }
        prop_assert!(shifter.is_empty());
        prop_assert_eq!(came, pushed);
        prop_assert_eq!(shifter.counts().payload_bytes, bytes_in);
    }

    /// Any blocks at all: pieces that do not fit complete nothing, and nothing panics.
    #[test]
    fn nonsense_completes_nothing_that_is_not_whole(
        blocks in prop::collection::vec(
            (0..6_u32, prop::collection::vec((0..3_u64, 0..40_u32, 0..40_u32, 0..40_u32), 0..5)),
            0..60,
        ),
    ) {
        let mut assembler = BlockAssembler::new();
        for (sequence, pieces) in blocks {
            let pieces = pieces.into_iter().map(|(trigger, offset, bytes, total)| Piece {
                trigger: TriggerNumber(trigger),
                source: SourceId(1),
                offset,
                bytes,
                total,
            });
            let block = Block { to: 0, step: 0, sequence, pieces: pieces.collect() };
            let mut whole = Vec::new();
            assembler.handle_block(&block, |piece| whole.push(piece));
            for piece in whole {
                prop_assert_eq!((piece.offset, piece.bytes), (0, piece.total));
            }
        }
    }
}
