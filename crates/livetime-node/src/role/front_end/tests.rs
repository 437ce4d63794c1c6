//! What a front-end hands to a peer that is gone is in its account, and so has a cause.

use livetime_readout::LinkConfig;
use livetime_shm::{HugePages, PagePool, PoolConfig, RingConfig, ring};
use livetime_wire::{ChainCounts, LossCause, LossCounts};

use super::*;
use crate::completion::COMPLETION_WORDS;
use crate::process::lost_unit::{Neighbours, settle_lost};

const PAGES: u32 = 16;
const PAGE_WORDS: u32 = 64;
const NOW: RunNs = RunNs(1);

fn ends(slot_words: usize) -> (Producer, Consumer) {
    let config = RingConfig {
        slots: 16,
        slot_words: slot_words as u32,
    };
    ring(&config).unwrap()
}

fn data_link() -> DataLink {
    let pool = PagePool::create(&PoolConfig {
        pages: PAGES,
        page_bytes: PAGE_WORDS * 4,
        huge_pages: HugePages::Never,
    });
    let config = LinkConfig {
        pages: PAGES,
        page_words: PAGE_WORDS,
        fragment_words_max: PAGE_WORDS,
        xoff_below: 4,
        xon_above: 8,
        ..LinkConfig::default()
    };
    DataLink {
        link: FragmentLink::emulated(config, pool.unwrap(), 0),
        unit: 0,
        index_at_unit: 0,
        source: SourceId(1),
        has_ended: false,
        joined_after: TriggerNumber(0),
    }
}

/// Given a readout unit that ends its side after two of five fragments, then those it never saw are
/// the front-end's, are named when the loss is settled, and the link is not held up by them.
#[test]
fn fragments_for_a_readout_unit_that_is_gone_are_lost_by_name() {
    let mut data_link = data_link();
    let (completions, taken) = ends(COMPLETION_WORDS);
    let (_pages_out, pages_back) = ends(2);
    let mut cards = Some(CardRings {
        completions,
        pages_back,
    });
    let mut taken = Some(taken);
    let mut received = 0;
    for number in 0..5_u32 {
        assert!(data_link.link.is_idle(), "fragment {number} is held up");
        data_link.link.send(NOW, |words| {
            words.clear();
            words.resize(8, number);
        });
        while pump_link(NOW, &mut data_link, &mut cards, true) > 0 {}
        if let Some(ring) = &mut taken {
            while let Ok(Some(_)) = ring.try_pop(|words| words.len()) {
                received += 1;
            }
        }
        if number == 1 {
            // The unit is gone, and nobody has said so yet.
            taken = None;
        }
    }
    let mut losses: LossCounts = data_link.link.losses();
    assert_eq!((data_link.link.handed(NOW).0, losses.total()), (5, 0));
    let mut counts = ChainCounts {
        fragments_sent: data_link.link.handed(NOW).0,
        fragments_received: received,
        fragments_dropped_by_decision: received,
        ..ChainCounts::default()
    };
    settle_lost(
        &mut counts,
        &mut losses,
        &[UnitKind::Readout],
        Neighbours::default(),
    );
    assert_eq!(counts.problems(&losses), []);
    assert_eq!((received, losses.of(LossCause::LinkAborted)), (2, 3));
}
