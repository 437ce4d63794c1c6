//! What a client of the timing daemon receives: one record of 64 bytes per action.
//!
//! A [`TimingRecord`] says which timing message was executed, when, under which condition and with
//! which flags. It is written into the ring of one subscription; the ring itself is in
//! `livetime-shm`, and this file knows nothing of it but that the first word is the ring's stamp.
//! Read `docs/formats/timing-record.md` for a picture of the bytes.
//!
//! ```text
//! byte  0  stamp: (sequence number + 1) * 2, odd while the record is being written
//!       8  event ID of the timing message                     (a gap: records lost)
//!      16  parameter                                          (a gap: first sequence number lost)
//!      24  deadline, TAI ns                                   (a gap: last sequence number lost)
//!      32  executed, TAI ns                                   (a gap: when it was noticed)
//!      40  TEF (u32), condition cookie (u32)
//!      48  flags (u16), kind and class (u8), version (u8), match to execution [ns] (u32)
//!      56  execution to entry in the ring [ns] (u32), epoch (u32)
//! ```

use crate::time::TaiNs;

/// Bytes of a record: one cache line.
pub const TIMING_RECORD_BYTES: usize = 64;
/// Words of a record.
pub const TIMING_RECORD_WORDS: usize = TIMING_RECORD_BYTES / 8;
/// Raised when a field changes its place or its meaning.
pub const TIMING_RECORD_VERSION: u8 = 1;

/// What a record reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// An executed action.
    Message,
    /// Records that this subscription has lost: how many, the first and the last.
    Gap,
    /// The daemon was away: how many messages passed meanwhile is not known. The epoch is the new one.
    Restart,
}

impl RecordKind {
    fn to_bits(self) -> u8 {
        match self {
            Self::Message => 1,
            Self::Gap => 2,
            Self::Restart => 3,
        }
    }

    fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            1 => Some(Self::Message),
            2 => Some(Self::Gap),
            3 => Some(Self::Restart),
            _ => None,
        }
    }
}

/// How urgent the records of a subscription are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PriorityClass {
    /// Served first; a delivery later than the subscription's bound is a failure and counted.
    High,
    /// Best effort, served after all high ones of the same turn.
    #[default]
    Generic,
    /// Deferred until the others are served, a bounded number per turn.
    Idle,
}

impl PriorityClass {
    /// All classes, the most urgent first.
    pub const ALL: [Self; 3] = [Self::High, Self::Generic, Self::Idle];

    /// 0 high, 1 generic, 2 idle.
    pub fn index(self) -> u8 {
        match self {
            Self::High => 0,
            Self::Generic => 1,
            Self::Idle => 2,
        }
    }

    /// The class of an index.
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// `high`, `generic` or `idle`.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Generic => "generic",
            Self::Idle => "idle",
        }
    }

    /// The class of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// Flags of a record. The first four are those of the action, at most one of them set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordFlags(pub u16);

impl RecordFlags {
    /// The message came after its deadline.
    pub const LATE: u16 = 1;
    /// The message came more than 2^32 ns before its deadline.
    pub const EARLY: u16 = 2;
    /// Another action was due for the same output in the same nanosecond.
    pub const CONFLICT: u16 = 4;
    /// The output was stalled.
    pub const DELAYED: u16 = 8;
    /// The record entered the ring later than the subscription of class high allows.
    pub const DELIVERED_LATE: u16 = 16;
    /// The record of class idle had to wait for others.
    pub const DEFERRED: u16 = 32;

    /// Whether a flag is set.
    pub fn contains(self, flag: u16) -> bool {
        self.0 & flag == flag
    }

    /// Names of the flags set, most severe first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(u16, &str); 6] = [
            (RecordFlags::LATE, "late"),
            (RecordFlags::EARLY, "early"),
            (RecordFlags::CONFLICT, "conflict"),
            (RecordFlags::DELAYED, "delayed"),
            (RecordFlags::DELIVERED_LATE, "delivered_late"),
            (RecordFlags::DEFERRED, "deferred"),
        ];
        NAMES
            .into_iter()
            .filter(move |(flag, _)| self.contains(*flag))
            .map(|(_, name)| name)
    }
}

/// In the place of the event ID of a restart that was none of the daemon.
const RENEWED: u64 = 1;

/// One record of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimingRecord {
    /// Sequence number within the subscription, from 0, below 2^62.
    pub sequence: u64,
    /// What is reported.
    pub kind: RecordKind,
    /// Class of the subscription.
    pub class: PriorityClass,
    /// Event ID of the timing message, as received.
    pub id: u64,
    /// Parameter of the timing message.
    pub param: u64,
    /// When the action was due: message time plus the condition's offset.
    pub deadline: TaiNs,
    /// When it was executed.
    pub executed: TaiNs,
    /// The message's fraction field, as received.
    pub tef: u32,
    /// The condition that matched, as the daemon numbers them.
    pub condition: u32,
    /// Flags of the action and of its delivery.
    pub flags: RecordFlags,
    /// From the match to the execution \[ns\]; `u32::MAX` for 4.29 s and more.
    pub match_lead_ns: u32,
    /// From the execution to the entry into this ring \[ns\]; `u32::MAX` for 4.29 s and more.
    pub enqueue_delay_ns: u32,
    /// Counts the starts of the daemon; a new one follows a [`RecordKind::Restart`].
    pub epoch: u32,
}

/// Why words are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingRecordError {
    /// Another layout.
    #[error("timing record of version {found}, not {TIMING_RECORD_VERSION}")]
    Version {
        /// Version found.
        found: u8,
    },
    /// A kind or class that this version does not have.
    #[error("timing record with unknown kind and class {found:#04x}")]
    Kind {
        /// Bits found.
        found: u8,
    },
    /// The record was being written, or never was.
    #[error("timing record with stamp {found:#x} is not complete")]
    Stamp {
        /// Stamp found.
        found: u64,
    },
}

impl TimingRecord {
    /// A gap: `lost` records with sequence numbers from `first` to `last`, noticed at `when`.
    pub fn gap(first: u64, last: u64, lost: u64, when: TaiNs, epoch: u32) -> Self {
        Self {
            sequence: last,
            kind: RecordKind::Gap,
            class: PriorityClass::Generic,
            id: lost,
            param: first,
            deadline: TaiNs(last),
            executed: when,
            tef: 0,
            condition: 0,
            flags: RecordFlags(0),
            match_lead_ns: 0,
            enqueue_delay_ns: 0,
            epoch,
        }
    }

    /// The daemon was away and is back in `epoch`, noticed at `when`.
    pub fn restart(when: TaiNs, epoch: u32) -> Self {
        Self {
            kind: RecordKind::Restart,
            ..Self::gap(0, 0, 0, when, epoch)
        }
    }

    /// The daemon of `epoch`, which was there all the time, has ended the subscription, and it was made
    /// anew, noticed at `when`: a restart record with 1 in the place of the event ID.
    pub fn renewal(when: TaiNs, epoch: u32) -> Self {
        Self {
            id: RENEWED,
            ..Self::restart(when, epoch)
        }
    }

    /// Whether a restart record is one of [`TimingRecord::renewal`].
    pub fn is_renewal(&self) -> bool {
        self.kind == RecordKind::Restart && self.id == RENEWED
    }

    /// How much later than its deadline the action was executed \[ns\]; negative when earlier, and as
    /// much of either as an `i64` holds.
    pub fn late_by_ns(&self) -> i64 {
        let late = i128::from(self.executed.0) - i128::from(self.deadline.0);
        late.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// When the message was matched, or the earliest time that the field can express.
    pub fn matched(&self) -> TaiNs {
        TaiNs(self.executed.0.saturating_sub(self.match_lead_ns.into()))
    }

    /// When the record entered the ring, or the latest time that the field can express.
    pub fn enqueued(&self) -> TaiNs {
        TaiNs(self.executed.0.saturating_add(self.enqueue_delay_ns.into()))
    }

    /// The record as words; the first is the stamp of a complete record.
    pub fn to_words(&self) -> [u64; TIMING_RECORD_WORDS] {
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let kind = self.kind.to_bits() | self.class.index() << 4;
        let head = u32::from(self.flags.0)
            | u32::from(kind) << 16
            | u32::from(TIMING_RECORD_VERSION) << 24;
        [
            self.sequence.wrapping_add(1) << 1,
            self.id,
            self.param,
            self.deadline.0,
            self.executed.0,
            join(self.tef, self.condition),
            join(head, self.match_lead_ns),
            Self::last_word(self.enqueue_delay_ns, self.epoch),
        ]
    }

    /// The last of its words, which says how long after its execution the record entered the ring
    /// \[ns\]: all others are known before.
    #[inline]
    pub fn last_word(enqueue_delay_ns: u32, epoch: u32) -> u64 {
        u64::from(enqueue_delay_ns) | u64::from(epoch) << 32
    }

    /// The record in words.
    ///
    /// # Errors
    /// [`TimingRecordError`] when they hold none of this version.
    pub fn new_checked(words: &[u64; TIMING_RECORD_WORDS]) -> Result<Self, TimingRecordError> {
        let [stamp, id, param, deadline, executed, tags, head, tail] = *words;
        let version = (head >> 24) as u8;
        if version != TIMING_RECORD_VERSION {
            return Err(TimingRecordError::Version { found: version });
        }
        if stamp == 0 || stamp & 1 == 1 {
            return Err(TimingRecordError::Stamp { found: stamp });
        }
        let found = (head >> 16) as u8;
        let (Some(kind), Some(class)) = (
            RecordKind::from_bits(found & 15),
            PriorityClass::from_index(found >> 4),
        ) else {
            return Err(TimingRecordError::Kind { found });
        };
        Ok(Self {
            sequence: (stamp >> 1) - 1,
            kind,
            class,
            id,
            param,
            deadline: TaiNs(deadline),
            executed: TaiNs(executed),
            tef: tags as u32,
            condition: (tags >> 32) as u32,
            flags: RecordFlags(head as u16),
            match_lead_ns: (head >> 32) as u32,
            enqueue_delay_ns: tail as u32,
            epoch: (tail >> 32) as u32,
        })
    }

    /// The record as bytes, as they lie in memory.
    pub fn to_bytes(&self) -> [u8; TIMING_RECORD_BYTES] {
        let mut bytes = [0; TIMING_RECORD_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOLDEN: &str = include_str!("../../../docs/formats/timing-record-v1.hex");

    #[test]
    fn what_is_beyond_a_number_is_as_late_or_early_as_can_be_said() {
        let late_by = |executed, deadline| {
            let record = TimingRecord {
                executed: TaiNs(executed),
                deadline: TaiNs(deadline),
                ..sample()
            };
            record.late_by_ns()
        };
        assert_eq!((late_by(7, 5), late_by(5, 7)), (2, -2));
        assert_eq!(late_by(1_000_004_096, u64::MAX), i64::MIN);
        assert_eq!(late_by(u64::MAX, 1_000_004_096), i64::MAX);
    }

    fn sample() -> TimingRecord {
        TimingRecord {
            sequence: 41,
            kind: RecordKind::Message,
            class: PriorityClass::High,
            id: 0x1234_1010_0000_0040,
            param: 0x55,
            deadline: TaiNs(1_000_000_000_000_000_000),
            executed: TaiNs(1_000_000_000_000_000_250),
            tef: 7,
            condition: 9,
            flags: RecordFlags(RecordFlags::LATE),
            match_lead_ns: 500_000,
            enqueue_delay_ns: 120,
            epoch: 3,
        }
    }

    #[test]
    fn golden_bytes_are_the_records() {
        let halves: Vec<u32> = GOLDEN
            .lines()
            .map(|line| line.split('#').next().unwrap_or("").trim())
            .filter(|digits| !digits.is_empty())
            .map(|digits| u32::from_str_radix(digits, 16).unwrap())
            .collect();
        let gap = TimingRecord::gap(10, 19, 10, TaiNs(77), 3);
        let restart = TimingRecord::restart(TaiNs(78), 4);
        assert!(!restart.is_renewal() && TimingRecord::renewal(TaiNs(78), 4).is_renewal());
        let records = [sample(), gap, restart];
        assert_eq!(halves.len(), records.len() * 16);
        for (record, halves) in records.iter().zip(halves.chunks(16)) {
            let mut words = [0; TIMING_RECORD_WORDS];
            for (word, pair) in words.iter_mut().zip(halves.chunks(2)) {
                *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
            }
            assert_eq!(record.to_words(), words, "{record:?}");
            assert_eq!(TimingRecord::new_checked(&words).as_ref(), Ok(record));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(record.to_bytes().as_slice(), bytes);
        }
    }

    #[test]
    fn what_is_no_record_is_said_so() {
        let words = |change: fn(&mut [u64; 8])| {
            let mut words = sample().to_words();
            change(&mut words);
            TimingRecord::new_checked(&words)
        };
        assert_eq!(
            words(|words| words[0] |= 1),
            Err(TimingRecordError::Stamp { found: 85 })
        );
        assert_eq!(
            words(|words| words[6] ^= 1 << 24),
            Err(TimingRecordError::Version { found: 0 })
        );
        assert_eq!(
            words(|words| words[6] |= 15 << 16),
            Err(TimingRecordError::Kind { found: 15 })
        );
        assert_eq!(
            words(|words| words[6] |= 3 << 20),
            Err(TimingRecordError::Kind { found: 0x31 })
        );
    }

    #[test]
    fn times_around_the_execution_are_derived() {
        let record = sample();
        assert_eq!(record.late_by_ns(), 250);
        assert_eq!(record.matched(), TaiNs(999_999_999_999_500_250));
        assert_eq!(record.enqueued(), TaiNs(1_000_000_000_000_000_370));
        assert_eq!(record.flags.names().collect::<Vec<_>>(), ["late"]);
        for class in PriorityClass::ALL {
            assert_eq!(PriorityClass::from_index(class.index()), Some(class));
            assert_eq!(PriorityClass::from_name(class.name()), Some(class));
        }
    }

    proptest! {
        #[test]
        fn any_words_are_a_record_or_an_error_and_records_return(words: [u64; 8]) {
            if let Ok(record) = TimingRecord::new_checked(&words) {
                prop_assert_eq!(record.to_words(), words);
            }
        }

        #[test]
        fn every_record_survives(
            fields: ([u64; 4], [u32; 5], u16), sequence in 0u64..1 << 62, kind in 1u8..4, class in 0u8..3,
        ) {
            let ([id, param, deadline, executed], [tef, condition, lead, delay, epoch], flags) = fields;
            let record = TimingRecord {
                sequence, kind: RecordKind::from_bits(kind).unwrap(),
                class: PriorityClass::from_index(class).unwrap(), id, param,
                deadline: TaiNs(deadline), executed: TaiNs(executed), tef, condition,
                flags: RecordFlags(flags), match_lead_ns: lead, enqueue_delay_ns: delay, epoch,
            };
            prop_assert_eq!(TimingRecord::new_checked(&record.to_words()), Ok(record));
        }
    }
}
