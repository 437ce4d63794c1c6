//! What a data link of a run travels over, as configured.
//!
//! Typed values only; the links themselves are [`super::fragment_link`] and [`super::link_receiver`].

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use livetime_wire::fragment::{self, CrcCheck, FragmentHeader, check_parts};
use livetime_wire::link_frame::{DATA_WORDS_MAX, FrameHeader, HEADER_WORDS};
use livetime_wire::{RunNumber, SourceId, TriggerNumber};
use zerocopy::IntoBytes;

use super::frame_order::{FrameHead, FrameOrder};
use super::socket_window::set_aside;
use super::udp_link::UdpConfig;
use super::udp_source::datagrams_of;
use crate::builder_transport::BuilderTransport;

/// Data words of a datagram that fills an Ethernet frame of 1500 bytes.
pub const DATAGRAM_WORDS: usize = 362;

/// What the fragments of a data link travel over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LinkTransport {
    /// An emulated S-LINK, free of loss.
    #[default]
    Emulated,
    /// Datagrams.
    Udp {
        /// The receiving end.
        config: UdpConfig,
        /// Data words of a datagram, 1 to 16 370.
        datagram_words: usize,
    },
    /// A stream.
    Tcp,
    /// Fragments of a file of frames, one per trigger in the order of the triggers.
    File {
        /// The file.
        path: PathBuf,
    },
}

impl LinkTransport {
    /// What a socket between both ends is made as; `None` where there is none.
    pub fn socket(&self) -> Option<&'static BuilderTransport> {
        match self {
            Self::Udp { .. } => Some(&BuilderTransport::Udp {
                receive_buffer_bytes: 0,
            }),
            Self::Tcp => Some(&BuilderTransport::Tcp { congestion: None }),
            Self::Emulated | Self::File { .. } => None,
        }
    }

    /// Data words of a datagram, all that go into one where there are none.
    pub fn datagram_words(&self) -> usize {
        match self {
            Self::Udp { datagram_words, .. } => *datagram_words,
            _ => DATA_WORDS_MAX,
        }
    }

    /// What the kernel sets aside for the datagrams of a fragment of so many bytes, and what it has for
    /// those in a socket \[B\]: twice what it is asked for. `None` where there are no datagrams.
    pub fn socket_bytes(&self, fragment_bytes: u64) -> Option<(u64, u64)> {
        let Self::Udp {
            config,
            datagram_words,
        } = self
        else {
            return None;
        };
        let words = usize::try_from(fragment_bytes / 4).unwrap_or(usize::MAX);
        let needed = set_aside(datagrams_of(words, *datagram_words));
        Some((needed, 2 * config.buffer_bytes as u64))
    }

    /// As in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Emulated => "emulated",
            Self::Udp { .. } => "udp",
            Self::Tcp => "tcp",
            Self::File { .. } => "file",
        }
    }
}

/// Name of the file of frames of a source in its folder, such as `510000.frames`.
pub fn frames_file(folder: &Path, source: SourceId) -> PathBuf {
    folder.join(format!("{:06x}.frames", source.0))
}

/// Why a file of frames cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum FramesFileError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is a pipe or a device, which cannot be looked at and played afterwards.
    #[error("it is no plain file")]
    NoFile,
    /// It does not start with the frame that begins block 0.
    #[error("it does not start with the first frame of a link")]
    NoFrame,
    /// Its first block is no fragment.
    #[error("its first block is no fragment")]
    NoFragment,
    /// It is that of another source.
    #[error("its fragments are of source {found}")]
    Source {
        /// Whose they are.
        found: SourceId,
    },
    /// It does not begin with trigger 1.
    #[error("its first fragment is of trigger {found}, a run starts with trigger 1")]
    Trigger {
        /// Low bits of the first trigger number.
        found: u32,
    },
    /// A fragment in its middle is of another trigger than its place says.
    #[error(
        "its fragment number {place} is of trigger {found}, in that place must be trigger {place}"
    )]
    Order {
        /// Place of the fragment in the file, counted from 1.
        place: u64,
        /// Low bits of its trigger number.
        found: u32,
    },
    /// A block in its middle is no fragment of this source.
    #[error("its block {block}, counted from 0, is no fragment of source {source_id}")]
    Block {
        /// Number of the block, counted from 0 as in its frames.
        block: u64,
        /// The source that all of them must be of.
        source_id: SourceId,
    },
}

/// Fragments at the start of a file among which a sound one is looked for, and words of the longest.
const SOUND_WITHIN: usize = 4096;
const SOUND_WORDS_MAX: usize = 1 << 20;

/// Looks at the first fragment of a file of frames; returns the run that it was made for, that of its
/// first sound fragment.
///
/// # Errors
/// A [`FramesFileError`].
pub fn run_of_frames(path: &Path, source: SourceId) -> Result<RunNumber, FramesFileError> {
    let mut file = FramesReader::open(path)?;
    let mut start = Vec::new();
    let has_start = file.next_start(&mut start)?;
    if !file.has_begun {
        return Err(FramesFileError::NoFrame);
    }
    let first = has_start.then(|| FragmentHeader::parse(&start).ok());
    let first = first.flatten();
    let first = first.ok_or(FramesFileError::NoFragment)?;
    if first.source != source {
        let found = first.source;
        return Err(FramesFileError::Source { found });
    }
    if first.trigger_low != TriggerNumber::FIRST.low() {
        let found = first.trigger_low;
        return Err(FramesFileError::Trigger { found });
    }
    Ok(sound_run(path)?.unwrap_or(first.run))
}

/// The run of the first fragment of a file whose checksum is right; `None` if there is none near its
/// start.
fn sound_run(path: &Path) -> Result<Option<RunNumber>, FramesFileError> {
    let mut file = FramesReader::open(path)?;
    let mut words = Vec::new();
    for _ in 0..SOUND_WITHIN {
        words.clear();
        if !file.next_words(&mut words, SOUND_WORDS_MAX)? {
            break;
        }
        if let Ok(check) = check_parts(&[&words], CrcCheck::On)
            && check.crc_good == Some(true)
        {
            return Ok(Some(check.header.run));
        }
    }
    Ok(None)
}

/// What a file of frames holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramesFound {
    /// Fragments whose header is in it.
    pub fragments: u64,
    /// Where the first frame or tally begins that is not whole, is none, or does not follow the frames
    /// before it, in bytes from the start; the length of a file that ends inside a block.
    pub breaks_off: Option<u64>,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Looks at the header of every fragment of a file of frames: the fragment in place `n` must be that
/// of trigger `n`, or the run would file it under another trigger. Payload is passed over. Where the
/// file breaks off, or goes on with what is no frame, one of another block or a tally that does not
/// count what came before it, the look ends, as playing it will.
///
/// # Errors
/// A [`FramesFileError`].
pub fn check_frames_file(path: &Path, source: SourceId) -> Result<FramesFound, FramesFileError> {
    run_of_frames(path, source)?;
    let mut file = FramesReader::open(path)?;
    let mut fragments = 0;
    let mut start = Vec::new();
    while file.next_start(&mut start)? {
        fragments += 1;
        check_place(&start, source, fragments)?;
    }
    let is_whole = file.at == file.bytes && !file.order.is_in_block();
    Ok(FramesFound {
        fragments,
        breaks_off: (!is_whole).then_some(file.at),
        bytes: file.bytes,
    })
}

/// Whether the first words of a block are those of the fragment of trigger `place`.
fn check_place(words: &[u32], source: SourceId, place: u64) -> Result<(), FramesFileError> {
    let header = FragmentHeader::parse(words).ok();
    let Some(header) = header.filter(|header| header.source == source) else {
        let (block, source_id) = (place - 1, source);
        return Err(FramesFileError::Block { block, source_id });
    };
    let found = header.trigger_low;
    if found != TriggerNumber(place).low() {
        return Err(FramesFileError::Order { place, found });
    }
    Ok(())
}

/// Passes over the frames of a file in their order, block by block.
struct FramesReader {
    file: BufReader<File>,
    bytes: u64,
    /// Where the next frame or tally begins, in bytes from the start.
    at: u64,
    order: FrameOrder,
    /// A frame in order was found.
    has_begun: bool,
    /// What is at that place is not in order, or not whole.
    has_ended: bool,
}

impl FramesReader {
    /// At the start of a file.
    fn open(path: &Path) -> Result<Self, FramesFileError> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(FramesFileError::NoFile);
        }
        let file = File::open(path)?;
        Ok(Self {
            bytes: file.metadata()?.len(),
            file: BufReader::with_capacity(1 << 18, file),
            at: 0,
            order: FrameOrder::default(),
            has_begun: false,
            has_ended: false,
        })
    }

    /// The first words of the next block, up to those of a fragment's header: its frames may be shorter.
    /// `false` where the file ends, or breaks off before they are whole.
    fn next_start(&mut self, start: &mut Vec<u32>) -> io::Result<bool> {
        start.clear();
        self.next_words(start, fragment::HEADER_WORDS)
    }

    /// The words of the next block, at most so many; `false` where the file ends, or breaks off before
    /// there are.
    fn next_words(&mut self, words: &mut Vec<u32>, most: usize) -> io::Result<bool> {
        while !self.has_ended {
            let Some(header) = self.next_head()? else {
                break;
            };
            self.has_begun = true;
            self.pass_frame(&header, words, most)?;
            if header.ends_block && !self.has_ended {
                return Ok(true);
            }
        }
        self.has_ended = true;
        Ok(words.len() == most)
    }

    /// Reads the head of the next frame, if it is in order; tallies in order are passed over.
    fn next_head(&mut self) -> io::Result<Option<FrameHeader>> {
        let mut words = [0; HEADER_WORDS];
        while self.at < self.bytes && read_whole(&mut self.file, &mut words)? {
            match FrameHead::parse(&words) {
                Ok(FrameHead::Frame(header)) => {
                    let is_next = self.order.check_frame(&header).is_ok();
                    return Ok(is_next.then_some(header));
                }
                Ok(FrameHead::Tally(tally)) if self.order.check_tally(&tally).is_ok() => {
                    self.at += 4 * HEADER_WORDS as u64;
                }
                _ => break,
            }
        }
        Ok(None)
    }

    /// Passes over the data of a frame; what the first words of its block lack, up to `most`, is read.
    fn pass_frame(
        &mut self,
        header: &FrameHeader,
        start: &mut Vec<u32>,
        most: usize,
    ) -> io::Result<()> {
        let words = header.data_words.min(most - start.len());
        let from = start.len();
        start.resize(from + words, 0);
        if !read_whole(&mut self.file, &mut start[from..])? {
            start.truncate(from);
            self.has_ended = true;
            return Ok(());
        }
        let end = self.at + 4 * (HEADER_WORDS + header.data_words) as u64;
        self.has_ended = end > self.bytes;
        if !self.has_ended {
            self.file
                .seek_relative(4 * (header.data_words - words) as i64)?;
            self.at = end;
            self.order.pass_frame(header);
        }
        Ok(())
    }
}

/// Fills `words`; `false` when the file ends before.
fn read_whole(file: &mut impl Read, words: &mut [u32]) -> io::Result<bool> {
    match file.read_exact(words.as_mut_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use livetime_readout::{HeapPages, LinkConfig, PageLink};
    use livetime_wire::RunNs;
    use livetime_wire::link_frame::{FrameNumbers, LinkTally};
    use proptest::prelude::*;

    use super::super::stream_link::{StreamError, StreamLink, StreamSource, StreamState};
    use super::*;

    const SOURCE: SourceId = SourceId(0x51_0000);

    /// The fragment of a trigger and source.
    fn fragment(trigger: u64, source: SourceId, data_words: usize) -> Vec<u32> {
        let header = FragmentHeader {
            source,
            run: RunNumber(7),
            trigger_low: TriggerNumber(trigger).low(),
            bunch: 0,
            trigger_type: 0,
            event_type: 0,
        };
        let mut words = vec![0; data_words + fragment::OVERHEAD_WORDS];
        header.emit(0, data_words, &mut words, |data| data.fill(3));
        words
    }

    /// A file of fragments of these triggers and sources, 20 000 words each in the middle one.
    fn file_of(fragments: &[(u64, SourceId)]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut source = StreamSource::new(Vec::new());
        for (index, (trigger, of)) in fragments.iter().enumerate() {
            let data_words = if index == 1 { 20_000 } else { 5 };
            source.send(&fragment(*trigger, *of, data_words)).unwrap();
        }
        file.write_all(source.output()).unwrap();
        file
    }

    /// Fragments of triggers 1, 2, 3 .. in frames of at most this many words, each with how many blocks
    /// have ended before it.
    fn frames_of(data_words: &[usize], most: usize) -> Vec<(Vec<u32>, u32)> {
        let mut numbers = FrameNumbers::default();
        let mut frames = Vec::new();
        for (trigger, data_words) in (1..).zip(data_words) {
            let words = fragment(trigger, SOURCE, *data_words);
            for (header, range) in numbers.frames(words.len(), most) {
                let frame = [&header.emit()[..], &words[range]].concat();
                frames.push((frame, header.block_low));
            }
        }
        frames
    }

    /// What is found in a file of these bytes, and by who plays it.
    fn both(bytes: &[u8]) -> (Result<FramesFound, FramesFileError>, Played<'_>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        (check_frames_file(file.path(), SOURCE), play(bytes))
    }

    /// How playing ended, and the link that played.
    type Played<'a> = (Result<(), StreamError>, StreamLink<&'a [u8], HeapPages>);

    #[test]
    fn a_file_in_order_is_counted_and_one_that_breaks_off_is_looked_at_so_far() {
        let file = file_of(&[1, 2, 3, 4].map(|trigger| (trigger, SOURCE)));
        let look = || check_frames_file(file.path(), SOURCE).unwrap();
        let whole = look();
        assert_eq!((whole.fragments, whole.breaks_off), (4, None));
        // The last one of 100 bytes, and of the one before all but frame and fragment header.
        file.as_file().set_len(whole.bytes - 130).unwrap();
        let cut = look();
        let last_two = 2 * (whole.bytes - cut.bytes - 30);
        assert_eq!(cut.fragments, 3);
        assert_eq!(cut.breaks_off, Some(whole.bytes - last_two));
        // Between two frames it does not break off.
        file.as_file().set_len(whole.bytes - last_two).unwrap();
        let shorter = look();
        assert_eq!((shorter.fragments, shorter.breaks_off), (2, None));
    }

    /// Plays a file to its end.
    fn play(bytes: &[u8]) -> Played<'_> {
        let config = LinkConfig::default();
        let pages = HeapPages::new(0, config.pages, config.page_words);
        let mut link = StreamLink::of_file(bytes, config, 0, pages);
        while link.state() == StreamState::Open {
            if let Err(error) = link.receive(RunNs(0), 1) {
                return (Err(error), link);
            }
            while let Some(completed) = link.poll() {
                link.recycle(completed.page).unwrap();
            }
        }
        (Ok(()), link)
    }

    /// Whatever is wrong with blocks, the look ends where playing ends, with as many blocks as were whole.
    #[test]
    fn a_file_ends_at_a_frame_that_does_not_go_on_with_its_block() {
        let file = file_of(&[1, 2, 3, 4].map(|trigger| (trigger, SOURCE)));
        let whole = std::fs::read(file.path()).unwrap();
        let mut frames = Vec::new();
        while let Some(head) = whole.get(frames.last().map_or(0, |(_, end)| *end)..) {
            let Some(words) = head.get(20..24) else { break };
            let words = u32::from_le_bytes(words.try_into().unwrap()) as usize;
            let at = whole.len() - head.len();
            frames.push((at, at + 4 * (HEADER_WORDS + words)));
        }
        // The second fragment is in two frames.
        assert_eq!(frames.len(), 5);
        for (frame, byte, bit, first_bad) in [
            (3, 16, 1, 3),
            (3, 16, 64, 3),
            (2, 16, 1, 2),
            (2, 4, 2, 3),
            (0, 4, 2, 1),
            (2, 4, 1, 2),
        ] {
            let mut bytes = whole.clone();
            bytes[frames[frame].0 + byte] ^= bit;
            std::fs::write(file.path(), &bytes).unwrap();
            let found = check_frames_file(file.path(), SOURCE).unwrap();
            let expected = frames[first_bad].0 as u64;
            assert_eq!(found.breaks_off, Some(expected), "{frame} {byte} {bit}");
            let (played, link) = play(&bytes);
            let played = played.unwrap_err();
            assert!(matches!(played, StreamError::Block { .. }), "{played}");
            assert_eq!(link.frames_settled(), first_bad as u64);
        }
    }

    #[test]
    fn fragments_out_of_place_in_the_middle_are_named_with_their_place() {
        for (triggers, place, found) in [
            ([1, 2, 2, 4], 3, 2),
            ([1, 3, 2, 4], 2, 3),
            ([1, 2, 3, 5], 4, 5),
        ] {
            let file = file_of(&triggers.map(|trigger| (trigger, SOURCE)));
            let error = check_frames_file(file.path(), SOURCE).unwrap_err();
            assert!(
                matches!(error, FramesFileError::Order { place: at, found: of } if (at, of) == (place, found)),
                "{error}"
            );
            let text = error.to_string();
            assert!(text.contains(&format!("fragment number {place} is of trigger {found}")));
        }
        let stranger = file_of(&[(1, SOURCE), (2, SourceId(9)), (3, SOURCE)]);
        let error = check_frames_file(stranger.path(), SOURCE).unwrap_err();
        assert!(
            matches!(error, FramesFileError::Block { block: 1, .. }),
            "{error}"
        );
        let text = "its block 1, counted from 0, is no fragment of source 0x510000";
        assert_eq!(error.to_string(), text);
    }

    /// At every place of a file: a tally is passed over between two blocks if it counts what came before
    /// it; any other ends the look where it ends playing.
    #[test]
    fn a_tally_is_judged_by_the_look_as_by_who_plays() {
        let frames = frames_of(&[5, 30, 0, 5], 20);
        assert_eq!(frames.len(), 6, "the second fragment is in three");
        let join = |frames: &[(Vec<u32>, u32)]| frames.iter().flat_map(|f| f.0.clone()).collect();
        for at in 0..=frames.len() {
            let (before, after): (Vec<u32>, Vec<u32>) = (join(&frames[..at]), join(&frames[at..]));
            let blocks = frames.get(at).map_or(4, |frame| frame.1);
            for (frames_off, blocks_off) in [(0, 0), (3, 3), (3, 0), (0, 1), (-1, 0), (0, -1)] {
                let tally = LinkTally {
                    frames: (at as u64).wrapping_add_signed(frames_off),
                    blocks_low: blocks.wrapping_add_signed(blocks_off),
                };
                let words = [&before[..], &tally.emit(), &after].concat();
                let is_right = (frames_off, blocks_off) == (0, 0) && at != 2 && at != 3;
                let (looked, (played, link)) = both(words.as_bytes());
                let settled = if is_right { frames.len() } else { at };
                assert_eq!(link.frames_settled(), settled as u64, "{at} {tally:?}");
                match played {
                    Ok(()) => assert!(is_right, "{at} {tally:?}"),
                    Err(error) => assert!(matches!(error, StreamError::Tally { .. }), "{error}"),
                }
                if at == 0 && !is_right {
                    assert!(matches!(looked, Err(FramesFileError::NoFrame)));
                    continue;
                }
                let place = (!is_right).then_some(4 * before.len() as u64);
                assert_eq!(looked.unwrap().breaks_off, place, "{at} {tally:?}");
            }
        }
    }

    /// Given first fragments whose checksum is wrong, and with it perhaps their run, then the run is that
    /// of the first sound one, however long its frames are; and of the first if none is sound.
    #[test]
    fn the_run_of_a_file_is_that_of_its_first_sound_fragment() {
        let run_of = |unsound: u64, most: usize| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let mut numbers = FrameNumbers::default();
            for trigger in 1..=4 {
                let mut words = fragment(trigger, SOURCE, 30);
                if trigger <= unsound {
                    words[4] = 4000;
                }
                for (header, range) in numbers.frames(words.len(), most) {
                    file.write_all(header.emit().as_bytes()).unwrap();
                    file.write_all(words[range].as_bytes()).unwrap();
                }
            }
            run_of_frames(file.path(), SOURCE).unwrap()
        };
        for most in [7, 1000] {
            for (unsound, run) in [(0, 7), (1, 7), (3, 7), (4, 4000)] {
                assert_eq!(run_of(unsound, most), RunNumber(run), "{unsound} {most}");
            }
        }
    }

    /// The header of a fragment is that of its block, however short its frames are.
    #[test]
    fn fragments_in_short_frames_are_looked_at_in_their_blocks() {
        for most in 1..20 {
            let mut frames = frames_of(&[5, 30, 0, 5], most);
            let words: Vec<u32> = frames.iter().flat_map(|frame| frame.0.clone()).collect();
            let (looked, (played, link)) = both(words.as_bytes());
            let looked = looked.unwrap();
            assert_eq!((looked.fragments, looked.breaks_off), (4, None), "{most}");
            assert!(played.is_ok() && link.blocks().counters().blocks == 4);
            // The trigger number of the third is one of the last words of the header.
            let third: Vec<usize> = (0..frames.len()).filter(|at| frames[*at].1 == 2).collect();
            frames[third[5 / most]].0[HEADER_WORDS + 5 % most] = 9;
            let words: Vec<u32> = frames.iter().flat_map(|frame| frame.0.clone()).collect();
            let (looked, _) = both(words.as_bytes());
            assert!(
                matches!(looked, Err(FramesFileError::Order { place: 3, found: 9 })),
                "{most}"
            );
        }
    }

    #[test]
    fn a_block_may_begin_with_a_frame_without_data() {
        let words = fragment(1, SOURCE, 5);
        let head = FrameHeader {
            begins_block: true,
            ends_block: false,
            number: 0,
            block_low: 0,
            data_words: 0,
        };
        let rest = FrameHeader {
            begins_block: false,
            ends_block: true,
            number: 1,
            data_words: words.len(),
            ..head
        };
        let bytes = [&head.emit()[..], &rest.emit(), &words].concat();
        let (looked, (played, _)) = both(bytes.as_bytes());
        assert_eq!(looked.unwrap().breaks_off, None);
        assert!(played.is_ok());
        // A file that ends inside a block breaks off at its end.
        let (looked, (played, _)) = both(bytes[..HEADER_WORDS].as_bytes());
        assert!(matches!(looked, Err(FramesFileError::NoFragment)));
        assert!(matches!(played, Err(StreamError::Cut { .. })));
        let frames = frames_of(&[5, 30], 20);
        let open: Vec<u32> = frames[..2].iter().flat_map(|f| f.0.clone()).collect();
        let (looked, (played, _)) = both(open.as_bytes());
        let looked = looked.unwrap();
        assert_eq!(looked.breaks_off, Some(looked.bytes));
        assert!(matches!(played, Err(StreamError::Cut { .. })));
    }

    /// Frames before a place of a file, tallies left out.
    fn frames_before(words: &[u32], place: usize) -> u64 {
        let (mut at, mut frames) = (0, 0);
        while at < place {
            let head = FrameHead::parse(words[at..].first_chunk().unwrap()).unwrap();
            at += HEADER_WORDS;
            if let FrameHead::Frame(header) = head {
                at += header.data_words;
                frames += 1;
            }
        }
        assert_eq!(at, place);
        frames
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Tallies and damaged heads anywhere, and a cut: the look ends where playing ends.
        #[test]
        fn the_look_ends_where_playing_ends(
            data_words in prop::collection::vec(0..40_usize, 1..8),
            most in 1..30_usize,
            tallies in prop::collection::vec((any::<prop::sample::Index>(), 0..8_i64, 0..8_i32), 0..3),
            flip in prop::option::weighted(0.4, (any::<prop::sample::Index>(), 0..6_usize, 0..32_u32)),
            cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
        ) {
            let mut frames = frames_of(&data_words, most);
            for (index, frames_off, blocks_off) in tallies {
                let at = index.index(frames.len() + 1);
                let is_frame = |frame: &&(Vec<u32>, u32)| frame.0[1] & 3 != 0 || frame.0.len() > HEADER_WORDS;
                let before = frames[..at].iter().filter(is_frame).count() as u64;
                let blocks = frames.get(at).map_or(data_words.len() as u32, |frame| frame.1);
                // Most of them are right.
                let tally = LinkTally {
                    frames: before.wrapping_add_signed((frames_off - 5).max(0)),
                    blocks_low: blocks.wrapping_add_signed((blocks_off - 5).max(0)),
                };
                frames.insert(at, (tally.emit().to_vec(), blocks));
            }
            if let Some((index, word, bit)) = flip {
                let at = index.index(frames.len());
                frames[at].0[word] ^= 1 << bit;
            }
            let words: Vec<u32> = frames.into_iter().flat_map(|frame| frame.0).collect();
            let bytes = words.as_bytes();
            let bytes = &bytes[..cut.map_or(bytes.len(), |cut| cut.index(bytes.len()))];
            let (looked, (played, link)) = both(bytes);
            let blocks = link.blocks().counters().blocks;
            match looked {
                Ok(found) => {
                    prop_assert_eq!(found.breaks_off.is_some(), played.is_err(), "{:?}", played);
                    let place = found.breaks_off.unwrap_or(found.bytes);
                    let frames = frames_before(&words, place as usize / 4);
                    prop_assert_eq!(frames, link.frames_settled());
                    prop_assert!(blocks <= found.fragments && found.fragments <= blocks + 1);
                }
                Err(FramesFileError::NoFrame) => prop_assert_eq!(link.frames_settled(), 0),
                Err(FramesFileError::NoFragment) => prop_assert!(blocks <= 1),
                // The length in a head was damaged: what stands in the place of a fragment is none, or looks
                // like another one.
                Err(
                    FramesFileError::Block { .. }
                    | FramesFileError::Source { .. }
                    | FramesFileError::Trigger { .. }
                    | FramesFileError::Order { .. },
                ) => prop_assert!(flip.is_some()),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
