"""The Level-3 menu of a run: its paths and streams, and what the run has counted of them.

What a path asks comes from the configuration, the counts from `summary.json` or, without it, from
the end-of-run record; while a run goes on, and after a crash, there are none. Filter units that
died took theirs along: the counts lack their share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

#: Keys of a path that are not limits of its cut.
_NOT_LIMITS = {"name", "cut", "l2", "prescale", "streams"}


@dataclass(frozen=True)
class FilterPath:
    """A path of the menu."""

    #: Its name.
    name: str
    #: What it looks for, such as ``dimuon``.
    cut: str
    #: Level-2 bits of which one must be set; empty for any decision.
    l2: tuple[int, ...]
    #: One in so many passes fires.
    prescale: int
    #: Names of the streams of the events that it fires on.
    streams: tuple[str, ...]
    #: The limits of its cut as they are in the configuration, such as ``{"mass_min": "70 GeV"}``.
    limits: dict[str, Any] = field(default_factory=dict)
    #: Events that passed its cut, of those built whole and judged in time: without those that
    #: two-step building released after the first step; None without counts.
    passed: Optional[int] = None
    #: Those of them on which it fired; None without counts.
    fired: Optional[int] = None
    #: Fires over the time in which triggers were taken [Hz], without ``summary.json`` over that until
    #: the end of the run, which is longer; None without counts.
    fired_hz: Optional[float] = None


@dataclass(frozen=True)
class FilterStream:
    """A stream of the menu."""

    #: Its name.
    name: str
    #: Its bit in the column ``streams`` of `livetime.Run.events`; None where it is not known.
    bit: Optional[int]
    #: Events in it; None without counts.
    events: Optional[int] = None
    #: Their rate [Hz], over the time of `FilterPath.fired_hz`; None without counts.
    hz: Optional[float] = None


@dataclass(frozen=True)
class FilterMenu:
    """The Level-3 menu; of a chain of stages of the user's only the times."""

    #: Paths by name, in the order of the configuration: the first one that fires is the reason.
    paths: dict[str, FilterPath]
    #: Streams by name, in the order of their bits.
    streams: dict[str, FilterStream]
    #: Mean time in each stage [ns], by name; empty without counts.
    stage_ns: dict[str, float]
    #: Longest time for one event [ns]; None without counts.
    event_ns_max: Optional[int]
    #: Events over their limit, which are in the error stream and in no other count; None without
    #: counts.
    over_time: Optional[int]
    #: Filter units that died with what they had counted, such as ``fu0~1``: all counts lack their
    #: share, and `livetime.Run.tagged` may have more events. Empty where they lack nothing.
    lacking: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{len(self.paths)} paths, {len(self.streams)} streams"]
        for path in self.paths.values():
            counted = "" if path.passed is None else f": {path.passed} passed, {path.fired} fired"
            lines.append(f"  path {path.name} ({path.cut} to {', '.join(path.streams)}){counted}")
        for stream in self.streams.values():
            counted = "" if stream.events is None else f": {stream.events} events"
            lines.append(f"  stream {stream.name}{counted}")
        if self.over_time:
            lines.append(f"  {self.over_time} events over their time, in the error stream")
        if self.lacking:
            lines.append(f"  the counts lack the share of {', '.join(self.lacking)}, which died")
        return "\n".join(lines)


def filter_menu(
    table: Mapping[str, Any], counts: Optional[Mapping[str, Any]]
) -> Optional[FilterMenu]:
    """The menu of a ``[filter]`` table with its counts; None where there is neither."""
    if table.get("name") != "menu" and counts is None:
        return None
    known: Mapping[str, Any] = counts or {}
    configured = {path["name"]: path for path in table.get("path", [])}
    of_paths, of_streams = known.get("paths", {}), known.get("streams", {})
    bits = {name: bit for bit, name in enumerate(table.get("streams", []))}
    return FilterMenu(
        paths={
            name: _path(name, configured.get(name, {}), of_paths.get(name))
            for name in _names(configured, of_paths)
        },
        streams={
            name: _stream(name, bits.get(name), of_streams.get(name))
            for name in _names(bits, of_streams)
        },
        stage_ns={name: float(ns) for name, ns in known.get("stage_ns", {}).items()},
        event_ns_max=_whole(known.get("event_ns_max")),
        over_time=_whole(known.get("over_time")),
        lacking=tuple(known.get("lacking", ())),
    )


def counts_of_record(record: Mapping[str, Any]) -> Optional[dict[str, Any]]:
    """The counts of an end-of-run record, whose menu is a list of counters by dotted names, in the
    form of the summary; None without a menu."""
    flat = {name: int(count) for name, count in record.get("menu", {}).items()}
    if "menu.events" not in flat:
        return None
    seconds = max(int(record["time_ns"]) * 1e-9, 1e-9)
    paths: dict[str, dict[str, float]] = {}
    streams: dict[str, dict[str, float]] = {}
    stage_ns: dict[str, float] = {}
    for name, count in flat.items():
        kind, _, rest = name.partition(".")
        of, _, what = rest.rpartition(".")
        if kind == "path" and what in ("passed", "fired"):
            paths.setdefault(of, {})[what] = count
            if what == "fired":
                paths[of]["fired_hz"] = count / seconds
        elif kind == "stream" and what == "events":
            streams[of] = {"events": count, "hz": count / seconds}
        elif kind == "stage" and what == "ns":
            stage_ns[of] = count / max(flat["menu.events"], 1)
    return {
        "paths": paths,
        "streams": streams,
        "stage_ns": stage_ns,
        "event_ns_max": flat.get("menu.event_ns_max", 0),
        "over_time": flat.get("menu.over_time", 0),
        "lacking": record.get("menu_lacking", []),
    }


def _names(first: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    return [*first, *(name for name in then if name not in first)]


def _path(name: str, table: Mapping[str, Any], counts: Optional[Mapping[str, Any]]) -> FilterPath:
    counted = counts or {}
    return FilterPath(
        name=name,
        cut=str(table.get("cut", "")),
        l2=tuple(table.get("l2", ())),
        prescale=int(table.get("prescale", 1)),
        streams=tuple(table.get("streams", ())),
        limits={key: value for key, value in table.items() if key not in _NOT_LIMITS},
        passed=_whole(counted.get("passed")),
        fired=_whole(counted.get("fired")),
        fired_hz=counted.get("fired_hz"),
    )


def _stream(
    name: str, bit: Optional[int], counts: Optional[Mapping[str, Any]]
) -> FilterStream:
    counted = counts or {}
    return FilterStream(name, bit, _whole(counted.get("events")), counted.get("hz"))


def _whole(value: Any) -> Optional[int]:
    # Large numbers are strings in the documents.
    return None if value is None else int(value)
