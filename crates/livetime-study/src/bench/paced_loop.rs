//! `loop --rate`: triggers at a rate, four Level-2 buffers, and whose fault dead time and tails are.
//!
//! The front-end side offers triggers by the clock, fixed or Poisson, to the trigger supervisor of a
//! run; what it takes goes over the trigger link to the node's role and back, as in
//! [`super::trigger_loop`]. Each decision is compared with the one known beforehand. A refused trigger
//! counts as the host's if the machine had taken a core away since the oldest trigger in flight came
//! or since this one was due; outliers are judged by `stall_meter`, for which the packets go through
//! a second loop on one thread after the run; beside that stands what would be ours if a gap with work
//! in it were never the host's, and whether such gaps are more frequent than chance. On a virtual
//! clock the supervisor is held against the closed form of a serial loop with four places (M/D/1/4).
//!
//! Not measured: fragments, and links between machines.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use livetime_node::role::Role;
use livetime_node::role::trigger::TriggerNode;
use livetime_node::run_clock::RunClock;
use livetime_node::worker::Phase;
use livetime_shm::TscClock;
use livetime_shm::floor::Samples;
use livetime_source::{ArrivalConfig, ArrivalKind, ArrivalProcess};
use livetime_trigger::dead_time::refused_fraction_m_d_1_k;
use livetime_trigger::{
    LevelTwo, LevelTwoNode, Menu, Offer, ReplyOutcome, SupervisorConfig, TriggerSupervisor,
};
use livetime_wire::trigger_packet::TriggerPacket;
use livetime_wire::{L2Mask, L2Reply, RateHz, RunNs, TriggerNumber};
use serde_json::json;

use super::document::{BenchDocument, Target, latency, rounded};
use super::full_menu::{RUN, menu_of_sixteen, typical_packet, words_of};
use super::interleave::LineFloor;
use super::pinned_threads::{Patience, run_pair};
use super::stall_meter::{
    Attribution, Chance, GAP_NS, Gap, Gaps, OUTLIER_NS, Repeated, StallMeter, of_the_machine,
    share_of_time, stalled_ticks, ticks_of, touched, without_any_work,
};
use super::trigger_loop::{FrontEndSide, Loop, work_alone};
use super::{BenchError, BenchOptions};

/// Different packets, used in turn; each is an event of which every use is a trial.
const PACKETS: usize = 256;
/// Level-2 buffers, as at CDF.
const BUFFERS: usize = 4;
/// Turns at work that take longer are not the work of all packets that one turn may find.
const CHANCE_NS: u64 = 10_000;
/// Gaps at work that are beyond chance by more than this many standard deviations are ours.
const BEYOND_CHANCE_SIGMA: f64 = 5.0;
/// Most triggers of a bench: what is remembered of each takes up to 56 bytes.
const TRIGGERS_MAX: usize = 20_000_000;

/// How triggers come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacedOptions {
    /// Rate, and whether the gaps are equal or random.
    pub arrival: ArrivalConfig,
    /// For how long.
    pub duration: Duration,
    /// Seed of the arrival times.
    pub seed: u64,
}

/// One decided trigger.
#[derive(Debug, Clone, Copy)]
struct Trial {
    trigger: TriggerNumber,
    event: u32,
    start: u64,
    end: u64,
}

/// One refused trigger: since when the cause may lie, and when it was refused, in ticks.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    since: u64,
    at: u64,
}

/// What a paced loop did.
struct Paced {
    trials: Vec<Trial>,
    refusals: Vec<Refusal>,
    wrong: u64,
    offered: u64,
    triggers: u64,
    decided: u64,
    lost: u64,
    /// Until when triggers came: for as long as was asked, or until there were [`TRIGGERS_MAX`].
    lasted_ns: u64,
    /// Of the front-end's thread and the node's.
    threads: [Gaps; 2],
}

/// The times in which the machine kept a thread from running, and how many of them were not kept.
struct HostGaps {
    gaps: Vec<Gap>,
    /// Those in which no thread had work: what is the host's without doing the work again.
    without_work: Vec<Gap>,
    dropped: u64,
}

impl Paced {
    /// Whose what went wrong is if these gaps, a union, are the host's.
    fn blame(&self, gaps: &[Gap], clock: &TscClock) -> Blame {
        let trials = self.trials.iter();
        let outliers = Outliers::count(
            trials.map(|trial| (trial.event, trial.start, trial.end)),
            PACKETS,
            gaps,
            ticks_of(clock, OUTLIER_NS),
        );
        let is_host = |refusal: &&Refusal| stalled_ticks(gaps, refusal.since, refusal.at) > 0;
        let refused_host = self.refusals.iter().filter(is_host).count() as u64;
        Blame {
            outliers,
            refused_host,
            refused_ours: self.offered - self.triggers - refused_host,
        }
    }

    /// Does the work of all trials again to tell the machine's gaps from those of long work.
    fn host_gaps(&self, menu: &Menu, clock: &TscClock) -> Result<HostGaps, BenchError> {
        let mut packets = packets();
        let fill = |place: usize, words: &mut Vec<u32>| {
            let Trial { trigger, event, .. } = self.trials[place];
            let packet = &mut packets[event as usize];
            packet.trigger_low = trigger.low();
            packet.emit(words);
        };
        let work = work_alone(menu, self.trials.len(), fill, clock)?;
        let trials = self.trials.iter().zip(work);
        let repeated: Vec<Repeated> = trials
            .map(|(&Trial { start, end, .. }, work)| Repeated { start, end, work })
            .collect();
        Ok(HostGaps {
            gaps: of_the_machine(&self.threads, &repeated, clock),
            without_work: without_any_work(&self.threads),
            dropped: self.threads.iter().map(|thread| thread.dropped).sum(),
        })
    }
}

/// Whose the outliers and the refused triggers are.
struct Blame {
    outliers: Outliers,
    refused_host: u64,
    refused_ours: u64,
}

/// Measures at a rate.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a decision does not come.
pub fn run(paced: &PacedOptions, options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let clock = TscClock::of_process();
    let rounds = if options.quick { 2_000 } else { 100_000 };
    let before = LineFloor::measure(&[], rounds)?;
    let menu = menu_of_sixteen();
    let measured = measure(&menu, paced, &clock)?;
    let host = measured.host_gaps(&menu, &clock)?;
    let after = LineFloor::measure(&[], rounds)?;
    let mut document = BenchDocument::new("loop");
    let floors = [&before, &after].map(|floor| floor.bare.p50());
    document.add_floor("cache_line_p50_ns", json!(floors));
    report(&mut document, paced, &measured, &host, &clock);
    add_model(&mut document, options.quick);
    Ok(document)
}

fn packets() -> Vec<TriggerPacket> {
    (0..PACKETS as u32).map(typical_packet).collect()
}

/// Runs both ends for the time asked for.
fn measure(menu: &Menu, paced: &PacedOptions, clock: &TscClock) -> Result<Paced, BenchError> {
    let packets = packets();
    let mut reference = LevelTwoNode::new(LevelTwo::new(menu), RUN);
    let expected: Vec<L2Mask> = packets
        .iter()
        .map(|packet| reference.handle_packet(&words_of(packet)))
        .map(|answer| answer.map_or(L2Mask(0), |answer| answer.reply.mask))
        .collect();
    let mut ends = Loop::warmed_up(menu, &words_of(&packets[0]))?;
    let (front_end, node, run_clock) = ends.ends();
    let over = AtomicBool::new(false);
    let node_meter = StallMeter::new(clock);
    let side = PacedSide::new(front_end, packets, expected, paced, *clock);
    let (mut paced_result, node_gaps) = run_pair(
        |patience| {
            let result = side.run(patience);
            // Release pairs with the Acquire in `serve`.
            over.store(true, Ordering::Release);
            result
        },
        |patience| serve(node, run_clock, clock, &over, node_meter, patience),
    )?;
    paced_result.threads[1] = node_gaps;
    Ok(paced_result)
}

/// The node's side until the other one is over; its gaps, by a meter that was made before.
pub(crate) fn serve(
    node: &mut TriggerNode,
    run_clock: &RunClock,
    clock: &TscClock,
    over: &AtomicBool,
    mut meter: StallMeter,
    mut patience: Patience<'_>,
) -> Result<Gaps, BenchError> {
    let mut has_worked = false;
    meter.start(clock);
    // Acquire pairs with the Release of the side that ends it.
    while !over.load(Ordering::Acquire) {
        // Looking for a packet is no work: what kept the thread until it saw one was not ours.
        let is_waiting = node.is_waiting();
        meter.look(clock.ticks(), has_worked);
        has_worked = !is_waiting && node.poll(run_clock.now(), Phase::Running) > 0;
        patience.after(has_worked)?;
    }
    Ok(meter.finish())
}

/// A trigger whose decision is awaited.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    trigger: TriggerNumber,
    event: u32,
    offered: u64,
    start: u64,
}

/// The front-end's side with its supervisor.
struct PacedSide<'a> {
    front_end: FrontEndSide<'a>,
    supervisor: TriggerSupervisor,
    arrivals: ArrivalProcess,
    packets: Vec<TriggerPacket>,
    expected: Vec<L2Mask>,
    clock: TscClock,
    origin: u64,
    duration_ns: u64,
    /// Accepted and not yet sent.
    waiting: VecDeque<(InFlight, u8)>,
    in_flight: VecDeque<InFlight>,
    meter: StallMeter,
    words: Vec<u32>,
    trials: Vec<Trial>,
    refusals: Vec<Refusal>,
    wrong: u64,
    next_event: u32,
}

impl<'a> PacedSide<'a> {
    fn new(
        front_end: FrontEndSide<'a>,
        packets: Vec<TriggerPacket>,
        expected: Vec<L2Mask>,
        paced: &PacedOptions,
        clock: TscClock,
    ) -> Self {
        let triggers = paced.arrival.rate.0 * paced.duration.as_secs_f64() * 1.2 + 1000.0;
        let room = (triggers as usize).min(TRIGGERS_MAX);
        let (start, end) = (u64::MAX, u64::MAX);
        let trial = Trial {
            trigger: TriggerNumber(u64::MAX),
            event: u32::MAX,
            start,
            end,
        };
        let refusal = Refusal {
            since: start,
            at: end,
        };
        let config = SupervisorConfig {
            l2_buffers: BUFFERS as u8,
            ..SupervisorConfig::default()
        };
        Self {
            front_end,
            supervisor: TriggerSupervisor::new(config, RunNs(0)),
            arrivals: ArrivalProcess::new(&paced.arrival, paced.seed),
            packets,
            expected,
            clock,
            origin: 0,
            duration_ns: paced.duration.as_nanos() as u64,
            waiting: VecDeque::with_capacity(BUFFERS),
            in_flight: VecDeque::with_capacity(BUFFERS),
            meter: StallMeter::new(&clock),
            words: touched(512, u32::MAX),
            trials: touched(room, trial),
            refusals: touched(room, refusal),
            wrong: 0,
            next_event: 0,
        }
    }

    fn now(&self, ticks: u64) -> RunNs {
        RunNs(self.clock.ticks_to_ns(ticks - self.origin))
    }

    fn run(mut self, mut patience: Patience<'_>) -> Result<Paced, BenchError> {
        // Before the clock starts: the first draw brings tables into memory.
        let mut due = self.arrivals.next_offer();
        let mut worked = false;
        self.meter.start(&self.clock);
        self.origin = self.clock.ticks();
        loop {
            // As in `serve`.
            let has_reply = self.front_end.has_reply();
            let ticks = self.clock.ticks();
            self.meter.look(ticks, worked);
            let now = self.now(ticks);
            let is_over = due.0 >= self.duration_ns || self.trials.len() == TRIGGERS_MAX;
            worked = has_reply && self.take_reply()?;
            if !is_over && due <= now {
                self.offer(now, ticks, due);
                due = self.arrivals.next_offer();
                worked = true;
            }
            worked |= self.send_next()?;
            if worked {
                patience.restart();
                continue;
            }
            if is_over && self.supervisor.in_flight() == 0 {
                return Ok(self.finish(due));
            }
            self.supervisor.handle_timeout(now);
            // What was given up is the oldest; it would be taken for the cause of later refusals.
            while self.in_flight.len() + self.waiting.len() > self.supervisor.in_flight()
                && self.in_flight.pop_front().is_some()
            {}
            self.front_end.pump();
            if is_over || !self.in_flight.is_empty() {
                patience.idle()?;
            }
        }
    }

    /// Offers the trigger that was due; refused ones are remembered with when their cause may lie.
    fn offer(&mut self, now: RunNs, ticks: u64, due: RunNs) {
        match self.supervisor.offer(now, false) {
            Offer::Accepted { trigger, l2_buffer } => {
                let in_flight = InFlight {
                    trigger,
                    event: self.next_event,
                    offered: ticks,
                    start: 0,
                };
                self.waiting.push_back((in_flight, l2_buffer));
                self.next_event = (self.next_event + 1) % PACKETS as u32;
            }
            Offer::Refused(_) => {
                let was_due = self.origin + ticks_of(&self.clock, due.0);
                let oldest = self.in_flight.front().map(|oldest| oldest.offered);
                let oldest = oldest.or(self.waiting.front().map(|(oldest, _)| oldest.offered));
                if self.refusals.len() < self.refusals.capacity() {
                    self.refusals.push(Refusal {
                        since: was_due.min(oldest.unwrap_or(was_due)),
                        at: ticks,
                    });
                }
            }
        }
    }

    /// Sends the next packet if the link is free.
    fn send_next(&mut self) -> Result<bool, BenchError> {
        if self.waiting.is_empty() || !self.front_end.link.is_idle() {
            return Ok(false);
        }
        let Some((mut next, l2_buffer)) = self.waiting.pop_front() else {
            return Ok(false);
        };
        let packet = &mut self.packets[next.event as usize];
        packet.trigger_low = next.trigger.low();
        packet.l2_buffer = l2_buffer;
        packet.emit(&mut self.words);
        next.start = self.clock.ticks();
        // A gap that ends here is none of the trial's.
        self.meter.look(next.start, true);
        let now = self.now(next.start);
        self.supervisor.handle_first_word(now, next.trigger);
        self.in_flight.push_back(next);
        self.front_end.send(&self.words);
        Ok(true)
    }

    /// Takes the next reply, checks it and closes its trigger.
    fn take_reply(&mut self) -> Result<bool, BenchError> {
        let Some(reply) = self.front_end.take_reply()? else {
            return Ok(false);
        };
        let end = self.clock.ticks();
        let now = self.now(end);
        let Some(reply) = reply else {
            self.wrong += 1;
            return Ok(true);
        };
        if let ReplyOutcome::Decided(sample) = self.supervisor.handle_reply(now, &reply) {
            let place = self
                .in_flight
                .iter()
                .position(|one| one.trigger == sample.trigger);
            if let Some(one) = place.and_then(|place| self.in_flight.remove(place)) {
                self.wrong += u64::from(sample.mask != self.expected[one.event as usize]);
                self.trials.push(Trial {
                    trigger: one.trigger,
                    event: one.event,
                    start: one.start,
                    end,
                });
            }
        }
        while self.supervisor.poll_output().is_some() {}
        Ok(true)
    }

    /// `due` is when the next trigger would have come.
    fn finish(self, due: RunNs) -> Paced {
        let counters = *self.supervisor.counters();
        let lasted_ns = due.0.min(self.duration_ns);
        let dead_time = self.supervisor.dead_time(RunNs(lasted_ns));
        Paced {
            trials: self.trials,
            refusals: self.refusals,
            wrong: self.wrong,
            offered: dead_time.offered,
            triggers: counters.triggers,
            decided: counters.l2_accepted + counters.l2_rejected,
            lost: self.supervisor.losses().total(),
            lasted_ns,
            threads: [self.meter.finish(), Gaps::default()],
        }
    }
}

/// Outliers of trials, as the PULSAR note counts them, by whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Outliers {
    pub(crate) host: u64,
    pub(crate) ours: u64,
}

impl Outliers {
    /// Counts trials `(event, start, end)` in ticks; `gaps` is a union.
    pub(crate) fn count(
        trials: impl Iterator<Item = (u32, u64, u64)> + Clone,
        events: usize,
        gaps: &[Gap],
        allowed_ticks: u64,
    ) -> Self {
        let mut sums = vec![(0_u64, 0_u64); events];
        for (event, start, end) in trials.clone() {
            let sum = &mut sums[event as usize];
            *sum = (sum.0 + (end - start), sum.1 + 1);
        }
        let mut outliers = Self::default();
        for (event, start, end) in trials {
            let (sum, count) = sums[event as usize];
            let mean = sum / count.max(1);
            if end - start <= mean + allowed_ticks {
                continue;
            }
            match Attribution::of(gaps, (start, end), mean, allowed_ticks) {
                Attribution::Host => outliers.host += 1,
                Attribution::Ours => outliers.ours += 1,
            }
        }
        outliers
    }

    pub(crate) fn ppm(count: u64, trials: usize) -> f64 {
        count as f64 * 1e6 / trials.max(1) as f64
    }
}

fn report(
    document: &mut BenchDocument,
    paced: &PacedOptions,
    measured: &Paced,
    host: &HostGaps,
    clock: &TscClock,
) {
    let latencies = measured.trials.iter();
    let latencies = latencies.map(|trial| clock.ticks_to_ns(trial.end - trial.start));
    let samples = Samples::from_unsorted(latencies.collect());
    let blame = measured.blame(&host.gaps, clock);
    let by_looks = measured.blame(&host.without_work, clock);
    let share = |count: u64| count as f64 / measured.offered.max(1) as f64;
    let ppm = |count| rounded(Outliers::ppm(count, measured.trials.len()));
    let load = paced.arrival.rate.0 * samples.mean() * 1e-9;
    let chance = Chance::of(&measured.threads, ticks_of(clock, CHANCE_NS));
    add_counts(document, paced, measured);
    document.add_result("decision_ns", latency(&samples));
    document.add_result(
        "dead_time",
        json!({
            "host": rounded(share(blame.refused_host)),
            "ours": rounded(share(blame.refused_ours)),
            "ours_by_looks_alone": rounded(share(by_looks.refused_ours)),
            "m_d_1_4_at_this_mean": rounded(refused_fraction_m_d_1_k(load.max(1e-9), BUFFERS)),
        }),
    );
    document.add_result(
        "outliers_ppm",
        json!({
            "above_event_mean_ns": OUTLIER_NS,
            "host": ppm(blame.outliers.host),
            "ours": ppm(blame.outliers.ours),
            "ours_by_looks_alone": ppm(by_looks.outliers.ours),
            "host_count": blame.outliers.host,
            "ours_count": blame.outliers.ours,
        }),
    );
    add_host_gaps(document, measured, host, &chance);
    add_targets(document, measured, &blame, &by_looks);
    // Equal distances may beat with the machine's own clock ticks: nothing is by chance then.
    if paced.arrival.kind == ArrivalKind::Poisson {
        document.add_target(Target::at_most(
            "gaps_at_work_beyond_chance_sigma",
            chance.sigma,
            BEYOND_CHANCE_SIGMA,
        ));
    }
}

/// How triggers came, and what became of them.
fn add_counts(document: &mut BenchDocument, paced: &PacedOptions, measured: &Paced) {
    let arrival = match paced.arrival.kind {
        ArrivalKind::FixedGap => "fixed",
        _ => "poisson",
    };
    document.add_result("rate_hz", paced.arrival.rate.0);
    document.add_result("arrival", arrival);
    document.add_result("duration_s", measured.lasted_ns as f64 * 1e-9);
    document.add_result("offered", measured.offered);
    document.add_result("triggers", measured.triggers);
    document.add_result("decisions", measured.decided);
    document.add_result("lost", measured.lost);
    document.add_result("wrong_decisions", measured.wrong);
}

/// How often and for how long the machine kept a thread from running.
fn add_host_gaps(document: &mut BenchDocument, measured: &Paced, host: &HostGaps, chance: &Chance) {
    let own_stalls: u64 = (measured.threads.iter())
        .map(|thread| thread.own_stalls)
        .sum();
    document.add_result(
        "host_gaps",
        json!({
            "above_ns": GAP_NS,
            "count": host.gaps.len(),
            "not_kept": host.dropped,
            "page_faults_and_waits": own_stalls,
            "at_work": chance.at_work,
            "at_work_by_chance": rounded(chance.expected),
            "at_work_above_ns": CHANCE_NS,
            "share_of_time": rounded(share_of_time(&measured.threads, &host.gaps)),
        }),
    );
}

fn add_targets(document: &mut BenchDocument, measured: &Paced, blame: &Blame, by_looks: &Blame) {
    let share = |count: u64| count as f64 / measured.offered.max(1) as f64;
    let not_conserved = (measured.triggers - measured.decided).abs_diff(measured.lost);
    let trials = measured.trials.len();
    let ours_ppm = |blame: &Blame| Outliers::ppm(blame.outliers.ours, trials);
    for (name, value, allowed) in [
        ("wrong_decisions", measured.wrong as f64, 0.0),
        ("triggers_unaccounted", not_conserved as f64, 0.0),
        ("dead_time_ours", share(blame.refused_ours), 0.001),
        ("outliers_ours_ppm", ours_ppm(blame), 7.0),
        (
            "dead_time_ours_by_looks_alone",
            share(by_looks.refused_ours),
            0.001,
        ),
        ("outliers_ours_by_looks_alone_ppm", ours_ppm(by_looks), 7.0),
    ] {
        document.add_target(Target::at_most(name, value, allowed));
    }
}

/// The supervisor on a virtual clock beside the closed form, at the service times of the note.
fn add_model(document: &mut BenchDocument, quick: bool) {
    const RATE: RateHz = RateHz(40_000.0);
    let triggers = if quick { 200_000 } else { 3_000_000 };
    let mut rows = Vec::new();
    for service_ns in [11_000, 12_000, 20_000] {
        let simulated = simulated_refusals(RATE, service_ns, triggers, 7);
        let exact = refused_fraction_m_d_1_k(RATE.0 * service_ns as f64 * 1e-9, BUFFERS);
        rows.push(json!({
            "service_ns": service_ns,
            "simulated": rounded(simulated),
            "m_d_1_4": rounded(exact),
        }));
        let name = format!("model_{}_us_to_m_d_1_4", service_ns / 1000);
        document.add_target(Target::at_most(&name, (simulated / exact - 1.0).abs(), 0.2));
    }
    document.add_result("model", json!({ "rate_hz": RATE.0, "rows": rows }));
}

/// Share of Poisson triggers that the supervisor refuses when one decision after the other takes
/// `service_ns`, on a virtual clock.
fn simulated_refusals(rate: RateHz, service_ns: u64, triggers: u64, seed: u64) -> f64 {
    let config = ArrivalConfig {
        kind: ArrivalKind::Poisson,
        rate,
    };
    let mut arrivals = ArrivalProcess::new(&config, seed);
    let mut supervisor = TriggerSupervisor::new(SupervisorConfig::default(), RunNs(0));
    let mut serving: VecDeque<(TriggerNumber, RunNs)> = VecDeque::with_capacity(BUFFERS);
    let mut free_at = RunNs(0);
    let mut now = RunNs(0);
    for _ in 0..triggers {
        now = arrivals.next_offer();
        while let Some((trigger, done)) = serving.front().copied().filter(|(_, end)| *end <= now) {
            serving.pop_front();
            let reply = L2Reply {
                trigger_low: trigger.low(),
                mask: L2Mask(0),
            };
            supervisor.handle_reply(done, &reply);
            while supervisor.poll_output().is_some() {}
        }
        if let Offer::Accepted { trigger, .. } = supervisor.offer(now, false) {
            free_at = RunNs(free_at.max(now).0 + service_ns);
            serving.push_back((trigger, free_at));
        }
    }
    supervisor.dead_time(now).refused_fraction()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use livetime_trigger::{Algorithm, AlgorithmInput, AlgorithmOptions, AlgorithmRegistry, Cut};

    use super::super::full_menu::menu_of;
    use super::*;

    /// Every so many triggers the algorithm below takes too long.
    const STALL_EVERY: u32 = 101;

    #[derive(Debug)]
    struct Stall;

    impl Algorithm for Stall {
        fn is_true(&self, input: &AlgorithmInput<'_>) -> bool {
            let start = Instant::now();
            if input.packet.trigger_low().is_multiple_of(STALL_EVERY) {
                while start.elapsed() < Duration::from_micros(20) {
                    std::hint::spin_loop();
                }
            }
            true
        }
    }

    fn options(rate: f64, millis: u64) -> PacedOptions {
        PacedOptions {
            arrival: ArrivalConfig {
                kind: ArrivalKind::FixedGap,
                rate: RateHz(rate),
            },
            duration: Duration::from_millis(millis),
            seed: 1,
        }
    }

    #[test]
    fn a_stall_in_our_code_is_ours() {
        let mut registry = AlgorithmRegistry::new();
        registry.add("stall", |_| Ok(Stall));
        let cut = registry.make("stall", &AlgorithmOptions::default());
        let cut = cut.expect("it is registered").expect("it has no options");
        let path = ("STALL".to_owned(), u64::MAX, Cut::User(cut));
        let menu = menu_of([path].into_iter());
        let clock = TscClock::of_process();
        // A busy machine takes few triggers in a given time; each event needs several trials.
        let measured = [300, 1_000, 3_000, 10_000]
            .into_iter()
            .map(|millis| measure(&menu, &options(20_000.0, millis), &clock).unwrap())
            .find(|measured| measured.triggers >= 2_000)
            .expect("ten seconds are enough for 2000 triggers");
        let stalled: Vec<&Trial> = measured
            .trials
            .iter()
            .filter(|trial| clock.ticks_to_ns(trial.end - trial.start) >= 20_000)
            .collect();
        let stalls = measured.triggers / u64::from(STALL_EVERY);
        assert!(
            stalled.len() as u64 + measured.lost >= stalls && stalls > 0,
            "{stalls} stalls"
        );
        let host = measured.host_gaps(&menu, &clock).unwrap();
        let outliers = Outliers::count(
            measured.trials.iter().map(|t| (t.event, t.start, t.end)),
            PACKETS,
            &host.gaps,
            ticks_of(&clock, OUTLIER_NS),
        );
        // A machine that is away for long may raise an event's mean above some of the stalls, and one
        // that is away in most of them is named for these.
        let found = match outliers.host > stalls {
            true => outliers.ours + outliers.host,
            false => outliers.ours,
        };
        assert!(found > 0 && found >= stalls / 8, "{outliers:?} of {stalls}");
        assert_eq!(measured.triggers, measured.decided + measured.lost);
    }

    #[test]
    fn every_trigger_is_decided_refused_or_lost_and_decisions_are_right() {
        let clock = TscClock::of_process();
        let mut poisson = options(40_000.0, 100);
        poisson.arrival.kind = ArrivalKind::Poisson;
        let measured = measure(&menu_of_sixteen(), &poisson, &clock).unwrap();
        assert_eq!(measured.wrong, 0);
        assert_eq!(
            measured.offered,
            measured.triggers + measured.refusals.len() as u64
        );
        assert_eq!(measured.triggers, measured.decided + measured.lost);
        assert_eq!(measured.trials.len() as u64, measured.decided);
        assert!(
            (3500..4500).contains(&measured.offered),
            "{}",
            measured.offered
        );
    }

    #[test]
    fn the_virtual_clock_gives_the_closed_form() {
        for (service_ns, expected) in [(11_000, 0.0043), (20_000, 0.059)] {
            let found = simulated_refusals(RateHz(40_000.0), service_ns, 400_000, 3);
            assert!(
                (found / expected - 1.0).abs() < 0.2,
                "{found} of {expected}"
            );
        }
    }
}
