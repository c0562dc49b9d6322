"""hcq.torch.cuda: the GPUs, NVIDIA's or AMD's, under the names by which PyTorch's programs ask for them.

In       nothing, or a GPU's word or number
Out      is_available, device_count, synchronize, memory_allocated, ...
Changes  synchronize waits; a question opens the GPUs that it is about; manual_seed starts random numbers over
Next     amp.py, ../device_words.py (what "cuda" means), ../accelerator.py (the same for any GPU), docs/devices.md

What PyTorch keeps to itself between calls, a cache of memory, streams, graphs, is not here: a device has one queue for
tensors, and `jit` records.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from hcq.frontend.amp import GradScaler as GradScaler
from hcq.frontend.core import device as devices
from hcq.frontend.core.device import Word
from hcq.frontend.core.errors import UsageError
from hcq.frontend.torch.device_words import gpu, is_here

OutOfMemoryError = MemoryError
_TENSORS = (
    "FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor "
    "ShortTensor CharTensor ByteTensor BoolTensor"
).split()


def is_available() -> bool:
    """Whether there is such a GPU: `hcq.torch.device("cuda")` opens then.

    >>> hcq.torch.cuda.is_available() in (True, False)
    True
    """
    kind = gpu()
    return kind is not None and is_here(kind)


def device_count() -> int:
    """How many GPUs there are of the kind that "cuda" means.

    >>> (hcq.torch.cuda.device_count() > 0) == hcq.torch.cuda.is_available()
    True
    """
    kind, count = gpu(), 0
    if kind is None:
        return 0
    while is_here(kind if count == 0 else f"{kind}:{count}"):
        count += 1
    return count


def current_device() -> int:
    """The number of the GPU that "cuda" means. Raises UsageError where there is none.

    >>> hcq.torch.cuda.current_device() if hcq.torch.cuda.is_available() else 0
    0
    """
    return _word(None).index or 0


def set_device(device: str | int) -> None:
    """Only the first GPU may be made the one that "cuda" means: others are named where they are used, "cuda:1".

    Raises  UsageError for another

    >>> if hcq.torch.cuda.is_available():
    ...     hcq.torch.cuda.set_device(0)
    """
    if _word(device) != _word(None):
        raise UsageError(
            f"[set_device] {device!r}: name the device where a tensor is made, as device={device!r}, or set HCQ_DEVICE."
        )


def synchronize(device: str | int | None = None) -> None:
    """Wait until a GPU has done all that was submitted to it.

    >>> if hcq.torch.cuda.is_available():
    ...     hcq.torch.cuda.synchronize()
    """
    devices.get(_word(device)).synchronize()


def get_device_name(device: str | int | None = None) -> str:
    """What the GPU is: its architecture, as "gfx1100" or "sm_90".

    >>> if hcq.torch.cuda.is_available():
    ...     assert hcq.torch.cuda.get_device_name()
    """
    return str(devices.get(_word(device)).arch)


def get_device_capability(device: str | int | None = None) -> tuple[int, int]:
    """NVIDIA's two numbers, (9, 0) of an sm_90; of AMD's the same from the name: (11, 0) of a gfx1100.

    >>> if hcq.torch.cuda.is_available():
    ...     assert len(hcq.torch.cuda.get_device_capability()) == 2
    """
    arch = get_device_name(device)
    digits = arch.removeprefix("sm_").removeprefix("gfx").rstrip("abcdef") or "0"
    return (
        (int(digits[:-1] or 0), int(digits[-1]))
        if arch.startswith("sm_")
        else (int(digits[:-2] or 0), int(digits[-2]))
    )


class Properties(NamedTuple):
    """What `get_device_properties` says of a GPU.

    >>> hcq.torch.cuda.Properties("sm_90", 9, 0).major
    9
    """

    name: str
    major: int
    minor: int


def get_device_properties(device: str | int | None = None) -> Properties:
    """name, major and minor of a GPU.

    >>> if hcq.torch.cuda.is_available():
    ...     assert hcq.torch.cuda.get_device_properties().major > 0
    """
    return Properties(get_device_name(device), *get_device_capability(device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 is computed on the GPU: always, on some by way of float32.

    >>> hcq.torch.cuda.is_bf16_supported() == hcq.torch.cuda.is_available()
    True
    """
    return is_available()


def memory_allocated(device: str | int | None = None) -> int:
    """Bytes that tensors, and whatever else has memory of the pool, have on a GPU now. Free blocks do not count.

    >>> if hcq.torch.cuda.is_available():
    ...     assert hcq.torch.cuda.memory_allocated() >= 0
    """
    pool = devices.get(_word(device)).memory
    free = sum(capacity * len(blocks) for capacity, blocks in list(pool.free.items()))
    return int(pool.mapped_bytes - free)


def memory_reserved(device: str | int | None = None) -> int:
    """Bytes that the pool of a GPU has taken from the system, in use or not.

    >>> if hcq.torch.cuda.is_available():
    ...     assert hcq.torch.cuda.memory_reserved() >= hcq.torch.cuda.memory_allocated()
    """
    return int(devices.get(_word(device)).memory.mapped_bytes)


def manual_seed(seed: int) -> None:
    """`hcq.manual_seed`: one seed is every device's.

    >>> hcq.torch.cuda.manual_seed(0)
    """
    importlib.import_module("hcq.frontend.functions.random").manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """`manual_seed`.

    >>> hcq.torch.cuda.manual_seed_all(0)
    """
    manual_seed(seed)


def _word(device: str | int | None) -> Word:
    return devices.canonical("cuda" if device is None else device)


def __getattr__(name: str) -> Any:
    """Constructors named after their dtype, `hcq.torch.cuda.FloatTensor`, and `hcq.torch.cuda.amp`."""
    if name == "amp":
        return importlib.import_module("hcq.frontend.torch.cuda.amp")
    if name not in _TENSORS:
        raise AttributeError(
            f"module 'hcq.torch.cuda' has no attribute {name!r}. A device has one queue for tensors; hcq.jit records."
        )
    return importlib.import_module("hcq.frontend.functions.older").on_gpu(name)
