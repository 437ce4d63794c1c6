"""CSV files, for spreadsheets and small programs: one of the events and one of their objects.

`NAME.csv` has a row per event with the columns of one value, the missing sources separated by blanks,
and how many objects it has; `NAME.objects.csv` has a row per object, with the trigger number of its event and the row of
the event in the first file. Numbers are written so that reading gives the same bits. Fragments have
no place here.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from .table import FLAT, OBJECT, WORD, Batch, ExportError, in_types


def names(path: Path) -> list[Path]:
    """The two files of an export to `path`."""
    return [path, path.with_name(f"{path.stem}.objects{path.suffix}")]


class CsvWriter:
    """The two files."""

    def __init__(self, files: list[Path], record: dict[str, str]) -> None:
        events, objects = files
        self._files = [events.open("w", newline=""), objects.open("w", newline="")]
        self._events, self._objects = (csv.writer(file) for file in self._files)
        self._events.writerow([*FLAT, "missing_source", "objects"])
        self._objects.writerow(["trigger", "row", *OBJECT])
        self._rows = 0

    def append(self, batch: Batch) -> None:
        """Adds the rows of a batch."""
        flat = [_values(batch[name]) for name in FLAT]
        missing = (" ".join(map(str, sources)) for sources in batch["missing_source"].to_list())
        objects = batch["object"]
        counts = ak.to_numpy(ak.num(objects))
        self._events.writerows(zip(*flat, missing, counts.tolist()))
        row = self._rows + np.repeat(np.arange(len(objects)), counts)
        trigger = np.repeat(batch["trigger"], counts)
        fields = [_values(ak.to_numpy(ak.flatten(objects[name]))) for name in OBJECT]
        self._objects.writerows(zip(trigger.tolist(), row.tolist(), *fields))
        self._rows += len(objects)

    def close(self) -> None:
        """Ends the files."""
        for file in self._files:
            file.close()


def read(path: Path) -> ak.Array:
    """The columns of an exported pair of files; `path` is the one of the events.

    Raises ExportError where an object is not of the event in its row, and for a file that was cut off
    within a line or has a value that is none.
    """
    events, objects = names(path)
    rows = _rows(events)
    if not objects.exists():
        raise ExportError(f"{path}: no {objects.name} beside it, which an export as CSV has")
    of_objects = _rows(objects)
    try:
        return _columns(path, rows, of_objects)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, ExportError):
            raise
        raise ExportError(f"{path}: a value is not as it was exported: {error}") from error


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file. One that was cut off within a line ends without the end of a line, and its last
    number may be there with fewer digits."""
    with path.open(newline="") as file:
        text = file.read()
    if not text.endswith("\n"):
        raise ExportError(
            f"{path}: the last line has no end, as of a file that was cut off; a line end is expected"
        )
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _columns(
    path: Path, rows: list[dict[str, Any]], of_objects: list[dict[str, Any]]
) -> ak.Array:
    whole: dict[str, Any] = {
        name: np.array([_number(row[name], kind) for row in rows], kind)
        for name, kind in FLAT.items()
    }
    missing = [[int(source) for source in row["missing_source"].split()] for row in rows]
    whole["missing_source"] = _lists(missing)
    counts = _object_counts(path, rows, of_objects)
    fields = {
        name: ak.unflatten(np.array([float(row[name]) for row in of_objects]), counts)
        for name in OBJECT
    }
    whole["object"] = ak.zip(fields)
    return in_types(ak.zip(whole, depth_limit=1))


def _object_counts(
    path: Path, rows: list[dict[str, Any]], of_objects: list[dict[str, Any]]
) -> np.ndarray[Any, Any]:
    """How many objects each row has. A table that was sorted or selected from keeps its objects in
    the places of before, where they would be those of other events."""
    counts = np.zeros(len(rows), "<i8")
    before = 0
    for line, item in enumerate(of_objects, start=2):
        row, trigger = int(item["row"]), int(item["trigger"])
        there = int(rows[row]["trigger"]) if 0 <= row < len(rows) else None
        if there != trigger or row < before:
            wrong = f"has event {there} there" if there is not None else f"has {len(rows)} rows"
            if row < before:
                wrong = f"was at row {before} before"
            raise ExportError(
                f"{names(path)[1]}: line {line}: object of event {trigger} in row {row}, but "
                f"{path.name} {wrong}; both files are expected as they were exported"
            )
        counts[row] += 1
        before = row
    for row, item in enumerate(rows):
        # Former exports do not say how many there are.
        if int(item.get("objects", counts[row])) != counts[row]:
            raise ExportError(
                f"{path}: event {item['trigger']} has {item['objects']} objects, but "
                f"{names(path)[1].name} has {counts[row]} of it"
            )
    return counts


def _values(column: np.ndarray[Any, Any]) -> list[Any]:
    # Nine digits tell all single-precision numbers apart, and are shorter than what they become
    # in double precision.
    if column.dtype.kind == "f":
        return [f"{value:.9g}" for value in column.tolist()]
    return list(column.astype("<u8").tolist() if column.dtype.kind == "b" else column.tolist())


def _number(text: str, kind: np.dtype[Any]) -> Any:
    return bool(int(text)) if kind.kind == "b" else int(text)


def _lists(rows: list[list[int]]) -> ak.Array:
    counts = np.array([len(row) for row in rows], "<i8")
    return ak.unflatten(np.array([item for row in rows for item in row], WORD), counts)
