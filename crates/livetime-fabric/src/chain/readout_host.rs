//! A readout unit on its host: pages in from its links, checked fragments filed, sent and freed on
//! request.
//!
//! Drives one `FragmentAssembler` per link, the `FragmentBuffer` and the `ReadoutUnit`, as the real
//! program's readout role does. Pages go back to their link when the builder releases them.

use livetime_builder::{FragmentVerdict, Outgoing, ReadoutOutput, ReadoutUnit};
use livetime_readout::{Assembled, FragmentAssembler, FragmentBuffer};
use livetime_wire::message::FragmentDescriptor;
use livetime_wire::{LossCause, LossCounts, RunNs, TriggerNumber};

use super::host::{Hall, Surroundings, Unit};
use super::mailbox::{Intake, Outbox};
use crate::time::DurationPs;

/// Most pages taken from one link in a cycle.
const PAGES_PER_CYCLE: u32 = 16;

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadoutTimes {
    pub(crate) page: DurationPs,
    pub(crate) message: DurationPs,
}

/// Everything that a readout unit is made of.
pub(crate) struct ReadoutParts {
    pub(crate) core: ReadoutUnit,
    /// One per link of the unit.
    pub(crate) assemblers: Vec<FragmentAssembler>,
    pub(crate) buffer: FragmentBuffer,
    /// The unit's links among all of the chain.
    pub(crate) links: Vec<usize>,
    /// First page of each link.
    pub(crate) first_pages: Vec<u32>,
    pub(crate) pool: usize,
    pub(crate) intake: Intake,
    pub(crate) outbox: Outbox,
    pub(crate) times: ReadoutTimes,
}

/// A readout unit on its host.
pub(crate) struct ReadoutHost {
    pub(crate) parts: ReadoutParts,
    planned: Vec<u32>,
    /// A fragment that found the core's table full.
    waiting: Option<(TriggerNumber, FragmentDescriptor)>,
    /// There may be room for the waiting fragment.
    is_worth_retrying: bool,
    /// Pages to be given back.
    freed: Vec<u32>,
    lost_here: LossCounts,
}

impl ReadoutHost {
    pub(crate) fn new(parts: ReadoutParts) -> Self {
        Self {
            planned: vec![0; parts.links.len()],
            waiting: None,
            is_worth_retrying: false,
            freed: Vec::new(),
            lost_here: LossCounts::new(),
            parts,
        }
    }

    /// Fragments that came out of the links.
    pub(crate) fn fragments_received(&self) -> u64 {
        let assemblers = self.parts.assemblers.iter();
        assemblers
            .map(|assembler| assembler.counters().received)
            .sum()
    }

    /// What was lost here.
    pub(crate) fn losses(&self) -> LossCounts {
        let mut losses = *self.parts.core.losses();
        losses.merge(&self.lost_here);
        for assembler in &self.parts.assemblers {
            losses.merge(assembler.losses());
        }
        losses
    }

    /// Frees and counts everything that is left, when nobody reads the pages any more.
    pub(crate) fn close(&mut self, s: &mut Surroundings<'_>) {
        if let Some((_, fragment)) = self.waiting.take() {
            // It was received, and is lost now.
            self.lost_here.add(LossCause::FragmentAborted, 1);
            self.freed.extend(fragment.pages);
        }
        for assembler in &mut self.parts.assemblers {
            self.freed.extend(assembler.abort());
        }
        self.parts.core.close();
        self.act(s);
    }

    /// Takes the planned pages, as long as their fragments find room.
    fn take_pages(&mut self, s: &mut Surroundings<'_>) {
        self.is_worth_retrying = false;
        if let Some((trigger, fragment)) = self.waiting.take() {
            self.file(s.now(), trigger, fragment);
        }
        for local in 0..self.parts.links.len() {
            for _ in 0..std::mem::take(&mut self.planned[local]) {
                if self.waiting.is_some() {
                    break;
                }
                self.take_page(local, s);
            }
        }
    }

    fn take_page(&mut self, local: usize, s: &mut Surroundings<'_>) {
        let Some(completed) = s.poll_completed(self.parts.links[local]) else {
            return;
        };
        let pages = &s.hall.pools[self.parts.pool];
        match self.parts.assemblers[local].handle_completed(&completed, pages) {
            Assembled::MoreToCome => {}
            Assembled::Fragment { trigger, fragment } => self.file(s.now(), trigger, fragment),
            Assembled::Refused { pages, .. } => self.freed.extend(pages),
        }
    }

    /// Files a fragment if the core holds it.
    fn file(&mut self, now: RunNs, trigger: TriggerNumber, fragment: FragmentDescriptor) {
        match self
            .parts
            .core
            .handle_fragment(now, trigger, fragment.source)
        {
            FragmentVerdict::Hold => {
                let filed = self.parts.buffer.insert(trigger, fragment);
                // The core has checked source, repetition and room; the buffer has its bounds.
                debug_assert!(filed.is_ok(), "core and buffer agree");
            }
            FragmentVerdict::Discard { .. } | FragmentVerdict::DiscardUnasked => {
                self.freed.extend(fragment.pages)
            }
            FragmentVerdict::KeepBetter => {
                let other = self.parts.buffer.keep_better(trigger, fragment);
                self.freed.extend(other.pages);
            }
            FragmentVerdict::Wait => self.waiting = Some((trigger, fragment)),
        }
    }

    /// Does what the core says, and gives freed pages back.
    fn act(&mut self, s: &mut Surroundings<'_>) {
        let Self { parts, freed, .. } = self;
        let ReadoutParts {
            core,
            buffer,
            outbox,
            ..
        } = parts;
        let mut triggers_freed = 0;
        let sent = outbox.send_all(s, |_| {
            loop {
                match core.poll_output()? {
                    ReadoutOutput::SendFragment {
                        to,
                        sequence,
                        trigger,
                        source,
                    } => {
                        let Some(fragment) = buffer.fragment(trigger, source).cloned() else {
                            continue;
                        };
                        let envelope = core.fragment_message(sequence, trigger, fragment);
                        return Some(Outgoing { to, envelope });
                    }
                    ReadoutOutput::Free { trigger, .. } => {
                        triggers_freed += 1;
                        buffer.remove(trigger, |fragment| freed.extend(fragment.pages));
                    }
                }
            }
        });
        if sent + triggers_freed > 0 {
            self.parts.intake.retry();
            self.is_worth_retrying = self.waiting.is_some();
        }
        for page in std::mem::take(&mut self.freed) {
            let firsts = &self.parts.first_pages;
            let local = firsts
                .partition_point(|first| *first <= page)
                .saturating_sub(1);
            s.recycle(self.parts.links[local], page);
        }
    }
}

impl Unit for ReadoutHost {
    fn plan(&mut self, hall: &Hall) -> DurationPs {
        let most = match self.waiting {
            None => PAGES_PER_CYCLE,
            Some(_) => 0,
        };
        let mut pages = 0;
        for (planned, link) in self.planned.iter_mut().zip(&self.parts.links) {
            *planned = hall.links[*link].completed().min(most);
            pages += u64::from(*planned);
        }
        let ReadoutTimes { page, message } = self.parts.times;
        message * self.parts.intake.plan(hall) + page * pages
    }

    fn work(&mut self, s: &mut Surroundings<'_>) {
        let core = &mut self.parts.core;
        self.parts
            .intake
            .take(s, |now, envelope| core.handle_message(now, envelope));
        self.take_pages(s);
        if self.parts.core.poll_timeout() <= s.now() {
            self.parts.core.handle_timeout(s.now());
        }
        self.act(s);
    }

    fn has_work(&self, hall: &Hall) -> bool {
        let has_page = || {
            self.parts
                .links
                .iter()
                .any(|link| hall.links[*link].completed() > 0)
        };
        self.parts.intake.has_work(hall)
            || self.is_worth_retrying
            || (self.waiting.is_none() && has_page())
    }

    fn deadline(&self) -> RunNs {
        self.parts.core.poll_timeout()
    }

    fn is_idle(&self) -> bool {
        self.parts.core.is_idle()
            && self.waiting.is_none()
            && self.parts.outbox.is_empty()
            && self.parts.buffer.is_empty()
    }
}
