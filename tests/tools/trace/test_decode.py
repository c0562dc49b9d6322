"""decode: logs of ioctls in the forms that public tools print, and words of pushbuffers as text.

The strace lines are those of public bug reports (github.com/intel/libva 575, NVIDIA/cuda-checkpoint 10), the sandbox's
those of google/gvisor 9846, the words those of libcudest's documentation; the rest is in the form of a tool's source.
"""

from __future__ import annotations

import io
import json
import random

import pytest

from hcq.errors import UsageError
from hcq.nv.abi.ioctls import abi_for
from hcq.nv.abi.names import class_name, control_name, escape_name, uvm_name
from hcq.tools import hcq_trace
from hcq.tools.trace import decode, hex_text
from hcq.tools.trace.color import Color
from hcq.tools.trace.ioctl_decode import decode_call
from hcq.trace import ioctl_log
from hcq.trace.ioctl_log import Call, read, request_of

STRACE = """\
write(12, "\\1\\0\\0\\0\\0\\0\\0\\0", 8)        = 8
ioctl(5, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x4a, 0xb8), 0x7ffd23822d80) = 0
ioctl(5, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2a, 0x20), 0x7ffd23822ba0) = 0
openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR|O_CLOEXEC) = 15
fcntl(15, F_GETFD)                      = 0x1 (flags FD_CLOEXEC)
ioctl(15, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x4e, 0x38), 0x7ffd23822e40) = 0
mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 15, 0) = 0x7f5eb38b2000
close(15)                               = 0
ioctl(5, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2b, 0x28), 0x7ffd23823780) = 0
ioctl(15, TCGETS, 0x7ffd23823780) = -1 ENOTTY (Inappropriate ioctl for device)
"""
UVM = """\
18292 openat(AT_FDCWD, "/dev/nvidia-uvm", O_RDWR|O_CLOEXEC) = 9
18292 ioctl(9, _IOC(_IOC_NONE, 0, 0x1, 0x3000), 0x7ffd23823780 <unfinished ...>
18293 ioctl(9, _IOC(_IOC_NONE, 0, 0x25, 0), 0x7ffd23823790) = 0
18292 <... ioctl resumed>) = 0
1778055205.625509 18292 ioctl(9, _IOC(_IOC_NONE, 0, 0x21, 0), 0x7ffd23823780) = 0 <0.000021>
[pid 18292] ioctl(9, _IOC(_IOC_NONE, 0, 0xfff, 0), 0x7ffd23823780) = -1 EINVAL (Invalid argument)
"""
GVISOR = """\
I1229 09:57:11.030403   13265 strace.go:567] [   2:   2] python E ioctl(0x3 /dev/nvidiactl, 0xc020462a, 0x7ebe51113480)
D1229 09:57:11.030410   13265 frontend.go:154] [   2:   2] nvproxy: frontend ioctl: nr = 0x0000002a
D1229 09:57:11.030417   13265 frontend.go:488] [   2:   2] nvproxy: control command 0x2080122b
I1229 09:57:11.030431 13265 strace.go:605] [   2:   2] py X ioctl(0x3 /dev/nvidiactl, 0xc020462a, 0x7ebe5111) = 0 (0x0)
"""
GVISOR_REFUSED = """\
I0101 00:00:00.000001 1 strace.go:567] [ 1: 1] app E ioctl(0x44 /dev/nvidiactl, 0xc030462b, 0x7f0000000000)
I0101 00:00:00.000002 1 strace.go:567] [ 1: 2] app E ioctl(0x44 /dev/nvidiactl, 0xc020462a, 0x7f0000000000)
W0101 00:00:00.000003 1 frontend.go:786] [ 1: 1] nvproxy: unknown allocation class 0x000000f8
W0101 00:00:00.000004 1 frontend.go:400] [ 1: 2] nvproxy: unknown control command 0x20801702 (paramsSize=8)
W0101 00:00:00.000005 1 frontend.go:100] [ 1: 1] nvproxy: unknown frontend ioctl 52 == 0x34
I0101 00:00:00.000005 1 strace.go:605] [ 1: 1] app X ioctl(0x44 /dev/nvidiactl, 0xc030462b, 0x7f0000000000) = 0 (0x0) errno=22 (invalid argument) (11.5us)
I0101 00:00:00.000006 1 strace.go:605] [ 1: 2] app X ioctl(0x44 /dev/nvidiactl, 0xc020462a, 0x7f0000000000) = 0 (0x0) errno=0 (2us)
"""  # noqa: E501
WORDS_BELOW = """\
ioctl 2a, 32-byte param, fd 3 0xc1d04214 0x5c000002 0x2080012f 0x00000000
0x0010 0x950713f0 0x00007fff 0x000000a8 0x00000000
GPU method 0x5c000002:2080012f 0x00000000 0x00000000 0x00000000 0x00000000
0x0010 0x00000000 0x00000000 0x00000000 0x00000000
"""
MMT = (
    "--77-- pre_ioctl: fd:3, id:0x2a (full:0xc020462a), data: 0xc1d04214 0x5c000002 0x20801701 0x00000000 0x950713f0"
    " 0x00007fff 0x00000010 0x00000000 \n"
    "--77-- post_ioctl: fd:3, id:0x2a (full:0xc020462a), data: 0xc1d04214 0x5c000002 0x20801701 0x00000000 0x950713f0"
    " 0x00007fff 0x00000010 0x00000056 \n"
)


def calls(text: str) -> list[Call]:
    return list(read(text.splitlines()))


def said(text: str, release: str = "580.142") -> list[str]:
    found, _, abi = decode.decode_log(text.splitlines(), release)
    return [told.line(abi.release) for _, told in found]


def test_gvisors_errno_and_the_warnings_of_its_proxy_are_kept_beside_the_call_of_their_thread():
    refused, other = calls(GVISOR_REFUSED)
    assert (refused.error, refused.result) == ("EINVAL", 0)
    assert refused.warnings == ["unknown allocation class 0x000000f8", "unknown frontend ioctl 52 == 0x34"]
    assert (other.error, other.warnings) == ("", ["unknown control command 0x20801702 (paramsSize=8)"])
    found, others, abi = decode.decode_log(GVISOR_REFUSED.splitlines())
    lines = list(decode.log_lines(found, others, abi, Color(False)))
    assert "-> EINVAL  (unknown allocation class 0x000000f8; unknown frontend ioctl" in lines[0]
    assert "  1 refused: NV_ESC_RM_ALLOC" in lines
    assert decode.log_json(found)[0]["warnings"] == refused.warnings
    assert [call.warnings for call in calls(GVISOR)] == [[]]


def test_strace_names_requests_and_the_files_that_it_saw_opened():
    found = calls(STRACE)
    assert [call.path for call in found] == ["", "", "/dev/nvidiactl", "", ""]
    assert said(STRACE)[:3] == [
        "NV_ESC_RM_VID_HEAP_CONTROL  [184 bytes, no layout here]",
        "NV_ESC_RM_CONTROL",
        "NV_ESC_RM_MAP_MEMORY",
    ]
    assert (found[0].line, found[0].address, found[0].result) == (2, "0x7ffd23822d80", 0)


def test_a_call_of_another_size_is_named_and_not_decoded():
    assert said(STRACE)[3] == "NV_ESC_RM_ALLOC  [40 bytes; release 580 has 48: not decoded]"


def test_calls_of_other_drivers_are_counted_and_passed_over():
    found, others, _ = decode.decode_log(STRACE.splitlines())
    assert (len(found), others) == (4, 1)


def test_uvm_is_known_by_its_file_and_threads_that_interleave_are_put_together():
    found = calls(UVM)
    assert said(UVM) == [
        "UVM_INITIALIZE",
        "UVM_REGISTER_GPU",
        "UVM_MAP_EXTERNAL_ALLOCATION",
        "UVM call 0xfff  [no layout here]",
    ]
    assert [call.result for call in found] == [0, 0, 0, -1]
    assert found[3].error == "EINVAL"


def test_a_uvm_file_that_was_opened_before_the_log_is_known_from_its_first_call():
    text = "ioctl(9, 0x30000001, 0x7ffd) = 0\nioctl(9, 0x25, 0x7ffd) = 0\nioctl(1, 0x25, 0x7ffd) = 0\n"
    assert said(text) == ["UVM_INITIALIZE", "UVM_REGISTER_GPU"]


def test_a_sandbox_prints_a_call_twice_and_it_is_one_with_what_the_proxy_saw():
    assert said(GVISOR) == ["NV_ESC_RM_CONTROL(NV2080_CTRL_CMD_GR_GET_TPC_MASK)"]
    (call,) = calls(GVISOR)
    assert (call.path, call.result) == ("/dev/nvidiactl", 0)


def test_words_below_a_call_are_its_argument_and_its_parameters():
    (line,) = said(WORDS_BELOW)
    assert line == (
        "NV_ESC_RM_CONTROL(NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS, hclient=0xc1d04214, hobject=0x5c000002, "
        "params=0x7fff950713f0, paramssize=0xa8, params=00000000 00000000 00000000 00000000 00000000 00000000 00000000 "
        "00000000) -> ok"
    )


def test_before_and_after_give_the_status_in_words():
    (line,) = said(MMT)
    assert line.startswith("NV_ESC_RM_CONTROL(NV2080_CTRL_CMD_MC_GET_ARCH_INFO, ")
    assert "-> NV_ERR_NOT_SUPPORTED (0x56" in line
    found, _, abi = decode.decode_log(MMT.splitlines())
    assert "  1 refused: NV_ESC_RM_CONTROL" in list(decode.summary(found, 0, abi))


@pytest.mark.parametrize(
    "dump",
    [
        " | 00000  14 42 d0 c1 00 00 00 00  02 00 00 5c 57 00 00 00  |.B.........\\W...|",
        "00000000  14 42 d0 c1 00 00 00 00  02 00 00 5c 57 00 00 00  |.B.........\\W...|",
        "00000000: 1442 d0c1 0000 0000 0200 005c 5700 0000  .B.........\\W...",
        "after: 14 42 d0 c1 00 00 00 00 02 00 00 5c 57 00 00 00",
        "0x0000 0xc1d04214 0x00000000 0x5c000002 0x00000057",
        "0xc1d04214 0x00000000 0x5c000002 0x00000057",
        "0000  14 42 d0 c1 00 00 00 00\n0008  02 00 00 5c 57 00 00 00",
    ],
)
def test_every_common_form_of_a_dump_is_read(dump):
    (line,) = said(f"ioctl(4</dev/nvidiactl<char 195:255>>, 0xc0104629, 0x7ffc) = 0 <0.000012>\n{dump}\n")
    assert line.startswith(
        "NV_ESC_RM_FREE(hroot=0xc1d04214, hobjectold=0x5c000002) -> NV_ERR_OBJECT_NOT_FOUND (0x57"
    )


def test_two_dumps_are_before_and_after_and_changed_fields_are_told():
    abi = abi_for("580.142")
    before = abi.make("RmAllocArgs", hroot=7, hobjectparent=8, hclass=0xC8C0)
    after = abi.make("RmAllocArgs", hroot=7, hobjectparent=8, hclass=0xC8C0, hobjectnew=9)
    text = "ioctl(3, 0xc030462b, 0x7ffc) = 0\n"
    for made in (before, after):
        data = made.to_bytes()
        text += "".join(f"{at:08x}  {data[at : at + 16].hex(' ')}\n" for at in range(0, len(data), 16))
    assert said(text) == [
        f"NV_ESC_RM_ALLOC({class_name(0xC8C0)}, hroot=0x7, hobjectparent=0x8, hobjectnew out=0x9) -> ok"
    ]


def test_parameters_are_decoded_with_the_release_that_was_named():
    made = abi_for("570.86").make("ChannelAlloc", gpfifoentries=1024, enginetype=1)
    call = abi_for("570.86").make("RmAllocArgs", hclass=0xC86F, paramssize=made.size_bytes)
    told = decode_call(abi_for("570.86"), "/dev/nvidiactl", 0xC030462B, call.to_bytes(), b"", made.to_bytes())
    assert ("params.gpfifoentries", "0x400") in told.fields
    assert told.what == "HOPPER_CHANNEL_GPFIFO_A"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0xc020462a", 0xC020462A),
        ("3223340586", 0xC020462A),
        ("_IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2a, 0x20)", 0xC020462A),
        ("_IOC(_IOC_NONE, 0, 0x25, 0)", 0x25),
        ("_IOC(0, 0x00, 0x21, 0x00)", 0x21),
        ("_IOWR('F', 0x2a, 0x20)", 0xC020462A),
        ("TCGETS", 0),
    ],
)
def test_a_request_is_one_number_however_it_is_written(text, number):
    assert request_of(text) == number


def test_numbers_without_a_name_say_what_their_parts_say():
    assert control_name(0x20801701) == "NV2080_CTRL_CMD_MC_GET_ARCH_INFO"
    assert control_name(0x208012FE) == "control 0x208012fe of NV20_SUBDEVICE_0 (GR, index 0xfe)"
    assert control_name(0xDEAD0102) == "control 0xdead0102 of class 0xdead (part 0x1, index 0x2)"
    assert (escape_name(0x2A), escape_name(0x99)) == ("NV_ESC_RM_CONTROL", "escape 0x99")
    assert (uvm_name(37), uvm_name(0xFFF)) == ("UVM_REGISTER_GPU", "UVM call 0xfff")


def test_no_line_stops_the_reader():
    rng = random.Random(3)
    lines = (STRACE + UVM + GVISOR + WORDS_BELOW + MMT).splitlines()
    for _ in range(300):
        damaged = []
        for line in rng.sample(lines, len(lines)):
            at = rng.randrange(len(line) + 1)
            damaged.append(
                line[:at] + rng.choice(["", "(", "0x", "\0", "|", ")", " = "]) + line[at + rng.randrange(4) :]
            )
        abi = abi_for("580.142")
        for call in read(damaged):
            line = decode_call(abi, call.path, call.request, call.before, call.after, call.params).line()
            assert line and "\n" not in line


# -- words


def test_words_are_methods_of_their_class():
    words = hex_text.read(b"20018000 0000c8b5   # bind the copy class\n0x10: 0x20012000, 0xcbc0").words
    assert words == [0x20018000, 0xC8B5, 0x20012000, 0xCBC0]
    lines = list(decode.word_lines(words, "sm_90"))
    assert lines[0].strip().startswith("0  Push(INC_METHOD, subchannel=4, SET_OBJECT(")
    assert lines[1].strip().startswith("2  Push(INC_METHOD, subchannel=1, SET_OBJECT(")


def test_a_launch_description_and_ring_entries_are_read_as_such():
    assert "Qmd" in next(iter(decode.word_lines([0] * 64, "sm_90", "qmd")))
    assert len(list(decode.word_lines([0, 0, 4, 8], "sm_90", "gpfifo"))) == 2
    assert "no whole packet: behind one of 64 words" in list(decode.word_lines([0] * 65, "sm_80", "qmd"))[-1]


def test_an_architecture_that_is_not_known_is_refused():
    with pytest.raises(UsageError, match="sm_12"):
        list(decode.word_lines([1], "sm_12"))


# -- the program


def test_the_verb_prints_calls_and_a_summary(tmp_path, capsys):
    log = tmp_path / "log.txt"
    log.write_text(STRACE + UVM)
    assert hcq_trace.main(["decode", str(log)]) == 0
    out = capsys.readouterr().out
    assert "nvidiactl    NV_ESC_RM_MAP_MEMORY" in out
    assert "8 calls to NVIDIA's drivers, 1 to others; structures of release 580" in out
    assert "8 without their argument's bytes" in out
    assert hcq_trace.main(["decode", "--json", str(log)]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)][2] == "NV_ESC_RM_MAP_MEMORY"


def test_the_verb_reads_words_from_standard_input(monkeypatch, capsys):
    class Input:
        buffer = io.BytesIO(b"20018000 0000c8b5")

    monkeypatch.setattr("sys.stdin", Input)
    assert hcq_trace.main(["decode", "-", "--nv", "sm_90"]) == 0
    assert "SET_OBJECT" in capsys.readouterr().out


def test_a_text_without_ioctls_is_refused_with_what_it_takes(tmp_path, capsys):
    log = tmp_path / "poem.txt"
    log.write_text("the quick brown fox\n")
    assert hcq_trace.main(["decode", str(log)]) == 2
    assert "no ioctl in this text" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "ioctl(0003, 0xc020462a, 0x7ffc) = 0",
        "ioctl(0003, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 042, 0032), 0x7ffc) = -0",
        f"ioctl({'9' * 5000}, 0xc020462a, 0x7ffc) = 0\nioctl(3, 0xc020462a, 0x7ffc) = 0",
        f"ioctl(3, 0xc020462a, 0x7ffc) = {'9' * 5000}",
    ],
)
def test_a_number_with_leading_zeros_or_too_many_digits_is_no_error(line: str) -> None:
    calls = list(ioctl_log.read(line.splitlines()))
    assert [call.fd for call in calls] == [3]


def test_words_of_nvidias_as_json(tmp_path, capsys):
    text = tmp_path / "words"
    text.write_text("20018000 0000c8b5\n")
    assert hcq_trace.main(["decode", str(text), "--nv", "sm_90", "--json"]) == 0
    (packet,) = json.loads(capsys.readouterr().out)
    assert (packet["at"], packet["packet"]) == (0, "Push")
    assert "SET_OBJECT" in packet["text"]
