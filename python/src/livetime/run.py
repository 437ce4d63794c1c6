"""A run: its records as dictionaries, its events as numpy and awkward arrays.

Rows are in the order of the trigger number and the same in every method; those of a run that grows
keep their numbers. The columns are filled by
the native part without a Python object per event and with the interpreter released; what is done
here is to give them names and shapes. How a run is shown is in `run_text`.
"""

from __future__ import annotations

import json
import operator
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional, Sequence, Union

import awkward as ak
import numpy as np
import numpy.typing as npt

from . import run_text
from ._native import FormatError, RunFile
from .filter_menu import FilterMenu, counts_of_record, filter_menu
from .histogram import Histogram

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Rows of `Run.events`.
EVENT_DTYPE = np.dtype(
    [
        ("trigger", "<u8"),
        ("triggered_at_ns", "<u8"),
        ("fragments", "<u4"),
        ("missing", "<u4"),
        ("bytes", "<u4"),
        ("filter_reason", "<u2"),
        ("streams", "<u2"),
        ("incomplete", "?"),
        ("flagged", "?"),
    ],
    align=True,
)

#: Most bytes of fragments that are read at once unless the caller says otherwise.
FRAGMENT_BYTES_MAX = 4 << 30

_TABLES = ("events", "decisions", "fired", "tagged", "missing", "fragments", "objects", "dimuon_mass")


class Kind:
    """What a physics object is, in the field `kind` of `Run.objects`."""

    # Plain numbers and no enum, which awkward arrays cannot be compared with.

    MUON = 1
    ELECTRON = 2
    TRACK = 3
    JET = 4
    PHOTON = 5


class Damage(NamedTuple):
    """A range of bytes of the file that was passed over."""

    offset: int
    bytes: int
    reason: str


class DataWarning(UserWarning):
    """Something in the data could not be read and was left out."""


class Run:
    """An open run; make one with `livetime.open`.

    `start` and `stop` of its methods count rows as in a slice. A damaged event has no row in any
    of them and is listed in `damage`, so that in a damaged file there can be fewer rows than
    asked for, but always the same ones.
    """

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        # Absolute, so that it is found again wherever the program goes.
        given = Path(path).absolute()
        #: The run file; of a run in several files, the first part of the main one.
        self.file: Path = given / "events.mcap" if given.is_dir() else given
        self._opened: Path = given
        self._native = RunFile(os.fspath(given))
        self._config: Optional[dict[str, Any]] = None
        self._histograms: Optional[dict[str, Histogram]] = None

    # What the run is

    @property
    def number(self) -> int:
        """The run number."""
        return self._native.number

    @property
    def begin(self) -> Optional[dict[str, Any]]:
        """The begin-of-run record, `livetime.run-begin/1`; None if its chunk is damaged."""
        return _parsed(self._native.begin_json())

    @property
    def end(self) -> Optional[dict[str, Any]]:
        """The end-of-run record, `livetime.run-end/1`, with the events of all files, those included
        that are known to be in files that are not there; None while the run is being taken, after a
        crash, and if no file that is there has the record."""
        return _parsed(self._native.end_json())

    @property
    def summary(self) -> Optional[dict[str, Any]]:
        """The document `livetime.run/1` from `summary.json` beside the file; None while the run is
        being taken, after a crash, and if the document is of another run."""
        path = self.file.parent / "summary.json"
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
            ours = summary["run"]["number"] == self.number
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(f"{path}: not the summary of a run: {error}") from error
        return summary if ours else None

    @property
    def config(self) -> dict[str, Any]:
        """The configuration file, over which options of the command went: of the begin-of-run
        record, else of `config.toml` beside the file; empty if there is neither."""
        if self._config is None:
            text, origin = (self.begin or {}).get("config", ""), "begin-of-run record"
            path = self.file.parent / "config.toml"
            if not text and path.is_file():
                text, origin = path.read_text(encoding="utf-8"), str(path)
            try:
                self._config = tomllib.loads(text)
            except (tomllib.TOMLDecodeError, RecursionError) as error:
                raise FormatError(f"{origin}: not a configuration: {error}") from error
        return self._config

    @property
    def paths(self) -> dict[str, int]:
        """The Level-2 paths that ran, those of the built-in menu too: their bits in the decision
        by name. Of a file that does not record them, those of the configuration."""
        recorded: dict[str, int] = (self.begin or {}).get("paths", {})
        if recorded:
            return dict(sorted(recorded.items(), key=lambda path: path[1]))
        paths = self.config.get("trigger", {}).get("path", [])
        return {path["name"]: path["bit"] for path in paths}

    @property
    def filter_menu(self) -> Optional[FilterMenu]:
        """The Level-3 menu with what the run has counted of its paths and streams; None for other
        filters. The counts are None while the run is being taken, and after a crash."""
        counts = (self.summary or {}).get("filter_menu") or counts_of_record(self.end or {})
        return filter_menu(self.config.get("filter", {}), counts)

    @property
    def notes(self) -> list[tuple[float, str]]:
        """What operators noted (``livetime run --note``, `LiveRun.note`): seconds after the start,
        and text. Known once the run has ended."""
        notes = (self.summary or {}).get("notes") or (self.end or {}).get("notes", [])
        return [(int(note["time_ns"]) * 1e-9, note["text"]) for note in notes]

    @property
    def condition(self) -> str:
        """`GOOD`, or flags joined by `|`: `TAINTED`, `INCOMPLETE`, `INTERRUPTED`, `ABORTED`,
        `DEGRADED`; `INTERRUPTED` as well while the run is being taken."""
        return self._native.condition

    @property
    def complete(self) -> bool:
        """Whether the run closed the file and every event is there, as far as was read; `inspect`
        reads everything."""
        return self._native.complete

    @property
    def damage(self) -> list[Damage]:
        """What was passed over so far, and files of the run that are not there or cannot be read;
        `inspect` looks at every byte."""
        return [Damage(*row) for row in self._native.damage()]

    def inspect(self) -> dict[str, Any]:
        """Reads every chunk, compares every checksum, and returns the document
        `livetime.inspect/1`, as `livetime inspect --json` prints it."""
        return dict(json.loads(self._native.inspect_json()))

    def shortfall(self) -> Optional[str]:
        """What the run lacks of what it stored, in the words of ``livetime export``: how many
        events of how many, and which files; None if nothing. Reads every event."""
        return self._native.shortfall()

    def refresh(self) -> None:
        """Takes up the events that were written since the file was opened.

        The rows that were there keep their numbers, and those of new events come behind them,
        though some may have lower trigger numbers: ``run.events(rows_read)`` gives what is new, each
        event once. Opened anew, all are in the order of the trigger number.

        Raises OSError if a file was cut or replaced since it was opened; open the run anew then.
        """
        self._native.refresh()
        self._histograms = None

    def __len__(self) -> int:
        """Events by the index; `damage` lists those of them that were read and are damaged."""
        return self._native.event_count

    def __bool__(self) -> bool:
        # A run without events is still a run.
        return True

    # The events

    def events(
        self, start: Optional[int] = None, stop: Optional[int] = None
    ) -> npt.NDArray[np.void]:
        """One row of `EVENT_DTYPE` per event.

        `triggered_at_ns` counts from the start of the run, `bytes` is the size of the event,
        `incomplete` says that sources are missing and `flagged` that the receiver found something
        wrong with a fragment; `streams` has a bit for each stream. A DataWarning counts the rows
        that are not there because their events are damaged.
        """
        first, last = self._range(start, stop)
        rows = self._native.events(first, last).view(EVENT_DTYPE)
        if len(rows) < last - first:
            warnings.warn(
                f"{last - first - len(rows)} of {last - first} events are damaged and have no row; "
                "Run.damage says where",
                DataWarning,
                stacklevel=2,
            )
        return rows

    def decisions(
        self, start: Optional[int] = None, stop: Optional[int] = None
    ) -> npt.NDArray[np.uint64]:
        """The Level-2 decisions after prescale, shape (n, 2): bits 0 to 63, bits 64 to 127."""
        return self._native.masks(*self._range(start, stop)).reshape(-1, 2)

    def fired(
        self, start: Optional[int] = None, stop: Optional[int] = None
    ) -> dict[str, npt.NDArray[np.bool_]]:
        """For each path of `paths`, which events it fired on.

        Raises FormatError if the run gives a path a bit that a decision does not have.
        """
        for name, bit in self.paths.items():
            if bit not in range(128):
                raise FormatError(f"{self.file}: path {name} has bit {bit}, expected 0 to 127")
        masks = self.decisions(start, stop)
        one = np.uint64(1)
        return {
            name: ((masks[:, bit // 64] >> np.uint64(bit % 64)) & one) == one
            for name, bit in self.paths.items()
        }

    def tagged(
        self, start: Optional[int] = None, stop: Optional[int] = None
    ) -> dict[str, npt.NDArray[np.bool_]]:
        """For each stream of the configuration (`[filter] streams`), which events are in it."""
        streams = self.events(start, stop)["streams"]
        names = self.config.get("filter", {}).get("streams", [])
        return {name: (streams >> bit & 1) == 1 for bit, name in enumerate(names)}

    def missing(self, start: Optional[int] = None, stop: Optional[int] = None) -> ak.Array:
        """The ids of the sources that are missing from each event, ``n * var * uint32``."""
        offsets, sources = self._native.missing(*self._range(start, stop))
        return _jagged(offsets, sources)

    def fragments(
        self,
        start: Optional[int] = None,
        stop: Optional[int] = None,
        *,
        sources: Optional[Sequence[int]] = None,
        words: bool = True,
        bytes_max: int = FRAGMENT_BYTES_MAX,
    ) -> ak.Array:
        """The fragments of each event: ``source``, receiver ``status`` (0 is good), ``word_count``
        and their ``words`` as received, header and trailer included.

        `sources` keeps only those, ``words=False`` leaves the words out. Events of more
        than `bytes_max` bytes in all are refused with ValueError: read them in parts, see
        `iterate`.
        """
        first, last = self._range(start, stop)
        range_bytes = self._native.range_bytes(first, last) if words else 0
        if range_bytes > bytes_max:
            raise ValueError(
                f"events {first} to {last} hold {range_bytes} bytes, more than bytes_max "
                f"{bytes_max}; read fewer at a time, for example with iterate"
            )
        wanted = None if sources is None else [_source(source) for source in sources]
        columns = self._native.fragments(first, last, wanted, words)
        fields: dict[str, Any] = {
            name: columns[name] for name in ("source", "status", "word_count")
        }
        if words:
            fields["words"] = _jagged(columns["word_offsets"], columns["words"])
        return _jagged_records(columns["offsets"], fields)

    def objects(self, start: Optional[int] = None, stop: Optional[int] = None) -> ak.Array:
        """The physics objects of each event over all its fragments, in the order of their index:
        ``kind`` (see `Kind`), ``pt`` [GeV], ``eta``, ``phi``, ``charge`` [e], ``dxy`` [cm].

        Objects of fragments that are missing, flagged or unreadable are not there; a DataWarning
        counts the latter two.
        """
        return self._objects(start, stop, stacklevel=3)

    def _objects(self, start: Optional[int], stop: Optional[int], stacklevel: int) -> ak.Array:
        columns = self._native.objects(*self._range(start, stop))
        unreadable = columns.pop("unreadable")
        if unreadable:
            warnings.warn(
                f"{unreadable} fragments are flagged or unreadable; their objects are left out",
                DataWarning,
                stacklevel=stacklevel,
            )
        return _jagged_records(columns.pop("offsets"), columns)

    def dimuon_mass(
        self, start: Optional[int] = None, stop: Optional[int] = None
    ) -> npt.NDArray[np.float64]:
        """The mass [GeV] of the hardest positive and the hardest negative muon of each event, NaN
        without such a pair: what the filter ``mass_window`` computes, with massless muons. A
        Level-3 menu and `livetime.candidates` take the muon's mass."""
        objects = self._objects(start, stop, stacklevel=3)
        finite = np.isfinite(objects.pt) & np.isfinite(objects.eta) & np.isfinite(objects.phi)
        muons = objects[(objects.kind == Kind.MUON) & finite & (objects.pt > 0)]

        def hardest(of_charge: ak.Array) -> list[npt.NDArray[np.float64]]:
            first = ak.firsts(of_charge[ak.argmax(of_charge.pt, axis=1, keepdims=True)])
            values = (ak.fill_none(first[name], np.nan) for name in ("pt", "eta", "phi"))
            return [ak.to_numpy(value).astype(np.float64) for value in values]

        pt_a, eta_a, phi_a = hardest(muons[muons.charge > 0])
        pt_b, eta_b, phi_b = hardest(muons[muons.charge < 0])
        squared = 2.0 * pt_a * pt_b * (np.cosh(eta_a - eta_b) - np.cos(phi_a - phi_b))
        mass: npt.NDArray[np.float64] = np.sqrt(np.maximum(squared, 0.0))
        return mass

    def iterate(self, table: str = "events", step: int = 10_000, **options: Any) -> Iterator[Any]:
        """Calls the method named `table` for `step` events at a time, so that memory stays bounded:
        ``for objects in run.iterate("objects", step=50_000): h.fill(ak.flatten(objects.pt))``. It ends
        with the events that were there when it began, also after a `refresh`.
        """
        if table not in _TABLES:
            raise ValueError(f"table is {table!r}, expected one of {', '.join(_TABLES)}")
        if step < 1:
            raise ValueError(f"step is {step}, expected 1 or more")
        # A `refresh` meanwhile adds events to the run, and none to what is gone through.
        end = len(self)
        for start in range(0, end, step):
            yield getattr(self, table)(start, min(start + step, end), **options)

    @property
    def histograms(self) -> dict[str, Histogram]:
        """The histograms that the run wrote last, by name; each can be plotted as it is. While the
        run goes on, those that its filters have filled up to now; `refresh` has them read again."""
        if self._histograms is None:
            document = _parsed(self._native.histograms_json()) or self._histograms_so_far()
            self._histograms = {name: Histogram(name, uhi) for name, uhi in document.items()}
        return self._histograms

    def _histograms_so_far(self) -> dict[str, Any]:
        # While the run goes on, those of its filters are beside the file; it is replaced as a
        # whole, and taken away at the end.
        try:
            text = (self.file.parent / "histograms.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        return _parsed(text) or {}

    def _range(self, start: Optional[int], stop: Optional[int]) -> tuple[int, int]:
        first, last, _ = slice(start, stop).indices(len(self))
        return first, max(first, last)

    # How it is shown

    def __repr__(self) -> str:
        return run_text.line(self)

    def __str__(self) -> str:
        return run_text.text(self)

    def _repr_html_(self) -> str:
        return run_text.html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # For worker processes: a run is opened again where it is unpickled.
        return Run, (os.fspath(self._opened),)


def open_run(path: Union[str, os.PathLike[str]]) -> Run:
    """Opens a run directory such as ``runs/000042``, or one of its files, such as ``events.mcap``.

    Of a directory all files are read as one run: those of streams, and the parts that follow each
    other. Events are in the order of their trigger numbers. Files that cannot be read are left out and
    listed in `Run.damage`.

    The run need not be finished: of a file that is being written, or was cut off, what is complete
    is read, `Run.complete` is False and `Run.damage` lists what was passed over.

    Raises OSError if the file cannot be read, and FormatError if it is not a run file.
    """
    return Run(path)


def _source(given: Any) -> int:
    source = operator.index(given)
    if not 0 <= source < 2**32:
        raise ValueError(f"source is {source}, expected 0 to {2**32 - 1}")
    return source


def _parsed(text: Optional[str]) -> Optional[dict[str, Any]]:
    return None if text is None else dict(json.loads(text))


def _jagged(offsets: npt.NDArray[np.int64], content: npt.NDArray[Any]) -> ak.Array:
    inner = ak.contents.NumpyArray(content)
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), inner))


def _jagged_records(offsets: npt.NDArray[np.int64], fields: dict[str, Any]) -> ak.Array:
    # By hand what is an array already: `to_layout` looks long at each of them.
    contents = [
        ak.contents.NumpyArray(field) if isinstance(field, np.ndarray) else ak.to_layout(field)
        for field in fields.values()
    ]
    records = ak.contents.RecordArray(contents, list(fields), length=int(offsets[-1]))
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), records))
