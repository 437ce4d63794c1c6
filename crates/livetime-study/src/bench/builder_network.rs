//! The event builder over sockets of the loopback, on two threads: streams or datagrams.
//!
//! One thread drives the event manager and all readout units, the other all builder units; each pair
//! of units has its own stream, or pair of sockets for datagrams. Fragments lie ready in their pages
//! with their CRC: what is measured is the builder's part, as over shared memory. An event is whole
//! when all its fragments came, each with the right CRC and the header of its source. Datagrams that
//! are lost are counted, and asked for again by the builder units. What the bare machine does is in
//! [`super::raw_tcp`] and [`super::raw_udp`].

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use livetime_builder::{
    BuilderConfig, BuilderUnit, EventManager, Handled, Outgoing, ReadoutOutput, ReadoutUnit,
};
use livetime_node::builder_transport::DEFAULT_CONGESTION;
use livetime_node::transport::udp_frame_link::{BATCH, PARTIAL_FRAGMENTS_MAX};
use livetime_node::transport::{
    NetworkLink, ReceivePages, STREAM_PAGES_MAX, TcpFrameLink, UdpFrameLink, set_congestion,
};
use livetime_readout::{FragmentBuffer, FragmentBufferConfig};
use livetime_shm::{PageIndex, PagePool, PoolConfig};
use livetime_wire::crc::crc32c;
use livetime_wire::message::{Envelope, EventTicket, FragmentDescriptor, TriggerList};
use livetime_wire::message_datagram::PAYLOAD_AT;
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{DurationNs, LossCounts, RunNs, SourceId, TriggerNumber, UnitId};

use super::BenchError;
use super::builder::{EPOCH, SOURCES_PER_UNIT, Shape, accept, answer, check, stamp};
use super::builder_scale::{BuilderDriver, TriggeredUnit, UnitsApart};
use super::pinned_threads::{Patience, time_pair};

/// When an event is given up: no sooner than threads that wait for each other.
const TIMEOUT: DurationNs = DurationNs(10 * DurationNs::SECOND.0);

/// Least and most credits of a builder unit whose events come through streams: at least twice the
/// default, since the way from one event's release to the next one's request leads through the kernel
/// three times, and more of small events, so that a message through the kernel serves as many of them
/// as it may name.
const STREAM_CREDITS: RangeInclusive<u64> = 32..=128;
/// Payload in a builder unit's hands that small events may come to.
const STREAM_PAYLOAD: u64 = 16 << 20;

fn stream_credits(shape: Shape) -> u32 {
    let (least, most) = STREAM_CREDITS.into_inner();
    let event_bytes = shape.sources() * shape.fragment_bytes();
    (STREAM_PAYLOAD / event_bytes).clamp(least, most) as u32
}

/// What carries messages and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    /// A stream for each pair of units.
    Tcp,
    /// Datagrams, through sockets with buffers for all credits.
    Udp,
}

/// A unit's core behind its sockets.
struct Linked<C> {
    core: C,
    link: NetworkLink,
    /// A message whose socket was full.
    kept: Option<Outgoing>,
}

impl<C> Linked<C> {
    fn receive(&mut self, mut handle: impl FnMut(&mut C, &Envelope) -> Handled) -> usize {
        let mut work = 0;
        let core = &mut self.core;
        while self.link.take_next(|envelope| {
            let _taken_or_refused = handle(core, envelope);
        }) {
            work += 1;
        }
        work
    }

    fn send_all(&mut self, mut poll: impl FnMut(&mut C) -> Option<Outgoing>) -> usize {
        let mut sent = 0;
        while let Some(outgoing) = self.kept.take().or_else(|| poll(&mut self.core)) {
            if self.link.send(&outgoing).is_err() {
                self.kept = Some(outgoing);
                break;
            }
            sent += 1;
        }
        self.link.flush();
        sent
    }
}

/// A readout unit with its pages, each of which holds a fragment of one source.
struct Readout {
    linked: Linked<ReadoutUnit>,
    sources: Vec<SourceId>,
    /// By source: its free pages.
    free: Vec<Vec<u32>>,
    /// By page: its fragment.
    fragments: Vec<FragmentDescriptor>,
    pool: PagePool,
    buffer: FragmentBuffer,
    page_use: PageUse,
}

struct Builder {
    linked: Linked<BuilderUnit>,
    pool: PagePool,
    ticket: EventTicket,
    answers: TriggerList,
    answer_sequence: u32,
    whole: u64,
    damaged: u64,
    page_use: PageUse,
}

/// The thread of the event manager and the readout units.
struct Senders {
    manager: Linked<EventManager>,
    readouts: Vec<Readout>,
    next_trigger: u64,
    accepted: u64,
}

/// Pages in use at the moments at which some are given back: their mean.
#[derive(Debug, Clone, Copy, Default)]
struct PageUse {
    pages: u64,
    moments: u64,
}

impl PageUse {
    fn note(&mut self, pages: usize) {
        self.pages += pages as u64;
        self.moments += 1;
    }

    fn mean(self) -> usize {
        self.pages.div_ceil(self.moments.max(1)) as usize
    }
}

/// How many pages the units go round: of all readout units, and of all builder units.
#[derive(Debug, Clone, Copy)]
pub(super) struct PagesInUse {
    pub(super) sent_from: usize,
    pub(super) received_into: usize,
}

/// What one block did.
pub(super) struct NetworkBuilt {
    pub(super) ns_per_fragment: f64,
}

/// What came out over all blocks.
pub(super) struct NetworkAccount {
    pub(super) lost: u64,
    pub(super) incomplete: u64,
    pub(super) control_messages: f64,
    /// Bytes that go out in a system call, those of messages included.
    pub(super) bytes_per_call: f64,
    pub(super) payload_sent: u64,
    pub(super) payload_received: u64,
    /// Of the bytes received, those that did not come straight into their page.
    pub(super) payload_copied: u64,
    /// Fragments that were asked for again.
    pub(super) sent_again: u64,
    /// Of datagrams.
    pub(super) datagrams: DatagramAccount,
}

/// What became of datagrams, over all units.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DatagramAccount {
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Those that did not come, by their numbers.
    pub(super) lost: u64,
    /// Those of them that the kernel dropped for want of room.
    pub(super) kernel_drops: u64,
    /// Those that the system refused.
    pub(super) unsent: u64,
    /// Calls that sent some.
    pub(super) sends: u64,
    /// The smallest receive buffer in force \[B\].
    pub(super) receive_buffer_bytes: u64,
}

impl DatagramAccount {
    fn add(&mut self, link: &NetworkLink) {
        let NetworkLink::Udp(link) = link else {
            return;
        };
        let counts = link.counts();
        self.sent += counts.datagrams_sent;
        self.received += counts.datagrams_received;
        self.lost += counts.datagrams_lost;
        self.kernel_drops += counts.kernel_drops;
        self.unsent += counts.datagrams_unsent;
        self.sends += counts.sends;
        self.receive_buffer_bytes = match self.receive_buffer_bytes {
            0 => counts.receive_buffer_bytes,
            least => least.min(counts.receive_buffer_bytes),
        };
    }
}

/// What a link has moved.
struct Moved {
    sent: u64,
    received: u64,
    copied: u64,
    calls: u64,
    /// Bytes that went out in them, messages included.
    written: u64,
    damaged: u64,
}

impl Moved {
    fn of(link: &NetworkLink) -> Self {
        match link {
            NetworkLink::Tcp(link) => {
                let counts = link.counts();
                Self {
                    sent: counts.payload_bytes_sent,
                    received: counts.payload_bytes_received,
                    copied: counts.payload_bytes_copied,
                    calls: counts.writes,
                    written: counts.payload_bytes_sent + counts.message_bytes_sent,
                    damaged: counts.payloads_damaged,
                }
            }
            NetworkLink::Udp(link) => {
                let counts = link.counts();
                Self {
                    sent: counts.payload_bytes_sent,
                    received: counts.payload_bytes_received,
                    copied: 0,
                    calls: counts.sends,
                    written: counts.payload_bytes_sent,
                    // One that did not come whole is asked for again, as one that was lost.
                    damaged: 0,
                }
            }
        }
    }
}

/// All units and their sockets.
pub(super) struct NetworkBuilders {
    pub(super) shape: Shape,
    senders: Senders,
    builders: Vec<Builder>,
    start: Instant,
    /// Credits of each builder unit.
    pub(super) credits: u32,
    /// The congestion control in force, of streams.
    pub(super) congestion: String,
}

impl Carrier {
    /// The builder of a shape.
    fn config(self, shape: Shape) -> BuilderConfig {
        let config = shape.config();
        match self {
            Self::Tcp => BuilderConfig {
                credits: stream_credits(shape),
                filter_in_flight: stream_credits(shape),
                requests_per_message: stream_credits(shape) / 4,
                ..config
            },
            // Receive buffers have room for so many.
            Self::Udp => config,
        }
    }

    /// A link of a unit, which sends from or receives into these pages.
    fn link(
        self,
        shape: Shape,
        sent_from: Option<PagePool>,
        pages: Option<ReceivePages>,
    ) -> NetworkLink {
        match self {
            Self::Tcp => NetworkLink::Tcp(Box::new(TcpFrameLink::new(sent_from, pages))),
            Self::Udp => {
                let bytes = buffer_bytes(shape);
                NetworkLink::Udp(Box::new(UdpFrameLink::new(sent_from, pages, bytes)))
            }
        }
    }

    /// Pages of a builder unit beside those of its events.
    fn pages_in_flight(self, shape: Shape) -> usize {
        let readout_units = usize::from(shape.readout_units);
        match self {
            Self::Tcp => STREAM_PAGES_MAX * readout_units,
            Self::Udp => PARTIAL_FRAGMENTS_MAX * readout_units + BATCH,
        }
    }

    /// Joins the links of two units; returns the congestion control of streams.
    fn connect(
        self,
        (near, near_link): (UnitId, &mut NetworkLink),
        (far, far_link): (UnitId, &mut NetworkLink),
    ) -> Result<String, BenchError> {
        let failed = || system("joining two units");
        match (self, near_link, far_link) {
            (Self::Tcp, NetworkLink::Tcp(near_link), NetworkLink::Tcp(far_link)) => {
                let (a, b) = streams()?;
                // Set where they were made.
                far_link.add(near, b, None).map_err(failed())?;
                near_link.add(far, a, None).map_err(failed())
            }
            (Self::Udp, NetworkLink::Udp(near_link), NetworkLink::Udp(far_link)) => {
                let (a, b) = sockets()?;
                far_link.add(near, b).map_err(failed())?;
                near_link.add(far, a).map_err(failed())?;
                Ok(String::new())
            }
            _ => unreachable!("all links are of one carrier"),
        }
    }
}

/// Bytes of a socket's buffer for what all credits of a builder unit need from one readout unit. The
/// kernel doubles what it is asked for, and rounds what a datagram takes up to a power of two.
pub(super) fn buffer_bytes(shape: Shape) -> usize {
    let of_datagram = shape.fragment_bytes() as usize + 4 * PAYLOAD_AT + 1024;
    shape.config().credits as usize * SOURCES_PER_UNIT as usize * of_datagram
}

pub(super) fn system(step: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |source| BenchError::File { step, source }
}

/// Two connected streams with the congestion control of runs.
pub(super) fn streams() -> Result<(TcpStream, TcpStream), BenchError> {
    let failed = || system("connecting two streams of the loopback");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
    let address = listener.local_addr().map_err(failed())?;
    let near = TcpStream::connect(address).map_err(failed())?;
    let (far, _) = listener.accept().map_err(failed())?;
    for stream in [&near, &far] {
        set_congestion(stream, Some(DEFAULT_CONGESTION)).map_err(failed())?;
    }
    Ok((near, far))
}

/// Two connected sockets for datagrams.
pub(super) fn sockets() -> Result<(UdpSocket, UdpSocket), BenchError> {
    let failed = || system("connecting two sockets of the loopback");
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed());
    let (near, far) = (bind()?, bind()?);
    let address = |socket: &UdpSocket| socket.local_addr().map_err(failed());
    near.connect(address(&far)?).map_err(failed())?;
    far.connect(address(&near)?).map_err(failed())?;
    Ok((near, far))
}

impl NetworkBuilders {
    pub(super) fn new(shape: Shape, carrier: Carrier) -> Result<Self, BenchError> {
        let config = BuilderConfig {
            // No event is closed early since the machine has other things to do.
            timeout: TIMEOUT,
            ..carrier.config(shape)
        };
        debug_assert!(config.validate("builder").is_empty());
        let mut builders = Vec::new();
        for index in 0..shape.builder_units {
            builders.push(Builder::new(shape, carrier, &config, index)?);
        }
        let mut manager = Linked {
            core: EventManager::new(&config, EPOCH),
            link: carrier.link(shape, None, None),
            kept: None,
        };
        let mut readouts = Vec::new();
        for index in 0..shape.readout_units {
            readouts.push(Readout::new(shape, carrier, &config, index)?);
        }
        let mut congestion = String::new();
        for (bu, builder) in (0..).zip(&mut builders) {
            let of_readouts = (0..).zip(&mut readouts);
            let links =
                of_readouts.map(|(ru, readout)| (UnitId::readout(ru), &mut readout.linked.link));
            let links = links.chain(std::iter::once((UnitId::EVENT_MANAGER, &mut manager.link)));
            for (unit, link) in links {
                let near = (unit, link);
                let far = (UnitId::builder(bu), &mut builder.linked.link);
                congestion = carrier.connect(near, far)?;
            }
        }
        Ok(Self {
            shape,
            senders: Senders {
                manager,
                readouts,
                next_trigger: 1,
                accepted: 0,
            },
            builders,
            start: Instant::now(),
            credits: config.credits,
            congestion,
        })
    }

    /// Builds `events` events and waits until nothing is on its way.
    pub(super) fn build(&mut self, events: u64) -> Result<NetworkBuilt, BenchError> {
        let (senders, builders, epoch) = (&mut self.senders, &mut self.builders, self.start);
        let is_over = AtomicBool::new(false);
        let until = senders.next_trigger + events;
        let seconds = time_pair(
            |patience| {
                let sent = senders.run(until, epoch, patience);
                // Release pairs with the load of the other thread; no data goes with it.
                is_over.store(true, Ordering::Release);
                sent
            },
            |mut patience| {
                while !is_over.load(Ordering::Acquire) {
                    let now = RunNs(epoch.elapsed().as_nanos() as u64);
                    let mut work = 0;
                    for builder in builders.iter_mut() {
                        work += builder.poll(now)?;
                    }
                    patience.after(work > 0)?;
                }
                Ok(())
            },
        )?;
        Ok(NetworkBuilt {
            ns_per_fragment: 1e9 * seconds / (events * self.shape.sources()) as f64,
        })
    }

    /// The units, each for a thread of its own, and the next so many triggers.
    pub(super) fn apart(&mut self, events: u64) -> UnitsApart<'_> {
        let Senders {
            manager,
            readouts,
            next_trigger,
            accepted,
        } = &mut self.senders;
        let first = *next_trigger;
        *next_trigger += events;
        *accepted += events;
        let mut triggered: Vec<&mut dyn TriggeredUnit> = vec![manager];
        for readout in readouts {
            triggered.push(readout);
        }
        let driven = |builder| -> BuilderDriver<'_> {
            let builder: &mut Builder = builder;
            Box::new(move |now| builder.poll(now))
        };
        UnitsApart {
            triggers: first..first + events,
            triggered,
            builders: self.builders.iter_mut().map(driven).collect(),
        }
    }

    /// How many pages they have gone round so far.
    pub(super) fn pages_in_use(&self) -> PagesInUse {
        let readouts = self.senders.readouts.iter();
        let builders = self.builders.iter();
        PagesInUse {
            sent_from: readouts.map(|unit| unit.page_use.mean()).sum(),
            received_into: builders.map(|unit| unit.page_use.mean()).sum(),
        }
    }

    /// What came out, after every page has come back.
    pub(super) fn account(&self) -> Result<NetworkAccount, BenchError> {
        let Senders {
            manager, readouts, ..
        } = &self.senders;
        let mut losses = LossCounts::new();
        let mut datagrams = DatagramAccount::default();
        losses.merge(manager.core.losses());
        datagrams.add(&manager.link);
        let (mut built, mut incomplete, mut whole, mut damaged) = (0, 0, 0, 0);
        let (mut received, mut copied) = (0, 0);
        for builder in &self.builders {
            let core = &builder.linked.core;
            losses.merge(core.losses());
            built += core.counts().events_built;
            incomplete += core.counts().events_incomplete;
            whole += builder.whole;
            let moved = Moved::of(&builder.linked.link);
            damaged += builder.damaged + moved.damaged;
            received += moved.received;
            copied += moved.copied;
            datagrams.add(&builder.linked.link);
            let (filled, none) = (builder.pool.counts().holds.into(), 0);
            check("pages that a builder unit still reads", filled, none)?;
        }
        let (mut control, mut calls, mut sent, mut sent_again) = (0, 0, 0, 0);
        let mut written = 0;
        for readout in readouts {
            losses.merge(readout.linked.core.losses());
            losses.merge(readout.buffer.losses());
            control += readout.linked.core.counts().messages.received;
            sent_again += readout.linked.core.counts().fragments_sent_again;
            let moved = Moved::of(&readout.linked.link);
            calls += moved.calls;
            written += moved.written;
            sent += moved.sent;
            datagrams.add(&readout.linked.link);
            let free: usize = readout.free.iter().map(Vec::len).sum();
            check(
                "pages that came back",
                free as u64,
                readout.fragments.len() as u64,
            )?;
        }
        let triggers = self.senders.next_trigger - 1;
        check("events", built + incomplete, triggers)?;
        check("whole events seen by the filter", whole, built)?;
        let pairs = f64::from(self.shape.readout_units) * triggers.max(1) as f64;
        Ok(NetworkAccount {
            lost: losses.total() + damaged,
            incomplete,
            control_messages: 8.0 * control as f64 / pairs,
            bytes_per_call: written as f64 / calls.max(1) as f64,
            payload_sent: sent,
            payload_received: received,
            payload_copied: copied,
            sent_again,
            datagrams,
        })
    }
}

impl Senders {
    fn run(
        &mut self,
        until: u64,
        epoch: Instant,
        mut patience: Patience<'_>,
    ) -> Result<(), BenchError> {
        loop {
            let now = RunNs(epoch.elapsed().as_nanos() as u64);
            let mut work = self.trigger(now, until)?;
            work += self.manager.poll(now);
            for readout in &mut self.readouts {
                work += readout.poll(now);
            }
            let is_idle = self.next_trigger == until
                && self.accepted + 1 == until
                && self.manager.core.is_idle()
                && self
                    .readouts
                    .iter()
                    .all(|readout| readout.linked.core.is_idle());
            if is_idle && work == 0 {
                return Ok(());
            }
            patience.after(work > 0)?;
        }
    }

    /// Takes triggers as far as there are pages and the event manager's queue has room: it never waits
    /// for one.
    fn trigger(&mut self, now: RunNs, until: u64) -> Result<usize, BenchError> {
        let mut work = 0;
        loop {
            if self.accepted + 1 < self.next_trigger {
                if !accept(
                    &mut self.manager.core,
                    now,
                    TriggerNumber(self.accepted + 1),
                ) {
                    return Ok(work);
                }
                self.accepted += 1;
                continue;
            }
            if self.next_trigger == until || !self.readouts.iter().all(Readout::has_room) {
                return Ok(work);
            }
            let trigger = TriggerNumber(self.next_trigger);
            for readout in &mut self.readouts {
                readout.bring(now, trigger)?;
            }
            self.next_trigger += 1;
            work += 1;
        }
    }
}

impl TriggeredUnit for Linked<EventManager> {
    fn take(&mut self, now: RunNs, trigger: TriggerNumber) -> Result<bool, BenchError> {
        Ok(accept(&mut self.core, now, trigger))
    }

    fn poll(&mut self, now: RunNs) -> usize {
        let work = self.receive(|core, envelope| core.handle_message(now, envelope));
        if self.core.poll_timeout() <= now {
            self.core.handle_timeout(now);
        }
        work + self.send_all(|core| core.poll_output(now))
    }

    fn is_idle(&self) -> bool {
        self.core.is_idle()
    }
}

impl TriggeredUnit for Readout {
    fn take(&mut self, now: RunNs, trigger: TriggerNumber) -> Result<bool, BenchError> {
        let has_room = self.has_room();
        if has_room {
            self.bring(now, trigger)?;
        }
        Ok(has_room)
    }

    fn poll(&mut self, now: RunNs) -> usize {
        Self::poll(self, now)
    }

    fn is_idle(&self) -> bool {
        self.linked.core.is_idle()
    }
}

impl Readout {
    fn new(
        shape: Shape,
        carrier: Carrier,
        config: &BuilderConfig,
        index: u16,
    ) -> Result<Self, BenchError> {
        let pool_config = shape.pool_config(config);
        let pool = PagePool::create(&pool_config)?;
        let sources = config.sources_of(index);
        let mut free = vec![Vec::new(); sources.len()];
        let mut fragments = Vec::new();
        for page in 0..pool_config.pages {
            let of_source = page as usize % sources.len();
            let mut writer = pool.write(PageIndex(page))?;
            for (word, at) in writer.iter_mut().zip(page..) {
                *word = at.wrapping_mul(0x9E37_79B9);
            }
            let number = TriggerNumber(page.into());
            stamp(
                &mut writer,
                shape.fragment_words,
                sources[of_source],
                number,
            );
            fragments.push(FragmentDescriptor {
                source: sources[of_source],
                pool: index,
                words: shape.fragment_words as u32,
                status: FragmentStatus::GOOD,
                crc: crc32c(&writer[..shape.fragment_words]),
                pages: [page].into_iter().collect(),
            });
            writer.finish();
            free[of_source].push(page);
        }
        let buffer = FragmentBufferConfig {
            triggers_max: config.trigger_window,
        };
        Ok(Self {
            linked: Linked {
                core: ReadoutUnit::new(config, index, EPOCH),
                link: carrier.link(shape, Some(pool.clone()), None),
                kept: None,
            },
            buffer: FragmentBuffer::new(buffer, &sources),
            sources,
            free,
            fragments,
            pool,
            page_use: PageUse::default(),
        })
    }

    fn has_room(&self) -> bool {
        self.free.iter().all(|free| !free.is_empty())
    }

    /// One fragment of every source.
    fn bring(&mut self, now: RunNs, trigger: TriggerNumber) -> Result<(), BenchError> {
        for (source, free) in self.sources.iter().zip(&mut self.free) {
            let Some(page) = free.pop() else { break };
            let _verdict = self.linked.core.handle_fragment(now, trigger, *source);
            let fragment = self.fragments[page as usize].clone();
            let filed = self.buffer.insert(trigger, fragment);
            check("fragments filed", filed.is_ok().into(), 1)?;
        }
        Ok(())
    }

    fn poll(&mut self, now: RunNs) -> usize {
        let Self {
            linked,
            buffer,
            free,
            fragments,
            pool,
            ..
        } = self;
        let work = linked.receive(|core, envelope| core.handle_message(now, envelope));
        if linked.core.poll_timeout() <= now {
            linked.core.handle_timeout(now);
        }
        let used = fragments.len() - free.iter().map(Vec::len).sum::<usize>();
        let (mut sent, mut freed) = (linked.send_all(|_| None), 0);
        let Linked { core, link, kept } = linked;
        while kept.is_none()
            && let Some(output) = core.poll_output()
        {
            match output {
                ReadoutOutput::SendFragment {
                    to,
                    sequence,
                    trigger,
                    source,
                } => {
                    let Some(fragment) = buffer.fragment(trigger, source) else {
                        continue;
                    };
                    let message = core.fragment_on_file(sequence, trigger, fragment);
                    match link.send_fragment(to, &message) {
                        Ok(()) => sent += 1,
                        Err(_) => {
                            let envelope = message.to_envelope();
                            *kept = Some(Outgoing { to, envelope });
                        }
                    }
                }
                ReadoutOutput::Free { trigger, .. } => {
                    freed += 1;
                    buffer.remove(trigger, |fragment| {
                        let sources = free.len();
                        for page in &fragment.pages {
                            debug_assert!(*page < pool.page_count());
                            // Its content stays for the next trigger.
                            free[*page as usize % sources].push(*page);
                        }
                    });
                }
            }
        }
        link.flush();
        if freed > 0 {
            self.page_use.note(used);
        }
        work + sent + freed
    }
}

impl Builder {
    /// With pages for all its credits and for what may be on its way beside them.
    fn new(
        shape: Shape,
        carrier: Carrier,
        config: &BuilderConfig,
        index: u16,
    ) -> Result<Self, BenchError> {
        let of_events = config.credits as usize * shape.sources() as usize;
        let pool = PagePool::create(&PoolConfig {
            pages: (of_events + carrier.pages_in_flight(shape)) as u32,
            ..shape.pool_config(config)
        })?;
        let mut core = BuilderUnit::new(config, index, EPOCH);
        core.report_freed_pages(pool.page_count() as usize);
        if carrier == Carrier::Tcp {
            core.group_messages();
        }
        let pages = ReceivePages::new(pool.clone(), index);
        Ok(Self {
            ticket: core.empty_ticket(),
            linked: Linked {
                core,
                link: carrier.link(shape, None, Some(pages)),
                kept: None,
            },
            pool,
            answers: TriggerList::default(),
            answer_sequence: 0,
            whole: 0,
            damaged: 0,
            page_use: PageUse::default(),
        })
    }

    fn poll(&mut self, now: RunNs) -> Result<usize, BenchError> {
        let mut work = self
            .linked
            .receive(|core, envelope| core.handle_message(now, envelope));
        if self.linked.core.poll_timeout() <= now {
            self.linked.core.handle_timeout(now);
        }
        while self.linked.core.poll_ticket(&mut self.ticket).is_some() {
            let is_whole = self.is_whole();
            self.whole += u64::from(is_whole);
            self.damaged += u64::from(!is_whole);
            self.answers.push(self.ticket.trigger);
            work += 1;
            if self.answers.is_full() {
                self.answer(now);
            }
        }
        if !self.answers.is_empty() {
            self.answer(now);
        }
        work += self.linked.send_all(|core| core.poll_output(now));
        if let Some(pages) = self.linked.link.pages_mut() {
            let used = self.pool.page_count() as usize - pages.free();
            let mut freed = 0;
            while let Some(page) = self.linked.core.poll_freed_page() {
                pages.give_back(page)?;
                freed += 1;
            }
            if freed > 0 {
                self.page_use.note(used);
            }
        }
        Ok(work)
    }

    fn answer(&mut self, now: RunNs) {
        let envelope = answer(&mut self.answers, &mut self.answer_sequence);
        let handled = self.linked.core.handle_message(now, &envelope);
        debug_assert_eq!(handled, Handled::Taken);
    }

    /// Whether every source is there and every page holds the header of its source.
    fn is_whole(&self) -> bool {
        let fragments = &self.ticket.fragments;
        self.ticket.missing.is_empty()
            && fragments.len().is_multiple_of(SOURCES_PER_UNIT as usize)
            && fragments.iter().all(|fragment| {
                let page = fragment.pages.first();
                let reader = page.map(|page| self.pool.read(PageIndex(*page)));
                matches!(reader, Some(Ok(reader)) if reader[3] == fragment.source.0)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw_tcp::{RawTcp, Threads};
    use super::super::raw_udp::RawUdp;
    use super::*;

    const SHAPE: Shape = Shape {
        readout_units: 2,
        builder_units: 2,
        fragment_words: 64,
    };

    #[test]
    fn every_event_comes_whole_through_streams_and_every_page_comes_back() {
        let mut units = NetworkBuilders::new(SHAPE, Carrier::Tcp).unwrap();
        units.build(300).unwrap();
        units.build(300).unwrap();
        let account = units.account().unwrap();
        assert_eq!((account.lost, account.incomplete), (0, 0));
        let payload = 600 * SHAPE.sources() * SHAPE.fragment_bytes();
        // On a busy machine what was long on its way is asked for again.
        let is_once = account.payload_sent == payload && account.payload_received == payload;
        assert!(is_once || account.sent_again > 0);
        assert!(account.payload_received >= payload);
        assert_eq!(account.datagrams.sent, 0);
        let in_use = units.pages_in_use();
        let one_event = SHAPE.sources() as usize;
        assert!(
            in_use.sent_from >= one_event && in_use.received_into >= one_event,
            "{in_use:?}"
        );
        let mut raw = RawTcp::new(SHAPE, in_use).unwrap();
        assert!(raw.measure(Threads::Two, 100_000, 4096).unwrap() > 0.0);
    }

    #[test]
    fn every_event_comes_whole_in_datagrams_whatever_is_lost() {
        let mut units = NetworkBuilders::new(SHAPE, Carrier::Udp).unwrap();
        units.build(300).unwrap();
        units.build(300).unwrap();
        let account = units.account().unwrap();
        assert_eq!((account.lost, account.incomplete), (0, 0));
        let fragments = 600 * SHAPE.sources();
        let once = fragments * SHAPE.fragment_bytes();
        assert!(account.payload_sent >= once && account.payload_received >= once);
        assert!(account.payload_sent == once || account.sent_again > 0);
        // A datagram for each fragment, and those of the messages between them.
        let DatagramAccount {
            sent,
            received,
            lost,
            ..
        } = account.datagrams;
        assert!(
            sent > fragments && received + lost <= sent,
            "{sent} {received} {lost}"
        );
        let mut raw = RawUdp::new(SHAPE).unwrap();
        assert!(raw.measure(1000, 8).unwrap() > 0.0);
    }
}
