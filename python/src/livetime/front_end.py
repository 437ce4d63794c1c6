"""A front-end of your own: what it sends into a run whose source is of ``kind = "external"``.

The words are those of ``docs/formats/front-end-frame.md``. All is standard library, so that the file
may be taken to a machine beside the detector that has nothing else.
"""

from __future__ import annotations

import select
import socket
import struct
import time
import warnings
from types import TracebackType
from typing import Any, Optional, Union

__all__ = ["FrontEnd", "FrontEndError", "RunEnded"]

#: First words of frames and answers: names and version 1.
_FRAME, _ANSWER = 0x4C464601, 0x4C464101
#: Data words of a frame that is an end.
_END = 0xFFFFFFFF
#: A frame without its data, and an answer.
_HEADER, _SAID = struct.Struct("<4IQ2I"), struct.Struct("<4IQ")
_WELCOME, _ENDED, _REFUSED = 1, 2, 3
_REASONS = {
    1: "the words are not a front-end frame of version 1",
    2: "no link of the run has this source id",
    3: "more data words than a fragment of this run may have",
    4: "the frame is for another run",
    5: "trigger numbers begin with 1 in each run",
    6: "the trigger number is too far ahead of the run's: numbers begin with 1 in each run",
}
#: Pause between two tries to reach a run \\[s\\].
_RETRY_S = 0.1
#: Longest single wait, whatever the time limit \\[s\\]: the system takes no endless ones.
_WAIT_S = 3600.0

Data = Union[bytes, bytearray, memoryview, Any]


class FrontEndError(RuntimeError):
    """The run does not take what was sent, or is gone."""


class RunEnded(FrontEndError):
    """The run takes no more triggers; `last_trigger` is the last one that it took."""

    def __init__(self, run: int, last_trigger: int) -> None:
        super().__init__(f"run {run} has ended after trigger {last_trigger}")
        self.run, self.last_trigger = run, last_trigger


class FrontEnd:
    """A stream to a run that takes events from front-ends.

    ``address`` is ``"host:port"``, that of ``listen`` in the run's ``[[source]]``. Where a connection is
    refused, as before there is a run, it is tried again for ``timeout`` seconds; ConnectionRefusedError
    after that. TimeoutError where the host, or what takes the connection, does not answer for so long;
    another OSError at once where there is no such host, or no way to it.

    One stream may carry several sources, and several front-ends may send at the same time, each its own
    sources. `send` waits where the run does: for the slowest front-end, or for room.

    What interrupts a call within a frame, as a signal handler that raises does, ends the stream: its
    rest could not be told from the next frame. Open another one to go on.
    """

    def __init__(self, address: str, *, timeout: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{address!r} is no address; \"host:port\" is expected")
        deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._socket = _connect((host.strip("[]"), int(port)), deadline)
        self._said = b""
        #: Why nothing can be sent any more.
        self._unusable = ""
        #: Last trigger sent, by source.
        self._sent: dict[int, int] = {}
        try:
            said, run, words_max, trigger = self._answer(deadline)
            if said != _WELCOME:
                raise FrontEndError(f"{address} does not welcome front-ends")
        except _NotInTime as error:
            self._socket.close()
            raise TimeoutError(
                f"{address} takes connections, but no welcome of a run came within {timeout} s"
            ) from error
        except BaseException:
            self._socket.close()
            raise
        #: Number of the run.
        self.run: int = run
        #: Most 32-bit words of data for one trigger.
        self.words_max: int = words_max
        #: The first trigger that is of use: earlier ones have passed.
        self.first_trigger: int = trigger

    def send(
        self, source: int, trigger: int, data: Data = b"", *, event_type: int = 0, status: int = 0
    ) -> None:
        """Sends the data of ``source`` for ``trigger``, which counts from 1 in each run.

        ``data`` are bytes, or an array of anything in little-endian order, of whole 32-bit words. ``event_type`` and
        ``status`` (0 = good, below 2**31) go into the fragment's header and trailer. Raises ValueError
        for data that are no whole words or too many, RunEnded when the run takes no more, and
        FrontEndError with the reason when it refused something sent before.
        """
        view = _words(data)
        if view.nbytes > 4 * self.words_max:
            raise ValueError(
                f"{view.nbytes // 4} words for trigger {trigger}; the run takes at most {self.words_max}"
            )
        self._send(source, view.nbytes // 4, trigger, event_type, status, view)

    def end(self, source: int, last_trigger: Optional[int] = None) -> None:
        """Says that ``source`` sends nothing after ``last_trigger``, by default the last one sent here.

        Say it last: where the data of ``last_trigger`` are far from having come, the run may end
        without them. The run ends when all its sources have said so.
        """
        last = self._sent.get(source, 0) if last_trigger is None else last_trigger
        self._send(source, _END, last, 0, 0, memoryview(b""))

    def close(self) -> bool:
        """Ends the stream, and waits until the run has read it, at most ``timeout`` seconds.

        True when the run has read all that was sent, or has ended. False when it has not in this time,
        or is gone; the kernel then goes on with what it has, as long as this machine and the run are
        there. Raises FrontEndError with the reason when the run refused something of it.
        """
        if self._unusable:
            return False
        self._unusable = "it was closed"
        deadline = time.monotonic() + self._timeout
        # Closed while there is something to read, a socket drops what it has not sent yet.
        with self._socket:
            try:
                self._socket.shutdown(socket.SHUT_WR)
                while True:
                    said, run, reason, trigger = self._answer(deadline)
                    if said == _ENDED:
                        return True
                    if said == _REFUSED:
                        raise _refused(run, reason, trigger)
            except _StreamEnded:
                return True
            except _NotInTime:
                return False
            except OSError as error:
                # One without a number is of a signal handler.
                if error.errno is None:
                    raise
                return False

    def __enter__(self) -> FrontEnd:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            was_unusable = bool(self._unusable)
            if not self.close() and not was_unusable and value is None:
                warnings.warn(
                    f"the run {self.run} has not read all that was sent within {self._timeout} s; what"
                    " this machine still holds may be lost: see `FrontEnd.close`",
                    RuntimeWarning,
                    stacklevel=2,
                )
        except FrontEndError:
            # What was raised first says more.
            if value is None:
                raise

    def _send(
        self, source: int, words: int, trigger: int, event_type: int, status: int, data: memoryview
    ) -> None:
        if self._unusable:
            raise FrontEndError(f"the stream to run {self.run} is closed: {self._unusable}")
        self._raise_what_was_said()
        try:
            header = _HEADER.pack(
                _FRAME, self.run, source, words, trigger, event_type, status
            )
        except struct.error as error:
            raise ValueError(
                f"source {source}, trigger {trigger}, event_type {event_type}, status {status}: whole"
                " numbers from 0 on, of 32, 64, 32 and 32 bits, are expected"
            ) from error
        if status >> 31:
            raise ValueError(f"status {status}: below 2**31 is expected, the highest bit is the run's")
        try:
            # One call for both, of which the rest is sent if the kernel takes a part.
            taken = self._socket.sendmsg([header, data])
            if taken < len(header):
                self._socket.sendall(header[taken:])
            self._socket.sendall(data[max(taken - len(header), 0) :])
            if words != _END:
                self._sent[source] = max(trigger, self._sent.get(source, 0))
        except BaseException as error:
            try:
                if isinstance(error, ConnectionError):
                    self._raise_what_was_said(wait=True)
            finally:
                # How much of the frame is sent, nobody knows: the next one would fill its rest.
                self._break(f"trigger {trigger} of source {source:#x} was cut off while it was sent")
            # One without a number is of a signal handler, as all that is not of the system.
            if isinstance(error, OSError) and error.errno is not None:
                raise FrontEndError(f"the run {self.run} is gone: {error}") from error
            raise

    def _break(self, why: str) -> None:
        self._unusable = self._unusable or why
        self._socket.close()

    def _raise_what_was_said(self, *, wait: bool = False) -> None:
        if not wait and not _has_something(self._socket, 0.0):
            return
        try:
            said, run, reason, trigger = self._answer()
        except (OSError, FrontEndError) as error:
            raise FrontEndError(f"the run {self.run} is gone: {error}") from error
        if said == _ENDED:
            raise RunEnded(run, trigger)
        if said == _REFUSED:
            refused = _refused(run, reason, trigger)
            self._break(str(refused))
            raise refused

    def _answer(self, deadline: Optional[float] = None) -> tuple[int, int, int, int]:
        """The next answer of the run, which is waited for until the deadline if there is one."""
        while len(self._said) < _SAID.size:
            while deadline is not None:
                left = max(deadline - time.monotonic(), 0.0)
                if _has_something(self._socket, left):
                    break
                if left == 0.0:
                    raise _NotInTime("the run does not answer")
            piece = self._socket.recv(_SAID.size - len(self._said))
            if not piece:
                raise _StreamEnded("the stream has ended")
            self._said += piece
        magic, said, run, number, trigger = _SAID.unpack(self._said)
        self._said = b""
        if magic != _ANSWER:
            raise FrontEndError("what answers is no run that takes front-ends")
        return said, run, number, trigger


class _StreamEnded(FrontEndError):
    """The run has closed its end."""


class _NotInTime(FrontEndError):
    """It has not, nor said anything."""


def _refused(run: int, reason: int, trigger: int) -> FrontEndError:
    why = _REASONS.get(reason, f"reason {reason}")
    return FrontEndError(f"run {run} refuses a frame of trigger {trigger}: {why}")


def _words(data: Data) -> memoryview:
    """The bytes of data, which are whole words."""
    view = memoryview(data)
    if view.format[:1] in (">", "!") and view.itemsize > 1:
        raise ValueError(
            f"data of format {view.format!r} have their highest byte first; fragments are of little-endian"
            " words: `data.astype('<u4')` makes them"
        )
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    if view.nbytes % 4:
        raise ValueError(f"{view.nbytes} bytes of data; whole 32-bit words are expected: pad them")
    return view.cast("B") if view.nbytes else memoryview(b"")


def _has_something(stream: socket.socket, seconds: float) -> bool:
    """Whether there is something to read, an end too, within so long, or an hour if that is shorter."""
    # Unlike `select` it takes descriptors of any number.
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(1000.0 * min(seconds, _WAIT_S)))


def _connect(address: tuple[str, int], deadline: float) -> socket.socket:
    host, port = address
    while True:
        left = deadline - time.monotonic()
        try:
            found = socket.create_connection(address, timeout=min(max(left, _RETRY_S), _WAIT_S))
        except ConnectionRefusedError:
            if left <= 0:
                raise
            time.sleep(_RETRY_S)
            continue
        except socket.timeout as error:
            raise TimeoutError(f"{host}:{port} does not answer") from error
        found.settimeout(None)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
