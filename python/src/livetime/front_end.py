"""A front-end of your own: what it sends into a run whose source is of ``kind = "external"``.

The words are those of ``docs/formats/front-end-frame.md``. All is standard library, so that the file
may be taken to a machine beside the detector that has nothing else.
"""

from __future__ import annotations

import select
import socket
import struct
import time
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
}
#: Pause between two tries to reach a run \\[s\\].
_RETRY_S = 0.1

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

    ``address`` is ``"host:port"``, that of ``listen`` in the run's ``[[source]]``. Until there is a run,
    it is tried again for ``timeout`` seconds; ConnectionError after that.

    One stream may carry several sources, and several front-ends may send at the same time, each its own
    sources. `send` waits where the run does: for the slowest front-end, or for room.
    """

    def __init__(self, address: str, *, timeout: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{address!r} is no address; \"host:port\" is expected")
        self._socket = _connect((host.strip("[]"), int(port)), timeout)
        self._said = b""
        #: Last trigger sent, by source.
        self._sent: dict[int, int] = {}
        try:
            said, run, words_max, trigger = self._answer()
            if said != _WELCOME:
                raise FrontEndError(f"{address} does not welcome front-ends")
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

        ``data`` are bytes, or an array of anything, of whole 32-bit words. ``event_type`` and
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
        self._sent[source] = max(trigger, self._sent.get(source, 0))

    def end(self, source: int, last_trigger: Optional[int] = None) -> None:
        """Says that ``source`` sends nothing after ``last_trigger``, by default the last one sent here.

        The run ends when all its sources have said so.
        """
        last = self._sent.get(source, 0) if last_trigger is None else last_trigger
        self._send(source, _END, last, 0, 0, memoryview(b""))

    def close(self) -> None:
        """Closes the stream; what was sent is still read by the run."""
        self._socket.close()

    def __enter__(self) -> FrontEnd:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def _send(
        self, source: int, words: int, trigger: int, event_type: int, status: int, data: memoryview
    ) -> None:
        self._raise_what_was_said()
        try:
            header = _HEADER.pack(
                _FRAME, self.run, source, words, trigger, event_type, status & 0xFFFFFFFF
            )
        except struct.error as error:
            raise ValueError(
                f"source {source}, trigger {trigger}, event_type {event_type}: whole numbers from 0 on,"
                " of 32, 64 and 32 bits, are expected"
            ) from error
        try:
            # One call for both, of which the rest is sent if the kernel takes a part.
            taken = self._socket.sendmsg([header, data])
            if taken < len(header):
                self._socket.sendall(header[taken:])
            self._socket.sendall(data[max(taken - len(header), 0) :])
        except OSError as error:
            self._raise_what_was_said(wait=True)
            raise FrontEndError(f"the run {self.run} is gone: {error}") from error

    def _raise_what_was_said(self, *, wait: bool = False) -> None:
        if not wait and not select.select([self._socket], [], [], 0)[0]:
            return
        try:
            said, run, reason, trigger = self._answer()
        except (OSError, FrontEndError) as error:
            raise FrontEndError(f"the run {self.run} is gone: {error}") from error
        if said == _ENDED:
            raise RunEnded(run, trigger)
        if said == _REFUSED:
            why = _REASONS.get(reason, f"reason {reason}")
            raise FrontEndError(f"run {run} refuses a frame of trigger {trigger}: {why}")

    def _answer(self) -> tuple[int, int, int, int]:
        while len(self._said) < _SAID.size:
            piece = self._socket.recv(_SAID.size - len(self._said))
            if not piece:
                raise FrontEndError("the stream has ended")
            self._said += piece
        magic, said, run, number, trigger = _SAID.unpack(self._said)
        self._said = b""
        if magic != _ANSWER:
            raise FrontEndError("what answers is no run that takes front-ends")
        return said, run, number, trigger


def _words(data: Data) -> memoryview:
    """The bytes of data, which are whole words."""
    view = memoryview(data)
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    if view.nbytes % 4:
        raise ValueError(f"{view.nbytes} bytes of data; whole 32-bit words are expected: pad them")
    return view.cast("B") if view.nbytes else memoryview(b"")


def _connect(address: tuple[str, int], timeout: float) -> socket.socket:
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            found = socket.create_connection(address, timeout=max(left, _RETRY_S))
        except ConnectionRefusedError:
            if left <= 0:
                raise
            time.sleep(_RETRY_S)
            continue
        found.settimeout(None)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
