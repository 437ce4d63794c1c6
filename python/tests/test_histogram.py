"""Histograms of a run, as UHI, as the plotting protocol, as hist objects."""

import boost_histogram as bh
import hist
import matplotlib
import numpy as np
import pytest
from uhi.typing.plottable import PlottableHistogram

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import mplhep


@pytest.fixture
def mass(run):
    return run.histograms["dimuon_mass"]


def test_values_are_those_of_the_run(sample, mass):
    masses = [m for m in sample.truth["mass"] if m is not None]
    expected, edges = np.histogram(masses, bins=60, range=(60, 120))
    np.testing.assert_array_equal(mass.values(), expected)
    np.testing.assert_array_equal(mass.variances(), expected)
    np.testing.assert_array_equal(mass.counts(), expected)
    np.testing.assert_allclose(mass.axes[0].edges, edges)
    assert mass.values(flow=True).shape == (62,)
    assert mass.total() == len(masses)
    assert (mass.name, mass.axes[0].label, mass.axes[0].unit) == (
        "dimuon_mass",
        "dimuon mass [GeV]",
        "GeV",
    )
    assert "sum" in repr(mass)


# mplhep says so where scipy is not installed.
@pytest.mark.filterwarnings("ignore:Integer weights indicate")
def test_it_is_plottable(mass):
    assert isinstance(mass, PlottableHistogram)
    axis = mass.axes[0]
    assert len(axis) == 60
    assert axis[0] == (60.0, 61.0)
    assert axis[-1] == (119.0, 120.0)
    assert len(list(axis)) == 60
    assert axis.traits.circular is False
    assert axis == axis
    with pytest.raises(IndexError):
        axis[60]
    figure, axes = plt.subplots()
    [artists] = mplhep.histplot(mass, ax=axes)
    np.testing.assert_array_equal(artists.stairs.get_data().values, mass.values())
    assert axes.get_xlabel() == "dimuon mass [GeV]"
    plt.close(figure)


def test_it_becomes_a_hist(mass):
    h = mass.to_hist()
    assert isinstance(h, hist.Hist)
    np.testing.assert_array_equal(h.values(flow=True), mass.values(flow=True))
    assert h.axes[0].label == "dimuon mass [GeV]"
    assert h[91j].real > 0
    assert isinstance(mass.to_boost(), bh.Histogram)
    assert "svg" in mass._repr_html_()


def test_new_versions_of_hist_take_it_as_it_is(mass):
    pytest.importorskip("boost_histogram", minversion="1.7")
    assert hist.Hist(mass) == mass.to_hist()


def test_weights_several_axes_and_logarithmic_edges(run):
    plane = run.histograms["time_objects"]
    assert plane.values().shape == (6, 4)
    assert plane.values(flow=True).shape == (8, 6)
    assert plane.total() == 1500.0
    np.testing.assert_allclose(plane.variances(), 0.5 * plane.values())
    np.testing.assert_allclose(plane.counts(), 2 * plane.values())
    assert plane.axes[0].scale == "log"
    np.testing.assert_allclose(plane.axes[0].edges, np.logspace(5, 11, 7))
    np.testing.assert_allclose(plane.axes[0].centers[0], 5.5e5)
    h = plane.to_hist()
    np.testing.assert_array_equal(h.values(flow=True), plane.values(flow=True))
    np.testing.assert_array_equal(h.variances(flow=True), plane.variances(flow=True))


def test_the_dictionary_form_is_uhi(run):
    schema = pytest.importorskip("uhi.schema")
    document = {name: histogram.to_uhi() for name, histogram in run.histograms.items()}
    schema.validate(document)
