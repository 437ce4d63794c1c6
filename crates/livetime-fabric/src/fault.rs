//! The fault shim between nodes: decides the fate of each message and whether a node is there.
//!
//! The world computes when a message would arrive and asks [`FaultShim::transmit`], which answers
//! with none, one or two arrival times; when an event reaches its node it asks
//! [`FaultShim::admit`]. Nothing is stored between the two, so the shim can neither lose nor invent
//! a message without counting it ([`FaultCounts`]). It does not model links (latency, rate, back
//! pressure) and does not restart nodes; [`FaultShim::restarts`] says when the world must. What
//! shall go wrong is a [`FaultPlan`].

use std::collections::BTreeMap;

use crate::address::{LinkId, NodeId};
use crate::fault_plan::{
    FaultAction, FaultPlan, FaultPlanError, FaultProfile, Occasion, Outage, OutageKind,
    ScriptedFault, TimeWindow,
};
use crate::random::{Purpose, RandomStream, RandomStreams};
use crate::time::{DurationPs, SimPs};

/// Counts of what the shim did. Messages are conserved:
/// offered + duplicated = dropped + lost_at_dead_node + admitted + in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// Messages given to [`FaultShim::transmit`].
    pub offered: u64,
    /// Messages that do not arrive.
    pub dropped: u64,
    /// Copies that arrive besides their originals.
    pub duplicated: u64,
    /// Messages that take longer, with those behind them.
    pub delayed: u64,
    /// Messages that take longer while others may pass them.
    pub reordered: u64,
    /// Messages that did pass a reordered one.
    pub overtakes: u64,
    /// Messages and copies that found their node dead.
    pub lost_at_dead_node: u64,
    /// Messages and copies that their node took.
    pub admitted: u64,
    /// How often a message was put off to the end of a pause.
    pub messages_put_off: u64,
    /// Timers of dead nodes.
    pub timers_lost: u64,
    /// How often a timer was put off to the end of a pause.
    pub timers_put_off: u64,
}

/// When a message arrives: not at all, once, or twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Transit {
    /// The message itself.
    pub arrival: Option<SimPs>,
    /// Its copy.
    pub copy: Option<SimPs>,
}

/// What has come to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// A message that went through [`FaultShim::transmit`].
    Message,
    /// A timer that the node has set for itself.
    Timer,
}

/// Whether a node takes what has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Admission {
    /// Yes; handle it.
    Taken,
    /// No, the node is dead; forget it.
    Lost,
    /// Not yet: give the event to [`Scheduler::put_off`](crate::scheduler::Scheduler::put_off)
    /// with this time, and ask again then.
    PutOff(SimPs),
}

/// Carries out a [`FaultPlan`] on the messages of a world.
#[derive(Debug, Clone)]
pub struct FaultShim {
    links: Vec<LinkState>,
    /// Per node, in order of their beginning.
    outages: Vec<Vec<Outage>>,
    counts: FaultCounts,
    log: Vec<ScriptedFault>,
    log_max: usize,
    log_missed: u64,
}

#[derive(Debug, Clone, Default)]
struct LinkState {
    sent: u64,
    /// Arrival of the last message that kept the order; the next one cannot come before.
    last_in_order: SimPs,
    /// The latest arrival of a message that is out of order.
    held_until: SimPs,
    /// Absent for links on which nothing can go wrong: most of a large fabric.
    faults: Option<Box<LinkFaults>>,
}

#[derive(Debug, Clone)]
struct LinkFaults {
    profile: FaultProfile,
    /// Absent if only the script applies.
    stream: Option<RandomStream>,
    by_message: BTreeMap<u64, Vec<FaultAction>>,
    by_window: Vec<(TimeWindow, FaultAction)>,
}

/// All faults of one message together.
#[derive(Debug, Clone, Copy, Default)]
struct Fate {
    dropped: bool,
    gap: Option<DurationPs>,
    extra: Option<DurationPs>,
    hold: Option<DurationPs>,
}

impl FaultCounts {
    /// Messages and copies still on their way; `None` if more came out than went in, which only a
    /// world can bring about that admits what it never transmitted.
    pub fn in_flight(&self) -> Option<u64> {
        let gone = self.dropped + self.lost_at_dead_node + self.admitted;
        (self.offered + self.duplicated).checked_sub(gone)
    }

    /// Whether each message has met its fate and all are accounted for, as after a drained run.
    pub fn conserved(&self) -> bool {
        self.in_flight() == Some(0)
    }
}

impl Transit {
    /// The arrival times, none to two of them.
    pub fn arrivals(self) -> impl Iterator<Item = SimPs> {
        self.arrival.into_iter().chain(self.copy)
    }
}

impl FaultShim {
    /// A shim for a world of `link_count` links and `node_count` nodes.
    ///
    /// # Errors
    /// If the plan does not fit the world, see [`FaultPlan::validate`].
    pub fn new_checked(
        plan: &FaultPlan,
        link_count: usize,
        node_count: usize,
        streams: RandomStreams,
    ) -> Result<Self, FaultPlanError> {
        plan.validate(link_count, node_count)?;
        let mut shim = Self {
            links: vec![LinkState::default(); link_count],
            outages: vec![Vec::new(); node_count],
            counts: FaultCounts::default(),
            log: Vec::new(),
            log_max: plan.log_max,
            log_missed: 0,
        };
        let single: BTreeMap<LinkId, FaultProfile> = plan.links.iter().copied().collect();
        for (number, state) in (0..).zip(&mut shim.links) {
            let link = LinkId(number);
            let profile = single.get(&link).unwrap_or(&plan.everywhere);
            if !profile.is_healthy() {
                let stream = streams.stream(NodeId(link.0), Purpose::FAULTS);
                state.faults_mut().profile = *profile;
                state.faults_mut().stream = Some(stream);
            }
        }
        for ScriptedFault {
            link,
            occasion,
            action,
        } in &plan.script
        {
            let faults = shim.links[link.index()].faults_mut();
            match occasion {
                Occasion::Message(index) => {
                    faults.by_message.entry(*index).or_default().push(*action);
                }
                Occasion::Window(window) => faults.by_window.push((*window, *action)),
            }
        }
        for outage in &plan.outages {
            shim.begin_outage(*outage)?;
        }
        Ok(shim)
    }

    /// Sends a message at `now` that would arrive at `arrival`. Arrivals on a link keep the order
    /// of sending, unless a message is reordered or a copy.
    ///
    /// # Panics
    /// If the link does not exist.
    pub fn transmit(&mut self, link: LinkId, now: SimPs, arrival: SimPs) -> Transit {
        let state = &mut self.links[link.index()];
        let index = state.sent;
        state.sent += 1;
        self.counts.offered += 1;
        let fate = match &mut state.faults {
            None => Fate::default(),
            Some(faults) => faults.fate(index, now),
        };
        let mut transit = Transit::default();
        if !fate.dropped {
            let (arrival, overtook) = state.arrival(arrival, fate);
            self.counts.overtakes += u64::from(overtook);
            transit.arrival = Some(arrival);
            transit.copy = fate.gap.map(|gap| arrival + gap);
        }
        self.write_down(link, index, fate);
        transit
    }

    /// Asks whether `node` takes what comes to it at `now`.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn admit(&mut self, node: NodeId, now: SimPs, what: Arrival) -> Admission {
        let counts = &mut self.counts;
        let (taken, lost, put_off) = match what {
            Arrival::Message => {
                let FaultCounts {
                    admitted,
                    lost_at_dead_node,
                    messages_put_off,
                    ..
                } = counts;
                (Some(admitted), lost_at_dead_node, messages_put_off)
            }
            Arrival::Timer => (None, &mut counts.timers_lost, &mut counts.timers_put_off),
        };
        match outage_at(&self.outages[node.index()], now) {
            None => {
                if let Some(admitted) = taken {
                    *admitted += 1;
                }
                Admission::Taken
            }
            Some(Outage {
                kind: OutageKind::Death,
                ..
            }) => {
                *lost += 1;
                Admission::Lost
            }
            Some(Outage {
                kind: OutageKind::Pause,
                window,
                ..
            }) => {
                *put_off += 1;
                Admission::PutOff(window.until)
            }
        }
    }

    /// The outage in which `node` is at `now`, if any.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn outage(&self, node: NodeId, now: SimPs) -> Option<Outage> {
        outage_at(&self.outages[node.index()], now)
    }

    /// Adds an outage to the plan, also in mid-run: a world may kill a node on what it has seen.
    ///
    /// # Errors
    /// If the outage does not fit the world, see [`FaultPlan::validate`].
    pub fn begin_outage(&mut self, outage: Outage) -> Result<(), FaultPlanError> {
        outage.validate(self.outages.len())?;
        let outages = &mut self.outages[outage.node.index()];
        let place = outages.partition_point(|earlier| earlier.window.from <= outage.window.from);
        outages.insert(place, outage);
        Ok(())
    }

    /// When dead nodes come back: there the world replaces the node by a new one.
    pub fn restarts(&self) -> impl Iterator<Item = (NodeId, SimPs)> {
        self.outages.iter().flatten().filter_map(|outage| {
            let ends = outage.kind == OutageKind::Death && outage.window.until < SimPs::MAX;
            ends.then_some((outage.node, outage.window.until))
        })
    }

    /// What has been done so far.
    pub const fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// The faults of messages so far, as a script that does the same again without chance; at
    /// most `log_max` of them, see [`FaultShim::log_missed`].
    pub fn log(&self) -> &[ScriptedFault] {
        &self.log
    }

    /// Faults that were counted but are not in the log, because it was full.
    pub const fn log_missed(&self) -> u64 {
        self.log_missed
    }

    fn write_down(&mut self, link: LinkId, index: u64, fate: Fate) {
        let Fate {
            dropped,
            gap,
            extra,
            hold,
        } = fate;
        let actions = [
            (
                dropped.then_some(FaultAction::Drop),
                &mut self.counts.dropped,
            ),
            (
                gap.map(|gap| FaultAction::Duplicate { gap }),
                &mut self.counts.duplicated,
            ),
            (
                extra.map(|extra| FaultAction::Delay { extra }),
                &mut self.counts.delayed,
            ),
            (
                hold.map(|hold| FaultAction::Reorder { hold }),
                &mut self.counts.reordered,
            ),
        ];
        for (action, count) in actions {
            let Some(action) = action else { continue };
            *count += 1;
            if self.log.len() < self.log_max {
                self.log.push(ScriptedFault {
                    link,
                    occasion: Occasion::Message(index),
                    action,
                });
            } else {
                self.log_missed += 1;
            }
        }
    }
}

impl LinkState {
    fn faults_mut(&mut self) -> &mut LinkFaults {
        self.faults.get_or_insert_with(|| {
            Box::new(LinkFaults {
                profile: FaultProfile::HEALTHY,
                stream: None,
                by_message: BTreeMap::new(),
                by_window: Vec::new(),
            })
        })
    }

    /// When a message of this fate arrives, and whether it passes a reordered one.
    fn arrival(&mut self, arrival: SimPs, fate: Fate) -> (SimPs, bool) {
        let late = arrival + fate.extra.unwrap_or(DurationPs::ZERO);
        if let Some(hold) = fate.hold {
            // Behind those before it all the same; only what follows may pass.
            let held = late.max(self.last_in_order) + hold;
            self.held_until = self.held_until.max(held);
            return (held, false);
        }
        self.last_in_order = self.last_in_order.max(late);
        (self.last_in_order, self.last_in_order < self.held_until)
    }
}

impl LinkFaults {
    fn fate(&mut self, index: u64, now: SimPs) -> Fate {
        let mut fate = Fate::default();
        if let Some(stream) = &mut self.stream {
            let by_chance = by_chance(&self.profile, stream);
            if self.profile.active.contains(now) {
                fate = by_chance;
            }
        }
        let by_message = self.by_message.get(&index).into_iter().flatten();
        let in_window = self
            .by_window
            .iter()
            .filter(|(window, _)| window.contains(now));
        for action in by_message.chain(in_window.map(|(_, action)| action)) {
            match *action {
                FaultAction::Drop => fate.dropped = true,
                FaultAction::Duplicate { gap } => fate.gap = Some(gap),
                FaultAction::Delay { extra } => fate.extra = Some(extra),
                FaultAction::Reorder { hold } => fate.hold = Some(hold),
            }
        }
        if fate.dropped {
            Fate {
                dropped: true,
                ..Fate::default()
            }
        } else {
            fate
        }
    }
}

/// Draws a fate. Each message takes seven draws whatever comes out, so that changing one chance,
/// or the window, moves no other fault to another message.
fn by_chance(profile: &FaultProfile, stream: &mut RandomStream) -> Fate {
    let dropped = stream.chance(profile.drop);
    let mut shift = |probability| {
        let happens = stream.chance(probability);
        let length = stream.between(profile.shift_min, profile.shift_max);
        happens.then_some(length)
    };
    let gap = shift(profile.duplicate);
    let extra = shift(profile.delay);
    let hold = shift(profile.reorder);
    Fate {
        dropped,
        gap,
        extra,
        hold,
    }
}

/// The outage that holds at `now`; death before pause.
fn outage_at(outages: &[Outage], now: SimPs) -> Option<Outage> {
    let begun = outages
        .iter()
        .take_while(|outage| outage.window.from <= now);
    let holding = begun.filter(|outage| outage.window.contains(now)).copied();
    holding.max_by_key(|outage| outage.kind == OutageKind::Death)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Probability;

    const LINK: LinkId = LinkId(0);
    const NODE: NodeId = NodeId(0);

    fn shim(plan: &FaultPlan) -> FaultShim {
        FaultShim::new_checked(plan, 1, 1, RandomStreams::new(11)).unwrap()
    }

    fn scripted(faults: &[(u64, FaultAction)]) -> FaultShim {
        let script = faults.iter().map(|(index, action)| {
            let occasion = Occasion::Message(*index);
            ScriptedFault {
                link: LINK,
                occasion,
                action: *action,
            }
        });
        shim(&FaultPlan::scripted(script.collect()))
    }

    /// Sends messages 10 ps apart over a link of 100 ps and says when each arrives.
    fn arrivals(shim: &mut FaultShim, count: u64) -> Vec<Vec<u64>> {
        let send = |index: u64| {
            let now = SimPs(index * 10);
            let transit = shim.transmit(LINK, now, now + DurationPs(100));
            transit.arrivals().map(|time| time.0).collect()
        };
        (0..count).map(send).collect()
    }

    #[test]
    fn a_healthy_link_only_counts() {
        let mut shim = shim(&FaultPlan::none());
        assert_eq!(arrivals(&mut shim, 3), [[100], [110], [120]]);
        for time in [100, 110, 120] {
            assert_eq!(
                shim.admit(NODE, SimPs(time), Arrival::Message),
                Admission::Taken
            );
        }
        let expected = FaultCounts {
            offered: 3,
            admitted: 3,
            ..FaultCounts::default()
        };
        assert_eq!(shim.counts(), expected);
        assert!(shim.counts().conserved() && shim.log().is_empty());
    }

    #[test]
    fn a_delayed_message_holds_up_those_behind_it() {
        let mut shim = scripted(&[(
            1,
            FaultAction::Delay {
                extra: DurationPs(15),
            },
        )]);
        assert_eq!(arrivals(&mut shim, 4), [[100], [125], [125], [130]]);
        assert_eq!((shim.counts().delayed, shim.counts().overtakes), (1, 0));
    }

    #[test]
    fn a_reordered_message_is_passed_by_those_behind_it() {
        let mut shim = scripted(&[(
            1,
            FaultAction::Reorder {
                hold: DurationPs(15),
            },
        )]);
        assert_eq!(arrivals(&mut shim, 4), [[100], [125], [120], [130]]);
        assert_eq!((shim.counts().reordered, shim.counts().overtakes), (1, 1));
    }

    #[test]
    fn a_dropped_message_never_arrives_and_a_copy_comes_on_top() {
        let gap = DurationPs(7);
        let mut shim = scripted(&[
            (0, FaultAction::Drop),
            (0, FaultAction::Duplicate { gap }),
            (1, FaultAction::Duplicate { gap }),
        ]);
        let expected: [&[u64]; 3] = [&[], &[110, 117], &[120]];
        assert_eq!(arrivals(&mut shim, 3), expected);
        assert_eq!((shim.counts().dropped, shim.counts().duplicated), (1, 1));
        assert_eq!(shim.counts().in_flight(), Some(3));
    }

    #[test]
    fn a_window_strikes_by_time_of_sending() {
        let window = TimeWindow::new(SimPs(10), SimPs(30));
        let occasion = Occasion::Window(window);
        let script = vec![ScriptedFault {
            link: LINK,
            occasion,
            action: FaultAction::Drop,
        }];
        let mut shim = shim(&FaultPlan::scripted(script));
        let expected: [&[u64]; 4] = [&[100], &[], &[], &[130]];
        assert_eq!(arrivals(&mut shim, 4), expected);
    }

    #[test]
    fn one_chance_does_not_move_the_faults_of_another() {
        let dropped = |profile| {
            let mut shim = shim(&FaultPlan::by_chance(profile));
            let fates = arrivals(&mut shim, 500);
            fates.iter().map(Vec::is_empty).collect::<Vec<bool>>()
        };
        let drops = FaultProfile {
            drop: Probability::from_ppm(100_000),
            ..FaultProfile::HEALTHY
        };
        let both = FaultProfile {
            duplicate: Probability::from_ppm(300_000),
            shift_max: DurationPs(50),
            ..drops
        };
        let late = FaultProfile {
            active: TimeWindow::new(SimPs(2_500), SimPs::MAX),
            ..drops
        };
        assert_eq!(dropped(drops), dropped(both));
        assert_eq!(dropped(drops)[250..], dropped(late)[250..]);
        assert!(dropped(late)[..250].iter().all(|dropped| !dropped));
        assert!(dropped(drops).contains(&true));
    }

    #[test]
    fn the_log_replays_the_faults_without_chance() {
        let chance = Probability::from_ppm(200_000);
        let profile = FaultProfile {
            drop: chance,
            duplicate: chance,
            delay: chance,
            reorder: chance,
            shift_min: DurationPs(1),
            shift_max: DurationPs(90),
            active: TimeWindow::ALWAYS,
        };
        let mut by_chance = shim(&FaultPlan::by_chance(profile));
        let first = arrivals(&mut by_chance, 1_000);
        let mut again = shim(&FaultPlan::scripted(by_chance.log().to_vec()));
        assert_eq!(arrivals(&mut again, 1_000), first);
        assert_eq!(again.counts(), by_chance.counts());
        let counts = again.counts();
        let injected = counts.dropped + counts.duplicated + counts.delayed + counts.reordered;
        assert_eq!(again.log().len() as u64, injected);

        let mut short = shim(&FaultPlan {
            log_max: 10,
            ..FaultPlan::by_chance(profile)
        });
        arrivals(&mut short, 1_000);
        assert_eq!((short.log().len(), short.log_missed()), (10, injected - 10));
    }

    #[test]
    fn death_wins_over_pause_and_both_end() {
        let outage = |kind, from, until| Outage {
            node: NODE,
            kind,
            window: TimeWindow::new(SimPs(from), SimPs(until)),
        };
        let outages = vec![
            outage(OutageKind::Pause, 20, 60),
            outage(OutageKind::Death, 10, 30),
        ];
        let mut shim = shim(&FaultPlan {
            outages,
            ..FaultPlan::none()
        });
        let mut admit = |time, what| shim.admit(NODE, SimPs(time), what);
        assert_eq!(admit(9, Arrival::Timer), Admission::Taken);
        assert_eq!(admit(10, Arrival::Timer), Admission::Lost);
        assert_eq!(admit(20, Arrival::Message), Admission::Lost);
        assert_eq!(admit(30, Arrival::Message), Admission::PutOff(SimPs(60)));
        assert_eq!(admit(59, Arrival::Timer), Admission::PutOff(SimPs(60)));
        assert_eq!(admit(60, Arrival::Message), Admission::Taken);
        let counts = shim.counts();
        assert_eq!((counts.timers_lost, counts.timers_put_off), (1, 1));
        assert_eq!(
            (
                counts.lost_at_dead_node,
                counts.messages_put_off,
                counts.admitted
            ),
            (1, 1, 1)
        );
        assert_eq!(
            counts.in_flight(),
            None,
            "admitted without having been sent"
        );
        assert_eq!(shim.restarts().collect::<Vec<_>>(), [(NODE, SimPs(30))]);
        assert_eq!(
            shim.outage(NODE, SimPs(40)).map(|outage| outage.kind),
            Some(OutageKind::Pause)
        );
    }
}
