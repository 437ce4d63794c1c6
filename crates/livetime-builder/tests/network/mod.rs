//! A builder in memory: readout units, builder units, event manager, filter units and a writer, joined
//! by queues that a seeded shim may lose from or duplicate into, in any order of steps.
//!
//! It checks while it runs that no event is built twice, that every ticket is complete or names the
//! rest, that pages are freed once and never while a filter unit or the writer reads them, and that credits are
//! conserved. It does not bring messages of one pair out of order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use livetime_builder::{
    BuilderConfig, BuilderUnit, EventManager, FragmentVerdict, Handled, ReadoutOutput, ReadoutUnit,
};
use livetime_wire::message::{
    AcceptedEvent, BuilderMessage, Envelope, EventTicket, FragmentDescriptor, Keep, MessageWords,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{
    ChainCounts, L2Mask, LossCause, LossCounts, RunNs, SourceId, TriggerNumber, UnitId, UnitKind,
};

/// Triggers that may be undecided at a time.
const L2_BUFFERS: usize = 4;
/// Far above what any run takes; a run that takes more makes no progress.
const STEPS_MAX: u64 = 3_000_000;
const EPOCH: u32 = 3;

/// Given choices first, then SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
struct Random {
    state: u64,
    choices: VecDeque<u8>,
}

impl Random {
    fn new(seed: u64, choices: &[u8]) -> Self {
        Self {
            state: seed,
            choices: choices.iter().copied().collect(),
        }
    }

    fn next(&mut self) -> u64 {
        if let Some(choice) = self.choices.pop_front() {
            return choice.into();
        }
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn percent(&mut self, chance: u32) -> bool {
        self.next() % 100 < u64::from(chance)
    }
}

/// What goes wrong, each in percent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Messages between builder, readout units and event manager that are lost.
    pub(crate) lost: u32,
    /// Messages of any pair that come twice, the second time at once or much later.
    pub(crate) duplicated: u32,
    /// Fragments that their link loses.
    pub(crate) link_lost: u32,
    /// Fragments that their link brings twice.
    pub(crate) link_duplicated: u32,
    /// Time runs on while messages wait, so that timeouts strike at any moment.
    pub(crate) hasty: bool,
}

/// A trigger that the supervisor has not decided.
#[derive(Debug, Clone, Copy)]
struct Undecided {
    trigger: TriggerNumber,
    is_accepted: bool,
}

/// The whole builder with its surroundings.
pub(crate) struct Network {
    pub(crate) config: BuilderConfig,
    pub(crate) evm: EventManager,
    pub(crate) builders: Vec<BuilderUnit>,
    pub(crate) readouts: Vec<ReadoutUnit>,
    faults: Faults,
    random: Random,
    now: RunNs,
    /// By receiver and sender; messages of a pair stay in order.
    lanes: BTreeMap<(UnitId, UnitId), VecDeque<MessageWords>>,
    /// Second copies that come much later.
    echoes: Vec<(UnitId, UnitId, MessageWords)>,
    sequences: BTreeMap<(UnitId, UnitId), u32>,
    /// Triggers not yet given.
    triggers_left: u64,
    triggers_given: u64,
    undecided: Vec<Undecided>,
    /// By source: fragments on the link, in order.
    links: BTreeMap<SourceId, VecDeque<TriggerNumber>>,
    /// By readout unit: fragments on file and the pages in use.
    files: Vec<BTreeMap<TriggerNumber, BTreeMap<SourceId, u32>>>,
    pages: Vec<BTreeSet<u32>>,
    next_page: u32,
    /// By filter unit: tickets with their builder unit.
    filters: Vec<VecDeque<EventTicket>>,
    /// Tickets at the writer.
    writer: VecDeque<EventTicket>,
    /// Fragments whose link lost them.
    pub(crate) withheld: BTreeSet<(TriggerNumber, SourceId)>,
    /// Missing sources of every event that came to a filter unit.
    pub(crate) events: BTreeMap<TriggerNumber, Vec<SourceId>>,
    pub(crate) counts: ChainCounts,
    link_losses: LossCounts,
    filter_losses: LossCounts,
    is_aborted: bool,
}

impl Network {
    pub(crate) fn new(config: BuilderConfig, triggers: u64, seed: u64, faults: Faults) -> Self {
        Self::with_random(config, triggers, Random::new(seed, &[]), faults)
    }

    /// A network whose first steps are chosen by bytes, as a fuzz target has them.
    pub(crate) fn with_choices(
        config: BuilderConfig,
        triggers: u64,
        choices: &[u8],
        faults: Faults,
    ) -> Self {
        Self::with_random(config, triggers, Random::new(0, choices), faults)
    }

    fn with_random(config: BuilderConfig, triggers: u64, random: Random, faults: Faults) -> Self {
        assert_eq!(config.validate("builder"), []);
        let readouts = config.readout_units.len();
        let links = config.readout_units.iter().flatten();
        Self {
            evm: EventManager::new(&config, EPOCH),
            builders: (0..config.builder_units)
                .map(|index| BuilderUnit::new(&config, index, EPOCH))
                .collect(),
            readouts: (0..readouts as u16)
                .map(|index| ReadoutUnit::new(&config, index, EPOCH))
                .collect(),
            faults,
            random,
            now: RunNs(0),
            lanes: BTreeMap::new(),
            echoes: Vec::new(),
            sequences: BTreeMap::new(),
            triggers_left: triggers,
            triggers_given: 0,
            undecided: Vec::new(),
            links: links.map(|source| (*source, VecDeque::new())).collect(),
            files: vec![BTreeMap::new(); readouts],
            pages: vec![BTreeSet::new(); readouts],
            next_page: 0,
            filters: vec![VecDeque::new(); config.filter_units.into()],
            writer: VecDeque::new(),
            withheld: BTreeSet::new(),
            events: BTreeMap::new(),
            counts: ChainCounts::default(),
            link_losses: LossCounts::new(),
            filter_losses: LossCounts::new(),
            is_aborted: false,
            config,
        }
    }

    /// Runs until everything that was triggered is stored or lost.
    pub(crate) fn run(&mut self) {
        let mut steps = 0;
        while !self.is_finished() {
            self.step();
            steps += 1;
            assert!(steps < STEPS_MAX, "no end: {}", self.state());
        }
        self.check_end();
    }

    /// Runs for `steps` steps or to the end.
    pub(crate) fn run_steps(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.is_finished() {
                return;
            }
            self.step();
        }
    }

    /// Ends by force at this moment: aborts, delivers what is in flight, closes.
    pub(crate) fn abort(&mut self) {
        self.is_aborted = true;
        self.triggers_left = 0;
        self.counts.offered = self.triggers_given;
        for undecided in std::mem::take(&mut self.undecided) {
            self.filter_losses.add(LossCause::DecisionAborted, 1);
            self.decide(undecided.trigger, Keep::Drop);
        }
        self.evm.abort();
        self.builders.iter_mut().for_each(BuilderUnit::abort);
        self.readouts.iter_mut().for_each(ReadoutUnit::abort);
        // Filter units go away with what they hold, and answer no more.
        for filter in &mut self.filters {
            filter.clear();
        }
        self.settle();
        self.builders.iter_mut().for_each(BuilderUnit::close);
        self.settle();
        self.evm.close();
        self.readouts.iter_mut().for_each(ReadoutUnit::close);
        self.settle();
        self.check_end();
    }

    /// Delivers what is in flight, with repetitions, until nothing happens for a while.
    fn settle(&mut self) {
        let until = self.now.0 + 20 * self.config.probe.0;
        while self.now.0 < until && !self.is_finished() {
            self.step();
        }
    }

    fn is_finished(&self) -> bool {
        self.triggers_left == 0
            && self.undecided.is_empty()
            && self.links.values().all(VecDeque::is_empty)
            && self.lanes.values().all(VecDeque::is_empty)
            && self.echoes.is_empty()
            && self.filters.iter().all(VecDeque::is_empty)
            && self.writer.is_empty()
            && self.evm.is_idle()
            && self.builders.iter().all(BuilderUnit::is_idle)
            && self.readouts.iter().all(ReadoutUnit::is_idle)
    }

    fn state(&self) -> String {
        let held: Vec<_> = self
            .readouts
            .iter()
            .map(ReadoutUnit::triggers_held)
            .collect();
        let building: Vec<_> = self.builders.iter().map(BuilderUnit::events_held).collect();
        let idle: Vec<_> = self.builders.iter().map(BuilderUnit::is_idle).collect();
        let lanes: usize = self.lanes.values().map(VecDeque::len).sum();
        format!(
            "at {:?}: {} triggers left, {} undecided, {} queued, {lanes} messages, readout units \
             hold {held:?}, builder units {building:?}, idle {idle:?}",
            self.now,
            self.triggers_left,
            self.undecided.len(),
            self.evm.queued(),
        )
    }

    /// One thing happens; when nothing can, time passes to the next timeout.
    fn step(&mut self) {
        if self.faults.hasty && self.random.percent(2) {
            self.pass_time(self.config.timeout.0 / 3);
            return;
        }
        let first = self.random.below(7);
        for action in 0..7 {
            let is_done = match (first + action) % 7 {
                0 => self.deliver(),
                1 => self.trigger(),
                2 => self.bring_fragment(),
                3 => self.poll_unit(),
                4 => self.filter(),
                5 => self.write(),
                _ => self.echo(),
            };
            if is_done {
                return;
            }
        }
        if self.poll_every_unit() {
            return;
        }
        let next = self.next_timeout();
        if next == RunNs::MAX {
            // The last poll may have emptied a unit without an output.
            assert!(self.is_finished(), "stuck {}", self.state());
            return;
        }
        self.now = self.now.max(next);
        self.strike();
    }

    fn next_timeout(&self) -> RunNs {
        let builders = self.builders.iter().map(BuilderUnit::poll_timeout);
        let readouts = self.readouts.iter().map(ReadoutUnit::poll_timeout);
        let all = builders.chain(readouts).chain([self.evm.poll_timeout()]);
        all.min().unwrap_or(RunNs::MAX)
    }

    fn pass_time(&mut self, most: u64) {
        self.now.0 += self.random.next() % most;
        self.strike();
    }

    fn strike(&mut self) {
        let now = self.now;
        self.evm.handle_timeout(now);
        self.builders.iter_mut().for_each(|b| b.handle_timeout(now));
        self.readouts.iter_mut().for_each(|r| r.handle_timeout(now));
    }

    /// Level 1 accepts a trigger, or the supervisor decides one.
    fn trigger(&mut self) -> bool {
        let accepts = (UnitId::EVENT_MANAGER, UnitId::SUPERVISOR);
        let waiting = self.lanes.get(&accepts).map_or(0, VecDeque::len);
        if self.undecided.len() < L2_BUFFERS && self.triggers_left > 0 && waiting < 8 {
            self.triggers_left -= 1;
            self.triggers_given += 1;
            self.counts.offered += 1;
            let trigger = TriggerNumber(self.triggers_given);
            self.counts.triggers += 1;
            for link in self.links.values_mut() {
                link.push_back(trigger);
                self.counts.fragments_sent += 1;
            }
            self.undecided.push(Undecided {
                trigger,
                is_accepted: self.random.percent(60),
            });
            return true;
        }
        if self.undecided.is_empty() {
            return false;
        }
        let chosen = self.random.below(self.undecided.len());
        let Undecided {
            trigger,
            is_accepted,
        } = self.undecided.swap_remove(chosen);
        if !is_accepted {
            self.counts.l2_rejected += 1;
            self.decide(trigger, Keep::Drop);
            return true;
        }
        self.counts.l2_accepted += 1;
        self.decide(trigger, Keep::Build);
        self.send_from(
            UnitId::SUPERVISOR,
            UnitId::EVENT_MANAGER,
            BuilderMessage::L2Accept {
                trigger,
                mask: L2Mask(u128::from(trigger.0)),
                triggered_at: self.now,
            },
        );
        true
    }

    fn decide(&mut self, trigger: TriggerNumber, keep: Keep) {
        for index in 0..self.readouts.len() as u16 {
            let decision = BuilderMessage::Decision { trigger, keep };
            self.send_from(UnitId::SUPERVISOR, UnitId::readout(index), decision);
        }
    }

    /// A fragment comes out of a link.
    fn bring_fragment(&mut self) -> bool {
        let busy: Vec<SourceId> = self
            .links
            .iter()
            .filter(|(_, link)| !link.is_empty())
            .map(|(source, _)| *source)
            .collect();
        if busy.is_empty() {
            return false;
        }
        let source = busy[self.random.below(busy.len())];
        let trigger = self.links[&source][0];
        if self.random.percent(self.faults.link_lost) {
            self.link_losses.add(LossCause::LinkDown, 1);
            self.withheld.insert((trigger, source));
        } else if !self.receive_fragment(trigger, source) {
            return false;
        } else if self.random.percent(self.faults.link_duplicated) {
            self.counts.fragments_sent += 1;
            while !self.receive_fragment(trigger, source) {
                self.poll_every_unit();
            }
        }
        self.links.get_mut(&source).expect("just read").pop_front();
        true
    }

    /// False when the readout unit makes it wait.
    fn receive_fragment(&mut self, trigger: TriggerNumber, source: SourceId) -> bool {
        let readouts = &self.config.readout_units;
        let unit = readouts.iter().position(|s| s.contains(&source));
        let unit = unit.expect("every link has its unit");
        match self.readouts[unit].handle_fragment(self.now, trigger, source) {
            FragmentVerdict::Wait => return false,
            FragmentVerdict::Discard { .. }
            | FragmentVerdict::DiscardUnasked
            | FragmentVerdict::KeepBetter => {}
            FragmentVerdict::Hold => {
                let page = self.next_page;
                self.next_page += 1;
                assert!(self.pages[unit].insert(page));
                let file = self.files[unit].entry(trigger).or_default();
                assert_eq!(file.insert(source, page), None, "filed twice");
            }
        }
        self.counts.fragments_received += 1;
        true
    }

    /// A message of a unit that is not a core here.
    fn send_from(&mut self, sender: UnitId, to: UnitId, message: BuilderMessage) {
        let next = self.sequences.entry((sender, to)).or_default();
        let sequence = *next;
        *next += 1;
        let envelope = Envelope {
            sender,
            epoch: EPOCH,
            sequence,
            message,
        };
        self.carry(to, &envelope);
    }

    /// The shim: a message enters the network, or not, or twice.
    fn carry(&mut self, to: UnitId, envelope: &Envelope) {
        let sender = envelope.sender;
        let words = envelope.to_words();
        let core = |unit: UnitId| {
            matches!(
                unit.kind,
                UnitKind::Builder | UnitKind::Readout | UnitKind::EventManager
            )
        };
        let is_lossy = core(sender) && core(to);
        if is_lossy && self.random.percent(self.faults.lost) {
            return;
        }
        let lane = self.lanes.entry((to, sender)).or_default();
        lane.push_back(words.clone());
        if self.random.percent(self.faults.duplicated) {
            if self.random.percent(50) {
                lane.push_back(words);
            } else {
                self.echoes.push((to, sender, words));
            }
        }
    }

    /// A late copy enters its lane.
    fn echo(&mut self) -> bool {
        if self.echoes.is_empty() {
            return false;
        }
        let chosen = self.random.below(self.echoes.len());
        let (to, sender, words) = self.echoes.swap_remove(chosen);
        self.lanes.entry((to, sender)).or_default().push_back(words);
        true
    }

    /// One message arrives, of a random pair of those that are not kept waiting.
    fn deliver(&mut self) -> bool {
        let busy: Vec<(UnitId, UnitId)> = self
            .lanes
            .iter()
            .filter(|(_, lane)| !lane.is_empty())
            .map(|(pair, _)| *pair)
            .collect();
        let first = self.random.below(busy.len().max(1));
        (0..busy.len()).any(|n| self.deliver_on(busy[(first + n) % busy.len()]))
    }

    fn deliver_on(&mut self, pair: (UnitId, UnitId)) -> bool {
        let envelope = Envelope::parse(&self.lanes[&pair][0]).expect("a unit wrote it");
        let unit = usize::from(pair.0.index);
        let handled = match pair.0.kind {
            UnitKind::EventManager => self.evm.handle_message(self.now, &envelope),
            UnitKind::Builder => self.builders[unit].handle_message(self.now, &envelope),
            _ => self.readouts[unit].handle_message(self.now, &envelope),
        };
        assert_ne!(handled, Handled::Refused, "{envelope:?}");
        assert!(self.evm.credits_conserved());
        for builder in 0..self.config.builder_units {
            assert!(self.evm.free_bytes(builder) >= 0, "a receiver overflows");
        }
        if handled == Handled::Taken {
            self.lanes.get_mut(&pair).expect("just read").pop_front();
        }
        handled == Handled::Taken
    }

    /// Polls a random unit a random number of times.
    fn poll_unit(&mut self) -> bool {
        let unit = self
            .random
            .below(1 + self.builders.len() + self.readouts.len());
        let times = 1 + self.random.below(6);
        (0..times).take_while(|_| self.poll_one(unit)).count() > 0
    }

    fn poll_every_unit(&mut self) -> bool {
        let units = 1 + self.builders.len() + self.readouts.len();
        let mut is_done = false;
        for unit in 0..units {
            is_done |= self.poll_one(unit);
        }
        is_done
    }

    fn poll_one(&mut self, unit: usize) -> bool {
        let Some(unit) = unit.checked_sub(1) else {
            let output = self.evm.poll_output(self.now);
            return output.is_some_and(|sent| {
                self.carry(sent.to, &sent.envelope);
                true
            });
        };
        if unit < self.builders.len() {
            return self.poll_builder(unit);
        }
        let unit = unit - self.builders.len();
        let Some(output) = self.readouts[unit].poll_output() else {
            return false;
        };
        match output {
            ReadoutOutput::SendFragment {
                to,
                sequence,
                trigger,
                source,
            } => {
                let page = self.files[unit][&trigger][&source];
                let fragment = FragmentDescriptor {
                    source,
                    pool: unit as u16,
                    words: 1 + trigger.low().wrapping_add(source.0) % 25,
                    status: FragmentStatus::GOOD,
                    crc: trigger.low(),
                    pages: [page].into_iter().collect(),
                };
                let message = self.readouts[unit].fragment_message(sequence, trigger, fragment);
                self.carry(to, &message);
            }
            ReadoutOutput::Free { trigger, .. } => {
                let file = self.files[unit].remove(&trigger).expect("freed twice");
                for page in file.values() {
                    assert!(self.pages[unit].remove(page), "page {page} freed twice");
                }
            }
        }
        true
    }

    fn poll_builder(&mut self, unit: usize) -> bool {
        let builder = &mut self.builders[unit];
        assert!(builder.events_held() <= self.config.credits as usize);
        if self.random.percent(50)
            && let Some(sent) = builder.poll_output(self.now)
        {
            self.carry(sent.to, &sent.envelope);
            return true;
        }
        let mut ticket = self.builders[unit].empty_ticket();
        if let Some(filter) = self.builders[unit].poll_ticket(&mut ticket) {
            if self.is_aborted {
                panic!("a ticket after the abort");
            }
            assert_eq!(usize::from(ticket.builder), unit);
            let is_served = self.config.serves(ticket.builder, filter.index);
            assert!(is_served, "{filter} is of another subfarm than bu{unit}");
            self.check_ticket(&ticket);
            self.filters[usize::from(filter.index)].push_back(ticket);
            return true;
        }
        if self.builders[unit].poll_accepted(&mut ticket) {
            let trigger = ticket.trigger.low();
            assert_eq!((ticket.filter_reason, ticket.streams), verdict_of(trigger));
            self.writer.push_back(ticket);
            return true;
        }
        let output = self.builders[unit].poll_output(self.now);
        output.is_some_and(|sent| {
            self.carry(sent.to, &sent.envelope);
            true
        })
    }

    fn check_ticket(&mut self, ticket: &EventTicket) {
        let trigger = ticket.trigger;
        assert_eq!(ticket.mask, L2Mask(u128::from(trigger.0)));
        assert!(ticket.assigned_at <= ticket.built_at);
        let fragments: Vec<SourceId> = ticket.fragments.iter().map(|f| f.source).collect();
        assert!(fragments.is_sorted() && ticket.missing.is_sorted());
        let mut all = [fragments, ticket.missing.clone()].concat();
        all.sort();
        assert!(all.iter().eq(self.links.keys()), "each source once");
        for fragment in &ticket.fragments {
            assert_eq!(fragment.crc, trigger.low(), "fragment of another trigger");
        }
        let before = self.events.insert(trigger, ticket.missing.clone());
        assert_eq!(before, None, "trigger {trigger} built twice");
    }

    /// A filter unit is through with an event, and accepts every second.
    fn filter(&mut self) -> bool {
        let first = self.random.below(self.filters.len());
        let mut filters = (0..self.filters.len()).map(|n| (first + n) % self.filters.len());
        let Some(filter) = filters.find(|filter| !self.filters[*filter].is_empty()) else {
            return false;
        };
        let waiting = self.filters[filter].len();
        let chosen = self.random.below(waiting);
        let ticket = self.filters[filter].remove(chosen).expect("is waiting");
        self.check_pages(&ticket);
        let trigger = ticket.trigger;
        let answer = if trigger.0.is_multiple_of(2) {
            self.counts.filter_accepted += 1;
            let (reason, streams) = verdict_of(trigger.low());
            let event = AcceptedEvent {
                trigger,
                reason,
                streams,
            };
            BuilderMessage::EventsAccepted {
                events: [event].into_iter().collect(),
            }
        } else {
            self.counts.filter_rejected += 1;
            BuilderMessage::EventDone {
                triggers: [trigger].into_iter().collect(),
            }
        };
        let sender = UnitId::filter(filter as u16);
        self.send_from(sender, UnitId::builder(ticket.builder), answer);
        true
    }

    /// The writer is through with an event.
    fn write(&mut self) -> bool {
        if self.writer.is_empty() {
            return false;
        }
        let chosen = self.random.below(self.writer.len());
        let ticket = self.writer.remove(chosen).expect("is waiting");
        self.check_pages(&ticket);
        self.counts.events_stored += 1;
        self.builders[usize::from(ticket.builder)].handle_written(ticket.trigger);
        true
    }

    fn check_pages(&self, ticket: &EventTicket) {
        for fragment in &ticket.fragments {
            let pages = &self.pages[usize::from(fragment.pool)];
            assert!(pages.contains(&fragment.pages[0]), "page freed too early");
        }
    }

    /// After the end: everything is back where it belongs and accounted for.
    fn check_end(&mut self) {
        assert!(self.is_finished(), "{}", self.state());
        assert!(self.pages.iter().all(BTreeSet::is_empty), "pages leaked");
        assert!(self.evm.credits_conserved());
        let granted = self.evm.counts().credits_granted;
        let free: u32 = (0..self.config.builder_units)
            .map(|builder| self.evm.free_credits(builder))
            .sum();
        assert_eq!(u64::from(free), granted);
        let mut losses = self.link_losses;
        losses.merge(&self.filter_losses);
        losses.merge(self.evm.losses());
        for builder in &self.builders {
            losses.merge(builder.losses());
            let counts = builder.counts();
            self.counts.events_built += counts.events_built;
            self.counts.events_incomplete += counts.events_incomplete;
            self.counts.fragments_in_built += counts.fragments_in_built;
            self.counts.fragments_in_incomplete += counts.fragments_in_incomplete;
            assert_eq!(counts.assignments_refused + counts.assignments_too_old, 0);
            assert_eq!(counts.fragments_stranger, 0);
        }
        for readout in &self.readouts {
            losses.merge(readout.losses());
            let counts = readout.counts();
            self.counts.fragments_dropped_by_decision += counts.fragments_dropped_by_decision;
            assert_eq!(
                counts.requests_conflicting + counts.decisions_conflicting,
                0
            );
        }
        assert_eq!(self.counts.problems(&losses), [], "{losses:?}");
    }
}

/// What the filter units say about an event that they accept: reason and streams.
fn verdict_of(trigger: u32) -> (u16, u16) {
    ((trigger % 7) as u16, (trigger % 5) as u16)
}
