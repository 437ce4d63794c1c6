//! Events, files and faults for the tests of run files.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use livetime_store::{
    Axis, Condition, Histogram, RunBegin, RunEnd, RunReader, RunWriter, WriterLimits,
};
use livetime_wire::crc::crc32c;
use livetime_wire::event::{EventHeader, FragmentEntry};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, RunNs, RunNumber, SourceId, TriggerNumber};

/// Events by trigger number, as words.
pub(crate) type Events = BTreeMap<u64, Vec<u32>>;

/// A small generator of numbers that needs no crate: xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    /// Prints the seed, and takes another one from `LIVETIME_TEST_SEED`.
    pub(crate) fn new(default_seed: u64) -> Self {
        let seed = number_from_env("LIVETIME_TEST_SEED", default_seed);
        println!("LIVETIME_TEST_SEED={seed}");
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub(crate) fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

pub(crate) const RUN: RunNumber = RunNumber(42);

pub(crate) fn begin() -> RunBegin {
    RunBegin {
        seed: 7,
        config_hash: "0123456789abcdef".to_owned(),
        version: "0.1.0".to_owned(),
        started_tai_ns: 1_800_000_000_000_000_000,
        config: "format = 1\n".to_owned(),
        ..RunBegin::new(RUN)
    }
}

/// An event with fragments of these lengths in words.
pub(crate) fn event(trigger: u64, fragments: &[usize]) -> Vec<u32> {
    let payloads: Vec<Vec<u32>> = fragments
        .iter()
        .enumerate()
        .map(|(source, words)| {
            let start = (trigger as u32)
                .wrapping_mul(0x9E37_79B9)
                .wrapping_add(source as u32);
            (0..*words as u32)
                .map(|i| start.wrapping_add(i.wrapping_mul(0x0101_0101)))
                .collect()
        })
        .collect();
    let entries: Vec<FragmentEntry> = payloads
        .iter()
        .enumerate()
        .map(|(source, words)| FragmentEntry {
            source: SourceId(0x0042_0000 + source as u32),
            words: words.len() as u32,
            status: FragmentStatus::GOOD,
            crc: crc32c(words),
        })
        .collect();
    let header = EventHeader {
        run: RUN,
        trigger: TriggerNumber(trigger),
        triggered_at: RunNs(trigger * 100_000),
        mask: L2Mask(u128::from(trigger)),
        filter_reason: 1,
        streams: 1,
    };
    let mut words = Vec::new();
    header.emit(&entries, &[], &mut words);
    payloads
        .iter()
        .for_each(|payload| words.extend_from_slice(payload));
    words
}

/// Events with trigger numbers that rise with gaps.
pub(crate) fn events(random: &mut Random, count: usize, fragment_words_max: u64) -> Events {
    let mut trigger = 0;
    let mut out = Events::new();
    for _ in 0..count {
        trigger += 1 + random.below(3);
        let fragments = 1 + random.below(3);
        let lengths: Vec<usize> = (0..fragments)
            .map(|_| random.below(fragment_words_max) as usize)
            .collect();
        out.insert(trigger, event(trigger, &lengths));
    }
    out
}

pub(crate) fn small_chunks(chunk_bytes: usize) -> WriterLimits {
    WriterLimits {
        chunk_bytes,
        event_bytes_max: 1 << 20,
        events_indexed_max: 1 << 16,
        chunks_indexed_max: 1 << 12,
        ..WriterLimits::default()
    }
}

/// Writes every event in two parts.
pub(crate) fn write_events<W: Write>(
    writer: &mut RunWriter<W>,
    events: &Events,
) -> Result<(), livetime_store::WriteError> {
    for (trigger, words) in events {
        let (head, rest) = words.split_at(words.len() / 2);
        writer.write_event(
            TriggerNumber(*trigger),
            RunNs(trigger * 100_000),
            &[head, rest],
        )?;
    }
    Ok(())
}

/// A file of several chunks of events, one of histograms and one of the end, and its events.
pub(crate) fn file_with_histogram(seed: u64, count: usize) -> (Vec<u8>, Events) {
    let written = events(&mut Random::new(seed), count, 60);
    let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(4096)).unwrap();
    write_events(&mut writer, &written).unwrap();
    writer.flush_chunk().unwrap();
    let axis = Axis::regular("dimuon mass", "GeV", 600, 60.0, 120.0).unwrap();
    let histogram = Histogram::counting("dimuon_mass", vec![axis]).unwrap();
    writer.write_histograms(RunNs(1), &[histogram]).unwrap();
    let end = RunEnd::new(RUN, Condition::GOOD, "duration reached", 20_000_000_000);
    writer.finish(&end).unwrap();
    (writer.into_inner(), written)
}

/// Reads every event and asserts that each is exactly one that was written.
pub(crate) fn read_back<R: Read + Seek>(reader: &mut RunReader<R>, written: &Events) -> Events {
    let mut found = Events::new();
    while let Some(event) = reader.next_event().unwrap() {
        let trigger = event.header().trigger.0;
        assert_eq!(
            Some(event.words()),
            written.get(&trigger).map(Vec::as_slice),
            "false event"
        );
        assert!(
            found.insert(trigger, event.words().to_vec()).is_none(),
            "{trigger} came twice"
        );
    }
    found
}

/// Offsets of the chunk records and their bytes, found by the reference implementation.
pub(crate) fn chunk_places(file: &[u8]) -> Vec<(usize, usize)> {
    let summary = mcap::Summary::read(file).unwrap().unwrap();
    let places = summary.chunk_indexes.iter();
    let mut places: Vec<(usize, usize)> = places
        .map(|chunk| {
            (
                chunk.chunk_start_offset as usize,
                chunk.chunk_length as usize,
            )
        })
        .collect();
    places.sort_unstable();
    places
}

pub(crate) fn open(file: &[u8]) -> RunReader<Cursor<&[u8]>> {
    RunReader::open(Cursor::new(file)).unwrap()
}

/// A file on a disk with a bad sector, as the system gives it: up to the sector, and then an error.
pub(crate) struct BadSector<'a> {
    pub(crate) file: Cursor<&'a [u8]>,
    pub(crate) sector: Range<u64>,
    pub(crate) error: io::ErrorKind,
}

impl<'a> BadSector<'a> {
    pub(crate) fn new(file: &'a [u8], sector: Range<u64>) -> Self {
        Self {
            file: Cursor::new(file),
            sector,
            error: io::ErrorKind::Other,
        }
    }
}

impl Read for BadSector<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let at = self.file.position();
        if self.sector.contains(&at) {
            return Err(io::Error::from(self.error));
        }
        let before = self.sector.start.checked_sub(at);
        let count = before.map_or(out.len(), |before| out.len().min(before as usize));
        self.file.read(&mut out[..count])
    }
}

impl Seek for BadSector<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// An output that is full after so many bytes, as a disk is.
pub(crate) struct FullDisk {
    pub(crate) bytes: Vec<u8>,
    pub(crate) capacity: usize,
}

impl FullDisk {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            bytes: Vec::new(),
            capacity,
        }
    }
}

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.capacity - self.bytes.len();
        if room == 0 && !bytes.is_empty() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let taken = room.min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
