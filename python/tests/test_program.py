"""A run taken by the program itself: what Python reads is what the program counted."""

import os
import re
import subprocess
import sys

import numpy as np

import livetime
from program import PROGRAM, ROOT, needs_program


@needs_program
def test_a_run_of_the_program(tmp_path):
    config = ROOT / "examples" / "dimuon.toml"
    directory = tmp_path / "run"
    options = ["--triggers", "2000", "--lossless", "--out", str(directory)]
    command = [str(PROGRAM), "run", str(config), *options]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    run = livetime.open(directory)
    assert run.complete
    assert run.damage == []
    counts = run.summary["counts"]
    assert counts["triggers"] == 2000
    events = run.events()
    assert len(events) == counts["events_stored"] > 0
    assert events["incomplete"].sum() == 0
    assert (events["fragments"] == 8).all()
    # The decision after prescale: every stored event was accepted by some path.
    assert np.any(list(run.fired().values()), axis=0).all()
    mass = run.dimuon_mass()
    assert 85 < np.nanmedian(mass) < 97
    decided = run.histograms["decision_latency"]
    assert decided.total() == 2000
    assert decided.axes[0].scale == "log"


@needs_program
def test_the_paths_of_the_built_in_menu_are_those_of_the_run(tmp_path):
    config = (ROOT / "examples" / "dimuon.toml").read_text()
    tables = re.split(r"(?m)^(?=\[)", config)
    without = [table for table in tables if not table.startswith("[[trigger.path]]")]
    (tmp_path / "run.toml").write_text("".join(without))
    options = ["--triggers", "500", "--lossless", "--out", "run"]
    command = [str(PROGRAM), "run", "run.toml", *options]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    run = livetime.open(tmp_path / "run")
    assert "path" not in run.config.get("trigger", {})
    assert len(run.paths) > 1
    assert list(run.paths.values()) == sorted(run.paths.values())
    assert len(run) > 0
    assert np.any(list(run.fired().values()), axis=0).all()


@needs_program
def test_the_program_exports_through_the_package(tmp_path, sample, run):
    environment = {**os.environ, "LIVETIME_PYTHON": sys.executable}

    def export(*options):
        command = [str(PROGRAM), "export", str(sample.path), *options]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    done = export("--format", "parquet", "--out", "run.parquet")
    assert done.returncode == 0, done.stderr
    assert len(livetime.read_export(tmp_path / "run.parquet")) == len(run)
    again = export("--format", "parquet", "--out", "run.parquet")
    assert again.returncode == 1
    assert "is there already; ask for overwrite or another name" in again.stderr
    (tmp_path / "run.parquet").write_bytes(b"mine")
    asked = export("--format", "parquet", "--out", "run.parquet", "--overwrite")
    assert asked.returncode == 0, asked.stderr
    assert len(livetime.read_export(tmp_path / "run.parquet")) == len(run)
    stream = export("--format", "bytestream", "--out", "run.parquet", "--overwrite")
    assert stream.returncode == 2
    assert "`--overwrite` goes with the formats of the Python package" in stream.stderr
    assert export("--format", "root").returncode == 2
    environment["LIVETIME_PYTHON"] = "/bin/false"
    without = export("--format", "csv", "--out", "run.csv")
    assert without.returncode == 1
    assert "pip install './python[export]'" in without.stderr
