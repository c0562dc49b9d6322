"""Variants of the NVIDIA driver: what follows from inference, and what it could be instead.

In       nothing
Out      VARIANTS
Next     ../variants.py (tries them), ../variant.py (their parts), hcq/nv/encode.py, hcq/nv/launch.py (what they change)
Source   docs/bringup-nv.md says of each value whether the kernel's source, a header or an inference gives it
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hcq.doctor.check import Found
from hcq.nv.abi import ioctls
from hcq.nv.abi.compute_methods import SetShaderLocalMemoryNonThrottledC
from hcq.nv.abi.gpfifo import GpEntry, Level
from hcq.nv.abi.host_methods import SemExecute, SemExecuteOperation, Wfi
from hcq.nv.abi.methods import Push, SecOp
from hcq.tools.hw.variant import Edit, Variant, with_step

if TYPE_CHECKING:
    from hcq.tools.hw.bench import Bench

COUNTED = (SecOp.INC_METHOD, SecOp.NON_INC_METHOD, SecOp.ONE_INC)
HOPPER_USERMODES = (0xC661, 0xC761)
LAUNCH_METHOD = 0x02C0  # SEND_SIGNALING_PCAS2_B of all classes from Ampere on


# ------------------------------------------------------------ methods


def with_methods(edits: Mapping[int, Callable[[int], int]]) -> Callable[[], Mapping[str, Any]]:
    """The device with other data for some methods, by address: what it submits is changed just before the ring."""

    def overriding() -> Mapping[str, Any]:
        from hcq.nv.device import NvDevice

        def _pieces(self: Any, words: Any, value: int) -> list[Any]:
            return _with_edits(self, NvDevice._pieces(self, words, value), edits)

        return {"_pieces": _pieces, "edited": 0}

    return overriding


def _with_edits(device: Any, plain: list[Any], edits: Mapping[int, Callable[[int], int]]) -> list[Any]:
    """The pieces with their methods changed; the device counts how many are."""
    made = [_edited(piece, edits) for piece in plain]
    device.edited += sum(one != other for one, other in zip(plain, made))
    return made


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


def with_qmd(**fields: int | Callable[[Mapping[str, int]], int]) -> Callable[[], Mapping[str, Any]]:
    """The device with other fields in every launch description: values, or functions of all that stands in it.

    A field that a generation has not is left out.
    """

    def overriding() -> Mapping[str, Any]:
        from hcq.nv.launch import Launcher

        class OtherLauncher(Launcher):
            """Launches with some fields otherwise."""

            def _qmd(self, *size: Any) -> bytes:
                plain = super()._qmd(*size)
                made = self.chip.qmd.decode(struct.unpack(f"<{self.qmd_bytes // 4}I", plain))
                before = dict(made.values)
                for name, value in fields.items():
                    if name in made.fields:
                        made.values[name] = value(before) if callable(value) else value
                changed.append(made.to_bytes() != plain)
                return made.to_bytes()

        changed: list[bool] = []
        return {"launcher": OtherLauncher, "edited": property(lambda self: sum(changed))}

    return overriding


def releasing_after_launches() -> Mapping[str, Any]:
    """Behind every launch a semaphore's release that waits for idle engines, and no WFI."""
    from hcq.nv.encode import wait_for_idle
    from hcq.nv.launch import Launcher

    def launcher(self: Any, *what: Any) -> Launcher:
        kept.append(self.signal("hw_check after a launch"))
        release = self.encoder._signal(kept[-1].va, 1)

        class OtherLauncher(Launcher):
            """Launches that end otherwise."""

            def _methods(self) -> bytes:
                plain = super()._methods()
                made = plain.removesuffix(wait_for_idle()) + release
                assert made != plain + release, "a launch ends with WFI"
                return made

        return OtherLauncher(*what)

    kept: list[Any] = []
    return {"launcher": launcher}


def with_window(size_bytes: int) -> Callable[[], Mapping[str, Any]]:
    """The device with so many addresses for the channel's context buffers, whatever RM says that they need."""

    def overriding() -> Mapping[str, Any]:
        from hcq.nv.channel import Channel
        from hcq.nv.device import NvDevice

        class OtherChannel(Channel):
            """A channel with another window."""

            def _window_bytes(self) -> int:
                return size_bytes

        return with_step(NvDevice, "make_channel", _with_other("make_channel", "Channel", OtherChannel))

    return overriding


def window(bench: Bench) -> Found:
    """How many addresses the channel was given, and how many RM says that its buffers need."""
    from hcq.nv.channel import Channel

    channel = bench.device.channel
    given, needed = channel.window_bytes, Channel._window_bytes(channel)
    text = f"a window of {given >> 20} MiB, where RM's answer makes {needed >> 20}"
    return Found(text, {"window_bytes": given, "by_rm_bytes": needed})


def reading_put_back() -> Mapping[str, Any]:
    """GP_PUT is read back before every doorbell."""
    from hcq.nv.device import NvDevice

    def make_channel(self: Any) -> None:
        NvDevice.make_channel(self)
        self.channel.fifo.reads_put_back = True

    return with_step(NvDevice, "make_channel", make_channel)


def with_local_counts(of: Callable[[Any], tuple[int, int, int]]) -> Callable[[], Mapping[str, Any]]:
    """The device with other counts for local memory: of SMs, of GPCs with several TPCs, of GPCs with one.

    Classes before Hopper's have the first one alone.
    """

    def overriding() -> Mapping[str, Any]:
        from hcq.nv.device import NvDevice

        method = SetShaderLocalMemoryNonThrottledC

        def _pieces(self: Any, words: Any, value: int) -> list[Any]:
            counts = method()
            if self.chip.qmd.version >= 4:
                names = ("max_sm_count", "max_plural_tpc_gpc_count", "max_singleton_tpc_gpc_count")
                counts = method(**dict(zip(names, of(self.gpu))))
            edits = {method.at: lambda word: counts.words[0] or word}
            return _with_edits(self, NvDevice._pieces(self, words, value), edits)

        return {"_pieces": _pieces, "edited": 0}

    return overriding


def _real_counts(gpu: Any) -> tuple[int, int, int]:
    """As the masks of TPCs say it."""
    of_gpcs = gpu.tpcs_of_gpcs
    return min(gpu.tpc_count, 0x1FF), sum(one > 1 for one in of_gpcs), sum(one == 1 for one in of_gpcs)


def with_sass(of: Callable[[Any], int]) -> Callable[[], Mapping[str, Any]]:
    """The device with another SASS_VERSION in its launch descriptions."""

    def overriding() -> Mapping[str, Any]:
        from hcq.nv.device import NvDevice

        def pick_classes(self: Any) -> None:
            NvDevice.pick_classes(self)
            was = self.chip.sass_version
            self.chip = replace(self.chip, sass_version=of(self))
            self.edited = int(was != self.chip.sass_version)

        return with_step(NvDevice, "pick_classes", pick_classes)

    return overriding


def _of_name(device: Any) -> int:
    """What the name of an architecture would make: 0xC0 of sm_120."""
    number = int(device.arch.removeprefix("sm_"))
    return number // 10 << 4 | number % 10


def _with_other(method: str, name: str, other: Any) -> Any:
    """A method of the device while another class has a name of its module."""
    module: Any = importlib.import_module("hcq.nv.device")

    def act(self: Any, *what: Any) -> Any:
        kept = getattr(module, name)
        setattr(module, name, other)
        try:
            return getattr(module.NvDevice, method)(self, *what)
        finally:
            setattr(module, name, kept)

    return act


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


def _without_reserved(values: Mapping[str, int]) -> int:
    size = values["shared_memory_size"]
    return 0 if size == RESERVED_SHARED else size


def _least(values: Mapping[str, int]) -> int:
    return values["min_sm_config_shared_mem_size"]


def _at_most_1a(values: Mapping[str, int]) -> int:
    return min(values["target_sm_config_shared_mem_size"], SM_100_KIB)


WINDOW = "hcq.tools.hw.nv.variants:window"
SHARED, SCRATCH = "hcq.tools.hw.nv.shared_memory:sizes", "hcq.tools.hw.experiments:scratch"
SM_100_KIB = 0x1A  # a carve-out of 100 KiB, which every generation has
RESERVED_SHARED = 0x400
# a variant that breaks a rule of ours: whether it must be one is what is asked
UNCHECKED = {"HCQ_VALIDATE": "0"}
COPY_CLASSES = (0xC6B5, 0xC7B5, 0xC8B5, 0xC9B5, 0xCAB5)
VARIANTS = (
    Variant("plain", "nothing is otherwise: what the others are compared with"),
    Variant("system-ring", "ring, USERD and pushbuffers in system memory", overriding=in_system_memory),
    Variant("window-512", "512 MiB of addresses for the channel's context buffers", overriding=with_window(512 << 20),
            further=WINDOW),
    Variant("window-64", "64 MiB of addresses for the channel's context buffers", overriding=with_window(64 << 20),
            further=WINDOW),
    Variant("hmm", "UVM with HMM: a stray address may be host memory instead of a fault", edit=_hmm),
    Variant("bar0-doorbell", "the usermode object without parameters: its doorbell through BAR0", edit=_allocation(
        lambda number: number in HOPPER_USERMODES, _without_parameters)),
    Variant("put-back", "GP_PUT is read back before every doorbell, as where it is in BAR0",
            overriding=reading_put_back),
    Variant("bar0-put-back", "the doorbell through BAR0, and GP_PUT read back before it", edit=_allocation(
        lambda number: number in HOPPER_USERMODES, _without_parameters), overriding=reading_put_back),
    Variant("copy-null", "the copy object without parameters", edit=_allocation(
        lambda number: number in COPY_CLASSES, _without_parameters)),
    Variant("copy-channel", "copies by a copy engine of their own, on a channel of their own",
            further="hcq.tools.hw.nv.copy_channel:copies"),
    Variant("wfi-compute", "WFI of the current scheduling group alone after launches", overriding=with_methods(
        {Wfi.at: _field(Wfi, "scope", 0)}), disturbs=True),
    Variant("release-wfi", "launches end with a semaphore's release that waits for idle engines, instead of WFI",
            environment=UNCHECKED, overriding=releasing_after_launches, disturbs=True),
    Variant("acquire-circular", "waits compare circularly (ACQ_CIRC_GEQ)", overriding=with_methods(
        {SemExecute.at: _field(SemExecute, "operation", SemExecuteOperation.ACQ_CIRC_GEQ, _acquires)})),
    Variant("subroutine", "segments at level SUBROUTINE instead of MAIN", constants={
        "hcq.nv.device:segment": _subroutine_segment}),
    Variant("local-ff", "MAX_SM_COUNT 0xff for local memory", overriding=with_methods(
        {SetShaderLocalMemoryNonThrottledC.at: _field(SetShaderLocalMemoryNonThrottledC, "max_sm_count", 0xFF)}),
            further=SCRATCH),
    Variant("local-counts-ff", "MAX_PLURAL_TPC_GPC_COUNT and MAX_SINGLETON_TPC_GPC_COUNT 0xff",
            overriding=with_local_counts(lambda gpu: (min(gpu.tpc_count, 0xFF), 0xFF, 0xFF)), further=SCRATCH),
    Variant("local-counts", "these two counted by the masks of TPCs, as their names say", overriding=with_local_counts(
        _real_counts), further=SCRATCH),
    Variant("sass-0", "SASS_VERSION 0 in launch descriptions, instead of what RM says of the SMs", overriding=with_sass(
        lambda device: 0)),
    Variant("sass-arch", "SASS_VERSION by the architecture's name, where RM says another", overriding=with_sass(
        _of_name)),
    Variant("group-1f", "QMD_GROUP_ID 0x1f instead of 0x3f", overriding=with_qmd(qmd_group_id=0x1F)),
    Variant("pcas-3", "PCAS action 3: invalidate, copy, schedule", overriding=with_methods(
        {LAUNCH_METHOD: lambda word: 3})),
    Variant("pcas-9", "PCAS action 9: prefetch, schedule", overriding=with_methods({LAUNCH_METHOD: lambda word: 9}),
            disturbs=True),
    Variant("pcas-10", "PCAS action 10: invalidate, prefetch, copy, schedule", overriding=with_methods(
        {LAUNCH_METHOD: lambda word: 10})),
    Variant("shared", "nothing but its kernels: without shared memory, with 48 KiB of their own, with 200 KiB that a "
            "launch asks for", further=SHARED),
    Variant("shared-size-0", "SHARED_MEMORY_SIZE 0 instead of the reserved KiB where a kernel has no shared memory",
            environment=UNCHECKED,
            overriding=with_qmd(shared_memory_size=_without_reserved), further=SHARED),
    Variant("sm-config-own", "MAX_SM_CONFIG the least that holds a launch, instead of the chip's largest",
            overriding=with_qmd(target_sm_config_shared_mem_size=_least, max_sm_config_shared_mem_size=_least),
            further=SHARED),
    Variant("sm-config-1a", "MAX_SM_CONFIG 0x1a instead of the chip's largest: 200 KiB are more than it says",
            overriding=with_qmd(target_sm_config_shared_mem_size=_at_most_1a, max_sm_config_shared_mem_size=SM_100_KIB),
            further=SHARED, disturbs=True),
    Variant("membar-0", "no CWD membar in launch descriptions", overriding=with_qmd(cwd_membar_type=0)),
)  # fmt: skip
