//! Schedules of messages: text files, played once or again and again, aligned or not.
//!
//! A file has one message per line, `eventID param time`: two hexadecimal numbers and decimal
//! nanoseconds since the start of the schedule (as the local substitutes of a data master write
//! them), with an optional fourth number, the TEF, hexadecimal; `#` begins a comment. The player
//! hands messages out a lead time before they are due; when that is, the caller says.

use livetime_wire::timing_message::EventIdTextError;
use livetime_wire::{DurationNs, EventId, TaiNs, TimingMessage};

/// One line of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// Event ID.
    pub id: EventId,
    /// Parameter.
    pub param: u64,
    /// TEF.
    pub tef: u32,
    /// Time since the start of the schedule.
    pub at: DurationNs,
}

/// A list of messages relative to a start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    entries: Vec<ScheduleEntry>,
}

/// Why a text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A line without three or four fields.
    #[error(
        "line {line} of the schedule has {found} fields; \
         expected event ID, parameter and time, then perhaps a TEF"
    )]
    Fields {
        /// Which line, from 1.
        line: usize,
        /// Fields found.
        found: usize,
    },
    /// A field that is not a number of its kind.
    #[error("line {line} of the schedule: {field} is `{found}`, expected {expected}")]
    Number {
        /// Which line, from 1.
        line: usize,
        /// Name of the field.
        field: &'static str,
        /// Its text.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// No message at all.
    #[error("the schedule is empty")]
    Empty,
}

/// Why messages cannot be played again and again like that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RepetitionError {
    /// The next turn would begin before one has ended.
    #[error(
        "period {period} ns: the schedule is {length} ns long, so that its repetitions would overlap; \
         give {length} ns or more"
    )]
    Overlap {
        /// From one start to the next, ns.
        period: u64,
        /// From the first message to the last, ns.
        length: u64,
    },
    /// Nothing lies between one turn and the next.
    #[error(
        "{times} turns without a period: all messages are of the same time, and those of each turn \
         would be of it again; give a period of 1 ns or more"
    )]
    NoPeriod {
        /// How often.
        times: u64,
    },
    /// The last turn would end after the last time there is.
    #[error(
        "{times} turns with a period of {period} ns end after the last time there is, {} ns TAI; \
         give fewer or a shorter one",
        u64::MAX
    )]
    BeyondTime {
        /// How often.
        times: u64,
        /// From one start to the next, ns.
        period: u64,
    },
}

const HEX: &str = "a hexadecimal number of up to 64 bits";

impl Schedule {
    /// A schedule of these entries, brought into the order of time; of equal times, as given.
    ///
    /// # Errors
    /// [`ScheduleError::Empty`] without entries.
    pub fn new(mut entries: Vec<ScheduleEntry>) -> Result<Self, ScheduleError> {
        if entries.is_empty() {
            return Err(ScheduleError::Empty);
        }
        entries.sort_by_key(|entry| entry.at);
        Ok(Self { entries })
    }

    /// Reads a schedule file.
    ///
    /// # Errors
    /// [`ScheduleError`] naming the line and the field.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let mut entries = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let content = text.split('#').next().unwrap_or_default();
            let fields: Vec<&str> = content.split_whitespace().collect();
            match fields[..] {
                [] => {}
                [id, param, at] => entries.push(entry(line, id, param, at, "0")?),
                [id, param, at, tef] => entries.push(entry(line, id, param, at, tef)?),
                _ => {
                    return Err(ScheduleError::Fields {
                        line,
                        found: fields.len(),
                    });
                }
            }
        }
        Self::new(entries)
    }

    /// The entries in the order of time.
    pub fn entries(&self) -> &[ScheduleEntry] {
        &self.entries
    }

    /// Time of the last entry.
    pub fn length(&self) -> DurationNs {
        self.entries.last().map_or(DurationNs(0), |entry| entry.at)
    }

    /// The text form that [`Schedule::parse`] reads.
    pub fn to_text(&self) -> String {
        let line = |entry: &ScheduleEntry| {
            let ScheduleEntry {
                id,
                param,
                tef,
                at: DurationNs(at),
            } = entry;
            if *tef == 0 {
                format!("{id} {param:#018x} {at}\n")
            } else {
                format!("{id} {param:#018x} {at} {tef:#010x}\n")
            }
        };
        self.entries.iter().map(line).collect()
    }
}

fn entry(
    line: usize,
    id: &str,
    param: &str,
    at: &str,
    tef: &str,
) -> Result<ScheduleEntry, ScheduleError> {
    let wrong = |field, found: &str, expected| ScheduleError::Number {
        line,
        field,
        found: found.to_owned(),
        expected,
    };
    let hex = |field, text: &str| {
        text.parse::<EventId>()
            .map_err(|EventIdTextError { found }| wrong(field, &found, HEX))
    };
    let tef_value = u32::try_from(hex("TEF", tef)?.0)
        .map_err(|_| wrong("TEF", tef, "a hexadecimal number of up to 32 bits"))?;
    Ok(ScheduleEntry {
        id: hex("event ID", id)?,
        param: hex("parameter", param)?.0,
        tef: tef_value,
        at: DurationNs(
            at.parse()
                .map_err(|_| wrong("time", at, "decimal nanoseconds"))?,
        ),
    })
}

/// How a schedule is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Playback {
    /// How often, at least 1; `None` is without end.
    pub times: Option<u64>,
    /// From the start of one turn to the next; at least the schedule's length.
    pub period: DurationNs,
    /// The start is put to the next multiple of this, from the time given; 0 does not align.
    pub align: DurationNs,
    /// How long before its time a message is handed out; 1 ms is usual.
    pub lead: DurationNs,
}

impl Playback {
    /// Played once, not aligned, 1 ms ahead.
    pub fn once(schedule: &Schedule) -> Self {
        Self {
            times: Some(1),
            period: schedule.length(),
            align: DurationNs(0),
            lead: DurationNs::MILLISECOND,
        }
    }
}

/// Hands the messages of a schedule out in time.
#[derive(Debug, Clone)]
pub struct SchedulePlayer {
    schedule: Schedule,
    playback: Playback,
    start: TaiNs,
    /// When it was asked for: it sends nothing before.
    asked: TaiNs,
    /// Turns completed, and the next entry of the present one.
    turn: u64,
    next: usize,
    played: u64,
}

impl SchedulePlayer {
    /// A player whose first turn begins at `start`, or at the next multiple of `align` from there.
    /// A period shorter than the schedule is taken as its length.
    pub fn new(schedule: Schedule, playback: Playback, start: TaiNs) -> Self {
        let align = playback.align.0;
        let start = match align {
            0 => start.0,
            _ => start.0.div_ceil(align).saturating_mul(align),
        };
        let playback = Playback {
            period: playback.period.max(schedule.length()),
            ..playback
        };
        Self {
            schedule,
            playback,
            start: TaiNs(start),
            asked: TaiNs(0),
            turn: 0,
            next: 0,
            played: 0,
        }
    }

    /// Whether messages with times of their own can be played so often, so far apart; a period shorter
    /// than the schedule is refused, but for a single turn, where it says nothing; 0 stands for its length,
    /// and is refused where that is 0 as well.
    ///
    /// # Errors
    /// [`RepetitionError`].
    pub fn check_repetition(
        messages: &[TimingMessage],
        times: u64,
        period: DurationNs,
    ) -> Result<(), RepetitionError> {
        let all = || messages.iter().map(|message| message.time.0);
        let (Some(first), Some(last)) = (all().min(), all().max()) else {
            return Ok(());
        };
        let length = last - first;
        if times <= 1 {
            return Ok(());
        }
        let period = match period.0 {
            0 => length,
            period => period,
        };
        if period == 0 {
            return Err(RepetitionError::NoPeriod { times });
        }
        if period < length {
            return Err(RepetitionError::Overlap { period, length });
        }
        let turns = period.checked_mul(times - 1);
        match turns.and_then(|turns| last.checked_add(turns)) {
            Some(_) => Ok(()),
            None => Err(RepetitionError::BeyondTime { times, period }),
        }
    }

    /// A player of messages with times of their own, `times` times with `period` between the
    /// starts, each `lead` before its time; `None` without messages.
    pub fn of_messages(
        messages: &[TimingMessage],
        lead: DurationNs,
        times: u64,
        period: DurationNs,
    ) -> Option<Self> {
        let start = messages.iter().map(|message| message.time).min()?;
        let entries = messages.iter().map(|message| ScheduleEntry {
            id: message.id,
            param: message.param,
            tef: message.tef,
            at: DurationNs(message.time.0 - start.0),
        });
        let schedule = Schedule::new(entries.collect()).ok()?;
        let playback = Playback {
            times: Some(times.max(1)),
            period,
            align: DurationNs(0),
            lead,
        };
        Some(Self::new(schedule, playback, start))
    }

    /// It is asked for now: what should have been sent before is sent now, however long its lead.
    /// Without this it plays as if it had always been there.
    pub fn ask(&mut self, now: TaiNs) {
        self.asked = now;
    }

    /// Messages still to be handed out; `None` without end.
    pub fn remaining(&self) -> Option<u64> {
        let all = self.schedule.entries.len() as u64;
        let all = self.playback.times?.saturating_mul(all);
        Some(all - self.played.min(all))
    }

    /// Hands out no further message.
    pub fn stop(&mut self) {
        self.playback.times = Some(self.turn);
    }

    /// Whether all messages were handed out.
    pub fn has_ended(&self) -> bool {
        self.poll_timeout().is_none()
    }

    /// When the first turn begins.
    pub fn start(&self) -> TaiNs {
        self.start
    }

    /// Messages handed out.
    pub fn played(&self) -> u64 {
        self.played
    }

    /// The next message that is to be sent by `now`. Call until `None`.
    pub fn poll_output(&mut self, now: TaiNs) -> Option<TimingMessage> {
        if self.poll_timeout()? > now {
            return None;
        }
        let entry = *self.schedule.entries.get(self.next)?;
        let time = self.time_of(&entry);
        self.next += 1;
        if self.next == self.schedule.entries.len() {
            self.next = 0;
            self.turn += 1;
        }
        self.played += 1;
        Some(TimingMessage {
            id: entry.id,
            param: entry.param,
            reserved: 0,
            tef: entry.tef,
            time,
        })
    }

    /// When the next message is to be sent; `None` at the end.
    pub fn poll_timeout(&self) -> Option<TaiNs> {
        if self.playback.times.is_some_and(|times| self.turn >= times) {
            return None;
        }
        let entry = self.schedule.entries.get(self.next)?;
        let time = self.time_of(entry);
        Some(TaiNs(time.0.saturating_sub(self.playback.lead.0)).max(self.asked))
    }

    fn time_of(&self, entry: &ScheduleEntry) -> TaiNs {
        let turns = self.turn.saturating_mul(self.playback.period.0);
        TaiNs(
            self.start
                .0
                .saturating_add(turns)
                .saturating_add(entry.at.0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_neither_overlap_nor_end_after_all_time() {
        let at = |time| TimingMessage::new(EventId(1), 0, TaiNs(time));
        let messages = [at(1_000), at(1_300), at(1_100)];
        let check =
            |times, period| SchedulePlayer::check_repetition(&messages, times, DurationNs(period));
        assert_eq!(check(1, 0), Ok(()));
        assert_eq!(check(3, 300), Ok(()));
        assert_eq!(check(3, 0), Ok(()), "one right after the other");
        let (period, length) = (299, 300);
        assert_eq!(
            check(2, period),
            Err(RepetitionError::Overlap { period, length })
        );
        let period = (u64::MAX - 1_300) / 2;
        assert_eq!(check(3, period), Ok(()));
        for (times, period) in [(4, period), (3, period + 1), (3, u64::MAX)] {
            let beyond = RepetitionError::BeyondTime { times, period };
            assert_eq!(check(times, period), Err(beyond));
        }
        assert_eq!(
            SchedulePlayer::check_repetition(&[], 9, DurationNs(0)),
            Ok(())
        );
        let check_one = |times, period| {
            SchedulePlayer::check_repetition(&[at(5); 2], times, DurationNs(period))
        };
        assert_eq!((check_one(1, 0), check_one(2, 1)), (Ok(()), Ok(())));
        let times = 2;
        assert_eq!(
            check_one(times, 0),
            Err(RepetitionError::NoPeriod { times })
        );
    }

    const TEXT: &str = "# a small ring
0x1fff0000000000a0 0x0 0            # start
1fff0000000000a1   0xff 1000000
0x1fff0000000000a2 0x1 500000 0x80000000
";

    #[test]
    fn files_are_read_sorted_and_written() {
        let schedule = Schedule::parse(TEXT).unwrap();
        let times: Vec<u64> = schedule.entries().iter().map(|e| e.at.0).collect();
        assert_eq!(times, [0, 500_000, 1_000_000]);
        assert_eq!(schedule.entries()[1].tef, 0x8000_0000);
        assert_eq!(schedule.entries()[2].param, 0xFF);
        assert_eq!(Schedule::parse(&schedule.to_text()), Ok(schedule));
    }

    #[test]
    fn a_player_that_is_stopped_hands_out_nothing_more() {
        let schedule = Schedule::parse(TEXT).unwrap();
        let endless = Playback {
            times: None,
            ..Playback::once(&schedule)
        };
        for handed_out in 0..5 {
            let mut player = SchedulePlayer::new(schedule.clone(), endless, TaiNs(1_000_000));
            for _ in 0..handed_out {
                assert!(player.poll_output(TaiNs(u64::MAX)).is_some());
            }
            player.stop();
            assert!(player.has_ended());
            assert_eq!(player.poll_output(TaiNs(u64::MAX)), None);
            assert_eq!((player.remaining(), player.played()), (Some(0), handed_out));
        }
    }

    #[test]
    fn errors_name_line_and_field() {
        let error = |text: &str| Schedule::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("\n0x1 0x2"),
            "line 2 of the schedule has 2 fields; expected event ID, parameter and time, \
             then perhaps a TEF"
        );
        assert_eq!(
            error("0x1 0x2 0x3"),
            "line 1 of the schedule: time is `0x3`, expected decimal nanoseconds"
        );
        assert!(error("0xg 0 0").contains("event ID is `0xg`"));
        assert!(error("0 0 0 0x100000000").contains("TEF"));
        assert_eq!(error("# nothing\n"), "the schedule is empty");
    }

    #[test]
    fn a_schedule_is_repeated_on_an_aligned_grid() {
        let schedule = Schedule::parse(TEXT).unwrap();
        let playback = Playback {
            times: Some(2),
            period: DurationNs(2_000_000),
            align: DurationNs::SECOND,
            lead: DurationNs(100),
        };
        let mut player = SchedulePlayer::new(schedule, playback, TaiNs(1_000_000_001));
        assert_eq!(player.start(), TaiNs(2_000_000_000));
        assert_eq!(player.poll_timeout(), Some(TaiNs(1_999_999_900)));
        assert_eq!(player.poll_output(TaiNs(1_999_999_899)), None);
        let mut times = Vec::new();
        while let Some(at) = player.poll_timeout() {
            let message = player.poll_output(at).unwrap();
            assert_eq!(message.time.0, at.0 + 100);
            times.push(message.time.0 - 2_000_000_000);
        }
        assert_eq!(
            times,
            [0, 500_000, 1_000_000, 2_000_000, 2_500_000, 3_000_000]
        );
        assert_eq!((player.played(), player.remaining()), (6, Some(0)));
    }

    #[test]
    fn messages_with_times_are_played_in_their_order() {
        let messages = [7u64, 5, 9].map(|at| TimingMessage::new(EventId(at), at, TaiNs(100 + at)));
        let of = |messages: &[TimingMessage]| {
            SchedulePlayer::of_messages(messages, DurationNs(1), 2, DurationNs(50))
        };
        let mut player = of(&messages).unwrap();
        assert_eq!((player.start(), player.remaining()), (TaiNs(105), Some(6)));
        let mut times = Vec::new();
        while let Some(message) = player.poll_timeout().and_then(|at| player.poll_output(at)) {
            times.push((message.id.0, message.time.0));
        }
        let expected = [(5, 105), (7, 107), (9, 109), (5, 155), (7, 157), (9, 159)];
        assert_eq!(times, expected);
        assert!(of(&[]).is_none());
    }
}
