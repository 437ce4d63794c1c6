//! The event manager on its host: accepts in, assignments out, credits back.

use livetime_builder::EventManager;
use livetime_wire::RunNs;

use super::host::{Hall, Surroundings, Unit};
use super::mailbox::{Intake, Outbox};
use crate::time::DurationPs;

/// The event manager on its host.
pub(crate) struct ManagerHost {
    pub(crate) core: EventManager,
    intake: Intake,
    outbox: Outbox,
    message_time: DurationPs,
}

impl ManagerHost {
    pub(crate) fn new(
        core: EventManager,
        intake: Intake,
        outbox: Outbox,
        message_time: DurationPs,
    ) -> Self {
        Self {
            core,
            intake,
            outbox,
            message_time,
        }
    }
}

impl Unit for ManagerHost {
    fn plan(&mut self, hall: &Hall) -> DurationPs {
        self.message_time * self.intake.plan(hall)
    }

    fn work(&mut self, s: &mut Surroundings<'_>) {
        let core = &mut self.core;
        self.intake
            .take(s, |now, envelope| core.handle_message(now, envelope));
        if self.core.poll_timeout() <= s.now() {
            self.core.handle_timeout(s.now());
        }
        let core = &mut self.core;
        if self.outbox.send_all(s, |now| core.poll_output(now)) > 0 {
            self.intake.retry();
        }
    }

    fn has_work(&self, hall: &Hall) -> bool {
        self.intake.has_work(hall)
    }

    fn deadline(&self) -> RunNs {
        self.core.poll_timeout()
    }

    fn is_idle(&self) -> bool {
        self.core.is_idle() && self.outbox.is_empty()
    }
}
