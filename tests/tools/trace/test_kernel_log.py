"""Kernel logs: page faults of amdgpu put together, and every line of the table in two forms at least.

The samples are of our own making, after what the drivers print; names, addresses and numbers are invented.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable

import pytest

from hcq.amd.abi.page_fault import ProtectionFaultStatus
from hcq.tools import hcq_trace
from hcq.tools.trace import kernel_log, readers
from hcq.tools.trace.color import Color
from hcq.tools.trace.kernel_log.event import ROLES, Event
from hcq.tools.trace.kernel_log.log_lines import LogLine, read
from hcq.tools.trace.kernel_log.patterns import event_of, patterns

GFX11 = """\
[  812.100001] amdgpu 0000:03:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32771, for process train pid 4711 thread train pid 4711)
[  812.100002] amdgpu 0000:03:00.0: amdgpu:   in page starting at address 0x00007f11aa200000 from client 10
[  812.100003] amdgpu 0000:03:00.0: amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:0x00801031
[  812.100004] amdgpu 0000:03:00.0: amdgpu: \t Faulty UTCL2 client ID: TCP (0x8)
[  812.100005] amdgpu 0000:03:00.0: amdgpu: \t MORE_FAULTS: 0x1
[  812.100006] amdgpu 0000:03:00.0: amdgpu: \t WALKER_ERROR: 0x0
[  812.100007] amdgpu 0000:03:00.0: amdgpu: \t PERMISSION_FAULTS: 0x3
[  812.100008] amdgpu 0000:03:00.0: amdgpu: \t MAPPING_ERROR: 0x0
[  812.100009] amdgpu 0000:03:00.0: amdgpu: \t RW: 0x0
"""  # noqa: E501
GFX9 = """\
Nov 07 01:36:58 box kernel: amdgpu 0000:43:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:40 vmid:9 pasid:32770)
Nov 07 01:36:58 box kernel: amdgpu 0000:43:00.0: amdgpu:  for process sim pid 12 thread sim pid 14)
Nov 07 01:36:58 box kernel: amdgpu 0000:43:00.0: amdgpu:   in page starting at address 0x00007fa000001000 from IH client 0x1b (UTCL2)
Nov 07 01:36:58 box kernel: amdgpu 0000:43:00.0: amdgpu:   cookie node_id 3 fault from die AID1.XCD0
Nov 07 01:36:58 box kernel: amdgpu 0000:43:00.0: amdgpu: VM_L2_PROTECTION_FAULT_STATUS:0x00941051
"""  # noqa: E501
MMHUB = """\
amdgpu 0000:0b:00.0: [mmhub] page fault (src_id:0 ring:0 vmid:4 pasid:32780)
amdgpu 0000:0b:00.0:  Process player pid 99 thread player:cs0 pid 101
amdgpu 0000:0b:00.0:   in page starting at address 0x0000000100200000 from client 18
amdgpu 0000:0b:00.0: MMVM_L2_PROTECTION_FAULT_STATUS:0x00440C51
amdgpu 0000:0b:00.0: \t Faulty UTCL2 client ID: VCN0 (0x6)
"""


def events(text: str) -> list[Event]:
    return kernel_log.events(text.split("\n"))


def only(text: str) -> Event:
    (found,) = events(text)
    return found


def said(text: str) -> str:
    return "\n".join(kernel_log.lines(events(text), Color(False)))


@pytest.fixture
def decode(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The program with a text on its standard input."""

    def run(text: str, *more: str) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert hcq_trace.main(["decode", "-", *more]) == 0
        return capsys.readouterr().out

    return run


# ------------------------------------------------------------ page faults


def test_a_fault_of_nine_lines_is_one_event_with_a_sentence() -> None:
    event = only(GFX11)
    assert event.sentence == (
        "page fault: a read of the page at 0x7f11aa200000 by TCP, a vector load or store of a kernel,"
        " for process train (pid 4711): the page is not mapped"
    )
    assert (event.when, event.device, event.lines) == ("812.100001", "0000:03:00", list(range(1, 10)))
    assert event.fields["permission_faults"] == 3 and event.fields["vmid"] == 8 and not event.notes
    assert event.meaning and event.causes and event.advice


def test_a_fault_of_gfx9_names_its_client_by_the_status_word_alone() -> None:
    event = only(GFX9)
    assert event.sentence == (
        "page fault: a write of the page at 0x7fa000001000 by TCP, a vector load or store of a kernel,"
        " for process sim (pid 12): the page is not mapped"
    )
    assert event.fields["die"] == "AID1.XCD0" and event.fields["retry"] is False
    assert event.fields["tid"] == 14 and event.when == "Nov 07 01:36:58"


def test_a_fault_of_the_mmhub_has_its_own_clients() -> None:
    event = only(MMHUB)
    assert (
        "a write of the page at 0x100200000 by VCN0, the video engine, for process player (pid 99)"
        in event.sentence
    )
    unnamed = only("\n".join(MMHUB.split("\n")[:4]))
    assert "client 0x6 of the mmhub" in unnamed.sentence


@pytest.mark.parametrize(
    ("hub", "cid", "name"),
    [
        ("GCVM", 5, "CPC"),
        ("VM", 5, "CPC"),
        ("GCVM", 0xD, "SDMA0"),
        ("VM", 0xC, "PA"),
        ("GCVM", 2, "GE1"),
        ("VM", 2, "IA"),
    ],
)
def test_clients_of_the_gfxhub_have_the_names_of_their_generation(hub: str, cid: int, name: str) -> None:
    status = ProtectionFaultStatus(cid=cid, permission_faults=3).words[0]
    event = only(f"amdgpu: {hub}_L2_PROTECTION_FAULT_STATUS:{status:#010x}")
    assert event.fields["client"] == name


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"permission_faults": 3}, "a read of an unknown page by CB/DB.*: the page is not mapped"),
        ({"permission_faults": 5, "rw": 1}, "a write of an unknown page.*: the page is not mapped"),
        ({"permission_faults": 4, "rw": 1}, "a write of .*: the page may not be written"),
        ({"permission_faults": 2}, "a read of .*: the page may not be read"),
        ({"permission_faults": 8, "cid": 9}, "a fetch of .*: the page holds no code that may run"),
        ({"mapping_error": 1}, "physical address that does not exist"),
        ({"walker_error": 2}, "the page is not mapped"),
        ({"permission_faults": 5, "rw": 1, "atomic": 1}, "an atomic access of"),
    ],
)
def test_the_status_word_says_which_access_it_was_and_why_it_was_refused(
    fields: dict[str, int], what: str
) -> None:
    import re

    status = ProtectionFaultStatus(**fields).words[0]
    assert re.search(what, only(f"amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:{status | 1:#010x}").sentence)


def test_fields_that_contradict_the_status_word_are_said() -> None:
    event = only(GFX11.replace("RW: 0x0", "RW: 0x1").replace("vmid:8", "vmid:3"))
    assert "the log has RW 0x1, the status word 0x0" in event.notes
    assert any("VMID 3, the status word 8" in note for note in event.notes)


def test_lines_of_two_faults_may_stand_between_each_other() -> None:
    one, other = (
        GFX11.splitlines(),
        GFX11.replace("7f11aa2", "7f22bb2").replace("vmid:8", "vmid:3").splitlines(),
    )
    other[2] = other[2].replace("0x00801031", "0x00341051")
    mixed = [one[0], other[0], one[1], other[1], other[2], one[2]]
    first, second = events("\n".join(line.replace("812.1", f"812.{at}1") for at, line in enumerate(mixed)))
    assert "a read of the page at 0x7f11aa200000" in first.sentence
    assert "a write of the page at 0x7f22bb200000" in second.sentence


def test_two_gpus_that_fault_at_once_are_kept_apart() -> None:
    other = GFX11.replace("03:00.0", "83:00.0").replace("7f11", "7f33").replace("812.", "813.")
    mixed = [line for pair in zip(GFX11.splitlines(), other.splitlines()) for line in pair]
    assert [(e.device, hex(e.fields["page"])) for e in events("\n".join(mixed))] == [
        ("0000:03:00", "0x7f11aa200000"),
        ("0000:83:00", "0x7f33aa200000"),
    ]


def test_the_second_fault_of_a_burst_has_no_status() -> None:
    lines = GFX11.splitlines()
    status = lines[2].replace("0x00801031", "0x00000000")
    event = only("\n".join([lines[0], lines[1], status]))
    assert "a read of the page at 0x7f11aa200000 by an unknown client (interrupt client 10)" in event.sentence
    assert any("one of a burst" in note for note in event.notes)
    assert any("no ring but the interrupt's protection bits" in note for note in event.notes)


def test_fields_below_a_status_of_zero_are_no_facts() -> None:
    lines = (
        GFX11.replace("0x00801031", "0x00000000")
        .replace("TCP (0x8)", "CB/DB (0x0)")
        .replace("FAULTS: 0x3", "FAULTS: 0x0")
    )
    event = only(lines.replace("from client 10", "from client 0x1b (UTCL2)"))
    assert "a read of the page at 0x7f11aa200000 by an unknown client" in event.sentence
    assert "client" not in event.fields and "CB" not in event.sentence


def test_a_log_with_the_newest_line_first_is_read_from_its_end() -> None:
    other = (
        GFX11.replace("812.", "813.")
        .replace("7f11aa2", "7f22bb2")
        .replace("(0x8)", "(0xd)")
        .replace("TCP", "SDMA0")
    )
    first, second = events("\n".join(reversed((GFX11 + other).splitlines())))
    assert (
        "0x7f11aa200000 by TCP" in first.sentence
        and first.line == 18
        and first.lines == list(range(18, 9, -1))
    )
    assert "0x7f22bb200000 by SDMA0" in second.sentence and second.line == 9


def test_a_log_of_freebsd_names_its_devices_otherwise() -> None:
    text = GFX9.replace("amdgpu 0000:43:00.0: amdgpu:", "drmn0:")
    assert "a write of the page at 0x7fa000001000 by TCP" in only(text).sentence


@pytest.mark.parametrize("gone", range(9))
def test_a_fault_of_which_a_line_is_missing_is_still_one_event(gone: int) -> None:
    lines = GFX11.splitlines()
    del lines[gone]
    event = only("\n".join(lines))
    assert event.sentence.startswith("page fault: ")
    if gone == 1:
        assert "an unknown page" in event.sentence and "the line with the address is missing" in event.notes
    else:
        assert "0x7f11aa200000" in event.sentence


def test_an_address_that_is_cut_is_said_to_be_cut() -> None:
    event = only(GFX11.replace("0x00007f11aa200000 from client 10", "0x00007f11aa"))
    assert any("10 digits of 16" in note for note in event.notes)


# ------------------------------------------------------------ what stands around a line


FORMS = {
    "dmesg": "[    7.25] {}",
    "dmesg -T": "[Tue Jul 23 13:49:25 2024] {}",
    "dmesg -x": "kern  :err   : [  812.100001] {}",
    "iso": "kern  :err   : 2024-11-24T17:53:23,028841-06:00 {}",
    "journalctl": "Nov 07 01:36:58 box kernel: {}",
    "short-iso": "2024-11-07T01:36:58+0100 box kernel: {}",
    "kmsg": "3,1042,812100001,-;{}",
    "quoted": "> > [    7.25] {}\r",
    "coloured": "\x1b[32m[    7.25] \x1b[0m\x1b[31m{}\x1b[0m",
    "html": "<code>[    7.25] {}</code>",
    "odd spaces": "\u00a0\u00a0[    7.25]\u00a0{}",
    "time of day": "13:49:25 {}",
    "bare": "{}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_line_is_read_in_each_form_that_logs_have(form: str) -> None:
    bare = [line.partition("] ")[2] for line in GFX11.splitlines()]
    event = only("\n".join(FORMS[form].format(line) for line in bare))
    assert "a read of the page at 0x7f11aa200000 by TCP" in event.sentence and len(event.lines) == 9
    assert bool(event.when) == (form != "bare")


def test_a_line_that_was_wrapped_is_put_together() -> None:
    bare = "\n".join(line.partition("] ")[2] for line in GFX11.splitlines())
    event = only(bare.replace("vmid:8 pasid", "\nvmid:8 pasid"))
    assert event.fields["vmid"] == 8 and event.fields["pid"] == 4711


def test_a_log_that_stands_twice_in_a_text_is_counted_once() -> None:
    event = only(GFX11 + "something else\n" * 40 + GFX11)
    assert event.copies[0] == 50 and "counted once" in said(GFX11 + "\n" * 40 + GFX11)


def test_faults_that_differ_in_numbers_are_shown_once() -> None:
    many = "".join(GFX11.replace("aa200", f"aa{at:03x}").replace("812.", f"{at}.") for at in range(200))
    assert len(events(many)) == 200
    shown = said(many)
    assert "199 like it, which differ in numbers" in shown and len(shown.splitlines()) < 20


# ------------------------------------------------------------ the table


TWICE: list[tuple[str, str, str]] = [
    ("amdgpu: ring gfx_0.0.0 timeout, but soft recovered", "soft recovery", "ring gfx_0.0.0 did not end"),
    (
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, but soft recovered",
        "soft recovery",
        "sdma0",
    ),
    (
        "amdgpu: ring comp_1.0.0 timeout, signaled seq=12, emitted seq=14",
        "ring timeout",
        "fence 12 .* 14 the last",
    ),
    (
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=2",
        "ring timeout",
        "gfx",
    ),
    ("amdgpu: ring gfx_0.0.0 timeout, sig", "ring timeout", "the rest of the line is missing"),
    ("amdgpu: ring mes_3.0.0 timeout", "ring timeout", "mes_3.0.0"),
    ("amdgpu: Process information: process a b pid 3 thread c pid 4", "job's process", r"a b \(pid 3\)"),
    (
        "[drm:x [amdgpu]] *ERROR* Process information: process  pid 0 thread  pid 0",
        "job's process",
        r"\(pid 0\)",
    ),
    ("amdgpu 0000:03:00.0:  Process game pid 31 thread game:cs0 pid 32", "job's process", r"game \(pid 31\)"),
    ("amdgpu: Process app pid 7", "job's process", r"app \(pid 7\)"),
    ("amdgpu: Dumping IP State", "dump", "devcoredump"),
    ("amdgpu: Dumping IP State Completed", "dump", "devcoredump"),
    ("amdgpu: [drm] AMDGPU device coredump file has been created", "dump", "devcoredump was made"),
    ("[drm] amdgpu: AMDGPU device coredump file has been created", "dump", "devcoredump was made"),
    ("amdgpu: Starting gfx_0.0.0 ring reset", "ring reset", "reset ring gfx_0.0.0 alone"),
    ("amdgpu: Starting comp_1.1.0 ring reset", "ring reset", "comp_1.1.0"),
    ("amdgpu: Ring gfx_0.0.0 reset succeeded", "ring reset", "ring gfx_0.0.0 was reset"),
    ("amdgpu: Ring sdma1 reset succeeded", "ring reset", "ring sdma1 was reset"),
    ("amdgpu: Ring gfx_0.0.0 reset failed", "ring reset", "could not be reset alone"),
    ("amdgpu: Ring gfx_0.0.0 reset failure", "ring reset", "could not be reset alone"),
    ("amdgpu: GPU reset begin!", "GPU reset", "resets the whole GPU$"),
    ("amdgpu: GPU reset begin!. Source:  3", "GPU reset", "the scheduler firmware .MES. does not answer"),
    ("amdgpu: GPU reset(2) succeeded!", "GPU reset", "number 2 of the GPU succeeded"),
    ("amdgpu: GPU reset(11) succeeded!", "GPU reset", "number 11"),
    ("amdgpu: GPU reset(2) failed", "GPU reset", "number 2 of the GPU failed"),
    ("amdgpu: GPU reset(5) failed", "GPU reset", "number 5 of the GPU failed"),
    ("amdgpu: GPU reset end with ret = -62", "GPU reset", "-62 .ETIME"),
    ("amdgpu: GPU reset end with ret = 0", "GPU reset", "ended with 0$"),
    ("amdgpu: MODE1 reset", "GPU reset", "MODE1"),
    ("amdgpu: BACO reset", "GPU reset", "BACO"),
    ("amdgpu: ASIC reset failed with error, -110 for drm dev, 0000:03:00.0", "GPU reset", "-110 .ETIMEDOUT"),
    ("amdgpu: ASIC reset failed with error, -5 for drm dev, x", "GPU reset", "-5 .EIO"),
    ("amdgpu 0000:03:00.0: [drm] device wedged, but recovered through reset", "GPU reset", "recovered"),
    ("amdgpu: [drm] device wedged, but recovered through reset", "GPU reset", "recovered"),
    (
        "amdgpu: Bailing on TDR for s_job:1, as another already in progress",
        "GPU reset",
        "another is going on",
    ),
    (
        "[drm] amdgpu: Bailing on TDR for s_job:ff, hive: 3 as another already in progress",
        "GPU reset",
        "another",
    ),
    ("amdgpu: [drm] VRAM is lost due to GPU reset!", "VRAM lost", "everything in the GPU's memory"),
    ("amdgpu 0000:03:00.0: VRAM is lost due to GPU reset!", "VRAM lost", "everything"),
    (
        "[drm:gfx_v11_0_priv_reg_irq [amdgpu]] *ERROR* Illegal register access in command stream",
        "illegal register",
        "user",
    ),
    (
        "[drm:gfx_v9_0_priv_reg_irq [amdgpu]] *ERROR* Illegal register access in command stream",
        "illegal register",
        "user",
    ),
    (
        "[drm:gfx_v10_0_priv_inst_irq [amdgpu]] *ERROR* Illegal instruction in command stream",
        "illegal instruction",
        "know",
    ),
    (
        "[drm:gfx_v8_0_priv_inst_irq [amdgpu]] *ERROR* Illegal instruction in command stream",
        "illegal instruction",
        "know",
    ),
    (
        "[drm:gfx_v11_0_bad_op_irq [amdgpu]] *ERROR* Illegal opcode in command stream",
        "illegal opcode",
        "opcode",
    ),
    (
        "[drm:gfx_v12_0_bad_op_irq [amdgpu]] *ERROR* Illegal opcode in command stream",
        "illegal opcode",
        "opcode",
    ),
    ("amdgpu: MES failed to respond to msg=REMOVE_QUEUE", "MES hang", "did not answer REMOVE_QUEUE"),
    (
        "amdgpu: MES failed to respond to msg=MISC (WAIT_REG_MEM)",
        "MES hang",
        r"did not answer MISC \(WAIT_REG_MEM\)",
    ),
    ("amdgpu: MES(0) failed to respond to msg=ADD_QUEUE", "MES hang", "pipe 0 .* failed to respond"),
    ("amdgpu: MES(1) failed to respond to msg=SUSPEND", "MES hang", "pipe 1"),
    ("amdgpu: MES ring buffer is full.", "MES hang", "is full"),
    ("[drm:mes_v11_0_submit [amdgpu]] *ERROR* MES ring buffer is full.", "MES hang", "is full"),
    ("amdgpu: MES might be in unrecoverable state, issue a GPU reset", "MES hang", "may not recover"),
    (
        "amdgpu 0000:03:00.0: MES might be in unrecoverable state, issue a GPU reset",
        "MES hang",
        "may not recover",
    ),
    ("amdgpu: failed to remove hardware queue from MES, doorbell=0x1002", "MES hang", "doorbell 0x1002"),
    ("amdgpu: failed to remove hardware queue from MES, doorbell=0x2a", "MES hang", "doorbell 0x2a"),
    ("amdgpu: failed to add hardware queue to MES, doorbell=0x1002", "MES hang", "put on the GPU"),
    ("amdgpu: failed to add hardware queue to MES, doorbell=0x3", "MES hang", "put on the GPU"),
    ("amdgpu: failed to suspend all gangs from MES", "MES hang", "suspended"),
    ("amdgpu 0000:03:00.0: failed to suspend all gangs from MES", "MES hang", "suspended"),
    ("[drm:gfx_v11_0_hw_fini [amdgpu]] *ERROR* failed to halt cp gfx", "CP hang", "could not be stopped"),
    ("amdgpu: failed to halt cp gfx", "CP hang", "could not be stopped"),
    ("amdgpu: KIQ kcq disable failed", "CP hang", "KIQ"),
    ("[drm:x [amdgpu]] *ERROR* KIQ kgq disable failed", "CP hang", "KIQ"),
    ("amdgpu: cp queue preemption time out.", "CP hang", "did not take a queue off"),
    ("kfd kfd: amdgpu: cp queue preemption time out", "CP hang", "did not take a queue off"),
    ("amdgpu: Queue preemption failed for queue with doorbell_id: 8001", "CP hang", "doorbell 8001"),
    ("kfd kfd: amdgpu: Queue preemption failed for queue with doorbell_id: 80004008", "CP hang", "80004008"),
    (
        "amdgpu: The cp might be in an unrecoverable state due to an unsuccessful queues preemption",
        "CP hang",
        "may not",
    ),
    ("kfd kfd: amdgpu: The cp might be in an unrecoverable state due to", "CP hang", "may not recover"),
    ("amdgpu: HIQ MQD's queue_doorbell_id0 is not 0, Queue preemption time out", "CP hang", "HIQ"),
    ("kfd kfd: amdgpu: HIQ MQD's queue_doorbell_id0 is not 0, Queue preemption time out", "CP hang", "HIQ"),
    ("amdgpu: Resetting wave fronts (nocpsch) on dev 00000000aa", "CP hang", "waves of a process are killed"),
    ("kfd kfd: amdgpu: Resetting wave fronts (cpsch) on dev 00", "CP hang", "killed"),
    ("amdgpu: failed to wait on sdma queue reset done", "SDMA", "did not finish the reset"),
    ("[drm:sdma_v6_0 [amdgpu]] *ERROR* failed to wait on sdma queue reset done", "SDMA", "did not finish"),
    ("amdgpu: reset sdma queue (0:0:0)", "SDMA", "queue 0:0:0"),
    ("amdgpu: reset sdma queue (1:0:2)", "SDMA", "queue 1:0:2"),
    ("amdgpu: SDMA0 SRAM ECC error", "SDMA", "copy engine 0 reports: SRAM ECC error"),
    (
        "[drm:sdma_v5_2_irq [amdgpu]] *ERROR* SDMA: Illegal instruction in SDMA command stream",
        "SDMA",
        "Illegal instr",
    ),
    ("amdgpu: Timeout waiting for VM flush ACK!", "TLB flush", "did not end"),
    ("amdgpu: Timeout waiting for sem acquire in VM flush!", "TLB flush", "did not end"),
    (
        "amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x0000002A SMN_C2PMSG_82:0x0",
        "SMU",
        "finish",
    ),
    ("amdgpu 0000:03:00.0: SMU: I'm not done with your previous command!", "SMU", "did not finish"),
    (
        "amdgpu: SMU: response:0xFFFFFFFF for index:18 param:0x00000005 message:X?",
        "SMU",
        "0xFFFFFFFF to message 18",
    ),
    ("amdgpu: SMU: response:0x000000FE for index:2", "SMU", "0x000000FE to message 2"),
    ("amdgpu: IH ring buffer overflow (0x0008F120, 0x0000F130, 0x0000F140)", "IH overflow", "ran over"),
    (
        "amdgpu 0000:03:00.0: IH ring buffer overflow (0x00000020, 0x00000000, 0x00000040)",
        "IH overflow",
        "ran over",
    ),
    ("amdgpu: device lost from bus!", "bus", "no longer on the bus"),
    ("amdgpu 0000:03:00.0: device lost from bus!", "bus", "no longer on the bus"),
    (
        "pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: 0000:03:00.0",
        "PCIe",
        "Uncorrected .Fatal. error",
    ),
    ("pcieport 0000:00:01.1: AER: Corrected error received: 0000:03:00.0", "PCIe", "Corrected error"),
    (
        "amdgpu: sq_intr: error, detail 0x00000000, type 1, sh 0, priv 0, wave_id 2, simd_id 1, wgp_id 3",
        "wave error",
        "illegal",
    ),
    (
        "amdgpu: sq_intr: error, se 2, detail 0x00000000, type 2, sh 0, priv 0, wave_id 5, simd_id 1, cu_id 3",
        "wave error",
        r"a memory violation \(se 2, sh 0, cu 3, simd 1, wave 5\)",
    ),
    (
        "amdgpu: sq_intr: error, se 2, data 0x1, sh 0, priv 1, wave_id 3, simd_id 2, cu_id 7, err_type 2",
        "wave error",
        r"memory violation \(se 2, sh 0, cu 7, simd 2, wave 3\)",
    ),
    (
        "amdgpu: sq_intr: error, se 0, data 0x0, sh 0, priv 0, wave_id 1, simd_id 0, cu_id 1, err_type 1",
        "wave error",
        r"illegal instruction \(se 0, sh 0, cu 1, simd 0, wave 1\)",
    ),
    ("amdgpu: sq_intr: auto, se 0, ttrace 1", "wave interrupt", "auto"),
    ("amdgpu: sq_intr: inst, data 0x00000001, sh 0", "wave interrupt", "inst"),
    ("amdgpu: Failed to evict queue 3", "queue eviction", "queue 3"),
    ("kfd kfd: amdgpu: Failed to evict queue 1", "queue eviction", "queue 1"),
    ("amdgpu: Failed to evict process queues", "queue eviction", "queues of a process"),
    ("kfd kfd: amdgpu: Failed to evict process queues", "queue eviction", "queues of a process"),
    ("amdgpu: Failed to quiesce KFD", "queue eviction", "could not stop"),
    ("kfd kfd: amdgpu: Failed to quiesce KFD", "queue eviction", "could not stop"),
    ("amdgpu: Pasid 0x8003 DQM create queue type 0 failed. ret -12", "queue creation", "0x8003: -12 .ENOMEM"),
    ("amdgpu: Pasid 0x8001 DQM create queue failed. ret -5", "queue creation", "0x8001: -5 .EIO"),
    ("amdgpu: Freeing queue vital buffer 0x7f0000200000, queue evicted", "queue eviction", "0x7f0000200000"),
    ("kfd kfd: amdgpu: Freeing queue vital buffer 0x40, queue evicted", "queue eviction", "0x40"),
    ("amdgpu: Did not find vmid for process", "queue eviction", "could not be found"),
    ("kfd kfd: amdgpu: Did not find vmid", "queue eviction", "could not be found"),
    ("amdgpu: {2}[Hardware Error]: Accelerator Check Architecture events logged", "RAS", "Accelerator Check"),
    ("amdgpu: [Hardware Error]: ACA[01/04].STATUS=0xb", "RAS", "ACA"),
    (
        "amdgpu: socket: 0, die: 0, no uncorrectable hardware errors detected in umc block",
        "RAS",
        "umc has no uncorrectable",
    ),
    (
        "amdgpu: no uncorrectable hardware errors detected in total in gfx block",
        "RAS",
        "gfx has no uncorrectable",
    ),
    ("amdgpu: no correctable hardware errors detected in umc block", "RAS", "umc has no correctable"),
    (
        "amdgpu: no correctable hardware errors detected in total in sdma block",
        "RAS",
        "sdma has no correctable",
    ),
    (
        "amdgpu: 2 uncorrectable hardware errors detected in total in umc block, no user action is needed",
        "RAS",
        "2 uncorr",
    ),
    (
        "amdgpu: {7}[socket: 1, die: 2, ]1 new uncorrectable hardware errors detected in umc block",
        "RAS",
        "1 uncorr",
    ),
    ("amdgpu: 4 correctable hardware errors detected in total in umc block", "RAS", "4 corrected"),
    (
        "amdgpu: socket: 0, die: 1, 9 new correctable hardware errors detected in gfx block",
        "RAS",
        "9 corrected",
    ),
    ("amdgpu: poison is consumed by client 10, kick off gpu reset flow", "RAS", "client 10"),
    ("amdgpu: RAS poison is consumed by client 5", "RAS", "client 5"),
    ("amdgpu: Poison is created", "RAS", "was marked"),
    ("amdgpu: poison is created, no user action is needed.", "RAS", "was marked"),
    ("amdgpu: Fatal error during GPU init", "init", "could not start"),
    ("amdgpu 0000:03:00.0: Fatal error during GPU init", "init", "could not start"),
    ("amdgpu: hw_init of IP block <psp> failed -22", "init", "part psp .* -22 .EINVAL"),
    (
        "[drm:amdgpu_device_init [amdgpu]] *ERROR* hw_init of IP block <gfx_v11_0> failed -110",
        "init",
        "gfx_v11_0",
    ),
    ("amdgpu: [drm:x] *ERROR* ring gfx_0.0.0 test failed (-110)", "ring test", "gfx_0.0.0 does not answer"),
    ("amdgpu: ring kiq_2.1.0 test failed (-110)", "ring test", "kiq_2.1.0"),
    ("amdgpu: [drm:x] *ERROR* IB test failed on sdma0 (-110).", "ring test", "first job on ring sdma0"),
    ("amdgpu: IB test failed on vcn_unified_0 (-110).", "ring test", "vcn_unified_0"),
    (
        "[drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Not enough memory for command submission!",
        "out of memory",
        "more memory",
    ),
    ("amdgpu: Not enough memory for command submission!", "out of memory", "more memory"),
    ("gmc_v11_0_process_interrupt: 23 callbacks suppressed", "suppressed", "23 more lines"),
    ("amdgpu_vm_x: 4 callbacks suppressed", "suppressed", "4 more lines"),
    ("amdgpu: [drm] device wedged, but no recovery needed", "GPU reset", "one ring was enough"),
    ("amdgpu 0000:c3:00.0: [drm] device wedged, but no recovery needed", "GPU reset", "one ring was enough"),
    ("amdgpu: GPU reset succeeded, trying to resume", "GPU reset", "starts its parts again"),
    ("amdgpu 0000:03:00.0: GPU reset succeeded, trying to resume", "GPU reset", "starts its parts again"),
    (
        "amdgpu: [drm] Check your /sys/class/drm/card1/device/devcoredump/data",
        "dump",
        "is at /sys/class/drm/card1/",
    ),
    ("[drm] amdgpu: Check your /sys/class/drm/card0/device/devcoredump/data", "dump", "card0"),
    (
        "[drm:mes_v11_0_submit [amdgpu]] *ERROR* MES failed to response msg=2",
        "MES hang",
        "did not answer message 2",
    ),
    ("amdgpu: MES failed to response msg=14", "MES hang", "message 14"),
    ("amdgpu: failed to unmap legacy queue", "MES hang", "could not unmap a ring"),
    (
        "[drm:amdgpu_mes_reset_legacy_queue [amdgpu]] *ERROR* failed to reset legacy queue",
        "MES hang",
        "reset a ring",
    ),
    ("amdgpu: reset via MES failed and try pipe reset -110", "MES hang", "-110 .ETIMEDOUT"),
    ("amdgpu: reset via MES failed -62", "MES hang", "-62"),
    ("amdgpu: The CPFW hasn't support pipe reset yet.", "MES hang", "cannot reset a pipe"),
    ("amdgpu 0000:03:00.0: The CPFW hasn't support pipe reset yet.", "MES hang", "cannot reset a pipe"),
    ("amdgpu: remove_all_kfd_queues_mes: Failed to remove queue 0 for dev 64667", "MES hang", "queue 0"),
    ("amdgpu: Failed to remove queue 2", "MES hang", "queue 2"),
    ("amdgpu: Failed to suspend process pid 14368", "queue eviction", "process 14368"),
    ("amdgpu: Failed to suspend process 0x8001", "queue eviction", "process 0x8001"),
    ("amdgpu: Failed to export SMU metrics table!", "SMU", "no measurements"),
    ("amdgpu 0000:03:00.0: Failed to export SMU metrics table!", "SMU", "no measurements"),
    (
        "[drm:amdgpu_dm_commit_planes [amdgpu]] *ERROR* Waiting for fences timed out!",
        "display",
        "did not end",
    ),
    ("amdgpu: Waiting for fences timed out!", "display", "did not end"),
    (
        "[drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Failed to initialize parser -125!",
        "submission",
        "-125 .ECANCELED",
    ),
    ("amdgpu: Failed to initialize parser -61!", "submission", "-61 .ENODATA"),
]


def line_of(text: str) -> LogLine:
    (line,) = read([text])
    return line


@pytest.mark.parametrize(("text", "kind", "what"), TWICE, ids=[text[:40] for text, _, _ in TWICE])
def test_a_line_of_the_table_is_told_in_a_sentence(text: str, kind: str, what: str) -> None:
    import re

    (event,) = events(f"amdgpu 0000:03:00.0: x\n{text}")[1:]
    assert event.kind == kind
    assert re.search(what, event.sentence), event.sentence


def test_every_row_of_the_table_has_two_samples() -> None:
    hits: Counter[int] = Counter()
    for text, _, _ in TWICE:
        line = line_of(text)
        event = event_of(line)
        assert event is not None
        hits[
            next(
                at
                for at, row in enumerate(patterns())
                if row.key in line.text
                and (row.regex is None or row.regex.search(line.message) or row.regex.search(line.text))
            )
        ] += 1
    assert [row.sentence for at, row in enumerate(patterns()) if hits[at] < 2] == []
    assert {row.role for row in patterns()} <= set(ROLES)


def test_the_process_of_a_job_belongs_to_its_timeout() -> None:
    event = only(
        "amdgpu: ring gfx_0.0.0 timeout, signaled seq=5, emitted seq=7\n"
        "amdgpu: Process information: process game pid 3 thread game:cs0 pid 4\n"
    )
    assert (
        event.sentence.endswith("; the job was of process game (pid 3)")
        and event.fields["thread"] == "game:cs0"
    )


def test_no_uncorrectable_error_is_all_clear() -> None:
    event = only("amdgpu: no uncorrectable hardware errors detected in umc block")
    assert event.role == "notice" and "all clear" in event.meaning
    assert "no fault, hang or reset in this log" in said(
        "amdgpu: no uncorrectable hardware errors detected in umc block"
    )


# ------------------------------------------------------------ the program


def test_what_is_not_known_is_shown_with_its_line() -> None:
    text = "amdgpu 0000:03:00.0: amdgpu: the frobnicator failed oddly\namdgpu: [drm] Display Core v3.2 initialized\n"
    trouble, other = events(text)
    assert (trouble.kind, trouble.line, other.kind, other.line) == ("unknown", 1, "other", 2)
    shown = said(text)
    assert "line 1" in shown and "unknown: the frobnicator failed oddly" in shown
    assert "1 other line of GPU drivers that decode does not know: 2" in shown


def test_the_summary_names_the_first_event_that_follows_from_no_other() -> None:
    text = "amdgpu: MES failed to respond to msg=ADD_QUEUE\n" + GFX11 + "amdgpu: GPU reset begin!\n"
    assert "the first that is no consequence of another: line 2, page fault" in said(text)


def test_decode_recognises_a_kernel_log_and_has_all_of_it_as_json(decode: Callable[..., str]) -> None:
    assert "0x7f11aa200000" in decode(GFX11)
    (event,) = json.loads(decode(GFX11, "--json"))
    assert event["fields"]["page"] == 0x7F11AA200000 and event["lines"] == list(range(1, 10))
    assert event["sentence"] and event["meaning"] and event["causes"] and event["advice"]


def test_calls_and_kernel_lines_in_one_text_are_both_read(decode: Callable[..., str]) -> None:
    text = GFX11 + "ioctl(5, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2a, 0x20), 0x7ffd23822ba0) = 0\n"
    both = decode(text)
    assert "0x7f11aa200000" in both and "NV_ESC_RM_CONTROL" in both
    assert [one.get("name") or one["kind"] for one in json.loads(decode(text, "--json"))] == [
        "page fault",
        "NV_ESC_RM_CONTROL",
    ]


def test_a_log_of_calls_is_no_kernel_log() -> None:
    text = b'openat(AT_FDCWD, "/usr/share/libdrm/amdgpu.ids", O_RDONLY) = 3\nioctl(3</dev/kfd>, AMDKFD_IOC_X, 1) = 0\n'
    assert readers.find(text, readers.Wanted()) is None


def test_control_characters_of_a_log_do_not_reach_the_terminal() -> None:
    shown = said(
        "amdgpu: \x1b]0;title\x07 failed \x08\x08\n" + GFX11.replace("process train", "process tr\x1b[2Jain")
    )
    assert not any(ord(char) < 32 and char != "\n" for char in shown)
