"""The Level-2 menu on the words of a packet (section 3), in exact integers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import combinations

from .encoding import COS, SIN

MILLI = Decimal("0.001")
UNITS = {
    "energy": {"keV": MILLI, "MeV": 1, "GeV": 1000, "TeV": 10**6},  # to MeV
    "length": {"nm": MILLI, "um": 1, "µm": 1, "mm": 1000, "cm": 10000, "m": 10**6},  # to um
    "angle": {"mdeg": 1, "deg": 1000},  # to mdeg
    "time": {
        **{"ns": 1, "us": 1000, "µs": 1000, "ms": 10**6},  # to ns
        **{"s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9},
    },
}
TYPES = {"CMU": 1, "CMP": 2, "CMX": 4, "BMU": 8}


def threshold(text: str, kind: str) -> int:
    """An exact integer from a decimal text with unit, which zero may lack."""
    for unit in sorted(UNITS[kind], key=len, reverse=True):
        if text.endswith(unit):
            value = Decimal(text.removesuffix(unit).strip()) * UNITS[kind][unit]
            if value != value.to_integral_value():
                raise ValueError(f"{text!r} is not a whole number of the smallest unit")
            return int(value)
    if "0" in text and not text.strip().strip("+-0._"):
        return 0
    raise ValueError(f"{text!r} has no unit of {kind}")


@dataclass
class Packet:
    """The fields that the menu reads."""

    l1: int
    svt: list[tuple[int, int, int, int, int]]  # phi, d, c, c sign, chi2
    muons: list[tuple[int, int, int]]  # types, charge, pT code
    xtrp: list[tuple[int, int, int]] = field(default_factory=list)  # fine phi of 2304, pT code, isolated
    clusters: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # EM, HAD, towers, phi, isolation
    sum_et: int = 0
    met: int = 0
    refused: int = 0
    lumi: int = 0
    time: int = 0


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
    xtrp = [((w & 0x1FF) * 8 + (w >> 9 & 7), w >> 16 & 0x1F, w >> 22 & 1) for w in blocks.get(1, [])]
    flat = blocks.get(3, [])
    clusters = [
        (w0 & 0xFFF, w0 >> 12 & 0xFFF, w0 >> 24, w1 >> 19 & 0x3F, w1 >> 25 & 0xF)
        for w0, w1 in zip(flat[0::2], flat[1::2])
    ]
    sums = blocks.get(5, [0, 0])
    return Packet(
        words[2] | words[3] << 32,
        svt,
        muons,
        xtrp,
        clusters,
        sums[0] & 0xFFFF,
        sums[1] & 0xFFFF,
        words[0] >> 17 & 0x1F,
        words[4] & 0xFF,
        words[5],
    )


@dataclass
class Path:
    name: str
    bit: int
    l1: int
    cut: str
    steps: list[int]
    interval: int  # ticks of 25 ns
    luminosity_max: int | None
    options: dict = field(default_factory=dict)
    counter: int = 0
    open_at: int = 0
    passes: int = 0
    fires: int = 0


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


def ratio(options: dict, key: str, default: str) -> int:
    """A ratio in thousandths."""
    return int(Decimal(str(options.get(key, default))) * 1000)


def is_em(cluster: tuple, options: dict) -> bool:
    em, had = cluster[:2]
    return em * 125 > threshold(options["em_min"], "energy") and had * 1000 < em * ratio(options, "had_em_max", "0.125")


def is_near(cluster: tuple, track: tuple, options: dict, default: str) -> bool:
    """Azimuth between the middles of both bins, in parts of 73728 of the circle."""
    apart = abs((2 * cluster[3] + 1) * 576 - (2 * track[0] + 1) * 16) % 73728
    apart = min(apart, 73728 - apart)
    return apart * 360000 < threshold(options.get("match_max", default), "angle") * 73728


def single_electron(packet: Packet, options: dict, _spot) -> bool:
    pt_min = threshold(options["track_pt_min"], "energy")
    return any(
        is_em(c, options) and t[1] * 500 > pt_min and is_near(c, t, options, "6 deg")
        for c in packet.clusters
        for t in packet.xtrp
    )


def photon(packet: Packet, options: dict, _spot) -> bool:
    return any(c[4] == 15 and is_em(c, options) for c in packet.clusters)


def electron_muon(packet: Packet, options: dict, spot) -> bool:
    return single_muon(packet, options, spot) and any(is_em(c, options) for c in packet.clusters)


def jets(packet: Packet, options: dict, count: int) -> bool:
    et_min = threshold(options["et_min"], "energy")
    if sum((c[0] + c[1]) * 125 > et_min for c in packet.clusters) < count:
        return False
    if "sum_et_min" in options and not packet.sum_et * 125 > threshold(options["sum_et_min"], "energy"):
        return False
    return "met_min" not in options or packet.met * 125 > threshold(options["met_min"], "energy")


def met_em(packet: Packet, options: dict, _spot) -> bool:
    if not packet.met * 125 > threshold(options["met_min"], "energy"):
        return False
    return any(is_em(c, options) for c in packet.clusters)


def sum_et(packet: Packet, options: dict, _spot) -> bool:
    return packet.sum_et * 125 > threshold(options["sum_et_min"], "energy")


def tau(packet: Packet, options: dict, _spot) -> bool:
    et_min, pt_min = threshold(options["et_min"], "energy"), threshold(options["track_pt_min"], "energy")
    had_em_min = ratio(options, "had_em_min", "0.5")
    for c in packet.clusters:
        em, had, towers = c[:3]
        if (em + had) * 125 > et_min and towers <= options["towers_max"] and had * 1000 > em * had_em_min:
            if any(t[2] and t[1] * 500 > pt_min and is_near(c, t, options, "10 deg") for t in packet.xtrp):
                return True
    return False


def corrected(d: int, phi: int, spot: tuple[int, int]) -> int:
    return (d * 10 * 32768 + spot[0] * SIN[phi] - spot[1] * COS[phi] + 16384) >> 15


def lepton_track(packet: Packet, options: dict, spot: tuple[int, int]) -> bool:
    if options["lepton"] == "muon":
        if not single_muon(packet, options, spot):
            return False
    elif not any(is_em(c, options) for c in packet.clusters):
        return False
    pt_min = threshold(options["track_pt_min"], "energy")
    d_min, d_max = threshold(options["d_min"], "length"), threshold(options["d_max"], "length")
    chi2_max = int(Decimal(str(options.get("chi2_max", 25))) * 16)
    return any(
        chi2 < chi2_max and c * pt_min < 180855 and d_min < abs(corrected(d, phi, spot)) < d_max
        for phi, d, c, _, chi2 in packet.svt[:20]
    )


CUTS = {
    "auto": lambda *_: True,
    "min_bias": lambda *_: True,
    "zero_bias": lambda *_: True,
    "single_muon": single_muon,
    "dimuon": dimuon,
    "two_track": two_track,
    "lepton_track": lepton_track,
    "single_electron": single_electron,
    "photon": photon,
    "electron_muon": electron_muon,
    "jet": lambda packet, options, _: jets(packet, options, 1),
    "multi_jet": lambda packet, options, _: jets(packet, options, options["count"]),
    "jets_met": lambda packet, options, _: jets(packet, options, options.get("count", 2)),
    "met_em": met_em,
    "sum_et": sum_et,
    "tau": tau,
}


class BeamFit:
    """The beam from the tracks of the last events, with whole fractions."""

    def __init__(self, events: int, d_max: int) -> None:
        self.wanted, self.d_max, self.events, self.fits = events, d_max, 0, 0
        self.tracks: list[tuple[int, int]] = []

    def add(self, packet: Packet, spot: tuple[int, int]) -> tuple[int, int]:
        """The position that holds behind this packet."""
        used = [
            (phi, d)
            for phi, d, _, _, chi2 in packet.svt[:20]
            if abs(d) < 511 and chi2 < 400 and abs(corrected(d, phi, spot)) < self.d_max
        ]
        self.tracks += used
        self.events += bool(used)
        if self.events < self.wanted:
            return spot
        ss = sum(SIN[phi] ** 2 for phi, _ in self.tracks)
        sc = sum(SIN[phi] * COS[phi] for phi, _ in self.tracks)
        cc = sum(COS[phi] ** 2 for phi, _ in self.tracks)
        ds = sum(d * SIN[phi] for phi, d in self.tracks)
        dc = sum(d * COS[phi] for phi, d in self.tracks)
        self.tracks, self.events = [], 0
        det = ss * cc - sc * sc
        if det <= 0:
            return spot
        x, y = (
            math.floor(Fraction(numerator * 327680, det) + Fraction(1, 2))
            for numerator in (sc * dc - ds * cc, ss * dc - ds * sc)
        )
        if max(abs(x), abs(y)) > 100000:
            return spot
        self.fits += 1
        return x, y


def ticks(options: dict, key: str) -> int:
    return threshold(options[key], "time") // 25 if key in options else 0


class Menu:
    """The paths of a configuration with their prescale counters."""

    def __init__(self, trigger: dict) -> None:
        x0, y0 = trigger.get("beam_spot", ["0 um", "0 um"])
        self.spot = (threshold(x0, "length"), threshold(y0, "length"))
        self.fit = None
        if "beam_fit_events" in trigger:
            d_max = threshold(trigger.get("beam_fit_d_max", "2 mm"), "length")
            self.fit = BeamFit(trigger["beam_fit_events"], d_max)
        self.luminosity = trigger.get("luminosity", [])
        self.window = trigger.get("dead_time_window", 1000)
        self.high = int(Decimal(str(trigger.get("dead_time_high", "0.010"))) * 1000)
        self.low = int(Decimal(str(trigger.get("dead_time_low", "0.002"))) * 1000)
        self.step = self.packets = self.refused = 0
        self.time: int | None = None
        self.section: int | None = None
        self.paths = []
        fixed = {"name", "bit", "l1", "cut", "prescale", "prescales", "interval_min", "luminosity_max"}
        for entry in trigger["path"]:
            options = {key: value for key, value in entry.items() if key not in fixed}
            self.paths.append(
                Path(
                    entry["name"],
                    entry["bit"],
                    sum(1 << bit for bit in set(entry["l1"])),
                    entry["cut"],
                    entry.get("prescales", [entry.get("prescale", 1)]),
                    ticks(entry, "interval_min"),
                    entry.get("luminosity_max"),
                    options,
                )
            )
        self.last_step = max(len(path.steps) for path in self.paths) - 1

    def luminosity_of(self, packet: Packet) -> int:
        if self.section is None:
            self.section = packet.lumi
        self.section += (packet.lumi - self.section) % 256
        if not self.luminosity:
            return 0
        return self.luminosity[min(self.section, len(self.luminosity) - 1)]

    def follow_dead_time(self, packet: Packet) -> None:
        self.packets += 1
        self.refused += packet.refused
        if self.packets == self.window:
            offered = self.packets + self.refused
            if self.refused * 1000 > self.high * offered:
                self.step = min(self.step + 1, self.last_step)
            elif self.refused * 1000 < self.low * offered:
                self.step = max(self.step - 1, 0)
            self.packets = self.refused = 0

    def decide(self, packet: Packet) -> tuple[int, int]:
        """The decision before and after prescale."""
        if self.time is None:
            self.time = packet.time
        self.time += (packet.time - self.time) % 2**32
        luminosity = self.luminosity_of(packet)
        before = after = 0
        for path in self.paths:
            if path.luminosity_max is not None and luminosity >= path.luminosity_max:
                continue
            if packet.l1 & path.l1 and CUTS[path.cut](packet, path.options, self.spot):
                before |= 1 << path.bit
                path.passes += 1
                factor = path.steps[min(self.step, len(path.steps) - 1)]
                if path.counter % factor == 0 and self.time >= path.open_at:
                    after |= 1 << path.bit
                    path.fires += 1
                    if path.interval:
                        path.open_at = self.time + path.interval
                path.counter = (path.counter + 1) & 0xFFFFFFFF
        self.follow_dead_time(packet)
        if self.fit is not None:
            self.spot = self.fit.add(packet, self.spot)
        return before, after
