//! What of the Level-3 note can be measured on this machine: the stage with subfarms in memory and
//! over streams, a stream with small buffers, the shortest sleep, and copies.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use livetime_node::{BuilderTransport, Chain, ChainConfig, RunFile};
use livetime_shm::floor::memcpy_through_pool;
use livetime_shm::{HugePages, PagePool, PoolConfig};
use livetime_source::{ArrivalKind, OfferMode};
use livetime_store::RunBegin;
use livetime_wire::{ByteSize, RunNumber};
use nix::sys::socket::{setsockopt, sockopt};

use super::{EVENT_BYTES, FRAGMENT_BYTES};
use crate::bench::document::median;
use crate::bench::{BenchError, chain, farm};

/// Events that are sent over a stream with buffers of one size.
const STREAM_EVENTS: usize = 400;
/// Events before them that are not timed.
const STREAM_WARM_UP: usize = 20;
/// Sleeps that are timed.
const SLEEPS: usize = 200;

/// A stage that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stage {
    pub(super) subfarms: u16,
    /// Of all subfarms.
    pub(super) filter_units: u16,
    /// Whether events go to filter units over TCP.
    pub(super) over_tcp: bool,
}

/// MB/s of the whole stage on this machine.
pub(super) fn measure(stage: Stage, time: Duration) -> Result<f64, BenchError> {
    let mut config: ChainConfig = farm::stage_config();
    config.source.triggers.arrival.kind = ArrivalKind::Unpaced;
    config.source.triggers.mode = OfferMode::Lossless;
    config.source.fragment.bytes_mean = ByteSize(FRAGMENT_BYTES);
    config.source.fragment.bytes_max = ByteSize(FRAGMENT_BYTES);
    config.builder.subfarms = stage.subfarms;
    config.builder.builder_units = config.builder.builder_units.max(stage.subfarms);
    config.builder.filter_units = stage.filter_units;
    if stage.over_tcp {
        config.filter_transport = BuilderTransport::Tcp { congestion: None };
    }
    config.workers = chain::workers(&config);
    let file = RunFile::discarding(&RunBegin::new(RunNumber(1)), config.store)?;
    let chain = Chain::start(&config, file)?;
    thread::sleep(time / 4);
    let before = chain.snapshot();
    thread::sleep(time);
    let after = chain.snapshot();
    chain::end_in_order(chain)?;
    let filtered =
        |counts: livetime_wire::ChainCounts| counts.filter_accepted + counts.filter_rejected;
    let events = filtered(after.counts()) - filtered(before.counts());
    let seconds = after.at.since(before.at).as_seconds().max(1e-9);
    Ok(events as f64 * EVENT_BYTES / seconds / 1e6)
}

/// Copies through pages of 64 KiB on this machine \[GB/s\].
pub(super) fn copy_speed() -> Result<f64, BenchError> {
    let pool = PagePool::create(&PoolConfig {
        pages: 256,
        page_bytes: 64 * 1024,
        huge_pages: HugePages::Prefer,
    })?;
    Ok(memcpy_through_pool(&pool, 256 << 20)?.gb_per_s())
}

/// Median of the shortest sleep that can be asked for \[ms\].
pub(super) fn shortest_sleep_ms() -> f64 {
    let sleeps = (0..SLEEPS).map(|_| {
        let begin = Instant::now();
        thread::sleep(Duration::from_nanos(1));
        begin.elapsed().as_secs_f64() * 1e3
    });
    median(&sleeps.collect::<Vec<f64>>())
}

/// The largest receive buffer that this machine gives a socket \[kB\], where it says so.
pub(super) fn receive_buffer_max_kb() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?;
    let bytes: f64 = text.trim().parse().ok()?;
    Some(bytes / 1e3)
}

/// MB/s of a processor that reads events of 150 kB from a stream whose sockets have buffers of so
/// many bytes each, and works for `work` on each event.
pub(super) fn stream_mb_per_s(buffer_bytes: usize, work: Duration) -> Result<f64, BenchError> {
    let failed = |source| BenchError::File {
        step: "sending events over a stream",
        source,
    };
    let [mut near, mut far] = streams(buffer_bytes).map_err(failed)?;
    let events = STREAM_WARM_UP + STREAM_EVENTS;
    let sender = thread::spawn(move || -> io::Result<()> {
        let event = vec![1_u8; EVENT_BYTES as usize];
        (0..events).try_for_each(|_| near.write_all(&event))
    });
    let mut event = vec![0_u8; EVENT_BYTES as usize];
    let mut begin = Instant::now();
    for nth in 0..events {
        if nth == STREAM_WARM_UP {
            begin = Instant::now();
        }
        far.read_exact(&mut event).map_err(failed)?;
        let read_at = Instant::now();
        while read_at.elapsed() < work {
            std::hint::spin_loop();
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    match sender.join() {
        Ok(sent) => sent.map_err(failed)?,
        Err(_) => return Err(BenchError::Stuck),
    }
    Ok(STREAM_EVENTS as f64 * EVENT_BYTES / seconds / 1e6)
}

fn streams(buffer_bytes: usize) -> io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Before the connection is made: its window follows from the buffer.
    setsockopt(&listener, sockopt::RcvBuf, &buffer_bytes)?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    setsockopt(&near, sockopt::SndBuf, &buffer_bytes)?;
    near.set_nodelay(true)?;
    let (far, _) = listener.accept()?;
    Ok([near, far])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_carries_its_events_whatever_its_buffers() {
        for buffer in [4 * 1024, 1 << 20] {
            assert!(stream_mb_per_s(buffer, Duration::ZERO).unwrap() > 0.0);
        }
        assert!(shortest_sleep_ms() > 0.0);
    }

    #[test]
    fn subfarms_over_streams_pass_events() {
        let stage = Stage {
            subfarms: 2,
            filter_units: 2,
            over_tcp: true,
        };
        // On a busy machine the first events take a while.
        let mut times = [40, 400, 4000].map(Duration::from_millis).into_iter();
        assert!(times.any(|time| measure(stage, time).unwrap() > 0.0));
    }
}
