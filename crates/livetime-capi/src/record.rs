//! The structs that a call fills in for its caller, in the layout of C.

use std::ffi::c_char;

/// What a run file says about itself.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RunInfo {
    /// Run number.
    pub number: u32,
    /// Whether the run was closed in order: the files that are there have end-of-run records that are
    /// their own and not made by a recovery. Of files that are not there `events_missing` and
    /// `livetime_damage_at` tell.
    pub closed: bool,
    /// Start of the run [ns of TAI since 1970]; 0 if not known.
    pub started_tai_ns: u64,
    /// Events of the run by its end-of-run records, those included that are known to be in files
    /// that are not there; 0 without one.
    pub events_stored: u64,
    /// Events known to be missing; right once all events were read.
    pub events_missing: u64,
    /// Ranges of the files that were passed over as damaged so far, and files that are not there or
    /// cannot be read.
    pub damaged_ranges: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// An event. Pointers are valid until the next call with the same run other than
/// `livetime_next_fragment`, `livetime_info_of` and `livetime_damage_at`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Trigger number, the key of the event in its run.
    pub trigger: u64,
    /// Nanoseconds from the start of the run to the Level-1 accept of the trigger.
    pub triggered_at_ns: u64,
    /// Level-2 decision after prescale, bits 63:0 first.
    pub decision: [u64; 2],
    /// Run number.
    pub run: u32,
    /// Why the filter kept it.
    pub filter_reason: u16,
    /// Streams that it belongs to, one bit each.
    pub streams: u16,
    /// Number of fragments.
    pub fragment_count: u32,
    /// Number of sources that are missing; 0 for a complete event.
    pub missing_count: u32,
    /// Their ids.
    pub missing: *const u32,
    /// All words of the event, its header included.
    pub words: *const u32,
    /// Number of them.
    pub word_count: usize,
}

/// A fragment of an event. The pointer is valid as long as the event's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Fragment {
    /// Id of the source: sub-detector in bits 31:16, module in bits 15:0.
    pub source: u32,
    /// What the receiver found, 0 for a good fragment.
    pub status: u32,
    /// Its words as received, header and trailer included.
    pub words: *const u32,
    /// Number of them.
    pub word_count: usize,
}

/// A range of a file that was passed over, or a file that is not there or cannot be read. The text
/// is valid until the next call with the same run.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Damage {
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Why, in words; of a run in several files with the name of the file before them.
    pub reason: *const c_char,
}
