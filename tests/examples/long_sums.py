"""Sums, extremes, scans and sorts of many numbers on the device that HCQ_DEVICE names, compared with NumPy's.

In       HCQ_DEVICE and the like from the environment
Out      one line of JSON: what -> whether it is right, or why it was refused
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq import Tensor

SIZES = (65535, 65536, 131101, 300007, (1 << 21) + 1)  # round a limit of a driver's loops; odd ones, primes
CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "sum": (lambda x: x.sum(), lambda x: x.sum(dtype=np.int64)),
    "max": (lambda x: x.amax(), lambda x: x.max()),
    "argmax": (lambda x: x.argmax(), lambda x: x.argmax()),
    "cumsum": (lambda x: x.cumsum(0), lambda x: x.cumsum()),
    "rows": (lambda x: x[:-1].reshape(2, -1).sum(1), lambda x: x[:-1].reshape(2, -1).sum(1)),
    "columns": (lambda x: x[:-1].reshape(-1, 2).sum(0), lambda x: x[:-1].reshape(-1, 2).sum(0)),
    "sort": (lambda x: x.sort(0)[0], np.sort),
}


def found() -> dict[str, Any]:
    draw, said = np.random.default_rng(0), {}
    for size in SIZES:
        numbers = draw.integers(-1000, 1000, size + 1 - size % 2).astype(np.int64)
        x = Tensor(numbers).realize()
        for name, (ours, theirs) in CASES.items():
            if name != "sort" or size < 200_000:
                try:
                    said[f"{name} {size}"] = bool((ours(x).numpy() == theirs(numbers)).all())
                except ValueError as refusal:
                    said[f"{name} {size}"] = str(refusal)
    return said


if __name__ == "__main__":
    print(json.dumps(found()))
