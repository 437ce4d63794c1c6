//! The `[store]` table: sizes and bounds of the run file, and the files it consists of.

use livetime_node::process::{LossPolicy, OnLoss};
use livetime_store::{FilePlan, StreamFile, WriterLimits};
use livetime_wire::ByteSize;

use super::document::Section;

/// What is done when a writer is lost, by its name: the last is for one of several, since nothing goes
/// on without the only one.
const ON_LOSS: [(&str, OnLoss); 3] = [
    ("restart", OnLoss::Restart),
    ("stop", OnLoss::Stop),
    ("continue", OnLoss::Continue),
];

/// What the table says.
#[derive(Debug, Default)]
pub(crate) struct StoreTable {
    /// Sizes and bounds.
    pub(crate) limits: WriterLimits,
    /// The files.
    pub(crate) files: FilePlan,
    /// Whether trigger packets are recorded.
    pub(crate) trigger_packets: bool,
    /// Writers, if the table says how many.
    pub(crate) writers: Option<u16>,
}

/// Reads the table.
pub(crate) fn read_store(root: &mut Section<'_, '_>, policy: &mut LossPolicy) -> StoreTable {
    let mut table = StoreTable::default();
    let Some(mut section) = root.section("store") else {
        return table;
    };
    let StoreTable {
        limits,
        files,
        trigger_packets,
        writers,
    } = &mut table;
    for (key, field) in [
        ("chunk", &mut limits.chunk_bytes),
        ("event_max", &mut limits.event_bytes_max),
    ] {
        let mut size = ByteSize(*field as u64);
        section.quantity(key, &mut size);
        *field = usize::try_from(size.0).unwrap_or(usize::MAX);
    }
    for (key, field) in [
        ("events_indexed_max", &mut limits.events_indexed_max),
        ("chunks_indexed_max", &mut limits.chunks_indexed_max),
    ] {
        if let Some(value) = section.integer(key, 1..=1 << 28) {
            *field = value as usize;
        }
    }
    let mut per_second = ByteSize(0);
    section.quantity("output_per_second", &mut per_second);
    limits.output.bytes_per_s = per_second.0;
    for stream in section.integers("yielding_streams", 15).unwrap_or_default() {
        limits.output.yielding_streams |= 1 << stream;
    }
    if limits.output.bytes_per_s == 0 && limits.output.yielding_streams != 0 {
        let help = "remove it, or set `output_per_second`";
        section.refuse_idle_by(
            &["output_per_second"],
            &["yielding_streams"],
            "`yielding_streams` with `output_per_second`",
            help,
        );
    }
    let given = section.integer("writers", 1..=4096);
    *writers = given.map(|count| u16::try_from(count).unwrap_or(u16::MAX));
    let choices = match *writers {
        Some(2..) => &ON_LOSS[..],
        _ => &ON_LOSS[..2],
    };
    if let Some(on_loss) = section.choice("on_loss", choices) {
        policy.writer = on_loss;
    }
    *trigger_packets = section.switch("trigger_packets").unwrap_or(false);
    read_files(&mut section, files);
    section.finish();
    table
}

/// Reads what is said about the files.
fn read_files(section: &mut Section<'_, '_>, files: &mut FilePlan) {
    for (key, field) in [
        ("file_max", &mut files.bytes_max),
        ("free_space_min", &mut files.free_bytes_min),
    ] {
        let mut size = ByteSize(*field);
        section.quantity(key, &mut size);
        *field = size.0;
    }
    section.quantity("file_time", &mut files.time_max);
    section.quantity("full_wait", &mut files.full_wait);
    for mut table in section.sections("file") {
        table.require(
            "name",
            "a name that becomes part of the file's, such as \"dimuon\"",
        );
        table.require("streams", "the bits of its streams, such as [0]");
        let (name, bits) = (table.text("name"), table.integers("streams", 15));
        table.finish();
        if let (Some(name), Some(bits)) = (name, bits) {
            let streams = bits.iter().fold(0, |streams, bit| streams | 1 << bit);
            files.streams.push(StreamFile { name, streams });
        }
    }
}
