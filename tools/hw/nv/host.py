"""The host of an NVIDIA GPU: its driver's files, nvidia-smi, and what RM says of the GPU before there is a channel.

In       the port
Out      SOURCES; ask(), every question by itself
Changes  attaches the GPU, which can take seconds
Next     ../host.py (who gathers), hcq/nv/gpu.py (the same calls, as steps of opening)
Source   ctrl0080.h, ctrl2080.h; GR_GET_INFO and FB_GET_INFO_V2 take any index that the header numbers
"""

from __future__ import annotations

import functools
import struct
from typing import Any

from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.names import class_name
from hcq.nv.gpu import GID_BINARY, Gpu
from hcq.nv.process import process_of
from hcq.system.port import Port
from hcq.tools.hw.sources import Sources, ask_each

SOURCES = Sources(
    files=("/sys/module/nvidia/version", "/sys/module/nvidia/srcversion", "/sys/module/nvidia_uvm/srcversion"),
    folders=("/proc/driver/nvidia", "/proc/driver/nvidia-uvm", "/proc/driver/nvidia-caps",
             "/sys/module/nvidia/parameters", "/sys/module/nvidia_uvm/parameters"),
    commands={
        "nvidia-smi": ("nvidia-smi", "-q"),
        "nvidia-smi-topology": ("nvidia-smi", "topo", "-m"),
        "modinfo": ("modinfo", "nvidia"),
        "nvidia-packages": ("sh", "-c", "ldconfig -p | grep -iE 'libcuda|nvidia'"),
    },
    drop={"nvidia-smi": r"^\s+Processes\b"},
)  # fmt: skip
GR_INDICES = range(0x34)
FB_INDICES = (
    0x00, 0x02, 0x05, 0x06, 0x07, 0x08, 0x0B, 0x0F, 0x11, 0x14, 0x19, 0x1B, 0x1D, 0x20, 0x22, 0x26, 0x29,
)  # fmt: skip


def ask(port: Port, device: str, found: dict[str, Any]) -> None:
    """Fill in what RM says of a device. Raises what the first steps raise: without a client nothing can be asked."""
    process = process_of(port)
    abi = process.read_version(port)
    found["release"] = {"version": abi.version, "table": abi.release, "note": abi.note}
    rm = process.client(port)
    cards = process.cards(port)
    found["cards"] = [{name: hex(value) for name, value in card.values.items()} for card in cards]
    if not cards:
        return
    card, fd = process.open_card(port, device, ())
    gpu = Gpu(process, card, fd)
    gpu.attach(port)
    gpu.make_device(rm)

    def control(handle: int, number: int, **fields: Any) -> dict[str, str]:
        values = rm.control(handle, number, **fields).values
        return {name: hex(value) for name, value in values.items() if value}

    def classes() -> list[str]:
        said = rm.control(gpu.device, ControlId.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2).values
        listed = (said["classlist"] >> 32 * number & 0xFFFFFFFF for number in range(said["numclasses"]))
        return [f"{number:#06x} {class_name(number)}" for number in sorted(listed)]

    def graphics(index: int) -> int:
        (value,) = rm.control_list(gpu.subdevice, ControlId.NV2080_CTRL_CMD_GR_GET_INFO, "grinfo", (index,))
        return value

    def memory(index: int) -> int:
        fields = {"fbinfolistsize": 1, "fbinfolist": int.from_bytes(struct.pack("<2I", index, 0), "little")}
        said = rm.control(gpu.subdevice, ControlId.NV2080_CTRL_CMD_FB_GET_INFO_V2, **fields)
        return int(said.values["fbinfolist"]) >> 32 & 0xFFFFFFFF

    def name() -> str:
        said = int(
            rm.control(gpu.subdevice, ControlId.NV2080_CTRL_CMD_GPU_GET_NAME_STRING).values["gpunamestring"]
        )
        return said.to_bytes(64, "little").partition(b"\0")[0].decode("ascii", "replace")

    def each(indices: Any, question: Any) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        ask_each(answers, {hex(index): functools.partial(question, index) for index in indices})
        return answers

    ask_each(
        found,
        {
            "name": name,
            "arch": lambda: control(gpu.subdevice, ControlId.NV2080_CTRL_CMD_MC_GET_ARCH_INFO),
            "uuid": lambda: control(
                gpu.subdevice, ControlId.NV2080_CTRL_CMD_GPU_GET_GID_INFO, flags=GID_BINARY
            ),
            "classes": classes,
            "gr_info": lambda: each(GR_INDICES, graphics),
            "fb_info": lambda: each(FB_INDICES, memory),
            "copy_engines": lambda: control(gpu.subdevice, ControlId.NV2080_CTRL_CMD_CE_GET_ALL_CAPS),
            "gpc_mask": lambda: control(gpu.subdevice, ControlId.NV2080_CTRL_CMD_GR_GET_GPC_MASK),
            "tpc_masks": lambda: each(
                range(16),
                lambda gpc: rm.control(
                    gpu.subdevice, ControlId.NV2080_CTRL_CMD_GR_GET_TPC_MASK, gpcid=gpc
                ).values["tpcmask"],
            ),
            "gpu_time": lambda: control(gpu.subdevice, ControlId.NV2080_CTRL_CMD_TIMER_GET_TIME),
        },
    )
