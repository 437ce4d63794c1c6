//! Faults of the protocol itself, made on purpose.
//!
//! Only with the feature `mutants`, which no release has: they show that the checks of the
//! simulation would find such a fault. What is checked is in the simulation's swarm.

/// One fault of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A builder unit counts every fragment that comes, also one that it has.
    NoDuplicateCheck,
    /// No unit looks at epochs.
    NoEpoch,
    /// A builder unit releases an event when it is built, before the filter unit is through.
    EarlyClear,
}

impl Mutant {
    /// Every mutant with its name.
    pub const ALL: [(&'static str, Self); 3] = [
        ("no-duplicate-check", Self::NoDuplicateCheck),
        ("no-epoch", Self::NoEpoch),
        ("early-clear", Self::EarlyClear),
    ];
}
