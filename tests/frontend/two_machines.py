"""The same tensor programs on the CPU device and on an emulated GPU; test_two_machines.py runs this in a process.

In       argv: what to emulate (amd:gfx1100), the device's name (AMD)
Out      one line of JSON: case -> "" where the machines agree, else what differs
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

os.environ["HCQ_EMULATE"] = sys.argv[1]

from hcq import Tensor, dtypes, jit, nn

rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


A, B, IMAGE = floats(17, 33), floats(33, 9), floats(2, 3, 8, 8)
INTEGERS = rng.integers(-50, 50, (17, 33)).astype(np.int32)
BYTES = rng.integers(0, 255, 40).astype(np.uint8)

CASES = {
    "add": (lambda x: x + 1, A),
    "matmul": (lambda x, y: x @ y, A, B),
    "softmax": (lambda x: x.softmax(1), A),
    "layer_norm": (lambda x: x.layer_norm((33,)), A),
    "exp": (lambda x: x.exp(), A),
    "log": (lambda x: (x.abs() + 0.1).log(), A),
    "sin": (lambda x: (x * 10).sin(), A),
    "gelu": (lambda x: x.gelu(), A),
    "column sums": (lambda x: x.sum(0), A),
    "all of it": (lambda x: x.sum(), A),
    "extremes": (lambda x: x.amax(1) - x.amin(1), A),
    "argmax": (lambda x: x.argmax(1), A),
    "std": (lambda x: x.std(1), A),
    "prod": (lambda x: x.prod(0), A),
    "cumsum": (lambda x: x.cumsum(1), A),
    "sort": (lambda x: x.sort(1)[0], A[:4]),
    "floor division": (lambda x: x // 7, INTEGERS),
    "division by zero": (lambda x: x // (x % 3), INTEGERS),
    "remainder": (lambda x: x % -7, INTEGERS),
    "shifts": (lambda x: (x << 3) >> 2, INTEGERS),
    "int64": (lambda x: (x.cast(dtypes.int64) * 123456789012) // 1000, INTEGERS),
    "uint8 wraps": (lambda x: x * 3 + 7, BYTES),
    "saturating cast": (lambda x: x.cast(dtypes.int8), A * 100),
    "float16": (lambda x: x.cast(dtypes.float16) * 3, A),
    "sum of what is narrowed on the way": (lambda x: (x * 4).trunc().cast(dtypes.float16).sum(), A),
    "bfloat16 product": (lambda x: x.cast(dtypes.bfloat16) @ x.cast(dtypes.bfloat16).T, A),
    "float64": (lambda x: x.cast(dtypes.float64).exp() / 3, A),
    "8-bit float": (lambda x: x.cast(dtypes.fp8e4m3).cast(dtypes.float32), A),
    "convolution": (lambda x, w: x.conv2d(w, padding=1), IMAGE, floats(4, 3, 3, 3)),
    "pooling": (lambda x: x.max_pool2d(2), IMAGE),
    "picks": (lambda x: x[[3, 1, 5]], A),
    "views": (lambda x: Tensor.cat([x.flip(0).T, x.T * 2], 0), A),
    "where": (lambda x: (x > 0).where(x, -x * 2), A),
}


def compare(function, arrays) -> str:
    results = []
    for device in ("CPU", sys.argv[2]):
        result = function(*[Tensor(array, device=device) for array in arrays])
        results.append((result.float() if result.dtype.is_float else result).numpy())
    want, got = results
    if np.allclose(got, want, rtol=1e-5, atol=1e-5, equal_nan=True):
        return ""
    return f"differs by up to {np.abs(got.astype(np.float64) - want.astype(np.float64)).max()}"


def losses(device: str, recorded: bool) -> list[float]:
    """A few steps of a small convolutional network."""
    Tensor.manual_seed(0)
    start = [floats(4, 1, 3, 3), floats(10, 64)]
    weights = [Tensor(w * 0.3, device=device).requires_grad_() for w in start]
    optimizer = nn.optim.Adam(weights, lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        hidden = x.conv2d(weights[0], padding=1).relu().max_pool2d(2)
        loss = (hidden.flatten(1) @ weights[1].T).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    if recorded:
        step = jit(step)
    x = Tensor(floats(8, 1, 8, 8), device=device)
    y = Tensor(np.arange(8), device=device)
    return [step(x, y).item() for _ in range(4)]


found = {name: compare(function, arrays) for name, (function, *arrays) in CASES.items()}
for recorded in (False, True):
    rng = np.random.default_rng(1)
    want = losses("CPU", recorded)
    rng = np.random.default_rng(1)
    got = losses(sys.argv[2], recorded)
    same = np.allclose(got, want, rtol=1e-4)
    found["training, recorded" if recorded else "training"] = (
        "" if same else f"losses {got} instead of {want}"
    )
print(json.dumps(found))
