//! Timing messages: the 256-bit payload that a timing network sends, and the event ID in it.
//!
//! ```text
//! word 0  event ID      high        all words big-endian on the wire
//!      1                low
//!      2  parameter     high
//!      3                low
//!      4  reserved
//!      5  TEF           fraction of a nanosecond, carried on and not interpreted
//!      6  time          high        TAI nanoseconds since 1970-01-01
//!      7                low
//!
//! event ID     63:60  59:48  47:36     35:32  31:20     19:6          5:0
//! format 1     FID    group  number    flags  sequence  beam process  reserved
//! format 0     FID    group  number    sequence 35:24   process 23:10 reserved 9:0
//! ```
//!
//! "Event ID" is the name that timing systems give the field; what has it is a [`TimingMessage`],
//! never an event. Matching messages to conditions is the business of `livetime-timing`. The page
//! is `docs/formats/timing-message.md`.

use core::fmt;
use core::str::FromStr;

use crate::time::TaiNs;

/// Words of a timing message.
pub const MESSAGE_WORDS: usize = 8;
/// Bytes of a timing message.
pub const MESSAGE_BYTES: usize = 4 * MESSAGE_WORDS;

/// The 64-bit identifier of a timing message; conditions match its leading bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventId(pub u64);

/// Which layout the bits below the group and the number have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum IdFormat {
    /// Format 0, without flags.
    Old = 0,
    /// Format 1, since October 2017.
    Current = 1,
}

/// The fields of an event ID of a known format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventIdFields {
    /// Layout.
    pub format: IdFormat,
    /// Group of equipment, 0..=4095 (GID).
    pub group: u16,
    /// What happens, 0..=4095 (EVTNO).
    pub number: u16,
    /// Flags, 0..=15: bit 3 beam in, bit 2 first of a production chain, two spare; 0 in format 0.
    pub flags: u8,
    /// Sequence, 0..=4095 (SID).
    pub sequence: u16,
    /// Beam process, 0..=16383 (BPID).
    pub beam_process: u16,
    /// Reserved bits: 0..=63 in format 1 (spare, no beam requested, virtual accelerator), 0..=1023
    /// in format 0.
    pub reserved: u16,
}

/// A field that does not fit its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} of an event ID is {found}, allowed is 0 to {max}")]
pub struct EventIdError {
    /// Name of the field.
    pub field: &'static str,
    /// Value found.
    pub found: u64,
    /// Largest value allowed.
    pub max: u64,
}

/// Position and width of a field.
#[derive(Clone, Copy)]
struct Bits {
    name: &'static str,
    low: u32,
    width: u32,
}

const fn bits(name: &'static str, high: u32, low: u32) -> Bits {
    Bits {
        name,
        low,
        width: high - low + 1,
    }
}

impl Bits {
    const fn max(self) -> u64 {
        (1 << self.width) - 1
    }

    const fn read(self, id: u64) -> u64 {
        (id >> self.low) & self.max()
    }

    fn place(self, value: u64) -> Result<u64, EventIdError> {
        if value > self.max() {
            return Err(EventIdError {
                field: self.name,
                found: value,
                max: self.max(),
            });
        }
        Ok(value << self.low)
    }
}

const FORMAT: Bits = bits("format", 63, 60);
const GROUP: Bits = bits("group", 59, 48);
const NUMBER: Bits = bits("number", 47, 36);
/// Flags, sequence, beam process, reserved of each format; the flags of format 0 have no place.
const CURRENT: [Bits; 4] = [
    bits("flags", 35, 32),
    bits("sequence", 31, 20),
    bits("beam process", 19, 6),
    bits("reserved", 5, 0),
];
const OLD: [Bits; 3] = [
    bits("sequence", 35, 24),
    bits("beam process", 23, 10),
    bits("reserved", 9, 0),
];

impl EventId {
    /// The format number in the top four bits, 0..=15; only 0 and 1 have known fields.
    pub fn format_number(self) -> u8 {
        FORMAT.read(self.0) as u8
    }

    /// The fields, `None` for an unknown format, whose bits stay raw.
    pub fn fields(self) -> Option<EventIdFields> {
        let id = self.0;
        let (format, flags, [sequence, beam_process, reserved]) = match self.format_number() {
            0 => (IdFormat::Old, 0, OLD.map(|field| field.read(id))),
            1 => {
                let [flags, rest @ ..] = CURRENT.map(|field| field.read(id));
                (IdFormat::Current, flags, rest)
            }
            _ => return None,
        };
        Some(EventIdFields {
            format,
            group: GROUP.read(id) as u16,
            number: NUMBER.read(id) as u16,
            flags: flags as u8,
            sequence: sequence as u16,
            beam_process: beam_process as u16,
            reserved: reserved as u16,
        })
    }
}

impl EventIdFields {
    /// The event ID with these fields.
    ///
    /// # Errors
    /// [`EventIdError`] naming the first field that is too large for its bits; flags of format 0
    /// must be 0.
    pub fn to_id(self) -> Result<EventId, EventIdError> {
        let common = FORMAT.place(self.format as u64)?
            | GROUP.place(u64::from(self.group))?
            | NUMBER.place(u64::from(self.number))?;
        let rest = [self.sequence, self.beam_process, self.reserved].map(u64::from);
        let flags = u64::from(self.flags);
        let (places, id) = match self.format {
            IdFormat::Current => (
                [CURRENT[1], CURRENT[2], CURRENT[3]],
                CURRENT[0].place(flags)?,
            ),
            IdFormat::Old if flags == 0 => (OLD, 0),
            IdFormat::Old => {
                return Err(EventIdError {
                    field: "flags",
                    found: flags,
                    max: 0,
                });
            }
        };
        let mut id = common | id;
        for (place, value) in places.into_iter().zip(rest) {
            id |= place.place(value)?;
        }
        Ok(EventId(id))
    }

    /// Whether the beam is in (format 1).
    pub fn is_beam_in(self) -> bool {
        self.flags & 0b1000 != 0
    }

    /// Whether this is the first message of a production chain (format 1).
    pub fn is_chain_start(self) -> bool {
        self.flags & 0b0100 != 0
    }

    /// Whether no beam was requested (format 1).
    pub fn is_without_beam(self) -> bool {
        self.format == IdFormat::Current && self.reserved & 0b1_0000 != 0
    }

    /// The virtual accelerator, 0..=15 (format 1), `None` in format 0.
    pub fn virtual_accelerator(self) -> Option<u8> {
        (self.format == IdFormat::Current).then_some((self.reserved & 0xF) as u8)
    }
}

impl fmt::Display for EventId {
    /// `0x` and 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// A text that is not a 64-bit hexadecimal number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not an event ID; 1 to 16 hexadecimal digits are, with or without `0x`")]
pub struct EventIdTextError {
    /// The text found.
    pub found: String,
}

impl FromStr for EventId {
    type Err = EventIdTextError;

    /// Reads hexadecimal digits, as the field's tools write them, with or without `0x`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let plain = (1..=16).contains(&digits.len()) && !digits.starts_with('+');
        plain
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten()
            .map(Self)
            .ok_or_else(|| EventIdTextError {
                found: text.to_owned(),
            })
    }
}

/// A message of the timing network: what is to happen, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TimingMessage {
    /// What is to happen.
    pub id: EventId,
    /// Parameter; see [`ChainParameter`] for what standard messages put there.
    pub param: u64,
    /// Reserved word, carried on.
    pub reserved: u32,
    /// Fraction of a nanosecond or internal use; carried on and delivered, not interpreted.
    pub tef: u32,
    /// When; conditions add their offset to it and get the deadline of their action.
    pub time: TaiNs,
}

/// Bytes that are not one timing message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("timing message has {bytes} bytes, expected {MESSAGE_BYTES}")]
pub struct TimingMessageError {
    /// Bytes found.
    pub bytes: usize,
}

impl TimingMessage {
    /// A message with reserved word and TEF 0.
    pub fn new(id: EventId, param: u64, time: TaiNs) -> Self {
        Self {
            id,
            param,
            time,
            ..Self::default()
        }
    }

    /// The eight words, in the order of the wire.
    pub fn to_words(&self) -> [u32; MESSAGE_WORDS] {
        let high = |value: u64| (value >> 32) as u32;
        let low = |value: u64| (value & 0xFFFF_FFFF) as u32;
        [
            high(self.id.0),
            low(self.id.0),
            high(self.param),
            low(self.param),
            self.reserved,
            self.tef,
            high(self.time.0),
            low(self.time.0),
        ]
    }

    /// The message of eight words; every value is one.
    pub fn from_words(words: &[u32; MESSAGE_WORDS]) -> Self {
        let [id, id_low, param, param_low, reserved, tef, time, time_low] = *words;
        let join = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        Self {
            id: EventId(join(id, id_low)),
            param: join(param, param_low),
            reserved,
            tef,
            time: TaiNs(join(time, time_low)),
        }
    }

    /// The bytes of the wire, big-endian.
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip(self.to_words()) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Reads the bytes of the wire.
    ///
    /// # Errors
    /// [`TimingMessageError`] unless there are exactly [`MESSAGE_BYTES`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, TimingMessageError> {
        if bytes.len() != MESSAGE_BYTES {
            return Err(TimingMessageError { bytes: bytes.len() });
        }
        let mut words = [0; MESSAGE_WORDS];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_be_bytes([place[0], place[1], place[2], place[3]]);
        }
        Ok(Self::from_words(&words))
    }
}

/// The parameter of standard messages: which production chain, and when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChainParameter {
    /// Beam production chain, 22 bits (BPCID).
    pub chain: u32,
    /// Time stamp of the chain's start, 42 bits, in units of the schedule's maker.
    pub time_stamp: u64,
}

impl ChainParameter {
    /// The fields of a parameter.
    pub fn from_param(param: u64) -> Self {
        Self {
            chain: (param >> 42) as u32,
            time_stamp: param & ((1 << 42) - 1),
        }
    }

    /// The parameter with these fields; bits beyond 22 and 42 are cut off.
    pub fn to_param(self) -> u64 {
        (u64::from(self.chain & 0x003F_FFFF) << 42) | (self.time_stamp & ((1 << 42) - 1))
    }
}
