"""The Level-3 menu of a run in Python: what was configured, what was counted, what is in the file."""

import subprocess

import pytest

import livetime
from livetime.filter_menu import filter_menu
from program import PROGRAM, ROOT, needs_program

MENU = """[filter]
name = "menu"
streams = ["z", "sample"]

[[filter.path]]
name = "Z"
cut = "dimuon"
mass_min = "70 GeV"
streams = ["z"]

[[filter.path]]
name = "SAMPLE"
cut = "all"
prescale = 10
streams = ["sample", "z"]

"""


@needs_program
def test_a_menu_has_the_counts_of_its_run(tmp_path):
    text = (ROOT / "examples" / "dimuon.toml").read_text()
    before, rest = text.split("[filter]")
    (tmp_path / "run.toml").write_text(before + MENU + rest[rest.index("[store]") :])
    command = [str(PROGRAM), "run", "run.toml", "--triggers", "8000", "--lossless", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = livetime.open(tmp_path / "run")
    menu = run.filter_menu
    assert list(menu.paths) == ["Z", "SAMPLE"], "in the order of the configuration"
    z, sample = menu.paths.values()
    assert (z.cut, z.limits, z.prescale, z.streams) == ("dimuon", {"mass_min": "70 GeV"}, 1, ("z",))
    assert z.passed == z.fired > 0
    assert sample.prescale == 10
    assert sample.passed == run.summary["counts"]["events_built"] > sample.fired > 0
    assert sample.fired_hz > 0
    # The streams of the file are those that were counted.
    tagged = run.tagged()
    assert {name: stream.bit for name, stream in menu.streams.items()} == {"z": 0, "sample": 1}
    for name, stream in menu.streams.items():
        assert stream.events == tagged[name].sum() > 0
    assert menu.streams["sample"].events == sample.fired
    assert menu.stage_ns["reconstruct"] > 0
    assert (menu.event_ns_max > 0, menu.over_time, menu.lacking) == (True, 0, ())
    assert f"path Z (dimuon to z): {z.passed} passed" in str(menu)
    # Without the document the record of the file has the same.
    (tmp_path / "run" / "summary.json").unlink()
    of_record = livetime.open(tmp_path / "run").filter_menu
    for name, path in menu.paths.items():
        other = of_record.paths[name]
        assert (other.passed, other.fired, other.limits) == (path.passed, path.fired, path.limits)
    assert of_record.streams["z"].events == menu.streams["z"].events
    assert of_record.stage_ns == pytest.approx(menu.stage_ns)


@needs_program
def test_a_menu_says_whose_share_its_counts_lack(tmp_path):
    text = (ROOT / "examples" / "dimuon.toml").read_text()
    before, rest = text.split("[filter]")
    menu = MENU.replace("[filter]\n", "[filter]\nunits = 2\n")
    (tmp_path / "run.toml").write_text(before + menu + rest[rest.index("[store]") :])
    command = [str(PROGRAM), "run", "run.toml", "--triggers", "8000", "--lossless", "--out", "run"]
    command += ["--processes", "--fault", "kill:fu0@4000triggers"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = livetime.open(tmp_path / "run")
    of_summary = run.filter_menu
    assert of_summary.lacking == ("fu0~1",)
    assert "the counts lack the share of fu0~1, which died" in str(of_summary)
    assert of_summary.streams["z"].events <= run.tagged()["z"].sum()
    assert run.end["menu_lacking"] == ["fu0~1"]
    (tmp_path / "run" / "summary.json").unlink()
    assert livetime.open(tmp_path / "run").filter_menu.lacking == ("fu0~1",)


@needs_program
def test_a_simulated_menu_has_counts_and_no_times(tmp_path):
    text = (ROOT / "examples" / "dimuon.toml").read_text()
    before, rest = text.split("[filter]")
    (tmp_path / "run.toml").write_text(before + MENU + rest[rest.index("[store]") :])
    command = [str(PROGRAM), "sim", "run.toml", "--triggers", "4000", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = livetime.open(tmp_path / "run")
    menu = run.filter_menu
    for name, stream in menu.streams.items():
        assert stream.events == run.tagged()[name].sum() > 0
    assert menu.paths["SAMPLE"].passed == run.summary["counts"]["events_built"]
    assert (menu.stage_ns, menu.event_ns_max, menu.over_time) == ({}, 0, 0)
    (tmp_path / "run" / "summary.json").unlink()
    of_record = livetime.open(tmp_path / "run").filter_menu
    assert of_record.paths["SAMPLE"].passed == menu.paths["SAMPLE"].passed


def test_a_menu_without_counts_is_there_and_other_filters_have_none(run):
    assert run.filter_menu is None
    assert run.tagged() == {}
    table = {"name": "menu", "streams": ["a"], "path": [{"name": "A", "cut": "all"}]}
    menu = filter_menu(table, None)
    assert (menu.paths["A"].passed, menu.streams["a"].events, menu.over_time) == (None, None, None)
    assert str(menu) == "1 paths, 1 streams\n  path A (all to )\n  stream a"
    late = filter_menu(table, {"over_time": 3})
    assert str(late).endswith("\n  3 events over their time, in the error stream")
