//! What one user gets of a daemon that many share, whatever it does with connections and leases.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use livetime_timing::{Caller, Change, ConditionSpec, IdFilter, SinkKind, SinkSpec};
use livetime_timing_daemon::control::{
    CLIENTS_MAX, DeliveryMode, SINKS_PER_CLIENT, SINKS_PER_USER,
};
use livetime_timing_daemon::{
    AccessRules, Client, Control, ControlError, Daemon, DaemonConfig, SubscriptionConfig,
};
use livetime_wire::TaiNs;

const ADMIN: u32 = 5;
const OBSERVER: u32 = 6;

fn daemon() -> Daemon {
    let mut config = DaemonConfig::for_user(ADMIN);
    config.rules = AccessRules::parse("user 5 admin\nothers observe\n").unwrap();
    config.virtual_start = Some(TaiNs(1_000_000_000_000));
    Daemon::start(&config).unwrap()
}

fn arrive(control: &Control, uid: u32) -> Result<Client, ControlError> {
    control.client_arrived(uid, &[], None, "test")
}

/// Makes sinks until it is refused one; the reason.
fn make_sinks(control: &Control, caller: &Caller) -> String {
    loop {
        let name = format!("s{}", control.revision());
        let spec = SinkSpec::new(SinkKind::Software, name);
        if let Err(error) = control.create_sink(caller, spec) {
            return error.to_string();
        }
    }
}

fn software_sinks(control: &Control) -> usize {
    control.read(|registry| {
        let sinks = registry.sinks();
        sinks
            .filter(|sink| sink.spec.kind == SinkKind::Software)
            .count()
    })
}

#[test]
fn leases_of_those_that_are_gone_are_within_the_share_of_their_user() {
    let daemon = daemon();
    let control = daemon.control();
    let of_user = format!("all {SINKS_PER_USER} sinks of the user are taken");
    loop {
        let client = arrive(control, OBSERVER).unwrap();
        let refused = make_sinks(control, &client.caller());
        control.lease(&client, 3600).unwrap();
        control.client_gone(client.id).unwrap();
        if refused == of_user {
            break;
        }
    }
    assert_eq!(software_sinks(control), SINKS_PER_USER);
    // Others are not shut out.
    for uid in [OBSERVER + 1, ADMIN] {
        let other = arrive(control, uid).unwrap();
        let refused = make_sinks(control, &other.caller());
        assert_eq!(refused, "all 64 sinks of the client are taken", "{uid}");
    }
}

#[test]
fn who_takes_leases_over_owns_no_more_than_one_client_may() {
    let daemon = daemon();
    let control = daemon.control();
    let tokens = [(); 2].map(|()| {
        let client = arrive(control, OBSERVER).unwrap();
        make_sinks(control, &client.caller());
        let token = control.lease(&client, 3600).unwrap();
        control.client_gone(client.id).unwrap();
        token
    });
    let heir = arrive(control, OBSERVER).unwrap();
    assert_eq!(control.resume(&heir, &tokens[0]).unwrap(), 64);
    let refused = control.resume(&heir, &tokens[1]).unwrap_err().to_string();
    assert_eq!(refused, "all 64 sinks of the client are taken");
    // Its lease is as it was, and another client can have it.
    let other = arrive(control, OBSERVER).unwrap();
    assert_eq!(control.resume(&other, &tokens[1]).unwrap(), 64);
    assert_eq!(software_sinks(control), 2 * SINKS_PER_CLIENT);
}

#[test]
fn a_sink_that_was_nobodys_counts_for_who_takes_it() {
    let daemon = daemon();
    let control = daemon.control();
    let client = arrive(control, OBSERVER).unwrap().caller();
    make_sinks(control, &client);
    let made = control.read(|registry| {
        let sinks = registry.sinks();
        let own = sinks.filter(|sink| sink.ownership.owner == Some(client.client));
        own.map(|sink| sink.id).collect::<Vec<_>>()
    });
    for sink in &made {
        control.own_sink(&client, *sink, false).unwrap();
    }
    make_sinks(control, &client);
    let refused = control.own_sink(&client, made[0], true).unwrap_err();
    assert_eq!(refused.to_string(), "all 64 sinks of the client are taken");
    let other = arrive(control, OBSERVER).unwrap().caller();
    control.own_sink(&other, made[0], true).unwrap();
}

#[test]
fn the_last_places_for_clients_are_for_admins() {
    let daemon = daemon();
    let control = daemon.control();
    let full = (0..).find_map(|n| {
        let refused = arrive(control, OBSERVER + n % 7).err()?;
        Some((n, refused.to_string()))
    });
    let why = "all 960 places for clients are taken".to_owned();
    assert_eq!(full, Some((960, why)));
    for _ in 960..CLIENTS_MAX {
        arrive(control, ADMIN).unwrap();
    }
    let full = arrive(control, ADMIN).unwrap_err().to_string();
    assert_eq!(full, "all 1024 places for clients are taken");
}

/// As a call does that has waited for the lock while its client went.
#[test]
fn who_has_gone_meanwhile_gets_nothing_that_nobody_would_clear_away() {
    let daemon = daemon();
    let control = daemon.control();
    let other = arrive(control, OBSERVER).unwrap().caller();
    let open = SinkSpec::new(SinkKind::Software, "open");
    let open = control.create_sink(&other, open).unwrap();
    control.own_sink(&other, open, false).unwrap();
    let client = arrive(control, OBSERVER).unwrap();
    control.client_gone(client.id).unwrap();
    let caller = client.caller();
    let spec = SinkSpec::new(SinkKind::Software, "late");
    let add = [Change::Add(ConditionSpec::new(open, IdFilter::ALL, 0))];
    let config = SubscriptionConfig::default();
    let refused = [
        control.create_sink(&caller, spec).err(),
        control.own_sink(&caller, open, true).err(),
        control.apply(&caller, &add).err(),
        control
            .subscribe(&caller, open, &config, DeliveryMode::Ring)
            .err(),
        control.lease(&client, 60).err(),
        control.resume(&client, "").err(),
    ];
    for refused in refused {
        let said = refused.unwrap().to_string();
        assert_eq!(said, format!("{} has gone meanwhile", client.id));
    }
    assert_eq!(control.read(|registry| registry.owned_by(client.id)), 0);
    assert_eq!(software_sinks(control), 1);
    assert!(control.subscriptions().is_empty());
}
