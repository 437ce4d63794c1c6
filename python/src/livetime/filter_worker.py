"""The interpreter beside a filter unit: ``python -m livetime.filter_worker FILE FUNCTION [KEPT]``.

Started by `livetime run`, not by people. It loads the filter once and forks a life of itself that
answers requests, and another when that one dies. People go on working on FILE: with KEPT, the copy
that the run keeps, that is what is loaded. The events of a batch are columns in memory that it
shares with the filter unit, their fragments lie in the pages of the readout units. What is said
over the two sockets is in `livetime_node::python_filter::interpreter`.
"""

from __future__ import annotations

import array
import ctypes
import importlib.util
import json
import linecache
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, NoReturn, Optional, TypeVar

import awkward as ak
import numpy as np
import numpy.typing as npt

from ._native import LivetimeError
from .filters import (
    TRACEBACK_MAX,
    EventBatch,
    Filter,
    FilterError,
    ObjectColumns,
    Values,
    _Axis,
    _Filling,
    plain,
    reason_of,
    traceback_of,
)
from .filters import filter as make_filter
from .run import EVENT_DTYPE, _jagged_records

PROTOCOL = 3
#: The other side maps what it gives at multiples of this.
REGION_STEP = 2 << 20
#: Most descriptors that come with one packet.
DESCRIPTORS_MAX = 16

REQUEST = struct.Struct("<IIIIQ")
DONE, FAILED, FILL = (1, 2, 3)
ANSWER = struct.Struct("<QQ")
DONE_REST = struct.Struct("<QQ")
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _Memory:
    """The memory of the filter unit: its arena at the front, the pools of the readout units."""

    def __init__(self, given: dict[str, Any], descriptors: list[int]) -> None:
        regions = [(0, given["arena"]), *given["pools"]]
        size = max(base + size for base, size in regions)
        size += -size % REGION_STEP
        none, anonymous = 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
        room = _map(None, size + REGION_STEP, none, anonymous, -1)
        # Huge pages want addresses that are multiples of their size.
        self.address = room + -room % REGION_STEP
        for nth, ((base, length), descriptor) in enumerate(zip(regions, descriptors)):
            access = mmap.PROT_READ | (mmap.PROT_WRITE if nth == 0 else 0)
            _map(self.address + base, length, access, mmap.MAP_SHARED | 0x10, descriptor)  # FIXED
            os.close(descriptor)
        buffer = (ctypes.c_uint8 * size).from_address(self.address)
        #: Everything, of which only the arena may be written.
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(buffer, dtype=np.uint8)
        #: The same for filters, who could set the flag of an array of memory that can be written.
        self._readable: npt.NDArray[np.uint8] = np.frombuffer(
            memoryview(buffer).toreadonly(), dtype=np.uint8
        )
        #: The words as a filter sees them.
        self.words: npt.NDArray[np.uint32] = self._readable.view(np.uint32)

    def array(self, byte: int, count: int, dtype: Any) -> npt.NDArray[Any]:
        """Memory that is written."""
        return _part_of(self._bytes, byte, count, dtype)

    def column(self, byte: int, count: int, dtype: Any) -> npt.NDArray[Any]:
        """Memory that can only be read."""
        return _part_of(self._readable, byte, count, dtype)


def _part_of(
    memory: npt.NDArray[np.uint8], byte: int, count: int, dtype: Any
) -> npt.NDArray[Any]:
    size = count * np.dtype(dtype).itemsize
    return memory[byte : byte + size].view(dtype)


def _map(address: Optional[int], size: int, access: int, flags: int, descriptor: int) -> int:
    call = _libc.mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found = call(address, size, access, flags, descriptor, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "cannot map the memory of the filter unit")
    return int(found)


_Made = TypeVar("_Made")


def _timed(
    make: Callable[[_Columns, int, int], _Made],
) -> Callable[[_Columns, int, int], _Made]:
    def timed(self: _Columns, start: int, stop: int) -> _Made:
        begun = time.perf_counter_ns()
        made = make(self, start, stop)
        self.spent_ns += time.perf_counter_ns() - begun
        return made

    return timed


class _Columns:
    """The events of one batch, with the methods of `livetime.Run` that a batch asks for."""

    def __init__(self, memory: _Memory, slot: int, paths: dict[str, int]) -> None:
        self._memory, self._slot, self._paths = memory, slot, paths
        table = memory.array(slot, 24, np.int64).tolist()
        self.count, self._fragments, self._objects = table[:3]
        self._at = table
        #: Time spent on making columns [ns].
        self.spent_ns = 0

    def _column(self, entry: int, count: int, dtype: Any) -> npt.NDArray[Any]:
        return self._memory.column(self._slot + 8 * self._at[entry], count, dtype)

    def verdicts(self) -> npt.NDArray[np.uint32]:
        return self._memory.array(self._slot + 8 * self._at[19], self.count, np.uint32)

    @_timed
    def events(self, start: int, stop: int) -> npt.NDArray[np.void]:
        return self._column(4, self.count, EVENT_DTYPE)[start:stop]

    @_timed
    def decisions(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        return self._masks(start, stop)

    def _masks(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        return self._column(5, 2 * self.count, np.uint64).reshape(-1, 2)[start:stop]

    @_timed
    def fired(self, start: int, stop: int) -> dict[str, npt.NDArray[np.bool_]]:
        masks, one = self._masks(start, stop), np.uint64(1)
        return {
            name: ((masks[:, bit // 64] >> np.uint64(bit % 64)) & one) == one
            for name, bit in self._paths.items()
        }

    @_timed
    def objects(self, start: int, stop: int) -> ak.Array:
        return self._part(_jagged_records(*self._object_columns()), start, stop)

    @_timed
    def object_columns(self, start: int, stop: int) -> ObjectColumns:
        offsets, fields = self._object_columns()
        if (start, stop) != (0, self.count):
            first, last = offsets[start], offsets[stop]
            offsets = offsets[start : stop + 1] - first
            fields = {name: column[first:last] for name, column in fields.items()}
        return offsets, fields

    def _object_columns(self) -> ObjectColumns:
        offsets = self._column(10, self.count + 1, np.int64)
        fields = {"kind": self._column(11, self._objects, np.uint16)}
        for nth, name in enumerate(("pt", "eta", "phi", "charge", "dxy")):
            fields[name] = self._column(12 + nth, self._objects, np.float32)
        return offsets, fields

    def _part(self, events: ak.Array, start: int, stop: int) -> ak.Array:
        return events if (start, stop) == (0, self.count) else events[start:stop]

    @_timed
    def fragments(self, start: int, stop: int) -> ak.Array:
        offsets = self._column(6, self.count + 1, np.int64)[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        names = ("source", "status", "word_count")
        fields: dict[str, Any] = {
            name: self._column(7 + nth, self._fragments, np.uint32)[first:last]
            for nth, name in enumerate(names)
        }
        starts, stops = (self._column(n, self._fragments, np.int64)[first:last] for n in (17, 18))
        # Copied together: between the words of two fragments lies memory that nobody may read, and
        # some functions of awkward arrays read all from the first word to the last.
        places = zip(starts.tolist(), stops.tolist())
        pieces = [self._memory.words[begin:end] for begin, end in places]
        words = np.concatenate(pieces) if pieces else np.zeros(0, np.uint32)
        inner = np.concatenate([np.zeros(1, np.int64), np.cumsum(stops - starts)])
        content = ak.contents.NumpyArray(words)
        fields["words"] = ak.Array(
            ak.contents.ListOffsetArray(ak.index.Index64(inner), content)
        )
        return _jagged_records(offsets - first, fields)


class _Life:
    """One life of the filter: it answers requests until its socket hangs up."""

    def __init__(
        self, of: Filter, memory: _Memory, given: dict[str, Any], data: socket.socket, number: int
    ) -> None:
        self._filter, self._memory, self._data, self._number = of, memory, data, number
        self._slots: list[int] = given["slots"]
        self._streams = {name: 1 << bit for bit, name in enumerate(given["streams"])}
        self._paths = dict(given["paths"])
        self._faults: dict[int, str] = dict(given["faults"])
        self._in_work = memory.array(given["in_work"], 1, np.uint64)
        self._filled: dict[str, _Filling] = {}
        self._columns: dict[int, tuple[int, _Columns]] = {}
        self._forks = 0
        self._pid = os.getpid()
        os.register_at_fork(after_in_parent=self._note_fork)
        if given["memory_max"]:
            _limit_memory(given["memory_max"])

    def _note_fork(self) -> None:
        self._forks += 1

    def serve(self) -> NoReturn:
        while True:
            request = self._data.recv(64)
            if len(request) != REQUEST.size:
                os._exit(0)
            life, slot, first, last, sequence = REQUEST.unpack(request)
            # What was meant for a life before this one is asked again.
            if life == self._number:
                self._in_work[0] = sequence
                self._answer(slot, first, last, sequence)

    def _answer(self, slot: int, first: int, last: int, sequence: int) -> None:
        columns = _Columns(self._memory, self._slots[slot], self._paths)
        events = EventBatch(columns, first, last, self._filled)
        if self._faults:
            self._make_faults(columns, first, last)
        begun = time.perf_counter_ns()
        try:
            verdict = self._filter(events)
            bits = self._bits(verdict.keep, verdict.tags)
            fills = [self._fill(*pending) for pending in events._pending]
        except BaseException as error:
            self._leave_if_forked()
            self._fail(sequence, error)
            return
        # Threads of the filter make columns at the same time.
        spent = max(0, time.perf_counter_ns() - begun - columns.spent_ns)
        self._leave_if_forked()
        columns.verdicts()[first:last] = bits
        for fill in fills:
            self._data.send(ANSWER.pack(FILL, sequence) + fill)
        self._data.send(ANSWER.pack(DONE, sequence) + DONE_REST.pack(spent, self._forks))

    def _make_faults(self, columns: _Columns, first: int, last: int) -> None:
        # Asked for with `--fault`: what an event does to its filter unit.
        for trigger in columns.events(first, last)["trigger"].tolist():
            kind = self._faults.get(trigger)
            if kind == "crash":
                os.abort()
            while kind == "hang":
                pass
        columns.spent_ns = 0

    def _leave_if_forked(self) -> None:
        # A process that a filter has forked has no business with the filter unit.
        if os.getpid() != self._pid:
            os._exit(0)

    def _bits(self, keep: npt.NDArray[np.bool_], tags: dict[str, Any]) -> npt.NDArray[np.uint32]:
        bits = keep.astype(np.uint32) << 16
        for tag, mask in tags.items():
            if tag not in self._streams:
                known = ", ".join(self._streams) or "none"
                raise FilterError(
                    f"filter {self._filter.name!r}: tag {tag!r} is no stream of the configuration; "
                    f"`[filter] streams` names {known}"
                )
            bits |= np.where(mask, np.uint32(self._streams[tag]), np.uint32(0))
        if not tags:
            bits |= keep
        return bits

    def _fill(self, name: str, values: Values, axis: _Axis) -> bytes:
        self._filled.setdefault(name, _Filling(axis))
        filling = _Filling(axis)
        filling.add(values)
        bins = np.flatnonzero(filling.counts)
        pairs = np.column_stack([bins, filling.counts[bins].astype(np.int64)]).tolist()
        fill = [name, axis.label, axis.bins, axis.lower, axis.upper, pairs]
        return json.dumps(fill).encode()

    def _fail(self, sequence: int, error: BaseException) -> None:
        document = json.dumps([reason_of(error), traceback_of(error)])
        self._data.send(ANSWER.pack(FAILED, sequence) + document.encode())


class LoadError(LivetimeError):
    """A file without such a filter."""


class _Supervisor:
    """Loads the filter and keeps a life of it going."""

    def __init__(self) -> None:
        self._control = socket.socket(fileno=os.dup(0))
        # A filter that reads its standard input finds nothing there.
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def _say(self, what: str, body: Any = None) -> None:
        body = plain(body) if isinstance(body, str) else body
        self._control.send(json.dumps([what, body]).encode())

    def run(self, file: str, function: str, kept: Optional[str]) -> int:
        try:
            chosen = load(file, function, kept)
            self._say("loaded", {"batch": chosen.batch, "wait_ms": chosen.wait_ms})
        except BaseException as error:
            self._say("refused", _where(error, file)[:TRACEBACK_MAX])
            return 1
        given, descriptors = self._receive_begin()
        data = socket.socket(fileno=descriptors[0])
        # The file may have set another default, and a life waits for requests as long as it takes.
        data.settimeout(None)
        memory = _Memory(given, descriptors[1:])
        number = 0
        while True:
            number += 1
            pid = os.fork()
            if pid == 0:
                _set_group(0)
                _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                self._control.close()
                _Life(chosen, memory, given, data, number).serve()
            _set_group(pid)
            self._say("life", number)
            how = self._watch(pid, number, memory.array(given["in_work"], 1, np.uint64))
            # Nobody reads what was asked of it: that is asked again of the next.
            _drain(data)
            self._say("died", how)

    def _receive_begin(self) -> tuple[dict[str, Any], list[int]]:
        descriptors: list[int] = []
        given: dict[str, Any] = {}
        while not given or len(descriptors) < 2 + len(given["pools"]):
            size = DESCRIPTORS_MAX * array.array("i").itemsize
            packet, ancillary, _, _ = self._control.recvmsg(1 << 17, socket.CMSG_SPACE(size))
            if not packet:
                sys.exit(0)
            for _level, _kind, part in ancillary:
                found = array.array("i")
                found.frombytes(part[: len(part) - len(part) % found.itemsize])
                descriptors.extend(found)
            what, *body = json.loads(packet)
            given = body[0] if what == "begin" else given
        if given["protocol"] != PROTOCOL:
            self._say("refused", f"protocol {given['protocol']}, expected {PROTOCOL}")
            sys.exit(1)
        return given, descriptors

    def _watch(self, pid: int, number: int, in_work: npt.NDArray[np.uint64]) -> str:
        """Waits for the end of a life, and brings it about when told so; says how it ended."""
        watched = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        while True:
            sources: list[Any] = [self._control, *([watched] if watched is not None else [])]
            # Without a descriptor of the process it is looked at now and then.
            ready, _, _ = select.select(sources, [], [], None if watched is not None else 0.01)
            if self._control in ready:
                packet = self._control.recv(256)
                if not packet:
                    _kill(pid)
                    os.waitpid(pid, 0)
                    os._exit(0)
                _what, life, sequence = json.loads(packet)
                # Not for what a life before it did, nor for a request that is answered.
                if life == number and int(in_work[0]) <= sequence:
                    _kill(pid)
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if watched is not None:
                    os.close(watched)
                # What it has forked goes with it; its number is its own until it is waited for.
                _kill(pid)
                return _how(os.waitpid(pid, 0)[1])


def _limit_memory(more: int) -> None:
    """Lets this process take so many bytes over what it has, or what the system still gives it."""
    own = resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
    limit, hardest = own + more, resource.getrlimit(resource.RLIMIT_AS)[1]
    if hardest != resource.RLIM_INFINITY:
        # Only a process with privileges may raise its own.
        limit = min(limit, hardest)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _set_group(pid: int) -> None:
    # Both sides do it, whoever comes first; too late is when it has ended already.
    try:
        os.setpgid(pid, pid)
    except (PermissionError, ProcessLookupError):
        pass


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (PermissionError, ProcessLookupError):
            pass


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status) if hasattr(os, "waitstatus_to_exitcode") else status
    if code < 0:
        try:
            return f"signal: {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"signal: {-code}"
    return f"exit status: {code}"


def _drain(data: socket.socket) -> None:
    data.setblocking(False)
    try:
        while data.recv(64):
            pass
    except BlockingIOError:
        pass
    data.setblocking(True)


def _where(error: BaseException, file: str) -> str:
    """An error of a filter's file with the lines of the file that led to it."""
    if isinstance(error, LoadError):
        return f"{file}: {error}"
    return traceback_of(error).strip()


def load(file: str, function: str, kept: Optional[str] = None) -> Filter:
    """The filter `function` of a Python file: a `livetime.Filter`, or a function to make one of.

    With `kept`, a copy of the file, that is what is loaded under the file's name. Raises LoadError where
    there is no such file or filter, and whatever the file raises.
    """
    module = _module(file, kept)
    found: Any = getattr(module, function, None)
    if found is None:
        names = [name for name, value in vars(module).items() if isinstance(value, Filter)]
        known = f"; its filters are {', '.join(names)}" if names else ""
        raise LoadError(f"there is no {function!r} in it{known}")
    if isinstance(found, Filter):
        return found
    if not callable(found):
        raise LoadError(f"{function!r} is a {type(found).__name__}, expected a function")
    chosen: Callable[..., Any] = found
    return make_filter(chosen)


def _module(file: str, kept: Optional[str]) -> ModuleType:
    path = Path(file).absolute()
    if kept is None and not path.is_file():
        raise LoadError("there is no such file")
    # Beside it may lie what it imports.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise LoadError("it is no Python file; its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    if kept is None:
        spec.loader.exec_module(module)
    else:
        _execute(module, str(path), Path(kept).read_bytes())
    return module


def _execute(module: ModuleType, name: str, source: bytes) -> None:
    # Compiled without the features of the future of this file, and never taken from a cache.
    code = compile(source, name, "exec", dont_inherit=True)
    # A trace-back shows the lines that run, whatever the file holds by then.
    lines = importlib.util.decode_source(source).splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)
    exec(code, vars(module))


def main() -> int:
    """Serves the filter unit at the other end of standard input until it hangs up."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    file, function, *kept = sys.argv[1:]
    return _Supervisor().run(file, function, kept[0] if kept else None)


if __name__ == "__main__":
    sys.exit(main())
