//! A filter in Python: the rows of bench `farm` about events per second and time per batch.
//!
//! A filter unit of the run, with its interpreter as `livetime run` starts it, is fed through its
//! rings with events of 2 KiB from pages that were filled before. A thread pinned to one core is
//! the unit's worker, and stands for builder unit and writer as well; the interpreter is where the
//! system puts it. Two filters: the dimuon selection of the package on batches of 256, and one that
//! looks at nothing. What a batch costs beyond the user's code is the whole time per batch less the
//! time in the filter's function, that of making its columns not included. Without an interpreter
//! that has the package the figures are null, and the reason is given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use livetime_node::counter_block::CounterBlock;
use livetime_node::message_ring::Outbox;
use livetime_node::python_filter::batch_filter::BatchBounds;
use livetime_node::python_filter::interpreter::Surroundings;
use livetime_node::python_filter::{BatchFilter, PythonConfig, default_interpreter};
use livetime_node::role::Role;
use livetime_node::role::filter::{FilterUnit, FilterUnitParts, UnitFilter};
use livetime_node::run_clock::RunClock;
use livetime_node::worker::Phase;
use livetime_shm::{
    Consumer, Doorbell, HugePages, PageIndex, PagePool, PoolConfig, Producer, RingConfig,
    WaitStrategy, Waiter, heap_ring,
};
use livetime_source::{
    FragmentConfig, FragmentTrigger, FragmentWriter, PhysicsConfig, PhysicsGenerator, SourceEvent,
};
use livetime_wire::message::{
    BuilderMessage, Envelope, EventTicket, FragmentDescriptor, MESSAGE_WORDS_MAX,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{ByteSize, RunNs, RunNumber, SourceId, TriggerNumber, UnitId};
use serde_json::json;

use super::document::{BenchDocument, Target, median, rounded};
use super::pinned_threads::run_alone;
use super::{BenchError, BenchOptions};

/// What is measured, as users would write it.
const FILTERS: &str = "\
import numpy as np
import livetime

@livetime.filter(batch=256)
def dimuon(events):
    mass = livetime.candidates.dimuon(events).mass
    return (mass > 70) & (mass < 110)

@livetime.filter(batch=256)
def null(events):
    return np.ones(len(events), bool)
";
const BATCH: u64 = 256;
const SOURCE: SourceId = SourceId(0x51_0000);
const EVENT_BYTES: u64 = 2048;
const PAGES: u32 = 4096;
const PAGE_BYTES: u32 = 4096;
/// Events that the unit may have at once: some batches.
const IN_FLIGHT: usize = 4 * BATCH as usize;
/// A unit that does nothing for so long never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one run of a filter did.
#[derive(Debug, Clone, Copy)]
struct Judged {
    events_per_s: f64,
    batch_us: f64,
    /// Of it in the user's function.
    user_us: f64,
    kept: u64,
}

/// Measures and adds the rows.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when an event is lost.
pub(crate) fn add_rows(
    document: &mut BenchDocument,
    options: &BenchOptions,
) -> Result<(), BenchError> {
    let (runs, batches) = if options.quick { (1, 8) } else { (3, 1_500) };
    let interpreter = default_interpreter();
    let (mut events_per_s, mut overhead_us) = (f64::NAN, f64::NAN);
    match refusal(&interpreter) {
        Some(reason) => {
            document.add_result("python_filter", json!({ "measured": false, "why": reason }))
        }
        None => {
            for name in ["dimuon", "null"] {
                let measured: Result<Vec<Judged>, BenchError> = (0..runs)
                    .map(|_| filter_events(options, &interpreter, name, batches))
                    .collect();
                let measured = measured?;
                let figure = |figure: fn(&Judged) -> f64| {
                    median(&measured.iter().map(figure).collect::<Vec<f64>>())
                };
                let (rate, batch_us) = (figure(|run| run.events_per_s), figure(|run| run.batch_us));
                let beyond_us = figure(|run| run.batch_us - run.user_us);
                if name == "dimuon" {
                    (events_per_s, overhead_us) = (rate, beyond_us);
                }
                document.add_result(
                    format!("python_filter_{name}"),
                    json!({
                        "measured": true,
                        "event_bytes": EVENT_BYTES,
                        "batch": BATCH,
                        "runs": runs,
                        "batches_per_run": batches,
                        "events_per_s": rounded(rate),
                        "us_per_batch": rounded(batch_us),
                        "us_per_batch_in_the_users_code": rounded(figure(|run| run.user_us)),
                        "us_per_batch_beyond_it": rounded(beyond_us),
                        "events_kept": measured.iter().map(|run| run.kept).sum::<u64>(),
                    }),
                );
            }
        }
    }
    document.add_target(Target::at_least("python_events_per_s", events_per_s, 100e3));
    let name = "python_us_per_batch_beyond_the_users_code";
    document.add_target(Target::at_most(name, overhead_us, 200.0));
    Ok(())
}

/// Why an interpreter cannot be used, if it cannot.
fn refusal(interpreter: &Path) -> Option<String> {
    let name = interpreter.display();
    match Command::new(interpreter)
        .args(["-c", "import livetime"])
        .output()
    {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default().to_owned();
            Some(format!(
                "{name} does not have the package `livetime`: {last}"
            ))
        }
        Err(error) => Some(format!("{name} cannot be started: {error}")),
    }
}

/// A folder with the filters, and what the interpreter keeps beside them, that is removed whatever
/// happens.
struct FilterFolder(PathBuf);

impl FilterFolder {
    fn write(directory: &Path) -> Result<Self, BenchError> {
        let folder = Self(directory.join(format!("livetime-bench-{}", std::process::id())));
        let written = std::fs::create_dir_all(&folder.0);
        let written = written.and_then(|()| std::fs::write(folder.file(), FILTERS));
        let failed = |source| BenchError::File {
            step: "writing a filter",
            source,
        };
        written.map(|()| folder).map_err(failed)
    }

    fn file(&self) -> PathBuf {
        self.0.join("bench_filters.py")
    }
}

impl Drop for FilterFolder {
    fn drop(&mut self) {
        let _already_gone = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts filter and unit, and has so many batches of events judged.
fn filter_events(
    options: &BenchOptions,
    interpreter: &Path,
    function: &str,
    batches: u64,
) -> Result<Judged, BenchError> {
    let folder = FilterFolder::write(&options.directory)?;
    let config = PythonConfig {
        interpreter: interpreter.to_owned(),
        ..PythonConfig::new(folder.file(), function.to_owned())
    };
    let pool = PagePool::create(&PoolConfig {
        pages: PAGES,
        page_bytes: PAGE_BYTES,
        huge_pages: HugePages::Prefer,
    })?;
    let events = fill_pages(&pool)?;
    let bounds = BatchBounds {
        sources: 1,
        event_words: (PAGE_BYTES / 4) as usize,
        events: IN_FLIGHT,
    };
    let bell = Doorbell::in_process();
    let surroundings = Surroundings {
        bell: Some(bell.clone()),
        faults: Vec::new(),
    };
    // Started before its unit has a core of its own, as in a run: it would inherit the place.
    let filter = BatchFilter::start("fu0", &config, bounds, vec![pool.clone()], surroundings)?;
    let mut bench = FilterBench::new(filter, pool, events)?;
    let mut waiter = Waiter::with_doorbell(WaitStrategy::Adaptive, bell);
    let (seconds, judged) = run_alone(|| {
        // The first batches find cold memory on both sides.
        bench.take(2 * BATCH, &mut waiter)?;
        let before = bench.user_ns();
        let begin = Instant::now();
        bench.take(batches * BATCH, &mut waiter)?;
        Ok((begin.elapsed().as_secs_f64(), bench.user_ns() - before))
    })?;
    Ok(Judged {
        events_per_s: (batches * BATCH) as f64 / seconds,
        batch_us: seconds * 1e6 / batches as f64,
        user_us: judged as f64 / 1e3 / batches as f64,
        kept: bench.kept,
    })
}

/// An event of the physics generator in each page.
fn fill_pages(pool: &PagePool) -> Result<Vec<FragmentDescriptor>, BenchError> {
    let config = FragmentConfig {
        bytes_mean: ByteSize(EVENT_BYTES),
        bytes_max: ByteSize(EVENT_BYTES),
        log_sigma: 0.0,
        ..FragmentConfig::default()
    };
    let generator = PhysicsGenerator::new(PhysicsConfig::default(), 1);
    let mut writer = FragmentWriter::new(&config, 1, RunNumber(1), &[SOURCE]);
    let (mut event, mut words) = (SourceEvent::new(), Vec::new());
    let mut fill = |page: u32| {
        let index = u64::from(page);
        generator.event(index, &mut event);
        let trigger = FragmentTrigger {
            trigger: TriggerNumber(index + 1),
            bunch: 0,
            trigger_type: 1,
            event_type: 0,
        };
        writer.write(&event, index, 0, &trigger, &mut words);
        let mut place = pool.write(PageIndex(page))?;
        place[..words.len()].copy_from_slice(&words);
        place.finish();
        Ok(FragmentDescriptor {
            source: SOURCE,
            pool: 0,
            words: words.len() as u32,
            status: FragmentStatus::GOOD,
            crc: 0,
            pages: [page].into_iter().collect(),
        })
    };
    (0..pool.page_count()).map(&mut fill).collect()
}

/// A filter unit between rings whose other ends are here.
struct FilterBench {
    unit: FilterUnit,
    events: Vec<FragmentDescriptor>,
    tickets: Producer,
    answers: Consumer,
    ticket: EventTicket,
    words: Vec<u32>,
    begin: Instant,
    handed: u64,
    returned: u64,
    kept: u64,
}

impl FilterBench {
    fn new(
        filter: BatchFilter,
        pool: PagePool,
        events: Vec<FragmentDescriptor>,
    ) -> Result<Self, BenchError> {
        let ring = |slot_words: usize| {
            heap_ring(&RingConfig {
                slots: IN_FLIGHT as u32,
                slot_words: slot_words as u32,
            })
        };
        let (tickets, tickets_in) = ring(EventTicket::words_max(1, 1))?;
        let (answers_out, answers) = ring(MESSAGE_WORDS_MAX)?;
        let parts = FilterUnitParts {
            id: "fu0".to_owned(),
            unit: UnitId::filter(0),
            tickets: vec![Some(tickets_in)],
            streams: None,
            pools: vec![pool],
            bell: None,
            clock: RunClock::start(),
            outbox: Outbox::new(vec![(UnitId::builder(0), answers_out)]),
            block: CounterBlock::new(),
            sources: 1,
            epoch: 1,
            credits: IN_FLIGHT,
            first_step: None,
        };
        Ok(Self {
            unit: FilterUnit::new(parts, UnitFilter::Batch(Box::new(filter))),
            events,
            tickets,
            answers,
            ticket: EventTicket::with_capacity(1),
            words: Vec::new(),
            begin: Instant::now(),
            handed: 0,
            returned: 0,
            kept: 0,
        })
    }

    /// Has so many further events judged.
    fn take(&mut self, events: u64, waiter: &mut Waiter) -> Result<(), BenchError> {
        let wanted = self.handed + events;
        let mut moved_at = Instant::now();
        while self.returned < wanted {
            let before = self.returned;
            let mut work = self.hand_over(wanted)?;
            let now = RunNs(self.begin.elapsed().as_nanos() as u64);
            work += self.unit.poll(now, Phase::Running);
            work += self.answer()?;
            if self.returned > before {
                moved_at = Instant::now();
            } else if moved_at.elapsed() > PATIENCE {
                return Err(BenchError::Stuck);
            }
            waiter.after(work);
        }
        match self.returned {
            found if found == wanted => Ok(()),
            found => Err(BenchError::Conservation {
                what: "events through a filter in Python",
                found,
                expected: wanted,
            }),
        }
    }

    /// As the builder unit: tickets, as long as the unit may have more.
    fn hand_over(&mut self, wanted: u64) -> Result<usize, BenchError> {
        let mut work = 0;
        while self.handed < wanted && self.handed - self.returned < IN_FLIGHT as u64 {
            let event = &self.events[(self.handed % self.events.len() as u64) as usize];
            self.handed += 1;
            self.ticket.trigger = TriggerNumber(self.handed);
            self.ticket.fragments.clear();
            self.ticket.fragments.push(event.clone());
            self.ticket.emit(&mut self.words);
            self.tickets.try_push(&self.words)?;
            work += 1;
        }
        Ok(work)
    }

    /// As the builder unit, which frees each event when it hears of it.
    fn answer(&mut self) -> Result<usize, BenchError> {
        let mut work = 0;
        while let Some(envelope) = self.answers.try_pop(Envelope::parse)? {
            work += 1;
            match envelope.map(|envelope| envelope.message) {
                Ok(BuilderMessage::EventDone { triggers }) => {
                    self.returned += triggers.len() as u64;
                }
                Ok(BuilderMessage::EventsAccepted { events }) => {
                    self.returned += events.len() as u64;
                    self.kept += events.len() as u64;
                }
                _ => {}
            }
        }
        Ok(work)
    }

    /// Time in the user's function so far \[ns\].
    fn user_ns(&self) -> u64 {
        let details: BTreeMap<String, u64> = self.unit.filter_details();
        details.get("filter.time_ns").copied().unwrap_or(0)
    }
}
