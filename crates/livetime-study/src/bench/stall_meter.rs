//! Whose fault is an outlier: gaps in which the machine took a core away, and what they explain.
//!
//! A thread looks at the clock in each turn and tells its [`StallMeter`] whether the turn before did
//! any work. A gap of more than 2 us without work cannot be ours. One with work may be: after the run
//! the work of every trial is done again, on one thread and twice, and its shorter time is taken off
//! the gap; only what is left above 2 us is the machine's ([`of_the_machine`]). Page faults and waits
//! of a thread are counted by the system, and so many of its gaps at work, the longest ones, stay
//! ours. What work on one thread cannot show again, such as threads in each other's way, shows in
//! [`Chance`]: a machine does not know when a thread works, so that its gaps are as frequent at work
//! as without, and more of them at work are ours. [`Attribution::of`] takes the machine's gaps of all threads off an outlier: only if what is
//! left is no outlier any more was it the host. Everything else, the unknown too, is ours.

use std::io::Read;

use livetime_shm::TscClock;

/// Gaps longer than this are kept.
pub(crate) const GAP_NS: u64 = 2_000;
/// Latencies so much above the mean of their event are outliers.
pub(crate) const OUTLIER_NS: u64 = 5_000;
/// Gaps kept of one thread and kind; more are counted, and what they would explain counts as ours.
const GAPS_MAX: usize = 1 << 18;

/// Ticks of the clock in a time in nanoseconds.
pub(crate) fn ticks_of(clock: &TscClock, ns: u64) -> u64 {
    (ns as f64 * clock.rate_hz() * 1e-9) as u64
}

/// An empty vector whose memory is there already, so that nothing faults while it fills; `value` has
/// bits set, or the memory would only be promised.
pub(crate) fn touched<T: Clone>(capacity: usize, value: T) -> Vec<T> {
    let mut vector = vec![value; capacity];
    vector.clear();
    vector
}

/// A time in which a thread did not run, in ticks of the common clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gap {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Gap {
    fn ticks(self) -> u64 {
        self.end - self.start
    }
}

/// The gaps of one thread, in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// In turns without work.
    pub(crate) idle: Vec<Gap>,
    /// In turns with work.
    pub(crate) at_work: Vec<Gap>,
    /// How many found no room.
    pub(crate) dropped: u64,
    /// Page faults and waits of the thread.
    pub(crate) own_stalls: u64,
    /// Ticks of turns with work that are no gaps, and of everything.
    pub(crate) worked_ticks: u64,
    pub(crate) all_ticks: u64,
    /// Ticks of the first and the last look.
    pub(crate) looked: [u64; 2],
}

/// Looks at the clock of one thread.
#[derive(Debug)]
pub(crate) struct StallMeter {
    first: u64,
    last: u64,
    bound_ticks: u64,
    gaps: Gaps,
    own_stalls_before: u64,
}

impl StallMeter {
    /// A meter for gaps above [`GAP_NS`]; its storage is made here.
    pub(crate) fn new(clock: &TscClock) -> Self {
        let full = Gap {
            start: u64::MAX,
            end: u64::MAX,
        };
        Self {
            first: 0,
            last: 0,
            bound_ticks: ticks_of(clock, GAP_NS),
            gaps: Gaps {
                idle: touched(GAPS_MAX, full),
                at_work: touched(GAPS_MAX, full),
                ..Gaps::default()
            },
            own_stalls_before: 0,
        }
    }

    /// Begins, on the thread whose gaps they are.
    pub(crate) fn start(&mut self, clock: &TscClock) {
        // Asking may itself fault and wait the first time.
        own_stalls();
        self.own_stalls_before = own_stalls();
        self.last = clock.ticks();
        self.first = self.last;
    }

    /// A look at the clock, and whether anything of ours was done since the one before.
    #[inline]
    pub(crate) fn look(&mut self, now: u64, has_worked: bool) {
        let start = std::mem::replace(&mut self.last, now);
        let ticks = now.wrapping_sub(start);
        if ticks > self.bound_ticks {
            self.keep(Gap { start, end: now }, has_worked);
        } else if has_worked {
            self.gaps.worked_ticks += ticks;
        }
    }

    #[cold]
    fn keep(&mut self, gap: Gap, has_worked: bool) {
        let gaps = match has_worked {
            true => &mut self.gaps.at_work,
            false => &mut self.gaps.idle,
        };
        if gaps.len() < GAPS_MAX {
            gaps.push(gap);
        } else {
            self.gaps.dropped += 1;
        }
    }

    /// Ends, on the thread on which it began.
    pub(crate) fn finish(self) -> Gaps {
        Gaps {
            own_stalls: own_stalls().saturating_sub(self.own_stalls_before),
            all_ticks: self.last.saturating_sub(self.first),
            looked: [self.first, self.last],
            ..self.gaps
        }
    }
}

/// Page faults of this thread so far, and how often it waited for the system of its own accord; 0
/// where the system does not tell. Takes no memory, which might fault.
fn own_stalls() -> u64 {
    let of = |file, count: fn(&str) -> u64| {
        let mut text = [0; 4096];
        let read = std::fs::File::open(file).and_then(|mut file| file.read(&mut text));
        let text = text.get(..read.unwrap_or(0)).unwrap_or_default();
        std::str::from_utf8(text).map_or(0, count)
    };
    of("/proc/thread-self/stat", faults_in) + of("/proc/thread-self/status", waits_in)
}

/// Small and large page faults: fields 10 and 12 of a thread's `stat`, counted from 1; the second
/// field, the name, may hold blanks and ends with the last parenthesis.
fn faults_in(stat: &str) -> u64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let number = |place| {
        let field = after_name.split_whitespace().nth(place);
        field.and_then(|field| field.parse().ok()).unwrap_or(0)
    };
    number(7) + number(9)
}

fn waits_in(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// A trial, and what its work takes when it is done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeated {
    /// When it began, in ticks.
    pub(crate) start: u64,
    /// When it was over.
    pub(crate) end: u64,
    /// Ticks of its work alone.
    pub(crate) work: u64,
}

/// The times in which the machine kept one of the threads from running, in order; `trials` are in the
/// order of their ends.
pub(crate) fn of_the_machine(threads: &[Gaps], trials: &[Repeated], clock: &TscClock) -> Vec<Gap> {
    let bound = ticks_of(clock, GAP_NS);
    let mut all: Vec<Gap> = Vec::new();
    for thread in threads {
        all.extend(&thread.idle);
        let mut at_work = thread.at_work.clone();
        at_work.sort_unstable_by_key(|gap| std::cmp::Reverse(gap.ticks()));
        let explained = at_work.iter().skip(thread.own_stalls as usize);
        all.extend(explained.filter_map(|gap| without_work(*gap, trials, bound)));
    }
    union(all)
}

/// The share of the time in which any of the threads looked that lies in their gaps, a union; 0 to 1.
pub(crate) fn share_of_time(threads: &[Gaps], gaps: &[Gap]) -> f64 {
    let first = threads.iter().map(|thread| thread.looked[0]).min();
    let last = threads.iter().map(|thread| thread.looked[1]).max();
    let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
    stalled_ticks(gaps, first, last) as f64 / last.saturating_sub(first).max(1) as f64
}

/// The times in which a thread that had nothing to do did not run, in order: the machine's without
/// any doing again.
pub(crate) fn without_any_work(threads: &[Gaps]) -> Vec<Gap> {
    let idle = threads.iter().flat_map(|thread| &thread.idle);
    union(idle.copied().collect())
}

/// How many gaps there were at work, and how many there would be if they came at any time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Chance {
    pub(crate) at_work: u64,
    pub(crate) expected: f64,
    /// By how many standard deviations of that number there were more.
    pub(crate) sigma: f64,
}

impl Chance {
    /// Of several threads' gaps above `bound_ticks`, which must be longer than any turn's work. Says
    /// nothing where work comes at equal distances: the machine's own ticks do, too.
    pub(crate) fn of(threads: &[Gaps], bound_ticks: u64) -> Self {
        let count = |gaps: &[Gap]| {
            let long = gaps.iter().filter(|gap| gap.ticks() > bound_ticks);
            long.count() as u64
        };
        let (mut at_work, mut expected, mut variance) = (0, 0.0, 0.0);
        for thread in threads {
            let gaps = thread.idle.iter().chain(&thread.at_work);
            let in_gaps: u64 = gaps.map(|gap| gap.ticks()).sum();
            let idle_ticks = thread
                .all_ticks
                .saturating_sub(in_gaps + thread.worked_ticks);
            let share = thread.worked_ticks as f64 / idle_ticks.max(1) as f64;
            let idle = count(&thread.idle) as f64;
            at_work += count(&thread.at_work);
            expected += idle * share;
            // Of the number at work, and of the one without work that it is expected from.
            variance += idle * share * (1.0 + share);
        }
        Self {
            at_work,
            expected,
            sigma: (at_work as f64 - expected) / variance.max(1.0).sqrt(),
        }
    }
}

/// What is left of a gap without the work of the trials that were under way in it, if it is still one.
fn without_work(gap: Gap, trials: &[Repeated], bound: u64) -> Option<Gap> {
    let first = trials.partition_point(|trial| trial.end < gap.start);
    let work: u64 = trials[first..]
        .iter()
        .take_while(|trial| trial.start <= gap.end)
        .map(|trial| trial.work)
        .sum();
    let start = gap.start.saturating_add(work);
    (start.saturating_add(bound) < gap.end).then_some(Gap { start, ..gap })
}

/// Gaps as times in which at least one thread did not run, in order.
fn union(mut all: Vec<Gap>) -> Vec<Gap> {
    all.sort_unstable();
    let mut merged: Vec<Gap> = Vec::with_capacity(all.len());
    for gap in all {
        match merged.last_mut() {
            Some(last) if gap.start <= last.end => last.end = last.end.max(gap.end),
            _ => merged.push(gap),
        }
    }
    merged
}

/// Ticks of `start..end` that lie in gaps of a union.
pub(crate) fn stalled_ticks(gaps: &[Gap], start: u64, end: u64) -> u64 {
    let first = gaps.partition_point(|gap| gap.end <= start);
    gaps[first..]
        .iter()
        .take_while(|gap| gap.start < end)
        .map(|gap| gap.end.min(end) - gap.start.max(start))
        .sum()
}

/// Whose an outlier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribution {
    /// The machine took a core away, and without that it would have been no outlier.
    Host,
    /// Anything else.
    Ours,
}

impl Attribution {
    /// Of an event that took from `start` to `end` where `expected_ticks` is its mean, and more than
    /// `allowed_ticks` above is an outlier; `gaps` is a union.
    pub(crate) fn of(
        gaps: &[Gap],
        (start, end): (u64, u64),
        expected_ticks: u64,
        allowed_ticks: u64,
    ) -> Self {
        let own = (end - start) - stalled_ticks(gaps, start, end);
        if stalled_ticks(gaps, start, end) > 0 && own <= expected_ticks + allowed_ticks {
            Self::Host
        } else {
            Self::Ours
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(start: u64, end: u64) -> Gap {
        Gap { start, end }
    }

    fn meter(bound_ticks: u64) -> StallMeter {
        StallMeter {
            bound_ticks,
            ..StallMeter::new(&TscClock::of_process())
        }
    }

    #[test]
    fn gaps_of_turns_with_and_without_work_are_kept_apart() {
        let mut meter = meter(100);
        meter.look(50, false);
        meter.look(151, false);
        meter.look(10_000, true);
        meter.look(10_100, true);
        meter.look(10_201, true);
        meter.look(20_000, false);
        let gaps = meter.gaps;
        assert_eq!(gaps.idle, [gap(50, 151), gap(10_201, 20_000)]);
        assert_eq!(gaps.at_work, [gap(151, 10_000), gap(10_100, 10_201)]);
        assert_eq!(gaps.dropped, 0);
        assert_eq!(gaps.worked_ticks, 100, "gaps are no work");
    }

    #[test]
    fn gaps_that_come_with_work_are_beyond_chance() {
        let idle: Vec<Gap> = (0..400).map(|n| gap(n * 1000, n * 1000 + 100)).collect();
        let thread = |at_work: u64| Gaps {
            idle: idle.clone(),
            at_work: (0..at_work)
                .map(|n| gap(n * 1000 + 500, n * 1000 + 600))
                .collect(),
            worked_ticks: 90_000,
            all_ticks: 400_000 + 50_000 + at_work * 100,
            ..Gaps::default()
        };
        // 90 000 ticks of work beside 320 000 without.
        let chance = Chance::of(&[thread(112)], 50);
        assert_eq!(chance.at_work, 112);
        assert!((chance.expected - 112.5).abs() < 0.1, "{chance:?}");
        assert!(chance.sigma.abs() < 0.1, "{chance:?}");
        let ours = Chance::of(&[thread(300)], 50);
        assert!(ours.sigma > 10.0, "{ours:?}");
        assert_eq!(
            Chance::of(&[thread(300)], 100).at_work,
            0,
            "all are 100 long"
        );
        // Without any gap nothing is expected, and one at work is no proof.
        let quiet = Gaps {
            at_work: vec![gap(0, 100)],
            worked_ticks: 10,
            all_ticks: 1000,
            ..Gaps::default()
        };
        assert_eq!(Chance::of(&[quiet], 50).sigma, 1.0);
    }

    #[test]
    fn work_that_takes_as_long_when_done_again_is_ours() {
        let trial = |start, end, work| Repeated { start, end, work };
        let trials = [
            trial(0, 100, 50),
            trial(110, 900, 700),
            trial(200, 950, 100),
        ];
        let left = |start, end| without_work(gap(start, end), &trials, 20);
        assert_eq!(left(300, 890), None, "work of 800 lies in it");
        assert_eq!(left(101, 109), None, "no gap to begin with");
        assert_eq!(left(951, 2000), Some(gap(951, 2000)), "after all work");
        assert_eq!(left(900, 2000), Some(gap(1700, 2000)), "the end counts");
        assert_eq!(left(0, 105), Some(gap(50, 105)));
        assert_eq!(left(0, 70), None, "20 left are not above the bound");
    }

    #[test]
    fn as_many_gaps_as_there_were_faults_and_waits_stay_ours() {
        let clock = TscClock::of_process();
        let ms = ticks_of(&clock, 1_000_000);
        let threads = |own_stalls| {
            [Gaps {
                idle: vec![gap(0, 5 * ms)],
                at_work: vec![gap(6 * ms, 7 * ms), gap(8 * ms, 10 * ms)],
                own_stalls,
                ..Gaps::default()
            }]
        };
        let of = |own_stalls| of_the_machine(&threads(own_stalls), &[], &clock).len();
        assert_eq!([of(0), of(1), of(2), of(3)], [3, 2, 1, 1]);
        let one = of_the_machine(&threads(1), &[], &clock);
        assert_eq!(one, [gap(0, 5 * ms), gap(6 * ms, 7 * ms)]);
    }

    #[test]
    fn faults_and_waits_are_read_and_counted() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 70 8 9 10 11";
        assert_eq!(faults_in(stat), 79);
        assert_eq!(faults_in(""), 0);
        assert_eq!(waits_in("Name:\tx\nvoluntary_ctxt_switches:\t12\n"), 12);
        assert_eq!(waits_in("nonvoluntary_ctxt_switches:\t12\n"), 0);
        let clock = TscClock::of_process();
        let mut meter = meter(u64::MAX);
        meter.start(&clock);
        std::hint::black_box(touched(1 << 22, 1_u64));
        assert!(meter.finish().own_stalls > 0);
    }

    #[test]
    fn the_share_of_gaps_is_of_the_time_in_which_threads_looked() {
        let looked = |looked| Gaps {
            looked,
            ..Gaps::default()
        };
        // The second thread came late and was stopped until after the first had ended.
        let threads = [looked([100, 500]), looked([300, 1100])];
        let gaps = union(vec![gap(150, 250), gap(400, 1100)]);
        assert_eq!(share_of_time(&threads, &gaps), 0.8);
        assert_eq!(share_of_time(&threads, &[gap(100, 1100)]), 1.0);
        assert_eq!(share_of_time(&[], &[]), 0.0);
    }

    #[test]
    fn gaps_of_threads_are_united_and_taken_off() {
        let all = union(vec![gap(10, 20), gap(50, 60), gap(15, 30), gap(60, 70)]);
        assert_eq!(all, [gap(10, 30), gap(50, 70)]);
        assert_eq!(stalled_ticks(&all, 0, 100), 40);
        assert_eq!(stalled_ticks(&all, 20, 55), 15);
        assert_eq!(stalled_ticks(&all, 30, 50), 0);
    }

    #[test]
    fn an_outlier_is_the_hosts_only_if_its_gaps_explain_it() {
        let gaps = [gap(1000, 9000)];
        let of = |start, end| Attribution::of(&gaps, (start, end), 1000, 5000);
        assert_eq!(of(500, 9500), Attribution::Host);
        assert_eq!(
            of(500, 20_000),
            Attribution::Ours,
            "11 us more are not explained"
        );
        assert_eq!(of(9000, 20_000), Attribution::Ours, "no gap at all");
        let far = Attribution::of(&gaps, (20_000, 30_000), 1000, 5000);
        assert_eq!(far, Attribution::Ours);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut meter = meter(1);
        for look in 1..=GAPS_MAX as u64 + 3 {
            meter.look(look * 10, true);
        }
        let gaps = meter.gaps;
        assert_eq!((gaps.at_work.len(), gaps.dropped), (GAPS_MAX, 3));
    }
}
