"""Reconstruction in arrays: pairs and quadruples of leptons with mass and vertex.

Works on the jagged objects of `livetime.Run.objects`, or on a batch of a filter itself, without a loop
over events: the objects of all events lie one after the other in flat arrays, and so do all pairs of
them. `dimuon` and `four_lepton` give `Candidates`, one record per event; where an event has none its
fields are NaN. The vertex is where the tracks, taken as straight lines near the beam, come closest
to each other in the transverse plane (least squares); it is NaN for parallel tracks and means
nothing for objects that were recorded without impact parameter.
"""

from __future__ import annotations

from typing import Any, Optional, Union

import awkward as ak
import numpy as np
import numpy.typing as npt

from .filters import EventBatch
from .run import Kind

#: Masses [GeV] (Particle Data Group).
MUON_MASS = 0.105_658
ELECTRON_MASS = 0.000_511
Z_MASS = 91.188

Values = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
#: The objects of each event, or a batch of a filter: that saves making an awkward array of it.
Objects = Union[ak.Array, EventBatch]


class Candidates(np.recarray):  # type: ignore[type-arg]
    """One record per event; each field, such as ``candidates.mass``, is a numpy array.

    Numpy, since a comparison of awkward arrays takes longer than the reconstruction of a batch.
    """

    @property
    def fields(self) -> list[str]:
        """Names of the fields."""
        return list(self.dtype.names or ())


def dimuon(objects: Objects) -> Candidates:
    """The hardest positive muon with the hardest negative one: ``mass`` [GeV], ``pt`` [GeV] of
    the pair, and its vertex ``x``, ``y`` [cm].

    The muons have their mass, as in a Level-3 menu; `livetime.Run.dimuon_mass` and the filter
    ``mass_window`` take them as massless.
    """
    leptons = _Leptons(objects)
    muon = leptons.good & (leptons.kind == Kind.MUON)
    legs = [
        leptons.best(np.flatnonzero(muon & charged), -leptons.pt)
        for charged in (leptons.charge > 0, leptons.charge < 0)
    ]
    found = (legs[0] >= 0) & (legs[1] >= 0)
    return _records(leptons, found, {"mass": legs}, legs)


def four_lepton(objects: Objects) -> Candidates:
    """The four leptons of two pairs, each of one flavour and opposite charges: ``mass`` [GeV],
    ``pt`` [GeV], vertex ``x``, ``y`` [cm], and the masses ``z1`` and ``z2`` of the pairs [GeV].

    Of all pairs in an event the one with the mass nearest to the Z's is the first, of the
    rest the one with the highest sum of transverse momenta the second.
    """
    leptons = _Leptons(objects)
    a, b = leptons.pairs()
    event = leptons.event[a]
    near = abs(leptons.mass([a, b]) - Z_MASS)
    first = _first_of_event(event, near, leptons.events)
    # A place of -1 is of no lepton, so that events without a first pair keep theirs: none.
    taken = [np.where(first >= 0, leg[first], -1)[event] for leg in (a, b)] if len(a) else []
    free = np.ones(len(a), bool)
    for place in taken:
        free &= (a != place) & (b != place)
    rest = np.flatnonzero(free)
    sum_pt = leptons.pt[a[rest]] + leptons.pt[b[rest]]
    second = _first_of_event(event[rest], -sum_pt, leptons.events)
    found = (first >= 0) & (second >= 0)
    if len(rest):
        second = np.where(second >= 0, rest[second], -1)
        z1, z2 = ([a[pair], b[pair]] for pair in (first, second))
    else:
        z1 = z2 = [np.full(leptons.events, -1)] * 2
    return _records(leptons, found, {"mass": z1 + z2, "z1": z1, "z2": z2}, z1 + z2)


class _Leptons:
    """The objects of all events in flat arrays."""

    def __init__(self, objects: Objects) -> None:
        offsets, columns = _columns_of(objects)
        self.events = len(offsets) - 1
        self.event: Places = np.repeat(np.arange(self.events), np.diff(offsets))
        self._end: Places = offsets[1:]
        self.kind, self.pt, self.eta, self.phi, self.charge, self.dxy = columns
        finite = np.isfinite(self.pt) & np.isfinite(self.eta) & np.isfinite(self.phi)
        self.good = finite & (self.pt > 0)

    def best(self, places: Places, rank: Values) -> Places:
        """Of some objects the one of lowest `rank` in each event; -1 where there is none."""
        chosen = _first_of_event(self.event[places], rank[places], self.events)
        if not len(places):
            return chosen
        return np.where(chosen >= 0, places[chosen], -1)

    def pairs(self) -> tuple[Places, Places]:
        """All pairs of good muons or electrons of one flavour and opposite charges."""
        good = self.good & ((self.kind == Kind.MUON) | (self.kind == Kind.ELECTRON))
        place = np.arange(len(self.event))
        followers = self._end[self.event] - place - 1
        a = np.repeat(place, followers)
        b = a + 1 + np.arange(len(a)) - np.repeat(np.cumsum(followers) - followers, followers)
        fitting = good[a] & good[b] & (self.kind[a] == self.kind[b])
        fitting &= self.charge[a] * self.charge[b] < 0
        return a[fitting], b[fitting]

    def mass(self, legs: list[Places]) -> Values:
        """Invariant mass of the objects at these places [GeV]."""
        energy, px, py, pz = np.zeros((4, len(legs[0])))
        for leg in legs:
            pt, eta, phi = self.pt[leg], self.eta[leg], self.phi[leg]
            mass = np.where(self.kind[leg] == Kind.MUON, MUON_MASS, ELECTRON_MASS)
            along = pt * np.sinh(eta)
            energy += np.sqrt(pt * pt + along * along + mass * mass)
            px, py, pz = px + pt * np.cos(phi), py + pt * np.sin(phi), pz + along
        squared: Values = energy**2 - px**2 - py**2 - pz**2
        return np.sqrt(np.maximum(squared, 0.0))

    def pt_of(self, legs: list[Places]) -> Values:
        """Transverse momentum of the sum [GeV]."""
        px = sum(self.pt[leg] * np.cos(self.phi[leg]) for leg in legs)
        py = sum(self.pt[leg] * np.sin(self.phi[leg]) for leg in legs)
        return np.hypot(px, py)

    def vertex(self, legs: list[Places]) -> tuple[Values, Values]:
        """Where the tracks cross [cm]."""
        # Each track says -x sin(phi) + y cos(phi) = dxy; the normal equations of all of them.
        ss, sc, cc, sd, cd = np.zeros((5, len(legs[0])))
        for leg in legs:
            sin, cos, dxy = np.sin(self.phi[leg]), np.cos(self.phi[leg]), self.dxy[leg]
            ss, sc, cc = ss + sin * sin, sc + sin * cos, cc + cos * cos
            sd, cd = sd - sin * dxy, cd + cos * dxy
        determinant = ss * cc - sc * sc
        # Tracks within a milliradian of each other have no crossing that could be measured.
        crossing = np.where(determinant > 1e-6, determinant, np.nan)
        return (cc * sd + sc * cd) / crossing, (sc * sd + ss * cd) / crossing


_COLUMNS = ("kind", "pt", "eta", "phi", "charge", "dxy")


def _columns_of(objects: Objects) -> tuple[Places, list[Values]]:
    if isinstance(objects, EventBatch):
        columns = objects.object_columns()
        if columns is not None:
            offsets, fields = columns
            return offsets, [np.asarray(fields[name], dtype=np.float64) for name in _COLUMNS]
        objects = objects.objects
    return _plain_columns(objects.layout) or _packed_columns(objects)


def _plain_columns(layout: Any) -> Optional[tuple[Places, list[Values]]]:
    """Offsets and columns of what runs and batches give, looked at where they lie: awkward's own
    operations take longer on a batch than all of the arithmetic. None for any other layout."""
    if not (isinstance(layout, ak.contents.ListOffsetArray) and layout.content.is_record):
        return None
    offsets: Places = np.asarray(layout.offsets.data)
    columns = [layout.content.content(name) for name in _COLUMNS]
    if offsets[0] != 0 or not all(column.is_numpy and not column.is_list for column in columns):
        return None
    end = offsets[-1]
    return offsets, [np.asarray(column.data[:end], dtype=np.float64) for column in columns]


def _packed_columns(objects: ak.Array) -> tuple[Places, list[Values]]:
    # An event that is masked has no objects, and keeps its place; nor has one masked objects.
    objects = ak.drop_none(ak.fill_none(objects, [], axis=0), axis=1)
    layout = ak.to_packed(objects).layout
    while layout.is_option or layout.is_indexed:
        layout = layout.project()
    layout = layout.to_ListOffsetArray64(True)
    columns = [np.asarray(ak.to_numpy(layout.content[name]), np.float64) for name in _COLUMNS]
    return np.asarray(layout.offsets.data), columns


def _first_of_event(event: Places, rank: Values, events: int) -> Places:
    """For each event the index of its entry of lowest rank, the first of equals; -1 for none."""
    order = np.lexsort((rank, event))
    sorted_event = event[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = sorted_event[1:] != sorted_event[:-1]
    chosen = np.full(events, -1)
    chosen[sorted_event[is_first]] = order[is_first]
    return chosen


def _records(
    leptons: _Leptons, found: npt.NDArray[np.bool_], masses: dict[str, Any], legs: list[Places]
) -> Candidates:
    places = [leg[found] for leg in legs]
    x, y = leptons.vertex(places)
    columns = {"mass": None, "pt": leptons.pt_of(places), "x": x, "y": y}
    columns |= {name: leptons.mass([leg[found] for leg in of]) for name, of in masses.items()}
    whole = np.full((leptons.events, len(columns)), np.nan)
    for nth, values in enumerate(columns.values()):
        whole[found, nth] = values
    records = whole.view([(name, np.float64) for name in columns]).reshape(leptons.events)
    return records.view(Candidates)
