"""What an emulated GPU is, apart from what it does: chip, names and numbers, registers, clock, random numbers.

In       a Spec; which of the GPUs it is
Out      Card
Next     gpu.py (what it does), rm_controls.py (what the driver is answered), channel.py and launch.py (who work by it)
"""

from __future__ import annotations

import hashlib
import random
import time

from hcq.emu.backing import Backing, DeviceMemory
from hcq.emu.nv.spec import ENGINE_COPY0, ENGINE_COPY10, ENGINE_GR0, VIDEO_MEMORY_BYTES, Spec
from hcq.nv.abi.args import Args
from hcq.nv.abi.gpfifo import USERMODE_BYTES
from hcq.nv.abi.structures import structure


class Card:
    """One GPU. `index` is its device instance, `minor` the number of its node."""

    def __init__(self, spec: Spec, index: int, minor: int) -> None:
        self.spec, self.chip, self.index, self.minor = spec, spec.chip, index, minor
        self.bus = index + 1
        self.gpu_id = self.bus << 8
        self.pci_name = f"0000:{self.bus:02x}:00.0"
        self.uuid = hashlib.sha256(f"emulated {spec.chip.arch} {index}".encode()).digest()[:16]
        self.classes = frozenset(spec.chip.classes())
        copies = range(spec.chip.copy_engines)
        self.copy_engine_types = [ENGINE_COPY0 + n if n < 10 else ENGINE_COPY10 + n - 10 for n in copies]
        self.engine_types = {ENGINE_GR0, *self.copy_engine_types}
        # Hopper's page tables reach 57 bits, the others' 49
        self.highest_va = 1 << (57 if spec.chip.host_address_bits == 57 else 49)
        self.is_attached = False
        self.video_memory_used = 0
        self.random = None if spec.seed is None else random.Random(spec.seed)
        self.usermode = Backing(USERMODE_BYTES, DeviceMemory("nvidia registers", USERMODE_BYTES))
        self.registers = self.usermode.data.view("<u4")
        self.began_ns = time.monotonic_ns()
        self.clock_offset = time.time_ns() - time.monotonic_ns()  # PTIMER is set to the time of day

    @property
    def uuid_text(self) -> str:
        """Its UUID as nvidia-smi prints it."""
        text = self.uuid.hex()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def card_info(self) -> Args:
        """What NV_ESC_CARD_INFO says of it."""
        return structure("CardInfoArgs")(
            valid=1,
            pci_info_bus=self.bus,
            pci_info_vendor_id=0x10DE,
            pci_info_device_id=0x2330,
            gpu_id=self.gpu_id,
            reg_size=1 << 24,
            fb_size=VIDEO_MEMORY_BYTES if self.spec.is_video_memory_mappable else 0,
            minor_number=self.minor,
        )

    def time_ns(self) -> int:
        """PTIMER."""
        now = time.monotonic_ns()
        return now + self.clock_offset + (now - self.began_ns) * self.spec.drift_ppm // 1_000_000

    def token_of(self, number: int, engine_type: int) -> int:
        """The work submit token of a channel; nothing follows from its bits."""
        return (0x40 + engine_type) << 16 | number
