"""parallel: PyTorch's wrapper that trains a module on several GPUs, for programs and files of weights that have one.

In       a module
Out      `DataParallel`, the module under `.module`
Next     ../tensor.py (Tensor.shard: several devices of this machine), more/distributed/ (several processes)
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn.module import Module


class DataParallel(Module):
    """The module, called on one device. On several a module is split by `shard`, and a batch, too.

    Raises  UsageError for more than one of device_ids

    >>> net = nn.DataParallel(nn.Linear(2, 1))
    >>> list(net.state_dict()), net(Tensor([[1.0, 2.0]])).shape
    (['module.weight', 'module.bias'], (1, 1))
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        given = device_ids if isinstance(device_ids, (tuple, list)) else [device_ids]
        if len(given) > 1:
            raise UsageError(
                f"[DataParallel] device_ids {shown(device_ids)}: on several devices, split module and batch: "
                "module.shard(devices), x.shard(devices, axis=0)."
            )
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        return self.module(*args, **kwargs)
