//! Datagrams over the loopback interface, which loses none but for want of room.

use livetime_readout::{BlockEnd, HeapPages, PageRead};
use livetime_wire::LossCause;
use livetime_wire::link_frame::FrameNumbers;

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
    // One that finds room tells both counts as of itself.
    source.send(&[7; 300]).unwrap();
    came += drain(&mut link, RunNs(1 << 40)).len() as u64;
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
    let mut link = link(config, 64);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = link.local_address().unwrap();
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
    let mut link = link(UdpConfig::default(), 64);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = link.local_address().unwrap();
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
    let mut link = link(UdpConfig::default(), 64);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = link.local_address().unwrap();
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

#[test]
fn strangers_are_counted_and_harm_nothing() {
    let mut link = link(UdpConfig::default(), 64);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = link.local_address().unwrap();
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
