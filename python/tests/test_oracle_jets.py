"""Every kind of trigger path on jets: a simulated sample, decided on by the program and the oracle.

There are no recorded jets at this size; the events are those of the ROOT tutorial sample, which is a
simulation. They are converted here, in the columns of docs/formats/recorded-events.md.
"""

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from program import PROGRAM, ROOT, needs_program

uproot = pytest.importorskip("uproot")

MENU = ROOT / "examples" / "menu-16.toml"
OBJECTS_MAX = 24
KINDS = (("Muon", 13), ("Electron", 11), ("Jet", 21), ("Photon", 22))


def sample() -> Path:
    """The sample, where LIVETIME_DATA says."""
    data = os.environ.get("LIVETIME_DATA")
    if not data:
        pytest.skip("LIVETIME_DATA is not set")
    path = Path(data)
    path = path if path.is_absolute() else ROOT / path
    if not (path / "uproot-HZZ.root").exists():
        pytest.skip("uproot-HZZ.root is not in LIVETIME_DATA")
    return path / "uproot-HZZ.root"


def objects(tree: dict, event: int) -> list[list[str]]:
    """PID, pt, eta, phi and charge of the objects of an event."""
    found = []
    for name, pid in KINDS:
        charges = tree.get(f"{name}_Charge")
        for n, (px, py, pz) in enumerate(zip(*(tree[f"{name}_P{axis}"][event] for axis in "xyz"))):
            pt = math.hypot(px, py)
            if pt < 0.001:
                continue
            eta = max(-10.0, min(10.0, math.asinh(pz / pt)))
            charge = 0 if charges is None else (1 if charges[event][n] > 0 else -1)
            numbers = (f"{value:.6f}" for value in (pt, eta, math.atan2(py, px)))
            found.append([str(pid), *numbers, str(charge)])
    return found[:OBJECTS_MAX]


def convert(root: Path, out: Path) -> int:
    """Writes the events as CSV; says how many."""
    with uproot.open(root) as file:
        names = [f"{kind}_{what}" for kind, _ in KINDS for what in ("Px", "Py", "Pz", "Charge")]
        events = file["events"]
        tree = {name: events[name].array(library="np") for name in names if name in events}
        count = events.num_entries
    header = ["Run", "Event"]
    header += [f"{name}{n}" for n in range(1, OBJECTS_MAX + 1) for name in ("PID", "pt", "eta", "phi", "Q")]
    with out.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(header)
        for event in range(count):
            row = objects(tree, event)
            row += [["0"] * 5] * (OBJECTS_MAX - len(row))
            rows.writerow(["1", str(event), *(value for entry in row for value in entry)])
    return count


@needs_program
def test_the_oracle_agrees_on_simulated_jets(tmp_path):
    recorded, dump = tmp_path / "jets.csv", tmp_path / "dump.jsonl"
    events = convert(sample(), recorded)
    assert events == 2421
    arguments = ["--events", recorded, "--triggers", str(events), "--decide", "--jsonl", dump]
    subprocess.run([PROGRAM, "source", MENU, *arguments], check=True)
    oracle = [sys.executable, "-m", "oracle", MENU, dump, "--csv", recorded]
    checked = subprocess.run(oracle, cwd=ROOT / "python", capture_output=True, text=True)
    verdict = json.loads(checked.stdout)
    assert verdict["events"] == events
    assert verdict["differences"] == 0, verdict["first_differences"]
    jets = ("JET15", "JET40", "JET60", "JET90", "TWO_JET10_MET20", "SUMET150")
    assert all(verdict["fired"][path] > 0 for path in jets), verdict["fired"]
