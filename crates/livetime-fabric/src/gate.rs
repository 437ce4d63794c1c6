//! Gates: what the simulator must reproduce before its results are worth anything.
//!
//! A gate (V1 to V12) is a set of rows; each row compares a simulated value with a reference of
//! theory, of a published table or of another level of the simulator, within a stated tolerance.
//! Rows that depend on choices nobody has published (V10) are shown and never judged. The rows are
//! made by independent jobs, see [`jobs`]; printing them is the business of `livetime sim gates`.

mod agreement;
mod cms;
mod crossbar;
mod multistage;
mod repeatable;

use crate::network::{
    Load, NetworkOutcome, Pattern, RoutePolicy, SizeLaw, Topology, Traffic, wormhole,
};

pub use repeatable::{GOLDEN, golden_hash};

/// How a value is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// At most the tolerance away from the reference.
    Near,
    /// Equal to the reference.
    Equal,
    /// At least the reference.
    AtLeast,
    /// Not judged: the published figure stands beside the value, and [`GateRow::band`] says what is
    /// expected of it.
    Reported,
}

impl Rule {
    /// As in documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Equal => "equal",
            Self::AtLeast => "at-least",
            Self::Reported => "reported",
        }
    }
}

/// A value beside its reference.
#[derive(Debug, Clone, PartialEq)]
pub struct GateRow {
    /// Name of the gate, such as `V1`.
    pub gate: &'static str,
    /// What is checked.
    pub check: String,
    /// What the simulator gives.
    pub value: f64,
    /// What it should be.
    pub reference: f64,
    /// How far it may be away.
    pub tolerance: f64,
    /// How it is judged.
    pub rule: Rule,
    /// Of a row that is not judged: from where to where values of its conditions are expected.
    pub band: Option<(f64, f64)>,
}

impl GateRow {
    fn near(gate: &'static str, check: String, value: f64, reference: f64, tolerance: f64) -> Self {
        Self {
            gate,
            check,
            value,
            reference,
            tolerance,
            rule: Rule::Near,
            band: None,
        }
    }

    fn equal(gate: &'static str, check: String, value: f64, reference: f64) -> Self {
        Self {
            rule: Rule::Equal,
            ..Self::near(gate, check, value, reference, 0.0)
        }
    }

    fn at_least(gate: &'static str, check: String, value: f64, reference: f64) -> Self {
        Self {
            rule: Rule::AtLeast,
            ..Self::near(gate, check, value, reference, 0.0)
        }
    }

    /// Not judged: what was published, and the band in which the value is expected.
    fn reported(
        gate: &'static str,
        check: String,
        value: f64,
        reference: f64,
        band: (f64, f64),
    ) -> Self {
        let reach = (band.0 - reference).abs().max((band.1 - reference).abs());
        Self {
            rule: Rule::Reported,
            band: Some(band),
            ..Self::near(gate, check, value, reference, reach)
        }
    }

    /// Whether the value is good; rows that are not judged always are.
    pub fn passes(&self) -> bool {
        match self.rule {
            Rule::Near => (self.value - self.reference).abs() <= self.tolerance,
            Rule::Equal => self.value == self.reference,
            Rule::AtLeast => self.value >= self.reference,
            Rule::Reported => true,
        }
    }

    /// `pass`, `FAIL` or `reported`.
    pub fn verdict(&self) -> &'static str {
        match (self.rule, self.passes()) {
            (Rule::Reported, _) => "reported",
            (_, true) => "pass",
            (_, false) => "FAIL",
        }
    }
}

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Each gate with few cases and wider networks left out: half a minute on one core.
    Quick,
    /// Every row: minutes.
    Full,
}

impl Extent {
    /// One of two sizes of a run.
    const fn pick(self, quick: u64, full: u64) -> u64 {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// A job that makes some rows of a gate.
pub struct GateJob {
    /// Its gate.
    pub gate: &'static str,
    run: Box<dyn FnOnce() -> Vec<GateRow> + Send>,
}

impl GateJob {
    fn new(gate: &'static str, run: impl FnOnce() -> Vec<GateRow> + Send + 'static) -> Self {
        Self {
            gate,
            run: Box::new(run),
        }
    }

    /// Runs it.
    pub fn run(self) -> Vec<GateRow> {
        (self.run)()
    }
}

/// A name and what makes the topology.
type NamedTopology = (&'static str, fn() -> Topology);

/// All jobs in the order of their rows; those of one gate follow each other.
pub fn jobs(extent: Extent) -> Vec<GateJob> {
    let mut jobs = Vec::new();
    crossbar::add_jobs(extent, &mut jobs);
    multistage::add_jobs(extent, &mut jobs);
    agreement::add_jobs(extent, &mut jobs);
    cms::add_jobs(extent, &mut jobs);
    repeatable::add_jobs(extent, &mut jobs);
    jobs.sort_by_key(|job| job.gate[1..].parse::<u32>().unwrap_or(0));
    jobs
}

/// Uniform random traffic of saturated sources through a fabric without buffers.
fn random_traffic(
    topology: &Topology,
    sizes: SizeLaw,
    routes: RoutePolicy,
    packets: u64,
) -> NetworkOutcome {
    let packet_times = (packets / u64::from(topology.sources())).max(200);
    let traffic = Traffic::new(Pattern::Uniform);
    let load = Load {
        routes,
        ..Load::saturated(traffic, sizes, packet_times)
    };
    wormhole::run(topology, &load)
}
