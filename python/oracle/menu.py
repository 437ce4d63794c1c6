"""The Level-2 menu on the words of a packet (section 3), in exact integers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations

from .encoding import COS, SIN

UNITS = {
    "energy": {"MeV": 1, "GeV": 1000},  # to MeV
    "length": {"um": 1, "mm": 1000, "cm": 10000},  # to um
    "angle": {"mdeg": 1, "deg": 1000},  # to mdeg
}
TYPES = {"CMU": 1, "CMP": 2, "CMX": 4, "BMU": 8}


def threshold(text: str, kind: str) -> int:
    """An exact integer from a decimal text with unit."""
    for unit in sorted(UNITS[kind], key=len, reverse=True):
        if text.endswith(unit):
            value = Decimal(text.removesuffix(unit).strip()) * UNITS[kind][unit]
            if value != value.to_integral_value():
                raise ValueError(f"{text!r} is not a whole number of the smallest unit")
            return int(value)
    raise ValueError(f"{text!r} has no unit of {kind}")


@dataclass
class Packet:
    """The fields that the menu reads."""

    l1: int
    svt: list[tuple[int, int, int, int, int]]  # phi, d, c, c sign, chi2
    muons: list[tuple[int, int, int]]  # types, charge, pT code


def decode(words: list[int]) -> Packet:
    blocks: dict[int, list[int]] = {}
    at = 6
    for _ in range(words[0] & 0xFF):
        size = words[at] & 0xFFFF
        blocks[words[at] >> 24] = words[at + 1 : at + 1 + size]
        at += 1 + size
    svt = []
    flat = blocks.get(2, [])
    for w0, w1 in zip(flat[0::2], flat[1::2]):
        d = w0 >> 19 & 0x1FF
        svt.append(
            (w0 & 0x1FFF, -d if w0 >> 28 & 1 else d, w1 & 0xFF, w1 >> 8 & 1, w1 >> 9 & 0x7FF)
        )
    muons = [(w >> 8 & 0xF, w >> 20 & 1, w >> 21 & 0x7F) for w in blocks.get(4, [])]
    return Packet(words[2] | words[3] << 32, svt, muons)


@dataclass
class Path:
    name: str
    bit: int
    l1: int
    cut: str
    prescale: int
    options: dict = field(default_factory=dict)
    counter: int = 0


def charges_agree(rule: str, a: int, b: int) -> bool:
    return rule == "any" or (rule == "opposite") == (a != b)


def type_mask(options: dict) -> int:
    return sum(TYPES[name] for name in options.get("types", []))


def single_muon(packet: Packet, options: dict, _spot: tuple[int, int]) -> bool:
    mask, pt_min = type_mask(options), threshold(options["pt_min"], "energy")
    return any(t & mask == mask and pt * 500 > pt_min for t, _, pt in packet.muons)


def dimuon(packet: Packet, options: dict, _spot: tuple[int, int]) -> bool:
    mask, pt_min = type_mask(options), threshold(options["pt_min"], "energy")
    good = [q for t, q, pt in packet.muons if t & mask == mask and pt * 500 > pt_min]
    return any(charges_agree(options.get("charge", "opposite"), a, b) for a, b in combinations(good, 2))


def two_track(packet: Packet, options: dict, spot: tuple[int, int]) -> bool:
    cut = {
        "pt_min": threshold(options["pt_min"], "energy"),
        "sum_pt_min": threshold(options["sum_pt_min"], "energy"),
        "dphi_min": threshold(options["dphi_min"], "angle"),
        "dphi_max": threshold(options["dphi_max"], "angle"),
        "d_min": threshold(options["d_min"], "length"),
        "d_max": threshold(options["d_max"], "length"),
        "lxy_min": threshold(options["lxy_min"], "length"),
        "chi2_max": int(Decimal(str(options.get("chi2_max", 25))) * 16),
        "charge": options.get("charge", "opposite"),
    }
    if "d_pair_max" in options:
        cut["d_pair_max"] = threshold(options["d_pair_max"], "length")
    tracks = packet.svt[:20]
    return any(pair_passes(a, b, cut, spot) for a, b in combinations(tracks, 2))


def pair_passes(a: tuple, b: tuple, cut: dict, spot: tuple[int, int]) -> bool:
    (phi1, d1, c1, q1, chi1), (phi2, d2, c2, q2, chi2) = a, b
    if chi1 >= cut["chi2_max"] or chi2 >= cut["chi2_max"]:
        return False
    if c1 * cut["pt_min"] >= 180855 or c2 * cut["pt_min"] >= 180855:
        return False
    if not charges_agree(cut["charge"], q1, q2):
        return False
    if c1 and c2 and not 180855 * (c1 + c2) > cut["sum_pt_min"] * c1 * c2:
        return False
    dphi = abs(phi1 - phi2)
    dphi = min(dphi, 8192 - dphi)
    if not cut["dphi_min"] * 8192 < dphi * 360000 < cut["dphi_max"] * 8192:
        return False
    s1, k1, s2, k2 = SIN[phi1], COS[phi1], SIN[phi2], COS[phi2]
    x0, y0 = spot
    big1 = (d1 * 10 * 32768 + x0 * s1 - y0 * k1 + 16384) >> 15
    big2 = (d2 * 10 * 32768 + x0 * s2 - y0 * k2 + 16384) >> 15
    if not all(cut["d_min"] < abs(d) < cut["d_max"] for d in (big1, big2)):
        return False
    return vertex_passes((s1, k1, big1, c1), (s2, k2, big2, c2), cut)


def vertex_passes(a: tuple, b: tuple, cut: dict) -> bool:
    (s1, k1, d1, c1), (s2, k2, d2, c2) = a, b
    det = k1 * s2 - s1 * k2
    if det == 0:
        return False
    x, y = d1 * k2 - d2 * k1, d1 * s2 - d2 * s1
    w1, w2 = (c2, c1) if c1 or c2 else (1, 1)
    px, py = w1 * k1 + w2 * k2, w1 * s1 + w2 * s2
    p = math.isqrt(px * px + py * py)
    if det < 0:
        x, y, det = -x, -y, -det
    if not (x * px + y * py) * 32768 > cut["lxy_min"] * det * p:
        return False
    if "d_pair_max" in cut:
        return abs(y * px - x * py) * 32768 < cut["d_pair_max"] * det * p
    return True


CUTS = {
    "auto": lambda *_: True,
    "min_bias": lambda *_: True,
    "single_muon": single_muon,
    "dimuon": dimuon,
    "two_track": two_track,
}


class Menu:
    """The paths of a configuration with their prescale counters."""

    def __init__(self, trigger: dict) -> None:
        x0, y0 = trigger.get("beam_spot", ["0 um", "0 um"])
        self.spot = (threshold(x0, "length"), threshold(y0, "length"))
        self.paths = []
        fixed = {"name", "bit", "l1", "cut", "prescale"}
        for entry in trigger["path"]:
            options = {key: value for key, value in entry.items() if key not in fixed}
            l1 = sum(1 << bit for bit in set(entry["l1"]))
            self.paths.append(
                Path(entry["name"], entry["bit"], l1, entry["cut"], entry.get("prescale", 1), options)
            )

    def decide(self, packet: Packet) -> tuple[int, int]:
        """The decision before and after prescale."""
        before = after = 0
        for path in self.paths:
            if packet.l1 & path.l1 and CUTS[path.cut](packet, path.options, self.spot):
                before |= 1 << path.bit
                if path.counter % path.prescale == 0:
                    after |= 1 << path.bit
                path.counter = (path.counter + 1) & 0xFFFFFFFF
        return before, after
