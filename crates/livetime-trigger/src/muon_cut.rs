//! Cuts on muon stubs: one of a minimum pT, or two with a charge condition.
//!
//! A stub's pT code k stands for pT >= k x 0.5 GeV, so the comparison is code x 500 > threshold in
//! MeV. Masses are not computed from the coarse stubs; that is done on whole events in
//! [`crate::dimuon`].

use livetime_wire::trigger_packet::MuonStub;

use crate::path::ChargeRule;
use crate::threshold::EnergyMev;

/// One count of a pT code.
const PT_CODE_MEV: i64 = 500;
/// Largest pT code of a stub.
const PT_CODE_MAX: i32 = 127;

/// The largest useful threshold: one count below the largest code, so that some stub can pass.
pub const PT_MIN_MAX: EnergyMev = EnergyMev(PT_CODE_MAX * 500 - 1);

/// The type bit of muon chambers by their name: `CMU`, `CMP`, `CMX` or `BMU`.
#[inline]
pub fn chamber_bit(name: &str) -> Option<u32> {
    match name {
        "CMU" => Some(MuonStub::CMU),
        "CMP" => Some(MuonStub::CMP),
        "CMX" => Some(MuonStub::CMX),
        "BMU" => Some(MuonStub::BMU),
        _ => None,
    }
}

/// `single_muon`: at least one stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingleMuonCut {
    /// Chamber types that a stub must have all of; 0 asks for none.
    pub types: u32,
    /// Its pT code x 0.5 GeV is above this.
    pub pt_min: EnergyMev,
}

/// `dimuon`: at least two stubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DimuonCut {
    /// Chamber types that each stub must have all of; 0 asks for none.
    pub types: u32,
    /// The pT code x 0.5 GeV of each is above this.
    pub pt_min: EnergyMev,
    /// What the two charges must be.
    pub charge: ChargeRule,
}

/// Whether one stub has the types and the pT.
#[inline]
fn qualifies(stub: MuonStub, types: u32, pt_min: EnergyMev) -> bool {
    stub.types() & types == types && i64::from(stub.pt_code()) * PT_CODE_MEV > pt_min.count()
}

impl SingleMuonCut {
    /// Whether any of `stubs` qualifies.
    #[inline]
    pub fn is_true(&self, mut stubs: impl Iterator<Item = MuonStub>) -> bool {
        stubs.any(|stub| qualifies(stub, self.types, self.pt_min))
    }
}

impl DimuonCut {
    /// Whether any two of `stubs` qualify with charges that satisfy the rule.
    pub fn is_true(&self, stubs: impl Iterator<Item = MuonStub>) -> bool {
        // A pair exists exactly when the numbers of either charge allow one: no loop over pairs.
        let (mut positive, mut negative) = (0u32, 0u32);
        for stub in stubs.filter(|stub| qualifies(*stub, self.types, self.pt_min)) {
            if stub.is_negative() {
                negative += 1;
            } else {
                positive += 1;
            }
        }
        match self.charge {
            ChargeRule::Opposite => positive > 0 && negative > 0,
            ChargeRule::Same => positive > 1 || negative > 1,
            ChargeRule::Any => positive + negative > 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CMUP: u32 = MuonStub::CMU | MuonStub::CMP;

    fn stub(types: u32, negative: bool, pt_code: u32) -> MuonStub {
        MuonStub::new(0, types, MuonStub::NO_TRACK, negative, pt_code)
    }

    #[test]
    fn single_muon_cuts_strictly_above_the_threshold() {
        let cut = |pt_min| SingleMuonCut {
            types: CMUP,
            pt_min: EnergyMev(pt_min),
        };
        let passes = |cut: SingleMuonCut, code| cut.is_true([stub(CMUP, false, code)].into_iter());
        assert!(!passes(cut(8000), 16), "8 GeV is not above 8 GeV");
        assert!(passes(cut(8000), 17));
        assert!(passes(cut(7999), 16));
        assert!(!passes(cut(8001), 16));
        assert!(!passes(cut(PT_MIN_MAX.0), 126));
        assert!(passes(cut(PT_MIN_MAX.0), 127));
        assert!(!passes(cut(PT_MIN_MAX.0 + 1), 127), "the maximum is sharp");
        assert!(!cut(0).is_true([].into_iter()));
    }

    #[test]
    fn single_muon_needs_all_of_the_types_and_may_have_more() {
        let cut = SingleMuonCut {
            types: CMUP,
            pt_min: EnergyMev(0),
        };
        let passes = |types| cut.is_true([stub(types, false, 1)].into_iter());
        assert!(!passes(MuonStub::CMU));
        assert!(!passes(MuonStub::CMP | MuonStub::CMX));
        assert!(passes(CMUP));
        assert!(passes(CMUP | MuonStub::BMU));
        let any = SingleMuonCut { types: 0, ..cut };
        assert!(any.is_true([stub(0, false, 1)].into_iter()));
    }

    #[test]
    fn dimuon_needs_two_that_qualify_and_the_charges() {
        let passes = |charge, stubs: &[MuonStub]| {
            let cut = DimuonCut {
                types: MuonStub::CMX,
                pt_min: EnergyMev(1500),
                charge,
            };
            cut.is_true(stubs.iter().copied())
        };
        let (plus, minus) = (stub(4, false, 4), stub(4, true, 4));
        for (stubs, opposite, same, any) in [
            (vec![plus, minus], true, false, true),
            (vec![plus, plus], false, true, true),
            (vec![minus, minus], false, true, true),
            (vec![plus, minus, plus], true, true, true),
            (vec![plus], false, false, false),
            (vec![plus, stub(4, true, 3)], false, false, false),
            (vec![plus, stub(2, true, 4)], false, false, false),
        ] {
            assert_eq!(passes(ChargeRule::Opposite, &stubs), opposite, "{stubs:?}");
            assert_eq!(passes(ChargeRule::Same, &stubs), same, "{stubs:?}");
            assert_eq!(passes(ChargeRule::Any, &stubs), any, "{stubs:?}");
        }
    }

    #[test]
    fn chambers_have_names() {
        assert_eq!(chamber_bit("CMU"), Some(1));
        assert_eq!(chamber_bit("BMU"), Some(8));
        assert_eq!(chamber_bit("cmu"), None);
    }
}
