"""MQDs of emulated queues: what the emulated driver shows in debugfs is read back as the queues that a process has."""

from __future__ import annotations

import pytest

from hcq.amd import debugfs
from hcq.amd.abi import mqd
from hcq.amd.device import AmdDevice
from hcq.config import Config
from hcq.emu.port import port_for

# offset in words -> field, of struct v9_mqd, v11_compute_mqd and v12_compute_mqd alike
COMPUTE_WORDS = {
    0: "header",
    11: "compute_pipelinestat_enable",
    19: "compute_pgm_rsrc1",
    25: "compute_tmpring_size",
    106: "disable_queue",
    128: "cp_mqd_base_addr",
    130: "cp_hqd_active",
    136: "cp_hqd_pq_base",
    138: "cp_hqd_pq_rptr",
    139: "cp_hqd_pq_rptr_report_addr",
    141: "cp_hqd_pq_wptr_poll_addr",
    143: "cp_hqd_pq_doorbell_control",
    145: "cp_hqd_pq_control",
    162: "cp_mqd_control",
    165: "cp_hqd_eop_base_addr",
    171: "cp_hqd_ctx_save_base_addr",
    175: "cp_hqd_cntl_stack_size",
    177: "cp_hqd_ctx_save_size",
    179: "cp_hqd_error",
    181: "cp_hqd_aql_control",
    182: "cp_hqd_pq_wptr",
    240: "queue_doorbell_id0",
}
SDMA_WORDS = {
    mqd.SdmaMqd9: {
        8: "rb_rptr_addr_hi",
        18: "doorbell",
        22: "doorbell_offset",
        27: "dummy_reg",
        29: "rb_wptr_poll_addr_lo",
    },
    mqd.SdmaMqd10: {
        8: "rb_rptr_addr_hi",
        18: "doorbell",
        22: "doorbell_offset",
        27: "dummy_reg",
        29: "rb_wptr_poll_addr_lo",
    },
    mqd.SdmaMqd11: {
        7: "rb_rptr_addr_hi",
        17: "doorbell",
        19: "doorbell_offset",
        25: "dummy_reg",
        27: "rb_wptr_poll_addr_lo",
    },
    mqd.SdmaMqd12: {
        7: "rb_rptr_addr_lo",
        15: "doorbell",
        17: "doorbell_offset",
        23: "dummy_reg",
        25: "rb_wptr_poll_addr_hi",
    },
}


@pytest.mark.parametrize("layout", [mqd.ComputeMqd9, mqd.ComputeMqd10, mqd.ComputeMqd11])
def test_fields_of_compute_queues_are_where_the_headers_have_them(layout: type[mqd.ComputeMqd]) -> None:
    assert layout.length_words == 512
    for word, name in COMPUTE_WORDS.items():
        assert layout.fields[name].low == 32 * word, name


@pytest.mark.parametrize("layout", list(SDMA_WORDS))
def test_fields_of_copy_queues_are_where_the_headers_have_them(layout: type[mqd.SdmaMqd]) -> None:
    assert layout.length_words == (130 if layout is mqd.SdmaMqd10 else 128)
    for word, name in {**SDMA_WORDS[layout], 0: "rb_cntl", 1: "rb_base", 3: "rb_rptr", 5: "rb_wptr"}.items():
        assert layout.fields[f"sdmax_rlcx_{name}"].low == 32 * word, name
    assert layout.fields["sdma_engine_id"].low == 32 * (layout.length_words - 2)


@pytest.mark.parametrize(
    "arch, queue",
    [("gfx1030", "aql"), ("gfx1100", "pm4"), ("gfx90a", "aql"), ("gfx1201", "aql"), ("gfx942", "pm4")],
)
def test_the_driver_shows_each_queue_as_it_was_made(arch: str, queue: str) -> None:
    device = AmdDevice("AMD", port_for([f"amd:{arch}"]), Config.read({"HCQ_AMD_QUEUE": queue}))
    try:
        buffer = device.alloc(64, "buffer")
        device.queue().fill(buffer, 1).submit().wait()
        text = device.port.read_file(debugfs.MQDS).decode()
        found = debugfs.mqds(text, {device.node.gpu_id: arch})
        compute, copy = device.rings["compute"], device.rings["copy"]
        mine = [one for one in found if one["fields"].get("cp_hqd_pq_base") == compute.ring.va]
        assert len(mine) == device.node.xccs
        fields = mine[0]["fields"]
        assert fields["cp_hqd_pq_wptr"] == compute.put * (16 if queue == "aql" else 1)
        assert fields["cp_hqd_pq_rptr_report_addr"] == compute.rptr_va
        assert 4 << (fields["cp_hqd_pq_control"] & 0x3F) + 1 == len(compute.bytes)
        assert bool(fields.get("cp_hqd_aql_control")) == (queue == "aql")
        (copies,) = [
            one["fields"] for one in found if one["fields"].get("sdmax_rlcx_rb_base") == copy.ring.va
        ]
        address = copies["sdmax_rlcx_rb_rptr_addr_hi"] << 32 | copies["sdmax_rlcx_rb_rptr_addr_lo"]
        assert address == copy.rptr_va
        assert copies["sdmax_rlcx_rb_wptr"] == copy.put
        assert not any("damaged" in note for one in found for note in one["notes"])
    finally:
        device.close()
