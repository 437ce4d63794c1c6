//! What `livetime sim run` says of packets in a network: its part of document and summary.

use livetime_fabric::network::NetworkOutcome;
use livetime_wire::DurationNs;
use serde_json::{Value, json};

use super::latencies::latency_summary;
use super::rate_words::{RATE_DIGITS, rate_words};
use super::run::peak_rss_bytes;

/// Sources of packets in a deadlock that document and summary name.
const SOURCES_NAMED_MAX: usize = 16;

/// Adds the numbers of `rails` equal networks, of which one was simulated, to the document of a run that
/// took so many seconds.
pub(super) fn extend_json(
    document: &mut Value,
    network: &NetworkOutcome,
    rails: u32,
    seconds: f64,
) {
    let efficiency = network.efficiency_link;
    // What has not converged is no steady-state number and is not given as one.
    let steady = |value: f64| efficiency.converged.then_some(value);
    // Of nothing there is no share.
    let share = |value: f64| (network.packets > 0).then_some(value);
    let (count, rails) = (|packets| packets * u64::from(rails), f64::from(rails));
    let still = network.standstill.sources.iter().take(SOURCES_NAMED_MAX);
    let still: Vec<u32> = still.copied().collect();
    let rest = json!({
        "efficiency_link": steady(efficiency.mean),
        "efficiency_p2p": steady(network.efficiency_p2p),
        "event_rate_hz": steady(network.packets_per_source_hz * rails),
        "throughput_per_node_bytes_per_s": steady(network.throughput_per_node * rails),
        "losses": { "buffer_full": count(network.packets_lost) },
        "latency": latency_summary(&network.latency_ns),
        "converged": efficiency.converged,
        "deadlock": network.is_deadlocked(),
        "deadlock_sources": still,
        "overloaded": network.is_overloaded(),
        "sources_behind_s": network.sources_behind.0 as f64 * 1e-12,
        "ci95": efficiency.ci95,
        "mean_of_batches": efficiency.mean,
        "fairness_sources": share(network.fairness_sources),
        "fairness_destinations": share(network.fairness_destinations),
        "packets": {
            "offered": count(network.packets_offered),
            "delivered": count(network.packets_in_all),
            "lost": count(network.packets_lost),
            "in_flight": count(network.packets_in_flight),
            "deadlocked": count(network.packets_deadlocked()),
            "conserved": network.is_conserved(),
        },
        "simulated_s": network.simulated.0 as f64 * 1e-12,
        "trace_hash": network.trace_hash.to_string(),
        "events": network.events,
        "events_per_s": network.events as f64 / seconds.max(1e-9),
        "packets_per_s": network.packets_in_all as f64 / seconds.max(1e-9),
        "wall_s": seconds,
        "peak_rss_bytes": peak_rss_bytes(),
    });
    if let (Some(document), Value::Object(rest)) = (document.as_object_mut(), rest) {
        document.extend(rest);
    }
}

/// Who stands still for ever.
fn deadlock_text(network: &NetworkOutcome, rails: u64) -> String {
    let packets = network.packets_deadlocked() * rails;
    let simulated = network.simulated.0 as f64 * 1e-9;
    if !network.do_others_move() {
        return format!(
            "  deadlock          nothing moves from {simulated:.3} ms on: {packets} packets hold the links or \
             buffers that others of them wait for\n"
        );
    }
    let sources = &network.standstill.sources;
    let named = sources.iter().take(SOURCES_NAMED_MAX);
    let named: Vec<String> = named.map(u32::to_string).collect();
    let more = match sources.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "  deadlock          at the end, {simulated:.3} ms, {packets} packets stand still for ever: links or room \
         that they wait for will not be free.\n\
         \x20                   They are of sources {}{more}; others still move\n",
        named.join(", ")
    )
}

/// The figures of the steady state, or that there are none.
fn steady_text(network: &NetworkOutcome, rails: f64) -> String {
    let efficiency = network.efficiency_link;
    if network.is_deadlocked() {
        return deadlock_text(network, rails as u64);
    }
    if !efficiency.converged {
        let reason = match network.packets {
            0 => "nothing was delivered after the warm-up",
            _ => "with a trend or too few packets",
        };
        return format!(
            "  efficiency        not converged: {:.2} % +- {:.2} so far, {reason}\n\
             \x20                   raise `duration` or `packet_times`, or set `duration_max`; --csv shows it against time\n",
            100.0 * efficiency.mean,
            100.0 * efficiency.ci95
        );
    }
    format!(
        "  efficiency        {:.2} % of the links (95 % confidence +- {:.2}), {:.2} % of point to \
         point\n  throughput        {:.1} MB/s per node, {} of packets per source\n",
        100.0 * efficiency.mean,
        100.0 * efficiency.ci95,
        100.0 * network.efficiency_p2p,
        network.throughput_per_node * rails / 1e6,
        rate_words(network.packets_per_source_hz * rails, RATE_DIGITS)
    )
}

/// The summary of `rails` equal networks, of which one was simulated.
pub(super) fn to_text(network: &NetworkOutcome, rails: u32) -> String {
    let mut text = steady_text(network, rails.into());
    if network.packets > 0 {
        let latency = latency_summary(&network.latency_ns);
        let steady = match network.is_overloaded() {
            true => "not steady, so far ",
            false => "",
        };
        text += &format!(
            "  latency           {steady}median {}, 99.9 % {}, max {} (simulated)\n",
            DurationNs(latency.p50),
            DurationNs(latency.p99_9),
            DurationNs(latency.max)
        );
    }
    let count = |packets: u64| packets * u64::from(rails);
    let of_rails = match rails {
        1 => String::new(),
        rails => format!(" ({rails} rails)"),
    };
    text += &format!(
        "  packets           {} offered = {} delivered + {} lost at full buffers + {} in flight{of_rails}\n",
        count(network.packets_offered),
        count(network.packets_in_all),
        count(network.packets_lost),
        count(network.packets_in_flight)
    );
    if network.is_overloaded() && !network.is_deadlocked() {
        text += &format!(
            "  overloaded        more arrives than the network takes: in the end packets are delivered {} \
             after they arrived,\n\
             \x20                   and latencies grow with the length of the run ({})\n",
            DurationNs(network.sources_behind.max(network.latency_at_end).0 / 1_000),
            DurationNs(network.simulated.0 / 1_000)
        );
    }
    if network.packets > 0 {
        text += &format!(
            "  fairness          {:.3} of sources, {:.3} of destinations (Jain)\n",
            network.fairness_sources, network.fairness_destinations
        );
    }
    text
}

/// What the simulation took.
pub(super) fn cost_text(network: &NetworkOutcome, seconds: f64) -> String {
    format!(
        "  simulation        {:.3} ms in {:.2} s, {:.2} million events/s, trace {}\n",
        network.simulated.0 as f64 * 1e-9,
        seconds,
        network.events as f64 / seconds.max(1e-9) / 1e6,
        network.trace_hash
    )
}
