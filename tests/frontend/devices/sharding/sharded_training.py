"""One network, trained on the devices that are named, in a process of its own: losses and weights as JSON.

In       argv: "digits" or "small", how many steps, how large a batch, the devices; HCQ_EMULATE from the environment
Out      on stdout {"losses": ..., "weights": ..., "submissions": of the last step, by device, "tally": ...}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "examples"))

from hcq import Tensor, jit, nn  # noqa: E402
from hcq.frontend.core import device as devices  # noqa: E402
from hcq.frontend.devices.collectives.perform import tally  # noqa: E402
from hcq.lifetime import open_devices  # noqa: E402
from hcq.work.peers import companion  # noqa: E402


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 10))


def digits() -> nn.Module:
    from digits import Net

    return Net()


def main(what: str, steps: int, batch: int, names: list[str]) -> dict[str, Any]:
    """Train, with the step recorded from the third one on."""
    group = devices.group(names)
    Tensor.manual_seed(3)
    net = (digits if what == "digits" else small)()
    net.shard(group)
    optimizer = nn.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    rng = np.random.default_rng(0)
    shape = (1, 8, 8) if what == "digits" else (16,)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach().realize()

    losses: list[float] = []
    channels = {name: devices.get(name) for name in devices.members(group)}

    def count() -> dict[str, list[int]]:
        relays = {
            each.name: [each.timeline.submitted] for each in open_devices.devices() if "relay" in each.name
        }
        return {name: submitted(device) for name, device in channels.items()} | relays

    before: dict[str, list[int]] = {}
    for _ in range(steps):
        images = rng.standard_normal((batch, *shape)).astype(np.float32)
        labels = rng.integers(0, 10, batch)
        x, y = Tensor(images).shard(group, 0).realize(), Tensor(labels).shard(group, 0).realize()
        before = count()
        loss = step(x, y)
        after = count()
        losses.append(loss.item())
    counts = {name: [b - a for a, b in zip(before[name], after[name])] for name in before}
    weights = [parameter.numpy().ravel().tolist() for parameter in net.parameters()]
    return {"losses": losses, "weights": weights, "submissions": counts, "tally": str(tally)}


def submitted(device: Any) -> list[int]:
    """Of a device, and of its companion."""
    other = companion(device)
    return [each.timeline.submitted for each in ([device] if other is device else [device, other])]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])))
