//! The `[store]` table: sizes and bounds of the run file.

use livetime_store::WriterLimits;
use livetime_wire::ByteSize;

use super::document::Section;

/// Reads the table.
pub(crate) fn read_store(root: &mut Section<'_, '_>) -> WriterLimits {
    let mut limits = WriterLimits::default();
    let Some(mut section) = root.section("store") else {
        return limits;
    };
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
    section.finish();
    limits
}
