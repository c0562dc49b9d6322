"""A few training steps of examples/digits.py, its network on its images, on the device that HCQ_DEVICE names.

In       HCQ_DEVICE, HCQ_EMULATE and the like from the environment
Out      one line of JSON: the loss of each step, all on the same images
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from hcq import Tensor, jit, nn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits.py"
STEPS, BATCH = 4, 8


def example() -> Any:
    spec = importlib.util.spec_from_file_location("digits", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def losses() -> list[float]:
    digits = example()
    images, labels, *_ = digits.load_digits()
    Tensor.manual_seed(0)
    net = digits.Net()
    optimizer = nn.optim.Adam(net.parameters(), lr=0.01)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss.realize()

    x, y = Tensor(images[:BATCH]), Tensor(labels[:BATCH])
    return [float(step(x, y).item()) for _ in range(STEPS)]


if __name__ == "__main__":
    print(json.dumps(losses()))
