"""What a loader reads in PTX: parameters by the C ABI, shared and local memory, bounds on blocks, variables."""

from __future__ import annotations

import pytest

from hcq.errors import UsageError
from hcq.nv.ptx import Parameter, read_module
from hcq.nv.toolchain import nvrtc

HEAD = ".version 8.0\n.target sm_90a, debug\n.address_size 64\n"


def test_parameters_have_their_natural_places():
    text = (
        HEAD
        + """
.visible .entry k(
    .param .u64 .ptr .global .align 1 a,
    .param .u8 b, // a comment with { and ( in it
    .param .f32 c,
    .param .align 16 .b8 d[24],
    .param .b16 e,
    .param .f64 f
) { ret; }
"""
    )
    entry = read_module(text).entries["k"]
    assert entry.parameters == (
        Parameter(0, 8, ""),
        Parameter(8, 1, ""),
        Parameter(12, 4, "float"),
        Parameter(16, 24, "bytes"),
        Parameter(40, 2, ""),
        Parameter(48, 8, "float"),
    )
    assert entry.param_bytes == 56


def test_several_variables_of_one_declaration_are_all_found():
    text = (
        HEAD
        + """
.global .align 8 .u64 rows[4] = {f, {0, g+8}, generic(h)}, first = 5, table[2][2];
.shared .align 8 .b8 all[10], more[7];
.entry one() { .local .align 8 .b8 here[8], there[24]; ret; }
"""
    )
    module = read_module(text)
    assert module.variables == ("rows", "first", "table")
    assert module.entries["one"].shared_bytes == 32  # all ends at 10, more at 23
    assert module.entries["one"].local_bytes == 32


def test_an_entry_without_parameters_has_none():
    for text in (".entry k { ret; }", ".visible .entry k() { ret; }"):
        assert read_module(HEAD + text).entries["k"].parameters == ()


def test_shared_memory_of_entry_and_module_and_local_memory_are_added_up():
    text = (
        HEAD
        + """
.shared .align 8 .b8 all[10];
.extern .shared .align 16 .b8 dynamic[];
.entry one() { .shared .align 4 .b8 mine[100]; .local .align 8 .b8 __local_depot0[64]; ld.shared.b32 %r1, [mine]; ret; }
.entry two() { { .shared .f32 tile[4][8]; } ret; }
"""
    )
    module = read_module(text)
    assert module.entries["one"].shared_bytes == 112
    assert module.entries["one"].local_bytes == 64
    assert module.entries["two"].shared_bytes == 144
    assert module.variables == ()


def test_bounds_on_blocks_are_read():
    text = HEAD + ".entry a() .maxntid 128, 2, 1 .minnctapersm 2 { ret; }\n.entry b() .reqntid 64 { ret; }"
    module = read_module(text)
    assert module.entries["a"].largest_block == (128, 2, 1)
    assert module.entries["b"].required_block == (64, 1, 1)


def test_variables_outside_functions_are_named_and_instructions_are_not():
    text = (
        HEAD
        + """
.global .align 4 .u32 counter = 7;
.const .align 4 .f32 weights[4] = {0f3F000000, 0f3F800000, 0f40000000, 0f40800000};
.entry k(.param .u64 p) { .reg .b64 %rd1; ld.global.b32 %r1, [counter]; st.global.u32 [p], %r1; ret; }
"""
    )
    assert read_module(text).variables == ("counter", "weights")


def test_the_target_is_the_first_of_its_line():
    assert read_module(HEAD + ".entry k() { ret; }").target == "sm_90a"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "has no .target line"),
        (HEAD, "has no .entry"),
        (HEAD + ".entry k() { {", "ends inside a function"),
        (HEAD + ".entry k() { .local .align 0 .b8 x[4]; }", r"has \.align 0, no power of two"),
    ],
)
def test_text_that_is_no_whole_ptx_is_refused(text: str, says: str):
    with pytest.raises(UsageError, match=rf"load\('mine'\): .*{says}"):
        read_module(text, "mine")


def test_it_agrees_with_the_interpreters_parser_on_what_nvrtc_writes():
    from hcq.emu.nv.shader.parser import parse
    from hcq.emu.nv.shader.run import Kernel

    source = r"""
    struct S { char a; double b; short c[3]; };
    extern "C" __global__ void one(char a, S s, float *p, unsigned short q, long long r) {
        __shared__ double tile[33]; __shared__ char more[5];
        tile[threadIdx.x] = s.b + a + q + r; more[threadIdx.x % 5] = a; __syncthreads();
        p[threadIdx.x] = tile[32 - threadIdx.x] + more[0] + s.c[threadIdx.x % 3];
    }
    extern "C" __global__ void two(int *p) { volatile int x[20]; x[p[0]] = 3; p[1] = x[p[2]]; }
    """
    try:
        text = nvrtc.compile_cuda(source, "compute_80").ptx
    except UsageError as error:
        pytest.skip(str(error))
    module = read_module(text)
    for name, entry in module.entries.items():
        kernel = Kernel(parse(text), name)
        assert entry.param_bytes == kernel.param_bytes
        assert entry.shared_bytes >= kernel.static_shared_bytes
        assert -(-entry.local_bytes // 16) * 16 == kernel.program.entry.local_bytes  # which it rounds


def test_a_number_of_thousands_of_digits_is_damage_and_no_error_of_pythons():
    text = ".version 8.0\n.target sm_80\n.entry k() { .local .align " + "9" * 5000 + " .b8 x[4]; }"
    with pytest.raises(UsageError, match="the PTX has a number of 5000 digits"):
        read_module(text)
