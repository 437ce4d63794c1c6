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


def dimuon_rows(path: Path) -> list[list[Object]]:
    """The muons of a recorded dimuon file, read independently of the Rust reader."""
    with path.open(newline="") as file:
        return [
            [
                Object(
                    "muon",
                    *(narrow(float(row[f"{name}{n}"])) for name in ("pt", "eta", "phi", "Q", "dxy", "iso")),
                    chi2=0.0,
                )
                for n in (1, 2)
            ]
            for row in csv.DictReader(file)
        ]


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
        "differences": len(differences),
        "first_differences": differences[:SHOWN],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="oracle", description=__doc__)
    parser.add_argument("config", type=Path, help="run configuration (TOML) with the trigger menu")
    parser.add_argument("dump", type=Path, help="file of livetime source --decide --jsonl")
    parser.add_argument("--csv", type=Path, help="recorded dimuon file that the events came from")
    options = parser.parse_args()
    config = tomllib.loads(options.config.read_text())
    recorded = dimuon_rows(options.csv) if options.csv else None
    with options.dump.open() as lines:
        result = compare(config, lines, recorded)
    print(json.dumps(result))
    return 1 if result["differences"] or not result["events"] else 0


if __name__ == "__main__":
    sys.exit(main())
