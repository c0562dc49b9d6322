"""decode of ROCm's texts: faults of the runtime, waves of the debug agent and of rocgdb.

The samples are of our own making, after what ROCm's programs print; names, addresses and numbers are invented.
"""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from hcq.tools.trace import readers, rocm, umr
from hcq.tools.trace.color import Color
from hcq.tools.trace.rocm import faults
from tests.tools.trace import test_umr
from tests.tools.trace.test_kernel_log import GFX11

FAULTS = (
    (
        (
            "Memory access fault by GPU node-4 (Agent handle: 0x3b24f40) on address 0x7ffb6a0f6000."
            " Reason: Page not present or supervisor privilege."
        ),
        "memory fault",
        "the page is not mapped for this GPU",
    ),
    (
        "Memory access fault by GPU node-1 on address 0x10. Reason: Write access to a read-only page.",
        "memory fault",
        "the page must not be written",
    ),
    (
        (
            "OFFLOAD ERROR: memory access fault by GPU 4 (agent 0x55555896f810) at virtual address 0x7ffb61f02000."
            " Reasons: Page not present or supervisor privilege, Write access to a read-only page"
        ),
        "memory fault",
        "the page is not mapped for this GPU; the page must not be written",
    ),
    ("HW Exception by GPU node-1 (Agent handle: 0x12) reason :GPU Hang", "GPU exception", "was reset"),
    ("HW Exception by GPU node-2 (Agent handle: 0x12) reason :ECC", "GPU exception", "was reset"),
    (
        (
            ":0:rocdevice.cpp            :2984: 2787027630305 us: [pid:68 tid:0x7dfc] Callback: Queue 0x7dfbe0300000"
            " aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted. code: 0x29"
        ),
        "queue error",
        "no aperture of the GPU",
    ),
    (
        (
            ":0:rocdevice.cpp            :2724: 10459743014355 us: 4277 : [tid:0x150c] Callback: Queue 0x150b4de00000"
            " Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed. Code: 0x1008"
        ),
        "queue error",
        "ran out",
    ),
    ("Queue error (HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation)", "queue error", "a trap, of an assert"),
    ("Queue error (HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION)", "queue error", "no instruction of this GPU"),
    (
        (
            ":0:rocdevice.cpp            :3678: 3194366185 us:  Memory Fault Error [host: box, GPU index: 0,"
            " faulting addr: 0x7f2d68800000, kernel: Cijk_Ailk_Bjlk]"
        ),
        "fault's kernel",
        "",
    ),
    (":0: : Device-side assertion `index < size' failed.", "assertion", ""),
    (
        ":3:hip_device_runtime.cpp   :651 : 1341534484d us:  hipGetDeviceCount: Returned hipErrorNoDevice :",
        "failed call",
        "",
    ),
    (
        'Thread 6 "fee" received signal SIGBUS, Bus error.\nAMDGPU Wave ',
        "signal",
        "an address that the GPU cannot have",
    ),
    ('Thread 9 "fee" received signal SIGSEGV, Segmentation fault.\nAMDGPU Wave ', "signal", "not mapped"),
)
AGENT = """\
System event (HSA_AMD_GPU_MEMORY_FAULT_EVENT: page not present or supervisor privilege, write access to a read-only page)
Faulting page: 0x7fbe4cc01000

--------------------------------------------------------
wave_0: pc=0x7ff77e253430 (kernel_code_entry=0x7ff77e250000 <step(int*, float)>, kernargs=0x10) (stopped, reason: MEMORY_VIOLATION)

system registers:
              m0: 00000000            status: 00012461           trapsts: 30000100              mode: 000003c0
             vcc: 0000000000000000                exec: ffffffffffffffff

scalar registers:
              s0: d9800000                s1: 80007ffe                s2: 00000000                s3: 00000000

vector registers:
              v0: [0] 00000001 [1] 00000002 [2] 00000003
                  [3] 00000004
              v1: [0] 0000000a [1] 0000000b

Local memory content:
    0x0000: 22222222 11111111 22222222 11111111 22222222 11111111 22222222 11111111

Disassembly for function step(int*, float):
    code object: file:///path/sim#offset=4657152&size=10843816
    loaded at: [0x7ff77da00000-0x7ff77feca9f9]

/src/sim.hip:
53          p[i] = 0;
    0x7ff77e253408 <+6152>:    global_store_dword v[2:3], v4, off
54          total += p[i];
 => 0x7ff77e253430 <+6192>:    s_waitcnt vmcnt(0) lgkmcnt(0)
    0x7ff77e253434 <+6196>:    s_cbranch_execz 65503  # 0x7ff77e253400 <step+96>
    ...

End of disassembly.
wave_1: pc=0x7ff77e253430 (kernel_code_entry=0x7ff77e250000 <step(int*, float)>) (stopped, reason: MEMORY_VIOLATION)

system registers:
              m0: 00000000            status: 00012461           trapsts: 30000100
            exec: 00000000ffffffff
wave_2: pc=0x7ff77e253500 (running)
"""  # noqa: E501
OLD_AGENT = """\
Queue error (HSA_STATUS_ERROR_EXCEPTION)

--------------------------------------------------------
wave_7: pc=0x7fd4f100d0e8 (stopped, reason: ASSERT_TRAP)

general registers:
            exec: 0000ffff
              s0: 00000001
Disassembly for function vector_add_assert_trap(int*, int*, int*):
    code object: memory://1234#offset=0x7fd4f1000000&size=4096
    loaded at: [0x7fd4f1000000-0x7fd4f1002000]
    0x7fd4f100d0e4 <+228>:    s_mov_b64 s[0:1], s[6:7]
 => 0x7fd4f100d0e8 <+232>:    s_trap 2
    0x7fd4f100d0ec <+236>:    s_endpgm
End of disassembly.
"""
GDB = """\
Thread 6 "fee" received signal SIGBUS, Bus error.
[Switching to thread 6, lane 0 (AMDGPU Lane 1:1:1:1/0 (0,0,0)[0,0,0])]
0x00007fffed269020 in jones (nmax=3) at fee.hip:12
(gdb) info threads
  Id   Target Id                                 Frame
  1    Thread 0x7fffed309180 (LWP 145680) "crux" 0x00007fffed4996a2 in ?? () from /opt/rocm/lib/libhsa-runtime64.so.1
* 6    AMDGPU Wave 1:1:1:1 (0,0,0)/0 "fee"     0x00007fffed269020 in jones (nmax=<error reading variable: no>) at /src/fee.hip:12
  7    AMDGPU Wave 1:2:3:2 (0,0,0)/1 "saxpy"     0x000015554a001094 in saxpy (
    n=<optimized out>, x=<optimized out>, incx=<optimized out>,
    y=<optimized out>, incy=<optimized out>) at saxpy.hip:57
  8    AMDGPU Wave 1:2:3:3 (1,0,0)/0 "saxpy"     0x000015554a001094 in saxpy (
    n=<optimized out>, x=<optimized out>) at saxpy.hip:57
(gdb) info agents
  Id State Target Id                  Architecture Device Name                             Cores Threads Location
* 1  A     AMDGPU Agent (GPUID 64146) gfx90a       Aldebaran/MI200 [Instinct MI250X/MI250] 416   3328    29:00.0
(gdb) info queues
  Id   Target Id                Type         Read   Write  Size     Address
  1    AMDGPU Queue 1:1 (QID 0) HSA          2      5      4096     0x00007ffff626e000
* 2    AMDGPU Queue 1:2 (QID 1) HSA (Multi)  7      7      1048576  0x00007fffe5800000
(gdb) info dispatches
  Id   Target Id                      Grid      Workgroup Fence   Kernel Function
* 1    AMDGPU Dispatch 1:2:3 (PKID 0) [256,1,1] [128,1,1] B|Aa|Ra saxpy(int, float const*, int, float*, int)
(gdb) x/2i $pc
=> 0x00007fffed269020 <_Z5jonesi+72>:\t00 00 6c dc 00 02 7c 00\tflat_store_b64 v[0:1], v[2:3]
(gdb) info registers exec
exec           0xffffffff          4294967295
"""  # noqa: E501
LANES = """\
(gdb) info lanes
  Id   State Target Id                            Frame
* 0    A     AMDGPU Lane 1:2:1:1/0 (0,0,0)[0,0,0] kern () at /home/user/saxpy.cpp:7
  1    I     AMDGPU Lane 1:2:1:1/1 (0,0,0)[1,0,0] kern () at /home/user/saxpy.cpp:7
  2    A     AMDGPU Lane 1:2:1:1/2 (0,0,0)[2,0,0] kern () at /home/user/saxpy.cpp:7
(gdb) info threads
* 7    AMDGPU Wave 1:2:1:1 (0,0,0)/0 "saxpy"      kern () at /home/user/saxpy.cpp:7
"""

PACKET = """\
GPU core dump created: gpucore.4711
Kernel Name: _Z5scalePKfPfi
VGPU=0x3b2a80 SWq=0x7ae4f8970000, HWq=0x7ae4f5700000, id=1
\tDispatch Header =0xb02 (type=2, barrier=1, acquire=1, release=2), setup=3
\tgrid=[4096, 2, 1], workgroup=[64, 32, 1]
\tprivate_seg_size=16, group_seg_size=69632
\tkernel_obj=0x7ae4f8940680, kernarg_address=0x0x7ae4f5200100
\tcompletion_signal=0x0, correlation_id=0
\trptr=6, wptr=9
:0:rocdevice.cpp            :3587: 95084048217 us:  Callback: Queue 0x7ae4f5700000 aborting with error : HSA_STATUS_ERROR_INVALID_ALLOCATION: The requested allocation is not valid. code: 0x1003
"""  # noqa: E501
SHORT_PACKET = """\
VGPU=0x4b2a80 SWq=0x7f7b970000, HWq=0x7f7b700000, id=2
    Dispatch Header =0xd03
    rptr=1, wptr=1
"""
WRAPPED = """\
Memory access fault by GPU node-1 (Agent handle: 0x5645b71d8d60) on address 0x7f2d68800000.
    Reason: Page not present or supervisor privilege.
"""


def read(text: str) -> rocm.Dump:
    return rocm.read(text.split("\n"))


def said(text: str) -> str:
    reading = readers.find(text.encode(), readers.Wanted())
    assert reading is not None
    return "\n".join(reading.lines(Color(False)))


def data(text: str) -> list[dict[str, Any]]:
    reading = readers.find(text.encode(), readers.Wanted())
    assert reading is not None
    found = json.loads(json.dumps(reading.as_json()))
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(("text", "kind", "meaning"), FAULTS)
def test_a_line_of_the_runtime_is_an_event_that_says_what_it_means(
    text: str, kind: str, meaning: str
) -> None:
    event = next(one for one in data(text) if one["kind"] == kind)
    assert meaning in event["meaning"]
    assert event["line"] == 1 and event["sentence"] in said(text)


def test_a_null_pointer_is_named() -> None:
    assert "a null pointer" in said(FAULTS[1][0])


def test_a_status_in_the_next_line_belongs_to_its_queue() -> None:
    (event,) = read(
        "Queue at 0x7f00 inactivated due to async error:\n\tHSA_STATUS_ERROR_EXCEPTION: something\n"
    ).events
    assert event.sentence == "queue 0x7f00 stopped: HSA_STATUS_ERROR_EXCEPTION"
    assert event.lines == [1, 2]


def test_calls_that_fail_without_harm_are_no_events_and_the_last_launch_is_named() -> None:
    text = (
        ":3:hip_event.cpp :10  : 1 us:  hipEventQuery: Returned hipErrorNotReady :\n"
        ":3:rocvirtual.cpp           :2925: 2 us: [pid:1 tid:0x7] ShaderName : first_kernel\n"
        ":3:rocvirtual.cpp           :2925: 3 us: [pid:1 tid:0x7] ShaderName : last_kernel\n" + FAULTS[0][0]
    )
    found = read(text)
    assert [event.kind for event in found.events] == ["memory fault"]
    assert "the last of 2 launches in the log: last_kernel" in said(text)


def test_waves_of_the_debug_agent_are_read_with_registers_code_and_source() -> None:
    found = read(AGENT)
    first, second, third = found.waves
    assert (first.pc, first.exec, first.lanes) == (0x7FF77E253430, (1 << 64) - 1, 64)
    assert first.kernel == "step(int*, float)" and first.source == "sim.hip:54"
    assert first.instruction == "s_waitcnt vmcnt(0) lgkmcnt(0)"
    assert first.waits_for == "vector memory and LDS, scalar loads or messages"
    assert first.reason == "MEMORY_VIOLATION" and "memory violation" in first.state
    assert first.scalars == {0: 0xD9800000, 1: 0x80007FFE, 2: 0, 3: 0}
    assert first.vectors == {0: [1, 2, 3, 4], 1: [10, 11]}
    assert second.exec == 0xFFFFFFFF
    assert third.state == ["running"] and not third.reason
    (event,) = found.events
    assert event.fields["address"] == "0x7fbe4cc01000"
    assert not found.unknown
    shown = said(AGENT)
    assert "2 waves alike: wave_0, wave_1" in shown and "at or before the one shown" in shown
    assert "code of file:///path/sim#offset=4657152&size=10843816" in shown


def test_waves_of_older_debug_agents_have_their_kernel_from_the_disassembly() -> None:
    (wave,) = read(OLD_AGENT).waves
    assert wave.kernel == "vector_add_assert_trap(int*, int*, int*)"
    assert wave.waits_for.startswith("nothing: a trap") and (wave.exec, wave.lanes) == (0xFFFF, 32)


def test_rocgdbs_tables_say_which_waves_stand_where_and_which_queue_has_work() -> None:
    found = read(GDB)
    stopped, *others = found.waves
    assert (stopped.reason, stopped.kernel, stopped.source) == ("SIGBUS", "jones", "fee.hip:12")
    assert stopped.pc == 0x7FFFED269020 and stopped.exec == 0xFFFFFFFF
    assert stopped.instruction == "flat_store_b64 v[0:1], v[2:3]"
    assert [(wave.kernel, wave.source, wave.pc) for wave in others] == [
        ("saxpy", "saxpy.hip:57", 0x15554A001094)
    ] * 2
    assert not found.unknown
    shown = said(GDB)
    assert "2 waves alike: 1:2:3:2 (0,0,0)/1, 1:2:3:3 (1,0,0)/0" in shown
    assert "queue 1:1: HSA, 3 packets not read" in shown and "queue 1:2: HSA (Multi), empty" in shown
    assert "dispatch 1:2:3: saxpy(int, float const*, int, float*, int), grid [256,1,1]" in shown
    assert "GPU 1: gfx90a Aldebaran/MI200" in shown


def test_lanes_of_rocgdb_make_the_exec_mask() -> None:
    (wave,) = read(LANES).waves
    assert (wave.exec, wave.kernel, wave.source) == (0b101, "kern", "saxpy.cpp:7")


def test_a_kernel_log_and_a_log_of_calls_in_the_same_text_are_read_too() -> None:
    log = "[ 1.0] amdgpu 0000:03:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=1, emitted seq=3\n"
    call = "ioctl(3</dev/kfd>, AMDKFD_IOC_CREATE_QUEUE, 0x7ffc) = 0\n"
    text = f"{FAULTS[0][0]}\n{log}{call}"
    assert {one["kind"] for one in data(text)} >= {"memory fault", "ring timeout"}
    reading = readers.find(text.encode(), readers.Wanted())
    assert reading is not None and reading.has_calls


# ------------------------------------------------------------ the packet of a queue that stopped


def test_the_packet_at_which_a_queue_stopped_names_kernel_sizes_and_what_is_too_large() -> None:
    core, packet, stopped, *_ = data(PACKET)
    assert (core["kind"], packet["kind"], stopped["kind"]) == ("core dump", "packet", "queue error")
    fields = packet["fields"]
    assert fields["kernel"] == "_Z5scalePKfPfi" and fields["queue"] == stopped["fields"]["queue"]
    assert (fields["grid"], fields["workgroup"]) == ([4096, 2, 1], [64, 32, 1])
    assert (fields["type"], fields["acquire"], fields["release"]) == ("KERNEL_DISPATCH", "GPU", "system")
    assert "3 packets not done, from it on" in packet["sentence"] and packet["lines"] == [*range(2, 10)]
    assert [note for note in packet["notes"] if "2048 work-items" in note]
    assert [note for note in packet["notes"] if "65536 bytes of LDS" in note]
    assert stopped["meaning"] and stopped["fields"]["code"] == 0x1003
    assert data(PACKET)[-1]["unknown_lines"] == 0


def test_packets_of_which_lines_are_missing_are_told_as_far_as_they_go() -> None:
    packet = data(SHORT_PACKET)[0]
    assert "a kernel whose name is not printed" in packet["sentence"] and not packet["notes"]
    assert packet["fields"] == {
        "software_queue": "0x7f7b970000",
        "queue": "0x7f7b700000",
        "queue_id": 2,
        "header": "0xd03",
        "read": 1,
        "write": 1,
    }


def test_packets_one_after_the_other_are_events_of_their_own() -> None:
    packets = [one for one in data(PACKET + SHORT_PACKET + PACKET) if one["kind"] == "packet"]
    assert [len(one["lines"]) for one in packets] == [8, 3, 8]


def test_a_reason_in_the_next_line_belongs_to_its_fault() -> None:
    fault = data(WRAPPED)[0]
    assert fault["sentence"].endswith(": Page not present or supervisor privilege") and fault["meaning"]
    assert fault["lines"] == [1, 2] and data(WRAPPED)[-1]["unknown_lines"] == 0
    cut = data(WRAPPED.split("\n")[0])[0]
    assert cut["sentence"].endswith("no reason is given")


def test_every_status_has_a_code_of_its_own_and_help_and_others_show_the_code_that_is_printed() -> None:
    codes = [code for code, _, _ in faults.STATUSES.values()]
    assert len(set(codes)) == len(codes) and all(all(words) for words in faults.STATUSES.values())
    strange = data("HSA_STATUS_ERROR_OF_TOMORROW: what? code: 0x1077\nHSA_STATUS_ERROR_OTHER\n")
    assert [one["fields"]["code"] for one in strange[:2]] == [0x1077, None]


def test_memory_that_could_not_be_freed_says_why_and_where() -> None:
    text = "Memory critical error by agent node-{node} (Agent handle: 0x56) on address 0x7f09{node}000. Reason: {why}."
    busy, other = (
        data(text.format(node=node, why=why))[0] for node, why in ((0, "Memory in use"), (1, "Moon"))
    )
    assert busy["fields"]["address"] == "0x7f090000" and "/dev/kfd" in busy["advice"]
    assert "Moon" in other["sentence"] and not other["meaning"]


def test_a_wave_of_rocgdb_that_runs_says_so() -> None:
    rows = """\
* 4    AMDGPU Wave 1:1:1:1 (0,0,0)/0 "bits" kern (n=1) at bits.cpp:33
  5    AMDGPU Wave 1:1:1:2 (0,0,0)/1 "bits" (running)
  6    AMDGPU Wave ?:?:?:3 (?,?,?)/? (running)
"""
    assert [wave.state for wave in read(rows).waves] == [[], ["running"], ["running"]]


# ------------------------------------------------------------ several tools in one text


@pytest.mark.parametrize("parts", list(permutations((AGENT, test_umr.TABLE, GFX11))))
def test_texts_of_several_tools_are_each_read_by_who_knows_them(parts: tuple[str, ...]) -> None:
    text = "".join(parts) + "nobody knows this\n"
    shown = said(text)
    reading = readers.find(text.encode(), readers.Wanted())
    assert reading is not None
    found = json.loads(json.dumps(reading.as_json()))
    assert len(found["waves"]) == len(umr.read(test_umr.TABLE.split("\n")).waves)
    assert [one for one in found["rocm"] if one["kind"] == "wave"] and found["kernel_log"]
    assert "page fault" in shown and "MEMORY_VIOLATION" in shown
    assert found["unknown_lines"] == [text.count("\n")]
    assert shown.count("of no form that is known") == 1


def test_a_damaged_address_of_a_fault_is_no_number_and_no_error() -> None:
    line = ":0:rocdevice.cpp :3678: 31943 us:  Memory Fault Error [host: box, GPU index: {gpu}, faulting addr: {at}]"
    for gpu, at in (("0", "0x7f20xd68800000"), ("9" * 900, "0x7f2d68800000"), ("0", "0x" + "f" * 400)):
        assert data(line.format(gpu=gpu, at=at))
