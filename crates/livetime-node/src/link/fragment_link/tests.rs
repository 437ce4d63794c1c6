//! Every fragment handed over comes out or is named where the front-end has both ends of a link.

use livetime_shm::{HugePages, PageIndex, PoolConfig};

use super::*;
use crate::link::stream_link::StreamSource;

const PAGE_WORDS: u32 = 256;
const PAGES: u32 = 64;

fn pool() -> PagePool {
    let config = PoolConfig {
        pages: PAGES,
        page_bytes: PAGE_WORDS * 4,
        huge_pages: HugePages::Never,
    };
    PagePool::create(&config).unwrap()
}

fn config() -> LinkConfig {
    LinkConfig {
        page_words: PAGE_WORDS,
        pages: PAGES,
        xoff_below: 20,
        xon_above: 30,
        fragment_words_max: PAGE_WORDS * 16,
        ..LinkConfig::default()
    }
}

/// Polls and recycles what is there; returns the first words of whole fragments.
fn take(link: &mut FragmentLink, pool: &PagePool, now: RunNs) -> Vec<u32> {
    link.pump(now);
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
