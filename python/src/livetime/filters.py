"""Filters in Python: a function of a batch of events that says which of them to keep.

`filter` makes one of a function, `replay` runs it over a run file and isolates the events that it
fails on. Batches give the columns of `livetime.Run`; nothing here holds an object per event. What
a filter returns is checked before it is believed.
"""

from __future__ import annotations

import functools
import operator
import os
import re
import sys
import time
import traceback
import unicodedata
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Protocol, Sequence, Union, overload

import awkward as ak
import numpy as np
import numpy.typing as npt

from ._native import LivetimeError
from .histogram import Histogram
from .run import EVENT_DTYPE, DataWarning, Run, open_run

Mask = npt.NDArray[np.bool_]
ObjectColumns = tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]

#: Events that a filter gets at once unless it asks for another number.
BATCH = 256
#: Most histograms that a filter fills, and most bins of one.
HISTOGRAMS_MAX, BINS_MAX = 256, 4_000
#: Longest name or label of a histogram.
HISTOGRAM_TEXT_MAX = 200
#: Histograms of the run itself, which no filter fills.
RUN_HISTOGRAMS = ("decision_latency", "build_latency", "hand_over_latency")
#: Longest reason, trace-back and line of one that are kept of a failed event, in characters.
REASON_MAX, TRACEBACK_MAX, LINE_MAX = 500, 8_000, 1_000


class FilterError(LivetimeError):
    """A filter that returned something that is no verdict on its events."""


class EventSource(Protocol):
    """Where a batch has its columns from: a run file, or the memory of a filter unit."""

    def events(self, start: int, stop: int) -> npt.NDArray[np.void]: ...

    def objects(self, start: int, stop: int) -> ak.Array: ...

    def decisions(self, start: int, stop: int) -> npt.NDArray[np.uint64]: ...

    def fired(self, start: int, stop: int) -> dict[str, Mask]: ...

    def fragments(self, start: int, stop: int) -> ak.Array: ...


class EventBatch:
    """The events a filter looks at; columns are read when they are first asked for.

    While data are taken the columns are views of memory that is used again for later batches: copy
    what is to be kept.
    """

    def __init__(self, run: EventSource, start: int, stop: int, filled: dict[str, _Filling]) -> None:
        self._run, self._start, self._stop = run, start, stop
        self._filled = filled
        self._pending: list[tuple[str, Values, _Axis]] = []

    def __len__(self) -> int:
        return self._stop - self._start

    @functools.cached_property
    def events(self) -> npt.NDArray[np.void]:
        """One row of `livetime.EVENT_DTYPE` per event."""
        return self._run.events(self._start, self._stop)

    @functools.cached_property
    def objects(self) -> ak.Array:
        """The physics objects, as `livetime.Run.objects` gives them."""
        return self._run.objects(self._start, self._stop)

    def object_columns(self) -> Optional[ObjectColumns]:
        """The objects of all events one after the other: where each event's begin (and the last one's
        end), and their fields by name. None where only `objects` are to be had, of run files."""
        make = getattr(self._run, "object_columns", None)
        return None if make is None else make(self._start, self._stop)

    @functools.cached_property
    def decisions(self) -> npt.NDArray[np.uint64]:
        """The Level-2 decisions, shape (n, 2)."""
        return self._run.decisions(self._start, self._stop)

    @functools.cached_property
    def fired(self) -> dict[str, Mask]:
        """For each Level-2 path of the configuration, which events it fired on."""
        return self._run.fired(self._start, self._stop)

    @functools.cached_property
    def fragments(self) -> ak.Array:
        """The fragments with their words, as `livetime.Run.fragments` gives them."""
        return self._run.fragments(self._start, self._stop)

    def fill(
        self,
        name: str,
        values: Any,
        *,
        bins: int = 100,
        range: tuple[float, float] = (0.0, 1.0),
        label: str = "",
    ) -> None:
        """Fills the histogram `name` of the filter with numbers, one or several per event.

        Made at the first call; NaN and what is masked are left out. What a batch fills counts only
        when the filter returns: a failed event is in no histogram. A filter has at most 256 of them
        with at most 4000 bins, names and labels of at most 200 characters. Raises ValueError for
        other bins than before, and for a name or bins that cannot be.
        """
        flat = _flattened(values)
        if np.iscomplexobj(flat):
            raise ValueError(f"histogram {name!r} has complex values, expected real numbers")
        flat = np.asarray(flat, dtype=np.float64)
        axis = _axis(name, bins, range, label)
        known = {of: axis for of, _, axis in self._pending}
        known.update((of, filling.axis) for of, filling in self._filled.items())
        if known.setdefault(name, axis) != axis:
            raise ValueError(f"histogram {name!r} has {known[name]}, not {axis}")
        if len(known) > HISTOGRAMS_MAX:
            raise ValueError(f"histogram {name!r} is one more than {HISTOGRAMS_MAX}, the most")
        self._pending.append((name, flat[~np.isnan(flat)], axis))

    def _commit(self) -> None:
        for name, values, axis in self._pending:
            self._filled.setdefault(name, _Filling(axis)).add(values)


Values = npt.NDArray[np.float64]
Function = Callable[[EventBatch], Any]


@dataclass(frozen=True)
class _Axis:
    bins: int
    lower: float
    upper: float
    label: str

    def __str__(self) -> str:
        return f"{self.bins} bins from {self.lower:g} to {self.upper:g} ({self.label})"


def said(error: BaseException) -> str:
    """What an exception says, even one whose text raises another."""
    try:
        text = str(error)
    except Exception as other:
        text = f"its text raised {type(other).__name__}"
    return f"{type(error).__name__}: {text}"


def reason_of(error: BaseException) -> str:
    """The first line of what an exception says, as text for people."""
    return _cut(plain((said(error).splitlines() or [""])[0]), REASON_MAX)


def traceback_of(error: BaseException) -> str:
    """Where an exception came from, as text for people; the end of it if it is long."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return "\n".join(_cut(line, LINE_MAX) for line in plain(text).split("\n"))[-TRACEBACK_MAX:]


def plain(text: str) -> str:
    """Text without what would act on a terminal or cannot be passed on, which is written out:
    control characters, and halves of a letter, as file names that are not UTF-8 are given."""

    def written(letter: str) -> str:
        acts = unicodedata.category(letter).startswith("C") and letter not in "\n\t"
        return letter.encode("unicode_escape").decode() if acts else letter

    return text if text.isascii() and text.isprintable() else "".join(map(written, text))


def _cut(line: str, length: int) -> str:
    return line if len(line) <= length else line[:length] + " .."


def _is_text(text: str) -> bool:
    # Halves of a letter, as file names that are not UTF-8 are given, cannot be passed on.
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _axis(name: str, bins: Any, limits: tuple[Any, Any], label: str) -> _Axis:
    """The axis of a histogram, checked together with its name."""
    # It is printed in one line.
    if not isinstance(name, str) or len(name.splitlines()) != 1 or plain(name) != name:
        raise ValueError(
            f"name of a histogram is {name!r}, expected a text without control characters"
        )
    if not isinstance(label, str) or not _is_text(label):
        raise ValueError(f"label of histogram {name!r} is {label!r}, expected a text")
    for what, given in (("name", name), ("label", label)):
        if len(given) > HISTOGRAM_TEXT_MAX:
            raise ValueError(
                f"{what} of a histogram has {len(given)} characters ({given[:20]!r}..), expected at "
                f"most {HISTOGRAM_TEXT_MAX}"
            )
    if name in RUN_HISTOGRAMS:
        raise ValueError(f"histogram {name!r} is one of the run itself; another name is expected")
    try:
        lower, upper = limits
        axis = _Axis(operator.index(bins), float(lower), float(upper), label or name)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(
            f"histogram {name!r} has bins {bins!r} and range {limits!r}, expected a whole number "
            "and two numbers"
        ) from error
    width = axis.upper - axis.lower
    # Of a range that is too narrow the bins per unit are beyond all numbers.
    is_range = 0 < width < float("inf") and axis.bins / width < float("inf")
    if not (1 <= axis.bins <= BINS_MAX and is_range):
        raise ValueError(
            f"histogram {name!r} has {axis}, expected 1 to {BINS_MAX} bins from low to high, not too "
            "narrow to count in"
        )
    return axis


class _Filling:
    def __init__(self, axis: _Axis) -> None:
        self.axis = axis
        self.counts = np.zeros(axis.bins + 2)

    def add(self, values: Values) -> None:
        axis = self.axis
        scale = axis.bins / (axis.upper - axis.lower)
        with np.errstate(over="ignore"):
            place = np.clip(np.floor((values - axis.lower) * scale), -1, axis.bins)
        self.counts += np.bincount(place.astype(np.int64) + 1, minlength=axis.bins + 2)

    def to_histogram(self, name: str) -> Histogram:
        axis = self.axis
        uhi = {
            "uhi_schema": 1,
            "axes": [
                {
                    "type": "regular",
                    "lower": axis.lower,
                    "upper": axis.upper,
                    "bins": axis.bins,
                    "underflow": True,
                    "overflow": True,
                    "circular": False,
                    "metadata": {"label": axis.label},
                }
            ],
            "storage": {"type": "double", "values": self.counts.tolist()},
        }
        return Histogram(name, uhi)


@dataclass(frozen=True)
class Verdict:
    """What a filter says of a batch."""

    #: Which events to keep.
    keep: Mask
    #: The streams it puts them into by name; an event with any tag is kept.
    tags: dict[str, Mask] = field(default_factory=dict)


class Filter:
    """A function of a batch with what is known of it; made by `filter`."""

    def __init__(self, function: Function, name: str, batch: int, wait_ms: float) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        #: Name, for messages and records.
        self.name = name
        #: Most events that it gets at once.
        self.batch = batch
        #: Longest time for which events wait for their batch to be full [ms].
        self.wait_ms = wait_ms

    def __call__(self, events: EventBatch) -> Verdict:
        """Runs the function and checks what it returned.

        Raises FilterError for what is no verdict, and whatever the function raises.
        """
        return self._checked(self.function(events), len(events))

    def _checked(self, result: Any, count: int) -> Verdict:
        if isinstance(result, Mapping):
            tags = {
                str(tag): self._mask(mask, count, f"tag {tag!r}") for tag, mask in result.items()
            }
            keep = np.zeros(count, bool)
            for mask in tags.values():
                keep |= mask
            return Verdict(keep, tags)
        return Verdict(self._mask(result, count, "its result"))

    def _mask(self, result: Any, count: int, what: str) -> Mask:
        try:
            mask = np.asarray(_all_there(result))
        except Exception as error:
            why = "has no value for some events (None or masked)" if _lacks_values(result) else (
                f"is a {type(result).__name__} that is no array"
            )
            raise FilterError(
                f"filter {self.name!r}: {what} {why}; expected {count} bools, or tags with such"
            ) from error
        if mask.dtype != np.bool_:
            raise FilterError(
                f"filter {self.name!r}: {what} has type {mask.dtype}, expected bool; compare with "
                "a number to make a mask"
            )
        if mask.shape != (count,):
            raise FilterError(
                f"filter {self.name!r}: {what} has shape {mask.shape} for {count} events, "
                f"expected ({count},)"
            )
        return mask

    def __reduce__(self) -> Union[str, tuple[Any, ...]]:
        # What a decorator made is found under the name of its function, which is no longer there.
        found: Any = sys.modules.get(self.__module__)
        qualified = str(getattr(self, "__qualname__", ""))
        for name in qualified.split("."):
            found = getattr(found, name, None)
        if found is self:
            return qualified
        return Filter, (self.function, self.name, self.batch, self.wait_ms)

    def __repr__(self) -> str:
        return f"<livetime.Filter {self.name!r}, batch {self.batch}, wait {self.wait_ms:g} ms>"


@overload
def filter(function: Function) -> Filter: ...
@overload
def filter(
    *, name: Optional[str] = None, batch: int = BATCH, wait: Union[str, float] = "5 ms"
) -> Callable[[Function], Filter]: ...
def filter(
    function: Optional[Function] = None,
    *,
    name: Optional[str] = None,
    batch: int = BATCH,
    wait: Union[str, float] = "5 ms",
) -> Union[Filter, Callable[[Function], Filter]]:
    """Makes a filter of a function of an `EventBatch`.

    The function returns a numpy array with one bool per event, or a dictionary of such arrays by
    stream. `batch` is the most events it gets at once (1 to 65536), `wait` how long events wait for
    a full batch (a number in ms or "5 ms", "2 s", at most 10 s). Raises TypeError for what is no
    function, a name that is no text and a `batch` that is no whole number, ValueError for other
    numbers::

        @livetime.filter(batch=256)
        def dimuon(events):
            mass = livetime.candidates.dimuon(events).mass
            events.fill("mass", mass, bins=60, range=(60, 120), label="mass [GeV]")
            return (mass > 70) & (mass < 110)
    """
    if function is not None and not callable(function):
        raise TypeError(f"a filter is made of a function, not of {function!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name of a filter is {name!r}, expected a text")
    if isinstance(batch, bool):
        raise TypeError(f"batch is {batch}, expected a number of events")
    # A number of Python's own, of numpy's or any others.
    batch = operator.index(batch)
    if batch not in range(1, 65_537):
        raise ValueError(f"batch is {batch}, expected 1 to 65536")
    wait_ms = _milliseconds(wait)

    def make(made_of: Function) -> Filter:
        return Filter(made_of, name or str(getattr(made_of, "__name__", "")), batch, wait_ms)

    return make if function is None else make(function)


@dataclass(frozen=True)
class FailedEvent:
    """An event that a filter failed on."""

    #: Its place in the run: ``run.events(row, row + 1)`` is it.
    row: int
    #: Its trigger number.
    trigger: int
    #: The exception in one line; control characters are written out, and it is cut if it is long.
    reason: str
    #: Where it came from; the end of it if it is long.
    traceback: str


@dataclass
class Replay:
    """What a filter did with the events of a run."""

    #: Name of the filter.
    name: str
    #: First place of the run that was looked at.
    start: int
    #: Which events it kept, for each row of ``run.events(start, stop)`` and of the other tables;
    #: False for failed ones. A damaged event has a row neither there nor here.
    keep: Mask
    #: Its tags by name, each as long as `keep`.
    tags: dict[str, Mask]
    #: The events it failed on, in order.
    failed: list[FailedEvent]
    #: Places of the run whose event is damaged: it was not filtered.
    damaged: list[int]
    #: The histograms it filled, by name.
    histograms: dict[str, Histogram]
    #: Time in the filter [s].
    filter_seconds: float
    #: Time in all [s].
    seconds: float

    @property
    def events(self) -> int:
        """Events that were looked at: kept, dropped, failed or damaged."""
        return len(self.keep) + len(self.damaged)

    @property
    def dropped(self) -> int:
        """Events that it dropped."""
        return len(self.keep) - int(self.keep.sum()) - len(self.failed)

    @property
    def events_per_s(self) -> float:
        """Events per second of the whole."""
        return self.events / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {int(self.keep.sum())} of {self.events} events kept, {self.dropped} "
            f"dropped, {len(self.failed)} failed; {self.events_per_s:.3g} events/s"
        ]
        lines += [f"  {tag}: {int(mask.sum())}" for tag, mask in sorted(self.tags.items())]
        lines += [f"  trigger {event.trigger}: {event.reason}" for event in self.failed[:10]]
        if len(self.failed) > 10:
            lines.append(f"  and {len(self.failed) - 10} more")
        if self.damaged:
            lines.append(f"  {len(self.damaged)} events are damaged or missing")
        return "\n".join(lines)


def replay(
    run: Union[Run, str, Path, os.PathLike[str]],
    with_filter: Union[Filter, Function],
    *,
    start: Optional[int] = None,
    stop: Optional[int] = None,
    batch: Optional[int] = None,
) -> Replay:
    """Runs a filter over the events of a run, as it would run while data are taken.

    An exception does not end it: the batch is taken again in halves until the events are found on
    which the filter fails; they are listed with their trace-back, and the others are filtered
    without them. Damaged events are listed by their place, and a DataWarning counts them. A
    FilterError, which says that the filter itself is wrong, is raised, and so is KeyboardInterrupt.
    """
    run = run if isinstance(run, Run) else open_run(run)
    chosen = with_filter if isinstance(with_filter, Filter) else filter(with_filter)
    first, last, _ = slice(start, stop).indices(len(run))
    last = max(first, last)
    step = chosen.batch if batch is None else batch
    if step < 1:
        raise ValueError(f"batch is {step}, expected 1 or more")
    begun = time.perf_counter()
    work = _Replaying(run, chosen, first, last)
    for begin in range(first, last, step):
        work.take(begin, min(begin + step, last))
    done = work.result(time.perf_counter() - begun)
    if done.damaged:
        warnings.warn(
            f"{len(done.damaged)} of {done.events} events are damaged and were not filtered; "
            "Run.damage says where",
            DataWarning,
            stacklevel=2,
        )
    return done


class _Unjudged:
    """The events of a run as a filter found them: nobody had judged them, and columns can only be
    read."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def events(self, start: int, stop: int) -> npt.NDArray[np.void]:
        # Not by `Run.events`, which would warn of a damaged event in each half of its batch.
        events = self._run._native.events(start, stop).view(EVENT_DTYPE)
        for verdict in ("filter_reason", "streams"):
            events[verdict] = 0
        return _sealed(events)

    def decisions(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        return _sealed(self._run.decisions(start, stop))

    def objects(self, start: int, stop: int) -> ak.Array:
        return _read_only(self._run.objects(start, stop))

    def fragments(self, start: int, stop: int) -> ak.Array:
        return _read_only(self._run.fragments(start, stop))


def _read_only(records: ak.Array) -> ak.Array:
    lists, rows = records.layout, records.layout.content
    # The words of fragments are a copy in a run, too.
    columns = [
        ak.contents.NumpyArray(_sealed(column.data))
        if isinstance(column, ak.contents.NumpyArray)
        else column
        for column in rows.contents
    ]
    rows = ak.contents.RecordArray(columns, rows.fields, length=rows.length)
    return ak.Array(ak.contents.ListOffsetArray(lists.offsets, rows))


def _sealed(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same memory to be read. A flag of an array can be set again, unless what numpy finds to own
    the memory is a buffer that can only be read."""
    owner = column.view(np.uint8).data.toreadonly()
    return np.asarray(owner).view(column.dtype)


class _Replaying:
    def __init__(self, run: Run, of: Filter, first: int, last: int) -> None:
        self._run, self._filter, self._first = run, of, first
        self._keep = np.zeros(last - first, bool)
        self._tags: dict[str, Mask] = {}
        self._failed: list[FailedEvent] = []
        self._damaged: list[int] = []
        self._filled: dict[str, _Filling] = {}
        self._filter_seconds = 0.0

    def take(self, start: int, stop: int) -> None:
        """Filters some events; those of a failing batch in halves, and one with damaged events."""
        events = EventBatch(_Unjudged(self._run), start, stop, self._filled)
        if len(events.events) < len(events):
            if len(events) > 1:
                self._take_halves(start, stop)
            else:
                self._damaged.append(start)
            return
        verdict = self._judge(events)
        if isinstance(verdict, BaseException):
            if stop - start > 1:
                # It holds the columns of all of them.
                del verdict, events
                self._take_halves(start, stop)
            else:
                self._fail(start, verdict)
            return
        events._commit()
        rows = slice(start - self._first, stop - self._first)
        self._keep[rows] = verdict.keep
        for tag, mask in verdict.tags.items():
            self._tags.setdefault(tag, np.zeros(len(self._keep), bool))[rows] = mask

    def _judge(self, events: EventBatch) -> Union[Verdict, BaseException]:
        """What the filter says of some events, or how it failed on them: returned, so that nothing is
        raised while it is handled, and the clock stands still before the next events are taken."""
        begun = time.perf_counter()
        try:
            return self._filter(events)
        except (FilterError, KeyboardInterrupt):
            raise
        except BaseException as error:
            return error
        finally:
            self._filter_seconds += time.perf_counter() - begun

    def _take_halves(self, start: int, stop: int) -> None:
        middle = (start + stop) // 2
        self.take(start, middle)
        self.take(middle, stop)

    def _fail(self, row: int, error: BaseException) -> None:
        trigger = int(self._run.events(row, row + 1)["trigger"][0])
        self._failed.append(FailedEvent(row, trigger, reason_of(error), traceback_of(error)))

    def result(self, seconds: float) -> Replay:
        histograms = {name: made.to_histogram(name) for name, made in self._filled.items()}
        there = np.ones(len(self._keep), bool)
        there[np.array(self._damaged, int) - self._first] = False
        return Replay(
            name=self._filter.name,
            start=self._first,
            keep=self._keep[there],
            tags={tag: mask[there] for tag, mask in self._tags.items()},
            failed=self._failed,
            damaged=self._damaged,
            histograms=histograms,
            filter_seconds=self._filter_seconds,
            seconds=seconds,
        )


def _milliseconds(wait: Union[str, float]) -> float:
    units = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    if isinstance(wait, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s)\s*", wait)
        value = float(found[1]) * units[found[2]] if found else -1.0
    else:
        value = float(wait)
    if not 0 <= value <= 10_000:
        raise ValueError(f"wait is {wait!r}, expected 0 to 10 s, such as '5 ms'")
    return value


def _is_awkward(values: Any) -> bool:
    return type(values).__module__.split(".")[0] == "awkward"


def _lacks_values(values: Any) -> bool:
    """Whether an array says that some of its values are not there."""
    if _is_awkward(values):
        return bool(ak.any(ak.is_none(values)))
    return isinstance(values, np.ma.MaskedArray) and bool(np.ma.is_masked(values))


def _all_there(values: Any) -> Any:
    # A masked array would be taken for what lies below its mask.
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError("some values are masked")
    return values


def _flattened(values: Any) -> Any:
    if isinstance(values, np.ma.MaskedArray):
        return values.compressed()
    if _is_awkward(values):
        return ak.to_numpy(ak.drop_none(ak.flatten(values, axis=None)))
    return np.ravel(values) if not isinstance(values, Sequence) else np.ravel(np.asarray(values))
