//! The timing daemon's client for Python: records as bytes, many at a time.
//!
//! Waiting and reading hold no interpreter lock. What the bytes mean, arrays, asyncio and callbacks
//! are made in `livetime/timing.py`; the protocol is `livetime_client`'s.

use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use livetime_client::{
    Address, ClientError, EventId, Filter, Listener, OverflowRule, PriorityClass,
    SubscriptionOptions, TaiNs, TimingClient, TimingMessage, Wait,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::LivetimeError;

fn failed(error: impl std::fmt::Display) -> PyErr {
    LivetimeError::new_err(error.to_string())
}

fn address_of(address: Option<&str>) -> PyResult<Address> {
    match address {
        None => Ok(Address::usual()),
        Some(text) => text.parse().map_err(failed),
    }
}

/// A listener of the timing daemon that goes on by itself when the daemon is restarted.
#[pyclass(name = "TimingListener")]
pub(crate) struct PyTimingListener {
    reading: Mutex<Reading>,
}

struct Reading {
    listener: Listener,
    /// An error that was met behind records: they are given first.
    failed: Option<ClientError>,
}

impl Reading {
    /// At least one record within `wait`, and those that are there then, at most `most`.
    fn read(&mut self, most: usize, mut wait: Option<Duration>) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        for _ in 0..most {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            match self.listener.next(wait) {
                Ok(Some(record)) => bytes.extend_from_slice(&record.to_bytes()),
                Ok(None) => break,
                Err(error) if bytes.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
            wait = Some(Duration::ZERO);
        }
        Ok(bytes)
    }
}

impl PyTimingListener {
    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyTimingListener {
    #[new]
    #[pyo3(signature = (address, filters, slots, overflow, priority, spin))]
    fn new(
        py: Python<'_>,
        address: Option<String>,
        filters: Vec<(u64, u64, i64)>,
        slots: u32,
        overflow: &str,
        priority: &str,
        spin: bool,
    ) -> PyResult<Self> {
        let address = address_of(address.as_deref())?;
        let options = SubscriptionOptions {
            slots,
            rule: OverflowRule::from_name(overflow).ok_or_else(|| {
                failed("overflow is \"drop-oldest\", \"drop-newest\" or \"disconnect\"")
            })?,
            class: PriorityClass::from_name(priority)
                .ok_or_else(|| failed("priority is \"high\", \"generic\" or \"idle\""))?,
            wait: if spin { Wait::Spin } else { Wait::Sleep },
            ..SubscriptionOptions::default()
        };
        let filters: Vec<Filter> = filters
            .into_iter()
            .map(|(id, mask, offset_ns)| Filter {
                id,
                mask,
                offset_ns,
                accept_all: true,
            })
            .collect();
        let listener = py
            .detach(|| Listener::start(&address, &filters, &options))
            .map_err(failed)?;
        Ok(Self {
            reading: Mutex::new(Reading {
                listener,
                failed: None,
            }),
        })
    }

    /// At least one record within the timeout, and those that are there then, at most `most`: 64
    /// bytes each. An error behind records is raised by the next call.
    #[pyo3(signature = (most, timeout))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        most: usize,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let wait = timeout
            .map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let bytes = py.detach(|| self.lock().read(most, wait)).map_err(failed)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// A record that is there already (64 bytes), or nothing after announcing a sleep on
    /// `fileno()`: then wait until that is readable, and call `woken()`.
    fn prepare_wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut reading = self.lock();
        let found = match reading.listener.subscription() {
            Some(subscription) => subscription.prepare_wait(),
            None => Ok(None),
        };
        match found {
            Ok(Some(record)) => Ok(PyBytes::new(py, &record.to_bytes())),
            // An end is met again, and handled, by `read`.
            Ok(None) | Err(ClientError::Gone) => Ok(PyBytes::new(py, &[])),
            Err(error) => Err(failed(error)),
        }
    }

    /// The descriptor of a prepared wait; -1 while the daemon is away.
    fn fileno(&self) -> i32 {
        let mut reading = self.lock();
        let subscription = reading.listener.subscription();
        subscription.map_or(-1, |subscription| subscription.wake_fd().as_raw_fd())
    }

    /// Ends a prepared wait.
    fn woken(&self) -> PyResult<()> {
        self.lock().listener.woken().map_err(failed)
    }

    /// Times that the daemon was found again.
    fn restarts(&self) -> u32 {
        self.lock().listener.restarts()
    }
}

/// The daemon's control.
#[pyclass(name = "TimingControl")]
pub(crate) struct PyTimingControl {
    client: TimingClient,
}

#[pymethods]
impl PyTimingControl {
    #[new]
    #[pyo3(signature = (address=None))]
    fn new(py: Python<'_>, address: Option<String>) -> PyResult<Self> {
        let address = address_of(address.as_deref())?;
        let client = py
            .detach(|| TimingClient::connect(&address))
            .map_err(failed)?;
        Ok(Self { client })
    }

    /// The state of the daemon as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.client.status()).map_err(failed)
    }

    /// The receiver's time, TAI ns.
    fn time(&self, py: Python<'_>) -> PyResult<u64> {
        let time = py.detach(|| self.client.raw_time()).map_err(failed)?;
        Ok(time.0)
    }

    /// Injects one message.
    fn inject(&self, py: Python<'_>, id: u64, param: u64, time: u64) -> PyResult<()> {
        py.detach(|| self.client.inject(EventId(id), param, TaiNs(time)))
            .map_err(failed)
    }

    /// Has messages `(id, param, time)` played, in the order of their times.
    fn play(
        &self,
        py: Python<'_>,
        messages: Vec<(u64, u64, u64)>,
        lead_ns: u64,
        repeats: u32,
        period_ns: u64,
    ) -> PyResult<u32> {
        let messages: Vec<TimingMessage> = messages
            .into_iter()
            .map(|(id, param, time)| TimingMessage::new(EventId(id), param, TaiNs(time)))
            .collect();
        py.detach(|| self.client.play(&messages, lead_ns, repeats, period_ns))
            .map_err(failed)
    }

    /// Ends all schedules that are playing; how many were.
    fn stop_schedules(&self, py: Python<'_>) -> PyResult<u32> {
        py.detach(|| self.client.stop_schedules()).map_err(failed)
    }

    /// Advances a virtual clock; the time then.
    fn advance_clock(&self, py: Python<'_>, time: u64) -> PyResult<u64> {
        let now = py
            .detach(|| self.client.advance_clock(TaiNs(time)))
            .map_err(failed)?;
        Ok(now.0)
    }

    /// Adds an active condition to an output or a bus; its path.
    fn add_condition(
        &self,
        py: Python<'_>,
        sink: &str,
        filter: (u64, u64, i64),
        tag: u32,
    ) -> PyResult<String> {
        let (id, mask, offset_ns) = filter;
        let filter = Filter {
            id,
            mask,
            offset_ns,
            accept_all: false,
        };
        py.detach(|| self.client.add_output_condition(sink, &filter, tag))
            .map_err(failed)
    }

    /// Destroys a sink or condition.
    fn destroy(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        py.detach(|| self.client.destroy(path)).map_err(failed)
    }

    /// Has sinks and conditions stay for so many seconds after this client; the token.
    fn lease(&self, py: Python<'_>, seconds: u32) -> PyResult<String> {
        let length = Duration::from_secs(seconds.into());
        py.detach(|| self.client.lease(length)).map_err(failed)
    }

    /// Takes over the lease of a token; how many sinks and conditions are under it.
    fn resume(&self, py: Python<'_>, token: &str) -> PyResult<u32> {
        py.detach(|| self.client.resume(token)).map_err(failed)
    }

    /// Appends a block of coefficient sets and arms if wanted; whether more are wanted.
    fn append_block(&self, py: Python<'_>, block: Vec<u8>, arm: bool) -> PyResult<bool> {
        py.detach(|| self.client.append_block(&block, arm))
            .map_err(failed)
    }
}
