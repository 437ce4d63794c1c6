//! Turns of a barrel shifter: a block to one builder unit after the other.
//!
//! By back-pressure a turn is given away where nothing waits or the link takes nothing; with a clock
//! each step is looked at once.

use livetime_builder::BarrelShifter;
use livetime_wire::message::Envelope;
use livetime_wire::{RunNs, UnitId};

use super::lanes::Lanes;
use super::{NetworkLink, QueuedFragment};

/// Blocks made in one duty cycle, so that other roles get their turn.
const BLOCKS_PER_POLL: usize = 16;

/// Sends the blocks whose turn it is; returns how many had payload.
pub(super) fn poll(
    shifter: &mut BarrelShifter,
    lanes: &mut Lanes,
    now: RunNs,
    link: &mut NetworkLink,
    message: &mut impl FnMut(&QueuedFragment) -> Option<Envelope>,
) -> usize {
    let mut blocks = 0;
    while blocks < BLOCKS_PER_POLL
        && let Some(to) = next_block(shifter, lanes, now, link)
    {
        lanes.place(to, link, message);
        link.flush_to(UnitId::builder(to));
        blocks += 1;
    }
    blocks
}

/// The receiver of the next block with payload, which is in its lane, if it is time for one.
fn next_block(
    shifter: &mut BarrelShifter,
    lanes: &mut Lanes,
    now: RunNs,
    link: &NetworkLink,
) -> Option<u16> {
    if !lanes.is_turn_over(now, link) || shifter.is_empty() {
        return None;
    }
    let is_ready = |to| shifter.waiting(to) > 0 && lanes.is_taken(to, link);
    if shifter.poll_timeout() == RunNs::MAX && !(0..lanes.len()).any(is_ready) {
        // Without a clock turns are given away only to somebody.
        return None;
    }
    for _ in 0..lanes.len() {
        let to = shifter.poll_turn(now)?;
        if !lanes.is_taken(to, link) {
            // Of its last block there may be pieces that the link has no room for.
            shifter.give_turn_away();
            continue;
        }
        let block = lanes.lanes[usize::from(to)].begin_block();
        shifter.poll_block_into(now, block);
        if block.pieces.is_empty() {
            continue;
        }
        lanes.begin_turn(to, now);
        return Some(to);
    }
    None
}
