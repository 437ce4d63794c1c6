"""Event samples of other programs as sources: ROOT and CSV into recorded events.

`import_events` writes the file that ``livetime run CONFIG --events FILE`` takes. It knows
collections by their names: those of NanoAOD (``Muon_pt``), momenta (``Muon_Px``), numbered ones as in the education samples
of CERN Open Data (``pt1``), and what ``livetime export`` writes (``object_pt``). Nothing is guessed: a
file without any of them, or with a value that no detector gives, is refused with its place.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Optional, TextIO, Union

from .exports import csv_file
from .output_file import in_the_making

#: Most objects of a row of the written file; the hardest are kept.
OBJECTS_MAX = 24

#: Collections of NanoAOD and what they are in the written file.
COLLECTIONS = {"Muon": 13, "Electron": 11, "Jet": 21, "Photon": 22}

#: What `livetime.Kind` numbers are in the written file; tracks have no place in it.
_KINDS = {1: 13, 2: 11, 4: 21, 5: 22}

#: Without a charge: jets and photons.
_NEUTRAL = (21, 22)

#: Kinds that the written file can have.
_PIDS = (11, 13, 21, 22)

_NUMBERS = (("run", "Run", "livetime_run"), ("event", "Event", "eventNumber", "trigger"))


class SampleError(ValueError):
    """A sample that cannot be imported as it is."""


class Imported(NamedTuple):
    """What was written."""

    events: int
    objects: int
    #: Objects beyond `OBJECTS_MAX` in a row, and tracks.
    objects_left_out: int


class _Object(NamedTuple):
    pid: int
    pt: float
    eta: float
    phi: float
    charge: int


_Row = tuple[int, int, list[_Object]]


def import_events(
    path: Union[str, os.PathLike[str]],
    out: Union[str, os.PathLike[str]],
    *,
    tree: Optional[str] = None,
    overwrite: bool = False,
    step: int = 10_000,
    progress: Optional[Callable[[int], None]] = None,
) -> Imported:
    """Writes the events of a ROOT file (``.root``, ``.rntuple``) or a CSV file as recorded events;
    the CSV files of an export are a pair, of which `path` is the one of the events.

    `tree` names the TTree or RNTuple, if it is not the first one with objects. Impact parameters and
    isolation are not taken over: the layout with `PID` has no place for them. The file is written
    beside its final name and renamed at the end, as one of `livetime.export`. Raises SampleError for a
    sample without objects or with a value that cannot be and for an `out` that is the sample itself, a
    file of a run or no plain file, and FileExistsError for one that is there unless `overwrite` is set.
    """
    source, target = Path(path), Path(out)
    inputs = csv_file.names(source) if source.name else [source]
    is_root = source.suffix in (".root", ".rntuple")
    rows = _root_rows(source, tree, step) if is_root else _csv_rows(source)
    with in_the_making([target], inputs, overwrite=overwrite, refused=SampleError) as [part]:
        return _write(rows, part, source, progress)


def _write(
    rows: Iterator[_Row], part: Path, source: Path, progress: Optional[Callable[[int], None]]
) -> Imported:
    events, objects, left_out = 0, 0, 0
    kept: list[_Row] = []
    for run, event, found in rows:
        events += 1
        for what, number, bits in (("run", run, 32), ("event", event, 64)):
            if not 0 <= number < 2**bits:
                raise SampleError(
                    f"{source}: event {events}, {what} is {number}, expected 0 to {2**bits - 1}"
                )
        fitting = sorted((o for o in found if o.pid), key=lambda o: -o.pt)[:OBJECTS_MAX]
        left_out += len(found) - len(fitting)
        objects += len(fitting)
        for item in fitting:
            _check(item, source, events)
        kept.append((run, event, fitting))
        if progress is not None and events % 10_000 == 0:
            progress(events)
    if not events:
        raise SampleError(f"{source}: no events")
    if not objects:
        raise SampleError(f"{source}: no objects in {events} events; there is nothing to send")
    width = max(len(row[2]) for row in kept)
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        numbers = range(1, width + 1)
        columns = [f"{name}{n}" for n in numbers for name in ("PID", "pt", "eta", "phi", "Q")]
        writer.writerow(["Run", "Event", *columns])
        for run, event, fitting in kept:
            row: list[Any] = [run, event]
            for item in fitting:
                row += [item.pid, repr(item.pt), repr(item.eta), repr(item.phi), item.charge]
            row += [0] * (5 * (width - len(fitting)))
            writer.writerow(row)
    return Imported(events, objects, left_out)


def _check(item: _Object, source: Path, event: int) -> None:
    if abs(item.pid) not in _PIDS:
        raise SampleError(
            f"{source}: event {event}, PID of an object is {item.pid}, expected 11 or 13 with "
            "either sign, 21, 22, or 0 for none"
        )
    for name, value, low, high in (
        ("pt", item.pt, 1e-3, 1e5),
        ("eta", item.eta, -10.0, 10.0),
        ("phi", item.phi, -3.1416, 3.1416),
    ):
        if not low <= value <= high:
            raise SampleError(
                f"{source}: event {event}, {name} of an object is {value}, "
                f"expected {low} to {high}"
            )


def _object(pid: int, pt: Any, eta: Any, phi: Any, charge: Any) -> _Object:
    """An object of the kind `pid`; without a charge (None) that of the sign of `pid`."""
    kind = abs(pid)
    if kind == 0 or kind in _NEUTRAL:
        return _Object(kind, float(pt), float(eta), float(phi), 0)
    if charge is not None and float(charge) not in (-1.0, 1.0):
        raise ValueError(f"charge of an object is {charge}, expected -1 or 1")
    # The sign of a lepton's number is opposite to its charge.
    sign = int(float(charge)) if charge is not None else (1 if pid < 0 else -1)
    return _Object(-sign * kind, float(pt), float(eta), float(phi), sign)


def _whole(text: str) -> int:
    """A whole number, also as other programs write it (`7.0`)."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise ValueError(f"{text} is no whole number") from None
        return int(value)


# ROOT


def _root_rows(source: Path, tree: Optional[str], step: int) -> Iterator[_Row]:
    try:
        yield from _tree_rows(source, tree, step)
    except (SampleError, ImportError, MemoryError, FileNotFoundError):
        raise
    except Exception as error:
        # What the library says of a file that is none of its own has no class in common.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SampleError(f"{source}: no ROOT file that can be read: {reason}") from error


def _tree_rows(source: Path, tree: Optional[str], step: int) -> Iterator[_Row]:
    import uproot

    with uproot.open(source) as file:
        names = [tree] if tree else list(file.keys(cycle=False))
        for name in names:
            try:
                table = file[name]
            except uproot.exceptions.KeyInFileError as error:
                raise SampleError(f"{source}: no tree {name}") from error
            try:
                fields = _fields(table)
            except ValueError as error:
                raise SampleError(f"{source}: tree {name} {error}") from error
            if fields is None:
                continue
            for first in range(0, table.num_entries, step):
                last = min(first + step, table.num_entries)
                arrays = {
                    key: table[key].array(entry_start=first, entry_stop=last)
                    for key in fields.wanted
                }
                try:
                    yield from fields.rows(arrays, first, last)
                except (OverflowError, ValueError) as error:
                    raise SampleError(f"{source}: {error}") from error
            return
    wanted = ", ".join(f"{name}_pt" for name in COLLECTIONS)
    raise SampleError(f"{source}: no tree with one of {wanted}, Muon_Px, object_pt, pt1")


class _Fields(NamedTuple):
    wanted: list[str]
    rows: Callable[[dict[str, Any], int, int], Iterator[_Row]]


def _fields(table: Any) -> Optional[_Fields]:
    """How to read a table, if it has objects that are known.

    Raises ValueError if it has not all that is needed of them.
    """
    if not hasattr(table, "num_entries") or not hasattr(table, "keys"):
        return None
    keys = set(table.keys())
    numbers = [next((name for name in names if name in keys), None) for names in _NUMBERS]
    exported = next((sep for sep in ("object_", "object.") if f"{sep}pt" in keys), None)
    nano = [name for name in COLLECTIONS if f"{name}_pt" in keys]
    cartesian = [name for name in COLLECTIONS if f"{name}_Px" in keys]
    if exported is not None:
        parts = [f"{exported}{name}" for name in ("kind", "pt", "eta", "phi", "charge")]
        _expect([(f"{exported}pt", parts)], keys)

        def of_kinds(arrays: dict[str, Any], at: int) -> list[_Object]:
            columns = (arrays[part][at].tolist() for part in parts)
            return [
                _object(_KINDS.get(int(kind), 0), *rest) for kind, *rest in zip(*columns)
            ]

        return _fields_of(numbers, parts, of_kinds)
    if nano:
        by_name = {
            name: [f"{name}_{part}" for part in ("pt", "eta", "phi", "charge")] for name in nano
        }
        _expect([(parts[0], parts[:3]) for parts in by_name.values()], keys)
        wanted = [part for parts in by_name.values() for part in parts if part in keys]

        def of_nano(arrays: dict[str, Any], at: int) -> list[_Object]:
            found = []
            for name, parts in by_name.items():
                pt, eta, phi = (arrays[part][at].tolist() for part in parts[:3])
                charges = _charges(arrays, parts[3], at, len(pt))
                pid = COLLECTIONS[name]
                found += [_object(pid, *values) for values in zip(pt, eta, phi, charges)]
            return found

        return _fields_of(numbers, wanted, of_nano)
    if cartesian:
        by_name = {
            name: [f"{name}_{part}" for part in ("Px", "Py", "Pz", "Charge")] for name in cartesian
        }
        _expect([(parts[0], parts[:3]) for parts in by_name.values()], keys)
        wanted = [part for parts in by_name.values() for part in parts if part in keys]

        def of_momenta(arrays: dict[str, Any], at: int) -> list[_Object]:
            found = []
            for name, parts in by_name.items():
                momenta = [arrays[part][at].tolist() for part in parts[:3]]
                charges = _charges(arrays, parts[3], at, len(momenta[0]))
                for x, y, z, charge in zip(*momenta, charges):
                    pt = math.hypot(x, y)
                    eta = math.asinh(z / pt) if pt > 0 else math.inf
                    found.append(_object(COLLECTIONS[name], pt, eta, math.atan2(y, x), charge))
            return found

        return _fields_of(numbers, wanted, of_momenta)
    if "pt1" in keys:
        places = _places(keys)
        numbered = sorted(_numbered(keys, places))
        return _fields_of(numbers, numbered, lambda a, at: _numbered_objects(a, places, at))
    return None


def _expect(collections: list[tuple[str, list[str]]], keys: set[str]) -> None:
    """Holds the branches that each collection needs beside the one it is known by against those that
    are there."""
    lacking = [(of, part) for of, parts in collections for part in parts if part not in keys]
    if lacking:
        known = ", ".join(dict.fromkeys(of for of, _ in lacking))
        raise ValueError(f"has {known} and lacks {', '.join(part for _, part in lacking)}")


def _charges(arrays: dict[str, Any], column: str, at: int, count: int) -> list[Any]:
    """The charges of a collection; of jets and photons there need not be any."""
    if column in arrays:
        return list(arrays[column][at].tolist())
    if count and COLLECTIONS[column.split("_")[0]] not in _NEUTRAL:
        raise ValueError(f"no {column}: the charges are not known")
    return [None] * count


def _fields_of(
    numbers: list[Optional[str]],
    parts: list[str],
    objects: Callable[[dict[str, Any], int], list[_Object]],
) -> _Fields:
    wanted = [name for name in numbers if name is not None] + parts

    def rows(arrays: dict[str, Any], first: int, last: int) -> Iterator[_Row]:
        for at in range(last - first):
            run = int(arrays[numbers[0]][at]) if numbers[0] else 1
            event = int(arrays[numbers[1]][at]) if numbers[1] else first + at + 1
            try:
                found = objects(arrays, at)
            except ValueError as error:
                raise ValueError(f"event {first + at + 1}: {error}") from error
            yield run, event, found

    return _Fields(wanted, rows)


def _places(keys: Any) -> list[int]:
    """Numbers of the objects that have columns."""
    found = (re.fullmatch(r"pt([1-9]\d*)", key) for key in keys)
    return sorted(int(place[1]) for place in found if place)


def _numbered(keys: Any, places: list[int]) -> set[str]:
    """Columns of the objects 1, 2, .."""
    names = ("PID", "pt", "eta", "phi", "Q")
    found = (f"{name}{n}" for n in places for name in names)
    return {name for name in found if name in keys}


def _numbered_objects(row: Any, places: list[int], at: Optional[int] = None) -> list[_Object]:
    def value(name: str) -> Any:
        return row[name] if at is None else row[name][at]

    found = []
    for n in places:
        if f"pt{n}" not in row:
            continue
        for name in ("eta", "phi"):
            if f"{name}{n}" not in row:
                raise ValueError(f"{name}{n} is empty, expected a number as pt{n} has one")
        has_pid, has_charge = f"PID{n}" in row, f"Q{n}" in row
        pid = _whole(str(value(f"PID{n}"))) if has_pid else 13
        if not (has_pid or has_charge):
            raise ValueError(f"neither Q{n} nor PID{n}: the charge is not known")
        if pid:
            charge = value(f"Q{n}") if has_charge else None
            parts = (value(f"{name}{n}") for name in ("pt", "eta", "phi"))
            found.append(_object(pid, *parts, charge))
    return found


# CSV


class _CsvTable:
    """The rows of a CSV file, each with as many fields as its first one has names."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path = path
        self._rows = csv.reader(file, skipinitialspace=True)
        self.names = [name.strip() for name in next(self._rows, [])]
        twice = sorted(name for name, times in Counter(self.names).items() if name and times > 1)
        if twice:
            raise SampleError(f"{path}: column {twice[0]} is named twice, expected once")

    def __iter__(self) -> Iterator[dict[str, str]]:
        for row in self._rows:
            if not row:
                continue
            if len(row) != len(self.names):
                raise SampleError(
                    f"{self.place}: {len(row)} fields, expected {len(self.names)} as in line 1"
                )
            yield {name: text.strip() for name, text in zip(self.names, row)}

    @property
    def place(self) -> str:
        """The line that was read last."""
        return f"{self._path}: line {self._rows.line_num}"


def _csv_rows(source: Path) -> Iterator[_Row]:
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            table = _CsvTable(source, file)
            if "pt1" in table.names:
                yield from _numbered_rows(table)
            elif "trigger" in table.names and "mask_low" in table.names:
                yield from _exported_rows(source, table)
            else:
                raise SampleError(
                    f"{source}: no column pt1 among {', '.join(table.names)[:200]}; expected "
                    "numbered columns (pt1, eta1, phi1), or NAME.csv of an export with "
                    "NAME.objects.csv beside it"
                )
    except (UnicodeDecodeError, csv.Error) as error:
        raise SampleError(f"{source}: not a CSV file: {error}") from error


def _numbered_rows(table: _CsvTable) -> Iterator[_Row]:
    numbers = [next((name for name in given if name in table.names), None) for given in _NUMBERS]
    places = _places(table.names)
    for index, row in enumerate(table, start=1):
        try:
            run = _whole(row[numbers[0]]) if numbers[0] else 1
            event = _whole(row[numbers[1]]) if numbers[1] else index
            # An empty place is no object.
            given = {name: text for name, text in row.items() if text}
            # Some files went through a signed 32-bit integer.
            event += 2**32 if event < 0 else 0
            yield run, event, _numbered_objects(given, places)
        except (ValueError, KeyError) as error:
            raise SampleError(f"{table.place}: {error}") from error


def _exported_rows(source: Path, events: _CsvTable) -> Iterator[_Row]:
    """The events of an export, each with its objects of the second file."""
    of_objects = csv_file.names(source)[1]
    if not of_objects.is_file():
        raise SampleError(
            f"{source}: its objects are in {of_objects.name}, which is not beside it"
        )
    with of_objects.open(encoding="utf-8", newline="") as file:
        objects = _ExportedObjects(_CsvTable(of_objects, file))
        for index, row in enumerate(events):
            try:
                trigger = int(row["trigger"])
                # Former exports do not say how many there are.
                count = int(row["objects"]) if "objects" in row else None
            except ValueError as error:
                raise SampleError(f"{events.place}: {error}") from error
            found = objects.of_row(index, trigger)
            if count is not None and count != len(found):
                raise SampleError(
                    f"{events.place}: event {trigger} has {count} objects, but {of_objects.name} "
                    f"has {len(found)} of it"
                )
            yield 1, trigger, found
        objects.end(source)


class _ExportedObjects:
    """The second file of an export: its objects are in the order of their events."""

    def __init__(self, table: _CsvTable) -> None:
        self._table = table
        self._rows = iter(table)
        self._next = next(self._rows, None)
        for name in ("trigger", "row", "kind", "pt", "eta", "phi", "charge"):
            if name not in table.names:
                raise SampleError(f"{table.place}: no column {name}")

    def of_row(self, index: int, trigger: int) -> list[_Object]:
        """The objects of the event in row `index` of the first file."""
        found = []
        try:
            while self._next is not None and int(self._next["row"]) <= index:
                row, of_event = int(self._next["row"]), int(self._next["trigger"])
                if row < index:
                    raise ValueError(f"row is {row}, expected {index} or more as they are in order")
                if of_event != trigger:
                    raise ValueError(f"of event {of_event}, but row {row} is event {trigger}")
                kind = _KINDS.get(int(self._next["kind"]), 0)
                parts = (self._next[name] for name in ("pt", "eta", "phi", "charge"))
                found.append(_object(kind, *parts))
                self._next = next(self._rows, None)
        except ValueError as error:
            if isinstance(error, SampleError):
                raise
            raise SampleError(f"{self._table.place}: {error}") from error
        return found

    def end(self, source: Path) -> None:
        """There are no more events."""
        if self._next is not None:
            row = self._next["row"]
            raise SampleError(f"{self._table.place}: row is {row}, and {source} has no such event")


__all__ = ["COLLECTIONS", "OBJECTS_MAX", "Imported", "SampleError", "import_events"]
