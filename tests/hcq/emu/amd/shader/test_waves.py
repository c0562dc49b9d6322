"""Lane masks are the bits of scalar registers, although most are never packed: beside registers that hold only bits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hcq.emu.amd.shader.operands import put
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.waves import EXEC, Batch, by_wave

WAVES, REGISTERS = 3, range(100, 128)


def batch(size: int) -> Batch:
    """Some waves with all lanes on."""
    s = np.zeros((WAVES, 128), np.uint32)
    s[:, EXEC : EXEC + size // 32] = 0xFFFFFFFF
    v = np.zeros((1, WAVES, size), np.uint32)
    residents = cast(Residents, SimpleNamespace(wave_size=size))
    return Batch(residents, 0, 0, np.arange(WAVES), v, s, np.zeros(WAVES, np.bool_))


def bits_of(mask: Any) -> Any:
    """(wave, words), lane 0 lowest."""
    numbers = [sum(int(lane) << i for i, lane in enumerate(row)) for row in mask]
    return np.array([[n >> 32 * word & 0xFFFFFFFF for word in range(mask.shape[1] // 32)] for n in numbers])


@pytest.mark.parametrize("size", [32, 64])
def test_masks_and_scalars_written_in_any_order_are_one_set_of_registers(size: int) -> None:
    rng = np.random.default_rng(size)
    b, expected = batch(size), np.zeros((WAVES, 128), np.uint32)
    expected[:, EXEC : EXEC + size // 32] = 0xFFFFFFFF
    for _ in range(600):
        words = size // 32
        register = int(rng.integers(REGISTERS.start, REGISTERS.stop - words + 1))
        mask = rng.random((WAVES, size)) < 0.5
        what = rng.integers(6)
        if what < 2:
            b.set_mask(register, mask)
            expected[:, register : register + words] = bits_of(mask)
        elif what == 2:
            b.set_exec(mask)
            expected[:, EXEC : EXEC + words] = bits_of(mask)
        elif what == 3:  # as scalar instructions write
            values = rng.integers(0, 1 << 32, WAVES, np.uint32)
            b.forget(register, 1)
            b.scalars[:, register] = expected[:, register] = values
        elif what == 4:
            assert (bits_of(b.mask(register)) == expected[:, register : register + words]).all()
            assert (b.any_bit(register) == expected[:, register : register + words].any(axis=1)).all()
        else:
            even = register & ~1
            assert (b.scalar(register) == expected[:, register]).all()
            assert (
                b.scalar_pair(even).copy().view(np.uint32).reshape(WAVES, 2) == expected[:, even : even + 2]
            ).all()
        if rng.random() < 0.05:
            assert (b.s == expected).all()
            b = b.take(np.arange(WAVES))
    assert (b.s == expected).all()


def test_lanes_that_a_mask_turns_off_are_not_written() -> None:
    b, mask = batch(32), np.zeros((WAVES, 32), np.bool_)
    mask[1, 5] = True
    b.set_exec(mask)
    put(b, b.u32[0], np.full((1, 1), 7, np.uint32))
    assert b.u32[0].sum() == 7 == b.u32[0, 1, 5] and b.scalar(EXEC).tolist() == [0, 1 << 5, 0]


@pytest.mark.parametrize("offset", [0, 16, 32, 48])
def test_registers_that_numpy_laid_out_by_wave_are_copied_unless_they_begin_at_a_cache_line(
    offset: int,
) -> None:
    """Compiled code loads them 64 bytes at a time, and ends the process where they do not."""
    size, registers = 32, 5
    room = np.zeros(registers * WAVES * size * 4 + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    words = room[start : start + registers * WAVES * size * 4].view(np.uint32)
    b = batch(size)
    b.bind(words.reshape(WAVES, registers, size).swapaxes(0, 1))
    assert b.is_by_wave == (offset == 0)
    b.bind(by_wave(b.u32))
    assert b.is_by_wave
