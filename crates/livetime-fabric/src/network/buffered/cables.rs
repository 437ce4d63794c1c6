//! Long cables: what is on its way over them, packets and what flow control says back.
//!
//! A link with a delay of its own ends at a buffer of which its near end knows what was so one
//! delay ago. With credits the near end counts what it may send, and a credit is back one delay
//! after its bytes have left the buffer, so that a round trip of two delays, a hop and a packet's
//! times carries one buffer at most. With stop-go and without flow control the far end decides: a
//! packet takes its room when its head has come, or is lost there, and stop and go are heard one
//! delay after they were said. The delay of a hop is not on the way back: it is an element's, as
//! without cables.
//!
//! Flow control over such a cable needs a buffer of its own ([`super::BufferPlace::Input`]):
//! senders at different distances would not agree on what is left of one that they share.
//!
//! What comes when is kept here, in the order of time: at most a few entries for each packet in the
//! network. The engine settles at each of these instants, and takes what has come before it gives
//! links away.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::address::LinkId;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

use super::super::port::StepEvent;
use super::super::topology::Topology;
use super::{BufferPlace, CAUSE, Fabric, FlowControl, SETTLE, Step};

/// What comes over a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum News {
    /// The head of a packet.
    Head(u32),
    /// The tail of a packet that has found no room.
    LostTail(u32),
    /// Credit for bytes that have left the buffer behind a link.
    Credit {
        /// The link.
        link: u32,
        /// The bytes.
        bytes: u64,
    },
    /// The buffer behind a link wants no more.
    Stop(u32),
    /// It has room again.
    Go(u32),
}

/// All that is on its way.
pub(super) struct Cables {
    /// Delays of their own, by link.
    delays: Vec<DurationPs>,
    /// Bytes that have left the buffer behind a link, and whose credit is on its way.
    returning: Vec<u64>,
    /// Whether the buffer behind a link has said stop last.
    has_said_stop: Vec<bool>,
    coming: BinaryHeap<Reverse<(SimPs, u64, News)>>,
    /// News so far.
    pub(super) said: u64,
}

impl Cables {
    /// Of a network; `None` if none of its links has a delay of its own.
    pub(super) fn new(topology: &Topology) -> Option<Box<Self>> {
        let links = topology.links().len();
        let delay = |link| topology.cable(LinkId(link)).delay;
        let delays: Vec<DurationPs> = (0..links as u32).map(delay).collect();
        let has_any = delays.iter().any(|delay| *delay > DurationPs::ZERO);
        has_any.then(|| {
            Box::new(Self {
                delays,
                returning: vec![0; links],
                has_said_stop: vec![false; links],
                coming: BinaryHeap::new(),
                said: 0,
            })
        })
    }

    /// Links of whose buffers news are on the way.
    pub(super) fn links_with_news(&self) -> impl Iterator<Item = u32> {
        let news = self.coming.iter().map(|Reverse((.., news))| *news);
        news.filter_map(|news| match news {
            News::Credit { link, .. } | News::Stop(link) | News::Go(link) => Some(link),
            News::Head(_) | News::LostTail(_) => None,
        })
    }

    fn take_due(&mut self, now: SimPs) -> Option<News> {
        let is_due = |Reverse((time, ..)): &Reverse<(SimPs, u64, News)>| *time <= now;
        self.coming.peek().filter(|next| is_due(next))?;
        self.coming.pop().map(|Reverse((.., news))| news)
    }
}

impl Fabric<'_> {
    /// The delay of its own that a link has; 0 inside of elements.
    #[inline]
    pub(super) fn cable(&self, link: usize) -> DurationPs {
        let own = self.cables.as_ref().and_then(|c| c.delays.get(link));
        own.copied().unwrap_or(DurationPs::ZERO)
    }

    /// Whether the far end of a link decides about a packet when its head comes.
    #[inline]
    pub(super) fn decides_late(&self, link: usize) -> bool {
        self.cables.is_some()
            && self.buffering.flow != FlowControl::Credits
            && self.cable(link) > DurationPs::ZERO
    }

    /// Whether what becomes free in a buffer is known late where it is asked for.
    #[inline]
    pub(super) fn is_freed_late(&self, account: usize) -> bool {
        self.cables.is_some()
            && self.buffering.place == BufferPlace::Input
            && self.buffering.flow != FlowControl::None
            && self.cable(account) > DurationPs::ZERO
    }

    /// Bytes in a buffer, promised ones included: those whose credit is on its way back are not.
    pub(super) fn level(&self, account: usize) -> u64 {
        let returning = self.cables.as_ref().and_then(|c| c.returning.get(account));
        self.used[account] - returning.copied().unwrap_or(0)
    }

    pub(super) fn send_news<E: StepEvent<Step>>(
        &mut self,
        at: SimPs,
        news: News,
        scheduler: &mut Scheduler<E>,
    ) {
        let cables = self.cables.as_mut().expect("a link has a delay of its own");
        cables.said += 1;
        cables.coming.push(Reverse((at, cables.said, news)));
        scheduler.at(at, SETTLE, E::of(self.network, Step::Settle));
    }

    /// Takes what has come.
    pub(super) fn take_news<E: StepEvent<Step>>(
        &mut self,
        now: SimPs,
        scheduler: &mut Scheduler<E>,
    ) {
        while let Some(news) = self.cables.as_mut().and_then(|c| c.take_due(now)) {
            match news {
                News::Head(packet) => self.head_comes(now, packet, scheduler),
                News::LostTail(packet) => self.lose(packet),
                News::Credit { link, bytes } => {
                    let link = link as usize;
                    self.used[link] -= bytes;
                    if let Some(cables) = &mut self.cables {
                        cables.returning[link] -= bytes;
                    }
                    self.wake(link);
                }
                News::Stop(link) => self.is_stopped[link as usize] = true,
                News::Go(link) => {
                    self.is_stopped[link as usize] = false;
                    self.wake(link as usize);
                }
            }
        }
    }

    /// The head of a packet is at the end of its cable: it takes its room, or is lost.
    fn head_comes<E: StepEvent<Step>>(
        &mut self,
        now: SimPs,
        packet: u32,
        scheduler: &mut Scheduler<E>,
    ) {
        let hop = usize::from(self.packets.hop[packet as usize]) - 1;
        let link = self.packets.route[packet as usize * self.stride + hop];
        let account = self.account(packet, hop).expect("no node is behind it");
        let bytes = self.wire_bytes(packet);
        let cable = self.cable(link as usize);
        let time = DurationPs::for_bits(bytes * 8, self.rate[link as usize]);
        if self.used[account] + bytes > self.buffering.bytes {
            return self.send_news(now + time, News::LostTail(packet), scheduler);
        }
        self.used[account] += bytes;
        if let Some(meter) = &mut self.meter {
            meter.holds(account, now, self.used[account]);
        }
        if let FlowControl::StopGo { stop, .. } = self.buffering.flow
            && self.used[account] >= stop
            && let Some(cables) = &mut self.cables
            && !std::mem::replace(&mut cables.has_said_stop[link as usize], true)
        {
            self.send_news(now + cable, News::Stop(link), scheduler);
        }
        let ready = now + self.until_ready(packet, hop, time) + self.load.hop_delay;
        scheduler.at(ready, CAUSE, E::of(self.network, Step::Ready(packet)));
    }

    /// Bytes leave the buffer behind a cable: the near end hears of it later.
    pub(super) fn free_late<E: StepEvent<Step>>(
        &mut self,
        now: SimPs,
        link: usize,
        bytes: u64,
        scheduler: &mut Scheduler<E>,
    ) {
        let heard = now + self.cable(link);
        let cables = self.cables.as_mut().expect("a link has a delay of its own");
        let news = match self.buffering.flow {
            FlowControl::StopGo { go, .. } => {
                self.used[link] -= bytes;
                let goes = self.used[link] <= go
                    && std::mem::replace(&mut cables.has_said_stop[link], false);
                goes.then_some(News::Go(link as u32))
            }
            FlowControl::Credits | FlowControl::None => {
                cables.returning[link] += bytes;
                let link = link as u32;
                Some(News::Credit { link, bytes })
            }
        };
        let level = self.level(link);
        if let Some(meter) = &mut self.meter {
            meter.holds(link, now, level);
        }
        if let Some(news) = news {
            self.send_news(heard, news, scheduler);
        }
    }
}
