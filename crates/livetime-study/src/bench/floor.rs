//! `floor`: what the bare machine does, without anything of ours.
//!
//! Cache lines to the other core and back, memory copies through a page pool, the kernel's ways to
//! wake a thread, and the time that a polling thread loses. All other benches are read beside it,
//! but each measures the floors it needs again, next to its own blocks.

use std::time::Duration;

use livetime_shm::floor::{
    POLL_GAP_BOUNDS_NS, TcpWait, cache_line_ping_pong, eventfd_round_trip, memcpy_through_pool,
    pipe_round_trip, poll_gap_histogram, tcp_round_trip,
};
use livetime_shm::{HugePages, PagePool, PoolConfig, two_cpus};
use serde_json::{Map, Value, json};

use super::document::{BenchDocument, latency, median, rounded};
use super::interleave::LineFloor;
use super::{BenchError, BenchOptions, pinned_threads};

/// Bytes of a 34-word event and of a 126-word event.
const PAYLOADS: [usize; 2] = [136, 504];
/// Pages of the copies: of this many bytes, and so many that they fill 16 MiB.
const PAGE_BYTES: [u32; 2] = [4096, 64 * 1024];
const POOL_BYTES: u32 = 16 << 20;
const COPIES: usize = 5;

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let (lines, wake_ups, copy_bytes, gaps) = if options.quick {
        (2_000, 100, 16 << 20, Duration::from_millis(50))
    } else {
        (200_000, 5_000, 1 << 30, Duration::from_secs(2))
    };
    let mut document = BenchDocument::new("floor");
    let line = LineFloor::measure(&[], lines)?;
    document.add_floor("placement", line.placement().key());
    document.add_floor("cache_line_round_trip_ns", latency(&line.bare));
    for bytes in PAYLOADS {
        let measured = cache_line_ping_pong(bytes, lines)?;
        let name = format!("cache_line_round_trip_{bytes}_bytes_ns");
        document.add_floor(name, latency(&measured.round_trip));
    }
    for (name, measured) in [
        ("eventfd_round_trip_ns", eventfd_round_trip(wake_ups)),
        (
            "pipe_round_trip_136_bytes_ns",
            pipe_round_trip(136, wake_ups),
        ),
        (
            "tcp_round_trip_136_bytes_polling_ns",
            tcp_round_trip(136, wake_ups, TcpWait::Polling),
        ),
        (
            "tcp_round_trip_136_bytes_blocking_ns",
            tcp_round_trip(136, wake_ups, TcpWait::Blocking),
        ),
    ] {
        document.add_floor(name, latency(&measured?.round_trip));
    }
    for page_bytes in PAGE_BYTES {
        let gb_per_s = pinned_threads::run_alone(|| copy_speed(page_bytes, copy_bytes))?;
        document.add_floor(
            format!("memcpy_{page_bytes}_byte_pages_gb_per_s"),
            rounded(gb_per_s),
        );
    }
    document.add_floor("poll_gaps", poll_gaps(gaps)?);
    Ok(document)
}

/// The median speed of copying through a pool of pages.
fn copy_speed(page_bytes: u32, bytes: u64) -> Result<f64, BenchError> {
    let pages = POOL_BYTES / page_bytes;
    let pool = PagePool::create(&PoolConfig {
        pages,
        page_bytes,
        huge_pages: HugePages::Prefer,
    })?;
    let speeds: Result<Vec<f64>, BenchError> = (0..COPIES)
        .map(|_| Ok(memcpy_through_pool(&pool, bytes / COPIES as u64)?.gb_per_s()))
        .collect();
    Ok(median(&speeds?))
}

/// How often and how long a polling thread is kept from polling.
fn poll_gaps(time: Duration) -> Result<Value, BenchError> {
    let core = two_cpus()[1];
    let gaps = poll_gap_histogram(time, core)?;
    let rates: Map<String, Value> = POLL_GAP_BOUNDS_NS
        .iter()
        .enumerate()
        .map(|(i, bound)| {
            (
                format!("above_{bound}_ns_per_s"),
                rounded(gaps.per_second(i)),
            )
        })
        .collect();
    Ok(json!({
        "core": core,
        "lost_fraction": rounded(gaps.lost_fraction()),
        "max_ns": gaps.gaps.max(),
        "rates": rates,
    }))
}
