//! Events that a dead builder unit had finished, and of which a readout unit has never heard.
//!
//! Of an event that the selection on its first step rejects, a readout unit of the second step hears
//! nothing but the release. If that was lost and the builder unit died, nobody would tell it again; so
//! would one that was away when the event was asked for, or was told by an event manager that is gone
//! that another builder unit has it. Therefore, after the loss of a builder unit:
//!
//! ```text
//! readout units   name the accepted triggers that nobody has asked for, or an event manager that is gone
//! supervisor      names those of them that are finished, by its log of accepts
//! readout units   end those, if still nobody has asked for them
//! ```
//! The event manager may still have to say that an event is finished, or be dead itself. So it is
//! looked a few times, [`PAUSE`] apart, beside everything else that happens.

use std::time::{Duration, Instant};

use livetime_wire::{UnitId, UnitKind};

use super::process_group::ProcessGroup;

/// Looks after the loss of a builder unit.
const LOOKS: u32 = 5;
/// The time between two of them.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks that are still to come.
#[derive(Debug, Default)]
pub(super) struct UnaskedLooks {
    looks: Option<Looks>,
}

/// After the builder unit that was lost last; the looks for one are those for all.
#[derive(Debug)]
struct Looks {
    unit: UnitId,
    left: u32,
    next: Instant,
}

impl UnaskedLooks {
    /// A builder unit is lost, and its events are settled.
    pub(super) fn begin(&mut self, unit: UnitId) {
        self.looks = Some(Looks {
            unit,
            left: LOOKS,
            next: Instant::now(),
        });
    }

    /// The builder unit for which it was still to be looked; there are no looks any more.
    fn end(&mut self) -> Option<UnitId> {
        self.looks.take().map(|looks| looks.unit)
    }

    /// The builder unit for which it is to be looked now.
    fn poll(&mut self, now: Instant) -> Option<UnitId> {
        let looks = self.looks.as_mut().filter(|looks| looks.next <= now)?;
        let unit = looks.unit;
        looks.left -= 1;
        looks.next = now + PAUSE;
        if looks.left == 0 {
            self.looks = None;
        }
        Some(unit)
    }
}

impl ProcessGroup {
    /// Ends what is finished and was never asked for, if it is time to look.
    pub(super) fn end_unasked(&mut self) {
        if let Some(unit) = self.unasked.poll(Instant::now()) {
            self.end_finished(unit);
        }
    }

    /// The same at once, before the run is ended by force: what is given up then is closed, too, and in
    /// no event.
    pub(super) fn end_unasked_now(&mut self) {
        if let Some(unit) = self.unasked.end() {
            self.end_finished(unit);
        }
    }

    fn end_finished(&mut self, unit: UnitId) {
        let told = self.tell("unasked", unit, &[UnitKind::Readout], &[]);
        let finished = told.and_then(|mut triggers| {
            triggers.sort_unstable();
            triggers.dedup();
            match triggers.is_empty() {
                true => Ok(triggers),
                false => self.tell("unasked", unit, &[UnitKind::Source], &triggers),
            }
        });
        if let Ok(finished) = finished
            && !finished.is_empty()
        {
            // Roles that do not answer are dealt with when they are missed.
            let _late = self.tell("end", unit, &[UnitKind::Readout], &finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_a_few_times_and_again_after_the_next_loss() {
        let mut looks = UnaskedLooks::default();
        let unit = UnitId::builder(1);
        let start = Instant::now();
        assert_eq!(looks.poll(start), None, "none was lost");
        looks.begin(unit);
        // The first one begins when its `begin` does, which is a little later than `start`.
        let mut now = start + PAUSE;
        for _ in 1..LOOKS {
            assert_eq!(looks.poll(now), Some(unit));
            assert_eq!(looks.poll(now), None, "not yet");
            now += PAUSE;
        }
        looks.begin(UnitId::builder(1));
        assert_eq!(looks.end(), Some(UnitId::builder(1)));
        assert_eq!((looks.poll(now + PAUSE), looks.end()), (None, None));
        looks.begin(UnitId::builder(0));
        now += PAUSE;
        for _ in 0..LOOKS {
            assert_eq!(looks.poll(now), Some(UnitId::builder(0)));
            now += PAUSE;
        }
        assert_eq!(looks.poll(now), None, "enough");
    }
}
