//! What `livetime sim run` says of an event builder on a network: its part of document and summary.

use livetime_fabric::builder_network::{BuilderNetworkOutcome, TwoStepOutcome};
use livetime_fabric::scenario::StartOutcome;
use livetime_wire::DurationNs;
use serde_json::{Value, json};

use super::latencies::latency_summary;
use super::rate_words::{RATE_DIGITS, error_words, rate_words};
use super::run::peak_rss_bytes;

/// Adds the builder's numbers to the document of a run that took so many seconds; `of_p2p` is its
/// efficiency relative to one pair of units.
pub(super) fn extend_json(
    document: &mut Value,
    builder: &BuilderNetworkOutcome,
    of_p2p: f64,
    seconds: f64,
) {
    let rate = builder.event_rate;
    // What has not converged is no steady-state number and is not given as one.
    let steady = |value: f64| match rate.converged {
        true => json!(value),
        false => Value::Null,
    };
    let rest = json!({
        "efficiency_link": steady(builder.efficiency_link),
        "efficiency_p2p": steady(of_p2p),
        "event_rate_hz": steady(rate.mean),
        "throughput_per_node_bytes_per_s": steady(builder.throughput_per_node),
        "losses": {
            "buffer_full": builder.packets_lost,
            "damaged": builder.packets_damaged,
            "refused": builder.refused,
            "incomplete": builder.events_incomplete,
        },
        "latency": latency_summary(&builder.latency_ns),
        "skew": latency_summary(&builder.skew_ns),
        "converged": rate.converged,
        "deadlock": builder.is_deadlocked(),
        "ci95": rate.ci95,
        "mean_of_batches": rate.mean,
        "builder": {
            "triggers": builder.triggers,
            "built": builder.events_built,
            "open": builder.open,
            "messages": builder.messages,
            "packets": builder.packets,
            "block_fill": builder.block_fill,
            "held_max": builder.held_max,
            "fairness": builder.fairness_builders,
            "slow_share": builder.slow_share,
            "dead": builder.builders_dead,
            "found_dead": builder.builders_found_dead,
            "back": builder.builders_back,
            "dead_readouts": builder.readouts_dead,
            "readouts_back": builder.readouts_back,
            "manager_restarts": builder.manager_restarts,
            "longest_gap_s": builder.longest_gap.0 as f64 * 1e-12,
            "reassigned": builder.events_reassigned,
            "two_step": builder.two_step.map(|steps| two_step_json(&steps, &steady)),
            "packets_deadlocked": builder.packets_deadlocked,
            "violations": builder.violations,
        },
        "fragments": fragments_json(builder),
        "simulated_s": builder.simulated.0 as f64 * 1e-12,
        "trace_hash": builder.trace_hash.to_string(),
        "events": builder.events,
        "events_per_s": builder.events as f64 / seconds.max(1e-9),
        "fragments_per_s": builder.fragments_delivered as f64 / seconds.max(1e-9),
        "wall_s": seconds,
        "peak_rss_bytes": peak_rss_bytes(),
    });
    if let (Some(document), Value::Object(rest)) = (document.as_object_mut(), rest) {
        document.extend(rest);
    }
}

/// What became of the fragments.
fn fragments_json(builder: &BuilderNetworkOutcome) -> Value {
    json!({
        "sent": builder.fragments_sent,
        "sent_again": builder.fragments_sent_again,
        "delivered": builder.fragments_delivered,
        "withdrawn": builder.fragments_withdrawn,
        "lost": builder.fragments_lost,
        "in_flight": builder.fragments_in_flight,
        "conserved": builder.has_all_fragments(),
    })
}

/// What each of several starts gave; `null` for one run.
pub(super) fn starts_json(starts: &[StartOutcome]) -> Value {
    let start = |start: &StartOutcome| {
        let rate = start.event_rate;
        json!({
            "seed": start.seed.to_string(),
            "mean_of_batches": rate.mean,
            "ci95": rate.ci95,
            "converged": rate.converged,
            "deadlock": start.is_deadlocked,
        })
    };
    match starts {
        [] => Value::Null,
        _ => starts.iter().map(start).collect(),
    }
}

/// The slowest and the fastest of several starts; nothing for one run.
fn starts_text(starts: &[StartOutcome]) -> String {
    let by_rate = |a: &&StartOutcome, b: &&StartOutcome| {
        let means = [a, b].map(|start| start.event_rate.mean);
        means[0].total_cmp(&means[1])
    };
    let ends = (starts.iter().min_by(by_rate), starts.iter().max_by(by_rate));
    let (Some(slowest), Some(fastest)) = ends else {
        return String::new();
    };
    let words = |start: &StartOutcome| {
        let rate = start.event_rate;
        let (mean, error) = (
            rate_words(rate.mean, RATE_DIGITS),
            error_words(rate.ci95, rate.mean),
        );
        format!("{mean} +- {error} with seed {}", start.seed)
    };
    format!(
        "  starts            {}: from {} to {}; all but the event rate is of the first\n",
        starts.len(),
        words(slowest),
        words(fastest)
    )
}

/// What moved in two steps; shares and rates are of a steady state.
fn two_step_json(steps: &TwoStepOutcome, steady: &impl Fn(f64) -> Value) -> Value {
    json!({
        "first_units": steps.first_units,
        "released": steps.events_released,
        "accepted": steady(steps.accepted),
        "moved": steady(steps.moved),
        "first_bytes_per_s": steady(steps.first_bytes_per_s),
        "rest_bytes_per_s": steady(steps.rest_bytes_per_s),
    })
}

/// What two steps save, and how uneven they are.
fn two_step_text(steps: &TwoStepOutcome) -> String {
    format!(
        "  two steps         {} readout units first, {} events released after them, {:.1} % fetched in \
         full: {:.1} % of the payload moved;\n                    {:.2} MB/s from each of these, {:.2} \
         from each of the others\n",
        steps.first_units,
        steps.events_released,
        100.0 * steps.accepted,
        100.0 * steps.moved,
        steps.first_bytes_per_s / 1e6,
        steps.rest_bytes_per_s / 1e6
    )
}

/// Who died and began again, and how long nothing was built at most.
fn deaths_text(builder: &BuilderNetworkOutcome) -> String {
    let died = builder.builders_dead + builder.readouts_dead + builder.manager_restarts;
    if died == 0 {
        return String::new();
    }
    format!(
        "  deaths            {} builder units, {} of them found dead, {} back, {} events of theirs built \
         by others;\n                    {} readout units, {} of them back; {} event managers replaced; \
         at most {:.3} ms without an event\n",
        builder.builders_dead,
        builder.builders_found_dead,
        builder.builders_back,
        builder.events_reassigned,
        builder.readouts_dead,
        builder.readouts_back,
        builder.manager_restarts,
        builder.longest_gap.0 as f64 * 1e-9
    )
}

/// The rate, or that there is none yet, or why there will be none.
fn rate_text(builder: &BuilderNetworkOutcome, of_p2p: f64, starts: &[StartOutcome]) -> String {
    let rate = builder.event_rate;
    if builder.is_deadlocked() && builder.do_others_move {
        return format!(
            "  deadlock          at the end, {:.3} ms, {} packets of a network stand still for ever: links or \
             room that they wait for will not be free; others still move\n",
            builder.simulated.0 as f64 * 1e-9,
            builder.packets_deadlocked
        );
    }
    if builder.is_deadlocked() {
        return format!(
            "  deadlock          nothing moves in a network from {:.3} ms on: {} packets hold the links \
             or buffers that others of them wait for\n",
            builder.simulated.0 as f64 * 1e-9,
            builder.packets_deadlocked
        );
    }
    if rate.converged {
        format!(
            "  event rate        {} (95 % confidence +- {}), {:.1} MB/s per builder unit, \
             {:.1} % of its links, {:.1} % of point to point\n",
            rate_words(rate.mean, RATE_DIGITS),
            error_words(rate.ci95, rate.mean),
            builder.throughput_per_node / 1e6,
            100.0 * builder.efficiency_link,
            100.0 * of_p2p
        )
    } else if !starts.is_empty() {
        let is_steady = |start: &StartOutcome| start.event_rate.converged;
        let advice = if let Some(stopped) = starts.iter().find(|start| start.is_deadlocked) {
            let seed = stopped.seed;
            format!("in some packets stand still for ever: see `--seed {seed}`")
        } else if starts.iter().all(is_steady) {
            "each is steady, and they differ: none of them is the rate of the system".to_owned()
        } else {
            "not each is steady: raise `duration` and `warm_up`".to_owned()
        };
        format!(
            "  event rate        not converged: {} +- {} across {} starts\n                    {advice}\n",
            rate_words(rate.mean, RATE_DIGITS),
            error_words(rate.ci95, rate.mean),
            starts.len()
        )
    } else {
        format!(
            "  event rate        not converged: {} +- {} so far, with a trend or too few \
             events\n                    raise `duration` and `warm_up`; --csv shows it against \
             time\n",
            rate_words(rate.mean, RATE_DIGITS),
            error_words(rate.ci95, rate.mean)
        )
    }
}

/// Times of the events that were counted; of none there are none.
fn times_text(builder: &BuilderNetworkOutcome) -> String {
    if builder.events_counted == 0 {
        return String::new();
    }
    let latency = latency_summary(&builder.latency_ns);
    let skew = latency_summary(&builder.skew_ns);
    format!(
        "  latency           median {}, 99.9 % {}, max {} from trigger to filtered event\n  \
         event skew        median {}, 99.9 % {}, max {} from first to last fragment\n",
        DurationNs(latency.p50),
        DurationNs(latency.p99_9),
        DurationNs(latency.max),
        DurationNs(skew.p50),
        DurationNs(skew.p99_9),
        DurationNs(skew.max)
    )
}

/// The summary.
pub(super) fn to_text(
    builder: &BuilderNetworkOutcome,
    of_p2p: f64,
    starts: &[StartOutcome],
) -> String {
    let mut text = rate_text(builder, of_p2p, starts) + &starts_text(starts);
    text += &times_text(builder);
    text += &format!(
        "  triggers          {} given = {} built ({} of them incomplete) + {} open; {} refused\n",
        builder.triggers,
        builder.events_built,
        builder.events_incomplete,
        builder.open,
        builder.refused
    );
    text += &format!(
        "  fragments         {} sent ({} again) = {} delivered + {} lost + {} withdrawn + {} in \
         flight\n",
        builder.fragments_sent,
        builder.fragments_sent_again,
        builder.fragments_delivered,
        builder.fragments_lost,
        builder.fragments_withdrawn,
        builder.fragments_in_flight
    );
    text += &format!(
        "  network           {} packets, {} lost at full buffers, {} damaged; {} control messages\n",
        builder.packets, builder.packets_lost, builder.packets_damaged, builder.messages
    );
    if builder.block_fill > 0.0 {
        text += &format!(
            "  blocks            {:.1} % filled\n",
            100.0 * builder.block_fill
        );
    }
    if let Some(steps) = builder.two_step.filter(|_| builder.event_rate.converged) {
        text += &two_step_text(&steps);
    }
    text += &format!(
        "  builder units     fairness {:.3} (Jain), at most {} events held\n",
        builder.fairness_builders, builder.held_max
    );
    text + &deaths_text(builder)
}

/// The line about the simulation itself.
pub(super) fn cost_text(builder: &BuilderNetworkOutcome, seconds: f64) -> String {
    format!(
        "  simulation        {:.3} ms in {:.2} s, {:.2} million events/s, trace {}\n",
        builder.simulated.0 as f64 * 1e-9,
        seconds,
        builder.events as f64 / seconds.max(1e-9) / 1e6,
        builder.trace_hash
    )
}
