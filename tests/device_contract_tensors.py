"""Tensors of many kinds on the device that HCQ_DEVICE names: device_contract.py compares them with the CPU's.

In       HCQ_DEVICE and the like from the environment
Out      one line of JSON: what was computed -> its numbers
"""

from __future__ import annotations

import json
from typing import Any

import hcq
from hcq import Tensor, dtypes, jit, nn
from hcq.frontend.core import device as devices


def found() -> dict[str, Any]:
    Tensor.manual_seed(3)
    x = Tensor([[1.5, -2.0, 0.25], [3.0, 4.0, -0.5]], requires_grad=True)
    wide = Tensor.arange(96).reshape(8, 12).cast(dtypes.float32) / 8
    large = Tensor.arange(5000).cast(dtypes.int32)
    values: dict[str, Tensor] = {
        "product": (wide @ wide.T).relu().sum(dim=1),
        "softmax": x.softmax(-1),
        "moved": wide.reshape(4, 24).T.flip(0)[3:9, 1:],
        "integers": (wide * 100).cast(dtypes.int32) // 7 % 5,
        "divided": hcq.tensor([7, -7, 7, -7, 5]) // hcq.tensor([2, 2, -2, -2, 0]),
        "shifted": (hcq.tensor([7, -7, 1 << 30]) << hcq.tensor([3, 1, 2])) >> hcq.tensor([1, 40, 0]),
        "saturated": Tensor([3.9, -3.9, 1e20, float("nan")]).cast(dtypes.int32),
        "bytes": (large.cast(dtypes.uint8) * 3 + 7).cast(dtypes.int32).sum(),
        "wrapped": (large * 123456789).sum(),
        "half": (x.cast(dtypes.float16) + 0.5).sum(0),
        "bfloat16": x.cast(dtypes.bfloat16) * 1.01,
        "chosen": (x > 0).where(x.exp(), x.sin()),
        "extremes": x.max(0).values,
        "places": x.argmax(1),
        "sums so far": wide.cumsum(1)[3],
        "sorted": (large * 7919 % 5003).sort(0)[0][::97],
        "picked": wide[hcq.tensor([5, 0, 5])].sum(1),
        "convolved": nn.Conv2d(1, 2, 3)(wide.reshape(1, 1, 8, 12)).max_pool2d(2),
    }
    if devices.target(x.device).has_float64:
        values["double"] = x.cast(dtypes.float64).exp() / 3
    made = {name: value.tolist() for name, value in values.items()}
    (x * x).sum().backward()
    assert x.grad is not None
    made["gradient"] = x.grad.tolist()
    step = jit(lambda a: (a * 2 + 1).sum().realize())
    made["recorded"] = [step(Tensor([1.0, 2.0, float(i)])).item() for i in range(5)]
    return made


if __name__ == "__main__":
    print(json.dumps(found()))
