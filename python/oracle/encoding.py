"""From the objects of an event to the words of its trigger packet (sections 1 and 2)."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

ANGLES = 8192
SIN = [0] * ANGLES
COS = [0] * ANGLES

CHARGED = ("muon", "electron", "track")
CLUSTERED = ("electron", "photon", "jet")


def round_half_away(value: float) -> int:
    """Nearest integer, halves away from zero, without the error of adding 0.5."""
    whole = math.floor(abs(value))
    if abs(value) - whole >= 0.5:
        whole += 1
    return whole if value >= 0 else -whole


def narrow(value: float) -> float:
    """The nearest single-precision number, as a double."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


for _k in range(ANGLES):
    SIN[_k] = round_half_away(32768.0 * math.sin(2.0 * math.pi * _k / 8192.0))
    COS[_k] = round_half_away(32768.0 * math.cos(2.0 * math.pi * _k / 8192.0))


def phi13(phi: float) -> int:
    return round_half_away(phi * 8192.0 / (2.0 * math.pi)) % ANGLES


@dataclass
class Object:
    kind: str
    pt: float
    eta: float
    phi: float
    charge: float
    dxy: float
    iso: float
    chi2: float


@dataclass
class Cluster:
    em: int
    had: int
    towers: int
    seed: int
    eta: int
    phi: int
    isolation: int

    def words(self) -> list[int]:
        w0 = self.em | self.had << 12 | self.towers << 24
        w1 = self.seed | (self.eta & 0x7F) << 12 | self.phi << 19 | self.isolation << 25
        return [w0, w1]


@dataclass
class Items:
    """The items of a packet as dictionaries of raw fields, before and after the limit."""

    xtrp: list[dict[str, int]] = field(default_factory=list)
    svt: list[dict[str, int]] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    muons: list[dict[str, int]] = field(default_factory=list)
    sums: tuple[int, int, int] = (0, 0, 0)


def cluster_of(obj: Object) -> Cluster | None:
    if obj.kind in CLUSTERED:
        total = min(4095, round_half_away(obj.pt * 8.0))
        em = total * 3 // 5 if obj.kind == "jet" else total
    elif obj.kind == "muon" and obj.iso >= 0.5:
        total = min(4095, round_half_away(obj.iso * 8.0))
        em = total
    else:
        return None
    return Cluster(
        em=em,
        had=total - em,
        towers=1 + min(254, total // 16),
        seed=(total + 1) // 2,
        eta=max(-64, min(63, round_half_away(obj.eta * 10.0))),
        phi=phi13(obj.phi) * 64 // ANGLES,
        isolation=15 if obj.iso < 1.0 else 0,
    )


def sums_of(objects: list[Object], clusters: list[Cluster]) -> tuple[int, int, int]:
    sum_et = min(65535, sum(c.em + c.had for c in clusters))
    x = y = 0
    for obj in objects:
        p = min(65535, round_half_away(obj.pt * 8.0))
        x += p * COS[phi13(obj.phi)]
        y += p * SIN[phi13(obj.phi)]
    missing = min(65535, math.isqrt(x * x + y * y) >> 15)
    phi = phi13(math.atan2(-y, -x)) if (x, y) != (0, 0) else 0
    return sum_et, missing, phi


def items_of(objects: list[Object]) -> Items:
    items = Items()
    for obj in objects:
        angle = phi13(obj.phi)
        if obj.kind in CHARGED:
            fine = angle * 2304 // ANGLES
            items.xtrp.append(
                {
                    "wedge": fine // 8,
                    "pixel": fine % 8,
                    "pt": min(31, math.floor(obj.pt * 2.0)),
                    "sign": int(obj.charge < 0),
                    "isolated": int(obj.iso < 1.0),
                }
            )
            d = round_half_away(obj.dxy * 1000.0)
            items.svt.append(
                {
                    "phi": angle,
                    "d": min(511, abs(d)),
                    "d_sign": int(d < 0),
                    "c": min(255, round_half_away(180.855 / obj.pt)),
                    "c_sign": int(obj.charge < 0),
                    "chi2": min(2047, round_half_away(obj.chi2 * 16.0)),
                    "number": len(items.svt) % 512,
                }
            )
        if obj.kind == "muon":
            size = abs(obj.eta)
            types = 3 if size < 0.6 else 4 if size < 1.0 else 8
            items.muons.append(
                {
                    "phi": angle * 144 // ANGLES,
                    "types": types,
                    "track": min(255, len(items.xtrp) - 1),
                    "charge": int(obj.charge < 0),
                    "pt": min(127, math.floor(obj.pt * 2.0)),
                }
            )
        cluster = cluster_of(obj)
        if cluster is not None:
            items.clusters.append(cluster)
    items.sums = sums_of(objects, items.clusters)
    return items


def mix64(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood)."""
    mask = (1 << 64) - 1
    z = (value + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def level1_bits(items: Items, index: int) -> int:
    bits = 1
    if sum(track["pt"] >= 4 for track in items.xtrp) >= 2:
        bits |= 1 << 1
    if any(stub["pt"] >= 8 for stub in items.muons):
        bits |= 1 << 2
    if sum(stub["pt"] >= 3 for stub in items.muons) >= 2:
        bits |= 1 << 3
    if index % 1000 == 0:
        bits |= 1 << 4
    if any(cluster.em >= 64 for cluster in items.clusters):
        bits |= 1 << 5
    if any(cluster.em + cluster.had >= 80 for cluster in items.clusters):
        bits |= 1 << 6
    if items.sums[0] >= 480:
        bits |= 1 << 7
    if items.sums[1] >= 120:
        bits |= 1 << 8
    if mix64(index) % 1024 == 0:
        bits |= 1 << 9
    return bits


def limited(items: Items, words_max: int) -> bool:
    """Drops items until the packet fits; says whether any was dropped."""
    lists = [
        (items.clusters, 2, lambda c: c.em + c.had),
        (items.xtrp, 1, lambda t: t["pt"]),
        (items.svt, 2, lambda t: -t["c"]),
        (items.muons, 1, lambda s: s["pt"]),
    ]

    def drop(entries: list, key) -> None:
        lowest = min(key(entry) for entry in entries)
        last = max(i for i, entry in enumerate(entries) if key(entry) == lowest)
        del entries[last]

    def size() -> int:
        return 6 + sum(1 + n * len(entries) for entries, n, _ in lists if entries) + 3 + 1

    dropped = False
    for entries, _, key in lists:
        while len(entries) > 255:
            drop(entries, key)
            dropped = True
    while size() > words_max:
        candidates = [(entries, key) for entries, _, key in lists if entries]
        if not candidates:
            break
        drop(*candidates[0])
        dropped = True
    return dropped


def crc16(words: list[int]) -> int:
    crc = 0xFFFF
    for word in words:
        for byte in word.to_bytes(4, "big"):
            crc ^= byte << 8
            for _ in range(8):
                crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
                crc &= 0xFFFF
    return crc


def packet(objects: list[Object], header: dict[str, int], index: int, words_max: int) -> list[int]:
    """The words of the packet of an event."""
    items = items_of(objects)
    bits = level1_bits(items, index)
    truncated = limited(items, words_max)
    blocks = []
    for kind, size, entries in (
        (1, 1, [[xtrp_word(t)] for t in items.xtrp]),
        (2, 2, [svt_words(t) for t in items.svt]),
        (3, 2, [c.words() for c in items.clusters]),
        (4, 1, [[muon_word(s)] for s in items.muons]),
        (5, 2, [[items.sums[0], items.sums[1] | items.sums[2] << 16]]),
    ):
        if entries:
            body = [word for entry in entries for word in entry]
            blocks.append([kind << 24 | len(entries) << 16 | len(entries) * size, *body])
    words = [
        0xC2 << 24
        | header["l2_buffer"] << 22
        | min(31, header.get("refused", 0)) << 17
        | int(truncated) << 16
        | header["bunch"] << 8
        | len(blocks),
        header["trigger"] & 0xFFFFFFFF,
        bits & 0xFFFFFFFF,
        bits >> 32,
        (header["run"] & 0xFFFFFF) << 8 | header["lumi"],
        header["time"],
    ]
    words += [word for block in blocks for word in block]
    words.append((len(words) + 1) << 16)
    words[-1] |= crc16(words)
    return words


def xtrp_word(t: dict[str, int]) -> int:
    return t["wedge"] | t["pixel"] << 9 | t["pt"] << 16 | t["sign"] << 21 | t["isolated"] << 22


def svt_words(t: dict[str, int]) -> list[int]:
    w0 = t["phi"] | 32 << 13 | t["d"] << 19 | t["d_sign"] << 28
    return [w0, t["c"] | t["c_sign"] << 8 | t["chi2"] << 9 | t["number"] << 20]


def muon_word(s: dict[str, int]) -> int:
    return s["phi"] | s["types"] << 8 | s["track"] << 12 | s["charge"] << 20 | s["pt"] << 21
