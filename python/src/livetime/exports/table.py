"""The columns of an exported run, and what every writer of a format must do.

One row per event. Columns of one value: those of `livetime.EVENT_DTYPE`, and `mask_low` and
`mask_high`, the decision bits 0 to 63 and 64 to 127. Columns with a list in each row:
`missing_source`, the ids of the sources that are missing; `object`, records of the physics objects;
with fragments also `fragment`, records of source, status and word count, and `words`, the words of
all fragments of the event one after the other (`fragment.word_count` says where each ends).
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Optional, Protocol

import awkward as ak
import numpy as np

from ..run import EVENT_DTYPE, Run

#: Type of each column with one value per event.
FLAT: dict[str, np.dtype[Any]] = {
    **{name: EVENT_DTYPE[name] for name in EVENT_DTYPE.names or ()},
    "mask_low": np.dtype("<u8"),
    "mask_high": np.dtype("<u8"),
}

#: Types of the columns with a list per event: of numbers, or of records.
OBJECT = {
    "kind": np.dtype("<u2"),
    "pt": np.dtype("<f4"),
    "eta": np.dtype("<f4"),
    "phi": np.dtype("<f4"),
    "charge": np.dtype("<f4"),
    "dxy": np.dtype("<f4"),
}
FRAGMENT = {"source": np.dtype("<u4"), "status": np.dtype("<u4"), "word_count": np.dtype("<u4")}
WORD = np.dtype("<u4")


#: Most bytes that the events of a batch with fragments hold, but for an event that has more alone. A
#: ROOT file takes less than 2 GiB of a column at a time, and it is all in memory.
BATCH_BYTES_MAX = 1 << 30


class ExportError(ValueError):
    """An export that cannot be made as asked, or is not whole where it is read."""


#: A batch: columns by name, all with as many rows.
Batch = dict[str, Any]


class Writer(Protocol):
    """Writes batches into one file. Made with the path and the record of the run."""

    def append(self, batch: Batch) -> None:
        """Adds the rows of a batch. Every batch has the same columns."""

    def close(self) -> None:
        """Ends the file. A file without a batch is one without events."""


def columns(fragments: bool) -> dict[str, Any]:
    """Names of the columns with a list per event: to the type of a number, or to the types of the
    fields of a record."""
    lists: dict[str, Any] = {"missing_source": WORD, "object": OBJECT}
    if fragments:
        lists |= {"fragment": FRAGMENT, "words": WORD}
    return lists


def batches(
    run: Run, step: int, fragments: bool, total: Optional[int] = None
) -> Iterator[Batch]:
    """The first `total` events of a run in batches of `step`, without it those that are there at the
    start; one empty batch for a run without events. With `fragments` there are fewer events in a batch
    where they are large."""
    end = len(run) if total is None else total
    start = 0
    while True:
        stop = min(start + step, end)
        if fragments:
            while stop - start > 1 and run._native.range_bytes(start, stop) > BATCH_BYTES_MAX:
                stop = start + (stop - start) // 2
        yield _batch(run, start, stop, fragments)
        start = stop
        if start >= end:
            return


def _batch(run: Run, start: int, stop: int, fragments: bool) -> Batch:
    events, masks = run.events(start, stop), run.decisions(start, stop)
    batch: Batch = {name: np.ascontiguousarray(events[name]) for name in EVENT_DTYPE.names or ()}
    batch["mask_low"], batch["mask_high"] = masks[:, 0].copy(), masks[:, 1].copy()
    batch["missing_source"] = run.missing(start, stop)
    batch["object"] = run.objects(start, stop)
    if fragments:
        of_events = run.fragments(start, stop)
        batch["fragment"] = ak.zip({name: of_events[name] for name in FRAGMENT})
        batch["words"] = ak.flatten(of_events.words, axis=2)
    return batch


def run_record(run: Run) -> dict[str, str]:
    """What is said about the run in the exported file: texts by key."""
    record = {"livetime.schema": "livetime.export/1", "livetime.run": str(run.number)}
    for key, document in (("livetime.begin", run.begin), ("livetime.end", run.end)):
        if document is not None:
            record[key] = json.dumps(document)
    return record


def as_array(batch: Batch) -> ak.Array:
    """The columns as one array of records."""
    return ak.zip(batch, depth_limit=1)


def in_types(array: ak.Array) -> ak.Array:
    """An array as read from a file, its columns in the order and the types of this table."""
    names = array.fields
    kept: dict[str, Any] = {name: _as_type(array[name], FLAT[name]) for name in FLAT}
    for name, of in columns("fragment" in names).items():
        if isinstance(of, dict):
            fields = {field: _as_type(array[name][field], kind) for field, kind in of.items()}
            kept[name] = ak.zip(fields)
        else:
            kept[name] = _as_type(array[name], of)
    return ak.zip(kept, depth_limit=1)


def _as_type(column: ak.Array, kind: np.dtype[Any]) -> ak.Array:
    return ak.values_astype(column, kind)
