//! Golden tests of the receiver cards' registers.

use super::*;
use crate::card::receiver_register as r;
use crate::page_store::PageRead;

const BASE: u32 = 0x4000_0000;
const BEGIN: LineSlice<'static> = LineSlice::Control(ControlWord::BEGIN_FRAGMENT);
const END: LineSlice<'static> = LineSlice::Control(ControlWord::END_FRAGMENT);

fn card(kind: ReceiverKind) -> (ReceiverCard, PageMemory) {
    let memory = PageMemory::new(BASE, 64, 1024);
    let config = ReceiverCardConfig {
        kind,
        ..ReceiverCardConfig::default()
    };
    let mut card = ReceiverCard::new(config, memory.map());
    // Pages of 1 KiB.
    card.write_register(r::OCR, 1 << r::OCR_PAGE_SIZE_SHIFT);
    (card, memory)
}

fn page(index: u32) -> u32 {
    BASE + index * 1024
}

fn send(card: &mut ReceiverCard, memory: &mut PageMemory, channel: u32, words: &[u32]) -> bool {
    [BEGIN, LineSlice::Data(words), END]
        .into_iter()
        .filter(|slice| slice.words() > 0)
        .all(|slice| card.handle_line(channel, slice, memory) == slice.words())
}

#[test]
fn register_map_is_the_published_one() {
    assert_eq!([r::OCR, r::OSR, r::IMASK, r::FIFOSTAT], [0, 4, 8, 0xC]);
    assert_eq!([r::SCW, r::ECW, r::TESTIN], [0x10, 0x14, 0x18]);
    assert_eq!([0, 1, 2, 3].map(r::req), [0x100, 0x110, 0x120, 0x130]);
    assert_eq!([0, 1, 2, 3].map(r::ack), [0x104, 0x114, 0x124, 0x134]);
    assert_eq!([0, 3].map(r::ocr_ureset), [1 << 8, 1 << 26]);
    assert_eq!([0, 3].map(r::ocr_disable), [1 << 9, 1 << 27]);
    assert_eq!([0, 3].map(r::ocr_return_lines_shift), [10, 28]);
    assert_eq!([0, 3].map(r::osr_down), [1 << 16, 1 << 28]);
    assert_eq!(r::osr_absent(3), 1 << 31);
    assert_eq!(r::PAGE_BYTES[7], 4_194_296);
}

#[test]
fn status_after_power_on() {
    // 35 degrees, room for requests, no ACK; XOFF, for there is no page yet.
    for (kind, status, fifos) in [
        (ReceiverKind::FilarSingleCycle, 0x4444_2301, 0xF0F0_F0F0),
        (ReceiverKind::FilarDma, 0x8444_2301, 0x00F0_F0F0),
        (ReceiverKind::S32Pci64, 0x8884_2301, 0x0000_00F0),
    ] {
        let (mut card, _) = card(kind);
        assert_eq!(card.read_register(r::OSR), status, "{kind:?}");
        assert_eq!(card.read_register(r::FIFOSTAT), fifos, "{kind:?}");
        assert_eq!(card.read_register(r::IMASK), 0);
        assert!(!card.has_interrupt());
    }
}

#[test]
fn a_fragment_goes_from_request_to_acknowledge() {
    let (mut card, mut memory) = card(ReceiverKind::FilarSingleCycle);
    card.write_register(r::IMASK, r::OSR_ACK_WAITING);
    for index in 0..3 {
        card.write_register(r::req(1), page(index));
    }
    assert_eq!(card.read_register(r::FIFOSTAT), 0xF0F0_C0F0);
    assert!(send(&mut card, &mut memory, 1, &[5, 6, 7, 8]));
    assert!(card.has_interrupt());
    assert_eq!(card.read_register(r::OSR) & 0b11, 0b11);
    assert_eq!(card.read_register(r::FIFOSTAT), 0xF0F0_D1F0);
    assert_eq!(card.read_register(r::ack(1)), 4);
    assert_eq!(card.read_register(r::SCW), 0xB0F0_0000);
    assert_eq!(card.read_register(r::ECW), 0xE0F0_0000);
    assert!(!card.has_interrupt());
    assert_eq!(memory.words(0)[..4], [5, 6, 7, 8]);
    assert_eq!(card.read_register(r::ack(1)), 0);
    assert_eq!(card.counters().empty_reads, 1);
}

#[test]
fn acknowledge_bits_and_error_bits_of_control_words() {
    let (mut card, mut memory) = card(ReceiverKind::FilarSingleCycle);
    for index in 0..6 {
        card.write_register(r::req(0), page(index));
    }
    let other = ControlWord(0x1234_5670);
    let damaged = ControlWord::END_FRAGMENT.with_errors(true, true);
    for (first, last, ack, words) in [
        (None, END, r::ACK_NO_START, (0, 0xE0F0_0000)),
        (
            Some(LineSlice::Control(other)),
            END,
            r::ACK_WRONG_START,
            (0x1234_5670, 0xE0F0_0000),
        ),
        (
            Some(BEGIN),
            LineSlice::Control(other),
            r::ACK_WRONG_END,
            (0xB0F0_0000, 0x1234_5670),
        ),
        (
            Some(BEGIN),
            LineSlice::Control(damaged),
            0,
            (0xB0F0_0000, 0xE0F0_0003),
        ),
    ] {
        first.map(|slice| card.handle_line(0, slice, &mut memory));
        card.handle_line(0, LineSlice::Data(&[1, 2]), &mut memory);
        card.handle_line(0, last, &mut memory);
        assert_eq!(card.read_register(r::ack(0)), ack | 2);
        let received = (card.read_register(r::SCW), card.read_register(r::ECW));
        assert_eq!(received, words);
    }
    // A begin word in place of an end word.
    card.handle_line(0, BEGIN, &mut memory);
    card.handle_line(0, LineSlice::Data(&[1]), &mut memory);
    card.handle_line(0, BEGIN, &mut memory);
    assert_eq!(card.read_register(r::ack(0)), r::ACK_NO_END | 1);
}

#[test]
fn other_control_words_are_expected_once_they_are_written() {
    let (mut card, mut memory) = card(ReceiverKind::FilarSingleCycle);
    card.write_register(r::req(0), page(0));
    card.write_register(r::SCW, 0x1111_1110);
    card.write_register(r::ECW, 0xFFFF_FFF0);
    card.handle_line(0, LineSlice::Control(ControlWord(0x1111_1110)), &mut memory);
    card.handle_line(0, LineSlice::Data(&[9]), &mut memory);
    card.handle_line(0, LineSlice::Control(ControlWord(0xFFFF_FFF0)), &mut memory);
    assert_eq!(card.read_register(r::ack(0)), 1);
}

#[test]
fn fragment_longer_than_a_page_says_more_to_come() {
    let (mut card, mut memory) = card(ReceiverKind::FilarSingleCycle);
    for index in 0..3 {
        card.write_register(r::req(3), page(index));
    }
    let words: Vec<u32> = (0..600).collect();
    assert!(send(&mut card, &mut memory, 3, &words));
    let acks = [0, 1, 2].map(|_| card.read_register(r::ack(3)));
    assert_eq!(acks[0], r::ACK_NO_END | 256);
    assert_eq!(acks[1], r::ACK_NO_START | r::ACK_NO_END | 256);
    assert_eq!(acks[2], r::ACK_NO_START | 88);
    assert_eq!(memory.words(2)[87], 599);
}

#[test]
fn fifos_are_bounded_and_their_nibbles_saturate() {
    for depth in [15, 31] {
        let memory = PageMemory::new(BASE, 64, 1024);
        let config = ReceiverCardConfig {
            fifo_depth: depth,
            ..ReceiverCardConfig::default()
        };
        assert_eq!(config.validate("card"), []);
        let mut card = ReceiverCard::new(config, memory.map());
        for index in 0..depth - 10 {
            card.write_register(r::req(0), page(index));
        }
        assert_eq!(card.read_register(r::FIFOSTAT) & 0xFF, 0xA0);
        for index in 0..12 {
            card.write_register(r::req(0), page(index));
        }
        assert_eq!(card.counters().requests_lost, 2);
        assert_eq!(card.read_register(r::FIFOSTAT) & 0xFF, 0x00);
        card.write_register(r::req(0), page(1) + 4);
        card.write_register(r::req(0), page(64));
        assert_eq!(card.counters().bad_addresses, 2);
        card.write_register(0x140, 0);
        assert_eq!(card.read_register(0x3FC), 0);
        assert_eq!(card.counters().bad_offsets, 2);
    }
    let config = ReceiverCardConfig {
        fifo_depth: 64,
        ..ReceiverCardConfig::default()
    };
    assert_eq!(config.validate("card")[0].path, "card.fifo_depth");
}

#[test]
fn words_without_a_page_are_buffered_then_overflow_and_reset_clears_it() {
    let (mut card, mut memory) = card(ReceiverKind::FilarSingleCycle);
    let words = card.config().buffer_words;
    for n in 0..words + 5 {
        card.handle_word(2, LineWord::Data(n), &mut memory);
        let xoff = card.read_register(r::OSR) & r::osr_xoff(2) != 0;
        assert!(xoff, "no page is posted");
    }
    assert_ne!(card.read_register(r::OSR) & r::osr_overflow(2), 0);
    assert_eq!(card.counters().words_overflowed, 5);
    for index in 0..4 {
        card.write_register(r::req(2), page(index));
    }
    card.pump(&mut memory);
    assert_eq!(memory.words(3)[255], words - 1);
    card.write_register(r::OCR, 1 << 3 | r::ocr_ureset(2));
    assert_eq!(card.read_register(r::OSR) & r::osr_overflow(2), 0);
    assert_ne!(card.read_register(r::OSR) & r::osr_down(2), 0);
    assert_eq!(card.reset_pin(2), ResetPin::Driven);
    assert_eq!(card.reset_pin(1), ResetPin::Released);
    card.write_register(r::OCR, 1 << 3 | 0b1010 << r::ocr_return_lines_shift(2));
    assert_eq!(card.return_lines(2), 0b1010);
    card.handle_link(2, LinkState::Down, &mut memory);
    card.handle_link(2, LinkState::Up, &mut memory);
    assert_eq!(card.read_register(r::OSR) & r::osr_down(2), 0);
    card.write_register(r::OCR, r::OCR_RESET);
    assert_eq!(card.read_register(r::FIFOSTAT), 0xF0F0_F0F0);
}

#[test]
fn disabled_channels_take_and_drop_words() {
    let (mut card, mut memory) = card(ReceiverKind::FilarSingleCycle);
    card.write_register(r::OCR, 1 << 3 | r::ocr_disable(0));
    assert!(send(&mut card, &mut memory, 0, &[1, 2, 3]));
    assert_eq!(card.counters().words_disabled, 5);
    assert_eq!(card.read_register(r::FIFOSTAT), 0xF0F0_F0F0);
    assert_eq!(card.read_register(r::OSR) & r::osr_xoff(0), 0);
}

#[test]
fn bytes_and_words_are_swapped_in_the_page() {
    for (control, expected) in [
        (0, [0x0102_0304, 0x0506_0708, 0x090A_0B0C, 0]),
        (
            r::OCR_SWAP_BYTES,
            [0x0403_0201, 0x0807_0605, 0x0C0B_0A09, 0],
        ),
        (
            r::OCR_SWAP_WORDS,
            [0x0506_0708, 0x0102_0304, 0, 0x090A_0B0C],
        ),
    ] {
        let (mut card, mut memory) = card(ReceiverKind::FilarSingleCycle);
        card.write_register(r::OCR, 1 << 3 | control);
        card.write_register(r::req(0), page(0));
        let words = [0x0102_0304, 0x0506_0708, 0x090A_0B0C];
        assert!(send(&mut card, &mut memory, 0, &words));
        assert_eq!(memory.words(0)[..4], expected);
        assert_eq!(card.read_register(r::ack(0)), 3);
    }
}

#[test]
fn test_input_and_temperature_alarm() {
    let (mut card, mut memory) = card(ReceiverKind::FilarSingleCycle);
    card.write_register(r::TESTIN, 1);
    card.write_register(r::OCR, 1 << 3 | r::OCR_TEST);
    card.write_register(r::TESTIN, 0x55);
    card.write_register(r::req(3), page(0));
    card.pump(&mut memory);
    card.handle_line(3, END, &mut memory);
    assert_eq!(card.read_register(r::ack(3)), r::ACK_NO_START | 1);
    assert_eq!(memory.words(0)[0], 0x55);
    card.write_register(r::IMASK, 36 << r::TEMPERATURE_SHIFT);
    assert!(!card.has_interrupt());
    card.write_register(r::IMASK, 35 << r::TEMPERATURE_SHIFT);
    assert!(card.has_interrupt());
}

#[test]
fn dma_protocol_fetches_descriptors_and_writes_completions_at_its_threshold() {
    let (mut card, mut memory) = card(ReceiverKind::FilarDma);
    let mut block = [0; crate::card::dma_block::DESCRIPTOR_WORDS_MAX];
    let addresses: Vec<u32> = (0..12).map(page).collect();
    let lists = [&addresses[..4], &addresses[4..8], &addresses[8..]];
    let words = DescriptorBlock::emit(lists, &mut block);
    let (descriptor, completion) = (page(60), page(61));
    memory
        .at_mut(descriptor, words)
        .unwrap()
        .copy_from_slice(&block[..words]);
    card.write_register(r::DESCRIPTOR_WORDS, words as u32);
    card.write_register(r::COMPLETION, completion);
    card.write_register(r::THRESHOLD, 4);
    card.write_register(r::DESCRIPTOR, descriptor);
    let fetch = DmaTransfer::Descriptors { words: 13 };
    assert_eq!(card.run_dma(&mut memory), Some(fetch));
    assert_eq!(card.read_register(r::FIFOSTAT), 0x00B0_B0B0);
    for channel in 0..3 {
        assert!(send(&mut card, &mut memory, channel, &[channel; 7]));
        assert_eq!(card.next_dma(), None, "three are below the threshold");
    }
    assert!(send(&mut card, &mut memory, 0, &[9; 8]));
    let write = DmaTransfer::Completions { words: 17 };
    assert_eq!(card.run_dma(&mut memory), Some(write));
    let entries: Vec<_> = CompletionEntry::read_all(memory.at(completion, 17).unwrap())
        .unwrap()
        .map(|entry| (entry.channel, entry.ack, entry.start, entry.end))
        .collect();
    let (b, e) = (0xB0F0_0000, 0xE0F0_0000);
    assert_eq!(
        entries,
        [(0, 7, b, e), (1, 7, b, e), (2, 7, b, e), (0, 8, b, e)]
    );
    assert!(send(&mut card, &mut memory, 1, &[1]));
    card.write_register(r::THRESHOLD, r::THRESHOLD_FLUSH);
    assert_eq!(card.next_dma(), Some(DmaTransfer::Completions { words: 5 }));
    card.run_dma(&mut memory);
    assert_eq!(card.next_dma(), None);
    // Single-cycle registers are not there, and a bad block is counted.
    card.write_register(r::req(0), page(20));
    assert_eq!(card.read_register(r::ack(0)), 0);
    assert_eq!(card.counters().bad_offsets, 2);
    card.write_register(r::DESCRIPTOR, page(62) + 4);
    card.run_dma(&mut memory);
    assert_eq!(card.counters().bad_blocks, 1);
    let counters = card.counters();
    assert_eq!((counters.blocks_fetched, counters.blocks_written), (1, 2));
}
