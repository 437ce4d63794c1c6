//! Triggers: offered as the source has them, unless the gate or a pause keeps them out, and begun.

use livetime_source::{
    Buffers, FragmentTrigger, Offer as SourceOffer, PacketHeader, RefusalCause, SourcePoll,
};
use livetime_timing::GateSince;
use livetime_trigger::{Offer, RefusedBy, node_of};
use livetime_wire::{DurationNs, RunNs, TriggerNumber};

use super::{FrontEnd, FrontEndParts, Sending, TriggerPath};
use crate::role::spill_gate::SpillGate;

/// Trigger type of the source's own triggers.
const TRIGGER_PHYSICS: u32 = 1;
/// Trigger type of triggers that the schedule asks for.
const TRIGGER_SCHEDULED: u32 = 2;

/// What front-ends have for the next trigger.
enum Awaited {
    /// All that will come; or the source knows by itself.
    Event,
    /// Not all yet.
    Nothing,
    /// Nothing any more: all have ended.
    End,
}

impl FrontEnd {
    /// Triggers are offered from here on, if they are not yet: what came before is no time of theirs.
    pub(super) fn begin(&mut self, now: RunNs) {
        if self.taken_from.is_some() {
            return;
        }
        self.taken_from = Some(now);
        let parts = &mut self.parts;
        if parts.starts_paused {
            self.pause.pause(now);
        }
        if parts.starts_late {
            parts.supervisor.begin(now);
            parts.spill.iter_mut().for_each(|spill| spill.begin(now));
        }
    }

    /// The time of the source: since triggers are offered.
    fn source_time(&self, now: RunNs) -> RunNs {
        RunNs(now.since(self.taken_from.unwrap_or(now)).0)
    }

    /// Whether the run's time or number of triggers is reached, though what was given before may not be
    /// sent yet.
    pub(super) fn is_at_end(&self, now: RunNs) -> bool {
        self.finished || self.parts.source.is_at_end(self.source_time(now))
    }

    /// Offers the next trigger, and puts its packet on the trigger link if it is accepted.
    pub(super) fn offer(&mut self, now: RunNs) -> usize {
        if self.sending.is_some() || !self.parts.trigger.iter().all(TriggerPath::is_idle) {
            return 0;
        }
        match self.wait_for_front_ends(now) {
            Awaited::Event => {}
            Awaited::Nothing => return 0,
            Awaited::End => {
                self.parts.source.stop();
                self.finish(now);
                return 1;
            }
        }
        let mut links = self.parts.data_links.iter_mut();
        if self.parts.in_step && links.any(|data_link| data_link.link.is_played_out()) {
            self.parts.source.stop();
            self.finish(now);
            return 1;
        }
        let xoff = self.is_xoff(now);
        self.parts.supervisor.handle_xoff(now, xoff);
        let is_free = self.parts.supervisor.refusal().is_none();
        if is_free && let Some(offer) = self.scheduled_trigger(now) {
            self.offer_one(now, offer, xoff, TRIGGER_SCHEDULED);
            return 1;
        }
        let (from, at) = (self.taken_from.unwrap_or(now), self.source_time(now));
        let Self { parts, pause, .. } = self;
        let FrontEndParts { source, spill, .. } = parts;
        let is_open = spill.as_ref().is_none_or(SpillGate::is_open);
        let closed = closed_by(pause.is_paused(), is_open);
        let buffers = if is_free && closed.is_none() {
            Buffers::Free
        } else {
            Buffers::Full
        };
        let was_closed = |at: RunNs| {
            let at = from.after(DurationNs(at.0));
            let was_open = spill.as_ref().is_none_or(|spill| spill.was_open(at));
            closed_by(pause.was_paused(at), was_open)
        };
        match (source.poll_gated(at, buffers, was_closed), closed) {
            // Not the time to sleep while it passes over offers that are too old.
            (SourcePoll::Wait { until }, _) => usize::from(until <= at),
            (SourcePoll::Blocked, _) => 0,
            (SourcePoll::Finished, _) => {
                self.finish(now);
                0
            }
            (SourcePoll::Offer(offer), Some(cause)) => {
                source.handle_refused(offer, cause);
                1
            }
            (SourcePoll::Offer(offer), None) => {
                self.offer_one(now, offer, xoff, TRIGGER_PHYSICS);
                1
            }
        }
    }

    /// Where events are those of front-ends: whether there is one.
    fn wait_for_front_ends(&mut self, now: RunNs) -> Awaited {
        let is_at_end = self.is_at_end(now);
        let Some(server) = &mut self.parts.front_ends else {
            return Awaited::Event;
        };
        if server.events().is_ended() {
            return Awaited::End;
        }
        // That the time is over is for the source to say.
        match is_at_end || server.is_ready(now) {
            true => Awaited::Event,
            false => Awaited::Nothing,
        }
    }

    /// Nothing is offered any more; what the schedule has asked for and nobody has taken is refused.
    pub(super) fn finish(&mut self, now: RunNs) {
        self.finished = true;
        self.taken_until = now;
        self.pause.resume(now);
        let waiting = self.parts.spill.as_mut().map_or(0, SpillGate::end);
        self.parts.source.refuse_waiting(waiting);
        if let Some(server) = &mut self.parts.front_ends {
            server.end(TriggerNumber(self.parts.supervisor.counters().triggers));
        }
    }

    /// The next trigger that the schedule asks for. One that waited for a buffer, or for this worker,
    /// until its gate had passed is refused: it would be stamped outside. So is one in a pause.
    fn scheduled_trigger(&mut self, now: RunNs) -> Option<SourceOffer> {
        let is_paused = self.pause.is_paused();
        let at = self.source_time(now);
        let FrontEndParts { spill, source, .. } = &mut self.parts;
        if is_paused && !source.may_refuse() {
            return None;
        }
        let spill = spill.as_mut()?;
        while let Some(trigger) = spill.poll_trigger() {
            match trigger.gate {
                _ if is_paused => source.refuse_scheduled(at, RefusalCause::Paused),
                GateSince::Same => return source.offer_scheduled(at),
                GateSince::Passed => source.refuse_scheduled(at, RefusalCause::GatePassed),
            }
        }
        None
    }

    fn offer_one(&mut self, now: RunNs, offer: SourceOffer, xoff: bool, trigger_type: u32) {
        match self.parts.supervisor.offer(now, xoff) {
            Offer::Accepted { trigger, l2_buffer } => {
                self.begin_event(now, offer, (trigger, l2_buffer), trigger_type);
            }
            Offer::Refused(RefusedBy::Xoff) => {
                self.parts.source.handle_refused(offer, RefusalCause::Xoff);
            }
            Offer::Refused(_) => {
                self.parts.encoder.count_refused();
                self.parts
                    .source
                    .handle_refused(offer, RefusalCause::BuffersFull);
            }
        }
    }

    fn begin_event(
        &mut self,
        now: RunNs,
        offer: SourceOffer,
        (trigger, l2_buffer): (TriggerNumber, u8),
        trigger_type: u32,
    ) {
        if let Some(spill) = &mut self.parts.spill {
            spill.sample(now);
        }
        let FrontEndParts {
            generator,
            encoder,
            trigger: nodes,
            supervisor,
            run,
            front_ends,
            ..
        } = &mut self.parts;
        // Whatever was refused: the n-th trigger of a seed is always the same event.
        let index = trigger.0 - 1;
        match front_ends {
            Some(server) => server.begin(&mut self.event),
            None => generator.event(index, &mut self.event),
        }
        let header = PacketHeader {
            trigger,
            l2_buffer,
            bunch: offer.bunch(),
            run: *run,
            lumi_section: lumi_section(now),
            triggered_at: now,
            index,
        };
        supervisor.handle_first_word(now, trigger);
        let node = node_of(trigger.low(), nodes.len());
        let links = &mut nodes[node].links;
        if let [link] = &mut links[..] {
            link.send(|words| {
                encoder.encode(&self.event, &header, words);
            });
        } else {
            encoder.prepare(&self.event, &header);
            let inputs = links.len();
            for (input, link) in links.iter_mut().enumerate() {
                link.send(|words| encoder.emit_part(input, inputs, words));
            }
        }
        for link in links {
            link.pump(now);
        }
        self.sending = Some(Sending {
            index,
            trigger: FragmentTrigger {
                trigger,
                bunch: offer.bunch(),
                trigger_type,
                event_type: 0,
            },
            next_link: 0,
        });
    }
}

/// What keeps triggers out, if anything does.
fn closed_by(is_paused: bool, is_open: bool) -> Option<RefusalCause> {
    match (is_paused, is_open) {
        (true, _) => Some(RefusalCause::Paused),
        (false, false) => Some(RefusalCause::Gate),
        (false, true) => None,
    }
}

/// Lumi sections of 23.3 s, as long as at the LHC.
fn lumi_section(now: RunNs) -> u32 {
    (now.0 / 23_311_000_000) as u32
}
