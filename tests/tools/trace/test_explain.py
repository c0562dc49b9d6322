"""explain: registers, opcodes, methods, requests and numbers of errors by name."""

from __future__ import annotations

import json

import pytest

from hcq.amd.abi.kfd import KFD_IOCTLS
from hcq.amd.abi.opcodes import Opcode
from hcq.amd.abi.registers import Register
from hcq.amd.chip import CHIPS
from hcq.nv.abi.classes import ARCHITECTURES
from hcq.nv.abi.methods import methods_of
from hcq.tools import hcq_trace
from hcq.tools.trace.explain import anywhere, of_chip, of_class


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert hcq_trace.main(["explain", *arguments]) == 0
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert hcq_trace.main(["explain", *arguments]) == hcq_trace.FAILED
    return capsys.readouterr().err


def test_a_register_is_known_by_its_address_and_by_what_the_packet_counts(capsys):
    assert said(capsys, "0x2e07", "--chip", "gfx1100") == (
        "register of gfx1100: COMPUTE_NUM_THREAD_X  address 0x2e07, SET_SH_REG counts 0x207\n"
        "       15..0  num_thread_full\n"
        "      31..16  num_thread_partial\n"
    )
    assert said(capsys, "0x207", "--chip", "gfx1100") == said(capsys, "0x2e07", "--chip", "gfx1100")


def test_a_value_is_shown_field_by_field(capsys):
    out = said(capsys, "0x2e12", "--chip", "gfx942", "--value", "800003")
    assert "granulated_vgpr_count = 3" in out
    assert "ieee_mode = 1" in out
    out = said(capsys, "0x02b4", "--class", "c7c0", "--value", "0x1234")
    assert "qmd_address_shifted8 = 0x123400" in out


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_every_register_and_opcode_has_one_name_on_each_generation(chip: str):
    for register in Register:
        names = [one.name for one in of_chip(0x2C00 + register, chip) if one.kind.startswith("register")]
        others = {"COMPUTE_PGM_RSRC3", "COMPUTE_PGM_RSRC3_GFX9", "COMPUTE_REQ_CTRL"}
        assert names == [register.name] or (not names and register.name in others)
    assert of_chip(0x2C00 + CHIPS[chip].rsrc3, chip)[0].name.startswith("COMPUTE_PGM_RSRC3")
    for opcode in Opcode:
        assert opcode.name in [one.name for one in of_chip(opcode, chip)]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_method_of_a_class_is_found_by_its_address(arch: str):
    for class_id in (ARCHITECTURES[arch].compute, ARCHITECTURES[arch].copy, ARCHITECTURES[arch].gpfifo):
        for at, method in methods_of(class_id).items():
            (one,) = of_class(at, class_id)
            assert one.name.startswith(method.vendor)


def test_a_request_of_ioctl_has_its_name_and_its_structure(capsys):
    out = said(capsys, "0xc0604b02")
    assert out.startswith(
        "ioctl: AMDKFD_IOC_CREATE_QUEUE  reads and writes, type 0x4b, number 0x2, 96 bytes\n"
    )
    assert "queue_type: 0 COMPUTE, 1 SDMA, 2 COMPUTE_AQL" in out
    assert said(capsys, "0xc020462a").startswith("ioctl: NV_ESC_RM_CONTROL  ")
    assert said(capsys, "0x30000001") == "ioctl: UVM_INITIALIZE  a plain number, of /dev/nvidia-uvm\n"
    assert said(capsys, "0x40286448").startswith("ioctl: DRM_IOCTL_AMDGPU_GEM_VA  ")


@pytest.mark.parametrize(
    "call", [one for one in KFD_IOCTLS.values() if one.size_bytes], ids=lambda one: one.name
)
def test_every_call_of_the_kfd_is_found_by_its_request(call):
    (one, *_) = anywhere(call.request)
    assert one.name == f"AMDKFD_IOC_{call.name}"


def test_a_number_that_can_be_several_things_has_a_line_for_each(capsys):
    out = said(capsys, "13")
    assert "status of NVIDIA's RM: NV_ERR_FREQ_NOT_SUPPORTED" in out
    assert "errno: EACCES" in out
    assert "Xid of NVIDIA's driver: Xid 13" in out
    assert "class of NVIDIA's: AMPERE_COMPUTE_B" in said(capsys, "0xc7c0")
    assert "control of NVIDIA's RM: NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS" in said(capsys, "0x2080012f")
    assert "errno: ENOTTY" in said(capsys, "0xffffffe7")  # minus 25, as a call of the kernel answers


def test_the_meanings_as_json(capsys):
    (one,) = json.loads(said(capsys, "0x2e07", "--chip", "gfx11", "--json"))
    assert one["name"] == "COMPUTE_NUM_THREAD_X"
    assert [text.split()[1] for text in one["fields"]] == ["num_thread_full", "num_thread_partial"]


def test_what_nobody_knows_and_what_is_no_number_are_errors(capsys):
    assert "For a register add --chip gfx1100" in refusal(capsys, "0x2e07")
    assert "no name is known for it" in refusal(capsys, "0x2fff", "--chip", "gfx1100")
    assert "no name is known for it" in refusal(capsys, "0x1ffc", "--class", "c7c0")
    assert "NUMBER 'zz' is no number" in refusal(capsys, "zz")
    assert "--class 'quux' is no number" in refusal(capsys, "1", "--class", "quux")
    assert "--chip navi: not a GPU" in refusal(capsys, "1", "--chip", "navi")
    assert "a class whose methods are not known" in refusal(capsys, "1", "--class", "1234")
