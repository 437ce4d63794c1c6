//! `builder --scale`: the event builder on ever more cores, each unit on a thread of its own.
//!
//! As many readout units as builder units, four sources each, fragments of 2 KiB: twice as many units
//! build events of twice as many fragments, as a larger detector has them. The event manager has a
//! thread, too. Readout units take triggers as they have pages, the event manager as its queue has
//! room; none of them knows of the others but by messages. Over shared memory page numbers go through
//! rings; the floor is such a message made, sent and parsed on one core. Over TCP payload goes through
//! a stream for each pair, beside bare TCP with as many streams and threads. Sizes with more threads
//! than there are cores are left out, but for the first one.
//!
//! ```text
//! event manager ── assignments ──► builder unit, n times ── requests, releases ──► readout unit, n times
//!   1 thread     ◄─── credits ───     n threads          ◄────── fragments ─────      n threads
//! ```

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use livetime_shm::{TscClock, cpus_apart};
use livetime_wire::{RunNs, TriggerNumber};
use serde_json::{Map, Value};

use super::builder::{Builders, Shape, message_floor};
use super::builder_grid::{Size, add_loss_target, measure_tcp, name, shared_cell};
use super::builder_rings::message_ring;
use super::document::{BenchDocument, median, rounded};
use super::interleave::{LIKE_FLOORS, interleave};
use super::pinned_threads::{Body, Patience, run_alone, time_each};
use super::raw_tcp::Threads;
use super::{BenchError, BenchOptions};

/// Words of a fragment: 2 KiB.
const FRAGMENT_WORDS: usize = 512;
/// Messages of a block of the floor.
const FLOOR_MESSAGES: u32 = 20_000;
/// Units of either kind at most.
const UNITS_MAX: u16 = 64;

/// A unit that takes part in every trigger: the event manager or a readout unit.
pub(super) trait TriggeredUnit: Send {
    /// Takes the next trigger; `false` where it has no room for it.
    fn take(&mut self, now: RunNs, trigger: TriggerNumber) -> Result<bool, BenchError>;
    /// One duty cycle; the work done.
    fn poll(&mut self, now: RunNs) -> usize;
    /// Whether it has nothing that anybody waits for.
    fn is_idle(&self) -> bool;
}

/// A duty cycle of a builder unit with its filter unit; the work done.
pub(super) type BuilderDriver<'a> = Box<dyn FnMut(RunNs) -> Result<usize, BenchError> + Send + 'a>;

/// The units of an event builder, each for a thread of its own.
pub(super) struct UnitsApart<'a> {
    /// What is to be built.
    pub(super) triggers: Range<u64>,
    /// The event manager and the readout units.
    pub(super) triggered: Vec<&'a mut dyn TriggeredUnit>,
    pub(super) builders: Vec<BuilderDriver<'a>>,
}

impl UnitsApart<'_> {
    /// Builds all events and waits until nothing is on its way; the time of a fragment \[ns\].
    pub(super) fn build(self, shape: Shape) -> Result<f64, BenchError> {
        let Self {
            triggers,
            triggered,
            builders,
        } = self;
        let fragments = (triggers.end - triggers.start) * shape.sources();
        let clock = TscClock::of_process();
        // Builder units go on until nobody needs them.
        let at_work = &AtomicUsize::new(triggered.len());
        let mut bodies: Vec<Body<'_>> = Vec::new();
        for unit in triggered {
            let triggers = triggers.clone();
            bodies.push(Box::new(move |patience| {
                let result = serve(unit, triggers, clock, patience);
                // Release pairs with the loads of builder units; no data goes with it.
                at_work.fetch_sub(1, Ordering::Release);
                result
            }));
        }
        for mut poll in builders {
            bodies.push(Box::new(move |mut patience| {
                while at_work.load(Ordering::Acquire) > 0 {
                    patience.after(poll(RunNs(clock.now_ns()))? > 0)?;
                }
                Ok(())
            }));
        }
        Ok(1e9 * time_each(bodies)? / fragments as f64)
    }
}

/// Drives a unit until it has taken all triggers and is through with them.
fn serve(
    unit: &mut dyn TriggeredUnit,
    mut triggers: Range<u64>,
    clock: TscClock,
    mut patience: Patience<'_>,
) -> Result<(), BenchError> {
    loop {
        let now = RunNs(clock.now_ns());
        let mut work = 0;
        while !triggers.is_empty() && unit.take(now, TriggerNumber(triggers.start))? {
            triggers.start += 1;
            work += 1;
        }
        work += unit.poll(now);
        if work == 0 && triggers.is_empty() && unit.is_idle() {
            return Ok(());
        }
        patience.after(work > 0)?;
    }
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a fragment is lost.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let mut document = BenchDocument::new("builder");
    let cores = cpus_apart().len();
    let mut cells = Vec::new();
    let mut of_one: [Option<f64>; 2] = [None, None];
    for units in sizes(cores) {
        let shape = Shape {
            readout_units: units,
            builder_units: units,
            fragment_words: FRAGMENT_WORDS,
        };
        let size = match options.quick {
            true => Size {
                blocks: 1,
                events: 40,
            },
            false => Size {
                blocks: 25,
                events: 16_000,
            },
        };
        let measured = [
            shm_cell(&mut document, shape, &size)?,
            tcp_cell(&mut document, shape, &size)?,
        ];
        for ((mut cell, rate), one) in measured.into_iter().zip(&mut of_one) {
            let one = *one.get_or_insert(rate);
            cell.insert("threads".to_owned(), threads(units).into());
            cell.insert("cores".to_owned(), cores.into());
            let of_unit = rate / one / f64::from(units);
            cell.insert("rate_per_unit_to_1x1".to_owned(), rounded(of_unit));
            cells.push(Value::from(cell));
        }
    }
    document.add_result("scale", Value::Array(cells));
    Ok(document)
}

/// Threads of so many readout and builder units.
fn threads(units: u16) -> usize {
    2 * usize::from(units) + 1
}

/// How many units of either kind there are: one, powers of two, and as many as have cores of their own.
fn sizes(cores: usize) -> Vec<u16> {
    let fitting = |units: &u16| *units <= UNITS_MAX && threads(*units) <= cores;
    let powers = (1..).map(|power| 1 << power).take_while(fitting);
    let mut sizes: Vec<u16> = std::iter::once(1).chain(powers).collect();
    sizes.extend((1..=UNITS_MAX).rev().find(fitting));
    sizes.dedup();
    sizes
}

/// Page numbers through rings; the cell and the fragments a second.
fn shm_cell(
    document: &mut BenchDocument,
    shape: Shape,
    size: &Size,
) -> Result<(Map<String, Value>, f64), BenchError> {
    let units = RefCell::new(Builders::new(shape)?);
    let build = || units.borrow_mut().apart(size.events).build(shape);
    build()?;
    let mut ring = message_ring(64)?;
    let measured = interleave(
        size.blocks,
        LIKE_FLOORS,
        || run_alone(|| message_floor(&mut ring, FLOOR_MESSAGES)),
        build,
        |floor| *floor,
    )?;
    let selection = measured.select(|floor| *floor, |_| ());
    let times = selection.all(|kept| *kept.block);
    let of_units = f64::from(shape.readout_units);
    let to_message = selection.quotient(|kept| (of_units * kept.block, kept.floor(|floor| *floor)));
    let account = units.borrow().account()?;
    let mut cell = shared_cell(shape, &times);
    cell.insert("blocks".to_owned(), selection.to_json());
    let name = apart_name("shm", shape);
    let floor = selection.median(|kept| kept.floor(|floor| *floor));
    document.add_floor(format!("message_{name}_ns"), rounded(floor));
    document.add_quotient(format!("{name}_fragment_of_a_unit_to_message"), to_message);
    let lost = account.lost + account.incomplete;
    add_loss_target(document, &mut cell, &name, lost);
    Ok((cell, 1e9 / median(&times)))
}

/// Payload through streams, between blocks of bare TCP.
fn tcp_cell(
    document: &mut BenchDocument,
    shape: Shape,
    size: &Size,
) -> Result<(Map<String, Value>, f64), BenchError> {
    let name = apart_name("tcp", shape);
    let measured = measure_tcp(document, &name, shape, size, Threads::OfUnits)?;
    let (mut cell, account) = (measured.cell, measured.account);
    let lost = account.lost + account.incomplete;
    add_loss_target(document, &mut cell, &name, lost);
    Ok((cell, measured.rate))
}

fn apart_name(transport: &str, shape: Shape) -> String {
    format!("{}_apart", name(transport, shape))
}

#[cfg(test)]
mod tests {
    use super::super::builder_network::{Carrier, NetworkBuilders};
    use super::super::raw_tcp::RawTcp;
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_as_many_as_have_cores() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(4), [1]);
        assert_eq!(sizes(5), [1, 2]);
        assert_eq!(sizes(16), [1, 2, 4, 7]);
        assert_eq!(sizes(17), [1, 2, 4, 8]);
        assert_eq!(sizes(1000), [1, 2, 4, 8, 16, 32, 64]);
    }

    /// With more threads than cores, too.
    #[test]
    fn every_event_is_whole_with_each_unit_on_its_thread() {
        let shape = Shape {
            readout_units: 3,
            builder_units: 2,
            fragment_words: 64,
        };
        let mut units = Builders::new(shape).unwrap();
        for _ in 0..2 {
            assert!(units.apart(150).build(shape).unwrap() > 0.0);
        }
        let account = units.account().unwrap();
        assert_eq!(
            (account.built, account.incomplete, account.lost),
            (300, 0, 0)
        );
        let mut units = NetworkBuilders::new(shape, Carrier::Tcp).unwrap();
        for _ in 0..2 {
            units.apart(150).build(shape).unwrap();
        }
        let account = units.account().unwrap();
        assert_eq!((account.incomplete, account.lost), (0, 0));
        let payload = 300 * shape.sources() * shape.fragment_bytes();
        assert_eq!(account.payload_received, payload);
        let mut raw = RawTcp::new(shape, units.pages_in_use()).unwrap();
        assert!(raw.measure(Threads::OfUnits, 50_000, 4096).unwrap() > 0.0);
    }
}
