//! The open questions of the talk, answered with the protocol that Livetime runs.
//!
//! Readout units, builder units and event manager of `livetime-builder` run on simulated hosts and
//! networks ([`livetime_fabric::builder_network`]). All numbers are simulated.

use livetime_fabric::builder_network::{
    BuilderNetwork, BuilderNetworkOutcome, HostModel, Shaping, SickBuilders,
};
use livetime_fabric::network::topology::shift::ShiftSchedule;
use livetime_fabric::network::{
    Arrival, BufferPlace, Buffering, Estimate, FlowControl, Forwarding, Load, Pattern, Queueing,
    RoutePolicy, SizeLaw, Topology, TopologyError, Traffic, wormhole,
};
use livetime_fabric::replica::run_all;
use livetime_fabric::scenario::{ShiftOrder, Switching};
use livetime_fabric::time::DurationPs;
use livetime_wire::DurationNs;

use super::Answer;

/// Share of the offered triggers from which they count as carried: they come at random.
const CARRIED: f64 = 0.97;
/// What is said instead of a number that is not one of the steady state.
const NOT_CONVERGED: &str = "not converged";
const BARREL: Shaping = Shaping::BarrelShifter {
    block_bytes: 4096,
    order: ShiftOrder::ConflictFree,
};

pub(super) fn answers(quick: bool) -> Result<Vec<Answer>, TopologyError> {
    let mut answers = gigabit(quick);
    answers.push(large_barrel_shifter(quick)?);
    answers.push(sick_nodes(quick)?);
    Ok(answers)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A share, where there is one: of a run that has not converged there is none.
fn percent_or_not(share: Option<f64>) -> String {
    share.map_or_else(|| NOT_CONVERGED.to_owned(), percent)
}

/// Events built as a share of the offered triggers, with its error. Their number varies by itself, by
/// more than the 1 % of a converged rate in a run as short as these.
#[derive(Clone, Copy)]
struct Share {
    mean: f64,
    ci95: f64,
}

impl Share {
    /// Of a run of that rate; `None` with a trend, or where nothing was built.
    fn of(rate: Estimate, rate_hz: f64) -> Option<Self> {
        let is_there = rate.is_flat && rate.mean > 0.0;
        is_there.then_some(Self {
            mean: rate.mean / rate_hz,
            ci95: rate.ci95 / rate_hz,
        })
    }

    /// Whether the offered triggers are carried, as far as can be told.
    fn is_carried(self) -> bool {
        self.mean + self.ci95 >= CARRIED
    }
}

fn share_or_not(share: Option<Share>) -> String {
    let text = |share: Share| format!("{} +- {:.1}", percent(share.mean), 100.0 * share.ci95);
    share.map_or_else(|| NOT_CONVERGED.to_owned(), text)
}

/// Log-normal fragments of 2 KiB on average, triggers at random, `ms` after a third of warm-up.
fn load(rate_hz: u64, link_bits_per_s: u64, ms: u64) -> Load {
    let sizes = SizeLaw::LogNormal {
        mean: 2048.0,
        rms: 1024.0,
    };
    Load {
        arrival: Arrival::Poisson {
            interval: DurationPs(1_000_000_000_000 / rate_hz),
        },
        link_bits_per_s,
        hop_delay: DurationPs::from_ns(125),
        warm_up: DurationPs::from_ms(ms.div_ceil(3)),
        duration: DurationPs::from_ms(ms),
        ..Load::saturated(Traffic::new(Pattern::Uniform), sizes, 1)
    }
}

/// A run, with what was offered.
struct Case {
    name: String,
    plan: BuilderNetwork,
    topology: Topology,
    load: Load,
    switching: Switching,
    rate_hz: f64,
}

impl Case {
    fn run(&self) -> BuilderNetworkOutcome {
        self.plan
            .run(&self.topology, &self.load, &self.switching, 1)
    }
}

fn run_cases(cases: &[Case]) -> Vec<BuilderNetworkOutcome> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs: Vec<_> = cases.iter().map(|case| move || case.run()).collect();
    run_all(jobs, threads, |_| ())
}

/// Whether the promises of the protocol held, for the table.
fn promises(outcome: &BuilderNetworkOutcome) -> String {
    match outcome.violations.first() {
        None if outcome.is_conserved() => "all kept".to_owned(),
        None => "fragments not conserved".to_owned(),
        Some(violation) => violation.clone(),
    }
}

/// Triggers of the Gigabit Ethernet cases: half of 100 kHz on each of two networks, less what
/// blocks that are not full take.
const GIGABIT_HZ: u64 = 45_000;

fn gigabit_case(
    name: &str,
    topology: Topology,
    shaping: Shaping,
    (bytes, flow): (u64, FlowControl),
    ms: u64,
) -> Case {
    let has_losses = flow == FlowControl::None;
    let buffering = Buffering {
        forwarding: Forwarding::StoreAndForward,
        queueing: if has_losses {
            Queueing::Output
        } else {
            Queueing::VirtualOutput
        },
        place: if has_losses {
            BufferPlace::Output
        } else {
            BufferPlace::Input
        },
        bytes,
        lanes: 1,
        flow,
    };
    Case {
        name: name.to_owned(),
        plan: BuilderNetwork {
            credits: 16,
            retry: DurationNs(40 * DurationNs::MILLISECOND.0),
            shaping,
            hosts: HostModel {
                message: DurationPs::from_us(1),
                event: DurationPs::from_us(100),
                ..HostModel::default()
            },
            ..BuilderNetwork::default()
        },
        topology,
        load: Load {
            overhead_bytes: 76,
            hop_delay: DurationPs::from_ns(500),
            ..load(GIGABIT_HZ, 1_000_000_000, ms)
        },
        switching: Switching::Buffered(buffering),
        rate_hz: GIGABIT_HZ as f64,
    }
}

fn gigabit(quick: bool) -> Vec<Answer> {
    let ms = if quick { 60 } else { 200 };
    let networks = || {
        [
            ("I (20 cores)", Topology::gigabit_one()),
            ("II (2 cores, 10 Gb/s)", Topology::gigabit_two()),
        ]
    };
    let buffers: &[u64] = if quick {
        &[256, 4096]
    } else {
        &[64, 256, 1024, 2048, 4096, 8192]
    };
    let mut lossy = Vec::new();
    let mut kept = Vec::new();
    for (name, topology) in networks() {
        for kib in buffers {
            let sink = (kib << 10, FlowControl::None);
            let mut case = gigabit_case(name, topology.clone(), Shaping::None, sink, ms);
            case.name = format!("{name}, {kib} KiB");
            lossy.push(case);
        }
        let credits = (1 << 20, FlowControl::Credits);
        let mut case = gigabit_case(name, topology.clone(), Shaping::None, credits, ms);
        case.name = format!("{name}: credits between switches, 1 MiB for each port");
        kept.push(case);
        let small = (32 << 10, FlowControl::None);
        let mut case = gigabit_case(name, topology, BARREL, small, ms);
        case.name = format!("{name}: barrel shifter, no flow control, 32 KiB for each port");
        kept.push(case);
    }
    let (of_lossy, of_kept) = (run_cases(&lossy), run_cases(&kept));
    vec![
        buffer_answer(&lossy, &of_lossy, buffers),
        loss_answer(&kept, &of_kept, &of_lossy),
    ]
}

fn row(case: &Case, outcome: &BuilderNetworkOutcome) -> Vec<String> {
    let share = outcome.packets_lost as f64 / outcome.packets.max(1) as f64;
    vec![
        case.name.clone(),
        share_or_not(Share::of(outcome.event_rate, case.rate_hz)),
        format!("{:.0} ppm", 1e6 * share),
        outcome.fragments_sent_again.to_string(),
        promises(outcome),
    ]
}

const GIGABIT_HEADINGS: [&str; 5] = [
    "network",
    "built of the offered",
    "packets lost",
    "fragments sent again",
    "promises",
];

fn buffer_answer(cases: &[Case], found: &[BuilderNetworkOutcome], buffers: &[u64]) -> Answer {
    let smallest = cases
        .chunks(buffers.len())
        .zip(found.chunks(buffers.len()))
        .zip(["I", "II"])
        .map(|((_, found), name)| {
            let enough = found.iter().position(|outcome| outcome.packets_lost == 0);
            match enough {
                Some(place) => format!("{name}: {} KiB for each port", buffers[place]),
                None => format!("{name}: more than {} KiB", buffers[buffers.len() - 1]),
            }
        });
    let smallest: Vec<String> = smallest.collect();
    Answer {
        question: "500 x 500 Gigabit Ethernet: how large must the switch buffers be?",
        answer: format!(
            "At 45 kHz of 2 KiB (log-normal) on each of two networks, requests sent as events come \
             and 16 credits for a builder unit, nothing is lost from {} of the buffers tried.",
            smallest.join(", ")
        ),
        headings: GIGABIT_HEADINGS.to_vec(),
        rows: cases.iter().zip(found).map(|(c, o)| row(c, o)).collect(),
    }
}

fn loss_answer(
    cases: &[Case],
    found: &[BuilderNetworkOutcome],
    lossy: &[BuilderNetworkOutcome],
) -> Answer {
    let say = |index: usize| {
        let (case, outcome) = (&cases[index], &found[index]);
        let share = Share::of(outcome.event_rate, case.rate_hz);
        let verb = match share {
            Some(share) if share.is_carried() => "carries",
            Some(_) => "does not carry",
            None => "is not shown to carry",
        };
        let (share, lost) = (share_or_not(share), outcome.packets_lost);
        format!("{verb} the rate ({share}, {lost} packets lost)")
    };
    let again: u64 = lossy.iter().map(|o| o.fragments_sent_again).sum();
    let incomplete: u64 = lossy.iter().map(|o| o.events_incomplete).sum();
    Answer {
        question: "500 x 500 Gigabit Ethernet: how is loss prevented or handled?",
        answer: format!(
            "Handled: what is lost is asked for again after 40 ms ({again} fragments in the runs above, \
             {incomplete} events incomplete). Prevented by credits between switches: I {}, II {}. \
             Prevented by a barrel shifter in the readout units: I {}, II {}.",
            say(0),
            say(2),
            say(1),
            say(3)
        ),
        headings: GIGABIT_HEADINGS.to_vec(),
        rows: cases.iter().zip(found).map(|(c, o)| row(c, o)).collect(),
    }
}

/// The protocol on Myrinet: blocks of 4 KiB at 2 Gb/s, 100 kHz of 2 KiB.
fn myrinet_case(name: &str, topology: Topology, share: f64, ms: u64) -> Case {
    let rate_hz = (100e3 * share) as u64;
    Case {
        name: name.to_owned(),
        plan: BuilderNetwork {
            credits: 16,
            shaping: BARREL,
            hosts: HostModel {
                message: DurationPs::from_us(2),
                interval: DurationPs::from_ms(10),
                event: DurationPs::from_us(100),
                ..HostModel::default()
            },
            ..BuilderNetwork::default()
        },
        topology,
        load: load(rate_hz, 2_000_000_000, ms),
        switching: Switching::Wormhole,
        rate_hz: rate_hz as f64,
    }
}

/// The fabric alone, saturated: link use; `None` if that is no steady-state number.
fn shifted(
    topology: &Topology,
    schedule: ShiftSchedule,
    sizes: SizeLaw,
    hop_ns: u64,
    times: u64,
) -> Option<f64> {
    let load = Load {
        routes: schedule.policy,
        hop_delay: DurationPs::from_ns(hop_ns),
        link_bits_per_s: 2_000_000_000,
        ..Load::saturated(Traffic::new(Pattern::Shift(schedule)), sizes, times)
    };
    let use_of_link = wormhole::run(topology, &load).efficiency_link;
    use_of_link.converged.then_some(use_of_link.mean)
}

/// Whether a fabric that carries `best` of its links and a protocol that builds `share` work.
fn works(best: Option<f64>, share: Option<Share>, outcome: &BuilderNetworkOutcome) -> &'static str {
    let (Some(best), Some(share)) = (best, share) else {
        return "Not shown";
    };
    match best > 0.99 && share.is_carried() && outcome.is_conserved() {
        true => "Yes",
        false => "No",
    }
}

/// The barrel shifter in 512 x 512: the fabric alone, then with the protocol.
fn large_barrel_shifter(quick: bool) -> Result<Answer, TopologyError> {
    let topology = Topology::six_layer(8)?;
    let times = if quick { 300 } else { 2_000 };
    let blocks = || SizeLaw::Fixed(4096);
    let unsliced = SizeLaw::LogNormal {
        mean: 4096.0,
        rms: 4096.0,
    };
    let mut rows = Vec::new();
    let mut best = None;
    let mut add = |name: &str, share: String| rows.push(vec![name.to_owned(), share]);
    if let Some(schedule) = ShiftSchedule::conflict_free(&topology) {
        best = shifted(&topology, schedule.clone(), blocks(), 0, times);
        add(
            "fabric alone, saturated: link use with blocks of 4 KiB",
            percent_or_not(best),
        );
        let delayed = shifted(&topology, schedule.clone(), blocks(), 125, times);
        add("the same with 125 ns for each hop", percent_or_not(delayed));
        let value = shifted(&topology, schedule, unsliced, 0, times);
        add(
            "the same order, fragments not cut into blocks",
            percent_or_not(value),
        );
    }
    let naive = ShiftSchedule::naive(&topology, RoutePolicy::BySourcePort);
    let value = shifted(&topology, naive, blocks(), 0, times);
    add("sources in their plain order", percent_or_not(value));
    let ms = if quick { 60 } else { 300 };
    let case = myrinet_case("protocol", topology, 1.0, ms);
    let outcome = case.run();
    let share = Share::of(outcome.event_rate, case.rate_hz);
    add(
        "with the protocol at 100 kHz of 2 KiB: events built of the offered",
        share_or_not(share),
    );
    add(
        "blocks filled, of which the design needs 82 %",
        percent(outcome.block_fill),
    );
    rows.push(vec![
        "median time from trigger to built event".to_owned(),
        format!(
            "{:.1} ms",
            outcome.latency_ns.value_at_quantile(0.5) as f64 * 1e-6
        ),
    ]);
    rows.push(vec![
        "most events held by a builder unit, of 16 credits".to_owned(),
        outcome.held_max.to_string(),
    ]);
    rows.push(vec![
        "promises of the protocol".to_owned(),
        promises(&outcome),
    ]);
    Ok(Answer {
        question: "512 x 512 Myrinet: does the barrel shifter work for large systems?",
        answer: format!(
            "{}: link use in 6 layers when sources are numbered and routes chosen for it and \
             fragments are cut into blocks: {}; built of 100 kHz of 2 KiB with the protocol: {}.",
            works(best, share, &outcome),
            percent_or_not(best),
            share_or_not(share)
        ),
        headings: vec!["barrel shifter", "value"],
        rows,
    })
}

/// The networks of [`sick_nodes`], each first with all builder units well.
fn sick_cases(quick: bool) -> Result<Vec<Case>, TopologyError> {
    let ms = if quick { 60 } else { 300 };
    let case =
        |name: &str, size: u32, sick: SickBuilders, ms: u64| -> Result<Case, TopologyError> {
            let topology = match size {
                512 => Topology::six_layer(8)?,
                _ => Topology::four_layer(4)?,
            };
            let mut case = myrinet_case(name, topology, 1.0, ms);
            // Filters that are three quarters busy when all are well.
            case.plan.hosts.event = DurationPs(u64::from(size) * 7_500_000);
            case.plan.sick = sick;
            if size != 512 {
                case.plan.hosts.interval = DurationPs::from_ms(1);
            }
            Ok(case)
        };
    let slow = |slow| SickBuilders {
        slow,
        slow_factor: 2.0,
        ..SickBuilders::default()
    };
    let dead = |dead| SickBuilders {
        dead,
        dead_at: DurationPs::from_ms(300),
        ..SickBuilders::default()
    };
    let well = SickBuilders::default();
    let long = if quick { 900 } else { 2_000 };
    let mut cases = vec![
        case("512 x 512, all well", 512, well, ms)?,
        case("512 x 512, 5 at half their speed", 512, slow(5), ms)?,
        case("64 x 64, all well", 64, well, ms)?,
        case("64 x 64, 1 at half its speed", 64, slow(1), ms)?,
        case("64 x 64, 1 dies after 300 ms", 64, dead(1), long)?,
    ];
    if !quick {
        cases.push(case("512 x 512, 5 die after 300 ms", 512, dead(5), 1_000)?);
    }
    for case in &mut cases {
        // The queue holds what comes while the dead are not yet missed.
        case.plan.queue = 4_096;
    }
    Ok(cases)
}

/// Builder units that are slow or dead: those of 512 for the rate, and of 64 (a smaller network of
/// the same kind) for the second after a death, which takes that long to be noticed.
fn sick_nodes(quick: bool) -> Result<Answer, TopologyError> {
    let cases = sick_cases(quick)?;
    let found = run_cases(&cases);
    let rows = cases.iter().zip(&found).map(|(case, outcome)| {
        let late = Estimate::of(&outcome.series[outcome.series.len() * 3 / 4..]);
        let at_end = Share::of(late, case.rate_hz);
        vec![
            case.name.clone(),
            share_or_not(Share::of(outcome.event_rate, case.rate_hz)),
            share_or_not(at_end),
            outcome.refused.to_string(),
            outcome.events_reassigned.to_string(),
            outcome.events_incomplete.to_string(),
            promises(outcome),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    Ok(Answer {
        question: "512 x 512 Myrinet with 1 % of the builders slow or dead?",
        answer: format!(
            "With 1 % slow, built of the offered: {} ({} with all well): the event manager \
             gives the slow ones fewer and the shifters stay in step. When builder units die, others \
             build their events from what the readout units kept: of the rate in the last quarter \
             of the run {}, {} events built again and {} incomplete.",
            rows[1][1], rows[0][1], rows[4][2], rows[4][4], rows[4][5]
        ),
        headings: vec![
            "builders",
            "built of the offered",
            "in the last quarter",
            "triggers refused",
            "built again",
            "incomplete",
            "promises",
        ],
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_comes_with_its_error_and_not_at_all_with_a_trend() {
        let topology = Topology::crossbar(4).unwrap();
        let sink = (1 << 20, FlowControl::Credits);
        let mut case = gigabit_case("short", topology, Shaping::None, sink, 2);
        // Some 90 events that come at random.
        let mut outcome = case.run();
        assert!(outcome.events_counted > 0 && !outcome.event_rate.converged);
        assert!(row(&case, &outcome)[1].contains(" % +- "));
        outcome.event_rate.is_flat = false;
        assert_eq!(row(&case, &outcome)[1], NOT_CONVERGED);
        // Without randomness it is soon steady: four filters of 100 us take 40 kHz of the 45 kHz.
        case.load.arrival = Arrival::Fixed {
            interval: DurationPs(1_000_000_000_000 / GIGABIT_HZ),
        };
        case.load.duration = DurationPs::from_ms(100);
        let outcome = case.run();
        assert!(outcome.event_rate.converged, "{:?}", outcome.event_rate);
        assert!(row(&case, &outcome)[1].starts_with("88.9 % +- "));
    }
}
