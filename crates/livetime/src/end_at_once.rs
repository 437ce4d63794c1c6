//! Whether a run is to end at once, asked while it waits for its roles to settle a loss.
//!
//! The watch looks at signals and orders between its other duties ([`crate::run_watch`]), and one of
//! these may wait for long, for a host that is there and does not answer. Who asks for the end a second
//! time, or orders it, is heard all the same; and so is, while the run is ended by force, who wants
//! that to wait for nothing more.

use std::io;
use std::sync::Weak;

use livetime_node::process::AskEnd;
use signal_hook::iterator::Signals;

use crate::console::say;
use crate::ending_signal::{ending_signals, is_hang_up};
use crate::run_control::{Order, RunControl};

/// The signals that ask for it, from now on: before a run has anything that it would leave behind.
///
/// # Errors
/// When the system does not pass signals on.
pub(crate) fn signals() -> io::Result<Signals> {
    // Of their own: each of them gets all signals.
    Signals::new(ending_signals())
}

/// What asks for it: these signals, and orders if the run takes any.
pub(crate) fn ask(mut signals: Signals, control: Weak<RunControl>) -> AskEnd {
    let mut is_in_order = false;
    Box::new(move || {
        let mut is_wanted = false;
        for signal in signals.pending() {
            // The first ends the run in order, which the watch does when it has the time.
            is_wanted |= is_in_order && !is_hang_up(signal);
            is_in_order = true;
        }
        let control = control.upgrade();
        let is_ordered = control.is_some_and(|control| control.take_abort());
        if is_ordered {
            say("\nstopping: the run ends at once");
        }
        is_wanted || is_ordered
    })
}

/// What asks, while a run is ended by force, whether its waits are to be cut short: a signal from now on,
/// or the order. Whoever orders something else is told that the run ends.
///
/// # Errors
/// When the system does not pass signals on.
pub(crate) fn ask_once_more(control: Weak<RunControl>) -> io::Result<AskEnd> {
    let mut signals = Signals::new(ending_signals())?;
    let mut is_said = false;
    Ok(Box::new(move || {
        let mut is_wanted = signals.pending().any(|signal| !is_hang_up(signal));
        if let Some(control) = control.upgrade() {
            control.serve(|order| match order {
                Order::Abort => {
                    is_wanted = true;
                    Ok("the run ends, and waits for nothing more".to_owned())
                }
                _ => Err("the run is being ended by force, and its accounts are closed".to_owned()),
            });
        }
        if is_wanted && !is_said {
            is_said = true;
            say("\nstopping: the run ends, and waits for nothing more");
        }
        is_wanted
    }))
}
