//! Who may do what: roles of callers, owners of objects, and one function that decides.
//!
//! Every change, from whichever control interface, asks [`authorise`]. Who a caller is (user and
//! group ids, bus names) is found out by the driver. Creators own what they create; see
//! [`crate::registry`] for what happens when an owner dies.

use core::fmt;

/// A client of the receiver, as the driver numbers them; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.0)
    }
}

/// What a caller is allowed to do at all; each role includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Read everything, and listen in software sinks of one's own.
    Observe,
    /// Drive outputs and function generators, inject messages.
    Operate,
    /// Clocks, faults, foreign objects, the end of the daemon.
    Admin,
}

impl Role {
    /// The word in texts and configurations.
    pub fn key(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Which client.
    pub client: ClientId,
    /// Its role.
    pub role: Role,
}

/// How long an object stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until it is destroyed or its owner dies.
    WithOwner,
    /// Until it is destroyed: somebody gave it up. The death of one who took it releases it.
    UntilDestroyed,
    /// As long as the receiver, which has it itself: nobody destroys it.
    Fixed,
}

/// Who owns an object, and how long it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// The owner; `None` is open to all.
    pub owner: Option<ClientId>,
    /// How long it stays.
    pub lifetime: Lifetime,
}

impl Ownership {
    /// Owned by its creator and dying with it.
    pub fn created_by(client: ClientId) -> Self {
        Self {
            owner: Some(client),
            lifetime: Lifetime::WithOwner,
        }
    }

    /// The same given up: open to all, and permanent until somebody destroys it, if that is
    /// possible.
    pub fn disowned(self) -> Self {
        let lifetime = match self.lifetime {
            Lifetime::Fixed => Lifetime::Fixed,
            Lifetime::WithOwner | Lifetime::UntilDestroyed => Lifetime::UntilDestroyed,
        };
        Self {
            owner: None,
            lifetime,
        }
    }

    /// Whether it can be destroyed at all.
    pub fn is_destructible(&self) -> bool {
        self.lifetime != Lifetime::Fixed
    }

    /// Whether it dies with this client.
    pub fn dies_with(&self, client: ClientId) -> bool {
        self.owner == Some(client) && self.lifetime == Lifetime::WithOwner
    }

    /// Owned by nobody, and permanent: what the receiver itself has.
    pub const FIXED: Self = Self {
        owner: None,
        lifetime: Lifetime::Fixed,
    };
}

/// Everything a caller can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Read properties, counters and lists.
    Read,
    /// Create a software sink, and conditions in it.
    Listen,
    /// Change conditions of an existing software sink, or the sink itself.
    ChangeListening,
    /// Create conditions in sinks that act on hardware, or change them.
    ChangeHardware,
    /// Take an object that nobody owns.
    Own,
    /// Give an object up.
    Disown,
    /// Destroy an object.
    Destroy,
    /// Read and clear a sink's errors and high-water marks.
    ClearCounters,
    /// Write an output directly, start or stop its clock.
    WriteOutput,
    /// Inject a timing message.
    Inject,
    /// Change an input's prefix, stable time or gate.
    ChangeInput,
    /// Append to or arm a function generator.
    DriveGenerator,
    /// Abort or flush a function generator.
    StopGenerator,
    /// Look for function generators anew.
    Scan,
    /// Play or stop a schedule on the emulated receiver.
    PlaySchedule,
    /// Inject faults into the emulated receiver's clock.
    ChangeClock,
    /// Attach or remove a receiver.
    Attach,
    /// End the daemon.
    Quit,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 18] = [
        Self::Read,
        Self::Listen,
        Self::ChangeListening,
        Self::ChangeHardware,
        Self::Own,
        Self::Disown,
        Self::Destroy,
        Self::ClearCounters,
        Self::WriteOutput,
        Self::Inject,
        Self::ChangeInput,
        Self::DriveGenerator,
        Self::StopGenerator,
        Self::Scan,
        Self::PlaySchedule,
        Self::ChangeClock,
        Self::Attach,
        Self::Quit,
    ];

    /// The least role that may. What changes a sink that acts on hardware, or anything in it, also
    /// needs the one of [`Operation::ChangeHardware`]; see
    /// [`Registry::authorise_in`](crate::registry::Registry::authorise_in).
    pub fn role(self) -> Role {
        match self {
            Self::Read
            | Self::Listen
            | Self::ChangeListening
            | Self::Own
            | Self::Disown
            | Self::Destroy
            | Self::ClearCounters => Role::Observe,
            Self::ChangeHardware
            | Self::WriteOutput
            | Self::Inject
            | Self::ChangeInput
            | Self::DriveGenerator
            | Self::StopGenerator
            | Self::Scan
            | Self::PlaySchedule => Role::Operate,
            Self::ChangeClock | Self::Attach | Self::Quit => Role::Admin,
        }
    }
}

/// Why a caller may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The role does not suffice.
    #[error("role {} may not do this, {} is needed", found.key(), needed.key())]
    Role {
        /// The caller's role.
        found: Role,
        /// The least role that may.
        needed: Role,
    },
    /// Somebody else owns the object.
    #[error("{owner} owns the object")]
    ForeignOwner {
        /// Who.
        owner: ClientId,
    },
    /// To own something, nobody else may own it; to give it up, one must own it.
    #[error("the caller does not own the object")]
    NotOwner,
    /// The receiver itself has it.
    #[error(
        "the object is the receiver's own and cannot be destroyed; remove its conditions instead"
    )]
    Fixed,
}

/// Decides whether a caller may do something to an object (`None`: to the receiver as a whole).
///
/// - The role must suffice.
/// - Reading is open; changing an object is for its owner, or for all if nobody owns it.
/// - Owning needs an object without an owner; disowning needs to be the owner.
/// - What the receiver itself has is destroyed by nobody.
/// - An admin may disown and destroy what others own and stop their generators, so that a stuck
///   client can be cleared away, but not change it in passing.
///
/// # Errors
/// The [`AccessError`] of the first rule broken, in this order.
pub fn authorise(
    caller: &Caller,
    operation: Operation,
    object: Option<&Ownership>,
) -> Result<(), AccessError> {
    let needed = operation.role();
    if caller.role < needed {
        return Err(AccessError::Role {
            found: caller.role,
            needed,
        });
    }
    let Some(object) = object else {
        return Ok(());
    };
    if operation == Operation::Destroy && !object.is_destructible() {
        return Err(AccessError::Fixed);
    }
    match (operation, object.owner) {
        (Operation::Read, _) => Ok(()),
        (Operation::Disown | Operation::Destroy | Operation::StopGenerator, Some(_))
            if caller.role == Role::Admin =>
        {
            Ok(())
        }
        (Operation::Disown, None) => Err(AccessError::NotOwner),
        (_, Some(owner)) if owner != caller.client => Err(AccessError::ForeignOwner { owner }),
        // Owning what one owns already changes nothing and is no error.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_for_every_caller_and_owner() {
        let me = ClientId(1);
        let other = ClientId(2);
        for operation in Operation::ALL {
            for role in [Role::Observe, Role::Operate, Role::Admin] {
                let caller = Caller { client: me, role };
                let answer = |owner| {
                    let object = Ownership {
                        owner,
                        lifetime: Lifetime::WithOwner,
                    };
                    authorise(&caller, operation, Some(&object))
                };
                if role < operation.role() {
                    let expected = Err(AccessError::Role {
                        found: role,
                        needed: operation.role(),
                    });
                    for owner in [None, Some(me), Some(other)] {
                        assert_eq!(answer(owner), expected, "{operation:?}");
                    }
                    assert_eq!(authorise(&caller, operation, None), expected);
                    continue;
                }
                assert_eq!(authorise(&caller, operation, None), Ok(()));
                assert_eq!(answer(Some(me)), Ok(()), "{operation:?} by the owner");
                let unowned = match operation {
                    Operation::Disown => Err(AccessError::NotOwner),
                    _ => Ok(()),
                };
                assert_eq!(answer(None), unowned, "{operation:?} on an unowned object");
                let clears = matches!(
                    operation,
                    Operation::Disown | Operation::Destroy | Operation::StopGenerator
                );
                let foreign = if operation == Operation::Read || (role == Role::Admin && clears) {
                    Ok(())
                } else {
                    Err(AccessError::ForeignOwner { owner: other })
                };
                assert_eq!(answer(Some(other)), foreign, "{operation:?} by another");
            }
        }
    }

    #[test]
    fn what_the_receiver_has_is_destroyed_by_nobody_however_it_was_owned() {
        let me = ClientId(1);
        let admin = Caller {
            client: me,
            role: Role::Admin,
        };
        let taken = Ownership {
            owner: Some(me),
            ..Ownership::FIXED
        };
        for ownership in [Ownership::FIXED, taken, taken.disowned()] {
            assert!(!ownership.is_destructible() && !ownership.dies_with(me));
            let refused = authorise(&admin, Operation::Destroy, Some(&ownership));
            assert_eq!(refused, Err(AccessError::Fixed));
        }
        let given_up = Ownership::created_by(me).disowned();
        assert!(given_up.is_destructible() && !given_up.dies_with(me));
        assert_eq!(
            authorise(&admin, Operation::Destroy, Some(&given_up)),
            Ok(())
        );
    }
}
