"""Products on a chip of several dies: blocks go to dies in turn, and each die's L2 reads what its own blocks share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hcq import Tensor
from hcq.performance import counters
from hcq.performance.counters import Counters
from tests.compiler.building import emulating

pytestmark = pytest.mark.own_devices

DIES = 8  # of an MI300X


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    with emulating("amd:gfx942"):
        yield


def product(m: int, n: int) -> Counters:
    """What a product of halves does, 64 along the sum, by its first blocks."""
    left, right = (np.zeros(shape, np.float16) for shape in ((m, 64), (64, n)))
    operands = [Tensor(array, device="AMD").realize() for array in (left, right)]
    with counters.count(blocks=DIES) as launches:
        (operands[0] @ operands[1]).numpy()
    (counted,) = [one for one in launches if one.matrix_flops]
    return counted.whole()


@pytest.mark.parametrize(
    ("tiles_down", "tiles_across"), [pytest.param(32, 19, marks=pytest.mark.thorough), (16, 9)]
)
def test_a_product_and_its_transpose_read_as_much_beyond_l2(
    machine: None, tiles_down: int, tiles_across: int
) -> None:
    """Eight dies share out 16 rows of tiles evenly, whether these are rows or columns; 9 they could not."""
    tall = product(128 * tiles_down, 128 * tiles_across)
    wide = product(128 * tiles_across, 128 * tiles_down)
    assert tall.grid_blocks == wide.grid_blocks
    assert tall.beyond_l2_bytes == pytest.approx(wide.beyond_l2_bytes, rel=0.01)
