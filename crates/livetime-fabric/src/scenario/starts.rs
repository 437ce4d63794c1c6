//! A scenario from several starts: what its event builder reaches whatever the seed.
//!
//! With triggers that are always there packets may find an order that stays for as long as one likes
//! to simulate, and another one from another seed. Each such run is steady, and its interval says
//! nothing of the others: that takes several starts.

use super::{Scenario, ScenarioOutcome};
use crate::builder_network::{BuilderNetworkOutcome, Shaping};
use crate::network::topology::TopologyError;
use crate::network::{Arrival, Estimate};
use crate::replica::run_all;

/// What one of several starts gave.
#[derive(Debug, Clone)]
pub struct StartOutcome {
    /// Its seed.
    pub seed: u64,
    /// Events that went through the filters, per second.
    pub event_rate: Estimate,
    /// Payload per builder unit and second, bytes.
    pub throughput_per_node: f64,
    /// The same as a share of the links of builder units.
    pub efficiency_link: f64,
    /// Whether packets stood still for ever.
    pub is_deadlocked: bool,
    /// What should not have happened, with the seed; empty in a good run.
    violations: Vec<String>,
}

impl StartOutcome {
    fn new(seed: u64, builder: &BuilderNetworkOutcome) -> Self {
        let mut violations = builder.violations.clone();
        if violations.is_empty() && !builder.is_conserved() {
            violations.push("fragments are not conserved".to_owned());
        }
        for violation in &mut violations {
            *violation = format!("seed {seed}: {violation}");
        }
        Self {
            seed,
            event_rate: builder.event_rate,
            throughput_per_node: builder.throughput_per_node,
            efficiency_link: builder.efficiency_link,
            is_deadlocked: builder.is_deadlocked(),
            violations,
        }
    }
}

impl Scenario {
    /// Runs a scenario with an event builder from so many starts, each with the next seed, on up to so
    /// many threads. Rate, throughput and efficiency are those of all starts, and all else is of the first.
    /// Call [`Self::validate`] first.
    ///
    /// # Errors
    /// [`TopologyError`] when the network cannot be built.
    ///
    /// # Panics
    /// When the scenario has other problems.
    pub fn run_starts(
        &self,
        starts: u32,
        threads: usize,
    ) -> Result<ScenarioOutcome, TopologyError> {
        let job = |start: u32| {
            move || {
                let mut scenario = self.clone();
                scenario.load.seed = self.load.seed.wrapping_add(start.into());
                // Those of the first are what is said of links.
                scenario.load.counts_links &= start == 0;
                let outcome = scenario.run_alone()?;
                let builder = outcome.builder.as_ref();
                let of_start = builder.map(|b| StartOutcome::new(scenario.load.seed, b));
                Ok((of_start, (start == 0).then_some(outcome)))
            }
        };
        let runs = run_all((0..starts.max(1)).map(job).collect(), threads, |_| {});
        let runs: Vec<_> = runs.into_iter().collect::<Result<_, TopologyError>>()?;
        let (of_starts, outcomes): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        let mut outcome = outcomes.into_iter().flatten().next();
        let outcome = outcome.take().expect("the first start gives its outcome");
        Ok(outcome.across(of_starts.into_iter().flatten().collect()))
    }

    /// What should be known of an event rate that has converged in one start.
    pub(super) fn start_note(&self, outcome: &ScenarioOutcome) -> Option<String> {
        let (builder, run) = (self.builder.as_ref()?, outcome.builder.as_ref()?);
        // Shifts give packets their order.
        let may_lock = self.load.arrival == Arrival::Saturated && builder.shaping == Shaping::None;
        (may_lock && run.event_rate.converged).then(|| {
            "the interval of the event rate is that of this start alone: where triggers are always there, \
             packets may keep an order that they found by chance, and from another `--seed` another one, \
             at another rate. `--starts 8` gives mean and interval of eight starts"
                .to_owned()
        })
    }
}

impl ScenarioOutcome {
    /// The outcome of the first start with what all of them say together.
    fn across(mut self, starts: Vec<StartOutcome>) -> Self {
        let Some(builder) = &mut self.builder else {
            return self;
        };
        let mean = |of: fn(&StartOutcome) -> f64| {
            starts.iter().map(of).sum::<f64>() / starts.len().max(1) as f64
        };
        let rates: Vec<Estimate> = starts.iter().map(|start| start.event_rate).collect();
        builder.event_rate = Estimate::across(&rates);
        builder.event_rate.converged &= !starts.iter().any(|start| start.is_deadlocked);
        builder.throughput_per_node = mean(|start| start.throughput_per_node);
        builder.efficiency_link = mean(|start| start.efficiency_link);
        let others = starts.iter().skip(1);
        let violations = others.flat_map(|start| start.violations.iter().cloned());
        builder.violations.extend(violations);
        self.starts = starts;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Level, Switching, TopologyChoice};
    use super::*;
    use crate::builder_network::BuilderNetwork;
    use crate::flit::FlitConfig;
    use crate::network::{Load, Pattern, SizeLaw, Traffic};
    use crate::time::DurationPs;

    /// Two credits, and fragments that are all alike, on a switch without buffers.
    fn locking() -> Scenario {
        let sizes = SizeLaw::Fixed(2048);
        let mut builder = BuilderNetwork {
            readout_units: 8,
            builder_units: 8,
            credits: 2,
            ..BuilderNetwork::default()
        };
        builder.hosts.event = DurationPs::from_us(20);
        let mut load = Load::saturated(Traffic::new(Pattern::Uniform), sizes, 1);
        load.link_bits_per_s = 1_000_000_000;
        // Orders are found within the first tenth of a second.
        (load.warm_up, load.duration) = (DurationPs::from_ms(200), DurationPs::from_ms(500));
        Scenario {
            level: Level::Packet,
            topology: TopologyChoice::Crossbar { ports: 8 },
            switching: Switching::Wormhole,
            flits: FlitConfig::default(),
            load,
            shift: None,
            rails: 1,
            builder: Some(builder),
            duration_max: None,
        }
    }

    /// Given fragments that are all alike, when each start keeps the order that it found, then one start is
    /// steady and says that it is one, and several are no steady state.
    #[test]
    fn starts_that_lock_into_other_orders_are_no_steady_state() {
        let scenario = locking();
        assert_eq!(scenario.validate(), []);
        let one = scenario.run().unwrap();
        let rate = one.builder.as_ref().unwrap().event_rate;
        assert!(rate.converged && one.starts.is_empty(), "{rate:?}");
        let note = one.notes.last().expect("a note on the start");
        assert!(
            note.contains("this start alone") && note.contains("`--starts 8`"),
            "{note}"
        );

        let all = scenario.run_starts(12, 2).unwrap();
        let across = all.builder.as_ref().unwrap();
        assert_eq!(all.starts.len(), 12);
        assert_eq!(all.starts[0].event_rate, rate);
        assert_eq!(all.starts.last().unwrap().seed, scenario.load.seed + 11);
        assert!(!across.event_rate.converged, "{:?}", all.starts);
        assert!(across.event_rate.ci95 > 3.0 * rate.ci95, "{:?}", all.starts);
        assert!(
            across.is_conserved() && all.notes.is_empty(),
            "{:?}",
            all.notes
        );
        let counts = |outcome: &ScenarioOutcome| outcome.builder.as_ref().unwrap().trace_hash;
        assert_eq!(counts(&one), counts(&all), "all else is of the first start");
        let rates = |threads| {
            let starts = scenario.run_starts(2, threads).unwrap().starts;
            starts
                .iter()
                .map(|start| start.event_rate)
                .collect::<Vec<_>>()
        };
        assert_eq!(rates(1), rates(2));
    }

    /// A start in which something is wrong is not hidden behind the first.
    #[test]
    fn what_is_wrong_in_any_start_is_said() {
        let mut outcome = locking().run().unwrap();
        let builder = outcome.builder.as_mut().unwrap();
        let good = StartOutcome::new(1, builder);
        let mut broken = builder.clone();
        broken
            .violations
            .push("an event was built twice".to_owned());
        let broken = StartOutcome::new(2, &broken);
        let mut stopped = good.clone();
        stopped.is_deadlocked = true;
        let all = outcome.clone().across(vec![good.clone(), broken]);
        let builder = all.builder.unwrap();
        assert!(!builder.is_conserved());
        assert_eq!(builder.violations, ["seed 2: an event was built twice"]);
        let all = outcome.across(vec![good, stopped]);
        assert!(!all.builder.unwrap().event_rate.converged);
    }
}
