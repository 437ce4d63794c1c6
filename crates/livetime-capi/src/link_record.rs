//! The structs of the link library, in the layout of C.

/// Pages that one call takes or gives at most.
pub const LINK_PAGES_MAX: usize = 32;

/// What the cards are loaded with.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// Four channels; addresses and results by register.
    SingleCycle = 0,
    /// Three channels; addresses and results in blocks of memory.
    DmaProtocol = 1,
}

/// How cards are opened and initialised.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LinksConfig {
    /// Cards, 1 to 4. Channels are numbered 4 x card + channel of the card.
    pub cards: u32,
    /// Their firmware, a `livetime_firmware`.
    pub firmware: u32,
    /// Bytes of a page: 256, 1024, 2048, 4096, 16384 or 65536.
    pub page_bytes: u32,
    /// Swap the bytes of each word.
    pub swap_bytes: bool,
    /// Swap the words of each pair. The bus takes two words at a time: of an odd number the last
    /// lies one word further, behind the words that are counted.
    pub swap_words: bool,
    /// The start control word, 0xB0F00000.
    pub start_word: u32,
    /// The end control word, 0xE0F00000. It differs from the other one above bit 3, where a card
    /// tells them apart.
    pub end_word: u32,
}

/// Free pages for a channel.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PageBatch {
    /// The channel.
    pub channel: u32,
    /// Pages in `addresses`.
    pub count: u32,
    /// Their bus addresses.
    pub addresses: [u32; LINK_PAGES_MAX],
}

/// Filled pages of a channel, oldest first.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct PagesFilled {
    /// The channel.
    pub channel: u32,
    /// Pages in the arrays.
    pub count: u32,
    /// Their bus addresses.
    pub addresses: [u32; LINK_PAGES_MAX],
    /// Data words in each.
    pub words: [u32; LINK_PAGES_MAX],
    /// Status of each; docs/formats/slink.md names the bits. The page of a good fragment has 0; of
    /// one that is longer than a page, every page but the last has `no_end` (0x20000000), every
    /// page but the first `no_begin` (0x80000000), and those between have both (0xA0000000).
    pub status: [u32; LINK_PAGES_MAX],
    /// Start control words as received, error bits included; 0 where there was none.
    pub start_words: [u32; LINK_PAGES_MAX],
    /// End control words as received, error bits included; 0 where there was none.
    pub end_words: [u32; LINK_PAGES_MAX],
    /// The fragment goes on in the next page.
    pub more_to_come: [bool; LINK_PAGES_MAX],
}

/// What is known of a channel.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LinkChannel {
    /// Its number.
    pub channel: u32,
    /// Its card.
    pub card: u32,
    /// It was enabled.
    pub enabled: bool,
    /// LDOWN#.
    pub link_down: bool,
    /// URESET# is driven.
    pub resetting: bool,
    /// XOFF is asked.
    pub xoff: bool,
    /// Free slots of the request FIFO.
    pub request_free: u32,
    /// Pages taken so far.
    pub pages_in: u64,
    /// Pages given out so far.
    pub pages_out: u64,
    /// Pages given back unfilled by `livetime_links_reset` so far. What `pages_in` counts and
    /// neither of the two is with the library.
    pub pages_returned: u64,
}
