"""--declarations: packets, registers and methods of a user's own are known to every verb of hcq-trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.tools.trace import declarations
from tests.tools.trace.making import CELL, Maker

ROOT = Path(__file__).resolve().parents[3]
AMD = """
from hcq.amd.abi import pm4
from hcq.amd.chip import CHIPS
from hcq.layout import SparsePacket, bits


class MyFlush(pm4.Pm4, opcode=0xE7, words=3):
    \"\"\"A packet of a firmware of ours.\"\"\"

    depth = bits(39, 32)
    where = bits(95, 64)


class MyControl(SparsePacket, words=1):
    enable = bits(0)
    depth = bits(7, 4)


CHIPS["gfx1100"].packets[0xE7] = MyFlush
pm4.SetShReg.layouts[0x3F0] = MyControl
"""
NV = """
from hcq.layout import bits
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.method import Method
from hcq.nv.abi.methods import methods_of


class MyMethod(Method, at=0x1F40, vendor="MY_METHOD"):
    speed = bits(3, 0)


methods_of(ClassId.HOPPER_COMPUTE_A)[0x1F40] = MyMethod
"""
CPU = """
from hcq.cpu.packets import PACKETS
from hcq.layout import Packet, bits


class MyNote(Packet, words=2):
    number = bits(63, 32)


PACKETS[0xF1] = MyNote
"""


def hcq_trace(*arguments: str) -> tuple[int, str, str]:
    """The program in a process of its own, whose tables it may change."""
    command = [sys.executable, "-m", "hcq.tools.hcq_trace", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=environment)
    return done.returncode, done.stdout, done.stderr


def file(folder: Path, text: str, name: str = "my_packets.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_packet_and_a_register_of_ones_own_are_decoded(tmp_path: Path) -> None:
    mine = file(tmp_path, AMD)
    words = file(tmp_path, "c001e700 00000005 00001000 c0017600 000003f0 00000031", "ib.txt")
    plain = hcq_trace("decode", words, "--form", "pm4", "--chip", "gfx1100")
    assert "unknown opcode 0xe7" in plain[1] and "register_0x3f0=0x31" in plain[1]
    status, out, err = hcq_trace(
        "decode", words, "--form", "pm4", "--chip", "gfx1100", "--declarations", mine
    )
    assert (status, err) == (0, "")
    assert "MyFlush(depth=5, where=4096)" in out and "MyControl(enable=1, depth=3)" in out


def test_explain_knows_them_by_their_numbers(tmp_path: Path) -> None:
    mine = file(tmp_path, AMD)
    _, out, _ = hcq_trace("explain", "0x3f0", "--chip", "gfx1100", "--value", "0x31", "--declarations", mine)
    assert "register of gfx1100: MyControl" in out and "depth = 3" in out
    _, out, _ = hcq_trace("explain", "0xe7", "--chip", "gfx1100", "--declarations", mine)
    assert "opcode of PM4: MyFlush" in out
    _, out, _ = hcq_trace(
        "explain", "0x1f40", "--class", "cbc0", "--declarations", file(tmp_path, NV, "nv.py")
    )
    assert "MY_METHOD" in out and "speed" in out


def test_a_method_of_ones_own_is_decoded(tmp_path: Path) -> None:
    words = file(tmp_path, "200127d0 00000007", "push.txt")
    status, out, err = hcq_trace("decode", words, "--nv", "sm_90", "--declarations", file(tmp_path, NV))
    assert (status, err) == (0, "") and "MY_METHOD(speed=7)" in out


def test_show_knows_a_packet_of_ones_own(tmp_path: Path) -> None:
    maker = Maker()
    maker.device()
    maker.alloc(CELL, 64, "cell")
    maker.submit(words=(0x200F1).to_bytes(4, "little") + (42).to_bytes(4, "little"))
    trace = str(maker.write(tmp_path / "run.hcqtrace"))
    status, out, err = hcq_trace("show", trace, "--declarations", file(tmp_path, CPU))
    assert status == 0 and err == "" and "MyNote" in out and "42" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nraise ValueError('not today')", ", line 2: ValueError: not today."),
        ("x = 1\n\ny = = 2\n", ", line 3: SyntaxError"),
        ("import no_such_module", ", line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("import sys\nsys.exit(3)", "it ends the program (3)"),
        (
            "from hcq.layout import Packet, bits\nclass P(Packet, words=1):\n    a = bits(40)\n",
            "my_packets.py",
        ),
    ],
)
def test_an_error_of_the_file_is_one_sentence_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    status, _, err = hcq_trace("explain", "1", "--declarations", file(tmp_path, text))
    assert status == 2 and said in err and "Traceback" not in err and err.count("\n") <= 2


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    status, _, err = hcq_trace("explain", "1", "--declarations", str(tmp_path / "none.py"))
    assert status == 2 and "there is no such file" in err


def test_a_class_that_is_entered_nowhere_is_named(tmp_path: Path) -> None:
    forgotten = AMD.replace('CHIPS["gfx1100"].packets[0xE7] = MyFlush\n', "")
    status, _, err = hcq_trace(
        "explain", "0x3f0", "--chip", "gfx1100", "--declarations", file(tmp_path, forgotten)
    )
    assert status == 0 and err == "hcq-trace: MyFlush is in no table, and is not used.\n"


def test_a_base_of_other_packets_need_not_be_entered(tmp_path: Path) -> None:
    text = CPU.replace("class MyNote(Packet, words=2):", "class Shared(Packet, words=2):\n    first = bits(31, 8)\n\n\n"
                       "class MyNote(Shared):")  # fmt: skip
    from hcq.cpu.packets import PACKETS

    before = dict(PACKETS)
    try:
        assert declarations.load(file(tmp_path, text)) == []
    finally:
        PACKETS.clear()
        PACKETS.update(before)


def test_a_class_has_one_table_of_methods_by_its_name_and_by_its_number() -> None:
    from hcq.nv.abi.classes import ClassId
    from hcq.nv.abi.methods import methods_of

    assert all(methods_of(one) is methods_of(int(one)) for one in ClassId)
