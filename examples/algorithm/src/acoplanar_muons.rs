//! Two muons that are not back to back: what a pair with something invisible beside it leaves.
//!
//! The angle between two stubs in the transverse plane is compared in their own counts of 2.5 deg,
//! so the decision is the same on every machine. It takes no pT: a Level-1 bit and the paths beside
//! it do.

use livetime_trigger::{Algorithm, AlgorithmInput, AlgorithmOptions, OptionError};
use livetime_wire::trigger_packet::MuonStub;

/// Counts of a full circle in a stub.
const CIRCLE: u32 = 144;

/// True for two stubs of opposite charge whose angle lies in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcoplanarMuons {
    /// Least angle in counts of 2.5 deg.
    pub least: u32,
    /// Largest angle in counts of 2.5 deg.
    pub most: u32,
}

impl AcoplanarMuons {
    /// Reads `least` and `most`, 0 to 72 counts of 2.5 deg.
    ///
    /// # Errors
    /// [`OptionError`] for an option that is missing or out of range.
    pub(crate) fn new_checked(options: &AlgorithmOptions) -> Result<Self, OptionError> {
        let most = options.whole("most", 0..=72)?;
        let least = options.whole("least", 0..=most)?;
        Ok(Self {
            least: least as u32,
            most: most as u32,
        })
    }

    fn takes(&self, a: MuonStub, b: MuonStub) -> bool {
        let apart = a.phi().abs_diff(b.phi()) % CIRCLE;
        let angle = apart.min(CIRCLE - apart);
        a.is_negative() != b.is_negative() && (self.least..=self.most).contains(&angle)
    }
}

impl Algorithm for AcoplanarMuons {
    fn is_true(&self, input: &AlgorithmInput<'_>) -> bool {
        let stubs = input.packet.muons();
        let mut later = stubs.clone();
        stubs.into_iter().any(|first| {
            later.next();
            later.clone().any(|second| self.takes(first, second))
        })
    }
}

#[cfg(test)]
mod tests {
    use livetime_trigger::CorrectedTracks;
    use livetime_wire::trigger_packet::{TriggerPacket, TriggerPacketView};

    use super::*;

    fn passes(cut: AcoplanarMuons, stubs: &[(u32, bool)]) -> bool {
        let stub = |(phi, negative): &(u32, bool)| MuonStub::new(*phi, 1, 255, *negative, 20);
        let packet = TriggerPacket {
            muons: stubs.iter().map(stub).collect(),
            ..TriggerPacket::default()
        };
        let mut words = Vec::new();
        packet.emit(&mut words);
        let view = TriggerPacketView::new_checked(&words).expect("just emitted");
        cut.is_true(&AlgorithmInput {
            packet: &view,
            tracks: &CorrectedTracks::default(),
        })
    }

    #[test]
    fn the_angle_is_taken_around_the_circle_with_both_edges() {
        let cut = AcoplanarMuons { least: 4, most: 60 };
        assert!(passes(cut, &[(0, true), (4, false)]));
        assert!(!passes(cut, &[(0, true), (3, false)]));
        assert!(
            passes(cut, &[(140, true), (0, false)]),
            "4 counts over the edge"
        );
        assert!(passes(cut, &[(0, true), (60, false)]));
        assert!(!passes(cut, &[(0, true), (61, false)]));
    }

    #[test]
    fn any_pair_of_opposite_charge_will_do() {
        let cut = AcoplanarMuons {
            least: 10,
            most: 20,
        };
        assert!(!passes(cut, &[(0, true), (15, true)]));
        assert!(passes(cut, &[(0, true), (40, false), (55, true)]));
        assert!(!passes(cut, &[(0, true)]));
    }
}
