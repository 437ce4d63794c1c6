//! A Level-3 filter of one's own: the stages of a search for Z candidates.
//!
//! ```text
//! unpack ── reconstruct ── select ──── tag ──────── prescale
//! leptons   hardest pair   is there    z or other   of the others
//! ```
//! Stages share a [`Pair`]; two are functions, the others types, as it suits.

use livetime_trigger::{
    AlgorithmOptions, Candidate, EnergyMev, FilterStage, Leptons, OptionError, PrescaleStage,
    StageChain, StageVerdict, StreamTags,
};
use livetime_wire::event::EventAccess;

/// Streams of the chain.
const STREAMS: [&str; 2] = ["z", "other"];
const Z: usize = 0;
const OTHER: usize = 1;

/// What the stages share.
#[derive(Default)]
pub(crate) struct Pair {
    leptons: Leptons,
    found: Option<Candidate>,
}

/// Tags pairs in a window of masses, edges included.
struct TagWindow {
    mass_gev: (f64, f64),
}

impl FilterStage<Pair> for TagWindow {
    fn judge(
        &mut self,
        _: &dyn EventAccess,
        pair: &mut Pair,
        tags: &mut StreamTags,
    ) -> StageVerdict {
        let (least, most) = self.mass_gev;
        let mass = pair.found.as_ref().map(|found| found.mass_gev);
        match mass.is_some_and(|mass| (least..=most).contains(&mass)) {
            true => tags.tag(Z),
            false => tags.tag(OTHER),
        }
        StageVerdict::Pass
    }
}

/// Keeps all of the first stream and a part of the other.
struct PrescaleOthers(PrescaleStage);

impl FilterStage<Pair> for PrescaleOthers {
    fn judge(
        &mut self,
        event: &dyn EventAccess,
        pair: &mut Pair,
        tags: &mut StreamTags,
    ) -> StageVerdict {
        match tags.bits() >> Z & 1 {
            1 => StageVerdict::Pass,
            _ => self.0.judge(event, pair, tags),
        }
    }
}

fn unpack(event: &dyn EventAccess, pair: &mut Pair, _: &mut StreamTags) -> StageVerdict {
    pair.leptons.unpack(event);
    StageVerdict::Pass
}

fn reconstruct(_: &dyn EventAccess, pair: &mut Pair, _: &mut StreamTags) -> StageVerdict {
    pair.found = pair.leptons.dimuon();
    StageVerdict::Pass
}

fn select(_: &dyn EventAccess, pair: &mut Pair, _: &mut StreamTags) -> StageVerdict {
    StageVerdict::pass_if(pair.found.is_some())
}

/// The chain with its options `mass_min`, `mass_max` and `others_one_in`.
///
/// # Errors
/// [`OptionError`] for an option that is missing or out of range.
pub(crate) fn z_candidates(options: &AlgorithmOptions) -> Result<StageChain<Pair>, OptionError> {
    let gev = |key| {
        let energy: EnergyMev = options.parsed(key, "an energy, such as \"70 GeV\"")?;
        Ok::<_, OptionError>(f64::from(energy.0) * 1e-3)
    };
    let mass_gev = (gev("mass_min")?, gev("mass_max")?);
    let one_in = options.whole("others_one_in", 1..=1_000_000)? as u64;
    let prescale = PrescaleOthers(PrescaleStage { one_in, salt: 0 });
    Ok(StageChain::new(Pair::default(), STREAMS)
        .then("unpack", unpack)
        .then("reconstruct", reconstruct)
        .then("select", select)
        .then("tag", TagWindow { mass_gev })
        .then("prescale", prescale))
}
