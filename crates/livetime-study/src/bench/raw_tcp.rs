//! Bare TCP, as the floor of [`super::builder_network`]: as many bytes through as many streams, as many
//! bytes a `writev`, on the same two threads, with the same congestion control, from pages of the same
//! size and into such pages.
//!
//! Each end goes round as many pages as the units had in use, one after the other, as fragments lie in
//! theirs. A thread that sends one page again and again has it in its core's own cache, as no sender of
//! data has: such a floor says how far away memory is, not what the builder costs. A `writev` has as
//! many bytes as one of the builder with its messages. Left out is all that the builder adds: what it
//! does with messages both ways, the CRC of each fragment, and that units wait for each other.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;

use super::BenchError;
use super::builder::Shape;
use super::builder_network::{PagesInUse, streams, system};
use super::two_cores::time_pair;

/// Most pieces of one call.
const SLICES_MAX: usize = 256;

/// Bare TCP: the two ends of each stream.
pub(super) struct RawTcp {
    writers: Vec<End>,
    readers: Vec<End>,
}

/// One end of a stream and the pages that it goes round.
struct End {
    stream: TcpStream,
    pages: Vec<Vec<u8>>,
    /// Which page is next, and how many bytes of it are done.
    page: usize,
    done: usize,
}

impl RawTcp {
    /// Streams for each pair of units, whose ends go round their share of so many pages.
    pub(super) fn new(shape: Shape, in_use: PagesInUse) -> Result<Self, BenchError> {
        let pairs = usize::from(shape.readout_units) * usize::from(shape.builder_units);
        let page_bytes = shape.fragment_bytes() as usize;
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let (near, far) = streams()?;
            writers.push(End::new(near, page_bytes, in_use.sent_from / pairs)?);
            readers.push(End::new(far, page_bytes, in_use.received_into / pairs)?);
        }
        Ok(Self { writers, readers })
    }

    /// Sends `bytes` through every stream, `per_call` a `writev`; bytes per second of all.
    pub(super) fn measure(&mut self, bytes: u64, per_call: usize) -> Result<f64, BenchError> {
        let Self { writers, readers } = self;
        let total = bytes * writers.len() as u64;
        let seconds = time_pair(
            |mut patience| {
                let mut left = vec![bytes; writers.len()];
                while left.iter().any(|left| *left > 0) {
                    let mut moved = 0;
                    for (end, left) in writers.iter_mut().zip(&mut left) {
                        let call = (*left).min(per_call.max(1) as u64);
                        let taken = end.write(call as usize)?;
                        *left -= taken;
                        moved += taken;
                    }
                    patience.after(moved > 0)?;
                }
                Ok(())
            },
            |mut patience| {
                let mut came = 0;
                while came < total {
                    let mut moved = 0;
                    for end in readers.iter_mut() {
                        moved += end.read(per_call)?;
                    }
                    came += moved;
                    patience.after(moved > 0)?;
                }
                Ok(())
            },
        )?;
        Ok(total as f64 / seconds)
    }
}

impl End {
    fn new(stream: TcpStream, page_bytes: usize, pages: usize) -> Result<Self, BenchError> {
        let set = stream.set_nonblocking(true).and(stream.set_nodelay(true));
        set.map_err(system("setting up a stream"))?;
        Ok(Self {
            stream,
            pages: vec![vec![0x5A; page_bytes]; pages.max(1)],
            page: 0,
            done: 0,
        })
    }

    /// Writes so many bytes, or as many as the kernel takes.
    fn write(&mut self, bytes: usize) -> Result<u64, BenchError> {
        let (before, from) = self.pages.split_at(self.page);
        let (mut left, mut skip) = (bytes, self.done);
        let mut slices = Vec::with_capacity(SLICES_MAX);
        for page in from.iter().chain(before).take(SLICES_MAX) {
            let piece = &page[skip..];
            let piece = &piece[..piece.len().min(left)];
            if piece.is_empty() {
                break;
            }
            slices.push(IoSlice::new(piece));
            left -= piece.len();
            skip = 0;
        }
        let taken = moved_bytes(self.stream.write_vectored(&slices), "writing bare TCP")?;
        self.advance(taken);
        Ok(taken)
    }

    /// Reads what is there, at most so many bytes.
    fn read(&mut self, bytes: usize) -> Result<u64, BenchError> {
        let pieces = bytes.div_ceil(self.pages[0].len()).clamp(1, SLICES_MAX);
        let (before, from) = self.pages.split_at_mut(self.page);
        let mut skip = self.done;
        let mut slices = Vec::with_capacity(pieces);
        for page in from.iter_mut().chain(before).take(pieces) {
            slices.push(IoSliceMut::new(&mut page[skip..]));
            skip = 0;
        }
        let came = moved_bytes(self.stream.read_vectored(&mut slices), "reading bare TCP")?;
        self.advance(came);
        Ok(came)
    }

    fn advance(&mut self, bytes: u64) {
        let page_bytes = self.pages[0].len();
        let done = self.done + bytes as usize;
        self.page = (self.page + done / page_bytes) % self.pages.len();
        self.done = done % page_bytes;
    }
}

/// Bytes of a call on a stream that does not block.
fn moved_bytes(result: std::io::Result<usize>, step: &'static str) -> Result<u64, BenchError> {
    match result {
        Ok(bytes) => Ok(bytes as u64),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(source) => Err(BenchError::File { step, source }),
    }
}
