//! How the accounts of a run that was ended by force are settled.
//!
//! The workers are gone; their roles are polled here, one after the other, so that what the cores
//! give up still reaches those who must count it. The order follows the event builder's rules: all
//! units give up what they can, builder units then close, and only then those whose pages they
//! held.

use std::time::{Duration, Instant};

use livetime_wire::UnitKind;

use crate::chain_config::ChainConfig;
use crate::role::Role;
use crate::run_clock::RunClock;
use crate::worker::Phase;

/// Rounds without work after which nothing is on its way any more.
const QUIET_ROUNDS: usize = 3;
/// Rounds after which what is left is closed all the same: far more than the largest window.
const ROUNDS_MAX: usize = 100_000;
/// Time between two looks at what is repaired.
const LOOK: Duration = Duration::from_millis(1);

/// Time in which a readout unit has asked each builder unit about a trigger, several times where
/// question and answer may be lost. None where there is no network, and nothing lost or held back.
pub(crate) fn longest_repair(config: &ChainConfig) -> Duration {
    let times = match (config.transport.is_network(), config.transport.is_udp()) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 3,
    };
    let builder = &config.builder;
    Duration::from_nanos(builder.probe.0) * (times * (u32::from(builder.builder_units) + 2))
}

/// Polls all roles until nothing moves.
fn settle_round(roles: &mut [Box<dyn Role>], clock: &RunClock) {
    let mut quiet = 0;
    for _ in 0..ROUNDS_MAX {
        let work: usize = roles
            .iter_mut()
            .map(|role| role.poll(clock.now(), Phase::Aborting))
            .sum();
        quiet = if work == 0 { quiet + 1 } else { 0 };
        if quiet >= QUIET_ROUNDS {
            return;
        }
    }
}

/// Brings the roles of an aborted run to the point where every counter is final. Once builder units are
/// closed, it goes on until `are_idle` those between which a network has lost something, at most for
/// `repair`: who waits for that does not work.
pub(crate) fn settle(
    roles: &mut [Box<dyn Role>],
    clock: &RunClock,
    repair: Duration,
    are_idle: impl Fn() -> bool,
) {
    settle_round(roles, clock);
    let builders = UnitKind::Builder.prefix();
    for role in roles
        .iter_mut()
        .filter(|role| role.id().starts_with(builders))
    {
        role.close();
    }
    settle_round(roles, clock);
    let until = Instant::now() + repair;
    while !are_idle() && Instant::now() < until {
        std::thread::sleep(LOOK);
        settle_round(roles, clock);
    }
    for role in roles
        .iter_mut()
        .filter(|role| !role.id().starts_with(builders))
    {
        role.close();
    }
    settle_round(roles, clock);
}
