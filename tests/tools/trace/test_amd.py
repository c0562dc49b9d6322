"""Every verb on a trace of an (emulated) AMD GPU: another kind of device only declares its packets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from hcq import Tensor
a, b = Tensor([1.0, 2.0, 3.0, 4.0], device="AMD"), Tensor([5.0, 6.0, 7.0, 8.0], device="AMD")
assert (a * b + 1).sum().item() == 74
"""
EMULATE = {"HCQ_EMULATE": "amd:gfx1100"}


@pytest.fixture(scope="module")
def amd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("amd") / "run.hcqtrace"
    environment = {**os.environ, **EMULATE, "HCQ_TRACE": f"{path},data"}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, timeout=50)
    return path


def test_packets_have_their_vendors_names_and_addresses_their_buffers(trace, amd):
    text = trace("show", amd).out
    assert "device AMD: gfx1100" in text
    assert "DispatchDirect" in text
    assert "event_type=CACHE_FLUSH_AND_INV_TS_EVENT" in text
    assert "address=timeline " in text
    assert re.search(r"DispatchDirect .*, .*\) grid=\(1,1,1\)", text)


def test_ioctls_are_decoded(trace, amd):
    text = trace("show", amd, "--ioctls").out
    assert "open(/dev/kfd, 2)" in text
    assert "CREATE_QUEUE(queue_type=COMPUTE" in text


def test_its_kernels_are_disassembled(trace, amd):
    kernel = trace("disasm", amd).out.split("  ")[0]
    text = trace("disasm", amd, kernel).out
    assert "s_load_b" in text
    assert "s_endpgm" in text


def test_it_comes_back_from_text_bit_for_bit(trace, amd, tmp_path):
    text, back = tmp_path / "text", tmp_path / "back"
    assert trace("edit", amd, "-o", text).status == trace("assemble", text, "-o", back).status == 0
    assert back.read_bytes() == amd.read_bytes()
    assert "  ReleaseMem " in text.read_text()


def test_the_other_verbs_take_it(trace, amd, tmp_path):
    assert trace("diff", amd, amd).out.startswith("same work")
    assert "AMD main" in trace("stats", amd).out
    for form in ("--perfetto", "--csv", "--json"):
        assert trace("export", amd, form, "-o", tmp_path / "out").status == 0


def test_it_replays_on_an_emulated_gpu_bit_for_bit(amd):
    program = [sys.executable, "-m", "hcq.tools.hcq_trace", "replay", str(amd)]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        program, env={**os.environ, **EMULATE}, cwd=root, capture_output=True, text=True, timeout=50
    )
    assert done.stdout.startswith("same results, bit for bit"), done.stdout + done.stderr
