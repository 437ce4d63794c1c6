//! The register map of the receiver cards: offsets and bits, no behaviour.
//!
//! The map is FILAR's (PCI 10DC:0014, BAR 0, 1 KiB) as public host code of the card uses it; the
//! S32PCI64 is given the same with one channel. The registers of the DMA protocol are ours, since no
//! public text names them. What they do is in [`crate::card::receiver_card`].

/// Vendor and device of FILAR.
pub const FILAR_PCI_ID: (u16, u16) = (0x10DC, 0x0014);

/// Operation control.
pub const OCR: u32 = 0x000;
/// Operation status.
pub const OSR: u32 = 0x004;
/// Interrupt mask.
pub const IMASK: u32 = 0x008;
/// FIFO status: a byte per channel, ACK entries in its low nibble, free REQ slots in its high one.
pub const FIFOSTAT: u32 = 0x00C;
/// Start control word: expected when written, received when read after an ACK.
pub const SCW: u32 = 0x010;
/// End control word: expected when written, received when read after an ACK.
pub const ECW: u32 = 0x014;
/// Test input: in test mode each write is a data word on every enabled channel.
pub const TESTIN: u32 = 0x018;
/// Bus address of a descriptor block: a write makes the card fetch it (DMA protocol; ours).
pub const DESCRIPTOR: u32 = 0x200;
/// Words of that block (DMA protocol; ours).
pub const DESCRIPTOR_WORDS: u32 = 0x204;
/// Bus address of the completion block (DMA protocol; ours).
pub const COMPLETION: u32 = 0x208;
/// Completions that make a block, 1 to 63; bit 31 written: send what there is (DMA protocol; ours).
pub const THRESHOLD: u32 = 0x20C;

/// OCR: resets the card.
pub const OCR_RESET: u32 = 1 << 0;
/// OCR: swaps the bytes of each word.
pub const OCR_SWAP_BYTES: u32 = 1 << 1;
/// OCR: swaps the words of each pair.
pub const OCR_SWAP_WORDS: u32 = 1 << 2;
/// OCR: where the page size is, three bits.
pub const OCR_PAGE_SIZE_SHIFT: u32 = 3;
/// OCR: test mode.
pub const OCR_TEST: u32 = 1 << 6;
/// OCR: URESET of all four channels.
pub const OCR_URESET_ALL: u32 = 0x0410_4100;
/// OSR and IMASK: there is room in a REQ FIFO.
pub const OSR_REQ_SPACE: u32 = 1 << 0;
/// OSR and IMASK: an ACK FIFO is not empty.
pub const OSR_ACK_WAITING: u32 = 1 << 1;
/// OSR: temperature in degrees Celsius; IMASK: alarm, 0 is off.
pub const TEMPERATURE_SHIFT: u32 = 8;
/// THRESHOLD: send what there is.
pub const THRESHOLD_FLUSH: u32 = 1 << 31;

/// ACK: no start word.
pub const ACK_NO_START: u32 = 1 << 31;
/// ACK: wrong start word.
pub const ACK_WRONG_START: u32 = 1 << 30;
/// ACK: no end word, or more to come in the next page.
pub const ACK_NO_END: u32 = 1 << 29;
/// ACK: wrong end word.
pub const ACK_WRONG_END: u32 = 1 << 28;
/// ACK: length in data words.
pub const ACK_LENGTH: u32 = 0x000F_FFFF;

/// Bytes of a page by the three bits of OCR.
pub const PAGE_BYTES: [u32; 8] = [
    256,
    1 << 10,
    2 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    (4 << 20) - 8,
];

/// OCR: URESET of channel 0 to 3.
pub const fn ocr_ureset(channel: u32) -> u32 {
    1 << (8 + 6 * channel)
}

/// OCR: disables channel 0 to 3.
pub const fn ocr_disable(channel: u32) -> u32 {
    2 << (8 + 6 * channel)
}

/// OCR: where URL\[3:0\] of channel 0 to 3 is.
pub const fn ocr_return_lines_shift(channel: u32) -> u32 {
    10 + 6 * channel
}

/// OSR and IMASK: link down of channel 0 to 3.
pub const fn osr_down(channel: u32) -> u32 {
    1 << (16 + 4 * channel)
}

/// OSR and IMASK: overflow of channel 0 to 3.
pub const fn osr_overflow(channel: u32) -> u32 {
    2 << (16 + 4 * channel)
}

/// OSR and IMASK: XOFF of channel 0 to 3.
pub const fn osr_xoff(channel: u32) -> u32 {
    4 << (16 + 4 * channel)
}

/// OSR: channel 0 to 3 is absent.
pub const fn osr_absent(channel: u32) -> u32 {
    8 << (16 + 4 * channel)
}

/// REQ of channel 0 to 3.
pub const fn req(channel: u32) -> u32 {
    0x100 + 16 * channel
}

/// ACK of channel 0 to 3.
pub const fn ack(channel: u32) -> u32 {
    0x104 + 16 * channel
}

const _: () = {
    let all = ocr_ureset(0) | ocr_ureset(1) | ocr_ureset(2) | ocr_ureset(3);
    assert!(all == OCR_URESET_ALL);
    assert!(ocr_return_lines_shift(3) + 3 == 31);
};
