//! Every fragment handed over comes out or is named where the front-end has both ends of a link.

use livetime_shm::PageIndex;
use livetime_wire::link_frame::FrameNumbers;
use zerocopy::IntoBytes;

use super::*;
use crate::link::stream_link::StreamSource;
use crate::link::test_link::{PAGES, config, pool};

/// Polls and recycles what is there; returns the first words of whole fragments.
fn take(link: &mut FragmentLink, pool: &PagePool, now: RunNs) -> Vec<u32> {
    link.pump(now, true);
    let mut firsts = Vec::new();
    let mut is_first = true;
    while let Some(completed) = link.poll_completed() {
        let page = PageIndex(completed.page);
        pool.prepare_to_read(page, completed.len_words as usize);
        let reader = pool.read(page).unwrap();
        if is_first {
            firsts.push(reader[0]);
        }
        is_first = completed.block_end != livetime_readout::BlockEnd::MoreToCome;
        drop(reader);
        assert!(link.recycle(completed.page));
    }
    firsts
}

#[test]
fn fragments_come_in_order_over_an_emulated_link() {
    let pool = pool();
    let mut link = FragmentLink::emulated(config(), pool.clone(), 0);
    let mut came = Vec::new();
    for number in 0..500_u32 {
        while !link.is_idle() {
            came.extend(take(&mut link, &pool, RunNs(1)));
        }
        link.send(RunNs(1), |words| {
            words.clear();
            words.resize(1 + number as usize % 700, number);
        });
        came.extend(take(&mut link, &pool, RunNs(1)));
    }
    while !link.is_drained() {
        came.extend(take(&mut link, &pool, RunNs(2)));
    }
    assert_eq!(came, (0..500).collect::<Vec<u32>>());
    let words = (0..500).map(|number| 1 + number % 700).sum::<u64>();
    assert_eq!(link.handed(RunNs(2)), (500, words));
    assert_eq!(link.losses().total(), 0);
    assert!(!link.recycle(0), "a page that is not out");
    assert!(!link.recycle(PAGES), "a page of nobody");
}

#[test]
fn a_file_plays_a_fragment_for_each_that_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames");
    let mut file = StreamSource::new(File::create(&path).unwrap());
    for number in 0..3_u32 {
        file.send(&[number; 600]).unwrap();
    }
    let pool = pool();
    let mut link = FragmentLink::play(&path, config(), pool.clone(), 0).unwrap();
    for number in 0..3 {
        assert!(!link.is_played_out());
        link.send(RunNs(1), |_| unreachable!("the file has the words"));
        assert_eq!(take(&mut link, &pool, RunNs(1)), [number]);
    }
    assert!(link.is_played_out() && link.is_drained());
    // Whoever goes on all the same loses what is not there.
    link.send(RunNs(2), |_| ());
    assert!(take(&mut link, &pool, RunNs(2)).is_empty());
    assert_eq!(link.losses().of(LossCause::LinkDown), 1);
    assert_eq!(link.handed(RunNs(2)), (4, 1800));
}

/// Given a file whose readout unit is gone, then it is read no more: what is sent is lost, and the link
/// waits for no page.
#[test]
fn a_file_is_not_played_for_a_readout_unit_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames");
    let mut file = StreamSource::new(File::create(&path).unwrap());
    for number in 0..3_u32 {
        file.send(&[number; 600]).unwrap();
    }
    let pool = pool();
    let mut link = FragmentLink::play(&path, config(), pool.clone(), 0).unwrap();
    link.send(RunNs(1), |_| ());
    assert_eq!(take(&mut link, &pool, RunNs(1)), [0]);
    link.end(RunNs(2));
    for lost in 1..=2 {
        link.send(RunNs(2), |_| ());
        assert!(take(&mut link, &pool, RunNs(2)).is_empty());
        assert_eq!(link.losses().of(LossCause::LinkDown), lost);
        assert!(link.is_idle() && link.is_drained());
    }
}

/// Given a file with a tally behind its second fragment and behind its last, when both count what came,
/// then it plays to its end; when the first does not, then it ends the link there and no count wraps.
#[test]
fn a_tally_that_does_not_count_what_came_ends_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames");
    for (ahead, fragments) in [(0, 4), (3, 2)] {
        let mut numbers = FrameNumbers::default();
        let mut words = Vec::new();
        for number in 0..4_u32 {
            let (header, _) = numbers.frames(100, 100).next().unwrap();
            words.extend(header.emit());
            words.extend([number; 100]);
            if number % 2 == 1 {
                let mut tally = numbers.tally();
                tally.frames += if number == 1 { ahead } else { 0 };
                tally.blocks_low += if number == 1 { ahead as u32 } else { 0 };
                words.extend(tally.emit());
            }
        }
        std::fs::write(&path, words.as_bytes()).unwrap();
        let pool = pool();
        let mut link = FragmentLink::play(&path, config(), pool.clone(), 0).unwrap();
        let (mut came, mut asked) = (Vec::new(), 0);
        while !link.is_played_out() {
            asked += 1;
            link.send(RunNs(1), |_| unreachable!("the file has the words"));
            came.extend(take(&mut link, &pool, RunNs(1)));
        }
        assert_eq!(came, (0..fragments).collect::<Vec<u32>>());
        let lost = link.losses().of(LossCause::LinkDown);
        assert_eq!(lost, u64::from(ahead > 0));
        assert_eq!(asked, u64::from(fragments) + lost);
        assert_eq!((link.outstanding(), link.is_drained()), (0, true));
        let tallies = link.transport_counters().tallies;
        assert_eq!(tallies, if ahead > 0 { 0 } else { 2 });
    }
}

/// Given that the readout unit of a link is gone with pages in its hands, then the link begins again
/// once nobody reads them, at the beginning of a fragment, and what was counted stays counted.
#[test]
fn a_link_begins_again_for_another_readout_unit() {
    let pool = pool();
    let mut link = FragmentLink::emulated(config(), pool.clone(), 0);
    let send = |link: &mut FragmentLink, value| {
        link.send(RunNs(1), |words| {
            words.clear();
            words.resize(300, value);
        });
        link.pump(RunNs(1), true);
    };
    send(&mut link, 1);
    let with_the_dead = link.poll_completed().unwrap();
    let read_by_another = pool.read(PageIndex(with_the_dead.page)).unwrap();
    // As many as there are pages for; the last is cut in its middle.
    while link.is_idle() {
        send(&mut link, 2);
    }
    link.end(RunNs(2));
    send(&mut link, 3);
    link.lose_fragment();
    let (handed, words) = link.handed(RunNs(2));
    let losses = link.losses();
    assert_eq!(losses.of(LossCause::LinkDown), 2);
    assert_eq!(losses.of(LossCause::LinkTruncated), 1);
    assert!(!link.free_pages(), "one is still read");
    drop(read_by_another);
    assert!(link.free_pages());
    link.begin_again(RunNs(3), None).unwrap();
    assert_eq!(pool.counts().free, PAGES);
    assert_eq!(link.state(), LinkState::Up);
    for value in 4..500 {
        send(&mut link, value);
        assert_eq!(take(&mut link, &pool, RunNs(4)), [value]);
    }
    assert_eq!(link.handed(RunNs(4)), (handed + 496, words + 496 * 300));
    assert_eq!(link.losses(), losses);
    assert!(link.is_drained());
}
