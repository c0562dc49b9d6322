"""A peer's driver on emulated GPUs, computing what NumPy computes, too.

In       argv: words of HCQ_EMULATE, of one vendor
Out      one line of JSON: how far each result is from NumPy's, and the kernel's log
Changes  nothing outside this process
Next     test_other_drivers.py (who runs this in a process), tools/peer/__init__.py (how the peer gets there)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from hcq.tools import peer


def errors(device: str, count: int) -> dict[str, Any]:
    """What was computed: name -> largest difference."""
    from tinygrad import Tensor

    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    large = np.arange(300_000, dtype=np.float32)
    x, y = Tensor(a), Tensor(b)
    found = {
        "copies": np.abs(Tensor(large).to(device).numpy() - large).max(),
        "add": np.abs((x + y).numpy() - (a + b)).max(),
        "matmul": np.abs((x @ y).numpy() - a @ b).max(),
        "sum": np.abs(x.sum(axis=0).numpy() - a.sum(axis=0)).max(),
        "softmax": np.abs(x.softmax().numpy().sum(axis=-1) - 1).max(),
    }
    if count > 1:
        found["second GPU"] = np.abs((x.to(f"{device}:1") + 1).to(device).numpy() - (a + 1)).max()
    return found


if __name__ == "__main__":
    port = peer.install(sys.argv[1:])
    found = errors(sys.argv[1].split(":")[0].upper(), len(sys.argv) - 1)
    print(
        json.dumps(
            {"errors": {name: float(value) for name, value in found.items()}, "log": port.kernel_log()}
        )
    )
