"""The timing daemon from Python: records as numpy arrays, by loop, callback or asyncio.

    from livetime import timing

    with timing.Listener([timing.group(0x123)]) as listener:
        for record in listener:              # or: async for record in listener
            print(hex(record["id"]), record["deadline"])

Records are elements of a numpy array of `RECORD_DTYPE`, 64 bytes each, as they lie in shared
memory. Gaps and restarts of the daemon are records of their own kind: nothing is lost silently.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from enum import IntEnum
from time import monotonic
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import numpy.typing as npt

from ._native import LivetimeError, TimingControl, TimingListener

__all__ = ["RECORD_DTYPE", "Control", "Filter", "Kind", "Listener", "group", "number"]

#: One record, as in `docs/formats/timing-record.md`. For a gap, `id` is the number of records lost,
#: `param` the first and `deadline` the last sequence number.
RECORD_DTYPE = np.dtype(
    [
        ("stamp", "<u8"),
        ("id", "<u8"),
        ("param", "<u8"),
        ("deadline", "<u8"),
        ("executed", "<u8"),
        ("tef", "<u4"),
        ("condition", "<u4"),
        ("flags", "<u2"),
        ("kind_class", "u1"),
        ("version", "u1"),
        ("match_lead_ns", "<u4"),
        ("enqueue_delay_ns", "<u4"),
        ("epoch", "<u4"),
    ]
)

Records = npt.NDArray[np.void]


class Kind(IntEnum):
    """What a record reports."""

    MESSAGE = 1
    GAP = 2
    RESTART = 3


class Filter(NamedTuple):
    """Which messages: event ID, the bits of it that are compared, offset of the deadline [ns]."""

    id: int = 0
    mask: int = 0
    offset_ns: int = 0


def group(group: int, offset_ns: int = 0) -> Filter:
    """The messages of one group of equipment, 0 to 4095, in the current ID format."""
    return Filter(1 << 60 | _in_12_bits("group", group) << 48, 0xFFFF << 48, offset_ns)


def number(group_: int, number_: int, offset_ns: int = 0) -> Filter:
    """The messages of one group and number, 0 to 4095 each, in the current ID format."""
    of_group = group(group_)
    mask = of_group.mask | 0xFFF << 36
    return Filter(of_group.id | _in_12_bits("number", number_) << 36, mask, offset_ns)


def _checked(filter: Filter) -> tuple[int, int, int]:
    """The numbers of a filter, which go on as 64 bits each."""
    id, mask, offset_ns = filter
    for name, word in (("id", id), ("mask", mask)):
        _in_word(f"{name} of a filter", word)
    if not -(2**63) <= offset_ns < 2**63:
        raise ValueError(f"offset_ns of a filter is {offset_ns}, expected -2^63 to 2^63 - 1")
    return id, mask, offset_ns


def _in_word(name: str, value: int, bits: int = 64) -> None:
    if not 0 <= value < 2**bits:
        raise ValueError(f"{name} is {value}, expected 0 to {2**bits - 1}")


def _in_12_bits(name: str, value: int) -> int:
    if not 0 <= value < 1 << 12:
        raise ValueError(f"{name} is {value}, expected 0 to 4095")
    return value


def kinds(records: Records) -> npt.NDArray[np.uint8]:
    """The kind of each record, to be compared with `Kind`."""
    return records["kind_class"] & 0xF  # type: ignore[no-any-return]


def sequences(records: Records) -> npt.NDArray[np.uint64]:
    """The sequence number of each record."""
    return (records["stamp"] >> 1) - 1  # type: ignore[no-any-return]


#: Most slots of the ring of a listener.
SLOTS_MAX = 1 << 16
_OVERFLOWS = ("drop-oldest", "drop-newest", "disconnect")
_PRIORITIES = ("high", "generic", "idle")

#: Longest lease [s].
LEASE_MAX = 3600

#: The tags of outputs, by the words for them.
_OUTPUT_TAGS = {"off": 1, "on": 2}

#: How often a waiting event loop looks whether the daemon is still there [s].
_LOOK = 0.1


class Listener:
    """Records of some conditions; goes on by itself when the daemon is restarted.

    It also does when an admin destroys its sink or a condition of it: all is made anew, and the
    record of kind `Kind.RESTART` that says so has the ``id`` 1 and the epoch of before.

    With ``overflow="disconnect"`` the daemon ends the subscription when the ring is full: what the
    ring holds is given first, then a gap, and from then on each look for records raises
    `LivetimeError`.
    """

    def __init__(
        self,
        filters: Iterable[Filter] = (Filter(),),
        *,
        address: Optional[str] = None,
        slots: int = 4096,
        overflow: str = "drop-oldest",
        priority: str = "generic",
        spin: bool = False,
    ) -> None:
        wanted = [_checked(one) for one in filters]
        if not (2 <= slots <= SLOTS_MAX and slots & (slots - 1) == 0):
            raise ValueError(f"slots is {slots}, expected a power of two from 2 to {SLOTS_MAX}")
        for name, given, allowed in (
            ("overflow", overflow, _OVERFLOWS),
            ("priority", priority, _PRIORITIES),
        ):
            if given not in allowed:
                raise ValueError(f"{name} is {given!r}, expected one of {', '.join(allowed)}")
        self._native: Optional[TimingListener] = TimingListener(
            address, wanted, slots, overflow, priority, spin
        )
        #: Records that were read, and that a loop which was left did not give.
        self._rest: Records = np.zeros(0, RECORD_DTYPE)
        self._rest_lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._stop = threading.Event()

    def _open(self) -> TimingListener:
        if self._native is None:
            raise LivetimeError("the listener is closed")
        return self._native

    def read(self, most: int = 4096, timeout: Optional[float] = None) -> Records:
        """The records that are there, at most `most`, waiting for the first one.

        Empty when there was none within `timeout` seconds (for ever without one). An error that
        came behind records is raised by the next call.
        """
        if most < 0:
            raise ValueError(f"most is {most}, expected 0 or more")
        if timeout is not None and math.isnan(timeout):
            raise ValueError("timeout is nan, expected seconds")
        until = math.inf if timeout is None else monotonic() + timeout
        self._open()
        with self._rest_lock:
            records, self._rest = self._rest[:most], self._rest[most:]
        if len(records):
            return records
        while True:
            # A wait in short pieces, so that signals are heard.
            left = min(_LOOK, max(0.0, until - monotonic()))
            found = self._open().read(most, left)
            if found or most <= 0 or monotonic() >= until:
                return np.frombuffer(found, dtype=RECORD_DTYPE)

    def _first(self, records: Records) -> np.void:
        """The first of some records; the next look finds the others first."""
        with self._rest_lock:
            others = records[1:]
            self._rest = np.concatenate([others, self._rest]) if len(self._rest) else others
        first: np.void = records[0]
        return first

    def __iter__(self) -> Iterator[np.void]:
        """Each record; a loop that is left leaves the others to the next look."""
        while self._native is not None:
            records = self.read(timeout=_LOOK)
            if len(records):
                yield self._first(records)

    async def read_async(self, most: int = 4096) -> Records:
        """As `read`, in an asyncio event loop, which runs on meanwhile."""
        loop = asyncio.get_running_loop()
        while True:
            records = self.read(most, timeout=0.0)
            if len(records):
                return records
            native = self._open()
            found = native.prepare_wait()
            if found:
                return np.frombuffer(found, dtype=RECORD_DTYPE)
            descriptor = native.fileno()
            if descriptor < 0:
                await asyncio.sleep(_LOOK)
                continue
            woken = loop.create_future()
            loop.add_reader(descriptor, lambda: woken.done() or woken.set_result(None))
            try:
                await asyncio.wait_for(woken, _LOOK)
            except asyncio.TimeoutError:
                pass
            finally:
                loop.remove_reader(descriptor)
            native.woken()

    async def __aiter__(self) -> AsyncIterator[np.void]:
        while self._native is not None:
            records = await self.read_async()
            if len(records):
                yield self._first(records)

    def call(self, handle: Callable[[Records], Any]) -> None:
        """Calls `handle` with each array of records, in a thread of its own, until `close`.

        An error ends the thread, as any exception ends one (`threading.excepthook`). Raises
        LivetimeError if the listener is closed or calls back already.
        """
        self._open()
        if self._thread is not None:
            raise LivetimeError("the listener calls back already")

        def work() -> None:
            while not self._stop.is_set():
                records = self.read(timeout=_LOOK)
                if len(records):
                    handle(records)

        self._thread = threading.Thread(target=work, name="livetime-timing", daemon=True)
        self._thread.start()

    @property
    def restarts(self) -> int:
        """Times that the daemon was found again after it had ended."""
        return self._open().restarts()

    def close(self) -> None:
        """Ends listening; a callback under way is waited for."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._native = None

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Control:
    """What is asked of the daemon: injection, schedules, conditions of outputs, leases, state."""

    def __init__(self, address: Optional[str] = None) -> None:
        self._native = TimingControl(address)

    def status(self) -> dict[str, Any]:
        """The state of the daemon, `livetime.timing_status/1`."""
        state: dict[str, Any] = json.loads(self._native.status())
        return state

    def time(self) -> int:
        """The receiver's time, TAI ns."""
        return self._native.time()

    def inject(self, id: int, param: int = 0, *, time: Optional[int] = None) -> None:
        """Injects one message; without `time` it is due a millisecond from now."""
        due = self.time() + 1_000_000 if time is None else time
        for name, word in (("id", id), ("param", param), ("time", due)):
            _in_word(name, word)
        self._native.inject(id, param, due)

    def play(
        self,
        messages: Iterable[tuple[int, int, int]],
        *,
        lead_ns: int = 1_000_000,
        repeats: int = 1,
        period_ns: int = 0,
    ) -> int:
        """Has messages ``(id, param, time)`` played in the order of their times; how many.

        ``period_ns`` is from one start to the next of ``repeats``, no shorter than all messages take;
        0 has them one right after the other.
        """
        if not 1 <= repeats < 2**32:
            raise ValueError(f"repeats is {repeats}, expected at least 1 and at most {2**32 - 1}")
        _in_word("lead_ns", lead_ns)
        _in_word("period_ns", period_ns)
        given = list(messages)
        if not given:
            raise ValueError("there are no messages to play, expected at least 1")
        for index, message in enumerate(given):
            if len(message) != 3:
                raise ValueError(f"message {index} is {message!r}, expected (id, param, time)")
            for name, word in zip(("id", "param", "time"), message):
                _in_word(f"{name} of message {index}", word)
        in_order = sorted(given, key=lambda message: message[2])
        return self._native.play(in_order, lead_ns, repeats, period_ns)

    def stop_schedules(self) -> int:
        """Ends all schedules that are playing, whoever plays them; how many were.

        What is sent already, up to its lead before its time, is acted on.
        """
        return self._native.stop_schedules()

    def advance_clock(self, time: int) -> int:
        """Advances the virtual clock of a daemon that has one; the time then."""
        _in_word("time", time)
        return self._native.advance_clock(time)

    def add_condition(self, sink: str, filter: Filter, action: Union[str, int]) -> str:
        """Has an output or bus such as ``"IO1"`` act on messages; the path of the condition.

        `action` is ``"on"`` or ``"off"`` for an output and the tag for a bus. The condition goes
        with this `Control`, unless there is a `lease`.
        """
        if not isinstance(sink, str):
            raise TypeError(f"sink is {sink!r}, expected a name such as 'IO1'")
        is_tag = not isinstance(action, str)
        if is_tag != sink.startswith("bus") or not (is_tag or action in _OUTPUT_TAGS):
            raise ValueError(
                f'action of {sink} is {action!r}, allowed is "on" or "off" for an output and a tag '
                "for a bus"
            )
        tag = _OUTPUT_TAGS[action] if isinstance(action, str) else action
        _in_word("tag", tag, bits=32)
        return self._native.add_condition(sink, _checked(filter), tag)

    def remove(self, path: str) -> None:
        """Destroys a condition, by the path that `add_condition` gave."""
        self._native.destroy(path)

    def lease(self, seconds: int) -> str:
        """Has the conditions of this `Control` stay so many seconds after it is gone.

        1 to 3600 seconds; 0 ends the lease. Returns the token with which another `Control` of the
        same user gets them by `resume`, in another process, too.
        """
        if not 0 <= seconds <= LEASE_MAX:
            raise ValueError(
                f"lease of {seconds} s, allowed is 1 to {LEASE_MAX} s, or 0 to give it back"
            )
        return self._native.lease(seconds)

    def resume(self, token: str) -> int:
        """Takes over the lease of a token and what is under it; how many sinks and conditions.

        From now on they go with this `Control`, again as long after it as the lease is.
        """
        return self._native.resume(token)

    def append_block(self, block: bytes, arm: bool = False) -> bool:
        """Appends a block of coefficient sets to the function generators; whether more are wanted."""
        return self._native.append_block(block, arm)
