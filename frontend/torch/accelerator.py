"""hcq.torch.accelerator: the GPU of this machine, whatever kind it is, under the names by which PyTorch's programs ask.

In       nothing, or a device's word or number
Out      is_available, current_accelerator, device_count, synchronize, ...
Changes  synchronize waits; a question opens the GPUs that it is about
Next     device_words.py (which kinds there are), cuda/ (the same for GPUs of NVIDIA and AMD)
"""

from __future__ import annotations

from hcq.frontend.core import device as devices
from hcq.frontend.core.device import Word
from hcq.frontend.torch.device_words import CUDA, gpu, is_here

KINDS = (*CUDA, "METAL")


def is_available() -> bool:
    """Whether there is a GPU.

    >>> hcq.torch.accelerator.is_available() == (hcq.torch.accelerator.current_accelerator() is not None)
    True
    """
    kind = gpu(KINDS)
    return kind is not None and is_here(kind)


def current_accelerator(check_available: bool = False) -> Word | None:
    """The word of the GPU: of HCQ_DEVICE where that is one, else of the first kind that is here; None without one.

    >>> hcq.torch.accelerator.current_accelerator() in (None, "AMD", "NV", "METAL")
    True
    """
    kind = gpu(KINDS)
    return devices.canonical(kind) if kind is not None and is_here(kind) else None


def device_count() -> int:
    """How many GPUs of that kind there are.

    >>> (hcq.torch.accelerator.device_count() > 0) == hcq.torch.accelerator.is_available()
    True
    """
    kind, count = gpu(KINDS), 0
    while kind is not None and is_here(kind if count == 0 else f"{kind}:{count}"):
        count += 1
    return count


def current_device_index() -> int:
    """The number of the GPU that is used where none is named: the first.

    >>> hcq.torch.accelerator.current_device_index()
    0
    """
    return 0


def synchronize(device: str | int | None = None) -> None:
    """Wait until the GPU has done all that was submitted to it. Without a GPU there is nothing to wait for.

    >>> hcq.torch.accelerator.synchronize()
    """
    word = current_accelerator() if device is None else devices.canonical(device)
    if word is not None:
        devices.get(word).synchronize()
