//! Inputs as D-Bus objects: edges that become timing messages.
//!
//! The names are close to SAFTlib's. The inputs are the emulated receiver's, so that a level is
//! set by a call, where a cable would set it. The rules of edges are in `livetime_timing::input`.

use std::sync::Arc;

use livetime_timing::InputConfig;
use livetime_timing::input::STABLE_STEP_NS;
use livetime_wire::EventId;
use zbus::message::Header;
use zbus::{Connection, fdo, interface};

use super::server::Server;
use super::to_error;

/// An input.
#[derive(Debug)]
pub struct InputObject {
    server: Arc<Server>,
    input: u16,
}

impl InputObject {
    pub(super) fn new(server: &Arc<Server>, input: u16) -> Self {
        Self {
            server: Arc::clone(server),
            input,
        }
    }

    fn config(&self) -> fdo::Result<InputConfig> {
        self.server.control.input(self.input).map_err(to_error)
    }

    /// Level, edges and changes of level that did not stay, as they are now.
    fn figures(&self) -> fdo::Result<(bool, u64, u64)> {
        let figures = self.server.control.fresh_figures().map_err(to_error)?;
        let found = figures.inputs.get(usize::from(self.input)).copied();
        Ok(found.unwrap_or_default())
    }

    async fn configure(
        &self,
        connection: &Connection,
        header: Option<Header<'_>>,
        change: impl FnOnce(&mut InputConfig),
    ) -> fdo::Result<()> {
        let Some(header) = header else {
            return Err(fdo::Error::AccessDenied("nobody asks".to_owned()));
        };
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control
            .configure_input(&client.caller(), self.input, change)
            .map_err(to_error)
    }
}

#[interface(
    name = "org.livetime.Timing1.InputEventSource",
    spawn = false,
    introspection_docs = false
)]
impl InputObject {
    /// Steps of the stable time, ns.
    #[zbus(property(emits_changed_signal = "const"))]
    fn resolution(&self) -> u64 {
        STABLE_STEP_NS.into()
    }

    /// Lowest bits of the event ID that the input sets: one, the level after the edge.
    #[zbus(property(emits_changed_signal = "const"))]
    fn event_bits(&self) -> u32 {
        1
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn event_enable(&self) -> fdo::Result<bool> {
        Ok(self.config()?.enabled)
    }

    #[zbus(property)]
    async fn set_event_enable(
        &self,
        value: bool,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.configure(connection, header, |config| config.enabled = value)
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn event_prefix(&self) -> fdo::Result<u64> {
        Ok(self.config()?.prefix.0)
    }

    #[zbus(property)]
    async fn set_event_prefix(
        &self,
        value: u64,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.configure(connection, header, |config| config.prefix = EventId(value))
            .await
    }

    /// How long a level must stay to be an edge, ns.
    #[zbus(property(emits_changed_signal = "false"))]
    fn stable_time(&self) -> fdo::Result<u32> {
        Ok(self.config()?.stable_ns)
    }

    #[zbus(property)]
    async fn set_stable_time(
        &self,
        value: u32,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Option<Header<'_>>,
    ) -> fdo::Result<()> {
        self.configure(connection, header, |config| config.stable_ns = value)
            .await
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn edge_count(&self) -> fdo::Result<u64> {
        Ok(self.figures()?.1)
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn glitch_count(&self) -> fdo::Result<u64> {
        Ok(self.figures()?.2)
    }

    fn read_input(&self) -> fdo::Result<bool> {
        Ok(self.figures()?.0)
    }

    /// Sets the level of the emulated input.
    async fn set_level(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        level: bool,
    ) -> fdo::Result<()> {
        let client = self.server.caller(connection, &header).await?;
        let control = &self.server.control;
        control
            .set_input_level(&client.caller(), self.input, level)
            .map_err(to_error)
    }
}
