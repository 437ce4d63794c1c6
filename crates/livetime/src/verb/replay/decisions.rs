//! Recorded trigger packets through the Level-2 menu once more.
//!
//! The packets are in the order in which the run decided on them, so that prescales that count see
//! what they saw then. Packets that were not recorded leave a gap that they see too: it is said. What
//! each file ought to hold is in the run's summary: that of a node which died follows from the decisions
//! ([`PacketAccount`]). Without a summary a file that ends without its record is named, and no more.

use std::path::{Path, PathBuf};

use livetime_client::RunFolder;
use livetime_node::packet_log::{PACKET_SOURCE, packet_file_of, packet_files_of};
use livetime_shm::TscClock;
use livetime_shm::floor::Samples;
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_store::{FileName, RunBegin, RunSummary, ToldFiles};
use livetime_trigger::{LevelTwo, LevelTwoNode, Menu};
use livetime_wire::{L2Mask, TriggerNumber};
use serde_json::{Value, json};

use super::LISTED_MAX;
use super::pace::{Pace, Pacer};
use crate::packet_account::PacketAccount;

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
    /// Packets that the run recorded, or a node that died decided on, and that are not here.
    missing: u64,
    /// Files that lack some, with how many.
    lacking: Vec<Lack>,
    /// Packets that the run did not record.
    unrecorded: u64,
    /// How many trigger nodes decided.
    pub(super) nodes: usize,
    /// Files without an end-of-run record, unless they are known to hold all packets of their nodes.
    open: Vec<PathBuf>,
    /// Files that are not there.
    absent: Vec<PathBuf>,
    /// Files that may lack packets which nobody has counted, and why.
    pub(super) doubts: Vec<String>,
    decision_ns: Samples,
    seconds: f64,
    /// Ranges of the packet files that were passed over, in words.
    pub(super) damage: Vec<String>,
}

/// How a packet file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileEnd {
    /// With its end-of-run record.
    Closed,
    /// Behind a chunk.
    Open,
    /// Within a chunk.
    Cut,
    /// There is no file.
    Absent,
}

/// What is here of a trigger node's packets.
struct NodeFile {
    path: PathBuf,
    end: FileEnd,
    packets: u64,
    /// Packets that are known to be damaged or missing in it.
    damaged: u64,
}

impl NodeFile {
    /// Why it may lack more than is known.
    fn doubt(&self) -> Option<String> {
        let why = match self.end {
            FileEnd::Closed => return None,
            FileEnd::Open => {
                "no end-of-run record, so that packets of about the last second may be missing"
            }
            FileEnd::Cut => "cut off within a chunk, with packets not counted",
            FileEnd::Absent => "not there, and with it the packets of a trigger node",
        };
        Some(format!("{}: {why}", self.path.display()))
    }
}

/// Packets that are missing.
struct Lack {
    /// The files that they are missing from.
    paths: Vec<PathBuf>,
    packets: u64,
    /// What the run is known to have done with them.
    run_did: &'static str,
}

impl Lack {
    fn text(&self) -> String {
        let Self {
            paths,
            packets,
            run_did,
        } = self;
        let verb = match &paths[..] {
            [path] if path.is_file() => "lacks",
            [_] => "is not there, with",
            _ => "lack",
        };
        let names = paths.iter().map(|path| path.display().to_string());
        let names = names.collect::<Vec<_>>().join(", ");
        format!("  {names} {verb} {packets} packets that the run {run_did}\n")
    }
}

/// Decides on all packets of a run again with this menu. `nodes` is how many recorded packets by its
/// configuration, 0 if nobody knows.
pub(super) fn replay(
    run: &Path,
    nodes: u16,
    menu: &Menu,
    own_menu: bool,
    pace: Pace,
) -> Result<Decisions, String> {
    let summary = summary_beside(run);
    let here = packet_files_of(run).len().min(usize::from(u16::MAX)) as u16;
    // A simulated run records no packets, whatever its configuration says.
    let is_simulated = summary.as_ref().is_some_and(|summary| summary.simulated);
    let nodes = if is_simulated { here } else { nodes.max(here) };
    let account = summary.as_ref();
    let account = account.map(|summary| PacketAccount::of(summary, nodes));
    let counted = account.as_ref().map_or(0, PacketAccount::node_count);
    let nodes = counted.max(usize::from(nodes));
    if nodes == 0 {
        return Err(format!(
            "error: {} is not there: the run did not record its trigger packets\n\
             help: `trigger_packets = true` under [store] does for the next run",
            packet_file_of(run, 0).display()
        ));
    }
    let mut decision_ns = Vec::new();
    let mut pacer = Pacer::new(pace);
    let mut found = Decisions::of(summary.map_or(0, |summary| summary.run.number), own_menu);
    let run_of = RunOf::beside(run);
    let mut files = Vec::new();
    // Each trigger node has decided on its own packets, with prescale counters of its own.
    for node in 0..nodes {
        let mut file = NodeFile {
            path: packet_file_of(run, node as u16),
            end: FileEnd::Absent,
            packets: 0,
            damaged: 0,
        };
        if file.path.is_file() {
            let reader = run_of.open(&file.path)?;
            decide_again(
                &mut file,
                reader,
                menu,
                &mut found,
                &mut decision_ns,
                &mut pacer,
            )?;
        }
        files.push(file);
    }
    found.note_files(&files, account.as_ref());
    found.decision_ns = Samples::from_unsorted(decision_ns);
    found.seconds = pacer.seconds();
    Ok(found)
}

/// The summary of the run, beside its files.
fn summary_beside(run: &Path) -> Option<RunSummary> {
    let path = packet_file_of(run, 0).with_file_name("summary.json");
    let text = plain_file::read_text(&path, TEXT_BYTES_MAX).ok()?;
    serde_json::from_str(&text).ok()
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
        let summary = plain_file::read(&beside("summary.json"), TEXT_BYTES_MAX).ok();
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

/// Decides on the packets of one trigger node.
fn decide_again(
    file: &mut NodeFile,
    mut reader: RunFolder,
    menu: &Menu,
    found: &mut Decisions,
    decision_ns: &mut Vec<u64>,
    pacer: &mut Pacer,
) -> Result<(), String> {
    let mut node = LevelTwoNode::new(LevelTwo::new(menu), reader.run());
    found.run = reader.run().0;
    let clock = TscClock::calibrate();
    let failed = |error: std::io::Error| format!("error: {}: {error}", file.path.display());
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
        file.packets += 1;
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
    file.damaged = reader.events_missing();
    file.end = match reader.shortfall() {
        Some(lacking) if !lacking.files_cut_off.is_empty() => FileEnd::Cut,
        Some(lacking) if !lacking.files_open.is_empty() => FileEnd::Open,
        _ => FileEnd::Closed,
    };
    Ok(())
}

/// Their names, without the directory of the run.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let names = paths.iter().filter_map(|path| path.file_name());
    names.map(|name| name.display().to_string()).collect()
}

fn mask(mask: L2Mask) -> String {
    format!("{:#x}", mask.0)
}

impl Decisions {
    /// Nothing yet.
    fn of(run: u32, own_menu: bool) -> Self {
        Self {
            run,
            own_menu,
            packets: 0,
            accepted: 0,
            differing: 0,
            listed: Vec::new(),
            missing: 0,
            lacking: Vec::new(),
            unrecorded: 0,
            nodes: 0,
            open: Vec::new(),
            absent: Vec::new(),
            doubts: Vec::new(),
            decision_ns: Samples::from_unsorted(Vec::new()),
            seconds: 0.0,
            damage: Vec::new(),
        }
    }

    /// Compares what is in the files with what the summary tells of it.
    fn note_files(&mut self, files: &[NodeFile], account: Option<&PacketAccount>) {
        self.nodes = files.len();
        self.packets = files.iter().map(|file| file.packets).sum();
        self.unrecorded = account.map_or(0, PacketAccount::unrecorded);
        let mut uncounted = Vec::new();
        for (node, file) in files.iter().enumerate() {
            let Some(counted) = account.and_then(|account| account.counted(node)) else {
                uncounted.push(file);
                continue;
            };
            let missing = counted.recorded.saturating_sub(file.packets);
            let missing = missing.max(file.damaged);
            // A file that a full disk did not let be closed may hold them all.
            if missing > 0 {
                self.note_lack(&[file], missing, "recorded");
            }
        }
        let decided = account.and_then(PacketAccount::uncounted).unwrap_or(0);
        self.note_uncounted(&uncounted, decided);
    }

    /// As [`Decisions::note_files`], of the nodes that have counted nothing: together they have decided on
    /// at least so many packets.
    fn note_uncounted(&mut self, files: &[&NodeFile], decided: u64) {
        let is_doubtful = |file: &&NodeFile| file.end != FileEnd::Closed || file.damaged > 0;
        let doubtful: Vec<&NodeFile> = files.iter().copied().filter(is_doubtful).collect();
        let packets: u64 = files.iter().map(|file| file.packets).sum();
        let damaged: u64 = files.iter().map(|file| file.damaged).sum();
        let missing = decided.saturating_sub(packets);
        let run_did = match missing > damaged {
            true => "decided on",
            false => "recorded",
        };
        let missing = missing.max(damaged);
        if missing > 0 || !doubtful.is_empty() {
            let lacking = if doubtful.is_empty() {
                files
            } else {
                &doubtful
            };
            self.note_lack(lacking, missing, run_did);
        }
        self.doubts = doubtful.iter().filter_map(|file| file.doubt()).collect();
    }

    /// Notes that so many packets are missing from these files, or that nobody knows how many.
    fn note_lack(&mut self, files: &[&NodeFile], packets: u64, run_did: &'static str) {
        self.missing += packets;
        for file in files {
            match file.end {
                FileEnd::Closed => {}
                FileEnd::Open | FileEnd::Cut => self.open.push(file.path.clone()),
                FileEnd::Absent => self.absent.push(file.path.clone()),
            }
        }
        if packets > 0 {
            self.lacking.push(Lack {
                paths: files.iter().map(|file| file.path.clone()).collect(),
                packets,
                run_did,
            });
        }
    }

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
            "files_open": names(&self.open),
            "files_missing": names(&self.absent),
            "damaged_ranges": self.damage.len(),
            "seconds": self.seconds,
            "decision_ns": livetime_study::bench::latency(&self.decision_ns),
        })
    }

    /// Whether every packet that the run recorded is here, as far as is known, and no file is in doubt.
    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0 && self.open.is_empty() && self.absent.is_empty()
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
        text.extend(self.lacking.iter().map(Lack::text));
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
