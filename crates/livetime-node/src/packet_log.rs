//! The trigger packets of a run, stored with the decisions on them: so that Level 2 can decide again.
//!
//! The trigger node copies each packet that it answered into a ring; a thread of its own writes them
//! into `packets.mcap`, so that no decision waits for a disk. The file is a run file like any other:
//! an event for each packet, with the decision as its mask and the packet as its one fragment, of
//! source [`PACKET_SOURCE`]. Who decides again is `livetime replay RUN --into trigger`.
//!
//! Bytes per packet: one copy into the ring, one into the chunk, one into the kernel. When the disk is
//! full, the ring fills up, and writing goes on when there is room again. What the ring has no room for
//! is not recorded and counted; only decisions of a lossless run wait, as long as those of the events.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use livetime_shm::{Consumer, Producer, RingConfig, heap_ring};
use livetime_store::{
    Condition, FileName, FilePart, RunBegin, RunEnd, RunReader, RunWriter, WriteError, WriterLimits,
};
use livetime_wire::crc::crc32c;
use livetime_wire::event::{EventHeader, FragmentEntry};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{DurationNs, L2Mask, RunNs, RunNumber, SourceId, TriggerNumber};

use crate::run_file::{LOOK_AT_DISK, is_full};

/// Name of the file.
pub const PACKET_FILE: &str = "packets.mcap";
/// What its begin-of-run record says of its place among the files of the run.
const PACKET_STREAM: &str = "packets";
/// Source id of a stored trigger packet.
pub const PACKET_SOURCE: SourceId = SourceId(0x00FF_5450);
/// Packets that may wait for the disk.
const SLOTS: u32 = 8192;
/// Words before the packet in the ring: trigger, time, decision.
const HEAD_WORDS: usize = 8;
/// The writing thread looks again after this time when there was nothing.
const PAUSE: Duration = Duration::from_millis(1);
/// Pauses after which a chunk that is not full is handed over.
const PAUSES_TO_FLUSH: u32 = 1000;
/// Tries to close a file: its last chunk may find no room, then its last record, then its index.
const CLOSINGS: usize = 3;

/// Where and how packets are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketLogConfig {
    /// The file of the first trigger node, which must not exist; others have a number in its name.
    pub path: PathBuf,
    /// Whether a decision waits when the ring is full, instead of not being recorded.
    pub waits: bool,
    /// How long decisions wait for a full disk, each time.
    pub full_wait: DurationNs,
}

/// What was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketLogCounts {
    /// Packets in the file.
    pub recorded: u64,
    /// Packets that the ring or the disk did not take.
    pub unrecorded: u64,
}

/// What the trigger node and the writing thread tell each other.
#[derive(Debug, Default)]
struct Shared {
    /// No packet comes any more.
    stop: AtomicBool,
    /// The run is to end: what waits for its chunk to be full goes out at once.
    drains: AtomicBool,
    /// Packets that were to be recorded, known when no more come.
    offered: AtomicU64,
    /// Packets out of the ring that are in the file, or never will be.
    settled: AtomicU64,
    /// The disk has no room.
    is_full: AtomicBool,
    /// A write failed for another reason: no more is written.
    has_failed: AtomicBool,
    /// Decisions wait for the disk no longer: it was full for too long, or has failed.
    has_given_up: AtomicBool,
}

/// The trigger node's end.
pub struct PacketLog {
    ring: Producer,
    waits: bool,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<u64>>,
    words: Vec<u32>,
    given: u64,
    refused: u64,
    /// The last trigger, from which the full number of the next follows.
    last: u64,
}

impl PacketLog {
    /// Creates the file of a trigger node and starts the thread that writes it.
    ///
    /// # Errors
    /// What the system refused, in one sentence.
    pub fn start(
        config: &PacketLogConfig,
        run: RunNumber,
        node: u16,
        packet_words_max: usize,
    ) -> Result<Self, String> {
        let path = &path_of_node(&config.path, node);
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot create {}: {error}", path.display());
        let file = File::create_new(path).map_err(|error| failed(&error))?;
        let begin = begin_of(path, run, node);
        let writer = RunWriter::new(file, &begin, limits()).map_err(|error| failed(&error));
        let started = writer.and_then(|writer| {
            let started = Self::start_on(writer, cut, config, run, packet_words_max);
            started.map_err(|error| failed(&error))
        });
        if started.is_err() {
            // It was not there before, and would be in the way of the next run.
            let _stays = std::fs::remove_file(path);
        }
        started
    }

    /// As [`PacketLog::start`], on any output; `cut` makes it end at a byte and go on from there.
    fn start_on<W: Write + Send + 'static>(
        writer: RunWriter<W>,
        cut: fn(&mut W, u64) -> io::Result<()>,
        config: &PacketLogConfig,
        run: RunNumber,
        packet_words_max: usize,
    ) -> Result<Self, io::Error> {
        let words = HEAD_WORDS + packet_words_max;
        let (ring, packets) = heap_ring(&RingConfig {
            slots: SLOTS,
            slot_words: words as u32,
        })
        .map_err(io::Error::other)?;
        let shared = Arc::new(Shared::default());
        let packets = PacketWriter {
            writer,
            cut,
            run,
            packets,
            shared: shared.clone(),
            full_wait: Duration::from_nanos(config.full_wait.0),
            disk: Disk::Room,
            header: Vec::new(),
            last: RunNs(0),
            taken: 0,
        };
        let thread = std::thread::Builder::new()
            .name("packets".to_owned())
            .spawn(move || packets.write_all())?;
        Ok(Self {
            ring,
            waits: config.waits,
            shared,
            thread: Some(thread),
            words: Vec::with_capacity(words),
            given: 0,
            refused: 0,
            last: 0,
        })
    }

    /// Whether a decision may be taken now: always, unless it is to wait for room.
    pub fn is_ready(&mut self) -> bool {
        !self.waits || self.ring.has_room() || self.shared.has_given_up.load(Ordering::Relaxed)
    }

    /// Whether the disk has no room for packets.
    pub fn is_disk_full(&self) -> bool {
        self.shared.is_full.load(Ordering::Relaxed)
    }

    /// Whether no more packets are recorded, since one could not be written although the disk has room.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Relaxed)
    }

    /// The run is to end; `true` once nothing is to be waited for: each packet is in the file, or
    /// nobody waits for it.
    pub fn drain(&mut self) -> bool {
        self.shared.drains.store(true, Ordering::Relaxed);
        !self.waits
            || self.shared.has_given_up.load(Ordering::Relaxed)
            || self.shared.settled.load(Ordering::Relaxed) == self.given
    }

    /// The run is ended by force: nothing waits any more.
    pub fn abort(&mut self) {
        self.waits = false;
    }

    /// Records a packet and the decision on it; `trigger_low` has the low bits of its number.
    pub fn record(&mut self, now: RunNs, trigger_low: u32, mask: L2Mask, packet: &[u32]) {
        // The number whose low bits these are and that is nearest to the last one.
        let near = self.last.wrapping_add(1 << 31) & !u64::from(u32::MAX) | u64::from(trigger_low);
        let trigger = match near > self.last.saturating_add(1 << 31) {
            true => near.saturating_sub(1 << 32),
            false => near,
        };
        self.last = self.last.max(trigger);
        self.words.clear();
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        self.words.extend(halves(trigger));
        self.words.extend(halves(now.0));
        self.words.extend(halves(mask.0 as u64));
        self.words.extend(halves((mask.0 >> 64) as u64));
        self.words.extend_from_slice(packet);
        match self.ring.try_push(&self.words) {
            Ok(()) => self.given += 1,
            Err(_) => self.refused += 1,
        }
    }

    /// Has the file closed and says what is in it.
    pub fn finish(mut self) -> PacketLogCounts {
        let offered = self.given + self.refused;
        let recorded = self.close();
        PacketLogCounts {
            recorded,
            unrecorded: offered - recorded.min(offered),
        }
    }

    /// Has the file closed, once; returns how many packets are in it.
    fn close(&mut self) -> u64 {
        let Some(thread) = self.thread.take() else {
            return 0;
        };
        let offered = self.given + self.refused;
        self.shared.offered.store(offered, Ordering::Relaxed);
        // Release pairs with the Acquire in `write_all`: what was stored and pushed before is seen.
        self.shared.stop.store(true, Ordering::Release);
        thread.join().unwrap_or(0)
    }
}

impl Drop for PacketLog {
    /// The chain of a trigger node may fail to start when this one has: its thread would stay, with the
    /// file open.
    fn drop(&mut self) {
        self.close();
    }
}

/// The begin-of-run record of the run, out of its main file, which is begun before any role starts; on
/// a host that does not have it, one with the run number alone.
fn begin_of(path: &Path, run: RunNumber, node: u16) -> RunBegin {
    let main = path.with_file_name(FileName::default().to_string());
    let main = File::open(main)
        .ok()
        .and_then(|file| RunReader::open(file).ok());
    let of_run = main.and_then(|main| main.begin().cloned());
    let begin = of_run.filter(|begin| begin.run == run.0);
    RunBegin {
        // Chunks of this file are none of the main one.
        file: Some(FilePart {
            writer: node,
            stream: PACKET_STREAM.to_owned(),
            ..FilePart::default()
        }),
        ..begin.unwrap_or_else(|| RunBegin::new(run))
    }
}

fn limits() -> WriterLimits {
    WriterLimits {
        event_bytes_max: 1 << 20,
        ..WriterLimits::default()
    }
}

/// Makes a file end at a byte and go on from there.
fn cut(file: &mut File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    file.seek(SeekFrom::Start(bytes)).map(|_| ())
}

/// Whether packets can be written.
#[derive(Debug, Clone, Copy)]
enum Disk {
    Room,
    Full {
        since: Instant,
        looked_at: Instant,
    },
    /// For another reason than want of room; it is not tried again.
    Failed,
}

/// The writing thread's end.
struct PacketWriter<W: Write> {
    writer: RunWriter<W>,
    cut: fn(&mut W, u64) -> io::Result<()>,
    run: RunNumber,
    packets: Consumer,
    shared: Arc<Shared>,
    full_wait: Duration,
    disk: Disk,
    header: Vec<u32>,
    /// Time of the last packet.
    last: RunNs,
    /// Packets out of the ring.
    taken: u64,
}

impl<W: Write> PacketWriter<W> {
    /// Writes packets until it is told to stop and none is left; returns how many are in the file.
    fn write_all(mut self) -> u64 {
        let mut pauses = 0;
        loop {
            // Acquire pairs with the Release in `close`.
            let is_last_look = self.shared.stop.load(Ordering::Acquire);
            self.look_at_disk(is_last_look);
            let before = self.taken;
            self.take_packets();
            pauses += 1;
            let drains = self.shared.drains.load(Ordering::Relaxed);
            if pauses % PAUSES_TO_FLUSH == 0 || drains && self.taken == before {
                self.flush();
            }
            if is_last_look {
                return self.close();
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes what is in the ring, as long as it can be written or never will be.
    fn take_packets(&mut self) {
        while !matches!(self.disk, Disk::Full { .. }) {
            let Self { writer, header, .. } = self;
            let (run, last, has_failed) = (self.run, self.last, matches!(self.disk, Disk::Failed));
            let taken = self.packets.try_pop(|words| match has_failed {
                true => (last, Ok(())),
                false => write_packet(writer, run, words, header),
            });
            let Ok(Some((time, written))) = taken else {
                return;
            };
            self.last = time;
            self.taken += 1;
            self.note(written);
        }
    }

    /// Hands over the chunk that is not full.
    fn flush(&mut self) {
        if matches!(self.disk, Disk::Room) {
            let flushed = self.writer.flush_chunk();
            self.note(flushed);
        }
        if !matches!(self.disk, Disk::Full { .. }) {
            self.shared.settled.store(self.taken, Ordering::Relaxed);
        }
    }

    /// Remembers why nothing can be written, for now or any more.
    fn note(&mut self, written: Result<(), WriteError>) {
        match written {
            Ok(()) | Err(WriteError::EventTooLarge { .. }) => {}
            Err(error) if is_full(&error) => {
                let since = match self.disk {
                    Disk::Full { since, .. } => since,
                    Disk::Room | Disk::Failed => Instant::now(),
                };
                let looked_at = Instant::now();
                self.disk = Disk::Full { since, looked_at };
                self.shared.is_full.store(true, Ordering::Relaxed);
            }
            Err(_) => {
                self.disk = Disk::Failed;
                self.shared.is_full.store(false, Ordering::Relaxed);
                self.shared.has_failed.store(true, Ordering::Relaxed);
                self.shared.has_given_up.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Tries what a full disk did not take once more, now and then or `at_once`.
    fn look_at_disk(&mut self, at_once: bool) {
        let Disk::Full { since, looked_at } = self.disk else {
            return;
        };
        if at_once || looked_at.elapsed() >= LOOK_AT_DISK {
            let retried = self.writer.retry(self.cut);
            if retried.is_ok() {
                self.disk = Disk::Room;
                self.shared.is_full.store(false, Ordering::Relaxed);
                self.shared.has_given_up.store(false, Ordering::Relaxed);
                return;
            }
            self.note(retried);
        }
        if since.elapsed() >= self.full_wait {
            self.shared.has_given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Closes the file behind its last whole chunk. What is complete is counted, closed or not.
    fn close(&mut self) -> u64 {
        let offered = self.shared.offered.load(Ordering::Relaxed);
        let Self { writer, cut, .. } = self;
        // A disk that took no more may have room for less; at last it may have none for that.
        for _ in 0..CLOSINGS {
            if writer.rewind_to_complete(*cut).is_ok() && writer.flush_chunk().is_ok() {
                let end = end_of(self.run, self.last, offered - writer.events_stored());
                if writer.finish(&end).is_ok() {
                    return writer.events_stored();
                }
            }
        }
        let _cut_off = writer.rewind_to_complete(*cut);
        writer.events_stored()
    }
}

/// The end-of-run record of a file that lacks so many packets of the run.
fn end_of(run: RunNumber, last: RunNs, unrecorded: u64) -> RunEnd {
    let (condition, reason) = match unrecorded {
        0 => (Condition::GOOD, "the trigger packets of the run".to_owned()),
        _ => (
            Condition::INCOMPLETE,
            format!("the trigger packets of the run, {unrecorded} of which were not recorded"),
        ),
    };
    RunEnd::new(run, condition, &reason, last.0)
}

fn write_packet<W: Write>(
    writer: &mut RunWriter<W>,
    run: RunNumber,
    words: &[u32],
    header: &mut Vec<u32>,
) -> (RunNs, Result<(), WriteError>) {
    let (head, packet) = words.split_at(HEAD_WORDS.min(words.len()));
    let pair = |at: usize| u64::from(head[at]) | u64::from(head[at + 1]) << 32;
    let (trigger, time) = (TriggerNumber(pair(0)), RunNs(pair(2)));
    let event = EventHeader {
        run,
        trigger,
        triggered_at: time,
        mask: L2Mask(u128::from(pair(4)) | u128::from(pair(6)) << 64),
        filter_reason: 0,
        streams: 0,
    };
    let entry = FragmentEntry {
        source: PACKET_SOURCE,
        words: packet.len() as u32,
        status: FragmentStatus::GOOD,
        crc: crc32c(packet),
    };
    header.clear();
    event.emit(&[entry], &[], header);
    (time, writer.write_event(trigger, time, &[header, packet]))
}

/// The file of a trigger node's packets, beside that of the first one.
fn path_of_node(first: &Path, node: u16) -> PathBuf {
    match node {
        0 => first.to_owned(),
        _ => first.with_file_name(format!("packets-{node}.mcap")),
    }
}

/// Whether a file with this record is of trigger packets, by what it says of itself.
pub fn is_of_packets(begin: &RunBegin) -> bool {
    let file = begin.file.as_ref();
    file.is_some_and(|file| file.stream == PACKET_STREAM)
}

/// The packet files that are there beside a run file or in a run directory, one for each trigger
/// node.
pub fn packet_files_of(run: &Path) -> Vec<PathBuf> {
    (0..=u16::MAX)
        .map(|node| packet_file_of(run, node))
        .take_while(|path| path.is_file())
        .collect()
}

/// The path of a trigger node's packets beside a run file or in a run directory.
pub fn packet_file_of(run: &Path, node: u16) -> PathBuf {
    let first = match run.is_dir() {
        true => run.join(PACKET_FILE),
        false => run.with_file_name(PACKET_FILE),
    };
    path_of_node(&first, node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log in a folder that waits rather than lose a packet.
    fn waiting_log(folder: &Path) -> PacketLogConfig {
        PacketLogConfig {
            path: folder.join(PACKET_FILE),
            waits: true,
            full_wait: DurationNs(0),
        }
    }

    /// Packets that keep their log busy for some chunks and fill its ring.
    const MANY: u64 = 3 * SLOTS as u64;
    const PACKET_WORDS: usize = 200;

    /// A disk with room for so many bytes, that can be given more; `cut` takes none back.
    struct SmallDisk {
        bytes: Arc<std::sync::Mutex<Vec<u8>>>,
        room: Arc<AtomicU64>,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.bytes.lock().unwrap();
            let room = self.room.load(Ordering::Relaxed) as usize;
            let taken = bytes.len().min(room.saturating_sub(disk.len()));
            if taken == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn cut_disk(disk: &mut SmallDisk, bytes: u64) -> io::Result<()> {
        disk.bytes.lock().unwrap().truncate(bytes as usize);
        Ok(())
    }

    /// A log on a disk with room for about one chunk, the disk's bytes, and its room.
    fn log_on_small_disk(
        waits: bool,
        full_wait: DurationNs,
    ) -> (PacketLog, Arc<std::sync::Mutex<Vec<u8>>>, Arc<AtomicU64>) {
        let config = PacketLogConfig {
            path: PathBuf::new(),
            waits,
            full_wait,
        };
        let (bytes, room) = (Arc::default(), Arc::new(AtomicU64::new(3 << 19)));
        let disk = SmallDisk {
            bytes: Arc::clone(&bytes),
            room: Arc::clone(&room),
        };
        let run = RunNumber(3);
        let writer = RunWriter::new(disk, &RunBegin::new(run), limits()).unwrap();
        let log = PacketLog::start_on(writer, cut_disk, &config, run, PACKET_WORDS);
        (log.unwrap(), bytes, room)
    }

    fn record(log: &mut PacketLog, trigger: u64) {
        let packet = [7; PACKET_WORDS];
        log.record(RunNs(trigger), trigger as u32, L2Mask::NONE, &packet);
    }

    /// Packets in the file, and what it says of itself.
    fn read_back(bytes: &std::sync::Mutex<Vec<u8>>) -> (u64, RunEnd) {
        let bytes = std::mem::take(&mut *bytes.lock().unwrap());
        let mut reader = RunReader::open(io::Cursor::new(bytes)).unwrap();
        let mut events = 0;
        while reader.next_event().unwrap().is_some() {
            events += 1;
        }
        (events, reader.end().expect("it is closed").clone())
    }

    fn until(mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn recording_goes_on_when_a_full_disk_has_room_again() {
        let (mut log, bytes, room) = log_on_small_disk(false, DurationNs(0));
        for trigger in 1..=MANY {
            assert!(log.is_ready(), "no decision waits");
            record(&mut log, trigger);
        }
        until(|| log.is_disk_full());
        assert!(log.drain(), "nor does the end of the run");
        room.store(u64::MAX, Ordering::Relaxed);
        until(|| !log.is_disk_full() && log.ring.has_room());
        record(&mut log, MANY + 1);
        let refused = log.refused;
        let counts = log.finish();
        assert_eq!(counts.recorded + counts.unrecorded, MANY + 1);
        assert_eq!(counts.unrecorded, refused, "what was in the ring is kept");
        let (events, end) = read_back(&bytes);
        assert_eq!(events, counts.recorded);
        assert!(refused > 0, "the ring was too small for all");
        assert_eq!(end.condition, Condition::INCOMPLETE);
        let said = format!("{refused} of which were not recorded");
        assert!(end.reason.contains(&said), "{}", end.reason);
    }

    #[test]
    fn decisions_that_wait_for_a_full_disk_lose_no_packet() {
        let (mut log, bytes, room) = log_on_small_disk(true, DurationNs(u64::MAX));
        let mut trigger = 0;
        while log.is_ready() || !log.is_disk_full() {
            if log.is_ready() {
                trigger += 1;
                record(&mut log, trigger);
            }
        }
        assert!(!log.drain(), "the end of the run waits as well");
        room.store(u64::MAX, Ordering::Relaxed);
        until(|| log.is_ready());
        record(&mut log, trigger + 1);
        until(|| log.drain());
        let counts = log.finish();
        assert_eq!((counts.recorded, counts.unrecorded), (trigger + 1, 0));
        let (events, end) = read_back(&bytes);
        assert_eq!((events, end.condition), (trigger + 1, Condition::GOOD));
    }

    #[test]
    fn decisions_wait_no_longer_than_they_are_to() {
        let (mut log, bytes, _room) = log_on_small_disk(true, DurationNs(0));
        for trigger in 1..=MANY {
            until(|| log.is_ready());
            record(&mut log, trigger);
        }
        until(|| log.drain());
        assert!(log.is_disk_full());
        let counts = log.finish();
        assert_eq!(counts.recorded + counts.unrecorded, MANY);
        assert!(counts.recorded > 0 && counts.unrecorded > u64::from(SLOTS));
        let (events, end) = read_back(&bytes);
        assert_eq!(
            (events, end.condition),
            (counts.recorded, Condition::INCOMPLETE)
        );
    }

    #[test]
    fn a_log_that_does_not_start_leaves_no_file_and_one_that_is_dropped_closes_it() {
        let folder = tempfile::tempdir().unwrap();
        let config = waiting_log(folder.path());
        let too_long = u32::MAX as usize - HEAD_WORDS;
        assert!(PacketLog::start(&config, RunNumber(3), 0, too_long).is_err());
        assert!(!config.path.exists(), "nothing is in the way of the next");
        let mut log = PacketLog::start(&config, RunNumber(3), 0, PACKET_WORDS).unwrap();
        record(&mut log, 1);
        drop(log);
        let mut reader = RunReader::open(File::open(&config.path).unwrap()).unwrap();
        assert!(reader.next_event().unwrap().is_some());
        assert!(reader.end().is_some(), "its thread has closed it");
    }

    #[test]
    fn packets_have_the_record_of_the_run_that_they_are_of() {
        let folder = tempfile::tempdir().unwrap();
        let config = waiting_log(folder.path());
        let of_run = RunBegin {
            seed: 7,
            config: "format = 1\n".to_owned(),
            started_tai_ns: 5,
            ..RunBegin::new(RunNumber(3))
        };
        let main = File::create(folder.path().join("events.mcap")).unwrap();
        let main = RunWriter::new(main, &of_run, limits());
        drop(main.unwrap());
        for (run, node, seed) in [(3, 0, 7), (4, 1, 0)] {
            let log = PacketLog::start(&config, RunNumber(run), node, 16).unwrap();
            log.finish();
            let path = packet_file_of(folder.path(), node);
            let reader = RunReader::open(File::open(path).unwrap()).unwrap();
            let begin = reader.begin().unwrap();
            assert_eq!((begin.run, begin.seed), (run, seed));
            assert_eq!(begin.config.is_empty(), seed == 0, "of another run");
            assert_ne!(begin.file, None);
        }
    }

    #[test]
    fn packets_and_decisions_come_back_with_full_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let config = waiting_log(folder.path());
        let mut log = PacketLog::start(&config, RunNumber(3), 0, 16).unwrap();
        assert!(
            PacketLog::start(&config, RunNumber(3), 0, 16).is_err(),
            "it is there"
        );
        log.last = (1 << 32) - 3;
        let first = log.last;
        // Out of order around the place where the low bits wrap.
        let triggers: Vec<u64> = [1, 2, 4, 3, 6, 5].map(|n| first + n).to_vec();
        for trigger in &triggers {
            assert!(log.is_ready());
            let mask = L2Mask(u128::from(*trigger) << 40);
            log.record(
                RunNs(trigger * 7),
                *trigger as u32,
                mask,
                &[*trigger as u32, 9],
            );
        }
        let counts = log.finish();
        assert_eq!((counts.recorded, counts.unrecorded), (6, 0));
        let mut reader = RunReader::open(File::open(&config.path).unwrap()).unwrap();
        assert!(reader.end().is_some());
        let mut found = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            let trigger = event.header().trigger.0;
            assert_eq!(event.header().triggered_at, RunNs(trigger * 7));
            assert_eq!(event.header().mask, L2Mask(u128::from(trigger) << 40));
            let (entry, words) = event.fragments().next().unwrap();
            assert_eq!(
                (entry.source, words),
                (PACKET_SOURCE, &[trigger as u32, 9][..])
            );
            found.push(trigger);
        }
        assert_eq!(found, triggers);
    }
}
