//! The compatibility mode `dbus`: records of a ring sent on as `Action` signals.
//!
//! A thread of its own per subscription reads the ring like any client and sends to one connection
//! only; one that does not read blocks this thread, the ring fills, and the records lost are
//! counted there. It ends with the subscription or the connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use livetime_shm::{Found, RecordReader, WakeSource, WakeUp};
use livetime_wire::{RecordKind, TimingRecord};
use zbus::names::OwnedUniqueName;
use zbus::{Connection, Message, block_on};

use crate::bus::{BUS_NAME, Object, Server};
use crate::executed_action::condition_cookie;
use crate::subscription::SubscriptionEnds;

/// Longest sleep without a look at the connection.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Starts sending the records of a subscription to a connection, or to one name on its bus.
///
/// # Errors
/// When the ring cannot be opened or no thread can be started.
pub fn start(
    server: &Arc<Server>,
    connection: Connection,
    destination: Option<String>,
    ends: SubscriptionEnds,
) -> io::Result<()> {
    let reader = RecordReader::open(ends.data).map_err(io::Error::other)?;
    let wake = ends
        .wake
        .ok_or_else(|| io::Error::other("a ring without a descriptor to sleep on"))?;
    let server = Arc::clone(server);
    std::thread::Builder::new()
        .name("timing-signals".to_owned())
        .spawn(move || {
            // A failure is the end of the connection.
            let _ = forward(&server, &connection, destination.as_deref(), reader, &wake);
        })?;
    Ok(())
}

fn forward(
    server: &Server,
    connection: &Connection,
    destination: Option<&str>,
    mut reader: RecordReader,
    wake: &WakeSource,
) -> zbus::Result<()> {
    let destination = destination.map(OwnedUniqueName::try_from).transpose()?;
    let (mut asleep, mut ended) = (false, false);
    while !connection.is_closed() {
        match reader.poll() {
            Found::Record(words) => {
                asleep = false;
                // A gap is of no condition.
                if let Ok(record) = TimingRecord::new_checked(&words)
                    && record.kind == RecordKind::Message
                {
                    send(server, connection, destination.as_ref(), &record)?;
                }
            }
            Found::Lost { .. } => {}
            Found::Nothing if ended => break,
            Found::Nothing if !asleep => {
                reader.prepare_sleep();
                asleep = true;
            }
            Found::Nothing => {
                ended = wake.wait(Some(LOOK_AGAIN))? == WakeUp::Abandoned;
                asleep = false;
            }
            Found::Closed(_) => break,
        }
    }
    Ok(())
}

fn send(
    server: &Server,
    connection: &Connection,
    destination: Option<&OwnedUniqueName>,
    record: &TimingRecord,
) -> zbus::Result<()> {
    let is_it = |id| condition_cookie(id) == record.condition;
    let object = server.control.read(|registry| {
        let condition = registry.conditions().find(|c| is_it(c.id))?;
        let sink = registry.sink(condition.spec.sink)?;
        Some(Object::Condition(condition.id, sink.spec.name.clone()))
    });
    let Some(object) = object else {
        // Destroyed since.
        return Ok(());
    };
    let interface = format!("{BUS_NAME}.SoftwareCondition");
    let mut builder = Message::signal(object.path(), interface.as_str(), "Action");
    if let Some(name) = destination {
        builder = builder.destination(name);
    }
    let body = (
        record.id,
        record.param,
        record.deadline.0,
        record.executed.0,
        record.flags.0,
    );
    block_on(connection.send(&builder.build(&body)?))
}
