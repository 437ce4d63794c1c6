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

/// Who owns an object, and whether it dies with its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// The owner; `None` is open to all.
    pub owner: Option<ClientId>,
    /// Whether the owner's death destroys it (otherwise it is released).
    pub destructible: bool,
}

impl Ownership {
    /// Owned by its creator and dying with it.
    pub fn created_by(client: ClientId) -> Self {
        Self {
            owner: Some(client),
            destructible: true,
        }
    }

    /// Owned by nobody, and permanent: what the receiver itself has.
    pub const FIXED: Self = Self {
        owner: None,
        destructible: false,
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
    /// Append to, arm, abort or flush a function generator.
    DriveGenerator,
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
    pub const ALL: [Self; 17] = [
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
        Self::Scan,
        Self::PlaySchedule,
        Self::ChangeClock,
        Self::Attach,
        Self::Quit,
    ];

    /// The least role that may.
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
}

/// Decides whether a caller may do something to an object (`None`: to the receiver as a whole).
///
/// - The role must suffice.
/// - Reading is open; changing an object is for its owner, or for all if nobody owns it.
/// - Owning needs an object without an owner; disowning needs to be the owner.
/// - An admin may disown and destroy what others own, so that a stuck client can be cleared away,
///   but not change it in passing.
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
    match (operation, object.owner) {
        (Operation::Read, _) => Ok(()),
        (Operation::Disown | Operation::Destroy, Some(_)) if caller.role == Role::Admin => Ok(()),
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
                        destructible: true,
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
                let clears = matches!(operation, Operation::Disown | Operation::Destroy);
                let foreign = if operation == Operation::Read || (role == Role::Admin && clears) {
                    Ok(())
                } else {
                    Err(AccessError::ForeignOwner { owner: other })
                };
                assert_eq!(answer(Some(other)), foreign, "{operation:?} by another");
            }
        }
    }
}
