//! `livetime bench NAME`: measurements of this machine.

use std::process::ExitCode;
use std::time::Duration;

use livetime_shm::floor::{
    FloorError, POLL_GAP_BOUNDS_NS, Samples, TcpWait, cache_line_ping_pong, eventfd_round_trip,
    memcpy_through_pool, pipe_round_trip, poll_gap_histogram, tcp_round_trip,
};
use livetime_shm::{HugePages, PagePool, PoolConfig, allowed_cpus};
use serde_json::{Map, Value, json};

use crate::console::{print, print_line, say};
use crate::exit;
use crate::run_summary::machine;

/// Bytes carried each way: nothing, a 34-word event, a 126-word event.
const BYTES: [usize; 3] = [8, 136, 504];
const PING_PONG_ROUNDS: u32 = 200_000;
const KERNEL_ROUNDS: u32 = 5_000;
const COPY_BYTES: u64 = 4 << 30;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to measure
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What the bare machine does: cache line, memory, pipe, eventfd, TCP, gaps of a polling thread
    Floor(FloorOptions),
}

#[derive(Debug, clap::Args)]
struct FloorOptions {
    /// Print one JSON document (livetime.bench/1)
    #[arg(long)]
    json: bool,
}

/// Measures.
pub(crate) fn run(options: &Options) -> ExitCode {
    let What::Floor(floor) = &options.what;
    match measure_floor() {
        Ok(result) if floor.json => {
            let document = json!({
                "schema": "livetime.bench/1",
                "bench": "floor",
                "machine": machine(),
                "floor": result,
            });
            exit::after_printing(print_line(document))
        }
        Ok(result) => exit::after_printing(print(floor_text(&result))),
        Err(error) => {
            say(format_args!(
                "error: the floor could not be measured: {error}"
            ));
            exit::PROBLEM
        }
    }
}

/// Samples in the form of all latency objects, without a bound.
fn latency(samples: &Samples) -> Value {
    json!({
        "count": samples.count(),
        "min": samples.min(),
        "mean": samples.mean(),
        "p50": samples.p50(),
        "p90": samples.p90(),
        "p99": samples.p99(),
        "p99_9": samples.p99_9(),
        "p99_99": samples.p99_99(),
        "max": samples.max(),
    })
}

fn measure_floor() -> Result<Map<String, Value>, Box<dyn std::error::Error>> {
    let mut result = Map::new();
    for bytes in BYTES {
        let measured = cache_line_ping_pong(bytes, PING_PONG_ROUNDS)?;
        let name = format!("cache_line_round_trip_{bytes}_bytes");
        result.insert(name, latency(&measured.round_trip));
    }
    let kernel: [(&str, Result<_, FloorError>); 4] = [
        (
            "pipe_round_trip_136_bytes",
            pipe_round_trip(136, KERNEL_ROUNDS),
        ),
        ("eventfd_round_trip", eventfd_round_trip(KERNEL_ROUNDS)),
        (
            "tcp_round_trip_136_bytes_polling",
            tcp_round_trip(136, KERNEL_ROUNDS, TcpWait::Polling),
        ),
        (
            "tcp_round_trip_136_bytes_blocking",
            tcp_round_trip(136, KERNEL_ROUNDS, TcpWait::Blocking),
        ),
    ];
    for (name, measured) in kernel {
        result.insert(name.to_owned(), latency(&measured?.round_trip));
    }
    let pages = PoolConfig {
        pages: 4096,
        page_bytes: 4096,
        huge_pages: HugePages::Prefer,
    };
    let copy = memcpy_through_pool(&PagePool::create(&pages)?, COPY_BYTES)?;
    result.insert(
        "memcpy_through_pool".to_owned(),
        json!({ "gb_per_s": copy.gb_per_s(), "page_bytes": 4096, "pages": copy.pages }),
    );
    let cpu = allowed_cpus().last().copied().unwrap_or(0);
    let gaps = poll_gap_histogram(Duration::from_secs(2), cpu)?;
    let above: Map<String, Value> = POLL_GAP_BOUNDS_NS
        .iter()
        .enumerate()
        .map(|(i, bound)| (format!("above_{bound}_ns_per_s"), json!(gaps.per_second(i))))
        .collect();
    result.insert(
        "poll_gaps".to_owned(),
        json!({ "core": cpu, "lost_fraction": gaps.lost_fraction(), "max": gaps.gaps.max(), "rates": above }),
    );
    Ok(result)
}

fn floor_text(result: &Map<String, Value>) -> String {
    let mut text = format!(
        "{:<40}{:>10}{:>10}{:>10}{:>10}{:>12}  ns\n",
        "floor", "min", "p50", "p99", "p99.9", "max"
    );
    for (name, value) in result
        .iter()
        .filter(|(_, value)| value.get("p50").is_some())
    {
        let ns = |key: &str| value[key].as_u64().unwrap_or(0);
        text += &format!(
            "{name:<40}{:>10}{:>10}{:>10}{:>10}{:>12}\n",
            ns("min"),
            ns("p50"),
            ns("p99"),
            ns("p99_9"),
            ns("max")
        );
    }
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    text += &format!(
        "memcpy through a 16 MiB pool: {:.1} GB/s\n",
        number(&result["memcpy_through_pool"]["gb_per_s"])
    );
    let gaps = &result["poll_gaps"];
    text += &format!(
        "polling thread on core {}: {:.2} % of the time lost in gaps above 1 us, longest {} ns\n",
        gaps["core"],
        number(&gaps["lost_fraction"]) * 100.0,
        gaps["max"]
    );
    if let Some(rates) = gaps["rates"].as_object() {
        for (name, rate) in rates {
            text += &format!("  {name:<30}{:>10.1}\n", number(rate));
        }
    }
    text
}
