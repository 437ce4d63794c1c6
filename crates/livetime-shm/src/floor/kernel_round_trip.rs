//! Round trips through the kernel: what a hand-over costs that sleeps, or that leaves the host.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::two_threads::run_two;
use super::{FloorError, Samples};
use crate::affinity::{pin_current_thread, two_cpus};
use crate::clock::TscClock;

/// Longest message of these round trips in bytes: it fits the smallest kernel buffer.
const BYTES_MAX: usize = 4096;
const WARM_UP_ROUNDS: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(10);

/// How the two ends of a TCP round trip wait for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpWait {
    /// Asking a non-blocking socket again and again.
    Polling,
    /// Sleeping in the kernel.
    Blocking,
}

/// Times of a round trip through the kernel.
#[derive(Debug, Clone)]
pub struct KernelRoundTrip {
    /// Full round trips: out and back.
    pub round_trip: Samples,
    /// Bytes carried each way.
    pub bytes_each_way: usize,
    /// The two cores; the same one twice where there is only one.
    pub cpus: [usize; 2],
}

/// Measures `rounds` blocking round trips of `bytes` (1 to 4096) through two pipes.
///
/// # Errors
/// [`FloorError`] for an impossible request or a refusal of the kernel.
pub fn pipe_round_trip(bytes: usize, rounds: u32) -> Result<KernelRoundTrip, FloorError> {
    let make =
        || pipe_with(PipeFlags::CLOEXEC).map_err(|e| FloorError::kernel("making a pipe")(e.into()));
    let (there_read, there_write) = make()?;
    let (back_read, back_write) = make()?;
    let caller = Ends {
        read: back_read,
        write: there_write,
    };
    let echo = Ends {
        read: there_read,
        write: back_write,
    };
    measure(bytes, rounds, caller, echo)
}

/// Measures `rounds` blocking round trips of a count (8 bytes) through two event descriptors.
///
/// # Errors
/// [`FloorError`] for a refusal of the kernel.
pub fn eventfd_round_trip(rounds: u32) -> Result<KernelRoundTrip, FloorError> {
    let (caller, echo) = event_ends()?;
    measure(size_of::<u64>(), rounds, caller, echo)
}

fn event_ends() -> Result<(Counters, Counters), FloorError> {
    let make = || {
        eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|e| FloorError::kernel("making an event descriptor")(e.into()))
    };
    let again = |fd: &OwnedFd| {
        fd.try_clone()
            .map_err(FloorError::kernel("doubling an event descriptor"))
    };
    let (there, back) = (make()?, make()?);
    let caller = Counters {
        read: again(&back)?,
        write: again(&there)?,
    };
    let echo = Counters {
        read: there,
        write: back,
    };
    Ok((caller, echo))
}

/// Times of one way through the kernel, to a thread that sleeps until then.
#[derive(Debug, Clone)]
pub struct KernelOneWay {
    /// From before the waking call to after the sleeper's call has returned.
    pub one_way: Samples,
    /// The waking core and the sleeper's; the same one twice where there is only one.
    pub cpus: [usize; 2],
}

/// Measures `rounds` wake-ups through an event descriptor, one every `period`: the waking thread
/// spins until its time, as one that waits for a deadline, and the other one sleeps in the kernel
/// until woken, as long as a client that gets something every `period`. Both read the same
/// counter, which runs alike on all cores.
///
/// # Errors
/// [`FloorError`] for a refusal of the kernel.
pub fn eventfd_one_way(rounds: u32, period: Duration) -> Result<KernelOneWay, FloorError> {
    let event = eventfd(0, EventfdFlags::CLOEXEC)
        .map_err(|e| FloorError::kernel("making an event descriptor")(e.into()))?;
    let cpus = two_cpus();
    let clock = TscClock::of_process();
    let total = u64::from(rounds + WARM_UP_ROUNDS);
    let woken_at = AtomicU64::new(0);
    let (event, woken_at, clock) = (&event, &woken_at, &clock);
    let sleeper = || -> Result<Vec<u64>, FloorError> {
        pin_current_thread(cpus[1])?;
        let mut samples_ns = Vec::with_capacity(rounds as usize);
        let mut seen = 0;
        while seen < total {
            let mut count = [0; 8];
            rustix::io::read(event, &mut count[..])
                .map_err(|e| FloorError::kernel("sleeping")(e.into()))?;
            let now = clock.ticks();
            // Acquire pairs with the Release before the wake-up.
            let start = woken_at.load(Ordering::Acquire);
            // More than one where the sleeper was held up for a whole period.
            seen += u64::from_ne_bytes(count);
            if seen > u64::from(WARM_UP_ROUNDS) {
                samples_ns.push(clock.ticks_to_ns(now.wrapping_sub(start)));
            }
        }
        Ok(samples_ns)
    };
    let waker = || -> Result<(), FloorError> {
        // Also where the core is refused: the sleeper waits for every round.
        let pinned = pin_current_thread(cpus[0]);
        let begin = Instant::now();
        for round in 1..=total {
            let at = period.saturating_mul(round as u32);
            while begin.elapsed() < at {
                std::hint::spin_loop();
            }
            // Release pairs with the sleeper's Acquire.
            woken_at.store(clock.ticks(), Ordering::Release);
            rustix::io::write(event, &1u64.to_ne_bytes())
                .map_err(|e| FloorError::kernel("a wake-up")(e.into()))?;
        }
        pinned?;
        Ok(())
    };
    let (samples_ns, ()) = run_two(sleeper, waker)?;
    Ok(KernelOneWay {
        one_way: Samples::from_unsorted(samples_ns),
        cpus,
    })
}

/// Measures `rounds` round trips of `bytes` (1 to 4096) over TCP on the loopback interface, with
/// `TCP_NODELAY`.
///
/// # Errors
/// [`FloorError`] for an impossible request or a refusal of the kernel.
pub fn tcp_round_trip(
    bytes: usize,
    rounds: u32,
    wait: TcpWait,
) -> Result<KernelRoundTrip, FloorError> {
    let failed = FloorError::kernel("connecting over the loopback interface");
    let connect = || -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let caller = TcpStream::connect(listener.local_addr()?)?;
        let (echo, _) = listener.accept()?;
        for stream in [&caller, &echo] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(wait == TcpWait::Polling)?;
        }
        Ok((caller, echo))
    };
    let (caller, echo) = connect().map_err(failed)?;
    measure(bytes, rounds, TcpEnd(caller), TcpEnd(echo))
}

/// One end of a channel that carries whole messages both ways.
trait End: Send {
    fn send(&mut self, message: &[u8]) -> io::Result<()>;
    fn receive(&mut self, message: &mut [u8]) -> io::Result<()>;

    /// Ends before the last round: whoever waits at the other end, or will, gets an error. Where that
    /// follows from closing this end there is nothing to do.
    fn give_up(&mut self) {}
}

/// Two event descriptors that block. Both ends hold both, so that to close one wakes nobody.
struct Counters {
    read: OwnedFd,
    write: OwnedFd,
}

impl Counters {
    /// The message of each round.
    const MESSAGE: u64 = u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]);
    /// The last message of who gives up. What is not read yet adds up: alone and with a message before it
    /// this is no other message.
    const GIVEN_UP: u64 = 2;
}

impl End for Counters {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.write, message)?;
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        rustix::io::read(&self.read, &mut *message)?;
        match *message == Self::MESSAGE.to_ne_bytes() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn give_up(&mut self) {
        // Where even this is refused there is nobody to tell.
        let _refused = rustix::io::write(&self.write, &Self::GIVEN_UP.to_ne_bytes());
    }
}

/// Two descriptors of pipes that block.
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

impl End for Ends {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        // Pipes take a message of this size in one piece.
        let written = rustix::io::write(&self.write, message)?;
        if written == message.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < message.len() {
            match rustix::io::read(&self.read, &mut message[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(())
    }
}

struct TcpEnd(TcpStream);

impl End for TcpEnd {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        let start = Instant::now();
        while sent < message.len() {
            match self.0.write(&message[sent..]) {
                Ok(count) => sent += count,
                Err(error) => poll_again(error, start)?,
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        let start = Instant::now();
        while filled < message.len() {
            match self.0.read(&mut message[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) => poll_again(error, start)?,
            }
        }
        Ok(())
    }
}

/// Lets a polling end ask again, until its patience is over.
fn poll_again(error: io::Error, start: Instant) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock if start.elapsed() < PATIENCE => Ok(()),
        _ => Err(error),
    }
}

fn measure(
    bytes: usize,
    rounds: u32,
    caller: impl End,
    echo: impl End,
) -> Result<KernelRoundTrip, FloorError> {
    if bytes == 0 || bytes > BYTES_MAX {
        return Err(FloorError::TooLarge {
            bytes,
            max: BYTES_MAX,
        });
    }
    let cpus = two_cpus();
    let clock = TscClock::of_process();
    let total = rounds + WARM_UP_ROUNDS;
    let failed = FloorError::kernel("a round trip");

    let partner = move || {
        to_the_end(echo, |echo| {
            pin_current_thread(cpus[1])?;
            let mut message = vec![0u8; bytes];
            for _ in 0..total {
                echo.receive(&mut message)
                    .map_err(FloorError::kernel("an echo"))?;
                echo.send(&message).map_err(FloorError::kernel("an echo"))?;
            }
            Ok(())
        })
    };
    let measured = move || {
        to_the_end(caller, |caller| {
            pin_current_thread(cpus[0])?;
            // An event descriptor adds numbers: 1 there is 1 back.
            let mut message = vec![0u8; bytes];
            message[0] = 1;
            let mut samples_ns = Vec::with_capacity(rounds as usize);
            for round in 0..total {
                let start = clock.ticks();
                caller.send(&message).map_err(&failed)?;
                caller.receive(&mut message).map_err(&failed)?;
                let ticks = clock.ticks().wrapping_sub(start);
                if round >= WARM_UP_ROUNDS {
                    samples_ns.push(clock.ticks_to_ns(ticks));
                }
            }
            Ok(samples_ns)
        })
    };
    let (samples_ns, ()) = run_two(measured, partner)?;
    let round_trip = Samples::from_unsorted(samples_ns);
    Ok(KernelRoundTrip {
        round_trip,
        bytes_each_way: bytes,
        cpus,
    })
}

/// Takes an end through its rounds, and closes it. The other end waits for this one, in the kernel, and is
/// released where it ends early.
fn to_the_end<E: End, T>(
    mut end: E,
    rounds: impl FnOnce(&mut E) -> Result<T, FloorError>,
) -> Result<T, FloorError> {
    let done = rounds(&mut end);
    if done.is_err() {
        end.give_up();
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_measures_every_round() {
        let results = [
            pipe_round_trip(136, 50).unwrap(),
            eventfd_round_trip(50).unwrap(),
            tcp_round_trip(136, 50, TcpWait::Blocking).unwrap(),
            tcp_round_trip(4096, 50, TcpWait::Polling).unwrap(),
        ];
        for result in &results {
            assert_eq!(result.round_trip.count(), 50);
            assert!(result.round_trip.min() > 0);
        }
        assert_eq!(results[1].bytes_each_way, 8);
    }

    /// An end that gets nothing any more after some rounds, as if it were refused its core or its call.
    struct Failing<E> {
        end: E,
        rounds_left: u32,
    }

    impl<E: End> End for Failing<E> {
        fn send(&mut self, message: &[u8]) -> io::Result<()> {
            self.end.send(message)
        }

        fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
            let left = self.rounds_left.checked_sub(1);
            self.rounds_left = left.ok_or(io::ErrorKind::PermissionDenied)?;
            self.end.receive(message)
        }

        fn give_up(&mut self) {
            self.end.give_up();
        }
    }

    #[test]
    fn an_end_that_ends_early_holds_nobody() {
        const NEVER: u32 = u32::MAX;
        for rounds in [0, 1, 60] {
            for [of_caller, of_echo] in [[rounds, NEVER], [NEVER, rounds], [rounds, rounds]] {
                let failing = |end, rounds_left| Failing { end, rounds_left };
                let (caller, echo) = event_ends().unwrap();
                let (caller, echo) = (failing(caller, of_caller), failing(echo, of_echo));
                measure(size_of::<u64>(), 100, caller, echo).unwrap_err();
            }
        }
    }

    #[test]
    fn one_way_measures_rounds_and_ends_when_some_run_together() {
        let measured = eventfd_one_way(40, Duration::from_micros(100)).unwrap();
        assert!((1..=40).contains(&measured.one_way.count()));
        assert!(measured.one_way.min() > 0);
        let together = eventfd_one_way(40, Duration::ZERO).unwrap();
        assert!(together.one_way.count() <= 40);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for bytes in [0, BYTES_MAX + 1] {
            assert!(matches!(
                pipe_round_trip(bytes, 1),
                Err(FloorError::TooLarge { .. })
            ));
        }
    }
}
