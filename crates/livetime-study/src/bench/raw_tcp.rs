//! Bare TCP, as the floor of [`super::builder_network`]: as many bytes through as many streams, as many
//! bytes a `writev`, on as many threads, with the same congestion control, from pages of the same
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
use super::pinned_threads::{Body, Patience, time_each};

/// Most pieces of one call.
const SLICES_MAX: usize = 256;

/// Bare TCP: the two ends of each stream, those of a readout unit one after the other.
pub(super) struct RawTcp {
    shape: Shape,
    writers: Vec<End>,
    readers: Vec<End>,
}

/// Which threads there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Threads {
    /// One sends through all streams, one receives.
    Two,
    /// One for the streams of each unit.
    OfUnits,
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
        let pairs = shape.pairs() as usize;
        let page_bytes = shape.fragment_bytes() as usize;
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let (near, far) = streams()?;
            writers.push(End::new(near, page_bytes, in_use.sent_from / pairs)?);
            readers.push(End::new(far, page_bytes, in_use.received_into / pairs)?);
        }
        Ok(Self {
            shape,
            writers,
            readers,
        })
    }

    /// Sends `bytes` through every stream, `per_call` a `writev`; bytes per second of all.
    pub(super) fn measure(
        &mut self,
        threads: Threads,
        bytes: u64,
        per_call: usize,
    ) -> Result<f64, BenchError> {
        let total = bytes * self.writers.len() as u64;
        let builder_units = usize::from(self.shape.builder_units);
        let (senders, receivers) = match threads {
            Threads::Two => (1, 1),
            Threads::OfUnits => (usize::from(self.shape.readout_units), builder_units),
        };
        let streams_of_sender = self.writers.len() / senders;
        let mut bodies: Vec<Body<'_>> = Vec::new();
        for ends in self.writers.chunks_mut(streams_of_sender) {
            bodies.push(Box::new(move |patience| {
                send(ends, bytes, per_call, patience)
            }));
        }
        let mut of_receivers: Vec<Vec<&mut End>> = (0..receivers).map(|_| Vec::new()).collect();
        for (stream, end) in self.readers.iter_mut().enumerate() {
            of_receivers[stream % builder_units % receivers].push(end);
        }
        for ends in of_receivers {
            bodies.push(Box::new(move |patience| {
                receive(ends, bytes, per_call, patience)
            }));
        }
        Ok(total as f64 / time_each(bodies)?)
    }
}

/// Sends so many bytes through each stream.
fn send(
    ends: &mut [End],
    bytes: u64,
    per_call: usize,
    mut patience: Patience<'_>,
) -> Result<(), BenchError> {
    let mut left = vec![bytes; ends.len()];
    while left.iter().any(|left| *left > 0) {
        let mut moved = 0;
        for (end, left) in ends.iter_mut().zip(&mut left) {
            let call = (*left).min(per_call.max(1) as u64);
            let taken = end.write(call as usize)?;
            *left -= taken;
            moved += taken;
        }
        patience.after(moved > 0)?;
    }
    Ok(())
}

/// Receives so many bytes from each stream.
fn receive(
    mut ends: Vec<&mut End>,
    bytes: u64,
    per_call: usize,
    mut patience: Patience<'_>,
) -> Result<(), BenchError> {
    let mut left = bytes * ends.len() as u64;
    while left > 0 {
        let mut moved = 0;
        for end in &mut ends {
            moved += end.read(per_call)?;
        }
        left -= moved;
        patience.after(moved > 0)?;
    }
    Ok(())
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
