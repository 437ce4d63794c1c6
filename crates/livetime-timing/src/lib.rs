//! Event-condition-action, function generators, clock models and ownership rules of timing.
//!
//! Plain state machines with an explicit `now`, in TAI nanoseconds: no clock, thread, socket or
//! file. A timing message says what is to happen and when; conditions say which of them become
//! actions of which sink. The bytes of messages are in `livetime_wire::timing_message`; reading
//! clocks, delivering records to clients and talking to them is the business of the drivers. Start
//! with [`timing_core`], or with [`action_unit`] for the rules of late, early, conflict, delayed.
//!
//! | module | what it gives |
//! |---|---|
//! | [`flag`], [`sink`], [`condition`], [`id_filter`] | the words: what is matched, what it causes |
//! | [`match_table`], [`conflict`] | compiled conditions, and which of them must conflict |
//! | [`registry`], [`ownership`] | control side: who may change what, all or nothing |
//! | [`action_unit`] | hot side: queues by deadline, flags, counters |
//! | [`timing_core`] | both together |
//! | [`receiver`], [`clock`], [`input`], [`schedule`] | the emulated receiver and what feeds it |
//! | [`loss_audit`], [`timing_group`] | counters against lost messages; names for equipment |
//! | [`function_generator`] | waveforms from coefficient sets, one or up to 64 channels |
//! | [`waveform`], [`formula`] | from a wanted curve to coefficient sets |
//! | [`spill`], [`magnet`] | gate, triggers and ramps around a run |
//! | [`problem_code`] | codes of configuration problems, area G |

pub mod action_unit;
mod channel;
pub mod clock;
pub mod condition;
pub mod conflict;
pub mod flag;
pub mod formula;
pub mod function_generator;
pub mod id_filter;
pub mod input;
pub mod loss_audit;
pub mod magnet;
pub mod match_table;
pub mod ownership;
pub mod problem_code;
pub mod receiver;
pub mod registry;
pub mod schedule;
pub mod sink;
pub mod spill;
pub mod timing_core;
pub mod timing_group;
pub mod waveform;

pub use action_unit::{
    Action, ActionUnit, ActionUnitConfig, FlagReport, QueueSharing, SinkCounters,
};
pub use clock::{ClockFault, ClockModel, LeapTable, LockState, drift_problem};
pub use condition::{Condition, ConditionId, ConditionSpec};
pub use conflict::{ConflictPair, ConflictReport};
pub use flag::{ActionFlag, FlagSet};
pub use function_generator::{
    FunctionGenerator, GeneratorConfig, GeneratorSignal, GeneratorState, MasterFunctionGenerator,
    MasterOutput,
};
pub use id_filter::{FilterError, IdFilter};
pub use input::{Input, InputConfig};
pub use loss_audit::{AuditResult, AuditSender, LossAudit};
pub use match_table::{MatchTable, TableFill, TableLimits};
pub use ownership::{
    AccessError, Caller, ClientId, Lifetime, Operation, Ownership, Role, authorise,
};
pub use receiver::{EmulatedReceiver, SCHEDULES_MAX, TimingReceiver};
pub use registry::{
    Applied, Change, ClientGone, HardwareFit, Registry, RegistryConfig, SinkError, TransactionError,
};
pub use schedule::{
    Playback, RepetitionError, Schedule, ScheduleEntry, ScheduleError, SchedulePlayer,
};
pub use sink::{ConflictPolicy, SinkId, SinkKind, SinkSpec, TAG_OFF, TAG_ON};
pub use spill::{GateSince, ScheduledTrigger, Spill, SpillConfig, SpillCounters};
pub use timing_core::TimingCore;
pub use timing_group::TimingGroup;
