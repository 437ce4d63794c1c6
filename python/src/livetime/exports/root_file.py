"""ROOT files, as a TTree that every version of ROOT reads or as an RNTuple; written by uproot.

The tree is `events`. In a TTree a list of records becomes one branch per field, `object_pt` and so
on, with the branch of its lengths `nobject`; an RNTuple holds records as they are. What is known
of the run is the string `run`, a JSON object.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import awkward as ak

from .table import FLAT, Batch, as_array, columns, in_types

TREE = "events"
RECORD = "run"


class TreeWriter:
    """A TTree."""

    def __init__(self, path: Path, record: dict[str, str]) -> None:
        import uproot

        self._file: Any = uproot.recreate(path)
        self._file[RECORD] = json.dumps(record)
        self._tree: Optional[Any] = None

    def append(self, batch: Batch) -> None:
        """Adds the rows of a batch."""
        if self._tree is None:
            types: dict[str, Any] = {name: FLAT[name] for name in FLAT}
            for name, of in columns("fragment" in batch).items():
                types[name] = f"var * {_type_text(of)}"
            self._tree = self._file.mktree(TREE, types, title="events of a Livetime run")
        self._tree.extend(batch)

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


class NtupleWriter:
    """An RNTuple."""

    def __init__(self, path: Path, record: dict[str, str]) -> None:
        import uproot

        self._file: Any = uproot.recreate(path)
        self._file[RECORD] = json.dumps(record)
        self._ntuple: Optional[Any] = None

    def append(self, batch: Batch) -> None:
        """Adds the rows of a batch."""
        array = as_array(batch)
        if self._ntuple is None:
            # Made with the first rows, which are in it then.
            self._ntuple = self._file.mkrntuple(TREE, array)
        else:
            self._ntuple.extend(array)

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def read(path: Path) -> ak.Array:
    """The columns of an exported file."""
    import uproot

    with uproot.open(path) as file:
        array = file[TREE].arrays()
    if "object" in array.fields:
        return in_types(array)
    whole: dict[str, Any] = {name: array[name] for name in FLAT}
    for name, of in columns("fragment_source" in array.fields).items():
        if isinstance(of, dict):
            whole[name] = ak.zip({field: array[f"{name}_{field}"] for field in of})
        else:
            whole[name] = array[name]
    return in_types(ak.zip(whole, depth_limit=1))


def _type_text(of: Any) -> str:
    if isinstance(of, dict):
        fields = (f"{name}: {kind.name}" for name, kind in of.items())
        return f"{{{', '.join(fields)}}}"
    return str(of.name)
