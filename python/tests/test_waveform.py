"""Designed waveforms: the stated bound holds, arrays and bytes agree, mistakes are named."""

import numpy as np
import pytest

import livetime
from livetime.waveform import FULL_SCALE, design, to_block

POINTS = [(0, 0.0), (0.02, 0.5), (0.06, 0.5), (0.08, 0.0)]


def test_points_are_followed_within_the_bound():
    ramp = design(POINTS, tolerance=2e-5)
    assert 0 < ramp.error <= 2e-5
    assert ramp.duration == pytest.approx(0.08)
    times = np.random.default_rng(1).uniform(0, 0.0799, 2000)
    wanted = np.interp(times, *np.array(POINTS).T)
    assert np.abs(ramp.output(times) - wanted).max() <= ramp.error + 1e-9
    assert len(ramp.sets) == len(ramp.data) // 12 > 2


def test_sets_are_the_hardware_arithmetic():
    ramp = design("0.3 * sin(2 * pi * 10 * t)", 0.02, tolerance=1e-5)
    first = ramp.sets[0]
    period = [62500, 31250, 15625, 8000, 4000, 2000, 1000, 500][first["frequency"]]
    for n in (0, 1, 100, 249):
        value = int(first["c"]) << 32
        value += n * (int(first["b"]) << int(first["shift_b"]))
        value += n * (n - 1) // 2 * (int(first["a"]) << int(first["shift_a"]))
        assert ramp.output(n * period * 1e-9) == (value >> 32) / FULL_SCALE
    assert [int(x) for x in ramp.to_lines().split("\n")[0].split()][4] == first["c"]


def test_functions_and_formulas_give_the_same_curve():
    formula = design("0.5 * (1 - cos(pi * t / 0.05)) / 2", 0.05, tolerance=1e-5)
    function = design(lambda t: 0.25 * (1 - np.cos(np.pi * t / 0.05)), 0.05, tolerance=1e-5)
    times = np.linspace(0, 0.0499, 500)
    assert np.abs(formula.output(times) - function.output(times)).max() <= 2.1e-5


def test_blocks_hold_all_channels():
    ramp = design(POINTS, tolerance=2e-5)
    block = to_block([ramp] * 12)
    words = np.frombuffer(block, "<u4")
    assert words[0] == 0x4C544601 and words[1] == 12
    assert (words[2:14] == len(ramp.sets)).all()
    assert len(block) == 4 * 14 + 12 * len(ramp.data)


def test_mistakes_are_named():
    with pytest.raises(livetime.LivetimeError, match="off by"):
        design([(0, 0), (0.00101, 1), (0.002, 0)], tolerance=1e-6)
    allowed = "allowed is 2.147e-3; raise the tolerance"
    with pytest.raises(livetime.LivetimeError, match=allowed):
        design([(0, 0), (0.00101, 1), (0.002, 0)], tolerance=1e-12)
    for frequency in (-1, 8, 300):
        with pytest.raises(ValueError, match="expected 0 to 7"):
            design("t", 0.1, frequency=frequency)
    with pytest.raises(livetime.LivetimeError, match="character"):
        design("sin(", 1.0)
    with pytest.raises(livetime.LivetimeError, match="point 1"):
        design([(1, 0), (0, 1)])
    with pytest.raises(TypeError):
        design("t")


def test_a_function_is_not_asked_for_what_no_waveform_can_be():
    def never(times):
        raise AssertionError("it was called")

    for duration in (1e12, 3600.001, 0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(livetime.LivetimeError, match="more than 0 s and at most 3600 s"):
            design(never, duration)


def test_plot_shows_curve_and_bound():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = design("0.1 + t", 0.01).plot()
    assert "ppm" in axes.get_title() and len(axes.lines) == 2


def test_time_begins_with_the_waveform():
    with pytest.raises(ValueError, match="0 or more"):
        design(POINTS, tolerance=2e-5).output([0.01, -1e-9])
    with pytest.raises(livetime.LivetimeError, match="point 0 is at -1 s"):
        design([(-1, 0.0), (1, 0.5)])
