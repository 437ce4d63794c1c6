//! Every fragment handed over comes out or is named, whatever the transport and however it ends.

use livetime_shm::{HugePages, PageIndex, PoolConfig};

use super::*;
use crate::link::udp_link::UdpConfig;

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

fn open(transport: &LinkTransport) -> (FragmentLink, PagePool) {
    let pool = pool();
    let config = LinkConfig {
        page_words: PAGE_WORDS,
        pages: PAGES,
        xoff_below: 20,
        xon_above: 30,
        fragment_words_max: PAGE_WORDS * 16,
        ..LinkConfig::default()
    };
    let link = FragmentLink::open(transport, config, pool.clone(), 0).unwrap();
    (link, pool)
}

fn udp() -> LinkTransport {
    LinkTransport::Udp {
        config: UdpConfig::default(),
        datagram_words: 40,
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
fn fragments_come_in_order_over_every_transport() {
    for transport in [LinkTransport::Emulated, udp(), LinkTransport::Tcp] {
        let (mut link, pool) = open(&transport);
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
        assert_eq!(came, (0..500).collect::<Vec<u32>>(), "{}", transport.name());
        let words = (0..500).map(|number| 1 + number % 700).sum::<u64>();
        assert_eq!(link.handed(RunNs(2)), (500, words));
        assert_eq!(link.losses().total(), 0);
        assert!(!link.recycle(0), "a page that is not out");
        assert!(!link.recycle(PAGES), "a page of nobody");
    }
}

#[test]
fn datagrams_of_a_link_that_is_down_are_lost_and_settled_at_the_end() {
    let (mut link, pool) = open(&udp());
    let send = |link: &mut FragmentLink, value: u32| {
        link.send(RunNs(5), |words| {
            words.clear();
            words.resize(100, value);
        });
    };
    send(&mut link, 1);
    assert_eq!(take(&mut link, &pool, RunNs(5)), [1]);
    link.set_state(RunNs(5), LinkState::Down);
    assert_eq!(link.state(), LinkState::Down);
    (2..5).for_each(|value| send(&mut link, value));
    link.set_state(RunNs(5), LinkState::Up);
    send(&mut link, 5);
    // The one that came says that three are missing, once they are not waited for any longer.
    let patience = UdpConfig::default().patience.0;
    let mut came = Vec::new();
    for step in 0..4 {
        came.extend(take(&mut link, &pool, RunNs(5 + step * patience)));
    }
    assert_eq!(came, [5]);
    assert_eq!(link.losses().of(LossCause::DatagramLost), 3);
    // Nothing follows these two: they are lost only when it is known that nothing can.
    link.set_state(RunNs(6), LinkState::Down);
    let last = RunNs(1_000_000_000);
    for _ in 0..2 {
        link.send(last, |words| words.clear());
    }
    assert_eq!(link.outstanding(), 2);
    link.settle(last);
    assert_eq!(link.outstanding(), 2, "they may still come");
    link.settle(last.after(QUIET));
    assert!(link.is_drained());
    assert_eq!(link.losses().of(LossCause::DatagramLost), 5);
    assert_eq!(link.handed(last).0, 7);
}

#[test]
fn a_run_ended_by_force_names_what_was_on_its_way() {
    for transport in [udp(), LinkTransport::Tcp] {
        let (mut link, pool) = open(&transport);
        let mut came = 0;
        // More than the pages hold: some of it waits.
        for _ in 0..100 {
            if !link.is_idle() {
                break;
            }
            link.send(RunNs(1), |words| {
                words.clear();
                words.resize(1000, 7);
            });
            link.pump(RunNs(1));
        }
        let (handed, _) = link.handed(RunNs(1));
        assert!(link.outstanding() > 0, "{}", transport.name());
        link.abort(RunNs(2));
        assert_eq!(link.outstanding(), 0);
        let aborted = link.losses().of(LossCause::LinkAborted);
        assert_eq!(link.losses().total(), aborted);
        let mut whole = true;
        while let Some(completed) = link.poll_completed() {
            whole = completed.block_end == livetime_readout::BlockEnd::EndWord;
            came += u64::from(whole);
            pool.prepare_to_read(PageIndex(completed.page), 1);
            assert!(link.recycle(completed.page));
        }
        assert!(!whole, "the one that was on the line is cut");
        assert_eq!(came + aborted, handed, "{}", transport.name());
        link.abort(RunNs(3));
        assert_eq!(link.losses().total(), aborted, "only once");
    }
}

#[test]
fn a_file_plays_a_fragment_for_each_that_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames");
    let mut file = StreamSource::new(File::create(&path).unwrap());
    for number in 0..3_u32 {
        file.send(&[number; 600]).unwrap();
    }
    let (mut link, pool) = open(&LinkTransport::File { path: path.clone() });
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
