"""torch.device: a function and a type in PyTorch; here the word that a tensor's device is.

In       "cuda:1", "cpu", a number; or a kind and a number
Out      a Word, the name of an open device
Changes  opens the device
Next     ../core/device.py (Word, canonical), device_words.py (what "cuda" means)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.device import Word, canonical


class _Kind(type):
    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, Word)


class device(Word, metaclass=_Kind):
    """The name of a device as tensors have it: `device("cuda:1")`, `device("cuda", 1)`. Opens the device.

    >>> cpu = hcq.torch.device("cpu")
    >>> cpu, cpu.type, isinstance(Tensor([1.0]).device, hcq.torch.device)
    ('CPU', 'cpu', True)
    """

    __slots__ = ()

    def __new__(cls, type: Any, index: int | None = None) -> Any:
        return canonical(type if index is None else f"{type}:{index}")
