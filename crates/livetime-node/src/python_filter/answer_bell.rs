//! A filter unit's doorbell, rung when its interpreter has said something.
//!
//! A unit that sleeps at its doorbell hears of events there, and has to hear of answers, too, which
//! come over sockets. A thread of its own watches them: nothing is read here, who wakes up does.

use std::io;
use std::os::fd::OwnedFd;

use livetime_shm::Doorbell;
use rustix::event::epoll;
use rustix::io::Errno;

/// Rings `bell` each time that something comes over one of the sockets, until one hangs up.
///
/// # Errors
/// What the system says: there are no descriptors or threads left.
pub(super) fn ring_for_answers(
    role: &str,
    sockets: [OwnedFd; 2],
    bell: Doorbell,
) -> io::Result<()> {
    let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for socket in &sockets {
        // Edge-triggered: what the unit has not read yet does not ring again.
        let wanted = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&watched, socket, epoll::EventData::new_u64(0), wanted)?;
    }
    let watch = move || {
        // They live as long as they are watched.
        let _sockets = sockets;
        watch(&watched, &bell);
    };
    let thread = std::thread::Builder::new().name(format!("answers-{role}"));
    thread.spawn(watch).map(drop)
}

fn watch(watched: &OwnedFd, bell: &Doorbell) {
    let nothing = epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    };
    let mut events = [nothing; 2];
    loop {
        let count = match epoll::wait(watched, &mut events[..], None) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        bell.ring();
        let over = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        let mut heard = events[..count].iter();
        // A packed field of the kernel's is copied before it is looked at.
        if heard.any(|event| { event.flags }.intersects(over)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use livetime_shm::Waked;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_answer_rings_and_so_does_the_end() {
        let (mut far, near) = UnixStream::pair().unwrap();
        let (other_far, other_near) = UnixStream::pair().unwrap();
        let bell = Doorbell::in_process();
        ring_for_answers("fu0", [near.into(), other_near.into()], bell.clone()).unwrap();
        for _ in 0..3 {
            let ticket = bell.ticket();
            far.write_all(b"answer").unwrap();
            assert_eq!(bell.wait(ticket, LONG), Waked::Rung);
        }
        let ticket = bell.ticket();
        drop(other_far);
        assert_eq!(bell.wait(ticket, LONG), Waked::Rung);
    }
}
