//! Both ends of links over sockets: every fragment handed over comes out or is named at one of them,
//! whatever becomes of the other.

use std::io::Write;
use std::net::Shutdown;

use livetime_readout::BlockEnd;
use livetime_shm::{PageIndex, PagePool};

use super::*;
use crate::builder_transport::SocketPair;
use crate::link::link_receiver::LinkReceiver;
use crate::link::test_link::{PAGE_WORDS, PAGES, config, pool};
use crate::link::transport::LinkTransport;
use crate::link::udp_link::UdpConfig;

/// Time of a run in which nothing needs to be waited for any more.
const LATE: RunNs = RunNs(60_000_000_000);

/// Both ends of a link, and the pages at the receiving one.
struct Ends {
    sender: LinkSender,
    receiver: LinkReceiver,
    pool: PagePool,
    /// First words of whole fragments, and whether the next page begins one.
    came: Vec<u32>,
    is_first: bool,
    /// Pages that are not returned yet.
    held: Vec<u32>,
}

fn udp() -> LinkTransport {
    LinkTransport::Udp {
        config: UdpConfig::default(),
        datagram_words: 40,
    }
}

impl Ends {
    fn new(transport: &LinkTransport) -> Self {
        let pair = SocketPair::connect(transport.socket().unwrap()).unwrap();
        Self::between(transport, pair)
    }

    fn between(transport: &LinkTransport, pair: SocketPair) -> Self {
        let pool = pool();
        let config = config();
        let [near, far] = pair.ends;
        let words_max = PAGE_WORDS as usize * 16;
        Self {
            sender: LinkSender::new(near, words_max, transport.datagram_words()).unwrap(),
            receiver: LinkReceiver::open(far, transport, config, pool.clone(), 0).unwrap(),
            pool,
            came: Vec::new(),
            is_first: true,
            held: Vec::new(),
        }
    }

    fn send(&mut self, now: RunNs, words: usize, value: u32) {
        self.sender.send(now, |fragment| {
            fragment.clear();
            fragment.resize(words, value);
        });
    }

    /// Polls both ends.
    fn poll(&mut self, now: RunNs) {
        self.sender.pump(now, true);
        self.receiver.poll(now, true);
    }

    /// Takes and returns the pages that are there, and those that were held.
    fn take(&mut self) {
        self.hold();
        for page in self.held.drain(..) {
            assert!(self.receiver.recycle(page));
        }
    }

    /// Takes the pages that are there.
    fn hold(&mut self) {
        while let Some(completed) = self.receiver.poll_completed() {
            let page = PageIndex(completed.page);
            self.pool
                .prepare_to_read(page, completed.len_words as usize);
            let reader = self.pool.read(page).unwrap();
            if self.is_first {
                self.came.push(reader[0]);
            }
            drop(reader);
            self.is_first = completed.block_end != BlockEnd::MoreToCome;
            if completed.block_end == BlockEnd::LinkDown {
                self.came.pop();
            }
            self.held.push(completed.page);
        }
    }

    /// Polls until the link can take a fragment, or until nothing is on it.
    fn poll_until(&mut self, now: RunNs, is_done: impl Fn(&LinkSender) -> bool) {
        while !is_done(&self.sender) {
            self.poll(now);
            self.take();
        }
    }

    /// Fragments that came, and those lost at either end.
    fn accounts(&mut self) -> (u64, u64) {
        self.take();
        let mut losses = *self.sender.losses();
        losses.merge(&self.receiver.losses());
        (self.came.len() as u64, losses.total())
    }

    fn lost(&self, cause: LossCause) -> u64 {
        self.receiver.losses().of(cause)
    }
}

fn is_drained(sender: &LinkSender) -> bool {
    sender.outstanding() == 0
}

#[test]
fn fragments_come_in_order_and_the_sender_waits_for_room() {
    for transport in [udp(), LinkTransport::Tcp] {
        let mut ends = Ends::new(&transport);
        for number in 0..12_000_u32 {
            // The receiving end looks now and then only, as one in another process does.
            if !ends.sender.is_idle() {
                ends.poll_until(RunNs(number.into()), LinkSender::is_idle);
            }
            ends.send(RunNs(number.into()), 1 + number as usize % 700, number);
        }
        ends.poll_until(LATE, is_drained);
        ends.take();
        let name = transport.name();
        assert_eq!(ends.came, (0..12_000).collect::<Vec<u32>>(), "{name}");
        let words = (0..12_000).map(|number| 1 + number % 700).sum::<u64>();
        assert_eq!(ends.sender.handed(), (12_000, words));
        assert_eq!(ends.accounts(), (12_000, 0), "{name}");
        assert_eq!(ends.receiver.transport_counters().kernel_drops, 0);
        let (waits, _) = ends.sender.waits_and_tallies();
        assert!(
            waits > 0,
            "{name}: no fragment waited for the receiving end"
        );
        assert!(!ends.receiver.recycle(0), "a page that is not out");
        assert!(!ends.receiver.recycle(PAGES), "a page of nobody");
    }
}

#[test]
fn a_receiver_with_few_pages_raises_xoff_and_ends_it() {
    for transport in [udp(), LinkTransport::Tcp] {
        let mut ends = Ends::new(&transport);
        let mut now = RunNs(0);
        ends.poll_until(now, |sender| !sender.is_waiting());
        for number in 0..50 {
            ends.send(now, 200, number);
            now = now.after(DurationNs(1_000_000));
            // The second time nothing comes, and the sender is told of what has.
            ends.poll(now);
            ends.poll(now);
            ends.hold();
        }
        assert_eq!(
            ends.sender.flow(),
            FlowControl::Xoff,
            "{}",
            transport.name()
        );
        while ends.sender.flow() == FlowControl::Xoff {
            ends.take();
            now = now.after(DurationNs(1_000_000));
            ends.poll(now);
        }
        ends.poll_until(LATE, is_drained);
        assert_eq!(ends.accounts(), (50, 0));
    }
}

#[test]
fn datagrams_of_a_link_that_is_down_are_lost_and_settled_at_the_end() {
    let mut ends = Ends::new(&udp());
    ends.poll_until(RunNs(5), |sender| !sender.is_waiting());
    ends.send(RunNs(5), 100, 1);
    ends.poll_until(RunNs(5), is_drained);
    ends.sender.set_state(LinkState::Down);
    assert_eq!(ends.sender.state(), LinkState::Down);
    (2..5).for_each(|value| ends.send(RunNs(5), 100, value));
    ends.sender.set_state(LinkState::Up);
    ends.send(RunNs(5), 100, 5);
    // The one that came says that three are missing, once they are not waited for any longer.
    let patience = UdpConfig::default().patience.0;
    for step in 0..4 {
        ends.poll(RunNs(5 + step * patience));
        ends.take();
    }
    assert_eq!(ends.came, [1, 5]);
    assert_eq!(ends.lost(LossCause::DatagramLost), 3);
    // Nothing follows these two: they are lost only when a tally says so, and was waited for.
    ends.sender.set_state(LinkState::Down);
    let mut last = RunNs(1_000_000_000);
    (0..2).for_each(|_| ends.send(last, 0, 0));
    ends.poll(last);
    assert_eq!(ends.sender.outstanding(), 2);
    ends.sender.settle();
    ends.poll(last);
    ends.poll(last);
    assert_eq!(ends.sender.outstanding(), 2, "they may still come");
    while ends.sender.outstanding() > 0 {
        last = last.after(DurationNs(patience / 4));
        ends.poll(last);
    }
    assert_eq!(ends.lost(LossCause::DatagramLost), 5);
    assert_eq!(ends.accounts(), (2, 5));
    assert_eq!(ends.sender.handed().0, 7);
}

#[test]
fn what_a_socket_cannot_hold_is_lost_by_number_and_the_sender_goes_on() {
    let transport = LinkTransport::Udp {
        config: UdpConfig {
            buffer_bytes: 4096,
            ..UdpConfig::default()
        },
        datagram_words: 16,
    };
    let mut ends = Ends::new(&transport);
    let mut now = RunNs(0);
    for number in 0..20 {
        while !ends.sender.is_idle() {
            now = now.after(DurationNs(1_000_000));
            ends.poll(now);
            ends.take();
        }
        // Every other one is larger than the socket's buffer.
        ends.send(now, if number % 2 == 0 { 4000 } else { 8 }, number);
    }
    ends.sender.settle();
    while ends.sender.outstanding() > 0 {
        now = now.after(DurationNs(1_000_000));
        ends.poll(now);
        ends.take();
    }
    ends.take();
    assert_eq!(
        ends.came,
        (0..20).filter(|n| n % 2 == 1).collect::<Vec<_>>()
    );
    assert_eq!(ends.accounts(), (10, 10));
    assert_eq!(ends.lost(LossCause::DatagramLost), 10);
    let counters = ends.receiver.transport_counters();
    let (_, tallies) = ends.sender.waits_and_tallies();
    let tallies_lost = tallies - counters.tallies;
    assert!(counters.kernel_drops > 0);
    assert!(
        counters.kernel_drops <= counters.frames_missing + tallies_lost,
        "{counters:?} {tallies}"
    );
}

#[test]
fn a_run_ended_by_force_names_what_was_on_its_way() {
    for transport in [udp(), LinkTransport::Tcp] {
        let mut ends = Ends::new(&transport);
        // More than the pages hold: some of it waits.
        for value in 0..2000 {
            ends.poll(RunNs(1));
            if !ends.sender.is_idle() {
                break;
            }
            ends.send(RunNs(1), 1000, value);
        }
        let (handed, _) = ends.sender.handed();
        let name = transport.name();
        assert!(ends.sender.outstanding() > 0, "{name}");
        ends.sender.abort(RunNs(2));
        ends.receiver.abort(RunNs(2));
        let mut now = RunNs(2);
        while ends.sender.pump(now, true) == LinkProgress::Moved {
            ends.receiver.poll(now, true);
            now = now.after(DurationNs(100_000));
            assert!(now < LATE, "{name}: it goes on for ever");
        }
        assert_eq!(ends.sender.outstanding(), 0, "{name}");
        let aborted = ends.lost(LossCause::LinkAborted);
        let (came, lost) = ends.accounts();
        assert_eq!((lost, came + lost), (aborted, handed), "{name}");
        assert!(aborted > 0, "{name}");
        ends.sender.abort(RunNs(3));
        ends.receiver.abort(RunNs(3));
        ends.poll(RunNs(3));
        assert_eq!(ends.accounts(), (came, lost), "only once");
    }
}

#[test]
fn a_stream_that_is_cut_is_replaced_and_what_was_on_its_way_is_named() {
    let mut ends = Ends::new(&LinkTransport::Tcp);
    let mut sent = 0;
    let mut cuts = 0;
    for round in 0..4 {
        for _ in 0..60 {
            if ends.sender.is_idle() {
                ends.send(RunNs(round), 700, sent);
                sent += 1;
            }
            if sent % 3 == 0 {
                ends.poll(RunNs(round));
                ends.take();
            }
        }
        let Way::Tcp { source, .. } = &ends.sender.way else {
            unreachable!("it is a link over TCP");
        };
        source.output().shutdown(Shutdown::Both).unwrap();
        while !ends.receiver.poll_cut(RunNs(round)) {
            ends.poll(RunNs(round));
            ends.take();
        }
        cuts += 1;
        assert!(!ends.receiver.poll_cut(RunNs(round)), "once a second");
        ends.sender.pump(RunNs(round), true);
        ends.send(RunNs(round), 10, 7777);
        assert_eq!(ends.sender.losses().of(LossCause::LinkDown), cuts);
        let transport = LinkTransport::Tcp;
        let [near, far] = SocketPair::connect(transport.socket().unwrap())
            .unwrap()
            .ends;
        ends.sender.restore(near.into_stream().unwrap()).unwrap();
        ends.receiver.restore(far.into_stream().unwrap()).unwrap();
    }
    ends.send(RunNs(9), 10, 5555);
    ends.poll_until(LATE, is_drained);
    let Way::Tcp { source, .. } = &ends.sender.way else {
        unreachable!("it is a link over TCP");
    };
    let counters = ends.receiver.transport_counters();
    let frames = counters.frames + counters.frames_missing;
    assert_eq!(frames, source.numbers().frames_made(), "each once");
    let (came, lost) = ends.accounts();
    assert_eq!(came + lost, u64::from(sent) + cuts + 1);
    assert_eq!(ends.came.last(), Some(&5555), "the link is up again");
    assert!(ends.came.is_sorted() && !ends.came.contains(&7777));
    assert_eq!(
        lost,
        cuts + ends.lost(LossCause::LinkDown),
        "all under one name"
    );
}

/// Given words on the return lines that are no return, or their end alone, then the sender closes the
/// stream, which the receiving end sees as any other cut: it is replaced, and the link goes on.
#[test]
fn a_stream_whose_return_lines_fail_is_closed_and_replaced() {
    let of_nothing_sent = LinkReturn {
        blocks_settled: u64::MAX,
        ..LinkReturn::default()
    };
    let failures = [
        None,
        Some([0x5A; RETURN_WORDS]),
        Some(of_nothing_sent.emit()),
    ];
    for failure in failures {
        let mut ends = Ends::new(&LinkTransport::Tcp);
        let pair = SocketPair::connect(LinkTransport::Tcp.socket().unwrap()).unwrap();
        let [near, far] = pair.ends.map(|end| end.into_stream().unwrap());
        let mut returns = far.try_clone().unwrap();
        ends.sender.restore(near).unwrap();
        ends.receiver.restore(far).unwrap();
        ends.send(RunNs(0), 10, 1);
        ends.poll_until(RunNs(0), is_drained);
        match failure {
            None => returns.shutdown(Shutdown::Write).unwrap(),
            Some(words) => returns.write_all(words.as_bytes()).unwrap(),
        }
        ends.send(RunNs(1), 10, 2);
        while !ends.receiver.poll_cut(RunNs(1)) {
            ends.poll(RunNs(1));
            ends.take();
        }
        ends.send(RunNs(2), 10, 3);
        assert_eq!(ends.sender.losses().of(LossCause::LinkDown), 1);
        let pair = SocketPair::connect(LinkTransport::Tcp.socket().unwrap()).unwrap();
        let [near, far] = pair.ends.map(|end| end.into_stream().unwrap());
        ends.sender.restore(near).unwrap();
        ends.receiver.restore(far).unwrap();
        ends.send(RunNs(3), 10, 4);
        ends.poll_until(RunNs(3), is_drained);
        ends.take();
        assert_eq!(ends.came, [1, 2, 4]);
    }
}

/// Given returns that are ahead of what was sent, then none of it counts as settled before it was sent:
/// not even what is a little ahead, as after a frame that nobody sent.
#[test]
fn what_was_not_sent_is_not_settled() {
    for (ahead, settled) in [(u64::MAX, 0), (3, 1)] {
        let pair = SocketPair::connect(udp().socket().unwrap()).unwrap();
        let strange = match &pair.ends[1] {
            PeerSocket::Datagrams(socket) => socket.try_clone().unwrap(),
            PeerSocket::Stream(_) => unreachable!("datagrams were asked for"),
        };
        let mut ends = Ends::between(&udp(), pair);
        ends.poll_until(RunNs(5), |sender| !sender.is_waiting());
        ends.send(RunNs(5), 100, 1);
        let said = LinkReturn {
            frames_seen: ahead,
            blocks_settled: ahead,
            ..ends.sender.heard
        };
        strange.send(said.emit().as_bytes()).unwrap();
        ends.sender.pump(RunNs(5), true);
        assert_eq!(ends.sender.outstanding(), 1 - settled);
        (2..4).for_each(|value| ends.send(RunNs(5), 100, value));
        assert_eq!(ends.sender.outstanding(), 3 - settled);
        ends.poll_until(RunNs(5), is_drained);
        assert_eq!(ends.accounts(), (3, 0));
    }
}

/// Given datagrams that go nowhere for good, then at the end of the run the sender waits for some seconds
/// only, loses what it held back, and says of how much it knows nothing; as soon as the other end
/// answers, all is known again.
#[test]
fn a_silent_receiver_is_not_waited_for_for_ever() {
    let mut ends = Ends::new(&udp());
    ends.poll_until(RunNs(0), |sender| !sender.is_waiting());
    let mut now = RunNs(0);
    let mut sent = 0;
    while ends.sender.is_idle() {
        ends.send(now, 700, sent);
        sent += 1;
    }
    // Somebody may have stopped the receiver: that is waited for in a run that goes on.
    let mut pump_for = |ends: &mut Ends, seconds: u64| {
        for _ in 0..100 * seconds {
            now = now.after(DurationNs(10_000_000));
            ends.sender.pump(now, true);
        }
        now
    };
    pump_for(&mut ends, 20);
    assert!(!ends.sender.is_silent() && !ends.sender.is_idle());
    assert_eq!(ends.sender.unanswered(), 0);
    ends.sender.handle_end();
    let then = pump_for(&mut ends, 1);
    assert!(ends.sender.is_silent() && ends.sender.is_idle());
    assert_eq!(ends.sender.unanswered(), u64::from(sent));
    // What comes is lost on its way, and holds nobody up.
    (0..5).for_each(|value| ends.send(then, 700, value));
    ends.sender.settle();
    assert_eq!(ends.sender.unanswered(), u64::from(sent) + 5);
    while ends.sender.outstanding() > 0 {
        let now = pump_for(&mut ends, 1);
        ends.receiver.poll(now, true);
        ends.take();
    }
    assert!(!ends.sender.is_silent());
    assert_eq!(ends.sender.unanswered(), 0);
    assert_eq!(ends.lost(LossCause::DatagramLost), 6);
    assert_eq!(ends.accounts(), (u64::from(sent) - 1, 6));
}

/// Given a receiver that asks for a pause and has no page, then its silence is no sign: it is waited for.
#[test]
fn a_receiver_that_asks_for_a_pause_is_waited_for() {
    let mut ends = Ends::new(&udp());
    ends.poll_until(RunNs(0), |sender| !sender.is_waiting());
    for number in 0..1000 {
        if ends.sender.is_idle() {
            ends.send(RunNs(0), 200, number);
        }
        ends.poll(RunNs(0));
        ends.hold();
    }
    assert_eq!(ends.sender.flow(), FlowControl::Xoff);
    ends.sender.handle_end();
    for step in 0..10_000 {
        ends.sender.pump(RunNs(step * 10_000_000), true);
    }
    assert!(!ends.sender.is_silent());
    // But not in a run that is ended by force.
    let then = RunNs(100_000_000_000);
    ends.sender.abort(then);
    for step in 0..1000 {
        ends.sender.pump(RunNs(then.0 + step * 10_000_000), true);
    }
    assert!(ends.sender.unanswered() > 0);
}

#[test]
fn a_link_whose_readout_unit_is_gone_loses_all_that_comes() {
    for transport in [udp(), LinkTransport::Tcp] {
        let mut ends = Ends::new(&transport);
        ends.poll_until(RunNs(1), |sender| !sender.is_waiting());
        ends.send(RunNs(1), 10, 1);
        ends.poll_until(RunNs(1), is_drained);
        let Ends {
            mut sender,
            receiver,
            ..
        } = ends;
        drop(receiver);
        // Until it is told, it may hold one fragment back at most.
        for _ in 0..3 {
            if sender.is_idle() {
                sender.send(RunNs(2), |words| words.resize(700, 2));
            }
            sender.pump(RunNs(2), true);
        }
        let (before, _) = sender.handed();
        let lost = sender.losses().total();
        sender.end();
        assert_eq!(sender.state(), LinkState::Down);
        for _ in 0..50 {
            assert!(sender.is_idle());
            sender.send(RunNs(3), |words| words.resize(700, 2));
            assert_eq!(sender.pump(RunNs(3), true), LinkProgress::Idle);
        }
        assert_eq!(sender.handed().0, before + 50);
        assert_eq!(sender.losses().of(LossCause::LinkDown), lost + 50);
        assert_eq!(sender.flow(), FlowControl::Xon, "it stops no trigger");
    }
}

/// Given that the receiving end is gone with all that was on its way, then the link begins again to
/// another one, which misses nothing of what it never was to get.
#[test]
fn a_link_begins_again_to_another_receiving_end() {
    for transport in [LinkTransport::Tcp, udp()] {
        let mut ends = Ends::new(&transport);
        ends.send(RunNs(0), 300, 1);
        ends.poll_until(RunNs(0), LinkSender::is_idle);
        ends.sender.end();
        ends.send(RunNs(1), 300, 2);
        assert_eq!(ends.sender.losses().of(LossCause::LinkDown), 1);
        let mut second = Ends::new(&transport);
        let pair = SocketPair::connect(transport.socket().unwrap()).unwrap();
        let [near, far] = pair.ends;
        second.receiver =
            LinkReceiver::open(far, &transport, config(), second.pool.clone(), 0).unwrap();
        second.sender = ends.sender;
        second.sender.begin_again(near).unwrap();
        for value in 3..100 {
            second.poll_until(RunNs(2), LinkSender::is_idle);
            second.send(RunNs(2), 300, value);
            second.poll(RunNs(2));
            second.take();
        }
        second.sender.settle();
        while second.sender.outstanding() > 0 {
            second.poll(LATE);
            second.take();
        }
        assert_eq!(second.came, (3..100).collect::<Vec<u32>>());
        assert_eq!(second.sender.handed(), (97, 97 * 300));
        assert_eq!(second.receiver.losses().total(), 0);
        assert_eq!(second.receiver.transport_counters().frames_missing, 0);
    }
}
