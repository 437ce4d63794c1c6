//! The control side: sinks, conditions, owners, and changes that happen whole or not at all.
//!
//! [`Registry::apply`] takes a list of changes across any sinks, checks every rule, compiles the
//! new table and only then keeps anything; the caller installs the table in its
//! [`crate::action_unit::ActionUnit`], so that every message meets either the old or the new set.
//! The registry and the unit may live on different threads. Rules about callers are in
//! [`crate::ownership`], static conflicts in [`crate::conflict`].

use livetime_wire::Problem;

use crate::condition::{Condition, ConditionId, ConditionSpec};
use crate::conflict::{ConflictReport, find_conflicts};
use crate::match_table::{MatchTable, TableFill, TableLimits, compile_key};
use crate::ownership::{AccessError, Caller, ClientId, Operation, Ownership, authorise};
use crate::problem_code;
use crate::sink::{ConflictPolicy, SinkId, SinkKind, SinkSpec};

mod change;
mod hardware_fit;

pub use change::{Applied, Change, ConflictingCondition, TransactionError};
pub use hardware_fit::HardwareFit;

/// Sizes of a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryConfig {
    /// Sinks at most, 1..=65 535; the same as the action unit's.
    pub sinks_max: usize,
    /// Conditions at most, active or not, 1..=1 048 576.
    pub conditions_max: usize,
    /// Sizes of the compiled tables.
    pub limits: TableLimits,
}

impl RegistryConfig {
    /// Tables of the hardware, with room for as many inactive conditions again.
    pub const HARDWARE: Self = Self {
        sinks_max: 128,
        conditions_max: 512,
        limits: TableLimits::HARDWARE,
    };

    /// All problems of the values, under `path`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(1..=usize::from(u16::MAX)).contains(&self.sinks_max) {
            problems.push(Problem::new(
                problem_code::SINKS,
                format!("{path}.sinks"),
                self.sinks_max,
                "1 to 65535 sinks",
                "count one sink for each output, each listening client and each bus",
            ));
        }
        if !(1..=1 << 20).contains(&self.conditions_max) {
            problems.push(Problem::new(
                problem_code::CONDITIONS,
                format!("{path}.conditions"),
                self.conditions_max,
                "1 to 1048576 conditions",
                "the hardware has room for 256 active ones",
            ));
        }
        problems
    }
}

impl Default for RegistryConfig {
    /// 1024 sinks and 16 384 conditions, all of which fit the tables.
    fn default() -> Self {
        Self {
            sinks_max: 1024,
            conditions_max: 16_384,
            limits: TableLimits::for_conditions(16_384),
        }
    }
}

/// A sink of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// Its place.
    pub id: SinkId,
    /// What it is.
    pub spec: SinkSpec,
    /// Who may change it.
    pub ownership: Ownership,
}

/// Why a sink cannot be created, owned, given up or destroyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The caller may not.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// There is no such sink.
    #[error("there is no {sink}")]
    Unknown {
        /// The place asked for.
        sink: SinkId,
    },
    /// Every place is taken.
    #[error("all {sinks_max} places for sinks are taken")]
    Full {
        /// Places there are.
        sinks_max: usize,
    },
    /// The name has other characters than it may, or none, or too many.
    #[error("sink name `{name}` is not usable; allowed are 1 to 64 of A-Z a-z 0-9 _")]
    Name {
        /// The name.
        name: String,
    },
    /// The name is in use.
    #[error("sink name `{name}` is in use")]
    NameInUse {
        /// The name.
        name: String,
    },
    /// The smallest offset is above the largest.
    #[error("offsets from {min_ns} to {max_ns} ns leave no room")]
    Offsets {
        /// Smallest offset.
        min_ns: i64,
        /// Largest offset.
        max_ns: i64,
    },
    /// Somebody else has a condition in it.
    #[error("{owner} owns condition {condition} in the sink")]
    ForeignCondition {
        /// The condition.
        condition: ConditionId,
        /// Its owner.
        owner: ClientId,
    },
}

/// What became of the objects of a client that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientGone {
    /// Sinks destroyed, with their kind, to be cleared in the action unit.
    pub sinks: Vec<(SinkId, SinkKind)>,
    /// Conditions destroyed.
    pub conditions: Vec<ConditionId>,
    /// Objects that stay and are now open to all.
    pub released: usize,
    /// The table to install.
    pub table: Box<MatchTable>,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    generation: u32,
    condition: Option<Condition>,
}

/// Sinks and conditions of one receiver.
#[derive(Debug)]
pub struct Registry {
    config: RegistryConfig,
    sinks: Vec<Option<Sink>>,
    slots: Vec<Slot>,
    /// Free slots, the next one last.
    free: Vec<u32>,
    /// Slots of active conditions in the order of compilation.
    sorted: Vec<u32>,
    /// Conditions ever created.
    created: u64,
    fill: TableFill,
}

impl Registry {
    /// A registry without sinks.
    ///
    /// # Errors
    /// All problems of the configuration.
    pub fn new(config: RegistryConfig) -> Result<Self, Vec<Problem>> {
        let problems = config.validate("timing");
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            config,
            sinks: vec![None; config.sinks_max],
            slots: Vec::new(),
            free: Vec::new(),
            sorted: Vec::new(),
            created: 0,
            fill: MatchTable::empty(config.limits).fill(),
        })
    }

    /// The configuration.
    pub fn config(&self) -> &RegistryConfig {
        &self.config
    }

    /// How full the compiled tables are.
    pub fn fill(&self) -> TableFill {
        self.fill
    }

    /// All sinks, by place.
    pub fn sinks(&self) -> impl Iterator<Item = &Sink> {
        self.sinks.iter().flatten()
    }

    /// A sink.
    pub fn sink(&self, id: SinkId) -> Option<&Sink> {
        self.sinks.get(id.index())?.as_ref()
    }

    /// The sink of a name.
    pub fn sink_by_name(&self, name: &str) -> Option<&Sink> {
        self.sinks().find(|sink| sink.spec.name == name)
    }

    /// All conditions, by slot.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.slots.iter().filter_map(|slot| slot.condition.as_ref())
    }

    /// All conditions in the order of their making, in which those of equal filters act: made anew in
    /// this order elsewhere they act alike.
    pub fn conditions_by_age(&self) -> Vec<&Condition> {
        let mut conditions: Vec<&Condition> = self.conditions().collect();
        conditions.sort_by_key(|condition| condition.order);
        conditions
    }

    /// A condition.
    pub fn condition(&self, id: ConditionId) -> Option<&Condition> {
        let condition = self.slots.get(id.slot())?.condition.as_ref()?;
        (condition.id == id).then_some(condition)
    }

    /// Creates a sink that belongs to the caller and dies with it.
    ///
    /// # Errors
    /// [`SinkError`] if the caller's role does not suffice, the name is unusable or taken, the
    /// offsets are empty, or there is no place.
    pub fn create_sink(&mut self, caller: &Caller, spec: SinkSpec) -> Result<SinkId, SinkError> {
        let operation = match spec.kind {
            SinkKind::Software => Operation::Listen,
            _ => Operation::ChangeHardware,
        };
        authorise(caller, operation, None)?;
        self.insert_sink(spec, Ownership::created_by(caller.client))
    }

    /// Adds a sink that the receiver itself has: owned by nobody and permanent.
    ///
    /// # Errors
    /// [`SinkError`] as for [`Registry::create_sink`], but for the role.
    pub fn add_fixed_sink(&mut self, spec: SinkSpec) -> Result<SinkId, SinkError> {
        self.insert_sink(spec, Ownership::FIXED)
    }

    fn insert_sink(&mut self, spec: SinkSpec, ownership: Ownership) -> Result<SinkId, SinkError> {
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !(1..=64).contains(&spec.name.len()) || !spec.name.chars().all(usable) {
            return Err(SinkError::Name { name: spec.name });
        }
        if self.sink_by_name(&spec.name).is_some() {
            return Err(SinkError::NameInUse { name: spec.name });
        }
        if spec.offset_min_ns > spec.offset_max_ns {
            return Err(SinkError::Offsets {
                min_ns: spec.offset_min_ns,
                max_ns: spec.offset_max_ns,
            });
        }
        let sinks_max = self.config.sinks_max;
        let place = self.sinks.iter().position(Option::is_none);
        let place = place.ok_or(SinkError::Full { sinks_max })?;
        let id = SinkId(place as u16);
        self.sinks[place] = Some(Sink {
            id,
            spec,
            ownership,
        });
        Ok(id)
    }

    /// Takes a sink that nobody owns.
    ///
    /// # Errors
    /// [`SinkError::Unknown`], or [`SinkError::Access`] if somebody else owns it.
    pub fn own_sink(&mut self, caller: &Caller, id: SinkId) -> Result<(), SinkError> {
        self.checked_sink(caller, Operation::Own, id)?
            .ownership
            .owner = Some(caller.client);
        Ok(())
    }

    /// Gives a sink up: it is permanent from now on, and open to all.
    ///
    /// # Errors
    /// [`SinkError::Unknown`], or [`SinkError::Access`] if the caller does not own it.
    pub fn disown_sink(&mut self, caller: &Caller, id: SinkId) -> Result<(), SinkError> {
        let sink = self.checked_sink(caller, Operation::Disown, id)?;
        sink.ownership = sink.ownership.disowned();
        Ok(())
    }

    /// Destroys a sink with its conditions. Returns the table to install; clear the sink in the
    /// action unit too.
    ///
    /// # Errors
    /// [`SinkError::Unknown`], [`SinkError::Access`], or [`SinkError::ForeignCondition`] if
    /// somebody else (and the caller is no admin) has a condition in it.
    pub fn destroy_sink(
        &mut self,
        caller: &Caller,
        id: SinkId,
    ) -> Result<Box<MatchTable>, SinkError> {
        self.checked_sink(caller, Operation::Destroy, id)?;
        for condition in self.conditions().filter(|c| c.spec.sink == id) {
            if let Err(AccessError::ForeignOwner { owner }) =
                self.authorise_in(caller, Operation::Destroy, id, &condition.ownership)
            {
                return Err(SinkError::ForeignCondition {
                    condition: condition.id,
                    owner,
                });
            }
        }
        self.remove_sinks(&[id]);
        Ok(self.recompile())
    }

    /// Changes the bounds of a sink's offsets; conditions there are stay as they are.
    ///
    /// # Errors
    /// [`SinkError::Unknown`], [`SinkError::Access`], or [`SinkError::Offsets`].
    pub fn set_offsets(
        &mut self,
        caller: &Caller,
        id: SinkId,
        min_ns: i64,
        max_ns: i64,
    ) -> Result<(), SinkError> {
        let operation = self.change_operation(id);
        let sink = self.checked_sink(caller, operation, id)?;
        if min_ns > max_ns {
            return Err(SinkError::Offsets { min_ns, max_ns });
        }
        (sink.spec.offset_min_ns, sink.spec.offset_max_ns) = (min_ns, max_ns);
        Ok(())
    }

    /// Destroys or releases everything that a client owned.
    pub fn handle_client_gone(&mut self, client: ClientId) -> ClientGone {
        let sinks: Vec<_> = self
            .sinks()
            .filter(|sink| sink.ownership.dies_with(client))
            .map(|sink| (sink.id, sink.spec.kind))
            .collect();
        let conditions: Vec<_> = self
            .conditions()
            .filter(|c| {
                c.ownership.dies_with(client) || sinks.iter().any(|(sink, _)| *sink == c.spec.sink)
            })
            .map(|condition| condition.id)
            .collect();
        for id in &conditions {
            self.remove_condition(id.slot());
        }
        self.remove_sinks(&sinks.iter().map(|(sink, _)| *sink).collect::<Vec<_>>());
        let sinks_left = self.sinks.iter_mut().flatten().map(|s| &mut s.ownership);
        let conditions_left = self.slots.iter_mut().filter_map(|s| s.condition.as_mut());
        let mut released = 0;
        for ownership in sinks_left.chain(conditions_left.map(|c| &mut c.ownership)) {
            if ownership.owner == Some(client) {
                ownership.owner = None;
                released += 1;
            }
        }
        ClientGone {
            sinks,
            conditions,
            released,
            table: self.recompile(),
        }
    }

    /// Everything that a client owns belongs to another one from now on. Returns how many objects.
    pub fn hand_over(&mut self, from: ClientId, to: ClientId) -> usize {
        let sinks = self.sinks.iter_mut().flatten().map(|s| &mut s.ownership);
        let conditions = self.slots.iter_mut().filter_map(|s| s.condition.as_mut());
        let mut count = 0;
        for ownership in sinks.chain(conditions.map(|c| &mut c.ownership)) {
            if ownership.owner == Some(from) {
                ownership.owner = Some(to);
                count += 1;
            }
        }
        count
    }

    /// How many sinks and conditions a client owns.
    pub fn owned_by(&self, client: ClientId) -> usize {
        let of = |ownership: &Ownership| ownership.owner == Some(client);
        let sinks = self.sinks().filter(|sink| of(&sink.ownership)).count();
        sinks + self.conditions().filter(|c| of(&c.ownership)).count()
    }

    /// Every pair of conditions of a sink that must conflict, whatever its policy.
    pub fn conflicts(&self, sink: SinkId) -> ConflictReport {
        let sorted = self.sorted.iter().filter_map(|slot| self.at(*slot));
        find_conflicts(sorted.filter(|c| c.spec.sink == sink), |_| true)
    }

    /// Which active conditions the tables of a receiver of these sizes could hold.
    pub fn hardware_fit(&self, limits: TableLimits) -> HardwareFit {
        hardware_fit::hardware_fit(self.conditions(), |sink| self.kind(sink), limits)
    }

    fn checked_sink(
        &mut self,
        caller: &Caller,
        operation: Operation,
        id: SinkId,
    ) -> Result<&mut Sink, SinkError> {
        let unknown = SinkError::Unknown { sink: id };
        let ownership = self.sink(id).ok_or(unknown.clone())?.ownership;
        self.authorise_in(caller, operation, id, &ownership)?;
        let sink = self.sinks.get_mut(id.index()).and_then(Option::as_mut);
        sink.ok_or(unknown)
    }

    /// Decides whether a caller may do something to a sink or to what is in it, as [`authorise`]
    /// does; whatever but reading also needs the role that changes need there.
    ///
    /// # Errors
    /// The [`AccessError`] of the first rule broken.
    pub fn authorise_in(
        &self,
        caller: &Caller,
        operation: Operation,
        sink: SinkId,
        object: &Ownership,
    ) -> Result<(), AccessError> {
        if operation != Operation::Read {
            authorise(caller, self.change_operation(sink), None)?;
        }
        authorise(caller, operation, Some(object))
    }

    /// What changing conditions of a sink means to the policy.
    fn change_operation(&self, sink: SinkId) -> Operation {
        match self.kind(sink) {
            SinkKind::Software => Operation::ChangeListening,
            _ => Operation::ChangeHardware,
        }
    }

    fn kind(&self, sink: SinkId) -> SinkKind {
        self.sink(sink)
            .map_or(SinkKind::Software, |sink| sink.spec.kind)
    }

    fn at(&self, slot: u32) -> Option<&Condition> {
        self.slots[slot as usize].condition.as_ref()
    }

    fn remove_condition(&mut self, slot: usize) {
        if self.slots[slot].condition.take().is_some() {
            self.slots[slot].generation = self.slots[slot].generation.wrapping_add(1);
            self.free.push(slot as u32);
        }
    }

    fn remove_sinks(&mut self, ids: &[SinkId]) {
        for id in ids {
            self.sinks[id.index()] = None;
        }
        let orphans: Vec<usize> = self
            .conditions()
            .filter(|condition| ids.contains(&condition.spec.sink))
            .map(|condition| condition.id.slot())
            .collect();
        for slot in orphans {
            self.remove_condition(slot);
        }
    }

    /// Compiles what is there after a removal, which always fits.
    fn recompile(&mut self) -> Box<MatchTable> {
        let slots = &self.slots;
        self.sorted.retain(|slot| {
            slots[*slot as usize]
                .condition
                .is_some_and(|c| c.spec.active)
        });
        let table = self
            .compile(&self.sorted)
            .expect("fewer conditions need no more entries than before");
        self.fill = table.fill();
        Box::new(table)
    }

    fn compile(&self, sorted: &[u32]) -> Result<MatchTable, crate::match_table::TableFull> {
        let conditions = sorted.iter().filter_map(|slot| self.at(*slot));
        MatchTable::compile(
            conditions.map(|c| (c, self.kind(c.spec.sink))),
            self.config.limits,
        )
    }
}
