//! Closed forms and exact chains of switch theory and of building times (level F0 of the simulator).
//!
//! Each function is a formula or an exact Markov chain with its source; nothing here is simulated,
//! so these are the references that simulations are judged by. How the references are applied is
//! in [`crate::gate`]; the simulated switches are in [`crate::cell`] and [`crate::network`].

pub mod building;
pub mod crossbar;
pub mod multistage;
pub mod transfer;
