"""decode of AMD's kernel calls: requests in every form that strace, gVisor and perf trace print, and their structures.

The samples are of our own making, after what the programs print.
"""

from __future__ import annotations

import json
import random

import pytest

from hcq.amd.abi import kfd, other_calls
from hcq.tools import hcq_trace
from hcq.tools.trace import amd_calls, decode
from hcq.tools.trace.color import Color
from hcq.trace.ioctl_log import Call, read

OPENED = 'openat(AT_FDCWD, "/dev/kfd", O_RDWR|O_CLOEXEC) = 3\n'
CREATED = "ioctl(3</dev/kfd>, 0xc0604b02, 0x7ffe) = 0\nbefore\n{before}after\n{after}"
GVISOR = """\
I0101 00:00:00.000001 1 strace.go:567] [ 1: 1] app E ioctl(0x5 /dev/kfd, 0x80084b01, 0x7f0000000000)
I0101 00:00:00.000002 1 strace.go:605] [ 1: 1] app X ioctl(0x5 /dev/kfd, 0x80084b01, 0x7f00) = 0 (0x0) errno=25 (not a typewriter) (2us)
"""  # noqa: E501


def lines(text: str) -> list[str]:
    return list(decode.log_lines(*decode.decode_log(text.splitlines()), Color(False)))


def said(text: str) -> list[str]:
    """The calls in words, without what each returned."""
    return [told.line().replace(" -> ok", "") for _, told in decode.decode_log(text.splitlines())[0]]


def dump(data: bytes) -> str:
    return "".join(f"{at:08x}: {data[at : at + 16].hex(' ')}\n" for at in range(0, len(data), 16))


@pytest.mark.parametrize(
    "request_",
    [
        "AMDKFD_IOC_CREATE_QUEUE",
        "_IOC(_IOC_READ|_IOC_WRITE, 0x4b, 0x2, 0x60)",
        "_IOWR('K', 0x2, 0x60)",
        "_IOWR(0x4b, 0x2, 0x60)",
        "0xc0604b02",
        "3227536130",
        "0xc0604b02 /* AMDKFD_IOC_CREATE_QUEUE */",
    ],
)
def test_a_call_of_the_kfd_is_named_in_every_form_that_strace_has(request_: str):
    assert said(f"{OPENED}ioctl(3, {request_}, 0x7ffd0) = 0\n") == ["AMDKFD_IOC_CREATE_QUEUE"]
    assert said(f"ioctl(7</dev/kfd>, {request_}, 0x7ffd0) = 0 <0.000021>\n") == ["AMDKFD_IOC_CREATE_QUEUE"]
    assert said(f"ioctl(7, {request_}, 0x7ffd0) = 0\n") == ["AMDKFD_IOC_CREATE_QUEUE"]


@pytest.mark.parametrize("number", [*kfd.KFD_IOCTLS, *other_calls.calls("KFD")])
def test_every_call_of_the_kfd_has_a_name_by_number_and_by_name(number: int):
    name = kfd.KFD_IOCTLS[number].name if number in kfd.KFD_IOCTLS else other_calls.calls("KFD")[number].name
    for request in (f"AMDKFD_IOC_{name}", f"{0xC0084B00 | number:#x}"):
        (text,) = said(f"ioctl(3</dev/kfd>, {request}, 0x7ffd0) = 0\n")
        assert text.startswith(f"AMDKFD_IOC_{name}"), text


def test_bytes_are_fields_and_what_came_back_is_told_apart():
    before = kfd.CreateQueueArgs(
        ring_base_address=0x7F0000001000, ring_size=0x1000, gpu_id=0xB00B, queue_type=2
    )
    after = kfd.CreateQueueArgs(**{**before.values, "queue_id": 3, "doorbell_offset": 0xC000000000000000})
    (text,) = said(CREATED.format(before=dump(before.to_bytes()), after=dump(after.to_bytes())))
    assert "AMDKFD_IOC_CREATE_QUEUE(ring_base_address=0x7f0000001000, ring_size=4096, gpu_id=45067" in text
    assert "queue_type=COMPUTE_AQL" in text
    assert "doorbell_offset out=0xc000000000000000, queue_id out=3" in text


def test_a_structure_of_another_release_is_read_as_far_as_it_goes():
    queue = kfd.CreateQueueArgs(ring_size=0x2000, sdma_engine_id=5)
    (text,) = said("ioctl(3</dev/kfd>, 0xc0584b02, 0x7ffe) = 0\nin\n" + dump(queue.to_bytes()))
    assert "ring_size=8192" in text
    assert "sdma_engine_id" not in text  # a field behind the end of the shorter structure
    assert "[88 bytes, shorter than the 96 known here]" in text


def test_refused_calls_are_counted_by_name():
    told = lines(
        f"{OPENED}ioctl(3, 0x40084b15, 0x7ffe) = -1 EBUSY (Device or resource busy)\n"
        "ioctl(3, AMDKFD_IOC_GET_VERSION, 0x7ffe) = 0\n"
    )
    assert "AMDKFD_IOC_ACQUIRE_VM -> EBUSY" in told[0]
    assert "2 calls to AMD's drivers, 0 to others; structures of the KFD's interface 1.17" in told
    assert "  1 refused: AMDKFD_IOC_ACQUIRE_VM" in told


def test_a_call_that_was_answered_says_ok_and_one_that_was_not_says_nothing():
    told = lines(
        "ioctl(3</dev/kfd>, 0x80084b01, 0x7ffe) = 0\nioctl(3</dev/kfd>, 0x80084b01, 0x7ffe <unfinished ...>\n"
    )
    assert told[0].endswith("AMDKFD_IOC_GET_VERSION -> ok")
    assert told[1].endswith("AMDKFD_IOC_GET_VERSION")


def test_flags_of_memory_are_named():
    flags = kfd.AllocFlags.VRAM | kfd.AllocFlags.WRITABLE | 1 << 15
    memory = kfd.AllocMemoryOfGpuArgs(size=0x1000, flags=int(flags))
    (text,) = said("ioctl(3</dev/kfd>, 0xc0284b16, 0x7ffe) = 0\nin\n" + dump(memory.to_bytes()))
    assert text == "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU(size=0x1000, flags=VRAM|WRITABLE|0x8000)"


def test_a_sandbox_has_no_kfd_and_its_errno_is_kept():
    told = lines(GVISOR)
    assert "AMDKFD_IOC_GET_VERSION -> ENOTTY" in told[0]


def test_perf_trace_names_the_parts_of_a_call():
    (text,) = said(
        " 12.250 ( 0.010 ms): app/77 ioctl(fd: 3</dev/kfd>, cmd: 0x80084b01, arg: 0x7ffe) = 0\n"
        "0x00000001 0x00000011\n"
    )
    assert text == "AMDKFD_IOC_GET_VERSION(major_version=1, minor_version=17)"


def test_of_the_names_that_drivers_share_amdgpus_is_taken():
    text = (
        "ioctl(4</dev/dri/renderD128>, DRM_IOCTL_AMDGPU_CTX or DRM_IOCTL_ETNAVIV_GEM_NEW, 0x7ffe) = 0\n"
        "ioctl(4</dev/dri/renderD128>, DRM_IOCTL_ETNAVIV_GEM_NEW or DRM_IOCTL_AMDGPU_CS, 0x7ffe) = 0\n"
        "ioctl(4</dev/dri/renderD128>, DRM_IOCTL_I915_GEM_EXECBUFFER2, 0x7ffe) = 0\n"
        "ioctl(4</dev/dri/renderD128>, DRM_IOCTL_VERSION, 0x7ffe) = 0\n"
    )
    assert said(text) == ["DRM_IOCTL_AMDGPU_CTX", "DRM_IOCTL_AMDGPU_CS", "DRM_IOCTL_VERSION"]
    assert decode.decode_log(text.splitlines())[1] == 1


def test_calls_of_a_render_node_have_fields_in_and_out():
    va = other_calls.structures()["GemVa"](handle=2, operation=1, va_address=0x100000, map_size=0x2000)
    made = other_calls.structures()["GemCreate"](bo_size=0x2000, domains=4)
    handle = other_calls.structures()["GemCreateAnswer"](handle=9)
    text = (
        f"ioctl(4</dev/dri/renderD128>, 0x40286448, 0x7ffe) = 0\nin\n{dump(va.to_bytes())}"
        f"ioctl(4</dev/dri/renderD128>, 0xc0206440, 0x7ffe) = 0\nin\n{dump(made.to_bytes())}"
        f"out\n{dump(handle.to_bytes())}"
    )
    assert said(text) == [
        "DRM_IOCTL_AMDGPU_GEM_VA(handle=2, operation=1, va_address=0x100000, map_size=0x2000)",
        "DRM_IOCTL_AMDGPU_GEM_CREATE(bo_size=0x2000, domains=0x4, handle out=9)",
    ]


# every call that amdgpu_drm.h has, as a C compiler makes its number on x86-64; two where the argument has grown
AMDGPU_REQUESTS = {
    "GEM_CREATE": (0xC0206440,),
    "GEM_MMAP": (0xC0086441,),
    "CTX": (0xC0106442,),
    "BO_LIST": (0xC0186443,),
    "CS": (0xC0186444,),
    "INFO": (0x40206445,),
    "GEM_METADATA": (0xC1206446,),
    "GEM_WAIT_IDLE": (0xC0106447,),
    "GEM_VA": (0x40286448, 0x40406448),
    "WAIT_CS": (0xC0206449,),
    "GEM_OP": (0xC0106450, 0xC0186450),
    "GEM_USERPTR": (0xC0186451,),
    "WAIT_FENCES": (0xC0186452,),
    "VM": (0xC0086453,),
    "FENCE_TO_HANDLE": (0xC0206454,),
    "SCHED": (0x40106455,),
    "USERQ": (0xC0486456,),
    "USERQ_SIGNAL": (0xC0306457,),
    "USERQ_WAIT": (0xC0486458,),
    "GEM_LIST_HANDLES": (0xC0106459,),
}
ANSWER_BYTES = {
    "GEM_CREATE": 8,
    "GEM_MMAP": 8,
    "CTX": 16,
    "BO_LIST": 8,
    "CS": 8,
    "GEM_WAIT_IDLE": 8,
    "WAIT_CS": 8,
}
DRM_REQUESTS = {
    "VERSION": 0xC0406400,
    "GET_UNIQUE": 0xC0106401,
    "GET_MAGIC": 0x80046402,
    "GEM_CLOSE": 0x40086409,
    "GET_CAP": 0xC010640C,
    "SET_CLIENT_CAP": 0x4010640D,
    "PRIME_HANDLE_TO_FD": 0xC00C642D,
    "PRIME_FD_TO_HANDLE": 0xC00C642E,
    "SYNCOBJ_CREATE": 0xC00864BF,
    "SYNCOBJ_DESTROY": 0xC00864C0,
    "SYNCOBJ_HANDLE_TO_FD": 0xC01064C1,
    "SYNCOBJ_FD_TO_HANDLE": 0xC01064C2,
    "SYNCOBJ_WAIT": 0xC02064C3,
    "SYNCOBJ_RESET": 0xC01064C4,
    "SYNCOBJ_SIGNAL": 0xC01064C5,
    "SYNCOBJ_TIMELINE_WAIT": 0xC02864CA,
    "SYNCOBJ_QUERY": 0xC01864CB,
    "SYNCOBJ_TRANSFER": 0xC02064CC,
    "SYNCOBJ_TIMELINE_SIGNAL": 0xC01864CD,
}
KFD_REQUESTS = {"SMI_EVENTS": 0xC0084B1F, "SVM": 0xC0184B20, "CRIU_OP": 0xC0384B22, "DBG_TRAP": 0xC0204B26}


def test_every_call_of_amdgpu_has_the_number_and_the_sizes_of_the_kernels_header():
    assert {known.name for known in other_calls.calls("AMDGPU").values()} == set(AMDGPU_REQUESTS)
    for number, known in other_calls.calls("AMDGPU").items():
        requests = AMDGPU_REQUESTS[known.name]
        assert {request & 0xFF for request in requests} == {number}, known.name
        assert tuple(request >> 16 & 0x3FFF for request in requests) == known.known_sizes, known.name
        if known.layout is not None:
            assert 4 * known.layout.length_words == max(known.known_sizes), known.name
        for request in requests:
            call = Call(1, 4, "/dev/dri/renderD128", request)
            assert amd_calls.is_amd(call)
            assert amd_calls.decode_call(call).name == f"DRM_IOCTL_AMDGPU_{known.name}"
    answers = {known.name: known.answer for known in other_calls.calls("AMDGPU").values() if known.answer}
    assert {name: 4 * layout.length_words for name, layout in answers.items()} == ANSWER_BYTES


def test_calls_that_every_gpus_driver_has_and_the_kfds_have_the_numbers_of_the_kernels_headers():
    assert {known.name for known in other_calls.calls("DRM").values()} == set(DRM_REQUESTS)
    assert {known.name for known in other_calls.calls("KFD").values() if known.layout} == set(KFD_REQUESTS)
    for table, pinned in ((other_calls.calls("DRM"), DRM_REQUESTS), (other_calls.calls("KFD"), KFD_REQUESTS)):
        for number, known in table.items():
            if known.name in pinned:
                request = pinned[known.name]
                assert request & 0xFF == number, known.name
                assert known.known_sizes in ((), (request >> 16 & 0x3FFF,)), known.name


def test_another_drivers_call_of_the_same_number_is_not_amdgpus():
    assert not amd_calls.is_amd(Call(1, 4, "/dev/dri/renderD128", 0xC0306448))
    assert not amd_calls.is_amd(Call(1, 4, "/dev/dri/renderD128", 0xC0186456))


def test_a_mapping_of_a_newer_kernel_has_its_timeline_and_an_older_one_says_nothing_of_it():
    va = other_calls.structures()["GemVa"](
        handle=2, operation=1, map_size=0x2000, vm_timeline_point=7, num_syncobj_handles=3
    )
    newer, older = said(
        f"ioctl(4</dev/dri/renderD128>, 0x40406448, 0x7ffe) = 0\nin\n{dump(va.to_bytes())}"
        f"ioctl(4</dev/dri/renderD128>, 0x40286448, 0x7ffe) = 0\nin\n{dump(va.to_bytes())}"
    )
    assert newer.endswith("map_size=0x2000, vm_timeline_point=0x7, num_syncobj_handles=3)")
    assert older == "DRM_IOCTL_AMDGPU_GEM_VA(handle=2, operation=1, map_size=0x2000)"


def test_the_answer_of_a_wait_for_memory_is_its_state_and_its_place():
    (text,) = said(
        "ioctl(4</dev/dri/renderD128>, 0xc0106447, 0x7ffe) = 0\n"
        f"in\n{dump(other_calls.structures()['GemWaitIdle'](handle=5).to_bytes())}"
        f"out\n{dump(bytes([1, 0, 0, 0, 4, 0, 0, 0]))}"
    )
    assert text == "DRM_IOCTL_AMDGPU_GEM_WAIT_IDLE(handle=5, status out=1, domain out=4)"


def test_a_call_without_an_argument_misses_none_and_a_debuggers_has_its_operation():
    assert said("ioctl(3</dev/kfd>, _IO('K', 0x27)) = 0\n") == ["AMDKFD_IOC_CREATE_PROCESS"]
    trap = kfd.structure("DbgTrapArgs")(pid=77, op=1)
    (text,) = said("ioctl(3</dev/kfd>, 0xc0204b26, 0x7ffe) = 0\nin\n" + dump(trap.to_bytes()))
    assert text == "AMDKFD_IOC_DBG_TRAP(pid=77, op=1)"


def test_a_number_that_nobody_knows_is_shown_as_one():
    text = "ioctl(3</dev/kfd>, 0xc0104bff, 0x7ffe) = -1 ENOTTY (x)\nioctl(3</dev/kfd>, AMDKFD_IOC_NEW, 0x7ffe) = 0\n"
    assert said(text) == ["KFD call 0xff  [16 bytes, no layout here]", "AMDKFD_IOC_NEW  [no layout here]"]


def test_a_terminals_calls_of_the_same_letter_are_none_of_the_kfds():
    assert not amd_calls.is_amd(Call(1, 3, "", 0x4B30))
    assert not amd_calls.is_amd(Call(1, 3, "/dev/tty1", 0xC0604B02))


def test_the_log_as_json(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text(f"{OPENED}ioctl(3, AMDKFD_IOC_GET_VERSION, 0x7ffe) = 0\n0x00000001 0x00000011\n")
    assert hcq_trace.main(["decode", "--json", str(log)]) == 0
    (call,) = json.loads(capsys.readouterr().out)
    assert (call["name"], call["file"], call["result"]) == ("AMDKFD_IOC_GET_VERSION", "/dev/kfd", 0)
    assert call["fields"] == {"major_version": "1", "minor_version": "17"}


@pytest.mark.parametrize("seed", range(20))
def test_damaged_logs_are_read_as_far_as_they_go(seed: int):
    rng = random.Random(seed)
    queue = kfd.CreateQueueArgs(ring_size=0x2000, ring_base_address=0x7F0012345000)
    text = OPENED + CREATED.format(before=dump(queue.to_bytes()), after=dump(queue.to_bytes())) + GVISOR
    for _ in range(30):
        damaged = list(text)
        for _ in range(rng.randrange(1, 60)):
            damaged[rng.randrange(len(damaged))] = rng.choice("0123456789abcdefxK()<>,|=_ \n\0é")
        calls = list(read("".join(damaged)[: rng.randrange(len(text))].splitlines()))
        for call in calls:
            if amd_calls.is_amd(call):
                assert len(amd_calls.decode_call(call).line()) < 5000
