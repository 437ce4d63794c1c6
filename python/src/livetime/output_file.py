"""Files that no export and no import replaces, whatever it is told: what is read, and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Optional

#: How every run file begins.
_RUN_FILE = b"\x89MCAP0\r\n"
#: What lies beside the run files in a run directory.
_DOCUMENTS = ("config.toml", "filter.py", "histograms.json", "report.html", "summary.json")


def reason_to_keep(target: Path, inputs: Iterable[Path]) -> Optional[str]:
    """Why a file that is there must stay as it is; None if it may be replaced.

    `inputs` are the files that are read; one of them under another name is found as well.
    """
    if not target.is_file():
        return None
    if any(one.is_file() and target.samefile(one) for one in inputs):
        return "is a file that is read here"
    with target.open("rb") as file:
        if file.read(len(_RUN_FILE)) == _RUN_FILE:
            return "is a run file"
    if target.name in _DOCUMENTS and any(target.parent.glob("events*.mcap")):
        return "belongs to the run in its directory"
    return None
