"""An emulated GPU in sysfs, beside the KFD's topology: its PCI device, its DRM nodes, its sensors.

In       what the topology says of the GPU; for numbers that change, the GPU
Out      path -> contents, or where a symbolic link leads; path -> what says the contents now
Next     kfd_topology.py (the KFD's files), ip_discovery.py (blocks and versions), kfd.py (who serves all of them)
Source   sysfs-class-drm, sysfs-bus-pci; amdgpu_device.c, amdgpu_vram_mgr.c, amdgpu_gtt_mgr.c, amdgpu_pm.c

librocm_smi64 finds GPUs by /sys/class/drm/cardN, libdrm by /sys/dev/char, collective libraries by /sys/class/pci_bus.
Nothing is measured: clocks, power and temperature are those of an idle GPU. Memory and whether it works are true.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hcq.amd.abi.gpu_registers import NUMBERS
from hcq.emu.amd import ip_discovery
from hcq.emu.amd.kfd_topology import VRAM_BYTES, EmulatedNode
from hcq.emu.pages import HOST_BYTES

if TYPE_CHECKING:
    from hcq.emu.amd.gpu import EmulatedGpu

DRM_MAJOR = 226
CLASS_DISPLAY, CLASS_ACCELERATOR = 0x030000, 0x120000
MICROWATTS, MILLIDEGREES, HERTZ = 1_000_000, 1000, 1_000_000
IDLE_WATTS, CAP_WATTS, IDLE_DEGREES, CRITICAL_DEGREES = 40, 300, 40, 100
SHADER_MHZ, OTHER_MHZ, MILLIVOLTS = 500, 400, 800
LINK_WIDTH, LINK_TENTHS = 16, 160  # of a GT/s
METRICS_BYTES = 120
SENSORS = ("edge", "junction", "mem")


MACHINE: dict[str, bytes | str] = {"/sys/class/drm/version": b"drm 1.1.0 20060810\n"}


def folders(node: EmulatedNode) -> tuple[str, ...]:
    """What is this GPU's alone."""
    return (f"{device_folder(node)}/",)


def pci_name(node: EmulatedNode) -> str:
    """Domain, bus, device and function."""
    return f"0000:{node.location_id >> 8:02x}:00.0"


def device_folder(node: EmulatedNode) -> str:
    """The folder of its PCI device, below a port of its own."""
    return f"{_port(node)}/{pci_name(node)}"


def _port(node: EmulatedNode) -> str:
    return f"/sys/devices/pci0000:00/0000:00:{node.index // 8 + 1:02x}.{node.index % 8}"


def files(node: EmulatedNode) -> dict[str, bytes | str]:
    """All that does not change while the GPU is there."""
    folder = device_folder(node)
    below = folder.removeprefix("/sys/")
    found: dict[str, bytes | str] = {
        f"/sys/bus/pci/devices/{pci_name(node)}": f"../../../{below}",
        f"/sys/class/pci_bus/{pci_name(node)[:7]}": f"../../{_port(node)[5:]}/pci_bus/{pci_name(node)[:7]}",
        f"{_port(node)}/pci_bus/{pci_name(node)[:7]}/cpuaffinity": b"1\n",
        **{f"{folder}/{name}": f"{text}\n".encode() for name, text in _device(node).items()},
        f"{folder}/subsystem": "../../../../bus/pci",
        f"{folder}/driver": "../../../../bus/pci/drivers/amdgpu",
        f"/sys/bus/pci/drivers/amdgpu/{pci_name(node)}": f"../../../../{below}",
        "/sys/bus/pci/drivers/amdgpu/module": "../../../../module/amdgpu",
    }
    for name, minor in (
        (f"card{node.card_minor}", node.card_minor),
        (f"renderD{node.render_minor}", node.render_minor),
    ):
        found |= _drm_node(folder, name, minor)
    found |= _sensors(folder, node)
    chip = node.spec.chip
    return found | ip_discovery.files(chip.arch, folder, chip.xccs, NUMBERS[chip.family].base)


def live(node: EmulatedNode, gpu: EmulatedGpu) -> dict[str, Callable[[], bytes]]:
    """What changes: the memory that is taken, and whether a queue has work. (amdgpu_mem_info_*_show)"""
    numbers: dict[str, Callable[[], int]] = {
        "mem_info_vram_used": lambda: gpu.vram_used,
        "mem_info_vis_vram_used": lambda: gpu.vram_used if node.spec.is_vram_public else 0,
        "mem_info_gtt_used": lambda: gpu.host_used,
        "gpu_busy_percent": lambda: 100 * any(queue.has_work for queue in gpu.ready()),
    }
    folder = device_folder(node)
    texts = {f"{folder}/{name}": _line(ask) for name, ask in numbers.items()}
    if gpu.dump is not None:
        texts[f"{folder}/devcoredump/data"] = gpu.dump
    return {**texts, f"{folder}/gpu_metrics": lambda: _metrics(numbers["gpu_busy_percent"]())}


def _line(ask: Callable[[], int]) -> Callable[[], bytes]:
    return lambda: b"%d\n" % ask()


def _metrics(busy_percent: int) -> bytes:
    """struct gpu_metrics_v1_3 (kgd_pp_interface.h): what is not said there is 0."""
    temperatures = (IDLE_DEGREES,) * 3 + (0,) * 3
    clocks = (SHADER_MHZ, OTHER_MHZ, OTHER_MHZ, 0, 0, 0, 0)
    data = struct.pack("<HBB10H", METRICS_BYTES, 1, 3, *temperatures, busy_percent, 0, 0, IDLE_WATTS)
    data += struct.pack("<QQ14HI", 0, time.monotonic_ns(), *clocks, *clocks, 0)
    data += struct.pack("<HHHHII4HQ", 0, LINK_WIDTH, LINK_TENTHS, 0, 0, 0, *(IDLE_DEGREES,) * 4, 0)
    return (data + struct.pack("<3H", 0, MILLIVOLTS, 0)).ljust(METRICS_BYTES, b"\0")


def _device(node: EmulatedNode) -> dict[str, object]:
    """The attributes of the PCI device, its own and amdgpu's."""
    device_id, is_accelerator = node.spec.size.device_id, node.spec.chip.family == 9
    visible = VRAM_BYTES if node.spec.is_vram_public else 256 << 20
    kind = CLASS_ACCELERATOR if is_accelerator else CLASS_DISPLAY
    engine, memory = node.properties()["max_engine_clk_fcompute"], 1000
    facts: dict[str, object] = {
        "vendor": "0x1002",
        "device": f"0x{device_id:04x}",
        "revision": "0x00",
        "subsystem_vendor": "0x1002",
        "subsystem_device": "0x0000",
        "class": f"0x{kind:06x}",
        "uevent": f"DRIVER=amdgpu\nPCI_CLASS={kind:X}\nPCI_ID=1002:{device_id:04X}\nPCI_SUBSYS_ID=1002:0000\n"
        f"PCI_SLOT_NAME={pci_name(node)}",
        "numa_node": -1,
        "local_cpulist": "0",
        "local_cpus": "1",
        "enable": 1,
        "current_link_speed": "16.0 GT/s PCIe",
        "max_link_speed": "16.0 GT/s PCIe",
        "current_link_width": LINK_WIDTH,
        "max_link_width": LINK_WIDTH,
        "mem_info_vram_total": VRAM_BYTES,
        "mem_info_vis_vram_total": visible,
        "mem_info_gtt_total": HOST_BYTES,
        "mem_busy_percent": 0,
        "unique_id": f"{node.properties()['unique_id']:016x}",
        "product_name": f"Emulated {node.spec.chip.arch}",
        "vbios_version": "113-EMULATED-001",
        "pcie_replay_count": 0,
        "power_dpm_state": "performance",
        "power_dpm_force_performance_level": "auto",
        "pp_dpm_sclk": f"0: {SHADER_MHZ}Mhz *\n1: {engine}Mhz",
        "pp_dpm_mclk": f"0: {OTHER_MHZ}Mhz *\n1: {memory}Mhz",
        "pp_dpm_socclk": f"0: {OTHER_MHZ}Mhz *",
        "pp_dpm_fclk": f"0: {OTHER_MHZ}Mhz *",
        "pp_dpm_pcie": f"0: 16.0GT/s, x{LINK_WIDTH} {OTHER_MHZ}Mhz *",
    }
    if node.spec.chip.xccs > 1:
        facts |= {"current_compute_partition": "SPX", "available_compute_partition": "SPX"}
        facts |= {"current_memory_partition": "NPS1"}
    return facts


def _drm_node(folder: str, name: str, minor: int) -> dict[str, bytes | str]:
    """A node of DRM: its folder below the device, and the two ways to it."""
    at = f"{folder}/drm/{name}"
    below = at.removeprefix("/sys/")
    return {
        f"{at}/dev": f"{DRM_MAJOR}:{minor}\n".encode(),
        f"{at}/uevent": f"MAJOR={DRM_MAJOR}\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor\n".encode(),
        f"{at}/device": f"../../../{folder.rpartition('/')[2]}",
        f"{at}/subsystem": "../../../../../../class/drm",
        f"/sys/class/drm/{name}": f"../../{below}",
        f"/sys/dev/char/{DRM_MAJOR}:{minor}": f"../../{below}",
    }


def _sensors(folder: str, node: EmulatedNode) -> dict[str, bytes | str]:
    """hwmon: temperatures, power, clocks. (amdgpu_pm.c)"""
    at = f"{folder}/hwmon/hwmon{node.index}"
    facts: dict[str, object] = {
        "name": "amdgpu",
        "power1_average": IDLE_WATTS * MICROWATTS,
        "power1_cap": CAP_WATTS * MICROWATTS,
        "power1_cap_default": CAP_WATTS * MICROWATTS,
        "power1_cap_max": CAP_WATTS * MICROWATTS,
        "power1_cap_min": 0,
        "freq1_input": SHADER_MHZ * HERTZ,
        "freq1_label": "sclk",
        "freq2_input": OTHER_MHZ * HERTZ,
        "freq2_label": "mclk",
        "in0_input": MILLIVOLTS,
        "in0_label": "vddgfx",
    }
    if node.spec.chip.family != 9:  # those for servers have no fans
        facts |= {
            "fan1_enable": 0,
            "fan1_input": 0,
            "fan1_min": 0,
            "fan1_max": 3000,
            "pwm1": 0,
            "pwm1_enable": 2,
        }
        facts |= {"pwm1_min": 0, "pwm1_max": 255}
    for number, label in enumerate(SENSORS, 1):
        facts |= {
            f"temp{number}_label": label,
            f"temp{number}_input": IDLE_DEGREES * MILLIDEGREES,
            f"temp{number}_crit": CRITICAL_DEGREES * MILLIDEGREES,
            f"temp{number}_crit_hyst": 0,
            f"temp{number}_emergency": (CRITICAL_DEGREES + 5) * MILLIDEGREES,
        }
    found: dict[str, bytes | str] = {f"{at}/{name}": f"{text}\n".encode() for name, text in facts.items()}
    found[f"{at}/device"] = f"../../../{folder.rpartition('/')[2]}"
    found[f"/sys/class/hwmon/hwmon{node.index}"] = f"../../{at.removeprefix('/sys/')}"
    return found
