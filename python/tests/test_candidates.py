"""Candidates of made events with known answers; those of recorded events are in test_recorded."""

import awkward as ak
import numpy as np

from livetime import Kind, candidates

FIELDS = ["kind", "pt", "eta", "phi", "charge", "dxy"]


def events(*of_events):
    rows = [[dict(zip(FIELDS, lepton)) for lepton in leptons] for leptons in of_events]
    return ak.Array([*rows, [dict(zip(FIELDS, [0, 0.0, 0.0, 0.0, 0.0, 0.0]))]])[:-1]


def muon(pt, eta, phi, charge, dxy=0.0):
    return [Kind.MUON, pt, eta, phi, float(charge), dxy]


def electron(pt, eta, phi, charge):
    return [Kind.ELECTRON, pt, eta, phi, float(charge), 0.0]


def test_back_to_back_muons():
    found = candidates.dimuon(events([muon(45.594, 0, 0.3, 1), muon(45.594, 0, 0.3 - np.pi, -1)]))
    assert found.fields == ["mass", "pt", "x", "y"]
    assert abs(found.mass[0] - 91.188) < 1e-3
    assert abs(found.pt[0]) < 1e-9


def test_the_hardest_of_each_charge_is_taken():
    found = candidates.dimuon(
        events(
            [muon(5, 0, 0, 1), muon(20, 0, 0, 1), muon(30, 0, np.pi, -1), electron(99, 0, 0, -1)],
            [muon(20, 0, 0, 1), muon(20, 1, 0, 1), muon(20, 0, np.pi, -1)],
        )
    )
    assert abs(found.mass[0] - 2 * np.sqrt(20 * 30)) < 1e-3
    assert abs(found.mass[1] - 40) < 1e-3, "of equal ones the first"


def test_no_pair_no_candidate():
    found = candidates.dimuon(
        events(
            [],
            [muon(20, 0, 0, 1)],
            [muon(20, 0, 0, 1), muon(20, 0, 1, 1)],
            [muon(np.nan, 0, 0, 1), muon(20, 0, 1, -1)],
            [muon(20, 0, 0, 1), electron(20, 0, 1, -1)],
        )
    )
    assert np.isnan(ak.to_numpy(found.mass)).all()
    assert np.isnan(ak.to_numpy(found.x)).all()
    assert len(candidates.dimuon(events())) == 0
    assert len(candidates.four_lepton(events())) == 0
    assert np.isnan(candidates.four_lepton(events([])).mass[0])


def test_the_vertex_is_where_the_tracks_cross():
    x, y = 0.075, -0.042
    phis = [0.4, 2.5, -1.9, 0.9]
    of = [
        muon(30, 0.1, phi, q, -x * np.sin(phi) + y * np.cos(phi))
        for phi, q in zip(phis, [1, -1, 1, -1])
    ]
    two = candidates.dimuon(events(of[:2]))
    four = candidates.four_lepton(events(of))
    for found in (two, four):
        assert abs(found.x[0] - x) < 1e-6 and abs(found.y[0] - y) < 1e-6
    parallel = candidates.dimuon(events([muon(30, 0, 1.0, 1), muon(30, 1, 1.0, -1)]))
    assert np.isnan(parallel.x[0]) and parallel.mass[0] > 0


def test_four_leptons_pair_by_flavour_and_charge():
    z = [muon(45.594, 0, 0.3, 1), muon(45.594, 0, 0.3 - np.pi, -1)]
    soft = [electron(10, 0, 1, 1), electron(10, 0, 1 + np.pi, -1)]
    found = candidates.four_lepton(
        events(
            soft + z,
            z + [electron(10, 0, 1, 1), electron(10, 0, 2, 1)],
            z + [electron(10, 0, 1, 1), muon(10, 0, 2, -1)],
            z + soft + [electron(30, 0, 2, 1)],
            z,
        )
    )
    assert abs(found.z1[0] - 91.188) < 1e-3 and abs(found.z2[0] - 20) < 1e-3
    assert abs(found.mass[0] - 111.188) < 1e-2
    assert np.isnan(ak.to_numpy(found.mass)[[1, 2, 4]]).all()
    assert np.isnan(ak.to_numpy(found.z1)[[1, 2, 4]]).all()
    # The second pair is the one with the harder electron.
    assert found.z2[3] > 20


def test_any_jagged_array_will_do():
    objects = events([muon(45.594, 0, 0.3, 1), muon(45.594, 0, 0.3 - np.pi, -1)], [])
    cut = objects[[1, 0, 0]][:, ::-1]
    mass = ak.to_numpy(candidates.dimuon(cut).mass)
    assert np.isnan(mass[0]) and abs(mass[1:] - 91.188).max() < 1e-3


def test_a_masked_event_has_no_candidate_and_keeps_its_place():
    pair = [muon(45.594, 0, 0.3, 1), muon(45.594, 0, 0.3 - np.pi, -1)]
    objects = events(pair, pair, pair)
    mass = ak.to_numpy(candidates.dimuon(ak.mask(objects, [True, False, True])).mass)
    assert np.isnan(mass).tolist() == [False, True, False]
    # One masked object is none of the event's.
    mass = ak.to_numpy(candidates.dimuon(ak.mask(objects, objects.charge > 0)).mass)
    assert np.isnan(mass).all() and len(mass) == 3
