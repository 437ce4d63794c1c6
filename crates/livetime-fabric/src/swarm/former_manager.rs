//! An event manager that was taken for dead and lives: cut off from the parent process alone, it goes
//! on for a while as if nothing had been.
//!
//! Until the next one is there, all that is said to an event manager comes to it; from then on nothing,
//! but it goes on to say what its timeouts make it say, in its former epoch. Nobody asks it anything
//! about lost units, and of what it finds closed or silent nobody hears.

use livetime_builder::EventManager;
use livetime_wire::message::Envelope;

use super::world::{SwarmEvent, SwarmWorld};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

/// How often its timeouts are looked at.
const LOOK: DurationPs = DurationPs::from_ms(3);

/// It, and until when it lives.
pub(super) struct FormerManager {
    core: EventManager,
    until: SimPs,
}

impl SwarmWorld {
    /// The event manager is dead for all who count; it may live for some milliseconds all the same.
    pub(super) fn retire_manager(&mut self, s: &mut Scheduler<SwarmEvent>) {
        let retired = self.manager.take();
        self.drop_manager();
        let Some(core) = retired.filter(|_| self.random.below(2) == 0) else {
            self.former_manager = None;
            return;
        };
        self.count("manager_outlived");
        let until = s.now() + self.between_us(1_000, 1_500_000);
        self.former_manager = Some(FormerManager { core, until });
        s.after(LOOK, EventClass(1), SwarmEvent::FormerManager);
    }

    /// Whether a message to the event manager comes to the former one.
    pub(super) fn goes_to_former(&self) -> bool {
        self.former_manager.is_some() && self.manager.is_none()
    }

    pub(super) fn tell_former(&mut self, envelope: &Envelope, s: &mut Scheduler<SwarmEvent>) {
        if let Some(former) = &mut self.former_manager {
            let _refused = former.core.handle_message(s.now().to_run_ns(), envelope);
            self.pump_former(s);
        }
    }

    /// It looks at its timeouts, or ends.
    pub(super) fn go_on_with_former(&mut self, s: &mut Scheduler<SwarmEvent>) {
        let now = s.now();
        self.former_manager.take_if(|former| former.until <= now);
        if let Some(former) = &mut self.former_manager {
            former.core.handle_timeout(now.to_run_ns());
            s.after(LOOK, EventClass(1), SwarmEvent::FormerManager);
            self.pump_former(s);
        }
    }

    fn pump_former(&mut self, s: &mut Scheduler<SwarmEvent>) {
        let Some(mut former) = self.former_manager.take() else {
            return;
        };
        while let Some(sent) = former.core.poll_output(s.now().to_run_ns()) {
            self.send(sent.to, &sent.envelope, s);
        }
        while former.core.poll_closed().is_some() {}
        while former.core.poll_silent().is_some() {}
        self.former_manager = Some(former);
    }
}
