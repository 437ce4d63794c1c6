//! A daemon on a virtual clock, alone or on a private bus, and its clients.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use livetime_client::{Address, Subscription, TaiNs, TimingClient, TimingRecord};
use livetime_timing_daemon::bus::listener::BusChoice;
use livetime_timing_daemon::{Daemon, DaemonConfig};

pub(crate) const LONG: Option<Duration> = Some(Duration::from_secs(60));
pub(crate) const START: TaiNs = TaiNs(1_000_000_000_000);
pub(crate) const RECEIVER: &str = "/org/livetime/Timing1/tr0";
pub(crate) const MASTER: &str = "/org/livetime/Timing1/tr0/mfg";

/// A daemon with a virtual clock, its folder, and perhaps a bus.
pub(crate) struct Stage {
    pub(crate) daemon: Daemon,
    pub(crate) address: Address,
    pub(crate) folder: tempfile::TempDir,
    _bus: Option<PrivateBus>,
}

pub(crate) fn uid() -> u32 {
    // The owner of a fresh folder is who we are.
    std::os::unix::fs::MetadataExt::uid(&tempfile::tempdir().unwrap().path().metadata().unwrap())
}

pub(crate) fn config(socket: PathBuf) -> DaemonConfig {
    let mut config = DaemonConfig::for_user(uid());
    config.socket = Some(socket);
    config.virtual_start = Some(START);
    config
}

pub(crate) fn stage_with(change: impl FnOnce(&mut DaemonConfig)) -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("t.sock");
    let mut config = config(socket.clone());
    change(&mut config);
    Stage {
        daemon: Daemon::start(&config).unwrap(),
        address: Address::Socket(socket),
        folder,
        _bus: None,
    }
}

pub(crate) fn stage() -> Stage {
    stage_with(|_| {})
}

/// A bus of our own: `None` where there is no `dbus-daemon`.
pub(crate) struct PrivateBus {
    child: Child,
    address: String,
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn private_bus(folder: &std::path::Path) -> Option<PrivateBus> {
    let path = folder.join("bus.conf");
    let text = format!(
        "<busconfig><type>custom</type><listen>unix:path={}/bus</listen><auth>EXTERNAL</auth>\
         <policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/>\
         <allow send_destination=\"*\"/><allow receive_sender=\"*\"/></policy></busconfig>",
        folder.display()
    );
    std::fs::write(&path, text).unwrap();
    let started = Command::new("dbus-daemon")
        .arg(format!("--config-file={}", path.display()))
        .args(["--nofork", "--print-address"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = started else {
        println!("SKIPPED: there is no dbus-daemon");
        return None;
    };
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let address = line.trim().to_owned();
    Some(PrivateBus { child, address })
}

/// The same daemon on a bus.
pub(crate) fn bus_stage() -> Option<Stage> {
    let folder = tempfile::tempdir().unwrap();
    let bus = private_bus(folder.path())?;
    let mut config = config(folder.path().join("t.sock"));
    config.buses = vec![BusChoice::Address(bus.address.clone())];
    Some(Stage {
        daemon: Daemon::start(&config).unwrap(),
        address: Address::Bus(bus.address.clone()),
        folder,
        _bus: Some(bus),
    })
}

impl Stage {
    pub(crate) fn client(&self) -> TimingClient {
        TimingClient::connect(&self.address).unwrap()
    }
}

pub(crate) fn messages(subscription: &mut Subscription, count: usize) -> Vec<TimingRecord> {
    let mut records = Vec::new();
    while records.len() < count {
        records.extend(subscription.next(LONG).unwrap());
    }
    records
}
