//! What waits to be said while a run goes on: a queue, and a thread of its own that writes it.
//!
//! A reader that does not read, such as a full pipe or a terminal after Ctrl-S, holds that thread up
//! and never the run. What is said first is shown first; what finds no room in the queue is counted, and
//! the count is shown where it would have been. How long readers are waited for at the end of a run is
//! in [`super::readers`].

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Texts that wait at most.
const WAITING_MAX: usize = 1024;
/// Texts that wait at most where one more is of progress: warnings and errors have the rest.
const PROGRESS_MAX: usize = 64;
/// Time between two questions whether to wait on.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// What is said.
#[derive(Debug)]
pub(super) enum Said {
    /// Lines of talk.
    Talk(String),
    /// A line of progress.
    Progress(String),
    /// A screen, which is drawn over the one before if nothing was said since.
    Screen(String),
}

/// What waits, and the writing of it.
#[derive(Debug)]
pub(super) struct Talk {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Said>,
    /// Something was taken out, and is not written yet.
    is_writing: bool,
    /// Lines without room since the last text that had some.
    not_shown: usize,
    /// Texts taken out so far.
    taken: u64,
}

impl Queue {
    /// Puts the number of the lines without room where they would have been.
    fn tell_not_shown(&mut self) {
        match std::mem::take(&mut self.not_shown) {
            0 => {}
            1 => self.put("1 line was not shown: nobody was reading"),
            lines => self.put(&format!("{lines} lines were not shown: nobody was reading")),
        }
    }

    fn put(&mut self, line: &str) {
        self.waiting.push_back(Said::Talk(line.to_owned()));
    }
}

impl Talk {
    pub(super) const fn new() -> Self {
        Self {
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
                is_writing: false,
                not_shown: 0,
                taken: 0,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it said after all that was said before.
    pub(super) fn put(&self, said: Said) {
        let mut queue = self.lock();
        let queue = &mut *queue;
        if matches!(said, Said::Screen(_)) {
            // Whoever reads again is to see the latest.
            while let Some(Said::Screen(_)) = queue.waiting.back() {
                queue.waiting.pop_back();
            }
        }
        let (most, lines) = match &said {
            Said::Talk(text) => (WAITING_MAX, text.lines().count().max(1)),
            Said::Progress(text) => (PROGRESS_MAX, text.lines().count().max(1)),
            Said::Screen(_) => (PROGRESS_MAX, 0),
        };
        if queue.waiting.len() >= most {
            queue.not_shown += lines;
        } else {
            queue.tell_not_shown();
            queue.waiting.push_back(said);
        }
        self.changed.notify_all();
    }

    /// The next text, once there is one.
    fn next(&self) -> Said {
        let mut queue = self.lock();
        queue.is_writing = false;
        loop {
            if queue.waiting.is_empty() {
                queue.tell_not_shown();
            }
            if let Some(said) = queue.waiting.pop_front() {
                queue.is_writing = true;
                queue.taken += 1;
                return said;
            }
            self.changed.notify_all();
            let waited = self.changed.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes what is said, for ever.
    pub(super) fn write_all(&self, out: &mut impl Write) -> ! {
        let mut screen_lines = 0;
        loop {
            let said = self.next();
            // Nobody may be listening, which is no reason to end a run.
            let _closed = write(out, &said, &mut screen_lines);
        }
    }

    /// Waits until everything is written, or `is_given_up`, which hears how long nothing was.
    pub(super) fn flush(&self, mut is_given_up: impl FnMut(Duration) -> bool) {
        let (mut taken, mut since) = (0, Instant::now());
        let mut queue = self.lock();
        while !queue.waiting.is_empty() || queue.is_writing || queue.not_shown > 0 {
            if queue.taken != taken {
                (taken, since) = (queue.taken, Instant::now());
            }
            drop(queue);
            if is_given_up(since.elapsed()) {
                return;
            }
            let waited = self.changed.wait_timeout(self.lock(), LOOK);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Writes one text; `screen_lines` is how many lines of a screen are above the cursor.
fn write(out: &mut impl Write, said: &Said, screen_lines: &mut usize) -> std::io::Result<()> {
    let text = match said {
        Said::Screen(text) => {
            let above = std::mem::replace(screen_lines, text.lines().count());
            match above {
                0 => format!("{text}\n"),
                lines => format!("\x1b[{lines}A\x1b[J{text}\n"),
            }
        }
        Said::Talk(text) | Said::Progress(text) => {
            *screen_lines = 0;
            format!("{text}\n")
        }
    };
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Whether the reader reads.
    type Gate = Arc<(Mutex<bool>, Condvar)>;

    /// A reader that reads nothing while its gate is closed.
    struct Reader {
        gate: Gate,
        read: Sender<String>,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (is_open, changed) = &*self.gate;
            let is_open = is_open.lock().unwrap();
            drop(changed.wait_while(is_open, |is_open| !*is_open).unwrap());
            let text = String::from_utf8_lossy(bytes).into_owned();
            self.read.send(text).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A talk with its thread and a reader whose gate is closed.
    struct Bench {
        talk: &'static Talk,
        gate: Gate,
        was_read: Receiver<String>,
    }

    impl Bench {
        fn new() -> Self {
            let talk: &Talk = Box::leak(Box::new(Talk::new()));
            let gate = Gate::default();
            let (read, was_read) = channel();
            let mut reader = Reader {
                gate: gate.clone(),
                read,
            };
            std::thread::spawn(move || talk.write_all(&mut reader));
            Self {
                talk,
                gate,
                was_read,
            }
        }

        fn set_gate(&self, is_open: bool) {
            *self.gate.0.lock().unwrap() = is_open;
            self.gate.1.notify_all();
        }

        /// What is read from now on until nothing more is to be said.
        fn read_all(&self) -> Vec<String> {
            self.set_gate(true);
            self.talk.flush(|_| false);
            self.set_gate(false);
            self.was_read.try_iter().collect()
        }
    }

    #[test]
    fn nobody_waits_for_a_reader_and_the_order_is_kept() {
        let bench = Bench::new();
        let talk = bench.talk;
        for n in 0..WAITING_MAX + 10 {
            talk.put(Said::Talk(format!("{n}")));
            talk.put(Said::Progress("progress".to_owned()));
        }
        // The first that is taken out leaves room; nobody knows how soon.
        let all = bench.read_all();
        let numbers = all.iter().filter_map(|line| line.trim().parse().ok());
        let numbers: Vec<usize> = numbers.collect();
        assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>());
        let told = all.iter().filter_map(|line| {
            let (lines, rest) = line.split_once(' ')?;
            let is_told = rest.ends_with("not shown: nobody was reading\n");
            is_told.then(|| lines.parse::<usize>().expect("a count"))
        });
        let progress = all.iter().filter(|line| *line == "progress\n").count();
        let shown = numbers.len() + progress;
        assert_eq!(shown + told.sum::<usize>(), 2 * (WAITING_MAX + 10));
        assert!(numbers.len() >= WAITING_MAX / 4 && progress <= PROGRESS_MAX);
        assert!(all.last().is_some_and(|line| line.contains("not shown")));
        // With room again there is nothing more to tell.
        talk.put(Said::Talk("back".to_owned()));
        assert_eq!(bench.read_all(), ["back\n"]);
    }

    #[test]
    fn of_screens_that_wait_the_latest_is_drawn_over_the_one_before() {
        let bench = Bench::new();
        let talk = bench.talk;
        talk.put(Said::Screen("1\n1".to_owned()));
        assert_eq!(bench.read_all(), ["1\n1\n"]);
        talk.put(Said::Talk("a warning".to_owned()));
        (2..5).for_each(|n| talk.put(Said::Screen(format!("{n}\n{n}"))));
        assert_eq!(
            bench.read_all(),
            ["a warning\n", "4\n4\n"],
            "the warning stays above"
        );
        talk.put(Said::Screen("5".to_owned()));
        assert_eq!(bench.read_all(), ["\x1b[2A\x1b[J5\n"]);
    }

    #[test]
    fn a_reader_is_not_waited_for_beyond_what_was_said() {
        let talk = Bench::new().talk;
        talk.flush(|_| panic!("there is nothing to wait for"));
        talk.put(Said::Talk("never read".to_owned()));
        let mut looks = 0;
        talk.flush(|_| {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }
}
