//! The calls of the link library as C calls them: what is given to it, refused, and comes back.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use livetime_capi::call::livetime_last_error;
use livetime_capi::link::Links;
use livetime_capi::link_call::{
    livetime_links_channel_at, livetime_links_close, livetime_links_connect_source,
    livetime_links_data_at, livetime_links_flush, livetime_links_in_free, livetime_links_init,
    livetime_links_open, livetime_links_pages_in, livetime_links_pages_out, livetime_links_reset,
    livetime_links_segment_address, livetime_links_segment_allocate, livetime_links_segment_free,
};
use livetime_capi::link_record::{
    Firmware, LINK_PAGES_MAX, LinkChannel, LinksConfig, PageBatch, PagesFilled,
};
use livetime_capi::status::Status;

const PAGE_BYTES: u32 = 256;

fn last_error() -> String {
    // SAFETY: a C string that lives until the next error of this thread.
    unsafe { CStr::from_ptr(livetime_last_error()) }
        .to_str()
        .unwrap()
        .to_owned()
}

/// The value that `call` fills in, which must succeed.
fn filled<T>(call: impl FnOnce(*mut T) -> Status) -> T {
    let mut value = MaybeUninit::uninit();
    assert_eq!(call(value.as_mut_ptr()), Status::Ok, "{}", last_error());
    // SAFETY: calls fill in the value where they return `Ok`.
    unsafe { value.assume_init() }
}

fn config(firmware: Firmware, swap_words: bool) -> LinksConfig {
    LinksConfig {
        cards: 1,
        firmware: firmware as u32,
        page_bytes: PAGE_BYTES,
        swap_bytes: false,
        swap_words,
        start_word: 0xB0F0_0000,
        end_word: 0xE0F0_0000,
    }
}

/// One card with all its channels enabled.
fn open(firmware: Firmware, swap_words: bool) -> *mut Links {
    let config = config(firmware, swap_words);
    // SAFETY: a configuration and a place for the handle.
    let links = filled(|links| unsafe { livetime_links_open(&raw const config, links) });
    let channels = [0, 1, 2];
    // SAFETY: open links and three numbers.
    let status = unsafe { livetime_links_init(links, channels.as_ptr(), channels.len()) };
    assert_eq!(status, Status::Ok);
    links
}

/// A segment and its address.
fn allocate(links: *mut Links, pages: u32) -> (u32, u32) {
    let bytes = u64::from(pages * PAGE_BYTES);
    // SAFETY: open links, a C string, and places for the results.
    unsafe {
        let segment =
            filled(|id| livetime_links_segment_allocate(links, 0, bytes, c"pages".as_ptr(), id));
        let address = filled(|at| livetime_links_segment_address(links, 0, segment, at));
        (segment, address)
    }
}

/// Gives pages; the status and how many were taken.
fn pages_in(links: *mut Links, channel: u32, pages: &[u32]) -> (Status, u32) {
    let mut batch = PageBatch {
        channel,
        count: pages.len() as u32,
        addresses: [0; LINK_PAGES_MAX],
    };
    batch.addresses[..pages.len()].copy_from_slice(pages);
    let mut taken = u32::MAX;
    // SAFETY: open links, a batch, and a place for the number.
    let status = unsafe { livetime_links_pages_in(links, &raw const batch, &raw mut taken) };
    (status, taken)
}

fn pages_out(links: *mut Links, channel: u32) -> PagesFilled {
    // SAFETY: open links and a place for the pages.
    filled(|pages| unsafe { livetime_links_pages_out(links, channel, pages) })
}

fn flush(links: *mut Links) {
    // SAFETY: open links.
    assert_eq!(unsafe { livetime_links_flush(links) }, Status::Ok);
}

fn connect(links: *mut Links, channel: u32, words: u32, blocks: u64) -> Status {
    // SAFETY: open links.
    unsafe { livetime_links_connect_source(links, channel, 1, words, blocks) }
}

fn channel_at(links: *mut Links, index: usize) -> LinkChannel {
    // SAFETY: open links and a place for the channel.
    filled(|channel| unsafe { livetime_links_channel_at(links, index, channel) })
}

#[test]
fn dma_firmware_fills_the_smallest_pages_of_all_channels() {
    let links = open(Firmware::DmaProtocol, false);
    for channel in 0..3 {
        let (_, first) = allocate(links, 15);
        let pages: Vec<u32> = (0..15).map(|n| first + n * PAGE_BYTES).collect();
        assert_eq!(pages_in(links, channel, &pages), (Status::Ok, 15));
        assert_eq!(connect(links, channel, 8, 15), Status::Ok);
    }
    flush(links);
    for channel in 0..3 {
        let out = pages_out(links, channel);
        assert_eq!(out.count, 15);
        assert!(out.words[..15].iter().all(|words| *words == 8));
        assert!(out.status[..15].iter().all(|status| *status == 0));
    }
    // SAFETY: open links, not used afterwards.
    unsafe { livetime_links_close(links) };
}

#[test]
fn a_bad_page_ends_a_call_by_its_address_and_the_counters_close() {
    let links = open(Firmware::SingleCycle, false);
    let (segment, first) = allocate(links, 8);
    let page = |n: u32| first + n * PAGE_BYTES;
    let refused = |taken| (Status::ErrorArgument, taken);
    assert_eq!(
        pages_in(links, 0, &[page(0), page(1), page(0), page(2)]),
        refused(2)
    );
    let twice = format!("page 2 of those given, at bus address {:#010x}", page(0));
    assert!(last_error().starts_with(&twice), "{}", last_error());
    assert_eq!(pages_in(links, 1, &[page(2), page(1)]), refused(1));
    // Behind the segment, within a page, and where the library has its own pages.
    for bad in [page(8), page(3) + 4, first + 1023 * PAGE_BYTES, 4] {
        assert_eq!(
            pages_in(links, 1, &[page(3), bad]),
            refused(u32::from(bad == page(8)))
        );
        if bad == page(8) {
            assert!(
                last_error().contains(&format!("{bad:#010x}")),
                "{}",
                last_error()
            );
        }
    }
    assert_eq!(connect(links, 0, 4, 1), Status::Ok);
    flush(links);
    // SAFETY: open links.
    unsafe {
        let free = filled(|free| livetime_links_in_free(links, 0, free));
        assert_eq!(free, 14);
        let status = livetime_links_segment_free(links, 0, segment);
        assert_eq!(status, Status::ErrorArgument);
        assert!(last_error().contains("which is with a channel"));
    }
    let out = pages_out(links, 0);
    assert_eq!((out.count, out.addresses[0]), (1, page(0)));
    assert_eq!(pages_in(links, 0, &[page(0)]), (Status::Ok, 1));
    // SAFETY: open links.
    assert_eq!(unsafe { livetime_links_reset(links, 0) }, Status::Ok);
    let channel = channel_at(links, 0);
    assert_eq!((channel.pages_in, channel.pages_out), (3, 1));
    assert_eq!(channel.pages_returned, 1);
    let channel = channel_at(links, 1);
    assert_eq!((channel.pages_in, channel.pages_out), (2, 0));
    assert_eq!(channel.pages_returned, 0);
    // SAFETY: open links, not used afterwards.
    unsafe { livetime_links_close(links) };
}

#[test]
fn a_fragment_over_pages_has_the_bits_that_the_header_names() {
    let links = open(Firmware::SingleCycle, false);
    let (segment, first) = allocate(links, 3);
    let pages = [0, 1, 2].map(|n| first + n * PAGE_BYTES);
    assert_eq!(pages_in(links, 0, &pages), (Status::Ok, 3));
    assert_eq!(connect(links, 0, 64 + 64 + 5, 1), Status::Ok);
    flush(links);
    let out = pages_out(links, 0);
    assert_eq!(out.words[..3], [64, 64, 5]);
    assert_eq!(out.status[..3], [0x2000_0000, 0xA000_0000, 0x8000_0000]);
    assert_eq!(out.more_to_come[..3], [true, true, false]);
    // SAFETY: open links; none of its pages is with a channel any more.
    unsafe {
        let status = livetime_links_segment_free(links, 0, segment);
        assert_eq!(status, Status::Ok, "{}", last_error());
        livetime_links_close(links);
    }
}

#[test]
fn an_odd_last_word_lies_one_further_when_words_are_swapped() {
    let links = open(Firmware::SingleCycle, true);
    let (_, first) = allocate(links, 1);
    assert_eq!(pages_in(links, 0, &[first]), (Status::Ok, 1));
    assert_eq!(connect(links, 0, 3, 1), Status::Ok);
    flush(links);
    assert_eq!(pages_out(links, 0).words[0], 3);
    // SAFETY: open links, and four words that lie in the page.
    let words = unsafe {
        let data = filled(|data| livetime_links_data_at(links, first, 4, data));
        std::slice::from_raw_parts(data, 4).to_vec()
    };
    assert_eq!([words[1], words[0], words[3]], [1, 2, 4]);
    // SAFETY: open links, not used afterwards.
    unsafe { livetime_links_close(links) };
}

#[test]
fn messages_name_what_c_can_ask_for() {
    let links = open(Firmware::SingleCycle, false);
    // SAFETY: open links.
    let status = unsafe { livetime_links_reset(links, 1) };
    assert_eq!(status, Status::ErrorArgument);
    let no_card = "there is no card 1: 1 are open, counted from 0";
    assert_eq!(last_error(), no_card);
    assert_eq!(connect(links, 0, 0, 1), Status::ErrorArgument);
    let words = "blocks of 0 words, those of pattern 1 have 1 to 1048576";
    assert_eq!(last_error(), words);
    // SAFETY: open links.
    let status = unsafe { livetime_links_connect_source(links, 0, 5, 8, 1) };
    assert_eq!(status, Status::ErrorArgument);
    assert_eq!(
        last_error(),
        "there is no pattern 5, there are 1, 2, 3, 4 and 8"
    );
    let channel = 0;
    // SAFETY: open links; of more channels than a call takes none is looked at.
    let status = unsafe { livetime_links_init(links, &raw const channel, usize::MAX / 4) };
    assert_eq!(status, Status::ErrorArgument);
    let text = format!("{} channels, allowed are 0 to 64", usize::MAX / 4);
    assert_eq!(last_error(), text);
    let mut none = null_mut();
    // SAFETY: a null configuration is allowed.
    let status = unsafe { livetime_links_open(std::ptr::null(), &raw mut none) };
    assert_eq!(status, Status::ErrorArgument);
    // SAFETY: open links, not used afterwards.
    unsafe { livetime_links_close(links) };
}

/// Bits 3:0 of a control word are the link's.
#[test]
fn words_that_a_card_cannot_tell_apart_are_refused() {
    for end_word in [0xB0F0_0000, 0xB0F0_000F] {
        let config = LinksConfig {
            end_word,
            ..config(Firmware::SingleCycle, false)
        };
        let mut links = null_mut();
        // SAFETY: a configuration and a place for the handle.
        let status = unsafe { livetime_links_open(&raw const config, &raw mut links) };
        assert_eq!((status, links), (Status::ErrorArgument, null_mut()));
        let text = format!("start word 0xb0f00000 and end word {end_word:#010x} are the same");
        assert!(last_error().contains(&text), "{}", last_error());
    }
}
