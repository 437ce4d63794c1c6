//! Bare TCP, as the floor of [`super::builder_network`]: as many bytes through as many streams, as many
//! bytes a `writev`, from pages of the same size, on the same two threads, with the same congestion
//! control, and read into pages.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::BenchError;
use super::builder::Shape;
use super::builder_network::{streams, system};
use super::two_cores::run_pair;

/// Most pieces of one call.
const SLICES_MAX: usize = 64;

/// Bare TCP: streams, pages at both ends.
pub(super) struct RawTcp {
    writers: Vec<TcpStream>,
    readers: Vec<TcpStream>,
    page: Vec<u8>,
    pages: Vec<Vec<u8>>,
}

impl RawTcp {
    pub(super) fn new(shape: Shape) -> Result<Self, BenchError> {
        let pairs = usize::from(shape.readout_units) * usize::from(shape.builder_units);
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let (near, far) = streams()?;
            for stream in [&near, &far] {
                let set = stream.set_nonblocking(true).and(stream.set_nodelay(true));
                set.map_err(system("setting up a stream"))?;
            }
            writers.push(near);
            readers.push(far);
        }
        let page_bytes = shape.fragment_bytes() as usize;
        Ok(Self {
            writers,
            readers,
            page: vec![0x5A; page_bytes],
            pages: vec![vec![0; page_bytes]; SLICES_MAX],
        })
    }

    /// Sends `bytes` through every stream, `per_call` a `writev`; bytes per second of all.
    pub(super) fn measure(&mut self, bytes: u64, per_call: usize) -> Result<f64, BenchError> {
        let Self {
            writers,
            readers,
            page,
            pages,
        } = self;
        let start = Instant::now();
        let total = bytes * writers.len() as u64;
        run_pair(
            |mut patience| {
                let mut left = vec![bytes; writers.len()];
                while left.iter().any(|left| *left > 0) {
                    let mut moved = 0;
                    for (stream, left) in writers.iter_mut().zip(&mut left) {
                        let call = (*left).min(per_call.max(1) as u64) as usize;
                        let pieces = call.div_ceil(page.len()).min(SLICES_MAX);
                        let slices: Vec<IoSlice<'_>> = (0..pieces)
                            .map(|n| IoSlice::new(&page[..page.len().min(call - n * page.len())]))
                            .collect();
                        let taken =
                            moved_bytes(stream.write_vectored(&slices), "writing bare TCP")?;
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
                    for stream in readers.iter_mut() {
                        let pieces = per_call.div_ceil(page_len(pages)).clamp(1, SLICES_MAX);
                        let mut slices: Vec<IoSliceMut<'_>> = pages[..pieces]
                            .iter_mut()
                            .map(|page| IoSliceMut::new(page))
                            .collect();
                        moved +=
                            moved_bytes(stream.read_vectored(&mut slices), "reading bare TCP")?;
                    }
                    came += moved;
                    patience.after(moved > 0)?;
                }
                Ok(())
            },
        )?;
        Ok(total as f64 / start.elapsed().as_secs_f64())
    }
}

fn page_len(pages: &[Vec<u8>]) -> usize {
    pages.first().map_or(1, Vec::len).max(1)
}

/// Bytes of a call on a stream that does not block.
fn moved_bytes(result: std::io::Result<usize>, step: &'static str) -> Result<u64, BenchError> {
    match result {
        Ok(bytes) => Ok(bytes as u64),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(source) => Err(BenchError::File { step, source }),
    }
}
