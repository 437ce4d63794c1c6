//! Datagrams over the loopback interface, which loses none but for want of room.

use livetime_readout::{BlockEnd, HeapPages, PageRead};
use livetime_wire::LossCause;
use livetime_wire::link_frame::FrameNumbers;
use proptest::prelude::*;

use super::*;
use crate::link::udp_source::UdpSource;

fn link(config: UdpConfig, pages: u32) -> UdpLink<HeapPages> {
    assert_eq!(config.validate("link"), []);
    let link = LinkConfig {
        page_words: 1024,
        pages,
        xoff_below: 2,
        xon_above: 4,
        words_in_flight: 7,
        ..LinkConfig::default()
    };
    let store = HeapPages::new(0, link.pages, link.page_words);
    UdpLink::bind("127.0.0.1:0", config, link, 0, store).unwrap()
}

/// The same with a socket to send from and the address to send to.
fn link_and_sender(config: UdpConfig, pages: u32) -> (UdpLink<HeapPages>, UdpSocket, SocketAddr) {
    let link = link(config, pages);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = link.local_address().unwrap();
    (link, socket, to)
}

/// Takes all that is there; the first words of the blocks that came whole. Blocks of these tests
/// fit into a page.
fn drain(link: &mut UdpLink<HeapPages>, now: RunNs) -> Vec<u32> {
    let mut firsts = Vec::new();
    loop {
        let datagrams = link.receive(now).unwrap();
        let mut pages = 0;
        while let Some(completed) = link.poll() {
            pages += 1;
            let first = link.blocks().store().words(completed.page)[0];
            link.recycle(completed.page).unwrap();
            match completed.block_end {
                BlockEnd::EndWord => firsts.push(first),
                end => assert_eq!(end, BlockEnd::LinkDown),
            }
        }
        if datagrams == 0 && pages == 0 {
            return firsts;
        }
    }
}

/// A frame as a datagram.
fn datagram(numbers: &mut FrameNumbers, first: u32) -> Vec<u32> {
    let (header, _) = numbers.frames(3, 100).next().unwrap();
    [&header.emit()[..], &[first, 0, 0]].concat()
}

#[test]
fn blocks_over_the_loopback_come_whole_in_order_and_without_loss() {
    let mut link = link(UdpConfig::default(), 64);
    let mut source = UdpSource::new(link.local_address().unwrap(), 362).unwrap();
    let mut next = 0;
    for round in 0..200u32 {
        for block in 0..10 {
            source
                .send(&vec![round * 10 + block; 1 + 90 * block as usize])
                .unwrap();
        }
        for first in drain(&mut link, RunNs(u64::from(round))) {
            assert_eq!(first, next);
            next += 1;
        }
    }
    assert_eq!(next, 2000);
    let counters = link.counters();
    assert_eq!(counters.datagrams, source.numbers().frames_made());
    assert_eq!((counters.datagrams_bad, counters.datagrams_late), (0, 0));
    assert!(counters.calls < counters.datagrams / 2, "many in one call");
    assert_eq!(link.blocks().losses().total(), 0);
}

#[test]
fn what_the_kernel_drops_is_what_the_numbers_miss() {
    // The smallest buffer that the system gives, and one that holds more than a batch, so that full
    // batches come of which not each tells the kernel's count.
    for (buffer_bytes, least) in [(4096, 1000), (64 << 10, 200)] {
        overflow(buffer_bytes, least);
    }
}

/// Floods a link with a socket's buffer of this size, so that at least so many datagrams are dropped.
fn overflow(buffer_bytes: usize, least: u64) {
    let config = UdpConfig {
        buffer_bytes,
        ..UdpConfig::default()
    };
    let mut link = link(config, 64);
    let mut source = UdpSource::new(link.local_address().unwrap(), 362).unwrap();
    let mut came = 0;
    for flood in 0..20 {
        for block in 0..100 {
            source.send(&[flood * 100 + block; 300]).unwrap();
        }
        came += drain(&mut link, RunNs(u64::from(flood))).len() as u64;
    }
    // One that finds room tells both counts as of itself; what is far ahead waits for another.
    for _ in 0..2 {
        source.send(&[7; 300]).unwrap();
        came += drain(&mut link, RunNs(1 << 40)).len() as u64;
    }
    came += drain(&mut link, RunNs(1 << 41)).len() as u64;
    let counters = link.counters();
    let blocks = link.blocks().counters();
    assert!(counters.kernel_drops > least, "{counters:?}");
    assert_eq!(counters.missing_at_kernel_drops, counters.kernel_drops);
    assert_eq!(blocks.frames_missing, counters.kernel_drops);
    assert_eq!(came, blocks.blocks);
    assert_eq!(source.numbers().blocks_made(), came + blocks.blocks_lost);
    assert_eq!(
        link.blocks().losses().of(LossCause::DatagramLost),
        blocks.blocks_lost
    );
}

#[test]
fn datagrams_out_of_order_are_put_in_order_within_the_window() {
    let config = UdpConfig {
        window: 8,
        ..UdpConfig::default()
    };
    let (mut link, socket, to) = link_and_sender(config, 64);
    let mut numbers = FrameNumbers::default();
    let datagrams: Vec<Vec<u32>> = (0..40).map(|n| datagram(&mut numbers, n)).collect();
    let send = |n: usize| socket.send_to(datagrams[n].as_bytes(), to).unwrap();
    for n in [0, 3, 2, 1, 1, 4, 11, 5, 6, 7, 8, 9, 10] {
        send(n);
    }
    let expected: Vec<u32> = (0..12).collect();
    assert_eq!(drain(&mut link, RunNs(0)), expected);
    assert_eq!(link.counters().datagrams_late, 1);
    assert_eq!(link.counters().datagrams_early, 3);
    // 12 and 14 never come: 21 is beyond the window of 12, and time passes for 14.
    for n in [13, 15, 16, 17, 18, 19, 21, 20] {
        send(n);
    }
    assert_eq!(drain(&mut link, RunNs(5)), [13]);
    assert_eq!(
        drain(&mut link, RunNs(20_000_000)),
        [15, 16, 17, 18, 19, 20, 21]
    );
    send(12);
    assert!(drain(&mut link, RunNs(20_000_001)).is_empty());
    assert_eq!(link.counters().datagrams_late, 2);
    let blocks = link.blocks().counters();
    assert_eq!((blocks.frames_missing, blocks.blocks_lost), (2, 2));
}

#[test]
fn what_came_while_nobody_read_is_not_given_up() {
    let (mut link, socket, to) = link_and_sender(UdpConfig::default(), 64);
    let mut numbers = FrameNumbers::default();
    let datagrams: Vec<Vec<u32>> = (0..5).map(|n| datagram(&mut numbers, n)).collect();
    let send = |n: usize| socket.send_to(datagrams[n].as_bytes(), to).unwrap();
    send(1);
    assert!(drain(&mut link, RunNs(0)).is_empty());
    send(0);
    let late = RunNs(100 * UdpConfig::default().patience.0);
    assert!(link.is_overdue(late) && !link.is_overdue(RunNs(1)));
    // Who did not look into the socket gives nothing up.
    assert!(link.advance(late));
    assert_eq!(drain(&mut link, late), [0, 1]);
    // The same where a tally says what was sent.
    let tally = LinkTally {
        frames: 4,
        blocks_low: 4,
    };
    send(3);
    socket.send_to(tally.emit().as_bytes(), to).unwrap();
    assert!(drain(&mut link, late).is_empty());
    send(2);
    let later = RunNs(2 * late.0);
    assert_eq!(drain(&mut link, later), [2, 3]);
    assert_eq!(link.counters().datagrams_late, 0);
    assert_eq!(link.blocks().losses().total(), 0);
}

/// A tally among the datagrams of one call, of which the last one ends within a block.
#[test]
fn a_tally_costs_no_block_that_has_begun_behind_it() {
    let (mut link, socket, to) = link_and_sender(UdpConfig::default(), 64);
    let mut numbers = FrameNumbers::default();
    let send = |words: &[u32]| socket.send_to(words.as_bytes(), to).unwrap();
    send(&datagram(&mut numbers, 5));
    send(&numbers.tally().emit());
    let halves: Vec<Vec<u32>> = numbers
        .frames(6, 3)
        .map(|(header, _)| [&header.emit()[..], &[7, 7, 7]].concat())
        .collect();
    assert_eq!(halves.len(), 2);
    send(&halves[0]);
    assert_eq!(drain(&mut link, RunNs(0)), [5]);
    send(&halves[1]);
    assert_eq!(drain(&mut link, RunNs(1)), [7]);
    assert_eq!(link.blocks().losses().total(), 0);
}

/// A block of one frame with any numbers.
fn numbered(number: u64, block: u64, first: u32) -> Vec<u32> {
    let header = FrameHeader {
        begins_block: true,
        ends_block: true,
        number,
        block_low: block as u32,
        data_words: 1,
    };
    [&header.emit()[..], &[first]].concat()
}

fn tally(frames: u64, blocks: u64) -> Vec<u32> {
    let tally = LinkTally {
        frames,
        blocks_low: blocks as u32,
    };
    tally.emit().to_vec()
}

/// Sends 100 blocks and their tally, with `strange` before one of them, and in this order; nothing of
/// them is lost, and one datagram is bad.
fn all_come_beside(strange: &[u32], before: u64, order: impl Iterator<Item = u64>) {
    let (mut link, socket, to) = link_and_sender(UdpConfig::default(), 64);
    let send = |words: &[u32]| socket.send_to(words.as_bytes(), to).unwrap();
    let mut came = Vec::new();
    for number in order {
        if number == before {
            send(strange);
            came.extend(drain(&mut link, RunNs(number)));
        }
        send(&numbered(number, number, number as u32));
        came.extend(drain(&mut link, RunNs(number)));
    }
    send(&tally(100, 100));
    came.extend(drain(&mut link, RunNs(100)));
    assert_eq!(came, (0..100).collect::<Vec<u32>>(), "{strange:?}");
    let counters = link.counters();
    assert_eq!(
        (counters.datagrams_bad, counters.datagrams_late),
        (1, 0),
        "{strange:?}"
    );
    assert_eq!(
        (link.frames_seen(), link.blocks().blocks_settled()),
        (100, 100)
    );
    assert_eq!(link.blocks().losses().total(), 0, "{strange:?}");
    assert_eq!(link.blocks().counters().frames_missing, 0);
    assert!(link.is_empty() && !link.is_overdue(RunNs(1 << 60)));
}

/// What becomes of a frame on its way, and what the reader does then.
#[derive(Debug, Clone)]
struct Step {
    /// Words of its block, if it is the first of one.
    words: usize,
    /// It comes so often: the last time with two before it, as later copies.
    times: u8,
    /// A frame that was never sent comes behind it: ahead by frames and blocks; begins, ends.
    forged: Option<(u64, u32, bool, bool)>,
    is_read: bool,
    are_pages_free: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let forged =
        proptest::option::weighted(0.3, (0..9_u64, 0..4_u32, any::<bool>(), any::<bool>()));
    let times = prop_oneof![1 => Just(0_u8), 8 => Just(1), 2 => Just(2)];
    let free = proptest::bool::weighted(0.2);
    let step = (1..20_usize, times, forged, any::<bool>(), free);
    let step = step.prop_map(|(words, times, forged, is_read, are_pages_free)| Step {
        words,
        times,
        forged,
        is_read,
        are_pages_free,
    });
    proptest::collection::vec(step, 20..200)
}

/// Takes blocks of several frames in these steps, with few pages; how many came whole.
fn take_steps(steps: &[Step]) -> Result<(), TestCaseError> {
    let config = UdpConfig {
        window: 8,
        ..UdpConfig::default()
    };
    let (mut link, socket, to) = link_and_sender(config, 8);
    let send = |words: &[u32]| socket.send_to(words.as_bytes(), to).unwrap();
    let (mut numbers, mut frames) = (FrameNumbers::default(), Vec::new());
    for step in steps {
        let made = numbers.frames(step.words, 5);
        frames.extend(made.map(|(header, range)| (header, vec![7; range.len()])));
    }
    let words_of = |(header, data): &(FrameHeader, Vec<u32>)| [&header.emit()[..], data].concat();
    let mut held: Vec<u32> = Vec::new();
    for ((at, frame), step) in frames.iter().enumerate().zip(steps.iter().cycle()) {
        if step.times > 0 {
            send(&words_of(frame));
        }
        if step.times > 1 {
            let copies = frames[at.saturating_sub(2)..=at].iter();
            for copy in copies {
                send(&words_of(copy));
            }
        }
        if let Some((frames_ahead, blocks_ahead, begins_block, ends_block)) = step.forged {
            let header = FrameHeader {
                begins_block,
                ends_block,
                number: frame.0.number + frames_ahead,
                block_low: frame.0.block_low + blocks_ahead,
                data_words: 1,
            };
            send(&words_of(&(header, vec![9])));
        }
        if step.is_read {
            link.receive(RunNs(at as u64)).unwrap();
        }
        held.extend(std::iter::from_fn(|| link.poll()).map(|completed| completed.page));
        if step.are_pages_free {
            held.drain(..).for_each(|page| link.recycle(page).unwrap());
        }
    }
    held.drain(..).for_each(|page| link.recycle(page).unwrap());
    // What waits for a page, and then what is waited for too long.
    for round in 0..20 {
        drain(&mut link, RunNs(round << 40));
    }
    prop_assert!(link.is_empty());
    prop_assert!(link.counters().datagrams > 0);
    Ok(())
}

proptest! {
    /// It comes to an end, whatever comes, and nothing waits then.
    #[test]
    fn whatever_comes_with_or_without_pages_is_taken_or_dropped(steps in steps()) {
        take_steps(&steps)?;
    }
}

#[test]
fn numbers_that_nobody_can_have_meant_are_refused_and_lose_nothing() {
    for strange in [
        numbered(60, 50, 7),
        numbered(60, 49, 7),
        numbered(100_050, 50, 7),
        numbered(100_050, 100_050, 7),
        numbered(50 + (1 << 32), 50, 7),
        numbered(50 + (1 << 32), 51, 7),
        numbered(50, 55, 7),
        numbered(u64::MAX, 51, 7),
        numbered(1050, 1050, 7),
        numbered(50 + 64, 50 + 64, 7),
        numbered(50 + 100, 50 + 100, 7),
        tally(1050, 1050),
        tally(110, 60),
        tally(50, 55),
        tally(50, 45),
        tally(55, 53),
        tally(1_000_050, 1_000_050),
        tally(50 + (1 << 32), 55),
        tally(45, 60),
        tally(u64::MAX, 51),
    ] {
        all_come_beside(&strange, 50, 0..100);
    }
}

/// Where a datagram is late, numbers may be wrong that what came so far allows.
#[test]
fn numbers_that_later_ones_contradict_are_dropped_then() {
    let order = |late: u64, behind: u64| {
        let others = (0..100).filter(move |number| *number != late);
        others.flat_map(move |number| {
            let then = (number == behind).then_some(late);
            core::iter::once(number).chain(then)
        })
    };
    all_come_beside(&numbered(60, 55, 7), 50, order(49, 54));
    // The one whose number it has comes before it is next itself.
    all_come_beside(&numbered(60, 53, 7), 50, order(59, 60));
    all_come_beside(&tally(60, 58), 50, order(49, 54));
}

/// Given more datagrams lost in a row than the window has, then two that come behind them end the wait
/// for those alone that are a window behind: others may be late.
#[test]
fn what_is_a_window_ahead_is_believed_with_another_and_what_is_late_comes() {
    let config = UdpConfig {
        window: 8,
        ..UdpConfig::default()
    };
    let (mut link, socket, to) = link_and_sender(config, 64);
    let send = |n: u64| {
        let words = numbered(n, n, n as u32);
        socket.send_to(words.as_bytes(), to).unwrap();
    };
    send(0);
    send(12);
    assert_eq!(drain(&mut link, RunNs(0)), [0]);
    assert_eq!(link.blocks().counters().frames_missing, 0, "one alone");
    send(13);
    (6..12).rev().for_each(send);
    let came = drain(&mut link, RunNs(1));
    assert_eq!(came, [6, 7, 8, 9, 10, 11, 12, 13]);
    let (counters, blocks) = (link.counters(), link.blocks().counters());
    assert_eq!((counters.datagrams_bad, counters.datagrams_late), (0, 0));
    assert_eq!((blocks.frames_missing, blocks.blocks_lost), (5, 5));
}

/// Given a frame within a block whose number is a copy's, ahead of all that are sent, then nothing is given
/// up for it once what came since contradicts it.
#[test]
fn nothing_is_missing_for_an_early_frame_that_was_contradicted() {
    let (mut link, socket, to) = link_and_sender(UdpConfig::default(), 64);
    let send = |words: &[u32]| socket.send_to(words.as_bytes(), to).unwrap();
    let mut numbers = FrameNumbers::default();
    let mut came = 0;
    for block in 0..20_u32 {
        for (header, range) in numbers.frames(6, 3) {
            let words = [&header.emit()[..], &[block; 6][range]].concat();
            if block == 10 && header.ends_block {
                let mut copy = words.clone();
                copy[2] += 40;
                send(&copy);
            }
            send(&words);
        }
        came += drain(&mut link, RunNs(u64::from(block))).len();
    }
    let late = RunNs(2 * UdpConfig::default().patience.0);
    drain(&mut link, late);
    assert_eq!(came, 20);
    assert!(link.is_empty());
    assert_eq!(link.blocks().counters().frames_missing, 0);
    assert_eq!(link.counters().datagrams_bad, 1);
    assert_eq!(link.blocks().losses().total(), 0);
}

#[test]
fn a_long_way_ahead_is_believed_once_another_datagram_agrees() {
    const FAR: u64 = 10 * FRAMES_AHEAD_MAX;
    let patience = UdpConfig::default().patience.0;
    for (datagrams, expected, settled) in [
        // Frames, also where something was still waited for.
        (
            vec![numbered(FAR, FAR, 3), numbered(FAR + 1, FAR + 1, 4)],
            &[0, 3, 4][..],
            FAR + 2,
        ),
        (
            vec![
                numbered(2, 2, 2),
                numbered(FAR, FAR, 3),
                numbered(FAR + 2, FAR + 2, 4),
            ],
            &[0, 2, 3, 4],
            FAR + 3,
        ),
        // Tallies, of which the sender repeats the last one, and both.
        (vec![tally(FAR, FAR), tally(FAR, FAR)], &[0], FAR),
        (
            vec![tally(FAR, FAR), numbered(FAR, FAR, 3)],
            &[0, 3],
            FAR + 1,
        ),
        (
            vec![numbered(FAR, FAR, 3), tally(FAR + 1, FAR + 1)],
            &[0, 3],
            FAR + 1,
        ),
    ] {
        let (mut link, socket, to) = link_and_sender(UdpConfig::default(), 64);
        let mut came = Vec::new();
        for words in [&[numbered(0, 0, 0)], &datagrams[..]].concat() {
            socket.send_to(words.as_bytes(), to).unwrap();
            came.extend(drain(&mut link, RunNs(0)));
        }
        for step in 1..4 {
            came.extend(drain(&mut link, RunNs(step * patience)));
        }
        assert_eq!(came, expected);
        assert_eq!(link.counters().datagrams_bad, 0);
        let blocks = link.blocks();
        let lost = settled - expected.len() as u64;
        assert_eq!(
            (blocks.blocks_settled(), blocks.losses().total()),
            (settled, lost)
        );
        assert_eq!(link.frames_seen(), settled);
    }
}

#[test]
fn strangers_are_counted_and_harm_nothing() {
    let (mut link, socket, to) = link_and_sender(UdpConfig::default(), 64);
    let mut numbers = FrameNumbers::default();
    let good = datagram(&mut numbers, 5);
    let mut other_version = good.clone();
    other_version[1] ^= 1 << 16;
    for bytes in [&b"hello"[..], &[], good.as_bytes().split_last().unwrap().1] {
        socket.send_to(bytes, to).unwrap();
    }
    socket.send_to(other_version.as_bytes(), to).unwrap();
    socket.send_to(&vec![0; 65_507], to).unwrap();
    socket.send_to(good.as_bytes(), to).unwrap();
    assert_eq!(drain(&mut link, RunNs(0)), [5]);
    assert_eq!(link.counters().datagrams_bad, 5);
    let bad = UdpConfig {
        window: 0,
        data_words_max: 20_000,
        ..UdpConfig::default()
    };
    let paths: Vec<_> = bad.validate("link").into_iter().map(|p| p.path).collect();
    assert_eq!(paths, ["link.window", "link.data_words_max"]);
}

#[test]
fn a_datagram_of_one_word_too_many_is_refused() {
    let config = UdpConfig {
        data_words_max: 100,
        ..UdpConfig::default()
    };
    let (mut link, socket, to) = link_and_sender(config, 64);
    for words in [101, 100] {
        let (header, _) = FrameNumbers::default().frames(words, 200).next().unwrap();
        let datagram = [&header.emit()[..], &vec![words as u32; words]].concat();
        socket.send_to(datagram.as_bytes(), to).unwrap();
    }
    assert_eq!(drain(&mut link, RunNs(0)), [100]);
    assert_eq!(link.counters().datagrams_bad, 1);
}

#[test]
fn without_pages_datagrams_wait_and_nothing_is_lost_that_fits_the_buffer() {
    let mut link = link(UdpConfig::default(), 24);
    let mut source = UdpSource::new(link.local_address().unwrap(), 362).unwrap();
    for block in 0..100 {
        source.send(&[block; 900]).unwrap();
    }
    // Nobody polls: the pages are used up.
    for _ in 0..10 {
        link.receive(RunNs(0)).unwrap();
    }
    assert!(link.blocks().counters().stalls > 0);
    let came = drain(&mut link, RunNs(1));
    assert_eq!(came, (0..100).collect::<Vec<u32>>());
    assert_eq!(link.blocks().losses().total(), 0);
}

#[test]
fn nothing_is_given_up_for_a_tally_before_it_is_repeated() {
    let (mut link, socket, to) = link_and_sender(UdpConfig::default(), 64);
    let send = |words: &[u32]| socket.send_to(words.as_bytes(), to).unwrap();
    let patience = UdpConfig::default().patience.0;
    send(&tally(10, 10));
    drain(&mut link, RunNs(0));
    drain(&mut link, RunNs(5 * patience));
    assert!(!link.is_overdue(RunNs(5 * patience)));
    assert_eq!(link.blocks().blocks_settled(), 0);
    // Another one says less: the first was wrong. This one is repeated, by one that says more.
    send(&tally(4, 4));
    drain(&mut link, RunNs(5 * patience));
    send(&tally(6, 5));
    drain(&mut link, RunNs(6 * patience));
    assert_eq!(link.blocks().blocks_settled(), 4);
    for _ in 0..2 {
        send(&tally(6, 5));
        drain(&mut link, RunNs(7 * patience));
    }
    drain(&mut link, RunNs(8 * patience));
    assert_eq!((link.frames_seen(), link.blocks().blocks_settled()), (6, 5));
    assert_eq!(link.blocks().losses().total(), 5);
    // What contradicts the numbers that came is believed of a sender that insists on it.
    for settled in [5, 8] {
        send(&tally(6, 8));
        drain(&mut link, RunNs(9 * patience));
        assert_eq!(link.blocks().blocks_settled(), settled);
    }
    assert_eq!(link.counters().datagrams_bad, 1);
}
