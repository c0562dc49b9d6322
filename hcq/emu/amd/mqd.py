"""MQDs of emulated queues, as the KFD writes them and shows them in /sys/kernel/debug/kfd/mqds.

In       the processes that the emulated KFD knows, their queues
Out      the text of that file; an MQD as bytes
Changes  nothing: no lock is taken, so a process that hangs in a call is shown, too
Next     kfd.py (who serves the file), hcq/amd/abi/mqd.py (the layouts), hcq/amd/debugfs.py (who reads it)
Source   kfd_mqd_manager_v9.c, kfd_mqd_manager_v11.c: init_mqd, update_mqd, update_mqd_sdma; kfd_process.c:
         kfd_debugfs_mqds_by_process; kfd_process_queue_manager.c: pqm_debugfs_mqds; seq_hex_dump with 32 bytes a line

Emulated queues have no hardware queue beside the MQD, so what hardware stores there when a queue is unmapped, its
pointers, is stored at once. Left 0: flags of CP_HQD_PQ_CONTROL for AQL but NO_UPDATE_RPTR, and what the firmware keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hcq.amd.abi import mqd
from hcq.emu.amd.process_gpu import UNRUNG, EmulatedQueue

if TYPE_CHECKING:
    from hcq.emu.amd.kfd_process import KfdProcess

LINE_BYTES = 32
ALL_UNITS = 0xFFFFFFFF
NO_UPDATE_RPTR = 1 << 27
RPTR_BLOCK, EOP_BYTES, EOP_MOST = 5, 4096, 0xA
QUANTUM = 1 | 1 << 4 | 1 << 8  # enabled, in units of a millisecond, one of them
ENABLED, WRITEBACK, TIMER = 1, 1 << 12, 6 << 16  # of a copy queue
DUMMY = 0xF


def image(queue: EmulatedQueue) -> bytes:
    """The MQD of a queue."""
    make = _sdma if queue.kind == "SDMA" else _compute
    return make(queue, queue.gpu.chip.family).to_bytes()


def _compute(queue: EmulatedQueue, family: int) -> mqd.ComputeMqd:
    is_aql = queue.kind == "AQL"
    layout = mqd.COMPUTE[family]
    engines = [f"compute_static_thread_mgmt_se{engine}" for engine in range(8)]  # gfx10 has fields of four
    fields: dict[str, Any] = {name: ALL_UNITS for name in engines if name in layout.fields}
    written = _written(queue)
    # the processor counts words where its packets are PM4, and packets of 64 bytes where they are AQL
    per_unit = 16 if is_aql else 1
    return layout(
        **fields,
        header=mqd.HEADER,
        compute_pipelinestat_enable=1,
        cp_hqd_active=int(queue.can_run),
        cp_hqd_quantum=QUANTUM,
        cp_hqd_pq_base=queue.ring & -256,
        cp_hqd_pq_rptr=queue.rptr * per_unit % (queue.ring_bytes // 4),
        cp_hqd_pq_wptr=written * per_unit,
        cp_hqd_pq_rptr_report_addr=queue.rptr_va,
        cp_hqd_pq_wptr_poll_addr=queue.wptr_va,
        cp_hqd_pq_doorbell_control=queue.doorbell_index * 2 << 2 & 0x0FFFFFFC,
        cp_hqd_pq_control=RPTR_BLOCK << 8
        | _log2(queue.ring_bytes // 4) - 1
        | (NO_UPDATE_RPTR if is_aql else 0),
        cp_hqd_eop_base_addr=queue.eop_va & -256,
        cp_hqd_eop_control=min(EOP_MOST, _log2(EOP_BYTES // 4) - 1) if queue.eop_va else 0,
        cp_hqd_ctx_save_base_addr=queue.save_area,
        cp_hqd_cntl_stack_offset=queue.ctl_stack_bytes - queue.saved[0].stack_bytes,
        cp_hqd_cntl_stack_size=queue.ctl_stack_bytes,
        cp_hqd_wg_state_offset=queue.ctl_stack_bytes + queue.saved[0].wave_bytes,
        cp_hqd_ctx_save_size=queue.save_bytes & 0xFFFFFFFF,
        cp_hqd_aql_control=int(is_aql),
    )


def _sdma(queue: EmulatedQueue, family: int) -> mqd.SdmaMqd:
    layout = mqd.SDMA[family]
    pointers = {"rb_rptr_addr": queue.rptr_va, "rb_wptr_poll_addr": queue.wptr_va}
    fields: dict[str, Any] = {}
    for name, va in pointers.items():
        fields[f"sdmax_rlcx_{name}_lo"] = va & 0xFFFFFFFF
        fields[f"sdmax_rlcx_{name}_hi"] = va >> 32
    return layout(
        **fields,
        sdmax_rlcx_rb_cntl=int(queue.can_run) | _log2(queue.ring_bytes // 4) << 1 | WRITEBACK | TIMER,
        sdmax_rlcx_rb_base=queue.ring & -256,
        sdmax_rlcx_rb_rptr=queue.rptr,
        sdmax_rlcx_rb_wptr=_written(queue),
        sdmax_rlcx_doorbell_offset=queue.doorbell_index * 2 << 2 & 0x0FFFFFFC,
        sdmax_rlcx_dummy_reg=DUMMY,
    )


def _written(queue: EmulatedQueue) -> int:
    """How far the doorbell says that the ring was written, in the units of its pointers."""
    rung = queue.doorbell
    if rung == UNRUNG:
        return 0
    return rung + 1 & 2**60 - 1 if queue.kind == "AQL" else rung & 2**60 - 1


def _log2(number: int) -> int:
    return max(number, 2).bit_length() - 1


def text(processes: Iterable[KfdProcess]) -> bytes:
    """/sys/kernel/debug/kfd/mqds."""
    return "".join(line + "\n" for process in processes for line in _process(process)).encode()


def _process(process: KfdProcess) -> Iterator[str]:
    pid = process.process.pid
    yield f"Process {pid} PASID {pid & 0xFFFF:#x}:"
    queues = [queue for gpu in list(process.gpus.values()) for queue in list(gpu.queues.values())]
    for queue in sorted(queues, key=lambda queue: queue.number):
        kind = "SDMA" if queue.kind == "SDMA" else "Compute"
        yield f"  {kind} queue on device {queue.gpu.gpu_id:x}"
        words = memoryview(image(queue)).cast("I")
        for _ in range(1 if kind == "SDMA" else queue.gpu.chip.xccs):
            for at in range(0, len(words), LINE_BYTES // 4):
                line = " ".join(f"{word:08x}" for word in words[at : at + LINE_BYTES // 4])
                yield f"    {4 * at:08x}: {line}"
