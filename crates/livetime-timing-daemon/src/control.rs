//! Control: what clients ask for, checked and passed to the core.
//!
//! A [`Control`] keeps the registry of `livetime-timing`, the clients and their subscriptions, and
//! is the only one that commands the core's worker. Every change asks the policy there. It speaks
//! no protocol; [`crate::bus`] does. One lock covers it all, and the core never takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use livetime_shm::{OverflowRule, RingMonitor, WakeGroup};
use livetime_timing::{
    AccessError, ActionUnitConfig, Caller, ClientId, ClockFault, ClockModel, Condition,
    ConditionId, HardwareFit, InputConfig, Operation, Ownership, Registry, RegistryConfig, Role,
    SinkError, SinkId, SinkKind, SinkSpec, TableLimits, TransactionError, authorise,
    registry::Sink,
};
use livetime_wire::{PriorityClass, Problem, TaiNs, TimingMessage, TimingRecord};

use crate::access::AccessRules;
use crate::core_handle::{CoreError, CoreHandle, Injector, PATIENCE};
use crate::core_worker::{CoreCommand, CoreSnapshot};
use crate::delivery::{Routing, SUBSCRIPTIONS_MAX};
use crate::lease::{LEASE_MAX, Leases};
use crate::subscription::{
    Subscription, SubscriptionConfig, SubscriptionCounters, SubscriptionEnds, SubscriptionError,
};

mod conditions;
mod leases;
mod schedules;
mod shares;

use shares::SinkOrigin;
pub(crate) use shares::places_for;
pub use shares::{CONDITIONS_PER_CLIENT, CONDITIONS_PER_USER, SINKS_PER_CLIENT, SINKS_PER_USER};

/// Clients connected at a time.
pub const CLIENTS_MAX: usize = 1024;
/// Subscriptions of one client.
pub const SUBSCRIPTIONS_PER_CLIENT: usize = 64;
/// Age up to which figures of the core are given out again: many monitors cost the core no more
/// than one.
const SNAPSHOT_AGE: Duration = Duration::from_millis(50);

/// Why control refused.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The caller may not.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The caller's connection has ended: nobody would clear away what it gets.
    #[error("{client} has gone meanwhile")]
    Gone {
        /// Who.
        client: ClientId,
    },
    /// The user has no role at all.
    #[error("user {uid} has no role here; an admin can add a line to the access rules")]
    Nobody {
        /// The user.
        uid: u32,
    },
    /// About a sink.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// About conditions.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// About a subscription.
    #[error(transparent)]
    Subscription(#[from] SubscriptionError),
    /// A bound is reached.
    #[error("all {max} {what} are taken")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there are.
        max: usize,
    },
    /// There is no such thing.
    #[error("there is no {what} {name}")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// Which.
        name: String,
    },
    /// The sink is of another kind.
    #[error("{sink} is {found}, not {needed}")]
    Kind {
        /// Name of the sink.
        sink: String,
        /// What it is.
        found: SinkKind,
        /// What it should be.
        needed: SinkKind,
    },
    /// The core's inlet is full.
    #[error("the core took {taken} of {offered} messages; its inlet is full, send fewer at a time")]
    InletFull {
        /// Taken.
        taken: usize,
        /// Offered.
        offered: usize,
    },
    /// Not possible with the clock that the daemon has.
    #[error("the clock of this daemon is not virtual; start it with `--virtual` to advance it")]
    NotVirtual,
    /// A clock that is to go back.
    #[error(
        "the clock cannot be advanced to {} ns TAI, which is past: it shows {} ns; give a time from \
         there on", to.0, now.0
    )]
    Past {
        /// Where it was to go.
        to: TaiNs,
        /// Where it is.
        now: TaiNs,
    },
    /// The receiver's clock is not locked.
    #[error("the receiver's clock is not locked to the network")]
    NotLocked,
    /// A lease of such a length is not given.
    #[error("lease of {seconds} s, allowed is 1 to {} s, or 0 to give it back", LEASE_MAX.as_secs())]
    LeaseTime {
        /// Length asked for.
        seconds: u32,
    },
    /// The user has no lease of the token shown.
    #[error(
        "no lease of this token for user {uid}: its time is over, it was given back, the daemon was \
         started anew, or it is another user's"
    )]
    NoLease {
        /// The user who asked.
        uid: u32,
    },
    /// The holder of the lease is there.
    #[error(
        "{holder} holds the lease of this token and is connected; take it over when that one has \
         gone"
    )]
    LeaseHeld {
        /// Who.
        holder: ClientId,
    },
    /// No token for a lease.
    #[error("no random bytes for the token of a lease: {0}")]
    LeaseToken(std::io::Error),
    /// A value is not possible.
    #[error("{0}")]
    Value(Box<Problem>),
    /// The core failed.
    #[error(transparent)]
    Core(#[from] CoreError),
}

/// A client, as control knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its number.
    pub id: ClientId,
    /// Its user.
    pub uid: u32,
    /// Its process, where the transport tells.
    pub pid: Option<u32>,
    /// What it may.
    pub role: Role,
    /// How it is connected: a bus name, or `peer`.
    pub label: String,
}

impl Client {
    /// As the policy wants it.
    pub fn caller(&self) -> Caller {
        Caller {
            client: self.id,
            role: self.role,
        }
    }
}

/// A subscription, as control knows it.
#[derive(Debug, Clone)]
pub struct SubscriptionEntry {
    /// Its place.
    pub place: u16,
    /// Whose it is.
    pub client: ClientId,
    /// The sink it listens to.
    pub sink: SinkId,
    /// What was asked for.
    pub config: SubscriptionConfig,
    /// Its counters.
    pub counters: Arc<SubscriptionCounters>,
    /// Counters of its ring, if it has one.
    pub monitor: Option<RingMonitor>,
    /// With whom it can be woken: all rings of the sink and class.
    group: Option<WakeGroup>,
}

impl SubscriptionEntry {
    fn listens(&self, sink: SinkId, class: PriorityClass) -> bool {
        self.sink == sink && self.config.class == class
    }
}

/// How records are to reach a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryMode {
    /// A ring in shared memory.
    Ring,
    /// A pipe: compatibility.
    Pipe,
}

/// What is gone after a client has left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Departed {
    /// Sinks destroyed.
    pub sinks: Vec<SinkId>,
    /// Conditions destroyed.
    pub conditions: Vec<ConditionId>,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    core: CoreHandle,
    clients: BTreeMap<ClientId, Client>,
    subscriptions: Vec<Option<SubscriptionEntry>>,
    next_client: u64,
    leases: Leases,
    snapshot: Option<(Instant, Arc<CoreSnapshot>)>,
    /// The receiver's clock and inputs as the core has them: only control changes them.
    clock: ClockModel,
    inputs: Vec<InputConfig>,
    /// Raised with every change of sinks, conditions or owners.
    revision: u64,
    /// Why the state file could not be written, if it could not.
    kept_error: Option<String>,
}

/// The control side of one receiver.
#[derive(Debug)]
pub struct Control {
    state: Mutex<State>,
    injector: Injector,
    rules: AccessRules,
    unit: ActionUnitConfig,
    epoch: u32,
}

impl Control {
    /// Control of a running core.
    ///
    /// # Errors
    /// Problems of the registry's configuration.
    pub fn new(
        registry: RegistryConfig,
        core: CoreHandle,
        injector: Injector,
        rules: AccessRules,
        unit: ActionUnitConfig,
        epoch: u32,
    ) -> Result<Self, Vec<Problem>> {
        let inputs = vec![InputConfig::default(); core.inputs().into()];
        Ok(Self {
            state: Mutex::new(State {
                registry: Registry::new(registry)?,
                core,
                clients: BTreeMap::new(),
                subscriptions: (0..SUBSCRIPTIONS_MAX).map(|_| None).collect(),
                next_client: 1,
                leases: Leases::default(),
                snapshot: None,
                clock: ClockModel::locked(),
                inputs,
                revision: 0,
                kept_error: None,
            }),
            injector,
            rules,
            unit,
            epoch,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere ends the program by its hook; the state itself is never half changed
        // for a reader.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which start of the daemon this is.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Raised with every change of sinks, conditions or owners.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// What became of the last attempt to write the state file.
    pub fn set_kept_error(&self, error: Option<String>) {
        self.lock().kept_error = error;
    }

    /// Why the state file could not be written, if it could not.
    pub fn kept_error(&self) -> Option<String> {
        self.lock().kept_error.clone()
    }

    /// The core's inlet and clock.
    pub fn injector(&self) -> &Injector {
        &self.injector
    }

    /// A client has come.
    ///
    /// # Errors
    /// [`ControlError::Nobody`] without a role, [`ControlError::Full`] when too many are there.
    pub fn client_arrived(
        &self,
        uid: u32,
        gids: &[u32],
        pid: Option<u32>,
        label: &str,
    ) -> Result<Client, ControlError> {
        let role = self.rules.role_of(uid, gids);
        let role = role.ok_or(ControlError::Nobody { uid })?;
        let mut state = self.lock();
        let places = places_for(role, CLIENTS_MAX);
        if state.clients.len() + state.leases.orphans() >= places {
            return Err(ControlError::Full {
                what: "places for clients",
                max: places,
            });
        }
        let id = ClientId(state.next_client);
        state.next_client += 1;
        let client = Client {
            id,
            uid,
            pid,
            role,
            label: label.to_owned(),
        };
        state.clients.insert(id, client.clone());
        Ok(client)
    }

    /// A client has gone, in order or not: what it owned is destroyed or released, or stays if it
    /// has a lease.
    ///
    /// # Errors
    /// [`ControlError::Core`].
    pub fn client_gone(&self, id: ClientId) -> Result<Departed, ControlError> {
        let mut state = self.lock();
        if state.clients.remove(&id).is_none() {
            return Ok(Departed::default());
        }
        if state.leases.client_gone(id, Instant::now()) {
            state.end_subscriptions(|entry| entry.client == id)?;
            return Ok(Departed::default());
        }
        state.clear_away(id)
    }

    /// Whether a client was here and has gone.
    pub fn has_gone(&self, id: ClientId) -> bool {
        self.lock().has_gone(id)
    }

    /// All clients.
    pub fn clients(&self) -> Vec<Client> {
        self.lock().clients.values().cloned().collect()
    }

    /// All subscriptions.
    pub fn subscriptions(&self) -> Vec<SubscriptionEntry> {
        self.lock()
            .subscriptions
            .iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Looks at the registry.
    pub fn read<R>(&self, look: impl FnOnce(&Registry) -> R) -> R {
        look(&self.lock().registry)
    }

    /// A sink.
    ///
    /// # Errors
    /// [`ControlError::Unknown`].
    pub fn sink(&self, id: SinkId) -> Result<Sink, ControlError> {
        self.read(|registry| registry.sink(id).cloned())
            .ok_or_else(|| unknown("sink", &id))
    }

    /// A condition.
    ///
    /// # Errors
    /// [`ControlError::Unknown`].
    pub fn condition(&self, id: ConditionId) -> Result<Condition, ControlError> {
        self.read(|registry| registry.condition(id).copied())
            .ok_or_else(|| unknown("condition", &id))
    }

    /// Creates a sink for a client.
    ///
    /// # Errors
    /// [`ControlError::Gone`], [`ControlError::Sink`] or [`ControlError::Core`].
    pub fn create_sink(&self, caller: &Caller, spec: SinkSpec) -> Result<SinkId, ControlError> {
        let kind = spec.kind;
        let mut state = self.lock();
        state.check_here(caller.client)?;
        shares::check_sink(&state.registry, caller, SinkOrigin::Made)?;
        shares::check_sinks_of_user(&state.registry, caller, &state.of_same_user(caller))?;
        let sink = state.registry.create_sink(caller, spec)?;
        state.revision += 1;
        // Its place may have been another's, whose figures these are.
        state.snapshot = None;
        state.core.send(CoreCommand::ClearSink(sink, kind))?;
        Ok(sink)
    }

    /// Adds a sink that the receiver itself has.
    ///
    /// # Errors
    /// [`ControlError::Sink`].
    pub fn add_fixed_sink(&self, spec: SinkSpec) -> Result<SinkId, ControlError> {
        Ok(self.lock().registry.add_fixed_sink(spec)?)
    }

    /// Destroys a sink with its conditions and subscriptions. Returns the conditions.
    ///
    /// # Errors
    /// [`ControlError::Sink`] or [`ControlError::Core`].
    pub fn destroy_sink(
        &self,
        caller: &Caller,
        id: SinkId,
    ) -> Result<Vec<ConditionId>, ControlError> {
        let mut state = self.lock();
        let kind = state.registry.sink(id).map(|sink| sink.spec.kind);
        let conditions = state
            .registry
            .conditions()
            .filter(|condition| condition.spec.sink == id)
            .map(|condition| condition.id)
            .collect();
        let table = state.registry.destroy_sink(caller, id)?;
        state.revision += 1;
        state.snapshot = None;
        state.core.send(CoreCommand::Install(table))?;
        state.end_subscriptions(|entry| entry.sink == id)?;
        if let Some(kind) = kind {
            state.core.send(CoreCommand::ClearSink(id, kind))?;
        }
        Ok(conditions)
    }

    /// Takes or gives up a sink.
    ///
    /// # Errors
    /// [`ControlError::Gone`] or [`ControlError::Sink`].
    pub fn own_sink(&self, caller: &Caller, id: SinkId, own: bool) -> Result<(), ControlError> {
        let mut state = self.lock();
        state.check_here(caller.client)?;
        let owner = state
            .registry
            .sink(id)
            .and_then(|sink| sink.ownership.owner);
        if !own {
            shares::check_disowned_sink(&state.registry, caller)?;
        } else if owner != Some(caller.client) {
            shares::check_sink(&state.registry, caller, SinkOrigin::Taken)?;
            shares::check_sinks_of_user(&state.registry, caller, &state.of_same_user(caller))?;
        }
        state.revision += 1;
        Ok(match own {
            true => state.registry.own_sink(caller, id),
            false => state.registry.disown_sink(caller, id),
        }?)
    }

    /// Changes the bounds of a sink's offsets.
    ///
    /// # Errors
    /// [`ControlError::Sink`].
    pub fn set_offsets(
        &self,
        caller: &Caller,
        id: SinkId,
        min_ns: i64,
        max_ns: i64,
    ) -> Result<(), ControlError> {
        let mut state = self.lock();
        state.revision += 1;
        Ok(state.registry.set_offsets(caller, id, min_ns, max_ns)?)
    }

    /// Which active conditions a hardware receiver could hold.
    pub fn hardware_fit(&self) -> HardwareFit {
        self.read(|registry| registry.hardware_fit(TableLimits::HARDWARE))
    }

    /// Subscribes a client to a software sink that it owns or that nobody owns. Returns the place
    /// and the client's ends.
    ///
    /// # Errors
    /// [`ControlError`] when it may not, cannot, or too many are there.
    pub fn subscribe(
        &self,
        caller: &Caller,
        sink: SinkId,
        config: &SubscriptionConfig,
        mode: DeliveryMode,
    ) -> Result<(u16, SubscriptionEnds), ControlError> {
        let mut state = self.lock();
        state.check_here(caller.client)?;
        let found = state
            .registry
            .sink(sink)
            .ok_or_else(|| unknown("sink", &sink))?;
        if found.spec.kind != SinkKind::Software {
            return Err(ControlError::Kind {
                sink: found.spec.name.clone(),
                found: found.spec.kind,
                needed: SinkKind::Software,
            });
        }
        authorise(caller, Operation::ChangeListening, Some(&found.ownership))?;
        let own = state.subscriptions.iter().flatten();
        if own.filter(|entry| entry.client == caller.client).count() >= SUBSCRIPTIONS_PER_CLIENT {
            return Err(ControlError::Full {
                what: "subscriptions of the client",
                max: SUBSCRIPTIONS_PER_CLIENT,
            });
        }
        let free = state.subscriptions.iter().position(Option::is_none);
        let index = free.ok_or(ControlError::Full {
            what: "subscriptions of the daemon",
            max: SUBSCRIPTIONS_MAX,
        })?;
        let place = index as u16;
        let config = SubscriptionConfig {
            epoch: self.epoch,
            rule: match mode {
                DeliveryMode::Ring => config.rule,
                // Nothing is taken back out of a pipe.
                DeliveryMode::Pipe => OverflowRule::DropNewest,
            },
            ..*config
        };
        let mut group = None;
        let (subscription, ends) = match mode {
            DeliveryMode::Ring => {
                let group = group.insert(state.wake_group(sink, config.class)?);
                Subscription::ring_in(group, &config)?
            }
            DeliveryMode::Pipe => Subscription::pipe(&config)?,
        };
        state.subscriptions[index] = Some(SubscriptionEntry {
            place,
            client: caller.client,
            sink,
            config,
            counters: Arc::clone(&ends.counters),
            monitor: ends.monitor.clone(),
            group,
        });
        state.exchange(place, Some(subscription))?;
        Ok((place, ends))
    }

    /// Ends a subscription of the caller.
    ///
    /// # Errors
    /// [`ControlError::Unknown`] if it is not the caller's, or [`ControlError::Core`].
    pub fn unsubscribe(&self, caller: &Caller, place: u16) -> Result<(), ControlError> {
        let mut state = self.lock();
        let entry = state.subscriptions.get(usize::from(place));
        let own = entry.and_then(Option::as_ref);
        if own.is_none_or(|entry| entry.client != caller.client) {
            return Err(unknown("subscription of the caller", &place));
        }
        state.end_subscriptions(|entry| entry.place == place)
    }

    /// Injects messages.
    ///
    /// # Errors
    /// [`ControlError::Access`], or [`ControlError::InletFull`] with those taken.
    pub fn inject(&self, caller: &Caller, messages: &[TimingMessage]) -> Result<(), ControlError> {
        authorise(caller, Operation::Inject, None)?;
        let taken = self.injector.inject(messages);
        if taken < messages.len() {
            return Err(ControlError::InletFull {
                taken,
                offered: messages.len(),
            });
        }
        Ok(())
    }

    /// Sets an output at once.
    ///
    /// # Errors
    /// [`ControlError`] when the caller may not or it is no output.
    pub fn write_output(&self, caller: &Caller, id: SinkId, on: bool) -> Result<(), ControlError> {
        self.authorise_sink(caller, Operation::WriteOutput, id)?;
        self.check_output(id)?;
        Ok(self.lock().core.send(CoreCommand::WriteOutput(id, on))?)
    }

    /// Whether a sink is an output, which has levels and no tags.
    ///
    /// # Errors
    /// [`ControlError::Kind`] if it is not, or [`ControlError::Unknown`].
    pub fn check_output(&self, id: SinkId) -> Result<(), ControlError> {
        let SinkSpec { name, kind, .. } = self.sink(id)?.spec;
        match kind {
            SinkKind::Output => Ok(()),
            found => Err(ControlError::Kind {
                sink: name,
                found,
                needed: SinkKind::Output,
            }),
        }
    }

    /// Lets something happen to the emulated receiver's clock now.
    ///
    /// # Errors
    /// [`ControlError::Access`], [`ControlError::Value`] of an impossible drift, or
    /// [`ControlError::Core`].
    pub fn clock_fault(&self, caller: &Caller, fault: ClockFault) -> Result<(), ControlError> {
        authorise(caller, Operation::ChangeClock, None)?;
        let mut state = self.lock();
        let now = self.injector.clock().now();
        let done = state.clock.handle_fault(now, fault);
        done.map_err(|problem| ControlError::Value(Box::new(problem)))?;
        state.snapshot = None;
        Ok(state.core.send(CoreCommand::Fault(now, fault))?)
    }

    /// The receiver's clock: what it makes of the machine's time.
    pub fn clock_model(&self) -> ClockModel {
        self.lock().clock
    }

    /// The receiver's time.
    pub fn time(&self) -> TaiNs {
        self.clock_model().time(self.injector.clock().now())
    }

    /// How an input makes messages.
    ///
    /// # Errors
    /// [`ControlError::Unknown`].
    pub fn input(&self, input: u16) -> Result<InputConfig, ControlError> {
        let state = self.lock();
        let found = state.inputs.get(usize::from(input)).copied();
        found.ok_or_else(|| unknown("input", &input))
    }

    /// Number of inputs.
    pub fn inputs(&self) -> u16 {
        self.lock().inputs.len() as u16
    }

    /// Changes how an input makes messages.
    ///
    /// # Errors
    /// [`ControlError`] when the caller may not, there is no such input, or a value is impossible.
    pub fn configure_input(
        &self,
        caller: &Caller,
        input: u16,
        change: impl FnOnce(&mut InputConfig),
    ) -> Result<(), ControlError> {
        authorise(caller, Operation::ChangeInput, None)?;
        let mut state = self.lock();
        let place = state.inputs.get_mut(usize::from(input));
        let place = place.ok_or_else(|| unknown("input", &input))?;
        let mut config = *place;
        change(&mut config);
        if let Some(problem) = config.validate("input").into_iter().next() {
            return Err(ControlError::Value(Box::new(problem)));
        }
        *place = config;
        Ok(state
            .core
            .send(CoreCommand::ConfigureInput(input, config))?)
    }

    /// The level of an emulated input is this from now on.
    ///
    /// # Errors
    /// [`ControlError`] when the caller may not or there is no such input.
    pub fn set_input_level(
        &self,
        caller: &Caller,
        input: u16,
        level: bool,
    ) -> Result<(), ControlError> {
        authorise(caller, Operation::ChangeInput, None)?;
        self.input(input)?;
        let mut state = self.lock();
        let now = self.injector.clock().now();
        state.snapshot = None;
        Ok(state
            .core
            .send(CoreCommand::InputLevel(input, now, level))?)
    }

    /// Advances a virtual clock until the receiver's shows this, after everything commanded before.
    /// Returns what it shows then.
    ///
    /// # Errors
    /// [`ControlError::Access`], [`ControlError::NotVirtual`], or [`ControlError::Past`].
    pub fn advance_to(&self, caller: &Caller, time: TaiNs) -> Result<TaiNs, ControlError> {
        authorise(caller, Operation::ChangeClock, None)?;
        if !self.injector.clock().is_virtual() {
            return Err(ControlError::NotVirtual);
        }
        let mut state = self.lock();
        let now = state.clock.time(self.injector.clock().now());
        if time < now {
            return Err(ControlError::Past { to: time, now });
        }
        // What moves is the machine's time; faults have shifted the receiver's.
        let machine = state.clock.true_time(time);
        state.core.send(CoreCommand::Advance(machine))?;
        let start = Instant::now();
        while state.fresh_figures(false)?.behind {
            if start.elapsed() > PATIENCE {
                return Err(CoreError::Stuck.into());
            }
        }
        Ok(state.clock.time(self.injector.clock().now()))
    }

    /// Starts the high-water mark of a sink's channel anew.
    ///
    /// # Errors
    /// [`ControlError`] when the caller may not.
    pub fn clear_most_full(&self, caller: &Caller, id: SinkId) -> Result<(), ControlError> {
        let sink = self.authorise_sink(caller, Operation::ClearCounters, id)?;
        let command = CoreCommand::ClearMostFull(sink.spec.kind);
        let mut state = self.lock();
        state.snapshot = None;
        Ok(state.core.send(command)?)
    }

    /// Whether the policy lets the caller do something to a sink; the sink.
    ///
    /// # Errors
    /// [`ControlError::Unknown`] or [`ControlError::Access`].
    pub fn authorise_sink(
        &self,
        caller: &Caller,
        operation: Operation,
        id: SinkId,
    ) -> Result<Sink, ControlError> {
        let sink = self.sink(id)?;
        self.read(|registry| registry.authorise_in(caller, operation, id, &sink.ownership))?;
        Ok(sink)
    }

    /// Whether the policy lets the caller do something to the receiver as a whole.
    ///
    /// # Errors
    /// [`ControlError::Access`].
    pub fn authorise(&self, caller: &Caller, operation: Operation) -> Result<(), ControlError> {
        Ok(authorise(caller, operation, None)?)
    }

    /// Sizes and times of the action unit.
    pub fn unit_config(&self) -> &ActionUnitConfig {
        &self.unit
    }

    /// Figures of the core, at most 50 ms old.
    ///
    /// # Errors
    /// [`ControlError::Core`].
    pub fn figures(&self) -> Result<Arc<CoreSnapshot>, ControlError> {
        let mut state = self.lock();
        if let Some((at, snapshot)) = &state.snapshot
            && at.elapsed() < SNAPSHOT_AGE
        {
            return Ok(Arc::clone(snapshot));
        }
        state.fresh_figures(false)
    }

    /// Figures of the core as they are after all that was commanded before.
    ///
    /// # Errors
    /// [`ControlError::Core`].
    pub fn fresh_figures(&self) -> Result<Arc<CoreSnapshot>, ControlError> {
        self.lock().fresh_figures(false)
    }

    /// The same, with the reports of flagged actions taken out of the core, which frees their
    /// places in the queues.
    ///
    /// # Errors
    /// [`ControlError::Core`].
    pub fn figures_with_reports(&self) -> Result<Arc<CoreSnapshot>, ControlError> {
        self.lock().fresh_figures(true)
    }

    /// The last actions, oldest first.
    ///
    /// # Errors
    /// [`ControlError::Core`].
    pub fn flight(&self) -> Result<Vec<TimingRecord>, ControlError> {
        Ok(self.lock().core.flight()?)
    }

    /// What the machine refused to the core's worker.
    pub fn refusals(&self) -> Vec<String> {
        let refusals = Arc::clone(&self.lock().core.refusals);
        let refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.clone()
    }

    /// Stops the core.
    ///
    /// # Errors
    /// [`ControlError::Core`].
    pub fn stop(&self) -> Result<(), ControlError> {
        let mut state = self.lock();
        if state.core.is_stopped() {
            return Ok(());
        }
        state.end_subscriptions(|_| true)?;
        Ok(state.core.stop()?)
    }
}

impl State {
    /// Numbers are given in their order, and each once.
    fn has_gone(&self, id: ClientId) -> bool {
        (1..self.next_client).contains(&id.0) && !self.clients.contains_key(&id)
    }

    /// A call may find that its client has gone while it waited for the lock.
    fn check_here(&self, client: ClientId) -> Result<(), ControlError> {
        match self.has_gone(client) {
            true => Err(ControlError::Gone { client }),
            false => Ok(()),
        }
    }

    /// All clients of the caller's user: those that are here, and those whose leases are kept.
    fn of_same_user(&self, caller: &Caller) -> BTreeSet<ClientId> {
        let Some(uid) = self.clients.get(&caller.client).map(|client| client.uid) else {
            return BTreeSet::new();
        };
        let here = self.clients.values().filter(|client| client.uid == uid);
        let here = here.map(|client| client.id);
        here.chain(self.leases.orphans_of(uid)).collect()
    }

    fn fresh_figures(&mut self, with_reports: bool) -> Result<Arc<CoreSnapshot>, ControlError> {
        let sinks = self.registry.sinks().map(|sink| (sink.id, sink.spec.kind));
        let sinks_max = self.registry.config().sinks_max;
        let ask = CoreSnapshot::asking_for(sinks, sinks_max, self.inputs.len(), with_reports);
        let snapshot: Arc<CoreSnapshot> = self.core.snapshot(ask)?.into();
        self.snapshot = Some((Instant::now(), Arc::clone(&snapshot)));
        Ok(snapshot)
    }

    /// Destroys or releases what a client owned, and ends its subscriptions.
    fn clear_away(&mut self, id: ClientId) -> Result<Departed, ControlError> {
        let gone = self.registry.handle_client_gone(id);
        self.revision += 1;
        self.snapshot = None;
        self.core.send(CoreCommand::Install(gone.table))?;
        let sinks: Vec<SinkId> = gone.sinks.iter().map(|(sink, _)| *sink).collect();
        self.end_subscriptions(|entry| entry.client == id || sinks.contains(&entry.sink))?;
        for (sink, kind) in &gone.sinks {
            self.core.send(CoreCommand::ClearSink(*sink, *kind))?;
        }
        Ok(Departed {
            sinks,
            conditions: gone.conditions,
        })
    }

    /// The group of those who listen to a sink with a ring in this class: theirs, or a new one.
    fn wake_group(
        &self,
        sink: SinkId,
        class: PriorityClass,
    ) -> Result<WakeGroup, SubscriptionError> {
        let mut listening = self.subscriptions.iter().flatten();
        let of_others =
            listening.find_map(|entry| entry.group.as_ref().filter(|_| entry.listens(sink, class)));
        Ok(of_others.map_or_else(WakeGroup::new, |group| Ok(group.clone()))?)
    }

    fn end_subscriptions(
        &mut self,
        ends: impl Fn(&SubscriptionEntry) -> bool,
    ) -> Result<(), ControlError> {
        for place in 0..self.subscriptions.len() {
            if self.subscriptions[place].as_ref().is_some_and(&ends) {
                self.subscriptions[place] = None;
                self.exchange(place as u16, None)?;
            }
        }
        Ok(())
    }

    /// Tells the core who is in a place, and who listens to what now.
    fn exchange(
        &mut self,
        place: u16,
        subscription: Option<Box<Subscription>>,
    ) -> Result<(), ControlError> {
        let listeners: Vec<(u16, u16, PriorityClass)> = self
            .subscriptions
            .iter()
            .flatten()
            .map(|entry| (entry.place, entry.sink.0, entry.config.class))
            .collect();
        let sinks = listeners.iter().map(|(_, sink, _)| usize::from(*sink) + 1);
        let mut routing = Box::new(Routing::new(sinks.max().unwrap_or(0), &listeners));
        for entry in self.subscriptions.iter().flatten() {
            if let Some(group) = &entry.group {
                routing.set_group(entry.sink.0, entry.config.class, group.clone());
            }
        }
        Ok(self.core.send(CoreCommand::Exchange {
            place,
            subscription,
            routing,
        })?)
    }
}

fn unknown(what: &'static str, name: &impl ToString) -> ControlError {
    ControlError::Unknown {
        what,
        name: name.to_string(),
    }
}

/// The owner of an object for a client to read: its number, or nothing.
pub fn owner_text(ownership: &Ownership) -> String {
    ownership
        .owner
        .map_or_else(String::new, |owner| owner.0.to_string())
}
