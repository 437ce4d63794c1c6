"""``python -m oracle CONFIG FILE [--csv EVENTS]``: compares a dump with the reference.

Prints one JSON line; the exit code is 0 without and 1 with differences.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tomllib
from pathlib import Path

from .encoding import Object, narrow, packet
from .menu import Menu, decode

SHOWN = 5


def objects_of(entries: list[list]) -> list[Object]:
    return [Object(kind, *(narrow(value) for value in values)) for kind, *values in entries]


KINDS = {11: "electron", 13: "muon", 21: "jet", 22: "photon"}


def recorded_rows(path: Path) -> list[list[Object]]:
    """The objects of a recorded file, read independently of the Rust reader."""
    with path.open(newline="") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        columns = {name.strip(): name for name in reader.fieldnames or []}
        rows = []
        for row in reader:
            values = {name: row[full].strip() for name, full in columns.items()}
            rows.append(row_objects(values))
        return rows


def row_objects(row: dict[str, str]) -> list[Object]:
    names = ("pt", "eta", "phi", "Q", "dxy", "iso")
    objects = []
    for n in range(1, 25):
        if f"pt{n}" not in row:
            break
        kind = KINDS.get(abs(int(row[f"PID{n}"]))) if f"PID{n}" in row else "muon"
        if kind is not None:
            has = "PID1" not in row
            numbers = (float(row[f"{name}{n}"]) if has or name in names[:4] else 0.0 for name in names)
            objects.append(Object(kind, *map(narrow, numbers), chi2=0.0))
    return objects


def compare(config: dict, lines, recorded: list[list[Object]] | None) -> dict:
    """Counts of events and differences; the first differences in full."""
    trigger = config["trigger"]
    menu = Menu(trigger)
    words_max = trigger.get("packet_words_max", 510)
    events = accepted = words_total = 0
    differences: list[str] = []

    def differ(event: dict, what: str, ours, theirs) -> None:
        differences.append(f"trigger {event['trigger']}: {what}: oracle {ours}, program {theirs}")

    for line in lines:
        event = json.loads(line)
        events += 1
        objects = objects_of(event["objects"])
        if recorded is not None and objects != recorded[event["index"] % len(recorded)]:
            differ(event, "objects", recorded[event["index"] % len(recorded)], objects)
        header = {**event["header"], "trigger": int(event["trigger"])}
        ours = [f"{word:08x}" for word in packet(objects, header, event["index"], words_max)]
        if ours != event["packet"]:
            differ(event, "packet", " ".join(ours), " ".join(event["packet"]))
        words = [int(word, 16) for word in event["packet"]]
        words_total += len(words)
        before, after = menu.decide(decode(words))
        accepted += after != 0
        for name, mask in (("before", before), ("after", after)):
            if f"{mask:032x}" != event[name]:
                differ(event, name, f"{mask:032x}", event[name])
    return {
        "schema": "livetime.oracle/1",
        "events": events,
        "accepted": accepted,
        "packet_words_mean": words_total / events if events else 0.0,
        "passed": {path.name: path.passes for path in menu.paths},
        "fired": {path.name: path.fires for path in menu.paths},
        "beam_fits": menu.fit.fits if menu.fit else 0,
        "beam_spot_um": list(menu.spot),
        "differences": len(differences),
        "first_differences": differences[:SHOWN],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="oracle", description=__doc__)
    parser.add_argument("config", type=Path, help="run configuration (TOML) with the trigger menu")
    parser.add_argument("dump", type=Path, help="file of livetime source --decide --jsonl")
    parser.add_argument("--csv", type=Path, help="recorded file that the events came from")
    options = parser.parse_args()
    config = tomllib.loads(options.config.read_text())
    recorded = recorded_rows(options.csv) if options.csv else None
    with options.dump.open() as lines:
        result = compare(config, lines, recorded)
    print(json.dumps(result))
    return 1 if result["differences"] or not result["events"] else 0


if __name__ == "__main__":
    sys.exit(main())
