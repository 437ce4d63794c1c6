"""A run that goes on: what it says about itself, and orders to it.

A run takes orders at the socket `control` in its directory, a line each, and answers each with a line.
Here, as in ``livetime steer``, there is one a connection.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Optional, Union

from ._native import LivetimeError

#: Longest that a run may take to obey \[s\]; a filter unit that joins loads its filter first.
PATIENCE_S = 60.0


class OrderError(LivetimeError):
    """A run did not obey, or there is none that takes orders."""


class LiveRun:
    """A run that goes on, by its directory.

    Nothing is kept open: each call connects, says its order and waits for the answer. Every method
    raises `OrderError` with the reason when the run refuses, or has ended.
    """

    def __init__(self, directory: Union[str, os.PathLike[str]]) -> None:
        self.directory = Path(directory)

    def __repr__(self) -> str:
        return f"LiveRun({str(self.directory)!r})"

    def status(self) -> dict[str, Any]:
        """State, time, counts, losses and rates now: the document ``livetime.status/1``.

        ``status()["state"]`` is ``"running"``, ``"paused"`` or ``"stopping"``.
        """
        answer = self._order("status")
        try:
            status: dict[str, Any] = dict(json.loads(answer))
        except (TypeError, ValueError) as error:
            raise OrderError(
                f"the run in {self.directory} answered {answer!r}, which is no status"
            ) from error
        return status

    def pause(self) -> str:
        """Holds triggers back; what is on its way passes."""
        return self._order("pause")

    def resume(self) -> str:
        """Takes triggers again."""
        return self._order("resume")

    def stop(self) -> str:
        """Ends the run in order, as Ctrl-C does; returns before it has ended."""
        return self._order("stop")

    def abort(self) -> str:
        """Ends the run at once: what is on its way is counted as lost."""
        return self._order("abort")

    def note(self, text: str) -> str:
        """Keeps a line of text with the time, in the run's summary, report and file.

        Raises TypeError for what is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"a note is {text!r}, expected a text")
        return self._order(f"note {text}")

    def add_filter(self) -> str:
        """Lets a filter unit join; says which."""
        return self._order("filter add")

    def remove_filter(self, unit: Optional[str] = None) -> str:
        """Lets a filter unit leave, such as ``"fu1"``; the last one if none is named (None).

        Raises TypeError for a name that is no text.
        """
        if unit is None:
            return self._order("filter remove")
        if not isinstance(unit, str):
            raise TypeError(f"a filter unit is {unit!r}, expected a name such as 'fu1'")
        # The order without a name is another one.
        if not unit.strip():
            raise OrderError(f"{unit!r} is no filter unit; expected a name such as 'fu1'")
        return self._order(f"filter remove {unit}")

    def _order(self, order: str) -> str:
        if "\n" in order:
            raise OrderError(f"{order!r} is no order: it has more than one line")
        try:
            line = f"{order}\n".encode()
        except UnicodeEncodeError as error:
            raise OrderError(f"{order!r} is no text that can be passed on") from error
        try:
            control = self._connected()
        except OSError as error:
            why = "has it ended?"
            if self._is_held():
                why = "the run there has not begun to take orders yet, or takes none any more"
            raise OrderError(f"no run takes orders in {self.directory} ({error}); {why}") from error
        with control:
            answer = self._ask(control, line)
        kind, _, text = answer.partition(": ")
        if kind == "ok":
            return text
        if kind == "error":
            raise OrderError(text)
        raise OrderError(f"the run in {self.directory} answered {answer!r}")

    def _is_held(self) -> bool:
        """Whether a process holds the lock of the run in the directory, and the run is not complete."""
        # Asked of the system: to try the lock would turn away a run that begins at this moment.
        try:
            lock = (self.directory / "lock").stat()
            held = Path("/proc/locks").read_text()
            has_ended = (self.directory / "summary.json").exists()
        except OSError:
            return False
        place = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
        return not has_ended and any(place in line.split() for line in held.splitlines())

    def _connected(self) -> socket.socket:
        folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            control.settimeout(PATIENCE_S)
            # A path to the socket that is short however long that of the directory is.
            control.connect(f"/proc/self/fd/{folder}/control")
        except BaseException:
            control.close()
            raise
        finally:
            os.close(folder)
        return control

    def _ask(self, control: socket.socket, line: bytes) -> str:
        """The line with which a run answers, without its end."""
        answer = b""
        unsaid: Optional[OSError] = None
        unread: Optional[OSError] = None
        try:
            control.sendall(line)
            control.shutdown(socket.SHUT_WR)
        except OSError as error:
            # A run that takes no more orders may have said so before this one.
            unsaid = error
        try:
            while b"\n" not in answer and (part := control.recv(65536)):
                answer += part
        except OSError as error:
            unread = error
        whole, end, _ = answer.partition(b"\n")
        if end:
            return whole.decode(errors="replace")
        failed = unread if answer else unsaid or unread
        if failed is not None:
            raise OrderError(f"the run in {self.directory} did not answer: {failed}") from failed
        if not answer:
            raise OrderError(f"the run in {self.directory} has ended, and did not answer")
        raise OrderError(f"the answer of the run in {self.directory} was cut off")
