//! `livetime sim plan`: which networks and ways of sending carry an event builder, with margins.
//!
//! The search is `livetime_fabric::plan`; here its answer becomes a table or a document.

use std::process::ExitCode;

use livetime_fabric::plan::{PlanOption, PlanRequest};
use livetime_fabric::replica::run_all;
use livetime_wire::{ByteSize, RateHz};
use serde_json::{Value, json};

use crate::config::{parse_bit_rate, parse_quantity};
use crate::console::{print, print_line, say};
use crate::exit;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Sources (readout units)
    #[arg(long, value_name = "N")]
    sources: u32,
    /// Builders; as many as sources without it
    #[arg(long, value_name = "N")]
    builders: Option<u32>,
    /// Mean size of a fragment, such as "2 KiB"
    #[arg(long, value_name = "SIZE", value_parser = parse_quantity::<ByteSize>)]
    fragment: ByteSize,
    /// Standard deviation of the sizes (log-normal); fixed sizes without it
    #[arg(long, value_name = "SIZE", value_parser = parse_quantity::<ByteSize>)]
    rms: Option<ByteSize>,
    /// Rate of triggers, such as 100kHz
    #[arg(long, value_parser = parse_quantity::<RateHz>)]
    rate: RateHz,
    /// Rate of a node's link, such as "100 Gb/s"
    #[arg(long, value_name = "RATE", value_parser = parse_bit_rate)]
    link: u64,
    /// Bytes on the link for each fragment besides its size
    #[arg(long, value_name = "SIZE", default_value = "0 B", value_parser = parse_quantity::<ByteSize>)]
    overhead: ByteSize,
    /// Buffer of each port, where the elements have buffers
    #[arg(long, value_name = "SIZE", default_value = "1 MiB", value_parser = parse_quantity::<ByteSize>)]
    buffer: ByteSize,
    /// Seed of the simulations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document (livetime.plan/1) on standard output
    #[arg(long)]
    json: bool,
}

/// Plans.
pub(crate) fn run(options: &Options) -> ExitCode {
    let request = PlanRequest {
        sources: options.sources,
        builders: options.builders.unwrap_or(options.sources),
        fragment_mean: options.fragment.0 as f64,
        fragment_rms: options.rms.map_or(0.0, |rms| rms.0 as f64),
        overhead_bytes: u32::try_from(options.overhead.0).unwrap_or(u32::MAX),
        rate_hz: options.rate.0,
        link_bits_per_s: options.link,
        buffer_bytes: options.buffer.0,
        seed: options.seed,
    };
    if let Some(problem) = request.problem() {
        say(format_args!("error: {problem}"));
        return ExitCode::from(2);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    say(format_args!(
        "simulating networks on {threads} threads · seed {} · livetime {}",
        request.seed,
        env!("CARGO_PKG_VERSION")
    ));
    let mut found: Vec<PlanOption> = run_all(request.jobs(), threads, |_| ())
        .into_iter()
        .flatten()
        .collect();
    found.sort_by(|a, b| {
        let order = b.holds.cmp(&a.holds);
        order.then(b.margin.total_cmp(&a.margin))
    });
    let printed = if options.json {
        print_line(to_json(&request, &found))
    } else {
        print(to_text(&request, &found))
    };
    match exit::after_printing(printed) {
        ExitCode::SUCCESS if !found.iter().any(|option| option.holds) => exit::PROBLEM,
        code => code,
    }
}

fn to_json(request: &PlanRequest, found: &[PlanOption]) -> Value {
    let (source, builder) = request.link_loads();
    let options: Vec<Value> = found
        .iter()
        .map(|option| {
            json!({
                "network": option.network,
                "elements": option.elements,
                "discipline": option.discipline.name(),
                "efficiency": option.efficiency,
                "converged": option.converged,
                "capacity_hz": option.capacity_hz,
                "margin": option.margin,
                "lost": option.lost,
                "holds": option.holds,
                "bottleneck": option.bottleneck.name(),
            })
        })
        .collect();
    json!({
        "schema": "livetime.plan/1",
        "simulated": true,
        "seed": request.seed.to_string(),
        "load_source_link": source,
        "load_builder_link": builder,
        "options": options,
    })
}

fn to_text(request: &PlanRequest, found: &[PlanOption]) -> String {
    let (source, builder) = request.link_loads();
    let mut text = format!(
        "SIMULATED: {} sources, {} builders, {} of {} each\n  load of the links: {:.1} % of the \
         sources', {:.1} % of the builders'\n",
        request.sources,
        request.builders,
        RateHz(request.rate_hz),
        ByteSize(request.fragment_mean as u64),
        100.0 * source,
        100.0 * builder
    );
    let network = found.iter().map(|o| o.network.chars().count()).max();
    let name = found.iter().map(|o| o.discipline.name().len()).max();
    let (network, name) = (network.unwrap_or(0), name.unwrap_or(0));
    text += &format!(
        "{:<network$}  {:>8}  {:<name$}  {:>10}  {:>8}  {:<7}  bottleneck\n",
        "network", "elements", "sending", "efficiency", "margin", "holds"
    );
    for option in found {
        let lost = match option.lost {
            0 => String::new(),
            lost => format!(", {lost} fragments lost"),
        };
        let converged = if option.converged {
            ""
        } else {
            ", not converged"
        };
        text += &format!(
            "{:<network$}  {:>8}  {:<name$}  {:>8.1} %  {:>+6.0} %  {:<7}  {}{lost}{converged}\n",
            option.network,
            option.elements,
            option.discipline.name(),
            100.0 * option.efficiency,
            100.0 * option.margin,
            if option.holds { "yes" } else { "no" },
            option.bottleneck.name()
        );
    }
    if !found.iter().any(|option| option.holds) {
        text += "nothing carries this rate: use faster links, more builders or smaller fragments\n";
    }
    text
}
