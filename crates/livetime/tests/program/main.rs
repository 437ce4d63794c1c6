//! The built program from outside, as its users see it: command line, documents, files, signals.
//!
//! Each test works in a folder of its own and waits for what the program says or writes, never for
//! time to pass. Figures of speed are not looked at: they belong to the machine. What the cores do
//! inside is tested in their crates, and what the pages say in `documentation.rs`.

mod asked_twice;
mod bad_input;
mod blocked_signals;
mod builder_scenario;
mod byte_stream;
mod closed_pipe;
#[path = "../contents/mod.rs"]
mod contents;
#[path = "../copied_program/mod.rs"]
mod copied_program;
mod determinism;
mod disk_full;
mod doctor;
mod front_ends;
mod graph_links;
mod kept_state;
mod killed_run;
mod level_three_menu;
mod link_down;
mod link_kinds;
mod links;
mod machine_too_slow;
mod network_plans;
mod network_states;
mod networks;
mod odd_names;
mod output_budget;
mod output_files;
mod page_sizes;
mod pipes_for_files;
mod problem_page;
mod recorded_events;
mod refusals;
mod replay;
mod report_page;
mod run_document;
mod run_folder;
mod signal;
mod simulated_run;
mod spill;
mod steering;
mod stopped_loop;
mod system_limits;
mod timing;
mod trigger_nodes;
mod trusted_links;
mod two_step;
mod workbench;
