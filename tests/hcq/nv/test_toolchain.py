"""nvrtc and nvJitLink: found or named, their messages passed on."""

from __future__ import annotations

import re

import pytest

from hcq.errors import UsageError
from hcq.nv.toolchain import nvjitlink, nvrtc
from hcq.nv.toolchain.library import candidates, open_library
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, needs_nvrtc

SCALE = 'extern "C" __global__ void scale(float *x, float by) { x[threadIdx.x] *= by; }'


def test_a_library_that_is_not_there_is_named_with_the_way_to_get_it():
    with pytest.raises(UsageError) as error:
        open_library("nvnothing", "nvidia-nothing", {})
    assert "nvnothing is not installed: neither the pip wheel nvidia-nothing nor a CUDA toolkit" in str(
        error.value
    )
    assert "pip install 'hcq[nv]'" in str(error.value)


def test_plain_names_are_tried_last_newest_first():
    assert candidates("nvnothing") == ["libnvnothing.so.13", "libnvnothing.so.12", "libnvnothing.so"]


@needs_nvrtc
def test_cuda_c_becomes_ptx_and_a_cubin():
    made = nvrtc.compile_cuda(SCALE, "sm_90")
    assert ".visible .entry scale(" in made.ptx
    assert made.cubin[:4] == b"\x7fELF"
    assert nvrtc.compile_cuda(SCALE, "compute_90").cubin == b""
    assert 90 in nvrtc.supported_architectures()
    assert nvrtc.version() >= (12, 0)


@needs_nvrtc
def test_a_mistake_in_the_source_comes_with_the_compilers_message():
    with pytest.raises(UsageError, match=r'mine\.cu\(1\): error: identifier "undeclared" is undefined'):
        nvrtc.compile_cuda("__global__ void k() { undeclared = 3; }", "sm_90", name="mine.cu")
    with pytest.raises(UsageError, match="unrecognized option"):
        nvrtc.compile_cuda(SCALE, "sm_90", ["--not-an-option"])


@needs_nvrtc
def test_an_architecture_that_nvrtc_does_not_know_is_refused_with_those_it_knows():
    with pytest.raises(UsageError, match=r"does not compile for sm_20\. It knows sm_"):
        nvrtc.compile_cuda(SCALE, "sm_20")
    with pytest.raises(UsageError, match="arch='ampere' is not an architecture"):
        nvrtc.compile_cuda(SCALE, "ampere")


@needs_nvrtc
def test_the_same_source_gives_the_same_bytes():
    assert nvrtc.compile_cuda(SCALE, "sm_80") == nvrtc.compile_cuda(SCALE, "sm_80")


@needs_nvrtc
@needs_nvjitlink
def test_ptx_becomes_a_cubin_of_another_architecture():
    cubin = nvjitlink.link_ptx(nvrtc.compile_cuda(SCALE, "compute_80").ptx, "sm_120")
    assert cubin[:4] == b"\x7fELF"
    assert nvjitlink.version() >= (12, 0)


@needs_nvjitlink
def test_ptx_with_a_mistake_comes_with_the_assemblers_message():
    ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\nadd.u32 %nobody, 1, 2;\nret;\n}\n"
    with pytest.raises(UsageError) as error:
        nvjitlink.link_ptx(ptx, "sm_90")
    assert "nvJitLink" in str(error.value)
    assert re.search(r"%?nobody|line 5", str(error.value))


@needs_nvjitlink
def test_an_architecture_that_nvjitlink_does_not_know_is_refused():
    with pytest.raises(UsageError, match=r"unrecognized -arch|internal error"):
        nvjitlink.link_ptx("", "sm_999")
    with pytest.raises(UsageError, match="arch='sm_3' is not an architecture"):
        nvjitlink.link_ptx("", "sm_3")
