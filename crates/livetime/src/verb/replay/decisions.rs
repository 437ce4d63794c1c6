//! Recorded trigger packets through the Level-2 menu once more.
//!
//! The packets are in the order in which the run decided on them, so that prescales that count see
//! what they saw then. Packets that were not recorded leave a gap that they see too: it is said. What
//! each file ought to hold is in the run's summary.

use std::path::{Path, PathBuf};

use livetime_client::RunFolder;
use livetime_node::packet_log::{PACKET_SOURCE, packet_file_of, packet_files_of};
use livetime_shm::TscClock;
use livetime_shm::floor::Samples;
use livetime_store::{FileName, RunBegin, RunSummary, ToldFiles};
use livetime_trigger::{LevelTwo, LevelTwoNode, Menu};
use livetime_wire::{L2Mask, TriggerNumber, UnitId, UnitKind};
use serde_json::{Value, json};

use super::LISTED_MAX;
use super::pace::{Pace, Pacer};

/// A packet with another answer than the recorded one; `None` is no answer.
struct Difference {
    trigger: TriggerNumber,
    recorded: L2Mask,
    now: Option<L2Mask>,
}

/// What came of it.
pub(super) struct Decisions {
    run: u32,
    own_menu: bool,
    packets: u64,
    accepted: u64,
    pub(super) differing: u64,
    listed: Vec<Difference>,
    /// Packets that the run recorded and that are not here.
    missing: u64,
    /// Files that lack some, with how many.
    lacking: Vec<(PathBuf, u64)>,
    /// Packets that the run did not record.
    unrecorded: u64,
    decision_ns: Samples,
    seconds: f64,
    /// Ranges of the packet files that were passed over, in words.
    pub(super) damage: Vec<String>,
}

/// Decides on all packets of a run again with this menu.
pub(super) fn replay(
    run: &Path,
    menu: &Menu,
    own_menu: bool,
    pace: Pace,
) -> Result<Decisions, String> {
    let (number, told) = told_by_summary(run).unwrap_or_default();
    let here = packet_files_of(run).len();
    if told.is_empty() && here == 0 {
        return Err(format!(
            "error: {} is not there: the run did not record its trigger packets\n\
             help: `trigger_packets = true` under [store] does for the next run",
            packet_file_of(run, 0).display()
        ));
    }
    let mut decision_ns = Vec::new();
    let mut pacer = Pacer::new(pace);
    let mut found = Decisions {
        run: number,
        own_menu,
        packets: 0,
        accepted: 0,
        differing: 0,
        listed: Vec::new(),
        missing: 0,
        lacking: Vec::new(),
        unrecorded: told.iter().map(|node| node.unrecorded).sum(),
        decision_ns: Samples::from_unsorted(Vec::new()),
        seconds: 0.0,
        damage: Vec::new(),
    };
    let run_of = RunOf::beside(run);
    // Each trigger node has decided on its own packets, with prescale counters of its own.
    for node in 0..told.len().max(here) {
        let path = packet_file_of(run, node as u16);
        let before = found.packets;
        let known = match path.is_file() {
            true => {
                let reader = run_of.open(&path)?;
                decide_again(
                    &path,
                    reader,
                    menu,
                    &mut found,
                    &mut decision_ns,
                    &mut pacer,
                )?
            }
            false => 0,
        };
        let recorded = told.get(node).map_or(0, |node| node.recorded);
        let missing = known.max(recorded.saturating_sub(found.packets - before));
        if missing > 0 {
            found.missing += missing;
            found.lacking.push((path, missing));
        }
    }
    found.decision_ns = Samples::from_unsorted(decision_ns);
    found.seconds = pacer.seconds();
    Ok(found)
}

/// What tells which run packets are to be of: its summary, and the record of its main file.
struct RunOf {
    told: Option<ToldFiles>,
    begin: Option<RunBegin>,
}

impl RunOf {
    /// Of the run directory, or of that of a run file.
    fn beside(run: &Path) -> Self {
        let beside = |name: &str| packet_file_of(run, 0).with_file_name(name);
        let summary = std::fs::read(beside("summary.json")).ok();
        let main = RunFolder::open(&beside(&FileName::default().to_string())).ok();
        Self {
            told: summary.and_then(|text| ToldFiles::read(&text)),
            begin: main.and_then(|main| main.begin().cloned()),
        }
    }

    /// Opens a packet file, which must be of this run.
    fn open(&self, path: &Path) -> Result<RunFolder, String> {
        let reader = RunFolder::open(path).map_err(|error| format!("error: {error}"))?;
        let told = self.told.as_ref();
        let is_of_told = told.is_none_or(|told| told.is_of(reader.run(), reader.begin()));
        // Of a host without the run's files, and of older versions, the time of the start is not known.
        let started = reader.begin().map_or(0, |begin| begin.started_tai_ns);
        let is_of_main = self.begin.as_ref().is_none_or(|main| {
            main.run_number() == reader.run() && (started == 0 || started == main.started_tai_ns)
        });
        if is_of_told && is_of_main {
            return Ok(reader);
        }
        Err(format!(
            "error: {}: trigger packets of another run (number {}) than what they lie beside\n\
             help: put the packet file of this run there, or none",
            path.display(),
            reader.run()
        ))
    }
}

/// What a trigger node has recorded.
struct Told {
    recorded: u64,
    unrecorded: u64,
}

/// The run by the summary beside its files, and what that says of each trigger node: nothing if no
/// packet was to be recorded.
fn told_by_summary(run: &Path) -> Option<(u32, Vec<Told>)> {
    let path = packet_file_of(run, 0).with_file_name("summary.json");
    let text = std::fs::read_to_string(path).ok()?;
    let summary: RunSummary = serde_json::from_str(&text).ok()?;
    let of_node = |index: u16| {
        let node = UnitId {
            kind: UnitKind::Trigger,
            index,
        };
        let counts = summary.roles.get(&node.to_string())?;
        Some(Told {
            recorded: *counts.get("packets_recorded")?,
            unrecorded: counts.get("packets_unrecorded").copied().unwrap_or(0),
        })
    };
    Some((summary.run.number, (0..).map_while(of_node).collect()))
}

/// Decides on the packets of one trigger node; how many are known to be missing from the file.
fn decide_again(
    path: &Path,
    mut reader: RunFolder,
    menu: &Menu,
    found: &mut Decisions,
    decision_ns: &mut Vec<u64>,
    pacer: &mut Pacer,
) -> Result<u64, String> {
    let mut node = LevelTwoNode::new(LevelTwo::new(menu), reader.run());
    found.run = reader.run().0;
    let clock = TscClock::calibrate();
    let failed = |error: std::io::Error| format!("error: {}: {error}", path.display());
    while let Some(event) = reader.next_event().map_err(failed)? {
        let header = event.header();
        let packet = event
            .fragments()
            .find(|(entry, _)| entry.source == PACKET_SOURCE);
        let Some((_, packet)) = packet else { continue };
        pacer.wait(header.triggered_at);
        let start = clock.ticks();
        let now = node
            .handle_packet(packet)
            .ok()
            .map(|reply| reply.reply.mask);
        decision_ns.push(clock.ticks_to_ns(clock.ticks().wrapping_sub(start)));
        found.packets += 1;
        found.accepted += u64::from(now.is_some_and(L2Mask::is_accept));
        if now != Some(header.mask) {
            found.differing += 1;
            if found.listed.len() < LISTED_MAX {
                found.listed.push(Difference {
                    trigger: header.trigger,
                    recorded: header.mask,
                    now,
                });
            }
        }
    }
    let damage = reader.damage();
    found
        .damage
        .extend(damage.map(|(path, damage)| format!("{}: {damage}", path.display())));
    Ok(reader.events_missing())
}

fn mask(mask: L2Mask) -> String {
    format!("{:#x}", mask.0)
}

impl Decisions {
    pub(super) fn document(&self) -> Value {
        let listed = self.listed.iter().map(|difference| {
            json!({
                "trigger": difference.trigger.0.to_string(),
                "recorded": { "mask": mask(difference.recorded) },
                "now": { "mask": difference.now.map(mask) },
            })
        });
        json!({
            "schema": "livetime.replay/1",
            "run": self.run,
            "stage": "trigger",
            "own_menu": self.own_menu,
            "events": self.packets,
            "accepted": self.accepted,
            "differing": self.differing,
            "differences": listed.collect::<Vec<_>>(),
            "missing": self.missing,
            "unrecorded": self.unrecorded,
            "damaged_ranges": self.damage.len(),
            "seconds": self.seconds,
            "decision_ns": livetime_study::bench::latency(&self.decision_ns),
        })
    }

    /// Whether every packet that the run recorded is here.
    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "run {}: {} trigger packets through the menu in {:.2} s, {} accepted, {} with another \
             decision than recorded\n",
            self.run, self.packets, self.seconds, self.accepted, self.differing
        );
        for difference in &self.listed {
            let now = difference.now.map_or("no answer".to_owned(), mask);
            let recorded = mask(difference.recorded);
            text += &format!(
                "  trigger {}: recorded {recorded}, now {now}\n",
                difference.trigger
            );
        }
        let more = self.differing - self.listed.len() as u64;
        if more > 0 {
            text += &format!("  and {more} more\n");
        }
        for (path, missing) in &self.lacking {
            let what = match path.is_file() {
                true => "lacks",
                false => "is not there, with",
            };
            let path = path.display();
            text += &format!("  {path} {what} {missing} packets that the run recorded\n");
        }
        if self.unrecorded > 0 {
            text += &format!(
                "  {} packets were not recorded by the run\n",
                self.unrecorded
            );
        }
        if self.packets > 0 {
            text += &format!(
                "decision median {} ns, 99 % {} ns, max {} ns per packet\n",
                self.decision_ns.p50(),
                self.decision_ns.p99(),
                self.decision_ns.max()
            );
        }
        text
    }
}
