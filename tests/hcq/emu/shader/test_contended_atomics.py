"""Atomics of many threads at few addresses: served many at a time, they end as if served one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.emu.amd.shader import atomic_ops as amd
from hcq.emu.nv.shader import atomic_ops as nv
from hcq.emu.nv.shader.decode import Code, Lowering
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.types import TYPES
from hcq.emu.shader import contended_atomics

MODULE = parse(
    ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k() { .reg .b32 %r<4>; mov.b32 %r0, 1; ret; }"
)
FUNCTION = MODULE.functions["k"]
CODE = Code(Lowering(MODULE, FUNCTION, set()), FUNCTION.body[0])


def of_nvidia() -> list[Any]:
    names = {
        "b32": "and or xor exch cas",
        "b64": "and or xor exch cas",
        "u32": "add min max inc dec",
        "s32": "min max",
        "u64": "add min max",
        "s64": "min max",
        "f32": "add",
        "f64": "add",
        "f16": "add",
        "bf16": "add",
        "f16x2": "add",
        "bf16x2": "add",
    }
    return [
        pytest.param(
            TYPES[kind].bits, nv.operation_of(CODE, name, TYPES[kind]), TYPES[kind], id=f"{name}.{kind}"
        )
        for kind, all_of_it in names.items()
        for name in all_of_it.split()
    ]


def of_amd() -> list[Any]:
    names = "swap_b32 add_u32 sub_u32 rsub_u32 condsub_u32 csub_u32 min_i32 max_u32 and_b32 or_b32 xor_b32 inc_u32"
    names += " dec_u32 cmpswap_b32 mskor_b32 wrap_b32 pk_add_f16 pk_add_bf16 add_f32 add_f64 min_f32 max_f32 min_f64"
    names += " add_x2 smin_x2 umax_x2 cmpswap_x2 inc_x2 cmpst_f32 cmpst_f64"
    return [pytest.param(amd.parse_atomic(name), id=name) for name in names.split()]


def numbers(bits: Any, type_name: str = "") -> st.SearchStrategy[Any]:
    """Bits that meet often: small numbers, the ends of the range, floats with NaN, infinity and both zeros."""
    limit = int(np.iinfo(bits).max)
    small = st.integers(0, 6)
    floats = [0.0, -0.0, 0.1, -2.5, 3e38, np.inf, -np.inf, np.nan, 1e-40, 65504.0]
    width = np.dtype(bits).itemsize
    kinds = {2: np.float16, 4: np.float32, 8: np.float64}
    with np.errstate(all="ignore"):
        as_floats = np.array(floats).astype(kinds[width]).view(bits).tolist()
    return st.one_of(small, st.integers(limit - 3, limit), st.sampled_from(as_floats), st.integers(0, limit))


@st.composite
def meetings(draw: Any, bits: Any) -> tuple[Any, Any, Any, Any]:
    """(addresses, what stands there by address, x, y)."""
    addresses = draw(st.sampled_from([1, 2, 5, 90]))
    count = draw(st.integers(1, 150))
    seed = draw(st.integers(0, 2**32 - 1))
    keys = np.random.default_rng(seed).integers(0, addresses, count).astype(np.uint64)
    pool = np.array(draw(st.lists(numbers(bits), min_size=1, max_size=8)), bits)
    pick = np.random.default_rng(seed + 1)
    memory, x, y = (pool[pick.integers(0, len(pool), size)] for size in (addresses, count, count))
    return keys, memory, x, y


def one_by_one(keys: Any, memory: Any, x: Any, y: Any, turn: Any) -> tuple[Any, Any]:
    """The slow way: a thread at a time."""
    memory, found = memory.copy(), np.empty(len(keys), memory.dtype)
    for thread, key in enumerate(keys.tolist()):
        found[thread] = memory[key]
        one = slice(thread, thread + 1)
        memory[key : key + 1] = turn(memory[key : key + 1], x[one], y[one])
    return found, memory


def check(keys: Any, memory: Any, x: Any, y: Any, turn: Any, run: Any) -> None:
    with np.errstate(all="ignore"):
        queues = contended_atomics.Queues(keys)
        places = keys[queues.firsts]
        found, at_the_end = queues.serve(memory[places], x, y, turn, run)
        slow_found, slow_end = one_by_one(keys, memory, x, y, turn)
    bits = np.dtype(f"u{memory.itemsize}")
    assert found.view(bits).tolist() == slow_found.view(bits).tolist()
    assert at_the_end.view(bits).tolist() == slow_end[places].view(bits).tolist()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("bits, operation, type_", of_nvidia())
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_threads_of_an_nvidia_gpu_find_what_they_find_one_by_one(
    bits: Any, operation: Any, type_: Any, data: Any
) -> None:
    keys, memory, x, y = data.draw(meetings(bits))
    if (
        type_.is_float and type_.packed == 1 and type_.size_bytes >= 4
    ):  # which NaN a sum is, is the host's choice
        memory, x = (np.where(np.isnan(part.view(type_.scalar)), bits(0), part) for part in (memory, x))
    check(keys, memory, x, y, operation.update, operation.run)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("atomic", of_amd())
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_lanes_of_an_amd_gpu_find_what_they_find_one_by_one(atomic: Any, data: Any) -> None:
    bits = np.dtype(f"u{np.dtype(atomic.dtype).itemsize}").type
    keys, memory, x, y = (
        part.view(atomic.dtype) if index else part for index, part in enumerate(data.draw(meetings(bits)))
    )
    # which of two NaNs stays is the host's choice
    if atomic.name in ("add", "fmin", "fmax") and np.dtype(atomic.dtype).kind == "f":
        only = atomic.dtype(0 if atomic.name == "add" else np.nan)
        memory, x = (np.where(np.isnan(part), only, part) for part in (memory, x))
    if atomic.name.startswith("pk_add"):
        memory, x = (np.where(_has_nan(part, atomic.name), np.uint32(0), part) for part in (memory, x))
    check(keys, memory, x, y, atomic.combine, atomic.run)


def _has_nan(words: Any, name: str) -> Any:
    halves = words.view(np.uint16).reshape(-1, 2)
    exponent = np.uint16(0x7C00 if name.endswith("f16") and not name.endswith("bf16") else 0x7F80)
    return ((halves & exponent == exponent) & (halves & ~exponent & np.uint16(0x7FFF) != 0)).any(axis=1)


def test_float_sums_keep_the_order_of_the_threads() -> None:
    """1e8 + 1 + ... + 1 stays 1e8 in float32, and 1 + ... + 1 + 1e8 does not."""
    operation = nv.operation_of(CODE, "add", TYPES["f32"])
    ones = np.ones(200, np.float32)
    for values, total in (
        (np.concatenate(([np.float32(1e8)], ones)), 1e8),
        (np.concatenate((ones, [np.float32(1e8)])), 100000200.0),
    ):
        keys = np.zeros(len(values), np.uint64)
        x = values.astype(np.float32).view(np.uint32)
        _, end = contended_atomics.Queues(keys).serve(
            np.zeros(1, np.uint32), x, x, operation.update, operation.run
        )
        assert end.view(np.float32)[0] == np.float32(total)
