//! Messages between the units of the event builder, and the descriptors they carry.
//!
//! ```text
//! word 0  31:16 0x4C42 | 15:8 kind | 7:0 version 1
//!      1  31:16 words of the message | 15:0 sender (unit code)
//!      2  epoch of the sender: messages of an older epoch are refused
//!      3  sequence number of the sender towards this receiver
//!      .. body by kind, see [`BuilderMessage`]
//! ```
//!
//! Pages are named, not copied: a [`FragmentDescriptor`] says in which pages of the readout unit's
//! pool a fragment lies. The same words go through rings of one process and of several; a network
//! transport sends the pages' words after the message and rewrites the page numbers. The page is
//! `docs/formats/builder-message.md`.

use arrayvec::ArrayVec;

use crate::decision::L2Mask;
pub use crate::fragment_descriptor::FragmentDescriptor;
use crate::id::{SourceId, TriggerNumber, UnitId};
use crate::slink::FragmentStatus;
use crate::time::RunNs;

/// Upper half of word 0.
pub const MAGIC: u32 = 0x4C42;
/// Format version.
pub const VERSION: u32 = 1;
/// Words of the message header.
pub const HEADER_WORDS: usize = 4;
/// Kind of [`BuilderMessage::FragmentData`].
pub(crate) const FRAGMENT_DATA: u8 = 6;
/// Most triggers that one message names; requests are grouped up to a smaller, configured number.
pub const TRIGGERS_MAX: usize = 32;
/// Most pages that one fragment may take.
pub const FRAGMENT_PAGES_MAX: usize = 16;
/// Words of a descriptor with the most pages.
pub const DESCRIPTOR_WORDS_MAX: usize = 5 + FRAGMENT_PAGES_MAX;

/// Most events that one message names with something about each.
pub const SIZES_MAX: usize = 16;

/// Sizes of events in one message: trigger number and payload bytes.
pub type SizeList = ArrayVec<(TriggerNumber, u32), SIZES_MAX>;

/// Accepted events in one message.
pub type AcceptedList = ArrayVec<AcceptedEvent, SIZES_MAX>;

/// An event that a filter unit accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// Which trigger.
    pub trigger: TriggerNumber,
    /// Why the filter keeps it.
    pub reason: u16,
    /// Streams that it belongs to, one bit each.
    pub streams: u16,
}

/// Trigger numbers in one message.
pub type TriggerList = ArrayVec<TriggerNumber, TRIGGERS_MAX>;

/// What a unit says to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuilderMessage {
    /// Supervisor to readout unit: keep or drop the fragments of a trigger.
    Decision {
        /// Which trigger.
        trigger: TriggerNumber,
        /// What to do with its fragments.
        keep: Keep,
    },
    /// Supervisor to event manager: a trigger passed Level 2 and is to be built.
    L2Accept {
        /// Which trigger.
        trigger: TriggerNumber,
        /// Decision after prescale.
        mask: L2Mask,
        /// When Level 1 accepted it.
        triggered_at: RunNs,
    },
    /// Builder unit to event manager: it can take that many more events.
    EventRequest {
        /// How many credits are added.
        credits: u32,
    },
    /// Event manager to builder unit: build this event; spends one credit.
    Assignment {
        /// Which trigger.
        trigger: TriggerNumber,
        /// Decision after prescale.
        mask: L2Mask,
        /// When Level 1 accepted it.
        triggered_at: RunNs,
        /// When the event manager assigned it.
        assigned_at: RunNs,
        /// The life of the builder unit that it is meant for; another one refuses it.
        builder_epoch: u32,
    },
    /// Builder unit to readout unit: send the fragments of these triggers.
    FragmentRequest {
        /// Which triggers.
        triggers: TriggerList,
    },
    /// Readout unit to builder unit: one fragment.
    FragmentData {
        /// Of which trigger.
        trigger: TriggerNumber,
        /// Where it lies.
        fragment: FragmentDescriptor,
    },
    /// Builder unit to readout unit: the pages of these triggers are no longer needed.
    Release {
        /// Which triggers.
        triggers: TriggerList,
    },
    /// Builder unit to readout unit: the event was closed without these fragments, and the pages
    /// of all its fragments are no longer needed. Only so can the readout unit count the fragments
    /// that it holds and that are in no event.
    ReleasePartial {
        /// Which trigger.
        trigger: TriggerNumber,
        /// Missing sources of this readout unit: bit `n` is the `n`-th of its sources by id.
        missing: u32,
    },
    /// Builder unit to event manager: these events are finished, their credits return. Event
    /// manager to supervisor: these accepted triggers need not be remembered any more.
    Clear {
        /// Which triggers.
        triggers: TriggerList,
    },
    /// Filter unit to builder unit: it rejects these events, whose pages are no longer needed.
    EventDone {
        /// Which triggers.
        triggers: TriggerList,
    },
    /// Event manager to readout unit: send the fragments of these triggers to a builder unit, which
    /// will not ask for them.
    Push {
        /// Index of the builder unit.
        builder: u16,
        /// The life of the builder unit that they are meant for; for another nothing is sent.
        builder_epoch: u32,
        /// Which triggers.
        triggers: TriggerList,
    },
    /// Builder unit to event manager: how large these events turned out to be; what was set aside
    /// beyond that returns as credit in bytes.
    EventSize {
        /// Which events, with their payload bytes.
        sizes: SizeList,
    },
    /// Builder unit to event manager: it lives, though it has nothing else to say.
    Alive,
    /// A restarted event manager to builder units: what became of these triggers? Its new epoch
    /// counts from here on.
    Recover {
        /// Number of the question, to be repeated in the answer.
        batch: u32,
        /// Which triggers.
        triggers: TriggerList,
    },
    /// The answer to [`BuilderMessage::Recover`]: bit `n` is its `n`-th trigger.
    Recovered {
        /// Epoch of the event manager that has asked: another one's question of this number is about
        /// other triggers.
        manager_epoch: u32,
        /// Number of the question.
        batch: u32,
        /// Triggers in the hands of the sender.
        held: u32,
        /// Triggers that the sender is through with, or knows to be. Held and closed, where credits
        /// count bytes: built, and the sender told its size ahead of this answer.
        closed: u32,
    },
    /// Builder unit to filter unit, where a network is between them: an event, whose fragments
    /// follow as [`BuilderMessage::FragmentData`] in the order of their sources; those of all other
    /// sources are missing.
    Event {
        /// Which trigger.
        trigger: TriggerNumber,
        /// Decision after prescale.
        mask: L2Mask,
        /// When Level 1 accepted it.
        triggered_at: RunNs,
        /// When the event manager assigned it.
        assigned_at: RunNs,
        /// When its last fragment was placed or its timeout struck.
        built_at: RunNs,
        /// Streams that it belongs to already: the error stream, or none; and
        /// [`EventTicket::FIRST_STEP`].
        streams: u16,
        /// Fragments that follow.
        fragments: u16,
    },
    /// Filter unit to builder unit: the selection on part of these events accepts them, so the rest
    /// of their fragments is wanted (two-step building).
    FetchRest {
        /// Which triggers.
        triggers: TriggerList,
    },
    /// Filter unit to builder unit: it accepts these events, which are to be written from where the
    /// builder unit has them.
    EventsAccepted {
        /// Which events, and what the filter says about each.
        events: AcceptedList,
    },
    /// Builder unit to event manager: as [`BuilderMessage::Clear`], of events that the filter has
    /// accepted and the writer has taken; or of which the builder unit does not remember whether it
    /// was so. Only so is it known what a writer had that dies together with its builder units.
    ClearAccepted {
        /// Which triggers.
        triggers: TriggerList,
    },
    /// Readout unit to event manager: in this phase of the linear shift it sends nothing more. Its
    /// sequence number is the low half of the phase's.
    Through {
        /// Which phase.
        phase: u64,
        /// Whether something waits for a later one.
        demand: PhaseDemand,
    },
    /// Event manager to readout unit: this phase of the linear shift has begun; say when you are
    /// through with it. Its sequence number is the low half of the phase's.
    Phase {
        /// Which phase.
        phase: u64,
    },
    /// Builder unit to readout unit: so many triggers have come since this one that it does not know
    /// whether it was ever its own. If it was, its pages are no longer needed.
    Forgotten {
        /// Which trigger.
        trigger: TriggerNumber,
    },
}

/// Whether a readout unit that is through with a phase wants a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseDemand {
    /// It has nothing to send.
    Idle,
    /// Something waits for a builder unit whose phase comes later.
    Waiting,
}

/// What happens to the fragments of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Accepted: hold them until a builder unit releases them.
    Build,
    /// Rejected or lost: free them.
    Drop,
}

/// A message with its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Who sent it.
    pub sender: UnitId,
    /// The sender's epoch.
    pub epoch: u32,
    /// The sender's count of messages towards this receiver.
    pub sequence: u32,
    /// What it says.
    pub message: BuilderMessage,
}

/// Why words are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Fewer words than the header or the body takes.
    #[error("{words} words are too few, the message takes {needed}")]
    TooShort {
        /// Words found.
        words: usize,
        /// Words needed.
        needed: usize,
    },
    /// Word 0 is not a message's.
    #[error("message starts with {found:#010x}, expected {MAGIC:#06x} and version {VERSION}")]
    Magic {
        /// Found.
        found: u32,
    },
    /// The kind does not exist.
    #[error("kind {kind} does not exist")]
    Kind {
        /// Found.
        kind: u8,
    },
    /// The sender's code names no unit.
    #[error("sender code {code:#06x} names no unit")]
    Sender {
        /// Found.
        code: u16,
    },
    /// A count in the body is above its limit or does not agree with the length.
    #[error("count {count} is not allowed, at most {allowed}")]
    Count {
        /// Found.
        count: usize,
        /// Limit.
        allowed: usize,
    },
    /// A field has a value that means nothing.
    #[error("field value {value:#x} means nothing here")]
    Value {
        /// Found.
        value: u32,
    },
}

impl BuilderMessage {
    /// Most words of a message without header, over all kinds.
    pub const BODY_WORDS_MAX: usize = 3 + 2 * TRIGGERS_MAX;

    /// The kind's code.
    fn kind(&self) -> u8 {
        match self {
            Self::Decision { .. } => 1,
            Self::L2Accept { .. } => 2,
            Self::EventRequest { .. } => 3,
            Self::Assignment { .. } => 4,
            Self::FragmentRequest { .. } => 5,
            Self::FragmentData { .. } => FRAGMENT_DATA,
            Self::Release { .. } => 7,
            Self::Clear { .. } => 8,
            Self::EventDone { .. } => 9,
            Self::ReleasePartial { .. } => 10,
            Self::Push { .. } => 11,
            Self::EventSize { .. } => 12,
            Self::Alive => 13,
            Self::Recover { .. } => 14,
            Self::Recovered { .. } => 15,
            Self::FetchRest { .. } => 16,
            Self::Event { .. } => 17,
            Self::EventsAccepted { .. } => 18,
            Self::ClearAccepted { .. } => 19,
            Self::Through { .. } => 20,
            Self::Phase { .. } => 21,
            Self::Forgotten { .. } => 22,
        }
    }

    /// Appends the words of the body.
    #[inline]
    fn push_body(&self, out: &mut MessageWords) {
        match self {
            Self::Decision { trigger, keep } => {
                push_about(*trigger, u32::from(*keep == Keep::Build), out);
            }
            Self::L2Accept {
                trigger,
                mask,
                triggered_at,
            } => push_decided(*trigger, *mask, [*triggered_at], out),
            Self::EventRequest { credits } => out.push(*credits),
            Self::ReleasePartial { trigger, missing } => push_about(*trigger, *missing, out),
            Self::Assignment {
                trigger,
                mask,
                triggered_at,
                assigned_at,
                builder_epoch,
            } => {
                push_decided(*trigger, *mask, [*triggered_at, *assigned_at], out);
                out.push(*builder_epoch);
            }
            Self::FragmentData { trigger, fragment } => {
                push_u64(trigger.0, out);
                push_descriptor(fragment, out);
            }
            Self::FragmentRequest { triggers }
            | Self::Release { triggers }
            | Self::Clear { triggers }
            | Self::ClearAccepted { triggers }
            | Self::EventDone { triggers }
            | Self::FetchRest { triggers } => push_list([], triggers, out),
            Self::Push {
                builder,
                builder_epoch,
                triggers,
            } => push_list([(*builder).into(), *builder_epoch], triggers, out),
            Self::EventSize { sizes } => push_sizes(sizes, out),
            Self::EventsAccepted { events } => push_accepted(events, out),
            Self::Alive => {}
            Self::Event {
                trigger,
                mask,
                triggered_at,
                assigned_at,
                built_at,
                streams,
                fragments,
            } => {
                let times = [*triggered_at, *assigned_at, *built_at];
                push_decided(*trigger, *mask, times, out);
                out.push(u32::from(*streams) << 16 | u32::from(*fragments));
            }
            Self::Recover { batch, triggers } => push_list([*batch], triggers, out),
            Self::Recovered {
                manager_epoch,
                batch,
                held,
                closed,
            } => out.extend([*manager_epoch, *batch, *held, *closed]),
            Self::Through { phase, demand } => {
                push_u64(*phase, out);
                out.push(u32::from(*demand == PhaseDemand::Waiting));
            }
            Self::Phase { phase } => push_u64(*phase, out),
            Self::Forgotten { trigger } => push_u64(trigger.0, out),
        }
    }
}

/// Most words of a message, header included: what a ring slot must hold.
pub const MESSAGE_WORDS_MAX: usize = HEADER_WORDS + BuilderMessage::BODY_WORDS_MAX;

const _: () = assert!(BuilderMessage::BODY_WORDS_MAX >= 2 + DESCRIPTOR_WORDS_MAX);
const _: () = assert!(BuilderMessage::BODY_WORDS_MAX > 3 * SIZES_MAX);

/// Words of an emitted message, on the stack.
pub type MessageWords = ArrayVec<u32, MESSAGE_WORDS_MAX>;

/// Words of a descriptor: appends to `out`.
///
/// # Panics
/// If `out` has no room left for [`DESCRIPTOR_WORDS_MAX`] words.
#[inline]
pub fn push_descriptor<const N: usize>(fragment: &FragmentDescriptor, out: &mut ArrayVec<u32, N>) {
    out.push(fragment.source.0);
    out.push(fragment.words);
    out.push(fragment.status.0);
    out.push(fragment.crc);
    out.push((u32::from(fragment.pool) << 16) | fragment.pages.len() as u32);
    out.extend(fragment.pages.iter().copied());
}

impl Envelope {
    /// Emits the message.
    pub fn to_words(&self) -> MessageWords {
        let mut out = MessageWords::new();
        out.push((MAGIC << 16) | (u32::from(self.message.kind()) << 8) | VERSION);
        out.push(0);
        out.push(self.epoch);
        out.push(self.sequence);
        self.message.push_body(&mut out);
        out[1] = ((out.len() as u32) << 16) | u32::from(self.sender.to_code());
        out
    }

    /// Reads a message; words behind it are ignored (a slot may be longer).
    ///
    /// # Errors
    /// A [`MessageError`] that says what is wrong.
    pub fn parse(words: &[u32]) -> Result<Self, MessageError> {
        let header = parse_header(words)?;
        Ok(Self {
            sender: header.sender,
            epoch: header.epoch,
            sequence: header.sequence,
            message: parse_body(header.kind, &mut Body(header.body))?,
        })
    }
}

/// The header of a message, and the words behind it.
pub(crate) struct Header<'a> {
    kind: u8,
    pub(crate) sender: UnitId,
    pub(crate) epoch: u32,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u32],
}

#[inline]
pub(crate) fn parse_header(words: &[u32]) -> Result<Header<'_>, MessageError> {
    let [first, second, epoch, sequence, ..] = *words else {
        return Err(MessageError::TooShort {
            words: words.len(),
            needed: HEADER_WORDS,
        });
    };
    if first >> 16 != MAGIC || first & 0xFF != VERSION {
        return Err(MessageError::Magic { found: first });
    }
    let needed = (second >> 16) as usize;
    let Some(body) = words.get(HEADER_WORDS..needed) else {
        return Err(MessageError::TooShort {
            words: words.len(),
            needed,
        });
    };
    let code = (second & 0xFFFF) as u16;
    Ok(Header {
        kind: ((first >> 8) & 0xFF) as u8,
        sender: UnitId::from_code(code).ok_or(MessageError::Sender { code })?,
        epoch,
        sequence,
        body,
    })
}

/// The body of a [`BuilderMessage::FragmentData`].
#[inline]
pub(crate) fn parse_fragment_data(
    words: &[u32],
) -> Result<(TriggerNumber, FragmentDescriptor), MessageError> {
    let mut body = Body(words);
    let fragment = body.fragment_data()?;
    body.end().map(|()| fragment)
}

fn parse_body(kind: u8, body: &mut Body<'_>) -> Result<BuilderMessage, MessageError> {
    let message = match kind {
        1 => body.decision()?,
        2 => BuilderMessage::L2Accept {
            trigger: body.trigger()?,
            mask: body.mask()?,
            triggered_at: RunNs(body.long()?),
        },
        3 => BuilderMessage::EventRequest {
            credits: body.word()?,
        },
        4 => body.assignment()?,
        5 => BuilderMessage::FragmentRequest {
            triggers: body.triggers()?,
        },
        FRAGMENT_DATA => {
            let (trigger, fragment) = body.fragment_data()?;
            BuilderMessage::FragmentData { trigger, fragment }
        }
        7 => BuilderMessage::Release {
            triggers: body.triggers()?,
        },
        8 => BuilderMessage::Clear {
            triggers: body.triggers()?,
        },
        9 => BuilderMessage::EventDone {
            triggers: body.triggers()?,
        },
        10 => BuilderMessage::ReleasePartial {
            trigger: body.trigger()?,
            missing: body.word()?,
        },
        11 => body.push()?,
        12 => BuilderMessage::EventSize {
            sizes: body.sizes()?,
        },
        13 => BuilderMessage::Alive,
        14 => BuilderMessage::Recover {
            batch: body.word()?,
            triggers: body.triggers()?,
        },
        15 => BuilderMessage::Recovered {
            manager_epoch: body.word()?,
            batch: body.word()?,
            held: body.word()?,
            closed: body.word()?,
        },
        16 => BuilderMessage::FetchRest {
            triggers: body.triggers()?,
        },
        17 => body.event()?,
        18 => BuilderMessage::EventsAccepted {
            events: body.accepted()?,
        },
        19 => BuilderMessage::ClearAccepted {
            triggers: body.triggers()?,
        },
        20 => body.through()?,
        21 => BuilderMessage::Phase {
            phase: body.long()?,
        },
        22 => BuilderMessage::Forgotten {
            trigger: body.trigger()?,
        },
        kind => return Err(MessageError::Kind { kind }),
    };
    body.end().map(|()| message)
}

#[inline]
fn push_u64<const N: usize>(value: u64, out: &mut ArrayVec<u32, N>) {
    out.push((value & 0xFFFF_FFFF) as u32);
    out.push((value >> 32) as u32);
}

/// A trigger with a word about it.
#[inline]
fn push_about(trigger: TriggerNumber, word: u32, out: &mut MessageWords) {
    push_u64(trigger.0, out);
    out.push(word);
}

/// A trigger with its decision, and the times of what was done about it.
#[inline]
fn push_decided<const TIMES: usize>(
    trigger: TriggerNumber,
    mask: L2Mask,
    times: [RunNs; TIMES],
    out: &mut MessageWords,
) {
    push_u64(trigger.0, out);
    out.extend(mask.to_words());
    for time in times {
        push_u64(time.0, out);
    }
}

/// Triggers behind some words.
#[inline]
fn push_list<const WORDS: usize>(
    words: [u32; WORDS],
    triggers: &TriggerList,
    out: &mut MessageWords,
) {
    out.extend(words);
    out.push(triggers.len() as u32);
    for trigger in triggers {
        push_u64(trigger.0, out);
    }
}

#[inline]
fn push_sizes(sizes: &SizeList, out: &mut MessageWords) {
    out.push(sizes.len() as u32);
    for (trigger, bytes) in sizes {
        push_about(*trigger, *bytes, out);
    }
}

#[inline]
fn push_accepted(events: &AcceptedList, out: &mut MessageWords) {
    out.push(events.len() as u32);
    for event in events {
        let why_and_where = u32::from(event.reason) << 16 | u32::from(event.streams);
        push_about(event.trigger, why_and_where, out);
    }
}

/// Reads words from the front of a message body or an event ticket.
struct Body<'a>(&'a [u32]);

impl Body<'_> {
    #[inline]
    fn word(&mut self) -> Result<u32, MessageError> {
        let Some((first, rest)) = self.0.split_first() else {
            return Err(MessageError::TooShort {
                words: 0,
                needed: 1,
            });
        };
        self.0 = rest;
        Ok(*first)
    }

    #[inline]
    fn long(&mut self) -> Result<u64, MessageError> {
        Ok(u64::from(self.word()?) | (u64::from(self.word()?) << 32))
    }

    #[inline]
    fn trigger(&mut self) -> Result<TriggerNumber, MessageError> {
        self.long().map(TriggerNumber)
    }

    #[inline]
    fn mask(&mut self) -> Result<L2Mask, MessageError> {
        Ok(L2Mask::from_words([
            self.word()?,
            self.word()?,
            self.word()?,
            self.word()?,
        ]))
    }

    #[inline]
    fn triggers(&mut self) -> Result<TriggerList, MessageError> {
        let count = self.word()? as usize;
        if count > TRIGGERS_MAX {
            return Err(MessageError::Count {
                count,
                allowed: TRIGGERS_MAX,
            });
        }
        (0..count).map(|_| self.trigger()).collect()
    }

    /// Triggers with a word about each.
    fn sizes(&mut self) -> Result<SizeList, MessageError> {
        let count = self.word()? as usize;
        if count > SIZES_MAX {
            return Err(MessageError::Count {
                count,
                allowed: SIZES_MAX,
            });
        }
        (0..count)
            .map(|_| Ok((self.trigger()?, self.word()?)))
            .collect()
    }

    fn accepted(&mut self) -> Result<AcceptedList, MessageError> {
        let events = self.sizes()?.into_iter();
        let event = |(trigger, word)| AcceptedEvent {
            trigger,
            reason: (word >> 16) as u16,
            streams: (word & 0xFFFF) as u16,
        };
        Ok(events.map(event).collect())
    }

    #[inline]
    fn decision(&mut self) -> Result<BuilderMessage, MessageError> {
        Ok(BuilderMessage::Decision {
            trigger: self.trigger()?,
            keep: match self.word()? {
                0 => Keep::Drop,
                1 => Keep::Build,
                value => return Err(MessageError::Value { value }),
            },
        })
    }

    #[inline]
    fn assignment(&mut self) -> Result<BuilderMessage, MessageError> {
        Ok(BuilderMessage::Assignment {
            trigger: self.trigger()?,
            mask: self.mask()?,
            triggered_at: RunNs(self.long()?),
            assigned_at: RunNs(self.long()?),
            builder_epoch: self.word()?,
        })
    }

    #[inline]
    fn push(&mut self) -> Result<BuilderMessage, MessageError> {
        Ok(BuilderMessage::Push {
            builder: match self.word()? {
                builder @ 0..=0xFFFF => builder as u16,
                value => return Err(MessageError::Value { value }),
            },
            builder_epoch: self.word()?,
            triggers: self.triggers()?,
        })
    }

    #[inline]
    fn through(&mut self) -> Result<BuilderMessage, MessageError> {
        Ok(BuilderMessage::Through {
            phase: self.long()?,
            demand: match self.word()? {
                0 => PhaseDemand::Idle,
                1 => PhaseDemand::Waiting,
                value => return Err(MessageError::Value { value }),
            },
        })
    }

    fn event(&mut self) -> Result<BuilderMessage, MessageError> {
        let (trigger, mask) = (self.trigger()?, self.mask()?);
        let [triggered_at, assigned_at, built_at] = [self.long()?, self.long()?, self.long()?];
        let last = self.word()?;
        Ok(BuilderMessage::Event {
            trigger,
            mask,
            triggered_at: RunNs(triggered_at),
            assigned_at: RunNs(assigned_at),
            built_at: RunNs(built_at),
            streams: (last >> 16) as u16,
            fragments: (last & 0xFFFF) as u16,
        })
    }

    /// Nothing may be left.
    #[inline]
    fn end(&self) -> Result<(), MessageError> {
        match self.0.len() {
            0 => Ok(()),
            count => Err(MessageError::Count { count, allowed: 0 }),
        }
    }

    #[inline]
    fn fragment_data(&mut self) -> Result<(TriggerNumber, FragmentDescriptor), MessageError> {
        Ok((self.trigger()?, self.descriptor()?))
    }

    #[inline]
    fn descriptor(&mut self) -> Result<FragmentDescriptor, MessageError> {
        let (source, words) = (SourceId(self.word()?), self.word()?);
        let (status, crc) = (FragmentStatus(self.word()?), self.word()?);
        let pool_and_count = self.word()?;
        let count = (pool_and_count & 0xFFFF) as usize;
        if count > FRAGMENT_PAGES_MAX {
            return Err(MessageError::Count {
                count,
                allowed: FRAGMENT_PAGES_MAX,
            });
        }
        let Some((first, rest)) = self.0.split_at_checked(count) else {
            return Err(MessageError::TooShort {
                words: self.0.len(),
                needed: count,
            });
        };
        self.0 = rest;
        let mut pages = ArrayVec::new_const();
        // No more than the list takes, as was just checked.
        let _fits = pages.try_extend_from_slice(first);
        let pool = (pool_and_count >> 16) as u16;
        Ok(FragmentDescriptor {
            source,
            pool,
            words,
            status,
            crc,
            pages,
        })
    }
}

/// A whole event by reference, as a builder unit hands it to a filter unit, and to the writer if that
/// accepts it.
///
/// ```text
/// word 0  31:16 0x4C54 | 15:0 words of the ticket
///      1  31:16 fragments | 15:0 missing sources
///      2  31:16 builder unit index | 15:0 0
///    3-4  trigger number      5-8  Level-2 decision
///   9-10  triggered at       11-12 assigned at      13-14 built at
///     15  31:16 filter reason | 15:0 streams
///      .. fragment descriptors, then missing source ids
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTicket {
    /// The builder unit that holds the event.
    pub builder: u16,
    /// The builder's key.
    pub trigger: TriggerNumber,
    /// Decision after prescale.
    pub mask: L2Mask,
    /// When Level 1 accepted it.
    pub triggered_at: RunNs,
    /// When the event manager assigned it.
    pub assigned_at: RunNs,
    /// When its last fragment was placed or its timeout struck.
    pub built_at: RunNs,
    /// Why the filter kept it; 0 before the filter.
    pub filter_reason: u16,
    /// Streams that it belongs to, one bit each; before the filter the error stream,
    /// [`EventTicket::FIRST_STEP`] or none.
    pub streams: u16,
    /// Its fragments, ordered by source id.
    pub fragments: Vec<FragmentDescriptor>,
    /// Sources whose fragments did not come, ordered.
    pub missing: Vec<SourceId>,
}

impl EventTicket {
    /// Upper half of word 0.
    pub const MAGIC: u32 = 0x4C54;
    /// Mark in the streams of an event on its way to a filter unit: its first step is gathered, and
    /// the answer may be [`BuilderMessage::FetchRest`].
    pub const FIRST_STEP: u16 = 1 << 14;
    /// Words before the descriptors.
    const FIXED_WORDS: usize = 16;

    /// An empty ticket with room for `sources` fragments, to be filled again and again.
    pub fn with_capacity(sources: usize) -> Self {
        Self {
            builder: 0,
            trigger: TriggerNumber(0),
            mask: L2Mask::NONE,
            triggered_at: RunNs(0),
            assigned_at: RunNs(0),
            built_at: RunNs(0),
            filter_reason: 0,
            streams: 0,
            fragments: Vec::with_capacity(sources),
            missing: Vec::with_capacity(sources),
        }
    }

    /// Whether an event on its way to a filter unit has come with its first step alone.
    #[inline]
    pub const fn is_first_step(&self) -> bool {
        self.streams & Self::FIRST_STEP != 0
    }

    /// Most words of a ticket of an event with `sources` sources of at most `pages` pages each.
    #[inline]
    pub const fn words_max(sources: usize, pages: usize) -> usize {
        Self::FIXED_WORDS + sources * (5 + pages)
    }

    /// Emits the ticket over the contents of `out`.
    ///
    /// # Panics
    /// If it has more than 65 535 words; the configuration is refused before that.
    pub fn emit(&self, out: &mut Vec<u32>) {
        out.clear();
        let [m0, m1, m2, m3] = self.mask.to_words();
        let halves = |value: u64| [(value & 0xFFFF_FFFF) as u32, (value >> 32) as u32];
        out.extend_from_slice(&[0, 0, u32::from(self.builder) << 16]);
        out.extend_from_slice(&halves(self.trigger.0));
        out.extend_from_slice(&[m0, m1, m2, m3]);
        for time in [self.triggered_at, self.assigned_at, self.built_at] {
            out.extend_from_slice(&halves(time.0));
        }
        out.push((u32::from(self.filter_reason) << 16) | u32::from(self.streams));
        for fragment in &self.fragments {
            let mut words = ArrayVec::<u32, DESCRIPTOR_WORDS_MAX>::new();
            push_descriptor(fragment, &mut words);
            out.extend_from_slice(&words);
        }
        out.extend(self.missing.iter().map(|source| source.0));
        assert!(
            out.len() <= 0xFFFF,
            "an event of {} descriptor words",
            out.len()
        );
        out[0] = (Self::MAGIC << 16) | out.len() as u32;
        out[1] = ((self.fragments.len() as u32) << 16) | self.missing.len() as u32;
    }

    /// Reads a ticket into `self`, reusing its storage.
    ///
    /// # Errors
    /// A [`MessageError`] that says what is wrong; `self` then holds no usable ticket.
    pub fn read(&mut self, words: &[u32]) -> Result<(), MessageError> {
        if words.len() < Self::FIXED_WORDS {
            return Err(MessageError::TooShort {
                words: words.len(),
                needed: Self::FIXED_WORDS,
            });
        }
        if words[0] >> 16 != Self::MAGIC {
            return Err(MessageError::Magic { found: words[0] });
        }
        let needed = (words[0] & 0xFFFF) as usize;
        let Some(words) = words.get(..needed) else {
            return Err(MessageError::TooShort {
                words: words.len(),
                needed,
            });
        };
        let mut body = Body(&words[1.min(words.len())..]);
        let counts = body.word()?;
        self.builder = (body.word()? >> 16) as u16;
        self.trigger = body.trigger()?;
        self.mask = body.mask()?;
        self.triggered_at = RunNs(body.long()?);
        self.assigned_at = RunNs(body.long()?);
        self.built_at = RunNs(body.long()?);
        let result = body.word()?;
        (self.filter_reason, self.streams) = ((result >> 16) as u16, (result & 0xFFFF) as u16);
        self.fragments.clear();
        self.missing.clear();
        for _ in 0..counts >> 16 {
            self.fragments.push(body.descriptor()?);
        }
        for _ in 0..counts & 0xFFFF {
            self.missing.push(SourceId(body.word()?));
        }
        body.end()
    }
}
