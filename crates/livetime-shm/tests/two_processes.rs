//! Two processes on rings and a pool, one of which is killed at any of its steps.
//!
//! The child is this test binary again, told by its environment to be the child; it receives its
//! pool and rings as descriptors over a socket. It counts its steps and kills itself at a seeded
//! one (in the middle of filling a page or a message, too), or is killed from outside at a moment
//! of the kernel's choice.
//!
//! Verified by the survivor: every message that was published before the death arrives once, whole
//! and in order; none that was not published arrives; all pages are accounted for; a successor on
//! new rings goes on with the same pool. `LIVETIME_SHM_KILLS` sets the points per way of dying
//! (default 20), `LIVETIME_SHM_SEED` the seed. Not verified: loss of power of the machine.
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use livetime_shm::{
    Consumer, HugePages, OwnerId, PageIndex, PagePool, PeerWatch, PoolConfig, PoolCounts, Producer,
    PushError, ReclaimError, RingConfig, RingError, RingRegion, Side, control_pair, open_consumer,
    open_producer, recv_fds, send_fds,
};
use rustix::process::{Pid, Signal, getpid, kill_process};

const CHILD_VARIABLE: &str = "LIVETIME_SHM_CHILD";
const PAGES: u32 = 12;
const PAGE_BYTES: u32 = 256;
const BATCH: u64 = 4;
const NEVER: u64 = u64::MAX;

/// What the child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Fills the pages it is sent and sends them back one by one.
    Fill,
    /// The same, sent back in batches.
    FillBatches,
    /// Reads and releases the filled pages it is sent, and confirms each.
    Read,
}

impl Work {
    /// Steps after which so many messages have been published.
    fn steps(self) -> (u64, u64) {
        match self {
            // Page taken, claimed, half filled, filled, finished, message half written, sent.
            Work::Fill => (7, 1),
            // The first four for each page, half of each message, sent.
            Work::FillBatches => (5 * BATCH + 1, BATCH),
            // Message seen, page held, read, released, confirmation half written, sent.
            Work::Read => (6, 1),
        }
    }

    /// Messages published by a child that dies at step `kill_at`.
    fn published(self, kill_at: u64) -> u64 {
        let (steps, messages) = self.steps();
        kill_at / steps * messages
    }
}

/// The orders of the child, as sent before its descriptors.
#[derive(Debug, Clone, Copy)]
struct Orders {
    work: Work,
    epoch: u64,
    kill_at: u64,
    messages: u64,
}

impl Orders {
    fn to_bytes(self) -> [u8; 32] {
        let words = [self.work as u64, self.epoch, self.kill_at, self.messages];
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let word = |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().unwrap());
        let work = [Work::Fill, Work::FillBatches, Work::Read][word(0) as usize];
        Self {
            work,
            epoch: word(1),
            kill_at: word(2),
            messages: word(3),
        }
    }
}

/// Word `index` of the page or message with this sequence number.
fn pattern(sequence: u64, index: usize) -> u32 {
    (sequence as u32)
        .wrapping_mul(2_654_435_761)
        .rotate_left(7)
        .wrapping_add(index as u32)
}

fn fill_pattern(sequence: u64, offset: usize, words: &mut [u32]) {
    for (index, word) in words.iter_mut().enumerate() {
        *word = pattern(sequence, offset + index);
    }
}

fn is_pattern(sequence: u64, words: &[u32]) -> bool {
    words
        .iter()
        .enumerate()
        .all(|(index, word)| *word == pattern(sequence, index))
}

/// A message: page, sequence number, and a pattern whose length varies.
fn message_words(sequence: u64) -> usize {
    3 + (sequence * 5 % 27) as usize
}

fn fill_message(page: PageIndex, sequence: u64, words: &mut [u32], mut half_way: impl FnMut()) {
    words[0] = page.0;
    words[1] = sequence as u32;
    let (first, second) = words[2..].split_at_mut((message_words(sequence) - 2) / 2);
    fill_pattern(sequence, 0, first);
    half_way();
    let offset = first.len();
    fill_pattern(sequence, offset, second);
}

fn check_message(sequence: u64, words: &[u32]) -> PageIndex {
    assert_eq!(
        words.len(),
        message_words(sequence),
        "length of message {sequence}"
    );
    assert_eq!(words[1], sequence as u32, "lost, doubled or out of order");
    assert!(
        is_pattern(sequence, &words[2..]),
        "message {sequence} is torn"
    );
    PageIndex(words[0])
}

// ---- the child ----

struct Worker {
    pool: PagePool,
    input: Consumer,
    output: Producer,
    parent: PeerWatch,
    steps: u64,
    kill_at: u64,
}

fn count_step(steps: &mut u64, kill_at: u64) {
    *steps += 1;
    if *steps == kill_at {
        kill_process(getpid(), Signal::KILL).unwrap();
        unreachable!("SIGKILL cannot be survived");
    }
}

impl Worker {
    fn step(&mut self) {
        count_step(&mut self.steps, self.kill_at);
    }

    fn next_input(&mut self) -> Vec<u32> {
        loop {
            if let Some(words) = self.input.try_pop(<[u32]>::to_vec).unwrap() {
                return words;
            }
            assert!(!self.parent.is_gone().unwrap(), "parent is gone");
            thread::yield_now();
        }
    }

    fn fill_page(&mut self, sequence: u64) -> PageIndex {
        let page = PageIndex(self.next_input()[0]);
        self.step();
        let mut writer = self.pool.write(page).unwrap();
        self.step();
        let half = writer.len() / 2;
        fill_pattern(sequence, 0, &mut writer[..half]);
        self.step();
        fill_pattern(sequence, half, &mut writer[half..]);
        self.step();
        writer.finish()
    }

    fn fill_one(&mut self, sequence: u64) {
        let page = self.fill_page(sequence);
        self.step();
        self.send(page, sequence);
        self.step();
    }

    fn send(&mut self, page: PageIndex, sequence: u64) {
        let (steps, kill_at) = (&mut self.steps, self.kill_at);
        self.output
            .try_push_with(message_words(sequence), |words| {
                fill_message(page, sequence, words, || count_step(steps, kill_at));
            })
            .unwrap();
    }

    fn fill_batch(&mut self, first: u64) {
        let pages: Vec<PageIndex> = (first..first + BATCH)
            .map(|sequence| self.fill_page(sequence))
            .collect();
        let longest = (first..first + BATCH).map(message_words).max().unwrap();
        let (steps, kill_at) = (&mut self.steps, self.kill_at);
        let pushed = self
            .output
            .push_batch_with(BATCH as u32, longest, |index, words| {
                let sequence = first + u64::from(index);
                fill_message(pages[index as usize], sequence, words, || {
                    count_step(steps, kill_at)
                });
            });
        assert_eq!(pushed, Ok(BATCH as u32));
        self.step();
    }

    fn read_one(&mut self, sequence: u64) {
        let words = self.next_input();
        self.step();
        let page = check_message(sequence, &words);
        let reader = self.pool.read(page).unwrap();
        self.step();
        assert!(is_pattern(sequence, &reader));
        self.step();
        drop(reader);
        self.pool.release(page).unwrap();
        self.step();
        self.send(page, sequence);
        self.step();
    }
}

/// Not a test of its own: what the child process runs.
#[test]
fn child_process() {
    if std::env::var_os(CHILD_VARIABLE).is_none() {
        return;
    }
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut bytes = [0; 32];
    let received = recv_fds(&socket, &mut bytes).unwrap();
    let orders = Orders::from_bytes(&bytes[..received.bytes]);
    let [pool, input, output] = <[OwnedFd; 3]>::try_from(received.fds).unwrap();
    let mut worker = Worker {
        pool: PagePool::open(pool).unwrap(),
        input: open_consumer(input, orders.epoch).unwrap(),
        output: open_producer(output, orders.epoch).unwrap(),
        parent: PeerWatch::socket(socket.try_clone().unwrap()),
        steps: 0,
        kill_at: orders.kill_at,
    };
    send_fds(&socket, &[worker.pool.owner().0], &[]).unwrap();
    let mut sequence = 0;
    while sequence < orders.messages {
        match orders.work {
            Work::Fill => worker.fill_one(sequence),
            Work::FillBatches => worker.fill_batch(sequence),
            Work::Read => worker.read_one(sequence),
        }
        sequence += orders.work.steps().1;
    }
}

// ---- the survivor ----

/// The parent's side of one child's life.
struct Session {
    child: Child,
    watch: PeerWatch,
    socket: OwnedFd,
    orders: Orders,
    child_owner: OwnerId,
    output: Producer,
    input: Consumer,
    output_region: RingRegion,
    sent: u64,
    received: u64,
    /// Pages that belong to the child by our own book-keeping.
    posted: BTreeSet<PageIndex>,
}

impl Session {
    fn start(pool: &PagePool, orders: Orders) -> Self {
        let config = RingConfig {
            slots: 16,
            slot_words: 30,
        };
        let to_child = RingRegion::create(&config, orders.epoch).unwrap();
        let to_parent = RingRegion::create(&config, orders.epoch).unwrap();
        let (output, input) = (to_child.producer().unwrap(), to_parent.consumer().unwrap());
        let (socket, theirs) = control_pair().unwrap();
        let fds = [pool.fd(), to_child.fd().unwrap(), to_parent.fd().unwrap()];
        send_fds(&socket, &orders.to_bytes(), &fds).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "child_process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CHILD_VARIABLE, "1")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let watch = PeerWatch::process(child.id()).unwrap();
        let mut byte = [0];
        recv_fds(&socket, &mut byte).expect("the child opened everything");
        Self {
            child,
            watch,
            socket,
            orders,
            child_owner: OwnerId(byte[0]),
            output,
            input,
            output_region: to_child,
            sent: 0,
            received: 0,
            posted: BTreeSet::new(),
        }
    }

    /// Sends what there is to send, and returns the work done.
    fn post(&mut self, pool: &PagePool, free: &mut Vec<PageIndex>) {
        while self.sent < self.orders.messages
            && let Some(&page) = free.last()
        {
            let pushed = match self.orders.work {
                Work::Fill | Work::FillBatches => self.output.try_push(&[page.0]),
                Work::Read => {
                    let sequence = self.sent;
                    let mut writer = pool.write(page).unwrap();
                    fill_pattern(sequence, 0, &mut writer);
                    writer.finish();
                    self.output.try_push_with(message_words(sequence), |words| {
                        fill_message(page, sequence, words, || ());
                    })
                }
            };
            match pushed {
                Ok(()) => {
                    free.pop();
                    self.posted.insert(page);
                    self.sent += 1;
                }
                Err(PushError::Full | PushError::PeerGone) => {
                    if self.orders.work == Work::Read {
                        pool.release(page).unwrap();
                    }
                    return;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// Takes and checks one message, if there is one.
    fn take(&mut self, pool: &PagePool, free: &mut Vec<PageIndex>) -> bool {
        let sequence = self.received;
        let batch_words = match self.orders.work {
            Work::FillBatches => {
                let first = sequence / BATCH * BATCH;
                Some((first..first + BATCH).map(message_words).max().unwrap())
            }
            _ => None,
        };
        let popped = self.input.try_pop(|words| {
            assert!(batch_words.is_none_or(|expected| words.len() == expected));
            check_message(sequence, &words[..message_words(sequence).min(words.len())])
        });
        let Some(page) = popped.unwrap() else {
            return false;
        };
        assert!(
            self.posted.remove(&page),
            "{page:?} was not the child's to send"
        );
        if self.orders.work != Work::Read {
            let reader = pool.read(page).unwrap();
            assert!(
                is_pattern(sequence, &reader),
                "page of message {sequence} is torn"
            );
            drop(reader);
            pool.release(page).unwrap();
        }
        free.push(page);
        self.received += 1;
        true
    }

    /// Runs until the child is gone and everything it published has been read.
    fn run(&mut self, pool: &PagePool, free: &mut Vec<PageIndex>, outside_kill_at: u64) {
        loop {
            // In this order: what was published before the death is drained after it is known.
            let gone = self.watch.is_gone().unwrap();
            self.post(pool, free);
            while self.take(pool, free) {
                if self.received == outside_kill_at {
                    self.child.kill().unwrap();
                }
            }
            if gone {
                break;
            }
            thread::yield_now();
        }
        let status = self.child.wait().unwrap();
        let is_complete = self.orders.kill_at == NEVER && outside_kill_at == NEVER;
        assert_eq!(status.success(), is_complete, "child ended by {status}");
        let hung_up = recv_fds(&self.socket, &mut [0]);
        assert!(hung_up.is_err(), "the socket hangs up with the process");
    }

    /// Takes back all that the dead child held, and returns it to `free`.
    fn recover(&mut self, pool: &PagePool, free: &mut Vec<PageIndex>) {
        let second_life = self.output_region.consumer();
        let epoch = self.orders.epoch;
        assert!(
            matches!(
                second_life,
                Err(RingError::Taken {
                    side: Side::Consumer,
                    ..
                })
            ),
            "a ring is never used again"
        );
        let fd = self
            .output_region
            .fd()
            .unwrap()
            .try_clone_to_owned()
            .unwrap();
        assert!(matches!(
            open_consumer(fd, epoch + 1),
            Err(RingError::Epoch { .. })
        ));

        let reclaimed = pool.reclaim(self.child_owner).unwrap();
        let again = pool.reclaim(self.child_owner);
        assert_eq!(
            again,
            Err(ReclaimError::Unknown {
                owner: self.child_owner
            })
        );
        for page in &reclaimed.adopted {
            assert!(
                self.posted.contains(page),
                "{page:?} was filled, but not by the child"
            );
        }
        for page in std::mem::take(&mut self.posted) {
            // Filled by the child and never announced, or by us and never read.
            match pool.release(page) {
                Ok(()) => {}
                Err(error) => assert_eq!(
                    pool.state(page),
                    Ok(livetime_shm::PageState::Free),
                    "{error} and {reclaimed:?}"
                ),
            }
            free.push(page);
        }
    }
}

struct Survivor {
    pool: PagePool,
    free: Vec<PageIndex>,
    epoch: u64,
}

impl Survivor {
    fn new() -> Self {
        let config = PoolConfig {
            pages: PAGES,
            page_bytes: PAGE_BYTES,
            huge_pages: HugePages::Never,
        };
        let pool = PagePool::create(&config).unwrap();
        Self {
            pool,
            free: (0..PAGES).map(PageIndex).collect(),
            epoch: 0,
        }
    }

    fn session(&mut self, work: Work, kill_at: u64, messages: u64) -> Session {
        self.epoch += 1;
        Session::start(
            &self.pool,
            Orders {
                work,
                epoch: self.epoch,
                kill_at,
                messages,
            },
        )
    }

    /// One child killed, then a successor that lives.
    fn kill_and_succeed(&mut self, work: Work, kill_at: u64, outside_kill_at: u64) {
        let context = format!("{work:?} killed at step {kill_at} or message {outside_kill_at}");
        let mut session = self.session(work, kill_at, 1 << 20);
        session.run(&self.pool, &mut self.free, outside_kill_at);
        if kill_at == NEVER {
            assert!(session.received >= outside_kill_at, "{context}");
        } else {
            assert_eq!(session.received, work.published(kill_at), "{context}");
        }
        assert_eq!(
            session.received % work.steps().1,
            0,
            "part of a batch after {context}"
        );
        session.recover(&self.pool, &mut self.free);
        self.check_all_free(&context);

        let mut session = self.session(work, NEVER, 2 * BATCH);
        session.run(&self.pool, &mut self.free, NEVER);
        assert_eq!(session.received, 2 * BATCH, "successor of {context}");
        self.check_all_free(&context);
    }

    fn check_all_free(&self, context: &str) {
        let all_free = PoolCounts {
            free: PAGES,
            ..PoolCounts::default()
        };
        assert_eq!(self.pool.counts(), all_free, "{context}");
        let unique: BTreeSet<_> = self.free.iter().collect();
        assert_eq!(unique.len(), PAGES as usize, "{context}");
        assert_eq!(self.free.len(), PAGES as usize, "{context}");
    }
}

/// Seeded numbers below `bound`, as many as there are kills to do (xorshift64*).
fn kill_points(salt: u64, bound: u64) -> Vec<u64> {
    let variable = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let seed = variable("LIVETIME_SHM_SEED", 20_003);
    let count = variable("LIVETIME_SHM_KILLS", 20);
    println!("LIVETIME_SHM_SEED={seed} LIVETIME_SHM_KILLS={count}");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt | 1;
    (0..count)
        .map(|_| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            1 + (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
        })
        .collect()
}

fn kill_at_steps(work: Work, salt: u64) {
    let (steps, messages) = work.steps();
    let mut survivor = Survivor::new();
    for kill_at in kill_points(salt, steps * 200 / messages) {
        survivor.kill_and_succeed(work, kill_at, NEVER);
    }
}

#[test]
fn a_filling_process_killed_at_any_step_harms_nothing() {
    kill_at_steps(Work::Fill, 1);
}

#[test]
fn a_batching_process_killed_at_any_step_harms_nothing() {
    kill_at_steps(Work::FillBatches, 2);
}

#[test]
fn a_reading_process_killed_at_any_step_harms_nothing() {
    kill_at_steps(Work::Read, 3);
}

#[test]
fn a_process_killed_from_outside_harms_nothing() {
    let mut survivor = Survivor::new();
    for kill_at in kill_points(4, 2_000) {
        let work = if kill_at % 2 == 0 {
            Work::Fill
        } else {
            Work::Read
        };
        survivor.kill_and_succeed(work, NEVER, kill_at);
    }
}

#[test]
fn a_stopped_process_is_not_dead_and_goes_on() {
    let mut survivor = Survivor::new();
    let mut session = survivor.session(Work::Fill, NEVER, 400);
    let pid = Pid::from_raw(session.child.id() as i32).unwrap();
    let (pool, free) = (survivor.pool.clone(), &mut survivor.free);
    for _ in 0..3 {
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = rustix::process::WaitOptions::UNTRACED;
        let status = rustix::process::waitpid(Some(pid), stopped)
            .unwrap()
            .unwrap()
            .1;
        assert!(status.stopped());
        assert!(!session.watch.wait_gone(Duration::from_millis(1)).unwrap());
        let refused = pool.reclaim(session.child_owner);
        assert!(
            matches!(refused, Err(ReclaimError::Alive { .. })),
            "{refused:?}"
        );
        while session.take(&pool, free) {}
        kill_process(pid, Signal::CONT).unwrap();
        let before = session.received;
        while session.received < before + 100 {
            session.post(&pool, free);
            session.take(&pool, free);
        }
    }
    session.run(&pool, free, NEVER);
    assert_eq!(session.received, 400);
    survivor.check_all_free("stopped three times");
}
