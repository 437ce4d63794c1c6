//! The master function generator as a D-Bus object.

use std::sync::Arc;

use livetime_timing::function_generator::{FunctionGenerator, GeneratorSignal, MasterOutput};
use livetime_wire::TaiNs;
use zbus::message::Header;
use zbus::{Connection, OwnedFd, fdo, interface};

use super::server::Server;
use super::{RECEIVER_PATH, invalid, to_error};
use crate::bulk::read_sealed;
use crate::control::{ControlError, owner_text};
use crate::generators::{BLOCK_BYTES_MAX, Generators, GeneratorsError};

/// Path of the master function generator.
pub const GENERATOR_PATH: &str = "/org/livetime/Timing1/tr0/mfg";
const _: () = assert!(GENERATOR_PATH.len() > RECEIVER_PATH.len());

/// The master function generator.
#[derive(Debug)]
pub struct GeneratorObject {
    server: Arc<Server>,
}

impl GeneratorObject {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        Self {
            server: Arc::clone(server),
        }
    }

    fn of_members<R>(&self, look: impl Fn(&FunctionGenerator) -> R) -> Vec<R> {
        let generators = &self.server.generators;
        generators.read(|members| members.iter().map(look).collect())
    }

    async fn drive<R>(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        drive: impl FnOnce(&Generators, &livetime_timing::Caller) -> Result<R, GeneratorsError>,
    ) -> fdo::Result<R> {
        let client = self.server.caller(connection, header).await?;
        let generators = &self.server.generators;
        let driven = drive(generators, &client.caller());
        // One that has gone meanwhile is not to have them for good.
        if self.server.control.has_gone(client.id) {
            generators.client_gone(client.id);
        }
        driven.map_err(|error| match error {
            GeneratorsError::Access(error) => to_error(ControlError::Access(error)),
            error => invalid(error.to_string()),
        })
    }
}

/// A signal of one member for people, its times as `time` turns them.
fn signal_text(signal: &GeneratorSignal, time: impl Fn(TaiNs) -> TaiNs) -> String {
    let state = |is: bool, word: &str| match is {
        true => word.to_owned(),
        false => format!("not {word}"),
    };
    match signal {
        GeneratorSignal::Enabled(is) => state(*is, "enabled"),
        GeneratorSignal::Armed(is) => state(*is, "armed"),
        GeneratorSignal::Running(is) => state(*is, "running"),
        GeneratorSignal::Started { time: at } => format!("started at {} ns", time(*at).0),
        GeneratorSignal::Refill { dry_at } => {
            format!("ends at {} ns without more", time(*dry_at).0)
        }
        GeneratorSignal::Stopped {
            time: at,
            abort,
            hardware_underflow,
            controller_underflow,
        } => {
            let mut text = format!("stopped at {} ns", time(*at).0);
            for (is, why) in [
                (*abort, ", aborted"),
                (*hardware_underflow, ", hardware underflow"),
                (*controller_underflow, ", controller underflow"),
            ] {
                text += if is { why } else { "" };
            }
            text
        }
    }
}

/// Sends a signal for an output of the master, with the receiver's times, as all that clients see.
pub(crate) fn send_output(server: &Server, output: MasterOutput) {
    let send = |member: &str, body: &(u64, u64, u64)| {
        server.broadcast(GENERATOR_PATH, "MasterFunctionGenerator", member, body);
    };
    let clock = server.control.clock_model();
    match output {
        MasterOutput::Member { member, signal } => {
            let body = (member as u32, signal_text(&signal, |at| clock.time(at)));
            let interface = "MasterFunctionGenerator";
            server.broadcast(GENERATOR_PATH, interface, "MemberSignal", &body);
        }
        MasterOutput::Refill { member, dry_at } => {
            send("Refill", &(member as u64, clock.time(dry_at).0, 0));
        }
        MasterOutput::AllArmed => send("AllArmed", &(0, 0, 0)),
        MasterOutput::ArmTimeout { missing } => send("ArmTimeout", &(missing, 0, 0)),
        MasterOutput::AllStopped {
            time,
            aborted,
            underflow,
        } => send("AllStopped", &(clock.time(time).0, aborted, underflow)),
    }
}

#[interface(
    name = "org.livetime.Timing1.MasterFunctionGenerator",
    spawn = false,
    introspection_docs = false
)]
impl GeneratorObject {
    /// The owner's number, empty if nobody drives it.
    #[zbus(property(emits_changed_signal = "false"))]
    fn owner(&self) -> String {
        owner_text(&self.server.generators.ownership())
    }

    #[zbus(property(emits_changed_signal = "const"))]
    fn members(&self) -> u32 {
        self.of_members(|_| ()).len() as u32
    }

    /// Members that take part, in the order of channels.
    async fn set_active_function_generators(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        members: Vec<u32>,
    ) -> fdo::Result<()> {
        let members: Vec<usize> = members.into_iter().map(|member| member as usize).collect();
        self.drive(connection, &header, |generators, caller| {
            generators.set_active(caller, &members)
        })
        .await
    }

    async fn set_start_tag(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        tag: u32,
    ) -> fdo::Result<()> {
        self.drive(connection, &header, |generators, caller| {
            generators.set_start_tag(caller, tag)
        })
        .await
    }

    async fn set_generate_individual_signals(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        wanted: bool,
    ) -> fdo::Result<()> {
        self.drive(connection, &header, |generators, caller| {
            generators.set_individual_signals(caller, wanted)
        })
        .await
    }

    /// A block of coefficient sets from a sealed memory file, for the members that take part: all
    /// of it or nothing. Returns whether few sets are queued, and how many findings there were.
    async fn append_parameter_sets(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        block: OwnedFd,
        arm: bool,
    ) -> fdo::Result<bool> {
        let bytes = read_sealed(&block.into(), 4, BLOCK_BYTES_MAX)
            .map_err(|error| invalid(error.to_string()))?;
        self.drive(connection, &header, |generators, caller| {
            let appended = if arm {
                generators.append_and_arm(caller, &bytes)?
            } else {
                generators.append(caller, &bytes)?
            };
            Ok(appended.low_fill)
        })
        .await
    }

    async fn arm(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        self.drive(connection, &header, Generators::arm).await
    }

    async fn abort(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        self.drive(connection, &header, Generators::abort).await
    }

    async fn flush(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> fdo::Result<()> {
        self.drive(connection, &header, Generators::flush).await
    }

    /// Time queued in each member, ns.
    fn read_fill_levels(&self) -> Vec<u64> {
        self.of_members(FunctionGenerator::fill_ns)
    }

    fn read_executed_parameter_counts(&self) -> Vec<u64> {
        self.of_members(FunctionGenerator::executed)
    }

    /// `disabled`, `arming`, `armed`, `running` ..
    fn read_states(&self) -> Vec<String> {
        self.of_members(|member| member.state().key().to_owned())
    }

    #[zbus(signal)]
    async fn all_armed(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        none: u64,
        unused: u64,
        reserved: u64,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn arm_timeout(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        missing: u64,
        unused: u64,
        reserved: u64,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn all_stopped(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        time: u64,
        aborted: u64,
        underflow: u64,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn refill(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        member: u64,
        dry_at: u64,
        reserved: u64,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn member_signal(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        member: u32,
        signal: &str,
    ) -> zbus::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_of_a_member_is_a_sentence() {
        let stopped = GeneratorSignal::Stopped {
            time: TaiNs(7),
            abort: true,
            hardware_underflow: false,
            controller_underflow: true,
        };
        for (signal, text) in [
            (GeneratorSignal::Armed(true), "armed"),
            (GeneratorSignal::Running(false), "not running"),
            (
                GeneratorSignal::Started { time: TaiNs(5) },
                "started at 5 ns",
            ),
            (stopped, "stopped at 7 ns, aborted, controller underflow"),
        ] {
            assert_eq!(signal_text(&signal, |at| at), text);
        }
        let ahead = |at: TaiNs| TaiNs(at.0 + 10);
        assert!(signal_text(&stopped, ahead).starts_with("stopped at 17 ns, "));
    }
}
