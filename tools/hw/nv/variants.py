"""Variants of the NVIDIA driver: what follows from inference, and what it could be instead.

In       nothing
Out      VARIANTS
Changes  nothing
Next     ../variants.py (tries them), ../variant.py (their parts), hcq/nv/encode.py and launch.py (what they change)
Source   docs/bringup-nv.md says of each value whether the kernel's source, a header or an inference gives it
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hcq.nv.abi import ioctls
from hcq.nv.abi.compute_methods import SetShaderLocalMemoryNonThrottledC
from hcq.nv.abi.gpfifo import GpEntry, Level
from hcq.nv.abi.host_methods import SemExecute, SemExecuteOperation, Wfi
from hcq.nv.abi.methods import Push, SecOp
from hcq.tools.hw.variant import Edit, Variant

COUNTED = (SecOp.INC_METHOD, SecOp.NON_INC_METHOD, SecOp.ONE_INC)
HOPPER_USERMODES = (0xC661, 0xC761)
LAUNCH_METHOD = 0x02C0  # SEND_SIGNALING_PCAS2_B of all classes from Ampere on


# ------------------------------------------------------------ methods


def with_methods(edits: Mapping[int, Callable[[int], int]]) -> Callable[[], Mapping[str, Any]]:
    """The device with other data for some methods, by address: what it submits is changed just before the ring."""

    def overriding() -> Mapping[str, Any]:
        from hcq.nv.device import NvDevice

        def _pieces(self: Any, words: Any, value: int) -> list[Any]:
            plain = NvDevice._pieces(self, words, value)
            made = [_edited(piece, edits) for piece in plain]
            self.edited += sum(one != other for one, other in zip(plain, made))
            return made

        return {"_pieces": _pieces, "edited": 0}

    return overriding


def _edited(piece: Any, edits: Mapping[int, Callable[[int], int]]) -> Any:
    """A piece with its methods changed; launch data, behind the header at its start, stay."""
    made = bytearray(piece)
    for at, method, is_immediate in methods_in(piece):
        if method not in edits:
            continue
        word = int.from_bytes(made[at : at + 4], "little")
        if is_immediate:  # the data stand in the header, where others have a count
            count = Push.fields["count"]
            word = word & ~count.mask | count.encode(edits[method](count.decode(word)))
        else:
            word = edits[method](word)
        made[at : at + 4] = word.to_bytes(4, "little")
    changed = type(piece)(bytes(made))
    vars(changed).update(vars(piece))
    return changed


def methods_in(piece: Any) -> Iterator[tuple[int, int, bool]]:
    """Every method: the byte of its data, its address, and whether that byte is its header's."""
    at = piece.data_bytes
    while at + 4 <= len(piece):
        header = Push.decode([int.from_bytes(piece[at : at + 4], "little")]).values
        how, method, count = header["sec_op"], header["method_address"], header["count"]
        if how == SecOp.IMMD_DATA_METHOD:
            yield at, method, True
        elif how in COUNTED:
            for number in range(count):
                steps = number if how == SecOp.INC_METHOD else min(number, 1) if how == SecOp.ONE_INC else 0
                yield at + 4 + 4 * number, method + 4 * steps, False
        at += 4 + (4 * count if how in COUNTED else 0)


def _field(
    layout: Any, name: str, value: int, when: Callable[[Any], bool] = lambda values: True
) -> Callable[[int], int]:
    """A method's data with one field changed, where the others say so."""
    field = layout.fields[name]

    def edit(word: int) -> int:
        values = {key: one.decode(word) for key, one in layout.fields.items()}
        return word & ~field.mask | field.encode(value) if when(values) else word

    return edit


def _acquires(values: Any) -> bool:
    return bool(values["operation"] == SemExecuteOperation.ACQ_STRICT_GEQ)


def with_qmd(**fields: int) -> Callable[[], Mapping[str, Any]]:
    """The device with other fields in every launch description. A field that a generation has not is left out."""

    def overriding() -> Mapping[str, Any]:
        from hcq.nv import launch

        class Launcher(launch.Launcher):
            """Launches with some fields otherwise."""

            def _qmd(self, *size: Any) -> bytes:
                plain = super()._qmd(*size)
                made = self.chip.qmd.decode(struct.unpack(f"<{self.qmd_bytes // 4}I", plain))
                made.values.update({name: value for name, value in fields.items() if name in made.fields})
                changed.append(made.to_bytes() != plain)
                return made.to_bytes()

        changed: list[bool] = []
        return {"load_code": _loading_with(Launcher), "edited": property(lambda self: sum(changed))}

    return overriding


def _loading_with(launcher: Any) -> Any:
    module: Any = importlib.import_module("hcq.nv.device")

    def load_code(self: Any, *what: Any) -> Any:
        kept, module.Launcher = module.Launcher, launcher
        try:
            return module.NvDevice.load_code(self, *what)
        finally:
            module.Launcher = kept

    return load_code


# ------------------------------------------------------------ ioctls


def _allocation(classes: Callable[[int], bool], edit: Callable[[bytearray], None]) -> Edit:
    def act(request: int, argument: bytearray) -> None:
        if request & 0xFFFF == ioctls.RM_ALLOC.request & 0xFFFF and classes(
            int.from_bytes(argument[12:16], "little")
        ):
            edit(argument)

    return act


def _without_parameters(argument: bytearray) -> None:
    argument[16:24] = bytes(8)  # pallocparms
    argument[32:36] = bytes(4)  # paramssize


def _hmm(request: int, argument: bytearray) -> None:
    if request == ioctls.UVM_INITIALIZE.request:
        argument[0:8] = bytes(8)


def in_system_memory() -> Mapping[str, Any]:
    """Ring, USERD and pushbuffers in host memory."""
    from hcq.gpu.host_access import HostAccess
    from hcq.nv.memory import Place

    def _begin_access(self: Any, *why: str) -> None:
        HostAccess._begin_access(self, *why)
        self.place = Place.SYSTEM

    return {"_begin_access": _begin_access}


def _subroutine_segment(va: int, words: int) -> int:
    """The entry of a segment at level SUBROUTINE instead of MAIN."""
    low, high = GpEntry(get=va, length=words, level=Level.SUBROUTINE).words
    return low | high << 32


COPY_CLASSES = (0xC6B5, 0xC7B5, 0xC8B5, 0xC9B5, 0xCAB5)
VARIANTS = (
    Variant("plain", "nothing is otherwise: what the others are compared with"),
    Variant("system-ring", "ring, USERD and pushbuffers in system memory", overriding=in_system_memory),
    Variant("window-512", "512 MiB of addresses for the channel's context buffers", constants={
        "hcq.nv.channel:WINDOW_BYTES": 512 << 20}),
    Variant("window-64", "64 MiB of addresses for the channel's context buffers", constants={
        "hcq.nv.channel:WINDOW_BYTES": 64 << 20}),
    Variant("hmm", "UVM with HMM: a stray address may be host memory instead of a fault", edit=_hmm),
    Variant("bar0-doorbell", "the usermode object without parameters: its doorbell through BAR0", edit=_allocation(
        lambda number: number in HOPPER_USERMODES, _without_parameters)),
    Variant("copy-null", "the copy object without parameters", edit=_allocation(
        lambda number: number in COPY_CLASSES, _without_parameters)),
    Variant("wfi-compute", "WFI of the current scheduling group alone after launches", overriding=with_methods(
        {Wfi.at: _field(Wfi, "scope", 0)}), disturbs=True),
    Variant("acquire-circular", "waits compare circularly (ACQ_CIRC_GEQ)", overriding=with_methods(
        {SemExecute.at: _field(SemExecute, "operation", SemExecuteOperation.ACQ_CIRC_GEQ, _acquires)})),
    Variant("subroutine", "segments at level SUBROUTINE instead of MAIN", constants={
        "hcq.nv.device:segment": _subroutine_segment}),
    Variant("local-ff", "MAX_SM_COUNT 0xff for local memory", overriding=with_methods(
        {SetShaderLocalMemoryNonThrottledC.at: _field(SetShaderLocalMemoryNonThrottledC, "max_sm_count", 0xFF)})),
    Variant("pcas-3", "PCAS action 3: invalidate, copy, schedule", overriding=with_methods(
        {LAUNCH_METHOD: lambda word: 3})),
    Variant("pcas-9", "PCAS action 9: prefetch, schedule", overriding=with_methods({LAUNCH_METHOD: lambda word: 9}),
            disturbs=True),
    Variant("pcas-10", "PCAS action 10: invalidate, prefetch, copy, schedule", overriding=with_methods(
        {LAUNCH_METHOD: lambda word: 10})),
    Variant("sm-config-1a", "MAX_SM_CONFIG 0x1a instead of the chip's largest", overriding=with_qmd(
        max_sm_config_shared_mem_size=0x1A)),
    Variant("membar-0", "no CWD membar in launch descriptions", overriding=with_qmd(cwd_membar_type=0)),
)  # fmt: skip
