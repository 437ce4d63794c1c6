//! Whole events over streams, the filter unit's side: tickets of events in pages of its own.
//!
//! Messages and pages are the [`TcpFrameLink`]'s; here they become the same tickets as shared memory
//! brings, with every source that did not come named as missing. A stream whose messages make no
//! event is ended: nothing behind them can be believed, and its builder unit gives the events to
//! another. The other side is in [`super::event_sender`].

use std::collections::VecDeque;

use livetime_wire::message::{BuilderMessage, Envelope, EventTicket};
use livetime_wire::{SourceId, UnitId, UnitKind};

use super::{ReceivePages, TcpFrameLink};

/// Messages taken in one duty cycle.
const MESSAGES_PER_POLL: usize = 256;

/// What came from one builder unit.
struct Stream {
    /// The event whose fragments come, and how many it has.
    coming: Option<(EventTicket, usize)>,
    ready: VecDeque<EventTicket>,
    spare: Vec<EventTicket>,
}

/// A filter unit's streams from its builder units.
pub struct EventReceiver {
    /// The sources of an event, by id.
    sources: Vec<SourceId>,
    /// By index of the builder unit.
    streams: Vec<Stream>,
    /// Streams that were ended because of what came on them.
    refused: u64,
}

impl EventReceiver {
    /// For `builders` builder units, each with at most `window` events here, of these sources. As many
    /// again may be here after a stream was made again: some are answered before they come twice.
    pub fn new(builders: usize, window: usize, mut sources: Vec<SourceId>) -> Self {
        sources.sort_unstable();
        let tickets = std::iter::repeat_with(|| EventTicket::with_capacity(sources.len()));
        let stream = || Stream {
            coming: None,
            ready: VecDeque::with_capacity(2 * window),
            spare: tickets.take(2 * window).collect(),
        };
        Self {
            streams: std::iter::repeat_with(stream).take(builders).collect(),
            sources,
            refused: 0,
        }
    }

    /// Takes what has come; returns the number of messages.
    pub fn poll(&mut self, link: &mut TcpFrameLink) -> usize {
        let mut work = 0;
        while work < MESSAGES_PER_POLL
            && let Some(envelope) = link.take()
        {
            work += 1;
            if !self.handle(&envelope) {
                self.refused += u64::from(link.is_open(envelope.sender));
                link.lose(envelope.sender);
                give_back(link.pages_mut(), pages_of(&envelope));
            }
        }
        for builder in 0..self.streams.len() {
            let unit = UnitId::builder(builder as u16);
            if self.streams[builder].coming.is_some() && !link.is_open(unit) {
                self.drop_coming(builder, link);
            }
        }
        work
    }

    /// Takes a message; `false` when it makes no event.
    fn handle(&mut self, envelope: &Envelope) -> bool {
        let sender = envelope.sender;
        let stream = self.streams.get_mut(usize::from(sender.index));
        let (UnitKind::Builder, Some(stream)) = (sender.kind, stream) else {
            return false;
        };
        let done = match (&mut stream.coming, &envelope.message) {
            (
                coming @ None,
                BuilderMessage::Event {
                    trigger,
                    mask,
                    triggered_at,
                    assigned_at,
                    built_at,
                    streams,
                    fragments,
                },
            ) if usize::from(*fragments) <= self.sources.len() => {
                let Some(mut ticket) = stream.spare.pop() else {
                    return false;
                };
                ticket.builder = sender.index;
                (ticket.trigger, ticket.mask) = (*trigger, *mask);
                (ticket.triggered_at, ticket.assigned_at) = (*triggered_at, *assigned_at);
                (ticket.built_at, ticket.filter_reason) = (*built_at, 0);
                ticket.streams = *streams;
                ticket.fragments.clear();
                ticket.missing.clear();
                *coming = Some((ticket, usize::from(*fragments)));
                *fragments == 0
            }
            (Some((ticket, count)), BuilderMessage::FragmentData { trigger, fragment })
                if *trigger == ticket.trigger
                    && self.sources.binary_search(&fragment.source).is_ok()
                    && (ticket.fragments.last())
                        .is_none_or(|before| before.source < fragment.source) =>
            {
                ticket.fragments.push(fragment.clone());
                ticket.fragments.len() == *count
            }
            _ => return false,
        };
        if done && let Some((mut ticket, _)) = stream.coming.take() {
            let came = |source: &SourceId| {
                let fragments = &ticket.fragments;
                fragments
                    .binary_search_by_key(source, |fragment| fragment.source)
                    .is_ok()
            };
            let missing = self.sources.iter().copied().filter(|source| !came(source));
            ticket.missing.extend(missing);
            stream.ready.push_back(ticket);
        }
        true
    }

    /// The oldest event of a builder unit, into `ticket`; `false` when there is none.
    pub fn next(&mut self, builder: usize, ticket: &mut EventTicket) -> bool {
        let Some(stream) = self.streams.get_mut(builder) else {
            return false;
        };
        let Some(mut event) = stream.ready.pop_front() else {
            return false;
        };
        std::mem::swap(ticket, &mut event);
        stream.spare.push(event);
        true
    }

    /// A builder unit is gone: whole events stay, the one whose fragments were coming is dropped.
    pub fn lose(&mut self, builder: UnitId, link: &mut TcpFrameLink) {
        link.lose(builder);
        while self.poll(link) > 0 {}
    }

    /// The stream from a builder unit is made again: what came over the one before and was not taken
    /// is dropped, since all that was not answered comes again.
    pub fn restart(&mut self, builder: UnitId, link: &mut TcpFrameLink) {
        self.lose(builder, link);
        let Some(stream) = self.streams.get_mut(usize::from(builder.index)) else {
            return;
        };
        while let Some(ticket) = stream.ready.pop_front() {
            give_back(link.pages_mut(), pages_of_ticket(&ticket));
            stream.spare.push(ticket);
        }
    }

    fn drop_coming(&mut self, builder: usize, link: &mut TcpFrameLink) {
        let stream = &mut self.streams[builder];
        if let Some((ticket, _)) = stream.coming.take() {
            give_back(link.pages_mut(), pages_of_ticket(&ticket));
            stream.spare.push(ticket);
        }
    }

    /// Whether no whole event of a builder unit waits.
    pub fn is_empty(&self, builder: usize) -> bool {
        let stream = self.streams.get(builder);
        stream.is_none_or(|stream| stream.ready.is_empty())
    }

    /// Whether no event waits or is coming.
    pub fn is_all_empty(&self) -> bool {
        let streams = self.streams.iter();
        streams
            .map(|s| (&s.ready, &s.coming))
            .all(|(ready, coming)| ready.is_empty() && coming.is_none())
    }

    /// Whether every builder unit has ended its stream.
    pub fn is_ended(&self, link: &TcpFrameLink) -> bool {
        let mut builders = (0..self.streams.len()).map(|index| UnitId::builder(index as u16));
        !builders.any(|unit| link.is_open(unit))
    }

    /// Streams that were ended because of what came on them.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// The pages of an event are needed no more.
pub fn free_event(link: &mut TcpFrameLink, ticket: &EventTicket) {
    give_back(link.pages_mut(), pages_of_ticket(ticket));
}

fn pages_of_ticket(ticket: &EventTicket) -> impl Iterator<Item = u32> + '_ {
    let fragments = ticket.fragments.iter();
    fragments.flat_map(|fragment| fragment.pages.iter().copied())
}

fn pages_of(envelope: &Envelope) -> impl Iterator<Item = u32> + '_ {
    let fragment = match &envelope.message {
        BuilderMessage::FragmentData { fragment, .. } => Some(fragment),
        _ => None,
    };
    fragment
        .into_iter()
        .flat_map(|fragment| fragment.pages.iter().copied())
}

fn give_back(pages: Option<&mut ReceivePages>, of_event: impl Iterator<Item = u32>) {
    let Some(pages) = pages else { return };
    for page in of_event {
        // Filled by the link for this event alone.
        let taken = pages.give_back(page);
        debug_assert!(taken.is_ok(), "page {page} came filled: {taken:?}");
    }
}

#[cfg(test)]
mod tests {
    use arrayvec::ArrayVec;
    use livetime_builder::Outgoing;
    use livetime_shm::{HugePages, PageIndex, PagePool, PoolConfig};
    use livetime_wire::crc::crc32c;
    use livetime_wire::event::EventHeader;
    use livetime_wire::message::FragmentDescriptor;
    use livetime_wire::slink::FragmentStatus;
    use livetime_wire::{L2Mask, RunNs, TriggerNumber};

    use super::*;
    use crate::builder_transport::StreamPair;
    use crate::transport::EventSender;

    const PAGE_WORDS: usize = 64;
    const BU: UnitId = UnitId::builder(1);
    const FU: UnitId = UnitId::filter(2);
    const WINDOW: usize = 3;
    /// Events that the sender is given. Nothing is answered here, so it keeps them all.
    const EVENTS: usize = 6;

    struct Ends {
        /// Two pools of readout units, whose pages hold the events.
        pools: Vec<PagePool>,
        sender: EventSender,
        link: TcpFrameLink,
        receiver: EventReceiver,
    }

    fn pool(pages: u32) -> PagePool {
        PagePool::create(&PoolConfig {
            pages,
            page_bytes: 4 * PAGE_WORDS as u32,
            huge_pages: HugePages::Never,
        })
        .unwrap()
    }

    impl Ends {
        fn new(pages: u32) -> Self {
            let pools = vec![pool(64), pool(64)];
            let mut sender = EventSender::new(BU, 1, pools.clone(), (4, 1, EVENTS), 3);
            let pages = ReceivePages::new(pool(pages), 0);
            let mut link = TcpFrameLink::new(None, Some(pages)).ending_with_damage();
            let [near, far] = StreamPair::connect(None).unwrap().ends;
            sender.add(FU, near).unwrap();
            link.add(BU, far, None).unwrap();
            let sources = [30, 10, 20].map(SourceId).to_vec();
            Self {
                pools,
                sender,
                link,
                receiver: EventReceiver::new(2, WINDOW, sources),
            }
        }

        /// An event with fragments of so many words of the first sources, in both pools.
        fn event(&self, trigger: u64, words: &[usize]) -> EventTicket {
            let mut ticket = EventTicket::with_capacity(3);
            (ticket.builder, ticket.trigger) = (BU.index, TriggerNumber(trigger));
            (ticket.mask, ticket.built_at) = (L2Mask(trigger.into()), RunNs(trigger * 10));
            for (nth, words) in words.iter().enumerate() {
                let data: Vec<u32> = (0..*words as u32).map(|n| n ^ trigger as u32).collect();
                let mut pages = ArrayVec::new();
                for (page, part) in data.chunks(PAGE_WORDS).enumerate() {
                    let at = PageIndex(trigger as u32 * 8 + (nth / 2 * 4 + page) as u32);
                    let mut writer = self.pools[nth % 2].write(at).unwrap();
                    writer[..part.len()].copy_from_slice(part);
                    pages.push(writer.finish().0);
                }
                ticket.fragments.push(FragmentDescriptor {
                    source: SourceId(10 * (nth as u32 + 1)),
                    pool: (nth % 2) as u16,
                    words: *words as u32,
                    status: FragmentStatus::GOOD,
                    crc: crc32c(&data),
                    pages,
                });
            }
            let missing = (words.len()..3).map(|nth| SourceId(10 * (nth as u32 + 1)));
            ticket.missing.extend(missing);
            ticket
        }

        /// Drives both ends until an event is there, or the stream is gone.
        fn next(&mut self) -> Option<EventTicket> {
            let mut ticket = EventTicket::with_capacity(3);
            for _ in 0..1_000_000 {
                self.sender.send();
                self.receiver.poll(&mut self.link);
                if self.receiver.next(BU.index.into(), &mut ticket) {
                    return Some(ticket);
                }
                if !self.link.is_open(BU) {
                    return None;
                }
            }
            panic!("nothing comes");
        }

        fn free_pages(&mut self) -> usize {
            self.link.pages_mut().unwrap().free()
        }
    }

    #[test]
    fn events_come_as_they_were_sent_through_few_pages() {
        let mut ends = Ends::new(6);
        for trigger in 1..=EVENTS as u64 {
            let words = [PAGE_WORDS + 3, 2 * PAGE_WORDS, 1];
            let mut sent = ends.event(trigger, &words[..trigger as usize % 4 % 3 + 1]);
            if trigger == 2 {
                sent.streams = EventHeader::ERROR_STREAM;
            }
            let expected = sent.clone();
            if trigger % 5 == 3 {
                // Of a link that is trusted: nobody has computed it.
                sent.fragments[0].crc = 0;
            }
            ends.sender.push(FU.index, &mut sent);
            let came = ends.next().unwrap();
            let pool = ends.link.pages_mut().unwrap().pool().clone();
            for (came, sent) in came.fragments.iter().zip(&expected.fragments) {
                let mut data = Vec::new();
                for page in &came.pages {
                    data.extend_from_slice(&pool.read(PageIndex(*page)).unwrap());
                }
                assert_eq!(crc32c(&data[..came.words as usize]), sent.crc);
                assert_eq!((came.source, came.words), (sent.source, sent.words));
            }
            let named = |ticket: &EventTicket| {
                let times = (ticket.trigger, ticket.mask, ticket.built_at);
                (
                    times,
                    ticket.builder,
                    ticket.streams,
                    ticket.missing.clone(),
                )
            };
            assert_eq!(named(&came), named(&expected));
            free_event(&mut ends.link, &came);
        }
        assert_eq!(ends.free_pages(), 6);
        assert!(ends.sender.is_empty() && ends.receiver.is_all_empty());
        let sent = ends.sender.counts().payload_bytes_sent;
        assert_eq!(ends.link.counts().payload_bytes_received, sent);
        assert_eq!(ends.sender.poll_cut(), None);
    }

    /// The pages where an event lies are free as soon as the kernel has it.
    #[test]
    fn a_sender_holds_pages_only_until_they_are_sent() {
        let mut ends = Ends::new(8);
        let mut event = ends.event(1, &[PAGE_WORDS, PAGE_WORDS]);
        let pages = [event.fragments[0].pages[0], event.fragments[1].pages[0]];
        ends.sender.push(FU.index, &mut event);
        ends.next().unwrap();
        for (pool, page) in ends.pools.iter().zip(pages) {
            assert_eq!(pool.release(PageIndex(page)), Ok(()));
        }
    }

    #[test]
    fn a_cut_stream_is_named_once_and_nothing_is_held() {
        let mut ends = Ends::new(8);
        let mut event = ends.event(1, &[5]);
        ends.sender.push(FU.index, &mut event);
        ends.link.lose(BU);
        for _ in 0..1_000_000 {
            ends.sender.send();
            let _none = ends.sender.take();
            if let Some(unit) = ends.sender.poll_cut() {
                assert_eq!(unit, FU);
                break;
            }
        }
        assert_eq!(ends.sender.counts().streams_ended, 1);
        assert_eq!(ends.sender.poll_cut(), None, "once");
        ends.sender.lose(FU);
        assert!(ends.sender.is_empty());
        // One that was told to leave is no news.
        let mut ends = Ends::new(8);
        ends.sender.retire(FU);
        ends.sender.end_leaving(|_| false);
        assert!(!ends.receiver.is_ended(&ends.link), "it has an event still");
        ends.sender.end_leaving(|filter| filter == FU.index);
        assert_eq!(ends.next(), None, "the stream was ended for it");
        assert!(ends.receiver.is_ended(&ends.link));
        assert_eq!(ends.sender.poll_cut(), None);
    }

    /// Given a filter unit that answers for an event that it does not have, then that is no answer: the
    /// event goes out, and no more are given out than the window takes.
    #[test]
    fn an_answer_ahead_of_its_event_is_left_out() {
        let mut ends = Ends::new(8);
        let answer = |ends: &mut Ends, messages: &[BuilderMessage]| {
            for message in messages {
                let envelope = Envelope {
                    sender: FU,
                    epoch: 1,
                    sequence: 0,
                    message: message.clone(),
                };
                ends.link.send(&Outgoing { to: BU, envelope }).unwrap();
            }
            ends.link.flush();
            loop {
                if let Some(came) = ends.sender.take() {
                    return came.message;
                }
            }
        };
        let done = |triggers: &[u64]| BuilderMessage::EventDone {
            triggers: triggers.iter().copied().map(TriggerNumber).collect(),
        };
        let mut event = ends.event(1, &[5]);
        ends.sender.push(FU.index, &mut event);
        let first = ends.next().unwrap();
        free_event(&mut ends.link, &first);
        for trigger in 2..=EVENTS as u64 {
            let mut event = ends.event(trigger, &[5]);
            ends.sender.push(FU.index, &mut event);
        }
        let early = [done(&[3]), done(&[1, 2])];
        assert_eq!(answer(&mut ends, &early), done(&[1]));
        let mut event = ends.event(7, &[5]);
        ends.sender.push(FU.index, &mut event);
        for trigger in 2..=EVENTS as u64 + 1 {
            let came = ends.next().unwrap();
            assert_eq!(came.trigger, TriggerNumber(trigger));
            free_event(&mut ends.link, &came);
            assert_eq!(answer(&mut ends, &[done(&[trigger])]), done(&[trigger]));
        }
    }

    #[test]
    fn damaged_payload_ends_the_stream_and_its_event() {
        let mut ends = Ends::new(8);
        let mut event = ends.event(1, &[5, 7]);
        event.fragments[1].crc ^= 1;
        ends.sender.push(FU.index, &mut event);
        assert_eq!(ends.next(), None);
        assert_eq!(ends.link.counts().payloads_damaged, 1);
        assert!(ends.receiver.is_all_empty());
        assert_eq!(ends.free_pages(), 8);
    }

    #[test]
    fn messages_that_make_no_event_end_the_stream() {
        let unasked = |ends: &mut Ends| {
            let mut event = ends.event(1, &[5]);
            event.fragments[0].source = SourceId(11);
            ends.sender.push(FU.index, &mut event);
        };
        let twice = |ends: &mut Ends| {
            let mut event = ends.event(1, &[5]);
            let again = event.fragments[0].clone();
            event.fragments.push(again);
            ends.sender.push(FU.index, &mut event);
        };
        for nonsense in [unasked as fn(&mut Ends), twice] {
            let mut ends = Ends::new(8);
            nonsense(&mut ends);
            assert_eq!(ends.next(), None);
            assert_eq!(ends.receiver.refused(), 1);
            assert_eq!(ends.free_pages(), 8);
        }
    }
}
