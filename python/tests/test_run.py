"""A good run: every column against the truth that was written beside it."""

import gc
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import awkward as ak
import numpy as np
import pytest

import livetime

# The sample has flagged fragments on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::livetime.DataWarning")

OTHER_SOURCE = 0x0099_0000
HEADER_WORDS, TRAILER_WORDS = 9, 5


def test_records_of_the_run(sample, run):
    assert run.number == 42
    assert len(run) == 3000
    assert run.complete
    assert run.condition == "GOOD"
    assert run.damage == []
    assert run.begin["schema"] == "livetime.run-begin/1"
    assert run.begin["seed"] == "7"
    assert run.end["reason"] == "duration reached"
    assert run.end["events_stored"] == 3000
    assert run.summary["schema"] == "livetime.run/1"
    assert run.summary["counts"]["events_stored"] == 3000
    assert run.config["run"] == {"seed": 7}
    assert run.paths == {"dimuon": 3, "everything": 100}
    assert livetime.open(sample.path / "events.mcap").summary == run.summary
    assert livetime.open(str(sample.path)).number == 42


def test_inspection_agrees_with_what_is_known_on_opening(run):
    inspection = run.inspect()
    assert inspection["schema"] == "livetime.inspect/1"
    assert inspection["complete"] is True
    assert inspection["events"] == len(run)
    assert inspection["condition"] == run.condition


def test_events_are_the_truth(sample, run):
    truth, events = sample.truth, run.events()
    assert events.dtype == livetime.EVENT_DTYPE
    assert events["trigger"].tolist() == truth["trigger"]
    assert events["triggered_at_ns"].tolist() == truth["triggered_at_ns"]
    assert events["streams"].tolist() == truth["streams"]
    assert events["flagged"].tolist() == truth["flagged"]
    assert events["fragments"].tolist() == [len(sources) for sources in truth["sources"]]
    assert events["missing"].tolist() == [len(missing) for missing in truth["missing"]]
    assert events["incomplete"].tolist() == [bool(missing) for missing in truth["missing"]]
    assert set(events["filter_reason"].tolist()) == {1}
    words = ak.sum(run.fragments(words=False).word_count, axis=1)
    # Header, one table entry for each fragment, one word for each missing source, CRC.
    tables = 17 + 4 * events["fragments"] + events["missing"]
    assert events["bytes"].tolist() == (4 * (tables + ak.to_numpy(words))).tolist()


def test_decisions_by_mask_and_by_path(sample, run):
    masks = run.decisions()
    assert masks.dtype == np.uint64
    assert masks.tolist() == sample.truth["mask"]
    fired = run.fired()
    assert list(fired) == ["dimuon", "everything"]
    assert fired["everything"].all()
    assert fired["dimuon"].tolist() == [bool(low & 8) for low, _ in sample.truth["mask"]]


def test_missing_sources(sample, run):
    missing = run.missing()
    assert str(missing.type) == "3000 * var * uint32"
    assert missing.to_list() == sample.truth["missing"]


def test_fragments_with_their_words(sample, run):
    fragments = run.fragments()
    assert str(fragments.type) == (
        "3000 * var * {source: uint32, status: uint32, word_count: uint32, words: var * uint32}"
    )
    assert fragments.source.to_list() == sample.truth["sources"]
    assert ak.all(ak.num(fragments.words, axis=2) == fragments.word_count)
    assert ak.all(fragments.words[:, :, 0] == 0xEE1234EE)
    assert ak.all(fragments.words[:, :, 3] == fragments.source)
    flagged = ak.any(fragments.status != 0, axis=1)
    assert flagged.to_list() == sample.truth["flagged"]
    other = fragments[fragments.source == OTHER_SOURCE].words[:, 0]
    data = ak.to_numpy(other[:, HEADER_WORDS:-TRAILER_WORDS])
    trigger = np.asarray(sample.truth["trigger"])
    assert (data == trigger[:, np.newaxis] + np.arange(20)).all()


def test_fragments_of_some_sources_and_without_words(run):
    every = run.fragments()
    some = run.fragments(sources=[OTHER_SOURCE, 0x0042_0003])
    wanted = (every.source == OTHER_SOURCE) | (every.source == 0x0042_0003)
    assert ak.array_equal(some, every[wanted])
    assert ak.num(run.fragments(sources=[]), axis=1).to_list() == [0] * 3000
    bare = run.fragments(words=False)
    assert bare.fields == ["source", "status", "word_count"]
    assert ak.array_equal(bare, every[["source", "status", "word_count"]])


def test_too_many_bytes_at_once_are_refused(run):
    total = int(run.events()["bytes"].sum())
    assert len(run.fragments(bytes_max=total)) == 3000
    with pytest.raises(ValueError, match="more than bytes_max"):
        run.fragments(bytes_max=total - 1)
    assert len(run.fragments(0, 10, bytes_max=total - 1)) == 10


def test_objects_are_gathered_over_fragments_in_order(sample, run):
    objects = run.objects()
    assert str(objects.type) == (
        "3000 * var * {kind: uint16, pt: float32, eta: float32, phi: float32, "
        "charge: float32, dxy: float32}"
    )
    truth = sample.truth["objects"]
    assert ak.num(objects).to_list() == [len(event) for event in truth]
    for column, name in enumerate(objects.fields):
        flat = [row[column] for event in truth for row in event]
        assert ak.flatten(objects[name]).to_list() == np.asarray(flat, np.float32).tolist()
    assert ak.any(objects.kind == livetime.Kind.JET)


def test_unreadable_fragments_are_announced(sample, run):
    for method in (run.objects, run.dimuon_mass):
        with pytest.warns(livetime.DataWarning, match="fragments are flagged") as caught:
            method()
        assert str(caught[0].message).startswith(f"{sum(sample.truth['flagged'])} ")
        assert caught[0].filename == __file__


def test_dimuon_mass_is_the_generated_one(sample, run):
    mass = run.dimuon_mass()
    truth = np.asarray([np.nan if m is None else m for m in sample.truth["mass"]])
    assert mass.shape == (3000,)
    assert 0 < np.isnan(truth).sum() < 600
    assert (np.isnan(mass) == np.isnan(truth)).all()
    # The generator rounds pt, eta and phi to 32 bits.
    np.testing.assert_allclose(mass, truth, rtol=1e-5)


def test_ranges_are_slices(run):
    whole = run.events()
    ranges = [(0, 10), (5, None), (None, -2990), (-7, None), (2990, 9999), (9, 3), (0, 0)]
    for start, stop in ranges:
        assert run.events(start, stop).tolist() == whole[start:stop].tolist()
        assert len(run.objects(start, stop)) == len(whole[start:stop])
        assert len(run.fragments(start, stop)) == len(whole[start:stop])
        assert len(run.dimuon_mass(start, stop)) == len(whole[start:stop])


def test_iterating_gives_the_whole_in_parts(run):
    objects = list(run.iterate("objects", step=700))
    assert [len(part) for part in objects] == [700, 700, 700, 700, 200]
    assert ak.array_equal(ak.concatenate(objects), run.objects())
    fragments = list(run.iterate("fragments", step=2999, words=False))
    assert [len(part) for part in fragments] == [2999, 1]
    masses = np.concatenate(list(run.iterate("dimuon_mass", step=1000)))
    np.testing.assert_array_equal(masses, run.dimuon_mass())
    with pytest.raises(ValueError, match="expected one of"):
        next(run.iterate("event"))
    with pytest.raises(ValueError, match="step is 0"):
        next(run.iterate(step=0))


def test_iterating_ends_with_the_events_that_were_there(sample, tmp_path):
    file = tmp_path / "events.mcap"
    file.write_bytes(sample.data[: len(sample.data) // 2])
    growing = livetime.open(tmp_path)
    before = len(growing)
    parts = growing.iterate(step=before - 10)
    rows = [next(parts)]
    file.write_bytes(sample.data)
    growing.refresh()
    assert len(growing) > before
    rows += parts
    assert [len(part) for part in rows] == [before - 10, 10]
    assert np.concatenate(rows).tolist() == growing.events(0, before).tolist()


def test_no_python_object_for_each_event(run):
    run.objects(0, 10), run.fragments(0, 10)
    gc.collect()
    before = len(gc.get_objects())
    kept = run.events(), run.decisions(), run.objects(), run.fragments(), run.missing()
    gc.collect()
    assert len(gc.get_objects()) - before < 300, "3000 events were read"
    assert len(kept) == 5


def test_threads_may_share_a_run(run):
    expected = run.events()["bytes"].tolist()
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda start: run.events(start, start + 100), range(0, 3000, 100)))
    assert np.concatenate(parts)["bytes"].tolist() == expected


_SIGNALLED = """
import faulthandler, os, signal, sys, threading, livetime

# In place of a test that never ends.
faulthandler.dump_traceback_later(60, exit=True)
run = livetime.open(sys.argv[1])
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(len(run)))
done = threading.Event()

def send():
    while not done.is_set():
        os.kill(os.getpid(), signal.SIGUSR1)

sender = threading.Thread(target=send)
sender.start()
events = run.events()
done.set()
sender.join()
assert len(events) == len(run) and set(heard) <= {len(run)}, (len(events), heard[:3])
"""


def test_what_handles_a_signal_may_use_the_run(tmp_path, make_sample):
    # More events than are read between two looks at signals.
    make_sample(tmp_path / "run", 10_000)
    command = [sys.executable, "-c", _SIGNALLED, str(tmp_path / "run")]
    subprocess.run(command, check=True)


_INTERRUPTED = """
import faulthandler, itertools, os, signal, sys, threading, livetime

faulthandler.dump_traceback_later(60, exit=True)
run = livetime.open(sys.argv[1])
assert run.shortfall() is None

class Heard(Exception):
    pass

def hear(*_):
    raise Heard

signal.signal(signal.SIGUSR1, hear)
main = threading.main_thread().ident
there, begun = os.pipe()

def send():
    while os.read(there, 1) == b"x":
        signal.pthread_kill(main, signal.SIGUSR1)

sender = threading.Thread(target=send)
sender.start()
results = []
while len(results) != 1:
    results = []
    steps = itertools.chain(
        itertools.starmap(os.write, [(begun, b"x")]),
        itertools.starmap(run._native.shortfall, [()]),
    )
    try:
        # No line of Python, in which a signal would be heard, is between the two steps.
        results.extend(steps)
        while True:
            pass
    except Heard:
        pass
os.write(begun, b"e")
sender.join()
assert run.shortfall() is None
"""


def test_a_signal_ends_the_reading_of_a_whole_run(tmp_path, make_sample):
    make_sample(tmp_path / "run", 10_000)
    command = [sys.executable, "-c", _INTERRUPTED, str(tmp_path / "run")]
    subprocess.run(command, check=True)


def test_a_run_can_be_sent_to_another_process(run):
    again = pickle.loads(pickle.dumps(run))
    assert again.number == run.number
    assert again.events(0, 5).tolist() == run.events(0, 5).tolist()


def test_a_run_is_found_again_wherever_the_program_goes(sample, tmp_path, monkeypatch):
    for folder, name in [("here", "a"), ("there", "b")]:
        (tmp_path / folder / "r").mkdir(parents=True)
        (tmp_path / folder / "r" / "events.mcap").write_bytes(sample.data)
        summary = {"run": {"number": 42}, "of": name}
        (tmp_path / folder / "r" / "summary.json").write_text(json.dumps(summary))
    monkeypatch.chdir(tmp_path / "here")
    run = livetime.open("r")
    monkeypatch.chdir(tmp_path / "there")
    assert run.summary["of"] == "a"
    assert pickle.loads(pickle.dumps(run)).summary["of"] == "a"
    monkeypatch.chdir("/")
    run.refresh()
    assert len(run) == 3000


def test_sources_are_numbers_of_sources(run):
    for source in (-1, 2**33):
        with pytest.raises(ValueError, match=f"source is {source}, expected 0 to"):
            run.fragments(0, 1, sources=[source])


def test_text_for_people(sample, run):
    assert repr(run) == "<livetime.Run 000042: 3000 events, GOOD>"
    text = str(run)
    for line in [
        "run 000042",
        "  state       complete",
        "  ended       after 0.3 s: duration reached",
        "  triggers    12000 offered, 3000 refused (25 %)",
        "  events      2572 built, 428 incomplete",
        "  losses      none",
        "  conserved   yes",
        "  histograms  dimuon_mass, time_objects",
    ]:
        assert line in text.splitlines()
    assert "3000 events, triggers 3 to 9000" in text
    assert " TAI" in text
    assert str(sample.path / "events.mcap") in text
    html = run._repr_html_()
    assert "<caption>Livetime run 000042</caption>" in html
    assert html.count("<tr>") == len(text.splitlines()) - 1
