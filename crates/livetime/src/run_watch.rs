//! The watch over a run that goes on: until its source ends, somebody ends it, or it cannot go on.
//!
//! [`RunWatch`] looks at the chain every [`LOOK`]: signals, orders, what went away, the counters for
//! display and rates. What it decides is when the run ends and [how](Ending); the books are closed by
//! the verb.

use std::time::{Duration, Instant};

use livetime_node::process::{FilterChange, Incident, OnLoss};
use livetime_node::stream_mender::CutStream;
use livetime_node::{Chain, Snapshot};
use livetime_store::{NOTES_MAX, RunNote};
use livetime_wire::{DurationNs, UnitId, UnitKind};
use signal_hook::iterator::Signals;

use crate::console::say;
use crate::ending_signal::is_hang_up;
use crate::run_control::{Order, RunControl};
use crate::run_histograms::HistogramFile;
use crate::run_live::LiveDisplay;
use crate::run_rates::RunRates;
use crate::run_status::{RunStatus, full_in_words, writer_in_words};

/// How often the driver looks at the chain.
const LOOK: Duration = Duration::from_millis(20);

/// Why the run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    SourceFinished,
    Interrupted,
    Killed,
    WriterFailed,
    /// What was going on meanwhile, an end by the operator perhaps.
    RoleLost {
        is_interrupted: bool,
    },
    Stuck {
        is_interrupted: bool,
    },
}

impl Ending {
    /// What is wrong about it; `patience` is how long nothing moved in a drain that is stuck.
    pub(crate) fn trouble(self, patience: Duration) -> Option<String> {
        match self {
            Self::RoleLost { .. } => Some("a role was lost that a run needs".to_owned()),
            Self::Stuck { .. } => Some(format!("nothing moved for {patience:?} of the drain")),
            _ => None,
        }
    }

    /// Whether somebody has asked for it.
    pub(crate) fn is_by_operator(self) -> bool {
        match self {
            Self::Interrupted | Self::Killed => true,
            Self::RoleLost { is_interrupted } | Self::Stuck { is_interrupted } => is_interrupted,
            Self::SourceFinished | Self::WriterFailed => false,
        }
    }

    /// Whether nothing is waited for any more.
    pub(crate) fn is_at_once(self) -> bool {
        self == Self::Killed
    }
}

/// What a run is watched with.
pub(crate) struct RunWatch<'a> {
    pub(crate) running: &'a mut Chain,
    pub(crate) signals: &'a mut Signals,
    pub(crate) display: &'a mut LiveDisplay,
    pub(crate) histograms: &'a mut HistogramFile,
    /// Where orders come from, if the run takes any.
    pub(crate) control: Option<&'a RunControl>,
    /// What is noted of the run, by its order.
    pub(crate) notes: &'a mut Vec<RunNote>,
    /// How long nothing may move in a drain.
    pub(crate) patience: Duration,
}

/// What has become of the run so far.
struct Course {
    /// Why it ends, once it does: what is on its way passes.
    ending: Option<Ending>,
    /// An order has ended it at once.
    is_aborted: bool,
    rates: RunRates,
    /// The counters when something last moved in the drain, once there is one.
    moved: Option<(Snapshot, Instant)>,
    /// Writers that waited for room at the last look.
    were_full: Vec<String>,
    /// Likewise that of the trigger packets.
    were_packets_full: bool,
    had_packets_failed: bool,
    had_filter_failed: bool,
}

impl RunWatch<'_> {
    /// Watches the chain until it has drained or is to end by force; why, and its rates over time.
    pub(crate) fn until_end(mut self) -> (Ending, RunRates) {
        let rates = RunRates::new(self.running.taking_from());
        let mut course = Course {
            ending: None,
            is_aborted: false,
            rates,
            moved: None,
            were_full: Vec::new(),
            were_packets_full: false,
            had_packets_failed: false,
            had_filter_failed: false,
        };
        loop {
            std::thread::sleep(LOOK);
            if let Some(ending) = self.look(&mut course) {
                return (ending, course.rates);
            }
        }
    }

    /// One look; says how the run has ended, if it has.
    fn look(&mut self, course: &mut Course) -> Option<Ending> {
        self.heed_signals(course);
        if course.is_aborted {
            return Some(Ending::Killed);
        }
        if course.ending.is_none() && self.running.has_writer_failed() {
            self.end(Ending::WriterFailed, course);
        }
        if course.ending.is_none() && self.running.is_source_finished() {
            self.end(Ending::SourceFinished, course);
        }
        let is_interrupted = course.ending == Some(Ending::Interrupted);
        let goes_on = goes_on(self.running);
        if self.running.is_ended_at_once() {
            return Some(Ending::Killed);
        }
        if !goes_on {
            // Whoever ends a service may tell its roles as well, and they were quicker.
            let is_interrupted = is_interrupted || self.signals.pending().next().is_some();
            return Some(Ending::RoleLost { is_interrupted });
        }
        let mended = self.running.take_mended_streams();
        mended.iter().for_each(report_mended);
        for reason in self.running.take_streams_away() {
            say(format_args!("\nwarning: a cut stream stays away: {reason}"));
        }
        // When it is known who has gone: a place that is free again can be taken.
        if let Some(control) = self.control {
            control.serve(|order| self.obey(order, course));
        }
        if course.is_aborted {
            return Some(Ending::Killed);
        }
        let now = self.running.snapshot();
        let shown = self.running.with_dead(&now);
        course.rates.look(&shown, course.ending.is_some());
        self.display.show(&shown, self.running.is_paused());
        self.histograms.write_if_due(self.running);
        say_if_full(&now, self.running, &mut course.were_full);
        say_if_packets_full(&now, &mut course.were_packets_full);
        say_if_packets_failed(&now, &mut course.had_packets_failed);
        say_if_filter_failed(&now, &mut course.had_filter_failed);
        if course.ending.is_some() && self.running.is_drained() {
            return course.ending;
        }
        if course.ending.is_none() && !self.running.has_source_ended() {
            return None;
        }
        if stands_still(&mut course.moved, now, Instant::now(), self.patience) {
            for obstacle in self.running.drain_obstacles() {
                say(format_args!("warning: the drain stands still: {obstacle}"));
            }
            return Some(Ending::Stuck { is_interrupted });
        }
        None
    }

    fn end(&self, why: Ending, course: &mut Course) {
        course.ending = Some(why);
        self.running.stop();
    }

    fn interrupt(&self, course: &mut Course) {
        say("\nstopping: the run ends in order; once more ends it at once");
        self.end(Ending::Interrupted, course);
    }

    fn heed_signals(&mut self, course: &mut Course) {
        let signals: Vec<i32> = self.signals.pending().collect();
        for signal in signals {
            if course.ending != Some(Ending::Interrupted) {
                self.interrupt(course);
            } else if !is_hang_up(signal) {
                course.is_aborted = true;
            }
        }
    }

    /// Keeps what an operator notes.
    fn note(&mut self, text: &str) -> Result<String, String> {
        if self.notes.len() >= NOTES_MAX {
            return Err(format!("the run has {NOTES_MAX} notes, the most allowed"));
        }
        let at = self.running.snapshot().at;
        let note = RunNote::new(at, text).map_err(|error| error.to_string())?;
        say(format_args!("\nnote: {}", note.text));
        self.notes.push(note);
        Ok(format!("noted at {}", DurationNs(at.0)))
    }

    /// Does what an operator or a program orders; what to answer.
    fn obey(&mut self, order: Order, course: &mut Course) -> Result<String, String> {
        let is_ending = course.ending.is_some() || course.is_aborted;
        match order {
            Order::Status => {
                let now = self.running.with_dead(&self.running.snapshot());
                let (rates, interval) = course.rates.present(&now);
                let state = RunStatus::state_of(is_ending, self.running.is_paused());
                let status = RunStatus::new(self.running.run(), state, &now, rates, interval);
                let status = status.with_notes(self.notes);
                serde_json::to_string(&status).map_err(|error| error.to_string())
            }
            Order::Note(text) => self.note(&text),
            Order::Abort => {
                say("\nstopping: the run ends at once");
                course.is_aborted = true;
                Ok("the run ends at once".to_owned())
            }
            _ if is_ending => Err("the run is ending already".to_owned()),
            Order::Stop => {
                self.interrupt(course);
                Ok("the run ends in order".to_owned())
            }
            Order::Pause => {
                self.running.pause()?;
                say("\npaused: triggers are held back until the order `resume`");
                Ok("the run is paused; what is on its way passes".to_owned())
            }
            Order::Resume => {
                self.running.resume()?;
                say("\nthe run takes triggers again");
                Ok("the run takes triggers again".to_owned())
            }
            Order::AddFilter => {
                let unit = self.running.steer_filters(FilterChange::Add)?;
                Ok(format!("{unit} has joined"))
            }
            Order::RemoveFilter(unit) => {
                let unit = self.running.steer_filters(FilterChange::Remove(unit))?;
                Ok(format!("{unit} is leaving"))
            }
        }
    }
}

/// Says when the disk of a run file has become full, or has room again.
fn say_if_full(now: &Snapshot, running: &Chain, were_full: &mut Vec<String>) {
    let writers = now.kind("wr").count();
    let in_words = |id: &String| writer_in_words(id, running.host_of(id), writers);
    let full: Vec<String> = now.full_writers().map(str::to_owned).collect();
    if full.iter().any(|writer| !were_full.contains(writer)) {
        let named: Vec<String> = full.iter().map(in_words).collect();
        say(format_args!(
            "\nwarning: {}",
            full_in_words(&named, writers)
        ));
    }
    // A writer that has given up waits no longer, and one that is dead; there is no room all the same.
    let goes_on = |id: &&String| {
        let mut roles = now.roles.iter();
        !full.contains(id) && roles.any(|(role, counts)| role == *id && counts.gauges.failed == 0)
    };
    for writer in were_full.iter().filter(goes_on) {
        say(format_args!(
            "\nthe disk of {} has room again",
            in_words(writer)
        ));
    }
    *were_full = full;
}

/// Says once that no trigger packets are recorded any more, although their disk has room.
fn say_if_packets_failed(now: &Snapshot, had_failed: &mut bool) {
    let has_failed = now.kind("trg").any(|node| node.gauges.failed == 1);
    if has_failed && !std::mem::replace(had_failed, true) {
        say(
            "\nwarning: trigger packets cannot be written any more, so no more of them are recorded; \
             the run goes on",
        );
    }
}

/// Says once that a filter fails on events, when it begins: what it said is told at the end of the run.
fn say_if_filter_failed(now: &Snapshot, had_failed: &mut bool) {
    let failing = now.roles.iter();
    let mut failing = failing.filter(|(_, counts)| counts.gauges.filter_failures > 0);
    if let Some((unit, _)) = failing.next()
        && !std::mem::replace(had_failed, true)
    {
        say(format_args!(
            "\nwarning: the filter failed on an event ({unit}); such events go to the error stream, the \
             status of the run counts them, and its summary says why"
        ));
    }
}

/// Says when the disk of the trigger packets has become full, or has room again.
fn say_if_packets_full(now: &Snapshot, was_full: &mut bool) {
    let is_full = now.kind("trg").any(|node| node.gauges.disk_full == 1);
    match (std::mem::replace(was_full, is_full), is_full) {
        (false, true) => say(
            "\nwarning: the disk of the trigger packets has no room; they are recorded again when \
             there is",
        ),
        (true, false) => say("\nthe disk of the trigger packets has room again"),
        _ => {}
    }
}

/// Deals with what went away since the last look and says so; `false` when the run has to end.
fn goes_on(running: &mut Chain) -> bool {
    let incidents = running.supervise();
    // Who has died beside the one that ends the run is named as well.
    incidents.iter().for_each(report_incident);
    if incidents.iter().any(|incident| incident.handled.is_err()) {
        return false;
    }
    for cut in running.mend_streams() {
        report_cut(&cut);
        if cut.mended.is_err() {
            return false;
        }
    }
    true
}

/// Says between which units a stream of the event builder or of a data link was cut.
fn report_mended((a, b): &(UnitId, UnitId)) {
    let name = |unit: &UnitId| match unit.kind {
        // All of them are of one role; faults name them so.
        UnitKind::Source => format!("data link {}", unit.index),
        _ => unit.to_string(),
    };
    let (a, b) = (name(a), name(b));
    say(format_args!(
        "\nwarning: the stream between {a} and {b} was cut; another took its place"
    ));
}

/// Says which stream was cut.
fn report_cut(CutStream { from, to, mended }: &CutStream) {
    match mended {
        Ok(()) => say(format_args!(
            "\nwarning: the stream from {from} to {to} was cut; another took its place, and what was \
             not answered is sent again"
        )),
        Err(reason) => say(format_args!(
            "\nerror: the stream from {from} to {to} was cut; the run ends: {reason}"
        )),
    }
}

/// Says which process died and what was done.
fn report_incident(incident: &Incident) {
    let Incident {
        role,
        exit,
        holds_dropped,
        event,
        given_up,
        handled,
        at_end,
    } = incident;
    let mut pages = match holds_dropped {
        0 => String::new(),
        held => format!(", {held} page holds dropped"),
    };
    match event {
        Some(event) if handled.is_err() => pages += &format!(", it had event {event}"),
        Some(event) if *given_up => {
            pages += &format!(", event {event} goes to the error stream");
        }
        Some(event) => pages += &format!(", event {event} is given to another"),
        None => {}
    }
    match handled {
        Ok(OnLoss::Restart) => say(format_args!(
            "\nwarning: the process of {role} is gone ({exit}){pages}; another took its place"
        )),
        Ok(_) if *at_end => say(format_args!(
            "\nwarning: the process of {role} is gone ({exit}){pages}; the run is ending, and nobody \
             takes its place"
        )),
        Ok(_) => say(format_args!(
            "\nwarning: the process of {role} is gone ({exit}){pages}; the others go on"
        )),
        Err(reason) => say(format_args!(
            "\nerror: the process of {role} is gone ({exit}){pages}; the run ends: {reason}"
        )),
    }
}

/// Whether nothing has moved in a drain for so long. The first look at one begins the time: what a run did
/// before its end, or did not, says nothing about it.
fn stands_still(
    moved: &mut Option<(Snapshot, Instant)>,
    now: Snapshot,
    at: Instant,
    patience: Duration,
) -> bool {
    match moved {
        Some((before, since)) if !has_moved(before, &now) => at.duration_since(*since) > patience,
        _ => {
            *moved = Some((now, at));
            false
        }
    }
}

/// A filter in Python tells nothing of a batch before it has judged all of it: what it fails on is found
/// in many steps, each of which has its limit.
fn has_moved(before: &Snapshot, now: &Snapshot) -> bool {
    before.counts() != now.counts()
        || before.losses() != now.losses()
        || filter_work(before) != filter_work(now)
}

fn filter_work(snapshot: &Snapshot) -> u64 {
    let roles = snapshot.roles.iter();
    roles.map(|(_, role)| role.gauges.filter_work_ns).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_rates::tests::snapshot;

    #[test]
    fn the_patience_of_a_drain_begins_with_it_and_with_all_that_moves() {
        let (patience, begin) = (Duration::from_secs(20), Instant::now());
        let mut moved = None;
        let mut look = |seconds: u64, count: u64| {
            let at = begin + Duration::from_secs(seconds);
            stands_still(&mut moved, snapshot(seconds, count), at, patience)
        };
        // However long the run has taken nothing before it.
        assert!(!look(3600, 0));
        assert!(!look(3620, 0));
        assert!(!look(3621, 1));
        assert!(!look(3641, 1));
        assert!(look(3642, 1));
    }

    #[test]
    fn work_of_a_filter_is_no_standstill() {
        let before = snapshot(0, 100);
        let mut now = snapshot(50, 100);
        assert!(!has_moved(&before, &now), "time alone is nothing");
        now.roles[0].1.gauges.filter_work_ns = 50;
        assert!(has_moved(&before, &now));
    }
}
