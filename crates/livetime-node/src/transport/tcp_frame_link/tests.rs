use std::io::Write;
use std::net::TcpListener;

use arrayvec::ArrayVec;
use livetime_shm::{HugePages, PageIndex, PoolConfig};
use livetime_wire::crc::crc32c;
use livetime_wire::message::{BuilderMessage, FragmentDescriptor};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{SourceId, TriggerNumber};
use proptest::prelude::*;

use super::*;

const PAGE_WORDS: usize = 512;
const RU: UnitId = UnitId::readout(0);
const BU: UnitId = UnitId::builder(1);

fn pool(pages: u32) -> PagePool {
    PagePool::create(&PoolConfig {
        pages,
        page_bytes: 4 * PAGE_WORDS as u32,
        huge_pages: HugePages::Never,
    })
    .unwrap()
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// A readout unit's link with its pool, a builder unit's link with so many pages.
fn pair(pages: u32) -> (PagePool, TcpFrameLink, TcpFrameLink) {
    let (near, far) = streams();
    let sent_from = pool(8);
    let mut readout = TcpFrameLink::new(Some(sent_from.clone()), None);
    let mut builder = TcpFrameLink::new(None, Some(ReceivePages::new(pool(pages), 7)));
    let name = readout.add(BU, near, Some("reno")).unwrap();
    assert_eq!(name, "reno", "set and recorded");
    assert!(!builder.add(RU, far, None).unwrap().is_empty());
    (sent_from, readout, builder)
}

/// A fragment in pages of the pool, as a message.
fn fragment(pool: &PagePool, first_page: u32, trigger: u64, words: usize) -> Envelope {
    let data: Vec<u32> = (0..words as u32).map(|n| n ^ trigger as u32).collect();
    let mut pages = ArrayVec::new();
    for (page, part) in (first_page..).zip(data.chunks(PAGE_WORDS)) {
        let mut writer = pool.write(PageIndex(page)).unwrap();
        writer[..part.len()].copy_from_slice(part);
        pages.push(writer.finish().0);
    }
    Envelope {
        sender: RU,
        epoch: 1,
        sequence: trigger as u32,
        message: BuilderMessage::FragmentData {
            trigger: TriggerNumber(trigger),
            fragment: FragmentDescriptor {
                source: SourceId(3),
                pool: 0,
                words: words as u32,
                status: FragmentStatus::GOOD,
                crc: crc32c(&data),
                pages,
            },
        },
    }
}

/// Polls until a message comes; both ends are driven, as their workers would.
fn receive(from: &mut TcpFrameLink, to: &mut TcpFrameLink) -> Envelope {
    for _ in 0..1_000_000 {
        from.flush();
        if let Some(words) = to.poll() {
            let envelope = Envelope::parse(words).unwrap();
            to.consume();
            return envelope;
        }
    }
    panic!("nothing comes");
}

fn take_pages(link: &mut TcpFrameLink, envelope: &Envelope) -> Vec<u32> {
    let BuilderMessage::FragmentData { fragment, .. } = &envelope.message else {
        panic!("{envelope:?}");
    };
    assert_eq!(fragment.pool, 7, "the receiver's pool");
    let pages = link.pages_mut().unwrap();
    let mut words = Vec::new();
    for page in &fragment.pages {
        words.extend_from_slice(&pages.pool().read(PageIndex(*page)).unwrap());
        pages.give_back(*page).unwrap();
    }
    words.truncate(fragment.words as usize);
    let crc = crc32c(&words);
    assert_eq!(fragment.known_crc().unwrap_or(crc), crc);
    words
}

/// The message with another CRC in its descriptor.
fn with_crc(mut envelope: Envelope, crc: impl Fn(u32) -> u32) -> Envelope {
    if let BuilderMessage::FragmentData { fragment, .. } = &mut envelope.message {
        fragment.crc = crc(fragment.crc);
    }
    envelope
}

#[test]
fn messages_and_payload_come_as_they_were_sent() {
    let (from, mut readout, mut builder) = pair(8);
    let request = Envelope {
        sender: BU,
        epoch: 1,
        sequence: 0,
        message: BuilderMessage::FragmentRequest {
            triggers: [TriggerNumber(4)].into_iter().collect(),
        },
    };
    builder.try_send(RU, &request.to_words()).unwrap();
    assert_eq!(receive(&mut builder, &mut readout), request);
    for (trigger, words) in [(1, 1), (2, PAGE_WORDS), (3, 2 * PAGE_WORDS + 17)] {
        let sent = fragment(&from, 0, trigger, words);
        readout.try_send(BU, &sent.to_words()).unwrap();
        let came = receive(&mut readout, &mut builder);
        assert_eq!((came.sender, came.sequence), (RU, trigger as u32));
        let data = take_pages(&mut builder, &came);
        let expected: Vec<u32> = (0..words as u32).map(|n| n ^ trigger as u32).collect();
        assert_eq!(data, expected);
        for page in 0..words.div_ceil(PAGE_WORDS) as u32 {
            from.release(PageIndex(page))
                .expect("nobody holds it any more");
        }
    }
    assert_eq!(builder.pages_mut().unwrap().free(), 8);
    let bytes = 4 * (1 + PAGE_WORDS + 2 * PAGE_WORDS + 17) as u64;
    assert_eq!(readout.counts().payload_bytes_sent, bytes);
    assert_eq!(builder.counts().payload_bytes_received, bytes);
}

#[test]
fn a_batch_like_the_last_one_takes_two_reads_and_a_smaller_one_is_whole_too() {
    let (from, mut readout, mut builder) = pair(8);
    let mut trigger = 0;
    let mut go_through = |messages: usize, words: usize| {
        let before = *builder.counts();
        for _ in 0..messages {
            trigger += 1;
            let sent = fragment(&from, trigger as u32 % 8, trigger, words);
            readout.try_send(BU, &sent.to_words()).unwrap();
        }
        // The whole batch is there before the other end looks.
        readout.flush();
        for n in 1..=messages as u64 {
            let came = receive(&mut readout, &mut builder);
            assert_eq!(u64::from(came.sequence), trigger - messages as u64 + n);
            let words = take_pages(&mut builder, &came);
            assert_eq!(words[0], came.sequence);
        }
        for page in 0..messages as u64 {
            let page = (trigger - page) % 8;
            from.release(PageIndex(page as u32)).unwrap();
        }
        let after = *builder.counts();
        let copied = after.payload_bytes_copied - before.payload_bytes_copied;
        (after.reads - before.reads, copied)
    };
    go_through(4, 100);
    go_through(4, 100);
    assert_eq!(go_through(4, 100), (2, 0), "messages, then payload");
    let (_, copied) = go_through(2, 100);
    assert!(copied > 0, "what came behind fewer messages");
    assert_eq!(go_through(2, 100).1, 0);
}

#[test]
fn without_free_pages_the_sender_is_stopped_and_nothing_is_lost() {
    let (from, mut readout, mut builder) = pair(1);
    let sent = fragment(&from, 0, 9, PAGE_WORDS);
    let words = sent.to_words();
    let mut taken = 0_u64;
    let mut held = None;
    // The kernel's buffers fill up, then the link.
    while readout.try_send(BU, &words).is_ok() {
        taken += 1;
        readout.flush();
        if held.is_none() {
            held = builder.poll().map(|words| Envelope::parse(words).unwrap());
            if held.is_some() {
                builder.consume();
            }
        } else {
            assert_eq!(builder.poll(), None, "the only page is taken");
        }
        assert!(taken < 1_000_000, "no back-pressure");
    }
    let full = readout.try_send(BU, &words);
    assert_eq!(full, Err(LinkFull { to: BU }));
    let mut next = held;
    for _ in 0..taken {
        let came = match next.take() {
            Some(came) => came,
            None => receive(&mut readout, &mut builder),
        };
        take_pages(&mut builder, &came);
    }
    assert!(readout.is_flushed());
    assert!(builder.counts().waits_for_pages > 0);
    assert_eq!(builder.counts().frames_received, taken);
}

#[test]
fn one_that_does_not_read_keeps_nothing_to_another_waiting() {
    const OTHER: UnitId = UnitId::builder(0);
    const FRAGMENTS: u32 = 600;
    let from = pool(2);
    let mut readout = TcpFrameLink::new(Some(from.clone()), None).with_room(FRAGMENTS.into(), 2);
    let [(near, far), (near_other, far_other)] = [streams(), streams()];
    // Some 2.4 MB do not fit into the kernel's buffers.
    setsockopt(&near, sockopt::SndBuf, &(64 << 10)).unwrap();
    readout.add(BU, near, None).unwrap();
    readout.add(OTHER, near_other, None).unwrap();
    let receiver = |stream| {
        let mut link = TcpFrameLink::new(None, Some(ReceivePages::new(pool(4), 7)));
        link.add(RU, stream, None).unwrap();
        link
    };
    let mut sent = fragment(&from, 0, 9, 2 * PAGE_WORDS);
    let mut fill = |readout: &mut TcpFrameLink| {
        for sequence in 0..FRAGMENTS {
            sent.sequence = sequence;
            assert_eq!(readout.try_send(BU, &sent.to_words()), Ok(()), "{sequence}");
            readout.flush();
        }
        assert!(!readout.is_flushed_to(BU));
        assert_eq!(readout.try_send(OTHER, &sent.to_words()), Ok(()));
    };
    fill(&mut readout);
    let mut other = receiver(far_other);
    let came = receive(&mut readout, &mut other);
    take_pages(&mut other, &came);

    let mut builder = receiver(far);
    for sequence in 0..FRAGMENTS {
        let came = receive(&mut readout, &mut builder);
        assert_eq!(came.sequence, sequence);
        take_pages(&mut builder, &came);
    }
    assert!(readout.is_flushed());

    // What waits for one that is gone holds no page, and its room is there for its next life.
    fill(&mut readout);
    readout.lose(BU);
    let (near, _far) = streams();
    setsockopt(&near, sockopt::SndBuf, &(64 << 10)).unwrap();
    readout.add(BU, near, None).unwrap();
    fill(&mut readout);
    readout.lose(BU);
    for _ in 0..2 {
        let came = receive(&mut readout, &mut other);
        take_pages(&mut other, &came);
    }
    for page in 0..2 {
        let released = from.release(PageIndex(page));
        released.expect("nobody holds it any more");
    }
}

#[test]
fn room_is_for_all_messages_and_their_pages() {
    let cases = [
        (1, 1, 1),
        (128, 1, 1),
        (129, 1, 2),
        (32, 16, 1),
        (33, 16, 2),
    ];
    for (messages, pages, batches) in cases {
        assert_eq!(
            batches_for(messages, pages),
            batches,
            "{messages} of {pages}"
        );
    }
    assert_eq!(batches_for(u64::MAX, 1), 64);
}

#[test]
fn a_stream_that_ends_or_breaks_is_closed_and_its_pages_are_free() {
    let (from, mut readout, mut builder) = pair(4);
    let sent = fragment(&from, 0, 5, 2 * PAGE_WORDS);
    readout.try_send(BU, &sent.to_words()).unwrap();
    // Only half of the frame comes before the end.
    let bytes = readout.peers[0].sending.take_bytes();
    let stream = readout.peers[0].stream.as_mut().unwrap();
    stream.write_all(&bytes[..bytes.len() * 3 / 4]).unwrap();
    drop(readout);
    for _ in 0..1_000_000 {
        assert_eq!(builder.poll(), None);
        if !builder.is_open(RU) {
            break;
        }
    }
    assert!(!builder.is_open(RU));
    assert_eq!(builder.pages_mut().unwrap().free(), 4);
    assert_eq!(builder.counts().streams_ended, 1);
    assert_eq!(builder.try_send(RU, &sent.to_words()), Ok(()), "dropped");
}

/// Whoever stood still has messages left of a stream in whose place another comes.
#[test]
fn what_nobody_took_of_a_stream_costs_no_page_when_another_takes_its_place() {
    let (sent_from, mut readout, mut builder) = pair(4);
    for trigger in 1..=3 {
        let sent = fragment(&sent_from, trigger as u32, trigger, PAGE_WORDS);
        readout
            .send(&Outgoing {
                to: BU,
                envelope: sent,
            })
            .unwrap();
    }
    let first = receive(&mut readout, &mut builder);
    assert!(builder.has_message(), "the others of the batch");
    take_pages(&mut builder, &first);
    let (near, far) = streams();
    builder.add(RU, far, None).unwrap();
    readout.add(BU, near, None).unwrap();
    assert_eq!(builder.pages_mut().unwrap().free(), 4);
    assert!(!builder.has_message());
}

#[test]
fn damaged_payload_is_dropped_and_damaged_frames_end_their_stream() {
    let (from, mut readout, mut builder) = pair(4);
    let sent = with_crc(fragment(&from, 0, 5, 100), |crc| crc ^ 1);
    readout.try_send(BU, &sent.to_words()).unwrap();
    let good = Envelope {
        sender: RU,
        epoch: 1,
        sequence: 6,
        message: BuilderMessage::Alive,
    };
    readout.try_send(BU, &good.to_words()).unwrap();
    assert_eq!(receive(&mut readout, &mut builder), good);
    assert_eq!(builder.counts().payloads_damaged, 1);
    assert_eq!(builder.pages_mut().unwrap().free(), 4);

    readout.try_send(BU, &good.to_words()).unwrap();
    let mut bytes = readout.peers[0].sending.take_bytes();
    bytes[4 * (HEAD_WORDS + 3)] ^= 1;
    let stream = readout.peers[0].stream.as_mut().unwrap();
    stream.write_all(&bytes).unwrap();
    for _ in 0..1_000_000 {
        if builder.poll().is_some() || !builder.is_open(RU) {
            break;
        }
    }
    assert!(!builder.is_open(RU), "nothing behind it can be believed");
}

/// Of links that are trusted nobody has computed a CRC: there is nothing to compare, and fragments of
/// other links between them are guarded as ever.
#[test]
fn fragments_without_a_crc_are_taken_as_they_come() {
    let (from, mut readout, mut builder) = pair(8);
    let unknown = |_| 0;
    let sent = [
        with_crc(fragment(&from, 0, 1, 100), unknown),
        with_crc(fragment(&from, 1, 2, 2 * PAGE_WORDS + 1), unknown),
        with_crc(fragment(&from, 4, 3, PAGE_WORDS + 7), |crc| crc ^ 1),
        fragment(&from, 6, 4, PAGE_WORDS + 9),
    ];
    for envelope in &sent {
        readout.try_send(BU, &envelope.to_words()).unwrap();
    }
    for trigger in [1, 2, 4] {
        let came = receive(&mut readout, &mut builder);
        assert_eq!(came.sequence, trigger);
        let words = take_pages(&mut builder, &came);
        assert!((0..).zip(&words).all(|(n, word)| n ^ trigger == *word));
    }
    assert_eq!(builder.counts().payloads_damaged, 1);
    assert_eq!(builder.pages_mut().unwrap().free(), 8);
}

/// Given that a fragment of no words names pages of its sender, then it names none at the receiver,
/// where the same numbers are pages of another fragment.
#[test]
fn a_fragment_of_no_words_names_no_page() {
    let (from, mut readout, mut builder) = pair(2);
    let first = fragment(&from, 0, 1, 2 * PAGE_WORDS);
    readout.try_send(BU, &first.to_words()).unwrap();
    let held = receive(&mut readout, &mut builder);
    let mut empty = fragment(&from, 2, 2, 0);
    if let BuilderMessage::FragmentData { fragment, .. } = &mut empty.message {
        fragment.pages.extend([0, 1]);
    }
    readout.try_send(BU, &empty.to_words()).unwrap();
    let came = receive(&mut readout, &mut builder);
    assert!(take_pages(&mut builder, &came).is_empty());
    assert_eq!(builder.pages_mut().unwrap().free(), 0, "both are held");
    assert_eq!(take_pages(&mut builder, &held).len(), 2 * PAGE_WORDS);
}

/// Many messages in one batch, of all sizes, through few pages: all come, in order.
#[test]
fn batches_of_mixed_messages_come_in_order_with_few_calls() {
    let (from, mut readout, mut builder) = pair(6);
    let sizes = [1, PAGE_WORDS, 7, 3 * PAGE_WORDS, PAGE_WORDS + 1];
    let mut expected = Vec::new();
    let mut sent = Vec::new();
    for trigger in 1..=60_u64 {
        let envelope = if trigger % 6 == 0 {
            Envelope {
                sender: RU,
                epoch: 1,
                sequence: trigger as u32,
                message: BuilderMessage::Alive,
            }
        } else if trigger <= 5 {
            // The first five fill the pool's pages with what the others send, too.
            let first = (0..trigger as usize - 1).map(|n| sizes[n].div_ceil(PAGE_WORDS));
            fragment(
                &from,
                first.sum::<usize>() as u32,
                trigger,
                sizes[trigger as usize - 1],
            )
        } else {
            let again = (trigger % 6 - 1) as usize;
            let mut envelope: Envelope = Envelope::clone(&sent[again]);
            envelope.sequence = trigger as u32;
            envelope
        };
        readout.try_send(BU, &envelope.to_words()).unwrap();
        expected.push(envelope.sequence);
        sent.push(envelope);
    }
    readout.flush();
    for sequence in expected {
        let came = receive(&mut readout, &mut builder);
        assert_eq!(came.sequence, sequence);
        if sequence % 6 != 0 {
            take_pages(&mut builder, &came);
        }
    }
    assert_eq!(builder.pages_mut().unwrap().free(), 6);
    assert_eq!(builder.counts().payloads_damaged, 0);
    assert_eq!(readout.counts().frames_sent, 60);
    let polls = builder.counts().reads + builder.counts().waits_for_pages;
    assert!(polls < 200, "{:?}", builder.counts());
}

/// A message without payload.
fn alive(sender: UnitId, sequence: u32) -> Envelope {
    Envelope {
        sender,
        epoch: 1,
        sequence,
        message: BuilderMessage::Alive,
    }
}

/// The bytes of a batch of these messages.
fn batch(link: &mut TcpFrameLink, to: UnitId, messages: &[Envelope]) -> Vec<u8> {
    for message in messages {
        link.try_send(to, &message.to_words()).unwrap();
    }
    link.peers[0].sending.take_bytes()
}

/// Flips bits of the first of two batches, perhaps with a right checksum again, and cuts the end off.
fn damage(bytes: &mut Vec<u8>, bits: &[(u16, u8)], is_sealed: bool, cut: u16) {
    let mut words: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let table_words = words[1] as usize;
    for (at, bit) in bits {
        let at = usize::from(*at) % (HEAD_WORDS + table_words + 20);
        words[at] ^= 1 << (bit % 32);
    }
    let table_words = words[1] as usize;
    if is_sealed && HEAD_WORDS + table_words <= words.len() {
        let (head, table) = words.split_at(HEAD_WORDS);
        let covered = [&head[..2], &table[..table_words]].concat();
        words[2] = crc32c(&covered);
    }
    *bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let left = bytes.len() - usize::from(cut) % bytes.len();
    bytes.truncate(left);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever bytes come, nothing panics, and every page that was set aside for them comes back.
    #[test]
    fn damaged_streams_cost_no_page(
        bits in prop::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        is_sealed in any::<bool>(),
        cut in prop_oneof![2 => Just(0), 1 => any::<u16>()],
    ) {
        let (from, mut readout, mut builder) = pair(6);
        let first = [fragment(&from, 0, 1, 100), alive(RU, 2), fragment(&from, 1, 3, PAGE_WORDS + 9)];
        let second = [alive(RU, 4), fragment(&from, 3, 5, 3)];
        let mut bytes = batch(&mut readout, BU, &first);
        bytes.extend(batch(&mut readout, BU, &second));
        damage(&mut bytes, &bits, is_sealed, cut);
        write(&mut readout, &bytes);
        readout.lose(BU);
        let mut came = 0;
        // Without pages for what is announced the end is never read: then the unit is lost.
        for _ in 0..1000 {
            while let Some(envelope) = builder.take() {
                came += 1;
                let fragment = fragment_of(&envelope);
                for page in fragment.iter().flat_map(|fragment| &fragment.pages) {
                    builder.pages_mut().unwrap().give_back(*page).unwrap();
                }
            }
            if !builder.is_open(RU) {
                break;
            }
        }
        builder.lose(RU);
        prop_assert_eq!(builder.pages_mut().unwrap().free(), 6);
        prop_assert!(came <= 5);
        if bits.is_empty() && cut == 0 {
            prop_assert_eq!(came, 5);
        }
    }
}

/// Writes to the first peer as it is.
fn write(link: &mut TcpFrameLink, bytes: &[u8]) {
    let stream = link.peers[0].stream.as_mut().unwrap();
    stream.write_all(bytes).unwrap();
}

/// Waits until bytes are at a link's end of a stream, however busy the machine is.
fn wait_for_bytes(link: &TcpFrameLink, peer: usize) {
    let stream = link.peers[peer].stream.as_ref().unwrap();
    let is_here = (0..100_000_000).any(|_| stream.peek(&mut [0]).is_ok());
    assert!(is_here, "bytes that were written do not come");
}

#[test]
fn batches_with_and_without_payload_come_whole_however_the_stream_cuts_them() {
    for cut in [1, 7, 12, 100, 1000, usize::MAX] {
        let (from, mut readout, mut builder) = pair(8);
        let few = fragment(&from, 0, 3, 10);
        let many = fragment(&from, 1, 4, 2 * PAGE_WORDS + 17);
        let none = fragment(&from, 4, 5, 0);
        let batches = [
            vec![alive(RU, 1), alive(RU, 2)],
            vec![few.clone(), many.clone(), alive(RU, 6)],
            vec![alive(RU, 7)],
            vec![none, alive(RU, 8)],
            vec![few, many],
        ];
        let mut bytes = Vec::new();
        for messages in &batches {
            bytes.extend(batch(&mut readout, BU, messages));
        }
        let mut came = Vec::new();
        let mut rest = bytes.as_slice();
        for _ in 0..1_000_000 {
            if !rest.is_empty() {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                write(&mut readout, now);
                wait_for_bytes(&builder, 0);
                rest = later;
            }
            while let Some(envelope) = builder.take() {
                came.push(envelope.sequence);
                if fragment_of(&envelope).is_some_and(|fragment| fragment.words > 0) {
                    let words = take_pages(&mut builder, &envelope);
                    let whole = (0..words.len() as u32).map(|n| n ^ envelope.sequence);
                    assert!(words.iter().copied().eq(whole));
                }
            }
            if came.len() == 10 {
                break;
            }
        }
        assert_eq!(came, [1, 2, 3, 4, 6, 7, 5, 8, 3, 4], "cut at {cut}");
        let counts = *builder.counts();
        assert_eq!(builder.pages_mut().unwrap().free(), 8);
        assert_eq!(counts.payloads_damaged, 0);
        // Behind messages alone payload was not expected.
        let payload = 4 * 2 * (10 + 2 * PAGE_WORDS as u64 + 17);
        assert_eq!(counts.payload_bytes_received, payload);
        match cut {
            1 => assert_eq!(counts.payload_bytes_copied, 0, "it came alone"),
            usize::MAX => assert!(counts.payload_bytes_copied > 0),
            _ => assert!(counts.payload_bytes_copied < payload),
        }
    }
}

#[test]
fn one_read_takes_all_messages_that_are_there_and_an_end_behind_them_loses_none() {
    let (_, mut readout, mut builder) = pair(1);
    let mut bytes = Vec::new();
    for sequence in 0..20 {
        bytes.extend(batch(&mut builder, RU, &[alive(BU, sequence)]));
    }
    write(&mut builder, &bytes);
    drop(builder);
    let mut reads = 0;
    for sequence in 0..20 {
        let came = (0..1_000_000).find_map(|_| readout.take());
        assert_eq!(came, Some(alive(BU, sequence)));
        if sequence == 0 {
            reads = readout.counts().reads;
        }
        assert_eq!(readout.has_message(), sequence < 19);
    }
    assert_eq!(readout.counts().reads, reads, "they came with the first");
    let ended = (0..1_000_000).any(|_| readout.take().is_none() && !readout.is_open(BU));
    assert!(ended);
}

#[test]
fn a_stream_that_was_empty_is_read_again_while_another_one_is_never_empty() {
    let (from, mut readout, mut builder) = pair(8);
    let other = UnitId::readout(1);
    let (near, mut far) = streams();
    builder.add(other, near, None).unwrap();
    let mut sent = fragment(&from, 0, 0, 1);
    let mut bytes = Vec::new();
    for sequence in 0..200 {
        sent.sequence = sequence;
        bytes.extend(batch(&mut readout, BU, std::slice::from_ref(&sent)));
    }
    let message = batch(&mut readout, BU, &[alive(other, 0)]);
    write(&mut readout, &bytes);
    let first = (0..1_000_000).find_map(|_| builder.take()).unwrap();
    take_pages(&mut builder, &first);
    far.write_all(&message).unwrap();
    wait_for_bytes(&builder, 1);
    for _ in 1..200 {
        let came = (0..1_000_000).find_map(|_| builder.take()).unwrap();
        if came.sender == other {
            return;
        }
        take_pages(&mut builder, &came);
    }
    panic!("not until the other stream was empty");
}

#[test]
fn a_receiver_that_takes_the_place_of_a_dead_one_waits_for_pages_still_read() {
    let pool = pool(3);
    for page in 0..2 {
        pool.write(PageIndex(page)).unwrap().finish();
    }
    let reader = pool.read(PageIndex(0)).unwrap();
    let mut pages = ReceivePages::new(pool, 0);
    assert_eq!(pages.free(), 2, "one was free, one is read by nobody");
    let taken: Vec<_> = std::iter::from_fn(|| pages.take()).collect();
    assert_eq!(taken.len(), 2);
    drop(reader);
    assert_eq!(pages.take().map(|writer| writer.page()), Some(PageIndex(0)));
}

#[test]
fn a_batch_is_the_golden_words() {
    let page = include_str!("../../../../../docs/formats/message-batch-v1.hex");
    let golden: Vec<u32> = page
        .lines()
        .filter_map(|line| line.split('#').next())
        .map(|word| u32::from_str_radix(word.trim(), 16).unwrap())
        .collect();
    let (from, mut readout, mut builder) = pair(4);
    let mut writer = from.write(PageIndex(0)).unwrap();
    writer[..3].copy_from_slice(&[0xA, 0xB, 0xC]);
    writer.finish();
    let alive = Envelope {
        sender: RU,
        epoch: 1,
        sequence: 5,
        message: BuilderMessage::Alive,
    };
    let fragment = Envelope {
        sequence: 6,
        message: BuilderMessage::FragmentData {
            trigger: TriggerNumber(9),
            fragment: FragmentDescriptor {
                source: SourceId(3),
                pool: 0,
                words: 3,
                status: FragmentStatus::GOOD,
                crc: crc32c(&[0xA, 0xB, 0xC]),
                pages: [0].into_iter().collect(),
            },
        },
        ..alive
    };
    for message in [&alive, &fragment] {
        readout.try_send(BU, &message.to_words()).unwrap();
    }
    let bytes = readout.peers[0].sending.take_bytes();
    let words: Vec<u32> = bytes
        .chunks(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words, golden);
    let stream = readout.peers[0].stream.as_mut().unwrap();
    stream.write_all(&bytes).unwrap();
    assert_eq!(receive(&mut readout, &mut builder), alive);
    let came = receive(&mut readout, &mut builder);
    assert_eq!(take_pages(&mut builder, &came), [0xA, 0xB, 0xC]);
}
