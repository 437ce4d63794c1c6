//! Run files: MCAP writer, reader, index, recovery; histograms and run summary.
//!
//! Everything works on `Read`, `Write` and `Seek` values: opening files and
//! syncing them is the driver's work. Start with [`run_writer`] for how a file comes about and with
//! `docs/formats/run-file.md` for its bytes; [`run_reader`] reads it back, [`recovery`] mends it,
//! [`mod@inspect`] says what is in it. [`histogram`] and [`summary`] are the JSON that travels with a
//! run.

mod chunk_buffer;
mod chunk_data;
pub mod condition;
mod configured_streams;
pub mod damage;
pub mod event_index;
pub mod file_plan;
mod file_tail;
pub mod filter_menu_summary;
pub mod histogram;
pub mod inspect;
pub mod mcap_record;
pub mod output_budget;
mod patchy_input;
pub mod problem_code;
pub mod recovery;
pub mod run_chunk;
pub mod run_note;
pub mod run_reader;
pub mod run_record;
pub mod run_scan;
pub mod run_writer;
mod salvage;
pub mod seen_triggers;
mod string_u64;
pub mod summary;
pub mod two_step_summary;

pub use condition::Condition;
pub use damage::{Damage, DamageReason, FramePart, ReadFault};
pub use file_plan::{FileName, FilePlan, StreamFile};
pub use filter_menu_summary::FilterMenuSummary;
pub use histogram::{Axis, Histogram};
pub use inspect::{Inspection, inspect, inspect_seen};
pub use output_budget::{Admission, OutputBudget, OutputCounts, OutputLimit};
pub use recovery::{RecoverError, Recovered, recover, recover_part};
pub use run_note::{NOTES_MAX, NoteError, RunNote};
pub use run_reader::{OpenError, ReadError, RunReader, RunToldBy};
pub use run_record::{FilePart, RunBegin, RunEnd};
pub use run_writer::{
    Abandoned, FileSummary, ResumeError, Resumed, RunWriter, WriteError, WriterLimits,
};
pub use seen_triggers::SeenTriggers;
pub use summary::{Counts, LatencySummary, Losses, RunSummary, ToldFiles};
pub use two_step_summary::TwoStepSummary;
