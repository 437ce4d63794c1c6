"""The oracle against numbers worked out by hand."""

import json
import unittest

from oracle.__main__ import compare
from oracle.encoding import COS, SIN, Object, crc16, items_of, limited, packet, phi13, round_half_away
from oracle.menu import Menu, decode, threshold

HEADER = {"l2_buffer": 1, "bunch": 7, "run": 3, "lumi": 2, "time": 99, "trigger": 1}
MENU = {
    "beam_spot": ["746 um", "422 um"],
    "path": [
        {"name": "Z", "bit": 0, "l1": [3], "cut": "dimuon", "pt_min": "1.5 GeV", "charge": "opposite"},
        {"name": "MB", "bit": 9, "l1": [0], "cut": "min_bias", "prescale": 2},
    ],
}


def muon(pt: float, phi: float, charge: float, eta: float = 0.1, dxy: float = 0.0) -> Object:
    return Object("muon", pt, eta, phi, charge, dxy, 0.0, 0.0)


class Encoding(unittest.TestCase):
    def test_rounding_is_half_away_from_zero(self):
        values = [0.5, -0.5, 2.5, 0.49999999999999994, -1.2]
        self.assertEqual([round_half_away(v) for v in values], [1, -1, 3, 0, -1])

    def test_angles(self):
        self.assertEqual(phi13(-1e-9), 0)
        self.assertEqual(phi13(-3.14159265), 4096)
        self.assertEqual((SIN[2048], COS[4096], SIN[0]), (32768, -32768, 0))

    def test_crc_check_value(self):
        # The published check value is for nine bytes; this one is for the word "1234" alone.
        self.assertEqual(crc16([int.from_bytes(b"1234", "big")]), 0x5349)

    def test_track_words(self):
        items = items_of([muon(40.0, 0.0, -1.0, dxy=-0.0746)])
        self.assertEqual(items.svt[0]["c"], 5)
        self.assertEqual((items.svt[0]["d"], items.svt[0]["d_sign"], items.svt[0]["c_sign"]), (75, 1, 1))
        self.assertEqual(items.muons[0]["types"], 3)
        self.assertEqual(items_of([muon(40.0, 0.0, 1.0, dxy=178.0)]).svt[0]["d"], 511)

    def test_limit_drops_the_lowest_of_the_first_list(self):
        objects = [muon(5.0, 0.1, 1.0), muon(9.0, 0.2, 1.0), muon(5.0, 0.3, 1.0)]
        items = items_of(objects)
        full = 6 + 4 + 7 + 4 + 3 + 1
        self.assertFalse(limited(items, full))
        self.assertTrue(limited(items, full - 1))
        self.assertEqual([track["pt"] for track in items.xtrp], [10, 18])
        self.assertEqual(len(items.svt), 3)


class Decisions(unittest.TestCase):
    def test_thresholds_are_exact(self):
        self.assertEqual(threshold("5.5 GeV", "energy"), 5500)
        self.assertEqual(threshold("1 mm", "length"), 1000)
        with self.assertRaises(ValueError):
            threshold("0.5 um", "length")

    def test_every_unit_of_the_configuration_is_known(self):
        for kind, units in {
            "energy": {"1500 keV": None, "2000 keV": 2, "3 MeV": 3, "1.5 GeV": 1500, "0.02 TeV": 20_000},
            "length": {"500 nm": None, "7000 nm": 7, "8 um": 8, "8 µm": 8, "1.2 cm": 12_000, "0.1 m": 100_000},
            "angle": {"0.5 mdeg": None, "250 mdeg": 250, "2.5 deg": 2500, "0": 0},
            "time": {"0.5 ns": None, "25 ns": 25, "3 us": 3000, "3 µs": 3000, "2 ms": 2_000_000},
        }.items():
            for text, value in units.items():
                with self.subTest(text):
                    if value is None:
                        self.assertRaises(ValueError, threshold, text, kind)
                    else:
                        self.assertEqual(threshold(text, kind), value)
        times = [threshold(text, "time") for text in ("2 s", "3 min", "0.5 h")]
        self.assertEqual(times, [2 * 10**9, 180 * 10**9, 1800 * 10**9])
        for text in ("5", "1 Hz", ""):
            self.assertRaises(ValueError, threshold, text, "length")

    def test_dimuon_and_prescale(self):
        menu = Menu(MENU)
        words = packet([muon(30.0, 0.0, 1.0), muon(30.0, 3.0, -1.0)], HEADER, 5, 510)
        self.assertEqual(menu.decide(decode(words)), (0x201, 0x201))
        self.assertEqual(menu.decide(decode(words)), (0x201, 0x001))
        same = packet([muon(30.0, 0.0, 1.0), muon(30.0, 3.0, 1.0)], HEADER, 5, 510)
        self.assertEqual(menu.decide(decode(same))[0], 0x200)

    def test_a_wrong_bit_is_a_difference(self):
        objects = [["muon", 30.0, 0.1, 0.0, 1.0, 0.0, 0.0, 0.0]]
        words = packet([muon(30.0, 0.0, 1.0)], HEADER, 0, 510)
        line = {
            "index": 0,
            "trigger": "1",
            "header": {key: HEADER[key] for key in HEADER if key != "trigger"},
            "objects": objects,
            "packet": [f"{word:08x}" for word in words],
            "before": f"{0x200:032x}",
            "after": f"{0x200:032x}",
        }
        config = {"trigger": MENU}
        # eta 0.1 is not a single-precision number, so the words hold for the narrowed value too.
        self.assertEqual(compare(config, [json.dumps(line)], None)["differences"], 0)
        wrong = {**line, "after": f"{0x201:032x}"}
        self.assertEqual(compare(config, [json.dumps(wrong)], None)["differences"], 1)


if __name__ == "__main__":
    unittest.main()
