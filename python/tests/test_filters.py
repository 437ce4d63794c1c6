"""Filters over run files: verdicts, tags, histograms, and the events that a filter fails on."""

import pickle
import typing

import awkward as ak
import numpy as np
import pytest

import livetime
from livetime import filters

# The sample has flagged fragments on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::livetime.DataWarning")


def module_function(events):
    return np.ones(len(events), bool)


@livetime.filter
def heavy(events):
    mass = ak.to_numpy(livetime.candidates.dimuon(events.objects).mass)
    events.fill("mass", mass, bins=60, range=(60, 120), label="mass [GeV]")
    return mass > 91


def test_a_mask_keeps_what_it_says_whatever_the_batch(run):
    mass = run.dimuon_mass()
    for batch in (1000, 256, 7):
        replayed = livetime.replay(run, heavy, batch=batch)
        assert (replayed.keep == (mass > 91)).all()
        assert replayed.events == 3000
        assert replayed.dropped == 3000 - replayed.keep.sum()
        assert replayed.failed == [] and replayed.tags == {}
        filled = replayed.histograms["mass"]
        expected, _ = np.histogram(mass[~np.isnan(mass)], 60, (60, 120))
        # The mass of the candidate counts the muons' own, the other one does not: a few fall over
        # the edge of a bin.
        assert abs(filled.values() - expected).sum() <= 20
        assert filled.total() == (~np.isnan(mass)).sum()
        assert filled.axes[0].label == "mass [GeV]"


def test_tags_name_streams_and_keep(run):
    def streams(events):
        odd = events.events["trigger"] % 2 == 1
        return {"odd": odd, "every": np.zeros(len(events), bool), "fired": events.fired["dimuon"]}

    replayed = livetime.replay(run, streams)
    odd = run.events()["trigger"] % 2 == 1
    assert (replayed.tags["odd"] == odd).all()
    assert not replayed.tags["every"].any()
    assert (replayed.keep == (odd | run.fired()["dimuon"])).all()
    assert f"odd: {odd.sum()}" in str(replayed)


def test_nobody_has_judged_the_events_that_a_filter_finds(run):
    assert run.events()["filter_reason"].any()

    def unjudged(events):
        return (events.events["streams"] == 0) & (events.events["filter_reason"] == 0)

    assert livetime.replay(run, unjudged).keep.all()


def test_part_of_a_run(run):
    everything = livetime.filter(lambda events: np.ones(len(events), bool), name="everything")
    replayed = livetime.replay(run, everything, start=100, stop=-50)
    assert (replayed.start, replayed.events) == (100, 2850)
    assert livetime.replay(run, everything, start=5000).events == 0


def test_failing_events_are_found_and_kept_apart(run):
    triggers = run.events()["trigger"]
    bad = {int(triggers[row]) for row in (0, 1000, 1001, 2999)}

    @livetime.filter(batch=500)
    def fragile(events):
        events.fill("seen", np.ones(len(events)), bins=2, range=(0, 2))
        for trigger in events.events["trigger"]:
            if int(trigger) in bad:
                raise RuntimeError(f"cannot unpack {trigger}\nsecond line")
        return np.ones(len(events), bool)

    replayed = livetime.replay(run, fragile)
    assert [event.row for event in replayed.failed] == [0, 1000, 1001, 2999]
    assert {event.trigger for event in replayed.failed} == bad
    first = replayed.failed[0]
    assert first.reason == f"RuntimeError: cannot unpack {first.trigger}"
    assert "in fragile" in first.traceback and "second line" in first.traceback
    good = np.ones(3000, bool)
    good[[0, 1000, 1001, 2999]] = False
    assert (replayed.keep == good).all()
    assert replayed.dropped == 0
    # A batch that failed has filled nothing: every good event is there once.
    assert replayed.histograms["seen"].total() == 2996
    assert "4 failed" in str(replayed)


def test_time_in_a_filter_counts_once_and_a_failure_stands_for_itself(run, monkeypatch):
    now = [0]
    monkeypatch.setattr(filters.time, "perf_counter", lambda: now[0])
    bad = int(run.events()["trigger"][100])

    @livetime.filter(batch=256)
    def slow(events):
        now[0] += 1
        if bad in events.events["trigger"]:
            raise ValueError(f"{len(events)} events")
        return np.ones(len(events), bool)

    replayed = livetime.replay(run, slow, stop=512)
    # Two batches, and two halves of each of 256, 128, .. 2 events.
    assert replayed.filter_seconds == replayed.seconds == 2 + 2 * 8
    [failed] = replayed.failed
    assert failed.reason == "ValueError: 1 events"
    assert "During handling" not in failed.traceback and "256 events" not in failed.traceback


def test_only_an_exception_is_an_event_failure(run):
    def interrupted(events):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        livetime.replay(run, interrupted)


def test_any_other_exception_costs_one_event(run):
    class Odd(BaseException):
        pass

    def odd(events):
        if len(events) > 1 or events.events["trigger"][0] == run.events()["trigger"][3]:
            raise Odd("\x1b[31mred\x07 \u202e" + "x" * 10_000)
        return np.ones(len(events), bool)

    replayed = livetime.replay(run, odd, stop=8)
    [failed] = replayed.failed
    assert failed.row == 3 and replayed.keep.sum() == 7
    # What it says does nothing to a terminal.
    assert failed.reason.startswith("Odd: \\x1b[31mred\\x07 \\u202exxx")
    assert len(failed.reason) < 510 and failed.reason.endswith("x ..")
    assert failed.reason in str(replayed)
    assert max(map(len, failed.traceback.split("\n"))) < 1010
    assert "\x1b" not in failed.traceback and "in odd" in failed.traceback


def test_columns_can_only_be_read_as_in_a_run(run):
    writers = [
        lambda events: events.events,
        lambda events: events.decisions,
        lambda events: ak.to_numpy(ak.flatten(events.objects.pt)),
        lambda events: ak.to_numpy(ak.flatten(events.fragments.source)),
    ]
    for column in writers:

        def write(events):
            column(events)[:1] = 0
            return np.ones(len(events), bool)

        [failed] = livetime.replay(run, write, batch=1, start=5, stop=6).failed
        assert "read-only" in failed.reason

        def unseal(events):
            column(events).setflags(write=True)
            return np.ones(len(events), bool)

        [failed] = livetime.replay(run, unseal, batch=1, start=5, stop=6).failed
        assert "cannot set WRITEABLE flag" in failed.reason
    assert (run.events()["trigger"] > 0).all()


def test_a_filter_of_a_module_goes_to_other_processes(run):
    assert pickle.loads(pickle.dumps(heavy)) is heavy
    # One beside its function comes as another with the same function.
    made = livetime.filter(module_function, batch=16)
    again = pickle.loads(pickle.dumps(made))
    assert again.function is module_function
    assert (again.name, again.batch, again.wait_ms) == ("module_function", 16, 5.0)


def test_hints_of_types_can_be_asked_for():
    for function in (livetime.replay, livetime.filter, livetime.read_export, livetime.export):
        assert "return" in typing.get_type_hints(function)
    for function in (livetime.candidates.dimuon, livetime.EventBatch.object_columns):
        assert "return" in typing.get_type_hints(function)
    for function in (livetime.Run.objects, livetime.Run.fragments, livetime.Run.missing):
        assert "return" in typing.get_type_hints(function)
    assert typing.get_type_hints(livetime.EventBatch.objects.func)["return"] is ak.Array


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda n: np.ones(n + 1, bool), r"its result has shape \(257,\) for 256 events"),
        (lambda n: np.ones(n), "its result has type float64, expected bool"),
        (lambda n: None, "its result has type object, expected bool"),
        (lambda n: True, r"its result has shape \(\) for 256 events"),
        (lambda n: {"z": np.ones((n, 2), bool)}, r"tag 'z' has shape \(256, 2\)"),
        (lambda n: ak.Array([[True], []] * (n // 2)), "no array; expected 256 bools"),
    ],
)
def test_what_is_no_verdict_is_refused(run, result, message):
    wrong = livetime.filter(lambda events: result(len(events)), name="wrong")
    with pytest.raises(livetime.FilterError, match=message) as error:
        livetime.replay(run, wrong)
    assert "filter 'wrong'" in str(error.value)


def test_a_histogram_has_one_axis(run):
    def changing(events):
        events.fill("x", [1.0], bins=len(events))
        return np.ones(len(events), bool)

    failed = livetime.replay(run, changing, batch=2999).failed
    assert [event.row for event in failed] == [2999]
    assert "histogram 'x' has 2999 bins" in failed[0].reason

    def empty(events):
        events.fill("x", [1.0], range=(1, 1))

    reason = livetime.replay(run, empty, stop=1).failed[0].reason
    assert "expected 1 to 4000 bins from low to high" in reason


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("a\x1b[31m", {}, "expected a text without control characters"),
        ("a\nb", {}, "expected a text without control characters"),
        ("x", {"label": 5}, "label of histogram 'x' is 5, expected a text"),
        ("x", {"range": (0, 1, 2)}, "expected a whole number and two numbers"),
        (5, {}, "name of a histogram is 5, expected a text"),
        ("\ud800", {}, "expected a text"),
        ("x", {"label": "m \udcff"}, "label of histogram 'x' is 'm \\udcff', expected a text"),
        ("decision_latency", {}, "is one of the run itself"),
        ("x", {"bins": 10.0}, "histogram 'x' has bins 10.0 and range"),
        ("x" * 201, {}, "name of a histogram has 201 characters"),
        ("x", {"label": "l" * 300_000}, "label of a histogram has 300000 characters"),
        ("x", {"range": (0, 10**400)}, "expected a whole number and two numbers"),
        ("x", {"bins": 4001}, "expected 1 to 4000 bins"),
        ("x", {"range": (0, float("inf"))}, "has 100 bins from 0 to inf"),
        ("x", {"range": (-1e308, 1e308)}, "expected 1 to 4000 bins from low to high"),
        ("x", {"range": (0, 1e-310)}, "has 100 bins from 0 to 1e-310 (x), expected 1 to 4000 bins"),
        ("x", {"range": (0, 5e-324), "bins": 1}, "not too narrow to count in"),
        ("x", {"range": ("a", 1)}, "and two numbers"),
    ],
)
def test_a_histogram_that_cannot_be_is_refused(run, name, options, message):
    def wrong(events):
        events.fill(name, [0.5], **options)
        return np.ones(len(events), bool)

    done = livetime.replay(run, wrong, stop=1)
    assert message in done.failed[0].reason
    assert done.histograms == {}


@pytest.mark.parametrize("values", [[1 + 2j], np.array([1j]), ak.Array([1j])])
def test_complex_values_have_no_place_in_a_histogram(run, values):
    def wrong(events):
        events.fill("x", values)
        return np.ones(len(events), bool)

    done = livetime.replay(run, wrong, stop=1)
    assert "histogram 'x' has complex values, expected real numbers" in done.failed[0].reason


def test_a_filter_has_so_many_histograms_and_no_more(run):
    def many(events):
        for nth in range(257):
            events.fill(f"h{nth}", [0.5])
        return np.ones(len(events), bool)

    reason = livetime.replay(run, many, stop=1).failed[0].reason
    assert "histogram 'h256' is one more than 256" in reason


def test_numbers_of_numpy_are_numbers(run):
    def fill(events):
        limits = (np.float32(0), np.int32(10))
        events.fill("pt", [3.0], bins=np.int64(10), range=limits)
        return np.ones(len(events), bool)

    filled = livetime.replay(run, fill, stop=1).histograms["pt"]
    assert (len(filled.axes[0]), filled.total()) == (10, 1)


def test_what_is_masked_is_no_value(run):
    def masked(events):
        values = np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0])
        events.fill("n", values, bins=4, range=(0, 4))
        return np.ones(len(events), bool)

    assert livetime.replay(run, masked, stop=1).histograms["n"].values().tolist() == [0, 1, 0, 1]
    for lacking in [
        lambda n: np.ma.masked_array(np.ones(n, bool), mask=np.ones(n, bool)),
        lambda n: ak.Array([None] + [True] * (n - 1)),
    ]:
        wrong = livetime.filter(lambda events: lacking(len(events)), name="wrong")
        with pytest.raises(livetime.FilterError, match="its result has no value for some events"):
            livetime.replay(run, wrong)


def test_a_histogram_has_one_axis_within_a_batch(run):
    @livetime.filter
    def twice(events):
        events.fill("m", [0.5], bins=10)
        events.fill("m", [3.0], bins=20, range=(0, 5))
        return np.ones(len(events), bool)

    done = livetime.replay(run, twice, stop=3)
    assert [event.row for event in done.failed] == [0, 1, 2]
    assert "has 10 bins from 0 to 1 (m), not 20 bins from 0 to 5" in done.failed[0].reason
    assert done.histograms == {}


def test_values_outside_are_in_the_flow_bins(run):
    def fill(events):
        events.fill("x", [-1.0, 0.0, 0.5, 1.0, 1e300, np.inf, -np.inf, np.nan], bins=2)
        return np.ones(len(events), bool)

    filled = livetime.replay(run, fill, stop=1).histograms["x"]
    assert filled.values(flow=True).tolist() == [2, 1, 1, 3]
    assert filled.to_hist().sum(flow=True) == 7


def test_options_of_a_filter():
    made = livetime.filter(batch=16, wait="2 s", name="slow")(lambda events: None)
    assert (made.batch, made.wait_ms, made.name) == (16, 2000.0, "slow")
    assert livetime.filter(wait=0.5)(len).wait_ms == 0.5
    assert heavy.name == "heavy" and heavy.batch == 256
    # What is told to the filter unit is a number of Python's own.
    assert type(livetime.filter(batch=np.int64(256))(len).batch) is int
    for batch in (True, np.True_, 2.0, "2"):
        with pytest.raises(TypeError):
            livetime.filter(batch=batch)
    for options in ({"batch": 0}, {"batch": 65_537}, {"wait": "5 minutes"}, {"wait": -1}):
        with pytest.raises(ValueError, match="expected"):
            livetime.filter(**options)
    for given, options in (((5,), {}), ((), {"name": 5})):
        with pytest.raises(TypeError, match="function|text"):
            livetime.filter(*given, **options)
