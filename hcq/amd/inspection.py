"""Views of AMD devices for `python -m hcq inspect`: rings around where they are read, MQDs of queues.

In       an open device, which another thread uses meanwhile
Out      plain data
Changes  nothing; no lock is taken, and the real kernel driver is not asked. `waves`, which reports ask for, does both
Next     waves_off.py (waves of real GPUs), debugfs.py (MQDs, and real GPUs), rings.py (the rings),
         hcq/system/inspection.py (what this is part of)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hcq.amd import debugfs, debugfs_registers
from hcq.amd.chip import CHIPS
from hcq.amd.decode import queue_decoder
from hcq.amd.ring_words import ring_words
from hcq.amd.rings import RING_BYTES
from hcq.errors import DriverError
from hcq.system.inspection import Inspection, around, at_get, read_own, words_at

if TYPE_CHECKING:
    from hcq.amd.device import AmdDevice
    from hcq.amd.rings import Ring
    from hcq.events.waves import Kernel

MOST_CARDS = 64
UNITS = {"PM4": "words", "SDMA": "bytes", "AQL": "packets"}


def rings(device: AmdDevice) -> list[dict[str, Any]]:
    """Each ring with its words around get, in its own language."""
    return [_ring(device.arch, name, ring) for name, ring in list(device.rings.items())]


def _ring(arch: str, name: str, ring: Ring) -> dict[str, Any]:
    rptr = int.from_bytes(read_own(ring.rptr_va, 8), "little")
    put = ring.put
    # the read pointer of PM4 is a place in the ring
    get = put - (put - (rptr & 0xFFFFFFFF)) % ring.size if ring.kind == "PM4" else rptr
    unit = RING_BYTES // ring.size  # bytes
    base = ring.ring.va
    packets = around(
        lambda first, count: words_at(base + 4 * first, count),
        RING_BYTES // 4,
        get * unit // 4,
        (put - get) * unit // 4,
        get * unit // 4,
        queue_decoder(arch, ring.kind),
    )
    return {
        "name": f"{name} ({ring.kind})",
        "language": ring.kind,
        "unit": UNITS[ring.kind],
        "get": get,
        "put": put,
        "size": ring.size,
        "doorbell": ring.rung,
        "queue_id": ring.queue_id,
        "address": base,
        "packet": at_get(packets),
        "packets": packets,
    }


def queues(device: AmdDevice) -> list[dict[str, Any]]:
    """MQDs of this process on this GPU, from an emulated kernel driver.

    Raises  DriverError on a real one, which shows them to root, and holds a mutex of the process meanwhile
    """
    if not device.port.runs_ptx:  # only emulated systems do
        raise DriverError(
            f"{device.name}: the kernel driver shows queues to root: "
            "sudo python -m hcq inspect --gpu N --queues."
        )
    text = device.port.read_file(debugfs.MQDS).decode()
    return debugfs.mqds(text, {device.node.gpu_id: device.arch})


def registers(device: AmdDevice) -> tuple[dict[str, Any], list[str]]:
    """What the kernel driver of an emulated GPU shows root of its registers.

    Raises  DriverError on a real one
    """
    if not device.port.runs_ptx:
        raise DriverError(
            f"{device.name}: registers are for root: sudo python -m hcq inspect --gpu N --registers."
        )
    node = device.node
    for number in range(MOST_CARDS):
        try:
            place = device.port.read_file(f"/sys/class/drm/card{number}/device/uevent").decode()
            device.port.read_file(f"/sys/class/drm/card{number}/device/drm/renderD{node.render_minor}/dev")
        except DriverError:
            continue
        pci = place.partition("PCI_SLOT_NAME=")[2].split("\n")[0]
        folder, render = f"{debugfs.DEBUGFS}/dri/{number}", f"/dev/dri/renderD{node.render_minor}"
        family = CHIPS[device.arch].family
        return debugfs_registers.view(device.port, folder, render, pci, node.xccs, family)
    raise DriverError(f"{device.name}: no card in /sys/class/drm has renderD{node.render_minor}.")


def waves(device: AmdDevice, programs: Mapping[int, Any]) -> list[Kernel]:
    """Those of a real GPU. Its compute queue is taken off it meanwhile."""
    from hcq.amd import waves_off  # for reports alone

    return waves_off.kernels(device, programs)


INSPECTION = Inspection(rings, queues, debugfs.host, waves, ring_words, registers)
