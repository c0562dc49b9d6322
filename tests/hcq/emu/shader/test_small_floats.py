"""Small float formats: every code comes back, what lies between goes to the nearest, ties to even."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.shader import small_floats
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E4M3_FNUZ, E5M2, E5M2_FNUZ, SmallFloat

FORMATS = {name: kind for name, kind in vars(small_floats).items() if isinstance(kind, SmallFloat)}


@pytest.mark.parametrize("name", FORMATS)
def test_every_number_becomes_its_own_code(name: str) -> None:
    kind = FORMATS[name]
    codes = np.arange(len(kind.values), dtype=np.uint8)
    is_finite = np.isfinite(kind.values)
    assert kind.narrow(kind.values)[is_finite].tolist() == codes[is_finite].tolist()
    assert kind.widen(codes).tobytes() == kind.values.tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_what_lies_between_two_goes_to_the_nearest_and_a_tie_to_the_even_one(name: str) -> None:
    kind = FORMATS[name]
    low, high = (kind.values[first : kind.largest + first].astype(np.float64) for first in (0, 1))
    codes = np.arange(kind.largest)
    middle = (low + high) / 2
    assert kind.narrow(middle).tolist() == (codes + codes % 2).tolist()
    assert kind.narrow(np.nextafter(middle, 0)).tolist() == codes.tolist()
    assert kind.narrow(np.nextafter(middle, np.inf)).tolist() == (codes + 1).tolist()


def test_the_largest_and_what_is_beyond_it_are_those_of_the_standards() -> None:
    largest = {name: float(kind.values[kind.largest]) for name, kind in FORMATS.items()}
    assert largest == {
        "E4M3": 448.0, "E5M2": 57344.0, "E4M3_FNUZ": 240.0, "E5M2_FNUZ": 57344.0,
        "E2M1": 6.0, "E2M3": 7.5, "E3M2": 28.0,
    }  # fmt: skip
    beyond = np.array([np.inf, -1e9, np.nan])
    assert E4M3.narrow(beyond).tolist() == [0x7F, 0xFF, 0x7F]
    assert E4M3.saturating.narrow(beyond).tolist() == [0x7E, 0xFE, 0x7F]
    assert E5M2.narrow(beyond).tolist() == [0x7C, 0xFC, 0x7F]
    assert E5M2.saturating.narrow(beyond).tolist() == [0x7B, 0xFB, 0x7F]
    for kind in (E4M3_FNUZ, E5M2_FNUZ):
        assert kind.narrow(beyond).tolist() == [0x7F, 0xFF, 0x80]
        assert kind.narrow(np.array([-0.0, -1e-9])).tolist() == [0, 0]
    assert E2M1.narrow(beyond).tolist() == [7, 15, 7]
    assert E2M3.narrow(np.array([-0.0])).tolist() == E3M2.narrow(np.array([-0.0])).tolist() == [32]


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_computed_is_what_the_tables_say(name: str) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_000, np.uint64).astype(np.uint32).view(np.float32)
    sizes = (rng.standard_normal(50_000) * 10.0 ** rng.integers(-8, 6, 50_000)).astype(np.float32)
    for kind in (FORMATS[name], FORMATS[name].saturating):
        middle = (kind.values[1:] / 2 + kind.values[:-1] / 2).astype(np.float32)
        near = [np.nextafter(middle, np.float32(way)) for way in (-np.inf, np.inf)]
        for x in (bits, sizes, kind.values, middle, *near):
            with np.errstate(all="ignore"):
                assert kind.computed(x).tolist() == kind.narrow(x).tolist()
