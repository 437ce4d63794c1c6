//! SOLAR: one channel from pages to a link, through its registers.
//!
//! PCI 10DC:0017; the map is the one that public host code of the card uses. A request is two writes,
//! the address and then the size with the bits for control words, as the Level-2 decision is sent:
//! one page of 16 bytes with both bits. Sending itself is [`crate::card::transmitter`]'s. The
//! card's internal data source is a register here and no more.

use livetime_wire::slink::ControlWord;

use crate::card::bus_map::BusMap;
use crate::card::transmitter::{SendRequest, Transmitter};
use crate::line::LinkState;
use crate::reset_handshake::ResetPin;

/// Vendor and device of SOLAR.
pub const SOLAR_PCI_ID: (u16, u16) = (0x10DC, 0x0017);
/// Operation control: 0 reset, 17 URESET, 20 UTEST.
pub const OPCTL: u32 = 0x000;
/// Operation status: 3:0 free REQ slots (15: idle), 17 link down.
pub const OPSTAT: u32 = 0x004;
/// Interrupt mask, bits as OPSTAT.
pub const INTMASK: u32 = 0x008;
/// Control of the internal data source; kept and read back.
pub const SLIDAS_CONTROL: u32 = 0x00C;
/// Features: 31 clock select, 30:29 divider; kept and read back.
pub const OPFEAT: u32 = 0x010;
/// Data words sent, 32 bits.
pub const WORD_COUNT: u32 = 0x014;
/// Begin control word.
pub const BEGIN_WORD: u32 = 0x018;
/// End control word.
pub const END_WORD: u32 = 0x01C;
/// Bus address of the page of the next request.
pub const REQ_ADDRESS: u32 = 0x100;
/// Words of that page; the write makes the request. 31: send begin word, 30: send end word.
pub const REQ_SIZE: u32 = 0x104;

/// OPCTL: card reset.
pub const OPCTL_RESET: u32 = 1 << 0;
/// OPCTL: URESET of the link.
pub const OPCTL_URESET: u32 = 1 << 17;
/// OPCTL: UTEST of the link.
pub const OPCTL_UTEST: u32 = 1 << 20;
/// OPSTAT: link down.
pub const OPSTAT_DOWN: u32 = 1 << 17;
/// REQ size: send the begin word.
pub const SIZE_BEGIN: u32 = 1 << 31;
/// REQ size: send the end word.
pub const SIZE_END: u32 = 1 << 30;

/// Depth of the REQ FIFO: four bits of status.
const DEPTH: u32 = 15;

/// A SOLAR card.
#[derive(Debug, Clone)]
pub struct SolarCard {
    map: BusMap,
    transmitter: Transmitter,
    control: u32,
    mask: u32,
    slidas: u32,
    features: u32,
    words: (u32, u32),
    address: u32,
    bad_requests: u64,
    accesses: u64,
}

impl SolarCard {
    /// A card after power-on, whose pages are those of `map`.
    pub fn new(map: BusMap) -> Self {
        let words = (ControlWord::BEGIN_FRAGMENT.0, ControlWord::END_FRAGMENT.0);
        Self {
            map,
            transmitter: Transmitter::new(DEPTH),
            control: 0,
            mask: 0,
            slidas: 0,
            features: 0,
            words,
            address: 0,
            bad_requests: 0,
            accesses: 0,
        }
    }

    /// Reads the register at an offset; 0 where there is none.
    pub fn read_register(&mut self, offset: u32) -> u32 {
        self.accesses += 1;
        match offset {
            OPCTL => self.control,
            OPSTAT => self.status(),
            INTMASK => self.mask,
            SLIDAS_CONTROL => self.slidas,
            OPFEAT => self.features,
            WORD_COUNT => self.transmitter.counters().data_words as u32,
            BEGIN_WORD => self.words.0,
            END_WORD => self.words.1,
            _ => 0,
        }
    }

    /// Writes the register at an offset; ignored where there is none.
    pub fn write_register(&mut self, offset: u32, value: u32) {
        self.accesses += 1;
        match offset {
            OPCTL => {
                if (value & !self.control) & (OPCTL_RESET | OPCTL_URESET) != 0 {
                    self.transmitter.clear();
                }
                self.control = value;
            }
            INTMASK => self.mask = value,
            SLIDAS_CONTROL => self.slidas = value,
            OPFEAT => self.features = value,
            BEGIN_WORD | END_WORD => {
                if offset == BEGIN_WORD {
                    self.words.0 = value;
                } else {
                    self.words.1 = value;
                }
                let (begin, end) = (ControlWord(self.words.0), ControlWord(self.words.1));
                self.transmitter.expect(begin, end);
            }
            REQ_ADDRESS => self.address = value,
            REQ_SIZE => self.request(value),
            _ => {}
        }
    }

    /// Whether the interrupt line is asserted.
    pub fn has_interrupt(&self) -> bool {
        self.status() & self.mask != 0
    }

    /// The URESET# pin of the link.
    pub fn reset_pin(&self) -> ResetPin {
        match self.control & OPCTL_URESET {
            0 => ResetPin::Released,
            _ => ResetPin::Driven,
        }
    }

    /// Whether UTEST# is driven.
    pub fn is_testing(&self) -> bool {
        self.control & OPCTL_UTEST != 0
    }

    /// What sends the pages.
    pub fn transmitter(&self) -> &Transmitter {
        &self.transmitter
    }

    /// What sends the pages, for the line to drive.
    pub fn transmitter_mut(&mut self) -> &mut Transmitter {
        &mut self.transmitter
    }

    /// Requests with an address where no page begins, or longer than a page; not taken.
    pub fn bad_requests(&self) -> u64 {
        self.bad_requests
    }

    /// Register accesses so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    fn status(&self) -> u32 {
        let down = match self.transmitter.link() {
            LinkState::Down => OPSTAT_DOWN,
            LinkState::Up => 0,
        };
        self.transmitter.free() | down
    }

    fn request(&mut self, size: u32) {
        let words = size & !(SIZE_BEGIN | SIZE_END);
        let page = self.map.page(self.address);
        let Some(page) = page.filter(|_| words <= self.map.page_bytes / 4) else {
            self.bad_requests += 1;
            return;
        };
        // A full FIFO loses the request, which the transmitter counts.
        let _ = self.transmitter.post(SendRequest {
            page,
            words,
            with_begin: size & SIZE_BEGIN != 0,
            with_end: size & SIZE_END != 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::slink::LineWord;

    use super::*;
    use crate::card::page_memory::PageMemory;
    use crate::page_store::PageStore;

    #[test]
    fn register_map_is_the_published_one() {
        assert_eq!([OPCTL, OPSTAT, INTMASK, SLIDAS_CONTROL], [0, 4, 8, 0xC]);
        assert_eq!(
            [OPFEAT, WORD_COUNT, BEGIN_WORD, END_WORD],
            [0x10, 0x14, 0x18, 0x1C]
        );
        assert_eq!([REQ_ADDRESS, REQ_SIZE], [0x100, 0x104]);
    }

    #[test]
    fn a_decision_of_one_page_leaves_between_control_words() {
        let mut memory = PageMemory::new(0x9000_0000, 4, 1024);
        memory.words_mut(1)[..4].copy_from_slice(&[1, 2, 3, 4]);
        let mut card = SolarCard::new(memory.map());
        assert_eq!(card.read_register(OPSTAT), 15);
        card.write_register(BEGIN_WORD, 0xB0F0_000F);
        card.write_register(REQ_ADDRESS, 0x9000_0400);
        card.write_register(REQ_SIZE, SIZE_BEGIN | SIZE_END | 4);
        assert_eq!(card.read_register(OPSTAT), 14);
        let mut words = Vec::new();
        let transmitter = card.transmitter_mut();
        while let Some(slice) = transmitter.poll_line(&memory, 3) {
            words.extend(slice.iter());
            transmitter.handle_sent(slice.words());
        }
        assert_eq!(words.len(), 6);
        assert_eq!(words[0], LineWord::Control(ControlWord::BEGIN_FRAGMENT));
        assert_eq!(words[4], LineWord::Data(4));
        assert_eq!(card.read_register(OPSTAT), 15);
        assert_eq!(card.read_register(WORD_COUNT), 4);
    }

    #[test]
    fn bad_requests_resets_and_link_down_show() {
        let memory = PageMemory::new(0x9000_0000, 4, 1024);
        let mut card = SolarCard::new(memory.map());
        for (address, words) in [(0x9000_0004, 1), (0x9000_1000, 1), (0x9000_0000, 257)] {
            card.write_register(REQ_ADDRESS, address);
            card.write_register(REQ_SIZE, words);
        }
        assert_eq!(card.bad_requests(), 3);
        card.write_register(REQ_ADDRESS, 0x9000_0000);
        for _ in 0..16 {
            card.write_register(REQ_SIZE, 1);
        }
        assert_eq!(card.read_register(OPSTAT), 0);
        assert_eq!(card.transmitter().counters().requests_lost, 1);
        card.write_register(INTMASK, OPSTAT_DOWN);
        card.transmitter_mut().handle_link(LinkState::Down);
        assert!(card.has_interrupt());
        card.write_register(OPCTL, OPCTL_URESET | OPCTL_UTEST);
        assert_eq!(card.reset_pin(), ResetPin::Driven);
        assert!(card.is_testing());
        for (offset, value) in [(SLIDAS_CONTROL, 7), (OPFEAT, 0xA000_0000)] {
            card.write_register(offset, value);
            assert_eq!(card.read_register(offset), value);
        }
    }
}
