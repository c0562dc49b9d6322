"""PTX that an emulated GPU cannot run is refused when it is loaded, with its line, and spoils nothing else."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from hcq.emu.port import port_for
from hcq.errors import UsageError
from hcq.nv import ptx
from hcq.nv.device import NvDevice

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
REGISTERS = ".reg .b64 %d<4>; .reg .b32 %r<4>; .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .pred %p<2>;"
PLAIN = """
.visible .entry plain(.param .u64 out) {
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [out]; st.global.u32 [%d1], 7; ret;
}
"""
BROKEN = ".func broken { .reg .b32 %r<2>; frobnicate.u32 %r0, %r1; ret; }"
UNREADABLE = ".func broken(.reg .b32 x) { .gizmo { 1 } ret; }"


@pytest.fixture(scope="module")
def device() -> Iterator[NvDevice]:
    made = NvDevice("NV", port_for(["nv:sm_90"]))
    yield made
    made.close()


def module(body: str = "", before: str = "", bounds: str = "") -> bytes:
    """Two kernels: k, on whose line 6 the body stands, and one that stores 7."""
    text = (
        f"{HEAD}{before}\n.visible .entry k(.param .u64 out) {bounds} {{ {REGISTERS}\n{body}\nret;\n}}{PLAIN}"
    )
    return text.encode()


def plain_runs(device: NvDevice, image: bytes) -> bool:
    out = device.alloc(64)
    device.run(device.load(image, "plain"), [out], grid=(1, 1, 1), block=(1, 1, 1))
    return struct.unpack_from("I", out.read())[0] == 7


@pytest.mark.parametrize(
    "body",
    [
        "frobnicate.u32 %r0, %r1;",
        "add.u31 %r0, %r1, %r2;",
        "add.whole.u32 %r0, %r1, %r2;",
        "mov.u32 %r0, %moonphase;",
        "mov.u32 %r0, nobody;",
        ".gizmo;",
        "tcgen05.rotate.cta_group::1.down [%r0];",
        "tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%d1, {1}];",
        "bra NOWHERE;",
        "@%p0 frobnicate.u32 %r0, %r1;",
    ],
)
def test_a_word_that_cannot_run_is_refused_with_line_and_text_and_spoils_no_other_kernel(device, body):
    with pytest.raises(UsageError) as error:
        device.load(module(body), "k")
    assert "cannot run the kernel 'k'" in str(error.value)
    assert f"PTX line 6 `{body.rstrip(';')}`" in str(error.value)
    assert plain_runs(device, module(body))


def test_what_a_kernel_reaches_through_functions_and_tables_is_refused_and_what_nobody_reaches_is_not(device):
    for broken in (BROKEN, UNREADABLE):
        assert plain_runs(device, module("call broken;", broken))
        with pytest.raises(UsageError, match=r"PTX line 6|function 'broken', which it reaches: PTX line 4"):
            device.load(module("call broken;", broken), "k")
    between = BROKEN + " .func between { call broken; ret; }"
    assert plain_runs(device, module("call between;", between))
    with pytest.raises(UsageError, match="function 'broken', which it reaches: PTX line 4 `frobnicate"):
        device.load(module("call between;", between), "k")


@pytest.mark.parametrize(
    "bounds", [".reqnctapercluster 16, 1, 1", ".explicitcluster .reqnctapercluster 3, 3"]
)
def test_a_kernel_that_needs_larger_clusters_than_there_are_is_refused_alone(device, bounds):
    image = module(bounds=bounds)
    with pytest.raises(UsageError, match="on sm_90 a cluster has 8 at most"):
        device.load(image, "k")
    assert plain_runs(device, image)


@pytest.mark.parametrize(
    "bounds", [".reqnctapercluster 1, 1, 1", ".reqntid 1 .blocksareclusters .reqnctapercluster 1"]
)
def test_a_cluster_of_one_block_runs(device, bounds):
    device.run(device.load(module(bounds=bounds), "k"), [device.alloc(64)], grid=(1, 1, 1), block=(1, 1, 1))


def test_textures_that_nobody_uses_are_no_obstacle(device):
    before = ".global .texref t; .global .samplerref s; .global .surfref u;"
    assert plain_runs(device, module("mov.u64 %d1, t;", before))
    with pytest.raises(UsageError, match="'t' is a texture, a sampler or a surface"):
        device.load(module("mov.u64 %d1, t;", before), "k")


def test_a_directive_that_nobody_knows_is_refused_for_the_whole_module(device):
    with pytest.raises(UsageError, match=r"PTX line 4: unknown directive '\.gizmo' at the module's level"):
        device.load(module(before=".gizmo 1;"), "plain")


# -- what it is for


@pytest.mark.parametrize(
    "version, target, arch, why",
    [
        ("8.0", "sm_90a", "sm_80", "is for sm_90a, and this device is sm_80"),
        ("8.0", "sm_90", "sm_80", "is for sm_90, and this device is sm_80"),
        ("8.0", "sm_90a", "sm_100", "is for sm_90a, and this device is sm_100"),
        ("8.8", "sm_100f", "sm_120", "is for sm_100f, and this device is sm_120"),
        ("8.8", "sm_103f", "sm_100", "is for sm_103f, and this device is sm_100"),
        ("8.8", "sm_90z", "sm_90", "is for sm_90z, and this device is sm_90"),
        ("7.0", "sm_90", "sm_90", r"of version 7.0, which has no sm_90: that came with 7.8"),
        ("42.0", "sm_80", "sm_90", r"of version 42.0, for sm_80; the newest that is known is"),
        ("8.0", "sm_80", "sm_90", ""),
        ("8.0", "sm_90a", "sm_90", ""),
        ("8.8", "sm_100f", "sm_103", ""),
        ("7.0", "texmode_independent, sm_80, debug", "sm_80", ""),
    ],
)
def test_a_text_is_for_a_device_or_the_refusal_names_both(version, target, arch, why):
    text = f".version {version} .target {target} .address_size 64 .visible .entry k() {{ ret; }}"
    found = ptx.read_module(text)
    if not why:
        ptx.check_target(found, arch, "k")
        return
    with pytest.raises(UsageError, match=why):
        ptx.check_target(found, arch, "k")


def test_variables_do_not_hide_that_the_text_is_for_another_device(device):
    """They need machine code, and the assembler is not asked for what it cannot make."""
    text = b".version 8.6\n.target sm_100\n.address_size 64\n.global .u32 x;\n.visible .entry k() { ret; }\n"
    with pytest.raises(UsageError, match=r"load\('k'\): the PTX is for sm_100, and this device is sm_90"):
        device.load(text, "k")
