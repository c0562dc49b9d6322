"""Kernel logs: Xids with their messages, and NVIDIA's other lines.

The samples are of our own making, after what the open kernel module prints and public reports of it.
"""

from __future__ import annotations

import re

import pytest

from hcq.emu.nv.errors import Access, FaultType, MmuFault
from hcq.nv.abi import mmu_fault
from hcq.nv.abi.names import table
from hcq.nv.abi.status import describe_xid, xid_help, xid_name
from hcq.tools.trace import kernel_log
from hcq.tools.trace.color import Color
from hcq.tools.trace.kernel_log.event import Event


def events(text: str) -> list[Event]:
    return kernel_log.events(text.split("\n"))


def only(text: str) -> Event:
    (found,) = events(text)
    return found


def xid(number: int, message: str, who: str = "pid=4711, name=train, ") -> Event:
    return only(f"[   12.5] NVRM: Xid (PCI:0000:0a:00): {number}, {who}{message}")


# ------------------------------------------------------------ 31


def test_an_mmu_fault_names_address_client_engine_kind_and_process() -> None:
    event = xid(
        31,
        "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f29_5b8c9000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
    )
    assert event.sentence == (
        "Xid 31 (ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT): a write of 0x7f295b8c9000 by GPCCLIENT_T1_3, loads and stores"
        " of a kernel, for engine GRAPHICS: nothing is mapped there: a page directory has no entry (FAULT_PDE),"
        " process train (pid 4711), channel 0x10"
    )
    assert event.fields["address"] == 0x7F295B8C9000 and event.device == "0000:0a:00" and event.when == "12.5"
    assert event.meaning and event.causes and event.advice


@pytest.mark.parametrize(
    ("written", "address"),
    [("0x7f29_5b8c9000", 0x7F295B8C9000), ("0x0_00001000", 0x1000), ("0x7f295b8c9000", 0x7F295B8C9000)],
)
def test_the_address_may_have_an_underscore_or_none(written: str, address: int) -> None:
    event = xid(31, f"Ch 00000010, intr 10000000. MMU Fault: ENGINE HOST0 HUBCLIENT_HOST faulted @ {written}. Fault is"
                    " of type FAULT_RO_VIOLATION ACCESS_TYPE_VIRT_ATOMIC")  # fmt: skip
    assert event.fields["address"] == address
    assert f"an atomic access of {address:#x} by HUBCLIENT_HOST, the host interface" in event.sentence
    assert "the page may not be written" in event.sentence


def test_a_fault_that_the_emulated_gpu_logs_is_read() -> None:
    fault = MmuFault(
        0x7F0012345000, Access.READ, "GRAPHICS GPCCLIENT_T1_0", "nothing is there", FaultType.PTE
    )
    event = xid(31, f"Ch 00000001, {fault}")
    assert "a read of 0x7f0012345000 by GPCCLIENT_T1_0" in event.sentence and "FAULT_PTE" in event.sentence


@pytest.mark.parametrize("cut", [". Fault is", " FAULT_PDE", " ACCESS_TYPE"])
def test_a_fault_that_is_cut_says_what_is_there(cut: str) -> None:
    text = (
        "NVRM: Xid (PCI:0000:0a:00): 31, pid=1, name=a, Ch 00000010, intr 0. MMU Fault: ENGINE CE2 HUBCLIENT_CE0 "
        "faulted @ 0x7f29_5b8c9000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    )
    event = only(text.partition(cut)[0])
    assert "an access of 0x7f295b8c9000 by HUBCLIENT_CE0, a copy engine" in event.sentence
    assert any("the line is cut" in note for note in event.notes)


def test_a_wrapped_xid_is_put_together() -> None:
    event = only(
        "NVRM: Xid (PCI:0000:0a:00): 31, pid=1, name=a, Ch 00000010,\n"
        "intr 00000000. MMU Fault: ENGINE CE2 HUBCLIENT_CE0 faulted @ 0x7f29_5b8c9000.\n"
        "Fault is of type FAULT_PTE ACCESS_TYPE_VIRT_READ"
    )
    assert "a read of 0x7f295b8c9000" in event.sentence


def test_a_kind_of_fault_that_is_not_known_is_shown_as_it_is() -> None:
    event = xid(31, "Ch 10, intr 0. MMU Fault: ENGINE GRAPHICS GPCCLIENT_ZZ_1 faulted @ 0x1_00000000. Fault is of type"
                    " FAULT_STRANGE ACCESS_TYPE_VIRT_READ")  # fmt: skip
    assert "by GPCCLIENT_ZZ_1 for engine GRAPHICS: FAULT_STRANGE" in event.sentence
    assert "FAULT_STRANGE is no fault type that decode knows" in event.notes


def test_every_fault_type_that_the_emulated_gpu_has_is_in_words() -> None:
    assert all(mmu_fault.describe_type(f"FAULT_{kind.name}") for kind in FaultType)
    assert [mmu_fault.describe_access(f"ACCESS_TYPE_VIRT_{one.name}") for one in Access] == [
        "read",
        "write",
        "atomic",
    ]


# ------------------------------------------------------------ the others


RPC = "Timeout after {}s of waiting for RPC response from GPU{} GSP! Expected function"
MESSAGES = [
    (13, "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Out Of Range Address", "a warp on GPC 1, TPC 2, SM 0 "),
    (13, "Graphics SM Global Exception on (GPC 0, TPC 1): Multiple Warp Errors", "the SM as a whole on GPC 0, TPC 1"),
    (13, "Graphics Exception: ESR 0x504648=0x10009 0x504650=0x20 0x504644=0xd3eff2 0x50464c=0x17f", "0x504648=0x10009"),
    (13, "Graphics Exception: Ch 00000008, Class 0000c7c0, Offset 000002b4, Data 00000001", "0x2b4 of AMPERE_COMP"),
    (69, "Class Error: Ch 00000008, Class 0000c6c0, Offset 00000114, Data 00000000, ErrorCode 0000000c", "code 0xc"),
    (69, "Class Error: Ch 0000001a, Class 0000cbc0, Offset 00000300, Data 00000007, ErrorCode 00000004", "0x300.*0x7"),
    (32, "Channel ID 00000010 intr 00000400", "no method.*channel 0x10"),
    (32, "Ch 00000011, intr 00040000", "channel 0x11"),
    (43, "Ch 00000018", "channel 0x18"),
    (43, "Ch 00000020, engmask 00000101", "channel 0x20"),
    (45, "Ch 00000018", "channel 0x18"),
    (45, "Ch 00000019 caused by previous Xid 31", "channel 0x19"),
    (48, "DBE (double bit error) ECC Error detected by the L2 cache", "double bit"),
    (48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at", "DBE"),
    (61, "0d54(35a0) 00000000 00000000", "stopped"),
    (61, "PMU Breakpoint 0x1", "PMU Breakpoint"),
    (62, "00a1(28c0) 00000000 00000000", "halted"),
    (62, "PMU Halt Error", "PMU Halt"),
    (63, "Row Remapper: New row marked for remapping, reset gpu to activate.", "New row marked"),
    (63, "Dynamic Page Retirement: New retired page, reboot to activate (0x0000000000012345).", "New retired page"),
    (64, "Row Remapper: Remapping of a row Failed", "Failed"),
    (64, "Dynamic Page Retirement: Fatal error, unable to retire page", "unable"),
    (74, "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "link 3"),
    (74, "NVLink: failed to train link 0 to remote PCI:0000:0b:00", "link 0"),
    (79, "GPU has fallen off the bus.", "fallen off"),
    (79, "GPU has fallen off the bus", "fallen off"),
    (92, "High single-bit ECC error rate", "single-bit"),
    (92, "High single-bit ECC error rate.", "single-bit"),
    (94, "Contained: SM (0x1). RST: No, D-RST: No", "of SM was contained; no reset is needed now"),
    (94, "Contained: LTC (0x2, 0x1). physAddr: 0x00012340. RST: No, D-RST: Yes", "of LTC was contained; drain"),
    (95, "Uncontained: FBHUB (0x1). RST: Yes, D-RST: No", "of FBHUB was not contained; a reset is needed"),
    (95, "Uncontained: LTC (0x2). RST: Yes, D-RST: No", "of LTC was not contained"),
    (109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x4c002", "CTX SWITCH TIMEOUT.*channel 0x8"),
    (109, "Ch 0000000a, errorString CTX SWITCH TIMEOUT, Info 0x5c008", "channel 0xa"),
    (119, f"{RPC.format(6, 0)} 76 (GSP_RM_CONTROL) (0x20801702 0x8).",
     "GPU 0 did not answer GSP_RM_CONTROL of NV2080_CTRL_.* within 6 s"),
    (119, f"{RPC.format(45, 3)} 103 (GSP_RM_ALLOC) sequence 42 (0xc7c0 0x0).",
     "GPU 3 did not answer GSP_RM_ALLOC of AMPERE_COMPUTE_B within 45 s"),
    (120, "GSP task exception: cause 0x5 pc 0x1234", "task exception"),
    (120, "GSP-CrashCat Report", "CrashCat"),
    (140, "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:1, LTC:0", "DRAM:1"),
    (140, "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:0, LTC:2", "LTC:2"),
    (154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "now 'GPU Reset Required'"),
    (154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x4 (Drain and Reset)", "'Drain and Reset'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "message", "what"), MESSAGES, ids=[f"{n} {m[:24]}" for n, m, _ in MESSAGES]
)
def test_an_xid_is_told_with_its_message_meaning_causes_and_advice(
    number: int, message: str, what: str
) -> None:
    event = xid(number, message)
    assert event.kind == "Xid" and event.fields["xid"] == number
    assert re.search(what, event.sentence), event.sentence
    assert "train (pid 4711)" in event.sentence
    assert event.meaning and event.causes and event.advice


@pytest.mark.parametrize(
    ("who", "process", "pid"),
    [
        ("pid=4711, name=train, ", "train", 4711),
        ("pid=4711, name=Web Content (x), y, ", "Web Content (x), y", 4711),
        ("pid=12, ", None, 12),
        ("pid='<unknown>', name=<unknown>, ", None, None),
        ("pid=unknown, ", None, None),
        ("", None, None),
    ],
)
def test_the_process_may_have_any_name_or_none(who: str, process: str | None, pid: int | None) -> None:
    event = xid(43, "Ch 00000018", who)
    assert (event.fields.get("process"), event.fields.get("pid")) == (process, pid)
    assert event.fields["channel"] == 0x18


def test_a_message_of_no_known_form_is_no_part_of_the_name() -> None:
    event = xid(43, "something, that nobody printed before")
    assert (
        event.fields["process"] == "train"
        and event.fields["message"] == "something, that nobody printed before"
    )


@pytest.mark.parametrize(
    ("place", "device", "part"),
    [
        ("PCI:0000:0a:00", "0000:0a:00", None),
        ("0000:01:00", "0000:01:00", None),
        ("PCI:0000:65:00 GPU-I:03 GPU-CI:01", "0000:65:00", "GPU-I:03 GPU-CI:01"),
    ],
)
def test_the_place_has_a_form_for_each_release_and_for_instances(
    place: str, device: str, part: str | None
) -> None:
    event = only(f"NVRM: Xid ({place}): 43, Ch 00000008")
    assert event.device == device and event.fields.get("instance") == part


def test_the_error_registers_belong_to_the_exception_before_them() -> None:
    event = only(
        "NVRM: Xid (PCI:0000:0a:00): 13, pid=1, name=a, Graphics SM Warp Exception on (GPC 1, TPC 2): Illegal Address\n"
        "NVRM: Xid (PCI:0000:0a:00): 13, pid=1, name=a, Graphics Exception: ESR 0x504648=0x9 0x504650=0x20\n"
    )
    assert event.lines == [1, 2] and event.fields["esr"] == {"0x504648": "0x9", "0x504650": "0x20"}


def test_warp_and_sm_of_one_exception_are_one_event() -> None:
    line = "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics "
    event = only(
        f"{line}SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter\n"
        f"{line}SM Global Exception on (GPC 7, TPC 7, SM 0): Multiple Warp Errors\n"
        f"{line}Exception: ESR 0x57c730=0xc04000b 0x57c734=0x24\n"
    )
    assert (
        event.lines == [1, 2, 3]
        and "Illegal Instruction Parameter" in event.sentence
        and "Multiple" in event.fields["message"]
    )


def test_a_message_of_numbers_alone_is_told_by_what_its_xid_means() -> None:
    assert "a channel was stopped because of an error of its program" in xid(43, "Ch 00000018").sentence
    assert "the power management unit of the GPU halted" in xid(62, "2023b230 20238a3a 2023e8b6").sentence


def test_error_registers_in_a_line_each_are_one_event() -> None:
    lines = [
        f"NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception: ESR {at}=0x{at[-1]}"
        for at in ("0x4041b0", "0x404001")
    ]
    method = "NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception: ChID 0052, Class 0000a0c0, Offset 00001b0c, Data 1"
    registers, refused = events("\n".join([*lines, method]))
    assert registers.fields["esr"] == {"0x4041b0": "0x0", "0x404001": "0x1"} and registers.lines == [1, 2]
    assert refused.fields["channel"] == 0x52 and "method 0x1b0c" in refused.sentence


def test_a_fault_without_its_report_has_what_there_is() -> None:
    event = only("NVRM: Xid (PCI:0000:01:00): 31, Ch 00000003, engmask 00000101, intr 10000000")
    assert event.fields["channel"] == 3 and "asked for an address" in event.sentence


def test_what_the_firmware_adds_belongs_to_its_xid() -> None:
    event = only(
        "NVRM: Xid (PCI:0000:0a:00): 119, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function"
        " 10 (FREE) (0x0 0x0).\n"
        "NVRM: GPU0 GSP RPC buffer contains function 10 (FREE) and data 0x0000000000000000 0x0000000000000000.\n"
        "NVRM: GPU0 RPC history (CPU -> GSP):\n"
        "NVRM:     entry function                   data0              data1\n"
        "NVRM:      0    10   FREE                  0x0000000000000000 0x0000000000000000\n"
    )
    assert event.lines == [1, 2, 3, 4, 5]


def test_a_removal_that_another_xid_caused_is_a_consequence() -> None:
    event = xid(45, "Ch 00000018 caused by previous Xid 109")
    assert (
        event.role == "consequence" and "the driver says that Xid 109 before it is the cause" in event.notes
    )


def test_a_number_that_nobody_knows_is_shown_as_unknown() -> None:
    event = xid(4242, "something new")
    assert "a number that decode does not know" in event.sentence and "something new" in event.sentence
    assert any("nothing public is known" in note for note in event.notes)


def test_an_error_of_a_switch_is_no_xid() -> None:
    event = only(
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44 egress non-posted PRIV error"
    )
    assert event.kind == "SXid" and event.fields["sxid"] == 12028 and "not those of Xids" in event.meaning
    two = only("nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    assert "20034" in two.sentence


def test_xids_of_driver_and_log_have_one_table() -> None:
    assert xid_name(31) == "ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT" and xid_help(31)[1] in describe_xid(31)
    assert set(table("xid_advice")) - set(table("xids")) == {38}  # the headers have no constant for it
    assert all(meaning and advice for meaning, advice in table("xid_advice").values())


@pytest.mark.parametrize("number", [138, 139, 140, 142, 143])
def test_only_errors_of_nvlink_are_said_to_be_of_nvlink(number: int) -> None:
    assert "NVLink" not in describe_xid(number)


# ------------------------------------------------------------ other lines


def test_versions_that_do_not_match_are_one_event() -> None:
    event = only(
        "NVRM: API mismatch: the client has the version 570.86.15, but\n"
        "NVRM: this kernel module has the version 580.142.  Please\n"
        "NVRM: make sure that this kernel module and all NVIDIA driver\n"
        "NVRM: components have the same version.\n"
    )
    assert "release 570.86.15, the kernel module is of 580.142" in event.sentence and event.lines == [
        1,
        2,
        3,
        4,
    ]
    other = only(
        "NVRM: API mismatch: the client has the version 535.1.2, but this kernel module has the version 550.3"
    )
    assert "535.1.2" in other.sentence and "550.3" in other.sentence


def test_a_gpu_that_does_not_start_has_its_status_in_words() -> None:
    first, second = events(
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2477)\n"
        "NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0\n"
    )
    assert "NV_ERR_INVALID_STATE" in first.sentence and second.role == "consequence"


def test_an_assertion_is_shown_as_unknown_with_its_place() -> None:
    event = only("NVRM: nvAssertFailedNoLog: Assertion failed: pGpu != NULL @ kernel_gsp.c:1234")
    assert event.role == "unknown" and "at kernel_gsp.c:1234" in event.sentence
    event = only(
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: timed out [NV_ERR_TIMEOUT] (0x00000065) returned @ a.c:9"
    )
    assert event.role == "unknown" and "a.c:9" in event.sentence and "NV_ERR_TIMEOUT" in event.sentence
    assert "unknown: a check inside the driver failed" in "\n".join(kernel_log.lines([event], Color(False)))


def test_the_release_of_the_driver_is_known() -> None:
    for text in (
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.142  Mon Jan 5 2026",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build",
    ):
        event = only(text)
        assert event.role == "notice" and event.fields["release"] in text


@pytest.mark.parametrize(
    ("registers", "says"),
    [
        ("0x504730=0xc08000e 0x504734=0x4", "warp 8: out of range address; the SM: errors of several warps"),
        ("0x5057b0=0x10009 0x5057b4=0x0 0x5057a8=0xf81eb60 0x5057ac=0x1174", "warp 1: illegal instruction encoding"),
        ("0x50c648=0x40009 0x50c650=0x20", "warp 4: illegal instruction encoding; the SM: paused"),
        ("0x505730=0x20077 0x505734=0x80000", "warp 2: error 0x77, which is not known; the SM: bits 0x80000"),
        ("0x404490=0x80000001", None),
    ],
)  # fmt: skip
def test_error_registers_of_an_sm_are_told_in_words(registers: str, says: str | None) -> None:
    sentence = xid(13, f"Graphics Exception: ESR {registers}").sentence
    assert (
        f"error registers are {registers}: {says}" if says else f"error registers are {registers}"
    ) in sentence
