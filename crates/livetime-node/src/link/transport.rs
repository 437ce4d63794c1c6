//! What a data link of a run travels over, as configured.
//!
//! Typed values only; the links themselves are made in [`super::fragment_link`].

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use livetime_wire::fragment::FragmentHeader;
use livetime_wire::link_frame::{FrameHeader, HEADER_WORDS};
use livetime_wire::{RunNumber, SourceId, TriggerNumber};
use zerocopy::IntoBytes;

use super::udp_link::UdpConfig;

/// Data words of a datagram that fills an Ethernet frame of 1500 bytes.
pub const DATAGRAM_WORDS: usize = 362;

/// What the fragments of a data link travel over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LinkTransport {
    /// An emulated S-LINK, free of loss.
    #[default]
    Emulated,
    /// Datagrams over the loopback interface.
    Udp {
        /// The receiving end.
        config: UdpConfig,
        /// Data words of a datagram, 1 to 16 370.
        datagram_words: usize,
    },
    /// A stream over the loopback interface.
    Tcp,
    /// Fragments of a file of frames, one per trigger in the order of the triggers.
    File {
        /// The file.
        path: PathBuf,
    },
}

impl LinkTransport {
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
}

/// Looks at the first fragment of a file of frames; returns the run that it was made for.
///
/// # Errors
/// A [`FramesFileError`].
pub fn run_of_frames(path: &Path, source: SourceId) -> Result<RunNumber, FramesFileError> {
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
    let fragment = FragmentHeader::parse(&words).map_err(|_| FramesFileError::NoFragment)?;
    if fragment.source != source {
        let found = fragment.source;
        return Err(FramesFileError::Source { found });
    }
    if fragment.trigger_low != TriggerNumber::FIRST.low() {
        let found = fragment.trigger_low;
        return Err(FramesFileError::Trigger { found });
    }
    Ok(fragment.run)
}
