"""Bundles: machine code and its PTX travel together, every other image is told by what it is, damage is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.nv.bundle import HEADER_BYTES, Bundle
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, needs_nvrtc

PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"
CUBIN = b"\x7fELF" + bytes(range(200))
MAKE = """
import hashlib
from hcq.nv.toolchain import images
source = 'extern "C" __global__ void k(float *p) { p[threadIdx.x] *= 2; }'
made = images.of_cuda(source, "sm_90", "k")
print(hashlib.sha256(made).hexdigest())
ptx = images.ptx_of_cuda(source, "sm_90", "k").decode()
print(hashlib.sha256(images.of_ptx(ptx, "sm_90", "k")).hexdigest())

from hcq.compiler.codegen import compile_with
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import Toolchain, nv_target
from tests.compiler.render.test_gpu import KERNELS
for takes, make in (("cuda", images.of_cuda), ("ptx", images.of_ptx)):
    for kernel in KERNELS:
        code = compile_kernel(kernel(), compile_with(nv_target("sm_90"), Toolchain("test", takes, make)))
        print(hashlib.sha256(code.to_bytes()).hexdigest())
"""


def test_both_forms_come_back_as_they_were():
    assert Bundle.of(Bundle(CUBIN, PTX).pack()) == Bundle(CUBIN, PTX)


def test_a_single_form_is_its_own_image():
    assert Bundle(CUBIN, b"").pack() == CUBIN
    assert Bundle(b"", PTX).pack() == PTX
    assert Bundle.of(CUBIN) == Bundle(CUBIN, b"")
    assert Bundle.of(PTX) == Bundle(b"", PTX)


def test_ptx_may_end_in_the_zero_of_a_c_string_and_begin_with_comments():
    assert Bundle.of(b"//\n// made by hand\n//\n" + PTX + b"\0").ptx.endswith(PTX)


@pytest.mark.parametrize(
    "image", [b"", b"hello", b"MZ\x90\0", bytes(64), b"; ModuleID = 'k'\ndefine void @k() {}"]
)
def test_what_is_no_code_for_nvidia_is_refused_with_what_to_give(image):
    with pytest.raises(UsageError, match=r"no code for an NVIDIA GPU.*Give a cubin .*, PTX text"):
        Bundle.of(image)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, HEADER_BYTES + len(PTX) + len(CUBIN) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at, flip):
    image = bytearray(Bundle(CUBIN, PTX).pack())
    image[at] ^= flip
    with pytest.raises(UsageError):
        Bundle.of(image)


@pytest.mark.parametrize("keep", [8, 31, 32, 40, 150])
def test_a_shortened_one_is_refused(keep):
    with pytest.raises(UsageError, match="Compile it again"):
        Bundle.of(Bundle(CUBIN, PTX).pack()[:keep])


@needs_nvrtc
@needs_nvjitlink
@pytest.mark.deadline(120)
def test_two_processes_with_other_hash_seeds_make_the_same_images():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", MAKE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].split()) >= 10  # kernels of eight programs
