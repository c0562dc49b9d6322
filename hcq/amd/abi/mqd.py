"""MQDs: memory queue descriptors, where the kernel driver keeps the registers of a queue while it is not mapped.

In       words of an MQD, as /sys/kernel/debug/kfd/mqds shows them
Out      fields under the names of the kernel's headers, lower case
Next     hcq/amd/debugfs.py (who reads them), hcq/emu/amd/mqd.py (those of emulated queues)
Source   v9_structs.h: v9_mqd, v9_sdma_mqd; v10_structs.h: v10_compute_mqd; v11_structs.h: v11_compute_mqd,
         v11_sdma_mqd; v12_structs.h: v12_compute_mqd, v12_sdma_mqd; kfd_mqd_manager_v9.c, kfd_mqd_manager_v11.c: which
         fields are set, and that addresses of rings are kept in units of 256

Left out are fields that neither the KFD nor a compute shader's launch sets: times, statistics, packets of the firmware.
"""

from __future__ import annotations

from hcq.layout import Bits, SparsePacket, bits

COMPUTE_WORDS, SDMA_WORDS = 512, 128
HEADER = 0xC0310800  # what the KFD writes there


def _word(index: int, doc: str = "") -> Bits:
    return bits(32 * index + 31, 32 * index, doc=doc)


def _pair(index: int, unit: int = 1, doc: str = "") -> Bits:
    """A low word and the high one behind it."""
    return bits(32 * index + 63, 32 * index, unit=unit, doc=doc)


class ComputeMqd(SparsePacket, words=COMPUTE_WORDS):
    """Fields that are at the same place from gfx9 to gfx12: of the launch, words 0 to 34; of the queue, from 128 on."""

    header = _word(0)
    compute_dispatch_initiator = _word(1)
    compute_dim_x = _word(2)
    compute_dim_y = _word(3)
    compute_dim_z = _word(4)
    compute_start_x = _word(5)
    compute_start_y = _word(6)
    compute_start_z = _word(7)
    compute_num_thread_x = _word(8)
    compute_num_thread_y = _word(9)
    compute_num_thread_z = _word(10)
    compute_pipelinestat_enable = _word(11)
    compute_perfcount_enable = _word(12)
    compute_pgm = _pair(13, unit=256, doc="the code of the kernel")
    compute_pgm_rsrc1 = _word(19)
    compute_pgm_rsrc2 = _word(20)
    compute_vmid = _word(21)
    compute_resource_limits = _word(22)
    compute_static_thread_mgmt_se0 = _word(23, "compute units of a shader engine that it may use")
    compute_static_thread_mgmt_se1 = _word(24)
    compute_tmpring_size = _word(25)
    compute_static_thread_mgmt_se2 = _word(26)
    compute_static_thread_mgmt_se3 = _word(27)
    compute_restart_x = _word(28)
    compute_restart_y = _word(29)
    compute_restart_z = _word(30)
    compute_thread_trace_enable = _word(31)
    compute_dispatch_id = _word(33)
    compute_threadgroup_id = _word(34)
    compute_user_data_0 = _word(65)
    compute_user_data_1 = _word(66)
    compute_user_data_2 = _word(67)
    compute_user_data_3 = _word(68)
    disable_queue = _word(106)
    cp_pq_exe_status = _pair(114)
    cp_packet_id = _pair(116)
    cp_packet_exe_status = _pair(118)
    cp_mqd_base_addr = _pair(128)
    cp_hqd_active = _word(130, "1 while a hardware queue has it")
    cp_hqd_vmid = _word(131)
    cp_hqd_persistent_state = _word(132)
    cp_hqd_pipe_priority = _word(133)
    cp_hqd_queue_priority = _word(134)
    cp_hqd_quantum = _word(135)
    cp_hqd_pq_base = _pair(136, unit=256, doc="the ring")
    cp_hqd_pq_rptr = _word(138, "how far it was read when the queue was unmapped")
    cp_hqd_pq_rptr_report_addr = _pair(139, doc="where the read pointer is told")
    cp_hqd_pq_wptr_poll_addr = _pair(141, doc="where the write pointer is")
    cp_hqd_pq_doorbell_control = _word(
        143, "bits 27..2: the doorbell, in words from the start of the aperture"
    )
    cp_hqd_pq_control = _word(
        145, "bits 5..0: the ring has 2 ** (n + 1) words; 13..8: when the read pointer is told"
    )
    cp_hqd_ib_base_addr = _pair(146, doc="the indirect buffer that is read")
    cp_hqd_ib_rptr = _word(148)
    cp_hqd_ib_control = _word(149)
    cp_hqd_iq_timer = _word(150)
    cp_hqd_iq_rptr = _word(151)
    cp_hqd_dequeue_request = _word(152)
    cp_hqd_dma_offload = _word(153)
    cp_hqd_sema_cmd = _word(154)
    cp_hqd_msg_type = _word(155)
    cp_mqd_control = _word(162)
    cp_hqd_hq_status1 = _word(163)
    cp_hqd_hq_control1 = _word(164)
    cp_hqd_eop_base_addr = _pair(165, unit=256, doc="the buffer of end-of-pipe events")
    cp_hqd_eop_control = _word(167)
    cp_hqd_eop_rptr = _word(168)
    cp_hqd_eop_wptr = _word(169)
    cp_hqd_eop_done_events = _word(170)
    cp_hqd_ctx_save_base_addr = _pair(171, doc="where waves are saved")
    cp_hqd_ctx_save_control = _word(173)
    cp_hqd_cntl_stack_offset = _word(174)
    cp_hqd_cntl_stack_size = _word(175)
    cp_hqd_wg_state_offset = _word(176)
    cp_hqd_ctx_save_size = _word(177)
    cp_hqd_gds_resource_state = _word(178)
    cp_hqd_error = _word(179, "why the queue stopped")
    cp_hqd_eop_wptr_mem = _word(180)
    cp_hqd_aql_control = _word(181, "not 0: packets are AQL")
    cp_hqd_pq_wptr = _pair(182, doc="how far the ring was written when the queue was unmapped")
    queue_doorbell_id0 = _word(240)


class ComputeMqd10(ComputeMqd):
    """v10_compute_mqd."""

    compute_relaunch = _word(35)
    compute_wave_restore_addr = _pair(36)
    compute_wave_restore_control = _word(38)
    cp_hqd_hq_scheduler0 = _word(160)
    cp_hqd_hq_scheduler1 = _word(161)


class ComputeMqd9(ComputeMqd10, without=("cp_hqd_hq_scheduler0", "cp_hqd_hq_scheduler1")):
    """v9_mqd."""

    compute_static_thread_mgmt_se4 = _word(39)
    compute_static_thread_mgmt_se5 = _word(40)
    compute_static_thread_mgmt_se6 = _word(41)
    compute_static_thread_mgmt_se7 = _word(42)
    cp_hqd_hq_status0 = _word(160)
    cp_hqd_hq_control0 = _word(161)


class ComputeMqd11(ComputeMqd):
    """v11_compute_mqd, v12_compute_mqd."""

    compute_dispatch_pkt_addr = _pair(15, doc="the AQL packet of the launch")
    compute_dispatch_scratch_base = _pair(17)
    compute_req_ctrl = _word(35)
    compute_pgm_rsrc3 = _word(41)
    compute_static_thread_mgmt_se4 = _word(44)
    compute_static_thread_mgmt_se5 = _word(45)
    compute_static_thread_mgmt_se6 = _word(46)
    compute_static_thread_mgmt_se7 = _word(47)
    compute_dispatch_interleave = _word(48)
    compute_relaunch = _word(49)
    compute_wave_restore_addr = _pair(50)
    compute_wave_restore_control = _word(52)
    cp_hqd_hq_status0 = _word(160)
    cp_hqd_hq_control0 = _word(161)


class SdmaMqd(SparsePacket, words=SDMA_WORDS):
    """Fields of a copy queue that stand at the same place from gfx9 to gfx12."""

    sdmax_rlcx_rb_cntl = _word(0, "bit 0: enabled; 5..1: the ring has 2 ** n words")
    sdmax_rlcx_rb_base = _pair(1, unit=256, doc="the ring")
    sdmax_rlcx_rb_rptr = _pair(3)
    sdmax_rlcx_rb_wptr = _pair(5)
    sdma_engine_id = _word(126)
    sdma_queue_id = _word(127)


class SdmaMqd9(SdmaMqd):
    """v9_sdma_mqd. Of its addresses the high word comes first."""

    sdmax_rlcx_rb_wptr_poll_cntl = _word(7)
    sdmax_rlcx_rb_rptr_addr_hi = _word(8)
    sdmax_rlcx_rb_rptr_addr_lo = _word(9)
    sdmax_rlcx_ib_cntl = _word(10)
    sdmax_rlcx_ib_rptr = _word(11)
    sdmax_rlcx_ib_offset = _word(12)
    sdmax_rlcx_ib_base = _pair(13)
    sdmax_rlcx_ib_size = _word(15)
    sdmax_rlcx_skip_cntl = _word(16)
    sdmax_rlcx_context_status = _word(17)
    sdmax_rlcx_doorbell = _word(18)
    sdmax_rlcx_status = _word(19)
    sdmax_rlcx_doorbell_offset = _word(22)
    sdmax_rlcx_csa_addr = _pair(23)
    sdmax_rlcx_dummy_reg = _word(27)
    sdmax_rlcx_rb_wptr_poll_addr_hi = _word(28)
    sdmax_rlcx_rb_wptr_poll_addr_lo = _word(29)


class SdmaMqd10(SdmaMqd9, words=130):
    """v10_sdma_mqd."""

    sdma_engine_id = _word(128)
    sdma_queue_id = _word(129)


class SdmaMqd11(SdmaMqd):
    """v11_sdma_mqd."""

    sdmax_rlcx_rb_rptr_addr_hi = _word(7)
    sdmax_rlcx_rb_rptr_addr_lo = _word(8)
    sdmax_rlcx_ib_cntl = _word(9)
    sdmax_rlcx_ib_rptr = _word(10)
    sdmax_rlcx_ib_offset = _word(11)
    sdmax_rlcx_ib_base = _pair(12)
    sdmax_rlcx_ib_size = _word(14)
    sdmax_rlcx_skip_cntl = _word(15)
    sdmax_rlcx_context_status = _word(16)
    sdmax_rlcx_doorbell = _word(17)
    sdmax_rlcx_doorbell_offset = _word(19)
    sdmax_rlcx_csa_addr = _pair(20)
    sdmax_rlcx_dummy_reg = _word(25)
    sdmax_rlcx_rb_wptr_poll_addr_hi = _word(26)
    sdmax_rlcx_rb_wptr_poll_addr_lo = _word(27)


class SdmaMqd12(SdmaMqd):
    """v12_sdma_mqd: the low word of an address comes first."""

    sdmax_rlcx_rb_rptr_addr_lo = _word(7)
    sdmax_rlcx_rb_rptr_addr_hi = _word(8)
    sdmax_rlcx_ib_cntl = _word(9)
    sdmax_rlcx_ib_rptr = _word(10)
    sdmax_rlcx_ib_offset = _word(11)
    sdmax_rlcx_ib_base = _pair(12)
    sdmax_rlcx_ib_size = _word(14)
    sdmax_rlcx_doorbell = _word(15)
    sdmax_rlcx_doorbell_offset = _word(17)
    sdmax_rlcx_csa_addr = _pair(18)
    sdmax_rlcx_dummy_reg = _word(23)
    sdmax_rlcx_rb_wptr_poll_addr_lo = _word(24)
    sdmax_rlcx_rb_wptr_poll_addr_hi = _word(25)


# generation -> layouts of a compute and of a copy queue; of a generation that is not listed the common fields are known
COMPUTE: dict[int, type[ComputeMqd]] = {9: ComputeMqd9, 10: ComputeMqd10, 11: ComputeMqd11, 12: ComputeMqd11}
SDMA: dict[int, type[SdmaMqd]] = {9: SdmaMqd9, 10: SdmaMqd10, 11: SdmaMqd11, 12: SdmaMqd12}
