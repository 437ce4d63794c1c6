//! Whether a run is to end at once, asked while it waits for its roles to settle a loss.
//!
//! The watch looks at signals and orders between its other duties ([`crate::run_watch`]), and one of
//! these may wait for long, for a host that is there and does not answer. Who asks for the end a second
//! time, or orders it, is heard all the same.

use std::io;
use std::sync::Weak;

use livetime_node::process::AskEnd;
use signal_hook::iterator::Signals;

use crate::console::say;
use crate::ending_signal::{ending_signals, is_hang_up};
use crate::run_control::RunControl;

/// What asks for it, from now on: signals, and orders if the run takes any.
///
/// # Errors
/// When the system does not pass signals on.
pub(crate) fn ask(control: Weak<RunControl>) -> io::Result<AskEnd> {
    // Of its own: each of them gets all signals.
    let mut signals = Signals::new(ending_signals())?;
    let mut is_in_order = false;
    Ok(Box::new(move || {
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
    }))
}
