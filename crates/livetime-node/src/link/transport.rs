//! What a data link of a run travels over, as configured.
//!
//! Typed values only; the links themselves are [`super::fragment_link`] and [`super::link_receiver`].

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use livetime_wire::fragment::{self, FragmentHeader};
use livetime_wire::link_frame::{DATA_WORDS_MAX, FrameHeader, HEADER_WORDS};
use livetime_wire::{RunNumber, SourceId, TriggerNumber};
use zerocopy::IntoBytes;

use super::udp_link::UdpConfig;
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
    #[error("its block number {place} is no fragment of source {source_id}")]
    Block {
        /// Place of the block in the file, counted from 1.
        place: u64,
        /// The source that all of them must be of.
        source_id: SourceId,
    },
}

/// Looks at the first fragment of a file of frames; returns the run that it was made for.
///
/// # Errors
/// A [`FramesFileError`].
pub fn run_of_frames(path: &Path, source: SourceId) -> Result<RunNumber, FramesFileError> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(FramesFileError::NoFile);
    }
    let mut file = BufReader::new(File::open(path)?);
    let mut read = |words: usize, otherwise: FramesFileError| {
        let mut buffer = vec![0_u32; words];
        match file.read_exact(buffer.as_mut_bytes()) {
            Ok(()) => Ok(buffer),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(otherwise),
            Err(error) => Err(error.into()),
        }
    };
    let head = read(HEADER_WORDS, FramesFileError::NoFrame)?;
    let head = head.first_chunk().map(FrameHeader::parse);
    let is_first = |header: &FrameHeader| header.begins_block && header.number == 0;
    let header = head.and_then(Result::ok).filter(is_first);
    let header = header.ok_or(FramesFileError::NoFrame)?;
    let words = read(header.data_words, FramesFileError::NoFragment)?;
    let first = FragmentHeader::parse(&words).map_err(|_| FramesFileError::NoFragment)?;
    if first.source != source {
        let found = first.source;
        return Err(FramesFileError::Source { found });
    }
    if first.trigger_low != TriggerNumber::FIRST.low() {
        let found = first.trigger_low;
        return Err(FramesFileError::Trigger { found });
    }
    Ok(first.run)
}

/// What a file of frames holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramesFound {
    /// Fragments that begin in it.
    pub fragments: u64,
    /// Where the first frame begins that is not whole, is none, or does not follow the one before it, in
    /// bytes from the start.
    pub breaks_off: Option<u64>,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Looks at the header of every fragment of a file of frames: the fragment in place `n` must be that
/// of trigger `n`, or the run would file it under another trigger. Payload is passed over. Where the
/// file breaks off, or goes on with what is no frame or one of another block, the look ends, as playing
/// it will.
///
/// # Errors
/// A [`FramesFileError`].
pub fn check_frames_file(path: &Path, source: SourceId) -> Result<FramesFound, FramesFileError> {
    run_of_frames(path, source)?;
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut file = BufReader::with_capacity(1 << 18, file);
    let (mut fragments, mut at, mut in_block) = (0_u64, 0, false);
    for number in 0.. {
        let mut head = [0; HEADER_WORDS];
        if at >= bytes || !read_whole(&mut file, &mut head)? {
            break;
        }
        let block = fragments - u64::from(in_block);
        let follows = |header: &FrameHeader| {
            let is_of_block = header.block_low == block as u32 && header.begins_block != in_block;
            header.number == number && is_of_block
        };
        let Some(header) = (FrameHeader::parse(&head).ok()).filter(follows) else {
            break;
        };
        in_block = !header.ends_block;
        let mut words_left = header.data_words;
        if header.begins_block {
            let mut first = [0; fragment::HEADER_WORDS];
            let first = &mut first[..words_left.min(fragment::HEADER_WORDS)];
            if !read_whole(&mut file, first)? {
                break;
            }
            words_left -= first.len();
            check_place(first, source, fragments + 1)?;
            fragments += 1;
        }
        let end = at + 4 * (HEADER_WORDS + header.data_words) as u64;
        if end > bytes {
            break;
        }
        at = end;
        file.seek_relative(4 * words_left as i64)?;
    }
    Ok(FramesFound {
        fragments,
        breaks_off: (at < bytes).then_some(at),
        bytes,
    })
}

/// Whether the first words of a block are those of the fragment of trigger `place`.
fn check_place(words: &[u32], source: SourceId, place: u64) -> Result<(), FramesFileError> {
    let header = FragmentHeader::parse(words).ok();
    let Some(header) = header.filter(|header| header.source == source) else {
        let source_id = source;
        return Err(FramesFileError::Block { place, source_id });
    };
    let found = header.trigger_low;
    if found != TriggerNumber(place).low() {
        return Err(FramesFileError::Order { place, found });
    }
    Ok(())
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

    use super::super::stream_link::{StreamError, StreamLink, StreamSource};
    use super::*;

    const SOURCE: SourceId = SourceId(0x51_0000);

    /// A file of fragments of these triggers and sources, 20 000 words each in the middle one.
    fn file_of(fragments: &[(u64, SourceId)]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut source = StreamSource::new(Vec::new());
        for (index, (trigger, of)) in fragments.iter().enumerate() {
            let header = FragmentHeader {
                source: *of,
                run: RunNumber(7),
                trigger_low: TriggerNumber(*trigger).low(),
                bunch: 0,
                trigger_type: 0,
                event_type: 0,
            };
            let data_words = if index == 1 { 20_000 } else { 5 };
            let mut words = vec![0; data_words + fragment::OVERHEAD_WORDS];
            header.emit(0, data_words, &mut words, |data| data.fill(3));
            source.send(&words).unwrap();
        }
        file.write_all(source.output()).unwrap();
        file
    }

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
            let config = LinkConfig::default();
            let pages = HeapPages::new(0, config.pages, config.page_words);
            let mut link = StreamLink::new(&bytes[..], config, 0, pages);
            let played = loop {
                if let Err(error) = link.receive(RunNs(0), 1) {
                    break error;
                }
                while let Some(completed) = link.poll() {
                    link.recycle(completed.page).unwrap();
                }
            };
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
            matches!(error, FramesFileError::Block { place: 2, .. }),
            "{error}"
        );
    }
}
