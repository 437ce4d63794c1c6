"""Python filters in runs of the program: what they judge, what they fail on, what they fill."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import numpy as np
import pytest

import livetime
from livetime import filter_worker
from livetime.filters import traceback_of
from program import PROGRAM, ROOT, needs_program

TRIGGERS = 4000

pytestmark = needs_program

#: Keeps even triggers; what it does on some events comes from the environment.
FILTER = '''
    import copy, json, os, sys, time
    import awkward as ak
    import numpy as np
    import livetime

    BAD = {int(trigger): how for trigger, how in json.loads(os.environ.get("BAD", "{}")).items()}

    class Mute(Exception):
        def __str__(self):
            raise OSError

    def misbehave(how, triggers):
        if how == "raise":
            raise KeyError("no such thing")
        if how == "half":
            raise ValueError("file \\udcff is bad")
        if how == "colour":
            raise ValueError("\x1b[31mred\x07 " + "x" * 10_000)
        if how == "mute":
            raise Mute
        if how == "abort":
            os.abort()
        if how == "hang":
            while True:
                pass
        if how == "leave":
            os._exit(7)
        if how == "exit":
            sys.exit("enough")
        if how == "leak":
            return np.ones(1 << 40)
        if how == "length":
            return np.zeros(len(triggers) + 1, bool)
        if how == "type":
            return triggers * 1.5
        if how == "tag":
            return {"nowhere": triggers > 0}
        if how == "print":
            print("x" * 1_000_000)
        if how == "fork":
            os.fork()

    @livetime.filter(batch=32, wait="2 ms")
    def select(events):
        triggers = events.events["trigger"]
        events.fill("number", triggers, bins=40, range=(0, 4000), label="trigger number")
        for trigger in triggers[np.isin(triggers, list(BAD))]:
            answer = misbehave(BAD[int(trigger)], triggers)
            if answer is not None:
                return answer
        return triggers % 2 == 0

    kept = []

    @livetime.filter
    def copies(events):
        # What is done to all words at once, and what is kept for later.
        fragments = events.fragments
        wide = ak.values_astype(fragments.words, "uint64")
        kept.append((ak.copy(fragments), copy.deepcopy(fragments), ak.concatenate([wide, wide])))
        for one, other, twice in kept:
            assert ak.all(one.words == other.words) and ak.all(one.words[:, 0, 0] == 0xEE1234EE)
            assert len(twice) == 2 * len(one)
        # Bins that each unit has of its own.
        events.fill("own", [1.0], bins=2, label=str(os.getpid()))
        return np.ones(len(events), bool)

    @livetime.filter(batch=32)
    def slow(events):
        # For longer than a drain may stand still.
        time.sleep(13)
        return np.ones(len(events), bool)

    @livetime.filter
    def everything(events):
        mass = livetime.candidates.dimuon(events.objects).mass
        words = events.fragments.words
        good = np.asarray(words[:, 0, 0] == 0xEE1234EE)
        assert good.all(), words[:, 0, 0]
        fired = np.any(list(events.fired.values()), axis=0)
        return {"fired": fired, "z": mass > 70, "rest": ~(mass > 70)}
'''

FAULTS = {
    "raise": "KeyError: 'no such thing'",
    "half": "ValueError: file \\udcff is bad",
    "colour": "ValueError: \\x1b[31mred\\x07 xxx",
    "mute": "Mute: its text raised OSError",
    "abort": "signal: 6 (SIGABRT)",
    "leave": "exit status: 7",
    "exit": "SystemExit: enough",
    "leak": "MemoryError",
    "length": "has shape",
    "type": "has type float64, expected bool",
    "tag": "tag 'nowhere' is no stream",
    "hang": "it worked for more than",
    "print": None,
    "fork": None,
}


def assert_plain(said):
    assert "\\x1b[31mred\\x07 xxx" in said
    assert "\x1b" not in said and "\x07" not in said
    assert max(len(line) for line in said.splitlines() if "red" in line) < 1_200


class Bench:
    """A folder with a filter and a configuration that uses it."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "my_filter.py").write_text(textwrap.dedent(FILTER))

    def configure(self, function="select", filter_keys="", file="my_filter.py"):
        text = (ROOT / "examples" / "dimuon.toml").read_text()
        before, rest = text.split("[filter]")
        store = rest[rest.index("[store]") :]
        table = f'[filter]\npython = "{file}:{function}"\nin_flight = 32\n{filter_keys}\n'
        # All events of the menu, for more of them in less time.
        before = before.replace("credits = 16", "credits = 64")
        before = before.replace("prescale = 1000", "prescale = 4")
        (self.folder / "run.toml").write_text(before + table + store)

    def command(self, *arguments, bad=None):
        environment = {**os.environ, "LIVETIME_PYTHON": sys.executable}
        environment["BAD"] = json.dumps(bad or {})
        return [str(PROGRAM), *arguments], environment

    def program(self, *arguments, bad=None):
        command, environment = self.command(*arguments, bad=bad)
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True
        )

    def take(self, name, *options, bad=None):
        options = ["--triggers", str(TRIGGERS), "--lossless", "--out", name, *options]
        done = self.program("run", "run.toml", *options, bad=bad)
        assert done.returncode == 0, done.stderr
        return self.open(name, done.stdout + done.stderr)

    def open(self, name, said=""):
        run = livetime.open(self.folder / name)
        details = {}
        for role, counts in run.summary["roles"].items():
            if role.startswith("fu"):
                for key, count in counts.items():
                    details[key] = details.get(key, 0) + count
        return SimpleNamespace(
            run=run, counts=run.summary["counts"], details=details, said=said, summary=run.summary
        )


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("filters"))
    keys = 'units = 2\ntime_limit = "5 s"\nretries = 1\nmemory_max = "1 GiB"'
    made.configure(filter_keys=keys)
    made.whole = made.take("whole")
    return made


def test_a_filter_judges_batches_and_its_histograms_are_with_the_run(bench):
    whole = bench.whole
    counts = whole.counts
    assert whole.summary["conserved"]
    built = counts["events_built"]
    assert counts["filter_accepted"] + counts["filter_rejected"] == built
    stored = whole.run.events()["trigger"]
    assert (stored % 2 == 0).all()
    assert len(stored) == counts["filter_accepted"] > 20
    assert (whole.run.events()["streams"] == 1).all()
    assert whole.details["filter.events_in_histograms"] == built
    assert whole.details["reason.kept.accepted"] == len(stored)
    filled = whole.run.histograms["number"]
    assert filled.total() == built
    assert filled.axes[0].label == "trigger number"
    assert whole.details["filter.batches"] < built, "several events at a time"
    assert "filter_failures" not in whole.summary


def test_a_replay_into_a_filter_of_batches_keeps_its_pace(bench):
    events, seconds = len(bench.whole.run.events()), 2
    start = time.monotonic()
    replayed = bench.program("replay", "whole", "--pace", f"{events / seconds} Hz", "--json")
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["events"] == events
    # The first is due at once, the last a gap before the end.
    assert time.monotonic() - start >= seconds * (events - 1) / events


@pytest.mark.parametrize("processes", [False, True])
def test_each_event_that_a_filter_fails_on_is_named_and_alone(bench, processes):
    stored = bench.whole.run.events()["trigger"]
    chosen = stored[:: max(1, len(stored) // len(FAULTS))][: len(FAULTS)].tolist()
    bad = dict(zip(map(str, chosen), FAULTS))
    name = f"bad{processes}"
    run = bench.take(name, *(["--processes"] if processes else []), bad=bad)
    assert run.summary["conserved"]
    failures = {failure["trigger"]: failure for failure in run.summary["filter_failures"]}
    expected = {trigger for trigger, how in bad.items() if FAULTS[how]}
    assert set(failures) == expected
    for trigger in expected:
        reasons = [death["reason"] for death in failures[trigger]["deaths"]]
        assert all(FAULTS[bad[trigger]] in reason for reason in reasons), reasons
        dies = bad[trigger] in ("abort", "leave", "hang")
        assert len(reasons) == (2 if dies else 1), "a dead filter is given the event once more"
        assert ("in select" in failures[trigger].get("traceback", "")) == (
            bad[trigger] in ("raise", "half", "colour", "mute", "exit", "leak")
        )
    # Said while the run goes on, once.
    assert run.said.count("warning: the filter failed on an event") == 1
    # What an exception says does nothing to the terminal, and is cut.
    assert_plain(run.said)
    # Those and no others are in the error stream; all the rest is as without the faults.
    events = run.run.events()
    failed = events["streams"] == 1 << 15
    assert {str(trigger) for trigger in events["trigger"][failed]} == expected
    assert events["trigger"].tolist() == stored.tolist()
    for key in ("events_built", "filter_accepted", "filter_rejected", "events_stored"):
        assert run.counts[key] == bench.whole.counts[key]
    details = run.details
    assert details["events_to_error_stream"] == len(expected)
    assert details["filter.failed_events"] == len(expected)
    assert details["filter.over_time"] >= 2
    assert details["filter.deaths"] >= 6
    assert details["filter.forks"] >= 1
    assert details["filter.printed_bytes"] >= 1_000_000
    # A failed event is in no histogram.
    filled = run.run.histograms["number"].total()
    assert filled == run.counts["events_built"] - len(expected)
    again = bench.program("replay", name, "--stream", "error", bad=bad)
    assert again.returncode == 1
    for trigger in expected:
        assert f"the filter fails on trigger {trigger}: " in again.stderr, again.stderr
    assert "SIGABRT" in again.stderr
    assert "in select" in again.stderr
    assert_plain(again.stderr)
    replayed = bench.program("replay", name, "--json", bad={})
    assert replayed.returncode == 0, replayed.stderr
    document = json.loads(replayed.stdout)
    assert (document["differing"], document["failed"]) == (0, 0)
    assert document["events"] == len(events) - len(expected)
    # One of its name in the working directory may be another by now.
    (bench.folder / name / "filter.py").unlink()
    without = bench.program("replay", name, bad={})
    assert without.returncode == 1
    assert "filter.py: it is not there" in without.stderr, without.stderr


@pytest.mark.parametrize("kind, reason", [("crash", FAULTS["abort"]), ("hang", FAULTS["hang"])])
def test_a_fault_of_the_command_line_hits_the_filter(bench, kind, reason):
    stored = bench.whole.run.events()["trigger"]
    event = int(stored[len(stored) // 2])
    run = bench.take(kind, "--processes", "--fault", f"{kind}:{event}")
    assert run.summary["conserved"]
    (failure,) = run.summary["filter_failures"]
    assert failure["trigger"] == str(event)
    assert len(failure["deaths"]) == 2, "once, and once more by the retry"
    assert all(reason in death["reason"] for death in failure["deaths"]), failure
    events = run.run.events()
    assert events["trigger"][events["streams"] == 1 << 15].tolist() == [event]
    assert events["trigger"].tolist() == stored.tolist(), "all others are as without the fault"


WRITES = """
    import awkward as ak
    import numpy as np

    def select(events):
        sealed = 0
        for column in (
            events.events,
            events.decisions,
            ak.to_numpy(ak.flatten(events.objects.pt)),
            ak.to_numpy(ak.flatten(events.fragments.source)),
        ):
            while isinstance(column, np.ndarray):
                try:
                    column.setflags(write=True)
                except ValueError:
                    sealed += 1
                    column = column.base
                else:
                    raise RuntimeError("a column was made writable")
        events.fill("sealed", [sealed >= 4], bins=2, range=(0, 2))
        return np.ones(len(events), bool)
"""


def test_columns_of_a_run_cannot_be_made_writable(tmp_path):
    bench = Bench(tmp_path)
    (tmp_path / "writes.py").write_text(textwrap.dedent(WRITES))
    bench.configure(file="writes.py")
    taken = bench.take("writes")
    assert taken.details["filter.failed_events"] == 0, taken.summary["filter_failures"]
    assert taken.run.histograms["sealed"].total() == taken.details["filter.requests"] > 0
    assert taken.run.condition == "GOOD", taken.said


DIES = """
    import os
    import pathlib
    import numpy as np

    DIED = pathlib.Path(__file__).with_name("died")

    def select(events):
        # Of a batch, and of none of its events.
        if len(events) > 1 and not DIED.exists():
            DIED.touch()
            os._exit(5)
        return np.ones(len(events), bool)
"""


def test_a_run_in_which_an_interpreter_died_says_so_though_no_event_failed(tmp_path):
    bench = Bench(tmp_path)
    (tmp_path / "dies.py").write_text(textwrap.dedent(DIES))
    bench.configure(file="dies.py")
    taken = bench.take("dies")
    assert "filter_failures" not in taken.summary
    assert taken.details["filter.deaths"] == 1
    assert len(taken.run) == taken.counts["events_built"]
    assert taken.run.condition == "DEGRADED"
    assert "deaths of the process of the Python filter: fu0 1;" in taken.said


def test_the_file_of_the_filter_is_kept_with_the_run(bench, tmp_path):
    kept = bench.folder / "whole" / "filter.py"
    assert kept.read_text() == (bench.folder / "my_filter.py").read_text()
    assert str(kept) in [str(bench.folder / file) for file in bench.whole.summary["files"]]


#: Looks for its table where it lies, and keeps all or nothing.
EDITED = """
    import pathlib
    import numpy as np
    import beside

    TABLE = pathlib.Path(__file__).with_name("table").read_text()

    def select(events):
        beside.fill(events, TABLE)
        return np.full(len(events), {keeps})
"""


def wait_until_steered(bench, log, *order):
    """Gives an order until the run takes it."""
    while True:
        done = bench.program("steer", "out", *order)
        if done.returncode == 0:
            return done.stdout.strip()
        early = ("no run takes orders", "cannot open")
        assert any(text in done.stderr for text in early), done.stderr + log.read_text()


def judged_of(bench, log):
    """Events of a run that were judged so far."""
    counts = json.loads(wait_until_steered(bench, log, "status", "--json"))["counts"]
    return counts["filter_accepted"] + counts["filter_rejected"]


def test_all_filter_units_have_the_filter_with_which_the_run_began(tmp_path):
    bench = Bench(tmp_path)
    (tmp_path / "beside.py").write_text(
        "def fill(events, table):\n"
        "    events.fill(table, [0.5] * len(events), bins=1, range=(0, 1))\n"
    )
    (tmp_path / "table").write_text("number")
    edited = tmp_path / "edited.py"
    edited.write_text(textwrap.dedent(EDITED).format(keeps=True))
    bench.configure(file="edited.py", filter_keys="units = 1\nunits_max = 2")
    command, environment = bench.command(
        "run", "run.toml", "--duration", "600s", "--out", "out", "--lossless", "--processes"
    )
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    log = tmp_path / "log"
    with open(log, "w") as talk:
        running = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=talk, stderr=talk
        )
        try:
            wait_until_steered(bench, log, "status")
            edited.write_text(textwrap.dedent(EDITED).format(keeps=False))
            assert wait_until_steered(bench, log, "filter", "add") == "fu1 has joined"
            assert wait_until_steered(bench, log, "filter", "remove", "fu0") == "fu0 is leaving"
            # The one that has joined is alone, and judges more than the other has in hand.
            enough = judged_of(bench, log) + 500
            while judged_of(bench, log) < enough:
                assert running.poll() is None, log.read_text()
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()
    assert running.returncode == 0, log.read_text()
    taken = bench.open("out", log.read_text())
    assert taken.summary["conserved"]
    assert taken.summary["roles"]["fu1"]["filter.batches"] > 0
    assert taken.counts["filter_rejected"] == 0
    assert taken.run.histograms["number"].total() == taken.counts["events_built"]
    kept = tmp_path / "out" / "filter.py"
    assert kept.read_text() == textwrap.dedent(EDITED).format(keeps=True)
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert "__pycache__" not in names, "a run directory has the files of the run alone"
    environment["PYTHONPATH"] = str(tmp_path)
    (tmp_path / "out" / "table").write_text("number")
    command = bench.command("replay", "out", "--json")[0]
    replayed = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["differing"] == 0


def test_a_kept_filter_has_the_name_of_its_file_and_shows_its_own_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    file, kept = tmp_path / "mine.py", tmp_path / "run.py"
    file.write_text("select = 3\n")
    # Annotations are texts in the package's own modules, and not in what these load.
    kept.write_bytes(
        "# coding: latin-1\nPLACE = __file__\n"
        "def select(events: int):\n    raise KeyError('no such thing: \xfc')\n".encode("latin-1")
    )
    chosen = filter_worker.load(str(file), "select", str(kept))
    module = sys.modules.pop("mine")
    assert module.PLACE == str(file)
    assert module.select.__annotations__ == {"events": int}
    assert chosen.name == "select"
    with pytest.raises(KeyError) as raised:
        module.select(0)
    shown = traceback_of(raised.value)
    assert f'File "{file}", line 4, in select' in shown
    assert "raise KeyError('no such thing: \xfc')" in shown


def test_the_memory_of_a_filter_has_no_limit_above_the_hard_one_of_the_program():
    program = """
import resource
from livetime.filter_worker import _limit_memory
hardest = 1 << 40
resource.setrlimit(resource.RLIMIT_AS, (hardest, hardest))
for more in (1 << 50, 1 << 30):
    _limit_memory(more)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    print(soft == hard, soft == hardest, more < soft <= hardest)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    # The limit of the system, and then that of the filter.
    assert said.stdout.split("\n")[:2] == ["True True False", "True False True"]


def test_fragments_can_be_copied_and_kept_and_bins_of_one_unit_are_named(tmp_path):
    bench = Bench(tmp_path)
    bench.configure("copies", filter_keys="units = 2")
    taken = bench.take("copies")
    assert taken.run.condition == "GOOD", taken.said
    assert taken.details["filter.deaths"] == taken.details["filter.failed_events"] == 0
    assert len(taken.run) == taken.counts["events_built"] > 100
    roles = taken.summary["roles"].items()
    batches = [count["filter.batches"] for role, count in roles if role.startswith("fu")]
    # Where one unit had all the work there is no other to disagree with.
    named = ["own"] if min(batches) > 0 else []
    assert taken.summary.get("histograms_not_summed", []) == named


def test_a_life_is_killed_only_for_the_request_that_it_works_on(monkeypatch):
    ready, there = os.pipe()
    os.write(there, b"x")
    # Of the life before, of a request that is answered, and of the one in work.
    orders = [["kill", 1, 9], ["kill", 2, 6], ["kill", 2, 7]]

    class Control:
        def fileno(self):
            return ready

        def recv(self, size):
            order = orders.pop(0)
            if not orders:
                os.read(ready, 1)
            return json.dumps(order).encode()

    left, kill = [], filter_worker._kill

    def note(pid):
        left.append(len(orders))
        kill(pid)

    monkeypatch.setattr(filter_worker, "_kill", note)
    supervisor = object.__new__(filter_worker._Supervisor)
    supervisor._control = Control()
    life = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    how = supervisor._watch(life.pid, 2, np.array([7], np.uint64))
    assert how == "signal: 9 (SIGKILL)"
    # By the order, and once more what it has forked.
    assert set(left) == {0}
    life.stdin.close()
    life.wait()
    os.close(ready)
    os.close(there)


#: What a file may do to the whole process, and numbers as numpy has them.
OWN_WAYS = """
    import socket
    import numpy as np
    import livetime

    socket.setdefaulttimeout(1e-6)

    @livetime.filter(batch=np.int64(32))
    def select(events):
        return np.ones(len(events), bool)
"""


def test_a_file_with_ways_of_its_own_costs_no_life_and_no_run(tmp_path):
    bench = Bench(tmp_path)
    (tmp_path / "my_filter.py").write_text(textwrap.dedent(OWN_WAYS))
    bench.configure()
    taken = bench.take("out")
    assert taken.run.condition == "GOOD", taken.said
    assert taken.details["filter.deaths"] == 0
    assert len(taken.run) == taken.counts["events_built"] > 0


def test_columns_and_tags_of_a_filter_unit(tmp_path):
    bench = Bench(tmp_path)
    bench.configure("everything", 'streams = ["z", "rest", "fired"]')
    taken = bench.take("out", "--processes")
    assert "filter_failures" not in taken.summary
    events = taken.run.events()
    assert len(events) == taken.counts["events_built"], "each event has a tag"
    mass = taken.run.dimuon_mass()
    streams = events["streams"]
    assert (streams & 4 == 4).all()
    clear = np.isnan(mass) | (abs(mass - 70) > 0.1)
    assert ((streams & 1 == 1) == (mass > 70))[clear].all()
    assert ((streams & 1) + (streams >> 1 & 1) == 1).all()


@pytest.mark.parametrize("processes", [False, True])
def test_events_that_come_over_streams_are_judged_alike(bench, processes):
    over_tcp = Bench(bench.folder / f"tcp{processes}")
    over_tcp.configure(filter_keys='units = 2\ntransport = "tcp"\nmemory_max = "1 GiB"')
    stored = bench.whole.run.events()["trigger"]
    # The words of fragments lie in pages of the unit's own.
    events = [int(stored[len(stored) // 3]), int(stored[2 * len(stored) // 3])]
    bad = dict(zip(map(str, events), ("raise", "abort")))
    options = ["--processes"] if processes else ["--fault", "cut:fu0@1000triggers"]
    run = over_tcp.take("run", *options, bad=bad)
    assert run.summary["conserved"]
    assert run.run.events()["trigger"].tolist() == stored.tolist()
    failed = run.run.events()["streams"] == 1 << 15
    assert run.run.events()["trigger"][failed].tolist() == events
    for key in ("events_built", "filter_accepted", "filter_rejected", "events_stored"):
        assert run.counts[key] == bench.whole.counts[key]
    filled = run.run.histograms["number"].total()
    assert filled == run.counts["events_built"] - len(events)
    assert run.details["network_payload_bytes_received"] > 0
    assert ("another took its place" in run.said) == (not processes)


def test_columns_of_events_that_come_over_streams(tmp_path):
    bench = Bench(tmp_path)
    bench.configure("everything", 'streams = ["z", "rest", "fired"]\ntransport = "tcp"')
    taken = bench.take("out")
    assert "filter_failures" not in taken.summary
    assert len(taken.run) == taken.counts["events_built"], "each event has a tag"
    mass = taken.run.dimuon_mass()
    clear = np.isnan(mass) | (abs(mass - 70) > 0.1)
    assert (taken.run.tagged()["z"] == (mass > 70))[clear].all()
    assert taken.run.tagged()["fired"].all()


@pytest.mark.parametrize(
    ("file", "function", "expected"),
    [
        ("missing.py", "select", "there is no such file"),
        ("my_filter.py", "selct", "there is no 'selct' in it; its filters are select, copies, slow, everything"),
        ("broken.py", "select", "ZeroDivisionError"),
        ("leaving.py", "select", "SystemExit"),
        ("half.py", "select", "no file \\udcff"),
        ("colour.py", "select", "no \\x1b[31mred"),
        ("number.py", "select", "number.py: 'select' is a int, expected a function"),
        # An error of the file itself has the line on which it is.
        ("sum.py", "select", "limit = None + 1"),
        ("name.py", "select", "line 2, in <module>"),
    ],
)
def test_a_filter_that_does_not_load_starts_no_run(tmp_path, file, function, expected):
    bench = Bench(tmp_path)
    (tmp_path / "broken.py").write_text("select = 1 / 0\n")
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(3)\n")
    (tmp_path / "half.py").write_text("raise RuntimeError('no file \\udcff')\n")
    (tmp_path / "colour.py").write_text("raise RuntimeError('no \\x1b[31mred')\n")
    (tmp_path / "number.py").write_text("select = 3\n")
    (tmp_path / "sum.py").write_text("limit = None + 1\n")
    (tmp_path / "name.py").write_text("import numpy as np\ntable = np.lod('table.npy')\n")
    bench.configure(function, file=file)
    refused = bench.program("run", "run.toml", "--triggers", "10", "--out", "out")
    assert refused.returncode == 1
    if file == "missing.py":
        assert "error[C0109]" in refused.stderr and "missing.py" in refused.stderr
    else:
        assert expected in refused.stderr, refused.stderr
        assert "fu0 has no working Python filter" in refused.stderr


def test_histograms_are_there_while_the_run_goes_on(bench):
    command, environment = bench.command("run", "run.toml", "--duration", "600s", "--out", "long")
    with open(bench.folder / "long.log", "w") as log:
        running = subprocess.Popen(
            command, cwd=bench.folder, env=environment, stdout=log, stderr=log
        )
        try:
            file = bench.folder / "long" / "histograms.json"
            while not file.is_file():
                assert running.poll() is None, (bench.folder / "long.log").read_text()
                time.sleep(0.05)
            growing = livetime.open(bench.folder / "long")
            assert growing.histograms["number"].axes[0].label == "trigger number"
            assert not growing.complete
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()
    run = bench.open("long")
    assert run.summary["conserved"]
    assert run.run.histograms["number"].total() == run.counts["events_built"]
    assert not file.exists(), "they are in the run file now"


def test_a_drain_waits_for_a_filter_that_is_at_work_within_its_limit(tmp_path):
    bench = Bench(tmp_path)
    bench.configure("slow", 'time_limit = "60 s"')
    config = tmp_path / "run.toml"
    config.write_text(config.read_text().replace("[store]\n", '[store]\nfull_wait = "0 s"\n'))
    done = bench.program("run", "run.toml", "--triggers", "200", "--seed", "11", "--out", "slow")
    assert done.returncode == 0, done.stderr
    taken = bench.open("slow", done.stderr)
    assert taken.run.condition == "GOOD", taken.said
    assert 0 < len(taken.run) == taken.counts["events_built"]
