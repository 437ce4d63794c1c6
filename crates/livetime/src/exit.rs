//! Exit codes: 0 good (warnings too), 1 a problem or a FAIL, 2 usage, 70 our own bug.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use crate::console::{self, say};

/// A problem with the input, the machine or the run.
pub(crate) const PROBLEM: ExitCode = {
    // ExitCode::from is not const, FAILURE is, and it is 1 on every system that we run on.
    ExitCode::FAILURE
};

/// Options that do not go together or say nothing.
pub(crate) fn usage() -> ExitCode {
    ExitCode::from(2)
}

/// The exit code of a verb whose last act was to print its result.
pub(crate) fn after_printing(printed: std::io::Result<()>) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: {error}"));
            PROBLEM
        }
    }
}

/// A panic: our own bug.
const BUG: i32 = 70;
/// A limit of the machine: a problem.
const LIMIT: i32 = 1;
/// How the standard library's words begin where the system gives a thread no place, and somebody, of this
/// program or of a library, has started it without asking whether it does: no bug, but a limit.
const NO_THREAD: &str = "failed to spawn thread";
/// How long its account waits for a reader that does not read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Makes every panic of any thread end the program with code 70 and a request to report it.
pub(crate) fn report_panics_as_bugs() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let why = panic.payload_as_str();
        if why.is_some_and(|why| why.starts_with(NO_THREAD)) {
            let refused = io::Error::from(io::ErrorKind::WouldBlock);
            let limit = livetime_shm::with_limit(&refused);
            say(format_args!("error: cannot start a thread: {limit}"));
            console::flush_for(LAST_WORDS);
            std::process::exit(LIMIT);
        }
        default(panic);
        say(format_args!(
            "this is a bug in livetime {}; please report it with the command and the lines above",
            env!("CARGO_PKG_VERSION")
        ));
        console::flush_for(LAST_WORDS);
        std::process::exit(BUG);
    }));
}
