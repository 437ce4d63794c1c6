//! The third column of the study: real runs on this machine, beside talk and model.
//!
//! Point to point is plain TCP over the loopback interface, message by message; event building is
//! the bench `builder`, the real units with real rings and pages on one core. Neither is the
//! hardware of the talk: the column says what the same quantity is here.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use serde_json::{Value, json};

use crate::bench::document::{median, rounded};
use crate::bench::{BenchError, BenchOptions, builder};

/// Sizes of the talk's range, bytes.
const SIZES: [usize; 6] = [46, 128, 512, 2048, 8192, 16_384];

/// What was measured here.
#[derive(Debug)]
pub(super) struct ThisMachine {
    /// Time of a message by size, microseconds.
    points: Vec<(usize, f64)>,
    /// Fragments of 2 KiB per second through the event builder.
    fragments_per_s: f64,
    /// Sources of its events.
    sources: f64,
    /// Rate under three times the best load, as a share of the best.
    overloaded: f64,
}

impl ThisMachine {
    /// Measures.
    ///
    /// # Errors
    /// [`BenchError`] when the machine refuses something, or the builder loses a fragment.
    pub(super) fn measure(quick: bool) -> Result<Self, BenchError> {
        let bytes = if quick { 8 << 20 } else { 64 << 20 };
        let rounds = if quick { 3 } else { 7 };
        let mut points = Vec::new();
        for size in SIZES {
            let times: Result<Vec<f64>, _> = (0..rounds).map(|_| message_us(size, bytes)).collect();
            let times =
                times.map_err(|error| BenchError::Simulation(format!("loopback: {error}")))?;
            points.push((size, median(&times)));
        }
        let document = builder::run(&BenchOptions {
            quick,
            realtime: false,
            directory: std::env::temp_dir(),
            machine: Value::Null,
        })?;
        let document = document.to_json();
        let number = |pointer: &str| document.pointer(pointer).and_then(Value::as_f64);
        let megabytes = number("/result/mb_per_s_by_page").unwrap_or(f64::NAN);
        Ok(Self {
            points,
            fragments_per_s: megabytes * 1e6 / 2048.0,
            sources: 8.0,
            overloaded: number("/ratio/overloaded_to_best_rate").unwrap_or(f64::NAN),
        })
    }

    /// The value beside a row of the talk, and what was run for it.
    pub(super) fn beside(&self, check: &str) -> Option<(f64, &'static str)> {
        const LOOPBACK: &str = "TCP over loopback";
        const BUILDER: &str = "event builder on one core, pages by number";
        let value = match check {
            "Myrinet p2p, slope in MB/s" => (self.slope_mb_s(), LOOPBACK),
            "Myrinet p2p, plateau in us" => (self.points.first()?.1, LOOPBACK),
            "EVB 16x16, barrel shifter, MB/s per node" => {
                (self.fragments_per_s * 2048.0 / 1e6, BUILDER)
            }
            "EVB 16x16 at 2 KiB, kHz" => (self.fragments_per_s / self.sources / 1e3, BUILDER),
            _ => return None,
        };
        value.0.is_finite().then_some(value)
    }

    /// Throughput for long messages: from the slope between two large sizes, the cost of a message cancels.
    fn slope_mb_s(&self) -> f64 {
        let [(small, short), (large, long)] = [self.points[3], self.points[5]];
        (large - small) as f64 / (long - short)
    }

    /// Throughput against size, MB/s.
    pub(super) fn throughput(&self) -> Vec<(f64, f64)> {
        let point = |(size, time): &(usize, f64)| (*size as f64, *size as f64 / time);
        self.points.iter().map(point).collect()
    }

    /// For the document.
    pub(super) fn to_json(&self) -> Value {
        let points = self
            .points
            .iter()
            .map(|(size, time)| json!({ "bytes": size, "us": rounded(*time) }));
        json!({
            "measured": true,
            "loopback_tcp": points.collect::<Vec<_>>(),
            "builder_fragments_per_s": rounded(self.fragments_per_s),
            "builder_overloaded_to_best_rate": rounded(self.overloaded),
        })
    }
}

/// Time of a message of `size` bytes over loopback, microseconds: `bytes` in messages of that size,
/// one write each, no delay, until the receiver has all.
fn message_us(size: usize, bytes: usize) -> std::io::Result<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    // Before anybody waits to accept it: it may fail.
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    let count = (bytes / size.max(512)).max(1);
    let all = count * size;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut buffer = vec![0; 1 << 18];
            let mut left = all;
            while left > 0 {
                match stream.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    read => left -= read,
                }
            }
            stream.write_all(&[1])
        });
        stream.set_nodelay(true)?;
        let message = vec![0x5A; size];
        let start = Instant::now();
        for _ in 0..count {
            stream.write_all(&message)?;
        }
        stream.read_exact(&mut [0])?;
        let time = start.elapsed().as_secs_f64();
        match receiver.join() {
            Ok(received) => received?,
            Err(_) => return Err(std::io::Error::other("the receiving thread ended")),
        }
        Ok(time * 1e6 / count as f64)
    })
}
