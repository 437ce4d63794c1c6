//! What an operator sees while a run goes on: one screen on a terminal, a line elsewhere.
//!
//! It reads snapshots and draws; the numbers are those of the roles' counters. The screen is
//! redrawn in place and says how old its data are by being redrawn at all.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use livetime_node::{ChainConfig, RateSample, Snapshot};
use livetime_wire::{ChainCounts, DurationNs, RateHz};
use rustix::termios::tcgetwinsize;

use crate::console::{show_line, show_screen};
use crate::run_status::{FrontEndsNow, losses_so_far, row};
use crate::run_summary::{percent, share};

/// How often the screen is redrawn.
const SCREEN_EVERY: Duration = Duration::from_millis(500);
/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The live display of a run, on stderr.
pub(crate) struct LiveDisplay {
    terminal: bool,
    title: String,
    shown: Option<(Instant, Snapshot)>,
}

impl LiveDisplay {
    /// A display that suits what stderr is.
    pub(crate) fn new(chain: &ChainConfig) -> Self {
        let rate = chain.source.triggers.arrival.rate;
        let title = format!(
            "run {} · {} data links at {rate} · Ctrl-C ends the run in order",
            chain.run,
            chain.data_links.len()
        );
        Self {
            terminal: std::io::stderr().is_terminal(),
            title,
            shown: None,
        }
    }

    /// Shows a snapshot when it is time to, and whether an operator holds triggers back.
    pub(crate) fn show(&mut self, now: &Snapshot, is_paused: bool) {
        let every = if self.terminal {
            SCREEN_EVERY
        } else {
            LINE_EVERY
        };
        let Some((shown_at, before)) = &self.shown else {
            self.shown = Some((Instant::now(), now.clone()));
            return;
        };
        if shown_at.elapsed() < every {
            return;
        }
        if let Some(rates) = RateSample::between(before, now) {
            let mut text = if self.terminal {
                screen(&self.title, before, now, &rates)
            } else {
                line(now, &rates)
            };
            if let Some(said) = FrontEndsNow::new(now).in_words() {
                text += &format!("  {said}");
            }
            if is_paused {
                text += "  paused";
            }
            self.draw(text);
        }
        self.shown = Some((Instant::now(), now.clone()));
    }

    fn draw(&self, text: String) {
        if !self.terminal {
            return show_line(text);
        }
        let size = tcgetwinsize(std::io::stderr()).ok();
        let cut = size.map(|size| cut(&text, size.ws_col.into(), size.ws_row.into()));
        show_screen(cut.unwrap_or(text));
    }
}

/// What of a screen has room on a terminal: a line that the terminal breaks, or one that it scrolls
/// away, could not be drawn over. Terminals that do not say their size say 0.
fn cut(text: &str, columns: usize, rows: usize) -> String {
    let all = |limit: usize| match limit {
        0 => usize::MAX,
        limit => limit,
    };
    // The cursor stands on a line of its own below them.
    let lines = text.lines().take(all(rows).saturating_sub(1).max(1));
    let lines = lines.map(|line| line.chars().take(all(columns)).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

fn line(now: &Snapshot, rates: &RateSample) -> String {
    let counts = now.counts();
    let incomplete = match counts.events_incomplete {
        0 => String::new(),
        events => format!(", {events} incomplete"),
    };
    format!(
        "{:6.1} s  {} triggers ({}, {} dead)  {} built{incomplete}  {} stored  {} lost{}",
        now.at.0 as f64 * 1e-9,
        counts.triggers,
        RateHz(rates.trigger_hz),
        percent(rates.refused_fraction, 1),
        counts.events_built,
        counts.events_stored,
        now.losses().total(),
        match now.died[..] {
            [] => "",
            // What went with the dead is counted when the run ends.
            _ => " so far",
        }
    )
}

/// The mean latency of a kind of role between two snapshots.
fn mean_latency(before: &Snapshot, now: &Snapshot, kind: &str) -> String {
    let sum = |snapshot: &Snapshot| {
        snapshot.kind(kind).fold((0, 0), |(ns, n), role| {
            (
                ns + role.gauges.latency_sum_ns,
                n + role.gauges.latency_count,
            )
        })
    };
    let ((ns0, n0), (ns1, n1)) = (sum(before), sum(now));
    match n1.saturating_sub(n0) {
        0 => "-".to_owned(),
        n => DurationNs(ns1.saturating_sub(ns0) / n).to_string(),
    }
}

/// Events that the builder units have closed, with all fragments or without some.
fn closed(counts: &ChainCounts) -> u64 {
    counts.events_built + counts.events_incomplete
}

fn screen(title: &str, before: &Snapshot, now: &Snapshot, rates: &RateSample) -> String {
    let counts = now.counts();
    let held = |kind: &str| now.kind(kind).map(|role| role.gauges.held).sum::<u64>();
    let pages = now.kind("ru").map(|role| role.gauges.held_max).sum::<u64>();
    let lost = losses_so_far(&(&now.losses()).into(), &now.died);
    let mut text = format!("{title}\n  {:<18}{:>12}{:>14}\n", "", "total", "now");
    text += &row(
        "triggers",
        counts.triggers,
        rates.trigger_hz,
        format!(
            "dead time {}, decision {}",
            percent(rates.refused_fraction, 2),
            mean_latency(before, now, "src")
        ),
    );
    text += &row(
        "Level-2 accepts",
        counts.l2_accepted,
        rates.l2_accept_hz,
        format!(
            "{} of triggers",
            percent(share(counts.l2_accepted, counts.triggers), 2)
        ),
    );
    let seconds = now.at.since(before.at).as_seconds();
    let [closed_before, closed] = [before.counts(), counts].map(|counts| closed(&counts));
    let closed_hz = closed.saturating_sub(closed_before) as f64 / seconds;
    text += &row(
        "events closed",
        closed,
        closed_hz,
        format!(
            "{} incomplete, {:.1} MB/s, build {}",
            counts.events_incomplete,
            rates.built_bytes_per_s / 1e6,
            mean_latency(before, now, "bu")
        ),
    );
    text += &row(
        "filter accepts",
        counts.filter_accepted,
        rates.filter_accept_hz,
        format!("{} stored in whole chunks", counts.events_stored),
    );
    text += &format!(
        "  fragments buffered {} of {pages} pages, events in building {}\n",
        held("ru"),
        held("bu")
    );
    text += &format!("  losses: {lost}\n");
    text += &format!("  {:.1} s", now.at.0 as f64 * 1e-9);
    text
}

#[cfg(test)]
mod tests {
    use livetime_node::counter_block::RoleCounts;
    use livetime_wire::RunNs;

    use super::*;

    /// A run in a pause, whose builder units have closed so many events, complete and incomplete ones.
    fn snapshot(at_s: u64, [built, incomplete]: [u64; 2]) -> Snapshot {
        let mut builder = RoleCounts::default();
        (builder.chain.events_built, builder.chain.events_incomplete) = (built, incomplete);
        Snapshot {
            at: RunNs(at_s * 1_000_000_000),
            roles: vec![("bu0".to_owned(), builder)],
            died: Vec::new(),
        }
    }

    #[test]
    fn incomplete_events_are_closed_ones_too() {
        let (before, now) = (snapshot(1, [34, 18]), snapshot(2, [34, 62]));
        let rates = RateSample::between(&before, &now).expect("time passed");
        let screen = screen("run 000001", &before, &now, &rates);
        let closed = screen.lines().find(|line| line.contains("events closed"));
        let words: Vec<&str> = closed.expect(&screen).split_whitespace().collect();
        assert_eq!(
            words[2..7],
            ["96", "44", "Hz", "62", "incomplete,"],
            "{screen}"
        );
        let line = line(&now, &rates);
        assert!(
            line.contains("  34 built, 62 incomplete  0 stored"),
            "{line}"
        );
    }

    #[test]
    fn without_offers_there_is_no_dead_time() {
        let (before, now) = (snapshot(1, [0, 0]), snapshot(2, [0, 0]));
        let rates = RateSample::between(&before, &now).expect("time passed");
        let screen = screen("run 000001", &before, &now, &rates);
        assert!(screen.contains("   dead time -, decision -\n"), "{screen}");
        assert!(screen.contains("   - of triggers\n"), "{screen}");
        let line = line(&now, &rates);
        assert!(line.contains("(0 Hz, - dead)  0 built  0 stored"), "{line}");
    }

    #[test]
    fn a_screen_has_no_more_lines_and_columns_than_its_terminal() {
        let text = "run 000001 · 8 links\n  triggers\n  losses: none\n  1.0 s";
        assert_eq!(cut(text, 80, 24), text);
        assert_eq!(cut(text, 0, 0), text, "nobody knows how large it is");
        assert_eq!(
            cut(text, 12, 5),
            "run 000001 ·\n  triggers\n  losses: no\n  1.0 s"
        );
        assert_eq!(cut(text, 80, 3), "run 000001 · 8 links\n  triggers");
        assert_eq!(cut(text, 3, 1), "run");
    }
}
