//! Stored events through links, readout and event builder once more, then through the filter.
//!
//! Each fragment's data go in as the source sent them and must come out in a built event again, word
//! for word; the filter's answer to that event must be the recorded one. Events that lack sources,
//! or whose fragments the receiver found damaged, cannot be sent again: they are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;

use livetime_client::{RunFolder, Shortfall};
use livetime_node::recorded_chain::{Entry, RecordedChain};
use livetime_trigger::{EventFilter, FilterOutput};
use livetime_wire::event::{EventHeader, EventView};
use livetime_wire::fragment::FragmentView;
use livetime_wire::{SourceId, TriggerNumber};
use serde_json::{Value, json};

use super::pace::{Pace, Pacer};
use super::{LISTED_MAX, has_verdict, verdict_text};

/// What came of it.
pub(super) struct Rebuilt {
    run: u32,
    entry: Entry,
    own_filter: bool,
    events: u64,
    passed_over: u64,
    fragments: u64,
    bytes: u64,
    accepted: u64,
    pub(super) differing: u64,
    listed: Vec<(TriggerNumber, String)>,
    seconds: f64,
    /// Ranges of the run files that were passed over, in words.
    pub(super) damage: Vec<String>,
    /// What the run lacks.
    pub(super) shortfall: Option<Shortfall>,
}

/// The sources of the run and the words of its longest fragment.
fn survey(reader: &mut RunFolder) -> std::io::Result<(Vec<SourceId>, usize)> {
    let (mut sources, mut longest) = (BTreeSet::new(), 0);
    while let Some(event) = reader.next_event()? {
        for entry in event.entries() {
            sources.insert(entry.source);
            longest = longest.max(entry.words as usize);
        }
    }
    reader.rewind();
    Ok((sources.into_iter().collect(), longest))
}

/// The data of each fragment; `None` if the event cannot be sent again.
fn data_of<'e>(event: &EventView<'e>, sources: usize) -> Option<BTreeMap<SourceId, &'e [u32]>> {
    let is_whole = !event.is_incomplete() && event.entries().len() == sources;
    if !is_whole || event.header().streams & EventHeader::ERROR_STREAM != 0 {
        return None;
    }
    let data = event.fragments().map(|(entry, words)| {
        let view = FragmentView::new_checked(words).ok();
        let view = view.filter(|_| entry.status.is_good())?;
        Some((entry.source, view.data()))
    });
    data.collect()
}

/// Sends a run through again.
pub(super) fn replay(
    run: &Path,
    entry: Entry,
    filter: &mut dyn EventFilter,
    own_filter: bool,
    pace: Pace,
) -> Result<Rebuilt, String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: {}: {error}", run.display());
    let mut reader = RunFolder::open(run).map_err(|error| format!("error: {error}"))?;
    let (sources, longest) = survey(&mut reader).map_err(|error| failed(&error))?;
    let mut found = Rebuilt {
        run: reader.run().0,
        entry,
        own_filter,
        events: 0,
        passed_over: 0,
        fragments: 0,
        bytes: 0,
        accepted: 0,
        differing: 0,
        listed: Vec::new(),
        seconds: 0.0,
        damage: Vec::new(),
        shortfall: None,
    };
    if sources.is_empty() {
        // A run without an event in it: there is nothing to send, and nobody to send it.
        found.note_files(&reader);
        return Ok(found);
    }
    let chain = RecordedChain::entering_at(entry, reader.run(), &sources, longest);
    let mut chain = chain.map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        failed(&lines.join("\n"))
    })?;
    let mut pacer = Pacer::new(pace);
    while let Some(event) = reader.next_event().map_err(|error| failed(&error))? {
        let Some(data) = data_of(&event, sources.len()) else {
            found.passed_over += 1;
            continue;
        };
        let header = event.header();
        pacer.wait(header.triggered_at);
        let mut differs = None;
        let find = |source: SourceId| data.get(&source).copied().unwrap_or(&[]);
        let sink = |_, _, parts: &[&[u32]]| -> Result<(), Infallible> {
            differs = judge(&parts.concat(), &data, header, filter, &mut found.accepted);
            Ok(())
        };
        chain.set_level_two(header.mask);
        chain
            .event(header.trigger, find, sink)
            .map_err(|error| failed(&error))?;
        found.events += 1;
        found.bytes += event.words().len() as u64 * 4;
        if let Some(reason) = differs {
            found.differing += 1;
            if found.listed.len() < LISTED_MAX {
                found.listed.push((header.trigger, reason));
            }
        }
    }
    found.fragments = chain.counts().fragments_received;
    found.note_files(&reader);
    found.seconds = pacer.seconds();
    Ok(found)
}

/// What is not as it was recorded, in words.
fn judge(
    words: &[u32],
    sent: &BTreeMap<SourceId, &[u32]>,
    recorded: EventHeader,
    filter: &mut dyn EventFilter,
    accepted: &mut u64,
) -> Option<String> {
    let event = match EventView::new_checked(words) {
        Ok(event) => event,
        Err(error) => return Some(format!("the built event is not readable: {error}")),
    };
    if let Err(error) = event.verify_fragments() {
        return Some(error.to_string());
    }
    for (entry, fragment) in event.fragments() {
        let data = FragmentView::new_checked(fragment).map(|view| view.data());
        if data.ok() != sent.get(&entry.source).copied() {
            return Some(format!(
                "the fragment of source {} is another",
                entry.source
            ));
        }
    }
    let output = filter.filter(&event);
    let FilterOutput {
        accept,
        reason,
        streams,
    } = output;
    *accepted += u64::from(accept && has_verdict(output));
    let is_same = accept && (reason, streams) == (recorded.filter_reason, recorded.streams);
    (!is_same).then(|| {
        let verdict = verdict_text(output);
        format!(
            "recorded reason {} in streams {:#06x}, now {verdict} for reason {reason} in streams \
             {streams:#06x}",
            recorded.filter_reason, recorded.streams
        )
    })
}

impl Rebuilt {
    /// What is wrong with the files, once all events were read.
    fn note_files(&mut self, reader: &RunFolder) {
        self.shortfall = reader.shortfall();
        self.damage = (reader.damage())
            .map(|(path, damage)| format!("{}: {damage}", path.display()))
            .collect();
    }

    fn stage(&self) -> &'static str {
        match self.entry {
            Entry::Links => "links",
            Entry::Builder => "builder",
        }
    }

    pub(super) fn document(&self) -> Value {
        let listed = self
            .listed
            .iter()
            .map(|(trigger, reason)| json!({ "trigger": trigger.0.to_string(), "reason": reason }));
        json!({
            "schema": "livetime.replay/1",
            "run": self.run,
            "stage": self.stage(),
            "own_filter": self.own_filter,
            "events": self.events,
            "passed_over": self.passed_over,
            "fragments": self.fragments,
            "bytes": self.bytes,
            "accepted": self.accepted,
            "differing": self.differing,
            "differences": listed.collect::<Vec<_>>(),
            "damaged_ranges": self.damage.len(),
            "seconds": self.seconds,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "run {}: {} events, {} fragments through the {} in {:.2} s, {} accepted, {} with \
             another event or answer than recorded\n",
            self.run,
            self.events,
            self.fragments,
            self.stage(),
            self.seconds,
            self.accepted,
            self.differing
        );
        for (trigger, reason) in &self.listed {
            text += &format!("  trigger {trigger}: {reason}\n");
        }
        let more = self.differing - self.listed.len() as u64;
        if more > 0 {
            text += &format!("  and {more} more\n");
        }
        if self.passed_over > 0 {
            text += &format!(
                "  {} events that lack sources, are flagged or unfiltered were passed over\n",
                self.passed_over
            );
        }
        text
    }
}
