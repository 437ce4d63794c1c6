"""How a run is shown: in a line, in a page of text, in a notebook.

The text and the notebook show the same rows. Units and words follow the rest of the program: sizes
in KiB and MiB, times as TAI, losses under their names.
"""

from __future__ import annotations

import datetime
import html as escaping
import os
from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from .run import Run

#: Most ranges of damage, notes and histograms that are listed.
_LISTED_MAX = 5


def line(run: Run) -> str:
    """One line, for lists of runs."""
    return f"<livetime.Run {run.number:06d}: {len(run)} events, {run.condition}>"


def text(run: Run) -> str:
    """Several lines, for ``print(run)``."""
    rows = _rows(run)
    width = max(len(label) for label, _ in rows)
    lines = [f"run {run.number:06d}"]
    lines += [f"  {label:<{width}}  {_printable(value)}" for label, value in rows]
    return "\n".join(lines)


def html(run: Run) -> str:
    """A table, for notebooks."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{escaping.escape(label)}</th>"
        f"<td style='text-align:left'>{escaping.escape(_printable(value))}</td></tr>"
        for label, value in _rows(run)
    )
    return f"<table><caption>Livetime run {run.number:06d}</caption><tbody>{cells}</tbody></table>"


def _printable(value: str) -> str:
    # A file may hold any text, and a terminal obeys some.
    escaped = (char.encode("unicode_escape").decode() for char in value)
    return "".join(char if char.isprintable() else code for char, code in zip(value, escaped))


def _rows(run: Run) -> list[tuple[str, str]]:
    begin, end = run.begin or {}, run.end or {}
    summary = run.summary or {}
    rows = [("state", _state(run)), ("condition", run.condition), ("file", _file(run))]
    if "started_tai_ns" in begin:
        rows.append(("started", _tai(int(begin["started_tai_ns"]))))
    if end:
        taken = int(end["time_ns"]) * 1e-9
        rows.append(("ended", f"after {taken:.3g} s: {end['reason']}"))
    rows += [("note", f"after {seconds:.3g} s: {what}") for seconds, what in run.notes[:_LISTED_MAX]]
    if begin:
        rows.append(
            ("program", f"{begin['version'] or 'unknown'}, configuration {begin['config_hash']}")
        )
    counts = summary.get("counts") or end.get("counts")
    losses = summary.get("losses") or end.get("losses")
    if counts:
        rows += _counts(counts)
    if losses is not None:
        rows.append(("losses", _losses(losses)))
    if "conserved" in summary:
        unseen = summary.get("not_seen_to_end", [])
        heard = f" of what was heard last: nobody has seen {_listed(unseen)} end" if unseen else ""
        rows.append(("conserved", ("yes" if summary["conserved"] else "NO") + heard))
    names = list(run.histograms)
    if names:
        rows.append(("histograms", _listed(names)))
    rows += [
        ("damage", f"{row.bytes} bytes at {row.offset}: {row.reason}")
        for row in run.damage[:_LISTED_MAX]
    ]
    return rows


def _state(run: Run) -> str:
    end = run.end
    if run.complete:
        return "complete"
    if end is None and run._native.has_ended:
        return "ended; the file with the end-of-run record is not there"
    if end is None:
        return "no end-of-run record: still being written, or cut off"
    if end.get("recovered"):
        return "recovered after a crash"
    expected = int(end["events_stored"])
    if expected != len(run):
        return f"{len(run)} of {expected} events are there"
    return "files are missing" if run._native.files_lacking else "damaged"


def _file(run: Run) -> str:
    # A path need not be text.
    path = os.fsencode(run.file).decode("utf-8", "backslashreplace")
    what = f"{path}, {_size(run._native.file_bytes)}, {len(run)} events"
    bounds = run._native.trigger_bounds
    return what if bounds is None else f"{what}, triggers {bounds[0]} to {bounds[1]}"


def _counts(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    offered, refused = counts["offered"], counts["refused"]
    dead = 100.0 * refused / max(1, offered)
    built, incomplete = counts["events_built"], counts["events_incomplete"]
    level_two = f"{counts['l2_accepted']} accepted, {counts['l2_rejected']} rejected"
    kept = f"{counts['filter_accepted']} accepted, {counts['filter_rejected']} rejected"
    return [
        ("triggers", f"{offered} offered, {refused} refused ({dead:.3g} %)"),
        ("Level 2", level_two),
        ("events", f"{built} built, {incomplete} incomplete"),
        ("filter", f"{kept}, {counts['events_stored']} stored"),
    ]


def _losses(losses: Mapping[str, Mapping[str, Any]]) -> str:
    found = [
        f"{area}.{cause} {count}"
        for area, causes in losses.items()
        for cause, count in causes.items()
        if count
    ]
    return ", ".join(found) or "none"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_LISTED_MAX])
    more = len(names) - _LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _size(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024.0:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024.0
    return f"{value:.1f} GiB"


def _tai(ns: int) -> str:
    epoch = datetime.datetime(1970, 1, 1)
    return f"{epoch + datetime.timedelta(seconds=ns // 10**9):%Y-%m-%d %H:%M:%S} TAI"
