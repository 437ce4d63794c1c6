//! The MTU of the interface that has an address, as the kernel tells it over rtnetlink(7).
//!
//! The socket belongs to the network namespace of this process; the files under `/sys/class/net` are
//! those of the namespace in which they were mounted, which may be another.
//!
//! ```text
//! request   u32 length, u16 type, u16 flags, u32 sequence, u32 port, 16 bytes of zeros
//! message   u32 length, u16 type, u16 flags, u32 sequence, u32 port, fixed part, attributes
//! attribute u16 length with this head, u16 type, payload, up to a multiple of 4
//! ```
//! Words are in the order of the machine. In the fixed part of an address (8 bytes) and of an
//! interface (16 bytes) the index of the interface stands behind the first 4 bytes.

use std::io;
use std::net::IpAddr;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Head of a message.
const HEAD_BYTES: usize = 16;
/// Bytes that are read at once; the kernel's messages are at most half as long.
const BATCH_BYTES: usize = 64 << 10;
/// Batches of one answer; far more than any machine has interfaces.
const BATCHES_MAX: usize = 4096;

/// Types of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
/// A request for all there are.
const REQUEST_DUMP: u16 = 0x301;

/// Types of attributes.
const ADDRESS: u16 = 1;
const LOCAL_ADDRESS: u16 = 2;
const MTU: u16 = 4;

/// The MTU in bytes of the interface with `address`; `None` where no interface has it.
///
/// # Errors
/// What the system says of the question.
pub fn interface_mtu(address: IpAddr) -> io::Result<Option<u32>> {
    let Some(index) = interface_of(&dump(GET_ADDRESS)?, address) else {
        return Ok(None);
    };
    Ok(mtu_of(&dump(GET_LINK)?, index))
}

/// All messages that answer a request for all there are of a kind.
fn dump(kind: u16) -> io::Result<Vec<u8>> {
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    // Without a protocol it is the first one, NETLINK_ROUTE.
    let socket = socket_with(family, SocketType::RAW, flags, None)?;
    let mut request = Vec::new();
    request.extend((2 * HEAD_BYTES as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.resize(2 * HEAD_BYTES, 0);
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = Vec::new();
    let mut batch = vec![0; BATCH_BYTES];
    for _ in 0..BATCHES_MAX {
        let (came, _) = recv(&socket, &mut batch[..], RecvFlags::empty())?;
        answer.extend(&batch[..came]);
        let mut ends = messages(&batch[..came]).map(|(kind, _)| kind);
        match ends.find(|kind| [ERROR, DONE].contains(kind)) {
            Some(DONE) => return Ok(answer),
            Some(_) => return Err(io::Error::other("rtnetlink refuses the question")),
            None => {}
        }
    }
    Err(io::Error::other("rtnetlink does not come to an end"))
}

/// The first `length` bytes, and what is behind the multiple of 4 that they reach to; `None` where
/// they are not all there.
fn split_first(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let first = bytes.get(..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((first, rest))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(word))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

/// The types of messages with what is behind their heads.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let (message, rest) = split_first(bytes, length)?;
        bytes = rest;
        Some((u16_at(message, 4)?, message.get(HEAD_BYTES..)?))
    })
}

/// The types of attributes with their payload.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let (attribute, rest) = split_first(bytes, length)?;
        bytes = rest;
        Some((u16_at(attribute, 2)?, attribute.get(4..)?))
    })
}

/// The index of the interface with an address.
fn interface_of(answer: &[u8], address: IpAddr) -> Option<u32> {
    let wanted = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let has_it = |body: &[u8]| {
        let mut found = attributes(body.get(8..).unwrap_or_default());
        found.any(|(kind, payload)| [ADDRESS, LOCAL_ADDRESS].contains(&kind) && payload == wanted)
    };
    let mut addresses = messages(answer).filter(|(kind, _)| *kind == NEW_ADDRESS);
    let (_, body) = addresses.find(|(_, body)| has_it(body))?;
    u32_at(body, 4)
}

/// The MTU of the interface with an index.
fn mtu_of(answer: &[u8], index: u32) -> Option<u32> {
    let mut links = messages(answer).filter(|(kind, _)| *kind == NEW_LINK);
    let (_, body) = links.find(|(_, body)| u32_at(body, 4) == Some(index))?;
    let mut found = attributes(body.get(16..)?);
    let (_, payload) = found.find(|(kind, _)| *kind == MTU)?;
    u32_at(payload, 0)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + payload.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// A message whose fixed part, so long, names an interface.
    fn message(kind: u16, index: u32, fixed: usize, attributes: &[Vec<u8>]) -> Vec<u8> {
        let attributes = attributes.concat();
        let length = (HEAD_BYTES + fixed + attributes.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEAD_BYTES + 4, 0);
        bytes.extend(index.to_ne_bytes());
        bytes.resize(HEAD_BYTES + fixed, 0);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn an_address_leads_to_its_interface_and_that_to_its_mtu() {
        let six = Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 7);
        let answer = [
            message(
                NEW_ADDRESS,
                1,
                8,
                &[attribute(ADDRESS, &[127, 0, 0, 1]), attribute(3, b"lo\0")],
            ),
            message(NEW_ADDRESS, 7, 8, &[attribute(ADDRESS, &six.octets())]),
            // Between two points: the peer's address and our own.
            message(
                NEW_ADDRESS,
                9,
                8,
                &[
                    attribute(ADDRESS, &[10, 0, 0, 2]),
                    attribute(LOCAL_ADDRESS, &[10, 0, 0, 1]),
                ],
            ),
            message(
                NEW_LINK,
                7,
                16,
                &[
                    attribute(3, b"eth0\0"),
                    attribute(MTU, &9000_u32.to_ne_bytes()),
                ],
            ),
        ]
        .concat();
        let four = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        assert_eq!(
            interface_of(&answer, IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Some(1)
        );
        assert_eq!(interface_of(&answer, IpAddr::V6(six)), Some(7));
        assert_eq!(interface_of(&answer, four(1)), Some(9));
        assert_eq!(interface_of(&answer, four(3)), None);
        assert_eq!(mtu_of(&answer, 7), Some(9000));
        assert_eq!(mtu_of(&answer, 1), None);
        // Cut anywhere, it is read as far as it is whole.
        for end in 0..answer.len() {
            let part = &answer[..end];
            assert!([None, Some(7)].contains(&interface_of(part, IpAddr::V6(six))));
            assert_eq!(mtu_of(part, 7), None);
        }
        // Lengths that cannot be end it.
        assert_eq!(messages(&[0; 64]).count(), 0);
        assert_eq!(attributes(&[0; 64]).count(), 0);
    }

    #[test]
    fn the_loopback_has_one_and_a_foreign_address_none() {
        let mtu = interface_mtu(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(mtu.is_some_and(|bytes| bytes >= 1280), "{mtu:?}");
        // Of the block for documentation.
        let foreign = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));
        assert_eq!(interface_mtu(foreign).unwrap(), None);
    }
}
