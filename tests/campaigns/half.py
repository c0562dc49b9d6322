"""Half: operators of float16 and bfloat16, with numbers large and small, against the same operators of float32.

In       a case
Out      right, or Wrong with the operator, its shape and the element that is worst
Next     hcq/frontend/ops/base.py (`in_float`, `in_float_together`), tests/frontend/test_half.py (what was found)

A 16-bit operator computes inside in float32 and rounds once: so its result is the float32 operator's, of the same
numbers, rounded. The reference is PyTorch in float32, where it is installed, else our own. An operator is written once,
and called with PyTorch's functions and with ours. Gradients round at each operator on their way, so they may be a few
steps of the format away from the float32 ones, of the size of the largest.
"""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

HAS_TORCH = importlib.util.find_spec("torch") is not None
STEPS = {"float16": (2.0**-10, 2.0**-24, 65504.0), "bfloat16": (2.0**-7, 2.0**-133, 3.3895e38)}
SCALES = (0.001, 0.05, 1.0, 1.0, 30.0, 400.0)
SLOPE_STEPS = 8.0  # that a gradient may be off
NUMBERS = (3.7, 0.1, -2.3, 1001, 1e-3)

Of = Callable[[Any, "Drawn", Any, Any, Any], Any]


class Drawn(NamedTuple):
    """What else a case draws: a number that 16 bits cannot hold, and an axis."""

    number: float
    axis: int


def _pool(rank: int, kind: str) -> Of:
    return lambda T, d, x, y, z: getattr(T.nn.functional, f"{kind}{rank}d")(x, 2)


ROWS: dict[str, Of] = {
    "x + c": lambda T, d, x, y, z: x + d.number,
    "c - x": lambda T, d, x, y, z: d.number - x,
    "x * c": lambda T, d, x, y, z: x * d.number,
    "x / c": lambda T, d, x, y, z: x / d.number,
    "x ** c": lambda T, d, x, y, z: x.abs() ** abs(min(d.number, 4.5)),
    "x * 0-d": lambda T, d, x, y, z: x * T.tensor(d.number),
    "add alpha": lambda T, d, x, y, z: T.add(x, y, alpha=d.number),
    "sub alpha": lambda T, d, x, y, z: T.sub(x, y, alpha=d.number),
    "addcmul": lambda T, d, x, y, z: T.addcmul(x, y, z, value=d.number),
    "addcdiv": lambda T, d, x, y, z: T.addcdiv(x, y, z, value=d.number),
    "lerp": lambda T, d, x, y, z: T.lerp(x, y, 0.37),
    "leaky_relu": lambda T, d, x, y, z: T.nn.functional.leaky_relu(x, 0.3),
    "selu": lambda T, d, x, y, z: T.nn.functional.selu(x),
    "hardswish": lambda T, d, x, y, z: T.nn.functional.hardswish(x),
    "softsign": lambda T, d, x, y, z: T.nn.functional.softsign(x),
    "glu": lambda T, d, x, y, z: T.nn.functional.glu(x, -1),
    "norm": lambda T, d, x, y, z: x.norm(),
    "norm of rows": lambda T, d, x, y, z: x.norm(2, -1),
    "norm 3": lambda T, d, x, y, z: x.norm(3, -1),
    "std": lambda T, d, x, y, z: x.std(d.axis),
    "var": lambda T, d, x, y, z: x.var(d.axis),
    "mean": lambda T, d, x, y, z: x.mean(d.axis),
    "logsumexp": lambda T, d, x, y, z: x.logsumexp(d.axis),
    "softmax": lambda T, d, x, y, z: x.softmax(d.axis),
    "log_softmax": lambda T, d, x, y, z: x.log_softmax(d.axis),
    "normalize": lambda T, d, x, y, z: T.nn.functional.normalize(x),
    "cosine_similarity": lambda T, d, x, y, z: T.nn.functional.cosine_similarity(x, y),
    "pairwise_distance": lambda T, d, x, y, z: T.nn.functional.pairwise_distance(x, y),
    "cdist": lambda T, d, x, y, z: T.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
    "dist": lambda T, d, x, y, z: T.dist(x, y),
    "renorm": lambda T, d, x, y, z: T.renorm(x, 2, 0, 1.0),
    "layer_norm": lambda T, d, x, y, z: T.nn.functional.layer_norm(x, (8,), z[0], y[0]),
    "batch_norm": lambda T, d, x, y, z: T.nn.functional.batch_norm(x, None, None, z[0], y[0], training=True),
    "instance_norm": lambda T, d, x, y, z: T.nn.functional.instance_norm(x[None]),
    "group_norm": lambda T, d, x, y, z: T.nn.functional.group_norm(x, 2, z[0], y[0]),
    "local_response_norm": lambda T, d, x, y, z: T.nn.functional.local_response_norm(x[None], 3),
    "avg_pool1d": lambda T, d, x, y, z: _pool(1, "avg_pool")(T, d, x[None], y, z),
    "avg_pool2d": lambda T, d, x, y, z: _pool(2, "avg_pool")(T, d, x[None, None], y, z),
    "adaptive_avg_pool1d": lambda T, d, x, y, z: _pool(1, "adaptive_avg_pool")(T, d, x[None], y, z),
    "lp_pool1d": lambda T, d, x, y, z: T.nn.functional.lp_pool1d(x.abs()[None], 2.0, 4),
    "linear": lambda T, d, x, y, z: T.nn.functional.linear(x, y, z[:, 0]),
    "addmm": lambda T, d, x, y, z: T.addmm(z[:, :1], x, y.T, beta=0.5, alpha=d.number),
    "attention": lambda T, d, x, y, z: T.nn.functional.scaled_dot_product_attention(
        x[None], y[None], z[None]
    ),
    "mse_loss": lambda T, d, x, y, z: T.nn.functional.mse_loss(x, y),
    "smooth_l1_loss": lambda T, d, x, y, z: T.nn.functional.smooth_l1_loss(x, y, beta=0.3),
    "huber_loss": lambda T, d, x, y, z: T.nn.functional.huber_loss(x, y, delta=0.3),
    "kl_div": lambda T, d, x, y, z: T.nn.functional.kl_div(x, y.abs(), reduction="batchmean"),
    "bce_with_logits": lambda T, d, x, y, z: T.nn.functional.binary_cross_entropy_with_logits(
        x, (y > 0).to(x.dtype)
    ),
    "triplet": lambda T, d, x, y, z: T.nn.functional.triplet_margin_loss(x, y, z),
    "cov": lambda T, d, x, y, z: x.cov(),
}
KINKS = frozenset({"renorm", "triplet", "smooth_l1_loss", "huber_loss", "leaky_relu", "hardswish"})


def run(case: Case) -> Outcome:
    """One operator of one format, its values and, mostly, its gradients."""
    import hcq

    rng = case.rng()
    name = rng.choice(list(ROWS))
    dtype = rng.choice(list(STEPS))
    drawn = Drawn(rng.choice(NUMBERS), rng.choice((0, 1)))
    arrays = [_numbers(rng, dtype) for _ in range(3)]
    words = f"{name} of {dtype}, {drawn}, of {[float(np.abs(a).max()) for a in arrays]} at most"
    narrow = [hcq.tensor(a).to(getattr(hcq, dtype)).detach().requires_grad_() for a in arrays]
    wide = [hcq.tensor(a).requires_grad_() for a in arrays]
    got = ROWS[name](hcq, drawn, *narrow)
    if got.dtype is not getattr(hcq, dtype):
        raise Wrong(f"{words}: the result is {got.dtype}")
    own = ROWS[name](hcq, drawn, *wide)
    # weights of attention are rounded before they are multiplied, as in every fused attention
    more = STEPS[dtype][0] * float(np.abs(arrays[2]).max()) if name == "attention" else 0.0
    want = _by_torch(name, drawn, arrays) if HAS_TORCH else own.numpy()
    _compare(words, got, want, dtype, 1.0, False, more)
    if name not in KINKS:
        weights = hcq.tensor(
            np.random.default_rng(rng.randrange(99)).integers(1, 4, got.shape).astype("float32")
        )
        (got.float() * weights).sum().backward()
        (own * weights).sum().backward()
        for mine, its in zip(narrow, wide, strict=True):
            if its.grad is not None:
                _compare(f"{words}, a gradient", mine.grad, its.grad.numpy(), dtype, SLOPE_STEPS, True)
    return Outcome.RIGHT


def _numbers(rng: random.Random, dtype: str) -> np.ndarray:
    """A matrix of numbers that the format holds, as float32."""
    draw = np.random.default_rng(rng.randrange(1 << 30)).standard_normal((4, 8)) * rng.choice(SCALES)
    return _rounded(draw.astype(np.float32), dtype)


def _rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Rounded to the format, as float32."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    even = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    kept = even.astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), kept, values).astype(np.float32)


def _by_torch(name: str, drawn: Drawn, arrays: list[np.ndarray]) -> np.ndarray:
    import torch

    found: np.ndarray = ROWS[name](torch, drawn, *[torch.from_numpy(a) for a in arrays]).numpy()
    return found


def _compare(
    words: str, got: Any, want: np.ndarray, dtype: str, steps: float, is_slope: bool, more: float = 0.0
) -> None:
    """Within so many steps of the format of each number, or of the largest; beyond the format it may be infinite."""
    step, least, most = STEPS[dtype]
    have = np.asarray(got.float().numpy(), np.float64)
    want = np.asarray(want, np.float64)
    fits = np.isfinite(want) & (np.abs(want) < most * (1.0 - 2.0 * steps * step))
    size = np.max(np.abs(want[fits]), initial=0.0) if is_slope else np.abs(want)
    if is_slope and not fits.all():
        return  # what is infinite on its way is no number to compare with
    # two float32 ways to a result differ by some of their own last bits, which may be all that is left of a difference
    room = steps * np.maximum(size * step, least) + 1e-5 * np.max(np.abs(want[fits]), initial=0.0)
    room = room + more
    with np.errstate(invalid="ignore"):
        off = np.where(fits, np.abs(have - want), 0.0)
    off = np.where(np.isnan(off), math.inf, off)
    if np.any(off > room):
        place = int(np.argmax(np.where(off > room, off, 0.0)))
        raise Wrong(f"{words}: element {place} is {have.flat[place]:.6g} instead of {want.flat[place]:.6g}")


CAMPAIGNS = (
    Campaign("half", "operators of 16-bit floats, large and small numbers, against float32", run, short=30),
)
