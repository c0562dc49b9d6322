"""Devices of the tensor layer: names, the open device behind each, and what the compiler should know of it.

In       a name such as "CPU" (any case), or None for the default
Out      the open hcq device, its compiler Target
Changes  opens a device when it is first used, and again after it was closed; calls back those who keep something of one
         that was closed
Next     hcq/device.py (how a device opens), compiler/target.py (what a Target says)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from hcq import backends, config
from hcq.errors import DriverError, UsageError
from hcq.frontend.core import above
from hcq.lifetime import open_devices
from hcq.lifetime import opening as drivers
from hcq.lifetime.dead_device import FORKED

if TYPE_CHECKING:
    from hcq.compiler.target import Target
    from hcq.frontend.core.storage import Storage

on_close: list[Callable[[str], None]] = []  # called with the name of a device that is gone
_open: dict[str, Any] = {}
_targets: dict[str, Target] = {}
_canonical: dict[Any, Word] = {}


class Word(str):
    """The name of a device. It is a string, and answers to `type` and `index` as PyTorch's devices do.

    >>> device = Tensor([1.0], device="CPU").device
    >>> device, device.type, device.index
    ('CPU', 'cpu', None)
    """

    __slots__ = ()

    @property
    def type(self) -> str:
        """PyTorch's word: "cpu"; "cuda" for GPUs of NVIDIA and AMD; "mps" for Metal; another kind in lower case."""
        return above.type_of_device(self.partition(",")[0].partition(":")[0])

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Which of its kind: 0 for the first GPU. None for the first CPU."""
        kind, _, number = self.partition(",")[0].partition(":")
        return int(number) if number else None if kind == "CPU" else 0


def default() -> Word:
    """The device tensors are made on when none is named: HCQ_DEVICE, or CPU."""
    return canonical(config.current().device)


def canonical(name: str | int | None) -> Word:
    """The one spelling of a device's name; opens the device. Raises UsageError naming the known ones.

    name   PyTorch's words, too: "cuda", "cuda:1", "mps", and a number, which counts GPUs
    """
    if name is None:
        return default()
    known = _canonical.get(name) if isinstance(name, (str, int)) else None
    if known is None:
        if isinstance(name, str) and "," in name:
            return _canonical.setdefault(name, Word(_group_of(name.split(","))))
        ours = (
            name if isinstance(name, str) and name[:2].lower() not in ("cu", "hi", "mp") else _spelled(name)
        )
        known = Word(drivers.open(ours).name)
        _canonical[known] = known
        if ours is name:  # what "cuda" means is asked again
            _canonical[name] = known
    return known


def _spelled(name: Any) -> Any:
    """A name of PyTorch's as one of ours; most programs have none."""
    return above.device_spelled(name)


def group(names: Any) -> Word:
    """The one name of several devices, in their order; opens them. Raises UsageError for none, or one named twice."""
    if isinstance(names, str):
        return canonical(names)
    if not isinstance(names, (list, tuple)) or not names:
        raise UsageError(f'devices {names!r}: give a list of names, as ["CPU:0", "CPU:1"].')
    return canonical(names[0]) if len(names) == 1 else Word(_group_of(names))


def _group_of(names: Any) -> str:
    found = [canonical(name.strip() if isinstance(name, str) else name) for name in names]
    for place, name in enumerate(found):
        if is_group(name) or name in found[:place]:
            raise UsageError(
                f"devices {list(names)}: {name} is named twice, or several at once. Name each once."
            )
    return ",".join(found)


def opened(name: str) -> Any:
    """The open device of a canonical name; of a group, all of them, to be compared with those of another time."""
    return tuple([get(member) for member in members(name)]) if is_group(name) else get(name)


def are_several() -> bool:
    """Whether tensors are, or were, on more than one device."""
    return len(_canonical) > 1 and len(set(_canonical.values())) > 1


def is_group(name: str) -> bool:
    """Whether a canonical name stands for several devices."""
    return "," in name


def members(name: str) -> tuple[str, ...]:
    """The devices that a canonical name stands for."""
    return tuple(name.split(","))


def get(name: str) -> Any:
    """The open device of that canonical name; opened when first asked for."""
    device = _open.get(name)
    if device is None:
        if is_group(name):
            raise UsageError(f"{name}: several devices have no one memory or queue. Name one of them.")
        device = _open[name] = drivers.open(name)
        if device.dead:
            _forget(device)  # another thread has closed it meanwhile, and did not see that we have it
    return device


@contextlib.contextmanager
def toolchain() -> Iterator[None]:
    """What the compiler refuses, as errors of ours: DriverError where LLVM is missing, UsageError for a dtype."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        from hcq.compiler.assemble.llvm_cpu import ToolchainError
        from hcq.compiler.passes.promote_floats import StorageOnly

        if isinstance(error, ToolchainError):
            raise DriverError(str(error)) from error
        if isinstance(error, StorageOnly):
            raise UsageError(str(error)) from error
        raise


def _forget(device: Any) -> None:
    """It was closed, or it is our parent's: nothing is kept of it, and the next tensor opens it anew."""
    name: str = device.name
    if _open.get(name) is device:
        del _open[name]
        _targets.pop(name, None)
        for act in on_close:
            act(name)


open_devices.listeners.append(_forget)


def check_values(call: str, storage: Storage) -> None:
    """Raises UsageError when the memory of these values went with the device that was closed, or is our parent's."""
    device = None if storage.buffer is None else storage.buffer.device
    if device is None or not device.dead or device.revive():
        return
    fix = "Make the tensor again; new tensors work, and open the device anew."
    if device.dead == FORKED:
        fix = (
            'Before the fork, move it to the CPU, which the child gets a copy of (x.to("CPU").realize()), or start the '
            'process with multiprocessing\'s "spawn". New tensors work.'
        )
    raise UsageError(
        f"[{call}] the values of a tensor {storage.shape} were in the memory of {device.name}, and {device.dead}. {fix}"
    )


def target(name: str) -> Target:
    """What the compiler generates code for on that device, with the vendor's compiler where the driver chose one."""
    found = _targets.get(name)
    if found is None:
        device, backend = get(name), backends.find(name)
        assert backend is not None  # it is open
        if not backend.target:
            raise UsageError(
                f"{name}: no compiler makes kernels for {backend.name}. Load code objects: Device.load."
            )
        found = backends.load(backend.target)(device.arch, device.config.threads)
        chosen = backends.load(backend.toolchain)(device) if backend.toolchain else None
        if chosen is not None:
            from hcq.compiler.codegen import compile_with
            from hcq.compiler.target import Toolchain

            found = compile_with(found, Toolchain(*chosen))
        if device.config.inexact:
            from hcq.compiler.target import allowing

            found = allowing(found, device.config.inexact)
        if device.config.cpu_level:
            from hcq.compiler.target import limited

            found = limited(found, device.config.cpu_level)
        _targets[name] = found
    return found


class Devices:
    """`hcq.Device`: `Device.default`, `Device["CPU"]`, `Device.names()`.

    >>> Device["cpu"].name
    'CPU'
    """

    @property
    def default(self) -> str:
        """The device tensors are made on when none is named: HCQ_DEVICE, or CPU. Raises as hcq.open does."""
        return default()

    def __getitem__(self, name: str | None) -> Any:
        return get(canonical(name))

    def names(self) -> list[str]:
        """The kinds of device that can be opened."""
        return list(drivers.known_devices())


Device = Devices()
