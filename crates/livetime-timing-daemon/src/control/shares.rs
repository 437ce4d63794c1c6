//! What one client may have of the sinks and conditions that all share.
//!
//! Nobody takes all of them: a client has at most [`SINKS_PER_CLIENT`] sinks and
//! [`CONDITIONS_PER_CLIENT`] conditions of its own; those of one user that is no admin have
//! [`SINKS_PER_USER`] and [`CONDITIONS_PER_USER`] together, with what the leases keep of those that
//! are gone; clients that are no admins may give up, to stay for good, as many as one may own of all
//! together; and of the places there are one in [`PLACES_PER_KEPT_ONE`] is kept for admins, so that
//! many clients together cannot shut them out.

use std::collections::BTreeSet;

use livetime_timing::{Caller, Change, ClientId, Ownership, Registry, Role, SinkId};

use super::ControlError;

/// Sinks that one client may own.
pub const SINKS_PER_CLIENT: usize = 64;
/// Conditions that one client may own.
pub const CONDITIONS_PER_CLIENT: usize = 4096;
/// Sinks that the clients of one user own together, unless it is an admin: half of what there is.
pub const SINKS_PER_USER: usize = 512;
/// Conditions that the clients of one user own together, unless it is an admin.
pub const CONDITIONS_PER_USER: usize = 8192;
/// Of so many places one is for admins alone.
const PLACES_PER_KEPT_ONE: usize = 16;
/// The daemon itself, which restores what was kept.
const DAEMON: ClientId = ClientId(0);

/// How a client comes to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SinkOrigin {
    Made,
    /// It was there, and nobody's.
    Taken,
}

/// Whether a client may have one more sink.
pub(super) fn check_sink(
    registry: &Registry,
    caller: &Caller,
    origin: SinkOrigin,
) -> Result<(), ControlError> {
    let own = || registry.sinks().map(|sink| &sink.ownership);
    let taken = [
        own().count(),
        own().filter(|its| is_of(its, caller)).count(),
    ];
    let more = [usize::from(origin == SinkOrigin::Made), 1];
    let places = registry.config().sinks_max;
    let whats = ["sinks of the client", "sinks for others than admins"];
    check(caller, taken, more, SINKS_PER_CLIENT, places, whats)
}

/// Whether a client may have the conditions that these changes add or take, and give up those they do.
pub(super) fn check_conditions(
    registry: &Registry,
    caller: &Caller,
    changes: &[Change],
) -> Result<(), ControlError> {
    let disowned = changes.iter();
    let disowned = disowned
        .filter(|change| matches!(change, Change::Disown(_)))
        .count();
    if disowned > 0 {
        let conditions = registry.conditions().map(|condition| &condition.ownership);
        let given_up = disowned + conditions.filter(|its| is_given_up(its)).count();
        let what = "conditions that nobody owns";
        check_bound(caller, given_up, CONDITIONS_PER_CLIENT, what)?;
    }
    let more = [
        conditions_more(changes),
        own_conditions_more(registry, caller, changes),
    ];
    if more == [0; 2] {
        return Ok(());
    }
    let (mut all, mut own) = (0, 0);
    for condition in registry.conditions() {
        all += 1;
        own += usize::from(is_of(&condition.ownership, caller));
    }
    let places = registry.config().conditions_max;
    let whats = [
        "conditions of the client",
        "conditions for others than admins",
    ];
    check(
        caller,
        [all, own],
        more,
        CONDITIONS_PER_CLIENT,
        places,
        whats,
    )
}

/// Whether the clients of a user may have one more sink together.
pub(super) fn check_sinks_of_user(
    registry: &Registry,
    caller: &Caller,
    of_user: &BTreeSet<ClientId>,
) -> Result<(), ControlError> {
    let sinks = registry.sinks().map(|sink| &sink.ownership);
    let count = 1 + count_of(sinks, of_user);
    check_bound(caller, count, SINKS_PER_USER, "sinks of the user")
}

/// Whether the clients of a user may have the conditions that these changes add or take.
pub(super) fn check_conditions_of_user(
    registry: &Registry,
    caller: &Caller,
    changes: &[Change],
    of_user: &BTreeSet<ClientId>,
) -> Result<(), ControlError> {
    let more = own_conditions_more(registry, caller, changes);
    if more == 0 {
        return Ok(());
    }
    let conditions = registry.conditions().map(|condition| &condition.ownership);
    let count = more + count_of(conditions, of_user);
    check_bound(caller, count, CONDITIONS_PER_USER, "conditions of the user")
}

/// Conditions that these changes leave more than there were.
fn conditions_more(changes: &[Change]) -> usize {
    let count = |of: fn(&Change) -> bool| changes.iter().filter(|change| of(change)).count();
    let added = count(|change| matches!(change, Change::Add(_)));
    added.saturating_sub(count(|change| matches!(change, Change::Remove(_))))
}

/// Conditions that the caller owns after these changes more than before.
fn own_conditions_more(registry: &Registry, caller: &Caller, changes: &[Change]) -> usize {
    let is_own = |id| {
        let condition = registry.condition(id);
        condition.is_some_and(|condition| is_of(&condition.ownership, caller))
    };
    let more = changes.iter().filter(|change| match change {
        Change::Add(_) => true,
        Change::Own(id) => !is_own(*id),
        _ => false,
    });
    let less = changes.iter().filter(|change| match change {
        Change::Remove(id) | Change::Disown(id) => is_own(*id),
        _ => false,
    });
    more.count().saturating_sub(less.count())
}

fn count_of<'a>(all: impl Iterator<Item = &'a Ownership>, clients: &BTreeSet<ClientId>) -> usize {
    all.filter(|its| its.owner.is_some_and(|owner| clients.contains(&owner)))
        .count()
}

/// Whether a client may take over what another one owned.
pub(super) fn check_taken_over(
    registry: &Registry,
    caller: &Caller,
    from: ClientId,
) -> Result<(), ControlError> {
    let both = BTreeSet::from([caller.client, from]);
    let sinks = count_of(registry.sinks().map(|sink| &sink.ownership), &both);
    let conditions = registry.conditions().map(|condition| &condition.ownership);
    let conditions = count_of(conditions, &both);
    for (count, max, what) in [
        (sinks, SINKS_PER_CLIENT, "sinks of the client"),
        (
            conditions,
            CONDITIONS_PER_CLIENT,
            "conditions of the client",
        ),
    ] {
        if count > max {
            return Err(ControlError::Full { what, max });
        }
    }
    Ok(())
}

/// Whose subscriptions to which sinks lose conditions that these changes remove and another client
/// owns.
pub(super) fn made_deaf(
    registry: &Registry,
    caller: &Caller,
    changes: &[Change],
) -> Vec<(ClientId, SinkId)> {
    let removed = changes.iter().filter_map(|change| match change {
        Change::Remove(id) => registry.condition(*id),
        _ => None,
    });
    let of_others = removed.filter_map(|condition| {
        let owner = condition.ownership.owner?;
        (owner != caller.client).then_some((owner, condition.spec.sink))
    });
    of_others.collect()
}

/// Of so many places for clients those that a role may take.
pub(crate) fn places_for(role: Role, places: usize) -> usize {
    match role {
        Role::Admin => places,
        Role::Observe | Role::Operate => places - places / PLACES_PER_KEPT_ONE,
    }
}

/// Whether a client may give a sink up.
pub(super) fn check_disowned_sink(
    registry: &Registry,
    caller: &Caller,
) -> Result<(), ControlError> {
    let sinks = registry.sinks().map(|sink| &sink.ownership);
    let given_up = sinks.filter(|its| is_given_up(its)).count();
    check_bound(
        caller,
        given_up + 1,
        SINKS_PER_CLIENT,
        "sinks that nobody owns",
    )
}

fn is_given_up(ownership: &Ownership) -> bool {
    ownership.owner.is_none() && ownership.is_destructible()
}

/// Whether so many are within a bound, which admins do not have.
fn check_bound(
    caller: &Caller,
    count: usize,
    max: usize,
    what: &'static str,
) -> Result<(), ControlError> {
    match caller.role {
        Role::Observe | Role::Operate if count > max => Err(ControlError::Full { what, max }),
        _ => Ok(()),
    }
}

fn is_of(ownership: &Ownership, caller: &Caller) -> bool {
    ownership.owner == Some(caller.client)
}

/// Whether there is room for more where so many are taken, both of all and by the client.
fn check(
    caller: &Caller,
    [all, own]: [usize; 2],
    [all_more, own_more]: [usize; 2],
    per_client: usize,
    places: usize,
    [of_client, of_others]: [&'static str; 2],
) -> Result<(), ControlError> {
    if caller.client != DAEMON && own_more > 0 && own + own_more > per_client {
        return Err(ControlError::Full {
            what: of_client,
            max: per_client,
        });
    }
    let for_others = places_for(Role::Observe, places);
    if caller.role != Role::Admin && all_more > 0 && all + all_more > for_others {
        return Err(ControlError::Full {
            what: of_others,
            max: for_others,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use livetime_timing::{ConditionSpec, IdFilter, RegistryConfig, SinkKind, SinkSpec};
    use livetime_wire::EventId;

    use super::*;

    fn caller(client: u64, role: Role) -> Caller {
        Caller {
            client: ClientId(client),
            role,
        }
    }

    /// The reason why there is no more, if there is one.
    fn refusal(checked: Result<(), ControlError>) -> Option<String> {
        checked.err().map(|error| error.to_string())
    }

    fn check_made(registry: &Registry, client: Caller) -> Result<(), ControlError> {
        check_sink(registry, &client, SinkOrigin::Made)
    }

    #[test]
    fn one_client_has_its_share_and_many_leave_some_for_admins() {
        let mut registry = Registry::new(RegistryConfig::default()).unwrap();
        let mut refused = Vec::new();
        for n in 0.. {
            let client = caller(1 + n / 64, Role::Observe);
            if let Some(why) = refusal(check_made(&registry, client)) {
                refused.push((n, why));
                break;
            }
            let again = refusal(check_made(&registry, caller(n / 64, Role::Operate)));
            if n >= 64 {
                assert_eq!(
                    again.unwrap(),
                    "all 64 sinks of the client are taken",
                    "{n}"
                );
            }
            let spec = SinkSpec::new(SinkKind::Software, format!("s{n}"));
            registry.create_sink(&client, spec).unwrap();
        }
        let why = "all 960 sinks for others than admins are taken".to_owned();
        assert_eq!(refused, [(960, why)]);
        assert_eq!(
            refusal(check_made(&registry, caller(99, Role::Admin))),
            None
        );
        let full = refusal(check_made(&registry, caller(1, Role::Admin)));
        assert_eq!(full.unwrap(), "all 64 sinks of the client are taken");
    }

    #[test]
    fn what_is_given_up_is_bounded_too() {
        let mut registry = Registry::new(RegistryConfig::default()).unwrap();
        registry
            .add_fixed_sink(SinkSpec::new(SinkKind::Output, "IO1"))
            .unwrap();
        let one = caller(1, Role::Observe);
        for n in 0..64 {
            assert_eq!(refusal(check_disowned_sink(&registry, &one)), None);
            let spec = SinkSpec::new(SinkKind::Software, format!("s{n}"));
            let sink = registry.create_sink(&one, spec).unwrap();
            registry.disown_sink(&one, sink).unwrap();
        }
        let full = refusal(check_disowned_sink(&registry, &one));
        assert_eq!(full.unwrap(), "all 64 sinks that nobody owns are taken");
        let admin = caller(1, Role::Admin);
        assert_eq!(refusal(check_disowned_sink(&registry, &admin)), None);
        let sink = registry.sink_by_name("s0").unwrap().id;
        let add = |n| {
            let filter = IdFilter::leading(EventId(n), 64).unwrap();
            Change::Add(ConditionSpec::new(sink, filter, 0))
        };
        let changes: Vec<Change> = (0..4096).map(add).collect();
        let added = registry.apply(&one, &changes).unwrap().added;
        let disown: Vec<Change> = added.into_iter().map(Change::Disown).collect();
        assert_eq!(refusal(check_conditions(&registry, &one, &disown)), None);
        registry.apply(&one, &disown).unwrap();
        let more = registry.apply(&one, &[add(5000)]).unwrap().added;
        let disown = [Change::Disown(more[0])];
        let full = refusal(check_conditions(&registry, &one, &disown));
        assert_eq!(
            full.unwrap(),
            "all 4096 conditions that nobody owns are taken"
        );
        assert_eq!(refusal(check_conditions(&registry, &admin, &disown)), None);
    }

    /// They count for who takes them, and only what goes of one's own makes room.
    #[test]
    fn conditions_that_were_nobodys_count_for_who_takes_them() {
        let mut registry = Registry::new(RegistryConfig::default()).unwrap();
        let (giver, one) = (caller(1, Role::Observe), caller(2, Role::Observe));
        let spec = SinkSpec::new(SinkKind::Software, "s");
        let sink = registry.create_sink(&giver, spec).unwrap();
        registry.disown_sink(&giver, sink).unwrap();
        let add = |n| {
            let filter = IdFilter::leading(EventId(n), 64).unwrap();
            Change::Add(ConditionSpec::new(sink, filter, 0))
        };
        let given = registry.apply(&giver, &[add(1), add(2)]).unwrap().added;
        let disown: Vec<Change> = given.iter().copied().map(Change::Disown).collect();
        registry.apply(&giver, &disown).unwrap();
        let changes: Vec<Change> = (10..4106).map(add).collect();
        let own = registry.apply(&one, &changes).unwrap().added;
        let check = |changes: &[Change]| refusal(check_conditions(&registry, &one, changes));
        let full = Some("all 4096 conditions of the client are taken".to_owned());
        assert_eq!(check(&[Change::Own(given[0])]), full);
        assert_eq!(check(&[Change::Remove(given[0]), add(5)]), full);
        let exchange = [Change::Disown(own[0]), Change::Own(given[0])];
        assert_eq!(check(&exchange), None);
        assert_eq!(check(&[Change::Remove(own[0]), add(5)]), None);
        let of_user = BTreeSet::from([giver.client, one.client]);
        let taken = [Change::Own(given[0])];
        let fits = check_conditions_of_user(&registry, &one, &taken, &of_user);
        assert_eq!(refusal(fits), None);
    }

    #[test]
    fn conditions_are_counted_with_those_that_go() {
        let mut registry = Registry::new(RegistryConfig::default()).unwrap();
        let one = caller(1, Role::Observe);
        let spec = SinkSpec::new(SinkKind::Software, "s");
        let sink = registry.create_sink(&one, spec).unwrap();
        let add = |n| {
            let filter = IdFilter::leading(EventId(n), 64).unwrap();
            Change::Add(ConditionSpec::new(sink, filter, 0))
        };
        let mut changes: Vec<Change> = (0..4096).map(add).collect();
        let check = |registry: &Registry, client, changes: &[Change]| {
            refusal(check_conditions(registry, &client, changes))
        };
        assert_eq!(check(&registry, one, &changes), None);
        let added = registry.apply(&one, &changes).unwrap().added;
        let full = Some("all 4096 conditions of the client are taken".to_owned());
        assert_eq!(check(&registry, one, &[add(5000)]), full);
        let exchange = [Change::Remove(added[0]), add(5000)];
        assert_eq!(check(&registry, one, &exchange), None);
        assert_eq!(check(&registry, one, &[Change::Toggle(sink)]), None);
        let other = caller(2, Role::Operate);
        assert_eq!(check(&registry, other, &changes), None);
        changes.extend((10_000..20_000).map(add));
        assert!(check(&registry, other, &changes).is_some());
        assert_eq!(check(&registry, caller(0, Role::Admin), &changes), None);
    }
}
