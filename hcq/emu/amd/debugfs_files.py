"""An emulated GPU in debugfs: amdgpu_regs2, where registers are read, and amdgpu_gfxoff.

In       the GPU, the queues of the processes that use it; what an open file has selected
Out      words of registers, as amdgpu_debugfs.c reads them
Changes  what is selected, of that open file alone
Next     kfd.py (who opens them), mqd.py (the registers of a queue), render_node.py (registers for everybody),
         hcq/amd/debugfs_registers.py (who reads them)
Source   amdgpu_debugfs.c: amdgpu_debugfs_regs2_op, amdgpu_debugfs_regs2_ioctl, amdgpu_debugfs_gfxoff_read;
         amdgpu_amdkfd.c: amdgpu_amdkfd_set_compute_idle

GFXOFF is allowed on gfx11 while no process has a compute queue, and always on gfx12; gfx9, for servers, does not have
it. Registers that nobody here has are 0. While the engine sleeps, those of the graphics engine read as all ones.
"""

from __future__ import annotations

import errno
import struct

from hcq.amd.abi import gpu_registers as abi
from hcq.emu.amd import ip_discovery, mqd
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.kfd_topology import EmulatedNode
from hcq.emu.amd.process_gpu import EmulatedQueue
from hcq.emu.kernel import File, Process, Refusal

ALL_ONES = 0xFFFFFFFF
FIRST_VMID = 8  # that amdgpu gives to processes of the KFD
GUI_ACTIVE, CP_BUSY, SPI_BUSY = 1 << 31, 1 << 29, 1 << 22


def paths(node: EmulatedNode) -> tuple[str, str]:
    """Its amdgpu_regs2 and amdgpu_gfxoff."""
    folder = f"/sys/kernel/debug/dri/{node.card_minor}"
    return f"{folder}/amdgpu_regs2", f"{folder}/amdgpu_gfxoff"


def allows_gfxoff(gpu: EmulatedGpu) -> bool:
    """Whether the driver lets the engine sleep when it has nothing to do."""
    return gpu.chip.family == 12 or (gpu.chip.family == 11 and not _compute_queues(gpu))


def _compute_queues(gpu: EmulatedGpu) -> list[EmulatedQueue]:
    """Those of all processes, in the order in which they came; no lock is taken."""
    return [queue for queue in list(gpu.queues) if isinstance(queue, EmulatedQueue) and queue.kind != "SDMA"]


def status(gpu: EmulatedGpu) -> dict[int, int]:
    """Registers that say whether the GPU is busy: numbers in words -> values."""
    numbers = abi.NUMBERS[gpu.chip.family]
    is_busy = any(queue.can_run and queue.has_work for queue in _compute_queues(gpu))
    word = GUI_ACTIVE | CP_BUSY | SPI_BUSY if is_busy else 0
    return {numbers.base + at: word if name == "GRBM_STATUS" else 0 for name, at in numbers.status.items()}


class Gfxoff(File):
    """amdgpu_gfxoff: 1 while GFXOFF is allowed. The word is told at every offset, as the real file does."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self.gpu = gpu

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        raise Refusal(errno.ENOTTY)

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        raise Refusal(errno.ENODEV)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        if size_bytes % 4 or offset % 4:
            raise Refusal(errno.EINVAL)
        return struct.pack("<I", allows_gfxoff(self.gpu)) * (size_bytes // 4)

    def close(self) -> None:
        """Nothing is kept."""


class Regs2(File):
    """amdgpu_regs2: registers by their offset in bytes, of the queue that this open file has selected."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self.gpu, self.state = gpu, abi.Regs2State()

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        if request != abi.SET_STATE_V2:
            raise Refusal(errno.EINVAL)
        self.state = abi.Regs2State.decode(memoryview(bytes(argument)).cast("I"))
        return 0

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        raise Refusal(errno.ENODEV)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        if size_bytes % 4 or offset % 4:
            raise Refusal(errno.EINVAL)
        state, facts = self.state, self.gpu.node.properties()
        if state.use_grbm:
            engines = facts["array_count"] // facts["simd_arrays_per_engine"]
            for given, most in ((state.sh, facts["simd_arrays_per_engine"]), (state.se, engines)):
                if given != ALL_ONES and given >= most:
                    raise Refusal(errno.EINVAL)
        known = status(self.gpu)
        sleeps = allows_gfxoff(self.gpu) and not any(known.values())
        if state.use_srbm:
            known |= self._selected()
        first = offset // 4
        words = [ALL_ONES if sleeps else known.get(first + at, 0) for at in range(size_bytes // 4)]
        return struct.pack(f"<{len(words)}I", *words)

    def _selected(self) -> dict[int, int]:
        """The registers of the queue at that place; of a place without one, none."""
        numbers, state = abi.NUMBERS[self.gpu.chip.family], self.state
        if state.me != abi.MICRO_ENGINE or state.xcc_id >= self.gpu.chip.xccs:
            return {}
        mapped = [queue for queue in _compute_queues(self.gpu) if queue.can_run]
        processes = list(dict.fromkeys(queue.gpu for queue in mapped))
        # pipes take turns; queues for which there is no place wait in their MQDs
        at = state.queue * numbers.pipes + state.pipe
        if state.pipe >= numbers.pipes or state.queue >= numbers.queues_per_pipe or at >= len(mapped):
            return {}
        begin = numbers.base + ip_discovery.XCC_WORDS * state.xcc_id + numbers.queues
        words = list(memoryview(mqd.image(mapped[at])).cast("I")[abi.FIRST_WORD : abi.LAST_WORD + 1])
        words[abi.VMID_WORD - abi.FIRST_WORD] = FIRST_VMID + processes.index(mapped[at].gpu)
        return {begin + number: word for number, word in enumerate(words)}

    def close(self) -> None:
        """What was selected goes with the file."""
