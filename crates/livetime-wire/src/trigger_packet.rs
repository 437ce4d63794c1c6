//! The trigger packet: what a trigger link carries for one Level-1 accept.
//!
//! ```text
//!  w0  31:24 0xC2 | 23:22 L2 buffer | 21:17 refused | 16 truncated | 15:8 bunch | 7:0 blocks
//!  w1  low 32 bits of the trigger number
//!  w2  L1 bits 31:0      w3  L1 bits 63:32
//!  w4  31:8 run number (24 bits) | 7:0 lumi section, low 8 bits
//!  w5  time stamp, 25 ns ticks (wraps at 107.4 s)
//!  blocks: 31:24 type | 23:16 items | 15:0 words of the items, then the items
//!  last 31:16 words of the packet | 15:0 CRC-16/CCITT-FALSE over all words with this field 0
//! ```
//!
//! Item layouts are at the item types; XTRP and SVT words follow CDF (TL2D bank, SVT data format).
//! Beyond the limit, items are dropped by [`TriggerPacket::truncate`]. `docs/formats/
//! trigger-packet.md` is the definition; this module and the Python oracle follow it.

use core::cmp::Reverse;

use crate::crc16::{crc16, crc16_without_end};

/// Words before the first block.
pub const HEADER_WORDS: usize = 6;
/// Default limit of a packet's words.
pub const WORDS_MAX_DEFAULT: usize = 510;
/// Upper byte of word 0.
pub const MAGIC: u32 = 0xC2;
/// Flag: items were dropped to fit the limit.
pub const FLAG_TRUNCATED: u8 = 1;
/// Most Level-1 accepts refused since the packet before that the flags can say.
pub const REFUSED_MAX: u32 = 31;
/// Where their number stands in the flags.
pub const REFUSED_SHIFT: u32 = 1;
/// Full circle in angle LSBs (phi = 2 pi / 8192).
pub const ANGLE_LSB: u32 = 8192;

/// A track of the extremely fast tracker: 1 word, 8:0 wedge (288 x 1.25 deg), 11:9 pixel in the
/// wedge, 20:16 pT code (pT >= code x 0.5 GeV), 21 sign (1 = negative), 22 isolated, 23 SL6/SL8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct XtrpTrack(pub u32);

/// A track of the silicon vertex tracker: 2 words. w0: 12:0 phi, 18:13 z, 28:19 impact parameter d
/// (sign and 9 bits, 10 um), 31:29 fit quality. w1: 8:0 half curvature c (sign and 8 bits), 19:9
/// chi2 (1/16), 28:20 track number, 29 error, 30 quality, 31 end of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SvtTrack(pub [u32; 2]);

/// A calorimeter cluster: 2 words. w0: 11:0 EM Et, 23:12 HAD Et (0.125 GeV), 31:24 towers. w1: 11:0
/// seed Et, 18:12 eta (signed, 0.1), 24:19 phi (5.625 deg), 28:25 isolation flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cluster(pub [u32; 2]);

/// A muon stub: 1 word. 7:0 phi (144 x 2.5 deg), 11:8 type mask (CMU, CMP, CMX, BMU), 19:12 matched
/// XTRP index (255 = none), 20 charge (1 = negative), 27:21 pT code (0.5 GeV).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MuonStub(pub u32);

/// Energy sums: 2 words. w0: 15:0 sum Et (0.125 GeV). w1: 15:0 missing Et (0.125 GeV), 28:16 its
/// phi (2 pi / 8192).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sums(pub [u32; 2]);

/// A field of `bits` bits at `shift`.
#[inline]
const fn field(word: u32, shift: u32, bits: u32) -> u32 {
    (word >> shift) & ((1 << bits) - 1)
}

/// Sign and magnitude with the sign in the top bit; minus zero is zero.
#[inline]
const fn signed_magnitude(raw: u32, magnitude_bits: u32) -> i32 {
    let magnitude = field(raw, 0, magnitude_bits).cast_signed();
    if raw >> magnitude_bits & 1 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

/// The raw field of a value in sign and magnitude; saturates at the largest magnitude.
const fn to_signed_magnitude(value: i32, magnitude_bits: u32) -> u32 {
    let limit = (1u32 << magnitude_bits) - 1;
    let magnitude = if value.unsigned_abs() > limit {
        limit
    } else {
        value.unsigned_abs()
    };
    if value < 0 {
        magnitude | 1 << magnitude_bits
    } else {
        magnitude
    }
}

impl XtrpTrack {
    /// A track with these raw fields (each masked to its width).
    pub fn new(wedge: u32, pixel: u32, pt_code: u32, negative: bool, isolated: bool) -> Self {
        Self(
            field(wedge, 0, 9)
                | field(pixel, 0, 3) << 9
                | field(pt_code, 0, 5) << 16
                | u32::from(negative) << 21
                | u32::from(isolated) << 22,
        )
    }

    /// Wedge, 0..288 of 1.25 deg.
    #[inline]
    pub fn wedge(self) -> u32 {
        field(self.0, 0, 9)
    }

    /// Pixel inside the wedge, 0..8.
    #[inline]
    pub fn pixel(self) -> u32 {
        field(self.0, 9, 3)
    }

    /// pT code: pT is at least code x 0.5 GeV.
    #[inline]
    pub fn pt_code(self) -> u32 {
        field(self.0, 16, 5)
    }

    /// Whether the charge is negative.
    #[inline]
    pub fn is_negative(self) -> bool {
        field(self.0, 21, 1) == 1
    }

    /// Whether the track is isolated.
    #[inline]
    pub fn is_isolated(self) -> bool {
        field(self.0, 22, 1) == 1
    }
}

impl SvtTrack {
    /// A track; `d` saturates at 511, `c` at 255 counts. A negative track with `c` = 0 has the
    /// sign bit set, so that the charge survives.
    pub fn new(phi: u32, z: u32, d: i32, c_magnitude: u32, negative: bool, chi2: u32) -> Self {
        let w0 = field(phi, 0, 13) | field(z, 0, 6) << 13 | to_signed_magnitude(d, 9) << 19;
        let c = c_magnitude.min(255) | u32::from(negative) << 8;
        Self([w0, c | chi2.min(2047) << 9])
    }

    /// With a track number (9 bits).
    #[must_use]
    #[inline]
    pub fn with_number(self, number: u32) -> Self {
        Self([
            self.0[0],
            self.0[1] & !(0x1FF << 20) | field(number, 0, 9) << 20,
        ])
    }

    /// Azimuth, 0..8192 of 2 pi / 8192.
    #[inline]
    pub fn phi(self) -> u32 {
        field(self.0[0], 0, 13)
    }

    /// z, 0..64.
    #[inline]
    pub fn z(self) -> u32 {
        field(self.0[0], 13, 6)
    }

    /// Impact parameter with respect to (0, 0), -511..=511 of 10 um.
    #[inline]
    pub fn d(self) -> i32 {
        signed_magnitude(field(self.0[0], 19, 10), 9)
    }

    /// Magnitude of the half curvature, 0..=255; 0 is infinite pT. pT = 180.855 GeV / counts.
    #[inline]
    pub fn c_magnitude(self) -> u32 {
        field(self.0[1], 0, 8)
    }

    /// Whether the charge is negative.
    #[inline]
    pub fn is_negative(self) -> bool {
        field(self.0[1], 8, 1) == 1
    }

    /// Chi-square of the fit, 0..2048 of 1/16.
    #[inline]
    pub fn chi2(self) -> u32 {
        field(self.0[1], 9, 11)
    }

    /// Track number, 0..512.
    #[inline]
    pub fn number(self) -> u32 {
        field(self.0[1], 20, 9)
    }
}

impl Cluster {
    /// A cluster; energies are in counts of 0.125 GeV and saturate.
    pub fn new(
        em: u32,
        had: u32,
        towers: u32,
        seed: u32,
        eta: i32,
        phi: u32,
        isolation: u32,
    ) -> Self {
        let eta = eta.clamp(-64, 63).cast_unsigned();
        Self([
            em.min(4095) | had.min(4095) << 12 | towers.min(255) << 24,
            seed.min(4095)
                | field(eta, 0, 7) << 12
                | field(phi, 0, 6) << 19
                | field(isolation, 0, 4) << 25,
        ])
    }

    /// Electromagnetic Et, counts of 0.125 GeV.
    #[inline]
    pub fn em(self) -> u32 {
        field(self.0[0], 0, 12)
    }

    /// Hadronic Et, counts of 0.125 GeV.
    #[inline]
    pub fn had(self) -> u32 {
        field(self.0[0], 12, 12)
    }

    /// Total Et, counts of 0.125 GeV.
    #[inline]
    pub fn et(self) -> u32 {
        self.em() + self.had()
    }

    /// Number of towers, 0..256.
    #[inline]
    pub fn towers(self) -> u32 {
        field(self.0[0], 24, 8)
    }

    /// Et of the seed tower, counts of 0.125 GeV.
    #[inline]
    pub fn seed(self) -> u32 {
        field(self.0[1], 0, 12)
    }

    /// Azimuth, 0..64 of 5.625 deg.
    #[inline]
    pub fn phi(self) -> u32 {
        field(self.0[1], 19, 6)
    }

    /// Isolation flags, 4 bits.
    #[inline]
    pub fn isolation(self) -> u32 {
        field(self.0[1], 25, 4)
    }

    /// Pseudorapidity in steps of 0.1, -64..=63.
    #[inline]
    pub fn eta(self) -> i32 {
        // Moves the 7-bit two's complement to the top and back down with its sign.
        (field(self.0[1], 12, 7) << 25).cast_signed() >> 25
    }
}

impl MuonStub {
    /// Type bit of the central muon chambers.
    pub const CMU: u32 = 1;
    /// Type bit of the central muon upgrade.
    pub const CMP: u32 = 2;
    /// Type bit of the central muon extension.
    pub const CMX: u32 = 4;
    /// Type bit of the barrel (forward) muon chambers.
    pub const BMU: u32 = 8;
    /// No matched track.
    pub const NO_TRACK: u32 = 255;

    /// A stub; the pT code saturates at 127.
    pub fn new(phi: u32, types: u32, track: u32, negative: bool, pt_code: u32) -> Self {
        Self(
            field(phi, 0, 8)
                | field(types, 0, 4) << 8
                | track.min(255) << 12
                | u32::from(negative) << 20
                | pt_code.min(127) << 21,
        )
    }

    /// Azimuth, 0..144 of 2.5 deg.
    #[inline]
    pub fn phi(self) -> u32 {
        field(self.0, 0, 8)
    }

    /// Chamber types that saw it.
    #[inline]
    pub fn types(self) -> u32 {
        field(self.0, 8, 4)
    }

    /// Index of the matched XTRP track, 255 = none.
    #[inline]
    pub fn track(self) -> u32 {
        field(self.0, 12, 8)
    }

    /// Whether the charge is negative.
    #[inline]
    pub fn is_negative(self) -> bool {
        field(self.0, 20, 1) == 1
    }

    /// pT code: pT is at least code x 0.5 GeV.
    #[inline]
    pub fn pt_code(self) -> u32 {
        field(self.0, 21, 7)
    }
}

impl Sums {
    /// Sums; energies are in counts of 0.125 GeV and saturate.
    pub fn new(sum_et: u32, missing_et: u32, missing_phi: u32) -> Self {
        Self([
            sum_et.min(65_535),
            missing_et.min(65_535) | field(missing_phi, 0, 13) << 16,
        ])
    }

    /// Sum Et, counts of 0.125 GeV.
    #[inline]
    pub fn sum_et(self) -> u32 {
        field(self.0[0], 0, 16)
    }

    /// Missing Et, counts of 0.125 GeV.
    #[inline]
    pub fn missing_et(self) -> u32 {
        field(self.0[1], 0, 16)
    }

    /// Azimuth of the missing Et, 0..8192 of 2 pi / 8192.
    #[inline]
    pub fn missing_phi(self) -> u32 {
        field(self.0[1], 16, 13)
    }
}

/// Type codes of the blocks.
mod block {
    pub(super) const XTRP: u32 = 1;
    pub(super) const SVT: u32 = 2;
    pub(super) const CLUSTER: u32 = 3;
    pub(super) const MUON: u32 = 4;
    pub(super) const SUMS: u32 = 5;
}

/// A packet to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TriggerPacket {
    /// Level-2 buffer that the supervisor gave, 0..4.
    pub l2_buffer: u8,
    /// Flags, 6 bits: [`FLAG_TRUNCATED`], and the refused accepts above [`REFUSED_SHIFT`].
    pub flags: u8,
    /// Bunch crossing, low 8 bits.
    pub bunch: u8,
    /// Low 32 bits of the trigger number.
    pub trigger_low: u32,
    /// Level-1 bits.
    pub l1_bits: u64,
    /// Run number, 24 bits.
    pub run: u32,
    /// Lumi section, low 8 bits.
    pub lumi_section: u8,
    /// Time stamp in ticks of 25 ns.
    pub time_stamp: u32,
    /// XTRP tracks, at most 255.
    pub xtrp: Vec<XtrpTrack>,
    /// SVT tracks, at most 255.
    pub svt: Vec<SvtTrack>,
    /// Clusters, at most 255.
    pub clusters: Vec<Cluster>,
    /// Muon stubs, at most 255.
    pub muons: Vec<MuonStub>,
    /// Energy sums.
    pub sums: Option<Sums>,
}

impl TriggerPacket {
    /// Words of the packet as it stands.
    #[inline]
    pub fn words(&self) -> usize {
        let block = |items: usize, size: usize| if items == 0 { 0 } else { 1 + items * size };
        HEADER_WORDS
            + block(self.xtrp.len(), 1)
            + block(self.svt.len(), 2)
            + block(self.clusters.len(), 2)
            + block(self.muons.len(), 1)
            + block(usize::from(self.sums.is_some()), 2)
            + 1
    }

    /// Drops items until the packet has at most `words_max` words and no block more than 255
    /// items: clusters of the lowest Et first, then XTRP tracks, SVT tracks and muon stubs of the
    /// lowest pT, within equal values the highest index first; the sums stay. Sets the flag.
    /// Returns the number of items dropped.
    pub fn truncate(&mut self, words_max: usize) -> usize {
        let mut dropped = 0;
        for (items, limit) in [(0, 255), (1, 255), (2, 255), (3, 255)] {
            while self.items(items) > limit {
                self.drop_lowest(items);
                dropped += 1;
            }
        }
        while self.words() > words_max {
            let Some(items) = (0..4).find(|items| self.items(*items) > 0) else {
                break;
            };
            self.drop_lowest(items);
            dropped += 1;
        }
        if dropped > 0 {
            self.flags |= FLAG_TRUNCATED;
        }
        dropped
    }

    /// Number of items of a list, in the order in which they are dropped.
    #[inline]
    fn items(&self, list: usize) -> usize {
        match list {
            0 => self.clusters.len(),
            1 => self.xtrp.len(),
            2 => self.svt.len(),
            _ => self.muons.len(),
        }
    }

    fn drop_lowest(&mut self, list: usize) {
        /// Removes the item with the lowest key, the last one of equal keys.
        fn remove_lowest<T, K: Ord>(items: &mut Vec<T>, key: impl Fn(&T) -> K) {
            let lowest = (0..items.len()).min_by_key(|i| (key(&items[*i]), Reverse(*i)));
            if let Some(index) = lowest {
                items.remove(index);
            }
        }
        match list {
            0 => remove_lowest(&mut self.clusters, |cluster| cluster.et()),
            1 => remove_lowest(&mut self.xtrp, |track| track.pt_code()),
            // The largest curvature is the lowest pT; c = 0 is infinite pT.
            2 => remove_lowest(&mut self.svt, |track| Reverse(track.c_magnitude())),
            _ => remove_lowest(&mut self.muons, |stub| stub.pt_code()),
        }
    }

    /// Empties the item lists and flags, keeping their storage.
    #[inline]
    pub fn clear_items(&mut self) {
        self.flags = 0;
        self.xtrp.clear();
        self.svt.clear();
        self.clusters.clear();
        self.muons.clear();
        self.sums = None;
    }

    /// Emits the packet over the contents of `out`.
    ///
    /// # Panics
    /// If a list has more than 255 items: call [`TriggerPacket::truncate`] first.
    pub fn emit(&self, out: &mut Vec<u32>) {
        for list in 0..4 {
            assert!(self.items(list) <= 255, "truncate() bounds the lists");
        }
        out.clear();
        out.extend_from_slice(&[
            0,
            self.trigger_low,
            (self.l1_bits & 0xFFFF_FFFF) as u32,
            (self.l1_bits >> 32) as u32,
            (self.run & 0x00FF_FFFF) << 8 | u32::from(self.lumi_section),
            self.time_stamp,
        ]);
        let mut blocks = 0;
        let mut header = |kind: u32, items: usize, size: usize, out: &mut Vec<u32>| {
            if items > 0 {
                blocks += 1;
                out.push(kind << 24 | (items as u32) << 16 | (items * size) as u32);
            }
        };
        header(block::XTRP, self.xtrp.len(), 1, out);
        out.extend(self.xtrp.iter().map(|track| track.0));
        header(block::SVT, self.svt.len(), 2, out);
        out.extend(self.svt.iter().flat_map(|track| track.0));
        header(block::CLUSTER, self.clusters.len(), 2, out);
        out.extend(self.clusters.iter().flat_map(|cluster| cluster.0));
        header(block::MUON, self.muons.len(), 1, out);
        out.extend(self.muons.iter().map(|stub| stub.0));
        header(block::SUMS, usize::from(self.sums.is_some()), 2, out);
        out.extend(self.sums.iter().flat_map(|sums| sums.0));
        out[0] = MAGIC << 24
            | u32::from(self.l2_buffer & 3) << 22
            | u32::from(self.flags & 0x3F) << 16
            | u32::from(self.bunch) << 8
            | blocks;
        out.push(((out.len() as u32) + 1) << 16);
        let crc = crc16(out);
        if let Some(last) = out.last_mut() {
            *last |= u32::from(crc);
        }
    }
}

/// Why words are not a trigger packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Fewer words than the shortest packet.
    #[error("{words} words are too few for a packet, at least {} are needed", HEADER_WORDS + 1)]
    TooShort {
        /// Words found.
        words: usize,
    },
    /// Word 0 is not a packet's.
    #[error("packet starts with {found:#04x}, expected {MAGIC:#04x}")]
    Magic {
        /// Upper byte found.
        found: u32,
    },
    /// The length in the last word is not the packet's.
    #[error("last word names {named} words, the packet has {words}")]
    Length {
        /// Words named.
        named: usize,
        /// Words found.
        words: usize,
    },
    /// The CRC-16 is wrong.
    #[error("CRC-16 is {found:#06x}, the words give {computed:#06x}")]
    Crc {
        /// Stored.
        found: u16,
        /// Computed.
        computed: u16,
    },
    /// A block leaves the packet, or its item count and length contradict each other.
    #[error("block {index} names {items} items and {words} words, which does not fit")]
    Block {
        /// Which block.
        index: usize,
        /// Items named.
        items: usize,
        /// Words named.
        words: usize,
    },
    /// A block type occurs twice, or does not exist.
    #[error("block {index} has type {kind}, which is unknown or came before")]
    BlockType {
        /// Which block.
        index: usize,
        /// Its type.
        kind: u32,
    },
    /// Words are left over after the last block.
    #[error("{words} words are left over after the last block")]
    LeftOver {
        /// How many.
        words: usize,
    },
}

/// A checked view of a packet.
#[derive(Debug, Clone, Copy)]
pub struct TriggerPacketView<'a> {
    words: &'a [u32],
    /// Items of each block type, by type code - 1.
    blocks: [&'a [u32]; 5],
}

/// Words of one item, by block type code - 1.
const ITEM_WORDS: [usize; 5] = [1, 2, 2, 1, 2];

impl<'a> TriggerPacketView<'a> {
    /// Checks magic, length, CRC and block structure.
    ///
    /// # Errors
    /// A [`PacketError`] that says what is wrong.
    pub fn new_checked(words: &'a [u32]) -> Result<Self, PacketError> {
        if words.len() <= HEADER_WORDS {
            return Err(PacketError::TooShort { words: words.len() });
        }
        if words[0] >> 24 != MAGIC {
            return Err(PacketError::Magic {
                found: words[0] >> 24,
            });
        }
        let (body, last) = (&words[..words.len() - 1], words[words.len() - 1]);
        let named = (last >> 16) as usize;
        if named != words.len() {
            return Err(PacketError::Length {
                named,
                words: words.len(),
            });
        }
        let computed = crc16_without_end(words);
        let found = (last & 0xFFFF) as u16;
        if found != computed {
            return Err(PacketError::Crc { found, computed });
        }
        let blocks = Self::checked_blocks(words[0] & 0xFF, &body[HEADER_WORDS..])?;
        Ok(Self { words, blocks })
    }

    fn checked_blocks(count: u32, mut rest: &'a [u32]) -> Result<[&'a [u32]; 5], PacketError> {
        let mut blocks: [&[u32]; 5] = [&[]; 5];
        for index in 0..count as usize {
            let Some((header, behind)) = rest.split_first() else {
                return Err(PacketError::Block {
                    index,
                    items: 0,
                    words: 0,
                });
            };
            let (items, words) = (
                field(*header, 16, 8) as usize,
                field(*header, 0, 16) as usize,
            );
            let kind = header >> 24;
            let slot = (kind as usize).wrapping_sub(1);
            if ITEM_WORDS.get(slot).is_none() || !blocks[slot].is_empty() {
                return Err(PacketError::BlockType { index, kind });
            }
            let one_sums = kind != block::SUMS || items == 1;
            if items == 0 || words != items * ITEM_WORDS[slot] || words > behind.len() || !one_sums
            {
                return Err(PacketError::Block {
                    index,
                    items,
                    words,
                });
            }
            (blocks[slot], rest) = behind.split_at(words);
        }
        if rest.is_empty() {
            Ok(blocks)
        } else {
            Err(PacketError::LeftOver { words: rest.len() })
        }
    }

    /// Level-2 buffer, 0..4.
    #[inline]
    pub fn l2_buffer(&self) -> u8 {
        field(self.words[0], 22, 2) as u8
    }

    /// Flags, 6 bits.
    #[inline]
    pub fn flags(&self) -> u8 {
        field(self.words[0], 16, 6) as u8
    }

    /// Level-1 accepts refused since the packet before, at most [`REFUSED_MAX`].
    #[inline]
    pub fn refused(&self) -> u32 {
        field(self.words[0], 16 + REFUSED_SHIFT, 5)
    }

    /// Bunch crossing, low 8 bits.
    #[inline]
    pub fn bunch(&self) -> u8 {
        field(self.words[0], 8, 8) as u8
    }

    /// Low 32 bits of the trigger number.
    #[inline]
    pub fn trigger_low(&self) -> u32 {
        self.words[1]
    }

    /// Level-1 bits.
    #[inline]
    pub fn l1_bits(&self) -> u64 {
        u64::from(self.words[2]) | u64::from(self.words[3]) << 32
    }

    /// Run number, 24 bits.
    #[inline]
    pub fn run(&self) -> u32 {
        self.words[4] >> 8
    }

    /// Lumi section, low 8 bits.
    #[inline]
    pub fn lumi_section(&self) -> u8 {
        field(self.words[4], 0, 8) as u8
    }

    /// Time stamp in ticks of 25 ns.
    #[inline]
    pub fn time_stamp(&self) -> u32 {
        self.words[5]
    }

    /// XTRP tracks.
    #[inline]
    pub fn xtrp(&self) -> impl ExactSizeIterator<Item = XtrpTrack> + Clone + 'a {
        self.blocks[0].iter().map(|word| XtrpTrack(*word))
    }

    /// SVT tracks.
    #[inline]
    pub fn svt(&self) -> impl ExactSizeIterator<Item = SvtTrack> + Clone + 'a {
        self.blocks[1]
            .chunks_exact(2)
            .map(|words| SvtTrack([words[0], words[1]]))
    }

    /// Clusters.
    #[inline]
    pub fn clusters(&self) -> impl ExactSizeIterator<Item = Cluster> + Clone + 'a {
        self.blocks[2]
            .chunks_exact(2)
            .map(|words| Cluster([words[0], words[1]]))
    }

    /// Muon stubs.
    #[inline]
    pub fn muons(&self) -> impl ExactSizeIterator<Item = MuonStub> + Clone + 'a {
        self.blocks[3].iter().map(|word| MuonStub(*word))
    }

    /// Energy sums, if the packet has them.
    #[inline]
    pub fn sums(&self) -> Option<Sums> {
        self.blocks[4].first_chunk::<2>().map(|words| Sums(*words))
    }

    /// All words.
    #[inline]
    pub fn words(&self) -> &'a [u32] {
        self.words
    }
}
