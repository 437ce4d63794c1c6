use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use arrayvec::ArrayVec;
use livetime_shm::{HugePages, PageIndex, PoolConfig};
use livetime_wire::message_datagram::PAYLOAD_AT;
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{SourceId, TriggerNumber};
use proptest::prelude::*;

use super::*;

const PAGE_WORDS: usize = 512;
const RU: UnitId = UnitId::readout(0);
const BU: UnitId = UnitId::builder(1);
const BUFFER_BYTES: usize = 1 << 20;

fn pool(pages: u32) -> PagePool {
    PagePool::create(&PoolConfig {
        pages,
        page_bytes: 4 * PAGE_WORDS as u32,
        huge_pages: HugePages::Never,
    })
    .unwrap()
}

fn sockets() -> (UdpSocket, UdpSocket) {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (near, far) = (bind(), bind());
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    (near, far)
}

/// What is between two links here: what one sends is taken out, and put in again as the test likes.
struct Wire {
    out: UdpSocket,
    back: UdpSocket,
}

impl Wire {
    /// All datagrams that were sent and not taken out yet. On the loopback a datagram is there when
    /// the call that sends it returns.
    fn carried(&self) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        while let Ok(length) = self.out.recv(&mut bytes) {
            datagrams.push(bytes[..length].to_vec());
        }
        datagrams
    }

    fn deliver(&self, datagram: &[u8]) {
        assert_eq!(self.back.send(datagram).unwrap(), datagram.len());
    }
}

/// A readout unit's link with its pool, a builder unit's link with so many pages, and what is between
/// them.
struct Bench {
    from: PagePool,
    readout: UdpFrameLink,
    builder: UdpFrameLink,
    wire: Wire,
    pages: u32,
    /// Pages that were named and not given back yet.
    named: usize,
}

impl Bench {
    fn new(pages: u32) -> Self {
        let (near, out) = sockets();
        let (back, far) = sockets();
        out.set_nonblocking(true).unwrap();
        let from = pool(64);
        let mut readout = UdpFrameLink::new(Some(from.clone()), None, BUFFER_BYTES);
        let received = ReceivePages::new(pool(pages), 7);
        let mut builder = UdpFrameLink::new(None, Some(received), BUFFER_BYTES);
        readout.add(BU, near).unwrap();
        builder.add(RU, far).unwrap();
        let wire = Wire { out, back };
        Self {
            from,
            readout,
            builder,
            wire,
            pages,
            named: 0,
        }
    }

    /// Sends messages; the datagrams that go out.
    fn sent(&mut self, messages: &[Envelope]) -> Vec<Vec<u8>> {
        for message in messages {
            self.readout.try_send(BU, &message.to_words()).unwrap();
        }
        self.readout.flush();
        assert!(self.readout.is_flushed());
        self.wire.carried()
    }

    fn deliver(&self, datagrams: &[Vec<u8>]) {
        for datagram in datagrams {
            self.wire.deliver(datagram);
        }
    }

    /// All messages that have come. No page is lost on the way.
    fn received(&mut self) -> Vec<Envelope> {
        let mut messages = Vec::new();
        while let Some(words) = self.builder.poll() {
            let envelope = Envelope::parse(words).unwrap();
            self.builder.consume();
            self.named += fragment_of(&envelope).map_or(0, |fragment| fragment.pages.len());
            self.assert_conserved();
            messages.push(envelope);
        }
        self.assert_conserved();
        messages
    }

    /// Pages are free, set aside for what comes, of fragments that are not whole, or named.
    fn assert_conserved(&self) {
        let free = self.builder.pages.as_ref().unwrap().free();
        let set_aside = self.builder.receiving.pages();
        let peers = self.builder.peers.iter();
        let partial: usize = peers.map(|peer| peer.partials.pages()).sum();
        let all = free + set_aside + partial + self.named;
        let parts = (free, set_aside, partial, self.named);
        assert_eq!(all, self.pages as usize, "{parts:?}");
    }

    /// The words of a fragment, whose pages are given back.
    fn words_of(&mut self, envelope: &Envelope) -> Vec<u32> {
        let fragment = fragment_of(envelope).expect("a fragment");
        assert_eq!(fragment.pool, 7, "the receiver's pool");
        let pages = self.builder.pages_mut().unwrap();
        let mut words = Vec::new();
        for page in &fragment.pages {
            words.extend_from_slice(&pages.pool().read(PageIndex(*page)).unwrap());
            pages.give_back(*page).unwrap();
            self.named -= 1;
        }
        words.truncate(fragment.words as usize);
        let crc = crc32c(&words);
        assert_eq!(fragment.known_crc().unwrap_or(crc), crc);
        words
    }

    fn counts(&self) -> UdpFrameCounts {
        *self.builder.counts()
    }

    /// A fragment in pages of the pool, as a message.
    fn fragment(&self, first_page: u32, trigger: u64, words: usize) -> Envelope {
        let data = data_of(trigger, words);
        let mut pages = ArrayVec::new();
        for (page, part) in (first_page..).zip(data.chunks(PAGE_WORDS)) {
            let mut writer = self.from.write(PageIndex(page)).unwrap();
            writer[..part.len()].copy_from_slice(part);
            pages.push(writer.finish().0);
        }
        let fragment = FragmentDescriptor {
            source: SourceId(3),
            pool: 0,
            words: words as u32,
            status: FragmentStatus::GOOD,
            crc: crc32c(&data),
            pages,
        };
        let trigger = TriggerNumber(trigger);
        envelope(BuilderMessage::FragmentData { trigger, fragment })
    }
}

fn data_of(trigger: u64, words: usize) -> Vec<u32> {
    (0..words as u32).map(|n| n ^ trigger as u32).collect()
}

fn envelope(message: BuilderMessage) -> Envelope {
    Envelope {
        sender: RU,
        epoch: 1,
        sequence: 5,
        message,
    }
}

/// A message of 4 + 1 + 2 x 32 words: not many of these go into one datagram.
fn long_message() -> Envelope {
    let triggers = (1..=32).map(TriggerNumber).collect();
    envelope(BuilderMessage::Release { triggers })
}

#[test]
fn messages_go_together_and_come_in_order_with_payload_in_pages() {
    let mut bench = Bench::new(64);
    let alive = envelope(BuilderMessage::Alive);
    let fragments = [
        bench.fragment(0, 1, 1),
        bench.fragment(1, 2, PAGE_WORDS),
        bench.fragment(2, 3, 2 * PAGE_WORDS + 17),
    ];
    let mut messages = vec![alive.clone(), long_message(), alive.clone()];
    messages.extend(fragments.clone());
    messages.extend(vec![long_message(); 9]);
    messages.push(alive);
    let datagrams = bench.sent(&messages);
    // Three messages, five pages, and what does not go into one frame of the network.
    assert_eq!(datagrams.len(), 1 + 5 + 2);
    for datagram in datagrams.iter().filter(|d| d.len() < 4 * PAGE_WORDS) {
        assert!(datagram.len() <= 1472, "{}", datagram.len());
    }
    bench.deliver(&datagrams);
    let came = bench.received();
    assert_eq!(came.len(), messages.len());
    for (came, sent) in came.iter().zip(&messages) {
        match fragment_of(sent) {
            None => assert_eq!(came, sent),
            Some(fragment) => {
                let BuilderMessage::FragmentData { trigger, .. } = came.message else {
                    panic!("{came:?}");
                };
                let words = bench.words_of(came);
                assert_eq!(words, data_of(trigger.0, fragment.words as usize));
            }
        }
    }
    bench.assert_conserved();
    for page in 0..5 {
        let freed = bench.from.release(PageIndex(page));
        freed.expect("nobody holds it any more");
    }
    let (sent, came) = (*bench.readout.counts(), bench.counts());
    let bytes = 4 * (1 + PAGE_WORDS + 2 * PAGE_WORDS + 17) as u64;
    assert_eq!(
        (sent.payload_bytes_sent, came.payload_bytes_received),
        (bytes, bytes)
    );
    assert_eq!((sent.frames_sent, came.frames_received), (16, 16));
    assert_eq!((sent.datagrams_sent, came.datagrams_received), (8, 8));
    assert_eq!((sent.sends, came.receives), (1, 1), "a batch");
    assert_eq!((came.datagrams_lost, came.datagrams_bad), (0, 0));
    assert!(came.receive_buffer_bytes > 0);
}

/// Of links that are trusted nobody has computed a CRC: there is nothing to compare, and fragments of
/// other links between them are guarded as ever.
#[test]
fn fragments_without_a_crc_are_taken_as_they_come() {
    let mut bench = Bench::new(64);
    let sizes = [100, 2 * PAGE_WORDS + 1, PAGE_WORDS + 7, PAGE_WORDS + 9];
    let mut first_page = 0;
    let mut messages = Vec::new();
    for (trigger, words) in (1..).zip(sizes) {
        let mut message = bench.fragment(first_page, trigger, words);
        first_page += words.div_ceil(PAGE_WORDS) as u32;
        if let BuilderMessage::FragmentData { fragment, .. } = &mut message.message {
            fragment.crc = match trigger {
                1 | 2 => 0,
                3 => fragment.crc ^ 1,
                _ => fragment.crc,
            };
        }
        messages.push(message);
    }
    let datagrams = bench.sent(&messages);
    bench.deliver(&datagrams);
    let came = bench.received();
    assert_eq!(came.len(), 3);
    for (came, trigger) in came.iter().zip([1, 2, 4]) {
        let words = bench.words_of(came);
        assert_eq!(words, data_of(trigger, sizes[trigger as usize - 1]));
    }
    assert_eq!(bench.counts().payloads_damaged, 1);
}

#[test]
fn lost_repeated_and_late_datagrams_are_told_apart() {
    let mut bench = Bench::new(64);
    let messages = vec![long_message(); 50];
    let datagrams = bench.sent(&messages);
    assert_eq!(datagrams.len(), 10);
    // 2 and 7 are lost, 3 comes twice, 5 behind 6.
    let order = [0, 1, 3, 3, 4, 6, 5, 8, 9];
    for at in order {
        bench.wire.deliver(&datagrams[at]);
    }
    assert_eq!(bench.received().len(), 5 * 8, "what came once");
    let counts = bench.counts();
    assert_eq!(counts.datagrams_received, order.len() as u64);
    assert_eq!(counts.datagrams_lost, 2);
    assert_eq!((counts.datagrams_repeated, counts.datagrams_late), (1, 1));
    assert_eq!(counts.datagrams_bad, 0);
}

#[test]
fn a_fragment_that_is_sent_again_completes_what_is_here() {
    let mut bench = Bench::new(64);
    let message = bench.fragment(0, 9, 3 * PAGE_WORDS);
    let first = bench.sent(std::slice::from_ref(&message));
    bench.deliver(&[first[2].clone(), first[0].clone()]);
    assert_eq!(bench.received(), []);
    let again = bench.sent(&[message]);
    bench.deliver(&again);
    let came = bench.received();
    assert_eq!(came.len(), 1, "once");
    assert_eq!(bench.words_of(&came[0]), data_of(9, 3 * PAGE_WORDS));
    let counts = bench.counts();
    assert_eq!(counts.pieces_repeated, 1, "the first one");
    // The piece that was lost, and the late one.
    assert_eq!((counts.datagrams_lost, counts.datagrams_late), (1, 1));
    // What comes behind the whole fragment is another, which will not be whole.
    assert_eq!(bench.builder.peers[0].partials.pages(), 1);
    bench.builder.lose(RU);
    assert_eq!(bench.counts().fragments_given_up, 1);
    bench.assert_conserved();
}

#[test]
fn damaged_cut_and_foreign_datagrams_are_dropped_and_counted() {
    let mut bench = Bench::new(64);
    let alive = envelope(BuilderMessage::Alive);
    let one_page = bench.fragment(0, 1, 100);
    let damaged: Vec<Vec<u8>> = (0..6)
        .map(|case| {
            let mut datagrams = bench.sent(std::slice::from_ref(&one_page));
            let mut datagram = datagrams.remove(0);
            match case {
                0 => datagram.truncate(4 * PAYLOAD_AT + 7),
                1 => datagram.truncate(4 * PAYLOAD_AT - 8),
                2 => datagram[0] ^= 1,
                3 => datagram[4 * HEAD_WORDS + 9] ^= 1,
                4 => datagram.extend([0; 4 * PAGE_WORDS]),
                _ => datagram = b"GET / HTTP/1.1\r\n\r\n..".to_vec(),
            }
            datagram
        })
        .collect();
    bench.deliver(&damaged);
    assert_eq!(bench.received(), []);
    assert_eq!(bench.counts().datagrams_bad, 6);

    let mut payload = bench.sent(std::slice::from_ref(&one_page));
    payload[0][4 * PAYLOAD_AT + 5] ^= 1;
    bench.deliver(&payload);
    let mut gone = one_page.clone();
    if let BuilderMessage::FragmentData { fragment, .. } = &mut gone.message {
        fragment.pages[0] = 40;
    }
    let without_payload = bench.sent(&[gone]);
    bench.deliver(&without_payload);
    assert_eq!(bench.received(), []);
    assert_eq!(bench.counts().payloads_damaged, 2);

    let stranger = Envelope {
        sender: UnitId::readout(4),
        ..one_page
    };
    let mut datagrams = bench.sent(&[
        stranger.clone(),
        Envelope {
            sender: BU,
            ..alive.clone()
        },
    ]);
    datagrams.extend(bench.sent(std::slice::from_ref(&alive)));
    bench.deliver(&datagrams);
    assert_eq!(bench.received(), [alive]);
    assert_eq!(bench.counts().strangers, 2);
    // All numbers that were refused are missing, but what came behind them.
    assert_eq!(bench.counts().datagrams_lost, 6);
}

/// Given that a fragment of no words names pages of its sender, then it names none at the receiver,
/// where the same numbers are pages of another fragment.
#[test]
fn a_fragment_of_no_words_names_no_page() {
    let mut bench = Bench::new(8);
    let mut empty = bench.fragment(0, 2, 0);
    if let BuilderMessage::FragmentData { fragment, .. } = &mut empty.message {
        fragment.pages.extend([0, 1]);
    }
    let datagrams = bench.sent(&[empty]);
    bench.deliver(&datagrams);
    let [came] = &bench.received()[..] else {
        panic!("one message was sent");
    };
    let fragment = fragment_of(came).unwrap();
    assert_eq!((fragment.pool, &fragment.pages[..]), (7, &[][..]));
}

#[test]
fn pieces_that_do_not_fit_their_fragment_are_refused() {
    let mut bench = Bench::new(64);
    let mut short = bench.fragment(0, 1, 2 * PAGE_WORDS);
    if let BuilderMessage::FragmentData { fragment, .. } = &mut short.message {
        // As of a sender with smaller pages.
        fragment.words = 2 * PAGE_WORDS as u32 - 1;
        fragment.pages.truncate(2);
    }
    let mut datagrams = bench.sent(&[short]);
    let Some(head) = datagrams.first().map(|d| d[..4 * PAYLOAD_AT].to_vec()) else {
        panic!("two datagrams");
    };
    assert!(head.len() < datagrams[0].len());
    bench.deliver(&datagrams);
    assert_eq!(bench.received(), [], "its CRC is another");
    assert_eq!(bench.counts().payloads_damaged, 1);
    let alive = envelope(BuilderMessage::Alive);
    datagrams = bench.sent(&[alive]);
    let mut words: Vec<u32> = (datagrams[0].chunks(4))
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    // A message of another kind with payload behind it.
    let head = DatagramHead {
        number: 2,
        messages: 1,
        message_words: words.len() - HEAD_WORDS,
        piece: Some(Piece {
            index: 0,
            count: 1,
            words: 3,
        }),
    };
    head.seal(&mut words);
    words.resize(PAYLOAD_AT + 3, 0);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bench.deliver(&[bytes]);
    assert_eq!(bench.received(), []);
    assert_eq!(bench.counts().datagrams_bad, 1);
}

#[test]
fn when_the_table_is_full_the_oldest_fragment_is_given_up() {
    let mut bench = Bench::new(128);
    let fragments: Vec<Envelope> = (0..=PARTIAL_FRAGMENTS_MAX as u32)
        .map(|n| bench.fragment(2 * n, n.into(), 2 * PAGE_WORDS))
        .collect();
    let datagrams: Vec<Vec<Vec<u8>>> = (fragments.iter())
        .map(|fragment| bench.sent(std::slice::from_ref(fragment)))
        .collect();
    for pieces in &datagrams {
        bench.wire.deliver(&pieces[0]);
    }
    assert_eq!(bench.received(), []);
    assert_eq!(bench.counts().fragments_given_up, 1);
    for pieces in &datagrams {
        bench.wire.deliver(&pieces[1]);
    }
    // The second piece of the first is a beginning again, for which the second gives way; and so on
    // to the last, whose beginning has gone by then.
    let came = bench.received();
    let whole: Vec<u64> = came.iter().map(|message| trigger_of(message).0).collect();
    let given_up = bench.counts().fragments_given_up;
    assert_eq!(
        given_up as usize + whole.len(),
        fragments.len() + 1,
        "{whole:?}"
    );
    for message in &came {
        bench.words_of(message);
    }
    bench.assert_conserved();
}

fn trigger_of(envelope: &Envelope) -> TriggerNumber {
    match &envelope.message {
        BuilderMessage::FragmentData { trigger, .. } => *trigger,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_free_pages_datagrams_wait_and_what_is_not_whole_gives_way() {
    let mut bench = Bench::new(2);
    let one_page = bench.fragment(0, 1, 10);
    let two_pages = bench.fragment(1, 2, 2 * PAGE_WORDS);
    let wide = bench.fragment(3, 3, 10);
    let mut datagrams = bench.sent(&[two_pages]);
    datagrams.truncate(1);
    datagrams.extend(bench.sent(&[one_page, wide]));
    bench.deliver(&datagrams);
    let first = bench.received();
    assert_eq!(first.len(), 2, "the piece gave way to the second");
    assert_eq!(bench.counts().fragments_given_up, 1);
    let more = bench.fragment(4, 4, 10);
    let more = bench.sent(&[more]);
    bench.deliver(&more);
    let waited = bench.counts().waits_for_pages;
    assert_eq!(bench.received(), [], "all pages are named");
    assert!(bench.counts().waits_for_pages > waited);
    bench.words_of(&first[0]);
    let second = bench.received();
    assert_eq!(second.len(), 1, "it has waited in the socket");
    for message in [&first[1], &second[0]] {
        bench.words_of(message);
    }
    bench.assert_conserved();
}

#[test]
fn what_the_kernel_drops_is_lost_and_told_by_both_counts() {
    let mut bench = Bench::new(64);
    let (near, far) = sockets();
    // The least that the system gives.
    bench.builder.buffer_bytes = 1;
    bench.builder.add(RU, far).unwrap();
    bench.readout.add(BU, near).unwrap();
    let message = bench.fragment(0, 1, PAGE_WORDS);
    for _ in 0..100 {
        bench.readout.try_send(BU, &message.to_words()).unwrap();
        bench.readout.flush();
    }
    let came = bench.received();
    assert!((1..100).contains(&came.len()), "{}", came.len());
    for message in &came {
        bench.words_of(message);
    }
    bench.readout.try_send(BU, &message.to_words()).unwrap();
    bench.readout.flush();
    let last = bench.received();
    bench.words_of(&last[0]);
    let counts = bench.counts();
    assert_eq!(counts.kernel_drops, 100 - came.len() as u64);
    assert_eq!(counts.datagrams_lost, counts.kernel_drops);
}

#[test]
fn a_link_that_the_kernel_takes_no_more_of_is_full_and_loses_nothing() {
    // Sockets of this kind have a short queue and say when it is full.
    let (near, far) = UnixDatagram::pair().unwrap();
    let from = pool(4);
    let mut readout = UdpFrameLink::new(Some(from), None, BUFFER_BYTES);
    readout
        .add(BU, UdpSocket::from(OwnedFd::from(near)))
        .unwrap();
    let alive = envelope(BuilderMessage::Alive).to_words();
    let mut taken = 0_u64;
    while readout.try_send(BU, &alive).is_ok() {
        readout.flush();
        taken += 1;
        assert!(taken < 100_000, "no back-pressure");
    }
    assert_eq!(readout.try_send(BU, &alive), Err(LinkFull { to: BU }));
    assert!(readout.counts().sends_blocked > 0);
    far.set_nonblocking(true).unwrap();
    let mut bytes = [0; 2048];
    let mut messages = 0;
    let mut next = 0;
    while !readout.is_flushed() || messages < taken {
        let length = far.recv(&mut bytes).unwrap();
        let words: Vec<u32> = (bytes[..length].chunks(4))
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let (head, _, _) = DatagramHead::parse_whole(&words).unwrap();
        assert_eq!(head.number, next, "in order");
        next += 1;
        messages += head.messages as u64;
        readout.flush();
    }
    assert_eq!((messages, readout.counts().frames_sent), (taken, taken));
    assert_eq!(readout.counts().datagrams_unsent, 0);
}

#[test]
fn a_peer_that_is_gone_is_no_obstacle_and_a_new_life_begins_anew() {
    let mut bench = Bench::new(64);
    let alive = envelope(BuilderMessage::Alive);
    let (near, far) = sockets();
    bench.readout.add(BU, near).unwrap();
    drop(far);
    for _ in 0..100 {
        bench.readout.try_send(BU, &alive.to_words()).unwrap();
        bench.readout.flush();
    }
    assert!(bench.readout.is_flushed());
    assert!(bench.readout.counts().send_errors > 0, "nobody listens");
    bench.readout.lose(BU);
    assert_eq!(
        bench.readout.try_send(BU, &alive.to_words()),
        Ok(()),
        "dropped"
    );
    let (near, far) = sockets();
    bench.readout.add(BU, near).unwrap();
    bench.builder.add(RU, far).unwrap();
    bench.readout.try_send(BU, &alive.to_words()).unwrap();
    bench.readout.flush();
    assert_eq!(bench.received(), [alive]);
    assert_eq!(bench.counts().datagrams_lost, 0);
}

#[test]
fn a_message_is_shown_until_it_is_consumed() {
    let mut bench = Bench::new(64);
    let alive = envelope(BuilderMessage::Alive);
    let datagrams = bench.sent(&[alive.clone(), long_message()]);
    bench.deliver(&datagrams);
    for message in [alive, long_message()] {
        for _ in 0..2 {
            assert_eq!(bench.builder.poll(), Some(&message.to_words()[..]));
        }
        bench.builder.consume();
    }
    assert_eq!(bench.builder.poll(), None);
}

/// What becomes of a datagram on its way.
#[derive(Debug, Clone)]
enum Fate {
    Arrives,
    Lost,
    Repeated,
    Later(usize),
    Damaged(usize),
    Cut(usize),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Arrives),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Repeated),
        1 => (1usize..20).prop_map(Fate::Later),
        1 => (0usize..4000).prop_map(Fate::Damaged),
        1 => (0usize..4000).prop_map(Fate::Cut),
    ]
}

impl Bench {
    /// Delivers datagrams, each with its fate.
    fn deliver_with(&self, datagrams: Vec<Vec<u8>>, fates: &[Fate]) {
        let mut order: Vec<(usize, Vec<u8>)> = Vec::new();
        for ((at, mut datagram), fate) in datagrams.into_iter().enumerate().zip(fates) {
            let length = datagram.len();
            match *fate {
                Fate::Arrives => order.push((at, datagram)),
                Fate::Lost => {}
                Fate::Repeated => order.extend([(at, datagram.clone()), (at, datagram)]),
                Fate::Later(by) => order.push((at + by, datagram)),
                Fate::Damaged(byte) => {
                    datagram[byte % length] ^= 1;
                    order.push((at, datagram));
                }
                Fate::Cut(byte) => {
                    datagram.truncate(byte % length);
                    order.push((at, datagram));
                }
            }
        }
        order.sort_by_key(|(at, _)| *at);
        for (_, datagram) in &order {
            self.wire.deliver(datagram);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever becomes of datagrams, what comes is what was sent, no page is lost, and asking again
    /// brings everything once the network lets it: at once, or behind a piece that came damaged.
    #[test]
    fn whatever_becomes_of_datagrams_what_comes_is_whole(
        sizes in prop::collection::vec(1usize..4 * PAGE_WORDS, 1..8),
        rounds in prop::collection::vec(prop::collection::vec(fate(), 32), 0..4),
    ) {
        let mut bench = Bench::new(128);
        let mut first_page = 0;
        let mut missing: Vec<Envelope> = Vec::new();
        for (trigger, words) in (1..).zip(&sizes) {
            missing.push(bench.fragment(first_page, trigger, *words));
            first_page += words.div_ceil(PAGE_WORDS) as u32;
        }
        let quiet = vec![Fate::Arrives; 32];
        for fates in rounds.iter().chain([&quiet, &quiet]) {
            let datagrams = bench.sent(&missing);
            bench.deliver_with(datagrams, fates);
            for message in bench.received() {
                let trigger = trigger_of(&message);
                let words = sizes[trigger.0 as usize - 1];
                prop_assert_eq!(bench.words_of(&message), data_of(trigger.0, words));
                missing.retain(|sent| trigger_of(sent) != trigger);
            }
        }
        prop_assert_eq!(missing, []);
        bench.assert_conserved();
    }
}
