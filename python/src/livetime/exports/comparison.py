"""An exported file against its run, event by event."""

from __future__ import annotations

from typing import Any, Iterator

import awkward as ak
import numpy as np
import numpy.typing as npt

from ..run import Run
from . import table


def differing_events(run: Run, again: ak.Array, step: int = 10_000) -> int:
    """The number of events of a run that are not the same in `again`, as `livetime.read_export` gives
    it, in any column; NaN is the same as NaN. Events that only one of them has count as differing,
    but for damaged ones, which have a row in neither: `livetime.Run.shortfall` counts those.

    Raises ValueError if the columns are not those of an export.
    """
    with_fragments = "fragment" in again.fields
    rows, compared, differing = 0, 0, 0
    for batch in table.batches(run, step, with_fragments):
        expected = table.in_types(table.as_array(batch))
        part = again[compared : compared + len(expected)]
        differing += int(_differing(expected[: len(part)], part).sum())
        compared += len(part)
        rows += len(expected)
    return differing + max(rows, len(again)) - compared


def _differing(expected: ak.Array, found: ak.Array) -> npt.NDArray[np.bool_]:
    if expected.fields != found.fields:
        raise ValueError(f"columns {found.fields}, expected {expected.fields}")
    differs = np.zeros(len(expected), bool)
    for one, other in _columns(expected, found):
        if one.ndim == 1:
            differs |= ~ak.to_numpy(_same(one, other))
            continue
        counts = ak.to_numpy(ak.num(one)), ak.to_numpy(ak.num(other))
        as_many = counts[0] == counts[1]
        differs |= ~as_many
        same = ak.to_numpy(ak.all(_same(one[as_many], other[as_many]), axis=1))
        differs[np.flatnonzero(as_many)[~same]] = True
    return differs


def _same(one: ak.Array, other: ak.Array) -> Any:
    return (one == other) | ((one != one) & (other != other))


def _columns(expected: ak.Array, found: ak.Array) -> Iterator[tuple[ak.Array, ak.Array]]:
    for name in expected.fields:
        one, other = expected[name], found[name]
        if one.fields:
            yield from ((one[field], other[field]) for field in one.fields)
        else:
            yield one, other
