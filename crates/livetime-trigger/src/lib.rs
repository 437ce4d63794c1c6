//! Level-2 decisions: unpack, menu, prescales, trigger supervisor, event filters.
//!
//! Plain state machines with an explicit `now`: no clock, thread, socket or file, and no
//! allocation after construction. All decisions are taken on integers as
//! `docs/formats/trigger-packet.md` defines them, so that an independent oracle gives the same
//! masks bit for bit; encoding an event into a packet is the business of `livetime-source`. Start
//! with [`level_two`] for how a packet becomes a decision, then [`supervisor`] for who gives
//! trigger numbers and counts dead time.
//!
//! | module | what it gives |
//! |---|---|
//! | [`threshold`] | cut values in integer MeV, um, mdeg and sixteenths, read from exact decimals |
//! | [`trig_table`], [`beam_spot`] | sine and cosine in integers, impact parameters from the beam |
//! | [`path`], [`muon_cut`], [`two_track`] | what one path of the menu asks for |
//! | [`menu`], [`prescale`] | the checked list of paths, and which passes fire |
//! | [`level_two`], [`level_two_node`] | decisions, and the node that answers packets |
//! | [`supervisor`], [`dead_time`] | Level-2 buffers, matching of replies, exact dead time |
//! | [`filter`], [`dimuon`], [`mass_window`] | filters of whole events |
//! | [`problem_code`] | codes of configuration problems, area T |

pub mod beam_spot;
pub mod dead_time;
pub mod dimuon;
pub mod filter;
pub mod level_two;
pub mod level_two_node;
pub mod mass_window;
pub mod menu;
pub mod muon_cut;
pub mod path;
pub mod prescale;
pub mod problem_code;
pub mod supervisor;
pub mod threshold;
pub mod trig_table;
pub mod two_track;

pub use beam_spot::BeamSpot;
pub use dead_time::{DeadTime, RefusedBy};
pub use dimuon::{dimuon_mass, find_dimuon};
pub use filter::{AcceptAll, EventFilter, FilterCounts, FilterOutput};
pub use level_two::{Decided, LevelTwo, PathCounters};
pub use level_two_node::{LevelTwoNode, NodeCounters, NodeError, NodeReply};
pub use mass_window::{MassWindow, MassWindowConfig};
pub use menu::{Menu, MenuConfig};
pub use muon_cut::{DimuonCut, SingleMuonCut};
pub use path::{ChargeRule, Cut, PathConfig};
pub use supervisor::{
    DecisionSample, Offer, ReplyOutcome, SupervisorConfig, SupervisorCounters, SupervisorOutput,
    TriggerSupervisor,
};
pub use threshold::{AngleMdeg, EnergyMev, LengthUm, Sixteenths, ThresholdError};
pub use two_track::TwoTrackCut;
