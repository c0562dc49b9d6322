"""Words of devices: what PyTorch's programs call a device, and which one here that is.

In       what PyTorch calls a device: "cuda", "cuda:1", "mps", a number
Out      the name here of what PyTorch calls "cuda" and "mps", and the other way round
Changes  nothing; a question which GPU there is opens it
Next     device.py (Word; canonical, who asks), torch/cuda/ (hcq.torch.cuda), torch/device.py (hcq.torch.device("cuda"))

"cuda" is a GPU of NVIDIA or of AMD, as PyTorch builds for ROCm have it: the default device where that is one, and
else the first kind that is here.
"""

from __future__ import annotations

from hcq import config
from hcq.errors import DriverError, UsageError
from hcq.lifetime import open_devices
from hcq.lifetime import opening as drivers

CUDA = ("NV", "AMD")  # in the order in which they are looked for
THEIRS = {"CUDA": CUDA, "HIP": CUDA, "MPS": ("METAL",)}  # PyTorch's word -> kinds of device here
TYPES = {kind: word.lower() for word, kinds in THEIRS.items() for kind in kinds if word != "HIP"}


def is_here(kind: str) -> bool:
    """Whether a device of that kind opens; whoever has it open needs not try."""
    if kind in open_devices.by_name:
        return True
    try:
        drivers.open(kind)
    except (DriverError, UsageError):
        return False
    return True


def gpu(kinds: tuple[str, ...] = CUDA) -> str | None:
    """The kind of GPU that is meant by a word of PyTorch's; None where there is none of these."""
    preferred = config.current().device.upper().partition(":")[0]
    if preferred in kinds:
        return preferred
    return next((kind for kind in kinds if is_here(kind)), None)


def type_of(kind: str) -> str:
    """PyTorch's word for a kind of device."""
    return TYPES.get(kind, kind.lower())


def spelled(name: object) -> object:
    """A name of PyTorch's as one of ours: "cuda:1" as "NV:1"; a number counts GPUs. Other names as they are.

    Raises  UsageError where there is no such GPU
    """
    if isinstance(name, int) and not isinstance(name, bool):
        name = f"cuda:{name}"
    if not isinstance(name, str):
        return name
    kind, colon, number = name.partition(":")
    kinds = THEIRS.get(kind.upper())
    if kinds is None:
        return name
    found = gpu(kinds)
    if found is None:
        raise UsageError(
            f'device {name!r}: this machine has no {" or ".join(kinds)} device. Use "CPU", or ask first: '
            "hcq.torch.cuda.is_available(). `python -m hcq doctor` says why one does not open."
        )
    return f"{found}{colon}{number}"
