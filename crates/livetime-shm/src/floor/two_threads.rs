//! Two threads that measure together, neither without the other.

use std::sync::mpsc::sync_channel;
use std::thread::{Builder, scope};

use super::FloorError;

/// Runs both at the same time, each on a thread of its own; neither is begun where the system has no
/// thread for the other, for which it would wait.
///
/// # Errors
/// [`FloorError::NoThread`], or that of the first, or of the second.
pub(super) fn run_two<A: Send, B: Send>(
    first: impl FnOnce() -> Result<A, FloorError> + Send,
    second: impl FnOnce() -> Result<B, FloorError> + Send,
) -> Result<(A, B), FloorError> {
    scope(|scope| {
        let (begin, begun) = sync_channel(1);
        let first = move || match begun.recv() {
            Ok(()) => first(),
            Err(_) => Err(FloorError::Stuck),
        };
        let spawn_first = Builder::new().spawn_scoped(scope, first);
        let first = spawn_first.map_err(FloorError::NoThread)?;
        // Where there is none for it, `begin` goes, which ends the first.
        let spawn_second = Builder::new().spawn_scoped(scope, second);
        let second = spawn_second.map_err(FloorError::NoThread)?;
        // It waits for nothing else.
        let _is_heard = begin.send(());
        let first = first.join().map_err(|_| FloorError::Thread).flatten();
        let second = second.join().map_err(|_| FloorError::Thread).flatten();
        Ok((first?, second?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_run_and_errors_come_out() {
        assert_eq!(run_two(|| Ok(1), || Ok(2)).unwrap(), (1, 2));
        let failed = run_two(|| Ok(1), || Err::<u8, _>(FloorError::NoFreePage));
        assert!(matches!(failed, Err(FloorError::NoFreePage)));
        let failed = run_two(|| Err::<u8, _>(FloorError::Stuck), || Ok(2));
        assert!(matches!(failed, Err(FloorError::Stuck)));
    }
}
