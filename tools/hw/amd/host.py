"""The host of an AMD GPU: topology and driver in sysfs, the vendor's tools, what the KFD says before there is a queue.

In       the port
Out      SOURCES; ask(), every question by itself
Changes  opens /dev/kfd and a render node, and closes them
Next     ../host.py (who gathers), hcq/amd/device.py (the same calls, as steps of opening)
Source   linux/kfd_ioctl.h; drm/amdgpu_drm.h: queries of AMDGPU_INFO whose answers are plain structures
"""

from __future__ import annotations

import functools
import os
from typing import Any

from hcq.amd.abi import drm, kfd
from hcq.amd.ioctl import call
from hcq.amd.topology import read_nodes
from hcq.system import native
from hcq.system.port import Port
from hcq.tools.hw.sources import Sources, ask_each

SOURCES = Sources(
    files=("/sys/module/amdgpu/version", "/sys/module/amdgpu/srcversion", "/sys/kernel/debug/kfd/mqds",
           "/sys/kernel/debug/kfd/hqds", "/sys/kernel/debug/dri/0/amdgpu_firmware_info"),
    folders=("/sys/class/kfd/kfd/topology", "/sys/devices/virtual/kfd/kfd/topology", "/sys/module/amdgpu/parameters"),
    commands={
        "rocminfo": ("rocminfo",),
        "rocm-smi": ("rocm-smi", "--showallinfo"),
        "amd-smi": ("amd-smi", "static"),
        "modinfo": ("modinfo", "amdgpu"),
        "amd-packages": ("sh", "-c", "ldconfig -p | grep -iE 'hsa|hip|amd'"),
        "memory": ("sh", "-c", "cd /sys/class/drm; grep -H . card*/device/mem_info_* card*/device/vbios_version"),
    },
)  # fmt: skip
# AMDGPU_INFO: name -> query, bytes of the answer
QUERIES = {
    "accel_working": (0x00, 4), "vram_usage": (0x10, 8), "gtt_usage": (0x11, 8), "vram_gtt": (0x14, 24),
    "device": (drm.DEV_INFO, 4 * drm.DeviceInfo.length_words), "memory": (0x19, 144), "vbios": (0x1B, 200),
}  # fmt: skip
FW_VERSION = 0x0E
FIRMWARE = {"gfx_me": 4, "gfx_pfp": 5, "gfx_ce": 6, "gfx_rlc": 7, "gfx_mec": 8, "smc": 10, "sdma": 11, "sos": 12,
            "asd": 13, "mes": 0x1A, "imu": 0x1B}  # fmt: skip


def ask(port: Port, device: str, found: dict[str, Any]) -> None:
    """Fill in what the kernel driver says: of all GPUs, whichever is checked. Raises what the first steps raise."""
    fd = port.open("/dev/kfd")
    try:
        version = call(port, fd, kfd.GET_VERSION)
        found["version"] = f"{version.major_version}.{version.minor_version}"
        nodes = read_nodes(port)
        found["nodes"] = [repr(node) for node in nodes]
        for node in nodes:
            _ask_gpu(port, fd, node, found)
    finally:
        port.close(fd)


def _ask_gpu(port: Port, fd: int, node: Any, found: dict[str, Any]) -> None:
    def fields(ioctl: Any, **given: Any) -> dict[str, str]:
        return {name: hex(value) for name, value in call(port, fd, ioctl, **given).values.items()}

    path = f"/dev/dri/renderD{node.render_minor}"
    own = f"gpu {node.gpu_id:#x}"
    ask_each(
        found,
        {
            f"{own} clocks": lambda: fields(kfd.GET_CLOCK_COUNTERS, gpu_id=node.gpu_id),
            f"{own} memory": lambda: fields(kfd.AVAILABLE_MEMORY, gpu_id=node.gpu_id),
            f"{own} render node": lambda: _render_node(port, path),
        },
    )


def _render_node(port: Port, path: str) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    drm_fd = port.open(path, os.O_RDWR)
    try:
        questions = {name: functools.partial(_info, port, drm_fd, *query) for name, query in QUERIES.items()}
        firmware = {
            f"firmware {name}": functools.partial(_info, port, drm_fd, FW_VERSION, 8, number)
            for name, number in FIRMWARE.items()
        }
        ask_each(answers, {**questions, **firmware})
    finally:
        port.close(drm_fd)
    return answers


def _info(port: Port, drm_fd: int, query: int, size_bytes: int, kind: int = 0) -> str:
    """One query's answer as hex: whoever reads it has the header."""
    answer = bytearray(size_bytes)
    what = drm.Info(return_pointer=native.address_of(answer), return_size=size_bytes, query=query)
    argument = bytearray(what.to_bytes())
    argument[16:20] = kind.to_bytes(4, "little")  # query_fw.fw_type
    port.ioctl(drm_fd, drm.INFO_REQUEST, argument)
    return answer.hex()
