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
//! | [`beam_fit`] | the beam from the tracks of the last events |
//! | [`path`], [`muon_cut`], [`calorimeter_cut`], [`lepton_track`], [`two_track`] | what one path of the menu asks for |
//! | [`algorithm`] | cuts that users write in Rust |
//! | [`menu`], [`prescale`], [`prescale_step`], [`packet_clock`] | the checked list of paths, and which passes fire |
//! | [`level_two`], [`level_two_node`] | decisions, and the node that answers packets |
//! | [`packet_merger`] | parts of a packet from several inputs, and several nodes behind them |
//! | [`supervisor`], [`dead_time`] | Level-2 buffers, matching of replies, exact dead time |
//! | [`filter`], [`dimuon`], [`mass_window`] | filters of whole events |
//! | [`event_menu`], [`candidate`] | the Level-3 menu: paths with cuts on candidates, in timed stages |
//! | [`first_step`] | whether the rest of an event is worth fetching in two-step building |
//! | [`filter_stage`], [`filter_registry`] | filters of users as chains of timed stages, by name |
//! | [`problem_code`] | codes of configuration problems, area T |

pub mod algorithm;
pub mod beam_fit;
pub mod beam_spot;
pub mod calorimeter_cut;
pub mod candidate;
pub mod dead_time;
pub mod dimuon;
pub mod event_menu;
pub mod filter;
pub mod filter_registry;
pub mod filter_stage;
pub mod first_step;
pub mod lepton_track;
pub mod level_two;
pub mod level_two_node;
pub mod mass_window;
pub mod menu;
pub mod muon_cut;
pub mod packet_clock;
pub mod packet_merger;
pub mod path;
pub mod prescale;
pub mod prescale_step;
pub mod problem_code;
pub mod supervisor;
pub mod threshold;
pub mod trig_table;
pub mod two_track;

pub use algorithm::{
    Algorithm, AlgorithmInput, AlgorithmOptions, AlgorithmRegistry, OptionError, UserCut,
};
pub use beam_fit::{BeamFit, BeamFitConfig};
pub use beam_spot::BeamSpot;
pub use calorimeter_cut::{
    ElectronMuonCut, EmCut, JetCut, MetEmCut, PhotonCut, SingleElectronCut, SumEtCut, TauCut,
};
pub use candidate::{Candidate, Leptons};
pub use dead_time::{DeadTime, RefusedBy};
pub use dimuon::{Unreadable, dimuon_mass, find_dimuon, for_each_object};
pub use event_menu::{
    CandidateCut, EventCut, EventMenu, EventMenuConfig, EventPathConfig, NoClock, StageClock,
};
pub use filter::{AcceptAll, EventFilter, FilterCounts, FilterOutput};
pub use filter_registry::{FilterRegistry, UserFilter};
pub use filter_stage::{FilterStage, PrescaleStage, StageChain, StageVerdict, StreamTags};
pub use first_step::{FirstStep, FirstStepConfig, FirstStepCounts, FirstStepVerdict};
pub use lepton_track::{Lepton, LeptonTrackCut};
pub use level_two::{Decided, LevelTwo, PathCounters};
pub use level_two_node::{LevelTwoNode, NodeCounters, NodeError, NodeReply};
pub use mass_window::{MassWindow, MassWindowConfig};
pub use menu::{Menu, MenuConfig};
pub use muon_cut::{DimuonCut, SingleMuonCut};
pub use packet_merger::{MergerConfig, MergerCounters, PacketMerger, PartError, node_of};
pub use path::{ChargeRule, Cut, PathConfig};
pub use prescale::{Prescale, PrescaleState};
pub use prescale_step::DeadTimeControl;
pub use supervisor::{
    DecisionSample, Offer, ReplyOutcome, SupervisorConfig, SupervisorCounters, SupervisorOutput,
    TriggerSupervisor,
};
pub use threshold::{AngleMdeg, EnergyMev, LengthUm, Sixteenths, Thousandths, ThresholdError};
pub use two_track::{CorrectedTrack, CorrectedTracks, TwoTrackCut};
