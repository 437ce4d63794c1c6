//! The event builder over TCP streams of the loopback, on two threads, and what bare TCP does.
//!
//! One thread drives the event manager and all readout units, the other all builder units; each pair
//! of units has its own stream. Fragments lie ready in their pages with their CRC: what is measured
//! is the builder's part, as over shared memory. An event is whole when all its fragments came, each
//! with the right CRC and the header of its source. The floor writes as many bytes through as many
//! streams, as many bytes a `writev` as the builder's, from pages of the same size, on the same two
//! threads, with the same congestion control, and reads them into pages.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use livetime_builder::{BuilderUnit, EventManager, Handled, Outgoing, ReadoutOutput, ReadoutUnit};
use livetime_node::transport::{ReceivePages, STREAM_PAGES_MAX, TcpFrameLink};
use livetime_readout::{FragmentBuffer, FragmentBufferConfig};
use livetime_shm::{PageIndex, PagePool, PoolConfig};
use livetime_wire::crc::crc32c;
use livetime_wire::message::{
    BuilderMessage, Envelope, EventTicket, FragmentDescriptor, TriggerList,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, LossCounts, RunNs, SourceId, TriggerNumber, UnitId};

use super::BenchError;
use super::builder::{EPOCH, FILTER, SOURCES_PER_UNIT, Shape, check, stamp};
use super::two_cores::{Patience, run_pair};

/// Bytes of a page of the floor, and most pieces of one of its calls.
const FLOOR_SLICES_MAX: usize = 64;

/// A unit's core behind its streams.
struct Linked<C> {
    core: C,
    link: TcpFrameLink,
    /// A message whose stream was full.
    kept: Option<Outgoing>,
}

impl<C> Linked<C> {
    fn receive(&mut self, mut handle: impl FnMut(&mut C, &Envelope) -> Handled) -> usize {
        let mut work = 0;
        while let Some(envelope) = self.link.take() {
            let _taken_or_refused = handle(&mut self.core, &envelope);
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
}

struct Builder {
    linked: Linked<BuilderUnit>,
    pool: PagePool,
    ticket: EventTicket,
    answers: TriggerList,
    answer_sequence: u32,
    whole: u64,
    damaged: u64,
}

/// The thread of the event manager and the readout units.
struct Senders {
    manager: Linked<EventManager>,
    readouts: Vec<Readout>,
    next_trigger: u64,
    accepted: u64,
    accepts_waiting: u64,
}

/// What one block did.
pub(super) struct TcpBuilt {
    pub(super) ns_per_fragment: f64,
}

/// What came out over all blocks.
pub(super) struct TcpAccount {
    pub(super) lost: u64,
    pub(super) incomplete: u64,
    pub(super) control_messages: f64,
    pub(super) bytes_per_writev: f64,
    pub(super) payload_sent: u64,
    pub(super) payload_received: u64,
}

/// All units and their streams.
pub(super) struct TcpBuilders {
    shape: Shape,
    senders: Senders,
    builders: Vec<Builder>,
    start: Instant,
    /// The congestion control in force.
    pub(super) congestion: String,
}

fn system(step: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |source| BenchError::File { step, source }
}

/// Two connected streams.
fn streams() -> Result<(TcpStream, TcpStream), BenchError> {
    let failed = || system("connecting two streams of the loopback");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
    let address = listener.local_addr().map_err(failed())?;
    let near = TcpStream::connect(address).map_err(failed())?;
    let (far, _) = listener.accept().map_err(failed())?;
    Ok((near, far))
}

impl TcpBuilders {
    pub(super) fn new(shape: Shape) -> Result<Self, BenchError> {
        let config = shape.config();
        let credits = config.credits as usize;
        let in_flight = STREAM_PAGES_MAX * usize::from(shape.readout_units);
        let mut builders = Vec::new();
        for index in 0..shape.builder_units {
            let pool = PagePool::create(&PoolConfig {
                pages: (credits * shape.sources() as usize + in_flight) as u32,
                ..shape.pool_config(&config)
            })?;
            let mut core = BuilderUnit::new(&config, index, EPOCH);
            core.report_freed_pages(pool.page_count() as usize);
            let pages = ReceivePages::new(pool.clone(), index);
            builders.push(Builder {
                ticket: core.empty_ticket(),
                linked: Linked {
                    core,
                    link: TcpFrameLink::new(None, Some(pages)),
                    kept: None,
                },
                pool,
                answers: TriggerList::default(),
                answer_sequence: 0,
                whole: 0,
                damaged: 0,
            });
        }
        let mut manager = Linked {
            core: EventManager::new(&config, EPOCH),
            link: TcpFrameLink::new(None, None),
            kept: None,
        };
        let mut readouts = Vec::new();
        for index in 0..shape.readout_units {
            readouts.push(Readout::new(shape, &config, index)?);
        }
        let add = || system("setting up a stream");
        let mut congestion = String::new();
        for (bu, builder) in (0..).zip(&mut builders) {
            let of_readouts = (0..).zip(&mut readouts);
            let links =
                of_readouts.map(|(ru, readout)| (UnitId::readout(ru), &mut readout.linked.link));
            let links = links.chain(std::iter::once((UnitId::EVENT_MANAGER, &mut manager.link)));
            for (unit, link) in links {
                let (near, far) = streams()?;
                congestion = link.add(UnitId::builder(bu), near, None).map_err(add())?;
                builder.linked.link.add(unit, far, None).map_err(add())?;
            }
        }
        Ok(Self {
            shape,
            senders: Senders {
                manager,
                readouts,
                next_trigger: 1,
                accepted: 0,
                accepts_waiting: shape.accepts_waiting() as u64,
            },
            builders,
            start: Instant::now(),
            congestion,
        })
    }

    /// Builds `events` events and waits until nothing is on its way.
    pub(super) fn build(&mut self, events: u64) -> Result<TcpBuilt, BenchError> {
        let (senders, builders, epoch) = (&mut self.senders, &mut self.builders, self.start);
        let is_over = AtomicBool::new(false);
        let until = senders.next_trigger + events;
        let start = Instant::now();
        run_pair(
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
                    match work {
                        0 => patience.idle()?,
                        _ => patience.restart(),
                    }
                }
                Ok(())
            },
        )?;
        let ns = start.elapsed().as_secs_f64() * 1e9;
        Ok(TcpBuilt {
            ns_per_fragment: ns / (events * self.shape.sources()) as f64,
        })
    }

    /// What came out, after every page has come back.
    pub(super) fn account(&self) -> Result<TcpAccount, BenchError> {
        let Senders {
            manager, readouts, ..
        } = &self.senders;
        let mut losses = LossCounts::new();
        losses.merge(manager.core.losses());
        let (mut built, mut incomplete, mut whole, mut damaged, mut received) = (0, 0, 0, 0, 0);
        for builder in &self.builders {
            let core = &builder.linked.core;
            losses.merge(core.losses());
            built += core.counts().events_built;
            incomplete += core.counts().events_incomplete;
            whole += builder.whole;
            damaged += builder.damaged + builder.linked.link.counts().payloads_damaged;
            received += builder.linked.link.counts().payload_bytes_received;
            let (filled, none) = (builder.pool.counts().holds.into(), 0);
            check("pages that a builder unit still reads", filled, none)?;
        }
        let (mut control, mut writes, mut sent) = (0, 0, 0);
        for readout in readouts {
            losses.merge(readout.linked.core.losses());
            losses.merge(readout.buffer.losses());
            control += readout.linked.core.counts().messages.received;
            writes += readout.linked.link.counts().writes;
            sent += readout.linked.link.counts().payload_bytes_sent;
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
        Ok(TcpAccount {
            lost: losses.total() + damaged,
            incomplete,
            control_messages: 8.0 * control as f64 / pairs,
            bytes_per_writev: sent as f64 / writes.max(1) as f64,
            payload_sent: sent,
            payload_received: received,
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
            work += self
                .manager
                .receive(|core, envelope| core.handle_message(now, envelope));
            work += self.manager.send_all(|core| core.poll_output(now));
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
            match work {
                0 => patience.idle()?,
                _ => patience.restart(),
            }
        }
    }

    /// Takes triggers as far as there are pages, and tells the event manager.
    fn trigger(&mut self, now: RunNs, until: u64) -> Result<usize, BenchError> {
        let mut work = 0;
        while self.next_trigger < until
            && self.next_trigger - 1 - self.accepted < self.accepts_waiting
            && self.readouts.iter().all(Readout::has_room)
        {
            let trigger = TriggerNumber(self.next_trigger);
            for readout in &mut self.readouts {
                readout.bring(now, trigger)?;
            }
            self.next_trigger += 1;
            work += 1;
        }
        while self.accepted + 1 < self.next_trigger {
            let envelope = Envelope {
                sender: UnitId::SUPERVISOR,
                epoch: EPOCH,
                sequence: self.accepted as u32,
                message: BuilderMessage::L2Accept {
                    trigger: TriggerNumber(self.accepted + 1),
                    mask: L2Mask(1),
                    triggered_at: now,
                },
            };
            if self.manager.core.handle_message(now, &envelope) == Handled::Busy {
                break;
            }
            self.accepted += 1;
        }
        Ok(work)
    }
}

impl Readout {
    fn new(
        shape: Shape,
        config: &livetime_builder::BuilderConfig,
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
                link: TcpFrameLink::new(Some(pool.clone()), None),
                kept: None,
            },
            buffer: FragmentBuffer::new(buffer, &sources),
            sources,
            free,
            fragments,
            pool,
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
            pool,
            ..
        } = self;
        let work = linked.receive(|core, envelope| core.handle_message(now, envelope));
        let mut freed = 0;
        let sent = linked.send_all(|core| {
            loop {
                match core.poll_output()? {
                    ReadoutOutput::SendFragment {
                        to,
                        sequence,
                        trigger,
                        source,
                    } => {
                        let fragment = buffer.fragment(trigger, source)?.clone();
                        let envelope = core.fragment_message(sequence, trigger, fragment);
                        return Some(Outgoing { to, envelope });
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
        });
        work + sent + freed
    }
}

impl Builder {
    fn poll(&mut self, now: RunNs) -> Result<usize, BenchError> {
        let mut work = self
            .linked
            .receive(|core, envelope| core.handle_message(now, envelope));
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
        while let Some(page) = self.linked.core.poll_freed_page() {
            if let Some(pages) = self.linked.link.pages_mut() {
                pages.give_back(page)?;
            }
        }
        Ok(work)
    }

    fn answer(&mut self, now: RunNs) {
        let envelope = Envelope {
            sender: FILTER,
            epoch: EPOCH,
            sequence: self.answer_sequence,
            message: BuilderMessage::EventDone {
                triggers: self.answers.take(),
            },
        };
        self.answer_sequence = self.answer_sequence.wrapping_add(1);
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

/// Bare TCP: streams, pages at both ends.
pub(super) struct RawTcp {
    writers: Vec<TcpStream>,
    readers: Vec<TcpStream>,
    page: Vec<u8>,
    pages: Vec<Vec<u8>>,
}

impl RawTcp {
    pub(super) fn new(shape: Shape) -> Result<Self, BenchError> {
        let pairs = usize::from(shape.readout_units) * usize::from(shape.builder_units);
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let (near, far) = streams()?;
            for stream in [&near, &far] {
                let set = stream.set_nonblocking(true).and(stream.set_nodelay(true));
                set.map_err(system("setting up a stream"))?;
            }
            writers.push(near);
            readers.push(far);
        }
        let page_bytes = shape.fragment_bytes() as usize;
        Ok(Self {
            writers,
            readers,
            page: vec![0x5A; page_bytes],
            pages: vec![vec![0; page_bytes]; FLOOR_SLICES_MAX],
        })
    }

    /// Sends `bytes` through every stream, `per_call` a `writev`; bytes per second of all.
    pub(super) fn measure(&mut self, bytes: u64, per_call: usize) -> Result<f64, BenchError> {
        let Self {
            writers,
            readers,
            page,
            pages,
        } = self;
        let start = Instant::now();
        let total = bytes * writers.len() as u64;
        run_pair(
            |mut patience| {
                let mut left = vec![bytes; writers.len()];
                while left.iter().any(|left| *left > 0) {
                    let mut moved = 0;
                    for (stream, left) in writers.iter_mut().zip(&mut left) {
                        let call = (*left).min(per_call.max(1) as u64) as usize;
                        let pieces = call.div_ceil(page.len()).min(FLOOR_SLICES_MAX);
                        let slices: Vec<IoSlice<'_>> = (0..pieces)
                            .map(|n| IoSlice::new(&page[..page.len().min(call - n * page.len())]))
                            .collect();
                        let taken =
                            moved_bytes(stream.write_vectored(&slices), "writing bare TCP")?;
                        *left -= taken;
                        moved += taken;
                    }
                    match moved {
                        0 => patience.idle()?,
                        _ => patience.restart(),
                    }
                }
                Ok(())
            },
            |mut patience| {
                let mut came = 0;
                while came < total {
                    let mut moved = 0;
                    for stream in readers.iter_mut() {
                        let pieces = per_call
                            .div_ceil(page_len(pages))
                            .clamp(1, FLOOR_SLICES_MAX);
                        let mut slices: Vec<IoSliceMut<'_>> = pages[..pieces]
                            .iter_mut()
                            .map(|page| IoSliceMut::new(page))
                            .collect();
                        moved +=
                            moved_bytes(stream.read_vectored(&mut slices), "reading bare TCP")?;
                    }
                    came += moved;
                    match moved {
                        0 => patience.idle()?,
                        _ => patience.restart(),
                    }
                }
                Ok(())
            },
        )?;
        Ok(total as f64 / start.elapsed().as_secs_f64())
    }
}

fn page_len(pages: &[Vec<u8>]) -> usize {
    pages.first().map_or(1, Vec::len).max(1)
}

/// Bytes of a call on a stream that does not block.
fn moved_bytes(result: std::io::Result<usize>, step: &'static str) -> Result<u64, BenchError> {
    match result {
        Ok(bytes) => Ok(bytes as u64),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(source) => Err(BenchError::File { step, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_comes_whole_through_streams_and_every_page_comes_back() {
        let shape = Shape {
            readout_units: 2,
            builder_units: 2,
            fragment_words: 64,
        };
        let mut units = TcpBuilders::new(shape).unwrap();
        units.build(300).unwrap();
        units.build(300).unwrap();
        let account = units.account().unwrap();
        assert_eq!((account.lost, account.incomplete), (0, 0));
        let payload = 600 * shape.sources() * shape.fragment_bytes();
        assert_eq!(account.payload_sent, payload);
        assert_eq!(account.payload_received, payload);
        let mut raw = RawTcp::new(shape).unwrap();
        assert!(raw.measure(100_000, 4096).unwrap() > 0.0);
    }
}
