//! The library over card models and over the emulated link.

use livetime_wire::DurationNs;
use livetime_wire::slink::ControlWord;

use super::*;
use crate::card::receiver_register as register;
use crate::card::{PageMemory, ReceiverCard, ReceiverCardConfig, ReceiverKind};
use crate::driver::card_channel::{CardChannel, SharedCard};
use crate::line::{LineSlice, LinkState};
use crate::page_fifo::BlockEnd;
use crate::page_store::PageRead;

const PAGES: u32 = 200;

/// Two cards, one with a channel less or three, and the library over both.
fn cards(kind: ReceiverKind, config: LinkLibraryConfig) -> LinkLibrary<CardChannel> {
    cards_with_pages(kind, config, 1)
}

/// The same with pages of the size that OCR gives this number.
fn cards_with_pages(
    kind: ReceiverKind,
    config: LinkLibraryConfig,
    size: u32,
) -> LinkLibrary<CardChannel> {
    let mut links = Vec::new();
    for _ in 0..2 {
        let page_bytes = register::PAGE_BYTES[size as usize];
        let memory = PageMemory::new(0x2000_0000, PAGES, page_bytes);
        let card = ReceiverCardConfig {
            kind,
            ..ReceiverCardConfig::default()
        };
        let mut card = ReceiverCard::new(card, memory.map());
        card.write_register(register::OCR, size << register::OCR_PAGE_SIZE_SHIFT);
        let shared = SharedCard::new(card, memory);
        for channel in 0..CHANNELS_PER_CARD {
            let is_there = channel < kind.channels();
            links.push(is_there.then(|| CardChannel::new(&shared, channel)));
        }
    }
    LinkLibrary::open(config, links).unwrap()
}

/// Sends a fragment of `words` words into a channel; whether the card took all of it.
fn send(library: &mut LinkLibrary<CardChannel>, channel: u32, words: &[u32]) -> bool {
    let shared = library.link_mut(channel).unwrap().shared().clone();
    let shared = &mut *shared.borrow_mut();
    [
        LineSlice::Control(ControlWord::BEGIN_FRAGMENT),
        LineSlice::Data(words),
        LineSlice::Control(ControlWord::END_FRAGMENT),
    ]
    .into_iter()
    .all(|slice| {
        let on_card = channel % CHANNELS_PER_CARD;
        let taken = shared.card.handle_line(on_card, slice, &mut shared.memory);
        taken == slice.words()
    })
}

fn exchange(library: &mut LinkLibrary<CardChannel>) {
    for channel in [0, 4] {
        let shared = library.link_mut(channel).unwrap().shared().clone();
        shared.borrow_mut().exchange_blocks();
    }
}

#[test]
fn fragments_come_out_of_every_channel_of_several_cards_as_they_were_sent() {
    for kind in [
        ReceiverKind::FilarSingleCycle,
        ReceiverKind::FilarDma,
        ReceiverKind::S32Pci64,
    ] {
        let mut library = cards(kind, LinkLibraryConfig::default());
        let numbers: Vec<u32> = library.info().iter().map(|info| info.channel).collect();
        assert_eq!(numbers.len() as u32, 2 * kind.channels());
        assert_eq!(numbers.last(), Some(&(4 + kind.channels() - 1)));
        library.init(&numbers).unwrap();
        for channel in &numbers {
            let pages: Vec<u32> = (0..15).map(|n| channel % 4 * 20 + n).collect();
            let taken = library.pages_in(*channel, &pages).unwrap();
            assert_eq!((taken.taken, taken.refused), (15, None));
        }
        let mut out = PagesOut::default();
        for round in 0..200 {
            library.flush(RunNs(round)).unwrap();
            exchange(&mut library);
            for channel in &numbers {
                let words = [*channel, round as u32, 7];
                assert!(send(&mut library, *channel, &words), "{kind:?}");
            }
            exchange(&mut library);
            library.flush(RunNs(round)).unwrap();
            for channel in &numbers {
                library.pages_out(*channel, &mut out).unwrap();
                assert_eq!(out.pages.len(), 1, "{kind:?} {round}");
                let completed = out.pages[0];
                assert!(completed.status.is_good());
                assert_eq!(completed.block_end, BlockEnd::EndWord);
                let shared = library.link_mut(*channel).unwrap().shared().clone();
                let words = shared.borrow().memory.words(completed.page)[..3].to_vec();
                assert_eq!(words, [*channel, round as u32, 7]);
                library.pages_in(*channel, &[completed.page]).unwrap();
            }
        }
        let info = library.info();
        assert!(info.iter().all(|info| info.pages_out == 200));
        assert!(info.iter().all(|info| info.pages_in == 215));
        assert_eq!(library.flushes(), 400);
        assert_eq!(library.close().len(), 8);
    }
}

#[test]
fn the_blocks_of_the_dma_protocol_find_room_in_pages_of_any_size() {
    for size in [0, 1, 2] {
        let config = LinkLibraryConfig::default();
        let mut library = cards_with_pages(ReceiverKind::FilarDma, config, size);
        let channels = [0, 1, 2];
        library.init(&channels).unwrap();
        for channel in channels {
            let pages: Vec<u32> = (0..15).map(|n| channel * 20 + n).collect();
            library.pages_in(channel, &pages).unwrap();
        }
        library.flush(RunNs(0)).unwrap();
        {
            let shared = library.link_mut(0).unwrap().shared().clone();
            let card = &mut shared.borrow_mut().card;
            // All pages of all channels wait, and come in as few blocks as there can be.
            card.write_register(register::THRESHOLD, 45);
        }
        exchange(&mut library);
        for round in 0..15 {
            for channel in channels {
                assert!(send(&mut library, channel, &[channel, round]), "{size}");
            }
        }
        exchange(&mut library);
        library.flush(RunNs(1)).unwrap();
        let mut out = PagesOut::default();
        for channel in channels {
            library.pages_out(channel, &mut out).unwrap();
            assert_eq!(out.pages.len(), 15, "{size}");
            let shared = library.link_mut(channel).unwrap().shared().clone();
            for (round, completed) in (0..).zip(&out.pages) {
                let words = shared.borrow().memory.words(completed.page)[..2].to_vec();
                assert_eq!(words, [channel, round], "{size}");
            }
        }
    }
}

#[test]
fn a_page_that_is_with_the_library_is_not_taken_again_and_the_counters_close() {
    let mut library = cards(ReceiverKind::FilarDma, LinkLibraryConfig::default());
    library.init(&[0, 1, 4]).unwrap();
    let twice = |page, taken| {
        let refused = Some(PageError::NotHandedOut { page });
        Ok(PagesIn { taken, refused })
    };
    assert_eq!(library.pages_in(0, &[5, 6, 5, 7]), twice(5, 2));
    assert_eq!(library.pages_in(1, &[8, 6]), twice(6, 1));
    let all = Ok(PagesIn {
        taken: 1,
        refused: None,
    });
    assert_eq!(library.pages_in(4, &[6]), all, "of another card");
    library.flush(RunNs(0)).unwrap();
    assert_eq!(library.pages_in(1, &[5]), twice(5, 0), "with the link");
    exchange(&mut library);
    assert!(send(&mut library, 0, &[1]));
    exchange(&mut library);
    library.flush(RunNs(1)).unwrap();
    assert_eq!(library.pages_in(1, &[5]), twice(5, 0), "filled");
    let mut out = PagesOut::default();
    library.pages_out(0, &mut out).unwrap();
    assert_eq!(library.pages_in(1, &[5]), all);
    assert_eq!(library.reset(RunNs(2), 0), Ok(vec![5]));
    let held: Vec<u32> = library.pages_held(0).collect();
    assert_eq!(held, [6, 8]);
    for info in library.info().iter().take(2) {
        assert_eq!(info.pages_in, info.pages_out + info.pages_returned + 1);
    }
}

#[test]
fn calls_that_make_no_sense_say_why() {
    let mut library = cards(ReceiverKind::FilarDma, LinkLibraryConfig::default());
    let no_channel = |channel| LibraryError::NoChannel { channel };
    assert_eq!(library.init(&[3]), Err(no_channel(3)));
    assert_eq!(library.link_status(8), Err(no_channel(8)));
    let no_card = LibraryError::NoCard { card: 2, cards: 2 };
    assert_eq!(library.reset(RunNs(0), 2), Err(no_card));
    let refused = library.pages_in(0, &[1]);
    assert_eq!(refused, Err(LibraryError::NotEnabled { channel: 0 }));
    library.init(&[0]).unwrap();
    library.pages_in(0, &[5, PAGES - 1, 6]).unwrap();
    let error = library.flush(RunNs(0)).unwrap_err();
    assert!(
        matches!(error, LibraryError::Page { channel: 0, .. }),
        "{error}"
    );
    let info = library.info()[0];
    assert_eq!(info.waiting_in, 0, "the others are posted");
    assert_eq!((info.pages_in, info.pages_returned), (3, 1));
    assert_eq!(library.in_free(0), Ok(13));
    let many = (0..65).map(|_| None::<CardChannel>);
    let opened = LinkLibrary::open(LinkLibraryConfig::default(), many);
    assert!(matches!(
        opened,
        Err(LibraryError::TooMany {
            found: 65,
            most: 64
        })
    ));
}

#[test]
fn reset_takes_a_link_down_until_it_is_released_and_gives_waiting_pages_back() {
    let mut library = cards(ReceiverKind::FilarSingleCycle, LinkLibraryConfig::default());
    library.init(&[1]).unwrap();
    library.pages_in(1, &[1, 2, 3]).unwrap();
    assert_eq!(library.reset(RunNs(0), 0), Ok(vec![1, 2, 3]));
    let status = library.link_status(1).unwrap();
    assert_eq!((status.link, status.resetting), (LinkState::Down, true));
    let channel = library.link_mut(1).unwrap();
    assert!(!channel.release_reset());
    {
        let shared = channel.shared().clone();
        let shared = &mut *shared.borrow_mut();
        for link in [LinkState::Down, LinkState::Up] {
            shared.card.handle_link(1, link, &mut shared.memory);
        }
    }
    assert!(library.link_mut(1).unwrap().release_reset());
    let status = library.link_status(1).unwrap();
    assert_eq!((status.link, status.resetting), (LinkState::Up, false));
    library.link_reset(RunNs(1), 1).unwrap();
    assert!(library.link_status(1).unwrap().resetting);
}

#[test]
fn readers_are_woken_once_in_n_fragments() {
    let config = LinkLibraryConfig {
        notification: Notification::EveryN {
            fragments: 5,
            patience: DurationNs(1_000_000),
        },
    };
    let mut library = cards(ReceiverKind::FilarSingleCycle, config);
    library.init(&[0]).unwrap();
    let mut out = PagesOut::default();
    library.pages_in(0, &(0..15).collect::<Vec<_>>()).unwrap();
    let mut wakes = 0;
    for n in 0..100 {
        library.flush(RunNs(n)).unwrap();
        assert!(send(&mut library, 0, &[n as u32]));
        if library.flush(RunNs(n)).unwrap() {
            wakes += 1;
            library.pages_out(0, &mut out).unwrap();
            assert_eq!(out.pages.len(), 5);
            let pages: Vec<u32> = out.pages.iter().map(|completed| completed.page).collect();
            library.pages_in(0, &pages).unwrap();
        }
    }
    assert_eq!(wakes, 20);
    let counters = library.notifier(0).unwrap();
    assert_eq!(counters.wakes_per_fragment(), 0.2);
}

/// Given a flush that ends with a page that a link refuses, when a fragment came in it that a reader
/// waits for, then the next flush says so, once.
#[test]
fn a_wake_up_is_not_lost_with_a_flush_that_fails() {
    let config = LinkLibraryConfig {
        notification: Notification::EveryN {
            fragments: 1,
            patience: DurationNs(1_000_000),
        },
    };
    let mut library = cards(ReceiverKind::FilarSingleCycle, config);
    library.init(&[0, 1]).unwrap();
    library.pages_in(1, &[5]).unwrap();
    assert_eq!(library.flush(RunNs(0)), Ok(false));
    library.pages_in(0, &[PAGES - 1]).unwrap();
    assert!(send(&mut library, 1, &[7]));
    let error = library.flush(RunNs(1)).unwrap_err();
    let is_foreign = |error| {
        let LibraryError::Page { channel: 0, error } = error else {
            return false;
        };
        matches!(error, PageError::Foreign { .. })
    };
    assert!(is_foreign(error), "{error}");
    assert_eq!(library.flush(RunNs(2)), Ok(true));
    assert_eq!(library.flush(RunNs(3)), Ok(false));
}

/// Given a number of fragments that never waits in the library, then a reader is woken when the
/// filled pages have no more room, and not after the patience alone.
#[test]
fn a_full_queue_wakes_its_reader_whatever_number_was_asked_for() {
    for notification in [
        Notification::EveryN {
            fragments: 40,
            patience: DurationNs(u64::MAX),
        },
        Notification::EveryN {
            fragments: 33,
            patience: DurationNs(1_000_000),
        },
    ] {
        let config = LinkLibraryConfig { notification };
        assert_eq!(config.validate("library"), []);
        let mut library = cards(ReceiverKind::FilarSingleCycle, config);
        library.init(&[0]).unwrap();
        library.pages_in(0, &(0..15).collect::<Vec<_>>()).unwrap();
        assert_eq!(library.flush(RunNs(0)), Ok(false));
        library.pages_in(0, &(15..47).collect::<Vec<_>>()).unwrap();
        let (mut wakes, mut out) = (0, PagesOut::default());
        for n in 0..320 {
            assert!(send(&mut library, 0, &[n]), "{n}");
            if library.flush(RunNs(n.into())).unwrap() {
                wakes += 1;
                assert_eq!(library.flush(RunNs(n.into())), Ok(false), "told once");
                library.pages_out(0, &mut out).unwrap();
                assert_eq!(out.pages.len(), PAGES_MAX);
                let pages: Vec<u32> = out.pages.iter().map(|completed| completed.page).collect();
                assert_eq!(library.pages_in(0, &pages).unwrap().taken, PAGES_MAX);
                library.flush(RunNs(n.into())).unwrap();
            }
        }
        assert_eq!(wakes, 10, "{notification:?}");
        let counters = library.notifier(0).unwrap();
        assert_eq!((counters.wakes_by_count, counters.wakes_by_time), (10, 0));
    }
}
