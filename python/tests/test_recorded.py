"""Recorded CMS events through the chain into a run file, and out of it through Python filters.

Needs the built program and the directory of recorded events in `LIVETIME_DATA`. What a filter finds
is compared with what the experiment published beside the events.
"""

import csv
import os
import subprocess

import awkward as ak
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import livetime
from program import PROGRAM, ROOT, needs_program

DATA = os.environ.get("LIVETIME_DATA")
NOTEBOOK = ROOT / "python" / "examples" / "filters.ipynb"

CONFIG = """\
format = 1
[run]
seed = 1
[[source]]
kind = "recorded"
events = "{events}"
rate = "5 kHz"
[[link]]
to = "trg0"
source_id = 0x700000
[[link]]
to = "ru0"
source_id = 0x510000
count = 4
[[trigger.path]]
name = "ALL"
bit = 0
l1 = [0]
cut = "auto"
[filter]
name = "accept_all"
"""

pytestmark = [
    pytest.mark.skipif(not DATA, reason="LIVETIME_DATA is not set"),
    needs_program,
]


@pytest.fixture(scope="module")
def take(tmp_path_factory):
    """Takes a run with every row of a file of recorded events; returns it and the rows."""

    def taken(name):
        # `make test` gives a path from the root of the repository.
        events = (ROOT / DATA / name).resolve()
        directory = tmp_path_factory.mktemp("recorded")
        config = directory / "config.toml"
        config.write_text(CONFIG.format(events=events))
        with events.open(newline="") as file:
            rows = list(csv.DictReader(file))
        options = ["--triggers", str(len(rows)), "--lossless", "--out", str(directory / "run")]
        command = [str(PROGRAM), "run", str(config), *options]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
        run = livetime.open(directory / "run")
        assert len(run) == len(rows)
        return run, rows

    return taken


@pytest.fixture(scope="module")
def dimuons(take):
    return take("Zmumu_Run2011A.csv")


@pytest.fixture(scope="module")
def four_leptons(take):
    return take("2e2mu_2012.csv")


def test_four_lepton_masses_are_the_published_ones(four_leptons, take):
    for run, rows in (four_leptons, take("4mu_2011.csv")):
        found = livetime.candidates.four_lepton(run.objects())
        published = np.array([float(row["M"]) for row in rows])
        assert (run.events()["trigger"] == np.arange(1, len(rows) + 1)).all()
        mass = ak.to_numpy(found.mass)
        assert (abs(mass / published - 1) < 1e-4).all()


def test_a_filter_finds_the_z_and_the_beam(dimuons):
    run, _ = dimuons

    @livetime.filter(batch=512)
    def z(events):
        pair = livetime.candidates.dimuon(events.objects)
        events.fill("mass", pair.mass, bins=60, range=(60, 120))
        return ak.to_numpy((pair.mass > 80) & (pair.mass < 100))

    replayed = livetime.replay(run, z)
    mass = replayed.histograms["mass"]
    assert abs(mass.axes[0].centers[np.argmax(mass.values())] - 91.2) < 1
    assert replayed.failed == []
    assert 0.6 < replayed.keep.mean() < 0.95
    pair = livetime.candidates.dimuon(run.objects()[replayed.keep])
    # Where the experiment's beam was, in cm.
    assert abs(np.nanmedian(pair.x) - 0.0746) < 0.002
    assert abs(np.nanmedian(pair.y) - 0.0422) < 0.002


def test_the_notebook(dimuons, four_leptons, tmp_path, monkeypatch):
    monkeypatch.setenv("LIVETIME_RUN", str(dimuons[0].file))
    monkeypatch.setenv("LIVETIME_RUN_FOUR", str(four_leptons[0].file))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    text = "".join(output.get("text", "") for output in outputs)
    [peak] = [line for line in text.splitlines() if line.startswith("peak at ")]
    assert abs(float(peak.split()[2]) - 91.2) < 1
    [four] = [line for line in text.splitlines() if "four-lepton candidates" in line]
    assert int(four.split()[0]) == len(four_leptons[0])
    assert "1 failed" in text
