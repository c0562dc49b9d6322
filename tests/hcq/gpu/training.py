"""A small training on one CPU device and on many emulated GPUs at once; test_training.py runs this in a process.

In       argv: the HCQ_EMULATE words, all of one vendor; HCQ_AMD_QUEUE, HCQ_NV_RENDERER from the environment
Out      one line of JSON: device -> losses, the CPU's first
Changes  nothing outside the process
"""

from __future__ import annotations

import json
import os
import sys

os.environ["HCQ_EMULATE"] = sys.argv[1]

import numpy as np

from hcq import Tensor, jit, nn

STEPS = 3
rng = np.random.default_rng(5)
IMAGES = rng.standard_normal((STEPS, 8, 1, 6, 6)).astype(np.float32)
LABELS = rng.integers(0, 4, (STEPS, 8)).astype(np.int64)


class Net(nn.Module):
    def __init__(self, device: str) -> None:
        self.conv = nn.Conv2d(1, 4, 3, device=device)
        self.linear = nn.Linear(16, 4, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.conv(x).relu().max_pool2d(2).flatten(1))


def losses(device: str) -> list[float]:
    Tensor.manual_seed(3)
    net = Net(device)
    optimizer = nn.optim.Adam(net.parameters(), lr=1e-2)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(images).cross_entropy(labels)
        loss.backward()
        optimizer.step()
        return loss.realize()

    run = jit(step)
    return [
        float(run(Tensor(x, device=device), Tensor(y, device=device)).item()) for x, y in zip(IMAGES, LABELS)
    ]


if __name__ == "__main__":
    words = sys.argv[1].split(",")
    kind = words[0].partition(":")[0].upper()
    names = ["CPU", *(f"{kind}:{index}" if index else kind for index in range(len(words)))]
    print(json.dumps({name: losses(name) for name in names}))
