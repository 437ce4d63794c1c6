//! QUEST: four channels out of the FILAR board, as transmitter or as data source.
//!
//! The transmitter firmware sends pages on request, its library mirrors FILAR's; the data-source
//! firmware makes fragments by itself, for measurements. No public text gives its registers: those
//! here mirror FILAR's and are ours. Sending pages is [`crate::card::transmitter`]'s.

use livetime_wire::slink::ControlWord;

use crate::card::bus_map::BusMap;
use crate::card::receiver_register as register;
use crate::card::solar_card::{SIZE_BEGIN, SIZE_END};
use crate::card::transmitter::{SendRequest, Transmitter};
use crate::line::{FlowControl, LinkState};
use crate::reset_handshake::ResetPin;

/// Channels.
pub const CHANNELS: u32 = 4;
/// Words of the fragments that the data source makes; 0 stops it (data source; ours).
pub const LENGTH: u32 = 0x01C;

/// What the board is loaded with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestFirmware {
    /// Sends pages.
    Transmitter,
    /// Makes fragments of one length: words that count up from 0.
    DataSource,
}

/// A QUEST card.
///
/// Requests of a channel are two writes, at REQ the bus address and at REQ + 4 the words with
/// bit 31 = begin word and bit 30 = end word, as SOLAR's.
#[derive(Debug, Clone)]
pub struct QuestCard {
    firmware: QuestFirmware,
    map: BusMap,
    channels: Vec<Transmitter>,
    addresses: [u32; CHANNELS as usize],
    control: u32,
    words: (u32, u32),
    length: u32,
    made: [u64; CHANNELS as usize],
    bad_requests: u64,
}

impl QuestCard {
    /// A card after power-on; FIFOs of `fifo_depth` requests (FILAR has 15).
    pub fn new(firmware: QuestFirmware, fifo_depth: u32, map: BusMap) -> Self {
        let words = (ControlWord::BEGIN_FRAGMENT.0, ControlWord::END_FRAGMENT.0);
        Self {
            firmware,
            map,
            channels: (0..CHANNELS)
                .map(|_| Transmitter::new(fifo_depth))
                .collect(),
            addresses: [0; CHANNELS as usize],
            control: 0,
            words,
            length: 0,
            made: [0; CHANNELS as usize],
            bad_requests: 0,
        }
    }

    /// Reads the register at an offset; 0 where there is none.
    pub fn read_register(&mut self, offset: u32) -> u32 {
        match offset {
            register::OCR => self.control,
            register::OSR => self.status(),
            register::FIFOSTAT => (0u32..)
                .zip(&self.channels)
                .fold(0, |status, (n, channel)| {
                    status | channel.free().min(15) << (8 * n + 4)
                }),
            register::SCW => self.words.0,
            register::ECW => self.words.1,
            LENGTH => self.length,
            _ => 0,
        }
    }

    /// Writes the register at an offset; ignored where there is none.
    pub fn write_register(&mut self, offset: u32, value: u32) {
        match offset {
            register::OCR => self.write_control(value),
            register::SCW | register::ECW => {
                if offset == register::SCW {
                    self.words.0 = value;
                } else {
                    self.words.1 = value;
                }
                let (begin, end) = (ControlWord(self.words.0), ControlWord(self.words.1));
                for channel in &mut self.channels {
                    channel.expect(begin, end);
                }
            }
            LENGTH if self.firmware == QuestFirmware::DataSource => self.length = value,
            _ => {
                for channel in 0..CHANNELS {
                    if offset == register::req(channel) {
                        self.addresses[channel as usize] = value;
                    } else if offset == register::ack(channel) {
                        self.request(channel as usize, value);
                    }
                }
            }
        }
    }

    /// A channel's transmitter.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn channel(&self, channel: u32) -> &Transmitter {
        &self.channels[channel as usize]
    }

    /// A channel's transmitter, for its line to drive.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn channel_mut(&mut self, channel: u32) -> &mut Transmitter {
        &mut self.channels[channel as usize]
    }

    /// The URESET# pin of a channel's link.
    pub fn reset_pin(&self, channel: u32) -> ResetPin {
        match self.control & register::ocr_ureset(channel) {
            0 => ResetPin::Released,
            _ => ResetPin::Driven,
        }
    }

    /// The next fragment of the data source on a channel, into `out`; `false` while it is stopped,
    /// the channel disabled, or its link down or in XOFF. Its words count up from 0.
    pub fn next_fragment(&mut self, channel: u32, flow: FlowControl, out: &mut Vec<u32>) -> bool {
        let is_disabled = self.control & register::ocr_disable(channel) != 0;
        let is_down = self.channels[channel as usize].link() == LinkState::Down;
        let is_source = self.firmware == QuestFirmware::DataSource && self.length > 0;
        if !is_source || is_disabled || is_down || flow == FlowControl::Xoff {
            return false;
        }
        out.clear();
        out.extend(0..self.length);
        self.made[channel as usize] += 1;
        true
    }

    /// Fragments that the data source has made on a channel.
    pub fn made(&self, channel: u32) -> u64 {
        self.made[channel as usize]
    }

    /// Requests with an address where no page begins, or longer than a page; not taken.
    pub fn bad_requests(&self) -> u64 {
        self.bad_requests
    }

    fn write_control(&mut self, value: u32) {
        let rising = value & !self.control;
        self.control = value;
        for (number, channel) in (0..).zip(&mut self.channels) {
            if rising & (register::OCR_RESET | register::ocr_ureset(number)) != 0 {
                channel.clear();
            }
        }
        if rising & register::OCR_RESET != 0 {
            self.length = 0;
        }
    }

    fn status(&self) -> u32 {
        (0..).zip(&self.channels).fold(0, |status, (n, channel)| {
            let space = match channel.free() {
                0 => 0,
                _ => register::OSR_REQ_SPACE,
            };
            let down = match channel.link() {
                LinkState::Down => register::osr_down(n),
                LinkState::Up => 0,
            };
            status | space | down
        })
    }

    fn request(&mut self, channel: usize, size: u32) {
        let words = size & !(SIZE_BEGIN | SIZE_END);
        let page = self.map.page(self.addresses[channel]);
        let Some(page) = page.filter(|_| words <= self.map.page_bytes / 4) else {
            self.bad_requests += 1;
            return;
        };
        // A full FIFO loses the request, which the transmitter counts.
        let _ = self.channels[channel].post(SendRequest {
            page,
            words,
            with_begin: size & SIZE_BEGIN != 0,
            with_end: size & SIZE_END != 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::page_memory::PageMemory;

    #[test]
    fn four_channels_send_pages_and_show_their_free_slots() {
        let memory = PageMemory::new(0, 8, 1024);
        let mut card = QuestCard::new(QuestFirmware::Transmitter, 15, memory.map());
        assert_eq!(card.read_register(register::FIFOSTAT), 0xF0F0_F0F0);
        for channel in 0..4 {
            for page in 0..=channel {
                card.write_register(register::req(channel), page * 1024);
                card.write_register(register::ack(channel), SIZE_BEGIN | SIZE_END | 10);
            }
        }
        assert_eq!(card.read_register(register::FIFOSTAT), 0xB0C0_D0E0);
        for channel in 0..4 {
            let transmitter = card.channel_mut(channel);
            while let Some(slice) = transmitter.poll_line(&memory, 100) {
                transmitter.handle_sent(slice.words());
            }
            let sent = u64::from(channel) + 1;
            assert_eq!(transmitter.counters().data_words, 10 * sent);
            assert_eq!(transmitter.counters().control_words, 2 * sent);
        }
        card.write_register(register::req(0), 8 * 1024);
        card.write_register(register::ack(0), 1);
        assert_eq!(card.bad_requests(), 1);
        card.channel_mut(2).handle_link(LinkState::Down);
        assert_eq!(card.read_register(register::OSR), 1 | register::osr_down(2));
        card.write_register(register::OCR, register::ocr_ureset(1));
        assert_eq!(card.reset_pin(1), ResetPin::Driven);
        assert!(!card.next_fragment(0, FlowControl::Xon, &mut Vec::new()));
    }

    #[test]
    fn data_source_makes_fragments_of_the_length_written_and_obeys_xoff() {
        let memory = PageMemory::new(0, 8, 1024);
        let mut card = QuestCard::new(QuestFirmware::DataSource, 15, memory.map());
        let mut words = Vec::new();
        assert!(!card.next_fragment(0, FlowControl::Xon, &mut words));
        card.write_register(LENGTH, 5);
        assert!(card.next_fragment(3, FlowControl::Xon, &mut words));
        assert_eq!(words, [0, 1, 2, 3, 4]);
        assert!(!card.next_fragment(3, FlowControl::Xoff, &mut words));
        card.write_register(register::OCR, register::ocr_disable(3));
        assert!(!card.next_fragment(3, FlowControl::Xon, &mut words));
        assert_eq!([card.made(3), card.made(0)], [1, 0]);
        card.write_register(register::OCR, register::OCR_RESET);
        assert_eq!(card.read_register(LENGTH), 0);
    }
}
